//! How many clusters there are, of what, and which of them run.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use api_types::time::until;

use crate::decision::Step;
use crate::make::made_from;
use crate::naming::cluster_name;
use crate::plan::{BEGUN, Plan};
use crate::reason::{Notice, Reason};
use crate::seen::{Cluster, Listed, Namespace};
use crate::usage::{Use, gives_up, is_of};

/// Completes, adds and removes, within one budget.
pub(super) fn balance(plan: &mut Plan<'_>) {
    if plan.seen.pool.deleting {
        return;
    }
    let seen = plan.seen;
    let pool = &seen.pool;
    for cluster in seen.clusters.iter().filter(|it| it.marked) {
        plan.delete(cluster, Reason::ClaimGone);
    }
    if pool.listed.is_mistaken() {
        return;
    }
    let removed: Vec<&Cluster> = plan.unclaimed().filter(|it| !plan.is_still_listed(it)).collect();
    for cluster in removed {
        plan.remove(cluster, Reason::EntryRemoved);
    }
    let target = plan.target();
    // One that waits for the status to be stored goes right after that.
    let unclaimed = plan.unclaimed().count();
    let halves = plan.complete_or_give_up(target.saturating_sub(unclaimed));
    let added = plan.add(target.saturating_sub(unclaimed + halves), halves);
    // Those of removed entries had their turn.
    let broken: Vec<&Cluster> =
        plan.unclaimed().filter(|it| it.is_broken() && plan.is_still_listed(it)).collect();
    for cluster in broken {
        plan.remove(cluster, Reason::ClusterBroken);
    }
    // The broken ones that are left go as such, later.
    let excess = plan.whole().count().saturating_sub(target);
    for cluster in plan.excess_first(excess) {
        plan.delete(cluster, Reason::TooMany);
    }
    for cluster in plan.stale_before_use() {
        plan.remove(cluster, Reason::Stale);
    }
    let busy = halves > 0
        || added > 0
        || !plan.going.is_empty()
        || seen.clusters.iter().any(|it| it.is_installing() && plan.staleness(it).is_none())
        || plan.leaving(false).next().is_some()
        || plan.decision.work.iter().any(|it| matches!(it.steps[..], [Step::Delete(_)]));
    if !busy && let Some(cluster) = plan.next_stale() {
        plan.remove(cluster, Reason::Stale);
    }
}

/// As many as wanted run, the oldest first, and one more for each waiting claim.
pub(super) fn power(plan: &mut Plan<'_>) {
    if plan.seen.pool.deleting {
        return;
    }
    let pool = &plan.seen.pool;
    if !pool.hibernates {
        return;
    }
    let run = plan.running();
    for (index, cluster) in plan.oldest_first().into_iter().enumerate() {
        let run = index < run;
        if cluster.asked_to_run != Some(run) && !cluster.unverified {
            plan.push(Reason::Power, [Step::Power { cluster: cluster.name.clone(), run }]);
        }
    }
}

impl<'a> Plan<'a> {
    /// Clusters that nobody has and that stay.
    pub(crate) fn unclaimed(&self) -> impl Iterator<Item = &'a Cluster> + use<'a, '_> {
        self.seen.clusters.iter().filter(|it| {
            let name = it.name.as_str();
            it.is_unclaimed()
                && !self.given.contains(name)
                && !self.gone.contains(name)
                && !self.going.contains(name)
        })
    }

    /// Those of them that are or will be of use.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &'a Cluster> + use<'a, '_> {
        self.unclaimed().filter(|it| !it.is_broken())
    }

    /// How many of them are to run: as many as the pool says, and one for each claim that still waits.
    pub(crate) fn running(&self) -> usize {
        self.seen.pool.running + self.waiting()
    }

    /// Claims without a cluster that get none in this pass.
    fn waiting(&self) -> usize {
        let all = self.seen.claims.iter().filter(|it| it.waits());
        all.count().saturating_sub(self.served)
    }

    /// How many clusters that nobody has there are to be: as many as the pool says, and one for each claim that still waits.
    pub(crate) fn target(&self) -> usize {
        self.seen.pool.size + self.waiting()
    }

    /// So many of the clusters of use that may go, those first that are least of use.
    fn excess_first(&mut self, excess: usize) -> Vec<&'a Cluster> {
        if excess == 0 {
            return Vec::new();
        }
        let (protected, mut all): (Vec<&'a Cluster>, Vec<&'a Cluster>) =
            self.whole().partition(|it| it.protected);
        let spared = protected.into_iter().take(excess.saturating_sub(all.len()));
        self.spared.extend(spared.map(|it| it.name.as_str()));
        all.sort_by_key(|it| {
            // Installing ones first, the newest first; then those that do not run, then those that
            // do, the oldest first.
            let age = it.created.as_nanosecond();
            (it.installed, it.running, if it.installed { age } else { -age }, it.name.as_str())
        });
        all.truncate(excess);
        all
    }

    /// Unclaimed clusters on their way out: those that Hive takes down, for which a stale one waits, or those of which it
    /// says that it cannot, which may stay for ever.
    pub(crate) fn leaving(&self, hangs: bool) -> impl Iterator<Item = &'a Cluster> {
        let all = self.seen.clusters.iter();
        all.filter(move |it| it.deleting && it.claim.is_none() && it.hangs == hangs)
    }

    /// Installed clusters that claims wait for: those that are let run where not all do, of which nobody knows which will run
    /// first.
    pub(crate) fn awaited(&self) -> BTreeSet<&'a str> {
        if self.waiting() == 0 || self.seen.pool.deleting {
            return BTreeSet::new();
        }
        let all = self.oldest_first().into_iter().take(self.running());
        let usable = all.filter(|it| it.installed && self.is_still_listed(it));
        usable.map(|it| it.name.as_str()).collect()
    }

    /// The clusters of use, in the order in which they are let run.
    fn oldest_first(&self) -> Vec<&'a Cluster> {
        let mut all: Vec<&Cluster> = self.whole().collect();
        all.sort_by_key(|it| (it.created, it.name.as_str()));
        all
    }

    /// Stale clusters that may go, in their order: no claim waits for them. One that is stale is better than none.
    fn stale(&self) -> Vec<&'a Cluster> {
        let (pool, there) = (&self.seen.pool, self.seen.there());
        let awaited = self.awaited();
        // One that has just been made is confirmed first: what else is under way for its lease would find another of its name.
        let may_go =
            |it: &&Cluster| !it.protected && !it.unverified && !awaited.contains(it.name.as_str());
        let all = self.unclaimed().filter(may_go);
        let mut stale: Vec<(u8, &Cluster)> =
            all.filter_map(|it| Some((self.staleness(it)?, it))).collect();
        let has_no_place = self.several_hang() && pool.max_size.is_some_and(|most| there >= most);
        if !self.seen.missing.is_empty() || has_no_place {
            return Vec::new();
        }
        stale.sort_by_key(|(kind, it)| (!it.is_installing(), *kind, it.created, it.name.as_str()));
        stale.into_iter().map(|(_, it)| it).collect()
    }

    /// Whether Hive cannot take several down. One is its own trouble; several are the cloud's, and the next one would keep
    /// its place too.
    fn several_hang(&self) -> bool {
        self.leaving(true).nth(1).is_some()
    }

    /// Those that are not installed and of which another can be made. They are of no use to anybody, and may never be: what
    /// was corrected may be why. So they wait for no other cluster, which may never be installed or gone either. Those of
    /// which nobody knows what they are made from may be current.
    fn stale_before_use(&self) -> Vec<&'a Cluster> {
        let is_free = !matches!(self.seen.pool.listed, Listed::Entries(_));
        let several = self.several_hang();
        let is_remade = |it| is_free || !several && self.can_return(it);
        let mut stale = self.stale();
        stale.retain(|it| it.is_installing() && self.staleness(it) > Some(0) && is_remade(*it));
        stale
    }

    /// The stale cluster that goes next: another one can be made in its place, as far as is known.
    fn next_stale(&self) -> Option<&'a Cluster> {
        let several = self.several_hang();
        let mut stale = self.stale().into_iter();
        if self.has_spare() {
            stale.next()
        } else {
            stale.find(|it| !several && self.can_return(it))
        }
    }

    /// Whether another cluster can be made before any entry becomes free.
    pub(crate) fn has_spare(&self) -> bool {
        !matches!(self.seen.pool.listed, Listed::Entries(_)) || self.usable().next().is_some()
    }

    /// Whether another cluster can be made from the entry of this one, once that is gone.
    pub(crate) fn can_return(&self, cluster: &'a Cluster) -> bool {
        let Some(entry) = self.uses.by(cluster) else { return false };
        let attempts = entry.now.as_ref().and_then(|it| it.attempts);
        entry.listed
            && entry.customization.is_some_and(|it| !it.deleting && it.refused.is_none())
            && attempts != Some(0)
    }

    /// How a cluster is stale: made from nobody knows what, from another spec, or from an entry
    /// that has changed or been given up since.
    pub(crate) fn staleness(&self, cluster: &'a Cluster) -> Option<u8> {
        let Some(version) = cluster.pool_version.as_deref().filter(|it| !it.is_empty()) else {
            return Some(0);
        };
        if !self.seen.pool.version.accepts(version) {
            return Some(1);
        }
        let entry = self.uses.by(cluster)?.now.as_ref()?;
        gives_up(entry, cluster).then_some(2)
    }

    /// Completes as many leases without clusters as are wanted; how many there will be. Where another cluster lives in the
    /// entry, the lease is given up for that one to get it; where the cluster's namespace cannot be had, or what is in it is
    /// made from something else, for another name; where the cluster was there and failed, since that was counted; where it is
    /// refused and another entry is free; and where a claim has it, whose user must not find another one under its name.
    fn complete_or_give_up(&mut self, wanted: usize) -> usize {
        let pool = &self.seen.pool;
        let total = self.seen.there() + self.uses.halves().count();
        let too_many = pool.max_size.map_or(0, |most| total.saturating_sub(most));
        let halves = self.uses.halves();
        let wanted = wanted.min(self.uses.halves().count().saturating_sub(too_many));
        let mut completed = 0;
        for (it, entry, cluster) in halves {
            let fits = it.listed
                && !entry.deleting
                && !entry.is_announced()
                && entry.refused.is_none()
                && entry.others.is_empty()
                && !it.is_lived_in()
                && !self.is_barred(cluster)
                && !self.was_given(cluster)
                && !it.is_counted(cluster)
                && self.is_made_from_now(cluster, &entry.version)
                && !self.gives_way(it);
            if !fits || completed == wanted {
                let steps = self.abandoning(entry, cluster);
                self.push(Reason::LeaseAbandoned, steps);
                continue;
            }
            completed += 1;
            // What is missing may come; until then the lease keeps the entry's place.
            if self.seen.missing.is_empty() && self.begun.len() < BEGUN {
                let steps = self.creation(cluster, Some(entry));
                self.push(Reason::RolledForward, steps);
            }
        }
        completed
    }

    /// Whether the namespace of a cluster that is not there yet is somebody else's, or on its way out for nobody knows how
    /// long.
    fn is_barred(&self, cluster: &str) -> bool {
        let leaves = |it: &Namespace| it.name == cluster && it.deleting;
        self.seen.taken.contains(cluster) || self.seen.namespaces.iter().any(leaves)
    }

    /// Whether what was begun of the cluster, if something was, is made from what it would be made from now. As long as
    /// something is missing nobody knows.
    fn is_made_from_now(&self, cluster: &str, entry: &str) -> bool {
        let begun = self.seen.namespaces.iter().find(|it| it.name == cluster);
        !self.seen.missing.is_empty()
            || begun.is_none_or(|it| it.made_from == made_from(self.seen, Some(entry)))
    }

    /// Whether the cluster of the entry is refused, which may be for what the entry alone says, and another one is free that
    /// was not tried in vain.
    fn gives_way(&self, it: &Use<'_>) -> bool {
        it.failure().is_some_and(|it| is_of(it, Notice::Refused))
            && self.usable().any(|it| it.failure().is_none())
    }

    /// The listed entries that may be leased in this pass.
    fn usable(&self) -> impl Iterator<Item = &'a Use<'a>> {
        let all = self.seen.pool.listed.names().iter().filter_map(|it| self.uses.get(it));
        all.filter(|it| it.is_usable())
    }

    /// Whether a claim names the cluster, so that it was there.
    fn was_given(&self, cluster: &str) -> bool {
        self.seen.claims.iter().any(|it| it.cluster.as_deref() == Some(cluster))
    }

    /// Adds clusters as far as all limits allow; how many.
    fn add(&mut self, lacking: usize, halves: usize) -> usize {
        let (seen, pool) = (self.seen, &self.seen.pool);
        if lacking == 0 || !seen.missing.is_empty() {
            return 0;
        }
        let there = seen.there() + halves;
        let room = pool.max_size.map_or(usize::MAX, |most| most.saturating_sub(there));
        let wanted = lacking.min(room);
        let added = match &pool.listed {
            Listed::Empty | Listed::Unreadable(_) => 0,
            Listed::Nothing => self.add_without_entries(wanted),
            Listed::Entries(_) => self.add_from_entries(wanted),
        };
        self.budget -= added;
        added
    }

    /// How many of the clusters that can be made are begun in this pass. Those that are made wake the pool for more.
    fn begin(&mut self, wanted: usize) -> usize {
        self.held_up |= wanted > self.budget;
        wanted.min(self.budget).min(BEGUN.saturating_sub(self.begun.len()))
    }

    fn add_without_entries(&mut self, wanted: usize) -> usize {
        let (seen, pool) = (self.seen, &self.seen.pool);
        let most = self.begin(wanted);
        let is_free = |name: &String| {
            self.uses.cluster(name).is_none()
                && !seen.taken.contains(name)
                && !seen.namespaces.iter().any(|it| it.name == *name)
        };
        // What was begun is completed first: whatever refuses a cluster would get one namespace after another.
        let begun = seen.namespaces.iter().filter(|it| self.is_begun(it));
        let new = (0..most + seen.namespaces.len() + seen.taken.len())
            .map(|it| cluster_name(&pool.name, &[&pool.uid, &pool.at, &it.to_string()]))
            .filter(is_free);
        let names: Vec<String> = begun.map(|it| it.name.clone()).chain(new).take(most).collect();
        for name in &names {
            let steps = self.creation(name, None);
            self.push(Reason::Added, steps);
        }
        names.len()
    }

    fn add_from_entries(&mut self, wanted: usize) -> usize {
        let pool = &self.seen.pool;
        let mut usable: Vec<&Use<'_>> = self.usable().collect();
        // One that fails would be tried again and again before one that may not, and of those that failed the one that is about to be
        // given up before one that has more attempts left.
        usable.sort_by_key(|it| {
            let attempts = it.now.as_ref().and_then(|it| it.attempts);
            (it.failure().is_some(), Reverse(attempts))
        });
        usable.truncate(wanted);
        // Where no entry is left, it is not the limit that stops the pool.
        usable.truncate(self.begin(usable.len()));
        let mut added = 0;
        for entry in usable.into_iter().filter_map(|it| it.customization) {
            let state = [pool.uid.as_str(), &entry.version, &entry.at];
            let Some(cluster) = self.free_name(&entry.name, state) else { continue };
            let mut steps = Self::leasing(entry, &cluster, false);
            steps.extend(self.creation(&cluster, Some(entry)));
            self.push(Reason::Added, steps);
            added += 1;
        }
        added
    }

    /// A name for a cluster of an entry, a longer seed's where a cluster of another entry happens to have it.
    fn free_name(&self, entry: &str, [uid, version, at]: [&str; 3]) -> Option<String> {
        let pool = &self.seen.pool.name;
        let is_free = |name: &String| {
            let there = self.uses.cluster(name);
            !self.begun.contains(name) && there.is_none_or(|it| it.entry.as_deref() == Some(entry))
        };
        let first = Some(cluster_name(pool, &[uid, version, at])).filter(is_free);
        first.or_else(|| Some(cluster_name(pool, &[uid, version, at, entry])).filter(is_free))
    }

    /// Whether a namespace waits for its cluster. One that may have had it does not: claims may still name that, and what
    /// was copied into it is old.
    fn is_begun(&self, namespace: &Namespace) -> bool {
        namespace.begun
            && !namespace.deleting
            && namespace.pool_uid == self.seen.pool.uid
            && namespace.made_from == made_from(self.seen, None)
            && !self.seen.taken.contains(&namespace.name)
            && self.uses.cluster(&namespace.name).is_none()
            && !self.uses.halves().any(|(_, _, cluster)| cluster == namespace.name)
            && !self.grace_of(namespace).is_zero()
    }

    /// For how long a namespace may still stand without a cluster: not at all once that came and went.
    pub(crate) fn grace_of(&self, namespace: &Namespace) -> Duration {
        if namespace.vacated {
            return Duration::ZERO;
        }
        self.policy.namespace_grace.saturating_sub(until(namespace.created, self.now))
    }
}
