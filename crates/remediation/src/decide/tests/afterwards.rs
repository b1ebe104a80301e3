//! What comes after the last try, after a pause, and after success that the health check does not believe in.

use super::*;

/// The machine was handed over: this is what stands then.
fn handed_over() -> Observed {
    edit(last_try(), |seen| {
        let decision = now(seen, 320);
        let host = seen.host.as_mut().unwrap();
        host.history = writes(&decision)[0].history.clone().unwrap();
        (host.marked, host.online) = (true, false);
        seen.request.standing = said(&decision);
        seen.request.finalizer = false;
        seen.machine.as_mut().unwrap().told = true;
    })
}

#[test]
fn an_owner_that_does_not_know_of_a_machine_that_was_handed_to_it_is_told() {
    assert!(now(&handed_over(), 400).acts.is_empty());
    // As after CAPM3, which tells it in the deprecated format only; or somebody wiped it.
    let untold = edit(handed_over(), |seen| seen.machine.as_mut().unwrap().told = false);
    assert!(matches!(now(&untold, 340).acts[..], [Act::TellOwner(_)]));
    let late = now(&untold, 400);
    let [Act::Host(write), Act::TellOwner(_)] = late.acts.as_slice() else { panic!("{late:?}") };
    assert_eq!(
        write.history.as_ref().unwrap().gave_up("machine"),
        Some(at(400)),
        "by that it is ours"
    );
    let well = edit(untold.clone(), |seen| seen.machine.as_mut().unwrap().healthy = Some(true));
    let going = edit(untold.clone(), |seen| seen.machine.as_mut().unwrap().deleting = Some(at(9)));
    let alone = edit(untold, |seen| seen.machine.as_mut().unwrap().owned = false);
    for seen in [well, going, alone] {
        assert!(now(&seen, 400).acts.is_empty(), "{:?}", now(&seen, 400));
    }
}

#[test]
fn a_host_that_is_off_because_we_gave_it_up_is_no_reason_to_refuse_the_next_request() {
    let next = edit(handed_over(), |seen| {
        seen.request = Request { uid: "next".to_owned(), ..request() };
        seen.machine.as_mut().unwrap().told = false;
    });
    let decision = now(&next, 500);
    assert_eq!(decision.reason, Reason::Exhausted);
    assert!(decision.acts.iter().any(|it| matches!(it, Act::TellOwner(_))), "{decision:?}");
    let by_hand = edit(next.clone(), |seen| seen.host.as_mut().unwrap().marked = false);
    assert_eq!(
        now(&by_hand, 500).reason,
        Reason::HostOffline,
        "somebody cleared it and keeps it off"
    );
    let another = edit(next, |seen| {
        let host = seen.host.as_mut().unwrap();
        for it in &mut host.history.0 {
            it.machine_uid = Some("another".to_owned());
        }
    });
    assert_eq!(now(&another, 500).reason, Reason::HostOffline, "that was about another machine");
}

#[test]
fn a_time_that_ran_out_during_a_pause_begins_anew_when_the_pause_ends() {
    let late = 10_000;
    for (begun, failed) in [
        (asked(), Reason::PowerOffTimedOut),
        (recovering(), Reason::NotRecovered),
        (released(), Reason::PowerOnTimedOut),
    ] {
        assert_eq!(now(&begun, late).reason, failed);
        let resumed = edit(begun, |seen| seen.resumed = Some(at(late - 1)));
        let decision = now(&resumed, late);
        assert_ne!(decision.reason, failed, "{decision:?}");
        assert!(decision.again.is_some() || decision.needs_node, "it is waited for: {decision:?}");
    }
}

#[test]
fn a_pause_that_took_the_time_of_a_try_is_known_to_the_next_process_as_well() {
    let late = 10_000;
    for (begun, failed) in [
        (asked(), Reason::PowerOffTimedOut),
        (recovering(), Reason::NotRecovered),
        (released(), Reason::PowerOnTimedOut),
    ] {
        let resumed = edit(begun, |seen| seen.resumed = Some(at(late)));
        let noted = now(&resumed, late);
        let history = writes(&noted)[0].history.clone().unwrap();
        assert_eq!(history.open("uid").unwrap().resumed, Some(at(late)));
        let next = edit(resumed, |seen| seen.host.as_mut().unwrap().history = history);
        assert!(writes(&now(&next, late + 1)).is_empty(), "once");
        let another = edit(next, |seen| seen.resumed = None);
        assert_ne!(now(&another, late + 250).reason, failed);
        assert_eq!(now(&another, late + 700).reason, failed, "the time begins anew, and ends");
    }
    // A pause that was over before the host was asked is nothing to remember.
    let before = edit(asked(), |seen| seen.resumed = Some(at(0)));
    assert!(writes(&now(&before, 5)).is_empty());
}

#[test]
fn a_host_that_was_off_is_not_taken_for_looked_at_because_a_pause_passed() {
    let stale = edit(off(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| {
            it.was_on = false;
            it.resumed = Some(at(500));
        });
        host.looked_at = true;
    });
    assert_eq!(now(&stale, 501).reason, Reason::PowerOff);
    assert_eq!(now(&stale, 650).reason, Reason::Fencing);
}

#[test]
fn a_complaint_that_a_node_that_is_ready_may_give_reason_to_leads_to_another_try() {
    let ready = |ails| {
        edit(succeeded(), |seen| {
            seen.machine.as_mut().unwrap().ails = ails;
            seen.node = NodeSeen::Here(Node { ready: true, ..node() });
        })
    };
    assert!(now(&ready(false), 400).acts.is_empty(), "what is said of it may be old");
    assert_eq!(now(&ready(true), 400).reason, Reason::StillUnhealthy);
    assert!(now(&ready(true), 300).acts.is_empty(), "it has its time");
}

/// The second try helped and the health check agreed, but left the request there: too many other machines fail.
fn agreed() -> Observed {
    let well = edit(succeeded(), |seen| {
        seen.request.standing.retries = 1;
        seen.machine.as_mut().unwrap().healthy = Some(true);
    });
    let standing = said(&now(&well, 40));
    edit(well, |seen| seen.request.standing = standing)
}

#[test]
fn what_fails_after_the_health_check_agreed_is_another_failure_with_all_of_its_tries() {
    assert!(agreed().request.standing.has_succeeded());
    assert_eq!(now(&agreed(), 100_000), Decision::rest(Reason::Recovered), "said once");
    let fails = |word: NodeSeen| {
        edit(agreed(), |seen| {
            seen.machine.as_mut().unwrap().healthy = Some(false);
            seen.node = word;
        })
    };
    for word in [NodeSeen::Here(node()), NodeSeen::Gone, NodeSeen::NoAccess("away".to_owned())] {
        let decision = now(&fails(word.clone()), 100_000);
        let [Act::AddFinalizer, Act::Host(_)] = decision.acts.as_slice() else {
            panic!("{decision:?}")
        };
        assert_eq!(number(&decision), 0);
        let cut = edit(written(fails(word), &decision), |seen| seen.request.finalizer = true);
        let standing = said(&now(&cut, 100_001));
        assert_eq!((standing.retries, standing.step.clone()), (0, Some(Step::PowerOff)));
        assert!(!standing.has_succeeded(), "the success was that of the try before");
    }
    assert!(now(&fails(NodeSeen::NotAsked), 100_000).needs_node);
    let ready = NodeSeen::Here(Node { ready: true, ..node() });
    let waits = now(&fails(ready), 100_000);
    assert!(waits.acts.is_empty() && waits.again.is_some(), "that may be old: {waits:?}");
}

#[test]
fn a_machine_that_the_health_check_still_calls_unhealthy_after_the_time_is_tried_again() {
    assert!(now(&succeeded(), 329).acts.is_empty());
    assert!(now(&succeeded(), 330).needs_node, "it may be well, whatever is said of it");
    let lost = edit(succeeded(), |seen| seen.node = NodeSeen::Here(node()));
    let decision = now(&lost, 330);
    assert_eq!(decision.reason, Reason::StillUnhealthy);
    assert_eq!(decision.acts[0], Act::AddFinalizer);
    assert_eq!(number(&decision), 1);
}

/// Succeeded at 30, and its node is ready, with a condition beside readiness.
fn with_condition(kind: &str, status: &str, since: i64) -> Observed {
    let (kind, status) = (kind.to_owned(), status.to_owned());
    let condition = NodeCondition { kind, status, since: Some(at(since)) };
    let node = Node { ready: true, conditions: vec![condition], ..node() };
    edit(succeeded(), |seen| seen.node = NodeSeen::Here(node))
}

#[test]
fn what_ails_a_node_that_is_ready_leads_to_another_try_although_the_health_check_cannot_say_so() {
    // It wrote what it found when it asked, and has not written since.
    let read_only = |since| with_condition("ReadonlyFilesystem", "True", since);
    assert_eq!(now(&read_only(20), 400).reason, Reason::StillUnhealthy);
    assert!(now(&read_only(200), 400).acts.is_empty(), "not for as long as a node may take");
    let well = with_condition("ReadonlyFilesystem", "False", 20);
    assert!(now(&well, 400).acts.is_empty());
    let etcd = edit(well, |seen| seen.machine.as_mut().unwrap().failing = Some(at(20)));
    assert_eq!(now(&etcd, 400).reason, Reason::StillUnhealthy, "a condition of the Machine");
    let nobody = edit(read_only(20), |seen| seen.machine.as_mut().unwrap().healthy = None);
    assert!(now(&nobody, 400).acts.is_empty(), "no health check complains");
}

#[test]
fn what_a_health_check_said_of_a_node_counts_no_longer_than_it_is_so() {
    let complained = |kind: &str, status: &str| {
        edit(with_condition(kind, status, 390), |seen| {
            let complaint = (kind.to_owned(), "True".to_owned());
            seen.machine.as_mut().unwrap().complaints = vec![complaint];
        })
    };
    assert_eq!(now(&complained("DiskPressure", "True"), 400).reason, Reason::StillUnhealthy);
    assert_eq!(now(&complained("Ours", "True"), 400).reason, Reason::StillUnhealthy);
    let over = now(&complained("DiskPressure", "False"), 400);
    assert!(over.acts.is_empty() && over.again.is_some(), "the node is well: {over:?}");
}

#[test]
fn a_time_that_ran_out_while_nobody_was_at_work_begins_anew_once_in_a_try() {
    let late = 10_000;
    for (begun, failed) in
        [(asked(), Reason::PowerOffTimedOut), (released(), Reason::PowerOnTimedOut)]
    {
        let last = edit(begun, |seen| {
            seen.request.strategy = Ok(Strategy { retries: 0, timeout: Duration::from_secs(300) });
            seen.node = NodeSeen::Here(node());
        });
        assert_eq!(now(&last, late).reason, Reason::Exhausted);
        let missed = edit(last, |seen| seen.started = Some(at(late - 1)));
        let noted = now(&missed, late);
        let [Act::Host(write)] = noted.acts.as_slice() else { panic!("{noted:?}") };
        assert!(write.key.is_none() && !write.mark, "{write:?}");
        let history = write.history.clone().unwrap();
        assert_eq!(history.open("uid").unwrap().resumed, Some(at(late - 1)));
        let next = edit(missed.clone(), |seen| seen.host.as_mut().unwrap().history = history);
        let waits = now(&next, late + 1);
        assert!(waits.again.is_some() && waits.reason != failed, "{waits:?}");
        let again = edit(next, |seen| seen.started = Some(at(late + 900)));
        assert_eq!(now(&again, late + 901).reason, Reason::Exhausted, "once");
        // Who was there for all of the time has nothing to make up for.
        let before = edit(missed, |seen| seen.started = Some(at(0)));
        assert_eq!(now(&before, late).reason, Reason::Exhausted);
    }
}

/// All replicas were down for longer than both timeouts, and the host went off meanwhile.
#[test]
fn what_runs_on_a_host_that_went_off_while_nobody_was_at_work_is_moved_away_before_it_may_come_on()
{
    let busy = |taint| NodeSeen::Here(Node { busy: 3, taint, ..node() });
    let fencing = edit(off(), |seen| {
        seen.request.standing.step = Some(Step::Fence);
        seen.request.standing.since = Some(at(5));
    });
    for (missed, time) in [(off(), 720), (fencing, 120)] {
        let missed = edit(missed, |seen| {
            (seen.node, seen.started) = (busy(Taint::None), Some(at(4999)));
        });
        let noted = now(&missed, 5000);
        let [Act::Host(write)] = noted.acts.as_slice() else { panic!("{noted:?}") };
        assert_eq!(write.key, None, "{write:?}");
        let next = edit(missed, |seen| {
            seen.host.as_mut().unwrap().history = write.history.clone().unwrap();
        });
        let taints = now(&next, 5000);
        assert!(taints.acts.contains(&Act::Taint) && writes(&taints).is_empty(), "{taints:?}");
        let held = edit(next, |seen| seen.node = busy(Taint::Ours));
        assert!(writes(&now(&held, 4998 + time)).is_empty());
        assert_eq!(writes(&now(&held, 4999 + time))[0].key, Some(false), "and in time");
        let again = edit(held, |seen| seen.started = Some(at(9999)));
        assert_eq!(writes(&now(&again, 10_000))[0].key, Some(false), "once in a try");
    }
}
