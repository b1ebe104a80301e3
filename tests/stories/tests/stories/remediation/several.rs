//! Several machines fail at once.

use bench::cluster_api::objects::MACHINE;
use bench::faults::{At, Fault, Plan};
use serde_json::json;

use super::ground::{account, planes, quick, run, start};
use super::scene::{PATIENCE, Scene, history, keys, reboot};
use crate::in_process::Running;

const MEMBERS: [&str; 3] = ["cp-0", "cp-1", "cp-2"];

/// A health check asks for all that fail, past what their owner does to keep the quorum of etcd.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_control_plane_one_member_at_a_time_is_power_cycled() {
    let scene = Scene::new("members").await;
    members(&scene).await;
    scene.machine("worker", "worker").await;
    scene.operator().stick("worker");
    for name in MEMBERS.into_iter().chain(["worker"]) {
        scene.request(name, reboot(0, "300s")).await;
    }
    let _running = start(&planes().await.management, &scene.namespace, quick()).await;
    scene.host_is("worker", "asked to be off", |host| !keys(host).is_empty()).await;
    scene.host_is("cp-0", "asked to be off", |host| !keys(host).is_empty()).await;
    for name in ["cp-1", "cp-2"] {
        let waits = scene.says(name, "MemberInTry").await;
        let words = waits["status"]["conditions"].to_string();
        assert!(words.contains("Machine cp-0 is power-cycled first"), "{words}");
        assert!(waits["status"]["phase"].is_null(), "{waits}");
    }
    scene.operator().unstick("worker");
    one_at_a_time(&scene).await;
}

/// The members of a control plane, whose hosts take no order yet.
async fn members(scene: &Scene) {
    for name in MEMBERS {
        scene.machine(name, name).await;
        scene.operator().stick(name);
        let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}});
        scene.patch(MACHINE, name, label).await;
    }
}

/// The hosts take orders, and each member is power-cycled once, when the one before it is back.
async fn one_at_a_time(scene: &Scene) {
    for name in MEMBERS {
        scene.operator().unstick(name);
        scene.patch_host(name, json!({"metadata": {"labels": {"nudge": "1"}}})).await;
    }
    let mut times = Vec::new();
    for name in MEMBERS {
        scene.says(name, "Recovered").await;
        let tries = history(&scene.get_host(name).await);
        assert_eq!(tries.len(), 1, "{tries:?}");
        let moment = |what: &str| tries[0][what].as_str().unwrap().to_owned();
        times.push((moment("asked"), moment("ended")));
    }
    times.sort();
    assert!(times.windows(2).all(|it| it[0].1 <= it[1].0), "two at a time: {times:?}");
}

/// A health check asks for one after the other, and the first member's key is on its way when the next ones look at its host.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_asked_for_while_the_key_of_another_is_on_its_way_waits() {
    let scene = Scene::new("members-later").await;
    members(&scene).await;
    let (account, _) = account(&planes().await.management, &scene.namespace).await;
    // The finalizer is the first write, the key the second.
    let plan = Plan::one("remediation", At::Write(2), Fault::Hold);
    let namespace = scene.namespace.clone();
    let running = Running::start(account, plan, move |client| run(client, namespace, quick()));
    scene.request("cp-2", reboot(0, "300s")).await;
    tokio::time::timeout(PATIENCE, running.handle.held()).await.expect("the key is set");
    for name in ["cp-1", "cp-0"] {
        scene.request(name, reboot(0, "300s")).await;
    }
    for name in ["cp-1", "cp-0"] {
        let waits = scene.says(name, "MemberInTry").await;
        assert!(waits["status"]["phase"].is_null(), "{waits}");
    }
    running.handle.release();
    scene.host_is("cp-2", "asked to be off", |host| !keys(host).is_empty()).await;
    for name in ["cp-1", "cp-0"] {
        assert!(keys(&scene.get_host(name).await).is_empty(), "{name} is off as well");
        assert!(history(&scene.get_host(name).await).is_empty(), "{name} was off as well");
    }
    one_at_a_time(&scene).await;
}
