//! Every field that a type of ours names is in the foreign CRD under that name, and of a type that it can read: a
//! misspelt one would stay empty for ever, and nobody would notice.
//!
//! With `FERRITE_CRDS=<folder>` this is asked of the real files.

use std::collections::BTreeSet;
use std::fmt::Debug;

use api_types::capm3::{
    Metal3Data, Metal3DataClaim, Metal3Machine, Metal3MachineTemplate, UpstreamRemediation,
};
use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool,
};
use api_types::metal3::BareMetalHost;
use bench::crds::{Group, files};
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A value with every field that the schema has.
fn filled(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|all| all.iter().find(|v| **v != "")) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let properties = schema["properties"].as_object();
            let mut object: Map<String, Value> = properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), filled(schema)))
                .collect();
            if schema["additionalProperties"].is_object() {
                object.insert("any".to_owned(), filled(&schema["additionalProperties"]));
            }
            object.into()
        }
        Some("array") => json!([filled(&schema["items"])]),
        Some("boolean") => json!(true),
        Some("string") if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
        // Read as a duration by some, as text by others.
        Some("string") => json!("1h0m0s"),
        // A number, an integer or a string, or anything at all.
        _ => json!(1),
    }
}

/// Fields of our types by `Type.field`.
#[derive(Default)]
struct Fields {
    filled: BTreeSet<String>,
    empty: BTreeSet<String>,
}

/// Adds what is to be seen of a value that was printed with `{:#?}`.
fn look(printed: &str, fields: &mut Fields) {
    let mut inside: Vec<&str> = Vec::new();
    for line in printed.lines() {
        let text = line.trim().trim_end_matches(',');
        let depth = (line.len() - line.trim_start().len()) / 4;
        inside.truncate(depth);
        let (name, value) = text.split_once(": ").unwrap_or(("", text));
        inside.resize(depth, "");
        // What a type leaves alone is nobody's mistake.
        let known =
            !inside.contains(&"other") && name != "other" && !inside.contains(&"ObjectMeta");
        let owner = inside.iter().rev().find(|it| it.starts_with(char::is_uppercase));
        if let Some(owner) = owner.filter(|_| known && !name.is_empty()) {
            let empty = ["None", "[]", "{}", "\"\""].contains(&value);
            let list = if empty { &mut fields.empty } else { &mut fields.filled };
            list.insert(format!("{owner}.{name}"));
        }
        let opened = value.strip_suffix(['{', '(', '[']).map(str::trim);
        match opened {
            _ if name == "other" => inside.push("other"),
            Some(word) if !word.is_empty() => inside.push(word),
            _ => inside.push(""),
        }
    }
}

/// Reads what each version of a CRD can hold into a type.
fn read<K: DeserializeOwned + Debug>(crd: &str, fields: &mut Fields) {
    let group = match crd.split_once('.').unwrap().1 {
        "metal3.io" => Group::Metal3,
        "hive.openshift.io" => Group::Hive,
        _ => Group::Capm3,
    };
    let found = files(group).unwrap().into_iter().find(|it| it.name_any() == crd);
    let found = serde_json::to_value(found.expect(crd)).unwrap();
    let group = found["spec"]["group"].as_str().unwrap();
    for version in found["spec"]["versions"].as_array().unwrap() {
        let mut object = filled(&version["schema"]["openAPIV3Schema"]);
        let name = version["name"].as_str().unwrap();
        object["apiVersion"] = json!(format!("{group}/{name}"));
        object["kind"] = found["spec"]["names"]["kind"].clone();
        object["metadata"] = json!({"name": "a", "namespace": "b"});
        let object: K =
            serde_json::from_value(object).unwrap_or_else(|error| panic!("{crd} {name}: {error}"));
        look(&format!("{object:#?}"), fields);
    }
}

#[test]
fn every_field_that_our_types_name_is_in_the_foreign_crd() {
    let mut seen = Fields::default();
    let fields = &mut seen;
    read::<BareMetalHost>("baremetalhosts.metal3.io", fields);
    read::<Metal3Data>("metal3datas.infrastructure.cluster.x-k8s.io", fields);
    read::<Metal3DataClaim>("metal3dataclaims.infrastructure.cluster.x-k8s.io", fields);
    read::<Metal3Machine>("metal3machines.infrastructure.cluster.x-k8s.io", fields);
    read::<Metal3MachineTemplate>("metal3machinetemplates.infrastructure.cluster.x-k8s.io", fields);
    read::<UpstreamRemediation>("metal3remediations.infrastructure.cluster.x-k8s.io", fields);
    read::<ClusterClaim>("clusterclaims.hive.openshift.io", fields);
    read::<ClusterDeployment>("clusterdeployments.hive.openshift.io", fields);
    read::<ClusterDeploymentCustomization>(
        "clusterdeploymentcustomizations.hive.openshift.io",
        fields,
    );
    read::<ClusterPool>("clusterpools.hive.openshift.io", fields);
    // A type that several kinds and versions share has the fields of all.
    let nowhere: BTreeSet<&str> = seen.empty.difference(&seen.filled).map(String::as_str).collect();
    let known = BTreeSet::from([
        // Another spelling, which only clusters with an extended CRD keep.
        "ClusterPoolRef.cluster_deployment_customization_ref",
        // Cluster API's contract has it; the provider's CRD does not, so it is read where somebody added it.
        "Metal3MachineStatus.failure_domain",
        // Cluster API's own kinds have it, and are not described here.
        "ObjectRef.api_group",
    ]);
    // What `extend-crd` adds is in no stock CRD.
    let ours: BTreeSet<String> =
        api_types::extensions().into_iter().map(|it| snake(it.property)).collect();
    let added = |field: &str| field.rsplit('.').next().is_some_and(|name| ours.contains(name));
    let wrong: Vec<_> =
        nowhere.iter().filter(|field| !known.contains(*field) && !added(field)).collect();
    assert!(wrong.is_empty(), "no version of any CRD has {wrong:#?}");
    let there: Vec<_> = known.difference(&nowhere).collect();
    assert!(there.is_empty(), "no longer an exception: {there:?}");
    // A name that is in no CRD is noticed.
    assert!(nowhere.iter().any(|field| added(field)), "{nowhere:?}");
}

fn snake(name: &str) -> String {
    name.chars().fold(String::new(), |mut text, letter| {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
        text
    })
}
