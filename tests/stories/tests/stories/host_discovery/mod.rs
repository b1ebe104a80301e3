//! `host-discovery` with a real API server, a real Ironic, and simulated agents that post inventories.

mod approval;
mod bmc;
mod flood;
mod ironic_away;
mod known;
mod mission;
mod model;
mod names;
mod pages;
mod power;
mod sweeps;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use api_types::metal3::BareMetalHostDiscovery;
use bench::agent::Agent;
use bench::bmo;
use bench::control_plane::ControlPlane;
use bench::crds::{Group, install, settled};
use bench::faults::Plan;
use bench::ironic::{Lent, Options};
use host_discovery::settings::Policy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::in_process::{self, Running};

/// Long enough for a busy machine; nothing that is promised is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const APPROVE: &str = "ferrite.metal3.io/approve";

/// An API server with both kinds.
pub(crate) async fn plane() -> &'static ControlPlane {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = async {
        let plane = ControlPlane::start("host-discovery").await?;
        let admin = plane.admin().await;
        install(&admin, &[Group::Metal3]).await?;
        let crds: Api<CustomResourceDefinition> = Api::all(admin);
        let crd = BareMetalHostDiscovery::crd();
        crds.create(&PostParams::default(), &crd).await?;
        await_condition(crds, &crd.name_any(), conditions::is_crd_established()).await?;
        settled(&plane.admin().await).await?;
        Ok::<_, anyhow::Error>(plane)
    };
    PLANE.get_or_try_init(|| Box::pin(start)).await.expect("the API server of these stories starts")
}

pub(crate) fn discoveries() -> ApiResource {
    ApiResource::erase::<BareMetalHostDiscovery>(&())
}

/// Numbers that no other story's machines have: all hosts of the API server are known to every controller.
pub(crate) fn numbers() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) * 1000
}

/// One namespace, an account with the rights of the chart, and an Ironic of its own: a controller takes every machine
/// that it finds there.
pub(crate) struct Site {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) admin: Client,
    pub(crate) namespace: String,
    pub(crate) account: kube::Config,
    pub(crate) ironic: Arc<Lent>,
    pub(crate) base: u32,
}

/// Polls often, so that nobody waits.
pub(crate) fn quick() -> Policy {
    Policy {
        poll_interval: Duration::from_millis(300),
        full_sync_interval: Duration::from_secs(2),
        ..Policy::default()
    }
}

/// The controller as its process would run it, in one namespace, with somebody else's client and without a lease.
pub(crate) async fn run(client: Client, namespace: String, policy: Policy, endpoint: String) {
    let lookup = |name: &str| (name == "METAL3_AUTH_ROOT_DIR").then(|| "/nonexistent".to_owned());
    let settings = ::ironic::Settings::from_lookup(Some(&endpoint), lookup).unwrap();
    run_with(client, namespace, policy, settings).await;
}

pub(crate) async fn run_with(
    client: Client,
    namespace: String,
    policy: Policy,
    settings: ::ironic::Settings,
) {
    let kit = in_process::kit(in_process::config("host-discovery", vec![namespace]), client);
    Box::pin(host_discovery::controller::run(kit, policy, settings)).await.unwrap();
}

impl Site {
    pub(crate) async fn new(name: &str) -> Self {
        Self::beside(name, Lent::usual().await.unwrap()).await
    }

    pub(crate) async fn with(name: &str, options: Options) -> Self {
        Self::beside(name, Lent::special(options).await.unwrap()).await
    }

    async fn beside(name: &str, ironic: Lent) -> Self {
        let plane = Box::pin(plane()).await;
        let admin = plane.admin().await;
        let namespace = plane.namespace(name).await;
        let (account, _) = in_process::account(plane, "host-discovery", &namespace).await;
        let ironic = Arc::new(ironic);
        Self { plane, admin, namespace, account, ironic, base: numbers() }
    }

    /// The same, to be used in another namespace.
    pub(crate) fn like(&self) -> Self {
        Self {
            plane: self.plane,
            admin: self.admin.clone(),
            namespace: self.namespace.clone(),
            account: self.account.clone(),
            ironic: self.ironic.clone(),
            base: numbers(),
        }
    }

    pub(crate) fn hosts_api(&self) -> Api<DynamicObject> {
        bmo::api(&self.admin, &self.namespace)
    }

    pub(crate) fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), &self.namespace, &discoveries())
    }

    pub(crate) fn start(&self, policy: Policy) -> Running {
        self.start_disturbed(&self.ironic.endpoint, policy, Plan::none("host-discovery"))
    }

    pub(crate) fn start_disturbed(&self, endpoint: &str, policy: Policy, plan: Plan) -> Running {
        let (namespace, endpoint) = (self.namespace.clone(), endpoint.to_owned());
        let run = |client| run(client, namespace, policy, endpoint);
        Running::start(self.account.clone(), plan, run)
    }

    /// A discovery; hosts are named by their host name unless the spec says otherwise.
    pub(crate) async fn discovery(&self, name: &str, spec: Value) {
        let mut whole = json!({ "resourceNameTemplate": { "hardwareDetails": "hostname" } });
        super::bmo_reboot::merge(&mut whole, spec);
        let object = json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHostDiscovery",
            "metadata": { "name": name },
            "spec": whole,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn approve(&self, name: &str, nodes: &str) {
        self.patch(name, json!({ "metadata": { "annotations": { APPROVE: nodes } } })).await;
    }

    /// A machine that no other story has.
    pub(crate) fn agent(&self, number: u32) -> Agent {
        let mut agent = Agent::new(self.base + number);
        agent.hostname = format!("m{number}");
        agent
    }

    /// A machine boots; gives its node.
    pub(crate) async fn boot(&self, agent: &Agent) -> String {
        self.post(&agent.report()).await
    }

    /// A machine, or somebody who pretends to be one, posts a report.
    pub(crate) async fn post(&self, report: &Value) -> String {
        let path = "/v1/continue_inspection";
        let (status, body) =
            self.ironic.call_version(Method::POST, path, Some(report), "1.1").await.unwrap();
        let uuid = body["uuid"].as_str();
        uuid.unwrap_or_else(|| panic!("{status} {body}")).to_owned()
    }

    /// A host that a person made.
    pub(crate) async fn host(&self, name: &str, body: Value) -> Value {
        let mut host = json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": { "name": name },
            "spec": { "online": true },
        });
        super::bmo_reboot::merge(&mut host, body);
        let host: DynamicObject = serde_json::from_value(host).unwrap();
        let made = self.hosts_api().create(&PostParams::default(), &host).await.unwrap();
        serde_json::to_value(made).unwrap()
    }

    pub(crate) async fn patch_host(&self, name: &str, patch: Value) {
        let params = PatchParams::default();
        self.hosts_api().patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn annotate_host(&self, name: &str, annotations: Value) {
        self.patch_host(name, json!({ "metadata": { "annotations": annotations } })).await;
    }

    pub(crate) async fn host_status(&self, name: &str, patch: Value) {
        let params = PatchParams::default();
        self.hosts_api().patch_status(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn hosts(&self) -> Vec<Value> {
        let hosts = self.hosts_api().list(&ListParams::default()).await.unwrap();
        let mut hosts: Vec<Value> =
            hosts.iter().map(|it| serde_json::to_value(it).unwrap()).collect();
        hosts.sort_by_key(|host| host["metadata"]["name"].to_string());
        hosts
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        let hosts = self.hosts().await;
        hosts.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn delete(&self, host: &str) {
        self.hosts_api().delete(host, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn get(&self, name: &str) -> Value {
        serde_json::to_value(self.api().get(name).await.unwrap()).unwrap()
    }

    /// Waits until the hosts of the namespace have these names.
    pub(crate) async fn wait_names(&self, wanted: &[&str]) {
        let mut sorted = wanted.to_vec();
        sorted.sort_unstable();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let names = self.names().await;
            if names == sorted {
                return;
            }
            if Instant::now() > deadline {
                let seen = self.api().list(&ListParams::default()).await.unwrap();
                let told: Vec<Value> = seen.iter().map(|it| it.data["status"].clone()).collect();
                panic!("{names:?} instead of {sorted:?}: {told:#?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the discovery is as wanted.
    pub(crate) async fn wait(
        &self,
        name: &str,
        wanted: &str,
        check: impl Fn(&Value) -> bool,
    ) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.get(name).await;
            if check(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{name} was never {wanted}: {seen:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the status lists this node for this reason.
    pub(crate) async fn listed(&self, name: &str, list: &str, node: &str, reason: &str) -> Value {
        let found = |seen: &Value| entry(seen, list, node, reason).is_some();
        let what = format!("{reason} of {node} in {list}");
        let seen = self.wait(name, &what, found).await;
        entry(&seen, list, node, reason).unwrap()
    }

    /// Some polls pass, one of them of all nodes.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
}

fn entry(seen: &Value, list: &str, node: &str, reason: &str) -> Option<Value> {
    let all = seen["status"][list].as_array()?;
    let is = |it: &&Value| {
        it["nodeID"] == node && it["reason"].as_str().unwrap_or_default().starts_with(reason)
    };
    all.iter().find(is).cloned()
}

/// Status, reason and message of a condition.
pub(crate) fn condition(seen: &Value, kind: &str) -> (String, String, String) {
    let all = seen["status"]["conditions"].as_array();
    let found = all.into_iter().flatten().find(|it| it["type"] == kind);
    let text = |name: &str| found.and_then(|it| it[name].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}
