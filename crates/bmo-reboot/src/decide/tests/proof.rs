//! Off is asked, not read: what has to be known before anybody is told to hold a machine off.

use super::*;

const OTHER: &str = "reboot.metal3.io/b";
const BOTH: [(&str, &str); 2] = [(HOLD, HARD), (OTHER, HARD)];

/// Off since long ago, as Ironic shows it, with what its answers to us prove.
fn shown(off_proof: OffProof) -> NodeSeen {
    change(node(Power::Off), |node| node.off_proof = off_proof)
}

fn again_after(left: u64) -> NodeSeen {
    shown(OffProof::Once(seconds(left)))
}

/// Out of use, as its status says, and then held so.
fn parked(mode: &str) -> Host {
    let mut host = Host { online: false, powered_on: false, ..with(&[(HOLD, mode)]) };
    progress(&mut host, Reason::Offline, false, 500);
    host
}

/// Held off for one client, as its status says, and then for another one too.
fn joined() -> Host {
    let host = cycling(&[(HOLD, HARD)], Reason::HardPowerOff, true, 5);
    let host = after(host.clone(), &decided(&host, &node(Power::Off)));
    assert!(host.progress().unwrap().is_held_for(&[HOLD]));
    Host { requests: Requests::of(BOTH.into_iter()), ..host }
}

#[test]
fn a_machine_that_is_shown_off_is_asked_twice_before_anybody_is_told_to_hold_it_off() {
    let cut = cycling(&[(HOLD, HARD)], Reason::HardPowerOff, true, 5);
    let softly = cycling(&[(HOLD, "")], Reason::SoftPowerOff, false, 5);
    let soft = Call::SoftOff(seconds(60));
    for (host, call) in [
        (parked(HARD), Call::Off),
        (parked(""), soft),
        (joined(), Call::Off),
        (cut, Call::Off),
        (softly, soft),
    ] {
        for unproven in [shown(OffProof::None), again_after(0)] {
            let done = decided(&host, &unproven);
            assert_eq!((done.call, done.next), (Some(call), WATCH), "{host:?}");
            assert!(done.status.is_empty() && done.annotations.is_empty(), "{done:?}");
            // For one that is off it changes nothing, and nothing is written down.
            let taken = (call, &Answer::Accepted);
            let settled = settle(&host, &unproven, taken, &Policy::default(), now());
            assert!(settled.status.is_empty(), "{settled:?}");
        }
        let done = decided(&host, &again_after(2));
        assert_eq!((done.call, done.next), (None, Next::After(seconds(2))), "{host:?}");
        assert!(done.status.is_empty(), "{done:?}");
        let done = decided(&host, &shown(OffProof::Twice));
        assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::HeldOff)), "{host:?}");
        let host = after(host, &done);
        let rest = decided(&host, &shown(OffProof::None));
        assert!(rest.call.is_none() && rest.status.is_empty(), "told already: {rest:?}");
    }
}

#[test]
fn a_machine_that_ran_when_it_was_asked_for_off_is_in_a_cycle_from_then_on() {
    let done = decided(&parked(HARD), &heading(Power::On, Power::Off));
    assert!(done.status.pending.is_some() && done.call.is_none(), "{done:?}");
    assert_eq!((done.status.powered_on, done.next), (Some(true), WATCH));
}

#[test]
fn an_off_that_failed_is_told_and_tried_again_at_the_pace_of_every_off() {
    let failed = change(failed(Power::Off), |node| node.off_proof = OffProof::Failed);
    for host in [parked(HARD), parked(""), joined()] {
        let done = decided(&host, &failed);
        assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::PowerFailed)));
        assert!(done.status.trouble.is_some() && done.next == Next::After(off_delay(1)));
        let told = after(host, &done);
        let clean = shown(OffProof::None);
        assert_eq!(decided(&told, &clean).call, None, "not at once");
        let later = at(1_000_010);
        let done = decided_at(later, &told, &clean);
        assert_eq!((done.call, done.status.powered_on), (Some(Call::Off), None), "{told:?}");
    }
}

#[test]
fn an_old_failure_says_nothing_of_an_off_that_was_not_asked_for() {
    let old = change(failed(Power::Off), |node| node.off_proof = OffProof::None);
    let done = decided(&parked(HARD), &old);
    assert_eq!((done.call, reason_written(&done)), (Some(Call::Off), None));
}

#[test]
fn nobody_is_asked_about_a_machine_that_ironic_is_at_work_on() {
    let engaged = change(shown(OffProof::None), |node| node.engaged = Some("cleaning".to_owned()));
    let done = decided(&parked(HARD), &engaged);
    assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::NodeBusy)));
    let done = decided(&joined(), &engaged);
    assert_eq!((done.call, done.next), (None, Next::After(NODE_BUSY_RETRY)));
    assert!(after(joined(), &done).progress() == joined().progress(), "the other one holds it");
}

/// What a host is told in the condition that waits for a reason, and by events of which.
fn told_once(host: &Host, decide: &dyn Fn(&Host) -> Decided) -> (String, Vec<Reason>) {
    let done = decide(host);
    let events = done.events.iter().map(told_reason).collect();
    let host = after(host.clone(), &done);
    let again = decide(&host);
    assert!(again.status.is_empty() && again.events.is_empty(), "once: {again:?}");
    (super::shown(&host), events)
}

#[test]
fn who_joins_a_hold_or_holds_a_host_out_of_use_is_told_what_is_waited_for() {
    // For so long that no power-on can be on its way.
    let unproven = change(shown(OffProof::None), |node| node.off_for = Some(since(999_000)));
    let engaged = change(unproven.clone(), |node| node.engaged = Some("cleaning".to_owned()));
    let silence = NodeSeen::Unanswered { lasting: true, problem: "no connection".to_owned() };
    let answered = |host: &Host, answer: &Answer| {
        settle(host, &unproven, (Call::Off, answer), &Policy::default(), now())
    };
    let (busy, lost) =
        (Answer::Busy("locked".to_owned()), Answer::Unreachable("no worker".to_owned()));
    let ended = {
        let mut host = Host { powered_on: false, ..with(&[(HOLD, HARD)]) };
        progress(&mut host, Reason::Completed, false, 500);
        host
    };
    for host in [joined(), parked(HARD), ended] {
        let joins = host.progress().unwrap().reason == Reason::HeldOff;
        let tell = |reason, decide: &dyn Fn(&Host) -> Decided| {
            let (shown, events) = told_once(&host, decide);
            if joins {
                // Whoever finds its key there relies on it.
                let names = shown.contains(HOLD) && !shown.contains(OTHER);
                assert!(names && shown.contains("still wait: 1 ("), "{shown}");
            } else {
                assert!(shown.contains("waits") && events == [reason], "{shown}");
            }
        };
        tell(Reason::NodeBusy, &|host| decided(host, &engaged));
        tell(Reason::NodeBusy, &|host| answered(host, &busy));
        tell(Reason::IronicUnreachable, &|host| answered(host, &lost));
        tell(Reason::IronicUnreachable, &|host| decided(host, &silence));
    }
    // Whatever is said of it, nothing changes for who holds it already.
    for answer in [&busy, &lost] {
        let host = after(joined(), &answered(&joined(), answer));
        assert_eq!(host.progress(), joined().progress());
        let held = after(host.clone(), &decided(&host, &shown(OffProof::Twice)));
        assert_eq!(super::shown(&held), format!("Held off by {HOLD}, {OTHER}. The power was cut."));
    }
    let alone = Host { requests: Requests::of([(HOLD, HARD)].into_iter()), ..joined() };
    assert!(decided(&alone, &silence).status.is_empty(), "nobody waits");
}

#[test]
fn who_only_leaves_and_who_holds_a_machine_that_must_stay_on_ask_for_nothing() {
    let left = Host {
        requests: Requests::of([(OTHER, HARD)].into_iter()),
        ..{
            let host = joined();
            after(host.clone(), &decided(&host, &shown(OffProof::Twice)))
        }
    };
    let done = decided(&left, &shown(OffProof::None));
    assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::HeldOff)), "{done:?}");
    let stays = Host { disable_power_off: true, ..parked(HARD) };
    assert_eq!(decided(&stays, &shown(OffProof::None)).call, None);
}
