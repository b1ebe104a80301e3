//! Every rule, one by one.

use std::time::Duration;

use api_types::remediation::{Phase, Step};
use controller_kit::engine::Reason as _;
use k8s_openapi::jiff::Timestamp;

use super::decide;
use crate::decision::{Act, Decision, HostWrite};
use crate::history::{Entry, History};
use crate::model::{Ahead, ClusterSeen, Metal, Observed};
use crate::reason::Reason;
use crate::request::{Backup, Group, Owner, Request, Said, Standing, Strategy};
use crate::seen::{Host, Machine, Node, NodeCondition, NodeSeen, Taint, Unmanaged};
use crate::settings::{Fencing, Policy};

mod afterwards;
mod beginning;
mod control_plane;
mod counting;
mod first_boot;
mod leaving;
mod properties;
mod refusing;
mod remembering;
mod returning;
mod unread;
mod unsaid;
mod waiting;
mod whole;
mod withdrawing;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(crate) fn request() -> Request {
    Request {
        group: Group::Ours,
        namespace: "ns".to_owned(),
        name: "m".to_owned(),
        uid: "uid".to_owned(),
        version: "1".to_owned(),
        generation: 1,
        deleting: None,
        paused: false,
        finalizer: false,
        theirs: false,
        others: Vec::new(),
        transition: None,
        label: None,
        owner: Some(Owner { name: "m".to_owned(), uid: "m".to_owned() }),
        cluster: Some("c".to_owned()),
        strategy: Ok(Strategy { retries: 1, timeout: Duration::from_secs(300) }),
        standing: Standing::default(),
        backup: None,
    }
}

pub(super) fn machine() -> Machine {
    Machine {
        name: "m".to_owned(),
        uid: "machine".to_owned(),
        cluster: "c".to_owned(),
        deleting: None,
        kept: false,
        paused: false,
        skipped: false,
        owned: true,
        control_plane: false,
        metal: true,
        node: Some("n".to_owned()),
        provider_id: None,
        told: false,
        external: None,
        external_since: None,
        healthy: Some(false),
        healthy_since: None,
        ails: false,
        complaints: Vec::new(),
        failing: None,
    }
}

pub(super) fn host() -> Host {
    Host {
        name: "h".to_owned(),
        ours: true,
        paused: false,
        unmanaged: None,
        provisioned: true,
        online: true,
        power_off_disabled: false,
        held: false,
        powered_on: true,
        confirmed: false,
        held_off_at: None,
        in_cycle: false,
        read_off: false,
        has_room: true,
        looked_at: false,
        holds: Vec::new(),
        unreachable: None,
        servicing: false,
        marked: false,
        history: History::default(),
    }
}

pub(super) fn node() -> Node {
    Node {
        uid: "node".to_owned(),
        foreign: None,
        deleting: false,
        ready: false,
        conditions: Vec::new(),
        kubelet: "before".to_owned(),
        heard: None,
        taint: Taint::None,
        busy: 0,
        backup: Backup { labels: "{}".to_owned(), annotations: "{}".to_owned() },
    }
}

/// A machine that is unhealthy and a request that has just come.
pub(crate) fn fresh() -> Observed {
    Observed {
        request: request(),
        rival: false,
        member: None,
        only_member: false,
        machine: Some(machine()),
        cluster: ClusterSeen::Here { paused: false },
        metal: Some(Metal { paused: false, host: Some("h".to_owned()) }),
        host: Some(host()),
        stray: None,
        node: NodeSeen::NotAsked,
        is_watched: false,
        resumed: None,
        started: None,
    }
}

fn edit(mut seen: Observed, change: impl FnOnce(&mut Observed)) -> Observed {
    change(&mut seen);
    seen
}

/// Asked for at 0, and still on.
fn asked() -> Observed {
    edit(fresh(), |seen| {
        seen.request.finalizer = true;
        seen.request.standing = Standing {
            phase: Some(Phase::Running),
            last: Some(at(0)),
            step: Some(Step::PowerOff),
            since: Some(at(0)),
            said: Some(Said {
                succeeded: None,
                reason: Reason::PowerOff,
                message: "Try 1 of 2: the host is asked to be switched off".to_owned(),
            }),
            retries: 0,
        };
        let host = seen.host.as_mut().unwrap();
        host.held = true;
        let mut entry = Entry::begin("uid", "m", 0, at(0));
        entry.was_on = true;
        entry.machine_uid = Some("machine".to_owned());
        host.history = History(vec![entry]);
    })
}

fn off() -> Observed {
    edit(asked(), |seen| seen.host.as_mut().unwrap().powered_on = false)
}

/// Released at 10, and still off.
fn released() -> Observed {
    edit(off(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.held = false;
        host.history = host.history.changed("uid", |it| {
            it.off = Some(at(10));
            it.released = Some(at(10));
            it.kubelet = Some("before".to_owned());
        });
        seen.request.standing.step = Some(Step::PowerOn);
        seen.request.standing.since = Some(at(10));
        seen.node = NodeSeen::Here(node());
    })
}

/// On since 20.
fn recovering() -> Observed {
    edit(released(), |seen| {
        seen.host.as_mut().unwrap().powered_on = true;
        seen.request.standing.phase = Some(Phase::Waiting);
        seen.request.standing.step = Some(Step::Recover);
        seen.request.standing.since = Some(at(20));
        seen.request.standing.said = Some(awaited(0));
    })
}

/// What is said after so many retries, while the node is awaited.
fn awaited(retries: u32) -> Said {
    let message = format!("Try {} of 2: the host is on; the node is awaited", retries + 1);
    Said { succeeded: None, reason: Reason::Recovering, message }
}

fn now(seen: &Observed, second: i64) -> Decision {
    decide(seen, &Policy::default(), at(second))
}

fn said(decision: &Decision) -> Standing {
    let mut all = decision.acts.iter().filter_map(|act| match act {
        Act::Say(standing) => Some(standing.clone()),
        _ => None,
    });
    all.next().unwrap_or_else(|| panic!("says nothing: {decision:?}"))
}

fn writes(decision: &Decision) -> Vec<&HostWrite> {
    let all = decision.acts.iter();
    all.filter_map(|act| if let Act::Host(write) = act { Some(write) } else { None }).collect()
}

/// The same after a pass that asked its host to be switched off.
fn begun(seen: Observed, decision: &Decision) -> Observed {
    let [Act::AddFinalizer, Act::Host(write)] = decision.acts.as_slice() else {
        panic!("{decision:?}")
    };
    assert_eq!(write.key, Some(true));
    edit(seen, |seen| {
        seen.request.finalizer = true;
        let host = seen.host.as_mut().unwrap();
        (host.held, host.history) = (true, write.history.clone().unwrap());
    })
}

#[test]
fn a_new_request_gets_its_finalizer_then_key_and_record_in_one_write_then_the_phase() {
    let decision = now(&fresh(), 0);
    assert!(decision.proves_request_and_host() && decision.again.is_some(), "{decision:?}");
    let begun = begun(fresh(), &decision);
    let entry = begun.host.as_ref().unwrap().history.open("uid").unwrap();
    assert!(entry.was_on && entry.number == 0);
    let off = edit(begun.clone(), |seen| seen.host.as_mut().unwrap().powered_on = false);
    for seen in [begun, off] {
        let next = now(&seen, 1);
        assert_eq!((next.acts.len(), next.notes.len()), (1, 1), "before anything else: {next:?}");
        let standing = said(&next);
        assert_eq!(standing.phase, Some(Phase::Running));
        assert_eq!(standing.last, Some(at(0)));
        assert_eq!(standing.retries, 0);
        let told = edit(seen, |seen| seen.request.standing = standing);
        assert!(now(&told, 1).notes.is_empty(), "once");
    }
}

#[test]
fn a_request_is_urgent_until_its_host_is_asked() {
    let is_urgent = |seen: &Observed| super::is_to_be_begun(&seen.request);
    assert!(is_urgent(&fresh()));
    assert!(!is_urgent(&begun(fresh(), &now(&fresh(), 0))) && !is_urgent(&asked()));
}

#[test]
fn only_a_first_try_proves_by_its_writes_what_it_rests_on() {
    let next = now(&recovering(), 320);
    assert!(writes(&next)[0].key == Some(true) && !next.proves_request_and_host(), "{next:?}");
    let cut_off = edit(fresh(), |seen| seen.request.finalizer = true);
    let again = now(&cut_off, 1);
    assert!(writes(&again)[0].key == Some(true) && !again.proves_request_and_host(), "{again:?}");
}

#[test]
fn a_host_that_is_still_on_is_waited_for_and_nothing_is_written() {
    let decision = now(&asked(), 5);
    assert!(decision.acts.is_empty(), "{decision:?}");
    assert_eq!(decision.again, Some(Duration::from_secs(595)));
}

#[test]
fn an_off_that_is_older_than_the_request_is_not_taken() {
    let stale = edit(off(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.was_on = false);
    });
    assert_eq!(now(&stale, 5).reason, Reason::PowerOff);
    assert_eq!(now(&stale, 149).reason, Reason::PowerOff);
    for prove in [|host: &mut Host| host.confirmed = true, |host: &mut Host| host.in_cycle = true] {
        let seen = edit(stale.clone(), |seen| prove(seen.host.as_mut().unwrap()));
        assert_eq!(now(&seen, 5).reason, Reason::Fencing);
    }
    assert_eq!(
        now(&stale, 599).reason,
        Reason::PowerOff,
        "nobody may have looked for all that time"
    );
    let looked_at = edit(stale, |seen| seen.host.as_mut().unwrap().looked_at = true);
    assert_eq!(now(&looked_at, 149).reason, Reason::PowerOff);
    assert_eq!(now(&looked_at, 150).reason, Reason::Fencing, "off for longer than a look takes");
}

#[test]
fn an_off_without_our_key_is_no_fence() {
    let seen = edit(off(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.held = false;
        host.confirmed = true;
    });
    let decision = now(&seen, 5);
    assert_eq!(writes(&decision)[0].key, Some(true), "it was taken away and is set again");
}

#[test]
fn an_idle_node_is_tainted_and_the_host_released_in_one_pass() {
    let seen = edit(off(), |seen| seen.node = NodeSeen::Here(node()));
    let decision = now(&seen, 5);
    assert_eq!(decision.acts[0], Act::Taint);
    let write = writes(&decision)[0];
    assert_eq!(write.key, Some(false));
    let entry = write.history.as_ref().unwrap().open("uid").unwrap();
    assert_eq!(entry.kubelet.as_deref(), Some("before"));
    assert_eq!((entry.off, entry.released), (Some(at(5)), Some(at(5))));
}

#[test]
fn the_host_is_held_until_nothing_runs_on_the_node_or_the_time_is_over() {
    let busy =
        |taint| edit(off(), |seen| seen.node = NodeSeen::Here(Node { busy: 3, taint, ..node() }));
    let decision = now(&busy(Taint::None), 5);
    assert!(decision.acts.contains(&Act::Taint) && writes(&decision).is_empty(), "{decision:?}");
    let standing = said(&decision);
    assert_eq!((standing.step.clone(), standing.since), (Some(Step::Fence), Some(at(5))));
    let waiting = edit(busy(Taint::Ours), |seen| seen.request.standing = standing);
    assert!(now(&waiting, 100).acts.is_empty());
    let late = now(&waiting, 125);
    assert_eq!(writes(&late)[0].key, Some(false));
    let entry = writes(&late)[0].history.as_ref().unwrap().open("uid").unwrap().clone();
    assert!(entry.fenced.unwrap().contains("3 pods or volumes still on it"));
}

#[test]
fn a_workload_cluster_that_does_not_answer_delays_the_reboot_by_its_deadline_only() {
    let away = |seen: Observed| {
        edit(seen, |seen| seen.node = NodeSeen::NoAccess("certificate expired".to_owned()))
    };
    let decision = now(&away(off()), 5);
    assert!(writes(&decision).is_empty());
    let waiting = edit(away(off()), |seen| seen.request.standing = said(&decision));
    let late = now(&waiting, 125);
    let history = writes(&late)[0].history.clone().unwrap();
    assert!(history.0[0].fenced.as_ref().unwrap().contains("certificate expired"));
}

#[test]
fn a_node_of_another_machine_is_left_alone() {
    let foreign = Node { foreign: Some("x://other".to_owned()), ..node() };
    let seen = edit(off(), |seen| seen.node = NodeSeen::Here(foreign));
    let decision = now(&seen, 5);
    assert!(!decision.acts.contains(&Act::Taint));
    assert_eq!(writes(&decision)[0].key, Some(false));
}

#[test]
fn a_node_is_backed_up_once_before_it_is_deleted() {
    let policy = Policy { fencing: Fencing::Delete, ..Policy::default() };
    let seen = edit(off(), |seen| seen.node = NodeSeen::Here(node()));
    let first = decide(&seen, &policy, at(5));
    assert!(first.acts.contains(&Act::BackUp(node().backup)) && writes(&first).is_empty());
    let seen = edit(seen, |seen| {
        seen.request.backup = Some(node().backup);
        seen.request.standing = said(&first);
    });
    let second = decide(&seen, &policy, at(6));
    assert_eq!(second.acts, [Act::DeleteNode]);
    assert_eq!(second.again, Some(Duration::from_secs(2)), "its finalizers may take their time");
    let seen = edit(seen, |seen| seen.node = NodeSeen::Gone);
    assert_eq!(writes(&decide(&seen, &policy, at(7)))[0].key, Some(false));
}

#[test]
fn the_time_for_the_node_runs_from_power_on() {
    let decision = now(&released(), 400);
    assert!(decision.acts.is_empty(), "the host is not on yet: {decision:?}");
    let on = edit(released(), |seen| seen.host.as_mut().unwrap().powered_on = true);
    let standing = said(&now(&on, 400));
    assert_eq!(standing.phase, Some(Phase::Waiting));
    assert_eq!((standing.step, standing.since), (Some(Step::Recover), Some(at(400))));
    assert_eq!(now(&recovering(), 319).reason, Reason::Recovering);
    assert_eq!(now(&recovering(), 320).reason, Reason::NotRecovered);
}

#[test]
fn a_node_that_is_ready_again_is_given_back_before_success_is_said() {
    let ready = Node { ready: true, kubelet: "after".to_owned(), taint: Taint::Ours, ..node() };
    let seen = edit(recovering(), |seen| {
        seen.node = NodeSeen::Here(ready);
        seen.machine.as_mut().unwrap().external = Some("WaitingForRemediation".to_owned());
    });
    let decision = now(&seen, 30);
    let [Act::Untaint, Act::Host(write), Act::Settled, Act::Say(standing), Act::RemoveFinalizer] =
        decision.acts.as_slice()
    else {
        panic!("{decision:?}")
    };
    assert_eq!(write.history.as_ref().unwrap().0[0].result.as_deref(), Some("Recovered"));
    assert_eq!(standing.said.as_ref().unwrap().succeeded, Some(true));
    assert_eq!(standing.phase, Some(Phase::Waiting));
}

#[test]
fn what_a_kubelet_said_before_the_host_was_off_is_not_taken_for_recovery() {
    let stale = Node { ready: true, ..node() };
    let seen = edit(recovering(), |seen| seen.node = NodeSeen::Here(stale));
    assert_eq!(now(&seen, 30).reason, Reason::Recovering);
}

/// The number of the try that is begun.
fn number(decision: &Decision) -> u32 {
    let write = writes(decision).into_iter().find(|it| it.key == Some(true));
    let write = write.unwrap_or_else(|| panic!("begins nothing: {decision:?}"));
    write.history.as_ref().unwrap().open("uid").unwrap().number
}

/// The same with what a decision wrote to the host, and nothing of it said.
fn written(seen: Observed, decision: &Decision) -> Observed {
    edit(seen, |seen| {
        let host = seen.host.as_mut().unwrap();
        for write in writes(decision) {
            host.held = write.key.unwrap_or(host.held);
            host.history = write.history.clone().unwrap_or_else(|| host.history.clone());
        }
    })
}

#[test]
fn a_retry_is_counted_by_the_write_that_asks_its_host_and_said_after_it() {
    let decision = now(&recovering(), 320);
    let [Act::Host(write)] = decision.acts.as_slice() else { panic!("{decision:?}") };
    assert_eq!((write.key, number(&decision)), (Some(true), 1));
    let history = write.history.as_ref().unwrap();
    assert_eq!(history.0[0].result.as_deref(), Some("NotRecovered"));
    // A crash in between: the try is under way, and it is said.
    let next = now(&written(recovering(), &decision), 321);
    let [Act::Say(standing)] = next.acts.as_slice() else { panic!("{next:?}") };
    assert_eq!((standing.retries, standing.last), (1, Some(at(320))));
    assert_eq!((&standing.phase, &standing.step), (&Some(Phase::Running), &Some(Step::PowerOff)));
    assert!(next.notes[0].text.starts_with("Try 2 of 2"), "{next:?}");
    let told = edit(written(recovering(), &decision), |seen| {
        seen.request.standing = standing.clone();
    });
    assert!(now(&told, 322).acts.is_empty(), "once");
}

#[test]
fn a_limit_that_was_lowered_below_the_count_ends_the_tries() {
    let seen = edit(recovering(), |seen| {
        seen.request.strategy = Ok(Strategy { retries: 0, timeout: Duration::from_secs(300) });
        seen.request.standing.retries = 5;
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.number = 5);
    });
    assert_eq!(now(&seen, 320).reason, Reason::Exhausted);
}

fn last_try() -> Observed {
    edit(recovering(), |seen| {
        seen.request.standing.retries = 1;
        seen.request.standing.said = Some(awaited(1));
        let host = seen.host.as_mut().unwrap();
        host.history = host.history.changed("uid", |it| it.number = 1);
    })
}

#[test]
fn a_host_is_marked_before_the_owner_is_told_and_switched_off_after() {
    let decision = now(&last_try(), 320);
    let [Act::Host(mark), Act::TellOwner(_), Act::Host(off), Act::Say(standing)] =
        decision.acts.as_slice()
    else {
        panic!("{decision:?}")
    };
    assert!(mark.mark && mark.history.as_ref().unwrap().is_exhausted("uid"));
    assert!(off.offline);
    assert_eq!(standing.phase, Some(Phase::DeletingMachine));
    assert_eq!(standing.said.as_ref().unwrap().reason, Reason::Exhausted);
}

#[test]
fn what_was_cut_off_while_a_machine_is_handed_over_is_gone_on_with() {
    let first = now(&last_try(), 320);
    let marked = edit(last_try(), |seen| {
        let host = seen.host.as_mut().unwrap();
        host.marked = true;
        host.history = writes(&first)[0].history.clone().unwrap();
    });
    let second = now(&marked, 321);
    assert!(matches!(second.acts[0], Act::TellOwner(_)), "{second:?}");
    let told = edit(marked, |seen| {
        seen.machine.as_mut().unwrap().told = true;
        seen.host.as_mut().unwrap().online = false;
    });
    let third = now(&told, 322);
    assert_eq!(said(&third).phase, Some(Phase::DeletingMachine));
    assert_eq!(third.acts.len(), 1, "{third:?}");
}

#[test]
fn a_machine_that_nobody_owns_is_deleted_by_us_unless_that_is_forbidden() {
    let alone = edit(last_try(), |seen| seen.machine.as_mut().unwrap().owned = false);
    let decision = now(&alone, 320);
    let [Act::Host(mark), Act::TellOwner(_), Act::Host(off), Act::DeleteMachine, Act::Say(_)] =
        decision.acts.as_slice()
    else {
        panic!("{decision:?}")
    };
    assert!(mark.mark && off.offline, "without its Machine nobody would find the host");
    let policy = Policy { delete_unowned: false, ..Policy::default() };
    let kept = decide(&alone, &policy, at(320));
    assert!(!kept.acts.contains(&Act::DeleteMachine));
    assert!(kept.acts.iter().any(|it| matches!(it, Act::TellOwner(_))), "{kept:?}");
    assert_eq!(said(&kept).phase, Some(Phase::Failed));
}

#[test]
fn after_the_hand_over_the_taint_goes_and_then_the_finalizer() {
    let over = edit(last_try(), |seen| {
        seen.request.standing = said(&now(&last_try(), 320));
        seen.host.as_mut().unwrap().history = History::default();
        seen.node = NodeSeen::Here(Node { taint: Taint::Ours, ..node() });
    });
    assert_eq!(now(&over, 321).acts, [Act::Untaint, Act::RemoveFinalizer]);
    let done = edit(over, |seen| {
        seen.request.finalizer = false;
        seen.machine.as_mut().unwrap().told = true;
    });
    let owner_is_awaited = Decision::rest(Reason::Exhausted);
    assert_eq!(now(&done, 322), owner_is_awaited, "people see that it has not replaced it");
    let replaced = edit(done, |seen| seen.machine.as_mut().unwrap().deleting = Some(at(400)));
    assert_eq!(now(&replaced, 401), Decision::rest(Reason::AtRest));
}

#[test]
fn every_step_has_a_deadline() {
    assert_eq!(now(&asked(), 600).reason, Reason::PowerOffTimedOut);
    assert_eq!(now(&released(), 610).reason, Reason::PowerOnTimedOut);
}

#[test]
fn a_request_that_is_withdrawn_while_the_host_is_off_switches_it_on_first() {
    let gone = edit(off(), |seen| {
        seen.request.deleting = Some(at(30));
        seen.node = NodeSeen::Here(Node { taint: Taint::Ours, ..node() });
    });
    let first = now(&gone, 31);
    assert_eq!(writes(&first)[0].key, Some(false));
    assert_eq!(
        writes(&first)[0].history.as_ref().unwrap().0[0].result.as_deref(),
        Some("Withdrawn")
    );
    assert!(!first.acts.contains(&Act::RemoveFinalizer));
    let free = edit(gone, |seen| {
        seen.request.standing = said(&first);
        let host = seen.host.as_mut().unwrap();
        host.held = false;
        host.history = host.history.ended("uid", Reason::Withdrawn, at(31));
    });
    assert!(now(&free, 32).acts.is_empty(), "off: the node is not given back yet");
    let on = edit(free.clone(), |seen| seen.host.as_mut().unwrap().powered_on = true);
    assert_eq!(now(&on, 33).acts, [Act::Untaint, Act::RemoveFinalizer]);
    assert_eq!(now(&free, 631).acts, [Act::Untaint, Act::RemoveFinalizer], "in bounded time");
}

#[test]
fn a_key_on_a_host_that_the_machine_has_lost_goes_and_nothing_else_of_that_host() {
    let lost = edit(off(), |seen| {
        let mut old = seen.host.take().unwrap();
        old.ours = false;
        seen.stray = Some(old);
        seen.metal.as_mut().unwrap().host = None;
        seen.node = NodeSeen::Here(node());
    });
    let decision = now(&lost, 5);
    let write = writes(&decision)[0];
    assert!(write.stray && write.key == Some(false) && !write.mark && !write.offline);
    // It is the first thing that is done when the machine has another host by now.
    let moved = edit(off(), |seen| {
        let mut old = seen.host.clone().unwrap();
        (old.name, old.ours) = ("old".to_owned(), false);
        seen.stray = Some(old);
        let new = seen.host.as_mut().unwrap();
        (new.held, new.history) = (false, History(Vec::new()));
    });
    let decision = now(&moved, 5);
    assert_eq!(decision.acts.len(), 1);
    let write = writes(&decision)[0];
    assert!(write.stray && write.key == Some(false), "{write:?}");
    assert_eq!(write.history.as_ref().unwrap().open("uid"), None, "its record ends with it");
}

#[test]
fn what_was_begun_is_undone_when_the_host_becomes_unfit() {
    for spoil in [
        |seen: &mut Observed| seen.host.as_mut().unwrap().ours = false,
        |seen: &mut Observed| seen.host.as_mut().unwrap().provisioned = false,
        |seen: &mut Observed| seen.host.as_mut().unwrap().online = false,
        |seen: &mut Observed| seen.machine.as_mut().unwrap().deleting = Some(at(1)),
        |seen: &mut Observed| seen.machine.as_mut().unwrap().skipped = true,
        |seen: &mut Observed| seen.machine = None,
        |seen: &mut Observed| seen.cluster = ClusterSeen::Missing,
    ] {
        let decision = now(&edit(off(), spoil), 5);
        assert_eq!(writes(&decision)[0].key, Some(false), "{decision:?}");
    }
}

#[test]
fn while_paused_nothing_is_written_at_all() {
    for base in [fresh(), asked(), off(), released(), recovering(), last_try()] {
        for pause in [
            |seen: &mut Observed| seen.request.paused = true,
            |seen: &mut Observed| seen.machine.as_mut().unwrap().paused = true,
            |seen: &mut Observed| seen.metal.as_mut().unwrap().paused = true,
            |seen: &mut Observed| seen.host.as_mut().unwrap().paused = true,
            |seen: &mut Observed| seen.cluster = ClusterSeen::Here { paused: true },
        ] {
            for deleting in [None, Some(at(1))] {
                let seen = edit(base.clone(), |seen| {
                    pause(seen);
                    seen.request.deleting = deleting;
                });
                assert_eq!(now(&seen, 5000), Decision::rest(Reason::Paused));
            }
        }
    }
}

fn succeeded() -> Observed {
    edit(recovering(), |seen| {
        let ready = Node { ready: true, kubelet: "after".to_owned(), ..node() };
        seen.node = NodeSeen::Here(ready);
        let decision = now(seen, 30);
        seen.request.standing = said(&decision);
        seen.request.finalizer = false;
        seen.node = NodeSeen::NotAsked;
        seen.host.as_mut().unwrap().history = writes(&decision)[0].history.clone().unwrap();
    })
}

#[test]
fn after_success_the_request_waits_to_be_withdrawn() {
    let by_hand = edit(succeeded(), |seen| seen.machine.as_mut().unwrap().healthy = None);
    assert_eq!(now(&by_hand, 100_000), Decision::rest(Reason::Recovered));
}
