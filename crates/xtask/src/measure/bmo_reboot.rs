//! bmo-reboot: one request at a time, a thousand at once, some beside many nodes that hang, and what a large installation costs it.

mod hung;
mod servers;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bench::proxy::Proxy;
use bench::{bmo, crds, ironic, load};
use controller_kit::crd;
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::apart::Apart;
use super::fleet::{self, fleet};
use super::program::Running;
use super::{AT_ONCE, Environment, Figure, Ground, Limits, Program, Work, account};

/// Ironic with its database is slower than the API server, so there is no share of that to reach.
pub(super) const WORK: Work = Work {
    controller: "bmo-reboot",
    build: &["--package=bmo-reboot", "--bin=bmo-reboot"],
    program: "bmo-reboot",
    chart: Some("bmo-reboot"),
    values: r#"{"ironic": {"endpoint": "http://ironic:6385"}}"#,
    neighbours: |ground| Box::pin(neighbours(ground)),
    limits: Limits { megabytes: 15.0, ready_ms: 300.0, resident_megabytes: 15.0, share: 0.0 },
    operation: None,
    further: Some(|ground, program| Box::pin(further(ground, program))),
};

const REQUEST: &str = "reboot.metal3.io";
const HARD: &str = r#"{"mode":"hard"}"#;
/// Requests made one after the other.
const ONE_BY_ONE: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(1800);

async fn neighbours(ground: &Ground) -> anyhow::Result<Environment> {
    crds::install(&ground.admin, &[crds::Group::Metal3]).await?;
    let fields = bmo_reboot::settings::needed();
    crd::extend(&ground.admin, &fields, false).await.map_err(anyhow::Error::msg)?;
    let start = || async { Proxy::start(ironic::shared().await).await };
    let proxy = ground.ironic.get_or_try_init(start).await?;
    Ok(vec![("IRONIC_ENDPOINT", proxy.endpoint.clone())])
}

async fn further(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Vec<Figure>> {
    let mut figures = servers::rebooted(ground, program).await?;
    // A fake driver is nothing that the operator knows.
    if program.is_peer {
        return Ok(figures);
    }
    fleet(ground).await?;
    let account = account(ground, program).await?;
    // What is asked is how fast Ironic is told, not how fast it is on half a processor.
    let apart = Apart::begin(ironic::shared().await.group())?;
    let crowd = crowd(ground, ground.hosts / 10).await?;

    let (mark, since) = (ground.audit.mark().await?, Instant::now());
    let running = Running::start(ground, program, &account).await?;
    let accepted = crowd.accepted(ground, since).await?;
    crowd.rebooted(ground).await?;
    drop(apart);
    let counts = ground.audit.since(mark).await?;
    let writes = counts.writes(&account.user, &["leases", "events"]) as f64;
    let (took, bare) = one_by_one(ground).await?;
    let latency = |percent| load::millis(load::quantile(&took, percent));
    let beside = |percent| Figure {
        what: format!("ms that Ironic itself takes for a look and such a call, alone, p{percent}"),
        value: load::millis(load::quantile(&bare, percent)),
        at_most: None,
    };
    let hung = hung::slower(ground).await?;
    let memory = running.resident_megabytes()?;
    running.stop().await?;

    let figure = |what: String, value, limit| Figure { what, value, at_most: Some(limit) };
    figures.extend([
        figure(
            format!("times the time of {} bare requests to Ironic, apart", crowd.nodes.len()),
            accepted.as_secs_f64() / crowd.bare.as_secs_f64(),
            1.1,
        ),
        figure(
            "Kubernetes writes for a hard cycle".to_owned(),
            writes / crowd.nodes.len() as f64,
            5.0,
        ),
        Figure {
            what: "ms from a hard request to Ironic's answer, p50".to_owned(),
            value: latency(50),
            at_most: None,
        },
        figure("ms from a hard request to Ironic's answer, p99".to_owned(), latency(99), 50.0),
        beside(50),
        beside(99),
        figure(
            "ms from a hard request to Ironic's answer beyond that, p99".to_owned(),
            latency(99) - load::millis(load::quantile(&bare, 99)),
            15.0,
        ),
        figure(
            "times the time of 20 hard requests, while 200 of 400 nodes hang".to_owned(),
            hung,
            1.5,
        ),
        figure(format!("megabytes resident with {} hosts", ground.hosts), memory, 64.0),
    ]);
    Ok(figures)
}

/// Hosts of one namespace that are all asked to reboot before anybody is there to do it.
struct Crowd {
    namespace: String,
    nodes: Vec<String>,
    /// What Ironic took to be told the same of all of them, as many at a time.
    bare: Duration,
}

async fn crowd(ground: &Ground, count: u32) -> anyhow::Result<Crowd> {
    let namespace = ground.plane.namespace("crowd").await;
    let nodes = nodes(&namespace, count).await?;
    switch(&nodes, "power on").await?;
    settled(&nodes, "power on").await?;
    let began = Instant::now();
    switch(&nodes, "power off").await?;
    let bare = began.elapsed();
    settled(&nodes, "power off").await?;
    switch(&nodes, "power on").await?;
    settled(&nodes, "power on").await?;
    let annotated = json!({ REQUEST: HARD });
    let make = async |(number, node): (usize, &String)| {
        running_host(ground, &namespace, &format!("h-{number}"), node, &annotated).await
    };
    stream::iter(nodes.iter().enumerate())
        .map(make)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok(Crowd { namespace, nodes, bare })
}

impl Crowd {
    /// From the first power call since then, all of which are for them, to Ironic's acceptance of the last one.
    async fn accepted(&self, ground: &Ground, since: Instant) -> anyhow::Result<Duration> {
        let proxy = ground.ironic.get().context("there is no Ironic")?;
        let began = Instant::now();
        loop {
            let requests = proxy.requests();
            let offs = requests.iter().filter(|request| {
                request.at >= since && request.target().as_deref() == Some("power off")
            });
            let first = offs.clone().map(|request| request.at).min();
            let taken = offs.filter(|request| request.upstream.is_some_and(|it| it.is_success()));
            let ends: Vec<Instant> =
                taken.filter_map(|request| Some(request.at + request.took?)).collect();
            if ends.len() >= self.nodes.len()
                && let (Some(first), Some(last)) = (first, ends.iter().max())
            {
                return Ok(*last - first);
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{} of {} were accepted",
                ends.len(),
                self.nodes.len()
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// All of them are through.
    async fn rebooted(&self, ground: &Ground) -> anyhow::Result<()> {
        let api = bmo::api(&ground.admin, &self.namespace);
        let began = Instant::now();
        loop {
            let hosts = api.list(&ListParams::default()).await?;
            let through = hosts.iter().filter(|host| {
                host.data["status"]["poweredOn"] == true
                    && host.data["status"]["provisioning"]["lastPoweredOn"].is_string()
                    && !host.metadata.annotations.iter().flatten().any(|(key, _)| key == REQUEST)
            });
            let through = through.count();
            if through == self.nodes.len() {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{through} of {} are through", self.nodes.len());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// From the request's place in the API server to Ironic's answer, the fastest first; and what the same call takes when
/// nobody but the bench makes it, at a node beside, each before the request that it is compared with.
async fn one_by_one(ground: &Ground) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
    let proxy = ground.ironic.get().context("there is no Ironic")?;
    let ironic = ironic::shared().await;
    let namespace = ground.plane.namespace("calm").await;
    let nodes = nodes(&namespace, ONE_BY_ONE).await?;
    switch(&nodes, "power on").await?;
    settled(&nodes, "power on").await?;
    for (number, node) in nodes.iter().enumerate() {
        running_host(ground, &namespace, &format!("h-{number}"), node, &json!({})).await?;
    }
    let beside = self::nodes(&format!("{namespace}-bare"), ONE_BY_ONE).await?;
    switch(&beside, "power on").await?;
    settled(&beside, "power on").await?;
    let api = bmo::api(&ground.admin, &namespace);
    let (mut took, mut bare) = (Vec::new(), Vec::new());
    for (number, node) in nodes.iter().enumerate() {
        let alone = Instant::now();
        ironic.node(&beside[number]).await?;
        let (status, body) = ironic.power(&beside[number], "power off", None).await?;
        bare.push(alone.elapsed());
        ensure!(status.is_success(), "{status}: {body}");
        let is_off = |node: &Value| node["power_state"] == "power off";
        ironic.wait(&beside[number], "off", is_off).await?;
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { REQUEST: HARD } } }));
        api.patch(&format!("h-{number}"), &PatchParams::default(), &patch).await?;
        let began = Instant::now();
        let url = format!("/v1/nodes/{node}/states/power");
        let answered = loop {
            if let Some(request) = proxy.first(|it| it.path == url)
                && let Some(took) = request.took
            {
                break request.at + took;
            }
            ensure!(began.elapsed() < PATIENCE, "nothing was asked of Ironic for h-{number}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        took.push(answered.saturating_duration_since(began));
        // The next one finds an idle Ironic.
        loop {
            let host = api.get(&format!("h-{number}")).await?;
            if host.data["status"]["provisioning"]["lastPoweredOn"].is_string()
                && host.data["status"]["poweredOn"] == true
            {
                break;
            }
            ensure!(began.elapsed() < PATIENCE, "h-{number} does not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    took.sort_unstable();
    bare.sort_unstable();
    Ok((took, bare))
}

/// Nodes whose power Ironic's fake driver changes at once.
async fn nodes(prefix: &str, count: u32) -> anyhow::Result<Vec<String>> {
    let ironic = ironic::shared().await;
    let enroll = async |n: u32| ironic.enroll_fake(&format!("{prefix}-{n}")).await;
    stream::iter(0..count).map(enroll).buffer_unordered(8).try_collect().await
}

/// Asks Ironic itself, past the proxy, for as much at a time as a controller's client does.
async fn switch(nodes: &[String], target: &str) -> anyhow::Result<()> {
    let ironic = ironic::shared().await;
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

async fn settled(nodes: &[String], power: &str) -> anyhow::Result<()> {
    let ironic = ironic::shared().await;
    for node in nodes {
        let is_so =
            |node: &Value| node["power_state"] == power && node["target_power_state"].is_null();
        ironic.wait(node, power, is_so).await?;
    }
    Ok(())
}

/// A provisioned host that runs and was handed to the controller.
async fn running_host(
    ground: &Ground,
    namespace: &str,
    name: &str,
    node: &str,
    annotations: &Value,
) -> anyhow::Result<()> {
    let image = json!({ "url": "http://images/one" });
    let spec = json!({ "online": true, "image": image });
    let status = json!({
        "poweredOn": true, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
        "provisioningFailCount": 0,
        "provisioning": { "ID": node, "state": "provisioned", "image": image },
    });
    let labels = json!({ "ferrite.metal3.io/power": "managed" });
    fleet::host(ground, namespace, name, &labels, spec, status).await?;
    if annotations.as_object().is_some_and(|it| !it.is_empty()) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        let api = bmo::api(&ground.admin, namespace);
        api.patch(name, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}
