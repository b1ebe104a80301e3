//! Rollouts as Cluster API's own managers drive them: who gets whose host.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bench::bmo;
use bench::cluster_api::objects::{
    KUBEADM_CONFIG_TEMPLATE, KUBEADM_CONTROL_PLANE, MACHINE, MACHINE_DEPLOYMENT, METAL3_MACHINE,
    METAL3_MACHINE_TEMPLATE, kubeadm_config_template, kubeadm_control_plane, machine_deployment,
    metal3_machine_template,
};
use bench::cluster_api::{self, Masters, Provider, Workload, until};
use bench::observer::{Observer, World};
use capm3_reuse::settings::Policy;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::ground::start;
use super::scene::{condition, consumer, host_of};

/// A cluster with real managers, this controller, and hosts that a stand-in installs.
pub(super) struct Stage {
    pub(super) workload: Workload,
    observer: Observer,
    _operator: bmo::StandIn,
    _running: crate::in_process::Running,
}

impl Stage {
    pub(super) async fn new(name: &str, masters: Masters, hosts: u32, policy: Policy) -> Self {
        let management = cluster_api::shared().await;
        let workload = Workload::start(management, name, masters, Provider::Runs).await.unwrap();
        let (client, namespace) = (&workload.management, workload.namespace.clone());
        let operator = bmo::StandIn::start(client, &namespace);
        for number in 0..hosts {
            let host = format!("h{number}");
            bmo::make_host(client, &namespace, &host, &namespace, &json!({})).await.unwrap();
        }
        let observer = Observer::start(client, Some(&namespace), &[bmo::hosts()]).await.unwrap();
        let (running, _) = start(management, &namespace, policy).await;
        Self { workload, observer, _operator: operator, _running: running }
    }

    pub(super) async fn template(&self, name: &str, reuse: bool) {
        let mut template = metal3_machine_template(name);
        template["spec"]["nodeReuse"] = json!(reuse);
        let (client, namespace) = (&self.workload.management, &self.workload.namespace);
        METAL3_MACHINE_TEMPLATE.create(client, namespace, template).await.unwrap();
    }

    pub(super) async fn workers(&self, replicas: u32, surge: u32) {
        let (client, namespace) = (&self.workload.management, &self.workload.namespace);
        KUBEADM_CONFIG_TEMPLATE
            .create(client, namespace, kubeadm_config_template("join"))
            .await
            .unwrap();
        let mut deployment =
            machine_deployment("workers", &self.workload.cluster, replicas, "image-1", "join");
        deployment["spec"]["rollout"]["strategy"]["rollingUpdate"] =
            json!({"maxSurge": surge, "maxUnavailable": 1 - surge});
        MACHINE_DEPLOYMENT.create(client, namespace, deployment).await.unwrap();
    }

    pub(super) async fn next_template(
        &self,
        kind: bench::cluster_api::objects::Kind,
        name: &str,
        patch: Value,
    ) {
        let api = kind.api(&self.workload.management, &self.workload.namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Waits until there are so many machines, all available and of this template; returns the host of each.
    pub(super) async fn available(&self, count: usize, template: &str) -> BTreeMap<String, String> {
        let (client, namespace) = (&self.workload.management, &self.workload.namespace);
        let metal = METAL3_MACHINE.api(client, namespace);
        let cloned = |it: &DynamicObject| {
            let from = it.metadata.annotations.as_ref();
            from.and_then(|it| it.get("cluster.x-k8s.io/cloned-from-name"))
                .is_some_and(|it| it == template)
        };
        let found = until(&metal, &watcher::Config::default(), "machines of the template", |all| {
            all.len() == count
                && all.values().all(|it| {
                    cloned(it) && condition(it, "Ready").is_some_and(|it| it["status"] == "True")
                })
        })
        .await
        .unwrap();
        let machines = MACHINE.api(client, namespace);
        until(&machines, &watcher::Config::default(), "Machines available", |all| {
            all.len() == count
                && all
                    .values()
                    .all(|it| condition(it, "Available").is_some_and(|it| it["status"] == "True"))
        })
        .await
        .unwrap();
        found.into_iter().map(|(name, it)| (name, host_of(&it))).collect()
    }

    /// From the moment that it is cleared a host is its owner's or a machine's, and never free for others.
    pub(super) async fn never_free_once_installed(&self) {
        let history = self.observer.history(&[]).await.unwrap();
        let kept = bench::observer::Invariant::new(
            "a host that was installed is never free",
            |world: &World| {
                let installed = |it: &&DynamicObject| !it.data["status"]["hardware"].is_null();
                match world.values().filter(installed).find(|it| consumer(it).is_empty()) {
                    Some(host) => Err(format!("{:?} is free", host.metadata.name)),
                    None => Ok(()),
                }
            },
        );
        let broken = history.check(&[kept]);
        assert!(broken.is_none(), "{}", broken.map(|it| it.to_string()).unwrap_or_default());
    }
}

fn set(hosts: &BTreeMap<String, String>) -> BTreeSet<&String> {
    hosts.values().collect()
}

#[tokio::test]
async fn a_deployment_that_rolls_without_surge_gets_its_own_hosts_back() {
    let stage = Stage::new("reuse-md", Masters::Given, 4, Policy::default()).await;
    stage.template("image-1", true).await;
    stage.workers(2, 0).await;
    let first = stage.available(2, "image-1").await;
    stage.template("image-2", true).await;
    let next = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": "image-2"}}}}});
    stage.next_template(MACHINE_DEPLOYMENT, "workers", next).await;
    let second = stage.available(2, "image-2").await;
    assert!(first.keys().all(|old| !second.contains_key(old)), "every machine was replaced");
    assert_eq!(set(&first), set(&second));
    stage.never_free_once_installed().await;
}

#[tokio::test]
async fn a_deployment_that_rolls_with_surge_takes_one_host_more_and_then_those_that_it_freed() {
    let quick = Policy { reservation_grace: Duration::from_secs(5), ..Policy::default() };
    let stage = Stage::new("reuse-surge", Masters::Given, 4, quick).await;
    stage.template("image-1", true).await;
    stage.workers(2, 1).await;
    let first = stage.available(2, "image-1").await;
    stage.template("image-2", true).await;
    let next = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": "image-2"}}}}});
    stage.next_template(MACHINE_DEPLOYMENT, "workers", next).await;
    let second = stage.available(2, "image-2").await;
    let again = set(&first).intersection(&set(&second)).count();
    assert_eq!(again, 1, "{first:?} {second:?}");
    // The one that nobody came for is free in the end.
    let hosts = bmo::api(&stage.workload.management, &stage.workload.namespace);
    until(&hosts, &watcher::Config::default(), "nothing kept", |all| {
        all.values().all(|it| !consumer(it).starts_with("MachineDeployment/"))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_control_plane_that_rolls_gets_its_own_hosts_back_one_by_one() {
    let stage = Stage::new("reuse-kcp", Masters::Kubeadm, 5, Policy::default()).await;
    stage.template("image-1", true).await;
    let (client, namespace) = (&stage.workload.management, &stage.workload.namespace);
    let mut plane = kubeadm_control_plane(&stage.workload.cluster, 3, "image-1");
    plane["spec"]["rollout"] =
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}});
    KUBEADM_CONTROL_PLANE.create(client, namespace, plane).await.unwrap();
    let first = stage.available(3, "image-1").await;
    stage.template("image-2", true).await;
    let next =
        json!({"spec": {"machineTemplate": {"spec": {"infrastructureRef": {"name": "image-2"}}}}});
    stage.next_template(KUBEADM_CONTROL_PLANE, &stage.workload.cluster, next).await;
    let second = stage.available(3, "image-2").await;
    assert_eq!(set(&first), set(&second));
    stage.never_free_once_installed().await;
}
