//! Stopped before and after each write, and with a second process beside it at each write: the same ends, the same rules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bench::bmo;
use bench::cluster_api::objects::{CLUSTER, MACHINE};
use bench::observer::World;
use bench::sweep::{Ground, Phase, Report, Scenario, crash_sweep, two_replica_sweep};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use remediation::settings::Policy;
use serde_json::{Value, json};

use super::ground::{account, planes, quick, run};
use super::operator::Operator;
use super::rules::{self, host, request};
use super::scene::{REMEDIATION, Scene, history, is_tainted, keys, reboot, succeeded};

/// The scene of one run; all runs of a sweep have one stand-in that plays for their hosts.
pub(super) async fn at(client: Client, namespace: &str, sweep: &str) -> Scene {
    Scene::at(client, namespace, &played(sweep)).await
}

fn played(sweep: &str) -> String {
    format!("remediation-{sweep}")
}

/// Nobody holds it off, and it is on.
pub(super) fn is_free(world: &World, name: &str) -> bool {
    host(world, name).is_some_and(|it| keys(&it).is_empty() && it["status"]["poweredOn"] == true)
}

/// Whether these are all tries that a host remembers, and how they ended.
pub(super) fn remembers(world: &World, name: &str, tries: &[(u32, &str)]) -> bool {
    let told = host(world, name).map(|it| history(&it)).unwrap_or_default();
    let is = |(one, (number, result)): (&Value, &(u32, &str))| {
        one["try"] == json!(number) && one["result"] == *result
    };
    told.len() == tries.len() && told.iter().zip(tries).all(is)
}

/// The request is there, and holds nothing any more.
pub(super) fn has_let_go(request: &Value) -> bool {
    request["metadata"]["finalizers"].is_null()
}

/// How long a pass that stalled before its taint may take to find out that the request is gone, and to take it away.
const AFTERTHOUGHT: Duration = Duration::from_secs(10);

/// I14, in the other cluster: what was put on a node is gone when its request has let go. Of two processes one may still
/// be about to write its taint then; it takes it back itself, so the processes have to live while this is waited for.
pub(super) async fn is_given_back(scene: &Scene, machine: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + AFTERTHOUGHT;
    loop {
        let Some(node) = scene.node(machine).await else { return Ok(()) };
        let ours: Vec<_> = node.annotations().keys().filter(|it| it.contains("ferrite")).collect();
        if !is_tainted(&node) && ours.is_empty() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the request of {machine} has let go of its node, which is {} and has {ours:?}",
            if is_tainted(&node) { "out of service" } else { "in service" },
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The last phase of a course: nothing is left on the node of this machine.
pub(super) fn nothing_left(sweep: &'static str, machine: &'static str) -> Phase {
    Phase::new(
        "its node is looked at",
        move |client, namespace| {
            Box::pin(
                async move { is_given_back(&at(client, &namespace, sweep).await, machine).await },
            )
        },
        |_| true,
    )
}

/// One machine recovers and its request is withdrawn; another does not and is handed over; the request of a third is
/// withdrawn at once.
fn phases(sweep: &'static str) -> Vec<Phase> {
    vec![
        Phase::new(
            "a node is lost",
            move |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace, sweep).await;
                    scene.prepare().await;
                    scene.machine("m1", "h1").await;
                    scene.request("m1", reboot(1, "60s")).await;
                    Ok(())
                })
            },
            |world| {
                let over = request(world, "m1")
                    .is_some_and(|it| succeeded(&it).1 == "Recovered" && has_let_go(&it));
                // It has another try left, which nothing calls for.
                over && remembers(world, "h1", &[(0, "Recovered")])
            },
        ),
        Phase::new(
            "its request is withdrawn, and another's node is lost for good",
            move |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace, sweep).await;
                    is_given_back(&scene, "m1").await?;
                    scene.delete(REMEDIATION, "m1").await;
                    scene.machine("m2", "dead2").await;
                    scene.request("m2", reboot(1, "1s")).await;
                    Ok(())
                })
            },
            |world| {
                let over = request(world, "m2").is_some_and(|it| {
                    it["status"]["phase"] == "deleting machine"
                        && has_let_go(&it)
                        && it["status"]["retryCount"] == 1
                });
                over && request(world, "m1").is_none()
                    && remembers(world, "dead2", &[(0, "NotRecovered"), (1, "Exhausted")])
                    && host(world, "dead2").is_some_and(|it| it["spec"]["online"] == false)
            },
        ),
        Phase::new(
            "the request of a third is withdrawn at once",
            move |client, namespace| {
                Box::pin(async move {
                    let scene = at(client, &namespace, sweep).await;
                    is_given_back(&scene, "m2").await?;
                    scene.machine("m3", "dead3").await;
                    scene.request("m3", reboot(1, "60s")).await;
                    scene.host_is("dead3", "held", |host| !history(host).is_empty()).await;
                    scene.delete(REMEDIATION, "m3").await;
                    Ok(())
                })
            },
            |world| {
                let gone = request(world, "m3").is_none() && is_free(world, "dead3");
                gone && remembers(world, "dead3", &[(0, "Withdrawn")])
                    && remembers(world, "h1", &[(0, "Recovered")])
            },
        ),
        nothing_left(sweep, "m3"),
    ]
}

/// The controller under a policy, in a course of events.
fn scenario(sweep: &str, policy: Policy, phases: Vec<Phase>) -> Scenario {
    Scenario {
        name: played(sweep),
        kinds: vec![bmo::hosts(), REMEDIATION.resource(), MACHINE.resource(), CLUSTER.resource()],
        beyond: Vec::new(),
        phases,
        run: Arc::new(move |client, namespace| Box::pin(run(client, namespace, policy.clone()))),
        invariants: rules::all(),
        patience: Duration::from_secs(120),
    }
}

/// Stopped at each write, or with a second process at each.
pub(super) async fn swept(
    sweep: &'static str,
    policy: Policy,
    phases: Vec<Phase>,
    twice: bool,
) -> Report {
    let planes = planes().await;
    let admin = planes.management.admin().await;
    let workload = planes.workload.admin().await;
    let _operator = Operator::start(&admin, &workload, &played(sweep));
    let ground = Ground {
        admin: planes.management.config("client", &["system:masters"]).await.unwrap(),
        controller: account(&planes.management, &format!("sweep-{sweep}")).await.0,
    };
    let scenario = scenario(sweep, policy, phases);
    let report = if twice {
        two_replica_sweep(&ground, &scenario).await.unwrap()
    } else {
        crash_sweep(&ground, &scenario).await.unwrap()
    };
    println!("{report}");
    // The nodes are in another cluster than the observer looks at.
    let nodes: Api<Node> = Api::all(workload);
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let swept = node.name_any().starts_with(&format!("{}-", played(sweep)));
        assert!(!swept || !is_tainted(&node), "{} is still tainted", node.name_any());
    }
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_breaks_no_rule_and_leaves_nothing_behind() {
    let report = swept("crash", quick(), phases("crash"), false).await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_at_any_write_breaks_no_rule_and_leaves_nothing_behind() {
    let report = swept("twice", quick(), phases("twice"), true).await;
    assert!(report.passed(), "{report}");
}
