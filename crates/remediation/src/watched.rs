//! A watch on the node that a request waits for: it is back within a moment, and not when it is next looked at.

use std::sync::Arc;

use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use tokio::task::AbortHandle;

/// So many nodes are watched at once, each on a connection of its own. The others are looked at from time to time.
const MOST: usize = 100;

/// How many watches there are: each holds one of these.
#[derive(Clone, Debug, Default)]
pub struct Watches(Arc<()>);

/// A watch that goes on until it is dropped, or its server ends or refuses it.
#[derive(Debug)]
pub struct NodeWatch {
    cluster: String,
    node: String,
    watching: AbortHandle,
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl PartialEq for NodeWatch {
    fn eq(&self, other: &Self) -> bool {
        self.is_of(&other.cluster, &other.node) && self.watching.id() == other.watching.id()
    }
}

async fn watch(api: &Api<Node>, one: &WatchParams, version: &str, tell: impl Fn()) {
    let Ok(changes) = api.watch_metadata(one, version).await else { return };
    pin_mut!(changes);
    while let Some(Ok(change)) = changes.next().await {
        match change {
            WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => tell(),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => return,
        }
    }
}

impl NodeWatch {
    /// Tells of each change of a node since a version; since now, where there is none. Nothing, if as many are watched as may be.
    pub fn begin(
        watches: &Watches,
        (cluster, node): (&str, &str),
        api: Api<Node>,
        version: Option<String>,
        tell: impl Fn() + Send + 'static,
    ) -> Option<Self> {
        let place = watches.clone();
        if Arc::strong_count(&place.0) > MOST + 1 {
            return None;
        }
        let one = WatchParams::default().fields(&format!("metadata.name={node}"));
        let task = tokio::spawn(async move {
            watch(&api, &one, version.as_deref().unwrap_or("0"), tell).await;
            drop(place);
        });
        let (cluster, node) = (cluster.to_owned(), node.to_owned());
        Some(Self { cluster, node, watching: task.abort_handle() })
    }

    /// Whether it is of this node.
    pub fn is_of(&self, cluster: &str, node: &str) -> bool {
        self.cluster == cluster && self.node == node
    }

    /// Whether it goes on.
    pub fn is_going_on(&self) -> bool {
        !self.watching.is_finished()
    }
}
