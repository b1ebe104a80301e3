//! From power-on to node with nobody typing: machines boot, get hosts with the BMCs that they name, and replicas follow the
//! hosts. One machine dies and is handed over. The next one that is plugged in makes up for it, although the dead host keeps its
//! Machine until a person removes it.
//!
//! Agents, images, the operator and kubelets are played. Each BMC has an address of its own, and only through that address do
//! Ironic and the operator's stand-in reach it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::names::capm3::UNHEALTHY;
use api_types::names::ferrite::{POWER, POWER_MANAGED, SCALE_TO_HOSTS};
use api_types::names::metal3::HOST;
use bench::agent::Agent;
use bench::bmc::{Behaviour, Rack};
use bench::bmo;
use bench::cluster_api::objects::{
    KUBEADM_CONFIG_TEMPLATE, Kind, MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK,
    METAL3_MACHINE, METAL3_MACHINE_TEMPLATE, kubeadm_config_template, machine_deployment,
    machine_health_check, metal3_machine_template,
};
use bench::cluster_api::{self, Masters, Provider, Workload, until, until_one};
use bench::control_plane::ControlPlane;
use bench::faults::Plan;
use bench::ironic::{Lent, Options};
use bench::objects::DISCOVERY;
use bench::registrar::Registrar;
use controller_kit::crd;
use futures_util::future::join_all;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject};
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::{REMEDIATION, TEMPLATE};
use crate::in_process::{Running, account};
use crate::{bmo_reboot, capm3_reuse, host_discovery, remediation};

const MACHINES: u32 = 5;
/// Replicas that are wanted for so long are set. The chart has 30 seconds.
const SETTLE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_are_powered_on_become_nodes_and_a_dead_one_is_replaced() {
    let scene = Box::pin(Scene::new()).await;
    scene.step("five machines are powered on");
    join_all((0..MACHINES).map(|it| scene.power_on(it))).await;
    scene.step("Ironic has their inventories");
    scene.hosts("five hosts with a BMC", |it| !it.data["spec"]["bmc"].is_null(), 5).await;
    scene.hosts("five hosts are available or taken", |it| !state(it).is_empty(), 5).await;
    scene.deployment("replicas are 5", |it| it["spec"]["replicas"] == 5).await;
    scene.hosts("five hosts are installed", |it| state(it) == "provisioned", 5).await;
    let before = scene.whole("five Machines are available", 5).await;
    let used: BTreeSet<&String> = before.values().collect();
    assert_eq!(used.len(), 5, "each host is used once: {before:?}");
    for number in 0..MACHINES {
        scene.has_its_own_bmc(number).await;
    }
    scene.step("five machines are on, each switched through its own BMC");
    let checks = scene.api(MACHINE_HEALTH_CHECK);
    until_one(&checks, "check", "all healthy", |it| it.data["status"]["currentHealthy"] == 5)
        .await
        .unwrap();

    let (machine, host) = before.first_key_value().unwrap();
    scene.dies(machine, host).await;
    scene.step(&format!("{host} is dead: its BMC refuses everything, its node is silent"));
    let any = watcher::Config::default();
    let requests = scene.api(REMEDIATION);
    until(&requests, &any, "a request", |all| all.contains_key(machine)).await.unwrap();
    scene.step("its Machine is to be remediated");
    let machines = scene.api(MACHINE);
    let given_up = |all: &BTreeMap<String, DynamicObject>| {
        all.get(machine).is_none_or(|it| it.metadata.deletion_timestamp.is_some())
    };
    until(&machines, &any, "handed over", given_up).await.unwrap();
    scene.step("its Machine was handed over, and its owner deletes it");
    let told = "is being cleared and reports an error";
    let why = |it: &DynamicObject| it.data["status"].to_string().contains(told);
    until_one(&scene.api(METAL3_MACHINE), machine, told, why).await.unwrap();
    scene.step("it stays, since its host cannot be cleared; its owner makes no successor before");

    scene.power_on(MACHINES).await;
    scene.step("a sixth machine is plugged in");
    scene.hosts("six hosts with a BMC", |it| !it.data["spec"]["bmc"].is_null(), 6).await;
    let after = scene.whole("five of six Machines are available", 6).await;
    let spare = format!("machine-{MACHINES}");
    let wanted: BTreeSet<&String> =
        before.values().filter(|it| *it != host).chain([&spare]).collect();
    assert_eq!(after.values().collect::<BTreeSet<_>>(), wanted);
    scene.has_its_own_bmc(MACHINES).await;
    let dead = scene.hosts_api().get(host).await.unwrap();
    assert!(dead.annotations().contains_key(UNHEALTHY), "{:?}", dead.annotations());

    scene.hosts_api().delete(host, &DeleteParams::default()).await.unwrap();
    scene.step("a person removes the dead host, which is marked as unhealthy");
    until(&machines, &any, "gone", |all| !all.contains_key(machine)).await.unwrap();
    scene.step("the last of its Machine is gone");
    assert_eq!(scene.whole("all Machines are available, five as before", 5).await, after);
}

fn state(host: &DynamicObject) -> &str {
    host.data["status"]["provisioning"]["state"].as_str().unwrap_or_default()
}

struct Scene {
    workload: Workload,
    ironic: Arc<Lent>,
    rack: Rack,
    first: u32,
    began: Instant,
    operator: bmo::StandIn,
    _registrar: Registrar,
    _running: [Running; 4],
}

impl Scene {
    /// All that a person sets up, once, before there is a machine.
    async fn new() -> Self {
        let plane = cluster_api::shared().await;
        let workload =
            Workload::start(plane, "power-on", Masters::Given, Provider::Runs).await.unwrap();
        let (client, namespace) = (workload.management.clone(), workload.namespace.clone());
        remediation::ground::install_own(&client).await;
        crd::extend(&client, &::bmo_reboot::settings::needed(), false).await.unwrap();
        bench::crds::settled(&client).await.unwrap();
        let rack = Rack::start(6).await.unwrap();
        let options = Options { bmc_proxy: rack.proxy(), ..Options::default() };
        let ironic = Arc::new(Lent::special(options).await.unwrap());
        let hosts = bmo::api(&client, &namespace);
        let running = run(plane, &namespace, &ironic.endpoint).await;
        let mut scene = Self {
            operator: bmo::StandIn::start(&client, &namespace),
            _registrar: Registrar::start(hosts, Arc::clone(&ironic)),
            _running: running,
            first: host_discovery::numbers(),
            began: Instant::now(),
            workload,
            ironic,
            rack,
        };
        let spec = json!({
            "resourceNameTemplate": {"hardwareDetails": "hostname"},
            "labels": {"rack": "r1", (POWER): POWER_MANAGED, (bmo::PLAYED_BY): namespace},
            "hostDefaults": {"automatedCleaningMode": "disabled"},
            "bmc": {
                "addressTemplate": "redfish-virtualmedia+http://{bmcAddress}/redfish/v1/Systems/1",
                "credentialsName": "racks-bmc", "subnets": ["198.18.0.0/24"],
            },
        });
        scene.create(DISCOVERY, DISCOVERY.object("racks", &spec)).await;
        let mut template = metal3_machine_template("image");
        template["spec"]["template"]["spec"]["hostSelector"] =
            json!({"matchLabels": {"rack": "r1"}});
        scene.create(METAL3_MACHINE_TEMPLATE, template).await;
        scene.create(KUBEADM_CONFIG_TEMPLATE, kubeadm_config_template("join")).await;
        let cluster = &scene.workload.cluster;
        let mut workers = machine_deployment("workers", cluster, 0, "image", "join");
        workers["metadata"]["annotations"] = json!({SCALE_TO_HOSTS: "min=0,max=9,down=true"});
        scene.create(MACHINE_DEPLOYMENT, workers).await;
        let strategy = json!({"type": "reboot", "retryLimit": 0, "timeout": "30s"});
        let strategy = json!({"template": {"spec": {"strategy": strategy}}});
        scene.create(TEMPLATE, TEMPLATE.object("reboot", &strategy)).await;
        let check = machine_health_check("check", cluster, "workers", TEMPLATE, "reboot");
        scene.create(MACHINE_HEALTH_CHECK, check).await;
        scene.began = Instant::now();
        scene
    }

    fn step(&self, what: &str) {
        println!("{:>7.1} s  {what}", self.began.elapsed().as_secs_f64());
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        kind.api(&self.workload.management, &self.workload.namespace)
    }

    fn hosts_api(&self) -> Api<DynamicObject> {
        bmo::api(&self.workload.management, &self.workload.namespace)
    }

    async fn create(&self, kind: Kind, object: Value) {
        kind.create(&self.workload.management, &self.workload.namespace, object).await.unwrap();
    }

    /// Somebody presses the button; the machine boots its agent from the network.
    async fn power_on(&self, number: u32) {
        self.rack.machines[number as usize].press("On").await.unwrap();
        let mut agent = Agent::new(self.first + number);
        agent.hostname = format!("machine-{number}");
        agent.bmc_address = Some(Rack::ip(number).to_string());
        let (status, answer) = agent.post(&self.ironic).await.unwrap();
        assert!(status.is_success(), "{status} {answer}");
    }

    /// Waits until there are so many hosts, and each is like this.
    async fn hosts(&self, what: &str, is: impl Fn(&DynamicObject) -> bool, count: usize) {
        let all = watcher::Config::default();
        let are =
            |all: &BTreeMap<String, DynamicObject>| all.len() == count && all.values().all(&is);
        until(&self.hosts_api(), &all, what, are).await.unwrap();
        self.step(what);
    }

    async fn deployment(&self, what: &str, is: impl Fn(&Value) -> bool) {
        let deployments = self.api(MACHINE_DEPLOYMENT);
        until_one(&deployments, "workers", what, |it| is(&it.data)).await.unwrap();
        self.step(what);
    }

    /// Waits until there are so many replicas and five are available; returns the host of each Machine that stays.
    async fn whole(&self, what: &str, replicas: u32) -> BTreeMap<String, String> {
        self.deployment(what, |it| {
            let status = &it["status"];
            it["spec"]["replicas"] == replicas
                && status["replicas"] == replicas
                && status["availableReplicas"] == MACHINES
        })
        .await;
        let all = watcher::Config::default();
        let machines = until(&self.api(MACHINE), &all, what, |_| true).await.unwrap();
        let metals = until(&self.api(METAL3_MACHINE), &all, what, |_| true).await.unwrap();
        let stay = machines.iter().filter(|it| it.1.metadata.deletion_timestamp.is_none());
        stay.filter_map(|(name, it)| {
            let metal = it.data["spec"]["infrastructureRef"]["name"].as_str()?;
            let (_, host) = metals.get(metal)?.annotations().get(HOST)?.split_once('/')?;
            Some((name.clone(), host.to_owned()))
        })
        .collect()
    }

    /// Its host and its node have the BMC that it named, and through it the machine was switched off once and on again.
    async fn has_its_own_bmc(&self, number: u32) {
        let host = self.hosts_api().get(&format!("machine-{number}")).await.unwrap();
        let ip = Rack::ip(number);
        let address = format!("redfish-virtualmedia+http://{ip}/redfish/v1/Systems/1");
        assert_eq!(host.data["spec"]["bmc"]["address"], address);
        let node = host.data["status"]["provisioning"]["ID"].as_str().unwrap();
        let on = |it: &Value| it["power_state"] == "power on" && it["reservation"].is_null();
        let node = self.ironic.wait(node, "on", on).await.unwrap();
        assert_eq!(node["driver_info"]["redfish_address"], format!("http://{ip}"), "{node:#}");
        let seen = self.rack.machines[number as usize].seen().await.unwrap();
        assert_eq!((seen.turned_on(), seen.turned_off()), (2, 1), "{seen:?}");
    }

    /// Nobody can clear it either.
    async fn dies(&self, machine: &str, host: &str) {
        self.operator.keep(&self.workload.namespace, host);
        let number: usize = host.trim_start_matches("machine-").parse().unwrap();
        let unwell = Behaviour { unwell: true, ..Behaviour::default() };
        self.rack.machines[number].behave(&unwell).await.unwrap();
        let machine = self.api(MACHINE).get(machine).await.unwrap();
        let node = machine.data["status"]["nodeRef"]["name"].as_str().unwrap();
        self.workload.stand_in.set_ready(node, "Unknown").await.unwrap();
    }
}

/// The four controllers that have to do with machines, in this process, each with the rights of its chart.
async fn run(plane: &ControlPlane, namespace: &str, ironic: &str) -> [Running; 4] {
    let here = || (namespace.to_owned(), ironic.to_owned());
    let name = |controller: &str| format!("{namespace}-{controller}");
    let (discovery, _) = account(plane, "host-discovery", &name("discovery")).await;
    let discovery = Running::start(discovery, Plan::none("host-discovery"), |client| {
        let (namespace, ironic) = here();
        host_discovery::run(client, namespace, host_discovery::quick(), ironic)
    });
    let (power, _) = account(plane, "bmo-reboot", &name("power")).await;
    let power = Running::start(power, Plan::none("bmo-reboot"), |client| {
        let (namespace, ironic) = here();
        bmo_reboot::run(client, namespace, bmo_reboot::quick(), ironic)
    });
    let policy = ::capm3_reuse::settings::Policy {
        scale_to_hosts: true,
        scale_settle: SETTLE,
        ..::capm3_reuse::settings::Policy::default()
    };
    let (reuse, _) = capm3_reuse::ground::start(plane, namespace, policy).await;
    let policy = ::remediation::settings::Policy {
        power_off: Duration::from_secs(20),
        stale: Duration::from_secs(8),
        ..::remediation::settings::Policy::default()
    };
    let (healing, _) = remediation::ground::start(plane, namespace, policy).await;
    [discovery, power, reuse, healing]
}
