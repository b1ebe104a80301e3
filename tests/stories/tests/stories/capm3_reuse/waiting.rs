//! Who waits is woken once, first come first served, and costs nothing meanwhile.

use bench::audit::Audit;
use bench::cluster_api::objects::METAL3_MACHINE;
use bench::cluster_api::until;
use capm3_reuse::config::Policy;
use futures_util::{StreamExt, stream};
use kube::runtime::watcher;
use serde_json::json;

use super::ground::{plane, start};
use super::scene::{Scene, condition, host_of};

const WAITERS: usize = 500;
/// Machines that are made at a time.
const AT_ONCE: usize = 16;

#[tokio::test]
async fn one_freed_host_wakes_the_first_who_waits_and_costs_the_others_nothing() {
    let plane = plane().await;
    let scene = Scene::new(plane, "queue").await;
    scene.template("t", false).await;
    scene.deployment("md", "t", 1).await;
    let (_running, user) = start(plane, &scene.namespace, Policy::default()).await;
    let name = |number: usize| format!("m{number:03}");
    let make = async |number: usize| scene.machine(&name(number), "md", "t").await;
    stream::iter(0..WAITERS).map(make).buffer_unordered(AT_ONCE).collect::<()>().await;
    let machines = METAL3_MACHINE.api(&scene.client, &scene.namespace);
    until(&machines, &watcher::Config::default(), "all wait", |all| {
        all.len() == WAITERS
            && all.values().all(|it| {
                condition(it, "Ready").is_some_and(|it| it["reason"] == "NoHostAvailable")
            })
    })
    .await
    .unwrap();
    let audit = Audit::new(plane.audit_log(), scene.client.clone());
    let mark = audit.mark().await.unwrap();
    scene.host("h", json!({})).await;
    let all = until(&machines, &watcher::Config::default(), "one is up", |all| {
        all.values().any(|it| it.data["status"]["initialization"]["provisioned"] == true)
    })
    .await
    .unwrap();
    let served: Vec<&String> =
        all.iter().filter(|(_, it)| !host_of(it).is_empty()).map(|(name, _)| name).collect();
    // Creation is stamped to the second; within one, names decide.
    assert_eq!(served.len(), 1, "{served:?}");
    let born = |name: &String| all[name].metadata.creation_timestamp.clone();
    let first = all.keys().min_by_key(|name| (born(name).map(|it| it.0), (*name).clone())).unwrap();
    assert_eq!(served[0], first);
    let counts = audit.since(mark).await.unwrap();
    assert_eq!(counts.writes(&user, &["events"]), 5, "{counts}");
}
