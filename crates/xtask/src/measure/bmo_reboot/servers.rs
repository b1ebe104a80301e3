//! Reboots of servers with Redfish BMCs: work that the bare metal operator does too. The BMCs tell when power went, so that
//! whoever switches it is measured by the same clock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use api_types::names::ferrite::{POWER, POWER_MANAGED};
use api_types::names::metal3::REBOOT;
use bench::bmc::{Machine, Rack};
use bench::ironic::Ironic;
use bench::objects::{annotate, merge, until};
use bench::{bmo, load};
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::super::{AT_ONCE, PATIENCE, Program, Trial, each, fleet, watch};
use super::{HARD, runs};

/// Servers that are rebooted one after the other, and then all at once.
const ONE_BY_ONE: usize = 5;
const TOGETHER: usize = 40;

/// Servers that run, of one namespace.
struct Servers<'a> {
    program: &'a Program<'a>,
    ironic: &'a Ironic,
    namespace: String,
    api: Api<DynamicObject>,
    rack: Rack,
}

pub(super) async fn rebooted(trial: &mut Trial<'_>) -> anyhow::Result<()> {
    let Trial { ground, program, figures } = trial;
    let own = program.ironic()?;
    let servers = Servers::new(program).await?;
    let running = program.start().await?;
    servers.registered().await?;
    program.rest().await?;
    let asked = || own.proxy.count(|_| true);
    let count = ONE_BY_ONE + TOGETHER;

    let mut took = Vec::new();
    for number in 0..ONE_BY_ONE {
        took.extend(servers.reboot(number..number + 1).await?.iter().map(|it| it.off));
    }
    took.sort_unstable();
    let off = |percent| load::millis(load::quantile(&took, percent));
    figures.add("ms from a hard request to power off at the BMC, p50", off(50))?;
    figures.add(format!("ms of it, longest of {ONE_BY_ONE}"), off(100))?;
    program.rest().await?;

    let (mark, before) = (ground.audit.mark().await?, asked());
    let all = servers.reboot(ONE_BY_ONE..count).await?;
    let requests = asked() - before;
    // What it writes when all is over belongs to it.
    program.rest().await?;
    let writes = program.changes(&ground.audit.since(mark).await?);
    let memory = running.resident_megabytes()?;
    running.stop().await?;
    let longest =
        |of: fn(&Reboot) -> Duration| load::millis(all.iter().map(of).max().unwrap_or_default());
    let each = |count: f64| count / TOGETHER as f64;
    let (off, through) = (longest(|it| it.off), longest(|it| it.through));
    figures.add(format!("ms until the last of {TOGETHER} servers was off"), off)?;
    figures.add(format!("ms until the last of {TOGETHER} servers was through"), through)?;
    figures.add("Kubernetes writes for a server's hard cycle", each(writes))?;
    figures.add("requests to Ironic for a server's hard cycle", each(requests as f64))?;
    figures.add(format!("megabytes resident with {count} servers"), memory)?;
    servers.switched_off_once().await?;
    servers.forgotten().await
}

/// How long it took from a request on.
struct Reboot {
    off: Duration,
    /// On again, and the host says so.
    through: Duration,
}

impl<'a> Servers<'a> {
    async fn new(program: &'a Program<'a>) -> anyhow::Result<Self> {
        let ground = program.ground;
        let rack = Rack::start(ONE_BY_ONE + TOGETHER).await?;
        let namespace = ground.plane.namespace("servers").await;
        let api = bmo::api(&ground.admin, &namespace);
        let ironic = &program.ironic()?.ironic;
        let servers = Self { program, ironic, namespace, api, rack };
        fleet::credentials(ground, &servers.namespace).await?;
        let make = async |(number, machine)| servers.make(number, machine).await;
        each(servers.rack.machines.iter().enumerate(), make).await?;
        Ok(servers)
    }

    /// A machine that runs already, which nobody need install. The operator registers its hosts itself.
    async fn make(&self, number: usize, machine: &Machine) -> anyhow::Result<()> {
        machine.press("On").await?;
        let address = format!("redfish+{}", machine.url());
        let spec = json!({
            "online": true, "externallyProvisioned": true,
            "bootMACAddress": format!("52:54:00:00:00:{number:02x}"),
            "bmc": {
                "address": address, "credentialsName": bmo::CREDENTIALS,
                "disableCertificateVerification": true,
            },
        });
        let status = if self.program.is_peer {
            Value::Null
        } else {
            let name = format!("{}-{number}", self.namespace);
            let node = self.ironic.enroll(&name, machine).await?;
            self.ironic.wait(&node, "on", |node| node["power_state"] == "power on").await?;
            bmo::well(true, &json!({ "ID": node, "state": "externally provisioned" }))
        };
        let mut host = bmo::host(&name(number), &json!({ POWER: POWER_MANAGED }), &spec);
        // The operator would inspect it, which nobody here plays.
        host["metadata"]["annotations"] = json!({ "inspect.metal3.io": "disabled" });
        bmo::create(&self.program.ground.admin, &self.namespace, host, &status).await
    }

    /// Every host has its node, and says that it runs.
    async fn registered(&self) -> anyhow::Result<()> {
        let mut hosts = watch::objects(self.api.clone(), watcher::Config::default());
        let says = |host: &DynamicObject| {
            host.data["status"]["provisioning"]["state"] == "externally provisioned"
                && host.data["status"]["poweredOn"] == true
        };
        let count = u32::try_from(self.rack.machines.len())?;
        watch::seen(&mut hosts, count, "every server is registered", says).await
    }

    /// Asks for these, and waits until they run again: by what their hosts say, and by what their BMCs tell.
    async fn reboot(&self, numbers: Range<usize>) -> anyhow::Result<Vec<Reboot>> {
        let ask = async |number: usize| {
            annotate(&self.api, &name(number), REBOOT, HARD).await?;
            anyhow::Ok((number, (Instant::now(), SystemTime::now())))
        };
        let mut asked: BTreeMap<usize, (Instant, SystemTime)> =
            stream::iter(numbers).map(ask).buffer_unordered(AT_ONCE).try_collect().await?;
        let mut all = Vec::new();
        until("every server runs again", PATIENCE, async || {
            let hosts = self.api.list(&ListParams::default()).await?.items;
            let run: Vec<String> =
                hosts.iter().filter(|it| runs(it)).map(ResourceExt::name_any).collect();
            for (number, (began, clock)) in asked.clone() {
                if !run.contains(&name(number)) {
                    continue;
                }
                let seen = self.rack.machines[number].seen().await?;
                let off = seen.history.iter().find(|it| it.state.as_deref() == Some("Off"));
                if let Some(off) = off.filter(|_| seen.state == "On") {
                    let off = Duration::from_secs_f64(off.at);
                    let off = off.saturating_sub(clock.duration_since(UNIX_EPOCH)?);
                    all.push(Reboot { off, through: began.elapsed() });
                    asked.remove(&number);
                }
            }
            Ok(asked.is_empty().then_some(()))
        })
        .await?;
        Ok(all)
    }

    /// None has lost its power twice for one request.
    async fn switched_off_once(&self) -> anyhow::Result<()> {
        for (number, machine) in self.rack.machines.iter().enumerate() {
            let times = machine.seen().await?.turned_off();
            ensure!(times < 2, "{} was switched off {times} times", name(number));
        }
        Ok(())
    }

    /// Nothing of them is left: their BMCs end, and nodes without one are work for Ironic.
    async fn forgotten(&self) -> anyhow::Result<()> {
        for host in self.api.list(&ListParams::default()).await?.items {
            let node = host.data["status"]["provisioning"]["ID"].as_str();
            self.ironic.forget(node.context("a host has no node")?).await?;
            // Nobody is there any more who would take it away: a host without a node is work.
            let free = json!({ "metadata": { "finalizers": null } });
            merge(&self.api, &host.name_any(), &free).await?;
            self.api.delete(&host.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("server-{number}")
}
