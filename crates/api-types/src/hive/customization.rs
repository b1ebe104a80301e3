//! `ClusterDeploymentCustomization`: what makes one cluster differ from the pool's others.

use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::foreign::{Foreign, ForeignKind, Unknown};
use crate::names;
use crate::reference::NamedRef;

/// What makes one cluster differ from the pool's others, and who uses it.
pub type ClusterDeploymentCustomization = Foreign<ClusterDeploymentCustomizationKind>;

/// Names of the kind `ClusterDeploymentCustomization`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClusterDeploymentCustomizationKind;

impl ForeignKind for ClusterDeploymentCustomizationKind {
    type Spec = CustomizationSpec;
    type Status = CustomizationStatus;
    type Version = ();
    const GROUP: &'static str = "hive.openshift.io";
    const KIND: &'static str = "ClusterDeploymentCustomization";
    const PLURAL: &'static str = "clusterdeploymentcustomizations";

    fn version((): &()) -> &'static str {
        "v1"
    }
}

/// The differences. Patches of installer manifests are Hive's business and stay in `other`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomizationSpec {
    /// Patches of the install config, in the order in which they are applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub install_config_patches: Vec<InstallConfigPatch>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// One operation of RFC 6902. Operation and path are checked where it is applied, so that a
/// mistake is a reason that the entry's owner can read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstallConfigPatch {
    /// The operation.
    pub op: String,
    /// Where; a JSON pointer.
    pub path: String,
    /// Where from, for `move` and `copy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The value, as a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The value, as JSON text; takes precedence.
    #[serde(rename = "valueJSON", skip_serializing_if = "Option::is_none")]
    pub value_json: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// Who uses a customization.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomizationStatus {
    /// The cluster. A stock CRD lacks its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_deployment_ref: Option<NamedRef>,
    /// The pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_pool_ref: Option<NamedRef>,
    /// The install config that was last made with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_configuration: Option<String>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// Finalizer on a customization that Hive's own controller of pools puts there for this pool. Removed by
/// `clusterpool-inventory`, which runs in that controller's place.
pub fn pools_finalizer(pool: &str) -> String {
    format!("{}/{pool}", ClusterDeploymentCustomizationKind::GROUP)
}

impl ClusterDeploymentCustomization {
    /// Name of the cluster that holds the lease, if one does.
    pub fn leased_by(&self) -> Option<&str> {
        self.status
            .as_ref()?
            .cluster_deployment_ref
            .as_ref()?
            .name
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// Whether the `Available` condition says that it is in use. Absent means that nobody has
    /// used it yet.
    pub fn is_marked_in_use(&self) -> bool {
        self.status
            .as_ref()
            .and_then(|status| {
                condition::find(&status.conditions, names::hive::CONDITION_AVAILABLE)
            })
            .is_some_and(Condition::is_false)
    }
}
