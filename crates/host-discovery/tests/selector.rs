//! Which machines a discovery takes, and which of several takes one.

#![allow(
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of a test function"
)]

use api_types::metal3::{BareMetalHostDiscovery, HostSelector};
use host_discovery::Mac;
use host_discovery::inventory::{Facts, Port};
use host_discovery::resource::Resource;
use host_discovery::selector::Selector;
use serde_json::{Value, json};

fn facts() -> Facts {
    Facts {
        auto_discovered: true,
        manufacturer: Some(" ACME Corp. ".into()),
        product: Some("Anvil 3".into()),
        architecture: Some("x86_64".into()),
        macs: vec![Mac::parse("52:54:00:00:07:02").unwrap()],
        addresses: vec!["10.7.0.4".parse().unwrap(), "2001:db8:7::4".parse().unwrap()],
        cpus: 48,
        memory_mib: 65536,
        largest_disk_gib: 447,
        ..Facts::default()
    }
}

fn ports() -> [Port; 1] {
    [Port { mac: Mac::parse("52:54:00:00:07:01").unwrap(), pxe: true }]
}

fn selector(given: &Value) -> (Selector, Vec<String>) {
    let given: HostSelector = serde_json::from_value(given.clone()).unwrap();
    Selector::read(&given)
}

fn matches(given: &Value) -> bool {
    selector(given).0.matches(&facts(), &ports())
}

#[test]
fn each_rule_takes_and_refuses() {
    for (given, takes) in [
        (json!({}), true),
        (json!({"manufacturers": ["other", "acme corp."]}), true),
        (json!({"manufacturers": ["acme"]}), false),
        (json!({"products": ["ANVIL 3"]}), true),
        (json!({"products": ["Anvil"]}), false),
        (json!({"architectures": ["aarch64"]}), false),
        (json!({"architectures": ["aarch64", "X86_64"]}), true),
        (json!({"macPrefixes": ["52:54:00:00:07:01"]}), true),
        (json!({"macPrefixes": ["52:54:00:00:07:02"]}), true),
        (json!({"macPrefixes": ["AA", "52"]}), true),
        (json!({"macPrefixes": ["52:54:01"]}), false),
        (json!({"macPrefixes": ["52-54-00-00-07"]}), true),
        (json!({"macPrefixes": ["52-54-01"]}), false),
        (json!({"subnets": ["10.7.0.0/24"]}), true),
        (json!({"subnets": ["10.7.0.4/32"]}), true),
        (json!({"subnets": ["10.7.0.5/32"]}), false),
        (json!({"subnets": ["10.7.0.0/29"]}), true),
        (json!({"subnets": ["10.7.0.0/30"]}), false),
        (json!({"subnets": ["10.8.0.0/13"]}), false),
        (json!({"subnets": ["0.0.0.0/0"]}), true),
        (json!({"subnets": ["2001:db8::/32"]}), true),
        (json!({"subnets": ["2001:db8:8::/48"]}), false),
        (json!({"subnets": ["::/0"]}), true),
        (json!({"minCPUs": 48}), true),
        (json!({"minCPUs": 49}), false),
        (json!({"minMemoryMiB": 65536}), true),
        (json!({"minMemoryMiB": 65537}), false),
        (json!({"minDiskGiB": 447}), true),
        (json!({"minDiskGiB": 448}), false),
    ] {
        assert_eq!(matches(&given), takes, "{given}");
    }
}

#[test]
fn every_rule_must_hold() {
    assert!(matches(
        &json!({"manufacturers": ["ACME Corp."], "minCPUs": 2, "subnets": ["10.0.0.0/8"]})
    ));
    assert!(!matches(
        &json!({"manufacturers": ["ACME Corp."], "minCPUs": 99, "subnets": ["10.0.0.0/8"]})
    ));
}

#[test]
fn what_is_not_known_of_a_machine_matches_no_rule() {
    for given in [
        json!({"manufacturers": ["acme"]}),
        json!({"macPrefixes": ["52"]}),
        json!({"subnets": ["0.0.0.0/0", "::/0"]}),
        json!({"minMemoryMiB": 1}),
    ] {
        assert!(!selector(&given).0.matches(&Facts::default(), &[]), "{given}");
    }
}

#[test]
fn an_entry_that_nothing_can_match_is_told_and_never_widens_the_rule() {
    for (given, told) in [
        (json!({"subnets": ["10.7.0.0"]}), "selector.subnets: \"10.7.0.0\""),
        (json!({"subnets": ["10.7.0.0/33"]}), "selector.subnets: \"10.7.0.0/33\""),
        (json!({"subnets": ["rack/24"]}), "selector.subnets: \"rack/24\""),
        (json!({"macPrefixes": ["5254"]}), "selector.macPrefixes: \"5254\""),
        (json!({"macPrefixes": ["52:54:00:00:07:01:02"]}), "selector.macPrefixes: \"52:54"),
        (json!({"macPrefixes": ["01:00:5e"]}), "groups"),
    ] {
        let (selector, mistakes) = selector(&given);
        assert!(mistakes.len() == 1 && mistakes[0].contains(told), "{mistakes:?}");
        assert!(!selector.matches(&facts(), &ports()), "{given}");
        assert!(!selector.is_empty());
    }
    let (selector, mistakes) = selector(&json!({"subnets": ["rubbish", "10.0.0.0/8"]}));
    assert_eq!(mistakes.len(), 1);
    assert!(selector.matches(&facts(), &ports()));
}

fn resource(spec: &Value, metadata: &Value) -> Resource {
    let mut object = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery",
        "metadata": {"namespace": "metal", "name": "racks"},
        "spec": {"resourceNameTemplate": {"hardwareDetails": "hostname"}},
    });
    for (part, given) in [("spec", spec), ("metadata", metadata)] {
        for (key, value) in given.as_object().unwrap() {
            object[part][key] = value.clone();
        }
    }
    let read: BareMetalHostDiscovery = serde_json::from_value(object).unwrap();
    Resource::read(&read)
}

#[test]
fn a_machine_that_ironic_did_not_discover_is_taken_only_when_all_nodes_are_asked_for() {
    let mut known = facts();
    assert!(resource(&json!({}), &json!({})).takes(&known, &ports()));
    known.auto_discovered = false;
    assert!(!resource(&json!({}), &json!({})).takes(&known, &ports()));
    assert!(resource(&json!({"includeAllNodes": true}), &json!({})).takes(&known, &ports()));
}

#[test]
fn a_resource_that_is_being_deleted_takes_nothing() {
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert!(!resource(&json!({}), &deleting).takes(&facts(), &ports()));
}

#[test]
fn the_older_resource_comes_first_and_of_the_same_second_the_first_by_name() {
    let made = |time: &str, name: &str| {
        resource(&json!({}), &json!({"creationTimestamp": time, "name": name}))
    };
    let older = made("2026-01-01T00:00:00Z", "z");
    let newer = made("2026-01-01T00:00:01Z", "a");
    let twin = made("2026-01-01T00:00:00Z", "y");
    let fresh = resource(&json!({}), &json!({"name": "0"}));
    assert!(older.age() < newer.age());
    assert!(twin.age() < older.age());
    assert!(newer.age() < fresh.age());
}

#[test]
fn approvals_are_read_with_blanks_and_in_any_case_and_others_are_told() {
    let id = "0f92160d-b665-4476-943a-f4dd47419207";
    let text = format!(" {} ,, {id},rack 7\n", id.to_uppercase());
    let read = resource(&json!({}), &json!({"annotations": {"ferrite.metal3.io/approve": text}}));
    assert_eq!(read.approved.iter().map(ToString::to_string).collect::<Vec<_>>(), [id]);
    assert_eq!(read.strange_approvals, ["rack 7"]);
}

#[test]
fn what_the_crd_would_refuse_today_is_told_with_the_field_and_what_it_says() {
    let read = resource(
        &json!({
            "resourceNameTemplate": {"prefix": "Rack-", "hardwareDetails": "ip"},
            "labels": {"ok": "yes", "bad key": "x", "bad-value": "a b"},
            "hostDefaults": {"labels": {"-": "x", "kept": ""}},
            "labelsFromHardware": {"/": "product", "hw": "product"},
            "selector": {"subnets": ["x"]},
        }),
        &json!({}),
    );
    let told = read.mistakes.join("\n");
    for part in [
        "resourceNameTemplate: \"Rack-<value>\" makes no name",
        "labels: \"bad key\": ",
        "labels: bad-value: \"a b\": ",
        "hostDefaults.labels: \"-\": ",
        "labelsFromHardware: \"/\": ",
        "selector.subnets: \"x\" ",
    ] {
        assert!(told.contains(part), "{part} is not in:\n{told}");
    }
    assert_eq!(read.mistakes.len(), 6);
    assert_eq!(read.spec.labels.keys().collect::<Vec<_>>(), ["kept", "ok"]);
    assert_eq!(read.spec.labels_from_hardware.keys().collect::<Vec<_>>(), ["hw"]);
}
