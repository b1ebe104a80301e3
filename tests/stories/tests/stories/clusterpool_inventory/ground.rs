//! Where the stories of clusterpool-inventory take place, and as whom the controller runs.

use std::net::SocketAddr;

use bench::chart;
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::faults::{self, Handle, Plan};
use clusterpool_inventory::config::{Policy, needed};
use clusterpool_inventory::controller;
use controller_kit::Kit;
use controller_kit::config::{Config, LogFormat};
use controller_kit::crd;
use controller_kit::metrics::Metrics;
use controller_kit::shutdown::Shutdown;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

/// The release that the pools of the stories name.
pub(super) const RELEASE: &str = "release";

/// An API server with Hive's kinds, extended, the controller of namespaces and none of Hive's.
pub(super) async fn plane() -> &'static ControlPlane {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    PLANE
        .get_or_init(|| async {
            let plane = ControlPlane::start("pools").await.unwrap();
            let admin = plane.admin().await;
            crds::install(&admin, &[Group::Hive]).await.unwrap();
            crd::extend(&admin, &needed(), false).await.unwrap();
            plane.start_controllers(&["namespace-controller"]).await.unwrap();
            let kind = bench::hive::kind("ClusterImageSet");
            let sets: Api<kube::core::DynamicObject> = Api::all_with(admin, &kind);
            let set = serde_json::from_value(json!({
                "apiVersion": "hive.openshift.io/v1",
                "kind": "ClusterImageSet",
                "metadata": { "name": RELEASE },
                "spec": { "releaseImage": "registry.example.com/release:1" },
            }))
            .unwrap();
            sets.create(&PostParams::default(), &set).await.unwrap();
            plane
        })
        .await
}

/// An account with the rights that the chart gives, and its name. Each has a name of its own, so that the audit log
/// tells them apart.
pub(super) async fn account(plane: &ControlPlane, name: &str) -> (kube::Config, String) {
    let namespace = plane.namespace(&format!("{name}-account")).await;
    let chart = chart::dir("clusterpool-inventory");
    let objects = chart::render(&chart, &namespace, &namespace, &json!({})).unwrap();
    chart::install_permissions(&plane.admin().await, &objects, &namespace).await.unwrap();
    let account = chart::find(&objects, "ServiceAccount").unwrap()["metadata"]["name"].clone();
    let account = account.as_str().unwrap();
    let config = chart::service_account_config(plane, &namespace, account).await.unwrap();
    (config, format!("system:serviceaccount:{namespace}:{account}"))
}

/// What the process would make by itself: the controller for pools of these namespaces, with somebody else's client. No
/// lease: the sweeps show that safety does not rest on it.
pub(super) async fn run(client: Client, namespaces: Vec<String>, policy: Policy) {
    let config = Config {
        controller: "clusterpool-inventory",
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        namespaces,
        watch_filter: None,
        lease: None,
        concurrency: 8,
        log_format: LogFormat::Text,
        log: "info".to_owned(),
        kubeconfig: None,
    };
    let metrics = Metrics::new(config.controller).unwrap();
    let kit = Kit::new(config, client, metrics, Shutdown::default());
    controller::run(kit, policy).await.unwrap();
}

/// A controller that runs until this is dropped.
pub(super) struct Running {
    pub(super) handle: Handle,
    pub(super) user: String,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts the controller for some namespaces, under an account of its own.
pub(super) async fn start(plane: &ControlPlane, namespaces: &[&str], policy: Policy) -> Running {
    let (config, user) = account(plane, namespaces[0]).await;
    let (client, handle) = faults::client(config, Plan::none("controller")).unwrap();
    let namespaces = namespaces.iter().map(|it| (*it).to_owned()).collect();
    let task = tokio::spawn(run(client, namespaces, policy));
    Running { handle, user, task }
}
