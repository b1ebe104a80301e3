//! The older contract, where the API server serves nothing newer.

use bench::bmo;
use bench::cluster_api::objects::Kind;
use bench::cluster_api::{self, until_one};
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use capm3_reuse::config::Policy;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::ground::start;
use super::scene::consumer;

const CLUSTER: Kind = Kind { api_version: "cluster.x-k8s.io/v1beta1", kind: "Cluster" };
const MACHINE: Kind = Kind { api_version: "cluster.x-k8s.io/v1beta1", kind: "Machine" };
const METAL3_MACHINE: Kind =
    Kind { api_version: "infrastructure.cluster.x-k8s.io/v1beta1", kind: "Metal3Machine" };

/// An API server on which every kind that has an older version is served in that alone.
async fn older() -> (ControlPlane, Client) {
    let plane = ControlPlane::start("older").await.unwrap();
    let client = plane.admin().await;
    crds::install(&client, &[Group::Metal3, Group::Capm3]).await.unwrap();
    cluster_api::install_crds(&client).await.unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut crd in api.list(&ListParams::default()).await.unwrap() {
        let versions = &mut crd.spec.versions;
        if versions.iter().any(|it| it.name == "v1beta1" && it.served) {
            for version in versions.iter_mut() {
                let old = version.name == "v1beta1";
                // Stored as it is served: nobody converts here.
                (version.served, version.storage) = (old, old);
            }
            let patch = json!({"spec": {"versions": versions}});
            let name = crd.name_any();
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        }
    }
    (plane, client)
}

#[tokio::test]
async fn an_api_server_with_the_older_contract_alone_is_served_in_its_own_words() {
    let (plane, client) = older().await;
    let namespace = plane.namespace("older").await;
    let _operator = bmo::StandIn::start(&client, &namespace);
    bmo::make_host(&client, &namespace, "h1", &namespace, &json!({})).await.unwrap();
    let (_running, _) = start(&plane, &namespace, Policy::default()).await;
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "boot"}, "stringData": {"value": "x"}}))
            .unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let cluster = CLUSTER.object("c", &json!({"controlPlaneEndpoint": {"host": "h", "port": 1}}));
    CLUSTER.create(&client, &namespace, cluster).await.unwrap();
    let ready = json!({"status": {"infrastructureReady": true}});
    let clusters = CLUSTER.api(&client, &namespace);
    clusters.patch_status("c", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let spec = json!({
        "clusterName": "c",
        "bootstrap": {"dataSecretName": "boot"},
        "infrastructureRef": {
            "apiVersion": METAL3_MACHINE.api_version, "kind": "Metal3Machine", "name": "m1",
            "namespace": namespace,
        },
    });
    let machine = MACHINE.create(&client, &namespace, MACHINE.object("m1", &spec)).await.unwrap();
    let image = json!({"image": {"url": "http://a/b", "checksum": "c", "format": "qcow2"}});
    let mut metal = METAL3_MACHINE.object("m1", &image);
    metal["metadata"]["ownerReferences"] = json!([{
        "apiVersion": MACHINE.api_version, "kind": "Machine", "name": "m1", "uid": machine.uid(),
    }]);
    METAL3_MACHINE.create(&client, &namespace, metal).await.unwrap();
    let metals = METAL3_MACHINE.api(&client, &namespace);
    let up = until_one(&metals, "m1", "up", |it| it.data["status"]["ready"] == true).await.unwrap();
    let find = |list: &serde_json::Value| {
        let all = list.as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["type"] == "Ready").unwrap_or_default()
    };
    assert_eq!(find(&up.data["status"]["conditions"])["status"], "True");
    assert_eq!(find(&up.data["status"]["v1beta2"]["conditions"])["status"], "True");
    assert_eq!(up.data["spec"]["providerID"], json!(format!("metal3://{namespace}/h1/m1")));
    let host = bmo::api(&client, &namespace).get("h1").await.unwrap();
    assert_eq!(consumer(&host), "Metal3Machine/m1");
    assert_eq!(host.data["spec"]["image"]["format"], "qcow2");
    let reference = &host.data["spec"]["consumerRef"];
    assert_eq!(reference["apiVersion"], METAL3_MACHINE.api_version);
}
