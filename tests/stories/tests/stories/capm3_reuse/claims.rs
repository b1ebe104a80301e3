//! How a machine comes to a host and up, and gives the host back.

use bench::cluster_api::objects::{CLUSTER, METAL3_MACHINE};
use capm3_reuse::settings::Policy;
use kube::ResourceExt;
use serde_json::json;

use super::ground::{plane, start};
use super::scene::{BOOT, NAME, Scene, condition, consumer, state};

#[tokio::test]
async fn a_machine_gets_a_free_host_and_is_up_in_five_writes_and_gives_it_back() {
    let plane = plane().await;
    let scene = Scene::with_deployment(plane, "plain", &["h1", "h2"], false).await;
    let audit = bench::audit::Audit::new(plane.audit_log(), scene.client.clone());
    let (_running, user) = start(plane, &scene.namespace, Policy::default()).await;
    let mark = audit.mark().await.unwrap();
    scene.machine("m1", "md", "t").await;
    let host = scene.up("m1").await;
    let counts = audit.since(mark).await.unwrap();
    // One less where the host is up before anybody has to be told that it is awaited.
    let writes = counts.writes(&user, &["events"]);
    assert!((4..=5).contains(&writes), "{writes}: {counts}");
    assert_eq!(counts.of(&user, "patch", "baremetalhosts"), 1, "{counts}");
    assert_eq!(counts.of(&user, "create", "events"), 0, "{counts}");

    let seen = scene.get_host(&host).await;
    assert_eq!(consumer(&seen), "Metal3Machine/m1");
    let machine = METAL3_MACHINE.api(&scene.client, &scene.namespace).get("m1").await.unwrap();
    assert_eq!(seen.data["spec"]["consumerRef"]["uid"], json!(machine.uid()));
    assert_eq!(seen.labels()["cluster.x-k8s.io/cluster-name"], NAME);
    assert_eq!(seen.data["spec"]["userData"], json!({"name": BOOT, "namespace": scene.namespace}));
    assert_eq!(seen.data["spec"]["image"]["format"], "qcow2");
    assert_eq!(seen.data["spec"]["online"], true);
    let id = format!("metal3://{}/{host}/m1", scene.namespace);
    assert_eq!(machine.data["spec"]["providerID"], json!(id));
    assert_eq!(
        machine.data["status"]["addresses"],
        json!([
            {"type": "InternalIP", "address": "192.0.2.7"},
            {"type": "Hostname", "address": host},
            {"type": "InternalDNS", "address": host},
        ])
    );
    assert_eq!(condition(&machine, "Paused").unwrap()["status"], "False");
    assert_eq!(condition(&machine, "AssociateBareMetalHost").unwrap()["reason"], "HostClaimed");

    scene.remove("m1").await;
    let freed = scene.get_host(&host).await;
    assert_eq!(consumer(&freed), "");
    assert_eq!(state(&freed), "available");
    for field in ["image", "userData", "customDeploy"] {
        assert!(freed.data["spec"][field].is_null(), "{field} is left");
    }
    assert!(!freed.labels().contains_key("cluster.x-k8s.io/cluster-name"));
    assert!(freed.annotations().is_empty(), "{:?}", freed.annotations());
}

#[tokio::test]
async fn a_machine_without_host_says_what_it_lacks_and_gets_one_when_it_is_there() {
    let scene = Scene::new(plane().await, "lacks").await;
    scene.template("t", false).await;
    scene.deployment("md", "t", 1).await;
    scene.host("h1", json!({"rack": "b"})).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    let selector = json!({"hostSelector": {"matchLabels": {"rack": "a"}}});
    scene.machine_with("m1", "md", "t", selector).await;
    scene.says("m1", "NoHostAvailable").await;
    scene.patch_host("h1", json!({"metadata": {"labels": {"rack": "a"}}})).await;
    assert_eq!(scene.up("m1").await, "h1");
}

#[tokio::test]
async fn hosts_that_are_unhealthy_failed_paused_detached_or_in_use_are_not_claimed() {
    let scene = Scene::new(plane().await, "unfit").await;
    scene.template("t", false).await;
    scene.deployment("md", "t", 1).await;
    scene.hosts(&["old-mark", "new-mark", "failed", "paused", "detached", "in-use"]).await;
    for (host, annotation) in [
        ("old-mark", "capi.metal3.io/unhealthy"),
        ("new-mark", "capm3.metal3.io/unhealthy"),
        ("paused", "baremetalhost.metal3.io/paused"),
        ("detached", "baremetalhost.metal3.io/detached"),
    ] {
        scene.patch_host(host, json!({"metadata": {"annotations": {annotation: ""}}})).await;
    }
    let failed =
        json!({"status": {"errorMessage": "no power", "errorType": "power management error"}});
    scene.patch_host_status("failed", failed).await;
    let used =
        json!({"spec": {"consumerRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}});
    scene.patch_host("in-use", used).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    scene.says("m1", "NoHostAvailable").await;
    scene.hosts(&["good"]).await;
    assert_eq!(scene.up("m1").await, "good");
}

#[tokio::test]
async fn a_machine_without_the_label_of_its_cluster_hears_when_the_cluster_is_ready() {
    let scene = Scene::with_deployment(plane().await, "unlabelled", &["h1"], false).await;
    let ready = |it: bool| json!({"status": {"initialization": {"infrastructureProvisioned": it}}});
    scene.patch_status(CLUSTER, NAME, ready(false)).await;
    let (_running, _) = start(plane().await, &scene.namespace, Policy::default()).await;
    scene.machine("m1", "md", "t").await;
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": null}}});
    scene.patch(METAL3_MACHINE, "m1", label).await;
    scene.says("m1", "WaitingForInfrastructure").await;
    scene.patch_status(CLUSTER, NAME, ready(true)).await;
    assert_eq!(scene.up("m1").await, "h1");
}
