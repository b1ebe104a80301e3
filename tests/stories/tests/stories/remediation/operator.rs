//! The stand-in for the bare metal operator's power management, and for the kubelet behind it: a host with a reboot
//! request is off, one without is on as `spec.online` says, and a machine that comes on has a kubelet that says so.
//!
//! What it cannot prove: that any machine was switched, how long that takes, or what an operator does with failures.
//! `neighbours` has the stories with `bmo-reboot` and a real Ironic instead.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bench::bmo;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

/// The label of hosts that it plays for.
pub(super) const PLAYED: &str = "stories.ferrite.metal3.io/power";
/// The annotation that names a host's node.
pub(super) const NODE: &str = "stories.ferrite.metal3.io/node";

/// Plays for all hosts with the label and its value, until it is dropped.
pub(super) struct Operator {
    stuck: Arc<Mutex<BTreeSet<String>>>,
    low: Arc<Mutex<BTreeSet<String>>>,
    dead: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Operator {
    pub(super) fn start(client: &Client, workload: &Client, value: &str) -> Self {
        let (stuck, low) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::default());
        let dead = Arc::default();
        let hosts: Api<DynamicObject> = Api::all_with(client.clone(), &bmo::hosts());
        let which = watcher::Config::default().labels(&format!("{PLAYED}={value}"));
        let (client, workload) = (client.clone(), workload.clone());
        let (held, unlit) = (stuck.clone(), Arc::<Mutex<BTreeSet<String>>>::clone(&low));
        let silent = Arc::clone(&dead);
        let task = tokio::spawn(async move {
            let mut changes =
                std::pin::pin!(watcher(hosts, which).default_backoff().applied_objects());
            while let Some(host) = changes.next().await {
                let Ok(host) = host else { continue };
                let name = host.name_any();
                let stays_off = unlit.lock().unwrap().contains(&name)
                    && host.data["status"]["poweredOn"] == false;
                if !stays_off && !held.lock().unwrap().contains(&name) {
                    look_at(&client, &workload, &silent, &host).await;
                }
            }
        });
        Self { stuck, low, dead, task }
    }

    /// From now on this host's power does not change.
    pub(super) fn stick(&self, host: &str) {
        self.stuck.lock().unwrap().insert(host.to_owned());
    }

    /// From now on this host does not come on, once it is off.
    pub(super) fn keep_off(&self, host: &str) {
        self.low.lock().unwrap().insert(host.to_owned());
    }

    /// It changes again, at the next change of the host.
    pub(super) fn unstick(&self, host: &str) {
        self.stuck.lock().unwrap().remove(host);
        self.low.lock().unwrap().remove(host);
    }

    /// No kubelet of this host comes back.
    pub(super) fn kill(&self, host: &str) {
        self.dead.lock().unwrap().insert(host.to_owned());
    }
}

async fn look_at(
    client: &Client,
    workload: &Client,
    dead: &Mutex<BTreeSet<String>>,
    host: &DynamicObject,
) {
    let name = host.name_any();
    let asked =
        |key: &&String| key.as_str() == "reboot.metal3.io" || key.starts_with("reboot.metal3.io/");
    let held = host.annotations().keys().any(|key| asked(&key));
    let wanted = host.data["spec"]["online"] == true && !held;
    let is_on = host.data["status"]["poweredOn"] == true;
    let provisioned = host.data["status"]["provisioning"]["state"] == "provisioned";
    // One reboot was asked for: when the host is off, the operator takes that key away.
    let is_plain = !wanted && host.annotations().contains_key("reboot.metal3.io");
    if (wanted == is_on && !is_plain) || !provisioned {
        return;
    }
    let api = bmo::api(client, &host.namespace().unwrap());
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
    let silent = name.starts_with("dead") || dead.lock().unwrap().contains(&name);
    if wanted && !silent && !node.is_empty() {
        boot(workload, &node).await;
    }
}

/// A kubelet that has just started.
pub(crate) async fn boot(workload: &Client, node: &str) {
    let now = k8s_openapi::jiff::Timestamp::now();
    let beat = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let nodes: Api<Node> = Api::all(workload.clone());
    if nodes.get_opt(node).await.unwrap().is_none() {
        let object =
            json!({"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}});
        let object: Node = serde_json::from_value(object).unwrap();
        nodes.create(&kube::api::PostParams::default(), &object).await.unwrap();
    }
    let status = json!({"status": {
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": beat, "lastTransitionTime": beat,
        }],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "stand-in",
            // Each boot has another one.
            "bootID": now.as_nanosecond().to_string(),
            "machineID": "none", "systemUUID": "none", "kernelVersion": "0",
            "containerRuntimeVersion": "none://0", "kubeletVersion": "v1.36.3", "kubeProxyVersion": "",
        },
    }});
    let patch = Patch::Strategic(&status);
    for _ in 0..10 {
        if nodes.patch_status(node, &PatchParams::default(), &patch).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A kubelet that has fallen silent.
pub(super) async fn silence(workload: &Client, node: &str) {
    let status = json!({"status": {"conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let nodes: Api<Node> = Api::all(workload.clone());
    nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(&status)).await.unwrap();
}
