//! The plan as it grows.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::decision::{Decision, Step, Version, Work, event};
use crate::reason::Reason;
use crate::seen::{Cluster, Customization, Listed, Observed};
use crate::settings::Policy;
use crate::usage::{Use, Uses, gives_up};

/// The most clusters that one pass begins, however large the pool is. With fewer, the time of the observations between the
/// passes would count.
pub(crate) const BEGUN: usize = 256;

/// The plan as it grows: each rule sees what those before it decided.
pub(crate) struct Plan<'a> {
    pub(crate) seen: &'a Observed,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Timestamp,
    pub(crate) uses: &'a Uses<'a>,
    /// What is decided so far.
    pub(crate) decision: Decision,
    /// Claims without a cluster that get one in this pass.
    pub(crate) served: usize,
    /// Clusters that this pass gives to a claim.
    pub(crate) given: BTreeSet<&'a str>,
    /// Clusters that this pass deletes.
    pub(crate) gone: BTreeSet<&'a str>,
    /// Clusters that a later pass deletes, once the status says why.
    pub(crate) going: BTreeSet<&'a str>,
    /// Names of clusters that this pass begins to make.
    pub(crate) begun: BTreeSet<String>,
    /// How many more clusters may be installed or removed at the same time.
    pub(crate) budget: usize,
    /// Whether this budget kept clusters from being made or removed.
    pub(crate) held_up: bool,
    /// Clusters that would be deleted, and are protected by an annotation.
    pub(crate) spared: BTreeSet<&'a str>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(
        seen: &'a Observed,
        uses: &'a Uses<'a>,
        policy: &'a Policy,
        now: Timestamp,
    ) -> Self {
        let mut plan = Self {
            seen,
            policy,
            now,
            uses,
            decision: Decision::default(),
            served: 0,
            given: BTreeSet::new(),
            gone: BTreeSet::new(),
            going: BTreeSet::new(),
            begun: BTreeSet::new(),
            budget: 0,
            held_up: false,
            spared: BTreeSet::new(),
        };
        // One that Hive cannot take down is its own trouble, and may stay for ever. Several are the cloud's.
        let hangs = usize::from(seen.clusters.iter().any(|it| it.hangs));
        // A limit of none would keep a deleted pool for ever.
        let least = usize::from(seen.pool.deleting);
        let most = seen.pool.max_concurrent.unwrap_or(usize::MAX).max(least);
        plan.budget = most.saturating_sub(plan.under_way().count().saturating_sub(hangs));
        plan
    }

    /// Clusters that are being installed or removed, and those that only have their lease.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &'a str> {
        let busy = self.seen.clusters.iter().filter(|it| it.deleting || it.is_installing());
        busy.map(|it| it.name.as_str()).chain(self.uses.halves().map(|(_, _, cluster)| cluster))
    }

    /// Whether the pool lists the cluster's entry, or has no list.
    pub(crate) fn is_still_listed(&self, cluster: &'a Cluster) -> bool {
        let is_list = matches!(self.seen.pool.listed, Listed::Entries(_));
        !is_list || self.uses.by(cluster).is_none_or(|it| it.listed)
    }

    /// Whether the cluster's failure is stored, if it costs its entry an attempt.
    pub(crate) fn may_go(&mut self, cluster: &'a Cluster) -> bool {
        let is_news = |it: &Use<'_>| {
            it.now.as_ref().is_some_and(|it| it.counts(&cluster.name))
                && !it.is_counted(&cluster.name)
        };
        let counts = cluster.has_failed()
            && !self.seen.pool.deleting
            && self.uses.by(cluster).is_some_and(is_news);
        if counts {
            self.decision.again = Some(Duration::ZERO);
        }
        !counts
    }

    /// Whether the entry's stored state says that the cluster goes, if its new state does. An entry without a stored state
    /// is not waited for: the CRD may have no field for it.
    pub(crate) fn is_told(&mut self, cluster: &'a Cluster) -> bool {
        let is_untold = self.uses.by(cluster).is_some_and(|it| {
            it.now
                .as_ref()
                .zip(it.before)
                .is_some_and(|(now, before)| gives_up(now, cluster) && now.status != before.status)
        });
        if is_untold {
            self.decision.again = Some(Duration::ZERO);
        }
        !is_untold
    }

    pub(crate) fn event(&mut self, reason: Reason, about: &str, note: &str) {
        self.decision.events.push(event(reason, about, note));
    }

    pub(crate) fn push(&mut self, reason: Reason, steps: impl IntoIterator<Item = Step>) {
        self.decision.work.push(Work { reason, steps: steps.into_iter().collect() });
    }

    /// Deletes a cluster, unless it is protected or being deleted already.
    pub(crate) fn delete(&mut self, cluster: &'a Cluster, reason: Reason) {
        if self.finds_place(cluster) {
            self.delete_at_once(cluster, reason);
        }
    }

    /// Deletes a cluster once its failure and the new state of its entry are stored. It keeps its place in the budget until then.
    pub(crate) fn remove(&mut self, cluster: &'a Cluster, reason: Reason) {
        if !self.finds_place(cluster) {
            return;
        }
        self.going.insert(&cluster.name);
        if self.may_go(cluster) && self.is_told(cluster) {
            self.delete_at_once(cluster, reason);
        }
    }

    /// Takes a place of the budget for a cluster that is to be deleted, if it may be and there is one. An installing cluster
    /// has a place already.
    fn finds_place(&mut self, cluster: &'a Cluster) -> bool {
        if cluster.deleting
            || self.gone.contains(cluster.name.as_str())
            || self.outlives_its_pool(cluster)
        {
            return false;
        }
        if cluster.protected {
            self.spared.insert(&cluster.name);
            return false;
        }
        let price = usize::from(!cluster.is_installing());
        if self.budget < price {
            self.held_up = true;
            return false;
        }
        self.budget -= price;
        true
    }

    /// Whether the cluster stays although its pool does not exist: nobody deleted the pool, and somebody may use the cluster.
    /// A backup may have brought it back before its pool, or the pool never was ours.
    fn outlives_its_pool(&self, cluster: &Cluster) -> bool {
        let made_here = || self.seen.namespaces.iter().any(|it| it.name == cluster.name);
        self.seen.pool.absent
            && !cluster.marked
            && (cluster.installed && !cluster.unverified || !made_here())
    }

    /// Deletes a cluster that must not exist, without regard to the budget.
    pub(crate) fn delete_at_once(&mut self, cluster: &'a Cluster, reason: Reason) {
        if !self.outlives_its_pool(cluster) && self.gone.insert(&cluster.name) {
            self.push(reason, [Step::Delete(cluster.name.clone())]);
        }
    }

    /// The steps that make a cluster, from the namespace to the end of its pause.
    pub(crate) fn creation(&mut self, cluster: &str, entry: Option<&Customization>) -> Vec<Step> {
        let ahead = self.begun.len();
        self.begun.insert(cluster.to_owned());
        let version =
            entry.map(|it| Version { name: it.name.clone(), version: it.version.clone() });
        // Those that are there are older.
        let runs = || self.whole().count() + ahead < self.running();
        let run = self.seen.pool.hibernates.then(runs);
        let mut steps = vec![Step::Create { cluster: cluster.to_owned(), entry: version, run }];
        if let Some(entry) = entry.filter(|_| self.policy.verify_lease) {
            steps.push(Step::Verify { cluster: cluster.to_owned(), entry: entry.name.clone() });
        }
        steps
    }

    /// The steps that lease an entry, with our finalizer first if it lacks that.
    pub(crate) fn leasing(entry: &Customization, cluster: &str, prove_living: bool) -> Vec<Step> {
        let keep = (!entry.kept).then(|| Step::KeepEntry(entry.name.clone()));
        let (name, cluster) = (entry.name.clone(), cluster.to_owned());
        let lease = Step::Lease { entry: name, cluster, prove_living };
        keep.into_iter().chain([lease]).collect()
    }

    /// The steps that release a lease whose cluster is missing.
    pub(crate) fn abandoning(&self, entry: &Customization, cluster: &str) -> Vec<Step> {
        let mut steps = Vec::new();
        if !entry.is_announced() {
            steps.push(Step::Announce(entry.name.clone()));
        }
        steps.push(Step::release(&entry.name, Some(cluster), true));
        if self.seen.namespaces.iter().any(|it| it.name == cluster && !it.deleting) {
            steps.push(Step::RemoveNamespace(cluster.to_owned()));
        }
        steps
    }
}
