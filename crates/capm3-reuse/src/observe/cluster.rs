//! The Cluster that something belongs to, where a cache that does not have it proves nothing.

use api_types::capi::{Cluster, ClusterSpec};
use api_types::name::is_name;
use api_types::names;
use controller_kit::engine::{Error, found};
use controller_kit::unread::Broken;
use kube::api::DynamicObject;
use serde_json::Value;

use super::Scope;

impl Scope<'_> {
    /// The cluster of this name; nothing if it is gone, or nobody says which it is. One that the cache does not have is read
    /// live and without its type, as it may be one that cannot be decoded.
    pub async fn cluster(&self, name: Option<&str>) -> Result<Option<Cluster>, Error> {
        let Some(name) = name.filter(|name| is_name(name)) else { return Ok(None) };
        if let Some(cluster) = self.context.caches.clusters.named(self.namespace, name) {
            return Ok(Some((*cluster).clone()));
        }
        let clusters = self.untyped(names::capi::GROUP, "Cluster");
        let live = found("get a Cluster", clusters.get(name)).await?;
        Ok(live.map(outlines))
    }

    /// Whether any cluster of a namespace is paused, where nothing says which one it is about. One that cannot be decoded may be.
    pub fn is_any_cluster_paused(&self) -> bool {
        let clusters = &self.context.caches.clusters;
        let is_here = |it: &Broken| it.metadata.namespace.as_deref() == Some(self.namespace);
        clusters.broken.all().iter().any(is_here)
            || clusters.of_namespace(self.namespace).any(|it| it.is_paused())
    }
}

/// Whether a cluster of which this was found is gone or being deleted. One that nobody named may be there.
pub fn is_going(name: Option<&str>, found: Option<&Cluster>) -> bool {
    found.map_or(name.is_some_and(|name| !name.is_empty()), |it| {
        it.metadata.deletion_timestamp.is_some()
    })
}

/// Whether it goes, whether it is paused and its control plane, and nothing else of it. A word for paused that is not understood may mean it.
pub(super) fn outlines(live: DynamicObject) -> Cluster {
    let paused = !matches!(live.data["spec"]["paused"], Value::Null | Value::Bool(false));
    let control_plane_ref = live.data["spec"]["controlPlaneRef"].clone();
    let control_plane_ref = serde_json::from_value(control_plane_ref).ok();
    let spec = ClusterSpec { paused: Some(paused), control_plane_ref, ..ClusterSpec::default() };
    Cluster { metadata: live.metadata, spec, ..Cluster::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(more: &Value) -> DynamicObject {
        let mut it = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "c"},
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            it[field] = value.clone();
        }
        serde_json::from_value(it).unwrap()
    }

    #[test]
    fn a_cluster_that_cannot_be_decoded_is_known_to_be_paused_or_to_go() {
        let annotated = json!({"name": "c", "annotations": {names::capi::PAUSED: ""}});
        for (more, paused) in [
            (json!({}), false),
            (json!({"spec": {"paused": false, "controlPlaneRef": "odd"}}), false),
            (json!({"spec": {"paused": true, "controlPlaneRef": "odd"}}), true),
            (json!({"spec": {"paused": "yes"}}), true),
            (json!({"metadata": annotated}), true),
        ] {
            assert_eq!(outlines(live(&more)).is_paused(), paused, "{more}");
        }
        let going = json!({"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let going = outlines(live(&json!({"metadata": going})));
        let here = outlines(live(&json!({})));
        assert!(is_going(Some("c"), Some(&going)) && !is_going(Some("c"), Some(&here)));
        assert!(is_going(Some("c"), None) && !is_going(None, None) && !is_going(Some(""), None));
    }
}
