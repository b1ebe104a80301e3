//! `bmo-reboot` with a real API server, a real Ironic and virtual Redfish BMCs.

mod calls;
mod cycle;
mod disturbed;
mod invariants;
mod maintenance;
mod model;
mod ours;
mod process;
mod proof;
mod record;
mod rest;
mod sweeps;
mod takeover;
mod trouble;

use std::time::{Duration, Instant};

use bench::bmc::{self, Machine};
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group, install};
use bench::faults::Plan;
use bench::ironic::{self, Ironic};
use bmo_reboot::settings::{Policy, needed};
use controller_kit::crd;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::in_process::{self, Running};

/// Long enough for a busy machine; nothing that is promised is measured by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// The annotation without a key of its own.
pub(crate) const PLAIN: &str = "reboot.metal3.io";
pub(crate) const HARD: &str = r#"{"mode":"hard"}"#;

/// An API server whose CRD has the stamps. The shared one stays as stock for others.
pub(crate) async fn plane() -> &'static ControlPlane {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = async {
        let plane = ControlPlane::start("bmo-reboot").await?;
        let admin = plane.admin().await;
        install(&admin, &[Group::Metal3]).await?;
        crd::extend(&admin, &needed(), false).await.map_err(anyhow::Error::msg)?;
        crds::settled(&admin).await?;
        Ok::<_, anyhow::Error>(plane)
    };
    PLANE.get_or_try_init(|| start).await.expect("the API server of these stories starts")
}

pub(crate) fn kind() -> ApiResource {
    ApiResource {
        group: "metal3.io".into(),
        version: "v1alpha1".into(),
        api_version: "metal3.io/v1alpha1".into(),
        kind: "BareMetalHost".into(),
        plural: "baremetalhosts".into(),
    }
}

/// One namespace with its hosts, and an account with the rights of the chart.
pub(crate) struct Site {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) admin: Client,
    pub(crate) namespace: String,
    pub(crate) account: kube::Config,
    pub(crate) user: String,
}

/// Short soft attempts, so that nobody waits for minutes.
pub(crate) fn quick() -> Policy {
    Policy {
        soft_slice: Duration::from_secs(4),
        soft_timeout: Duration::from_secs(8),
        poll_interval: Duration::from_secs(30),
        ..Policy::default()
    }
}

/// The controller as its process would run it, in one namespace, with somebody else's client and without a lease.
pub(crate) async fn run(client: Client, namespace: String, policy: Policy, endpoint: String) {
    serve(client, namespace, policy, settings(&endpoint)).await;
}

async fn serve(client: Client, namespace: String, policy: Policy, settings: ::ironic::Settings) {
    let kit = in_process::kit(in_process::config("bmo-reboot", vec![namespace]), client);
    bmo_reboot::controller::run(kit, policy, settings).await.unwrap();
}

fn settings(endpoint: &str) -> ::ironic::Settings {
    let lookup = |name: &str| (name == "METAL3_AUTH_ROOT_DIR").then(|| "/nonexistent".to_owned());
    ::ironic::Settings::from_lookup(Some(endpoint), lookup).unwrap()
}

impl Site {
    pub(crate) async fn new(name: &str) -> Self {
        Self::on(plane().await, name).await
    }

    /// The same on another API server.
    pub(crate) async fn on(plane: &'static ControlPlane, name: &str) -> Self {
        let admin = plane.admin().await;
        let namespace = plane.namespace(name).await;
        let (account, user) = in_process::account(plane, "bmo-reboot", &namespace).await;
        Self { plane, admin, namespace, account, user }
    }

    /// The same account, to be used in another namespace.
    pub(crate) fn like(&self) -> Self {
        Self {
            plane: self.plane,
            admin: self.admin.clone(),
            namespace: self.namespace.clone(),
            account: self.account.clone(),
            user: self.user.clone(),
        }
    }

    pub(crate) fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), &self.namespace, &kind())
    }

    /// A controller that speaks to this Ironic, or to a proxy in front of it.
    pub(crate) fn start(&self, endpoint: &str, policy: Policy) -> Running {
        self.start_disturbed(endpoint, policy, Plan::none("bmo-reboot"))
    }

    pub(crate) fn start_disturbed(&self, endpoint: &str, policy: Policy, plan: Plan) -> Running {
        let (namespace, endpoint) = (self.namespace.clone(), endpoint.to_owned());
        let run = |client| run(client, namespace, policy, endpoint);
        Running::start(self.account.clone(), plan, run)
    }

    /// A controller that waits for an answer of Ironic no longer than this.
    pub(crate) fn start_impatient(&self, endpoint: &str, timeout: Duration) -> Running {
        let mut settings = settings(endpoint);
        settings.timeout = timeout;
        self.start_with(settings)
    }

    /// A controller with these settings of its Ironic client.
    pub(crate) fn start_with(&self, settings: ::ironic::Settings) -> Running {
        let namespace = self.namespace.clone();
        let run = |client| serve(client, namespace, quick(), settings);
        Running::start(self.account.clone(), Plan::none("bmo-reboot"), run)
    }

    /// A provisioned host that is ours, running. `more` is merged into it.
    pub(crate) async fn host(&self, name: &str, node: &str, more: Value) {
        let mut host = json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": { "name": name, "labels": { "ferrite.metal3.io/power": "managed" } },
            "spec": {
                "online": true,
                "bmc": { "address": "redfish://bmc", "credentialsName": "secret" },
                "image": { "url": "http://images/one" },
            },
            "status": {
                "poweredOn": true,
                "operationalStatus": "OK",
                "errorMessage": "",
                "errorCount": 0,
                "provisioningFailCount": 0,
                "provisioning": {
                    "ID": node,
                    "state": "provisioned",
                    "image": { "url": "http://images/one" },
                },
            },
        });
        merge(&mut host, more);
        let status = host.as_object_mut().unwrap().remove("status").unwrap();
        let host: DynamicObject = serde_json::from_value(host).unwrap();
        self.api().create(&PostParams::default(), &host).await.unwrap();
        self.status(name, json!({ "status": status })).await;
    }

    pub(crate) async fn status(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.api().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.api().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Sets annotations, or removes those that are null.
    pub(crate) async fn annotate(&self, name: &str, annotations: Value) {
        self.patch(name, json!({ "metadata": { "annotations": annotations } })).await;
    }

    pub(crate) async fn get(&self, name: &str) -> Value {
        serde_json::to_value(self.api().get(name).await.unwrap()).unwrap()
    }

    /// Looks at the host until it is as wanted.
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
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Actions of all events with this reason.
    pub(crate) async fn events(&self, reason: &str) -> Vec<Option<String>> {
        let events: Api<k8s_openapi::api::events::v1::Event> =
            Api::namespaced(self.admin.clone(), &self.namespace);
        let events = events.list(&ListParams::default()).await.unwrap();
        let told = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
        told.map(|event| event.action.clone()).collect()
    }

    /// Of which hosts a warning with this reason was given, and how often.
    pub(crate) async fn warned(&self, reason: &str) -> Vec<(String, i32)> {
        let events: Api<k8s_openapi::api::events::v1::Event> =
            Api::namespaced(self.admin.clone(), &self.namespace);
        let events = events.list(&ListParams::default()).await.unwrap();
        let is_one = |it: &&k8s_openapi::api::events::v1::Event| {
            it.reason.as_deref() == Some(reason) && it.type_.as_deref() == Some("Warning")
        };
        let told = events.iter().filter(is_one).map(|event| {
            let host = event.regarding.as_ref().and_then(|it| it.name.clone());
            // Repetitions are folded into the first one, which counts them.
            (host.unwrap_or_default(), event.series.as_ref().map_or(1, |series| series.count))
        });
        let mut told: Vec<_> = told.collect();
        told.sort();
        told
    }

    /// Waits until the host was switched off and on again after a stamp, with nobody asking any more.
    pub(crate) async fn cycled(&self, name: &str) -> Value {
        let done = |host: &Value| {
            stamps(host).1 > stamps(host).0
                && host["status"]["poweredOn"] == true
                && record(host).0 == "Completed"
                && keys(host).is_empty()
        };
        self.wait(name, "rebooted", done).await
    }
}

pub(crate) fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// `pendingRebootSince` and `lastPoweredOn`.
pub(crate) fn stamps(host: &Value) -> (Option<Timestamp>, Option<Timestamp>) {
    let stamp = |name: &str| host["status"]["provisioning"][name].as_str()?.parse().ok();
    (stamp("pendingRebootSince"), stamp("lastPoweredOn"))
}

/// Reason and message of a condition.
pub(crate) fn condition(host: &Value, kind: &str) -> (String, String) {
    let found =
        host["status"]["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == kind);
    let text = |name: &str| found.and_then(|it| it[name].as_str()).unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

pub(crate) fn record(host: &Value) -> (String, String) {
    condition(host, "Rebooting")
}

/// What bmo-reboot keeps of a host in the condition `RebootRecord`.
pub(crate) fn kept(host: &Value) -> Value {
    serde_json::from_str(&condition(host, "RebootRecord").1).unwrap_or_default()
}

/// All reboot requests of a host.
pub(crate) fn keys(host: &Value) -> Vec<String> {
    let annotations = host["metadata"]["annotations"].as_object();
    let keys = annotations.into_iter().flat_map(|it| it.keys());
    keys.filter(|key| *key == PLAIN || key.starts_with("reboot.metal3.io/")).cloned().collect()
}

/// A machine that runs, with its node in the shared Ironic. Gives what happened to it before the story began.
pub(crate) async fn machine(name: &str) -> (&'static Ironic, Machine, String) {
    let ironic = ironic::shared().await;
    let machine = bmc::spare().await.unwrap();
    let node = ironic.enroll(name, &machine).await.unwrap();
    switch(ironic, &node, "power on").await;
    (ironic, machine, node)
}

pub(crate) async fn switch(ironic: &Ironic, node: &str, target: &str) {
    ironic.power(node, target, None).await.unwrap();
    let settled = |node: &Value| {
        node["target_power_state"].is_null()
            && node["power_state"] == target
            && node["reservation"].is_null()
    };
    ironic.wait(node, target, settled).await.unwrap();
}
