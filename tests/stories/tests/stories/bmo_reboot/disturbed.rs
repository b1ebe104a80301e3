//! What goes wrong around a cycle: crashes at every write and call, a second replica, an Ironic that is locked, busy,
//! away or does not answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bench::faults::Plan;
use bench::ironic;
use bench::observer::{Invariant, World};
use bench::proxy::{Fault, Moment, Proxy, power_changes};
use bench::sweep::{Ground, Phase, Report, Scenario, crash_sweep, two_replica_sweep};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{HARD, PLAIN, Site, keys, kind, machine, quick, record, run, stamps, switch};

const HOLD: &str = "reboot.metal3.io/a";

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

/// A plain reboot, then a hold with a plain request beside it, then its end: two cycles.
///
/// Power is Ironic's fake driver here: a hundred runs are to be had in minutes, and what is swept lies in front of Ironic.
fn scenario(site: &Arc<Site>, proxy: &Arc<Proxy>, nodes: &Nodes) -> Scenario {
    let (arranging, nodes) = (site.clone(), nodes.clone());
    let reboot = Phase::new(
        "a plain reboot",
        move |_, namespace| {
            let (site, nodes) = (arranging.clone(), nodes.clone());
            Box::pin(async move {
                let ironic = ironic::shared().await;
                let node = ironic.enroll_fake(&namespace).await?;
                switch(ironic, &node, "power on").await;
                nodes.lock().unwrap().push((namespace.clone(), node.clone()));
                let site = Site { namespace, ..site.like() };
                let asked = json!({ "metadata": { "annotations": { PLAIN: HARD } } });
                site.host("h", &node, asked).await;
                Ok(())
            })
        },
        |world| hosts(world).any(|host| rebooted(&host)),
    );
    let annotate = |site: &Arc<Site>, annotations: Value| {
        let site = site.clone();
        move |_, namespace| -> futures_util::future::BoxFuture<'static, anyhow::Result<()>> {
            let (site, annotations) = (site.clone(), annotations.clone());
            Box::pin(async move {
                let site = Site { namespace, ..site.like() };
                site.annotate("h", annotations).await;
                Ok(())
            })
        }
    };
    let hold = Phase::new("a hold", annotate(site, json!({ HOLD: HARD, PLAIN: "" })), |world| {
        hosts(world).any(|host| record(&host).0 == "HeldOff" && keys(&host) == [HOLD])
    });
    let release = Phase::new("its end", annotate(site, json!({ HOLD: null })), |world| {
        hosts(world).any(|host| rebooted(&host))
    });
    let endpoint = proxy.endpoint.clone();
    let run = move |client, namespace| -> futures_util::future::BoxFuture<'static, ()> {
        Box::pin(run(client, namespace, quick(), endpoint.clone()))
    };
    Scenario {
        name: "bmo-reboot".to_owned(),
        kinds: vec![kind()],
        beyond: Vec::new(),
        phases: vec![reboot, hold, release],
        run: Arc::new(run),
        invariants: invariants(),
        patience: super::PATIENCE,
    }
}

fn invariants() -> Vec<Invariant> {
    let each = |check: fn(&Value) -> bool, what: &'static str| {
        move |world: &World| match hosts(world).find(|host| !check(host)) {
            None => Ok(()),
            Some(host) => Err(format!("{what}: {}", host["status"])),
        }
    };
    vec![
        Invariant::new(
            "stamps are never equal",
            each(
                |host| stamps(host).0.is_none() || stamps(host).0 != stamps(host).1,
                "equal stamps",
            ),
        ),
        Invariant::new(
            "nothing is switched on while somebody holds it",
            each(
                |host| record(host).0 != "PoweringOn" || !keys(host).contains(&HOLD.to_owned()),
                "switched on while held",
            ),
        ),
        Invariant::new(
            "no failure is shown",
            each(|host| host["status"]["errorType"].is_null(), "a failure"),
        ),
    ]
}

async fn swept(kind: &str, more_cycles: usize) -> Report {
    let site = Arc::new(Site::new(kind).await);
    let proxy = Arc::new(Proxy::start(ironic::shared().await).await.unwrap());
    let nodes = Nodes::default();
    let ground = Ground {
        admin: site.plane.config("client", &["system:masters"]).await.unwrap(),
        controller: site.account.clone(),
    };
    let scenario = scenario(&site, &proxy, &nodes);
    let report = if kind == "crash" {
        crash_sweep(&ground, &scenario).await.unwrap()
    } else {
        two_replica_sweep(&ground, &scenario).await.unwrap()
    };
    println!("{report}");
    assert!(report.passed(), "{report}");
    let nodes = nodes.lock().unwrap().clone();
    for (namespace, node) in nodes {
        let powered = proxy.powered(&node);
        let cycles = powered.iter().filter(|target| *target == "power off").count();
        assert!(
            (2..=2 + more_cycles).contains(&cycles),
            "{namespace}: {cycles} cycles for 2 requests: {powered:?}"
        );
        assert_eq!(powered.len(), 2 * cycles, "{namespace}: off, then on: {powered:?}");
        assert_eq!(powered.last().map(String::as_str), Some("power on"), "{namespace}");
    }
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_costs_no_request_and_adds_no_cycle() {
    let report = Box::pin(swept("crash", 0)).await;
    assert!(report.points > 15, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_replica_at_any_write_breaks_no_hold() {
    Box::pin(swept("replicas", 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_call_of_ironic_costs_no_request_and_adds_no_cycle() {
    let stops = [1, 2].into_iter().flat_map(|n| [(n, Moment::Before), (n, Moment::After)]);
    join_all(stops.map(|(number, moment)| stopped(number, moment))).await;
}

async fn stopped(number: usize, moment: Moment) {
    let site = Site::new("stopped").await;
    let (ironic, machine, node) = machine(&format!("stopped-{number}-{moment:?}")).await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    let stopped = Arc::new(Notify::new());
    let notify = stopped.clone();
    proxy.crash(number, moment, power_changes, move || notify.notify_one());
    let first = site.start(&proxy.endpoint, quick());
    site.annotate("h", json!({ PLAIN: HARD })).await;
    stopped.notified().await;
    drop(first);
    let _second = site.start(&proxy.endpoint, quick());
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "call {number} {moment:?}: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_refusals_and_lost_answers_are_nobodys_failure() {
    let faults = [
        |node: &str| Fault::locked(node),
        |_: &str| Fault::busy(),
        |_: &str| Fault::CutBefore,
        |_: &str| Fault::CutAfter,
        |_: &str| Fault::Delay(Duration::from_secs(2)),
    ];
    join_all(faults.into_iter().enumerate().map(|(number, fault)| survived(number, fault))).await;
}

/// One cycle whose first two power calls meet this fault.
async fn survived(number: usize, fault: fn(&str) -> Fault) {
    let site = Site::new("faults").await;
    let (ironic, machine, node) = machine(&format!("faults-{number}")).await;
    let proxy = Proxy::start(ironic).await.unwrap();
    site.host("h", &node, json!({})).await;
    let fault = fault(&node);
    proxy.fault(fault.clone(), 2, power_changes);
    let _running = site.start(&proxy.endpoint, quick());
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let host = site.cycled("h").await;
    assert!(host["status"]["errorType"].is_null(), "{fault:?}: {host:#}");
    let met = proxy.count(|request| request.fault.as_ref() == Some(&fault));
    assert_eq!(met, 2, "the fault was met twice");
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{fault:?}: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_that_is_away_changes_nothing_and_the_request_waits_for_it() {
    let site = Site::new("away").await;
    let ironic = bench::ironic::Ironic::start(bench::ironic::Options::default()).await.unwrap();
    let machine = bench::bmc::spare().await.unwrap();
    let node = ironic.enroll("away", &machine).await.unwrap();
    switch(&ironic, &node, "power on").await;
    site.host("h", &node, json!({})).await;
    let _running = site.start(&ironic.endpoint, quick());
    ironic.kill();
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let host = site.wait("h", "waiting", |host| record(host).0 == "IronicUnreachable").await;
    assert_eq!((keys(&host).len(), &host["status"]["poweredOn"]), (1, &json!(true)));
    assert!(record(&host).1.contains("IRONIC_ENDPOINT"), "it says what to look at: {host:#}");
    ironic.restart().await.unwrap();
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_api_server_costs_no_request() {
    use bench::faults::{At, Fault};
    let site = Site::new("api-faults").await;
    let (ironic, machine, node) = machine("api-faults").await;
    site.host("h", &node, json!({})).await;
    let status = |code: u16| Fault::Fail(reqwest::StatusCode::from_u16(code).unwrap());
    let plan = Plan::none("bmo-reboot")
        .and(At::Write(1), status(500))
        .and(At::Write(2), status(409))
        .and(At::Write(4), status(429))
        .and(At::Write(5), Fault::DropAnswer)
        .and(At::Write(7), Fault::DropRequest);
    let _running = site.start_disturbed(&ironic.endpoint, quick(), plan);
    site.annotate("h", json!({ PLAIN: HARD })).await;
    site.cycled("h").await;
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
}
