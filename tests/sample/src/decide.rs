//! The rules, in the order in which they apply. Pure: no client, no clock.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::FINALIZER;
use crate::config::{Flaw, Policy};
use crate::observe::{Guest, Observed, Seat};

/// What to do, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// In this order; the first that is superseded ends the pass.
    pub steps: Vec<Step>,
    /// Why.
    pub reason: Reason,
    /// When to look again without being told.
    pub again: Option<Duration>,
}

/// One write. `at` is the resourceVersion that it insists on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Writes on the guest which seat it is going to take, and keeps the guest until that is undone.
    Intend {
        /// The guest.
        guest: String,
        /// The seat.
        seat: String,
        /// All finalizers that it has from now on.
        finalizers: Vec<String>,
        /// The guest's version.
        at: String,
    },
    /// Writes the guest's uid on the seat.
    Claim {
        /// The seat.
        seat: String,
        /// The guest's uid.
        uid: String,
        /// The seat's version; none is the flaw.
        at: Option<String>,
    },
    /// Writes on the guest that it has its seat.
    Record {
        /// The guest.
        guest: String,
        /// The seat.
        seat: String,
        /// Since when.
        since: Timestamp,
        /// The guest's version.
        at: String,
    },
    /// Writes on the guest that it will not have the seat that it intended.
    GiveUp {
        /// The guest.
        guest: String,
        /// The seat.
        seat: String,
        /// The guest's version.
        at: String,
    },
    /// Moves the version of a seat that was given up, so that no claim of it is left on its way.
    PassOver {
        /// The seat.
        seat: String,
        /// The guest's uid and version: different for every time that it gives up.
        by: String,
        /// The seat's version.
        at: String,
    },
    /// Frees the seat.
    Release {
        /// The seat.
        seat: String,
        /// The seat's version.
        at: String,
    },
    /// Lets the guest go.
    LetGo {
        /// The guest.
        guest: String,
        /// The finalizers that others have on it.
        finalizers: Vec<String>,
        /// The guest's version.
        at: String,
    },
}

/// Why a decision was taken; closed, so that it can label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing of ours.
    NotOurs,
    /// A deleted guest still has a seat.
    Leaving,
    /// A deleted guest has no seat any more.
    Left,
    /// Seated, nothing to do.
    Seated,
    /// The guest's seat was given away or deleted by somebody.
    SeatLost,
    /// The seat is the guest's and the guest does not know it yet.
    Taken,
    /// The seat that the guest is going to take is free.
    Taking,
    /// A free seat was found.
    Found,
    /// Somebody else got the seat that the guest was going to take.
    Beaten,
    /// All seats are taken.
    Waiting,
    /// A seat is held by a guest that is no more.
    Abandoned,
    /// A seat is free or held by a guest that is there.
    InOrder,
}

impl Reason {
    /// All of them, so that each is a series from the start.
    pub const ALL: [Self; 12] = [
        Self::NotOurs,
        Self::Leaving,
        Self::Left,
        Self::Seated,
        Self::SeatLost,
        Self::Taken,
        Self::Taking,
        Self::Found,
        Self::Beaten,
        Self::Waiting,
        Self::Abandoned,
        Self::InOrder,
    ];

    /// As a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotOurs => "NotOurs",
            Self::Leaving => "Leaving",
            Self::Left => "Left",
            Self::Seated => "Seated",
            Self::SeatLost => "SeatLost",
            Self::Taken => "Taken",
            Self::Taking => "Taking",
            Self::Found => "Found",
            Self::Beaten => "Beaten",
            Self::Waiting => "Waiting",
            Self::Abandoned => "Abandoned",
            Self::InOrder => "InOrder",
        }
    }
}

/// Decides about a guest or a seat.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    match seen {
        Observed::Nothing => rest(Reason::NotOurs),
        Observed::Guest { guest, seats } => about_guest(guest, seats, policy, now),
        Observed::Seat { seat, guests } => match &seat.holder {
            Some(uid) if !guests.contains(uid) => step(release(seat), Reason::Abandoned),
            _ => rest(Reason::InOrder),
        },
    }
}

fn about_guest(guest: &Guest, seats: &[Seat], policy: &Policy, now: Timestamp) -> Decision {
    let is_mine = |seat: &&Seat| seat.holder.as_ref() == Some(&guest.uid);
    let mine = seats.iter().find(is_mine);
    if guest.deleting {
        return match mine {
            Some(seat) => step(release(seat), Reason::Leaving),
            None if guest.is_kept() => step(let_go(guest), Reason::Left),
            None => rest(Reason::Left),
        };
    }
    let named = |name: &Option<String>| seats.iter().find(|it| Some(&it.name) == name.as_ref());
    if guest.result.is_some() {
        let still = named(&guest.result).as_ref().is_some_and(is_mine);
        return rest(if still { Reason::Seated } else { Reason::SeatLost });
    }
    let free = seats.iter().find(|seat| seat.holder.is_none());
    if policy.flaw == Flaw::ForgetsAfterCrash {
        return match free {
            Some(seat) => Decision {
                steps: vec![claim(guest, seat, policy), record(guest, seat, now)],
                reason: Reason::Taking,
                again: None,
            },
            None => rest(Reason::Waiting),
        };
    }
    if let Some(seat) = mine {
        return step(record(guest, seat, now), Reason::Taken);
    }
    match (&guest.intent, named(&guest.intent), free) {
        (_, Some(seat), _) if seat.holder.is_none() => {
            step(claim(guest, seat, policy), Reason::Taking)
        }
        (_, _, None) => rest(Reason::Waiting),
        // Another intent would be no safer than the claim that may still be on its way to this seat.
        (Some(seat), _, _) => step(give_up(guest, seat), Reason::Beaten),
        (None, _, Some(seat)) => {
            let given_up = named(&guest.gives_up);
            let passed = given_up.map(|seat| pass_over(guest, seat));
            Decision {
                steps: passed.into_iter().chain([intend(guest, seat)]).collect(),
                reason: Reason::Found,
                again: None,
            }
        }
    }
}

fn rest(reason: Reason) -> Decision {
    Decision { steps: Vec::new(), reason, again: None }
}

fn step(step: Step, reason: Reason) -> Decision {
    Decision { steps: vec![step], reason, again: None }
}

fn intend(guest: &Guest, seat: &Seat) -> Step {
    let mut finalizers = guest.finalizers.clone();
    if !guest.is_kept() {
        finalizers.push(FINALIZER.to_owned());
    }
    Step::Intend {
        guest: guest.name.clone(),
        seat: seat.name.clone(),
        finalizers,
        at: guest.version.clone(),
    }
}

fn give_up(guest: &Guest, seat: &str) -> Step {
    Step::GiveUp { guest: guest.name.clone(), seat: seat.to_owned(), at: guest.version.clone() }
}

fn pass_over(guest: &Guest, seat: &Seat) -> Step {
    Step::PassOver {
        seat: seat.name.clone(),
        by: format!("{}/{}", guest.uid, guest.version),
        at: seat.version.clone(),
    }
}

fn claim(guest: &Guest, seat: &Seat, policy: &Policy) -> Step {
    let careless = policy.flaw == Flaw::ClaimWithoutPrecondition;
    Step::Claim {
        seat: seat.name.clone(),
        uid: guest.uid.clone(),
        at: (!careless).then(|| seat.version.clone()),
    }
}

fn record(guest: &Guest, seat: &Seat, now: Timestamp) -> Step {
    Step::Record {
        guest: guest.name.clone(),
        seat: seat.name.clone(),
        since: now,
        at: guest.version.clone(),
    }
}

fn release(seat: &Seat) -> Step {
    Step::Release { seat: seat.name.clone(), at: seat.version.clone() }
}

fn let_go(guest: &Guest) -> Step {
    let others = guest.finalizers.iter().filter(|it| *it != FINALIZER);
    Step::LetGo {
        guest: guest.name.clone(),
        finalizers: others.cloned().collect(),
        at: guest.version.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> Guest {
        Guest {
            name: "g".to_owned(),
            uid: "u".to_owned(),
            version: "7".to_owned(),
            deleting: false,
            finalizers: vec!["other".to_owned()],
            intent: None,
            gives_up: None,
            result: None,
        }
    }

    fn seat(name: &str, holder: Option<&str>) -> Seat {
        Seat { name: name.to_owned(), version: "3".to_owned(), holder: holder.map(str::to_owned) }
    }

    fn decided(guest: Guest, seats: Vec<Seat>) -> Decision {
        let seen = Observed::Guest { guest, seats };
        decide(&seen, &Policy::default(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_intent_is_written_before_a_seat_is_touched() {
        let done = decided(guest(), vec![seat("a", Some("x")), seat("b", None)]);
        let finalizers = vec!["other".to_owned(), FINALIZER.to_owned()];
        let wanted = Step::Intend {
            guest: "g".to_owned(),
            seat: "b".to_owned(),
            finalizers,
            at: "7".to_owned(),
        };
        assert_eq!(done.steps, [wanted]);
    }

    #[test]
    fn a_claim_insists_on_the_version_of_the_seat() {
        let mut it = guest();
        it.intent = Some("a".to_owned());
        let done = decided(it, vec![seat("a", None)]);
        assert!(matches!(&done.steps[..], [Step::Claim { at: Some(at), .. }] if at == "3"));
    }

    #[test]
    fn a_guest_whose_intended_seat_was_taken_gives_it_up_before_it_looks_for_another() {
        let mut it = guest();
        it.intent = Some("a".to_owned());
        let seats = vec![seat("a", Some("x")), seat("b", None)];
        let done = decided(it.clone(), seats.clone());
        assert!(matches!(&done.steps[..], [Step::GiveUp { seat, .. }] if seat == "a"));
        it.gives_up = it.intent.take();
        let done = decided(it, seats);
        let passed_first = matches!(
            &done.steps[..],
            [Step::PassOver { seat: a, .. }, Step::Intend { seat: b, .. }] if a == "a" && b == "b"
        );
        assert!(passed_first, "{:?}", done.steps);
    }

    #[test]
    fn a_deleted_guest_frees_its_seat_before_it_goes() {
        let mut it = guest();
        it.deleting = true;
        it.finalizers.push(FINALIZER.to_owned());
        let done = decided(it.clone(), vec![seat("a", Some("u"))]);
        assert_eq!(done.reason, Reason::Leaving);
        let done = decided(it, vec![seat("a", None)]);
        let wanted = Step::LetGo {
            guest: "g".to_owned(),
            finalizers: vec!["other".to_owned()],
            at: "7".to_owned(),
        };
        assert_eq!(done.steps, [wanted]);
    }

    #[test]
    fn a_seat_of_nobody_is_freed() {
        let guests = std::iter::once("x".to_owned()).collect();
        let seen = Observed::Seat { seat: seat("a", Some("u")), guests };
        let done = decide(&seen, &Policy::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(done.steps, [release(&seat("a", Some("u")))]);
    }

    #[test]
    fn what_is_in_order_is_left_alone() {
        let mut it = guest();
        it.intent = Some("a".to_owned());
        it.result = Some("a".to_owned());
        let done = decided(it, vec![seat("a", Some("u"))]);
        assert_eq!(done.steps, []);
        assert_eq!(done.reason, Reason::Seated);
    }
}
