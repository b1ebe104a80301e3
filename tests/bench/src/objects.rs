//! Objects as plain JSON on an API server, and waiting for what comes of them.

use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster_api::objects::{Kind, MACHINE, METAL3_MACHINE, OF_CLUSTER, machine, owned_by};

/// A server.
pub const HOST: Kind = Kind { api_version: "metal3.io/v1alpha1", kind: "BareMetalHost" };
/// By whom machines become hosts.
pub const DISCOVERY: Kind = Kind { kind: "BareMetalHostDiscovery", ..HOST };
/// Our remediation of one Machine.
pub const REMEDIATION: Kind =
    Kind { api_version: "remediation.metal3.io/v1alpha1", kind: "Metal3Remediation" };

/// A kind of Hive.
pub const fn hive(kind: &'static str) -> Kind {
    Kind { api_version: "hive.openshift.io/v1", kind }
}

/// How often [`until`] looks.
const APART: Duration = Duration::from_millis(100);

/// Makes an object, or changes the one that is there to this. One that is in no namespace needs none.
pub async fn apply(
    client: &Client,
    namespace: Option<&str>,
    object: &Value,
) -> anyhow::Result<DynamicObject> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("bench").force();
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
    applied.with_context(|| format!("{kind} {name} is refused"))
}

/// Makes a namespace of this very name, or finds it.
pub async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    apply(client, None, &object).await.map(drop)
}

/// Makes a secret, or changes the one that is there to this.
pub async fn secret(
    client: &Client,
    namespace: &str,
    name: &str,
    data: &Value,
) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data,
    });
    apply(client, Some(namespace), &object).await.map(drop)
}

/// Makes a `Metal3Machine` and the Machine that it is of, which nobody else has made and which gets its name and its labels.
pub async fn make_machine(
    client: &Client,
    namespace: &str,
    mut metal: Value,
) -> anyhow::Result<DynamicObject> {
    let metadata = &metal["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut owner = machine(&text(&metadata["name"]), &text(&metadata["labels"][OF_CLUSTER]));
    owner["metadata"]["labels"] = metadata["labels"].clone();
    let owner = MACHINE.create(client, namespace, owner).await?;
    metal["metadata"]["ownerReferences"] = owned_by(MACHINE, &owner);
    METAL3_MACHINE.create(client, namespace, metal).await
}

/// What a health check makes for a Machine.
pub async fn make_request(client: &Client, namespace: &str, machine: &str) -> anyhow::Result<()> {
    let owner = MACHINE.api(client, namespace).get(machine).await?;
    let strategy = json!({ "type": "reboot", "retryLimit": 1, "timeout": "600s" });
    let mut request = REMEDIATION.object(machine, &json!({ "strategy": strategy }));
    request["metadata"]["labels"] = json!({ OF_CLUSTER: owner.labels().get(OF_CLUSTER) });
    request["metadata"]["ownerReferences"] = owned_by(MACHINE, &owner);
    REMEDIATION.create(client, namespace, request).await.map(drop)
}

/// Changes some fields of an object.
pub async fn merge<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    name: &str,
    fields: &Value,
) -> anyhow::Result<()> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(fields)).await?;
    Ok(())
}

/// Sets an annotation, or removes it.
pub async fn annotate<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    name: &str,
    key: &str,
    value: Option<&str>,
) -> anyhow::Result<()> {
    merge(api, name, &json!({ "metadata": { "annotations": { key: value } } })).await
}

/// Changes some fields of an object's status.
pub async fn merge_status<K: DeserializeOwned>(
    api: &Api<K>,
    name: &str,
    status: &Value,
) -> anyhow::Result<()> {
    let patch = json!({ "status": status });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// A client as a file tells it.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    Ok(Client::try_from(config(Kubeconfig::read_from(kubeconfig)?).await?)?)
}

/// What a client is made from.
pub async fn config(kubeconfig: Kubeconfig) -> anyhow::Result<kube::Config> {
    crate::certs::install_provider();
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Looks again and again until there is what is looked for.
pub async fn until<T>(
    what: &str,
    patience: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look().await.with_context(|| what.to_owned())? {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "gave up waiting: {what}");
        tokio::time::sleep(APART).await;
    }
}
