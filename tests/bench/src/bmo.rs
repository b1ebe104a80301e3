//! The stand-in for the bare metal operator: it installs and clears hosts by writing what the operator would write.
//!
//! A host that is available and is told an image becomes provisioning and then provisioned, with an address; one whose
//! image was taken away becomes deprovisioning and then available. A paused host is left as it is, and a story can keep a
//! host where it is for as long as it likes.
//!
//! What it cannot prove: that anything is installed or wiped, that Ironic accepts what the host says, how long anything
//! takes on hardware, what the operator does with hosts that it registers, inspects, prepares, detaches or fails to reach,
//! or that disks survive.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use futures_util::StreamExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The label of hosts that a stand-in plays for; its value is the stand-in's own.
pub const PLAYED_BY: &str = "bench.ferrite.metal3.io/played-by";
const PAUSED: &str = "baremetalhost.metal3.io/paused";

/// The kind `BareMetalHost`.
pub fn hosts() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("metal3.io", "v1alpha1", "BareMetalHost"))
}

/// Hosts of one namespace.
pub fn api(client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &hosts())
}

/// Makes a host that is available, played by the stand-in of that name, with these labels beside.
///
/// # Errors
/// When the API server refuses it.
pub async fn make_host(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    played_by: &str,
    labels: &Value,
) -> anyhow::Result<()> {
    let mut all = labels.clone();
    all[PLAYED_BY] = json!(played_by);
    let mut host = host(name, &all, &json!({}));
    host["spec"]["bmc"]["credentialsName"] = json!(format!("{name}-bmc"));
    let status = well(false, &json!({"state": "available", "ID": "played"}));
    create(client, namespace, host, &status).await
}

/// The secret that the hosts of [`host`] name.
pub const CREDENTIALS: &str = "bmc";

/// A host that is off, and what else is to stand in its spec.
pub fn host(name: &str, labels: &Value, more: &Value) -> Value {
    let mut host = json!({
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": {"name": name, "labels": labels},
        "spec": {"online": false, "bmc": {
            "address": "redfish-virtualmedia+http://127.0.0.1/redfish/v1/Systems/1",
            "credentialsName": CREDENTIALS,
        }},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        host["spec"][field] = value.clone();
    }
    host
}

/// What the operator writes of a host that is well.
pub fn well(powered_on: bool, provisioning: &Value) -> Value {
    json!({
        "poweredOn": powered_on, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
        "provisioningFailCount": 0, "provisioning": provisioning,
    })
}

/// Makes a host, with its status where it has one.
///
/// # Errors
/// When the API server refuses it.
pub async fn create(
    client: &kube::Client,
    namespace: &str,
    host: Value,
    status: &Value,
) -> anyhow::Result<()> {
    let api = api(client, namespace);
    let host: DynamicObject = serde_json::from_value(host)?;
    let made = api.create(&PostParams::default(), &host).await;
    let made = made.context("a BareMetalHost is refused")?;
    if !status.is_null() {
        let (name, patch) = (made.metadata.name.unwrap_or_default(), json!({"status": status}));
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(())
}

/// Plays until it is dropped.
pub struct StandIn {
    client: kube::Client,
    kept: Arc<Mutex<BTreeSet<(String, String)>>>,
    task: JoinHandle<()>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StandIn {
    /// Begins to play for all hosts, of every namespace, that have the label [`PLAYED_BY`] with this value.
    pub fn start(client: &kube::Client, name: &str) -> Self {
        let kept = Arc::new(Mutex::default());
        let which = watcher::Config::default().labels(&format!("{PLAYED_BY}={name}"));
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &hosts());
        let (by, held) = (client.clone(), Arc::clone(&kept));
        let task = tokio::spawn(async move {
            let mut changes =
                std::pin::pin!(watcher(all, which).default_backoff().applied_objects());
            while let Some(host) = changes.next().await {
                // A watch that breaks comes back by itself.
                let Ok(host) = host else { continue };
                look_at(&by, &held, host).await;
            }
        });
        Self { client: client.clone(), kept, task }
    }

    /// Keeps a host in the state that it is in.
    pub fn keep(&self, namespace: &str, name: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert((namespace.to_owned(), name.to_owned()));
    }

    /// Lets a host go on.
    ///
    /// # Errors
    /// When the host cannot be read.
    pub async fn go_on(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.remove(&(namespace.to_owned(), name.to_owned()));
        }
        let host = api(&self.client, namespace).get(name).await?;
        look_at(&self.client, &self.kept, host).await;
        Ok(())
    }
}

/// Does what is due for a host. A write that meets another is left to the watch, which shows both.
async fn look_at(
    client: &kube::Client,
    kept: &Mutex<BTreeSet<(String, String)>>,
    host: DynamicObject,
) {
    let namespace = host.metadata.namespace.clone().unwrap_or_default();
    let name = host.metadata.name.clone().unwrap_or_default();
    let is_kept = {
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.contains(&(namespace.clone(), name.clone()))
    };
    let paused = host.metadata.annotations.iter().flatten().any(|(key, _)| key == PAUSED);
    if is_kept || paused {
        return;
    }
    let Some(next) = next(&host) else { return };
    let api = api(client, &namespace);
    for _ in 0..20 {
        match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&next)).await {
            Ok(_) | Err(kube::Error::Api(_)) => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The status that follows from spec and status, with the version that it was decided on.
fn next(host: &DynamicObject) -> Option<Value> {
    let (spec, status) = (&host.data["spec"], &host.data["status"]);
    let wanted = !spec["image"].is_null() || !spec["customDeploy"].is_null();
    let now = status["provisioning"]["state"].as_str().unwrap_or_default();
    let installed = |state: &str| {
        json!({"status": {
            "poweredOn": state == "provisioned",
            "provisioning": {"state": state, "image": spec["image"], "customDeploy": spec["customDeploy"]},
        }})
    };
    let cleared = |state: &str| {
        json!({"status": {
            "poweredOn": false,
            "provisioning": {"state": state, "image": null, "customDeploy": null},
        }})
    };
    let mut next = match (now, wanted) {
        ("available" | "ready", true) => installed("provisioning"),
        ("provisioning", true) => {
            let mut done = installed("provisioned");
            let name = host.metadata.name.as_deref().unwrap_or_default();
            done["status"]["hardware"] = json!({
                "hostname": name,
                "nics": [{"name": "eth0", "mac": "00:00:00:00:00:01", "ip": "192.0.2.7"}],
            });
            done
        }
        ("provisioning" | "provisioned", false) => json!({"status": {
            "provisioning": {"state": "deprovisioning"},
        }}),
        ("deprovisioning", _) => cleared("available"),
        _ => return None,
    };
    next["metadata"] = json!({"resourceVersion": host.metadata.resource_version});
    Some(next)
}
