//! Stopped before and after each write, and with a second process beside it at each write: the same hosts, the same rules.

use std::sync::Arc;
use std::time::Duration;

use bench::bmo;
use bench::cluster_api::objects::{MACHINE, MACHINE_DEPLOYMENT, METAL3_MACHINE};
use bench::observer::{Invariant, World};
use bench::sweep::{Ground, Phase, Scenario, crash_sweep, two_replica_sweep};
use capm3_reuse::config::Policy;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;

use super::ground::{account, plane, run};
use super::scene::{Scene, consumer, host_of, state};

const OPERATOR: &str = "sweep";

fn metal3_machines() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "infrastructure.cluster.x-k8s.io",
        "v1beta2",
        METAL3_MACHINE.kind,
    ))
}

fn of<'a>(world: &'a World, resource: &'a str) -> impl Iterator<Item = &'a DynamicObject> {
    world.iter().filter(move |(key, _)| key.resource == resource).map(|(_, object)| object)
}

fn machines(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "metal3machines")
}

fn hosts(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "baremetalhosts")
}

fn is_up(world: &World, name: &str) -> bool {
    machines(world).any(|it| {
        it.name_any() == name && it.data["status"]["initialization"]["provisioned"] == true
    })
}

fn is_gone(world: &World, name: &str) -> bool {
    !machines(world).any(|it| it.name_any() == name)
}

fn has(host: &DynamicObject, machine: &DynamicObject) -> bool {
    let reference = &host.data["spec"]["consumerRef"];
    reference["uid"].as_str() == machine.uid().as_deref()
}

fn invariants() -> Vec<Invariant> {
    let one_host = |world: &World| {
        for machine in machines(world) {
            let all: Vec<String> =
                hosts(world).filter(|it| has(it, machine)).map(ResourceExt::name_any).collect();
            if all.len() > 1 {
                return Err(format!("{} has {}", machine.name_any(), all.join(" and ")));
            }
        }
        Ok(())
    };
    let image_of_claimant = |world: &World| {
        for host in hosts(world).filter(|it| !it.data["spec"]["image"].is_null()) {
            if !consumer(host).starts_with("Metal3Machine/") {
                return Err(format!("{} has an image and {:?}", host.name_any(), consumer(host)));
            }
        }
        Ok(())
    };
    let cleared_first = |world: &World| {
        for host in hosts(world).filter(|it| ["provisioning", "provisioned"].contains(&state(it))) {
            if !consumer(host).starts_with("Metal3Machine/") {
                return Err(format!(
                    "{} is {} and has {:?}",
                    host.name_any(),
                    state(host),
                    consumer(host)
                ));
            }
        }
        Ok(())
    };
    let up_on_its_own = |world: &World| {
        for machine in machines(world) {
            let up = machine.data["status"]["initialization"]["provisioned"] == true;
            let leaves = machine.metadata.deletion_timestamp.is_some();
            let own = hosts(world).any(|it| it.name_any() == host_of(machine) && has(it, machine));
            if up && !leaves && !own {
                return Err(format!("{} is up and has no host", machine.name_any()));
            }
        }
        Ok(())
    };
    vec![
        Invariant::new("a machine has at most one host", one_host),
        Invariant::new("only a machine's host has an image", image_of_claimant),
        Invariant::new("a host is given back only when it is cleared", cleared_first),
        Invariant::new("a machine that is up has its host", up_on_its_own),
    ]
}

/// Claim, up, release, reserve, reuse, collect.
fn scenario() -> Scenario {
    let at = |client: kube::Client, namespace: &str| Scene::at(client, namespace, OPERATOR);
    let phases = vec![
        Phase::new(
            "a machine comes to two hosts",
            |client, namespace| {
                Box::pin(async move {
                    let scene = Scene::prepare(client, &namespace, OPERATOR).await;
                    scene.hosts(&["h1", "h2"]).await;
                    scene.template("t", true).await;
                    scene.deployment("md", "t", 1).await;
                    scene.machine("m1", "md", "t").await;
                    Ok(())
                })
            },
            |world| is_up(world, "m1"),
        ),
        Phase::new(
            "it is deleted",
            move |client, namespace| {
                Box::pin(async move {
                    at(client, &namespace).delete(METAL3_MACHINE, "m1").await;
                    Ok(())
                })
            },
            |world| {
                is_gone(world, "m1")
                    && hosts(world).any(|it| {
                        consumer(it) == "MachineDeployment/md" && state(it) == "available"
                    })
            },
        ),
        Phase::new(
            "the next one comes",
            move |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace);
                    scene.delete(MACHINE, "m1").await;
                    scene.machine("m2", "md", "t").await;
                    Ok(())
                })
            },
            |world| {
                is_up(world, "m2") && hosts(world).filter(|it| consumer(it).is_empty()).count() == 1
            },
        ),
        Phase::new(
            "it and then the deployment are deleted",
            move |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace);
                    scene.remove("m2").await;
                    scene.delete(MACHINE_DEPLOYMENT, "md").await;
                    Ok(())
                })
            },
            |world| {
                machines(world).next().is_none()
                    && hosts(world).all(|it| {
                        consumer(it).is_empty()
                            && it.data["spec"]["image"].is_null()
                            && it.data["spec"]["userData"].is_null()
                            && !it.labels().keys().any(|key| key.contains("cluster.x-k8s.io"))
                            && !it.annotations().keys().any(|key| key.contains("reserv"))
                    })
            },
        ),
    ];
    Scenario {
        name: "reuse".to_owned(),
        kinds: vec![bmo::hosts(), metal3_machines()],
        beyond: Vec::new(),
        phases,
        run: Arc::new(|client, namespace| {
            Box::pin(run(
                client,
                namespace,
                Policy { reservation_grace: Duration::from_secs(3600), ..Policy::default() },
            ))
        }),
        invariants: invariants(),
        patience: Duration::from_secs(120),
    }
}

async fn ground() -> Ground {
    let plane = plane().await;
    Ground {
        admin: plane.config("client", &["system:masters"]).await.unwrap(),
        controller: account(plane, "sweep").await.0,
    }
}

#[tokio::test]
async fn a_stop_at_any_write_breaks_no_rule_and_leaves_nothing_behind() {
    let _operator = bmo::StandIn::start(&plane().await.admin().await, OPERATOR);
    let report = crash_sweep(&ground().await, &scenario()).await.unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}

#[tokio::test]
async fn a_second_process_at_any_write_breaks_no_rule_and_leaves_nothing_behind() {
    let _operator = bmo::StandIn::start(&plane().await.admin().await, OPERATOR);
    let report = two_replica_sweep(&ground().await, &scenario()).await.unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}
