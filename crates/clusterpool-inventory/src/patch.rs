//! Customizations' patches: RFC 6902 on install configs.
//!
//! A patch is a pure function of template and customization, so it is tried before a cluster is
//! wanted, and a mistake shows in the entry's status and not in a failed installation. Either all
//! operations are applied or none.
//!
//! Two habits of existing manifests are met half-way. A path without its leading slash is read
//! with one and reported, unless pointers are strict. `replace` of a missing key, which the RFC
//! refuses, is accepted and reported where that was asked for.

use api_types::hive::{ClusterPoolSpec, InstallConfigPatch};
use clap::Args;
use controller_kit::config::{reads, switch};
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, PatchErrorKind, PatchOperation, RemoveOperation,
    ReplaceOperation,
};
use jsonptr::{Pointer, PointerBuf};
use serde_json::{Map, Value, json};

use crate::platform::Platform;
use crate::yaml::{self, MAPPING, MAX_DEPTH, SCALAR};

/// What the operations of one customization may add, copy and move in all, as it weighs in memory. Without a bound, copying
/// into a copy doubles the document with each operation.
const MAX_MOVED: usize = 12 << 20;
/// How many operations are tried, each of which walks through the document.
const MAX_OPERATIONS: usize = 1000;
/// What is read of one `valueJSON`: `[{},{},…` is small as text and large in memory.
const MAX_JSON: usize = 256 << 10;
/// A secret holds 1 MiB, its name and labels among it.
const MAX_TEXT: usize = 1_000_000;

/// How strict patches are read.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// Refuse patches whose paths lack the leading slash
    #[arg(long, env = "FERRITE_STRICT_POINTERS", default_value = "false", value_parser = reads(switch))]
    pub strict_pointers: bool,
    /// Let `replace` add a key that is missing, as Hive does
    #[arg(long, env = "FERRITE_LENIENT_REPLACE", default_value = "false", value_parser = reads(switch))]
    pub lenient_replace: bool,
}

/// What an install config is made for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// The domain of the pool.
    pub base_domain: &'a str,
    /// The platform that the config has to be for, if it has to be for a certain one.
    pub platform: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// A cluster of a pool.
    pub fn of(spec: &'a ClusterPoolSpec, cluster: &'a str) -> Self {
        let platform = Platform::of(spec).and_then(|it| it.in_config());
        Self { cluster, base_domain: &spec.base_domain, platform }
    }
}

/// What a cluster is installed with.
#[derive(Clone, Debug, PartialEq)]
pub struct InstallConfig {
    /// The text for the secret.
    pub text: String,
    /// `metadata.name` in it, which differs from the cluster's name where it was patched.
    pub name: String,
    /// What was accepted and should not be relied on.
    pub notes: Vec<Note>,
}

/// Something that was accepted although its author may have meant another thing. Operations are
/// counted from 0, as in the list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Note {
    /// A path without a leading slash was read with one.
    #[error("operation {operation}: path {path:?} was read as \"/{path}\"; write it so")]
    SlashAdded {
        /// Which operation.
        operation: usize,
        /// The path as it was written.
        path: String,
    },
    /// A missing key was added by `replace`.
    #[error("operation {operation}: nothing to replace at {path}, so it was added; use op add")]
    ReplacedMissing {
        /// Which operation.
        operation: usize,
        /// The key.
        path: String,
    },
    /// A number, a boolean, a list or an object became text, as `value` always is.
    #[error("operation {operation}: {path} became text; use valueJSON for other types")]
    BecameText {
        /// Which operation.
        operation: usize,
        /// The field.
        path: String,
    },
}

/// Why an install config could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// One of the operations.
    #[error("operation {operation} ({op} {path:?}): {why}")]
    Operation {
        /// Which, from 0.
        operation: usize,
        /// Its `op`.
        op: String,
        /// Its `path`.
        path: String,
        /// What is wrong with it.
        why: Why,
    },
    /// More than anybody writes, for each of which the document is walked through.
    #[error("it has {0} operations; keep to {MAX_OPERATIONS}")]
    TooMany(usize),
    /// The template or all operations together leave something that cannot be installed.
    #[error(
        "the install config lacks {0}, or has it empty or of another type; {remedy}",
        remedy = remedy(.0)
    )]
    Lacks(&'static str),
    /// The platform's section was exchanged for another's.
    #[error("the patched install config is for another platform than the pool; keep platform.{0}")]
    OtherPlatform(String),
    /// There is no section of the pool's platform, and there was none in the template.
    #[error(
        "the install config is not for the pool's platform, so that no cluster would be installed with it; add \
         platform.{0} to the template, or correct spec.platform of the pool"
    )]
    NotForPool(String),
    /// It does not fit into a secret.
    #[error("the install config is larger than a secret holds; shorten it")]
    TooLarge,
}

/// What is wrong with an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Not one of the six.
    #[error("unknown op; use add, remove, replace, move, copy or test")]
    UnknownOp,
    /// No leading slash, and pointers are strict.
    #[error("the path has no leading slash; write \"/{0}\"")]
    NoSlash(String),
    /// `~` that is neither `~0` nor `~1`.
    #[error("{0:?} is not a JSON pointer: ~ must be written ~0 (and / in a key ~1)")]
    Pointer(String),
    /// The whole document.
    #[error("an operation must not concern the whole document; name a field")]
    WholeDocument,
    /// `move` or `copy` without `from`.
    #[error("from is missing")]
    NoFrom,
    /// Neither `value` nor `valueJSON`.
    #[error("value and valueJSON are both missing")]
    NoValue,
    /// `valueJSON` that is not JSON.
    #[error("valueJSON is not valid JSON: {0}")]
    ValueJson(String),
    /// More of it than is read.
    #[error("valueJSON is longer than 256 KiB; use value for text, or several operations")]
    LongJson,
    /// Nothing there, no parent, or no such index.
    #[error("there is nothing at this path{}", if *.0 { "; use op add for a new key" } else { "" })]
    NothingThere(bool),
    /// Nothing to move or copy.
    #[error("there is nothing at from")]
    NothingFrom,
    /// `test` found another value.
    #[error("the value is another one")]
    TestFailed,
    /// `move` into what is moved.
    #[error("a value cannot be moved into itself")]
    IntoItself,
    /// The guard against documents that grow without end.
    #[error("the operations nest, add or copy more than an install config can hold")]
    TooMuch,
}

/// Makes what a cluster is installed with: the template with the cluster's name and the pool's
/// domain, then the patches, then a look at what came out.
pub fn install_config(
    template: &Value,
    target: Target<'_>,
    patches: &[InstallConfigPatch],
    rules: Rules,
) -> Result<InstallConfig, Refusal> {
    let named = named(template, target);
    let (result, notes) = apply(&named, patches, rules)?;
    let name = kept(&named, &result, target.platform)?.to_owned();
    let text = yaml::write(&result);
    if text.len() > MAX_TEXT {
        return Err(Refusal::TooLarge);
    }
    Ok(InstallConfig { text, name, notes })
}

/// Where what is lacking comes from, if no patch took it away.
fn remedy(field: &str) -> &'static str {
    match field {
        "baseDomain" => "keep it, or set spec.baseDomain of the pool",
        "metadata.name" => "keep it",
        _ => "keep it, or add it to the template",
    }
}

fn named(template: &Value, target: Target<'_>) -> Value {
    let mut config = template.clone();
    if let Value::Object(root) = &mut config {
        root.insert("baseDomain".to_owned(), json!(target.base_domain));
        let metadata = root.entry("metadata").or_insert(Value::Null);
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        metadata["name"] = json!(target.cluster);
    }
    config
}

/// The name of the cluster in what can be installed, or what is missing.
fn kept<'a>(before: &Value, after: &'a Value, own: Option<&str>) -> Result<&'a str, Refusal> {
    fn text<'a>(config: &'a Value, pointer: &str) -> Option<&'a str> {
        config.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
    }
    text(after, "/apiVersion").ok_or(Refusal::Lacks("apiVersion"))?;
    text(after, "/baseDomain").ok_or(Refusal::Lacks("baseDomain"))?;
    let name = text(after, "/metadata/name").ok_or(Refusal::Lacks("metadata.name"))?;
    after["platform"].as_object().filter(|it| !it.is_empty()).ok_or(Refusal::Lacks("platform"))?;
    let has = |config: &Value, name: &str| !config["platform"][name].is_null();
    let template = before["platform"].as_object().into_iter().flat_map(Map::keys);
    let template = template.map(String::as_str).filter(|it| has(before, it));
    let mut needed = own.into_iter().chain(template.filter(|_| own.is_none()));
    match needed.find(|it| !has(after, it)) {
        Some(lost) if has(before, lost) => Err(Refusal::OtherPlatform(lost.to_owned())),
        Some(lost) => Err(Refusal::NotForPool(lost.to_owned())),
        None => Ok(name),
    }
}

/// Applies all operations in their order, or none.
pub fn apply(
    config: &Value,
    patches: &[InstallConfigPatch],
    rules: Rules,
) -> Result<(Value, Vec<Note>), Refusal> {
    if patches.len() > MAX_OPERATIONS {
        return Err(Refusal::TooMany(patches.len()));
    }
    let mut work = Work { document: config.clone(), rules, notes: Vec::new(), moved: 0 };
    for (operation, patch) in patches.iter().enumerate() {
        work.step(operation, patch).map_err(|why| Refusal::Operation {
            operation,
            op: patch.op.clone(),
            path: patch.path.clone(),
            why,
        })?;
    }
    Ok((work.document, work.notes))
}

struct Work {
    document: Value,
    rules: Rules,
    notes: Vec<Note>,
    moved: usize,
}

impl Work {
    fn step(&mut self, operation: usize, wanted: &InstallConfigPatch) -> Result<(), Why> {
        let path = self.pointer(operation, &wanted.path)?;
        match wanted.op.as_str() {
            "add" => {
                let value = self.value(&path, wanted)?;
                // In a list it goes between the others.
                let parent = path.parent().and_then(|parent| self.at(parent));
                if parent.is_some_and(Value::is_object) {
                    self.note_text(operation, &path, &value);
                }
                self.carry_out(PatchOperation::Add(AddOperation { path, value }))
            }
            "remove" => self.carry_out(PatchOperation::Remove(RemoveOperation { path })),
            "replace" => {
                let value = self.value(&path, wanted)?;
                self.replace(operation, path, value)
            }
            "test" => {
                let expected = self.value(&path, wanted)?;
                let found = self.at(&path).ok_or(Why::NothingThere(false))?;
                if same(found, &expected) { Ok(()) } else { Err(Why::TestFailed) }
            }
            op @ ("move" | "copy") => {
                let from = wanted.from.as_deref().ok_or(Why::NoFrom)?;
                let from = self.pointer(operation, from)?;
                let source = self.at(&from).ok_or(Why::NothingFrom)?;
                if path.count() + yaml::depth(source) > MAX_DEPTH {
                    return Err(Why::TooMuch);
                }
                let weight = weight(source);
                self.carry(weight)?;
                self.carry_out(match op {
                    "move" => PatchOperation::Move(MoveOperation { from, path }),
                    _ => PatchOperation::Copy(CopyOperation { from, path }),
                })
            }
            _ => Err(Why::UnknownOp),
        }
    }

    fn pointer(&mut self, operation: usize, path: &str) -> Result<PointerBuf, Why> {
        if path.is_empty() {
            return Err(Why::WholeDocument);
        }
        let parsed = if path.starts_with('/') {
            PointerBuf::parse(path)
        } else if self.rules.strict_pointers {
            return Err(Why::NoSlash(path.to_owned()));
        } else {
            self.notes.push(Note::SlashAdded { operation, path: path.to_owned() });
            PointerBuf::parse(format!("/{path}"))
        };
        parsed.map_err(|_| Why::Pointer(path.to_owned()))
    }

    fn carry(&mut self, weight: usize) -> Result<(), Why> {
        self.moved += weight;
        if self.moved > MAX_MOVED { Err(Why::TooMuch) } else { Ok(()) }
    }

    fn value(&mut self, path: &Pointer, wanted: &InstallConfigPatch) -> Result<Value, Why> {
        let value = match (&wanted.value, &wanted.value_json) {
            (_, Some(text)) if text.len() > MAX_JSON => return Err(Why::LongJson),
            (_, Some(text)) if !text.is_empty() => {
                serde_json::from_str(text).map_err(|error| Why::ValueJson(error.to_string()))?
            }
            (Some(text), _) => Value::String(text.clone()),
            (None, _) => return Err(Why::NoValue),
        };
        if path.count() + yaml::depth(&value) > MAX_DEPTH {
            return Err(Why::TooMuch);
        }
        self.carry(weight(&value))?;
        Ok(value)
    }

    fn at(&self, path: &Pointer) -> Option<&Value> {
        self.document.pointer(path.as_str())
    }

    fn replace(&mut self, operation: usize, path: PointerBuf, value: Value) -> Result<(), Why> {
        if self.at(&path).is_none() {
            let parent = path.parent().and_then(|parent| self.at(parent));
            let is_new_key = parent.is_some_and(Value::is_object);
            if !(is_new_key && self.rules.lenient_replace) {
                return Err(Why::NothingThere(is_new_key));
            }
            self.notes.push(Note::ReplacedMissing { operation, path: path.to_string() });
            return self.carry_out(PatchOperation::Add(AddOperation { path, value }));
        }
        self.note_text(operation, &path, &value);
        self.carry_out(PatchOperation::Replace(ReplaceOperation { path, value }))
    }

    /// Notes that text takes the place of something that is none.
    fn note_text(&mut self, operation: usize, path: &Pointer, value: &Value) {
        let was_other = self.at(path).is_some_and(|it| !it.is_string() && !it.is_null());
        if value.is_string() && was_other {
            self.notes.push(Note::BecameText { operation, path: path.to_string() });
        }
    }

    /// One operation at a time on a copy of our own: the crate's way of undoing is not needed.
    fn carry_out(&mut self, operation: PatchOperation) -> Result<(), Why> {
        json_patch::patch_unsafe(&mut self.document, &[operation]).map_err(|error| {
            match error.kind {
                PatchErrorKind::InvalidFromPointer => Why::NothingFrom,
                PatchErrorKind::CannotMoveInsideItself => Why::IntoItself,
                _ => Why::NothingThere(false),
            }
        })
    }
}

/// Equal as the RFC compares: numbers by value, however they are written.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a == b || !whole(a, b) && a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => one == other,
    }
}

/// Two integers are compared as such: as floats, neighbours beyond 2^53 would be equal.
fn whole(a: &serde_json::Number, b: &serde_json::Number) -> bool {
    !a.is_f64() && !b.is_f64()
}

fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => SCALAR + text.len(),
        Value::Array(items) => SCALAR + items.iter().map(weight).sum::<usize>(),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| SCALAR + key.len() + weight(value);
            MAPPING + map.iter().map(entry).sum::<usize>()
        }
        _ => SCALAR,
    }
}
