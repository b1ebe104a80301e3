//! The Ironic of the bench is a real one: it talks Redfish to BMCs, loses its memory of nothing, and can be cut off.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bench::agent::Agent;
use bench::bmc::{self, Behaviour, Machine, Seen};
use bench::ironic::{self, Ironic, Options, Release};
use bench::proxy::{Fault, Moment, Proxy, power_changes, writes};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Polls until the BMC has seen what is wanted.
async fn until_seen(machine: &Machine, wanted: &str, check: impl Fn(&Seen) -> bool) -> Seen {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = machine.seen().await.unwrap();
        if check(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "never {wanted}: {seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Asks for a power change and waits until Ironic is done with it.
async fn change_power(ironic: &Ironic, node: &str, target: &str, timeout: Option<u32>) -> Value {
    let (status, body) = ironic.power(node, target, timeout).await.unwrap();
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    settled(ironic, node).await
}

async fn settled(ironic: &Ironic, node: &str) -> Value {
    ironic
        .wait(node, "settled", |node| {
            node["target_power_state"].is_null() && node["reservation"].is_null()
        })
        .await
        .unwrap()
}

async fn node_of_report(ironic: &Ironic, agent: &Agent) -> String {
    let (status, body) = agent.post(ironic).await.unwrap();
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    body["uuid"].as_str().unwrap().to_owned()
}

async fn inventory(ironic: &Ironic, node: &str) -> Option<Value> {
    let path = format!("/v1/nodes/{node}/inventory");
    let (status, body) = ironic.call(Method::GET, &path, None).await.unwrap();
    (status == StatusCode::OK).then_some(body)
}

/// Waits for the node's inventory and ports: Ironic stores them after it has answered the agent.
async fn explored(ironic: &Ironic, node: &str, ports: usize) -> (Value, Vec<String>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let path = format!("/v1/ports?node={node}&detail=true");
        let (_, body) = ironic.call(Method::GET, &path, None).await.unwrap();
        let mut found: Vec<String> = body["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|port| port["address"].as_str().unwrap().to_owned())
            .collect();
        found.sort();
        if let Some(inventory) = inventory(ironic, node).await
            && found.len() == ports
        {
            return (inventory, found);
        }
        assert!(
            Instant::now() < deadline,
            "no inventory with {ports} ports, only {found:?}\n{}",
            ironic.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn the_report_of_an_unknown_machine_makes_a_node_with_its_ports_and_inventory() {
    let ironic = ironic::shared().await;
    let agent = Agent { nics: 3, ..Agent::new(7) };
    let node = node_of_report(ironic, &agent).await;
    let (seen, ports) = explored(ironic, &node, 3).await;
    assert_eq!(ports, [agent.mac(0), agent.mac(1), agent.mac(2)]);
    assert_eq!(seen["inventory"]["hostname"], agent.hostname);
    assert_eq!(seen["inventory"]["system_vendor"]["serial_number"], agent.serial.unwrap());
    assert_eq!(seen["inventory"]["bmc_address"], agent.bmc_address.unwrap());
}

#[tokio::test]
async fn a_report_of_an_error_leaves_a_node_without_an_inventory() {
    let ironic = ironic::shared().await;
    let agent = Agent { error: Some("no disks found".to_owned()), ..Agent::new(8) };
    let node = node_of_report(ironic, &agent).await;
    ironic
        .wait(&node, "failed", |node| {
            node["last_error"].as_str().is_some_and(|error| error.contains("no disks found"))
        })
        .await
        .unwrap();
    assert!(inventory(ironic, &node).await.is_none());
}

#[tokio::test]
async fn power_on_off_and_soft_off_reach_the_bmc_once_each() {
    let ironic = ironic::shared().await;
    let machine = bmc::spare().await.unwrap();
    let node = ironic.enroll("obedient", &machine).await.unwrap();
    for (target, state) in [
        ("power on", "power on"),
        ("power off", "power off"),
        ("power on", "power on"),
        ("soft power off", "power off"),
    ] {
        let after = change_power(ironic, &node, target, None).await;
        assert_eq!(after["power_state"], state, "{}", after["last_error"]);
        assert!(after["last_error"].is_null(), "{}", after["last_error"]);
    }
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.state, "Off");
    assert_eq!(seen.requests("On"), 2);
    assert_eq!(seen.requests("ForceOff"), 1);
    assert_eq!(seen.requests("GracefulShutdown"), 1);
    assert_eq!((seen.turned_on(), seen.turned_off()), (2, 2));
}

#[tokio::test]
async fn a_machine_that_is_deaf_to_a_soft_off_stays_on_and_ironic_says_so() {
    let ironic = ironic::shared().await;
    let machine = bmc::spare().await.unwrap();
    let node = ironic.enroll("deaf", &machine).await.unwrap();
    change_power(ironic, &node, "power on", None).await;
    machine
        .behave(&Behaviour { ignores: vec!["GracefulShutdown"], ..Behaviour::default() })
        .await
        .unwrap();
    let after = change_power(ironic, &node, "soft power off", Some(2)).await;
    assert_eq!(after["power_state"], "power on");
    let error = after["last_error"].as_str().unwrap();
    assert!(error.contains("soft power off"), "{error}");
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.state, "On");
    assert_eq!(seen.turned_off(), 0);
    assert_eq!(seen.requests("GracefulShutdown"), 1);
}

#[tokio::test]
async fn a_refused_power_off_leaves_the_machine_on_and_ironic_names_the_refusal() {
    let ironic = ironic::shared().await;
    let machine = bmc::spare().await.unwrap();
    let node = ironic.enroll("stubborn", &machine).await.unwrap();
    change_power(ironic, &node, "power on", None).await;
    machine.behave(&Behaviour { refuses: vec!["ForceOff"], ..Behaviour::default() }).await.unwrap();
    let after = change_power(ironic, &node, "power off", None).await;
    let error = after["last_error"].as_str().unwrap();
    assert!(error.contains("the machine refuses ForceOff"), "{error}");
    let seen = machine.seen().await.unwrap();
    assert_eq!(seen.turned_off(), 0);
    assert!(seen.requests("ForceOff") >= 1);
}

#[tokio::test]
async fn an_ironic_that_is_killed_in_a_power_change_knows_the_state_again_after_its_restart() {
    let ironic = Ironic::start(Options { power_sync: 2, ..Options::default() }).await.unwrap();
    let machine = bmc::spare().await.unwrap();
    let node = ironic.enroll("interrupted", &machine).await.unwrap();
    machine.behave(&Behaviour { delay: 3.0, ..Behaviour::default() }).await.unwrap();
    let (status, body) = ironic.power(&node, "power on", None).await.unwrap();
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    until_seen(&machine, "asked to go on", |seen| seen.requests("On") == 1).await;
    ironic.kill();
    assert!(ironic.node(&node).await.is_err(), "it is still there");
    until_seen(&machine, "on", |seen| seen.state == "On").await;

    ironic.restart().await.unwrap();
    let known = settled(&ironic, &node).await;
    let known = known["power_state"].as_str().unwrap();
    // And it takes orders again.
    machine.behave(&Behaviour::default()).await.unwrap();
    let target = if known == "power on" { "power off" } else { "power on" };
    let ordered = change_power(&ironic, &node, target, None).await;
    assert_eq!(ordered["power_state"], target, "{}", ordered["last_error"]);
}

#[tokio::test]
async fn every_release_answers_in_a_version_that_is_accepted() {
    for (release, newest) in
        [(Release::Oldest, 81), (Release::FirstWithDiscovery, 90), (Release::Current, 109)]
    {
        let ironic = ironic::of(release).await;
        let (_, root) = ironic.call(Method::GET, "/", None).await.unwrap();
        let version = root["default_version"]["version"].as_str().unwrap();
        let minor: u32 = version.strip_prefix("1.").unwrap().parse().unwrap();
        assert!(minor >= newest, "{release:?} answers {version}");

        // The oldest release too controls power, with fake and with Redfish machines.
        let fake = ironic.enroll_fake("imaginary").await.unwrap();
        let after = change_power(ironic, &fake, "power on", None).await;
        assert_eq!(after["power_state"], "power on");
        if release != Release::Current {
            let machine = bmc::spare().await.unwrap();
            let node = ironic.enroll("real", &machine).await.unwrap();
            change_power(ironic, &node, "power on", None).await;
            assert_eq!(machine.seen().await.unwrap().requests("On"), 1);
        }
        if release == Release::FirstWithDiscovery {
            let node = node_of_report(ironic, &Agent::new(1)).await;
            explored(ironic, &node, 2).await;
        }
    }
}

#[tokio::test]
async fn behind_tls_the_right_login_is_let_in_and_a_wrong_one_is_not() {
    let ironic = ironic::secured().await;
    assert!(ironic.endpoint.starts_with("https://"));
    let url = format!("{}/v1/nodes", ironic.endpoint);
    for (password, expected) in [
        (Some("right"), StatusCode::OK),
        (Some("wrong"), StatusCode::UNAUTHORIZED),
        (None, StatusCode::UNAUTHORIZED),
    ] {
        let mut request = ironic.http().get(&url);
        if let Some(password) = password {
            request = request.basic_auth("admin", Some(password));
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), expected, "password {password:?}");
    }
    let stranger = reqwest::Client::builder().no_proxy().build().unwrap();
    let refused = stranger.get(&url).send().await.unwrap_err();
    assert!(refused.is_connect(), "trusted without its authority: {refused:?}");
}

#[tokio::test]
async fn faults_of_the_proxy_reach_the_client_and_are_counted() {
    let ironic = ironic::shared().await;
    let node = ironic.enroll_fake("proxied").await.unwrap();
    let proxy = Proxy::start(ironic).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let url = format!("{}/v1/nodes/{node}/states/power", proxy.endpoint);
    let ask = |target: &str| {
        client.put(&url).json(&json!({ "target": target })).timeout(Duration::from_secs(10)).send()
    };

    proxy.fault(Fault::locked(&node), 1, power_changes);
    let answer = ask("power on").await.unwrap();
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    let body: Value = answer.json().await.unwrap();
    let inner: Value = serde_json::from_str(body["error_message"].as_str().unwrap()).unwrap();
    assert!(inner["faultstring"].as_str().unwrap().contains("is locked by host"));

    proxy.fault(Fault::CutBefore, 1, power_changes);
    ask("power on").await.unwrap_err();
    let untouched = ironic.node(&node).await.unwrap();
    assert_ne!(untouched["power_state"], "power on");

    proxy.fault(Fault::CutAfter, 1, power_changes);
    ask("power on").await.unwrap_err();
    let done = settled(ironic, &node).await;
    assert_eq!(done["power_state"], "power on", "the lost answer was to a change that was made");

    proxy.fault(Fault::Delay(Duration::from_millis(300)), 1, power_changes);
    let began = Instant::now();
    assert_eq!(ask("power off").await.unwrap().status(), StatusCode::ACCEPTED);
    assert!(began.elapsed() >= Duration::from_millis(300));
    settled(ironic, &node).await;

    proxy.fault(Fault::Hang, 1, |method, _| *method == Method::GET);
    let hung = client
        .get(format!("{}/v1/nodes", proxy.endpoint))
        .timeout(Duration::from_millis(300))
        .send()
        .await
        .unwrap_err();
    assert!(hung.is_timeout(), "{hung:?}");

    assert_eq!(proxy.count(|r| r.fault.is_some()), 5);
    let upstream: Vec<_> = proxy.requests().iter().map(|r| r.upstream).collect();
    let accepted = Some(StatusCode::ACCEPTED);
    assert_eq!(upstream, [None, None, accepted, accepted, None]);
    let answered: Vec<_> = proxy.requests().iter().map(|r| r.status).collect();
    assert_eq!(answered, [Some(StatusCode::CONFLICT), None, None, accepted, None]);
}

#[tokio::test]
async fn a_crash_comes_at_the_chosen_write_and_on_the_chosen_side_of_it() {
    let ironic = ironic::shared().await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
    let create = |name: &str| {
        client
            .post(format!("{}/v1/nodes", proxy.endpoint))
            .header("X-OpenStack-Ironic-API-Version", "1.81")
            .json(&json!({ "name": name, "driver": "fake-hardware" }))
            .send()
    };
    let crashes = Arc::new(AtomicUsize::new(0));
    let crash = || {
        let crashes = crashes.clone();
        move || {
            crashes.fetch_add(1, Ordering::SeqCst);
        }
    };
    proxy.crash(2, Moment::Before, writes, crash());
    proxy.crash(3, Moment::After, writes, crash());

    create("crash-1").await.unwrap().error_for_status().unwrap();
    assert_eq!(crashes.load(Ordering::SeqCst), 0);
    create("crash-2").await.unwrap_err();
    assert_eq!(crashes.load(Ordering::SeqCst), 1);
    create("crash-3").await.unwrap_err();
    assert_eq!(crashes.load(Ordering::SeqCst), 2);

    ironic.node("crash-1").await.unwrap();
    ironic.node("crash-2").await.unwrap_err();
    ironic.node("crash-3").await.unwrap();
}

#[tokio::test]
async fn the_next_page_is_fetched_through_the_proxy_too() {
    let ironic = ironic::shared().await;
    for name in ["page-1", "page-2"] {
        ironic.enroll_fake(name).await.unwrap();
    }
    let proxy = Proxy::start(ironic).await.unwrap();
    let page: Value = reqwest::get(format!("{}/v1/nodes?limit=1", proxy.endpoint))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let next = page["next"].as_str().unwrap();
    assert!(next.starts_with(&proxy.endpoint), "{next}");
}
