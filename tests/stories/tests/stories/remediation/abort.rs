//! Whatever ends a request, and wherever: no host stays held off, no taint, no backup and no finalizer is left.

use std::time::Duration;

use bench::cluster_api::objects::{CLUSTER, MACHINE};
use futures_util::future::join_all;
use kube::api::{Api, Patch, PatchParams};
use remediation::settings::{Fencing, Policy};
use serde_json::{Value, json};

use super::bad_input::warned;
use super::ground::{planes, quick, start};
use super::scene::{
    CLUSTER_NAME, PATIENCE, REMEDIATION, Scene, condition, history, is_tainted, keys, reboot,
};
use crate::capm3_reuse::guard::{Capm3, Guard, HOST, Write};

/// Where a request is when something ends it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    PowerOff,
    Fence,
    PowerOn,
    Recover,
}

pub(super) const MOMENTS: [Moment; 4] =
    [Moment::PowerOff, Moment::Fence, Moment::PowerOn, Moment::Recover];

/// Brings a request of a machine to a moment and keeps it there.
pub(super) async fn bring(scene: &Scene, machine: &str, host: &str, moment: Moment) {
    let step = match moment {
        Moment::PowerOff => {
            scene.operator().stick(host);
            "power off"
        }
        Moment::Fence => {
            let pods: Api<k8s_openapi::api::core::v1::Pod> =
                Api::namespaced(scene.workload.clone(), "default");
            let pod = json!({
                "metadata": {"name": format!("{}-{host}", scene.namespace)},
                "spec": {"nodeName": scene.node_of(machine), "containers": [{"name": "c", "image": "c"}]},
            });
            let pod = serde_json::from_value(pod).unwrap();
            pods.create(&kube::api::PostParams::default(), &pod).await.unwrap();
            "fence"
        }
        Moment::PowerOn => {
            scene.operator().keep_off(host);
            "power on"
        }
        Moment::Recover => {
            scene.operator().kill(host);
            "recover"
        }
    };
    scene.request(machine, reboot(3, "300s")).await;
    let at = |it: Option<&Value>| it.is_some_and(|it| it["status"]["step"] == step);
    scene.until(REMEDIATION, machine, step, at).await;
}

fn machine_at(moment: Moment, way: &str) -> String {
    format!("m-{moment:?}{way}").to_lowercase()
}

fn host_at(moment: Moment, way: &str) -> String {
    format!("h-{moment:?}{way}").to_lowercase()
}

fn long() -> Policy {
    Policy { fence: Duration::from_secs(600), ..quick() }
}

pub(super) async fn let_go(scene: &Scene, host: &str) {
    scene.operator().unstick(host);
    scene.patch_host(host, json!({"metadata": {"labels": {"nudge": "1"}}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_withdrawn_anywhere_leaves_a_host_that_is_on_and_nothing_of_ours() {
    let scene = Scene::new("withdrawn").await;
    let _running = start(&planes().await.management, &scene.namespace, long()).await;
    let withdrawn = async |moment: Moment| {
        let (name, host) = (machine_at(moment, ""), host_at(moment, ""));
        scene.machine(&name, &host).await;
        bring(&scene, &name, &host, moment).await;
        scene.delete(REMEDIATION, &name).await;
        scene.host_is(&host, "free of our key", |it| keys(it).is_empty()).await;
        let_go(&scene, &host).await;
        scene.gone(REMEDIATION, &name).await;
        scene.host_is(&host, "on", |it| it["status"]["poweredOn"] == true).await;
        scene.is_clean(&name, &host).await;
        let tries = history(&scene.get_host(&host).await);
        assert_eq!(tries[0]["result"], "Withdrawn", "{moment:?}: {tries:?}");
    };
    join_all(MOMENTS.map(withdrawn)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_back_when_its_request_is_withdrawn_counts_as_recovered() {
    let scene = Scene::new("withdrawn-back").await;
    let _running = start(&planes().await.management, &scene.namespace, long()).await;
    scene.machine("m", "h").await;
    bring(&scene, "m", "h", Moment::Recover).await;
    let waits = json!({
        "type": "ExternallyRemediated", "status": "False", "reason": "WaitingForRemediation",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    scene.patch_status(MACHINE, "m", json!({"status": {"conditions": [waits]}})).await;
    // As by a health check, which sees the node before it is looked at again from here.
    super::operator::boot(&scene.workload, &scene.node_of("m")).await;
    scene.delete(REMEDIATION, "m").await;
    scene.gone(REMEDIATION, "m").await;
    scene.is_clean("m", "h").await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!(tries[0]["result"], "Recovered", "{tries:?}");
    let machine = serde_json::to_value(scene.get(MACHINE, "m").await).unwrap();
    assert_eq!(condition(&machine, "ExternallyRemediated").0, "", "{machine:#}");
}

/// The caches still say which host a machine has, and the API server does not any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_goes_while_it_is_looked_at_leaves_nothing_of_ours() {
    let scene = Scene::new("going").await;
    let (running, _) = start(&planes().await.management, &scene.namespace, long()).await;
    scene.machine("m", "h").await;
    bring(&scene, "m", "h", Moment::Fence).await;
    while !is_tainted(&scene.node("m").await.unwrap()) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.handle.hold_read("/machines/m");
    // Its node is empty, so that there is something to do, for which everything is read once more.
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(scene.workload.clone(), "default");
    let now = kube::api::DeleteParams::default().grace_period(0);
    pods.delete(&format!("{}-h", scene.namespace), &now).await.unwrap();
    tokio::time::timeout(PATIENCE, running.handle.held()).await.expect("the Machine is read");
    scene.delete(MACHINE, "m").await;
    running.handle.release();
    scene.host_is("h", "free of our key", |it| keys(it).is_empty()).await;
    let clean = |it: Option<&Value>| it.unwrap()["metadata"]["finalizers"].is_null();
    scene.until(REMEDIATION, "m", "without finalizer", clean).await;
    scene.is_clean("m", "h").await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!(tries[0]["result"], "MachineMissing", "{tries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_deleted_or_loses_its_host_anywhere_leaves_nothing_of_ours() {
    let scene = Scene::new("lost").await;
    let _running = start(&planes().await.management, &scene.namespace, long()).await;
    let loses = async |(moment, way): (Moment, &'static str)| {
        let (name, host) = (machine_at(moment, way), host_at(moment, way));
        scene.machine(&name, &host).await;
        bring(&scene, &name, &host, moment).await;
        match way {
            "-deleted" => {
                let keep = json!({"metadata": {"finalizers": ["stories/keep"]}});
                scene.patch(MACHINE, &name, keep).await;
                scene.delete(MACHINE, &name).await;
            }
            "-consumer" => {
                let other = json!({"spec": {"consumerRef": {"name": "other", "uid": "x"}}});
                scene.patch_host(&host, other).await;
            }
            _ => {
                let metal = bench::cluster_api::objects::METAL3_MACHINE;
                let none = json!({"metadata": {"annotations": {"metal3.io/BareMetalHost": null}}});
                scene.patch(metal, &name, none).await;
            }
        }
        scene.host_is(&host, "free of our key", |it| keys(it).is_empty()).await;
        let clean = |it: Option<&Value>| it.unwrap()["metadata"]["finalizers"].is_null();
        scene.until(REMEDIATION, &name, "without finalizer", clean).await;
        scene.is_clean(&name, &host).await;
        let result = match way {
            "-deleted" => "MachineGone",
            "-consumer" => "HostNotClaimed",
            _ => "HostUnknown",
        };
        let tries = history(&scene.get_host(&host).await);
        assert_eq!(tries[0]["result"], result, "{moment:?}{way}: {tries:?}");
    };
    for way in ["-deleted", "-consumer", "-unnamed"] {
        join_all(MOMENTS.map(|moment| loses((moment, way)))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_its_cluster_is_paused_nothing_is_written_and_when_the_cluster_is_gone_all_is_undone()
{
    let scene = Scene::new("paused").await;
    let plane = &planes().await.management;
    let (_running, user) = start(plane, &scene.namespace, long()).await;
    let brought = async |moment: Moment| {
        let (name, host) = (machine_at(moment, ""), host_at(moment, ""));
        scene.machine(&name, &host).await;
        bring(&scene, &name, &host, moment).await;
    };
    join_all(MOMENTS.map(brought)).await;
    scene.patch(CLUSTER, CLUSTER_NAME, json!({"spec": {"paused": true}})).await;
    let audit = bench::audit::Audit::new(plane.audit_log(), scene.client.clone());
    audit.rest(&user, Duration::from_secs(2)).await.unwrap();
    let mark = audit.mark().await.unwrap();
    for moment in MOMENTS {
        scene.delete(REMEDIATION, &machine_at(moment, "")).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    let seen = audit.since(mark).await.unwrap();
    assert_eq!(seen.writes(&user, &[]), 0, "{seen:?}");
    for moment in MOMENTS {
        let held = matches!(moment, Moment::PowerOff | Moment::Fence);
        let host = scene.get_host(&host_at(moment, "")).await;
        assert_eq!(keys(&host).len(), usize::from(held), "paused is paused: {moment:?}");
    }
    scene.delete(CLUSTER, CLUSTER_NAME).await;
    for moment in MOMENTS {
        let (name, host) = (machine_at(moment, ""), host_at(moment, ""));
        scene.host_is(&host, "free of our key", |it| keys(it).is_empty()).await;
        let_go(&scene, &host).await;
        scene.gone(REMEDIATION, &name).await;
        scene.host_is(&host, "on", |it| it["status"]["poweredOn"] == true).await;
        scene.is_clean(&name, &host).await;
    }
}

/// Takes a request away as somebody does who only wants to be rid of it.
async fn take_away(scene: &Scene, machine: &str) {
    let pause = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    scene.patch(MACHINE, machine, pause).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    scene.delete(REMEDIATION, machine).await;
    scene.patch(REMEDIATION, machine, json!({"metadata": {"finalizers": null}})).await;
    scene.gone(REMEDIATION, machine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_request_was_taken_away_by_force_is_released() {
    let scene = Scene::new("forced").await;
    let _running = start(&planes().await.management, &scene.namespace, long()).await;
    scene.machine("m", "h").await;
    bring(&scene, "m", "h", Moment::PowerOff).await;
    take_away(&scene, "m").await;
    scene.host_is("h", "free of our key", |it| keys(it).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_refused_is_told_on_its_host_and_made_when_it_is_allowed() {
    let (scene, plane) = (Scene::new("kept-off").await, &planes().await.management);
    let _running = start(plane, &scene.namespace, long()).await;
    scene.machine("m", "h").await;
    bring(&scene, "m", "h", Moment::PowerOff).await;
    let held =
        "object.metadata.?annotations.orValue({}).exists(it, it.startsWith('reboot.metal3.io/'))";
    let guard = Guard::of_hosts(plane, &scene.namespace, held, "it stays off for now").await;
    let mut none = serde_json::Map::new();
    none.extend(keys(&scene.get_host("h").await).into_iter().map(|it| (it, Value::Null)));
    let anybody = Capm3::new(plane, &scene.namespace).await;
    let release = Write::Part(json!({ "metadata": { "annotations": none } }));
    anybody.is_refused(HOST, "h", &release).await;
    take_away(&scene, "m").await;
    warned(&scene, "Refused", &["BareMetalHost"]).await;
    assert_eq!(keys(&scene.get_host("h").await).len(), 1, "it is held");
    guard.uninstall().await;
    scene.host_is("h", "free of our key", |it| keys(it).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_request_that_is_withdrawn_is_given_to_the_node_that_comes_back() {
    let scene = Scene::new("backup").await;
    let policy = Policy { fencing: Fencing::Delete, ..long() };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    scene.machine("m", "h").await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(scene.workload.clone());
    let more = json!({"metadata": {"labels": {"rack": "7"}}});
    let node = scene.node_of("m");
    nodes.patch(&node, &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    scene.operator().kill("h");
    scene.request("m", reboot(0, "300s")).await;
    let recovering = |it: Option<&Value>| it.unwrap()["status"]["step"] == "recover";
    scene.until(REMEDIATION, "m", "recovering", recovering).await;
    scene.delete(REMEDIATION, "m").await;
    super::operator::boot(&scene.workload, &node).await;
    scene.gone(REMEDIATION, "m").await;
    assert_eq!(nodes.get(&node).await.unwrap().metadata.labels.unwrap()["rack"], "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_gone_at_once_leaves_no_taint() {
    let scene = Scene::new("vanished").await;
    let _running = start(&planes().await.management, &scene.namespace, long()).await;
    scene.machine("m", "h").await;
    bring(&scene, "m", "h", Moment::Recover).await;
    assert!(super::scene::is_tainted(&scene.node("m").await.unwrap()));
    // No finalizer keeps it.
    scene.delete(MACHINE, "m").await;
    scene.gone(MACHINE, "m").await;
    let clean = |it: Option<&Value>| it.unwrap()["metadata"]["finalizers"].is_null();
    scene.until(REMEDIATION, "m", "without finalizer", clean).await;
    scene.is_clean("m", "h").await;
    let tries = history(&scene.get_host("h").await);
    assert_eq!(tries[0]["result"], "MachineMissing", "{tries:?}");
}
