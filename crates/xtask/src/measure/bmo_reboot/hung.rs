//! Hard requests for healthy hosts while half of all nodes hang.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::proxy::{Fault, Proxy};
use bench::{bmo, ironic, load};
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;

use super::{HARD, PATIENCE, REQUEST, nodes, running_host, settled, switch};
use crate::measure::{AT_ONCE, Ground};

const HALF: u32 = 200;
const HEALTHY: usize = 20;
const HANGS: Duration = Duration::from_secs(60);
const ROUNDS: usize = 3;

/// How many times as long the requests of the healthy take while the others hang.
pub(super) async fn slower(ground: &Ground) -> anyhow::Result<f64> {
    let proxy = ground.ironic.get().context("there is no Ironic")?;
    let namespace = ground.plane.namespace("hung").await;
    let nodes = nodes(&namespace, 2 * HALF).await?;
    switch(&nodes, "power on").await?;
    settled(&nodes, "power on").await?;
    let make = async |(number, node): (usize, &String)| {
        running_host(ground, &namespace, &format!("h-{number}"), node, &json!({})).await
    };
    stream::iter(nodes.iter().enumerate())
        .map(make)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let (healthy, sick) = (&nodes[..HEALTHY], &nodes[HALF as usize..]);
    let api = bmo::api(&ground.admin, &namespace);
    let without = median(proxy, &api, healthy).await?;
    let hung = sick.to_vec();
    proxy.fault(Fault::Delay(HANGS), usize::MAX, move |_, path| {
        hung.iter().any(|node| path.contains(node.as_str()))
    });
    let all = HALF as usize..nodes.len();
    stream::iter(all)
        .map(|number| ask(&api, number))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    // By now each of them has hung for longer than anybody is patient.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let with = median(proxy, &api, healthy).await?;
    proxy.heal();
    println!("{HEALTHY} hard requests: {without:?}, while half of the nodes hang: {with:?}");
    Ok(with.as_secs_f64() / without.as_secs_f64())
}

async fn median(
    proxy: &Proxy,
    api: &Api<DynamicObject>,
    nodes: &[String],
) -> anyhow::Result<Duration> {
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        took.push(round(proxy, api, nodes).await?);
    }
    took.sort_unstable();
    Ok(load::quantile(&took, 50))
}

/// From the first request to Ironic's acceptance of the last one; returns when all have been through, and Ironic has let go of
/// them: it refuses what comes in the moment after a change.
async fn round(
    proxy: &Proxy,
    api: &Api<DynamicObject>,
    nodes: &[String],
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    stream::iter(0..nodes.len())
        .map(|number| ask(api, number))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let mut last = began;
    for node in nodes {
        let path = format!("/v1/nodes/{node}/states/power");
        let accepted = loop {
            let taken = proxy.first(|it| {
                it.at >= began && it.path == path && it.upstream.is_some_and(|it| it.is_success())
            });
            if let Some(request) = taken
                && let Some(took) = request.took
            {
                break request.at + took;
            }
            ensure!(began.elapsed() < PATIENCE, "nothing was asked of Ironic for {node}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        last = last.max(accepted);
    }
    for (number, node) in nodes.iter().enumerate() {
        loop {
            let host = api.get(&format!("h-{number}")).await?;
            let asked = host.metadata.annotations.iter().flatten().any(|(key, _)| key == REQUEST);
            if !asked && host.data["status"]["poweredOn"] == true {
                break;
            }
            ensure!(began.elapsed() < PATIENCE, "h-{number} does not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ironic::shared().await.wait(node, "free", |it| it["reservation"].is_null()).await?;
    }
    Ok(last - began)
}

async fn ask(api: &Api<DynamicObject>, number: usize) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { REQUEST: HARD } } }));
    api.patch(&format!("h-{number}"), &PatchParams::default(), &patch).await?;
    Ok(())
}
