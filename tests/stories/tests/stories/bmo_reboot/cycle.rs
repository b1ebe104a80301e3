//! One host and its requests: the mission's sentences about a cycle.

use std::time::Duration;

use bench::bmc::Behaviour;
use bench::ironic;
use bench::proxy::Proxy;
use futures_util::future::join_all;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{HARD, PLAIN, Site, keys, machine, quick, record, stamps, switch};
use crate::plugin::ask_as_admin;

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_request_is_one_soft_off_and_one_on_with_strictly_ordered_stamps() {
    let site = Site::new("plain").await;
    let (ironic, machine, node) = machine("plain").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    let before = Timestamp::now();
    site.annotate("h", json!({ PLAIN: "" })).await;
    let host = site.cycled("h").await;
    let (pending, last) = stamps(&host);
    assert!(before <= pending.unwrap(), "the stamp is earlier than the request: {host:#}");
    assert!(pending < last && last.unwrap() <= Timestamp::now(), "{host:#}");
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.requests("GracefulShutdown"), 1);
    assert_eq!(seen.requests("ForceOff"), 0);
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn power_returns_only_when_the_last_of_three_holds_has_gone() {
    let site = Site::new("holds").await;
    let (ironic, machine, node) = machine("holds").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    let key = |name: &str| format!("{PLAIN}/{name}");
    site.annotate("h", json!({ (key("a")): HARD })).await;
    site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    let said = ask_as_admin(site.plane, &site.namespace, &["host", "h", "-o", "json"]).await;
    let told = said.json();
    assert_eq!(told["chain"][0]["reason"], "HeldOff", "{told:#}");
    let hold = json!({ "key": key("a"), "hard": true, "proven": true });
    assert_eq!(told["host"]["holds"], json!([hold]));
    site.annotate("h", json!({ (key("b")): "", PLAIN: "" })).await;
    site.annotate("h", json!({ (key("c")): HARD })).await;
    site.wait("h", "held by three", |host| {
        record(host).1.contains("/c") && !keys(host).contains(&PLAIN.to_owned())
    })
    .await;
    for name in ["b", "a"] {
        site.annotate("h", json!({ (key(name)): null })).await;
        let gone = |host: &Value| !record(host).1.contains(&key(name));
        let host = site.wait("h", "held by fewer", gone).await;
        assert_eq!(
            (record(&host).0.as_str(), &host["status"]["poweredOn"]),
            ("HeldOff", &json!(false))
        );
        assert_eq!(machine.seen().await.unwrap().state, "Off");
    }
    site.annotate("h", json!({ (key("c")): null })).await;
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
    assert_eq!(seen.requests("GracefulShutdown"), 0, "hard was asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn power_returns_with_the_last_of_three_holds_in_whatever_order_they_come_and_go() {
    let site = Site::new("orders").await;
    let proxy = Proxy::start(ironic::shared().await).await.unwrap();
    let _running = site.start(&proxy.endpoint, quick());
    let orders = [
        ("abc", "cab"),
        ("acb", "bac"),
        ("bac", "abc"),
        ("bca", "acb"),
        ("cab", "cba"),
        ("cba", "bca"),
    ];
    join_all(orders.map(|(come, go)| in_order(&site, &proxy, come, go))).await;
}

/// Three clients of whom `b` asks softly and the others hard.
async fn in_order(site: &Site, proxy: &Proxy, come: &str, go: &str) {
    let ironic = ironic::shared().await;
    let host = format!("h-{come}");
    let node = ironic.enroll_fake(&format!("{}-{come}", site.namespace)).await.unwrap();
    switch(ironic, &node, "power on").await;
    site.host(&host, &node, json!({})).await;
    let key = |client: char| format!("{PLAIN}/{client}");
    let held = |host: &Value| record(host).0 == "HeldOff" && host["status"]["poweredOn"] == false;
    for client in come.chars() {
        let mode = if client == 'b' { "" } else { HARD };
        site.annotate(&host, json!({ (key(client)): mode })).await;
        let counts = |it: &Value| held(it) && record(it).1.contains(&key(client));
        site.wait(&host, "held by one more", counts).await;
    }
    let off = if come.starts_with('b') { "soft power off" } else { "power off" };
    for client in go.chars() {
        // Each who comes has Ironic asked for off, which changes nothing.
        let power = proxy.powered(&node);
        let stays = power[0] == off && power.iter().all(|it| it.ends_with("off"));
        assert!(stays, "{come} came, and {client} of {go} is the next to go: {power:?}");
        site.annotate(&host, json!({ (key(client)): null })).await;
        if !go.ends_with(client) {
            let counts = |it: &Value| held(it) && !record(it).1.contains(&key(client));
            site.wait(&host, "held by one less", counts).await;
        }
    }
    site.cycled(&host).await;
    let power = proxy.powered(&node);
    let on = power.iter().position(|it| it == "power on");
    assert_eq!(on, Some(power.len() - 1), "{come} came, {go} went: {power:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_ignores_a_soft_off_is_cut_after_the_bound() {
    let site = Site::new("deaf").await;
    let (ironic, machine, node) = machine("deaf-to-us").await;
    machine
        .behave(&Behaviour { ignores: vec!["GracefulShutdown"], ..Behaviour::default() })
        .await
        .unwrap();
    site.host("h", &node, json!({})).await;
    let mut policy = quick();
    policy.soft_timeout = Duration::from_secs(30);
    let _running = site.start(&ironic.endpoint, policy.clone());
    site.annotate("h", json!({ PLAIN: r#"{"mode":"soft"}"# })).await;
    let host = site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.requests("ForceOff"), 1);
    assert!(seen.requests("GracefulShutdown") >= 1, "softly first: {seen:?}");
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
    let asked = seen.history.iter().find(|it| it.request.as_deref() == Some("GracefulShutdown"));
    let cut = seen.history.iter().find(|it| it.request.as_deref() == Some("ForceOff"));
    let waited = cut.unwrap().at - asked.unwrap().at;
    // The bound begins when the attempt is written down, which on a busy machine is seconds before the BMC hears of it.
    assert!(waited > policy.soft_timeout.as_secs_f64() / 2.0, "cut after {waited} s: {host:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_request_during_a_soft_attempt_is_delayed_by_one_slice_at_most() {
    let site = Site::new("harder").await;
    let (ironic, machine, node) = machine("harder").await;
    machine
        .behave(&Behaviour { ignores: vec!["GracefulShutdown"], ..Behaviour::default() })
        .await
        .unwrap();
    site.host("h", &node, json!({})).await;
    let mut policy = quick();
    policy.soft_timeout = Duration::from_secs(600);
    let _running = site.start(&ironic.endpoint, policy);
    site.annotate("h", json!({ PLAIN: "" })).await;
    site.wait("h", "softly asked", |host| record(host).0 == "SoftPowerOff").await;
    site.annotate("h", json!({ (format!("{PLAIN}/fence")): HARD })).await;
    let before = machine.seen().await.unwrap().requests("GracefulShutdown");
    site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.requests("ForceOff"), 1);
    // One more may have been on its way when the hard request came.
    assert!(seen.requests("GracefulShutdown") <= before + 1, "softly again: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_accepted_is_carried_out_although_it_is_withdrawn() {
    let site = Site::new("withdrawn").await;
    let (ironic, machine, node) = machine("withdrawn").await;
    machine.behave(&Behaviour { delay: 2.0, ..Behaviour::default() }).await.unwrap();
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    let key = format!("{PLAIN}/impatient");
    site.annotate("h", json!({ (key.as_str()): HARD })).await;
    site.wait("h", "accepted", |host| stamps(host).0.is_some()).await;
    site.annotate("h", json!({ (key.as_str()): null })).await;
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_comes_while_power_returns_is_not_shown_off() {
    let site = Site::new("late-hold").await;
    let (ironic, machine, node) = machine("late-hold").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    let (first, late) = (format!("{PLAIN}/first"), format!("{PLAIN}/late"));
    site.annotate("h", json!({ (first.as_str()): HARD })).await;
    site.wait("h", "held off", |host| record(host).0 == "HeldOff").await;
    // Ironic tries for half a minute to switch it on, and it never comes on: so nothing but the hold can take back the off.
    machine.behave(&Behaviour { ignores: vec!["On"], ..Behaviour::default() }).await.unwrap();
    site.annotate("h", json!({ (first.as_str()): null })).await;
    let coming = |node: &Value| node["target_power_state"] == "power on";
    ironic.wait(&node, "coming on", coming).await.unwrap();
    site.annotate("h", json!({ (late.as_str()): HARD })).await;
    site.wait("h", "not shown off", |host| host["status"]["poweredOn"] == true).await;
    // When Ironic has given up, it is asked for off, and finds the machine so.
    let held = |host: &Value| {
        let (reason, message) = record(host);
        reason == "HeldOff" && message.contains("/late") && host["status"]["poweredOn"] == false
    };
    site.wait("h", "held off again", held).await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 1), "{seen:?}");
    machine.behave(&Behaviour::default()).await.unwrap();
    site.annotate("h", json!({ (late.as_str()): null })).await;
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}
