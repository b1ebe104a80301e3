//! Hive's own CRDs are applied again and again, as a tool does that knows only what git has.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use bench::control_plane::ControlPlane;
use bench::crds::{self, Group};
use bench::hive::StandIn;
use bench::process::{Service, free_port};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::ground::furnish;
use super::scene::{Scene, entry_of};
use crate::in_process::program;

const ROUNDS: usize = 8;
const APART: Duration = Duration::from_secs(3);

fn service(plane: &ControlPlane, name: &str, arguments: &[&str]) -> Service {
    let kubeconfig = plane.kubeconfig("admin", &["system:masters"]).unwrap();
    let mut command = Command::new(program("clusterpool-inventory"));
    command.args(arguments).arg(format!("--kubeconfig={}", kubeconfig.display()));
    Service::start(name, command, plane.dir()).unwrap()
}

/// Applies Hive's CRDs as git has them.
async fn apply_stock(crds: &Api<CustomResourceDefinition>) {
    let params = PatchParams::apply("kustomize-controller").force();
    for mut crd in crds::files(Group::Hive).unwrap() {
        crd.metadata.managed_fields = None;
        let name = crd.name_any();
        crds.patch(&name, &params, &Patch::Apply(crd)).await.unwrap();
    }
}

#[tokio::test]
async fn crds_that_are_applied_without_our_fields_cost_no_lease_no_claim_and_no_entry() {
    let plane = ControlPlane::start("gitops").await.unwrap();
    let admin = plane.admin().await;
    crds::install(&admin, &[Group::Hive]).await.unwrap();
    furnish(&plane).await;
    let _keeper = service(&plane, "extend-crd", &["extend-crd", "--keep"]);
    let listen = format!("--listen=127.0.0.1:{}", free_port());
    let controller = ["--leader-elect=false", listen.as_str()];
    let _controller = service(&plane, "clusterpool-inventory", &controller);
    let scene = Scene { client: admin.clone(), namespace: plane.namespace("gitops").await };
    // Without the fields an inventory would be pruned from the pool when it is made.
    let all: Api<CustomResourceDefinition> = Api::all(admin.clone());
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/inventory";
    let has_fields = async || {
        let crd = all.get("clusterpools.hive.openshift.io").await.unwrap();
        serde_json::to_value(crd).unwrap().pointer(fields).is_some()
    };
    while !has_fields().await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    crds::settled(&admin).await.unwrap();
    scene.secrets().await;
    let _hive = StandIn::start(&admin, &scene.namespace);
    let names: Vec<String> = (0..ROUNDS + 4).map(|it| format!("e{it}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    scene.entries(&names).await;
    scene.pool("pool", 2, &names, json!({})).await;
    scene.wait("the pool is ready", |it| it.ready("pool") == 2).await;
    let mut taken_away = 0;
    for round in 0..ROUNDS {
        apply_stock(&all).await;
        taken_away += usize::from(!has_fields().await);
        scene.claim(&format!("claim{round}"), "pool").await;
        tokio::time::sleep(APART).await;
    }
    assert!(taken_away > 0, "nobody took the fields away, so this shows nothing");
    let claims: Vec<String> = (0..ROUNDS).map(|it| format!("claim{it}")).collect();
    let served = |claim: &Value| claim["spec"]["namespace"].as_str().map(str::to_owned);
    let view = scene
        .wait("all claims are served, and the pool is whole", |view| {
            claims.iter().all(|it| served(view.claim(it)).is_some())
                && view.ready("pool") == ROUNDS + 2
                && names.iter().all(|entry| !view.word("pool", entry).is_empty())
        })
        .await;
    let given: BTreeSet<String> = claims.iter().filter_map(|it| served(view.claim(it))).collect();
    assert_eq!(given.len(), ROUNDS, "each claim has a cluster of its own: {view}");
    let used: BTreeSet<&str> = view.clusters.iter().map(entry_of).collect();
    assert_eq!(used.len(), view.clusters.len(), "each cluster has an entry of its own: {view}");
    for cluster in &view.clusters {
        let name = cluster["metadata"]["name"].as_str().unwrap();
        let reference = &view.entry(entry_of(cluster))["status"]["clusterDeploymentRef"];
        assert_eq!([&reference["name"], &reference["namespace"]], [name, name], "{view}");
    }
}
