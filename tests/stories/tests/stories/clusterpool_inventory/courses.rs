//! Courses of events that begin with a pool that another process filled and left: a sweep stops at each write, so that what
//! comes before costs as many runs more.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bench::hive::api;
use bench::observer::World;
use bench::sweep::Phase;
use clusterpool_inventory::settings::Policy;
use futures_util::StreamExt as _;
use kube::api::{DeleteParams, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;

use super::ground::run;
use super::invariants::{
    clusters, entries, entry_of, is_clean, is_kept_where_needed, is_ready, no_lease_of_nothing, of,
    version,
};
use super::scene::{PATIENCE, Scene};

/// How many clusters of an entry may fail.
const ATTEMPTS: u32 = 2;

/// A fresh namespace with the secrets of a pool.
pub(super) async fn prepared(client: Client, namespace: &str) -> Scene {
    let scene = Scene { client, namespace: namespace.to_owned() };
    scene.secrets().await;
    scene
}

/// Namespaces in which everything stands that a process is to find when it begins.
#[derive(Clone)]
pub(super) struct Standing(Arc<watch::Sender<BTreeSet<String>>>);

impl Standing {
    pub(super) fn nowhere() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeSet::new())))
    }

    fn add(&self, namespace: String) {
        self.0.send_modify(|it| {
            it.insert(namespace);
        });
    }

    /// The process that is disturbed: it begins once everything stands.
    pub(super) async fn run(self, client: Client, namespace: String) {
        let mut all = self.0.subscribe();
        all.wait_for(|it| it.contains(&namespace)).await.map(drop).unwrap();
        drop(all);
        Box::pin(run(client, vec![namespace], policy())).await;
    }
}

fn policy() -> Policy {
    Policy { provision_attempts: ATTEMPTS, ..Policy::default() }
}

/// A pool of one cluster from this entry, filled by a process that ends then. The other entry is not listed.
async fn filled(
    client: &Client,
    namespace: &str,
    entry: &str,
    ready: u32,
) -> anyhow::Result<Scene> {
    let scene = prepared(client.clone(), namespace).await;
    scene.entries(&[entry, "other"]).await;
    scene.pool(namespace, 1, &[entry], json!({})).await;
    let first = Box::pin(run(client.clone(), vec![namespace.to_owned()], policy()));
    let done = async {
        let pools = api(client, namespace, "ClusterPool");
        let pools = watcher(pools, watcher::Config::default()).default_backoff();
        let mut pools = pools.applied_objects().boxed();
        while let Some(pool) = pools.next().await {
            let is_done = |it: DynamicObject| {
                let status = &it.data["status"];
                status["inventory"][entry]["status"] == "Reserved" && status["ready"] == ready
            };
            if pool.is_ok_and(is_done) {
                break;
            }
        }
    };
    tokio::select! {
        done = tokio::time::timeout(PATIENCE, done) => done.context("the pool is not filled")?,
        () = first => bail!("the process that fills the pool ended by itself"),
    }
    Ok(scene)
}

/// What the only pool says of an entry.
fn is_said(world: &World, entry: &str, status: &str, attempts: u32) -> bool {
    of(world, "clusterpools").all(|it| {
        let state = &it.data["status"]["inventory"][entry];
        state["status"] == status && state["attempts"] == attempts
    })
}

/// One cluster that runs, made from this entry as it is now, and nothing that is not needed.
fn is_one_of(world: &World, entry: &str) -> bool {
    let found = entries(world).find(|it| it.name_any() == entry);
    let current = |it: &DynamicObject| {
        let made_from = it.annotations().get("ferrite.metal3.io/customization-version");
        found.is_some_and(|found| made_from == Some(&version(found)))
    };
    clusters(world).count() == 1
        && clusters(world).all(|it| is_ready(it) && entry_of(it) == entry && current(it))
        && is_said(world, entry, "Reserved", ATTEMPTS)
        && no_lease_of_nothing(world)
        && is_kept_where_needed(world)
}

/// A cluster is claimed, and nobody but its user ends it.
pub(super) fn claim(standing: &Standing) -> Vec<Phase> {
    let standing = standing.clone();
    vec![
        Phase::new(
            "a cluster that runs is claimed",
            move |client, namespace| {
                let standing = standing.clone();
                Box::pin(async move {
                    let scene = filled(&client, &namespace, "a", 1).await?;
                    scene.claim("mine", &namespace).await;
                    standing.add(namespace);
                    Ok(())
                })
            },
            |world| {
                let given = |it: &DynamicObject| {
                    it.data["spec"]["clusterPoolRef"]["claimName"] == "mine" && is_ready(it)
                };
                // With Hive's finalizer on it its end is noticed.
                let told = |it: &DynamicObject| {
                    it.data["spec"]["namespace"].is_string() && !it.finalizers().is_empty()
                };
                clusters(world).any(given) && of(world, "clusterclaims").any(told)
            },
        ),
        Phase::new(
            "its pool and its entry are deleted",
            |client, namespace| {
                Box::pin(async move {
                    let entries = api(&client, &namespace, "ClusterDeploymentCustomization");
                    entries.delete("a", &DeleteParams::default()).await?;
                    let pools = api(&client, &namespace, "ClusterPool");
                    pools.delete(&namespace, &DeleteParams::default()).await?;
                    Ok(())
                })
            },
            |world| {
                let waits = |it: &DynamicObject| {
                    let all = it.data["status"]["conditions"].as_array();
                    all.into_iter().flatten().any(|it| {
                        it["type"] == "DeletionPossible"
                            && it["reason"] == "ClusterDeploymentsPendingCleanup"
                    })
                };
                of(world, "clusterpools").any(waits)
                    && clusters(world).any(is_ready)
                    && entries(world).any(|it| it.name_any() == "a")
                    && no_lease_of_nothing(world)
            },
        ),
        Phase::new(
            "the claim goes",
            |client, namespace| {
                Box::pin(async move {
                    let claims = api(&client, &namespace, "ClusterClaim");
                    claims.delete("mine", &DeleteParams::default()).await?;
                    Ok(())
                })
            },
            // The deleted entry waited for its cluster only.
            |world| is_clean(world) && entries(world).all(|it| it.name_any() == "other"),
        ),
    ]
}

/// An entry is edited, and its cluster is made anew.
pub(super) fn edit(standing: &Standing) -> Vec<Phase> {
    let standing = standing.clone();
    vec![Phase::new(
        "the entry of a cluster is edited",
        move |client, namespace| {
            let standing = standing.clone();
            Box::pin(async move {
                let scene = filled(&client, &namespace, "a", 1).await?;
                let patches = json!([
                    { "op": "replace", "path": "/metadata/name", "value": "edited" },
                ]);
                let spec = json!({ "spec": { "installConfigPatches": patches } });
                scene.patch("ClusterDeploymentCustomization", "a", spec).await;
                standing.add(namespace);
                Ok(())
            })
        },
        |world| {
            let edited = |it: &DynamicObject| {
                let name = it.annotations().get("ferrite.metal3.io/installed-name");
                name.is_some_and(|it| it == "edited")
            };
            is_one_of(world, "a") && clusters(world).all(edited)
        },
    )]
}

/// Another entry takes the place of a listed one: for a while there are clusters of both.
pub(super) fn removal(standing: &Standing) -> Vec<Phase> {
    let standing = standing.clone();
    vec![Phase::new(
        "another entry is listed in place of the one that is used",
        move |client, namespace| {
            let standing = standing.clone();
            Box::pin(async move {
                let scene = filled(&client, &namespace, "a", 1).await?;
                scene.list_entries(&namespace, &["other"]).await;
                standing.add(namespace);
                Ok(())
            })
        },
        |world| {
            let mut pools = of(world, "clusterpools");
            is_one_of(world, "other")
                && pools.all(|it| it.data["status"]["inventory"]["a"].is_null())
        },
    )]
}
