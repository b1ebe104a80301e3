//! Beside Metal3's own operator, where somebody built it (docs/testing.md says how), with a real Ironic and a machine of its own.

use std::time::{Duration, Instant};

use bench::bmc::{Behaviour, Machine};
use bench::bmo;
use bench::cluster_api::objects::METAL3_MACHINE;
use kube::ResourceExt;
use kube::api::{DynamicObject, PostParams};
use remediation::settings::Policy;
use serde_json::{Value, json};

use super::ground::{planes, start};
use super::operator::boot;
use super::scene::{Scene, history, is_tainted, keys, reboot};
use crate::operator;

/// A host that the operator adopts with a machine that runs already.
async fn adopted(scene: &Scene, machine: &Machine, metal: &DynamicObject) {
    let address = format!("redfish+{}{}", machine.address(), machine.system_path());
    let host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {"name": "h", "annotations": {"inspect.metal3.io": "disabled"}},
        "spec": {
            "online": true, "externallyProvisioned": true, "bootMACAddress": "52:54:00:00:00:02",
            "bmc": {
                "address": address, "credentialsName": "bmc",
                "disableCertificateVerification": true,
            },
            "consumerRef": {
                "apiVersion": METAL3_MACHINE.api_version, "kind": METAL3_MACHINE.kind,
                "name": metal.name_any(), "namespace": scene.namespace,
            },
        },
    });
    let api = bmo::api(&scene.client, &scene.namespace);
    api.create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the bare metal operator's program: see docs/testing.md"]
async fn beside_the_real_operator_a_host_that_lost_its_power_is_fenced_within_a_minute() {
    let management = &planes().await.management;
    let namespace = management.namespace("stock").await;
    let scene = Scene::at(management.admin().await, &namespace, &namespace).await;
    scene.prepare().await;
    let ironic = bench::ironic::shared().await;
    let machine = bench::bmc::spare().await.unwrap();
    let program = operator::start(management, &namespace, &ironic.endpoint).await;
    operator::credentials(&scene.client, &namespace).await;
    let metal = scene.machine_without_host("m", "h", true).await;
    adopted(&scene, &machine, &metal).await;
    let read = async || scene.get_host("h").await;
    let is_on = |host: &Value| {
        host["status"]["provisioning"]["state"] == "externally provisioned"
            && host["status"]["poweredOn"] == true
    };
    let host = operator::wait(&program, "adopted and on", read, is_on).await;

    // Its board is dead, and its BMC lives: it is off, and does not come on. Ironic reads a BMC so seldom here that it has to be told.
    machine.behave(&Behaviour { ignores: vec!["On"], ..Behaviour::default() }).await.unwrap();
    let node = host["status"]["provisioning"]["ID"].as_str().unwrap();
    ironic.power(node, "power off", None).await.unwrap();
    operator::wait(&program, "seen off", read, |host| host["status"]["poweredOn"] == false).await;
    let (_running, _) = start(management, &namespace, Policy::default()).await;
    scene.request("m", reboot(0, "300s")).await;
    let began = Instant::now();
    let is_fenced = |host: &Value| history(host).first().is_some_and(|it| it["off"].is_string());
    let host = operator::wait(&program, "fenced", read, is_fenced).await;
    println!("fenced {:?} after the request", began.elapsed());
    assert!(keys(&host).is_empty(), "it is held no longer: {host:#}");
    assert!(is_tainted(&scene.node("m").await.unwrap()), "what ran there is moved away");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());

    // The board is replaced.
    machine.behave(&Behaviour::default()).await.unwrap();
    operator::wait(&program, "on again", read, is_on).await;
    boot(&scene.workload, &scene.node_of("m")).await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
}
