//! The kind and the host that is made, as a real API server takes them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code, also what stands outside of a test function"
)]

mod world;

use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery};
use bench::control_plane::shared;
use bench::crds::{Group, install};
use host_discovery::hardware::{HardwareDetails, LateFields};
use host_discovery::host::new_host;
use host_discovery::resource::Resource;
use ironic::Inventory;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, CustomResourceExt as _};
use serde_json::{Value, json};
use world::{facts, node};

async fn discoveries(namespace: &str) -> Api<BareMetalHostDiscovery> {
    let client: Client = shared().await.admin().await;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = BareMetalHostDiscovery::crd();
    match crds.create(&PostParams::default(), &crd).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => panic!("the API server refuses the CRD: {error}"),
    }
    let name = crd.metadata.name.unwrap();
    await_condition(crds, &name, conditions::is_crd_established()).await.unwrap();
    Api::namespaced(client, namespace)
}

fn with(spec: &Value) -> Value {
    let mut whole = json!({"resourceNameTemplate": {"hardwareDetails": "hostname"}});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    whole
}

fn object(spec: Value) -> BareMetalHostDiscovery {
    BareMetalHostDiscovery::new("trial", serde_json::from_value(spec).unwrap())
}

#[tokio::test]
async fn what_can_make_no_legal_name_or_match_nothing_is_refused_with_what_to_change() {
    let namespace = shared().await.namespace("crd").await;
    let api = discoveries(&namespace).await;
    let template = |prefix: &str, suffix: &str, detail: &str| json!({"resourceNameTemplate": {"prefix": prefix, "suffix": suffix, "hardwareDetails": detail}});
    let bmc = |address: &str, subnet: &str| json!({"bmc": {"addressTemplate": address, "credentialsName": "b", "subnets": [subnet]}});
    let redfish = "redfish+https://{bmcAddress}/";
    for (spec, told) in [
        (bmc("https://{bmcAddress}/", "192.0.2.0/24"), "begin with a kind of BMC"),
        (bmc("pigeon://{bmcAddress}", "192.0.2.0/24"), "begin with a kind of BMC"),
        (bmc("redfish+https://192.0.2.1/", "192.0.2.0/24"), "stands where the host stands"),
        (bmc("redfish://u@{bmcAddress}/", "192.0.2.0/24"), "stands where the host stands"),
        (bmc("redfish://{bmcAddress}.x/", "192.0.2.0/24"), "stands where the host stands"),
        (bmc("redfish://{bmcAddress}/{serial}", "192.0.2.0/24"), "is the only placeholder"),
        (bmc("redfish://{bmcAddress}/%2e", "192.0.2.0/24"), "is the only placeholder"),
        (bmc(redfish, "192.0.2.1"), "subnets: networks in CIDR notation"),
        (bmc(redfish, "0.0.0.0/0"), "with a length of 8 or more"),
        (
            json!({"bmc": {"addressTemplate": redfish, "credentialsName": "b", "subnets": []}}),
            "at least 1 items",
        ),
        (
            json!({"bmc": {"addressTemplate": redfish, "credentialsName": "", "subnets": ["192.0.2.0/24"]}}),
            "at least 1 chars",
        ),
        (template("Rack-", "", "hostname"), "prefix: only lower-case letters"),
        (template("-a", "", "hostname"), "prefix: only lower-case letters"),
        (template("", "-", "hostname"), "suffix: only lower-case letters"),
        (template("", "a.b", "hostname"), "suffix: only lower-case letters"),
        (template("", "", "provisioning-id"), "provisioning-id needs a prefix or a suffix"),
        (template(&"a".repeat(42), &"b".repeat(21), "ip"), "leave room for the value"),
        (template(&"a".repeat(63), "", "ip"), "may not be more than 62"),
        (json!({"fallback": "provisioning-id"}), "fallback: provisioning-id needs a prefix"),
        (json!({"selector": {"macPrefixes": ["5254"]}}), "macPrefixes: one to six bytes"),
        (json!({"selector": {"subnets": ["10.0.0.0"]}}), "subnets: networks in CIDR notation"),
        (json!({"selector": {"minCPUs": 0}}), "greater than or equal to 1"),
        (json!({"selector": {"products": [""]}}), "at least 1 chars"),
        (json!({"maxHosts": -1}), "greater than or equal to 0"),
    ] {
        let answer = api.create(&PostParams::default(), &object(with(&spec))).await;
        let error = answer.expect_err(&format!("{spec} is taken")).to_string();
        assert!(error.contains(told), "{spec}: {error}");
    }
}

#[tokio::test]
async fn what_the_api_server_takes_is_read_without_a_mistake() {
    let namespace = shared().await.namespace("crd").await;
    let api = discoveries(&namespace).await;
    for spec in [
        json!({}),
        json!({"resourceNameTemplate": {"prefix": "", "suffix": "", "hardwareDetails": "ip"}}),
        json!({"resourceNameTemplate": {"prefix": "a".repeat(60), "hardwareDetails": "hostname"}}),
        json!({"resourceNameTemplate": {"prefix": "4u-", "suffix": "-x9", "hardwareDetails": "provisioning-id"}}),
        json!({"resourceNameTemplate": {"prefix": "x", "hardwareDetails": "serial-number"}, "fallback": "provisioning-id"}),
        json!({
            "selector": {
                "manufacturers": ["ACME"], "products": ["Anvil"], "architectures": ["x86_64"],
                "macPrefixes": ["52", "52:54:00:AA:bb:01"], "subnets": ["192.0.2.0/24", "2001:db8::/32"],
                "minCPUs": 4, "minMemoryMiB": 1024, "minDiskGiB": 10,
            },
            "approval": "Manual", "labels": {"a": "b"}, "labelsFromHardware": {"c": "cpu-model"},
            "hostDefaults": {"online": false, "bootMode": "UEFI", "automatedCleaningMode": "metadata"},
            "bmc": {
                "addressTemplate": "idrac-virtualmedia+https://{bmcAddress}/redfish/v1/Systems/System.Embedded.1",
                "credentialsName": "b", "subnets": ["192.0.2.0/24", "2001:db8::/32"],
            },
            "maxHosts": 0, "suspend": true, "dryRun": true, "includeAllNodes": true, "rediscover": true,
        }),
    ] {
        let wanted = object(with(&spec));
        let stored = api.create(&PostParams::default(), &wanted).await.unwrap();
        assert_eq!(stored.spec, wanted.spec);
        assert_eq!(Resource::read(&stored).mistakes, Vec::<String>::new(), "{spec}");
        api.delete("trial", &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn the_api_server_keeps_every_field_of_a_new_host() {
    let plane = shared().await;
    let namespace = plane.namespace("host").await;
    let client = plane.admin().await;
    install(&client, &[Group::Metal3]).await.unwrap();
    let racks = Resource {
        namespace: namespace.clone(),
        ..world::resource(
            "racks",
            &json!({"labels": {"site": "x"}, "hostDefaults": {"description": "d"}}),
        )
    };
    let made = new_host(
        &racks,
        "n1",
        node(1),
        &facts(1),
        &HardwareDetails::read(&Inventory::default(), LateFields::default()),
    );
    let api: Api<BareMetalHost> = Api::namespaced(client, &namespace);
    let stored = api.create(&PostParams::default(), &made).await.unwrap();
    let mut kept = stored.spec.clone();
    // The server's default for what was left open.
    assert_eq!(kept.automated_cleaning_mode.take().as_deref(), Some("metadata"));
    assert_eq!(kept, made.spec);
    assert_eq!(stored.metadata.annotations, made.metadata.annotations);
    assert_eq!(stored.metadata.labels, made.metadata.labels);
    // The name is the last guard: a second one is refused, whoever asks.
    let again = api.create(&PostParams::default(), &made).await;
    assert!(matches!(again, Err(kube::Error::Api(status)) if status.is_already_exists()));
}
