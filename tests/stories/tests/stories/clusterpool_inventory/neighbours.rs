//! What people and neighbours do at any moment.

use std::time::Duration;

use clusterpool_inventory::settings::Policy;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::ground::{plane, start};
use super::scene::{Scene, name};

#[tokio::test]
async fn a_cluster_or_its_namespace_deleted_by_hand_is_made_anew_from_the_same_entry() {
    let (scene, _hive) = Scene::new("byhand").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let first = scene.one_runs().await;
    let clusters = bench::hive::api(&scene.client, &first, "ClusterDeployment");
    clusters.delete(&first, &DeleteParams::default()).await.unwrap();
    let another = |not: String| {
        move |it: &super::scene::View| {
            it.ready("pool") == 1 && it.clusters.iter().all(|it| name(it) != not)
        }
    };
    let view = scene.wait("another one runs", another(first)).await;
    let second = name(&view.clusters[0]).to_owned();
    let spaces: Api<Namespace> = Api::all(scene.client.clone());
    spaces.delete(&second, &DeleteParams::default()).await.unwrap();
    let view = scene.wait("a third one runs", another(second)).await;
    assert_eq!(view.holder("a"), name(&view.clusters[0]));
}

#[tokio::test]
async fn a_cluster_without_an_entry_that_is_gone_is_not_made_again_under_its_name() {
    let (scene, _hive) = Scene::new("newname").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    // The next one waits for the end of the one before.
    scene.pool("plain", 1, &[], json!({ "maxConcurrent": 1 })).await;
    let view = scene.wait("it runs", |it| it.ready("plain") == 1).await;
    let first = name(&view.clusters[0]).to_owned();
    let clusters = bench::hive::api(&scene.client, &first, "ClusterDeployment");
    clusters.delete(&first, &DeleteParams::default()).await.unwrap();
    scene
        .wait("another one runs", |it| {
            it.ready("plain") == 1 && it.clusters.iter().all(|it| name(it) != first)
        })
        .await;
    let spaces: Api<Namespace> = Api::all(scene.client.clone());
    scene
        .until("its namespace goes, long before the grace is over", async |_| {
            let left = spaces.get_opt(&first).await.unwrap();
            left.is_none_or(|it| it.metadata.deletion_timestamp.is_some())
        })
        .await;
}

#[tokio::test]
async fn a_lease_that_is_taken_away_from_a_living_cluster_is_put_back() {
    let (scene, _hive) = Scene::new("putback").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let cluster = scene.one_runs().await;
    let free = json!({ "status": {
        "clusterDeploymentRef": null, "clusterPoolRef": null, "conditions": null,
    }});
    let entries = scene.api("ClusterDeploymentCustomization");
    entries.patch_status("a", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    let view = scene.wait("it is leased again", |it| it.holder("a") == cluster).await;
    assert_eq!(view.clusters.len(), 1);
}

#[tokio::test]
async fn a_lease_that_names_another_pool_by_mistake_costs_no_cluster_and_is_put_right() {
    let (scene, _hive) = Scene::new("mistaken").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let cluster = scene.one_runs().await;
    scene.pool("other", 1, &["a"], json!({})).await;
    let entries = scene.api("ClusterDeploymentCustomization");
    for wrong in ["other", "gone"] {
        let wrong = json!({ "status": { "clusterPoolRef": { "name": wrong } } });
        entries.patch_status("a", &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
        let view = scene
            .wait("it names the pool of its cluster", |it| {
                it.entry("a")["status"]["clusterPoolRef"]["name"] == "pool"
            })
            .await;
        assert_eq!((view.clusters.len(), view.holder("a")), (1, cluster.as_str()), "{view}");
        assert!(view.clusters[0]["metadata"]["deletionTimestamp"].is_null(), "{view}");
    }
}

/// A process that stopped left lease and namespace of a cluster: one of the release before, which noted nothing on the namespace,
/// or Hive's own controller.
#[tokio::test]
async fn a_half_made_cluster_of_nobody_knows_what_gets_another_name_and_its_namespace_goes() {
    for (name, by_us) in [("unnoted", true), ("hives", false)] {
        let (scene, _hive) = Scene::new(name).await;
        let cluster = format!("{}-half", scene.namespace);
        scene.entries(&["a"]).await;
        scene.pool("pool", 1, &["a"], json!({})).await;
        let pool = scene.api("ClusterPool").get("pool").await.unwrap();
        let owner = format!("{}/pool/{}", scene.namespace, pool.uid().unwrap_or_default());
        let noted = if by_us { json!({ "ferrite.metal3.io/pool": owner }) } else { json!({}) };
        let space = json!({ "metadata": {
            "name": cluster,
            "labels": { "hive.openshift.io/cluster-pool-name": "pool" },
            "annotations": noted,
        }});
        let spaces: Api<Namespace> = Api::all(scene.client.clone());
        let space = serde_json::from_value(space).unwrap();
        spaces.create(&PostParams::default(), &space).await.unwrap();
        scene.keep(&["a"], "hive.openshift.io/inventory-lease").await;
        let lease = json!({ "status": {
            "clusterDeploymentRef": { "name": cluster, "namespace": cluster },
            "clusterPoolRef": { "name": "pool" },
            "conditions": [{
                "type": "Available", "status": "False", "message": "in use",
                "reason": "ClusterDeploymentCustomizationInUse",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }});
        let entries = scene.api("ClusterDeploymentCustomization");
        entries.patch_status("a", &PatchParams::default(), &Patch::Merge(lease)).await.unwrap();
        let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
        let view = scene.wait("another one runs", |it| it.ready("pool") == 1).await;
        let made = self::name(&view.clusters[0]);
        assert!(made != cluster && view.holder("a") == made, "{made}");
        let left = spaces.get_opt(&cluster).await.unwrap();
        let stays = left.is_some_and(|it| it.metadata.deletion_timestamp.is_none());
        assert_eq!(stays, !by_us, "Hive's is left to Hive");
    }
}

#[tokio::test]
async fn what_is_deleted_before_hive_needs_it_is_made_again() {
    let (scene, hive) = Scene::new("parts").await;
    hive.hold("a");
    let policy = Policy { namespace_grace: Duration::from_secs(5), ..Policy::default() };
    let _running = start(plane().await, &[&scene.namespace], policy).await;
    scene.entries(&["a"]).await;
    scene.pool("pool", 1, &["a"], json!({})).await;
    let paused = |it: &serde_json::Value| {
        it["metadata"]["annotations"]["hive.openshift.io/reconcile-pause"].is_string()
    };
    let view =
        scene.wait("it may install", |it| it.clusters.len() == 1 && !paused(&it.clusters[0])).await;
    let cluster = name(&view.clusters[0]).to_owned();
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &cluster);
    let config = format!("{cluster}-install-config");
    let before = secrets.get(&config).await.unwrap();
    let all: Vec<String> = secrets
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    for secret in &all {
        secrets.delete(secret, &DeleteParams::default()).await.unwrap();
    }
    let all_back = async |_| {
        let there = secrets.list(&ListParams::default()).await.unwrap();
        all.iter().all(|name| there.iter().any(|it| it.name_any() == *name))
    };
    scene.until("all are back", all_back).await;
    assert_eq!(secrets.get(&config).await.unwrap().data, before.data);
    hive.go_on("a").await.unwrap();
    let view = scene.wait("it runs", |it| it.ready("pool") == 1).await;
    assert_eq!(name(&view.clusters[0]), cluster);
}

#[tokio::test]
async fn a_pool_that_is_deleted_while_it_fills_leaves_nothing() {
    let (scene, hive) = Scene::new("midway").await;
    hive.hold("*");
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let names: Vec<String> = (0..20).map(|it| format!("e{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    scene.entries(&names).await;
    scene.pool("pool", 20, &names, json!({})).await;
    scene.wait("the first clusters are there", |it| !it.clusters.is_empty()).await;
    scene.delete("ClusterPool", "pool").await;
    scene
        .until("nothing is left", async |it| {
            it.pools.is_empty()
                && scene.clusters("pool").await.is_empty()
                && it.entries.iter().all(|it| {
                    it["metadata"]["finalizers"].is_null()
                        && it["status"]["clusterDeploymentRef"].is_null()
                })
        })
        .await;
}

#[tokio::test]
async fn a_protected_cluster_is_not_deleted() {
    let (scene, _hive) = Scene::new("protected").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b"]).await;
    scene.pool("pool", 2, &["a", "b"], json!({})).await;
    let view = scene.wait("both run", |it| it.ready("pool") == 2).await;
    let kept = name(&view.clusters[0]).to_owned();
    let clusters = bench::hive::api(&scene.client, &kept, "ClusterDeployment");
    let mark =
        json!({ "metadata": { "annotations": { "hive.openshift.io/protected-delete": "true" } } });
    clusters.patch(&kept, &PatchParams::default(), &Patch::Merge(mark)).await.unwrap();
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": 0 } })).await;
    let view = scene.wait("the other one is gone", |it| it.clusters.len() == 1).await;
    assert_eq!(name(&view.clusters[0]), kept);
    assert!(view.clusters[0]["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn what_a_stopped_process_left_of_a_pool_that_is_gone_is_removed() {
    let (scene, _hive) = Scene::new("orphans").await;
    scene.entries(&["kept", "leased"]).await;
    // Put there by a process that had not heard of the pool's end.
    scene.keep(&["kept", "leased"], "hive.openshift.io/inventory-lease").await;
    let cluster = format!("{}-gone", scene.namespace);
    let lease = json!({ "status": {
        "clusterDeploymentRef": { "name": cluster, "namespace": cluster },
        "clusterPoolRef": { "name": "gone" },
        "conditions": [{
            "type": "Available", "status": "False", "message": "in use",
            "reason": "ClusterDeploymentCustomizationInUse",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }});
    let entries = scene.api("ClusterDeploymentCustomization");
    entries.patch_status("leased", &PatchParams::default(), &Patch::Merge(lease)).await.unwrap();
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene
        .wait("both are free", |it| {
            it.holder("leased").is_empty()
                && it.entries.iter().all(|it| it["metadata"]["finalizers"].is_null())
        })
        .await;
}
