//! The rules, in the order in which they apply. Pure: no client, no clock.

use controller_kit::engine::Next;
use k8s_openapi::jiff::Timestamp;

use crate::FINALIZER;
use crate::model::{Decision, Guest, Observed, Seat, Write};
use crate::reason::Reason;
use crate::settings::{Flaw, Policy};

/// Decides about a guest or a seat.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    match seen {
        Observed::Guest { guest, seats } => about_guest(guest, seats, policy, now),
        Observed::Seat { seat, guests } => match &seat.holder {
            Some(uid) if !guests.contains(uid) => Decision::write(Reason::Abandoned, release(seat)),
            _ => Decision::rest(Reason::InOrder),
        },
    }
}

fn about_guest(guest: &Guest, seats: &[Seat], policy: &Policy, now: Timestamp) -> Decision {
    let is_mine = |seat: &&Seat| seat.holder.as_ref() == Some(&guest.uid);
    let mine = seats.iter().find(is_mine);
    if guest.deleting {
        return match mine {
            Some(seat) => Decision::write(Reason::Leaving, release(seat)),
            None if guest.is_kept() => Decision::write(Reason::Left, let_go(guest)),
            None => Decision::rest(Reason::Left),
        };
    }
    let named = |name: &Option<String>| seats.iter().find(|it| Some(&it.name) == name.as_ref());
    if guest.result.is_some() {
        let still = named(&guest.result).as_ref().is_some_and(is_mine);
        return Decision::rest(if still { Reason::Seated } else { Reason::SeatLost });
    }
    let free = seats.iter().find(|seat| seat.holder.is_none());
    if policy.flaw == Flaw::ForgetsAfterCrash {
        return match free {
            Some(seat) => {
                let writes = vec![claim(guest, seat, policy), record(guest, seat, now)];
                Decision { writes, next: Next::Now, ..Decision::rest(Reason::Taking) }
            }
            None => Decision::rest(Reason::Waiting),
        };
    }
    if let Some(seat) = mine {
        return Decision::write(Reason::Taken, record(guest, seat, now));
    }
    match (&guest.intent, named(&guest.intent), free) {
        (_, Some(seat), _) if seat.holder.is_none() => {
            Decision::write(Reason::Taking, claim(guest, seat, policy))
        }
        (_, _, None) => Decision::rest(Reason::Waiting),
        // Another intent would be no safer than the claim that may still be on its way to this seat.
        (Some(seat), _, _) => Decision::write(Reason::Beaten, give_up(guest, seat)),
        (None, _, Some(seat)) => {
            let given_up = named(&guest.gives_up);
            let passed = given_up.map(|seat| pass_over(guest, seat));
            let writes = passed.into_iter().chain([intend(guest, seat)]).collect();
            Decision { writes, next: Next::Now, ..Decision::rest(Reason::Found) }
        }
    }
}

fn intend(guest: &Guest, seat: &Seat) -> Write {
    let mut finalizers = guest.finalizers.clone();
    if !guest.is_kept() {
        finalizers.push(FINALIZER.to_owned());
    }
    Write::Intend {
        guest: guest.name.clone(),
        seat: seat.name.clone(),
        finalizers,
        at: guest.version.clone(),
    }
}

fn give_up(guest: &Guest, seat: &str) -> Write {
    Write::GiveUp { guest: guest.name.clone(), seat: seat.to_owned(), at: guest.version.clone() }
}

fn pass_over(guest: &Guest, seat: &Seat) -> Write {
    Write::PassOver {
        seat: seat.name.clone(),
        by: format!("{}/{}", guest.uid, guest.version),
        at: seat.version.clone(),
    }
}

fn claim(guest: &Guest, seat: &Seat, policy: &Policy) -> Write {
    let careless = policy.flaw == Flaw::ClaimWithoutPrecondition;
    Write::Claim {
        seat: seat.name.clone(),
        uid: guest.uid.clone(),
        at: (!careless).then(|| seat.version.clone()),
    }
}

fn record(guest: &Guest, seat: &Seat, now: Timestamp) -> Write {
    Write::Record {
        guest: guest.name.clone(),
        seat: seat.name.clone(),
        since: now,
        at: guest.version.clone(),
    }
}

fn release(seat: &Seat) -> Write {
    Write::Release { seat: seat.name.clone(), at: seat.version.clone() }
}

fn let_go(guest: &Guest) -> Write {
    let others = guest.finalizers.iter().filter(|it| *it != FINALIZER);
    Write::LetGo {
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
        let wanted = Write::Intend {
            guest: "g".to_owned(),
            seat: "b".to_owned(),
            finalizers,
            at: "7".to_owned(),
        };
        assert_eq!(done.writes, [wanted]);
    }

    #[test]
    fn a_claim_insists_on_the_version_of_the_seat() {
        let mut it = guest();
        it.intent = Some("a".to_owned());
        let done = decided(it, vec![seat("a", None)]);
        assert!(matches!(&done.writes[..], [Write::Claim { at: Some(at), .. }] if at == "3"));
    }

    #[test]
    fn a_guest_whose_intended_seat_was_taken_gives_it_up_before_it_looks_for_another() {
        let mut it = guest();
        it.intent = Some("a".to_owned());
        let seats = vec![seat("a", Some("x")), seat("b", None)];
        let done = decided(it.clone(), seats.clone());
        assert!(matches!(&done.writes[..], [Write::GiveUp { seat, .. }] if seat == "a"));
        it.gives_up = it.intent.take();
        let done = decided(it, seats);
        let passed_first = matches!(
            &done.writes[..],
            [Write::PassOver { seat: a, .. }, Write::Intend { seat: b, .. }] if a == "a" && b == "b"
        );
        assert!(passed_first, "{:?}", done.writes);
    }

    #[test]
    fn a_deleted_guest_frees_its_seat_before_it_goes() {
        let mut it = guest();
        it.deleting = true;
        it.finalizers.push(FINALIZER.to_owned());
        let done = decided(it.clone(), vec![seat("a", Some("u"))]);
        assert_eq!(done.reason, Reason::Leaving);
        let done = decided(it, vec![seat("a", None)]);
        let wanted = Write::LetGo {
            guest: "g".to_owned(),
            finalizers: vec!["other".to_owned()],
            at: "7".to_owned(),
        };
        assert_eq!(done.writes, [wanted]);
    }

    #[test]
    fn a_seat_of_nobody_is_freed() {
        let guests = std::iter::once("x".to_owned()).collect();
        let seen = Observed::Seat { seat: seat("a", Some("u")), guests };
        let done = decide(&seen, &Policy::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(done.writes, [release(&seat("a", Some("u")))]);
    }

    #[test]
    fn what_is_in_order_is_left_alone() {
        let mut it = guest();
        it.intent = Some("a".to_owned());
        it.result = Some("a".to_owned());
        let done = decided(it, vec![seat("a", Some("u"))]);
        assert_eq!(done.writes, []);
        assert_eq!(done.reason, Reason::Seated);
    }
}
