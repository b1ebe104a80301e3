//! The host that is made for a machine: complete, in the operator's schema, and nothing in it that
//! a stranger could decide.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery};
use host_discovery::hardware::{HardwareDetails, LateFields};
use host_discovery::host::new_host;
use host_discovery::index::Index;
use host_discovery::inventory::{Facts, Port};
use host_discovery::resource::Resource;
use host_discovery::{Mac, NodeId};
use ironic::Inventory;
use serde_json::{Value, json};

/// An operator that knows all fields.
const ALL: LateFields = LateFields { lldp: true, pci_address: true };
const NODE: &str = "0f92160d-b665-4476-943a-f4dd47419207";

fn resource(spec: &Value) -> Resource {
    let mut object = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery",
        "metadata": {"namespace": "metal", "name": "racks"},
        "spec": {"resourceNameTemplate": {"hardwareDetails": "hostname"}},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    let read: BareMetalHostDiscovery = serde_json::from_value(object).unwrap();
    Resource::read(&read)
}

fn inventory() -> Inventory {
    serde_json::from_value(json!({
        "inventory": {
            "hostname": "n1",
            "system_vendor": {"manufacturer": "ACME Corp.", "product_name": "Anvil 3", "serial_number": "7"},
            "cpu": {"architecture": "aarch64", "model_name": "Example (R) 9", "count": 8},
            "boot": {"current_boot_mode": "bios", "pxe_interface": "52:54:00:00:07:01"},
            "interfaces": [
                {"name": "p1", "mac_address": "52:54:00:00:07:01"},
                {"name": "p2", "mac_address": "52:54:00:00:07:02"},
            ],
        },
        "plugin_data": {"auto_discovered": true},
    }))
    .unwrap()
}

fn made(spec: &Value, inventory: &Inventory) -> BareMetalHost {
    let mac = Mac::parse("52:54:00:00:07:01").unwrap();
    let facts = Facts::read(inventory, &[Port { mac, pxe: true }]).unwrap();
    let node = NodeId::parse(NODE).unwrap();
    new_host(&resource(spec), "n1", node, &facts, &HardwareDetails::read(inventory, ALL))
}

fn annotation(host: &BareMetalHost, key: &str) -> Value {
    serde_json::from_str(host.annotation(key).unwrap()).unwrap()
}

#[test]
fn a_new_host_carries_what_the_operator_takes_over() {
    let host = made(&json!({}), &inventory());
    let object = serde_json::to_value(&host).unwrap();
    assert_eq!(object["apiVersion"], "metal3.io/v1alpha1");
    assert_eq!(object["kind"], "BareMetalHost");
    assert_eq!(
        (&object["metadata"]["namespace"], &object["metadata"]["name"]),
        (&json!("metal"), &json!("n1"))
    );
    assert_eq!(
        object["spec"],
        json!({
            "online": true, "bootMACAddress": "52:54:00:00:07:01", "bootMode": "legacy",
            "architecture": "aarch64",
        })
    );
    assert!(object.get("status").is_none());
    assert_eq!(host.annotation("inspect.metal3.io"), Some("disabled"));
    let details = annotation(&host, "inspect.metal3.io/hardwaredetails");
    assert_eq!(details["nics"][1]["mac"], "52:54:00:00:07:02");
    let status = annotation(&host, "baremetalhost.metal3.io/status");
    assert_eq!(
        status,
        json!({
            "operationalStatus": "discovered", "errorMessage": "", "errorCount": 0, "poweredOn": true,
            "provisioning": {"state": "unmanaged", "ID": NODE}, "hardware": details,
        })
    );
}

/// The fields of a host's status and of what is in it that the operator knows in each release from 0.10.6 to 0.13.2, by where
/// they stand. Its webhook decodes both annotations strictly and refuses a host with any other field, so one that only a
/// later release has must not be written.
const KNOWN_FIELDS: [(&str, &[&str]); 10] = [
    (
        "",
        &[
            "operationalStatus",
            "errorType",
            "lastUpdated",
            "hardwareProfile",
            "hardware",
            "provisioning",
            "goodCredentials",
            "triedCredentials",
            "errorMessage",
            "poweredOn",
            "operationHistory",
            "errorCount",
        ],
    ),
    (
        ".provisioning",
        &[
            "state",
            "ID",
            "image",
            "rootDeviceHints",
            "bootMode",
            "raid",
            "firmware",
            "customDeploy",
        ],
    ),
    (
        ".hardware",
        &["systemVendor", "firmware", "ramMebibytes", "nics", "storage", "cpu", "hostname"],
    ),
    (".hardware.systemVendor", &["manufacturer", "productName", "serialNumber"]),
    (".hardware.firmware", &["bios"]),
    (".hardware.firmware.bios", &["date", "vendor", "version"]),
    (".hardware.nics", &["name", "model", "mac", "ip", "speedGbps", "vlans", "vlanId", "pxe"]),
    (".hardware.nics.vlans", &["id", "name"]),
    (
        ".hardware.storage",
        &[
            "name",
            "alternateNames",
            "rotational",
            "type",
            "sizeBytes",
            "vendor",
            "model",
            "serialNumber",
            "wwn",
            "wwnVendorExtension",
            "wwnWithExtension",
            "hctl",
        ],
    ),
    (".hardware.cpu", &["arch", "model", "clockMegahertz", "flags", "count"]),
];

/// Where the fields of a value stand that not every release knows.
fn unknown_fields(value: &Value, path: &str, found: &mut Vec<String>) {
    for inner in value.as_array().into_iter().flatten() {
        unknown_fields(inner, path, found);
    }
    let known = KNOWN_FIELDS.iter().find(|(it, _)| *it == path).map(|(_, fields)| *fields);
    for (name, inner) in value.as_object().into_iter().flatten() {
        let path_of_it = format!("{path}.{name}");
        if known.is_some_and(|fields| fields.contains(&name.as_str())) {
            unknown_fields(inner, &path_of_it, found);
        } else {
            found.push(path_of_it);
        }
    }
}

/// A machine that says all that has a place on a host.
fn telling_all() -> Inventory {
    serde_json::from_value(json!({
        "inventory": {
            "hostname": "n1",
            "system_vendor": {
                "manufacturer": "ACME Corp.", "product_name": "Anvil 3", "serial_number": "7",
                "firmware": {"vendor": "ACME", "version": "1.7.3", "build_date": "03/14/2026"},
            },
            "memory": {"physical_mb": 65536},
            "cpu": {
                "architecture": "x86_64", "model_name": "Example CPU", "count": 48, "frequency": "2600",
                "flags": ["sse"],
            },
            "boot": {"current_boot_mode": "uefi", "pxe_interface": "52:54:00:00:07:01"},
            "interfaces": [{
                "name": "p1", "mac_address": "52:54:00:00:07:01", "ipv4_address": "10.7.0.4",
                "ipv6_address": "fd00::7", "vendor": "0x15b3", "product": "0x1017", "speed_mbps": 2500,
                "pci_address": "0000:af:00.0",
            }],
            "disks": [{
                "name": "/dev/sdc", "by_path": "/dev/disk/by-path/p", "rotational": true, "size": 512,
                "vendor": "ACME", "model": "Platter", "serial": "P-1", "wwn": "0x5000",
                "wwn_vendor_extension": "0x01", "wwn_with_extension": "0x500001", "hctl": "0:1:0:0",
            }],
        },
        "plugin_data": {
            "auto_discovered": true,
            "all_interfaces": {"p1": {"pxe_enabled": true}},
            "parsed_lldp": {"p1": {
                "switch_chassis_id": "aa:bb:cc:00:00:01", "switch_port_id": "Eth7",
                "switch_system_name": "leaf7", "switch_port_untagged_vlan_id": 70,
                "switch_port_vlans": [{"id": 70, "name": "seventy"}],
            }},
        },
    }))
    .unwrap()
}

#[test]
fn a_new_host_has_no_field_that_a_release_of_the_operator_does_not_know() {
    let inventory = telling_all();
    let mac = Mac::parse("52:54:00:00:07:01").unwrap();
    let facts = Facts::read(&inventory, &[Port { mac, pxe: true }]).unwrap();
    let node = NodeId::parse(NODE).unwrap();
    let unknown_to = |known: LateFields| {
        let details = HardwareDetails::read(&inventory, known);
        let host = new_host(&resource(&json!({})), "n1", node, &facts, &details);
        let status = annotation(&host, "baremetalhost.metal3.io/status");
        let hardware = annotation(&host, "inspect.metal3.io/hardwaredetails");
        assert_eq!(status["hardware"], hardware);
        let mut found = Vec::new();
        unknown_fields(&status, "", &mut found);
        found.sort_unstable();
        found.dedup();
        found
    };
    assert_eq!(unknown_to(LateFields::default()), Vec::<String>::new());
    // Only an operator that knows these two, too, gets them.
    assert_eq!(unknown_to(ALL), [".hardware.nics.lldp", ".hardware.nics.pciAddress"]);
}

#[test]
fn a_new_host_bears_the_address_of_its_bmc_as_the_machine_says_it() {
    let said = |address: &str| {
        let mut inventory = inventory();
        inventory.machine.bmc_address = Some(address.to_owned());
        inventory.machine.bmc_v6address = Some("2001:db8::7/64".to_owned());
        let host = made(&json!({}), &inventory);
        assert!(host.spec.bmc.is_none(), "no credentials are ever sent there");
        host.annotation("ferrite.metal3.io/bmc-address").map(str::to_owned)
    };
    assert_eq!(said("192.0.2.7").as_deref(), Some("192.0.2.7,2001:db8::7"));
    assert_eq!(said("0.0.0.0").as_deref(), Some("2001:db8::7"));
}

#[test]
fn a_new_host_has_no_credentials_and_its_power_is_left_alone() {
    let host = made(&json!({}), &inventory());
    assert!(host.spec.bmc.is_none() && !host.power_operations_supported());
}

#[test]
fn a_new_host_is_known_at_once_as_its_machine_and_as_its_discoverys() {
    let mut index = Index::default();
    let made = serde_json::to_value(made(&json!({}), &inventory())).unwrap();
    index.apply(&serde_json::from_value(made).unwrap());
    let node = NodeId::parse(NODE).unwrap();
    let by_node = index.known(node, None, &[], None, |_| false);
    assert_eq!(by_node[0].made_for, Some(node));
    let second_port = Port { mac: Mac::parse("52:54:00:00:07:02").unwrap(), pxe: false };
    // As another node that has the other interface alone, and boots by it.
    let facts = Facts::read(&inventory(), &[second_port]).unwrap();
    assert_eq!(
        index.known(NodeId::from(1), None, &[second_port], Some(&facts), |_| false),
        by_node
    );
    assert_eq!(index.made_by("metal", "racks"), 1);
}

#[test]
fn defaults_of_the_resource_are_set_and_come_before_what_the_machine_shows() {
    let host = made(
        &json!({"hostDefaults": {
            "online": false, "automatedCleaningMode": "disabled", "bootMode": "UEFISecureBoot",
            "description": "rack 7",
        }}),
        &inventory(),
    );
    let object = serde_json::to_value(&host).unwrap();
    assert_eq!(
        object["spec"],
        json!({
            "online": false, "automatedCleaningMode": "disabled", "bootMode": "UEFISecureBoot",
            "description": "rack 7", "bootMACAddress": "52:54:00:00:07:01", "architecture": "aarch64",
        })
    );
}

#[test]
fn labels_come_from_the_hardware_and_what_an_administrator_fixed_wins() {
    let host = made(
        &json!({
            "hostDefaults": {"labels": {"site": "default", "tier": "default"}},
            "labels": {"site": "berlin", "ferrite.metal3.io/discovered-by": "somebody"},
            "labelsFromHardware": {
                "maker": "manufacturer", "kind": "product", "arch": "architecture", "serial": "serial-number",
                "mac": "boot-mac", "cpu": "cpu-model", "site": "product",
            },
        }),
        &inventory(),
    );
    let labels = serde_json::to_value(host.metadata.labels).unwrap();
    assert_eq!(
        labels,
        json!({
            "site": "berlin", "tier": "default", "maker": "ACME-Corp", "kind": "Anvil-3", "arch": "aarch64",
            "serial": "7", "mac": "52-54-00-00-07-01", "cpu": "Example-R-9",
            "ferrite.metal3.io/discovered-by": "racks",
        })
    );
}

#[test]
fn who_looks_after_a_discovery_looks_after_its_hosts_unless_it_says_otherwise() {
    let key = "cluster.x-k8s.io/watch-filter";
    let labelled = |spec: &Value| {
        let mut of = resource(spec);
        of.watch_filter = Some("east".to_owned());
        let details = HardwareDetails::read(&inventory(), ALL);
        let node = NodeId::parse(NODE).unwrap();
        let made = new_host(&of, "n1", node, &Facts::default(), &details);
        made.metadata.labels.unwrap()[key].clone()
    };
    assert_eq!(labelled(&json!({})), "east");
    assert_eq!(labelled(&json!({"labels": {key: "west"}})), "west");
    assert!(!made(&json!({}), &inventory()).metadata.labels.unwrap().contains_key(key));
}

#[test]
fn what_a_machine_does_not_say_is_not_made_up() {
    let host = made(
        &json!({"labelsFromHardware": {"maker": "manufacturer", "cpu": "cpu-model"}}),
        &Inventory::default(),
    );
    assert_eq!(host.spec.boot_mode, None);
    assert_eq!(host.spec.architecture, None);
    assert_eq!(host.metadata.labels.unwrap().len(), 1);
}

#[test]
fn a_strangers_architecture_is_a_word_or_nothing() {
    let mut inventory = inventory();
    inventory.machine.cpu.architecture = Some("x86_64; reboot".to_owned());
    assert_eq!(made(&json!({}), &inventory).spec.architecture, None);
}

#[test]
fn annotations_stay_below_what_the_api_server_takes() {
    let mut inventory = inventory();
    let disk =
        serde_json::json!({"name": "\"\\".repeat(128), "model": "\"\\".repeat(128), "size": 7});
    let disk: ironic::Disk = serde_json::from_value(disk).unwrap();
    inventory.machine.disks = vec![disk; 4000];
    let host = made(&json!({}), &inventory);
    let total: usize =
        host.metadata.annotations.unwrap().iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!((64 * 1024..256 * 1024).contains(&total), "{total}");
}
