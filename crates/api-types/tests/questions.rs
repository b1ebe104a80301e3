//! Questions that several controllers ask, names, and the form in which hosts are cached.

#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use api_types::capi::{Cluster, Machine, is_watched};
use api_types::capm3::{Metal3Machine, UpstreamRemediation, consumer_machine, is_of};
use api_types::condition::{Condition, put};
use api_types::hive::{ClusterDeployment, ClusterPool};
use api_types::metal3::{BareMetalHost, CachedHost, ProvisioningState};
use api_types::time::{until, whole};
use api_types::{ContractVersion, names};
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_path_to_error::deserialize as decode;

fn read<K: DeserializeOwned>(value: Value) -> K {
    decode(value).expect("it decodes")
}

/// Values of the string constants in a module's source.
fn constants(source: &str) -> Vec<&str> {
    source
        .split("pub const ")
        .skip(1)
        .filter_map(|rest| rest.split_once("&str =")?.1.split('"').nth(1))
        .collect()
}

#[test]
fn no_name_is_given_twice() {
    let mut seen = std::collections::BTreeMap::new();
    let mut twice = Vec::new();
    for (module, source) in [
        ("ferrite", include_str!("../src/names/ferrite.rs")),
        ("metal3", include_str!("../src/names/metal3.rs")),
        ("capm3", include_str!("../src/names/capm3.rs")),
        ("capi", include_str!("../src/names/capi.rs")),
        ("hive", include_str!("../src/names/hive.rs")),
    ] {
        let found = constants(source);
        assert_eq!(found.len(), source.matches("pub const ").count(), "{module}");
        for name in found {
            if let Some(other) = seen.insert(name, module) {
                twice.push((name, other, module));
            }
        }
    }
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn own_names_stand_under_our_prefix() {
    for name in constants(include_str!("../src/names/ferrite.rs")) {
        let is_word = !name.contains('/');
        assert!(is_word || name.starts_with(names::ferrite::PREFIX), "{name}");
    }
}

#[test]
fn a_key_that_only_begins_like_a_reboot_request_is_none() {
    use names::metal3::{is_reboot_hold, is_reboot_request};
    for (key, request, hold) in [
        ("reboot.metal3.io", true, false),
        ("reboot.metal3.io/fence", true, true),
        ("reboot.metal3.io-x", false, false),
        ("xreboot.metal3.io/y", false, false),
    ] {
        assert_eq!((is_reboot_request(key), is_reboot_hold(key)), (request, hold), "{key}");
    }
}

#[test]
fn power_operations_need_credentials() {
    let bare: BareMetalHost = read(json!({"spec": {"online": true}}));
    let empty: BareMetalHost =
        read(json!({"spec": {"bmc": {"address": "", "credentialsName": ""}}}));
    let managed: BareMetalHost =
        read(json!({"spec": {"bmc": {"address": "redfish://b", "credentialsName": "c"}}}));
    assert!(!bare.power_operations_supported());
    assert!(!empty.power_operations_supported());
    assert!(managed.power_operations_supported());
}

#[test]
fn a_host_is_unhealthy_under_either_annotation() {
    for key in ["capm3.metal3.io/unhealthy", "capi.metal3.io/unhealthy"] {
        let host: BareMetalHost = read(json!({"metadata": {"annotations": {key: ""}}}));
        assert!(host.is_marked_unhealthy(), "{key}");
    }
    assert!(!read::<BareMetalHost>(json!({})).is_marked_unhealthy());
}

fn large_host() -> Value {
    json!({
        "metadata": {"name": "h", "annotations": {
                        "reboot.metal3.io/k": "v",
                        "inspect.metal3.io/hardwaredetails": "{}",
                        "baremetalhost.metal3.io/status": "{}",
                        "kubectl.kubernetes.io/last-applied-configuration": "{}",
                     },
                     "finalizers": ["f"], "managedFields": [{"manager": "m"}]},
        "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:01", "raid": {"x": 1},
                 "description": "long", "architecture": "x86_64", "bootMode": "UEFI", "image": {"url": "u", "x": 1},
                 "consumerRef": {"name": "c", "fieldPath": "p"}},
        "status": {"provisioning": {"state": "provisioned", "ID": "i", "raid": {},
                                    "image": {"url": "u", "x": 1}},
                   "operationHistory": {"register": {"start": "2026-01-01T00:00:00Z",
                                                     "end": "2026-01-01T00:01:00Z"}},
                   "conditions": [{"type": "Ready", "status": "True", "x": 1}],
                   "hardware": {"hostname": "h", "cpu": {"count": 4}, "nics": [
                       {"mac": "52:54:00:00:00:02", "ip": "192.0.2.1", "model": "m"},
                       {"mac": "52:54:00:00:00:02", "ip": "2001:db8::1"},
                       {"ip": "192.0.2.2"}]}},
    })
}

#[test]
fn a_cached_host_keeps_what_is_asked_and_drops_the_rest() {
    let host: CachedHost = read(large_host());
    assert_eq!(host.provisioning_state(), &ProvisioningState::Provisioned);
    assert_eq!(host.reboot_requests().collect::<Vec<_>>(), [("reboot.metal3.io/k", "v")]);
    let left = serde_json::to_value(&*host).expect("it encodes");
    assert_eq!(
        left,
        json!({
            "metadata": {"name": "h", "annotations": {"reboot.metal3.io/k": "v",
                                                      "baremetalhost.metal3.io/status": ""}},
            "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:01", "image": {"url": "u"},
                     "consumerRef": {"name": "c"}},
            "status": {"poweredOn": false, "operationalStatus": "", "errorMessage": "",
                       "errorCount": 0,
                       "provisioning": {"state": "provisioned", "ID": "i", "image": {"url": "u"}},
                       "conditions": [{"type": "Ready", "status": "True"}]},
        })
    );
}

#[test]
fn of_a_status_that_a_host_brings_only_its_state_is_kept_and_nothing_of_one_that_says_none() {
    let brought = |status: &str| {
        let mut host = large_host();
        host["metadata"]["annotations"]["baremetalhost.metal3.io/status"] = json!(status);
        let (whole, cached) = (read::<BareMetalHost>(host.clone()), read::<CachedHost>(host));
        let again = CachedHost::from((*cached).clone());
        assert!(cached == again, "{status}");
        assert_eq!(whole.brought_state(), cached.brought_state(), "{status}");
        cached.brought_state()
    };
    let moved = r#"{"poweredOn": true, "provisioning": {"ID": "i", "state": "provisioned"}}"#;
    assert_eq!(brought(moved), Some(ProvisioningState::Provisioned));
    for useless in
        ["", "null", "{}", r#"{"operationalStatus": "OK"}"#, r#"{"provisioning": {}}"#, "{"]
    {
        assert_eq!(brought(useless), None, "{useless}");
    }
    assert_eq!(read::<CachedHost>(json!({})).brought_state(), None);
}

#[test]
fn a_cached_host_says_whether_it_is_being_registered() {
    let registering = |register: Value| {
        let history = json!({"inspect": {"start": null, "end": null}, "register": register});
        let host = json!({"status": {"operationHistory": history}});
        let history = read::<CachedHost>(host).status.clone().and_then(|it| it.operation_history);
        history.is_some_and(|it| it.is_registering())
    };
    let (start, end) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
    assert!(registering(json!({"start": start, "end": null})));
    assert!(registering(json!({"start": start})));
    assert!(!registering(json!({"start": start, "end": end})));
    assert!(!registering(json!({"start": null, "end": null})) && !registering(json!(null)));
}

#[test]
fn a_cached_host_names_the_path_of_a_mistake() {
    let mut host = large_host();
    host["spec"]["online"] = json!("yes");
    let error = decode::<_, CachedHost>(host).expect_err("it is malformed");
    assert_eq!(error.path().to_string(), "spec.online");
}

#[test]
fn a_cached_host_does_not_mind_what_it_does_not_read() {
    let mut host = large_host();
    host["status"]["hardware"] = json!({"nics": "of another shape"});
    assert_eq!(read::<CachedHost>(host).provisioning_state(), &ProvisioningState::Provisioned);
}

/// 64 MB for 10,000 hosts leave 6,400 bytes each: strings, maps, the store's own share, and what a list leaves behind.
#[test]
fn a_cached_host_leaves_room_for_ten_thousand() {
    assert!(size_of::<CachedHost>() <= 1_280, "{}", size_of::<CachedHost>());
}

#[test]
fn a_kind_is_found_under_the_version_that_is_asked_for() {
    assert_eq!(
        Machine::url_path(&ContractVersion::default(), Some("a")),
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/a/machines"
    );
    assert_eq!(
        Machine::url_path(&ContractVersion::V1Beta1, None),
        "/apis/cluster.x-k8s.io/v1beta1/machines"
    );
    assert_eq!(CachedHost::url_path(&(), None), "/apis/metal3.io/v1alpha1/baremetalhosts");
}

#[test]
fn each_condition_format_is_found_in_each_contract() {
    let list = |reason: &str| {
        json!([{"type": "OwnerRemediated", "status": "False",
                                      "reason": reason}])
    };
    let newer: Machine = read(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "status": {"conditions": list("standard"),
                   "deprecated": {"v1beta1": {"conditions": list("deprecated")}}},
    }));
    let older: Machine = read(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "status": {"conditions": list("deprecated"), "v1beta2": {"conditions": list("standard")}},
    }));
    for machine in [newer, older] {
        let standard = machine.condition("OwnerRemediated").expect("the standard one");
        let deprecated = machine.deprecated_condition("OwnerRemediated").expect("the other");
        assert_eq!(standard.reason.as_deref(), Some("standard"));
        assert_eq!(deprecated.reason.as_deref(), Some("deprecated"));
    }
}

#[test]
fn references_mean_the_same_with_group_or_version() {
    for reference in [
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "K", "name": "n"}),
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "K", "name": "n"}),
    ] {
        let cluster: Cluster = read(json!({"spec": {"infrastructureRef": reference}}));
        let reference = cluster.spec.infrastructure_ref.expect("a reference");
        assert!(reference.is("infrastructure.cluster.x-k8s.io", "K", "n"));
        assert!(!reference.is("infrastructure.cluster.x-k8s.io", "K", "m"));
    }
}

#[test]
fn readiness_is_found_in_each_contract() {
    for status in [
        json!({"infrastructureReady": true}),
        json!({"initialization": {"infrastructureProvisioned": true}}),
    ] {
        assert!(read::<Cluster>(json!({"status": status})).infrastructure_provisioned());
    }
    assert!(!read::<Cluster>(json!({"status": {}})).infrastructure_provisioned());
}

#[test]
fn a_cluster_is_paused_by_field_or_annotation() {
    assert!(read::<Cluster>(json!({"spec": {"paused": true}})).is_paused());
    let annotated = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    assert!(read::<Cluster>(annotated).is_paused());
    assert!(!read::<Cluster>(json!({"spec": {"paused": false}})).is_paused());
}

#[test]
fn the_host_of_a_machine_is_the_name_half_of_its_annotation() {
    for (value, name) in [("ns/h", Some("h")), ("h", Some("h")), ("ns/", None), ("", None)] {
        let machine: Metal3Machine =
            read(json!({"metadata": {"annotations": {"metal3.io/BareMetalHost": value}}}));
        assert_eq!((machine.host_name(), machine.named_host()), (name, name), "{value}");
    }
}

#[test]
fn the_host_that_a_machine_intends_to_claim_is_its_host_for_us_and_not_for_capm3() {
    for (intended, named, host) in
        [("i", None, Some("i")), ("i", Some("ns/h"), Some("i")), ("", Some("ns/h"), Some("h"))]
    {
        let mut annotations = json!({ names::ferrite::INTENDS_HOST: intended });
        if let Some(named) = named {
            annotations[names::metal3::HOST] = json!(named);
        }
        let machine: Metal3Machine = read(json!({"metadata": {"annotations": annotations}}));
        assert_eq!(machine.host_name(), host, "{annotations}");
        assert_eq!(machine.named_host(), named.map(|_| "h"), "{annotations}");
    }
}

#[test]
fn a_timeout_is_read_in_each_contract() {
    for strategy in [json!({"timeout": "5m"}), json!({"timeoutSeconds": 300})] {
        let remediation: UpstreamRemediation = read(json!({"spec": {"strategy": strategy}}));
        let strategy = remediation.spec.strategy.expect("a strategy");
        assert_eq!(strategy.timeout(), Ok(Some(std::time::Duration::from_secs(300))));
    }
}

#[test]
fn a_timeout_that_is_none_is_shown_instead_of_replaced() {
    for (strategy, text) in [
        (json!({"timeout": "soon"}), "soon"),
        (json!({"timeout": "-5m"}), "-5m"),
        (json!({"timeoutSeconds": -1}), "-1"),
    ] {
        let remediation: UpstreamRemediation = read(json!({"spec": {"strategy": strategy}}));
        let strategy = remediation.spec.strategy.expect("a strategy");
        assert_eq!(strategy.timeout(), Err(text.to_owned()));
    }
}

#[test]
fn an_inventory_is_read_in_all_three_spellings() {
    for inventory in [
        json!([{"kind": "ClusterDeploymentCustomization", "name": "a"}, {"name": "b"}]),
        json!({"ClusterDeploymentCustomizations": [{"name": "a"}, {"name": "b"}]}),
        json!({"clusterDeploymentCustomizations": [{"name": "a"}, {"name": "b"}]}),
    ] {
        let pool: ClusterPool = read(json!({"spec": {"inventory": inventory}}));
        let inventory = pool.spec.inventory.expect("an inventory");
        let names: Vec<_> = inventory.entries().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}

#[test]
fn a_customization_is_found_in_all_three_spellings() {
    for key in [
        "clusterDeploymentCustomization",
        "clusterDeploymentCustomizationRef",
        "ClusterDeploymentCustomizationRef",
    ] {
        let cluster: ClusterDeployment =
            read(json!({"spec": {"clusterPoolRef": {"poolName": "p", key: {"name": "x"}}}}));
        let pool = cluster.spec.cluster_pool_ref.expect("a pool");
        assert_eq!(pool.customization_name(), Some("x"), "{key}");
    }
}

#[test]
fn a_watch_filter_lets_pass_what_has_its_value() {
    let labelled = |value: &str| -> Machine {
        read(json!({"metadata": {"labels": {names::capi::WATCH_FILTER: value}},
                    "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}}}))
    };
    let (ours, others) = (labelled("a"), labelled("b"));
    assert!(is_watched(&ours.metadata, Some("a")) && !is_watched(&others.metadata, Some("a")));
    assert!(!is_watched(&Machine::default().metadata, Some("a")));
    assert!(is_watched(&others.metadata, None) && is_watched(&Machine::default().metadata, None));
}

#[test]
fn a_condition_takes_the_place_of_the_one_of_its_type() {
    let said = |kind: &str, status: &str| -> Condition {
        serde_json::from_value(json!({"type": kind, "status": status})).expect("a condition")
    };
    let mut all = vec![said("A", "False"), said("B", "True")];
    put(&mut all, said("A", "True"));
    put(&mut all, said("C", "True"));
    assert_eq!(all, [said("A", "True"), said("B", "True"), said("C", "True")]);
}

#[test]
fn a_time_that_is_still_to_come_is_not_long_ago() {
    let at = |millisecond| Timestamp::from_millisecond(millisecond).expect("a time");
    assert_eq!(whole(at(1_500)), at(1_000));
    assert_eq!(until(at(1_000), at(2_500)), Duration::from_millis(1_500));
    assert_eq!(until(at(2_500), at(1_000)), Duration::ZERO);
}

#[test]
fn a_host_is_the_machines_by_name_and_uid_or_where_both_name_each_other() {
    let machine = |host: &str| -> Metal3Machine {
        read(json!({"metadata": {"name": "m", "namespace": "ns", "uid": "now",
                                 "annotations": {names::metal3::HOST: host}}}))
    };
    let host = |group: &str, name: &str, uid: Option<&str>| -> BareMetalHost {
        read(json!({"metadata": {"name": "h", "namespace": "ns"}, "spec": {"consumerRef": {
            "apiVersion": group, "kind": "Metal3Machine", "name": name, "uid": uid}}}))
    };
    let ours = "infrastructure.cluster.x-k8s.io/v1beta1";
    let (there, elsewhere) = (machine("ns/h"), machine("ns/other"));
    for group in [ours, ""] {
        assert!(is_of(&host(group, "m", None), &elsewhere), "CAPM3 writes no uid");
        assert!(is_of(&host(group, "m", Some("now")), &elsewhere));
        assert!(is_of(&host(group, "m", Some("before")), &there), "both were moved");
        assert!(!is_of(&host(group, "m", Some("before")), &elsewhere));
    }
    assert!(!is_of(&host("g/v1", "m", None), &there) && !is_of(&host(ours, "n", None), &there));
    assert_eq!(consumer_machine(&host(ours, "n", None)), Some("n"));
}
