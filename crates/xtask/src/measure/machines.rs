//! Machines of a cluster on Metal3, as Cluster API makes them.

use bench::cluster_api::objects::{self, CLUSTER};
use bench::objects::{apply, merge_status, namespace as make_namespace, secret};
use serde_json::json;

use super::{Ground, fleet};

pub(super) const CLUSTER_NAME: &str = "metal";

/// A cluster whose infrastructure is ready, the bootstrap data of its machines, and the credentials of the hosts beside it.
pub(super) async fn cluster(ground: &Ground, namespace: &str) -> anyhow::Result<()> {
    let client = &ground.admin;
    make_namespace(client, namespace).await?;
    // CAPM3 looks for Metal3's part of it, and at the condition that Cluster API calls deprecated.
    for object in [
        objects::cluster(CLUSTER_NAME, "127.0.0.1", 6443, false),
        objects::metal3_cluster(CLUSTER_NAME, "127.0.0.1", 6443),
    ] {
        apply(client, Some(namespace), &object).await?;
    }
    let condition = json!({
        "type": "InfrastructureReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let ready = json!({
        "initialization": { "infrastructureProvisioned": true },
        "deprecated": { "v1beta1": { "conditions": [condition] } },
    });
    merge_status(&CLUSTER.api(client, namespace), CLUSTER_NAME, &ready).await?;
    secret(client, namespace, "boot", &json!({ "value": "x" })).await?;
    fleet::credentials(ground, namespace).await
}
