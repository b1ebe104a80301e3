//! The stand-in for the bare metal operator's power management, and for the kubelet behind it: a host with a reboot
//! request is off, one without is on as `spec.online` says, and a machine that comes on has a kubelet that says so.
//!
//! What it cannot prove: that any machine was switched, how long that takes, or what an operator does with failures.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{bmo, kubelet};

/// The label of hosts that it plays for.
pub const PLAYED: &str = "stories.ferrite.metal3.io/power";
/// The annotation that names a host's node.
pub const NODE: &str = "stories.ferrite.metal3.io/node";

/// Plays for all hosts with the label and its value, until it is dropped.
pub struct Operator {
    faults: Arc<Mutex<Faults>>,
    task: JoinHandle<()>,
}

/// Names of hosts that do not do what they should.
#[derive(Default)]
struct Faults {
    stuck: BTreeSet<String>,
    low: BTreeSet<String>,
    dead: BTreeSet<String>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Operator {
    /// Begins to play. `workload` is a client of the cluster that the nodes are in.
    pub fn start(client: &Client, workload: &Client, value: &str) -> Self {
        let faults = Arc::<Mutex<Faults>>::default();
        let hosts: Api<DynamicObject> = Api::all_with(client.clone(), &bmo::hosts());
        let which = watcher::Config::default().labels(&format!("{PLAYED}={value}"));
        let (client, workload, known) = (client.clone(), workload.clone(), Arc::clone(&faults));
        let task = tokio::spawn(async move {
            let mut changes =
                std::pin::pin!(watcher(hosts, which).default_backoff().applied_objects());
            while let Some(host) = changes.next().await {
                let Ok(host) = host else { continue };
                look_at(&client, &workload, &known, &host).await;
            }
        });
        Self { faults, task }
    }

    /// From now on this host's power does not change.
    pub fn stick(&self, host: &str) {
        lock(&self.faults).stuck.insert(host.to_owned());
    }

    /// From now on this host does not come on, once it is off.
    pub fn keep_off(&self, host: &str) {
        lock(&self.faults).low.insert(host.to_owned());
    }

    /// It changes again, at the next change of the host.
    pub fn unstick(&self, host: &str) {
        let mut faults = lock(&self.faults);
        faults.stuck.remove(host);
        faults.low.remove(host);
    }

    /// No kubelet of this host comes back.
    pub fn kill(&self, host: &str) {
        lock(&self.faults).dead.insert(host.to_owned());
    }
}

fn lock(faults: &Mutex<Faults>) -> MutexGuard<'_, Faults> {
    faults.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn look_at(client: &Client, workload: &Client, faults: &Mutex<Faults>, host: &DynamicObject) {
    let name = host.name_any();
    let is_on = host.data["status"]["poweredOn"] == true;
    let stays = {
        let faults = lock(faults);
        let is_off = host.data["status"]["poweredOn"] == false;
        faults.stuck.contains(&name) || is_off && faults.low.contains(&name)
    };
    let asked =
        |key: &&String| key.as_str() == "reboot.metal3.io" || key.starts_with("reboot.metal3.io/");
    let held = host.annotations().keys().any(|key| asked(&key));
    let wanted = host.data["spec"]["online"] == true && !held;
    let provisioned = host.data["status"]["provisioning"]["state"] == "provisioned";
    // One reboot was asked for: when the host is off, the operator takes that key away.
    let is_plain = !wanted && host.annotations().contains_key("reboot.metal3.io");
    if stays || (wanted == is_on && !is_plain) || !provisioned {
        return;
    }
    let api = bmo::api(client, &host.namespace().unwrap_or_default());
    if is_plain {
        let off = json!({"status": {"poweredOn": false}});
        let taken = json!({"metadata": {"annotations": {"reboot.metal3.io": null}}});
        let params = PatchParams::default();
        let _ = api.patch_status(&name, &params, &Patch::Merge(&off)).await;
        let _ = api.patch(&name, &params, &Patch::Merge(&taken)).await;
        return;
    }
    let status = json!({
        "metadata": {"resourceVersion": host.metadata.resource_version},
        "status": {"poweredOn": wanted},
    });
    if api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.is_err() {
        // Somebody wrote meanwhile, which the watch will show.
        return;
    }
    let node = host.annotations().get(NODE).cloned().unwrap_or_default();
    let silent = name.starts_with("dead") || lock(faults).dead.contains(&name);
    if wanted && !silent && !node.is_empty() {
        // What is lost here is missed by whoever waits for the machine.
        let _ = kubelet::boot(workload, &node).await;
    }
}
