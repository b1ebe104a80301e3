//! Approval, selectors, limits, suspension, trial.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::{APPROVE, Site, condition, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_waits_readable_in_the_status_until_one_annotation_approves_it() {
    let site = Site::new("approval").await;
    site.discovery("racks", json!({ "approval": "Manual" })).await;
    let _running = site.start(quick());
    let agent = site.agent(1);
    let node = site.boot(&agent).await;
    let other = site.boot(&site.agent(2)).await;
    let entry = site.listed("racks", "pending", &node, "AwaitsApproval").await;
    assert_eq!(entry["proposedName"], "m1");
    assert_eq!(entry["macs"], json!([agent.mac(0), agent.mac(1)]));
    assert_eq!(entry["manufacturer"], "Ferrous Works");
    assert!(entry["since"].is_string(), "{entry:#}");
    assert!(site.names().await.is_empty());
    let strange = "11111111-2222-4333-8444-555555555555";
    site.approve("racks", &format!("{node}, {strange}")).await;
    site.wait_names(&["m1"]).await;
    site.wait("racks", "rid of the approvals", |it| {
        it["metadata"]["annotations"][APPROVE].is_null()
    })
    .await;
    site.listed("racks", "pending", &other, "AwaitsApproval").await;
    let seen = site.wait("racks", "counted", |it| it["status"]["counts"]["pending"] == 1).await;
    assert_eq!(seen["status"]["counts"]["created"], 1, "{seen:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_resource_that_selects_a_machine_makes_its_host() {
    let site = Site::new("selectors").await;
    site.discovery("large", json!({ "selector": { "minMemoryMiB": 100_000 }, "resourceNameTemplate": { "prefix": "large-" } })).await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    site.discovery("rest", json!({ "resourceNameTemplate": { "prefix": "rest-" } })).await;
    let _running = site.start(quick());
    site.boot(&site.agent(1)).await;
    let mut report = site.agent(2).report();
    report["inventory"]["memory"]["physical_mb"] = json!(131_072);
    site.post(&report).await;
    site.wait_names(&["rest-m1", "large-m2"]).await;
    let counted = |it: &serde_json::Value| it["status"]["counts"]["created"] == 1;
    site.wait("large", "counted", counted).await;
    site.wait("rest", "counted", counted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_resource_takes_the_machines_of_an_older_one_that_cannot_be_decoded() {
    let site = Site::new("undecodable").await;
    site.discovery("older", json!({})).await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    site.discovery("younger", json!({})).await;
    // The API server takes any two digits for an offset.
    let odd = json!({ "status": { "lastPollTime": "2026-01-01T00:00:00+99:99" } });
    let params = PatchParams::default();
    site.api().patch_status("older", &params, &Patch::Merge(odd)).await.unwrap();
    let _running = site.start(quick());
    let node = site.boot(&site.agent(1)).await;
    let seen = site
        .wait("younger", "held back", |it| condition(it, "Ready").1 == "OlderUndecodable")
        .await;
    assert!(condition(&seen, "Ready").2.contains("/older is older"), "{seen:#}");
    site.listed("younger", "pending", &node, "Suspended").await;
    site.settle().await;
    assert!(site.names().await.is_empty());
    site.api().delete("older", &DeleteParams::default()).await.unwrap();
    site.wait_names(&["m1"]).await;
    let by = &site.hosts().await[0]["metadata"]["labels"]["ferrite.metal3.io/discovered-by"];
    assert_eq!(by, "younger");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_hosts_are_made_than_the_limit_says_and_the_rest_waits() {
    let site = Site::new("limit").await;
    site.discovery("racks", json!({ "maxHosts": 2 })).await;
    let _running = site.start(quick());
    for number in 1..=5 {
        site.boot(&site.agent(number)).await;
    }
    let full = |it: &serde_json::Value| {
        it["status"]["counts"]["created"] == 2 && it["status"]["counts"]["pending"] == 3
    };
    let seen = site.wait("racks", "at its limit", full).await;
    assert_eq!(condition(&seen, "Ready").1, "MaxHostsReached", "{seen:#}");
    site.settle().await;
    // Which two depends on whose inventory Ironic has first.
    assert_eq!(site.names().await.len(), 2);
    site.patch("racks", json!({ "spec": { "maxHosts": 5 } })).await;
    site.wait_names(&["m1", "m2", "m3", "m4", "m5"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_resource_and_a_trial_make_nothing_and_a_trial_tells_what_it_would_make() {
    let site = Site::new("suspended").await;
    site.discovery("racks", json!({ "suspend": true })).await;
    let _running = site.start(quick());
    let node = site.boot(&site.agent(1)).await;
    let entry = site.listed("racks", "pending", &node, "Suspended").await;
    assert_eq!(entry["proposedName"], "m1");
    site.patch("racks", json!({ "spec": { "suspend": false, "dryRun": true } })).await;
    let entry = site.listed("racks", "pending", &node, "DryRun").await;
    assert_eq!(entry["proposedName"], "m1");
    assert!(site.names().await.is_empty());
    let seen = site.get("racks").await;
    assert_eq!(condition(&seen, "Ready").1, "DryRun", "{seen:#}");
    site.patch("racks", json!({ "spec": { "dryRun": false } })).await;
    site.wait_names(&["m1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_rest_nothing_is_written_and_ironic_is_asked_once_a_poll() {
    let site = Site::new("rest").await;
    let proxy = bench::proxy::Proxy::start(&site.ironic).await.unwrap();
    site.discovery("racks", json!({ "approval": "Manual" })).await;
    site.discovery("more", json!({ "selector": { "products": ["other"] } })).await;
    let mut policy = quick();
    policy.full_sync_interval = std::time::Duration::from_secs(600);
    let plan = bench::faults::Plan::none("host-discovery");
    let running = site.start_disturbed(&proxy.endpoint, policy, plan);
    let first = site.boot(&site.agent(1)).await;
    let node = site.boot(&site.agent(2)).await;
    site.listed("racks", "pending", &node, "AwaitsApproval").await;
    site.approve("racks", &first).await;
    site.wait("racks", "counted", |it| it["status"]["counts"]["created"] == 1).await;
    site.settle().await;
    // Hosts of other stories on this API server have nodes, too.
    let own = || {
        proxy.requests().into_iter().filter(|it| {
            !it.path.starts_with("/v1/nodes/")
                || it.path.contains(&first)
                || it.path.contains(&node)
        })
    };
    let (kubernetes, asked) = (running.handle.requests(), own().count());
    let lists = || proxy.count(|it| it.path.starts_with("/v1/nodes?"));
    let polls = lists();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let polls = lists() - polls;
    assert!(polls >= 5, "{polls} polls");
    assert_eq!(running.handle.requests(), kubernetes, "{:#?}", running.handle.calls());
    let asked = own().count() - asked;
    assert!(asked <= polls + 1, "{asked} requests for {polls} polls: {:#?}", proxy.requests());
    let small = own().last().unwrap().response_bytes;
    assert!(small < 64, "{small} bytes");
}
