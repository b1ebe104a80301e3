//! A cluster that Cluster API manages: its objects in the management cluster and a real API server that it connects to.

use anyhow::Context;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::objects::{self, CLUSTER, METAL3_CLUSTER, VERSION};
use super::stand_in::{self, Provider, StandIn};
use super::until::until_one;
use crate::certs::Authority;
use crate::control_plane::ControlPlane;
use crate::steps::step_async;

/// Who makes the control plane's Machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masters {
    /// Nobody: the cluster is said to be initialized, and only workers are of interest.
    Given,
    /// A `KubeadmControlPlane` with the cluster's name, which the story makes.
    Kubeadm,
}

/// One cluster. Its API server and its stand-in end when it is dropped; its objects stay.
pub struct Workload {
    /// Where its objects are in the management cluster.
    pub namespace: String,
    /// Name of the Cluster and the `Metal3Cluster`.
    pub cluster: String,
    /// Client of the management cluster.
    pub management: kube::Client,
    /// Client of the workload cluster.
    pub client: kube::Client,
    /// Plays the hosts.
    pub stand_in: StandIn,
    /// The workload cluster itself.
    pub control_plane: ControlPlane,
}

impl Workload {
    /// Starts an API server, and makes a namespace with a Cluster, a `Metal3Cluster` and the secrets that Cluster API
    /// needs to connect and to make bootstrap data.
    ///
    /// # Errors
    /// When the API server does not start, or Cluster API does not take the objects.
    pub async fn start(
        management: &ControlPlane,
        name: &str,
        masters: Masters,
        provider: Provider,
    ) -> anyhow::Result<Self> {
        let control_plane = step_async(
            &format!("starting the API server of cluster {name}"),
            ControlPlane::start(name),
        )
        .await?;
        let client = control_plane.admin().await;
        make_known_to_kubeadm(&client).await?;

        let namespace = management.namespace(name).await;
        let admin = management.admin().await;
        make_secrets(&admin, &namespace, name, &control_plane, masters).await?;
        let (host, port) = endpoint(&control_plane.url)?;
        METAL3_CLUSTER
            .create(&admin, &namespace, objects::metal3_cluster(name, host, port))
            .await?;
        // No provider of ours has to do with clusters.
        stand_in::metal3_cluster_is_ready(&admin, &namespace, name).await?;
        let stand_in = StandIn::start(&admin, &client, &namespace, name, provider);
        let cluster = objects::cluster(name, host, port, masters == Masters::Kubeadm);
        CLUSTER.create(&admin, &namespace, cluster).await?;
        if masters == Masters::Given {
            say_initialized(&admin, &namespace, name).await?;
        }
        Ok(Self {
            namespace,
            cluster: name.to_owned(),
            management: admin,
            client,
            stand_in,
            control_plane,
        })
    }
}

fn endpoint(url: &str) -> anyhow::Result<(&str, u16)> {
    let address = url.trim_start_matches("https://");
    let (host, port) = address.split_once(':').with_context(|| format!("no port in {url}"))?;
    Ok((host, port.parse()?))
}

/// What `kubeadm init` leaves in a cluster: to Cluster API the sign that it need not be done again.
async fn make_known_to_kubeadm(client: &kube::Client) -> anyhow::Result<()> {
    // The API server makes this namespace by itself a moment after it is ready.
    let system: Namespace = serde_json::from_value(json!({"metadata": {"name": "kube-system"}}))?;
    match Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &system).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made?),
    }
    let configuration = format!(
        "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: {VERSION}\n"
    );
    let config: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "kubeadm-config"},
        "data": {"ClusterConfiguration": configuration},
    }))?;
    Api::namespaced(client.clone(), "kube-system").create(&PostParams::default(), &config).await?;
    Ok(())
}

async fn make_secrets(
    management: &kube::Client,
    namespace: &str,
    cluster: &str,
    workload: &ControlPlane,
    masters: Masters,
) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(management.clone(), namespace);
    let make = async |purpose: &str, kind: &str, data: Value| -> anyhow::Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {
                "name": format!("{cluster}-{purpose}"),
                "labels": {"cluster.x-k8s.io/cluster-name": cluster},
            },
            "type": kind,
            "stringData": data,
        }))?;
        secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    };
    let kubeconfig = workload.kubeconfig_text("admin", &["system:masters"])?;
    // Of Cluster API's own type the control plane provider would take it for its own and renew its certificate.
    make("kubeconfig", "Opaque", json!({"value": kubeconfig})).await?;
    let authority = Authority::new()?;
    // What a KubeadmControlPlane cannot make: the certificates of an etcd that is not its own. What nobody makes
    // without one: the authority that joining workers are told to trust.
    let purposes: &[&str] = match masters {
        Masters::Kubeadm => &["etcd", "apiserver-etcd-client"],
        Masters::Given => &["ca"],
    };
    for purpose in purposes {
        let identity = authority.client(purpose, &[])?;
        let data = json!({"tls.crt": identity.certificate, "tls.key": identity.key});
        make(purpose, "cluster.x-k8s.io/secret", data).await?;
    }
    Ok(())
}

/// Without a control plane object nobody tells Cluster API that the workload cluster can be joined.
async fn say_initialized(
    management: &kube::Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<()> {
    let clusters = CLUSTER.api(management, namespace);
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let status = json!({
        "apiVersion": CLUSTER.api_version,
        "kind": CLUSTER.kind,
        "status": {
            "initialization": {"controlPlaneInitialized": true},
            "conditions": [{
                "type": "ControlPlaneInitialized",
                "status": "True",
                "reason": "Initialized",
                "message": "",
                "lastTransitionTime": now,
            }],
        },
    });
    clusters
        .patch_status(name, &PatchParams::apply("bench").force(), &Patch::Apply(&status))
        .await?;
    until_one(&clusters, name, "a cluster that can be joined", |cluster| {
        cluster.data["status"]["initialization"]["controlPlaneInitialized"] == true
            && stand_in::condition(cluster, "ControlPlaneInitialized") == Some("True")
            && stand_in::condition(cluster, "RemoteConnectionProbe") == Some("True")
    })
    .await?;
    Ok(())
}
