//! Somebody who posts machines that do not exist.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Site, condition, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_machines_is_bounded_in_hosts_and_in_what_is_remembered_and_told() {
    let site = Site::new("flood").await;
    site.discovery("racks", json!({ "maxHosts": 5 })).await;
    let mut policy = quick();
    policy.most_machines = 20;
    let _running = site.start(policy);
    for number in 1..=40 {
        site.boot(&site.agent(number)).await;
    }
    let seen =
        site.wait("racks", "too many", |it| condition(it, "Ready").1 == "TooManyMachines").await;
    site.settle().await;
    assert_eq!(site.names().await.len(), 5);
    // Of the rest the number is told, and nothing else is kept.
    assert!(
        condition(&seen, "Ready").2.contains(" machines in Ironic are not looked at"),
        "{seen:#}"
    );
    let seen = site.get("racks").await;
    let count = |of: &str| seen["status"]["counts"][of].as_i64().unwrap_or_default();
    assert_eq!(count("created"), 5, "{seen:#}");
    let remembered = count("pending") + count("failed") + count("conflicting");
    assert!((1..=20).contains(&remembered), "{seen:#}");
    // A machine that is real waits until there is room, and is not forgotten.
    site.patch("racks", json!({ "spec": { "maxHosts": 100 } })).await;
    let deadline = Instant::now() + super::PATIENCE;
    while site.names().await.len() < 40 {
        assert!(Instant::now() < deadline, "{:?}", site.names().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    site.wait("racks", "well again", |it| condition(it, "Ready").0 == "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_made_no_faster_than_the_rate() {
    let site = Site::new("rate").await;
    site.discovery("racks", json!({ "approval": "Manual" })).await;
    let mut policy = quick();
    policy.create_rate = NonZeroU32::new(2).unwrap();
    let _running = site.start(policy);
    for number in 1..=12 {
        site.boot(&site.agent(number)).await;
    }
    site.wait("racks", "all read", |it| it["status"]["counts"]["pending"] == 12).await;
    let start = Instant::now();
    site.patch("racks", json!({ "spec": { "approval": "Automatic" } })).await;
    let mut most: u128 = 0;
    loop {
        let (made, passed) = (site.names().await.len(), start.elapsed());
        let allowed = 2 + passed.as_millis() * 2 / 1000 + 1;
        assert!(made as u128 <= allowed, "{made} after {passed:?}");
        most = most.max(made as u128);
        if made == 12 {
            break;
        }
        assert!(passed < super::PATIENCE, "{made}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(start.elapsed() > Duration::from_secs(4), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selector_and_a_template_that_cannot_be_are_told_with_what_is_wrong() {
    let site = Site::new("bad-input").await;
    // The odd first byte passes the CRD's pattern.
    site.discovery("racks", json!({ "selector": { "macPrefixes": ["01:00"] } })).await;
    site.discovery("labels", json!({ "labels": { "a b": "c" } })).await;
    let _running = site.start(quick());
    let seen = site.wait("racks", "told", |it| condition(it, "Ready").1 == "SpecInvalid").await;
    assert!(condition(&seen, "Ready").2.contains("01:00"), "{seen:#}");
    let seen = site.wait("labels", "told", |it| condition(it, "Ready").1 == "SpecInvalid").await;
    assert!(condition(&seen, "Ready").2.contains("a b"), "{seen:#}");
    site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;
    let by = &site.hosts().await[0]["metadata"]["labels"]["ferrite.metal3.io/discovered-by"];
    assert_eq!(by, "labels", "a selector that matches nothing takes nothing");
}
