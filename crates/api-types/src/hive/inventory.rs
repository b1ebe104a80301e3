//! The inventory of a pool, which is written in three ways, and the words for its entries.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::customization::ClusterDeploymentCustomizationKind;
use crate::foreign::{ForeignKind as _, Unknown};

/// `spec.inventory` of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Inventory {
    /// The object form.
    Object(InventoryObject),
    /// The plain list, which a stock Hive knows.
    List(Vec<InventoryEntry>),
    /// Something else: no schema of a CRD can ask for one of two types, so it is for the controller to say what is wrong.
    Unreadable(Unreadable),
}

/// An inventory that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// As it stands there.
    pub value: Value,
    /// Which field is wrong, and what to change.
    pub why: String,
}

impl Serialize for Unreadable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

/// The object form of an inventory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InventoryObject {
    /// The entries.
    #[serde(rename = "ClusterDeploymentCustomizations", skip_serializing_if = "Option::is_none")]
    pub customizations: Option<Vec<InventoryEntry>>,
    /// The entries, spelled as fields usually are.
    #[serde(rename = "clusterDeploymentCustomizations", skip_serializing_if = "Option::is_none")]
    pub lower_camel: Option<Vec<InventoryEntry>>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// A customization that a pool may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InventoryEntry {
    /// Kind, which can only be `ClusterDeploymentCustomization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name; the customization stands in the pool's namespace.
    pub name: String,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl Inventory {
    /// The entries in the order of the list. An empty list is not an inventory without entries
    /// but a mistake: it is for the controller to say so.
    pub fn entries(&self) -> impl Iterator<Item = &InventoryEntry> {
        let (first, second) = match self {
            Self::List(entries) => (entries.as_slice(), [].as_slice()),
            Self::Unreadable(_) => ([].as_slice(), [].as_slice()),
            Self::Object(object) => (
                object.customizations.as_deref().unwrap_or_default(),
                object.lower_camel.as_deref().unwrap_or_default(),
            ),
        };
        first.iter().chain(second)
    }
}

impl<'de> Deserialize<'de> for Inventory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if let Some(why) = mistake(&value) {
            return Ok(Self::Unreadable(Unreadable { value, why }));
        }
        let read = if value.is_array() {
            Vec::deserialize(&value).map(Self::List)
        } else {
            InventoryObject::deserialize(&value).map(Self::Object)
        };
        let unreadable = |error: serde_json::Error| {
            let why = format!("spec.inventory cannot be read: {error}; correct it");
            Self::Unreadable(Unreadable { value, why })
        };
        Ok(read.unwrap_or_else(unreadable))
    }
}

/// The spellings of the list in the object form.
pub(crate) const LISTS: [&str; 2] =
    ["ClusterDeploymentCustomizations", "clusterDeploymentCustomizations"];

/// What is wrong with an inventory, and what to change.
fn mistake(inventory: &Value) -> Option<String> {
    let lists: Vec<(String, &Value)> = match inventory {
        Value::Array(_) => vec![("spec.inventory".to_owned(), inventory)],
        Value::Object(fields) => LISTS
            .iter()
            .filter_map(|name| Some((format!("spec.inventory.{name}"), fields.get(*name)?)))
            .filter(|(_, list)| !list.is_null())
            .collect(),
        _ => {
            return Some(format!(
                "spec.inventory is neither an object nor a list: give it the list {}",
                LISTS[0]
            ));
        }
    };
    lists.iter().find_map(|(path, list)| {
        let Value::Array(entries) = list else {
            return Some(format!("{path} is no list: write it as a list of name: <customization>"));
        };
        entries.iter().enumerate().find_map(|(place, entry)| {
            let is_named = entry["name"].as_str().is_some_and(|it| !it.is_empty());
            let kind = &entry["kind"];
            let is_kind = kind.is_null()
                || ["", ClusterDeploymentCustomizationKind::KIND].iter().any(|it| kind == it);
            if !is_named {
                Some(format!(
                    "{path}[{place}] names no customization: write it as name: <customization>"
                ))
            } else if !is_kind {
                Some(format!(
                    "{path}[{place}].kind can only be {}: correct it or leave it out",
                    ClusterDeploymentCustomizationKind::KIND
                ))
            } else {
                None
            }
        })
    })
}

/// How a pool sees one of its entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum EntryStatus {
    /// Free.
    Available,
    /// A cluster of this pool uses it.
    Reserved,
    /// Its patches cannot be applied in this pool.
    BrokenByConfiguration,
    /// Clusters made from it failed too often.
    BrokenByCloud,
    /// There is no such customization.
    Missing,
    /// Another pool uses it.
    Unavailable,
    /// No longer listed; its cluster still exists.
    ToBeDeleted,
    /// Changed while a cluster of this pool uses it.
    ToBeUpdated,
    /// A word that this version does not know.
    Other(String),
}

impl EntryStatus {
    /// The words in the order in which they are explained.
    pub const KNOWN: [Self; 8] = [
        Self::Available,
        Self::Reserved,
        Self::BrokenByConfiguration,
        Self::BrokenByCloud,
        Self::Missing,
        Self::Unavailable,
        Self::ToBeDeleted,
        Self::ToBeUpdated,
    ];

    /// The word in the object.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Available => "Available",
            Self::Reserved => "Reserved",
            Self::BrokenByConfiguration => "Broken by configuration",
            Self::BrokenByCloud => "Broken by cloud",
            Self::Missing => "Missing",
            Self::Unavailable => "Unavailable",
            Self::ToBeDeleted => "To Be Deleted",
            Self::ToBeUpdated => "To Be Updated",
            Self::Other(word) => word,
        }
    }
}

impl Default for EntryStatus {
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl From<String> for EntryStatus {
    fn from(word: String) -> Self {
        Self::KNOWN.into_iter().find(|known| known.as_str() == word).unwrap_or(Self::Other(word))
    }
}

impl From<EntryStatus> for String {
    fn from(status: EntryStatus) -> Self {
        status.as_str().to_owned()
    }
}
