//! Whose hosts are touched, what a host that was deprovisioned keeps, and input that makes no sense.

use std::time::{Duration, Instant};

use bench::proxy::Proxy;
use serde_json::{Value, json};

use super::{HARD, PLAIN, Site, condition, keys, machine, quick, record, stamps, switch};

const HOLD: &str = "reboot.metal3.io/somebody";

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_not_ours_is_never_touched_and_says_why() {
    let site = Site::new("not-ours").await;
    let (ironic, machine, node) = machine("not-ours").await;
    let asked = json!({ PLAIN: HARD, HOLD: HARD });
    let with = |more: Value| {
        let mut all = json!({ "metadata": { "annotations": asked } });
        super::merge(&mut all, more);
        all
    };
    let annotated = |key: &str| json!({ "metadata": { "annotations": { key: "x" } } });
    for (name, reason, more) in [
        ("paused", "Paused", annotated("baremetalhost.metal3.io/paused")),
        ("detached", "Detached", annotated("baremetalhost.metal3.io/detached")),
        (
            "available",
            "NotProvisioned",
            json!({ "status": { "provisioning": { "state": "available" } } }),
        ),
        ("bare", "NoCredentials", json!({ "spec": { "bmc": null } })),
        ("deleted", "Deleting", json!({ "metadata": { "finalizers": ["tests/keep"] } })),
        (
            "unlabelled",
            "",
            json!({ "metadata": { "labels": { "ferrite.metal3.io/power": "no" } } }),
        ),
    ] {
        site.host(name, &node, with(more)).await;
        if name == "deleted" {
            site.api().delete(name, &kube::api::DeleteParams::default()).await.unwrap();
        }
        let running = site.start(&ironic.endpoint, quick());
        let host = if reason.is_empty() {
            // Nothing is to happen: the host beside it shows that the controller has looked.
            let beside =
                json!({ "metadata": { "annotations": { "baremetalhost.metal3.io/paused": "" } } });
            site.host("beside", &node, beside).await;
            site.wait("beside", "looked at", |host| !condition(host, "PowerManaged").0.is_empty())
                .await;
            site.get(name).await
        } else {
            site.wait(name, reason, |host| condition(host, "PowerManaged").0 == reason).await
        };
        assert_eq!(keys(&host).len(), 2, "{name}: {host:#}");
        assert_eq!(stamps(&host), (None, None), "{name}");
        drop(running);
        site.patch(name, json!({ "metadata": { "finalizers": [] } })).await;
        let _ = site.api().delete(name, &kube::api::DeleteParams::default()).await;
    }
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (0, 1), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deprovisioned_host_loses_all_requests_and_stamps_even_if_nobody_looked_meanwhile() {
    let site = Site::new("deprovisioned").await;
    let (ironic, _, node) = machine("deprovisioned").await;
    site.host("h", &node, json!({})).await;
    let running = site.start(&ironic.endpoint, quick());
    site.annotate("h", json!({ HOLD: HARD })).await;
    site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    drop(running);
    site.annotate("h", json!({ PLAIN: "" , "other/annotation": "kept" })).await;
    let state = json!({ "status": { "provisioning": { "state": "available" } } });
    site.status("h", state).await;
    let _running = site.start(&ironic.endpoint, quick());
    let host = site
        .wait("h", "cleaned", |host| keys(host).is_empty() && stamps(host) == (None, None))
        .await;
    assert_eq!(host["metadata"]["annotations"]["other/annotation"], "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_online_false_a_request_ends_in_off_and_waits_there() {
    let site = Site::new("offline").await;
    let (ironic, machine, node) = machine("offline").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    site.patch("h", json!({ "spec": { "online": false } })).await;
    site.wait("h", "off", |host| host["status"]["poweredOn"] == false).await;
    site.annotate("h", json!({ PLAIN: HARD })).await;
    site.annotate("h", json!({ HOLD: HARD })).await;
    site.wait("h", "held", |host| record(host).0 == "HeldOff").await;
    site.annotate("h", json!({ HOLD: null })).await;
    let host = site.wait("h", "not held", |host| record(host).0 != "HeldOff").await;
    assert_eq!(keys(&host), [PLAIN], "with online false it is kept");
    site.patch("h", json!({ "spec": { "online": true } })).await;
    let host = site.wait("h", "on", |host| host["status"]["poweredOn"] == true).await;
    assert!(keys(&host).is_empty(), "{host:#}");
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_off_already_is_switched_on_without_a_cycle() {
    let site = Site::new("off-already").await;
    let (ironic, machine, node) = machine("off-already").await;
    switch(ironic, &node, "power off").await;
    let off =
        json!({ "status": { "poweredOn": false }, "metadata": { "annotations": { PLAIN: "" } } });
    site.host("h", &node, off).await;
    let _running = site.start(&ironic.endpoint, quick());
    let host = site.wait("h", "on", |host| host["status"]["poweredOn"] == true).await;
    assert!(keys(&host).is_empty() && stamps(&host).0.is_none(), "{host:#}");
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

/// Off is believed at the second look. Who writes something about the host between the two must not end the matter.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_installed_but_not_switched_on_is_although_somebody_writes_meanwhile() {
    let site = Site::new("off-unnoticed").await;
    let (ironic, machine, node) = machine("off-unnoticed").await;
    switch(ironic, &node, "power off").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    let managed = |host: &Value| condition(host, "PowerManaged").0 == "Managed";
    site.wait("h", "managed", managed).await;
    site.patch("h", json!({ "metadata": { "labels": { "somebody": "wrote" } } })).await;
    site.wait("h", "switched on", |host| stamps(host).1.is_some()).await;
    site.wait("h", "on", |host| record(host).0 == "Completed").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_make_no_sense_are_soft_with_one_warning_each() {
    let site = Site::new("nonsense").await;
    let (ironic, machine, node) = machine("nonsense").await;
    let large = "x".repeat(200 * 1024);
    let key = |name: &str| format!("{PLAIN}/{name}");
    let annotations = json!({
        (key("uid")): "0d3b2ad6-5ee2-4a3c-b8f0-3d3a3b6f1a55",
        (key("mode")): r#"{"mode":"medium"}"#,
        (key("large")): large,
        (key("binary")): "\u{1}\u{2}\u{fffd}\u{7f}",
    });
    site.host("h", &node, json!({ "metadata": { "annotations": annotations } })).await;
    let _running = site.start(&ironic.endpoint, quick());
    let host = site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    assert_eq!(keys(&host).len(), 4);
    assert_eq!(host["metadata"]["annotations"][key("large")].as_str().unwrap().len(), 200 * 1024);
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.requests("GracefulShutdown"), seen.requests("ForceOff")), (1, 0));
    let warned = site.events("InvalidRequest").await;
    assert_eq!(warned.len(), 4, "{warned:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_makes_no_sense_is_warned_about_although_nothing_is_to_be_done() {
    let site = Site::new("nonsense-off").await;
    let (ironic, _, node) = machine("nonsense-off").await;
    switch(ironic, &node, "power off").await;
    let off = json!({ "status": { "poweredOn": false }, "spec": { "online": false } });
    site.host("h", &node, off).await;
    let _running = site.start(&ironic.endpoint, quick());
    site.wait("h", "looked at", |host| !condition(host, "PowerManaged").0.is_empty()).await;
    site.annotate("h", json!({ PLAIN: "off please" })).await;
    let deadline = Instant::now() + super::PATIENCE;
    while site.events("InvalidRequest").await.is_empty() {
        assert!(Instant::now() < deadline, "nobody was warned");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(keys(&site.get("h").await), [PLAIN], "with online false it is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_registered_anew_is_found_by_its_name() {
    let site = Site::new("anew").await;
    let (ironic, machine, _) = machine(&format!("{}~h", site.namespace)).await;
    let gone = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    site.host("h", gone, json!({ "metadata": { "annotations": { PLAIN: HARD } } })).await;
    let _running = site.start(&ironic.endpoint, quick());
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_with_one_node_are_both_refused_until_that_is_corrected() {
    let site = Site::new("twins").await;
    let (ironic, machine, node) = machine("twins").await;
    let asked = json!({ "metadata": { "annotations": { PLAIN: HARD } } });
    site.host("a", &node, asked.clone()).await;
    site.host("b", &node, asked).await;
    site.host("lost", "no-such-node", json!({})).await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let _running = site.start(&proxy.endpoint, quick());
    for (name, reason) in [("a", "NodeShared"), ("b", "NodeShared"), ("lost", "NodeNotFound")] {
        site.wait(name, reason, |host| condition(host, "PowerManaged").0 == reason).await;
    }
    let once = |host: &str| (host.to_owned(), 1);
    let told = async || (site.warned("NodeShared").await, site.warned("NodeNotFound").await);
    let wanted = (vec![once("a"), once("b")], vec![once("lost")]);
    let deadline = Instant::now() + super::PATIENCE;
    loop {
        let seen = told().await;
        if seen == wanted {
            break;
        }
        assert!(Instant::now() < deadline, "never told once each: {seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // When the second of two more looks at a host begins, the first is over with all that it tells.
    for (host, node) in [("a", node.as_str()), ("b", node.as_str()), ("lost", "no-such-node")] {
        let path = format!("/v1/nodes/{node}");
        let looks = || proxy.count(|it| it.path.starts_with(&path));
        let (enough, began) = (looks() + 2, Instant::now());
        while looks() < enough {
            assert!(began.elapsed() < super::PATIENCE, "nobody looks at {host} again");
            let moment = format!("{:?}", began.elapsed());
            site.annotate(host, json!({ "tests/look": moment })).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(told().await, wanted, "not again without a change");
    assert_eq!(machine.seen().await.unwrap().turned_off(), 0);
    site.status("b", json!({ "status": { "provisioning": { "ID": "elsewhere" } } })).await;
    site.cycled("a").await;
    assert_eq!(machine.seen().await.unwrap().turned_off(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_of_which_one_names_the_node_and_one_its_uuid_are_both_refused() {
    let site = Site::new("two-names").await;
    let (ironic, machine, node) = machine("two-names").await;
    let name = ironic.node(&node).await.unwrap()["name"].as_str().unwrap().to_owned();
    assert_ne!(name, node);
    let asked = json!({ "metadata": { "annotations": { PLAIN: HARD } } });
    site.host("a", &node, asked.clone()).await;
    site.host("b", &name, asked).await;
    let _running = site.start(&ironic.endpoint, quick());
    for host in ["a", "b"] {
        let is_shared = |host: &Value| condition(host, "PowerManaged").0 == "NodeShared";
        site.wait(host, "refused", is_shared).await;
    }
    assert_eq!(machine.seen().await.unwrap().turned_off(), 0);
    // The name alone is as good as the UUID.
    site.status("a", json!({ "status": { "provisioning": { "ID": "elsewhere" } } })).await;
    site.cycled("b").await;
    assert_eq!(machine.seen().await.unwrap().turned_off(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_must_stay_on_is_reset_once_and_a_hold_is_refused() {
    let site = Site::new("stays-on").await;
    let (ironic, machine, node) = machine("stays-on").await;
    site.host("h", &node, json!({ "spec": { "disablePowerOff": true } })).await;
    let _running = site.start(&ironic.endpoint, quick());
    site.annotate("h", json!({ PLAIN: HARD })).await;
    site.wait("h", "reset", |host| stamps(host).1 > stamps(host).0 && keys(host).is_empty()).await;
    site.wait("h", "completed", |host| record(host).0 == "Completed").await;
    let resets =
        |seen: &bench::bmc::Seen| seen.requests("ForceRestart") + seen.requests("ForceOff");
    assert_eq!(resets(&machine.seen().await.unwrap()), 1);
    site.annotate("h", json!({ HOLD: HARD })).await;
    let host = site.wait("h", "refused", |host| record(host).0 == "HoldUnsupported").await;
    assert_eq!((keys(&host).len(), &host["status"]["poweredOn"]), (1, &json!(true)));
    // Accepted is not done yet.
    let settled = |node: &Value| node["target_power_state"].is_null();
    ironic.wait(&node, "settled", settled).await.unwrap();
    assert_eq!(resets(&machine.seen().await.unwrap()), 2);
    // A second look changes nothing; the other host shows that there was one.
    site.annotate("h", json!({ "tests/look": "again" })).await;
    site.host("later", "no-such-node", json!({})).await;
    site.wait("later", "looked at", |host| !condition(host, "PowerManaged").0.is_empty()).await;
    ironic.wait(&node, "settled", settled).await.unwrap();
    assert_eq!(resets(&machine.seen().await.unwrap()), 2);
}
