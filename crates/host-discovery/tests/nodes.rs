//! What is remembered of Ironic's nodes.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use controller_kit::engine::ObjectKey;
use host_discovery::decide::decide;
use host_discovery::hardware::HardwareDetails;
use host_discovery::index::Index;
use host_discovery::inventory::{Facts, Port};
use host_discovery::machine::{Machine, Reading};
use host_discovery::model::{HostPlan, Observed, Strays, Unmarked};
use host_discovery::nodes::{Look, Nodes};
use host_discovery::reason::Reason;
use host_discovery::settings::Policy;
use host_discovery::{Mac, NodeId};
use ironic::Class;
use serde_json::{Value, json};
use world::{facts, host, mac, node, port};

fn shown(number: u8, more: &Value) -> ironic::Node {
    let mut node = json!({"uuid": node(number).to_string(), "provision_state": "enroll"});
    for (key, value) in more.as_object().unwrap() {
        node[key] = value.clone();
    }
    serde_json::from_value(node).unwrap()
}

struct Known {
    nodes: Nodes,
    hosts: Index,
    at: Instant,
}

impl Known {
    fn new() -> Self {
        Self { nodes: Nodes::new(9), hosts: Index::default(), at: Instant::now() }
    }

    /// Ironic lists a node, a second after what was before. Gives what is to be written down.
    fn list(&mut self, number: u8) -> Option<Unmarked> {
        self.at += Duration::from_secs(1);
        self.note(&shown(number, &json!({})))
    }

    fn note(&mut self, node: &ironic::Node) -> Option<Unmarked> {
        self.nodes.note(node, &self.hosts, self.at);
        self.nodes.unmarked.pop_first()
    }

    /// A host of a node goes.
    fn left(&mut self, it: Unmarked) -> Option<Unmarked> {
        self.nodes.remember(it);
        self.nodes.unmarked.pop_first()
    }

    fn read(&mut self, number: u8, inventory: Reading, node: Option<ironic::Node>) {
        let ports = vec![port(number, 0)];
        let look = Look::Read { node: node.map(Box::new), inventory, details: None, ports };
        self.nodes.read(world::node(number), look, self.at);
    }

    /// A node without ports and inventory is read, of which Ironic says what went wrong.
    fn read_ghost(&mut self, number: u8, error: &str) {
        let read = Some(Box::new(shown(number, &json!({ "last_error": error }))));
        let look =
            Look::Read { node: read, inventory: Reading::None, details: None, ports: Vec::new() };
        self.nodes.read(node(number), look, self.at);
        self.judge();
    }

    fn due(&self) -> Vec<NodeId> {
        self.nodes.due(self.at, 9)
    }

    /// Decides about the only machine and settles what is to be settled. None where there is no machine.
    fn judge(&mut self) -> Option<Reason> {
        let refused = BTreeMap::new();
        let seen = Observed {
            nodes: &self.nodes,
            machines: self.nodes.machines(),
            resources: &[],
            hosts: &self.hosts,
            refused: &refused,
            answers: true,
            allowance: 9,
            complete: true,
        };
        let decision = decide(&seen, &Policy::default());
        self.nodes.settle(&decision, self.at);
        decision.verdicts.first().map(|it| it.reason)
    }

    /// A host that boots by this address; a discovery made it if there is a node.
    fn host(&mut self, name: &str, boots: Mac, node: Option<NodeId>) {
        let annotations: Value = match node {
            Some(node) => json!({ "ferrite.metal3.io/node-id": node.to_string() }),
            None => json!({}),
        };
        let body = json!({
            "metadata": { "annotations": annotations },
            "spec": { "bootMACAddress": boots.to_string() },
        });
        self.hosts.apply(&host("metal", name, &body));
    }

    fn host_goes(&mut self, name: &str) {
        self.hosts.remove(&host("metal", name, &json!({})).metadata);
    }
}

#[test]
fn a_machine_has_the_name_that_ironic_last_told() {
    let mut known = Known::new();
    known.list(1);
    let name = |known: &Known| known.nodes.machines()[0].name.clone();
    assert_eq!(name(&known), None);
    let named = shown(1, &json!({"name": "metal~x"}));
    known.note(&named);
    assert_eq!(name(&known).as_deref(), Some("metal~x"));
}

#[test]
fn a_machine_that_somebody_names_in_ironic_is_counted_until_it_has_a_host() {
    let mut known = Known::new();
    let counted = |known: &Known| {
        let plan =
            HostPlan { verdicts: Vec::new(), approvals: Vec::new(), again: None, behind: None };
        Strays::of(&plan, known.nodes.registered()).registered
    };
    known.list(1);
    assert_eq!(counted(&known), 0);
    let named = shown(1, &json!({"name": "metal~x"}));
    known.note(&named);
    assert_eq!((known.judge(), counted(&known)), (Some(Reason::Registered), 1));
    known.host("x", mac(1, 0), None);
    known.note(&named);
    assert_eq!((known.nodes.known(), counted(&known)), (1, 0));
}

#[test]
fn what_is_not_there_is_read_again_and_what_is_too_large_is_not() {
    for (reading, again) in [
        (Reading::None, true),
        (Reading::TooLarge(Vec::new()), false),
        (Reading::Facts(Box::new(facts(1))), false),
    ] {
        let mut known = Known::new();
        known.list(1);
        known.read(1, reading.clone(), None);
        assert_eq!(known.due(), []);
        known.judge();
        known.at += Duration::from_secs(5);
        known.list(1);
        assert_eq!(known.due() == [node(1)], again, "{reading:?}");
    }
}

/// A list shows its identity alone: nobody knows whether it was registered, and a node that is a host stays one.
#[test]
fn a_node_that_a_list_does_not_tell_of_waits_until_ironic_tells_of_it_alone() {
    let mut known = Known::new();
    known.host("n1", mac(1, 0), Some(node(1)));
    known.list(1);
    let ids = [1, 2, 3].map(|number| node(number).to_string());
    for _ in 0..2 {
        known.nodes.begin();
        known.nodes.note_unread(&ids, known.at);
        known.nodes.note_unread(&["no identity".to_owned()], known.at);
        known.nodes.end();
        assert_eq!((known.nodes.known(), known.due()), (1, vec![node(2), node(3)]));
    }
    // Without the node itself what it says is not enough: that is asked for, too.
    assert_eq!(known.nodes.seen(node(2)), None);
    for _ in 0..3 {
        let junk = Look::Failed(Class::Invalid, "name: expected a string".to_owned());
        known.nodes.read(node(2), junk, known.at);
    }
    assert_eq!(known.judge(), Some(Reason::InventoryUnreadable));
    let named = shown(2, &json!({"name": "metal~x"}));
    known.read(2, Reading::Facts(Box::new(facts(2))), Some(named));
    assert_eq!(known.judge(), Some(Reason::Registered));
}

/// Ten minutes without an inventory count as a failure, and end the looks at the machine.
#[test]
fn a_machine_is_known_for_as_long_as_a_list_has_shown_it() {
    let mut known = Known::new();
    known.list(1);
    known.read(1, Reading::None, None);
    known.at += Duration::from_secs(3);
    known.nodes.grow_older(known.at);
    assert_eq!(known.nodes.machines()[0].known_for, Duration::from_secs(3));
}

/// What is kept of an error that a machine posted.
fn kept(error: &str) -> String {
    let mut known = Known::new();
    known.list(1);
    known.read_ghost(1, error);
    // Lists are without it.
    known.list(1);
    known.nodes.machines()[0].last_error.clone().unwrap()
}

#[test]
fn of_a_long_error_the_end_is_kept_too_and_its_lines_become_one() {
    let cause = "Timeout reached waiting for the disks of the RAID controller";
    let text = format!("Failed to inspect:\nError {}\n{cause}\n", "in preprocess ".repeat(40));
    let long = kept(&text);
    assert!(long.starts_with("Failed to inspect: Error in preprocess"), "{long}");
    assert!(long.contains(" ... ") && long.ends_with(cause) && long.len() <= 256, "{long}");
    // What was cut once stays as it is.
    assert_eq!(kept(&long), long);
    let wide = kept(&"超".repeat(500));
    assert!(wide.len() <= 256 && wide.ends_with("超超"), "{wide}");
    let huge = kept(&format!("lshw\u{1b}[2J failed\n{}", "x".repeat(1 << 20)));
    assert!(huge.starts_with("lshw[2J failed xx") && huge.len() == 256, "{huge}");
}

#[test]
fn new_machines_are_read_before_those_that_said_nothing() {
    let mut known = Known::new();
    for number in [1, 2] {
        known.list(number);
        known.read_ghost(number, "lshw failed");
    }
    known.at += Duration::from_secs(3600);
    for number in [1, 2, 4, 3] {
        known.list(number);
    }
    assert_eq!(known.due(), [node(4), node(3), node(1), node(2)]);
    // One that somebody has to look at comes in its turn.
    known.nodes.look_at(node(2), known.at);
    assert_eq!(known.due(), [node(4), node(2), node(3), node(1)]);
}

#[test]
fn a_machine_that_is_being_read_is_not_read_twice_and_one_that_hangs_is_not_waited_for() {
    let mut known = Known::new();
    for number in [1, 2] {
        known.list(number);
    }
    known.nodes.reads(node(1), None, known.at);
    assert_eq!((known.due(), known.nodes.being_read().len()), (vec![node(2)], 1));
    known.read(2, Reading::Facts(Box::new(facts(2))), None);
    // Also if it is listed meanwhile, and nothing is known of it yet.
    known.list(1);
    assert_eq!((known.due(), known.nodes.next_look()), (vec![], None));
    assert!(known.nodes.has_unread(known.at));
    known.at += Duration::from_secs(9);
    assert!(!known.nodes.has_unread(known.at));
    // What comes of it in the end counts.
    known.read(1, Reading::Facts(Box::new(facts(1))), None);
    assert_eq!((known.due(), known.nodes.being_read().len()), (vec![], 0));
    assert!(known.nodes.machines().iter().all(|it| it.inventory.facts().is_some()));
}

#[test]
fn a_node_with_an_error_is_read_less_and_less_often_until_something_changes() {
    let mut known = Known::new();
    known.list(1);
    known.read_ghost(1, "lshw failed");
    let mut minutes = Vec::new();
    let pass = |known: &mut Known, error: &str| {
        known.at += Duration::from_secs(299);
        known.list(1);
        let is_due = !known.due().is_empty();
        if is_due {
            known.read_ghost(1, error);
        }
        is_due
    };
    for minute in (5..=290).step_by(5) {
        if pass(&mut known, "lshw failed") {
            minutes.push(minute);
        }
    }
    assert_eq!(minutes, [5, 10, 15, 25, 50, 110, 170, 230, 290]);
    // A new error is new: so is another state.
    for minute in (295..=350).step_by(5) {
        assert_eq!(pass(&mut known, "no disk"), minute == 350, "{minute}");
    }
    assert!(pass(&mut known, "no disk"));
    for _ in 0..9 {
        pass(&mut known, "no disk");
    }
    assert_eq!(known.due(), []);
    let moved = shown(1, &json!({"provision_state": "inspect failed"}));
    known.note(&moved);
    assert_eq!(known.due(), [node(1)]);
}

#[test]
fn a_node_that_ironic_fails_for_is_asked_about_less_and_less_often_and_told_after_some_failures() {
    let mut known = Known::new();
    known.list(1);
    let mut waits = Vec::new();
    for failures in 1..=6 {
        assert_eq!(known.nodes.has_unread(known.at), failures <= 3, "{failures}");
        let words = format!("request {failures} failed");
        known.nodes.read(node(1), Look::Failed(Class::Server, words), known.at);
        let told = known.nodes.machines()[0].unanswered.clone();
        // In the same words as long as it fails in the same way.
        let words = (Class::Server, "request 3 failed".to_owned());
        assert_eq!(told, (failures >= 3).then_some(words));
        let next = known.nodes.next_look().unwrap();
        waits.push(next.duration_since(known.at).as_secs());
        known.at = next;
    }
    assert_eq!(waits, [5, 20, 80, 300, 300, 300]);
    let other = Look::Failed(Class::Busy, "nobody is there".to_owned());
    known.nodes.read(node(1), other, known.at);
    let words = (Class::Busy, "nobody is there".to_owned());
    assert_eq!(known.nodes.machines()[0].unanswered, Some(words));
    // New machines go before it, and what somebody does with it has it tried again at once.
    known.at = known.nodes.next_look().unwrap();
    known.list(2);
    assert_eq!(known.due(), [node(2), node(1)]);
    known.nodes.read(node(1), Look::Failed(Class::Busy, String::new()), known.at);
    let moved = shown(1, &json!({"provision_state": "inspect failed"}));
    known.note(&moved);
    assert!(known.due().contains(&node(1)));
    known.read(1, Reading::Facts(Box::new(facts(1))), None);
    assert_eq!(known.nodes.machines()[0].unanswered, None);
    known.nodes.look_at(node(1), known.at);
    assert!(known.nodes.has_unread(known.at));
}

/// A role, a proxy or a policy may refuse one node; credentials that are not taken at all fail the next list as well.
#[test]
fn what_ironic_does_not_say_of_one_machine_is_told_of_that_machine() {
    for class in Class::ALL {
        let mut known = Known::new();
        known.list(1);
        known.list(2);
        for _ in 0..3 {
            known.nodes.read(node(1), Look::Failed(class, "no".to_owned()), known.at);
        }
        let told: Vec<_> = known.nodes.machines().iter().map(|it| it.unanswered.clone()).collect();
        assert_eq!(told, [Some((class, "no".to_owned())), None], "{class:?}");
    }
}

fn had(number: u8) -> Unmarked {
    Unmarked { node: node(number), host: ObjectKey::new("metal", &format!("n{number}")) }
}

#[test]
fn a_node_whose_host_another_process_made_and_a_person_deleted_had_one() {
    let mut known = Known::new();
    known.list(1);
    assert_eq!(known.left(had(1)), Some(had(1)));
    assert!(known.nodes.machines()[0].had_host);
    assert_eq!(known.left(had(1)), None, "it is on its way");
    // Also where no list has shown the node yet, and however often one breaks off.
    assert_eq!(known.left(had(2)), None);
    for _ in 0..2 {
        known.nodes.begin();
        assert_eq!((known.list(1), known.list(2)), (None, Some(had(2))));
    }
    assert!(known.nodes.machines()[1].had_host);
    known.nodes.end();
    assert_eq!(known.list(2), None);
}

/// Ironic may have its inventory by now, and fail to give it.
#[test]
fn machine_is_unread_while_ironic_fails_for_it_whatever_it_said_before() {
    let mut known = Known::new();
    known.list(1);
    let inventory = |known: &Known| known.nodes.machines()[0].inventory.clone();
    assert_eq!(inventory(&known), Reading::Unread);
    known.read(1, Reading::None, None);
    assert_eq!(inventory(&known), Reading::None);
    // A proxy may have answered in Ironic's place.
    for class in [Class::Timeout, Class::Invalid, Class::Server, Class::Server] {
        known.nodes.reads(node(1), None, known.at);
        assert_eq!(inventory(&known), Reading::Unread, "it may hang");
        known.nodes.read(node(1), Look::Failed(class, "500".to_owned()), known.at);
        assert_eq!(inventory(&known), Reading::Unread);
    }
    // What it told stays as long as nothing else is known.
    known.read(1, Reading::Facts(Box::new(facts(1))), None);
    known.nodes.reads(node(1), None, known.at);
    known.nodes.read(node(1), Look::Failed(Class::Server, "500".to_owned()), known.at);
    assert!(inventory(&known).facts().is_some());
}

#[test]
fn of_nodes_whose_hosts_went_no_more_are_kept_than_have_places() {
    let mut known = Known::new();
    for number in 1..=10 {
        known.left(had(number));
    }
    assert_eq!((known.list(9), known.list(10)), (None, Some(had(10))));
}

#[test]
fn a_list_that_breaks_off_does_not_forget_how_many_found_no_place() {
    let mut known = Known { nodes: Nodes::new(2), ..Known::new() };
    known.nodes.begin();
    for number in 1..=5 {
        known.list(number);
    }
    known.nodes.end();
    for shown in [1, 4] {
        known.nodes.begin();
        for number in 1..=shown {
            known.list(number);
        }
        assert_eq!(known.nodes.left_out(), 3);
    }
    known.nodes.end();
    assert_eq!(known.nodes.left_out(), 2);
}

#[test]
fn a_machine_that_another_host_claims_by_an_address_is_read_before_it_is_settled() {
    let mut known = Known::new();
    known.host("n1", mac(1, 0), Some(node(1)));
    known.host("mine", mac(1, 0), None);
    // Only one of them is known to be the machine by what a list shows.
    assert_eq!(known.list(1), Some(had(1)), "the mark waits for nothing");
    assert_eq!(known.due(), [node(1)]);
    for class in [Class::Unauthorized, Class::Busy] {
        assert_eq!(known.judge(), Some(Reason::Known));
        known.nodes.read(node(1), Look::Failed(class, String::new()), known.at);
    }
    assert_eq!(known.judge(), Some(Reason::Known));
    known.read(1, Reading::Facts(Box::new(facts(1))), None);
    for _ in 0..2 {
        assert_eq!(known.judge(), Some(Reason::KnownTwice));
        known.list(1);
        assert_eq!(known.due(), []);
    }
    known.host_goes("mine");
    assert_eq!(known.judge(), Some(Reason::Known));
    assert_eq!(known.judge(), None, "it is settled");
}

#[test]
fn a_machine_that_another_host_might_have_claimed_is_read_once() {
    let mut known = Known::new();
    // Both boot by an address that the machine does not have.
    known.host("n1", mac(7, 0), Some(node(1)));
    known.host("mine", mac(7, 0), None);
    // Also where somebody gave it a name.
    let named = shown(1, &json!({ "name": "metal~n1", "provision_state": "manageable" }));
    let list = |known: &mut Known| {
        known.at += Duration::from_secs(1);
        known.note(&named)
    };
    list(&mut known);
    assert_eq!(known.due(), [node(1)]);
    known.read(1, Reading::Facts(Box::new(facts(1))), None);
    assert_eq!(known.judge(), Some(Reason::Known));
    for _ in 0..2 {
        list(&mut known);
        assert_eq!((known.due(), known.judge(), known.nodes.known()), (vec![], None, 1));
    }
    // One whose host nobody disputes is not read at all.
    known.host("n2", mac(2, 0), Some(node(2)));
    known.list(2);
    assert_eq!((known.due(), known.judge(), known.nodes.known()), (vec![], None, 2));
    // Another host of the same machine is another matter.
    known.host_goes("n1");
    known.host("n3", mac(7, 0), Some(node(1)));
    list(&mut known);
    assert_eq!(known.due(), [node(1)]);
}

#[test]
fn a_machine_whose_host_is_no_longer_the_only_one_is_not_settled_before_it_is_read() {
    let mut known = Known::new();
    known.host("n1", mac(1, 0), Some(node(1)));
    known.list(1);
    assert_eq!(known.judge(), None, "it is settled");
    known.host("mine", mac(1, 0), None);
    let disputed = HashSet::from([ObjectKey::new("metal", "n1")]);
    known.nodes.unsettle(&disputed, known.at);
    // Ironic may be away just then.
    for _ in 0..2 {
        assert_eq!(known.judge(), Some(Reason::Known));
    }
    known.read(1, Reading::Facts(Box::new(facts(1))), None);
    assert_eq!(known.judge(), Some(Reason::KnownTwice));
}

/// What a node with the mark shows, and one without it.
fn marks() -> [Value; 2] {
    [json!({ "extra": { "ferrite_had_host": "metal/n1" } }), json!({ "extra": {} })]
}

#[test]
fn a_mark_that_a_person_took_off_is_off_and_one_that_is_on_its_way_is_not() {
    let [marked, unmarked] = marks();
    let mut known = Known::new();
    known.list(1);
    let list = |known: &mut Known, more: &Value| {
        known.note(&shown(1, more));
        known.nodes.machines()[0].had_host
    };
    known.left(had(1));
    assert!(list(&mut known, &unmarked), "Ironic does not show it yet");
    assert!(list(&mut known, &marked));
    assert!(list(&mut known, &json!({})), "the answer does not say what stands there");
    assert!(!list(&mut known, &unmarked), "somebody took it off");
    // Also where the node itself is asked.
    list(&mut known, &marked);
    known.read(1, Reading::None, Some(shown(1, &unmarked)));
    assert!(!known.nodes.machines()[0].had_host);
    known.read(1, Reading::None, Some(shown(1, &marked)));
    assert!(known.nodes.machines()[0].had_host);
    assert!(!list(&mut known, &unmarked));
}

#[test]
fn who_deletes_a_host_whose_mark_was_lost_meanwhile_does_not_get_it_back() {
    let [marked, unmarked] = marks();
    let mut known = Known::new();
    known.host("n1", mac(1, 0), Some(node(1)));
    let list = |known: &mut Known, more: &Value| {
        known.note(&shown(1, more));
    };
    list(&mut known, &marked);
    known.host_goes("n1");
    let gone = HashSet::from([ObjectKey::new("metal", "n1")]);
    known.nodes.unsettle(&gone, known.at);
    list(&mut known, &unmarked);
    assert!(known.nodes.machines()[0].had_host);
}

#[test]
fn a_mark_that_was_lost_while_the_host_is_there_is_written_again() {
    let [marked, unmarked] = marks();
    let mut known = Known::new();
    known.host("n1", mac(1, 0), Some(node(1)));
    let list = |known: &mut Known, number, more: &Value| {
        known.at += Duration::from_secs(1);
        known.note(&shown(number, more))
    };
    assert_eq!(list(&mut known, 1, &marked), None);
    assert_eq!(list(&mut known, 1, &json!({})), None, "the answer does not say what stands there");
    assert_eq!(list(&mut known, 1, &unmarked), Some(had(1)));
    assert_eq!(list(&mut known, 1, &marked), None, "it is there again");
    // A host that a person made leaves none.
    known.host("n2", mac(2, 0), None);
    let named = |more: &Value| {
        let mut more = more.clone();
        more["name"] = json!("metal~n2");
        more
    };
    assert_eq!(list(&mut known, 2, &named(&marked)), None);
    assert_eq!(list(&mut known, 2, &named(&unmarked)), None);
    assert_eq!(known.nodes.known(), 2);
}

/// Ironic shows machines, and each is read only then: it says this, with so many ports and addresses of interfaces.
fn discover(nodes: &mut Nodes, numbers: Range<u32>, nics: u8, says: &Facts) {
    let (id, at) = (|number| NodeId::from(u128::from(number)), Instant::now());
    for number in numbers.clone() {
        let listed = json!({"uuid": id(number).to_string(), "provision_state": "enroll"});
        let listed: ironic::Node = serde_json::from_value(listed).unwrap();
        nodes.note(&listed, &Index::default(), at);
    }
    for number in numbers {
        let [_, b, c, d] = number.to_be_bytes();
        let mac = |nic| Mac::parse(&format!("52:{nic:02x}:00:{b:02x}:{c:02x}:{d:02x}")).unwrap();
        let facts = Facts { macs: (0..nics).map(mac).collect(), ..says.clone() };
        let ports = facts.macs.iter().map(|mac| Port { mac: *mac, pxe: true }).collect();
        let inventory = Reading::Facts(Box::new(facts));
        let look = Look::Read { node: None, inventory, details: None, ports };
        nodes.read(id(number), look, at);
    }
}

/// What a machine with this many addresses says, each text as long.
fn saying(addresses: usize, length: usize) -> Facts {
    let text = || Some("x".repeat(length).into());
    Facts {
        hostname: text(),
        serial_number: text(),
        manufacturer: text(),
        product: text(),
        architecture: text(),
        cpu_model: text(),
        addresses: vec![IpAddr::from([10, 0, 0, 1]); addresses],
        ..Facts::default()
    }
}

#[test]
fn ten_thousand_machines_of_forty_eight_interfaces_have_room() {
    let mut nodes = Nodes::new(10_000);
    nodes.begin();
    discover(&mut nodes, 0..10_000, 48, &saying(24, 24));
    nodes.end();
    assert_eq!((nodes.machines().len(), nodes.left_out()), (10_000, 0));
}

/// More machines than there is room for, each of which says as much as is kept of one.
fn flooded() -> Nodes {
    let mut nodes = Nodes::new(10_000);
    nodes.begin();
    discover(&mut nodes, 0..3_000, 255, &saying(128, 256));
    nodes.end();
    nodes
}

#[test]
fn of_details_that_have_no_room_those_of_the_oldest_machine_go() {
    let mut known = Known::new();
    for number in 1..=9 {
        known.list(number);
        let details = HardwareDetails { text: "x".repeat(4 << 20).into(), cut: false };
        let inventory = Reading::Facts(Box::new(facts(number)));
        let (details, ports) = (Some(details), vec![port(number, 0)]);
        known.nodes.read(
            node(number),
            Look::Read { node: None, inventory, details, ports },
            known.at,
        );
    }
    assert_eq!(known.judge(), Some(Reason::NotSelected));
    let kept: Vec<u8> = (1..=9).filter(|it| known.nodes.details(node(*it)).is_some()).collect();
    assert_eq!(kept, [2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn of_machines_that_say_too_much_together_those_without_room_are_left_out_and_told() {
    let nodes = flooded();
    let kept = nodes.machines().len();
    assert!((2_000..2_500).contains(&kept), "{kept}");
    assert_eq!(nodes.left_out(), 3_000 - kept);
    // Each of them is known in full, or not at all.
    let is_whole =
        |it: &Machine| matches!(&it.inventory, Reading::Facts(facts) if facts.macs.len() == 255);
    assert!(nodes.machines().into_iter().all(is_whole));
}

#[test]
fn a_machine_is_not_read_again_and_again_while_there_is_no_room_for_what_it_says() {
    let mut nodes = flooded();
    let (late, left_out) = (NodeId::from(3_000), nodes.left_out());
    assert!(!nodes.has_room_again());
    discover(&mut nodes, 3_000..3_001, 1, &saying(0, 1));
    assert_eq!((nodes.is_machine(late), nodes.left_out()), (false, left_out + 1));
    // What goes leaves its room to others.
    let all = nodes.machines().len();
    let gone: Vec<NodeId> = nodes.machines().iter().map(|it| it.node).take(all * 2 / 3).collect();
    for node in gone {
        nodes.read(node, Look::Gone, Instant::now());
    }
    nodes.begin();
    discover(&mut nodes, 3_000..3_001, 255, &saying(128, 256));
    assert!(nodes.is_machine(late) && nodes.has_room_again());
}
