//! Stopped before and after each write, and with a second process beside it at each write: one host for each machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_types::names::ferrite::NODE_ID;
use bench::agent::Agent;
use bench::bmo;
use bench::observer::{Invariant, Key, World};
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

/// The host that a person made.
const PERSONS: &str = "person";

/// Node identifiers of the machines of a run end in the number of the agent.
fn node_of(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// By what a host names a machine: its identifier in Ironic, and the part of its boot address that all ports of one agent
/// have in common.
fn machine_names(host: &DynamicObject) -> Vec<String> {
    let mac = host.data["spec"]["bootMACAddress"].as_str().unwrap_or_default().to_lowercase();
    let address = mac.rsplit_once(':').map_or("", |(machine, _)| machine).to_owned();
    let node = host.annotations().get(NODE_ID).cloned();
    node.into_iter().chain([address]).collect()
}

fn one_host_each(world: &World) -> Result<(), String> {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for host in hosts(world) {
        for machine in machine_names(host) {
            if let Some(other) = seen.insert(machine.clone(), host.name_any()) {
                return Err(format!("{machine} is {other} and {}", host.name_any()));
            }
        }
    }
    Ok(())
}

/// Both annotations whole, the address that of the port by which the machine that it names has booted, and its own BMC.
fn whole(world: &World) -> Result<(), String> {
    for host in hosts(world).filter(|host| host.name_any() != PERSONS) {
        let all = host.annotations();
        for key in ["baremetalhost.metal3.io/status", "inspect.metal3.io/hardwaredetails"] {
            let text = all.get(key).map(String::as_str).unwrap_or_default();
            if serde_json::from_str::<Value>(text).is_err() {
                return Err(format!("{} has no whole {key}", host.name_any()));
            }
        }
        let node = all.get(NODE_ID).map(String::as_str).unwrap_or_default();
        let number = node.rsplit('-').next().and_then(|it| it.parse::<u32>().ok());
        let agent = number.map(Agent::new);
        let booted = agent.as_ref().map(|it| it.mac(0)).unwrap_or_default();
        if host.data["spec"]["bootMACAddress"] != booted {
            return Err(format!("{} of {node} does not have {booted}", host.name_any()));
        }
        let bmc = agent.and_then(|it| it.bmc_address).unwrap_or_default();
        let address = format!("redfish+https://{bmc}/redfish/v1/Systems/1");
        if host.data["spec"]["bmc"]["address"] != address {
            return Err(format!("{} of {node} does not have the BMC {address}", host.name_any()));
        }
    }
    Ok(())
}

/// Nobody but us writes to the hosts of a run, and the one that a person deletes is `m2`.
fn as_they_were_made(before: &World, now: &World) -> Result<(), String> {
    for (key, host) in before.iter().filter(|(key, _)| key.resource == "baremetalhosts") {
        match now.get(key) {
            Some(same) if same == host => {}
            Some(other) => {
                return Err(format!(
                    "{} was changed: {:?}",
                    key.name, other.metadata.managed_fields
                ));
            }
            None if key.name == "m2" => {}
            None => return Err(format!("{} was deleted", key.name)),
        }
    }
    Ok(())
}

fn invariants() -> Vec<Invariant> {
    vec![
        Invariant::new("a machine has one host", one_host_each),
        Invariant::new("no host is half made", whole),
        Invariant::between("a host, a person's too, stays as it was made", as_they_were_made),
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
                    "maxHosts": 3,
                    "approval": "Manual",
                    "bmc": {
                        "addressTemplate": "redfish+https://{bmcAddress}/redfish/v1/Systems/1",
                        "credentialsName": "bmc", "subnets": ["10.0.0.0/8"],
                    },
                });
                site.discovery("racks", spec).await;
                let base = numbers();
                let machines = (1..=3).map(|number| {
                    let mut agent = Agent::new(base + number);
                    agent.hostname = format!("m{number}");
                    agent.product.clone_from(&namespace);
                    (node_of(base + number), agent)
                });
                let machines: Vec<(String, Agent)> = machines.collect();
                let body = json!({ "spec": { "bootMACAddress": machines[2].1.mac(1) } });
                site.host(PERSONS, body).await;
                // A machine's own report costs Ironic more than all else that it does here.
                site.ironic.multiply(&like.0, &like.1, &machines).await?;
                let nodes: Vec<&str> = machines.iter().map(|(node, _)| node.as_str()).collect();
                // Also of the one that is a host: that it is known is all that keeps it from another.
                site.approve("racks", &nodes.join(",")).await;
                Ok(())
            })
        },
        |world| {
            let names: Vec<String> = hosts(world).map(ResourceExt::name_any).collect();
            let settled = discovery(world).is_some_and(|it| {
                it["metadata"]["annotations"][APPROVE].is_null()
                    && it["status"]["counts"]["created"] == 2
            });
            names == ["m1", "m2", PERSONS] && settled
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
    site.ironic.inventoried(&node).await.unwrap();
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

fn host(name: &str, mac: &str, node: Option<&str>) -> (Key, DynamicObject) {
    let key = Key {
        resource: "baremetalhosts".to_owned(),
        namespace: "a".to_owned(),
        name: name.to_owned(),
    };
    let mut object = json!({ "metadata": { "name": name }, "spec": { "bootMACAddress": mac } });
    if let Some(node) = node {
        object["metadata"]["annotations"] = json!({ NODE_ID: node });
    }
    (key, serde_json::from_value(object).unwrap())
}

#[test]
fn a_second_host_is_found_out_by_whichever_port_or_node_it_has() {
    let (first, other) = (Agent::new(7001), Agent::new(7002));
    let made = || host("made", &first.mac(0), Some("node-1"));
    for (second, is_another) in [
        (host("second", &first.mac(1), None), false),
        (host("second", &first.mac(0).to_uppercase(), None), false),
        (host("second", &other.mac(0), Some("node-1")), false),
        (host("second", &other.mac(0), Some("node-2")), true),
        (host("second", &other.mac(1), None), true),
    ] {
        let told = format!("{second:?}");
        assert_eq!(one_host_each(&World::from([made(), second])).is_ok(), is_another, "{told}");
    }
}

#[test]
fn a_host_that_somebody_changes_or_deletes_is_found_out() {
    let person = host(PERSONS, "06:fe:00:00:01:01", None);
    let world = |all: &[&(Key, DynamicObject)]| -> World { all.iter().copied().cloned().collect() };
    let before = world(&[&person]);
    assert_eq!(as_they_were_made(&before, &before), Ok(()));
    let mut changed = person.clone();
    changed.1.metadata.annotations = Some(BTreeMap::from([(NODE_ID.to_owned(), "n".to_owned())]));
    assert!(as_they_were_made(&before, &world(&[&changed])).is_err());
    assert!(as_they_were_made(&before, &World::new()).is_err());
    let made = host("m1", "06:fe:00:00:02:00", Some("n"));
    assert_eq!(as_they_were_made(&before, &world(&[&person, &made])), Ok(()));
}
