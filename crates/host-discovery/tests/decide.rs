//! The rules, one by one.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api_types::metal3::HardwareDetail;
use controller_kit::engine::ObjectKey;
use host_discovery::Mac;
use host_discovery::decide::decide;
use host_discovery::index::Index;
use host_discovery::machine::{Machine, Reading};
use host_discovery::model::{HostPlan, Observed, Verdict};
use host_discovery::naming::Unusable;
use host_discovery::nodes::Nodes;
use host_discovery::reason::{Reason, Sort};
use host_discovery::resource::Resource;
use host_discovery::settings::Policy;
use host_discovery::sighting::Sighting;
use ironic::Class;
use k8s_openapi::jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};
use world::{Facts, facts, host, mac, machine, node, port, resource, twins};

fn pass(machines: &[Machine], resources: &[Resource], hosts: &Index, allowance: u32) -> HostPlan {
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

fn one(machine: Machine, spec: &Value, hosts: &Index) -> Verdict {
    pass(&[machine], &[resource("racks", spec)], hosts, 9).verdicts.remove(0)
}

fn reason(machine: Machine, spec: &Value) -> Reason {
    one(machine, spec, &Index::default()).reason
}

fn with(hosts: &[Sighting]) -> Index {
    let mut index = Index::default();
    for host in hosts {
        index.apply(host);
    }
    index
}

#[test]
fn an_unknown_machine_becomes_a_host_with_the_templates_name_and_its_boot_address() {
    let spec = json!({"resourceNameTemplate": {"prefix": "bm-", "suffix": "-x", "hardwareDetails": "hostname"}});
    let verdict = one(machine(1), &spec, &Index::default());
    assert_eq!(verdict.reason, Reason::Created);
    assert_eq!(verdict.name.as_deref(), Some("bm-n1-x"));
    assert_eq!(verdict.resource, Some(0));
}

#[test]
fn nothing_is_done_to_a_machine_that_is_a_host_whoever_made_it() {
    let hosts = with(&[host(
        "elsewhere",
        "by-hand",
        &json!({"spec": {"bootMACAddress": mac(1, 1).to_string().to_uppercase()}}),
    )]);
    let verdict = one(machine(1), &json!({}), &hosts);
    assert_eq!((verdict.reason, verdict.mark), (Reason::Known, None));
    assert_eq!(verdict.hosts[0].to_string(), "elsewhere/by-hand");
}

#[test]
fn being_a_host_comes_before_every_complaint() {
    let hosts =
        with(&[host("a", "x", &json!({"spec": {"bootMACAddress": mac(1, 0).to_string()}}))]);
    let mut broken = machine(1);
    broken.inventory = Reading::None;
    broken.last_error = Some("lost".to_owned());
    broken.name = Some("a~x".to_owned());
    broken.enrolled = false;
    assert_eq!(one(broken, &json!({"suspend": true}), &hosts).reason, Reason::Known);
}

#[test]
fn a_host_that_was_made_for_a_node_is_remembered_with_the_node_once() {
    let made =
        json!({"metadata": {"annotations": {"ferrite.metal3.io/node-id": node(1).to_string()}}});
    let hosts = with(&[host("metal", "n1", &made)]);
    let verdict = one(machine(1), &json!({}), &hosts);
    assert_eq!(verdict.mark, Some(ObjectKey::new("metal", "n1")));
    let mut remembered = machine(1);
    remembered.had_host = true;
    assert_eq!(one(remembered, &json!({}), &hosts).mark, None);
    // A person's host is the person's business.
    let by_hand = json!({"status": {"provisioning": {"ID": node(1).to_string()}}});
    assert_eq!(one(machine(1), &json!({}), &with(&[host("metal", "n1", &by_hand)])).mark, None);
}

#[test]
fn a_node_that_came_after_ironic_lost_the_one_of_its_host_is_remembered_unless_the_host_leaves() {
    let of_another = |leaves: bool| {
        let mut made = json!({
            "metadata": {"annotations": {"ferrite.metal3.io/node-id": node(9).to_string()}},
            "spec": {"bootMACAddress": mac(1, 0).to_string()},
        });
        if leaves {
            made["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        with(&[host("metal", "n1", &made)])
    };
    let verdict = one(machine(1), &json!({}), &of_another(false));
    assert_eq!(verdict.reason, Reason::Known);
    assert_eq!(verdict.mark, Some(ObjectKey::new("metal", "n1")));
    let verdict = one(machine(1), &json!({}), &of_another(true));
    assert_eq!((verdict.reason, verdict.mark), (Reason::Known, None));
    // The node that it was made for had it, whatever becomes of it.
    let first = Machine { node: node(9), ..machine(1) };
    assert!(one(first, &json!({}), &of_another(true)).mark.is_some());
}

#[test]
fn two_hosts_of_one_machine_are_a_conflict_that_nobody_touches() {
    let spec = json!({"spec": {"bootMACAddress": mac(1, 0).to_string()}});
    let verdict =
        one(machine(1), &json!({}), &with(&[host("a", "x", &spec), host("b", "x", &spec)]));
    assert_eq!((verdict.reason, verdict.hosts.len(), verdict.mark), (Reason::KnownTwice, 2, None));
}

fn in_ironic(number: u8) -> ironic::Node {
    serde_json::from_value(json!({ "uuid": node(number).to_string() })).unwrap()
}

#[test]
fn a_host_that_claims_an_interface_does_not_swallow_the_machine_that_boots_by_it() {
    // A stranger posted an inventory with the address of machine 1 as its second interface, and is a host.
    let nics = json!([{"mac": mac(9, 0).to_string()}, {"mac": mac(1, 0).to_string()}]);
    let stranger = |by: &Value| {
        let mut body = json!({
            "spec": {"bootMACAddress": mac(9, 0).to_string()},
            "status": {"hardware": {"nics": nics}},
        });
        for (key, value) in by.as_object().unwrap() {
            body[key] = value.clone();
        }
        host("metal", "stranger", &body)
    };
    let id = node(9).to_string();
    let made = stranger(&json!({"metadata": {"annotations": {"ferrite.metal3.io/node-id": id}}}));
    let provisioned = stranger(&json!({
        "status": {"hardware": {"nics": nics}, "provisioning": {"ID": id}},
    }));
    let shown = |hosts: &Index| {
        let mut nodes = Nodes::new(9);
        nodes.note(&in_ironic(9), hosts, Instant::now());
        nodes
    };
    let judged = |machine: Machine, nodes: &Nodes, hosts: &Index, approved: bool| {
        let mut racks = resource("racks", &json!({}));
        racks.approved.extend(approved.then_some(machine.node));
        let seen = Observed {
            machines: vec![&machine],
            resources: &[racks],
            nodes,
            hosts,
            refused: &BTreeMap::new(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        decide(&seen, &Policy::default()).verdicts.remove(0)
    };
    for stranger in [&made, &provisioned] {
        let hosts = with(std::slice::from_ref(stranger));
        let verdict = judged(machine(1), &shown(&hosts), &hosts, false);
        assert_eq!((verdict.reason, &verdict.mark), (Reason::InterfaceOfAnotherHost, &None));
        assert_eq!(verdict.hosts[0].name, "stranger");
        let verdict = judged(machine(1), &shown(&hosts), &hosts, true);
        assert_eq!(verdict.reason, Reason::Created);
        // Where Ironic lost the host's node, this is the host's machine, which boots by another interface now.
        let verdict = judged(machine(1), &Nodes::new(9), &hosts, false);
        assert_eq!(verdict.reason, Reason::Known);
    }
    // When both are hosts, only the stranger's node says that they are one: nobody is advised to delete the other one.
    let own = json!({
        "metadata": {"annotations": {"ferrite.metal3.io/node-id": node(1).to_string()}},
        "spec": {"bootMACAddress": mac(1, 0).to_string()},
    });
    let hosts = with(&[made, host("metal", "n1", &own)]);
    let mut nodes = shown(&hosts);
    nodes.note(&in_ironic(1), &hosts, Instant::now());
    assert_eq!(judged(machine(1), &nodes, &hosts, false).reason, Reason::Known);
    let claims = Facts { macs: vec![mac(1, 0), mac(9, 0)], ..facts(9) };
    let machine = Machine { inventory: Reading::Facts(Box::new(claims)), ..machine(9) };
    let verdict = judged(machine, &nodes, &hosts, false);
    assert_eq!((verdict.reason, verdict.doubtful), (Reason::KnownTwice, true));
}

#[test]
fn nobody_is_advised_to_delete_a_host_on_a_machines_word_alone() {
    let boots = |mac: Mac| json!({"spec": {"bootMACAddress": mac.to_string()}});
    // A machine that names the boot addresses of two others beside its own.
    let macs = vec![mac(1, 0), mac(2, 0), mac(3, 0)];
    let claims = Facts { macs, ..facts(1) };
    let stranger = Machine { inventory: Reading::Facts(Box::new(claims)), ..machine(1) };
    let told = |hosts: &[Sighting]| {
        let verdict = one(stranger.clone(), &json!({}), &with(hosts));
        assert_eq!((verdict.reason, verdict.mark), (Reason::KnownTwice, None));
        verdict.doubtful
    };
    let others = [host("a", "two", &boots(mac(2, 0))), host("b", "three", &boots(mac(3, 0)))];
    assert!(told(&others));
    // Two that are one, and a third that shares nothing with them.
    let [two, three] = others;
    let again = host("c", "two", &boots(mac(2, 0)));
    assert!(told(&[two.clone(), again.clone(), three]));
    assert!(!told(&[two, again]));
    // What an inspection of one of them found says it as well.
    let nics = json!([{"mac": mac(3, 0).to_string()}]);
    let mut inspected = boots(mac(2, 0));
    inspected["status"] = json!({"hardware": {"nics": nics}});
    let both = [host("a", "two", &inspected), host("b", "three", &boots(mac(3, 0)))];
    assert!(!told(&both));
}

#[test]
fn a_node_that_somebody_registered_is_left_alone_even_where_all_nodes_are_taken() {
    let spec = json!({"includeAllNodes": true});
    let mut named = machine(1);
    named.name = Some("rack-7".to_owned());
    assert_eq!(reason(named, &spec), Reason::Registered);
    let mut further = machine(1);
    further.enrolled = false;
    assert_eq!(reason(further, &spec), Reason::Registered);
}

#[test]
fn a_machine_without_inventory_or_ports_is_waited_for_and_then_reported() {
    let policy = Policy::default();
    let mut without_inventory = machine(1);
    without_inventory.inventory = Reading::None;
    let mut without_ports = machine(2);
    without_ports.ports.clear();
    let resources = [resource("racks", &json!({"includeAllNodes": true}))];
    let hosts = Index::default();
    let decided = |seconds| {
        let known_for = Duration::from_secs(seconds);
        let machines =
            [&without_inventory, &without_ports].map(|it| Machine { known_for, ..it.clone() });
        let seen = Observed {
            nodes: &host_discovery::nodes::Nodes::default(),
            machines: machines.iter().collect(),
            resources: &resources,
            hosts: &hosts,
            refused: &BTreeMap::new(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        decide(&seen, &policy)
    };
    for (after, wait) in [(0, 1), (1, 1), (2, 2), (8, 5), (59, 5), (60, 60), (500, 60)] {
        let found = decided(after);
        let reasons: Vec<_> = found.verdicts.iter().map(|it| it.reason).collect();
        assert_eq!(reasons, [Reason::AwaitsInventory, Reason::AwaitsPorts]);
        assert_eq!(found.again, Some(Duration::from_secs(wait)), "after {after} s");
    }
    let found = decided(600);
    let reasons: Vec<_> = found.verdicts.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Reason::NoInventory, Reason::NoUsablePort]);
    assert_eq!(found.again, None);
}

#[test]
fn an_error_of_ironics_ends_the_waiting_and_is_told() {
    let mut ghost = machine(1);
    ghost.inventory = Reading::None;
    ghost.ports.clear();
    ghost.last_error = Some("lshw failed".to_owned());
    let verdict = one(ghost, &json!({}), &Index::default());
    assert_eq!(
        (verdict.reason, verdict.mark, verdict.again),
        (Reason::InspectionFailed, None, None)
    );
    assert_eq!((verdict.note.as_deref(), verdict.resource), (Some("lshw failed"), Some(0)));
}

#[test]
fn an_old_error_does_not_keep_a_complete_machine_from_being_a_host() {
    let mut recovered = machine(1);
    recovered.last_error = Some("power sync failed".to_owned());
    assert_eq!(reason(recovered, &json!({})), Reason::Created);
}

#[test]
fn inventories_that_cannot_be_read_and_ports_that_identify_nobody_are_failures() {
    let of = |inventory| Machine { inventory, ..machine(1) };
    let junk = Some((Class::Invalid, "expected value at line 1".to_owned()));
    for (it, expected) in [
        (of(Reading::TooLarge(Vec::new())), Reason::InventoryTooLarge),
        (Machine { unanswered: junk, ..of(Reading::Unread) }, Reason::InventoryUnreadable),
    ] {
        assert_eq!(reason(it, &json!({})), expected);
    }
    let mut zero = machine(1);
    zero.ports.clear();
    zero.known_for = Policy::default().give_up;
    assert_eq!(reason(zero, &json!({})), Reason::NoUsablePort);
    assert_eq!(Reason::NoUsablePort.sort(), Sort::Failed);
}

#[test]
fn a_failure_is_told_by_the_oldest_resource_that_takes_everything() {
    let mut ghost = machine(1);
    ghost.inventory = Reading::TooLarge(Vec::new());
    let resources = [
        resource("narrow", &json!({"selector": {"minCPUs": 2}})),
        resource("second", &json!({})),
        resource("wide", &json!({})),
    ];
    let found = pass(&[ghost.clone()], &resources, &Index::default(), 9);
    assert_eq!(found.verdicts[0].resource, Some(1));
    let found = pass(&[ghost], &resources[..1], &Index::default(), 9);
    assert_eq!(found.verdicts[0].resource, Some(0));
}

#[test]
fn the_oldest_resource_that_takes_a_machine_owns_it_in_whatever_order_they_come() {
    let mut old = resource(
        "z",
        &json!({"resourceNameTemplate": {"prefix": "old-", "hardwareDetails": "hostname"}}),
    );
    old.created = Some(Timestamp::UNIX_EPOCH);
    let mut new = resource("a", &json!({}));
    new.created = Some(Timestamp::UNIX_EPOCH + 1.seconds());
    let mut older_but_picky = resource("b", &json!({"selector": {"manufacturers": ["nobody"]}}));
    older_but_picky.created = Some(Timestamp::UNIX_EPOCH - 1.seconds());
    for resources in
        [[new.clone(), old.clone(), older_but_picky.clone()], [older_but_picky, old, new]]
    {
        let found = pass(&[machine(1)], &resources, &Index::default(), 9);
        assert_eq!(found.verdicts[0].name.as_deref(), Some("old-n1"));
        assert_eq!(resources[found.verdicts[0].resource.unwrap()].name, "z");
    }
}

#[test]
fn a_suspended_owner_keeps_its_machines_from_the_next_resource() {
    let mut old = resource("a", &json!({"suspend": true}));
    old.created = Some(Timestamp::UNIX_EPOCH);
    let resources = [old, resource("b", &json!({}))];
    let found = pass(&[machine(1)], &resources, &Index::default(), 9);
    assert_eq!(
        (found.verdicts[0].reason, found.verdicts[0].resource),
        (Reason::Suspended, Some(0))
    );
}

#[test]
fn nobodys_machine_is_nobodys() {
    assert_eq!(reason(machine(1), &json!({"selector": {"minCPUs": 1000}})), Reason::NotSelected);
    let found = pass(&[machine(1)], &[], &Index::default(), 9);
    assert_eq!((found.verdicts[0].reason, found.verdicts[0].resource), (Reason::NotSelected, None));
}

#[test]
fn a_template_that_makes_no_legal_name_makes_no_host() {
    let spec = json!({"resourceNameTemplate": {"prefix": "Rack", "hardwareDetails": "hostname"}});
    assert_eq!(reason(machine(1), &spec), Reason::TemplateInvalid);
}

#[test]
fn what_was_passed_over_for_the_name_is_told() {
    let mut nameless = machine(1);
    nameless.inventory =
        Reading::Facts(Box::new(world::Facts { hostname: Some("localhost".into()), ..facts(1) }));
    let verdict = one(nameless, &json!({}), &Index::default());
    assert_eq!(verdict.name.as_deref(), Some("52-54-00-00-01-00"));
    let passed_over = verdict.named.unwrap().passed_over;
    assert!(matches!(&passed_over[..], [(HardwareDetail::Hostname, Unusable::Placeholder(_))]));
}

#[test]
fn a_name_of_another_machine_gets_the_end_of_the_address_and_two_such_names_are_a_conflict() {
    let first = host("metal", "n1", &json!({}));
    let verdict = one(machine(1), &json!({}), &with(std::slice::from_ref(&first)));
    assert_eq!(verdict.name.as_deref(), Some("n1-000100"));
    assert_eq!(verdict.reason, Reason::Created);
    let both = with(&[first, host("metal", "n1-000100", &json!({}))]);
    let verdict = one(machine(1), &json!({}), &both);
    assert_eq!((verdict.reason, verdict.mark), (Reason::NameConflict, None));
    let told: Vec<_> = verdict.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["metal/n1", "metal/n1-000100"]);
    // The same names in another namespace are free.
    let elsewhere = with(&[host("other", "n1", &json!({}))]);
    assert_eq!(one(machine(1), &json!({}), &elsewhere).name.as_deref(), Some("n1"));
}

#[test]
fn where_no_second_name_has_room_the_first_is_given_and_its_absence_is_a_conflict() {
    let prefix = "p".repeat(60);
    let spec = json!({"resourceNameTemplate": {"prefix": prefix, "hardwareDetails": "hostname"}});
    let name = format!("{prefix}n1");
    let verdict = one(machine(1), &spec, &Index::default());
    assert_eq!((verdict.reason, verdict.name.as_deref()), (Reason::Created, Some(name.as_str())));
    let taken = with(&[host("metal", &name, &json!({}))]);
    assert_eq!(one(machine(1), &spec, &taken).reason, Reason::NameConflict);
}

#[test]
fn of_two_new_machines_of_one_name_the_second_waits_until_the_first_is_a_host() {
    let resources = [resource("racks", &json!({}))];
    let found = pass(&twins(), &resources, &Index::default(), 9);
    let reasons: Vec<_> = found.verdicts.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Reason::Created, Reason::AfterAnother]);
    assert_eq!(found.again, Some(Duration::from_secs(1)));
    let first = json!({"spec": {"bootMACAddress": mac(1, 0).to_string()}});
    let found = pass(&twins(), &resources, &with(&[host("metal", "n1", &first)]), 9);
    let told: Vec<_> = found.verdicts.iter().map(|it| (it.reason, it.name.as_deref())).collect();
    assert_eq!(told, [(Reason::Known, None), (Reason::Created, Some("n1-000200"))]);
}

#[test]
fn a_dry_run_tells_both_names_of_two_machines_at_once() {
    let resources = [resource("racks", &json!({"dryRun": true}))];
    let found = pass(&twins(), &resources, &Index::default(), 9);
    let names: Vec<_> = found.verdicts.iter().filter_map(|it| it.name.as_deref()).collect();
    assert_eq!(names, ["n1", "n1-000200"]);
}

#[test]
fn two_nodes_of_one_machine_make_one_host() {
    let mut again = machine(2);
    again.ports = vec![port(1, 1)];
    let found =
        pass(&[machine(1), again.clone()], &[resource("racks", &json!({}))], &Index::default(), 9);
    let reasons: Vec<_> = found.verdicts.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Reason::Created, Reason::AfterAnother]);
    assert_eq!(found.again, Some(Duration::from_secs(1)));
    // Also where the second only claims the first one's boot address.
    again.ports = vec![port(2, 0)];
    again.inventory = Reading::Facts(Box::new(world::Facts { macs: vec![mac(1, 0)], ..facts(2) }));
    let found = pass(&[machine(1), again], &[resource("racks", &json!({}))], &Index::default(), 9);
    assert_eq!(found.verdicts[1].reason, Reason::AfterAnother);
}

#[test]
fn a_host_that_a_person_deleted_comes_back_only_when_asked_for() {
    let mut deleted = machine(1);
    deleted.had_host = true;
    let verdict = one(deleted.clone(), &json!({}), &Index::default());
    assert_eq!((verdict.reason, verdict.mark), (Reason::HostDeleted, None));
    assert_eq!(verdict.reason.sort(), Sort::Pending);
    assert_eq!(reason(deleted.clone(), &json!({"rediscover": true})), Reason::Created);
    let mut approving = resource("racks", &json!({}));
    approving.approved.insert(node(1));
    let found = pass(&[deleted], &[approving], &Index::default(), 9);
    assert_eq!(found.verdicts[0].reason, Reason::Created);
}

#[test]
fn a_host_with_the_same_management_controller_stands_in_the_way_until_a_person_says_otherwise() {
    let bmc =
        json!({"spec": {"bmc": {"address": "redfish://192.0.2.1/x", "credentialsName": "s"}}});
    let hosts = with(&[host("metal", "typed-by-hand", &bmc)]);
    let mut behind = machine(1);
    let bmc = vec!["192.0.2.1".parse().unwrap()];
    behind.inventory = Reading::Facts(Box::new(world::Facts { bmc, ..facts(1) }));
    let verdict = one(behind.clone(), &json!({}), &hosts);
    assert_eq!((verdict.reason, verdict.mark), (Reason::BmcOfAnotherHost, None));
    assert_eq!(verdict.hosts[0].name, "typed-by-hand");
    let mut approving = resource("racks", &json!({}));
    approving.approved.insert(node(1));
    assert_eq!(pass(&[behind], &[approving], &hosts, 9).verdicts[0].reason, Reason::Created);
}

#[test]
fn without_approval_a_machine_waits_with_the_name_that_it_would_get() {
    let manual = json!({"approval": "Manual"});
    let verdict = one(machine(1), &manual, &Index::default());
    assert_eq!((verdict.reason, verdict.mark), (Reason::AwaitsApproval, None));
    assert_eq!(verdict.name.as_deref(), Some("n1"));
    let mut approving = resource("racks", &manual);
    approving.approved.insert(node(1));
    let found = pass(&[machine(1), machine(2)], &[approving], &Index::default(), 9);
    let reasons: Vec<_> = found.verdicts.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Reason::Created, Reason::AwaitsApproval]);
}

#[test]
fn no_more_hosts_are_made_than_the_resource_may_have() {
    let made = json!({"metadata": {"labels": {"ferrite.metal3.io/discovered-by": "racks"}}});
    let hosts = with(&[host("metal", "old", &made), host("other", "old", &made)]);
    let resources = [resource("racks", &json!({"maxHosts": 2}))];
    let found = pass(&[machine(1), machine(2)], &resources, &hosts, 9);
    let reasons: Vec<_> = found.verdicts.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Reason::Created, Reason::MaxHosts]);
    assert_eq!(reason(machine(1), &json!({"maxHosts": 0})), Reason::MaxHosts);
}

#[test]
fn no_more_hosts_are_made_than_the_rate_allows_and_the_rest_follows() {
    let resources = [resource("racks", &json!({}))];
    let found = pass(&[machine(1), machine(2), machine(3)], &resources, &Index::default(), 2);
    let reasons: Vec<_> = found.verdicts.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Reason::Created, Reason::Created, Reason::RateLimited]);
    assert_eq!(found.again, Some(Duration::from_millis(2)));
    assert_eq!(found.verdicts[2].note, None);
}

#[test]
fn a_machine_that_waits_for_ironic_is_not_said_to_wait_for_the_rate() {
    let alone = machine(1);
    let seen = Observed {
        nodes: &host_discovery::nodes::Nodes::default(),
        machines: vec![&alone],
        resources: &[resource("racks", &json!({}))],
        hosts: &Index::default(),
        refused: &BTreeMap::new(),
        answers: false,
        allowance: 0,
        complete: false,
    };
    let verdict = decide(&seen, &Policy::default()).verdicts.remove(0);
    assert_eq!((verdict.reason, verdict.mark), (Reason::RateLimited, None));
    assert!(verdict.note.unwrap().contains("Ironic does not answer"));
}

#[test]
fn where_new_machines_are_asked_for_often_incomplete_ones_are_looked_at_as_often() {
    let poll_interval = Duration::from_millis(200);
    let policy = Policy { poll_interval, ..Policy::default() };
    let again = |seconds| {
        let known_for = Duration::from_secs(seconds);
        let incomplete = Machine { inventory: Reading::None, known_for, ..machine(1) };
        let seen = Observed {
            nodes: &host_discovery::nodes::Nodes::default(),
            machines: vec![&incomplete],
            resources: &[],
            hosts: &Index::default(),
            refused: &BTreeMap::new(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        decide(&seen, &policy).again
    };
    assert_eq!(again(0), Some(poll_interval));
    assert_eq!(again(70), Some(Duration::from_secs(60)));
}

#[test]
fn a_dry_run_tells_the_names_writes_nothing_and_costs_no_allowance() {
    let resources = [resource("racks", &json!({"dryRun": true, "maxHosts": 1}))];
    let found = pass(&[machine(1), machine(2)], &resources, &Index::default(), 0);
    let told: Vec<_> = found.verdicts.iter().map(|it| (it.reason, it.name.as_deref())).collect();
    assert_eq!(told, [(Reason::DryRun, Some("n1")), (Reason::MaxHosts, Some("n2"))]);
    assert!(!found.verdicts.iter().any(Verdict::creates));
}

#[test]
fn approvals_are_taken_away_when_done_or_when_they_name_nobody() {
    let made = json!({"status": {"provisioning": {"ID": node(5).to_string()}}});
    let hosts = with(&[host("metal", "n5", &made)]);
    let mut racks =
        resource("racks", &json!({"approval": "Manual", "selector": {"products": ["anvil 3"]}}));
    racks.approved.extend([node(1), node(2), node(5), node(6)]);
    racks.strange_approvals.push("rack 7".to_owned());
    let mut other = machine(2);
    other.inventory = Reading::Facts(Box::new(world::Facts { product: None, ..facts(2) }));
    let machines = [machine(1), other];
    let found = pass(&machines, &[racks.clone()], &hosts, 0).approvals;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].keep.iter().copied().collect::<Vec<_>>(), [node(1)]);
    // That of node 5 is done: its machine is a host.
    assert_eq!(found[0].unknown, ["rack 7".to_owned(), node(2).to_string(), node(6).to_string()]);
    // As long as not every node was listed, nobody knows that one is not there.
    let seen = Observed {
        nodes: &host_discovery::nodes::Nodes::default(),
        machines: machines.iter().collect(),
        resources: &[racks],
        hosts: &hosts,
        refused: &BTreeMap::new(),
        answers: true,
        allowance: 0,
        complete: false,
    };
    let found = decide(&seen, &Policy::default()).approvals;
    assert_eq!(found[0].keep.len(), 2);
}

#[test]
fn approvals_that_wait_are_left_as_they_are() {
    let mut racks = resource("racks", &json!({"approval": "Manual"}));
    racks.approved.extend([node(1), node(2)]);
    let mut incomplete = machine(2);
    incomplete.inventory = Reading::None;
    let found = pass(&[machine(1), incomplete], &[racks], &Index::default(), 0);
    assert_eq!(found.approvals, []);
}
