//! Cluster API's own managers do on the bench what they do in a cluster: these are the neighbours that the controllers
//! are tried beside, so what they promise is seen here first.

use std::collections::BTreeMap;

use bench::cluster_api::objects::{self, *};
use bench::cluster_api::{
    self, Change, Masters, Provider, Seen, Timeline, Workload, until, until_one,
};
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

/// The most objects of a kind that were there at one time.
fn most_at_once(entries: &[Seen], kind: Kind) -> i32 {
    let (mut now, mut most) = (0, 0);
    for entry in entries.iter().filter(|entry| entry.kind == kind.kind) {
        match entry.change {
            Change::Made => now += 1,
            Change::Going => {}
            Change::Gone => now -= 1,
        }
        most = most.max(now);
    }
    most
}

/// When something happened first; nothing if it did not.
fn revision(entries: &[Seen], change: Change, kind: Kind, name: &str) -> Option<u64> {
    let mut entries = entries.iter();
    let entry = entries.find(|e| e.change == change && e.kind == kind.kind && e.name == name)?;
    Some(entry.revision)
}

/// Whether both happened, in this order.
fn in_order(entries: &[Seen], first: (Change, Kind, &str), then: (Change, Kind, &str)) -> bool {
    let first = revision(entries, first.0, first.1, first.2);
    let then = revision(entries, then.0, then.1, then.2);
    first.is_some() && then.is_some() && first < then
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
    let timeline =
        Timeline::start(client, namespace, &[CLUSTER, METAL3_CLUSTER, MACHINE, METAL3_MACHINE]);

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
    let seen = timeline
        .until("the old Machines gone", |entries| {
            first.keys().all(|old| {
                entries
                    .iter()
                    .any(|e| e.change == Change::Gone && e.name == *old && e.kind == "Machine")
            })
        })
        .await
        .unwrap();
    // Each of them is a host: where all are in use a third would wait for ever.
    assert_eq!(most_at_once(&seen, METAL3_MACHINE), 2, "{seen:#?}");

    let clusters = CLUSTER.api(client, namespace);
    clusters.delete(&workload.cluster, &DeleteParams::default()).await.unwrap();
    let seen = timeline
        .until("the Cluster gone", |entries| {
            entries.iter().any(|e| e.change == Change::Gone && e.kind == CLUSTER.kind)
        })
        .await
        .unwrap();
    let name = workload.cluster.as_str();
    let infrastructure_gone = (Change::Gone, METAL3_CLUSTER, name);
    assert!(in_order(&seen, infrastructure_gone, (Change::Gone, CLUSTER, name)), "{seen:#?}");
    for machine in second.keys() {
        let asked = (Change::Going, MACHINE, machine.as_str());
        let host_asked = (Change::Going, METAL3_MACHINE, machine.as_str());
        let host_gone = (Change::Gone, METAL3_MACHINE, machine.as_str());
        let gone = (Change::Gone, MACHINE, machine.as_str());
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
    let timeline = Timeline::start(client, namespace, &[MACHINE, METAL3_MACHINE]);

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
    let seen = timeline
        .until("the old Machines gone", |entries| {
            first.keys().all(|old| {
                entries
                    .iter()
                    .any(|e| e.change == Change::Gone && e.name == *old && e.kind == "Machine")
            })
        })
        .await
        .unwrap();
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
