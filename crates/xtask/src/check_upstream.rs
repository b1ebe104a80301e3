//! Holds our description of foreign CRDs against the files that stand on real clusters.
//!
//! Everything in the description is something that a controller or a test relies on, so everything in it has to be
//! in the real CRD, and the same: a field that is missing there is pruned, a narrower enum refuses what we write, a
//! wider one means values that we never thought of. What the real CRD has beyond it does not matter, except a field
//! that it requires: without it our objects would be refused.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail};
use bench::crds::{Group, described, read_folder};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Keywords that are about the reader, or are looked at field by field.
const NOT_COMPARED: [&str; 6] = [
    "description",
    "title",
    "example",
    "properties",
    "items",
    "additionalProperties",
];

/// Compares every described kind with the CRD files in `folder` and fails when one of them differs.
pub(crate) fn run(folder: &Path) -> anyhow::Result<()> {
    let real = read_folder(folder)?;
    let mut kinds = 0;
    let mut fields = 0;
    let mut wrong = Vec::new();
    for group in Group::ALL {
        for ours in described(group)? {
            let name = ours.metadata.name.clone().unwrap_or_default();
            kinds += 1;
            match real.get(&name) {
                None => wrong.push(format!("{name}: no file in {} has it", folder.display())),
                Some(theirs) => {
                    let report = compare(&ours, theirs)?;
                    fields += report.fields;
                    wrong.extend(
                        report
                            .differences
                            .into_iter()
                            .map(|what| format!("{name}: {what}")),
                    );
                }
            }
        }
    }
    for line in &wrong {
        println!("{line}");
    }
    if wrong.is_empty() {
        println!("{kinds} kinds, {fields} fields: as in {}", folder.display());
        return Ok(());
    }
    bail!(
        "{} differences in {kinds} kinds. Look at what the controllers do with these fields, then bring tests/bench/crds \
         in line.",
        wrong.len()
    )
}

/// What one comparison came to.
#[derive(Debug, Default)]
struct Report {
    /// How many fields were looked at.
    fields: usize,
    /// One line for each difference, with the path of the field.
    differences: Vec<String>,
}

impl Report {
    fn add(&mut self, path: &str, what: impl std::fmt::Display) {
        self.differences.push(format!("{path}: {what}"));
    }

    /// Adds a line when two values of the same thing differ.
    fn same(&mut self, path: &str, what: &str, ours: &Value, theirs: &Value) {
        if ours != theirs {
            self.add(
                path,
                format_args!("{what} is {} there, {} here", shown(theirs), shown(ours)),
            );
        }
    }
}

fn shown(value: &Value) -> String {
    if value.is_null() {
        "not set".into()
    } else {
        value.to_string()
    }
}

/// Compares one description with the CRD of the same name.
fn compare(
    ours: &CustomResourceDefinition,
    theirs: &CustomResourceDefinition,
) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let ours = serde_json::to_value(ours).context("our own CRD")?;
    let theirs = serde_json::to_value(theirs).context("the real CRD")?;
    // Labels carry the versions of Cluster API's contracts.
    for (label, value) in ours["metadata"]["labels"].as_object().into_iter().flatten() {
        report.same(
            "metadata.labels",
            label,
            value,
            &theirs["metadata"]["labels"][label],
        );
    }
    let (ours, theirs) = (&ours["spec"], &theirs["spec"]);
    report.same("spec", "scope", &ours["scope"], &theirs["scope"]);
    for name in ["kind", "listKind", "plural", "singular"] {
        report.same(
            "spec.names",
            name,
            &ours["names"][name],
            &theirs["names"][name],
        );
    }
    for names in ["shortNames", "categories"] {
        for name in items(&ours["names"][names]) {
            if !items(&theirs["names"][names]).contains(name) {
                report.add("spec.names", format_args!("{names} lacks {name} there"));
            }
        }
    }
    for version in items(&ours["versions"]) {
        let name = version["name"].as_str().unwrap_or_default();
        match items(&theirs["versions"])
            .iter()
            .find(|other| other["name"] == version["name"])
        {
            None => report.add(name, "the version is missing there"),
            Some(other) => compare_version(&mut report, name, version, other),
        }
    }
    for other in items(&theirs["versions"]) {
        if other["storage"] == true
            && !items(&ours["versions"])
                .iter()
                .any(|version| version["name"] == other["name"])
        {
            report.add(
                "spec.versions",
                format_args!("{} is stored there, and not described here", other["name"]),
            );
        }
    }
    Ok(report)
}

fn compare_version(report: &mut Report, name: &str, ours: &Value, theirs: &Value) {
    for what in ["served", "storage"] {
        report.same(name, what, &ours[what], &theirs[what]);
    }
    for what in ["status", "scale"] {
        report.same(
            name,
            &format!("subresource {what}"),
            &ours["subresources"][what],
            &theirs["subresources"][what],
        );
    }
    for column in items(&ours["additionalPrinterColumns"]) {
        let there = items(&theirs["additionalPrinterColumns"]);
        let found = there.iter().find(|other| other["name"] == column["name"]);
        let what = format!("column {}", column["name"]);
        for part in ["type", "jsonPath"] {
            report.same(
                name,
                &what,
                &column[part],
                found.map_or(&Value::Null, |other| &other[part]),
            );
        }
    }
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    compare_field(report, name, &schema(ours), &schema(theirs));
}

/// Compares one field and everything that is described below it.
fn compare_field(report: &mut Report, path: &str, ours: &Value, theirs: &Value) {
    report.fields += 1;
    let none = serde_json::Map::new();
    let keywords = |schema: &Value| -> BTreeSet<String> {
        schema
            .as_object()
            .unwrap_or(&none)
            .keys()
            .filter(|key| !NOT_COMPARED.contains(&key.as_str()))
            .cloned()
            .collect()
    };
    for keyword in keywords(ours).union(&keywords(theirs)) {
        match keyword.as_str() {
            "required" => compare_required(report, path, ours, theirs),
            "enum" => compare_enum(report, path, &ours["enum"], &theirs["enum"]),
            _ => report.same(path, keyword, &ours[keyword], &theirs[keyword]),
        }
    }
    let there = theirs["properties"].as_object().unwrap_or(&none);
    for (name, field) in ours["properties"].as_object().unwrap_or(&none) {
        let path = format!("{path}.{name}");
        match there.get(name) {
            Some(other) => compare_field(report, &path, field, other),
            None if theirs["x-kubernetes-preserve-unknown-fields"] == true => {
                report.add(
                    &path,
                    "not described there; kept, since that object keeps unknown fields",
                );
            }
            None => report.add(&path, "missing there: the API server drops it"),
        }
    }
    for (keyword, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if ours[keyword].is_object() || (ours[keyword].is_null() && !theirs[keyword].is_null()) {
            compare_field(
                report,
                &format!("{path}{suffix}"),
                &ours[keyword],
                &theirs[keyword],
            );
        }
    }
}

/// A field that only they require makes our objects invalid; one that only we require makes their objects unreadable.
fn compare_required(report: &mut Report, path: &str, ours: &Value, theirs: &Value) {
    let (here, there) = (items(&ours["required"]), items(&theirs["required"]));
    for name in there.iter().filter(|name| !here.contains(name)) {
        if ours["properties"][name.as_str().unwrap_or_default()].is_null() {
            report.add(
                path,
                format_args!("{name} is required there, and not described here"),
            );
        } else {
            report.add(
                path,
                format_args!("{name} is required there, optional here"),
            );
        }
    }
    for name in here.iter().filter(|name| !there.contains(name)) {
        report.add(
            path,
            format_args!("{name} is optional there, required here"),
        );
    }
}

fn compare_enum(report: &mut Report, path: &str, ours: &Value, theirs: &Value) {
    if ours.is_null() || theirs.is_null() {
        report.same(path, "enum", ours, theirs);
        return;
    }
    for value in items(ours)
        .iter()
        .filter(|value| !items(theirs).contains(value))
    {
        report.add(path, format_args!("the value {value} is refused there"));
    }
    for value in items(theirs)
        .iter()
        .filter(|value| !items(ours).contains(value))
    {
        report.add(
            path,
            format_args!("the value {value} is allowed there, not here"),
        );
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}
