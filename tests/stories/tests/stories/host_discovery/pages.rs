//! Hundreds of machines in an Ironic that puts twenty of them on a page.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use bench::agent::Agent;
use bench::faults::Plan;
use bench::ironic::Options;
use bench::proxy::{Fault, Proxy};
use reqwest::Method;
use serde_json::json;

use super::{Site, quick};

const PAGE: u32 = 20;
const FIRST: u32 = 200;
const TURNS: u32 = 10;
/// So many go and so many come at each turn.
const EACH: u32 = 4;

fn machine(site: &Site, number: u32) -> (String, Agent) {
    (format!("00000000-0000-4000-8000-{:012}", site.base + number), site.agent(number))
}

/// Somebody deletes a node, which Ironic may be at work on.
async fn remove(site: &Site, node: &str) {
    let deadline = Instant::now() + super::PATIENCE;
    loop {
        let path = format!("/v1/nodes/{node}");
        let (status, body) = site.ironic.call(Method::DELETE, &path, None).await.unwrap();
        if status.is_success() {
            return;
        }
        assert!(status.as_u16() == 409 && Instant::now() < deadline, "{node}: {status} {body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_hundreds_of_machines_that_come_and_go_between_two_pages_none_is_missed_and_none_is_two_hosts()
 {
    let site = Site::with("pages", Options { page: Some(PAGE), ..Options::default() }).await;
    site.discovery("racks", json!({})).await;
    let like = Agent { hostname: "like-all-others".to_owned(), ..site.agent(0) };
    let first = site.boot(&like).await;
    site.ironic.inventoried(&first).await.unwrap();
    let come = async |from: u32, count: u32| -> Vec<(String, Agent)> {
        let all: Vec<_> = (from..from + count).map(|number| machine(&site, number)).collect();
        site.ironic.multiply(&first, &like, &all).await.unwrap();
        all
    };
    let mut there = come(1, FIRST).await;
    // A list takes long enough for much to happen between two of its pages.
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let lists = |method: &Method, path: &str| *method == Method::GET && path.contains("/nodes?");
    proxy.fault(Fault::Delay(Duration::from_millis(50)), usize::MAX, lists);
    let policy = super::Policy { create_rate: NonZeroU32::new(1000).unwrap(), ..quick() };
    let _running = site.start_disturbed(&proxy.endpoint, policy, Plan::none("host-discovery"));
    for turn in 0..TURNS {
        for _ in 0..EACH {
            // The last ones of pages among them: after those a list cannot go on.
            let place = (turn * PAGE + PAGE - 2).min(u32::try_from(there.len()).unwrap() - 1);
            let (node, _) = there.remove(place as usize);
            remove(&site, &node).await;
        }
        there.extend(come(FIRST + 1 + turn * EACH, EACH).await);
    }
    let deadline = Instant::now() + super::PATIENCE;
    loop {
        let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for host in site.hosts().await {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let mac = text(&host["spec"]["bootMACAddress"]);
            hosts.entry(mac).or_default().push(text(&host["metadata"]["name"]));
        }
        let twice: Vec<_> = hosts.values().filter(|it| it.len() > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        let missed: Vec<_> = there.iter().filter(|it| !hosts.contains_key(&it.1.mac(0))).collect();
        if missed.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            let missed: Vec<_> = missed.iter().map(|it| &it.0).collect();
            panic!("missed: {missed:#?}\n{:#}", site.get("racks").await["status"]);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let known = there.len() + 1;
    site.wait("racks", "counted", |it| it["status"]["counts"]["known"] == known).await;
    let pages = proxy.count(|it| lists(&it.method, &it.path) && it.path.contains("marker="));
    assert!(pages >= (FIRST / PAGE) as usize, "{pages}");
}
