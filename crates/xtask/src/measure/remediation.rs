//! remediation: one machine at a time, five hundred at once, and what a large installation costs it.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bench::cluster_api::objects::{CLUSTER, Kind, MACHINE, METAL3_MACHINE, VERSION};
use bench::{bmo, cluster_api, crds, load};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::fleet::{self, fleet};
use super::program::{Account, Running};
use super::{AT_ONCE, Environment, Figure, Ground, Limits, Program, Work, account, rest, watch};

/// What it reaches is compared with bare requests among its own figures: most of its writes can wait, and do.
pub(super) const WORK: Work = Work {
    controller: "remediation",
    build: &["--package=remediation", "--bin=remediation"],
    program: "remediation",
    chart: Some("remediation"),
    values: "{}",
    neighbours: |ground| Box::pin(neighbours(ground)),
    limits: Limits { megabytes: 15.0, ready_ms: 300.0, resident_megabytes: 15.0, share: 0.0 },
    operation: None,
    further: Some(|ground, program| Box::pin(further(ground, program))),
};

const REMEDIATION: Kind =
    Kind { api_version: "remediation.metal3.io/v1alpha1", kind: "Metal3Remediation" };
/// What CAPM3 is asked by.
const THEIRS: Kind = Kind { kind: "Metal3Remediation", ..METAL3_MACHINE };
const CLUSTER_NAME: &str = "metal";
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
const PATIENCE: Duration = Duration::from_secs(600);

async fn neighbours(ground: &Ground) -> anyhow::Result<Environment> {
    let client = &ground.admin;
    crds::install(client, &[crds::Group::Metal3, crds::Group::Capm3]).await?;
    cluster_api::install_crds(client).await?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (_, crd) in api_types::own_crds().into_iter().filter(|it| it.0 == "remediation") {
        let name = crd.name_any();
        match api.create(&PostParams::default(), &crd).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made?),
        }
        await_condition(api.clone(), &name, conditions::is_crd_established()).await?;
    }
    Ok(Environment::new())
}

async fn further(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Vec<Figure>> {
    // The others find a large installation then, and are not counted in its memory.
    let memory = large(ground, program).await?;
    let mut figures = one_by_one(ground, program).await?;
    figures.extend(storm(ground, program).await?);
    figures.push(healed(ground, program).await?);
    figures.push(memory);
    Ok(figures)
}

fn figure(what: String, value: f64, at_most: Option<f64>) -> Figure {
    Figure { what, value, at_most }
}

/// Machines of one cluster, each with a host that runs and a node that is silent.
struct Site<'a> {
    ground: &'a Ground,
    namespace: String,
    /// By what its machines are reported.
    request: Kind,
}

impl<'a> Site<'a> {
    async fn new(
        ground: &'a Ground,
        program: &Program<'_>,
        name: &str,
        machines: u32,
    ) -> anyhow::Result<Self> {
        let request = if program.is_peer { THEIRS } else { REMEDIATION };
        let site = Self { ground, namespace: ground.plane.namespace(name).await, request };
        let object = cluster_api::objects::cluster(CLUSTER_NAME, "127.0.0.1", 6443, false);
        CLUSTER.create(&ground.admin, &site.namespace, object).await?;
        // Nodes have no namespaces, and an API server more would change nothing.
        let text = ground.plane.kubeconfig_text(IN_WORKLOAD, &["system:masters"])?;
        let secret = json!({
            "metadata": {"name": format!("{CLUSTER_NAME}-kubeconfig")},
            "stringData": {"value": text},
        });
        let secrets: Api<Secret> = Api::namespaced(ground.admin.clone(), &site.namespace);
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        stream::iter(0..machines)
            .map(|number| site.machine(number))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        Ok(site)
    }

    fn node(&self, number: u32) -> String {
        format!("{}-{number}", self.namespace)
    }

    async fn machine(&self, number: u32) -> anyhow::Result<()> {
        let (client, name) = (&self.ground.admin, format!("m-{number}"));
        let host = format!("h-{number}");
        let labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER_NAME});
        let spec = json!({
            "clusterName": CLUSTER_NAME,
            "version": VERSION,
            "bootstrap": {"dataSecretName": "boot"},
            "infrastructureRef": METAL3_MACHINE.reference(&name),
        });
        let mut object = MACHINE.object(&name, &spec);
        object["metadata"]["labels"] = labels.clone();
        let machine = MACHINE.create(client, &self.namespace, object).await?;
        let status = json!({"status": {"nodeRef": {"name": self.node(number)}}});
        let machines = MACHINE.api(client, &self.namespace);
        machines.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        let image = json!({
            "url": "http://i/i", "checksum": "http://i/c", "checksumType": "sha256", "diskFormat": "qcow2",
        });
        let mut object = METAL3_MACHINE.object(&name, &json!({ "image": image }));
        object["metadata"]["labels"] = labels;
        object["metadata"]["annotations"] =
            json!({"metal3.io/BareMetalHost": format!("{}/{host}", self.namespace)});
        object["metadata"]["ownerReferences"] = owner(&machine);
        let metal = METAL3_MACHINE.create(client, &self.namespace, object).await?;
        let spec = json!({
            "online": true, "image": {"url": "http://i/i"},
            "consumerRef": {
                "apiVersion": METAL3_MACHINE.api_version, "kind": METAL3_MACHINE.kind,
                "name": name, "namespace": self.namespace, "uid": metal.uid(),
            },
        });
        let status = json!({
            "poweredOn": true, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
            "provisioningFailCount": 0,
            "provisioning": {"state": "provisioned", "ID": "played", "image": {"url": "http://i/i"}},
        });
        fleet::host(self.ground, &self.namespace, &host, &json!({}), spec, status).await
    }

    /// What a health check makes.
    async fn request(&self, number: u32) -> anyhow::Result<()> {
        let (client, name) = (&self.ground.admin, format!("m-{number}"));
        let machine = MACHINE.api(client, &self.namespace).get(&name).await?;
        let strategy = if self.request == THEIRS {
            json!({"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 600})
        } else {
            json!({"type": "reboot", "retryLimit": 1, "timeout": "600s"})
        };
        let mut object = self.request.object(&name, &json!({ "strategy": strategy }));
        object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": CLUSTER_NAME});
        object["metadata"]["ownerReferences"] = owner(&machine);
        self.request.create(client, &self.namespace, object).await.map(drop)
    }

    /// Its machine is healthy again, and nothing is left to do.
    fn is_done(&self, request: &DynamicObject) -> bool {
        let ended = if self.request == THEIRS {
            request.data["status"]["phase"] == "Waiting"
        } else {
            request.data["status"]["step"] == "done"
        };
        ended && request.finalizers().is_empty()
    }

    async fn requests(&self, count: u32) -> anyhow::Result<()> {
        let all = stream::iter(0..count).map(|number| self.request(number));
        all.buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn pause(&self, paused: bool) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        let api = CLUSTER.api(&self.ground.admin, &self.namespace);
        api.patch(CLUSTER_NAME, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Hosts as they change, after the list with which a watch begins.
    async fn hosts(&self) -> anyhow::Result<BoxStream<'static, watcher::Result<DynamicObject>>> {
        let api = bmo::api(&self.ground.admin, &self.namespace);
        let mut hosts = watch::events(api, watcher::Config::default()).boxed();
        while !matches!(hosts.try_next().await?, Some(watcher::Event::InitDone)) {}
        Ok(hosts.applied_objects().boxed())
    }
}

fn owner(machine: &DynamicObject) -> Value {
    json!([{
        "apiVersion": MACHINE.api_version, "kind": MACHINE.kind, "name": machine.name_any(),
        "uid": machine.uid(),
    }])
}

/// Waits until the watch has shown each of the storm's hosts so.
async fn all_shown(
    hosts: &mut BoxStream<'static, watcher::Result<DynamicObject>>,
    is_so: impl Fn(&DynamicObject) -> bool,
) -> anyhow::Result<()> {
    let mut names = BTreeSet::new();
    while names.len() < STORM as usize {
        let host = hosts.try_next().await?.context("the watch on the hosts ended")?;
        if is_so(&host) {
            names.insert(host.name_any());
        }
    }
    Ok(())
}

fn is_held(host: &DynamicObject) -> bool {
    host.annotations().keys().any(|key| key.starts_with("reboot.metal3.io/"))
}

async fn within<T>(
    what: &str,
    waiting: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("never: {what}"))?
}

/// From a request's place in the API server to the key on its host.
async fn one_by_one(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Vec<Figure>> {
    let site = Site::new(ground, program, "calm", ONE_BY_ONE).await?;
    let account = account(ground, program).await?;
    let running = Running::start(ground, program, &account).await?;
    let mut hosts = site.hosts().await?;
    // It takes its lease, and looks at everything once.
    rest(ground, &account).await?;
    let mut took = Vec::new();
    for number in 0..ONE_BY_ONE {
        let host = format!("h-{number}");
        site.request(number).await?;
        let made = Instant::now();
        let asked = async {
            while let Some(seen) = hosts.try_next().await? {
                if seen.name_any() == host && is_held(&seen) {
                    return anyhow::Ok(());
                }
            }
            bail!("the watch on the hosts ended")
        };
        within("a host is asked to be off", asked).await?;
        took.push(made.elapsed());
    }
    running.stop().await?;
    took.sort_unstable();
    let latency = |percent| load::millis(load::quantile(&took, percent));
    let what = |percent: u32| format!("ms from a request to the key on its host, p{percent}");
    Ok(vec![figure(what(50), latency(50), None), figure(what(99), latency(99), Some(50.0))])
}

/// All at once: the requests are there and their cluster is paused, until it is not. That takes a second, in which a server
/// may have other things to do, so it is done five times, and of both sides the best counts; the slower one has to be in time.
/// A peer that does not heed the pause of a cluster gets them as fast as they can be made.
async fn storm(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Vec<Figure>> {
    let (mut bare, mut best, mut slowest) = (Duration::MAX, Duration::MAX, Duration::ZERO);
    let mut requests = 0.0_f64;
    for _ in 0..STORMS {
        let account = account(ground, program).await?;
        let site = Site::new(ground, program, "storm", STORM).await?;
        if !program.is_peer {
            site.pause(true).await?;
            site.requests(STORM).await?;
        }
        bare = bare.min(bare_storm(&site, &account).await?);
        let running = Running::start(ground, program, &account).await?;
        let mut hosts = site.hosts().await?;
        // It has its lease, has looked at everything, and has told each that it is paused.
        rest(ground, &account).await?;
        let mark = ground.audit.mark().await?;
        let began = Instant::now();
        let asked = async {
            if program.is_peer { site.requests(STORM).await } else { site.pause(false).await }
        };
        let held = within("every host is asked to be off", all_shown(&mut hosts, is_held));
        tokio::try_join!(asked, held)?;
        let took = began.elapsed();
        let counts = ground.audit.since(mark).await?;
        running.stop().await?;
        (best, slowest) = (best.min(took), slowest.max(took));
        let all = counts.requests(&account.user) + counts.requests(IN_WORKLOAD);
        requests = requests.max(all as f64 / f64::from(STORM));
    }
    let what = format!("ms until each of {STORM} hosts has its key");
    let share =
        format!("times the time of {STORM} bare PATCHes of the same hosts, {AT_ONCE} at a time");
    Ok(vec![
        figure(what, load::millis(slowest), Some(2_000.0)),
        figure(share, best.as_secs_f64() / bare.as_secs_f64(), Some(1.25)),
        figure("requests for each of them until then".to_owned(), requests, None),
    ])
}

/// The same writes by somebody who need not think: under the controller's account, whose rights have to be looked up and who
/// has to connect anew, and over when somebody who watches has seen all of them.
async fn bare_storm(site: &Site<'_>, account: &Account) -> anyhow::Result<Duration> {
    let api = bmo::api(&account.client().await?, &site.namespace);
    let mut hosts = site.hosts().await?;
    let began = Instant::now();
    let bare = async |number: u32| {
        let patch = json!({"metadata": {"annotations": {BARE: number.to_string()}}});
        api.patch(&format!("h-{number}"), &PatchParams::default(), &Patch::Merge(patch)).await
    };
    let bare = stream::iter(0..STORM).map(bare).buffer_unordered(AT_ONCE);
    let bare = bare.map_err(anyhow::Error::from).try_for_each(async |_| Ok(()));
    let shown = within(
        "every host is written",
        all_shown(&mut hosts, |it| it.annotations().contains_key(BARE)),
    );
    tokio::try_join!(bare, shown)?;
    Ok(began.elapsed())
}

/// What a recovery takes, the writes to the node among it.
async fn healed(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Figure> {
    let site = Site::new(ground, program, "healed", HEALED).await?;
    for number in 0..HEALED {
        boot(&ground.admin, &site.node(number), "Unknown").await?;
    }
    let account = account(ground, program).await?;
    let running = Running::start(ground, program, &account).await?;
    let operator = Operator::start(&site).await?;
    // What those before it have left is not counted.
    rest(ground, &account).await?;
    let mark = ground.audit.mark().await?;
    site.requests(HEALED).await?;
    let requests = site.request.api(&ground.admin, &site.namespace);
    let mut seen = pin!(watch::objects(requests, watcher::Config::default()));
    let mut done = BTreeSet::new();
    let all = async {
        while done.len() < HEALED as usize {
            let it = seen.try_next().await?.context("the watch on the requests ended")?;
            if site.is_done(&it) {
                done.insert(it.name_any());
            }
        }
        anyhow::Ok(())
    };
    within("every machine is healthy again", all).await?;
    let counts = ground.audit.since(mark).await?;
    drop(operator);
    running.stop().await?;
    let writes = counts.writes(&account.user, &["leases", "events"])
        + counts.writes(IN_WORKLOAD, &["leases", "events"]);
    let each = writes as f64 / f64::from(HEALED);
    Ok(figure("writes for a recovery".to_owned(), each, Some(12.0)))
}

async fn large(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Figure> {
    fleet(ground).await?;
    let machines = ground.hosts / 10;
    let _site = Site::new(ground, program, "large", machines).await?;
    let running = Running::start(ground, program, &account(ground, program).await?).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let memory = running.resident_megabytes()?;
    running.stop().await?;
    let what = format!("megabytes resident with {} hosts and {machines} machines", ground.hosts);
    Ok(figure(what, memory, Some(64.0)))
}

/// Plays who switches the hosts, and the kubelets that start with them.
struct Operator(JoinHandle<()>);

impl Drop for Operator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Operator {
    async fn start(site: &Site<'_>) -> anyhow::Result<Self> {
        let (client, namespace) = (site.ground.admin.clone(), site.namespace.clone());
        let mut hosts = site.hosts().await?;
        Ok(Self(tokio::spawn(async move {
            while let Some(host) = hosts.next().await {
                // What is lost here is missed by whoever waits for the machine.
                let Ok(host) = host else { continue };
                let _ = switched(&client, &namespace, &host).await;
            }
        })))
    }
}

async fn switched(
    client: &kube::Client,
    namespace: &str,
    host: &DynamicObject,
) -> anyhow::Result<()> {
    let (name, wanted) = (host.name_any(), !is_held(host));
    if host.data["status"]["poweredOn"] == wanted {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"resourceVersion": host.metadata.resource_version},
        "status": {"poweredOn": wanted},
    });
    let api = bmo::api(client, namespace);
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    if wanted {
        let number = name.trim_start_matches("h-");
        boot(client, &format!("{namespace}-{number}"), "True").await?;
    }
    Ok(())
}

/// What the kubelet of a node says, or what is said of one that is silent.
async fn boot(client: &kube::Client, node: &str, ready: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    if nodes.get_opt(node).await?.is_none() {
        let object = serde_json::from_value(json!({"metadata": {"name": node}}))?;
        nodes.create(&PostParams::default(), &object).await?;
    }
    let now = Timestamp::now();
    let beat = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({"status": {
        "conditions": [{
            "type": "Ready", "status": ready, "reason": "Played", "message": "",
            "lastHeartbeatTime": beat, "lastTransitionTime": beat,
        }],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "played",
            "bootID": now.as_nanosecond().to_string(), "machineID": "none", "systemUUID": "none",
            "kernelVersion": "0", "containerRuntimeVersion": "none://0",
            "kubeletVersion": VERSION, "kubeProxyVersion": "",
        },
    }});
    nodes.patch_status(node, &PatchParams::default(), &Patch::Strategic(status)).await?;
    Ok(())
}
