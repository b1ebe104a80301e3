//! Whether a change of a cluster matters to its machines and hosts.

use api_types::capi::Cluster;
use api_types::reference::ObjectRef;

use crate::notes::{Key, Notes};

/// All of a cluster that a decision depends on.
#[derive(Debug, PartialEq)]
struct Outline {
    uid: Option<String>,
    is_paused: bool,
    is_going: bool,
    is_provisioned: bool,
    infrastructure: Option<ObjectRef>,
    control_plane: Option<ObjectRef>,
}

impl Outline {
    fn of(cluster: &Cluster) -> Self {
        Self {
            uid: cluster.metadata.uid.clone(),
            is_paused: cluster.is_paused(),
            is_going: cluster.metadata.deletion_timestamp.is_some(),
            is_provisioned: cluster.infrastructure_provisioned(),
            infrastructure: cluster.spec.infrastructure_ref.clone(),
            control_plane: cluster.spec.control_plane_ref.clone(),
        }
    }
}

/// What decisions were made by. A cluster's status counts its machines, and changes with each of them.
#[derive(Default)]
pub struct Matter(Notes<Outline>);

impl Matter {
    /// Whether anything that matters changed. A cluster that is gone is forgotten.
    pub fn is_news(&self, key: Key, cluster: Option<&Cluster>) -> bool {
        let mut all = self.0.lock();
        let Some(now) = cluster.map(Outline::of) else {
            all.remove(&key);
            return true;
        };
        let is_news = all.get(&key) != Some(&now);
        all.insert(key, now);
        is_news
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_a_cluster_counts_matters_to_no_machine() {
        let of = |more: Value| {
            let mut it = json!({"metadata": {"name": "c"}});
            for (field, value) in more.as_object().into_iter().flatten() {
                it[field] = value.clone();
            }
            Outline::of(&serde_json::from_value(it).unwrap())
        };
        let before = of(json!({"status": {"workers": {"replicas": 1}}}));
        assert_eq!(
            before,
            of(json!({"status": {"workers": {"replicas": 2}, "phase": "Provisioned"}}))
        );
        for more in [
            json!({"spec": {"paused": true}}),
            json!({"spec": {"controlPlaneRef": {"kind": "KubeadmControlPlane", "name": "k"}}}),
            json!({"spec": {"infrastructureRef": {"kind": "Metal3Cluster", "name": "m"}}}),
            json!({"status": {"initialization": {"infrastructureProvisioned": true}}}),
            json!({"metadata": {"name": "c", "uid": "another"}}),
            json!({"metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ] {
            assert_ne!(before, of(more.clone()), "{more}");
        }
    }
}
