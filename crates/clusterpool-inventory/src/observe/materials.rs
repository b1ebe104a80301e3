//! What a pool refers to: read live and by name, since secrets are not watched.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api_types::hive::{ClusterDeploymentCustomization, ClusterPool, ClusterPoolSpec};
use api_types::name::is_name;
use api_types::reference::NamedRef;
use controller_kit::api_error::{self, unless_gone};
use controller_kit::engine::{Error, asked};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::entries::version;
use crate::context::cached;
use crate::make::{Materials, Secret, name_in};
use crate::naming;
use crate::patch::{self, Rules};
use crate::platform::Platform;
use crate::seen::Listed;
use crate::yaml;

/// What cannot be a name is not asked for: it would ask for something else.
const NO_NAME: &str = "nothing can have this name; correct it";

/// Asks for everything that the pool refers to. What cannot be read is missing: the rest of the pool goes on.
pub(super) async fn materials(
    client: &Client,
    pool: &ClusterPool,
    customizations: &Store<ClusterDeploymentCustomization>,
) -> Materials {
    let spec = &pool.spec;
    let namespace = pool.namespace().unwrap_or_default();
    let platform = Platform::of(spec);
    let name_of = |reference: &Option<NamedRef>| name_in(reference.as_ref()).map(str::to_owned);
    let template_name = name_of(&spec.install_config_secret_template_ref);
    let owned = |it: Option<(&str, &str)>| it.map(|(_, name)| name.to_owned());
    let secret = |name: Option<String>| get_secret(client, &namespace, name);
    let image_set = spec.image_set_ref.name.clone().unwrap_or_default();
    let (has_image_set, pull_secret, template, credentials, certificates) = tokio::join!(
        has_image_set(client, &image_set),
        secret(name_of(&spec.pull_secret_ref)),
        secret(template_name.clone()),
        secret(owned(platform.and_then(|it| it.credentials()))),
        secret(owned(platform.and_then(|it| it.certificates()))),
    );
    let mut found = Materials::default();
    let mut lacks = |text: String| found.missing.push(text);
    let image_set = format!("ClusterImageSet {image_set} of spec.imageSetRef");
    match has_image_set {
        Ok(true) => {}
        Ok(false) => lacks(format!("{image_set} is not there; create it")),
        Err(why) => lacks(format!("{image_set} cannot be read: {why}")),
    }
    let mut take = |secret: Sought, field: &str, key: Option<&str>| match secret {
        Sought::Nothing => None,
        Sought::Missing(name) => {
            lacks(format!("Secret {name} of {field} is not there; create it in {namespace}"));
            None
        }
        Sought::Unreadable(name, why) => {
            lacks(format!("Secret {name} of {field} cannot be read: {why}"));
            None
        }
        Sought::Found(name, secret) => {
            if let Some(key) = key.filter(|key| !secret.data.contains_key(*key)) {
                lacks(format!("Secret {name} of {field} has no key {key}; add it"));
            }
            Some(secret)
        }
    };
    let pull_secret = take(pull_secret, "spec.pullSecretRef", Some(".dockerconfigjson"));
    let template =
        take(template, "spec.installConfigSecretTemplateRef", Some("install-config.yaml"));
    let credentials = take(credentials, "spec.platform", None);
    let authority = platform.and_then(|it| it.certificates_key());
    let certificates = take(certificates, "spec.platform", authority);
    if let Some(platform) = platform {
        if let Some(why) = platform.unserved() {
            lacks(format!("spec.platform.{} cannot be used: {why}", platform.name));
        }
        for field in platform.unnamed() {
            lacks(format!("spec.platform.{}.{field} names no secret; name one", platform.name));
        }
    }
    let mut versions: Vec<String> = [&pull_secret, &template, &credentials, &certificates]
        .map(|it| it.as_ref().map(|it| it.version.clone()).unwrap_or_default())
        .into();
    if let Some(name) = name_of(&spec.customization_ref) {
        match cached(customizations, &(namespace.clone(), name.clone())) {
            Some(found) => versions.push(version(&found)),
            None => lacks(format!(
                "ClusterDeploymentCustomization {name} of spec.customizationRef is not there; create it"
            )),
        }
    }
    let texts: Vec<(String, String)> = credentials
        .iter()
        .flat_map(|it| &it.data)
        .map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned()))
        .collect();
    let text = template.as_ref().and_then(|it| it.data.get("install-config.yaml"));
    let config = match (text, &template_name, platform) {
        (Some(text), Some(name), _) => std::str::from_utf8(&text.0)
            .map_err(|_| "it is not text in UTF-8".to_owned())
            .and_then(|text| yaml::read(text).map_err(|error| error.to_string()))
            .map_err(|why| {
                format!("install-config.yaml in secret {name} cannot be used: {why}; correct it")
            }),
        // Said already.
        (None, Some(_), _) => Err(String::new()),
        (_, None, Some(platform)) => platform.install_config(&texts),
        (_, None, None) => Err("spec.platform names no platform; name one".to_owned()),
    };
    match config.and_then(|it| installable(it, spec)) {
        Ok(config) => {
            let mut hasher = DefaultHasher::new();
            config.to_string().hash(&mut hasher);
            spec.base_domain.hash(&mut hasher);
            platform.map(|it| it.name).hash(&mut hasher);
            found.config_hash = hasher.finish();
            found.config = Some(config);
        }
        Err(why) if why.is_empty() => {}
        Err(why) => found.missing.push(why),
    }
    if platform.is_none() && template_name.is_some() {
        found.missing.push("spec.platform names no platform; name one".to_owned());
    }
    found.versions = versions.join(" ");
    (found.pull_secret, found.credentials, found.certificates) =
        (pull_secret, credentials, certificates);
    found
}

/// The install config, unless no cluster of the pool could be installed with it. Where there are entries each of them is
/// told that: its patches may add what the template lacks.
fn installable(config: Value, spec: &ClusterPoolSpec) -> Result<Value, String> {
    if Listed::of(spec) != Listed::Nothing {
        return Ok(config);
    }
    let longest = "n".repeat(naming::LONGEST);
    let platform = Platform::of(spec).and_then(|it| it.in_config());
    let (domain, rules) = (&spec.base_domain, Rules::default());
    let tried = patch::install_config(&config, &longest, domain, platform, &[], rules);
    let Err(why) = tried else { return Ok(config) };
    let config = match name_in(spec.install_config_secret_template_ref.as_ref()) {
        Some(name) => format!("install-config.yaml in secret {name}"),
        None => "What spec.platform says".to_owned(),
    };
    Err(format!("{config} cannot be used: {why}"))
}

enum Sought {
    Nothing,
    Missing(String),
    /// And why.
    Unreadable(String, String),
    Found(String, Secret),
}

async fn get_secret(client: &Client, namespace: &str, name: Option<String>) -> Sought {
    let Some(name) = name else { return Sought::Nothing };
    if !is_name(&name) {
        return Sought::Unreadable(name, NO_NAME.to_owned());
    }
    let api: Api<KubeSecret> = Api::namespaced(client.clone(), namespace);
    match asked("read a secret", async { unless_gone(api.get(&name).await) }).await {
        Ok(None) => Sought::Missing(name),
        Ok(Some(secret)) => {
            let (uid, at) = (secret.uid(), secret.resource_version());
            let secret = Secret {
                version: format!("{}/{}", uid.unwrap_or_default(), at.unwrap_or_default()),
                kind: secret.type_,
                data: secret.data.unwrap_or_default(),
            };
            Sought::Found(name, secret)
        }
        Err(error) => Sought::Unreadable(name, why(&error)),
    }
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
            let sought = get_secret(&client, "ns", Some(name.to_owned())).await;
            assert!(matches!(sought, Sought::Unreadable(_, why) if why == NO_NAME), "{name}");
            assert_eq!(has_image_set(&client, name).await, Err(NO_NAME.to_owned()), "{name}");
        }
    }
}
