//! Ironic that is away, comes back, forgets, refuses us or says what nobody can use.

use std::time::Duration;

use bench::faults::Plan;
use bench::ironic::{Options, Release};
use bench::proxy::{Fault, Proxy};
use serde_json::{Value, json};

use super::{Site, condition, quick, run_with};

/// Machines of which one answers each 300 ms.
const MANY: u32 = 30;

fn reachable(seen: &Value) -> (String, String, String) {
    condition(seen, "IronicReachable")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_that_goes_away_and_comes_back_shows_in_the_condition_and_loses_nothing() {
    let site = Site::new("away").await;
    site.discovery("racks", json!({})).await;
    let _running = site.start(quick());
    site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;
    site.wait("racks", "counted", |it| it["status"]["counts"]["known"] == 1).await;
    site.ironic.kill();
    let seen = site.wait("racks", "cut off", |it| reachable(it).0 == "False").await;
    assert_eq!(reachable(&seen).1, "Unreachable", "{seen:#}");
    assert!(reachable(&seen).2.contains("IRONIC_ENDPOINT"), "{seen:#}");
    assert_eq!(condition(&seen, "Ready").1, "IronicNotReachable", "{seen:#}");
    assert_eq!(seen["status"]["counts"]["known"], 1, "{seen:#}");
    site.ironic.restart().await.unwrap();
    site.boot(&site.agent(2)).await;
    site.wait_names(&["m1", "m2"]).await;
    site.wait("racks", "well", |it| condition(it, "Ready").0 == "True").await;
}

/// What Ironic still says of machines that it showed before says nothing of new ones.
#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_whose_lists_fail_is_told_though_it_answers_about_machines() {
    let site = Site::new("listless").await;
    site.discovery("racks", json!({})).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    for number in 1..=MANY {
        let inventory = format!("{}/inventory", site.boot(&site.agent(number)).await);
        let delay = Fault::Delay(Duration::from_millis(300) * number);
        proxy.fault(delay, 1, move |_, path| path.contains(&inventory));
    }
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    site.wait("racks", "reading", |it| reachable(it).0 == "True").await;
    let gone = Fault::Page(reqwest::StatusCode::GATEWAY_TIMEOUT);
    proxy.fault(gone, usize::MAX, |_, path| path.starts_with("/v1/nodes?"));
    let seen = site.wait("racks", "without lists", |it| reachable(it).0 == "False").await;
    let made = site.names().await.len();
    assert!(made < MANY as usize / 2, "{made} hosts before it was told: {seen:#}");
    proxy.heal();
    site.wait("racks", "well", |it| it["status"]["counts"]["known"] == MANY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_told_and_right_ones_are_taken_without_a_restart() {
    let login = Some(("admin".to_owned(), "right".to_owned()));
    let site = Site::with("login", Options { login, ..Options::default() }).await;
    site.discovery("racks", json!({})).await;
    let folder = bench::cache::RunDir::new("auth").unwrap();
    let files = folder.path().join("ironic");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("username"), "admin").unwrap();
    std::fs::write(files.join("password"), "wrong").unwrap();
    let root = folder.path().to_string_lossy().into_owned();
    let lookup = |name: &str| (name == "METAL3_AUTH_ROOT_DIR").then(|| root.clone());
    let settings = ::ironic::Settings::from_lookup(Some(&site.ironic.endpoint), lookup).unwrap();
    let (client, _) =
        bench::faults::client(site.account.clone(), Plan::none("host-discovery")).unwrap();
    let task = tokio::spawn(run_with(client, site.namespace.clone(), quick(), settings));
    let seen = site.wait("racks", "refused", |it| reachable(it).0 == "False").await;
    assert_eq!(reachable(&seen).1, "AuthFailed", "{seen:#}");
    assert!(reachable(&seen).2.contains("METAL3_AUTH_ROOT_DIR"), "{seen:#}");
    assert!(!seen.to_string().contains("wrong"), "{seen:#}");
    std::fs::write(files.join("password"), "right").unwrap();
    site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_not_ironic_is_told() {
    let site = Site::new("endpoint").await;
    site.discovery("racks", json!({})).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    proxy.fault(Fault::Page(reqwest::StatusCode::NOT_FOUND), usize::MAX, |_, _| true);
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    let seen = site.wait("racks", "told", |it| reachable(it).0 == "False").await;
    assert!(reachable(&seen).2.contains("IRONIC_ENDPOINT"), "{seen:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_say_too_little_or_too_much_are_reported_and_others_are_served_on() {
    let site = Site::new("ghosts").await;
    site.discovery("racks", json!({})).await;
    let mut policy = quick();
    policy.give_up = Duration::from_secs(3);
    // Far more than that one posted: something in between says it.
    let huge = site.boot(&site.agent(4)).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let of_huge = format!("{huge}/inventory");
    let page = Fault::Answer(reqwest::StatusCode::OK, "x".repeat(16 << 20));
    proxy.fault(page, usize::MAX, move |_, path| path.contains(&of_huge));
    let _running = site.start_disturbed(&proxy.endpoint, policy, Plan::none("host-discovery"));
    // The agent failed: Ironic keeps a node without ports and inventory.
    let mut failed = site.agent(1);
    failed.error = Some("lshw failed".to_owned());
    let failed = site.boot(&failed).await;
    // No architecture: Ironic refuses the whole inventory.
    let mut report = site.agent(2).report();
    report["inventory"].as_object_mut().unwrap().remove("cpu");
    let odd = site.post(&report).await;
    // Three times what is read.
    let mut report = site.agent(3).report();
    report["inventory"]["system_vendor"]["product_name"] = json!("x".repeat(3 << 20));
    let large = site.post(&report).await;
    site.boot(&site.agent(5)).await;
    site.listed("racks", "failures", &failed, "InspectionFailed").await;
    site.listed("racks", "failures", &odd, "InspectionFailed").await;
    site.listed("racks", "failures", &large, "InventoryTooLarge").await;
    site.listed("racks", "failures", &huge, "InventoryTooLarge").await;
    site.wait_names(&["m5"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inventory_deeper_than_anybody_looks_is_reported() {
    // Later releases refuse it themselves.
    let release = Release::FirstWithDiscovery;
    let site = Site::with("deep", Options { release, ..Options::default() }).await;
    site.discovery("racks", json!({})).await;
    let _running = site.start(quick());
    let mut report = site.agent(1).report();
    // Ironic's own reader has its limit, too: what is far deeper is tried on ours alone, in the tests of the crate.
    let mut deep = json!("deep");
    for _ in 0..400 {
        deep = json!([deep]);
    }
    report["inventory"]["cpu"]["frequency"] = deep;
    let node = site.post(&report).await;
    site.boot(&site.agent(2)).await;
    site.listed("racks", "failures", &node, "InventoryUnreadable").await;
    site.wait_names(&["m2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_that_fails_every_third_request_loses_no_machine_and_makes_none_twice() {
    let site = Site::new("thirds").await;
    site.discovery("racks", json!({})).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let third = move |_: &reqwest::Method, _: &str| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 3 == 2
    };
    proxy.fault(Fault::busy(), usize::MAX, third);
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    let mut wanted = Vec::new();
    for number in 1..=20 {
        site.boot(&site.agent(number)).await;
        wanted.push(format!("m{number}"));
    }
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    site.wait_names(&wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_that_lost_its_database_leaves_the_hosts_as_they_are_and_knows_them_again_when_they_boot()
 {
    let site = Site::new("emptied").await;
    site.discovery("racks", json!({})).await;
    let _running = site.start(quick());
    site.boot(&site.agent(1)).await;
    site.boot(&site.agent(2)).await;
    site.wait_names(&["m1", "m2"]).await;
    site.wait("racks", "counted", |it| it["status"]["counts"]["known"] == 2).await;
    let before = site.hosts().await;
    site.ironic.restart_empty().await.unwrap();
    let seen = site
        .wait("racks", "asked", |it| {
            it["status"]["counts"]["known"] == 0 && condition(it, "Ready").0 == "True"
        })
        .await;
    assert_eq!(reachable(&seen).0, "True", "{seen:#}");
    assert_eq!(site.hosts().await, before);
    // Each under a new identifier, and by its addresses the same machine.
    let node = site.boot(&site.agent(1)).await;
    site.boot(&site.agent(2)).await;
    site.boot(&site.agent(3)).await;
    site.wait("racks", "counted", |it| it["status"]["counts"]["known"] == 3).await;
    assert_eq!(site.names().await, ["m1", "m2", "m3"]);
    assert_eq!(site.hosts().await[..2], before[..]);
    // And a host that a person deletes then stays deleted.
    let is_marked = |it: &Value| it["extra"]["ferrite_had_host"].is_string();
    site.ironic.wait(&node, "marked", is_marked).await.unwrap();
    site.delete("m1").await;
    site.listed("racks", "pending", &node, "HostDeleted").await;
    assert_eq!(site.names().await, ["m2", "m3"]);
}
