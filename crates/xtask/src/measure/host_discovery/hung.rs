//! Machines that are switched on together, while the inventories of a fifth of them hang.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api_types::metal3::BareMetalHost;
use bench::agent::Agent;
use bench::proxy::Fault;
use futures_util::TryStreamExt;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;

use super::{FIRST, Machines, NODE_ID, PATIENCE, hosts};
use crate::measure::Ground;

const TOGETHER: u32 = 200;
/// Every so many of them hangs.
const EACH: u32 = 5;
const HANGS: Duration = Duration::from_secs(60);

/// How many times as long the healthy take to become hosts while the others hang. `node` is the one that all are like.
pub(super) async fn slower(
    ground: &Ground,
    machines: &Machines,
    node: &str,
    site: &str,
) -> anyhow::Result<f64> {
    let without = round(ground, machines, (node, 2), site, false).await?;
    let with = round(ground, machines, (node, 3), site, true).await?;
    let healthy = TOGETHER - TOGETHER / EACH;
    println!("{healthy} machines: {without:?}, while {} more hang: {with:?}", TOGETHER / EACH);
    Ok(with.as_secs_f64() / without.as_secs_f64())
}

/// From the first question for one of their inventories to the last host of those that do not hang.
async fn round(
    ground: &Ground,
    machines: &Machines,
    (node, series): (&str, u32),
    site: &str,
    hang: bool,
) -> anyhow::Result<Duration> {
    let name = |number: u32| format!("00000000-0000-0000-000{series}-{number:012}");
    let sick: BTreeSet<String> = (0..TOGETHER).step_by(EACH as usize).map(name).collect();
    let mut healthy: BTreeSet<String> = (0..TOGETHER).map(name).collect();
    healthy.retain(|node| !sick.contains(node));
    if hang {
        machines.proxy.fault(Fault::Delay(HANGS), usize::MAX, move |_, path| {
            path.contains("/inventory") && sick.iter().any(|node| path.contains(node.as_str()))
        });
    }
    let mut seen = pin!(hosts(ground, site));
    while !matches!(seen.try_next().await?, Some(watcher::Event::InitDone)) {}
    let first = Agent::new(FIRST);
    let agent = |number| Agent::new(FIRST + series * 10_000 + number);
    let all: Vec<_> = (0..TOGETHER).map(|number| (name(number), agent(number))).collect();
    let began = Instant::now();
    machines.ironic.multiply(node, &first, &all).await?;
    let rest = async {
        while !healthy.is_empty() {
            let change = seen.try_next().await?.context("the watch on the hosts ended")?;
            if let watcher::Event::Apply(host) | watcher::Event::InitApply(host) = change {
                let host: PartialObjectMeta<BareMetalHost> = host;
                healthy.retain(|node| host.annotations().get(NODE_ID) != Some(node));
            }
        }
        anyhow::Ok(Instant::now())
    };
    let last = tokio::time::timeout(PATIENCE, rest).await.context("they become no hosts")??;
    machines.proxy.heal();
    let of_theirs = format!("/v1/nodes/00000000-0000-0000-000{series}-");
    let asked = |it: &bench::proxy::Recorded| it.at >= began && it.path.starts_with(&of_theirs);
    let first = machines.proxy.first(asked).context("nobody asked for them")?;
    ensure!(first.at < last, "they were hosts before they were read");
    Ok(last - first.at)
}
