//! A cluster whose objects a story makes by hand, as Cluster API's managers would.

use bench::bmo;
use bench::cluster_api::objects::{
    CLUSTER, Kind, MACHINE, MACHINE_DEPLOYMENT, MACHINE_SET, METAL3_MACHINE,
    METAL3_MACHINE_TEMPLATE, VERSION,
};
use bench::cluster_api::until_one;
use bench::control_plane::ControlPlane;
use bench::objects::secret;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// The name of the one cluster.
pub(super) const NAME: &str = "metal";
/// The secret with the bootstrap data of every Machine.
pub(super) const BOOT: &str = "boot";
pub(super) const DATA_TEMPLATE: Kind = Kind { kind: "Metal3DataTemplate", ..METAL3_MACHINE };

/// One namespace with one cluster.
pub(super) struct Scene {
    pub(super) client: Client,
    pub(super) namespace: String,
    /// The stand-in that plays for its hosts.
    played_by: String,
    operator: Option<bmo::StandIn>,
}

impl Scene {
    /// A cluster whose infrastructure is ready, and the bootstrap secret.
    pub(super) async fn new(plane: &ControlPlane, name: &str) -> Self {
        let namespace = plane.namespace(name).await;
        let client = plane.admin().await;
        let operator = bmo::StandIn::start(&client, &namespace);
        let mut scene = Self::prepare(client, &namespace, &namespace).await;
        scene.operator = Some(operator);
        scene
    }

    /// The same with hosts, the template `t` and the deployment `md` of one machine. Whether its hosts are kept for it, `reuse`
    /// says.
    pub(super) async fn with_deployment(
        plane: &ControlPlane,
        name: &str,
        hosts: &[&str],
        reuse: bool,
    ) -> Self {
        let scene = Self::new(plane, name).await;
        scene.hosts(hosts).await;
        scene.template("t", reuse).await;
        scene.deployment("md", "t", 1).await;
        scene
    }

    /// A cluster in a namespace that is there, with a stand-in that plays elsewhere.
    pub(super) async fn prepare(client: Client, namespace: &str, played_by: &str) -> Self {
        let scene = Self::at(client, namespace, played_by);
        let spec = json!({
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Cluster", "name": NAME},
        });
        scene.create(CLUSTER, CLUSTER.object(NAME, &spec)).await;
        let ready = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        scene.patch_status(CLUSTER, NAME, ready).await;
        scene.boot_secret().await;
        scene
    }

    /// A scene that was prepared before.
    pub(super) fn at(client: Client, namespace: &str, played_by: &str) -> Self {
        let (namespace, played_by) = (namespace.to_owned(), played_by.to_owned());
        Self { client, namespace, played_by, operator: None }
    }

    /// The stand-in for the bare metal operator.
    pub(super) fn operator(&self) -> &bmo::StandIn {
        self.operator.as_ref().expect("this scene has a stand-in of its own")
    }

    pub(super) async fn boot_secret(&self) {
        secret(&self.client, &self.namespace, BOOT, &json!({"value": "x"})).await.unwrap();
    }

    pub(super) async fn create(&self, kind: Kind, object: Value) -> DynamicObject {
        kind.create(&self.client, &self.namespace, object).await.unwrap()
    }

    pub(super) async fn patch(&self, kind: Kind, name: &str, patch: Value) {
        let api = kind.api(&self.client, &self.namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn patch_status(&self, kind: Kind, name: &str, patch: Value) {
        let api = kind.api(&self.client, &self.namespace);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn delete(&self, kind: Kind, name: &str) {
        let api = kind.api(&self.client, &self.namespace);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Hosts that are available.
    pub(super) async fn hosts(&self, names: &[&str]) {
        for name in names {
            self.host(name, json!({})).await;
        }
    }

    pub(super) async fn host(&self, name: &str, labels: Value) {
        bmo::make_host(&self.client, &self.namespace, name, &self.played_by, &labels)
            .await
            .unwrap();
    }

    pub(super) async fn patch_host(&self, name: &str, patch: Value) {
        let api = bmo::api(&self.client, &self.namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn patch_host_status(&self, name: &str, patch: Value) {
        let api = bmo::api(&self.client, &self.namespace);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn get_host(&self, name: &str) -> DynamicObject {
        bmo::api(&self.client, &self.namespace).get(name).await.unwrap()
    }

    /// A template of machines.
    pub(super) async fn template(&self, name: &str, reuse: bool) {
        let mut template = bench::cluster_api::objects::metal3_machine_template(name);
        template["spec"]["nodeReuse"] = json!(reuse);
        self.create(METAL3_MACHINE_TEMPLATE, template).await;
    }

    /// A template of data.
    pub(super) async fn data_template(&self, name: &str) {
        let spec = json!({"clusterName": NAME});
        self.create(DATA_TEMPLATE, DATA_TEMPLATE.object(name, &spec)).await;
    }

    /// A deployment of machines with one machine set of the same name.
    pub(super) async fn deployment(&self, name: &str, template: &str, replicas: u32) {
        let object =
            bench::cluster_api::objects::machine_deployment(name, NAME, replicas, template, "none");
        let made = self.create(MACHINE_DEPLOYMENT, object).await;
        let spec = json!({
            "clusterName": NAME,
            "replicas": replicas,
            "selector": {"matchLabels": {"pool": name}},
            "template": {
                "metadata": {"labels": {"pool": name}},
                "spec": made.data["spec"]["template"]["spec"],
            },
        });
        let mut set = MACHINE_SET.object(name, &spec);
        set["metadata"]["ownerReferences"] = json!([owner(MACHINE_DEPLOYMENT, &made)]);
        self.create(MACHINE_SET, set).await;
        self.is_current(name, replicas).await;
    }

    /// Says that all machines of a deployment are made from its present template.
    pub(super) async fn is_current(&self, deployment: &str, replicas: u32) {
        let api = MACHINE_DEPLOYMENT.api(&self.client, &self.namespace);
        let generation = api.get(deployment).await.unwrap().metadata.generation;
        let status = json!({"status": {
            "observedGeneration": generation, "replicas": replicas, "upToDateReplicas": replicas,
        }});
        self.patch_status(MACHINE_DEPLOYMENT, deployment, status).await;
    }

    /// A Machine of a deployment and its `Metal3Machine`, which is cloned from this template.
    pub(super) async fn machine(&self, name: &str, deployment: &str, template: &str) {
        self.machine_with(name, deployment, template, json!({})).await;
    }

    /// The same with something more in the `Metal3Machine`'s spec.
    pub(super) async fn machine_with(
        &self,
        name: &str,
        deployment: &str,
        template: &str,
        more: Value,
    ) {
        let set = MACHINE_SET.api(&self.client, &self.namespace).get(deployment).await.unwrap();
        let labels = json!({
            "cluster.x-k8s.io/cluster-name": NAME,
            "cluster.x-k8s.io/deployment-name": deployment,
            "cluster.x-k8s.io/set-name": deployment,
        });
        let spec = json!({
            "clusterName": NAME,
            "version": VERSION,
            "bootstrap": {"dataSecretName": BOOT},
            "infrastructureRef": METAL3_MACHINE.reference(name),
        });
        let mut machine = MACHINE.object(name, &spec);
        machine["metadata"]["labels"] = labels.clone();
        machine["metadata"]["ownerReferences"] = json!([owner(MACHINE_SET, &set)]);
        let machine = self.create(MACHINE, machine).await;
        let template_object =
            METAL3_MACHINE_TEMPLATE.api(&self.client, &self.namespace).get(template).await.unwrap();
        let mut spec = template_object.data["spec"]["template"]["spec"].clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut metal = METAL3_MACHINE.object(name, &spec);
        metal["metadata"]["labels"] = labels;
        metal["metadata"]["annotations"] = json!({
            "cluster.x-k8s.io/cloned-from-name": template,
            "cluster.x-k8s.io/cloned-from-groupkind": "Metal3MachineTemplate.infrastructure.cluster.x-k8s.io",
        });
        metal["metadata"]["ownerReferences"] = json!([owner(MACHINE, &machine)]);
        self.create(METAL3_MACHINE, metal).await;
    }

    /// Deletes a machine as Cluster API does: the `Metal3Machine` first.
    pub(super) async fn remove(&self, name: &str) {
        self.delete(METAL3_MACHINE, name).await;
        self.gone(METAL3_MACHINE, name).await;
        self.delete(MACHINE, name).await;
    }

    pub(super) async fn gone(&self, kind: Kind, name: &str) {
        let api = kind.api(&self.client, &self.namespace);
        let which =
            kube::runtime::watcher::Config::default().fields(&format!("metadata.name={name}"));
        let what = format!("{} {name} gone", kind.kind);
        bench::cluster_api::until(&api, &which, &what, std::collections::BTreeMap::is_empty)
            .await
            .unwrap();
    }

    /// Waits until a `Metal3Machine` is up; returns its host.
    pub(super) async fn up(&self, name: &str) -> String {
        let seen = self
            .until(name, "up", |it| {
                it.data["status"]["initialization"]["provisioned"] == true
                    && condition(it, "Ready").is_some_and(|it| it["status"] == "True")
            })
            .await;
        host_of(&seen)
    }

    /// Waits until a `Metal3Machine` is not ready for this reason.
    pub(super) async fn says(&self, name: &str, reason: &str) -> DynamicObject {
        self.until(name, reason, |it| {
            condition(it, "Ready").is_some_and(|it| it["reason"] == reason)
        })
        .await
    }

    pub(super) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl FnMut(&DynamicObject) -> bool,
    ) -> DynamicObject {
        let api = METAL3_MACHINE.api(&self.client, &self.namespace);
        until_one(&api, name, &format!("{name}: {what}"), holds).await.unwrap()
    }

    /// Waits until a host is like this.
    pub(super) async fn host_is(
        &self,
        name: &str,
        what: &str,
        holds: impl FnMut(&DynamicObject) -> bool,
    ) -> DynamicObject {
        let api = bmo::api(&self.client, &self.namespace);
        until_one(&api, name, &format!("host {name}: {what}"), holds).await.unwrap()
    }

    /// Kind and name of whom a host names as its consumer.
    pub(super) async fn consumer(&self, host: &str) -> String {
        consumer(&self.get_host(host).await)
    }
}

/// `Kind/name` of a host's consumer, or nothing.
pub(super) fn consumer(host: &DynamicObject) -> String {
    let consumer = &host.data["spec"]["consumerRef"];
    match (consumer["kind"].as_str(), consumer["name"].as_str()) {
        (Some(kind), Some(name)) => format!("{kind}/{name}"),
        _ => String::new(),
    }
}

pub(super) fn state(host: &DynamicObject) -> &str {
    host.data["status"]["provisioning"]["state"].as_str().unwrap_or_default()
}

pub(super) fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == kind)
}

/// The host that a `Metal3Machine` has or is about to claim.
pub(super) fn host_of(machine: &DynamicObject) -> String {
    let intended = machine.annotations().get("ferrite.metal3.io/intends-host").cloned();
    intended.unwrap_or_else(|| named_host(machine))
}

/// The host that a `Metal3Machine` has, for CAPM3.
pub(super) fn named_host(machine: &DynamicObject) -> String {
    let named = machine.annotations().get("metal3.io/BareMetalHost").cloned().unwrap_or_default();
    named.split_once('/').map(|(_, name)| name.to_owned()).unwrap_or_default()
}

fn owner(kind: Kind, object: &DynamicObject) -> Value {
    json!({
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": object.name_any(),
        "uid": object.uid(),
        "controller": true,
    })
}
