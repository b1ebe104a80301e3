//! Which entries clusters have, and which leases stand for nothing.

use api_types::hive::EntryState;
use api_types::name::is_name;

use crate::decision::Step;
use crate::plan::Plan;
use crate::reason::Reason;
use crate::seen::{Cluster, Customization};
use crate::text;
use crate::usage::{Held, Use};

/// A cluster that waits only for us: its lease first, our finalizer second. In the other order
/// a crash between them would leave a lease of nothing.
pub(super) fn release(plan: &mut Plan<'_>) {
    let seen = plan.seen;
    for cluster in seen.clusters.iter().filter(|it| it.deleting && it.kept) {
        // As long as its entry cannot be read, no lease can be given back.
        let customization = plan.uses.by(cluster).and_then(|it| it.customization);
        let is_unread = customization.is_some_and(|it| it.unread);
        if cluster.kept_by_others || is_unread || !plan.may_go(cluster) {
            continue;
        }
        // What no customization can be called has no lease to look for, and the cluster would wait for that look for ever.
        let entry = plan.uses.entry_of(cluster).filter(|it| is_name(it)).map(str::to_owned);
        let let_go = Step::LetGo { cluster: cluster.name.clone(), entry };
        let entry = plan.uses.by(cluster).filter(|it| it.is_held_by(cluster));
        let release = entry.map(|it| Step::release(it.name, Some(&cluster.name), false));
        let steps: Vec<Step> = release.into_iter().chain([let_go]).collect();
        plan.push(Reason::Released, steps);
    }
}

pub(super) fn put_leases_right(plan: &mut Plan<'_>) {
    let (seen, uses) = (plan.seen, plan.uses);
    for (it, entry) in uses.there() {
        match it.held {
            Held::Free | Held::Torn => plan.give_back(it, entry),
            Held::Ours(holder) => {
                if !holder.deleting {
                    plan.complete_lease(entry, holder);
                }
                plan.end_double_use(it, Some(&holder.name));
            }
            Held::Mistaken(cluster) => {
                let step = Step::release(&entry.name, Some(cluster), false);
                plan.push(Reason::LeaseAbandoned, [step]);
            }
            Held::Orphaned(cluster)
                if entry.others.is_empty() && plan.frees_of_nobody(it, entry) =>
            {
                let steps = plan.abandoning(entry, cluster);
                plan.push(Reason::LeaseAbandoned, steps);
            }
            // A lease for a cluster that is not there is given up by the pool that holds it.
            Held::Others if !entry.others.is_empty() => plan.end_double_use(it, None),
            // A cluster that is there comes before one that is not: see the completion of leases.
            Held::Half(_) | Held::Unread(_) | Held::Orphaned(_) | Held::Others => {}
        }
    }
    for cluster in seen.clusters.iter().filter(|it| !it.deleting) {
        let Some(entry) = uses.by(cluster) else { continue };
        let lost = cluster.unverified && entry.customization.is_none();
        if lost && cluster.claim.is_none() && !cluster.protected {
            // Its lease can never be verified, and nothing of it was installed.
            plan.delete_at_once(cluster, Reason::EntryMissing);
        } else if plan.is_once_more(cluster) {
            plan.delete_at_once(cluster, Reason::LeftOver);
        } else if !cluster.kept {
            plan.push(Reason::ClusterAdopted, [Step::Adopt(cluster.name.clone())]);
        }
    }
}

/// New clusters that a stopped process left paused.
pub(super) fn verify(plan: &mut Plan<'_>) {
    if plan.seen.pool.deleting {
        return;
    }
    let seen = plan.seen;
    for cluster in seen.clusters.iter().filter(|it| it.unverified && !it.deleting) {
        let Some(entry) = plan.uses.by(cluster) else { continue };
        let holds = |it: &Customization| {
            entry.is_held_by(cluster) && !it.is_announced() && it.names_pool(&seen.pool.name)
        };
        let name = cluster.name.as_str();
        if entry.customization.is_some_and(holds)
            && !plan.gone.contains(name)
            && !plan.going.contains(name)
        {
            let (cluster, entry) = (cluster.name.clone(), entry.name.to_owned());
            plan.push(Reason::Verified, [Step::Verify { cluster, entry }]);
        }
    }
}

impl<'a> Plan<'a> {
    /// An entry that nobody has by its lease. Whoever lost its lease gets it back, the oldest where there are several, as
    /// long as no other pool has the entry and nobody who leaves is still at it.
    fn give_back(&mut self, it: &Use<'a>, entry: &Customization) {
        let first = it.living().find(|it| !self.is_once_more(it));
        let left = it.users.iter().all(|it| !it.deleting || !it.is_live());
        match first {
            Some(cluster) if entry.others.is_empty() => {
                if left && !entry.deleting {
                    let steps = Self::leasing(entry, &cluster.name, true);
                    self.push(Reason::LeaseRepaired, steps);
                }
                self.end_double_use(it, Some(&cluster.name));
            }
            Some(cluster) => {
                let note = text::used_by_others(&entry.name, &cluster.name, &entry.others[0]);
                self.event(Reason::DoubleUse, &entry.name, &note);
            }
            None => {
                let is_nobodys = left && it.held == Held::Torn && entry.others.is_empty();
                if is_nobodys && self.frees(it, entry) {
                    self.push(Reason::LeaseAbandoned, [Step::release(it.name, None, false)]);
                }
            }
        }
    }

    /// A lease of a cluster that stays: what is lacking of it is written.
    fn complete_lease(&mut self, entry: &Customization, holder: &Cluster) {
        let may_lease = entry.others.is_empty() && !entry.deleting;
        if !entry.is_whole(&self.seen.pool.name) && may_lease {
            // Others would take it for free, or for nobody knows whose.
            let steps = Self::leasing(entry, &holder.name, true);
            self.push(Reason::LeaseRepaired, steps);
        } else if entry.is_announced() {
            self.push(Reason::LeaseRepaired, [Step::Retract(entry.name.clone())]);
        } else if (!entry.kept || entry.kept_by_hive) && !entry.deleting {
            // A lease of Hive's own controller, or one that somebody took our finalizer off.
            self.push(Reason::LeaseRepaired, [Step::KeepEntry(entry.name.clone())]);
        } else if entry.failed_by_hive && !entry.deleting {
            // With the word of a lease that stands, the word of Hive's own controller goes.
            self.push(Reason::LeaseRepaired, [Step::Retract(entry.name.clone())]);
        }
    }

    /// Whether a lease of nothing on the entry is this pool's to end: the pool lists it, or none does, and a finalizer keeps
    /// it.
    fn frees(&self, it: &Use<'_>, entry: &Customization) -> bool {
        let pool = &self.seen.pool;
        let is_unlisted = !entry.listed_elsewhere && (pool.deleting || !pool.listed.is_mistaken());
        it.listed || it.kept && is_unlisted
    }

    /// The same of a lease for a cluster that nobody sees. It is not the pool's own, so that the pool's end does not wait
    /// for it; who may still hear of the pool that it names is left to end it.
    fn frees_of_nobody(&self, it: &Use<'_>, entry: &Customization) -> bool {
        let pool = &self.seen.pool;
        let names_none = entry.lease.as_ref().is_some_and(|it| it.pool.is_none());
        let is_to_be = if names_none { self.frees(it, entry) } else { it.listed };
        is_to_be && (pool.absent || !pool.deleting)
    }

    /// Whether a process that stalled before it created the cluster did so after the cluster of this name had failed, or
    /// after the entry, as it was then, had no attempts left. Hive was not let at it, so there is nothing of it yet.
    fn is_once_more(&self, cluster: &'a Cluster) -> bool {
        let Some(entry) = self.uses.by(cluster) else { return false };
        let same = entry.before.filter(|it| it.version == cluster.entry_version);
        let has_none =
            |it: Option<&EntryState>| it.and_then(|it| it.attempts).is_some_and(|it| it <= 0);
        cluster.unverified
            && cluster.is_installing()
            && !cluster.protected
            && (has_none(same) && has_none(entry.now.as_ref()) || entry.is_counted(&cluster.name))
    }

    /// Clusters of an entry that somebody else holds. A claimed one is its user's and stays.
    fn end_double_use(&mut self, entry: &Use<'a>, holder: Option<&str>) {
        for cluster in entry.living().filter(|it| Some(it.name.as_str()) != holder) {
            if cluster.claim.is_none() && !cluster.protected {
                self.delete_at_once(cluster, Reason::DoubleUse);
            } else {
                let note = text::used_twice(entry.name, &cluster.name);
                self.event(Reason::DoubleUse, entry.name, &note);
            }
        }
    }
}
