//! Machines that are hosts already, and hosts that are made twice by nobody.

use bench::faults::{At, Fault, Plan};
use serde_json::json;

use super::{Site, condition, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_any_host_of_any_namespace_is_gets_no_host_and_its_host_is_not_touched() {
    let site = Site::new("known").await;
    let elsewhere =
        Site { namespace: site.plane.namespace("elsewhere").await, ..Site::new("other").await };
    // By the boot address in another spelling, by the address of another interface, by identifier.
    let upper = site.agent(1).mac(0).to_uppercase();
    site.host("by-mac", json!({ "spec": { "bootMACAddress": upper } })).await;
    let second = site.agent(2).mac(1);
    elsewhere.host("by-second-mac", json!({ "spec": { "bootMACAddress": second } })).await;
    let node = site.boot(&site.agent(3)).await;
    let status = json!({ "provisioning": { "state": "unmanaged", "ID": node }, "operationalStatus": "discovered" });
    let annotations = json!({ "baremetalhost.metal3.io/status": status.to_string() });
    elsewhere.host("by-id", json!({ "metadata": { "annotations": annotations } })).await;
    site.discovery("racks", json!({})).await;
    let before = (site.hosts().await, elsewhere.hosts().await);
    let _running = site.start(quick());
    site.boot(&site.agent(1)).await;
    site.boot(&site.agent(2)).await;
    site.boot(&site.agent(4)).await;
    site.wait("racks", "all counted", |it| it["status"]["counts"]["known"] == 4).await;
    site.settle().await;
    assert_eq!(site.names().await, ["by-mac", "m4"]);
    let after = (site.hosts().await, elsewhere.hosts().await);
    assert_eq!((&after.0[0], &after.1), (&before.0[0], &before.1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_the_operator_registered_in_ironic_is_left_alone() {
    let site = Site::new("registered").await;
    site.discovery("racks", json!({ "includeAllNodes": true })).await;
    let _running = site.start(quick());
    site.ironic.enroll_fake("elsewhere~server").await.unwrap();
    let path = "/v1/nodes";
    let made = json!({ "driver": "fake-hardware" });
    site.ironic.call(reqwest::Method::POST, path, Some(&made)).await.unwrap();
    site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;
    site.settle().await;
    assert_eq!(site.names().await, ["m1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_a_person_makes_in_the_same_instant_under_the_same_name_is_that_machine() {
    let site = Site::new("instant").await;
    site.discovery("racks", json!({})).await;
    let agent = site.agent(1);
    let plan = Plan::one("host-discovery", At::Creation(1), Fault::Hold);
    let running = site.start_disturbed(&site.ironic.endpoint, quick(), plan);
    site.wait("racks", "looked at", |it| !condition(it, "Ready").0.is_empty()).await;
    // The request is given up when it has no answer for some seconds, and a busy Ironic takes as long for the report.
    let meanwhile = async {
        running.handle.held().await;
        let made = site.host("m1", json!({ "spec": { "bootMACAddress": agent.mac(0) } })).await;
        running.handle.release();
        made
    };
    let (_, made) = tokio::join!(site.boot(&agent), meanwhile);
    site.wait("racks", "counted", |it| it["status"]["counts"]["known"] == 1).await;
    assert_eq!(site.hosts().await, [made]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_a_person_makes_in_the_same_instant_under_another_name_is_told_and_nothing_is_touched()
 {
    let site = Site::new("twice").await;
    site.discovery("racks", json!({})).await;
    let agent = site.agent(1);
    let plan = Plan::one("host-discovery", At::Creation(1), Fault::Hold);
    let running = site.start_disturbed(&site.ironic.endpoint, quick(), plan);
    site.wait("racks", "looked at", |it| !condition(it, "Ready").0.is_empty()).await;
    let meanwhile = async {
        running.handle.held().await;
        site.host("mine", json!({ "spec": { "bootMACAddress": agent.mac(0) } })).await;
        running.handle.release();
    };
    let (node, ()) = tokio::join!(site.boot(&agent), meanwhile);
    let entry = site.listed("racks", "conflicts", &node, "KnownTwice").await;
    let told = entry["reason"].as_str().unwrap();
    assert!(told.contains("/m1") && told.contains("/mine"), "{entry:#}");
    let before = site.hosts().await;
    assert_eq!(site.names().await, ["m1", "mine"]);
    site.settle().await;
    assert_eq!(site.hosts().await, before);
    // Whichever a person deletes, the other one is the machine's host.
    site.delete("m1").await;
    site.wait("racks", "settled", |it| {
        it["status"]["counts"]["known"] == 1 && it["status"]["counts"]["conflicting"] == 0
    })
    .await;
    site.settle().await;
    assert_eq!(site.names().await, ["mine"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_without_a_lease_make_one_host_of_each_machine() {
    let site = Site::new("two").await;
    site.discovery("racks", json!({})).await;
    let _one = site.start(quick());
    let _two = site.start(quick());
    let mut wanted = Vec::new();
    for number in 1..=12 {
        site.boot(&site.agent(number)).await;
        wanted.push(format!("m{number}"));
    }
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    site.wait_names(&wanted).await;
    site.settle().await;
    assert_eq!(site.names().await.len(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_machine_with_the_bmc_of_a_host_is_a_conflict_until_it_is_approved() {
    let site = Site::new("bmc").await;
    site.discovery("racks", json!({})).await;
    let agent = site.agent(1);
    let bmc = agent.bmc_address.clone().unwrap();
    let address = format!("redfish://{bmc}/redfish/v1/Systems/1");
    site.host("old", json!({ "spec": { "bmc": { "address": address, "credentialsName": "x" } } }))
        .await;
    let _running = site.start(quick());
    let node = site.boot(&agent).await;
    let entry = site.listed("racks", "conflicts", &node, "BmcOfAnotherHost").await;
    assert!(entry["reason"].as_str().unwrap().contains("/old"), "{entry:#}");
    site.approve("racks", &node).await;
    site.wait_names(&["m1", "old"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_free_or_taken_whatever_shape_the_host_has_that_bears_it() {
    let site = Site::new("shape").await;
    site.discovery("racks", json!({})).await;
    let other = site.agent(2).mac(0);
    site.host("m1", json!({ "spec": { "bootMACAddress": other } })).await;
    // The API server's calendar has a day more than that of our own type of times.
    let status = json!({ "status": {
        "poweredOn": true, "operationalStatus": "discovered", "errorMessage": "", "errorCount": 0,
        "provisioning": { "state": "unmanaged", "ID": "" }, "lastUpdated": "9999-12-31T23:59:59Z",
    }});
    site.host_status("m1", status).await;
    let _running = site.start(quick());
    let agent = site.agent(1);
    site.boot(&agent).await;
    let tail: String = agent.mac(0).split(':').skip(3).collect();
    site.wait_names(&["m1", &format!("m1-{tail}")]).await;
}
