//! Machines, resources and hosts of a small world: machine n is called `nN`, has node N and two
//! interfaces with addresses of its own.

#![allow(dead_code, reason = "each test program uses its part")]

use std::time::Duration;

use api_types::metal3::BareMetalHostDiscovery;
pub(crate) use host_discovery::inventory::Facts;
use host_discovery::inventory::Port;
use host_discovery::machine::{Machine, Reading};
use host_discovery::resource::Resource;
use host_discovery::sighting::Sighting;
use host_discovery::{Mac, NodeId};
use serde_json::{Value, json};

pub(crate) fn node(number: u8) -> NodeId {
    NodeId::from(u128::from(number))
}

pub(crate) fn mac(number: u8, nic: u8) -> Mac {
    Mac::parse(&format!("52:54:00:00:{number:02x}:{nic:02x}")).unwrap()
}

pub(crate) fn port(number: u8, nic: u8) -> Port {
    Port { mac: mac(number, nic), pxe: nic == 0 }
}

pub(crate) fn facts(number: u8) -> Facts {
    Facts {
        auto_discovered: true,
        hostname: Some(format!("n{number}").into()),
        product: Some("Anvil 3".into()),
        boot_mac: Some(mac(number, 0)),
        macs: vec![mac(number, 0), mac(number, 1)],
        cpus: 8,
        ..Facts::default()
    }
}

pub(crate) fn machine(number: u8) -> Machine {
    Machine {
        node: node(number),
        name: None,
        enrolled: true,
        last_error: None,
        unanswered: None,
        known_for: Duration::ZERO,
        ports: vec![port(number, 0), port(number, 1)],
        inventory: Reading::Facts(Box::new(facts(number))),
        had_host: false,
    }
}

/// Each of these machines by its node.
pub(crate) fn among<'a>(machines: &'a [Machine]) -> impl Fn(NodeId) -> Option<&'a Machine> {
    move |node| machines.iter().find(|it| it.node == node)
}

fn merged(mut object: Value, given: &Value, into: Option<&str>) -> Value {
    for (key, value) in given.as_object().unwrap() {
        let place = into.map_or(key.as_str(), |it| it);
        match (into, value.as_object()) {
            (None, Some(fields)) if object[place].is_object() => {
                for (key, value) in fields {
                    object[place][key] = value.clone();
                }
            }
            (None, _) => object[place] = value.clone(),
            (Some(_), _) => object[place][key] = value.clone(),
        }
    }
    object
}

pub(crate) fn resource(name: &str, spec: &Value) -> Resource {
    let object = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery",
        "metadata": {"namespace": "metal", "name": name},
        "spec": {"resourceNameTemplate": {"hardwareDetails": "hostname"}},
    });
    let read: BareMetalHostDiscovery =
        serde_json::from_value(merged(object, spec, Some("spec"))).unwrap();
    Resource::read(&read)
}

pub(crate) fn host(namespace: &str, name: &str, body: &Value) -> Sighting {
    let object = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"namespace": namespace, "name": name},
    });
    serde_json::from_value(merged(object, body, None)).unwrap()
}

/// Two machines that say that they are called `n1`.
pub(crate) fn twins() -> [Machine; 2] {
    let mut twin = machine(2);
    twin.inventory = Reading::Facts(Box::new(Facts { hostname: Some("n1".into()), ..facts(2) }));
    [machine(1), twin]
}
