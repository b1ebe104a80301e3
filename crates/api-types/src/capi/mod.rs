//! Kinds of Cluster API. Every type reads both contract versions; the questions answered by
//! methods are those whose answer stands in different fields.

mod cluster;
mod machine;
mod owners;

pub use cluster::{Cluster, ClusterInitialization, ClusterKind, ClusterSpec, ClusterStatus};
pub use machine::{
    Bootstrap, Conditions, Machine, MachineAddress, MachineKind, MachineSpec, MachineStatus,
    OldStatus,
};
pub use owners::{
    ControlPlaneMachineTemplate, ControlPlaneSpec, InnerMachineTemplate, KubeadmControlPlane,
    KubeadmControlPlaneKind, MachineDeployment, MachineDeploymentKind, MachineSet, MachineSetKind,
    MachineTemplate, OwnerStatus, ReplicasSpec,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::names;

/// Whether an object is paused by its own annotation; a paused Cluster pauses all its objects.
pub fn is_paused(metadata: &ObjectMeta) -> bool {
    metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(names::capi::PAUSED))
}

/// Whether the watch filter of an installation lets an object pass. Without a filter all do.
pub fn is_watched(metadata: &ObjectMeta, filter: Option<&str>) -> bool {
    let label = metadata.labels.as_ref().and_then(|all| all.get(names::capi::WATCH_FILTER));
    filter.is_none_or(|wanted| label.is_some_and(|value| value == wanted))
}
