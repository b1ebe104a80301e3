//! Stopped before and after each write, and with a second process beside it at each write: no entry in two clusters, no lease
//! that is lost or stolen, nothing left over.

use std::sync::Arc;
use std::time::Duration;

use bench::hive::{StandIn, api, kind};
use bench::observer::Invariant;
use bench::sweep::{Ground, Phase, Report, Scenario, crash_sweep, two_replica_sweep};
use clusterpool_inventory::settings::Policy;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject};
use serde_json::json;

use super::courses::{self, Standing, prepared};
use super::ground::{account, plane, run};
use super::invariants::{
    clusters, entry_of, is_clean, is_kept_where_needed, is_ready, no_lease_of_nothing, of, of_one,
    of_two,
};

/// The entry whose clusters cannot be installed.
const FAILS: &str = "fails";

/// The pool has the namespace's name: its clusters are then told from those of other runs.
fn fill_and_delete() -> Vec<Phase> {
    vec![
        Phase::new(
            "a pool of two comes with three entries, one of them bad",
            |client, namespace| {
                Box::pin(async move {
                    let scene = prepared(client, &namespace).await;
                    scene.entries(&["a", "c"]).await;
                    scene.entry("b", json!([{ "op": "remove", "path": "/nothing" }])).await;
                    let limits = json!({ "maxSize": 3, "maxConcurrent": 2 });
                    scene.pool(&namespace, 2, &["a", "b", "c"], limits).await;
                    Ok(())
                })
            },
            |world| {
                clusters(world).filter(|it| is_ready(it)).count() == 2
                    && no_lease_of_nothing(world)
                    && is_kept_where_needed(world)
                    && of(world, "clusterpools").all(|it| it.data["status"]["ready"] == 2)
            },
        ),
        deleted(),
    ]
}

fn deleted() -> Phase {
    Phase::new(
        "it is deleted",
        |client, namespace| {
            Box::pin(async move {
                let pools = api(&client, &namespace, "ClusterPool");
                pools.delete(&namespace, &DeleteParams::default()).await?;
                Ok(())
            })
        },
        is_clean,
    )
}

/// An entry whose clusters cannot be installed.
fn fail_and_delete() -> Vec<Phase> {
    vec![
        Phase::new(
            "a pool of one comes, and the first entry's cluster fails",
            |client, namespace| {
                Box::pin(async move {
                    let scene = prepared(client, &namespace).await;
                    scene.entries(&[FAILS, "good"]).await;
                    let limits = json!({ "maxSize": 2, "maxConcurrent": 1 });
                    scene.pool(&namespace, 1, &[FAILS, "good"], limits).await;
                    Ok(())
                })
            },
            |world| {
                let told = |pool: &DynamicObject| {
                    let state = &pool.data["status"]["inventory"][FAILS];
                    state["status"] == "Broken by cloud"
                        && state["attempts"] == 0
                        && pool.data["status"]["ready"] == 1
                };
                of(world, "clusterpools").any(told)
                    && clusters(world).count() == 1
                    && clusters(world).all(|it| is_ready(it) && entry_of(it) == "good")
                    && no_lease_of_nothing(world)
                    && is_kept_where_needed(world)
            },
        ),
        deleted(),
    ]
}

/// Two pools that list the same entries.
fn share_and_delete() -> Vec<Phase> {
    vec![
        Phase::new(
            "two pools of one come with the same two entries",
            |client, namespace| {
                Box::pin(async move {
                    let scene = prepared(client, &namespace).await;
                    scene.entries(&["a", "b"]).await;
                    for pool in [namespace.clone(), format!("{namespace}-b")] {
                        scene.pool(&pool, 1, &["a", "b"], json!({})).await;
                    }
                    Ok(())
                })
            },
            |world| {
                clusters(world).filter(|it| is_ready(it)).count() == 2
                    && no_lease_of_nothing(world)
                    && is_kept_where_needed(world)
                    && of(world, "clusterpools").all(|it| it.data["status"]["ready"] == 1)
            },
        ),
        Phase::new(
            "both are deleted",
            |client, namespace| {
                Box::pin(async move {
                    let pools = api(&client, &namespace, "ClusterPool");
                    for pool in [namespace.clone(), format!("{namespace}-b")] {
                        pools.delete(&pool, &DeleteParams::default()).await?;
                    }
                    Ok(())
                })
            },
            is_clean,
        ),
    ]
}

/// What happens, and where a process waits until that begins.
struct Course {
    phases: Vec<Phase>,
    standing: Option<Standing>,
}

impl Course {
    fn from_nothing(phases: Vec<Phase>) -> Self {
        Self { phases, standing: None }
    }

    fn from_a_pool(phases: fn(&Standing) -> Vec<Phase>) -> Self {
        let standing = Standing::nowhere();
        Self { phases: phases(&standing), standing: Some(standing) }
    }
}

fn scenario(name: &str, course: Course, invariants: Vec<Invariant>) -> Scenario {
    let Course { phases, standing } = course;
    Scenario {
        name: name.to_owned(),
        kinds: vec![kind("ClusterPool"), kind("ClusterClaim")],
        beyond: vec![
            // The entries, and their copies in the clusters' namespaces.
            kind("ClusterDeploymentCustomization"),
            kind("ClusterDeployment"),
            ApiResource::erase::<Namespace>(&()),
            ApiResource::erase::<Secret>(&()),
        ],
        phases,
        run: Arc::new(move |client, namespace| {
            let standing = standing.clone();
            Box::pin(async move {
                if let Some(standing) = standing {
                    standing.run(client, namespace).await;
                } else {
                    let policy = Policy { provision_attempts: 1, ..Policy::default() };
                    Box::pin(run(client, vec![namespace], policy)).await;
                }
            })
        }),
        invariants,
        patience: Duration::from_secs(120),
    }
}

async fn swept<F>(
    sweep: impl Fn(Ground, Scenario) -> F,
    name: &str,
    course: Course,
    invariants: Vec<Invariant>,
) where
    F: Future<Output = anyhow::Result<Report>>,
{
    let plane = plane().await;
    let admin = plane.admin().await;
    // Every run has a namespace of its own, and its clusters the namespace's name as their label.
    let hive = StandIn::for_all(&admin, &format!("{name}-"));
    hive.fail(FAILS);
    let ground = Ground {
        admin: plane.config("client", &["system:masters"]).await.unwrap(),
        controller: account(plane, name).await.0,
    };
    let report = sweep(ground, scenario(name, course, invariants)).await.unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}

async fn stopped(name: &str, course: Course) {
    let sweep = async |ground: Ground, scenario: Scenario| crash_sweep(&ground, &scenario).await;
    swept(sweep, name, course, of_one()).await;
}

async fn beside_another(name: &str, course: Course) {
    let sweep =
        async |ground: Ground, scenario: Scenario| two_replica_sweep(&ground, &scenario).await;
    swept(sweep, name, course, of_two()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_write_gives_no_entry_away_twice_and_leaves_nothing_behind() {
    stopped("cpi-stop", Course::from_nothing(fill_and_delete())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_write_costs_an_entry_that_fails_no_more_attempts_than_it_failed() {
    stopped("cpi-fail", Course::from_nothing(fail_and_delete())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_write_takes_no_cluster_from_its_user_though_pool_and_entry_are_deleted() {
    stopped("cpi-claim", Course::from_a_pool(courses::claim)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_write_leaves_no_cluster_of_what_an_entry_was_before() {
    stopped("cpi-edit", Course::from_a_pool(courses::edit)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_write_leaves_nothing_on_an_entry_that_was_taken_off_the_list() {
    stopped("cpi-list", Course::from_a_pool(courses::removal)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_at_any_write_gives_no_entry_away_twice() {
    beside_another("cpi-two", Course::from_nothing(share_and_delete())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_at_any_write_takes_no_cluster_from_its_user() {
    beside_another("cpi-user", Course::from_a_pool(courses::claim)).await;
}
