//! What the host remembers where the request does not, and times that a clock which was ahead has left.

use super::*;

/// It has succeeded, and its status was lost or overwritten since.
fn forgotten(change: impl FnOnce(&mut Standing)) -> Observed {
    edit(succeeded(), |seen| change(&mut seen.request.standing))
}

fn refused(standing: &mut Standing) {
    let message = "the Machine's Cluster is not there".to_owned();
    let said = Said { succeeded: Some(false), reason: Reason::ClusterMissing, message };
    (standing.step, standing.since, standing.said) = (None, None, Some(said));
}

#[test]
fn what_has_recovered_does_not_begin_again_of_itself() {
    let away = edit(succeeded(), |seen| seen.cluster = ClusterSeen::Missing);
    assert_eq!(said(&now(&away, 40)).said.unwrap().reason, Reason::ClusterMissing);
    let cases = [
        forgotten(|it| *it = Standing::default()),
        forgotten(refused),
        forgotten(|it| it.phase = Some(Phase::Other("banana".to_owned()))),
    ];
    for seen in cases {
        let decision = now(&seen, 500);
        assert!(writes(&decision).is_empty(), "{decision:?}");
        let standing = said(&decision);
        assert!(standing.has_succeeded(), "{standing:?}");
        let seen = edit(seen, |seen| {
            seen.request.standing = standing;
            seen.machine.as_mut().unwrap().healthy = None;
        });
        assert_eq!(now(&seen, 100_000), Decision::rest(Reason::Recovered));
    }
}

/// Whoever was to say so was stopped just after the record had ended.
#[test]
fn a_success_that_only_the_host_knows_of_is_said_whatever_the_request_says() {
    for step in [Step::PowerOff, Step::Fence, Step::PowerOn] {
        let cut = forgotten(|it| {
            (it.phase, it.step, it.said) = (Some(Phase::Running), Some(step), None);
        });
        let decision = now(&cut, 500);
        assert!(writes(&decision).is_empty() && said(&decision).has_succeeded(), "{decision:?}");
    }
}

#[test]
fn no_status_says_that_there_were_fewer_tries_than_the_host_remembers() {
    let begins = |result: Reason| {
        let seen = edit(fresh(), |seen| {
            let limit = Ok(Strategy { retries: 3, timeout: Duration::from_secs(300) });
            seen.request.strategy = limit;
            let host = seen.host.as_mut().unwrap();
            let history = History(vec![Entry::begin("uid", "m", 2, at(0))]);
            host.history = history.ended("uid", result, at(1));
        });
        now(&seen, 5)
    };
    assert_eq!(number(&begins(Reason::HostOffline)), 2);
    let recovered = begins(Reason::Recovered);
    assert!(writes(&recovered).is_empty(), "what fails after that is another failure");
}

#[test]
fn a_try_remembers_which_machine_it_was_for() {
    let decision = now(&fresh(), 0);
    let entry = writes(&decision)[0].history.as_ref().unwrap().open("uid").unwrap();
    assert_eq!(entry.machine_uid.as_deref(), Some("machine"));
    let gone = edit(fresh(), |seen| {
        let mut host = seen.host.take().unwrap();
        host.ours = false;
        let history = writes(&decision)[0].history.clone().unwrap();
        host.history = history.ended("uid", Reason::MachineMissing, at(1));
        (seen.stray, seen.machine, seen.metal) = (Some(host), None, None);
        seen.request.owner = None;
    });
    let decision = now(&gone, 2);
    assert_eq!(decision.reason, Reason::MachineMissing);
    let message = said(&decision).said.unwrap().message;
    assert!(message.contains("the uid machine is gone"), "{message}");
    assert!(message.contains("make a new request"), "{message}");
    let never = edit(gone, |seen| seen.stray = None);
    let message = said(&now(&never, 2)).said.unwrap().message;
    assert!(message.contains("correct the request's name"), "{message}");
}

/// A clock that was ahead noted it. That is waited for, and keeps nothing from going on that has happened.
#[test]
fn a_time_that_is_still_to_come_keeps_no_try_from_going_on() {
    let tomorrow = at(86_400);
    let noted = |seen: Observed, change: fn(&mut Entry)| {
        edit(seen, |seen| {
            let host = seen.host.as_mut().unwrap();
            host.history = host.history.changed("uid", change);
        })
    };
    let late = noted(asked(), |it| it.asked = at(86_400));
    assert!(now(&late, 5).acts.is_empty() && now(&late, 5).again.is_some());
    assert_eq!(now(&late, 87_000).reason, Reason::PowerOffTimedOut);
    let off = edit(late, |seen| seen.host.as_mut().unwrap().powered_on = false);
    assert_eq!(now(&off, 5).reason, Reason::Fencing);
    let on = edit(released(), |seen| seen.host.as_mut().unwrap().powered_on = true);
    let on = noted(on, |it| it.released = Some(at(86_400)));
    assert_eq!(said(&now(&on, 5)).step, Some(Step::Recover));
    let back = edit(recovering(), |seen| {
        seen.request.standing.since = Some(tomorrow);
        seen.node = NodeSeen::Here(Node { ready: true, kubelet: "after".to_owned(), ..node() });
    });
    assert_eq!(now(&back, 30).reason, Reason::Recovered);
    // What a process remembers of its own clock is nothing to wait for.
    let seen = edit(asked(), |seen| seen.resumed = Some(tomorrow));
    assert!(now(&seen, 5).acts.is_empty());
    assert_eq!(now(&seen, 600).reason, Reason::PowerOffTimedOut);
}

#[test]
fn a_clock_that_was_ahead_holds_no_host_off_for_as_much_as_that() {
    let tomorrow = at(86_400);
    let busy = |taint| NodeSeen::Here(Node { busy: 3, taint, ..node() });
    let fencing = edit(off(), |seen| {
        seen.node = busy(Taint::Ours);
        (seen.request.standing.step, seen.request.standing.since) =
            (Some(Step::Fence), Some(tomorrow));
        seen.request.standing.said =
            Some(Said { succeeded: None, reason: Reason::Fencing, message: String::new() });
    });
    let ahead = |seen: Observed| {
        edit(seen, |seen| {
            let host = seen.host.as_mut().unwrap();
            host.history = host.history.changed("uid", |it| it.asked = at(86_400));
        })
    };
    let unread = edit(ahead(off()), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.was_on = false);
        seen.node = busy(Taint::None);
    });
    let unsaid = edit(ahead(off()), |seen| {
        seen.request.standing = Standing::default();
        seen.node = busy(Taint::Ours);
    });
    let goes = |seen: &Observed, second| {
        let seen = edit(seen.clone(), |seen| seen.started = Some(at(100)));
        writes(&now(&seen, second)).iter().any(|it| it.key == Some(false))
    };
    for (seen, time) in
        [(fencing.clone(), 120), (ahead(fencing), 120), (unread, 600), (unsaid, 720)]
    {
        assert!(!goes(&seen, 99 + time) && goes(&seen, 100 + time), "{seen:?}");
    }
    // A clock that is a little ahead is waited for.
    let soon = edit(off(), |seen| {
        seen.node = busy(Taint::Ours);
        (seen.request.standing.step, seen.request.standing.since) =
            (Some(Step::Fence), Some(at(360)));
    });
    assert!(!goes(&soon, 300));
}

#[test]
fn a_count_above_the_limit_begins_no_try_above_it() {
    let beyond = edit(fresh(), |seen| seen.request.standing.retries = 2_147_483_647);
    let decision = now(&beyond, 0);
    assert_eq!(number(&decision), 1);
    let next = now(&begun(beyond, &decision), 1);
    assert_eq!(said(&next).retries, 1);
    assert!(said(&next).said.unwrap().message.starts_with("Try 2 of 2"), "{next:?}");
    // The limit was lowered in the middle of a retry.
    let lowered = edit(last_try(), |seen| {
        seen.request.strategy = Ok(Strategy { retries: 0, timeout: Duration::from_secs(300) });
    });
    let decision = now(&lowered, 320);
    assert_eq!(decision.reason, Reason::Exhausted);
    assert_eq!(said(&decision).retries, 0, "nobody reads of more retries than were allowed");
}

#[test]
fn why_a_machine_was_given_up_outlives_the_pass_that_was_cut_off() {
    let foreign = Node { foreign: Some("x://other".to_owned()), ..node() };
    let seen = edit(last_try(), |seen| seen.node = NodeSeen::Here(foreign));
    let first = now(&seen, 320);
    let history = writes(&first)[0].history.clone().unwrap();
    let cause = history.last("uid").unwrap().cause.clone().unwrap();
    assert!(cause.contains("not ready in time, but the node of that name"), "{cause}");
    let cut = edit(last_try(), |seen| {
        let host = seen.host.as_mut().unwrap();
        (host.history, host.marked) = (history, true);
        seen.node = NodeSeen::NotAsked;
    });
    let next = now(&cut, 321);
    let message = said(&next).said.unwrap().message;
    assert_eq!(message, said(&first).said.unwrap().message);
    assert!(message.starts_with(&format!("Try 2 of 2, the last: {cause}")), "{message}");
}

/// Killed between the two writes, and back after a minute: with the request what the Machine says of it has to go.
#[test]
fn the_host_knows_when_an_owner_was_told_also_where_that_was_late() {
    let first = now(&last_try(), 320);
    let history = writes(&first)[0].history.clone().unwrap();
    assert_eq!(history.gave_up("machine"), Some(at(320)));
    let before = history.changed("uid", |it| it.told = None);
    assert_eq!(before.gave_up("machine"), Some(at(320)), "a record of an earlier release");
    let cut = edit(last_try(), |seen| {
        let host = seen.host.as_mut().unwrap();
        (host.history, host.marked) = (history, true);
    });
    let late = now(&cut, 400);
    let [Act::Host(write), Act::TellOwner(_), ..] = late.acts.as_slice() else {
        panic!("{late:?}")
    };
    assert_eq!(write.history.as_ref().unwrap().gave_up("machine"), Some(at(400)));
    let told = edit(cut, |seen| seen.machine.as_mut().unwrap().told = true);
    assert!(!matches!(now(&told, 400).acts[0], Act::Host(HostWrite { history: Some(_), .. })));
}

#[test]
fn a_host_that_was_off_already_is_not_said_to_have_stayed_on() {
    let off = edit(fresh(), |seen| seen.host.as_mut().unwrap().powered_on = false);
    let begun = begun(off.clone(), &now(&off, 0));
    let first = said(&now(&begun, 0));
    let message = first.said.clone().unwrap().message;
    assert!(message.contains("already shows off") && message.contains("lastUpdated"), "{message}");
    let waiting = edit(begun, |seen| {
        seen.request.standing = first;
        seen.node = NodeSeen::Here(node());
    });
    let late = now(&waiting, 600);
    assert_eq!(late.reason, Reason::PowerOn);
    assert!(late.notes[0].text.contains("nobody read the host's power"), "{late:?}");
    let on = now(&asked(), 600);
    assert!(on.notes[0].text.ends_with("the host was not off in time"), "{on:?}");
}

#[test]
fn a_request_that_was_stopped_does_not_go_on_saying_that_it_is_under_way() {
    let let_go = |seen: Observed, reason| {
        edit(seen, |seen| {
            let host = seen.host.as_mut().unwrap();
            (host.held, host.powered_on) = (false, true);
            host.history = host.history.ended("uid", reason, at(6));
            seen.request.finalizer = false;
        })
    };
    let kept = edit(let_go(asked(), Reason::Withdrawn), |seen| {
        seen.request.deleting = Some(at(5));
        seen.request.others = vec!["somebody/keeps-it".to_owned()];
    });
    let gone = edit(let_go(asked(), Reason::MachineGone), |seen| {
        seen.machine.as_mut().unwrap().deleting = Some(at(5));
    });
    let back = edit(gone.clone(), |seen| refused(&mut seen.request.standing));
    for (seen, reason) in
        [(kept, Reason::Withdrawn), (gone, Reason::MachineGone), (back, Reason::MachineGone)]
    {
        let decision = now(&seen, 7);
        let standing = said(&decision);
        assert_eq!((standing.step.clone(), standing.since), (None, None));
        assert_eq!(standing.phase, Some(Phase::Waiting));
        assert_eq!(standing.said.as_ref().unwrap().reason, reason);
        assert!(!standing.is_under_way() && !standing.has_succeeded());
        let told = edit(seen, |seen| seen.request.standing = standing);
        assert!(now(&told, 8).acts.is_empty(), "once");
    }
}
