//! Hosts that get a BMC when they are made: of the address that their machine names, where that is one of the site's.

use bench::faults::{At, Fault, Plan};
use serde_json::{Value, json};

use super::{Site, condition, quick};

/// All agents name a BMC in it.
fn policy(more: Value) -> Value {
    let mut spec = json!({ "bmc": {
        "addressTemplate": "redfish-virtualmedia+https://{bmcAddress}/redfish/v1/Systems/1",
        "credentialsName": "racks-bmc", "subnets": ["10.0.0.0/8"],
    }});
    super::super::bmo_reboot::merge(&mut spec, more);
    spec
}

fn address(ip: &str) -> String {
    format!("redfish-virtualmedia+https://{ip}/redfish/v1/Systems/1")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_gets_the_bmc_that_it_names_and_its_node_the_driver_before_its_host_is_there() {
    let site = Site::new("own-bmc").await;
    site.discovery("racks", policy(json!({ "approval": "Manual" }))).await;
    let plan = Plan::one("host-discovery", At::Creation(1), Fault::Hold);
    let running = site.start_disturbed(&site.ironic.endpoint, quick(), plan);
    let agent = site.agent(1);
    let ip = agent.bmc_address.clone().unwrap();
    let node = site.boot(&agent).await;
    // Whoever approves sees where the credentials go, and what comes of the disks.
    let entry = site.listed("racks", "pending", &node, "AwaitsApproval").await;
    assert_eq!((&entry["bmcAddress"], &entry["proposedBMC"]), (&json!(ip), &json!(address(&ip))));
    let told = condition(&site.get("racks").await, "Ready").2;
    assert!(told.contains("automatedCleaningMode"), "{told}");
    assert_eq!(site.ironic.node(&node).await.unwrap()["driver"], "fake-hardware");
    site.approve("racks", &node).await;

    running.handle.held().await;
    let seen = site.ironic.node(&node).await.unwrap();
    assert_eq!(
        (&seen["driver"], &seen["boot_interface"]),
        (&json!("redfish"), &json!("redfish-virtual-media")),
        "{seen:#}"
    );
    running.handle.release();
    site.wait_names(&["m1"]).await;
    let host = &site.hosts().await[0];
    let bmc = json!({ "address": address(&ip), "credentialsName": "racks-bmc" });
    assert_eq!(host["spec"]["bmc"], bmc, "{host:#}");
    assert_eq!(host["metadata"]["annotations"]["inspect.metal3.io"], "disabled");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_machine_gets_a_bmc_outside_of_the_subnets_or_one_that_another_names() {
    let site = Site::new("other-bmc").await;
    site.discovery("racks", policy(json!({}))).await;
    let (good, mut outside, pretender) = (site.agent(1), site.agent(2), site.agent(3));
    let (mut victim, mut late) = (site.agent(4), site.agent(5));
    outside.bmc_address = Some("198.51.100.7".to_owned());
    "{bmcAddress}@evil.example.org/%2f#".clone_into(&mut outside.hostname);
    victim.bmc_address.clone_from(&pretender.bmc_address);
    // All are there when the first is decided about.
    let mut nodes = Vec::new();
    for agent in [&good, &outside, &pretender, &victim] {
        let node = site.boot(agent).await;
        site.ironic.inventoried(&node).await.unwrap();
        nodes.push(node);
    }
    let _running = site.start(quick());
    let entry = site.listed("racks", "pending", &nodes[1], "BmcOutsideSubnets").await;
    assert_eq!(entry["proposedBMC"], address("198.51.100.7"), "{entry:#}");
    for (node, other) in [(&nodes[2], &nodes[3]), (&nodes[3], &nodes[2])] {
        let entry = site.listed("racks", "conflicts", node, "BmcAddressShared").await;
        assert!(entry["reason"].as_str().unwrap().contains(other.as_str()), "{entry:#}");
    }
    site.wait_names(&["m1"]).await;
    // Nor one that a host has, whatever a person approves.
    late.bmc_address.clone_from(&good.bmc_address);
    let node = site.boot(&late).await;
    let entry = site.listed("racks", "conflicts", &node, "BmcAddressShared").await;
    assert!(entry["reason"].as_str().unwrap().contains("/m1"), "{entry:#}");
    site.approve("racks", &format!("{node},{},{}", nodes[1], nodes[2])).await;
    site.settle().await;
    assert_eq!(site.names().await, ["m1"]);
    for node in nodes[1..].iter().chain([&node]) {
        assert_eq!(site.ironic.node(node).await.unwrap()["driver"], "fake-hardware");
    }
    // The pretender is found, and its node removed.
    site.approve("racks", "").await;
    let path = format!("/v1/nodes/{}", nodes[2]);
    let (status, body) = site.ironic.call(reqwest::Method::DELETE, &path, None).await.unwrap();
    assert!(status.is_success(), "{status} {body}");
    site.wait_names(&["m1", "m4"]).await;
}
