//! Cluster API's own managers do on the bench what they do in a cluster: these are the neighbours that the controllers
//! are tried beside, so what they promise is seen here first.

use std::collections::BTreeMap;

use bench::cluster_api::objects::{self, *};
use bench::cluster_api::{self, Masters, PATIENCE, Provider, Workload, until, until_one};
use bench::observer::{Key, Observer, Turn, World};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::json;

/// Every Machine of a namespace has its Node, and is available. Cluster API writes the two one after the other.
fn all_available(machines: &BTreeMap<String, DynamicObject>, count: usize) -> bool {
    let joined = |machine: &DynamicObject| machine.data["status"]["nodeRef"]["name"].is_string();
    machines.len() == count
        && machines.values().all(|machine| joined(machine) && condition(machine, "Available"))
}

fn condition(object: &DynamicObject, name: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == name && condition["status"] == "True")
}

fn everything() -> watcher::Config {
    watcher::Config::default()
}

/// The infrastructure of a workload's Machines; each was cloned from the template that is named.
async fn until_all_from(
    workload: &Workload,
    template: &str,
    count: usize,
) -> anyhow::Result<BTreeMap<String, DynamicObject>> {
    let metal3_machines = METAL3_MACHINE.api(&workload.management, &workload.namespace);
    until(&metal3_machines, &everything(), "all Metal3Machines of the new template", |machines| {
        machines.len() == count
            && machines.values().all(|machine| {
                let from = machine.metadata.annotations.as_ref();
                from.and_then(|from| from.get("cluster.x-k8s.io/cloned-from-name"))
                    .is_some_and(|from| from == template)
                    && condition(machine, "Ready")
            })
    })
    .await
}

type Turns<'a> = [(Turn, &'a Key)];

/// Watches kinds of a workload's namespace from now on.
async fn observe(workload: &Workload, kinds: &[Kind]) -> Observer {
    let kinds: Vec<_> = kinds.iter().map(|kind| kind.resource()).collect();
    Observer::start(&workload.management, Some(&workload.namespace), &kinds).await.unwrap()
}

fn is(key: &Key, kind: Kind, name: &str) -> bool {
    key.resource == kind.resource().plural && key.name == name
}

fn absent(world: &World, kind: Kind, name: &str) -> bool {
    !world.keys().any(|key| is(key, kind, name))
}

/// The most objects of a kind that were there at one time.
fn most_at_once(turns: &Turns<'_>, kind: Kind) -> i32 {
    let (mut now, mut most) = (0, 0);
    for (turn, _) in turns.iter().filter(|(_, key)| key.resource == kind.resource().plural) {
        match turn {
            Turn::Made => now += 1,
            Turn::Going => {}
            Turn::Gone => now -= 1,
        }
        most = most.max(now);
    }
    most
}

/// Whether both happened, in this order.
fn in_order(turns: &Turns<'_>, first: (Turn, Kind, &str), then: (Turn, Kind, &str)) -> bool {
    let at = |(wanted, kind, name): (Turn, Kind, &str)| {
        turns.iter().position(|(turn, key)| *turn == wanted && is(key, kind, name))
    };
    at(first).zip(at(then)).is_some_and(|(first, then)| first < then)
}

async fn workers(workload: &Workload, replicas: u32) -> anyhow::Result<Api<DynamicObject>> {
    let (client, namespace) = (&workload.management, workload.namespace.as_str());
    KUBEADM_CONFIG_TEMPLATE.create(client, namespace, kubeadm_config_template("join")).await?;
    METAL3_MACHINE_TEMPLATE.create(client, namespace, metal3_machine_template("image-1")).await?;
    let deployment = machine_deployment("workers", &workload.cluster, replicas, "image-1", "join");
    MACHINE_DEPLOYMENT.create(client, namespace, deployment).await?;
    Ok(MACHINE.api(client, namespace))
}

#[tokio::test]
async fn a_machine_deployment_without_surge_deletes_before_it_makes_and_a_cluster_goes_in_order() {
    let management = cluster_api::shared().await;
    let workload =
        Workload::start(management, "rollout", Masters::Given, Provider::Played).await.unwrap();
    let (client, namespace) = (&workload.management, workload.namespace.as_str());
    let observer = observe(&workload, &[CLUSTER, METAL3_CLUSTER, MACHINE, METAL3_MACHINE]).await;

    let machines = workers(&workload, 2).await.unwrap();
    let first = until(&machines, &everything(), "two Machines available", |machines| {
        all_available(machines, 2)
    })
    .await
    .unwrap();
    let configs = KUBEADM_CONFIG.api(client, namespace);
    for (name, machine) in &first {
        let spec = &machine.data["spec"];
        let config =
            configs.get(spec["bootstrap"]["configRef"]["name"].as_str().unwrap()).await.unwrap();
        assert_eq!(config.data["status"]["dataSecretName"], spec["bootstrap"]["dataSecretName"]);
        assert_eq!(spec["infrastructureRef"]["kind"], METAL3_MACHINE.kind);
        assert_eq!(machine.data["status"]["nodeRef"]["name"], json!(name));
    }

    METAL3_MACHINE_TEMPLATE
        .create(client, namespace, metal3_machine_template("image-2"))
        .await
        .unwrap();
    let next = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": "image-2"}}}}});
    let deployments = MACHINE_DEPLOYMENT.api(client, namespace);
    deployments.patch("workers", &PatchParams::default(), &Patch::Merge(&next)).await.unwrap();
    until_all_from(&workload, "image-2", 2).await.unwrap();
    let second = until(&machines, &everything(), "two new Machines available", |machines| {
        all_available(machines, 2)
    })
    .await
    .unwrap();
    assert!(first.keys().all(|old| !second.contains_key(old)), "every Machine was replaced");
    let old_gone = |world: &World| first.keys().all(|old| absent(world, MACHINE, old));
    assert!(observer.reaches(old_gone, PATIENCE).await.unwrap(), "the old Machines stay");
    let history = observer.history(&[]).await.unwrap();
    let seen = history.turns();
    // Each of them is a host: where all are in use a third would wait for ever.
    assert_eq!(most_at_once(&seen, METAL3_MACHINE), 2, "{seen:#?}");

    let clusters = CLUSTER.api(client, namespace);
    clusters.delete(&workload.cluster, &DeleteParams::default()).await.unwrap();
    let name = workload.cluster.as_str();
    let cluster_gone = |world: &World| absent(world, CLUSTER, name);
    assert!(observer.reaches(cluster_gone, PATIENCE).await.unwrap(), "the Cluster stays");
    let history = observer.history(&[]).await.unwrap();
    let seen = history.turns();
    let infrastructure_gone = (Turn::Gone, METAL3_CLUSTER, name);
    assert!(in_order(&seen, infrastructure_gone, (Turn::Gone, CLUSTER, name)), "{seen:#?}");
    for machine in second.keys() {
        let asked = (Turn::Going, MACHINE, machine.as_str());
        let host_asked = (Turn::Going, METAL3_MACHINE, machine.as_str());
        let host_gone = (Turn::Gone, METAL3_MACHINE, machine.as_str());
        let gone = (Turn::Gone, MACHINE, machine.as_str());
        assert!(
            in_order(&seen, asked, host_asked),
            "a host goes because its Machine goes: {seen:#?}"
        );
        assert!(in_order(&seen, host_gone, gone), "a Machine outlives its host: {seen:#?}");
        assert!(
            in_order(&seen, gone, infrastructure_gone),
            "the Metal3Cluster outlives all Machines: {seen:#?}"
        );
    }
}

#[tokio::test]
async fn a_control_plane_with_external_etcd_scales_up_and_is_replaced_without_a_fourth_machine() {
    let management = cluster_api::shared().await;
    let workload =
        Workload::start(management, "masters", Masters::Kubeadm, Provider::Played).await.unwrap();
    let (client, namespace) = (&workload.management, workload.namespace.as_str());
    let observer = observe(&workload, &[MACHINE, METAL3_MACHINE]).await;

    METAL3_MACHINE_TEMPLATE
        .create(client, namespace, metal3_machine_template("image-1"))
        .await
        .unwrap();
    let control_plane = objects::kubeadm_control_plane(&workload.cluster, 1, "image-1");
    KUBEADM_CONTROL_PLANE.create(client, namespace, control_plane).await.unwrap();
    let machines = MACHINE.api(client, namespace);
    until(&machines, &everything(), "one master", |machines| all_available(machines, 1))
        .await
        .unwrap();

    let control_planes = KUBEADM_CONTROL_PLANE.api(client, namespace);
    let three = json!({"spec": {
        "replicas": 3,
        // Only from three on may one go before its successor is there.
        "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}},
    }});
    control_planes
        .patch(&workload.cluster, &PatchParams::default(), &Patch::Merge(&three))
        .await
        .unwrap();
    let first =
        until(&machines, &everything(), "three masters", |machines| all_available(machines, 3))
            .await
            .unwrap();

    METAL3_MACHINE_TEMPLATE
        .create(client, namespace, metal3_machine_template("image-2"))
        .await
        .unwrap();
    let next =
        json!({"spec": {"machineTemplate": {"spec": {"infrastructureRef": {"name": "image-2"}}}}});
    control_planes
        .patch(&workload.cluster, &PatchParams::default(), &Patch::Merge(&next))
        .await
        .unwrap();
    until_all_from(&workload, "image-2", 3).await.unwrap();
    let second =
        until(&machines, &everything(), "three new masters", |machines| all_available(machines, 3))
            .await
            .unwrap();
    assert!(first.keys().all(|old| !second.contains_key(old)), "every Machine was replaced");
    until_one(
        &control_planes,
        &workload.cluster,
        "a control plane that is up to date",
        |control_plane| {
            control_plane.data["status"]["upToDateReplicas"] == 3
                && condition(control_plane, "Available")
        },
    )
    .await
    .unwrap();
    let old_gone = |world: &World| first.keys().all(|old| absent(world, MACHINE, old));
    assert!(observer.reaches(old_gone, PATIENCE).await.unwrap(), "the old Machines stay");
    let history = observer.history(&[]).await.unwrap();
    let seen = history.turns();
    assert_eq!(most_at_once(&seen, METAL3_MACHINE), 3, "{seen:#?}");
}

#[tokio::test]
async fn a_machine_health_check_asks_for_remediation_of_the_machine_whose_node_is_not_ready_and_of_no_other()
 {
    let management = cluster_api::shared().await;
    let workload =
        Workload::start(management, "health", Masters::Given, Provider::Played).await.unwrap();
    let (client, namespace) = (&workload.management, workload.namespace.as_str());
    let machines = workers(&workload, 2).await.unwrap();
    let healthy = until(&machines, &everything(), "two Machines available", |machines| {
        all_available(machines, 2)
    })
    .await
    .unwrap();
    METAL3_REMEDIATION_TEMPLATE
        .create(client, namespace, metal3_remediation_template("reboot"))
        .await
        .unwrap();
    let check = machine_health_check(
        "workers",
        &workload.cluster,
        "workers",
        METAL3_REMEDIATION_TEMPLATE,
        "reboot",
    );
    MACHINE_HEALTH_CHECK.create(client, namespace, check).await.unwrap();
    let checks = MACHINE_HEALTH_CHECK.api(client, namespace);
    until_one(&checks, "workers", "both Machines seen as healthy", |check| {
        check.data["status"]["currentHealthy"] == 2
    })
    .await
    .unwrap();

    let sick = healthy.keys().next().unwrap();
    let remediations = METAL3_REMEDIATION.api(client, namespace);
    workload.stand_in.set_ready(sick, "Unknown").await.unwrap();
    let asked =
        until(&remediations, &everything(), "a remediation", |all| !all.is_empty()).await.unwrap();
    assert_eq!(asked.keys().collect::<Vec<_>>(), [sick]);
    assert_eq!(asked[sick].data["spec"]["strategy"]["type"], "Reboot");
    let owner = &asked[sick].metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), &owner.name), (MACHINE.kind, sick));

    workload.stand_in.set_ready(sick, "True").await.unwrap();
    until(&remediations, &everything(), "the request withdrawn", BTreeMap::is_empty).await.unwrap();
}
