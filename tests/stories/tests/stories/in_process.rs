//! A controller in the test's own process: with the rights that its chart gives and no more, in a story's namespaces.

use std::net::SocketAddr;
use std::path::PathBuf;

use bench::chart;
use bench::control_plane::ControlPlane;
use bench::faults::{self, Handle, Plan};
use controller_kit::Kit;
use controller_kit::config::{Settings, defaults};
use controller_kit::metrics::Metrics;
use controller_kit::shutdown::Shutdown;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// An account with the rights of the controller's chart, and its name. Each has a name of its own, so that the audit
/// log tells them apart.
pub(crate) async fn account(
    plane: &ControlPlane,
    controller: &str,
    name: &str,
) -> (kube::Config, String) {
    account_with(plane, controller, name, json!({})).await
}

/// The same where the chart has these values.
pub(crate) async fn account_with(
    plane: &ControlPlane,
    controller: &str,
    name: &str,
    values: Value,
) -> (kube::Config, String) {
    let namespace = &plane.namespace(&format!("{name}-account")).await;
    // The name of a release makes those of its cluster-wide objects.
    let account = chart::install_account(plane, controller, namespace, namespace, values);
    let account = account.await.unwrap();
    let config = chart::service_account_config(plane, namespace, &account).await.unwrap();
    (config, format!("system:serviceaccount:{namespace}:{account}"))
}

/// As the command line would make it. No lease: the sweeps show that safety does not rest on it.
pub(crate) fn config(controller: &'static str, namespaces: Vec<String>) -> Settings {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Settings { controller, listen, namespaces, leader_elect: false, ..defaults() }
}

/// What the process would make by itself, with somebody else's client.
pub(crate) fn kit(config: Settings, client: Client) -> Kit {
    let metrics = Metrics::new(config.controller).unwrap();
    Kit::new(config, client, metrics, Shutdown::default())
}

/// A controller that runs until this is dropped.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    task: JoinHandle<()>,
}

impl Running {
    /// Runs with a client of this account, which the plan disturbs.
    pub(crate) fn start<R>(account: kube::Config, plan: Plan, run: impl FnOnce(Client) -> R) -> Self
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let (client, handle) = faults::client(account, plan).unwrap();
        Self { handle, task: tokio::spawn(run(client)) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A kubeconfig of an account, by the name that [`account`] gave, for a process of its own.
pub(crate) async fn kubeconfig(plane: &ControlPlane, user: &str) -> PathBuf {
    let (namespace, name) =
        user.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':')).unwrap();
    chart::service_account_kubeconfig(plane, namespace, name).await.unwrap()
}

/// A program of ours, which `cargo xtask test` builds before the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    // Tests are in <target>/<profile>/deps, programs beside that folder.
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join(name);
    let told = program.display();
    assert!(program.exists(), "{told} is not there: run `cargo build -p {name}` first");
    program
}
