//! A cluster whose objects a story makes by hand, as Cluster API's managers and `capm3-reuse` would.

use std::time::{Duration, Instant};

use bench::bmo;
use bench::cluster_api::objects::{CLUSTER, Kind, MACHINE, METAL3_MACHINE, VERSION};
pub(super) use bench::objects::REMEDIATION;
use bench::objects::{HOST, secret};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::ground::planes;
use super::operator::{NODE, Operator, PLAYED, boot, silence};

/// The name of the one cluster.
pub(super) const CLUSTER_NAME: &str = "metal";
/// Long enough for a busy machine; nothing that is promised is measured by it.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// CAPM3's.
pub(super) const UPSTREAM: Kind =
    Kind { api_version: "infrastructure.cluster.x-k8s.io/v1beta2", kind: "Metal3Remediation" };

/// One namespace with one cluster.
pub(super) struct Scene {
    pub(super) client: Client,
    pub(super) workload: Client,
    pub(super) namespace: String,
    played: String,
    operator: Option<Operator>,
}

impl Scene {
    /// A cluster with its kubeconfig, and a stand-in of its own that plays for its hosts.
    pub(super) async fn new(name: &str) -> Self {
        let namespace = planes().await.management.namespace(name).await;
        let scene = Self::at(planes().await.management.admin().await, &namespace, &namespace).await;
        scene.prepare().await;
        let operator = Operator::start(&scene.client, &scene.workload, &namespace);
        Self { operator: Some(operator), ..scene }
    }

    /// A scene in a namespace that is there, whose hosts somebody else plays for.
    pub(super) async fn at(client: Client, namespace: &str, played: &str) -> Self {
        Self {
            client,
            workload: planes().await.workload.admin().await,
            namespace: namespace.to_owned(),
            played: played.to_owned(),
            operator: None,
        }
    }

    pub(super) fn operator(&self) -> &Operator {
        self.operator.as_ref().expect("this scene has a stand-in of its own")
    }

    /// The Cluster and its kubeconfig.
    pub(super) async fn prepare(&self) {
        let spec = json!({
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Cluster", "name": CLUSTER_NAME},
        });
        self.create(CLUSTER, CLUSTER.object(CLUSTER_NAME, &spec)).await;
        let text = planes().await.workload.kubeconfig_text("admin", &["system:masters"]).unwrap();
        self.kubeconfig(&text).await;
    }

    /// Sets the kubeconfig.
    pub(super) async fn kubeconfig(&self, text: &str) {
        let name = format!("{CLUSTER_NAME}-kubeconfig");
        secret(&self.client, &self.namespace, &name, &json!({"value": text})).await.unwrap();
    }

    /// Name of a machine's node.
    pub(super) fn node_of(&self, machine: &str) -> String {
        format!("{}-{machine}", self.namespace)
    }

    /// A Machine with its `Metal3Machine`, a provisioned host that runs, and a node that has fallen silent.
    pub(super) async fn machine(&self, name: &str, host: &str) {
        self.machine_of(name, host, true).await;
    }

    pub(super) async fn machine_of(&self, name: &str, host: &str, owned: bool) {
        let metal = self.machine_without_host(name, host, owned).await;
        self.host(host, &metal, &self.node_of(name)).await;
    }

    /// A Machine with its node, and the name of a host that somebody else makes.
    pub(super) async fn machine_without_host(
        &self,
        name: &str,
        host: &str,
        owned: bool,
    ) -> DynamicObject {
        let labels = json!({"cluster.x-k8s.io/cluster-name": CLUSTER_NAME});
        let provider = format!("metal3://{}/{host}/{name}", self.namespace);
        let spec = json!({
            "clusterName": CLUSTER_NAME,
            "version": VERSION,
            "bootstrap": {"dataSecretName": "boot"},
            "infrastructureRef": METAL3_MACHINE.reference(name),
            "providerID": provider,
        });
        let mut machine = MACHINE.object(name, &spec);
        machine["metadata"]["labels"] = labels.clone();
        if owned {
            machine["metadata"]["ownerReferences"] = json!([{
                "apiVersion": MACHINE.api_version, "kind": "MachineSet", "name": "set", "uid": "none", "controller": true,
            }]);
        }
        let machine = self.create(MACHINE, machine).await;
        let node = self.node_of(name);
        self.patch_status(MACHINE, name, json!({"status": {"nodeRef": {"name": node}}})).await;
        let image = json!({"url": "http://i/i", "checksum": "http://i/c", "checksumType": "sha256", "diskFormat": "qcow2"});
        let mut metal = METAL3_MACHINE.object(name, &json!({ "image": image }));
        metal["metadata"]["labels"] = labels;
        metal["metadata"]["annotations"] =
            json!({"metal3.io/BareMetalHost": format!("{}/{host}", self.namespace)});
        metal["metadata"]["ownerReferences"] = json!([{
            "apiVersion": MACHINE.api_version, "kind": "Machine", "name": name, "uid": machine.uid(), "controller": true,
        }]);
        let metal = self.create(METAL3_MACHINE, metal).await;
        boot(&self.workload, &node).await;
        silence(&self.workload, &node).await;
        metal
    }

    async fn host(&self, name: &str, metal: &DynamicObject, node: &str) {
        let host: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": {"name": name, "labels": {PLAYED: self.played}, "annotations": {NODE: node}},
            "spec": {
                "online": true,
                "bmc": {"address": "redfish://bmc", "credentialsName": "secret"},
                "image": {"url": "http://i/i"},
                "consumerRef": {
                    "apiVersion": METAL3_MACHINE.api_version, "kind": METAL3_MACHINE.kind,
                    "name": metal.name_any(), "namespace": self.namespace, "uid": metal.uid(),
                },
            },
        }))
        .unwrap();
        let api = bmo::api(&self.client, &self.namespace);
        api.create(&PostParams::default(), &host).await.unwrap();
        let status = json!({"status": {
            "poweredOn": true, "operationalStatus": "OK", "errorMessage": "", "errorCount": 0,
            "provisioningFailCount": 0,
            "provisioning": {"state": "provisioned", "ID": "played", "image": {"url": "http://i/i"}},
        }});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// A request as a `MachineHealthCheck` makes it.
    pub(super) async fn request(&self, machine: &str, strategy: Value) -> DynamicObject {
        self.request_of(REMEDIATION, machine, strategy).await
    }

    pub(super) async fn request_of(
        &self,
        kind: Kind,
        machine: &str,
        strategy: Value,
    ) -> DynamicObject {
        let owner = self.get(MACHINE, machine).await;
        let mut object = kind.object(machine, &json!({ "strategy": strategy }));
        object["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": CLUSTER_NAME});
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": MACHINE.api_version, "kind": MACHINE.kind, "name": machine, "uid": owner.uid(),
        }]);
        self.create(kind, object).await
    }

    pub(super) async fn create(&self, kind: Kind, object: Value) -> DynamicObject {
        kind.create(&self.client, &self.namespace, object).await.unwrap()
    }

    pub(super) async fn get(&self, kind: Kind, name: &str) -> DynamicObject {
        kind.api(&self.client, &self.namespace).get(name).await.unwrap()
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

    pub(super) async fn patch_host(&self, name: &str, patch: Value) {
        let api = bmo::api(&self.client, &self.namespace);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn get_host(&self, name: &str) -> Value {
        let api = bmo::api(&self.client, &self.namespace);
        serde_json::to_value(api.get(name).await.unwrap()).unwrap()
    }

    pub(super) async fn node(&self, machine: &str) -> Option<Node> {
        Api::<Node>::all(self.workload.clone()).get_opt(&self.node_of(machine)).await.unwrap()
    }

    /// Looks at an object until it is as wanted; nothing if it is gone.
    pub(super) async fn until(
        &self,
        kind: Kind,
        name: &str,
        wanted: &str,
        check: impl Fn(Option<&Value>) -> bool,
    ) -> Value {
        let api = kind.api(&self.client, &self.namespace);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = api.get_opt(name).await.unwrap();
            let seen = seen.map(|it| serde_json::to_value(it).unwrap());
            if check(seen.as_ref()) {
                return seen.unwrap_or_default();
            }
            if Instant::now() > deadline {
                let host = bmo::api(&self.client, &self.namespace)
                    .list(&kube::api::ListParams::default())
                    .await
                    .unwrap();
                panic!(
                    "{} {name} was never {wanted}: {:#}\n{:#}",
                    kind.kind,
                    seen.unwrap_or_default(),
                    serde_json::to_value(host.items).unwrap()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the request says this reason.
    pub(super) async fn says(&self, name: &str, reason: &str) -> Value {
        self.until(REMEDIATION, name, reason, |it| it.is_some_and(|it| succeeded(it).1 == reason))
            .await
    }

    pub(super) async fn gone(&self, kind: Kind, name: &str) {
        self.until(kind, name, "gone", |it| it.is_none()).await;
    }

    /// Waits until the host is as wanted.
    /// Waits until the node of a machine is out of service, or is not.
    pub(super) async fn tainted(&self, machine: &str, wanted: bool) {
        let deadline = Instant::now() + PATIENCE;
        while self.node(machine).await.is_none_or(|it| is_tainted(&it) != wanted) {
            assert!(Instant::now() < deadline, "not so in time: out of service {wanted}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(super) async fn host_is(
        &self,
        name: &str,
        wanted: &str,
        check: impl Fn(&Value) -> bool,
    ) -> Value {
        self.until(HOST, name, wanted, |it| it.is_some_and(&check)).await
    }

    /// Nothing of ours is left on host, node and request.
    pub(super) async fn is_clean(&self, machine: &str, host: &str) {
        let seen = self.get_host(host).await;
        assert!(keys(&seen).is_empty(), "{seen:#}");
        if let Some(node) = self.node(machine).await {
            assert!(!is_tainted(&node), "{node:#?}");
            let annotations = node.metadata.annotations.unwrap_or_default();
            assert!(!annotations.keys().any(|it| it.contains("ferrite")), "{annotations:?}");
        }
        // The request is let go of last.
        let is_free =
            |it: Option<&Value>| it.is_none_or(|it| it["metadata"]["finalizers"].is_null());
        let request = self.until(REMEDIATION, machine, "let go", is_free).await;
        let annotations = request["metadata"]["annotations"].as_object().into_iter().flatten();
        let mut backups = annotations.filter(|(key, _)| key.contains("backup"));
        assert!(backups.next().is_none(), "{request:#}");
    }
}

/// All reboot requests of a host.
pub(super) fn keys(host: &Value) -> Vec<String> {
    let annotations = host["metadata"]["annotations"].as_object();
    let keys = annotations.into_iter().flat_map(|it| it.keys());
    keys.filter(|key| key.starts_with("reboot.metal3.io")).cloned().collect()
}

/// Status and reason of the condition `Succeeded`.
pub(super) fn succeeded(request: &Value) -> (&str, &str) {
    condition(request, "Succeeded")
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|it| it["type"] == kind);
    let text = |name: &str| found.and_then(|it| it[name].as_str()).unwrap_or_default();
    (text("status"), text("reason"))
}

/// The record of the last tries.
pub(super) fn history(host: &Value) -> Vec<Value> {
    let text = host["metadata"]["annotations"]["ferrite.metal3.io/remediation-history"].as_str();
    serde_json::from_str(text.unwrap_or("[]")).unwrap()
}

pub(super) fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|it| it.taints.clone()).unwrap_or_default();
    taints.iter().any(|it| it.key == "node.kubernetes.io/out-of-service")
}

pub(super) fn reboot(retries: u32, timeout: &str) -> Value {
    json!({"type": "reboot", "retryLimit": retries, "timeout": timeout})
}
