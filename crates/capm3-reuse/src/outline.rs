//! Objects as far as decisions about others depend on them: a change of anything else matters to nobody.

use api_types::ContractVersion;
use api_types::capi::{
    self, Cluster, KubeadmControlPlane, Machine, MachineDeployment, OwnerStatus,
};
use api_types::names;
use api_types::names::capi::{CONTROL_PLANE_GROUP, GROUP};
use api_types::reference::ObjectRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::reservation::Owner;
use crate::served::Served;

/// What the API server fills in where a deployment or control plane names no number.
pub(crate) const REPLICAS: i32 = 1;

/// All of an owner that a decision depends on, from whichever kind.
#[derive(Debug, PartialEq)]
pub struct OfOwner {
    pub owner: Owner,
    pub metadata: ObjectMeta,
    pub replicas: i32,
    pub template: Option<ObjectRef>,
    pub cluster: Option<String>,
    /// Whether nothing of it may be touched, or it makes no machines of a new template for now.
    pub paused: bool,
    /// Whether it is known to be still replacing machines.
    pub rolls_out: bool,
    /// Whether its kind is not watched.
    pub is_unwatched: bool,
    /// What to change before it can be read.
    pub unreadable: Option<String>,
}

impl OfOwner {
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
            unreadable: None,
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
            unreadable: None,
        }
    }

    /// An owner of which nothing is known: it is taken for one that may need its hosts.
    pub fn unknown(owner: &Owner, why: String) -> Self {
        Self {
            owner: owner.clone(),
            metadata: ObjectMeta::default(),
            replicas: REPLICAS,
            template: None,
            cluster: None,
            paused: true,
            rolls_out: false,
            is_unwatched: true,
            unreadable: Some(why),
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
pub(crate) fn rolls_out(status: &OwnerStatus, generation: Option<i64>, wanted: i32) -> bool {
    let behind = status.observed_generation.is_some() && status.observed_generation < generation;
    let current = status.up_to_date_replicas.or(status.updated_replicas);
    behind || current.is_some_and(|current| current < wanted)
}

/// Whether a deployment replaces no machine by itself.
pub(crate) fn is_halted(deployment: &MachineDeployment) -> bool {
    let spec = &deployment.spec.other;
    let strategies = [
        spec.get("rollout").map(|it| &it["strategy"]["type"]),
        spec.get("strategy").map(|it| &it["type"]),
    ];
    strategies.into_iter().flatten().any(|it| it == "OnDelete")
}

/// Whether a deployment is paused, by annotation or by its own field: then a rollout stands still half way, and goes on with
/// the hosts that it freed.
pub(crate) fn is_paused(deployment: &MachineDeployment) -> bool {
    capi::is_paused(&deployment.metadata)
        || deployment.spec.other.get("paused") == Some(&Value::Bool(true))
}

/// The cluster that a control plane belongs to: by its label, or by whom it is owned.
pub(crate) fn cluster_of(metadata: &ObjectMeta) -> Option<String> {
    let label = metadata.labels.as_ref().and_then(|all| all.get(names::capi::CLUSTER_NAME));
    let is_cluster = |it: &&OwnerReference| {
        it.kind == "Cluster" && it.api_version.split('/').next() == Some(GROUP)
    };
    let owner = metadata.owner_references.iter().flatten().find(is_cluster);
    label.or(owner.map(|it| &it.name)).cloned()
}

/// An owner of this kind.
pub(crate) fn named(group: &str, version: ContractVersion, kind: &str, meta: &ObjectMeta) -> Owner {
    Owner {
        api_version: format!("{group}/{}", version.as_str()),
        kind: kind.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

/// All of a cluster that a decision depends on.
#[derive(Debug, PartialEq)]
pub struct OfCluster {
    uid: Option<String>,
    is_paused: bool,
    is_going: bool,
    is_provisioned: bool,
    infrastructure: Option<ObjectRef>,
    control_plane: Option<ObjectRef>,
}

impl OfCluster {
    /// What there is of it.
    pub fn outline(cluster: &Cluster) -> Self {
        Self {
            uid: cluster.metadata.uid.clone(),
            is_paused: cluster.is_paused(),
            is_going: cluster.metadata.deletion_timestamp.is_some(),
            is_provisioned: cluster.infrastructure_provisioned(),
            infrastructure: cluster.spec.infrastructure_ref.clone(),
            control_plane: cluster.spec.control_plane_ref.clone(),
        }
    }
}

/// All of a Machine that a decision about a host depends on which is kept for the owner of the Machine.
#[derive(Debug, PartialEq)]
pub struct OfMachine {
    uid: Option<String>,
    is_going: bool,
    deployment: Option<String>,
    control_plane: Option<String>,
    owners: Vec<String>,
    infrastructure: ObjectRef,
}

impl OfMachine {
    /// What there is of it.
    pub fn outline(machine: &Machine) -> Self {
        let label = |key: &str| machine.label(key).map(str::to_owned);
        let owners = machine.metadata.owner_references.iter().flatten();
        Self {
            uid: machine.metadata.uid.clone(),
            is_going: machine.metadata.deletion_timestamp.is_some(),
            deployment: label(names::capi::DEPLOYMENT_NAME),
            control_plane: label(names::capi::CONTROL_PLANE_NAME),
            owners: owners.map(|it| it.uid.clone()).collect(),
            infrastructure: machine.spec.infrastructure_ref.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_a_cluster_counts_matters_to_no_machine() {
        let of = |more: Value| {
            let mut it = json!({"metadata": {"name": "c"}});
            for (field, value) in more.as_object().into_iter().flatten() {
                it[field] = value.clone();
            }
            OfCluster::outline(&serde_json::from_value(it).unwrap())
        };
        let before = of(json!({"status": {"workers": {"replicas": 1}}}));
        assert_eq!(
            before,
            of(json!({"status": {"workers": {"replicas": 2}, "phase": "Provisioned"}}))
        );
        for more in [
            json!({"spec": {"paused": true}}),
            json!({"spec": {"controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "k"}}}),
            json!({"spec": {"infrastructureRef": {"kind": "Metal3Cluster", "name": "m"}}}),
            json!({"status": {"initialization": {"infrastructureProvisioned": true}}}),
            json!({"metadata": {"name": "c", "uid": "another"}}),
            json!({"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ] {
            assert_ne!(before, of(more.clone()), "{more}");
        }
    }

    #[test]
    fn how_far_a_machine_is_matters_to_no_kept_host() {
        let of = |more: Value| OfMachine::outline(&serde_json::from_value(more).unwrap());
        let before = of(json!({"metadata": {"name": "m", "resourceVersion": "1"}}));
        for more in [
            json!({"metadata": {"name": "m", "resourceVersion": "2"}, "status": {"phase": "Running"}}),
            json!({"metadata": {"name": "m", "annotations": {"any": "thing"}}}),
            json!({"metadata": {"name": "m"}, "spec": {"providerID": "metal3://ns/h/m"}}),
            json!({"metadata": {"name": "m"}, "spec": {"bootstrap": {"dataSecretName": "boot"}}}),
        ] {
            assert_eq!(before, of(more.clone()), "{more}");
        }
        let owner =
            json!({"apiVersion": "g/v", "kind": "MachineSet", "name": "s", "uid": "set-uid"});
        for more in [
            json!({"metadata": {"uid": "another"}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            json!({"metadata": {"labels": {names::capi::DEPLOYMENT_NAME: "md"}}}),
            json!({"metadata": {"labels": {names::capi::CONTROL_PLANE_NAME: "cp"}}}),
            json!({"metadata": {"ownerReferences": [owner]}}),
            json!({"spec": {"infrastructureRef": {"kind": "Metal3Machine", "name": "m"}}}),
        ] {
            assert_ne!(before, of(more.clone()), "{more}");
        }
    }
}
