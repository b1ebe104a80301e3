//! `doctor` of the kubectl plugin. The Deployment and the Lease are as the chart and a leader leave them; no pod runs.

use std::time::Duration;

use bench::control_plane::ControlPlane;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::in_process::account;
use crate::plugin::{Said, ask, ask_as_admin, plane, user};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn deployment(account: &str) -> Value {
    let labels = json!({"app": "x"});
    json!({
        "metadata": {"name": "bmo-reboot", "labels": {
            "app.kubernetes.io/part-of": "ferrite", "app.kubernetes.io/version": VERSION,
        }},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "serviceAccountName": account,
                "containers": [{"name": "bmo-reboot", "image": "x/bmo-reboot"}],
            },
        }},
    })
}

/// Asks until the API server's own view of the rights has caught up.
async fn ask_until(plane: &ControlPlane, namespace: &str, is_it: impl Fn(&Said) -> bool) -> Said {
    for _ in 0..40 {
        let said = ask_as_admin(plane, namespace, &["doctor"]).await;
        if is_it(&said) {
            return said;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    ask_as_admin(plane, namespace, &["doctor"]).await
}

#[tokio::test]
async fn a_controller_is_well_until_it_lacks_a_leader_pods_or_rights() {
    let plane = plane().await;
    let client = plane.admin().await;
    let empty = plane.namespace("doctor").await;
    let said = ask_as_admin(plane, &empty, &["doctor"]).await;
    assert!(
        said.code == 3 && said.err.contains(&format!("installed in namespace {empty}")),
        "{}",
        said.err
    );

    let (_, named) = account(plane, "bmo-reboot", "doctor").await;
    let mut parts = named.split(':').skip(2);
    let (namespace, account) = (parts.next().unwrap(), parts.next().unwrap());
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let made = serde_json::from_value(deployment(account)).unwrap();
    deployments.create(&PostParams::default(), &made).await.unwrap();
    let said = ask_as_admin(plane, namespace, &["doctor"]).await;
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    for wanted in [
        "! bmo-reboot: 0 of 2 pods are ready.",
        "! bmo-reboot: The Lease ferrite-bmo-reboot does not exist",
    ] {
        assert!(said.out.contains(wanted), "{wanted}: {}", said.out);
    }

    let params = PatchParams::default();
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}});
    deployments.patch_status("bmo-reboot", &params, &Patch::Merge(&status)).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let lease = serde_json::from_value(json!({
        "metadata": {"name": "ferrite-bmo-reboot"},
        "spec": {
            "holderIdentity": "pod-1", "leaseDurationSeconds": 600,
            "renewTime": format!("{:.6}", Timestamp::now()),
        },
    }));
    leases.create(&PostParams::default(), &lease.unwrap()).await.unwrap();
    let said = ask_until(plane, namespace, |it| it.code == 0).await;
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let row = said.out.lines().nth(1).unwrap_or_default();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row, ["bmo-reboot", namespace, VERSION, "2/2", "pod-1"]);
    assert!(!said.out.contains('!'), "{}", said.out);

    // Somebody who may see the controllers, and no more, learns what was not looked at.
    let rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
        {"apiGroups": ["metal3.io"], "resources": ["baremetalhosts"], "verbs": ["list"]},
    ]);
    let kubeconfig = user(plane, namespace, "sees-controllers", &rules).await;
    let said = ask(&kubeconfig, namespace, &["doctor"]).await;
    for right in
        ["get leases.coordination.k8s.io", "create subjectaccessreviews.authorization.k8s.io"]
    {
        assert!(
            said.out.contains(&format!("you lack the right to {right}")),
            "{right}: {}",
            said.out
        );
    }
    assert_eq!(said.code, 4, "what could not be looked at is neither wrong nor well: {}", said.out);
    let said = ask(&kubeconfig, &empty, &["doctor"]).await;
    let wanted = format!("The missing right: list deployments.apps in namespace {empty}.");
    assert!(said.code == 4 && said.err.contains(&wanted), "{}", said.err);

    let other = json!({"spec": {"template": {"spec": {"serviceAccountName": "other"}}}});
    deployments.patch("bmo-reboot", &params, &Patch::Strategic(&other)).await.unwrap();
    let said = ask_as_admin(plane, namespace, &["doctor"]).await;
    let wanted = "! bmo-reboot: ServiceAccount other lacks the right to ";
    assert!(said.code == 1 && said.out.contains(wanted), "{}", said.out);
}
