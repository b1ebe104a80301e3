//! `ClusterPool`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::inventory::{EntryStatus, Inventory};
use crate::condition::Condition;
use crate::foreign::{Foreign, ForeignKind, Unknown};
use crate::reference::NamedRef;

/// A pool of clusters that are made before they are claimed.
pub type ClusterPool = Foreign<ClusterPoolKind>;

/// Names of the kind `ClusterPool`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterPoolKind;

impl ForeignKind for ClusterPoolKind {
    type Spec = ClusterPoolSpec;
    type Status = ClusterPoolStatus;
    type Version = ();
    const GROUP: &'static str = "hive.openshift.io";
    const KIND: &'static str = "ClusterPool";
    const PLURAL: &'static str = "clusterpools";

    fn version((): &()) -> &'static str {
        "v1"
    }
}

/// What a pool should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterPoolSpec {
    /// Where clusters are installed; copied as it is.
    pub platform: Unknown,
    /// DNS domain of its clusters.
    pub base_domain: String,
    /// What is installed.
    pub image_set_ref: NamedRef,
    /// Unclaimed clusters to keep.
    pub size: i32,
    /// How many of them run instead of hibernating.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_count: Option<i32>,
    /// Clusters at most, claimed ones among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<i32>,
    /// Clusters being installed or removed at the same time at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<i32>,
    /// Secret for pulling images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secret_ref: Option<NamedRef>,
    /// Secret with the install config that clusters start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_config_secret_template_ref: Option<NamedRef>,
    /// A customization for every cluster of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customization_ref: Option<NamedRef>,
    /// Labels of its clusters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of its clusters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// When an idle cluster hibernates; a Go duration, copied as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernate_after: Option<String>,
    /// How long claims live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_lifetime: Option<ClaimLifetime>,
    /// How hibernation goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernation_config: Option<HibernationConfig>,
    /// How often one cluster's installation is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub install_attempts_limit: Option<i32>,
    /// Make no machine pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_machine_pools: Option<bool>,
    /// Environment of the installer; copied as it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub installer_env: Vec<Value>,
    /// Customizations of which each cluster gets one. A stock CRD keeps only the list form: see
    /// [`extensions`](crate::extensions).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory: Option<Inventory>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How long claims live.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimLifetime {
    /// Where the claim does not say; a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// At most; a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How hibernation goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HibernationConfig {
    /// How long resuming may take before the cluster counts as broken; a Go duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_timeout: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How a pool is. Written by `clusterpool-inventory`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterPoolStatus {
    /// Unclaimed clusters.
    pub size: i32,
    /// Unclaimed clusters that run.
    pub ready: i32,
    /// Unclaimed clusters that are installed and do not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<i32>,
    /// Conditions, in Hive's format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How each entry of the inventory is, by name. A stock CRD lacks it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inventory: BTreeMap<String, EntryState>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How a pool sees one entry of its inventory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EntryState {
    /// Version of the customization that this was said about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How the entry is.
    pub status: EntryStatus,
    /// Failed provisions that it may still have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// The cluster that uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_ref: Option<NamedRef>,
    /// The last cluster that could not be made from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl EntryState {
    /// The name of the cluster that uses it.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster_deployment_ref.as_ref()?.name.as_deref()
    }

    /// Whether it counts the failure of the cluster of this name, so that the cluster may go.
    pub fn counts(&self, cluster: &str) -> bool {
        self.last_failure.as_ref().and_then(|it| it.cluster_deployment.as_deref()) == Some(cluster)
    }
}

/// A cluster that could not be made from an entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastFailure {
    /// Name of the cluster; each counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment: Option<String>,
    /// Why, as one word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}
