//! The workload cluster's Node: what is read of it. The few writes to it stand with the others.

use std::collections::BTreeMap;
use std::time::Instant;

use api_types::names::LAST_APPLIED;
use api_types::names::capm3::{NODE_SHUTDOWN, OUT_OF_SERVICE};
use api_types::names::ferrite::OUT_OF_SERVICE_BY;
use controller_kit::api_error;
use controller_kit::engine::ObjectKey;
use k8s_openapi::api::core::v1::{Node as Object, Pod, Taint as ObjectTaint};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, ObjectList};
use kube::{Api, Client};

use crate::clusters::{Clusters, PATIENCE};
use crate::model::Place;
use crate::request::Backup;
use crate::seen::{Node, NodeCondition, NodeSeen, Taint, UNKNOWN};
use crate::text;

/// Not given to a successor: kubectl's copy of what was applied, and our mark of the taint.
const NOT_BACKED_UP: &[&str] = &[LAST_APPLIED, OUT_OF_SERVICE_BY];

/// Objects of a workload cluster that are read at once.
const PAGE: u32 = 100;

/// Which node is looked at, and for whom.
pub struct Sought<'a> {
    /// Its cluster.
    pub cluster: &'a ObjectKey,
    /// Name of the node.
    pub name: &'a str,
    /// Identity that it must have, where that is known.
    pub provider_id: Option<&'a str>,
    /// Uid of the request.
    pub request: &'a str,
    /// Whether a taint that names nobody is the request's: CAPM3 began it.
    pub adopted: bool,
    /// Whether there is a request of this uid.
    pub is_there: &'a (dyn Fn(&str) -> bool + Sync),
    /// Whether it is asked what still runs there.
    pub load: bool,
}

/// Looks at a node.
pub async fn look(clusters: &Clusters, sought: &Sought<'_>) -> (NodeSeen, Option<Place>) {
    let Sought { cluster, name, .. } = *sought;
    if let Some(why) = clusters.refusal(cluster, name) {
        return (NodeSeen::NoAccess(why), None);
    }
    let client = match clusters.client(cluster).await {
        Ok(client) => client,
        Err(why) => return (NodeSeen::NoAccess(why), None),
    };
    let (api, sent): (Api<Object>, _) = (Api::all(client.clone()), Instant::now());
    let answer = async { api_error::unless_gone(api.get(name).await) };
    let answer = tokio::time::timeout(PATIENCE, answer).await.map_err(|_| None);
    let object = match answer.and_then(|it| it.map_err(Some)) {
        Ok(object) => object,
        Err(error) => {
            let why = text::not_asked(&cluster.name, error.as_ref());
            clusters.unread((cluster, name), sent, error.as_ref(), &why);
            return (NodeSeen::NoAccess(why), None);
        }
    };
    clusters.answered(cluster);
    let Some(object) = object else { return (NodeSeen::Gone, None) };
    let mut node = view(&object, sought);
    if sought.load {
        node.busy = busy(&client, &object, name).await;
    }
    (NodeSeen::Here(node), Some(Place { api, object }))
}

fn view(object: &Object, sought: &Sought<'_>) -> Node {
    let status = object.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().flatten().find(|it| it.type_ == "Ready");
    let boot = status.node_info.as_ref().map(|it| it.boot_id.clone()).unwrap_or_default();
    let beat = ready.and_then(|it| it.last_heartbeat_time.as_ref()).map(|it| it.0);
    let turned = ready.and_then(|it| it.last_transition_time.as_ref()).map(|it| it.0);
    let word = ready.map(|it| it.status.as_str()).unwrap_or_default();
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let provider = object.spec.as_ref().and_then(|it| it.provider_id.clone());
    let foreign = provider
        .filter(|it| !it.is_empty())
        .filter(|it| sought.provider_id.is_some_and(|wanted| wanted != it));
    let ours = taints(object).iter().filter(|it| is_out_of_service(it)).any(is_shutdown);
    let taint = match (taints(object).iter().any(is_out_of_service), by(object)) {
        (true, Some(by)) if by == sought.request => Taint::Ours,
        (false, Some(by)) if by == sought.request => Taint::TakenOff,
        // Whoever set it cannot take it away any more.
        (true, Some(by)) if !(sought.is_there)(by) => Taint::Ours,
        (true, None) if sought.adopted && ours => Taint::Ours,
        (true, _) => Taint::Foreign,
        (false, _) => Taint::None,
    };
    let text = |it: Option<Timestamp>| it.map(|it| it.to_string()).unwrap_or_default();
    let others = status.conditions.iter().flatten().filter(|it| it.type_ != "Ready");
    let conditions = others.map(|it| NodeCondition {
        kind: it.type_.clone(),
        status: it.status.clone(),
        since: it.last_transition_time.as_ref().map(|it| it.0),
    });
    Node {
        conditions: conditions.collect(),
        kubelet: format!("{uid} {boot} {} {word} {}", text(beat), text(turned)),
        heard: beat.max(turned),
        uid,
        foreign,
        deleting: object.metadata.deletion_timestamp.is_some(),
        ready: word == "True",
        taint,
        busy: 0,
        backup: backup(object),
    }
}

/// Who says that the out-of-service taint is his.
fn by(object: &Object) -> Option<&str> {
    object.metadata.annotations.as_ref()?.get(OUT_OF_SERVICE_BY).map(String::as_str)
}

pub(crate) fn taints(object: &Object) -> Vec<ObjectTaint> {
    object.spec.as_ref().and_then(|it| it.taints.clone()).unwrap_or_default()
}

pub(crate) fn is_out_of_service(taint: &ObjectTaint) -> bool {
    taint.key == OUT_OF_SERVICE
}

fn is_shutdown(taint: &ObjectTaint) -> bool {
    taint.value.as_deref() == Some(NODE_SHUTDOWN)
}

fn backup(object: &Object) -> Backup {
    let mut annotations = object.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_BACKED_UP.contains(&key.as_str()));
    let labels = object.metadata.labels.clone().unwrap_or_default();
    let text = |map: &BTreeMap<String, String>| serde_json::to_string(map).unwrap_or_default();
    Backup { labels: text(&labels), annotations: text(&annotations) }
}

/// Pods that the taint drives out or that are going; where there are none any more, volumes that are still attached. Of those the
/// node tells itself: their objects can only be listed for the whole cluster, which dozens of nodes would do every two seconds.
async fn busy(client: &Client, object: &Object, node: &str) -> u32 {
    let pods: Api<Pod> = Api::all(client.clone());
    let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = tokio::time::timeout(PATIENCE, going(&pods, there)).await.unwrap_or(UNKNOWN);
    if pods > 0 { pods } else { attached(object) }
}

fn attached(object: &Object) -> u32 {
    let volumes = object.status.as_ref().and_then(|it| it.volumes_attached.as_ref());
    volumes.map_or(0, |it| u32::try_from(it.len()).unwrap_or(UNKNOWN))
}

/// Counts page by page: dozens of nodes are looked at side by side, and a large cluster has more than fits in memory then.
async fn going(pods: &Api<Pod>, params: ListParams) -> u32 {
    let (mut params, mut sum) = (params.limit(PAGE), 0_u32);
    loop {
        let page = pods.list(&params).await;
        let next = page.as_ref().ok().and_then(|it| it.metadata.continue_.clone());
        sum = sum.saturating_add(counted(page));
        match next.filter(|it| !it.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return sum,
        }
    }
}

/// What must not be asked is not waited for; what was not answered may still be there.
fn counted(answer: kube::Result<ObjectList<Pod>>) -> u32 {
    match answer {
        Ok(all) => {
            u32::try_from(all.iter().filter(|it| is_driven_out(it)).count()).unwrap_or(UNKNOWN)
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => 0,
        Err(_) => UNKNOWN,
    }
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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::*;

    fn seen(object: &Value, adopted: bool) -> Node {
        let sought = Sought {
            cluster: &ObjectKey::default(),
            name: "n",
            provider_id: None,
            request: "uid",
            adopted,
            is_there: &|uid| uid == "alive",
            load: false,
        };
        view(&serde_json::from_value(object.clone()).unwrap(), &sought)
    }

    #[test]
    fn the_node_itself_tells_which_volumes_are_attached() {
        let object = |status: Value| {
            attached(&serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap())
        };
        let two = json!([{"name": "a", "devicePath": ""}, {"name": "b", "devicePath": ""}]);
        assert_eq!(object(json!({"volumesAttached": two})), 2);
        assert_eq!(object(json!({})), 0);
    }

    fn tainted(by: Option<&str>, adopted: bool) -> Taint {
        let taint = json!({"key": OUT_OF_SERVICE, "value": NODE_SHUTDOWN, "effect": "NoExecute"});
        let annotations = by.map(|by| json!({ OUT_OF_SERVICE_BY: by }));
        let metadata = json!({"name": "n", "annotations": annotations});
        seen(&json!({"metadata": metadata, "spec": {"taints": [taint]}}), adopted).taint
    }

    #[test]
    fn a_taint_is_ours_to_remove_when_nobody_else_can() {
        assert_eq!(tainted(Some("uid"), false), Taint::Ours);
        assert_eq!(tainted(Some("alive"), false), Taint::Foreign);
        assert_eq!(tainted(Some("dead"), false), Taint::Ours, "its request is gone");
        assert_eq!(tainted(None, false), Taint::Foreign, "a person's");
        assert_eq!(tainted(None, true), Taint::Ours, "CAPM3's, which has begun with this request");
    }

    #[test]
    fn a_mark_of_ours_without_its_taint_puts_no_node_out_of_service() {
        let marked = |by: &str| {
            let annotations = json!({ OUT_OF_SERVICE_BY: by });
            seen(&json!({"metadata": {"name": "n", "annotations": annotations}}), false).taint
        };
        assert_eq!(marked("uid"), Taint::TakenOff);
        assert_eq!(marked("dead"), Taint::None);
    }

    #[test]
    fn a_node_that_becomes_ready_says_something_new_whatever_its_kubelet_fills_in() {
        let node = |condition: Value| {
            seen(&json!({"metadata": {"name": "n"}, "status": {"conditions": [condition]}}), false)
        };
        let silent = node(json!({"type": "Ready", "status": "Unknown"}));
        let back = node(json!({"type": "Ready", "status": "True"}));
        assert!(back.ready && silent.kubelet != back.kubelet);
        let turned =
            |at: &str| node(json!({"type": "Ready", "status": "True", "lastTransitionTime": at}));
        let (old, new) = (turned("2026-01-01T00:00:00Z"), turned("2026-01-01T00:10:00Z"));
        assert!(old.kubelet != new.kubelet && old.heard < new.heard);
    }

    #[test]
    fn what_a_workload_cluster_answers_is_not_repeated() {
        let page = Status { code: 403, ..Status::failure("a page of another service", "No") };
        let told = text::not_asked("c", Some(&kube::Error::Api(Box::new(page))));
        assert!(told.contains("answers 403") && !told.contains("page"), "{told}");
    }

    #[test]
    fn what_could_not_be_listed_may_still_be_there() {
        let refused = |code| {
            let status = Status { code, ..Status::failure("no", "No") };
            Err(kube::Error::Api(Box::new(status)))
        };
        let count = counted;
        assert_eq!(count(refused(403)), 0);
        assert_eq!(count(refused(404)), 0);
        assert_eq!(count(refused(410)), UNKNOWN, "between two pages");
        assert_eq!(count(refused(500)), UNKNOWN);
    }
}
