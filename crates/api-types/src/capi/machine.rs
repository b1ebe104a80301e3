//! `Machine`, and the shape of status that all of Cluster API's kinds share.

use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::foreign::{ContractVersion, Foreign, ForeignKind, Unknown};
use crate::names;
use crate::reference::ObjectRef;

/// A machine of a cluster.
pub type Machine = Foreign<MachineKind>;

/// Names of the kind `Machine`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineKind;

impl ForeignKind for MachineKind {
    type Spec = MachineSpec;
    type Status = MachineStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "cluster.x-k8s.io";
    const KIND: &'static str = "Machine";
    const PLURAL: &'static str = "machines";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// What a machine should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// Its cluster.
    pub cluster_name: String,
    /// How it becomes a node.
    pub bootstrap: Bootstrap,
    /// Its `Metal3Machine`, for our purposes.
    pub infrastructure_ref: ObjectRef,
    /// Identity of the machine that the infrastructure found.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Where it should stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// Kubernetes version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How a machine becomes a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bootstrap {
    /// The object that makes the first-boot configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<ObjectRef>,
    /// Secret with the first-boot configuration, once it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What Cluster API saw of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// Its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<ObjectRef>,
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

/// A list of conditions below a name of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conditions {
    /// The conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// `status.deprecated`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OldStatus {
    /// What the older contract had directly in `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<Conditions>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// An address of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineAddress {
    /// `Hostname`, `InternalIP`, `ExternalIP`, `InternalDNS` or `ExternalDNS`.
    pub r#type: String,
    /// The address.
    pub address: String,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl MachineStatus {
    /// A condition in the standard format, which present owners and health checks go by.
    pub fn condition(&self, contract: ContractVersion, r#type: &str) -> Option<&Condition> {
        let list = match contract {
            ContractVersion::V1Beta2 => Some(&self.conditions),
            ContractVersion::V1Beta1 => self.v1beta2.as_ref().map(|group| &group.conditions),
        };
        condition::find(list?, r#type)
    }

    /// A condition in the deprecated format, which owners before Cluster API 1.11 go by.
    pub fn deprecated_condition(
        &self,
        contract: ContractVersion,
        r#type: &str,
    ) -> Option<&Condition> {
        let list = match contract {
            ContractVersion::V1Beta1 => Some(&self.conditions),
            ContractVersion::V1Beta2 => self
                .deprecated
                .as_ref()
                .and_then(|deprecated| deprecated.v1beta1.as_ref())
                .map(|group| &group.conditions),
        };
        condition::find(list?, r#type)
    }
}

impl Machine {
    /// Whether the machine belongs to a control plane.
    pub fn is_control_plane(&self) -> bool {
        self.label(names::capi::CONTROL_PLANE).is_some()
    }

    /// Name of the machine's node, once there is one.
    pub fn node_name(&self) -> Option<&str> {
        self.status.as_ref()?.node_ref.as_ref()?.name.as_deref()
    }

    /// A condition in the standard format.
    pub fn condition(&self, r#type: &str) -> Option<&Condition> {
        self.status.as_ref()?.condition(self.contract(), r#type)
    }

    /// A condition in the deprecated format.
    pub fn deprecated_condition(&self, r#type: &str) -> Option<&Condition> {
        self.status.as_ref()?.deprecated_condition(self.contract(), r#type)
    }
}
