//! The invariants, over everything that can be observed.

use std::time::Duration;

use api_types::remediation::{Phase, Step};
use controller_kit::engine::Reason as _;
use proptest::prelude::{Just, ProptestConfig, Strategy as Any, any, prop, prop_oneof};
use proptest::{prop_assert, proptest};

use super::super::decide;
use super::{at, fresh, node};
use crate::decision::{Act, HostWrite};
use crate::history::{Entry, History};
use crate::model::{Ahead, ClusterSeen, Observed};
use crate::reason::Reason;
use crate::request::{Backup, Said, Standing, Strategy};
use crate::seen::{Machine, Node, NodeSeen, Taint, Unmanaged};
use crate::settings::{Fencing, Policy};

fn maybe_time() -> impl Any<Value = Option<i64>> {
    proptest::option::of(0_i64..2000)
}

fn standings() -> impl Any<Value = Standing> {
    let phases = prop::sample::select(vec![
        None,
        Some(Phase::Running),
        Some(Phase::Waiting),
        Some(Phase::DeletingMachine),
        Some(Phase::Failed),
    ]);
    let steps = prop::sample::select(vec![
        None,
        Some(Step::PowerOff),
        Some(Step::Fence),
        Some(Step::PowerOn),
        Some(Step::Recover),
        Some(Step::Undo),
        Some(Step::Done),
    ]);
    let said = prop::option::of((
        prop::sample::select(vec![None, Some(true), Some(false)]),
        prop::sample::select(Reason::ALL.to_vec()),
    ));
    (phases, 0_u32..4, maybe_time(), steps, maybe_time(), said).prop_map(
        |(phase, retries, last, step, since, said)| Standing {
            phase,
            retries,
            last: last.map(at),
            step,
            since: since.map(at),
            said: said.map(|(succeeded, reason)| Said {
                succeeded,
                reason,
                message: String::new(),
            }),
        },
    )
}

fn histories() -> impl Any<Value = History> {
    let entry = (0_u32..4, 0_i64..2000, any::<bool>(), maybe_time(), maybe_time(), any::<bool>());
    proptest::collection::vec(entry, 0..3).prop_map(|all| {
        let entries = all.into_iter().map(|(number, asked, was_on, released, ended, exhausted)| {
            let mut entry = Entry::begin("uid", "m", number, at(asked));
            entry.was_on = was_on;
            entry.machine_uid = Some("machine".to_owned());
            entry.node = was_on.then(|| "n".to_owned());
            entry.released = released.map(at);
            entry.stays_on = exhausted && was_on;
            entry.ended = ended.map(at);
            let word = if exhausted { "Exhausted" } else { "NotRecovered" };
            entry.result = ended.map(|_| word.to_owned());
            entry
        });
        History(entries.collect())
    })
}

fn nodes() -> impl Any<Value = NodeSeen> {
    let taint =
        prop::sample::select(vec![Taint::None, Taint::Ours, Taint::TakenOff, Taint::Foreign]);
    let here = (any::<bool>(), taint, 0_u32..2, any::<bool>(), any::<bool>()).prop_map(
        |(ready, taint, busy, foreign, fresh)| {
            NodeSeen::Here(Node {
                ready,
                taint,
                busy,
                foreign: foreign.then(|| "x".to_owned()),
                kubelet: if fresh { "after" } else { "before" }.to_owned(),
                ..node()
            })
        },
    );
    prop_oneof![
        Just(NodeSeen::NotAsked),
        Just(NodeSeen::NoName),
        Just(NodeSeen::Gone),
        Just(NodeSeen::NoAccess("away".to_owned())),
        here,
    ]
}

fn worlds() -> impl Any<Value = Observed> {
    let flags = proptest::collection::vec(prop::bool::weighted(0.25), 40);
    (flags, standings(), histories(), nodes(), maybe_time()).prop_map(
        |(flags, standing, history, node, deleting)| {
            let mut flags = flags.into_iter();
            let mut rarely = move || flags.next().unwrap_or(false);
            let mut seen = fresh();
            seen.request.standing = standing;
            seen.request.finalizer = !rarely();
            seen.request.deleting = deleting.filter(|_| rarely()).map(at);
            seen.request.paused = rarely() && rarely();
            if rarely() {
                seen.request.backup =
                    Some(Backup { labels: "{}".to_owned(), annotations: "{}".to_owned() });
            }
            seen.request.strategy = if rarely() && rarely() {
                Err(crate::request::Said::no(Reason::StrategyMissing, "missing"))
            } else {
                let retries = if rarely() { 0 } else { 2 };
                Ok(Strategy { retries, timeout: Duration::from_secs(300) })
            };
            let host = seen.host.as_mut().unwrap();
            host.history = history;
            host.held = !rarely();
            host.powered_on = rarely();
            host.confirmed = rarely();
            host.in_cycle = rarely();
            host.looked_at = rarely();
            host.read_off = rarely();
            host.has_room = !rarely();
            host.marked = rarely();
            host.servicing = rarely();
            host.unreachable = rarely().then_some("IronicUnreachable");
            host.holds =
                rarely().then(|| "reboot.metal3.io/other".to_owned()).into_iter().collect();
            host.ours = !rarely();
            host.online = !rarely();
            host.provisioned = !rarely();
            host.unmanaged = rarely().then_some(Unmanaged::Detached);
            if rarely() {
                seen.stray = seen.host.clone().map(|mut it| {
                    it.ours = false;
                    it.held = true;
                    it
                });
            }
            let machine = seen.machine.as_mut().unwrap();
            machine.owned = !rarely();
            machine.told = rarely();
            machine.control_plane = rarely();
            machine.kept = rarely();
            machine.deleting = rarely().then(|| at(5));
            machine.healthy = if rarely() { Some(true) } else { Some(false) };
            machine.healthy_since = rarely().then(|| at(1500));
            if rarely() && rarely() {
                seen.machine = None;
            }
            seen.cluster = if rarely() && rarely() {
                ClusterSeen::Missing
            } else {
                ClusterSeen::Here { paused: false }
            };
            seen.node = node;
            seen.started = rarely().then(|| at(1000));
            seen.rival = rarely();
            seen.member = rarely().then(|| Ahead::Trying("another".to_owned()));
            seen.only_member = rarely();
            seen
        },
    )
}

/// Whether it was said of a Machine with a node that its host is not its own.
fn has_lost_its_host(seen: &Observed) -> bool {
    let said = seen.request.standing.said.as_ref().map(|it| it.reason);
    let had_node = seen.machine.as_ref().is_some_and(|it| it.node.is_some());
    let is_anothers = seen.host.as_ref().is_some_and(|it| !it.ours);
    said == Some(Reason::HostNotClaimed) && had_node && is_anothers
}

fn policies() -> impl Any<Value = Policy> {
    let fencing = prop::sample::select(vec![Fencing::Taint, Fencing::Delete, Fencing::None]);
    let plain = prop::bool::weighted(0.2);
    (fencing, any::<bool>(), any::<bool>(), plain).prop_map(
        |(fencing, switch_off, delete_unowned, plain)| Policy {
            plain,
            fencing,
            switch_off,
            delete_unowned,
            ..Policy::default()
        },
    )
}

/// From one phase to another, and only so. The first is that of a request about which nothing was begun: its host may know
/// more of it.
const DIAGRAM: [(&str, &str); 10] = [
    ("", "running"),
    ("", "waiting"),
    ("", "deleting machine"),
    ("", "failed"),
    ("running", "waiting"),
    ("running", "deleting machine"),
    ("running", "failed"),
    ("waiting", "running"),
    ("waiting", "deleting machine"),
    ("waiting", "failed"),
];
/// The steps of each phase; none is said of a request that is refused or was stopped.
const STEPS: [(&str, &[&str]); 5] = [
    ("", &["", "undo"]),
    ("running", &["", "power off", "fence", "power on", "undo"]),
    ("waiting", &["", "recover", "done", "undo"]),
    ("deleting machine", &["", "done", "undo"]),
    ("failed", &["", "done", "undo"]),
];

/// So many retries there were: a try begins on the host, and is said after that.
fn known_retries(seen: &Observed) -> u32 {
    let said = seen.request.standing.retries;
    match seen.last() {
        Some(_) if seen.request.standing.is_over() => said,
        Some(open) if open.ended.is_none() => open.number,
        Some(last) => last.number.max(said),
        None => said,
    }
}

/// Whether the node is awaited, and not only that of the try before the one that has begun on the host.
fn is_awaited(seen: &Observed) -> bool {
    let said = &seen.request.standing;
    let open = seen.last().filter(|it| it.ended.is_none());
    let is_of_this = open.is_none_or(|it| it.number == said.retries && !said.has_succeeded());
    said.awaits_node().is_some() && is_of_this
}

/// The words of a phase and of its step.
fn words(standing: &Standing) -> (&str, &str) {
    let phase = standing.phase.as_ref().map_or("", Phase::as_str);
    (phase, standing.step.as_ref().map_or("", Step::as_str))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// I11: a key is only ever set for a request that is there, wanted, and has its finalizer by then.
    #[test]
    fn a_key_is_set_only_for_a_request_that_will_take_it_away_again(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let decision = decide(&seen, &policy, at(now));
        let mut finalizer = seen.request.finalizer;
        for act in &decision.acts {
            match act {
                Act::AddFinalizer => finalizer = true,
                Act::RemoveFinalizer => finalizer = false,
                Act::Host(write) if write.key == Some(true) => {
                    prop_assert!(finalizer);
                    prop_assert!(seen.request.deleting.is_none());
                    prop_assert!(!seen.request.standing.is_over());
                }
                _ => {}
            }
        }
    }

    /// I12: never more retries than asked for, and one at a time; after success that was agreed to they are counted anew, and
    /// a count above the limit counts as the limit. A try begins on the host, and is said as it stands there.
    #[test]
    fn retries_never_exceed_the_limit(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let before = known_retries(&seen);
        for act in decide(&seen, &policy, at(now)).acts {
            let number = match act {
                Act::Say(standing) => standing.retries,
                Act::Host(HostWrite { key: Some(true), history: Some(history), .. }) => {
                    history.open("uid").unwrap().number
                }
                _ => continue,
            };
            if number != before {
                let anew = number == 0 && seen.request.standing.has_succeeded();
                let limit = seen.request.strategy.clone().unwrap_or_default().retries;
                let above = before > limit && number == limit;
                prop_assert!(anew || above || number == before + 1);
                prop_assert!(number <= limit);
            }
        }
    }

    /// I12: phases move only along the diagram, and each has steps of its own. A machine is handed over when no try is left, or its
    /// host is another machine's, and its node is awaited from when its host is on.
    #[test]
    fn phases_move_only_along_the_diagram_and_each_has_its_own_steps(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let limit = seen.request.strategy.clone().unwrap_or_default().retries;
        let host = seen.host.as_ref().unwrap();
        let given_up = host.history.is_exhausted("uid") || host.history.gave_up("machine").is_some();
        let mut before = seen.request.standing.clone();
        let given_up = given_up || has_lost_its_host(&seen);
        before.retries = known_retries(&seen);
        for act in decide(&seen, &policy, at(now)).acts {
            let Act::Say(after) = act else { continue };
            let ((from, old), (to, new)) = (words(&before), words(&after));
            // At `failed` CAPM3 may have left it, which says nothing beside that.
            let is_capm3s = before.phase == Some(Phase::Failed) && !before.is_over();
            let from = if is_capm3s { "" } else { from };
            prop_assert!(from == to || DIAGRAM.contains(&(from, to)), "{from:?}, then {to:?}");
            let steps = STEPS.iter().find(|(phase, _)| *phase == to).map(|(_, steps)| *steps);
            let is_step = steps.is_some_and(|it| it.contains(&new));
            let stays = words(&before) == (to, new);
            prop_assert!(is_step || stays, "{to:?}: {new:?} after {old:?}");
            if after.is_over() && !before.is_over() {
                prop_assert!(before.retries >= limit || given_up, "{} retries", before.retries);
            }
            if new == "recover" && old != "recover" {
                prop_assert!(host.ours && host.powered_on && !host.held, "{host:?}");
            }
            before = after;
        }
    }

    /// I13: of a host that is not the machine's nothing is taken but our own key, and nothing is put there but how it
    /// ended.
    #[test]
    fn a_host_of_somebody_else_is_left_alone_but_for_our_key(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        for act in decide(&seen, &policy, at(now)).acts {
            let Act::Host(write) = act else { continue };
            let host = if write.stray { &seen.stray } else { &seen.host };
            if !host.as_ref().unwrap().ours {
                prop_assert!(write.key != Some(true) && !write.mark && !write.offline);
                let open = write.history.as_ref().is_some_and(|it| it.open("uid").is_some());
                prop_assert!(!open);
            }
        }
    }

    /// I17: while the node cannot be seen that is awaited, no machine is cut off once more and none is given up.
    #[test]
    fn silence_of_a_workload_cluster_is_no_verdict_on_a_node(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let decision = decide(&seen, &policy, at(now));
        let awaited = seen.host.as_ref().filter(|it| {
            is_awaited(&seen) && !it.held && !it.history.is_exhausted("uid")
        });
        if awaited.is_some() && matches!(seen.node, NodeSeen::NoAccess(_)) {
            let judged = matches!(decision.reason, Reason::NotRecovered);
            let cut = decision.acts.iter().any(|it| matches!(it, Act::Host(it) if it.key == Some(true)));
            prop_assert!(!judged && !cut, "{decision:?}");
        }
    }

    /// I19: what others do with a host, and an outage of Ironic, is no verdict on its machine, not after the last try either. Nor is
    /// that it does not obey, where nobody can see its node, and no health check has seen it fail.
    #[test]
    fn nobody_is_given_up_while_a_host_is_held_off_by_others_or_out_of_reach_or_unseen(
        seen in worlds(), policy in policies(), released in maybe_time(), now in 0_i64..5000,
    ) {
        let mut seen = seen;
        (seen.request.standing.retries, seen.member, seen.stray) = (2, None, None);
        let mut last = Entry::begin("uid", "m", 2, at(0));
        last.released = released.map(at);
        let host = seen.host.as_mut().unwrap();
        (host.ours, host.online, host.provisioned, host.unmanaged) = (true, true, true, None);
        host.history = History(vec![last]);
        let is_blocked = host.unreachable.is_some() || (released.is_some() && !host.holds.is_empty());
        let is_called_ill = seen.machine.as_ref().is_some_and(|it| it.healthy == Some(false));
        let is_blind = matches!(seen.node, NodeSeen::NoAccess(_)) && !is_called_ill;
        if (is_blocked || is_blind) && !seen.request.standing.is_over() {
            let acts = decide(&seen, &policy, at(now)).acts;
            let hands_over = |it: &Act| matches!(it, Act::TellOwner(_) | Act::DeleteMachine);
            prop_assert!(!acts.iter().any(hands_over), "{acts:?}");
        }
    }

    /// I18: while another member of the control plane goes first no host is cut off but one that is off already, or asked to be; while
    /// firmware is being changed none on which no try is under way: not after a success either.
    #[test]
    fn no_second_member_of_a_control_plane_is_cut_off(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let host = seen.host.as_ref().unwrap();
        let open = host.history.open("uid");
        let is_off = open.is_some() && !is_awaited(&seen);
        if (seen.member.is_some() && !is_off) || (host.servicing && open.is_none()) {
            let acts = decide(&seen, &policy, at(now)).acts;
            let cut = acts.iter().any(|it| matches!(it, Act::Host(it) if it.key == Some(true)));
            prop_assert!(!cut, "{acts:?}");
        }
    }

    /// I14: the finalizer goes only when no taint of ours is left on a node that can be reached in time.
    #[test]
    fn the_finalizer_goes_after_key_and_taint(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let acts = decide(&seen, &policy, at(now)).acts;
        if acts.contains(&Act::RemoveFinalizer) {
            if let NodeSeen::Here(node) = &seen.node
                && node.taint.is_ours() && seen.node_name().is_some()
            {
                prop_assert!(acts.contains(&Act::Untaint));
            }
            // Nobody knows what is on a node that cannot be asked: while the machine stays in use, it is waited for.
            let well = decide(&seen, &policy, at(now)).reason == Reason::Recovered;
            if matches!(seen.node, NodeSeen::NoAccess(_)) && well {
                let fences = !policy.plain && policy.fencing != Fencing::None;
                prop_assert!(!fences || seen.node_name().is_none() || seen.request.deleting.is_some());
            }
            for (host, stray) in [(&seen.host, false), (&seen.stray, true)] {
                if host.as_ref().is_some_and(|it| it.held) {
                    let goes = |act: &Act| matches!(act, Act::Host(it) if it.stray == stray && it.key == Some(false));
                    prop_assert!(acts.iter().any(goes), "{acts:?}");
                }
            }
        }
    }

    /// I15: the host is marked before the owner is told or the Machine deleted, unless it is another machine's.
    #[test]
    fn an_owner_is_told_only_of_a_host_that_is_marked(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let mut marked = seen.host.as_ref().is_some_and(|it| it.marked) || has_lost_its_host(&seen);
        for act in decide(&seen, &policy, at(now)).acts {
            match act {
                Act::Host(write) => marked |= write.mark,
                Act::TellOwner(_) | Act::DeleteMachine => prop_assert!(marked),
                _ => {}
            }
        }
    }

    /// The host of a control plane is switched off only when its Machine goes.
    #[test]
    fn a_host_of_a_control_plane_stays_on_until_its_machine_goes(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let acts = decide(&seen, &policy, at(now)).acts;
        let goes = |it: &Machine| it.deleting.is_some() || acts.contains(&Act::DeleteMachine);
        let stays = seen.machine.as_ref().is_some_and(|it| it.control_plane && !goes(it));
        let switched_off = acts.iter().any(|it| matches!(it, Act::Host(write) if write.offline));
        prop_assert!(!stays || !switched_off);
    }

    /// I16: nothing is written while paused.
    #[test]
    fn nothing_is_written_while_paused(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let mut seen = seen;
        seen.cluster = ClusterSeen::Here { paused: true };
        prop_assert!(decide(&seen, &policy, at(now)).acts.is_empty());
    }

    /// A host is released only when it is fenced, or the request or the try is at its end.
    #[test]
    fn a_node_is_fenced_only_while_its_host_is_known_to_be_off(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let acts = decide(&seen, &policy, at(now)).acts;
        if acts.iter().any(|it| matches!(it, Act::Taint | Act::DeleteNode)) {
            let host = seen.host.as_ref().unwrap();
            prop_assert!(host.held && !host.powered_on);
            let was_on = host.history.open("uid").is_some_and(|it| it.was_on);
            let is_read = host.looked_at || host.read_off;
            prop_assert!(was_on || host.confirmed || host.in_cycle || is_read, "unread");
        }
    }

    /// A host that shows off, and is held so, is never blamed for not being off: in the end it is let go.
    #[test]
    fn no_try_fails_for_a_host_that_is_not_off_while_it_shows_off(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let decision = decide(&seen, &policy, at(now));
        let host = seen.host.as_ref().unwrap();
        let plain = host.history.open("uid").is_some_and(|it| it.plain);
        let blamed = decision.reason == Reason::PowerOffTimedOut;
        prop_assert!(!blamed || host.powered_on || plain, "{decision:?}");
    }

    /// A host that was not installed when it was asked for is not asked as soon as it is.
    #[test]
    fn a_host_is_not_asked_in_its_first_boot(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let mut seen = seen;
        let reason = Reason::HostNotProvisioned;
        let said = Said { succeeded: Some(false), reason, message: String::new() };
        seen.request.standing = Standing { said: Some(said), ..Standing::default() };
        seen.request.finalizer = false;
        let hosts = seen.host.iter_mut().chain(seen.stray.as_mut());
        hosts.for_each(|it| it.history = History::default());
        let acts = decide(&seen, &policy, at(now)).acts;
        let asks = |it: &Act| matches!(it, Act::Host(write) if write.key == Some(true));
        prop_assert!(!acts.iter().any(asks), "{acts:?}");
    }

    /// Nothing waits without an end: whoever is under way either writes, looks at the node, or looks again in time.
    #[test]
    fn a_try_that_is_under_way_is_always_looked_at_again(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let decision = decide(&seen, &policy, at(now));
        let under_way = seen.request.finalizer && !seen.request.paused;
        let goes_on = !decision.acts.is_empty() || decision.needs_node || decision.again.is_some();
        prop_assert!(!under_way || goes_on, "{decision:?}");
    }

    /// What was begun on a request that lost its label comes to its end, and nothing new is begun there.
    #[test]
    fn a_request_without_the_label_of_the_watch_filter_is_only_undone(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let (mut seen, mut policy) = (seen, policy);
        policy.watch_filter = Some("a".to_owned());
        for host in seen.host.iter_mut().chain(seen.stray.as_mut()) {
            host.history.0.iter_mut().for_each(|it| it.filter.clone_from(&policy.watch_filter));
        }
        let decision = decide(&seen, &policy, at(now));
        for act in &decision.acts {
            let undoes = match act {
                Act::Host(it) => it.key != Some(true) && !it.mark && !it.offline,
                Act::Say(it) => it.step.is_none() || it.step == Some(Step::Undo),
                Act::Untaint | Act::Restore(_) | Act::Settled | Act::RemoveFinalizer => true,
                _ => false,
            };
            prop_assert!(undoes, "{act:?}");
        }
        let is_begun = seen.request.finalizer && seen.last().is_some() && !seen.request.paused;
        let goes_on = !decision.acts.is_empty() || decision.needs_node || decision.again.is_some();
        prop_assert!(!is_begun || goes_on, "{decision:?}");
    }

    /// What was done is not done again.
    #[test]
    fn a_decision_that_says_where_it_is_does_not_say_so_twice(
        seen in worlds(), policy in policies(), now in 0_i64..5000,
    ) {
        let mut seen = seen;
        let first = decide(&seen, &policy, at(now));
        let [Act::Say(standing)] = first.acts.as_slice() else { return Ok(()) };
        seen.request.standing = standing.clone();
        let second = decide(&seen, &policy, at(now));
        prop_assert!(!second.acts.contains(&Act::Say(standing.clone())), "{second:?}");
    }
}
