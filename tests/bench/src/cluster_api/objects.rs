//! Objects as users of Cluster API and Metal3 write them: plain values, the rest is changed in place by a story.

use anyhow::Context;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The Kubernetes release that Machines and control planes ask for: the one of the API servers here.
pub const VERSION: &str = "v1.36.3";

/// A kind that stories look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Group and version.
    pub api_version: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
}

/// The label that names an object's cluster.
pub const OF_CLUSTER: &str = "cluster.x-k8s.io/cluster-name";

const CORE: &str = "cluster.x-k8s.io/v1beta2";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io/v1beta2";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io/v1beta2";
/// The version that remediation controllers in the field still ask for.
const REMEDIATION: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

/// Cluster API's cluster.
pub const CLUSTER: Kind = Kind { api_version: CORE, kind: "Cluster" };
/// One node to be.
pub const MACHINE: Kind = Kind { api_version: CORE, kind: "Machine" };
/// Machines of one template.
pub const MACHINE_SET: Kind = Kind { api_version: CORE, kind: "MachineSet" };
/// Machine sets that replace each other.
pub const MACHINE_DEPLOYMENT: Kind = Kind { api_version: CORE, kind: "MachineDeployment" };
/// Who says that a Machine needs remediation.
pub const MACHINE_HEALTH_CHECK: Kind = Kind { api_version: CORE, kind: "MachineHealthCheck" };
/// The control plane's Machines.
pub const KUBEADM_CONTROL_PLANE: Kind =
    Kind { api_version: CONTROL_PLANE, kind: "KubeadmControlPlane" };
/// How a Machine joins.
pub const KUBEADM_CONFIG: Kind = Kind { api_version: BOOTSTRAP, kind: "KubeadmConfig" };
/// How the Machines of a set join.
pub const KUBEADM_CONFIG_TEMPLATE: Kind =
    Kind { api_version: BOOTSTRAP, kind: "KubeadmConfigTemplate" };
/// Metal3's part of a cluster.
pub const METAL3_CLUSTER: Kind = Kind { api_version: INFRASTRUCTURE, kind: "Metal3Cluster" };
/// Metal3's part of a Machine.
pub const METAL3_MACHINE: Kind = Kind { api_version: INFRASTRUCTURE, kind: "Metal3Machine" };
/// What [`METAL3_MACHINE`]s are made from.
pub const METAL3_MACHINE_TEMPLATE: Kind =
    Kind { api_version: INFRASTRUCTURE, kind: "Metal3MachineTemplate" };
/// CAPM3's remediation of one Machine.
pub const METAL3_REMEDIATION: Kind = Kind { api_version: REMEDIATION, kind: "Metal3Remediation" };
/// What [`METAL3_REMEDIATION`]s are made from.
pub const METAL3_REMEDIATION_TEMPLATE: Kind =
    Kind { api_version: REMEDIATION, kind: "Metal3RemediationTemplate" };

impl Kind {
    /// As the API server names it.
    pub fn resource(self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, self.kind))
    }

    /// Its objects in one namespace.
    pub fn api(self, client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }

    /// Its objects wherever they are.
    pub fn all(self, client: &kube::Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }

    /// An object of this kind.
    pub fn object(self, name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name},
            "spec": spec,
        })
    }

    /// A reference as Cluster API writes it: the version is looked up by contract.
    pub fn reference(self, name: &str) -> Value {
        let group = self.api_version.split('/').next().unwrap_or_default();
        json!({"apiGroup": group, "kind": self.kind, "name": name})
    }

    /// Makes an object of this kind.
    ///
    /// # Errors
    /// When the API server or a webhook refuses it.
    pub async fn create(
        self,
        client: &kube::Client,
        namespace: &str,
        object: Value,
    ) -> anyhow::Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let created = self.api(client, namespace).create(&PostParams::default(), &object).await;
        created.with_context(|| format!("{} is refused", self.kind))
    }
}

/// A cluster on Metal3. Its control plane is a [`kubeadm_control_plane`] of the same name, or somebody else's matter.
pub fn cluster(name: &str, host: &str, port: u16, kubeadm: bool) -> Value {
    let mut spec = json!({
        "controlPlaneEndpoint": {"host": host, "port": port},
        "infrastructureRef": METAL3_CLUSTER.reference(name),
    });
    if kubeadm {
        spec["controlPlaneRef"] = KUBEADM_CONTROL_PLANE.reference(name);
    }
    CLUSTER.object(name, &spec)
}

/// Metal3's part of [`cluster`].
pub fn metal3_cluster(name: &str, host: &str, port: u16) -> Value {
    METAL3_CLUSTER.object(
        name,
        &json!({"controlPlaneEndpoint": {"host": host, "port": port}, "cloudProviderEnabled": false}),
    )
}

/// A Machine of a cluster, whose [`metal3_machine`] has its name and whose bootstrap data is in the secret `boot`.
pub fn machine(name: &str, cluster: &str) -> Value {
    let spec = json!({
        "clusterName": cluster,
        "version": VERSION,
        "bootstrap": {"dataSecretName": "boot"},
        "infrastructureRef": METAL3_MACHINE.reference(name),
    });
    let mut machine = MACHINE.object(name, &spec);
    machine["metadata"]["labels"] = json!({OF_CLUSTER: cluster});
    machine
}

/// Metal3's part of a [`machine`]: it installs one image on any host.
pub fn metal3_machine(name: &str, cluster: &str) -> Value {
    let mut machine = METAL3_MACHINE.object(name, &json!({"image": image("diskFormat")}));
    machine["metadata"]["labels"] = json!({OF_CLUSTER: cluster});
    machine
}

/// An image, with the field that says its format: machines and hosts call it differently.
pub fn image(format: &str) -> Value {
    json!({
        "url": "http://127.0.0.1/image.qcow2",
        "checksum": "http://127.0.0.1/image.qcow2.sha256sum",
        "checksumType": "sha256",
        format: "qcow2",
    })
}

/// References to the one owner of an object.
pub fn owned_by(kind: Kind, owner: &DynamicObject) -> Value {
    json!([{
        "apiVersion": kind.api_version, "kind": kind.kind, "name": owner.name_any(),
        "uid": owner.uid(), "controller": true,
    }])
}

/// Machines of this template install one image on any host.
pub fn metal3_machine_template(name: &str) -> Value {
    METAL3_MACHINE_TEMPLATE
        .object(name, &json!({"template": {"spec": {"image": image("diskFormat")}}}))
}

/// Workers that join with kubeadm's defaults, under the name that their host was given.
pub fn kubeadm_config_template(name: &str) -> Value {
    KUBEADM_CONFIG_TEMPLATE.object(
        name,
        &json!({"template": {"spec": {"joinConfiguration": {
            "nodeRegistration": {"name": "{{ ds.meta_data.name }}"},
        }}}}),
    )
}

/// Workers, replaced as where every host is in use: one goes before its successor is made (`maxSurge: 0`).
pub fn machine_deployment(
    name: &str,
    cluster: &str,
    replicas: u32,
    machines: &str,
    bootstrap: &str,
) -> Value {
    let labels = json!({"pool": name});
    MACHINE_DEPLOYMENT.object(
        name,
        &json!({
            "clusterName": cluster,
            "replicas": replicas,
            "rollout": {"strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            }},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": cluster,
                    "version": VERSION,
                    "bootstrap": {"configRef": KUBEADM_CONFIG_TEMPLATE.reference(bootstrap)},
                    "infrastructureRef": METAL3_MACHINE_TEMPLATE.reference(machines),
                },
            },
        }),
    )
}

/// A control plane whose etcd runs elsewhere. Its Machines are replaced one by one with one host to spare, which is the
/// default and the only way with fewer than three replicas.
pub fn kubeadm_control_plane(name: &str, replicas: u32, machines: &str) -> Value {
    KUBEADM_CONTROL_PLANE.object(
        name,
        &json!({
            "replicas": replicas,
            "version": VERSION,
            "machineTemplate": {"spec": {"infrastructureRef": METAL3_MACHINE_TEMPLATE.reference(machines)}},
            "kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": {
                "endpoints": ["https://127.0.0.1:2379"],
                "caFile": "/etc/kubernetes/pki/etcd/ca.crt",
                "certFile": "/etc/kubernetes/pki/apiserver-etcd-client.crt",
                "keyFile": "/etc/kubernetes/pki/apiserver-etcd-client.key",
            }}}},
        }),
    )
}

/// Remediation by CAPM3's kind: reboot.
pub fn metal3_remediation_template(name: &str) -> Value {
    METAL3_REMEDIATION_TEMPLATE.object(
        name,
        &json!({"template": {"spec": {"strategy": {"type": "Reboot", "retryLimit": 1, "timeout": "300s"}}}}),
    )
}

/// Asks for remediation of a pool's Machine as soon as its Node is not ready.
pub fn machine_health_check(
    name: &str,
    cluster: &str,
    pool: &str,
    template: Kind,
    template_name: &str,
) -> Value {
    MACHINE_HEALTH_CHECK.object(
        name,
        &json!({
            "clusterName": cluster,
            "selector": {"matchLabels": {"pool": pool}},
            "checks": {"unhealthyNodeConditions": [
                {"type": "Ready", "status": "False", "timeoutSeconds": 0},
                {"type": "Ready", "status": "Unknown", "timeoutSeconds": 0},
            ]},
            "remediation": {"templateRef": {
                "apiVersion": template.api_version,
                "kind": template.kind,
                "name": template_name,
            }},
        }),
    )
}
