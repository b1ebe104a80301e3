//! Own CRDs keep the rules that the API server has for schemas, and what their pages promise.

#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

use api_types::metal3::BareMetalHostDiscovery;
use api_types::remediation::{Metal3Remediation, Metal3RemediationTemplate, Phase, StrategyType};
use api_types::{extensions, own_crds};
use serde_json::{Value, json};
use serde_path_to_error::deserialize as decode;

/// Mistakes against "structural" that can be seen without an API server.
fn mistakes(schema: &Value, path: &str, found: &mut Vec<String>) {
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["x-kubernetes-int-or-string"] == true;
    if schema.get("type").is_none() && !open {
        found.push(format!("{path}: no type"));
    }
    if schema.get("$ref").is_some() || schema.get("definitions").is_some() {
        found.push(format!("{path}: refers elsewhere"));
    }
    if schema["type"] == "array" && schema.get("items").is_none() {
        found.push(format!("{path}: list without items"));
    }
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_some() {
        found.push(format!("{path}: properties and additionalProperties"));
    }
    for word in ["allOf", "anyOf", "oneOf", "not"] {
        if schema.get(word).is_some() {
            found.push(format!("{path}: {word}"));
        }
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        mistakes(inner, &format!("{path}.{name}"), found);
    }
    for word in ["items", "additionalProperties"] {
        if schema[word].is_object() {
            mistakes(&schema[word], &format!("{path}.{word}"), found);
        }
    }
}

/// Properties that `kubectl explain` would show without a word.
fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if inner["description"].as_str().is_none_or(str::is_empty) {
            found.push(path.clone());
        }
        undescribed(inner, &path, found);
        undescribed(&inner["items"], &format!("{path}[]"), found);
    }
}

fn schemas() -> Vec<(String, Value)> {
    own_crds()
        .into_iter()
        .map(|(_, crd)| {
            let value = serde_json::to_value(&crd.spec.versions[0]).expect("it encodes");
            (crd.metadata.name.expect("a name"), value["schema"]["openAPIV3Schema"].clone())
        })
        .collect()
}

fn schema_of(name: &str) -> Value {
    schemas().into_iter().find(|(crd, _)| crd == name).expect("the CRD").1
}

#[test]
fn every_own_schema_is_structural() {
    for (name, schema) in schemas() {
        let mut found = Vec::new();
        mistakes(&schema, "", &mut found);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn every_extension_is_structural() {
    for extension in extensions() {
        let schema = serde_json::to_value(&extension.schema).expect("it encodes");
        let mut found = Vec::new();
        mistakes(&schema, extension.property, &mut found);
        assert!(found.is_empty(), "{}: {found:#?}", extension.crd);
    }
}

#[test]
fn every_own_field_is_described() {
    for (name, schema) in schemas() {
        let mut found = Vec::new();
        undescribed(&schema["properties"]["spec"], "spec", &mut found);
        undescribed(&schema["properties"]["status"], "status", &mut found);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn conditions_are_a_map_by_type() {
    for name in ["baremetalhostdiscoveries.metal3.io", "metal3remediations.remediation.metal3.io"] {
        let schema = schema_of(name);
        let conditions = &schema["properties"]["status"]["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-type"], "map");
        assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
    }
}

#[test]
fn remediation_kinds_carry_the_contract_labels() {
    for (controller, crd) in own_crds() {
        let labels = crd.metadata.labels.unwrap_or_default();
        let carries = labels.get("cluster.x-k8s.io/v1beta1").is_some_and(|v| v == "v1alpha1")
            && labels.get("cluster.x-k8s.io/v1beta2").is_some_and(|v| v == "v1alpha1");
        assert_eq!(carries, controller == "remediation");
    }
}

#[test]
fn a_discovery_offers_the_five_details_and_requires_one() {
    let schema = schema_of("baremetalhostdiscoveries.metal3.io");
    let template = &schema["properties"]["spec"]["properties"]["resourceNameTemplate"];
    assert_eq!(template["required"], json!(["hardwareDetails"]));
    assert_eq!(
        template["properties"]["hardwareDetails"]["enum"],
        json!(["hostname", "ip", "serial-number", "boot-mac", "provisioning-id"])
    );
    assert!(template["x-kubernetes-validations"].as_array().is_some_and(|rules| rules.len() == 4));
}

#[test]
fn a_discovery_shows_its_counts_and_why_it_is_not_ready_without_being_asked_for_more() {
    let crds = own_crds();
    let discovery = crds.iter().find(|(controller, _)| *controller == "host-discovery");
    let columns = &discovery.expect("the CRD").1.spec.versions[0].additional_printer_columns;
    let shown: Vec<_> = columns
        .iter()
        .flatten()
        .filter(|column| column.priority.unwrap_or_default() == 0)
        .map(|column| column.name.as_str())
        .collect();
    assert_eq!(
        shown,
        ["Ready", "Reason", "Known", "Created", "Pending", "Failed", "Conflicting", "Age"]
    );
}

#[test]
fn the_smallest_discovery_falls_back_to_the_boot_mac() {
    let discovery: BareMetalHostDiscovery = decode(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery", "metadata": {},
        "spec": {"resourceNameTemplate": {"hardwareDetails": "hostname"}},
    }))
    .expect("it decodes");
    let written = serde_json::to_value(discovery).expect("it encodes");
    assert_eq!(written["spec"]["fallback"], "boot-mac");
    assert_eq!(written["spec"]["approval"], "Automatic");
}

#[test]
fn a_discovery_without_details_is_refused_by_path() {
    let error = decode::<_, BareMetalHostDiscovery>(json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery", "metadata": {},
        "spec": {"resourceNameTemplate": {"hardwareDetails": "colour"}},
    }))
    .expect_err("there is no such detail");
    assert_eq!(error.path().to_string(), "spec.resourceNameTemplate.hardwareDetails");
}

#[test]
fn a_remediation_reads_the_designs_spellings() {
    let template: Metal3RemediationTemplate = decode(json!({
        "apiVersion": "remediation.metal3.io/v1alpha1", "kind": "Metal3RemediationTemplate",
        "metadata": {},
        "spec": {"template": {"spec": {"strategy":
            {"type": "Reboot", "rebootLimit": 3, "timeout": "300s"}}}},
    }))
    .expect("it decodes");
    let strategy = template.spec.template.spec.strategy.expect("a strategy");
    assert_eq!(strategy.r#type, Some(StrategyType::Reboot));
    assert_eq!(strategy.requested_retries(), Some(3));
    assert_eq!(strategy.timeout.map(Into::into), Some(std::time::Duration::from_secs(300)));
}

#[test]
fn a_remediation_of_an_unknown_type_is_still_read() {
    let remediation: Metal3Remediation = decode(json!({
        "apiVersion": "remediation.metal3.io/v1alpha1", "kind": "Metal3Remediation",
        "metadata": {}, "spec": {"strategy": {"type": "pray"}},
    }))
    .expect("it decodes");
    let strategy = remediation.spec.strategy.expect("a strategy");
    assert_eq!(strategy.r#type, Some(StrategyType::Other("pray".into())));
}

#[test]
fn phases_are_read_in_any_case_and_written_in_each_groups_own() {
    for (word, own, upstream) in [
        ("RUNNING", "running", "Running"),
        ("Deleting machine", "deleting machine", "Deleting machine"),
        ("waiting", "waiting", "Waiting"),
        ("Dancing", "Dancing", "Dancing"),
    ] {
        let phase = Phase::from(word.to_owned());
        assert_eq!(phase.as_str(), own);
        assert_eq!(phase.as_upstream_str(), upstream);
    }
}

#[test]
fn each_property_is_added_once_and_by_one_controller() {
    let mut places: Vec<_> = extensions()
        .into_iter()
        .map(|extension| (extension.crd, extension.path, extension.property))
        .collect();
    let all = places.len();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), all);
    assert_eq!(all, 5);
}
