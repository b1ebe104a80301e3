//! The older contract, where the API server serves nothing newer.

use std::collections::BTreeMap;

use bench::bmo;
use bench::cluster_api::objects::Kind;
use bench::cluster_api::{self, until, until_one};
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::objects::secret;
use capm3_reuse::settings::Policy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::ground::start;
use super::scene::{consumer, state};

const CLUSTER: Kind = Kind { api_version: "cluster.x-k8s.io/v1beta1", kind: "Cluster" };
const MACHINE: Kind = Kind { api_version: "cluster.x-k8s.io/v1beta1", kind: "Machine" };
const DEPLOYMENT: Kind = Kind { kind: "MachineDeployment", ..MACHINE };
const METAL3_MACHINE: Kind =
    Kind { api_version: "infrastructure.cluster.x-k8s.io/v1beta1", kind: "Metal3Machine" };
const TEMPLATE: Kind = Kind { kind: "Metal3MachineTemplate", ..METAL3_MACHINE };

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

/// A cluster and one deployment whose template asks for reuse, in the older words, and its first-boot secret.
struct Older {
    client: Client,
    namespace: String,
    deployment: DynamicObject,
}

impl Older {
    async fn new(client: &Client, namespace: &str) -> Self {
        secret(client, namespace, "boot", &json!({"value": "x"})).await.unwrap();
        let cluster =
            CLUSTER.object("c", &json!({"controlPlaneEndpoint": {"host": "h", "port": 1}}));
        CLUSTER.create(client, namespace, cluster).await.unwrap();
        let ready = json!({"status": {"infrastructureReady": true}});
        let clusters = CLUSTER.api(client, namespace);
        clusters.patch_status("c", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
        let template = json!({"nodeReuse": true, "template": {"spec": image()}});
        let template = TEMPLATE.object("t", &template);
        TEMPLATE.create(client, namespace, template).await.unwrap();
        let infrastructure =
            json!({"apiVersion": TEMPLATE.api_version, "kind": TEMPLATE.kind, "name": "t"});
        let spec = json!({
            "clusterName": "c",
            "replicas": 1,
            "selector": {"matchLabels": {"pool": "md"}},
            "template": {"metadata": {"labels": {"pool": "md"}}, "spec": {
                "clusterName": "c",
                "bootstrap": {"dataSecretName": "boot"},
                "infrastructureRef": infrastructure,
            }},
        });
        let deployment = DEPLOYMENT.object("md", &spec);
        let deployment = DEPLOYMENT.create(client, namespace, deployment).await.unwrap();
        Self { client: client.clone(), namespace: namespace.to_owned(), deployment }
    }

    /// A machine of the deployment.
    async fn machine(&self, name: &str) {
        let (client, namespace) = (&self.client, &self.namespace);
        let spec = json!({
            "clusterName": "c",
            "bootstrap": {"dataSecretName": "boot"},
            "infrastructureRef": {
                "apiVersion": METAL3_MACHINE.api_version, "kind": "Metal3Machine", "name": name,
                "namespace": namespace,
            },
        });
        let mut machine = MACHINE.object(name, &spec);
        machine["metadata"]["labels"] = json!({"cluster.x-k8s.io/deployment-name": "md"});
        machine["metadata"]["ownerReferences"] = json!([{
            "apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "name": "md",
            "uid": self.deployment.uid(), "controller": true,
        }]);
        let machine = MACHINE.create(client, namespace, machine).await.unwrap();
        let mut metal = METAL3_MACHINE.object(name, &image());
        metal["metadata"]["annotations"] = json!({
            "cluster.x-k8s.io/cloned-from-name": "t",
            "cluster.x-k8s.io/cloned-from-groupkind": "Metal3MachineTemplate.infrastructure.cluster.x-k8s.io",
        });
        metal["metadata"]["ownerReferences"] = json!([{
            "apiVersion": MACHINE.api_version, "kind": "Machine", "name": name, "uid": machine.uid(),
        }]);
        METAL3_MACHINE.create(client, namespace, metal).await.unwrap();
    }

    async fn up(&self, name: &str) -> DynamicObject {
        let metals = METAL3_MACHINE.api(&self.client, &self.namespace);
        until_one(&metals, name, "up", |it| it.data["status"]["ready"] == true).await.unwrap()
    }

    async fn delete(&self, kind: Kind, name: &str) {
        let api = kind.api(&self.client, &self.namespace);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes a machine as Cluster API does: the `Metal3Machine` first.
    async fn remove(&self, name: &str) {
        self.delete(METAL3_MACHINE, name).await;
        let metals = METAL3_MACHINE.api(&self.client, &self.namespace);
        let which = watcher::Config::default().fields(&format!("metadata.name={name}"));
        until(&metals, &which, "the machine gone", BTreeMap::is_empty).await.unwrap();
        self.delete(MACHINE, name).await;
    }
}

fn image() -> Value {
    json!({"image": {"url": "http://a/b", "checksum": "c", "format": "qcow2"}})
}

#[tokio::test]
async fn an_api_server_with_the_older_contract_alone_is_served_in_its_own_words() {
    let (plane, client) = older().await;
    let namespace = plane.namespace("older").await;
    let _operator = bmo::StandIn::start(&client, &namespace);
    bmo::make_host(&client, &namespace, "h1", &namespace, &json!({})).await.unwrap();
    let (_running, _) = start(&plane, &namespace, Policy::default()).await;
    let older = Older::new(&client, &namespace).await;
    older.machine("m1").await;
    let up = older.up("m1").await;
    let find = |list: &Value| {
        let all = list.as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["type"] == "Ready").unwrap_or_default()
    };
    assert_eq!(find(&up.data["status"]["conditions"])["status"], "True");
    assert_eq!(find(&up.data["status"]["v1beta2"]["conditions"])["status"], "True");
    assert_eq!(up.data["spec"]["providerID"], json!(format!("metal3://{namespace}/h1/m1")));
    let hosts = bmo::api(&client, &namespace);
    let host = hosts.get("h1").await.unwrap();
    assert_eq!(consumer(&host), "Metal3Machine/m1");
    assert_eq!(host.data["spec"]["image"]["format"], "qcow2");
    let reference = &host.data["spec"]["consumerRef"];
    assert_eq!(reference["apiVersion"], METAL3_MACHINE.api_version);

    // Given back it is kept for the deployment, and its next machine gets it although another host is free.
    older.remove("m1").await;
    let kept = hosts.get("h1").await.unwrap();
    assert_eq!((consumer(&kept).as_str(), state(&kept)), ("MachineDeployment/md", "available"));
    let reference = &kept.data["spec"]["consumerRef"];
    assert_eq!(reference["apiVersion"], DEPLOYMENT.api_version);
    assert_eq!(reference["uid"], json!(older.deployment.uid()));
    assert_eq!(kept.labels()["infrastructure.cluster.x-k8s.io/node-reuse"], "md-md");
    assert!(kept.data["spec"]["image"].is_null() && kept.data["spec"]["userData"].is_null());
    bmo::make_host(&client, &namespace, "h2", &namespace, &json!({})).await.unwrap();
    older.machine("m2").await;
    let up = older.up("m2").await;
    assert_eq!(up.data["spec"]["providerID"], json!(format!("metal3://{namespace}/h1/m2")));

    // Without its deployment it is free.
    older.remove("m2").await;
    older.delete(DEPLOYMENT, "md").await;
    let free = |it: &DynamicObject| consumer(it).is_empty();
    let freed = until_one(&hosts, "h1", "free", free).await.unwrap();
    assert!(!freed.labels().contains_key("infrastructure.cluster.x-k8s.io/node-reuse"));
    assert!(freed.annotations().is_empty(), "{:?}", freed.annotations());
}
