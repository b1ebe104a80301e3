//! Of which machine which resource tells, and in which words.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use controller_kit::engine::Reason as _;
use host_discovery::decide::decide;
use host_discovery::index::Index;
use host_discovery::machine::{Machine, Reading};
use host_discovery::model::{Observed, Verdict};
use host_discovery::reason::{Reason, Sort, advice};
use host_discovery::resource::Resource;
use host_discovery::settings::Policy;
use host_discovery::sighting::Sighting;
use ironic::Class;
use serde_json::{Value, json};
use world::{facts, host, mac, machine, node, resource};

/// The verdict on a machine that is there for so long.
fn after(minutes: u64, machine: &Machine, resources: &[Resource], hosts: &Index) -> Verdict {
    let machine = Machine { known_for: Duration::from_secs(minutes * 60), ..machine.clone() };
    let seen = Observed {
        nodes: &host_discovery::nodes::Nodes::default(),
        machines: vec![&machine],
        resources,
        hosts,
        refused: &BTreeMap::new(),
        answers: true,
        allowance: 9,
        complete: true,
    };
    decide(&seen, &Policy::default()).verdicts.remove(0)
}

fn silent() -> Machine {
    Machine { inventory: Reading::None, ports: Vec::new(), ..machine(1) }
}

fn index(hosts: &[Sighting]) -> Index {
    let mut index = Index::default();
    for host in hosts {
        index.apply(host);
    }
    index
}

#[test]
fn of_a_node_that_nothing_says_ironic_discovered_only_who_takes_all_nodes_is_told() {
    let [racks, all] = [json!({}), json!({"includeAllNodes": true})].map(|it| resource("r", &it));
    let mut by_hand = machine(1);
    by_hand.ports.clear();
    by_hand.inventory =
        Reading::Facts(Box::new(world::Facts { auto_discovered: false, ..facts(1) }));
    for (machine, reason) in [(silent(), Reason::NoInventory), (by_hand, Reason::NoUsablePort)] {
        let hosts = Index::default();
        let verdict = after(11, &machine, std::slice::from_ref(&racks), &hosts);
        assert_eq!((verdict.reason, verdict.resource), (Reason::NotDiscovered, None));
        assert_eq!(verdict.reason.sort(), Sort::Unlisted);
        let verdict = after(11, &machine, &[racks.clone(), all.clone()], &hosts);
        assert_eq!((verdict.reason, verdict.resource), (reason, Some(1)));
    }
    // What Ironic discovered and failed to inspect is told as before.
    let failed = Machine { last_error: Some("failed".to_owned()), ..silent() };
    let verdict = after(0, &failed, &[racks], &Index::default());
    assert_eq!((verdict.reason, verdict.resource), (Reason::InspectionFailed, Some(0)));
}

#[test]
fn a_whole_machine_that_ironic_did_not_discover_is_not_said_to_be_selected_by_nobody() {
    let mut by_hand = machine(1);
    by_hand.inventory =
        Reading::Facts(Box::new(world::Facts { auto_discovered: false, ..facts(1) }));
    let racks = [resource("racks", &json!({}))];
    assert_eq!(after(0, &by_hand, &racks, &Index::default()).reason, Reason::NotDiscovered);
    let narrow = [resource("racks", &json!({"selector": {"minCPUs": 1000}}))];
    assert_eq!(after(0, &machine(1), &narrow, &Index::default()).reason, Reason::NotSelected);
}

#[test]
fn two_hosts_of_one_machine_are_told_by_the_discovery_that_made_one_of_them() {
    let boots = |labels: &Value| json!({"metadata": {"labels": labels}, "spec": {"bootMACAddress": mac(1, 0).to_string()}});
    let ours = boots(&json!({"ferrite.metal3.io/discovered-by": "b"}));
    let theirs = boots(&json!({}));
    let resources = ["a", "b"].map(|name| resource(name, &json!({"selector": {"minCPUs": 1000}})));
    let twice = index(&[host("metal", "x", &ours), host("metal", "y", &theirs)]);
    let verdict = after(0, &machine(1), &resources, &twice);
    assert_eq!((verdict.reason, verdict.resource), (Reason::KnownTwice, Some(1)));
    // Of the same name, but in another namespace.
    let elsewhere = index(&[host("other", "x", &ours), host("metal", "y", &theirs)]);
    assert_eq!(after(0, &machine(1), &resources, &elsewhere).resource, Some(0));
    // Nobody made them: it is told by whoever would take the machine.
    let by_hand = index(&[host("metal", "x", &theirs), host("metal", "y", &theirs)]);
    // One that was enrolled by hand concerns no discovery but those that take such; of what was not read nobody knows that.
    let by_person = world::Facts { auto_discovered: false, ..facts(1) };
    for (inventory, told) in [(Reading::Facts(Box::new(by_person)), None), (Reading::None, Some(0))]
    {
        let mut enrolled = machine(1);
        enrolled.inventory = inventory;
        assert_eq!(after(0, &enrolled, &resources, &by_hand).resource, told);
    }
    let [narrow, _] = resources;
    let resources = [narrow, resource("c", &json!({"selector": {"minCPUs": 2}}))];
    assert_eq!(after(0, &machine(1), &resources, &by_hand).resource, Some(1));
}

#[test]
fn a_template_without_room_says_so() {
    let template = json!({"prefix": "p".repeat(54), "hardwareDetails": "hostname"});
    let racks = [resource("racks", &json!({"resourceNameTemplate": template}))];
    let mut long = machine(1);
    long.inventory = Reading::Facts(Box::new(world::Facts {
        hostname: Some("compute-node-01".into()),
        ..facts(1)
    }));
    let verdict = after(0, &long, &racks, &Index::default());
    assert_eq!(verdict.reason, Reason::NoName);
    let note = verdict.note.unwrap();
    assert!(note.starts_with("prefix and suffix leave no room for the value"), "{note}");
}

#[test]
fn two_discoveries_of_one_beginning_count_their_own_hosts() {
    let name = |end: u8| format!("{}.{end}", "v".repeat(100));
    let [first, second] = [1, 2].map(|end| resource(&name(end), &json!({"maxHosts": 1})));
    let labelled =
        |label: &str| json!({"metadata": {"labels": {"ferrite.metal3.io/discovered-by": label}}});
    let own = index(&[host("metal", "x", &labelled(&first.label()))]);
    assert_eq!((first.made(&own), second.made(&own)), (1, 0));
    // One whose whole name is what fits of a longer one is another, too.
    let (whole, longer) = ("x".repeat(63), "x".repeat(64));
    let [whole, longer] = [&whole, &longer].map(|name| resource(name, &json!({})));
    let of_whole = index(&[host("metal", "x", &labelled(&whole.label()))]);
    assert_eq!((whole.made(&of_whole), longer.made(&of_whole)), (1, 0));
    let short = resource("racks", &json!({}));
    assert_eq!(short.made(&index(&[host("metal", "x", &labelled("racks"))])), 1);
}

#[test]
fn a_management_controller_stands_in_the_way_by_each_of_its_addresses() {
    let bmc =
        json!({"spec": {"bmc": {"address": "redfish://[fd00::b]/x", "credentialsName": "s"}}});
    let hosts = index(&[host("metal", "typed-by-hand", &bmc)]);
    let bmc = ["192.0.2.1", "fd00::b"].map(|it| it.parse().unwrap()).to_vec();
    let facts = world::Facts { bmc, ..facts(1) };
    let behind = Machine { inventory: Reading::Facts(Box::new(facts)), ..machine(1) };
    let racks = [resource("racks", &json!({}))];
    assert_eq!(after(0, &behind, &racks, &hosts).reason, Reason::BmcOfAnotherHost);
}

/// A host of another machine that was inspected, boots by an address of its own and has an interface of machine 1.
fn sharing(name: &str, number: u8) -> Sighting {
    let nics = [mac(number, 0), mac(1, 1)].map(|mac| json!({"mac": mac.to_string()}));
    let made = json!({
        "metadata": {"annotations": {"ferrite.metal3.io/node-id": node(number).to_string()}},
        "spec": {"bootMACAddress": mac(number, 0).to_string()},
        "status": {"hardware": {"nics": nics}},
    });
    host("metal", name, &made)
}

#[test]
fn a_host_that_shares_an_interface_and_boots_by_another_stands_in_the_way_until_a_person_says_otherwise()
 {
    let hosts = [sharing("h7", 7), sharing("h8", 8)];
    let racks = [resource("racks", &json!({}))];
    let mut approving = racks.clone();
    approving[0].approved.insert(node(1));
    for hosts in [index(&hosts[..1]), index(&hosts)] {
        // None of them is said to be wrong, and it is not written down that the machine had one of them.
        let verdict = after(0, &machine(1), &racks, &hosts);
        assert_eq!((verdict.reason, verdict.mark), (Reason::InterfaceOfAnotherHost, None));
        assert_eq!((verdict.reason.sort(), verdict.resource), (Sort::Conflicting, Some(0)));
        assert_eq!(verdict.hosts.len(), hosts.len());
        assert_eq!(after(0, &machine(1), &approving, &hosts).reason, Reason::Created);
    }
    // Also where a mark says that the machine had a host: it may be about one of these, which are there.
    let marked = Machine { had_host: true, ..machine(1) };
    let reason_of = |hosts: &Index| after(0, &marked, &racks, hosts).reason;
    assert_eq!(reason_of(&index(&hosts)), Reason::InterfaceOfAnotherHost);
    assert_eq!(reason_of(&Index::default()), Reason::HostDeleted);
    let advice = advice(Reason::InterfaceOfAnotherHost.as_str()).unwrap();
    assert!(advice.contains("approve") && !advice.contains("delete"), "{advice}");
    // Beside the host that the machine is, they say nothing.
    let own = host("a", "own", &json!({"spec": {"bootMACAddress": mac(1, 0).to_string()}}));
    let [shared, _] = hosts;
    let verdict = after(0, &machine(1), &racks, &index(&[shared.clone(), own]));
    assert_eq!((verdict.reason, verdict.hosts.len()), (Reason::Known, 1));
    // Of a machine of which only the ports are known nothing is settled by it.
    let unread = Machine { inventory: Reading::None, ..machine(1) };
    assert_eq!(after(0, &unread, &racks, &index(&[shared])).reason, Reason::AwaitsInventory);
}

#[test]
fn a_machine_that_ironic_fails_for_again_and_again_is_told_in_its_words() {
    let words = "GET /v1/nodes/x/inventory: 500: no such container".to_owned();
    let racks = [resource("racks", &json!({}))];
    for (class, reason) in
        [(Class::Server, Reason::IronicFails), (Class::Invalid, Reason::InventoryUnreadable)]
    {
        let unanswered = Some((class, words.clone()));
        let failed = Machine { unanswered: unanswered.clone(), ..silent() };
        let verdict = after(11, &failed, &racks, &Index::default());
        assert_eq!((verdict.reason, verdict.resource), (reason, Some(0)));
        assert_eq!((verdict.reason.sort(), verdict.again), (Sort::Failed, None));
        assert_eq!(verdict.note.as_ref(), Some(&words));
        // What it said before about itself is enough for a host.
        let read = Machine { unanswered, ..machine(1) };
        assert_eq!(after(11, &read, &racks, &Index::default()).reason, Reason::Created);
    }
}
