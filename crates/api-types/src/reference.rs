//! References from one object to another.

use serde::{Deserialize, Serialize};

use crate::foreign::Unknown;

/// A reference to an object of any kind: with `apiVersion` (core's format and Cluster API's older
/// contract) or with `apiGroup` (the newer contract).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Group and version, in the older formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Group alone, in the newer contract: the version is found by the contract's labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace; the referring object's own where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Tells an object from a later one of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl ObjectRef {
    /// The API group, whichever field it stands in; empty for the core group.
    pub fn group(&self) -> &str {
        match (&self.api_group, &self.api_version) {
            (Some(group), _) => group,
            (None, Some(version)) => version.split_once('/').map_or("", |(group, _)| group),
            (None, None) => "",
        }
    }

    /// Whether this names the object of that group, kind and name. The version does not matter:
    /// one object is served in several.
    pub fn is(&self, group: &str, kind: &str, name: &str) -> bool {
        self.group() == group
            && self.kind.as_deref() == Some(kind)
            && self.name.as_deref() == Some(name)
    }
}

/// A reference by name and namespace where the kind is understood, such as to a secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamedRef {
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace; the referring object's own where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}
