//! The life of an entry: its eight statuses, reached and left, and what becomes of its cluster.

use clusterpool_inventory::settings::Policy;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::ground::{plane, start};
use super::scene::{Scene, condition, name};
use crate::plugin::ask_as_admin;

async fn events(scene: &Scene) -> Vec<(String, String, String)> {
    let api: Api<Event> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let all = api.list(&ListParams::default()).await.unwrap().items;
    all.into_iter()
        .map(|it| {
            let about = it.regarding.and_then(|it| it.name).unwrap_or_default();
            (about, it.reason.unwrap_or_default(), it.note.unwrap_or_default())
        })
        .collect()
}

#[tokio::test]
async fn a_bad_patch_is_broken_by_configuration_and_the_next_entry_is_used_in_its_place() {
    let (scene, _hive) = Scene::new("badpatch").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entry("bad", json!([{ "op": "replace", "path": "/nothing", "value": "x" }])).await;
    scene.entries(&["good"]).await;
    // No cluster is wanted yet.
    scene.pool("pool", 0, &["bad", "good"], json!({})).await;
    let view = scene
        .wait("the entry is broken", |it| it.word("pool", "bad") == "Broken by configuration")
        .await;
    assert!(view.clusters.is_empty());
    let (status, _, message) = condition(view.pool("pool"), "InventoryValid");
    assert_eq!(status, "False");
    for word in ["bad", "operation 1", "/nothing", "use op add"] {
        assert!(message.contains(word), "{word} is not in {message}");
    }
    let failure = &view.pool("pool")["status"]["inventory"]["bad"]["lastFailure"];
    assert_eq!(failure["reason"], "BadPatch");
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": 1 } })).await;
    let view = scene.wait("a cluster runs", |it| it.ready("pool") == 1).await;
    assert_eq!(view.of_entry("good").len(), 1);
    assert!(view.entry("bad")["status"].is_null());
    let told = events(&scene).await;
    assert!(
        told.iter().any(|it| it.1 == "BrokenByConfiguration" && it.2.contains("operation 1")),
        "{told:?}"
    );
    // Corrected, it is free.
    let spec = json!({ "installConfigPatches": [] });
    scene.patch("ClusterDeploymentCustomization", "bad", json!({ "spec": spec })).await;
    let view = scene.wait("it is free", |it| it.word("pool", "bad") == "Available").await;
    assert_eq!(condition(view.pool("pool"), "InventoryValid").0, "True");
    assert!(view.pool("pool")["status"]["inventory"]["bad"]["lastFailure"].is_null());
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_is_told_and_not_used_and_a_cluster_of_one_stays() {
    let (scene, _hive) = Scene::new("odd").await;
    // The API server takes any two digits for an offset.
    let marked = async |entry: &str, kind: &str, status: &str, offset: &str| {
        let condition = json!({
            "type": kind, "status": status, "reason": "ClusterDeploymentCustomizationInUse",
            "message": "by hand", "lastTransitionTime": format!("2026-01-01T00:00:00{offset}"),
        });
        let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
        let entries = scene.api("ClusterDeploymentCustomization");
        entries.patch_status(entry, &PatchParams::default(), &patch).await.unwrap();
    };
    scene.entries(&["never", "good"]).await;
    marked("never", "Odd", "True", "+99:99").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.pool("pool", 1, &["never", "good"], json!({})).await;
    let view = scene
        .wait("the next one is used", |it| {
            it.ready("pool") == 1 && it.word("pool", "never") == "Broken by configuration"
        })
        .await;
    let cluster = name(view.of_entry("good")[0]).to_owned();
    let failure = &view.pool("pool")["status"]["inventory"]["never"]["lastFailure"];
    let why = failure["message"].as_str().unwrap();
    assert!(why.starts_with("it cannot be read") && why.ends_with("correct it"), "{why}");
    let (status, _, message) = condition(view.pool("pool"), "InventoryValid");
    assert_eq!(status, "False");
    assert!(message.contains("Broken by configuration: never"), "{message}");
    scene
        .until("the pool's owner is told", async |_| {
            let all = events(&scene).await;
            all.iter().any(|it| it.1 == "BrokenByConfiguration" && it.2.contains("cannot be read"))
        })
        .await;
    // The same with one that is in use.
    marked("good", "Available", "False", "+99:99").await;
    for entry in ["never", "good"] {
        scene
            .until("the entry's owner is told", async |_| {
                let all = events(&scene).await;
                all.iter().any(|it| it.0 == entry && it.1 == "Undecodable")
            })
            .await;
    }
    let said = "good: its patches cannot be applied: it cannot be read";
    let view = scene
        .wait("its pool tells, too", |it| {
            condition(it.pool("pool"), "InventoryValid").2.contains(said)
        })
        .await;
    assert_eq!((view.clusters.len(), view.ready("pool")), (1, 1), "{view}");
    assert_eq!((view.word("pool", "good"), view.holder("good")), ("Reserved", cluster.as_str()));
    // Corrected, both are what they were.
    marked("never", "Odd", "True", "Z").await;
    marked("good", "Available", "False", "Z").await;
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": 2 } })).await;
    let view = scene.wait("the other one is used", |it| it.ready("pool") == 2).await;
    assert_eq!((view.of_entry("never").len(), view.holder("good")), (1, cluster.as_str()));
}

#[tokio::test]
async fn a_path_without_its_slash_is_meant_with_one_and_its_author_is_told() {
    let (scene, _hive) = Scene::new("slash").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let patches = json!([{ "op": "replace", "path": "metadata/name", "value": "foo" }]);
    let object =
        json!({ "metadata": { "name": "a" }, "spec": { "installConfigPatches": patches } });
    scene.create("ClusterDeploymentCustomization", object).await;
    scene.pool("pool", 1, &["a"], json!({})).await;
    let view = scene.wait("a cluster runs", |it| it.ready("pool") == 1).await;
    let cluster = view.clusters[0].clone();
    assert_eq!(cluster["metadata"]["annotations"]["ferrite.metal3.io/installed-name"], "foo");
    scene
        .until("its author is told", async |_| {
            events(&scene)
                .await
                .iter()
                .any(|it| it.0 == "a" && it.1 == "PatchAdjusted" && it.2.contains("/metadata/name"))
        })
        .await;
}

#[tokio::test]
async fn an_entry_whose_clusters_fail_as_often_as_allowed_is_broken_by_cloud_until_it_is_edited() {
    let (scene, hive) = Scene::new("cloud").await;
    hive.fail("bad");
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["bad", "good"]).await;
    scene.pool("pool", 1, &["bad"], json!({})).await;
    let annotation = json!({ "ferrite.metal3.io/provision-attempts": "2" });
    scene.patch("ClusterPool", "pool", json!({ "metadata": { "annotations": annotation } })).await;
    let view = scene
        .wait("the entry is broken", |it| {
            it.word("pool", "bad") == "Broken by cloud" && it.clusters.is_empty()
        })
        .await;
    let state = &view.pool("pool")["status"]["inventory"]["bad"];
    assert_eq!(state["attempts"], 0);
    assert_eq!(state["lastFailure"]["reason"], "ProvisionStopped");
    assert!(state["lastFailure"]["message"].as_str().unwrap().contains("no address answers"));
    assert_eq!(view.holder("bad"), "");
    // The pool is not dead because of it.
    scene.list_entries("pool", &["bad", "good"]).await;
    scene.wait("the other one is used", |it| it.ready("pool") == 1).await;
    // Edited, it has all its attempts again.
    hive.go_on("bad").await.unwrap();
    let spec = json!({ "installConfigPatches": [
        { "op": "replace", "path": "/metadata/name", "value": "better" },
    ]});
    scene.patch("ClusterDeploymentCustomization", "bad", json!({ "spec": spec })).await;
    let view = scene.wait("it is free", |it| it.word("pool", "bad") == "Available").await;
    assert_eq!(view.pool("pool")["status"]["inventory"]["bad"]["attempts"], 2);
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": 2 } })).await;
    scene.wait("it is used again", |it| it.ready("pool") == 2).await;
}

#[tokio::test]
async fn a_person_gives_an_entry_another_try_by_an_annotation() {
    let (scene, hive) = Scene::new("retry").await;
    hive.fail("bad");
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["bad"]).await;
    scene.pool("pool", 1, &["bad"], json!({})).await;
    let annotations = json!({ "ferrite.metal3.io/provision-attempts": "1" });
    scene.patch("ClusterPool", "pool", json!({ "metadata": { "annotations": annotations } })).await;
    scene
        .wait("the entry is broken", |it| {
            it.word("pool", "bad") == "Broken by cloud" && it.clusters.is_empty()
        })
        .await;
    hive.go_on("bad").await.unwrap();
    let retry = || {
        let now = Timestamp::now().to_string();
        json!({ "metadata": { "annotations": { "ferrite.metal3.io/retry": now } } })
    };
    scene.patch("ClusterDeploymentCustomization", "bad", retry()).await;
    let view = scene.wait("it is used again", |it| it.ready("pool") == 1).await;
    let uid = view.clusters[0]["metadata"]["uid"].clone();
    let state = &view.pool("pool")["status"]["inventory"]["bad"];
    assert_eq!((&state["attempts"], &state["lastFailure"]), (&json!(1), &Value::Null));
    // Its cluster is as current as before.
    scene.patch("ClusterDeploymentCustomization", "bad", retry()).await;
    scene.claim("mine", "pool").await;
    scene
        .wait("a claim gets the same cluster", |it| {
            let mut all = it.clusters.iter();
            all.any(|it| {
                it["spec"]["clusterPoolRef"]["claimName"] == "mine" && it["metadata"]["uid"] == uid
            })
        })
        .await;
}

#[tokio::test]
async fn an_entry_that_is_not_there_is_missing_and_the_pool_goes_on_with_the_rest() {
    let (scene, _hive) = Scene::new("missing").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["b"]).await;
    scene.pool("pool", 2, &["a", "b"], json!({})).await;
    let view = scene.wait("a cluster runs", |it| it.ready("pool") == 1).await;
    assert_eq!(view.word("pool", "a"), "Missing");
    assert_eq!(condition(view.pool("pool"), "InventoryValid").0, "False");
    assert!(events(&scene).await.iter().any(|it| it.1 == "EntryMissing"));
    scene.entries(&["a"]).await;
    scene.wait("both run", |it| it.ready("pool") == 2 && it.word("pool", "a") == "Reserved").await;
}

#[tokio::test]
async fn an_edited_entry_is_to_be_updated_and_its_cluster_is_replaced_unless_it_is_claimed() {
    let (scene, _hive) = Scene::new("edited").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b"]).await;
    scene.pool("pool", 2, &["a", "b"], json!({})).await;
    scene.wait("both run", |it| it.ready("pool") == 2).await;
    scene.claim("mine", "pool").await;
    // The pool wants another cluster, and no entry is left.
    let view = scene
        .wait("the claim is served", |it| !it.claim("mine")["spec"]["namespace"].is_null())
        .await;
    let claimed = view.claim("mine")["spec"]["namespace"].as_str().unwrap().to_owned();
    let edit = |name: &str| {
        json!({ "spec": { "installConfigPatches": [
            { "op": "replace", "path": "/metadata/name", "value": format!("{name}-2") },
        ]}})
    };
    let before: Vec<String> = view.clusters.iter().map(|it| name(it).to_owned()).collect();
    for entry in ["a", "b"] {
        scene.patch("ClusterDeploymentCustomization", entry, edit(entry)).await;
    }
    let view = scene
        .wait("one is replaced", |it| {
            let words = ["a", "b"].map(|entry| it.word("pool", entry).to_owned());
            words.contains(&"Reserved".to_owned())
                && words.contains(&"To Be Updated".to_owned())
                && it.of("pool").len() == 2
                && it.ready("pool") == 2
                && it.clusters.iter().any(|it| !before.contains(&name(it).to_owned()))
        })
        .await;
    assert!(view.clusters.iter().any(|it| name(it) == claimed), "the claimed one is its user's");
    let new = view.clusters.iter().find(|it| name(it) != claimed).unwrap();
    let installed = &new["metadata"]["annotations"]["ferrite.metal3.io/installed-name"];
    assert!(installed.as_str().unwrap().ends_with("-2"), "{installed}");
    // Once the claim goes the entry is used at its new version.
    scene.delete("ClusterClaim", "mine").await;
    scene
        .wait("the other one is replaced", |it| {
            ["a", "b"].iter().all(|entry| it.word("pool", entry) == "Reserved")
                && it.ready("pool") == 2
                && it.clusters.iter().all(|it| name(it) != claimed)
        })
        .await;
}

#[tokio::test]
async fn a_removed_entry_goes_with_its_unclaimed_cluster_at_once_and_with_a_claimed_one_when_that_goes()
 {
    let (scene, hive) = Scene::new("removed").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b"]).await;
    scene.pool("pool", 2, &["a", "b"], json!({})).await;
    scene.wait("both run", |it| it.ready("pool") == 2).await;
    // The third comes later, so that these two are the ones that are removed.
    scene.entries(&["free"]).await;
    scene.list_entries("pool", &["a", "b", "free"]).await;
    scene.claim("mine", "pool").await;
    let view = scene
        .wait("three clusters, one of them claimed", |it| {
            it.of("pool").len() == 3 && it.claim("mine")["spec"]["namespace"].is_string()
        })
        .await;
    let claimed = view.claim("mine")["spec"]["namespace"].as_str().unwrap().to_owned();
    let entry =
        super::scene::entry_of(view.clusters.iter().find(|it| name(it) == claimed).unwrap());
    let (kept, entry) = (if entry == "a" { "b" } else { "a" }, entry.to_owned());
    hive.keep(kept);
    scene.list_entries("pool", &["free"]).await;
    // Both are on their way out; the status says so as long as there is a cluster.
    let view = scene
        .wait("both are to be deleted", |it| {
            it.word("pool", "a") == "To Be Deleted"
                && it.word("pool", "b") == "To Be Deleted"
                && it.of_entry(kept).iter().all(|it| !it["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
    assert!(view.of_entry(&entry)[0]["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(
        view.holder(kept),
        name(view.of_entry(kept)[0]),
        "a lease lasts as long as its cluster"
    );
    hive.go_on(kept).await.unwrap();
    scene.wait("the unclaimed one is gone", |it| it.word("pool", kept).is_empty()).await;
    let view = scene.view().await;
    assert_eq!(view.word("pool", &entry), "To Be Deleted");
    scene.delete("ClusterClaim", "mine").await;
    let view = scene.wait("the claimed one is gone", |it| it.word("pool", &entry).is_empty()).await;
    assert!(view.entry(&entry)["metadata"]["finalizers"].is_null(), "nobody needs it any more");
    assert_eq!(view.holder(&entry), "");
}

#[tokio::test]
async fn two_pools_that_share_an_entry_have_it_one_after_the_other() {
    let (scene, _hive) = Scene::new("shared").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b"]).await;
    scene.pool("one", 1, &["a"], json!({})).await;
    scene.wait("the first has it", |it| it.ready("one") == 1).await;
    scene.pool("two", 1, &["a"], json!({})).await;
    let view = scene.wait("the second sees that", |it| it.word("two", "a") == "Unavailable").await;
    assert!(view.of("two").is_empty());
    // With another entry the second goes on.
    scene.list_entries("two", &["a", "b"]).await;
    scene.wait("the second has the other", |it| it.ready("two") == 1).await;
    scene.patch("ClusterPool", "two", json!({ "spec": { "size": 2 } })).await;
    scene.delete("ClusterPool", "one").await;
    let view =
        scene.wait("the second has both", |it| it.ready("two") == 2 && it.pools.len() == 1).await;
    assert_eq!(view.word("two", "a"), "Reserved");
    assert_eq!(view.entry("a")["status"]["clusterPoolRef"]["name"], "two");
}

#[tokio::test]
async fn an_inventory_that_comes_makes_clusters_stale_and_one_that_goes_does_too() {
    let (scene, _hive) = Scene::new("whole").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b"]).await;
    scene.pool("pool", 2, &[], json!({})).await;
    scene.wait("both run", |it| it.ready("pool") == 2).await;
    scene.list_entries("pool", &["a", "b"]).await;
    let view = scene
        .wait("both are made of entries", |it| {
            it.ready("pool") == 2 && it.of_entry("a").len() == 1 && it.of_entry("b").len() == 1
        })
        .await;
    assert_eq!(view.clusters.len(), 2);
    scene.patch("ClusterPool", "pool", json!({ "spec": { "inventory": null } })).await;
    scene
        .wait("both are made without again", |it| {
            it.ready("pool") == 2
                && it.of_entry("").len() == 2
                && it.pool("pool")["status"]["inventory"].is_null()
                && ["a", "b"]
                    .iter()
                    .all(|entry| it.entry(entry)["metadata"]["finalizers"].is_null())
        })
        .await;
}

#[tokio::test]
async fn a_deleted_customization_goes_when_its_cluster_has_gone() {
    let (scene, _hive) = Scene::new("deleted").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a"]).await;
    scene.pool("pool", 1, &["a"], json!({})).await;
    scene.wait("it runs", |it| it.ready("pool") == 1).await;
    scene.delete("ClusterDeploymentCustomization", "a").await;
    let view = scene.view().await;
    assert!(view.entry("a")["metadata"]["deletionTimestamp"].is_string(), "it is leased");
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": 0 } })).await;
    scene
        .wait("it is gone and missing", |it| {
            *it.entry("a") == Value::Null && it.word("pool", "a") == "Missing"
        })
        .await;
}

#[tokio::test]
async fn why_a_pool_is_short_is_told_by_the_plugin() {
    let (scene, _hive) = Scene::new("short").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a"]).await;
    scene.pool("pool", 2, &["a"], json!({})).await;
    scene.claim("claim", "pool").await;
    scene
        .wait("it is short", |it| {
            let pool = it.pool("pool");
            condition(pool, "CapacityAvailable").1 == "NoFreeEntry"
                && !it.claim("claim")["spec"]["namespace"].is_null()
        })
        .await;
    let said = ask_as_admin(plane().await, &scene.namespace, &["pool", "pool", "-o", "json"]).await;
    let reasons: Vec<String> = said.chain().into_iter().map(|it| it.2).collect();
    assert!(reasons.contains(&"NoFreeEntry".to_owned()), "{reasons:?}");
    let told = said.json();
    let pool = &told["pool"];
    assert_eq!((&pool["wantedSize"], &pool["claims"]), (&json!(2), &json!(1)), "{pool:#}");
    assert_eq!(pool["entries"][0]["name"], "a");
    let said = ask_as_admin(plane().await, &scene.namespace, &["why", "cdc/a"]).await;
    assert!(said.code == 0 && said.out.contains("of ClusterPool pool uses it."), "{}", said.out);
}
