//! Whole pools: their deletion, their neighbours, and another controller beside us.

use std::time::Duration;

use bench::faults::Plan;
use clusterpool_inventory::controller;
use clusterpool_inventory::settings::{Policy, Pools};
use controller_kit::Kit;
use controller_kit::metrics::Metrics;
use controller_kit::shutdown::Shutdown;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::ground::{account, plane, start};
use super::scene::{Scene, View, condition, name};
use crate::in_process::{self, Running};

#[tokio::test]
async fn a_deleted_pool_leaves_no_cluster_namespace_lease_or_finalizer() {
    let (scene, _hive) = Scene::new("gone").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b"]).await;
    // A running count other than the size must not keep it.
    scene.pool("pool", 2, &["a", "b"], json!({ "runningCount": 1, "maxConcurrent": 1 })).await;
    let view = scene.wait("both run", |it| it.ready("pool") == 2).await;
    let names: Vec<String> = view.clusters.iter().map(|it| name(it).to_owned()).collect();
    scene.delete("ClusterPool", "pool").await;
    let spaces: Api<Namespace> = Api::all(scene.client.clone());
    scene
        .until("nothing is left", async |it| {
            let all = spaces.list(&ListParams::default()).await.unwrap().items;
            let left = all.iter().filter(|it| {
                names.contains(it.metadata.name.as_ref().unwrap())
                    && it.metadata.deletion_timestamp.is_none()
            });
            it.pools.is_empty()
                && left.count() == 0
                && scene.clusters("pool").await.is_empty()
                && it.entries.iter().all(|it| {
                    it["metadata"]["finalizers"].is_null()
                        && it["status"]["clusterDeploymentRef"].is_null()
                        && condition(it, "Available").0 == "True"
                })
        })
        .await;
}

#[tokio::test]
async fn a_namespace_that_another_cluster_lives_in_stays_when_the_pool_goes_and_goes_after_that_one()
 {
    let (scene, _hive) = Scene::new("lived").await;
    let policy = Policy { namespace_grace: Duration::from_secs(5), ..Policy::default() };
    let _running = start(plane().await, &[&scene.namespace], policy).await;
    let first = scene.one_runs().await;
    let clusters = bench::hive::api(&scene.client, &first, "ClusterDeployment");
    let mut spec = json!(clusters.get(&first).await.unwrap().data["spec"]);
    let known = spec.as_object_mut().unwrap();
    known.retain(|it, _| !it.starts_with("clusterPool"));
    let other = serde_json::from_value(json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
        "metadata": { "name": "other" }, "spec": spec,
    }));
    clusters.create(&PostParams::default(), &other.unwrap()).await.unwrap();
    scene.delete("ClusterPool", "pool").await;
    scene
        .until("the pool is gone", async |it| {
            it.pools.is_empty() && scene.clusters("pool").await.is_empty()
        })
        .await;
    // A namespace that is left over goes with its pool, or soon after it.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let spaces: Api<Namespace> = Api::all(scene.client.clone());
    let space = spaces.get(&first).await.unwrap();
    assert_eq!(space.metadata.deletion_timestamp, None);
    let left = clusters.get("other").await.unwrap();
    assert_eq!(left.metadata.deletion_timestamp, None);
    clusters.delete("other", &DeleteParams::default()).await.unwrap();
    scene
        .until("the namespace goes", async |_| {
            spaces.get(&first).await.unwrap().metadata.deletion_timestamp.is_some()
        })
        .await;
}

#[tokio::test]
async fn pools_of_one_name_in_two_namespaces_share_nothing() {
    let (one, _hive) = Scene::new("same-one").await;
    let (two, _other) = Scene::new("same-two").await;
    let _running = start(plane().await, &[&one.namespace, &two.namespace], Policy::default()).await;
    for scene in [&one, &two] {
        scene.entries(&["a"]).await;
        scene.pool("pool", 1, &["a"], json!({})).await;
    }
    let first = one.wait("the first runs", |it| it.ready("pool") == 1).await;
    let second = two.wait("the second runs", |it| it.ready("pool") == 1).await;
    assert_ne!(name(&first.clusters[0]), name(&second.clusters[0]));
    for (view, word) in [(&first, "first"), (&second, "second")] {
        assert_eq!(view.holder("a"), name(&view.clusters[0]), "{word}");
    }
    // Who administrates the one does not administrate the other.
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": { "name": "hive-cluster-pool-admin" },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }],
    }))
    .unwrap();
    let roles: Api<ClusterRole> = Api::all(one.client.clone());
    let _ = roles.create(&PostParams::default(), &role).await;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": "friends" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "hive-cluster-pool-admin",
        },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jo" }],
    }))
    .unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(one.client.clone(), &one.namespace);
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let bound = |cluster: String| {
        let api: Api<RoleBinding> = Api::namespaced(one.client.clone(), &cluster);
        async move { api.get_opt("hive-cluster-pool-admin-binding").await.unwrap() }
    };
    let cluster = name(&first.clusters[0]).to_owned();
    one.until("its administrators are let in", async |_| {
        bound(cluster.clone()).await.is_some_and(|it| it.subjects.unwrap()[0].name == "jo")
    })
    .await;
    assert!(bound(name(&second.clusters[0]).to_owned()).await.is_none());
    one.delete("ClusterPool", "pool").await;
    one.wait("the first is gone", |it| it.pools.is_empty()).await;
    let second = two.view().await;
    assert_eq!((second.ready("pool"), second.holder("a")), (1, name(&second.clusters[0])));
}

#[tokio::test]
async fn a_pool_that_hives_own_controller_writes_to_is_left_to_it() {
    let (scene, _hive) = Scene::new("rival").await;
    scene.entries(&["a"]).await;
    scene.pool("pool", 0, &["a"], json!({})).await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.wait("it is ours", |it| it.word("pool", "a") == "Available").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pools: Api<DynamicObject> = scene.api("ClusterPool");
    let theirs =
        PatchParams { field_manager: Some("hive1-clusterpool".into()), ..PatchParams::default() };
    let patch = json!({ "metadata": { "annotations": { "by": "hive" } } });
    pools.patch("pool", &theirs, &Patch::Merge(patch)).await.unwrap();
    // Nobody changes the spec, and all was looked at a moment ago.
    let view = scene
        .wait("it says why nothing is done", |it| {
            condition(it.pool("pool"), "SoleController").0 == "False"
        })
        .await;
    let told = condition(view.pool("pool"), "SoleController").2;
    assert!(told.contains("disabledControllers"), "{told}");
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": 1 } })).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(scene.view().await.clusters.is_empty());
}

#[tokio::test]
async fn with_pools_inventory_a_pool_without_one_is_left_alone() {
    let (scene, _hive) = Scene::new("alone").await;
    let policy = Policy { pools: Pools::Inventory, ..Policy::default() };
    let _running = start(plane().await, &[&scene.namespace], policy).await;
    scene.pool("plain", 1, &[], json!({})).await;
    scene.entries(&["a"]).await;
    scene.pool("ours", 1, &["a"], json!({})).await;
    let view = scene.wait("ours runs", |it| it.ready("ours") == 1).await;
    assert!(view.of("plain").is_empty());
    assert!(view.pool("plain")["metadata"]["finalizers"].is_null());
}

#[tokio::test]
async fn with_pools_inventory_a_pool_whose_inventory_is_taken_away_can_still_be_deleted() {
    let (scene, _hive) = Scene::new("takenaway").await;
    let policy = Policy { pools: Pools::Inventory, ..Policy::default() };
    let _running = start(plane().await, &[&scene.namespace], policy).await;
    scene.one_runs().await;
    scene.patch("ClusterPool", "pool", json!({ "spec": { "inventory": null } })).await;
    scene
        .wait("another cluster runs in place of the entry's", |it| {
            it.ready("pool") == 1 && it.of("pool").len() == 1 && it.of_entry("a").is_empty()
        })
        .await;
    scene.delete("ClusterPool", "pool").await;
    scene.wait("it goes", |it| it.pools.is_empty()).await;
}

/// A controller of the pools with this filter, and what it counts.
async fn counted(scene: &Scene, filter: Option<&str>) -> (Running, Metrics) {
    let (account, _) = account(plane().await, &scene.namespace).await;
    let mut config = in_process::config("clusterpool-inventory", vec![scene.namespace.clone()]);
    config.watch_filter = filter.map(str::to_owned);
    let metrics = Metrics::new(config.controller).unwrap();
    let counted = metrics.clone();
    let run = move |client| async move {
        let kit = Kit::new(config, client, metrics, Shutdown::default());
        controller::run(kit, Policy::default()).await.unwrap();
    };
    (Running::start(account, Plan::none("clusterpool-inventory"), run), counted)
}

/// Whether so many are counted under this name.
fn shows(metrics: &Metrics, name: &str, count: usize) -> bool {
    let text = String::from_utf8(metrics.render(true).unwrap()).unwrap();
    text.contains(&format!("ferrite_clusterpool_inventory_{name} {count}\n"))
}

#[tokio::test]
async fn a_pool_that_is_not_ours_any_more_is_not_counted_any_more() {
    let (scene, _hive) = Scene::new("uncounted").await;
    let (_running, metrics) = counted(&scene, Some("ours")).await;
    scene.pool("pool", 0, &["none"], json!({})).await;
    for (filter, count) in [("ours", 1), ("theirs", 0)] {
        let label = json!({ "labels": { "cluster.x-k8s.io/watch-filter": filter } });
        scene.patch("ClusterPool", "pool", json!({ "metadata": label })).await;
        let is_shown = |_: &View| shows(&metrics, "entries{status=\"Missing\"}", count);
        scene.wait("it is counted as long as it is ours", is_shown).await;
    }
}

#[tokio::test]
async fn of_a_pool_that_is_gone_the_cluster_that_outlives_it_is_counted_and_no_entry() {
    let (scene, _hive) = Scene::new("outlives").await;
    let (_running, metrics) = counted(&scene, None).await;
    let cluster = scene.one_runs().await;
    scene.claim("mine", "pool").await;
    let is_given = |it: &View| it.claim("mine")["spec"]["namespace"] == cluster.as_str();
    scene.wait("it is claimed", is_given).await;
    let counts = |entries, claimed| {
        shows(&metrics, "entries{status=\"Reserved\"}", entries)
            && shows(&metrics, "clusters{state=\"claimed\"}", claimed)
    };
    scene.wait("both are counted", |_| counts(1, 1)).await;
    // It waits for the claim. Somebody does not.
    scene.delete("ClusterPool", "pool").await;
    scene.patch("ClusterPool", "pool", json!({ "metadata": { "finalizers": null } })).await;
    scene.wait("the pool is gone", |it| it.pools.is_empty()).await;
    scene.wait("the cluster alone is counted", |_| counts(0, 1)).await;
}

#[tokio::test]
async fn an_empty_inventory_is_refused_by_the_crd_and_a_list_is_read_as_an_object_is() {
    let (scene, _hive) = Scene::new("empty").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a"]).await;
    let list = json!({ "inventory": [{ "name": "a" }, { "name": "a" }] });
    scene.pool("pool", 1, &[], list).await;
    scene.wait("it runs", |it| it.ready("pool") == 1).await;
    let pools = scene.api("ClusterPool");
    let set = async |inventory: serde_json::Value| {
        scene.patch("ClusterPool", "pool", json!({ "spec": { "inventory": null } })).await;
        let patch = Patch::Merge(json!({ "spec": { "inventory": inventory } }));
        pools.patch("pool", &PatchParams::default(), &patch).await
    };
    let named = |list: serde_json::Value| json!({ "ClusterDeploymentCustomizations": list });
    for refused in
        [json!([]), json!({}), named(json!([])), named(json!("a")), json!([{ "name": "" }])]
    {
        assert!(set(refused.clone()).await.is_err(), "{refused} is refused");
    }
    for taken in [named(json!([{ "name": "a" }])), json!([{ "name": "a", "kind": "" }])] {
        assert!(set(taken.clone()).await.is_ok(), "{taken} is taken");
    }
    // The same by server-side apply, which has to know what is a list.
    let applied = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool", "metadata": { "name": "pool" },
        "spec": { "inventory": [{ "name": "a" }] },
    });
    let params = PatchParams::apply("somebody").force();
    pools.patch("pool", &params, &Patch::Apply(&applied)).await.unwrap();
}
