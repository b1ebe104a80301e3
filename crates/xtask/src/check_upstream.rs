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
use kube::ResourceExt;
use serde_json::Value;

/// Keywords that are about the reader, or are looked at field by field.
const NOT_COMPARED: [&str; 6] =
    ["description", "title", "example", "properties", "items", "additionalProperties"];

/// Compares every described kind with the CRD files in `folder` and fails when one of them differs.
pub(crate) fn run(folder: &Path) -> anyhow::Result<()> {
    let real = read_folder(folder)?;
    let mut kinds = 0;
    let mut fields = 0;
    let mut wrong = Vec::new();
    for group in Group::ALL {
        for ours in described(group)? {
            let name = ours.name_any();
            kinds += 1;
            let Some(theirs) = real.get(&name) else {
                wrong.push(format!("{name}: no file in {} has it", folder.display()));
                continue;
            };
            let report = compare(&ours, theirs)?;
            fields += report.fields;
            wrong.extend(report.differences.iter().map(|what| format!("{name}: {what}")));
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
            self.add(path, format_args!("{what} is {} there, {} here", shown(theirs), shown(ours)));
        }
    }
}

fn shown(value: &Value) -> String {
    if value.is_null() { "not set".into() } else { value.to_string() }
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
    for (label, value) in fields(&ours["metadata"]["labels"]) {
        report.same("metadata.labels", label, value, &theirs["metadata"]["labels"][label]);
    }
    let (ours, theirs) = (&ours["spec"], &theirs["spec"]);
    report.same("spec", "scope", &ours["scope"], &theirs["scope"]);
    for name in ["kind", "listKind", "plural", "singular"] {
        report.same("spec.names", name, &ours["names"][name], &theirs["names"][name]);
    }
    for names in ["shortNames", "categories"] {
        for name in beyond(&ours["names"][names], &theirs["names"][names]) {
            report.add("spec.names", format_args!("{names} lacks {name} there"));
        }
    }
    for version in items(&ours["versions"]) {
        let name = version["name"].as_str().unwrap_or_default();
        match of_name(&theirs["versions"], &version["name"]) {
            None => report.add(name, "the version is missing there"),
            Some(other) => compare_version(&mut report, name, version, other),
        }
    }
    for other in items(&theirs["versions"]).iter().filter(|it| it["storage"] == true) {
        let name = &other["name"];
        if of_name(&ours["versions"], name).is_none() {
            let what = format_args!("{name} is stored there, and not described here");
            report.add("spec.versions", what);
        }
    }
    Ok(report)
}

fn compare_version(report: &mut Report, name: &str, ours: &Value, theirs: &Value) {
    for what in ["served", "storage"] {
        report.same(name, what, &ours[what], &theirs[what]);
    }
    for what in ["status", "scale"] {
        let subresource = |version: &Value| version["subresources"][what].clone();
        let shown = format!("subresource {what}");
        report.same(name, &shown, &subresource(ours), &subresource(theirs));
    }
    for column in items(&ours["additionalPrinterColumns"]) {
        let found = of_name(&theirs["additionalPrinterColumns"], &column["name"]);
        let other = found.unwrap_or(&Value::Null);
        for part in ["type", "jsonPath"] {
            let what = format!("column {}'s {part}", column["name"]);
            report.same(name, &what, &column[part], &other[part]);
        }
    }
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    compare_field(report, name, &schema(ours), &schema(theirs));
}

/// Compares one field and everything that is described below it.
fn compare_field(report: &mut Report, path: &str, ours: &Value, theirs: &Value) {
    report.fields += 1;
    let keywords = |schema| fields(schema).map(|(key, _)| key.as_str());
    let keywords: BTreeSet<&str> = keywords(ours).chain(keywords(theirs)).collect();
    for keyword in keywords.into_iter().filter(|it| !NOT_COMPARED.contains(it)) {
        match keyword {
            "required" => compare_required(report, path, ours, theirs),
            "enum" => compare_enum(report, path, &ours["enum"], &theirs["enum"]),
            _ => report.same(path, keyword, &ours[keyword], &theirs[keyword]),
        }
    }
    for (name, field) in fields(&ours["properties"]) {
        let path = format!("{path}.{name}");
        match theirs["properties"].get(name) {
            Some(other) => compare_field(report, &path, field, other),
            None if theirs["x-kubernetes-preserve-unknown-fields"] == true => {
                let what = "not described there; kept, since that object keeps unknown fields";
                report.add(&path, what);
            }
            None => report.add(&path, "missing there: the API server drops it"),
        }
    }
    for (keyword, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if ours[keyword].is_object() || (ours[keyword].is_null() && !theirs[keyword].is_null()) {
            compare_field(report, &format!("{path}{suffix}"), &ours[keyword], &theirs[keyword]);
        }
    }
}

/// A field that only they require makes our objects invalid; one that only we require makes their objects unreadable.
fn compare_required(report: &mut Report, path: &str, ours: &Value, theirs: &Value) {
    let (here, there) = (&ours["required"], &theirs["required"]);
    for name in beyond(there, here) {
        let field = &ours["properties"][name.as_str().unwrap_or_default()];
        let how = if field.is_null() { "and not described here" } else { "optional here" };
        report.add(path, format_args!("{name} is required there, {how}"));
    }
    for name in beyond(here, there) {
        report.add(path, format_args!("{name} is optional there, required here"));
    }
}

fn compare_enum(report: &mut Report, path: &str, ours: &Value, theirs: &Value) {
    if ours.is_null() || theirs.is_null() {
        report.same(path, "enum", ours, theirs);
        return;
    }
    for value in beyond(ours, theirs) {
        report.add(path, format_args!("the value {value} is refused there"));
    }
    for value in beyond(theirs, ours) {
        report.add(path, format_args!("the value {value} is allowed there, not here"));
    }
}

/// What a list has and the other one has not.
fn beyond<'a>(list: &'a Value, other: &'a Value) -> impl Iterator<Item = &'a Value> {
    items(list).iter().filter(|it| !items(other).contains(it))
}

fn of_name<'a>(list: &'a Value, name: &Value) -> Option<&'a Value> {
    items(list).iter().find(|it| it["name"] == *name)
}

fn fields(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn crd() -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "lamps.example.org", "labels": {"contract": "v1"}},
            "spec": {
                "group": "example.org",
                "scope": "Namespaced",
                "names": {"kind": "Lamp", "plural": "lamps", "shortNames": ["l"]},
                "versions": [{
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [{"name": "On", "type": "boolean", "jsonPath": ".spec.on"}],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "required": ["on"], "properties": {
                            "on": {"type": "boolean", "description": "Whether it is lit."},
                            "colour": {"type": "string", "enum": ["red", "green"]},
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                            "times": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                        }},
                        "status": {"type": "object", "properties": {"lit": {"type": "boolean"}}},
                    }}},
                }],
            },
        })
    }

    /// The differences after `change` to the real CRD.
    fn differences(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut theirs = crd();
        change(&mut theirs);
        let parse = |value| serde_json::from_value(value).unwrap();
        compare(&parse(crd()), &parse(theirs)).unwrap().differences
    }

    /// The same, for a change below the schema's `properties`.
    fn in_schema(change: impl FnOnce(&mut Value)) -> Vec<String> {
        differences(|crd| {
            change(&mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]);
        })
    }

    #[test]
    fn fields_and_prose_beyond_ours_do_not_matter() {
        let seen = in_schema(|fields| {
            fields["spec"]["properties"]["on"]["description"] = json!("other words");
            fields["spec"]["properties"]["watts"] = json!({"type": "integer"});
        });
        assert_eq!(seen, Vec::<String>::new());
    }

    #[test]
    fn a_field_that_the_real_crd_drops_is_named() {
        let seen = in_schema(|fields| {
            fields["status"]["properties"] = json!({});
        });
        assert_eq!(seen, ["v1.status.lit: missing there: the API server drops it"]);
    }

    #[test]
    fn another_type_is_named_at_every_depth() {
        let seen = in_schema(|fields| {
            fields["spec"]["properties"]["on"]["type"] = json!("string");
            fields["spec"]["properties"]["times"]["items"]["type"] = json!("integer");
            fields["spec"]["properties"]["labels"]["additionalProperties"]["type"] =
                json!("integer");
        });
        assert_eq!(
            seen,
            [
                r#"v1.spec.labels{}: type is "integer" there, "string" here"#,
                r#"v1.spec.on: type is "string" there, "boolean" here"#,
                r#"v1.spec.times[]: type is "integer" there, "string" here"#,
            ]
        );
    }

    #[test]
    fn other_pruning_is_named() {
        let seen = in_schema(|fields| {
            fields["status"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
        });
        assert_eq!(
            seen,
            ["v1.status: x-kubernetes-preserve-unknown-fields is true there, not set here"]
        );
    }

    #[test]
    fn an_enum_is_named_in_both_directions() {
        let seen = in_schema(|fields| {
            fields["spec"]["properties"]["colour"]["enum"] = json!(["red", "blue"]);
        });
        assert_eq!(
            seen,
            [
                r#"v1.spec.colour: the value "green" is refused there"#,
                r#"v1.spec.colour: the value "blue" is allowed there, not here"#,
            ]
        );
    }

    #[test]
    fn a_requirement_is_named_in_both_directions() {
        let seen = in_schema(|fields| {
            fields["spec"]["required"] = json!(["colour", "watts"]);
        });
        assert_eq!(
            seen,
            [
                r#"v1.spec: "colour" is required there, optional here"#,
                r#"v1.spec: "watts" is required there, and not described here"#,
                r#"v1.spec: "on" is optional there, required here"#,
            ]
        );
    }

    #[test]
    fn another_list_type_is_named() {
        let seen = in_schema(|fields| {
            fields["spec"]["properties"]["times"]["x-kubernetes-list-type"] = json!("atomic");
        });
        assert_eq!(
            seen,
            [r#"v1.spec.times: x-kubernetes-list-type is "atomic" there, "set" here"#]
        );
    }

    #[test]
    fn a_missing_subresource_a_column_and_a_label_are_named() {
        let seen = differences(|crd| {
            crd["spec"]["versions"][0]["subresources"] = json!({});
            crd["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
            crd["metadata"]["labels"] = json!({});
        });
        assert_eq!(
            seen,
            [
                r#"metadata.labels: contract is not set there, "v1" here"#,
                "v1: subresource status is not set there, {} here",
                r#"v1: column "On"'s type is not set there, "boolean" here"#,
                r#"v1: column "On"'s jsonPath is not set there, ".spec.on" here"#,
            ]
        );
    }

    #[test]
    fn another_stored_version_is_named() {
        let seen = differences(|crd| {
            let mut newer = crd["spec"]["versions"][0].clone();
            newer["name"] = json!("v2");
            crd["spec"]["versions"][0]["storage"] = json!(false);
            crd["spec"]["versions"].as_array_mut().unwrap().push(newer);
        });
        assert_eq!(
            seen,
            [
                "v1: storage is false there, true here",
                r#"spec.versions: "v2" is stored there, and not described here"#,
            ]
        );
        let seen = differences(|crd| crd["spec"]["versions"][0]["name"] = json!("v2"));
        assert_eq!(seen[0], "v1: the version is missing there");
    }
}
