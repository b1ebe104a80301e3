//! How a write is told in one line: when, and which fields changed from what to what.

use std::time::Duration;

use kube::api::DynamicObject;
use serde_json::{Map, Value};

/// More changed fields than these are only counted.
const SHOWN: usize = 4;
/// Longer values are cut.
const LENGTH: usize = 48;

/// Time since the beginning, as wide as every other.
pub(crate) fn moment(after: Duration) -> String {
    format!("{:>7.3}s", after.as_secs_f64())
}

/// The fields that differ, without those that every write moves.
pub(crate) fn changes(before: &DynamicObject, after: &DynamicObject) -> Vec<String> {
    let mut found = Vec::new();
    let (before, after) = (told(before), told(after));
    compare("", &before, &after, &mut found);
    if found.len() > SHOWN {
        let more = found.len() - SHOWN;
        found.truncate(SHOWN);
        found.push(format!("and {more} more"));
    }
    if found.is_empty() {
        found.push("nothing that anybody reads".to_owned());
    }
    found
}

fn told(object: &DynamicObject) -> Value {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    object.metadata.resource_version = None;
    object.metadata.generation = None;
    serde_json::to_value(object).unwrap_or_default()
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let path = match path {
                    "" | "metadata" | "annotations" => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                let none = Value::Null;
                compare(
                    &path,
                    old.get(name).unwrap_or(&none),
                    new.get(name).unwrap_or(&none),
                    found,
                );
            }
        }
        // The first annotation is told like every later one.
        (Value::Null, Value::Object(_)) => compare(path, &Value::Object(Map::new()), after, found),
        (Value::Object(_), Value::Null) => compare(path, before, &Value::Object(Map::new()), found),
        _ if before == after => {}
        _ => found.push(format!("{path} {} -> {}", short(before), short(after))),
    }
}

fn short(value: &Value) -> String {
    let text = match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.chars().count() <= LENGTH {
        return text;
    }
    let cut: String = text.chars().take(LENGTH).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(version: &str, annotation: Option<&str>) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "resourceVersion": version, "annotations": {"holder": annotation}},
        }))
        .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_changed_annotation_is_told_with_its_old_and_new_value() {
        let told = changes(&object("1", Some("x")), &object("2", Some("y")));
        assert_eq!(told, ["holder x -> y"]);
    }

    #[test]
    fn a_write_that_moved_only_the_version_is_told_as_such() {
        let told = changes(&object("1", Some("x")), &object("2", Some("x")));
        assert_eq!(told, ["nothing that anybody reads"]);
    }
}
