//! What owns machines: `MachineSet`, `MachineDeployment`, `KubeadmControlPlane`.

use serde::{Deserialize, Serialize};

use super::machine::MachineSpec;
use crate::foreign::{ContractVersion, Foreign, ForeignKind, Unknown};
use crate::reference::ObjectRef;

/// A number of like machines.
pub type MachineSet = Foreign<MachineSetKind>;
/// A number of like machines that are replaced in steps.
pub type MachineDeployment = Foreign<MachineDeploymentKind>;
/// The control plane of a cluster.
pub type KubeadmControlPlane = Foreign<KubeadmControlPlaneKind>;

/// Names of the kind `MachineSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineSetKind;

impl ForeignKind for MachineSetKind {
    type Spec = ReplicasSpec;
    type Status = OwnerStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "cluster.x-k8s.io";
    const KIND: &'static str = "MachineSet";
    const PLURAL: &'static str = "machinesets";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// Names of the kind `MachineDeployment`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineDeploymentKind;

impl ForeignKind for MachineDeploymentKind {
    type Spec = ReplicasSpec;
    type Status = OwnerStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "cluster.x-k8s.io";
    const KIND: &'static str = "MachineDeployment";
    const PLURAL: &'static str = "machinedeployments";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// Names of the kind `KubeadmControlPlane`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KubeadmControlPlaneKind;

impl ForeignKind for KubeadmControlPlaneKind {
    type Spec = ControlPlaneSpec;
    type Status = OwnerStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "controlplane.cluster.x-k8s.io";
    const KIND: &'static str = "KubeadmControlPlane";
    const PLURAL: &'static str = "kubeadmcontrolplanes";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// What a machine set or machine deployment should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicasSpec {
    /// Its cluster.
    pub cluster_name: String,
    /// How many machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What they are made from.
    pub template: MachineTemplate,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What machines are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineTemplate {
    /// The machine, whose infrastructure reference names a template.
    pub spec: MachineSpec,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What a control plane should be. Every provider's control plane has this shape, so an object of
/// an unknown kind can be read as this too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneSpec {
    /// How many machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What they are made from.
    pub machine_template: ControlPlaneMachineTemplate,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What machines of a control plane are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControlPlaneMachineTemplate {
    /// The infrastructure template; older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectRef>,
    /// What holds the infrastructure template in the newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<InnerMachineTemplate>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// `spec.machineTemplate.spec` of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InnerMachineTemplate {
    /// The infrastructure template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectRef>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What the controller of an owner saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerStatus {
    /// Machines there are, those being deleted among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Machines made from the present template; newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// The same in the older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// The generation that this was said about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}
