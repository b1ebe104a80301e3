//! The mission, sentence by sentence.

use bench::ironic::{Options, Release};
use serde_json::{Value, json};

use super::{Site, condition, quick};

fn annotation<'a>(host: &'a Value, key: &str) -> &'a str {
    host["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

async fn a_machine_becomes_a_host(release: Release) {
    let site = Site::with("mission", Options { release, ..Options::default() }).await;
    let _running = site.start(quick());
    site.discovery("racks", json!({ "resourceNameTemplate": { "prefix": "string-literal1-", "suffix": "-string-literal2" } })).await;
    let mut agent = site.agent(1);
    "the-host-name".clone_into(&mut agent.hostname);
    let node = site.boot(&agent).await;
    site.wait_names(&["string-literal1-the-host-name-string-literal2"]).await;
    let host = &site.hosts().await[0];
    assert_eq!(host["spec"]["bootMACAddress"], agent.mac(0));
    assert_eq!(host["spec"]["online"], true);
    assert!(host["spec"]["bmc"].is_null(), "{host:#}");
    assert_eq!(host["metadata"]["labels"]["ferrite.metal3.io/discovered-by"], "racks");
    assert_eq!(annotation(host, "inspect.metal3.io"), "disabled");

    let details: Value =
        serde_json::from_str(annotation(host, "inspect.metal3.io/hardwaredetails")).unwrap();
    assert_eq!(details["systemVendor"]["manufacturer"], "Ferrous Works");
    assert_eq!(details["ramMebibytes"], 65536);
    assert_eq!(details["cpu"]["count"], 32);
    assert_eq!(details["nics"][0]["mac"], agent.mac(0));
    assert_eq!(details["nics"][0]["pxe"], true);
    assert_eq!(details["storage"][0]["sizeBytes"], 480_103_981_056_u64);
    let status: Value =
        serde_json::from_str(annotation(host, "baremetalhost.metal3.io/status")).unwrap();
    assert_eq!(status["operationalStatus"], "discovered");
    assert_eq!(status["provisioning"]["ID"], node.as_str());
    assert_eq!(status["hardware"], details);

    let seen = site
        .wait("racks", "counted", |it| {
            it["status"]["counts"]["created"] == 1 && it["status"]["counts"]["known"] == 1
        })
        .await;
    assert_eq!(condition(&seen, "Ready").0, "True", "{seen:#}");
    assert_eq!(condition(&seen, "IronicReachable").0, "True", "{seen:#}");
    assert!(seen["status"]["ironicVersion"].as_str().unwrap().starts_with("1."), "{seen:#}");
    // It is written down where it lasts that this node had a host.
    site.ironic
        .wait(&node, "marked", |it| it["extra"]["ferrite_had_host"].is_string())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_switched_on_becomes_a_host_with_its_hardware_and_its_provisioner_id() {
    a_machine_becomes_a_host(Release::Current).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_ironic_that_discovers_does_as_well() {
    a_machine_becomes_a_host(Release::FirstWithDiscovery).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_resource_never_touches_hosts_that_were_discovered_before() {
    let site = Site::new("edits").await;
    let _running = site.start(quick());
    site.discovery("racks", json!({ "labels": { "row": "a" } })).await;
    site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;
    let before = site.hosts().await;
    let spec = json!({
        "labels": { "row": "b" },
        "resourceNameTemplate": { "prefix": "x-" },
        "hostDefaults": { "online": false },
    });
    site.patch("racks", json!({ "spec": spec })).await;
    site.boot(&site.agent(2)).await;
    site.wait_names(&["m1", "x-m2"]).await;
    site.settle().await;
    let after = site.hosts().await;
    assert_eq!(after[0], before[0]);
    assert_eq!(after[1]["metadata"]["labels"]["row"], "b");
    assert_eq!(after[1]["spec"]["online"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_host_and_node_are_deleted_is_discovered_again_when_it_boots() {
    let site = Site::new("again").await;
    let _running = site.start(quick());
    site.discovery("racks", json!({})).await;
    let agent = site.agent(1);
    let first = site.boot(&agent).await;
    site.wait_names(&["m1"]).await;
    // As the operator does it: the node goes with its host, and again while somebody else writes to the node.
    let is_marked = |it: &Value| it["extra"]["ferrite_had_host"].is_string();
    site.ironic.wait(&first, "marked", is_marked).await.unwrap();
    site.delete("m1").await;
    let path = format!("/v1/nodes/{first}");
    loop {
        let (code, _) = site.ironic.call(reqwest::Method::DELETE, &path, None).await.unwrap();
        if code != reqwest::StatusCode::CONFLICT {
            break;
        }
    }
    let second = site.boot(&agent).await;
    assert_ne!(first, second);
    site.wait_names(&["m1"]).await;
    let host = &site.hosts().await[0];
    assert_eq!(annotation(host, "ferrite.metal3.io/node-id"), second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_a_person_deleted_stays_away_across_restarts_until_it_is_asked_for() {
    let site = Site::new("deleted").await;
    let running = site.start(quick());
    site.discovery("racks", json!({})).await;
    let node = site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;
    site.ironic
        .wait(&node, "marked", |it| it["extra"]["ferrite_had_host"].is_string())
        .await
        .unwrap();
    site.delete("m1").await;
    site.listed("racks", "pending", &node, "HostDeleted").await;
    drop(running);
    let _running = site.start(quick());
    site.settle().await;
    assert_eq!(site.names().await, Vec::<String>::new());
    site.approve("racks", &node).await;
    site.wait_names(&["m1"]).await;
    site.wait("racks", "rid of the approval", |it| {
        it["metadata"]["annotations"][super::APPROVE].is_null()
    })
    .await;
    // Asked for as well is one whose node bears the mark no longer.
    let is_marked = |it: &Value| it["extra"]["ferrite_had_host"].is_string();
    site.ironic.wait(&node, "marked", is_marked).await.unwrap();
    site.settle().await;
    site.delete("m1").await;
    site.listed("racks", "pending", &node, "HostDeleted").await;
    let unset = json!([{ "op": "remove", "path": "/extra/ferrite_had_host" }]);
    let path = format!("/v1/nodes/{node}");
    let (status, body) =
        site.ironic.call(reqwest::Method::PATCH, &path, Some(&unset)).await.unwrap();
    assert!(status.is_success(), "{status} {body}");
    site.wait_names(&["m1"]).await;
}
