//! Names of Metal3's Cluster API provider.

/// API group of its kinds, as of every infrastructure provider's.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Annotation on a host: do not use it for a machine. Set by people or by `remediation`, respected
/// by `capm3-reuse`; each removes only its own. Presence counts.
pub const UNHEALTHY: &str = "capm3.metal3.io/unhealthy";
/// The former name of [`UNHEALTHY`], which the mission names. Written and read like it.
pub const UNHEALTHY_DEPRECATED: &str = "capi.metal3.io/unhealthy";
/// Value of both when `remediation` set them, as CAPM3 does.
pub const UNHEALTHY_NODE: &str = "capm3/UnhealthyNode";

/// Label on a freed host: for which owner it is kept, `cp-` or `md-` and a name. Written by
/// `capm3-reuse` beside the consumer reference and by CAPM3, read by both.
pub const NODE_REUSE: &str = "infrastructure.cluster.x-k8s.io/node-reuse";

/// Label on a host: its failure domain. Set by administrators, read by `capm3-reuse`.
pub const FAILURE_DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";

/// Value of the operator's pause annotation when CAPM3, or whoever prepares a move, set it for a
/// paused cluster. `capm3-reuse` never sets it and lifts only a pause with this value, from a host
/// whose machine is not paused.
pub const PAUSED_BY_CAPM3: &str = "metal3.io/capm3";

/// Finalizer on a `Metal3Machine`. Written and removed by `capm3-reuse` (or CAPM3): its host is not
/// yet given back.
pub const MACHINE_FINALIZER: &str = "metal3machine.infrastructure.cluster.x-k8s.io";

/// Finalizer of CAPM3's own remediation on a `Metal3Remediation`, without which it goes on with none.
/// `remediation` never writes it, and puts its own in its place on a request that it takes over.
pub const REMEDIATION_FINALIZER: &str = "metal3remediation.infrastructure.cluster.x-k8s.io";

/// Annotation on a `Metal3Remediation`: annotations of a deleted node, as JSON. Written once and
/// read by `remediation`.
pub const NODE_ANNOTATIONS_BACKUP: &str = "remediation.metal3.io/node-annotations-backup";
/// Annotation on a `Metal3Remediation`: labels of a deleted node, as JSON. Written once and read by
/// `remediation`.
pub const NODE_LABELS_BACKUP: &str = "remediation.metal3.io/node-labels-backup";

/// Taint on a node whose machine is off: its pods and volumes may be moved. Written and removed by
/// `remediation`, acted on by Kubernetes.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Value of [`OUT_OF_SERVICE`].
pub const NODE_SHUTDOWN: &str = "nodeshutdown";

/// Condition of a `Metal3Machine`: it has a host. Written by `capm3-reuse`.
pub const CONDITION_ASSOCIATED: &str = "AssociateBareMetalHost";
/// Condition of a `Metal3Machine`: its host has what the machine is given of itself. Written by CAPM3 alone.
pub const CONDITION_METADATA_ASSOCIATED: &str = "AssociateMetal3MachineMetaData";
/// Condition of a `Metal3Machine`: its node has its provider ID. Written by CAPM3 alone.
pub const CONDITION_NODE_READY: &str = "KubernetesNodeReady";
/// Condition of a `Metal3Machine`: its rendered data is there. Written by `capm3-reuse`.
pub const CONDITION_DATA_READY: &str = "Metal3DataReady";
