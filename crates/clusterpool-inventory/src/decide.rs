//! The rules, in the order in which they apply. Pure: no client, no clock.
//!
//! A pool that another controller works on is left to it. Otherwise:
//!
//! 1. What is being deleted gives its entry back.
//! 2. Leases are put right.
//! 3. Claims are served, before anything slow.
//! 4. Leases without a cluster are completed or given up.
//! 5. Clusters are removed and added within one budget, no reason excluding another: claims that
//!    are gone, entries that were removed, missing clusters, broken ones, too many, one stale one.
//! 6. Leases of new clusters are verified, and those that Hive does not begin to install looked after.
//! 7. Clusters run or hibernate.
//! 8. What is left over goes.
//!
//! A cluster whose failure costs its entry an attempt is not removed before that is stored, nor one
//! whose entry is to be deleted or updated before the entry says so. A pool that is gone counts as
//! one that is being deleted: a process that had not heard of it may have made something for it
//! since. What is installed stays then, unless its claim is gone: a backup may have brought it back
//! before its pool. Claims that wait for a pool that is gone or goes are told so.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use api_types::hive::EntryStatus;
use controller_kit::engine::Reason as _;
use k8s_openapi::jiff::Timestamp;

use crate::decision::{Decision, Step, Version, Work};
use crate::inventory::is_counted;
use crate::lease::Held;
use crate::plan::{BEGUN, Plan};
use crate::reason::Reason;
use crate::seen::{Claim, Cluster, Customization, Listed, Observed, Part};
use crate::settings::Policy;
use crate::status;

/// The reason of a condition that Hive put there and knows nothing about yet.
const UNTOLD: &str = "Initialized";

/// Decides about a pool.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    let mut plan = Plan::new(seen, policy, now);
    let pool = &seen.pool;
    if pool.rival.is_some() {
        // Two that decide about one pool undo each other's work.
        return refused(seen);
    }
    let note = plan.takeover().filter(|_| !pool.deleting);
    let is_new = note.is_some();
    if pool.deleting {
        plan.release();
        plan.put_leases_right();
        plan.leave();
    } else if let Some(note) = note.filter(|_| pool.kept) {
        plan.push(Reason::PoolAdopted, [Step::NoteVersion { note, at: pool.at.clone() }]);
    } else if pool.kept {
        plan.release();
        plan.put_leases_right();
        plan.serve_claims();
        plan.balance();
        plan.verify();
        plan.look_after();
        plan.power();
        plan.tidy();
    } else {
        plan.push(Reason::PoolAdopted, [Step::KeepPool { at: pool.at.clone() }]);
    }
    status::events(&mut plan);
    // What to note is told by what Hive said last, which stays until it is noted.
    let status = if is_new { None } else { status::wanted(&plan) };
    Decision {
        status,
        work: plan.work,
        events: plan.events,
        goes_on: plan.goes_on,
        again: plan.again,
    }
}

/// Clusters in place of those whose entries somebody else was faster to lease: what would be added without the entries
/// that were tried, so many at most.
pub fn instead(
    seen: &Observed,
    policy: &Policy,
    now: Timestamp,
    tried: &BTreeSet<String>,
    places: usize,
) -> Vec<Work> {
    let mut left = seen.clone();
    left.customizations.retain(|it| !tried.contains(&it.name));
    let work = decide(&left, policy, now).work;
    work.into_iter().filter(|it| it.leases().is_some()).take(places).collect()
}

/// Nothing is done, and the pool says why.
fn refused(seen: &Observed) -> Decision {
    let status = status::refused(seen);
    let news = status != seen.pool.status;
    let note = seen.pool.rival.clone().unwrap_or_default();
    let event = crate::decision::Event { reason: Reason::HiveControllerActive, about: None, note };
    Decision {
        status: news.then_some(status),
        events: if news { vec![event] } else { Vec::new() },
        ..Decision::default()
    }
}

impl<'a> Plan<'a> {
    /// A cluster that waits only for us: its lease first, our finalizer second. In the other order
    /// a crash between them would leave a lease of nothing.
    fn release(&mut self) {
        let seen = self.seen;
        for cluster in seen.clusters.iter().filter(|it| it.deleting && it.kept) {
            if cluster.kept_by_others || !self.may_go(cluster) {
                continue;
            }
            let entry = self.entry_of(cluster);
            let let_go = Step::LetGo {
                cluster: cluster.name.clone(),
                entry: entry.map(str::to_owned),
                at: cluster.at.clone(),
            };
            let entry = entry.and_then(|name| self.entry(name));
            let steps = match entry {
                Some((entry, Held::Ours(holder))) if holder.name == cluster.name => {
                    let release = Step::Release {
                        entry: entry.name.clone(),
                        cluster: Some(cluster.name.clone()),
                        prove_absent: false,
                        at: entry.at.clone(),
                    };
                    vec![release, let_go]
                }
                _ => vec![let_go],
            };
            self.push(Reason::Released, steps);
        }
    }

    /// Whether the cluster's failure is stored, if it costs its entry an attempt.
    pub(crate) fn may_go(&mut self, cluster: &'a Cluster) -> bool {
        let counts = cluster.has_failed()
            && !self.seen.pool.deleting
            && self.entry_of(cluster).is_some_and(|name| {
                let before = self.seen.pool.status.inventory.get(name);
                is_counted(self.state(name), &cluster.name) && !is_counted(before, &cluster.name)
            });
        if counts {
            self.again = Some(Duration::ZERO);
        }
        !counts
    }

    /// Whether the entry's stored status says that the cluster goes, if its status is to say that. Where no status of the
    /// entry is stored there may be no room for one: that is not waited for.
    pub(crate) fn is_told(&mut self, cluster: &'a Cluster) -> bool {
        let is_untold = self.entry_of(cluster).is_some_and(|name| {
            let before = self.seen.pool.status.inventory.get(name);
            self.state(name).zip(before).is_some_and(|(now, before)| {
                matches!(now.status, EntryStatus::ToBeDeleted | EntryStatus::ToBeUpdated)
                    && now.cluster.as_ref() == Some(&cluster.name)
                    && now.status != before.status
            })
        });
        if is_untold {
            self.again = Some(Duration::ZERO);
        }
        !is_untold
    }

    fn put_leases_right(&mut self) {
        let seen = self.seen;
        for place in 0..self.entries.len() {
            let (entry, held) = self.entries[place];
            let named = || (entry.name.clone(), entry.at.clone());
            let release = |cluster: Option<&str>| {
                let (entry, at) = named();
                let cluster = cluster.map(str::to_owned);
                Step::Release { entry, cluster, prove_absent: false, at }
            };
            match held {
                // Whoever lost its lease gets it back, the oldest where there are several, as long as no other pool has
                // the entry and nobody who leaves is still at it.
                Held::Free | Held::Torn => {
                    let mut living = self.living(&entry.name).into_iter();
                    let first = living.find(|it| !self.is_once_more(it));
                    let users = self.users.get(entry.name.as_str()).into_iter().flatten();
                    let left = users.into_iter().all(|it| !it.deleting || !it.is_live());
                    match first {
                        Some(cluster) if entry.others.is_empty() => {
                            if left && !entry.deleting {
                                let steps = Self::leasing(entry, &cluster.name, true);
                                self.push(Reason::LeaseRepaired, steps);
                            }
                            self.end_double_use(&entry.name, Some(&cluster.name));
                        }
                        Some(cluster) => {
                            let note = format!(
                                "Entry {} is in use by cluster {} and by {} of another pool; end one of them",
                                entry.name, cluster.name, entry.others[0]
                            );
                            self.event(Reason::DoubleUse, &entry.name, note);
                        }
                        None if left
                            && held == Held::Torn
                            && entry.others.is_empty()
                            && self.frees(entry) =>
                        {
                            self.push(Reason::LeaseAbandoned, [release(None)]);
                        }
                        None => {}
                    }
                }
                Held::Ours(holder) => {
                    let is_whole = entry.is_whole(&seen.pool.name);
                    let may_lease = entry.others.is_empty() && !entry.deleting;
                    if !is_whole && may_lease && !holder.deleting {
                        // Others would take it for free, or for nobody knows whose.
                        let steps = Self::leasing(entry, &holder.name, true);
                        self.push(Reason::LeaseRepaired, steps);
                    } else if entry.is_announced() && !holder.deleting {
                        let (entry, at) = named();
                        let retract = Step::Retract { entry, at };
                        self.push(Reason::LeaseRepaired, [retract]);
                    } else if (!entry.kept || seen.kept_by_hive.contains(&entry.name))
                        && !entry.deleting
                        && !holder.deleting
                    {
                        // A lease of Hive's own controller, or one that somebody took our finalizer off.
                        let (entry, at) = named();
                        let keep = Step::KeepEntry { entry, at };
                        self.push(Reason::LeaseRepaired, [keep]);
                    }
                    self.end_double_use(&entry.name, Some(&holder.name));
                }
                Held::Mistaken(cluster) => {
                    self.push(Reason::LeaseAbandoned, [release(Some(cluster))]);
                }
                Held::Orphaned(cluster)
                    if entry.others.is_empty() && self.frees_of_nobody(entry) =>
                {
                    let steps = self.abandoning(entry, cluster);
                    self.push(Reason::LeaseAbandoned, steps);
                }
                Held::Others => self.end_double_use(&entry.name, None),
                // A cluster that is there comes before one that is not: see the completion of leases.
                Held::Half(_) | Held::Orphaned(_) => {}
            }
        }
        for cluster in seen.clusters.iter().filter(|it| !it.deleting) {
            let Some(entry) = self.entry_of(cluster) else { continue };
            let lost = cluster.unverified && self.entry(entry).is_none();
            if lost && cluster.claim.is_none() && !cluster.protected {
                // Its lease can never be verified, and nothing of it was installed.
                self.delete_at_once(cluster, Reason::EntryMissing);
            } else if self.is_once_more(cluster) {
                self.delete_at_once(cluster, Reason::LeftOver);
            } else if !cluster.kept {
                let (cluster, at) = (cluster.name.clone(), cluster.at.clone());
                self.push(Reason::ClusterAdopted, [Step::Adopt { cluster, at }]);
            }
        }
    }

    /// Whether a lease of nothing on the entry is this pool's to end: the pool lists it, or none does, and a finalizer keeps
    /// it.
    fn frees(&self, entry: &Customization) -> bool {
        let (pool, name) = (&self.seen.pool, entry.name.as_str());
        let is_kept = entry.kept || self.seen.kept_by_hive.contains(name);
        let is_unlisted = !entry.listed_elsewhere && (pool.deleting || !pool.listed.is_mistaken());
        self.listed.contains(name) || is_kept && is_unlisted
    }

    /// The same of a lease for a cluster that nobody sees. It is not the pool's own, so that the pool's end does not wait
    /// for it; who may still hear of the pool that it names is left to end it.
    fn frees_of_nobody(&self, entry: &Customization) -> bool {
        let (pool, name) = (&self.seen.pool, entry.name.as_str());
        let names_none = entry.lease.as_ref().is_some_and(|it| it.pool.is_none());
        let is_to_be = if names_none { self.frees(entry) } else { self.listed.contains(name) };
        is_to_be && (pool.absent || !pool.deleting)
    }

    /// Whether a process that stalled before it created the cluster did so after the cluster of this name had failed, or
    /// after the entry, as it was then, had no attempts left. Hive was not let at it, so there is nothing of it yet.
    fn is_once_more(&self, cluster: &'a Cluster) -> bool {
        let Some(name) = self.entry_of(cluster) else { return false };
        let before = self.seen.pool.status.inventory.get(name);
        let same = before.filter(|it| it.version == cluster.entry_version);
        cluster.unverified
            && cluster.is_installing()
            && !cluster.protected
            && (same.and_then(|it| it.attempts) == Some(0) || is_counted(before, &cluster.name))
    }

    /// Clusters of an entry that somebody else holds. A claimed one is its user's and stays.
    fn end_double_use(&mut self, entry: &str, holder: Option<&str>) {
        let others = |it: &&&Cluster| !it.deleting && Some(it.name.as_str()) != holder;
        let users = self.users.get(entry).into_iter().flatten();
        let others: Vec<&Cluster> = users.filter(others).copied().collect();
        for cluster in others {
            if cluster.claim.is_none() && !cluster.protected {
                self.delete_at_once(cluster, Reason::DoubleUse);
            } else {
                let note = format!(
                    "Entry {entry} is in use by claimed cluster {} and by another one; end one of them",
                    cluster.name
                );
                self.event(Reason::DoubleUse, entry, note);
            }
        }
    }

    fn serve_claims(&mut self) {
        let seen = self.seen;
        if seen.claims.is_empty() {
            return;
        }
        let mut ready: Vec<&Cluster> = seen
            .clusters
            .iter()
            .filter(|it| it.is_ready() && !self.gone.contains(it.name.as_str()))
            .filter(|it| self.is_still_listed(it))
            .collect();
        ready.sort_by_key(|it| std::cmp::Reverse((it.created, it.name.as_str())));
        let mut claims: Vec<_> = seen.claims.iter().filter(|it| !it.deleting).collect();
        claims.sort_by_key(|it| (it.created, it.name.as_str()));
        // What was begun is ended first, so that nobody else gets the cluster.
        for claim in &claims {
            let Some(name) = claim.cluster.as_deref() else { continue };
            let found = self.clusters.get(name).copied();
            match found {
                Some(it) if it.claim.as_ref() == Some(&claim.name) => {}
                Some(it)
                    if it.is_unclaimed()
                        && !self.gone.contains(name)
                        && self.given.insert(&it.name) =>
                {
                    self.push(Reason::Claimed, claim_steps(it, claim));
                }
                Some(_) => {
                    let (claim, at) = (claim.name.clone(), claim.at.clone());
                    self.push(Reason::AssignmentConflict, [Step::Unassign { claim, at }]);
                }
                // It was the claim's and is gone: Hive says so on the claim, and its user has to know.
                None => {}
            }
        }
        let by_name: HashMap<&str, &Claim> =
            claims.iter().map(|it| (it.name.as_str(), *it)).collect();
        // A marked one goes for the claim that had this name before, and an older one may still be used by whoever had that.
        let mut of_claims: HashMap<&str, &Cluster> = HashMap::new();
        for cluster in seen.clusters.iter().filter(|it| !it.deleting && !it.marked) {
            let claim = cluster.claim.as_deref().and_then(|it| by_name.get(it));
            if let Some(claim) = claim.filter(|it| cluster.was_given_to(it)) {
                of_claims.entry(&claim.name).or_insert(cluster);
            }
        }
        for claim in claims {
            if let Some(name) = claim.cluster.as_deref() {
                let has = |it: &&Cluster| it.claim.as_ref() == Some(&claim.name);
                let waits = [Reason::NoClusters, Reason::NoPool, Reason::PoolDeleted];
                let is_untold = claim.pending.as_deref().is_none_or(|told| {
                    told == UNTOLD || waits.iter().any(|it| it.as_str() == told)
                });
                if self.clusters.get(name).is_some_and(has) && is_untold {
                    self.tell(claim, Reason::ClusterAssigned);
                }
                continue;
            }
            let assign = |cluster: &Cluster| Step::Assign {
                claim: claim.name.clone(),
                cluster: cluster.name.clone(),
                at: claim.at.clone(),
            };
            if let Some(cluster) = of_claims.get(claim.name.as_str()) {
                self.served += 1;
                self.push(Reason::Claimed, [assign(cluster)]);
                continue;
            }
            let given = &self.given;
            while ready.last().is_some_and(|it| given.contains(it.name.as_str())) {
                ready.pop();
            }
            if let Some(cluster) = ready.pop() {
                self.served += 1;
                self.given.insert(&cluster.name);
                let steps = claim_steps(cluster, claim);
                self.push(Reason::Claimed, std::iter::once(assign(cluster)).chain(steps));
            } else if claim.pending.as_deref() != Some(Reason::NoClusters.as_str()) {
                self.tell(claim, Reason::NoClusters);
            }
        }
    }

    fn tell(&mut self, claim: &Claim, why: Reason) {
        let step = Step::Tell { claim: claim.name.clone(), pending: why, at: claim.at.clone() };
        self.push(why, [step]);
    }

    /// Whether the cluster's entry is one of the pool's, or does not have to be.
    pub(crate) fn is_still_listed(&self, cluster: &'a Cluster) -> bool {
        match (&self.seen.pool.listed, self.entry_of(cluster)) {
            (Listed::Entries(_), Some(entry)) => self.listed.contains(entry),
            _ => true,
        }
    }

    /// New clusters that a stopped process left paused.
    fn verify(&mut self) {
        let seen = self.seen;
        for cluster in seen.clusters.iter().filter(|it| it.unverified && !it.deleting) {
            let entry = self.entry_of(cluster);
            let found = entry.and_then(|name| self.entry(name));
            let holds = matches!(found, Some((entry, Held::Ours(holder)))
                if holder.name == cluster.name
                    && !entry.is_announced()
                    && entry.names_pool(&seen.pool.name));
            let name = cluster.name.as_str();
            if let (true, Some(entry)) = (holds, entry)
                && !self.gone.contains(name)
                && !self.going.contains(name)
            {
                let step = Step::Verify {
                    cluster: cluster.name.clone(),
                    entry: entry.to_owned(),
                    at: Some(cluster.at.clone()),
                };
                self.push(Reason::Verified, [step]);
            }
        }
    }

    /// Clusters that Hive does not begin to install: what they need is made again, if it is gone. Not from what the pool or
    /// the entry became since, and not the workers, whom Hive does not wait for and a person may not want.
    fn look_after(&mut self) {
        let seen = self.seen;
        if seen.idle.is_empty() || !seen.missing.is_empty() {
            return;
        }
        let idle = seen.clusters.iter().filter(|it| {
            let name = it.name.as_str();
            seen.idle.contains(name) && !self.gone.contains(name) && self.is_as_made(it)
        });
        let pieces: Vec<Vec<Step>> =
            idle.take(BEGUN).map(|it| restoration(it, self.entry_of(it), seen)).collect();
        for steps in pieces.into_iter().filter(|it| !it.is_empty()) {
            self.push(Reason::PartsChecked, steps);
        }
    }

    /// Whether what a cluster was made from can be had as it was then.
    fn is_as_made(&self, cluster: &'a Cluster) -> bool {
        let is_same = |name: &str| {
            self.entry(name).is_some_and(|(entry, held)| {
                matches!(held, Held::Ours(holder) if holder.name == cluster.name)
                    && cluster.entry_version.as_ref() == Some(&entry.version)
                    && entry.refused.is_none()
            })
        };
        self.staleness(cluster).is_none() && self.entry_of(cluster).is_none_or(is_same)
    }

    /// Finalizers on customizations that nobody needs, and namespaces that no cluster came to.
    fn tidy(&mut self) {
        let seen = self.seen;
        for place in 0..self.entries.len() {
            let (entry, held) = self.entries[place];
            if held != Held::Free {
                continue;
            }
            let name = entry.name.as_str();
            let listed = entry.listed_elsewhere
                || self.listed.contains(name) && !seen.pool.deleting
                || seen.pool.listed.is_mistaken() && !seen.pool.deleting;
            let used = !entry.others.is_empty() || self.is_lived_in(name);
            let kept = entry.kept || seen.kept_by_hive.contains(name);
            if kept && !used && (entry.deleting || !listed) {
                let step = Step::FreeEntry { entry: name.to_owned(), at: entry.at.clone() };
                self.push(Reason::EntryFreed, [step]);
            }
        }
        let leased: BTreeSet<&str> = self.halves().map(|(_, cluster)| cluster).collect();
        for namespace in seen.namespaces.iter().filter(|it| !it.deleting) {
            let name = namespace.name.as_str();
            if self.clusters.contains_key(name)
                || leased.contains(name)
                || self.begun.contains(name)
            {
                continue;
            }
            let left = self.grace_of(namespace);
            if left.is_zero() || seen.pool.deleting && !seen.pool.absent {
                let (name, uid) = (name.to_owned(), namespace.uid.clone());
                self.push(Reason::LeftOver, [Step::RemoveNamespace { name, uid }]);
            } else {
                self.again = Some(self.again.map_or(left, |it| it.min(left)));
            }
        }
    }

    /// The pool goes when its clusters are gone, and not before.
    fn leave(&mut self) {
        let seen = self.seen;
        for cluster in seen.clusters.iter().filter(|it| it.marked || it.is_unclaimed()) {
            self.delete(cluster, Reason::PoolDeleted);
        }
        for (entry, cluster) in self.halves().collect::<Vec<_>>() {
            let steps = self.abandoning(entry, cluster);
            self.push(Reason::LeaseAbandoned, steps);
        }
        self.tidy();
        let is_empty = seen.clusters.is_empty() && seen.unread.is_empty();
        if self.work.is_empty() && is_empty && seen.pool.kept {
            self.push(Reason::PoolGone, [Step::LetPoolGo { at: seen.pool.at.clone() }]);
        } else if seen.pool.absent {
            self.tell_waiting(Reason::NoPool);
        } else if seen.pool.kept {
            self.tell_waiting(Reason::PoolDeleted);
        }
    }

    /// Claims that get nothing of this pool. No end of a pool waits for that.
    fn tell_waiting(&mut self, why: Reason) {
        let waiting = self.seen.claims.iter().filter(|it| !it.deleting && it.cluster.is_none());
        for claim in waiting.filter(|it| it.pending.as_deref() != Some(why.as_str())) {
            self.tell(claim, why);
        }
    }

    pub(crate) fn event(&mut self, reason: Reason, about: &str, note: String) {
        let about = Some(about.to_owned());
        self.events.push(crate::decision::Event { reason, about, note });
    }
}

/// The steps that make anew what is gone of a cluster.
fn restoration(cluster: &Cluster, entry: Option<&str>, seen: &Observed) -> Vec<Step> {
    let entry = entry.zip(cluster.entry_version.clone());
    let entry = entry.map(|(name, version)| Version { name: name.to_owned(), version });
    let needed = seen.pool.parts.iter().copied();
    needed
        .filter(|it| !matches!(it, Part::Namespace | Part::MachinePool))
        .map(|part| {
            let (cluster, entry) = (cluster.name.clone(), entry.clone());
            Step::Restore { cluster, part, entry }
        })
        .collect()
}

fn claim_steps(cluster: &Cluster, claim: &Claim) -> [Step; 2] {
    let (name, since, at) = (claim.name.clone(), claim.created, cluster.at.clone());
    let confirm = Step::Confirm { claim: name.clone(), cluster: cluster.name.clone(), at };
    let at = cluster.at.clone();
    [Step::Claim { cluster: cluster.name.clone(), claim: name, since, at }, confirm]
}
