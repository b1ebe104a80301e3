//! Stopped before and after each write, and with a second process beside it at each write: the same hosts, the same rules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bench::bmo;
use bench::cluster_api::objects::{CLUSTER, MACHINE, MACHINE_DEPLOYMENT, METAL3_MACHINE};
use bench::observer::{Invariant, World};
use bench::sweep::{Ground, Phase, Scenario, crash_sweep, two_replica_sweep};
use capm3_reuse::settings::Policy;
use kube::api::{DeleteParams, DynamicObject};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::ground::{account, plane, run, scaling_account};
use super::rules::{hosts, invariants, machines, says_paused};
use super::scaling::scale_to_hosts;
use super::scene::{NAME, Scene, condition, consumer, host_of, state};

const OPERATOR: &str = "sweep";

fn is_up(world: &World, name: &str) -> bool {
    machines(world).any(|it| {
        it.name_any() == name && it.data["status"]["initialization"]["provisioned"] == true
    })
}

fn is_gone(world: &World, name: &str) -> bool {
    !machines(world).any(|it| it.name_any() == name)
}

fn is_paused(world: &World, name: &str) -> bool {
    machines(world).any(|it| it.name_any() == name && says_paused(it))
}

/// Whether a host is kept for the deployment md and ready for its next machine.
fn is_kept(host: &DynamicObject) -> bool {
    consumer(host) == "MachineDeployment/md" && state(host) == "available"
}

/// Whether the host of m2 is kept again, and the machine of another owner got neither that one nor any other.
fn is_kept_from_another(world: &World) -> bool {
    let waits = machines(world).any(|it| {
        it.name_any() == "o1"
            && host_of(it).is_empty()
            && condition(it, "Ready").is_some_and(|it| it["reason"] == "NoHostAvailable")
    });
    waits && is_gone(world, "m2") && hosts(world).any(is_kept)
}

fn is_clean(world: &World) -> bool {
    machines(world).next().is_none()
        && hosts(world).all(|it| {
            let taken = if it.name_any() == "theirs" { "ConfigMap/x" } else { "" };
            consumer(it) == taken
                && it.data["spec"]["image"].is_null()
                && it.data["spec"]["userData"].is_null()
                && !it.labels().keys().any(|key| key.contains("cluster.x-k8s.io"))
                && !it.annotations().keys().any(|key| key.contains("reserv"))
        })
}

fn at(client: Client, namespace: &str) -> Scene {
    Scene::at(client, namespace, OPERATOR)
}

/// What machines ask for that fits one good host, one that somebody has and one that is unhealthy.
fn rack() -> Value {
    json!({"hostSelector": {"matchLabels": {"rack": "a"}}})
}

async fn prepare(client: Client, namespace: &str) {
    let scene = Scene::prepare(client, namespace, OPERATOR).await;
    for host in ["theirs", "sick", "h1"] {
        scene.host(host, json!({"rack": "a"})).await;
    }
    scene.hosts(&["h2"]).await;
    let theirs =
        json!({"spec": {"consumerRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}});
    scene.patch_host("theirs", theirs).await;
    let sick = json!({"metadata": {"annotations": {"capm3.metal3.io/unhealthy": ""}}});
    scene.patch_host("sick", sick).await;
    scene.template("t", true).await;
    for deployment in ["md", "other"] {
        scene.deployment(deployment, "t", 1).await;
    }
    scene.machine_with("m1", "md", "t", rack()).await;
}

/// Claim, up, release, reserve, reuse.
fn reuse() -> Vec<Phase> {
    vec![
        Phase::new(
            "a machine comes to a host that will do and to others that will not",
            |client, namespace| {
                Box::pin(async move {
                    prepare(client, &namespace).await;
                    Ok(())
                })
            },
            |world| is_up(world, "m1"),
        ),
        Phase::new(
            "it is deleted",
            |client, namespace| {
                Box::pin(async move {
                    at(client, &namespace).delete(METAL3_MACHINE, "m1").await;
                    Ok(())
                })
            },
            |world| is_gone(world, "m1") && hosts(world).any(is_kept),
        ),
        Phase::new(
            "the next one comes, to which a free host would do as well",
            |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace);
                    scene.delete(MACHINE, "m1").await;
                    scene.machine("m2", "md", "t").await;
                    Ok(())
                })
            },
            |world| {
                let of_m2 = |it: &DynamicObject| consumer(it) == "Metal3Machine/m2";
                is_up(world, "m2") && hosts(world).any(|it| it.name_any() == "h1" && of_m2(it))
            },
        ),
    ]
}

/// The machine goes while one of another owner comes that would take its host.
fn contention() -> Phase {
    Phase::new(
        "it is deleted and one of another owner comes for its host",
        |client, namespace| {
            Box::pin(async move {
                let scene = at(client, &namespace);
                scene.delete(METAL3_MACHINE, "m2").await;
                scene.machine_with("o1", "other", "t", rack()).await;
                Ok(())
            })
        },
        is_kept_from_another,
    )
}

/// The same in a cluster that is paused meanwhile.
fn paused_contention() -> Vec<Phase> {
    let pause = |paused: bool| json!({"spec": {"paused": paused}});
    vec![
        Phase::new(
            "the cluster is paused",
            move |client, namespace| {
                Box::pin(async move {
                    at(client, &namespace).patch(CLUSTER, NAME, pause(true)).await;
                    Ok(())
                })
            },
            |world| is_paused(world, "m2"),
        ),
        Phase::new(
            "the machine is deleted and one of another owner comes, while it is paused",
            |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace);
                    scene.delete(METAL3_MACHINE, "m2").await;
                    scene.machine_with("o1", "other", "t", rack()).await;
                    Ok(())
                })
            },
            // Who came later was looked at, and so was who was deleted before.
            |world| is_paused(world, "o1") && is_paused(world, "m2"),
        ),
        Phase::new(
            "the cluster goes on",
            move |client, namespace| {
                Box::pin(async move {
                    at(client, &namespace).patch(CLUSTER, NAME, pause(false)).await;
                    Ok(())
                })
            },
            is_kept_from_another,
        ),
    ]
}

/// Everything that is left is deleted, whoever waits first.
fn collect() -> Phase {
    Phase::new(
        "who waits and then the deployment are deleted",
        |client, namespace| {
            Box::pin(async move {
                let scene = at(client, &namespace);
                scene.remove("o1").await;
                scene.delete(MACHINE, "m2").await;
                scene.delete(MACHINE_DEPLOYMENT, "md").await;
                Ok(())
            })
        },
        is_clean,
    )
}

/// Claim, up, release, reserve, reuse, release in contention, collect. A pause is known to whom it concerns only after a
/// moment, so what was begun before may be written: that it stops everything is for a process that does nothing meanwhile.
fn scenario(paused: bool) -> Scenario {
    let mut phases = reuse();
    if paused {
        phases.extend(paused_contention());
    } else {
        phases.push(contention());
    }
    phases.push(collect());
    Scenario {
        name: "reuse".to_owned(),
        kinds: vec![bmo::hosts(), METAL3_MACHINE.resource(), CLUSTER.resource()],
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

/// Replicas never shrink here and stay within their bounds, and no write of another number comes between.
fn follow_hosts() -> Vec<Invariant> {
    let replicas = |world: &World| {
        let all = world.iter().filter(|(key, _)| key.resource == "machinedeployments");
        all.map(|(key, it)| (key.name.clone(), it.data["spec"]["replicas"].as_i64()))
            .collect::<BTreeMap<_, _>>()
    };
    vec![Invariant::between("replicas only go where hosts are", move |before, after| {
        let (before, after) = (replicas(before), replicas(after));
        for (name, now) in after {
            let was = before.get(&name).copied().flatten();
            let is_wanted = was < now && [Some(3), Some(4)].contains(&now);
            if was.is_some() && was != now && !is_wanted {
                return Err(format!("{name} has {now:?} replicas after {was:?}"));
            }
        }
        Ok(())
    })]
}

/// Hosts come, a host goes, and more come than there may be machines.
fn scaling() -> Scenario {
    let wants = |replicas: i64| {
        move |world: &World| {
            world.iter().any(|(key, it)| {
                key.resource == "machinedeployments" && it.data["spec"]["replicas"] == replicas
            })
        }
    };
    let phases = vec![
        Phase::new(
            "hosts are there for a deployment of one machine",
            |client, namespace| {
                Box::pin(async move {
                    let scene = Scene::prepare(client, &namespace, OPERATOR).await;
                    scene.hosts(&["h1", "h2", "h3"]).await;
                    scene.template("t", false).await;
                    scene.deployment("md", "t", 1).await;
                    scene.patch(MACHINE_DEPLOYMENT, "md", scale_to_hosts("min=1,max=4")).await;
                    Ok(())
                })
            },
            wants(3),
        ),
        Phase::new(
            "one goes and three come",
            |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace);
                    bmo::api(&scene.client, &namespace)
                        .delete("h1", &DeleteParams::default())
                        .await?;
                    scene.hosts(&["h4", "h5", "h6"]).await;
                    Ok(())
                })
            },
            wants(4),
        ),
    ];
    Scenario {
        name: "scaling".to_owned(),
        kinds: vec![bmo::hosts(), MACHINE_DEPLOYMENT.resource()],
        beyond: Vec::new(),
        phases,
        run: Arc::new(|client, namespace| {
            let scale_settle = Duration::from_secs(1);
            let policy = Policy { scale_to_hosts: true, scale_settle, ..Policy::default() };
            Box::pin(run(client, namespace, policy))
        }),
        invariants: follow_hosts(),
        patience: Duration::from_secs(120),
    }
}

async fn ground() -> Ground {
    grounded(account(plane().await, "sweep").await.0).await
}

async fn grounded(controller: kube::Config) -> Ground {
    let admin = plane().await.config("client", &["system:masters"]).await.unwrap();
    Ground { admin, controller }
}

#[tokio::test]
async fn a_stop_at_any_write_breaks_no_rule_and_leaves_nothing_behind() {
    let _operator = bmo::StandIn::start(&plane().await.admin().await, OPERATOR);
    let report = crash_sweep(&ground().await, &scenario(true)).await.unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}

#[tokio::test]
async fn a_second_process_at_any_write_breaks_no_rule_and_leaves_nothing_behind() {
    let _operator = bmo::StandIn::start(&plane().await.admin().await, OPERATOR);
    let report = two_replica_sweep(&ground().await, &scenario(false)).await.unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}

#[tokio::test]
async fn replicas_that_follow_hosts_never_flap_whatever_stops_or_runs_beside() {
    let _operator = bmo::StandIn::start(&plane().await.admin().await, OPERATOR);
    let ground = grounded(scaling_account(plane().await, "scaling").await.0).await;
    for report in [
        crash_sweep(&ground, &scaling()).await.unwrap(),
        two_replica_sweep(&ground, &scaling()).await.unwrap(),
    ] {
        println!("{report}");
        assert!(report.passed(), "{report}");
    }
}
