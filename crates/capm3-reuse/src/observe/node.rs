//! The Node of a machine that is up, in its workload cluster: who may look for it when, and what is read there.
//!
//! Most of these clusters are just being made and do not answer yet. So a few looks are under way at a time, one of each
//! cluster, and one that did not answer is left alone for a moment: no pass waits for another's turn.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api_types::capi::Cluster;
use api_types::names;
use api_types::names::metal3::NODE_UUID;
use controller_kit::{api_error, backoff, kubeconfig};
use k8s_openapi::api::core::v1::{Node as Object, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::{Sources, owner};
use crate::seen::{MachineSeen, Node, NodeSeen, Sought, pace};

/// Looks at a time.
pub(crate) const LOOKS: usize = 4;
/// A connection, or one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// All that a look reads.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a cluster that did not answer is left alone.
const RESTS: Duration = Duration::from_secs(30);
/// How soon to try again where other clusters are looked at, more or less.
const TURN: Duration = Duration::from_secs(2);

type Name = (String, String);

/// Who is looking, and which clusters are left alone until when. What is over is forgotten.
pub struct Looks {
    places: usize,
    taken: Mutex<HashMap<Name, Option<Instant>>>,
}

impl Looks {
    /// So many at a time.
    pub fn new(places: usize) -> Self {
        Self { places, taken: Mutex::default() }
    }

    /// Takes a place; or says how soon to come again.
    fn begin(&self, cluster: &Name, pace: Duration, now: Instant) -> Result<Look<'_>, Duration> {
        let mut taken = self.taken();
        taken.retain(|_, until| until.is_none_or(|until| until > now));
        match taken.get(cluster) {
            Some(Some(until)) => return Err(until.saturating_duration_since(now) + TURN),
            // With thousands of machines in it somebody always looks, and to come for one's turn would be most of the work.
            Some(None) => return Err(pace),
            None => {}
        }
        if taken.values().filter(|until| until.is_none()).count() >= self.places {
            return Err(TURN);
        }
        taken.insert(cluster.clone(), None);
        Ok(Look { of: self, cluster: cluster.clone(), answered: false })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Name, Option<Instant>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, until it is dropped. A look that ends before its cluster answered, however it ends, leaves that alone.
struct Look<'a> {
    of: &'a Looks,
    cluster: Name,
    answered: bool,
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        if self.answered {
            taken.remove(&self.cluster);
        } else {
            taken.insert(self.cluster.clone(), Some(Instant::now() + RESTS));
        }
    }
}

/// The Nodes of a cluster that answered, for as long as the look at it takes.
pub struct Place<'a> {
    pub(crate) nodes: Api<Object>,
    _look: Look<'a>,
}

/// Looks for the Node of a machine, if that is to be done and it is its turn.
pub async fn look<'a>(from: &'a Sources, seen: &MachineSeen) -> (NodeSeen, Option<Place<'a>>) {
    let Some(sought) = seen.sought() else { return (NodeSeen::Unasked, None) };
    let namespace = seen.machine.namespace().unwrap_or_default();
    let cluster = (namespace, sought.cluster.name_any());
    let pace = pace(&seen.machine, Timestamp::now());
    let mut look = match from.looks.begin(&cluster, pace, Instant::now()) {
        Ok(look) => look,
        // Spread, or those who met once meet again.
        Err(pause) => {
            return (NodeSeen::Later(pause.mul_f64(0.5 + backoff::random_unit())), None);
        }
    };
    let asked = tokio::time::timeout(DEADLINE, Box::pin(ask(from, &cluster, &sought))).await;
    match asked.unwrap_or_else(|_| Err("there was no answer in time".to_owned())) {
        Ok((nodes, found)) => {
            look.answered = true;
            (NodeSeen::Seen(found), Some(Place { nodes, _look: look }))
        }
        Err(why) => (NodeSeen::Unanswered(why), None),
    }
}

/// The Nodes that say that they run on the host.
async fn ask(
    from: &Sources,
    (namespace, name): &Name,
    sought: &Sought<'_>,
) -> Result<(Api<Object>, Vec<Node>), String> {
    let nodes: Api<Object> = Api::all(client(from, namespace, name).await?);
    let labelled = ListParams::default().labels(&format!("{NODE_UUID}={}", sought.host_uid));
    let found = nodes.list(&labelled).await.map_err(|error| {
        format!("the Nodes of Cluster {name} cannot be read: {}", api_error::explain(&error))
    })?;
    let found: Vec<Node> = found.iter().map(view).collect();
    // Asked last: it matters only to a Node that is about to get an ID.
    if found.iter().any(|it| it.provider_id.is_empty())
        && has_cloud_provider(from, namespace, sought.cluster).await?
    {
        return Err("its Metal3Cluster says that a cloud provider sets provider IDs".to_owned());
    }
    Ok((nodes, found))
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

async fn has_cloud_provider(
    from: &Sources,
    namespace: &str,
    cluster: &Cluster,
) -> Result<bool, String> {
    let reference = cluster.spec.infrastructure_ref.as_ref();
    let reference = reference.filter(|it| it.kind.as_deref() == Some("Metal3Cluster"));
    let Some(name) = reference.and_then(|it| it.name.as_deref()) else { return Ok(false) };
    let version = from.served.infrastructure.as_str();
    let kind = owner::resource(names::capm3::GROUP, version, "Metal3Cluster");
    let clusters: Api<DynamicObject> = Api::namespaced_with(from.client.clone(), namespace, &kind);
    let found = clusters.get(name).await.map_err(|error| {
        format!("Metal3Cluster {name} cannot be read: {}", api_error::explain(&error))
    })?;
    Ok(names_cloud_provider(&found.data["spec"]))
}

/// The older contract says it the other way round, too.
fn names_cloud_provider(spec: &Value) -> bool {
    match &spec["cloudProviderEnabled"] {
        Value::Null => spec["noCloudProvider"] == false,
        enabled => *enabled != false,
    }
}

/// A client of the workload cluster, made from the secret that Cluster API keeps for that.
async fn client(from: &Sources, namespace: &str, cluster: &str) -> Result<Client, String> {
    let name = format!("{cluster}-kubeconfig");
    let secrets: Api<Secret> = Api::namespaced(from.client.clone(), namespace);
    let secret = secrets.get(&name).await.map_err(|error| {
        format!("the secret {name} cannot be read: {}", api_error::explain(&error))
    })?;
    kubeconfig::client(&secret, PATIENCE).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(number: usize) -> Name {
        ("ns".to_owned(), format!("c{number}"))
    }

    #[test]
    fn a_cluster_is_asked_by_one_at_a_time_and_left_alone_when_it_does_not_answer() {
        let (looks, now, pace) = (Looks::new(LOOKS), Instant::now(), Duration::from_secs(40));
        let begin = |number: usize, now: Instant| looks.begin(&cluster(number), pace, now);
        let mut first = begin(0, now).ok().unwrap();
        assert_eq!(begin(0, now).err(), Some(pace), "one is looking");
        first.answered = true;
        drop(first);
        drop(begin(0, now).ok().unwrap());
        let rests = begin(0, now).err().unwrap();
        assert!(rests > TURN && rests <= RESTS + TURN * 2, "{rests:?}");
        // What it rests takes nobody's place, and is over some time.
        let mut others: Vec<Look<'_>> =
            (1..=LOOKS).map(|number| begin(number, now).ok().unwrap()).collect();
        assert_eq!(begin(LOOKS + 1, now).err(), Some(TURN), "all places are taken");
        others.pop();
        assert!(begin(LOOKS + 1, now).is_ok());
        assert!(begin(0, now + RESTS * 2).is_ok());
    }

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
