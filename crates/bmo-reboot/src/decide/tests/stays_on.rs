//! Machines that must not be switched off.

use super::*;

fn stays_on(keys: &[(&str, &str)]) -> Host {
    Host { disable_power_off: true, ..with(keys) }
}

/// When a stamp that follows the one of a request does not lie in the future any more.
fn soon() -> Timestamp {
    at(1_000_002)
}

/// After a reset that was asked for by these keys, which Ironic took.
fn reset_for(host: &Host) -> Host {
    let host = after(host.clone(), &decided(host, &node(Power::On)));
    let begun = decided_at(soon(), &host, &node(Power::On));
    let mut host = after(host, &begun);
    let call = (begun.call.unwrap(), &Answer::Accepted);
    let done = settle(&host, &node(Power::On), call, &Policy::default(), soon());
    host.last = done.status.last;
    if done.annotations.contains_key(PLAIN) {
        host.requests = Requests::default();
    }
    write(&mut host, &done.status);
    host
}

/// The same, and somebody saw that the reset is over.
fn refused_for(host: &Host) -> Host {
    let mut host = reset_for(host);
    let done = decided(&host, &node(Power::On));
    write(&mut host, &done.status);
    host
}

#[test]
fn a_hold_that_was_answered_by_a_reset_is_not_answered_again_because_online_is_false() {
    let by_node = change(node(Power::On), |node| node.disable_power_off = true);
    for (mut host, node) in
        [(stays_on(&[(HOLD, HARD)]), node(Power::On)), (with(&[(HOLD, HARD)]), by_node)]
    {
        host.disable_power_off = true;
        let mut host = reset_for(&Host { online: false, ..host });
        host.disable_power_off = matches!(&node, NodeSeen::Seen(it) if !it.disable_power_off);
        for _ in 0..3 {
            let done = decided(&host, &node);
            assert_eq!((done.call, done.status.pending), (None, None), "{done:?}");
            write(&mut host, &done.status);
        }
    }
}

#[test]
fn a_reset_that_failed_after_ironic_took_it_is_not_called_completed() {
    let mut host = reset_for(&stays_on(&[(PLAIN, HARD)]));
    assert_eq!(host.progress().unwrap().reason, Reason::PoweringOn);
    let done = decided(&host, &failed(Power::On));
    assert_eq!((reason_written(&done), done.call), (Some(Reason::PowerFailed), None));
    assert!(done.status.trouble.as_ref().unwrap().is_some());
    assert!(
        done.events.iter().any(|note| note.warning && told_reason(note) == Reason::PowerFailed)
    );
    host.failures = Failures::OfPower(1);
    write(&mut host, &done.status);
    let done = decided(&host, &failed(Power::On));
    assert!(done.status.is_empty() && done.call.is_none(), "told once, and reset once: {done:?}");
    // It was off all along, or the reset left it so: off is believed, and then it is switched on.
    let done = decided(&host, &failed(Power::Off));
    assert_eq!((done.status.powered_on, done.reason), (Some(false), Reason::PoweredOff));
    let stamps = (Some(at(5)), Some(at(6)));
    let mut off = Host { powered_on: false, pending: stamps.0, last: stamps.1, ..host.clone() };
    write(&mut off, &done.status);
    assert_eq!(decided(&off, &failed(Power::Off)).call, Some(Call::On));
    host.requests = Requests::of([(PLAIN, HARD)].into_iter());
    assert_eq!(decided(&host, &failed(Power::On)).call, Some(Call::Reboot), "asked again");
}

#[test]
fn a_soft_reset_that_failed_names_the_way_out_and_is_not_repeated_softly() {
    let mut host = reset_for(&stays_on(&[(PLAIN, "")]));
    let done = decided(&host, &failed(Power::On));
    assert!(done.status.told.contains("ask with mode hard"), "{}", done.status.told);
    assert_eq!((reason_written(&done), done.call), (Some(Reason::PowerFailed), None));
    write(&mut host, &done.status);
    host.requests = Requests::of([(PLAIN, "")].into_iter());
    let done = decided(&host, &failed(Power::On));
    assert_eq!(done.call, Some(Call::Reboot), "a soft one would fail in the same way");
    assert!(done.status.progress.unwrap().hard, "and that is kept");
    let engaged = change(failed(Power::On), |node| node.engaged = Some("cleaning".to_owned()));
    let waiting = decided(&host, &engaged).status.progress.unwrap();
    assert_eq!((waiting.reason, waiting.hard), (Reason::NodeBusy, true));
    // What failed hard says nothing about softly.
    let mut other = reset_for(&stays_on(&[(PLAIN, HARD)]));
    let done = decided(&other, &failed(Power::On));
    assert!(done.status.told.contains("ask again"), "{}", done.status.told);
    write(&mut other, &done.status);
    other.requests = Requests::of([(PLAIN, "")].into_iter());
    let again = decided(&other, &failed(Power::On)).call;
    assert!(matches!(again, Some(Call::SoftReboot(_))), "{again:?}");
}

#[test]
fn a_reset_for_a_hold_that_failed_is_told_and_made_again_only_for_a_hold_that_comes_back() {
    let mut host = reset_for(&stays_on(&[(HOLD, "")]));
    let done = decided(&host, &heading(Power::On, Power::On));
    assert!(done.status.is_empty() && done.next == WATCH, "it is under way: {done:?}");
    let done = decided(&host, &failed(Power::On));
    let progress = done.status.progress.clone().unwrap();
    assert_eq!((progress.reason, done.call), (Reason::PowerFailed, None));
    assert!(done.status.told.contains("was not reset"), "{}", done.status.told);
    assert!(progress.has_served(HOLD), "{progress:?}");
    assert!(
        done.events.iter().any(|note| note.warning && told_reason(note) == Reason::PowerFailed)
    );
    let trouble = done.status.trouble.clone().unwrap().unwrap();
    assert!(!trouble.message.contains(HOLD), "{}", trouble.message);
    host.failures = Failures::OfPower(trouble.count);
    write(&mut host, &done.status);
    let done = decided(&host, &failed(Power::On));
    assert!(done.status.is_empty() && done.call.is_none(), "told once: {done:?}");
    host.requests = Requests::default();
    let progress = decided(&host, &failed(Power::On)).status.progress.unwrap();
    assert_eq!((progress.reason, progress.has_served(HOLD)), (Reason::PowerFailed, false));
    put(&mut host, &progress);
    host.requests = Requests::of([(HOLD, "")].into_iter());
    assert_eq!(decided(&host, &failed(Power::On)).call, Some(Call::Reboot), "asked again");
}

#[test]
fn a_hold_that_went_and_comes_back_is_answered_by_another_reset() {
    const OTHER: &str = "reboot.metal3.io/b";
    let mut host = refused_for(&stays_on(&[(HOLD, HARD), (OTHER, HARD)]));
    assert_eq!(decided(&host, &node(Power::On)).status.progress, None, "as long as both are there");
    let both = host.requests.clone();
    host.requests = Requests::of([(HOLD, HARD)].into_iter());
    let done = decided(&host, &node(Power::On));
    assert_eq!((done.call, done.status.pending), (None, None), "{done:?}");
    let progress = done.status.progress.as_ref().unwrap();
    assert!(progress.has_served(HOLD) && !progress.has_served(OTHER));
    write(&mut host, &done.status);
    assert!(decided(&host, &node(Power::On)).status.is_empty(), "written once");
    host.requests = both;
    assert_eq!(decided(&host, &node(Power::On)).call, Some(Call::Reboot));
}

#[test]
fn thousands_of_holds_that_cannot_be_given_fit_into_a_condition_and_are_answered_once() {
    let keys: Vec<String> = (0..3_000).map(|n| format!("reboot.metal3.io/client-{n:05}")).collect();
    let asked: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "")).collect();
    let host = reset_for(&stays_on(&asked));
    let progress = host.progress().unwrap();
    let lengths = host.conditions.iter().map(|it| it.message.as_ref().unwrap().len());
    assert!(lengths.max().unwrap() < 32_768);
    assert!(keys.iter().all(|key| progress.has_served(key)));
    assert_eq!(decided(&host, &node(Power::On)).call, None);
    let new = Requests::of(asked.into_iter().chain([("reboot.metal3.io/a", "")]));
    let done = decided(&Host { requests: new, ..host }, &node(Power::On));
    assert!(done.status.pending.is_some(), "somebody else asks");
}

#[test]
fn the_stamp_of_a_reset_neither_lies_in_the_future_nor_before_the_reset() {
    for (keys, call) in [
        (&[(PLAIN, HARD)][..], Call::Reboot),
        (&[(PLAIN, "")][..], Call::SoftReboot(Policy::default().soft_timeout)),
    ] {
        let host = stays_on(keys);
        let done = decided(&host, &node(Power::On));
        assert_eq!((done.call, done.status.pending), (None, Some(at(1_000_001))), "not yet");
        assert_eq!(done.next, Next::After(Duration::from_millis(1_500)));
        assert_eq!(reason_written(&done), Some(Reason::RequestAccepted));
        let host = after(host, &done);
        assert!(decided(&host, &node(Power::On)).status.is_empty(), "written once");
        let begun = decided_at(soon(), &host, &node(Power::On));
        assert_eq!(begun.call, Some(call));
        let (host, policy) = (after(host, &begun), Policy::default());
        let call = (call, &Answer::Accepted);
        let done = settle(&host, &node(Power::On), call, &policy, at(1_000_003));
        assert_eq!(done.status.last, Some(at(1_000_003)));
    }
    // That a soft one would fail is not forgotten meanwhile.
    let mut host = reset_for(&stays_on(&[(PLAIN, "")]));
    host = after(host.clone(), &decided(&host, &failed(Power::On)));
    host.requests = Requests::of([(PLAIN, "")].into_iter());
    host = after(host.clone(), &decided_at(at(1_000_003), &host, &failed(Power::On)));
    let done = decided_at(at(1_000_010), &host, &failed(Power::On));
    assert_eq!(done.call, Some(Call::Reboot));
}

#[test]
fn whose_word_it_is_that_a_machine_must_stay_on_is_told() {
    let by_node = change(node(Power::On), |node| node.disable_power_off = true);
    for (mut host, node, by) in [
        (stays_on(&[(HOLD, HARD)]), node(Power::On), "spec.disablePowerOff"),
        (with(&[(HOLD, HARD)]), by_node, "disable_power_off of its node in Ironic"),
    ] {
        let mut offline = Host { online: false, ..host.clone() };
        offline.requests = Requests::default();
        let told = decided(&offline, &node).status.told;
        assert!(told.contains(by), "{told}");
        let step = RebootProgress::new(Reason::HoldUnsupported, now());
        put(&mut host, &RebootProgress { served: KeySet::of([HOLD]), ..step });
        let status = decided(&host, &node).status;
        assert!(status.told.contains(by), "{}", status.told);
        assert!(status.progress.unwrap().has_served(HOLD));
    }
}
