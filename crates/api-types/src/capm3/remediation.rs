//! `Metal3Remediation` of the infrastructure group, which CAPM3 defines. Ours is in
//! [`remediation`](crate::remediation).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Duration;
use serde::{Deserialize, Serialize};

use crate::foreign::{ContractVersion, Foreign, ForeignKind, Unknown};
use crate::remediation::{Phase, StrategyType};

/// A request to remediate a machine, in CAPM3's group.
pub type UpstreamRemediation = Foreign<UpstreamRemediationKind>;

/// Names of CAPM3's kind `Metal3Remediation`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpstreamRemediationKind;

impl ForeignKind for UpstreamRemediationKind {
    type Spec = UpstreamRemediationSpec;
    type Status = UpstreamRemediationStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "infrastructure.cluster.x-k8s.io";
    const KIND: &'static str = "Metal3Remediation";
    const PLURAL: &'static str = "metal3remediations";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpstreamRemediationSpec {
    /// How to remediate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<UpstreamStrategy>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How to remediate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpstreamStrategy {
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<StrategyType>,
    /// How often to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_limit: Option<i32>,
    /// How long the node may take to become healthy; older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The same in seconds; newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How far it is. There are no conditions here: events and the Machine's conditions say the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpstreamRemediationStatus {
    /// What is being done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Tries after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// When the last try began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_remediated: Option<Time>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl UpstreamStrategy {
    /// How long the node may take to become healthy, in either contract. A negative time is none.
    pub fn timeout(&self) -> Option<std::time::Duration> {
        match (&self.timeout_seconds, &self.timeout) {
            (Some(seconds), _) => u64::try_from(*seconds)
                .ok()
                .map(std::time::Duration::from_secs),
            (None, Some(timeout)) => (!timeout.is_negative()).then(|| (*timeout).into()),
            (None, None) => None,
        }
    }
}
