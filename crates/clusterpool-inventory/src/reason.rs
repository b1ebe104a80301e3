//! Why something was done, and how a pass ended: one word each, in conditions, events, metrics and the log.

use std::time::Duration;

use controller_kit::reasons;

reasons! {
    /// Why a piece of work is done, or something is told.
    pub enum Reason {
        HiveControllerActive: Kind::Waits, "Hive's own controller works on the pool too.", "Add clusterpool to spec.disabledControllers of HiveConfig.";
        PoolAdopted: Kind::Rests, "The pool is new to us.";
        PoolGone: Kind::Rests, "The deleted pool has nothing left.";
        Claimed: Kind::Rests, "A claim gets a cluster.";
        AssignmentConflict: Kind::Rests, "A claim points at a cluster that it cannot have.";
        NoClusters: Kind::Waits, "A claim finds no cluster.";
        NoPool: Kind::Waits, "A claim names a pool that is not there.", "Create the pool, or make the claim anew for one that is there.";
        ClusterAssigned: Kind::Waits, "A claim has a cluster that is not its own yet in every respect.";
        Released: Kind::Rests, "A deleted cluster gives its entry back.";
        LeaseRepaired: Kind::Rests, "A living cluster's lease was lost.";
        LeaseAbandoned: Kind::Rests, "A lease stands for nothing.";
        RolledForward: Kind::Rests, "A lease whose cluster is not there yet is completed.";
        Verified: Kind::Rests, "A new cluster's lease is looked at once more.";
        PartsChecked: Kind::Rests, "Hive does not begin to install a cluster.";
        DoubleUse: Kind::Waits, "An entry is in two clusters.", "End one of them.";
        ClusterAdopted: Kind::Rests, "A cluster of another controller is taken over.";
        Added: Kind::Rests, "Another cluster is wanted.";
        ClaimGone: Kind::Rests, "The claim is gone.";
        EntryRemoved: Kind::Rests, "The entry is not listed any more.";
        ClusterBroken: Kind::Rests, "The cluster is broken.";
        TooMany: Kind::Rests, "There are more clusters than wanted.";
        Stale: Kind::Rests, "The cluster is made from what the pool or the entry was before.";
        Power: Kind::Rests, "Running and hibernating clusters.";
        LeftOver: Kind::Rests, "Something is left of a cluster that is gone.";
        EntryFreed: Kind::Rests, "Nobody needs our finalizer on a customization.";
        PoolDeleted: Kind::Rests, "The pool is being deleted.";
        BrokenByConfiguration: Kind::Waits, "An entry's patches cannot be applied.", "Correct the customization.";
        BrokenByCloud: Kind::Waits, "An entry's clusters failed too often.", "Edit the customization.";
        EntryMissing: Kind::Waits, "There is no such customization.", "Create it, or take it off the list.";
        ProvisionStopped: Kind::Rests, "A cluster could not be installed.";
    }
}

reasons! {
    /// How a pass over a pool ended.
    pub enum Pass {
        AtRest: Kind::Rests, "Nothing is to be done for the pool.";
        CachesBehind: Kind::EndsWithin(Duration::from_secs(60)), "The caches do not show yet what the last pass wrote.";
        Worked: Kind::EndsWithin(Duration::from_secs(3600)), "Something was done for the pool.", "Read the log: the same is done again and again.";
        StatusTold: Kind::EndsWithin(Duration::from_secs(3600)), "The status of the pool says what was seen.";
        Contested: Kind::Waits, "Hive's own controller works on the pool too, so nothing is done.", "Add clusterpool to spec.disabledControllers of HiveConfig.";
        DependencyMissing: Kind::Waits, "The pool refers to something that is missing or cannot be used.", "Read its condition MissingDependencies.";
        PoolLeaving: Kind::Waits, "The pool is being deleted, or gone, and something of it is left.", "Read its condition DeletionPossible.";
        ClaimsWait: Kind::Waits, "Claims wait for a cluster of the pool.", "Read its condition CapacityAvailable.";
    }
}
