//! The workload cluster's Node: what is read of it. The few writes to it stand with the others.

use std::collections::BTreeMap;

use api_types::names::LAST_APPLIED;
use api_types::names::capm3::{NODE_SHUTDOWN, OUT_OF_SERVICE};
use api_types::names::ferrite::OUT_OF_SERVICE_BY;
use controller_kit::api_error;
use k8s_openapi::api::core::v1::{Node as Object, Pod, Taint as ObjectTaint};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::clusters::{Clusters, PATIENCE};
use crate::request::Backup;
use crate::seen::{Machine, Node, NodeSeen, Taint};

/// Annotations that are a running kubelet's or controller's, not its administrator's.
const NOT_BACKED_UP: &[&str] = &[LAST_APPLIED, OUT_OF_SERVICE_BY];

/// A Node of a workload cluster, with what writes to it need.
pub struct Place {
    pub(crate) api: Api<Object>,
    pub(crate) object: Object,
}

/// Looks at a machine's node. With `load`, also at what still runs there.
pub async fn look(
    clusters: &Clusters,
    namespace: &str,
    machine: &Machine,
    request: &str,
    load: bool,
) -> (NodeSeen, Option<Place>) {
    let Some(name) = &machine.node else { return (NodeSeen::NoName, None) };
    let cluster = &machine.cluster;
    let client = match clusters.client(namespace, cluster).await {
        Ok(client) => client,
        Err(why) => return (NodeSeen::NoAccess(why), None),
    };
    let api: Api<Object> = Api::all(client.clone());
    let object = match within(api.get_opt(name)).await {
        Ok(object) => object,
        Err(why) => {
            let why = format!("the workload cluster {cluster} cannot be asked: {why}");
            clusters.failed(namespace, cluster, &why);
            return (NodeSeen::NoAccess(why), None);
        }
    };
    clusters.answered(namespace, cluster);
    let Some(object) = object else { return (NodeSeen::Gone, None) };
    let mut node = view(&object, machine, request);
    if load {
        node.busy = busy(&client, name).await;
    }
    (NodeSeen::Here(node), Some(Place { api, object }))
}

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(|error| api_error::explain(&error)),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

fn view(object: &Object, machine: &Machine, request: &str) -> Node {
    let status = object.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().find(|it| it.type_ == "Ready");
    let boot = status.node_info.as_ref().map(|it| it.boot_id.clone()).unwrap_or_default();
    let beat = ready.and_then(|it| it.last_heartbeat_time.as_ref()).map(|it| it.0.to_string());
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let provider = object.spec.as_ref().and_then(|it| it.provider_id.clone());
    let foreign = match (&machine.provider_id, provider.filter(|it| !it.is_empty())) {
        (Some(wanted), Some(found)) if *wanted != found => Some(found),
        _ => None,
    };
    let by = annotation(object, OUT_OF_SERVICE_BY);
    let taint = match (taints(object).iter().any(is_out_of_service), by) {
        (_, Some(by)) if by == request => Taint::Ours,
        (true, _) => Taint::Foreign,
        (false, _) => Taint::None,
    };
    Node {
        kubelet: format!("{uid} {boot} {}", beat.unwrap_or_default()),
        uid,
        foreign,
        ready: ready.is_some_and(|it| it.status == "True"),
        taint,
        busy: 0,
        backup: backup(object),
    }
}

fn annotation<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn taints(object: &Object) -> Vec<ObjectTaint> {
    object.spec.as_ref().and_then(|it| it.taints.clone()).unwrap_or_default()
}

pub(crate) fn is_out_of_service(taint: &ObjectTaint) -> bool {
    taint.key == OUT_OF_SERVICE
}

fn backup(object: &Object) -> Backup {
    let mut annotations = object.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_BACKED_UP.contains(&key.as_str()));
    let labels = object.metadata.labels.clone().unwrap_or_default();
    let text = |map: &BTreeMap<String, String>| serde_json::to_string(map).unwrap_or_default();
    Backup { labels: text(&labels), annotations: text(&annotations) }
}

/// Pods that the taint drives out or that are going, and volumes that are attached. What must not be asked is not
/// waited for.
async fn busy(client: &Client, node: &str) -> u32 {
    let pods: Api<Pod> = Api::all(client.clone());
    let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = within(pods.list(&there)).await;
    let pods = pods.map_or(0, |all| all.iter().filter(|it| is_driven_out(it)).count());
    let volumes: Api<VolumeAttachment> = Api::all(client.clone());
    let volumes = within(volumes.list(&ListParams::default())).await;
    let volumes =
        volumes.map_or(0, |all| all.iter().filter(|it| it.spec.node_name == node).count());
    u32::try_from(pods + volumes).unwrap_or(u32::MAX)
}

fn is_driven_out(pod: &Pod) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return true;
    }
    let mirror = "kubernetes.io/config.mirror";
    let is_static = pod.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(mirror));
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref()).unwrap_or_default();
    let tolerations = pod.spec.as_ref().and_then(|it| it.tolerations.clone()).unwrap_or_default();
    let tolerates = tolerations.iter().any(|it| {
        let key = it.key.as_deref().unwrap_or_default();
        let effect = it.effect.as_deref().unwrap_or_default();
        let any = key.is_empty() && it.operator.as_deref() == Some("Exists");
        let this = key == OUT_OF_SERVICE
            && (it.operator.as_deref() == Some("Exists")
                || it.value.as_deref().unwrap_or_default() == NODE_SHUTDOWN);
        (any || this) && (effect.is_empty() || effect == "NoExecute")
    });
    !is_static && !tolerates && !["Succeeded", "Failed"].contains(&phase)
}
