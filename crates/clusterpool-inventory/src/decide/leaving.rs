//! What is left over goes, and a pool after all that is its own.

use std::collections::BTreeSet;

use crate::decision::Step;
use crate::lease::Held;
use crate::plan::Plan;
use crate::reason::Reason;

/// Clusters and leases of a pool that goes.
pub(super) fn leave(plan: &mut Plan<'_>) {
    if !plan.seen.pool.deleting {
        return;
    }
    for cluster in plan.seen.clusters.iter().filter(|it| it.marked || it.is_unclaimed()) {
        plan.delete(cluster, Reason::PoolDeleted);
    }
    for (entry, cluster) in plan.halves().collect::<Vec<_>>() {
        let steps = plan.abandoning(entry, cluster);
        plan.push(Reason::LeaseAbandoned, steps);
    }
}

/// Finalizers on customizations that nobody needs, and namespaces that no cluster came to.
pub(super) fn tidy(plan: &mut Plan<'_>) {
    let seen = plan.seen;
    for place in 0..plan.entries.len() {
        let (entry, held) = plan.entries[place];
        if held != Held::Free {
            continue;
        }
        let name = entry.name.as_str();
        let listed = entry.listed_elsewhere
            || plan.listed.contains(name) && !seen.pool.deleting
            || seen.pool.listed.is_mistaken() && !seen.pool.deleting;
        let used = !entry.others.is_empty() || plan.is_lived_in(name);
        let kept = entry.kept || seen.kept_by_hive.contains(name);
        if kept && !used && (entry.deleting || !listed) {
            let step = Step::FreeEntry { entry: name.to_owned(), at: entry.at.clone() };
            plan.push(Reason::EntryFreed, [step]);
        }
    }
    let leased: BTreeSet<&str> = plan.halves().map(|(_, cluster)| cluster).collect();
    for namespace in seen.namespaces.iter().filter(|it| !it.deleting) {
        let name = namespace.name.as_str();
        if plan.clusters.contains_key(name) || leased.contains(name) || plan.begun.contains(name) {
            continue;
        }
        let left = plan.grace_of(namespace);
        if left.is_zero() || seen.pool.deleting && !seen.pool.absent {
            let (name, uid) = (name.to_owned(), namespace.uid.clone());
            plan.push(Reason::LeftOver, [Step::RemoveNamespace { name, uid }]);
        } else {
            plan.again = Some(plan.again.map_or(left, |it| it.min(left)));
        }
    }
}

/// The pool goes when its clusters are gone, and not before.
pub(super) fn let_go(plan: &mut Plan<'_>) {
    let seen = plan.seen;
    if !seen.pool.deleting {
        return;
    }
    let is_empty = seen.clusters.is_empty() && seen.unread.is_empty();
    if plan.work.is_empty() && is_empty && seen.pool.kept {
        plan.push(Reason::PoolGone, [Step::LetPoolGo { at: seen.pool.at.clone() }]);
    } else if seen.pool.absent {
        plan.tell_waiting(Reason::NoPool);
    } else if seen.pool.kept {
        plan.tell_waiting(Reason::PoolDeleted);
    }
}
