//! Upgrades under load: nothing is done twice, and nobody waits.

mod loads;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bench::bmc::{self, Machine};
use bench::bmo;
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{CONTROLLERS, Cluster, NAMESPACE, images, no_node};
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

/// Looks for pods of controllers that go, for as long as it is polled.
async fn departures(client: Client, gone: Gone) {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let names = format!("app.kubernetes.io/name in ({})", CONTROLLERS.join(","));
    // Not those of the hook.
    let of_controllers = watcher::Config::default().labels(&names);
    let mut changes = std::pin::pin!(watcher(pods, of_controllers));
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

/// A write that the API server has made, by its audit log.
struct Written {
    pod: String,
    verb: String,
    /// With the subresource, if there is one.
    resource: String,
    namespace: String,
    name: String,
    at: Timestamp,
}

/// What pods have written, in order.
fn written(cluster: &Cluster) -> Vec<Written> {
    let text = std::fs::read_to_string(cluster.plane.audit_log()).unwrap();
    let mut writes = Vec::new();
    for line in text.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let (of, verb) = (&entry["objectRef"], text(&entry["verb"]));
        let pod = text(&entry["user"]["extra"]["authentication.kubernetes.io/pod-name"][0]);
        let made = entry["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300);
        if made && !pod.is_empty() && ["create", "patch", "update", "delete"].contains(&&*verb) {
            let parts = [text(&of["resource"]), text(&of["subresource"])];
            writes.push(Written {
                pod,
                verb,
                resource: parts.join("/").trim_end_matches('/').to_owned(),
                namespace: text(&of["namespace"]),
                name: text(&of["name"]),
                // When it came, not when it was answered: who gives a lease back may have that answered after the next one
                // has taken it.
                at: text(&entry["requestReceivedTimestamp"]).parse().unwrap(),
            });
        }
    }
    writes.sort_by_key(|it| it.at);
    writes
}

impl Cluster {
    /// The next release, as far as the cluster can tell.
    fn import_twice(&self, image: &bench::image::Written) {
        self.node.import(&image.archive).unwrap();
        let (repository, _) = image.reference.rsplit_once(':').unwrap();
        self.node.tag(&image.reference, &format!("{repository}:next")).unwrap();
    }

    /// Upgrades a controller and takes it back, and waits until both pods have gone.
    async fn upgrade_and_back(&self, controller: &str, values: &[&str], gone: &Gone) {
        for more in [&["--set", "image.tag=next"][..], &[]] {
            let mut upgrade = self.helm("upgrade", controller);
            upgrade.args(values).args(more);
            self.run(upgrade, controller).await;
        }
        let deadline = Instant::now() + PATIENCE;
        let of_it = |name: &&String| name.starts_with(controller);
        while gone.lock().unwrap().keys().filter(of_it).count() < 2 {
            if Instant::now() > deadline {
                let pods = self.pods(controller).await;
                let seen = gone.lock().unwrap().clone();
                let told = self.what_became_of(controller).await;
                panic!("the old pods of {controller} do not end: {seen:?}\n{pods:#?}\n{told}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Three pods held the lease one after the other, and nobody waited long for the next one.
fn without_gap(cluster: &Cluster, writes: &[Written], controller: &str) {
    let lease = format!("ferrite-{controller}");
    let of_it = |it: &&Written| it.resource == "leases" && (it.name == lease || it.name.is_empty());
    let of_it = |it: &&Written| of_it(it) && it.pod.starts_with(controller);
    let writes: Vec<&Written> = writes.iter().filter(of_it).collect();
    let mut leaders = 1;
    for pair in writes.windows(2) {
        let [old, new] = pair else { continue };
        if old.pod != new.pod {
            let gap = new.at.duration_since(old.at);
            assert!(
                gap.as_secs_f64() < LONGEST_GAP.as_secs_f64(),
                "{} to {}: {gap}\n{}",
                old.pod,
                new.pod,
                requests_for(cluster, &lease)
            );
            eprintln!("the lease went from {} to {} in {gap:#}", old.pod, new.pod);
            leaders += 1;
        }
    }
    assert_eq!(leaders, 3, "{controller}: installed, upgraded, and back");
}

/// What was asked of a lease, also in vain, for a failure message.
fn requests_for(cluster: &Cluster, lease: &str) -> String {
    let text = std::fs::read_to_string(cluster.plane.audit_log()).unwrap();
    let mut told = String::new();
    for line in text.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let of = &entry["objectRef"];
        if of["resource"] == "leases" && (of["name"] == lease || entry["verb"] == "create") {
            let (pod, code) = (&entry["user"]["extra"], &entry["responseStatus"]["code"]);
            let pod = &pod["authentication.kubernetes.io/pod-name"][0];
            let [from, to] = ["requestReceivedTimestamp", "stageTimestamp"].map(|it| &entry[it]);
            writeln!(told, "{from} to {to} {pod} {} {code}", entry["verb"]).unwrap();
        }
    }
    told
}

/// Every pod that was replaced ended by itself, in time.
fn ended_by_themselves(gone: &Gone) {
    for (pod, (took, code)) in gone.lock().unwrap().iter() {
        eprintln!("{pod} ended after {took:.1} s with {code}");
        assert!(*took < 90.0, "{pod} needed {took} s");
        assert_eq!(*code, 0, "{pod} did not end by itself");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_under_load_does_nothing_twice_and_leaves_no_gap() {
    if no_node("pods::upgrade::an_upgrade_under_load_does_nothing_twice_and_leaves_no_gap").await {
        return;
    }
    let images = images().await;
    let image = images.iter().find(|image| image.reference.contains("bmo-reboot")).unwrap();
    let cluster = Cluster::start().await;
    cluster.import_twice(image);
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
        cluster.upgrade_and_back("bmo-reboot", &[], &gone).await;
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
    without_gap(&cluster, &written(&cluster), "bmo-reboot");
    ended_by_themselves(&gone);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "seconds count, so `cargo xtask test` runs it after the others, with the machine to itself"]
async fn upgrades_of_the_other_four_under_load_do_nothing_twice_and_leave_no_gap() {
    if no_node(
        "pods::upgrade::upgrades_of_the_other_four_under_load_do_nothing_twice_and_leave_no_gap",
    )
    .await
    {
        return;
    }
    let images = images().await;
    let cluster = Cluster::start().await;
    let others: Vec<(&str, &[&str])> = vec![
        ("capm3-reuse", &[]),
        ("clusterpool-inventory", &[]),
        ("host-discovery", &["--set", "settings.pollInterval=1s"]),
        ("remediation", &[]),
    ];
    for (controller, _) in &others {
        let of_it = |image: &&bench::image::Written| image.reference.contains(controller);
        cluster.import_twice(images.iter().find(of_it).unwrap());
    }
    let install = others.iter().map(async |(controller, values)| {
        let mut install = cluster.helm("install", controller);
        install.args(*values);
        cluster.run(install, controller).await;
    });
    futures_util::future::join_all(install).await;

    let gone = Gone::default();
    let departures = tokio::spawn(departures(cluster.client.clone(), Arc::clone(&gone)));
    let loads = loads::Loads::new(&cluster).await;
    let enough = AtomicBool::new(false);
    let changes = async {
        // Only once the load is really on.
        loads.each_has_begun().await;
        let changes = others
            .iter()
            .map(|(controller, values)| cluster.upgrade_and_back(controller, values, &gone));
        futures_util::future::join_all(changes).await;
        enough.store(true, Ordering::Relaxed);
    };
    let all = async { tokio::join!(loads.until(&enough), changes) };
    if let Err(failure) = AssertUnwindSafe(all).catch_unwind().await {
        for (controller, _) in &others {
            eprintln!("{controller}:\n{}", cluster.what_became_of(controller).await);
        }
        std::panic::resume_unwind(failure);
    }
    departures.abort();

    // An object can be read before the answer of who wrote it is in the log.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes = written(&cluster);
    loads.nothing_was_done_twice(&writes).await;
    ended_by_themselves(&gone);
    for (controller, _) in &others {
        without_gap(&cluster, &writes, controller);
    }
}
