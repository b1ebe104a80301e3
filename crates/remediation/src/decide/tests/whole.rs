//! A whole recovery, for what it writes.

use super::*;

/// Carries out what was decided, as far as later decisions depend on it. Returns how many writes it was.
fn carry_out(seen: &mut Observed, decision: Decision) -> usize {
    let upstream = seen.request.group != Group::Ours;
    let mut writes = 0;
    for act in decision.acts {
        writes += 1;
        match act {
            Act::AddFinalizer => (seen.request.finalizer, seen.request.theirs) = (true, false),
            Act::RemoveFinalizer => seen.request.finalizer = false,
            Act::Say(standing) => {
                let shown = |it: &Standing| (it.phase.clone(), it.retries, it.last);
                // CAPM3's status has no room for the rest.
                writes +=
                    usize::from(upstream && shown(&seen.request.standing) != shown(&standing));
                seen.request.standing = standing;
            }
            Act::Host(write) => {
                let host = seen.host.as_mut().unwrap();
                host.held = write.key.unwrap_or(host.held);
                host.history = write.history.unwrap_or_else(|| host.history.clone());
            }
            Act::Settled => seen.machine.as_mut().unwrap().external = None,
            Act::Taint | Act::Untaint => {}
            other => panic!("no part of a recovery: {other:?}"),
        }
    }
    writes
}

/// Each pass, many times over: what was said once is not said again.
fn recovery(group: Group) -> usize {
    let mut seen = edit(fresh(), |seen| {
        seen.request.group = group;
        seen.machine.as_mut().unwrap().external = Some("WaitingForRemediation".to_owned());
    });
    let (mut writes, mut taint) = (0, Taint::None);
    let mut second = 0;
    for on in [true, false, true] {
        seen.host.as_mut().unwrap().powered_on = on;
        for pass in 0..20 {
            second += 1;
            seen.node = NodeSeen::NotAsked;
            let mut decision = now(&seen, second);
            if decision.needs_node {
                let back = on && pass > 5;
                let kubelet = if back { "after" } else { "before" }.to_owned();
                seen.node = NodeSeen::Here(Node { ready: back, kubelet, taint, ..node() });
                decision = now(&seen, second);
            }
            for act in &decision.acts {
                match act {
                    Act::Taint => taint = Taint::Ours,
                    Act::Untaint => taint = Taint::None,
                    _ => {}
                }
            }
            writes += carry_out(&mut seen, decision);
            // The host is switched as soon as it is asked for, or let go.
            if seen.host.as_ref().unwrap().held == on {
                break;
            }
        }
    }
    assert!(seen.request.standing.has_succeeded() && !seen.request.finalizer, "{seen:?}");
    assert_eq!(taint, Taint::None);
    writes
}

#[test]
fn a_recovery_takes_at_most_twelve_writes_those_to_the_node_and_the_machine_among_them() {
    let upstream = Group::Upstream(api_types::ContractVersion::V1Beta2);
    assert_eq!(recovery(Group::Ours), 11);
    assert!(recovery(upstream) <= 13);
}

#[test]
fn a_host_that_is_on_again_soon_needs_no_word_about_being_switched_on() {
    let let_go = now(&edit(off(), |seen| seen.node = NodeSeen::Here(node())), 5);
    assert!(!let_go.acts.iter().any(|it| matches!(it, Act::Say(_))), "{let_go:?}");
    let waits = edit(released(), |seen| seen.request.standing = asked().request.standing);
    assert!(now(&waits, 14).acts.is_empty() && now(&waits, 14).again.is_some());
    let standing = said(&now(&waits, 15));
    assert_eq!((standing.step, standing.since), (Some(Step::PowerOn), Some(at(10))));
}
