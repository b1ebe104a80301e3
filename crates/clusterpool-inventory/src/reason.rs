//! Why something was decided: one word that condition, event and metric share.

/// Why a decision was taken; closed, so that it can label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// Hive's own controller works on the pool too.
    Contested,
    /// The pool is new to us.
    PoolAdopted,
    /// The deleted pool has nothing left.
    PoolGone,
    /// A claim gets a cluster.
    Claimed,
    /// A claim points at a cluster that it cannot have.
    AssignmentConflict,
    /// A claim finds no cluster.
    NoClusters,
    /// A claim names a pool that is not there.
    NoPool,
    /// A claim has a cluster that is not its own yet in every respect.
    ClusterAssigned,
    /// A deleted cluster gives its entry back.
    Released,
    /// A living cluster's lease was lost.
    LeaseRepaired,
    /// A lease stands for nothing.
    LeaseAbandoned,
    /// A lease whose cluster is not there yet is completed.
    RolledForward,
    /// A new cluster's lease is looked at once more.
    Verified,
    /// Hive does not begin to install a cluster.
    PartsChecked,
    /// An entry is in two clusters.
    DoubleUse,
    /// A cluster of another controller is taken over.
    ClusterAdopted,
    /// Another cluster is wanted.
    Added,
    /// The claim is gone.
    ClaimGone,
    /// The entry is not listed any more.
    EntryRemoved,
    /// The cluster is broken.
    ClusterBroken,
    /// There are more clusters than wanted.
    TooMany,
    /// The cluster is made from what the pool or the entry was before.
    Stale,
    /// Running and hibernating clusters.
    Power,
    /// Something is left of a cluster that is gone.
    LeftOver,
    /// Nobody needs our finalizer on a customization.
    EntryFreed,
    /// The pool is being deleted.
    PoolDeleted,
    /// An entry's patches cannot be applied.
    BrokenByConfiguration,
    /// An entry's clusters failed too often.
    BrokenByCloud,
    /// There is no such customization.
    EntryMissing,
    /// A cluster could not be installed.
    ProvisionStopped,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 30] = [
        Self::Contested,
        Self::PoolAdopted,
        Self::PoolGone,
        Self::Claimed,
        Self::AssignmentConflict,
        Self::NoClusters,
        Self::NoPool,
        Self::ClusterAssigned,
        Self::Released,
        Self::LeaseRepaired,
        Self::LeaseAbandoned,
        Self::RolledForward,
        Self::Verified,
        Self::PartsChecked,
        Self::DoubleUse,
        Self::ClusterAdopted,
        Self::Added,
        Self::ClaimGone,
        Self::EntryRemoved,
        Self::ClusterBroken,
        Self::TooMany,
        Self::Stale,
        Self::Power,
        Self::LeftOver,
        Self::EntryFreed,
        Self::PoolDeleted,
        Self::BrokenByConfiguration,
        Self::BrokenByCloud,
        Self::EntryMissing,
        Self::ProvisionStopped,
    ];

    /// As a label, a condition's and an event's reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Contested => "HiveControllerActive",
            Self::PoolAdopted => "PoolAdopted",
            Self::PoolGone => "PoolGone",
            Self::Claimed => "Claimed",
            Self::AssignmentConflict => "AssignmentConflict",
            Self::NoClusters => "NoClusters",
            Self::NoPool => "NoPool",
            Self::ClusterAssigned => "ClusterAssigned",
            Self::Released => "Released",
            Self::LeaseRepaired => "LeaseRepaired",
            Self::LeaseAbandoned => "LeaseAbandoned",
            Self::RolledForward => "RolledForward",
            Self::Verified => "Verified",
            Self::PartsChecked => "PartsChecked",
            Self::DoubleUse => "DoubleUse",
            Self::ClusterAdopted => "ClusterAdopted",
            Self::Added => "Added",
            Self::ClaimGone => "ClaimGone",
            Self::EntryRemoved => "EntryRemoved",
            Self::ClusterBroken => "ClusterBroken",
            Self::TooMany => "TooMany",
            Self::Stale => "Stale",
            Self::Power => "Power",
            Self::LeftOver => "LeftOver",
            Self::EntryFreed => "EntryFreed",
            Self::PoolDeleted => "PoolDeleted",
            Self::BrokenByConfiguration => "BrokenByConfiguration",
            Self::BrokenByCloud => "BrokenByCloud",
            Self::EntryMissing => "EntryMissing",
            Self::ProvisionStopped => "ProvisionStopped",
        }
    }
}
