//! Beside the real bare metal operator, where somebody built it: these stories run on demand (docs/testing.md says how).
//! Elsewhere a stand-in makes its writes.

use std::process::Command;
use std::time::Duration;

use bench::bmc::Rack;
use bench::certs::Authority;
use bench::control_plane::ControlPlane;
use bench::crds;
use bench::ironic::Options;
use bench::objects;
use bench::process::{Service, answers, free_port};
use bmo_reboot::settings::Policy;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::bmo_reboot::{HARD, PLAIN, merge};
use crate::{bmo_reboot as power, host_discovery as discovery};

/// Its program.
const PROGRAM: &str = "FERRITE_OPERATOR";
const PAUSED: &str = "baremetalhost.metal3.io/paused";
const STATUS: &str = "baremetalhost.metal3.io/status";

/// Starts it for one namespace, with all of its CRDs, and its webhook, which refuses what it does not know.
pub(crate) async fn start(plane: &ControlPlane, namespace: &str, ironic: &str) -> Service {
    let program = std::env::var(PROGRAM)
        .unwrap_or_else(|_| panic!("{PROGRAM} is not set: see docs/testing.md"));
    crds::install_folder(&plane.admin().await).await.unwrap();
    let (health, webhook) = (format!("127.0.0.1:{}", free_port()), free_port());
    // It looks for its certificate below the folder for temporary files.
    let temporary = plane.dir().join(format!("operator-{namespace}"));
    let certificates = temporary.join("k8s-webhook-server/serving-certs");
    std::fs::create_dir_all(&certificates).unwrap();
    let authority = Authority::new().unwrap();
    authority.server().unwrap().write(&certificates, "tls").unwrap();
    let mut command = Command::new(program);
    command
        .args(["-namespace", namespace, "-metrics-addr", "0"])
        .args(["-webhook-port", &webhook.to_string(), "-health-addr", &health])
        .env("TMPDIR", &temporary)
        .env("KUBECONFIG", plane.kubeconfig(namespace, &["system:masters"]).unwrap())
        .env("IRONIC_ENDPOINT", format!("{ironic}/v1/"))
        .env("DEPLOY_KERNEL_URL", "http://127.0.0.1/kernel")
        .env("DEPLOY_RAMDISK_URL", "http://127.0.0.1/ramdisk")
        .env("METAL3_AUTH_ROOT_DIR", "/nonexistent");
    let mut service =
        Service::start(&format!("operator-{namespace}"), command, plane.dir()).unwrap();
    let began = std::time::Instant::now();
    while !answers(&format!("http://{health}/healthz")).await {
        assert!(service.alive() && began.elapsed() < discovery::PATIENCE, "{}", service.log_tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ask_webhook(&plane.admin().await, namespace, webhook, &authority).await;
    service
}

/// Has the API server ask the operator about each host of a namespace, as its manifests do of all.
async fn ask_webhook(client: &kube::Client, namespace: &str, port: u16, authority: &Authority) {
    let path = "validate-metal3-io-v1alpha1-baremetalhost";
    let webhooks = json!({
        "metadata": { "name": format!("operator-{namespace}") },
        "webhooks": [{
            "name": "baremetalhost.metal3.io", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/{path}"),
                "caBundle": ByteString(authority.pem().into_bytes()),
            },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{
                "apiGroups": ["metal3.io"], "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"], "resources": ["baremetalhosts"],
            }],
        }],
    });
    let webhooks = serde_json::from_value(webhooks).unwrap();
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    api.create(&PostParams::default(), &webhooks).await.unwrap();
    // The API server takes notice of it some moments later: it refuses then what the operator does.
    let odd = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": "odd", "annotations": { STATUS: r#"{"odd":0}"# } },
        "spec": { "online": false },
    });
    let odd: DynamicObject = serde_json::from_value(odd).unwrap();
    let kind = GroupVersionKind::gvk("metal3.io", "v1alpha1", "BareMetalHost");
    let hosts: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let began = std::time::Instant::now();
    while hosts.create(&dry, &odd).await.is_ok() {
        assert!(began.elapsed() < discovery::PATIENCE, "the webhook is not asked");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) async fn credentials(client: &kube::Client, namespace: &str) {
    let data = json!({ "username": "admin", "password": "secret" });
    objects::secret(client, namespace, "bmc", &data).await.unwrap();
}

fn state(host: &Value) -> &str {
    host["status"]["provisioning"]["state"].as_str().unwrap_or_default()
}

/// Looks at a host until it is so; says what the operator wrote where it never is.
pub(crate) async fn wait(
    operator: &Service,
    what: &str,
    read: impl AsyncFn() -> Value,
    check: impl Fn(&Value) -> bool,
) -> Value {
    let began = std::time::Instant::now();
    loop {
        let host = read().await;
        if check(&host) {
            return host;
        }
        assert!(
            began.elapsed() < power::PATIENCE,
            "never {what}: {host:#}\n{}",
            operator.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the bare metal operator's program: see docs/testing.md"]
async fn the_real_operator_takes_a_discovered_host_and_its_credentials() {
    let site = discovery::Site::with("operator", Options::default()).await;
    site.discovery("racks", json!({})).await;
    let _running =
        site.start(host_discovery::settings::Policy { adopt_driver: true, ..discovery::quick() });
    let operator = start(site.plane, &site.namespace, &site.ironic.endpoint).await;
    let node = site.boot(&site.agent(1)).await;
    site.wait_names(&["m1"]).await;
    let read = async || site.hosts().await.remove(0);
    let host = wait(&operator, "unmanaged", read, |host| {
        state(host) == "unmanaged" && host["status"]["hardware"]["nics"].is_array()
    })
    .await;
    assert_eq!(host["status"]["provisioning"]["ID"], json!(node), "{host:#}");
    let annotations = host["metadata"]["annotations"].as_object().unwrap();
    assert!(!annotations.keys().any(|key| key.contains("status")), "{annotations:?}");

    let rack = Rack::start(1).await.unwrap();
    let machine = &rack.machines[0];
    credentials(&site.admin, &site.namespace).await;
    let address = format!("redfish+{}{}", machine.address(), machine.system_path());
    let bmc = json!({ "spec": { "bmc": {
        "address": address, "credentialsName": "bmc", "disableCertificateVerification": true,
    } } });
    site.patch_host("m1", bmc).await;
    let host = wait(&operator, "available", read, |host| state(host) == "available").await;
    assert_eq!(host["status"]["provisioning"]["ID"], json!(node), "it is the same node: {host:#}");
    assert_eq!(host["status"]["errorMessage"], "", "{host:#}");
    assert_eq!(site.names().await, ["m1"]);
    let seen = site.ironic.node(&node).await.unwrap();
    assert_eq!(seen["driver"], "redfish", "{seen:#}");
}

/// What a condition and the runbook advise to do about two hosts of one node.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the bare metal operator's program: see docs/testing.md"]
async fn the_node_of_two_hosts_stays_when_the_wrong_one_is_removed_as_advised() {
    let site = discovery::Site::with("rivals", Options::default()).await;
    site.discovery("racks", json!({})).await;
    let _running = site.start(discovery::quick());
    let operator = start(site.plane, &site.namespace, &site.ironic.endpoint).await;
    credentials(&site.admin, &site.namespace).await;
    let agent = site.agent(1);
    let node = site.boot(&agent).await;
    site.wait_names(&["m1"]).await;
    let read = async |name: &str| {
        let is = |host: &Value| host["metadata"]["name"] == name;
        site.hosts().await.into_iter().find(is).unwrap_or_default()
    };
    let has_node = |host: &Value| host["status"]["provisioning"]["ID"] == json!(node);
    wait(&operator, "unmanaged", async || read("m1").await, has_node).await;

    // An administrator registers the same machine by hand.
    let bmc = json!({ "address": "ipmi://192.0.2.9", "credentialsName": "bmc" });
    let by_hand = json!({
        "metadata": { "annotations": { "inspect.metal3.io": "disabled" } },
        "spec": { "bootMACAddress": agent.mac(0), "bmc": bmc, "automatedCleaningMode": "disabled" },
    });
    site.host("mine", by_hand).await;
    wait(&operator, "the same node", async || read("mine").await, has_node).await;
    site.listed("racks", "conflicts", &node, "KnownTwice").await;

    site.annotate_host("m1", json!({ PAUSED: "" })).await;
    site.delete("m1").await;
    site.patch_host("m1", json!({ "metadata": { "finalizers": null } })).await;
    site.wait_names(&["mine"]).await;
    site.settle().await;
    let seen = site.ironic.node(&node).await.unwrap();
    assert_eq!(seen["name"], format!("{}~mine", site.namespace), "{seen:#}");
    assert!(has_node(&read("mine").await));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the bare metal operator's program: see docs/testing.md"]
async fn power_is_taken_over_from_the_real_operator_and_given_back() {
    let site = power::Site::new("operator").await;
    let ironic = bench::ironic::shared().await;
    let machine = bench::bmc::spare().await.unwrap();
    let operator = start(site.plane, &site.namespace, &ironic.endpoint).await;
    credentials(&site.admin, &site.namespace).await;
    // A machine that runs already, which the operator adopts without installing anything.
    let address = format!("redfish+{}{}", machine.address(), machine.system_path());
    let mut host = json!({
        "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": {
            "name": "h", "labels": { "ferrite.metal3.io/power": "managed" },
            "annotations": { "inspect.metal3.io": "disabled" },
        },
        "spec": { "online": true, "externallyProvisioned": true, "bootMACAddress": "52:54:00:00:00:01" },
    });
    let bmc = json!({
        "address": address, "credentialsName": "bmc", "disableCertificateVerification": true,
    });
    merge(&mut host, json!({ "spec": { "bmc": bmc } }));
    site.api()
        .create(&PostParams::default(), &serde_json::from_value(host).unwrap())
        .await
        .unwrap();
    let read = async || site.get("h").await;
    let stage = |wanted: &'static str| {
        move |host: &Value| state(host) == wanted && host["status"]["poweredOn"] == true
    };
    wait(&operator, "adopted and on", read, stage("externally provisioned")).await;
    assert_eq!(machine.seen().await.unwrap().state, "On");

    let policy = Policy { takeover: true, ..power::quick() };
    let running = site.start(&ironic.endpoint, policy.clone());
    let ours =
        |host: &Value| host["metadata"]["annotations"][PAUSED] == "ferrite.metal3.io/bmo-reboot";
    wait(&operator, "taken over", read, ours).await;
    site.annotate("h", json!({ PLAIN: HARD })).await;
    site.cycled("h").await;
    assert_eq!(machine.seen().await.unwrap().turned_off(), 1, "one cycle, of one writer");
    // A hold that the operator, were it not paused, would answer too.
    site.annotate("h", json!({ (format!("{PLAIN}/night")): HARD })).await;
    wait(&operator, "held", read, |host| power::record(host).0 == "HeldOff").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(machine.seen().await.unwrap().state, "Off", "nobody switches it on");
    site.annotate("h", json!({ (format!("{PLAIN}/night")): null })).await;
    wait(&operator, "on again", read, |host| host["status"]["poweredOn"] == true).await;
    assert_eq!(machine.seen().await.unwrap().turned_off(), 2);

    // Without --takeover the host goes back, and the operator reboots as it does.
    drop(running);
    let _running = site.start(&ironic.endpoint, Policy { takeover: false, ..policy });
    site.patch("h", json!({ "metadata": { "labels": { "ferrite.metal3.io/power": null } } })).await;
    wait(&operator, "given back", read, |host| host["metadata"]["annotations"][PAUSED].is_null())
        .await;
    site.annotate("h", json!({ PLAIN: HARD })).await;
    let done = |host: &Value| power::keys(host).is_empty() && host["status"]["poweredOn"] == true;
    wait(&operator, "rebooted by the operator", read, done).await;
    assert_eq!(machine.seen().await.unwrap().turned_off(), 3);
}
