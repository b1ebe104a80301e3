//! An API server and an Ironic that are slow or fail, and machines that change while they wait.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bench::agent::Agent;
use bench::bmo;
use bench::faults::{At, Fault as ApiFault, Plan};
use bench::ironic::Options;
use bench::proxy::{Fault, Proxy};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, WatchParams};
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{Policy, Site, condition, quick};
use crate::in_process;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_the_api_server_fails_to_make_is_told_and_tried_later_each_time() {
    let site = Site::new("failing").await;
    site.discovery("racks", json!({})).await;
    let fails = ApiFault::Fail(StatusCode::INTERNAL_SERVER_ERROR);
    let plan = (2..=6).fold(Plan::one("host-discovery", At::Creation(1), fails), |plan, number| {
        plan.and(At::Creation(number), fails)
    });
    let _running = site.start_disturbed(&site.ironic.endpoint, quick(), plan);
    let node = site.boot(&site.agent(1)).await;
    site.listed("racks", "failures", &node, "HostFailed").await;
    let seen = site.get("racks").await;
    assert_eq!(condition(&seen, "Ready").1, "HostsFailed", "{seen:#}");
    site.wait_names(&["m1"]).await;
    site.wait("racks", "well", |it| condition(it, "Ready").0 == "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_that_takes_long_for_each_answer_is_read_all_the_same() {
    let site = Site::new("slow").await;
    site.discovery("racks", json!({})).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let reads = |_: &Method, path: &str| path.contains("/inventory") || path.contains("/ports");
    proxy.fault(Fault::Delay(Duration::from_secs(6)), usize::MAX, reads);
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;
}

/// A machine, and so many beside it that Ironic shows all at once and whole.
async fn crowd(site: &Site, count: u32) {
    let like = Agent { hostname: "like-all-others".to_owned(), ..site.agent(0) };
    let first = site.boot(&like).await;
    site.ironic.inventoried(&first).await.unwrap();
    let others: Vec<_> =
        (1..=count).map(|number| (crowded(site, number), site.agent(number))).collect();
    site.ironic.multiply(&first, &like, &others).await.unwrap();
}

/// The node of one of them.
fn crowded(site: &Site, number: u32) -> String {
    format!("00000000-0000-4000-8000-{:012}", site.base + number)
}

/// So many that to ask for all takes longer than a host is waited for, however busy whoever runs this is: six are asked for in
/// two seconds.
#[tokio::test(flavor = "multi_thread")]
async fn machines_become_hosts_while_others_are_still_read() {
    const MACHINES: u32 = 400;
    let site = Site::new("reading").await;
    site.discovery("racks", json!({})).await;
    crowd(&site, MACHINES).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    // As long as a call may keep others from being made.
    let inventories = |_: &Method, path: &str| path.contains("/inventory");
    proxy.fault(Fault::Delay(Duration::from_secs(2)), usize::MAX, inventories);
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    let deadline = Instant::now() + super::PATIENCE;
    while site.names().await.is_empty() {
        assert!(Instant::now() < deadline, "{:#}", site.get("racks").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A machine whose reading was given up is asked for again.
    let requests = proxy.requests();
    let asked = requests.iter().filter(|it| inventories(&it.method, &it.path));
    let asked = asked.map(|it| it.path.as_str()).collect::<HashSet<_>>().len();
    assert!(asked < MACHINES as usize, "no host was made before all {asked} machines were read");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_that_fails_every_third_request_of_many_is_said_to_answer_and_loses_no_machine() {
    let site = Site::with("many-thirds", Options { page: Some(5), ..Options::default() }).await;
    site.discovery("racks", json!({})).await;
    crowd(&site, 60).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    // Not the same request twice on end: beside others it would meet each third one now and then, and count as unanswered.
    let refused = std::sync::Mutex::new((0_usize, std::collections::HashSet::new()));
    let third = move |_: &Method, path: &str| {
        let mut refused = refused.lock().unwrap();
        if !(path.contains("/nodes") || path.contains("/ports")) || refused.1.remove(path) {
            return false;
        }
        refused.0 += 1;
        refused.0.is_multiple_of(3) && refused.1.insert(path.to_owned())
    };
    proxy.fault(Fault::busy(), usize::MAX, third);
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    let deadline = Instant::now() + super::PATIENCE;
    while site.names().await.len() < 61 {
        let seen = site.get("racks").await;
        assert_ne!(condition(&seen, "IronicReachable").0, "False", "{seen:#}");
        assert!(Instant::now() < deadline, "{seen:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_many_slow_pages_comes_to_its_end() {
    let site = Site::with("long-list", Options { page: Some(5), ..Options::default() }).await;
    site.discovery("racks", json!({})).await;
    crowd(&site, 40).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let lists = |method: &Method, path: &str| *method == Method::GET && path.contains("/nodes?");
    proxy.fault(Fault::Delay(Duration::from_millis(500)), usize::MAX, lists);
    let policy = Policy { full_sync_interval: Duration::from_secs(3600), ..quick() };
    let _running = site.start_disturbed(&proxy.endpoint, policy, Plan::none("host-discovery"));
    let deadline = Instant::now() + super::PATIENCE;
    while site.names().await.len() < 41 {
        assert!(Instant::now() < deadline, "{:#}", site.get("racks").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_many_megabytes_that_anybody_posts_hold_up_no_machine() {
    let site = Site::new("errors").await;
    site.discovery("racks", json!({})).await;
    let mut failed = String::new();
    for number in 1..=9 {
        let mut agent = site.agent(number);
        agent.error = Some("x".repeat(2 << 20));
        failed = site.boot(&agent).await;
    }
    let _running = site.start(quick());
    site.boot(&site.agent(10)).await;
    site.wait_names(&["m10"]).await;
    let entry = site.listed("racks", "failures", &failed, "InspectionFailed").await;
    assert!(entry["reason"].as_str().unwrap().len() < 300, "{entry:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_somebody_registered_while_it_waited_becomes_no_host_when_it_is_approved() {
    let site = Site::new("registered").await;
    site.discovery("racks", json!({ "approval": "Manual" })).await;
    let policy = Policy { full_sync_interval: Duration::from_secs(3600), ..quick() };
    let _running = site.start(policy);
    let registered = site.boot(&site.agent(1)).await;
    let other = site.boot(&site.agent(2)).await;
    site.listed("racks", "pending", &registered, "AwaitsApproval").await;
    site.listed("racks", "pending", &other, "AwaitsApproval").await;
    let name = json!([{ "op": "add", "path": "/name", "value": format!("mine-{}", site.base) }]);
    let path = format!("/v1/nodes/{registered}");
    let (status, body) = site.ironic.call(Method::PATCH, &path, Some(&name)).await.unwrap();
    assert!(status.is_success(), "{status} {body}");
    tokio::time::sleep(Duration::from_secs(11)).await;
    site.approve("racks", &format!("{registered},{other}")).await;
    site.wait_names(&["m2"]).await;
    site.settle().await;
    assert_eq!(site.names().await, ["m2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_ironic_fails_for_hold_up_no_machine_that_waited_like_them_and_take_no_place() {
    // As many as are asked about at once, and as many as may become hosts.
    const FAILING: u32 = 8;
    let site = Site::new("some-nodes").await;
    site.discovery("racks", json!({ "approval": "Manual", "maxHosts": FAILING })).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let policy = Policy { full_sync_interval: Duration::from_secs(3600), ..quick() };
    let _running = site.start_disturbed(&proxy.endpoint, policy, Plan::none("host-discovery"));
    let mut nodes = Vec::new();
    for number in 1..=FAILING + 1 {
        nodes.push(site.boot(&site.agent(number)).await);
    }
    for node in &nodes {
        site.listed("racks", "pending", node, "AwaitsApproval").await;
    }
    // From then on all are asked about once more before they become hosts.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let all = nodes.join(",");
    let other = nodes.pop().unwrap();
    let fails = Fault::Answer(StatusCode::INTERNAL_SERVER_ERROR, "no such luck".to_owned());
    proxy.fault(fails, usize::MAX, move |_: &Method, it: &str| {
        it.contains("/nodes/") && !it.contains(&other)
    });
    site.approve("racks", &all).await;
    site.wait_names(&["m9"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_inventory_ironic_fails_to_give_is_told_and_others_become_hosts() {
    let site = Site::new("no-inventory").await;
    site.discovery("racks", json!({})).await;
    let node = site.boot(&site.agent(1)).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let fails = Fault::Answer(StatusCode::INTERNAL_SERVER_ERROR, "no such container".to_owned());
    let path = format!("/nodes/{node}/inventory");
    proxy.fault(fails, usize::MAX, move |_: &Method, it: &str| it.contains(&path));
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    site.boot(&site.agent(2)).await;
    site.wait_names(&["m2"]).await;
    let entry = site.listed("racks", "failures", &node, "IronicFails").await;
    assert!(entry["reason"].as_str().unwrap().contains("500"), "{entry:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_at_whose_inventory_the_connection_breaks_is_told_and_asked_about_later_each_time()
 {
    let site = Site::new("broken-inventory").await;
    site.discovery("racks", json!({})).await;
    let node = site.boot(&site.agent(1)).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let path = format!("/nodes/{node}/inventory");
    let breaks = path.clone();
    proxy.fault(Fault::CutBefore, usize::MAX, move |_: &Method, it: &str| it.contains(&breaks));
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    site.boot(&site.agent(2)).await;
    site.wait_names(&["m2"]).await;
    site.listed("racks", "failures", &node, "IronicFails").await;
    // By then it waits for more than a minute, and Ironic is not said to be away.
    let asked = || proxy.count(|it| it.path.contains(&path));
    let before = asked();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(asked(), before);
    let seen = site.get("racks").await;
    assert_eq!(condition(&seen, "IronicReachable").0, "True", "{seen:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_inventory_is_none_and_the_next_one_counts() {
    let site = Site::new("junk").await;
    site.discovery("racks", json!({ "includeAllNodes": true })).await;
    let node = site.boot(&site.agent(1)).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let path = format!("/nodes/{node}/inventory");
    let junk = Fault::Answer(StatusCode::OK, "no inventory".to_owned());
    proxy.fault(junk, 1, move |_: &Method, it: &str| it.contains(&path));
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    site.wait_names(&["m1"]).await;
    let hosts = site.hosts().await;
    let details = &hosts[0]["metadata"]["annotations"]["inspect.metal3.io/hardwaredetails"];
    assert!(details.as_str().unwrap().contains(&site.agent(1).mac(0)), "{details}");
}

/// An API server that takes no host.
fn refuses() -> Plan {
    let fails = ApiFault::Fail(StatusCode::UNPROCESSABLE_ENTITY);
    (2..=99).fold(Plan::one("host-discovery", At::Creation(1), fails), |plan, number| {
        plan.and(At::Creation(number), fails)
    })
}

/// `Ready` was once true as long as any machine was read, although every host was refused.
#[tokio::test(flavor = "multi_thread")]
async fn that_hosts_are_refused_is_told_while_another_machine_is_still_read() {
    let site = Site::new("refused-beside").await;
    site.discovery("racks", json!({})).await;
    let silent = site.boot(&site.agent(1)).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let inventory = format!("{silent}/inventory");
    proxy.fault(Fault::Hang, usize::MAX, move |_: &Method, path: &str| path.contains(&inventory));
    let _running = site.start_disturbed(&proxy.endpoint, quick(), refuses());
    site.boot(&site.agent(2)).await;
    let seen =
        site.wait("racks", "not ready", |it| condition(it, "Ready").1 == "HostsRefused").await;
    // What is listed waits until all were read: the other one still is.
    assert_eq!(seen["status"]["failures"], json!(null), "{seen:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_does_not_say_that_what_is_refused_is_over() {
    let site = Site::new("still-refused").await;
    site.discovery("racks", json!({})).await;
    let running = site.start_disturbed(&site.ironic.endpoint, quick(), refuses());
    let node = site.boot(&site.agent(1)).await;
    site.listed("racks", "failures", &node, "HostRefused").await;
    let seen =
        site.wait("racks", "not ready", |it| condition(it, "Ready").1 == "HostsRefused").await;
    let since = |seen: &serde_json::Value| {
        let all = seen["status"]["conditions"].as_array().unwrap();
        let ready = all.iter().find(|it| it["type"] == "Ready").unwrap();
        (ready["status"].clone(), ready["lastTransitionTime"].clone())
    };
    drop(running);
    let _running = site.start_disturbed(&site.ironic.endpoint, quick(), refuses());
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_eq!(since(&site.get("racks").await), since(&seen));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_lists_the_nodes_at_once() {
    let site = Site::new("at-once").await;
    site.discovery("racks", json!({})).await;
    site.boot(&site.agent(1)).await;
    let hour = Duration::from_secs(3600);
    let policy = Policy { poll_interval: hour, full_sync_interval: hour, ..quick() };
    let _running = site.start(policy);
    site.wait_names(&["m1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_waited_become_hosts_before_ironic_has_answered_about_the_last_of_them() {
    let site = Site::new("slow-node").await;
    site.discovery("racks", json!({ "approval": "Manual" })).await;
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let policy = Policy { full_sync_interval: Duration::from_secs(3600), ..quick() };
    let _running = site.start_disturbed(&proxy.endpoint, policy, Plan::none("host-discovery"));
    let mut nodes = Vec::new();
    for number in 1..=3 {
        nodes.push(site.boot(&site.agent(number)).await);
    }
    for node in &nodes {
        site.listed("racks", "pending", node, "AwaitsApproval").await;
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    let slow = nodes[0].clone();
    proxy.fault(Fault::Delay(Duration::from_secs(6)), usize::MAX, move |_: &Method, it: &str| {
        it.contains(&slow)
    });
    site.approve("racks", &nodes.join(",")).await;
    let approved = Instant::now();
    site.wait_names(&["m2", "m3"]).await;
    assert!(approved.elapsed() < Duration::from_secs(5), "{:?}", approved.elapsed());
    site.wait_names(&["m1", "m2", "m3"]).await;
}

/// A fifth of two hundred inventories hang, far more than Ironic is asked for at a time: not one of them is answered before all
/// other machines are hosts.
#[tokio::test(flavor = "multi_thread")]
async fn inventories_that_hang_hold_up_no_other_machine() {
    const MACHINES: u32 = 200;
    let mut times = Vec::new();
    for hang in [false, true] {
        let site = Site::new("hung-inventories").await;
        site.discovery("racks", json!({})).await;
        crowd(&site, MACHINES).await;
        let hung = |number: u32| number.is_multiple_of(5);
        let nodes: Vec<String> =
            (1..=MACHINES).filter(|it| hung(*it)).map(|it| crowded(&site, it)).collect();
        let hangs = move |path: &str| {
            path.contains("/inventory") && nodes.iter().any(|node| path.contains(node.as_str()))
        };
        let proxy = Proxy::start(&site.ironic).await.unwrap();
        if hang {
            let hangs = hangs.clone();
            let forever = Fault::Delay(Duration::from_secs(3600));
            proxy.fault(forever, usize::MAX, move |_: &Method, path: &str| hangs(path));
        }
        let began = Instant::now();
        let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
        let healthy: Vec<String> =
            (1..=MACHINES).filter(|it| !hung(*it)).map(|it| format!("m{it}")).collect();
        loop {
            let names: HashSet<String> = site.names().await.into_iter().collect();
            if healthy.iter().all(|name| names.contains(name)) {
                break;
            }
            assert!(began.elapsed() < super::PATIENCE, "only {} are hosts", names.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        times.push(began.elapsed());
        if !hang {
            continue;
        }
        assert!(proxy.count(|it| hangs(&it.path)) > 0, "those that hang were not even asked for");
        assert_eq!(proxy.count(|it| hangs(&it.path) && it.status.is_some()), 0);
        // Of Ironic it is not said that it does not answer, and one that hangs is read when it does not hang any more.
        let seen = site.wait("racks", "told", |it| condition(it, "Ready").0 == "True").await;
        assert_eq!(condition(&seen, "IronicReachable").0, "True", "{seen:#}");
        proxy.heal();
        let all = (MACHINES + 1) as usize;
        // Each was tried less and less often, five minutes apart in the end.
        let patience = Instant::now() + super::PATIENCE * 3;
        while site.names().await.len() < all {
            assert!(Instant::now() < patience, "{:#}", site.get("racks").await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    println!(
        "160 machines are hosts after {:?}; while 40 more hang, after {:?}",
        times[0], times[1]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_marked_beside_each_other() {
    const MACHINES: u32 = 12;
    let site = Site::new("marks").await;
    site.discovery("racks", json!({})).await;
    for number in 1..=MACHINES {
        site.boot(&site.agent(number)).await;
    }
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let marks = |method: &Method, path: &str| *method == Method::PATCH && path.contains("/nodes/");
    proxy.fault(Fault::Delay(Duration::from_secs(2)), usize::MAX, marks);
    let _running = site.start_disturbed(&proxy.endpoint, quick(), Plan::none("host-discovery"));
    let patience = Instant::now() + super::PATIENCE;
    while site.names().await.len() < MACHINES as usize {
        assert!(Instant::now() < patience, "{:?}", site.names().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // One after the other they take two seconds each.
    let deadline = Instant::now() + Duration::from_secs(16);
    let done = || {
        proxy.count(|it| {
            marks(&it.method, &it.path) && it.status.is_some_and(|status| status.is_success())
        })
    };
    while done() < MACHINES as usize {
        assert!(Instant::now() < deadline, "only {} are marked", done());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_that_a_person_makes_of_a_known_machine_is_told() {
    let site = Site::new("second").await;
    site.discovery("racks", json!({})).await;
    let policy = Policy { full_sync_interval: Duration::from_secs(3600), ..quick() };
    let running = site.start(policy);
    let agent = site.agent(1);
    let node = site.boot(&agent).await;
    site.wait("racks", "counted", |it| it["status"]["counts"]["known"] == 1).await;
    site.settle().await;
    site.host("mine", json!({ "spec": { "bootMACAddress": agent.mac(0) } })).await;
    let entry = site.listed("racks", "conflicts", &node, "KnownTwice").await;
    let told = entry["reason"].as_str().unwrap();
    assert!(told.contains("/m1") && told.contains("/mine"), "{entry:#}");
    // A new process finds it, too, though the machine is known by its node.
    drop(running);
    let proxy = Proxy::start(&site.ironic).await.unwrap();
    let _running = site.start_disturbed(&proxy.endpoint, policy, Plan::none("host-discovery"));
    let lists = || proxy.count(|it| it.path.starts_with("/v1/nodes?") && it.took.is_some());
    let deadline = Instant::now() + Duration::from_secs(60);
    while lists() < 3 {
        assert!(Instant::now() < deadline, "the nodes are not listed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    site.settle().await;
    assert_eq!(site.listed("racks", "conflicts", &node, "KnownTwice").await, entry);
    site.delete("mine").await;
    site.wait("racks", "settled", |it| {
        it["status"]["counts"]["known"] == 1 && it["status"]["counts"]["conflicting"] == 0
    })
    .await;
    assert_eq!(site.names().await, ["m1"]);
}

/// Lets an account watch objects of a kind, or list them only, and waits until the API server knows.
async fn let_watch(site: &Site, user: &str, kind: &ApiResource, may: bool) {
    let (account, _) =
        user.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':')).unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(site.admin.clone());
    let roles: Api<ClusterRole> = Api::all(site.admin.clone());
    for binding in bindings.list(&ListParams::default()).await.unwrap() {
        let mut subjects = binding.subjects.iter().flatten();
        if !subjects.any(|it| it.namespace.as_deref() == Some(account)) {
            continue;
        }
        let role = &binding.role_ref.name;
        let mut granted = roles.get(role).await.unwrap().rules.unwrap_or_default();
        for rule in &mut granted {
            if rule.resources.iter().flatten().any(|it| *it == kind.plural) {
                rule.verbs.retain(|it| it != "watch");
                rule.verbs.extend(may.then(|| "watch".to_owned()));
            }
        }
        let patch = Patch::Merge(json!({ "rules": granted }));
        roles.patch(role, &PatchParams::default(), &patch).await.unwrap();
    }
    let client = kube::Client::try_from(site.account.clone()).unwrap();
    let objects: Api<DynamicObject> = Api::all_with(client, kind);
    let deadline = Instant::now() + super::PATIENCE;
    while objects.watch(&WatchParams::default(), "0").await.is_ok() != may {
        assert!(Instant::now() < deadline, "{user} may watch {}, or may not", kind.plural);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_host_is_made_while_the_watch_does_not_tell_of_all() {
    let site = Site::new("behind").await;
    let (account, user) = in_process::account(site.plane, "host-discovery", &site.namespace).await;
    let site = Site { account, ..site };
    site.discovery("racks", json!({})).await;
    let_watch(&site, &user, &bmo::hosts(), false).await;
    let running = site.start(quick());
    // Then the first list is complete, and nothing is told after it.
    let refused = || {
        running.handle.calls().iter().any(|it| {
            it.path.ends_with("/v1alpha1/baremetalhosts")
                && it.status == Some(StatusCode::FORBIDDEN)
        })
    };
    let deadline = Instant::now() + super::PATIENCE;
    while !refused() {
        assert!(Instant::now() < deadline, "{:#?}", running.handle.calls());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // So many that those which other stories delete meanwhile do not make up for them.
    let agent = site.agent(1);
    site.host("mine", json!({ "spec": { "bootMACAddress": agent.mac(0) } })).await;
    for number in 1..=30 {
        site.host(&format!("other-{number}"), json!({})).await;
    }
    let node = site.boot(&agent).await;
    // No machine has failed: the discovery says the one cause.
    site.listed("racks", "pending", &node, "RateLimited").await;
    let seen = site.wait("racks", "told", |it| condition(it, "Ready").1 == "HostsFailed").await;
    assert!(condition(&seen, "Ready").2.contains("the watch told of"), "{seen:#}");
    site.settle().await;
    let_watch(&site, &user, &bmo::hosts(), true).await;
    site.wait("racks", "counted", |it| it["status"]["counts"]["known"] == 1).await;
    site.wait("racks", "well", |it| condition(it, "Ready").0 == "True").await;
    assert!(!site.names().await.contains(&"m1".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discovery_that_is_suspended_makes_no_host_though_its_watch_tells_nothing() {
    let site = Site::new("unheard").await;
    let (account, user) = in_process::account(site.plane, "host-discovery", &site.namespace).await;
    let site = Site { account, ..site };
    let kind = super::discoveries();
    site.discovery("racks", json!({})).await;
    let_watch(&site, &user, &kind, false).await;
    let running = site.start(quick());
    let refused = || {
        running.handle.calls().iter().any(|it| {
            it.path.ends_with("/baremetalhostdiscoveries")
                && it.status == Some(StatusCode::FORBIDDEN)
        })
    };
    let deadline = Instant::now() + super::PATIENCE;
    while !refused() {
        assert!(Instant::now() < deadline, "{:#?}", running.handle.calls());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    site.wait("racks", "looked at", |it| condition(it, "Ready").0 == "True").await;
    site.patch("racks", json!({ "spec": { "suspend": true } })).await;
    let node = site.boot(&site.agent(1)).await;
    site.settle().await;
    assert_eq!(site.names().await, Vec::<String>::new());
    let_watch(&site, &user, &kind, true).await;
    site.listed("racks", "pending", &node, "Suspended").await;
    assert_eq!(site.names().await, Vec::<String>::new());
}
