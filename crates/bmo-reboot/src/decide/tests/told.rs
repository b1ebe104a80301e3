//! Which changes are told in events, and that each is told once.

use super::*;

fn told(done: &Decided) -> Vec<Reason> {
    done.events.iter().map(told_reason).collect()
}

/// Takes over what a decision wrote about how far it is.
fn go_on(host: &mut Host, done: &Decided) {
    write(host, &done.status);
    host.powered_on = done.status.powered_on.unwrap_or(host.powered_on);
}

#[test]
fn each_step_of_a_cycle_is_told_once() {
    let mut host = cycling(&[(HOLD, HARD)], Reason::HardPowerOff, true, 5);
    let done = decided(&host, &node(Power::Off));
    assert_eq!(told(&done), [Reason::HeldOff]);
    go_on(&mut host, &done);
    assert_eq!(told(&decided(&host, &node(Power::Off))), []);
    // Somebody else's hold is the same step.
    host.requests = Requests::of([(HOLD, HARD), ("reboot.metal3.io/b", "")].into_iter());
    assert_eq!(told(&decided(&host, &node(Power::Off))), []);
    host.requests = Requests::default();
    let done = decided(&host, &node(Power::Off));
    assert_eq!((told(&done), done.call), (vec![Reason::PoweringOn], Some(Call::On)));
    (host.last, host.conditions) = (done.status.last, host.conditions.clone());
    go_on(&mut host, &done);
    assert_eq!(told(&decided(&host, &node(Power::Off))), []);
    for reason in [Reason::PowerFailed, Reason::NodeBusy, Reason::IronicUnreachable] {
        progress(&mut host, reason, false, 400);
        assert_eq!(told(&decided(&host, &node(Power::Off))), [], "{reason:?}");
    }
}

#[test]
fn plain_changes_of_power_are_told() {
    let mut off = Host { online: false, ..host() };
    assert_eq!(told(&decided(&off, &node(Power::Off))), [Reason::PoweredOff]);
    progress(&mut off, Reason::SoftPowerOff, false, 5);
    assert_eq!(told(&decided(&off, &node(Power::Off))), [Reason::Offline]);
    let on = Host { powered_on: false, ..host() };
    assert_eq!(told(&decided(&on, &node(Power::On))), [Reason::PoweredOn]);
}

#[test]
fn a_request_that_is_answered_without_a_cycle_is_told() {
    let mut host = with(&[(PLAIN, "")]);
    host.powered_on = false;
    let done = decided(&host, &node(Power::Off));
    assert_eq!(told(&done), [Reason::Answered, Reason::PoweringOn]);
    host.requests = Requests::of([(PLAIN, ""), (HOLD, "")].into_iter());
    assert_eq!(told(&decided(&host, &node(Power::Off))), [Reason::HeldOff, Reason::Answered]);
}

#[test]
fn events_about_other_requests_are_other_events() {
    const OTHER: &str = "reboot.metal3.io/b";
    let about = |host: &Host, seen: &NodeSeen, reason| {
        let notes = decided(host, seen).events;
        notes.into_iter().find(|note| told_reason(note) == reason).unwrap().action
    };
    let asked = |key| about(&with(&[(key, HARD)]), &node(Power::On), Reason::RequestAccepted);
    assert_ne!(asked(HOLD), asked(OTHER));
    let held = |key| {
        let host = cycling(&[(key, HARD)], Reason::HardPowerOff, true, 5);
        about(&host, &node(Power::Off), Reason::HeldOff)
    };
    assert_ne!(held(HOLD), held(OTHER));
    assert_eq!(held(HOLD), asked(HOLD), "the same ones");
}

#[test]
fn a_held_host_that_was_switched_on_by_somebody_is_warned_about() {
    for reason in [Reason::HeldOff, Reason::PowerUnknown] {
        let mut host = cycling(&[(HOLD, HARD)], Reason::HeldOff, true, 500);
        host.powered_on = false;
        if reason == Reason::PowerUnknown {
            host = after(host.clone(), &decided(&host, &node(Power::Unknown)));
        }
        let done = decided(&host, &node(Power::On));
        assert_eq!((done.status.powered_on, done.call), (Some(true), Some(Call::Off)));
        let note = &done.events[0];
        assert!(note.warning && told_reason(note) == Reason::PoweredOn, "{:?}", done.events);
        assert!(note.text.contains(HOLD) && done.events.len() == 1, "{:?}", done.events);
    }
    // Where nobody holds it that is no more than news.
    let mut free = cycling(&[], Reason::HeldOff, true, 500);
    free.powered_on = false;
    assert!(decided(&free, &node(Power::On)).events.iter().all(|note| !note.warning));
}

#[test]
fn requests_that_go_with_a_deprovisioned_host_are_named() {
    let mut host = cycling(&[(PLAIN, ""), (HOLD, "")], Reason::HeldOff, false, 9);
    host.state = ProvisioningState::Available;
    let done = decided(&host, &NodeSeen::NotAsked);
    assert_eq!(told(&done), [Reason::Deprovisioned]);
    assert!(done.events[0].text.contains(HOLD), "{}", done.events[0].text);
}

#[test]
fn silence_and_unknown_power_are_told_once() {
    let silence = NodeSeen::Unanswered { lasting: true, problem: "no connection".to_owned() };
    for (seen, reason) in
        [(silence, Reason::IronicUnreachable), (node(Power::Unknown), Reason::PowerUnknown)]
    {
        let mut host = Host { powered_on: false, ..host() };
        let done = decided(&host, &seen);
        assert_eq!((told(&done), done.events[0].warning), (vec![reason], true));
        go_on(&mut host, &done);
        assert_eq!(told(&decided(&host, &seen)), []);
    }
}

#[test]
fn setting_and_lifting_the_pause_is_told() {
    let policy = Policy { takeover: true, ..Policy::default() };
    assert_eq!(told(&decided_by(&policy, &host(), &node(Power::On))), [Reason::TakenOver]);
    let wanted = Host { paused: Pause::ByUs, needs_operator: true, ..host() };
    assert_eq!(told(&decided_by(&policy, &wanted, &node(Power::On))), [Reason::HandedBack]);
}
