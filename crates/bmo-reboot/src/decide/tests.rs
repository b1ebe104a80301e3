//! The rules one by one; the page's invariants are in `properties`.

use std::collections::BTreeMap;

use api_types::metal3::ProvisioningState;
use api_types::time::until;
use controller_kit::engine::{Event, ObjectKey, Reason as _};
use k8s_openapi::jiff::ToSpan as _;

use super::*;
use crate::model::{Answer, Change, Failures, Node, OffProof, Write};
use crate::record::Managed;
use crate::requests::Requests;
use crate::waits::retry_delay;

mod busy;
mod clocks;
mod let_go;
mod listed;
mod maintenance;
mod memory;
mod proof;
mod properties;
mod stays_on;
mod takeover;
mod told;
mod urgent;

const PLAIN: &str = REBOOT;
const HARD: &str = r#"{"mode":"hard"}"#;
const HOLD: &str = "reboot.metal3.io/a";

/// When to look again at a node whose next step is Ironic's.
const PACE: Duration = Duration::from_millis(700);
const WATCH: Next = Next::After(PACE);

/// What makes another host of one.
type Make = fn(&mut Host);

/// What was decided, with its one write, or an empty one.
#[derive(Clone, Debug, PartialEq)]
struct Decided {
    reason: Reason,
    annotations: BTreeMap<String, Option<String>>,
    status: Change,
    call: Option<Call>,
    events: Vec<Event>,
    next: Next,
}

impl From<Decision> for Decided {
    fn from(Decision { reason, writes, events, next }: Decision) -> Self {
        assert!(writes.len() <= 1 && writes.iter().all(|write| !write.is_empty()), "{writes:?}");
        let write = writes.into_iter().next().unwrap_or_default();
        let Write { annotations, status, call, rests, .. } = *write;
        let acts = call.is_some() || !annotations.is_empty() || !status.is_empty();
        assert_eq!(rests, acts && next == Next::OnChange, "{reason:?}");
        Self { reason, annotations, status, call, events, next }
    }
}

impl Decided {
    fn rest(reason: Reason) -> Self {
        Decision::rest(reason).into()
    }
}

/// The reason that an event gives.
fn told_reason(event: &Event) -> Reason {
    Reason::ALL.iter().copied().find(|reason| reason.as_str() == event.reason).unwrap()
}

/// What is seen of a host and its node.
fn observed(host: &Host, node: &NodeSeen) -> Observed {
    Observed { host: Some(host.clone()), node: node.clone(), soft_free: true, pace: Some(PACE) }
}

/// What an answer of Ironic means for a host.
fn settle(
    host: &Host,
    node: &NodeSeen,
    call: (Call, &Answer),
    policy: &Policy,
    now: Timestamp,
) -> Decided {
    crate::settle::settle(&observed(host, node), call, policy, now).into()
}

/// Half a second past a whole one, as the clock mostly is.
fn now() -> Timestamp {
    at(1_000_000).checked_add(500.milliseconds()).unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// How long it is [`now`] since a second.
fn since(second: i64) -> Duration {
    until(at(second), now())
}

/// A running host of ours that is as it should be.
fn host() -> Host {
    let mut host = Host {
        key: ObjectKey { namespace: "n".to_owned(), name: "h".to_owned() },
        uid: "u".to_owned(),
        version: "1".to_owned(),
        generation: 1,
        selected: true,
        paused: Pause::No,
        brings_status: false,
        detached: false,
        deleting: false,
        state: ProvisioningState::Provisioned,
        credentials: true,
        online: true,
        disable_power_off: false,
        needs_operator: false,
        cleared: false,
        registering: false,
        node: "node".to_owned(),
        shared_with: None,
        requests: Requests::default(),
        answered: None,
        powered_on: true,
        pending: None,
        last: None,
        only_record: false,
        other_writer: false,
        failures: Failures::None,
        conditions: Vec::new(),
    };
    let first = decided(&host, &node(Power::On));
    write(&mut host, &first.status);
    host
}

fn with(keys: &[(&str, &str)]) -> Host {
    Host { requests: Requests::of(keys.iter().copied()), ..host() }
}

/// A host in a cycle that has come so far, some seconds ago.
fn cycling(keys: &[(&str, &str)], reason: Reason, hard: bool, ago: i64) -> Host {
    let mut host = Host { pending: Some(at(999_000)), ..with(keys) };
    progress(&mut host, reason, hard, ago);
    host
}

fn progress(host: &mut Host, reason: Reason, hard: bool, ago: i64) {
    let step = RebootProgress::new(reason, at(1_000_000 - ago));
    put(host, &RebootProgress { rebooting: host.in_cycle(), hard, ..step });
}

/// Puts a record on a host that has come so far.
fn put(host: &mut Host, progress: &RebootProgress) {
    let (progress, told) = (Some(progress.clone()), "x".to_owned());
    write(host, &Change { progress, told, ..Change::default() });
}

/// Says on a host whether its power is ours.
fn put_managed(host: &mut Host, managed: bool, reason: Reason, message: &str) {
    let managed = Some(Managed { managed, reason, message: message.to_owned() });
    write(host, &Change { managed, ..Change::default() });
}

/// Writes the conditions of a change.
fn write(host: &mut Host, change: &Change) {
    host.conditions = change.conditions(host, now());
}

/// What people read in the condition `Rebooting`.
fn shown(host: &Host) -> String {
    let shown = host.conditions.iter().find(|it| it.r#type == "Rebooting").unwrap();
    shown.message.clone().unwrap()
}

fn node(power: Power) -> NodeSeen {
    let off_for = (power == Power::Off).then(|| seconds(10));
    // Ironic was asked for it, and looked.
    let off_proof = if power == Power::Off { OffProof::Twice } else { OffProof::None };
    NodeSeen::Seen(Node { off_for, off_proof, ..Node::resting(power) })
}

/// Off at the first reading, and nobody has asked for it.
fn just_off() -> NodeSeen {
    let first =
        |node: &mut Node| (node.off_for, node.off_proof) = (Some(Duration::ZERO), OffProof::None);
    change(node(Power::Off), first)
}

fn failed(power: Power) -> NodeSeen {
    change(node(power), |node| node.last_error = Some("it broke".to_owned()))
}

fn heading(power: Power, target: Power) -> NodeSeen {
    change(node(power), |node| node.target = Some(target))
}

fn change(seen: NodeSeen, change: impl FnOnce(&mut Node)) -> NodeSeen {
    let NodeSeen::Seen(mut node) = seen else { panic!("not seen") };
    change(&mut node);
    NodeSeen::Seen(node)
}

fn decided(host: &Host, node: &NodeSeen) -> Decided {
    decided_by(&Policy::default(), host, node)
}

/// At a time.
fn decided_at(now: Timestamp, host: &Host, node: &NodeSeen) -> Decided {
    decide(&observed(host, node), &Policy::default(), now).into()
}

/// The host with what a decision has written about its reboot.
fn after(mut host: Host, done: &Decided) -> Host {
    if done.status.clear_stamps {
        (host.pending, host.last) = (None, None);
    }
    host.pending = done.status.pending.or(host.pending);
    host.last = done.status.last.or(host.last);
    host.powered_on = done.status.powered_on.unwrap_or(host.powered_on);
    write(&mut host, &done.status);
    host
}

fn decided_by(policy: &Policy, host: &Host, node: &NodeSeen) -> Decided {
    decide(&observed(host, node), policy, now()).into()
}

/// How long to wait after so many failures to switch off.
fn off_delay(count: i64) -> Duration {
    retry_delay(true, Failures::OfPower(count))
}

fn reason_written(decision: &Decided) -> Option<Reason> {
    decision.status.progress.as_ref().map(|progress| progress.reason)
}

#[test]
fn a_host_that_is_as_it_should_be_is_left_alone() {
    let done = decided(&host(), &node(Power::On));
    assert_eq!(done, Decided::rest(Reason::AtRest));
}

/// What makes a host that was ours nobody's that we look after.
const REFUSALS: [(Reason, Make); 7] = [
    (Reason::NotSelected, |host| host.selected = false),
    (Reason::Deleting, |host| host.deleting = true),
    (Reason::Paused, |host| host.paused = Pause::ByOthers),
    (Reason::Detached, |host| host.detached = true),
    (Reason::NoCredentials, |host| host.credentials = false),
    (Reason::NodeShared, |host| host.shared_with = Some("n/other".to_owned())),
    (Reason::NodeNotFound, |_| {}),
];

#[test]
fn what_is_not_ours_is_refused_with_a_reason_and_never_called_about() {
    let others: [(Reason, Make); 2] = [
        (Reason::NotLookedAt, |host| host.state = ProvisioningState::None),
        (Reason::NotProvisioned, |host| {
            host.state = ProvisioningState::Available;
            host.conditions.clear();
        }),
    ];
    for (reason, change) in REFUSALS.into_iter().chain(others) {
        let mut host = with(&[(PLAIN, HARD), (HOLD, "")]);
        change(&mut host);
        let seen = if reason == Reason::NodeNotFound { NodeSeen::Missing } else { node(Power::On) };
        let done = decided(&host, &seen);
        assert_eq!(done.reason, reason);
        assert_eq!((done.call, done.annotations.len()), (None, 0), "{reason:?}");
        let Change { managed, powered_on, pending, .. } = done.status;
        assert_eq!((powered_on, pending), (None, None), "{reason:?}");
        let told = managed.is_some_and(|it| !it.managed && it.reason == reason);
        assert_eq!(told, reason != Reason::NotLookedAt, "{reason:?}");
    }
}

#[test]
fn a_request_is_stamped_after_the_last_power_on_and_carried_out_in_the_same_pass() {
    let done = decided(&with(&[(PLAIN, "")]), &node(Power::On));
    // Rounded up: the request was made before this time.
    assert_eq!(done.status.pending, Some(at(1_000_001)));
    assert_eq!(done.call, Some(Call::SoftOff(seconds(60))));
    assert_eq!(reason_written(&done), Some(Reason::SoftPowerOff));
    let later = Host { pending: Some(at(5)), last: Some(at(1_000_050)), ..with(&[(HOLD, HARD)]) };
    let done = decided(&later, &node(Power::On));
    assert_eq!(done.status.pending, Some(at(1_000_051)), "order counts, not the clock");
    assert_eq!(done.call, Some(Call::Off));
    let equal = Host { pending: Some(at(5)), last: Some(at(5)), ..with(&[(HOLD, "")]) };
    assert!(decided(&equal, &node(Power::On)).status.pending.is_some(), "equality is healed");
}

#[test]
fn a_cycle_goes_on_after_the_request_is_withdrawn_and_whatever_online_says() {
    for online in [true, false] {
        let host = Host { online, ..cycling(&[], Reason::RequestAccepted, false, 1) };
        let done = decided(&host, &node(Power::On));
        assert_eq!(done.call, Some(Call::SoftOff(seconds(60))), "{online}");
    }
}

#[test]
fn nothing_is_asked_while_ironic_shows_a_target() {
    for target in [Power::On, Power::Off] {
        let host = cycling(&[(PLAIN, HARD)], Reason::SoftPowerOff, false, 10);
        let done = decided(&host, &heading(Power::On, target));
        assert_eq!((done.call, done.next), (None, WATCH));
    }
}

#[test]
fn a_change_that_ironic_never_ends_rests_in_what_was_asked_for_which_lasts_for_so_long() {
    use controller_kit::engine::reasons::Kind;
    let (off, on) = (heading(Power::On, Power::Off), heading(Power::Off, Power::On));
    for (reason, seen) in [
        (Reason::SoftPowerOff, &off),
        (Reason::HardPowerOff, &off),
        (Reason::Restarting, &off),
        (Reason::PoweringOn, &on),
    ] {
        let mut host = cycling(&[], reason, true, 9);
        if reason == Reason::PoweringOn {
            (host.last, host.powered_on) = (Some(at(999_500)), false);
        }
        host.disable_power_off = reason == Reason::Restarting;
        let done = decided(&host, seen);
        assert_eq!((done.reason, done.call, done.next), (reason, None, WATCH));
        assert!(matches!(reason.about().kind, Kind::EndsWithin(_)), "{reason:?}");
    }
}

#[test]
fn a_soft_attempt_is_sent_in_slices_until_its_time_is_over() {
    let sent = |ago, seen: &NodeSeen| {
        decided(&cycling(&[(PLAIN, "")], Reason::SoftPowerOff, false, ago), seen).call
    };
    assert_eq!(sent(61, &failed(Power::On)), Some(Call::SoftOff(seconds(60))));
    assert_eq!(
        sent(150, &failed(Power::On)),
        Some(Call::SoftOff(seconds(29) + Duration::from_millis(500)))
    );
    assert_eq!(sent(181, &failed(Power::On)), Some(Call::Off));
    assert_eq!(sent(5, &failed(Power::On)), Some(Call::Off), "it failed before its time");
    assert_eq!(sent(5, &node(Power::On)), Some(Call::SoftOff(seconds(60))));
}

#[test]
fn hard_goes_before_soft_and_stays() {
    let host = cycling(&[(PLAIN, ""), (HOLD, HARD)], Reason::SoftPowerOff, false, 61);
    assert_eq!(decided(&host, &failed(Power::On)).call, Some(Call::Off));
    let since = cycling(&[(PLAIN, "")], Reason::NodeBusy, true, 4);
    assert_eq!(decided(&since, &node(Power::On)).call, Some(Call::Off), "hard was decided");
}

#[test]
fn a_hard_power_off_that_failed_is_tried_again_within_half_a_minute() {
    let host = cycling(&[(PLAIN, HARD)], Reason::HardPowerOff, true, 5);
    let done = decided(&host, &failed(Power::On));
    assert_eq!((done.call, reason_written(&done)), (None, Some(Reason::PowerFailed)));
    let trouble = done.status.trouble.unwrap().unwrap();
    assert_eq!((trouble.count, trouble.message.as_str()), (1, "it broke"));
    for count in 1..20 {
        let mut host = cycling(&[(PLAIN, HARD)], Reason::PowerFailed, true, 0);
        host.failures = Failures::OfPower(count);
        let Next::After(wait) = decided(&host, &failed(Power::On)).next else { panic!("{count}") };
        assert!(wait <= seconds(30));
        progress(&mut host, Reason::PowerFailed, true, 30);
        assert_eq!(decided(&host, &failed(Power::On)).call, Some(Call::Off));
    }
}

#[test]
fn what_failed_for_others_says_nothing_of_when_to_try_again() {
    let (off, stays_on) = (Host { powered_on: false, ..host() }, with(&[(PLAIN, HARD)]));
    let stays_on = Host { disable_power_off: true, pending: Some(at(999_000)), ..stays_on };
    let on = cycling(&[(PLAIN, HARD)], Reason::PowerFailed, true, 4);
    for (mut host, seen, call, wait) in [
        // Nobody counts how often: neither every few seconds nor after minutes.
        (off, node(Power::Off), Call::On, 48),
        (on, failed(Power::On), Call::Off, 3),
        (stays_on, node(Power::On), Call::Reboot, 3),
    ] {
        host.failures = Failures::OfOthers;
        progress(&mut host, Reason::PowerFailed, call != Call::On, wait + 1);
        assert_eq!(decided(&host, &seen).call, Some(call));
        progress(&mut host, Reason::PowerFailed, call != Call::On, wait - 2);
        assert_eq!(decided(&host, &seen).call, None, "{call:?}");
    }
    let mut refused = Host { powered_on: false, failures: Failures::OfOthers, ..host() };
    progress(&mut refused, Reason::PoweringOn, false, 1);
    let (seen, now) = (node(Power::Off), now());
    let answer = Answer::Refused("no".to_owned());
    let done = settle(&refused, &seen, (Call::On, &answer), &Policy::default(), now);
    assert_eq!(done.next, Next::After(seconds(48)));
    assert_eq!(decided(&refused, &failed(Power::Off)).next, done.next);
}

#[test]
fn a_count_of_errors_at_the_end_of_its_range_stays_there() {
    let mut host = cycling(&[(PLAIN, HARD)], Reason::HardPowerOff, true, 5);
    host.failures = Failures::OfPower(i64::MAX);
    let trouble = decided(&host, &failed(Power::On)).status.trouble.unwrap().unwrap();
    assert_eq!(trouble.count, i64::MAX);
}

#[test]
fn a_failure_of_a_clock_that_was_ahead_is_not_waited_for() {
    let on = cycling(&[(PLAIN, HARD)], Reason::PowerFailed, true, -600);
    assert_eq!(decided(&on, &failed(Power::On)).call, Some(Call::Off));
    let mut off = Host { powered_on: false, ..host() };
    progress(&mut off, Reason::PowerFailed, false, -600);
    assert_eq!(decided(&off, &failed(Power::Off)).call, Some(Call::On));
}

#[test]
fn a_soft_off_is_believed_at_its_second_reading() {
    let host = cycling(&[(HOLD, "")], Reason::SoftPowerOff, false, 5);
    let first = just_off();
    let done = decided(&host, &first);
    assert_eq!((done.status.powered_on, done.next), (None, Next::After(OFF_CONFIRM_DELAY)));
    let done = decided(&host, &node(Power::Off));
    assert_eq!(
        (done.status.powered_on, reason_written(&done)),
        (Some(false), Some(Reason::HeldOff))
    );
}

#[test]
fn off_with_a_failure_newer_than_our_call_is_asked_for_again() {
    let host = cycling(&[(HOLD, "")], Reason::HardPowerOff, true, 5);
    let done = decided(&host, &failed(Power::Off));
    assert_eq!((done.status.powered_on, reason_written(&done)), (None, Some(Reason::PowerFailed)));
}

#[test]
fn off_is_shown_before_the_plain_request_goes_and_power_returns() {
    let mut host = cycling(&[(PLAIN, "")], Reason::HardPowerOff, true, 5);
    let done = decided(&host, &node(Power::Off));
    assert_eq!((done.status.powered_on, done.annotations.len(), done.call), (Some(false), 0, None));
    assert_eq!(done.next, Next::Now);
    host.powered_on = false;
    progress(&mut host, Reason::PoweredOff, false, 1);
    let done = decided(&host, &node(Power::Off));
    assert_eq!(done.annotations, [(PLAIN.to_owned(), None)].into());
    assert_eq!((done.status.last, done.call), (Some(at(1_000_000)), Some(Call::On)));
    assert_eq!(reason_written(&done), Some(Reason::PoweringOn));
}

#[test]
fn power_does_not_return_in_the_second_of_the_request() {
    let mut host = cycling(&[], Reason::PoweredOff, false, 0);
    (host.powered_on, host.pending) = (false, Some(at(1_000_001)));
    let done = decided(&host, &node(Power::Off));
    assert_eq!((done.call, done.next), (None, Next::After(Duration::from_millis(1_500))));
    host.pending = Some(at(1_000_050));
    let done = decided(&host, &node(Power::Off));
    assert_eq!(done.status.last, Some(at(1_000_051)), "a clock that was ahead is not waited for");
    assert_eq!(done.call, Some(Call::On));
}

#[test]
fn a_hold_keeps_the_host_off_and_only_the_plain_request_is_consumed() {
    let mut host = cycling(&[(PLAIN, ""), (HOLD, "")], Reason::PoweredOff, false, 1);
    host.powered_on = false;
    let done = decided(&host, &node(Power::Off));
    assert_eq!(done.annotations, [(PLAIN.to_owned(), None)].into());
    assert_eq!((done.call, done.status.last), (None, None));
    host.online = false;
    let done = decided(&host, &node(Power::Off));
    assert_eq!(done.annotations.len(), 0, "with online false it is kept");
}

#[test]
fn a_host_that_is_off_already_is_not_cycled() {
    let mut host = with(&[(PLAIN, "")]);
    host.powered_on = false;
    let done = decided(&host, &node(Power::Off));
    assert_eq!(done.annotations, [(PLAIN.to_owned(), None)].into());
    assert_eq!((done.call, done.status.pending), (Some(Call::On), None));
    host.online = false;
    assert_eq!(decided(&host, &node(Power::Off)), Decided::rest(Reason::AtRest));
}

#[test]
fn without_requests_power_follows_online() {
    let off = Host { online: false, ..host() };
    let done = decided(&off, &node(Power::On));
    assert_eq!((done.call, done.status.pending), (Some(Call::SoftOff(seconds(60))), None));
    let on = Host { powered_on: false, ..host() };
    let done = decided(&on, &node(Power::Off));
    assert_eq!((done.call, done.status.last), (Some(Call::On), Some(at(1_000_000))));
}

#[test]
fn unknown_power_and_silence_change_nothing_that_is_known() {
    let done = decided(&host(), &node(Power::Unknown));
    assert_eq!((done.call, done.annotations.len(), done.next), (None, 0, Next::OnChange));
    let Change { powered_on, pending, managed, .. } = &done.status;
    assert_eq!((powered_on, pending, managed), (&None, &None, &None));
    let mut off = Host { powered_on: false, ..with(&[(HOLD, "")]) };
    let held = RebootProgress::new(Reason::HeldOff, at(999_995));
    put(&mut off, &RebootProgress { held: KeySet::of([HOLD]), ..held });
    for lasting in [false, true] {
        let silence = NodeSeen::Unanswered { lasting, problem: "no connection".to_owned() };
        for host in [&host(), &off] {
            let done = decided(host, &silence);
            assert!(done.status.is_empty() && done.call.is_none(), "{done:?}");
            let waits = done.reason == Reason::IronicUnreachable;
            assert_eq!(waits, !host.requests.is_empty(), "who waits for nothing is not counted");
        }
        let waiting = cycling(&[(PLAIN, "")], Reason::RequestAccepted, false, 1);
        let done = decided(&waiting, &silence);
        let told = reason_written(&done) == Some(Reason::IronicUnreachable);
        assert_eq!(told, lasting, "one lost answer is no news");
    }
}

#[test]
fn a_deprovisioned_host_loses_all_requests_and_both_stamps() {
    for state in [ProvisioningState::Deprovisioning, ProvisioningState::Available] {
        let mut host =
            Host { state, ..cycling(&[(PLAIN, ""), (HOLD, "")], Reason::HeldOff, false, 9) };
        let done = decided(&host, &NodeSeen::NotAsked);
        assert_eq!(done.annotations, [(PLAIN.to_owned(), None), (HOLD.to_owned(), None)].into());
        assert!(done.status.clear_stamps);
        host.requests = Requests::default();
        (host.pending, host.last) = (None, None);
        progress(&mut host, Reason::Deprovisioned, false, 0);
        write(&mut host, &done.status);
        assert_eq!(decided(&host, &NodeSeen::NotAsked), Decided::rest(Reason::NotProvisioned));
    }
}

#[test]
fn a_state_of_a_newer_operator_costs_no_hold_and_no_stamp_and_is_not_the_end_of_the_memory() {
    let mut host = cycling(&[(PLAIN, ""), (HOLD, "")], Reason::HeldOff, true, 9);
    host.state = ProvisioningState::Other("updating".to_owned());
    let done = decided(&host, &NodeSeen::NotAsked);
    assert_eq!((done.reason, done.annotations.len()), (Reason::NotProvisioned, 0));
    assert!(!done.status.clear_stamps && done.call.is_none());
    write(&mut host, &done.status);
    (host.pending, host.state) = (None, ProvisioningState::Available);
    assert_eq!(decided(&host, &NodeSeen::NotAsked).annotations.len(), 2, "now it was removed");
}

#[test]
fn requests_of_a_host_that_never_was_ours_are_not_touched() {
    let mut host = Host { state: ProvisioningState::Available, ..with(&[(PLAIN, ""), (HOLD, "")]) };
    host.conditions.clear();
    let done = decided(&host, &NodeSeen::NotAsked);
    assert_eq!((done.reason, done.annotations.len()), (Reason::NotProvisioned, 0));
}

#[test]
fn a_machine_that_must_stay_on_is_reset_once_for_a_stamp() {
    let host = Host { disable_power_off: true, ..with(&[(PLAIN, HARD)]) };
    let before = change(node(Power::On), |node| node.changed = Some("1".to_owned()));
    let host = after(host.clone(), &decided(&host, &before));
    let done = decided_at(at(1_000_002), &host, &before);
    assert_eq!((done.call, reason_written(&done)), (Some(Call::Reboot), Some(Reason::Restarting)));
    let host = after(host, &done);
    let again = decided_at(at(1_000_002), &host, &before);
    assert_eq!(again.call, Some(Call::Reboot), "Ironic never took it");
    let changed = change(node(Power::On), |node| node.changed = Some("2".to_owned()));
    let done = decided_at(at(1_000_003), &host, &changed);
    assert_eq!((done.call, done.annotations.len()), (None, 1));
    assert!(done.status.last > host.pending);
}

#[test]
fn a_hold_of_a_machine_that_must_stay_on_is_refused_and_not_repeated() {
    let host = Host { disable_power_off: true, ..with(&[(HOLD, HARD)]) };
    let host = after(host.clone(), &decided(&host, &node(Power::On)));
    let host = after(host.clone(), &decided_at(at(1_000_002), &host, &node(Power::On)));
    let (call, policy) = ((Call::Reboot, &Answer::Accepted), Policy::default());
    let done = settle(&host, &node(Power::On), call, &policy, at(1_000_002));
    assert_eq!(reason_written(&done), Some(Reason::Restarting));
    let mut host = after(host, &done);
    let done = decided(&host, &node(Power::On));
    assert_eq!(reason_written(&done), Some(Reason::HoldUnsupported));
    write(&mut host, &done.status);
    assert!(decided(&host, &node(Power::On)).status.is_empty(), "it is refused for good");
    host.requests = Requests::of([(HOLD, HARD), ("reboot.metal3.io/b", "")].into_iter());
    assert_eq!(decided(&host, &node(Power::On)).call, Some(Call::Reboot), "somebody else asks");
    host.requests = Requests::default();
    assert_eq!(reason_written(&decided(&host, &node(Power::On))), Some(Reason::Completed));
}

#[test]
fn an_available_host_follows_online_only_when_that_is_wanted_and_never_a_request() {
    let policy = Policy { manage_available: true, ..Policy::default() };
    let mut host = with(&[(PLAIN, HARD)]);
    host.state = ProvisioningState::Available;
    host.conditions.clear();
    let done = decided_by(&policy, &host, &node(Power::On));
    assert_eq!((done.call, done.status.pending), (None, None));
    (host.online, host.powered_on) = (true, false);
    let done = decided_by(&policy, &host, &node(Power::Off));
    assert_eq!((done.call, done.status.last, done.annotations.len()), (Some(Call::On), None, 0));
}

#[test]
fn a_host_is_taken_over_before_its_power_is_touched_and_given_back_between_cycles() {
    let policy = Policy { takeover: true, ..Policy::default() };
    let done = decided_by(&policy, &with(&[(PLAIN, HARD)]), &node(Power::On));
    assert_eq!((done.reason, done.call), (Reason::TakenOver, None));
    let wants: [Make; 4] = [
        |host| host.needs_operator = true,
        |host| host.detached = true,
        |host| host.selected = false,
        |host| host.deleting = true,
    ];
    for (number, change) in wants.into_iter().enumerate() {
        let mut resting = Host { paused: Pause::ByUs, ..host() };
        change(&mut resting);
        let done = decided_by(&policy, &resting, &node(Power::On));
        assert_eq!(done.reason, Reason::HandedBack, "{number}");
        assert_eq!(done.annotations, [(PAUSED.to_owned(), None)].into());
        let mut cycling = cycling(&[(PLAIN, HARD)], Reason::HardPowerOff, true, 2);
        cycling.paused = Pause::ByUs;
        change(&mut cycling);
        let done = decided_by(&policy, &cycling, &heading(Power::On, Power::Off));
        assert_eq!(done.annotations.len(), 0, "{number}: in the middle of a cycle");
    }
    // Whoever switched the takeover off wants all hosts back, and each keeps being served.
    let resting = Host { paused: Pause::ByUs, ..host() };
    assert_eq!(decided_by(&policy, &resting, &node(Power::On)).annotations.len(), 0);
    let off = Policy::default();
    assert_eq!(decided_by(&off, &resting, &node(Power::On)).reason, Reason::HandedBack);
    let mut cycling = cycling(&[(PLAIN, HARD)], Reason::HardPowerOff, true, 2);
    cycling.paused = Pause::ByUs;
    let done = decided_by(&off, &cycling, &heading(Power::On, Power::Off));
    assert_eq!(done.annotations.len(), 0, "in the middle of a cycle");
}

#[test]
fn what_ironic_is_too_busy_for_is_nobodys_failure() {
    let host = cycling(&[(PLAIN, HARD)], Reason::HardPowerOff, true, 0);
    for (answer, reason) in [
        (Answer::Busy("locked".to_owned()), Some(Reason::NodeBusy)),
        (Answer::Unreachable("no connection".to_owned()), Some(Reason::IronicUnreachable)),
        (Answer::Unknown, None),
    ] {
        let call = (Call::Off, &answer);
        let done = settle(&host, &node(Power::On), call, &Policy::default(), now());
        assert_eq!(reason_written(&done), reason);
        assert_eq!((done.status.trouble, done.annotations.len()), (None, 0));
        assert!(done.status.progress.is_none_or(|progress| progress.hard), "hard is remembered");
    }
}

#[test]
fn a_driver_without_soft_power_off_is_cut_at_once() {
    let host = cycling(&[(PLAIN, "")], Reason::SoftPowerOff, false, 0);
    let call = (Call::SoftOff(seconds(60)), &Answer::Unsupported);
    let done = settle(&host, &node(Power::On), call, &Policy::default(), now());
    assert_eq!(done.next, Next::Now);
    assert!(done.status.progress.as_ref().unwrap().hard);
    let mut next = host;
    write(&mut next, &done.status);
    assert_eq!(decided(&next, &failed(Power::On)).call, Some(Call::Off));
}

#[test]
fn a_value_that_is_not_understood_is_warned_about_and_soft() {
    let done = decided(&with(&[(PLAIN, "HARD")]), &node(Power::On));
    assert_eq!(done.call, Some(Call::SoftOff(seconds(60))));
    assert!(
        done.events
            .iter()
            .any(|note| told_reason(note) == Reason::InvalidRequest && note.hourly.is_some())
    );
}
