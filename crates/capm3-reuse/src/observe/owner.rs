//! Who owns a machine, what that owner's template says, and whether the owner needs more hosts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::capi::{Cluster, Machine};
use api_types::capm3::{HostSelector, Metal3Machine, Metal3MachineTemplate};
use api_types::metal3::BareMetalHost;
use api_types::name::is_name;
use api_types::names;
use api_types::names::capi::{CONTROL_PLANE_GROUP, GROUP};
use api_types::reference::ObjectRef;
use controller_kit::api_error::unless_gone;
use controller_kit::engine::error::asked_within;
use controller_kit::engine::{Error, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIResource, APIResourceList, ObjectMeta,
};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::{Scope, cluster};
use crate::host::is_of_others;
use crate::machine::is_housed;
use crate::model::{KeptSeen, Memory};
use crate::outline::{OfOwner, PLACES, named, owner_of_kind};
use crate::reason::Reason;
use crate::reservation::{Kept, Owner};
use crate::seen::{OwnerSeen, Reuse, Verdict};
use crate::selector::{Labels, Selector};
use crate::served::Served;
use crate::text;

const TEMPLATE_KIND: &str = "Metal3MachineTemplate";
/// How long an answer about a machine's owner may take: longer than a webhook that converts it may.
pub(super) const PATIENCE: Duration = Duration::from_secs(40);

impl Scope<'_> {
    /// Who owns the Machine of a `Metal3Machine`. Without the Machine its labels, which the `Metal3Machine` has too, say it: a
    /// verdict is for good, so they name an owner that no cache has, too, without its uid.
    pub fn owner_of(&self, machine: &Metal3Machine, cluster: Option<&Cluster>) -> Option<Owner> {
        let metadata = self.metadata_behind(machine);
        let by_set = || {
            let set = ObjectKey::new(self.namespace, owner_of_kind(&metadata, "MachineSet")?);
            owner_in(&self.context.caches.sets.metadata(&set)?)
        };
        owner_in(&metadata).or_else(by_set).or_else(|| {
            let named = named_by_labels(self.context.served, metadata.labels.as_ref()?, cluster)?;
            Some(self.watched_owner(&named).map_or(named, |it| it.owner))
        })
    }

    /// The metadata of a machine's Machine, also of one that cannot be decoded; its own without one.
    fn metadata_behind(&self, machine: &Metal3Machine) -> ObjectMeta {
        let parent = owner_of_kind(&machine.metadata, "Machine");
        let parent = parent.map(|it| ObjectKey::new(self.namespace, it));
        let found = parent.and_then(|it| self.context.caches.parents.metadata(&it));
        found.unwrap_or_else(|| machine.metadata.clone())
    }

    /// For whom a host is to be kept, by a live look at the owner and at the template that it points to now.
    pub(super) async fn verdict_of(
        &self,
        owner: &Owner,
        cloned_from: Option<&str>,
    ) -> Result<Verdict, Error> {
        let nobody = |why: &str| Ok(Verdict::Nobody(why.to_owned()));
        let live = self.live_owner(owner).await?.filter(|it| owner.means(&it.owner));
        let Some(live) = live else { return nobody(text::OWNER_GONE) };
        if let Some(why) = live.unreadable {
            let own = match cloned_from {
                Some(name) => self.live_reuse(name).await?,
                None => Reuse::Off,
            };
            return Ok(of_unreadable(why, &own));
        }
        if live.metadata.deletion_timestamp.is_some() {
            return nobody(text::OWNER_DELETING);
        }
        let named = live.template;
        for name in asked_in_turn(named.as_ref(), cloned_from) {
            if let Some(template) = self.live_template(name).await? {
                return Ok(by_template(live.owner, name, &template.data));
            }
        }
        Ok(without_template(owner, named.as_ref(), self.context.served.watches(owner)))
    }

    /// Whether a template asks for reuse, by a live look.
    pub async fn live_reuse(&self, name: &str) -> Result<Reuse, Error> {
        let found = self.live_template(name).await?;
        Ok(found.map_or(Reuse::Unknown, |found| reuse_in(name, &found.data)))
    }

    /// Read without its type: only two words of it count, and the rest may be as wrong as it likes.
    async fn live_template(&self, name: &str) -> Result<Option<DynamicObject>, Error> {
        let Some(name) = is_name(name).then_some(name) else { return Ok(None) };
        let templates = self.untyped(names::capm3::GROUP, TEMPLATE_KIND);
        let asked = async { unless_gone(templates.get(name).await) };
        asked_within(PATIENCE, "get a Metal3MachineTemplate", asked).await
    }

    /// What to change before an owner that is not watched can be read, if it cannot. An error says nothing of that.
    pub(super) async fn why_unreadable(&self, owner: &Owner) -> Option<String> {
        if self.context.served.watches(owner) {
            return None;
        }
        self.live_owner(owner).await.ok()??.unreadable
    }

    /// The owner of that kind and name as it is now, whatever its uid.
    async fn live_owner(&self, owner: &Owner) -> Result<Option<OfOwner>, Error> {
        let Some(name) = is_name(&owner.name).then_some(&owner.name) else { return Ok(None) };
        let is_watched = self.context.served.watches(owner);
        let kind = if is_watched {
            self.resource(owner.group(), &owner.kind)
        } else {
            // In the version that is served now: a reservation may be older than that.
            match self.served_kind(owner).await? {
                Some(kind) => kind,
                None => return Ok(Some(OfOwner::unknown(owner, text::owner_unserved(owner)))),
            }
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.kit.client.clone(), self.namespace, &kind);
        let answer =
            async { as_found(owner, is_watched, &kind.plural, unless_gone(api.get(name).await)) };
        asked_within(PATIENCE, "get the owner of a machine", answer).await
    }

    /// The kind of an owner as it is served now.
    async fn served_kind(&self, owner: &Owner) -> Result<Option<ApiResource>, Error> {
        let client = &self.context.kit.client;
        let answer = async {
            let groups = client.list_api_groups().await?.groups;
            let Some(group) = groups.into_iter().find(|it| it.name == owner.group()) else {
                return Ok(None);
            };
            let ask =
                |version: String| async move { client.list_api_group_resources(&version).await };
            first_served(&group, &owner.kind, ask).await
        };
        asked_within(PATIENCE, "ask what the API server serves", answer).await
    }

    fn resource(&self, group: &str, kind: &str) -> ApiResource {
        let version = self.context.served.version_of(group).as_str();
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    /// All of a kind, without their types: one that cannot be decoded is there.
    pub fn untyped(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let kind = self.resource(group, kind);
        Api::namespaced_with(self.context.kit.client.clone(), self.namespace, &kind)
    }

    /// What is known of a kept host: of its owner by the caches, or as that is now.
    pub(super) async fn kept_seen(
        &self,
        host: &BareMetalHost,
        memory: &Memory,
        is_live: bool,
    ) -> Result<Option<KeptSeen>, Error> {
        let Some(kept) = Kept::of(host) else { return Ok(None) };
        let owner = self.owner_seen(host, &kept, is_live).await?;
        let settled_for = memory.settled_for(Instant::now());
        Ok(Some(KeptSeen { host: host.clone(), kept, owner, settled_for }))
    }

    async fn owner_seen(
        &self,
        host: &BareMetalHost,
        kept: &Kept,
        is_live: bool,
    ) -> Result<Option<OwnerSeen>, Error> {
        let named = match kept {
            Kept::For(owner) => Some(owner.clone()),
            Kept::ByLabel(label) => match self.owner_by_label(label) {
                None if is_live => self.owner_by_label_now(label).await?,
                found => found,
            },
        };
        let outline = match named {
            Some(owner) => self.owner_by_name(&owner, is_live).await?,
            None => None,
        };
        let Some(outline) = outline else {
            // While its cluster is moved here an owner may still be to come, and nothing is written while it is paused.
            let unknown = OwnerSeen { paused: true, is_unwatched: true, ..OwnerSeen::default() };
            return Ok(self.is_any_cluster_paused().then_some(unknown));
        };
        let cluster = outline.cluster.as_deref();
        let found = self.cluster(cluster).await?;
        let (machines, waits) = self.machines_of(&outline.owner, host);
        // No machine of this installation takes it any more.
        let of_others = is_of_others(host, self.context.watch_filter());
        let named = outline.template.as_ref();
        let template = named.and_then(|it| self.next_template(it));
        let template = template.as_ref().map(|it| &it.spec);
        let reuse_off = match named.and_then(|it| it.name.as_deref()) {
            Some(name) if is_live => self.live_reuse(name).await? == Reuse::Off,
            _ => template.is_some_and(|it| it.node_reuse != Some(true)),
        };
        let born = outline.metadata.creation_timestamp.as_ref();
        let born = born.map_or(Timestamp::UNIX_EPOCH, |born| born.0);
        Ok(Some(OwnerSeen {
            of_others: !self.context.is_ours(&outline.metadata),
            is_unwatched: outline.is_unwatched,
            unreadable: outline.unreadable,
            later: (!kept.is_for(&outline.owner)).then(|| (outline.owner.clone(), born)),
            deleting: outline.metadata.deletion_timestamp.is_some(),
            paused: outline.paused || found.as_ref().is_some_and(Cluster::is_paused),
            cluster_deleting: cluster::is_going(cluster, found.as_ref()),
            cluster_since: found.and_then(|it| it.metadata.creation_timestamp).map(|born| born.0),
            replicas: outline.replicas,
            machines,
            waits: waits && !of_others,
            wants_others: of_others
                || template
                    .is_some_and(|it| !selects(it.template.spec.host_selector.as_ref(), host)),
            rolls_out: outline.rolls_out,
            reuse_off,
        }))
    }

    /// The template that an owner's next machine is made from, if it was seen.
    pub(super) fn next_template(&self, template: &ObjectRef) -> Option<Arc<Metal3MachineTemplate>> {
        self.context.caches.templates.named(self.namespace, template.name.as_deref()?)
    }

    /// The owner of this kind and name, whatever its uid: by the caches where it is watched, or as it is now.
    pub(super) async fn owner_by_name(
        &self,
        owner: &Owner,
        is_live: bool,
    ) -> Result<Option<OfOwner>, Error> {
        if self.context.served.watches(owner) && !is_live {
            return Ok(self.watched_owner(owner));
        }
        self.live_owner(owner).await
    }

    /// The same of a kind that is watched.
    fn watched_owner(&self, owner: &Owner) -> Option<OfOwner> {
        let (caches, served) = (&self.context.caches, self.context.served);
        let (space, name) = (self.namespace, &owner.name);
        match owner.kind.as_str() {
            "MachineDeployment" => {
                caches.deployments.named(space, name).map(|it| OfOwner::seen(served, &it))
            }
            "KubeadmControlPlane" => {
                caches.control_planes.named(space, name).map(|it| OfOwner::seen(served, &it))
            }
            _ => None,
        }
    }

    /// The owner that CAPM3 wrote down as a label, also one that cannot be decoded.
    fn owner_by_label(&self, label: &str) -> Option<Owner> {
        let (caches, served) = (&self.context.caches, self.context.served);
        let deployments = caches.deployments.metadata_of(self.namespace);
        let deployments = deployments.map(|it| named(GROUP, served.core, "MachineDeployment", &it));
        let version = served.version_of(CONTROL_PLANE_GROUP);
        let planes = caches.control_planes.metadata_of(self.namespace);
        let planes =
            planes.map(|it| named(CONTROL_PLANE_GROUP, version, "KubeadmControlPlane", &it));
        // One that is not watched is found by its cluster.
        let clusters = caches.clusters.of_namespace(self.namespace);
        let others =
            clusters.filter_map(|it| Owner::from_reference(it.spec.control_plane_ref.as_ref()?));
        let mut all = deployments.chain(planes).chain(others.filter(|it| !served.watches(it)));
        all.find(|it| it.label() == label)
    }

    /// The same by what is there now: the watch on owners may be behind that on hosts, and a cache that does not have one proves
    /// nothing.
    async fn owner_by_label_now(&self, label: &str) -> Result<Option<Owner>, Error> {
        const WHAT: &str = "list the owners of machines";
        let (served, params) = (self.context.served, ListParams::default());
        let planes =
            served.control_plane.map(|it| (CONTROL_PLANE_GROUP, it, "KubeadmControlPlane"));
        let kinds = [(GROUP, served.core, "MachineDeployment")].into_iter().chain(planes);
        for (group, version, kind) in kinds {
            let all = self.untyped(group, kind);
            let all = asked_within(PATIENCE, WHAT, all.list_metadata(&params)).await?;
            let mut all = all.items.iter().map(|it| named(group, version, kind, &it.metadata));
            if let Some(found) = all.find(|it| it.label() == label) {
                return Ok(Some(found));
            }
        }
        let clusters = self.untyped(GROUP, "Cluster");
        let clusters = asked_within(PATIENCE, WHAT, clusters.list(&params)).await?.items;
        let planes = clusters.into_iter().filter_map(|it| {
            Owner::from_reference(cluster::outlines(it).spec.control_plane_ref.as_ref()?)
        });
        let mut planes = planes.filter(|it| !served.watches(it));
        Ok(planes.find(|it| it.label() == label))
    }

    /// The Machines of an owner.
    pub(super) fn parents_of(&self, owner: &Owner) -> impl Iterator<Item = Arc<Machine>> {
        let caches = &self.context.caches;
        let sets = caches.sets.of_namespace(self.namespace);
        let sets = sets.filter(|it| owner_uids(&it.metadata).any(|uid| uid == owner.uid));
        let sets = sets.filter_map(|it| it.metadata.uid.clone()).collect();
        let machines = caches.parents.of_namespace(self.namespace);
        machines.filter(move |it| is_machine_of(it, owner, &sets))
    }

    /// How many machines of an owner are not being deleted, and whether one of them has no host yet or gives its own back, and may
    /// come for this one.
    fn machines_of(&self, owner: &Owner, host: &BareMetalHost) -> (usize, bool) {
        let caches = &self.context.caches;
        let stays = |it: &Arc<Machine>| it.metadata.deletion_timestamp.is_none();
        let machines: Vec<_> = self.parents_of(owner).filter(stays).collect();
        let may_come = |it: &Arc<Machine>| {
            let name = it.spec.infrastructure_ref.name.as_deref().unwrap_or_default();
            let seen = caches.machines.named(self.namespace, name);
            // Of one that was not seen nothing is known.
            seen.is_none_or(|it| may_come_for(host, &it) && self.cached_reuse(&it) != Reuse::Off)
        };
        (machines.len(), machines.iter().any(may_come))
    }
}

/// The owner that labels name, without its uid. Of which provider a control plane is only the Cluster says: taken for another
/// kind it would not be found, and nobody would have the host kept.
fn named_by_labels(served: Served, labels: &Labels, cluster: Option<&Cluster>) -> Option<Owner> {
    let meta = |name: &String| ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    if let Some(name) = labels.get(names::capi::DEPLOYMENT_NAME) {
        return Some(named(GROUP, served.core, "MachineDeployment", &meta(name)));
    }
    let name = labels.get(names::capi::CONTROL_PLANE_NAME)?;
    let plane = cluster.and_then(|it| it.spec.control_plane_ref.as_ref());
    if let Some(owner) = plane.and_then(Owner::from_reference) {
        return Some(Owner { uid: String::new(), ..owner });
    }
    let version = served.control_plane?;
    Some(named(CONTROL_PLANE_GROUP, version, "KubeadmControlPlane", &meta(name)))
}

/// Who owns an object, if it is one that hosts are kept for.
fn owner_in(metadata: &ObjectMeta) -> Option<Owner> {
    metadata.owner_references.iter().flatten().find_map(|reference| {
        Owner::from_reference(&ObjectRef {
            api_version: Some(reference.api_version.clone()),
            kind: Some(reference.kind.clone()),
            name: Some(reference.name.clone()),
            uid: Some(reference.uid.clone()),
            ..ObjectRef::default()
        })
    })
}

/// The templates that say whether a host is kept, by name: each only where those before it are not there. An owner may be
/// written before its new template is, and then the one that the machine was cloned from is the last that said it.
fn asked_in_turn<'a>(named: Option<&'a ObjectRef>, cloned_from: Option<&'a str>) -> Vec<&'a str> {
    if named.is_some_and(|it| !is_template(it)) {
        return Vec::new();
    }
    let named = named.and_then(|it| it.name.as_deref());
    named.into_iter().chain(cloned_from).collect()
}

/// The verdict where the owner cannot be read: a host of a machine that never asked for reuse need not wait until it can.
fn of_unreadable(why: String, own: &Reuse) -> Verdict {
    if *own == Reuse::Off {
        Verdict::Nobody(text::OWN_REUSE_UNSET.to_owned())
    } else {
        Verdict::Undecided(Reason::OwnerUnreadable, why)
    }
}

/// What the template says that an owner's next machine is made from.
fn by_template(owner: Owner, name: &str, template: &Value) -> Verdict {
    let cleaning = template["spec"]["template"]["spec"]["automatedCleaningMode"].as_str();
    match reuse_in(name, template) {
        Reuse::On => Verdict::For { owner, cleaning: cleaning.map(str::to_owned) },
        Reuse::Unreadable(why) => Verdict::Undecided(Reason::OwnerUnreadable, why),
        Reuse::Off | Reuse::Unknown => Verdict::Nobody(text::REUSE_UNSET.to_owned()),
    }
}

fn reuse_in(name: &str, template: &Value) -> Reuse {
    match &template["spec"]["nodeReuse"] {
        Value::Bool(true) => Reuse::On,
        Value::Bool(false) | Value::Null => Reuse::Off,
        other => Reuse::Unreadable(text::reuse_odd(name, other)),
    }
}

/// What was found. A right that the chart gives is away for a moment only, and a verdict is for good: that is no answer.
fn as_found(
    owner: &Owner,
    is_watched: bool,
    plural: &str,
    answer: kube::Result<Option<DynamicObject>>,
) -> kube::Result<Option<OfOwner>> {
    match answer {
        Ok(live) => Ok(live.map(|it| {
            let owner = Owner { uid: it.uid().unwrap_or_default(), ..owner.clone() };
            OfOwner { is_unwatched: true, ..OfOwner::read(owner, &it.metadata, &it.data) }
        })),
        Err(kube::Error::Api(status)) if status.is_forbidden() && !is_watched => {
            Ok(Some(OfOwner::unknown(owner, text::owner_forbidden(owner, plural))))
        }
        Err(error) => Err(error),
    }
}

/// A kind in the first version of its group that has it. Each provider's CRD has versions of its own: the version that the group
/// prefers may be that of another provider alone.
async fn first_served<F: Future<Output = kube::Result<APIResourceList>>>(
    group: &APIGroup,
    kind: &str,
    ask: impl Fn(String) -> F,
) -> kube::Result<Option<ApiResource>> {
    for version in &group.versions {
        let all = match ask(version.group_version.clone()).await {
            // It went since the group was listed.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            all => all?.resources,
        };
        let is_it = |it: &APIResource| it.kind == kind && !it.name.contains('/');
        if let Some(found) = all.into_iter().find(is_it) {
            let kind = GroupVersionKind::gvk(&group.name, &version.version, kind);
            return Ok(Some(ApiResource::from_gvk_with_plural(&kind, &found.name)));
        }
    }
    Ok(None)
}

/// What is said where no template was found. An owner whose kind is watched says it where it is looked for.
fn without_template(owner: &Owner, named: Option<&ObjectRef>, is_watched: bool) -> Verdict {
    match named {
        Some(named) if !is_template(named) => Verdict::Nobody(text::other_template(owner, named)),
        None if !is_watched => {
            // The first place is that of a deployment.
            let dotted = |it: &&str| it[1..].split('/').collect::<Vec<_>>().join(".");
            let places = PLACES[1..].iter().map(dotted);
            let places = places.collect::<Vec<_>>().join(", ");
            Verdict::Undecided(Reason::OwnerUnreadable, text::no_template_named(owner, &places))
        }
        _ => Verdict::Nobody(text::TEMPLATE_GONE.to_owned()),
    }
}

pub(super) fn is_template(reference: &ObjectRef) -> bool {
    reference.is(names::capm3::GROUP, TEMPLATE_KIND, reference.name.as_deref().unwrap_or_default())
}

/// Whether a host will do. What cannot be read may be corrected to anything.
fn selects(selector: Option<&HostSelector>, host: &BareMetalHost) -> bool {
    Selector::of(selector).map_or(true, |it| it.matches(host.metadata.labels.as_ref()))
}

/// Whether a machine has no host, or gives its own back, and would take this one.
fn may_come_for(host: &BareMetalHost, machine: &Metal3Machine) -> bool {
    let has_host = is_housed(machine) && machine.metadata.deletion_timestamp.is_none();
    !has_host && selects(machine.spec.host_selector.as_ref(), host)
}

fn owner_uids(metadata: &ObjectMeta) -> impl Iterator<Item = &str> {
    metadata.owner_references.iter().flatten().map(|it| it.uid.as_str()).filter(|it| !it.is_empty())
}

/// Whether a Machine is an owner's: by its label, or owned by it or by one of its machine sets.
fn is_machine_of(machine: &Machine, owner: &Owner, sets: &BTreeSet<String>) -> bool {
    let label = if owner.is_control_plane() {
        names::capi::CONTROL_PLANE_NAME
    } else {
        names::capi::DEPLOYMENT_NAME
    };
    // No label of ours names a set of machines, and a deployment may have its name.
    (owner.kind != "MachineSet" && machine.label(label) == Some(&owner.name))
        || owner_uids(&machine.metadata).any(|uid| uid == owner.uid || sets.contains(uid))
}

#[cfg(test)]
mod tests;
