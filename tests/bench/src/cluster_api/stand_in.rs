//! The stand-in for what no machine here can be: a host that is provisioned, boots and runs a kubelet; and for an
//! infrastructure provider in stories where none runs.
//!
//! For each `Metal3Machine` with bootstrap data it plays the provider (`providerID`, provisioned, ready), then the host
//! (a Node with its conditions, static pods of a control plane), and when the `Metal3Machine` is deleted it takes the
//! pods away and lets the `Metal3Machine` go.
//!
//! What it cannot prove: that bootstrap data works, that a node really joins or a control plane really serves, that
//! anything takes as long as it does on hardware, that a drained pod really ends, or that a host comes back after a
//! reboot. A Node is as ready as a story says; no heartbeat is behind it.

use std::time::Duration;

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::objects::{KUBEADM_CONFIG, MACHINE, METAL3_CLUSTER, METAL3_MACHINE, VERSION};

const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
const CONTROL_PLANE_ROLE: &str = "node-role.kubernetes.io/control-plane";
const CERTIFICATE_EXPIRY: &str = "machine.cluster.x-k8s.io/certificates-expiry";
const FINALIZER: &str = "bench.ferrite.metal3.io/stand-in";
const STATIC_PODS: &[&str] = &["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Who is the infrastructure provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Nobody runs: the stand-in marks Metal3 objects as provisioned, and holds them with a finalizer of its own.
    Played,
    /// A provider of machines runs. The stand-in waits for its `providerID` and plays the hosts only.
    Runs,
}

/// Plays the hosts of one cluster until it is dropped.
pub struct StandIn {
    workload: kube::Client,
    task: JoinHandle<()>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StandIn {
    /// Begins to play for the Machines of one cluster.
    pub fn start(
        management: &kube::Client,
        workload: &kube::Client,
        namespace: &str,
        cluster: &str,
        provider: Provider,
    ) -> Self {
        let stage = Stage {
            machines: MACHINE.api(management, namespace),
            metal3_machines: METAL3_MACHINE.api(management, namespace),
            configs: KUBEADM_CONFIG.api(management, namespace),
            workload: workload.clone(),
            provider,
        };
        let task = tokio::spawn(stage.play(format!("{CLUSTER_LABEL}={cluster}")));
        Self { workload: workload.clone(), task }
    }

    /// Sets the Ready condition of a Node: `True`, `False` as a kubelet in trouble says it, or `Unknown` as is said of
    /// a kubelet that has fallen silent.
    ///
    /// # Errors
    /// When there is no such Node.
    pub async fn set_ready(&self, node: &str, status: &str) -> anyhow::Result<()> {
        let reason = match status {
            "True" => "KubeletReady",
            "False" => "KubeletNotReady",
            _ => "NodeStatusUnknown",
        };
        let patch = json!({"status": {"conditions": [node_condition("Ready", status, reason)]}});
        let nodes: Api<Node> = Api::all(self.workload.clone());
        nodes
            .patch_status(node, &PatchParams::default(), &Patch::Strategic(&patch))
            .await
            .with_context(|| format!("Node {node} cannot be set to Ready={status}"))?;
        Ok(())
    }
}

/// The provider's word that a `Metal3Cluster` is there.
pub(super) async fn metal3_cluster_is_ready(
    management: &kube::Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<()> {
    let status =
        json!({"status": {"initialization": {"provisioned": true}, "conditions": [ready()]}});
    METAL3_CLUSTER
        .api(management, namespace)
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// The status of a condition.
pub(super) fn condition<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == name)?["status"].as_str()
}

struct Stage {
    machines: Api<DynamicObject>,
    metal3_machines: Api<DynamicObject>,
    configs: Api<DynamicObject>,
    workload: kube::Client,
    provider: Provider,
}

impl Stage {
    async fn play(self, labels: String) {
        let which = watcher::Config::default().labels(&labels);
        // Bootstrap data appears on the Machine, everything else on the Metal3Machine.
        let machines = watcher::watcher(self.machines.clone(), which.clone())
            .default_backoff()
            .applied_objects();
        let metal3_machines = watcher::watcher(self.metal3_machines.clone(), which)
            .default_backoff()
            .applied_objects();
        let names = futures_util::stream::select(
            machines.map_ok(|machine| {
                machine.data["spec"]["infrastructureRef"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            }),
            metal3_machines.map_ok(|machine| machine.metadata.name.unwrap_or_default()),
        );
        let mut names = std::pin::pin!(names);
        while let Some(name) = names.next().await {
            // A watch that breaks comes back by itself.
            let Ok(name) = name else { continue };
            let mut attempts = 1;
            while let Err(error) = self.look_at(&name).await {
                if attempts == 20 {
                    eprintln!("the stand-in gives up on Metal3Machine {name}: {error:#}");
                    break;
                }
                attempts += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    /// Does what is due for one `Metal3Machine`. Safe to repeat.
    async fn look_at(&self, name: &str) -> anyhow::Result<()> {
        let Some(metal3_machine) = self.metal3_machines.get_opt(name).await? else {
            return Ok(());
        };
        let host = metal3_machine.metadata.name.as_deref().unwrap_or_default();
        if metal3_machine.metadata.deletion_timestamp.is_some() {
            self.power_off(host).await?;
            return self.let_go(&metal3_machine).await;
        }
        let owners = metal3_machine.metadata.owner_references.iter().flatten();
        let Some(owner) = owners.clone().find(|owner| owner.kind == MACHINE.kind) else {
            return Ok(());
        };
        let Some(machine) = self.machines.get_opt(&owner.name).await? else {
            return Ok(());
        };
        // A host is not installed before it is known what it shall do at its first boot.
        if !machine.data["spec"]["bootstrap"]["dataSecretName"].is_string() {
            return Ok(());
        }
        if self.provider == Provider::Played {
            self.provision(&metal3_machine).await?;
        }
        let seen = self.metal3_machines.get(name).await?;
        match seen.data["spec"]["providerID"].as_str() {
            Some(provider_id) => self.boot(&machine, host, provider_id).await,
            None => Ok(()),
        }
    }

    /// The provider's part, up to its last word that the host is installed.
    async fn provision(&self, metal3_machine: &DynamicObject) -> anyhow::Result<()> {
        let name = metal3_machine.metadata.name.as_deref().unwrap_or_default();
        if metal3_machine.data["status"]["initialization"]["provisioned"] == true {
            return Ok(());
        }
        let mut finalizers = metal3_machine.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.to_owned());
        }
        let namespace = metal3_machine.metadata.namespace.as_deref().unwrap_or_default();
        let spec = json!({
            "metadata": {"finalizers": finalizers, "resourceVersion": metal3_machine.metadata.resource_version},
            "spec": {"providerID": format!("metal3://{namespace}/host-of-{name}/{name}")},
        });
        self.metal3_machines.patch(name, &PatchParams::default(), &Patch::Merge(&spec)).await?;
        let status = json!({"status": {
            "initialization": {"provisioned": true},
            "conditions": [ready()],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        }});
        self.metal3_machines
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    /// The host's part: a kubelet that registers its Node and reports its static pods.
    async fn boot(
        &self,
        machine: &DynamicObject,
        host: &str,
        provider_id: &str,
    ) -> anyhow::Result<()> {
        let labels = machine.metadata.labels.as_ref();
        let master = labels.is_some_and(|labels| labels.contains_key(CONTROL_PLANE_LABEL));
        let nodes: Api<Node> = Api::all(self.workload.clone());
        if nodes
            .get_opt(host)
            .await?
            .is_some_and(|node| node.status.is_some_and(|status| status.conditions.is_some()))
        {
            return Ok(());
        }
        let mut node = json!({
            "metadata": {"name": host, "labels": {"kubernetes.io/hostname": host}},
            "spec": {"providerID": provider_id},
        });
        if master {
            // What kubeadm does to the Nodes of a control plane.
            node["metadata"]["labels"][CONTROL_PLANE_ROLE] = json!("");
            node["spec"]["taints"] = json!([{"key": CONTROL_PLANE_ROLE, "effect": "NoSchedule"}]);
            self.say_certificate_expiry(machine).await?;
        }
        let node: Node = serde_json::from_value(node)?;
        create(&nodes, &node).await?;
        if master {
            for component in STATIC_PODS {
                self.run_static_pod(component, host).await?;
            }
        }
        // Last: a Node that is ready has everything. Cluster API calls it healthy only with all four.
        let status = json!({"status": {
            "conditions": [
                node_condition("Ready", "True", "KubeletReady"),
                node_condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                node_condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                node_condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "stand-in",
                "bootID": "none", "machineID": "none", "systemUUID": "none", "kernelVersion": "0",
                "containerRuntimeVersion": "none://0", "kubeletVersion": VERSION, "kubeProxyVersion": VERSION,
            },
        }});
        nodes.patch_status(host, &PatchParams::default(), &Patch::Strategic(&status)).await?;
        Ok(())
    }

    /// Who runs a control plane asks each of its API servers, through its kubelet, when its certificate ends, and goes on
    /// only with an answer. Here is no kubelet that could pass the question on, so the answer is where a bootstrap
    /// provider may leave it.
    async fn say_certificate_expiry(&self, machine: &DynamicObject) -> anyhow::Result<()> {
        let config = &machine.data["spec"]["bootstrap"]["configRef"]["name"];
        let config =
            config.as_str().context("a Machine of a control plane has no bootstrap object")?;
        let patch =
            json!({"metadata": {"annotations": {CERTIFICATE_EXPIRY: "2099-01-01T00:00:00Z"}}});
        self.configs.patch(config, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    async fn run_static_pod(&self, component: &str, host: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.workload.clone(), "kube-system");
        let name = format!("{component}-{host}");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {"component": component, "tier": "control-plane"},
                // The marks of a static pod: a drain leaves it alone.
                "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "stand-in"},
            },
            "spec": {
                "nodeName": host,
                "hostNetwork": true,
                "containers": [{"name": component, "image": format!("{component}:{VERSION}")}],
            },
        }))?;
        create(&pods, &pod).await?;
        let now = now();
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
                {"type": "Ready", "status": "True", "lastTransitionTime": now},
            ],
        }});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
        Ok(())
    }

    /// No kubelet, no pods. The Node stays until somebody deletes it.
    async fn power_off(&self, host: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::all(self.workload.clone());
        for pod in
            pods.list(&ListParams::default().fields(&format!("spec.nodeName={host}"))).await?
        {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let pods: Api<Pod> = Api::namespaced(self.workload.clone(), namespace);
            let now = DeleteParams::default().grace_period(0);
            match pods.delete(pod.metadata.name.as_deref().unwrap_or_default(), &now).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                deleted => drop(deleted?),
            }
        }
        Ok(())
    }

    async fn let_go(&self, metal3_machine: &DynamicObject) -> anyhow::Result<()> {
        let held = metal3_machine.metadata.finalizers.clone().unwrap_or_default();
        let others: Vec<_> = held.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
        if others.len() == held.len() {
            return Ok(());
        }
        let name = metal3_machine.metadata.name.as_deref().unwrap_or_default();
        let patch = json!({"metadata": {
            "finalizers": others,
            "resourceVersion": metal3_machine.metadata.resource_version,
        }});
        self.metal3_machines.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }
}

/// Makes an object unless it is there.
async fn create<K>(api: &Api<K>, object: &K) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        made => {
            made?;
            Ok(())
        }
    }
}

fn ready() -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": now(),
    })
}

fn node_condition(kind: &str, status: &str, reason: &str) -> Value {
    let now = now();
    json!({
        "type": kind, "status": status, "reason": reason, "message": "said by the bench's stand-in",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

fn now() -> String {
    // Whole seconds, as Kubernetes' own times.
    let now = k8s_openapi::jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
