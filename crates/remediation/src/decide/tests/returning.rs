//! When a node counts as back, and what is said while it cannot be seen.

use super::*;

fn seeing(seen: Observed, node: Node) -> Observed {
    edit(seen, |seen| seen.node = NodeSeen::Here(node))
}

fn away(seen: Observed) -> Observed {
    edit(seen, |seen| seen.node = NodeSeen::NoAccess("certificate expired".to_owned()))
}

/// Nobody could look at the node while its host was off.
fn unseen() -> Observed {
    edit(recovering(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.kubelet = None);
    })
}

fn ready(kubelet: &str) -> Node {
    Node { ready: true, kubelet: kubelet.to_owned(), ..node() }
}

#[test]
fn a_node_that_nobody_could_see_while_its_host_was_off_has_to_say_something_new() {
    let old = Node { heard: Some(at(9)), ..ready("old") };
    let first = now(&seeing(unseen(), old.clone()), 30);
    assert_eq!(first.reason, Reason::Recovering, "it may be what it said before");
    let history = writes(&first)[0].history.clone().unwrap();
    assert_eq!(history.open("uid").unwrap().kubelet.as_deref(), Some("old"));
    let known = edit(unseen(), |seen| seen.host.as_mut().unwrap().history = history);
    assert!(now(&seeing(known.clone(), old.clone()), 40).acts.is_empty());
    assert_eq!(now(&seeing(known, ready("new")), 50).reason, Reason::Recovered);
    // What is later than the release was not said before.
    let later = Node { heard: Some(at(10)), ..old };
    assert_eq!(now(&seeing(unseen(), later), 30).reason, Reason::Recovered);
}

#[test]
fn a_node_that_was_not_ready_at_first_sight_is_back_when_it_is() {
    let first = now(&seeing(unseen(), node()), 30);
    let history = writes(&first)[0].history.clone().unwrap();
    let known = edit(unseen(), |seen| seen.host.as_mut().unwrap().history = history);
    assert_eq!(now(&seeing(known, ready("after")), 50).reason, Reason::Recovered);
}

#[test]
fn the_successor_of_a_deleted_node_gets_its_labels_before_it_is_ready() {
    let labels = |text: &str| Backup { labels: text.to_owned(), annotations: "{}".to_owned() };
    let backup = labels(r#"{"rack":"7"}"#);
    let seen = edit(recovering(), |seen| seen.request.backup = Some(backup.clone()));
    let bare = Node { backup: labels("{}"), ..node() };
    assert_eq!(now(&seeing(seen.clone(), bare.clone()), 30).acts, [Act::Restore(backup)]);
    let foreign = Node { foreign: Some("x://other".to_owned()), ..bare };
    let acts = now(&seeing(seen.clone(), foreign), 30).acts;
    assert!(!acts.iter().any(|it| matches!(it, Act::Restore(_))), "{acts:?}");
    let labelled = Node { backup: labels(r#"{"rack":"8"}"#), ..node() };
    assert!(now(&seeing(seen, labelled), 30).acts.is_empty(), "what it says itself stays");
}

#[test]
fn where_nothing_is_done_about_the_node_it_is_looked_at_before_the_host_may_come_back() {
    let policy = Policy { fencing: Fencing::None, ..Policy::default() };
    assert!(decide(&off(), &policy, at(5)).needs_node);
    let decision = decide(&seeing(off(), node()), &policy, at(5));
    let entry = writes(&decision)[0].history.as_ref().unwrap().open("uid").unwrap().clone();
    assert_eq!(entry.kubelet.as_deref(), Some("before"));
    let unasked = decide(&away(off()), &policy, at(5));
    assert_eq!(writes(&unasked)[0].key, Some(false), "nothing is waited for");
}

#[test]
fn any_word_of_a_node_is_new_where_there_was_none_before() {
    let gone = now(&edit(off(), |seen| seen.node = NodeSeen::Gone), 5);
    let history = writes(&gone)[0].history.clone().unwrap();
    let on = edit(recovering(), |seen| seen.host.as_mut().unwrap().history = history);
    assert_eq!(now(&seeing(on, ready("")), 30).reason, Reason::Recovered);
}

#[test]
fn a_workload_cluster_that_cannot_be_asked_is_told_once_and_so_is_its_return() {
    for (seen, since) in [(off(), 30), (recovering(), 41)] {
        let first = now(&away(seen.clone()), 30);
        let standing = said(&first);
        let told_first = standing.said.clone().unwrap();
        let message = told_first.message;
        assert_eq!(told_first.reason, Reason::NodeUnseen);
        assert!(message.contains("cannot be seen: certificate expired"), "{message}");
        let told = edit(seen, |seen| seen.request.standing = standing.clone());
        assert!(now(&away(told.clone()), 40).acts.is_empty());
        let other = edit(told.clone(), |seen| seen.node = NodeSeen::NoAccess("other".to_owned()));
        assert!(now(&other, 40).acts.is_empty(), "not each of its words");
        let back = now(&seeing(told, Node { busy: 1, taint: Taint::Ours, ..node() }), 41);
        assert!(!said(&back).said.unwrap().message.contains("cannot be seen"));
        assert_eq!(
            said(&back).since,
            Some(at(since)),
            "that of the host goes on, the node's begins"
        );
    }
}

#[test]
fn nobody_is_cut_off_again_or_given_up_for_a_node_that_nobody_could_see() {
    for seen in [recovering(), last_try()] {
        let first = now(&away(seen.clone()), 30);
        let told = edit(seen.clone(), |seen| seen.request.standing = said(&first));
        for seen in [away(seen), away(told.clone())] {
            let late = now(&seen, 50_000);
            assert_eq!(late.reason, Reason::NodeUnseen);
            assert!(writes(&late).is_empty() && late.again.is_some(), "{late:?}");
        }
        // It had not come back when it was seen at last: its time begins then.
        let answered = now(&seeing(told.clone(), node()), 50_000);
        assert_eq!(
            (said(&answered).since, answered.reason),
            (Some(at(50_000)), Reason::Recovering)
        );
        let awaited = edit(seeing(told.clone(), node()), |seen| {
            seen.request.standing = said(&answered);
        });
        assert_eq!(now(&awaited, 50_299).reason, Reason::Recovering);
        assert_ne!(
            now(&awaited, 50_300).reason,
            Reason::Recovering,
            "it was looked at, and is not ready"
        );
        // It may have been back for long.
        assert_eq!(now(&seeing(told, ready("after")), 50_000).reason, Reason::Recovered);
    }
}

#[test]
fn who_gets_the_machine_reads_that_its_node_was_another_machines() {
    let foreign = Node { foreign: Some("x://other".to_owned()), ..ready("after") };
    let decision = now(&seeing(recovering(), foreign.clone()), 30);
    assert!(said(&decision).said.unwrap().message.contains("another machine's (x://other)"));
    let endless = Node { foreign: Some("x".repeat(300_000)), ..foreign.clone() };
    let cause = now(&seeing(last_try(), endless), 320).notes[0].text.len();
    assert!(cause < 1000, "the API server would refuse what it stands in: {cause}");
    let late = now(&seeing(last_try(), foreign), 320);
    let message = said(&late).said.unwrap().message;
    assert!(
        message.contains("not ready in time, but the node of that name is another"),
        "{message}"
    );
}

#[test]
fn a_host_is_held_until_its_deadline_where_what_runs_on_the_node_cannot_be_listed() {
    let busy = Node { busy: crate::seen::UNKNOWN, taint: Taint::Ours, ..node() };
    let first = now(&seeing(off(), busy.clone()), 5);
    assert!(writes(&first).is_empty(), "{first:?}");
    let waiting = edit(off(), |seen| seen.request.standing = said(&first));
    let late = now(&seeing(waiting, busy), 125);
    let history = writes(&late)[0].history.clone().unwrap();
    assert!(history.0[0].fenced.as_ref().unwrap().contains("could not be listed"));
}

#[test]
fn a_node_that_did_not_take_its_taint_is_not_said_to_be_out_of_service() {
    let fencing = edit(seeing(off(), node()), |seen| {
        seen.request.standing.step = Some(Step::Fence);
        seen.request.standing.since = Some(at(5));
    });
    let fenced = |second| {
        let history = writes(&now(&fencing, second))[0].history.clone().unwrap();
        history.0[0].fenced.clone().unwrap()
    };
    assert_eq!(fenced(100), "the node is out of service", "the taint is the write before");
    assert!(fenced(125).contains("left alone"), "{}", fenced(125));
}

#[test]
fn a_try_of_capm3s_kind_that_was_cut_off_between_its_two_writes_is_not_lost() {
    let fails = edit(succeeded(), |seen| seen.node = NodeSeen::Here(node()));
    for (before, second) in [(seeing(recovering(), node()), 320), (fails, 330)] {
        let next = now(&before, second);
        assert_eq!(number(&next), 1);
        // The status has the next try, the annotation still the old step.
        let cut = edit(written(before, &next), |seen| {
            seen.request.group = Group::Upstream(api_types::ContractVersion::V1Beta2);
            seen.request.finalizer = true;
            seen.request.standing.phase = Some(Phase::Running);
            (seen.request.standing.retries, seen.request.standing.last) = (1, Some(at(second)));
        });
        let goes_on = now(&cut, second + 10);
        let [Act::Say(standing)] = goes_on.acts.as_slice() else { panic!("{goes_on:?}") };
        assert_eq!((standing.retries, &standing.step), (1, &Some(Step::PowerOff)));
    }
}

#[test]
fn a_node_that_came_back_late_is_not_taken_away_again() {
    // Ready a moment before its time was over; the health check has not seen it yet.
    let late = now(&seeing(recovering(), ready("after")), 318);
    assert_eq!(said(&late).since, Some(at(318)));
    let seen = edit(succeeded(), |seen| seen.request.standing = said(&late));
    assert!(now(&seen, 321).acts.is_empty() && !now(&seen, 321).needs_node);
    // Nor ever, while it is ready or cannot be seen.
    for seen in [seeing(seen.clone(), ready("later")), away(seen)] {
        let decision = now(&seen, 100_000);
        assert!(decision.acts.is_empty() && decision.again.is_some(), "{decision:?}");
    }
}

#[test]
fn a_node_that_is_being_deleted_is_no_return_and_its_labels_are_kept_for_its_successor() {
    let backup = Backup { labels: r#"{"rack":"7"}"#.to_owned(), annotations: "{}".to_owned() };
    let leaving = Node { deleting: true, ..ready("after") };
    let seen = edit(seeing(recovering(), leaving), |seen| {
        seen.request.backup = Some(backup.clone());
    });
    let decision = now(&seen, 30);
    assert_eq!(decision.reason, Reason::Recovering);
    assert!(decision.acts.iter().all(|it| matches!(it, Act::Say(_))), "{decision:?}");
    let standing = said(&decision);
    let message = &standing.said.as_ref().unwrap().message;
    assert!(message.contains("is being deleted: whoever has a finalizer"), "{message}");
    let told = edit(seen, |seen| seen.request.standing = standing);
    assert!(now(&told, 31).acts.is_empty(), "once");
    let successor = edit(told.clone(), |seen| {
        seen.node = NodeSeen::Here(Node { uid: "new".to_owned(), ..ready("new") });
    });
    let acts = now(&successor, 40).acts;
    assert!(acts.contains(&Act::Restore(backup)), "{acts:?}");
    assert!(acts.contains(&Act::RemoveFinalizer), "{acts:?}");
    // One that is withdrawn meanwhile waits for the successor as well.
    let withdrawn = edit(told, |seen| {
        seen.request.deleting = Some(at(41));
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.ended("uid", Reason::Withdrawn, at(41));
    });
    let waits = now(&withdrawn, 42);
    assert!(waits.acts.iter().all(|it| matches!(it, Act::Say(_))), "{waits:?}");
    assert!(waits.again.is_some(), "{waits:?}");
    let told = edit(withdrawn, |seen| seen.request.standing = said(&waits));
    assert!(now(&told, 342).acts.contains(&Act::RemoveFinalizer), "not for ever");
}

#[test]
fn a_node_that_is_ready_when_its_time_is_over_is_not_rebooted_for_saying_nothing_new() {
    let same = seeing(recovering(), ready("before"));
    assert_eq!(now(&same, 319).reason, Reason::Recovering);
    let decision = now(&same, 320);
    assert_eq!(said(&decision).said.unwrap().succeeded, Some(true), "{decision:?}");
    assert!(writes(&decision).iter().all(|it| it.key.is_none()), "{decision:?}");
    let ails = edit(same.clone(), |seen| seen.machine.as_mut().unwrap().ails = true);
    assert_eq!(now(&ails, 320).reason, Reason::NotRecovered, "of more than readiness");
    for other in [
        Node { foreign: Some("x://other".to_owned()), ..ready("before") },
        Node { deleting: true, ..ready("before") },
    ] {
        assert_eq!(now(&seeing(same.clone(), other), 320).reason, Reason::NotRecovered);
    }
    let short = edit(same, |seen| {
        seen.request.strategy = Ok(Strategy { retries: 1, timeout: Duration::from_secs(30) });
    });
    assert_eq!(now(&short, 50).reason, Reason::NotRecovered, "a dead one is called ready as well");
    // What the health check complains of after that has the tries that are left.
    let later = edit(ails, |seen| {
        seen.request.standing = said(&decision);
        seen.request.finalizer = false;
        seen.host.as_mut().unwrap().history = writes(&decision)[0].history.clone().unwrap();
    });
    let next = now(&later, 620);
    assert_eq!((next.reason, number(&next)), (Reason::StillUnhealthy, 1));
}

fn called(healthy: bool, since: i64) -> Observed {
    edit(away(recovering()), |seen| {
        let machine = seen.machine.as_mut().unwrap();
        machine.healthy = Some(healthy);
        machine.healthy_since = Some(at(since));
    })
}

#[test]
fn an_old_word_of_a_health_check_is_no_return() {
    // Released at 10.
    assert_eq!([30, 320].map(|at| now(&called(true, 9), at).reason), [Reason::NodeUnseen; 2]);
    assert_eq!(now(&called(true, 11), 30).reason, Reason::Recovered);
    let withdrawn = |since| {
        let seen = edit(called(true, since), |seen| seen.request.deleting = Some(at(25)));
        writes(&now(&seen, 31))[0].history.clone().unwrap().0[0].result.clone().unwrap()
    };
    assert_eq!((withdrawn(9).as_str(), withdrawn(24).as_str()), ("Withdrawn", "Recovered"));
}

#[test]
fn a_health_check_that_changes_its_mind_about_a_node_that_cannot_be_seen_leads_to_another_try() {
    let well = now(&called(true, 20), 30);
    let later = |healthy, since| {
        edit(called(healthy, since), |seen| {
            seen.request.standing = said(&well);
            seen.host.as_mut().unwrap().history = writes(&well)[0].history.clone().unwrap();
        })
    };
    let waits = now(&later(true, 20), 500);
    assert!(waits.acts.is_empty() && waits.again.is_some(), "{waits:?}");
    assert!(now(&later(false, 29), 500).acts.is_empty(), "that was before");
    let fails = now(&later(false, 400), 500);
    assert_eq!(fails.reason, Reason::StillUnhealthy);
    assert_eq!(number(&fails), 0, "with all its tries: it had agreed");
    let unasked = edit(later(false, 400), |seen| seen.node = NodeSeen::NotAsked);
    assert!(now(&unasked, 500).needs_node, "it may be seen by now");
    let unfit = edit(later(false, 400), |seen| seen.host.as_mut().unwrap().online = false);
    let waits = now(&unfit, 500);
    assert!(waits.acts.is_empty() && waits.again.is_some(), "{waits:?}");
}
