//! Why something was done, and how a pass ended: one word each, in conditions, events, metrics and the log.

use std::time::Duration;

use controller_kit::engine::reasons::{Location, ObjectPart};
use controller_kit::reasons;

const MISSING: Location = Location::new(
    "ClusterPool",
    ObjectPart::Condition("MissingDependencies"),
    "Whether everything exists that the pool refers to. Not checked while the pool is being deleted.",
);
const INVENTORY: Location = Location::new(
    "ClusterPool",
    ObjectPart::Condition("InventoryValid"),
    "How many entries can be used for the size. The message also names entries that are listed twice, and annotations with an \
     invalid number of attempts or time.",
);
const CAPACITY: Location = Location::new(
    "ClusterPool",
    ObjectPart::Condition("CapacityAvailable"),
    "Whether the pool gets the clusters that it lacks by itself. It is False while the pool waits for a person or a limit. The reason \
     is the gravest cause, and the message has a sentence for each.",
);
const CURRENT: Location = Location::new(
    "ClusterPool",
    ObjectPart::Condition("AllClustersCurrent"),
    "Which unclaimed clusters are to be replaced, first those that are not installed yet.",
);
const DELETION: Location = Location::new(
    "ClusterPool",
    ObjectPart::Condition("DeletionPossible"),
    "What a deleted pool waits for: first clusters, then leases, then namespaces.",
);
const SOLE: Location = Location::new(
    "ClusterPool",
    ObjectPart::Condition("SoleController"),
    "Whether Hive's own controller writes to the pool, too. The controller notices that within seconds.",
);
const PENDING: Location = Location::new(
    "ClusterClaim",
    ObjectPart::Condition("Pending"),
    "Why the claim has no cluster.",
);
const EVENT: Location = Location::new(
    "ClusterPool",
    ObjectPart::Event,
    "A warning about an entry, a cluster or a write.",
);
const FAILURE: Location = Location::new(
    "ClusterPool",
    ObjectPart::Field("`lastFailure` of an entry in `status.inventory`"),
    "What went wrong with the entry last.",
);
const ENTRY_EVENT: Location = Location::new(
    "ClusterDeploymentCustomization",
    ObjectPart::Event,
    "A warning about the patches.",
);

reasons! {
    /// Why a piece of work is done, or something is told.
    pub enum Reason {
        HiveControllerActive: Kind::Waits,
            "Hive's own controller of pools writes to the pool. This controller does nothing for the pool meanwhile.",
            "Add clusterpool to `spec.disabledControllers` of HiveConfig.",
            on: [SOLE], see: "runbooks/FerriteClusterpoolInventoryContested.md";
        PoolAdopted: Kind::Rests, "The pool is new to us.";
        PoolGone: Kind::Rests, "The deleted pool has nothing left.";
        Claimed: Kind::Rests, "A claim gets a cluster.";
        AssignmentConflict: Kind::Rests, "A claim points at a cluster that it cannot have.";
        NoClusters: Kind::Waits,
            "No cluster of the pool is free for the claim.",
            "See the conditions of the pool.",
            on: [PENDING], see: "runbooks/FerriteClusterpoolInventoryClaimsWait.md";
        NoPool: Kind::Waits,
            "The pool that the claim names does not exist.",
            "Create the pool, or create a new claim with the `spec.clusterPoolName` of an existing pool.",
            on: [PENDING],
            more: "The reason is not used with `--pools=inventory`.";
        ClusterAssigned: Kind::Waits, "The claim has a cluster, which is being prepared for it.", on: [PENDING];
        Released: Kind::Rests, "A deleted cluster gives its entry back.";
        LeaseRepaired: Kind::Rests, "A living cluster's lease was lost.";
        LeaseAbandoned: Kind::Rests, "A lease stands for nothing.";
        RolledForward: Kind::Rests, "A lease whose cluster is not there yet is completed.";
        Verified: Kind::Rests, "A new cluster's lease is looked at once more.";
        PartsChecked: Kind::Rests, "Hive does not begin to install a cluster.";
        DoubleUse: Kind::Waits,
            "Two clusters use the same entry.",
            "Delete one of the clusters that the message names.",
            on: [EVENT];
        ClusterAdopted: Kind::Rests, "A cluster of another controller is taken over.";
        Added: Kind::Rests, "Another cluster is wanted.";
        ClaimGone: Kind::Rests, "The claim is gone.";
        EntryRemoved: Kind::Rests, "The entry is not listed any more.";
        ClusterBroken: Kind::Rests,
            "A broken cluster that is not claimed is removed. The message shows the cause.",
            on: [EVENT];
        TooMany: Kind::Rests, "There are more clusters than wanted.";
        Stale: Kind::Rests, "The cluster is made from what the pool or the entry was before.";
        Power: Kind::Rests, "Running and hibernating clusters.";
        LeftOver: Kind::Rests, "Something is left of a cluster that is gone.";
        EntryFreed: Kind::Rests, "Nobody needs our finalizer on a customization.";
        PoolDeleted: Kind::Rests,
            "The pool of the claim is being deleted and gives no cluster any more.",
            "Create a new claim for another pool.",
            on: [PENDING];
        BrokenByConfiguration: Kind::Waits,
            "The patches of an entry cannot be applied.",
            "Correct the entry that the message names, or remove it from the list.",
            on: [EVENT], see: "runbooks/FerriteClusterpoolInventoryEntriesBroken.md";
        BrokenByCloud: Kind::Waits,
            "The clusters of an entry failed too often.",
            "Repair what the entry stands for, then set the annotation `ferrite.metal3.io/retry` of the customization to the time, or edit it.",
            on: [EVENT], see: "runbooks/FerriteClusterpoolInventoryEntriesBroken.md";
        EntryMissing: Kind::Waits,
            "The customization of an entry does not exist.",
            "Create the customization that the message names, or remove the entry from the list.",
            on: [EVENT], see: "runbooks/FerriteClusterpoolInventoryEntriesBroken.md";
        ProvisionStopped: Kind::Rests,
            "Hive could not install a cluster. The message shows the attempts that its entry has left.",
            "See why the cluster could not be installed.",
            on: [EVENT, FAILURE];
    }
}

reasons! {
    /// How a pass over a pool ended.
    pub enum Pass {
        AtRest: Kind::Rests, "Nothing is to be done for the pool.";
        CachesBehind: Kind::EndsWithin(Duration::from_secs(60)), "The caches do not show yet what the last pass wrote.";
        Worked: Kind::EndsWithin(Duration::from_secs(3600)), "Something was done for the pool.", "Read the log: the same is done again and again.", promise: Duration::from_secs(5);
        StatusTold: Kind::EndsWithin(Duration::from_secs(3600)), "The status of the pool says what was seen.";
        Contested: Kind::Waits, "Hive's own controller works on the pool too, so nothing is done.", "Add clusterpool to `spec.disabledControllers` of HiveConfig.";
        DependencyMissing: Kind::Waits, "The pool refers to something that is missing or cannot be used.", "Read its condition MissingDependencies.";
        PoolLeaving: Kind::Waits, "The pool is being deleted, or gone, and something of it is left.", "Read its condition DeletionPossible.";
        ClaimsWait: Kind::Waits, "Claims wait for a cluster of the pool.", "Read its condition CapacityAvailable.";
    }
}

reasons! {
    /// The reasons of a pool's conditions, of events and of entries' failures that are no cause of work.
    pub enum Notice {
        Verified: Kind::Rests, "Nothing is missing.", on: [MISSING];
        Missing: Kind::Waits,
            "An object that the pool refers to does not exist, cannot be read or cannot be used. No cluster is made meanwhile; everything else goes on.",
            "Create what the message names, or correct the name. If a platform cannot be used, use another one.",
            on: [MISSING, CAPACITY],
            more: "The same holds for a required secret that is not named (Azure, OpenStack, vSphere), and for an unusable platform (IBM Cloud). Without an inventory it holds for a template that cannot be installed.",
            see: "runbooks/FerriteClusterpoolInventoryPoolLacks.md";
        Available: Kind::Rests, "The pool has its size, or what is under way ends by itself.", on: [CAPACITY];
        MaxCapacity: Kind::Waits,
            "The pool has as many clusters as `spec.maxSize` allows.",
            "Raise `spec.maxSize`, or delete unused claims.",
            on: [CAPACITY];
        NoFreeEntry: Kind::Waits,
            "Fewer entries are free or usable than the size needs. Claimed clusters keep theirs, and so do clusters that Hive cannot take down.",
            "Add or correct entries, delete unused claims, or help Hive with the clusters that it cannot take down.",
            on: [CAPACITY],
            more: "Where too few clusters exist, the message names the clusters on their way out that still keep an entry.";
        NotBegun: Kind::Waits,
            "Hive has not begun to install these clusters. What is wrong in the template stays wrong in them.",
            "Correct what Hive says of the ClusterDeployments that the message names. Then delete those that do not begin.",
            on: [CAPACITY];
        MaxConcurrent: Kind::Waits,
            "As many clusters as `spec.maxConcurrent` allows are being installed or removed.",
            "Wait if the message names clusters at work. Otherwise raise `spec.maxConcurrent`, or help Hive with them.",
            on: [CAPACITY],
            more: "A cluster that Hive cannot take down (Hive reports it, or three hours have passed) does not count. Of several, all but one do.";
        ProtectedClusters: Kind::Waits,
            "Clusters are to be removed and have the annotation `hive.openshift.io/protected-delete`.",
            "Remove the annotation from the clusters that the message names.",
            on: [CAPACITY];
        UnownedClusters: Kind::Waits,
            "The claims of these clusters are gone, or have another cluster. Somebody may still use them.",
            "Annotate those that nobody uses with `hive.openshift.io/remove-cluster-from-pool=true`.",
            on: [CAPACITY];
        Valid: Kind::Rests, "Enough entries can be used for the size.", on: [INVENTORY];
        Invalid: Kind::Waits,
            "An entry is broken, missing or in two clusters, or its patches could not be applied once its cluster is gone.",
            "Correct the entries that the message names.",
            on: [INVENTORY], see: "runbooks/FerriteClusterpoolInventoryEntriesBroken.md";
        TooFewEntries: Kind::Waits,
            "Fewer entries can be used than the size needs. Entries of claimed clusters count as used for it.",
            "Add entries, delete unused claims, or help Hive with the clusters that it cannot take down.",
            on: [INVENTORY];
        Unreadable: Kind::Waits,
            "`spec.inventory` is no inventory. Until it is corrected no cluster is made or removed.",
            "Correct `spec.inventory` as the message says.",
            on: [INVENTORY, CAPACITY];
        Empty: Kind::Waits,
            "`spec.inventory` lists no entry. Until it does no cluster is made or removed.",
            "List entries in `spec.inventory`, or remove it.",
            on: [INVENTORY, CAPACITY];
        ClusterDeploymentsCurrent: Kind::Rests,
            "Every unclaimed cluster is made from the present pool and entries.",
            on: [CURRENT];
        SomeClusterDeploymentsStale: Kind::Waits,
            "Unclaimed clusters are made from an older pool or entry. The controller replaces them one by one.",
            "Wait, unless the message names a cause that holds it up.",
            on: [CURRENT],
            more: "No cluster is removed before another one can be made. While a dependency is missing, or neither its own entry nor another one can be used, a cluster stays. The message names the unclaimed clusters that must be gone or installed first. The controller skips clusters with `hive.openshift.io/protected-delete` and clusters that are woken for waiting claims. If one of the latter never runs, set `hibernationConfig.resumeTimeout` of the pool, or delete the cluster. The message also names clusters that Hive cannot take down. Hive then reports `DeprovisionFailed` or `DeprovisionLaunchError`, or they still exist three hours after their deletion. One of these holds up nothing. Of several, the controller assumes that the next one would keep its entry and its place, too.";
        SomeClusterDeploymentsUnknown: Kind::Waits,
            "The source of unclaimed clusters is not recorded. The controller replaces them one by one.",
            "Wait, unless the message names a cause that holds it up, as with SomeClusterDeploymentsStale.",
            on: [CURRENT];
        DeletionPossible: Kind::Rests, "No cluster is left: the deletion can be completed.", on: [DELETION];
        ClusterDeploymentsPendingCleanup: Kind::Waits,
            "Clusters of the deleted pool still exist. The message names those that are claimed, protected or that Hive cannot take down.",
            "Do what the message says: delete claims, remove protections, help Hive.",
            on: [DELETION];
        LeasesPendingRelease: Kind::Waits,
            "The clusters are gone, and their entries are about to be free.",
            "Wait, unless the event Refused shows why the entries cannot be freed.",
            on: [DELETION];
        NamespacesPendingDeletion: Kind::Waits,
            "The clusters are gone, and their namespaces are being deleted.",
            "Wait, unless the event Refused shows why the namespaces cannot be deleted.",
            on: [DELETION];
        Refused: Kind::Waits,
            "The API server or a webhook refuses a write, or does not answer twice in a row. Or the patches do not fit the cluster's own name, or another owner has a cluster of that name.",
            "Allow or correct what the message names: a quota, a permission, a webhook, the patches.",
            on: [EVENT, CAPACITY, FAILURE],
            more: "If the message says that the cluster gets another name, nothing is to be done. The controller retries at least every five minutes, and writes one event an hour.";
        BadPatch: Kind::Waits,
            "The patches of the entry cannot be applied in this pool.",
            "Correct the customization or the template as the message says.",
            on: [FAILURE], see: "runbooks/FerriteClusterpoolInventoryEntriesBroken.md";
        PatchAdjusted: Kind::Rests,
            "The controller changed the meaning of a patch: a path got its leading slash, replace added a missing key, or a value became text.",
            "Check that the patch means what the message says.",
            on: [ENTRY_EVENT];
    }
}
