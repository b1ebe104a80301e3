//! Which key is looked at next. Pure: every method is given the time.
//!
//! A key waits at most once, with the earliest time and the most urgent class that anybody asked for, and is never handed
//! out twice at a time. Urgent keys go first. So that nothing starves behind them, every eighth key that is handed out is
//! the one that has waited longest, whatever its class and for whomever the slot was kept. But a more urgent class that waits and
//! had none of the keys before goes first: where hundreds wait that nobody needs soon, the oldest is always one of those, and
//! they would take what is kept for the others, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How urgent a look is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Somebody may lose data while it waits.
    Urgent,
    /// Something changed, or is due.
    #[default]
    Normal,
    /// Nobody waits: a regular look at everything.
    Background,
}

impl Class {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Normal, Self::Background];
}

/// Who goes first among those that are as urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Who has waited longest.
    Oldest,
    /// Of the urgent ones who came last, and every other time one of the class after that: those that came before may all be
    /// stuck.
    Latest,
}

/// One key in so many is handed out by its age.
const OLDEST_EVERY: u32 = 8;

/// Keys that wait or are worked on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue<K: Ord> {
    keys: BTreeMap<K, Entry>,
    /// By class, the one that has waited longest first.
    ready: [BTreeSet<(Instant, K)>; 3],
    timers: BTreeSet<(Instant, K)>,
    handed_out: u32,
    /// The class of the one before.
    before: Class,
    /// Which classes had no key since one was last handed out by its age.
    passed_over: [bool; 3],
}

/// What is known of a key that waits, is held or is worked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    /// When a look is wanted, and how urgently.
    due: Option<(Instant, Class)>,
    /// Not before this time: the caches do not show yet what the last pass wrote.
    held: Option<Instant>,
    busy: bool,
    line: Line,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Line {
    #[default]
    None,
    Ready(Class, Instant),
    Timer(Instant),
}

impl<K: Ord> Default for Queue<K> {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            ready: std::array::from_fn(|_| BTreeSet::new()),
            timers: BTreeSet::new(),
            handed_out: 0,
            before: Class::Background,
            passed_over: [false; 3],
        }
    }
}

impl<K: Clone + Ord> Queue<K> {
    /// Has a key looked at, at this time or as soon as possible after it.
    pub fn enqueue(&mut self, key: K, class: Class, at: Instant) {
        self.change(key, |entry| {
            entry.due = Some(match entry.due {
                Some((due, before)) => (due.min(at), before.min(class)),
                None => (at, class),
            });
        });
    }

    /// The key that is to be worked on now, in this order, and none that is less urgent than this but for the one in eight; and since
    /// when it was due. It is busy until [`Queue::done`].
    pub fn next(
        &mut self,
        order: Order,
        now: Instant,
        least: Class,
    ) -> Option<(K, Class, Instant)> {
        self.wake(now);
        let by_age = self.handed_out + 1 == OLDEST_EVERY;
        let class = if by_age { self.overdue() } else { self.turn(order, least) }?;
        let ready = &mut self.ready[class as usize];
        let (due, key) = match order {
            Order::Latest if !by_age && class == Class::Urgent => ready.pop_last(),
            _ => ready.pop_first(),
        }?;
        if order == Order::Latest {
            self.before = class;
        }
        self.handed_out = (self.handed_out + 1) % OLDEST_EVERY;
        if by_age {
            self.passed_over = [true; 3];
        }
        self.passed_over[class as usize] = false;
        self.keys.insert(key.clone(), Entry { busy: true, ..Entry::default() });
        Some((key, class, due))
    }

    /// The classes of which keys wait, the most urgent first, and since when.
    fn waiting(&self) -> impl Iterator<Item = (Instant, Class)> {
        Class::ALL.into_iter().filter_map(|it| Some((self.ready[it as usize].first()?.0, it)))
    }

    /// The class whose turn it is.
    fn turn(&self, order: Order, least: Class) -> Option<Class> {
        let other = |class: &Class| {
            order == Order::Latest && *class != self.before && *class != Class::Background
        };
        let waiting = || self.waiting().map(|(_, class)| class);
        waiting().find(other).or_else(|| waiting().find(|class| *class <= least))
    }

    /// The class of the oldest key, unless a more urgent one was passed over.
    fn overdue(&self) -> Option<Class> {
        let (_, oldest) = self.waiting().min()?;
        let passed_over = |class: &Class| *class < oldest && self.passed_over[*class as usize];
        self.waiting().map(|(_, class)| class).find(passed_over).or(Some(oldest))
    }

    /// The work on a key has ended. What was asked for meanwhile is due at its time.
    pub fn done(&mut self, key: &K) {
        self.change(key.clone(), |entry| entry.busy = false);
    }

    /// Nobody wants the key looked at any more, now or later.
    pub fn cancel(&mut self, key: &K) {
        self.change(key.clone(), |entry| entry.due = None);
    }

    /// Keeps a key from being handed out before this time, or until [`Queue::release`].
    pub fn hold(&mut self, key: &K, until: Instant) {
        self.change(key.clone(), |entry| entry.held = Some(until));
    }

    /// The key need not be kept any longer.
    pub fn release(&mut self, key: &K) {
        self.change(key.clone(), |entry| entry.held = None);
    }

    /// When [`Queue::next`] may have something to give, if no key is ready now.
    pub fn next_at(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Whether another look at a key is wanted, now or later.
    pub fn wants(&self, key: &K) -> bool {
        self.keys.get(key).is_some_and(|entry| entry.due.is_some())
    }

    /// Makes ready what is due.
    fn wake(&mut self, now: Instant) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.timers.pop_first() else { return };
            let Some(entry) = self.keys.get_mut(&key) else { continue };
            (entry.held, entry.line) = (None, Line::None);
            match entry.due {
                Some((at, class)) => {
                    entry.line = Line::Ready(class, at);
                    self.ready[class as usize].insert((at, key));
                }
                None => self.change(key, |_| {}),
            }
        }
    }

    /// Changes what is known of a key, and enters it where it belongs then: nowhere while it is busy.
    fn change(&mut self, key: K, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.keys.remove(&key).unwrap_or_default();
        match entry.line {
            Line::None => {}
            Line::Ready(class, at) => drop(self.ready[class as usize].remove(&(at, key.clone()))),
            Line::Timer(at) => drop(self.timers.remove(&(at, key.clone()))),
        }
        change(&mut entry);
        entry.line = match (entry.due, entry.held) {
            _ if entry.busy => Line::None,
            (Some((due, _)), held) => Line::Timer(held.map_or(due, |held| held.max(due))),
            (None, Some(held)) => Line::Timer(held),
            (None, None) => Line::None,
        };
        if let Line::Timer(at) = entry.line {
            self.timers.insert((at, key.clone()));
        }
        if entry != Entry::default() {
            self.keys.insert(key, entry);
        }
    }
}

/// A quarter more at most, so that keys that failed together do not come back together. `unit` is from 0 to 1.
pub fn spread(wait: Duration, unit: f64) -> Duration {
    wait.mul_f64(1.0 + unit.clamp(0.0, 1.0) / 4.0)
}

#[cfg(test)]
mod tests;
