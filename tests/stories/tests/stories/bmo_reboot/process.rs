//! The real program: credentials that are wrong, a CRD without the stamps, and leaders that are killed at their work.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bench::cache::RunDir;
use bench::control_plane::ControlPlane;
use bench::crds::{Group, install};
use bench::ironic::{self, secured};
use bench::process::{Service, answers, free_port};
use bench::proxy::{Fault, Proxy, power_changes};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::{HARD, PATIENCE, PLAIN, Site, record, switch};
use crate::in_process::program;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

async fn until(what: &str, look: impl AsyncFn() -> Option<String>) {
    let deadline = Instant::now() + PATIENCE;
    while let Some(seen) = look().await {
        assert!(Instant::now() < deadline, "never {what}: {seen}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn read(url: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    match client.get(url).send().await {
        Ok(answer) => answer.text().await.unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

/// Waits until a probe says this.
async fn says(url: &str, wanted: &str) {
    let look = async || {
        let said = read(url).await;
        (!said.contains(wanted)).then_some(said)
    };
    until(wanted, look).await;
}

/// The login of Ironic as the operator's chart mounts it.
fn login(root: &Path, password: &str) {
    let folder = root.join("ironic");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("username"), "admin").unwrap();
    std::fs::write(folder.join("password"), password).unwrap();
}

/// The program as one of several replicas, on a lease that soon runs out.
async fn replica(site: &Site, ironic: &Proxy, name: &str, dir: &RunDir) -> Service {
    Service::start(name, replica_of(site, ironic).await, dir.path()).unwrap()
}

async fn replica_of(site: &Site, ironic: &Proxy) -> Command {
    let kubeconfig = crate::in_process::kubeconfig(site.plane, &site.user).await;
    let mut command = Command::new(program("bmo-reboot"));
    command
        .args(["--lease-duration=3s", "--renew-deadline=2s", "--retry-period=500ms"])
        .env("KUBECONFIG", &kubeconfig)
        .env("IRONIC_ENDPOINT", &ironic.endpoint)
        .env("FERRITE_NAMESPACES", &site.namespace)
        .env("FERRITE_LEASE_NAMESPACE", site.user.split(':').nth(2).unwrap())
        .env("FERRITE_LISTEN", format!("127.0.0.1:{}", free_port()));
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_are_told_by_check_probe_and_condition_and_right_ones_are_taken_up() {
    let site = Site::new("credentials").await;
    let ironic = secured().await;
    let node = ironic.enroll_fake("credentials").await.unwrap();
    switch(ironic, &node, "power on").await;
    let dir = RunDir::new("credentials").unwrap();
    login(dir.path(), "wrong");
    let kubeconfig = crate::in_process::kubeconfig(site.plane, &site.user).await;
    let listen = format!("127.0.0.1:{}", free_port());
    let command = || {
        let mut command = Command::new(program("bmo-reboot"));
        command
            .env("KUBECONFIG", &kubeconfig)
            .env("IRONIC_ENDPOINT", &ironic.endpoint)
            .env("IRONIC_INSECURE", "true")
            .env("METAL3_AUTH_ROOT_DIR", dir.path())
            .env("FERRITE_NAMESPACES", &site.namespace)
            .env("FERRITE_LEADER_ELECT", "false")
            .env("FERRITE_LISTEN", &listen);
        command
    };
    let checked = command().arg("check").output().unwrap();
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    assert!(text(&checked).contains("METAL3_AUTH_ROOT_DIR"), "{}", text(&checked));

    let asked = json!({ "metadata": { "annotations": { PLAIN: HARD } } });
    site.host("h", &node, asked).await;
    let _service = Service::start("bmo-reboot", command(), dir.path()).unwrap();
    says(&format!("http://{listen}/readyz"), "METAL3_AUTH_ROOT_DIR").await;
    let host = site.wait("h", "waiting", |host| record(host).0 == "IronicUnreachable").await;
    assert!(record(&host).1.contains("METAL3_AUTH_ROOT_DIR"), "{host:#}");
    login(dir.path(), "right");
    site.cycled("h").await;
    let checked = command().arg("check").output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_crd_that_has_no_conditions_nothing_is_done_until_it_was_extended() {
    let plane = ControlPlane::start("stock").await.unwrap();
    install(&plane.admin().await, &[Group::Metal3]).await.unwrap();
    // As before release 0.13 of the operator.
    let crds: Api<CustomResourceDefinition> = Api::all(plane.admin().await);
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/conditions";
    let removal = serde_json::from_value(json!([{ "op": "remove", "path": path }])).unwrap();
    let removal = Patch::Json::<()>(removal);
    crds.patch("baremetalhosts.metal3.io", &PatchParams::default(), &removal).await.unwrap();
    let ironic = ironic::shared().await;
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let command = |arguments: &[&str]| {
        let mut command = Command::new(program("bmo-reboot"));
        command
            .args(arguments)
            .env("KUBECONFIG", &kubeconfig)
            .env("IRONIC_ENDPOINT", &ironic.endpoint)
            .env("FERRITE_LEADER_ELECT", "false")
            .env("FERRITE_LISTEN", &listen);
        command
    };
    let proxy = Proxy::start(ironic).await.unwrap();
    let mut running = command(&[]);
    running.env("IRONIC_ENDPOINT", &proxy.endpoint);
    let _service = Service::start("bmo-reboot", running, plane.dir()).unwrap();
    let readyz = format!("http://{listen}/readyz");
    says(&readyz, "status.conditions").await;
    says(&readyz, "extend-crd").await;
    assert!(!answers(&readyz).await);
    let checked = command(&["check"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    let told = text(&checked);
    let spared = told.lines().find(|line| line.contains("pendingRebootSince")).unwrap_or_default();
    assert!(spared.contains("works without it") && !spared.contains("FAILED"), "{told}");

    let site = Site {
        admin: plane.admin().await,
        namespace: plane.namespace("stock").await,
        plane: super::plane().await,
        account: plane.config("client", &["system:masters"]).await.unwrap(),
        user: String::new(),
    };
    let node = ironic.enroll_fake("stock").await.unwrap();
    switch(ironic, &node, "power on").await;
    site.host("h", &node, json!({ "metadata": { "annotations": { PLAIN: HARD } } })).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(proxy.powered(&node), Vec::<String>::new(), "nothing without a memory");
    for second in [false, true] {
        let extended = command(&["extend-crd"]).output().unwrap();
        assert!(extended.status.success(), "{}", text(&extended));
        assert_eq!(text(&extended).contains("nothing to add"), second, "{}", text(&extended));
    }
    site.cycled("h").await;
    assert_eq!(proxy.powered(&node), ["power off", "power on"]);
    until("ready", async || (!answers(&readyz).await).then(|| readyz.clone())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_a_way_to_ironic_leads_until_a_replica_has_one() {
    let site = Site::new("unfit").await;
    let ironic = ironic::shared().await;
    let node = ironic.enroll_fake("unfit").await.unwrap();
    switch(ironic, &node, "power on").await;
    let (lost, way) = (Proxy::start(ironic).await.unwrap(), Proxy::start(ironic).await.unwrap());
    lost.fault(Fault::CutBefore, usize::MAX, |_, _| true);
    let dir = RunDir::new("unfit").unwrap();
    let mut first = replica(&site, &lost, "first", &dir).await;
    // Nobody else is there, so it leads, and the host says what it waits for.
    site.host("h", &node, json!({ "metadata": { "annotations": { PLAIN: HARD } } })).await;
    site.wait("h", "waiting", |host| record(host).0 == "IronicUnreachable").await;
    assert!(first.alive(), "{}", first.log_tail());
    let _second = replica(&site, &way, "second", &dir).await;
    site.cycled("h").await;
    assert_eq!(way.powered(&node), ["power off", "power on"]);
    assert_eq!(lost.powered(&node), Vec::<String>::new());
    let ended = tokio::task::spawn_blocking(move || (first.wait(PATIENCE), first.log_tail()));
    let (code, log) = ended.await.unwrap();
    assert_eq!(code, Some(0), "{log}");
}

/// Another replica would get no list either, and the two would end each other for as long as that lasts.
#[tokio::test(flavor = "multi_thread")]
async fn an_ironic_whose_lists_fail_serves_requests_and_takes_nobody_the_lead() {
    let site = Site::new("listless").await;
    let ironic = ironic::shared().await;
    let node = ironic.enroll_fake("listless").await.unwrap();
    switch(ironic, &node, "power on").await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let gone = Fault::Page(reqwest::StatusCode::GATEWAY_TIMEOUT);
    proxy.fault(gone, usize::MAX, |_, path| path.starts_with("/v1/nodes?"));
    let dir = RunDir::new("listless").unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let mut command = replica_of(&site, &proxy).await;
    command.env("FERRITE_LISTEN", &listen);
    let _service = Service::start("listless", command, dir.path()).unwrap();
    let readyz = format!("http://{listen}/readyz?verbose");
    says(&readyz, "[-]ironic-lists failed").await;
    // Without this another one would lead.
    says(&readyz, "[+]ironic ok").await;
    site.host("h", &node, json!({ "metadata": { "annotations": { PLAIN: HARD } } })).await;
    site.cycled("h").await;
    proxy.heal();
    says(&readyz, "[+]ironic-lists ok").await;
}

const HOSTS: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn leaders_killed_under_a_hundred_requests_cost_none_and_double_none() {
    let site = Site::new("failover").await;
    let ironic = ironic::shared().await;
    let proxy = Proxy::start(ironic).await.unwrap();
    let make = async |number: usize| {
        let node = ironic.enroll_fake(&format!("failover-{number}")).await?;
        switch(ironic, &node, "power on").await;
        site.host(&format!("h-{number}"), &node, json!({})).await;
        anyhow::Ok(node)
    };
    let nodes: Vec<String> =
        stream::iter(0..HOSTS).map(make).buffered(8).try_collect().await.unwrap();
    let dir = RunDir::new("failover").unwrap();
    let ask = async |number: usize| {
        site.annotate(&format!("h-{number}"), json!({ PLAIN: HARD })).await;
    };
    stream::iter(0..HOSTS).map(ask).buffer_unordered(8).collect::<()>().await;
    let calls = || proxy.count(|it| power_changes(&it.method, &it.path));
    let mut leader = replica(&site, &proxy, "first", &dir).await;
    for (calls_before, next) in [(25, "second"), (70, "third"), (130, "fourth")] {
        until("at work", async || (calls() < calls_before).then(|| leader.log_tail())).await;
        leader.kill();
        leader = replica(&site, &proxy, next, &dir).await;
    }
    let through = |host: &Value| {
        host["status"]["poweredOn"] == true
            && record(host).0 == "Completed"
            && super::keys(host).is_empty()
    };
    for number in 0..HOSTS {
        site.wait(&format!("h-{number}"), "through", through).await;
    }
    for node in &nodes {
        assert_eq!(proxy.powered(node), ["power off", "power on"], "{node}");
    }
}
