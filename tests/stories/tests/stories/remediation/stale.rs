//! What a host said of its power before it was asked is no news: a machine may run behind it.

use std::time::Duration;

use bench::bmo;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use remediation::settings::Policy;
use serde_json::{Value, json};

use super::abort::let_go;
use super::ground::{planes, quick, start};
use super::scene::{Scene, history, keys, reboot};

/// The host's power as its status has it, whatever it does.
async fn shown(scene: &Scene, host: &str, status: &Value) {
    let hosts = bmo::api(&scene.client, &scene.namespace);
    let status = Patch::Merge(json!({ "status": status }));
    hosts.patch_status(host, &PatchParams::default(), &status).await.unwrap();
}

/// A machine that runs, and whose host says that it is off since somebody looked long ago.
async fn said_to_be_off(scene: &Scene, machine: &str, host: &str) {
    scene.operator().stick(host);
    scene.machine(machine, host).await;
    let long_ago = json!({"poweredOn": false, "lastUpdated": "2026-01-01T00:00:00Z"});
    shown(scene, host, &long_ago).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_said_to_be_off_before_it_was_asked_is_not_taken_for_off() {
    let scene = Scene::new("stale").await;
    let (power_off, power_on) = (Duration::from_secs(10), Duration::from_secs(30));
    let policy = Policy { power_off, power_on, stale: Duration::from_secs(2), ..quick() };
    said_to_be_off(&scene, "m", "h").await;
    said_to_be_off(&scene, "n", "seen").await;
    let node = scene.node("m").await.unwrap().resource_version();
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    for machine in ["m", "n"] {
        scene.request(machine, reboot(0, "300s")).await;
    }
    // Of one somebody looks, and sees that it runs: its next "off" is news.
    scene.host_is("seen", "held", |it| !keys(it).is_empty()).await;
    shown(&scene, "seen", &json!({"poweredOn": true})).await;
    scene.host_is("seen", "known to have been on", |it| history(it)[0]["wasOn"] == true).await;
    let_go(&scene, "seen").await;
    scene.says("n", "Recovered").await;
    scene.is_clean("n", "seen").await;
    // Of the other nobody looks: what runs there is not called gone, and nothing is done to its node. It may come back.
    scene.host_is("h", "let go", |it| keys(it).is_empty() && !history(it).is_empty()).await;
    scene.says("m", "Exhausted").await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!((tries.len(), tries[0]["wasOn"] == true), (1, false), "{tries:?}");
    assert!(tries[0]["off"].is_null() && tries[0]["released"].is_string(), "{tries:?}");
    let fenced = tries[0]["fenced"].as_str().unwrap_or_default();
    assert!(fenced.contains("nobody read the host's power"), "{tries:?}");
    let why = tries[0]["cause"].as_str().unwrap_or_default();
    assert!(why.contains("not on in time"), "{tries:?}");
    assert_eq!(scene.node("m").await.unwrap().resource_version(), node, "nobody wrote to it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_off_when_it_is_asked_comes_back_although_nobody_writes_down_its_power() {
    let scene = Scene::new("unread").await;
    let (power_off, stale) = (Duration::from_secs(10), Duration::from_secs(2));
    let policy = Policy { power_off, stale, ..quick() };
    said_to_be_off(&scene, "m", "h").await;
    // Another client's reboot is still to come: nothing of ours can be beside our key, whose removal would tell.
    let theirs = json!({"metadata": {"annotations": {"reboot.metal3.io": ""}}});
    let hosts = bmo::api(&scene.client, &scene.namespace);
    hosts.patch("h", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    scene.request("m", reboot(0, "300s")).await;
    let is_held = |it: &Value| keys(it).iter().any(|key| key != "reboot.metal3.io");
    scene.host_is("h", "held", is_held).await;
    // From now on the operator looks: off is as it should be, so it writes nothing before the key is gone.
    let_go(&scene, "h").await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!((tries.len(), &tries[0]["result"]), (1, &json!("Recovered")), "{tries:?}");
    assert!(tries[0]["off"].is_null(), "{tries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_off_when_it_is_asked_is_fenced_when_the_operator_has_read_that_it_is() {
    let scene = Scene::new("read").await;
    // No time runs out: that the operator takes the plain key away is all that is ever said of its power.
    let long = Duration::from_secs(3600);
    let policy = Policy { power_off: long, stale: long, ..quick() };
    said_to_be_off(&scene, "m", "h").await;
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    scene.request("m", reboot(0, "300s")).await;
    let beside = |it: &Value| keys(it).contains(&"reboot.metal3.io".to_owned());
    let held =
        scene.host_is("h", "held by both keys", |it| keys(it).len() == 2 && beside(it)).await;
    assert!(history(&held)[0]["off"].is_null(), "{held:?}");
    let_go(&scene, "h").await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
    let tries = history(&scene.get_host("h").await);
    assert!(tries[0]["off"].is_string(), "{tries:?}");
    assert!(
        tries[0]["fenced"].as_str().unwrap_or_default().contains("out of service"),
        "{tries:?}"
    );
}
