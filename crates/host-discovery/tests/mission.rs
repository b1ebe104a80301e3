//! The design's stories of people, as far as deciding plays them.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use std::collections::BTreeMap;

use host_discovery::decide::decide;
use host_discovery::index::Index;
use host_discovery::machine::{Machine, Reading};
use host_discovery::model::{Observed, Verdict};
use host_discovery::reason::Reason;
use host_discovery::settings::Policy;
use serde_json::json;
use world::{facts, host, mac, machine, node, resource};

fn verdicts(machines: &[Machine], hosts: &Index) -> Vec<Verdict> {
    let seen = Observed {
        nodes: &host_discovery::nodes::Nodes::default(),
        machines: machines.iter().collect(),
        resources: &[resource("racks", &json!({}))],
        hosts,
        refused: &BTreeMap::new(),
        answers: true,
        allowance: 9,
        complete: true,
    };
    decide(&seen, &Policy::default()).verdicts
}

/// A machine that is called `n1` and has one address, whatever its number.
fn alike(number: u8, had_host: bool) -> Machine {
    let address = "10.7.0.4".parse().unwrap();
    let facts = world::Facts {
        hostname: Some("n1".into()),
        ip: Some(address),
        addresses: vec![address],
        ..facts(number)
    };
    Machine { had_host, inventory: Reading::Facts(Box::new(facts)), ..machine(number) }
}

#[test]
fn a_machine_in_the_place_of_a_broken_one_becomes_a_host_also_behind_the_same_address_of_the_bmc() {
    let bmc = "192.0.2.1".parse().unwrap();
    let nics = [mac(1, 0), mac(1, 1)].map(|mac| json!({"mac": mac.to_string()}));
    let mut old = json!({
        "spec": {
            "bootMACAddress": mac(1, 0).to_string(),
            "bmc": {"address": "ipmi://192.0.2.1", "credentialsName": "s"},
        },
        "status": {"hardware": {"nics": nics}},
    });
    let facts = world::Facts { bmc: vec![bmc], ..facts(2) };
    let machine = Machine { inventory: Reading::Facts(Box::new(facts)), ..machine(2) };
    let reason = |old: &serde_json::Value| {
        let mut hosts = Index::default();
        hosts.apply(&host("metal", "n1", old));
        verdicts(std::slice::from_ref(&machine), &hosts).remove(0).reason
    };
    assert_eq!(reason(&old), Reason::Created);
    // One that was not inspected may be this very machine, under an address that was typed wrong.
    old["status"] = json!({});
    assert_eq!(reason(&old), Reason::BmcOfAnotherHost);
}

#[test]
fn a_machine_in_the_place_of_a_broken_one_becomes_a_host_beside_the_old_one() {
    let made = json!({
        "metadata": {"annotations": {"ferrite.metal3.io/node-id": node(1).to_string()}},
        "spec": {"bootMACAddress": mac(1, 0).to_string()},
    });
    let mut hosts = Index::default();
    hosts.apply(&host("metal", "n1", &made));
    let (broken, replacement) = (alike(1, true), alike(2, false));
    // Nobody took the broken one's node out of Ironic, or somebody did.
    for machines in [vec![broken.clone(), replacement.clone()], vec![replacement.clone()]] {
        let mut found = verdicts(&machines, &hosts);
        let last = found.pop().unwrap();
        assert_eq!((last.reason, last.name.as_deref()), (Reason::Created, Some("n1-000200")));
        assert!(found.iter().all(|it| it.reason == Reason::Known && it.mark.is_none()));
    }
    // Two hosts of two machines: neither stands in the other's way.
    let second = json!({"spec": {"bootMACAddress": mac(2, 0).to_string()}});
    hosts.apply(&host("metal", "n1-000200", &second));
    for verdict in verdicts(&[broken, replacement], &hosts) {
        assert_eq!((verdict.reason, verdict.mark), (Reason::Known, None));
        assert_eq!(verdict.hosts.len(), 1);
    }
}
