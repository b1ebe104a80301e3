//! Which changes are told in events, and that each is told once.

use super::*;

fn told(done: &Decision) -> Vec<Reason> {
    done.notes.iter().map(|note| note.reason).collect()
}

/// Takes over what a decision wrote about how far it is.
fn go_on(host: &mut Host, done: &Decision) {
    if let Some(record) = &done.status.record {
        host.conditions.retain(|it| it.r#type != "Rebooting");
        host.conditions.push(record.condition(1));
    }
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
        record(&mut host, reason, false, 400);
        assert_eq!(told(&decided(&host, &node(Power::Off))), [], "{reason:?}");
    }
}

#[test]
fn plain_changes_of_power_are_told() {
    let mut off = Host { online: false, ..host() };
    assert_eq!(told(&decided(&off, &node(Power::Off))), [Reason::PoweredOff]);
    record(&mut off, Reason::SoftPowerOff, false, 5);
    assert_eq!(told(&decided(&off, &node(Power::Off))), [Reason::Offline]);
    let on = Host { powered_on: false, ..host() };
    assert_eq!(told(&decided(&on, &node(Power::On))), [Reason::PoweredOn]);
}

#[test]
fn a_request_that_is_answered_without_a_cycle_is_told() {
    let mut host = with(&[(PLAIN, "")]);
    host.powered_on = false;
    let done = decided(&host, &node(Power::Off));
    assert_eq!(told(&done), [Reason::Completed, Reason::PoweringOn]);
    host.requests = Requests::of([(PLAIN, ""), (HOLD, "")].into_iter());
    assert_eq!(told(&decided(&host, &node(Power::Off))), [Reason::HeldOff, Reason::Completed]);
}

#[test]
fn requests_that_go_with_a_deprovisioned_host_are_named() {
    let mut host = cycling(&[(PLAIN, ""), (HOLD, "")], Reason::HeldOff, false, 9);
    host.state = ProvisioningState::Available;
    let done = decided(&host, &NodeSeen::NotAsked);
    assert_eq!(told(&done), [Reason::Deprovisioned]);
    assert!(done.notes[0].text.contains(HOLD), "{}", done.notes[0].text);
}

#[test]
fn silence_and_unknown_power_are_told_once() {
    let silence = NodeSeen::Unanswered { lasting: true, problem: "no connection".to_owned() };
    for (seen, reason) in
        [(silence, Reason::IronicUnreachable), (node(Power::Unknown), Reason::PowerUnknown)]
    {
        let mut host = Host { powered_on: false, ..host() };
        let done = decided(&host, &seen);
        assert_eq!((told(&done), done.notes[0].warning), (vec![reason], true));
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
