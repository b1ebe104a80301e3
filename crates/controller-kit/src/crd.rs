//! Fields that a controller needs in CRDs of others: are they there, and how they are added.
//!
//! A CRD that lacks a field drops it from every object without a word, so nothing may act then.

pub mod gitops;
pub mod keep;

use std::fmt::Write as _;

use futures_util::StreamExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
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

impl Needed {
    fn is_optional(&self) -> bool {
        self.field.as_ref().is_some_and(|field| field.optional)
    }
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
        let mut name = self.path.join(".");
        if !name.is_empty() {
            name.push('.');
        }
        name + self.property
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
struct Place {
    /// Index and name of the version.
    index: usize,
    version: &'static str,
    /// JSON pointer to the schema of the object that holds it.
    parent: String,
}

impl Place {
    fn version_name(&self) -> String {
        format!("/spec/versions/{}/name", self.index)
    }

    fn properties(&self) -> String {
        format!("{}/properties", self.parent)
    }

    fn of(&self, field: &Field) -> String {
        format!("{}/properties/{}", self.parent, escape(field.property))
    }
}

/// Where the field belongs; `None` where nothing has to be there: no field is needed, or the CRD keeps unknown ones.
fn place(crd: &Value, needed: &Needed) -> Result<Option<Place>, String> {
    let Some((index, version)) = served(crd, needed) else {
        let versions = needed.versions.join(" or ");
        return Err(format!("{} does not serve version {versions}", needed.crd));
    };
    let Some(field) = &needed.field else {
        return Ok(None);
    };
    let mut parent = format!("/spec/versions/{index}/schema/openAPIV3Schema");
    for step in field.path {
        if *step == "[]" {
            parent.push_str("/items");
        } else {
            let _ = write!(parent, "/properties/{}", escape(step));
        }
        match crd.pointer(&parent) {
            // Everything below is kept as it is.
            Some(schema)
                if schema["x-kubernetes-preserve-unknown-fields"] == true
                    && schema["properties"].is_null() =>
            {
                return Ok(None);
            }
            Some(_) => {}
            None => {
                let path = field.path.join(".");
                return Err(format!("{} version {version} has no field {path}", needed.crd));
            }
        }
    }
    Ok(Some(Place { index, version, parent }))
}

/// Looks for what is needed in a CRD. Pure: what [`extend`] does is decided here.
pub fn look(crd: &Value, needed: &Needed) -> Found {
    let place = match place(crd, needed) {
        Ok(Some(place)) => place,
        Ok(None) => return Found::Present,
        Err(why) => return Found::Impossible(why),
    };
    let Some(field) = &needed.field else {
        return Found::Present;
    };
    let parent = crd.pointer(&place.parent).unwrap_or(&Value::Null);
    let target = place.of(field);
    let version = json!({ "op": "test", "path": place.version_name(), "value": place.version });
    match parent["properties"].get(field.property) {
        Some(known) if field.fits(known) => Found::Present,
        Some(known) => Found::Addable(vec![
            version,
            json!({ "op": "test", "path": target, "value": known }),
            json!({ "op": "replace", "path": target, "value": field.schema }),
        ]),
        None if parent["x-kubernetes-preserve-unknown-fields"] == true => Found::Present,
        None if parent["properties"].is_object() => Found::Addable(vec![
            version,
            json!({ "op": "add", "path": target, "value": field.schema }),
        ]),
        None => Found::Addable(vec![
            version,
            json!({ "op": "add", "path": place.properties(), "value": { field.property: field.schema } }),
        ]),
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

/// What is missing of `needed` in its CRD (`None`: not installed), as a sentence that says what to do.
pub fn lacking(crd: Option<&Value>, needed: &Needed, controller: &str) -> Option<String> {
    let Some(crd) = crd else {
        return Some(format!(
            "CRD {} is not installed: apply what `{controller} crds` prints if it is among that, or install the operator that owns it",
            needed.crd
        ));
    };
    match look(crd, needed) {
        Found::Present => None,
        Found::Addable(_) if needed.is_optional() => None,
        Found::Addable(_) => Some(format!(
            "{}: run `{controller} extend-crd` as a user who may patch CRDs",
            missing(crd, needed)
        )),
        Found::Impossible(why) => {
            Some(format!("{why}: install a release of its operator that fits"))
        }
    }
}

fn missing(crd: &Value, needed: &Needed) -> String {
    let field = needed.field.as_ref().map(Field::name).unwrap_or_default();
    let version = served(crd, needed).map_or("", |(_, version)| version);
    format!("field {field} is missing in CRD {} version {version}", needed.crd)
}

/// What an installed CRD lacks of what the controller can do without, as a sentence.
pub fn spared(crd: Option<&Value>, needed: &Needed, controller: &str) -> Option<String> {
    let crd = crd.filter(|_| needed.is_optional())?;
    let addable = matches!(look(crd, needed), Found::Addable(_));
    addable.then(|| {
        let missing = missing(crd, needed);
        format!(
            "{missing}, and {controller} works without it. Run `{controller} extend-crd` to have it"
        )
    })
}

/// One look at all CRDs: one sentence for each need that is not met, and one for each that need not be.
pub async fn check(
    client: &Client,
    needed: &[Needed],
    controller: &str,
) -> Result<(Vec<String>, Vec<String>), kube::Error> {
    let (mut unmet, mut without) = (Vec::new(), Vec::new());
    for name in names(needed) {
        let crd = api_error::unless_gone(api(client).get(name).await)?.map(|crd| crd.data);
        for needed in needed.iter().filter(|needed| needed.crd == name) {
            unmet.extend(lacking(crd.as_ref(), needed, controller));
            without.extend(spared(crd.as_ref(), needed, controller));
        }
    }
    Ok((unmet, without))
}

/// Keeps one readiness condition per CRD true to what is installed, for as long as it is polled, which never ends.
/// While one fails nothing acts.
pub async fn keep_checking(kit: &Kit, needed: &[Needed]) -> std::convert::Infallible {
    let watches = names(needed).into_iter().map(|name| {
        let of_this: Vec<&Needed> = needed.iter().filter(|needed| needed.crd == name).collect();
        watch_one(kit, name, of_this)
    });
    futures_util::future::join_all(watches).await;
    std::future::pending().await
}

/// Names the conditions of [`keep_checking`], so that they gate from the start.
pub fn require(kit: &Kit, needed: &[Needed]) {
    for name in names(needed) {
        kit.readiness.require(&condition(name), "not looked at yet");
    }
}

async fn watch_one(kit: &Kit, name: &str, needed: Vec<&Needed>) {
    let condition = condition(name);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher(api(&kit.client), config).default_backoff().boxed();
    let judge = |crd: Option<&Value>| {
        let lacking: Vec<String> = needed
            .iter()
            .filter_map(|needed| lacking(crd, needed, kit.config.controller))
            .collect();
        if lacking.is_empty() {
            kit.readiness.ready(&condition);
        } else {
            kit.readiness.not_ready(&condition, &lacking.join("; "));
        }
    };
    let mut known = false;
    let mut listed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => known = false,
            Ok(watcher::Event::Apply(crd) | watcher::Event::InitApply(crd)) => {
                known = true;
                judge(Some(&crd.data));
            }
            Ok(watcher::Event::InitDone) => {
                listed = true;
                if !known {
                    judge(None);
                }
            }
            Ok(watcher::Event::Delete(_)) => judge(None),
            Err(error) if !listed => {
                let problem = api_error::explain_watch(&error);
                kit.readiness
                    .not_ready(&condition, &format!("CRD {name} cannot be read: {problem}"));
            }
            Err(_) => {}
        }
    }
}

/// Adds what is missing, and nothing else. Returns what was done, or would be, one line each.
pub async fn extend(
    client: &Client,
    needed: &[Needed],
    dry_run: bool,
) -> Result<Vec<String>, String> {
    let fields = || needed.iter().filter(|it| it.field.is_some());
    let mut done = Vec::new();
    for name in names(fields()) {
        let api = api(client);
        let mut attempts = 0;
        loop {
            let crd = api
                .get(name)
                .await
                .map_err(|error| format!("CRD {name}: {}", api_error::explain(&error)))?;
            let of_this = fields().filter(|needed| needed.crd == name);
            let (operations, lines) = additions(&crd.data, of_this)?;
            if operations.is_empty() {
                done.push(format!("CRD {name}: nothing to add"));
                break;
            }
            if dry_run {
                done.extend(lines);
                break;
            }
            let mut patch = vec![json!({
                "op": "test", "path": "/metadata/resourceVersion", "value": crd.resource_version(),
            })];
            patch.extend(operations);
            let patch =
                serde_json::from_value(Value::Array(patch)).map_err(|error| error.to_string())?;
            let written: Result<DynamicObject, _> =
                api.patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await;
            match written {
                Ok(_) => {
                    done.extend(lines);
                    break;
                }
                // Somebody changed the CRD in between: decide again on what is there now.
                Err(kube::Error::Api(status))
                    if attempts < 5 && matches!(status.code, 409 | 422) =>
                {
                    attempts += 1;
                }
                Err(error) => return Err(format!("CRD {name}: {}", api_error::explain(&error))),
            }
        }
    }
    Ok(done)
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
                    lines.push(format!(
                        "{sign} {} {}: {}",
                        needed.crd,
                        step["path"].as_str().unwrap_or_default(),
                        step["value"]
                    ));
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

fn names<'a>(needed: impl IntoIterator<Item = &'a Needed>) -> Vec<&'static str> {
    let mut names: Vec<&str> = needed.into_iter().map(|needed| needed.crd).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn condition(name: &str) -> String {
    format!("crd/{name}")
}

fn escape(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
