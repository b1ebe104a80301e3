//! Facts of an inventory: which interface a machine boots from, and what of a stranger's word is
//! believed.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

use api_types::metal3::HardwareDetail;
use host_discovery::inventory::{Facts, LONGEST_TEXT, Port, has_all};
use host_discovery::naming::value;
use host_discovery::{Mac, NodeId};
use ironic::Inventory;
use proptest::prelude::*;
use serde_json::{Value, json};

fn mac(last: u8) -> Mac {
    Mac::parse(&format!("52:54:00:00:07:{last:02x}")).unwrap()
}

fn port(last: u8, pxe: bool) -> Port {
    Port { mac: mac(last), pxe }
}

fn read(inventory: Value) -> Inventory {
    serde_json::from_value(inventory).unwrap()
}

/// Three interfaces, listed against the order of their names; only the last has a link.
fn three(boot: &Value, marked: &str) -> Inventory {
    read(json!({
        "inventory": {
            "interfaces": [
                {"name": "eno3", "mac_address": "52:54:00:00:07:03", "has_carrier": true},
                {"name": "eno2", "mac_address": "52:54:00:00:07:02", "has_carrier": false},
                {"name": "eno1", "mac_address": "52:54:00:00:07:01", "has_carrier": false},
            ],
            "boot": boot,
        },
        "plugin_data": {"all_interfaces": {marked: {"pxe_enabled": true}, "eno1": {"pxe_enabled": "yes"}}},
    }))
}

fn boot_mac(inventory: &Inventory, ports: &[Port]) -> Option<Mac> {
    Facts::read(inventory, ports).unwrap().boot_mac
}

#[test]
fn listed_ports_are_all_only_with_every_one_that_ironic_says_it_makes() {
    let two = [port(1, true), port(2, false)];
    let mut inventory = three(&Value::Null, "eno1");
    assert!(!has_all(&inventory, &two));
    assert!(has_all(&inventory, &[two[0], two[1], port(3, false)]));
    // By its settings Ironic makes fewer ports than there are interfaces.
    inventory.plugin_data.macs =
        ["52:54:00:00:07:01", "00:00:00:00:00:00", "52-54-00-00-07-02"].map(str::to_owned).into();
    assert!(has_all(&inventory, &two));
    assert!(!has_all(&inventory, &two[1..]));
}

#[test]
fn the_interface_that_the_machine_was_booted_by_comes_first() {
    let ports = [port(1, true), port(2, false), port(3, false)];
    for said in ["52:54:00:00:07:02", "52:54:00:00:07:02 ", "01-52-54-00-00-07-02"] {
        let inventory = three(&json!({"pxe_interface": said}), "eno3");
        assert_eq!(boot_mac(&inventory, &ports), Some(mac(2)), "{said}");
    }
    let mut inventory = three(&Value::Null, "eno3");
    inventory.plugin_data.boot_interface = Some("52:54:00:00:07:02".to_owned());
    assert_eq!(boot_mac(&inventory, &ports), Some(mac(2)));
}

#[test]
fn then_the_interface_that_ironic_marked_in_the_inventory_and_then_in_the_ports() {
    let ports = [port(1, true), port(2, false), port(3, true)];
    assert_eq!(boot_mac(&three(&Value::Null, "eno2"), &ports), Some(mac(2)));
    assert_eq!(boot_mac(&three(&Value::Null, "none"), &ports), Some(mac(1)));
}

#[test]
fn without_a_mark_the_first_with_a_link_in_name_order_then_the_first() {
    let ports = [port(3, false), port(2, false), port(1, false)];
    let mut inventory = three(&json!({"pxe_interface": null}), "none");
    assert_eq!(boot_mac(&inventory, &ports), Some(mac(3)));
    for nic in &mut inventory.machine.interfaces {
        nic.has_carrier = None;
    }
    assert_eq!(boot_mac(&inventory, &ports), Some(mac(1)));
    // The order in which the agent listed them changes nothing.
    inventory.machine.interfaces.rotate_left(1);
    assert_eq!(boot_mac(&inventory, &ports), Some(mac(1)));
}

#[test]
fn an_address_without_a_port_is_never_the_boot_address() {
    let inventory = three(&json!({"pxe_interface": "52:54:00:00:07:01"}), "eno2");
    assert_eq!(boot_mac(&inventory, &[port(3, false)]), Some(mac(3)));
    assert_eq!(boot_mac(&inventory, &[]), None);
    let stranger = three(&json!({"pxe_interface": "aa:bb:cc:dd:ee:00"}), "none");
    assert_eq!(boot_mac(&stranger, &[port(1, false), port(2, false)]), Some(mac(1)));
}

#[test]
fn ports_that_the_inventory_does_not_mention_are_taken_by_mark_and_address() {
    let inventory = Inventory::default();
    let ports = [port(9, false), port(8, true), port(7, false)];
    assert_eq!(boot_mac(&inventory, &ports), Some(mac(8)));
    assert_eq!(boot_mac(&inventory, &[port(9, false), port(7, false)]), Some(mac(7)));
}

#[test]
fn ports_whose_address_identifies_nobody_are_no_ports() {
    for (address, usable) in [
        ("52:54:00:00:07:01", true),
        ("00:00:00:00:00:00", false),
        ("a0:00:02:20:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01", false),
        ("", false),
    ] {
        let port: ironic::Port = serde_json::from_value(json!({"address": address})).unwrap();
        assert_eq!(Port::read(&port).is_some(), usable, "{address}");
    }
}

fn addressed(boot: &str, rest: &[(&str, Value, Value)]) -> Option<String> {
    let interfaces: Vec<_> = rest
        .iter()
        .zip(1..)
        .map(|((name, v4, v6), last)| {
            let mac = mac(last).to_string();
            json!({"name": name, "mac_address": mac, "ipv4_address": v4, "ipv6_address": v6})
        })
        .collect();
    let inventory =
        read(json!({"inventory": {"interfaces": interfaces, "boot": {"pxe_interface": boot}}}));
    let ports: Vec<_> =
        (1..=rest.len()).map(|last| port(u8::try_from(last).unwrap(), false)).collect();
    Facts::read(&inventory, &ports).unwrap().ip.map(|ip| ip.to_string())
}

#[test]
fn the_address_is_the_boot_interfaces_then_the_first_in_name_order() {
    let v4 = |text: &str| json!(text);
    let none = || Value::Null;
    let boot = "52:54:00:00:07:02";
    let found = addressed(boot, &[("a", v4("10.0.0.1"), none()), ("b", v4("10.0.0.2"), none())]);
    assert_eq!(found.as_deref(), Some("10.0.0.2"));
    let found = addressed(boot, &[("a", v4("10.0.0.1"), none()), ("b", none(), v4("fd00::2"))]);
    assert_eq!(found.as_deref(), Some("fd00::2"));
    let found = addressed(
        boot,
        &[
            ("c", v4("10.0.0.1"), none()),
            ("z", none(), v4("fe80::2%z")),
            ("a", none(), v4("fd00::3")),
        ],
    );
    assert_eq!(found.as_deref(), Some("fd00::3"));
    // One that cannot name a host is kept where there is no other, so that it can be told.
    let found = addressed(boot, &[("a", v4("169.254.7.7"), none())]);
    assert_eq!(found.as_deref(), Some("169.254.7.7"));
    assert_eq!(addressed(boot, &[("a", v4("::/0"), none())]), None);
}

#[test]
fn a_management_controller_that_is_not_there_has_no_address() {
    for (v4, v6, found) in [
        (json!("0.0.0.0"), json!("::/0"), &[][..]),
        (json!(null), json!(null), &[]),
        (json!("0.0.0.0"), json!("fd00::b"), &["fd00::b"]),
        (json!("192.0.2.9"), json!("::/0"), &["192.0.2.9"]),
        (json!("169.254.0.17"), json!(null), &[]),
        (json!(null), json!("2001:db8::5/64"), &["2001:db8::5"]),
        (json!("192.0.2.9"), json!("fd00::b/64"), &["192.0.2.9", "fd00::b"]),
    ] {
        let inventory = read(json!({"inventory": {"bmc_address": v4, "bmc_v6address": v6}}));
        let facts = Facts::read(&inventory, &[]).unwrap();
        let told: Vec<String> = facts.bmc.iter().map(ToString::to_string).collect();
        assert_eq!(told, found);
    }
}

#[test]
fn figures_are_counted_down_and_never_below_nothing() {
    let inventory = read(json!({"inventory": {
        "cpu": {"count": 16, "architecture": "aarch64", "model_name": "Neoverse"},
        "memory": {"physical_mb": 32768},
        "disks": [{"size": 10}, {"size": 480_103_981_056_i64}, {"size": null}],
        "boot": {"current_boot_mode": "bios"},
        "system_vendor": {"manufacturer": "ACME", "product_name": "Anvil 3", "serial_number": " "},
    }}));
    let facts = Facts::read(&inventory, &[]).unwrap();
    assert_eq!((facts.cpus, facts.memory_mib, facts.largest_disk_gib), (16, 32768, 447));
    assert_eq!(facts.uefi, Some(false));
    assert_eq!(facts.product.as_deref(), Some("Anvil 3"));
    assert_eq!(facts.serial_number, None);
    assert!(!facts.auto_discovered);
    let odd = read(json!({"inventory": {"cpu": {"count": -4}, "disks": [{"size": i64::MIN}]}}));
    let facts = Facts::read(&odd, &[]).unwrap();
    assert_eq!((facts.cpus, facts.memory_mib, facts.largest_disk_gib), (0, 0, 0));
}

#[test]
fn a_hostile_inventory_leaves_small_facts() {
    let nic = |n: u32| {
        json!({
            "name": "n".repeat(300),
            "mac_address": format!("52:54:{:02x}:{:02x}:00:00", n >> 8 & 255, n & 255),
            "ipv4_address": format!("10.1.{}.{}", n >> 8 & 255, n & 255),
        })
    };
    let of = |nics: u32| {
        let inventory = read(json!({"inventory": {
            "interfaces": (0..nics).map(nic).collect::<Vec<_>>(),
            "hostname": format!("a\u{1b}[31m\nb\u{202e}{}", "x".repeat(1 << 20)),
        }}));
        Facts::read(&inventory, &[])
    };
    assert_eq!(of(2_000), None);
    let facts = of(256).unwrap();
    assert!(facts.macs.capacity() <= 256 && facts.addresses.capacity() <= 128);
    let hostname = facts.hostname.unwrap();
    assert!(hostname.starts_with("a[31mbx") && hostname.len() == LONGEST_TEXT);
}

#[test]
fn a_text_is_cut_by_its_bytes_and_between_two_characters() {
    let inventory = read(json!({"inventory": {"hostname": format!("a{}", "序".repeat(200))}}));
    let hostname = Facts::read(&inventory, &[]).unwrap().hostname.unwrap();
    assert_eq!(&*hostname, format!("a{}", "序".repeat(85)));
}

#[test]
fn a_machine_with_more_addresses_than_are_kept_is_told_from_one_that_repeats_one() {
    let with = |macs: &[u32]| {
        let nic = |n: &u32| {
            let mac = format!("52:54:00:00:{:02x}:{:02x}", n >> 8 & 255, n & 255);
            json!({"mac_address": mac})
        };
        let nics: Vec<_> = macs.iter().map(nic).collect();
        read(json!({"inventory": {"interfaces": nics}}))
    };
    let (all, more): (Vec<u32>, Vec<u32>) = ((0..256).collect(), (0..257).collect());
    assert!(Facts::read(&with(&all), &[]).is_some());
    let facts = Facts::read(&with(&all), &[]).unwrap();
    assert_eq!(facts.macs.len(), 256);
    assert!(Facts::read(&with(&more), &[]).is_none());
    // The same one again hides none, but for what stands where no more is read.
    assert!(Facts::read(&with(&[7; 1000]), &[]).is_some());
    let last: Vec<u32> = std::iter::repeat_n(7, 1024).chain([8]).collect();
    assert!(Facts::read(&with(&last), &[]).is_none());
}

#[test]
fn an_inventory_of_any_depth_is_read_or_refused_and_overflows_no_stack() {
    for (depth, is_read) in [(100, true), (400, false), (10_000, false), (500_000, false)] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let text = format!(r#"{{"inventory": {{"cpu": {{"frequency": {open}1{close}}}}}}}"#);
        assert_eq!(serde_json::from_str::<Inventory>(&text).is_ok(), is_read, "{depth}");
    }
}

proptest! {
    #[test]
    fn no_text_of_a_machine_stops_the_reader(
        texts in prop::collection::vec("\\PC{0,12}|[0-9a-f:.%/-]{0,40}", 12),
        number: i64, flag in prop::option::of(any::<bool>()),
    ) {
        let inventory = read(json!({
            "inventory": {
                "hostname": texts[0], "bmc_address": texts[1], "bmc_v6address": texts[2],
                "boot": {"pxe_interface": texts[3], "current_boot_mode": texts[4]},
                "interfaces": [
                    {"name": texts[5], "mac_address": texts[6], "ipv4_address": texts[7], "ipv6_address": texts[8], "has_carrier": flag},
                    {"mac_address": texts[9], "speed_mbps": number},
                ],
                "disks": [{"size": number}], "cpu": {"count": number}, "memory": {"physical_mb": number},
            },
            "plugin_data": {"all_interfaces": {&texts[5]: texts[10]}, "boot_interface": texts[11]},
        }));
        let ports = [port(1, true)];
        let facts = Facts::read(&inventory, &ports).unwrap();
        prop_assert_eq!(facts.boot_mac, Some(mac(1)));
        prop_assert!(facts.cpus >= 0 && facts.memory_mib >= 0 && facts.largest_disk_gib >= 0);
        let _ = value(HardwareDetail::Ip, &facts, NodeId::from(7));
    }
}
