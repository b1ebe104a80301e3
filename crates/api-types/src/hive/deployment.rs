//! `ClusterDeployment` and `ClusterClaim`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::condition::Condition;
use crate::foreign::{Foreign, ForeignKind, Unknown};
use crate::reference::NamedRef;

/// One cluster.
pub type ClusterDeployment = Foreign<ClusterDeploymentKind>;
/// A request for a cluster of a pool.
pub type ClusterClaim = Foreign<ClusterClaimKind>;

/// Names of the kind `ClusterDeployment`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterDeploymentKind;

impl ForeignKind for ClusterDeploymentKind {
    type Spec = ClusterDeploymentSpec;
    type Status = ClusterDeploymentStatus;
    type Version = ();
    const GROUP: &'static str = "hive.openshift.io";
    const KIND: &'static str = "ClusterDeployment";
    const PLURAL: &'static str = "clusterdeployments";

    fn version((): &()) -> &'static str {
        "v1"
    }
}

/// Names of the kind `ClusterClaim`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterClaimKind;

impl ForeignKind for ClusterClaimKind {
    type Spec = ClusterClaimSpec;
    type Status = ClusterClaimStatus;
    type Version = ();
    const GROUP: &'static str = "hive.openshift.io";
    const KIND: &'static str = "ClusterClaim";
    const PLURAL: &'static str = "clusterclaims";

    fn version((): &()) -> &'static str {
        "v1"
    }
}

/// What a cluster should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterDeploymentSpec {
    /// Its name.
    pub cluster_name: String,
    /// Its DNS domain.
    pub base_domain: String,
    /// Where it is installed.
    pub platform: Unknown,
    /// Whether it is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<bool>,
    /// How it is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<Provisioning>,
    /// Its pool, its claim and its customization.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_pool_ref: Option<ClusterPoolRef>,
    /// Secret for pulling images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secret_ref: Option<NamedRef>,
    /// `Running` or `Hibernating`; empty leaves it as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_state: Option<String>,
    /// When it hibernates by itself; a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernate_after: Option<String>,
    /// How often its installation is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_attempts_limit: Option<i32>,
    /// Leave the cluster running when this object is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_on_delete: Option<bool>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How a cluster is installed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Provisioning {
    /// Secret with the install config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_config_secret_ref: Option<NamedRef>,
    /// What is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_set_ref: Option<NamedRef>,
    /// The pool-wide customization.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customization_ref: Option<NamedRef>,
    /// Environment of the installer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub installer_env: Vec<Value>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// A cluster's pool, claim and customization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterPoolRef {
    /// Namespace of the pool.
    pub namespace: String,
    /// Name of the pool.
    pub pool_name: String,
    /// Name of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// When it was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_timestamp: Option<Time>,
    /// The customization: the spelling that a stock CRD keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_customization: Option<NamedRef>,
    /// The customization: the spelling of the design; a stock CRD drops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_customization_ref: Option<NamedRef>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl ClusterPoolRef {
    /// Name of the customization, in whichever spelling.
    pub fn customization_name(&self) -> Option<&str> {
        [&self.cluster_deployment_customization, &self.cluster_deployment_customization_ref]
            .into_iter()
            .flatten()
            .find_map(|reference| reference.name.as_deref().filter(|name| !name.is_empty()))
            .or_else(|| self.other.get("ClusterDeploymentCustomizationRef")?.get("name")?.as_str())
    }
}

/// How a cluster is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterDeploymentStatus {
    /// `Running`, `Hibernating`, or a word for what is between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_state: Option<String>,
    /// When installing began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_started_timestamp: Option<Time>,
    /// When it was installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed_timestamp: Option<Time>,
    /// Conditions, in Hive's format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What is claimed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClaimSpec {
    /// The pool, in the claim's namespace.
    pub cluster_pool_name: String,
    /// Namespace of the cluster that it got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Who may use the cluster; copied as it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Value>,
    /// How long the claim lives; a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How a claim is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterClaimStatus {
    /// Conditions, in Hive's format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How long it lives in the end; a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}
