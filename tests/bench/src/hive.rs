//! The stand-in for Hive's other controllers: it installs, hibernates and deprovisions clusters by writing what they would
//! write, and serves the claims' side of a claim.
//!
//! A cluster that is not paused gets the deprovision finalizer. Once a copy of its customization and its install config
//! are in its namespace it is installed and runs, or its provisioning stops if a story said that its entry fails. One
//! that is deleted frees its customization whoever has it, as Hive does, and then loses the finalizer. A claim that is
//! deleted marks its cluster for removal.
//!
//! What it cannot prove: that an installer would accept the install config, how long anything takes, what Hive's
//! admission refuses, what comes of attempts, machine pools, lifetimes of claims or power on a real cloud.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::{JoinHandle, JoinSet};

use crate::objects;

/// The label of clusters and claims that a stand-in plays for; its value is the stand-in's own.
pub const PLAYED_BY: &str = "bench.ferrite.metal3.io/played-by";
/// Objects that it looks at at the same time; each always in the same lane, so that no two looks at one overtake each other.
const LANES: u64 = 8;
const DEPROVISION: &str = "hive.openshift.io/deprovision";
const CLAIM: &str = "hive.openshift.io/claim";
const PAUSE: &str = "hive.openshift.io/reconcile-pause";
const REMOVE: &str = "hive.openshift.io/remove-cluster-from-pool";

/// The pull secret of [`materials`].
pub const PULL: &str = "{\"auths\":{}}";
/// The credentials of [`materials`].
pub const CLOUDS: &str = "clouds: {}";

/// Makes what a pool refers to: a release, and the secrets `template`, `pull` and `cloud`.
pub async fn materials(
    client: &Client,
    namespace: &str,
    release: &str,
    template: &str,
) -> anyhow::Result<()> {
    let spec = json!({ "releaseImage": "registry.example.com/release:1" });
    objects::apply(client, None, &objects::hive("ClusterImageSet").object(release, &spec)).await?;
    for (name, key, text) in [
        ("template", "install-config.yaml", template),
        ("pull", ".dockerconfigjson", PULL),
        ("cloud", "clouds.yaml", CLOUDS),
    ] {
        objects::secret(client, namespace, name, &json!({ key: text })).await?;
    }
    Ok(())
}

/// A kind of Hive.
pub fn kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("hive.openshift.io", "v1", kind))
}

/// Objects of a kind of Hive in one namespace.
pub fn api(client: &Client, namespace: &str, of: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &kind(of))
}

/// What a story wants of clusters made from an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Fails,
    Waits,
    StaysDeleting,
}

#[derive(Clone)]
struct Shared {
    client: Client,
    selector: String,
    prefix: String,
    wishes: Arc<Mutex<BTreeSet<(Wish, String)>>>,
}

/// Plays until it is dropped.
pub struct StandIn {
    shared: Shared,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl StandIn {
    /// Begins to play for all clusters and claims, of every namespace, that have the label [`PLAYED_BY`] with this value.
    pub fn start(client: &Client, name: &str) -> Self {
        Self::play(client, &format!("{PLAYED_BY}={name}"), String::new())
    }

    /// The same for all values that begin with this, so that one plays for many runs.
    pub fn for_all(client: &Client, prefix: &str) -> Self {
        Self::play(client, PLAYED_BY, prefix.to_owned())
    }

    fn play(client: &Client, selector: &str, prefix: String) -> Self {
        let shared = Shared {
            client: client.clone(),
            selector: selector.to_owned(),
            prefix,
            wishes: Arc::default(),
        };
        let tasks = ["ClusterDeployment", "ClusterClaim"].map(|of| {
            let shared = shared.clone();
            tokio::spawn(async move {
                let which = watcher::Config::default().labels(&shared.selector);
                let all: Api<DynamicObject> = Api::all_with(shared.client.clone(), &kind(of));
                let mut changes =
                    std::pin::pin!(watcher(all, which).default_backoff().applied_objects());
                let mut running = JoinSet::new();
                let lanes: Vec<_> = (0..LANES).map(|_| shared.lane(of, &mut running)).collect();
                while let Some(object) = changes.next().await {
                    // A watch that breaks comes back by itself.
                    let Ok(object) = object else { continue };
                    let mut hasher = DefaultHasher::new();
                    object.name_any().hash(&mut hasher);
                    let lane = usize::try_from(hasher.finish() % LANES).unwrap_or_default();
                    // Nobody listens any more only when the stand-in ends.
                    let _ = lanes[lane].send(object);
                }
            })
        });
        Self { shared, tasks: tasks.into() }
    }

    fn wishes(&self) -> MutexGuard<'_, BTreeSet<(Wish, String)>> {
        self.shared.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clusters made from this entry cannot be installed.
    pub fn fail(&self, entry: &str) {
        self.wishes().insert((Wish::Fails, entry.to_owned()));
    }

    /// Clusters made from this entry take as long as the story wants.
    pub fn hold(&self, entry: &str) {
        self.wishes().insert((Wish::Waits, entry.to_owned()));
    }

    /// Deprovisioning of clusters made from this entry takes as long as the story wants.
    pub fn keep(&self, entry: &str) {
        self.wishes().insert((Wish::StaysDeleting, entry.to_owned()));
    }

    /// Nothing special about this entry any more: what waited goes on.
    ///
    /// # Errors
    /// When the clusters cannot be listed.
    pub async fn go_on(&self, entry: &str) -> anyhow::Result<()> {
        self.wishes().retain(|(_, name)| name != entry);
        let api: Api<DynamicObject> =
            Api::all_with(self.shared.client.clone(), &kind("ClusterDeployment"));
        let which = ListParams::default().labels(&self.shared.selector);
        for cluster in api.list(&which).await?.items {
            self.shared.look_at("ClusterDeployment", &cluster).await;
        }
        Ok(())
    }
}

impl Shared {
    fn wants(&self, wish: Wish, entry: &str) -> bool {
        let wishes = self.wishes.lock().unwrap_or_else(PoisonError::into_inner);
        wishes.contains(&(wish, entry.to_owned())) || wishes.contains(&(wish, "*".to_owned()))
    }

    /// Looks at the objects that are sent to it, one after the other.
    fn lane(&self, of: &'static str, running: &mut JoinSet<()>) -> UnboundedSender<DynamicObject> {
        let (sender, mut objects) = mpsc::unbounded_channel();
        let shared = self.clone();
        running.spawn(async move {
            while let Some(object) = objects.recv().await {
                shared.look_at(of, &object).await;
            }
        });
        sender
    }

    /// Does what is due. A write that meets another is left to the watch, which shows both.
    async fn look_at(&self, of: &str, object: &DynamicObject) {
        let ours = object.labels().get(PLAYED_BY).is_some_and(|it| it.starts_with(&self.prefix));
        if !ours {
            return;
        }
        for _ in 0..20 {
            let done = match of {
                "ClusterClaim" => self.claim(object).await,
                _ => self.cluster(object).await,
            };
            match done {
                Ok(()) | Err(kube::Error::Api(_)) => return,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn claim(&self, claim: &DynamicObject) -> Result<(), kube::Error> {
        let namespace = claim.namespace().unwrap_or_default();
        let name = claim.name_any();
        let api = api(&self.client, &namespace, "ClusterClaim");
        let kept = claim.finalizers().iter().any(|it| it == CLAIM);
        let deleting = claim.metadata.deletion_timestamp.is_some();
        if !kept && !deleting {
            let patch = with_finalizer(claim, CLAIM, true);
            api.patch_metadata(&name, &PatchParams::default(), &patch).await?;
        } else if kept && deleting {
            if let Some(cluster) = claim.data["spec"]["namespace"].as_str() {
                let mark = json!({ "metadata": { "annotations": { REMOVE: "true" } } });
                let clusters = self::api(&self.client, cluster, "ClusterDeployment");
                let marked = clusters
                    .patch_metadata(cluster, &PatchParams::default(), &Patch::Merge(mark))
                    .await;
                match marked {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    other => drop(other?),
                }
            }
            let patch = with_finalizer(claim, CLAIM, false);
            api.patch_metadata(&name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    async fn cluster(&self, cluster: &DynamicObject) -> Result<(), kube::Error> {
        if cluster.annotations().get(PAUSE).is_some_and(|it| it == "true") {
            return Ok(());
        }
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let api = api(&self.client, &namespace, "ClusterDeployment");
        let params = PatchParams::default();
        let reference = &cluster.data["spec"]["clusterPoolRef"];
        let entry =
            reference["clusterDeploymentCustomization"]["name"].as_str().unwrap_or_default();
        let ours = cluster.finalizers().iter().any(|it| it == DEPROVISION);
        if cluster.metadata.deletion_timestamp.is_some() {
            if !ours || self.wants(Wish::StaysDeleting, entry) {
                return Ok(());
            }
            if !entry.is_empty() {
                let pool = reference["namespace"].as_str().unwrap_or_default();
                self.free(pool, entry).await?;
            }
            let patch = with_finalizer(cluster, DEPROVISION, false);
            api.patch_metadata(&name, &params, &patch).await?;
            return Ok(());
        }
        if !ours {
            let patch = with_finalizer(cluster, DEPROVISION, true);
            api.patch_metadata(&name, &params, &patch).await?;
            return Ok(());
        }
        let stopped = cluster.data["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|it| it["type"] == "ProvisionStopped" && it["status"] == "True")
        });
        if cluster.data["spec"]["installed"] == true {
            let wanted = match cluster.data["spec"]["powerState"].as_str() {
                Some("Hibernating") => "Hibernating",
                _ => "Running",
            };
            if cluster.data["status"]["powerState"] != wanted {
                let status = json!({ "status": { "powerState": wanted } });
                api.patch_status(&name, &params, &Patch::Merge(status)).await?;
            }
            return Ok(());
        }
        if stopped || self.wants(Wish::Waits, entry) || !self.is_complete(cluster, entry).await? {
            return Ok(());
        }
        if self.wants(Wish::Fails, entry) {
            let condition = json!({
                "type": "ProvisionStopped", "status": "True", "reason": "InstallAttemptsLimitReached",
                "message": "no address answers", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "lastProbeTime": "2026-01-01T00:00:00Z",
            });
            let status = json!({ "status": { "conditions": [condition] } });
            api.patch_status(&name, &params, &Patch::Merge(status)).await?;
            return Ok(());
        }
        let spec = json!({ "spec": { "installed": true } });
        api.patch(&name, &params, &Patch::Merge(spec)).await?;
        Ok(())
    }

    /// What Hive waits for before it installs.
    async fn is_complete(&self, cluster: &DynamicObject, entry: &str) -> Result<bool, kube::Error> {
        let namespace = cluster.namespace().unwrap_or_default();
        let secret =
            cluster.data["spec"]["provisioning"]["installConfigSecretRef"]["name"].as_str();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let has_config = secrets.get_opt(secret.unwrap_or_default()).await?.is_some();
        let copies = api(&self.client, &namespace, "ClusterDeploymentCustomization");
        let has_copy = entry.is_empty() || copies.get_opt(entry).await?.is_some();
        Ok(has_config && has_copy)
    }

    async fn free(&self, namespace: &str, entry: &str) -> Result<(), kube::Error> {
        let api = api(&self.client, namespace, "ClusterDeploymentCustomization");
        let Some(found) = api.get_opt(entry).await? else { return Ok(()) };
        let mut conditions =
            found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|it| it["type"] != "Available");
        conditions.push(json!({
            "type": "Available", "status": "True", "reason": "Available", "message": "available",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }));
        let status = json!({ "status": {
            "clusterDeploymentRef": null, "clusterPoolRef": null, "conditions": conditions,
        }});
        api.patch_status(entry, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }
}

fn with_finalizer(object: &DynamicObject, ours: &str, keep: bool) -> Patch<Value> {
    let mut all: Vec<&str> =
        object.finalizers().iter().map(String::as_str).filter(|it| *it != ours).collect();
    if keep {
        all.push(ours);
    }
    Patch::Merge(json!({
        "metadata": { "resourceVersion": object.resource_version(), "finalizers": all },
    }))
}
