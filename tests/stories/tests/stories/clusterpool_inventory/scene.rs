//! Pools, entries and claims of one namespace, and what a story looks at.

use std::time::{Duration, Instant};

use bench::hive::{PLAYED_BY, StandIn, api};
use bench::objects::secret;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::ground::{RELEASE, plane};

/// Long enough for a busy machine; nothing that is promised is measured by it.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// The install config that the pools of the stories start from.
pub(super) const TEMPLATE: &str = "\
apiVersion: v1
baseDomain: to.be.replaced
metadata:
  name: to-be-replaced
controlPlane: {name: master, replicas: 3}
compute: [{name: worker, replicas: 2}]
fips: no
platform:
  openstack:
    cloud: here
    externalNetwork: outside
";

/// One namespace.
pub(super) struct Scene {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Scene {
    /// A fresh namespace with the secrets of a pool, and a stand-in that plays for it.
    pub(super) async fn new(name: &str) -> (Self, StandIn) {
        let plane = plane().await;
        let client = plane.admin().await;
        let scene = Self { client: client.clone(), namespace: plane.namespace(name).await };
        scene.secrets().await;
        let hive = StandIn::start(&client, &scene.namespace);
        (scene, hive)
    }

    /// What a pool refers to.
    pub(super) async fn secrets(&self) {
        for (name, key, text) in [
            ("template", "install-config.yaml", TEMPLATE),
            ("pull", ".dockerconfigjson", "{\"auths\":{}}"),
            ("cloud", "clouds.yaml", "clouds: {}"),
        ] {
            secret(&self.client, &self.namespace, name, &json!({ key: text })).await.unwrap();
        }
    }

    pub(super) fn api(&self, kind: &str) -> Api<DynamicObject> {
        api(&self.client, &self.namespace, kind)
    }

    /// Entries that a finalizer keeps, which nobody is there to take off again.
    pub(super) async fn keep(&self, entries: &[&str], finalizer: &str) {
        let kept = json!({ "metadata": { "finalizers": [finalizer] } });
        for entry in entries {
            self.patch("ClusterDeploymentCustomization", entry, kept.clone()).await;
        }
    }

    /// A pool on a cloud that cannot hibernate, with the inventory in the mission's form. `more` is merged into its spec.
    pub(super) async fn pool(&self, name: &str, size: u32, entries: &[&str], more: Value) {
        let list: Vec<Value> = entries.iter().map(|it| json!({ "name": it })).collect();
        let mut spec = json!({
            "platform": { "openstack": { "cloud": "here", "credentialsSecretRef": { "name": "cloud" } } },
            "baseDomain": "example.com",
            "imageSetRef": { "name": RELEASE },
            "size": size,
            "pullSecretRef": { "name": "pull" },
            "installConfigSecretTemplateRef": { "name": "template" },
            "skipMachinePools": true,
            "labels": { PLAYED_BY: self.namespace },
        });
        if !list.is_empty() {
            spec["inventory"] = json!({ "ClusterDeploymentCustomizations": list });
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        // What is told to be nothing is left out.
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|_, value| !value.is_null());
        }
        self.create("ClusterPool", json!({ "metadata": { "name": name }, "spec": spec })).await;
    }

    /// A customization that names the cluster, with these operations beside.
    pub(super) async fn entry(&self, name: &str, more: Value) {
        let mut patches = vec![json!({ "op": "replace", "path": "/metadata/name", "value": name })];
        patches.extend(more.as_array().into_iter().flatten().cloned());
        let spec = json!({ "installConfigPatches": patches });
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        self.create("ClusterDeploymentCustomization", object).await;
    }

    pub(super) async fn entries(&self, names: &[&str]) {
        for name in names {
            self.entry(name, json!([])).await;
        }
    }

    /// A pool of one cluster from its one entry `a`, which runs. Returns the cluster's name.
    pub(super) async fn one_runs(&self) -> String {
        self.entries(&["a"]).await;
        self.pool("pool", 1, &["a"], json!({})).await;
        let view = self.wait("it runs", |it| it.ready("pool") == 1).await;
        name(&view.clusters[0]).to_owned()
    }

    pub(super) async fn claim(&self, name: &str, pool: &str) {
        let object = json!({
            "metadata": { "name": name, "labels": { PLAYED_BY: self.namespace } },
            "spec": { "clusterPoolName": pool },
        });
        self.create("ClusterClaim", object).await;
    }

    pub(super) async fn create(&self, kind: &str, mut object: Value) {
        object["apiVersion"] = json!("hive.openshift.io/v1");
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(kind).create(&PostParams::default(), &object).await.unwrap();
    }

    pub(super) async fn patch(&self, kind: &str, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.api(kind).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn list_entries(&self, pool: &str, entries: &[&str]) {
        let list: Vec<Value> = entries.iter().map(|it| json!({ "name": it })).collect();
        let inventory = json!({ "ClusterDeploymentCustomizations": list });
        self.patch("ClusterPool", pool, json!({ "spec": { "inventory": inventory } })).await;
    }

    /// The clusters of a pool of this namespace, oldest first.
    pub(super) async fn clusters(&self, pool: &str) -> Vec<Value> {
        let all: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &bench::hive::kind("ClusterDeployment"));
        let mut found: Vec<DynamicObject> = all.list(&ListParams::default()).await.unwrap().items;
        found.retain(|it| {
            let reference = &it.data["spec"]["clusterPoolRef"];
            reference["namespace"] == self.namespace.as_str() && reference["poolName"] == pool
        });
        found.sort_by_key(|it| (it.creation_timestamp().map(|it| it.0), it.name_any()));
        found.into_iter().map(|it| serde_json::to_value(it).unwrap()).collect()
    }

    /// Looks until it is so.
    pub(super) async fn until<F>(&self, what: &str, check: impl Fn(View) -> F) -> View
    where
        F: Future<Output = bool>,
    {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let view = self.view().await;
            if check(view.clone()).await {
                return view;
            }
            assert!(Instant::now() < deadline, "never: {what}\n{view}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Looks until the view is as wanted.
    pub(super) async fn wait(&self, what: &str, check: impl Fn(&View) -> bool) -> View {
        self.until(what, |view| {
            let is = check(&view);
            async move { is }
        })
        .await
    }

    /// Everything of this namespace's pools at about one moment.
    pub(super) async fn view(&self) -> View {
        let of = async |kind: &str| -> Vec<Value> {
            let found = self.api(kind).list(&ListParams::default()).await.unwrap().items;
            found.into_iter().map(|it| serde_json::to_value(it).unwrap()).collect()
        };
        let pools = of("ClusterPool").await;
        let mut clusters = Vec::new();
        for pool in &pools {
            clusters.extend(self.clusters(name(pool)).await);
        }
        View {
            pools,
            clusters,
            entries: of("ClusterDeploymentCustomization").await,
            claims: of("ClusterClaim").await,
        }
    }
}

/// What is there.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) pools: Vec<Value>,
    pub(super) clusters: Vec<Value>,
    pub(super) entries: Vec<Value>,
    pub(super) claims: Vec<Value>,
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(super) fn entry_of(cluster: &Value) -> &str {
    let reference = &cluster["spec"]["clusterPoolRef"];
    reference["clusterDeploymentCustomization"]["name"].as_str().unwrap_or_default()
}

/// Status, reason and message of a condition.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> (&'a str, &'a str, &'a str) {
    let all = object["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|it| it["type"] == kind);
    let text = |name: &str| found.and_then(|it| it[name].as_str()).unwrap_or_default();
    (text("status"), text("reason"), text("message"))
}

impl View {
    pub(super) fn pool(&self, of: &str) -> &Value {
        self.pools.iter().find(|it| name(it) == of).unwrap_or(&Value::Null)
    }

    pub(super) fn entry(&self, of: &str) -> &Value {
        self.entries.iter().find(|it| name(it) == of).unwrap_or(&Value::Null)
    }

    pub(super) fn claim(&self, of: &str) -> &Value {
        self.claims.iter().find(|it| name(it) == of).unwrap_or(&Value::Null)
    }

    pub(super) fn of(&self, pool: &str) -> Vec<&Value> {
        let all = self.clusters.iter();
        all.filter(|it| it["spec"]["clusterPoolRef"]["poolName"] == pool).collect()
    }

    pub(super) fn of_entry(&self, entry: &str) -> Vec<&Value> {
        self.clusters.iter().filter(|it| entry_of(it) == entry).collect()
    }

    /// The entry's word in the pool's status, or nothing.
    pub(super) fn word(&self, pool: &str, entry: &str) -> &str {
        self.pool(pool)["status"]["inventory"][entry]["status"].as_str().unwrap_or_default()
    }

    pub(super) fn holder(&self, entry: &str) -> &str {
        self.entry(entry)["status"]["clusterDeploymentRef"]["name"].as_str().unwrap_or_default()
    }

    /// Clusters that are installed and run, and wait for nothing.
    pub(super) fn ready(&self, pool: &str) -> usize {
        let ready = |it: &&&Value| {
            it["spec"]["installed"] == true
                && it["metadata"]["deletionTimestamp"].is_null()
                && it["status"]["powerState"] == "Running"
        };
        self.of(pool).iter().filter(ready).count()
    }
}

impl std::fmt::Display for View {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for pool in &self.pools {
            writeln!(out, "pool {}: {:#}", name(pool), pool["status"])?;
        }
        for it in &self.clusters {
            let metadata = &it["metadata"];
            writeln!(
                out,
                "cluster {}: entry {}, deleting {}, finalizers {}, annotations {}, installed {}, claim {}",
                name(it),
                entry_of(it),
                metadata["deletionTimestamp"],
                metadata["finalizers"],
                metadata["annotations"],
                it["spec"]["installed"],
                it["spec"]["clusterPoolRef"]["claimName"],
            )?;
        }
        for it in &self.entries {
            writeln!(out, "entry {}: {}", name(it), it["status"])?;
        }
        for it in &self.claims {
            writeln!(out, "claim {}: {} {}", name(it), it["spec"], it["status"])?;
        }
        Ok(())
    }
}
