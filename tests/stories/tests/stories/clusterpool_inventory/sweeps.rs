//! Stopped before and after each write, and with a second process beside it at each write: no entry in two clusters, no lease
//! that is lost or stolen, nothing left over.

use std::sync::Arc;
use std::time::Duration;

use bench::hive::{StandIn, api, kind};
use bench::observer::{Invariant, World};
use bench::sweep::{Ground, Phase, Report, Scenario, crash_sweep, two_replica_sweep};
use clusterpool_inventory::config::Policy;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;

use super::ground::{account, plane, run};
use super::scene::Scene;

fn of<'a>(world: &'a World, resource: &'a str) -> impl Iterator<Item = &'a DynamicObject> {
    world.iter().filter(move |(key, _)| key.resource == resource).map(|(_, object)| object)
}

fn clusters(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "clusterdeployments")
}

/// The entries, not their copies.
fn entries(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "clusterdeploymentcustomizations")
}

fn entry_of(cluster: &DynamicObject) -> &str {
    let reference = &cluster.data["spec"]["clusterPoolRef"]["clusterDeploymentCustomization"];
    reference["name"].as_str().unwrap_or_default()
}

fn holder(entry: &DynamicObject) -> Option<&str> {
    entry.data["status"]["clusterDeploymentRef"]["name"].as_str()
}

/// Hive is or may be at it.
fn is_live(cluster: &DynamicObject) -> bool {
    let paused = cluster.annotations().contains_key("hive.openshift.io/reconcile-pause");
    let begun = cluster.finalizers().iter().any(|it| it == "hive.openshift.io/deprovision");
    let deleting = cluster.metadata.deletion_timestamp.is_some();
    begun || !paused && !deleting
}

fn is_ready(cluster: &DynamicObject) -> bool {
    cluster.data["status"]["powerState"] == "Running"
        && cluster.metadata.deletion_timestamp.is_none()
}

fn invariants() -> Vec<Invariant> {
    let once = |world: &World| {
        for entry in entries(world) {
            let name = entry.name_any();
            let users: Vec<String> = clusters(world)
                .filter(|it| entry_of(it) == name && is_live(it))
                .map(ResourceExt::name_any)
                .collect();
            if users.len() > 1 {
                return Err(format!("{name} is in {}", users.join(" and ")));
            }
        }
        Ok(())
    };
    let leased = |world: &World| {
        for cluster in clusters(world) {
            let ours = is_live(cluster) && cluster.metadata.deletion_timestamp.is_none();
            let entry = entries(world).find(|it| it.name_any() == entry_of(cluster));
            if let (true, Some(entry)) = (ours, entry)
                && holder(entry) != Some(cluster.name_any().as_str())
            {
                return Err(format!("{} lives without its lease", cluster.name_any()));
            }
        }
        Ok(())
    };
    let kept = |world: &World| {
        for entry in entries(world) {
            let kept =
                entry.finalizers().iter().any(|it| it == "hive.openshift.io/inventory-lease");
            if holder(entry).is_some() && !kept {
                return Err(format!("{} is leased and could be deleted", entry.name_any()));
            }
        }
        for cluster in clusters(world).filter(|it| !entry_of(it).is_empty()) {
            let ours = "hive.openshift.io/clusterpool-inventory";
            if cluster.metadata.deletion_timestamp.is_none()
                && !cluster.finalizers().iter().any(|it| it == ours)
            {
                return Err(format!(
                    "{} would go without giving its lease back",
                    cluster.name_any()
                ));
            }
        }
        Ok(())
    };
    let claimed = |world: &World| {
        for cluster in clusters(world) {
            let claim = cluster.data["spec"]["clusterPoolRef"]["claimName"].as_str().is_some();
            let marked =
                cluster.annotations().contains_key("hive.openshift.io/remove-cluster-from-pool");
            if claim && cluster.metadata.deletion_timestamp.is_some() && !marked {
                return Err(format!("{} is claimed and was deleted", cluster.name_any()));
            }
        }
        Ok(())
    };
    let attempts = |world: &World| {
        for pool in of(world, "clusterpools") {
            for (name, state) in pool.data["status"]["inventory"].as_object().into_iter().flatten()
            {
                let left = state["attempts"].as_i64().unwrap_or(3);
                if !(2..=3).contains(&left) {
                    return Err(format!("{name} has {left} attempts after one failure"));
                }
            }
        }
        Ok(())
    };
    vec![
        Invariant::new("an entry is in at most one live cluster", once),
        Invariant::new("a living cluster has its lease", leased),
        Invariant::new("what is leased is kept", kept),
        Invariant::new("a claimed cluster stays until it is given back", claimed),
        Invariant::new("a failure costs one attempt", attempts),
    ]
}

/// Nothing of a pool is left.
fn is_clean(world: &World) -> bool {
    of(world, "clusterpools").next().is_none()
        && clusters(world).next().is_none()
        && of(world, "namespaces")
            .filter(|it| it.labels().contains_key("hive.openshift.io/cluster-pool-name"))
            .all(|it| it.metadata.deletion_timestamp.is_some())
        && entries(world).all(|it| holder(it).is_none() && it.finalizers().is_empty())
}

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
                    scene.pool(&namespace, 2, &["a", "b", "c"], json!({})).await;
                    Ok(())
                })
            },
            |world| {
                clusters(world).filter(|it| is_ready(it)).count() == 2
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

fn scenario(name: &str, phases: Vec<Phase>) -> Scenario {
    Scenario {
        name: name.to_owned(),
        kinds: vec![
            kind("ClusterPool"),
            kind("ClusterDeploymentCustomization"),
            kind("ClusterClaim"),
        ],
        beyond: vec![kind("ClusterDeployment"), ApiResource::erase::<Namespace>(&())],
        phases,
        run: Arc::new(|client, namespace| {
            Box::pin(run(client, vec![namespace], Policy::default()))
        }),
        invariants: invariants(),
        patience: Duration::from_secs(120),
    }
}

async fn swept<F>(sweep: impl Fn(Ground, Scenario) -> F, name: &str, phases: Vec<Phase>)
where
    F: Future<Output = anyhow::Result<Report>>,
{
    let plane = plane().await;
    let admin = plane.admin().await;
    // Every run has a namespace of its own, and its clusters the namespace's name as their label.
    let _hive = StandIn::for_all(&admin, &format!("{name}-"));
    let ground = Ground {
        admin: plane.config("client", &["system:masters"]).await.unwrap(),
        controller: account(plane, name).await.0,
    };
    let report = sweep(ground, scenario(name, phases)).await.unwrap();
    println!("{report}");
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_at_any_write_gives_no_entry_away_twice_and_leaves_nothing_behind() {
    let sweep = async |ground: Ground, scenario: Scenario| crash_sweep(&ground, &scenario).await;
    swept(sweep, "cpi-stop", fill_and_delete()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: run with --ignored"]
async fn a_stop_at_any_write_of_a_pools_life_leaves_nothing_behind() {
    let sweep = async |ground: Ground, scenario: Scenario| crash_sweep(&ground, &scenario).await;
    swept(sweep, "cpi-life", life()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_at_any_write_gives_no_entry_away_twice() {
    let sweep =
        async |ground: Ground, scenario: Scenario| two_replica_sweep(&ground, &scenario).await;
    swept(sweep, "cpi-two", share_and_delete()).await;
}
