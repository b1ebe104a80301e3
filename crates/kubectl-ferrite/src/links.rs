//! What one object says of itself: a link for each thing that it waits for, or one that says how it is. Pure.

use api_types::capi::{Machine, is_paused};
use api_types::capm3::{Metal3Machine, consumer_machine};
use api_types::condition::{Condition, find};
use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, EntryState,
    EntryStatus,
};
use api_types::metal3::{
    BareMetalHost, BareMetalHostDiscovery, BareMetalHostStatus, ListedHost, OperationalStatus,
    ProvisioningState,
};
use api_types::names::{capi, capm3, ferrite, hive, metal3};
use bmo_reboot::record::{RebootProgress, Record};
use bmo_reboot::requests::Requests;
use capm3_reuse::reservation::{Kept, pending};
use capm3_reuse::status::reported;
use clusterpool_inventory::reason::Reason as OfPool;
use controller_kit::engine::Reason as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::model::{CLUSTER_DEPLOYMENT, Kind, Link, Object, Request, Sketch};
use crate::reasons::{self, Known};
use crate::text;

/// A condition that says whether an object waits.
struct Watched {
    name: &'static str,
    /// Its status while nothing is wrong.
    good: &'static str,
    /// The reason of a good status tells how it became so, and nothing of now.
    is_history: bool,
}

const fn watched(name: &'static str, good: &'static str) -> Watched {
    Watched { name, good, is_history: false }
}

const fn history(name: &'static str, good: &'static str) -> Watched {
    Watched { name, good, is_history: true }
}

const OF_HOST: &[Watched] = &[
    watched(ferrite::CONDITION_POWER_MANAGED, "True"),
    watched(ferrite::CONDITION_REBOOTING, "False"),
];
/// In both contracts, each in the order in which a machine comes up; health first.
const OF_MACHINE: &[Watched] = &[
    watched(capi::CONDITION_PAUSED, "False"),
    watched(capi::CONDITION_HEALTH_CHECK_SUCCEEDED, "True"),
    watched(capi::CONDITION_OWNER_REMEDIATED, "True"),
    watched(capi::CONDITION_EXTERNALLY_REMEDIATED, "True"),
    watched("BootstrapConfigReady", "True"),
    watched("BootstrapReady", "True"),
    watched("InfrastructureReady", "True"),
    watched("NodeHealthy", "True"),
    watched(capi::CONDITION_READY, "True"),
];
const OF_METAL: &[Watched] = &[
    watched(capi::CONDITION_PAUSED, "False"),
    history(capm3::CONDITION_ASSOCIATED, "True"),
    history(capm3::CONDITION_DATA_READY, "True"),
    watched(capi::CONDITION_READY, "True"),
];
const OF_REQUEST: &[Watched] = &[watched(ferrite::CONDITION_SUCCEEDED, "True")];
const OF_POOL: &[Watched] = &[
    watched(ferrite::CONDITION_SOLE_CONTROLLER, "True"),
    watched(hive::CONDITION_MISSING_DEPENDENCIES, "False"),
    watched(hive::CONDITION_INVENTORY_VALID, "True"),
    watched(hive::CONDITION_DELETION_POSSIBLE, "True"),
    watched(hive::CONDITION_ALL_CLUSTERS_CURRENT, "True"),
    watched(hive::CONDITION_CAPACITY_AVAILABLE, "True"),
];
const OF_CLAIM: &[Watched] =
    &[watched(hive::CONDITION_PENDING, "False"), watched("ClusterRunning", "True")];
const OF_CLUSTER: &[Watched] = &[
    watched(hive::CONDITION_PROVISION_STOPPED, "False"),
    watched("DeprovisionLaunchError", "False"),
    watched(hive::CONDITION_PROVISIONED, "True"),
];
const OF_DISCOVERY: &[Watched] =
    &[watched(ferrite::CONDITION_IRONIC_REACHABLE, "True"), watched(capi::CONDITION_READY, "True")];

impl Watched {
    fn link(&self, object: &Object, condition: &Condition) -> Link {
        let word = condition.reason.as_deref().filter(|it| !it.is_empty());
        let is_good = condition.status == self.good;
        let known = word.and_then(|word| reasons::find(&object.kind, self.name, word));
        let waits = match known {
            Some(known) => known.waits() && !(is_good && self.is_history),
            None => !is_good && !is_unjudged(condition),
        };
        let link = Link {
            waits,
            reason: word.map(str::to_owned),
            since: condition.last_transition_time.as_ref().map(|it| it.0),
            message: condition.message.clone().unwrap_or_default(),
            ..Link::field(object, self.name, &condition.status)
        };
        // A reason that rests has something to say only where it is not as it should be.
        match known {
            Some(known) => by_reason(link, known, waits || !is_good),
            None => link,
        }
    }
}

/// Whether nobody has judged a condition yet. Hive writes all of them at once, and many are judged only when something fails.
fn is_unjudged(condition: &Condition) -> bool {
    condition.status == "Unknown" && condition.reason.as_deref() == Some(hive::REASON_INITIALIZED)
}

fn by_reason(link: Link, known: Known, acts: bool) -> Link {
    let action = Some(known.action()).filter(|it| acts && !it.is_empty());
    Link {
        controller: Some(known.controller),
        meaning: Some(known.about.meaning),
        page: known.page().filter(|_| action.is_some()),
        action,
        ..link
    }
}

/// A link for each of these conditions that is there.
fn conditions<'a>(
    object: &Object,
    watched: &[Watched],
    get: impl Fn(&str) -> Option<&'a Condition>,
) -> Vec<Link> {
    watched.iter().filter_map(|it| Some(it.link(object, get(it.name)?))).collect()
}

/// Those that wait, each reason once; without one, the last, which sums them up.
fn telling(links: Vec<Link>) -> Vec<Link> {
    let mut told: Vec<Link> = Vec::new();
    for link in links.iter().filter(|it| it.waits) {
        if told.iter().all(|it| it.reason != link.reason) {
            told.push(link.clone());
        }
    }
    if told.is_empty() { links.into_iter().next_back().into_iter().collect() } else { told }
}

/// Those of an object, after what its deletion waits for, where nothing else says it.
fn finished(object: &Object, metadata: &ObjectMeta, mut links: Vec<Link>) -> Vec<Link> {
    if let Some(Time(since)) = metadata.deletion_timestamp.clone() {
        let keeping = metadata.finalizers.clone().unwrap_or_default();
        let link = Link::field(object, "metadata.deletionTimestamp", "deleting")
            .since(Some(since))
            .saying(text::kept_by(&keeping))
            .waiting(text::SEE_FINALIZERS);
        if !links.iter().any(|it| it.waits) {
            links.clear();
        }
        links.push(link);
    }
    if links.is_empty() {
        links.push(Link::field(object, "", "").saying(text::NO_CONDITION));
    }
    links
}

pub(crate) fn of_machine(machine: &Machine) -> Vec<Link> {
    let object = Object::of(Kind::Machine.as_str(), &machine.metadata);
    let get = |name: &str| machine.condition(name).or_else(|| machine.deprecated_condition(name));
    let mut links = telling(conditions(&object, OF_MACHINE, get));
    links.truncate(1);
    if machine.annotation(capi::SKIP_REMEDIATION).is_some() {
        let part = text::annotation(capi::SKIP_REMEDIATION);
        links.push(Link::field(&object, &part, "set").saying(text::SKIPS_REMEDIATION));
    }
    finished(&object, &machine.metadata, links)
}

pub(crate) fn of_metal(machine: &Metal3Machine) -> Vec<Link> {
    let object = Object::of(Kind::Metal3Machine.as_str(), &machine.metadata);
    let mut links = telling(conditions(&object, OF_METAL, |name| reported(machine, name)));
    links.truncate(1);
    if is_paused(&machine.metadata) && !links.iter().any(|it| it.waits) {
        links = vec![paused(&object, capi::PAUSED)];
    }
    finished(&object, &machine.metadata, links)
}

fn paused(object: &Object, annotation: &str) -> Link {
    Link::field(object, &text::annotation(annotation), "paused")
        .waiting(text::remove_annotation(annotation))
}

pub(crate) fn of_request(request: &Request) -> Vec<Link> {
    let object = Object::of(Kind::Metal3Remediation.as_str(), &request.metadata);
    let mut links = telling(conditions(&object, OF_REQUEST, |it| find(&request.conditions, it)));
    if let Some(phase) = request.phase.as_ref().filter(|_| links.is_empty()) {
        let link = Link::field(&object, "status.phase", phase.as_upstream_str());
        links.push(link.waiting(text::phase_action(phase)));
    }
    for link in &mut links {
        link.since = request.since.or(link.since);
    }
    finished(&object, &request.metadata, links)
}

pub(crate) fn of_pool(pool: &ClusterPool) -> Vec<Link> {
    let object = Object::of(Kind::ClusterPool.as_str(), &pool.metadata);
    let all = pool.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    finished(&object, &pool.metadata, telling(conditions(&object, OF_POOL, |it| find(all, it))))
}

/// The entries of a pool that cannot be used.
pub(crate) fn of_entries(pool: &ClusterPool) -> Vec<Link> {
    let entries = pool.status.iter().flat_map(|it| &it.inventory);
    entries.map(|(name, entry)| of_entry(pool, name, entry)).filter(|it| it.waits).collect()
}

/// How a pool sees one entry.
pub(crate) fn of_entry(pool: &ClusterPool, name: &str, entry: &EntryState) -> Link {
    let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
    let object = Object::new(Kind::Customization.as_str(), namespace, name);
    let reason = match entry.status {
        EntryStatus::BrokenByConfiguration => Some(OfPool::BrokenByConfiguration),
        EntryStatus::BrokenByCloud => Some(OfPool::BrokenByCloud),
        EntryStatus::Missing => Some(OfPool::EntryMissing),
        _ => None,
    };
    let pool = pool.metadata.name.as_deref().unwrap_or_default();
    let link = Link::field(&object, &text::entry_of(pool), entry.status.as_str())
        .saying(text::entry(entry));
    let Some(reason) = reason else { return link };
    let known = Known::of_entry(reason);
    let since = entry.last_failure.as_ref().and_then(|it| it.time.as_ref()).map(|it| it.0);
    let link = Link { waits: true, reason: Some(known.about.word.to_owned()), ..link.since(since) };
    by_reason(link, known, true)
}

pub(crate) fn of_claim(claim: &ClusterClaim) -> Vec<Link> {
    let object = Object::of(Kind::ClusterClaim.as_str(), &claim.metadata);
    let all = claim.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let mut links = telling(conditions(&object, OF_CLAIM, |it| find(all, it)));
    links.truncate(1);
    finished(&object, &claim.metadata, links)
}

pub(crate) fn of_cluster(cluster: &ClusterDeployment) -> Vec<Link> {
    let object = Object::of(CLUSTER_DEPLOYMENT, &cluster.metadata);
    let all = cluster.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let links = telling(conditions(&object, OF_CLUSTER, |it| find(all, it)));
    finished(&object, &cluster.metadata, links)
}

pub(crate) fn of_customization(customization: &ClusterDeploymentCustomization) -> Vec<Link> {
    let object = Object::of(Kind::Customization.as_str(), &customization.metadata);
    let all = customization.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let available = find(all, hive::CONDITION_AVAILABLE);
    let state = customization.leased_by().map_or("free", |_| "leased");
    let link = Link::field(&object, "status.clusterDeploymentRef", state)
        .saying(text::lease(customization))
        .since(available.and_then(|it| it.last_transition_time.as_ref()).map(|it| it.0));
    let reason = available.and_then(|it| it.reason.clone());
    let is_releasing = reason.as_deref() == Some(hive::REASON_RELEASING);
    let link = if is_releasing { link.waiting(text::WAIT) } else { link };
    finished(&object, &customization.metadata, vec![Link { reason, ..link }])
}

pub(crate) fn of_discovery(discovery: &BareMetalHostDiscovery) -> Vec<Link> {
    let object = Object::of(Kind::Discovery.as_str(), &discovery.metadata);
    let Some(status) = &discovery.status else {
        return finished(&object, &discovery.metadata, Vec::new());
    };
    let all: Vec<Condition> = status.conditions.iter().map(plain).collect();
    let mut links = telling(conditions(&object, OF_DISCOVERY, |it| find(&all, it)));
    for (part, list) in [
        ("status.pending", &status.pending),
        ("status.failures", &status.failures),
        ("status.conflicts", &status.conflicts),
    ] {
        links.extend(list.iter().map(|it| of_listed(&object, part, it)));
    }
    finished(&object, &discovery.metadata, links)
}

/// A machine that is not a host. The reason's word begins what the list says; a text may follow it.
fn of_listed(discovery: &Object, part: &str, listed: &ListedHost) -> Link {
    let said = listed.reason.as_deref().unwrap_or_default();
    let (word, message) = said.split_once(": ").unwrap_or((said, ""));
    let link = Link {
        waits: true,
        reason: Some(word.to_owned()).filter(|it| !it.is_empty()),
        since: listed.since.as_ref().map(|it| it.0),
        ..Link::field(discovery, part, &listed.node_id).saying(message)
    };
    match reasons::find(&discovery.kind, part, word) {
        Some(known) => by_reason(link, known, true),
        None => link,
    }
}

/// A condition of one of our own kinds, as foreign ones are.
pub(crate) fn plain(condition: &v1::Condition) -> Condition {
    Condition {
        r#type: condition.type_.clone(),
        status: condition.status.clone(),
        reason: Some(condition.reason.clone()),
        message: Some(condition.message.clone()),
        last_transition_time: Some(condition.last_transition_time.clone()),
        ..Condition::default()
    }
}

/// A host; `began` is when its provisioning state did, where that is known.
pub(crate) fn of_host(host: &BareMetalHost, began: Option<Timestamp>) -> Vec<Link> {
    let object = Object::of(Kind::BareMetalHost.as_str(), &host.metadata);
    let default = BareMetalHostStatus::default();
    let status = host.status.as_ref().unwrap_or(&default);
    let mut links = Vec::new();
    links.extend(host_error(&object, status));
    let pause = host.annotation(metal3::PAUSED);
    if pause.is_some_and(|it| it != ferrite::PAUSED_BY_BMO_REBOOT) {
        links.push(paused(&object, metal3::PAUSED));
    }
    if host.is_detached() {
        links.push(Link {
            state: OperationalStatus::Detached.as_str().to_owned(),
            ..paused(&object, metal3::DETACHED)
        });
    }
    let state = &status.provisioning.state;
    let word = if state.as_str().is_empty() { text::UNSEEN } else { state.as_str() };
    let link = Link::field(&object, "status.provisioning.state", word)
        .saying(text::sentence(&who_has(host)))
        .since(began);
    links.push(match text::state_action(state) {
        Some(action) if !host.is_detached() => link.waiting(action),
        _ => link,
    });
    links.extend(power_of(host, &object, status));
    let waiting: Vec<Link> = links.iter().filter(|it| it.waits).cloned().collect();
    if waiting.is_empty() {
        links.retain(|it| it.part == "status.provisioning.state");
    } else {
        links = waiting;
    }
    finished(&object, &host.metadata, links)
}

fn host_error(object: &Object, status: &BareMetalHostStatus) -> Option<Link> {
    let kind = status.error_type.as_ref().map(|it| it.as_str().to_owned());
    let is_wrong = status.operational_status == OperationalStatus::Error
        || !status.error_message.is_empty()
        || kind.is_some();
    let link = Link { reason: kind, ..Link::field(object, "status.operationalStatus", "error") }
        .since(status.last_updated.as_ref().map(|it| it.0))
        .saying(&status.error_message)
        .waiting(text::HOST_ERROR);
    is_wrong.then_some(link)
}

/// What `bmo-reboot` says, and without it who asks for the host to be off.
fn power_of(host: &BareMetalHost, object: &Object, status: &BareMetalHostStatus) -> Vec<Link> {
    let mut links = conditions(object, OF_HOST, |it| find(&status.conditions, it));
    let record = Record::of(&status.conditions);
    let progress = record.known().and_then(|it| it.progress.as_ref());
    for link in &mut links {
        let is_now = |it: &&RebootProgress| {
            let word = it.reason.as_str();
            link.part == ferrite::CONDITION_REBOOTING && link.reason.as_deref() == Some(word)
        };
        link.since = progress.filter(is_now).map(|it| it.since).or(link.since);
    }
    let requests = Requests::of(host.reboot_requests());
    let is_told = links.iter().any(|it| it.part == ferrite::CONDITION_REBOOTING && it.waits);
    if !requests.is_empty() && !is_told {
        let keys: Vec<&str> = requests.keys().collect();
        let link = Link::field(object, &text::annotation(metal3::REBOOT), "requested")
            .saying(text::asked_by(&keys))
            .waiting(text::HOLD_ACTION);
        links.push(link);
    }
    links
}

/// Who has a host, or for whom it is reserved.
pub(crate) fn who_has(host: &BareMetalHost) -> String {
    let reserved = reserved_for(host);
    match (consumer_machine(host), reserved) {
        (Some(machine), Some(owner)) => text::used_then_reserved(machine, &owner),
        (Some(machine), None) => text::used_by(machine),
        (None, Some(owner)) => text::reserved_for(&owner),
        (None, None) => host.spec.consumer_ref.as_ref().map_or_else(
            || text::FREE.to_owned(),
            |it| text::used_by_other(it.kind.as_deref(), it.name.as_deref()),
        ),
    }
}

/// For whom a host is or will be reserved.
pub(crate) fn reserved_for(host: &BareMetalHost) -> Option<String> {
    match (pending(host), Kept::of(host)) {
        (Some(Some(owner)), _) | (_, Some(Kept::For(owner))) => Some(owner.to_string()),
        (_, Some(Kept::ByLabel(label))) => Some(text::by_label(&label)),
        _ => None,
    }
}

/// The label that hosts for this owner share: what a host is or will be reserved by.
pub(crate) fn reservation_label(host: &BareMetalHost) -> Option<String> {
    match pending(host) {
        Some(verdict) => verdict.map(|it| it.label()),
        None => Kept::of(host).map(|it| it.label()),
    }
}

/// The label that a host will have once its machine gives it back, as far as its annotations say it.
pub(crate) fn pending_label(sketch: &Sketch) -> Option<String> {
    let (key, verdict) = sketch.metadata.annotations.get_key_value(ferrite::PENDING_RESERVATION)?;
    let annotations = Some([(key.clone(), verdict.clone())].into());
    let metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
    reservation_label(&BareMetalHost { metadata, ..BareMetalHost::default() })
}

/// When the operator began what it does, from the history that it keeps.
pub(crate) fn began(state: &ProvisioningState, history: &Value) -> Option<Timestamp> {
    let part = match state {
        ProvisioningState::Registering => "register",
        ProvisioningState::Inspecting => "inspect",
        ProvisioningState::Provisioning => "provision",
        ProvisioningState::Deprovisioning => "deprovision",
        _ => return None,
    };
    history.get(part)?.get("start")?.as_str()?.parse().ok()
}

/// The same of a host that was read whole.
pub(crate) fn began_of(host: &BareMetalHost) -> Option<Timestamp> {
    let status = host.status.as_ref()?;
    let history = serde_json::to_value(status.operation_history.as_ref()?).ok()?;
    began(&status.provisioning.state, &history)
}
