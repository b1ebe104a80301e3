//! Next to the bare metal operator: who pauses it, when it gets a host back. The operator is a stand-in that makes its
//! writes: what it does to a host that is not paused, and nothing to one that is. It cannot prove how soon the real one
//! notices.

use bmo_reboot::settings::Policy;
use serde_json::{Value, json};

use super::{HARD, Site, keys, machine, quick, record};

const PAUSED: &str = "baremetalhost.metal3.io/paused";
const HOLD: &str = "reboot.metal3.io/somebody";

pub(super) fn paused(host: &Value) -> Option<&str> {
    host["metadata"]["annotations"][PAUSED].as_str()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_is_paused_and_gets_the_host_back_for_another_image_but_not_in_a_cycle() {
    let site = Site::new("takeover").await;
    let (ironic, machine, node) = machine("takeover").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, Policy { takeover: true, ..quick() });
    let ours = Some("ferrite.metal3.io/bmo-reboot");
    site.wait("h", "taken over", |host| paused(host) == ours).await;
    site.annotate("h", json!({ HOLD: HARD })).await;
    site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    site.patch("h", json!({ "spec": { "image": { "url": "http://images/two" } } })).await;
    site.annotate("h", json!({ "reboot.metal3.io/other": HARD })).await;
    let host = site.wait("h", "held by two", |host| record(host).1.contains("/other")).await;
    assert_eq!(paused(&host), ours, "in the middle of a cycle");
    site.annotate("h", json!({ HOLD: null, "reboot.metal3.io/other": null })).await;
    let host = site.wait("h", "given back", |host| paused(host).is_none()).await;
    assert_eq!(host["status"]["poweredOn"], true, "{host:#}");
    assert_eq!(machine.seen().await.unwrap().turned_off(), 1);
    // The operator begins: whatever was asked for belonged to what it removes.
    site.annotate("h", json!({ HOLD: HARD })).await;
    let state = json!({ "status": { "provisioning": { "state": "deprovisioning" } } });
    site.status("h", state).await;
    let host = site.wait("h", "cleaned", |host| keys(host).is_empty()).await;
    assert_eq!(paused(&host), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_does_not_keep_a_host_whose_installation_is_to_go() {
    let site = Site::new("cleared").await;
    let (ironic, machine, node) = machine("cleared").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, Policy { takeover: true, ..quick() });
    site.annotate("h", json!({ HOLD: HARD })).await;
    site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    // Whose client is gone, and nobody set online to false.
    site.patch("h", json!({ "spec": { "image": null } })).await;
    let host = site.wait("h", "given back", |host| paused(host).is_none()).await;
    assert_eq!(keys(&host), [HOLD], "it is the operator who removes it");
    assert_eq!(machine.seen().await.unwrap().state, "Off");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_somebody_else_is_never_lifted() {
    let site = Site::new("their-pause").await;
    let (ironic, machine, node) = machine("their-pause").await;
    let theirs =
        json!({ "metadata": { "annotations": { PAUSED: "metal3.io/capm3", HOLD: HARD } } });
    site.host("h", &node, theirs).await;
    let _running = site.start(&ironic.endpoint, Policy { takeover: true, ..quick() });
    let refused = |host: &Value| super::condition(host, "PowerManaged").0 == "Paused";
    let host = site.wait("h", "refused", refused).await;
    assert_eq!(paused(&host), Some("metal3.io/capm3"));
    assert_eq!(machine.seen().await.unwrap().turned_off(), 0);
}
