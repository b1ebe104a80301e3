//! Off is asked, not read: what Ironic has stored of a machine is as old as its last look, and nobody is told to hold a machine off
//! that runs.

use bench::bmc::Behaviour;
use bench::proxy::Proxy;
use serde_json::json;

use super::maintenance::{held, often, started};
use super::{HARD, PLAIN, Site, condition, machine, record};

/// Started by its button while Ironic shows it off, before the first client holds it, and again before the second one does.
async fn started_by_its_button(mode: &str) {
    let name = if mode == HARD { "button" } else { "button-soft" };
    let site = Site::new(name).await;
    let (ironic, machine, node) = machine(name).await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({ "spec": { "online": false } })).await;
    let _running = site.start(&proxy.endpoint, often());
    site.wait("h", "out of use", |host| record(host).0 == "Offline").await;
    for (client, offs) in [("one", 2), ("other", 3)] {
        let key = format!("{PLAIN}/{client}");
        started(ironic, &node, &machine).await;
        site.annotate("h", json!({ (key.as_str()): mode })).await;
        held(&site, &machine, &key).await;
        let seen = machine.seen().await.unwrap();
        assert_eq!((seen.turned_off(), seen.turned_on()), (offs, offs), "{seen:?}");
    }
    let asked = proxy.agreed(&node);
    let off = if mode == HARD { "power off" } else { "soft power off" };
    assert!(asked[1..].iter().all(|it| it == off), "as the clients want it: {asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_started_by_its_button_is_off_before_anybody_is_told_to_hold_it() {
    started_by_its_button(HARD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_started_by_its_button_is_shut_down_for_those_who_ask_softly() {
    started_by_its_button("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_still_shuts_down_while_its_bmc_calls_it_off_is_waited_for() {
    let site = Site::new("closing").await;
    let (ironic, machine, node) = machine("closing").await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    let _running = site.start(&proxy.endpoint, often());
    site.wait("h", "looked at", |host| condition(host, "PowerManaged").0 == "Managed").await;
    machine.behave(&Behaviour { delay: 2.5, ..Behaviour::default() }).await.unwrap();
    machine.press("PoweringOff").await.unwrap();
    let key = format!("{PLAIN}/one");
    site.annotate("h", json!({ (key.as_str()): HARD })).await;
    held(&site, &machine, &key).await;
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.requests("ForceOff"), 0, "Ironic took it for off: {seen:?}");
    assert_eq!(proxy.agreed(&node), ["power off", "power off"]);
    site.annotate("h", json!({ (key.as_str()): null })).await;
    site.cycled("h").await;
}
