//! Which machines are hosts already, and what it costs to ask.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use controller_kit::engine::ObjectKey;
use host_discovery::index::{Change, Index, Known};
use host_discovery::inventory::{Facts, Port};
use host_discovery::sighting::Sighting;
use host_discovery::{Mac, NodeId};
use proptest::prelude::*;
use serde_json::{Value, json};

const NODE: &str = "0f92160d-b665-4476-943a-f4dd47419207";

fn node() -> NodeId {
    NodeId::parse(NODE).unwrap()
}

fn host(namespace: &str, name: &str, body: &Value) -> Sighting {
    let mut object = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}.{name}")},
    });
    for (key, value) in body.as_object().unwrap() {
        if key == "metadata" {
            for (key, value) in value.as_object().unwrap() {
                object["metadata"][key] = value.clone();
            }
        } else {
            object[key] = value.clone();
        }
    }
    serde_json::from_value(object).unwrap()
}

fn index(hosts: &[Sighting]) -> Index {
    let mut index = Index::default();
    for host in hosts {
        index.apply(host);
    }
    index
}

fn port(text: &str) -> Port {
    Port { mac: Mac::parse(text).unwrap(), pxe: false }
}

fn claims(text: &str) -> Facts {
    Facts { macs: vec![Mac::parse(text).unwrap()], ..Facts::default() }
}

/// Names of the hosts that a node with this port is.
fn by_port(index: &Index, mac: &str) -> Vec<String> {
    let known = index.known(NodeId::from(1), None, &[port(mac)], None, |_| false);
    known.into_iter().map(|known| known.host.to_string()).collect()
}

#[test]
fn a_machine_is_known_by_any_port_in_any_case_and_any_namespace() {
    let index = index(&[
        host("a", "one", &json!({"spec": {"bootMACAddress": "52:54:00:AA:00:01"}})),
        host(
            "b",
            "two",
            &json!({"status": {"hardware": {"nics": [
                {"mac": "52-54-00-aa-00-02"}, {"mac": "52:54:00:AA:00:03"}
            ]}}}),
        ),
    ]);
    assert_eq!(by_port(&index, "52:54:00:aa:00:01"), ["a/one"]);
    assert_eq!(by_port(&index, "52:54:00:aa:00:02"), ["b/two"]);
    assert_eq!(by_port(&index, "52:54:00:aa:00:03"), ["b/two"]);
    assert!(by_port(&index, "52:54:00:aa:00:04").is_empty());
    let ports = [port("52:54:00:aa:00:09"), port("52:54:00:aa:00:03")];
    assert_eq!(index.known(NodeId::from(1), None, &ports, None, |_| false).len(), 1);
}

#[test]
fn a_machine_is_known_by_its_identifier_wherever_that_stands() {
    let status =
        json!({"provisioning": {"ID": NODE}, "operationalStatus": "discovered", "unknown": [1]});
    // As those write it who copy a status with all its fields: the operator reads that as well.
    let whole = json!({"provisioning": {"ID": NODE, "image": null}, "hardware": null});
    for body in [
        json!({"status": {"provisioning": {"ID": NODE.to_uppercase()}}}),
        json!({"metadata": {"annotations": {"baremetalhost.metal3.io/status": status.to_string()}}}),
        json!({"metadata": {"annotations": {"baremetalhost.metal3.io/status": whole.to_string()}}}),
        json!({"metadata": {"annotations": {"ferrite.metal3.io/node-id": NODE}}}),
    ] {
        let index = index(&[host("a", "one", &body)]);
        assert_eq!(index.known(node(), None, &[], None, |_| false).len(), 1, "{body}");
        assert!(index.has_node(node()), "{body}");
        assert!(index.known(NodeId::from(1), None, &[], None, |_| false).is_empty());
    }
}

#[test]
fn a_machine_is_known_by_addresses_that_wait_in_annotations() {
    let details = json!({"nics": [{"mac": "52:54:00:aa:00:05"}, {"name": "no address"}]});
    let status = json!({
        "provisioning": null, "hardware": {"nics": [{"mac": null}, {"mac": "52:54:00:aa:00:06"}]},
    });
    let annotations = json!({
        "inspect.metal3.io/hardwaredetails": details.to_string(),
        "baremetalhost.metal3.io/status": status.to_string(),
    });
    let index = index(&[host("a", "one", &json!({"metadata": {"annotations": annotations}}))]);
    for mac in ["52:54:00:aa:00:05", "52:54:00:aa:00:06"] {
        assert_eq!(by_port(&index, mac), ["a/one"]);
    }
}

#[test]
fn a_machine_is_known_by_the_name_that_its_node_bears() {
    let index = index(&[host("metal", "n1", &json!({}))]);
    let known = |name| index.known(NodeId::from(1), Some(name), &[], None, |_| false).len();
    assert_eq!(known("metal~n1"), 1);
    assert_eq!((known("other~n1"), known("n1"), known("metal/n1")), (0, 0, 0));
}

#[test]
fn an_address_that_many_machines_have_makes_them_one_only_where_they_boot_by_it() {
    let shared = "52:54:00:aa:00:ee";
    let index = index(&[
        host("a", "nic", &json!({"status": {"hardware": {"nics": [{"mac": shared}]}}})),
        host("a", "boot", &json!({"spec": {"bootMACAddress": "52:54:00:aa:00:01"}})),
    ]);
    let claimed =
        |mac| index.known(NodeId::from(1), None, &[], Some(&claims(mac)), |_| false).len();
    assert_eq!(claimed(shared), 0);
    assert_eq!(claimed("52:54:00:aa:00:01"), 1);
    assert_eq!(by_port(&index, shared), ["a/nic"]);
}

#[test]
fn addresses_that_identify_nobody_make_nobody_known() {
    let zero = "00:00:00:00:00:00";
    let index = index(&[
        host("a", "one", &json!({"spec": {"bootMACAddress": zero}})),
        host("a", "two", &json!({"status": {"provisioning": {"ID": "temporary"}}})),
    ]);
    assert!(by_port(&index, zero).is_empty());
    assert_eq!(index.len(), 2);
}

#[test]
fn two_hosts_of_one_machine_are_both_told_in_the_order_of_their_names() {
    let spec = json!({"spec": {"bootMACAddress": "52:54:00:aa:00:01"}});
    let mut index = index(&[host("b", "x", &spec), host("a", "y", &spec), host("a", "x", &spec)]);
    assert_eq!(by_port(&index, "52:54:00:aa:00:01"), ["a/x", "a/y", "b/x"]);
    index.remove(&host("a", "y", &spec).metadata);
    index.remove(&host("b", "x", &spec).metadata);
    assert_eq!(by_port(&index, "52:54:00:aa:00:01"), ["a/x"]);
}

#[test]
fn of_many_hosts_with_one_address_ten_are_told() {
    let spec = json!({"spec": {"bootMACAddress": "52:54:00:aa:00:01"}});
    let hosts: Vec<_> = (0..1000).map(|it| host("a", &format!("h{it:03}"), &spec)).collect();
    let mut index = Index::default();
    let mut told = 0;
    for host in &hosts {
        told += index.take(host).1.len();
    }
    assert!((999..=10_000).contains(&told), "all heard of another one, and none of all: {told}");
    assert_eq!(by_port(&index, "52:54:00:aa:00:01").len(), 10);
    for host in &hosts[1..] {
        index.remove(&host.metadata);
    }
    assert_eq!(by_port(&index, "52:54:00:aa:00:01"), ["a/h000"]);
}

#[test]
fn a_host_that_changes_is_no_longer_known_by_what_it_was() {
    let mut index =
        index(&[host("a", "x", &json!({"spec": {"bootMACAddress": "52:54:00:aa:00:01"}}))]);
    index.apply(&host("a", "x", &json!({"spec": {"bootMACAddress": "52:54:00:aa:00:02"}})));
    assert!(by_port(&index, "52:54:00:aa:00:01").is_empty());
    assert_eq!(by_port(&index, "52:54:00:aa:00:02"), ["a/x"]);
    assert_eq!(index.len(), 1);
}

#[test]
fn news_of_a_deletion_do_not_reach_the_next_host_of_that_name() {
    let old = host("a", "x", &json!({"metadata": {"uid": "old"}}));
    let new = host("a", "x", &json!({"metadata": {"uid": "new"}}));
    let mut index = index(&[new]);
    index.remove(&old.metadata);
    assert!(index.has_name("a", "x"));
}

#[test]
fn a_host_that_went_stays_away_whenever_the_request_for_it_is_answered() {
    let annotations = json!({"ferrite.metal3.io/node-id": NODE});
    let made =
        |uid: &str| host("a", "x", &json!({"metadata": {"uid": uid, "annotations": annotations}}));
    let gone = |known: &[Known]| {
        assert_eq!((known[0].host.name.as_str(), known[0].made_for), ("x", Some(node())));
    };
    let mut index = index(&[made("old")]);
    let Change::Gone(known) = index.remove(&made("old").metadata) else { panic!("it is there") };
    gone(&[known]);
    assert_eq!(index.answer(&made("old")), Change::None);
    assert!(index.is_empty());
    // The same where a list no longer shows it. Another one of that name is another one.
    assert_eq!(index.answer(&made("new")), Change::More);
    index.listing();
    gone(&index.listed());
    assert_eq!(index.answer(&made("new")), Change::None);
    index.answer(&made("third"));
    assert_eq!(index.uid(&ObjectKey::new("a", "x")), Some("third"));
}

#[test]
fn a_new_listing_forgets_only_what_it_does_not_hold_and_only_at_its_end() {
    let mut index = index(&[host("a", "x", &json!({})), host("a", "y", &json!({}))]);
    index.listing();
    index.apply(&host("a", "y", &json!({})));
    index.apply(&host("a", "z", &json!({})));
    assert!(index.has_name("a", "x"));
    index.listed();
    assert!(!index.has_name("a", "x"));
    assert!(index.has_name("a", "y") && index.has_name("a", "z"));
}

#[test]
fn hosts_are_counted_for_the_discovery_of_their_namespace_that_made_them() {
    let made = json!({"metadata": {"labels": {"ferrite.metal3.io/discovered-by": "racks"}}});
    let mut index = index(&[
        host("a", "x", &made),
        host("a", "y", &made),
        host("b", "x", &made),
        host("a", "z", &json!({})),
    ]);
    assert_eq!((index.made_by("a", "racks"), index.made_by("b", "racks")), (2, 1));
    index.apply(&host("a", "x", &made));
    assert_eq!(index.made_by("a", "racks"), 2);
    index.apply(&host("a", "y", &json!({})));
    index.remove(&host("a", "x", &made).metadata);
    assert_eq!((index.made_by("a", "racks"), index.made_by("a", "other")), (0, 0));
}

#[test]
fn a_management_controller_is_found_in_every_form_of_its_url() {
    let ip: IpAddr = "192.0.2.7".parse().unwrap();
    for address in [
        "192.0.2.7",
        "192.0.2.7:623",
        "ipmi://192.0.2.7",
        "ipmi://192.0.2.7:6230",
        "redfish+https://192.0.2.7/redfish/v1/Systems/1",
        "idrac-virtualmedia://user@192.0.2.7:8443/x",
        "redfish://[::ffff:192.0.2.7]:8000/x",
        "redfish:192.0.2.7/redfish/v1/Systems/1",
        "ipmi:192.0.2.7:6233",
    ] {
        let bmc = json!({"spec": {"bmc": {"address": address, "credentialsName": "s"}}});
        let index = index(&[host("a", "x", &bmc)]);
        assert_eq!(
            index.with_bmc(ip, |_| false).map(ToString::to_string).as_deref(),
            Some("a/x"),
            "{address}"
        );
    }
    for address in
        ["", "redfish://bmc.example.org/192.0.2.7", "ipmi://", "redfish://[fd00::1]/x", "::1"]
    {
        let bmc = json!({"spec": {"bmc": {"address": address, "credentialsName": "s"}}});
        assert_eq!(index(&[host("a", "x", &bmc)]).with_bmc(ip, |_| false), None, "{address}");
    }
    let bmc = json!({"spec": {"bmc": {"address": "fd00::1", "credentialsName": "s"}}});
    let found = index(&[host("a", "x", &bmc)]);
    assert!(found.with_bmc("fd00::1".parse().unwrap(), |_| false).is_some());
}

#[test]
fn behind_a_management_controller_a_host_that_is_known_to_be_another_machine_is_not_told() {
    let bmc = json!({"address": "ipmi://192.0.2.7", "credentialsName": "s"});
    let nics = json!({"hardware": {"nics": [{"mac": numbered(1)}, {"mac": numbered(2)}]}});
    let told = |body: &Value, own: u8| {
        let own = Mac::parse(&numbered(own)).unwrap();
        let index = index(&[host("a", "x", body)]);
        index.with_bmc("192.0.2.7".parse().unwrap(), |mac| mac == own).is_some()
    };
    let inspected = json!({"spec": {"bmc": bmc, "bootMACAddress": numbered(1)}, "status": nics});
    assert!(!told(&inspected, 9));
    assert!(told(&inspected, 1) && told(&inspected, 2));
    // One that nobody inspected, or of which nobody said what it boots by, may be the machine.
    assert!(told(&json!({"spec": {"bmc": bmc, "bootMACAddress": numbered(1)}}), 9));
    assert!(told(&json!({"spec": {"bmc": bmc}, "status": nics}), 9));
}

/// The normal way of a site that registers Redfish hosts: by their BMC alone.
#[test]
fn a_host_that_is_registered_later_by_the_bmc_that_a_discovered_machine_named_is_told() {
    let at = |minute: u8| format!("2026-01-01T00:{minute:02}:00Z");
    let mine = json!({
        "metadata": {
            "creationTimestamp": at(5),
            "annotations": {
                "ferrite.metal3.io/node-id": NODE,
                "ferrite.metal3.io/bmc-address": "192.0.2.7,2001:db8::7",
            },
        },
        "spec": {"bootMACAddress": numbered(1)},
    });
    let bmc = |address: &str| json!({"address": address, "credentialsName": "s"});
    let by_bmc = |minute, address: &str| {
        let spec = json!({"bmc": bmc(address)});
        json!({"metadata": {"creationTimestamp": at(minute)}, "spec": spec})
    };
    let told = |body: &Value| {
        let mut index = index(&[host("a", "discovered", &mine)]);
        let (_, rivals) = index.take(&host("a", "typed", body));
        let known = index.known(node(), None, &[], None, |_| false);
        assert_eq!(rivals.len() + 1, known.len(), "{body}");
        let keys = ["discovered", "typed"].map(|name| ObjectKey::new("a", name));
        assert!(!index.are_one(&keys[0], &keys[1], |_| false), "nobody but the machine says it");
        rivals.len() == 1
    };
    assert!(told(&by_bmc(6, "redfish://192.0.2.7/redfish/v1/Systems/1")));
    assert!(told(&by_bmc(6, "redfish-virtualmedia://[2001:db8::7]/redfish/v1/Systems/1")));
    // Another BMC, and a host that was there before: that is another machine, or a person said so.
    assert!(!told(&by_bmc(6, "redfish://192.0.2.8/redfish/v1/Systems/1")));
    assert!(!told(&by_bmc(4, "redfish://192.0.2.7/redfish/v1/Systems/1")));
    // An inspection showed that it is another machine in the same place.
    let mut another = by_bmc(6, "redfish://192.0.2.7/redfish/v1/Systems/1");
    another["spec"]["bootMACAddress"] = json!(numbered(8));
    another["status"] = json!({"hardware": {"nics": [{"mac": numbered(8)}]}});
    assert!(!told(&another));
    // Two discovered machines that name one BMC are two hosts.
    let mut said = mine.clone();
    said["metadata"]["creationTimestamp"] = json!(at(6));
    said["metadata"]["annotations"]["ferrite.metal3.io/node-id"] =
        json!(NodeId::from(2).to_string());
    said["spec"]["bootMACAddress"] = json!(numbered(2));
    assert!(!told(&said));
}

#[test]
fn an_interface_that_is_shared_makes_two_machines_one_only_where_one_of_them_boots_by_it() {
    let nics = json!({"hardware": {"nics": [{"mac": numbered(1)}, {"mac": numbered(7)}]}});
    let boots = json!({"spec": {"bootMACAddress": numbered(1)}, "status": nics});
    let mut index = index(&[host("a", "x", &json!({"status": nics}))]);
    let ports = [port(&numbered(3)), port(&numbered(7))];
    let booted = |mac: u8| Facts { boot_mac: Mac::parse(&numbered(mac)), ..Facts::default() };
    let known = |index: &Index, facts: &Facts| {
        index.known(NodeId::from(1), None, &ports, Some(facts), |_| false).len()
    };
    assert_eq!(known(&index, &booted(3)), 1, "nobody knows what the host boots by");
    // When that is known, its machine is looked at once more.
    let change = index.apply(&host("a", "x", &boots));
    assert_eq!(change, Change::Less(ObjectKey::new("a", "x")));
    assert_eq!(known(&index, &booted(3)), 0);
    assert_eq!(known(&index, &booted(7)), 1);
    let claimed = Facts { macs: vec![Mac::parse(&numbered(1)).unwrap()], ..booted(3) };
    assert_eq!(known(&index, &claimed), 1);
    assert_eq!(index.sharing(&ports), [ObjectKey::new("a", "x")]);
    assert_eq!(index.sharing(&ports[..1]), []);
}

fn filled(hosts: u32) -> Index {
    let mut index = Index::default();
    for n in 0..hosts {
        let nics: Vec<_> = (0..4)
            .map(|nic| json!({"mac": format!("52:54:{nic:02x}:{:02x}:{:02x}:{:02x}", n >> 16, n >> 8 & 255, n & 255)}))
            .collect();
        let body = json!({
            "spec": {"bootMACAddress": nics[0]["mac"]},
            "status": {"hardware": {"nics": nics}, "provisioning": {"ID": NodeId::from(u128::from(n) + 9).to_string()}},
        });
        index.apply(&host("metal", &format!("host-{n}"), &body));
    }
    index
}

/// The best of several runs: what else the machine does only makes one slower.
fn look_ups(index: &Index) -> Duration {
    let ports = [port("52:54:00:00:01:07"), port("52:54:aa:00:01:07")];
    let once = || {
        let start = Instant::now();
        for n in 0..4_000_u32 {
            let found =
                index.known(NodeId::from(u128::from(n % 800) + 9), None, &ports, None, |_| false);
            assert_eq!(found.len(), if n % 800 == 263 { 1 } else { 2 });
        }
        start.elapsed()
    };
    (0..5).map(|_| once()).min().unwrap()
}

#[test]
fn a_look_up_among_ten_thousand_hosts_costs_what_it_costs_among_a_thousand() {
    let few = look_ups(&filled(1_000));
    let many = look_ups(&filled(10_000));
    // Generous: the point is that it does not grow with the number.
    assert!(many < few * 3, "{few:?} among 1,000, {many:?} among 10,000");
}

#[test]
fn a_host_key_holds_both_names() {
    let key = ObjectKey::new("a", "x");
    assert_eq!((&*key.namespace, &*key.name, key.to_string()), ("a", "x", "a/x".to_owned()));
}

#[derive(Clone, Debug)]
enum Event {
    Apply { name: u8, boot: u8, nics: Vec<u8>, ours: bool },
    Delete { name: u8 },
    Relist { names: Vec<u8> },
}

fn events() -> impl Strategy<Value = Event> {
    let apply = (0..6_u8, 0..8_u8, prop::collection::vec(0..8_u8, 0..3), any::<bool>())
        .prop_map(|(name, boot, nics, ours)| Event::Apply { name, boot, nics, ours });
    prop_oneof![
        4 => apply,
        2 => (0..6_u8).prop_map(|name| Event::Delete { name }),
        1 => prop::collection::vec(0..6_u8, 0..6).prop_map(|names| Event::Relist { names }),
    ]
}

#[test]
fn a_host_that_claims_the_machine_of_another_is_its_rival() {
    let boots =
        |name: &str, mac: u8| host("a", name, &json!({"spec": {"bootMACAddress": numbered(mac)}}));
    let has = |mac: u8, nic: u8| {
        json!({
            "spec": {"bootMACAddress": numbered(mac)},
            "status": {"hardware": {"nics": [{"mac": numbered(nic)}]}},
        })
    };
    let mut index = index(&[host("a", "first", &has(1, 9))]);
    let mut rivals = |host: &Sighting| {
        let (_, rivals) = index.take(host);
        let names: Vec<String> = rivals.iter().map(|it| it.name.clone()).collect();
        index.remove(&host.metadata);
        names
    };
    assert_eq!(rivals(&boots("same", 1)), ["first"]);
    assert_eq!(rivals(&boots("its-other-interface", 9)), ["first"]);
    assert_eq!(rivals(&host("a", "the-other-way-round", &has(2, 1))), ["first"]);
    // Interfaces that none of them boots from may have one address in many machines.
    assert_eq!(rivals(&host("a", "alike", &has(2, 9))), Vec::<String>::new());
    let bmc = json!({"spec": {"bmc": {"address": "192.0.2.1", "credentialsName": "s"}}});
    index.apply(&host("a", "one", &bmc));
    assert_eq!(index.take(&host("a", "two", &bmc)).1, []);
}

#[test]
fn a_host_that_loses_an_address_and_claims_that_of_another_is_its_rival() {
    let has = |nic: u8| {
        json!({
            "spec": {"bootMACAddress": numbered(2)},
            "status": {"hardware": {"nics": [{"mac": numbered(nic)}]}},
        })
    };
    let boots = json!({"spec": {"bootMACAddress": numbered(1)}});
    let mut index = index(&[host("a", "first", &boots), host("a", "second", &has(3))]);
    let (change, rivals) = index.take(&host("a", "second", &has(1)));
    assert_eq!(change, Change::Less(ObjectKey::new("a", "second")));
    assert_eq!(rivals, [ObjectKey::new("a", "first")]);
}

fn numbered(mac: u8) -> String {
    format!("52:54:00:00:00:{mac:02x}")
}

proptest! {
    #[test]
    fn after_any_events_the_index_is_as_if_it_were_made_anew(
        events in prop::collection::vec(events(), 0..40),
    ) {
        let mut index = Index::default();
        let mut world: BTreeMap<u8, Sighting> = BTreeMap::new();
        for event in events {
            match event {
                Event::Apply { name, boot, nics, ours } => {
                    let nics: Vec<_> = nics.iter().map(|it| json!({"mac": numbered(*it)})).collect();
                    let labels = if ours {
                        json!({"ferrite.metal3.io/discovered-by": "d"})
                    } else {
                        json!({})
                    };
                    let body = json!({
                        "metadata": {"labels": labels},
                        "spec": {"bootMACAddress": numbered(boot)},
                        "status": {"hardware": {"nics": nics}},
                    });
                    let host = host("a", &name.to_string(), &body);
                    index.apply(&host);
                    world.insert(name, host);
                }
                Event::Delete { name } => {
                    if let Some(host) = world.remove(&name) {
                        index.remove(&host.metadata);
                    }
                }
                Event::Relist { names } => {
                    index.listing();
                    world.retain(|name, _| names.contains(name));
                    for host in world.values() {
                        index.apply(host);
                    }
                    index.listed();
                }
            }
        }
        let anew = self::index(&world.values().cloned().collect::<Vec<_>>());
        prop_assert_eq!(index.len(), world.len());
        prop_assert_eq!(index.made_by("a", "d"), anew.made_by("a", "d"));
        for mac in 0..8 {
            prop_assert_eq!(by_port(&index, &numbered(mac)), by_port(&anew, &numbered(mac)));
            let claimed = claims(&numbered(mac));
            prop_assert_eq!(
                index.known(NodeId::from(1), None, &[], Some(&claimed), |_| false),
                anew.known(NodeId::from(1), None, &[], Some(&claimed), |_| false)
            );
        }
    }
}
