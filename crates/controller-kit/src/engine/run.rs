//! Drives a controller: hands out its keys, gives each one pass at a time, and makes of every end when to look again.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus::{IntCounterVec, Opts, Registry};
use tokio::sync::Notify;

use super::decision::{Decision, Next, Now};
use super::error::{Error, TIMED_OUT};
use super::memory::Memory;
use super::queue::{Class, Queue, spread};
use super::reasons::Reason;
use super::slots::{Limits, Slots};
use super::waiting::Waiting;
use crate::backoff::{self, Class as RetryClass, Failures, Retry};
use crate::kit::Kit;

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

    /// The object of a key, for events.
    fn object(&self, key: &Self::Key) -> ObjectReference;

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
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Has keys looked at. Clones share the queue.
#[derive(Debug)]
pub struct Lookout<K: Ord>(Arc<Shared<K>>);

#[derive(Debug)]
struct Shared<K: Ord> {
    queue: Mutex<Queue<K>>,
    changed: Notify,
}

impl<K: Ord> Clone for Lookout<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Ord> Default for Lookout<K> {
    fn default() -> Self {
        Self(Arc::new(Shared { queue: Mutex::default(), changed: Notify::new() }))
    }
}

impl<K: Clone + Ord> Lookout<K> {
    /// Has a key looked at as soon as its class allows.
    pub fn enqueue(&self, key: K, class: Class) {
        self.queue().enqueue(key, class, Instant::now());
        self.0.changed.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue<K>> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a pass ended.
enum End<R> {
    /// There is nothing to look at any more.
    Gone,
    /// This process may not act: whoever may looks at everything.
    NotActing,
    Decided(R, Next),
    Failed(Error),
    TimedOut,
}

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
    kit.metrics.most_active.with_label_values(&[name]).set(i64::from(kit.config.concurrency));
    let waiting = Waiting::default();
    let decisions = register_all::<_, C::Reason>(name, &kit.metrics.registry, &waiting)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let mut engine = Engine {
        kit,
        controller,
        lookout,
        slots: Slots::new(Limits { regular, slow: regular * SLOW_PASSES, patience: PASS_PATIENCE }),
        memory: Memory::default(),
        failures: Failures::default(),
        waiting,
        decisions,
        aborts: BTreeMap::new(),
    };
    let mut passes = FuturesUnordered::new();
    let allowed = kit.allowed();
    pin_mut!(allowed, watching);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        engine.make_room();
        while let Some((key, memory, abort)) = engine.next() {
            passes.push(Abortable::new(engine.pass(key.clone(), memory, deadline), abort));
        }
        let wake = engine.next_at();
        tokio::select! {
            _ = tick.tick() => kit.liveness.beat("controller", TURN),
            () = lookout.0.changed.notified() => {}
            () = sleep_until(wake) => {}
            Some(()) = allowed.next() => {
                for key in controller.keys() {
                    let class = controller.class(&key);
                    lookout.enqueue(key, class);
                }
            }
            Some(ended) = passes.next() => {
                if let Ok((key, memory, end)) = ended {
                    engine.ended(key, memory, end);
                }
            }
            () = &mut watching => return Err("A watch ended".to_owned()),
            () = kit.shutdown.requested() => break,
        }
    }
    // What is under way may still end; the process gives it a moment and then drops it.
    while passes.next().await.is_some() {}
    kit.liveness.done("controller");
    Ok(())
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Registers what the engine counts for a controller: for the reference, which needs no running one.
///
/// # Errors
/// When the registry has metrics of these names.
pub fn register<R: Reason>(controller: &str, registry: &Registry) -> Result<(), prometheus::Error> {
    register_all::<(), R>(controller, registry, &Waiting::default()).map(drop)
}

/// Every series is there from the start: a rate over one that appears late misses its first step.
fn register_all<K: Ord + Send + Sync + 'static, R: Reason>(
    controller: &str,
    registry: &Registry,
    waiting: &Waiting<K>,
) -> Result<IntCounterVec, prometheus::Error> {
    waiting.register::<R>(controller, registry)?;
    let name = format!("ferrite_{}_decisions_total", controller.replace('-', "_"));
    let decisions = IntCounterVec::new(Opts::new(name, "Decisions by their reason"), &["reason"])?;
    for reason in R::ALL {
        decisions.with_label_values(&[reason.as_str()]);
    }
    registry.register(Box::new(decisions.clone()))?;
    Ok(decisions)
}

struct Engine<'a, C: Controller> {
    kit: &'a Kit,
    controller: &'a C,
    lookout: &'a Lookout<C::Key>,
    slots: Slots<C::Key>,
    memory: Memory<C::Key, C::Memory>,
    failures: Failures<C::Key>,
    waiting: Waiting<C::Key>,
    decisions: IntCounterVec,
    aborts: BTreeMap<C::Key, AbortHandle>,
}

impl<'a, C: Controller> Engine<'a, C> {
    /// Gives slow passes up where there are too many of them.
    fn make_room(&mut self) {
        for key in self.slots.make_room(Instant::now()) {
            if let Some(abort) = self.aborts.remove(&key) {
                abort.abort();
            }
            self.retry(
                key,
                RetryClass::Timeout,
                TIMED_OUT,
                "gave up for others that do not answer",
            );
        }
    }

    /// The key that is next, with what is remembered of it.
    fn next(&mut self) -> Option<(C::Key, C::Memory, futures_util::future::AbortRegistration)> {
        let now = Instant::now();
        loop {
            let least = self.slots.free_for()?;
            let (key, class) = self.lookout.queue().next(now, least)?;
            if self.slots.enter(&key, now) {
                let memory = self.memory.take(&key);
                let (handle, abort) = AbortHandle::new_pair();
                self.aborts.insert(key.clone(), handle);
                return Some((key, memory, abort));
            }
            // Its last pass was slow, and too many that are slow are under way.
            let mut queue = self.lookout.queue();
            queue.done(&key);
            queue.enqueue(key, class, now + PASS_PATIENCE);
        }
    }

    fn next_at(&self) -> Option<Instant> {
        let due = self.lookout.queue().next_at().filter(|_| self.slots.free_for().is_some());
        due.into_iter().chain(self.slots.next_at()).min()
    }

    /// One pass: reads, decides, writes; and afresh, where somebody else wrote first.
    fn pass(
        &self,
        key: C::Key,
        mut memory: C::Memory,
        deadline: Duration,
    ) -> impl Future<Output = (C::Key, C::Memory, End<C::Reason>)> + use<'a, C> {
        let (kit, controller, decisions) = (self.kit, self.controller, self.decisions.clone());
        async move {
            if !kit.may_act() {
                return (key, memory, End::NotActing);
            }
            let name = kit.config.controller;
            let _working = kit.metrics.working(name);
            let start = Instant::now();
            let work = async {
                let mut starts = 0;
                loop {
                    let end = look(kit, controller, &key, &mut memory, &decisions).await;
                    let superseded = matches!(end, End::Failed(Error::Superseded));
                    starts += 1;
                    if !superseded || starts > FRESH_STARTS || !kit.may_act() {
                        return end;
                    }
                }
            };
            let end = tokio::time::timeout(deadline, work).await.unwrap_or(End::TimedOut);
            kit.metrics.seconds.with_label_values(&[name]).observe(start.elapsed().as_secs_f64());
            (key, memory, end)
        }
    }

    fn ended(&mut self, key: C::Key, memory: C::Memory, end: End<C::Reason>) {
        self.aborts.remove(&key);
        let name = self.kit.config.controller;
        match end {
            End::Gone | End::NotActing => {
                self.slots.leave(&key, true);
                self.slots.forget(&key);
                self.failures.forget(&key);
                self.waiting.forget(&key);
                self.lookout.queue().done(&key);
            }
            End::Decided(reason, next) => {
                self.memory.put(key.clone(), memory);
                self.slots.leave(&key, true);
                self.failures.forget(&key);
                let now = Instant::now();
                self.waiting.note(key.clone(), reason.about(), now);
                let at = match next {
                    Next::OnChange => None,
                    Next::Now => Some(now),
                    Next::After(wait) => Some(now + spread(wait, backoff::random_unit())),
                };
                let result = if at.is_some() { "requeue_after" } else { "success" };
                self.kit.metrics.reconciles.with_label_values(&[name, result]).inc();
                let class = self.controller.class(&key);
                let mut queue = self.lookout.queue();
                queue.done(&key);
                if let Some(at) = at {
                    queue.enqueue(key, class, at);
                }
            }
            End::Failed(error) => {
                self.memory.put(key.clone(), memory);
                self.slots.leave(&key, true);
                self.retry(key, error.retry(), error.word(), &error.to_string());
            }
            End::TimedOut => {
                self.kit.metrics.timeouts.with_label_values(&[name]).inc();
                self.slots.leave(&key, false);
                self.retry(key, RetryClass::Timeout, TIMED_OUT, "the pass did not end in time");
            }
        }
    }

    /// A pass did not come to its end: logs and counts that, and says when the next one is.
    fn retry(&mut self, key: C::Key, class: RetryClass, word: &'static str, problem: &str) {
        let (name, metrics) = (self.kit.config.controller, &self.kit.metrics);
        if matches!(class, RetryClass::Conflict | RetryClass::NotFound) {
            // The normal course of things: neither an error in the metrics nor a line for a person.
            metrics.reconciles.with_label_values(&[name, "requeue_after"]).inc();
            tracing::debug!(object.key = ?key, reason = problem, "Superseded, looking again");
        } else {
            metrics.reconciles.with_label_values(&[name, "error"]).inc();
            metrics.errors.with_label_values(&[name]).inc();
            tracing::warn!(object.key = ?key, error = problem, class = ?class, "Reconcile failed");
        }
        let now = Instant::now();
        self.waiting.failed(key.clone(), word, now);
        let retry = self.failures.failed(key.clone(), class, backoff::random_unit());
        let look = self.controller.class(&key);
        let mut queue = self.lookout.queue();
        queue.done(&key);
        if let Retry::After(delay) = retry {
            queue.enqueue(key, look, now + delay);
        }
    }
}

/// Reads, decides and writes once.
async fn look<C: Controller>(
    kit: &Kit,
    controller: &C,
    key: &C::Key,
    memory: &mut C::Memory,
    decisions: &IntCounterVec,
) -> End<C::Reason> {
    let seen = match controller.observe(key, memory).await {
        Ok(Some(seen)) => seen,
        Ok(None) => return End::Gone,
        Err(error) => return End::Failed(error),
    };
    let Decision { reason, writes, events, next } = controller.decide(&seen, Now::read());
    decisions.with_label_values(&[reason.as_str()]).inc();
    tracing::debug!(object.key = ?key, reason = reason.as_str(), "Decided");
    for write in writes {
        if let Err(error) = controller.write(key, &seen, write).await {
            return End::Failed(error);
        }
    }
    for event in events {
        let object = controller.object(key);
        kit.events.tell(&object, event.warning, event.reason, &event.action, &event.text).await;
    }
    End::Decided(reason, next)
}
