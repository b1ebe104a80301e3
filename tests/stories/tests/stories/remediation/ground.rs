//! Where these stories take place, and as whom the controller runs.

use std::net::SocketAddr;
use std::time::Duration;

use bench::chart;
use bench::cluster_api;
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use controller_kit::Kit;
use controller_kit::config::{Config, LogFormat};
use controller_kit::crd;
use controller_kit::metrics::Metrics;
use controller_kit::shutdown::Shutdown;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use remediation::config::Policy;
use remediation::controller;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

/// A management API server with all kinds and none of their controllers, and a workload API server.
pub(super) struct Planes {
    pub(super) management: ControlPlane,
    pub(super) workload: ControlPlane,
}

pub(super) async fn planes() -> &'static Planes {
    static PLANES: OnceCell<Planes> = OnceCell::const_new();
    PLANES
        .get_or_init(|| async {
            let management = ControlPlane::start("remediation").await.unwrap();
            let client = management.admin().await;
            crds::install(&client, &[Group::Metal3, Group::Capm3]).await.unwrap();
            // What bmo-reboot adds to hosts; an operator without it leaves the fields empty.
            crd::extend(&client, &bmo_reboot::config::fields(), false).await.unwrap();
            cluster_api::install_crds(&client).await.unwrap();
            install_own(&client).await;
            let workload = ControlPlane::start("remediation-workload").await.unwrap();
            Planes { management, workload }
        })
        .await
}

/// Installs our CRDs, unless they are there.
pub(super) async fn install_own(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (owner, crd) in api_types::own_crds() {
        if owner != "remediation" {
            continue;
        }
        match api.create(&PostParams::default(), &crd).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made.unwrap()),
        }
        let name = crd.name_any();
        let served = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(60), served).await.unwrap().unwrap();
    }
}

/// Short times, so that nobody waits for minutes.
pub(super) fn quick() -> Policy {
    Policy {
        power_off: Duration::from_secs(60),
        power_on: Duration::from_secs(60),
        fence: Duration::from_secs(6),
        stale: Duration::from_secs(8),
        ..Policy::default()
    }
}

/// An account with the rights of the chart and no more, and its name.
pub(super) async fn account(plane: &ControlPlane, name: &str) -> (kube::Config, String) {
    let namespace = plane.namespace(&format!("{name}-account")).await;
    let folder = chart::dir("remediation");
    let objects = chart::render(&folder, &namespace, &namespace, &json!({})).unwrap();
    chart::install_permissions(&plane.admin().await, &objects, &namespace).await.unwrap();
    let account = chart::find(&objects, "ServiceAccount").unwrap()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let config = chart::service_account_config(plane, &namespace, &account).await.unwrap();
    (config, format!("system:serviceaccount:{namespace}:{account}"))
}

/// What the process would make by itself: the controller in one namespace of this process, with somebody else's client.
/// No lease: the sweeps show that safety does not rest on it.
pub(super) async fn run(client: Client, namespace: String, policy: Policy) {
    let config = Config {
        controller: "remediation",
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        namespaces: vec![namespace],
        watch_filter: None,
        lease: None,
        concurrency: 32,
        log_format: LogFormat::Text,
        log: "info".to_owned(),
        kubeconfig: None,
    };
    let metrics = Metrics::new(config.controller).unwrap();
    let kit = Kit::new(config, client, metrics, Shutdown::default());
    controller::run(kit, policy).await.unwrap();
}

/// A controller that runs until this is dropped.
pub(super) struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the controller for one namespace, under an account of its own. Returns the account's name.
pub(super) async fn start(
    plane: &ControlPlane,
    namespace: &str,
    policy: Policy,
) -> (Running, String) {
    let (config, user) = account(plane, namespace).await;
    let client = Client::try_from(config).unwrap();
    let task = tokio::spawn(run(client, namespace.to_owned(), policy));
    (Running(task), user)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_every_object_of_the_chart_and_health_checks_may_use_its_kinds() {
    let plane = &planes().await.management;
    let namespace = plane.namespace("chart").await;
    let values = json!({"settings": {"upstreamGroup": true, "nodeFencing": "delete"}});
    let folder = chart::dir("remediation");
    let objects = chart::render(&folder, "remediation", &namespace, &values).unwrap();
    chart::dry_run(&plane.admin().await, &objects, &namespace).await.unwrap();
    let of_kind = |kind: &str| objects.iter().filter(|it| it["kind"] == kind).count();
    assert_eq!(of_kind("CustomResourceDefinition"), 2);
    let aggregated = |it: &&serde_json::Value| {
        it["metadata"]["labels"]["cluster.x-k8s.io/aggregate-to-manager"] == "true"
    };
    let role = objects.iter().find(aggregated).unwrap();
    assert_eq!(role["rules"][0]["apiGroups"], json!(["remediation.metal3.io"]));
}
