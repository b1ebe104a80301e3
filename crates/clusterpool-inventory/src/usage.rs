//! Who has an entry and who uses it, from one pool's point of view: computed once, before anything is decided.
//!
//! A lease is one conditional write of the customization's status that already names cluster and
//! pool. Until that cluster is there, the lease is either completed under the same name or
//! released in two writes: the first announces it, and the second is made only when the API
//! server, asked after the announcement, does not know the cluster. A cluster begins paused, and
//! its pause ends only when the API server, asked after its creation, shows the lease without such
//! an announcement. Of two that are at it at the same time, at least one sees the other.
//!
//! The lease of a cluster that is there is released only when nobody else keeps that cluster any
//! more, and before our own finalizer goes.

use std::collections::HashMap;

use api_types::hive::EntryStatus;
use k8s_openapi::jiff::Timestamp;

use crate::inventory::{self, Facts, MOST_ATTEMPTS};
use crate::seen::{Cluster, Customization, Entry, Failure, Observed};
use crate::settings::Policy;

/// The entries of a pool, and those of its namespace that it has nothing to do with.
pub(crate) struct Uses<'a> {
    /// In the order of their names.
    all: Vec<Use<'a>>,
    /// Where each of them stands: a rule asks for the entries of a thousand clusters.
    places: HashMap<&'a str, usize>,
    clusters: HashMap<&'a str, &'a Cluster>,
    /// Entries by their clusters, where only the lease knows of it.
    unsaid: HashMap<&'a str, &'a str>,
}

/// An entry.
#[derive(Default)]
pub(crate) struct Use<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its customization, if that is there.
    pub(crate) customization: Option<&'a Customization>,
    /// Who has it.
    pub(crate) held: Held<'a>,
    /// The pool's clusters that are there and were made from it, oldest first.
    pub(crate) users: Vec<&'a Cluster>,
    /// Whether the pool lists it.
    pub(crate) listed: bool,
    /// Whether our finalizer is on it, or the one that Hive's own controller puts there for the pool.
    pub(crate) kept: bool,
    /// What the stored status says of it.
    pub(crate) before: Option<&'a Entry>,
    /// What the new status says.
    pub(crate) now: Option<Entry>,
}

impl<'a> Uses<'a> {
    pub(crate) fn of(seen: &'a Observed, policy: &Policy, now: Timestamp) -> Self {
        let clusters = seen.clusters.iter().map(|it| (it.name.as_str(), it)).collect();
        let (places, unsaid) = (HashMap::new(), HashMap::new());
        let mut uses = Self { all: Vec::new(), places, clusters, unsaid };
        for it in &seen.customizations {
            let held = held(it, &seen.pool.name, &uses.clusters);
            if let Held::Ours(cluster) = held
                && cluster.entry.is_none()
            {
                uses.unsaid.insert(&cluster.name, &it.name);
            }
            let entry = uses.named(&it.name);
            (entry.customization, entry.held) = (Some(it), held);
            entry.kept = it.kept || it.kept_by_hive;
        }
        for name in seen.pool.listed.names() {
            uses.named(name).listed = true;
        }
        for (name, before) in &seen.pool.status.inventory {
            uses.named(name).before = Some(before);
        }
        for cluster in &seen.clusters {
            if let Some(name) = uses.entry_of(cluster) {
                uses.named(name).users.push(cluster);
            }
        }
        for entry in &mut uses.all {
            entry.users.sort_by_key(|it| (it.unverified, it.created, it.name.as_str()));
            entry.now = entry.state(seen, policy, now);
        }
        uses.all.sort_by_key(|it| it.name);
        uses.places = uses.all.iter().enumerate().map(|(place, it)| (it.name, place)).collect();
        uses
    }

    fn named(&mut self, name: &'a str) -> &mut Use<'a> {
        let next = self.all.len();
        let place = *self.places.entry(name).or_insert(next);
        if place == next {
            self.all.push(Use { name, ..Use::default() });
        }
        &mut self.all[place]
    }

    /// An entry.
    pub(crate) fn get(&self, name: &str) -> Option<&Use<'a>> {
        self.all.get(*self.places.get(name)?)
    }

    /// All of them that are there.
    pub(crate) fn there(&self) -> impl Iterator<Item = (&Use<'a>, &'a Customization)> {
        self.all.iter().filter_map(|it| Some((it, it.customization?)))
    }

    /// What the new status says of each that is listed or used.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&Use<'a>, &Entry)> {
        self.all.iter().filter_map(|it| Some((it, it.now.as_ref()?)))
    }

    /// A cluster of the pool.
    pub(crate) fn cluster(&self, name: &str) -> Option<&'a Cluster> {
        self.clusters.get(name).copied()
    }

    /// The entry that a cluster was made from: the one that it says, or the one whose lease says so where the reference to it
    /// was dropped.
    pub(crate) fn entry_of(&self, cluster: &'a Cluster) -> Option<&'a str> {
        let said = cluster.entry.as_deref();
        said.or_else(|| self.unsaid.get(cluster.name.as_str()).copied())
    }

    /// The same, with what is known of it.
    pub(crate) fn by(&self, cluster: &'a Cluster) -> Option<&Use<'a>> {
        self.get(self.entry_of(cluster)?)
    }

    /// Leases of this pool whose clusters are not there, with their names.
    pub(crate) fn halves(&self) -> impl Iterator<Item = (&Use<'a>, &'a Customization, &'a str)> {
        self.there().filter_map(|(it, customization)| match it.held {
            Held::Half(cluster) => Some((it, customization, cluster)),
            _ => None,
        })
    }
}

impl<'a> Use<'a> {
    /// The pool's clusters in it that are there to stay.
    pub(crate) fn living(&self) -> impl Iterator<Item = &'a Cluster> {
        self.users.iter().copied().filter(|it| !it.deleting)
    }

    /// Whether a cluster of this pool occupies what the entry stands for.
    pub(crate) fn is_lived_in(&self) -> bool {
        self.users.iter().any(|it| it.is_live())
    }

    /// Whether more than one cluster lives in it, this pool's among them.
    pub(crate) fn is_in_double_use(&self) -> bool {
        let ours = self.living().filter(|it| !it.unverified).count();
        let others = self.customization.map_or(0, |it| it.others.len());
        ours > 0 && ours + others > 1
    }

    /// Whether it may be leased in this pass.
    pub(crate) fn is_usable(&self) -> bool {
        let is_available = |it: &Entry| it.status == EntryStatus::Available;
        self.now.as_ref().is_some_and(is_available) && !self.is_lived_in()
    }

    /// Why no cluster came of it last, if it is so.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.now.as_ref()?.failure.as_ref()
    }

    /// Whether a cluster has its lease.
    pub(crate) fn is_held_by(&self, cluster: &Cluster) -> bool {
        matches!(self.held, Held::Ours(holder) if holder.name == cluster.name)
    }

    /// Whether the failure of a cluster is in the stored status, so that the cluster may go.
    pub(crate) fn is_counted(&self, cluster: &str) -> bool {
        inventory::is_counted(self.before, cluster)
    }

    /// What the new status says of it.
    fn state(&self, seen: &Observed, policy: &Policy, now: Timestamp) -> Option<Entry> {
        let is_leased = matches!(self.held, Held::Ours(_) | Held::Half(_));
        if self.before.is_none() && !self.listed && self.users.is_empty() && !is_leased {
            return None;
        }
        let users = || self.users.iter().copied();
        // Hive has given the lease of one that only waits for us back, and its failure may not be counted yet.
        let failed = || users().find(|it| it.kept && it.has_failed());
        let (user, cluster) = match self.held {
            Held::Ours(cluster) => (Some(cluster.name.as_str()), Some(cluster)),
            Held::Half(cluster) => (Some(cluster), None),
            _ => {
                let first = users().find(|it| it.is_live()).or_else(failed);
                (first.map(|it| it.name.as_str()), first)
            }
        };
        let is_current =
            |version: &String| self.customization.is_some_and(|it| it.version == *version);
        let refusal = seen.turned_down.get(self.name).filter(|it| is_current(&it.version));
        let attempts = seen.pool.attempts.unwrap_or(policy.provision_attempts);
        inventory::entry(&Facts {
            // An empty list is a mistake, so nothing counts as taken off it.
            listed: self.listed || seen.pool.listed.is_mistaken(),
            customization: self.customization,
            user,
            cluster,
            taken: self
                .customization
                .is_some_and(|it| self.held != Held::Free || !it.others.is_empty()),
            turned_down: refusal.map(|it| it.why.as_str()),
            before: self.before,
            attempts: attempts.min(MOST_ATTEMPTS),
            now,
        })
    }
}

/// Who has a customization, from one pool's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Held<'a> {
    /// Nobody.
    #[default]
    Free,
    /// A cluster of this pool that was made from it, or may have been.
    Ours(&'a Cluster),
    /// This pool, for a cluster that is not there.
    Half(&'a str),
    /// This pool, for a cluster that was made from something else.
    Mistaken(&'a str),
    /// Nobody can tell: in use, without a name.
    Torn,
    /// A pool that is gone, for a cluster that is gone as well as can be seen.
    Orphaned(&'a str),
    /// Another pool, or a cluster that is not this pool's.
    Others,
}

/// Reads a lease.
fn held<'a>(
    customization: &'a Customization,
    pool: &str,
    clusters: &HashMap<&str, &'a Cluster>,
) -> Held<'a> {
    let Some(lease) = &customization.lease else { return Held::Free };
    let Some(name) = lease.cluster.as_deref() else {
        let theirs = lease.pool_exists && lease.pool.as_deref().is_some_and(|it| it != pool);
        return if theirs { Held::Others } else { Held::Torn };
    };
    let cluster = clusters.get(name);
    // No other pool can have made it: whatever the lease says of a pool beside that is a mistake.
    let made = cluster.is_some_and(|it| is_made_from(it, customization, pool));
    let ours = made
        || match lease.pool.as_deref() {
            Some(holder) => holder == pool,
            None => cluster.is_some(),
        };
    // Whoever made it: it is there, and has the entry.
    let is_anothers = || customization.others.iter().any(|it| it == name);
    match cluster {
        _ if !ours => {
            let gone = !lease.pool_exists && !is_anothers();
            if gone { Held::Orphaned(name) } else { Held::Others }
        }
        None if is_anothers() => Held::Others,
        None => Held::Half(name),
        Some(cluster) if made => Held::Ours(cluster),
        Some(_) => Held::Mistaken(name),
    }
}

/// Whether the cluster is in the entry, as far as can be told. Where it names none, an old CRD dropped the reference, and the
/// lease alone knows: our finalizer is on no cluster without an entry, and a whole lease was written for this one.
fn is_made_from(cluster: &Cluster, customization: &Customization, pool: &str) -> bool {
    match &cluster.entry {
        Some(entry) => *entry == customization.name,
        None => cluster.kept || customization.is_whole(pool),
    }
}

impl Customization {
    /// Whether it says in full that it is in use by a cluster of this pool.
    pub(crate) fn is_whole(&self, pool: &str) -> bool {
        self.names_pool(pool) && self.lease.as_ref().is_some_and(|it| it.whole)
    }

    /// Whether its lease says that it is this pool's.
    pub(crate) fn names_pool(&self, pool: &str) -> bool {
        self.lease.as_ref().is_some_and(|it| it.pool.as_deref() == Some(pool))
    }

    /// Whether somebody announced to release it.
    pub fn is_announced(&self) -> bool {
        self.lease.as_ref().is_some_and(|it| it.releasing)
    }
}
