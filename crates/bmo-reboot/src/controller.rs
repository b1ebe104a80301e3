//! Watches, wakes, and one pass over one host.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api_types::metal3::{BareMetalHost, CachedHost};
use controller_kit::wakes::{Wakes, woken};
use controller_kit::watch::{self, Complaints, Undecodable};
use controller_kit::{Kit, backoff};
use futures_util::StreamExt as _;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use tokio::sync::Notify;

use crate::act::{Done, act, complain};
use crate::config::Policy;
use crate::decide::{BUSY, decide};
use crate::decision::{Again, Decision, Note};
use crate::error::Error;
use crate::first_step::{self, First, first};
use crate::index::{Index, Name, NodeKey};
use crate::limits::{Ironic, Turn};
use crate::memory::{Memory, Watching, lasts, off_since};
use crate::metrics::Metrics;
use crate::observe;
use crate::poll::{self, Digest};
use crate::readings::Reading;
use crate::reason::Reason;
use crate::requests::Requests;
use crate::seen::{Host, Node, NodeSeen, Observed, Pause, Registration};

/// For all passes of one reconcile together: one that takes longer is tried again as soon as any that failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// [`PATIENCE`] ends a pass first, which is retried sooner than one that met this.
const DEADLINE: Duration = Duration::from_secs(150);
/// How often the owners of hosts that cannot be decoded are told of new ones.
const TICK: Duration = Duration::from_secs(2);
/// When a host that found too many waiting for a turn comes back. A turn takes a twentieth of that.
const TURN: Duration = Duration::from_secs(1);

/// What every pass shares.
pub struct Context {
    /// Handles of the process.
    pub kit: Kit,
    /// How decisions are made.
    pub policy: Policy,
    /// Ironic.
    pub ironic: Ironic,
    /// What is counted.
    pub metrics: Metrics,
    /// Hosts by node.
    pub index: Index,
    hosts: Store<CachedHost>,
    /// Boxed: a table of them has room for many that are not there.
    memory: Mutex<HashMap<Name, Box<Memory>>>,
    wakes: Wakes,
    /// Has all nodes listed now.
    pub(crate) list_wanted: Notify,
}

impl Context {
    pub(crate) fn memory(&self) -> MutexGuard<'_, HashMap<Name, Box<Memory>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object as decisions see it.
    pub fn view(&self, host: &BareMetalHost) -> Host {
        let mut host = Host::of(host, &self.policy);
        let name = (host.namespace.clone(), host.name.clone());
        host.shared_with = self.shared_with(&name, &host.node);
        host
    }

    fn shared_with(&self, name: &Name, node: &str) -> Option<String> {
        let other = self.index.other(name, node);
        other.map(|(namespace, name)| format!("{namespace}/{name}"))
    }

    /// Takes notice of what Ironic calls the node of a host; another host may name the same one differently.
    pub(crate) fn learn(&self, name: &Name, node: &str, names: &[NodeKey]) {
        for other in self.index.learn(name, node, names) {
            self.look_at(&other);
        }
    }

    /// Whether a fact about a host was not told by this process before.
    pub fn is_news(&self, host: &Host, about: &str, number: u64) -> bool {
        let mut memory = self.memory();
        let known = memory.get_mut(&(host.namespace.clone(), host.name.clone()));
        let known = known.filter(|known| known.uid == host.uid);
        known.is_none_or(|known| known.told.insert((about.to_owned(), number)))
    }

    /// Takes notice that Ironic has taken an off for those who hold this host by these requests.
    pub fn off_was_taken(&self, host: &Host, requests: &Requests) {
        let mut memory = self.memory();
        let known = memory.get_mut(&(host.namespace.clone(), host.name.clone()));
        if let Some(known) = known.filter(|known| known.uid == host.uid) {
            known.off_taken = Some(requests.holders_of(&host.node));
        }
    }

    /// Has a host looked at, whatever is remembered of it.
    pub fn look_at(&self, host: &Name) {
        let mut memory = self.memory();
        let known = memory.entry(host.clone()).or_default();
        known.rests = None;
        known.asked = true;
        drop(memory);
        self.wakes.send(&host.0, [host.1.clone()]);
    }

    /// Hosts whose next step is Ironic's.
    pub fn watching(&self) -> usize {
        self.memory().values().filter(|known| known.watching != Watching::No).count()
    }

    /// Whether those who wait should be looked at together.
    pub fn is_crowded(&self) -> bool {
        self.ironic.urgent.are_looked_at_together(self.watching())
    }

    /// Whether somebody is told by the lists alone of what Ironic does: also the last of a crowd.
    pub fn is_told_by_lists(&self) -> bool {
        let now = Instant::now();
        self.memory().values().any(|known| known.is_told_by_lists(now))
    }

    /// Whether hard requests wait for a list.
    pub fn is_list_awaited(&self) -> bool {
        let now = Instant::now();
        self.memory().values().any(|known| known.readings.is_awaited(now))
    }

    /// Whether what a list has shown of a host is no reason to look at it any more: a hard request of its is in the queue anyway,
    /// or a pass has looked at its node since then, or changed its power.
    pub fn needs_no_look(&self, host: &Name, listed: Instant) -> bool {
        self.ironic.urgent.has(host)
            || self.memory().get(host).is_some_and(|known| known.readings.is_overtaken(listed))
    }

    /// Takes notice of a list. Gives the hosts whose node is not as a pass last saw it.
    pub fn changed(&self, nodes: &poll::Nodes) -> Vec<Name> {
        let mut memory = self.memory();
        // A pass over a host that was deleted meanwhile remembers it after everybody has forgotten it.
        memory.retain(|(namespace, name), _| {
            self.hosts.get(&ObjectRef::new(name).within(namespace)).is_some()
        });
        let changed =
            memory.iter_mut().filter_map(|(name, known)| known.is_outdated(nodes).then_some(name));
        changed.cloned().collect()
    }
}

/// Works until the process is to end.
pub async fn run(kit: Kit, policy: Policy, settings: ironic::Settings) -> Result<(), String> {
    let client = ironic::Client::new(settings).map_err(|error| error.to_string())?;
    // All hosts, also those that are nobody's: a host that is taken away from us has to be given back.
    let watched = watch::namespaced::<CachedHost>(&kit, &watcher::Config::default());
    let metrics = Metrics::new(&kit.metrics.registry, watched.store.clone())
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let (wakes, woke) = Wakes::new();
    let context = Arc::new(Context {
        ironic: Ironic::new(client, &policy, usize::from(kit.config.concurrency)),
        metrics,
        index: Index::default(),
        hosts: watched.store.clone(),
        memory: Mutex::default(),
        wakes,
        list_wanted: Notify::new(),
        policy,
        kit: kit.clone(),
    });
    let indexing = context.clone();
    let changes = watched.changes.inspect(move |change| {
        if let Ok(host) = change {
            index(&indexing, host);
        }
    });
    let broken = [watched.undecodable];
    let controller = Controller::for_stream(changes, watched.store)
        .reconcile_on(woken(woke, ()))
        .reconcile_all_on(kit.allowed());
    let driving = controller_kit::run::drive(
        &kit,
        controller,
        context.clone(),
        DEADLINE,
        reconcile,
        Error::class,
    );
    tokio::select! {
        () = driving => {}
        never = poll::poll(&context) => match never {},
        never = tell_undecodable(&context, &broken) => match never {},
    }
    Ok(())
}

/// Tells the owners of hosts that cannot be decoded: nobody looks after their power.
async fn tell_undecodable(context: &Context, broken: &[Undecodable]) -> Infallible {
    let mut complaints = Complaints::default();
    loop {
        complaints.tell(&context.kit, broken).await;
        tokio::time::sleep(TICK).await;
    }
}

/// Takes notice of a host that appeared, changed or went.
fn index(context: &Context, host: &CachedHost) {
    let name = (host.namespace().unwrap_or_default(), host.name_any());
    let is_there = context.hosts.get(&ObjectRef::from_obj(host)).is_some();
    let seen = Host::of(host, &context.policy);
    let node = is_there.then_some(seen.node.as_str());
    for other in context.index.update(&name, node) {
        context.look_at(&other);
    }
    // Its own instance looks at it; here it would be waited for, for ever.
    let ours = is_there && !context.policy.is_anothers(host);
    let urgent = ours && seen.is_urgent(&context.policy);
    context.ironic.urgent.note(&name, urgent.then_some(seen.version.as_str()));
    let (mut memory, now) = (context.memory(), Instant::now());
    if !is_there {
        memory.remove(&name);
        return;
    }
    if urgent && !memory.contains_key(&name) {
        // Before any pass, so that the first list tells of it.
        let node = NodeKey::of(&seen.node);
        memory.insert(name.clone(), Box::new(Memory { node, ..Memory::new(&seen.uid, now) }));
    }
    if let Some(known) = memory.get_mut(&name) {
        known.readings.host_seen(&seen.version, now);
    }
}

/// One pass over one host.
pub async fn reconcile(host: Arc<CachedHost>, context: Arc<Context>) -> Result<Action, Error> {
    let name = (host.namespace().unwrap_or_default(), host.name_any());
    if context.policy.is_anothers(&host) {
        context.memory().remove(&name);
        return Ok(Action::await_change());
    }
    let cached = Host::of(&host, &context.policy);
    let was_ours = cached.managed().is_some() || cached.paused == Pause::ByUs;
    if !cached.selected && !was_ours {
        return Ok(Action::await_change());
    }
    let later = |wait| Action::requeue(spread(wait, backoff::random_unit()));
    let now = Instant::now();
    let rests = context.memory().get(&name).and_then(|known| known.rest(&cached.version, now));
    let rest = rests
        .or_else(|| waits_for_room(&context, &name, &cached).then(|| later(BUSY)))
        .or_else(|| waits_for_turn(&context, &name, &cached).then(|| later(TURN)))
        .or_else(|| is_settled(&context, &name, &host).then(Action::await_change));
    if let Some(rest) = rest {
        context.ironic.urgent.looked_at(&name, &cached.version);
        return Ok(rest);
    }
    if makes_way(&context, &name, &cached) {
        return Ok(later(Duration::from_secs(2)));
    }
    let first = first(&context, &name, &host, &cached);
    if matches!(first, First::Wait) {
        return Ok(later(first_step::GLANCE));
    }
    let passes = async {
        if let First::Step(seen, decision) = first {
            match carry_out(&context, &name, &seen, *decision).await {
                Err(Error::Superseded) if context.kit.may_act() => {}
                done => return done,
            }
        }
        // Somebody who writes at the same time is no reason to let a hard request wait.
        for _ in 0..3 {
            match pass(&context, &name, &cached).await {
                Err(Error::Superseded) if context.kit.may_act() => {}
                done => return done,
            }
        }
        pass(&context, &name, &cached).await
    };
    let done = tokio::time::timeout(PATIENCE, passes).await;
    context.ironic.urgent.looked_at(&name, &cached.version);
    done.map_err(|_| Error::Slow)?
}

/// Whether another instance, with another selector, has made a host its own that was let go here.
fn is_left_to_others(context: &Context, name: &Name, host: &Host) -> bool {
    let mut memory = context.memory();
    let Some(known) = memory.get_mut(name).filter(|known| known.is_anothers(host)) else {
        return false;
    };
    if known.is_to_be_warned() {
        tracing::warn!(
            object.namespace = host.namespace,
            object.name = host.name,
            "Another instance manages the power of this host, which --host-selector does not match here; it is left to \
             that one. Give the two instances namespaces or watch filters of their own"
        );
    }
    true
}

/// Whether the host lets a crowd of hard requests pass first.
fn makes_way(context: &Context, name: &Name, host: &Host) -> bool {
    let is_crowd = !context.ironic.urgent.let_pass(name, host.is_patient());
    let mut memory = context.memory();
    // With its identity, or the first pass would take it for another host's and forget how long it has waited.
    let new = || Box::new(Memory::new(&host.uid, Instant::now()));
    memory.entry(name.clone()).or_insert_with(new).makes_way(host, is_crowd, Instant::now())
}

/// Whether the host waits for room among the soft attempts, and there is none, or somebody has a hard request, be it one.
/// Then nothing is read: thousands of looks at hosts that can only wait would take Ironic's time from those that need it.
fn waits_for_room(context: &Context, name: &Name, host: &Host) -> bool {
    let (ironic, now) = (&context.ironic, Instant::now());
    host.waits_for_room()
        && (ironic.urgent.are_there() || !ironic.soft.has_room(&host.uid, now))
        && context.memory().get(name).is_some_and(|it| it.may_be_overlooked(&host.version, now))
}

/// Whether the host was sent away because too many wait for a turn, and they still do. Nothing is read then, either.
fn waits_for_turn(context: &Context, name: &Name, host: &Host) -> bool {
    context.ironic.turns.are_full()
        && context.memory().get(name).is_some_and(|it| it.waits_for_turn(&host.version))
}

/// Whether a decision on the status alone would do nothing. Then no pass is made: the poll compares all nodes in one list.
/// A node whose last reading differed from the status is excepted, since the poll only reports changes since that reading.
fn is_settled(context: &Context, name: &Name, host: &CachedHost) -> bool {
    let host = context.view(host);
    let power = if host.powered_on { ironic::Power::On } else { ironic::Power::Off };
    let node = Node {
        power,
        target: None,
        engaged: None,
        last_error: None,
        disable_power_off: false,
        registration: Registration::Done,
        changed: None,
        maintenance: false,
        off_since: Some(Timestamp::UNIX_EPOCH),
        off_taken: false,
    };
    // Ironic says the same as the host, if the operator has told it.
    let told = Digest::of(&Node { disable_power_off: host.disable_power_off, ..node.clone() });
    let mut memory = context.memory();
    if memory.get(name).is_some_and(|known| known.asked || known.knows_better(&host, power)) {
        return false;
    }
    let seen = Observed { host: Some(host), node: NodeSeen::Seen(node), soft_free: true };
    let decision = decide(&seen, &context.policy, Timestamp::now());
    let Some(host) = seen.host else { return false };
    let is_told = |note: &Note| {
        let known = memory.get(name).filter(|known| known.uid == host.uid);
        note.once.is_some_and(|number| {
            known.is_some_and(|known| known.told.contains(&(note.about.clone(), number)))
        })
    };
    let settled = decision.again == Again::OnChange
        && decision.notes.iter().all(is_told)
        && decision.call.is_none()
        && decision.annotations.is_empty()
        && decision.status.is_empty();
    if settled {
        let known = memory.entry(name.clone()).or_default();
        if known.uid != host.uid {
            **known = Memory::of(&host, Instant::now());
        }
        known.watching = Watching::No;
        let node = NodeKey::of(&host.node);
        let another = known.seen.is_none() || known.node != node;
        if host.needs_node(&context.policy) && another {
            known.seen = Some(told);
            known.node = node;
        }
    }
    settled
}

async fn pass(context: &Context, name: &Name, cached: &Host) -> Result<Action, Error> {
    let (namespace, host_name) = (&name.0, &name.1);
    let client = &context.kit.client;
    let (needed, now) = (cached.needs_node(&context.policy), Instant::now());
    let listed = context.memory().get_mut(name).and_then(|known| known.begins(cached, now));
    let listed = listed.filter(|_| needed);
    let (host, node) = if listed.is_some() {
        // That version is what the list is later than; a write insists on it, and a call on a write or another look.
        (Some(Host::clone(cached)), None)
    } else {
        // Both at once: somebody waits.
        let (host, node) = tokio::join!(observe::host(client, namespace, host_name), async {
            if needed {
                Some(observe::node(&context.ironic, &cached.node, cached.disable_power_off).await)
            } else {
                None
            }
        });
        let host = host?.filter(|host| !context.policy.is_anothers(host));
        (host.map(|host| context.view(&host)), node)
    };
    let Some(mut host) = host else {
        context.memory().remove(name);
        return Ok(Action::await_change());
    };
    if is_left_to_others(context, name, &host) {
        return Ok(Action::await_change());
    }
    // One that must stay on is read in another way.
    let alike = host.node == cached.node && host.disable_power_off == cached.disable_power_off;
    let mut began = now;
    let (mut node, mut names) = match (listed, node) {
        (Some(reading), _) => {
            began = reading.began;
            let names = NodeKey::of(&host.node).into_iter().chain(reading.also);
            (NodeSeen::Seen(reading.node()), names.collect())
        }
        (None, Some(read)) if alike => read,
        _ if host.needs_node(&context.policy) => {
            began = Instant::now();
            observe::node(&context.ironic, &host.node, host.disable_power_off).await
        }
        _ => (NodeSeen::NotAsked, Vec::new()),
    };
    let asked_for = host.node.clone();
    if node == NodeSeen::Missing && host.node != host.registered_as() {
        let by_name = host.registered_as();
        let read = observe::node(&context.ironic, &by_name, host.disable_power_off).await;
        if read.0 != NodeSeen::Missing {
            ((node, names), host.node) = (read, by_name);
        }
    }
    if matches!(node, NodeSeen::Seen(_) | NodeSeen::Missing) {
        context.learn(name, &asked_for, &names);
    }
    host.shared_with = context.shared_with(name, &host.node);
    let now = Timestamp::now();
    remember(context, name, &host, (&mut node, &names), (began, now));
    let soft_free = context.ironic.soft.has_room(&host.uid, Instant::now());
    let seen = Observed { host: Some(host), node, soft_free };
    let decision = decide(&seen, &context.policy, now);
    carry_out(context, name, &seen, decision).await
}

/// Does what was decided, and remembers what came of it.
async fn carry_out(
    context: &Context,
    name: &Name,
    seen: &Observed,
    decision: Decision,
) -> Result<Action, Error> {
    tracing::debug!(
        object.namespace = name.0,
        object.name = name.1,
        reason = decision.reason.as_str(),
        call = ?decision.call,
        again = ?decision.again,
        "Decided"
    );
    let Some(host) = &seen.host else { return Ok(Action::await_change()) };
    let reason = decision.reason;
    let done = match turn(context, &decision).await {
        Some(turn) => {
            let calls = turn.is_some();
            if calls && let Some(known) = context.memory().get_mut(name) {
                known.calls();
            }
            let done = act(context, host, &seen.node, decision, turn).await;
            if calls && let Some(known) = context.memory().get_mut(name) {
                known.readings.call_ended(Instant::now());
            }
            if let Err(error) = &done {
                complain(context, host, error).await;
            }
            done?
        }
        None => Done { version: host.version.clone(), again: Again::Turn },
    };
    let unit = backoff::random_unit();
    let in_crowd = context.is_crowded();
    let wait = match done.again {
        Again::Now => Some(Duration::ZERO),
        Again::After(wait) => Some(spread(wait, unit)),
        // The poll tells those that wait in a crowd.
        Again::Watch if in_crowd => Some(spread(Duration::from_secs(20), unit)),
        Again::Watch => Some(spread(Duration::from_millis(700), unit)),
        Again::Turn => Some(spread(TURN, unit)),
        Again::OnChange => None,
    };
    if let Some(known) = context.memory().get_mut(name) {
        known.lets_go(host, reason);
        // Its status says so from now on.
        known.off_taken = known.off_taken.filter(|_| reason != Reason::HeldOff);
        // What was written may be what another rule waited for, so its echo is looked at; a rest that was decided on
        // after a look that changed nothing is one.
        let wrote = done.version != host.version;
        let rests = !wrote || wait.is_some();
        let rests = rests.then(|| (done.version, wait.map(|wait| Instant::now() + wait)));
        known.ended(done.again, in_crowd, rests);
    }
    Ok(wait.map_or_else(Action::await_change, Action::requeue))
}

/// The turn for the call of a decision, if it makes one; nothing where too many wait. That a machine is on which everybody
/// takes for off is told with its call, and at once.
async fn turn(context: &Context, decision: &Decision) -> Option<Option<Turn>> {
    let Some(call) = decision.call else { return Some(None) };
    let tells_on = decision.status.powered_on == Some(true);
    context.ironic.turns.take(call, tells_on).await.map(Some)
}

/// A quarter more at most, so that hosts that failed together do not come back together. `unit` is from 0 to 1.
pub(crate) fn spread(wait: Duration, unit: f64) -> Duration {
    wait.mul_f64(1.0 + unit / 4.0)
}

/// Remembers the reading, which began then, and adds to it what earlier ones showed.
fn remember(
    context: &Context,
    name: &Name,
    host: &Host,
    (node, names): (&mut NodeSeen, &[NodeKey]),
    (began, now): (Instant, Timestamp),
) {
    let mut memory = context.memory();
    let moment = Instant::now();
    let known = memory.entry(name.clone()).or_default();
    if known.uid != host.uid {
        **known = Memory::new(&host.uid, moment);
    }
    known.forgets_told(host);
    known.rests = None;
    let was_asked = !matches!(node, NodeSeen::NotAsked);
    known.node = NodeKey::of(&host.node).filter(|_| was_asked);
    known.also = NodeKey::of(&host.registered_as()).filter(|_| *node == NodeSeen::Missing);
    known.seen = None;
    lasts(&mut known.silent_since, node, moment);
    let mut reading = None;
    if let NodeSeen::Seen(node) = node {
        let also = names.iter().copied().find(|it| Some(*it) != known.node);
        reading = Some(Reading::of(node, began, also));
        known.seen = Some(Digest::of(node));
        let off = node.power == ironic::Power::Off && node.target.is_none();
        let softly =
            host.progress().is_some_and(|progress| progress.reason == Reason::SoftPowerOff);
        let slice = context.policy.soft_slice;
        context.ironic.soft.notice(&host.uid, (softly, node.target), slice, moment);
        node.off_since = off_since(&mut known.off_since, off, (began, moment, now));
        node.off_taken = known.still_taken(host, node);
    } else {
        (known.off_since, known.off_taken) = (None, None);
    }
    known.readings.looked(reading, moment);
}
