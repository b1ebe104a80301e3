//! Several machines fail at once.

use bench::cluster_api::objects::MACHINE;
use serde_json::json;

use super::ground::{planes, quick, start};
use super::scene::{Scene, history, keys, reboot};

/// A health check asks for all that fail, past what their owner does to keep the quorum of etcd.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_control_plane_one_member_at_a_time_is_power_cycled() {
    const MEMBERS: [&str; 3] = ["cp-0", "cp-1", "cp-2"];
    let scene = Scene::new("members").await;
    for name in MEMBERS.into_iter().chain(["worker"]) {
        scene.machine(name, name).await;
        scene.operator().stick(name);
    }
    for name in MEMBERS {
        let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}});
        scene.patch(MACHINE, name, label).await;
    }
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
    MEMBERS.into_iter().chain(["worker"]).for_each(|name| scene.operator().unstick(name));
    for name in MEMBERS {
        let nudge = json!({"metadata": {"labels": {"nudge": "1"}}});
        scene.patch_host(name, nudge).await;
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
