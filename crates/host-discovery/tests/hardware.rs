//! Hardware details fit the schema that the host's CRD has for them, whatever the machine said.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "all of this is test code, also what stands outside of a test function"
)]

use std::sync::LazyLock;

use bench::crds::{Group, files};
use host_discovery::hardware::{HardwareDetails, LateFields, MOST_BYTES};
use ironic::Inventory;
use kube::ResourceExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The only pattern that the schema has here: six bytes somewhere in the text.
const MAC_PATTERN: &str = "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}";

/// The schema of `status.hardware` in the CRD that the tests run on.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let crds = files(Group::Metal3).unwrap();
    let host = crds.into_iter().find(|crd| crd.name_any() == "baremetalhosts.metal3.io").unwrap();
    let version = serde_json::to_value(&host.spec.versions[0]).unwrap();
    let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
    let schema = &status["properties"]["hardware"];
    assert!(schema["properties"]["nics"].is_object(), "{schema}");
    schema.clone()
});

/// What an API server and a strict decoder would object to.
fn objections(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    let right_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        other => panic!("{path}: the schema has type {other:?}"),
    };
    if !right_type {
        found.push(format!("{path}: {value} is no {}", schema["type"]));
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(name) {
            Some(known) => objections(inner, known, &format!("{path}.{name}"), found),
            None => found.push(format!("{path}: unknown field {name}")),
        }
    }
    for inner in value.as_array().into_iter().flatten() {
        objections(inner, &schema["items"], &format!("{path}[]"), found);
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        found.push(format!("{path}: {value} is none of {}", schema["enum"]));
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        assert_eq!(pattern, MAC_PATTERN);
        let pairs: Vec<_> = value.as_str().unwrap_or_default().split(':').collect();
        let hex = |pair: &str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
        if !pairs.windows(6).any(|six| six.iter().all(|pair| hex(pair))) {
            found.push(format!("{path}: {value} is no address"));
        }
    }
    let number = value.as_f64();
    let low = schema["minimum"].as_f64();
    let high = schema["maximum"].as_f64();
    if number.zip(low).is_some_and(|(it, low)| it < low)
        || number.zip(high).is_some_and(|(it, high)| it > high)
    {
        found.push(format!("{path}: {value} is out of range"));
    }
}

/// An operator that knows all fields.
const ALL: LateFields = LateFields { lldp: true, pci_address: true };

fn details(inventory: &Value) -> Value {
    let inventory: Inventory = serde_json::from_value(inventory.clone()).unwrap();
    serde_json::from_str(&HardwareDetails::read(&inventory, ALL).text).unwrap()
}

fn objections_to(details: &Value) -> Vec<String> {
    let mut found = Vec::new();
    objections(details, &SCHEMA, "hardware", &mut found);
    found
}

fn server() -> Value {
    json!({
        "inventory": {
            "hostname": "rack7-04.example.org",
            "system_vendor": {
                "manufacturer": "ACME Corp.", "product_name": "Anvil 3", "serial_number": "AN3-0042",
                "firmware": {"vendor": "ACME", "version": "1.7.3", "build_date": "03/14/2026"},
            },
            "memory": {"physical_mb": 65536, "total": 67_000_000_000_i64},
            "cpu": {
                "architecture": "x86_64", "model_name": "Example CPU @ 2.60GHz", "count": 48,
                "frequency": "2600.0000", "flags": ["sse", "avx", "fpu"],
            },
            "interfaces": [
                {
                    "name": "ens2f1", "mac_address": "52:54:00:00:07:02", "ipv4_address": null,
                    "ipv6_address": "fe80::7:2%ens2f1", "vendor": "0x15b3", "product": "0x1017",
                    "speed_mbps": null, "pci_address": "0000:af:00.1",
                },
                {
                    "name": "ens2f0", "mac_address": "52:54:00:00:07:01", "ipv4_address": "10.7.0.4",
                    "ipv6_address": null, "vendor": "0x15b3", "product": "0x1017",
                    "speed_mbps": 100_000, "pci_address": "0000:af:00.0",
                },
            ],
            "disks": [
                {
                    "name": "/dev/sdc", "by_path": "/dev/disk/by-path/pci-0000:5e:00.0-scsi-0:1:0:0",
                    "rotational": true, "size": 4_000_787_030_016_i64, "vendor": "ACME", "model": "Platter",
                    "serial": "P-1", "wwn": "0x5000", "wwn_vendor_extension": "0x01",
                    "wwn_with_extension": "0x500001", "hctl": "0:1:0:0",
                },
                {"name": "/dev/nvme3n1", "by_path": null, "rotational": false, "size": 512, "vendor": null},
            ],
        },
        "plugin_data": {"all_interfaces": {"ens2f0": {"pxe_enabled": true}, "ens2f1": {"pxe_enabled": false}}},
    })
}

#[test]
fn a_servers_details_are_carried_over_field_by_field() {
    let path = "/dev/disk/by-path/pci-0000:5e:00.0-scsi-0:1:0:0";
    let expected = json!({
        "systemVendor": {"manufacturer": "ACME Corp.", "productName": "Anvil 3", "serialNumber": "AN3-0042"},
        "firmware": {"bios": {"vendor": "ACME", "version": "1.7.3", "date": "03/14/2026"}},
        "ramMebibytes": 65536,
        "nics": [
            {
                "name": "ens2f1", "model": "0x15b3 0x1017", "mac": "52:54:00:00:07:02",
                "ip": "fe80::7:2%ens2f1", "pciAddress": "0000:af:00.1",
            },
            {
                "name": "ens2f0", "model": "0x15b3 0x1017", "mac": "52:54:00:00:07:01", "ip": "10.7.0.4",
                "speedGbps": 100, "pxe": true, "pciAddress": "0000:af:00.0",
            },
        ],
        "storage": [
            {
                "name": path, "alternateNames": ["/dev/sdc", path], "rotational": true, "type": "HDD",
                "sizeBytes": 4_000_787_030_016_i64, "vendor": "ACME", "model": "Platter",
                "serialNumber": "P-1", "wwn": "0x5000", "wwnVendorExtension": "0x01",
                "wwnWithExtension": "0x500001", "hctl": "0:1:0:0",
            },
            {"name": "/dev/nvme3n1", "alternateNames": ["/dev/nvme3n1"], "type": "NVME", "sizeBytes": 512},
        ],
        "cpu": {
            "arch": "x86_64", "model": "Example CPU @ 2.60GHz", "clockMegahertz": 2600,
            "flags": ["avx", "fpu", "sse"], "count": 48,
        },
        "hostname": "rack7-04.example.org",
    });
    let found = details(&server());
    assert_eq!(found, expected);
    assert_eq!(objections_to(&found), Vec::<String>::new());
}

#[test]
fn an_interface_with_two_addresses_is_there_twice_with_what_its_switch_told() {
    let infiniband = "a0:00:02:20:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:07";
    let found = details(&json!({
        "inventory": {
            "interfaces": [
                {
                    "name": "p1", "mac_address": "52:54:00:00:07:01", "ipv4_address": "10.7.0.4",
                    "ipv6_address": "fd00::7", "vendor": null, "product": "0x1017", "speed_mbps": 2500,
                },
                {"name": "p2", "mac_address": "52:54:00:00:07:02", "speed_mbps": -1},
                {"name": "ib0", "mac_address": infiniband, "speed_mbps": 200_000},
            ],
            "cpu": {"frequency": "1899.6", "flags": null},
        },
        "plugin_data": {
            "all_interfaces": {"p1": {"pxe_enabled": true}},
            "parsed_lldp": {"p1": {
                "switch_chassis_id": "aa:bb:cc:00:00:01", "switch_port_id": "Eth7",
                "switch_system_name": "leaf7", "switch_port_untagged_vlan_id": 70,
                "switch_port_vlans": [{"id": 70, "name": "seventy"}, {"id": 71}],
            }},
        },
    }));
    let first = json!({
        "name": "p1", "model": "0x1017", "mac": "52:54:00:00:07:01", "ip": "10.7.0.4", "speedGbps": 2,
        "pxe": true, "vlanId": 70, "vlans": [{"id": 70, "name": "seventy"}, {"id": 71}],
        "lldp": {"switchID": "aa:bb:cc:00:00:01", "portID": "Eth7", "switchSystemName": "leaf7"},
    });
    let mut second = first.clone();
    second["ip"] = json!("fd00::7");
    let rest = json!([
        first,
        second,
        {"name": "p2", "mac": "52:54:00:00:07:02"},
        {"name": "ib0", "mac": infiniband, "speedGbps": 200},
    ]);
    assert_eq!(found["nics"], rest);
    assert_eq!(found["cpu"], json!({"clockMegahertz": 1900}));
    assert_eq!(objections_to(&found), Vec::<String>::new());
}

#[test]
fn what_the_installed_operator_does_not_know_is_left_out() {
    let inventory = json!({
        "inventory": {"interfaces": [{"name": "p1", "pci_address": "0000:01:00.0"}]},
        "plugin_data": {"parsed_lldp": {"p1": {"switch_port_id": "Eth7"}}},
    });
    let inventory: Inventory = serde_json::from_value(inventory).unwrap();
    for (lldp, pci_address) in [(true, true), (true, false), (false, false)] {
        let known = LateFields { lldp, pci_address };
        let details = HardwareDetails::read(&inventory, known);
        let details: Value = serde_json::from_str(&details.text).unwrap();
        let nic = &details["nics"][0];
        assert_eq!(nic["name"], "p1");
        let has = |field: &str| nic.get(field).is_some();
        assert_eq!((has("lldp"), has("pciAddress")), (lldp, pci_address), "{details}");
    }
}

#[test]
fn only_a_crd_that_knows_the_older_fields_of_an_interface_says_which_ones_the_operator_lacks() {
    let crd = |nics: &Value| {
        let hardware = json!({"properties": {"nics": nics}});
        let status = json!({"properties": {"hardware": hardware}});
        let schema = json!({"openAPIV3Schema": {"properties": {"status": status}}});
        json!({"spec": {"versions": [{"name": "v1alpha1", "served": true, "schema": schema}]}})
    };
    let items = |names: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"items": {"properties": properties}})
    };
    let older = ["mac", "speedGbps", "pxe"];
    let mut keeps = items(&older);
    keeps["items"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    for (nics, lldp, pci_address) in [
        (items(&older), false, false),
        (items(&["mac", "speedGbps", "pxe", "lldp"]), true, false),
        (items(&["mac", "speedGbps", "pxe", "lldp", "pciAddress"]), true, true),
        (items(&["mac"]), true, true),
        (items(&[]), true, true),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), true, true),
        (keeps, true, true),
        (json!({"items": {"type": "object"}}), true, true),
        (json!({}), true, true),
    ] {
        let known = LateFields::of(&crd(&nics));
        assert_eq!(known, LateFields { lldp, pci_address }, "{nics}");
    }
    assert_eq!(LateFields::of(&Value::Null), LateFields { lldp: true, pci_address: true });
}

#[test]
fn addresses_stay_as_the_machine_spelled_them_where_the_schema_has_that_spelling() {
    let spelled = |mac: &str, ip: &str| {
        let interface = json!({"name": "p1", "mac_address": mac, "ipv6_address": ip});
        let found = details(&json!({"inventory": {"interfaces": [interface]}}));
        assert_eq!(objections_to(&found), Vec::<String>::new());
        let text = |field: &str| found["nics"][0][field].as_str().map(str::to_owned);
        (text("mac"), text("ip"))
    };
    for (mac, ip, kept_mac, kept_ip) in [
        ("52:54:00:AA:0b:01", "fe80::0101%p1", "52:54:00:AA:0b:01", Some("fe80::0101%p1")),
        (" 52:54:00:aa:0b:01 ", " FD00:0:0::7 ", "52:54:00:aa:0b:01", Some("FD00:0:0::7")),
        ("52-54-00-AA-0B-01", "fe80::0101%p 1", "52:54:00:aa:0b:01", Some("fe80::0101")),
        ("525400AA0B01", "fe80::0101%", "52:54:00:aa:0b:01", Some("fe80::0101")),
        ("01-52-54-00-AA-0B-01", "fe80::01010", "52:54:00:aa:0b:01", None),
    ] {
        assert_eq!(spelled(mac, ip), (Some(kept_mac.to_owned()), kept_ip.map(str::to_owned)));
    }
}

#[test]
fn a_machine_that_says_nothing_has_details_without_anything() {
    let nothing = json!({"systemVendor": {}, "firmware": {"bios": {}}, "cpu": {}});
    assert_eq!(details(&json!({})), nothing);
    assert_eq!(objections_to(&nothing), Vec::<String>::new());
}

#[test]
fn values_that_the_schema_refuses_are_left_out_and_their_neighbours_stay() {
    let found = details(&json!({
        "inventory": {
            "interfaces": [{
                "name": "p1\u{0}\u{1b}[2J", "mac_address": "not an address", "ipv4_address": "10.0.0.1; rm",
                "ipv6_address": "fe80::1%\"}", "speed_mbps": i64::MAX,
            }],
            "disks": [{"name": "/dev/sda", "size": -1}],
            "cpu": {"count": -1, "frequency": "fast"}, "memory": {"physical_mb": -5},
        },
        "plugin_data": {"parsed_lldp": {"p1\u{0}\u{1b}[2J": {
            "switch_port_untagged_vlan_id": 4095, "switch_port_vlans": [{"id": -1}, {"id": "7"}, 7, {"id": 9}],
            "switch_port_id": 3, "switch_system_name": ["x"],
        }}},
    }));
    let speed = i64::MAX / 1000;
    assert_eq!(
        found["nics"],
        json!([{"name": "p1[2J", "ip": "fe80::1", "speedGbps": speed, "vlans": [{"id": 9}]}])
    );
    assert_eq!(
        found["storage"],
        json!([{"name": "/dev/sda", "alternateNames": ["/dev/sda"], "type": "SSD"}])
    );
    assert_eq!(found["cpu"], json!({}));
    assert!(found.get("ramMebibytes").is_none());
    assert_eq!(objections_to(&found), Vec::<String>::new());
}

#[test]
fn details_beyond_all_measure_are_cut_and_keep_the_boot_interface() {
    let interfaces: Vec<_> = (0..5000)
        .map(|n| {
            json!({
                "name": format!("p{n}"), "vendor": "v".repeat(5000),
                "mac_address": format!("52:54:00:00:{:02x}:{:02x}", n >> 8, n & 255),
            })
        })
        .collect();
    let disks: Vec<_> = (0..5000)
        .map(|n| json!({"name": format!("/dev/sd{n}"), "model": "m".repeat(900)}))
        .collect();
    let flags: Vec<_> = (0..5000).map(|n| format!("flag{n}{}", "f".repeat(900))).collect();
    let inventory = json!({
        "inventory": {"interfaces": interfaces, "disks": disks, "cpu": {"flags": flags}, "hostname": "n1"},
        "plugin_data": {"all_interfaces": {"p300": {"pxe_enabled": true}}},
    });
    let inventory: Inventory = serde_json::from_value(inventory).unwrap();
    let details = HardwareDetails::read(&inventory, ALL);
    assert!(details.cut);
    let encoded = details.text;
    assert!(encoded.len() <= MOST_BYTES && encoded.len() > MOST_BYTES / 4, "{}", encoded.len());
    let value: Value = serde_json::from_str(&encoded).unwrap();
    assert_eq!(value["hostname"], "n1");
    assert_eq!(value["nics"][0]["name"], "p300");
    let whole: Inventory = serde_json::from_value(server()).unwrap();
    assert!(!HardwareDetails::read(&whole, ALL).cut);
}

/// Any JSON, with the names that an inventory has more often than others.
fn strange() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "inventory",
        "plugin_data",
        "interfaces",
        "disks",
        "cpu",
        "flags",
        "frequency",
        "count",
        "name",
        "mac_address",
        "ipv4_address",
        "speed_mbps",
        "size",
        "system_vendor",
        "firmware",
        "memory",
        "physical_mb",
        "parsed_lldp",
        "switch_port_vlans",
        "id",
        "all_interfaces",
        "hostname",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,9}|[0-9a-f:]{17}|[0-9.e+-]{0,9}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_is_posted_its_details_fit_the_schema(machine in strange(), plugin in strange()) {
        let found = details(&json!({"inventory": machine, "plugin_data": plugin}));
        prop_assert_eq!(objections_to(&found), Vec::<String>::new());
    }
}
