//! The version of a pool's spec: clusters made from another one are stale.
//!
//! Ours is a hash of the few fields that make a cluster what it is, over their canonical JSON, so
//! that neither the order of fields nor a field that a later release adds changes it. Whether
//! there is an inventory counts, what is in it does not: an entry that comes or goes must not make
//! every cluster of the pool stale.
//!
//! Clusters that Hive's own controller made carry Hive's hash, over the fields of its Go structs, which differs from release to
//! release. It is not computed here: what the newest clusters carry is noted on the pool when it is taken over, beside our
//! version of the spec, and stands for that spec and no other. So taking a pool over replaces nothing. Nothing is noted beside
//! our version where all of the clusters are made from another spec for sure.

use std::collections::BTreeMap;
use std::fmt::Write;

use api_types::hive::{ClusterPoolSpec, Inventory};
use api_types::reference::NamedRef;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Stands in the hash for any inventory. Changing it makes every cluster of every pool stale.
const INVENTORY_MARKER: &str = "hasInventory";
/// Names the way of hashing, should there ever be another.
const PREFIX: &str = "r1-";

/// The values that mark a cluster as made from the pool's present spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolVersion {
    /// Ours, which new clusters get.
    pub own: String,
    /// What was noted on the pool when it was taken over from Hive's controller.
    pub noted: Option<String>,
}

impl PoolVersion {
    /// Whether a cluster with this value is made from the present spec.
    pub fn accepts(&self, value: &str) -> bool {
        let noted = || self.noted.as_deref()?.strip_prefix(&self.own)?.strip_prefix('/');
        !value.is_empty() && (value == self.own || noted() == Some(value))
    }

    /// What is to be noted where this value of Hive's stands for the present spec; an empty one where none does.
    pub fn note(&self, hive: &str) -> String {
        format!("{}/{hive}", self.own)
    }
}

/// Whether a value may be Hive's.
pub fn is_hives(value: &str) -> bool {
    value.len() == 16 && value.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

/// The version of a pool's spec.
pub fn pool_version(spec: &ClusterPoolSpec) -> PoolVersion {
    PoolVersion { own: own(spec), noted: None }
}

/// Whether the pool has an inventory: a list or an object that is empty has none in it, and is the
/// administrator's mistake rather than a wish to replace every cluster. What cannot be read was meant as one.
pub fn has_inventory(spec: &ClusterPoolSpec) -> bool {
    spec.inventory
        .as_ref()
        .is_some_and(|it| matches!(it, Inventory::Unreadable(_)) || it.entries().next().is_some())
}

fn own(spec: &ClusterPoolSpec) -> String {
    let name = |it: &NamedRef| json!(it.name.as_deref().unwrap_or_default());
    let optional = |it: &Option<NamedRef>| it.as_ref().map_or(Value::Null, name);
    let platform: Map<String, Value> = spec.platform.clone().into_iter().collect();
    let mut hashed = json!({
        "platform": platform,
        "baseDomain": spec.base_domain,
        "imageSetRef": name(&spec.image_set_ref),
        "installConfigSecretTemplateRef": optional(&spec.install_config_secret_template_ref),
        "customizationRef": optional(&spec.customization_ref),
    });
    // Which platform it is counts even where nothing more is said about it.
    let platforms: Vec<&String> =
        platform.iter().filter(|(_, it)| !it.is_null()).map(|(name, _)| name).collect();
    hashed["platforms"] = json!(platforms);
    if has_inventory(spec) {
        hashed["inventory"] = json!(INVENTORY_MARKER);
    }
    let mut text = String::new();
    if let Some(value) = said(&hashed) {
        canonical(&value, &mut text);
    }
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let start = digest[..8].iter().fold(0, |start: u64, byte| start << 8 | u64::from(*byte));
    format!("{PREFIX}{start:016x}")
}

/// The value without what says nothing: null, false, zero, and what is empty. A field that is left
/// out and one that is given its zero are the same for the API's Go types. The items of a list are
/// kept, whatever they are.
fn said(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(flag) => flag.then_some(json!(true)),
        Value::Number(number) => (number.as_f64() != Some(0.0)).then(|| value.clone()),
        Value::String(text) => (!text.is_empty()).then(|| value.clone()),
        Value::Array(items) => {
            let kept: Vec<Value> = items.iter().map(|it| said(it).unwrap_or(json!(""))).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Object(map) => {
            let kept: Map<String, Value> =
                map.iter().filter_map(|(key, it)| Some((key.clone(), said(it)?))).collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
    }
}

/// JSON with sorted keys, and whole numbers as such.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (key, item) in map.iter().collect::<BTreeMap<_, _>>() {
                canonical(&json!(key), out);
                out.push(':');
                canonical(item, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                let _ = write!(out, "{float:.0}");
            }
            _ => *out += &number.to_string(),
        },
        _ => *out += &value.to_string(),
    }
}
