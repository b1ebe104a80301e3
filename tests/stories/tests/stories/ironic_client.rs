//! The client of Ironic against the real one: what it speaks, how it reads lists, and what it says when there is no
//! proper answer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bench::agent::Agent;
use bench::bmc::Rack;
use bench::ironic::{Ironic, Options, Release, of, shared};
use bench::process::free_port;
use bench::proxy::{Fault, Proxy, Recorded, power_changes};
use futures_util::StreamExt as _;
use ironic::{
    CONNECTIONS, Class, Client, Detail, Error, Node, NodeQuery, PortQuery, PowerTarget, Settings,
    Version,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Settings as a `main` reads them, from this environment and no other.
pub(crate) fn settings(endpoint: &str, variables: &[(&str, &str)]) -> Settings {
    let read = |name: &str| {
        let given = variables.iter().find(|(known, _)| *known == name);
        match given {
            Some((_, value)) => Some((*value).to_owned()),
            // Nothing of the machine that the tests run on.
            None => (name == "METAL3_AUTH_ROOT_DIR").then(|| "/nonexistent".to_owned()),
        }
    };
    Settings::from_lookup(Some(endpoint), read).unwrap()
}

/// A client of an Ironic that lets everybody in.
pub(crate) fn client(endpoint: &str) -> Client {
    Client::new(settings(endpoint, &[])).unwrap()
}

/// An error is shown to people in conditions: one sentence of one line, with the request that failed.
fn one_sentence(error: &Error, request: &str, words: &[&str]) {
    let text = error.to_string();
    assert!(text.starts_with(&format!("{request}: ")), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains('<'), "{text}");
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

/// Asks for a power state as `bmo-reboot` does.
pub(crate) async fn set_power(
    client: &Client,
    node: &str,
    target: PowerTarget,
) -> ironic::Result<()> {
    client.ready_for_power(node, target).await?.send().await
}

/// Has Ironic make this below a path.
pub(crate) async fn make(ironic: &Ironic, path: &str, what: Value) -> Value {
    let (status, made) = ironic.call(Method::POST, path, Some(&what)).await.unwrap();
    assert_eq!(status, StatusCode::CREATED, "{made}");
    made
}

/// Registers nodes of one class, oldest first.
async fn register(ironic: &Ironic, class: &str, count: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    for number in 0..count {
        let node = json!({
            "name": format!("{class}-{number}"),
            "driver": "fake-hardware",
            "resource_class": class,
        });
        nodes.push(serde_json::from_value(make(ironic, "/v1/nodes", node).await).unwrap());
    }
    nodes
}

#[tokio::test]
async fn with_each_release_the_newest_version_that_both_sides_know_is_spoken() {
    const FIELDS: Detail = Detail::Fields(&["uuid", "disable_power_off"]);
    for (release, spoken, knows) in [
        (Release::Oldest, Version::OLDEST, None),
        (Release::FirstWithDiscovery, Version(90), None),
        (Release::Current, Version::NEWEST, Some(false)),
    ] {
        let ironic = of(release).await;
        let client = client(&ironic.endpoint);
        assert_eq!(client.check().await.unwrap(), spoken, "{release:?}");
        // A field that this release lacks is not asked for, and stays empty.
        let name = format!("version-{}", spoken.0);
        let made = ironic.enroll_fake(&name).await.unwrap();
        let node = client.node(&name, FIELDS).await.unwrap();
        assert_eq!((node.uuid, node.disable_power_off), (made, knows), "{release:?}");
    }
}

#[tokio::test]
async fn an_upgrade_is_followed_and_a_release_that_is_too_old_is_refused_in_one_sentence() {
    let options = Options {
        release: Release::FirstWithDiscovery,
        speaks_like: Some("21.4"),
        ..Options::default()
    };
    let mut ironic = Ironic::start(options).await.unwrap();
    let client = client(&ironic.endpoint);
    assert_eq!(client.check().await.unwrap(), Version(82));

    ironic.reconfigure(|options| options.speaks_like = None).await.unwrap();
    // The first answer of the new release says what it offers, the next request makes use of it.
    client.drivers(None).await.unwrap();
    assert_eq!(client.version().await.unwrap(), Version(90));

    ironic.reconfigure(|options| options.speaks_like = Some("21.2")).await.unwrap();
    for refused in [client.drivers(None).await.map(drop), client.check().await.map(drop)] {
        let error = refused.unwrap_err();
        assert_eq!(error.class(), Class::TooOld, "{error}");
        assert!(!error.class().is_transient() && !error.maybe_done());
        one_sentence(&error, "GET /v1/", &["1.80", "1.81", "upgrade Ironic"]);
    }
}

#[tokio::test]
async fn a_client_of_a_conductor_group_lists_no_node_of_another() {
    let ironic = shared().await;
    let all = client(&ironic.endpoint);
    let nodes = register(ironic, "grouped", 2).await;
    let query = || NodeQuery { resource_class: Some("grouped".to_owned()), ..NodeQuery::default() };
    assert_eq!(all.nodes(query()).collect(100).await.unwrap().len(), 2);
    // Ironic takes a node into a group only where a conductor of it runs; here all are in none.
    let mut settings = all.settings().clone();
    settings.conductor_group = Some("another-hall".to_owned());
    let of_group = Client::new(settings).unwrap();
    assert!(of_group.nodes(query()).collect(100).await.unwrap().is_empty());
    // Who asks for one by its name gets it: the group limits what is looked for, not what is there.
    let there = &nodes[0].uuid;
    assert_eq!(&of_group.node(there, Detail::Basic).await.unwrap().uuid, there);
}

#[tokio::test]
async fn every_page_is_asked_for_with_the_filters_of_the_first() {
    let ironic = shared().await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let client = client(&proxy.endpoint);
    let wanted = register(ironic, "paged", 5).await;
    register(ironic, "not-paged", 2).await;
    client.version().await.unwrap();
    let before = proxy.requests().len();
    let query = NodeQuery {
        detail: Detail::Fields(&["name", "resource_class"]),
        resource_class: Some("paged".to_owned()),
        page: 2,
        ..NodeQuery::default()
    };
    let found = client.nodes(query).collect(100).await.unwrap();
    let names = |nodes: &[Node]| nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found), names(&wanted), "the whole class and nothing else, oldest first");
    assert!(found.iter().all(|node| node.resource_class.as_deref() == Some("paged")));

    let pages: Vec<String> = proxy.requests()[before..].iter().map(|r| r.path.clone()).collect();
    assert_eq!(pages.len(), 3, "{pages:?}");
    let asked = |page: &str| {
        let url = reqwest::Url::parse(&format!("http://h{page}")).unwrap();
        let pairs = url.query_pairs().into_owned();
        pairs.filter(|(name, _)| name != "marker").collect::<BTreeSet<_>>()
    };
    assert!(asked(&pages[0]).contains(&("resource_class".to_owned(), "paged".to_owned())));
    assert!(pages.iter().all(|page| asked(page) == asked(&pages[0])), "{pages:?}");

    // What came after the last one seen is a question of its own.
    let after = NodeQuery {
        resource_class: Some("paged".to_owned()),
        after: Some(wanted[2].uuid.clone()),
        ..NodeQuery::default()
    };
    let newer = client.nodes(after).collect(100).await.unwrap();
    assert_eq!(names(&newer), names(&wanted[3..]));
}

#[tokio::test]
async fn a_list_whose_marker_vanished_says_so_and_a_node_that_vanished_is_told_apart() {
    let ironic = shared().await;
    let client = client(&ironic.endpoint);
    let nodes = register(ironic, "vanishing", 4).await;
    let query =
        NodeQuery { resource_class: Some("vanishing".to_owned()), page: 2, ..NodeQuery::default() };
    let mut pages = client.nodes(query);
    assert_eq!(pages.next().await.unwrap().unwrap().len(), 2);
    let gone = nodes[1].uuid.as_str();
    assert_eq!(pages.last_seen(), Some(gone));
    ironic.forget(gone).await.unwrap();
    let error = pages.next().await.unwrap_err();
    assert_eq!(error.class(), Class::MarkerGone, "{error}");

    let missing = client.node(gone, Detail::Basic).await.unwrap_err();
    assert_eq!(missing.class(), Class::NotFound, "{missing}");
    one_sentence(&missing, &format!("GET /v1/nodes/{gone}"), &[gone]);
}

#[tokio::test]
async fn ports_are_found_by_node_and_those_of_no_node_are_not_found() {
    let ironic = shared().await;
    let client = client(&ironic.endpoint);
    let nodes = register(ironic, "wired", 2).await;
    for (number, node) in nodes.iter().enumerate() {
        for port in 0..3 {
            let address = format!("06:aa:00:00:{number:02x}:{port:02x}");
            let port = json!({ "node_uuid": node.uuid, "address": address });
            make(ironic, "/v1/ports", port).await;
        }
    }
    // By name as well as by identity.
    for node in [nodes[0].uuid.as_str(), "wired-0"] {
        let query = PortQuery {
            detail: Detail::Full,
            node: Some(node.to_owned()),
            page: 2,
            ..PortQuery::default()
        };
        let found = client.ports(query).unwrap().collect(10).await.unwrap();
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|port| port.node_uuid.as_ref() == Some(&nodes[0].uuid)));
    }
    let stranger = PortQuery { node: Some("nobody".to_owned()), ..PortQuery::default() };
    let error = client.ports(stranger).unwrap().collect(10).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound, "{error}");
    let all = PortQuery { page: 2, ..PortQuery::default() };
    let error = client.ports(all).unwrap().collect(4).await.unwrap_err();
    assert_eq!(error.class(), Class::TooLarge, "{error}");
}

#[tokio::test]
async fn an_inventory_is_read_up_to_the_size_that_was_allowed_and_may_not_be_there() {
    let ironic = shared().await;
    let client = client(&ironic.endpoint);
    let plain = register(ironic, "unexplored", 1).await.remove(0);
    let error = client.inventory(&plain.uuid, 1 << 20).await.unwrap_err();
    assert_eq!(error.class(), Class::NotFound, "{error}");
    assert!(!error.class().is_transient());

    let agent = Agent { nics: 4, ..Agent::new(4001) };
    let (status, body) = agent.post(ironic).await.unwrap();
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    let node = body["uuid"].as_str().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let inventory = loop {
        match client.inventory(node, 1 << 20).await {
            Ok(inventory) => break inventory,
            Err(error) => assert_eq!(error.class(), Class::NotFound, "{error}"),
        }
        assert!(Instant::now() < deadline, "the inventory never comes");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(inventory.machine.hostname.as_deref(), Some(agent.hostname.as_str()));
    assert_eq!(inventory.machine.interfaces.len(), 4);
    assert_eq!(inventory.machine.system_vendor.serial_number, agent.serial);

    let error = client.inventory(node, 1000).await.unwrap_err();
    assert_eq!(error.class(), Class::TooLarge, "{error}");
    one_sentence(&error, &format!("GET /v1/nodes/{node}/inventory"), &["1000 bytes"]);
    // Nothing of the refused answer is left in the way of the next request.
    client.inventory(node, 1 << 20).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_calls_at_once_share_few_connections_and_a_power_change_waits_for_none() {
    let ironic = shared().await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let mut settings = settings(&proxy.endpoint, &[]);
    // Ironic may be busy with others for a second: nobody is given up here.
    settings.patience = Duration::from_secs(60);
    let client = Client::new(settings).unwrap();
    let nodes = register(ironic, "crowd", 21).await;
    let (node, others) = nodes.split_first().unwrap();
    let node = &node.uuid;
    let delay = Fault::Delay(Duration::from_millis(20));
    proxy.fault(delay, usize::MAX, |method, _| *method == Method::GET);
    let read = |number: usize| client.node(&others[number % others.len()].uuid, Detail::Basic);
    let reads = futures_util::stream::iter(0..200).map(read);
    let reads = reads.buffer_unordered(200).collect::<Vec<_>>();
    let writing = async {
        // By now the reads have taken all the connections that they may have.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let began = Instant::now();
        set_power(&client, node, PowerTarget::On).await.unwrap();
        began.elapsed()
    };
    let began = Instant::now();
    let (answers, waited) = tokio::join!(reads, writing);
    let took = began.elapsed();
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|a| a.is_err()));
    assert!(waited < took / 2, "the power change waited {waited:?} of {took:?}");
    let most = proxy.most_connections();
    println!("{most} connections, {took:?}, the power change took {waited:?}");
    // Fewer would mean that there was no crowd.
    assert!((4..=CONNECTIONS).contains(&most), "{most} connections");
}

/// Requests for power that arrived at the proxy, and those that Ironic accepted.
fn power_requests(proxy: &Proxy) -> (usize, usize) {
    let is = |r: &Recorded| power_changes(&r.method, &r.path);
    let accepted = Some(StatusCode::ACCEPTED);
    (proxy.count(is), proxy.count(|r| is(r) && r.upstream == accepted))
}

#[tokio::test]
async fn an_answer_that_does_not_come_ends_in_the_timeout_and_a_change_may_have_been_made() {
    let ironic = shared().await;
    let node = ironic.enroll_fake("unanswered").await.unwrap();
    let proxy = Proxy::start(ironic).await.unwrap();
    let client = Client::new(settings(&proxy.endpoint, &[("IRONIC_CLIENT_TIMEOUT", "1")])).unwrap();
    client.check().await.unwrap();

    proxy.fault(Fault::Hang, usize::MAX, |_, _| true);
    let began = Instant::now();
    let write = set_power(&client, &node, PowerTarget::On).await.unwrap_err();
    let took = began.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert_eq!(write.class(), Class::Timeout, "{write}");
    assert!(write.maybe_done() && write.class().is_transient());
    let request = format!("PUT /v1/nodes/{node}/states/power");
    one_sentence(&write, &request, &["within 1s", "IRONIC_ENDPOINT"]);
    let read = client.node(&node, Detail::Basic).await.unwrap_err();
    assert_eq!(read.class(), Class::Timeout, "{read}");
    assert!(!read.maybe_done(), "a read changes nothing");
    proxy.heal();
    assert_eq!(power_requests(&proxy), (1, 0), "it is for the caller to ask again");
    client.node(&node, Detail::Basic).await.unwrap();
}

#[tokio::test]
async fn a_change_whose_answer_was_lost_is_not_repeated_and_may_have_been_made() {
    let ironic = shared().await;
    let node = ironic.enroll_fake("lost").await.unwrap();
    let proxy = Proxy::start(ironic).await.unwrap();
    let client = client(&proxy.endpoint);
    client.check().await.unwrap();
    for (fault, reached) in [(Fault::CutBefore, 0), (Fault::CutAfter, 1)] {
        let before = power_requests(&proxy);
        proxy.fault(fault.clone(), 1, power_changes);
        let error = set_power(&client, &node, PowerTarget::On).await.unwrap_err();
        assert_eq!(error.class(), Class::Unreachable, "{error}");
        assert!(error.maybe_done(), "{fault:?}: from here the two cannot be told apart");
        let after = power_requests(&proxy);
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, reached), "{fault:?}");
    }
    proxy.fault(Fault::busy(), 1, power_changes);
    let busy = set_power(&client, &node, PowerTarget::On).await.unwrap_err();
    assert_eq!(busy.class(), Class::Busy, "{busy}");
    assert!(busy.class().is_transient() && !busy.maybe_done(), "Ironic said no: {busy}");
}

#[tokio::test]
async fn a_page_of_a_proxy_in_front_is_told_apart_from_an_answer_of_ironic() {
    let proxy = Proxy::start(shared().await).await.unwrap();
    let client = client(&proxy.endpoint);
    client.check().await.unwrap();
    for (status, class, words) in [
        (StatusCode::NOT_FOUND, Class::Invalid, "not an answer of Ironic: check IRONIC_ENDPOINT"),
        (StatusCode::FORBIDDEN, Class::Unauthorized, "check the files username and password"),
        (StatusCode::INTERNAL_SERVER_ERROR, Class::Server, "no reason was given"),
        (StatusCode::BAD_GATEWAY, Class::Busy, "nobody to answer behind the proxy"),
        (StatusCode::SERVICE_UNAVAILABLE, Class::Busy, "nobody to answer behind the proxy"),
        (StatusCode::GATEWAY_TIMEOUT, Class::Timeout, "check that Ironic runs"),
        (StatusCode::MOVED_PERMANENTLY, Class::Invalid, "set IRONIC_ENDPOINT to the final URL"),
        (StatusCode::OK, Class::Invalid, "the answer has not the expected form"),
    ] {
        proxy.fault(Fault::Page(status), 1, |_, path| path.starts_with("/v1/nodes/anything"));
        let error = client.node("anything", Detail::Basic).await.unwrap_err();
        assert_eq!(error.class(), class, "{status}: {error}");
        one_sentence(&error, "GET /v1/nodes/anything", &[words]);
    }
    // A proxy that gives up may have passed the request on before.
    proxy.fault(Fault::Page(StatusCode::BAD_GATEWAY), 1, power_changes);
    let error = set_power(&client, "anything", PowerTarget::On).await.unwrap_err();
    assert!(error.maybe_done(), "{error}");
}

#[tokio::test]
async fn what_is_not_an_ironic_is_said_to_be_none() {
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let error = client(&nobody).check().await.unwrap_err();
    assert_eq!(error.class(), Class::Unreachable, "{error}");
    assert!(!error.maybe_done() && error.class().is_transient());
    one_sentence(&error, "GET /v1/", &["refused", "IRONIC_ENDPOINT"]);

    // A server that is something else, at every address below it.
    let rack = Rack::start(1).await.unwrap();
    for path in ["", "/redfish/v1"] {
        let other = client(&format!("{}{path}", rack.machines[0].address()));
        for result in [
            other.check().await.map(drop),
            other.node("a", Detail::Basic).await.map(drop),
            set_power(&other, "a", PowerTarget::On).await,
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.class(), Class::Invalid, "{error}");
            assert!(!error.maybe_done());
            one_sentence(&error, "GET /v1/", &["not the Ironic API", "IRONIC_ENDPOINT"]);
        }
    }
}
