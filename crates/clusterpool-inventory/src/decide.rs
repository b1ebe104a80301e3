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
//! 6. Leases of new clusters are verified.
//! 7. Clusters run or hibernate.
//! 8. What is left over goes.
//!
//! A cluster whose failure costs its entry an attempt is not removed before that is stored. A pool
//! that is gone counts as one that is being deleted: a process that had not heard of it may have
//! made something for it since.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::config::Policy;
use crate::decision::{Decision, Reason, Step};
use crate::inventory::{Listed, is_counted};
use crate::lease::Held;
use crate::naming::cluster_name;
use crate::plan::Plan;
use crate::seen::{Cluster, Observed};
use crate::status;

/// Decides about a pool.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    let mut plan = Plan::new(seen, policy, now);
    let pool = &seen.pool;
    if pool.rival.is_some() {
        // Two that decide about one pool undo each other's work.
        return refused(seen);
    } else if pool.deleting {
        plan.release();
        plan.put_leases_right();
        plan.leave();
    } else if pool.kept {
        plan.release();
        plan.put_leases_right();
        plan.serve_claims();
        plan.balance();
        plan.verify();
        plan.power();
        plan.tidy();
    } else {
        plan.push(Reason::PoolAdopted, [Step::KeepPool { at: pool.at.clone() }]);
    }
    let status = status::of(&plan);
    status::events(&mut plan);
    Decision {
        work: plan.work,
        status: (status != pool.status).then_some(status),
        events: plan.events,
        again: plan.again,
    }
}

/// Nothing is done, and the pool says why.
fn refused(seen: &Observed) -> Decision {
    let status = status::refused(seen);
    let news = status != seen.pool.status;
    let note = seen.pool.rival.clone().unwrap_or_default();
    let event = crate::decision::Event { reason: Reason::Contested, note };
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
            let let_go = Step::LetGo {
                cluster: cluster.name.clone(),
                entry: cluster.entry.clone(),
                at: cluster.at.clone(),
            };
            let entry = cluster.entry.as_deref().and_then(|name| self.entries.get(name));
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
    fn may_go(&mut self, cluster: &Cluster) -> bool {
        let counts = cluster.has_failed()
            && !self.seen.pool.deleting
            && is_counted(&self.inventory, cluster)
            && !is_counted(&self.seen.pool.status.inventory, cluster);
        if counts {
            self.again = Some(Duration::ZERO);
        }
        !counts
    }

    fn put_leases_right(&mut self) {
        let seen = self.seen;
        let customizations: Vec<_> = self.entries.values().copied().collect();
        for (entry, held) in customizations {
            let listed = self.listed.contains(entry.name.as_str());
            let living = self.living(&entry.name);
            let at = entry.at.clone();
            let name = entry.name.clone();
            let release = |cluster: Option<&str>| Step::Release {
                entry: name.clone(),
                cluster: cluster.map(str::to_owned),
                prove_absent: false,
                at: at.clone(),
            };
            match held {
                // Whoever lost its lease gets it back, as long as it alone has the entry.
                Held::Free | Held::Torn => {
                    let first = living.first().copied();
                    let alone = entry.others.is_empty()
                        && !self.users.get(entry.name.as_str()).into_iter().flatten().any(|it| {
                            it.is_live() && first.is_none_or(|first| first.name != it.name)
                        });
                    match first {
                        Some(cluster) if alone && !entry.deleting => {
                            self.push(
                                Reason::LeaseRepaired,
                                Self::leasing(entry, &cluster.name, true),
                            );
                        }
                        None if alone && listed && held == Held::Torn => {
                            self.push(Reason::LeaseAbandoned, [release(None)]);
                        }
                        _ => {}
                    }
                }
                Held::Ours(holder) => {
                    if entry.is_announced() && !holder.deleting {
                        let retract = Step::Retract { entry: name.clone(), at: at.clone() };
                        self.push(Reason::LeaseRepaired, [retract]);
                    } else if !entry.kept && !entry.deleting && !holder.deleting {
                        // A lease of Hive's own controller, or one that somebody took our finalizer off.
                        let keep = Step::KeepEntry { entry: name.clone(), at: at.clone() };
                        self.push(Reason::LeaseRepaired, [keep]);
                    }
                    self.end_double_use(&entry.name, Some(&holder.name));
                }
                Held::Mistaken(cluster) => {
                    self.push(Reason::LeaseAbandoned, [release(Some(cluster))]);
                }
                Held::Orphaned(cluster) if listed && entry.others.is_empty() => {
                    let steps = self.abandoning(entry, cluster);
                    self.push(Reason::LeaseAbandoned, steps);
                }
                Held::Half(cluster) => self.end_double_use(&entry.name, Some(cluster)),
                Held::Others => self.end_double_use(&entry.name, None),
                Held::Orphaned(_) => {}
            }
        }
        for cluster in seen.clusters.iter().filter(|it| !it.deleting) {
            let Some(entry) = &cluster.entry else { continue };
            let lost = cluster.unverified && !self.entries.contains_key(entry.as_str());
            if lost && cluster.claim.is_none() && !cluster.protected {
                // Its lease can never be verified, and nothing of it was installed.
                self.delete_at_once(cluster, Reason::EntryMissing);
            } else if !cluster.kept {
                let (cluster, at) = (cluster.name.clone(), cluster.at.clone());
                self.push(Reason::ClusterAdopted, [Step::Adopt { cluster, at }]);
            }
        }
    }

    /// Clusters of an entry that somebody else holds. A claimed one is its user's and stays.
    fn end_double_use(&mut self, entry: &str, holder: Option<&str>) {
        for cluster in self.living(entry) {
            if Some(cluster.name.as_str()) == holder {
                continue;
            }
            if cluster.claim.is_none() && !cluster.protected {
                self.delete_at_once(cluster, Reason::DoubleUse);
            } else {
                let note = format!(
                    "Entry {entry} is in use by claimed cluster {} and by another one; end one of them",
                    cluster.name
                );
                self.event(Reason::DoubleUse, note);
            }
        }
    }

    fn serve_claims(&mut self) {
        let seen = self.seen;
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
                    self.push(Reason::Claimed, [claim_step(it, &claim.name)]);
                }
                _ => {
                    let (claim, at) = (claim.name.clone(), claim.at.clone());
                    self.push(Reason::AssignmentConflict, [Step::Unassign { claim, at }]);
                }
            }
        }
        for claim in claims {
            if claim.cluster.is_some() {
                if claim.pending.as_deref() == Some(Reason::NoClusters.as_str()) {
                    self.tell(claim, Reason::ClusterAssigned);
                }
                continue;
            }
            let assign = |cluster: &Cluster| Step::Assign {
                claim: claim.name.clone(),
                cluster: cluster.name.clone(),
                at: claim.at.clone(),
            };
            let has = |it: &&Cluster| it.claim.as_ref() == Some(&claim.name) && !it.deleting;
            if let Some(cluster) = seen.clusters.iter().find(has) {
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
                self.push(Reason::Claimed, [assign(cluster), claim_step(cluster, &claim.name)]);
            } else if claim.pending.as_deref() != Some(Reason::NoClusters.as_str()) {
                self.tell(claim, Reason::NoClusters);
            }
        }
    }

    fn tell(&mut self, claim: &crate::seen::Claim, why: Reason) {
        let step =
            Step::Tell { claim: claim.name.clone(), pending: why.as_str(), at: claim.at.clone() };
        self.push(why, [step]);
    }

    /// Whether the cluster's entry is one of the pool's, or does not have to be.
    fn is_still_listed(&self, cluster: &Cluster) -> bool {
        match (&self.seen.pool.listed, &cluster.entry) {
            (Listed::Entries(_), Some(entry)) => self.listed.contains(entry.as_str()),
            _ => true,
        }
    }

    /// Clusters that nobody has and that this pass leaves.
    fn unclaimed(&self) -> impl Iterator<Item = &'a Cluster> + use<'a, '_> {
        self.seen.clusters.iter().filter(|it| {
            let name = it.name.as_str();
            it.is_unclaimed() && !self.given.contains(name) && !self.gone.contains(name)
        })
    }

    /// Completes, adds and removes, within one budget.
    fn balance(&mut self) {
        let seen = self.seen;
        let pool = &seen.pool;
        for cluster in seen.clusters.iter().filter(|it| it.marked) {
            self.delete(cluster, Reason::ClaimGone);
        }
        if pool.listed == Listed::Empty {
            return;
        }
        let removed: Vec<&Cluster> =
            self.unclaimed().filter(|it| !self.is_still_listed(it)).collect();
        for cluster in removed {
            if self.may_go(cluster) {
                self.delete(cluster, Reason::EntryRemoved);
            }
        }
        let waiting = seen.claims.iter().filter(|it| !it.deleting && it.cluster.is_none());
        let target = pool.size + waiting.count().saturating_sub(self.served);
        let unclaimed = self.unclaimed().count();
        let halves = self.complete_or_give_up(target.saturating_sub(unclaimed));
        let added = self.add(target.saturating_sub(unclaimed + halves), halves);
        let lacking = target.saturating_sub(unclaimed + halves) > 0;
        let impossible = lacking && added == 0;
        let broken: Vec<&Cluster> = self.unclaimed().filter(|it| it.is_broken()).collect();
        for cluster in broken {
            if self.may_go(cluster) {
                self.delete(cluster, Reason::ClusterBroken);
            }
        }
        // The broken ones that are left go as such, later.
        let whole = |it: &&Cluster| !it.is_broken();
        let mut rest: Vec<&Cluster> = self.unclaimed().filter(whole).collect();
        let excess = rest.len().saturating_sub(target);
        rest.sort_by_key(|it| {
            // Installing ones first, the newest first; then those that do not run, then those that
            // do, the oldest first.
            let age = it.created.as_nanosecond();
            (it.installed, it.running, if it.installed { age } else { -age }, it.name.as_str())
        });
        for cluster in rest.into_iter().take(excess) {
            self.delete(cluster, Reason::TooMany);
        }
        let busy = halves > 0
            || added > 0
            || seen.clusters.iter().any(Cluster::is_installing)
            || seen.clusters.iter().any(|it| it.deleting && it.claim.is_none())
            || self.work.iter().any(|it| matches!(it.steps[..], [Step::Delete { .. }]));
        if !busy && (!lacking || impossible) {
            let mut stale: Vec<(u8, &Cluster)> =
                self.unclaimed().filter_map(|it| Some((self.staleness(it)?, it))).collect();
            stale.sort_by_key(|(kind, it)| (*kind, it.created, it.name.as_str()));
            if let Some((_, cluster)) = stale.first() {
                self.delete(cluster, Reason::Stale);
            }
        }
    }

    /// How a cluster is stale: made from nobody knows what, from another spec, or from an entry
    /// that has changed or been given up since.
    pub(crate) fn staleness(&self, cluster: &Cluster) -> Option<u8> {
        let Some(version) = cluster.pool_version.as_deref().filter(|it| !it.is_empty()) else {
            return Some(0);
        };
        if !self.seen.pool.version.accepts(version) {
            return Some(1);
        }
        let entry = cluster.entry.as_ref().and_then(|name| self.inventory.get(name))?;
        let is_user = entry.cluster.as_ref() == Some(&cluster.name);
        let word = entry.status.as_str();
        (is_user && (word == "To Be Updated" || word == "To Be Deleted")).then_some(2)
    }

    /// Completes as many leases without clusters as are wanted; how many there will be.
    fn complete_or_give_up(&mut self, wanted: usize) -> usize {
        let pool = &self.seen.pool;
        let total = self.seen.clusters.len() + self.halves().count();
        let too_many = pool.max_size.map_or(0, |most| total.saturating_sub(most));
        let halves: Vec<_> = self.halves().collect();
        let wanted = wanted.min(halves.len().saturating_sub(too_many));
        let mut completed = 0;
        for (entry, cluster) in halves {
            let fits = self.listed.contains(entry.name.as_str())
                && !entry.deleting
                && !entry.is_announced()
                && entry.refused.is_none();
            if !fits || completed == wanted {
                let steps = self.abandoning(entry, cluster);
                self.push(Reason::LeaseAbandoned, steps);
                continue;
            }
            completed += 1;
            // What is missing may come; until then the lease keeps the entry's place.
            if self.seen.missing.is_empty() {
                let steps = self.creation(cluster, Some(entry));
                self.push(Reason::RolledForward, steps);
            }
        }
        completed
    }

    /// Adds clusters as far as all limits allow; how many.
    fn add(&mut self, lacking: usize, halves: usize) -> usize {
        let seen = self.seen;
        let pool = &seen.pool;
        if !seen.missing.is_empty() {
            return 0;
        }
        let room = pool
            .max_size
            .map_or(usize::MAX, |most| most.saturating_sub(seen.clusters.len() + halves));
        let most = lacking.min(room).min(self.budget);
        let mut added = 0;
        match &pool.listed {
            Listed::Empty => {}
            Listed::Nothing => {
                let taken = |name: &str| {
                    self.clusters.contains_key(name)
                        || seen.namespaces.iter().any(|it| it.name == name)
                };
                let names: Vec<String> = (0..most + seen.namespaces.len())
                    .map(|it| cluster_name(&pool.name, &[&pool.uid, &pool.at, &it.to_string()]))
                    .filter(|name| !taken(name))
                    .take(most)
                    .collect();
                for name in names {
                    let steps = self.creation(&name, None);
                    self.push(Reason::Added, steps);
                    added += 1;
                }
            }
            Listed::Entries(names) => {
                let usable: Vec<&String> =
                    names.iter().filter(|name| self.is_usable(name)).take(most).collect();
                for name in usable {
                    let Some((entry, _)) = self.entries.get(name.as_str()).copied() else {
                        continue;
                    };
                    let cluster = cluster_name(&pool.name, &[&pool.uid, &entry.version, &entry.at]);
                    let mut steps = Self::leasing(entry, &cluster, false);
                    steps.extend(self.creation(&cluster, Some(entry)));
                    self.push(Reason::Added, steps);
                    added += 1;
                }
            }
        }
        self.budget -= added;
        added
    }

    /// New clusters that a stopped process left paused.
    fn verify(&mut self) {
        let seen = self.seen;
        for cluster in seen.clusters.iter().filter(|it| it.unverified && !it.deleting) {
            let found = cluster.entry.as_deref().and_then(|name| self.entries.get(name));
            let holds = matches!(found, Some((entry, Held::Ours(holder)))
                if holder.name == cluster.name && !entry.is_announced());
            if let (true, Some(entry)) = (holds, &cluster.entry)
                && !self.gone.contains(cluster.name.as_str())
            {
                let step = Step::Verify {
                    cluster: cluster.name.clone(),
                    entry: entry.clone(),
                    at: Some(cluster.at.clone()),
                };
                self.push(Reason::Verified, [step]);
            }
        }
    }

    /// As many as wanted run, the oldest first, and one more for each waiting claim.
    fn power(&mut self) {
        let pool = &self.seen.pool;
        if !pool.hibernates {
            return;
        }
        let waiting = self.seen.claims.iter().filter(|it| !it.deleting && it.cluster.is_none());
        let run = pool.running + waiting.count();
        let mut clusters: Vec<&Cluster> = self.unclaimed().filter(|it| !it.is_broken()).collect();
        clusters.sort_by_key(|it| (it.created, it.name.as_str()));
        for (index, cluster) in clusters.into_iter().enumerate() {
            let run = index < run;
            if cluster.asked_to_run != Some(run) && !cluster.unverified {
                let (cluster, at) = (cluster.name.clone(), cluster.at.clone());
                self.push(Reason::Power, [Step::Power { cluster, run, at }]);
            }
        }
    }

    /// Finalizers on customizations that nobody needs, and namespaces that no cluster came to.
    fn tidy(&mut self) {
        let seen = self.seen;
        for (entry, held) in self.entries.values().copied().collect::<Vec<_>>() {
            let name = entry.name.as_str();
            let listed = entry.listed_elsewhere
                || self.listed.contains(name) && !seen.pool.deleting
                || seen.pool.listed == Listed::Empty && !seen.pool.deleting;
            let used = !entry.others.is_empty()
                || self.users.get(name).into_iter().flatten().any(|it| it.is_live());
            if entry.kept && held == Held::Free && !used && (entry.deleting || !listed) {
                let step = Step::FreeEntry { entry: name.to_owned(), at: entry.at.clone() };
                self.push(Reason::EntryFreed, [step]);
            }
        }
        let leased: std::collections::BTreeSet<&str> =
            self.halves().map(|(_, cluster)| cluster).collect();
        for namespace in seen.namespaces.iter().filter(|it| !it.deleting) {
            let name = namespace.name.as_str();
            if self.clusters.contains_key(name) || leased.contains(name) {
                continue;
            }
            let age = Duration::try_from(self.now.duration_since(namespace.created));
            let left = self.policy.namespace_grace.saturating_sub(age.unwrap_or_default());
            if left.is_zero() || seen.pool.deleting {
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
        // A limit of none would keep the pool for ever.
        if seen.pool.max_concurrent == Some(0) && !seen.clusters.iter().any(|it| it.deleting) {
            self.budget = 1;
        }
        for cluster in seen.clusters.iter().filter(|it| it.marked || it.is_unclaimed()) {
            self.delete(cluster, Reason::PoolDeleted);
        }
        for (entry, cluster) in self.halves().collect::<Vec<_>>() {
            let steps = self.abandoning(entry, cluster);
            self.push(Reason::LeaseAbandoned, steps);
        }
        self.tidy();
        if self.work.is_empty() && seen.clusters.is_empty() && seen.pool.kept {
            self.push(Reason::PoolGone, [Step::LetPoolGo { at: seen.pool.at.clone() }]);
        }
    }

    pub(crate) fn event(&mut self, reason: Reason, note: String) {
        self.events.push(crate::decision::Event { reason, note });
    }
}

fn claim_step(cluster: &Cluster, claim: &str) -> Step {
    Step::Claim { cluster: cluster.name.clone(), claim: claim.to_owned(), at: cluster.at.clone() }
}
