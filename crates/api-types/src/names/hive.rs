//! Names of Hive.

/// Finalizer on a `ClusterPool`: its clusters are not gone yet. Written and removed by
/// `clusterpool-inventory`.
pub const POOL_FINALIZER: &str = "hive.openshift.io/clusters";
/// Finalizer on a `ClusterDeployment`: its lease on a customization is not given back yet. Written
/// at creation and removed as the last one by `clusterpool-inventory`.
pub const INVENTORY_FINALIZER: &str = "hive.openshift.io/clusterpool-inventory";
/// Finalizer on a `ClusterDeploymentCustomization`: it is or may be leased. Written and removed by
/// `clusterpool-inventory`.
pub const LEASE_FINALIZER: &str = "hive.openshift.io/inventory-lease";

/// Annotation on a `ClusterDeployment`: hash of the pool's spec that it was made from. Written and
/// read by `clusterpool-inventory`.
pub const POOL_SPEC_HASH: &str = "hive.openshift.io/cluster-pool-spec-hash";
/// Annotation on a `ClusterDeployment`: its claim is gone, delete it. Written by Hive's claim
/// controller, read by `clusterpool-inventory`.
pub const REMOVE_FROM_POOL: &str = "hive.openshift.io/remove-cluster-from-pool";
/// The former name of [`REMOVE_FROM_POOL`], still read.
pub const REMOVE_CLAIMED_FROM_POOL: &str = "hive.openshift.io/remove-claimed-cluster-from-pool";
/// Annotation on a `ClusterDeployment`: Hive leaves it alone. Written and removed by
/// `clusterpool-inventory` around the check of its lease.
pub const RECONCILE_PAUSE: &str = "hive.openshift.io/reconcile-pause";
/// Annotation on a `ClusterDeployment`: it must not be deleted. Set by people, respected by
/// `clusterpool-inventory`.
pub const PROTECTED_DELETE: &str = "hive.openshift.io/protected-delete";
/// Annotation on a `ClusterDeployment`: Hive gives it up when it fails to install it once. Set by people, looked at by
/// `clusterpool-inventory`.
pub const TRY_INSTALL_ONCE: &str = "hive.openshift.io/try-install-once";

/// Label on a `ClusterDeployment` and its namespace: name of its pool. Written by
/// `clusterpool-inventory`, read by Hive's namespace clean-up. Not unique over namespaces.
pub const POOL_NAME: &str = "hive.openshift.io/cluster-pool-name";
/// Label on a `ClusterDeployment`: name of its pool. Written by `clusterpool-inventory` as Hive
/// does, read by users.
pub const CLUSTERPOOL_NAME: &str = "hive.openshift.io/clusterpool-name";
/// Label on a `ClusterDeployment`: namespace of its pool. Written by `clusterpool-inventory` as
/// Hive does, read by users.
pub const CLUSTERPOOL_NAMESPACE: &str = "hive.openshift.io/clusterpool-namespace";

/// Condition of a customization: it is free; then its reason is the same word. Written and read by
/// `clusterpool-inventory`.
pub const CONDITION_AVAILABLE: &str = "Available";
/// Reason of [`CONDITION_AVAILABLE`] while a cluster uses the customization.
pub const REASON_IN_USE: &str = "ClusterDeploymentCustomizationInUse";
/// Reason of [`CONDITION_AVAILABLE`] while the cluster is missing and the lease is about to be released. Who is still
/// creating that cluster sees it and stops.
pub const REASON_RELEASING: &str = "LeaseReleasing";
/// Condition of a customization: how the last cluster of it went. Written by Hive's own controller of pools, removed by
/// `clusterpool-inventory`, which says that in the pool's status.
pub const CONDITION_APPLY_SUCCEEDED: &str = "ApplySucceeded";
/// Condition of a pool: whether its entries can be used and suffice. Written by
/// `clusterpool-inventory`.
pub const CONDITION_INVENTORY_VALID: &str = "InventoryValid";
/// Condition of a pool: something that it refers to is missing. Written by
/// `clusterpool-inventory`.
pub const CONDITION_MISSING_DEPENDENCIES: &str = "MissingDependencies";
/// Condition of a pool: another cluster fits under its maximum. Written by
/// `clusterpool-inventory`.
pub const CONDITION_CAPACITY_AVAILABLE: &str = "CapacityAvailable";
/// Condition of a pool: every unclaimed cluster is made from its present spec. Written by
/// `clusterpool-inventory`.
pub const CONDITION_ALL_CLUSTERS_CURRENT: &str = "AllClustersCurrent";
/// Condition of a pool that is being deleted: whether clusters are still in the way. Written by
/// `clusterpool-inventory`.
pub const CONDITION_DELETION_POSSIBLE: &str = "DeletionPossible";
/// Condition of a `ClusterDeployment`: Hive has given up installing it. Written by Hive, read by
/// `clusterpool-inventory`.
pub const CONDITION_PROVISION_STOPPED: &str = "ProvisionStopped";
/// Condition of a `ClusterDeployment`: how far installing has come. Written by Hive, read by
/// `clusterpool-inventory`.
pub const CONDITION_PROVISIONED: &str = "Provisioned";
/// Condition of a `ClusterDeployment`: whether it sleeps. Written by Hive, read by
/// `clusterpool-inventory`.
pub const CONDITION_HIBERNATING: &str = "Hibernating";
/// Condition of a `ClusterClaim`: it has no cluster yet. Written by `clusterpool-inventory` and
/// Hive.
pub const CONDITION_PENDING: &str = "Pending";

/// Reason of a condition whose status is `Unknown`: Hive has not looked at it yet. Some stay so for good, as
/// [`CONDITION_DELETION_POSSIBLE`] until the pool is deleted. Written by Hive, read by `kubectl-ferrite`.
pub const REASON_INITIALIZED: &str = "Initialized";

/// Field manager of Hive's own controller of pools, which must not run beside ours.
pub const POOL_CONTROLLER: &str = "hive1-clusterpool";
/// `ClusterRole` whose subjects in a pool's namespace administrate the pool's clusters. Read by
/// `clusterpool-inventory`, which binds them in the clusters' namespaces.
pub const POOL_ADMIN_ROLE: &str = "hive-cluster-pool-admin";
/// The `RoleBinding` that it makes there.
pub const POOL_ADMIN_BINDING: &str = "hive-cluster-pool-admin-binding";
/// Reason of a cluster's [`CONDITION_HIBERNATING`] on its way back.
pub const REASON_RESUMING: &str = "ResumingOrRunning";
