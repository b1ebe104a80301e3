//! The world of discovery: machines that boot, complete and come back as another node, two replicas that see hosts late
//! and are stopped between any two steps, and a person who makes and deletes hosts.
//!
//! A person who makes a host of a machine in the same instant under another name than the controller would give it is left
//! out: the API server knows no uniqueness of addresses, so that race is open, and the page says so.

use std::collections::BTreeMap;
use std::time::Duration;

use api_types::metal3::BareMetalHostDiscovery;
use bench::model::{Progress, explore};
use host_discovery::decide::decide;
use host_discovery::index::Index;
use host_discovery::inventory::{Facts, Port};
use host_discovery::machine::{Machine, Reading};
use host_discovery::model::Observed;
use host_discovery::resource::Resource;
use host_discovery::settings::Policy;
use host_discovery::sighting::Sighting;
use host_discovery::{Mac, NodeId};
use serde_json::json;
use stateright::{Model, Property};

use crate::World;

const REPLICAS: usize = 2;
const NAMESPACE: &str = "metal";

#[derive(Clone)]
struct Racks {
    machines: u8,
    /// Whether all machines say that they have the same host name.
    alike: bool,
    /// How often a person makes or deletes a host, and a node goes.
    mischief: u8,
    resources: Vec<Resource>,
}

/// A node in Ironic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node {
    machine: u8,
    /// The first or a later one of its machine.
    turn: u8,
    complete: bool,
    marked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Host {
    name: String,
    machine: u8,
    /// The node that it was made for; none if a person made it.
    turn: Option<u8>,
}

/// A write that is still to be made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Order {
    machine: u8,
    turn: u8,
    /// The name of a new host; none: the node is marked.
    name: Option<String>,
    /// The machine's other name, which is looked at right before the write. Both are one step here.
    other: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Replica {
    /// The hosts as it last saw them.
    hosts: Vec<Host>,
    orders: Vec<Order>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// By machine.
    nodes: Vec<Option<Node>>,
    turns: Vec<u8>,
    hosts: Vec<Host>,
    replicas: Vec<Replica>,
    mischief: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Boot(u8),
    Complete(u8),
    NodeGoes(u8),
    PersonMakes(u8),
    PersonDeletes(u8),
    See(u8),
    Decide(u8),
    Write(u8),
    Crash(u8),
}

fn mac(machine: u8) -> Mac {
    Mac::parse(&format!("52:54:00:00:00:{machine:02x}")).unwrap_or_else(|| unreachable!())
}

fn id(machine: u8, turn: u8) -> NodeId {
    NodeId::from(u128::from(machine) * 256 + u128::from(turn) + 1)
}

fn resource(name: &str, created: &str) -> Resource {
    let given: BareMetalHostDiscovery = serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery",
        "metadata": { "namespace": NAMESPACE, "name": name, "creationTimestamp": created },
        "spec": { "resourceNameTemplate": { "prefix": format!("{name}-"), "hardwareDetails": "hostname" } },
    }))
    .unwrap_or_else(|_| unreachable!());
    Resource::read(&given)
}

impl Racks {
    fn hostname(&self, machine: u8) -> String {
        if self.alike { "same".to_owned() } else { format!("m{machine}") }
    }

    /// The name that a machine's host gets first.
    fn first_name(&self, machine: u8) -> String {
        format!("a-{}", self.hostname(machine))
    }

    fn machine(&self, node: Node) -> Machine {
        let own = mac(node.machine);
        let facts = Facts {
            auto_discovered: true,
            hostname: Some(self.hostname(node.machine).into()),
            boot_mac: Some(own),
            macs: vec![own],
            ..Facts::default()
        };
        Machine {
            node: id(node.machine, node.turn),
            name: None,
            enrolled: true,
            last_error: None,
            unanswered: None,
            known_for: Duration::ZERO,
            ports: if node.complete { vec![Port { mac: own, pxe: true }] } else { Vec::new() },
            inventory: if node.complete { Reading::Facts(Box::new(facts)) } else { Reading::None },
            had_host: node.marked,
        }
    }

    fn decided(&self, state: &State, replica: u8) -> Vec<Order> {
        let mut index = Index::default();
        for host in &state.replicas[usize::from(replica)].hosts {
            index.apply(&object(host));
        }
        let nodes: Vec<Node> = state.nodes.iter().flatten().copied().collect();
        let machines: Vec<Machine> = nodes.iter().map(|node| self.machine(*node)).collect();
        let seen = Observed {
            nodes: &host_discovery::nodes::Nodes::default(),
            machines: machines.iter().collect(),
            resources: &self.resources,
            hosts: &index,
            refused: &BTreeMap::new(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        let decision = decide(&seen, &Policy::default());
        let orders = decision.verdicts.iter().zip(&nodes).filter_map(|(verdict, node)| {
            if !verdict.creates() && verdict.mark.is_none() {
                return None;
            }
            let name = verdict.name.clone().filter(|_| verdict.creates());
            let named = name.as_ref().and(verdict.named.as_ref());
            let other = named.map_or_else(String::new, |named| {
                let first = name.as_ref() == Some(&named.name);
                if first { named.beside.clone().unwrap_or_default() } else { named.name.clone() }
            });
            Some(Order { machine: node.machine, turn: node.turn, name, other })
        });
        orders.collect()
    }
}

fn object(host: &Host) -> Sighting {
    let node = host.turn.map(|turn| id(host.machine, turn).to_string());
    serde_json::from_value(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {
            "namespace": NAMESPACE, "name": host.name,
            "annotations": { api_types::names::ferrite::NODE_ID: node.unwrap_or_default() },
        },
        "spec": { "bootMACAddress": mac(host.machine).to_string() },
    }))
    .unwrap_or_else(|_| unreachable!())
}

impl State {
    /// One write; whether it was what was wanted.
    fn write(&mut self, replica: u8, order: &Order) -> bool {
        let Some(name) = &order.name else {
            let node = &mut self.nodes[usize::from(order.machine)];
            if let Some(node) = node.as_mut().filter(|node| node.turn == order.turn) {
                node.marked = true;
            }
            return true;
        };
        let other = self.hosts.iter().find(|host| host.name == order.other).cloned();
        let seen = &mut self.replicas[usize::from(replica)].hosts;
        if let Some(other) = other.filter(|other| !seen.contains(other)) {
            seen.retain(|it| it.name != other.name);
            seen.push(other);
            seen.sort();
            return false;
        }
        if seen.iter().any(|host| host.machine == order.machine) {
            return false;
        }
        let there = self.hosts.iter().find(|host| host.name == *name).cloned();
        let new = there.is_none();
        let host = there.unwrap_or_else(|| Host {
            name: name.clone(),
            machine: order.machine,
            turn: Some(order.turn),
        });
        // Both what was made and what stands in its place is in the index at once.
        let seen = &mut self.replicas[usize::from(replica)].hosts;
        seen.retain(|it| it.name != host.name);
        seen.push(host.clone());
        seen.sort();
        if new {
            self.hosts.push(host);
            self.hosts.sort();
        }
        new
    }
}

impl Model for Racks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let machines = usize::from(self.machines);
        vec![State {
            nodes: vec![None; machines],
            turns: vec![0; machines],
            hosts: Vec::new(),
            replicas: vec![Replica::default(); REPLICAS],
            mischief: self.mischief,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (machine, node) in (0..).zip(&state.nodes) {
            match node {
                None if state.turns[usize::from(machine)] < 2 => {
                    actions.push(Action::Boot(machine));
                }
                Some(node) if !node.complete => actions.push(Action::Complete(machine)),
                Some(_) if state.mischief > 0 => actions.push(Action::NodeGoes(machine)),
                _ => {}
            }
            let name = self.first_name(machine);
            let taken = state.hosts.iter().any(|it| it.name == name || it.machine == machine);
            // Somebody who is about to give it another name: the race that is left out.
            let elsewhere = state.replicas.iter().flat_map(|it| &it.orders).any(|order| {
                order.machine == machine && order.name.as_ref().is_some_and(|it| *it != name)
            });
            if state.mischief > 0 && !taken && !elsewhere {
                actions.push(Action::PersonMakes(machine));
            }
        }
        if state.mischief > 0 {
            let hosts = u8::try_from(state.hosts.len()).unwrap_or(u8::MAX);
            actions.extend((0..hosts).map(Action::PersonDeletes));
        }
        for (number, replica) in (0..).zip(&state.replicas) {
            if replica.orders.is_empty() {
                actions.push(Action::Decide(number));
            } else {
                actions.extend([Action::Write(number), Action::Crash(number)]);
            }
            if replica.hosts != state.hosts {
                actions.push(Action::See(number));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Boot(machine) => {
                let turn = state.turns[usize::from(machine)];
                state.turns[usize::from(machine)] += 1;
                state.nodes[usize::from(machine)] =
                    Some(Node { machine, turn, complete: false, marked: false });
            }
            Action::Complete(machine) => {
                if let Some(node) = &mut state.nodes[usize::from(machine)] {
                    node.complete = true;
                }
            }
            Action::NodeGoes(machine) => {
                state.nodes[usize::from(machine)] = None;
                state.mischief -= 1;
            }
            Action::PersonMakes(machine) => {
                let name = self.first_name(machine);
                state.hosts.push(Host { name, machine, turn: None });
                state.hosts.sort();
                state.mischief -= 1;
            }
            Action::PersonDeletes(host) => {
                state.hosts.remove(usize::from(host));
                state.mischief -= 1;
            }
            Action::See(replica) => {
                state.replicas[usize::from(replica)].hosts.clone_from(&before.hosts);
            }
            Action::Decide(replica) => {
                state.replicas[usize::from(replica)].orders = self.decided(before, replica);
            }
            Action::Write(replica) => {
                let order = state.replicas[usize::from(replica)].orders.remove(0);
                state.write(replica, &order);
            }
            Action::Crash(replica) => {
                let hosts = before.hosts.clone();
                state.replicas[usize::from(replica)] = Replica { hosts, orders: Vec::new() };
            }
        }
        (state != *before).then_some(state)
    }

    fn format_action(&self, action: &Action) -> String {
        let replica = |number: &u8| char::from(b'a' + number);
        match action {
            Action::Boot(machine) => format!("machine-{machine}  boots"),
            Action::Complete(machine) => format!("ironic     has all of machine-{machine}"),
            Action::NodeGoes(machine) => format!("ironic     loses the node of machine-{machine}"),
            Action::PersonMakes(machine) => format!("person     makes a host of machine-{machine}"),
            Action::PersonDeletes(host) => format!("person     deletes host {host}"),
            Action::See(it) => format!("replica-{}  sees the hosts", replica(it)),
            Action::Decide(it) => format!("replica-{}  decides", replica(it)),
            Action::Write(it) => format!("replica-{}  writes", replica(it)),
            Action::Crash(it) => format!("replica-{}  is stopped and started", replica(it)),
        }
    }

    fn format_step(&self, before: &State, action: Action) -> Option<String> {
        let told = |order: &Order| match &order.name {
            Some(name) => format!("{name} for machine-{}", order.machine),
            None => format!("the mark of machine-{}", order.machine),
        };
        match action {
            Action::Decide(replica) => {
                let orders: Vec<String> = self.decided(before, replica).iter().map(told).collect();
                Some(format!("to write: {}", orders.join(", then ")))
            }
            Action::Write(replica) => {
                let order = before.replicas[usize::from(replica)].orders.first()?;
                let done = before.clone().write(replica, order);
                Some(format!(
                    "{}: {}",
                    told(order),
                    if done { "done" } else { "the name is taken" }
                ))
            }
            _ => None,
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a machine has one host at most", |racks: &Racks, state: &State| {
                (0..racks.machines)
                    .all(|it| state.hosts.iter().filter(|host| host.machine == it).count() <= 1)
            }),
            Property::sometimes("two machines are hosts", |_, state: &State| {
                state.hosts.len() == 2 || state.nodes.len() < 2
            }),
            Property::sometimes(
                "a machine that came back is a host",
                |racks: &Racks, state: &State| {
                    racks.mischief == 0 || state.hosts.iter().any(|host| host.turn == Some(1))
                },
            ),
        ]
    }
}

/// Every machine that Ironic knows whole is a host, or was one and a person deleted it.
fn none_forgotten(_: &Racks, state: &State) -> bool {
    let nodes = state.nodes.iter().flatten().filter(|node| node.complete);
    let mut all = nodes
        .map(|node| node.marked || state.hosts.iter().any(|host| host.machine == node.machine));
    all.all(|fine| fine)
}

/// A world of this size.
pub fn world(machines: u8, alike: bool, mischief: u8) -> World {
    let resources =
        vec![resource("b", "2026-01-02T00:00:00Z"), resource("a", "2026-01-01T00:00:00Z")];
    let racks = Racks { machines, alike, mischief, resources };
    let explored = move |bounds| {
        let own = |action: &Action| {
            matches!(action, Action::See(_) | Action::Decide(_) | Action::Write(_))
        };
        let name = "no machine is forgotten";
        let progress = [Progress { name, goal: none_forgotten, own }];
        explore(&racks, &progress, bounds)
    };
    let names = if alike { "one host name" } else { "own host names" };
    World {
        name: format!("{machines} machines, {names}, {mischief} mischiefs"),
        explore: Box::new(explored),
    }
}

/// Small enough for a test.
pub fn small() -> Vec<World> {
    vec![world(1, false, 2), world(2, false, 0), world(2, true, 1)]
}

/// More than a test has time for.
pub fn large() -> Vec<World> {
    vec![world(1, false, 4), world(2, false, 2), world(2, true, 1), world(3, true, 0)]
}
