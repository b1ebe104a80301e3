//! `Cluster`.

use serde::{Deserialize, Serialize};

use super::machine::{Conditions, OldStatus};
use crate::condition::Condition;
use crate::foreign::{ContractVersion, Foreign, ForeignKind, Unknown};
use crate::reference::ObjectRef;

/// A cluster.
pub type Cluster = Foreign<ClusterKind>;

/// Names of the kind `Cluster`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterKind;

impl ForeignKind for ClusterKind {
    type Spec = ClusterSpec;
    type Status = ClusterStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "cluster.x-k8s.io";
    const KIND: &'static str = "Cluster";
    const PLURAL: &'static str = "clusters";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// What a cluster should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Nothing of this cluster may be touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Its `Metal3Cluster`, for our purposes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectRef>,
    /// Its control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ObjectRef>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What Cluster API saw of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// The infrastructure is there; older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ready: Option<bool>,
    /// What has been reached once and for all; newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ClusterInitialization>,
    /// Roughly how it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Conditions: standard ones in the newer contract, deprecated ones in the older.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The newer contract's conditions, as the older one shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<Conditions>,
    /// The older contract's fields, as the newer one keeps them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<OldStatus>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What a cluster has reached once and for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInitialization {
    /// The infrastructure is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The control plane answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl Cluster {
    /// Whether nothing of this cluster may be touched, by field or annotation.
    pub fn is_paused(&self) -> bool {
        self.spec.paused == Some(true) || super::is_paused(&self.metadata)
    }

    /// Whether the cluster's infrastructure is there, in either contract.
    pub fn infrastructure_provisioned(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.infrastructure_ready == Some(true)
                || status
                    .initialization
                    .as_ref()
                    .is_some_and(|reached| reached.infrastructure_provisioned == Some(true))
        })
    }
}
