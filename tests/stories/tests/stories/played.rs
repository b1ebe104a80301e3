//! Objects that a story makes by hand, as Cluster API's managers and Hive's users would, in one namespace.

use std::time::{Duration, Instant};

use api_types::names;
use bench::cluster_api::objects::{self, CLUSTER, Kind};
use bench::hive;
pub(crate) use bench::objects::{DISCOVERY, HOST, REMEDIATION};
use bench::objects::{hive as of_hive, make_machine, make_request, secret};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

pub(crate) const ENTRY: Kind = of_hive("ClusterDeploymentCustomization");
pub(crate) const POOL: Kind = of_hive("ClusterPool");

const CLUSTER_NAME: &str = "metal";
const RELEASE: &str = "played";
/// Long enough for a busy machine; nothing that is promised is measured by it.
const PATIENCE: Duration = Duration::from_secs(180);

/// One namespace.
#[derive(Clone)]
pub(crate) struct Played {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Played {
    pub(crate) fn api(&self, kind: Kind) -> Api<DynamicObject> {
        kind.api(&self.client, &self.namespace)
    }

    pub(crate) async fn create(&self, kind: Kind, object: Value) -> DynamicObject {
        kind.create(&self.client, &self.namespace, object).await.unwrap()
    }

    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let found = self.api(kind).get_opt(name).await.unwrap();
        found.map(|it| serde_json::to_value(it).unwrap())
    }

    pub(crate) async fn list(&self, kind: Kind) -> Vec<Value> {
        let found = self.api(kind).list(&ListParams::default()).await.unwrap();
        found.iter().map(|it| serde_json::to_value(it).unwrap()).collect()
    }

    /// Patches it, if it is still there.
    pub(crate) async fn patch(&self, kind: Kind, name: &str, patch: Value) {
        let params = PatchParams::default();
        unless_gone(self.api(kind).patch(name, &params, &Patch::Merge(patch)).await);
    }

    /// Patches its status, if it is still there.
    pub(crate) async fn patch_status(&self, kind: Kind, name: &str, status: Value) {
        let (params, patch) = (PatchParams::default(), json!({ "status": status }));
        unless_gone(self.api(kind).patch_status(name, &params, &Patch::Merge(patch)).await);
    }

    pub(crate) async fn delete(&self, kind: Kind, name: &str) {
        unless_gone(self.api(kind).delete(name, &DeleteParams::default()).await);
    }

    /// Looks until what is found there is as wanted.
    pub(crate) async fn until(
        &self,
        kind: Kind,
        name: &str,
        wanted: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.get(kind, name).await.unwrap_or_default();
            if is(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{name} is never {wanted}: {seen:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn secret(&self, name: &str, key: &str, text: &str) {
        secret(&self.client, &self.namespace, name, &json!({ key: text })).await.unwrap();
    }

    /// A cluster whose infrastructure is ready, the way to its nodes, and the bootstrap data of its machines.
    pub(crate) async fn cluster(&self, kubeconfig: &str) {
        self.create(CLUSTER, objects::cluster(CLUSTER_NAME, "127.0.0.1", 6443, false)).await;
        let ready = json!({ "initialization": { "infrastructureProvisioned": true } });
        self.patch_status(CLUSTER, CLUSTER_NAME, ready).await;
        self.secret("boot", "value", "x").await;
        self.secret(&format!("{CLUSTER_NAME}-kubeconfig"), "value", kubeconfig).await;
    }

    /// A Machine of nobody and its `Metal3Machine`, which may name a host.
    pub(crate) async fn machine(&self, name: &str, host: Option<&str>) -> DynamicObject {
        let mut metal = objects::metal3_machine(name, CLUSTER_NAME);
        // That of the hosts which stories make.
        metal["spec"]["image"]["url"] = json!("http://i/i");
        metal["spec"]["image"]["checksum"] = json!("http://i/c");
        if let Some(host) = host {
            metal["metadata"]["annotations"] =
                json!({ names::metal3::HOST: format!("{}/{host}", self.namespace) });
        }
        make_machine(&self.client, &self.namespace, metal).await.unwrap()
    }

    /// What a health check makes for a machine.
    pub(crate) async fn request(&self, machine: &str) {
        make_request(&self.client, &self.namespace, machine).await.unwrap();
    }

    /// What a pool refers to.
    pub(crate) async fn materials(&self) {
        let template =
            "apiVersion: v1\nmetadata: {name: to-be-replaced}\nplatform: {openstack: {}}\n";
        hive::materials(&self.client, &self.namespace, RELEASE, template).await.unwrap();
    }

    /// One entry more, called `e<number>`, in a pool that wants as many clusters as it has entries.
    pub(crate) async fn entry(&self, number: usize) {
        let name = format!("e{number}");
        let patch = json!({ "op": "replace", "path": "/metadata/name", "value": name });
        let spec = json!({ "installConfigPatches": [patch] });
        self.create(ENTRY, ENTRY.object(&name, &spec)).await;
        let list: Vec<Value> = (0..=number).map(|n| json!({ "name": format!("e{n}") })).collect();
        let mut spec = json!({
            "size": number + 1,
            "inventory": { "ClusterDeploymentCustomizations": list },
        });
        if number > 0 {
            return self.patch(POOL, "pool", json!({ "spec": spec })).await;
        }
        let rest = json!({
            "platform": {
                "openstack": { "cloud": "here", "credentialsSecretRef": { "name": "cloud" } },
            },
            "baseDomain": "example.com",
            "imageSetRef": { "name": RELEASE },
            "pullSecretRef": { "name": "pull" },
            "installConfigSecretTemplateRef": { "name": "template" },
            "skipMachinePools": true,
            "labels": { (hive::PLAYED_BY): self.namespace },
        });
        spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        self.create(POOL, POOL.object("pool", &spec)).await;
    }

    /// The clusters of the pool, wherever they stand.
    pub(crate) async fn clusters(&self) -> Vec<Value> {
        let all: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &hive::kind("ClusterDeployment"));
        let found = all.list(&ListParams::default()).await.unwrap();
        let all = found.iter().map(|it| serde_json::to_value(it).unwrap());
        let ours = |it: &Value| it["spec"]["clusterPoolRef"]["namespace"] == *self.namespace;
        all.filter(ours).collect()
    }
}

/// The last word about an object may come too late.
fn unless_gone<T>(result: Result<T, kube::Error>) {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        other => drop(other.unwrap()),
    }
}

pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The keys of all reboot requests of a host.
pub(crate) fn requests_of(host: &Value) -> Vec<String> {
    let all = host["metadata"]["annotations"].as_object().into_iter().flatten();
    all.map(|(key, _)| key.clone()).filter(|key| names::metal3::is_reboot_request(key)).collect()
}
