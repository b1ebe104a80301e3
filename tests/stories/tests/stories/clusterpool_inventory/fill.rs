//! A pool fills: what is made, in which order, with how many writes.

use bench::audit::Audit;
use clusterpool_inventory::settings::Policy;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};

use super::ground::{plane, start};
use super::scene::{Scene, View, condition, entry_of, name};

#[tokio::test]
async fn a_pool_fills_from_its_entries_and_each_cluster_has_all_that_hive_waits_for() {
    let (scene, _hive) = Scene::new("fill").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a", "b", "c"]).await;
    scene.pool("pool", 2, &["a", "b", "c"], json!({})).await;
    let view = scene
        .wait("two clusters run", |it| {
            it.ready("pool") == 2 && it.pool("pool")["status"]["ready"] == 2
        })
        .await;
    assert_eq!(view.clusters.len(), 2);
    // Reserved in the order of the list; the last one is left.
    assert_eq!(
        ["a", "b", "c"].map(|it| view.word("pool", it)),
        ["Reserved", "Reserved", "Available"]
    );
    assert_eq!(condition(view.pool("pool"), "InventoryValid").0, "True");
    assert_eq!(condition(view.pool("pool"), "AllClustersCurrent").0, "True");
    for cluster in &view.clusters {
        let (cluster_name, entry) = (name(cluster), entry_of(cluster));
        assert_eq!(cluster["metadata"]["namespace"], cluster_name);
        let annotations = &cluster["metadata"]["annotations"];
        assert!(annotations["hive.openshift.io/reconcile-pause"].is_null(), "{annotations}");
        assert!(annotations["ferrite.metal3.io/lease-unverified"].is_null(), "{annotations}");
        assert_eq!(annotations["ferrite.metal3.io/installed-name"], entry);
        let finalizers = cluster["metadata"]["finalizers"].to_string();
        assert!(finalizers.contains("hive.openshift.io/clusterpool-inventory"), "{finalizers}");
        // The lease.
        let status = &view.entry(entry)["status"];
        assert_eq!(
            status["clusterDeploymentRef"],
            json!({ "name": cluster_name, "namespace": cluster_name })
        );
        assert_eq!(status["clusterPoolRef"]["name"], "pool");
        let available = condition(view.entry(entry), "Available");
        assert_eq!(available.0, "False");
        assert_eq!(available.1, "ClusterDeploymentCustomizationInUse");
        assert_eq!(
            available.2,
            format!("Currently in use by cluster deployment {cluster_name} of clusterpool pool")
        );
        let state = &view.pool("pool")["status"]["inventory"][entry];
        assert_eq!(state["clusterDeploymentRef"]["name"], cluster_name);
        assert_eq!(state["attempts"], 3);
        // What stands in its namespace.
        let spaces: Api<Namespace> = Api::all(scene.client.clone());
        let space = spaces.get(cluster_name).await.unwrap();
        let labels = space.metadata.labels.unwrap_or_default();
        assert_eq!(labels["hive.openshift.io/cluster-pool-name"], "pool");
        let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), cluster_name);
        let config = secrets.get(&format!("{cluster_name}-install-config")).await.unwrap();
        let text = config.data.unwrap_or_default()["install-config.yaml"].clone();
        let config: Value = serde_json::from_slice(&text.0).unwrap();
        assert_eq!(config["metadata"]["name"], entry);
        assert_eq!(config["baseDomain"], "example.com");
        // As the installer's reader takes it.
        assert_eq!(config["fips"], false);
        assert_eq!(config["platform"]["openstack"]["cloud"], "here");
        for secret in ["pull-secret", "openstack-creds"] {
            secrets.get(&format!("{cluster_name}-{secret}")).await.unwrap();
        }
        let copies =
            bench::hive::api(&scene.client, cluster_name, "ClusterDeploymentCustomization");
        let copy = copies.get(entry).await.unwrap();
        assert_eq!(copy.data["spec"], view.entry(entry)["spec"]);
        let spec = &cluster["spec"];
        assert_eq!(spec["pullSecretRef"]["name"], format!("{cluster_name}-pull-secret"));
        let credentials = &spec["platform"]["openstack"]["credentialsSecretRef"]["name"];
        assert_eq!(*credentials, format!("{cluster_name}-openstack-creds"));
        assert_eq!(spec["provisioning"]["imageSetRef"]["name"], "release");
    }
}

/// What was asked for while eight clusters of eight entries were made.
async fn eight_made(scene: &Scene, audit: &Audit, user: &str, made: impl AsyncFn()) -> Writes {
    let begin = audit.mark().await.unwrap();
    made().await;
    scene
        .wait("eight clusters run", |it| {
            it.ready("pool") == 8 && it.pool("pool")["status"]["ready"] == 8
        })
        .await;
    let counts = audit.since(begin).await.unwrap();
    let of = |verb: &str, resource: &str| counts.of(user, verb, resource);
    println!("{counts}");
    Writes {
        finalizers: of("patch", "clusterdeploymentcustomizations"),
        leases: of("patch", "clusterdeploymentcustomizations/status"),
        namespaces: of("create", "namespaces"),
        secrets: of("create", "secrets"),
        copies: of("create", "clusterdeploymentcustomizations"),
        clusters: of("create", "clusterdeployments"),
        patches_of_clusters: of("patch", "clusterdeployments"),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Writes {
    finalizers: u64,
    leases: u64,
    namespaces: u64,
    secrets: u64,
    copies: u64,
    clusters: u64,
    patches_of_clusters: u64,
}

/// A pool whose platform needs no other secret than the cloud's, at the first use of its entries: eight each.
const FIRST: Writes = Writes {
    finalizers: 8,
    leases: 8,
    namespaces: 8,
    secrets: 2 * 8,
    copies: 8,
    clusters: 8,
    // The end of the pause.
    patches_of_clusters: 8,
};

#[tokio::test]
async fn a_cluster_costs_eight_writes_and_nine_with_a_pull_secret_of_the_pool_at_the_first_use_of_its_entry()
 {
    for (name, more, first) in [
        ("writes-bare", json!({ "pullSecretRef": null }), FIRST),
        ("writes", json!({}), Writes { secrets: 3 * 8, ..FIRST }),
    ] {
        let (scene, _hive) = Scene::new(name).await;
        let plane = plane().await;
        let names: Vec<String> = (0..8).map(|it| format!("e{it}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        scene.entries(&names).await;
        let (_running, user) = start(plane, &[&scene.namespace], Policy::default()).await;
        let audit = Audit::new(plane.audit_log(), plane.admin().await);
        let pool = async || scene.pool("pool", 8, &names, more.clone()).await;
        let seen = eight_made(&scene, &audit, &user, pool).await;
        assert_eq!(seen, first, "{name}");
        // The same entries once more: the finalizer is on them. Hive frees them, and each old cluster is let go.
        let old: Vec<String> =
            scene.view().await.clusters.iter().map(|it| self::name(it).to_owned()).collect();
        let renewed = async || {
            for cluster in &old {
                let clusters = bench::hive::api(&scene.client, cluster, "ClusterDeployment");
                clusters.delete(cluster, &DeleteParams::default()).await.unwrap();
            }
            scene
                .wait("the old ones are gone", |it| {
                    it.clusters.iter().all(|it| !old.iter().any(|old| old == self::name(it)))
                })
                .await;
        };
        let seen = eight_made(&scene, &audit, &user, renewed).await;
        let again = Writes { finalizers: 0, patches_of_clusters: 16, ..first };
        assert_eq!(seen, again, "{name}");
    }
}

#[tokio::test]
async fn a_pool_without_an_inventory_fills_and_no_customization_is_touched() {
    let (scene, _hive) = Scene::new("plain").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a"]).await;
    scene.pool("pool", 2, &[], json!({ "skipMachinePools": false })).await;
    let view = scene.wait("two clusters run", |it| it.ready("pool") == 2).await;
    assert_eq!(view.clusters.len(), 2);
    assert!(view.entry("a")["status"].is_null());
    assert!(view.pool("pool")["status"]["inventory"].is_null());
    for cluster in &view.clusters {
        let workers = bench::hive::api(&scene.client, name(cluster), "MachinePool");
        let workers = workers.get(&format!("{}-worker", name(cluster))).await.unwrap();
        assert_eq!(workers.data["spec"]["replicas"], 2);
    }
}

#[tokio::test]
async fn what_a_pool_refers_to_and_is_missing_is_told_and_waited_for() {
    let (scene, _hive) = Scene::new("lacks").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    scene.entries(&["a"]).await;
    let more = json!({ "pullSecretRef": { "name": "later" }, "imageSetRef": { "name": "none" } });
    scene.pool("pool", 1, &["a"], more).await;
    let view = scene
        .wait("the pool says what it lacks", |it| {
            condition(it.pool("pool"), "MissingDependencies").0 == "True"
        })
        .await;
    let told = condition(view.pool("pool"), "MissingDependencies").2;
    assert!(told.contains("Secret later") && told.contains("ClusterImageSet none"), "{told}");
    assert!(view.clusters.is_empty());
    let more = json!({ "pullSecretRef": { "name": "pull" }, "imageSetRef": { "name": "release" } });
    scene.patch("ClusterPool", "pool", json!({ "spec": more })).await;
    let view = scene.wait("the cluster runs", |it| it.ready("pool") == 1).await;
    assert_eq!(condition(view.pool("pool"), "MissingDependencies").0, "False");
}

#[tokio::test]
async fn what_a_pool_refers_to_and_is_deleted_while_it_runs_costs_no_cluster_and_is_waited_for() {
    let (scene, _hive) = Scene::new("lost").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    let release = format!("{}-release", scene.namespace);
    let sets: Api<DynamicObject> =
        Api::all_with(scene.client.clone(), &bench::hive::kind("ClusterImageSet"));
    let set: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterImageSet",
        "metadata": { "name": release },
        "spec": { "releaseImage": "registry.example.com/release:1" },
    }))
    .unwrap();
    sets.create(&PostParams::default(), &set).await.unwrap();
    scene.entries(&["a", "b", "c"]).await;
    let more = json!({ "imageSetRef": { "name": release } });
    scene.pool("pool", 1, &["a", "b", "c"], more).await;
    let view = scene.wait("it runs", |it| it.ready("pool") == 1).await;
    let first = name(&view.clusters[0]).to_owned();
    // All of it goes, and more clusters are wanted.
    sets.delete(&release, &DeleteParams::default()).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
    for secret in ["template", "pull", "cloud"] {
        secrets.delete(secret, &DeleteParams::default()).await.unwrap();
    }
    scene.patch("ClusterPool", "pool", json!({ "spec": { "size": 2 } })).await;
    let lacks = |it: &View, all: &[&str]| {
        let (status, _, message) = condition(it.pool("pool"), "MissingDependencies");
        status == "True" && all.iter().all(|it| message.contains(*it))
    };
    let of_secrets = ["Secret template", "Secret pull", "Secret cloud"];
    scene
        .wait("the pool says what it lacks", |it| {
            lacks(it, &of_secrets) && lacks(it, &["ClusterImageSet"])
        })
        .await;
    // The one that is there is given away all the same.
    scene.claim("mine", "pool").await;
    scene
        .wait("the claim is served", |it| it.claim("mine")["spec"]["namespace"] == first.as_str())
        .await;
    // Some of it is not enough.
    sets.create(&PostParams::default(), &set).await.unwrap();
    let view = scene
        .wait("only the secrets are lacking", |it| {
            lacks(it, &of_secrets) && !lacks(it, &["ClusterImageSet"])
        })
        .await;
    assert_eq!((view.clusters.len(), view.ready("pool")), (1, 1), "{view}");
    assert_eq!(name(&view.clusters[0]), first);
    assert_eq!(["b", "c"].map(|it| view.holder(it)), ["", ""]);
    assert_eq!(["b", "c"].map(|it| view.word("pool", it)), ["Available", "Available"]);
    scene.secrets().await;
    let view = scene
        .wait("it goes on", |it| {
            it.ready("pool") == 3 && condition(it.pool("pool"), "MissingDependencies").0 == "False"
        })
        .await;
    assert!(view.clusters.iter().any(|it| name(it) == first));
}
