//! Conditions of foreign objects, whichever of the three formats they have.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::foreign::Unknown;

/// A condition in the standard format, in Cluster API's deprecated one (with a severity) or in
/// Hive's (with a probe time). Only the type is sure to be there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is claimed, such as `Ready`.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// Why, as one word for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Which generation of the object this was said about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How bad a `False` is; in the deprecated format only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl Condition {
    /// One in the standard format: whether the claim holds, why as one word, and why for people.
    pub fn new(
        kind: &str,
        (holds, reason, message): (bool, &str, &str),
        since: Timestamp,
        generation: Option<i64>,
    ) -> Self {
        Self {
            r#type: kind.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(Time(since)),
            observed_generation: generation,
            ..Self::default()
        }
    }

    /// Whether the claim holds.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Whether the claim is known not to hold.
    pub fn is_false(&self) -> bool {
        self.status == "False"
    }
}

/// The condition of a type in a list.
pub fn find<'a>(conditions: &'a [Condition], r#type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.r#type == r#type)
}

/// Puts a condition into a list, in the place of the one of its type.
pub fn put(conditions: &mut Vec<Condition>, new: Condition) {
    match conditions.iter_mut().find(|known| known.r#type == new.r#type) {
        Some(known) => *known = new,
        None => conditions.push(new),
    }
}
