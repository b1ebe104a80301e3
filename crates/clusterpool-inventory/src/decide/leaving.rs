//! What is left over goes, and a pool after all that is its own.

use std::collections::BTreeSet;

use crate::decision::Step;
use crate::plan::Plan;
use crate::reason::Reason;
use crate::usage::Held;

/// Clusters and leases of a pool that goes.
pub(super) fn leave(plan: &mut Plan<'_>) {
    if !plan.seen.pool.deleting {
        return;
    }
    for cluster in plan.seen.clusters.iter().filter(|it| it.marked || it.is_unclaimed()) {
        plan.delete(cluster, Reason::PoolDeleted);
    }
    for (_, entry, cluster) in plan.uses.halves() {
        let steps = plan.abandoning(entry, cluster);
        plan.push(Reason::LeaseAbandoned, steps);
    }
}

/// Finalizers on customizations that nobody needs, and namespaces that no cluster came to.
pub(super) fn tidy(plan: &mut Plan<'_>) {
    let seen = plan.seen;
    for (it, entry) in plan.uses.there().filter(|(it, _)| it.held == Held::Free) {
        let listed = entry.listed_elsewhere
            || it.listed && !seen.pool.deleting
            || seen.pool.listed.is_mistaken() && !seen.pool.deleting;
        let used = !entry.others.is_empty() || it.is_lived_in();
        let is_leased = |step: &Step| matches!(step, Step::Lease { entry, .. } if entry == it.name);
        let is_taken = || plan.decision.work.iter().flat_map(|it| &it.steps).any(is_leased);
        if it.kept && !used && (entry.deleting || !listed) {
            plan.push(Reason::EntryFreed, [Step::FreeEntry(entry.name.clone())]);
        } else if entry.failed_by_hive && it.listed && !used && !seen.pool.deleting && !is_taken() {
            // With the word that it is free, the word of Hive's own controller goes.
            plan.push(Reason::LeftOver, [Step::release(it.name, None, false)]);
        }
    }
    let leased: BTreeSet<&str> = plan.uses.halves().map(|(_, _, cluster)| cluster).collect();
    for namespace in seen.namespaces.iter().filter(|it| !it.deleting) {
        let name = namespace.name.as_str();
        if plan.uses.cluster(name).is_some() || leased.contains(name) || plan.begun.contains(name) {
            continue;
        }
        let left = plan.grace_of(namespace);
        if left.is_zero() || seen.pool.deleting && !seen.pool.absent {
            plan.push(Reason::LeftOver, [Step::RemoveNamespace(name.to_owned())]);
        } else {
            let again = &mut plan.decision.again;
            *again = Some(again.map_or(left, |it| it.min(left)));
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
    if plan.decision.work.is_empty() && is_empty && seen.pool.kept {
        plan.push(Reason::PoolGone, [Step::LetPoolGo]);
    } else if seen.pool.absent {
        plan.tell_waiting(Reason::NoPool);
    } else if seen.pool.kept {
        plan.tell_waiting(Reason::PoolDeleted);
    }
}
