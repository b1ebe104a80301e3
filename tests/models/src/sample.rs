//! The sample's world: two replicas that act on what they read some time ago, stops between any two steps, clients that
//! come and go.
//!
//! Versions are not counted: a replica remembers of each object whether it changed since it was
//! read, which is all that a precondition asks. So the world is finite without a bound on writes.

use bench::model::{Progress, explore};
use k8s_openapi::jiff::Timestamp;
use sample::FINALIZER;
use sample::decide::decide;
use sample::model::{Guest, Observed, Seat, Write};
use sample::settings::{Flaw, Policy};
use stateright::{Model, Property};

use crate::World;

const REPLICAS: usize = 2;
/// The version of an object as it was read; whether it is still that one is in [`Replica`].
const AS_READ: &str = "as read";

#[derive(Clone)]
struct Hall {
    guests: u8,
    seats: u8,
    policy: Policy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Visit {
    Outside,
    Here(Person),
    Gone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Person {
    deleting: bool,
    kept: bool,
    intent: Option<u8>,
    gives_up: Option<u8>,
    result: Option<u8>,
}

/// What a replica is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Guest(u8),
    Seat(u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Replica {
    /// What it read first: the holders of the seats.
    read: Option<(Subject, Vec<Option<u8>>)>,
    /// What it will do then.
    steps: Vec<Write>,
    /// Seats that changed since it read them.
    old_seats: u8,
    /// Guests that changed since it read them.
    old_guests: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    guests: Vec<Visit>,
    /// Each seat's holder.
    seats: Vec<Option<u8>>,
    replicas: Vec<Replica>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Arrive(u8),
    Delete(u8),
    /// The first read, of what is contested.
    Read(u8, Subject),
    /// The second read, and the decision.
    Decide(u8),
    Write(u8),
    Crash(u8),
}

fn name(replica: u8) -> char {
    char::from(b'a' + replica)
}

/// `g0` or `s0`: the number behind the letter.
fn number(text: &str) -> u8 {
    text[1..].bytes().fold(0, |sum, digit| sum * 10 + (digit - b'0'))
}

impl Hall {
    fn as_read(&self, state: &State, subject: Subject, seats: &[Option<u8>]) -> Option<Observed> {
        let seat = |index: usize, holder: &Option<u8>| Seat {
            name: format!("s{index}"),
            version: AS_READ.to_owned(),
            holder: holder.map(|uid| format!("g{uid}")),
        };
        let seen = match subject {
            Subject::Guest(index) => {
                let Visit::Here(person) = state.guests[usize::from(index)] else { return None };
                Observed::Guest {
                    guest: Guest {
                        name: format!("g{index}"),
                        uid: format!("g{index}"),
                        version: AS_READ.to_owned(),
                        deleting: person.deleting,
                        finalizers: person.kept.then(|| FINALIZER.to_owned()).into_iter().collect(),
                        intent: person.intent.map(|it| format!("s{it}")),
                        gives_up: person.gives_up.map(|it| format!("s{it}")),
                        result: person.result.map(|it| format!("s{it}")),
                    },
                    seats: seats.iter().enumerate().map(|(i, it)| seat(i, it)).collect(),
                }
            }
            Subject::Seat(index) => Observed::Seat {
                seat: seat(usize::from(index), &seats[usize::from(index)]),
                guests: (0..self.guests)
                    .filter(|it| matches!(state.guests[usize::from(*it)], Visit::Here(_)))
                    .map(|it| format!("g{it}"))
                    .collect(),
            },
        };
        Some(seen)
    }

    fn decided(&self, state: &State, replica: u8) -> Vec<Write> {
        let Some((subject, seats)) = &state.replicas[usize::from(replica)].read else {
            return Vec::new();
        };
        let seen = self.as_read(state, *subject, seats);
        seen.map_or_else(Vec::new, |it| decide(&it, &self.policy, Timestamp::UNIX_EPOCH).writes)
    }
}

impl State {
    /// Whether a precondition still holds.
    fn is_old(&self, replica: u8, step: &Write) -> bool {
        let it = &self.replicas[usize::from(replica)];
        match step {
            Write::Claim { at: None, .. } => false,
            Write::Claim { seat, .. }
            | Write::Release { seat, .. }
            | Write::PassOver { seat, .. } => it.old_seats & 1 << number(seat) != 0,
            Write::Intend { guest, .. }
            | Write::GiveUp { guest, .. }
            | Write::Record { guest, .. }
            | Write::LetGo { guest, .. } => it.old_guests & 1 << number(guest) != 0,
        }
    }

    fn hold(&mut self, seat: &str, holder: Option<u8>) {
        let seat = number(seat);
        self.seats[usize::from(seat)] = holder;
        for replica in &mut self.replicas {
            if replica.read.is_some() || !replica.steps.is_empty() {
                replica.old_seats |= 1 << seat;
            }
        }
    }

    fn change(&mut self, guest: u8, change: impl FnOnce(Person) -> Visit) {
        let visit = &mut self.guests[usize::from(guest)];
        if let Visit::Here(person) = *visit {
            *visit = change(person);
        }
        for replica in &mut self.replicas {
            if !replica.steps.is_empty() {
                replica.old_guests |= 1 << guest;
            }
        }
    }

    /// The write, if its precondition holds; whether it did.
    fn write(&mut self, replica: u8, step: &Write) -> bool {
        let gone = |guest: &str| !matches!(self.guests[usize::from(number(guest))], Visit::Here(_));
        let refused = match step {
            Write::Intend { guest, .. }
            | Write::GiveUp { guest, .. }
            | Write::Record { guest, .. }
            | Write::LetGo { guest, .. } => gone(guest),
            Write::Claim { .. } | Write::Release { .. } | Write::PassOver { .. } => false,
        };
        if refused || self.is_old(replica, step) {
            return false;
        }
        match step {
            Write::Intend { guest, seat, .. } => self.change(number(guest), |person| {
                let intent = Some(number(seat));
                Visit::Here(Person { intent, gives_up: None, kept: true, ..person })
            }),
            Write::GiveUp { guest, seat, .. } => self.change(number(guest), |person| {
                Visit::Here(Person { intent: None, gives_up: Some(number(seat)), ..person })
            }),
            Write::Record { guest, seat, .. } => self.change(number(guest), |person| {
                let seat = Some(number(seat));
                Visit::Here(Person { intent: seat, gives_up: None, result: seat, ..person })
            }),
            Write::LetGo { guest, .. } => self.change(number(guest), |person| {
                if person.deleting {
                    Visit::Gone
                } else {
                    Visit::Here(Person { kept: false, ..person })
                }
            }),
            Write::Claim { seat, uid, .. } => self.hold(seat, Some(number(uid))),
            Write::Release { seat, .. } => self.hold(seat, None),
            Write::PassOver { seat, .. } => self.hold(seat, self.seats[usize::from(number(seat))]),
        }
        true
    }
}

impl Model for Hall {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            guests: vec![Visit::Outside; usize::from(self.guests)],
            seats: vec![None; usize::from(self.seats)],
            replicas: vec![Replica::default(); REPLICAS],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (guest, visit) in (0..).zip(&state.guests) {
            match visit {
                Visit::Outside => actions.push(Action::Arrive(guest)),
                Visit::Here(person) if !person.deleting => actions.push(Action::Delete(guest)),
                Visit::Here(_) | Visit::Gone => {}
            }
        }
        for (index, replica) in (0..).zip(&state.replicas) {
            if !replica.steps.is_empty() {
                actions.extend([Action::Write(index), Action::Crash(index)]);
            } else if replica.read.is_some() {
                actions.push(Action::Decide(index));
            } else {
                let guests = (0..self.guests).map(Subject::Guest);
                let seats = (0..self.seats).map(Subject::Seat);
                actions.extend(guests.chain(seats).map(|it| Action::Read(index, it)));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Arrive(guest) => {
                state.guests[usize::from(guest)] = Visit::Here(Person::default());
            }
            Action::Delete(guest) => state.change(guest, |person| {
                if person.kept {
                    Visit::Here(Person { deleting: true, ..person })
                } else {
                    Visit::Gone
                }
            }),
            Action::Read(replica, subject) => {
                let read = Some((subject, before.seats.clone()));
                state.replicas[usize::from(replica)] = Replica { read, ..Replica::default() };
            }
            Action::Decide(replica) => {
                let steps = self.decided(before, replica);
                let it = &mut state.replicas[usize::from(replica)];
                it.read = None;
                if steps.is_empty() {
                    *it = Replica::default();
                }
                it.steps = steps;
            }
            Action::Write(replica) => {
                let mut steps = before.replicas[usize::from(replica)].steps.clone();
                let done = state.write(replica, &steps.remove(0));
                let it = &mut state.replicas[usize::from(replica)];
                it.steps = steps;
                // A step that is superseded ends the pass.
                if !done || it.steps.is_empty() {
                    *it = Replica::default();
                }
            }
            Action::Crash(replica) => state.replicas[usize::from(replica)] = Replica::default(),
        }
        (state != *before).then_some(state)
    }

    fn format_action(&self, action: &Action) -> String {
        match action {
            Action::Arrive(guest) => format!("client     creates g{guest}"),
            Action::Delete(guest) => format!("client     deletes g{guest}"),
            Action::Read(replica, Subject::Guest(it)) => {
                format!("replica-{}  reads the seats for g{it}", name(*replica))
            }
            Action::Read(replica, Subject::Seat(it)) => {
                format!("replica-{}  reads s{it}", name(*replica))
            }
            Action::Decide(replica) => {
                format!("replica-{}  reads the guest and decides", name(*replica))
            }
            Action::Write(replica) => format!("replica-{}  writes", name(*replica)),
            Action::Crash(replica) => format!("replica-{}  is stopped and started", name(*replica)),
        }
    }

    fn format_step(&self, before: &State, action: Action) -> Option<String> {
        let told = |step: &Write| match step {
            Write::Intend { guest, seat, .. } => format!("{guest} intends {seat}"),
            Write::Claim { seat, uid, .. } => format!("{seat} holder {uid}"),
            Write::Record { guest, seat, .. } => format!("{guest} seated on {seat}"),
            Write::Release { seat, .. } => format!("{seat} holder none"),
            Write::GiveUp { guest, seat, .. } => format!("{guest} gives up {seat}"),
            Write::PassOver { seat, by, .. } => format!("{seat} passed over by {by}"),
            Write::LetGo { guest, .. } => format!("{guest} without finalizer"),
        };
        match action {
            Action::Decide(replica) => {
                let steps: Vec<String> = self.decided(before, replica).iter().map(told).collect();
                Some(format!(
                    "to write: {}",
                    if steps.is_empty() { "nothing".to_owned() } else { steps.join(", then ") }
                ))
            }
            Action::Write(replica) => {
                let step = before.replicas[usize::from(replica)].steps.first()?;
                let done = before.clone().write(replica, step);
                Some(format!(
                    "{}: {}",
                    told(step),
                    if done { "done" } else { "refused, it changed since" }
                ))
            }
            _ => None,
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a guest holds at most one seat", |hall: &Hall, state: &State| {
                (0..hall.guests)
                    .all(|it| state.seats.iter().filter(|holder| **holder == Some(it)).count() <= 1)
            }),
            Property::always("a guest's seat is its own", |_, state: &State| {
                (0..).zip(&state.guests).all(|(index, visit)| match visit {
                    Visit::Here(Person { deleting: false, result: Some(seat), .. }) => {
                        state.seats[usize::from(*seat)] == Some(index)
                    }
                    _ => true,
                })
            }),
            Property::sometimes("a seat passes from one guest to another", |_, state: &State| {
                state.guests.len() < 2
                    || state.guests[0] == Visit::Gone
                        && matches!(state.guests[1], Visit::Here(Person { result: Some(0), .. }))
            }),
        ]
    }
}

/// As many guests seated as there are seats, the deleted ones gone, no seat held by nobody.
fn in_order(_: &Hall, state: &State) -> bool {
    let here = |uid: u8| matches!(state.guests[usize::from(uid)], Visit::Here(_));
    let no_seat_free = state.seats.iter().all(Option::is_some);
    let settled = |visit: &Visit| match visit {
        Visit::Here(person) => !person.deleting && (person.result.is_some() || no_seat_free),
        Visit::Outside | Visit::Gone => true,
    };
    state.guests.iter().all(settled) && state.seats.iter().flatten().all(|uid| here(*uid))
}

/// A world of this size. The bounds stop it where it does not end by itself.
pub fn world(flaw: Flaw, guests: u8, seats: u8) -> World {
    let explored = move |bounds| {
        let own = |action: &Action| {
            matches!(action, Action::Read(..) | Action::Decide(_) | Action::Write(_))
        };
        let name = "every guest is seated in the end";
        let progress = [Progress { name, goal: in_order, own }];
        let policy = Policy { flaw };
        explore(&Hall { guests, seats, policy }, &progress, bounds)
    };
    let flaw = if flaw == Flaw::None { String::new() } else { format!(", {flaw:?}") };
    World { name: format!("{guests} guests, {seats} seats{flaw}"), explore: Box::new(explored) }
}

/// More than a test has time for.
pub fn large() -> Vec<World> {
    [(2, 2), (2, 3), (3, 1), (3, 2)].map(|(guests, seats)| world(Flaw::None, guests, seats)).into()
}

/// What a controller that is wrong looks like.
pub fn flawed() -> Vec<World> {
    vec![world(Flaw::ClaimWithoutPrecondition, 2, 1), world(Flaw::ForgetsAfterCrash, 1, 2)]
}
