//! The writes to Ironic: the mark of a node that had a host, and the driver of one whose host got a BMC.
//!
//! Nobody waits for them, so they are done one after the other beside the passes, and again where Ironic was busy. What a
//! process leaves undone, the next one finds in its first list of all nodes.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use api_types::metal3::BareMetalHost;
use api_types::names::ferrite;
use ironic::{Class, Detail, Error, PatchOp};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::controller::Context;
use crate::driver::drivers_of;
use crate::node_id::NodeId;
use crate::nodes::{HAD_HOST, Unmarked};

/// How soon something that did not work is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// Between two writes while hosts are being made: Ironic and the API server may share a machine, and hosts are waited for.
const PACE: Duration = Duration::from_millis(500);
const FIELDS: Detail = Detail::Fields(&["uuid", "driver", "provision_state"]);
/// States in which nothing runs on a node, so that another driver disturbs nobody.
const AT_REST: [&str; 5] = ["enroll", "manageable", "available", "inspect failed", "clean failed"];

/// Something to be written to Ironic.
#[derive(Clone, Debug)]
pub enum Errand {
    /// The node had a host.
    Mark(Unmarked),
    /// The node's host got a BMC.
    Adopt {
        /// The node.
        node: NodeId,
        /// The BMC's address.
        address: String,
        /// The host, for events.
        host: Box<ObjectReference>,
    },
}

impl Errand {
    /// The driver of this host's node has to follow, if a discovery made the host.
    pub fn adopt(host: &BareMetalHost) -> Option<Self> {
        let node = host.annotation(ferrite::NODE_ID).and_then(NodeId::parse)?;
        host.label(ferrite::DISCOVERED_BY)?;
        let address = host.spec.bmc.as_ref().map(|bmc| bmc.address.clone())?;
        let leaves = host.metadata.deletion_timestamp.is_some();
        let host = ObjectReference {
            api_version: Some("metal3.io/v1alpha1".to_owned()),
            kind: Some("BareMetalHost".to_owned()),
            namespace: host.metadata.namespace.clone(),
            name: host.metadata.name.clone(),
            uid: host.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let adopt = Self::Adopt { node, address, host: Box::new(host) };
        Some(adopt).filter(|_| !leaves)
    }

    fn key(&self) -> (NodeId, bool) {
        match self {
            Self::Mark(unmarked) => (unmarked.node, false),
            Self::Adopt { node, .. } => (*node, true),
        }
    }
}

/// Runs errands for as long as the process lives.
pub async fn run(context: &Context, mut errands: UnboundedReceiver<Errand>) -> Infallible {
    let mut waiting: HashMap<(NodeId, bool), (Instant, Errand)> = HashMap::new();
    let mut adopted: HashMap<NodeId, String> = HashMap::new();
    loop {
        let next = waiting.values().map(|(due, _)| *due).min();
        let pause = async {
            match next {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            errand = errands.recv() => match errand {
                Some(errand) => {
                    let done = matches!(&errand, Errand::Adopt { node, address, .. }
                        if adopted.get(node) == Some(address));
                    if !done {
                        waiting.insert(errand.key(), (Instant::now(), errand));
                    }
                    continue;
                }
                None => std::future::pending().await,
            },
            () = pause => {}
        }
        if context.is_making() {
            tokio::time::sleep(PACE).await;
        }
        let now = Instant::now();
        let due = waiting.iter().find(|(_, (due, _))| *due <= now).map(|(key, _)| *key);
        let Some((key, errand)) = due.and_then(|key| Some((key, waiting.remove(&key)?.1))) else {
            continue;
        };
        let result = if context.kit.may_act() { once(context, &errand).await } else { Ok(false) };
        match result {
            Ok(true) => match errand {
                Errand::Mark(unmarked) => context.marked(unmarked.node),
                Errand::Adopt { node, address, .. } => drop(adopted.insert(node, address)),
            },
            Ok(false) => drop(waiting.insert(key, (now + AGAIN, errand))),
            Err(error) if error.class() == Class::NotFound => {}
            Err(error) => {
                tracing::debug!(node.id = %key.0, error = %error, "Could not write to a node yet");
                waiting.insert(key, (now + AGAIN, errand));
            }
        }
    }
}

/// Does one errand. Says whether it is done, or has to be done later.
async fn once(context: &Context, errand: &Errand) -> Result<bool, Error> {
    match errand {
        Errand::Mark(Unmarked { node, host }) => {
            let mark =
                PatchOp::Add { path: format!("/extra/{HAD_HOST}"), value: json!(host.to_string()) };
            context.ironic.patch_node(&node.to_string(), &[mark], false).await?;
            Ok(true)
        }
        Errand::Adopt { node, address, host } => adopt(context, *node, address, host).await,
    }
}

async fn adopt(
    context: &Context,
    id: NodeId,
    address: &str,
    host: &ObjectReference,
) -> Result<bool, Error> {
    let node = context.ironic.node(&id.to_string(), FIELDS).await?;
    let wanted = drivers_of(address);
    let driver = node.driver.unwrap_or_default();
    if wanted.contains(&driver.as_str()) {
        return Ok(true);
    }
    let state = node.provision_state.unwrap_or_default();
    if !AT_REST.contains(&state.as_str()) {
        // On its way from one state to the next; in use it stays as it is until it is free.
        return Ok(false);
    }
    let offered = context.ironic.drivers().await?;
    let chosen = wanted.iter().find(|name| offered.iter().any(|it| it.name == **name));
    let events = &context.kit.events;
    let Some(chosen) = chosen else {
        let text = format!(
            "The node {id} keeps the driver {driver}: no driver for this BMC address is enabled in Ironic ({}). With {driver} the power of the host may be pretended",
            if wanted.is_empty() {
                "unknown kind of address".to_owned()
            } else {
                wanted.join(" or ")
            },
        );
        events.warning(host, "DriverNotEnabled", "Adopt", &text).await;
        return Ok(true);
    };
    let patch = [PatchOp::Replace { path: "/driver".to_owned(), value: json!(chosen) }];
    context.ironic.patch_node(&id.to_string(), &patch, true).await?;
    context.metrics.adopted.inc();
    tracing::info!(
        node.id = %id,
        object.namespace = host.namespace,
        object.name = host.name,
        driver = chosen,
        "Gave a node the driver of its host's BMC"
    );
    let text = format!("The node {id} has the driver {chosen} now, instead of {driver}");
    events.normal(host, "DriverAdopted", "Adopt", &text).await;
    Ok(true)
}
