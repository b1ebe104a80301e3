//! Stopped before and after each write, and with a second process beside it at each write: one host for each machine.

use std::sync::Arc;
use std::time::Duration;

use bench::agent::Agent;
use bench::bmo;
use bench::observer::{Invariant, World};
use bench::sweep::{Ground, Phase, Report, Scenario, crash_sweep, two_replica_sweep};
use futures_util::future::BoxFuture;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{APPROVE, Site, discoveries, numbers, quick, run};

fn hosts(world: &World) -> impl Iterator<Item = &DynamicObject> {
    world.iter().filter(|(key, _)| key.resource == "baremetalhosts").map(|(_, object)| object)
}

fn discovery(world: &World) -> Option<Value> {
    let mut all = world.iter().filter(|(key, _)| key.resource == "baremetalhostdiscoveries");
    all.next().and_then(|(_, object)| serde_json::to_value(object).ok())
}

fn invariants() -> Vec<Invariant> {
    let one_host = |world: &World| {
        let mut seen = std::collections::HashMap::new();
        for host in hosts(world) {
            let mac = host.data["spec"]["bootMACAddress"].to_string();
            if let Some(other) = seen.insert(mac.clone(), host.name_any()) {
                return Err(format!("{mac} is {other} and {}", host.name_any()));
            }
        }
        Ok(())
    };
    let whole = |world: &World| {
        for host in hosts(world).filter(|host| host.name_any() != "person") {
            let all = host.annotations();
            for key in ["baremetalhost.metal3.io/status", "inspect.metal3.io/hardwaredetails"] {
                let text = all.get(key).map(String::as_str).unwrap_or_default();
                if serde_json::from_str::<Value>(text).is_err() {
                    return Err(format!("{} has no whole {key}", host.name_any()));
                }
            }
        }
        Ok(())
    };
    vec![
        Invariant::new("a machine has one host", one_host),
        Invariant::new("no host is half made", whole),
    ]
}

/// Each run has its own machines, by its own addresses, in one Ironic; the selector takes those of its namespace.
/// Nobody deletes a host beside a second process: a creation has no precondition, so one that is held while the host is
/// made, and deleted, makes it again.
fn scenario(site: &Arc<Site>, like: &(String, Agent), with_deletion: bool) -> Scenario {
    let of = |site: &Arc<Site>| site.clone();
    let first = of(site);
    let like = like.clone();
    let appear = Phase::new(
        "three machines appear, one of them is a person's host",
        move |client, namespace: String| -> BoxFuture<'static, anyhow::Result<()>> {
            let (site, like) = (first.clone(), like.clone());
            Box::pin(async move {
                let site = Site { namespace: namespace.clone(), admin: client, ..site.like() };
                let spec = json!({
                    "selector": { "products": [namespace] },
                    "maxHosts": 2,
                    "approval": "Manual",
                });
                site.discovery("racks", spec).await;
                let base = numbers();
                let machines = (1..=3).map(|number| {
                    let mut agent = Agent::new(base + number);
                    agent.hostname = format!("m{number}");
                    agent.product.clone_from(&namespace);
                    (format!("00000000-0000-4000-8000-{:012}", base + number), agent)
                });
                let machines: Vec<(String, Agent)> = machines.collect();
                let body = json!({ "spec": { "bootMACAddress": machines[2].1.mac(1) } });
                site.host("person", body).await;
                // A machine's own report costs Ironic more than all else that it does here.
                site.ironic.multiply(&like.0, &like.1, &machines).await?;
                let nodes: Vec<&str> = machines.iter().map(|(node, _)| node.as_str()).collect();
                site.approve("racks", &nodes[..2].join(",")).await;
                Ok(())
            })
        },
        |world| {
            let names: Vec<String> = hosts(world).map(ResourceExt::name_any).collect();
            let settled = discovery(world).is_some_and(|it| {
                it["metadata"]["annotations"][APPROVE].is_null()
                    && it["status"]["counts"]["created"] == 2
            });
            names == ["m1", "m2", "person"] && settled
        },
    );
    let second = of(site);
    let deleted = Phase::new(
        "a host is deleted and stays away",
        move |client, namespace: String| -> BoxFuture<'static, anyhow::Result<()>> {
            let site = second.clone();
            Box::pin(async move {
                let site = Site { namespace, admin: client, ..site.like() };
                site.delete("m2").await;
                Ok(())
            })
        },
        |world| {
            let told = discovery(world).is_some_and(|it| {
                it["status"]["counts"]["created"] == 1
                    && it["status"]["pending"].as_array().is_some_and(|all| all.len() == 1)
            });
            hosts(world).count() == 2 && told
        },
    );
    let endpoint = site.ironic.endpoint.clone();
    Scenario {
        name: "discovery".to_owned(),
        kinds: vec![bmo::hosts(), discoveries()],
        beyond: Vec::new(),
        phases: if with_deletion { vec![appear, deleted] } else { vec![appear] },
        run: Arc::new(move |client, namespace| {
            let mut policy = quick();
            policy.full_sync_interval = Duration::from_secs(1);
            policy.status_interval = Duration::from_millis(100);
            Box::pin(run(client, namespace, policy, endpoint.clone()))
        }),
        invariants: invariants(),
        patience: super::PATIENCE,
    }
}

async fn swept(crash: bool) -> Report {
    let site = Arc::new(Site::new(if crash { "crash" } else { "replicas" }).await);
    let ground = Ground {
        admin: site.plane.config("client", &["system:masters"]).await.unwrap(),
        controller: site.account.clone(),
    };
    // A machine that no run's selector takes.
    let like = Agent {
        hostname: "like-all-others".to_owned(),
        product: "like-no-other".to_owned(),
        ..site.agent(0)
    };
    let node = site.boot(&like).await;
    while !site.ironic.has_inventory(&node).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let scenario = scenario(&site, &(node, like), crash);
    let report = if crash {
        crash_sweep(&ground, &scenario).await.unwrap()
    } else {
        two_replica_sweep(&ground, &scenario).await.unwrap()
    };
    println!("{report}");
    assert!(report.passed(), "{report}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_makes_no_host_twice_and_forgets_none() {
    let report = Box::pin(swept(true)).await;
    assert!(report.points >= 10, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_at_any_write_makes_no_host_twice_and_forgets_none() {
    Box::pin(swept(false)).await;
}
