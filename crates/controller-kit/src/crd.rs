//! Fields that a controller needs in CRDs of others: are they there, and how they are added.
//!
//! A CRD that lacks a field drops it from every object without a word, so nothing may act then.

pub mod gitops;
pub mod keep;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::api_error;
use crate::kit::Kit;

/// A CRD, or a field of it, that a controller needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Needed {
    /// Name of the CRD, such as `widgets.example.com`.
    pub crd: &'static str,
    /// Versions that will do, best first: the first that is served is the one that is looked at.
    pub versions: &'static [&'static str],
    /// The field; `None`: the CRD and version alone are needed.
    pub field: Option<Field>,
}

/// A field of a CRD's schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The object that holds it, from the root: `["status", "provisioning"]`; `[]` enters the items of a list.
    pub path: &'static [&'static str],
    /// Its name.
    pub property: &'static str,
    /// The schema it is added with.
    pub schema: Value,
    /// Whether a field of that name with another type is replaced, or left as its owner wants it.
    pub replace: bool,
    /// Whether the controller works without it.
    pub optional: bool,
}

impl Field {
    fn name(&self) -> String {
        [self.path, &[self.property]].concat().join(".")
    }

    /// Whether the schema that is there takes the values that ours takes, judged by the parts that
    /// decide what is kept: a description may differ.
    fn fits(&self, known: &Value) -> bool {
        let parts = ["type", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"];
        !self.replace || parts.iter().all(|part| known.get(part) == self.schema.get(part))
    }
}

/// What an installed CRD says about a need.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// It is there.
    Present,
    /// The field can be added: JSON patch operations that do it.
    Addable(Vec<Value>),
    /// It cannot be added, and why.
    Impossible(String),
}

/// Where a field belongs in a CRD.
struct Place<'a> {
    field: &'a Field,
    /// Holds if the version stands where it stood.
    version: Value,
    /// JSON pointer to the fields of the object that holds it.
    fields: String,
    /// The schema of that object.
    parent: &'a Value,
}

impl Place<'_> {
    /// JSON pointer to the field.
    fn path(&self) -> String {
        format!("{}/{}", self.fields, escape(self.field.property))
    }

    /// Makes the field, whether or not it is there.
    fn addition(&self) -> Value {
        let Field { property, schema, .. } = self.field;
        if self.parent["properties"].is_object() {
            json!({ "op": "add", "path": self.path(), "value": schema })
        } else {
            json!({ "op": "add", "path": self.fields, "value": { *property: schema } })
        }
    }
}

/// Where the field belongs; `None` where nothing has to be there: no field is needed, or the CRD keeps unknown ones.
fn place<'a>(crd: &'a Value, needed: &'a Needed) -> Result<Option<Place<'a>>, String> {
    let Some((index, version)) = served(crd, needed) else {
        let versions = needed.versions.join(" or ");
        return Err(format!("{} does not serve version {versions}", needed.crd));
    };
    let Some(field) = &needed.field else {
        return Ok(None);
    };
    let mut path = format!("/spec/versions/{index}/schema/openAPIV3Schema");
    let mut parent = crd.pointer(&path).unwrap_or(&Value::Null);
    for step in field.path {
        if *step == "[]" {
            path.push_str("/items");
        } else {
            let _ = write!(path, "/properties/{}", escape(step));
        }
        parent = crd.pointer(&path).ok_or_else(|| {
            let path = field.path.join(".");
            format!("{} version {version} has no field {path}", needed.crd)
        })?;
        // Everything below is kept as it is.
        if keeps_unknown(parent) && parent["properties"].is_null() {
            return Ok(None);
        }
    }
    let name = format!("/spec/versions/{index}/name");
    let version = json!({ "op": "test", "path": name, "value": version });
    Ok(Some(Place { field, version, fields: path + "/properties", parent }))
}

fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

/// Looks for what is needed in a CRD. Pure: what [`extend`] does is decided here.
pub fn look(crd: &Value, needed: &Needed) -> Found {
    let place = match place(crd, needed) {
        Ok(Some(place)) => place,
        Ok(None) => return Found::Present,
        Err(why) => return Found::Impossible(why),
    };
    match place.parent["properties"].get(place.field.property) {
        Some(known) if place.field.fits(known) => Found::Present,
        Some(known) => Found::Addable(vec![
            place.version.clone(),
            json!({ "op": "test", "path": place.path(), "value": known }),
            json!({ "op": "replace", "path": place.path(), "value": place.field.schema }),
        ]),
        None if keeps_unknown(place.parent) => Found::Present,
        None => Found::Addable(vec![place.version.clone(), place.addition()]),
    }
}

/// The version that is looked at, and its place in the CRD.
fn served(crd: &Value, needed: &Needed) -> Option<(usize, &'static str)> {
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    needed.versions.iter().find_map(|wanted| {
        let is_it = |it: &Value| it["name"] == **wanted && it["served"] == true;
        Some((versions.iter().position(is_it)?, *wanted))
    })
}

/// Whether a CRD (`None`: not installed) has what is needed. An error is a sentence that says what to do; of what the
/// controller can do without, its absence is told.
pub fn judge(
    crd: Option<&Value>,
    needed: &Needed,
    controller: &str,
) -> Result<Option<String>, String> {
    let Some(crd) = crd else {
        return Err(format!(
            "CRD {} is not installed: apply what `{controller} crds` prints if it is among that, or install the operator that owns it",
            needed.crd
        ));
    };
    match look(crd, needed) {
        Found::Present => Ok(None),
        Found::Addable(_) if needed.field.as_ref().is_some_and(|field| field.optional) => {
            Ok(Some(format!(
                "{}, and {controller} works without it. Run `{controller} extend-crd` to have it",
                missing(crd, needed)
            )))
        }
        Found::Addable(_) => Err(format!(
            "{}: run `{controller} extend-crd` as a user who may patch CRDs",
            missing(crd, needed)
        )),
        Found::Impossible(why) => {
            Err(format!("{why}: install a release of its operator that fits"))
        }
    }
}

fn missing(crd: &Value, needed: &Needed) -> String {
    let field = needed.field.as_ref().map(Field::name).unwrap_or_default();
    let version = served(crd, needed).map_or("", |(_, version)| version);
    format!("field {field} is missing in CRD {} version {version}", needed.crd)
}

/// One look at all CRDs: one sentence for each need that is not met, as an error, and for each that need not be.
pub async fn check(
    client: &Client,
    needed: &[Needed],
    controller: &str,
) -> kube::Result<Vec<Result<String, String>>> {
    let mut told = Vec::new();
    for (name, needed) in by_crd(needed) {
        let crd = api_error::unless_gone(api(client).get(name).await)?.map(|crd| crd.data);
        let judged = needed.iter().map(|it| judge(crd.as_ref(), it, controller));
        told.extend(judged.filter_map(Result::transpose));
    }
    Ok(told)
}

/// Keeps one readiness condition per CRD true to what is installed, for as long as it is polled, which never ends.
/// While one fails nothing acts.
pub async fn keep_checking(kit: &Kit, needed: &[Needed]) -> Infallible {
    for_each(by_crd(needed), |name, needed| keep_checking_one(kit, name, needed)).await
}

/// Goes on for each CRD with what is needed of it, for as long as it is polled.
async fn for_each<'a, F: Future<Output = ()>>(
    needed: BTreeMap<&'static str, Vec<&'a Needed>>,
    go_on: impl Fn(&'static str, Vec<&'a Needed>) -> F,
) -> Infallible {
    join_all(needed.into_iter().map(|(name, needed)| go_on(name, needed))).await;
    std::future::pending().await
}

/// Names the conditions of [`keep_checking`], so that they gate from the start.
pub fn require(kit: &Kit, needed: &[Needed]) {
    for name in by_crd(needed).into_keys() {
        kit.readiness.require(&condition(name), "not looked at yet");
    }
}

async fn keep_checking_one(kit: &Kit, name: &str, needed: Vec<&Needed>) {
    let condition = condition(name);
    let (mut looks, mut known) = (watch(&kit.client, name), false);
    while let Some(look) = looks.next().await {
        let lacking: Vec<String> = match look {
            Ok(crd) => {
                known = true;
                let crd = crd.map(|crd| crd.data);
                let lacks = |it: &&Needed| judge(crd.as_ref(), it, kit.config.controller).err();
                needed.iter().filter_map(lacks).collect()
            }
            Err(_) if known => continue,
            Err(error) => {
                vec![format!("CRD {name} cannot be read: {}", api_error::explain_watch(&error))]
            }
        };
        if lacking.is_empty() {
            kit.readiness.ready(&condition);
        } else {
            kit.readiness.not_ready(&condition, &lacking.join("; "));
        }
    }
}

/// Adds what is missing, and nothing else. Returns what was done, or would be, one line each.
pub async fn extend(
    client: &Client,
    needed: &[Needed],
    dry_run: bool,
) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    for (name, needed) in fields(needed) {
        done.extend(extend_one(client, name, &needed, dry_run).await?);
    }
    Ok(done)
}

async fn extend_one(
    client: &Client,
    name: &str,
    needed: &[&Needed],
    dry_run: bool,
) -> Result<Vec<String>, String> {
    let mut attempts = 0;
    loop {
        let crd = read(client, name).await?;
        let (mut operations, lines) = additions(&crd.data, needed.iter().copied())?;
        if operations.is_empty() {
            return Ok(vec![format!("CRD {name}: nothing to add")]);
        }
        if dry_run {
            return Ok(lines);
        }
        let (at, version) = ("/metadata/resourceVersion", crd.resource_version());
        operations.insert(0, json!({ "op": "test", "path": at, "value": version }));
        let patch = serde_json::from_value(json!(operations)).map_err(|it| it.to_string())?;
        let patch = Patch::Json::<()>(patch);
        match api(client).patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => return Ok(lines),
            // Somebody changed the CRD in between: decide again on what is there now.
            Err(kube::Error::Api(status)) if attempts < 5 && matches!(status.code, 409 | 422) => {
                attempts += 1;
            }
            Err(error) => return Err(format!("CRD {name}: {}", api_error::explain(&error))),
        }
    }
}

/// The operations that add what this CRD lacks, and the difference as text.
pub fn additions<'a>(
    crd: &Value,
    needed: impl Iterator<Item = &'a Needed>,
) -> Result<(Vec<Value>, Vec<String>), String> {
    let (mut operations, mut lines) = (Vec::new(), Vec::new());
    for needed in needed {
        match look(crd, needed) {
            Found::Present => {}
            Found::Impossible(why) => return Err(why),
            Found::Addable(steps) => {
                for step in &steps {
                    let sign = match step["op"].as_str() {
                        Some("test") if step["value"].is_object() => '-',
                        Some("test") | None => continue,
                        Some(_) => '+',
                    };
                    let path = step["path"].as_str().unwrap_or_default();
                    lines.push(format!("{sign} {} {path}: {}", needed.crd, step["value"]));
                }
                operations.extend(steps);
            }
        }
    }
    Ok((operations, lines))
}

fn api(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

async fn read(client: &Client, name: &str) -> Result<DynamicObject, String> {
    let read = api(client).get(name).await;
    read.map_err(|error| format!("CRD {name}: {}", api_error::explain(&error)))
}

/// Gives the CRD whenever it appears or changes, and nothing when there is none.
fn watch(
    client: &Client,
    name: &str,
) -> BoxStream<'static, watcher::Result<Option<DynamicObject>>> {
    watch_object(api(client), name).default_backoff().boxed()
}

/// What is needed of each CRD.
fn by_crd<'a>(
    needed: impl IntoIterator<Item = &'a Needed>,
) -> BTreeMap<&'static str, Vec<&'a Needed>> {
    let mut all: BTreeMap<&str, Vec<&Needed>> = BTreeMap::new();
    for needed in needed {
        all.entry(needed.crd).or_default().push(needed);
    }
    all
}

/// The same of what can be added.
fn fields(needed: &[Needed]) -> BTreeMap<&'static str, Vec<&Needed>> {
    by_crd(needed.iter().filter(|needed| needed.field.is_some()))
}

fn condition(name: &str) -> String {
    format!("crd/{name}")
}

fn escape(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
