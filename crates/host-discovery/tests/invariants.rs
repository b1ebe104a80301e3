//! What holds whatever happens: a small world of machines, two replicas that see hosts late and
//! stop between any two writes, and a person who makes and deletes hosts.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api_types::name::is_name;
use api_types::names::ferrite::{DISCOVERED_BY, NODE_ID};
use controller_kit::engine::ObjectKey;
use host_discovery::decide::decide;
use host_discovery::index::Index;
use host_discovery::machine::{Machine, Reading};
use host_discovery::model::Observed;
use host_discovery::reason::Reason;
use host_discovery::resource::Resource;
use host_discovery::settings::Policy;
use host_discovery::sighting::Sighting;
use host_discovery::{Mac, NodeId};
use k8s_openapi::jiff::{Timestamp, ToSpan};
use proptest::prelude::*;
use serde_json::json;
use world::{facts, host, mac, machine, node, resource};

const MACHINES: u8 = 4;

#[derive(Clone, Debug)]
enum Event {
    /// A machine posts its inventory: it has a node from now on, a new one each time.
    Boots(u8),
    /// Ironic loses the machine's node.
    Leaves(u8),
    /// A person makes a host for a machine, under a name that a discovery might choose.
    IsMade(u8, u8),
    /// A person deletes a host, by its place.
    IsDeleted(u8),
    /// A replica looks, and stops after so many writes.
    Pass { replica: usize, writes: usize },
    /// A replica's watch catches up.
    CatchesUp(usize),
    /// The resource is suspended, or is not.
    Suspended(bool),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..MACHINES).prop_map(Event::Boots),
        1 => (0..MACHINES).prop_map(Event::Leaves),
        2 => (0..MACHINES, 0..MACHINES).prop_map(|(number, name)| Event::IsMade(number, name)),
        2 => any::<u8>().prop_map(Event::IsDeleted),
        6 => (0..2_usize, 0..4_usize).prop_map(|(replica, writes)| Event::Pass { replica, writes }),
        2 => (0..2_usize).prop_map(Event::CatchesUp),
        1 => any::<bool>().prop_map(Event::Suspended),
    ]
}

fn boot_mac_of(machine: &Machine) -> Mac {
    machine.inventory.facts().and_then(|facts| facts.boot_mac).unwrap()
}

struct World {
    nodes: BTreeMap<u8, NodeId>,
    next_node: u8,
    had_host: BTreeSet<NodeId>,
    hosts: BTreeMap<ObjectKey, Sighting>,
    resource: Resource,
    replicas: [Index; 2],
    /// Nodes whose remembered host a person deleted.
    refused: BTreeSet<NodeId>,
}

impl World {
    fn new(prefix: &str) -> Self {
        let template = json!({"prefix": prefix, "hardwareDetails": "hostname"});
        Self {
            nodes: BTreeMap::new(),
            next_node: 0,
            had_host: BTreeSet::new(),
            hosts: BTreeMap::new(),
            resource: resource("racks", &json!({"resourceNameTemplate": template})),
            replicas: [Index::default(), Index::default()],
            refused: BTreeSet::new(),
        }
    }

    /// Every machine that has a node. Two machines share each host name.
    fn machines(&self) -> Vec<Machine> {
        let seen = |(number, node): (&u8, &NodeId)| Machine {
            node: *node,
            had_host: self.had_host.contains(node),
            inventory: Reading::Facts(Box::new(world::Facts {
                hostname: Some(format!("n{}", number / 2).into()),
                ..facts(*number)
            })),
            ..machine(*number)
        };
        self.nodes.iter().map(seen).collect()
    }

    fn pass(&mut self, replica: usize, writes: usize) {
        let machines = self.machines();
        let seen = Observed {
            nodes: &host_discovery::nodes::Nodes::default(),
            machines: machines.iter().collect(),
            resources: std::slice::from_ref(&self.resource),
            hosts: &self.replicas[replica],
            refused: &BTreeMap::new(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        let verdicts = decide(&seen, &Policy::default()).verdicts;
        let to_write = verdicts.into_iter().zip(&machines);
        let to_write = to_write.filter(|(it, _)| it.creates() || it.mark.is_some());
        for (verdict, machine) in to_write.take(writes) {
            let node = verdict.node;
            if !verdict.creates() {
                self.had_host.insert(node);
                continue;
            }
            let name = verdict.name.unwrap();
            assert!(!self.refused.contains(&node), "{name} was made again");
            assert!(!self.resource.spec.suspend);
            let key = ObjectKey::new("metal", &name);
            let made = json!({
                "metadata": {
                    "labels": {DISCOVERED_BY: "racks"},
                    "annotations": {NODE_ID: node.to_string()},
                },
                "spec": {"bootMACAddress": boot_mac_of(machine).to_string()},
            });
            let there = self.hosts.entry(key).or_insert_with(|| host("metal", &name, &made));
            self.replicas[replica].apply(there);
        }
    }

    fn catch_up(&mut self, replica: usize) {
        let index = &mut self.replicas[replica];
        index.listing();
        for host in self.hosts.values() {
            index.apply(host);
        }
        index.listed();
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Boots(number) => {
                let id = node(100 + self.next_node);
                if let std::collections::btree_map::Entry::Vacant(place) = self.nodes.entry(number)
                {
                    place.insert(id);
                    self.next_node += 1;
                }
            }
            Event::Leaves(number) => {
                self.nodes.remove(&number);
            }
            Event::IsMade(number, name) => {
                let name = format!("n{}", name / 2);
                let spec = json!({"spec": {"bootMACAddress": mac(number, 1).to_string()}});
                self.hosts
                    .entry(ObjectKey::new("metal", &name))
                    .or_insert_with(|| host("metal", &name, &spec));
            }
            Event::IsDeleted(place) => {
                let keys: Vec<_> = self.hosts.keys().cloned().collect();
                let Some(key) = keys.get(usize::from(place) % keys.len().max(1)) else { return };
                let Some(gone) = self.hosts.remove(key) else { return };
                // The node that it was made for, and the one that its machine has now.
                let made_for = gone.annotation(NODE_ID).and_then(NodeId::parse);
                let boot = gone.boot_mac_address().and_then(Mac::parse);
                let of_machine = self.nodes.iter().filter(|(it, _)| boot == Some(mac(**it, 0)));
                let nodes = of_machine.map(|(_, node)| *node).chain(made_for);
                self.refused.extend(nodes.filter(|node| self.had_host.contains(node)));
                // A name that becomes free is chosen again: both replicas know of it. That one of
                // them does not is what the lease is for.
                self.catch_up(0);
                self.catch_up(1);
            }
            Event::Pass { replica, writes } => self.pass(replica, writes),
            Event::CatchesUp(replica) => self.catch_up(replica),
            Event::Suspended(suspend) => self.resource.spec.suspend = suspend,
        }
    }

    /// Machines for which a discovery made hosts, and how many.
    fn made(&self) -> BTreeMap<String, usize> {
        let mut made = BTreeMap::new();
        for host in self.hosts.values().filter(|host| host.annotation(NODE_ID).is_some()) {
            *made.entry(host.boot_mac_address().unwrap().to_owned()).or_default() += 1;
        }
        made
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_machine_gets_two_hosts_and_none_is_forgotten(
        events in prop::collection::vec(events(), 0..40), prefix in "(r-)?",
    ) {
        let mut world = World::new(&prefix);
        for event in &events {
            world.happens(event);
            prop_assert!(world.made().values().all(|count| *count == 1), "{:?}", world.made());
        }
        world.resource.spec.suspend = false;
        for replica in [0, 1, 0] {
            world.catch_up(replica);
            world.pass(replica, usize::MAX);
        }
        let machines = world.machines();
        let seen = Observed {nodes: &host_discovery::nodes::Nodes::default(),
            machines: machines.iter().collect(),
            resources: std::slice::from_ref(&world.resource),
            hosts: &world.replicas[0],
            refused: &BTreeMap::new(),
            answers: true,
            allowance: 9,
            complete: true,
        };
        for verdict in decide(&seen, &Policy::default()).verdicts {
            let settled = matches!(
                verdict.reason,
                Reason::Known | Reason::KnownTwice | Reason::HostDeleted
            );
            prop_assert!(settled, "{:?}", verdict);
            prop_assert_eq!(verdict.mark, None, "at rest nothing is written");
            let refused = world.refused.contains(&verdict.node);
            prop_assert!(verdict.reason != Reason::HostDeleted || refused);
        }
    }

    #[test]
    fn every_pass_keeps_its_limits_and_gives_each_machine_one_reason(
        kinds in prop::collection::vec((0..9_u8, 0..6_u8), 0..24),
        specs in prop::collection::vec(0..8_u8, 0..4),
        allowance in 0..6_u32, complete: bool, after in 0..1000_u64,
    ) {
        let known_for = Duration::from_secs(after);
        let machines: Vec<_> =
            kinds.iter().map(|(kind, number)| Machine { known_for, ..odd(*kind, *number) }).collect();
        let resources: Vec<_> = specs.iter().zip(0_u8..).map(|(spec, at)| varied(*spec, at)).collect();
        let mut hosts = Index::default();
        hosts.apply(&host("metal", "n1", &json!({})));
        hosts.apply(&host("metal", "x", &json!({"spec": {"bootMACAddress": mac(2, 0).to_string()}})));
        let seen = Observed { nodes: &host_discovery::nodes::Nodes::default(), machines: machines.iter().collect(), resources: &resources, hosts: &hosts, refused: &BTreeMap::new(), answers: true, allowance, complete };
        let found = decide(&seen, &Policy::default());
        prop_assert_eq!(&found, &decide(&seen, &Policy::default()));
        prop_assert_eq!(found.verdicts.len(), machines.len());

        let mut names = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        let mut per_resource = BTreeMap::new();
        for (verdict, machine) in found.verdicts.iter().zip(&machines) {
            prop_assert_eq!(verdict.node, machine.node);
            prop_assert!(verdict.reason != Reason::KnownTwice || verdict.hosts.len() > 1);
            if !verdict.creates() {
                continue;
            }
            let name = verdict.name.as_ref().unwrap();
            let boot_mac = boot_mac_of(machine);
            let at = verdict.resource.unwrap();
            let resource = &resources[at];
            prop_assert!(is_name(name) && !name.contains('.') && name.len() <= 63 && !hosts.has_name(&resource.namespace, name));
            prop_assert!(names.insert((resource.namespace.clone(), name.clone())), "{} twice", name);
            prop_assert!(addresses.insert(boot_mac), "{} twice", boot_mac);
            prop_assert!(machine.ports.iter().any(|port| port.mac == boot_mac));
            prop_assert!(machine.name.is_none() && machine.enrolled);
            prop_assert!(!resource.spec.suspend && !resource.spec.dry_run && resource.template.is_some());
            *per_resource.entry(at).or_insert(0) += 1;
        }
        prop_assert!(u32::try_from(names.len()).unwrap() <= allowance);
        for (at, made) in per_resource {
            let most = resources[at].spec.max_hosts;
            prop_assert!(most.is_none_or(|most| made <= most));
        }
    }
}

/// A machine with something odd about it.
fn odd(kind: u8, number: u8) -> Machine {
    let mut it = machine(number);
    it.node = node(number * 16 + kind);
    match kind {
        1 => it.inventory = Reading::None,
        2 => it.inventory = Reading::TooLarge(Vec::new()),
        3 => it.ports.clear(),
        4 => it.name = Some("metal~x".to_owned()),
        5 => it.had_host = true,
        6 => it.last_error = Some("failed".to_owned()),
        7 => it.enrolled = false,
        8 => it.inventory = Reading::Facts(Box::default()),
        _ => {}
    }
    it
}

/// A resource with something odd about it.
fn varied(kind: u8, at: u8) -> Resource {
    let spec = match kind {
        1 => json!({"suspend": true}),
        2 => json!({"dryRun": true}),
        3 => json!({"maxHosts": 1}),
        4 => json!({"approval": "Manual"}),
        5 => json!({"selector": {"products": ["other"]}}),
        6 => json!({"resourceNameTemplate": {"prefix": "-", "hardwareDetails": "ip"}}),
        7 => json!({"rediscover": true, "includeAllNodes": true}),
        _ => json!({}),
    };
    let mut it = resource(&format!("r{at}"), &spec);
    it.created = Some(Timestamp::UNIX_EPOCH + i64::from(kind ^ at).seconds());
    it
}
