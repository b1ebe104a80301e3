//! Nothing of ours stays on a node, and where that cannot be helped, somebody is told.

use super::*;

fn tainted() -> Node {
    Node { ready: true, kubelet: "after".to_owned(), taint: Taint::Ours, ..node() }
}

fn away(seen: Observed) -> Observed {
    edit(seen, |seen| seen.node = NodeSeen::NoAccess("no answer".to_owned()))
}

/// The Machine is gone at once, and with it all that leads to the host but its record.
fn torn_off(seen: Observed) -> Observed {
    edit(seen, |seen| {
        let mut host = seen.host.take().unwrap();
        host.ours = false;
        host.history = host.history.changed("uid", |it| it.node = Some("n".to_owned()));
        seen.stray = Some(host);
        (seen.machine, seen.metal) = (None, None);
        seen.node = NodeSeen::NotAsked;
    })
}

#[test]
fn a_taint_goes_although_the_machine_is_gone_already() {
    for begun in [off(), released(), recovering()] {
        let gone = torn_off(begun);
        let first = now(&gone, 30);
        let write = writes(&first)[0];
        assert!(write.stray && !first.acts.contains(&Act::RemoveFinalizer), "{first:?}");
        let history = write.history.clone().unwrap();
        assert!(history.open("uid").is_none(), "its record ends");
        let free = edit(gone, |seen| {
            let stray = seen.stray.as_mut().unwrap();
            (stray.held, stray.history) = (false, history);
        });
        assert!(now(&free, 31).needs_node);
        let seen = edit(free, |seen| seen.node = NodeSeen::Here(tainted()));
        assert_eq!(now(&seen, 31).acts, [Act::Untaint, Act::RemoveFinalizer]);
    }
}

#[test]
fn a_backup_is_given_back_although_the_machine_is_gone_already() {
    let backup = node().backup;
    let seen = edit(torn_off(recovering()), |seen| {
        let stray = seen.stray.as_mut().unwrap();
        stray.history = stray.history.ended("uid", Reason::MachineMissing, at(30));
        seen.request.backup = Some(backup.clone());
        seen.node = NodeSeen::Here(node());
    });
    assert_eq!(now(&seen, 31).acts, [Act::Restore(backup), Act::RemoveFinalizer]);
}

#[test]
fn a_request_that_succeeded_without_a_look_at_its_node_stays_until_that_was_given_back() {
    let well = edit(away(recovering()), |seen| seen.machine.as_mut().unwrap().healthy = Some(true));
    let decision = now(&well, 30);
    assert_eq!(said(&decision).said.unwrap().succeeded, Some(true));
    assert!(!decision.acts.contains(&Act::RemoveFinalizer), "{decision:?}");
    let seen = edit(well, |seen| {
        seen.request.standing = said(&decision);
        seen.host.as_mut().unwrap().history = writes(&decision)[0].history.clone().unwrap();
    });
    let waits = now(&seen, 100_000);
    assert!(waits.acts.is_empty() && waits.again.is_some(), "{waits:?}");
    let back = edit(seen.clone(), |seen| seen.node = NodeSeen::Here(tainted()));
    assert_eq!(now(&back, 40).acts, [Act::Untaint, Act::RemoveFinalizer]);
    // Where nothing is done about nodes, nothing is owed.
    let policy = Policy { fencing: Fencing::None, ..Policy::default() };
    assert_eq!(decide(&seen, &policy, at(100_000)).acts, [Act::RemoveFinalizer]);
}

#[test]
fn a_backup_waits_for_its_node_although_the_strategy_was_spoilt_meanwhile() {
    let seen = edit(recovering(), |seen| {
        let wrong = crate::request::Refusal::new(Reason::StrategyUnknown, "a typing error");
        seen.request.strategy = Err(wrong);
        seen.request.backup = Some(node().backup);
        seen.request.standing.step = Some(Step::Undo);
        seen.request.standing.since = Some(at(30));
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.ended("uid", Reason::StrategyUnknown, at(30));
        seen.node = NodeSeen::Gone;
    });
    let waits = now(&seen, 31);
    assert!(waits.acts.is_empty() && waits.again.is_some(), "{waits:?}");
    assert!(now(&seen, 630).acts.contains(&Act::RemoveFinalizer), "not for ever");
}

#[test]
fn what_cannot_be_undone_in_time_is_told_and_remembered() {
    let withdrawn = edit(away(recovering()), |seen| {
        seen.request.deleting = Some(at(30));
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.ended("uid", Reason::Withdrawn, at(30));
    });
    assert!(now(&withdrawn, 31).acts.is_empty());
    let late = now(&withdrawn, 150);
    let [Act::Host(write), Act::RemoveFinalizer] = late.acts.as_slice() else { panic!("{late:?}") };
    let history = write.history.clone().unwrap();
    let left = history.last("uid").unwrap().left.clone().unwrap();
    assert!(left.contains("may still be out of service") && left.contains("no answer"), "{left}");
    assert!(late.notes.iter().any(|it| it.warning && it.text.contains(&left)), "{late:?}");
    let cut = edit(withdrawn, |seen| seen.host.as_mut().unwrap().history = history);
    assert_eq!(now(&cut, 151).acts, [Act::RemoveFinalizer], "said already");
}

#[test]
fn what_capm3_began_is_known_until_its_try_has_ended() {
    let upstream = Group::Upstream(api_types::ContractVersion::V1Beta2);
    let taken_over = edit(fresh(), |seen| {
        seen.request.group = upstream;
        (seen.request.finalizer, seen.request.theirs) = (true, true);
        seen.request.standing.phase = Some(Phase::Running);
    });
    assert!(taken_over.is_adopted());
    let decision = now(&taken_over, 0);
    let history = writes(&decision)[0].history.clone().unwrap();
    let under_way = edit(taken_over, |seen| {
        seen.host.as_mut().unwrap().history = history;
        seen.request.standing = said(&decision);
    });
    assert!(under_way.is_adopted());
    // Only now is its finalizer no mark any more that something is to be known by.
    assert!(!decision.acts.contains(&Act::AddFinalizer), "{decision:?}");
    assert_eq!(now(&under_way, 1).acts.first(), Some(&Act::AddFinalizer));
    let leaving = edit(under_way.clone(), |seen| seen.request.deleting = Some(at(1)));
    assert!(!now(&leaving, 1).acts.contains(&Act::AddFinalizer), "nobody may add one any more");
    let paused = edit(under_way.clone(), |seen| seen.request.paused = true);
    assert!(now(&paused, 1).acts.is_empty());
    let swapped = edit(under_way, |seen| seen.request.theirs = false);
    assert!(swapped.is_adopted() && !now(&swapped, 1).acts.contains(&Act::AddFinalizer));
    assert!(!edit(fresh(), |seen| seen.request.group = upstream).is_adopted());
    assert!(!asked().is_adopted());
}
