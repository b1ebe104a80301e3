//! What a person reads in the status.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::collections::BTreeMap;

use api_types::metal3::BareMetalHostDiscoveryStatus;
use api_types::names::capi::CONDITION_READY;
use host_discovery::decide::decide;
use host_discovery::index::Index;
use host_discovery::machine::{Machine, Reading};
use host_discovery::model::{HostPlan, Observed, Reach, Report};
use host_discovery::report::{self, LONGEST_LIST, trouble, word};
use host_discovery::resource::Resource;
use host_discovery::settings::Policy;
use host_discovery::sighting::Sighting;
use host_discovery::status::{conditions, newly_failed};
use host_discovery::text::ONLY_ITS_WORD;
use k8s_openapi::jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};
use world::{among, host, mac, machine, node, resource};

fn decided(machines: &[Machine], resources: &[Resource], hosts: &Index) -> HostPlan {
    decided_with(0, machines, resources, hosts)
}

/// The same where so many hosts may be made.
fn decided_with(
    allowance: u32,
    machines: &[Machine],
    resources: &[Resource],
    hosts: &Index,
) -> HostPlan {
    let seen = Observed {
        nodes: &host_discovery::nodes::Nodes::default(),
        machines: machines.iter().collect(),
        resources,
        hosts,
        refused: &BTreeMap::new(),
        answers: true,
        allowance,
        complete: true,
    };
    decide(&seen, &Policy::default())
}

/// What is told of these machines.
fn report(at: usize, plan: &HostPlan, machines: &[Machine], known: u32, made: u32) -> Report {
    report::report(at, plan, among(machines), known, made)
}

fn written(status: &BareMetalHostDiscoveryStatus) -> Value {
    serde_json::to_value(status).unwrap()
}

fn small_world() -> (Vec<Machine>, Vec<Resource>, Index) {
    let mut ghost = machine(2);
    ghost.inventory = Reading::None;
    ghost.last_error = Some("agent: no disk".to_owned());
    let mut twin = machine(3);
    twin.inventory = Reading::Facts(Box::new(world::Facts {
        bmc: vec!["192.0.2.1".parse().unwrap()],
        ..world::facts(3)
    }));
    let mut hosts = Index::default();
    let bmc = json!({"spec": {"bmc": {"address": "192.0.2.1", "credentialsName": "s"}}});
    hosts.apply(&host("metal", "typed", &bmc));
    let racks = resource("racks", &json!({"approval": "Manual"}));
    (vec![machine(1), ghost, twin], vec![racks], hosts)
}

#[test]
fn every_machine_that_is_no_host_is_listed_with_what_a_person_needs_to_judge_it() {
    let (machines, resources, hosts) = small_world();
    let decision = decided(&machines, &resources, &hosts);
    let before = BareMetalHostDiscoveryStatus::default();
    let status = report(0, &decision, &machines, 7, 3).status(&before, Timestamp::UNIX_EPOCH);
    let written = written(&status);
    assert_eq!(
        written["counts"],
        json!({"known": 7, "created": 3, "pending": 1, "failed": 1, "conflicting": 1})
    );
    assert_eq!(
        written["pending"],
        json!([{
            "nodeID": node(1).to_string(), "proposedName": "n1", "product": "Anvil 3",
            "macs": ["52:54:00:00:01:00", "52:54:00:00:01:01"], "reason": "AwaitsApproval",
            "since": "1970-01-01T00:00:00Z",
        }])
    );
    assert_eq!(written["failures"][0]["reason"], "InspectionFailed: agent: no disk");
    assert_eq!(written["conflicts"][0]["reason"], "BmcOfAnotherHost: metal/typed");
    assert_eq!(written["conflicts"][0]["bmcAddress"], "192.0.2.1");
}

/// What the status tells of one machine.
fn listed(machine: Machine, spec: &Value, hosts: &[Sighting], list: &str) -> Value {
    let mut index = Index::default();
    for host in hosts {
        index.apply(host);
    }
    let machines = [machine];
    let decision = decided(&machines, &[resource("racks", spec)], &index);
    let before = BareMetalHostDiscoveryStatus::default();
    let status = report(0, &decision, &machines, 0, 0).status(&before, Timestamp::UNIX_EPOCH);
    written(&status)[list][0].clone()
}

#[test]
fn while_the_watch_on_hosts_is_behind_the_discovery_says_so_and_no_machine_has_failed() {
    let (machines, resources) = ([machine(1), machine(2)], [resource("racks", &json!({}))]);
    let mut plan = decided_with(2, &machines, &resources, &Index::default());
    let makers = plan.makers();
    assert_eq!(makers.len(), 1);
    let behind = "the watch told of 2 hosts of 3";
    plan.wait_for_hosts(&makers, behind.to_owned());
    let mut status = report(0, &plan, &machines, 0, 0)
        .status(&BareMetalHostDiscoveryStatus::default(), Timestamp::UNIX_EPOCH);
    assert_eq!((status.failures.len(), status.pending.len()), (0, 2));
    let told = Report { trouble: trouble(0, &plan, 0), ..Report::default() };
    conditions(&resources[0], &Reach::Answers, &told, &mut status, Timestamp::UNIX_EPOCH);
    let ready = status.conditions.iter().find(|it| it.type_ == CONDITION_READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "HostsFailed"));
    assert!(ready.message.contains(behind), "{}", ready.message);
}

#[test]
fn the_name_that_a_host_would_get_is_told_also_where_it_gets_none_now() {
    let entry = listed(machine(1), &json!({"suspend": true}), &[], "pending");
    assert_eq!((&entry["reason"], &entry["proposedName"]), (&json!("Suspended"), &json!("n1")));

    let both = ["n1", "n1-000100"].map(|name| host("metal", name, &json!({})));
    let entry = listed(machine(1), &json!({}), &both, "conflicts");
    assert_eq!(entry["reason"], "NameConflict: metal/n1, metal/n1-000100");
    assert_eq!(entry["proposedName"], "n1");
}

#[test]
fn hosts_that_only_the_machine_says_are_one_are_named_with_that() {
    let boots = |nic| json!({"spec": {"bootMACAddress": mac(1, nic).to_string()}});
    let strangers = [host("metal", "x", &boots(0)), host("metal", "y", &boots(1))];
    let entry = listed(machine(1), &json!({}), &strangers, "conflicts");
    let told = format!("KnownTwice: metal/x, metal/y: {ONLY_ITS_WORD}");
    assert_eq!(entry["reason"], told);
}

#[test]
fn no_name_is_told_where_nothing_names_a_host() {
    let template = json!({"prefix": "-", "hardwareDetails": "ip"});
    let spec = json!({"suspend": true, "resourceNameTemplate": template});
    let entry = listed(machine(1), &spec, &[], "pending");
    assert_eq!((&entry["reason"], &entry["proposedName"]), (&json!("Suspended"), &Value::Null));

    // Nor where the machine has a host, or two.
    let boots = json!({"spec": {"bootMACAddress": mac(1, 0).to_string()}});
    let twice = ["x", "y"].map(|name| host("metal", name, &boots));
    let entry = listed(machine(1), &json!({}), &twice, "conflicts");
    assert_eq!(entry["reason"], "KnownTwice: metal/x, metal/y");
    assert_eq!(entry["proposedName"], Value::Null);
}

#[test]
fn a_status_that_says_the_same_is_the_same_and_a_new_reason_has_a_new_time() {
    let (mut machines, resources, hosts) = small_world();
    let before = BareMetalHostDiscoveryStatus::default();
    let start = Timestamp::UNIX_EPOCH;
    let decision = decided(&machines, &resources, &hosts);
    let first = report(0, &decision, &machines, 7, 3).status(&before, start);
    let later = report(0, &decision, &machines, 7, 3).status(&first, start + 9.seconds());
    assert_eq!(first, later);
    machines[1].last_error = None;
    machines[1].inventory = Reading::TooLarge(Vec::new());
    let decision = decided(&machines, &resources, &hosts);
    let later = report(0, &decision, &machines, 7, 3).status(&first, start + 9.seconds());
    assert_eq!(written(&later)["failures"][0]["since"], "1970-01-01T00:00:09Z");
    assert_eq!(first.pending, later.pending);
}

#[test]
fn lists_are_bounded_and_counts_are_not() {
    let machines: Vec<_> = (0..150).map(machine).collect();
    let resources = [resource("racks", &json!({"suspend": true}))];
    let decision = decided(&machines, &resources, &Index::default());
    let before = BareMetalHostDiscoveryStatus::default();
    let status = report(0, &decision, &machines, 0, 0).status(&before, Timestamp::UNIX_EPOCH);
    assert_eq!((status.pending.len(), status.counts.unwrap().pending), (LONGEST_LIST, 150));
}

/// A machine that Ironic could not inspect.
fn failed(number: u8, reading: Reading) -> Machine {
    let last_error = Some("agent: no disk".to_owned());
    Machine { inventory: reading, last_error, ports: Vec::new(), ..machine(number) }
}

/// The status that tells of these machines.
fn told(
    machines: &[Machine],
    before: &BareMetalHostDiscoveryStatus,
) -> BareMetalHostDiscoveryStatus {
    let plan = decided(machines, &[resource("racks", &json!({}))], &Index::default());
    report(0, &plan, machines, 0, 0).status(before, Timestamp::UNIX_EPOCH)
}

/// Nodes whose inspection failed stay in Ironic for ever. What fails after a hundred of them has to be seen, and alerted on.
#[test]
fn what_failed_last_is_listed_first_and_is_news_once() {
    let mut machines: Vec<_> = (0..120).map(|number| failed(number, Reading::None)).collect();
    let before = told(&machines, &BareMetalHostDiscoveryStatus::default());
    machines.push(failed(200, Reading::TooLarge(Vec::new())));
    let after = told(&machines, &before);
    let new: Vec<_> = newly_failed(&before, &after).map(|it| (&it.node_id, word(it))).collect();
    assert_eq!(new, [(&node(200).to_string(), "InventoryTooLarge")]);
    assert_eq!(after.failures[0].node_id, node(200).to_string());
    assert_eq!(newly_failed(&after, &told(&machines, &after)).count(), 0);
}

#[test]
fn who_failed_long_ago_and_gets_a_place_in_a_list_that_was_full_is_no_news() {
    let mut machines: Vec<_> = (0..120).map(|number| failed(number, Reading::None)).collect();
    let before = told(&machines, &BareMetalHostDiscoveryStatus::default());
    // Two of those that are listed are repaired.
    machines.truncate(118);
    let after = told(&machines, &before);
    assert_eq!((after.failures.len(), newly_failed(&before, &after).count()), (100, 0));
    machines.push(failed(250, Reading::None));
    assert_eq!(newly_failed(&before, &told(&machines, &before)).count(), 1);
    // So many at once that none of the others is listed any more.
    machines.extend((120..230).map(|number| failed(number, Reading::None)));
    assert_eq!(newly_failed(&before, &told(&machines, &before)).count(), 100);
    // Whatever somebody wrote into the status meanwhile.
    let mut odd = before;
    odd.counts.as_mut().unwrap().failed = i32::MIN;
    assert_eq!(newly_failed(&odd, &told(&machines, &odd)).count(), 100);
}

#[test]
fn a_resource_does_not_tell_of_the_machines_of_another() {
    let (machines, _, hosts) = small_world();
    let mut first = resource("a", &json!({"suspend": true}));
    first.created = Some(Timestamp::UNIX_EPOCH);
    let resources = [first, resource("b", &json!({}))];
    let decision = decided(&machines, &resources, &hosts);
    let before = BareMetalHostDiscoveryStatus::default();
    let status = report(1, &decision, &machines, 0, 0).status(&before, Timestamp::UNIX_EPOCH);
    assert_eq!(status.counts.unwrap(), api_types::metal3::DiscoveryCounts::default());
}
