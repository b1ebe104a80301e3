//! What holds for every machine and every host, however they came to be as they are.

use std::time::Duration;

use api_types::metal3::BareMetalHost;
use api_types::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;

use super::super::{CONDITION_ASSOCIATED, decide, is_settled};
use super::{annotate, cached, consumer, host, kept_for, now, owner, seen, with};
use crate::host as judge;
use crate::machine::was_up;
use crate::model::{KeptSeen, LeftSeen, MachineSeen, Observed, Write};
use crate::reason::Reason;
use crate::reservation::{self, Kept, Owner};
use crate::seen::{Data, HostSeen, OwnerSeen, Parent, Reuse, Verdict};
use crate::settings::Policy;

/// The states, among those below, in which nothing that a consumer installed is on a host that is off.
const CLEARED: [&str; 5] =
    ["unmanaged", "inspecting", "ready", "available", "externally provisioned"];

fn any_host(name: &'static str) -> impl Strategy<Value = BareMetalHost> {
    let states = [
        "",
        "ready",
        "available",
        "provisioning",
        "provisioned",
        "deprovisioning",
        "preparing",
        "inspecting",
        "unmanaged",
        "externally provisioned",
        "deleting",
        "a state to come",
    ];
    let other = Owner { name: "other".to_owned(), uid: "other".to_owned(), ..owner() };
    let consumers = [
        json!({}),
        consumer("m", "m-uid"),
        consumer("m", "an-older-uid"),
        consumer("other", "other-uid"),
        kept_for(&owner()),
        kept_for(&other),
        json!({"spec": {"consumerRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}}),
    ];
    let pending = [
        json!({}),
        json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: reservation::as_pending(None, "ns")}}}),
        json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: reservation::as_pending(Some(&owner()), "ns")}}}),
    ];
    let marks = [
        json!({}),
        json!({"metadata": {"annotations": {names::capm3::UNHEALTHY: ""}}}),
        json!({"metadata": {"annotations": {names::metal3::PAUSED: ""}}}),
        json!({"status": {"errorMessage": "broken"}}),
        json!({"status": {"operationalStatus": "error"}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ];
    let images = [json!({}), json!({"spec": {"image": {"url": "http://a/b"}}})];
    let one = |all: &[serde_json::Value]| prop::sample::select(all.to_vec());
    (
        prop::sample::select(states.to_vec()),
        one(&consumers),
        one(&pending),
        one(&marks),
        one(&images),
    )
        .prop_map(move |(state, consumer, pending, mark, image)| {
            [consumer, pending, mark, image]
                .iter()
                .fold(host(name, state), |host, patch| with(&host, patch))
        })
}

fn any_seen() -> impl Strategy<Value = (MachineSeen, Policy)> {
    let names = prop::sample::select(vec!["", "names", "intends", "gives up"]);
    let reuse = prop::sample::select(vec![Reuse::On, Reuse::Off]);
    let verdict = prop::sample::select(vec![
        Verdict::For { owner: owner(), cleaning: None },
        Verdict::Nobody("why".to_owned()),
        Verdict::Undecided(Reason::OwnerUnanswered, "why".to_owned()),
        Verdict::Undecided(Reason::OwnerUnreadable, "why".to_owned()),
    ]);
    let data = prop::sample::select(vec![Data::NotWanted, Data::NotAskedFor, Data::Awaited]);
    let flags = prop::collection::vec(any::<bool>(), 11);
    (names, reuse, verdict, data, flags, any_host("h"), any_host("kept"), any_host("free"))
        .prop_map(|(names, reuse, verdict, data, flags, host, kept, free)| {
            let mut seen = seen();
            (seen.reuse, seen.verdict, seen.data) = (reuse, verdict, data);
            let machine = &mut seen.machine;
            match names {
                "names" => annotate(machine, names::metal3::HOST, "ns/h"),
                "intends" => {
                    annotate(machine, names::ferrite::INTENDS_HOST, "h");
                    annotate(machine, names::ferrite::HOST_UID, "h-uid");
                }
                "gives up" => annotate(machine, names::ferrite::GIVES_UP_HOST, "h"),
                _ => {}
            }
            if flags[0] {
                machine.metadata.deletion_timestamp = Some(Time(now()));
            }
            if flags[1] {
                machine.metadata.finalizers =
                    Some(vec![names::capm3::MACHINE_FINALIZER.to_owned()]);
            }
            let status = if flags[2] { "True" } else { "False" };
            let mut said =
                json!({"conditions": [{"type": CONDITION_ASSOCIATED, "status": status}]});
            if flags[3] {
                said["initialization"] = json!({"provisioned": true});
            }
            machine.status = serde_json::from_value(said).ok();
            seen.live = flags[4];
            if flags[5] {
                annotate(&mut seen.machine, names::capi::PAUSED, "");
            }
            if flags[6] {
                seen.parent = Parent::None;
            }
            seen.host = if names.is_empty() && !judge::is_of(&host, &seen.machine) {
                HostSeen::None
            } else if flags[7] {
                HostSeen::Gone("h".to_owned())
            } else {
                HostSeen::Here(Box::new(host))
            };
            // The index offers only what is good.
            let is_kept = Kept::of(&kept).is_some_and(|it| it.is_for(&owner()));
            seen.choice.kept = (is_kept && judge::is_ready(&kept)).then(|| cached(&kept));
            let is_free = free.spec.consumer_ref.is_none() && judge::is_ready(&free);
            seen.choice.free = is_free.then(|| cached(&free));
            if flags[9] {
                seen.machine.spec.provider_id = Some("metal3://ns/h/m".to_owned());
            }
            seen.host_of_others = flags[10];
            let strict_reuse = flags[8];
            (seen, Policy { strict_reuse, ..Policy::default() })
        })
}

/// A host that is kept, and what its owner is like. Most owners are there and nothing is the matter with them.
fn any_kept() -> impl Strategy<Value = (KeptSeen, Policy)> {
    let flags = prop::collection::vec(prop::bool::weighted(0.15), 15);
    let reuse_off = prop::bool::weighted(0.25);
    // Around the grace period, and around that of a rollout.
    let seconds = [None, Some(0), Some(119), Some(120), Some(1_199), Some(1_200)];
    let since = prop::sample::select(seconds.to_vec());
    (any_host("h"), flags, reuse_off, 0..3_i32, 0..3_usize, any::<bool>(), since).prop_map(
        |(host, flags, reuse_off, replicas, machines, waits, since)| {
            let mut host = with(&host, &kept_for(&owner()));
            if flags[0] {
                host.metadata.creation_timestamp = Some(Time(now()));
            }
            if flags[11] {
                host.spec.consumer_ref = None;
            }
            if flags[12] {
                let noted = json!({names::ferrite::RESERVED_HOST_UID: "h-uid"});
                host = with(&host, &json!({"metadata": {"annotations": noted}}));
            }
            let kept = if flags[1] || flags[11] {
                Kept::ByLabel(owner().label())
            } else {
                Kept::For(owner())
            };
            let later = Owner { uid: "later".to_owned(), ..owner() };
            let owner = OwnerSeen {
                of_others: flags[2],
                is_unwatched: flags[3],
                unreadable: flags[14].then(|| "why".to_owned()),
                later: flags[4].then(|| (later, now())),
                deleting: flags[5],
                paused: flags[6],
                cluster_deleting: flags[7],
                cluster_since: None,
                replicas,
                machines,
                waits,
                wants_others: flags[13],
                rolls_out: flags[8],
                reuse_off,
            };
            let owner = (!flags[9]).then_some(owner);
            let settled_for = since.map(Duration::from_secs);
            let seen = KeptSeen { host, kept, owner, settled_for };
            (seen, Policy { collect_capm3: flags[10], ..Policy::default() })
        },
    )
}

/// A host that somebody may have left behind. Mostly its machine is gone and a verdict stands on it.
fn any_left() -> impl Strategy<Value = LeftSeen> {
    let flags = prop::collection::vec(prop::bool::weighted(0.15), 3);
    (any_host("h"), flags, any::<bool>()).prop_map(|(host, flags, is_machines)| {
        let patch = if is_machines { consumer("m", "m-uid") } else { json!({}) };
        let host = with(&host, &patch);
        LeftSeen { host, is_gone: !flags[0], of_others: flags[1], paused: flags[2] }
    })
}

/// Whether an owner that stays has had no use for another host for as long as it takes.
fn is_over(owner: &OwnerSeen, settled: Option<Duration>, policy: &Policy) -> bool {
    let grace = policy.reservation_grace * if owner.rolls_out { 10 } else { 1 };
    let wanted = usize::try_from(owner.replicas).unwrap();
    !owner.waits
        && (owner.wants_others || owner.machines >= wanted)
        && settled.is_some_and(|settled| settled >= grace)
}

fn named<'a>(seen: &'a MachineSeen, name: &str) -> Option<&'a BareMetalHost> {
    match (&seen.host, name) {
        (HostSeen::Here(host), "h") => Some(host),
        (_, "kept") => seen.choice.kept.as_deref().map(|it| &**it),
        (_, "free") => seen.choice.free.as_deref().map(|it| &**it),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_decision_breaks_a_rule((seen, policy) in any_seen()) {
        let decision = decide(&Observed::Machine(Box::new(seen.clone())), &policy, now());
        let machine = &seen.machine;
        let leaving = machine.metadata.deletion_timestamp.is_some();
        let mut taken_away = 0;
        // Under which key the machine names a host before a write.
        let (mut intends, mut claimed) = (machine.named_host().is_none(), None);
        for step in &decision.writes {
            match step {
                Write::Intend { .. } => intends = true,
                Write::Name { host, .. } | Write::Identify { host, .. } => {
                    let own = named(&seen, host).is_some_and(|it| judge::is_of(it, machine));
                    prop_assert!(own || claimed == Some(host), "CAPM3 takes it for the machine's");
                }
                Write::AskForData => {
                    prop_assert!(machine.named_host().is_some(), "CAPM3 renders nothing");
                }
                Write::Claim { host: name, .. } => {
                    let host = named(&seen, name).expect("only a host that was seen is claimed");
                    let own = judge::is_of(host, machine);
                    prop_assert!(own || intends, "CAPM3 would take it from whoever has it by then");
                    claimed = Some(name);
                    prop_assert!(!leaving);
                    // Or a machine that is deleted just then would leave it behind.
                    let mut finalizers = machine.metadata.finalizers.iter().flatten();
                    let keeps = finalizers.any(|it| it == names::capm3::MACHINE_FINALIZER);
                    let is_intent = |it: &Write| matches!(it, Write::Intend { .. });
                    prop_assert!(keeps || decision.writes.iter().any(is_intent));
                    // A machine that was up once comes up on no other host.
                    prop_assert!(own || !was_up(machine));
                    prop_assert!(own || judge::exclusion(host).is_none());
                    let is_others = seen.host_of_others && host.metadata.name.as_deref() == Some("h");
                    prop_assert!(own || !is_others);
                    prop_assert!(own || reservation::looks_claimable(host));
                    if let Some(kept) = Kept::of(host) {
                        prop_assert!(seen.reuse == Reuse::On && kept.is_for(&owner()));
                    } else if !own {
                        prop_assert!(!(policy.strict_reuse && seen.reuse == Reuse::On));
                    }
                }
                Write::Install { host, .. } | Write::Unpause { host } => {
                    let host = named(&seen, host).expect("only a host that was seen is written");
                    prop_assert!(judge::is_of(host, machine));
                }
                Write::Clear { host, .. } | Write::Release { host, .. } => {
                    taken_away += 1;
                    let host = named(&seen, host).expect("only a host that was seen is written");
                    prop_assert!(leaving && seen.live && judge::is_of(host, machine));
                    let decided = reservation::pending(host).is_some();
                    let is_said = matches!(
                        seen.verdict,
                        Verdict::Unasked | Verdict::Nobody(_) | Verdict::For { .. }
                    );
                    prop_assert!(decided || is_said);
                    if matches!(step, Write::Release { .. }) {
                        prop_assert!(!judge::is_told_what_to_install(host));
                        let state = host.provisioning_state().as_str();
                        prop_assert!(!["provisioned", "provisioning"].contains(&state));
                        prop_assert!(!(state.is_empty() && was_up(machine)));
                    }
                }
                Write::LetGo => prop_assert!(leaving && seen.live),
                Write::GiveUp { .. } | Write::PassOver { .. } => prop_assert!(seen.live),
                _ => {}
            }
        }
        prop_assert!(taken_away <= 1);
        if machine.annotation(names::capi::PAUSED).is_some() {
            prop_assert!(decision.writes.iter().all(|step| matches!(step, Write::Report(_))));
        }
    }

    #[test]
    fn only_what_was_decided_is_done_in_place_of_a_machine_and_only_when_it_is_gone(
        seen in any_left()
    ) {
        let decision = decide(&Observed::Left(Box::new(seen.clone())), &Policy::default(), now());
        let host = &seen.host;
        let may = seen.is_gone && !seen.of_others && !seen.paused && !host.is_paused();
        let cleared = CLEARED.contains(&host.provisioning_state().as_str())
            && host.metadata.deletion_timestamp.is_none();
        let verdict = reservation::pending(host);
        for step in &decision.writes {
            let Write::Release { keep_for, .. } = step else { panic!("{step:?}") };
            prop_assert!(may && cleared && Some(keep_for) == verdict.as_ref());
            prop_assert!(!judge::is_told_what_to_install(host));
        }
        // And then always.
        let due = may && cleared && verdict.is_some();
        prop_assert_eq!(decision.writes.len(), usize::from(due));
    }

    #[test]
    fn no_reservation_ends_while_a_machine_may_come_for_it_or_it_is_not_ours_to_end(
        (seen, policy) in any_kept()
    ) {
        let decision = decide(&Observed::Kept(Box::new(seen.clone())), &policy, now());
        let cleared = CLEARED.contains(&seen.host.provisioning_state().as_str());
        let is_capm3s = matches!(seen.kept, Kept::ByLabel(_)) && !policy.collect_capm3;
        prop_assert!(decision.writes.len() <= 1);
        prop_assert!(cleared || !is_settled(&seen, &policy));
        for step in &decision.writes {
            prop_assert!(!is_capm3s);
            let owner = seen.owner.as_ref();
            prop_assert!(owner.is_none_or(|it| !it.paused && !it.of_others));
            prop_assert!(owner.is_none_or(|it| it.unreadable.is_none()));
            match step {
                Write::Free { host, .. } => {
                    prop_assert!(cleared && host == "h");
                    let stays = owner.filter(|it| {
                        let goes = it.deleting || it.cluster_deleting;
                        it.later.is_none() && !goes && !it.reuse_off
                    });
                    let over = |it: &OwnerSeen| is_over(it, seen.settled_for, &policy);
                    prop_assert!(stays.is_none_or(over));
                }
                // It came here with its owner: it is named anew, and for that one only.
                Write::Release { keep_for, .. } => {
                    let later = owner.and_then(|it| it.later.as_ref()).map(|(later, _)| later);
                    prop_assert!(keep_for.is_some() && keep_for.as_ref() == later);
                }
                _ => prop_assert!(decision.writes.is_empty(), "{:?}", step),
            }
        }
        // And nothing is kept for nobody.
        if seen.owner.is_none() && cleared && !is_capm3s {
            let frees = |it: &Write| matches!(it, Write::Free { .. });
            prop_assert!(decision.writes.iter().any(frees));
        }
    }
}
