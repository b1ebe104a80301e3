//! `Metal3Cluster`: we ask only whether it is there and ready.

use serde::{Deserialize, Serialize};

use super::machine::Initialization;
use crate::foreign::{ContractVersion, Foreign, ForeignKind, Unknown};

/// The infrastructure of a cluster.
pub type Metal3Cluster = Foreign<Metal3ClusterKind>;

/// Names of the kind `Metal3Cluster`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metal3ClusterKind;

impl ForeignKind for Metal3ClusterKind {
    type Spec = Metal3ClusterSpec;
    type Status = Metal3ClusterStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "infrastructure.cluster.x-k8s.io";
    const KIND: &'static str = "Metal3Cluster";
    const PLURAL: &'static str = "metal3clusters";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// What a cluster's infrastructure should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3ClusterSpec {
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How a cluster's infrastructure is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3ClusterStatus {
    /// It is there; older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// What has been reached once and for all; newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}
