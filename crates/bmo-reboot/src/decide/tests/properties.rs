//! Invariants of every decision about every host and node, however odd.

use proptest::prelude::*;

use super::*;
use crate::record::Record;

const REASONS: [Reason; 18] = [
    Reason::RequestAccepted,
    Reason::SoftPowerOff,
    Reason::HardPowerOff,
    Reason::Restarting,
    Reason::PowerFailed,
    Reason::NodeBusy,
    Reason::IronicUnreachable,
    Reason::PowerUnknown,
    Reason::PoweredOff,
    Reason::HeldOff,
    Reason::Offline,
    Reason::PoweringOn,
    Reason::HoldUnsupported,
    Reason::Completed,
    Reason::Deprovisioned,
    Reason::Paused,
    Reason::NodeShared,
    Reason::NodeRegistering,
];

fn any_host() -> impl Strategy<Value = Host> {
    // Seldom by a clock that was ahead.
    let second = prop_oneof![9 => 999_990_i64..1_000_010, 1 => 1_000_062_i64..1_000_070];
    let stamp = || prop::option::of(second.clone().prop_map(at));
    let keys = prop::collection::btree_map(
        prop::sample::select(vec![PLAIN, HOLD, "reboot.metal3.io/b"]),
        prop::sample::select(vec!["", HARD, "nonsense"]),
        0..4,
    );
    let progress =
        prop::option::of((prop::sample::select(&REASONS[..]), 0_i64..400, any::<[bool; 4]>()));
    let states = vec![
        ProvisioningState::Provisioned,
        ProvisioningState::Provisioned,
        ProvisioningState::Provisioned,
        ProvisioningState::ExternallyProvisioned,
        ProvisioningState::Deprovisioning,
        ProvisioningState::Available,
    ];
    let who = vec![Pause::No, Pause::No, Pause::ByUs, Pause::ByOthers];
    let failures = prop_oneof![
        1 => Just(Failures::None),
        1 => (0_i64..9).prop_map(Failures::OfPower),
        1 => Just(Failures::OfOthers),
    ];
    let rest =
        (prop::sample::select(states), prop::sample::select(who), any::<[bool; 10]>(), failures);
    (stamp(), stamp(), keys, progress, rest).prop_map(|(pending, last, keys, told, rest)| {
        let (state, paused, flags, failures) = rest;
        let [online, powered_on, disable, rarely, a, b, c, d, registering, cleared] = flags;
        let mut host = Host {
            pending,
            last,
            requests: Requests::of(keys.into_iter()),
            state,
            paused,
            online,
            powered_on,
            disable_power_off: disable && rarely,
            selected: !(rarely && a),
            detached: rarely && b && !a,
            deleting: rarely && c && !b,
            needs_operator: rarely && d,
            cleared: rarely && d && cleared,
            registering,
            failures,
            ..host()
        };
        if let Some((reason, ago, [rebooting, hard, words, asked])) = told {
            super::progress(&mut host, reason, hard, ago);
            let holds = KeySet::of(host.requests.holds());
            let step = RebootProgress { rebooting, ..host.progress().unwrap() };
            let progress = match reason {
                Reason::HeldOff if words => {
                    let sight = asked.then_some(Sight::AskedOff);
                    RebootProgress { held: holds, sight, ..step }
                }
                Reason::PowerUnknown if words => {
                    let sight = Some(Sight::Lost { since: at(999_000), held: Some(holds) });
                    RebootProgress { sight, ..step }
                }
                _ => step,
            };
            put(&mut host, &progress);
        }
        host
    })
}

fn any_node() -> impl Strategy<Value = NodeSeen> {
    let powers = vec![Power::On, Power::On, Power::Off, Power::Off, Power::Unknown];
    let targets = vec![None, None, Some(Power::On), Some(Power::Off)];
    let registrations =
        vec![None, None, None, Some("manageable"), Some("enroll"), Some("verifying")];
    let state = (prop::sample::select(targets), prop::sample::select(registrations));
    let seen = (prop::sample::select(powers), state, any::<[bool; 7]>()).prop_map(
        |(power, (target, registration), flags)| {
            let [error, engaged, confirmed, disabled, maintenance, rarely, taken] = flags;
            let off_proof = match (taken && power == Power::Off, error, confirmed, rarely) {
                (false, ..) => OffProof::None,
                (true, true, ..) => OffProof::Failed,
                (true, false, true, _) => OffProof::Twice,
                (true, false, false, rarely) => OffProof::Once(seconds(u64::from(rarely) * 3)),
            };
            NodeSeen::Seen(Node {
                power,
                target,
                engaged: (engaged && confirmed && disabled).then(|| "it is cleaning".to_owned()),
                last_error: error.then(|| "it broke".to_owned()),
                disable_power_off: disabled && engaged,
                registration,
                changed: None,
                maintenance: maintenance && rarely,
                off_for: (power == Power::Off && target.is_none())
                    .then(|| seconds(if confirmed { 100 } else { 0 })),
                off_proof,
                spared: (power == Power::Unknown && rarely).then_some(Duration::from_secs(4)),
            })
        },
    );
    prop_oneof![
        9 => seen,
        1 => any::<bool>().prop_map(|lasting| NodeSeen::Unanswered { lasting, problem: "no".to_owned() }),
        1 => Just(NodeSeen::Missing),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    any::<[bool; 2]>().prop_map(|[takeover, manage_available]| Policy {
        takeover,
        manage_available,
        ..Policy::default()
    })
}

fn is_off(seen: &NodeSeen) -> bool {
    matches!(seen, NodeSeen::Seen(node) if node.power == Power::Off && node.target.is_none())
}

/// The host as it is after the decision's writes.
fn applied(host: &Host, decision: &Decided) -> Host {
    let mut host = host.clone();
    let left: Vec<(String, String)> = host
        .requests
        .iter()
        .filter(|request| !decision.annotations.contains_key(&request.key))
        .map(|request| {
            let value = if request.is_hard() { HARD } else { "" };
            (request.key.clone(), value.to_owned())
        })
        .collect();
    host.requests = Requests::of(left.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    if let Some(pause) = decision.annotations.get(PAUSED) {
        host.paused = if pause.is_some() { Pause::ByUs } else { Pause::No };
    }
    let change = &decision.status;
    if let Some(on) = change.powered_on {
        host.powered_on = on;
    }
    if change.clear_stamps {
        (host.pending, host.last) = (None, None);
    }
    host.pending = change.pending.or(host.pending);
    host.last = change.last.or(host.last);
    if let Some(trouble) = &change.trouble {
        host.failures = trouble.as_ref().map_or(Failures::None, |it| Failures::OfPower(it.count));
    }
    write(&mut host, change);
    host
}

/// Whether its status says that Ironic was asked for off for all who hold the host.
fn says_asked(host: &Host) -> bool {
    let holds: Vec<&str> = host.requests.holds().collect();
    host.progress().is_some_and(|it| it.was_asked_for(&holds))
}

fn may_stay_on(host: &Host, seen: &NodeSeen) -> bool {
    host.disable_power_off || matches!(seen, NodeSeen::Seen(node) if node.disable_power_off)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn every_decision_keeps_the_invariants(host in any_host(), seen in any_node(), policy in any_policy(), soft_free: bool) {
        let observed = Observed { soft_free, ..observed(&host, &seen) };
        let done: Decided = decide(&observed, &policy, now()).into();
        let status = &done.status;
        let holds = host.requests.holds().next().is_some();
        let after = applied(&host, &done);
        let online_only = policy.manage_available && host.state.is_available();

        // Power returns only to a host that nobody holds, that is wanted on, and that was seen off.
        if done.call == Some(Call::On) {
            prop_assert!(host.online && is_off(&seen) && !host.powered_on);
            prop_assert!(!host.deleting && host.paused != Pause::ByOthers && host.credentials);
            // A cycle that was begun before somebody wanted the host detached is ended first.
            prop_assert!(!host.detached || host.paused == Pause::ByUs);
            if !online_only {
                prop_assert!(!holds && after.requests.is_empty());
                // A stamp of just now stands where Ironic did not take the call; then the host is read before it.
                let waits = host.progress().is_some_and(|it| it.waits_for_ironic());
                let stands = waits && status.is_empty() && host.last.is_some_and(|last| until(last, now()) < seconds(60));
                prop_assert!((status.last.is_some() || stands) && !after.in_cycle(), "a write proves that nobody holds it");
            }
        }
        // Only the plain request is ever removed from a provisioned host, and only at off.
        if host.state.is_provisioned() {
            for (key, value) in &done.annotations {
                prop_assert!(key == PLAIN || key == PAUSED, "{key}");
                if key == PLAIN {
                    prop_assert!(value.is_none());
                    prop_assert!(is_off(&seen) && host.online || may_stay_on(&host, &seen));
                }
            }
            let ahead = |host: &Host| {
                [host.pending, host.last].into_iter().flatten().any(|it| until(now(), it) > seconds(60))
            };
            prop_assert!(!status.clear_stamps || (ahead(&host) && !ahead(&after)));
            prop_assert!(!status.clear_stamps || status.pending.is_some() == after.in_cycle());
            prop_assert!(status.last.is_none() || !ahead(&after), "a proof of what is to come");
        }
        // Stamps only grow, but for those of a wrong clock, and one is later than the other when it is written.
        let before = if status.clear_stamps { Host { pending: None, last: None, ..host.clone() } } else { host.clone() };
        if let Some(pending) = status.pending {
            prop_assert!(before.pending <= Some(pending) || before.pending <= before.last);
            prop_assert!(before.last < Some(pending) && (status.clear_stamps || !host.requests.is_empty()));
        }
        if let Some(last) = status.last {
            prop_assert!(before.last <= Some(last) && before.pending < Some(last));
            prop_assert!(is_off(&seen) || may_stay_on(&host, &seen));
        }
        // Off is asked for by a stamp or by online, and never of what must stay on.
        if matches!(done.call, Some(Call::Off | Call::SoftOff(_))) {
            prop_assert!(after.in_cycle() || !host.online || is_off(&seen));
            prop_assert!(!may_stay_on(&host, &seen));
        }
        if matches!(done.call, Some(Call::Reboot | Call::SoftReboot(_))) {
            prop_assert!(may_stay_on(&host, &seen) && after.in_cycle());
        }
        // Off is what was seen, never what was not, and twice unless the power was cut.
        let progress = host.progress();
        let in_cycle = host.in_cycle() && !online_only;
        let hard = progress.as_ref().is_some_and(|it| it.hard && (it.reason.is_phase() || in_cycle));
        match status.powered_on {
            Some(false) => {
                let NodeSeen::Seen(node) = &seen else { panic!("not seen") };
                let twice = node.off_for.is_some_and(|it| it >= seconds(10));
                let told = |it: &RebootProgress| matches!(it.reason, Reason::HardPowerOff | Reason::Restarting);
                let cut = hard && progress.as_ref().is_some_and(told);
                prop_assert!(is_off(&seen) && (twice || cut || may_stay_on(&host, &seen)));
                let asked = progress.as_ref().is_some_and(|it| {
                    it.reason.is_phase() && it.held_since().is_none()
                        && !matches!(it.reason, Reason::Restarting | Reason::PoweringOn | Reason::PowerFailed)
                });
                let unasked = may_stay_on(&host, &seen) && !in_cycle;
                prop_assert!(!asked || unasked || node.last_error.is_none(), "a call of ours may have failed");
            }
            // Whoever holds a machine that may be coming on is not told that it is off.
            Some(true) => {
                let NodeSeen::Seen(node) = &seen else { panic!("not seen") };
                prop_assert!(node.power == Power::On || (holds && done.call.is_none()));
            }
            None => {}
        }
        // Hard goes before soft, for good.
        let was_hard = hard && status.pending.is_none();
        let is_hard = host.requests.iter().any(Request::is_hard) && !online_only;
        if matches!(done.call, Some(Call::SoftOff(_))) {
            prop_assert!(!was_hard);
            prop_assert!(!is_hard || !after.in_cycle());
        }
        // One call at a time, and none without knowing the node.
        if done.call.is_some() {
            prop_assert!(matches!(&seen, NodeSeen::Seen(node) if node.target.is_none()));
        }
        // Whoever waits for off is looked at again within half a minute.
        let ours = status.managed.as_ref().is_none_or(|it| it.managed) && host.state.is_provisioned()
            && host.selected && !host.deleting && !host.detached && host.paused != Pause::ByOthers;
        if ours && host.in_cycle() && !is_off(&seen) && seen != NodeSeen::Missing {
            let soon = match done.next {
                Next::OnChange => false,
                Next::After(wait) => wait <= Duration::from_secs(30),
                Next::Now => true,
            };
            prop_assert!(soon, "{:?}", done.next);
        }
        // The operator is not paused in the middle of registering a node, and only then let alone with the power.
        let begun = matches!(&seen, NodeSeen::Seen(it) if it.is_being_registered()
            || (host.registering && it.registration.is_some()));
        if begun {
            prop_assert!(done.annotations.get(PAUSED) != Some(&Some(PAUSED_BY_BMO_REBOOT.to_owned())));
        }
        if begun && ours && policy.takeover && host.paused == Pause::No && !host.needs_operator {
            let keeps_on = may_stay_on(&host, &seen) && !host.disable_power_off;
            prop_assert!(done.call.is_none() || keeps_on);
        }
        // Nobody is told to be held off by what Ironic has stored: it was asked twice for all who hold the host, or the status
        // says so of them already. In maintenance it says that Ironic was asked in it.
        let told = status.progress.as_ref().filter(|it| it.reason == Reason::HeldOff);
        if let (NodeSeen::Seen(node), Some(_)) = (&seen, told) && !may_stay_on(&host, &seen) {
            let keys: Vec<&str> = host.requests.holds().collect();
            let before = progress.as_ref().is_some_and(|it| it.is_held_for(&keys));
            let known = if node.maintenance { says_asked(&host) } else { before };
            prop_assert!(node.off_proof == OffProof::Twice || known, "{done:?}");
        }
        // Who is not looked after is not told to be held off.
        if status.managed.as_ref().is_some_and(|it| !it.managed) {
            prop_assert!(after.progress().is_none_or(|it| it.held_since().is_none()));
        }
        // Failures of others are theirs.
        prop_assert!(status.trouble.is_none() || host.failures != Failures::OfOthers);
    }

    #[test]
    fn what_was_written_is_not_written_again(host in any_host(), seen in any_node(), policy in any_policy()) {
        let mut done = decided_by(&policy, &host, &seen);
        let mut host = host;
        // Writes that lead to the next pass at once come to an end.
        for _ in 0..6 {
            if done.call.is_some() {
                return Ok(());
            }
            host = applied(&host, &done);
            done = decided_by(&policy, &host, &seen);
        }
        if done.call.is_none() {
            prop_assert!(done.status.is_empty() && done.annotations.is_empty(), "{done:#?}");
            let held = host.progress().is_some_and(|it| it.reason == Reason::HeldOff) && !host.powered_on && is_off(&seen);
            if let (NodeSeen::Seen(node), true) = (&seen, held && host.requests.holds().next().is_some())
                && node.maintenance && host.managed().is_some_and(|it| it.reason == Reason::Managed)
            {
                prop_assert!(says_asked(&host), "{host:#?}");
            }
        }
    }

    #[test]
    fn an_answer_that_was_no_refusal_marks_nothing_as_failed(host in any_host(), seen in any_node(), number in 0..4_usize, which in 0..5_usize) {
        let call = [Call::On, Call::Off, Call::SoftOff(seconds(9)), Call::Reboot, Call::SoftReboot(seconds(9))][which];
        let no = || "no".to_owned();
        let answer = &[Answer::Busy(no()), Answer::Unreachable(no()), Answer::Unknown, Answer::NoRoom][number];
        let done = settle(&host, &seen, (call, answer), &Policy::default(), now());
        prop_assert!(done.status.trouble.is_none() && done.annotations.is_empty() && done.call.is_none());
        prop_assert!(done.status.pending.is_none() && done.status.last.is_none() && done.status.powered_on.is_none());
        let hard = host.progress().is_some_and(|it| it.hard && (it.reason.is_phase() || host.in_cycle()));
        // What is told beside a hold leaves that as it is.
        let known = host.progress();
        prop_assert!(done.status.progress.is_none_or(|it| it.hard == hard || Some(it) == known));
    }
}

/// What is decided, but for the texts that people read.
fn without_texts(mut done: Decided, host: &Host) -> (Decided, Option<Record>) {
    let record = done.status.record(host);
    done.status.told.clear();
    (done.status.progress, done.status.managed) = (None, None);
    (done, record)
}

proptest! {
    #[test]
    fn no_decision_depends_on_a_message(host in any_host(), node in any_node(), text in ".{0,40}") {
        let mut other = host.clone();
        for condition in &mut other.conditions {
            if ["Rebooting", "PowerManaged"].contains(&condition.r#type.as_str()) {
                condition.message = Some(text.clone());
            }
        }
        let [one, two] = [&host, &other].map(|it| without_texts(decided(it, &node), it));
        prop_assert_eq!(one, two);
    }

    #[test]
    fn a_host_whose_record_cannot_be_read_is_never_switched(host in any_host(), node in any_node(), text in ".{0,40}") {
        let mut host = host;
        host.conditions.retain(|it| it.r#type != "RebootRecord");
        let mut odd = Change { was_provisioned: Some(true), ..Change::default() }.conditions(&host, now());
        let record = odd.iter_mut().find(|it| it.r#type == "RebootRecord").unwrap();
        record.message = Some(text);
        host.conditions = odd;
        let done = decided(&host, &node);
        prop_assert_eq!(done.call, None);
        prop_assert_eq!((done.status.pending, done.status.last, done.status.record(&host)), (None, None, None));
        prop_assert!(done.annotations.keys().all(|key| key == PAUSED), "{done:?}");
    }
}
