//! The operator's part for hosts that were discovered and get a BMC: their nodes get it, too, and are provided.
//!
//! What it cannot prove: what the operator inspects, cleans or refuses on the way.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::StreamExt;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::ironic::Ironic;

/// What discovery told of a host before anybody manages it.
const STATUS: &str = "baremetalhost.metal3.io/status";

/// Registers until it is dropped.
#[derive(Debug)]
pub struct Registrar(JoinHandle<()>);

impl Drop for Registrar {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Registrar {
    /// Begins with the hosts that are there.
    pub fn start<I>(hosts: Api<DynamicObject>, ironic: Arc<I>) -> Self
    where
        I: Borrow<Ironic> + Send + Sync + 'static,
    {
        Self(tokio::spawn(async move {
            let mut known = BTreeSet::new();
            let all = watcher(hosts.clone(), watcher::Config::default());
            let mut changes = std::pin::pin!(all.default_backoff().applied_objects());
            while let Some(host) = changes.next().await {
                // A watch that breaks comes back by itself.
                let Ok(host) = host else { continue };
                let is_discovered = host.annotations().contains_key(STATUS);
                let due = is_discovered && host.data["spec"]["bmc"].is_object();
                if due && known.insert(host.uid()) {
                    let (hosts, ironic) = (hosts.clone(), Arc::clone(&ironic));
                    tokio::spawn(async move {
                        let name = host.name_any();
                        if let Err(error) = register(&hosts, (*ironic).borrow(), &host).await {
                            eprintln!("{name} is not registered: {error:#}");
                        }
                    });
                }
            }
        }))
    }
}

/// The node that the host names gets the BMC of the host and is provided. Cleaning would leave the machine off.
async fn register(
    hosts: &Api<DynamicObject>,
    ironic: &Ironic,
    host: &DynamicObject,
) -> anyhow::Result<()> {
    let told: Value = serde_json::from_str(&host.annotations()[STATUS])?;
    let node = told["provisioning"]["ID"].as_str().context("it names no node")?;
    let address = host.data["spec"]["bmc"]["address"].as_str().context("its BMC has no address")?;
    let address = address.strip_prefix("redfish-virtualmedia+").context("it is no such BMC")?;
    let (server, system) = address.split_at(address.find("/redfish").context("no path")?);
    let info = json!({
        "redfish_address": server, "redfish_system_id": system,
        "redfish_username": "admin", "redfish_password": "secret", "redfish_verify_ca": false,
    });
    let add = json!([{"op": "add", "path": "/driver_info", "value": info}]);
    ask(ironic, Method::PATCH, &format!("/v1/nodes/{node}"), &add).await?;
    for (kind, target, field, reached) in [
        ("provision", "manage", "provision_state", "manageable"),
        ("provision", "provide", "provision_state", "available"),
        ("power", "power off", "power_state", "power off"),
    ] {
        let path = format!("/v1/nodes/{node}/states/{kind}");
        ask(ironic, Method::PUT, &path, &json!({ "target": target })).await?;
        let is = |it: &Value| it[field] == reached && it["reservation"].is_null();
        ironic.wait(node, reached, is).await?;
    }
    let status = json!({"status": {
        "poweredOn": false, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
        "provisioningFailCount": 0, "provisioning": {"state": "available", "ID": node},
    }});
    let params = PatchParams::default();
    hosts.patch_status(&host.name_any(), &params, &Patch::Merge(status)).await?;
    Ok(())
}

/// Whoever works on the node is waited for.
async fn ask(ironic: &Ironic, method: Method, path: &str, body: &Value) -> anyhow::Result<()> {
    loop {
        let (status, answer) = ironic.call(method.clone(), path, Some(body)).await?;
        if status != StatusCode::CONFLICT {
            ensure!(status.is_success(), "{status} {answer}");
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
