//! remediation: one machine at a time, five hundred at once, and what a large installation costs it.

use std::time::{Duration, Instant};

use api_types::names::metal3::HOST;
use bench::cluster_api::objects::{CLUSTER, MACHINE, METAL3_MACHINE, metal3_machine};
use bench::objects::{
    REMEDIATION, annotate, make_machine, make_request, merge, merge_status, secret,
};
use bench::power::{NODE, Operator, PLAYED};
use bench::{bmo, kubelet, load};
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use serde_json::json;

use super::fleet::fleet;
use super::machines::{self, CLUSTER_NAME};
use super::row::CACHED_MEGABYTES;
use super::watch::Objects;
use super::{AT_ONCE, Ground, Program, Trial, each, watch};

/// Requests made one after the other.
const ONE_BY_ONE: u32 = 100;
/// Machines that fail at once, and how often that is measured.
const STORM: u32 = 500;
const STORMS: u32 = 5;
/// The annotation of a bare write.
const BARE: &str = "ferrite.test/bare";
/// Machines that are healed, for the writes that it takes.
const HEALED: u32 = 20;
/// As whom the workload cluster is asked.
const IN_WORKLOAD: &str = "in-workload";

pub(super) async fn work(mut trial: Trial<'_>) -> anyhow::Result<()> {
    // The others find a large installation then, and are not counted in its memory.
    large(&mut trial).await?;
    one_by_one(&mut trial).await?;
    storm(&mut trial).await?;
    healed(&mut trial).await
}

/// Machines of one cluster, each with a host that runs and a node that is silent.
struct Site<'a> {
    ground: &'a Ground,
    namespace: String,
}

impl<'a> Site<'a> {
    async fn new(ground: &'a Ground, name: &str, machines: u32) -> anyhow::Result<Self> {
        let site = Self { ground, namespace: ground.plane.namespace(name).await };
        machines::cluster(ground, &site.namespace).await?;
        // Nodes have no namespaces, and an API server more would change nothing.
        let text = ground.plane.kubeconfig_text(IN_WORKLOAD, &["system:masters"])?;
        let name = format!("{CLUSTER_NAME}-kubeconfig");
        secret(&ground.admin, &site.namespace, &name, &json!({ "value": text })).await?;
        each(0..machines, async |number| site.machine(number).await).await?;
        Ok(site)
    }

    fn node(&self, number: u32) -> String {
        format!("{}-{number}", self.namespace)
    }

    async fn machine(&self, number: u32) -> anyhow::Result<()> {
        let (client, name) = (&self.ground.admin, format!("m-{number}"));
        let host = format!("h-{number}");
        let mut object = metal3_machine(&name, CLUSTER_NAME);
        object["metadata"]["annotations"] = json!({ HOST: format!("{}/{host}", self.namespace) });
        let metal = make_machine(client, &self.namespace, object).await?;
        let node = json!({ "nodeRef": { "name": self.node(number) } });
        merge_status(&MACHINE.api(client, &self.namespace), &name, &node).await?;
        let image = json!({ "url": "http://i/i" });
        let spec = json!({
            "online": true, "image": image,
            "consumerRef": {
                "apiVersion": METAL3_MACHINE.api_version, "kind": METAL3_MACHINE.kind,
                "name": name, "namespace": self.namespace, "uid": metal.uid(),
            },
        });
        let provisioning = json!({ "state": "provisioned", "ID": "played", "image": image });
        let mut host = bmo::host(&host, &json!({ PLAYED: self.namespace }), &spec);
        host["metadata"]["annotations"] = json!({ NODE: self.node(number) });
        bmo::create(client, &self.namespace, host, &bmo::well(true, &provisioning)).await
    }

    /// What a health check makes.
    async fn request(&self, number: u32) -> anyhow::Result<()> {
        make_request(&self.ground.admin, &self.namespace, &format!("m-{number}")).await
    }

    async fn requests(&self, count: u32) -> anyhow::Result<()> {
        each(0..count, async |number| self.request(number).await).await
    }

    async fn pause(&self, paused: bool) -> anyhow::Result<()> {
        let api = CLUSTER.api(&self.ground.admin, &self.namespace);
        merge(&api, CLUSTER_NAME, &json!({ "spec": { "paused": paused } })).await
    }

    /// Hosts as they change, after the list with which a watch begins.
    async fn hosts(&self) -> anyhow::Result<Objects<DynamicObject>> {
        watch::from_now(bmo::api(&self.ground.admin, &self.namespace)).await
    }
}

fn is_held(host: &DynamicObject) -> bool {
    host.annotations().keys().any(|key| key.starts_with("reboot.metal3.io/"))
}

/// From a request's place in the API server to the key on its host.
async fn one_by_one(trial: &mut Trial<'_>) -> anyhow::Result<()> {
    let Trial { ground, program, figures } = trial;
    let site = Site::new(ground, "calm", ONE_BY_ONE).await?;
    let running = program.start().await?;
    let mut hosts = site.hosts().await?;
    // It takes its lease, and looks at everything once.
    program.rest().await?;
    let mut took = Vec::new();
    for number in 0..ONE_BY_ONE {
        let host = format!("h-{number}");
        site.request(number).await?;
        let made = Instant::now();
        let is_asked = |seen: &DynamicObject| seen.name_any() == host && is_held(seen);
        watch::next(&mut hosts, "a host is asked to be off", is_asked).await?;
        took.push(made.elapsed());
    }
    running.stop().await?;
    figures.percentiles("ms from a request to the key on its host", took, Some(50.0)).map(drop)
}

/// All at once: the requests are there and their cluster is paused, until it is not. That takes a second, in which a server
/// may have other things to do, so it is done five times, and of both sides the best counts; the slower one has to be in time.
async fn storm(trial: &mut Trial<'_>) -> anyhow::Result<()> {
    let Trial { ground, program, figures } = trial;
    let (mut bare, mut best, mut slowest) = (Duration::MAX, Duration::MAX, Duration::ZERO);
    let mut requests = 0.0_f64;
    for _ in 0..STORMS {
        let site = Site::new(ground, "storm", STORM).await?;
        site.pause(true).await?;
        site.requests(STORM).await?;
        bare = bare.min(bare_storm(&site, program).await?);
        let running = program.start().await?;
        let mut hosts = site.hosts().await?;
        // It has its lease, has looked at everything, and has told each that it is paused.
        program.rest().await?;
        let mark = ground.audit.mark().await?;
        let began = Instant::now();
        let held = watch::seen(&mut hosts, STORM, "every host is asked to be off", is_held);
        tokio::try_join!(site.pause(false), held)?;
        let took = began.elapsed();
        let counts = ground.audit.since(mark).await?;
        running.stop().await?;
        (best, slowest) = (best.min(took), slowest.max(took));
        let all = counts.requests(&program.account.user) + counts.requests(IN_WORKLOAD);
        requests = requests.max(all as f64 / f64::from(STORM));
    }
    let what = format!("ms until each of {STORM} hosts has its key");
    let share =
        format!("times the time of {STORM} bare PATCHes of the same hosts, {AT_ONCE} at a time");
    figures.limited(what, load::millis(slowest), 2_000.0)?;
    figures.limited(share, best.as_secs_f64() / bare.as_secs_f64(), 1.25)?;
    figures.add("requests for each of them until then", requests)
}

/// The same writes by somebody who need not think: under the controller's account, whose rights have to be looked up and who
/// has to connect anew, and over when somebody who watches has seen all of them.
async fn bare_storm(site: &Site<'_>, program: &Program<'_>) -> anyhow::Result<Duration> {
    let api = bmo::api(&program.client().await?, &site.namespace);
    let mut hosts = site.hosts().await?;
    let began = Instant::now();
    let bare = async |number: u32| {
        annotate(&api, &format!("h-{number}"), BARE, Some(&number.to_string())).await
    };
    let bare = each(0..STORM, bare);
    let is_bare = |host: &DynamicObject| host.annotations().contains_key(BARE);
    let shown = watch::seen(&mut hosts, STORM, "every host is written", is_bare);
    tokio::try_join!(bare, shown)?;
    Ok(began.elapsed())
}

/// What a recovery takes, the writes to the node among it.
async fn healed(trial: &mut Trial<'_>) -> anyhow::Result<()> {
    let Trial { ground, program, figures } = trial;
    let site = Site::new(ground, "healed", HEALED).await?;
    for number in 0..HEALED {
        kubelet::boot(&ground.admin, &site.node(number)).await?;
        kubelet::silence(&ground.admin, &site.node(number)).await?;
    }
    let running = program.start().await?;
    let operator = Operator::start(&ground.admin, &ground.admin, &site.namespace);
    // What those before it have left is not counted.
    program.rest().await?;
    let mark = ground.audit.mark().await?;
    site.requests(HEALED).await?;
    let requests = REMEDIATION.api(&ground.admin, &site.namespace);
    let mut requests = watch::objects(requests, watcher::Config::default());
    // Its machine is healthy again, and nothing is left to do.
    let is_done =
        |it: &DynamicObject| it.data["status"]["step"] == "done" && it.finalizers().is_empty();
    watch::seen(&mut requests, HEALED, "every machine is healthy again", is_done).await?;
    let counts = ground.audit.since(mark).await?;
    drop(operator);
    running.stop().await?;
    let in_workload = counts.writes(IN_WORKLOAD, &["leases", "events"]) as f64;
    let each = (program.changes(&counts) + in_workload) / f64::from(HEALED);
    figures.limited("writes for a recovery", each, 12.0)
}

async fn large(trial: &mut Trial<'_>) -> anyhow::Result<()> {
    let Trial { ground, program, figures } = trial;
    fleet(ground).await?;
    let machines = ground.hosts / 10;
    let _site = Site::new(ground, "large", machines).await?;
    let running = program.start().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let memory = running.resident_megabytes()?;
    running.stop().await?;
    let what = format!("megabytes resident with {} hosts and {machines} machines", ground.hosts);
    figures.limited(what, memory, CACHED_MEGABYTES)
}
