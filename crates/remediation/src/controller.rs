//! Watches, who is concerned by a change, and one pass over one request.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::capi::{Cluster, Machine, is_watched};
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::metal3::CachedHost;
use api_types::remediation::Metal3Remediation;
use controller_kit::engine::Reason as _;
use controller_kit::wakes::{Wakes, woken};
use controller_kit::watch::{self, Watched};
use controller_kit::{Kit, backoff, run};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::act::Pass;
use crate::config::Policy;
use crate::crowd::{self, Asking, Crowd};
use crate::decide::{decide, refused_at_first};
use crate::decision::{Act, Decision, Note};
use crate::error::Error;
use crate::interest::{Interest, Kind, Who};
use crate::leftover::Leftovers;
use crate::metrics::{Metrics, seconds};
use crate::observe::clusters::Clusters;
use crate::observe::{Held, Live, Sources};
use crate::pauses::Pauses;
use crate::reason::Reason;
use crate::request::{Group, Request};
use crate::seen::is_paused;
use crate::served;
use crate::told::Told;

mod tending;

use tending::{release, tend};

/// A pass is a few requests here and in the workload cluster; one that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(90);
/// Changes whose events wait to be sent, which is not done while a storm passes.
const MOST_EVENTS: usize = 10_000;
/// How often a pass is begun anew at once because somebody else wrote first.
const ANEW: u32 = 4;

/// What every pass shares.
pub struct Context {
    kit: Kit,
    policy: Policy,
    metrics: Metrics,
    from: Sources,
    interest: Interest,
    leftovers: Leftovers,
    crowd: Crowd,
    told: Told,
    wakes: Wake,
    begun: Instant,
    /// Events to be published: when hundreds of machines fail at once, hosts come first.
    events: Sender<Event>,
}

/// Notes about objects, each with the action that it belongs to.
type Event = (Vec<ObjectReference>, Vec<(Note, String)>);

/// Requests to look at.
struct Wake {
    ours: Wakes,
    upstream: Wakes,
}

impl Wake {
    fn send(&self, all: impl IntoIterator<Item = Who>) {
        for (ours, namespace, name) in all {
            let to = if ours { &self.ours } else { &self.upstream };
            to.send(&namespace, [name]);
        }
    }
}

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let served = tokio::select! {
        served = served::wait(&kit, policy.upstream_group) => served,
        () = kit.shutdown.requested() => return Ok(()),
    };
    tracing::info!(?served, "Found what the API server serves");
    if policy.upstream_group && served.upstream.is_none() {
        tracing::warn!("{}", served::NOTHING);
    }
    let config = watcher::Config::default();
    let ours: Watched<Metal3Remediation> = watch::namespaced(&kit, &config);
    let upstream: Option<Watched<UpstreamRemediation>> =
        served.upstream.map(|version| watch::namespaced_in(&kit, &config, &version));
    let hosts: Watched<CachedHost> = watch::namespaced(&kit, &config);
    let metals: Watched<Metal3Machine> =
        watch::namespaced_in(&kit, &config, &served.infrastructure);
    let machines: Watched<Machine> = watch::namespaced_in(&kit, &config, &served.core);
    let clusters: Watched<Cluster> = watch::namespaced_in(&kit, &config, &served.core);
    let mut broken = vec![
        ours.undecodable.clone(),
        hosts.undecodable.clone(),
        metals.undecodable.clone(),
        machines.undecodable.clone(),
        clusters.undecodable.clone(),
    ];
    broken.extend(upstream.as_ref().map(|it| it.undecodable.clone()));
    let (wake_ours, woken_ours) = Wakes::new();
    let (wake_upstream, woken_upstream) = Wakes::new();
    let (events, told) = mpsc::channel(MOST_EVENTS);
    let context = Arc::new(Context {
        from: Sources {
            client: kit.client.clone(),
            served,
            hosts: hosts.store.clone(),
            machines: machines.store.clone(),
            metals: metals.store.clone(),
            clusters: clusters.store.clone(),
            workloads: Clusters::new(kit.client.clone()),
            held: Held::default(),
            ours: ours.store.clone(),
            upstream: upstream.as_ref().map(|it| it.store.clone()),
            pauses: Pauses::default(),
        },
        kit: kit.clone(),
        policy: policy.clone(),
        metrics,
        interest: Interest::default(),
        leftovers: Leftovers::default(),
        crowd: Crowd::default(),
        told: Told::default(),
        wakes: Wake { ours: wake_ours, upstream: wake_upstream },
        begun: Instant::now(),
        events,
    });

    let feeds = async {
        tokio::select! {
            () = watch::feed(hosts.changes, |it| context.host_changed(it)) => "BareMetalHosts",
            () = watch::feed(metals.changes, |it| context.changed(Kind::Metal, it)) => "Metal3Machines",
            () = watch::feed(machines.changes, |it| context.machine_changed(it)) => "Machines",
            () = watch::feed(clusters.changes, |it| context.cluster_changed(it)) => "Clusters",
        }
    };
    let loop_of_ours = Controller::for_stream(ours.changes, ours.store)
        .reconcile_on(woken(woken_ours, ()))
        .reconcile_all_on(kit.allowed());
    let drive_ours = run::drive(
        &kit,
        loop_of_ours,
        context.clone(),
        DEADLINE,
        |it: Arc<Metal3Remediation>, context: Arc<Context>| {
            reconcile(Request::of_ours(&it), context.is_ours(&it.metadata), context)
        },
        Error::class,
    );
    let drive_upstream = async {
        let (Some(upstream), Some(version)) = (upstream, served.upstream) else {
            drop(woken_upstream);
            return kit.shutdown.requested().await;
        };
        let requests = Controller::for_stream_with(upstream.changes, upstream.store, version)
            .reconcile_on(woken(woken_upstream, version))
            .reconcile_all_on(kit.allowed());
        run::drive(
            &kit,
            requests,
            context.clone(),
            DEADLINE,
            |it: Arc<UpstreamRemediation>, context: Arc<Context>| {
                reconcile(Request::of_upstream(&it), context.is_ours(&it.metadata), context)
            },
            Error::class,
        )
        .await;
    };
    tokio::select! {
        _ = async { tokio::join!(drive_ours, drive_upstream) } => Ok(()),
        kind = feeds => Err(format!("The watch on {kind} ended")),
        never = tend(&context, &broken) => match never {},
        () = publish(&context, told) => Err("The queue of events closed: this is a bug, please report it".to_owned()),
        changed = served::changes(&kit, policy.upstream_group, served) => Err(changed),
    }
}

impl Context {
    fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        is_watched(metadata, self.policy.watch_filter.as_deref())
    }

    fn changed(&self, kind: Kind, object: &impl kube::ResourceExt) {
        let namespace = object.namespace().unwrap_or_default();
        self.wakes.send(self.interest.concerned(kind, &namespace, &object.name_any()));
    }

    fn host_changed(&self, host: &CachedHost) {
        let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
        let now = self.from.hosts.get(&ObjectRef::new(&name).within(&namespace));
        let now = now.as_ref().map(|it| &***it);
        let filter = self.policy.watch_filter.as_deref();
        self.from.held.update(&namespace, &name, now, filter);
        self.changed(Kind::Host, host);
    }

    fn machine_changed(&self, machine: &Machine) {
        let (namespace, name) = (machine.namespace().unwrap_or_default(), machine.name_any());
        let key = ObjectRef::new_with(&name, self.from.served.core).within(&namespace);
        let now = self.from.machines.get(&key);
        let filter = self.policy.watch_filter.as_deref();
        self.leftovers.update(&namespace, &name, now.as_deref(), filter);
        self.changed(Kind::Machine, machine);
    }

    fn cluster_changed(&self, cluster: &Cluster) {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let key = ObjectRef::new_with(&name, self.from.served.core).within(&namespace);
        if self.from.clusters.get(&key).is_none() {
            self.from.workloads.forget(&namespace, &name);
        }
        self.changed(Kind::Cluster, cluster);
    }

    /// Whether somebody paused a host, as far as the cache knows.
    fn is_host_paused(&self, namespace: &str, name: &str) -> bool {
        let host = self.from.hosts.get(&ObjectRef::new(name).within(namespace));
        host.is_some_and(|it| is_paused(&it))
    }

    /// Whether a Machine or its Cluster is paused, as far as the caches know.
    fn is_machine_paused(&self, namespace: &str, name: &str) -> bool {
        let key = |name: &str| ObjectRef::new_with(name, self.from.served.core).within(namespace);
        let Some(machine) = self.from.machines.get(&key(name)) else { return false };
        let key = ObjectRef::new_with(&machine.spec.cluster_name, self.from.served.core);
        let cluster = self.from.clusters.get(&key.within(namespace));
        api_types::capi::is_paused(&machine.metadata) || cluster.is_some_and(|it| it.is_paused())
    }

    /// The uids of all requests.
    fn known(&self) -> HashSet<String> {
        let ours = self.from.ours.state().into_iter().filter_map(|it| it.metadata.uid.clone());
        let upstream = self.from.upstream.iter().flat_map(Store::state);
        ours.chain(upstream.filter_map(|it| it.metadata.uid.clone())).collect()
    }

    /// Notes what a request looks at. Whether that is something else than before.
    fn note(&self, live: &Live) -> bool {
        let request = &live.seen.request;
        let mut what = vec![(Kind::Machine, request.machine().to_owned())];
        what.extend(live.seen.cluster_name().map(|it| (Kind::Cluster, it.to_owned())));
        let metal = live.machine.as_ref().and_then(crate::seen::Machine::metal);
        what.extend(metal.map(|it| (Kind::Metal, it.to_owned())));
        let host = live.seen.metal.as_ref().and_then(|it| it.host.clone());
        what.extend(host.map(|it| (Kind::Host, it)));
        what.extend(live.stray.as_ref().map(|it| (Kind::Host, it.name_any())));
        self.interest.set(&who(request), what)
    }

    /// Tells something that no condition says, once.
    fn warn(&self, live: &Live, reason: Reason, text: String) {
        if self.told.is_news(&live.seen.request.uid, &text, Instant::now()) {
            let number = live.seen.request.standing.retries;
            self.tell(live, vec![(Note { warning: true, reason, text }, action(number))]);
        }
    }

    /// Tells what happened, also in the log.
    fn announce(&self, live: &Live, decision: &Decision, notes: &[Note]) {
        let request = &live.seen.request;
        for note in notes {
            tracing::info!(
                object.namespace = request.namespace,
                object.name = request.name,
                reason = note.reason.as_str(),
                "{}",
                note.text
            );
        }
        let number = |note: &Note| decision.number(note, request.standing.retries);
        let told = notes.iter().map(|it| (it.clone(), action(number(it))));
        self.tell(live, told.collect());
    }

    fn tell(&self, live: &Live, notes: Vec<(Note, String)>) {
        if notes.is_empty() {
            return;
        }
        let request = &live.seen.request;
        let mut about = Vec::new();
        about.extend(live.machine.as_ref().map(|it| it.object_ref(&self.from.served.core)));
        about.extend(live.host.as_ref().map(|it| it.object_ref(&())));
        about.push(ObjectReference {
            api_version: Some(request.group.api_version()),
            kind: Some("Metal3Remediation".to_owned()),
            namespace: Some(request.namespace.clone()),
            name: Some(request.name.clone()),
            uid: Some(request.uid.clone()),
            ..ObjectReference::default()
        });
        // What has no room is not told: the conditions and the record on the host have it.
        let _ = self.events.try_send((about, notes));
    }
}

/// What tells two events of one reason apart is the try.
fn action(number: u32) -> String {
    format!("Remediate{number}")
}

/// Publishes events, one after the other.
async fn publish(context: &Context, mut told: Receiver<Event>) {
    let kit = &context.kit;
    while let Some((about, notes)) = told.recv().await {
        context.crowd.passed().await;
        for (note, action) in &notes {
            let reason = note.reason.as_str();
            for object in &about {
                kit.events.tell(object, note.warning, reason, action, &note.text).await;
            }
        }
    }
}

fn who(request: &Request) -> Who {
    (request.group == Group::Ours, request.namespace.clone(), request.name.clone())
}

/// One pass over a request. Somebody who writes at the same time is no reason to let a machine wait.
async fn reconcile(
    request: Request,
    is_ours: bool,
    context: Arc<Context>,
) -> Result<Action, Error> {
    // What was begun here may have lost its label since.
    if !is_ours && !request.finalizer {
        return Ok(Action::await_change());
    }
    if request.deleting.is_none() && context.crowd.holds_back(&request.uid, Instant::now()) {
        return Ok(Action::requeue(context.crowd.later()));
    }
    let mut now = Timestamp::now();
    context.from.pauses.begin(now);
    context.from.pauses.look(Instant::now(), now);
    let mut known = context.from.from_caches(&request);
    // What changed before it was noted that this request looks at it has woken nobody.
    while context.note(&known) {
        known = context.from.from_caches(&request);
    }
    let mut decision = decide(&known.seen, &context.policy, now);
    let paused = decision.reason == Reason::Paused;
    if let Some(ended) = context.from.pauses.note(&request.uid, paused, now) {
        known.seen.resumed = Some(ended);
        decision = decide(&known.seen, &context.policy, now);
    }
    if decision.needs_node {
        let load = decision.reason == Reason::Fencing;
        context.from.look_at_node(&mut known, load).await;
        now = Timestamp::now();
        decision = decide(&known.seen, &context.policy, now);
    }
    if decision.acts.is_empty() {
        return Ok(end(&context, &decision));
    }
    let mut asking = decision.is_beginning().then(|| context.crowd.enter());
    if asking.is_some() {
        // Those that were woken together are counted together.
        tokio::task::yield_now().await;
    }
    known.seen.crowded = asking.as_ref().is_some_and(Asking::is_crowded);
    if decision.is_following() && context.crowd.is_here() && is_fresh(&known, now) {
        return Ok(Action::requeue(context.crowd.later()));
    }
    // In a crowd each read before a key keeps others waiting too, and the versions prove most of it.
    let proven = known.seen.crowded;
    let host = known.host.as_ref().map(|it| it.name_any());
    let mut live = if proven { Some(known) } else { Box::pin(context.from.live(&known)).await? };
    for round in 0..ANEW {
        let Some(seen) = live.take() else {
            if let Some(host) = host {
                // The key may have been the first write, and the request gone before the second.
                release(&context, &request.uid, &request.namespace, &host).await?;
            }
            return Ok(Action::await_change());
        };
        let (request, result) = Box::pin(work(&context, seen, asking.take())).await;
        match result {
            Err(Error::Superseded) if round + 1 < ANEW => {
                context.metrics.superseded();
                let pause = Duration::from_millis(10 << round);
                tokio::time::sleep(pause.mul_f64(0.5 + backoff::random_unit())).await;
                let known = context.from.from_caches(&request);
                live = Box::pin(context.from.live(&known)).await?;
            }
            done => return done,
        }
    }
    Err(Error::Superseded)
}

/// Whether the host was asked a moment ago.
fn is_fresh(live: &Live, now: Timestamp) -> bool {
    let host = live.seen.host.as_ref();
    let open = host.and_then(|it| it.history.open(&live.seen.request.uid));
    open.is_some_and(|it| seconds(it.asked, now) < crowd::LONGEST.as_secs_f64())
}

/// Decides on what was read, and does it.
async fn work(
    context: &Context,
    mut live: Live,
    mut asking: Option<Asking<'_>>,
) -> (Request, Result<Action, Error>) {
    let request = live.seen.request.clone();
    context.note(&live);
    let mut now = Timestamp::now();
    let mut decision = decide(&live.seen, &context.policy, now);
    if decision.needs_node {
        let load = decision.reason == Reason::Fencing;
        context.from.look_at_node(&mut live, load).await;
        now = Timestamp::now();
        decision = decide(&live.seen, &context.policy, now);
    }
    tracing::debug!(
        object.namespace = request.namespace,
        object.name = request.name,
        reason = decision.reason.as_str(),
        acts = ?decision.acts,
        "Decided"
    );
    let cluster = live.seen.cluster_name().unwrap_or_default().to_owned();
    let client = context.kit.client.clone();
    let mut pass = Pass::new(client, context.from.served, live);
    let mut put_off = false;
    for act in &decision.acts {
        if !context.kit.may_act() {
            return (request, Ok(Action::await_change()));
        }
        if let Err(error) = pass.act(act).await {
            if matches!(act, Act::Settled) && request.deleting.is_some() && error.is_refusal() {
                // A condition of somebody else's object is not worth a request that never goes.
                tracing::warn!(object.namespace = request.namespace, object.name = request.name, %error, "The Machine keeps the condition that it waits for remediation");
                continue;
            }
            // A node that is back and from which our marks cannot be taken is back all the same: not to ask for it any more
            // could end in another power cycle. Not so once it is withdrawn, which has its deadline.
            let gives_back = request.deleting.is_none()
                && matches!(decision.reason, Reason::Recovered | Reason::Recovering)
                && matches!(act, Act::Untaint | Act::Restore(_));
            if let Error::Workload { what, why, refused } = &error
                && !gives_back
            {
                // From now on the node, or all of its cluster, counts as one that cannot be asked, which has a deadline.
                let why = format!("the workload cluster {cluster} did not let us {what}: {why}");
                let (workloads, namespace) = (&context.from.workloads, &request.namespace);
                match pass.live().seen.node_name().filter(|_| *refused) {
                    Some(node) => workloads.refused(namespace, &cluster, node, &why),
                    None => workloads.failed(namespace, &cluster, &why),
                }
            }
            if error.is_refusal() {
                let text = format!(
                    "A write that this remediation needs is refused; it is retried until it is allowed: {error}"
                );
                let first = refused_at_first(&pass.live().seen.request, text.clone());
                context.warn(pass.live(), Reason::Refused, text);
                if let Some(said) = first
                    && let Err(error) = pass.act(&said).await
                {
                    tracing::debug!(object.namespace = request.namespace, object.name = request.name, %error, "Could not say so either");
                }
            }
            context.announce(pass.live(), &decision, decision.notes_despite(act));
            return (request, Err(error));
        }
        if matches!(act, Act::Host(_)) && asking.take().is_some() && context.crowd.is_here() {
            // The others' hosts come first; what is left is found again.
            context.crowd.put_off(&request.uid, Instant::now());
            put_off = true;
            break;
        }
    }
    if let Some(writers) = pass.writers() {
        let text = format!(
            "Several controllers write the status of this request ({writers}): CAPM3's own remediation must not run beside this one"
        );
        context.warn(pass.live(), Reason::Contested, text);
    }
    context.metrics.done(&pass.live().seen, &decision, now);
    context.announce(pass.live(), &decision, &decision.notes);
    let next = end(context, &decision);
    (request, Ok(if put_off { Action::requeue(context.crowd.later()) } else { next }))
}

fn end(context: &Context, decision: &Decision) -> Action {
    context.metrics.decided(decision.reason);
    // A little more, so that what began together does not come back together; and never before the second is over
    // that times are stored in.
    decision.again.map_or_else(Action::await_change, |wait| {
        Action::requeue(wait.mul_f64(1.0 + backoff::random_unit() / 10.0))
    })
}
