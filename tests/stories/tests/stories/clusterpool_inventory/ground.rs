//! Where the stories of clusterpool-inventory take place, and as whom the controller runs.

use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::faults::Plan;
use bench::objects::{apply, hive};
use clusterpool_inventory::controller;
use clusterpool_inventory::settings::{Policy, needed};
use controller_kit::crd;
use kube::Client;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::in_process::{self, Running};

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
            crds::settled(&admin).await.unwrap();
            furnish(&plane).await;
            plane
        })
        .await
}

/// What pools need beside their own kinds: the controller of namespaces, and the release.
pub(super) async fn furnish(plane: &ControlPlane) {
    plane.start_controllers(&["namespace-controller"]).await.unwrap();
    let release = json!({ "releaseImage": "registry.example.com/release:1" });
    let set = hive("ClusterImageSet").object(RELEASE, &release);
    apply(&plane.admin().await, None, &set).await.unwrap();
}

/// An account with the rights of the chart and no more, and its name.
pub(super) async fn account(plane: &ControlPlane, name: &str) -> (kube::Config, String) {
    in_process::account(plane, "clusterpool-inventory", name).await
}

/// The controller for pools of these namespaces.
pub(super) async fn run(client: Client, namespaces: Vec<String>, policy: Policy) {
    let kit = in_process::kit(in_process::config("clusterpool-inventory", namespaces), client);
    controller::run(kit, policy).await.unwrap();
}

/// Starts the controller for some namespaces, under an account of its own. Returns the account's name.
pub(super) async fn start(
    plane: &ControlPlane,
    namespaces: &[&str],
    policy: Policy,
) -> (Running, String) {
    let (account, user) = account(plane, namespaces[0]).await;
    let namespaces = namespaces.iter().map(|it| (*it).to_owned()).collect();
    let run = |client| run(client, namespaces, policy);
    (Running::start(account, Plan::none("clusterpool-inventory"), run), user)
}
