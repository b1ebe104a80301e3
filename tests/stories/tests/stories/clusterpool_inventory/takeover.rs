//! A pool of Hive's own controller, with what that leaves behind, is taken over.

use api_types::hive::ClusterPoolSpec;
use clusterpool_inventory::pool_version::pool_version;
use clusterpool_inventory::settings::Policy;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::ground::{plane, start};
use super::scene::{Scene, condition, name};

/// A cluster as Hive's controller leaves it: in its namespace, with its hash and without any finalizer of ours.
async fn cluster(scene: &Scene, cluster: &str, hash: &str, reference: Value) {
    space(scene, cluster).await;
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeployment",
        "metadata": {
            "name": cluster,
            "labels": { bench::hive::PLAYED_BY: scene.namespace },
            "annotations": { "hive.openshift.io/cluster-pool-spec-hash": hash },
        },
        "spec": {
            "clusterName": cluster,
            "baseDomain": "example.com",
            "installed": true,
            "platform": { "openstack": { "cloud": "here", "credentialsSecretRef": { "name": "x" } } },
            "provisioning": { "imageSetRef": { "name": "release" } },
            "clusterPoolRef": reference,
        },
    }))
    .unwrap();
    let api = bench::hive::api(&scene.client, cluster, "ClusterDeployment");
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn space(scene: &Scene, cluster: &str) {
    let space: Namespace = serde_json::from_value(json!({ "metadata": {
        "name": cluster, "labels": { "hive.openshift.io/cluster-pool-name": "pool" },
    }}))
    .unwrap();
    let api: Api<Namespace> = Api::all(scene.client.clone());
    api.create(&PostParams::default(), &space).await.unwrap();
}

async fn lease(scene: &Scene, entry: &str, status: Value) {
    let mut status = status;
    let condition = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "False", "reason": reason, "message": "no",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let failed = condition("ApplySucceeded", "BrokenByCloud");
    status["conditions"] = json!([condition("Available", "Reserved"), failed]);
    let patch = Patch::Merge(json!({ "status": status }));
    let api = scene.api("ClusterDeploymentCustomization");
    api.patch_status(entry, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_pool_of_hives_own_controller_is_taken_over_without_making_a_cluster_anew() {
    let (scene, _hive) = Scene::new("takeover").await;
    scene.entries(&["a", "torn", "half", "free"]).await;
    // Hive knows the list only.
    let list = json!([{ "name": "a" }, { "name": "torn" }, { "name": "half" }, { "name": "free" }]);
    scene.pool("pool", 2, &[], json!({ "inventory": list })).await;
    let pool = scene.api("ClusterPool").get("pool").await.unwrap();
    let spec: ClusterPoolSpec = serde_json::from_value(pool.data["spec"].clone()).unwrap();
    let (version, hash) = (pool_version(&spec), "0123456789abcdef");
    let (here, gone) = (format!("{}-here", scene.namespace), format!("{}-gone", scene.namespace));
    let reference = |entry: &str| {
        json!({
            "namespace": scene.namespace, "poolName": "pool",
            "clusterDeploymentCustomization": { "name": entry },
        })
    };
    cluster(&scene, &here, hash, reference("a")).await;
    // Hive's finalizer for the pool on all that it lists.
    scene.keep(&["a", "torn", "half", "free"], "hive.openshift.io/pool").await;
    let refs = |cluster: &str| json!({ "clusterDeploymentRef": { "name": cluster }, "clusterPoolRef": { "name": "pool" } });
    lease(&scene, "a", refs(&here)).await;
    // Stopped between the lease and its references; and between those and the namespace.
    lease(&scene, "torn", json!({})).await;
    lease(&scene, "half", refs(&gone)).await;
    let before = scene.clusters("pool").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let view = scene
        .wait("two clusters run, all leases are whole", |it| {
            it.ready("pool") == 2
                && it.word("pool", "a") == "Reserved"
                && it.word("pool", "half") == "Reserved"
                && it.word("pool", "torn") == "Available"
        })
        .await;
    let names: Vec<&str> = view.clusters.iter().map(name).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&here.as_str()) && names.contains(&gone.as_str()), "{names:?}");
    let kept = view.clusters.iter().find(|it| name(it) == here).unwrap();
    assert_eq!(kept["metadata"]["uid"], before[0]["metadata"]["uid"]);
    let finalizers = kept["metadata"]["finalizers"].to_string();
    assert!(finalizers.contains("hive.openshift.io/clusterpool-inventory"), "{finalizers}");
    assert_eq!(condition(view.pool("pool"), "AllClustersCurrent").0, "True");
    let noted = &view.pool("pool")["metadata"]["annotations"]["ferrite.metal3.io/adopted-version"];
    assert_eq!(*noted, version.note(hash));
    assert_eq!(view.holder("a"), here);
    assert_eq!(view.holder("torn"), "");
    let said = view.entry("torn")["status"]["conditions"].to_string();
    assert!(!said.contains("ApplySucceeded"), "{said}");
    // What is free can be deleted, and what is in use as soon as it is free.
    for entry in ["torn", "free"] {
        scene.delete("ClusterDeploymentCustomization", entry).await;
    }
    scene
        .wait("deleted entries go, and Hive's finalizer is off the others", |it| {
            it.entries.len() == 2
                && it.entries.iter().all(|it| {
                    let all = it["metadata"]["finalizers"].to_string();
                    !all.contains("hive.openshift.io/pool") && all.contains("inventory-lease")
                })
        })
        .await;
}

#[tokio::test]
async fn hives_finalizer_for_a_pool_that_is_gone_keeps_no_entry_that_nobody_uses() {
    let (scene, _hive) = Scene::new("oldpool").await;
    scene.entries(&["listed", "left"]).await;
    scene.keep(&["listed", "left"], "hive.openshift.io/gone").await;
    scene.pool("pool", 1, &["listed"], json!({})).await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene
        .wait("one is used, and the other one is let go", |it| {
            it.ready("pool") == 1 && it.entry("left")["metadata"]["finalizers"].is_null()
        })
        .await;
    scene.delete("ClusterDeploymentCustomization", "listed").await;
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": 0 } })).await;
    scene.wait("it goes once it is free", |it| *it.entry("listed") == Value::Null).await;
}

#[tokio::test]
async fn a_living_cluster_that_was_given_an_entry_by_hand_keeps_it() {
    let (scene, _hive) = Scene::new("byhand").await;
    let there = format!("{}-hand", scene.namespace);
    space(&scene, &there).await;
    let theirs: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeployment",
        "metadata": { "name": "foo" },
        "spec": { "clusterName": "foo", "baseDomain": "example.com", "platform": { "none": {} } },
    }))
    .unwrap();
    let api = bench::hive::api(&scene.client, &there, "ClusterDeployment");
    api.create(&PostParams::default(), &theirs).await.unwrap();
    scene.entries(&["a"]).await;
    lease(&scene, "a", json!({ "clusterDeploymentRef": { "name": "foo", "namespace": there } }))
        .await;
    scene.pool("pool", 1, &["a"], json!({})).await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let view = scene.wait("it is theirs", |it| it.word("pool", "a") == "Unavailable").await;
    assert!(view.clusters.is_empty());
    assert_eq!(view.holder("a"), "foo");
    api.delete("foo", &DeleteParams::default()).await.unwrap();
    scene.wait("it is used when that is gone", |it| it.ready("pool") == 1).await;
}
