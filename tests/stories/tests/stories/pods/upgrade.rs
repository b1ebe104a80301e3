//! An upgrade while hosts are being rebooted: nothing is done twice, and nobody waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bench::bmc::{self, Machine};
use bench::bmo;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{Cluster, NAMESPACE, images, no_node};
use crate::bmo_reboot::{HARD, PATIENCE, PLAIN, keys, record, stamps, switch};

const HOSTS: usize = 4;

/// Longer than this nobody is to wait for a leader.
const LONGEST_GAP: Duration = Duration::from_secs(2);

/// A host that is rebooted again and again.
struct Host {
    name: String,
    machine: Machine,
    api: Api<DynamicObject>,
}

impl Host {
    async fn new(cluster: &Cluster, number: usize) -> Self {
        let machine = bmc::spare().await.unwrap();
        let name = format!("upgrade-{number}");
        let node = cluster.ironic.enroll(&name, &machine).await.unwrap();
        switch(cluster.ironic, &node, "power on").await;
        let host: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": {"name": name, "labels": {"ferrite.metal3.io/power": "managed"}},
            "spec": {
                "online": true,
                "bmc": {"address": "redfish://bmc", "credentialsName": "secret"},
                "image": {"url": "http://images/one"},
            },
        }))
        .unwrap();
        let status = json!({"status": {
            "poweredOn": true,
            "operationalStatus": "OK",
            "errorMessage": "",
            "errorCount": 0,
            "provisioningFailCount": 0,
            "provisioning": {
                "ID": node, "state": "provisioned", "image": {"url": "http://images/one"},
            },
        }});
        let api = bmo::api(&cluster.client, "default");
        api.create(&PostParams::default(), &host).await.unwrap();
        let params = PatchParams::default();
        api.patch_status(&name, &params, &Patch::Merge(&status)).await.unwrap();
        Self { name, machine, api }
    }

    async fn seen(&self) -> Value {
        serde_json::to_value(self.api.get(&self.name).await.unwrap()).unwrap()
    }

    /// Asks for a reboot and waits for its end.
    async fn reboot(&self) {
        let asked = stamps(&self.seen().await).1;
        let patch = json!({"metadata": {"annotations": {(PLAIN): HARD}}});
        let params = PatchParams::default();
        self.api.patch(&self.name, &params, &Patch::Merge(&patch)).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let host = self.seen().await;
            let on = host["status"]["poweredOn"] == true && record(&host).0 == "Completed";
            if on && stamps(&host).1 > asked && keys(&host).is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{} was never rebooted: {host:#}", self.name);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn turned_off(&self, times: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.machine.seen().await.unwrap().turned_off() < times {
            assert!(Instant::now() < deadline, "{} was never switched off", self.name);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Reboots it until told otherwise: how often it was.
    async fn reboot_until(&self, enough: &AtomicBool) -> usize {
        let mut count = 0;
        while !enough.load(Ordering::Relaxed) {
            self.reboot().await;
            count += 1;
        }
        count
    }
}

/// Pods that have gone, by name: the seconds that it took them, and their exit code.
type Gone = Arc<Mutex<BTreeMap<String, (f64, i32)>>>;

/// Looks for pods that go, for as long as it is polled.
async fn departures(client: Client, gone: Gone) {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    // Not those of the hook.
    let of_controller = watcher::Config::default().labels("app.kubernetes.io/name=bmo-reboot");
    let mut changes = std::pin::pin!(watcher(pods, of_controller));
    while let Some(change) = changes.next().await {
        let Ok(watcher::Event::Delete(pod)) = change else { continue };
        let asked = pod.metadata.deletion_timestamp.as_ref().unwrap().0;
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
        let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let ended = status.and_then(|all| all[0].state.as_ref()?.terminated.as_ref());
        // The stamp is the end of the grace period.
        let took = Timestamp::now().duration_since(asked).as_secs_f64() + grace as f64;
        let code = ended.map_or(-1, |ended| ended.exit_code);
        gone.lock().unwrap().insert(pod.name_any(), (took, code));
    }
}

/// When pods wrote to the lease, by the audit log: the name of the pod with the time of each write, in order.
fn lease_writes(cluster: &Cluster) -> Vec<(String, Timestamp)> {
    let text = std::fs::read_to_string(cluster.plane.audit_log()).unwrap();
    let mut writes = Vec::new();
    for line in text.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let lease = &entry["objectRef"];
        let pod = &entry["user"]["extra"]["authentication.kubernetes.io/pod-name"][0];
        if lease["resource"] == "leases"
            && lease["name"] == "ferrite-bmo-reboot"
            && ["create", "patch"].iter().any(|verb| entry["verb"] == *verb)
            && entry["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300)
        {
            let time = entry["stageTimestamp"].as_str().unwrap().parse().unwrap();
            writes.push((pod.as_str().unwrap_or_default().to_owned(), time));
        }
    }
    writes.sort_by_key(|(_, time)| *time);
    writes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_under_load_does_nothing_twice_and_leaves_no_gap() {
    if no_node("pods::upgrade::an_upgrade_under_load_does_nothing_twice_and_leaves_no_gap").await {
        return;
    }
    let images = images().await;
    let image = images.iter().find(|image| image.reference.contains("bmo-reboot")).unwrap();
    let cluster = Cluster::start().await;
    cluster.node.import(&image.archive).unwrap();
    // The next release, as far as the cluster can tell.
    let (repository, _) = image.reference.rsplit_once(':').unwrap();
    cluster.node.tag(&image.reference, &format!("{repository}:next")).unwrap();
    cluster.run(cluster.helm("install", "bmo-reboot"), "bmo-reboot").await;

    let gone = Gone::default();
    let departures = tokio::spawn(departures(cluster.client.clone(), Arc::clone(&gone)));
    let mut hosts = Vec::new();
    for number in 0..HOSTS {
        hosts.push(Host::new(&cluster, number).await);
    }
    let mut before = Vec::new();
    for host in &hosts {
        before.push(host.machine.seen().await.unwrap());
    }
    let enough = AtomicBool::new(false);
    let load = futures_util::future::join_all(hosts.iter().map(|host| host.reboot_until(&enough)));
    let changes = async {
        // Only once the load is really on.
        hosts[0].turned_off(before[0].turned_off() + 1).await;
        let mut upgrade = cluster.helm("upgrade", "bmo-reboot");
        upgrade.args(["--set", "image.tag=next"]);
        cluster.run(upgrade, "bmo-reboot").await;
        // And back.
        cluster.run(cluster.helm("upgrade", "bmo-reboot"), "bmo-reboot").await;
        let deadline = Instant::now() + PATIENCE;
        while gone.lock().unwrap().len() < 2 {
            assert!(Instant::now() < deadline, "the old pods do not end");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        enough.store(true, Ordering::Relaxed);
    };
    let (counts, ()) = tokio::join!(load, changes);
    departures.abort();

    eprintln!("reboots of each host meanwhile: {counts:?}");
    for ((host, count), before) in hosts.iter().zip(counts).zip(before) {
        let seen = host.machine.seen().await.unwrap();
        let off = seen.turned_off() - before.turned_off();
        let on = seen.turned_on() - before.turned_on();
        assert_eq!((off, on), (count, count), "{} was asked {count} times: {seen:?}", host.name);
        let asked = seen.requests("ForceOff") - before.requests("ForceOff");
        assert_eq!(asked, count, "{}: its power was cut more than once for a request", host.name);
    }
    let writes = lease_writes(&cluster);
    let mut leaders = 1;
    for pair in writes.windows(2) {
        let ((old, released), (new, taken)) = (&pair[0], &pair[1]);
        if old != new {
            let gap = taken.duration_since(*released);
            assert!(gap.as_secs_f64() < LONGEST_GAP.as_secs_f64(), "{old} to {new}: {gap}");
            eprintln!("the lease went from {old} to {new} in {gap:#}");
            leaders += 1;
        }
    }
    assert_eq!(leaders, 3, "installed, upgraded, and back: {writes:?}");
    for (pod, (took, code)) in gone.lock().unwrap().iter() {
        eprintln!("{pod} ended after {took:.1} s with {code}");
        assert!(*took < 90.0, "{pod} needed {took} s");
        assert_eq!(*code, 0, "{pod} did not end by itself");
    }
}
