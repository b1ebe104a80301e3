//! All five controllers, each a process of its own that is killed once on the way: machines are discovered, get
//! credentials, are claimed by a `MachineDeployment` and roll over onto the same hosts; one fails and is power-cycled,
//! fails again and is replaced. Beside it a pool leases its entries.

mod audited;
mod life;
mod power_on_to_node;
mod processes;
mod promises;
mod reasons;
mod rights;
mod watch_filter;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::names::capi::CLONED_FROM_NAME;
use api_types::names::capm3::UNHEALTHY;
use api_types::names::ferrite::{POWER, POWER_MANAGED, REMEDIATION_HISTORY};
use api_types::names::metal3::HOST;
use bench::agent::Agent;
use bench::bmc::{Machine, Rack};
use bench::bmo;
use bench::cluster_api::objects::{
    KUBEADM_CONFIG_TEMPLATE, Kind, MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK,
    METAL3_MACHINE, METAL3_MACHINE_TEMPLATE, kubeadm_config_template, machine_deployment,
    machine_health_check, metal3_machine_template,
};
use bench::cluster_api::{self, Masters, Provider, Workload};
use bench::crds::{self, Group};
use bench::hive;
use bench::ironic::Lent;
use bench::objects::{self, REMEDIATION};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use reqwest::Method;
use serde_json::{Value, json};

use self::processes::Processes;
use crate::host_discovery::{discoveries, numbers};
use crate::remediation::{ground::install_own, operator::boot};

/// For failures only: Cluster API looks again every 15 s where it has nothing to watch.
const PATIENCE: Duration = Duration::from_secs(300);
const TEMPLATE: Kind =
    Kind { api_version: REMEDIATION.api_version, kind: "Metal3RemediationTemplate" };
const TEMPLATES: [&str; 2] = ["image-1", "image-2"];
const MACHINES: usize = 2;
const RELEASE: &str = "together";

#[tokio::test(flavor = "multi_thread")]
async fn five_controllers_that_are_each_killed_once_carry_machines_from_the_rack_to_their_replacement()
 {
    let site = Site::new().await;
    let five = site.start().await;

    let pool = site.pool(&five);
    let machines = async {
        site.discover().await;
    };
    tokio::join!(pool, machines);

    five.kill("host-discovery");
    site.boot_the_rest().await;
    five.start_again("host-discovery").await;
    let hosts = site.discovered(4).await;
    for (number, host) in hosts.iter().enumerate() {
        site.equip(host, number).await;
    }

    site.deploy(TEMPLATES[0]).await;
    site.until("a host is claimed", async || {
        let hosts = site.hosts().await;
        hosts.iter().any(|it| it.data["spec"]["consumerRef"].is_object()).then_some(())
    })
    .await;
    five.kill("capm3-reuse");
    five.start_again("capm3-reuse").await;
    let before = site.up(TEMPLATES[0]).await;

    site.deploy(TEMPLATES[1]).await;
    let after = site.up(TEMPLATES[1]).await;
    let used = |up: &BTreeMap<String, String>| up.values().cloned().collect::<BTreeSet<_>>();
    assert_eq!(used(&before), used(&after), "each machine got a host of its predecessors");
    for host in after.values() {
        site.is_powered(host, "On").await;
    }

    site.watch_over().await;
    let (machine, host) = after.first_key_value().unwrap();
    site.returns(&five, machine, host).await;
    let replaced = site.is_replaced(&five, machine, host).await;
    assert!(!replaced.contains(host), "the unhealthy host is taken again: {replaced:?}");
    let other = after.values().find(|it| *it != host).unwrap();
    assert!(replaced.contains(other), "the healthy machine was moved: {replaced:?}");
    five.all_run();
}

/// A management cluster, a workload cluster, an Ironic and four servers.
struct Site {
    client: Client,
    workload: Workload,
    ironic: Arc<Lent>,
    rack: Rack,
    first: u32,
    _installer: bmo::StandIn,
    _hive: hive::StandIn,
}

impl Site {
    async fn new() -> Self {
        let management = cluster_api::shared().await;
        let workload =
            Workload::start(management, "together", Masters::Given, Provider::Runs).await.unwrap();
        let client = workload.management.clone();
        install_own(&client).await;
        crds::install(&client, &Group::ALL).await.unwrap();
        Self {
            _installer: bmo::StandIn::start(&client, &workload.namespace),
            _hive: hive::StandIn::start(&client, &workload.namespace),
            ironic: Arc::new(Lent::usual().await.unwrap()),
            rack: Rack::start(4).await.unwrap(),
            first: numbers(),
            client,
            workload,
        }
    }

    async fn start(&self) -> Processes {
        let plane = cluster_api::shared().await;
        Processes::start(plane, &self.workload.namespace, &self.ironic.endpoint).await
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        kind.api(&self.client, &self.workload.namespace)
    }

    fn hosts_api(&self) -> Api<DynamicObject> {
        bmo::api(&self.client, &self.workload.namespace)
    }

    async fn hosts(&self) -> Vec<DynamicObject> {
        self.hosts_api().list(&ListParams::default()).await.unwrap().items
    }

    async fn apply(&self, kind: Kind, name: &str, object: Value) {
        let apply = PatchParams::apply("story").force();
        self.api(kind).patch(name, &apply, &Patch::Apply(object)).await.unwrap();
    }

    async fn until<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            if Instant::now() > deadline {
                let hosts: Vec<Value> = self
                    .hosts()
                    .await
                    .iter()
                    .map(|it| json!([it.metadata.name, it.data]))
                    .collect();
                panic!("never: {what}\n{:#}", json!(hosts));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn boot_agents(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let mut agent = Agent::new(self.first + number);
            agent.hostname = format!("machine-{number}");
            let (status, answer) = agent.post(&self.ironic).await.unwrap();
            assert!(status.is_success(), "{status} {answer}");
        }
    }

    /// Two machines boot, and are hosts.
    async fn discover(&self) {
        let spec = json!({
            "resourceNameTemplate": { "hardwareDetails": "hostname", "prefix": "rack-" },
            "labels": { (POWER): POWER_MANAGED, (bmo::PLAYED_BY): self.workload.namespace },
        });
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHostDiscovery",
            "metadata": { "name": "racks" }, "spec": spec,
        }))
        .unwrap();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.workload.namespace, &discoveries());
        api.create(&PostParams::default(), &object).await.unwrap();
        self.boot_agents(0..2).await;
        self.discovered(2).await;
    }

    async fn boot_the_rest(&self) {
        self.boot_agents(2..4).await;
    }

    /// The hosts in the order of their machines, once there are so many and no more.
    async fn discovered(&self, count: usize) -> Vec<DynamicObject> {
        self.until(&format!("{count} hosts"), async || {
            let hosts = self.hosts().await;
            (hosts.len() == count).then_some(hosts)
        })
        .await
    }

    /// Somebody adds credentials, and the operator, which is played here, registers the host with its BMC.
    async fn equip(&self, host: &DynamicObject, number: usize) {
        let name = host.name_any();
        assert_eq!(name, format!("rack-machine-{number}"));
        let (machine, params) = (&self.rack.machines[number], PatchParams::default());
        let address = format!("redfish+{}{}", machine.address(), machine.system_path());
        let bmc = json!({ "spec": { "bmc": { "address": address, "credentialsName": "bmc" } } });
        self.hosts_api().patch(&name, &params, &Patch::Merge(bmc)).await.unwrap();
        let told = &host.annotations()["baremetalhost.metal3.io/status"];
        let told: Value = serde_json::from_str(told).unwrap();
        let node = told["provisioning"]["ID"].as_str().unwrap();
        let adopted = |node: &Value| node["driver"] == "redfish";
        self.ironic.wait(node, "driven by redfish", adopted).await.unwrap();
        let path = format!("/v1/nodes/{node}");
        let info = json!([{ "op": "add", "path": "/driver_info", "value": {
            "redfish_address": machine.address(), "redfish_system_id": machine.system_path(),
            "redfish_username": "admin", "redfish_password": "secret", "redfish_verify_ca": false,
        }}]);
        let manage = json!({ "target": "manage" });
        let provision = format!("{path}/states/provision");
        for (method, path, body) in
            [(Method::PATCH, &path, &info), (Method::PUT, &provision, &manage)]
        {
            let (status, answer) = self.ironic.call(method, path, Some(body)).await.unwrap();
            assert!(status.is_success(), "{status} {answer}");
        }
        let managed = |node: &Value| node["provision_state"] == "manageable";
        self.ironic.wait(node, "manageable", managed).await.unwrap();
        let available = json!({ "status": {
            "poweredOn": false, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
            "provisioningFailCount": 0, "provisioning": { "state": "available", "ID": node },
        }});
        let api = self.hosts_api();
        api.patch_status(&name, &params, &Patch::Merge(available)).await.unwrap();
    }

    fn machine(&self, host: &str) -> &Machine {
        let number = host.rsplit('-').next().unwrap();
        &self.rack.machines[number.parse::<usize>().unwrap()]
    }

    async fn is_powered(&self, host: &str, state: &str) {
        self.until(&format!("{host} is {state}"), async || {
            (self.machine(host).seen().await.unwrap().state == state).then_some(())
        })
        .await;
    }

    async fn deploy(&self, template: &str) {
        let mut object = metal3_machine_template(template);
        object["spec"]["nodeReuse"] = json!(true);
        self.apply(METAL3_MACHINE_TEMPLATE, template, object).await;
        self.apply(KUBEADM_CONFIG_TEMPLATE, "join", kubeadm_config_template("join")).await;
        let count = u32::try_from(MACHINES).unwrap();
        let object = machine_deployment("workers", &self.workload.cluster, count, template, "join");
        self.apply(MACHINE_DEPLOYMENT, "workers", object).await;
    }

    /// The host of each Machine, once there are only those of this template and their nodes are ready.
    async fn up(&self, template: &str) -> BTreeMap<String, String> {
        self.until(&format!("the machines of {template}"), async || {
            let machines = self.api(MACHINE).list(&ListParams::default()).await.unwrap().items;
            let metals = self.api(METAL3_MACHINE).list(&ListParams::default()).await.unwrap().items;
            let mut up = BTreeMap::new();
            for machine in &machines {
                let metal = machine.data["spec"]["infrastructureRef"]["name"].as_str()?;
                let metal = metals.iter().find(|it| it.name_any() == metal)?;
                let is_new = metal.annotations().get(CLONED_FROM_NAME)? == template;
                let joined = machine.data["status"]["nodeRef"]["name"].is_string();
                if is_new && joined {
                    let (_, host) = metal.annotations().get(HOST)?.split_once('/')?;
                    up.insert(machine.name_any(), host.to_owned());
                }
            }
            (machines.len() == MACHINES && metals.len() == MACHINES && up.len() == MACHINES)
                .then_some(up)
        })
        .await
    }

    async fn watch_over(&self) {
        let strategy = json!({ "type": "reboot", "retryLimit": 1, "timeout": "30s" });
        let template =
            TEMPLATE.object("reboot", &json!({ "template": { "spec": { "strategy": strategy } } }));
        self.apply(TEMPLATE, "reboot", template).await;
        let cluster = &self.workload.cluster;
        let check = machine_health_check("check", cluster, "workers", TEMPLATE, "reboot");
        self.apply(MACHINE_HEALTH_CHECK, "check", check).await;
        self.until("all machines are healthy", async || {
            let check = self.api(MACHINE_HEALTH_CHECK).get("check").await.unwrap();
            let status = &check.data["status"];
            (status["expectedMachines"] == MACHINES && status["currentHealthy"] == MACHINES)
                .then_some(())
        })
        .await;
    }

    async fn node_of(&self, machine: &str) -> String {
        let machine = self.api(MACHINE).get(machine).await.unwrap();
        machine.data["status"]["nodeRef"]["name"].as_str().unwrap().to_owned()
    }

    async fn history(&self, host: &str) -> Vec<Value> {
        let host = self.hosts_api().get(host).await.unwrap();
        let text = host.annotations().get(REMEDIATION_HISTORY).map_or("[]", String::as_str);
        serde_json::from_str(text).unwrap()
    }

    /// Its host is held off by somebody.
    async fn is_held(&self, host: &str) {
        self.until(&format!("{host} is held"), async || {
            let host = self.hosts_api().get(host).await.unwrap();
            host.annotations().keys().any(|it| it.starts_with("reboot.metal3.io/")).then_some(())
        })
        .await;
    }

    /// What remediation does with the request for this machine now.
    async fn step(&self, machine: &str) -> Option<String> {
        let request = self.api(REMEDIATION).get_opt(machine).await.unwrap()?;
        request.data["status"]["step"].as_str().map(str::to_owned)
    }

    /// A node that falls silent once: one power cycle, although who switches is killed when it is asked.
    async fn returns(&self, five: &Processes, machine: &str, host: &str) {
        let before = self.machine(host).seen().await.unwrap();
        let node = self.node_of(machine).await;
        self.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
        self.is_held(host).await;
        five.kill("bmo-reboot");
        five.start_again("bmo-reboot").await;
        self.until("it is waited for", async || {
            (self.step(machine).await.as_deref() == Some("recover")).then_some(())
        })
        .await;
        self.is_powered(host, "On").await;
        boot(&self.workload.client, &node).await;
        self.until("it has recovered", async || {
            let last = self.history(host).await.pop()?;
            let gone = self.api(REMEDIATION).get_opt(machine).await.unwrap().is_none();
            (last["result"] == "Recovered" && gone).then_some(())
        })
        .await;
        let seen = self.machine(host).seen().await.unwrap();
        let cycles = |on: usize, off: usize| (before.turned_on() + on, before.turned_off() + off);
        assert_eq!((seen.turned_on(), seen.turned_off()), cycles(1, 1), "one cycle: {seen:?}");
    }

    /// A node that stays silent, although who heals it is killed in the middle: two cycles, then another host. Gives the
    /// hosts of the machines.
    async fn is_replaced(&self, five: &Processes, machine: &str, host: &str) -> BTreeSet<String> {
        let before = self.machine(host).seen().await.unwrap();
        let node = self.node_of(machine).await;
        self.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
        self.is_held(host).await;
        five.kill("remediation");
        five.start_again("remediation").await;
        self.until("the machine is gone", async || {
            self.api(MACHINE).get_opt(machine).await.unwrap().is_none().then_some(())
        })
        .await;
        let up = self.up(TEMPLATES[1]).await;
        let last = self.history(host).await.pop().unwrap();
        assert_eq!(last["result"], "Exhausted", "{last:#}");
        let marked = self.hosts_api().get(host).await.unwrap();
        assert!(marked.annotations().contains_key(UNHEALTHY), "{:?}", marked.annotations());
        self.is_powered(host, "Off").await;
        let seen = self.machine(host).seen().await.unwrap();
        assert_eq!(seen.turned_on() - before.turned_on(), 2, "a cycle for each try: {seen:?}");
        up.into_values().collect()
    }

    /// A pool of two clusters with two entries; who fills it is killed in the middle.
    async fn pool(&self, five: &Processes) {
        let config = "apiVersion: v1\nmetadata: {name: x}\nbaseDomain: x\nplatform: {none: {}}\n";
        let (namespace, config) =
            (&self.workload.namespace, json!({ "install-config.yaml": config }));
        objects::secret(&self.client, namespace, "install-config", &config).await.unwrap();
        let release = json!({ "releaseImage": "registry.example.com/release:1" });
        let set = objects::hive("ClusterImageSet").object(RELEASE, &release);
        objects::apply(&self.client, None, &set).await.unwrap();
        let entries = ["alpha", "beta"];
        for entry in entries {
            let patch = json!([{ "op": "replace", "path": "/metadata/name", "value": entry }]);
            let spec = json!({ "installConfigPatches": patch });
            self.of_hive("ClusterDeploymentCustomization", entry, spec).await;
        }
        let list: Vec<Value> = entries.iter().map(|it| json!({ "name": it })).collect();
        let spec = json!({
            "platform": { "none": {} }, "baseDomain": "example.com",
            "imageSetRef": { "name": RELEASE },
            "installConfigSecretTemplateRef": { "name": "install-config" },
            "skipMachinePools": true, "size": 2,
            "labels": { (hive::PLAYED_BY): self.workload.namespace },
            "inventory": { "ClusterDeploymentCustomizations": list },
        });
        self.of_hive("ClusterPool", "lab", spec).await;
        self.until("an entry is leased", async || {
            self.leased().await.into_values().any(|it| it.is_some()).then_some(())
        })
        .await;
        five.kill("clusterpool-inventory");
        five.start_again("clusterpool-inventory").await;
        let clusters = self
            .until("both entries have a cluster", async || {
                let leased = self.leased().await;
                let clusters: Option<Vec<String>> = leased.into_values().collect();
                let pool = hive::api(&self.client, &self.workload.namespace, "ClusterPool");
                let ready = pool.get("lab").await.unwrap().data["status"]["ready"] == 2;
                clusters.filter(|it| it.len() == 2 && ready)
            })
            .await;
        assert_ne!(clusters[0], clusters[1], "one cluster has both entries");
        let all: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &hive::kind("ClusterDeployment"));
        let all = all.list(&ListParams::default()).await.unwrap();
        let ours = all.iter().filter(|it| {
            let reference = &it.data["spec"]["clusterPoolRef"];
            reference["namespace"] == self.workload.namespace.as_str()
        });
        assert_eq!(ours.count(), 2, "nothing is left of the one that was killed");
    }

    async fn of_hive(&self, kind: &str, name: &str, spec: Value) {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "hive.openshift.io/v1", "kind": kind,
            "metadata": { "name": name }, "spec": spec,
        }))
        .unwrap();
        let api = hive::api(&self.client, &self.workload.namespace, kind);
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// The cluster of each entry.
    async fn leased(&self) -> BTreeMap<String, Option<String>> {
        let api =
            hive::api(&self.client, &self.workload.namespace, "ClusterDeploymentCustomization");
        let entries = api.list(&ListParams::default()).await.unwrap();
        let cluster = |it: &DynamicObject| {
            it.data["status"]["clusterDeploymentRef"]["name"].as_str().map(str::to_owned)
        };
        entries.iter().map(|it| (it.name_any(), cluster(it))).collect()
    }
}
