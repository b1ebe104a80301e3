//! What one pass over a pool knows: plain data, read before anything is decided.
//!
//! Every object comes with the resourceVersion at which it was read, since every write insists on
//! it. The objects may come from caches of different age; the rules in [`mod@crate::decide`] do not
//! rely on their being of one moment.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api_types::hive::{ClusterPoolSpec, ClusterPoolStatus, Inventory};
use k8s_openapi::jiff::Timestamp;

use crate::pool_version::PoolVersion;

/// A pool and everything that concerns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The pool.
    pub pool: Pool,
    /// Its clusters, also those that are being deleted.
    pub clusters: Vec<Cluster>,
    /// The customizations of its namespace, listed by it or not.
    pub customizations: Vec<Customization>,
    /// The claims on it.
    pub claims: Vec<Claim>,
    /// The namespaces that were made for its clusters.
    pub namespaces: Vec<Namespace>,
    /// Names for clusters whose namespaces were found to be somebody else's.
    pub taken: BTreeSet<String>,
    /// Entries whose clusters could not be made, since somebody refused it.
    pub turned_down: BTreeMap<String, Refusal>,
    /// Why somebody refused what was to be written for it, since that was refused first.
    pub refused: Option<String>,
    /// Which secrets and which customization its clusters are made of now.
    pub materials: String,
    /// What it refers to and is not there or not usable, in words for its condition.
    pub missing: Vec<String>,
    /// Clusters in namespaces of the pool, or that it leases an entry for, that cannot be decoded: nobody knows whether they
    /// are its own.
    pub unread: Vec<String>,
    /// Claims of its namespace that cannot be decoded: nobody knows which cluster they have.
    pub unread_claims: Vec<String>,
}

/// Why the API server or a webhook does not want a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The version of the entry that it was to be made from.
    pub version: String,
    /// Why, for people.
    pub why: String,
}

/// The pool.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Pool {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub at: String,
    /// Whether its deletion was asked for, or it is gone.
    pub deleting: bool,
    /// Whether there is no such pool: nobody asked for the end of its clusters, and it may come back from a backup after
    /// them.
    pub absent: bool,
    /// Whether it has our finalizer.
    pub kept: bool,
    /// Its inventory.
    pub listed: Listed,
    /// Unclaimed clusters to keep.
    pub size: usize,
    /// How many of them run.
    pub running: usize,
    /// Clusters at most.
    pub max_size: Option<usize>,
    /// Clusters being installed or removed at most.
    pub max_concurrent: Option<usize>,
    /// Whether its platform can hibernate; where it cannot, every cluster runs.
    pub hibernates: bool,
    /// The values that mark a cluster as made from its present spec.
    pub version: PoolVersion,
    /// Failed provisions that an entry may have, if the pool says so itself.
    pub attempts: Option<u32>,
    /// What it says of its inventory and does not mean, in words for its condition.
    pub remarks: Vec<String>,
    /// Whether its clusters get a machine pool.
    pub makes_workers: bool,
    /// Its status as it is stored.
    pub status: ClusterPoolStatus,
    /// Why another controller is known to work on it, in words for its condition.
    pub rival: Option<String>,
}

/// What a pool's spec says of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Listed {
    /// Nothing: clusters are made without entries.
    #[default]
    Nothing,
    /// A list without entries, which is a mistake: it is neither a wish for clusters without
    /// entries nor one to delete all that are there.
    Empty,
    /// Something that is no inventory, and why: a mistake too.
    Unreadable(String),
    /// The entries in the order of the list, each once.
    Entries(Vec<String>),
}

impl Listed {
    /// Reads the inventory, in whichever of its spellings.
    pub fn of(spec: &ClusterPoolSpec) -> Self {
        let Some(inventory) = &spec.inventory else { return Self::Nothing };
        if let Inventory::Unreadable(it) = inventory {
            return Self::Unreadable(it.why.clone());
        }
        let mut seen = HashSet::new();
        let names: Vec<String> = inventory
            .entries()
            .map(|entry| entry.name.as_str())
            .filter(|name| !name.is_empty() && seen.insert(*name))
            .map(str::to_owned)
            .collect();
        if names.is_empty() { Self::Empty } else { Self::Entries(names) }
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        match self {
            Self::Entries(names) => names,
            Self::Nothing | Self::Empty | Self::Unreadable(_) => &[],
        }
    }

    /// Whether it says neither which entries there are nor that there are none.
    pub fn is_mistaken(&self) -> bool {
        matches!(self, Self::Empty | Self::Unreadable(_))
    }
}

/// A cluster of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Cluster {
    /// Its name, which is its namespace's too.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub at: String,
    /// When it was created.
    pub created: Timestamp,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Whether Hive cannot take it down: it says so, or has not for hours.
    pub hangs: bool,
    /// Whether it waits for us to give its lease back.
    pub kept: bool,
    /// Whether it waits for somebody else, who may still be taking it down.
    pub kept_by_others: bool,
    /// The entry that it was made from.
    pub entry: Option<String>,
    /// The version of that entry, if it was noted.
    pub entry_version: Option<String>,
    /// The version of the pool's spec that it was made from.
    pub pool_version: Option<String>,
    /// The claim that it is given to.
    pub claim: Option<String>,
    /// The uid of that claim; none where nobody noted it.
    pub claim_uid: Option<String>,
    /// When it was given to it, in whole seconds; none where nobody noted that.
    pub claimed: Option<Timestamp>,
    /// Whether its claim is gone and it may be deleted.
    pub marked: bool,
    /// Whether a person forbade to delete it.
    pub protected: bool,
    /// Whether it is paused by us until its lease is verified.
    pub unverified: bool,
    /// What Hive says of a cluster that it has not begun to install for long.
    pub not_begun: Option<String>,
    /// Whether it is to be looked after for that: somebody may have deleted what it needs.
    pub idle: bool,
    /// Whether Hive has been installing it for hours: nobody knows whether it ever will be.
    pub slow: bool,
    /// Whether it was ever installed.
    pub installed: bool,
    /// Why Hive gave up installing it.
    pub stopped: Option<String>,
    /// Whether it should have resumed long ago.
    pub stuck: bool,
    /// Whether it runs.
    pub running: bool,
    /// Whether it is asked to run.
    pub asked_to_run: Option<bool>,
}

/// A customization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Customization {
    /// Its name.
    pub name: String,
    /// Its resourceVersion.
    pub at: String,
    /// Generation and uid: what patches are in it.
    pub version: String,
    /// Since when a person wants its failures to be forgotten, if one does.
    pub retry: Option<Timestamp>,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Whether it has our finalizer.
    pub kept: bool,
    /// Whether it has the one that Hive's own controller puts there for this pool.
    pub kept_by_hive: bool,
    /// Whether it says still that it failed in the eyes of Hive's own controller, which nobody else takes back.
    pub failed_by_hive: bool,
    /// Its lease, if it is not free.
    pub lease: Option<Lease>,
    /// Live clusters of other pools that were made from it.
    pub others: Vec<String>,
    /// Whether a pool beside this one lists it.
    pub listed_elsewhere: bool,
    /// Why its patches cannot be used in this pool, if they cannot.
    pub refused: Option<String>,
    /// Whether it cannot be decoded, so that nothing can be written on it.
    pub unread: bool,
}

/// Who has a customization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The cluster; none if a foreign controller was stopped between two writes.
    pub cluster: Option<String>,
    /// The pool.
    pub pool: Option<String>,
    /// Whether that pool is there.
    pub pool_exists: bool,
    /// Whether somebody is about to release it since the cluster is missing.
    pub releasing: bool,
    /// Whether the condition says that it is in use, and the pool is named.
    pub whole: bool,
}

/// A claim on the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub at: String,
    /// When it was created.
    pub created: Timestamp,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// The cluster that it was given.
    pub cluster: Option<String>,
    /// The reason of its condition `Pending`, whatever that says.
    pub pending: Option<String>,
}

#[cfg(test)]
impl Claim {
    /// One that has waited since the beginning of time.
    pub(crate) fn waiting() -> Self {
        Self {
            name: "x".to_owned(),
            uid: String::new(),
            at: "1".to_owned(),
            created: Timestamp::UNIX_EPOCH,
            deleting: false,
            cluster: None,
            pending: None,
        }
    }
}

/// A namespace that was made for one of the pool's clusters, and has its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The uid of the pool that it was made for: another one of the name may have taken that one's place.
    pub pool_uid: String,
    /// What the parts in it are made from; empty where nobody noted that.
    pub made_from: String,
    /// When it was created.
    pub created: Timestamp,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Whether this process began a cluster in it and saw none yet.
    pub begun: bool,
    /// Whether this process saw the cluster in it, which is gone: none is on its way there any more.
    pub vacated: bool,
}

impl Observed {
    /// A cluster of the pool.
    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.iter().find(|it| it.name == name)
    }

    /// A claim on the pool.
    pub fn claim(&self, name: &str) -> Option<&Claim> {
        self.claims.iter().find(|it| it.name == name)
    }

    /// How many clusters there are, with those that may be the pool's and cannot be read.
    pub fn there(&self) -> usize {
        self.clusters.len() + self.unread.len()
    }
}

impl Claim {
    /// Whether it has no cluster and is to get one.
    pub fn waits(&self) -> bool {
        !self.deleting && self.cluster.is_none()
    }
}

impl Cluster {
    /// Whether it may occupy what its entry stands for: it is not being deleted, or somebody is
    /// still at it.
    pub fn is_live(&self) -> bool {
        !self.deleting || self.kept_by_others
    }

    /// Whether it will never be of use without having been installed.
    pub fn has_failed(&self) -> bool {
        self.stopped.is_some() && !self.installed
    }

    /// Whether it is no use.
    pub fn is_broken(&self) -> bool {
        self.stopped.is_some() || self.stuck
    }

    /// Whether nobody has it and nobody is removing it.
    pub fn is_unclaimed(&self) -> bool {
        self.claim.is_none() && !self.deleting && !self.marked
    }

    /// Whether it was given to this claim, and not to an earlier one of its name, whose user may still be in it. The times
    /// tell that only where nobody noted the uid: they are whole seconds, of a clock that may have been ahead.
    pub fn was_given_to(&self, claim: &Claim) -> bool {
        let is_same = match &self.claim_uid {
            Some(uid) => *uid == claim.uid,
            None => self.claimed.is_none_or(|given| given >= claim.created),
        };
        is_same && self.claim.as_ref() == Some(&claim.name)
    }

    /// Whether nobody has it and it is or will be of use.
    pub fn is_whole(&self) -> bool {
        self.is_unclaimed() && !self.is_broken()
    }

    /// Whether it is on its way to be of use.
    pub fn is_installing(&self) -> bool {
        self.is_whole() && !self.installed
    }

    /// Whether a claim can have it.
    pub fn is_ready(&self) -> bool {
        self.is_whole() && self.installed && self.running && !self.unverified
    }

    /// Whether it is installed, and no claim can have it yet.
    pub fn is_standby(&self) -> bool {
        self.is_whole() && self.installed && !self.is_ready()
    }
}
