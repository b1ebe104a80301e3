//! What people and releases do beside it: a host is taken out of use by hand, the controller is upgraded or takes CAPM3's
//! place, and reboots go by the plain key.

use std::time::Duration;

use bench::cluster_api::objects::MACHINE;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use remediation::settings::Policy;
use serde_json::{Value, json};

use super::abort::{MOMENTS, bring, let_go};
use super::ground::{planes, quick, start};
use super::operator::boot;
use super::scene::{REMEDIATION, Scene, UPSTREAM, history, is_tainted, keys, reboot};

const MARK: &str = "capi.metal3.io/unhealthy";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_a_person_took_out_of_use_keeps_the_persons_mark_however_a_remediation_ends() {
    let scene = Scene::new("by-hand").await;
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    let by_hand = json!({"metadata": {"annotations": {MARK: "fan is loud, alice"}}});
    scene.machine("m", "h").await;
    scene.patch_host("h", by_hand.clone()).await;
    scene.request("m", reboot(0, "300s")).await;
    scene.says("m", "Recovered").await;
    let host = scene.get_host("h").await;
    assert_eq!(host["metadata"]["annotations"][MARK], "fan is loud, alice");
    assert!(host["metadata"]["annotations"]["capm3.metal3.io/unhealthy"].is_null(), "not by us");
    scene.machine("n", "lost").await;
    scene.patch_host("lost", by_hand).await;
    scene.operator().kill("lost");
    scene.request("n", reboot(0, "2s")).await;
    scene.says("n", "Exhausted").await;
    let host = scene.get_host("lost").await;
    assert_eq!(host["metadata"]["annotations"][MARK], "fan is loud, alice");
    assert_eq!(host["metadata"]["annotations"]["capm3.metal3.io/unhealthy"], "capm3/UnhealthyNode");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_upgraded_in_the_middle_of_a_try_ends_that_try_and_begins_no_other() {
    let scene = Scene::new("upgraded").await;
    let plane = &planes().await.management;
    let policy = Policy { fence: Duration::from_secs(20), ..quick() };
    for moment in MOMENTS {
        let name = format!("m-{moment:?}").to_lowercase();
        let host = format!("h-{moment:?}").to_lowercase();
        scene.machine(&name, &host).await;
        let (old, _) = start(plane, &scene.namespace, policy.clone()).await;
        bring(&scene, &name, &host, moment).await;
        drop(old);
        // What happens while nobody is there is found.
        let_go(&scene, &host).await;
        let _new = start(plane, &scene.namespace, policy.clone()).await;
        let recovering = |it: Option<&Value>| {
            let step = it.map(|it| it["status"]["step"].clone()).unwrap_or_default();
            ["recover", "done"].contains(&step.as_str().unwrap_or_default())
        };
        scene.until(REMEDIATION, &name, "recovering", recovering).await;
        boot(&scene.workload, &scene.node_of(&name)).await;
        scene.says(&name, "Recovered").await;
        let clean = |it: Option<&Value>| it.unwrap()["metadata"]["finalizers"].is_null();
        scene.until(REMEDIATION, &name, "without finalizer", clean).await;
        scene.is_clean(&name, &host).await;
        let tries = history(&scene.get_host(&host).await);
        assert_eq!(tries.len(), 1, "{moment:?}: {tries:?}");
    }
}

/// A request of which CAPM3 has had the host off, and that waits for its node. Gives the key that CAPM3 holds the host by.
async fn left_waiting(scene: &Scene, machine: &str) -> String {
    let strategy = json!({"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 300});
    let request = scene.request_of(UPSTREAM, machine, strategy).await;
    let finalizer = "metal3remediation.infrastructure.cluster.x-k8s.io";
    scene.patch(UPSTREAM, machine, json!({"metadata": {"finalizers": [finalizer]}})).await;
    let begun = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({"status": {"phase": "Waiting", "lastRemediated": begun}});
    scene.patch_status(UPSTREAM, machine, status).await;
    format!("reboot.metal3.io/metal3-remediation-{}", request.uid().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_capm3_had_begun_is_begun_afresh_unless_its_node_is_ready_and_its_taint_goes() {
    let scene = Scene::new("taken-over").await;
    // CAPM3 still holds the first host off, its node has CAPM3's taint; the second came back meanwhile.
    scene.machine("m", "h").await;
    let key = left_waiting(&scene, "m").await;
    scene.patch_host("h", json!({"metadata": {"annotations": {key: r#"{"mode":"hard"}"#}}})).await;
    scene.host_is("h", "off", |host| host["status"]["poweredOn"] == false).await;
    let nodes: Api<Node> = Api::all(scene.workload.clone());
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
    let taint = Patch::Merge(json!({"spec": {"taints": [taint]}}));
    nodes.patch(&scene.node_of("m"), &PatchParams::default(), &taint).await.unwrap();
    assert!(is_tainted(&scene.node("m").await.unwrap()));
    scene.machine("n", "i").await;
    left_waiting(&scene, "n").await;
    boot(&scene.workload, &scene.node_of("n")).await;
    let unhealthy = json!({
        "type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode", "message": "",
        "lastTransitionTime": Timestamp::now().to_string(),
    });
    scene.patch_status(MACHINE, "n", json!({"status": {"conditions": [unhealthy]}})).await;
    let policy = Policy { upstream_group: true, ..quick() };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    let done = |it: Option<&Value>| {
        let it = it.unwrap();
        it["status"]["phase"] == "Waiting" && it["metadata"]["finalizers"].is_null()
    };
    scene.until(UPSTREAM, "m", "recovered", done).await;
    scene.is_clean("m", "h").await;
    let seen = scene.get_host("h").await;
    assert_eq!(seen["status"]["poweredOn"], true);
    let tries = history(&seen);
    assert_eq!((tries.len(), &tries[0]["result"]), (1, &json!("Recovered")), "{tries:?}");
    let left_alone = |it: Option<&Value>| {
        let annotations = &it.unwrap()["metadata"]["annotations"];
        let standing = annotations["ferrite.metal3.io/remediation-standing"].as_str();
        standing.is_some_and(|it| it.contains("NodeReady"))
    };
    scene.until(UPSTREAM, "n", "left alone", left_alone).await;
    scene.delete(UPSTREAM, "n").await;
    scene.gone(UPSTREAM, "n").await;
    assert!(history(&scene.get_host("i").await).is_empty(), "it was never taken away");
    scene.is_clean("n", "i").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_capm3_left_at_failed_is_carried_out_once_its_host_is_to_be_on_again() {
    let scene = Scene::new("left-failed").await;
    scene.machine("m", "h").await;
    scene.patch_host("h", json!({"spec": {"online": false}})).await;
    left_waiting(&scene, "m").await;
    scene.patch_status(UPSTREAM, "m", json!({"status": {"phase": "Failed"}})).await;
    let power_off = Duration::from_secs(10);
    let policy = Policy { upstream_group: true, power_off, ..quick() };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    let refused = |it: Option<&Value>| {
        let it = it.unwrap();
        let standing =
            it["metadata"]["annotations"]["ferrite.metal3.io/remediation-standing"].as_str();
        standing.is_some_and(|it| it.contains("HostOffline"))
    };
    let request = scene.until(UPSTREAM, "m", "refused", refused).await;
    assert_eq!(request["status"]["phase"], "Failed", "it stays what it was");
    scene.patch_host("h", json!({"spec": {"online": true}})).await;
    let done = |it: Option<&Value>| {
        let it = it.unwrap();
        it["status"]["phase"] == "Waiting" && it["metadata"]["finalizers"].is_null()
    };
    scene.until(UPSTREAM, "m", "recovered", done).await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!((tries.len(), &tries[0]["result"]), (1, &json!("Recovered")), "{tries:?}");
    scene.is_clean("m", "h").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_plain_key_a_host_is_rebooted_once_and_nothing_is_done_about_its_node() {
    let scene = Scene::new("plain").await;
    let policy = Policy { plain: true, ..quick() };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    scene.machine("m", "h").await;
    scene.operator().stick("h");
    scene.request("m", reboot(1, "300s")).await;
    let host = scene.host_is("h", "asked to reboot", |host| !keys(host).is_empty()).await;
    assert_eq!(keys(&host), ["reboot.metal3.io"]);
    let value: Value =
        serde_json::from_str(host["metadata"]["annotations"]["reboot.metal3.io"].as_str().unwrap())
            .unwrap();
    assert_eq!(value["mode"], "hard");
    let_go(&scene, "h").await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!(tries.len(), 1, "{tries:?}");
    assert_eq!(tries[0]["fenced"], "the node was left alone");
    // One that is withdrawn takes its own key away, and nobody else's.
    scene.machine("n", "other").await;
    scene.operator().stick("other");
    scene.request("n", reboot(1, "300s")).await;
    scene.host_is("other", "asked to reboot", |host| !keys(host).is_empty()).await;
    scene.delete(REMEDIATION, "n").await;
    scene.host_is("other", "free", |host| keys(host).is_empty()).await;
    scene.gone(REMEDIATION, "n").await;
    // So does one that was taken away by force, while nothing could be done about it.
    scene.machine("o", "forced").await;
    scene.operator().stick("forced");
    scene.request("o", reboot(1, "300s")).await;
    scene.host_is("forced", "asked to reboot", |host| !keys(host).is_empty()).await;
    let pause = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    scene.patch(MACHINE, "o", pause).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.delete(REMEDIATION, "o").await;
    scene.patch(REMEDIATION, "o", json!({"metadata": {"finalizers": null}})).await;
    scene.gone(REMEDIATION, "o").await;
    scene.host_is("forced", "free", |host| keys(host).is_empty()).await;
}
