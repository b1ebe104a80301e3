//! A chain of links: what waits, for what, since when, and what a person can do. The page to read first.

use std::collections::BTreeMap;

use api_types::capi::{Machine, MachineKind};
use api_types::capm3::{Metal3Machine, Metal3MachineKind};
use api_types::condition::Condition;
use api_types::foreign::ForeignKind;
use api_types::hive::{
    ClusterClaim, ClusterClaimKind, ClusterDeployment, ClusterDeploymentCustomization,
    ClusterDeploymentCustomizationKind, ClusterDeploymentKind, ClusterPool, ClusterPoolKind,
};
use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery, BareMetalHostKind, CachedHost};
use api_types::remediation::{Metal3Remediation, Phase};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::{Deserialize, Serialize};

/// What the output says it is, for programs. A member is never renamed or removed under this name.
pub(crate) const API_VERSION: &str = "cli.ferrite.metal3.io/v1";

/// The kinds that can be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Machine,
    Metal3Machine,
    BareMetalHost,
    Metal3Remediation,
    ClusterPool,
    ClusterClaim,
    Customization,
    Discovery,
}

impl Kind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Machine,
        Self::Metal3Machine,
        Self::BareMetalHost,
        Self::Metal3Remediation,
        Self::ClusterPool,
        Self::ClusterClaim,
        Self::Customization,
        Self::Discovery,
    ];

    /// Its name, its name in URLs, its short names.
    fn names(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::Machine => (MachineKind::KIND, MachineKind::PLURAL, &["ma"]),
            Self::Metal3Machine => (Metal3MachineKind::KIND, Metal3MachineKind::PLURAL, &["m3m"]),
            Self::BareMetalHost => {
                (BareMetalHostKind::KIND, BareMetalHostKind::PLURAL, &["bmh", "host"])
            }
            Self::Metal3Remediation => {
                ("Metal3Remediation", "metal3remediations", &["m3rem", "m3r"])
            }
            Self::ClusterPool => (ClusterPoolKind::KIND, ClusterPoolKind::PLURAL, &["cp", "pool"]),
            Self::ClusterClaim => (ClusterClaimKind::KIND, ClusterClaimKind::PLURAL, &["claim"]),
            Self::Customization => (
                ClusterDeploymentCustomizationKind::KIND,
                ClusterDeploymentCustomizationKind::PLURAL,
                &["cdc"],
            ),
            Self::Discovery => ("BareMetalHostDiscovery", "baremetalhostdiscoveries", &["bmhd"]),
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        self.names().0
    }

    /// The kind of a word as kubectl takes it: singular, plural or short, with or without the group behind a dot.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let word = word.split('.').next().unwrap_or_default().to_lowercase();
        Self::ALL.into_iter().find(|kind| {
            let (name, plural, short) = kind.names();
            word == name.to_lowercase() || word == plural || short.contains(&word.as_str())
        })
    }
}

/// An object by its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Object {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Object {
    pub(crate) fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn of(kind: &str, metadata: &ObjectMeta) -> Self {
        let text = |it: &Option<String>| it.clone().unwrap_or_default();
        Self {
            kind: kind.to_owned(),
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
        }
    }
}

/// One link of a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Link {
    pub(crate) object: Object,
    /// Whether it waits for something.
    pub(crate) waits: bool,
    /// The condition, field or list that says so.
    pub(crate) part: String,
    /// What stands there.
    pub(crate) state: String,
    /// Why, as one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// The facts, for a person.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// The controller whose reason it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<&'static str>,
    /// What the reason means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) meaning: Option<&'static str>,
    /// What a person can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    /// The page that says how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<String>,
}

impl Link {
    /// A link about a field. It waits for nothing.
    pub(crate) fn field(object: &Object, part: &str, state: &str) -> Self {
        Self {
            object: object.clone(),
            waits: false,
            part: part.to_owned(),
            state: state.to_owned(),
            reason: None,
            since: None,
            message: String::new(),
            controller: None,
            meaning: None,
            action: None,
            page: None,
        }
    }

    pub(crate) fn saying(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    pub(crate) fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }

    /// It waits, and this is what a person can do.
    pub(crate) fn waiting(self, action: impl Into<String>) -> Self {
        let action = Some(action.into()).filter(|it| !it.is_empty());
        Self { waits: true, action, ..self }
    }
}

/// What was found of an object that a chain leads to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Look<T> {
    /// The chain does not lead there.
    #[default]
    Unasked,
    Here(T),
    Gone(Object),
    /// The API server does not have the kind.
    Unserved(Object),
    /// The user may not read it; the right that is missing.
    Forbidden(Object, String),
    /// It cannot be decoded, and why.
    Unreadable(Object, String),
}

impl<T> Look<T> {
    pub(crate) fn here(&self) -> Option<&T> {
        match self {
            Self::Here(found) => Some(found),
            _ => None,
        }
    }

    pub(crate) fn into_here(self) -> Option<T> {
        match self {
            Self::Here(found) => Some(found),
            _ => None,
        }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Look<U> {
        match self {
            Self::Unasked => Look::Unasked,
            Self::Here(found) => Look::Here(change(found)),
            Self::Gone(object) => Look::Gone(object),
            Self::Unserved(object) => Look::Unserved(object),
            Self::Forbidden(object, right) => Look::Forbidden(object, right),
            Self::Unreadable(object, why) => Look::Unreadable(object, why),
        }
    }
}

/// A `Metal3Remediation` of either group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Request {
    pub(crate) metadata: ObjectMeta,
    pub(crate) conditions: Vec<Condition>,
    /// How far CAPM3 is, whose kind has no conditions.
    pub(crate) phase: Option<Phase>,
    /// Since when it is as far as it is.
    pub(crate) since: Option<Timestamp>,
}

/// What annotations alone say of a host. Its managed fields, most of the metadata, are dropped.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Sketch {
    pub(crate) metadata: SketchMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SketchMetadata {
    pub(crate) name: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// All that was read for one answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) machine: Look<Machine>,
    pub(crate) request: Look<Request>,
    pub(crate) metal: Look<Metal3Machine>,
    pub(crate) host: Look<BareMetalHost>,
    /// The hosts among which a machine without one may choose.
    pub(crate) hosts: Look<Vec<CachedHost>>,
    /// How many hosts the namespace has beyond these.
    pub(crate) beyond: usize,
    /// Whether these were searched, too, for one that will be reserved for the owner of the machine. There is none.
    pub(crate) is_searched: bool,
    pub(crate) pool: Look<ClusterPool>,
    pub(crate) claim: Look<ClusterClaim>,
    pub(crate) claims: Look<Vec<ClusterClaim>>,
    pub(crate) customization: Look<ClusterDeploymentCustomization>,
    pub(crate) cluster: Look<ClusterDeployment>,
    pub(crate) discovery: Look<BareMetalHostDiscovery>,
}

/// Names of a kind, for a request.
pub(crate) fn name_of<K: Resource>(version: &K::DynamicType) -> String {
    K::kind(version).into_owned()
}

/// Kinds whose object a chain ends at, and that nobody asks about.
pub(crate) const CLUSTER_DEPLOYMENT: &str = ClusterDeploymentKind::KIND;

/// The group of our own remediation requests is asked first.
pub(crate) type OwnRequest = Metal3Remediation;
