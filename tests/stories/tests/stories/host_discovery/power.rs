//! A discovered host and its power: nobody's without credentials, and its node's driver with them.

use std::time::Duration;

use bench::bmc::Rack;
use bench::faults::{self, Plan};
use serde_json::json;

use super::{Site, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_discovered_host_without_credentials_keeps_its_power_until_it_gets_a_bmc_and_its_driver()
{
    let site = Site::new("power").await;
    site.discovery("racks", json!({ "labels": { "ferrite.metal3.io/power": "managed" } })).await;
    let mut policy = quick();
    policy.adopt_driver = true;
    let _running = site.start(policy);
    let node = site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;

    // The other controller, which was handed this host, leaves it alone.
    let admin = site.plane.config("client", &["system:masters"]).await.unwrap();
    let (client, handle) = faults::client(admin, Plan::none("bmo-reboot")).unwrap();
    let power = super::super::bmo_reboot::run(
        client,
        site.namespace.clone(),
        bmo_reboot::settings::Policy::default(),
        site.ironic.endpoint.clone(),
    );
    let power = tokio::spawn(power);
    let status = json!({ "status": {
        "poweredOn": true, "operationalStatus": "discovered", "errorMessage": "",
        "errorCount": 0, "provisioning": { "state": "unmanaged", "ID": node },
    }});
    site.host_status("m1", status).await;
    site.annotate_host("m1", json!({ "reboot.metal3.io": "" })).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let seen = site.ironic.node(&node).await.unwrap();
    assert_eq!(seen["power_state"], json!(null), "{seen:#}");
    assert_eq!(seen["target_power_state"], json!(null), "{seen:#}");
    assert!(handle.requests() > 0);
    power.abort();

    // Its node keeps the driver of discovery until it has a BMC.
    assert_eq!(seen["driver"], "fake-hardware");
    let rack = Rack::start(1).await.unwrap();
    let machine = &rack.machines[0];
    let address = format!("redfish+{}{}", machine.address(), machine.system_path());
    let bmc = json!({ "spec": { "bmc": { "address": address, "credentialsName": "bmc" } } });
    site.patch_host("m1", bmc).await;
    let driven = |node: &serde_json::Value| node["driver"] == "redfish";
    let seen = site.ironic.wait(&node, "driven by redfish", driven).await.unwrap();
    assert_eq!(seen["power_interface"], "redfish", "{seen:#}");
    assert_eq!(
        (&seen["boot_interface"], &seen["raid_interface"]),
        (&json!("ipxe"), &json!("redfish"))
    );
    // The same driver, and another way to boot.
    let address = address.replacen("redfish+", "redfish-virtualmedia+", 1);
    site.patch_host("m1", json!({ "spec": { "bmc": { "address": address } } })).await;
    let by_media = |node: &serde_json::Value| node["boot_interface"] == "redfish-virtual-media";
    let seen = site.ironic.wait(&node, "booted by virtual media", by_media).await.unwrap();
    assert_eq!(seen["driver"], "redfish", "{seen:#}");
    // The operator goes on from there.
    let path = format!("/v1/nodes/{node}");
    let info = json!([{ "op": "add", "path": "/driver_info", "value": {
        "redfish_address": machine.address(), "redfish_system_id": machine.system_path(),
        "redfish_username": "admin", "redfish_password": "secret", "redfish_verify_ca": false,
    }}]);
    let (status, body) =
        site.ironic.call(reqwest::Method::PATCH, &path, Some(&info)).await.unwrap();
    assert!(status.is_success(), "{status} {body}");
    let manage = json!({ "target": "manage" });
    let provision = format!("{path}/states/provision");
    site.ironic.call(reqwest::Method::PUT, &provision, Some(&manage)).await.unwrap();
    let managed = |node: &serde_json::Value| node["provision_state"] == "manageable";
    site.ironic.wait(&node, "manageable", managed).await.unwrap();
}
