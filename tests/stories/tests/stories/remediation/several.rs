//! Several machines fail at once.

use std::time::{Duration, Instant};

use bench::cluster_api::objects::MACHINE;
use bench::control_plane::ControlPlane;
use bench::faults::{At, Fault, Plan};
use futures_util::future::join_all;
use remediation::settings::Policy;
use serde_json::json;

use super::ground::{account, planes, quick, run, start, start_in};
use super::scene::{PATIENCE, REMEDIATION, Scene, history, keys, reboot, succeeded};
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

/// In each of many clusters a machine fails. Half of the clusters do not answer: they hang and refuse nobody.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_that_hang_hold_up_no_other_cluster() {
    const HALF: usize = 20;
    let plane = &planes().await.management;
    let own = ControlPlane::start("remediation-half").await.unwrap();
    let hanging = own.kubeconfig_text("hangs", &["system:masters"]).unwrap();
    let scenes =
        join_all((0..2 * HALF).map(async |n| Scene::new(&format!("half-{n}")).await)).await;
    let (sick, sound) = scenes.split_at(HALF);
    for scene in &scenes {
        scene.machine("first", "first").await;
        scene.machine("second", "second").await;
    }
    for scene in sick {
        scene.kubeconfig(&hanging).await;
    }
    let namespaces = scenes.iter().map(|it| it.namespace.clone()).collect();
    let policy = Policy { fence: Duration::from_secs(10), ..quick() };
    let (_running, _) = start_in(plane, namespaces, policy).await;
    let recovered = async |name: &'static str| {
        let began = Instant::now();
        join_all(sound.iter().map(async |scene| scene.request(name, reboot(0, "300s")).await))
            .await;
        join_all(sound.iter().map(async |scene| scene.says(name, "Recovered").await)).await;
        began.elapsed()
    };
    let without = recovered("first").await;
    own.freeze(true).unwrap();
    // More than there are passes at a time.
    join_all(sick.iter().map(async |scene| {
        scene.request("first", reboot(0, "300s")).await;
        scene.request("second", reboot(0, "300s")).await;
    }))
    .await;
    let with = recovered("second").await;
    println!("{HALF} machines recovered: {without:?}, while as many clusters hang: {with:?}");
    for scene in sick {
        let request = scene.get(REMEDIATION, "first").await;
        let request = serde_json::to_value(request).unwrap();
        assert_ne!(succeeded(&request).1, "Recovered", "its node was answered about: {request:#}");
    }
    // A pass that hangs has its slot for two seconds, and others wait for that. A look at a cluster that hangs takes five.
    let most = without * 2 + Duration::from_secs(3);
    assert!(with < most, "{with:?} instead of {without:?}");
    own.freeze(false).unwrap();
}
