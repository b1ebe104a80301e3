//! What people and releases do beside it: a host is taken out of use by hand, the controller is upgraded, and reboots go by
//! the plain key.

use std::time::Duration;

use remediation::config::Policy;
use serde_json::{Value, json};

use super::abort::{MOMENTS, bring, let_go};
use super::ground::{planes, quick, start};
use super::scene::{REMEDIATION, Scene, history, keys, reboot};

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
        super::operator::boot(&scene.workload, &scene.node_of(&name)).await;
        scene.says(&name, "Recovered").await;
        let clean = |it: Option<&Value>| it.unwrap()["metadata"]["finalizers"].is_null();
        scene.until(REMEDIATION, &name, "without finalizer", clean).await;
        scene.is_clean(&name, &host).await;
        let tries = history(&scene.get_host(&host).await);
        assert_eq!(tries.len(), 1, "{moment:?}: {tries:?}");
    }
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
}
