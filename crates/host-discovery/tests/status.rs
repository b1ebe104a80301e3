//! The conditions.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::time::{Duration, Instant};

use api_types::metal3::{BareMetalHostDiscoveryStatus, DiscoveryCounts, ListedHost};
use controller_kit::engine::ObjectKey;
use host_discovery::decide::decide;
use host_discovery::index::Index;
use host_discovery::model::{HostPlan, Observed, Reach, Report, Strays};
use host_discovery::nodes::Nodes;
use host_discovery::reason::{Reason, advice};
use host_discovery::refusals::{Cause, Refusals};
use host_discovery::report::trouble;
use host_discovery::settings::Policy;
use host_discovery::status::{conditions, notes};
use ironic::Class;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use world::{machine, node, resource};

/// Reason and message.
fn said(reach: &Reach, report: &Report, kind: &str) -> (String, String) {
    let mut status = BareMetalHostDiscoveryStatus::default();
    let racks = resource("racks", &json!({}));
    conditions(&racks, reach, report, &mut status, Timestamp::UNIX_EPOCH);
    let found = status.conditions.into_iter().find(|it| it.type_ == kind).unwrap();
    (found.reason, found.message)
}

#[test]
fn other_words_of_a_silent_ironic_are_taken_a_minute_later_and_another_reason_at_once() {
    let (mut reach, at) = (Reach::Answers, Instant::now());
    let told = |reach: &Reach| said(reach, &Report::default(), "IronicReachable");
    let mut hear = |class, text: &str, after| {
        reach.silent(class, text.to_owned(), at + Duration::from_secs(after));
        told(&reach)
    };
    let is = |reason: &str, text: &str| (reason.to_owned(), text.to_owned());
    assert_eq!(hear(Class::Unreachable, "no route", 0), is("Unreachable", "no route"));
    assert_eq!(hear(Class::Unreachable, "no name", 59), is("Unreachable", "no route"));
    assert_eq!(hear(Class::Unreachable, "no name", 60), is("Unreachable", "no name"));
    assert_eq!(hear(Class::Unauthorized, "who?", 61), is("AuthFailed", "who?"));
}

#[test]
fn a_resource_is_told_of_its_own_hosts_that_could_not_be_made() {
    let mut wide = resource("wide", &json!({}));
    wide.created = Some(Timestamp::UNIX_EPOCH);
    let resources = [wide, resource("other", &json!({}))];
    let (machines, hosts) = ([machine(1), machine(2), machine(3)], Index::default());
    let mut refusals = Refusals::default();
    let (at, quota) = (Instant::now(), "metal/n: exceeded quota");
    let refused = |name| Cause::Refused(ObjectKey::new("metal", name));
    refusals.failed(node(1), refused("n1"), quota, at, 0.0);
    refusals.failed(node(2), refused("n2"), quota, at, 0.0);
    refusals.failed(node(3), Cause::Unknown, "metal/n3: timed out", at, 0.0);
    let seen = Observed {
        nodes: &Nodes::default(),
        machines: machines.iter().collect(),
        resources: &resources,
        hosts: &hosts,
        refused: refusals.all(),
        answers: true,
        allowance: 9,
        complete: true,
    };
    let mut plan = decide(&seen, &Policy::default());
    assert_eq!(trouble(1, &plan, 0), None);
    let ready = |plan: &HostPlan| {
        // Not all machines were read: what is refused is told all the same.
        let report = Report { trouble: trouble(0, plan, 0), strays: None, ..Report::default() };
        said(&Reach::Answers, &report, "Ready")
    };
    let (reason, text) = ready(&plan);
    assert_eq!(reason, "HostsRefused");
    assert!(text.contains("2 hosts") && text.ends_with(quota), "{text}");
    plan.verdicts.retain(|it| it.reason != Reason::HostRefused);
    let (reason, text) = ready(&plan);
    assert_eq!(reason, "HostsFailed");
    assert!(text.ends_with("metal/n3: timed out"), "{text}");
}

/// The message of `Ready`, with what it was before.
fn ready(
    spec: &Value,
    counts: DiscoveryCounts,
    strays: Option<Strays>,
    before: Vec<Condition>,
) -> Vec<Condition> {
    let mut status = BareMetalHostDiscoveryStatus {
        conditions: before,
        counts: Some(counts),
        ..BareMetalHostDiscoveryStatus::default()
    };
    let report = Report { strays, ..Report::default() };
    let racks = resource("racks", spec);
    conditions(&racks, &Reach::Answers, &report, &mut status, Timestamp::UNIX_EPOCH);
    status.conditions.into_iter().filter(|it| it.type_ == "Ready").collect()
}

#[test]
fn ready_tells_of_machines_that_are_held_back_or_nobodys_and_how_to_approve() {
    let counts = DiscoveryCounts { conflicting: 2, failed: 1, ..DiscoveryCounts::default() };
    let strays = Some(Strays { unselected: 3, undiscovered: 0, registered: 2 });
    let manual = json!({"approval": "Manual"});
    let first = ready(&manual, counts, strays, Vec::new());
    let text = &first[0].message;
    assert_eq!((first[0].status.as_str(), first[0].reason.as_str()), ("True", "Discovering"));
    for part in [
        "the annotation ferrite.metal3.io/approve names their nodeID",
        "2 machines are held back because of other hosts, see status.conflicts",
        "1 machine cannot become a host, see status.failures",
        "3 machines are selected by no discovery",
        "2 machines are left alone without a host, named in Ironic or past the state enroll",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("without a name"), "{text}");
    // A process that has not counted yet says no less than the one before.
    let later = ready(&manual, DiscoveryCounts::default(), None, first.clone());
    assert_eq!(later[0].message, first[0].message);
    // Nor does it say that what stood in the way is over.
    for reason in ["HostsRefused", "HostsFailed", "TooManyMachines", "BmcAddressUncompared"] {
        let before = Condition {
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message: "too many".to_owned(),
            last_transition_time: Time(Timestamp::MIN),
            ..first[0].clone()
        };
        let counts = DiscoveryCounts::default;
        let uncounted = ready(&json!({}), counts(), None, vec![before.clone()]);
        assert_eq!(uncounted, std::slice::from_ref(&before));
        let counted = ready(&json!({}), counts(), Some(Strays::default()), vec![before]);
        assert_eq!(counted[0].status, "True", "{reason}");
    }
    let none = Some(Strays::default());
    let fine = ready(&json!({}), DiscoveryCounts::default(), none, Vec::new());
    assert_eq!(fine[0].message, "machines that Ironic discovers become hosts");
}

#[test]
fn the_event_of_a_machine_that_waits_says_what_to_do() {
    let listed = |reason: &str, macs: &[&str]| ListedHost {
        node_id: "0f92160d".to_owned(),
        reason: Some(reason.to_owned()),
        macs: macs.iter().map(|mac| (*mac).to_owned()).collect(),
        ..ListedHost::default()
    };
    let before = BareMetalHostDiscoveryStatus::default();
    let after = BareMetalHostDiscoveryStatus {
        pending: vec![listed("AwaitsApproval", &["52:54:00:00:00:01"])],
        failures: vec![listed("NoInventory", &[])],
        ..BareMetalHostDiscoveryStatus::default()
    };
    let told = notes(&before, &after, &Report::default());
    assert_eq!(told[0].reason, "AwaitsApproval");
    assert!(told[0].text.contains("ferrite.metal3.io/approve"), "{}", told[0].text);
    assert_eq!(told[1].text, "Node 0f92160d (no name): NoInventory");
}

/// It holds back every host with a BMC until a person acts.
#[test]
fn a_node_that_ironic_fails_for_is_told_where_hosts_with_a_bmc_wait_for_it() {
    let why = "no host with a BMC is made: Ironic fails for node 0f92160d".to_owned();
    let trouble = Some(("BmcAddressUncompared", why.clone()));
    let ready = said(&Reach::Answers, &Report { trouble, ..Report::default() }, "Ready");
    assert_eq!(ready, ("BmcAddressUncompared".to_owned(), why));
    let waits = |reason: &str| {
        let entry = ListedHost { reason: Some(reason.to_owned()), ..ListedHost::default() };
        let pending = vec![entry];
        let before = BareMetalHostDiscoveryStatus::default();
        let after = BareMetalHostDiscoveryStatus { pending, ..before.clone() };
        notes(&before, &after, &Report::default()).len()
    };
    assert_eq!((waits("BmcAddressUncompared"), waits("RateLimited")), (1, 0));
}

#[test]
fn an_approval_of_a_machine_that_somebody_named_is_told_with_that_cause() {
    let text = host_discovery::text::unknown_approval("0f92160d");
    for cause in ["unknown to Ironic", "already a host", "another discovery", "named in Ironic"] {
        assert!(text.contains(cause), "{cause}: {text}");
    }
}

#[test]
fn an_event_advises_to_delete_a_host_only_where_the_hosts_themselves_say_that_they_are_one() {
    let told = |is_doubtful: bool| {
        let entry = ListedHost {
            node_id: "0f92160d".to_owned(),
            reason: Some("KnownTwice: metal/x, metal/y".to_owned()),
            ..ListedHost::default()
        };
        let doubtful = is_doubtful.then(|| entry.node_id.clone()).into_iter().collect();
        let report = Report { conflicts: vec![entry], doubtful, ..Report::default() };
        let before = BareMetalHostDiscoveryStatus::default();
        let after = report.status(&before, Timestamp::UNIX_EPOCH);
        notes(&before, &after, &report).remove(0).text
    };
    let advice = advice("KnownTwice").unwrap();
    assert!(told(false).ends_with(&format!(": {advice}")), "{}", told(false));
    // Both may be one node of Ironic, which goes with either unless that one is paused.
    let steps = ["pause the wrong one", "baremetalhost.metal3.io/paused", "delete it", "finalizer"];
    let places = steps.map(|step| advice.find(step).unwrap());
    assert!(places.is_sorted(), "{advice}");
    assert!(told(true).ends_with("KnownTwice: metal/x, metal/y"), "{}", told(true));
}

#[test]
fn a_resource_makes_no_hosts_before_an_older_one_that_nobody_can_read_is_corrected() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let unread = |second| ObjectMeta {
        namespace: Some("metal".to_owned()),
        name: Some("odd".to_owned()),
        creation_timestamp: Some(Time(at(second))),
        ..ObjectMeta::default()
    };
    let mut racks = resource("racks", &json!({}));
    racks.created = Some(at(10));
    racks.give_way(&unread(11));
    assert_eq!(racks.behind, None);
    racks.give_way(&unread(9));

    let mut status = BareMetalHostDiscoveryStatus::default();
    conditions(&racks, &Reach::Answers, &Report::default(), &mut status, at(12));
    let ready = status.conditions.iter().find(|it| it.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "OlderUndecodable"));
    assert!(ready.message.starts_with("metal/odd is older"), "{}", ready.message);

    let refused = Refusals::default();
    let alone = machine(1);
    let seen = Observed {
        nodes: &Nodes::default(),
        machines: vec![&alone],
        resources: &[racks],
        hosts: &Index::default(),
        refused: refused.all(),
        answers: true,
        allowance: 9,
        complete: true,
    };
    let decision = decide(&seen, &Policy::default());
    let verdict = &decision.verdicts[0];
    assert_eq!((verdict.reason, &verdict.mark), (Reason::Suspended, &None));
    assert!(verdict.note.as_ref().unwrap().starts_with("metal/odd is older"), "{verdict:?}");
}
