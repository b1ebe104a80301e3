//! bmo-reboot: one request at a time, a thousand at once, some beside many nodes that hang, and what a large installation costs it.

mod hung;
mod servers;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api_types::names::ferrite::{POWER, POWER_MANAGED};
use api_types::names::metal3::REBOOT;
use bench::bmo;
use bench::ironic::Ironic;
use bench::objects::{annotate, until};
use bench::proxy::{Proxy, Recorded};
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::apart::Apart;
use super::fleet::fleet;
use super::own_ironic::OwnIronic;
use super::row::CACHED_MEGABYTES;
use super::{Ground, PATIENCE, Trial, each, watch};

const HARD: Option<&str> = Some(r#"{"mode":"hard"}"#);
/// Requests made one after the other.
const ONE_BY_ONE: u32 = 100;

pub(super) async fn work(mut trial: Trial<'_>) -> anyhow::Result<()> {
    servers::rebooted(&mut trial).await?;
    let Trial { ground, program, mut figures } = trial;
    // A fake driver is nothing that the operator knows.
    if program.is_peer {
        return Ok(());
    }
    fleet(ground).await?;
    let own = program.ironic()?;
    // What is asked is how fast Ironic is told, not how fast it is on half a processor.
    let apart = Apart::begin(own.ironic.group())?;
    let crowd = Hosts::new(ground, &own.ironic, "crowd", ground.hosts / 10).await?;
    let bare = crowd.switched_bare().await?;
    each(0..crowd.nodes.len(), async |number| crowd.ask(number).await).await?;

    let (mark, since) = (ground.audit.mark().await?, Instant::now());
    let running = program.start().await?;
    let last = accepted(&own.proxy, since, &crowd.nodes).await?;
    let first = own.proxy.first(|it| it.at >= since && it.target().is_some());
    let accepted = last - first.context("Ironic was not called")?.at;
    crowd.rebooted(crowd.nodes.len()).await?;
    drop(apart);
    let writes = program.changes(&ground.audit.since(mark).await?);
    let count = crowd.nodes.len() as f64;
    figures.limited(
        format!("times the time of {count} bare requests to Ironic, apart"),
        accepted.as_secs_f64() / bare.as_secs_f64(),
        1.1,
    )?;
    figures.limited("Kubernetes writes for a hard cycle", writes / count, 5.0)?;

    let (took, bare) = one_by_one(ground, own).await?;
    let answer = "ms from a hard request to Ironic's answer";
    let slowest = figures.percentiles(answer, took, Some(50.0))?;
    let alone = "ms that Ironic itself takes for a look and such a call, alone";
    let beyond = slowest - figures.percentiles(alone, bare, None)?;
    figures.limited(format!("{answer} beyond that, p99"), beyond, 15.0)?;
    figures.limited(
        "times the time of 20 hard requests, while 200 of 400 nodes hang",
        hung::slower(ground, &own.ironic, &own.proxy).await?,
        1.5,
    )?;
    let memory = format!("megabytes resident with {} hosts", ground.hosts);
    figures.limited(memory, running.resident_megabytes()?, CACHED_MEGABYTES)?;
    running.stop().await
}

fn is_accepted(request: &Recorded) -> bool {
    request.upstream.is_some_and(|it| it.is_success())
}

/// When Ironic had accepted a power call since then for the last of these nodes.
async fn accepted(proxy: &Proxy, since: Instant, nodes: &[String]) -> anyhow::Result<Instant> {
    let mut last = since;
    for node in nodes {
        last = last.max(answered(proxy, since, node, is_accepted).await?);
    }
    Ok(last)
}

/// The moment of the answer to the first power call for a node since then that is so.
async fn answered(
    proxy: &Proxy,
    since: Instant,
    node: &str,
    is_so: impl Fn(&Recorded) -> bool,
) -> anyhow::Result<Instant> {
    let path = format!("/v1/nodes/{node}/states/power");
    until(&format!("Ironic is asked for the power of {node}"), PATIENCE, async || {
        let found = proxy.first(|it| it.at >= since && it.path == path && is_so(it));
        Ok(found.and_then(|it| Some(it.at + it.took?)))
    })
    .await
}

/// From the request's place in the API server to Ironic's answer; and what the same call takes when
/// nobody but the bench makes it, at a node beside, each before the request that it is compared with.
async fn one_by_one(
    ground: &Ground,
    OwnIronic { ironic, proxy }: &OwnIronic,
) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let calm = Hosts::new(ground, ironic, "calm", ONE_BY_ONE).await?;
    let beside = nodes(ironic, &format!("{}-bare", calm.namespace), ONE_BY_ONE).await?;
    switch(ironic, &beside, "power on").await?;
    let (mut took, mut bare) = (Vec::new(), Vec::new());
    for (number, (node, beside)) in calm.nodes.iter().zip(&beside).enumerate() {
        let alone = Instant::now();
        ironic.node(beside).await?;
        let (status, body) = ironic.power(beside, "power off", None).await?;
        bare.push(alone.elapsed());
        ensure!(status.is_success(), "{status}: {body}");
        ironic.wait(beside, "off", |node| node["power_state"] == "power off").await?;
        calm.ask(number).await?;
        let began = Instant::now();
        let answered = answered(proxy, alone, node, |_| true).await?;
        took.push(answered.saturating_duration_since(began));
        // The next one finds an idle Ironic.
        calm.rebooted(number + 1).await?;
    }
    Ok((took, bare))
}

/// Provisioned hosts of one namespace that run and were handed to the controller, with nodes of Ironic's fake driver.
struct Hosts<'a> {
    ironic: &'a Ironic,
    namespace: String,
    api: Api<DynamicObject>,
    nodes: Vec<String>,
}

impl<'a> Hosts<'a> {
    async fn new(
        ground: &Ground,
        ironic: &'a Ironic,
        name: &str,
        count: u32,
    ) -> anyhow::Result<Self> {
        let namespace = ground.plane.namespace(name).await;
        let nodes = nodes(ironic, &namespace, count).await?;
        switch(ironic, &nodes, "power on").await?;
        let make = async |(number, node): (usize, &String)| {
            let image = json!({ "url": "http://images/one" });
            let spec = json!({ "online": true, "image": image });
            let provisioning = json!({ "ID": node, "state": "provisioned", "image": image });
            let host = bmo::host(&host(number), &json!({ POWER: POWER_MANAGED }), &spec);
            bmo::create(&ground.admin, &namespace, host, &bmo::well(true, &provisioning)).await
        };
        each(nodes.iter().enumerate(), make).await?;
        let api = bmo::api(&ground.admin, &namespace);
        Ok(Self { ironic, namespace, api, nodes })
    }

    /// What Ironic takes to be told to switch all of them off, as many at a time. They run again then.
    async fn switched_bare(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        call(self.ironic, &self.nodes, "power off").await?;
        let took = began.elapsed();
        settled(self.ironic, &self.nodes, "power off").await?;
        switch(self.ironic, &self.nodes, "power on").await?;
        Ok(took)
    }

    async fn ask(&self, number: usize) -> anyhow::Result<()> {
        annotate(&self.api, &host(number), REBOOT, HARD).await
    }

    /// So many of them have been through.
    async fn rebooted(&self, count: usize) -> anyhow::Result<()> {
        let mut hosts = watch::objects(self.api.clone(), watcher::Config::default());
        let is_through = |host: &DynamicObject| {
            host.data["status"]["provisioning"]["lastPoweredOn"].is_string() && runs(host)
        };
        watch::seen(&mut hosts, u32::try_from(count)?, "every host is through", is_through).await
    }
}

fn host(number: usize) -> String {
    format!("h-{number}")
}

/// It is on, and nobody asks for a reboot.
fn runs(host: &DynamicObject) -> bool {
    let mut asked = host.metadata.annotations.iter().flatten();
    host.data["status"]["poweredOn"] == true && asked.all(|(key, _)| key != REBOOT)
}

/// Nodes whose power Ironic's fake driver changes at once.
async fn nodes(ironic: &Ironic, prefix: &str, count: u32) -> anyhow::Result<Vec<String>> {
    let enroll = async |n: u32| ironic.enroll_fake(&format!("{prefix}-{n}")).await;
    stream::iter(0..count).map(enroll).buffer_unordered(8).try_collect().await
}

/// Brings nodes to a power state.
async fn switch(ironic: &Ironic, nodes: &[String], power: &str) -> anyhow::Result<()> {
    call(ironic, nodes, power).await?;
    settled(ironic, nodes, power).await
}

/// Asks Ironic itself, past the proxy, for as much at a time as a controller's client does.
async fn call(ironic: &Ironic, nodes: &[String], target: &str) -> anyhow::Result<()> {
    let switch = async |node: &String| {
        loop {
            let (status, body) = ironic.power(node, target, None).await?;
            if status.is_success() {
                return anyhow::Ok(());
            }
            ensure!(matches!(status.as_u16(), 409 | 503), "{status}: {body}");
        }
    };
    stream::iter(nodes).map(switch).buffer_unordered(::ironic::CALLS).try_collect().await
}

async fn settled(ironic: &Ironic, nodes: &[String], power: &str) -> anyhow::Result<()> {
    for node in nodes {
        let is_so =
            |node: &Value| node["power_state"] == power && node["target_power_state"].is_null();
        ironic.wait(node, power, is_so).await?;
    }
    Ok(())
}
