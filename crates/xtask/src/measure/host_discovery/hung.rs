//! Machines that are switched on together, while the inventories of a fifth of them hang.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::agent::Agent;
use bench::proxy::{Fault, Recorded};

use super::{FIRST, OwnIronic, hosts, is_of, watch};
use crate::measure::Ground;

const TOGETHER: u32 = 200;
/// Every so many of them hangs.
const EACH: u32 = 5;
const HANGS: Duration = Duration::from_secs(60);

/// How many times as long the healthy take to become hosts while the others hang. `node` is the one that all are like.
pub(super) async fn slower(
    ground: &Ground,
    own: &OwnIronic,
    node: &str,
    site: &str,
) -> anyhow::Result<f64> {
    let without = round(ground, own, (node, 2), site, false).await?;
    let with = round(ground, own, (node, 3), site, true).await?;
    let healthy = TOGETHER - TOGETHER / EACH;
    println!("{healthy} machines: {without:?}, while {} more hang: {with:?}", TOGETHER / EACH);
    Ok(with.as_secs_f64() / without.as_secs_f64())
}

/// From the first question for one of their inventories to the last host of those that do not hang.
async fn round(
    ground: &Ground,
    own: &OwnIronic,
    (node, series): (&str, u32),
    site: &str,
    hang: bool,
) -> anyhow::Result<Duration> {
    let name = |number: u32| format!("00000000-0000-0000-000{series}-{number:012}");
    let (sick, healthy): (Vec<u32>, Vec<u32>) =
        (0..TOGETHER).partition(|it| it.is_multiple_of(EACH));
    let healthy: Vec<String> = healthy.into_iter().map(name).collect();
    if hang {
        let sick: Vec<String> = sick.into_iter().map(name).collect();
        own.proxy.fault(Fault::Delay(HANGS), usize::MAX, move |_, path| {
            path.contains("/inventory") && sick.iter().any(|node| path.contains(node.as_str()))
        });
    }
    let mut seen = hosts(ground, site).await?;
    let agent = |number| Agent::new(FIRST + series * 10_000 + number);
    let all: Vec<_> = (0..TOGETHER).map(|number| (name(number), agent(number))).collect();
    let began = Instant::now();
    own.ironic.multiply(node, &Agent::new(FIRST), &all).await?;
    let count = u32::try_from(healthy.len())?;
    let is_healthy = |host: &_| healthy.iter().any(|node| is_of(host, node));
    watch::seen(&mut seen, count, "the healthy machines become hosts", is_healthy).await?;
    let last = Instant::now();
    own.proxy.heal();
    let of_theirs = format!("/v1/nodes/00000000-0000-0000-000{series}-");
    let is_theirs = |it: &Recorded| it.at >= began && it.path.starts_with(&of_theirs);
    let first = own.proxy.first(is_theirs).context("nobody asked for them")?;
    ensure!(first.at < last, "they were hosts before they were read");
    Ok(last - first.at)
}
