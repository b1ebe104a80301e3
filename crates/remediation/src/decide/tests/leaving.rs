//! Nothing of ours stays on a node, and where that cannot be helped, somebody is told.

use controller_kit::engine::reasons::Kind;

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

/// The machine has lost its host, and has none now, or another one; and whether the lost one is the stray one then.
fn lost(begun: &Observed) -> [(Observed, bool); 2] {
    let none = edit(begun.clone(), |seen| seen.host.as_mut().unwrap().ours = false);
    let another = edit(begun.clone(), |seen| {
        let mut old = seen.host.clone().unwrap();
        (old.name, old.ours) = ("old".to_owned(), false);
        seen.stray = Some(old);
        seen.host.as_mut().unwrap().history = History::default();
    });
    [(none, false), (another, true)]
}

fn lost_host(seen: &mut Observed, stray: bool) -> &mut Host {
    let host = if stray { &mut seen.stray } else { &mut seen.host };
    host.as_mut().unwrap()
}

#[test]
fn a_host_that_was_let_go_and_lost_is_not_written_while_somebody_pauses_it() {
    for begun in [released(), recovering()] {
        for (seen, stray) in lost(&begun).into_iter().chain([(torn_off(begun), true)]) {
            for deleting in [None, Some(at(25))] {
                let paused = edit(seen.clone(), |seen| {
                    lost_host(seen, stray).paused = true;
                    seen.request.deleting = deleting;
                });
                assert_eq!(now(&paused, 30), Decision::rest(Reason::Paused));
                let ended = edit(paused, |seen| {
                    let host = lost_host(seen, stray);
                    host.history = host.history.ended("uid", Reason::HostNotClaimed, at(24));
                });
                assert_ne!(now(&ended, 30).reason, Reason::Paused, "it is nobody's here");
            }
            let resumed = now(&seen, 31);
            assert_eq!(writes(&resumed)[0].stray, stray, "{resumed:?}");
        }
    }
}

#[test]
fn on_a_host_that_was_let_go_before_it_was_lost_the_record_says_how_the_try_ended() {
    for begun in [released(), recovering()] {
        for (seen, stray) in lost(&begun) {
            let decision = now(&seen, 30);
            let [Act::Host(write)] = decision.acts.as_slice() else { panic!("{decision:?}") };
            assert_eq!((write.stray, write.key), (stray, None), "nobody holds it any more");
            let history = write.history.clone().unwrap();
            assert_eq!(history.0[0].result.as_deref(), Some("HostNotClaimed"));
            let next = edit(seen, |seen| {
                lost_host(seen, stray).history = history;
            });
            let again = now(&next, 31);
            assert!(writes(&again).iter().all(|it| it.stray != stray), "once: {again:?}");
        }
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
    let well = edit(away(recovering()), |seen| {
        let machine = seen.machine.as_mut().unwrap();
        (machine.healthy, machine.healthy_since) = (Some(true), Some(at(20)));
    });
    let decision = now(&well, 30);
    let message = said(&decision).said.unwrap().message;
    assert!(message.ends_with("the health check says that the node is well again"), "{message}");
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
        let wrong = crate::request::Said::no(Reason::StrategyUnknown, "a typing error");
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
    let first = now(&withdrawn, 31);
    let standing = said(&first);
    assert_eq!((first.acts.len(), standing.step.clone()), (1, Some(Step::Undo)));
    assert_eq!(standing.said.as_ref().unwrap().reason, Reason::Undoing, "not how far it was");
    let withdrawn = edit(withdrawn, |seen| seen.request.standing = standing);
    assert!(now(&withdrawn, 32).acts.is_empty(), "once");
    let late = now(&withdrawn, 151);
    let [Act::Host(write), Act::RemoveFinalizer] = late.acts.as_slice() else { panic!("{late:?}") };
    let history = write.history.clone().unwrap();
    let left = history.last("uid").unwrap().left.clone().unwrap();
    assert_eq!(history.last("uid").unwrap().tainted.as_deref(), Some("c"), "it is looked for");
    assert!(left.contains("may still be out of service") && left.contains("no answer"), "{left}");
    assert!(late.notes.iter().any(|it| it.warning && it.text.contains(&left)), "{late:?}");
    let paused = edit(withdrawn.clone(), |seen| {
        let host = seen.host.as_mut().unwrap();
        (host.ours, host.paused) = (false, true);
    });
    let late = now(&paused, 151);
    assert_eq!(late.acts, [Act::RemoveFinalizer], "to a host that is paused nothing is written");
    assert!(late.notes.iter().any(|it| it.warning && it.text.contains(&left)), "{late:?}");
    let cut = edit(withdrawn, |seen| seen.host.as_mut().unwrap().history = history);
    assert_eq!(now(&cut, 152).acts, [Act::RemoveFinalizer], "said already");
}

/// `--node-fencing` became `none` while its node was out of service and its cluster away.
#[test]
fn a_taint_is_owed_also_where_no_node_is_taken_out_of_service_any_more() {
    let none = Policy { fencing: Fencing::None, ..Policy::default() };
    let withdrawn = |begun_with: &Policy| {
        let history = writes(&decide(&fresh(), begun_with, at(0)))[0].history.clone().unwrap();
        edit(away(recovering()), |seen| {
            seen.request.deleting = Some(at(30));
            seen.request.standing.step = Some(Step::Undo);
            seen.request.standing.since = Some(at(30));
            let host = seen.host.as_mut().unwrap();
            host.history = history.ended("uid", Reason::Withdrawn, at(30));
        })
    };
    let late = decide(&withdrawn(&Policy::default()), &none, at(151));
    let [Act::Host(write), Act::RemoveFinalizer] = late.acts.as_slice() else { panic!("{late:?}") };
    let left = write.history.as_ref().unwrap().last("uid").unwrap().tainted.clone();
    assert_eq!(left.as_deref(), Some("c"), "it is looked for");
    let never = decide(&withdrawn(&none), &none, at(151));
    assert_eq!(never.acts, [Act::RemoveFinalizer], "nothing was begun");
}

/// Withdrawn at 30 while its host is off, with what its node had; its host shows on at 400, and its node is awaited.
fn withdrawn_while_off(backup: Option<Backup>, node: &NodeSeen) -> (Observed, Decision) {
    let gone = edit(off(), |seen| {
        seen.request.deleting = Some(at(30));
        seen.request.backup = backup;
        seen.node = node.clone();
    });
    let first = now(&gone, 31);
    assert_eq!(writes(&first)[0].key, Some(false));
    let free = edit(gone, |seen| {
        let host = seen.host.as_mut().unwrap();
        (host.held, host.history) = (false, writes(&first)[0].history.clone().unwrap());
        seen.request.standing = said(&first);
    });
    assert!(now(&free, 399).acts.is_empty(), "once: {:?}", now(&free, 399));
    let on = edit(free, |seen| seen.host.as_mut().unwrap().powered_on = true);
    let decision = now(&on, 400);
    (on, decision)
}

#[test]
fn what_is_on_a_node_has_its_own_time_from_when_its_host_is_on_again() {
    let away = NodeSeen::NoAccess("no answer".to_owned());
    let backup = Some(node().backup);
    let courses =
        [(None, away.clone(), 120), (backup.clone(), away, 120), (backup, NodeSeen::Gone, 300)];
    for (backup, node, time) in courses {
        let (on, decision) = withdrawn_while_off(backup, &node);
        assert!(decision.again.is_some(), "{decision:?}");
        let [Act::Say(standing)] = decision.acts.as_slice() else { panic!("{decision:?}") };
        assert_eq!((standing.step.clone(), standing.since), (Some(Step::Undo), Some(at(400))));
        let told = edit(on, |seen| seen.request.standing = standing.clone());
        let waits = now(&told, 399 + time);
        assert!(waits.acts.is_empty() && waits.again.is_some(), "{waits:?}");
        let late = now(&told, 400 + time);
        assert!(late.acts.ends_with(&[Act::RemoveFinalizer]), "not for ever: {late:?}");
        let off = edit(told, |seen| seen.host.as_mut().unwrap().powered_on = false);
        assert_eq!(said(&now(&off, 410)).since, None, "no node comes before its host is on again");
    }
}

#[test]
fn a_host_that_does_not_come_back_does_not_keep_a_request_that_is_withdrawn_for_ever() {
    let (on, _) = withdrawn_while_off(Some(node().backup), &NodeSeen::Gone);
    let off = edit(on, |seen| seen.host.as_mut().unwrap().powered_on = false);
    let late = now(&off, 630);
    let [Act::Say(standing)] = late.acts.as_slice() else { panic!("{late:?}") };
    assert_eq!(standing.since, Some(at(630)), "from then on its node is awaited all the same");
    let told = edit(off, |seen| seen.request.standing = standing.clone());
    assert!(now(&told, 929).acts.is_empty());
    assert!(now(&told, 930).acts.contains(&Act::RemoveFinalizer));
}

#[test]
fn what_a_node_had_is_kept_while_a_person_keeps_its_host_off() {
    let off = edit(off(), |seen| {
        seen.request.backup = Some(node().backup);
        seen.request.standing.step = Some(Step::Undo);
        seen.request.standing.since = Some(at(30));
        let host = seen.host.as_mut().unwrap();
        (host.held, host.online) = (false, false);
        host.history = host.history.ended("uid", Reason::HostOffline, at(30));
        seen.node = NodeSeen::Gone;
    });
    for seen in [off.clone(), away(off.clone())] {
        for second in [331, 100_000] {
            let waits = now(&seen, second);
            assert!(waits.again.is_some(), "{waits:?}");
            assert!(!waits.acts.contains(&Act::RemoveFinalizer), "{waits:?}");
        }
    }
    // Its time begins when the host may be on, also where the request is refused for another reason then.
    let kept = now(&off, 100_000);
    let on = edit(off.clone(), |seen| {
        seen.request.standing = said(&kept);
        seen.host.as_mut().unwrap().online = true;
        seen.machine.as_mut().unwrap().skipped = true;
    });
    let begins = now(&on, 100_001);
    assert!(!begins.acts.contains(&Act::RemoveFinalizer), "{begins:?}");
    assert_eq!(said(&begins).since, Some(at(100_001)));
    let begun = edit(on, |seen| seen.request.standing = said(&begins));
    assert!(!now(&begun, 100_300).acts.contains(&Act::RemoveFinalizer));
    assert!(now(&begun, 100_302).acts.contains(&Act::RemoveFinalizer), "not for ever");
    let deleted = edit(off.clone(), |seen| seen.request.deleting = Some(at(100_000)));
    let waits = now(&deleted, 100_001);
    assert!(!waits.acts.contains(&Act::RemoveFinalizer), "{waits:?}");
    assert!(now(&deleted, 100_300).acts.contains(&Act::RemoveFinalizer), "not for ever");
    let going = edit(off, |seen| seen.machine.as_mut().unwrap().deleting = Some(at(31)));
    assert!(now(&going, 331).acts.contains(&Act::RemoveFinalizer), "it will have no other node");
}

#[test]
fn what_capm3_began_is_known_until_its_try_has_ended() {
    let upstream = Group::Upstream(api_types::ContractVersion::V1Beta2);
    let taken_over = edit(fresh(), |seen| {
        seen.request.group = upstream;
        (seen.request.finalizer, seen.request.theirs) = (true, true);
        seen.request.standing.phase = Some(Phase::Running);
        seen.node = NodeSeen::Here(node());
    });
    assert!(taken_over.is_adopted());
    let decision = now(&taken_over, 0);
    let history = writes(&decision)[0].history.clone().unwrap();
    let under_way = edit(taken_over, |seen| {
        seen.host.as_mut().unwrap().history = history;
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

/// CAPM3 had the host off, and waits for the machine.
fn left_by_capm3(held: bool, powered_on: bool) -> Observed {
    edit(fresh(), |seen| {
        seen.request.group = Group::Upstream(api_types::ContractVersion::V1Beta2);
        (seen.request.finalizer, seen.request.theirs) = (true, true);
        seen.request.standing.phase = Some(Phase::Waiting);
        seen.request.standing.last = Some(at(0));
        let host = seen.host.as_mut().unwrap();
        (host.held, host.powered_on) = (held, powered_on);
    })
}

/// What CAPM3 left is recognised: its key by its name, which is ours, and its taint by the record.
#[test]
fn what_capm3_had_begun_is_begun_afresh_unless_its_node_is_ready_by_then() {
    for (held, powered_on) in [(true, false), (true, true), (false, false), (false, true)] {
        let left = left_by_capm3(held, powered_on);
        assert!(now(&left, 1000).needs_node, "it may be back");
        let seeing = |node: Node| edit(left.clone(), |seen| seen.node = NodeSeen::Here(node));
        let back = now(&seeing(Node { ready: true, ..tainted() }), 1000);
        assert_eq!((back.reason, writes(&back).len()), (Reason::NodeReady, 0), "{back:?}");
        let silent = now(&seeing(Node { ready: false, ..tainted() }), 1000);
        let [Act::Host(write)] = silent.acts.as_slice() else { panic!("{silent:?}") };
        assert_eq!(write.key, Some(true));
        let history = write.history.clone().unwrap();
        assert!(history.open("uid").unwrap().adopted);
        let begun = edit(left, |seen| {
            let host = seen.host.as_mut().unwrap();
            (host.held, host.history) = (true, history);
        });
        assert_eq!(said(&now(&begun, 1001)).phase, Some(Phase::Running));
    }
}

#[test]
fn a_request_that_capm3_left_at_failed_is_carried_out_once_its_host_is_to_be_on() {
    for theirs in [true, false] {
        let failed = edit(fresh(), |seen| {
            seen.request.group = Group::Upstream(api_types::ContractVersion::V1Beta2);
            (seen.request.finalizer, seen.request.theirs) = (theirs, theirs);
            seen.request.standing.phase = Some(Phase::Failed);
            seen.host.as_mut().unwrap().online = false;
        });
        let undone = edit(failed.clone(), |seen| {
            (seen.request.finalizer, seen.request.theirs) = (false, false);
        });
        let refused = now(&undone, 0);
        assert_eq!(refused.reason, Reason::HostOffline);
        let on = |seen: Observed| edit(seen, |seen| seen.host.as_mut().unwrap().online = true);
        let told = edit(undone, |seen| seen.request.standing = said(&refused));
        assert!(!told.request.standing.is_over(), "what was refused is no end");
        // Before a request that waited is begun, its node is looked at.
        let seen_down = edit(on(told), |seen| seen.node = NodeSeen::Here(node()));
        for seen in [on(failed), seen_down] {
            let seen = edit(seen, |seen| seen.node = NodeSeen::Here(node()));
            let decision = now(&seen, 5);
            assert_eq!(writes(&decision)[0].key, Some(true), "{decision:?}");
            let begun = edit(seen, |seen| {
                let host = seen.host.as_mut().unwrap();
                (host.held, host.history) = (true, writes(&decision)[0].history.clone().unwrap());
            });
            assert_eq!(said(&now(&begun, 6)).phase, Some(Phase::Running));
        }
    }
    let waits = edit(away(fresh()), |seen| {
        seen.request.standing.phase = Some(Phase::Failed);
        seen.request.finalizer = true;
        seen.host.as_mut().unwrap().online = false;
    });
    let standing = said(&now(&waits, 5));
    assert_eq!(standing.step, Some(Step::Undo), "its node cannot be looked at");
    assert!(!standing.is_over());
    let gone = edit(fresh(), |seen| {
        seen.request.standing.phase = Some(Phase::Failed);
        let message = String::new();
        let said = Said { succeeded: Some(false), reason: Reason::HostOffline, message };
        seen.request.standing.said = Some(said);
        seen.machine.as_mut().unwrap().deleting = Some(at(1));
    });
    assert_eq!(said(&now(&gone, 5)).phase, Some(Phase::Waiting), "it is stopped as any other");
    // What is handed over to nobody here says more than its phase.
    let policy = Policy { delete_unowned: false, ..Policy::default() };
    let ours = edit(last_try(), |seen| {
        seen.machine.as_mut().unwrap().owned = false;
        seen.request.standing = said(&decide(seen, &policy, at(320)));
    });
    assert!(ours.request.standing.is_over());
}

#[test]
fn the_host_remembers_the_cluster_of_a_node_where_the_request_does_not_say_it() {
    let by_hand = edit(fresh(), |seen| seen.request.cluster = None);
    let history = writes(&now(&by_hand, 0))[0].history.clone().unwrap();
    let gone = edit(by_hand, |seen| {
        seen.host.as_mut().unwrap().history = history;
        (seen.machine, seen.metal) = (None, None);
    });
    assert_eq!((gone.cluster_name(), gone.node_name()), (Some("c"), Some("n")));
    let labelled = writes(&now(&fresh(), 0))[0].history.clone().unwrap();
    assert_eq!(labelled.open("uid").unwrap().cluster, None, "its label says so");
}

/// The health check says that the node is back, and only this process has no way to its cluster.
#[test]
fn a_taint_that_waits_for_its_cluster_beside_a_machine_that_is_well_is_overdue_after_a_while() {
    let well = edit(away(recovering()), |seen| {
        seen.machine.as_mut().unwrap().healthy = Some(true);
    });
    let back = now(&well, 30);
    assert_eq!(back.reason, Reason::Recovered, "the success is told as one");
    let told = edit(well, |seen| {
        seen.request.standing = said(&back);
        seen.host.as_mut().unwrap().history = writes(&back)[0].history.clone().unwrap();
    });
    let waits = now(&told, 40);
    assert!(waits.acts.is_empty() && waits.again.is_some(), "{waits:?}");
    assert_eq!(waits.reason, Reason::Undoing);
    for reason in [Reason::Undoing, Reason::HostHeld] {
        let kind = reason.about().kind;
        assert!(matches!(kind, Kind::EndsWithin(_)), "{reason:?}: {kind:?}");
    }
}

#[test]
fn a_taint_that_somebody_took_off_is_set_again_and_its_mark_goes_with_the_try() {
    let taken_off = |busy| NodeSeen::Here(Node { busy, taint: Taint::TakenOff, ..node() });
    let busy = edit(off(), |seen| seen.node = taken_off(3));
    assert!(now(&busy, 5).acts.contains(&Act::Taint), "{:?}", now(&busy, 5));
    let idle = edit(off(), |seen| seen.node = taken_off(0));
    assert_eq!(now(&idle, 5).acts[0], Act::Taint);
    let late = edit(busy, |seen| seen.request.standing = said(&now(seen, 5)));
    let history = writes(&now(&late, 125))[0].history.clone().unwrap();
    assert_eq!(
        history.0[0].fenced.as_deref().unwrap(),
        crate::text::left_alone(crate::text::NOT_TAINTED)
    );
    let withdrawn = edit(recovering(), |seen| {
        seen.request.deleting = Some(at(30));
        seen.node = taken_off(0);
    });
    assert!(now(&withdrawn, 31).acts.contains(&Act::Untaint), "{:?}", now(&withdrawn, 31));
}
