//! A request that is withdrawn while its node is awaited: often by a health check that has seen the node first.

use super::*;

/// Withdrawn at 25.
fn withdrawn(node: NodeSeen) -> Observed {
    edit(recovering(), |seen| {
        seen.request.deleting = Some(at(25));
        seen.machine.as_mut().unwrap().external = Some("WaitingForRemediation".to_owned());
        seen.node = node;
    })
}

fn ready(kubelet: &str) -> NodeSeen {
    let kubelet = kubelet.to_owned();
    NodeSeen::Here(Node { ready: true, kubelet, taint: Taint::Ours, ..node() })
}

fn result(decision: &Decision) -> Option<String> {
    writes(decision)[0].history.as_ref().unwrap().0[0].result.clone()
}

#[test]
fn a_node_that_is_back_when_its_request_is_withdrawn_has_recovered() {
    let first = now(&withdrawn(NodeSeen::NotAsked), 26);
    assert!(first.needs_node && first.acts.is_empty(), "{first:?}");
    let decision = now(&withdrawn(ready("after")), 26);
    // The node first, to which its kubelet writes all the time: what is cut off after the record has ended is told to nobody.
    let [Act::Settled, Act::Untaint, Act::Host(write), Act::RemoveFinalizer] =
        decision.acts.as_slice()
    else {
        panic!("{decision:?}")
    };
    assert_eq!((write.key, result(&decision).as_deref()), (None, Some("Recovered")));
    let [note] = decision.notes.as_slice() else { panic!("{decision:?}") };
    assert_eq!((decision.reason, note.reason), (Reason::Recovered, Reason::Recovered));
    assert_eq!(note.text, "Try 1 of 2: the node is ready again");
    let cut = edit(withdrawn(ready("after")), |seen| {
        seen.host.as_mut().unwrap().history = write.history.clone().unwrap();
    });
    assert_eq!(now(&cut, 27).acts, [Act::Settled, Act::Untaint, Act::RemoveFinalizer]);
    // Somebody else's finalizer keeps it.
    let kept = edit(cut, |seen| seen.request.finalizer = false);
    let standing = said(&now(&kept, 28));
    assert!(standing.has_succeeded(), "{standing:?}");
    let told = edit(kept, |seen| seen.request.standing = standing);
    assert!(now(&told, 29).acts.is_empty(), "once");
}

#[test]
fn a_return_is_told_although_somebody_writes_to_the_node_meanwhile() {
    let cut =
        edit(withdrawn(ready("after")), |seen| seen.machine.as_mut().unwrap().external = None);
    for _ in 0..3 {
        // Each pass ends at the node.
        let again = now(&cut, 27);
        assert_eq!((&again.acts[0], again.notes.len()), (&Act::Untaint, 1), "{again:?}");
    }
    // A host that a late process holds once more is let go before anything is taken from its node.
    let held = edit(succeeded(), |seen| {
        seen.request.finalizer = true;
        seen.host.as_mut().unwrap().held = true;
        seen.node = ready("after");
    });
    let decision = now(&held, 40);
    let [Act::Host(write), Act::Untaint, Act::RemoveFinalizer] = decision.acts.as_slice() else {
        panic!("{decision:?}")
    };
    assert_eq!(write.key, Some(false));
}

#[test]
fn a_node_that_is_not_back_when_its_request_is_withdrawn_has_not_recovered() {
    let dead = NodeSeen::Here(node());
    let leaving = NodeSeen::Here(Node { deleting: true, ready: true, ..node() });
    for node in [dead, ready("before"), leaving, NodeSeen::Gone] {
        let decision = now(&withdrawn(node), 26);
        assert_eq!(result(&decision).as_deref(), Some("Withdrawn"), "{decision:?}");
        assert!(decision.acts.starts_with(&[Act::Settled]), "{decision:?}");
        assert!(decision.acts.ends_with(&[Act::RemoveFinalizer]), "{decision:?}");
    }
}

#[test]
fn a_node_that_cannot_be_asked_is_back_when_the_health_check_says_so() {
    let away = |healthy| {
        edit(withdrawn(NodeSeen::NoAccess("away".to_owned())), |seen| {
            seen.machine.as_mut().unwrap().healthy = healthy;
        })
    };
    // The health check writes down what it has seen just after it withdrew the request.
    let waits = now(&away(Some(false)), 26);
    assert!(waits.acts.is_empty() && waits.again == Some(Duration::from_secs(4)), "{waits:?}");
    for (healthy, second) in [(None, 26), (Some(false), 30)] {
        assert_eq!(result(&now(&away(healthy), second)).as_deref(), Some("Withdrawn"));
    }
    let well = now(&away(Some(true)), 26);
    assert_eq!(result(&well).as_deref(), Some("Recovered"));
    assert!(well.notes[0].text.ends_with("the health check says that the node is well again"));
    // It is waited for as long as ever.
    assert!(well.again.is_some() && !well.acts.contains(&Act::RemoveFinalizer), "{well:?}");
    let waiting = edit(away(Some(true)), |seen| {
        seen.request.standing = said(&well);
        seen.host.as_mut().unwrap().history = writes(&well)[0].history.clone().unwrap();
    });
    let waits = now(&waiting, 145);
    assert!(waits.acts.is_empty() && waits.again.is_some(), "{waits:?}");
    let late = now(&waiting, 146);
    assert!(late.acts.starts_with(&[Act::Settled]), "{late:?}");
    assert!(late.acts.ends_with(&[Act::RemoveFinalizer]), "{late:?}");
    assert_eq!(result(&late).as_deref(), Some("Recovered"));
}

#[test]
fn what_a_machine_says_of_another_request_stays() {
    type Change = fn(&mut Observed);
    let settles = |change: Change| {
        let acts = now(&edit(withdrawn(ready("after")), change), 26).acts;
        assert!(acts.contains(&Act::RemoveFinalizer), "{acts:?}");
        acts.contains(&Act::Settled)
    };
    assert!(settles(|_| {}));
    assert!(settles(|seen| seen.machine.as_mut().unwrap().external_since = Some(at(24))));
    let others: [Change; 4] = [
        |seen| seen.machine.as_mut().unwrap().external = None,
        |seen| seen.machine.as_mut().unwrap().external_since = Some(at(25)),
        |seen| seen.machine.as_mut().unwrap().cluster = "d".to_owned(),
        |seen| {
            let host = seen.host.as_mut().unwrap();
            host.history = host.history.with(Entry::begin("another", "m", 0, at(22)));
        },
    ];
    for change in others {
        assert!(!settles(change));
    }
}

/// An installation for the label `a`.
fn filtered() -> Policy {
    Policy { watch_filter: Some("a".to_owned()), ..Policy::default() }
}

/// A try of an installation with a filter, on a request that has this label by now.
fn labelled(begun: Observed, filter: &str, label: Option<&str>) -> Observed {
    edit(begun, |seen| {
        seen.request.label = label.map(str::to_owned);
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.filter = Some(filter.to_owned()));
    })
}

#[test]
fn what_was_begun_on_a_request_that_lost_its_label_is_undone_and_nothing_else_is_done() {
    let with = |seen: &Observed, second| decide(seen, &filtered(), at(second));
    assert!(with(&labelled(off(), "a", Some("a")), 5).needs_node, "it goes on");
    for (label, deleting) in [(None, None), (Some("b"), None), (None, Some(at(30)))] {
        let lost = edit(labelled(off(), "a", label), |seen| seen.request.deleting = deleting);
        let first = with(&lost, 31);
        let [Act::Host(write), ..] = first.acts.as_slice() else { panic!("{first:?}") };
        assert_eq!((write.key, result(&first).as_deref()), (Some(false), Some("Withdrawn")));
        let free = edit(lost, |seen| {
            let host = seen.host.as_mut().unwrap();
            (host.held, host.powered_on) = (false, true);
            host.history = write.history.clone().unwrap();
            seen.node = NodeSeen::Here(Node { taint: Taint::Ours, ..node() });
        });
        let ends = with(&free, 40);
        assert!(ends.acts.starts_with(&[Act::Untaint]), "{ends:?}");
        assert!(ends.acts.ends_with(&[Act::RemoveFinalizer]), "{ends:?}");
        if deleting.is_none() {
            assert!(!said(&ends).is_under_way(), "it says that it was stopped");
        }
        let done = edit(free, |seen| seen.request.finalizer = false);
        assert_eq!(with(&done, 41), Decision::rest(Reason::AtRest));
    }
}

#[test]
fn what_another_installation_began_is_left_to_it() {
    for begun in [fresh(), asked(), off(), released(), recovering(), succeeded()] {
        for (theirs, deleting) in [(false, None), (false, Some(at(30))), (true, None)] {
            let seen = edit(labelled(begun.clone(), "b", Some("b")), |seen| {
                (seen.request.finalizer, seen.request.theirs) = (true, theirs);
                seen.request.deleting = deleting;
            });
            // Also where its clock is ahead of ours.
            for now in [at(100_000), at(-100)] {
                let decision = decide(&seen, &filtered(), now);
                assert_eq!(decision, Decision::rest(Reason::AtRest));
            }
        }
    }
}
