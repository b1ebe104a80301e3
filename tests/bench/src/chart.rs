//! The charts, rendered by the real helm, and the permissions that they give: a controller is tested under the account
//! that its chart makes for it, never as admin.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams, ValidationDirective};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::{cache, go, image};

/// Kinds that say who may do what.
const PERMISSIONS: [&str; 5] =
    ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// Folder of a controller's chart, by the controller's name.
pub fn dir(controller: &str) -> PathBuf {
    let top = crate::checkout();
    if controller == "sample" {
        top.join("tests/sample/chart")
    } else {
        top.join("charts").join(controller)
    }
}

/// A helm that sees neither the user's settings nor the user's clusters; its own files go to `home`.
///
/// # Errors
/// When helm cannot be built.
pub fn helm(home: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(go::program("helm")?);
    command
        .env("HELM_CACHE_HOME", home)
        .env("HELM_CONFIG_HOME", home)
        .env("HELM_DATA_HOME", home)
        .env_remove("KUBECONFIG");
    Ok(command)
}

/// The objects of a chart, hooks and tests included, as `helm template` makes them. `chart` is a folder or a package.
/// Where the values name no image, it is the bench's own.
///
/// # Errors
/// When helm refuses the values; the message is helm's own.
pub fn render(
    chart: &Path,
    release: &str,
    namespace: &str,
    values: &Value,
) -> anyhow::Result<Vec<Value>> {
    let home = tempfile::tempdir()?;
    let image = json!({"image": {"repository": image::repository("bench")}});
    let mut helm = helm(home.path())?;
    helm.args(["template", release, "--namespace", namespace]);
    for (name, values) in [("image.json", &image), ("values.json", values)] {
        let file = home.path().join(name);
        std::fs::write(&file, values.to_string())?;
        helm.arg("--values").arg(file);
    }
    let text = cache::run(helm.arg(chart))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .with_context(|| format!("helm made no valid YAML of {}", chart.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The first object of a kind.
///
/// # Errors
/// When there is none: the message names what there is.
pub fn find<'a>(objects: &'a [Value], kind: &str) -> anyhow::Result<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind).with_context(|| {
        let kinds: Vec<_> = objects.iter().map(|object| &object["kind"]).collect();
        format!("the chart has no {kind}, only {kinds:?}")
    })
}

/// What `values.schema.json` of a chart has to be: the schema of the common values, with what is the chart's own (its
/// `settings`, and blocks that the library does not know) kept as it is. Helm reads one file per chart and follows no
/// reference out of it, so the common part has to be repeated.
///
/// # Errors
/// When a file is missing or is no JSON.
pub fn schema(chart: &Path) -> anyhow::Result<Value> {
    let common = crate::checkout().join("charts/ferrite-library/common.schema.json");
    let own = chart.join("values.schema.json");
    let mut schema = read_json(&common)?;
    if own.exists() {
        let own = read_json(&own)?;
        for (name, property) in own["properties"].as_object().into_iter().flatten() {
            if name == "settings" || schema["properties"].get(name).is_none() {
                schema["properties"][name] = property.clone();
            }
        }
    }
    Ok(schema)
}

/// Brings `values.schema.json` of a chart up to date with the library.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write_schema(chart: &Path) -> anyhow::Result<()> {
    let text = format!("{:#}\n", schema(chart)?);
    let path = chart.join("values.schema.json");
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn read_json(path: &Path) -> anyhow::Result<Value> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

/// Sends every object to the API server, which checks it as strictly as it can and keeps nothing. An object of a kind
/// that it does not know is a refusal: leave those out.
///
/// # Errors
/// When it refuses at least one: the message has them all.
pub async fn dry_run(client: &Client, objects: &[Value], namespace: &str) -> anyhow::Result<()> {
    let mut params = PatchParams::apply("bench").force();
    params.dry_run = true;
    params.field_validation = Some(ValidationDirective::Strict);
    let mut refused = Vec::new();
    for object in objects {
        if let Err(error) = apply(client, object, namespace, &params).await {
            refused.push(format!("{error:#}"));
        }
    }
    ensure!(
        refused.is_empty(),
        "the API server refuses what the chart makes:\n{}",
        refused.join("\n")
    );
    Ok(())
}

/// Installs the chart's accounts, roles and bindings and nothing else of it: what the controller may do in a test is
/// what it may do where it is installed. `client` is an admin's.
///
/// # Errors
/// When the API server refuses one of them, or the chart has none.
pub async fn install_permissions(
    client: &Client,
    objects: &[Value],
    namespace: &str,
) -> anyhow::Result<()> {
    let params = PatchParams::apply("bench").force();
    let mut installed = 0;
    for object in objects {
        if PERMISSIONS.iter().any(|kind| object["kind"] == *kind) {
            apply(client, object, namespace, &params).await?;
            installed += 1;
        }
    }
    ensure!(installed > 0, "the chart has no permissions to install");
    Ok(())
}

/// Installs the account of a controller's chart with the rights that the chart gives it where it has these values. Gives its name.
pub async fn install_account(
    plane: &ControlPlane,
    controller: &str,
    release: &str,
    namespace: &str,
    mut values: Value,
) -> anyhow::Result<String> {
    // Two of the charts are refused without it, and the rights are the same with it.
    if matches!(controller, "bmo-reboot" | "host-discovery") {
        values["ironic"] = json!({"endpoint": "http://ironic:6385"});
    }
    let objects = render(&dir(controller), release, namespace, &values)?;
    install_permissions(&plane.admin().await, &objects, namespace).await?;
    let account = find(&objects, "ServiceAccount")?["metadata"]["name"].as_str();
    Ok(account.context("the chart's ServiceAccount has no name")?.to_owned())
}

async fn apply(
    client: &Client,
    object: &Value,
    namespace: &str,
    params: &PatchParams,
) -> anyhow::Result<()> {
    let parsed: DynamicObject = serde_json::from_value(object.clone())?;
    let name = parsed.metadata.name.clone().unwrap_or_default();
    let Some(types) = &parsed.types else {
        bail!("an object of the chart has no apiVersion and kind: {object}");
    };
    let context = || format!("{} {name}", types.kind);
    let kind = GroupVersionKind::try_from(types).with_context(context)?;
    let (resource, capabilities) =
        kube::discovery::pinned_kind(client, &kind).await.with_context(context)?;
    let namespace = parsed.metadata.namespace.as_deref().unwrap_or(namespace);
    Api::<DynamicObject>::dynamic(client.clone(), &resource, &capabilities.scope)
        .constrain(namespace)
        .patch(&name, params, &Patch::Apply(object))
        .await
        .with_context(context)?;
    Ok(())
}

/// A kubeconfig file with a fresh token of a `ServiceAccount`, for a controller that runs as a program of its own.
///
/// # Errors
/// When the account does not exist or the file cannot be written.
pub async fn service_account_kubeconfig(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
) -> anyhow::Result<PathBuf> {
    let api: Api<ServiceAccount> = Api::namespaced(plane.admin().await, namespace);
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let answer = api
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("no token for ServiceAccount {namespace}/{name}"))?;
    let token = answer.status.context("a token was asked for and not given")?.token;
    plane.kubeconfig_for_token(&format!("{namespace}-{name}"), &token)
}

/// Client configuration of a `ServiceAccount`, for a client with layers of its own.
///
/// # Errors
/// When the account does not exist.
pub async fn service_account_config(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Config> {
    let file = service_account_kubeconfig(plane, namespace, name).await?;
    let kubeconfig = Kubeconfig::read_from(file)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// A client that may do what a `ServiceAccount` may do.
///
/// # Errors
/// When the account does not exist.
pub async fn service_account_client(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Client> {
    Ok(Client::try_from(service_account_config(plane, namespace, name).await?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_value_is_in_the_schema() {
        let library = dir("ferrite-library");
        let values = std::fs::read_to_string(library.join("values.yaml")).unwrap();
        let values: Value = serde_saphyr::from_str(&values).unwrap();
        let described = schema(&library).unwrap();
        let names =
            |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
        for name in names(&values["exports"]["defaults"]) {
            let block = &values["exports"]["defaults"][&name];
            let block_schema = &described["properties"][&name];
            assert!(block_schema.is_object(), "{name} is not in common.schema.json");
            if block_schema["additionalProperties"] == json!(false) {
                for inner in names(block) {
                    assert!(
                        block_schema["properties"][&inner].is_object(),
                        "{name}.{inner} is not in common.schema.json"
                    );
                }
            }
        }
    }
}
