//! Stopped before and after each write, and with a second process beside it at each write: the same ends, the same rules.

use std::sync::Arc;
use std::time::Duration;

use bench::bmo;
use bench::cluster_api::objects::MACHINE;
use bench::observer::{Invariant, World};
use bench::sweep::{Ground, Phase, Report, Scenario, crash_sweep, two_replica_sweep};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::ground::{account, planes, quick, run};
use super::operator::Operator;
use super::scene::{REMEDIATION, Scene, history, is_tainted, keys, reboot, succeeded};

const PLAYED: &str = "remediation-sweep";

fn of<'a>(world: &'a World, resource: &'a str) -> impl Iterator<Item = Value> + 'a {
    let all = world.iter().filter(move |(key, _)| key.resource == resource);
    all.filter_map(|(_, object)| serde_json::to_value(object).ok())
}

fn requests(world: &World) -> impl Iterator<Item = Value> + '_ {
    of(world, "metal3remediations")
}

fn hosts(world: &World) -> impl Iterator<Item = Value> + '_ {
    of(world, "baremetalhosts")
}

fn request<'a>(world: &'a World, name: &'a str) -> Option<Value> {
    requests(world).find(|it| it["metadata"]["name"] == name)
}

fn invariants() -> Vec<Invariant> {
    let held_for_somebody = |world: &World| {
        for host in hosts(world) {
            let keys = keys(&host);
            if keys.len() > 1 {
                return Err(format!("two keys: {keys:?}"));
            }
            for key in keys {
                let uid = key.rsplit("remediation-").next().unwrap_or_default();
                let owner = requests(world).find(|it| it["metadata"]["uid"] == uid);
                if owner.is_none_or(|it| it["metadata"]["finalizers"].is_null()) {
                    return Err(format!("{key} of a request without finalizer, or of none"));
                }
            }
        }
        Ok(())
    };
    let within_the_limit = |world: &World| {
        for it in requests(world) {
            let limit = it["spec"]["strategy"]["retryLimit"].as_i64();
            if it["status"]["retryCount"].as_i64() > limit {
                return Err(format!("more than {limit:?} retries: {}", it["status"]));
            }
        }
        Ok(())
    };
    let marked_first = |world: &World| {
        for machine in of(world, "machines") {
            let told = super::scene::condition(&machine, "OwnerRemediated").0 == "False";
            let name = machine["metadata"]["name"].as_str().unwrap_or_default();
            let host = hosts(world).find(|it| it["spec"]["consumerRef"]["name"] == name);
            let mark = "capi.metal3.io/unhealthy";
            if told && host.is_some_and(|it| it["metadata"]["annotations"][mark].is_null()) {
                return Err(format!("the owner of {name} is told before its host is marked"));
            }
        }
        Ok(())
    };
    let one_cycle_each = |world: &World| {
        for host in hosts(world) {
            let tries = history(&host);
            for number in tries.iter().map(|it| it["try"].clone()) {
                if tries.iter().filter(|it| it["try"] == number).count() > 1 {
                    return Err(format!("try {number} twice: {tries:?}"));
                }
            }
        }
        Ok(())
    };
    vec![
        Invariant::new("a host is held only for a request with a finalizer", held_for_somebody),
        Invariant::new("retries stay within the limit", within_the_limit),
        Invariant::new("a host is marked before its owner is told", marked_first),
        Invariant::new("each try is one power cycle", one_cycle_each),
    ]
}

fn machines() -> kube::core::ApiResource {
    MACHINE.resource()
}

/// One machine recovers and its request is withdrawn; another does not and is handed over; the request of a third is
/// withdrawn at once.
fn scenario(kind: &str) -> Scenario {
    async fn at(client: Client, namespace: &str) -> Scene {
        Scene::at(client, namespace, PLAYED).await
    }
    let is_free = |world: &World, host: &str| {
        hosts(world).any(|it| {
            it["metadata"]["name"] == host
                && keys(&it).is_empty()
                && it["status"]["poweredOn"] == true
        })
    };
    let phases = vec![
        Phase::new(
            "a node is lost",
            |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace).await;
                    scene.prepare().await;
                    scene.machine("m1", "h1").await;
                    scene.request("m1", reboot(1, "60s")).await;
                    Ok(())
                })
            },
            |world| {
                request(world, "m1").is_some_and(|it| {
                    succeeded(&it).1 == "Recovered" && it["metadata"]["finalizers"].is_null()
                })
            },
        ),
        Phase::new(
            "its request is withdrawn, and another's node is lost for good",
            |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace).await;
                    scene.delete(REMEDIATION, "m1").await;
                    scene.machine("m2", "dead2").await;
                    scene.request("m2", reboot(1, "1s")).await;
                    Ok(())
                })
            },
            |world| {
                let over = request(world, "m2").is_some_and(|it| {
                    it["status"]["phase"] == "deleting machine"
                        && it["metadata"]["finalizers"].is_null()
                        && it["status"]["retryCount"] == 1
                });
                over && request(world, "m1").is_none()
                    && hosts(world).any(|it| {
                        it["metadata"]["name"] == "dead2" && it["spec"]["online"] == false
                    })
            },
        ),
        Phase::new(
            "the request of a third is withdrawn at once",
            |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace).await;
                    scene.machine("m3", "dead3").await;
                    scene.request("m3", reboot(1, "60s")).await;
                    scene.host_is("dead3", "held", |host| !history(host).is_empty()).await;
                    scene.delete(REMEDIATION, "m3").await;
                    Ok(())
                })
            },
            move |world| request(world, "m3").is_none() && is_free(world, "dead3"),
        ),
    ];
    Scenario {
        name: format!("remediation-{kind}"),
        kinds: vec![bmo::hosts(), REMEDIATION.resource(), machines()],
        beyond: Vec::new(),
        phases,
        run: Arc::new(|client, namespace| Box::pin(run(client, namespace, quick()))),
        invariants: invariants(),
        patience: Duration::from_secs(120),
    }
}

async fn swept(kind: &str) -> Report {
    let planes = planes().await;
    let admin = planes.management.admin().await;
    let workload = planes.workload.admin().await;
    let _operator = Operator::start(&admin, &workload, PLAYED);
    let ground = Ground {
        admin: planes.management.config("client", &["system:masters"]).await.unwrap(),
        controller: account(&planes.management, &format!("sweep-{kind}")).await.0,
    };
    let report = if kind == "crash" {
        crash_sweep(&ground, &scenario(kind)).await.unwrap()
    } else {
        two_replica_sweep(&ground, &scenario(kind)).await.unwrap()
    };
    println!("{report}");
    // The nodes are in another cluster than the observer looks at.
    let nodes: Api<Node> = Api::all(workload);
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let swept = node.name_any().starts_with(&format!("remediation-{kind}-"));
        assert!(!swept || !is_tainted(&node), "{} is still tainted", node.name_any());
    }
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_breaks_no_rule_and_leaves_nothing_behind() {
    let report = swept("crash").await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_at_any_write_breaks_no_rule_and_leaves_nothing_behind() {
    let report = swept("twice").await;
    assert!(report.passed(), "{report}");
}
