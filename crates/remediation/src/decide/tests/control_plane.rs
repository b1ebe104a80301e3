//! The host of a control plane whose tries are used up.

use controller_kit::engine::reasons::Kind;

use super::*;

fn last_try_of_a_control_plane() -> Observed {
    edit(last_try(), |seen| seen.machine.as_mut().unwrap().control_plane = true)
}

fn switches_off(decision: &Decision) -> bool {
    writes(decision).iter().any(|it| it.offline)
}

/// Handed over, and still on.
fn spared() -> Observed {
    edit(last_try_of_a_control_plane(), |seen| {
        let decision = now(seen, 320);
        seen.request.standing = said(&decision);
        seen.request.finalizer = false;
        seen.machine.as_mut().unwrap().told = true;
        let host = seen.host.as_mut().unwrap();
        host.marked = true;
        host.history = writes(&decision)[0].history.clone().unwrap();
    })
}

fn deleted(seen: Observed) -> Observed {
    edit(seen, |seen| seen.machine.as_mut().unwrap().deleting = Some(at(400)))
}

/// Its owner has not taken its member out of etcd yet.
fn kept(seen: Observed) -> Observed {
    edit(seen, |seen| seen.machine.as_mut().unwrap().kept = true)
}

#[test]
fn the_host_of_a_control_plane_is_switched_off_when_its_machine_is_being_deleted() {
    let decision = now(&last_try_of_a_control_plane(), 320);
    let [Act::Host(mark), Act::TellOwner(_), Act::Say(_)] = decision.acts.as_slice() else {
        panic!("{decision:?}")
    };
    assert!(mark.mark && !mark.offline);
    assert!(now(&spared(), 399).acts.is_empty(), "its owner may refuse");
    for finalizer in [false, true] {
        let going = edit(deleted(spared()), |seen| seen.request.finalizer = finalizer);
        let decision = now(&going, 400);
        let [Act::Host(write)] = decision.acts.as_slice() else { panic!("{decision:?}") };
        assert!(write.offline && !write.mark && write.key.is_none());
        let history = write.history.clone().unwrap();
        let cleared = edit(going, |seen| seen.host.as_mut().unwrap().history = history);
        assert!(!switches_off(&now(&cleared, 401)), "once: who clears the host may want it on");
    }
}

#[test]
fn the_host_of_a_control_plane_stays_on_while_somebody_keeps_its_machine_that_is_being_deleted() {
    for finalizer in [false, true] {
        let going = edit(deleted(spared()), |seen| seen.request.finalizer = finalizer);
        assert!(!switches_off(&now(&kept(going.clone()), 400)), "its member may be needed");
        assert!(switches_off(&now(&going, 500)));
    }
    assert!(!switches_off(&now(&deleted(kept(cut_off(true))), 400)), "nor where it was cut off");
    let alone = edit(kept(last_try_of_a_control_plane()), |seen| {
        seen.machine.as_mut().unwrap().owned = false;
    });
    let decision = now(&alone, 320);
    assert!(!decision.acts.contains(&Act::DeleteMachine) && !switches_off(&decision));
    assert!(writes(&decision)[0].history.as_ref().unwrap().last("uid").unwrap().stays_on);
}

/// A hand-over whose record was written, and nothing after it.
fn cut_off(stays_on: bool) -> Observed {
    edit(spared(), |seen| {
        seen.request.standing = last_try().request.standing;
        seen.request.finalizer = true;
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.stays_on = stays_on);
    })
}

#[test]
fn a_hand_over_that_was_cut_off_leaves_a_record_of_what_it_does_in_the_end() {
    let recorded = |seen: &Observed, second| {
        let decision = now(seen, second);
        let history = writes(&decision).iter().find_map(|it| it.history.clone());
        history.map(|it| it.last("uid").unwrap().stays_on)
    };
    assert_eq!(recorded(&cut_off(false), 321), Some(true), "the record knew nothing of it");
    assert_eq!(recorded(&cut_off(true), 321), None);
    let going = deleted(cut_off(true));
    assert_eq!(recorded(&going, 400), Some(false), "once: who clears the host may want it on");
    assert!(switches_off(&now(&going, 400)));
}

#[test]
fn a_hand_over_that_was_cut_off_switches_the_host_off_once_its_machine_is_being_deleted() {
    let cut = cut_off(true);
    assert!(!switches_off(&now(&cut, 321)));
    assert!(switches_off(&now(&deleted(cut), 400)));
}

#[test]
fn a_host_of_a_control_plane_stays_on_when_it_is_repaired_or_anothers_or_that_is_not_wanted() {
    type Change = fn(&mut Observed);
    let changes: [Change; 4] = [
        // The operator's webhook would refuse it.
        |seen| seen.host.as_mut().unwrap().power_off_disabled = true,
        |seen| seen.host.as_mut().unwrap().ours = false,
        |seen| seen.host.as_mut().unwrap().marked = false,
        |seen| seen.machine = None,
    ];
    for change in changes {
        let decision = now(&edit(deleted(spared()), change), 400);
        assert!(!switches_off(&decision), "{decision:?}");
    }
    let stays = edit(last_try(), |seen| seen.host.as_mut().unwrap().power_off_disabled = true);
    assert!(switches_off(&now(&last_try(), 320)) && !switches_off(&now(&stays, 320)));
    let policy = Policy { switch_off: false, ..Policy::default() };
    assert!(!switches_off(&decide(&deleted(spared()), &policy, at(400))));
}

#[test]
fn a_machine_of_a_control_plane_that_nobody_owns_stays_and_so_does_its_host() {
    let alone = edit(last_try_of_a_control_plane(), |seen| {
        seen.machine.as_mut().unwrap().owned = false;
    });
    let decision = now(&alone, 320);
    assert!(
        !switches_off(&decision) && !decision.acts.contains(&Act::DeleteMachine),
        "{decision:?}"
    );
    assert_eq!(said(&decision).phase, Some(Phase::Failed), "a person is to decide");
    let failed = edit(alone, |seen| {
        seen.request.standing = said(&decision);
        seen.request.finalizer = false;
    });
    let waits = now(&failed, 100_000);
    assert_eq!((waits.reason, waits.acts.len()), (Reason::Failed, 0), "{waits:?}");
    let kind = waits.reason.about().kind;
    assert!(matches!(kind, Kind::EndsWithin(_)), "it is overdue after a while: {kind:?}");
    let going = edit(failed, |seen| seen.machine.as_mut().unwrap().deleting = Some(at(400)));
    assert_eq!(now(&going, 100_000).reason, Reason::AtRest);
}
