//! What every chapter plays on: the control plane, Ironic, the servers and the controllers that run.

use std::path::{Path, PathBuf};
use std::process::Command;

use bench::agent::Agent;
use bench::bmc::Machine;
use bench::cache;
use bench::cluster_api::objects::Kind;
use bench::control_plane::ControlPlane;
use bench::controller::{Account, Environment, Running};
use bench::objects;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What runs, for `demo` to print and play on.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Stage {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) kubectl: PathBuf,
    pub(crate) ironic: String,
    pub(crate) servers: Vec<Server>,
    /// Those that Ironic does not know: their numbers in the rack go on.
    pub(crate) unknown: Vec<Machine>,
    /// The cluster that Cluster API's managers drive, and its namespace.
    pub(crate) cluster: String,
    pub(crate) namespace: String,
    /// Kubeconfig of that cluster, in which the nodes are.
    pub(crate) workload: PathBuf,
    pub(crate) controllers: Vec<Controller>,
}

/// A virtual server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Server {
    pub(crate) name: String,
    /// UUID of its node in Ironic.
    pub(crate) node: String,
    pub(crate) bmc: Machine,
}

/// A controller that runs.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Controller {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) log: PathBuf,
}

impl Stage {
    /// The place of a chapter: a namespace of this name.
    pub(crate) async fn place(&self, namespace: &str) -> anyhow::Result<Place> {
        let client = objects::client(&self.kubeconfig).await?;
        objects::namespace(&client, namespace).await?;
        Ok(Place { client, namespace: namespace.to_owned() })
    }

    /// A machine boots the agent, which tells Ironic about it: by whom it is made, too. Gives its node.
    pub(crate) async fn boots(&self, agent: &Agent, maker: &str) -> anyhow::Result<String> {
        let mut report = agent.report();
        report["inventory"]["system_vendor"]["manufacturer"] = json!(maker);
        Agent::post_to(&self.ironic, &report).await
    }

    /// Machines that no earlier play has switched on, called so and by their numbers.
    pub(crate) fn agents(count: usize, name: &str) -> anyhow::Result<Vec<Agent>> {
        let first = u32::try_from(Timestamp::now().as_second() % 1_000_000)? * 8;
        let mut agents: Vec<Agent> = (first + 1..).take(count).map(Agent::new).collect();
        for agent in &mut agents {
            agent.hostname = format!("{name}-{}", agent.index);
        }
        Ok(agents)
    }

    /// The place of chapters about machines: the namespace of the cluster.
    pub(crate) async fn in_cluster(&self) -> anyhow::Result<Place> {
        self.place(&self.namespace).await
    }
}

/// A namespace that a chapter plays in, with a client that may do everything.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Place {
    pub(crate) fn api(&self, kind: Kind) -> Api<DynamicObject> {
        kind.api(&self.client, &self.namespace)
    }

    pub(crate) async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        objects::apply(&self.client, Some(&self.namespace), object).await.map(drop)
    }

    /// An object as it is; null where there is none.
    pub(crate) async fn get(&self, kind: Kind, name: &str) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self.api(kind).get_opt(name).await?)?)
    }

    pub(crate) async fn list(&self, kind: Kind, which: &ListParams) -> anyhow::Result<Vec<Value>> {
        let found = self.api(kind).list(which).await?.items;
        Ok(found.iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
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
    let namespace = "ferrite-system";
    objects::namespace(&plane.admin().await, namespace).await?;
    // Off where nobody asks for it; the power-on chapter does.
    let values = json!({ "scaleToHosts": { "enabled": true } });
    let values = if name == "capm3-reuse" { values } else { json!({}) };
    let account = Account::of_chart(plane, namespace, name, values).await?;
    // The chart's hook does this with an account that may change CRDs.
    let by_admin = plane.kubeconfig("admin", &["system:masters"])?;
    cache::run(Command::new(program).arg("extend-crd").env("KUBECONFIG", by_admin))?;
    Running::start(name, program, &account, environment).await
}
