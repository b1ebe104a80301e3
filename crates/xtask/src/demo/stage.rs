//! What every chapter plays on: the control plane, Ironic, the servers and the controllers that run.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bench::bmc::Machine;
use bench::chart;
use bench::control_plane::ControlPlane;
use bench::process::{Service, free_port};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What runs, for `demo` to print and play on, and for `demo --down` to end.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Stage {
    pub(crate) pid: u32,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) kubectl: PathBuf,
    pub(crate) ironic: String,
    pub(crate) servers: Vec<Server>,
    pub(crate) cluster: Cluster,
    pub(crate) controllers: Vec<Controller>,
}

/// A virtual server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Server {
    pub(crate) name: String,
    /// UUID of its node in Ironic.
    pub(crate) node: String,
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

impl Server {
    pub(crate) fn new(name: String, node: String, machine: &Machine) -> Self {
        let (address, system) = (machine.address().to_owned(), machine.system_path());
        Self { name, node, address, system }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.address, self.system)
    }

    /// `On` or `Off`, as its BMC says.
    pub(crate) async fn power(&self) -> anyhow::Result<String> {
        Ok(Machine::at(&self.address, &self.system)?.seen().await?.state)
    }
}

impl Stage {
    /// A client that may do everything.
    pub(crate) async fn admin(&self) -> anyhow::Result<Client> {
        bench::certs::install_provider();
        let file = Kubeconfig::read_from(&self.kubeconfig)?;
        let config =
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }
}

/// Installs the CRDs that our charts bring.
pub(crate) async fn own_crds(client: &Client) -> anyhow::Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (_, crd) in api_types::own_crds() {
        let name = crd.name_any();
        crds.create(&PostParams::default(), &crd).await?;
        await_condition(crds.clone(), &name, conditions::is_crd_established()).await?;
    }
    Ok(())
}

/// Makes a namespace, or finds it.
pub(crate) async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    Api::<Namespace>::all(client.clone())
        .patch(name, &PatchParams::apply("demo").force(), &Patch::Apply(object))
        .await?;
    Ok(())
}

/// Starts a controller as it runs in a cluster: with the account and the rights that its chart makes, as a process of its
/// own. Returns when it is ready.
pub(crate) async fn start_controller(
    plane: &ControlPlane,
    program: &std::path::Path,
    name: &str,
    values: &Value,
    environment: &[(&str, &str)],
) -> anyhow::Result<(Service, Controller)> {
    let namespace_name = "ferrite-system";
    let admin = plane.admin().await;
    namespace(&admin, namespace_name).await?;
    let objects = chart::render(&chart::dir(name), name, namespace_name, values)?;
    chart::install_permissions(&admin, &objects, namespace_name).await?;
    // The chart's hook does this with an account that may change CRDs.
    let by_admin = plane.kubeconfig("admin", &["system:masters"])?;
    bench::cache::run(Command::new(program).arg("extend-crd").env("KUBECONFIG", by_admin))?;
    let kubeconfig = chart::service_account_kubeconfig(plane, namespace_name, name).await?;
    let address = format!("127.0.0.1:{}", free_port());
    let folder = plane.dir();
    let mut command = Command::new(program);
    command
        .env("KUBECONFIG", kubeconfig)
        .env("FERRITE_LISTEN", &address)
        .env("FERRITE_LEASE_NAMESPACE", namespace_name)
        .env("FERRITE_LOG_FORMAT", "text")
        .envs(environment.iter().copied());
    let mut service = Service::start(name, command, folder)?;
    let ready = format!("http://{address}/readyz");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !bench::process::answers(&ready).await {
        ensure!(service.alive(), "{name} ended:\n{}", service.log_tail());
        if Instant::now() > deadline {
            bail!("{name} is not ready:\n{}", service.log_tail());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let log = service.log().to_owned();
    Ok((service, Controller { name: name.to_owned(), address, log }))
}

/// Looks again and again until it is so, which is what a chapter shows meanwhile.
pub(crate) async fn until(
    what: &str,
    mut look: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !look().await.with_context(|| what.to_owned())? {
        ensure!(Instant::now() < deadline, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
