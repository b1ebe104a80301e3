//! The foreign CRDs on a real API server: what is served, what is dropped, what is refused.

use bench::control_plane::{ControlPlane, shared};
use bench::crds::{Group, condition, files, install};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams, ValidationDirective};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

fn kind() -> ApiResource {
    ApiResource {
        group: "metal3.io".into(),
        version: "v1alpha1".into(),
        api_version: "metal3.io/v1alpha1".into(),
        kind: "BareMetalHost".into(),
        plural: "baremetalhosts".into(),
    }
}

fn hosts(client: Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client, namespace, &kind())
}

fn host(name: &str, spec: &Value) -> DynamicObject {
    DynamicObject::new(name, &kind()).data(json!({"spec": spec}))
}

/// A status that the CRD accepts, with a stamp that only an extended one knows.
fn stamped_status() -> Value {
    json!({"status": {
        "errorCount": 0,
        "errorMessage": "",
        "operationalStatus": "OK",
        "poweredOn": true,
        "provisioningFailCount": 0,
        "provisioning": {"ID": "a-node", "state": "provisioned", "lastPoweredOn": "2026-01-01T00:00:00Z"},
    }})
}

#[tokio::test(flavor = "multi_thread")]
async fn every_description_is_served_with_a_structural_schema() {
    let client = shared().await.admin().await;
    install(&client, &Group::ALL).await.unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(client);
    for group in Group::ALL {
        for described in files(group).unwrap() {
            let name = described.name_any();
            let crd = api.get(&name).await.unwrap();
            let is = |kind: &str| condition(&crd, kind).is_some_and(|found| found.status == "True");
            assert!(is("Established"), "{name}");
            assert!(!is("NonStructuralSchema"), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_crd_drops_a_field_that_it_does_not_know() {
    let plane = shared().await;
    let client = plane.admin().await;
    install(&client, &[Group::Metal3]).await.unwrap();
    let hosts = hosts(client, &plane.namespace("crds").await);
    hosts.create(&PostParams::default(), &host("h", &json!({"online": true}))).await.unwrap();

    let patch = Patch::Merge(stamped_status());
    let stored = hosts.patch_status("h", &PatchParams::default(), &patch).await.unwrap();

    let provisioning = &stored.data["status"]["provisioning"];
    assert_eq!(provisioning["state"], "provisioned");
    assert_eq!(provisioning.get("lastPoweredOn"), None);

    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let refusal = hosts.patch_status("h", &strict, &patch).await.unwrap_err();
    assert!(
        refusal.to_string().contains("lastPoweredOn"),
        "strict validation names the field: {refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_refused_for_what_a_real_cluster_refuses() {
    let plane = shared().await;
    let client = plane.admin().await;
    install(&client, &[Group::Metal3]).await.unwrap();
    let hosts = hosts(client, &plane.namespace("crds").await);
    let wrong = [
        ("spec.online", json!({})),
        (
            "spec.image.format",
            json!({"online": true, "image": {"url": "http://images.example/a", "format": ""}}),
        ),
        (
            "spec.bmc.credentialsName",
            json!({"online": true, "bmc": {"address": "redfish://192.0.2.1/1"}}),
        ),
    ];
    for (field, spec) in wrong {
        let created = hosts.create(&PostParams::default(), &host("h", &spec)).await;
        match created {
            Err(kube::Error::Api(status)) if status.is_invalid() => {
                assert!(status.message.contains(field), "{field}: {}", status.message);
            }
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn installing_again_keeps_what_was_added_to_a_crd() {
    // A server of its own: an extended CRD would change what other tests see.
    let plane = ControlPlane::start("crds").await.unwrap();
    let client = plane.admin().await;
    install(&client, &[Group::Metal3]).await.unwrap();
    let name = "baremetalhosts.metal3.io";
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let stamp = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/provisioning/properties/lastPoweredOn";
    let addition = serde_json::from_value(json!([
        {"op": "add", "path": stamp, "value": {"type": "string", "format": "date-time", "nullable": true}},
    ]))
    .unwrap();
    api.patch(name, &PatchParams::default(), &Patch::Json::<()>(addition)).await.unwrap();

    install(&client, &[Group::Metal3]).await.unwrap();

    let crd = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
    assert_eq!(crd.pointer(stamp).map(|field| &field["type"]), Some(&json!("string")));
}
