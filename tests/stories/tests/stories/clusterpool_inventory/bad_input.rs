//! What cannot be used is told with what to change, and the pool goes on with the rest.

use clusterpool_inventory::settings::Policy;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use super::ground::{plane, start};
use super::scene::{Scene, TEMPLATE, View, condition, name};

async fn template(scene: &Scene, bytes: &[u8]) {
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let data = json!({ "data": { "install-config.yaml": ByteString(bytes.to_vec()) } });
    secrets.patch("template", &PatchParams::default(), &Patch::Merge(data)).await.unwrap();
}

#[tokio::test]
async fn a_template_that_cannot_be_used_is_told_and_taken_once_it_is_corrected() {
    let (scene, _hive) = Scene::new("template").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let several = format!("{TEMPLATE}---\n{TEMPLATE}");
    template(&scene, several.as_bytes()).await;
    scene.entries(&["a"]).await;
    scene.pool("pool", 1, &["a"], json!({})).await;
    let lacking = |word: &'static str| {
        move |it: &super::scene::View| {
            condition(it.pool("pool"), "MissingDependencies").2.contains(word)
        }
    };
    scene.wait("several documents are told", lacking("several YAML documents")).await;
    template(&scene, &[0xff, 0xfe, 0]).await;
    scene.wait("binary is told", lacking("not text in UTF-8")).await;
    template(&scene, b"- a list").await;
    scene.wait("a list is told", lacking("a list")).await;
    template(&scene, TEMPLATE.as_bytes()).await;
    scene.wait("it runs", |it| it.ready("pool") == 1).await;
}

#[tokio::test]
async fn a_pool_whose_clusters_are_refused_says_so_and_makes_no_namespace_after_the_other() {
    let (scene, _hive) = Scene::new("refused").await;
    let (_running, _) = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let labels = json!({ bench::hive::PLAYED_BY: scene.namespace, "wrong": "not a label!" });
    let name = format!("{}-pool", scene.namespace);
    scene.pool(&name, 1, &[], json!({ "labels": labels })).await;
    let capacity = |it: &super::scene::View| {
        let (status, reason, message) = condition(it.pool(&name), "CapacityAvailable");
        (status.to_owned(), reason.to_owned(), message.to_owned())
    };
    let view = scene
        .wait("it says so", |it| capacity(it).1 == "Refused" && capacity(it).0 == "False")
        .await;
    assert_eq!(condition(view.pool(&name), "MissingDependencies").0, "False");
    let told = capacity(&view).2;
    assert!(told.contains("The first one was: ") && told.contains("not a label!"), "{told}");
    let spaces: Api<Namespace> = Api::all(scene.client.clone());
    let selector = format!("hive.openshift.io/cluster-pool-name={name}");
    let of_pool = ListParams::default().labels(&selector);
    // Several tries later.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(spaces.list(&of_pool).await.unwrap().items.len(), 1);
    let labels = json!({ "labels": { "wrong": null } });
    scene.patch("ClusterPool", &name, json!({ "spec": labels })).await;
    let view = scene
        .wait("it runs once it is corrected, and nothing is refused any more", |it| {
            it.ready(&name) == 1 && capacity(it).0 == "True"
        })
        .await;
    let first = spaces.list(&of_pool).await.unwrap().items;
    assert_eq!(super::scene::name(&view.clusters[0]), first[0].name_any());
}

#[tokio::test]
async fn an_entry_whose_cluster_is_refused_says_so_until_the_cluster_is_there() {
    let (scene, _hive) = Scene::new("turned").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a"]).await;
    let labels = json!({ bench::hive::PLAYED_BY: scene.namespace, "wrong": "not a label!" });
    scene.pool("pool", 1, &["a"], json!({ "labels": labels })).await;
    let entry = |it: &super::scene::View| it.pool("pool")["status"]["inventory"]["a"].clone();
    let told = scene.wait("it is told", |it| entry(it)["lastFailure"]["reason"] == "Refused").await;
    assert_eq!(entry(&told)["attempts"], 3, "it costs no attempt");
    let labels = json!({ "labels": { "wrong": null } });
    scene.patch("ClusterPool", "pool", json!({ "spec": labels })).await;
    scene
        .wait("it runs and nothing is left", |it| {
            it.ready("pool") == 1 && entry(it)["lastFailure"].is_null()
        })
        .await;
}

#[tokio::test]
async fn credentials_that_no_cluster_can_do_without_are_asked_for() {
    let (scene, _hive) = Scene::new("unnamed").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let cloud = json!({ "cloud": "here", "credentialsSecretRef": { "name": "" } });
    scene.pool("pool", 1, &[], json!({ "platform": { "openstack": cloud } })).await;
    scene
        .wait("it is told", |it| {
            let (_, _, message) = condition(it.pool("pool"), "MissingDependencies");
            message.contains("names no secret")
        })
        .await;
    let cloud = json!({ "openstack": { "credentialsSecretRef": { "name": "cloud" } } });
    scene.patch("ClusterPool", "pool", json!({ "spec": { "platform": cloud } })).await;
    scene.wait("it runs", |it| it.ready("pool") == 1).await;
}

#[tokio::test]
async fn a_reference_that_cannot_be_read_is_told_and_holds_up_neither_claims_nor_the_pools_end() {
    let (scene, _hive) = Scene::new("unread").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a"]).await;
    scene.pool("pool", 1, &["a"], json!({})).await;
    scene.wait("it runs", |it| it.ready("pool") == 1).await;
    let wrong = json!({ "spec": { "pullSecretRef": { "name": "<x>" } } });
    scene.patch("ClusterPool", "pool", wrong).await;
    scene
        .wait("it is told", |it| {
            let (_, _, message) = condition(it.pool("pool"), "MissingDependencies");
            message.contains("Secret <x> of spec.pullSecretRef cannot be read")
        })
        .await;
    scene.claim("mine", "pool").await;
    scene
        .wait("the claim is served", |it| {
            // Hive's finalizer is on it: its end is noticed.
            it.claim("mine")["metadata"]["finalizers"].is_array()
                && it.clusters.iter().any(|it| it["spec"]["clusterPoolRef"]["claimName"] == "mine")
        })
        .await;
    scene.delete("ClusterPool", "pool").await;
    scene.delete("ClusterClaim", "mine").await;
    scene.wait("the pool is gone", |it| it.pools.is_empty()).await;
}

#[tokio::test]
async fn entries_of_every_size_and_name_are_used_or_told() {
    let (scene, _hive) = Scene::new("sizes").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let long = "n".repeat(253);
    scene.entry(&long, json!([])).await;
    let large = "x".repeat(1_000_000);
    scene.entry("large", json!([{ "op": "add", "path": "/large", "value": large }])).await;
    scene.entry("platform", json!([{ "op": "remove", "path": "/platform" }])).await;
    scene.entry("json", json!([{ "op": "add", "path": "/x", "valueJSON": "{" }])).await;
    let pool = "p".repeat(63);
    // Twice the same.
    scene.pool(&pool, 2, &["large", "platform", "json", &long, &long], json!({})).await;
    let attempts = json!({ "ferrite.metal3.io/provision-attempts": "many" });
    scene.patch("ClusterPool", &pool, json!({ "metadata": { "annotations": attempts } })).await;
    let runs = |it: &View| it.ready(&pool) == 1 && it.word(&pool, &long) == "Reserved";
    let view = scene.wait("it runs", runs).await;
    assert!(name(&view.clusters[0]).len() <= 63);
    let state = |entry: &str| view.pool(&pool)["status"]["inventory"][entry].clone();
    assert_eq!(state(&long)["attempts"], 3);
    for (entry, word) in
        [("large", "larger than"), ("platform", "lacks platform"), ("json", "valueJSON")]
    {
        assert_eq!(state(entry)["status"], "Broken by configuration", "{entry}");
        let told = state(entry)["lastFailure"]["message"].as_str().unwrap().to_owned();
        assert!(told.contains(word), "{entry}: {told}");
    }
    let (status, _, message) = condition(view.pool(&pool), "InventoryValid");
    assert!(
        status == "False" && message.starts_with("1 of 4 entries for a size of 2"),
        "{message}"
    );
}

#[tokio::test]
async fn with_strict_pointers_and_lenient_replace_patches_are_read_as_wanted() {
    let (scene, _hive) = Scene::new("strict").await;
    let rules =
        clusterpool_inventory::patch::Rules { strict_pointers: true, lenient_replace: true };
    let policy = Policy { rules, ..Policy::default() };
    let _running = start(plane().await, &[&scene.namespace], policy).await;
    scene.entry("slash", json!([{ "op": "replace", "path": "baseDomain", "value": "x" }])).await;
    scene.entry("new", json!([{ "op": "replace", "path": "/new", "value": "x" }])).await;
    scene.pool("pool", 1, &["slash", "new"], json!({})).await;
    let runs =
        |it: &View| it.ready("pool") == 1 && it.word("pool", "slash") == "Broken by configuration";
    let view = scene.wait("it runs, and the entry is told", runs).await;
    assert_eq!(view.of_entry("new").len(), 1);
}
