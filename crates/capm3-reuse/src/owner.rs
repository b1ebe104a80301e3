//! Who owns a machine, what that owner's template says, and whether the owner needs more hosts.

use std::collections::BTreeSet;
use std::sync::Arc;

use api_types::capi::{self, Machine, OwnerStatus};
use api_types::capm3::Metal3Machine;
use api_types::names;
use api_types::reference::ObjectRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::Value;

use crate::error::Error;
use crate::observe::{Sources, version_of};
use crate::reservation::{Kept, Owner};
use crate::seen::{KeptSeen, OwnerSeen, Parent, Verdict};

const TEMPLATE_KIND: &str = "Metal3MachineTemplate";
const TEMPLATE_GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// What the API server fills in where a deployment or control plane names no number.
const REPLICAS: i32 = 1;

/// Who owns the Machine of a `Metal3Machine`. Without the Machine its labels, which the `Metal3Machine` has too, say it.
pub fn of_machine(
    from: &Sources,
    namespace: &str,
    machine: &Metal3Machine,
    parent: &Parent,
) -> Option<Owner> {
    let Parent::Here(parent) = parent else {
        return by_labels(from, namespace, machine.metadata.labels.as_ref()?);
    };
    let owners = parent.metadata.owner_references.iter().flatten();
    if let Some(owner) = owners.clone().find_map(owner_in) {
        return Some(owner);
    }
    let set = owners.clone().find(|it| it.kind == "MachineSet")?;
    let core = from.served.core;
    if let Some(set) = from.cached(&from.stores.sets, core, namespace, &set.name) {
        return set.metadata.owner_references.iter().flatten().find_map(owner_in);
    }
    by_labels(from, namespace, parent.metadata.labels.as_ref()?)
}

fn owner_in(reference: &OwnerReference) -> Option<Owner> {
    Owner::from_reference(&ObjectRef {
        api_version: Some(reference.api_version.clone()),
        kind: Some(reference.kind.clone()),
        name: Some(reference.name.clone()),
        uid: Some(reference.uid.clone()),
        ..ObjectRef::default()
    })
}

fn by_labels(
    from: &Sources,
    namespace: &str,
    labels: &std::collections::BTreeMap<String, String>,
) -> Option<Owner> {
    let served = &from.served;
    let named = |group: &str, version: &str, kind: &str, meta: &ObjectMeta| Owner {
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    };
    if let Some(name) = labels.get(names::capi::DEPLOYMENT_NAME) {
        let found = from.cached(&from.stores.deployments, served.core, namespace, name)?;
        let version = served.core.as_str();
        return Some(named("cluster.x-k8s.io", version, "MachineDeployment", &found.metadata));
    }
    let name = labels.get(names::capi::CONTROL_PLANE_NAME)?;
    let (store, version) = (from.stores.control_planes.as_ref()?, served.control_plane?);
    let found = from.cached(store, version, namespace, name)?;
    let group = "controlplane.cluster.x-k8s.io";
    Some(named(group, version.as_str(), "KubeadmControlPlane", &found.metadata))
}

/// For whom a host is to be kept, by a live look at the owner and at the template that it points to now.
pub async fn verdict(
    from: &Sources,
    namespace: &str,
    owner: &Owner,
    parent: &Parent,
) -> Result<Verdict, Error> {
    let live = match get_live(from, namespace, owner).await? {
        Found::Here(live) => live,
        Found::Gone => return Ok(Verdict::Nobody("its owner is gone")),
        Found::Unreadable(why) => return Ok(Verdict::Unreadable(why)),
    };
    if live.metadata.deletion_timestamp.is_some() {
        return Ok(Verdict::Nobody("its owner is being deleted"));
    }
    let mut templates: Vec<ObjectRef> = template_in(&live.data).into_iter().collect();
    if let Parent::Here(parent) = parent {
        templates.extend(template_of_set(from, namespace, parent));
    }
    for template in templates {
        if !template.is(TEMPLATE_GROUP, TEMPLATE_KIND, template.name.as_deref().unwrap_or_default())
        {
            continue;
        }
        let name = template.name.as_deref().unwrap_or_default();
        let kind =
            resource(TEMPLATE_GROUP, version_of(from, TEMPLATE_GROUP).as_str(), TEMPLATE_KIND);
        let api: Api<DynamicObject> = Api::namespaced_with(from.client.clone(), namespace, &kind);
        let found = api.get_opt(name).await;
        // Read without its type: only one word of it counts, and the rest may be as wrong as it likes.
        if let Some(found) = found.map_err(Error::api("get a Metal3MachineTemplate"))? {
            return Ok(match &found.data["spec"]["nodeReuse"] {
                Value::Bool(true) => Verdict::For(owner.clone()),
                Value::Bool(false) | Value::Null => {
                    Verdict::Nobody("the template of its owner does not set nodeReuse")
                }
                other => Verdict::Unreadable(format!(
                    "spec.nodeReuse of Metal3MachineTemplate {name} is {other}: set it to true or false"
                )),
            });
        }
    }
    Ok(Verdict::Nobody("the template of its owner is gone"))
}

enum Found {
    Here(Box<DynamicObject>),
    Gone,
    Unreadable(String),
}

/// The owner as it is now; gone if another one has its name.
async fn get_live(from: &Sources, namespace: &str, owner: &Owner) -> Result<Found, Error> {
    let kind = match owner.kind.as_str() {
        "MachineDeployment" | "KubeadmControlPlane" => {
            resource(owner.group(), version_of(from, owner.group()).as_str(), &owner.kind)
        }
        _ => {
            let version = owner.api_version.rsplit('/').next().unwrap_or_default();
            let kind = GroupVersionKind::gvk(owner.group(), version, &owner.kind);
            match kube::discovery::pinned_kind(&from.client, &kind).await {
                Ok((kind, _)) => kind,
                Err(_) => {
                    return Ok(Found::Unreadable(format!(
                        "the API server does not serve {} of {}",
                        owner.kind, owner.api_version
                    )));
                }
            }
        }
    };
    let api: Api<DynamicObject> = Api::namespaced_with(from.client.clone(), namespace, &kind);
    match api.get_opt(&owner.name).await {
        Ok(Some(live)) if owner.uid.is_empty() || live.uid().as_ref() == Some(&owner.uid) => {
            Ok(Found::Here(Box::new(live)))
        }
        Ok(_) => Ok(Found::Gone),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Found::Unreadable(format!(
            "{} {} may not be read: allow get on {} of {} to this account",
            owner.kind,
            owner.name,
            kind.plural,
            owner.group()
        ))),
        Err(error) => Err(Error::api("get the owner of a machine")(error)),
    }
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The template that an owner's next machine is made from, in either contract.
fn template_in(owner: &Value) -> Option<ObjectRef> {
    let places = [
        "/spec/template/spec/infrastructureRef",
        "/spec/machineTemplate/spec/infrastructureRef",
        "/spec/machineTemplate/infrastructureRef",
    ];
    let found = places.iter().find_map(|place| owner.pointer(place))?;
    serde_json::from_value(found.clone()).ok()
}

fn template_of_set(from: &Sources, namespace: &str, parent: &Machine) -> Option<ObjectRef> {
    let mut owners = parent.metadata.owner_references.iter().flatten();
    let set = owners.find(|it| it.kind == "MachineSet")?;
    let set = from.cached(&from.stores.sets, from.served.core, namespace, &set.name)?;
    Some(set.spec.infrastructure_ref().clone())
}

/// Reads what a decision about a kept host needs.
pub async fn observe_kept(
    from: &Sources,
    host: &api_types::metal3::BareMetalHost,
    settled_since: Option<Timestamp>,
) -> Result<Option<KeptSeen>, Error> {
    let Some(kept) = Kept::of(host) else { return Ok(None) };
    let namespace = host.namespace().unwrap_or_default();
    let owner = owner_seen(from, &namespace, &kept).await?;
    Ok(Some(KeptSeen { host: host.clone(), kept, owner, settled_since }))
}

/// An owner's common parts, from whichever kind.
struct Common {
    owner: Owner,
    metadata: ObjectMeta,
    replicas: Option<i32>,
    status: OwnerStatus,
    template: Option<ObjectRef>,
    cluster: Option<String>,
}

async fn owner_seen(
    from: &Sources,
    namespace: &str,
    kept: &Kept,
) -> Result<Option<OwnerSeen>, Error> {
    let common = match kept {
        Kept::For(owner)
            if !matches!(owner.kind.as_str(), "MachineDeployment" | "KubeadmControlPlane") =>
        {
            of_other_kind(from, namespace, owner).await?
        }
        _ => cached_owners(from, namespace).into_iter().find(|it| kept.is_for(&it.owner)),
    };
    let Some(common) = common else { return Ok(None) };
    let core = from.served.core;
    let cluster = common
        .cluster
        .as_ref()
        .and_then(|name| from.cached(&from.stores.clusters, core, namespace, name));
    let wanted = common.replicas.unwrap_or(REPLICAS);
    let status = &common.status;
    let current = status.up_to_date_replicas.or(status.updated_replicas).unwrap_or(0);
    let behind = status.observed_generation < common.metadata.generation;
    let (machines, without_host) = machines_of(from, namespace, &common.owner);
    Ok(Some(OwnerSeen {
        deleting: common.metadata.deletion_timestamp.is_some(),
        paused: capi::is_paused(&common.metadata)
            || cluster.as_ref().is_some_and(|cluster| cluster.is_paused()),
        cluster_deleting: cluster
            .is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some()),
        replicas: wanted,
        machines,
        without_host,
        rolls_out: behind || current < wanted,
        reuse: common.template.and_then(|template| reuse(from, namespace, &template)),
    }))
}

fn reuse(from: &Sources, namespace: &str, template: &ObjectRef) -> Option<bool> {
    let name = template.name.as_deref()?;
    let version = from.served.infrastructure;
    let found = from.cached(&from.stores.templates, version, namespace, name)?;
    Some(found.spec.node_reuse.unwrap_or(false))
}

fn cached_owners(from: &Sources, namespace: &str) -> Vec<Common> {
    let (core, plane) = (from.served.core, from.served.control_plane.unwrap_or_default());
    let here = |meta: &ObjectMeta| meta.namespace.as_deref() == Some(namespace);
    let owner = |group: &str, version: &str, kind: &str, meta: &ObjectMeta| Owner {
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    };
    let deployments = from.stores.deployments.state();
    let deployments = deployments.iter().filter(|it| here(&it.metadata)).map(|it| Common {
        owner: owner("cluster.x-k8s.io", core.as_str(), "MachineDeployment", &it.metadata),
        metadata: it.metadata.clone(),
        replicas: it.spec.replicas,
        status: it.status.clone().unwrap_or_default(),
        template: Some(it.spec.infrastructure_ref().clone()),
        cluster: Some(it.spec.cluster_name.clone()),
    });
    let planes = from.stores.control_planes.as_ref().map(kube::runtime::reflector::Store::state);
    let planes: Vec<Arc<_>> = planes.unwrap_or_default();
    let group = "controlplane.cluster.x-k8s.io";
    let planes = planes.iter().filter(|it| here(&it.metadata)).map(|it| Common {
        owner: owner(group, plane.as_str(), "KubeadmControlPlane", &it.metadata),
        metadata: it.metadata.clone(),
        replicas: it.spec.replicas,
        status: it.status.clone().unwrap_or_default(),
        template: it.spec.infrastructure_ref().cloned(),
        cluster: it.label(names::capi::CLUSTER_NAME).map(str::to_owned),
    });
    deployments.chain(planes).collect()
}

/// A control plane of another provider: these are not watched.
async fn of_other_kind(
    from: &Sources,
    namespace: &str,
    owner: &Owner,
) -> Result<Option<Common>, Error> {
    let live = match get_live(from, namespace, owner).await? {
        Found::Here(live) => live,
        // What cannot be read may be there.
        Found::Unreadable(_) => return Ok(Some(unknown(owner))),
        Found::Gone => return Ok(None),
    };
    let status = serde_json::from_value(live.data["status"].clone()).unwrap_or_default();
    let replicas = live.data["spec"]["replicas"].as_i64().and_then(|it| i32::try_from(it).ok());
    Ok(Some(Common {
        owner: owner.clone(),
        template: template_in(&live.data),
        cluster: live.labels().get(names::capi::CLUSTER_NAME).cloned(),
        replicas,
        status,
        metadata: live.metadata,
    }))
}

/// An owner of which nothing is known: it is taken for one that may need its hosts.
fn unknown(owner: &Owner) -> Common {
    Common {
        owner: owner.clone(),
        metadata: ObjectMeta {
            generation: Some(i64::MAX),
            annotations: Some([(names::capi::PAUSED.to_owned(), String::new())].into()),
            ..ObjectMeta::default()
        },
        replicas: None,
        status: OwnerStatus::default(),
        template: None,
        cluster: None,
    }
}

/// Machines of an owner that are not being deleted, and those among them that name no host or give theirs back.
fn machines_of(from: &Sources, namespace: &str, owner: &Owner) -> (usize, BTreeSet<String>) {
    let label = if owner.is_control_plane() {
        names::capi::CONTROL_PLANE_NAME
    } else {
        names::capi::DEPLOYMENT_NAME
    };
    let is_its = |it: &Machine| {
        it.metadata.namespace.as_deref() == Some(namespace)
            && it.metadata.deletion_timestamp.is_none()
            && (it.label(label) == Some(&owner.name)
                || it.metadata.owner_references.iter().flatten().any(|it| it.uid == owner.uid))
    };
    let machines = from.stores.parents.state_filter(is_its);
    let has_host = |it: &Machine| {
        let name = it.spec.infrastructure_ref.name.as_deref().unwrap_or_default();
        let version = from.served.infrastructure;
        from.cached(&from.stores.machines, version, namespace, name)
            .is_some_and(|it| it.host_name().is_some() && it.metadata.deletion_timestamp.is_none())
    };
    let without = machines.iter().filter(|it| !has_host(it)).map(|it| it.name_any()).collect();
    (machines.len(), without)
}
