//! The Node of a machine that is up, in its workload cluster: what is read there.

use std::time::Duration;

use api_types::capi::Cluster;
use api_types::names;
use api_types::names::metal3::NODE_UUID;
use controller_kit::engine::{Class, ObjectKey};
use controller_kit::{api_error, kubeconfig};
use k8s_openapi::api::core::v1::Node as Object;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::Scope;
use crate::model::MachineSeen;
use crate::seen::{Node, NodeSeen, Sought};
use crate::text;

/// A connection, or one answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl Scope<'_> {
    /// Looks for the Node of a machine, if that is to be done and it is its turn. With it, where the Node is.
    pub async fn node(&self, seen: &MachineSeen) -> (NodeSeen, Option<Api<Object>>) {
        let Some(sought) = seen.sought() else { return (NodeSeen::Unasked, None) };
        let cluster = ObjectKey::of(sought.cluster);
        // With thousands of machines in it somebody always looks, and to come for one's turn would be most of the work.
        let Some(lane) = self.context.looks.try_enter(&cluster, Class::Urgent) else {
            return (NodeSeen::Unasked, None);
        };
        let asked = async {
            let asked = Box::pin(self.nodes_of(&sought));
            let asked = tokio::time::timeout(api_error::PATIENCE, asked).await;
            asked.unwrap_or_else(|_| Err(text::UNANSWERED.to_owned()))
        };
        let answer = lane.run(asked, Result::is_ok).await;
        match answer.unwrap_or_else(|_| Err(text::GAVE_ITS_PLACE.to_owned())) {
            Ok((nodes, found)) => (NodeSeen::Seen(found), Some(nodes)),
            Err(why) => (NodeSeen::Unanswered(why), None),
        }
    }

    /// The Nodes that say that they run on the host.
    async fn nodes_of(&self, sought: &Sought<'_>) -> Result<(Api<Object>, Vec<Node>), String> {
        let name = sought.cluster.name_any();
        let nodes: Api<Object> = Api::all(self.workload(&name).await?);
        let labelled = ListParams::default().labels(&format!("{NODE_UUID}={}", sought.host_uid));
        let found = nodes.list(&labelled).await.map_err(|error| {
            text::cannot_be_read(&format!("the Nodes of Cluster {name}"), &answered(&error))
        })?;
        let found: Vec<Node> = found.iter().map(view).collect();
        // Asked last: it matters only to a Node that is about to get an ID.
        if found.iter().any(|it| it.provider_id.is_empty())
            && self.has_cloud_provider(sought.cluster).await?
        {
            return Err(text::CLOUD_PROVIDER.to_owned());
        }
        Ok((nodes, found))
    }

    async fn has_cloud_provider(&self, cluster: &Cluster) -> Result<bool, String> {
        let reference = cluster.spec.infrastructure_ref.as_ref();
        let reference = reference.filter(|it| it.kind.as_deref() == Some("Metal3Cluster"));
        let Some(name) = reference.and_then(|it| it.name.as_deref()) else { return Ok(false) };
        let clusters = self.untyped(names::capm3::GROUP, "Metal3Cluster");
        let found = clusters.get(name).await.map_err(|error| {
            text::cannot_be_read(&format!("Metal3Cluster {name}"), &api_error::explain(&error))
        })?;
        Ok(names_cloud_provider(&found.data["spec"]))
    }

    /// A client of the workload cluster, made from the secret that Cluster API keeps for that.
    async fn workload(&self, cluster: &str) -> Result<Client, String> {
        let name = format!("{cluster}-kubeconfig");
        let secret = self.secrets().get(&name).await.map_err(|error| {
            text::cannot_be_read(&format!("the secret {name}"), &api_error::explain(&error))
        })?;
        let name = self.context.kit.config.controller;
        kubeconfig::client(name, &secret, PATIENCE, Some(PATIENCE)).await
    }
}

/// Who may write secrets in a namespace says where this leads. Of what is answered there the code alone is told, or whoever may read
/// machines would read the pages of whatever this pod reaches.
fn answered(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => text::answers(status.code),
        error => api_error::explain(error),
    }
}

fn view(object: &Object) -> Node {
    let metadata = &object.metadata;
    let conditions = object.status.as_ref().and_then(|it| it.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|it| it.type_ == "Ready");
    let spec = object.spec.as_ref();
    Node {
        name: metadata.name.clone().unwrap_or_default(),
        version: metadata.resource_version.clone().unwrap_or_default(),
        provider_id: spec.and_then(|it| it.provider_id.clone()).unwrap_or_default(),
        lives: metadata.deletion_timestamp.is_none()
            && ready.is_some_and(|it| it.status != "Unknown"),
    }
}

/// The older contract says it the other way round, too.
fn names_cloud_provider(spec: &Value) -> bool {
    match &spec["cloudProviderEnabled"] {
        Value::Null => spec["noCloudProvider"] == false,
        enabled => *enabled != false,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_lives_while_its_kubelet_is_heard() {
        let node = |more: Value, ready: Option<&str>| {
            let mut metadata = json!({"name": "n", "resourceVersion": "7"});
            for (field, value) in more.as_object().into_iter().flatten() {
                metadata[field] = value.clone();
            }
            let conditions: Vec<Value> =
                ready.iter().map(|it| json!({"type": "Ready", "status": it})).collect();
            let status = json!({ "conditions": conditions });
            let object = json!({"metadata": metadata, "spec": {}, "status": status});
            view(&serde_json::from_value(object).unwrap())
        };
        for (ready, lives) in
            [(Some("True"), true), (Some("False"), true), (Some("Unknown"), false), (None, false)]
        {
            let seen = node(json!({}), ready);
            assert_eq!((seen.lives, seen.version.as_str()), (lives, "7"), "{ready:?}");
        }
        let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!node(going, Some("True")).lives);
    }

    #[test]
    fn of_what_a_stranger_answers_the_code_alone_is_told() {
        let status = Status::failure("a page of somebody else's", "Secret").with_code(403);
        let told = answered(&kube::Error::Api(Box::new(status)));
        assert_eq!(told, "its API server answers 403");
    }

    #[test]
    fn a_cloud_provider_is_named_in_either_contract() {
        for (spec, named) in [
            (json!({}), false),
            (json!({"cloudProviderEnabled": false}), false),
            (json!({"cloudProviderEnabled": true, "noCloudProvider": true}), true),
            (json!({"noCloudProvider": true}), false),
            (json!({"noCloudProvider": false}), true),
        ] {
            assert_eq!(names_cloud_provider(&spec), named, "{spec}");
        }
    }
}
