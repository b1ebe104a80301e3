//! Holds our description of foreign CRDs against the files that stand on real clusters.
//!
//! Everything in the description is something that a controller or a test relies on, so everything in it has to be
//! in the real CRD, and the same: a field that is missing there is pruned, a narrower enum refuses what we write, a
//! wider one means values that we never thought of. What the real CRD has beyond it does not matter, except what it says
//! of a field that we describe: one that it requires without our knowledge makes it refuse our objects.

use std::path::Path;

use anyhow::{Context, bail};
use bench::crds::{Group, described, read_folder};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use serde_json::Value;

/// Keywords that are about the reader.
const PROSE: [&str; 3] = ["description", "title", "example"];
/// What a schema stands in, of which a place says nothing.
const AROUND: [&str; 3] = ["schema", SCHEMA, FIELDS];
const SCHEMA: &str = "openAPIV3Schema";
const FIELDS: &str = "properties";

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
        "{} differences in {kinds} kinds. The API server drops a field that is not set there, and refuses such a value of an \
         enum. Look at what the controllers do with these fields, then bring tests/bench/crds in line.",
        wrong.len()
    )
}

/// What one comparison came to.
#[derive(Debug, Default)]
struct Report {
    /// How many fields were looked at.
    fields: usize,
    /// One line for each difference, with its place.
    differences: Vec<String>,
}

/// Compares one description with the CRD of the same name.
fn compare(
    ours: &CustomResourceDefinition,
    theirs: &CustomResourceDefinition,
) -> anyhow::Result<Report> {
    let ours = named(&serde_json::to_value(ours).context("our own CRD")?, "");
    let theirs = named(&serde_json::to_value(theirs).context("the real CRD")?, "");
    let mut report = Report::default();
    report.compare(&[], &ours, &theirs);
    let versions = theirs["spec"]["versions"].as_object().into_iter().flatten();
    for (name, version) in versions {
        if version["storage"] == true && ours["spec"]["versions"][name].is_null() {
            let line = format!("spec.versions.{name}: stored there, and not described here");
            report.differences.push(line);
        }
    }
    Ok(report)
}

/// Without prose, and with each item of a list found by its name, which for a plain one is the item itself: the order of
/// versions, columns, required fields and values of an enum says nothing.
fn named(value: &Value, below: &str) -> Value {
    match value {
        Value::Object(fields) => {
            // A field may have such a name.
            let is_prose = |key: &str| below != FIELDS && PROSE.contains(&key);
            let fields = fields.iter().filter(|(key, _)| !is_prose(key));
            fields.map(|(key, value)| (key.clone(), named(value, key))).collect()
        }
        Value::Array(items) => {
            let name = |it: &Value| it["name"].as_str().or(it.as_str()).map(str::to_owned);
            let name = |it: &Value| name(it).unwrap_or_else(|| it.to_string());
            items.iter().map(|it| (name(it), named(it, ""))).collect()
        }
        plain => plain.clone(),
    }
}

impl Report {
    /// Compares what stands at a place, and all that is described below it.
    fn compare(&mut self, place: &[&str], ours: &Value, theirs: &Value) {
        let (Some(here), Some(there)) = (ours.as_object(), theirs.as_object()) else {
            if ours != theirs {
                let place = shown(place);
                let (here, there) = (word(ours), word(theirs));
                self.differences.push(format!("{place}: {there} there, {here} here"));
            }
            return;
        };
        let beyond = there.keys().filter(|key| !is_open(place) && !here.contains_key(*key));
        for key in here.keys().chain(beyond) {
            self.fields += usize::from(place.last() == Some(&FIELDS));
            self.compare(&[place, &[key.as_str()]].concat(), &ours[key], &theirs[key]);
        }
    }
}

/// Whether more may stand there than is described: around a schema, and among its fields. What is said of a field we have to
/// know, and how the API server treats its status.
fn is_open(place: &[&str]) -> bool {
    let is_last = |name| place.last() == Some(&name);
    is_last(FIELDS) || !place.contains(&SCHEMA) && !is_last("subresources")
}

fn shown(place: &[&str]) -> String {
    place.iter().copied().filter(|it| !AROUND.contains(it)).collect::<Vec<_>>().join(".")
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        Value::Object(it) => format!("{:?}", it.keys().collect::<Vec<_>>()),
        plain => plain.to_string(),
    }
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
                            "title": {"type": "string"},
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
        let seen = differences(|crd| {
            crd["metadata"]["labels"]["more"] = json!("v2");
            crd["spec"]["names"]["shortNames"] = json!(["lamp", "l"]);
            crd["spec"]["versions"][0]["additionalPrinterColumns"][0]["priority"] = json!(1);
        });
        assert_eq!(seen, Vec::<String>::new());
    }

    #[test]
    fn a_field_that_the_real_crd_drops_is_named() {
        let seen = in_schema(|fields| {
            fields["status"]["properties"] = json!({});
        });
        assert_eq!(seen, ["spec.versions.v1.status.lit: not set there, [\"type\"] here"]);
    }

    #[test]
    fn another_type_is_named_at_every_depth() {
        let seen = in_schema(|fields| {
            fields["spec"]["properties"]["on"]["type"] = json!("string");
            fields["spec"]["properties"]["times"]["items"]["type"] = json!("integer");
            fields["spec"]["properties"]["title"]["type"] = json!("integer");
            fields["spec"]["properties"]["labels"]["additionalProperties"]["type"] =
                json!("integer");
        });
        assert_eq!(
            seen,
            [
                r#"spec.versions.v1.spec.labels.additionalProperties.type: "integer" there, "string" here"#,
                r#"spec.versions.v1.spec.on.type: "string" there, "boolean" here"#,
                r#"spec.versions.v1.spec.times.items.type: "integer" there, "string" here"#,
                r#"spec.versions.v1.spec.title.type: "integer" there, "string" here"#,
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
            [
                "spec.versions.v1.status.x-kubernetes-preserve-unknown-fields: true there, not set here"
            ]
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
                r#"spec.versions.v1.spec.colour.enum.green: not set there, "green" here"#,
                r#"spec.versions.v1.spec.colour.enum.blue: "blue" there, not set here"#,
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
                r#"spec.versions.v1.spec.required.on: not set there, "on" here"#,
                r#"spec.versions.v1.spec.required.colour: "colour" there, not set here"#,
                r#"spec.versions.v1.spec.required.watts: "watts" there, not set here"#,
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
            [r#"spec.versions.v1.spec.times.x-kubernetes-list-type: "atomic" there, "set" here"#]
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
                r#"metadata.labels.contract: not set there, "v1" here"#,
                r#"spec.versions.v1.additionalPrinterColumns.On: not set there, ["jsonPath", "name", "type"] here"#,
                "spec.versions.v1.subresources.status: not set there, [] here",
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
                "spec.versions.v1.storage: false there, true here",
                "spec.versions.v2: stored there, and not described here",
            ]
        );
        let seen = differences(|crd| crd["spec"]["versions"][0]["name"] = json!("v2"));
        assert!(seen[0].starts_with("spec.versions.v1: not set there, ["), "{}", seen[0]);
    }
}
