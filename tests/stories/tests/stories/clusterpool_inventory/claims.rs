//! Claims: first served, whatever else is under way, and what becomes of a claimed cluster.

use clusterpool_inventory::settings::Policy;
use serde_json::json;

use super::ground::{plane, start};
use super::scene::{Scene, condition, entry_of, name};

#[tokio::test]
async fn a_claim_gets_a_running_cluster_and_the_pool_makes_another_one() {
    let (scene, _hive) = Scene::new("claim").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b"]).await;
    scene.claim("early", "pool").await;
    scene.pool("pool", 1, &["a", "b"], json!({})).await;
    let view = scene
        .wait("the claim has a cluster", |it| {
            it.clusters.iter().any(|it| it["spec"]["clusterPoolRef"]["claimName"] == "early")
                && it.ready("pool") == 2
        })
        .await;
    let cluster = view.claim("early")["spec"]["namespace"].as_str().unwrap();
    let found = view.clusters.iter().find(|it| name(it) == cluster).unwrap();
    assert!(found["spec"]["clusterPoolRef"]["claimedTimestamp"].is_string());
    assert_eq!(found["spec"]["powerState"], "Running");
    // A claim that finds none is told so.
    scene.claim("late", "pool").await;
    scene.claim("later", "pool").await;
    let view = scene
        .wait("the last one waits", |it| {
            ["late", "later"].iter().any(|claim| {
                condition(it.claim(claim), "Pending").1 == "NoClusters"
                    && it.claim(claim)["spec"]["namespace"].is_null()
            })
        })
        .await;
    assert_eq!(view.of("pool").len(), 2);
    // The first claim's end frees its entry for another cluster, which the last one gets.
    scene.delete("ClusterClaim", "early").await;
    scene
        .wait("all are served", |it| {
            ["late", "later"].iter().all(|claim| !it.claim(claim)["spec"]["namespace"].is_null())
                && it.clusters.iter().all(|it| name(it) != cluster)
        })
        .await;
}

#[tokio::test]
async fn a_claim_does_not_wait_until_a_pool_that_grows_has_all_its_clusters() {
    const MANY: usize = 250;
    let (scene, _hive) = Scene::new("grows").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let names: Vec<String> = (0..MANY).map(|it| format!("e{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    scene.entries(&names).await;
    scene.pool("pool", 1, &names, json!({})).await;
    scene.wait("one runs", |it| it.ready("pool") == 1).await;
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": MANY } })).await;
    // The others are being made.
    scene.wait("it grows", |it| it.clusters.len() > 10).await;
    scene.claim("mine", "pool").await;
    let view = scene
        .wait("the claim is served", |it| !it.claim("mine")["spec"]["namespace"].is_null())
        .await;
    assert!(view.clusters.len() < MANY * 3 / 4, "{} clusters first", view.clusters.len());
}

#[tokio::test]
async fn on_a_cloud_with_hibernation_as_many_run_as_wanted_and_a_claim_wakes_one() {
    let (scene, _hive) = Scene::new("sleep").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let cloud = json!({ "aws": { "region": "here", "credentialsSecretRef": { "name": "cloud" } } });
    let more =
        json!({ "platform": cloud, "runningCount": 0, "installConfigSecretTemplateRef": null });
    scene.entries(&["a", "b"]).await;
    scene.pool("pool", 2, &["a", "b"], more).await;
    scene
        .wait("both sleep", |it| {
            it.pool("pool")["status"]["standby"] == 2
                && it.clusters.iter().all(|it| it["status"]["powerState"] == "Hibernating")
        })
        .await;
    scene.claim("mine", "pool").await;
    let view = scene
        .wait("one is woken and given", |it| {
            it.clusters.iter().any(|it| {
                it["spec"]["clusterPoolRef"]["claimName"] == "mine"
                    && it["status"]["powerState"] == "Running"
            })
        })
        .await;
    let given = view.claim("mine")["spec"]["namespace"].as_str().unwrap();
    let cluster = view.clusters.iter().find(|it| name(it) == given).unwrap();
    assert!(["a", "b"].contains(&entry_of(cluster)));
    // The pool wants two asleep again, and has no third entry.
    assert_eq!(view.of("pool").len(), 2);
}

#[tokio::test]
async fn a_claimed_cluster_outlives_its_pools_wish_and_the_pool_its_own_deletion_for_it() {
    let (scene, _hive) = Scene::new("outlive").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b"]).await;
    scene.pool("pool", 2, &["a", "b"], json!({ "runningCount": 1 })).await;
    scene.wait("both run", |it| it.ready("pool") == 2).await;
    scene.claim("mine", "pool").await;
    let view = scene
        .wait("it is claimed", |it| {
            it.clusters.iter().any(|it| it["spec"]["clusterPoolRef"]["claimName"] == "mine")
        })
        .await;
    let given = view.claim("mine")["spec"]["namespace"].as_str().unwrap().to_owned();
    scene.delete("ClusterPool", "pool").await;
    let view = scene.wait("only the claimed one is left", |it| it.clusters.len() == 1).await;
    assert_eq!(name(&view.clusters[0]), given);
    let view = scene
        .wait("the pool says what it waits for", |it| {
            condition(it.pool("pool"), "DeletionPossible").2.contains(&given)
        })
        .await;
    let entry = entry_of(&view.clusters[0]).to_owned();
    assert_eq!(view.holder(&entry), given);
    scene.delete("ClusterClaim", "mine").await;
    // With the pool out of sight its clusters are looked for by its name.
    scene
        .until("nothing is left", async |it| {
            it.pools.is_empty()
                && scene.clusters("pool").await.is_empty()
                && it.entries.iter().all(|it| it["metadata"]["finalizers"].is_null())
                && it.holder(&entry).is_empty()
        })
        .await;
}
