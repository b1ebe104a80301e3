//! Objects as far as decisions about others depend on them: a change of anything else matters to nobody.

use std::collections::HashMap;
use std::fmt::Debug;

use api_types::ContractVersion;
use api_types::capi::{self, Cluster, Machine, OwnerStatus};
use api_types::capm3::Metal3Machine;
use api_types::foreign::{Foreign, ForeignKind, Unknown};
use api_types::metal3::BareMetalHost;
use api_types::names;
use api_types::names::capi::GROUP;
use api_types::reference::ObjectRef;
use controller_kit::engine::{ObjectKey, Shared};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::host;
use crate::machine::is_housed;
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
            metadata: decided_by(metadata),
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

/// What decisions about others were made by, in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline(u64);

impl Outline {
    /// Of what matters.
    pub(crate) fn of(matters: impl Debug) -> Self {
        Self(fingerprint(&format!("{matters:?}")))
    }

    /// All of a cluster that a decision depends on.
    pub fn of_cluster(cluster: &Cluster) -> Self {
        let (metadata, spec) = (&cluster.metadata, &cluster.spec);
        let is_going = metadata.deletion_timestamp.is_some();
        let state = (is_going, cluster.is_paused(), cluster.infrastructure_provisioned());
        Self::of((&metadata.uid, state, &spec.infrastructure_ref, &spec.control_plane_ref))
    }

    /// All of a Machine that a decision about a host depends on which is kept for the owner of the Machine.
    pub fn of_machine(machine: &Machine) -> Self {
        let metadata = &machine.metadata;
        let owners = metadata.owner_references.iter().flatten();
        let owners: Vec<&str> = owners.map(|it| it.uid.as_str()).collect();
        let is_going = metadata.deletion_timestamp.is_some();
        let labels = [names::capi::DEPLOYMENT_NAME, names::capi::CONTROL_PLANE_NAME];
        let labels = labels.map(|key| machine.label(key));
        Self::of((&metadata.uid, is_going, labels, owners, &machine.spec.infrastructure_ref))
    }

    /// All of a `Metal3Machine` that decides whether its owner needs a kept host: whether it has one, and which it would take.
    pub fn of_metal(machine: &Metal3Machine) -> Self {
        Self::of((machine.host_name(), is_housed(machine), &machine.spec.host_selector))
    }

    /// All of a host that decides how many machines there may be.
    pub fn of_host(host: &BareMetalHost) -> Self {
        let (metadata, spec) = (&host.metadata, &host.spec);
        let is_going = metadata.deletion_timestamp.is_some();
        let comes = (host::is_ready(host), host::is_on_its_way(host), host::may_be_ready(host));
        Self::of((&metadata.labels, is_going, &spec.consumer_ref, comes))
    }
}

/// The outlines of all objects. A status says how far an object is, and changes far more often than what matters: ten thousand
/// machines of a cluster are not to be looked at for each.
#[derive(Default)]
pub struct Outlines(Shared<HashMap<(&'static str, ObjectKey), Outline>>);

impl Outlines {
    /// Whether anything that matters changed of an object of this kind. What is gone is forgotten.
    pub fn is_news(&self, kind: &'static str, key: &ObjectKey, now: Option<Outline>) -> bool {
        let key = (kind, key.clone());
        self.0.with(|all| {
            let Some(now) = now else {
                all.remove(&key);
                return true;
            };
            all.insert(key, now) != Some(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_news_once_and_again_when_it_was_gone() {
        let key = ObjectKey { namespace: "ns".to_owned(), name: "m".to_owned() };
        let all = Outlines::default();
        let told = [Some(1), Some(1), Some(2), None, Some(2)]
            .map(|now| all.is_news("Any", &key, now.map(Outline::of)));
        assert_eq!(told, [true, false, true, true, true]);
        let of_another_kind = all.is_news("Other", &key, Some(Outline::of(2)));
        assert!(of_another_kind);
    }

    #[test]
    fn what_a_cluster_counts_matters_to_no_machine() {
        let of = |more: Value| {
            let mut it = json!({"metadata": {"name": "c"}});
            for (field, value) in more.as_object().into_iter().flatten() {
                it[field] = value.clone();
            }
            Outline::of_cluster(&serde_json::from_value(it).unwrap())
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
        let of = |more: Value| Outline::of_machine(&serde_json::from_value(more).unwrap());
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
