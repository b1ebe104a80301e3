//! Where the stories of capm3-reuse take place, and as whom the controller runs.

use std::net::SocketAddr;

use bench::cluster_api;
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use capm3_reuse::config::{Policy, RULES};
use capm3_reuse::controller;
use controller_kit::Kit;
use controller_kit::config::{Config, LogFormat};
use controller_kit::metrics::Metrics;
use controller_kit::shutdown::Shutdown;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

/// An API server with all kinds and none of their controllers.
pub(super) async fn plane() -> &'static ControlPlane {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    PLANE
        .get_or_init(|| async {
            let plane = ControlPlane::start("reuse").await.unwrap();
            let client = plane.admin().await;
            crds::install(&client, &[Group::Metal3, Group::Capm3]).await.unwrap();
            cluster_api::install_crds(&client).await.unwrap();
            plane
        })
        .await
}

/// An account that may do what the chart's rules say and no more, and its name. Each has a name of its own, so that the
/// audit log tells them apart.
pub(super) async fn account(plane: &ControlPlane, name: &str) -> (kube::Config, String) {
    let client = plane.admin().await;
    let namespace = plane.namespace(&format!("{name}-account")).await;
    let all: Value = serde_json::from_str(RULES).unwrap();
    let mut rules = all["namespaced"].clone();
    for rule in rules.as_array_mut().unwrap() {
        rule.as_object_mut().unwrap().remove("why");
    }
    rules.as_array_mut().unwrap().extend([
        json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}),
        json!({
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": all["extendCrd"],
            "verbs": ["get", "list", "watch"],
        }),
    ]);
    let role: ClusterRole =
        serde_json::from_value(json!({"metadata": {"name": namespace}, "rules": rules})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "capm3-reuse"}})).unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.name_any()},
        "subjects": [{"kind": "ServiceAccount", "name": "capm3-reuse", "namespace": namespace}],
    }))
    .unwrap();
    Api::all(client).create(&PostParams::default(), &binding).await.unwrap();
    let config =
        bench::chart::service_account_config(plane, &namespace, "capm3-reuse").await.unwrap();
    (config, format!("system:serviceaccount:{namespace}:capm3-reuse"))
}

/// What the process would make by itself: the controller in one namespace of this process, with somebody else's client.
/// No lease: the sweeps show that safety does not rest on it.
pub(super) async fn run(client: Client, namespace: String, policy: Policy) {
    let config = Config {
        controller: "capm3-reuse",
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        namespaces: vec![namespace],
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
pub(crate) struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the controller for one namespace, under an account of its own. Returns the account's name.
pub(crate) async fn start(
    plane: &ControlPlane,
    namespace: &str,
    policy: Policy,
) -> (Running, String) {
    let (config, user) = account(plane, namespace).await;
    let client = Client::try_from(config).unwrap();
    let task = tokio::spawn(run(client, namespace.to_owned(), policy));
    (Running(task), user)
}
