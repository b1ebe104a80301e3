//! What every chapter plays on: the control plane, Ironic, the servers and the controllers that run.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::bmc::Machine;
use bench::cache;
use bench::control_plane::ControlPlane;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::objects::{self, namespace};
use crate::program::{Account, Environment, Running};

/// What runs, for `demo` to print and play on, and for `demo --down` to end.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Stage {
    pub(crate) pid: u32,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) kubectl: PathBuf,
    pub(crate) ironic: String,
    pub(crate) servers: Vec<Server>,
    pub(crate) unknown: Vec<Unknown>,
    pub(crate) cluster: Cluster,
    pub(crate) controllers: Vec<Controller>,
}

/// A virtual server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Server {
    pub(crate) name: String,
    /// UUID of its node in Ironic.
    pub(crate) node: String,
    pub(crate) bmc: Bmc,
}

/// One that Ironic does not know.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Unknown {
    /// What it calls its BMC.
    pub(crate) ip: Ipv4Addr,
    pub(crate) bmc: Bmc,
}

/// Where a BMC is, and the machine behind it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Bmc {
    address: String,
    system: String,
}

/// The cluster that Cluster API's managers drive.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Cluster {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A controller that runs.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Controller {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) log: PathBuf,
}

impl Bmc {
    pub(crate) fn of(machine: &Machine) -> Self {
        Self { address: machine.address().to_owned(), system: machine.system_path() }
    }

    pub(crate) fn machine(&self) -> anyhow::Result<Machine> {
        Machine::at(&self.address, &self.system)
    }

    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.address, self.system)
    }

    /// `On` or `Off`, as its BMC says.
    pub(crate) async fn power(&self) -> anyhow::Result<String> {
        Ok(self.machine()?.seen().await?.state)
    }
}

impl Stage {
    /// A client that may do everything.
    pub(crate) async fn admin(&self) -> anyhow::Result<Client> {
        objects::client(&self.kubeconfig).await
    }
}

/// Starts a controller as it runs in a cluster: with the account and the rights that its chart makes, as a process of its
/// own. Returns when it is ready.
pub(crate) async fn start_controller(
    plane: &ControlPlane,
    program: &Path,
    name: &str,
    environment: &Environment,
) -> anyhow::Result<Running> {
    let namespace_name = "ferrite-system";
    namespace(&plane.admin().await, namespace_name).await?;
    // Off where nobody asks for it; the power-on chapter does.
    let values = json!({ "scaleToHosts": { "enabled": true } });
    let values = if name == "capm3-reuse" { values } else { json!({}) };
    let account = Account::of_chart(plane, namespace_name, name, values).await?;
    // The chart's hook does this with an account that may change CRDs.
    let by_admin = plane.kubeconfig("admin", &["system:masters"])?;
    cache::run(Command::new(program).arg("extend-crd").env("KUBECONFIG", by_admin))?;
    Running::start(name, program, &account, environment).await
}
