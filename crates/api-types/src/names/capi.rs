//! Names of Cluster API.

/// API group of clusters, machines, their sets and deployments.
pub const GROUP: &str = "cluster.x-k8s.io";
/// API group of control planes, whoever provides them.
pub const CONTROL_PLANE_GROUP: &str = "controlplane.cluster.x-k8s.io";

/// Label on every object of a cluster: the cluster's name. Written by Cluster API; on hosts by
/// `capm3-reuse`.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Annotation on any object: controllers leave it alone. Set by people and by moves between
/// clusters, respected by `capm3-reuse` and `remediation`.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// Label on any object: which of several installations is to reconcile it. Set by administrators,
/// compared with the watch filter of each controller.
pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
/// Label on a machine of a control plane; presence counts. Written by control planes, read by
/// `capm3-reuse`.
pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// Label on a machine: name of its control plane. Written by control planes.
pub const CONTROL_PLANE_NAME: &str = "cluster.x-k8s.io/control-plane-name";
/// Label on a machine: name of its machine deployment. Written by machine deployments, read by
/// `capm3-reuse`.
pub const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
/// Annotation on a cloned object: name of the template. Written by Cluster API, read by
/// `capm3-reuse`.
pub const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
/// Annotation on a cloned object: kind and group of the template, joined by a dot. Written by
/// Cluster API, read by `capm3-reuse`.
pub const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";
/// Annotation on a machine: never remediate it. Set by people, respected by `remediation`.
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
/// Annotation on a machine: remediate it now. Set by people, read by the health check.
pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
/// Beginning of annotations on a machine: while one is there, its host is not given back. Set by whoever has something to do
/// before that, as a control plane that takes its member out of etcd; respected by `remediation`.
pub const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
/// Annotation on owners of machines: the fewest replicas that the cluster autoscaler sets. Set by people, respected by
/// `capm3-reuse`.
pub const AUTOSCALER_MIN_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
/// Annotation on owners of machines: the most replicas that the cluster autoscaler sets. Set by people, respected by
/// `capm3-reuse`.
pub const AUTOSCALER_MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// Annotation on owners of machines: another program sets their replicas, unless it says `false`. Set by people, respected by
/// `capm3-reuse`.
pub const REPLICAS_MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";
/// Label on what Cluster API makes from the topology of a Cluster, which may set its replicas. Written by Cluster API,
/// respected by `capm3-reuse`.
pub const TOPOLOGY_OWNED: &str = "topology.cluster.x-k8s.io/owned";
/// Annotation on a host: do not move it to another cluster just now. Written by others, read by
/// clusterctl; what is left of it goes with the release by `capm3-reuse`.
pub const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";

/// Condition: the object as a whole. Written by each object's controller.
pub const CONDITION_READY: &str = "Ready";
/// Condition of an infrastructure object: reconciling is paused. Written by `capm3-reuse`.
pub const CONDITION_PAUSED: &str = "Paused";
/// Condition of a machine: its owner is to replace it while this is `False`. Set to `False` by
/// `remediation` when its tries are exhausted, removed by the owner.
pub const CONDITION_OWNER_REMEDIATED: &str = "OwnerRemediated";
/// Condition of a machine: an external remediation is under way while this is `False`. Written by
/// the health check, followed up by `remediation`.
pub const CONDITION_EXTERNALLY_REMEDIATED: &str = "ExternallyRemediated";
/// Condition of a machine: the health check's verdict. Written by the health check, read by
/// `remediation`.
pub const CONDITION_HEALTH_CHECK_SUCCEEDED: &str = "HealthCheckSucceeded";
/// Reason of [`CONDITION_OWNER_REMEDIATED`] and [`CONDITION_EXTERNALLY_REMEDIATED`] while the
/// addressed party has not acted yet.
pub const REASON_WAITING_FOR_REMEDIATION: &str = "WaitingForRemediation";
