//! A foreign object that is decoded and encoded again is the same, whatever it holds beside the
//! fields that we know; and a mistake in it is named by its path.

#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

use api_types::capi::{Cluster, KubeadmControlPlane, Machine, MachineDeployment, MachineSet};
use api_types::capm3::{
    Metal3Data, Metal3DataClaim, Metal3Machine, Metal3MachineTemplate, UpstreamRemediation,
};
use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool,
};
use api_types::metal3::BareMetalHost;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::deserialize as decode;

type Reread = fn(Value) -> Value;
type ErrorOf = fn(Value) -> String;

fn reread<K: DeserializeOwned + Serialize>(value: Value) -> Value {
    serde_json::to_value(decode::<_, K>(value).expect("the sample decodes")).expect("it encodes")
}

fn reference() -> Value {
    json!({"apiVersion": "g.example/v1", "apiGroup": "g.example", "kind": "K", "name": "n",
           "namespace": "ns", "uid": "u"})
}

fn named() -> Value {
    json!({"name": "n", "namespace": "ns"})
}

fn conditions() -> Value {
    json!([{"type": "Ready", "status": "False", "reason": "Why", "message": "because",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 3,
            "severity": "Warning", "lastProbeTime": "2026-01-02T03:04:06Z"}])
}

fn contract_status(fields: &Value) -> Value {
    let mut status = json!({
        "conditions": conditions(),
        "v1beta2": {"conditions": conditions()},
        "deprecated": {"v1beta1": {"conditions": conditions(), "failureReason": "x"}},
    });
    let target = status.as_object_mut().expect("an object");
    target.extend(fields.as_object().expect("fields").clone());
    status
}

fn host() -> Value {
    let image = json!({"url": "http://i.example/i", "checksum": "c", "checksumType": "sha256",
                       "format": "raw", "ociAuthSecretName": "s"});
    json!({
        "spec": {
            "online": true, "consumerRef": reference(), "bootMACAddress": "52:54:00:00:00:01",
            "bmc": {"address": "redfish://b.example", "credentialsName": "c",
                    "disableCertificateVerification": true},
            "bootMode": "UEFI", "image": image, "customDeploy": {"method": "m"},
            "userData": named(), "metaData": named(), "networkData": named(),
            "automatedCleaningMode": "disabled", "externallyProvisioned": true,
            "disablePowerOff": true, "inspectionMode": "agent", "architecture": "x86_64",
            "description": "d", "rootDeviceHints": {"minSizeGigabytes": 40},
        },
        "status": {
            "poweredOn": true, "operationalStatus": "OK", "errorType": "power management error",
            "errorMessage": "m", "errorCount": 2, "provisioningFailCount": 0,
            "provisioning": {"state": "provisioned", "ID": "id", "image": image,
                             "customDeploy": {"method": "m"}, "bootMode": "UEFI",
                             "lastPoweredOn": "2026-01-02T03:04:05Z",
                             "pendingRebootSince": "2026-01-02T03:04:04Z"},
            "hardware": {"hostname": "h", "ramMebibytes": 4096,
                         "cpu": {"clockMegahertz": 2400.5, "flags": ["a"]},
                         "nics": [{"name": "eno1", "mac": "52:54:00:00:00:01", "ip": "192.0.2.1",
                                   "speedGbps": 10}]},
            "conditions": conditions(), "lastUpdated": "2026-01-02T03:04:05Z",
            "operationHistory": {"register": {"start": "2026-01-02T03:04:05Z", "end": null}},
        },
    })
}

fn machine_spec() -> Value {
    json!({"clusterName": "c", "bootstrap": {"configRef": reference(), "dataSecretName": "s"},
           "infrastructureRef": reference(), "providerID": "metal3://a/b/c",
           "failureDomain": "f", "version": "v1.36.3"})
}

fn metal3_machine_spec() -> Value {
    json!({
        "providerID": "metal3://a/b/c",
        "image": {"url": "http://i.example/i", "checksum": "c", "checksumType": "sha256",
                  "diskFormat": "raw", "format": "raw"},
        "customDeploy": {"method": "m"},
        "userData": named(), "metaData": named(), "networkData": named(),
        "hostSelector": {"matchLabels": {"a": "b"}, "matchExpressions":
                         [{"key": "k", "operator": "in", "values": ["v"]}]},
        "dataTemplate": reference(), "automatedCleaningMode": "disabled", "failureDomain": "f",
    })
}

fn samples() -> Vec<(&'static str, Reread, Value)> {
    let owner = json!({"clusterName": "c", "replicas": 3, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": machine_spec()}});
    let owner_status = contract_status(&json!({"replicas": 3, "observedGeneration": 1}));
    vec![
        ("BareMetalHost", reread::<BareMetalHost>, host()),
        (
            "Machine",
            reread::<Machine>,
            json!({"spec": machine_spec(), "status": contract_status(&json!({
                "nodeRef": reference(), "phase": "Running",
                "initialization": {"infrastructureProvisioned": true}}))}),
        ),
        ("MachineSet", reread::<MachineSet>, json!({"spec": owner, "status": owner_status})),
        (
            "MachineDeployment",
            reread::<MachineDeployment>,
            json!({"spec": owner, "status": owner_status}),
        ),
        (
            "KubeadmControlPlane",
            reread::<KubeadmControlPlane>,
            json!({"spec": {"replicas": 3, "version": "v1.36.3", "machineTemplate": {
                "infrastructureRef": reference(), "spec": {"infrastructureRef": reference()}}},
                "status": owner_status}),
        ),
        (
            "Cluster",
            reread::<Cluster>,
            json!({"spec": {"paused": true, "infrastructureRef": reference(),
                            "controlPlaneRef": reference()},
                   "status": contract_status(&json!({"infrastructureReady": true, "phase": "x",
                       "initialization": {"infrastructureProvisioned": true,
                                          "controlPlaneInitialized": false}}))}),
        ),
        (
            "Metal3Machine",
            reread::<Metal3Machine>,
            json!({"spec": metal3_machine_spec(), "status": contract_status(&json!({
                "ready": true, "initialization": {"provisioned": true}, "failureDomain": "f",
                "addresses": [{"type": "Hostname", "address": "h"}], "userData": named(),
                "metaData": named(), "networkData": named(), "renderedData": reference(),
                "lastUpdated": "2026-01-02T03:04:05Z"}))}),
        ),
        (
            "Metal3MachineTemplate",
            reread::<Metal3MachineTemplate>,
            json!({"spec": {"nodeReuse": true, "template": {"spec": metal3_machine_spec()}}}),
        ),
        (
            "Metal3DataClaim",
            reread::<Metal3DataClaim>,
            json!({"spec": {"template": reference()},
                   "status": {"renderedData": reference(), "errorMessage": "m"}}),
        ),
        (
            "Metal3Data",
            reread::<Metal3Data>,
            json!({"spec": {"metaData": named(), "networkData": named(), "index": 4},
                   "status": {"ready": true, "errorMessage": "m"}}),
        ),
        (
            "Metal3Remediation",
            reread::<UpstreamRemediation>,
            json!({"spec": {"strategy": {"type": "Reboot", "retryLimit": 1, "timeout": "5m0s",
                                         "timeoutSeconds": 300}},
                   "status": {"phase": "Running", "retryCount": 1, "lastRemediated": "2026-01-02T03:04:05Z"}}),
        ),
        (
            "ClusterPool",
            reread::<ClusterPool>,
            json!({"spec": {"platform": {"none": {}}, "baseDomain": "d.example", "size": 2,
                    "imageSetRef": named(), "runningCount": 1, "maxSize": 3, "maxConcurrent": 1,
                    "pullSecretRef": named(), "installConfigSecretTemplateRef": named(),
                    "customizationRef": named(), "labels": {"a": "b"}, "annotations": {"a": "b"},
                    "hibernateAfter": "1h", "claimLifetime": {"default": "1h", "maximum": "2h"},
                    "hibernationConfig": {"resumeTimeout": "3m"}, "installAttemptsLimit": 2,
                    "skipMachinePools": true, "installerEnv": [{"name": "A", "value": "b"}],
                    "inventory": {"ClusterDeploymentCustomizations": [{"name": "a"}],
                                  "clusterDeploymentCustomizations": [{"name": "b"}]}},
                   "status": {"size": 1, "ready": 1, "standby": 0, "conditions": conditions(),
                    "inventory": {"a": {"version": "1", "status": "Broken by cloud",
                        "attempts": 0, "clusterDeploymentRef": named(), "lastFailure":
                        {"clusterDeployment": "c", "reason": "r", "message": "m",
                         "time": "2026-01-02T03:04:05Z"}}}}}),
        ),
        (
            "ClusterPool with a list",
            reread::<ClusterPool>,
            json!({"spec": {"platform": {}, "baseDomain": "d", "imageSetRef": named(), "size": 0,
                "inventory": [{"kind": "ClusterDeploymentCustomization", "name": "a"}]}}),
        ),
        (
            "ClusterDeployment",
            reread::<ClusterDeployment>,
            json!({"spec": {"clusterName": "c", "baseDomain": "d", "platform": {"none": {}},
                    "installed": true, "provisioning": {"installConfigSecretRef": named(),
                        "imageSetRef": named(), "customizationRef": named(),
                        "installerEnv": [{"name": "A"}], "manifestsSecretRef": named()},
                    "clusterPoolRef": {"namespace": "n", "poolName": "p", "claimName": "c",
                        "claimedTimestamp": "2026-01-02T03:04:05Z",
                        "clusterDeploymentCustomization": named(),
                        "clusterDeploymentCustomizationRef": named()},
                    "pullSecretRef": named(), "powerState": "Running", "hibernateAfter": "1h",
                    "installAttemptsLimit": 1, "preserveOnDelete": true},
                   "status": {"powerState": "Running", "conditions": conditions(),
                    "installStartedTimestamp": "2026-01-02T03:04:05Z",
                    "installedTimestamp": "2026-01-02T03:04:05Z", "apiURL": "u"}}),
        ),
        (
            "ClusterClaim",
            reread::<ClusterClaim>,
            json!({"spec": {"clusterPoolName": "p", "namespace": "n", "lifetime": "1h",
                            "subjects": [{"kind": "User", "name": "u"}]},
                   "status": {"conditions": conditions(), "lifetime": "1h"}}),
        ),
        (
            "ClusterDeploymentCustomization",
            reread::<ClusterDeploymentCustomization>,
            json!({"spec": {"installConfigPatches": [{"op": "replace", "path": "/a", "from": "/b",
                            "value": "c", "valueJSON": "1"}],
                            "installerManifestPatches": [{"manifestSelector": {"glob": "*"}}]},
                   "status": {"clusterDeploymentRef": named(), "clusterPoolRef": named(),
                              "lastAppliedConfiguration": "{}", "conditions": conditions()}}),
        ),
    ]
}

fn with_head(mut body: Value, kind: &str) -> Value {
    let object = body.as_object_mut().expect("an object");
    object.insert("apiVersion".into(), json!("group.example/v1beta2"));
    object.insert("kind".into(), json!(kind));
    object.insert("metadata".into(), json!({"name": "n", "namespace": "ns", "uid": "u"}));
    body
}

/// Puts a field of a name that nobody has chosen into every object below `value`, except where
/// Kubernetes' own type or a map of strings stands.
fn add_unknown(value: &mut Value, extra: &Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|inner| add_unknown(inner, extra)),
        Value::Object(object) => {
            for (key, inner) in object.iter_mut() {
                match (key.as_str(), inner) {
                    ("matchLabels" | "labels" | "annotations" | "metadata", _) => {}
                    // A map by name: its values are open, the map itself is not.
                    ("inventory", Value::Object(entries)) if entries.contains_key("a") => {
                        entries.values_mut().for_each(|entry| add_unknown(entry, extra));
                    }
                    (_, inner) => add_unknown(inner, extra),
                }
            }
            object.insert("xUnknown".into(), extra.clone());
        }
        _ => {}
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1.0e9..1.0e9).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

#[test]
fn known_fields_come_back_unchanged() {
    for (kind, reread, body) in samples() {
        let object = with_head(body, kind);
        assert_eq!(reread(object.clone()), object, "{kind}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn unknown_fields_at_every_level_come_back_unchanged(extra in any_json()) {
        for (kind, reread, body) in samples() {
            let mut object = with_head(body, kind);
            add_unknown(&mut object, &extra);
            prop_assert_eq!(reread(object.clone()), object, "{}", kind);
        }
    }
}

#[test]
fn an_unknown_word_is_kept_and_does_not_stop_decoding() {
    let mut object = with_head(host(), "BareMetalHost");
    object["status"]["provisioning"]["state"] = json!("polishing");
    object["status"]["operationalStatus"] = json!("fine");
    object["status"]["errorType"] = json!("polish error");
    assert_eq!(reread::<BareMetalHost>(object.clone()), object);
}

#[test]
fn a_malformed_field_is_named_by_its_path() {
    let cases: [(&str, &str, ErrorOf); 6] = [
        ("/spec/online", "spec.online: ", error_of::<BareMetalHost>),
        (
            "/status/provisioning/lastPoweredOn",
            "status.provisioning.lastPoweredOn: ",
            error_of::<BareMetalHost>,
        ),
        ("/status/conditions/0/status", "status.conditions[0].status: ", error_of::<Machine>),
        ("/spec/imageSetRef/name", "spec.imageSetRef.name: ", error_of::<ClusterPool>),
        (
            "/spec/installConfigPatches/0/path",
            "spec.installConfigPatches[0].path: ",
            error_of::<ClusterDeploymentCustomization>,
        ),
        ("/spec/baseDomain", "spec.baseDomain: ", error_of::<ClusterPool>),
    ];
    let samples = samples();
    for (pointer, expected, error_of) in cases {
        let body = samples
            .iter()
            .map(|(_, _, body)| body)
            .find(|body| body.pointer(pointer).is_some())
            .expect("a sample has the field");
        let mut object = with_head(body.clone(), "K");
        *object.pointer_mut(pointer).expect("the field") = json!(7);
        let text = error_of(object);
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains('7'), "it shows what was there: {text}");
    }
}

fn error_of<K: DeserializeOwned + std::fmt::Debug>(value: Value) -> String {
    decode::<_, K>(value).expect_err("it is malformed").to_string()
}

#[test]
fn an_object_without_spec_and_status_can_be_read() {
    let object = with_head(json!({}), "BareMetalHost");
    let host: BareMetalHost = decode(object).expect("it decodes");
    assert_eq!(host.status, None);
    assert!(!host.power_operations_supported());
}
