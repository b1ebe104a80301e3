//! Hard requests for healthy hosts while half of all nodes hang.

use std::time::{Duration, Instant};

use bench::ironic::Ironic;
use bench::objects::until;
use bench::proxy::{Fault, Proxy};

use super::{Hosts, accepted, host, runs};
use crate::measure::{Ground, PATIENCE, each};

const HALF: usize = 200;
const HEALTHY: usize = 20;
const HANGS: Duration = Duration::from_secs(60);
const ROUNDS: usize = 3;
/// How long those that hang were asked for before the healthy are.
const HEAD_START: Duration = Duration::from_secs(10);

/// How many times as long the requests of the healthy take while the others hang.
pub(super) async fn slower(ground: &Ground, ironic: &Ironic, proxy: &Proxy) -> anyhow::Result<f64> {
    let hosts = Hosts::new(ground, ironic, "hung", 2 * u32::try_from(HALF)?).await?;
    let without = slowest(&hosts, proxy).await?;
    let hung = hosts.nodes[HALF..].to_vec();
    proxy.fault(Fault::Delay(HANGS), usize::MAX, move |_, path| {
        hung.iter().any(|node| path.contains(node.as_str()))
    });
    each(HALF..hosts.nodes.len(), async |number| hosts.ask(number).await).await?;
    tokio::time::sleep(HEAD_START).await;
    let with = slowest(&hosts, proxy).await?;
    proxy.heal();
    println!(
        "{HEALTHY} hard requests, the slowest of {ROUNDS} rounds: {without:?}, while half of the nodes hang: {with:?}"
    );
    Ok(with.as_secs_f64() / without.as_secs_f64())
}

/// Of some rounds: the first one comes while those that hang are being found out, which a middle one would hide.
async fn slowest(hosts: &Hosts<'_>, proxy: &Proxy) -> anyhow::Result<Duration> {
    let mut took = Duration::ZERO;
    for _ in 0..ROUNDS {
        took = took.max(round(hosts, proxy).await?);
    }
    Ok(took)
}

/// From the first request to Ironic's acceptance of the last one; returns when all have been through, and Ironic has let go of
/// them: it refuses what comes in the moment after a change.
async fn round(hosts: &Hosts<'_>, proxy: &Proxy) -> anyhow::Result<Duration> {
    let began = Instant::now();
    each(0..HEALTHY, async |number| hosts.ask(number).await).await?;
    let healthy = &hosts.nodes[..HEALTHY];
    let last = accepted(proxy, began, healthy).await?;
    for (number, node) in healthy.iter().enumerate() {
        let name = host(number);
        until(&format!("{name} comes back"), PATIENCE, async || {
            Ok(runs(&hosts.api.get(&name).await?).then_some(()))
        })
        .await?;
        hosts.ironic.wait(node, "free", |it| it["reservation"].is_null()).await?;
    }
    Ok(last - began)
}
