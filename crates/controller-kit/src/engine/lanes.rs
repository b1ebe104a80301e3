//! Calls to a neighbour that serves many targets: few at a time, the most urgent first, one for each target, and none that
//! hangs holds up another target for longer than the patience. See [`Slots`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::{Notify, oneshot};

use super::queue::{Class, Order, Queue};
use super::slots::{Limits, Slots};
use crate::shared::Shared;

/// A call that takes so many times as long as those like it took hangs.
const LATE: u32 = 3;
/// Where all of them take about as long, it may be late after this part of the patience: a moment says nothing.
const SHORTEST: u32 = 10;
/// How many calls say what is usual.
const MEMORY: u32 = 8;
/// A call of which nobody knows how long it takes is given up for others after so many times the patience: it may only be slow.
const GIVEN: u32 = 2;

/// Slots for calls; clones share them.
#[derive(Clone, Debug)]
pub struct Lanes<T: Clone + Ord>(Arc<Shared<Inner<T>>>);

#[derive(Debug)]
struct Inner<T: Clone + Ord> {
    pace: Pace,
    /// Calls that are under way.
    slots: Slots<T, Call>,
    /// Targets that somebody wants to call, and those of them that did not answer lately.
    queue: Queue<T>,
    suspects: Queue<T>,
    callers: BTreeMap<T, Vec<Caller<T>>>,
}

/// How long calls take.
#[derive(Debug)]
struct Pace {
    /// After what time a call is late while nobody knows how long calls take.
    patience: Duration,
    /// How long calls took lately that were answered: those that are alike, and the others. What was given up says nothing: of
    /// a neighbour that is slow with all of them, the call that is left to its end says so.
    alike: Option<Duration>,
    others: Option<Duration>,
}

impl Pace {
    /// Takes notice of how long a call took that was answered.
    fn learn(&mut self, alike: bool, took: Duration) {
        let usual = if alike { &mut self.alike } else { &mut self.others };
        *usual = Some(usual.map_or(took, |usual| (usual * (MEMORY - 1) + took) / MEMORY));
    }

    /// After what time a call is late.
    fn late(&self, alike: bool) -> Duration {
        let shortest = if alike { self.patience / SHORTEST } else { self.patience };
        let usual = if alike { self.alike } else { self.others };
        usual.map_or(self.patience, |usual| shortest.max(usual * LATE))
    }
}

/// A call that is under way.
#[derive(Debug)]
struct Call {
    /// From when on it may be given up for others.
    goes: Instant,
    /// How it is told to.
    give_up: oneshot::Sender<()>,
}

/// Somebody who waits for a slot.
#[derive(Debug)]
struct Caller<T: Clone + Ord> {
    class: Class,
    alike: bool,
    turn: oneshot::Sender<Lane<T>>,
}

/// The call was given up: its target had not answered for the patience, and others that do not answer needed its place. The
/// target may have taken it all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp;

/// A slot for one call to one target, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Lane<T: Clone + Ord> {
    lanes: Lanes<T>,
    target: T,
    give_up: oneshot::Receiver<()>,
    answered: bool,
    began: Instant,
    patience: Duration,
    alike: bool,
    /// Until it is dropped, the pass of the engine that has it is known to.
    held: Held,
}

tokio::task_local! {
    /// The turns of the pass of the engine that runs now.
    static TURNS: Arc<Turns>;
}

/// The slots that a pass of the engine waits for, or has. What hangs then is given up here, and whoever only waits for its turn does
/// not hang.
#[derive(Debug, Default)]
pub(super) struct Turns {
    count: AtomicUsize,
    /// Told when it begins to wait.
    begun: Arc<Notify>,
}

impl Turns {
    pub(super) fn new(begun: Arc<Notify>) -> Self {
        Self { count: AtomicUsize::new(0), begun }
    }

    /// Whether the pass waits for a slot, or has one.
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }
}

/// Runs a pass of the engine whose turns are known.
pub(super) async fn watched<F: Future>(turns: Arc<Turns>, pass: F) -> F::Output {
    TURNS.scope(turns, pass).await
}

/// Counts the pass that runs now as one that waits for a slot, or has one, until it is dropped.
#[derive(Debug, Default)]
struct Held(Option<Arc<Turns>>);

impl Held {
    fn begin() -> Self {
        let turns = TURNS.try_with(Arc::clone).ok();
        if let Some(turns) = &turns {
            turns.count.fetch_add(1, Ordering::Relaxed);
            turns.begun.notify_one();
        }
        Self(turns)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(turns) = &self.0 {
            turns.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl<T: Clone + Ord> Lanes<T> {
    /// None is taken.
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared::new(Inner {
            pace: Pace { patience: limits.patience, alike: None, others: None },
            slots: Slots::new(limits),
            queue: Queue::default(),
            suspects: Queue::default(),
            callers: BTreeMap::new(),
        })))
    }

    /// Waits for a slot.
    pub async fn enter(&self, target: &T, class: Class) -> Lane<T> {
        self.wait(target, class, false).await
    }

    /// The same for one of many calls that all take about as long. One that takes several times as long as they did lately
    /// hangs, and is not waited for until the patience is over.
    pub async fn enter_alike(&self, target: &T, class: Class) -> Lane<T> {
        self.wait(target, class, true).await
    }

    /// A slot that is free now. Whoever gets none is not queued: where far more callers come than passes may wait, their waiting
    /// would hold up all others.
    pub fn try_enter(&self, target: &T, class: Class) -> Option<Lane<T>> {
        self.enter(target, class).now_or_never()
    }

    async fn wait(&self, target: &T, class: Class, alike: bool) -> Lane<T> {
        let held = Held::begin();
        loop {
            let (turn, lane) = oneshot::channel();
            let caller = Caller { class, alike, turn };
            self.0.with(|inner| {
                inner.callers.entry(target.clone()).or_default().push(caller);
                inner.enqueue(target, class, Instant::now());
            });
            self.serve();
            if let Ok(mut lane) = lane.await {
                lane.held = held;
                return lane;
            }
        }
    }

    /// How many calls have a regular slot, and how many a slow one.
    pub fn taken(&self) -> (usize, usize) {
        self.0.lock().slots.taken()
    }

    /// Gives each free slot to the caller that is next.
    fn serve(&self) {
        let (mut inner, now) = (self.0.lock(), Instant::now());
        for (_, call) in inner.make_room(now) {
            // A call that has just ended leaves anyway.
            let _ = call.give_up.send(());
        }
        let mut unwanted = Vec::new();
        while let Some((target, caller, give_up)) = inner.next(now) {
            let lane = Lane {
                lanes: self.clone(),
                target,
                give_up,
                answered: false,
                began: now,
                patience: inner.pace.late(caller.alike),
                alike: caller.alike,
                held: Held::default(),
            };
            unwanted.extend(caller.turn.send(lane).err());
        }
        // To drop one is to take the lock again.
        drop(inner);
    }
}

impl<T: Clone + Ord> Inner<T> {
    fn enqueue(&mut self, target: &T, class: Class, now: Instant) {
        let suspect = self.slots.is_suspect(target);
        let queue = if suspect { &mut self.suspects } else { &mut self.queue };
        queue.enqueue(target.clone(), class, now);
    }

    /// Which calls have to go, so that others have their turn. The oldest is left to its end: if all calls take longer than they did,
    /// none would be answered otherwise, and nobody would learn of it.
    fn make_room(&mut self, now: Instant) -> Vec<(T, Call)> {
        let oldest = self.slots.oldest().cloned();
        self.slots
            .make_room(now, |target, call| oldest.as_ref() != Some(target) && call.goes <= now)
    }

    /// The caller that is next, with a slot for its target, and how its call is told to go.
    fn next(&mut self, now: Instant) -> Option<(T, Caller<T>, oneshot::Receiver<()>)> {
        loop {
            // A whole rack may hang whose calls came first: who came last would wait until all of it were tried.
            let order = if self.slots.is_in_doubt() { Order::Latest } else { Order::Oldest };
            let free = self.slots.free_for();
            let mut found = free.and_then(|least| self.queue.next(order, now, least));
            if found.is_none() && self.slots.has_slow() {
                found = self.suspects.next(Order::Oldest, now, Class::Background);
            }
            let (target, class, _) = found?;
            // Its next caller has its turn when the call under way ends.
            if self.slots.has(&target) {
                continue;
            }
            let callers = self.callers.entry(target.clone()).or_default();
            callers.retain(|caller| !caller.turn.is_closed());
            let first = (0..callers.len()).min_by_key(|index| callers[*index].class);
            let Some(first) = first else {
                self.callers.remove(&target);
                self.left(&target);
                continue;
            };
            let (alike, (give_up, told)) = (callers[first].alike, oneshot::channel());
            let late = self.pace.late(alike);
            let is_known = alike && self.pace.alike.is_some();
            let goes = if is_known { now } else { now + late * GIVEN };
            if self.slots.enter_for(&target, now, late, Call { goes, give_up }) {
                let caller = callers.remove(first);
                return Some((target, caller, told));
            }
            // It was found slow while this one waited for it.
            self.left(&target);
            self.enqueue(&target, class, now);
        }
    }

    /// Nobody calls the target now: whoever waits for it may.
    fn left(&mut self, target: &T) {
        self.queue.done(target);
        self.suspects.done(target);
    }

    fn leave(&mut self, target: &T, answered: bool) {
        self.slots.leave(target, answered);
        self.left(target);
        let Some(callers) = self.callers.get_mut(target) else { return };
        match callers.iter().map(|caller| caller.class).min() {
            Some(class) => self.enqueue(target, class, Instant::now()),
            None => drop(self.callers.remove(target)),
        }
    }
}

impl<T: Clone + Ord> Lane<T> {
    /// Makes the call. `answered` says whether the target took part in what came of it: one that did is not slow.
    pub async fn run<F: Future>(
        mut self,
        call: F,
        answered: impl FnOnce(&F::Output) -> bool,
    ) -> Result<F::Output, GivenUp> {
        let patience = tokio::time::sleep(self.patience);
        tokio::pin!(patience, call);
        loop {
            tokio::select! {
                output = &mut call => {
                    self.answered = answered(&output);
                    return Ok(output);
                }
                Ok(()) = &mut self.give_up => return Err(GivenUp),
                // There may be no room for it yet.
                () = &mut patience => {
                    self.lanes.serve();
                    patience.as_mut().reset(tokio::time::Instant::now() + self.patience);
                }
            }
        }
    }
}

impl<T: Clone + Ord> Drop for Lane<T> {
    fn drop(&mut self) {
        let mut inner = self.lanes.0.lock();
        if self.answered {
            inner.pace.learn(self.alike, self.began.elapsed());
        }
        inner.leave(&self.target, self.answered);
        drop(inner);
        self.lanes.serve();
    }
}

#[cfg(test)]
mod tests;
