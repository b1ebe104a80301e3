//! Beside the real CAPM3, where somebody built it (docs/testing.md says how): behind the guard it does everything that is
//! not decided here. Elsewhere writes in its account's name stand for it.

use std::process::Command;
use std::time::{Duration, Instant};

use bench::certs::Authority;
use bench::cluster_api::objects::{
    KUBEADM_CONFIG_TEMPLATE, Kind, MACHINE_DEPLOYMENT, METAL3_MACHINE, METAL3_MACHINE_TEMPLATE,
    kubeadm_config_template, machine_deployment, metal3_machine_template,
};
use bench::cluster_api::{self, Masters, until};
use bench::control_plane::ControlPlane;
use bench::crds;
use bench::process::{Service, answers, free_port};
use capm3_reuse::settings::Policy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use kube::runtime::watcher;
use serde_json::json;

use super::guard::{CAPM3, Guard};
use super::rollouts::Stage;
use super::scene::DATA_TEMPLATE;

/// Its checkout, in which `manager` was built.
const CHECKOUT: &str = "FERRITE_CAPM3";

/// Starts it for one namespace, as its release would: with the rights that it ships, and its CRDs.
async fn capm3(plane: &ControlPlane, namespace: &str) -> Service {
    let checkout = std::env::var(CHECKOUT)
        .unwrap_or_else(|_| panic!("{CHECKOUT} is not set: see docs/testing.md"));
    let (admin, post) = (plane.admin().await, PostParams::default());
    crds::install_folder(&admin).await.unwrap();
    let rights = std::fs::read_to_string(format!("{checkout}/config/rbac/role.yaml")).unwrap();
    let mut rights: ClusterRole = serde_saphyr::from_str(&rights).unwrap();
    rights.metadata.name = Some(namespace.to_owned());
    Api::all(admin.clone()).create(&post, &rights).await.unwrap();
    let given: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
        "subjects": [{"kind": "ServiceAccount", "name": "capm3-manager", "namespace": "capm3-system"}],
    }))
    .unwrap();
    Api::all(admin).create(&post, &given).await.unwrap();

    let keys = plane.dir().join("capm3-webhook");
    std::fs::create_dir_all(&keys).unwrap();
    Authority::new().unwrap().server().unwrap().write(&keys, "tls").unwrap();
    let health = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(format!("{checkout}/manager"));
    command
        .args([&format!("--namespace={namespace}"), &format!("--health-addr={health}")])
        .args(["--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics", "-v=4"])
        .arg(format!("--webhook-port={}", free_port()))
        .arg(format!("--webhook-cert-dir={}", keys.display()))
        .env("KUBECONFIG", plane.kubeconfig(CAPM3, &["system:serviceaccounts"]).unwrap());
    let mut service = Service::start("capm3", command, plane.dir()).unwrap();
    let began = Instant::now();
    while !answers(&format!("http://{health}/readyz")).await {
        let waits = service.alive() && began.elapsed() < Duration::from_secs(60);
        assert!(waits, "{}", service.log_tail());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    service
}

#[tokio::test]
#[ignore = "needs CAPM3's program: see docs/testing.md"]
async fn a_deployment_rolls_over_its_own_hosts_while_the_real_capm3_renders_its_data() {
    let management = cluster_api::shared().await;
    let stage = Stage::new("real-capm3", Masters::Given, 4, Policy::default()).await;
    let (client, namespace) = (stage.workload.management.clone(), stage.workload.namespace.clone());
    let _guard = Guard::install(management, "capm3-reuse", &namespace, json!({})).await;
    let capm3 = capm3(management, &namespace).await;

    let keys = json!([{"key": "host", "object": "baremetalhost"}]);
    let data = json!({"clusterName": stage.workload.cluster, "metaData": {"objectNames": keys}});
    DATA_TEMPLATE.create(&client, &namespace, DATA_TEMPLATE.object("data", &data)).await.unwrap();
    for name in ["image-1", "image-2"] {
        let mut template = metal3_machine_template(name);
        template["spec"]["nodeReuse"] = json!(true);
        template["spec"]["template"]["spec"]["dataTemplate"] = json!({"name": "data"});
        METAL3_MACHINE_TEMPLATE.create(&client, &namespace, template).await.unwrap();
    }
    let join = kubeadm_config_template("join");
    KUBEADM_CONFIG_TEMPLATE.create(&client, &namespace, join).await.unwrap();
    let mut workers = machine_deployment("workers", &stage.workload.cluster, 2, "image-1", "join");
    workers["spec"]["rollout"]["strategy"]["rollingUpdate"] =
        json!({"maxSurge": 0, "maxUnavailable": 1});
    MACHINE_DEPLOYMENT.create(&client, &namespace, workers).await.unwrap();
    let first = stage.available(2, "image-1").await;
    let next = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": "image-2"}}}}});
    stage.next_template(MACHINE_DEPLOYMENT, "workers", next).await;
    let second = stage.available(2, "image-2").await;
    assert!(first.keys().all(|old| !second.contains_key(old)), "every machine was replaced");
    let hosts = |of: &std::collections::BTreeMap<String, String>| {
        of.values().cloned().collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(hosts(&first), hosts(&second));
    stage.never_free_once_installed().await;
    // CAPM3 rendered for each machine, forgot those that are gone, and was refused what is decided here.
    let claims = Kind { kind: "Metal3DataClaim", ..METAL3_MACHINE }.api(&client, &namespace);
    let all = until(&claims, &watcher::Config::default(), "as many claims as machines", |all| {
        all.len() == second.len()
    })
    .await
    .unwrap();
    assert!(all.keys().all(|name| second.contains_key(name)), "{:?}", all.keys());
    let log = std::fs::read_to_string(capm3.log()).unwrap();
    assert!(log.contains("denied request"), "the guard refused CAPM3 nothing");
}
