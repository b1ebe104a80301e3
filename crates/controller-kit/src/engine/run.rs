//! Drives a controller: hands out its keys, gives each one pass at a time, and makes of every end when to look again.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{AbortHandle, Abortable, OptionFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus::{IntCounterVec, Registry};
use tokio::sync::Notify;

use super::decision::{Decision, Next, Now, Outcome};
use super::echoes::ECHO;
use super::error::{Error, Failing};
use super::fresh::Fresh;
use super::lanes::{self, Turns};
use super::memory::Cell;
use super::outbox::{self, Outbox};
use super::queue::{Class, Order, Queue, spread};
use super::reasons::Reason;
use super::slots::{Limits, Slots};
use super::waiting::Waiting;
use crate::backoff::{self, Class as RetryClass};
use crate::events::Event;
use crate::kit::Kit;
use crate::shared::Shared;
use crate::unread::{Broken, Undecodable};

/// A pass that takes longer leaves its place to others: something that it waits for does not answer.
const PASS_PATIENCE: Duration = Duration::from_secs(2);
/// So many slow passes may be under way for each regular one.
const SLOW_PASSES: usize = 8;
/// How often a pass begins afresh at once because somebody else wrote first.
const FRESH_STARTS: u32 = 3;
/// A loop that does not turn for this long is stuck.
const TURN: Duration = Duration::from_secs(30);

/// The rule book of a controller. The engine schedules, remembers, limits, retries and counts.
pub trait Controller: Sync {
    /// What is looked at, one pass at a time.
    type Key: Clone + Debug + Hash + Ord + Send + Sync + 'static;
    /// What one pass knows, as plain data.
    type Observed: Send + Sync;
    /// One write. It carries the version that was decided upon.
    type Write: Debug + Send;
    /// What the process remembers of a key between two passes; all of it can be forgotten.
    type Memory: Default + PartialEq + Send;
    /// Why something is decided.
    type Reason: Reason;

    /// All keys: they are looked at when acting becomes possible.
    fn keys(&self) -> Vec<Self::Key>;

    /// How urgent a look at a key is.
    fn class(&self, _key: &Self::Key) -> Class {
        Class::Normal
    }

    /// How an error is retried.
    fn retry(&self, error: &Error) -> RetryClass {
        error.retry()
    }

    /// The version of the key's object that is decided upon, if it has one.
    fn version<'s>(&self, _seen: &'s Self::Observed) -> Option<&'s str> {
        None
    }

    /// The object of a key, for events.
    fn object(&self, key: &Self::Key) -> ObjectReference;

    /// All objects on which the events of a pass are told, by what it has seen, if it was able to read that: the key's own, unless
    /// people look for them elsewhere as well.
    fn told_on(&self, key: &Self::Key, _seen: Option<&Self::Observed>) -> Vec<ObjectReference> {
        vec![self.object(key)]
    }

    /// An object that is watched cannot be decoded: has looked at what that concerns, and says what its owner is told.
    fn unread(&self, broken: &Broken) -> String {
        broken.complaint()
    }

    /// All reads. Nothing, if the key is nobody's or gone: what is remembered of it is forgotten then.
    fn observe(
        &self,
        key: &Self::Key,
        memory: &mut Self::Memory,
    ) -> impl Future<Output = Result<Option<Self::Observed>, Error>> + Send;

    /// The rules. Pure and total.
    fn decide(&self, seen: &Self::Observed, now: Now) -> Decision<Self::Write, Self::Reason>;

    /// One write, with its precondition.
    fn write(
        &self,
        key: &Self::Key,
        seen: &Self::Observed,
        write: Self::Write,
        memory: &mut Self::Memory,
    ) -> impl Future<Output = Result<Outcome, Error>> + Send;
}

/// Has keys looked at. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Lookout<K: Ord> {
    lines: Arc<Shared<Lines<K>>>,
    changed: Arc<Notify>,
}

/// Keys that wait, and what of them is known already.
#[derive(Debug)]
struct Lines<K: Ord> {
    queue: Queue<K>,
    fresh: Fresh<K>,
}

impl<K: Clone + Ord> Lines<K> {
    /// A pass has ended: with a decision on this version of the key's object, which it wrote or not, or without any.
    fn ended(&mut self, key: &K, version: Option<&str>, wrote: bool) {
        let ended = self.fresh.ended(key, version, wrote);
        if ended.answered {
            self.queue.cancel(key);
        }
        if ended.stale {
            self.queue.hold(key, Instant::now() + ECHO);
        }
        self.queue.done(key);
    }
}

impl<K: Ord> Default for Lookout<K> {
    fn default() -> Self {
        let lines = Lines { queue: Queue::default(), fresh: Fresh::default() };
        Self { lines: Arc::new(Shared::new(lines)), changed: Arc::default() }
    }
}

impl<K: Clone + Ord> Lookout<K> {
    /// Has a key looked at as soon as its class allows.
    pub fn enqueue(&self, key: K, class: Class) {
        self.enqueue_after(key, class, Duration::ZERO);
    }

    /// The same after some time, or sooner where somebody else wants it sooner.
    pub fn enqueue_after(&self, key: K, class: Class, wait: Duration) {
        self.lines.with(|lines| {
            lines.fresh.asked(&key);
            lines.queue.enqueue(key, class, Instant::now() + wait);
        });
        self.changed.notify_one();
    }

    /// The same because a watch tells of this version of the key's object. Our own writes are no news; says whether it is.
    pub fn changed(&self, key: &K, version: &str, class: Class) -> bool {
        let mut lines = self.lines.lock();
        let news = lines.fresh.is_news(key, version);
        if news {
            lines.queue.enqueue(key.clone(), class, Instant::now());
        }
        // The cache shows what the last pass wrote.
        if lines.fresh.is_fresh(key) {
            lines.queue.release(key);
        }
        self.changed.notify_one();
        news
    }

    /// The key's object is gone: another one may be made under its name.
    pub fn gone(&self, key: K) {
        self.lines.lock().fresh.forget(&key);
        self.enqueue(key, Class::Normal);
    }
}

/// How a pass ended.
enum End<R> {
    /// There is nothing to look at any more.
    Gone,
    /// This process may not act: whoever may looks at everything.
    NotActing,
    /// Why, when to look again, the version that needs no look before, and whether a write of the pass left it.
    Decided(R, Next, Option<String>, bool),
    /// Why, and when something else is due.
    Failed(Error, Option<Duration>),
    TimedOut,
}

/// The key of a pass that has ended, what is remembered of it, and how.
type Ended<C> =
    (<C as Controller>::Key, Cell<<C as Controller>::Memory>, End<<C as Controller>::Reason>);

/// Drives a controller until the process is asked to end. `watching` keeps its caches fed and tells the lookout of what
/// changes; `deadline` bounds each pass.
///
/// # Errors
/// When its metrics cannot be registered, or a watch ends.
pub async fn run<C: Controller>(
    kit: &Kit,
    controller: &C,
    lookout: &Lookout<C::Key>,
    watching: impl Future<Output = ()>,
    deadline: Duration,
) -> Result<(), String> {
    let name = kit.config.controller;
    let regular = usize::from(kit.config.concurrency).max(1);
    let waiting = Waiting::register::<C::Reason>(name, &kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let (outbox, events) = Outbox::new(waiting.dropped.clone());
    let publishing = outbox::publish(events, &kit.events);
    let mut engine = Engine {
        kit,
        controller,
        outbox,
        lookout,
        slots: Slots::new(Limits { regular, slow: regular * SLOW_PASSES, patience: PASS_PATIENCE }),
        memory: BTreeMap::new(),
        failures: BTreeMap::new(),
        conflicts: BTreeMap::new(),
        waiting,
        waits: Arc::default(),
        acting_since: Instant::now(),
    };
    let waits = engine.waits.clone();
    let mut passes = FuturesUnordered::new();
    let (mut conditions, mut leadership) = (kit.readiness.subscribe(), kit.leadership.subscribe());
    pin_mut!(watching, publishing);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut acted = false;
    loop {
        // What changed while nothing was to be written was not acted on.
        let acts = kit.may_act();
        if acts && !acted {
            controller.keys().into_iter().for_each(|key| engine.again(key, Some(Duration::ZERO)));
            engine.acting_since = Instant::now();
        }
        acted = acts;
        engine.make_room();
        while let Some(pass) = engine.next(deadline) {
            passes.push(pass);
        }
        kit.metrics.active.set(i64::try_from(passes.len()).unwrap_or(i64::MAX));
        let due = engine.next_at().map(|at| tokio::time::sleep_until(at.into()));
        let due = OptionFuture::from(due);
        tokio::select! {
            _ = tick.tick() => {
                kit.liveness.beat("controller", TURN);
                engine.complain();
            }
            () = lookout.changed.notified() => {}
            () = waits.notified() => {}
            Some(()) = due => {}
            _ = conditions.changed() => {}
            _ = leadership.changed() => {}
            Some(ended) = passes.next() => {
                if let Ok(ended) = ended {
                    engine.ended(ended);
                }
            }
            () = &mut publishing => {}
            () = &mut watching => return Err("A watch ended".to_owned()),
            () = kit.shutdown.requested() => break,
        }
    }
    // What is under way may still end; the process gives it a moment and then drops it.
    while passes.next().await.is_some() {}
    drop(engine);
    publishing.await;
    kit.liveness.done("controller");
    Ok(())
}

/// Registers what the engine counts for a controller: for the reference, which needs no running one.
///
/// # Errors
/// When the registry has metrics of these names.
pub fn register<R: Reason>(controller: &str, registry: &Registry) -> Result<(), prometheus::Error> {
    Waiting::<()>::register::<R>(controller, registry).map(drop)
}

struct Engine<'a, C: Controller> {
    kit: &'a Kit,
    controller: &'a C,
    outbox: Outbox,
    lookout: &'a Lookout<C::Key>,
    slots: Slots<C::Key, Pass>,
    /// A pass takes the cell of its key out and puts it back, so nobody else sees it meanwhile and no lock is held.
    memory: BTreeMap<C::Key, Cell<C::Memory>>,
    /// Failures in a row of the keys that fail.
    failures: BTreeMap<C::Key, u32>,
    /// And passes in a row that somebody else wrote before. They make no object look bad, so they do not count as failures.
    conflicts: BTreeMap<C::Key, u32>,
    waiting: Waiting<C::Key>,
    /// Told when a pass begins to wait for its turn at a neighbour.
    waits: Arc<Notify>,
    /// What was due by then may have waited for long, and nobody here knows how long.
    acting_since: Instant,
}

/// A pass that is under way.
struct Pass {
    abort: AbortHandle,
    class: Class,
    turns: Arc<Turns>,
    /// How long it was due before it began, if that is known.
    turn: Option<Duration>,
}

impl<'a, C: Controller> Engine<'a, C> {
    /// Gives slow passes up where there are too many of them.
    fn make_room(&mut self) {
        // A rack that hangs makes hundreds of urgent passes wait at their neighbour. Whoever is asked for after them has to get there, too.
        self.slots.set_aside(|pass| pass.class == Class::Urgent && pass.turns.any());
        // Whoever waits for its turn at a neighbour does not hang, and would only lose that turn.
        for (key, pass) in self.slots.make_room(Instant::now(), |_, pass| !pass.turns.any()) {
            pass.abort.abort();
            self.given_up(key, pass.turn, "gave up for others that do not answer");
        }
    }

    /// Tells the owners of objects that cannot be decoded.
    fn complain(&self) {
        if !self.kit.may_act() {
            return;
        }
        let kinds = self.kit.undecodable.lock().clone();
        for broken in kinds.iter().flat_map(Undecodable::news) {
            let text = self.controller.unread(&broken);
            self.outbox.put(broken.object, Event::new(true, "Undecodable", "Decode", &text));
        }
    }

    /// A pass of the key that is next.
    fn next(
        &mut self,
        deadline: Duration,
    ) -> Option<Abortable<impl Future<Output = Ended<C>> + use<'a, C>>> {
        let now = Instant::now();
        loop {
            let least = self.slots.free_for()?;
            let mut lines = self.lookout.lines.lock();
            let (key, class, due) = lines.queue.next(Order::Oldest, now, least)?;
            let (abort, registration) = AbortHandle::new_pair();
            let turns = Arc::new(Turns::new(self.waits.clone()));
            let turn = (due > self.acting_since).then(|| now.saturating_duration_since(due));
            if self.slots.enter(&key, now, Pass { abort, class, turns: turns.clone(), turn }) {
                lines.fresh.begins(&key);
                let memory = self.memory.remove(&key).unwrap_or_default();
                let pass = self.pass(key, memory, turns, deadline);
                return Some(Abortable::new(pass, registration));
            }
            // Its last pass was slow, and too many that are slow are under way.
            lines.queue.done(&key);
            lines.queue.enqueue(key, class, now + PASS_PATIENCE);
        }
    }

    fn next_at(&self) -> Option<Instant> {
        let due = self.lookout.lines.lock().queue.next_at();
        let due = due.filter(|_| self.slots.free_for().is_some());
        due.into_iter().chain(self.slots.next_at()).min()
    }

    /// One pass: reads, decides, writes; and afresh, where somebody else wrote first.
    fn pass(
        &self,
        key: C::Key,
        mut cell: Cell<C::Memory>,
        turns: Arc<Turns>,
        deadline: Duration,
    ) -> impl Future<Output = Ended<C>> + use<'a, C> {
        let (kit, controller, outbox) = (self.kit, self.controller, self.outbox.clone());
        let decisions = self.waiting.decisions.clone();
        lanes::watched(turns, async move {
            if !kit.may_act() {
                return (key, cell, End::NotActing);
            }
            let start = Instant::now();
            let (outbox, decisions) = (&outbox, &decisions);
            let mut look = Look { controller, outbox, decisions, key: &key, cell: &mut cell };
            let work = async {
                for _ in 0..FRESH_STARTS {
                    let end = look.run().await;
                    let superseded = matches!(end, End::Failed(Error::Superseded, _));
                    if !superseded || !kit.may_act() {
                        return end;
                    }
                }
                look.run().await
            };
            let end = tokio::time::timeout(deadline, work).await.unwrap_or(End::TimedOut);
            kit.metrics.seconds.observe(start.elapsed().as_secs_f64());
            (key, cell, end)
        })
    }

    fn ended(&mut self, (key, memory, end): Ended<C>) {
        let pass = self.slots.leave(&key, !matches!(end, End::TimedOut));
        let turn = pass.and_then(|pass| pass.turn);
        match end {
            End::Gone | End::NotActing => {
                self.slots.forget(&key);
                self.failures.remove(&key);
                self.conflicts.remove(&key);
                self.waiting.forget(&key, matches!(end, End::Gone).then(Instant::now));
                self.lookout.lines.lock().ended(&key, None, false);
            }
            End::Decided(reason, next, version, wrote) => {
                self.remember(&key, memory);
                self.failures.remove(&key);
                self.conflicts.remove(&key);
                self.waiting.note(key.clone(), reason.about(), turn, Instant::now());
                let wait = match next {
                    Next::OnChange => None,
                    Next::Now => Some(Duration::ZERO),
                    Next::After(wait) => Some(spread(wait, backoff::random_unit())),
                };
                let result = if wait.is_some() { "requeue_after" } else { "success" };
                self.kit.metrics.reconciles.with_label_values(&[result]).inc();
                self.lookout.lines.lock().ended(&key, version.as_deref(), wrote);
                self.again(key, wait);
            }
            End::Failed(error, due) => {
                self.remember(&key, memory);
                let class = self.controller.retry(&error);
                self.retry(key.clone(), turn, (class, error.failing()), &error.to_string());
                // What fails is tried less and less often, and no timer of the rest waits for it.
                self.again(key, due.map(|wait| spread(wait, backoff::random_unit())));
            }
            End::TimedOut => {
                self.remember(&key, memory);
                self.kit.metrics.timeouts.inc();
                self.given_up(key, turn, "the pass did not end in time");
            }
        }
    }

    /// Puts a cell back. One with nothing in it takes no room.
    fn remember(&mut self, key: &C::Key, cell: Cell<C::Memory>) {
        if cell != Cell::default() {
            self.memory.insert(key.clone(), cell);
        }
    }

    /// A pass did not end by itself. Where somebody waits for what fails, nobody waits for minutes after that either.
    fn given_up(&mut self, key: C::Key, turn: Option<Duration>, why: &str) {
        let class = self.controller.retry(&Error::Other(why.to_owned(), RetryClass::Transient));
        self.retry(key, turn, (class, Failing::TimedOut), why);
    }

    /// A pass did not come to its end: logs and counts that, and says when the next one is.
    fn retry(
        &mut self,
        key: C::Key,
        turn: Option<Duration>,
        (class, failing): (RetryClass, Failing),
        problem: &str,
    ) {
        let is_conflict = class == RetryClass::Conflict;
        let counts = if is_conflict { &mut self.conflicts } else { &mut self.failures };
        let wait = backoff::failed(counts, key.clone(), class, backoff::random_unit());
        if is_conflict {
            // The normal course of things: neither an error in the metrics nor, before it lasts, a line for a person.
            self.kit.metrics.reconciles.with_label_values(&["requeue_after"]).inc();
            if counts.get(&key).is_some_and(|it| *it > backoff::USUAL_CONFLICTS) {
                tracing::warn!(object.key = ?key, reason = problem, "Superseded again and again");
            } else {
                tracing::debug!(object.key = ?key, reason = problem, "Superseded, looking again");
            }
        } else {
            self.kit.metrics.reconciles.with_label_values(&["error"]).inc();
            self.kit.metrics.errors.inc();
            tracing::warn!(object.key = ?key, error = problem, class = ?class, "Reconcile failed");
        }
        self.waiting.note(key.clone(), failing.about(), turn, Instant::now());
        self.lookout.lines.lock().ended(&key, None, false);
        self.again(key, wait);
    }

    /// Has a key looked at after this time, or when something changes.
    fn again(&self, key: C::Key, wait: Option<Duration>) {
        if let Some(wait) = wait {
            let class = self.controller.class(&key);
            self.lookout.enqueue_after(key, class, wait);
        }
    }
}

/// One look at a key.
struct Look<'a, C: Controller> {
    controller: &'a C,
    outbox: &'a Outbox,
    decisions: &'a IntCounterVec,
    key: &'a C::Key,
    cell: &'a mut Cell<C::Memory>,
}

impl<C: Controller> Look<'_, C> {
    /// Reads, decides and writes once.
    async fn run(&mut self) -> End<C::Reason> {
        let (controller, key) = (self.controller, self.key);
        let seen = match controller.observe(key, &mut self.cell.own).await {
            Ok(Some(seen)) => seen,
            Ok(None) => return End::Gone,
            Err(error) => return self.failed(None, error),
        };
        let Decision { reason, writes, events, mut next } = controller.decide(&seen, Now::read());
        self.decisions.with_label_values(&[reason.as_str()]).inc();
        tracing::debug!(object.key = ?key, reason = reason.as_str(), "Decided");
        let wrote = !writes.is_empty();
        let mut version = controller.version(&seen).map(str::to_owned);
        // Where only something else was written the cache has nothing of ours to show.
        let mut left = false;
        let (mut done, mut failure) = (Vec::new(), None);
        for write in writes {
            match controller.write(key, &seen, write, &mut self.cell.own).await {
                Ok(outcome) => {
                    left |= outcome.version.is_some();
                    version = outcome.version.or(version);
                    next = outcome.next.unwrap_or(next);
                    done.extend(outcome.events);
                    failure = failure.or(outcome.failed);
                    outcome.others.into_iter().for_each(|(of, event)| self.outbox.put(of, event));
                }
                Err(error) => {
                    self.tell(Some(&seen), &done);
                    return self.failed(Some(&seen), error);
                }
            }
        }
        self.tell(Some(&seen), &events);
        self.tell(Some(&seen), &done);
        if let Some(error) = failure {
            let due = if let Next::After(wait) = next { Some(wait) } else { None };
            return End::Failed(error, due);
        }
        // What was written may be what another rule waits for, so it is looked at once more if nothing else brings that about.
        let settled = version.filter(|_| !wrote || next != Next::OnChange);
        End::Decided(reason, next, settled, left)
    }

    /// It ends early. What a person has to allow is told.
    fn failed(&mut self, seen: Option<&C::Observed>, error: Error) -> End<C::Reason> {
        if error.is_refusal() {
            let text = format!("{error}. Nothing more is done here until that is allowed");
            let event = Event::new(true, Failing::Refused.as_str(), "Write", &text);
            self.tell(seen, &[Event { hourly: Some(0), ..event }]);
        }
        End::Failed(error, None)
    }

    fn tell(&mut self, seen: Option<&C::Observed>, events: &[Event]) {
        for event in events {
            if self.cell.is_news(event, Instant::now()) {
                for object in self.controller.told_on(self.key, seen) {
                    self.outbox.put(object, event.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
