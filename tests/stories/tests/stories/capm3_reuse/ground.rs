//! Where the stories of capm3-reuse take place, and as whom the controller runs.

use bench::cluster_api;
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::faults::Plan;
use capm3_reuse::controller;
use capm3_reuse::settings::Policy;
use controller_kit::metrics::Metrics;
use kube::Client;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::in_process::{self, Running};

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

/// An account with the rights of the chart and no more, and its name.
pub(super) async fn account(plane: &ControlPlane, name: &str) -> (kube::Config, String) {
    in_process::account(plane, "capm3-reuse", name).await
}

/// The same where replicas may follow hosts.
pub(super) async fn scaling_account(plane: &ControlPlane, name: &str) -> (kube::Config, String) {
    let values = json!({"scaleToHosts": {"enabled": true}});
    in_process::account_with(plane, "capm3-reuse", name, values).await
}

/// The controller in one namespace.
pub(super) async fn run(client: Client, namespace: String, policy: Policy) {
    let kit = in_process::kit(in_process::config("capm3-reuse", vec![namespace]), client);
    controller::run(kit, policy).await.unwrap();
}

/// Starts the controller for one namespace, under an account of its own. Returns the account's name.
pub(crate) async fn start(
    plane: &ControlPlane,
    namespace: &str,
    policy: Policy,
) -> (Running, String) {
    let (account, user) = if policy.scale_to_hosts {
        scaling_account(plane, namespace).await
    } else {
        account(plane, namespace).await
    };
    (disturbed(account, namespace, policy, Plan::none("capm3-reuse")), user)
}

/// The same with a client that behaves as planned.
pub(super) async fn start_disturbed(
    plane: &ControlPlane,
    namespace: &str,
    policy: Policy,
    plan: Plan,
) -> Running {
    let (account, _) = account(plane, namespace).await;
    disturbed(account, namespace, policy, plan)
}

fn disturbed(account: kube::Config, namespace: &str, policy: Policy, plan: Plan) -> Running {
    let run = |client| run(client, namespace.to_owned(), policy);
    Running::start(account, plan, run)
}

/// The same undisturbed, and what it counts.
pub(super) async fn start_counted(
    plane: &ControlPlane,
    namespace: &str,
    policy: Policy,
) -> (Running, String, Metrics) {
    let (account, user) = account(plane, namespace).await;
    let mut metrics = None;
    let running = Running::start(account, Plan::none("capm3-reuse"), |client| {
        let config = in_process::config("capm3-reuse", vec![namespace.to_owned()]);
        let kit = in_process::kit(config, client);
        metrics = Some(kit.metrics.clone());
        async move { controller::run(kit, policy).await.unwrap() }
    });
    (running, user, metrics.unwrap())
}
