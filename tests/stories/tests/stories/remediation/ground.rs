//! Where these stories take place, and as whom the controller runs.

use std::time::Duration;

use bench::chart;
use bench::cluster_api;
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::faults::Plan;
use controller_kit::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};
use remediation::controller;
use remediation::settings::Policy;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::in_process::{self, Running};

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
            crd::extend(&client, &bmo_reboot::settings::needed(), false).await.unwrap();
            crds::settled(&client).await.unwrap();
            cluster_api::install_crds(&client).await.unwrap();
            install_own(&client).await;
            let workload = ControlPlane::start("remediation-workload").await.unwrap();
            Planes { management, workload }
        })
        .await
}

/// Installs our CRDs, unless they are there.
pub(crate) async fn install_own(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (_, crd) in api_types::own_crds() {
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
    in_process::account(plane, "remediation", name).await
}

/// The controller in one namespace.
pub(super) async fn run(client: Client, namespace: String, policy: Policy) {
    run_in(client, vec![namespace], policy).await;
}

async fn run_in(client: Client, namespaces: Vec<String>, policy: Policy) {
    let kit = in_process::kit(in_process::config("remediation", namespaces), client);
    Box::pin(controller::run(kit, policy)).await.unwrap();
}

/// Starts the controller for one namespace, under an account of its own. Returns the account's name.
pub(crate) async fn start(
    plane: &ControlPlane,
    namespace: &str,
    policy: Policy,
) -> (Running, String) {
    start_in(plane, vec![namespace.to_owned()], policy).await
}

/// The same for several namespaces.
pub(super) async fn start_in(
    plane: &ControlPlane,
    namespaces: Vec<String>,
    policy: Policy,
) -> (Running, String) {
    let (account, user) = account(plane, &namespaces[0]).await;
    let run = |client| run_in(client, namespaces, policy);
    (Running::start(account, Plan::none("remediation"), run), user)
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
