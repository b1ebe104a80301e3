//! Stopped before and after each write, and with a second process beside it at each write: no entry in two clusters, no lease
//! that is lost or stolen, nothing left over.

use std::sync::Arc;
use std::time::Duration;

use bench::hive::{StandIn, api, kind};
use bench::observer::Invariant;
use bench::sweep::{Ground, Phase, Report, Scenario, crash_sweep, two_replica_sweep};
use clusterpool_inventory::config::Policy;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;

use super::ground::{account, plane, run};
use super::invariants::{
    clusters, entry_of, is_clean, is_ready, no_lease_of_nothing, of, of_one, of_two,
};
use super::scene::Scene;

/// The entry whose clusters cannot be installed.
const FAILS: &str = "fails";

async fn prepared(client: kube::Client, namespace: &str) -> Scene {
    let scene = Scene { client, namespace: namespace.to_owned() };
    scene.secrets().await;
    scene
}

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
                    && of(world, "clusterpools").all(|it| it.data["status"]["ready"] == 2)
            },
        ),
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
        ),
    ]
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
            },
        ),
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
        ),
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

/// Claim, edit, removal.
fn life() -> Vec<Phase> {
    vec![
        Phase::new(
            "a pool of one comes and is claimed",
            |client, namespace| {
                Box::pin(async move {
                    let scene = prepared(client, &namespace).await;
                    scene.entries(&["a", "b"]).await;
                    scene.pool(&namespace, 1, &["a", "b"], json!({})).await;
                    scene.claim("mine", &namespace).await;
                    Ok(())
                })
            },
            |world| {
                let claimed = |it: &DynamicObject| {
                    it.data["spec"]["clusterPoolRef"]["claimName"] == "mine" && is_ready(it)
                };
                clusters(world).any(claimed)
                    && clusters(world).filter(|it| is_ready(it)).count() == 2
            },
        ),
        Phase::new(
            "the entry of the other cluster is edited",
            |client, namespace| {
                Box::pin(async move {
                    let all: Api<DynamicObject> =
                        Api::all_with(client.clone(), &kind("ClusterDeployment"));
                    let found = all.list(&ListParams::default()).await?.items;
                    let free = found.iter().find(|it| {
                        it.data["spec"]["clusterPoolRef"]["namespace"] == namespace.as_str()
                            && it.data["spec"]["clusterPoolRef"]["claimName"].is_null()
                            && it.metadata.deletion_timestamp.is_none()
                    });
                    let entry = free.map_or("a", entry_of).to_owned();
                    let patch = json!({ "spec": { "installConfigPatches": [
                        { "op": "replace", "path": "/metadata/name", "value": "edited" },
                    ]}});
                    let entries = api(&client, &namespace, "ClusterDeploymentCustomization");
                    entries.patch(&entry, &PatchParams::default(), &Patch::Merge(patch)).await?;
                    Ok(())
                })
            },
            |world| {
                let new = |it: &DynamicObject| {
                    it.annotations()
                        .get("ferrite.metal3.io/installed-name")
                        .is_some_and(|it| it == "edited")
                        && is_ready(it)
                };
                clusters(world).any(new) && clusters(world).count() == 2
            },
        ),
        Phase::new(
            "the inventory goes, the claim too, and then the pool",
            |client, namespace| {
                Box::pin(async move {
                    let pools = api(&client, &namespace, "ClusterPool");
                    let patch = json!({ "spec": { "size": 0, "inventory": [{ "name": "b" }] } });
                    pools.patch(&namespace, &PatchParams::default(), &Patch::Merge(patch)).await?;
                    let claims = api(&client, &namespace, "ClusterClaim");
                    claims.delete("mine", &DeleteParams::default()).await?;
                    pools.delete(&namespace, &DeleteParams::default()).await?;
                    Ok(())
                })
            },
            is_clean,
        ),
    ]
}

fn scenario(name: &str, phases: Vec<Phase>, invariants: Vec<Invariant>) -> Scenario {
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
        run: Arc::new(|client, namespace| {
            let policy = Policy { provision_attempts: 1, ..Policy::default() };
            Box::pin(run(client, vec![namespace], policy))
        }),
        invariants,
        patience: Duration::from_secs(120),
    }
}

async fn swept<F>(
    sweep: impl Fn(Ground, Scenario) -> F,
    name: &str,
    phases: Vec<Phase>,
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
    let report = sweep(ground, scenario(name, phases, invariants)).await.unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}

async fn stopped(name: &str, phases: Vec<Phase>) {
    let sweep = async |ground: Ground, scenario: Scenario| crash_sweep(&ground, &scenario).await;
    swept(sweep, name, phases, of_one()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_write_gives_no_entry_away_twice_and_leaves_nothing_behind() {
    stopped("cpi-stop", fill_and_delete()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_write_costs_an_entry_that_fails_no_more_attempts_than_it_failed() {
    stopped("cpi-fail", fail_and_delete()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: run with --ignored"]
async fn a_stop_at_any_write_of_a_pools_life_leaves_nothing_behind() {
    stopped("cpi-life", life()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_at_any_write_gives_no_entry_away_twice() {
    let sweep =
        async |ground: Ground, scenario: Scenario| two_replica_sweep(&ground, &scenario).await;
    swept(sweep, "cpi-two", share_and_delete(), of_two()).await;
}
