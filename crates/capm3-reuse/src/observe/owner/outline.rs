//! An owner as far as decisions depend on it.

use api_types::capi::{self, KubeadmControlPlane, MachineDeployment, OwnerStatus};
use api_types::names;
use api_types::names::capi::{CONTROL_PLANE_GROUP, GROUP};
use api_types::reference::ObjectRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use super::named;
use crate::reservation::Owner;
use crate::served::Served;

/// What the API server fills in where a deployment or control plane names no number.
pub(super) const REPLICAS: i32 = 1;

/// All of an owner that a decision depends on, from whichever kind.
#[derive(Debug, PartialEq)]
pub struct Outline {
    pub(super) owner: Owner,
    pub(super) metadata: ObjectMeta,
    pub(super) replicas: i32,
    pub(super) template: Option<ObjectRef>,
    pub(super) cluster: Option<String>,
    /// Whether nothing of it may be touched, or it makes no machines of a new template for now.
    pub(super) paused: bool,
    /// Whether it is known to be still replacing machines.
    pub(super) rolls_out: bool,
    /// Whether its kind is not watched.
    pub(super) is_unwatched: bool,
}

impl Outline {
    /// Of a deployment.
    pub fn of_deployment(served: Served, it: &MachineDeployment) -> Self {
        let (replicas, status) = (it.spec.replicas.unwrap_or(REPLICAS), it.status.as_ref());
        let generation = it.metadata.generation;
        Self {
            owner: named(GROUP, served.core, "MachineDeployment", &it.metadata),
            metadata: decided_by(&it.metadata),
            replicas,
            template: Some(it.spec.infrastructure_ref().clone()),
            cluster: Some(it.spec.cluster_name.clone()),
            paused: is_paused(it),
            rolls_out: !is_halted(it)
                && status.is_some_and(|it| rolls_out(it, generation, replicas)),
            is_unwatched: false,
        }
    }

    /// Of a control plane of the kind that is watched.
    pub fn of_plane(served: Served, it: &KubeadmControlPlane) -> Self {
        let (replicas, status) = (it.spec.replicas.unwrap_or(REPLICAS), it.status.as_ref());
        let (version, generation) =
            (served.control_plane.unwrap_or_default(), it.metadata.generation);
        Self {
            owner: named(CONTROL_PLANE_GROUP, version, "KubeadmControlPlane", &it.metadata),
            metadata: decided_by(&it.metadata),
            replicas,
            template: it.spec.infrastructure_ref().cloned(),
            cluster: cluster_of(&it.metadata),
            paused: capi::is_paused(&it.metadata),
            rolls_out: status.is_some_and(|it| rolls_out(it, generation, replicas)),
            is_unwatched: false,
        }
    }

    /// An owner of which nothing is known: it is taken for one that may need its hosts.
    pub(super) fn unknown(owner: &Owner) -> Self {
        Self {
            owner: owner.clone(),
            metadata: ObjectMeta::default(),
            replicas: REPLICAS,
            template: None,
            cluster: None,
            paused: true,
            rolls_out: false,
            is_unwatched: true,
        }
    }
}

/// Metadata without what changes with every write.
fn decided_by(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        resource_version: None,
        generation: None,
        managed_fields: None,
        ..metadata.clone()
    }
}

/// Whether machines of an older template are still to be replaced, as far as the owner's controller says. What it does not
/// say is not known.
pub(super) fn rolls_out(status: &OwnerStatus, generation: Option<i64>, wanted: i32) -> bool {
    let behind = status.observed_generation.is_some() && status.observed_generation < generation;
    let current = status.up_to_date_replicas.or(status.updated_replicas);
    behind || current.is_some_and(|current| current < wanted)
}

/// Whether a deployment replaces no machine by itself.
pub(super) fn is_halted(deployment: &MachineDeployment) -> bool {
    let spec = &deployment.spec.other;
    let strategies = [
        spec.get("rollout").map(|it| &it["strategy"]["type"]),
        spec.get("strategy").map(|it| &it["type"]),
    ];
    strategies.into_iter().flatten().any(|it| it == "OnDelete")
}

/// Whether a deployment is paused, by annotation or by its own field: then a rollout stands still half way, and goes on with
/// the hosts that it freed.
pub(super) fn is_paused(deployment: &MachineDeployment) -> bool {
    capi::is_paused(&deployment.metadata)
        || deployment.spec.other.get("paused") == Some(&Value::Bool(true))
}

/// The cluster that a control plane belongs to: by its label, or by whom it is owned.
pub(super) fn cluster_of(metadata: &ObjectMeta) -> Option<String> {
    let label = metadata.labels.as_ref().and_then(|all| all.get(names::capi::CLUSTER_NAME));
    let is_cluster = |it: &&OwnerReference| {
        it.kind == "Cluster" && it.api_version.split('/').next() == Some(GROUP)
    };
    let owner = metadata.owner_references.iter().flatten().find(is_cluster);
    label.or(owner.map(|it| &it.name)).cloned()
}
