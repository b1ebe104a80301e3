//! How many machines there are to be where replicas follow hosts.

use std::time::{Duration, Instant};

use controller_kit::engine::{Next, Reason as _};
use proptest::prelude::*;

use super::super::{decide, scales_to};
use super::{now, owner};
use crate::model::{Decision, Key, Memory, Observed, ScaledSeen, Write};
use crate::reason::Reason;
use crate::scale::Bounds;
use crate::seen::Hosts;
use crate::settings::Policy;

const SETTLE: Duration = Duration::from_secs(30);

fn policy() -> Policy {
    Policy { scale_to_hosts: true, scale_settle: SETTLE, ..Policy::default() }
}

/// A deployment of three machines, all with a host, for which another number has been wanted for long enough.
fn seen(replicas: i32, hosts: Hosts) -> ScaledSeen {
    ScaledSeen {
        key: Key::Deployment(controller_kit::engine::ObjectKey::default()),
        version: "7".to_owned(),
        replicas,
        bounds: Ok(Bounds { min: 1, max: 9, down: false }),
        is_halted: false,
        scaled_by: None,
        hosts: Ok(hosts),
        contested: None,
        settled_for: Some(SETTLE),
    }
}

fn decided(seen: &ScaledSeen) -> Decision {
    decide(&Observed::Scaled(Box::new(seen.clone())), &policy(), now())
}

fn hosts(taken: i32, free: i32, unready: i32) -> Hosts {
    Hosts { taken, free, unready }
}

/// What is written.
fn scaled(seen: &ScaledSeen) -> Option<i32> {
    match decided(seen).writes[..] {
        [] => None,
        [Write::Scale { replicas }] => Some(replicas),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn replicas_follow_the_hosts_that_are_taken_and_free_within_their_bounds() {
    for (replicas, found, up, with_down) in [
        (3, hosts(3, 0, 0), None, None),
        (3, hosts(3, 2, 0), Some(5), Some(5)),
        (3, hosts(3, 20, 0), Some(9), Some(9)),
        // Nobody takes what is not ready, and it may be again.
        (3, hosts(3, 0, 2), None, None),
        (3, hosts(2, 0, 1), None, None),
        (3, hosts(2, 1, 0), None, None),
        (3, hosts(2, 0, 0), None, Some(2)),
        (3, hosts(0, 0, 0), None, Some(1)),
        (0, hosts(0, 0, 0), Some(1), Some(1)),
        (12, hosts(12, 0, 0), None, Some(9)),
    ] {
        let mut seen = seen(replicas, found);
        assert_eq!(scaled(&seen), up, "{replicas} {found:?}");
        seen.bounds = Ok(Bounds { min: 1, max: 9, down: true });
        assert_eq!(scaled(&seen), with_down, "{replicas} {found:?} down");
    }
}

#[test]
fn a_number_is_written_once_it_has_been_wanted_for_the_settle_time() {
    let mut seen = seen(3, hosts(3, 2, 0));
    for (settled, wait) in [(None, 30), (Some(0), 30), (Some(29), 1)] {
        seen.settled_for = settled.map(Duration::from_secs);
        let decision = decided(&seen);
        assert_eq!(decision.reason, Reason::ScalingSoon);
        assert_eq!(decision.next, Next::After(Duration::from_secs(wait)));
        assert!(decision.writes.is_empty() && decision.events.is_empty());
    }
    seen.settled_for = Some(SETTLE);
    let decision = decided(&seen);
    assert_eq!((decision.reason, decision.writes.len()), (Reason::Scaled, 1));
    assert!(decision.events[0].text.contains("from 3 to 5 replicas"), "{decision:?}");
}

#[test]
fn each_cause_leaves_replicas_as_they_are_and_is_told_with_what_to_change() {
    type Change = fn(&mut ScaledSeen);
    let causes: [(Change, Reason, &str); 5] = [
        (|it| it.is_halted = true, Reason::ScalingHalted, "paused"),
        (|it| it.bounds = Bounds::read("min=1"), Reason::ScalingInvalid, "Set it to min="),
        (|it| it.scaled_by = Some("a.b/c"), Reason::ScaledElsewhere, "a.b/c"),
        (|it| it.hosts = Err("no t".to_owned()), Reason::ScalingTemplateInvalid, "no t"),
        (
            |it| it.contested = Some(("h".to_owned(), owner())),
            Reason::HostsContested,
            "Host h is free for MachineDeployment md as well",
        ),
    ];
    for (change, reason, told) in causes {
        let mut seen = seen(3, hosts(3, 2, 0));
        change(&mut seen);
        let decision = decided(&seen);
        assert_eq!((decision.reason, decision.writes.len()), (reason, 0));
        let event = &decision.events[0];
        assert!(event.text.contains(told), "{}", event.text);
        assert_eq!((&*event.reason, event.warning), (reason.as_str(), reason.is_warning()));
        assert!(event.hourly.is_some(), "it does not go away, and is told once");
        assert_eq!(scales_to(&seen), None, "and no time counts");
    }
}

/// What one pass sees, and how long after the one before it comes.
fn any_step() -> impl Strategy<Value = (ScaledSeen, Duration)> {
    let hosts = (0..6_i32, 0..6_i32, 0..4_i32);
    let flags = prop::collection::vec(prop::bool::weighted(0.1), 4);
    (hosts, flags, 0..20_u64).prop_map(|((taken, free, unready), flags, seconds)| {
        let mut seen = seen(0, Hosts { taken, free, unready });
        seen.is_halted = flags[0];
        seen.scaled_by = flags[1].then_some("a.b/c");
        seen.contested = flags[2].then(|| ("h".to_owned(), owner()));
        if flags[3] {
            seen.hosts = Err("why".to_owned());
        }
        (seen, Duration::from_secs(seconds))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever hosts do, over many passes of one process.
    #[test]
    fn replicas_stay_within_their_bounds_and_never_flap(
        steps in prop::collection::vec(any_step(), 1..40),
        start in 0..12_i32,
        (min, more, down) in (0..5_i32, 0..6_i32, any::<bool>()),
    ) {
        let bounds = Bounds { min, max: min + more, down };
        let (mut replicas, mut memory, mut at) = (start, Memory::default(), Instant::now());
        let mut written: Option<Instant> = None;
        for (mut seen, wait) in steps {
            at += wait;
            (seen.replicas, seen.bounds) = (replicas, Ok(bounds));
            memory.settles(scales_to(&seen), at);
            seen.settled_for = memory.settled_for(at);
            let decision = decided(&seen);
            prop_assert!(decision.writes.len() <= 1);
            let Some(Write::Scale { replicas: to }) = decision.writes.first() else { continue };
            prop_assert!(*to != replicas && (bounds.min..=bounds.max).contains(to));
            prop_assert!(bounds.down || *to > replicas);
            let Ok(hosts) = seen.hosts else { panic!("nobody knows the hosts") };
            prop_assert!(!seen.is_halted && seen.scaled_by.is_none() && seen.contested.is_none());
            // Nobody loses a machine because of a host that may come back.
            let stays = (hosts.taken + hosts.free + hosts.unready).min(bounds.max);
            prop_assert!(*to > replicas || *to >= stays);
            prop_assert!(written.is_none_or(|before| at - before >= SETTLE));
            (replicas, written) = (*to, Some(at));
            memory.settles(None, at);
        }
    }
}
