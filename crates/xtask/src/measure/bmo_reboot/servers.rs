//! Reboots of servers with Redfish BMCs: work that the bare metal operator does too. The BMCs tell when power went, so that
//! whoever switches it is measured by the same clock.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use bench::bmc::{Machine, Rack, Seen};
use bench::{bmo, ironic, load};
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::super::program::Running;
use super::super::{AT_ONCE, Figure, Ground, Program, account, fleet, rest};
use super::{HARD, PATIENCE, REQUEST};

/// Servers that are rebooted one after the other, and then all at once.
const ONE_BY_ONE: usize = 5;
const TOGETHER: usize = 40;
/// How long Ironic is watched while nobody asks for anything.
const QUIET: Duration = Duration::from_secs(30);
/// From one look at the hosts to the next.
const APART: Duration = Duration::from_millis(200);

/// Servers that run, of one namespace.
struct Servers<'a> {
    ground: &'a Ground,
    namespace: String,
    rack: Rack,
}

pub(super) async fn rebooted(
    ground: &Ground,
    program: &Program<'_>,
) -> anyhow::Result<Vec<Figure>> {
    let servers = Servers::new(ground, program).await?;
    let account = account(ground, program).await?;
    let running = Running::start(ground, program, &account).await?;
    servers.registered().await?;
    rest(ground, &account).await?;
    let proxy = ground.ironic.get().context("there is no Ironic")?;
    let asked = || proxy.count(|_| true);

    let before = asked();
    tokio::time::sleep(QUIET).await;
    let quiet = asked() - before;
    let mut took = Vec::new();
    for number in 0..ONE_BY_ONE {
        took.extend(servers.reboot(number..number + 1).await?.iter().map(|it| it.off));
    }
    took.sort_unstable();
    rest(ground, &account).await?;

    let (mark, before) = (ground.audit.mark().await?, asked());
    let all = servers.reboot(ONE_BY_ONE..ONE_BY_ONE + TOGETHER).await?;
    let requests = asked() - before;
    // What it writes when all is over belongs to it.
    rest(ground, &account).await?;
    let writes = ground.audit.since(mark).await?.writes(&account.user, &["leases", "events"]);
    let memory = running.resident_megabytes()?;
    running.stop().await?;
    let again = servers.switched_off_again().await?;
    ensure!(again == 0, "{again} servers were switched off more than once");
    servers.forgotten().await?;

    let figure = |what: String, value| Figure { what, value, at_most: None };
    let each = |count: f64| count / TOGETHER as f64;
    let longest =
        |of: fn(&Reboot) -> Duration| load::millis(all.iter().map(of).max().unwrap_or_default());
    let off = |percent| load::millis(load::quantile(&took, percent));
    let count = ONE_BY_ONE + TOGETHER;
    Ok(vec![
        figure(
            format!("requests to Ironic in {} s, {count} servers", QUIET.as_secs()),
            quiet as f64,
        ),
        figure("ms from a hard request to power off at the BMC, p50".to_owned(), off(50)),
        figure(format!("ms of it, longest of {ONE_BY_ONE}"), off(100)),
        figure(format!("ms until the last of {TOGETHER} servers was off"), longest(|it| it.off)),
        figure(
            format!("ms until the last of {TOGETHER} servers was through"),
            longest(|it| it.through),
        ),
        figure("Kubernetes writes for a server's hard cycle".to_owned(), each(writes as f64)),
        figure("requests to Ironic for a server's hard cycle".to_owned(), each(requests as f64)),
        figure(format!("megabytes resident with {count} servers"), memory),
    ])
}

/// How long it took from a request on.
struct Reboot {
    off: Duration,
    /// On again, and the host says so.
    through: Duration,
}

impl<'a> Servers<'a> {
    async fn new(ground: &'a Ground, program: &Program<'_>) -> anyhow::Result<Self> {
        let rack = Rack::start(ONE_BY_ONE + TOGETHER).await?;
        let servers = Self { ground, namespace: ground.plane.namespace("servers").await, rack };
        fleet::credentials(ground, &servers.namespace).await?;
        let make = async |(number, machine): (usize, &Machine)| {
            servers.make(number, machine, program.is_peer).await
        };
        stream::iter(servers.rack.machines.iter().enumerate())
            .map(make)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        Ok(servers)
    }

    /// A machine that runs already, which nobody need install. The operator registers its hosts itself.
    async fn make(&self, number: usize, machine: &Machine, registers: bool) -> anyhow::Result<()> {
        machine.press("On").await?;
        let name = name(number);
        let address = format!("redfish+{}{}", machine.address(), machine.system_path());
        let spec = json!({
            "online": true, "externallyProvisioned": true,
            "bootMACAddress": format!("52:54:00:00:00:{number:02x}"),
            "bmc": {
                "address": address, "credentialsName": fleet::CREDENTIALS,
                "disableCertificateVerification": true,
            },
        });
        let status = if registers {
            Value::Null
        } else {
            let ironic = ironic::shared().await;
            let node = ironic.enroll(&format!("{}-{number}", self.namespace), machine).await?;
            ironic.wait(&node, "on", |node| node["power_state"] == "power on").await?;
            json!({
                "poweredOn": true, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
                "provisioningFailCount": 0,
                "provisioning": { "ID": node, "state": "externally provisioned" },
            })
        };
        let labels = json!({ "ferrite.metal3.io/power": "managed" });
        fleet::host(self.ground, &self.namespace, &name, &labels, spec, status).await?;
        // The operator would inspect it, which nobody here plays.
        let patch = Patch::Merge(json!({ "metadata": { "annotations": {
            "inspect.metal3.io": "disabled",
        } } }));
        let api = bmo::api(&self.ground.admin, &self.namespace);
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Every host has its node, and says that it runs.
    async fn registered(&self) -> anyhow::Result<()> {
        let says = |host: &DynamicObject| {
            host.data["status"]["provisioning"]["state"] == "externally provisioned"
                && host.data["status"]["poweredOn"] == true
        };
        self.all(0..self.rack.machines.len(), says, |_| true).await.map(drop)
    }

    /// Asks for these, and waits until they run again.
    async fn reboot(&self, numbers: Range<usize>) -> anyhow::Result<Vec<Reboot>> {
        let api = bmo::api(&self.ground.admin, &self.namespace);
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { REQUEST: HARD } } }));
        let ask = async |number: usize| {
            api.patch(&name(number), &PatchParams::default(), &patch).await?;
            anyhow::Ok((number, (Instant::now(), SystemTime::now())))
        };
        let asked: BTreeMap<usize, (Instant, SystemTime)> =
            stream::iter(numbers.clone()).map(ask).buffer_unordered(AT_ONCE).try_collect().await?;
        let says = |host: &DynamicObject| {
            !host.annotations().contains_key(REQUEST) && host.data["status"]["poweredOn"] == true
        };
        let is_on_again = |seen: &Seen| seen.turned_off() > 0 && seen.state == "On";
        let all = self.all(numbers, says, is_on_again).await?;
        let took = all.into_iter().map(|(number, (through, seen))| {
            let (began, clock) = asked[&number];
            let mut offs = seen.history.iter().filter(|it| it.state.as_deref() == Some("Off"));
            let off = Duration::from_secs_f64(offs.next().context("it was never off")?.at);
            Ok(Reboot {
                off: off.saturating_sub(clock.duration_since(UNIX_EPOCH)?),
                through: through.saturating_duration_since(began),
            })
        });
        took.collect()
    }

    /// Waits until each of these hosts says so and its BMC agrees; the moment of that, and what the BMC tells.
    async fn all(
        &self,
        numbers: Range<usize>,
        says: impl Fn(&DynamicObject) -> bool,
        agrees: impl Fn(&Seen) -> bool,
    ) -> anyhow::Result<BTreeMap<usize, (Instant, Seen)>> {
        let api = bmo::api(&self.ground.admin, &self.namespace);
        let began = Instant::now();
        let mut done = BTreeMap::new();
        loop {
            let hosts = api.list(&ListParams::default()).await?.items;
            for number in numbers.clone().filter(|it| !done.contains_key(it)).collect::<Vec<_>>() {
                let host = hosts.iter().find(|it| it.name_any() == name(number));
                if host.is_some_and(&says) {
                    let seen = self.rack.machines[number].seen().await?;
                    if agrees(&seen) {
                        done.insert(number, (Instant::now(), seen));
                    }
                }
            }
            if done.len() == numbers.len() {
                return Ok(done);
            }
            ensure!(began.elapsed() < PATIENCE, "{} of {} servers", done.len(), numbers.len());
            tokio::time::sleep(APART).await;
        }
    }

    /// How many lost their power twice for one request.
    async fn switched_off_again(&self) -> anyhow::Result<usize> {
        let mut again = 0;
        for machine in &self.rack.machines {
            again += usize::from(machine.seen().await?.turned_off() > 1);
        }
        Ok(again)
    }

    /// Nothing of them is left: the servers of the program after this have the same names and addresses.
    async fn forgotten(&self) -> anyhow::Result<()> {
        let ironic = ironic::shared().await;
        let api = bmo::api(&self.ground.admin, &self.namespace);
        for host in api.list(&ListParams::default()).await?.items {
            let node = host.data["status"]["provisioning"]["ID"].as_str();
            ironic.forget(node.context("a host has no node")?).await?;
            // Nobody is there any more who would take it away: a host without a node is work.
            let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            api.patch(&host.name_any(), &PatchParams::default(), &free).await?;
            api.delete(&host.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("server-{number}")
}
