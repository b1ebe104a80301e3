//! At rest nothing is written.

use std::time::Duration;

use bench::audit::Audit;
use clusterpool_inventory::settings::Policy;
use serde_json::json;

use super::ground::{plane, start};
use super::scene::Scene;

#[tokio::test]
async fn at_rest_the_controller_asks_for_nothing() {
    let (scene, _hive) = Scene::new("rest").await;
    let plane = plane().await;
    scene.entries(&["a", "b"]).await;
    scene.entry("bad", json!([{ "op": "remove", "path": "/nothing" }])).await;
    scene.pool("pool", 2, &["a", "bad", "b", "missing"], json!({})).await;
    let (running, user) = start(plane, &[&scene.namespace], Policy::default()).await;
    scene
        .wait("two clusters run", |it| {
            it.ready("pool") == 2 && it.pool("pool")["status"]["ready"] == 2
        })
        .await;
    let audit = Audit::new(plane.audit_log(), plane.admin().await);
    // What was announced by the last changes.
    audit.rest(&user, Duration::from_secs(3)).await.unwrap();
    let mark = audit.mark().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let counts = audit.since(mark).await.unwrap();
    assert_eq!(counts.requests(&user), 0, "{counts}");
    let seen = running.handle.writes();
    assert!(seen > 10, "only {seen} writes were made at all");
}
