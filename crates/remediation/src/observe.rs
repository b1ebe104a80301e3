//! All reads. Caches say whether anything is to be done; before it is done, the objects concerned are read live.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::capi::{self, Cluster};
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::remediation::Metal3Remediation;
use api_types::time::until;
use controller_kit::engine::{Class, Error, ObjectKey};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::Api;

use crate::context::{Context, Role};
use crate::decide::decide;
use crate::decision::Decision;
use crate::history::{Entry, History};
use crate::model::{
    Ahead, ClusterSeen, Key, LeftBehind, Live, Memory, Metal, Observed, RequestKey, Seen,
};
use crate::reason::Reason;
use crate::request::{Group, Request};
use crate::seen::{Host, Machine, NodeSeen, is_paused};
use crate::settings::Policy;
use crate::turns::{Asking, Try, is_about_to_begin};

pub mod node;
mod object;

use crate::watched::NodeWatch;
use object::by_name;

const HOST: &str = "read the BareMetalHost";
const CLUSTER: &str = "read the Cluster";
const MACHINE: &str = "read the Machine";
const METAL: &str = "read the Metal3Machine";

/// Reads what a decision about a request needs; nothing, if it is gone or nobody's. The turn of a control plane stays with a request
/// that is about to begin, until its writes are answered.
pub async fn request(
    context: &Context,
    key: &RequestKey,
    memory: &mut Memory,
) -> Result<Option<Live>, Error> {
    let live = Box::pin(read(context, key, memory)).await?;
    let begins = |it: &Live| decide(&it.seen, &context.policy, it.at).sets_key();
    if !live.as_ref().is_some_and(begins) {
        context.turns.end(&memory.uid);
    }
    Ok(live)
}

async fn read(
    context: &Context,
    key: &RequestKey,
    memory: &mut Memory,
) -> Result<Option<Live>, Error> {
    let Some(request) = context.request(key) else { return Ok(None) };
    // What was begun here may have lost its label since.
    if !context.policy.selects(&request) && !request.finalizer {
        return Ok(None);
    }
    if memory.uid != request.uid {
        // Of a request that was replaced under its name nobody else hears.
        context.turns.end(&memory.uid);
    }
    memory.about(&request.uid);
    let now = Timestamp::now();
    context.clock.with(|clock| {
        clock.begin(now);
        clock.look(Instant::now(), now);
    });
    let mut known = from_caches(context, Some(key), request);
    known.seen.member = first_member(context, &known, false).await?;
    let paused = decide(&known.seen, &context.policy, now).reason == Reason::Paused;
    memory.pause.note(paused, now);
    mark(context, &mut known.seen, memory);
    let decided = settle(context, &mut known).await;
    watch_node(context, key, &known, memory).await;
    if decided.acts.is_empty() {
        return Ok(Some(known));
    }
    // A version that is insisted on before anything else is written proves as much as another read.
    let is_proven = !std::mem::take(&mut memory.behind) && decided.proves_request_and_host();
    if is_proven {
        let Some(mut live) = Box::pin(live(context, &known, true)).await? else { return Ok(None) };
        if again(context, &mut live, &mut known, memory).await?.proves_request_and_host() {
            return Ok(Some(live));
        }
    }
    let Some(mut live) = Box::pin(live(context, &known, false)).await? else { return Ok(None) };
    again(context, &mut live, &mut known, memory).await?;
    Ok(Some(live))
}

/// What is decided on what was read live. A node that was looked at before is not looked at once more where nothing else is new.
async fn again(
    context: &Context,
    live: &mut Live,
    known: &mut Live,
    memory: &Memory,
) -> Result<Decision, Error> {
    mark(context, &mut live.seen, memory);
    live.seen.member = first_member(context, live, false).await?;
    let node = std::mem::replace(&mut known.seen.node, NodeSeen::NotAsked);
    if live.seen == known.seen {
        (live.seen.node, live.place) = (node, known.place.take());
    }
    let decision = settle(context, live).await;
    if !decision.sets_key() {
        return Ok(decision);
    }
    live.seen.member = first_member(context, live, true).await?;
    Ok(settle(context, live).await)
}

/// While a node is awaited it is watched, where its cluster allows that.
async fn watch_node(context: &Context, key: &RequestKey, live: &Live, memory: &mut Memory) {
    let seen = &live.seen;
    let is_asked = matches!(seen.node, NodeSeen::Here(_) | NodeSeen::Gone);
    let (Some(node), Some(cluster)) = (seen.node_name(), seen.cluster_name()) else { return };
    let watch = memory.watch.take().filter(|it| it.is_of(cluster, node) && it.is_going_on());
    if watch.is_some() || !is_asked || seen.request.standing.awaits_node().is_none() {
        memory.watch = watch;
        return;
    }
    let Some(workload) = seen.workload() else { return };
    let Ok(client) = context.workloads.client(&workload).await else { return };
    let (lookout, key) = (context.lookout.clone(), Key::Request(key.clone()));
    let tell = move || lookout.enqueue(key.clone(), Class::Normal);
    let version = live.place.as_ref().and_then(|it| it.object.resource_version());
    memory.watch =
        NodeWatch::begin(&context.watches, (cluster, node), Api::all(client), version, tell);
}

/// What is decided on what was read. The node is looked at where nothing can be said without.
async fn settle(context: &Context, live: &mut Live) -> Decision {
    live.at = Timestamp::now();
    let decision = decide(&live.seen, &context.policy, live.at);
    if !decision.needs_node {
        return decision;
    }
    look_at_node(context, live, decision.reason == Reason::Fencing).await;
    live.at = Timestamp::now();
    decide(&live.seen, &context.policy, live.at)
}

/// Adds what no object of the request says.
fn mark(context: &Context, seen: &mut Observed, memory: &Memory) {
    (seen.resumed, seen.started) =
        context.clock.with(|clock| (clock.resumed(memory.pause), clock.started));
    seen.is_watched = memory.watch.as_ref().is_some_and(NodeWatch::is_going_on);
    let request = &seen.request;
    let of_name = ObjectKey::new(&request.namespace, &request.name);
    seen.rival = context.requests_for(&of_name).any(|it| it.group != request.group);
    let member = seen.machine.as_ref().filter(|it| it.control_plane);
    seen.only_member = member.is_some_and(|it| {
        other_members(context, &request.namespace, &it.cluster, &it.name).next().is_none()
    });
}

/// The Machines of a control plane but the one of this name.
fn other_members<'a>(
    context: &Context,
    namespace: &str,
    cluster: &'a str,
    name: &'a str,
) -> impl Iterator<Item = Arc<capi::Machine>> {
    let is_other = move |it: &Arc<capi::Machine>| {
        it.is_control_plane() && it.spec.cluster_name == cluster && it.name_any() != name
    };
    context.caches.machines.of_namespace(namespace).filter(is_other)
}

/// The member of the same control plane that goes first. With `begins` the turn is taken, and the hosts of the others are read after
/// that: two that are asked for some moments apart would otherwise each find the other one's host as it was before its key.
async fn first_member(context: &Context, own: &Live, begins: bool) -> Result<Option<Ahead>, Error> {
    let Some(machine) = own.machine.as_ref().filter(|it| it.is_control_plane()) else {
        return Ok(None);
    };
    let (name, request) = (machine.name_any(), &own.seen.request);
    let is_begun = own.seen.host.as_ref().is_some_and(|it| it.history.open(&request.uid).is_some());
    let has_turn = context.turns.has(&request.uid);
    let namespace = &request.namespace;
    let cluster = ObjectKey::new(namespace, &machine.spec.cluster_name);
    if begins && let Some(other) = context.turns.take(&cluster, &request.uid, &name) {
        return Ok(Some(Ahead::Trying(other)));
    }
    let others = other_members(context, namespace, &machine.spec.cluster_name, &name);
    let mut others: Vec<_> = others.collect();
    others.sort_by_key(|it| it.name_any());
    if let Some(broken) = context.caches.unread_member(&cluster, &others) {
        let ObjectReference { kind, name, .. } = broken.object;
        let (kind, name) = (kind.unwrap_or_default(), name.unwrap_or_default());
        return Ok(Some(Ahead::Unread { kind, name }));
    }
    let hosts = context.hosts(namespace);
    for other in &others {
        let host = context.caches.host_of(other);
        let host = match &host {
            Some(host) if begins => by_name(HOST, &hosts, host.name.as_str()).await?.map(Arc::new),
            Some(host) => context.caches.hosts.get(host),
            None => None,
        };
        let history = host.map(|it| History::of(&it)).unwrap_or_default();
        let requests: Vec<_> = context.requests_for(&ObjectKey::of(other.as_ref())).collect();
        let well = Machine::of(other).healthy == Some(true);
        let begun = Try::of(&history, &requests, well, Timestamp::now());
        let asking = Asking { is_begun, has_turn, comes_first: name < other.name_any() };
        let begins = || requests.into_iter().any(|it| is_about_to(context, it));
        if asking.waits_for(begun, begins) {
            return Ok(Some(Ahead::Trying(other.name_any())));
        }
    }
    Ok(None)
}

/// Whether a request is about to begin, as far as the caches know.
fn is_about_to(context: &Context, request: Request) -> bool {
    let seen = from_caches(context, None, request).seen;
    is_about_to_begin(&seen, &decide(&seen, &context.policy, Timestamp::now()))
}

/// What the caches know about a request, without its node. Whoever looks is told of changes.
fn from_caches(context: &Context, who: Option<&RequestKey>, request: Request) -> Live {
    let look = |role, name: Option<&str>| {
        if let Some(key) = who {
            context.looks.set(key, role, name);
        }
    };
    let (caches, namespace) = (&context.caches, request.namespace.clone());
    let of = |name: &str| ObjectKey::new(&namespace, name);
    look(Role::Machine, Some(request.machine()));
    let machine = caches.machines.named(&namespace, request.machine());
    let machine = machine.filter(|it| request.is_about(&it.metadata));
    let metal = machine.as_deref().and_then(Machine::metal);
    look(Role::Metal, metal);
    let metal = metal.and_then(|it| caches.metals.named(&namespace, it));
    let named = metal.as_ref().and_then(|it| it.host_name());
    let other = context.tries.with(|tries| tries.other(&request.uid, &namespace, named));
    look(Role::Host, named);
    look(Role::Stray, other.as_deref());
    let host = named.and_then(|it| caches.hosts.get(&of(it)));
    let stray = other.and_then(|it| caches.hosts.get(&of(&it)));
    let machine = machine.map(|it| (*it).clone());
    let cluster = cluster_of(machine.as_ref(), &request);
    look(Role::Cluster, cluster.as_deref());
    let cluster = cluster.and_then(|it| caches.clusters.named(&namespace, &it));
    let (cluster, metal) = (cluster.as_deref(), metal.as_deref());
    put_together(request, Read { machine, cluster, metal, host, stray })
}

/// The objects of a request, from the caches or as they are now.
#[derive(Default)]
struct Read<'a> {
    machine: Option<capi::Machine>,
    cluster: Option<&'a Cluster>,
    metal: Option<&'a Metal3Machine>,
    host: Option<Arc<CachedHost>>,
    stray: Option<Arc<CachedHost>>,
}

fn put_together(request: Request, read: Read<'_>) -> Live {
    let Read { machine, cluster, metal, host, stray } = read;
    // The cache of one kind may know of a key before the cache of another knows whose the host is.
    let own = host.as_ref().map(|it| it.name_any());
    let stray = stray.filter(|it| Some(it.name_any()) != own);
    let view =
        |host: &Option<Arc<CachedHost>>| host.as_ref().map(|it| Host::of(it, &request, metal));
    let (own, other) = (view(&host), view(&stray));
    let mut hosts = own.iter().chain(&other);
    if let Some(last) = hosts.find_map(|it| it.history.last(&request.uid)) {
        let uid = machine.as_ref().and_then(|it| it.metadata.uid.as_ref());
        if uid.is_some() && last.machine_uid.is_some() && last.machine_uid.as_ref() != uid {
            // Another has the name of the Machine that was asked about, which is gone with all that led to its host.
            return put_together(
                request,
                Read { cluster, stray: stray.or(host), ..Read::default() },
            );
        }
    }
    let seen = Observed {
        machine: machine.as_ref().map(Machine::of),
        // One that is on its way out has still Machines to clear up, which is not ours to hinder.
        member: None,
        only_member: false,
        cluster: cluster
            .map_or(ClusterSeen::Missing, |it| ClusterSeen::Here { paused: it.is_paused() }),
        metal: metal.map(|it| Metal {
            paused: capi::is_paused(&it.metadata),
            host: it.host_name().map(str::to_owned),
        }),
        host: own,
        stray: other,
        node: NodeSeen::NotAsked,
        is_watched: false,
        resumed: None,
        started: None,
        rival: false,
        request,
    };
    Live { seen, machine, host, stray, place: None, at: Timestamp::UNIX_EPOCH }
}

/// The same, read now: with `is_proven` all but request and host. Nothing if the request is gone, or another one of its name is
/// there.
async fn live(context: &Context, known: &Live, is_proven: bool) -> Result<Option<Live>, Error> {
    let request = &known.seen.request;
    let namespace = &request.namespace;
    let (machines, metals) = (context.machines(namespace), context.metals(namespace));
    let (clusters, hosts) = (context.clusters(namespace), context.hosts(namespace));
    let (cluster, metal, host) = leads(known);
    let stray = known.stray.as_ref().map(|it| it.name_any());
    let (now, machine, cluster, metal, host, stray) = tokio::try_join!(
        async {
            if is_proven {
                return Ok(Some(request.clone()));
            }
            request_named(context, request.group, namespace, &request.name).await
        },
        by_name(MACHINE, &machines, request.machine()),
        by_name(CLUSTER, &clusters, cluster.as_deref()),
        by_name(METAL, &metals, metal),
        async {
            match &known.host {
                Some(host) if is_proven => Ok(Some(host.clone())),
                _ => by_name(HOST, &hosts, host).await.map(|it| it.map(Arc::new)),
            }
        },
        by_name(HOST, &hosts, stray.as_deref()),
    )?;
    let Some(now) = now.filter(|it| it.uid == request.uid) else { return Ok(None) };
    let machine = machine.filter(|it| now.is_about(&it.metadata));
    let (cluster, metal, stray) = (cluster.as_ref(), metal.as_ref(), stray.map(Arc::new));
    let live = put_together(now, Read { machine, cluster, metal, host, stray });
    if leads(&live) != leads(known) {
        // Changed just now, as the caches are about to show. What was begun on the host is undone then.
        return Err(Error::Superseded);
    }
    Ok(Some(live))
}

/// What leads to the host of a request: the names of the Cluster, of the `Metal3Machine` and of the host.
fn leads(live: &Live) -> (Option<String>, Option<&str>, Option<&str>) {
    let (machine, metal) = (live.machine.as_ref(), live.seen.metal.as_ref());
    let cluster = cluster_of(machine, &live.seen.request);
    (cluster, machine.and_then(Machine::metal), metal.and_then(|it| it.host.as_deref()))
}

/// Looks at the node, which is known without its Machine as well. With `load`, also at what still runs there.
async fn look_at_node(context: &Context, live: &mut Live, load: bool) {
    let seen = &live.seen;
    let (request, machine) = (&seen.request, seen.machine.as_ref());
    let (Some(name), Some(cluster)) = (seen.node_name(), seen.workload()) else {
        live.seen.node = NodeSeen::NoName;
        return;
    };
    let sought = node::Sought {
        cluster: &cluster,
        name,
        provider_id: machine.and_then(|it| it.provider_id.as_deref()),
        request: &request.uid,
        adopted: seen.is_adopted(),
        is_there: &|uid| context.is_there(uid),
        load,
    };
    let (node, place) = node::look(&context.workloads, &sought).await;
    live.seen.node = node;
    live.place = place;
}

/// Looks whether a request that is gone holds a host off. Whose key it is, the record on the host says: a key without one is
/// not ours.
pub async fn orphan(context: &Context, key: &ObjectKey) -> Result<Option<Seen>, Error> {
    let gone = context.orphans(key);
    let Some(cached) = context.caches.hosts.get(key).filter(|it| !is_paused(it)) else {
        return Ok(None);
    };
    if gone.is_empty() {
        return left_behind(context, cached).await;
    }
    if let Some(wait) = too_early(context) {
        return Ok(Some(Seen::TooEarly(wait)));
    }
    let hosts = context.hosts(&key.namespace);
    let host = by_name(HOST, &hosts, key.name.as_str()).await?;
    let Some(host) = host.map(Arc::new) else { return Ok(None) };
    let history = History::of(&host);
    let mut soonest = None;
    for entry in gone.iter().filter_map(|uid| left_open(&host, &history, uid)) {
        let machine = ObjectKey::new(&key.namespace, &entry.machine);
        let uid = entry.remediation.clone();
        if context.is_unread(&machine, &uid) {
            let Some(wait) = hold_left(entry, &context.policy, Timestamp::now()) else { continue };
            if !wait.is_zero() {
                soonest = soonest.into_iter().chain([wait]).min();
                continue;
            }
        } else if is_really_asked_for(context, &machine, Some(&uid)).await? {
            // The caches are behind.
            continue;
        }
        let left = LeftBehind { host, uid, node: NodeSeen::NotAsked, place: None };
        return Ok(Some(Seen::Left(Box::new(left))));
    }
    Ok(soonest.map(Seen::TooEarly))
}

/// For how long a host is still held for a request that cannot be decoded: as long as for one whose status cannot be written. Nobody
/// else would let it go, and it would be off until a person corrects the request. Nothing, where it may come on already.
fn hold_left(entry: &Entry, policy: &Policy, now: Timestamp) -> Option<Duration> {
    let left = (policy.power_off + policy.fence).saturating_sub(until(entry.asked, now));
    entry.released.is_none().then_some(left)
}

/// Looks at the node that a request left when it could not be asked. Without this a node that is ready would stay out of service
/// for ever, and everything call that a success. With its Cluster the node is gone, and nobody could ever ask for it again.
async fn left_behind(context: &Context, host: Arc<CachedHost>) -> Result<Option<Seen>, Error> {
    let history = History::of(&host);
    let Some(entry) = history.tainted() else { return Ok(None) };
    let (Some(cluster), Some(node)) = (&entry.tainted, &entry.node) else { return Ok(None) };
    let cluster = ObjectKey::new(&ObjectKey::of(&*host).namespace, cluster);
    let uid = entry.remediation.clone();
    if is_cluster_gone(context, &cluster).await? {
        let left = LeftBehind { host, uid, node: NodeSeen::Gone, place: None };
        return Ok(Some(Seen::Left(Box::new(left))));
    }
    let sought = node::Sought {
        cluster: &cluster,
        name: node,
        provider_id: None,
        request: &entry.remediation,
        adopted: entry.adopted,
        is_there: &|uid| context.is_there(uid),
        load: false,
    };
    let (node, place) = node::look(&context.workloads, &sought).await;
    Ok(Some(Seen::Left(Box::new(LeftBehind { host, uid, node, place }))))
}

/// Whether a Cluster is gone. That the cache lacks it is not enough: what is given up for that is never looked for again.
async fn is_cluster_gone(context: &Context, cluster: &ObjectKey) -> Result<bool, Error> {
    if context.caches.clusters.get(cluster).is_some() {
        return Ok(false);
    }
    let clusters = context.clusters(&cluster.namespace);
    Ok(by_name(CLUSTER, &clusters, cluster.name.as_str()).await?.is_none())
}

/// The try of a request on a host that may be ended there. To a host that somebody paused nothing is written: when the pause
/// ends, the record is still open.
fn left_open<'a>(host: &BareMetalHost, history: &'a History, uid: &str) -> Option<&'a Entry> {
    history.open(uid).filter(|_| !is_paused(host))
}

/// Looks whether a Machine says something of a request that is gone: nobody else would take it back, and its owner could
/// replace it for that when it is well again. Machines of another watch filter are left to that installation.
pub async fn leftover(context: &Context, key: &ObjectKey) -> Result<Option<Seen>, Error> {
    let is_left = |it: &capi::Machine| !context.left_on(it).is_empty() && !context.is_paused(it);
    let cached = context.caches.machines.get(key);
    if !cached.is_some_and(|it| is_left(&it)) || context.is_asked_for(key) {
        return Ok(None);
    }
    if let Some(wait) = too_early(context) {
        return Ok(Some(Seen::TooEarly(wait)));
    }
    let machines = context.machines(&key.namespace);
    let machine = by_name(MACHINE, &machines, key.name.as_str()).await?.filter(is_left);
    let Some(machine) = machine else { return Ok(None) };
    let clusters = context.clusters(&key.namespace);
    let name = machine.spec.cluster_name.as_str();
    let cluster = by_name(CLUSTER, &clusters, name).await?;
    if cluster.is_some_and(|it| it.is_paused()) || is_really_asked_for(context, key, None).await? {
        return Ok(None);
    }
    Ok(Some(Seen::Leftover(Box::new(machine))))
}

/// How long it is still to be waited until a request that is not seen is gone.
fn too_early(context: &Context) -> Option<Duration> {
    context.served.complete_in(context.policy.upstream_group, context.begun.elapsed())
}

/// Whether there is a request for a Machine, of whichever group, by reading them; or whether the one of this uid is there.
async fn is_really_asked_for(
    context: &Context,
    machine: &ObjectKey,
    uid: Option<&str>,
) -> Result<bool, Error> {
    for group in context.groups() {
        let there = request_named(context, group, &machine.namespace, &machine.name).await?;
        if there.is_some_and(|it| uid.is_none_or(|uid| it.uid == uid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the request of that name, of whichever group.
async fn request_named(
    context: &Context,
    group: Group,
    namespace: &str,
    name: &str,
) -> Result<Option<Request>, Error> {
    let (what, client) = ("read the Metal3Remediation", context.kit.client.clone());
    match group {
        Group::Ours => {
            let api: Api<Metal3Remediation> = Api::namespaced(client, namespace);
            Ok(by_name(what, &api, name).await?.map(|it| Request::of_ours(&it)))
        }
        Group::Upstream(version) => {
            let api: Api<UpstreamRemediation> = Api::namespaced_with(client, namespace, &version);
            Ok(by_name(what, &api, name).await?.map(|it| Request::of_upstream(&it)))
        }
    }
}

fn cluster_of(machine: Option<&capi::Machine>, request: &Request) -> Option<String> {
    machine.map(|it| it.spec.cluster_name.clone()).or_else(|| request.cluster.clone())
}

#[cfg(test)]
mod tests {
    use api_types::names::ferrite::{PAUSED_BY_BMO_REBOOT, REMEDIATION_HISTORY};
    use api_types::names::metal3::PAUSED;
    use api_types::remediation::Metal3RemediationSpec;

    use super::*;

    fn host(name: &str) -> Arc<CachedHost> {
        let mut host = BareMetalHost::default();
        host.metadata.name = Some(name.to_owned());
        Arc::new(host.into())
    }

    /// A host with the record of one try for a Machine.
    fn tried(name: &str, machine: &str) -> Arc<CachedHost> {
        let mut entry = Entry::begin("uid", "m", 0, Timestamp::UNIX_EPOCH);
        entry.machine_uid = Some(machine.to_owned());
        let history = History(vec![entry]);
        let history = history.ended("uid", Reason::Recovered, Timestamp::UNIX_EPOCH);
        let mut host = BareMetalHost::default();
        host.metadata.name = Some(name.to_owned());
        let texts = [(REMEDIATION_HISTORY.to_owned(), history.text())];
        host.metadata.annotations = Some(texts.into());
        Arc::new(host.into())
    }

    fn by_a_person() -> Request {
        let mut object = Metal3Remediation::new("m", Metal3RemediationSpec::default());
        object.metadata.uid = Some("uid".to_owned());
        Request::of_ours(&object)
    }

    #[test]
    fn a_machine_that_was_made_anew_is_not_the_one_that_a_person_asked_about() {
        let machine: capi::Machine = serde_json::from_value(serde_json::json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "m", "uid": "now"},
            "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}},
        }))
        .unwrap();
        let seen = |own, stray| {
            let machine = Some(machine.clone());
            let read = Read { machine, host: own, stray, ..Read::default() };
            let live = put_together(by_a_person(), read);
            let left = live.seen.stray.as_ref().map(|it| it.name.clone());
            (live.machine.is_some(), live.host.is_some(), left)
        };
        let by = |machine| tried("h", machine);
        assert_eq!(seen(Some(by("now")), None), (true, true, None));
        let gone = (false, false, Some("h".to_owned()));
        assert_eq!(seen(Some(by("before")), None), gone);
        assert_eq!(seen(Some(host("another")), Some(by("before"))), gone, "on another host");
        assert_eq!(seen(Some(host("h")), None), (true, true, None), "nobody was asked about yet");
    }

    #[test]
    fn a_host_that_turns_out_to_be_the_machines_is_nobodys_stray() {
        let spec = Metal3RemediationSpec::default();
        let request = Request::of_ours(&Metal3Remediation::new("m", spec));
        let seen = |own, stray| {
            let read = Read { host: own, stray, ..Read::default() };
            let live = put_together(request.clone(), read);
            (live.host.is_some(), live.seen.host.is_some(), live.seen.stray.is_some())
        };
        assert_eq!(seen(Some(host("a")), Some(host("a"))), (true, true, false));
        assert_eq!(seen(Some(host("a")), Some(host("b"))), (true, true, true));
        assert_eq!(seen(None, Some(host("b"))), (false, false, true));
    }

    #[test]
    fn a_host_is_held_in_bounded_time_for_a_request_that_cannot_be_decoded() {
        let (at, policy) = (|it| Timestamp::from_second(it).unwrap(), Policy::default());
        let mut entry = Entry::begin("uid", "m", 0, at(100));
        let left = |entry: &Entry, now| hold_left(entry, &policy, at(now)).map(|it| it.as_secs());
        assert_eq!((left(&entry, 100), left(&entry, 819)), (Some(720), Some(1)));
        assert_eq!((left(&entry, 820), left(&entry, 9000)), (Some(0), Some(0)));
        entry.released = Some(at(200));
        assert_eq!(left(&entry, 9000), None, "it may be on, and its node is awaited");
    }

    #[test]
    fn what_a_request_that_is_gone_left_on_a_host_stays_there_while_somebody_pauses_the_host() {
        let goes = |pause: Option<&str>| {
            let mut host = BareMetalHost::default();
            let pause = pause.map(|by| (PAUSED.to_owned(), by.to_owned()));
            host.metadata.annotations = Some(pause.into_iter().collect());
            let history = History(vec![Entry::begin("uid", "m", 0, Timestamp::UNIX_EPOCH)]);
            left_open(&host, &history, "uid").is_some()
        };
        let pauses = [None, Some(""), Some("somebody"), Some(PAUSED_BY_BMO_REBOOT)];
        assert_eq!(pauses.map(goes), [true, false, false, true]);
    }
}
