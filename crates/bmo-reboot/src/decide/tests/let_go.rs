//! What a host that is not looked after any more says of its reboot, and what it is worth when it comes back.

use super::*;

/// Held off after its power was cut.
fn held() -> Host {
    let mut host = cycling(&[(HOLD, "")], Reason::HeldOff, true, 500);
    host.powered_on = false;
    host
}

fn refused(mut host: Host, (reason, make): (Reason, Make)) -> Host {
    make(&mut host);
    let seen = if reason == Reason::NodeNotFound { NodeSeen::Missing } else { node(Power::Off) };
    let done = decided(&host, &seen);
    assert_eq!((done.reason, done.call), (reason, None));
    let host = after(host, &done);
    assert!(decided(&host, &seen).status.is_empty(), "written once: {reason:?}");
    host
}

/// As it is when nothing stands against looking after it any more.
fn back(host: Host) -> Host {
    Host { conditions: host.conditions, powered_on: host.powered_on, ..held() }
}

#[test]
fn a_host_that_is_not_looked_after_any_more_is_not_shown_as_held_off() {
    for refusal in REFUSALS {
        for reason in [Reason::HeldOff, Reason::Offline, Reason::PoweredOff] {
            let mut host = held();
            progress(&mut host, reason, true, 500);
            let host = refused(host, refusal);
            let told = host.progress().unwrap();
            assert_eq!((told.rebooting, told.reason), (false, refusal.0), "{reason:?}");
            assert!(!shown(&host).contains(HOLD), "{}", shown(&host));
            assert!(host.record().known().unwrap().power.held.is_empty(), "no fence");
        }
        let unknown = after(held(), &decided(&held(), &node(Power::Unknown)));
        assert_eq!(refused(unknown, refusal).progress().unwrap().reason, refusal.0);
    }
    // What a process that was stopped in between left behind.
    let mut host = held();
    host.selected = false;
    put_managed(&mut host, false, Reason::NotSelected, text::NOT_SELECTED);
    assert_eq!(reason_written(&decided(&host, &node(Power::Off))), Some(Reason::NotSelected));
}

#[test]
fn a_hold_is_carried_out_again_when_its_host_comes_back_and_that_is_no_other_cycle() {
    for refusal in REFUSALS {
        let host = back(refused(held(), refusal));
        let done = decided(&host, &node(Power::Off));
        assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::HeldOff)));
        assert_eq!(done.status.pending, None, "{refusal:?}");
        // Somebody switched it on meanwhile; it was cut, and is cut again.
        let done = decided(&host, &node(Power::On));
        assert_eq!((done.status.powered_on, done.call), (Some(true), Some(Call::Off)));
        assert_eq!(done.status.pending, None, "{refusal:?}");
        // A failure of that time may be one of switching it off.
        let done = decided(&host, &failed(Power::Off));
        assert_eq!((done.status.powered_on, done.call), (None, Some(Call::Off)), "{refusal:?}");
        // Its client has let go: the cycle ends.
        let free = Host { requests: Requests::default(), ..host };
        assert_eq!(decided(&free, &node(Power::Off)).call, Some(Call::On), "{refusal:?}");
    }
}

#[test]
fn what_was_told_of_a_refusal_goes_when_the_host_comes_back_without_a_reboot() {
    let mut host = Host { online: false, powered_on: false, ..host() };
    progress(&mut host, Reason::Offline, false, 500);
    let refused = refused(host.clone(), REFUSALS[0]);
    let host = Host { conditions: refused.conditions, ..host };
    assert_eq!(reason_written(&decided(&host, &node(Power::Off))), Some(Reason::Offline));
    let on = Host { online: true, powered_on: true, ..host };
    assert_eq!(reason_written(&decided(&on, &node(Power::On))), Some(Reason::Completed));
}

#[test]
fn a_reset_or_a_way_to_off_that_was_begun_is_not_forgotten_meanwhile() {
    for reason in [Reason::Restarting, Reason::HoldUnsupported, Reason::HardPowerOff] {
        let mut host = held();
        progress(&mut host, reason, true, 5);
        assert_eq!(refused(host, REFUSALS[2]).progress().unwrap().reason, reason);
    }
}

#[test]
fn a_state_that_is_not_known_is_named_and_the_programs_memory_is_not() {
    let mut host = held();
    host.state = ProvisioningState::Other("frobnicating".to_owned());
    let status = decided(&host, &NodeSeen::NotAsked).status;
    let told = status.managed.unwrap();
    assert!(told.message.contains("frobnicating"), "{}", told.message);
    assert_eq!(status.was_provisioned, Some(true), "it may still be");
}

#[test]
fn that_two_switch_a_machine_is_told_until_we_have_changed_its_power_or_have_it_alone() {
    let disputed = Host { other_writer: true, ..host() };
    let done = decided(&disputed, &node(Power::On));
    let told = done.status.managed.clone().unwrap();
    assert!(told.managed && told.reason == Reason::TwoWriters, "{told:?}");
    assert!(done.events.iter().any(|it| it.warning && told_reason(it) == Reason::TwoWriters));
    let disputed = after(disputed, &done);
    assert_eq!(decided(&disputed, &node(Power::On)), Decided::rest(Reason::AtRest), "told once");
    // Nothing is given up for it.
    let asked = Host { requests: with(&[(HOLD, HARD)]).requests, ..disputed.clone() };
    assert_eq!(decided(&asked, &node(Power::On)).call, Some(Call::Off));
    let off = Host { online: false, ..disputed.clone() };
    let ours = decided(&off, &node(Power::Off));
    let managed = ours.status.managed.map(|it| it.reason);
    assert_eq!((ours.status.powered_on, managed), (Some(false), Some(Reason::Managed)));
    let policy = Policy { takeover: true, ..Policy::default() };
    let taken = decided_by(&policy, &disputed, &node(Power::On));
    assert_eq!(
        (taken.reason, taken.status.managed.unwrap().reason),
        (Reason::TakenOver, Reason::Managed)
    );
}

#[test]
fn an_ironic_that_is_silent_keeps_a_deleted_host_only_for_a_cycle_and_says_so() {
    let silent = |lasting| NodeSeen::Unanswered { lasting, problem: "no route".to_owned() };
    let deleted = |host| Host { deleting: true, paused: Pause::ByUs, ..host };
    let at_rest = deleted(host());
    assert_eq!(decided(&at_rest, &silent(true)).reason, Reason::HandedBack);
    assert_eq!(decided(&at_rest, &silent(false)).annotations.len(), 0, "it may just be busy");
    let cycle = deleted(cycling(&[(PLAIN, HARD)], Reason::RequestAccepted, true, 20));
    let done = decided(&cycle, &silent(true));
    assert_eq!(
        (done.annotations.len(), reason_written(&done)),
        (0, Some(Reason::IronicUnreachable))
    );
    // One that is only taken from us waits, and says so as well.
    let taken = Host { selected: false, paused: Pause::ByUs, ..host() };
    let done = decided(&taken, &silent(true));
    assert_eq!(
        (done.annotations.len(), reason_written(&done)),
        (0, Some(Reason::IronicUnreachable))
    );
}

#[test]
fn a_machine_that_went_off_in_a_cycle_is_still_known_to_reboot() {
    let host = cycling(&[], Reason::HardPowerOff, true, 9);
    let done = decided(&host, &node(Power::Off));
    let told = done.status.progress.unwrap();
    assert!(host.powered_on && told.rebooting, "{told:?}");
}

#[test]
fn one_stamp_is_enough_to_know_that_a_host_was_provisioned() {
    for stamps in [(Some(at(999_000)), None), (None, Some(at(999_500)))] {
        let state = ProvisioningState::Available;
        let (pending, last) = stamps;
        let done = decided(&Host { state, pending, last, ..host() }, &NodeSeen::NotAsked);
        assert!(done.status.clear_stamps, "{stamps:?}");
    }
}

#[test]
fn a_soft_attempt_of_a_host_that_is_not_looked_after_any_more_takes_no_place_from_others() {
    let begun = cycling(&[(HOLD, "")], Reason::SoftPowerOff, false, 9);
    assert!(begun.has_soft_attempt());
    for refusal in REFUSALS {
        let host = refused(begun.clone(), refusal);
        assert_eq!(
            host.progress().unwrap().reason,
            Reason::SoftPowerOff,
            "it goes on where it was"
        );
        assert!(!host.has_soft_attempt(), "{refusal:?}");
    }
}
