//! Objects whose kind somebody else defines.
//!
//! Our structs hold only the fields that a controller reads or writes. Everything else stands in
//! the `other` map beside them, so that an object which is decoded and encoded again is the same.
//! That is for tests, logs and copies: a foreign object is only ever patched, never replaced.
//!
//! For known fields `null`, an empty list and an empty map count as absent.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::hash::Hash;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DynamicResourceScope;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Fields by name that our types leave alone.
pub type Unknown = BTreeMap<String, Value>;

/// What makes a foreign kind: its names and the two halves of its objects.
pub trait ForeignKind: Debug + Send + Sync + 'static {
    /// The fields of `spec` that we know.
    type Spec: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync;
    /// The fields of `status` that we know.
    type Status: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync;
    /// Which version a client asks for: `()` where there is one, else [`ContractVersion`].
    type Version: KindVersion;
    /// API group.
    const GROUP: &'static str;
    /// Kind.
    const KIND: &'static str;
    /// The kind's name in URLs.
    const PLURAL: &'static str;
    /// The version's name in URLs.
    fn version(version: &Self::Version) -> &'static str;
}

/// How a client names the version that it asks for.
pub trait KindVersion: Clone + Debug + Default + Eq + Hash + Send + Sync + Unpin + 'static {
    /// Which constructors of `Api` a kind has: with a version to choose, those that take one.
    type Scope;
}

impl KindVersion for () {
    type Scope = NamespaceResourceScope;
}

impl KindVersion for ContractVersion {
    type Scope = DynamicResourceScope;
}

/// The version in which an object of Cluster API or of one of its providers is asked for.
///
/// One Rust type reads both shapes. Discovery says which version a cluster serves; the value goes
/// into `Api::namespaced_with` and `Controller::new_with`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContractVersion {
    /// The older shape: references with `apiVersion`, `status.ready`, conditions with a severity.
    V1Beta1,
    /// The newer shape: references with `apiGroup`, `status.initialization`, standard conditions.
    #[default]
    V1Beta2,
}

impl ContractVersion {
    /// The newer shape is read where both are served.
    pub const BEST_FIRST: [Self; 2] = [Self::V1Beta2, Self::V1Beta1];
    /// The names of both, in that order.
    pub const NAMES: &'static [&'static str] =
        &[Self::BEST_FIRST[0].as_str(), Self::BEST_FIRST[1].as_str()];

    /// The name in `apiVersion` and URLs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }

    /// The version that an `apiVersion` ends in, if it is one of the two.
    pub fn from_api_version(api_version: &str) -> Option<Self> {
        match api_version.rsplit('/').next()? {
            "v1beta1" => Some(Self::V1Beta1),
            "v1beta2" => Some(Self::V1Beta2),
            _ => None,
        }
    }
}

impl fmt::Display for ContractVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// One object of a foreign kind; the kinds are type aliases such as
/// [`BareMetalHost`](crate::metal3::BareMetalHost).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub struct Foreign<K: ForeignKind> {
    /// Group and version of the shape that this object has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind, as the server wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name, namespace, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What was asked for. Absent reads as empty: few foreign schemas require it.
    #[serde(default)]
    pub spec: K::Spec,
    /// What its controller saw; nothing until that controller has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<K::Status>,
    /// Fields beside the five that every object has.
    #[serde(flatten)]
    pub other: Unknown,
}

impl<K: ForeignKind> Foreign<K> {
    /// An object to be created in `namespace`, in the kind's default version.
    pub fn new(namespace: &str, name: &str, spec: K::Spec) -> Self {
        let version = K::version(&K::Version::default());
        Self {
            api_version: Some(format!("{}/{version}", K::GROUP)),
            kind: Some(K::KIND.to_owned()),
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
            other: Unknown::new(),
        }
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}

impl<K: ForeignKind<Version = ContractVersion>> Foreign<K> {
    /// The shape of this object. Without an `apiVersion` it is taken for the newer one.
    pub fn contract(&self) -> ContractVersion {
        self.api_version.as_deref().and_then(ContractVersion::from_api_version).unwrap_or_default()
    }
}

impl<K: ForeignKind> Resource for Foreign<K> {
    type DynamicType = K::Version;
    type Scope = <K::Version as KindVersion>::Scope;

    fn kind(_: &K::Version) -> Cow<'_, str> {
        K::KIND.into()
    }

    fn group(_: &K::Version) -> Cow<'_, str> {
        K::GROUP.into()
    }

    fn version(version: &K::Version) -> Cow<'_, str> {
        K::version(version).into()
    }

    fn plural(_: &K::Version) -> Cow<'_, str> {
        K::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
