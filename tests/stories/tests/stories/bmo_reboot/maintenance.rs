//! Nodes in maintenance: Ironic does not look at their machines, and anybody may start one by its button.

use std::time::{Duration, Instant};

use bench::bmc::Machine;
use bench::ironic::Ironic;
use bench::proxy::{Proxy, Recorded};
use bmo_reboot::settings::Policy;
use reqwest::Method;
use serde_json::{Value, json};

use super::{HARD, PATIENCE, PLAIN, Site, machine, quick, record};

pub(super) fn often() -> Policy {
    Policy { poll_interval: Duration::from_secs(2), ..quick() }
}

/// Puts a node into maintenance, or takes it out.
async fn maintain(ironic: &Ironic, node: &str, method: Method) {
    let path = format!("/v1/nodes/{node}/maintenance");
    let (status, body) = ironic.call(method, &path, None).await.unwrap();
    assert!(status.is_success(), "{status} {body}");
}

/// Somebody starts the machine, of which Ironic knows nothing.
pub(super) async fn started(ironic: &Ironic, node: &str, machine: &Machine) {
    machine.press("On").await.unwrap();
    assert_eq!(machine.seen().await.unwrap().state, "On");
    assert_eq!(ironic.node(node).await.unwrap()["power_state"], "power off");
}

fn is_held(host: &Value, key: &str) -> bool {
    let (reason, message) = record(host);
    reason == "HeldOff" && message.contains(key)
}

/// Waits until the host says that it is held off for this key, and looks at its machine whenever it does.
pub(super) async fn held(site: &Site, machine: &Machine, key: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let host = site.get("h").await;
        if is_held(&host, key) {
            assert_eq!(machine.seen().await.unwrap().state, "Off", "{host:#}");
            if host["status"]["poweredOn"] == false {
                return host;
            }
        }
        assert!(Instant::now() < deadline, "never held off by {key}: {host:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_of_a_machine_that_was_started_during_maintenance_is_not_believed_before_it_is_off()
{
    let site = Site::new("serviced").await;
    let (ironic, machine, node) = machine("serviced").await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({ "spec": { "online": false } })).await;
    let first = site.start(&proxy.endpoint, often());
    site.wait("h", "out of use", |host| record(host).0 == "Offline").await;
    maintain(ironic, &node, Method::PUT).await;
    started(ironic, &node, &machine).await;
    let (one, other) = (format!("{PLAIN}/one"), format!("{PLAIN}/other"));
    site.annotate("h", json!({ (one.as_str()): HARD })).await;
    held(&site, &machine, &one).await;
    let asked = ["soft power off", "power off", "power off"];
    assert_eq!(proxy.agreed(&node), asked);
    // Also for the next process.
    drop(first);
    let began = Instant::now();
    let _second = site.start(&proxy.endpoint, often());
    let since = |it: &Recorded| it.at > began && it.took.is_some();
    let lists = || proxy.count(|it| since(it) && it.path.starts_with("/v1/nodes?"));
    while lists() < 3 {
        assert!(began.elapsed() < PATIENCE, "the nodes are not listed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(proxy.agreed(&node), asked);
    assert!(is_held(&site.get("h").await, &one));
    // Whoever comes later has not seen what happened since.
    started(ironic, &node, &machine).await;
    site.annotate("h", json!({ (other.as_str()): HARD })).await;
    held(&site, &machine, &other).await;
    assert_eq!(proxy.agreed(&node)[3..], ["power off", "power off"]);
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (3, 3), "{seen:?}");
    maintain(ironic, &node, Method::DELETE).await;
    let told = |host: &Value| is_held(host, &other) && !record(host).1.contains("maintenance");
    site.wait("h", "held off as always", told).await;
    site.annotate("h", json!({ (one.as_str()): null, (other.as_str()): null })).await;
    site.patch("h", json!({ "spec": { "online": true } })).await;
    site.wait("h", "on", |host| host["status"]["poweredOn"] == true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_held_before_the_maintenance_is_not_said_to_be_held_off_in_it() {
    let site = Site::new("maintained").await;
    let (ironic, machine, node) = machine("maintained").await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    let _running = site.start(&proxy.endpoint, often());
    let key = format!("{PLAIN}/one");
    site.annotate("h", json!({ (key.as_str()): HARD })).await;
    held(&site, &machine, &key).await;
    maintain(ironic, &node, Method::PUT).await;
    let lost = |host: &Value| {
        let (reason, message) = record(host);
        reason == "PowerUnknown" && message.contains("maintenance") && message.contains(&key)
    };
    let host = site.wait("h", "out of sight", lost).await;
    assert_eq!(host["status"]["poweredOn"], false, "nobody has seen it on: {host:#}");
    started(ironic, &node, &machine).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(proxy.agreed(&node), ["power off", "power off"], "somebody may be at work on it");
    maintain(ironic, &node, Method::DELETE).await;
    held(&site, &machine, &key).await;
    assert_eq!(proxy.agreed(&node)[2..], ["power off", "power off"]);
    site.annotate("h", json!({ (key.as_str()): null })).await;
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (2, 3), "{seen:?}");
}
