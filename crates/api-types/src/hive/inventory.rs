//! The inventory of a pool, which is written in three ways, and the words for its entries.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::foreign::Unknown;

/// `spec.inventory` of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Inventory {
    /// The object form.
    Object(InventoryObject),
    /// The plain list, which a stock Hive knows.
    List(Vec<InventoryEntry>),
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
            Self::Object(object) => (
                object.customizations.as_deref().unwrap_or_default(),
                object.lower_camel.as_deref().unwrap_or_default(),
            ),
        };
        first.iter().chain(second)
    }
}

// By hand, because an untagged enum would lose the path of a mistake inside the list.
impl<'de> Deserialize<'de> for Inventory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EitherForm;

        impl<'de> Visitor<'de> for EitherForm {
            type Value = Inventory;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(
                    "a list of customizations, or an object with ClusterDeploymentCustomizations",
                )
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Inventory, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Inventory::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Inventory, A::Error> {
                InventoryObject::deserialize(MapAccessDeserializer::new(object))
                    .map(Inventory::Object)
            }
        }

        deserializer.deserialize_any(EitherForm)
    }
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
