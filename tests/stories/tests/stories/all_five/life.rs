//! A day of life, shortened: all five work in one namespace while machines come, go and fail, people ask for reboots,
//! new machines are switched on, a pool grows and loses clusters, Ironic and the API server have moments, and processes
//! are killed. What was promised is looked at after every write of everybody.
//!
//! What happens is drawn from a seed, which is printed: `FERRITE_LIFE_SEED` plays another day, and `FERRITE_LIFE_SECONDS`
//! makes it longer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api_types::names;
use bench::agent::Agent;
use bench::cluster_api::objects::{MACHINE, METAL3_MACHINE};
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::ironic::Lent;
use bench::observer::Observer;
use bench::proxy::{Fault, Proxy};
use bench::{bmo, cluster_api, hive};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::processes::Processes;
use super::{promises, rights};
use crate::bmo_reboot::{HARD, PLAIN, switch};
use crate::host_discovery::numbers;
use crate::played::{DISCOVERY, ENTRY, HOST, POOL, Played, REMEDIATION, name_of, requests_of};
use crate::remediation::{ground::install_own, operator::boot};

const HOSTS: usize = 5;
const MACHINES: usize = 4;
const AGENTS: u32 = 6;
const ENTRIES: usize = 5;
const HOLD: &str = "reboot.metal3.io/life";
const FAILED: &str = "a machine fails";
/// How much a process may grow in a day. What it has read of its own text counts, too.
const GROWTH: f64 = 64.0;
/// The day that everybody plays.
const SEED: u64 = 1;
/// For failures only.
const PATIENCE: Duration = Duration::from_secs(180);

/// Draws what happens next.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % most as u64).unwrap()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        (!all.is_empty()).then(|| &all[self.below(all.len())])
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|it| it.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_day_of_life_breaks_no_promise_and_leaves_nothing_behind() {
    let seed = number("FERRITE_LIFE_SEED").unwrap_or(SEED);
    let seconds = number("FERRITE_LIFE_SECONDS").unwrap_or(40);
    eprintln!("FERRITE_LIFE_SEED={seed} FERRITE_LIFE_SECONDS={seconds}");
    let mut life = Life::begin(Chance(seed)).await;
    let evening = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < evening {
        life.something_happens().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    life.what_did_not_happen().await;
    eprintln!("{:?}", life.happened);
    life.evening().await;
    life.one_has_failed().await;
    life.night().await;
    life.promises_held().await;
    life.nobody_has_grown().await;
    rights::are_all_used(&life.plane, &life.five).await;
}

struct Life {
    chance: Chance,
    at: Played,
    plane: ControlPlane,
    observer: Observer,
    ironic: Lent,
    proxy: Proxy,
    five: Processes,
    kubelets: JoinHandle<()>,
    first: u32,
    machines: BTreeSet<String>,
    agents: u32,
    entries: usize,
    made: usize,
    happened: BTreeMap<&'static str, usize>,
    /// Megabytes of each process when the day began.
    morning: BTreeMap<&'static str, f64>,
    _installer: bmo::StandIn,
    _hive: hive::StandIn,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kubelets.abort();
    }
}

impl Life {
    async fn begin(chance: Chance) -> Self {
        let plane = ControlPlane::start("life").await.unwrap();
        let client = plane.admin().await;
        crds::install(&client, &Group::ALL).await.unwrap();
        cluster_api::install_crds(&client).await.unwrap();
        install_own(&client).await;
        plane
            .start_controllers(&["namespace-controller", "garbage-collector-controller"])
            .await
            .unwrap();
        let at = Played { client, namespace: plane.namespace("life").await };
        let installer = bmo::StandIn::start(&at.client, &at.namespace);
        let hive = hive::StandIn::start(&at.client, &at.namespace);
        let ironic = Lent::usual().await.unwrap();
        let proxy = Proxy::start(&ironic).await.unwrap();
        let five = Processes::start(&plane, &at.namespace, &proxy.endpoint).await;
        // Nodes have no namespaces, and an API server more would change nothing.
        at.cluster(&plane.kubeconfig_text("admin", &["system:masters"]).unwrap()).await;
        at.materials().await;
        for number in 0..HOSTS {
            let name = format!("h-{number}");
            let node = ironic.enroll_fake(&format!("{}-{name}", at.namespace)).await.unwrap();
            switch(&ironic, &node, "power off").await;
            let labels = json!({ (names::ferrite::POWER): names::ferrite::POWER_MANAGED });
            bmo::make_host(&at.client, &at.namespace, &name, &at.namespace, &labels).await.unwrap();
            let id = json!({ "provisioning": { "ID": node } });
            at.patch_status(HOST, &name, id).await;
        }
        let spec = json!({
            "resourceNameTemplate": { "hardwareDetails": "hostname", "prefix": "rack-" },
        });
        at.create(DISCOVERY, DISCOVERY.object("racks", &spec)).await;
        // After the hooks, which change CRDs and so end every watch; and everywhere, as clusters have namespaces of their own.
        crds::settled(&at.client).await.unwrap();
        let observer = Observer::start(&at.client, None, &promises::kinds()).await.unwrap();
        let kubelets = tokio::spawn(kubelets(at.clone()));
        let morning = five.resident().await;
        Self {
            chance,
            plane,
            observer,
            morning,
            ironic,
            proxy,
            five,
            kubelets,
            first: numbers(),
            machines: BTreeSet::new(),
            agents: 0,
            entries: 0,
            made: 0,
            happened: BTreeMap::new(),
            _installer: installer,
            _hive: hive,
            at,
        }
    }

    async fn something_happens(&mut self) {
        let what = match self.chance.below(13) {
            0 | 1 if self.machines.len() < MACHINES => self.machine_comes().await,
            2 => self.machine_goes().await,
            3 => self.annotated(PLAIN, json!(HARD)).await,
            4 => self.annotated(HOLD, json!(HARD)).await,
            5 | 6 => self.annotated(HOLD, Value::Null).await,
            7 => self.machine_fails().await,
            8 if self.agents < AGENTS => self.machine_is_plugged_in().await,
            9 if self.entries < ENTRIES => self.entry_is_added().await,
            9 => self.cluster_goes().await,
            10 => self.ironic_has_a_moment(),
            11 => self.process_is_killed().await,
            12 => self.api_server_has_a_moment().await,
            _ => "nothing happens",
        };
        *self.happened.entry(what).or_default() += 1;
    }

    /// Whatever a day draws, of each kind something is there in its evening.
    async fn what_did_not_happen(&mut self) {
        if self.machines.is_empty() {
            self.machine_comes().await;
        }
        if self.agents == 0 {
            self.machine_is_plugged_in().await;
        }
        if self.entries == 0 {
            self.entry_is_added().await;
        }
    }

    /// And one machine that is still there has failed and has come back.
    async fn one_has_failed(&mut self) {
        if !self.at.list(REMEDIATION).await.is_empty() {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        while self.machine_fails().await != FAILED {
            assert!(Instant::now() < deadline, "no machine could fail: {:?}", self.machines);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        self.evening().await;
    }

    async fn entry_is_added(&mut self) -> &'static str {
        self.at.entry(self.entries).await;
        self.entries += 1;
        "an entry is added"
    }

    async fn machine_comes(&mut self) -> &'static str {
        let name = format!("m-{}", self.made);
        self.made += 1;
        self.at.machine(&name, None).await;
        self.machines.insert(name);
        "a machine comes"
    }

    async fn machine_goes(&mut self) -> &'static str {
        let all: Vec<String> = self.machines.iter().cloned().collect();
        let Some(name) = self.chance.one_of(&all) else { return "nobody is there to go" };
        self.machines.remove(name);
        self.at.delete(METAL3_MACHINE, name).await;
        self.at.delete(MACHINE, name).await;
        "a machine goes"
    }

    async fn annotated(&mut self, key: &str, value: Value) -> &'static str {
        let host = format!("h-{}", self.chance.below(HOSTS));
        let what = match (key, &value) {
            (_, Value::Null) => "a hold is taken back",
            (PLAIN, _) => "a reboot is asked for",
            _ => "a host is held off",
        };
        self.at.patch(HOST, &host, json!({ "metadata": { "annotations": { key: value } } })).await;
        what
    }

    async fn machine_fails(&mut self) -> &'static str {
        let all: Vec<String> = self.machines.iter().cloned().collect();
        let Some(name) = self.chance.one_of(&all) else { return "nobody is there to fail" };
        let machine = self.at.get(MACHINE, name).await.unwrap();
        let asked = self.at.get(REMEDIATION, name).await.is_some();
        if asked || machine["status"]["nodeRef"].is_null() {
            return "a machine cannot fail yet";
        }
        self.at.request(name).await;
        FAILED
    }

    async fn machine_is_plugged_in(&mut self) -> &'static str {
        let mut agent = Agent::new(self.first + self.agents);
        agent.hostname = format!("new-{}", self.agents);
        self.agents += 1;
        let (status, body) = agent.post(&self.ironic).await.unwrap();
        assert!(status.is_success(), "{status} {body}");
        "a machine is plugged in"
    }

    async fn cluster_goes(&mut self) -> &'static str {
        let clusters = self.at.clusters().await;
        let Some(cluster) = self.chance.one_of(&clusters) else { return "no cluster can go" };
        let api = hive::api(&self.at.client, name_of(cluster), "ClusterDeployment");
        // It may be gone by itself.
        let _ = api.delete(name_of(cluster), &DeleteParams::default()).await;
        "a cluster goes"
    }

    fn ironic_has_a_moment(&mut self) -> &'static str {
        let fault = match self.chance.below(4) {
            0 => Fault::busy(),
            1 => Fault::CutBefore,
            2 => Fault::CutAfter,
            _ => Fault::Delay(Duration::from_secs(2)),
        };
        self.proxy.fault(fault, 6, |_, _| true);
        "Ironic has a moment"
    }

    /// It hangs for a while, which is shorter than a lease.
    async fn api_server_has_a_moment(&mut self) -> &'static str {
        self.plane.freeze(true).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.plane.freeze(false).unwrap();
        "the API server has a moment"
    }

    async fn process_is_killed(&mut self) -> &'static str {
        let names = Processes::names();
        let name = *self.chance.one_of(&names).unwrap();
        self.five.kill(name);
        self.five.start_again(name).await;
        "a process is killed"
    }

    /// What must hold at every moment held at every moment so far.
    async fn promises_held(&self) {
        let history = self.observer.history(&[]).await.unwrap();
        if let Some(broken) = history.check(&promises::promises()) {
            panic!("{broken}");
        }
        assert!(history.writes.len() > HOSTS, "nothing was seen:\n{}", history.timeline(None));
    }

    /// A process that was killed began anew; of the others a longer day tells more.
    async fn nobody_has_grown(&self) {
        for (name, now) in self.five.resident().await {
            let before = self.morning[name];
            eprintln!("{name}: {before:.1} MB in the morning, {now:.1} MB at night");
            assert!(now < before + GROWTH, "{name} grew from {before:.1} to {now:.1} MB");
        }
    }

    async fn until(&mut self, what: &str, is: impl AsyncFn(&Played) -> Result<(), Value>) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(seen) = is(&self.at).await {
            if Instant::now() > deadline {
                // Why it is so may be said by what went before.
                self.promises_held().await;
                panic!("never: {what}\n{seen:#}");
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Nothing happens any more: everybody gets what was asked for.
    async fn evening(&mut self) {
        self.proxy.heal();
        for host in self.at.list(HOST).await {
            // Nobody reboots a host on which nothing is installed: what was asked of it there is its asker's to take back.
            let installed = host["status"]["provisioning"]["state"] == "provisioned";
            let mut gone = json!({ HOLD: null });
            if !installed {
                gone[PLAIN] = Value::Null;
            }
            let let_go = json!({ "metadata": { "annotations": gone } });
            self.at.patch(HOST, name_of(&host), let_go).await;
        }
        let wanted = self.machines.clone();
        self.until("every machine is up and no request is open", async |at| {
            let hosts = at.list(HOST).await;
            let up = |host: &&Value| {
                host["status"]["provisioning"]["state"] == "provisioned"
                    && host["status"]["poweredOn"] == true
                    && requests_of(host).is_empty()
            };
            let of = |host: &Value| {
                host["spec"]["consumerRef"]["name"].as_str().unwrap_or_default().to_owned()
            };
            let all_up: BTreeSet<String> = hosts.iter().filter(up).map(of).collect();
            let requests = at.list(REMEDIATION).await;
            let open = requests.iter().any(|it| it["status"]["step"] != "done");
            if wanted.is_subset(&all_up) && !open {
                return Ok(());
            }
            Err(json!([wanted, hosts, requests]))
        })
        .await;
        let agents = usize::try_from(self.agents).unwrap();
        self.until("every machine that was plugged in is a host", async |at| {
            let discovered = at.list(HOST).await.into_iter().filter(is_discovered);
            let names: Vec<Value> = discovered.map(|it| json!(name_of(&it))).collect();
            if names.len() == agents { Ok(()) } else { Err(json!([agents, names])) }
        })
        .await;
        let entries = self.entries;
        self.until("every entry has its cluster", async |at| {
            let clusters = at.clusters().await;
            let whole = |it: &&Value| {
                it["metadata"]["deletionTimestamp"].is_null() && it["spec"]["installed"] == true
            };
            if clusters.iter().filter(whole).count() == entries && clusters.len() == entries {
                return Ok(());
            }
            Err(json!([at.list(POOL).await, at.list(ENTRY).await, clusters]))
        })
        .await;
        self.power_is_as_said().await;
    }

    /// Ironic's word about each machine becomes what its host says: one that was just installed may be off for a moment.
    async fn power_is_as_said(&self) {
        let deadline = Instant::now() + PATIENCE;
        for host in self.at.list(HOST).await {
            let Some(node) = host["status"]["provisioning"]["ID"].as_str() else { continue };
            let provisioned = host["status"]["provisioning"]["state"] == "provisioned";
            if !provisioned || host["status"]["poweredOn"] != true {
                continue;
            }
            loop {
                let seen = self.ironic.node(node).await.unwrap();
                if seen["power_state"] == "power on" {
                    break;
                }
                assert!(Instant::now() < deadline, "never on: {host:#}\n{seen:#}");
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
    }

    /// Everybody goes, and nothing is left.
    async fn night(&mut self) {
        for name in std::mem::take(&mut self.machines) {
            self.at.delete(METAL3_MACHINE, &name).await;
            self.at.delete(MACHINE, &name).await;
        }
        if self.entries > 0 {
            self.at.delete(POOL, "pool").await;
        }
        for host in self.at.list(HOST).await.iter().filter(|it| is_discovered(it)) {
            self.at.delete(HOST, name_of(host)).await;
        }
        self.until("hosts are free and clean", async |at| {
            let (hosts, machines) = (at.list(HOST).await, at.list(METAL3_MACHINE).await);
            let left = |host: &&Value| {
                !host["spec"]["consumerRef"].is_null()
                    || !host["spec"]["image"].is_null()
                    || !requests_of(host).is_empty()
            };
            let left: Vec<&Value> = hosts.iter().filter(left).collect();
            let requests = at.list(REMEDIATION).await;
            if left.is_empty() && machines.is_empty() && requests.is_empty() {
                return Ok(());
            }
            Err(json!([left, machines, requests]))
        })
        .await;
        let agents = usize::try_from(self.agents).unwrap();
        self.until("what was discovered and deleted stays away", async |at| {
            let hosts = at.list(HOST).await.into_iter().filter(is_discovered);
            let hosts: Vec<Value> = hosts.map(|it| json!(name_of(&it))).collect();
            let discovery = at.get(DISCOVERY, "racks").await.unwrap_or_default();
            let pending = discovery["status"]["pending"].as_array().into_iter().flatten();
            let deleted = pending.filter(|it| is_of_deleted(it)).count();
            if hosts.is_empty() && deleted == agents {
                return Ok(());
            }
            Err(json!([agents, hosts, discovery]))
        })
        .await;
        self.until("the pool is gone, and every entry is free", async |at| {
            let (pools, clusters) = (at.list(POOL).await, at.clusters().await);
            let entries = at.list(ENTRY).await;
            let kept = |it: &Value| {
                it["status"]["clusterDeploymentRef"]["name"].is_string()
                    || it["metadata"]["finalizers"].is_array()
            };
            if pools.is_empty() && clusters.is_empty() && !entries.iter().any(kept) {
                return Ok(());
            }
            Err(json!([pools, clusters, entries]))
        })
        .await;
        let nodes: Api<Node> = Api::all(self.at.client.clone());
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let taints = node.spec.clone().and_then(|it| it.taints).unwrap_or_default();
            let ours = taints.iter().any(|it| it.key == "node.kubernetes.io/out-of-service");
            assert!(!ours, "{} is still fenced", node.name_any());
        }
        self.five.none_has_ended();
    }
}

/// Whether it was made for a machine that was plugged in.
fn is_discovered(host: &Value) -> bool {
    host["metadata"]["annotations"][names::ferrite::NODE_ID].is_string()
}

/// Whether a machine waits because its host was deleted.
fn is_of_deleted(machine: &Value) -> bool {
    machine["reason"].as_str().is_some_and(|it| it.starts_with("HostDeleted"))
}

/// The kubelets of all machines: each says so when its machine has come on, and is known to its Machine.
async fn kubelets(at: Played) {
    let mut booted: BTreeMap<String, String> = BTreeMap::new();
    loop {
        for host in at.list(HOST).await {
            let Some(machine) = host["spec"]["consumerRef"]["name"].as_str() else { continue };
            let status = &host["status"];
            if status["provisioning"]["state"] != "provisioned" || status["poweredOn"] != true {
                continue;
            }
            let boot_of = status["provisioning"]["lastPoweredOn"].to_string();
            if booted.get(machine) == Some(&boot_of) {
                continue;
            }
            let node = format!("{}-{machine}", at.namespace);
            boot(&at.client, &node).await;
            at.patch_status(MACHINE, machine, json!({ "nodeRef": { "name": node } })).await;
            booted.insert(machine.to_owned(), boot_of);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
