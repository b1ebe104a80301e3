//! The way back to Hive's own controller, and to ours again.

use clusterpool_inventory::settings::Policy;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::ground::{plane, start};
use super::scene::{Scene, name};

pub(super) const OURS: &str = "hive.openshift.io/clusterpool-inventory";
pub(super) const LEASE: &str = "hive.openshift.io/inventory-lease";

/// What the page's commands do: our finalizers go, and nothing else.
pub(super) async fn take_off(api: &Api<DynamicObject>, object: &DynamicObject, ours: &str) {
    let left: Vec<&String> = object.finalizers().iter().filter(|it| *it != ours).collect();
    let metadata =
        json!({ "finalizers": left, "resourceVersion": object.metadata.resource_version });
    let patch = Patch::Merge(json!({ "metadata": metadata }));
    api.patch(&object.name_any(), &PatchParams::default(), &patch).await.unwrap();
}

/// What is written about a cluster and its entry, for whoever comes next.
pub(super) fn record(cluster: &Value) -> (Value, Value) {
    (cluster["metadata"]["uid"].clone(), cluster["spec"].clone())
}

#[tokio::test]
async fn without_us_clusters_leases_and_status_stay_as_they_are_and_nothing_is_made_anew_when_we_return()
 {
    let (scene, _hive) = Scene::new("handback").await;
    let entries = scene.api("ClusterDeploymentCustomization");
    scene.entries(&["a", "b"]).await;
    scene.pool("pool", 2, &["a", "b"], json!({})).await;
    let running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let full =
        |it: &super::scene::View| it.ready("pool") == 2 && it.pool("pool")["status"]["ready"] == 2;
    let before = scene.wait("two clusters run", full).await;
    drop(running);

    // As the page says. Whoever reads the pool then finds what there was to be said.
    for cluster in &before.clusters {
        let api = bench::hive::api(&scene.client, name(cluster), "ClusterDeployment");
        take_off(&api, &api.get(name(cluster)).await.unwrap(), OURS).await;
    }
    for entry in entries.list(&ListParams::default()).await.unwrap() {
        take_off(&entries, &entry, LEASE).await;
    }
    let between = scene.view().await;
    assert_eq!(between.pool("pool")["status"], before.pool("pool")["status"]);
    for cluster in &between.clusters {
        let entry = super::scene::entry_of(cluster);
        let state = &between.pool("pool")["status"]["inventory"][entry];
        assert_eq!(state["clusterDeploymentRef"]["name"], name(cluster), "{between}");
        assert_eq!(between.holder(entry), name(cluster), "{between}");
    }
    // One of them goes meanwhile, as Hive's other controllers let it go: its entry is free.
    let gone = name(&between.clusters[0]).to_owned();
    let stays = record(&between.clusters[1]);
    let freed = super::scene::entry_of(&between.clusters[0]).to_owned();
    let api = bench::hive::api(&scene.client, &gone, "ClusterDeployment");
    api.delete(&gone, &kube::api::DeleteParams::default()).await.unwrap();
    scene
        .wait("the cluster goes without us", |it| {
            it.clusters.len() == 1 && it.holder(&freed).is_empty()
        })
        .await;

    let _again = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let kept = |it: &super::scene::View| {
        let is = |cluster: &&Value| {
            cluster["metadata"]["finalizers"].to_string().contains(OURS)
                && it.holder(super::scene::entry_of(cluster)) == name(cluster)
        };
        full(it) && it.clusters.iter().filter(is).count() == 2
    };
    let after = scene.wait("two clusters run and are ours again", kept).await;
    assert!(after.clusters.iter().any(|it| record(it) == stays), "{after}");
    assert!(after.clusters.iter().all(|it| name(it) != gone), "{after}");
    for entry in ["a", "b"] {
        let finalizers = after.entry(entry)["metadata"]["finalizers"].to_string();
        assert_eq!(after.word("pool", entry), "Reserved", "{after}");
        assert!(finalizers.contains(LEASE), "{finalizers}");
    }
}
