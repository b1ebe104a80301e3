//! Who waits is woken once, first come first served, and costs nothing meanwhile.

use std::time::Duration;

use bench::audit::Audit;
use bench::cluster_api::objects::METAL3_MACHINE;
use bench::cluster_api::until;
use capm3_reuse::settings::Policy;
use controller_kit::metrics::Metrics;
use futures_util::{StreamExt, stream};
use kube::api::DynamicObject;
use kube::runtime::watcher;

use super::ground::{plane, start_counted};
use super::scene::{Scene, condition, host_of};

const WAITERS: usize = 500;
/// Machines that are made at a time.
const AT_ONCE: usize = 16;

/// How often it was decided that there is no host for a machine.
fn in_vain(metrics: &Metrics) -> u64 {
    let text = String::from_utf8(metrics.render(true).unwrap()).unwrap();
    let series = "ferrite_capm3_reuse_decisions_total{reason=\"NoHostAvailable\"} ";
    let count = text.lines().find_map(|line| line.strip_prefix(series)).unwrap();
    count.parse().unwrap()
}

#[tokio::test]
async fn one_freed_host_wakes_the_first_who_waits_and_costs_the_others_nothing() {
    let plane = plane().await;
    let scene = Scene::with_deployment(plane, "queue", &["h"], false).await;
    let (_running, user, metrics) = start_counted(plane, &scene.namespace, Policy::default()).await;
    scene.machine("before", "md", "t").await;
    assert_eq!(scene.up("before").await, "h");
    let name = |number: usize| format!("m{number:03}");
    let make = async |number: usize| scene.machine(&name(number), "md", "t").await;
    stream::iter(0..WAITERS).map(make).buffer_unordered(AT_ONCE).collect::<()>().await;
    let machines = METAL3_MACHINE.api(&scene.client, &scene.namespace);
    let waits = |it: &DynamicObject| {
        condition(it, "Ready").is_some_and(|it| it["reason"] == "NoHostAvailable")
    };
    until(&machines, &watcher::Config::default(), "all wait", |all| {
        all.values().filter(|it| waits(it)).count() == WAITERS
    })
    .await
    .unwrap();
    // The machine that has the host is deleted; what is counted begins when its host begins to be cleared.
    scene.operator().keep(&scene.namespace, "h");
    scene.delete(METAL3_MACHINE, "before").await;
    scene.says("before", "Deprovisioning").await;
    let audit = Audit::new(plane.audit_log(), scene.client.clone());
    // Events of those who wait go out one after the other, which takes half a minute beside other stories.
    let mut rested = audit.rest(&user, Duration::from_secs(1)).await;
    for _ in 0..8 {
        if rested.is_err() {
            rested = audit.rest(&user, Duration::from_secs(1)).await;
        }
    }
    rested.unwrap();
    let (mark, looked) = (audit.mark().await.unwrap(), in_vain(&metrics));
    scene.operator().go_on(&scene.namespace, "h").await.unwrap();
    let all = until(&machines, &watcher::Config::default(), "one is up", |all| {
        let is_up = |it: &DynamicObject| it.data["status"]["initialization"]["provisioned"] == true;
        !all.contains_key("before") && all.values().any(is_up)
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
    // The host is given back and its machine let go; the next one has five writes, or four where the host is up so soon that
    // nobody has to be told that it is awaited.
    let writes = counts.writes(&user, &["events"]);
    assert!((6..=7).contains(&writes), "{writes}: {counts}");
    // Reads come with them. Had each who waits asked for one thing only, it would be hundreds.
    assert!(counts.requests(&user) < 100, "{counts}");
    let woken = in_vain(&metrics) - looked;
    assert!(woken <= 3, "{woken} looked for a host that another one gets");
}
