//! Owners of machines and clusters, as far as decisions about others depend on them.

use api_types::ContractVersion;
use api_types::capi::{self, Cluster, OwnerStatus};
use api_types::foreign::{Foreign, ForeignKind, Unknown};
use api_types::names;
use api_types::names::capi::GROUP;
use api_types::reference::ObjectRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::reservation::{Owner, fingerprint};
use crate::served::Served;

/// What the API server fills in where a deployment or control plane names no number.
const REPLICAS: i32 = 1;

/// All of an owner that a decision depends on, from whichever kind.
#[derive(Debug, PartialEq)]
pub(crate) struct OfOwner {
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
    /// Of one that a watch has shown.
    pub(crate) fn seen<K>(served: Served, it: &Foreign<K>) -> Self
    where
        K: ForeignKind<Version = ContractVersion>,
    {
        let owner = named(K::GROUP, served.version_of(K::GROUP), K::KIND, &it.metadata);
        Self::read(owner, &it.metadata, &json!({ "spec": it.spec, "status": it.status }))
    }

    /// Of any kind: one that its type could not decode is there.
    pub(crate) fn read(owner: Owner, metadata: &ObjectMeta, data: &Value) -> Self {
        let read = |field: &str| data[field].clone();
        let spec: Unknown = serde_json::from_value(read("spec")).unwrap_or_default();
        let status: OwnerStatus = serde_json::from_value(read("status")).unwrap_or_default();
        let replicas = spec.get("replicas").and_then(Value::as_i64);
        let replicas = replicas.and_then(|it| i32::try_from(it).ok()).unwrap_or(REPLICAS);
        let cluster = spec.get("clusterName").and_then(Value::as_str).map(str::to_owned);
        Self {
            owner,
            metadata: metadata.clone(),
            replicas,
            template: template_in(data),
            cluster: cluster.or_else(|| cluster_of(metadata)),
            paused: is_paused(metadata, &spec),
            rolls_out: rolls_out(&status, metadata.generation, replicas) && !is_halted(&spec),
            is_unwatched: false,
            unreadable: None,
        }
    }

    /// An owner of which nothing is known: it is taken for one that may need its hosts.
    pub(crate) fn unknown(owner: &Owner, why: String) -> Self {
        let empty = Self::read(owner.clone(), &ObjectMeta::default(), &Value::Null);
        Self { paused: true, is_unwatched: true, unreadable: Some(why), ..empty }
    }
}

/// Where owners name the template that their next machine is made from: a deployment, control planes in either contract,
/// and those of providers who have their own words for it.
pub(crate) const PLACES: [&str; 5] = [
    "/spec/template/spec/infrastructureRef",
    "/spec/machineTemplate/spec/infrastructureRef",
    "/spec/machineTemplate/infrastructureRef",
    "/spec/machineTemplate/infrastructureTemplate",
    "/spec/infrastructureTemplate",
];

/// The template that an owner's next machine is made from.
pub(crate) fn template_in(owner: &Value) -> Option<ObjectRef> {
    let found = PLACES.iter().filter_map(|place| owner.pointer(place)).find(|it| !it.is_null())?;
    serde_json::from_value(found.clone()).ok()
}

/// Whether machines of an older template are still to be replaced, as far as the owner's controller says. What it does not
/// say is not known.
pub(crate) fn rolls_out(status: &OwnerStatus, generation: Option<i64>, wanted: i32) -> bool {
    let behind = status.observed_generation.is_some() && status.observed_generation < generation;
    let current = status.up_to_date_replicas.or(status.updated_replicas);
    behind || current.is_some_and(|current| current < wanted)
}

/// Whether a deployment replaces no machine by itself.
pub(crate) fn is_halted(spec: &Unknown) -> bool {
    let strategies = [
        spec.get("rollout").map(|it| &it["strategy"]["type"]),
        spec.get("strategy").map(|it| &it["type"]),
    ];
    strategies.into_iter().flatten().any(|it| it == "OnDelete")
}

/// Whether a deployment is paused, by annotation or by its own field: then a rollout stands still half way, and goes on with
/// the hosts that it freed.
pub(crate) fn is_paused(metadata: &ObjectMeta, spec: &Unknown) -> bool {
    capi::is_paused(metadata) || spec.get("paused") == Some(&Value::Bool(true))
}

/// The cluster that a control plane belongs to: by its label, or by whom it is owned.
pub(crate) fn cluster_of(metadata: &ObjectMeta) -> Option<String> {
    let label = metadata.labels.as_ref().and_then(|all| all.get(names::capi::CLUSTER_NAME));
    label.map(String::as_str).or_else(|| owner_of_kind(metadata, "Cluster")).map(str::to_owned)
}

/// The object of this kind of Cluster API that owns another.
pub(crate) fn owner_of_kind<'a>(metadata: &'a ObjectMeta, kind: &str) -> Option<&'a str> {
    let is_it =
        |it: &&OwnerReference| it.kind == kind && it.api_version.split('/').next() == Some(GROUP);
    metadata.owner_references.iter().flatten().find(is_it).map(|it| it.name.as_str())
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

/// All of a cluster that a decision depends on, in eight bytes.
pub(crate) fn cluster_outline(cluster: &Cluster) -> u64 {
    let (metadata, spec) = (&cluster.metadata, &cluster.spec);
    let is_going = metadata.deletion_timestamp.is_some();
    let state = (is_going, cluster.is_paused(), cluster.infrastructure_provisioned());
    let matters = (&metadata.uid, state, &spec.infrastructure_ref, &spec.control_plane_ref);
    fingerprint(&format!("{matters:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_counts_matters_to_no_machine() {
        let of = |more: Value| {
            let mut it = json!({"metadata": {"name": "c"}});
            for (field, value) in more.as_object().into_iter().flatten() {
                it[field] = value.clone();
            }
            cluster_outline(&serde_json::from_value(it).unwrap())
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
}
