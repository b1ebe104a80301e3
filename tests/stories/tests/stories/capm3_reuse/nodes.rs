//! How Cluster API's own managers find the Node of a machine whose kubelet was not told its provider ID.

use bench::bmo;
use bench::cluster_api::objects::{
    KUBEADM_CONFIG_TEMPLATE, MACHINE, MACHINE_DEPLOYMENT, METAL3_MACHINE, METAL3_MACHINE_TEMPLATE,
    kubeadm_config_template, machine_deployment, metal3_machine_template,
};
use bench::cluster_api::{self, Masters, Provider, Workload, until, until_one};
use capm3_reuse::settings::Policy;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use kube::runtime::watcher;
use serde_json::json;

use super::ground::start;
use super::scene::{condition, consumer};

const FOREIGN: &str = "metal3://elsewhere/h1/before";

/// A kubelet that says on which host it runs, and this provider ID or none.
async fn register(workload: &Workload, name: &str, host_uid: &str, provider_id: Option<&str>) {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"metal3.io/uuid": host_uid}},
        "spec": {"providerID": provider_id},
    }))
    .unwrap();
    let nodes: Api<Node> = Api::all(workload.client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    workload.stand_in.set_ready(name, "True").await.unwrap();
}

#[tokio::test]
async fn a_node_that_says_no_provider_id_gets_the_one_of_its_machine_and_another_one_stays() {
    let management = cluster_api::shared().await;
    let workload =
        Workload::start(management, "reuse-nodes", Masters::Given, Provider::Runs).await.unwrap();
    let (client, namespace) = (&workload.management, workload.namespace.as_str());
    let operator = bmo::StandIn::start(client, namespace);
    for host in ["h0", "h1"] {
        bmo::make_host(client, namespace, host, namespace, &json!({})).await.unwrap();
        operator.keep(namespace, host);
    }
    let (_running, _) = start(management, namespace, Policy::default()).await;
    let image = metal3_machine_template("image");
    METAL3_MACHINE_TEMPLATE.create(client, namespace, image).await.unwrap();
    let join = kubeadm_config_template("join");
    KUBEADM_CONFIG_TEMPLATE.create(client, namespace, join).await.unwrap();
    let workers = machine_deployment("workers", &workload.cluster, 2, "image", "join");
    MACHINE_DEPLOYMENT.create(client, namespace, workers).await.unwrap();

    // The stand-in makes a Node only where there is none yet, when the machine is up.
    let hosts = bmo::api(client, namespace);
    let claimed = until(&hosts, &watcher::Config::default(), "both hosts claimed", |all| {
        all.len() == 2 && all.values().all(|it| consumer(it).starts_with("Metal3Machine/"))
    })
    .await
    .unwrap();
    let machine_on = |host: &str| consumer(&claimed[host]).split_once('/').unwrap().1.to_owned();
    let (nameless, foreign) = (machine_on("h0"), machine_on("h1"));
    register(&workload, &nameless, &claimed["h0"].uid().unwrap(), None).await;
    register(&workload, &foreign, &claimed["h1"].uid().unwrap(), Some(FOREIGN)).await;
    for host in ["h0", "h1"] {
        operator.go_on(namespace, host).await.unwrap();
    }

    let machines = MACHINE.api(client, namespace);
    until_one(&machines, &nameless, "a Machine that has its Node", |it| {
        it.data["status"]["nodeRef"]["name"] == nameless.as_str()
    })
    .await
    .unwrap();
    let metal = METAL3_MACHINE.api(client, namespace);
    let told = until_one(&metal, &foreign, "a machine that says so", |it| {
        condition(it, "Ready").is_some_and(|it| it["reason"] == "NodeForeign")
    })
    .await
    .unwrap();
    assert_eq!(condition(&told, "Ready").unwrap()["status"], "True");
    assert_eq!(told.data["status"]["initialization"]["provisioned"], true);
    let nodes: Api<Node> = Api::all(workload.client.clone());
    let id = async |name: &str| nodes.get(name).await.unwrap().spec.unwrap().provider_id.unwrap();
    assert_eq!(id(&nameless).await, format!("metal3://{namespace}/h0/{nameless}"));
    assert_eq!(id(&foreign).await, FOREIGN);
    let without = machines.get(&foreign).await.unwrap();
    assert!(without.data["status"]["nodeRef"].is_null(), "{}", without.data["status"]);
}
