//! What is remembered of a way to off that was interrupted, and when off is believed.

use super::*;
use crate::record::Soft;
use crate::requests::Mode;

/// Softly asked so many seconds ago, the last time so many, and now waiting for something.
fn softly(keys: &[(&str, &str)], reason: Reason, since: i64, last: i64) -> Host {
    let mut host = cycling(keys, reason, false, last);
    let soft = Soft { since: at(1_000_000 - since), last: at(1_000_000 - last) };
    let told = host.progress().unwrap();
    put(&mut host, &RebootProgress { soft: Some(soft), ..told });
    host
}

#[test]
fn the_soft_clock_goes_on_while_something_is_waited_for() {
    for reason in [Reason::RequestAccepted, Reason::NodeBusy, Reason::IronicUnreachable] {
        let soft = |since, last| softly(&[(PLAIN, "")], reason, since, last);
        let done = decided(&soft(150, 90), &failed(Power::On));
        assert_eq!(done.call, Some(Call::SoftOff(Duration::from_millis(29_500))), "{reason:?}");
        assert_eq!(decided(&soft(180, 90), &failed(Power::On)).call, Some(Call::Off));
    }
}

#[test]
fn whatever_a_host_waits_for_it_keeps_its_soft_clock() {
    let host = softly(&[(PLAIN, "")], Reason::SoftPowerOff, 100, 61);
    let soft = host.progress().unwrap().soft;
    assert!(soft.is_some());
    let full = Observed { soft_free: false, ..observed(&host, &failed(Power::On)) };
    let full: Decided = decide(&full, &Policy::default(), now()).into();
    let engaged = change(failed(Power::On), |node| node.engaged = Some("cleaning".to_owned()));
    let silent = NodeSeen::Unanswered { lasting: true, problem: "no connection".to_owned() };
    let waits = [full, decided(&host, &engaged), decided(&host, &silent)];
    let reasons = [Reason::RequestAccepted, Reason::NodeBusy, Reason::IronicUnreachable];
    for (done, reason) in waits.into_iter().zip(reasons) {
        let progress = done.status.progress.unwrap();
        assert_eq!((progress.reason, progress.soft), (reason, soft));
        let mut written = host.clone();
        put(&mut written, &progress);
        assert_eq!(written.progress(), Some(progress));
    }
}

/// What is written down when Ironic took a slice.
fn taken(policy: &Policy, host: &Host, seen: &NodeSeen) -> Change {
    let call = (Call::SoftOff(seconds(60)), &Answer::Accepted);
    settle(host, seen, call, policy, now()).status
}

#[test]
fn a_slice_that_ironic_took_is_remembered_with_its_time() {
    let ahead = cycling(&[(PLAIN, "")], Reason::SoftPowerOff, false, 2);
    let settled =
        |host: &Host, seen: &NodeSeen| taken(&Policy::default(), host, seen).progress.unwrap();
    let progress = settled(&ahead, &failed(Power::On));
    assert_eq!(progress.soft, Some(Soft { since: at(999_998), last: at(1_000_000) }));
    assert_eq!((progress.reason, progress.since), (Reason::SoftPowerOff, at(999_998)));
    let second = softly(&[(PLAIN, "")], Reason::SoftPowerOff, 70, 70);
    let soft = settled(&second, &node(Power::On)).soft;
    assert_eq!(soft, Some(Soft { since: at(999_930), last: at(1_000_000) }));
}

#[test]
fn the_first_of_several_slices_needs_no_record_but_the_one_ahead_of_it() {
    let settled = |slice, ago| {
        let ahead = cycling(&[(PLAIN, "")], Reason::SoftPowerOff, false, ago);
        let policy = Policy { soft_slice: seconds(slice), ..Policy::default() };
        taken(&policy, &ahead, &node(Power::On))
    };
    assert!(settled(60, 2).is_empty() && settled(45, 2).is_empty());
    // Where no look is left before its time is over, or this is a later one, nothing else would end it.
    for (slice, ago) in [(180, 2), (61, 2), (60, 61)] {
        let soft = settled(slice, ago).progress.unwrap().soft;
        let written = Soft { since: at(1_000_000 - ago), last: at(1_000_000) };
        assert_eq!(soft, Some(written), "{slice}, {ago}");
    }
}

#[test]
fn a_slice_that_ironic_may_not_have_taken_uses_up_its_time_and_never_cuts_the_power() {
    let ahead = |ago| cycling(&[(PLAIN, "")], Reason::SoftPowerOff, false, ago);
    let times =
        [(5, 60_000, 5), (61, 60_000, 61), (119, 60_000, 119), (121, 60_000, 0), (178, 60_000, 0)];
    for (ago, millis, since) in times {
        let done = decided(&ahead(ago), &node(Power::On));
        assert_eq!(done.call, Some(Call::SoftOff(Duration::from_millis(millis))), "{ago}");
        let progress = done.status.progress.unwrap();
        assert_eq!((progress.since, progress.soft), (at(1_000_000 - since), None), "{ago}");
    }
    // Nor does it while something is waited for.
    let engaged = change(node(Power::On), |node| node.engaged = Some("cleaning".to_owned()));
    let progress = decided(&ahead(100), &engaged).status.progress.unwrap();
    assert_eq!((progress.reason, progress.soft), (Reason::NodeBusy, None));
}

#[test]
fn the_power_is_cut_although_ironic_loses_the_failure_of_every_slice() {
    let host = cycling(&[(PLAIN, "")], Reason::SoftPowerOff, false, 61);
    let mut host = after(host.clone(), &decided(&host, &node(Power::On)));
    let progress = taken(&Policy::default(), &host, &node(Power::On)).progress.unwrap();
    put(&mut host, &progress);
    let at_second = |second| decided_at(at(second), &host, &node(Power::On)).call;
    assert_eq!(at_second(1_000_100), Some(Call::SoftOff(seconds(19))));
    assert_eq!(at_second(1_000_119), Some(Call::Off));
}

#[test]
fn a_slice_that_ironic_gives_up_early_is_repeated_and_one_that_was_refused_is_not() {
    let early = softly(&[(PLAIN, "")], Reason::SoftPowerOff, 70, 5);
    assert_eq!(decided(&early, &failed(Power::On)).call, Some(Call::Off));
    // The last one is of what is left: here 60 of 180 seconds, and then 20.
    for (since, last) in [(48, 48), (31, 31), (121, 61), (151, 31), (171, 11)] {
        let given_up = softly(&[(PLAIN, "")], Reason::SoftPowerOff, since, last);
        let call = decided(&given_up, &failed(Power::On)).call;
        assert!(matches!(call, Some(Call::SoftOff(_))), "{since}, {last}: {call:?}");
    }
    for (since, last) in [(29, 29), (149, 29), (169, 9)] {
        let refused = softly(&[(PLAIN, "")], Reason::SoftPowerOff, since, last);
        let call = decided(&refused, &failed(Power::On)).call;
        assert_eq!(call, Some(Call::Off), "{since}, {last}");
    }
}

#[test]
fn a_slice_that_ended_with_its_conductor_was_not_refused() {
    for why in ["restart", "take over"] {
        let told = format!("Pending power operation was aborted due to conductor {why}");
        let ended = change(node(Power::On), |node| node.last_error = Some(told));
        let first = cycling(&[(PLAIN, "")], Reason::SoftPowerOff, false, 5);
        let later = softly(&[(PLAIN, "")], Reason::SoftPowerOff, 65, 5);
        for host in [first, later] {
            assert_eq!(decided(&host, &ended).call, Some(Call::SoftOff(seconds(60))), "{why}");
        }
        let over = softly(&[(PLAIN, "")], Reason::SoftPowerOff, 180, 5);
        assert_eq!(decided(&over, &ended).call, Some(Call::Off), "{why}");
    }
}

#[test]
fn a_soft_attempt_that_was_only_written_down_is_made_however_late() {
    let host = cycling(&[(PLAIN, "")], Reason::SoftPowerOff, false, 4_000);
    let done = decided(&host, &node(Power::On));
    assert_eq!(done.call, Some(Call::SoftOff(seconds(60))));
    assert_eq!(done.status.progress.unwrap().since, at(1_000_000), "with its whole time");
    let taken = softly(&[(PLAIN, "")], Reason::SoftPowerOff, 4_000, 4_000);
    assert_eq!(decided(&taken, &node(Power::On)).call, Some(Call::Off));
}

#[test]
fn off_needs_a_second_reading_unless_the_power_was_cut() {
    let phases = [
        Reason::RequestAccepted,
        Reason::SoftPowerOff,
        Reason::NodeBusy,
        Reason::IronicUnreachable,
        Reason::PowerUnknown,
    ];
    for reason in phases {
        let host = cycling(&[(HOLD, "")], reason, false, 9);
        let first = decided(&host, &just_off());
        assert_eq!(
            (first.status.powered_on, first.call, first.next),
            (None, None, Next::After(OFF_CONFIRM_DELAY)),
            "{reason:?}"
        );
        assert_eq!(decided(&host, &node(Power::Off)).status.powered_on, Some(false), "{reason:?}");
        // That it is to be cut says nothing: the machine may have obeyed softly meanwhile.
        let hard = cycling(&[(HOLD, "")], reason, true, 9);
        let first = decided(&hard, &just_off());
        assert_eq!((first.status.powered_on, first.call), (None, None), "{reason:?}");
        assert_eq!(decided(&hard, &node(Power::Off)).status.powered_on, Some(false), "{reason:?}");
    }
    for reason in [Reason::HardPowerOff, Reason::Restarting] {
        // Whoever holds it waits until Ironic was asked twice: see `proof`.
        let cut = cycling(&[(PLAIN, "")], reason, true, 9);
        assert_eq!(decided(&cut, &just_off()).status.powered_on, Some(false), "{reason:?}");
    }
    // Also when nothing is known of an attempt.
    let host = Host { online: false, ..host() };
    assert_eq!(decided(&host, &just_off()).status.powered_on, None);
}

#[test]
fn off_with_a_failure_stays_doubtful_whatever_is_waited_for() {
    for reason in [Reason::PowerFailed, Reason::NodeBusy, Reason::IronicUnreachable] {
        let host = cycling(&[(HOLD, "")], reason, true, 30);
        let done = decided(&host, &failed(Power::Off));
        assert_eq!((done.status.powered_on, done.call), (None, Some(Call::Off)), "{reason:?}");
    }
    for reason in [Reason::RequestAccepted, Reason::IronicUnreachable] {
        let done = decided(&cycling(&[(HOLD, "")], reason, false, 30), &failed(Power::Off));
        assert_eq!(done.status.powered_on, None, "{reason:?}");
        assert!(matches!(done.call, Some(Call::SoftOff(_))), "{reason:?}");
    }
    // A power-on that failed says nothing about off.
    let mut host = host();
    host.powered_on = false;
    progress(&mut host, Reason::PowerFailed, false, 400);
    assert_eq!(decided(&host, &failed(Power::Off)).call, Some(Call::On));
}

#[test]
fn soft_never_follows_hard_while_the_cycle_lasts() {
    let mut host = cycling(&[(HOLD, "")], Reason::HardPowerOff, true, 5);
    for (keys, online, reason) in [
        (&[(HOLD, "")][..], true, Reason::HeldOff),
        (&[][..], true, Reason::PoweredOff),
        (&[][..], false, Reason::Offline),
    ] {
        host.requests = Requests::of(keys.iter().copied());
        host.online = online;
        let progress = decided(&host, &node(Power::Off)).status.progress.unwrap();
        assert_eq!((progress.reason, progress.hard), (reason, true));
        let mut woken = host.clone();
        put(&mut woken, &progress);
        assert_eq!(woken.progress(), Some(progress));
        assert_eq!(decided(&woken, &node(Power::On)).call, Some(Call::Off), "{reason:?}");
    }
    // The next cycle is another one.
    let mut next = with(&[(PLAIN, "")]);
    (next.pending, next.last) = (Some(at(5)), Some(at(6)));
    progress(&mut next, Reason::HeldOff, true, 5);
    assert!(matches!(decided(&next, &node(Power::On)).call, Some(Call::SoftOff(_))));
}

#[test]
fn a_hold_keeps_its_age_while_the_power_is_not_known() {
    let mut host = cycling(&[(HOLD, "")], Reason::HeldOff, true, 500);
    host.powered_on = false;
    let done = decided(&host, &node(Power::Unknown));
    assert_eq!((done.call, done.status.powered_on), (None, None));
    assert_eq!(reason_written(&done), Some(Reason::PowerUnknown), "nobody sees that it is off");
    assert!(
        done.events.iter().any(|note| note.warning && told_reason(note) == Reason::PowerUnknown)
    );
    assert!(matches!(done.next, Next::After(wait) if wait <= seconds(24)));
    let host = after(host, &done);
    let done = decided(&host, &node(Power::Unknown));
    assert!(done.status.is_empty() && done.events.is_empty(), "told once: {done:?}");
    // Seen off again, also with the failure of that time, it is held as long as before.
    for seen in [node(Power::Off), failed(Power::Off)] {
        let progress = decided(&host, &seen).status.progress.unwrap();
        assert_eq!((progress.reason, progress.since), (Reason::HeldOff, at(999_500)));
        assert!(progress.hard, "and how it was switched off is not forgotten");
    }
}

#[test]
fn a_hold_without_a_cycle_is_no_cycle_because_its_power_was_not_known() {
    let mut host = Host { powered_on: false, ..with(&[(HOLD, "")]) };
    progress(&mut host, Reason::HeldOff, false, 500);
    host.conditions.last_mut().unwrap().status = "True".to_owned();
    let host = after(host.clone(), &decided(&host, &node(Power::Unknown)));
    let done = decided(&host, &node(Power::Unknown));
    assert!(done.status.is_empty() && done.call.is_none(), "{done:?}");
}

#[test]
fn a_request_of_a_machine_whose_power_is_not_known_is_accepted() {
    for (keys, call) in
        [(&[(HOLD, HARD)][..], Call::Off), (&[(PLAIN, "")][..], Call::SoftOff(seconds(60)))]
    {
        let done = decided(&with(keys), &node(Power::Unknown));
        assert!(done.status.pending.is_some());
        assert_eq!(done.call, Some(call));
    }
}

/// Asked to be on a second ago, and held since.
fn held_while_coming_on() -> Host {
    let stamps = (Some(at(999_000)), Some(at(999_999)));
    let mut host =
        Host { powered_on: false, pending: stamps.0, last: stamps.1, ..with(&[(HOLD, HARD)]) };
    progress(&mut host, Reason::PoweringOn, false, 1);
    host
}

#[test]
fn a_hold_of_a_machine_that_is_being_switched_on_does_not_find_it_shown_off_for_long() {
    let mut host = held_while_coming_on();
    let coming = heading(Power::Off, Power::On);
    let done = decided(&host, &coming);
    assert_eq!((done.status.powered_on, done.call, done.next), (Some(true), None, Next::Now));
    assert_eq!((done.status.pending, reason_written(&done)), (None, None));
    host.powered_on = true;
    let done = decided(&host, &coming);
    assert!(done.status.is_empty() && done.next == WATCH, "once: {done:?}");
    assert_eq!(decided(&host, &node(Power::On)).call, Some(Call::Off));
    // Nobody waits for off.
    let free = Host { requests: Requests::default(), powered_on: false, ..host };
    assert!(decided(&free, &coming).status.is_empty());
}

#[test]
fn a_hold_after_a_lost_answer_is_shown_once_the_power_on_cannot_come_any_more() {
    let mut host = held_while_coming_on();
    assert_eq!(decided(&host, &just_off()).status.powered_on, Some(true));
    host.powered_on = true;
    let off_since = |second| change(node(Power::Off), |node| node.off_for = Some(since(second)));
    for second in [999_971, 999_999] {
        let done = decided(&host, &off_since(second));
        assert!(done.status.is_empty() && done.call.is_none(), "{done:?}");
        assert_eq!(done.next, Next::After(OFF_CONFIRM_DELAY));
    }
    let done = decided(&host, &off_since(999_970));
    assert_eq!(
        (done.status.powered_on, reason_written(&done)),
        (Some(false), Some(Reason::HeldOff))
    );
}

#[test]
fn whoever_holds_a_machine_whose_power_on_failed_has_ironic_look_at_it_again() {
    let reasons = [
        Reason::PoweringOn,
        Reason::PowerFailed,
        Reason::NodeBusy,
        Reason::IronicUnreachable,
        Reason::PowerUnknown,
    ];
    for reason in reasons {
        for (mode, call) in [(HARD, Call::Off), ("", Call::SoftOff(seconds(60)))] {
            let mut host = held_while_coming_on();
            host.requests = Requests::of([(HOLD, mode)].into_iter());
            progress(&mut host, reason, false, 1);
            let done = decided(&host, &failed(Power::Off));
            assert_eq!((done.status.powered_on, done.call), (Some(true), None), "{reason:?}");
            host = after(host, &done);
            let done = decided(&host, &failed(Power::Off));
            assert_eq!((done.call, done.status.pending), (Some(call), None), "{reason:?}");
            // It was off, or is now: Ironic has no failure any more.
            host = after(host, &done);
            let taken = (call, &Answer::Accepted);
            let policy = Policy::default();
            let done = settle(&host, &failed(Power::Off), taken, &policy, now());
            let done = decided(&after(host, &done), &node(Power::Off));
            assert_eq!(done.status.powered_on, Some(false), "{reason:?}");
            assert_eq!(reason_written(&done), Some(Reason::HeldOff), "{reason:?}");
        }
    }
    // Who is held was seen off.
    let mut host = Host { powered_on: false, ..with(&[(HOLD, HARD)]) };
    progress(&mut host, Reason::HeldOff, false, 9);
    assert_eq!(decided(&host, &failed(Power::Off)).call, None);
}

#[test]
fn a_held_machine_that_may_have_come_on_and_is_not_asked_for_off_is_told_so() {
    let policy = Policy { takeover: true, ..Policy::default() };
    let look = |host: &Host, seen: &NodeSeen| decided_by(&policy, host, seen);
    let kept = || Host { paused: Pause::ByUs, ..held_while_coming_on() };
    let stays = Host { disable_power_off: true, ..kept() };
    let done = look(&stays, &failed(Power::Off));
    assert_eq!((done.status.powered_on, done.call), (Some(true), None), "not shown off");
    let gone = Host { deleting: true, powered_on: true, ..kept() };
    let [mut stays, gone] = [after(stays, &done), gone].map(|host| {
        let done = look(&host, &failed(Power::Off));
        assert_eq!((done.status.powered_on, done.call), (None, None), "{done:?}");
        assert_eq!(done.next, Next::OnChange);
        assert_eq!(reason_written(&done), Some(Reason::PowerFailed));
        assert!(done.status.told.contains("may be on"), "{}", done.status.told);
        after(host, &done)
    });
    assert_eq!(look(&gone, &failed(Power::Off)).reason, Reason::HandedBack);
    let done = look(&stays, &failed(Power::Off));
    assert!(done.status.is_empty() && done.call.is_none(), "told once: {done:?}");
    // Also where the failure was told before the hold came.
    progress(&mut stays, Reason::PowerFailed, false, 400);
    let told = look(&stays, &failed(Power::Off)).status.told;
    assert!(told.contains("may be on"), "{told}");
    // Power returns when the hold goes.
    let free = Host { requests: Requests::default(), ..stays };
    let done = look(&free, &failed(Power::Off));
    assert_eq!(reason_written(&done), Some(Reason::PoweredOff));
    assert_eq!(look(&after(free, &done), &failed(Power::Off)).call, Some(Call::On));
}

#[test]
fn a_power_on_is_written_down_ahead_also_where_ironic_shows_an_earlier_failure() {
    for reason in [Reason::PoweredOff, Reason::PowerFailed] {
        let mut off = Host { requests: Requests::default(), ..held_while_coming_on() };
        progress(&mut off, reason, false, 400);
        let done = decided(&off, &failed(Power::Off));
        assert_eq!((done.call, reason_written(&done)), (Some(Call::On), Some(Reason::PoweringOn)));
        let ahead = after(off, &done);
        // Nobody takes that failure for one of this power-on before Ironic has taken it.
        let again = decided(&ahead, &failed(Power::Off));
        assert_eq!((again.call, reason_written(&again)), (Some(Call::On), None), "{reason:?}");
        assert!(again.status.trouble.is_none(), "{again:?}");
        let settled = |answer: &Answer| {
            let call = (Call::On, answer);
            settle(&ahead, &failed(Power::Off), call, &Policy::default(), now())
        };
        assert!(settled(&Answer::Unknown).status.is_empty(), "{reason:?}");
        let busy = settled(&Answer::Busy("locked".to_owned()));
        assert_eq!(reason_written(&busy), Some(Reason::NodeBusy), "{reason:?}");
        let taken = after(ahead.clone(), &settled(&Answer::Accepted));
        let done = decided(&taken, &failed(Power::Off));
        assert_eq!(reason_written(&done), Some(Reason::PowerFailed), "{reason:?}");
        // Whoever holds it now does not find it shown off, and is not served by an off that the power-on undoes.
        let held = Host { requests: Requests::of([(HOLD, HARD)].into_iter()), ..ahead };
        let done = decided(&held, &failed(Power::Off));
        assert_eq!((done.status.powered_on, done.call), (Some(true), None), "{reason:?}");
        let held = after(held, &done);
        let done = decided(&held, &failed(Power::Off));
        assert_eq!((done.call, done.next), (None, Next::After(OFF_CONFIRM_DELAY)), "{reason:?}");
        let late = change(failed(Power::Off), |node| node.off_for = Some(since(999_970)));
        assert_eq!(decided(&held, &late).call, Some(Call::Off), "{reason:?}");
    }
}

#[test]
fn a_power_on_that_is_asked_for_again_may_be_on_its_way_although_not_every_try_is_written_down() {
    for reason in [Reason::NodeBusy, Reason::IronicUnreachable] {
        let mut host = held_while_coming_on();
        progress(&mut host, reason, false, 1);
        let free = Host { requests: Requests::default(), ..host.clone() };
        let done = decided(&free, &node(Power::Off));
        assert_eq!((done.call, reason_written(&done)), (Some(Call::On), None), "{reason:?}");
        let done = decided(&host, &just_off());
        assert_eq!((done.status.powered_on, done.call), (Some(true), None), "{reason:?}");
        host = after(host, &done);
        let done = decided(&host, &just_off());
        assert!(done.status.is_empty() && done.call.is_none(), "{done:?}");
        assert_eq!(done.next, Next::After(OFF_CONFIRM_DELAY));
        let late = change(node(Power::Off), |node| node.off_for = Some(since(999_970)));
        let done = decided(&host, &late);
        assert_eq!(done.status.powered_on, Some(false), "{reason:?}");
        assert_eq!(reason_written(&done), Some(Reason::HeldOff), "{reason:?}");
    }
}

#[test]
fn what_became_of_a_power_on_is_not_taken_for_known_because_its_host_was_seen_off() {
    let late = change(node(Power::Off), |node| node.off_for = Some(since(999_970)));
    for (online, reason) in [(true, Reason::PoweredOff), (false, Reason::Offline)] {
        for (seen, call) in [(node(Power::Off), None), (failed(Power::Off), Some(Call::Off))] {
            // Shown on because of a hold, which has gone.
            let shown = Host { online, powered_on: true, ..held_while_coming_on() };
            let free = Host { requests: Requests::default(), ..shown };
            let done = decided(&free, &seen);
            assert_eq!(
                (done.status.powered_on, reason_written(&done)),
                (Some(false), Some(reason))
            );
            let free = after(free, &done);
            let paused = Host { paused: Pause::ByOthers, ..free.clone() };
            let back = after(paused.clone(), &decided(&paused, &seen));
            for free in [free, Host { paused: Pause::No, ..back }] {
                let held = Host { requests: Requests::of([(HOLD, HARD)].into_iter()), ..free };
                let done = decided(&held, &seen);
                assert_eq!((done.status.powered_on, done.call), (Some(true), None), "{reason:?}");
                let held = after(held, &done);
                let done = decided(&held, &seen);
                assert_eq!((done.call, done.status.powered_on), (call, None), "{reason:?}");
                let done = decided(&held, &late);
                assert_eq!(reason_written(&done), Some(Reason::HeldOff), "{reason:?}");
            }
        }
    }
}

#[test]
fn a_power_on_whose_answer_was_lost_is_written_down_also_after_one_that_was_refused() {
    for reason in [Reason::NodeBusy, Reason::IronicUnreachable] {
        let mut host = held_while_coming_on();
        progress(&mut host, reason, false, 1);
        let settled = |seen: &NodeSeen| {
            let call = (Call::On, &Answer::Unknown);
            settle(&host, seen, call, &Policy::default(), now())
        };
        for seen in [node(Power::Off), failed(Power::Off)] {
            let done = settled(&seen);
            assert_eq!(reason_written(&done), Some(Reason::PoweringOn), "{reason:?}");
            let told = after(host.clone(), &done);
            let first = change(seen.clone(), |node| node.off_for = Some(Duration::ZERO));
            let done = decided(&told, &first);
            assert_eq!(done.status.powered_on, Some(true), "it may be coming on: {reason:?}");
            // The failure of before is not taken for one of this call.
            let free = Host { requests: Requests::default(), ..told };
            assert_eq!(decided(&free, &seen).call, Some(Call::On), "{reason:?}");
        }
    }
    let mut host = held_while_coming_on();
    let call = (Call::On, &Answer::Unknown);
    let told = settle(&host, &node(Power::Off), call, &Policy::default(), now());
    write(&mut host, &told.status);
    let done = settle(&host, &node(Power::Off), call, &Policy::default(), now());
    assert!(done.status.is_empty(), "once: {done:?}");
}

#[test]
fn a_machine_that_was_lost_while_it_was_being_switched_on_is_no_fence() {
    for reason in [Reason::PoweringOn, Reason::PowerUnknown] {
        let mut host = held_while_coming_on();
        let told = host.progress().unwrap();
        put(&mut host, &RebootProgress { reason, rebooting: true, ..told });
        assert_eq!(decided(&host, &node(Power::Unknown)).status.powered_on, Some(true));
        host.powered_on = true;
        let done = decided(&host, &node(Power::Unknown));
        assert_eq!((done.status.pending.is_some(), done.call), (true, Some(Call::Off)));
    }
}

#[test]
fn power_that_is_not_known_is_told_to_those_who_wait_for_it() {
    let mut waiting = host();
    waiting.powered_on = false;
    let done = decided(&waiting, &node(Power::Unknown));
    let progress = done.status.progress.clone().unwrap();
    assert_eq!((progress.reason, done.call), (Reason::PowerUnknown, None));
    put(&mut waiting, &progress);
    assert!(decided(&waiting, &node(Power::Unknown)).status.is_empty(), "once");
    let asked = Host { powered_on: false, ..with(&[(PLAIN, "")]) };
    let done = decided(&asked, &node(Power::Unknown));
    assert_eq!(reason_written(&done), Some(Reason::PowerUnknown));
    assert_eq!(done.status.pending, None);
}

#[test]
fn silence_is_told_although_a_hold_has_gone_or_the_host_is_wanted_again() {
    let silence = NodeSeen::Unanswered { lasting: true, problem: "no connection".to_owned() };
    for (reason, online) in [(Reason::HeldOff, true), (Reason::Offline, true)] {
        let mut host = cycling(&[], reason, true, 5);
        (host.powered_on, host.online) = (false, online);
        let progress = decided(&host, &silence).status.progress.unwrap();
        assert_eq!(
            (progress.reason, progress.hard),
            (Reason::IronicUnreachable, true),
            "{reason:?}"
        );
    }
}

#[test]
fn off_is_tried_again_within_half_a_minute_also_after_the_spread() {
    for count in 1..20 {
        assert!(
            controller_kit::engine::queue::spread(off_delay(count), 1.0) <= seconds(30),
            "{count}"
        );
    }
    assert!(controller_kit::engine::queue::spread(NODE_RECHECK, 1.0) <= seconds(30));
}

#[test]
fn a_plain_request_that_was_answered_and_could_not_be_removed_asks_for_nothing_and_goes_at_last() {
    let mut left = Host { answered: Some(Mode::Hard), ..host() };
    write(&mut left, &Change { answered: Some(Some(Mode::Hard)), ..Change::default() });
    let seen = node(Power::On);
    let done = decided(&left, &seen);
    assert_eq!((done.status.pending, done.call), (None, None));
    assert_eq!(done.annotations, [(PLAIN.to_owned(), None)].into());
    assert_eq!(after(left.clone(), &done).record().known().unwrap().answered, None);
    // Another mode is another request, and its annotation is no leftover.
    let asked = Host { requests: with(&[(PLAIN, "")]).requests, ..left.clone() };
    let done = decided(&asked, &seen);
    assert!(done.status.pending.is_some() && done.annotations.is_empty());
    // Nor is anything taken off a host that is left alone.
    let paused = Host { paused: Pause::ByOthers, ..left };
    let told = after(paused.clone(), &decided(&paused, &seen));
    assert_eq!(decided(&told, &seen).annotations.len(), 0);
}

#[test]
fn an_answered_request_that_is_still_there_is_passed_over_in_its_mode_alone() {
    let requests = with(&[(PLAIN, HARD), (HOLD, "")]).requests;
    let left = |answered| {
        let left = requests.clone().without(answered);
        (left.plain(), left.holds().count())
    };
    assert_eq!(left(Some(Mode::Hard)), (None, 1));
    assert_eq!(left(Some(Mode::Soft)), (Some(Mode::Hard), 1));
    assert_eq!(left(None), (Some(Mode::Hard), 1));
}
