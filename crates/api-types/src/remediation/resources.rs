//! `Metal3Remediation` and `Metal3RemediationTemplate`.

#![allow(
    clippy::duplicated_attributes,
    reason = "the lint takes the fields of one print column for those of another"
)]
#![allow(unreachable_pub, reason = "the schema derive repeats each type inside a function")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::Duration;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::words::{Phase, Step, StrategyType};

/// What is asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "remediation.metal3.io",
    version = "v1alpha1",
    kind = "Metal3Remediation",
    plural = "metal3remediations",
    shortname = "m3rem",
    category = "cluster-api",
    namespaced,
    status = "Metal3RemediationStatus",
    derive = "PartialEq",
    doc = "Asks to bring an unhealthy machine back by power-cycling its host. It has the name of the Machine and is usually made by a MachineHealthCheck.",
    label("cluster.x-k8s.io/v1beta1", "v1alpha1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".spec.strategy.type"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(name = "Retries", type_ = "integer", json_path = ".status.retryCount"),
    printcolumn(name = "Limit", type_ = "integer", json_path = ".spec.strategy.retryLimit"),
    printcolumn(name = "Last remediated", type_ = "date", json_path = ".status.lastRemediated"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Succeeded\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct Metal3RemediationSpec {
    /// How to remediate. Without it nothing is done, and a condition says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RemediationStrategy>,
}

/// How to remediate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.timeout) || duration(self.timeout) > duration('0s')").message("timeout: must be longer than zero, such as 300s"))]
pub struct RemediationStrategy {
    /// What to do: `reboot`, in any case. Another word is refused with a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub r#type: Option<StrategyType>,
    /// How often to try again after the first try; 1 where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retry_limit: Option<i32>,
    /// Another name of `retryLimit`, which takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub reboot_limit: Option<i32>,
    /// How long the node may take to become healthy, counted from the moment its host is on
    /// again, such as `300s`; 600s where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 32, "pattern" = r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$"))]
    pub timeout: Option<Duration>,
}

impl RemediationStrategy {
    /// The number of tries after the first that is asked for, under either name.
    pub fn requested_retries(&self) -> Option<i32> {
        self.retry_limit.or(self.reboot_limit)
    }
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metal3RemediationStatus {
    /// What is being done: `running`, `waiting`, `deleting machine` or `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Tries after the first.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub retry_count: i32,
    /// When the last try began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_remediated: Option<Time>,
    /// How far the try is: `power off`, `fence`, `power on`, `recover`, `undo` or `done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// Since when it is that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// `Succeeded`, and whatever else is to be said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The generation that the conditions were said about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What a `MachineHealthCheck` clones.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "remediation.metal3.io",
    version = "v1alpha1",
    kind = "Metal3RemediationTemplate",
    plural = "metal3remediationtemplates",
    shortname = "m3remt",
    category = "cluster-api",
    namespaced,
    derive = "PartialEq",
    doc = "What a MachineHealthCheck makes a Metal3Remediation from when it finds an unhealthy Machine.",
    label("cluster.x-k8s.io/v1beta1", "v1alpha1"),
    label("cluster.x-k8s.io/v1beta2", "v1alpha1"),
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.template.spec.strategy.type"
    ),
    printcolumn(
        name = "Limit",
        type_ = "integer",
        json_path = ".spec.template.spec.strategy.retryLimit"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct Metal3RemediationTemplateSpec {
    /// The remediation.
    pub template: RemediationTemplateResource,
}

/// A remediation inside a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemediationTemplateResource {
    /// Labels and annotations of each remediation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// What each remediation asks for.
    pub spec: Metal3RemediationSpec,
}

/// Labels and annotations of what is made from a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}
