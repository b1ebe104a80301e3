//! What the four others are busy with while they are upgraded: one thing after the other, each waited for.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api_types::names;
use bench::agent::Agent;
use bench::cluster_api::objects::{MACHINE, METAL3_MACHINE};
use bench::ironic::Ironic;
use bench::node::Node;
use bench::{bmo, crds, hive};
use controller_kit::crd;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Cluster, Written};
use crate::bmo_reboot::PATIENCE;
use crate::played::{DISCOVERY, ENTRY, HOST, Played, REMEDIATION, requests_of};
use crate::remediation::operator::boot;

/// Numbers of machines that nobody else has.
const MACHINES: u32 = 0xe0_0000;

/// How often each of the four is replaced.
const UPGRADES: usize = 2;

/// Something that is done again and again in a namespace of its own, and how often it was.
struct Load {
    at: Played,
    done: AtomicUsize,
}

/// All four.
pub(super) struct Loads {
    ironic: &'static Ironic,
    claims: Load,
    recoveries: Load,
    hosts: Load,
    pools: Load,
}

impl Loads {
    pub(super) async fn new(cluster: &Cluster) -> Self {
        let (client, plane) = (&cluster.client, &cluster.plane);
        crd::extend(client, &bmo_reboot::settings::needed(), false).await.unwrap();
        crds::settled(client).await.unwrap();
        let load = async |name: &str| Load {
            at: Played { client: client.clone(), namespace: plane.namespace(name).await },
            done: AtomicUsize::new(0),
        };
        let loads = Self {
            ironic: cluster.ironic,
            claims: load("claims").await,
            recoveries: load("recoveries").await,
            hosts: load("racks").await,
            pools: load("pools").await,
        };
        // As pods reach it. Nodes have no namespaces, and an API server more would change nothing.
        let kubeconfig = plane.kubeconfig_text("admin", &["system:masters"]).unwrap();
        let inside = format!("https://{}:443", Node::ADDRESS);
        let kubeconfig = kubeconfig.replace(&plane.url, &inside);
        loads.claims.at.cluster(&kubeconfig).await;
        loads.recoveries.at.cluster(&kubeconfig).await;
        let spec = json!({ "resourceNameTemplate": { "hardwareDetails": "hostname" } });
        loads.hosts.at.create(DISCOVERY, DISCOVERY.object("racks", &spec)).await;
        loads.pools.at.materials().await;
        loads
    }

    /// Goes on until told otherwise, and ends what was begun.
    pub(super) async fn until(&self, enough: &AtomicBool) {
        tokio::join!(
            self.claims.repeat(enough, |at, n| self.claim(at, n)),
            self.recoveries.repeat(enough, |at, n| self.recovery(at, n)),
            self.hosts.repeat(enough, |at, n| self.discovery(at, n)),
            self.pools.repeat(enough, |at, n| self.lease(at, n)),
        );
    }

    pub(super) async fn each_has_begun(&self) {
        let deadline = Instant::now() + PATIENCE;
        for load in [&self.claims, &self.recoveries, &self.hosts, &self.pools] {
            while load.done.load(Ordering::Relaxed) == 0 {
                assert!(Instant::now() < deadline, "{}: nothing was done", load.at.namespace);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    pub(super) async fn nothing_was_done_twice(&self, writes: &[Written]) {
        let of = |load: &Load, verb: &str, resource: &str, name: &str| {
            let is = |it: &&Written| {
                it.verb == verb
                    && it.resource == resource
                    && it.namespace == load.at.namespace
                    && (name.is_empty() || it.name == name)
            };
            writes.iter().filter(is).count()
        };
        // Each was waited for until it was seen to be done. A process that goes may leave without its last answer, and such a
        // request has no code in the log.
        let once = |counts: Vec<usize>, what: &str| {
            assert!(counts.iter().all(|it| *it <= 1), "{what} twice: {counts:?}");
            let seen: usize = counts.iter().sum();
            assert!(seen + UPGRADES >= counts.len(), "{what}, {seen} of {}", counts.len());
        };
        let claimed = |number| of(&self.claims, "patch", "baremetalhosts", &format!("h-{number}"));
        let claimed = (0..self.claims.times()).map(claimed).collect();
        once(claimed, "a host is claimed and told its image in one write");
        for number in 0..self.recoveries.times() {
            let host = self.recoveries.at.get(HOST, &format!("h-{number}")).await.unwrap();
            let history = host["metadata"]["annotations"][names::ferrite::REMEDIATION_HISTORY]
                .as_str()
                .unwrap_or("[]");
            let tries: Vec<Value> = serde_json::from_str(history).unwrap();
            assert_eq!(tries.len(), 1, "h-{number} was held once: {history}");
        }
        // Ironic is not this story's alone: what others discover meanwhile becomes a host, too.
        let hosts = self.hosts.at.list(HOST).await;
        let node = |it: &Value| it["metadata"]["annotations"][names::ferrite::NODE_ID].to_string();
        let machines: BTreeSet<String> = hosts.iter().map(node).collect();
        assert!(machines.len() >= self.hosts.times(), "{machines:?}");
        assert_eq!(hosts.len(), machines.len(), "one host per machine");
        // One more may have been discovered since the writes were read.
        let made = of(&self.hosts, "create", "baremetalhosts", "");
        assert!(made <= hosts.len(), "{made} hosts were made and {} are there", hosts.len());
        let entries = self.pools.times();
        let made = |it: &&Written| it.verb == "create" && it.resource == "clusterdeployments";
        let made = writes.iter().filter(made).count();
        assert!(
            made <= entries && made + UPGRADES >= entries,
            "{made} clusters, {entries} entries"
        );
        let leased = |number| {
            let resource = "clusterdeploymentcustomizations/status";
            of(&self.pools, "patch", resource, &format!("e{number}"))
        };
        once((0..entries).map(leased).collect(), "an entry is leased");
    }

    /// A machine comes, and gets the one free host.
    async fn claim(&self, at: &Played, number: usize) {
        let host = format!("h-{number}");
        bmo::make_host(&at.client, &at.namespace, &host, "nobody", &json!({})).await.unwrap();
        at.machine(&format!("m-{number}"), None).await;
        let told = |host: &Value| {
            !host["spec"]["consumerRef"].is_null() && !host["spec"]["image"].is_null()
        };
        at.until(HOST, &host, "claimed", told).await;
    }

    /// A machine fails and comes back; this plays the operator of power, and the kubelet.
    async fn recovery(&self, at: &Played, number: usize) {
        let (machine, host) = (format!("m-{number}"), format!("h-{number}"));
        let node = format!("{}-{number}", at.namespace);
        let metal = at.machine(&machine, None).await;
        at.patch_status(MACHINE, &machine, json!({ "nodeRef": { "name": node } })).await;
        boot(&at.client, &node).await;
        let spec = json!({
            "online": true,
            "bmc": { "address": "redfish://bmc", "credentialsName": "secret" },
            "image": { "url": "http://i/i" },
            "consumerRef": {
                "apiVersion": METAL3_MACHINE.api_version, "kind": METAL3_MACHINE.kind,
                "name": machine, "namespace": at.namespace, "uid": metal.metadata.uid,
            },
        });
        at.create(HOST, HOST.object(&host, &spec)).await;
        let mut status = json!({
            "poweredOn": true, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
            "provisioningFailCount": 0,
            "provisioning": {
                "state": "provisioned", "ID": "played", "image": { "url": "http://i/i" },
            },
        });
        at.patch_status(HOST, &host, status.clone()).await;
        // Whose host it is, capm3-reuse reads from the host.
        let names = |it: &Value| it["metadata"]["annotations"][names::metal3::HOST].is_string();
        at.until(METAL3_MACHINE, &machine, "told its host", names).await;
        at.request(&machine).await;

        let is_held = |host: &Value| !requests_of(host).is_empty();
        at.until(HOST, &host, "held", is_held).await;
        // Whole seconds, and not before it was asked.
        let asked = Timestamp::from_second(Timestamp::now().as_second() + 1).unwrap();
        status["poweredOn"] = json!(false);
        status["provisioning"]["pendingRebootSince"] = json!(asked.to_string());
        at.patch_status(HOST, &host, status.clone()).await;
        at.until(HOST, &host, "let go", |host| !is_held(host)).await;
        status["poweredOn"] = json!(true);
        let on = asked + SignedDuration::from_secs(1);
        status["provisioning"]["lastPoweredOn"] = json!(on.to_string());
        at.patch_status(HOST, &host, status).await;
        boot(&at.client, &node).await;
        let done = |it: &Value| it["status"]["step"] == "done";
        at.until(REMEDIATION, &machine, "done", done).await;
    }

    /// A machine is switched on for the first time, and becomes a host.
    async fn discovery(&self, at: &Played, number: usize) {
        let agent = Agent::new(MACHINES + u32::try_from(number).unwrap());
        let (status, body) = agent.post(self.ironic).await.unwrap();
        let node = body["uuid"].as_str().unwrap_or_else(|| panic!("{status} {body}"));
        let deadline = Instant::now() + PATIENCE;
        let of_node =
            |host: &Value| host["metadata"]["annotations"][names::ferrite::NODE_ID] == *node;
        while !at.list(HOST).await.iter().any(of_node) {
            assert!(Instant::now() < deadline, "{node} becomes no host");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// One entry more, and one cluster more.
    async fn lease(&self, at: &Played, number: usize) {
        at.entry(number).await;
        let leased = |it: &Value| it["status"]["clusterDeploymentRef"]["name"].is_string();
        let entry = at.until(ENTRY, &format!("e{number}"), "leased", leased).await;
        let cluster = entry["status"]["clusterDeploymentRef"]["name"].as_str().unwrap();
        let clusters = hive::api(&at.client, cluster, "ClusterDeployment");
        let deadline = Instant::now() + PATIENCE;
        while clusters.get_opt(cluster).await.unwrap().is_none() {
            assert!(Instant::now() < deadline, "{cluster} is never made");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Load {
    fn times(&self) -> usize {
        let times = self.done.load(Ordering::Relaxed);
        eprintln!("{}: {times} times", self.at.namespace);
        times
    }

    /// Does it again and again; one that was begun is ended.
    async fn repeat<'a, F>(&'a self, enough: &AtomicBool, act: impl Fn(&'a Played, usize) -> F)
    where
        F: Future<Output = ()>,
    {
        while !enough.load(Ordering::Relaxed) {
            act(&self.at, self.done.load(Ordering::Relaxed)).await;
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}
