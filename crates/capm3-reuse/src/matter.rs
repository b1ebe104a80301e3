//! Whether a change of an object matters to others: to the machines and hosts of a cluster, to the kept hosts of an owner.

use api_types::capi::{Cluster, Machine};
use api_types::names;
use api_types::reference::ObjectRef;

use crate::notes::{Key, Notes};

/// All of a cluster that a decision depends on.
#[derive(Debug, PartialEq)]
pub struct OfCluster {
    uid: Option<String>,
    is_paused: bool,
    is_going: bool,
    is_provisioned: bool,
    infrastructure: Option<ObjectRef>,
    control_plane: Option<ObjectRef>,
}

impl OfCluster {
    /// What there is of it.
    pub fn outline(cluster: &Cluster) -> Self {
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

/// All of a Machine that a decision about a host depends on which is kept for the owner of the Machine.
#[derive(Debug, PartialEq)]
pub struct OfMachine {
    uid: Option<String>,
    is_going: bool,
    deployment: Option<String>,
    control_plane: Option<String>,
    owners: Vec<String>,
    infrastructure: ObjectRef,
}

impl OfMachine {
    /// What there is of it.
    pub fn outline(machine: &Machine) -> Self {
        let label = |key: &str| machine.label(key).map(str::to_owned);
        let owners = machine.metadata.owner_references.iter().flatten();
        Self {
            uid: machine.metadata.uid.clone(),
            is_going: machine.metadata.deletion_timestamp.is_some(),
            deployment: label(names::capi::DEPLOYMENT_NAME),
            control_plane: label(names::capi::CONTROL_PLANE_NAME),
            owners: owners.map(|it| it.uid.clone()).collect(),
            infrastructure: machine.spec.infrastructure_ref.clone(),
        }
    }
}

/// By what decisions were made, in outline. A status says how far others are, and changes far more often than that.
pub struct Matter<O>(Notes<O>);

impl<O> Default for Matter<O> {
    fn default() -> Self {
        Self(Notes::default())
    }
}

impl<O: PartialEq> Matter<O> {
    /// Whether anything that matters changed. What is gone is forgotten.
    pub fn is_news(&self, key: Key, now: Option<O>) -> bool {
        let mut all = self.0.lock();
        let Some(now) = now else {
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
            OfCluster::outline(&serde_json::from_value(it).unwrap())
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

    #[test]
    fn how_far_a_machine_is_matters_to_no_kept_host() {
        let of = |more: Value| OfMachine::outline(&serde_json::from_value(more).unwrap());
        let before = of(json!({"metadata": {"name": "m", "resourceVersion": "1"}}));
        for more in [
            json!({"metadata": {"name": "m", "resourceVersion": "2"}, "status": {"phase": "Running"}}),
            json!({"metadata": {"name": "m", "annotations": {"any": "thing"}}}),
            json!({"metadata": {"name": "m"}, "spec": {"providerID": "metal3://ns/h/m"}}),
            json!({"metadata": {"name": "m"}, "spec": {"bootstrap": {"dataSecretName": "boot"}}}),
        ] {
            assert_eq!(before, of(more.clone()), "{more}");
        }
        let owner =
            json!({"apiVersion": "g/v", "kind": "MachineSet", "name": "s", "uid": "set-uid"});
        for more in [
            json!({"metadata": {"uid": "another"}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            json!({"metadata": {"labels": {names::capi::DEPLOYMENT_NAME: "md"}}}),
            json!({"metadata": {"labels": {names::capi::CONTROL_PLANE_NAME: "cp"}}}),
            json!({"metadata": {"ownerReferences": [owner]}}),
            json!({"spec": {"infrastructureRef": {"kind": "Metal3Machine", "name": "m"}}}),
        ] {
            assert_ne!(before, of(more.clone()), "{more}");
        }
    }

    #[test]
    fn it_is_news_once_and_again_when_it_was_gone() {
        let (all, key) = (Matter::default(), || ("ns".to_owned(), "m".to_owned()));
        let told = [Some(1), Some(1), Some(2), None, Some(2)].map(|now| all.is_news(key(), now));
        assert_eq!(told, [true, false, true, true, true]);
    }
}
