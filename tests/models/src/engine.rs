//! The engine's queue and slots as its loop drives them, in a small world: keys whose work ends, and one whose work hangs for
//! ever. Everything that may happen happens in every order, within so many seconds.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bench::model::{Progress, explore};
use controller_kit::engine::Class;
use controller_kit::engine::queue::{Order, Queue};
use controller_kit::engine::slots::{Limits, Slots};
use stateright::{Model, Property};

use crate::World;

const PATIENCE: u64 = 2;
/// When a key that was given up is looked at again.
const RETRY: u64 = 1;
/// In the last seconds there is no time to end anything.
const LAST: u64 = 2 * PATIENCE + RETRY;

/// How large the world is.
#[derive(Clone, Copy)]
struct Bounded {
    /// Keys whose work ends. One more hangs.
    sound: u8,
    regular: usize,
    slow: usize,
    wakes: u8,
    seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    queue: Queue<u8>,
    slots: Slots<u8>,
    working: BTreeSet<u8>,
    /// Keys that somebody wants looked at, and of which no pass has begun since.
    wanted: BTreeSet<u8>,
    second: u64,
    wakes: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Wake(u8, Class),
    Begin,
    End(u8),
    Second,
}

fn at(second: u64) -> Instant {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    *BEGAN.get_or_init(Instant::now) + Duration::from_secs(second)
}

impl State {
    /// Hands out one key, as the engine's loop does.
    fn begin(&mut self) -> Option<()> {
        let now = at(self.second);
        let least = self.slots.free_for()?;
        let (key, class, _) = self.queue.next(Order::Oldest, now, least)?;
        if self.slots.enter(&key, now, ()) {
            if !self.working.insert(key) {
                self.broken = Some("no key is worked on twice at a time");
            }
            self.wanted.remove(&key);
        } else {
            self.queue.done(&key);
            self.queue.enqueue(key, class, at(self.second + PATIENCE));
        }
        Some(())
    }

    fn second(&mut self) {
        self.second += 1;
        for (key, ()) in self.slots.make_room(at(self.second), |_, ()| true) {
            self.working.remove(&key);
            self.queue.done(&key);
            self.queue.enqueue(key, Class::Normal, at(self.second + RETRY));
            self.wanted.insert(key);
        }
        if self.slots.next_at().is_some_and(|due| due <= at(self.second)) {
            self.broken = Some("a slow key leaves its regular slot after the patience");
        }
    }
}

impl Model for Bounded {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let patience = Duration::from_secs(PATIENCE);
        vec![State {
            queue: Queue::default(),
            slots: Slots::new(Limits { regular: self.regular, slow: self.slow, patience }),
            working: BTreeSet::new(),
            wanted: BTreeSet::new(),
            second: 0,
            wakes: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wakes < self.wakes {
            let classes = [Class::Urgent, Class::Background];
            let wakes = (0..=self.sound).flat_map(|key| classes.map(|it| Action::Wake(key, it)));
            actions.extend(wakes);
        }
        actions
            .extend(state.working.iter().filter(|it| **it < self.sound).map(|it| Action::End(*it)));
        actions.push(Action::Begin);
        actions.push(Action::Second);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Wake(key, class) => {
                next.wakes += 1;
                next.wanted.insert(key);
                next.queue.enqueue(key, class, at(next.second));
            }
            Action::Begin => next.begin()?,
            Action::End(key) => {
                next.working.remove(&key);
                next.slots.leave(&key, true);
                next.queue.done(&key);
            }
            Action::Second => next.second(),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("the moment's rules hold", |_, state: &State| state.broken.is_none()),
            Property::always("no wake-up is lost", |_, state: &State| {
                state.wanted.iter().all(|key| state.queue.wants(key))
            }),
            Property::always("every slot is somebody's", |_, state: &State| {
                let (regular, slow) = state.slots.taken();
                regular + slow == state.working.len()
            }),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.second <= self.seconds
    }
}

/// Whoever is not hung was looked at.
fn served(model: &Bounded, state: &State) -> bool {
    let waits = |key: u8| state.wanted.contains(&key) || state.working.contains(&key);
    state.second + LAST > model.seconds || !(0..model.sound).any(waits)
}

/// A world with so many keys that are sound, and one that hangs, with so many wake-ups.
pub fn world(sound: u8, wakes: u8) -> World {
    let model = Bounded { sound, regular: 1, slow: 1, wakes, seconds: LAST + 4 };
    let explored = move |bounds| {
        let own = |action: &Action| !matches!(action, Action::Wake(..));
        let progress = [Progress { name: "nothing starves", goal: served, own }];
        explore(&model, &progress, bounds)
    };
    World {
        name: format!("{sound} keys and one that hangs, {wakes} wake-ups"),
        explore: Box::new(explored),
    }
}

/// More than a test has time for.
pub fn large() -> Vec<World> {
    vec![world(2, 4), world(3, 4)]
}
