//! The design's own samples, applied as they stand.

use clusterpool_inventory::settings::Policy;
use serde_json::json;

use super::ground::{plane, start};
use super::scene::{Scene, condition, name};

#[tokio::test]
async fn the_designs_own_samples_work_as_they_stand() {
    let (scene, _hive) = Scene::new("samples").await;
    let _running = start(plane().await, &[&scene.namespace], Policy::default()).await;
    // The sample of the customization; its group is spelled out, since no server has one without.
    let spec = json!({ "installConfigPatches": [
        { "op": "replace", "path": "metadata/name", "value": "foo" },
    ]});
    for entry in ["foo", "bar", "baz"] {
        let name = format!("{entry}-cluster-deployment-customization");
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        scene.create("ClusterDeploymentCustomization", object).await;
    }
    let inventory = json!({ "inventory": { "ClusterDeploymentCustomizations": [
        { "name": "foo-cluster-deployment-customization" },
        { "name": "bar-cluster-deployment-customization" },
        { "name": "baz-cluster-deployment-customization" },
    ]}});
    scene.pool("foo-pool", 1, &[], inventory).await;
    let view = scene.wait("a cluster runs", |it| it.ready("foo-pool") == 1).await;
    let cluster = &view.clusters[0];
    let entry = view.entry("foo-cluster-deployment-customization");
    assert_eq!(entry["status"]["clusterDeploymentRef"]["name"], name(cluster));
    assert_eq!(
        entry["status"]["clusterDeploymentRef"]["namespace"],
        cluster["metadata"]["namespace"]
    );
    let (status, reason, message) = condition(entry, "Available");
    assert_eq!((status, reason), ("False", "ClusterDeploymentCustomizationInUse"));
    let wanted =
        format!("Currently in use by cluster deployment {} of clusterpool foo-pool", name(cluster));
    assert_eq!(message, wanted);
    assert_eq!(cluster["metadata"]["annotations"]["ferrite.metal3.io/installed-name"], "foo");
    let status = &view.pool("foo-pool")["status"]["inventory"];
    assert_eq!(status["foo-cluster-deployment-customization"]["status"], "Reserved");
    assert_eq!(status["bar-cluster-deployment-customization"]["status"], "Available");
}
