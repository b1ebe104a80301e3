//! With the neighbours themselves: Cluster API's managers, `capm3-reuse`, `bmo-reboot` and a real Ironic.

use std::collections::BTreeMap;
use std::time::Duration;

use bench::bmo;
use bench::cluster_api::objects::{
    KUBEADM_CONFIG_TEMPLATE, KUBEADM_CONTROL_PLANE, Kind, MACHINE, MACHINE_DEPLOYMENT,
    MACHINE_HEALTH_CHECK, METAL3_MACHINE, METAL3_MACHINE_TEMPLATE, METAL3_REMEDIATION,
    METAL3_REMEDIATION_TEMPLATE, kubeadm_config_template, kubeadm_control_plane,
    machine_deployment, machine_health_check, metal3_machine_template, metal3_remediation_template,
};
use bench::cluster_api::{self, Masters, Provider, Workload, until, until_one};
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::watcher;
use remediation::settings::Policy;
use serde_json::{Value, json};

use super::ground::{install_own, planes, quick, start};
use super::operator::{NODE, Operator, PLAYED};
use super::scene::{REMEDIATION, Scene, condition, history, is_tainted, keys, reboot};
use crate::bmo_reboot;
use crate::capm3_reuse;

const TEMPLATE: Kind =
    Kind { api_version: REMEDIATION.api_version, kind: "Metal3RemediationTemplate" };

/// A cluster with real managers, `capm3-reuse`, this controller, and hosts that stand-ins install and switch.
struct Stage {
    workload: Workload,
    power: Operator,
    _installer: bmo::StandIn,
    _reuse: crate::in_process::Running,
    _running: crate::in_process::Running,
}

impl Stage {
    async fn new(name: &str, masters: Masters, hosts: u32, policy: Policy) -> Self {
        let management = cluster_api::shared().await;
        let workload = Workload::start(management, name, masters, Provider::Runs).await.unwrap();
        let (client, namespace) = (&workload.management, workload.namespace.clone());
        install_own(client).await;
        let installer = bmo::StandIn::start(client, &namespace);
        let power = Operator::start(client, &workload.client, &namespace);
        for number in 0..hosts {
            let labels = json!({ PLAYED: namespace });
            let host = format!("h{number}");
            bmo::make_host(client, &namespace, &host, &namespace, &labels).await.unwrap();
        }
        let reuse = ::capm3_reuse::settings::Policy::default();
        let (reuse, _) = capm3_reuse::ground::start(management, &namespace, reuse).await;
        let (running, _) = start(management, &namespace, policy).await;
        Self { workload, power, _installer: installer, _reuse: reuse, _running: running }
    }

    async fn create(&self, kind: Kind, object: Value) {
        kind.create(&self.workload.management, &self.workload.namespace, object).await.unwrap();
    }

    fn api(&self, kind: Kind) -> kube::Api<DynamicObject> {
        kind.api(&self.workload.management, &self.workload.namespace)
    }

    async fn workers(&self, replicas: u32) {
        self.create(METAL3_MACHINE_TEMPLATE, metal3_machine_template("image")).await;
        self.create(KUBEADM_CONFIG_TEMPLATE, kubeadm_config_template("join")).await;
        let cluster = &self.workload.cluster;
        let deployment = machine_deployment("workers", cluster, replicas, "image", "join");
        self.create(MACHINE_DEPLOYMENT, deployment).await;
    }

    /// Waits until there are so many Machines, all available; returns the host of each, which from then on has a kubelet
    /// that starts with it.
    async fn available(&self, count: usize) -> BTreeMap<String, String> {
        let all = until(&self.api(MACHINE), &watcher::Config::default(), "available", |all| {
            all.len() == count
                && all.values().all(|it| {
                    let it = serde_json::to_value(it).unwrap();
                    condition(&it, "Available").0 == "True"
                        && it["status"]["nodeRef"]["name"].is_string()
                })
        })
        .await
        .unwrap();
        let mut hosts = BTreeMap::new();
        for (name, machine) in all {
            let metal = machine.data["spec"]["infrastructureRef"]["name"].as_str().unwrap();
            let metal = self.api(METAL3_MACHINE).get(metal).await.unwrap();
            let host = metal.annotations()["metal3.io/BareMetalHost"].clone();
            let host = host.split_once('/').unwrap().1.to_owned();
            let node = machine.data["status"]["nodeRef"]["name"].as_str().unwrap();
            let patch = json!({"metadata": {"annotations": {NODE: node}}});
            let api = bmo::api(&self.workload.management, &self.workload.namespace);
            api.patch(&host, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
            hosts.insert(name, host);
        }
        hosts
    }

    async fn check(&self, pool: &str, strategy: Value) {
        let template =
            TEMPLATE.object("reboot", &json!({"template": {"spec": {"strategy": strategy}}}));
        self.create(TEMPLATE, template).await;
        let cluster = &self.workload.cluster;
        let check = machine_health_check("check", cluster, pool, TEMPLATE, "reboot");
        self.create(MACHINE_HEALTH_CHECK, check).await;
        self.all_healthy().await;
    }

    async fn all_healthy(&self) {
        let checks = self.api(MACHINE_HEALTH_CHECK);
        until_one(&checks, "check", "all healthy", |it| {
            let status = &it.data["status"];
            status["expectedMachines"].as_i64() > Some(0)
                && status["currentHealthy"] == status["expectedMachines"]
        })
        .await
        .unwrap();
    }

    async fn host(&self, name: &str) -> Value {
        let api = bmo::api(&self.workload.management, &self.workload.namespace);
        serde_json::to_value(api.get(name).await.unwrap()).unwrap()
    }

    async fn node_of(&self, machine: &str) -> String {
        let machine = self.api(MACHINE).get(machine).await.unwrap();
        machine.data["status"]["nodeRef"]["name"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_check_has_a_silent_node_power_cycled_and_withdraws_its_request() {
    let stage = Stage::new("rem-recovery", Masters::Given, 1, quick()).await;
    stage.workers(1).await;
    let hosts = stage.available(1).await;
    let (machine, host) = hosts.first_key_value().unwrap();
    stage.check("workers", reboot(3, "300s")).await;
    let node = stage.node_of(machine).await;
    stage.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
    let requests = stage.api(REMEDIATION);
    let all = watcher::Config::default();
    let asked = until(&requests, &all, "a request", |all| !all.is_empty()).await.unwrap();
    assert_eq!(asked.keys().collect::<Vec<_>>(), [machine]);
    until(&requests, &all, "the request withdrawn", BTreeMap::is_empty).await.unwrap();
    let seen = stage.host(host).await;
    let tries = history(&seen);
    assert_eq!(tries[0]["result"], "Recovered", "{tries:?}");
    assert!(keys(&seen).is_empty() && seen["status"]["poweredOn"] == true);
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> =
        kube::Api::all(stage.workload.client.clone());
    assert!(!is_tainted(&nodes.get(&node).await.unwrap()));
    assert_eq!(&stage.available(1).await, &hosts, "the same machine on the same host");
    let machine = serde_json::to_value(stage.api(MACHINE).get(machine).await.unwrap()).unwrap();
    assert_eq!(condition(&machine, "ExternallyRemediated").0, "", "it was followed up");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_too_many_machines_are_unhealthy_for_their_health_check_no_host_is_touched() {
    let stage = Stage::new("rem-circuit", Masters::Given, 2, quick()).await;
    stage.workers(2).await;
    let hosts = stage.available(2).await;
    let mut nodes = Vec::new();
    for machine in hosts.keys() {
        let node = stage.node_of(machine).await;
        stage.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
        nodes.push(node);
    }
    let strategy = json!({"template": {"spec": {"strategy": reboot(1, "300s")}}});
    stage.create(TEMPLATE, TEMPLATE.object("reboot", &strategy)).await;
    let cluster = &stage.workload.cluster;
    let mut check = machine_health_check("check", cluster, "workers", TEMPLATE, "reboot");
    check["spec"]["remediation"]["triggerIf"] = json!({"unhealthyLessThanOrEqualTo": 1});
    stage.create(MACHINE_HEALTH_CHECK, check).await;
    until_one(&stage.api(MACHINE_HEALTH_CHECK), "check", "short of its limit", |it| {
        let it = serde_json::to_value(it).unwrap();
        condition(&it, "RemediationAllowed").0 == "False"
    })
    .await
    .unwrap();
    let requests = stage.api(REMEDIATION);
    assert!(requests.list(&kube::api::ListParams::default()).await.unwrap().items.is_empty());
    for host in hosts.values() {
        assert!(history(&stage.host(host).await).is_empty(), "{host} was touched");
    }
    // One comes back by itself: then the other one's turn has come.
    stage.workload.stand_in.set_ready(&nodes[0], "True").await.unwrap();
    let all = watcher::Config::default();
    let asked = until(&requests, &all, "a request", |all| !all.is_empty()).await.unwrap();
    let second = hosts.keys().nth(1).unwrap();
    assert_eq!(asked.keys().collect::<Vec<_>>(), [second]);
    until(&requests, &all, "the request withdrawn", BTreeMap::is_empty).await.unwrap();
    assert_eq!(history(&stage.host(&hosts[second]).await)[0]["result"], "Recovered");
    let first = hosts.values().next().unwrap();
    assert!(history(&stage.host(first).await).is_empty(), "it was never power-cycled");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_owner_replaces_a_machine_that_does_not_come_back_on_another_host() {
    let stage = Stage::new("rem-exhausted", Masters::Given, 2, quick()).await;
    stage.workers(1).await;
    let before = stage.available(1).await;
    let (machine, host) = before.first_key_value().unwrap();
    stage.check("workers", reboot(1, "3s")).await;
    stage.power.kill(host);
    let node = stage.node_of(machine).await;
    stage.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
    let machines = stage.api(MACHINE);
    until(&machines, &watcher::Config::default(), "another Machine", |all| {
        !all.is_empty() && !all.contains_key(machine)
    })
    .await
    .unwrap();
    let after = stage.available(1).await;
    let (_, new) = after.first_key_value().unwrap();
    assert_ne!(new, host, "the unhealthy host is not taken again");
    let old = stage.host(host).await;
    assert_eq!(old["metadata"]["annotations"]["capi.metal3.io/unhealthy"], "capm3/UnhealthyNode");
    let tries = history(&old);
    assert_eq!(tries.len(), 2, "readable after request and Machine are gone: {tries:?}");
    assert_eq!(tries[1]["result"], "Exhausted");
    // Nobody collects garbage here; nothing of ours keeps it from going.
    for request in stage.api(REMEDIATION).list(&kube::api::ListParams::default()).await.unwrap() {
        assert!(request.finalizers().is_empty(), "{request:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_owner_replaces_a_machine_for_which_a_person_asked_without_any_health_check() {
    let stage = Stage::new("rem-person", Masters::Given, 2, quick()).await;
    stage.workers(1).await;
    let before = stage.available(1).await;
    let (name, host) = before.first_key_value().unwrap();
    stage.power.kill(host);
    let node = stage.node_of(name).await;
    stage.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
    let machines = stage.api(MACHINE);
    let owner = machines.get(name).await.unwrap();
    let mut request = REMEDIATION.object(name, &json!({ "strategy": reboot(0, "3s") }));
    request["metadata"]["ownerReferences"] = json!([{
        "apiVersion": MACHINE.api_version, "kind": MACHINE.kind, "name": name, "uid": owner.uid(),
    }]);
    stage.create(REMEDIATION, request).await;
    until(&machines, &watcher::Config::default(), "another Machine", |all| {
        !all.is_empty() && !all.contains_key(name)
    })
    .await
    .unwrap();
    let after = stage.available(1).await;
    assert_ne!(after.values().next().unwrap(), host, "the unhealthy host is not taken again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_a_control_plane_is_power_cycled_and_in_the_end_left_to_the_rules_of_its_owner()
 {
    let stage = Stage::new("rem-kcp", Masters::Kubeadm, 4, quick()).await;
    stage.create(METAL3_MACHINE_TEMPLATE, metal3_machine_template("image")).await;
    let plane = kubeadm_control_plane(&stage.workload.cluster, 3, "image");
    stage.create(KUBEADM_CONTROL_PLANE, plane).await;
    let before = stage.available(3).await;
    let strategy = json!({"strategy": reboot(0, "20s")});
    let template = TEMPLATE.object("reboot", &json!({"template": {"spec": strategy}}));
    stage.create(TEMPLATE, template).await;
    let mut check =
        machine_health_check("check", &stage.workload.cluster, "none", TEMPLATE, "reboot");
    check["spec"]["selector"] = json!({"matchExpressions": [
        {"key": "cluster.x-k8s.io/control-plane", "operator": "Exists"},
    ]});
    stage.create(MACHINE_HEALTH_CHECK, check).await;
    stage.all_healthy().await;
    let mut machines = before.iter();
    let (returns, host) = machines.next().unwrap();
    let node = stage.node_of(returns).await;
    stage.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
    let requests = stage.api(REMEDIATION);
    let all = watcher::Config::default();
    until(&requests, &all, "a request", |all| all.contains_key(returns)).await.unwrap();
    until(&requests, &all, "the request withdrawn", BTreeMap::is_empty).await.unwrap();
    assert_eq!(history(&stage.host(host).await)[0]["result"], "Recovered");
    let (lost, host) = machines.next().unwrap();
    stage.power.kill(host);
    let node = stage.node_of(lost).await;
    stage.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
    // The owner has taken notice and goes by its own rules: it never removes a member of an etcd that it cannot ask,
    // and that of this cluster is not its own.
    until_one(&stage.api(MACHINE), lost, "left to its owner", |it| {
        let it = serde_json::to_value(it).unwrap();
        condition(&it, "OwnerRemediated") == ("False", "RemediationDeferred")
    })
    .await
    .unwrap();
    let after = stage.api(MACHINE).list(&kube::api::ListParams::default()).await.unwrap();
    assert!(after.iter().all(|it| it.metadata.deletion_timestamp.is_none()), "not ours to delete");
    assert_eq!(stage.host(host).await["spec"]["online"], true, "nor to switch off before that");
    assert_eq!(after.items.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_health_check_with_the_kinds_of_capm3_needs_no_change() {
    let policy = Policy { upstream_group: true, ..quick() };
    let stage = Stage::new("rem-upstream", Masters::Given, 1, policy).await;
    stage.workers(1).await;
    let hosts = stage.available(1).await;
    let (machine, host) = hosts.first_key_value().unwrap();
    stage.create(METAL3_REMEDIATION_TEMPLATE, metal3_remediation_template("reboot")).await;
    let cluster = &stage.workload.cluster;
    let check =
        machine_health_check("check", cluster, "workers", METAL3_REMEDIATION_TEMPLATE, "reboot");
    stage.create(MACHINE_HEALTH_CHECK, check).await;
    stage.all_healthy().await;
    let node = stage.node_of(machine).await;
    stage.workload.stand_in.set_ready(&node, "Unknown").await.unwrap();
    let requests = stage.api(METAL3_REMEDIATION);
    let all = watcher::Config::default();
    until(&requests, &all, "a request", |all| !all.is_empty()).await.unwrap();
    until(&requests, &all, "the request withdrawn", BTreeMap::is_empty).await.unwrap();
    assert_eq!(history(&stage.host(host).await)[0]["result"], "Recovered");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_bmo_reboot_and_a_real_ironic_a_machine_is_cut_off_once_and_switched_on_once() {
    let scene = Scene::new("rem-ironic").await;
    let (ironic, machine, node) = bmo_reboot::machine("remediation").await;
    scene.machine("m", "h").await;
    let label =
        json!({"metadata": {"labels": {PLAYED: "nobody", "ferrite.metal3.io/power": "managed"}}});
    scene.patch_host("h", label).await;
    let api = bmo::api(&scene.client, &scene.namespace);
    let status = json!({"status": {"provisioning": {"ID": node}}});
    api.patch_status("h", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let account = planes().await.management.config("power", &["system:masters"]).await.unwrap();
    let client = kube::Client::try_from(account).unwrap();
    let endpoint = ironic.endpoint.clone();
    let power = bmo_reboot::run(client, scene.namespace.clone(), bmo_reboot::quick(), endpoint);
    let power = tokio::spawn(power);
    let policy = Policy {
        power_off: Duration::from_secs(200),
        power_on: Duration::from_secs(200),
        ..quick()
    };
    let _running = start(&planes().await.management, &scene.namespace, policy).await;
    scene.request("m", reboot(1, "300s")).await;
    let on_again = |it: Option<&Value>| it.unwrap()["status"]["step"] == "recover";
    let request = scene.until(REMEDIATION, "m", "on again", on_again).await;
    assert_eq!(request["status"]["phase"], "waiting");
    let seen = machine.seen().await.unwrap();
    assert_eq!((seen.turned_off(), seen.turned_on()), (1, 2), "{seen:?}");
    assert_eq!(seen.requests("ForceOff"), 1, "hard: {seen:?}");
    super::operator::boot(&scene.workload, &scene.node_of("m")).await;
    scene.says("m", "Recovered").await;
    scene.is_clean("m", "h").await;
    power.abort();
}
