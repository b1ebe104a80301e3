//! What becomes of a host while a machine is on its way to it: just before the claim, and between the claim and the end of
//! the installation.

use bench::bmo;
use bench::cluster_api::PATIENCE;
use bench::cluster_api::objects::METAL3_MACHINE;
use bench::faults::{At, Fault, Plan};
use bench::observer::{Invariant, Observer, World};
use capm3_reuse::settings::Policy;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::{Value, json};

use super::ground::{plane, start, start_disturbed};
use super::rules::{hosts, machines};
use super::scene::{BOOT, Scene, condition, consumer, host_of, state};
use crate::in_process::Running;

const UNHEALTHY: &str = "capm3.metal3.io/unhealthy";

/// A person's own word on a host, in place of any other.
fn theirs() -> Value {
    json!({"spec": {"consumerRef": {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": null, "uid": null,
    }}})
}

fn unhealthy() -> Value {
    json!({"metadata": {"annotations": {UNHEALTHY: ""}}})
}

/// A machine whose claim is decided and not sent yet, and the host that it is for; another one is free.
async fn about_to_claim(name: &str) -> (Scene, Running, String) {
    let scene = Scene::with_deployment(plane().await, name, &["h1", "h2"], false).await;
    // The first write is the intent on the machine.
    let plan = Plan::one("capm3-reuse", At::Write(2), Fault::Hold);
    let running = start_disturbed(plane().await, &scene.namespace, Policy::default(), plan).await;
    scene.machine("m1", "md", "t").await;
    tokio::time::timeout(PATIENCE, running.handle.held()).await.expect("a claim is held");
    let machine = METAL3_MACHINE.api(&scene.client, &scene.namespace).get("m1").await.unwrap();
    let host = host_of(&machine);
    let calls = running.handle.calls();
    let held = calls.iter().find(|it| it.write == Some(2)).unwrap();
    assert!(held.path.ends_with(&format!("/baremetalhosts/{host}")), "{held:?}");
    (scene, running, host)
}

/// The claim goes off to a host that is not as it was, and the machine comes up on the other one. Returns the first host.
async fn gets_another(scene: &Scene, running: &Running, host: &str) -> DynamicObject {
    running.handle.release();
    let other = if host == "h1" { "h2" } else { "h1" };
    assert_eq!(scene.up("m1").await, other);
    let left = scene.get_host(host).await;
    assert!(left.data["spec"]["image"].is_null() && left.data["spec"]["userData"].is_null());
    assert!(!left.labels().contains_key("cluster.x-k8s.io/cluster-name"), "{:?}", left.labels());
    left
}

#[tokio::test]
async fn a_host_that_somebody_takes_just_before_its_claim_stays_theirs_and_the_machine_gets_another()
 {
    let (scene, running, host) = about_to_claim("taken").await;
    scene.patch_host(&host, theirs()).await;
    let left = gets_another(&scene, &running, &host).await;
    assert_eq!(consumer(&left), "ConfigMap/x");
}

#[tokio::test]
async fn a_kept_host_that_fails_for_a_moment_just_before_its_claim_is_waited_for() {
    let scene = Scene::with_deployment(plane().await, "moment", &["h1"], true).await;
    let (running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    assert_eq!(scene.up("m1").await, "h1");
    scene.remove("m1").await;
    assert_eq!(scene.consumer("h1").await, "MachineDeployment/md");
    drop(running);
    scene.hosts(&["h2"]).await;
    let plan = Plan::one("capm3-reuse", At::Write(2), Fault::Hold);
    let running = start_disturbed(plane().await, &scene.namespace, Policy::default(), plan).await;
    scene.machine("m2", "md", "t").await;
    tokio::time::timeout(PATIENCE, running.handle.held()).await.expect("a claim is held");
    let machine = METAL3_MACHINE.api(&scene.client, &scene.namespace).get("m2").await.unwrap();
    assert_eq!(host_of(&machine), "h1");
    let failed = |message: &str, count: u32| json!({"status": {"errorMessage": message, "errorCount": count}});
    scene.patch_host_status("h1", failed("no power", 1)).await;
    running.handle.release();
    let waits = scene.says("m2", "WaitingForKeptHost").await;
    assert_eq!(host_of(&waits), "", "it waits, and intends nothing");
    assert_eq!(scene.consumer("h2").await, "");
    scene.patch_host_status("h1", failed("", 0)).await;
    assert_eq!(scene.up("m2").await, "h1");
}

#[tokio::test]
async fn a_host_that_turns_unhealthy_just_before_its_claim_is_left_for_another() {
    let (scene, running, host) = about_to_claim("turned").await;
    scene.patch_host(&host, unhealthy()).await;
    let left = gets_another(&scene, &running, &host).await;
    assert_eq!(consumer(&left), "");
}

/// A machine that has the one host there is and said so; its operator does not install it yet.
async fn claimed(name: &str) -> (Scene, Running) {
    let scene = Scene::new(plane().await, name).await;
    scene.hosts(&["h1"]).await;
    scene.operator().keep(&scene.namespace, "h1");
    scene.template("t", false).await;
    scene.deployment("md", "t", 1).await;
    let (running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    let has = |it: &DynamicObject| {
        condition(it, "AssociateBareMetalHost").is_some_and(|it| it["status"] == "True")
    };
    scene.until("m1", "has its host", has).await;
    (scene, running)
}

#[tokio::test]
async fn a_host_that_turns_unhealthy_after_its_claim_stays_its_machine_s_and_is_no_other_s_afterwards()
 {
    let (scene, _running) = claimed("later").await;
    scene.patch_host("h1", unhealthy()).await;
    scene.hosts(&["h2"]).await;
    scene.operator().go_on(&scene.namespace, "h1").await.unwrap();
    assert_eq!(scene.up("m1").await, "h1");
    assert_eq!(scene.consumer("h2").await, "");
    // It goes as it came: that somebody doubts it does not hold up its clearing.
    scene.remove("m1").await;
    let freed = scene.get_host("h1").await;
    assert_eq!((consumer(&freed).as_str(), state(&freed)), ("", "available"));
    scene.machine("m2", "md", "t").await;
    assert_eq!(scene.up("m2").await, "h2");
    assert_eq!(scene.consumer("h1").await, "");
}

#[tokio::test]
async fn a_machine_whose_host_somebody_takes_before_it_is_up_gets_another_once_the_image_is_off() {
    let (scene, _running) = claimed("lost").await;
    let (client, namespace) = (&scene.client, scene.namespace.as_str());
    let kinds = [METAL3_MACHINE.resource(), bmo::hosts()];
    let observer = Observer::start(client, Some(namespace), &kinds).await.unwrap();
    scene.hosts(&["h2"]).await;
    scene.patch_host("h1", theirs()).await;
    // It would boot all the same, beside the next one.
    let lost = scene.says("m1", "HostLost").await;
    let message = condition(&lost, "Ready").unwrap()["message"].clone();
    assert!(message.as_str().unwrap().contains("ConfigMap x"), "{message}");
    // Whatever else happens to it meanwhile.
    let noted = json!({"metadata": {"annotations": {"turn": "lost"}}});
    scene.patch(METAL3_MACHINE, "m1", noted).await;
    scene.patch_host("h1", json!({"spec": {"image": null, "userData": null}})).await;
    assert_eq!(scene.up("m1").await, "h2");
    assert_eq!(scene.consumer("h1").await, "ConfigMap/x");
    let one_boots = |world: &World| {
        let boots = hosts(world).filter(|it| !it.data["spec"]["userData"].is_null()).count();
        if boots > 1 { Err("two hosts boot one machine".to_owned()) } else { Ok(()) }
    };
    let gave_up = |world: &World| {
        let says = |it: &DynamicObject| {
            condition(it, "AssociateBareMetalHost").is_some_and(|it| it["reason"] == "HostGivenUp")
        };
        if machines(world).any(says) { Err("it gave its host up".to_owned()) } else { Ok(()) }
    };
    let history = observer.history(&[]).await.unwrap();
    let said = history.check(&[Invariant::new("nobody gives a host up", gave_up)]);
    assert!(said.is_some(), "{}", history.timeline(None));
    let two = history.check(&[Invariant::new("one host boots", one_boots)]);
    assert!(two.is_none(), "{}", history.timeline(None));
}

#[tokio::test]
async fn no_host_is_claimed_before_the_first_boot_secret_is_there() {
    let scene = Scene::new(plane().await, "secretless").await;
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
    secrets.delete(BOOT, &DeleteParams::default()).await.unwrap();
    scene.hosts(&["h1"]).await;
    scene.template("t", true).await;
    scene.deployment("md", "t", 1).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    let told = scene.says("m1", "BootstrapSecretMissing").await;
    let message = condition(&told, "Ready").unwrap()["message"].clone();
    assert!(message.as_str().unwrap().contains(BOOT), "{message}");
    assert_eq!(host_of(&told), "");
    assert_eq!(scene.consumer("h1").await, "");
    // Nobody watches secrets, so it is found by looking again.
    scene.boot_secret().await;
    assert_eq!(scene.up("m1").await, "h1");
}
