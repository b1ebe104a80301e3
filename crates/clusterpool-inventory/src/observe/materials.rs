//! What a pool refers to: read live and by name, since secrets are not watched.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api_types::hive::{ClusterDeploymentCustomization, ClusterPool, ClusterPoolSpec};
use api_types::name::is_name;
use controller_kit::api_error::{self, unless_gone};
use controller_kit::engine::{Error, asked};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::entries::version;
use crate::context::Cache;
use crate::index::key_in;
use crate::make::{Materials, Secret, name_in};
use crate::naming;
use crate::patch::{self, Rules, Target};
use crate::platform::Platform;
use crate::seen::Listed;
use crate::yaml;

/// What cannot be a name is not asked for: it would ask for something else.
const NO_NAME: &str = "nothing can have this name; correct it";
const NO_PLATFORM: &str = "spec.platform names no platform; name one";
/// The key of a template's secret.
const INSTALL_CONFIG: &str = "install-config.yaml";

/// Asks for everything that the pool refers to. What cannot be read is missing: the rest of the pool goes on.
pub(super) async fn materials(
    client: &Client,
    pool: &ClusterPool,
    customizations: &Cache<ClusterDeploymentCustomization>,
) -> Materials {
    let spec = &pool.spec;
    let namespace = pool.namespace().unwrap_or_default();
    let platform = Platform::of(spec);
    let template_name = name_in(spec.install_config_secret_template_ref.as_ref());
    let credentials = platform.and_then(|it| it.credentials()).map(|(_, name)| name);
    let certificates = platform.and_then(|it| it.certificates()).map(|(_, name)| name);
    let secret = |name| get_secret(client, &namespace, name);
    let image_set = spec.image_set_ref.name.as_deref().unwrap_or_default();
    let (has_image_set, pull_secret, template, credentials, certificates) = tokio::join!(
        has_image_set(client, image_set),
        secret(name_in(spec.pull_secret_ref.as_ref())),
        secret(template_name),
        secret(credentials),
        secret(certificates),
    );
    let mut missing = Vec::new();
    let image_set = format!("ClusterImageSet {image_set} of spec.imageSetRef");
    match has_image_set {
        Ok(true) => {}
        Ok(false) => missing.push(format!("{image_set} is not there; create it")),
        Err(why) => missing.push(format!("{image_set} cannot be read: {why}")),
    }
    let mut take = |sought: Sought<'_>, field: &str, key: Option<&str>| {
        let (name, found) = sought?;
        let secret = format!("Secret {name} of {field}");
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                missing.push(format!("{secret} is not there; create it in {namespace}"));
                return None;
            }
            Err(why) => {
                missing.push(format!("{secret} cannot be read: {why}"));
                return None;
            }
        };
        if let Some(key) = key.filter(|key| !found.data.contains_key(*key)) {
            missing.push(format!("{secret} has no key {key}; add it"));
        }
        Some(found)
    };
    let pull_secret = take(pull_secret, "spec.pullSecretRef", Some(".dockerconfigjson"));
    let template = take(template, "spec.installConfigSecretTemplateRef", Some(INSTALL_CONFIG));
    let credentials = take(credentials, "spec.platform", None);
    let authority = platform.and_then(|it| it.certificates_key());
    let certificates = take(certificates, "spec.platform", authority);
    if let Some(platform) = platform {
        let name = platform.name;
        let unserved = platform.unserved();
        missing.extend(unserved.map(|why| format!("spec.platform.{name} cannot be used: {why}")));
        let unnamed = platform.unnamed().into_iter();
        missing.extend(
            unnamed.map(|it| format!("spec.platform.{name}.{it} names no secret; name one")),
        );
    }
    let mut versions: Vec<String> = [&pull_secret, &template, &credentials, &certificates]
        .map(|it| it.as_ref().map(|it| it.version.clone()).unwrap_or_default())
        .into();
    if let Some(name) = name_in(spec.customization_ref.as_ref()) {
        match customizations.get(&key_in(&namespace, name)) {
            Some(found) => versions.push(version(&found)),
            None => missing.push(format!(
                "ClusterDeploymentCustomization {name} of spec.customizationRef is not there; create it"
            )),
        }
    }
    let mut config = None;
    match base_config(spec, template.as_ref(), credentials.as_ref()) {
        Some(Ok(found)) => config = Some(found),
        Some(Err(why)) => missing.push(why),
        // What is missing was told.
        None => {}
    }
    if platform.is_none() && template_name.is_some() {
        missing.push(NO_PLATFORM.to_owned());
    }
    let mut hasher = DefaultHasher::new();
    config.as_ref().map(Value::to_string).hash(&mut hasher);
    spec.base_domain.hash(&mut hasher);
    platform.map(|it| it.name).hash(&mut hasher);
    Materials {
        missing,
        config,
        config_hash: hasher.finish(),
        versions: versions.join(" "),
        pull_secret,
        credentials,
        certificates,
    }
}

/// The install config that patches are applied to, or why there is none; nothing without the template that the pool names.
fn base_config(
    spec: &ClusterPoolSpec,
    template: Option<&Secret>,
    credentials: Option<&Secret>,
) -> Option<Result<Value, String>> {
    let config = match name_in(spec.install_config_secret_template_ref.as_ref()) {
        Some(name) => {
            let text = template?.data.get(INSTALL_CONFIG)?;
            let text =
                std::str::from_utf8(&text.0).map_err(|_| "it is not text in UTF-8".to_owned());
            let config = text.and_then(|text| yaml::read(text).map_err(|error| error.to_string()));
            config.map_err(|why| {
                format!("{INSTALL_CONFIG} in secret {name} cannot be used: {why}; correct it")
            })
        }
        None => Platform::of(spec).map_or_else(
            || Err(NO_PLATFORM.to_owned()),
            |platform| {
                let texts = credentials.into_iter().flat_map(|it| &it.data);
                let texts: Vec<(String, String)> = texts
                    .map(|(key, it)| (key.clone(), String::from_utf8_lossy(&it.0).into_owned()))
                    .collect();
                platform.install_config(&texts)
            },
        ),
    };
    Some(config.and_then(|it| installable(it, spec)))
}

/// The install config, unless no cluster of the pool could be installed with it. Where there are entries each of them is
/// told that: its patches may add what the template lacks.
fn installable(config: Value, spec: &ClusterPoolSpec) -> Result<Value, String> {
    if Listed::of(spec) != Listed::Nothing {
        return Ok(config);
    }
    let longest = "n".repeat(naming::LONGEST);
    let target = Target::of(spec, &longest);
    let tried = patch::install_config(&config, target, &[], Rules::default());
    let Err(why) = tried else { return Ok(config) };
    let config = match name_in(spec.install_config_secret_template_ref.as_ref()) {
        Some(name) => format!("install-config.yaml in secret {name}"),
        None => "What spec.platform says".to_owned(),
    };
    Err(format!("{config} cannot be used: {why}"))
}

/// The name of a secret that the pool names, and what was found: it, nothing, or why it cannot be read.
type Sought<'a> = Option<(&'a str, Result<Option<Secret>, String>)>;

async fn get_secret<'a>(client: &Client, namespace: &str, name: Option<&'a str>) -> Sought<'a> {
    let name = name?;
    if !is_name(name) {
        return Some((name, Err(NO_NAME.to_owned())));
    }
    let api: Api<KubeSecret> = Api::namespaced(client.clone(), namespace);
    let found = asked("read a secret", async { unless_gone(api.get(name).await) }).await;
    let secret = |it: KubeSecret| Secret {
        version: format!(
            "{}/{}",
            it.uid().unwrap_or_default(),
            it.resource_version().unwrap_or_default()
        ),
        kind: it.type_,
        data: it.data.unwrap_or_default(),
    };
    Some((name, found.map(|it| it.map(secret)).map_err(|error| why(&error))))
}

/// Whether it is there, or why nobody can tell.
async fn has_image_set(client: &Client, name: &str) -> Result<bool, String> {
    if name.is_empty() {
        return Ok(false);
    }
    if !is_name(name) {
        return Err(NO_NAME.to_owned());
    }
    let kind = GroupVersionKind::gvk("hive.openshift.io", "v1", "ClusterImageSet");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let request = async { unless_gone(api.get_metadata(name).await) };
    let found = asked("read an image set", request).await;
    Ok(found.map_err(|error| why(&error))?.is_some())
}

/// Why something cannot be read.
fn why(error: &Error) -> String {
    match error {
        Error::Api { source, .. } => api_error::explain(source),
        Error::Silent(_) => "the API server did not answer in time".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use api_types::reference::NamedRef;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_with_which_no_cluster_can_be_installed_is_told_where_no_entry_tells_it() {
        let mut spec = ClusterPoolSpec {
            base_domain: "example.com".to_owned(),
            install_config_secret_template_ref: Some(NamedRef {
                name: Some("template".to_owned()),
                ..NamedRef::default()
            }),
            ..ClusterPoolSpec::default()
        };
        let config = json!({ "apiVersion": "v1", "platform": { "none": {} } });
        assert_eq!(installable(config.clone(), &spec), Ok(config.clone()));
        for field in ["apiVersion", "platform"] {
            let mut config = config.clone();
            config[field] = Value::Null;
            let told = installable(config.clone(), &spec).unwrap_err();
            assert!(told.starts_with("install-config.yaml in secret template cannot"), "{told}");
            assert!(told.contains(&format!("lacks {field}, ")), "{told}");
            assert!(told.ends_with("keep it, or add it to the template"), "{told}");
            // Patches may add it.
            let inventory = json!({ "inventory": [{ "name": "a" }] });
            let listing: ClusterPoolSpec = serde_json::from_value(inventory).unwrap();
            assert_eq!(installable(config.clone(), &listing), Ok(config));
        }
        spec.platform = [("vsphere".to_owned(), json!({}))].into();
        let told = installable(config.clone(), &spec).unwrap_err();
        assert!(told.contains("add platform.vsphere to the template"), "{told}");
        spec.platform.clear();
        (spec.base_domain, spec.install_config_secret_template_ref) = (String::new(), None);
        let told = installable(config, &spec).unwrap_err();
        assert!(told.starts_with("What spec.platform says cannot be used"), "{told}");
        assert!(told.ends_with("set spec.baseDomain of the pool"), "{told}");
    }

    #[tokio::test]
    async fn what_no_object_can_be_called_is_not_asked_for() {
        // Nobody would answer.
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(nowhere).unwrap();
        for name in ["<x>", "a/b", "a?b=c", "..", "a b"] {
            let sought = get_secret(&client, "ns", Some(name)).await;
            assert!(matches!(sought, Some((_, Err(why))) if why == NO_NAME), "{name}");
            assert_eq!(has_image_set(&client, name).await, Err(NO_NAME.to_owned()), "{name}");
        }
    }
}
