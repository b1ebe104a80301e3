//! Other courses through a stop at each write: a host that is lost, a Cluster that is paused in the middle, and a node that
//! is deleted instead of tainted.

use std::time::Duration;

use anyhow::{Context, ensure};
use bench::cluster_api::objects::CLUSTER;
use bench::sweep::Phase;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use remediation::settings::{Fencing, Policy};
use serde_json::json;

use super::ground::quick;
use super::rules::{host, request};
use super::scene::{CLUSTER_NAME, REMEDIATION, history, reboot, succeeded};
use super::sweeps::{at, has_let_go, is_free, is_given_back, nothing_left, remembers, swept};

/// The label that a node has of its administrator.
const RACK: &str = "rack";

/// A host that is held becomes somebody else's.
fn a_host_is_lost(sweep: &'static str) -> Vec<Phase> {
    let taken = Phase::new(
        "a host is taken away while it is held",
        move |client, namespace| {
            Box::pin(async move {
                let scene = at(client, &namespace, sweep).await;
                scene.prepare().await;
                scene.machine("m", "dead").await;
                scene.request("m", reboot(1, "60s")).await;
                scene.host_is("dead", "asked", |host| !history(host).is_empty()).await;
                let other = json!({"spec": {"consumerRef": {"name": "other", "uid": "x"}}});
                scene.patch_host("dead", other).await;
                Ok(())
            })
        },
        |world| {
            let refused = request(world, "m")
                .is_some_and(|it| succeeded(&it).1 == "HostNotClaimed" && has_let_go(&it));
            let tries = host(world, "dead").map(|it| history(&it).len());
            refused && is_free(world, "dead") && tries == Some(1)
        },
    );
    vec![taken, nothing_left(sweep, "m")]
}

/// A Cluster is paused while a node is awaited; its request is withdrawn meanwhile, and undone after that.
fn a_cluster_is_paused(sweep: &'static str) -> Vec<Phase> {
    let paused = Phase::new(
        "a Cluster is paused and the request withdrawn",
        move |client, namespace| {
            Box::pin(async move {
                let scene = at(client, &namespace, sweep).await;
                scene.prepare().await;
                scene.machine("m", "dead").await;
                scene.request("m", reboot(1, "60s")).await;
                // From here on the node is looked at, and nothing is written.
                scene
                    .until(REMEDIATION, "m", "recovering", |it| {
                        it.is_some_and(|it| it["status"]["step"] == "recover")
                    })
                    .await;
                scene.patch(CLUSTER, CLUSTER_NAME, json!({"spec": {"paused": true}})).await;
                scene.delete(REMEDIATION, "m").await;
                // A later one of no cluster: when that is answered, the other was seen as well.
                let later = REMEDIATION.object("later", &json!({"strategy": reboot(1, "60s")}));
                scene.create(REMEDIATION, later).await;
                scene.says("later", "MachineMissing").await;
                Ok(())
            })
        },
        |world| request(world, "m").is_some_and(|it| !has_let_go(&it)),
    );
    let resumed = Phase::new(
        "the pause ends",
        move |client, namespace| {
            Box::pin(async move {
                let scene = at(client, &namespace, sweep).await;
                scene.patch(CLUSTER, CLUSTER_NAME, json!({"spec": {"paused": false}})).await;
                Ok(())
            })
        },
        |world| {
            let gone = request(world, "m").is_none() && is_free(world, "dead");
            gone && remembers(world, "dead", &[(0, "Withdrawn")])
        },
    );
    vec![paused, resumed, nothing_left(sweep, "m")]
}

/// A node is deleted while its host is off; its successor gets its labels.
fn a_node_is_deleted(sweep: &'static str) -> Vec<Phase> {
    let deleted = Phase::new(
        "a node is lost",
        move |client, namespace| {
            Box::pin(async move {
                let scene = at(client, &namespace, sweep).await;
                scene.prepare().await;
                scene.machine("m", "h").await;
                let nodes: Api<Node> = Api::all(scene.workload.clone());
                let rack = Patch::Merge(json!({"metadata": {"labels": {RACK: "7"}}}));
                nodes.patch(&scene.node_of("m"), &PatchParams::default(), &rack).await?;
                scene.request("m", reboot(1, "60s")).await;
                Ok(())
            })
        },
        |world| {
            let over = request(world, "m")
                .is_some_and(|it| succeeded(&it).1 == "Recovered" && has_let_go(&it));
            over && is_free(world, "h") && remembers(world, "h", &[(0, "Recovered")])
        },
    );
    let restored = Phase::new(
        "its successor is looked at",
        move |client, namespace| {
            Box::pin(async move {
                let scene = at(client, &namespace, sweep).await;
                is_given_back(&scene, "m").await?;
                let node = scene.node("m").await.context("there is no successor")?;
                let rack = node.labels().get(RACK).map(String::as_str);
                ensure!(rack == Some("7"), "the successor has {:?} only", node.labels());
                let fenced = history(&scene.get_host("h").await)[0]["fenced"].clone();
                ensure!(fenced == "the node is deleted", "{fenced}");
                Ok(())
            })
        },
        |_| true,
    );
    vec![deleted, restored]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_leaves_a_host_that_was_taken_away_to_its_new_owner() {
    let report = swept("lost", quick(), a_host_is_lost("lost"), false).await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_writes_nothing_during_a_pause_and_goes_on_after_it() {
    let report = swept("paused", quick(), a_cluster_is_paused("paused"), false).await;
    assert!(report.passed(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_write_gives_a_deleted_node_back_what_it_had() {
    // Nothing ends but by itself, however long a process takes to start anew.
    let fence = Duration::from_secs(60);
    let policy = Policy { fencing: Fencing::Delete, fence, ..quick() };
    let report = swept("deleted", policy, a_node_is_deleted("deleted"), false).await;
    assert!(report.passed(), "{report}");
}
