//! `Metal3DataClaim` and `Metal3Data`: a machine's secrets are rendered by CAPM3's data
//! controllers; we make the claim and wait for the answer.

use serde::{Deserialize, Serialize};

use crate::foreign::{ContractVersion, Foreign, ForeignKind, Unknown};
use crate::reference::{NamedRef, ObjectRef};

/// A request for rendered secrets.
pub type Metal3DataClaim = Foreign<Metal3DataClaimKind>;
/// Rendered secrets.
pub type Metal3Data = Foreign<Metal3DataKind>;

/// Names of the kind `Metal3DataClaim`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metal3DataClaimKind;

impl ForeignKind for Metal3DataClaimKind {
    type Spec = Metal3DataClaimSpec;
    type Status = Metal3DataClaimStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "infrastructure.cluster.x-k8s.io";
    const KIND: &'static str = "Metal3DataClaim";
    const PLURAL: &'static str = "metal3dataclaims";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// Names of the kind `Metal3Data`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metal3DataKind;

impl ForeignKind for Metal3DataKind {
    type Spec = Metal3DataSpec;
    type Status = Metal3DataStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "infrastructure.cluster.x-k8s.io";
    const KIND: &'static str = "Metal3Data";
    const PLURAL: &'static str = "metal3datas";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3DataClaimSpec {
    /// The `Metal3DataTemplate`.
    pub template: ObjectRef,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How a claim was answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3DataClaimStatus {
    /// The `Metal3Data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendered_data: Option<ObjectRef>,
    /// Why it could not be rendered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What was rendered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3DataSpec {
    /// The claim that it answers, which has the name of its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ObjectRef>,
    /// Secret with facts about the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<NamedRef>,
    /// Secret with the machine's network configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NamedRef>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How rendering went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3DataStatus {
    /// The secrets are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Why they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}
