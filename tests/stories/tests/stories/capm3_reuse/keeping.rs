//! For whom a freed host is kept, and until when.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bench::bmo;
use bench::cluster_api::objects::{
    CLUSTER, Kind, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET, METAL3_MACHINE,
    METAL3_MACHINE_TEMPLATE,
};
use bench::cluster_api::{PATIENCE, until};
use capm3_reuse::settings::Policy;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject};
use kube::runtime::watcher;
use serde_json::json;

use super::ground::{plane, start, start_counted};
use super::guard::without_claims;
use super::scene::{NAME, Scene, condition, consumer, host_of, state};
use crate::in_process::Running;
use crate::plugin::ask_as_admin;

const EVENT: Kind = Kind { api_version: "events.k8s.io/v1", kind: "Event" };

/// A reservation that nobody needs is kept for long enough not to meet a story.
fn patient() -> Policy {
    Policy { reservation_grace: Duration::from_secs(3600), ..Policy::default() }
}

/// A scene with so many hosts, and a machine of the deployment md that is deleted while the operator does not clear its host
/// yet. The host, too.
async fn leaving(name: &str, hosts: &[&str]) -> (Scene, Running, String) {
    let scene = Scene::with_deployment(plane().await, name, hosts, true).await;
    let (running, _) = start(plane().await, &scene.namespace, patient()).await;
    scene.machine("m1", "md", "t").await;
    let host = scene.up("m1").await;
    scene.operator().keep(&scene.namespace, &host);
    scene.delete(METAL3_MACHINE, "m1").await;
    (scene, running, host)
}

/// It is decided for whom a host is to be kept that a machine gives back.
async fn told_for_whom(scene: &Scene, host: &str) {
    let is_decided =
        |it: &DynamicObject| it.annotations().contains_key("ferrite.metal3.io/pending-reservation");
    scene.host_is(host, "told for whom", is_decided).await;
}

/// The operator begins to clear a host that was told to forget its machine.
async fn deprovision(scene: &Scene, host: &str) {
    scene.host_is(host, "told to forget", |it| it.data["spec"]["image"].is_null()).await;
    let deprovisioning = json!({"status": {"provisioning": {"state": "deprovisioning"}}});
    scene.patch_host_status(host, deprovisioning).await;
}

#[tokio::test]
async fn while_it_is_deprovisioning_the_consumer_of_a_host_becomes_the_deployment_and_its_next_machine_gets_it()
 {
    let (scene, _running, host) = leaving("again", &["h1", "h2", "h3"]).await;
    deprovision(&scene, &host).await;
    let seen = scene.host_is(&host, "kept", |it| consumer(it) == "MachineDeployment/md").await;
    assert_eq!(state(&seen), "deprovisioning");
    assert_eq!(seen.labels()["infrastructure.cluster.x-k8s.io/node-reuse"], "md-md");
    // The verdict has gone into the reference; what is left says of which host it was.
    let noted = [("ferrite.metal3.io/reserved-host-uid".to_owned(), seen.uid().unwrap())];
    assert_eq!(*seen.annotations(), BTreeMap::from(noted));
    let deployments = MACHINE_DEPLOYMENT.api(&scene.client, &scene.namespace);
    let uid = deployments.get("md").await.unwrap().uid();
    assert_eq!(seen.data["spec"]["consumerRef"]["uid"], json!(uid));
    // The machine stays until its disks are its own no more.
    let machines = METAL3_MACHINE.api(&scene.client, &scene.namespace);
    assert!(machines.get_opt("m1").await.unwrap().is_some());

    scene.machine("m2", "md", "t").await;
    let waiting = scene.says("m2", "WaitingForKeptHost").await;
    let message = condition(&waiting, "AssociateBareMetalHost").unwrap()["message"].clone();
    assert!(message.as_str().unwrap().contains(&host), "{message}");
    let said = ask_as_admin(plane().await, &scene.namespace, &["why", "machine/m2", "-o", "json"]);
    let (said, link) = (said.await, |kind: &str, name: &str| (kind.to_owned(), name.to_owned()));
    let chain: Vec<_> = said.chain().into_iter().map(|(kind, name, _)| (kind, name)).collect();
    let wanted = [link("Machine", "m2"), link("Metal3Machine", "m2"), link("BareMetalHost", &host)];
    assert_eq!(chain, wanted, "{}", said.out);
    assert_eq!(said.json()["chain"][1]["reason"], "WaitingForKeptHost");
    scene.operator().go_on(&scene.namespace, &host).await.unwrap();
    assert_eq!(scene.up("m2").await, host);
    scene.gone(METAL3_MACHINE, "m1").await;
    let seen = scene.get_host(&host).await;
    assert!(!seen.labels().contains_key("infrastructure.cluster.x-k8s.io/node-reuse"));
    assert!(seen.annotations().is_empty(), "{:?}", seen.annotations());
    assert_eq!(consumer(&seen), "Metal3Machine/m2");
}

#[tokio::test]
async fn a_deployment_that_is_made_anew_under_its_name_gets_no_host_that_was_kept_for_the_first() {
    // Cluster, host and deployment are all young here, as after a move.
    let (scene, _running, _) = leaving("anew", &["h1"]).await;
    deprovision(&scene, "h1").await;
    scene.host_is("h1", "kept", |it| consumer(it) == "MachineDeployment/md").await;
    // While nobody may free it yet.
    scene.delete(MACHINE_SET, "md").await;
    scene.delete(MACHINE_DEPLOYMENT, "md").await;
    scene.deployment("md", "t", 1).await;
    scene.operator().go_on(&scene.namespace, "h1").await.unwrap();
    let freed = scene.host_is("h1", "free", |it| consumer(it).is_empty()).await;
    assert!(freed.annotations().is_empty(), "{:?}", freed.annotations());
}

#[tokio::test]
async fn without_node_reuse_a_freed_host_is_kept_for_nobody_and_the_next_machine_looks_among_free_hosts_only()
 {
    let scene = Scene::new(plane().await, "off").await;
    scene.hosts(&["h1"]).await;
    scene.template("on", true).await;
    scene.template("off", false).await;
    scene.deployment("md", "off", 1).await;
    scene.deployment("other", "on", 1).await;
    let (_running, _) = start(plane().await, &scene.namespace, patient()).await;
    scene.machine("m1", "md", "off").await;
    scene.up("m1").await;
    scene.remove("m1").await;
    assert_eq!(scene.consumer("h1").await, "");

    // Kept for another: not for a machine of this deployment.
    scene.machine("o1", "other", "on").await;
    scene.up("o1").await;
    scene.remove("o1").await;
    assert_eq!(scene.consumer("h1").await, "MachineDeployment/other");
    scene.machine("m2", "md", "off").await;
    scene.says("m2", "NoHostAvailable").await;
    scene.hosts(&["h2"]).await;
    assert_eq!(scene.up("m2").await, "h2");
}

#[tokio::test]
async fn the_first_machine_of_an_owner_takes_a_free_host_or_waits_if_it_must_be_strict() {
    let scene = Scene::with_deployment(plane().await, "first", &["h1"], true).await;
    let strict = Policy { strict_reuse: true, ..patient() };
    let (running, _) = start(plane().await, &scene.namespace, strict.clone()).await;
    scene.machine("m1", "md", "t").await;
    scene.says("m1", "NoKeptHost").await;
    drop(running);
    let (running, _) = start(plane().await, &scene.namespace, patient()).await;
    assert_eq!(scene.up("m1").await, "h1");
    drop(running);
    // And strictly it gets its own host again.
    let (_running, _) = start(plane().await, &scene.namespace, strict).await;
    scene.hosts(&["h2"]).await;
    scene.remove("m1").await;
    scene.machine("m2", "md", "t").await;
    assert_eq!(scene.up("m2").await, "h1");
}

#[tokio::test]
async fn an_unhealthy_kept_host_neither_is_taken_nor_blocks() {
    let scene = Scene::with_deployment(plane().await, "sick", &["h1"], true).await;
    let (_running, _) = start(plane().await, &scene.namespace, patient()).await;
    scene.machine("m1", "md", "t").await;
    scene.up("m1").await;
    let sick =
        json!({"metadata": {"annotations": {"capi.metal3.io/unhealthy": "capm3/UnhealthyNode"}}});
    scene.patch_host("h1", sick).await;
    scene.remove("m1").await;
    assert_eq!(scene.consumer("h1").await, "MachineDeployment/md");
    scene.hosts(&["h2"]).await;
    scene.machine("m2", "md", "t").await;
    assert_eq!(scene.up("m2").await, "h2");
    let machine = METAL3_MACHINE.api(&scene.client, &scene.namespace).get("m2").await.unwrap();
    assert_eq!(condition(&machine, "AssociateBareMetalHost").unwrap()["reason"], "HostClaimed");
}

#[tokio::test]
async fn the_verdict_outlives_template_and_deployment_and_a_reservation_without_owner_ends() {
    let (scene, _running, _) = leaving("verdict", &["h1"]).await;
    told_for_whom(&scene, "h1").await;
    scene.delete(METAL3_MACHINE_TEMPLATE, "t").await;
    scene.operator().go_on(&scene.namespace, "h1").await.unwrap();
    scene.host_is("h1", "kept", |it| consumer(it) == "MachineDeployment/md").await;
    scene.gone(METAL3_MACHINE, "m1").await;
    scene.delete(MACHINE, "m1").await;
    scene.delete(MACHINE_DEPLOYMENT, "md").await;
    scene.host_is("h1", "free", |it| consumer(it).is_empty()).await;
    let freed = scene.get_host("h1").await;
    assert!(!freed.labels().contains_key("infrastructure.cluster.x-k8s.io/node-reuse"));
}

#[tokio::test]
async fn a_reservation_ends_when_reuse_is_switched_off_and_when_nobody_will_come_for_it() {
    let scene = Scene::new(plane().await, "ends").await;
    scene.hosts(&["h1", "h2"]).await;
    scene.template("t", true).await;
    scene.deployment("md", "t", 2).await;
    let quick = Policy { reservation_grace: Duration::from_secs(1), ..Policy::default() };
    let (_running, _) = start(plane().await, &scene.namespace, quick).await;
    scene.machine("m1", "md", "t").await;
    scene.machine("m2", "md", "t").await;
    let (first, second) = (scene.up("m1").await, scene.up("m2").await);
    // One machine of two is missing: somebody will come.
    scene.remove("m1").await;
    scene.host_is(&first, "kept", |it| consumer(it) == "MachineDeployment/md").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.consumer(&first).await, "MachineDeployment/md");
    // Scaled down: nobody will.
    scene.patch(MACHINE_DEPLOYMENT, "md", json!({"spec": {"replicas": 1}})).await;
    scene.is_current("md", 1).await;
    scene.host_is(&first, "free", |it| consumer(it).is_empty()).await;

    scene.remove("m2").await;
    scene.host_is(&second, "kept", |it| consumer(it) == "MachineDeployment/md").await;
    scene.patch(METAL3_MACHINE_TEMPLATE, "t", json!({"spec": {"nodeReuse": false}})).await;
    scene.host_is(&second, "free", |it| consumer(it).is_empty()).await;
}

#[tokio::test]
async fn a_reservation_ends_when_the_machine_that_is_to_come_is_to_have_another_host() {
    let scene = Scene::with_deployment(plane().await, "elsewhere", &["h1"], true).await;
    let quick = Policy { reservation_grace: Duration::from_secs(1), ..Policy::default() };
    let (_running, _) = start(plane().await, &scene.namespace, quick).await;
    scene.machine("m1", "md", "t").await;
    let host = scene.up("m1").await;
    scene.remove("m1").await;
    scene.host_is(&host, "kept", |it| consumer(it) == "MachineDeployment/md").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.consumer(&host).await, "MachineDeployment/md", "its next machine will come");
    let elsewhere = json!({"hostSelector": {"matchLabels": {"rack": "elsewhere"}}});
    let elsewhere = json!({"spec": {"template": {"spec": elsewhere}}});
    scene.patch(METAL3_MACHINE_TEMPLATE, "t", elsewhere).await;
    scene.host_is(&host, "free", |it| consumer(it).is_empty()).await;
}

#[tokio::test]
async fn who_is_to_come_for_a_kept_host_has_as_long_for_that_however_long_the_host_was_cleared() {
    let scene = Scene::with_deployment(plane().await, "surge", &["h1"], true).await;
    let grace = Duration::from_secs(5);
    let quick = Policy { reservation_grace: grace, ..Policy::default() };
    let (_running, _) = start(plane().await, &scene.namespace, quick).await;
    scene.machine("m1", "md", "t").await;
    assert_eq!(scene.up("m1").await, "h1");
    // In a rollout with surge the next machine is up on another host before this one goes.
    scene.hosts(&["h2"]).await;
    scene.machine("m2", "md", "t").await;
    assert_eq!(scene.up("m2").await, "h2");
    scene.operator().keep(&scene.namespace, "h1");
    for kind in [METAL3_MACHINE, MACHINE] {
        scene.delete(kind, "m1").await;
    }
    deprovision(&scene, "h1").await;
    scene.host_is("h1", "kept", |it| consumer(it) == "MachineDeployment/md").await;
    tokio::time::sleep(grace + Duration::from_secs(1)).await;
    scene.operator().go_on(&scene.namespace, "h1").await.unwrap();
    // Cluster API makes the next but one when this one is gone.
    scene.gone(METAL3_MACHINE, "m1").await;
    scene.machine("m3", "md", "t").await;
    assert_eq!(scene.up("m3").await, "h1");
    let machine = METAL3_MACHINE.api(&scene.client, &scene.namespace).get("m3").await.unwrap();
    assert_eq!(condition(&machine, "AssociateBareMetalHost").unwrap()["reason"], "HostReused");
}

#[tokio::test]
async fn a_machine_whose_template_is_gone_takes_the_host_that_is_kept_for_its_owner() {
    let scene = Scene::new(plane().await, "orphan").await;
    scene.hosts(&["h1"]).await;
    for template in ["old", "new"] {
        scene.template(template, true).await;
    }
    scene.deployment("md", "new", 1).await;
    let (running, _) = start(plane().await, &scene.namespace, patient()).await;
    scene.machine("m1", "md", "old").await;
    scene.up("m1").await;
    scene.remove("m1").await;
    assert_eq!(scene.consumer("h1").await, "MachineDeployment/md");
    drop(running);
    scene.hosts(&["h2", "h3"]).await;
    scene.machine("m2", "md", "old").await;
    scene.delete(METAL3_MACHINE_TEMPLATE, "old").await;
    let (_running, _) = start(plane().await, &scene.namespace, patient()).await;
    assert_eq!(scene.up("m2").await, "h1");
}

#[tokio::test]
async fn what_is_kept_stays_kept_while_its_claim_is_refused() {
    let scene = Scene::with_deployment(plane().await, "refused", &["h1"], true).await;
    let quick = Policy { reservation_grace: Duration::from_secs(1), ..Policy::default() };
    let (_running, _) = start(plane().await, &scene.namespace, quick).await;
    scene.machine("m1", "md", "t").await;
    assert_eq!(scene.up("m1").await, "h1");
    scene.remove("m1").await;
    assert_eq!(scene.consumer("h1").await, "MachineDeployment/md");
    let policy = without_claims(&scene).await;
    scene.machine("m2", "md", "t").await;
    // It names the host that it may not have, and that is all the machines of its owner.
    let refused = scene.says("m2", "Refused").await;
    assert_eq!(host_of(&refused), "h1");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(scene.consumer("h1").await, "MachineDeployment/md");
    policy.uninstall().await;
    assert_eq!(scene.up("m2").await, "h1");
}

#[tokio::test]
async fn of_two_machines_that_come_for_one_kept_host_the_other_takes_a_free_one_and_both_are_told()
{
    let scene = Scene::new(plane().await, "scaled").await;
    scene.hosts(&["h1"]).await;
    scene.template("t", true).await;
    scene.deployment("md", "t", 2).await;
    let (_running, _) = start(plane().await, &scene.namespace, patient()).await;
    scene.machine("m1", "md", "t").await;
    assert_eq!(scene.up("m1").await, "h1");
    scene.remove("m1").await;
    assert_eq!(scene.consumer("h1").await, "MachineDeployment/md");
    scene.hosts(&["h2"]).await;
    for machine in ["m2", "m3"] {
        scene.machine(machine, "md", "t").await;
    }
    let hosts = [scene.up("m2").await, scene.up("m3").await];
    let (again, new) = if hosts[0] == "h1" { ("m2", "m3") } else { ("m3", "m2") };
    assert_eq!(BTreeSet::from(hosts), BTreeSet::from(["h1".to_owned(), "h2".to_owned()]));
    let events = EVENT.api(&scene.client, &scene.namespace);
    for (machine, reason, words) in [
        (again, "HostReused", ["Host h1", ""]),
        (new, "HostClaimed", ["Host h2", "MachineDeployment md"]),
    ] {
        let tells = |it: &DynamicObject| {
            let note = it.data["note"].as_str().unwrap_or_default();
            it.data["regarding"]["name"] == machine
                && it.data["reason"] == reason
                && words.iter().all(|word| note.contains(*word))
        };
        let what = format!("{reason} of {machine}");
        until(&events, &watcher::Config::default(), &what, |all| all.values().any(&tells))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn who_waits_for_a_kept_host_that_is_deleted_takes_a_free_one_and_its_last_machine_goes() {
    let (scene, _running, host) = leaving("deleted", &["h1", "h2"]).await;
    deprovision(&scene, &host).await;
    scene.host_is(&host, "kept", |it| consumer(it) == "MachineDeployment/md").await;
    scene.machine("m2", "md", "t").await;
    scene.says("m2", "WaitingForKeptHost").await;
    let api = bmo::api(&scene.client, &scene.namespace);
    api.delete(&host, &DeleteParams::default()).await.unwrap();
    assert_eq!(scene.up("m2").await, if host == "h1" { "h2" } else { "h1" });
    scene.gone(METAL3_MACHINE, "m1").await;
}

#[tokio::test]
async fn who_waits_for_a_host_whose_machine_went_without_giving_it_back_gets_it() {
    let (scene, _running, host) = leaving("left", &["h1", "h2"]).await;
    told_for_whom(&scene, &host).await;
    scene.patch(METAL3_MACHINE, "m1", json!({"metadata": {"finalizers": null}})).await;
    scene.gone(METAL3_MACHINE, "m1").await;
    scene.machine("m2", "md", "t").await;
    scene.says("m2", "WaitingForKeptHost").await;
    scene.operator().go_on(&scene.namespace, &host).await.unwrap();
    assert_eq!(scene.up("m2").await, host);
}

#[tokio::test]
async fn what_was_kept_or_left_when_no_process_ran_is_looked_at_by_the_next_one() {
    let scene = Scene::with_deployment(plane().await, "absent", &["h1", "h2"], true).await;
    let (running, _) = start(plane().await, &scene.namespace, patient()).await;
    scene.machine("m1", "md", "t").await;
    scene.machine("m2", "md", "t").await;
    let (kept, left) = (scene.up("m1").await, scene.up("m2").await);
    scene.remove("m1").await;
    assert_eq!(scene.consumer(&kept).await, "MachineDeployment/md");
    scene.operator().keep(&scene.namespace, &left);
    scene.delete(METAL3_MACHINE, "m2").await;
    told_for_whom(&scene, &left).await;
    drop(running);
    scene.patch(METAL3_MACHINE, "m2", json!({"metadata": {"finalizers": null}})).await;
    scene.gone(METAL3_MACHINE, "m2").await;
    scene.delete(MACHINE_DEPLOYMENT, "md").await;
    scene.operator().go_on(&scene.namespace, &left).await.unwrap();
    let (_running, _) = start(plane().await, &scene.namespace, patient()).await;
    for host in [kept, left] {
        scene.host_is(&host, "free", |it| consumer(it).is_empty()).await;
    }
}

#[tokio::test]
async fn a_host_is_free_in_the_end_if_its_deployment_goes_before_it_is_named_for_it() {
    let (scene, _running, _) = leaving("ownerless", &["h1"]).await;
    told_for_whom(&scene, "h1").await;
    scene.delete(MACHINE_DEPLOYMENT, "md").await;
    deprovision(&scene, "h1").await;
    scene.host_is("h1", "kept", |it| consumer(it) == "MachineDeployment/md").await;
    scene.deployment("other", "t", 1).await;
    scene.machine("o1", "other", "t").await;
    scene.says("o1", "NoHostAvailable").await;
    scene.operator().go_on(&scene.namespace, "h1").await.unwrap();
    assert_eq!(scene.up("o1").await, "h1");
    scene.gone(METAL3_MACHINE, "m1").await;
}

#[tokio::test]
async fn the_template_that_a_deployment_points_to_now_says_whether_a_host_is_kept_and_none_before_it()
 {
    let scene = Scene::new(plane().await, "pointed").await;
    scene.hosts(&["h1", "h2"]).await;
    scene.template("on", true).await;
    scene.template("off", false).await;
    scene.deployment("stops", "on", 1).await;
    scene.deployment("starts", "off", 1).await;
    let (_running, _) = start(plane().await, &scene.namespace, patient()).await;
    scene.machine("a1", "stops", "on").await;
    scene.machine("b1", "starts", "off").await;
    let (stopped, started) = (scene.up("a1").await, scene.up("b1").await);
    // As a rollout begins: machines and machine sets are of the template before.
    for (deployment, template) in [("stops", "off"), ("starts", "on")] {
        let named = json!({"infrastructureRef": {"name": template}});
        let next = json!({"spec": {"template": {"spec": named}}});
        scene.patch(MACHINE_DEPLOYMENT, deployment, next).await;
    }
    for machine in ["a1", "b1"] {
        scene.remove(machine).await;
    }
    assert_eq!(scene.consumer(&stopped).await, "");
    assert_eq!(scene.consumer(&started).await, "MachineDeployment/starts");
    // A machine that is still made from the one before asks for no kept host; one of the new one gets it.
    scene.machine("b2", "starts", "off").await;
    assert_eq!(scene.up("b2").await, stopped);
    scene.machine("b3", "starts", "on").await;
    assert_eq!(scene.up("b3").await, started);
}

#[tokio::test]
async fn a_host_waits_for_an_owner_that_cannot_be_read_which_is_told_while_its_machine_is_up() {
    let scene = Scene::with_deployment(plane().await, "unread", &["h1"], true).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    // Nobody serves that kind here.
    let owner = json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "RKE2ControlPlane",
        "name": "rke", "uid": "rke-uid",
    });
    scene.patch(MACHINE, "m1", json!({"metadata": {"ownerReferences": [owner]}})).await;
    assert_eq!(scene.up("m1").await, "h1");
    let says = |it: &DynamicObject, status: &str| {
        condition(it, "Ready")
            .is_some_and(|it| it["reason"] == "OwnerUnreadable" && it["status"] == status)
    };
    scene.until("m1", "up, with an owner that cannot be read", |it| says(it, "True")).await;
    scene.delete(METAL3_MACHINE, "m1").await;
    scene.until("m1", "held for that owner", |it| says(it, "False")).await;
    assert!(!scene.get_host("h1").await.data["spec"]["image"].is_null());
    // Of a machine that asks for no reuse nobody has to be known.
    scene.patch(METAL3_MACHINE_TEMPLATE, "t", json!({"spec": {"nodeReuse": false}})).await;
    scene.gone(METAL3_MACHINE, "m1").await;
    assert_eq!(scene.consumer("h1").await, "");
}

#[tokio::test]
async fn without_its_machine_a_host_is_held_for_the_control_plane_that_the_cluster_names() {
    let scene = Scene::with_deployment(plane().await, "planes", &["h1"], true).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    // Nobody serves that kind here.
    let plane = json!({
        "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "RKE2ControlPlane", "name": "rke",
    });
    scene.patch(CLUSTER, NAME, json!({"spec": {"controlPlaneRef": plane}})).await;
    scene.machine("m1", "md", "t").await;
    let labels = json!({
        "cluster.x-k8s.io/deployment-name": null, "cluster.x-k8s.io/set-name": null,
        "cluster.x-k8s.io/control-plane-name": "rke",
    });
    scene.patch(METAL3_MACHINE, "m1", json!({"metadata": {"labels": labels}})).await;
    assert_eq!(scene.up("m1").await, "h1");
    scene.delete(MACHINE, "m1").await;
    scene.says("m1", "MachineMissing").await;
    scene.delete(METAL3_MACHINE, "m1").await;
    let held = scene.says("m1", "OwnerUnreadable").await;
    let message = condition(&held, "Ready").unwrap()["message"].clone();
    assert!(message.as_str().unwrap().contains("RKE2ControlPlane"), "{message}");
    assert!(!scene.get_host("h1").await.data["spec"]["image"].is_null());
}

#[tokio::test]
async fn a_host_whose_machine_went_while_its_image_was_on_says_so() {
    let scene = Scene::with_deployment(plane().await, "orphaned", &["h1"], true).await;
    let (running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    assert_eq!(scene.up("m1").await, "h1");
    drop(running);
    scene.delete(METAL3_MACHINE, "m1").await;
    scene.patch(METAL3_MACHINE, "m1", json!({"metadata": {"finalizers": null}})).await;
    scene.gone(METAL3_MACHINE, "m1").await;
    let (_running, _, metrics) =
        start_counted(plane().await, &scene.namespace, Policy::default()).await;
    let events = EVENT.api(&scene.client, &scene.namespace);
    let told = |all: &BTreeMap<String, DynamicObject>| {
        all.values()
            .any(|it| it.data["reason"] == "MachineMissing" && it.data["regarding"]["name"] == "h1")
    };
    until(&events, &watcher::Config::default(), "a word about h1", told).await.unwrap();
    let waits = || {
        let text = String::from_utf8(metrics.render(true).unwrap()).unwrap();
        let series = "ferrite_capm3_reuse_waiting{reason=\"MachineMissing\"} 1";
        text.lines().any(|line| line == series)
    };
    let deadline = Instant::now() + PATIENCE;
    while !waits() {
        assert!(Instant::now() < deadline, "it is counted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let host = scene.get_host("h1").await;
    assert_eq!(consumer(&host), "Metal3Machine/m1");
    assert!(!host.data["spec"]["image"].is_null());
    scene.patch_host("h1", json!({"spec": {"image": null, "consumerRef": null}})).await;
    let deadline = Instant::now() + PATIENCE;
    while waits() {
        assert!(Instant::now() < deadline, "it is counted no longer");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
