//! Whole courses of events, stopped before and after every write, and with a second process beside each.
//!
//! Power is Ironic's fake driver here: a hundred runs are to be had in minutes, and what is swept lies in front of Ironic.

use std::sync::{Arc, Mutex};

use bench::ironic;
use bench::observer::World;
use bench::proxy::Proxy;
use bench::sweep::{Ground, Phase, Report, Scenario, crash_sweep, two_replica_sweep};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::invariants::{invariants, marked};
use super::{HARD, PLAIN, Site, keys, kind, quick, record, run, stamps, switch};

const HOLD: &str = "reboot.metal3.io/a";

/// What is done to a host, one after the other, and how it looks when that has come about.
struct Course {
    name: &'static str,
    /// The host as it is made.
    host: Value,
    steps: Vec<Step>,
    /// What Ironic is asked for in the whole course.
    calls: &'static [&'static str],
}

impl Course {
    /// Whether the machine must stay on, so that all that can be done is to reset it.
    fn resets(&self) -> bool {
        self.host["spec"]["disablePowerOff"] == true
    }
}

struct Step {
    name: &'static str,
    patch: Value,
    status: Value,
    goal: fn(&Value) -> bool,
}

fn requests() -> Course {
    Course {
        name: "requests",
        host: json!({ "metadata": { "annotations": { PLAIN: HARD } } }),
        steps: vec![
            Step::new("a plain reboot", json!({}), rebooted),
            Step::new("a hold", annotations(&json!({ HOLD: HARD, PLAIN: "" })), |host| {
                record(host).0 == "HeldOff" && keys(host) == [HOLD]
            }),
            Step::new("its end", annotations(&json!({ HOLD: null })), rebooted),
        ],
        calls: &["power off", "power on", "power off", "power on"],
    }
}

fn out_of_use() -> Course {
    Course {
        name: "out-of-use",
        host: annotations(&json!({ PLAIN: "" })),
        steps: vec![
            Step::new("a soft reboot", json!({}), rebooted),
            Step::new("switched off", json!({ "spec": { "online": false } }), |host| {
                host["status"]["poweredOn"] == false
            }),
            Step::new("held as well", annotations(&json!({ HOLD: HARD, PLAIN: HARD })), |host| {
                record(host).0 == "HeldOff" && keys(host) == [PLAIN, HOLD]
            }),
            Step::new(
                "wanted again",
                json!({ "spec": { "online": true }, "metadata": { "annotations": { HOLD: null } } }),
                |host| host["status"]["poweredOn"] == true && keys(host).is_empty(),
            ),
            Step {
                name: "deprovisioned",
                patch: annotations(&json!({ PLAIN: HARD })),
                status: json!({ "provisioning": { "state": "deprovisioning" } }),
                goal: |host| keys(host).is_empty() && stamps(host) == (None, None),
            },
        ],
        // The hold has Ironic asked in its own way, which changes nothing.
        calls: &["soft power off", "power on", "soft power off", "power off", "power on"],
    }
}

fn stays_on() -> Course {
    let reset = |host: &Value| stamps(host).1 > stamps(host).0 && record(host).0 == "Completed";
    Course {
        name: "stays-on",
        host: json!({
            "metadata": { "annotations": { PLAIN: HARD } },
            "spec": { "disablePowerOff": true },
        }),
        steps: vec![
            Step::new("a reset", json!({}), reset),
            Step::new("a hold", annotations(&json!({ HOLD: HARD })), |host| {
                record(host).0 == "HoldUnsupported"
            }),
        ],
        calls: &["rebooting", "rebooting"],
    }
}

impl Step {
    fn new(name: &'static str, patch: Value, goal: fn(&Value) -> bool) -> Self {
        Self { name, patch, status: json!({}), goal }
    }
}

fn annotations(all: &Value) -> Value {
    json!({ "metadata": { "annotations": all } })
}

fn hosts(world: &World) -> impl Iterator<Item = Value> {
    world.values().filter_map(|host| serde_json::to_value(host).ok())
}

fn rebooted(host: &Value) -> bool {
    stamps(host).0.is_some()
        && stamps(host).1 > stamps(host).0
        && host["status"]["poweredOn"] == true
        && record(host).0 == "Completed"
        && keys(host).is_empty()
}

/// Namespace and node of each run, so that what happened to it can be counted in the end.
type Nodes = Arc<Mutex<Vec<(String, String)>>>;

fn scenario(course: Course, site: &Arc<Site>, proxy: &Arc<Proxy>, nodes: &Nodes) -> Scenario {
    let resets = course.resets();
    let mut made = Some(course.host);
    let mut phases = Vec::new();
    for Step { name, patch, status, goal } in course.steps {
        let (site, nodes, host) = (site.clone(), nodes.clone(), made.take());
        let act = move |_, namespace: String| -> BoxFuture<'static, anyhow::Result<()>> {
            let (site, nodes, host) = (site.clone(), nodes.clone(), host.clone());
            let (patch, status) = (patch.clone(), status.clone());
            Box::pin(async move {
                let site = Site { namespace: namespace.clone(), ..site.like() };
                let ironic = ironic::shared().await;
                if let Some(host) = host {
                    let node = ironic.enroll_fake(&namespace).await?;
                    switch(ironic, &node, "power on").await;
                    nodes.lock().unwrap().push((namespace, node.clone()));
                    site.host("h", &node, host).await;
                } else if resets {
                    // Ironic lets go of a node a moment after its power has changed. Who is stopped just then cannot
                    // tell that from the reset that it was about to ask for.
                    let free = |node: &Value| node["reservation"].is_null();
                    ironic.wait(&namespace, "free", free).await?;
                }
                if status != json!({}) {
                    site.status("h", json!({ "status": status })).await;
                }
                if patch != json!({}) {
                    site.patch("h", marked(patch, name)).await;
                }
                Ok(())
            })
        };
        phases.push(Phase::new(name, act, move |world| hosts(world).any(|host| goal(&host))));
    }
    let endpoint = proxy.endpoint.clone();
    let run = move |client, namespace| -> BoxFuture<'static, ()> {
        Box::pin(run(client, namespace, quick(), endpoint.clone()))
    };
    Scenario {
        name: format!("bmo-{}", course.name),
        kinds: vec![kind()],
        beyond: Vec::new(),
        phases,
        run: Arc::new(run),
        invariants: invariants(resets),
        patience: super::PATIENCE,
    }
}

async fn swept(course: Course, replicas: bool) -> Report {
    let (name, calls, resets) = (course.name, course.calls, course.resets());
    let site = Arc::new(Site::new(name).await);
    let proxy = Arc::new(Proxy::start(ironic::shared().await).await.unwrap());
    let nodes = Nodes::default();
    let ground = Ground {
        admin: site.plane.config("client", &["system:masters"]).await.unwrap(),
        controller: site.account.clone(),
    };
    let scenario = scenario(course, &site, &proxy, &nodes);
    let report = if replicas {
        two_replica_sweep(&ground, &scenario).await.unwrap()
    } else {
        crash_sweep(&ground, &scenario).await.unwrap()
    };
    println!("{report}");
    assert!(report.passed(), "{report}");
    let nodes = nodes.lock().unwrap().clone();
    for (namespace, node) in nodes {
        let mut powered = proxy.powered(&node);
        if !replicas {
            // Off, and on, may be said twice; a reset would be done twice.
            let seen = if resets { proxy.agreed(&node) } else { powered };
            assert_eq!(seen, calls, "{namespace}");
            continue;
        }
        if powered.last().map(String::as_str) != calls.last().copied() {
            // A call that was late came when its process was about to be stopped. One alone sets it right.
            let site = Site { namespace: namespace.clone(), ..site.like() };
            let _running = site.start(&proxy.endpoint, quick());
            let is_on = |node: &Value| node["power_state"] == "power on";
            ironic::shared().await.wait(&node, "on again", is_on).await.unwrap();
            powered = proxy.powered(&node);
        }
        // What two processes that do not know of each other may cost is one cycle. In one cycle the second may ask for
        // off in its own way, softly after hard, when it was held just before its call.
        let on = |all: &[String]| all.iter().filter(|it| *it == "power on").count();
        let asked = calls.iter().filter(|it| **it == "power on").count();
        let cycles = asked..=asked + 1;
        assert!(cycles.contains(&on(&powered)), "{namespace}: {powered:?} for {calls:?}");
        assert_eq!(
            powered.last().map(String::as_str),
            Some("power on"),
            "{namespace}: {powered:?}"
        );
        assert!(powered[0].ends_with("off"), "{namespace}: {powered:?}");
    }
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_costs_no_request_and_adds_no_cycle() {
    let report = Box::pin(swept(requests(), false)).await;
    assert!(report.points > 15, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_neither_wakes_a_host_out_of_use_nor_loses_one_that_is_wanted_again() {
    let report = Box::pin(swept(out_of_use(), false)).await;
    assert!(report.points > 15, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_resets_a_host_that_stays_on_once_for_each_request() {
    let report = Box::pin(swept(stays_on(), false)).await;
    assert!(report.points > 5, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_replica_at_any_write_breaks_no_hold() {
    Box::pin(swept(requests(), true)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_replica_at_any_write_of_a_host_out_of_use_breaks_no_hold() {
    Box::pin(swept(out_of_use(), true)).await;
}
