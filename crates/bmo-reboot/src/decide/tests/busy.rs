//! An Ironic that is busy with a node for long, or does not answer for it: what is written, and what is told.

use std::collections::BTreeSet;

use super::*;
use crate::record::Soft;

/// What a host waits for that Ironic did not take.
const WAITS: [Reason; 2] = [Reason::NodeBusy, Reason::IronicUnreachable];

fn answer(reason: Reason) -> Answer {
    let why = "for a reason".to_owned();
    if reason == Reason::NodeBusy { Answer::Busy(why) } else { Answer::Unreachable(why) }
}

fn settled(host: &Host, seen: &NodeSeen, call: Call, answer: &Answer) -> Decided {
    settle(host, seen, (call, answer), &Policy::default(), now())
}

fn told(done: &Decided) -> Vec<(Reason, bool)> {
    done.events.iter().map(|note| (told_reason(note), note.warning)).collect()
}

/// A host that waits, and the call that Ironic does not take.
fn waiting(reason: Reason) -> [(Host, NodeSeen, Call); 3] {
    let hard = cycling(&[(PLAIN, HARD)], reason, true, 600);
    let soft = cycling(&[(PLAIN, "")], reason, false, 600);
    let mut on = Host { powered_on: false, ..host() };
    progress(&mut on, reason, false, 600);
    [
        (hard, node(Power::On), Call::Off),
        (soft, node(Power::On), Call::SoftOff(seconds(60))),
        (on, node(Power::Off), Call::On),
    ]
}

#[test]
fn what_ironic_does_not_take_for_hours_is_written_down_once() {
    for reason in WAITS {
        for (host, seen, call) in waiting(reason) {
            let tried = decided(&host, &seen);
            assert_eq!(tried.call, Some(call), "{reason:?}");
            assert_eq!(
                (reason_written(&tried), told(&tried)),
                (None, vec![]),
                "{call:?} {reason:?}"
            );
            let refused = settled(&host, &seen, call, &answer(reason));
            assert!(
                refused.status.is_empty() && refused.events.is_empty(),
                "{call:?}: {refused:?}"
            );
            let taken = settled(&host, &seen, call, &Answer::Accepted);
            let phase = match call {
                Call::Off => Reason::HardPowerOff,
                Call::On => Reason::PoweringOn,
                _ => Reason::SoftPowerOff,
            };
            assert_eq!(reason_written(&taken), Some(phase), "{reason:?}");
        }
    }
}

#[test]
fn the_stamp_of_a_power_on_that_ironic_does_not_take_is_written_once_a_minute() {
    for reason in WAITS {
        let [_, _, (on, seen, _)] = waiting(reason);
        let tried = |last, pending| {
            let done = decided(&Host { pending, last, ..on.clone() }, &seen);
            assert_eq!(done.call, Some(Call::On), "{reason:?}");
            done.status.last.is_some()
        };
        assert!(tried(None, None) && tried(Some(at(1_000_000 - 60)), None));
        assert!(!tried(Some(at(1_000_000 - 59)), None) && !tried(Some(now()), Some(at(999_000))));
        // A cycle that was begun after it has not ended.
        assert!(tried(Some(at(1_000_000 - 9)), Some(at(1_000_000 - 8))));
        // Who asks is answered by a later one.
        let mut asking = with(&[(PLAIN, "")]);
        (asking.powered_on, asking.last) = (false, Some(at(1_000_000 - 9)));
        progress(&mut asking, reason, false, 600);
        let answered = decided(&asking, &seen);
        assert_eq!(answered.annotations, [(PLAIN.to_owned(), None)].into());
        assert_eq!(answered.status.last, Some(at(1_000_000)), "{reason:?}");
        // Only what Ironic was too busy for is tried again.
        let mut first = on.clone();
        progress(&mut first, Reason::PoweredOff, false, 600);
        first.last = Some(at(1_000_000 - 9));
        assert!(decided(&first, &seen).status.last.is_some());
    }
}

#[test]
fn a_hard_request_during_a_lock_of_a_soft_one_is_written_down_ahead() {
    for reason in WAITS {
        let host = cycling(&[(PLAIN, ""), (HOLD, HARD)], reason, false, 600);
        let done = decided(&host, &node(Power::On));
        assert_eq!(
            (done.call, reason_written(&done)),
            (Some(Call::Off), Some(Reason::HardPowerOff))
        );
    }
}

#[test]
fn a_call_that_was_not_written_down_ahead_is_where_nobody_knows_whether_ironic_took_it() {
    for reason in WAITS {
        for (host, seen, call) in waiting(reason) {
            let lost = settled(&host, &seen, call, &Answer::Unknown);
            let progress = lost.status.progress.clone().unwrap();
            assert_eq!(
                (progress.hard, progress.since),
                (call == Call::Off, at(1_000_000)),
                "{call:?}"
            );
            let host = after(host, &lost);
            // Once: what follows goes by it.
            assert!(settled(&host, &seen, call, &Answer::Unknown).status.is_empty(), "{call:?}");
            if matches!(call, Call::SoftOff(_)) {
                assert_eq!(decided_at(at(1_000_119), &host, &seen).call, Some(call));
                let over = decided_at(at(1_000_200), &host, &failed(Power::On));
                assert_eq!(over.call, Some(Call::Off), "its time goes on");
            }
        }
    }
    // Where Ironic shows a failure of before, that would be taken for one of this call.
    for (host, _, call) in waiting(Reason::NodeBusy).into_iter().take(2) {
        let lost = settled(&host, &failed(Power::On), call, &Answer::Unknown);
        assert!(lost.status.is_empty(), "{call:?}: {lost:?}");
    }
}

#[test]
fn a_soft_attempt_that_waited_for_ironic_goes_on_by_its_own_clock() {
    let begun = Soft { since: at(999_930), last: at(999_930) };
    for reason in WAITS {
        let mut host = cycling(&[(PLAIN, "")], reason, false, 5);
        let told = host.progress().unwrap();
        put(&mut host, &RebootProgress { soft: Some(begun), ..told });
        let call = Call::SoftOff(seconds(60));
        assert_eq!(decided(&host, &node(Power::On)).call, Some(call));
        for (answer, last) in [(Answer::Accepted, at(1_000_000)), (Answer::Unknown, begun.last)] {
            let progress = settled(&host, &node(Power::On), call, &answer).status.progress.unwrap();
            assert_eq!(progress.soft, Some(Soft { last, ..begun }), "{answer:?}");
        }
    }
}

#[test]
fn a_call_that_ironic_does_not_take_is_told_once() {
    let calls = [Call::Off, Call::SoftOff(seconds(60)), Call::On];
    let phases = [Reason::HardPowerOff, Reason::SoftPowerOff, Reason::PoweringOn];
    for reason in WAITS {
        for (call, phase) in calls.into_iter().zip(phases) {
            let mut host = cycling(&[(PLAIN, "")], phase, call == Call::Off, 1);
            host.powered_on = call != Call::On;
            let seen = node(if host.powered_on { Power::On } else { Power::Off });
            let done = settled(&host, &seen, call, &answer(reason));
            assert_eq!(told(&done), [(reason, reason == Reason::IronicUnreachable)], "{call:?}");
            let host = after(host, &done);
            assert_eq!(told(&settled(&host, &seen, call, &answer(reason))), [], "{call:?}");
            let silence = NodeSeen::Unanswered { lasting: true, problem: "no answer".to_owned() };
            let silent = told(&decided(&host, &silence));
            assert_eq!(silent.is_empty(), reason == Reason::IronicUnreachable, "{call:?}");
        }
    }
    let host = cycling(&[(PLAIN, HARD)], Reason::RequestAccepted, true, 1);
    let engaged = change(node(Power::On), |node| node.engaged = Some("it is cleaning".to_owned()));
    let done = decided(&host, &engaged);
    assert_eq!(told(&done), [(Reason::NodeBusy, false)]);
    assert_eq!(told(&decided(&after(host, &done), &engaged)), []);
}

#[test]
fn a_reset_that_ironic_does_not_take_is_told_once_although_each_try_is_written_down_ahead() {
    for reason in WAITS {
        let mut hourly = BTreeSet::new();
        let mut host = Host { disable_power_off: true, ..with(&[(PLAIN, HARD)]) };
        host.pending = Some(at(999_000));
        let mut told_of = Vec::new();
        for _ in 0..3 {
            let tried = decided(&host, &node(Power::On));
            assert_eq!(
                (tried.call, reason_written(&tried)),
                (Some(Call::Reboot), Some(Reason::Restarting))
            );
            host = after(host, &tried);
            let refused = settled(&host, &node(Power::On), Call::Reboot, &answer(reason));
            assert_eq!(reason_written(&refused), Some(reason));
            assert!(refused.events.iter().all(|event| event.hourly.is_some()));
            let is_news = refused.events.iter().any(|event| hourly.insert(event.hourly));
            told_of.extend(told(&refused).into_iter().filter(|_| is_news));
            host = after(host, &refused);
        }
        assert_eq!(told_of, [(reason, reason == Reason::IronicUnreachable)]);
    }
}

/// A conductor dies in a call, and then nobody answers. Who waits for the host must not take that for a dead machine.
#[test]
fn an_outage_of_ironic_that_begins_with_a_failure_is_told_as_one() {
    let silence = NodeSeen::Unanswered { lasting: true, problem: "no answer".to_owned() };
    let failed_host = |reset: Option<Reset>| {
        let mut host = cycling(&[(PLAIN, HARD)], Reason::PowerFailed, true, 30);
        let known = host.progress().unwrap();
        put(&mut host, &RebootProgress { reset, ..known });
        host
    };
    let (host, call) = (failed_host(None), Call::Off);
    let refused = |host: &Host, reason| settled(host, &failed(Power::On), call, &answer(reason));
    for done in [decided(&host, &silence), refused(&host, Reason::IronicUnreachable)] {
        let progress = done.status.progress.clone().unwrap();
        assert_eq!((progress.reason, progress.hard), (Reason::IronicUnreachable, true));
        assert_eq!(told(&done), [(Reason::IronicUnreachable, true)]);
        let host = after(host.clone(), &done);
        assert!(decided(&host, &silence).status.is_empty(), "once");
        assert_eq!(decided(&host, &failed(Power::On)).call, Some(call), "it goes on");
    }
    // While Ironic looks for a dead management controller the node is busy again and again.
    assert_eq!(reason_written(&refused(&host, Reason::NodeBusy)), None);
    // The failure of a reset must not be forgotten, or it is made once more.
    let reset = failed_host(Some(Reset::Failed { hard: true }));
    assert!(decided(&reset, &silence).status.is_empty());
}
