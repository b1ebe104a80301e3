//! The controllers as they are installed: images on an empty base, charts by helm, pods of a real kubelet.

mod names;
mod permissions;
mod upgrade;
mod watched;

use std::process::Command;

use bench::cache;
use bench::chart;
use bench::cluster_api;
use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::image::{self, Written};
use bench::ironic::{self, Ironic};
use bench::node::{self, Node};
use bench::objects::secret;
use bench::programs::Profile;
use bench::skip::skipped;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

const NAMESPACE: &str = "ferrite-system";

pub(crate) const CONTROLLERS: [&str; 5] =
    ["bmo-reboot", "capm3-reuse", "clusterpool-inventory", "host-discovery", "remediation"];

/// Those that need to be told where Ironic is.
pub(crate) const OF_IRONIC: [&str; 2] = ["bmo-reboot", "host-discovery"];

/// Runs as `OpenShift` starts it, a user of the namespace's range that no image knows, and has to read a secret as that.
const OF_A_RANGE: &str = "host-discovery";

const SECRET: &str = "ironic-credentials";

/// A control plane with a node, the CRDs of the neighbours, and a namespace that enforces the restricted Pod Security
/// Standard.
struct Cluster {
    node: Node,
    plane: ControlPlane,
    client: Client,
    ironic: &'static Ironic,
    home: cache::RunDir,
}

impl Cluster {
    async fn start() -> Self {
        let plane = ControlPlane::start_for_pods("pods").await.unwrap();
        let client = plane.admin().await;
        let ironic = ironic::shared().await;
        let port = ironic.endpoint.rsplit(':').next().unwrap().parse().unwrap();
        crds::install(&client, &Group::ALL).await.unwrap();
        cluster_api::install_crds(&client).await.unwrap();
        let restricted: Namespace = serde_json::from_value(json!({"metadata": {
            "name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        }}))
        .unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &restricted).await.unwrap();
        let login = json!({"username": "one", "password": "two"});
        secret(&client, NAMESPACE, SECRET, &login).await.unwrap();
        let node = Node::start(&plane, &[port]).await.unwrap();
        Self { node, plane, client, ironic, home: cache::RunDir::new("helm").unwrap() }
    }

    /// A helm command for this cluster; with it go the image, and where Ironic is, if the chart asks for that.
    fn helm(&self, verb: &str, controller: &str) -> Command {
        let mut helm = chart::helm(self.home.path()).unwrap();
        helm.args([verb, controller, "--namespace", NAMESPACE, "--timeout", "180s"]);
        helm.arg("--kubeconfig").arg(self.plane.dir().join("admin.kubeconfig"));
        if verb != "test" {
            helm.arg(chart::dir(controller)).arg("--wait");
            helm.args(["--set", &format!("image.repository={}", image::repository(controller))]);
            if OF_IRONIC.contains(&controller) {
                let port = self.ironic.endpoint.rsplit(':').next().unwrap();
                helm.args(["--set", &format!("ironic.endpoint=http://{}:{port}", Node::ADDRESS)]);
            }
            if controller == OF_A_RANGE {
                helm.args(["--set", "podSecurityContext.runAsUser=1000680000"]);
                helm.args(["--set", &format!("ironic.credentialsSecret={SECRET}")]);
            }
        }
        helm
    }

    /// Runs helm for all controllers at once; a failure shows what became of the pods.
    async fn helm_all(&self, verb: &str) {
        let all = CONTROLLERS.map(|controller| self.run(self.helm(verb, controller), controller));
        futures_util::future::join_all(all).await;
    }

    async fn run(&self, helm: Command, controller: &str) {
        let running = tokio::task::spawn_blocking(move || cache::run(&helm));
        if let Err(error) = running.await.unwrap() {
            panic!("{error:#}\n{}", self.what_became_of(controller).await);
        }
    }

    async fn what_became_of(&self, controller: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut text = String::new();
        for event in events.list(&ListParams::default()).await.unwrap() {
            let about = event.involved_object.name.unwrap_or_default();
            if about.contains(controller) {
                text.extend([&about, ": ", &event.message.unwrap_or_default(), "\n"]);
            }
        }
        text + &self.node.pod_logs(controller) + &self.node.log_tails()
    }

    async fn pods(&self, controller: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let labels = format!("app.kubernetes.io/name={controller}");
        pods.list(&ListParams::default().labels(&labels)).await.unwrap().items
    }
}

async fn images() -> Vec<Written> {
    tokio::task::spawn_blocking(|| image::build(Profile::Pods, &CONTROLLERS))
        .await
        .unwrap()
        .unwrap()
}

/// Says why there is no node here, and whether there is none.
async fn no_node(test: &str) -> bool {
    let why = tokio::task::spawn_blocking(node::forbidden).await.unwrap();
    if let Some(why) = &why {
        skipped(test, why);
    }
    why.is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_five_run_from_their_charts_in_a_restricted_namespace_are_watched_and_miss_each_permission()
 {
    if no_node(
        "pods::the_five_run_from_their_charts_in_a_restricted_namespace_are_watched_and_miss_each_permission",
    )
    .await
    {
        return;
    }
    let images = images().await;
    let cluster = Cluster::start().await;
    for image in &images {
        assert!(image.bytes < image::LARGEST, "{} has {} bytes", image.reference, image.bytes);
        cluster.node.import(&image.archive).unwrap();
    }
    cluster.helm_all("install").await;
    for controller in CONTROLLERS {
        let pods = cluster.pods(controller).await;
        let [pod] = pods.as_slice() else { panic!("{controller} has {} pods", pods.len()) };
        let status = pod.status.as_ref().unwrap();
        let condition = |kind: &str| {
            let mut all = status.conditions.iter().flatten();
            all.any(|it| it.type_ == kind && it.status == "True")
        };
        assert_eq!(status.phase.as_deref(), Some("Running"), "{}", pod.name_any());
        assert!(condition("Ready") && condition("ContainersReady"), "{}", pod.name_any());
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.service_account_name.as_deref(), Some(controller));
        assert_eq!(spec.host_network, None, "{controller} has a network of its own");
        let restarts = status.container_statuses.as_ref().unwrap()[0].restart_count;
        assert_eq!(restarts, 0, "{controller}:\n{}", cluster.what_became_of(controller).await);
    }
    cluster.helm_all("test").await;
    cluster.is_watched().await;
    let missed = CONTROLLERS.iter().zip(&images).map(|(controller, image)| {
        cluster.each_missing_rule_is_named(controller, image.program.clone())
    });
    let missed = futures_util::future::join_all(missed).await;
    eprintln!("rules that were missed by name: {CONTROLLERS:?} {missed:?}");
}
