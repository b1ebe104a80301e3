//! From the real Hive to this controller and back, where somebody built Hive (docs/testing.md says how). Elsewhere what
//! Hive leaves is written by hand. Installing and deprovisioning are the stand-in's here, too.

use std::process::Command;

use bench::process::Service;
use clusterpool_inventory::settings::Policy;
use serde_json::{Value, json};

use super::ground::{plane, start};
use super::handback::{LEASE, OURS, record, take_off};
use super::scene::{Scene, View, condition, name};

/// Its manager.
const PROGRAM: &str = "FERRITE_HIVE";

async fn hive(scene: &Scene) -> Service {
    let program = std::env::var(PROGRAM).expect("FERRITE_HIVE is set: see docs/testing.md");
    let plane = plane().await;
    let mut command = Command::new(program);
    command
        .arg("--controllers=clusterpool,clusterclaim")
        .env("HIVE_SKIP_LEADER_ELECTION", "true")
        .env("HIVE_NS", &scene.namespace)
        .env("KUBECONFIG", plane.kubeconfig("hive", &["system:masters"]).unwrap());
    Service::start("hive", command, plane.dir()).unwrap()
}

fn records(view: &View) -> Vec<(Value, Value)> {
    view.of("pool").iter().map(|it| record(it)).collect()
}

#[tokio::test]
#[ignore = "needs Hive's program: see docs/testing.md"]
async fn a_pool_goes_from_the_real_hive_to_us_and_back_and_no_cluster_is_made_anew() {
    let (scene, _stand_in) = Scene::new("realhive").await;
    scene.entries(&["a", "b", "c"]).await;
    let list = |names: &[&str]| -> Value { names.iter().map(|it| json!({ "name": it })).collect() };
    let first = hive(&scene).await;
    // Hive wants all of them to run on a cloud that cannot hibernate.
    let spec = json!({ "inventory": list(&["a", "b"]), "runningCount": 2 });
    scene.pool("pool", 2, &[], spec).await;
    let full = |it: &View| it.ready("pool") == 2 && it.pool("pool")["status"]["ready"] == 2;
    let before = scene.wait("two clusters of Hive run", full).await;
    drop(first);

    let running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let ours = |it: &Value| it["metadata"]["finalizers"].to_string().contains(OURS);
    let taken = scene
        .wait("they are ours, with their leases", |it| {
            full(it)
                && it.of("pool").into_iter().all(ours)
                && ["a", "b"].iter().all(|entry| it.word("pool", entry) == "Reserved")
        })
        .await;
    assert_eq!(records(&taken), records(&before));
    assert_eq!(condition(taken.pool("pool"), "AllClustersCurrent").0, "True");
    drop(running);

    // As the page says.
    for cluster in &taken.clusters {
        let api = bench::hive::api(&scene.client, name(cluster), "ClusterDeployment");
        take_off(&api, &api.get(name(cluster)).await.unwrap(), OURS).await;
    }
    let entries = scene.api("ClusterDeploymentCustomization");
    for entry in entries.list(&kube::api::ListParams::default()).await.unwrap() {
        take_off(&entries, &entry, LEASE).await;
    }
    let second = hive(&scene).await;
    let all = list(&["a", "b", "c"]);
    let more = json!({ "spec": { "size": 3, "runningCount": 3, "inventory": all } });
    scene.patch("ClusterPool", "pool", more).await;
    let after = scene.wait("Hive makes a third one", |it| it.ready("pool") == 3).await;
    let kept = records(&after);
    assert!(records(&before).iter().all(|it| kept.contains(it)), "{after}");
    assert_eq!(condition(after.pool("pool"), "InventoryValid").0, "True", "{after}");
    drop(second);
}
