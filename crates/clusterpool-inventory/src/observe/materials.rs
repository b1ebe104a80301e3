//! What a pool refers to: read live and by name, since secrets are not watched.

use api_types::hive::{ClusterDeploymentCustomization, ClusterPool, ClusterPoolSpec};
use api_types::name::is_name;
use controller_kit::api_error;
use controller_kit::cache::Cache;
use controller_kit::engine::{self, Error};
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::entries::version;
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
/// The key of a pull secret, and of a template's.
const PULL_SECRET: &str = ".dockerconfigjson";
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
    let authority = platform.and_then(|it| it.certificates_key());
    let secret = |field, name, key| get_secret(client, &namespace, field, name, key);
    let (image_set, pull_secret, template, credentials, certificates) = tokio::join!(
        find_image_set(client, spec.image_set_ref.name.as_deref().unwrap_or_default()),
        secret("spec.pullSecretRef", name_in(spec.pull_secret_ref.as_ref()), Some(PULL_SECRET)),
        secret("spec.installConfigSecretTemplateRef", template_name, Some(INSTALL_CONFIG)),
        secret("spec.platform", credentials, None),
        secret("spec.platform", certificates, authority),
    );
    let mut missing: Vec<String> = image_set.err().into_iter().collect();
    let [pull_secret, template, credentials, certificates] =
        [pull_secret, template, credentials, certificates].map(|it| take(it, &mut missing));
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
    let config = base_config(spec, template.as_ref(), credentials.as_ref());
    let config = take(config, &mut missing);
    if platform.is_none() && template_name.is_some() {
        missing.push(NO_PLATFORM.to_owned());
    }
    let versions = versions.join(" ");
    Materials { missing, config, versions, pull_secret, credentials, certificates }
}

/// What was found. Why it cannot be used is missing.
fn take<T>(found: Result<Option<T>, String>, missing: &mut Vec<String>) -> Option<T> {
    found.unwrap_or_else(|why| {
        missing.push(why);
        None
    })
}

/// The install config that patches are applied to, or why there is none. Nothing without the template that the pool names:
/// that is missing already.
fn base_config(
    spec: &ClusterPoolSpec,
    template: Option<&Secret>,
    credentials: Option<&Secret>,
) -> Result<Option<Value>, String> {
    let template_name = name_in(spec.install_config_secret_template_ref.as_ref());
    let config = if let Some(name) = template_name {
        let text = template.and_then(|it| it.data.get(INSTALL_CONFIG));
        let Some(text) = text else { return Ok(None) };
        let text = std::str::from_utf8(&text.0).map_err(|_| "it is not text in UTF-8".to_owned());
        let config = text.and_then(|text| yaml::read(text).map_err(|error| error.to_string()));
        config.map_err(|why| {
            format!("{INSTALL_CONFIG} in secret {name} cannot be used: {why}; correct it")
        })?
    } else {
        let texts = credentials.into_iter().flat_map(|it| &it.data);
        let texts: Vec<(String, String)> = texts
            .map(|(key, it)| (key.clone(), String::from_utf8_lossy(&it.0).into_owned()))
            .collect();
        Platform::of(spec).ok_or(NO_PLATFORM)?.install_config(&texts)?
    };
    installable(config, spec).map(Some)
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

/// The secret, if this field of the pool names one, which may have to hold a key; or why it cannot be used.
async fn get_secret(
    client: &Client,
    namespace: &str,
    field: &str,
    name: Option<&str>,
    key: Option<&str>,
) -> Result<Option<Secret>, String> {
    let Some(name) = name else { return Ok(None) };
    let secret = format!("Secret {name} of {field}");
    let unread = |why: &str| format!("{secret} cannot be read: {why}");
    if !is_name(name) {
        return Err(unread(NO_NAME));
    }
    let api: Api<KubeSecret> = Api::namespaced(client.clone(), namespace);
    let found = engine::found("read a secret", api.get(name)).await;
    let found = found.map_err(|error| unread(&why(&error)))?;
    let found = found.ok_or_else(|| format!("{secret} is not there; create it in {namespace}"))?;
    let (uid, version) = (found.uid(), found.resource_version());
    let version = format!("{}/{}", uid.unwrap_or_default(), version.unwrap_or_default());
    let data = found.data.unwrap_or_default();
    match key.filter(|key| !data.contains_key(*key)) {
        Some(key) => Err(format!("{secret} has no key {key}; add it")),
        None => Ok(Some(Secret { version, kind: found.type_, data })),
    }
}

/// Whether the image set is there; or why it cannot be used.
async fn find_image_set(client: &Client, name: &str) -> Result<(), String> {
    let image_set = format!("ClusterImageSet {name} of spec.imageSetRef");
    let unread = |why: &str| format!("{image_set} cannot be read: {why}");
    if !is_name(name) {
        return Err(unread(NO_NAME));
    }
    let kind = GroupVersionKind::gvk("hive.openshift.io", "v1", "ClusterImageSet");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let found = engine::found("read an image set", api.get_metadata(name)).await;
    let found = found.map_err(|error| unread(&why(&error)))?;
    found.map(drop).ok_or_else(|| format!("{image_set} is not there; create it"))
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
        for name in ["", "<x>", "a/b", "a?b=c", "..", "a b"] {
            let found = [
                get_secret(&client, "ns", "spec.platform", Some(name), None).await.map(drop),
                find_image_set(&client, name).await,
            ];
            assert!(found.iter().all(|it| it.as_ref().unwrap_err().ends_with(NO_NAME)), "{name}");
        }
    }
}
