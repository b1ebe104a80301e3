//! A pool's state in the terms in which it is decided about, and the plan as it grows.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use api_types::hive::EntryStatus;
use k8s_openapi::jiff::Timestamp;

use crate::decision::{Event, Step, Version, Work};
use crate::inventory::{self, Facts, MOST_ATTEMPTS, is_counted};
use crate::lease::{Held, held};
use crate::reason::Reason;
use crate::seen::{Cluster, Customization, Entry, Listed, Observed};
use crate::settings::Policy;

/// Clusters that one pass begins at most, however large a pool is: enough that the looks between the passes, during which
/// nothing is made, do not count.
pub(crate) const BEGUN: usize = 256;

/// An entry as it was and as it is.
pub(crate) struct State<'a> {
    pub(crate) name: &'a str,
    pub(crate) before: Option<&'a Entry>,
    pub(crate) now: Entry,
}

/// The plan as it grows: each rule sees what those before it decided.
pub(crate) struct Plan<'a> {
    pub(crate) seen: &'a Observed,
    pub(crate) policy: &'a Policy,
    pub(crate) now: Timestamp,
    pub(crate) clusters: HashMap<&'a str, &'a Cluster>,
    /// The customizations, and who has them.
    pub(crate) entries: Vec<(&'a Customization, Held<'a>)>,
    /// Where each of them stands.
    places: HashMap<&'a str, usize>,
    /// Entries by their clusters, where only the lease knows of it.
    unsaid: HashMap<&'a str, &'a str>,
    /// The clusters that are there and were made from an entry, by entry, oldest first.
    pub(crate) users: HashMap<&'a str, Vec<&'a Cluster>>,
    pub(crate) listed: HashSet<&'a str>,
    /// The entries of the new status, by name.
    pub(crate) inventory: Vec<State<'a>>,
    /// Where each of them stands.
    states: HashMap<&'a str, usize>,
    pub(crate) work: Vec<Work>,
    pub(crate) events: Vec<Event>,
    /// Claims without a cluster that get one in this pass.
    pub(crate) served: usize,
    /// Clusters that this pass gives to a claim.
    pub(crate) given: BTreeSet<&'a str>,
    /// Clusters that this pass deletes.
    pub(crate) gone: BTreeSet<&'a str>,
    /// Clusters that go as soon as the status tells why.
    pub(crate) going: BTreeSet<&'a str>,
    /// Names of clusters that this pass begins to make.
    pub(crate) begun: BTreeSet<String>,
    /// How many more clusters may be installed or removed at the same time.
    pub(crate) budget: usize,
    /// Whether that kept clusters from being made or removed.
    pub(crate) held_up: bool,
    /// Clusters that would go if a person did not forbid it.
    pub(crate) spared: BTreeSet<&'a str>,
    /// Whether there is more to begin than one pass begins.
    pub(crate) goes_on: bool,
    pub(crate) again: Option<Duration>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(seen: &'a Observed, policy: &'a Policy, now: Timestamp) -> Self {
        let clusters: HashMap<&str, &Cluster> =
            seen.clusters.iter().map(|it| (it.name.as_str(), it)).collect();
        let all = seen.customizations.iter();
        let entries: Vec<(&Customization, Held<'_>)> =
            all.clone().map(|it| (it, held(it, &seen.pool.name, &clusters))).collect();
        let places = all.enumerate().map(|(place, it)| (it.name.as_str(), place)).collect();
        let unsaid = entries.iter().filter_map(|(it, held)| match held {
            Held::Ours(cluster) if cluster.entry.is_none() => {
                Some((cluster.name.as_str(), it.name.as_str()))
            }
            _ => None,
        });
        let unsaid = unsaid.collect();
        let mut plan = Self {
            seen,
            policy,
            now,
            clusters,
            entries,
            places,
            unsaid,
            users: HashMap::new(),
            listed: seen.pool.listed.names().iter().map(String::as_str).collect(),
            inventory: Vec::new(),
            states: HashMap::new(),
            work: Vec::new(),
            events: Vec::new(),
            served: 0,
            given: BTreeSet::new(),
            gone: BTreeSet::new(),
            going: BTreeSet::new(),
            begun: BTreeSet::new(),
            budget: 0,
            held_up: false,
            spared: BTreeSet::new(),
            goes_on: false,
            again: None,
        };
        for cluster in &seen.clusters {
            if let Some(entry) = plan.entry_of(cluster) {
                plan.users.entry(entry).or_default().push(cluster);
            }
        }
        for users in plan.users.values_mut() {
            users.sort_by_key(|it| (it.unverified, it.created, it.name.as_str()));
        }
        // One that Hive cannot take down is its own trouble, and may stay for ever. Several are the cloud's.
        let hangs = usize::from(seen.clusters.iter().any(|it| it.hangs));
        // A limit of none would keep a deleted pool for ever.
        let least = usize::from(seen.pool.deleting);
        let most = seen.pool.max_concurrent.unwrap_or(usize::MAX).max(least);
        plan.budget = most.saturating_sub(plan.under_way().count().saturating_sub(hangs));
        plan.inventory = plan.inventory_now();
        let states = plan.inventory.iter().enumerate();
        plan.states = states.map(|(place, it)| (it.name, place)).collect();
        plan
    }

    /// A customization, and who has it.
    pub(crate) fn entry(&self, name: &str) -> Option<(&'a Customization, Held<'a>)> {
        self.entries.get(*self.places.get(name)?).copied()
    }

    /// The entry that a cluster was made from: the one that it says, or the one whose lease says so where the reference to it
    /// was dropped.
    pub(crate) fn entry_of(&self, cluster: &'a Cluster) -> Option<&'a str> {
        let said = cluster.entry.as_deref();
        said.or_else(|| self.unsaid.get(cluster.name.as_str()).copied())
    }

    /// Leases of this pool whose clusters are not there, with their names.
    pub(crate) fn halves(&self) -> impl Iterator<Item = (&'a Customization, &'a str)> {
        self.entries.iter().filter_map(|(customization, held)| match held {
            Held::Half(cluster) => Some((*customization, *cluster)),
            _ => None,
        })
    }

    /// Clusters that are being installed or removed, and those that only have their lease.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &'a str> {
        let busy = self.seen.clusters.iter().filter(|it| it.deleting || it.is_installing());
        busy.map(|it| it.name.as_str()).chain(self.halves().map(|(_, cluster)| cluster))
    }

    /// The entry's clusters of this pool that are there to stay.
    pub(crate) fn living(&self, entry: &str) -> Vec<&'a Cluster> {
        let users = self.users.get(entry).map(Vec::as_slice).unwrap_or_default();
        users.iter().copied().filter(|it| !it.deleting).collect()
    }

    /// Entries in which more than one cluster lives, this pool's among them.
    pub(crate) fn in_double_use(&self) -> impl Iterator<Item = &'a str> {
        self.entries.iter().filter_map(|(it, _)| {
            let users = self.users.get(it.name.as_str())?;
            let ours = users.iter().filter(|it| !it.deleting && !it.unverified).count();
            (ours > 0 && ours + it.others.len() > 1).then_some(it.name.as_str())
        })
    }

    /// An entry of the new status.
    pub(crate) fn state(&self, name: &str) -> Option<&Entry> {
        Some(&self.inventory.get(*self.states.get(name)?)?.now)
    }

    fn inventory_now(&self) -> Vec<State<'a>> {
        let before = &self.seen.pool.status.inventory;
        let mut names: Vec<(&'a str, Option<&'a Entry>)> =
            before.iter().map(|(name, it)| (name.as_str(), Some(it))).collect();
        // In the order of the names, which most of them are in already.
        let mut known: HashSet<&str> = names.iter().map(|it| it.0).collect();
        let leased = self.entries.iter().filter_map(|(it, held)| {
            matches!(held, Held::Ours(_) | Held::Half(_)).then_some(it.name.as_str())
        });
        let others = self.listed.iter().copied().chain(self.users.keys().copied()).chain(leased);
        names.extend(others.filter(|it| known.insert(it)).map(|it| (it, None)));
        names.sort_by_key(|it| it.0);
        // An empty list is a mistake, so nothing counts as taken off it.
        let is_empty = self.seen.pool.listed.is_mistaken();
        let attempts = self.seen.pool.attempts.unwrap_or(self.policy.provision_attempts);
        let facts = |(name, before): (&'a str, Option<&'a Entry>)| {
            let found = self.entry(name);
            let first = || {
                let users = || self.users.get(name).into_iter().flatten().copied();
                // Hive has given the lease of one that only waits for us back, and its failure may not be counted yet.
                let failed = || users().find(|it| it.kept && it.has_failed());
                users().find(|it| it.is_live()).or_else(failed)
            };
            let (user, cluster) = match found.map(|it| it.1) {
                Some(Held::Ours(cluster)) => (Some(cluster.name.as_str()), Some(cluster)),
                Some(Held::Half(cluster)) => (Some(cluster), None),
                _ => first().map_or((None, None), |it| (Some(it.name.as_str()), Some(it))),
            };
            let refusal = self.seen.turned_down.get(name);
            let refusal = refusal.filter(|it| found.is_some_and(|of| of.0.version == it.version));
            let entry = inventory::entry(&Facts {
                listed: self.listed.contains(name) || is_empty,
                customization: found.map(|it| it.0),
                user,
                cluster,
                taken: found.is_some_and(|(it, held)| held != Held::Free || !it.others.is_empty()),
                turned_down: refusal.map(|it| it.why.as_str()),
                before,
                attempts: attempts.min(MOST_ATTEMPTS),
                now: self.now,
            })?;
            Some(State { name, before, now: entry })
        };
        names.into_iter().filter_map(facts).collect()
    }

    /// Whether the entry may be leased in this pass.
    pub(crate) fn is_usable(&self, name: &str) -> bool {
        let available = self.state(name).is_some_and(|it| it.status == EntryStatus::Available);
        available && !self.is_lived_in(name)
    }

    /// Whether a cluster of this pool occupies what the entry stands for.
    pub(crate) fn is_lived_in(&self, name: &str) -> bool {
        self.users.get(name).into_iter().flatten().any(|it| it.is_live())
    }

    /// Whether the cluster's entry is one of the pool's, or does not have to be.
    pub(crate) fn is_still_listed(&self, cluster: &'a Cluster) -> bool {
        match (&self.seen.pool.listed, self.entry_of(cluster)) {
            (Listed::Entries(_), Some(entry)) => self.listed.contains(entry),
            _ => true,
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

    pub(crate) fn event(&mut self, reason: Reason, about: &str, note: String) {
        let about = Some(about.to_owned());
        self.events.push(Event { reason, about, note });
    }

    pub(crate) fn push(&mut self, reason: Reason, steps: impl IntoIterator<Item = Step>) {
        self.work.push(Work { reason, steps: steps.into_iter().collect() });
    }

    /// Deletes a cluster, unless somebody forbade it or it happens already.
    pub(crate) fn delete(&mut self, cluster: &'a Cluster, reason: Reason) {
        if self.finds_place(cluster) {
            self.delete_at_once(cluster, reason);
        }
    }

    /// Deletes a cluster as soon as its failure and its entry's word for it are stored. Its place is kept until then.
    pub(crate) fn remove(&mut self, cluster: &'a Cluster, reason: Reason) {
        if !self.finds_place(cluster) {
            return;
        }
        self.going.insert(&cluster.name);
        if self.may_go(cluster) && self.is_told(cluster) {
            self.delete_at_once(cluster, reason);
        }
    }

    /// Takes a place of the budget for a cluster that is to go, if it may go and there is one. An installing cluster only
    /// changes from one place to another.
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

    /// Whether nothing of the cluster can be in use where the pool is gone without having asked for the end of its
    /// clusters: they may be back from a backup before it is, or of a pool that never was ours.
    fn outlives_its_pool(&self, cluster: &Cluster) -> bool {
        let made_here = || self.seen.namespaces.iter().any(|it| it.name == cluster.name);
        self.seen.pool.absent
            && !cluster.marked
            && (cluster.installed && !cluster.unverified || !made_here())
    }

    /// Deletes a cluster whatever else is under way: it must not be.
    pub(crate) fn delete_at_once(&mut self, cluster: &'a Cluster, reason: Reason) {
        if !self.outlives_its_pool(cluster) && self.gone.insert(&cluster.name) {
            let (name, uid, at) = (cluster.name.clone(), cluster.uid.clone(), cluster.at.clone());
            self.push(reason, [Step::Delete { cluster: name, uid, at }]);
        }
    }

    /// The steps that make a cluster, from the namespace to the end of its pause.
    pub(crate) fn creation(&mut self, cluster: &str, entry: Option<&Customization>) -> Vec<Step> {
        let ahead = self.begun.len();
        self.begun.insert(cluster.to_owned());
        let version =
            entry.map(|it| Version { name: it.name.clone(), version: it.version.clone() });
        let pool = &self.seen.pool;
        let made = pool.parts.iter().map(|part| Step::Make {
            cluster: cluster.to_owned(),
            part: *part,
            entry: version.clone(),
        });
        let mut steps: Vec<Step> = made.collect();
        // Those that are there are older.
        let runs = || self.whole().count() + ahead < self.running();
        steps.push(Step::Create {
            cluster: cluster.to_owned(),
            entry: version,
            run: pool.hibernates.then(runs),
        });
        if let Some(entry) = entry.filter(|_| self.policy.verify_lease) {
            let entry = entry.name.clone();
            steps.push(Step::Verify { cluster: cluster.to_owned(), entry, at: None });
        }
        steps
    }

    /// The steps that lease an entry, with our finalizer first if it lacks that.
    pub(crate) fn leasing(entry: &Customization, cluster: &str, prove_living: bool) -> Vec<Step> {
        let (name, at) = (&entry.name, &entry.at);
        let keep = Step::KeepEntry { entry: name.clone(), at: at.clone() };
        let lease = Step::Lease {
            entry: name.clone(),
            cluster: cluster.to_owned(),
            prove_living,
            at: at.clone(),
        };
        if entry.kept { vec![lease] } else { vec![keep, lease] }
    }

    /// The steps that release a lease whose cluster is missing.
    pub(crate) fn abandoning(&self, entry: &Customization, cluster: &str) -> Vec<Step> {
        let (name, at) = (&entry.name, &entry.at);
        let mut steps = Vec::new();
        if !entry.is_announced() {
            steps.push(Step::Announce { entry: name.clone(), at: at.clone() });
        }
        steps.push(Step::Release {
            entry: name.clone(),
            cluster: Some(cluster.to_owned()),
            prove_absent: true,
            at: at.clone(),
        });
        let left = self.seen.namespaces.iter().find(|it| it.name == cluster && !it.deleting);
        steps.extend(
            left.map(|it| Step::RemoveNamespace { name: it.name.clone(), uid: it.uid.clone() }),
        );
        steps
    }
}
