//! What kubelets say of their nodes, where no kubelet runs.
//!
//! What it cannot prove: that a real one comes up, or says it in time.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster_api::objects::VERSION;

/// One that has just started: its node is there, ready, and booted anew.
///
/// # Errors
/// When the API server refuses the node, or what is said of it ten times.
pub async fn boot(client: &Client, node: &str) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let beat = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let nodes: Api<Node> = Api::all(client.clone());
    if nodes.get_opt(node).await?.is_none() {
        let object =
            json!({"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}});
        nodes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
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
            "containerRuntimeVersion": "none://0", "kubeletVersion": VERSION, "kubeProxyVersion": "",
        },
    }});
    for _ in 1..10 {
        if say(client, node, &status).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    say(client, node, &status).await
}

/// One that has fallen silent, as Kubernetes says it of its node.
///
/// # Errors
/// When the API server refuses it.
pub async fn silence(client: &Client, node: &str) -> anyhow::Result<()> {
    let status = json!({"status": {"conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    say(client, node, &status).await
}

async fn say(client: &Client, node: &str, status: &Value) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(status)).await?;
    Ok(())
}
