//! The objects that make a cluster. Pure: from what the pool says to what is sent.

use std::collections::BTreeMap;

use api_types::hive::{ClusterDeploymentCustomization, ClusterPool};
use api_types::names;
use api_types::reference::NamedRef;
use k8s_openapi::ByteString;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};

use crate::naming::{hash, label};
use crate::platform::Platform;
use crate::seen::{Observed, Part};

/// Annotations that say something of one cluster. A pool whose clusters all were given back would make one after the other.
const MARKS: [&str; 6] = [
    names::hive::REMOVE_FROM_POOL,
    names::hive::REMOVE_CLAIMED_FROM_POOL,
    names::ferrite::CUSTOMIZATION_VERSION,
    names::ferrite::INSTALLED_NAME,
    names::ferrite::LEASE_UNVERIFIED,
    names::ferrite::CLAIM_UID,
];

/// How a cluster names its customization: as a stock CRD keeps it, and as the design has it.
const SPELLINGS: [&str; 2] =
    ["clusterDeploymentCustomization", "ClusterDeploymentCustomizationRef"];

/// A secret of the pool, to be copied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Secret {
    /// Its type.
    pub kind: Option<String>,
    /// Its contents.
    pub data: BTreeMap<String, ByteString>,
    /// Its uid and resourceVersion.
    pub version: String,
}

/// What a pool's clusters are made of, beside the pool itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Materials {
    /// What is not there or not usable, and what to do.
    pub missing: Vec<String>,
    /// The install config that patches are applied to.
    pub config: Option<Value>,
    /// Which secrets and which customization of the pool they are: with the pool's version it tells the config from another one.
    pub versions: String,
    /// The pool's pull secret.
    pub pull_secret: Option<Secret>,
    /// Its credentials.
    pub credentials: Option<Secret>,
    /// Its certificates.
    pub certificates: Option<Secret>,
}

/// The name in a reference. The CRDs' default for one is empty, which names nothing.
pub fn name_in(reference: Option<&NamedRef>) -> Option<&str> {
    reference?.name.as_deref().filter(|it| !it.is_empty())
}

/// Namespace, name and uid of a pool: whose a cluster's namespace is.
pub fn owner(pool: &ClusterPool) -> String {
    let uid = pool.uid().unwrap_or_default();
    format!("{}/{}/{uid}", pool.namespace().unwrap_or_default(), pool.name_any())
}

/// Namespace, name and uid in what [`owner`] wrote.
pub fn pool_of(owner: &str) -> Option<(&str, &str, &str)> {
    let mut parts = owner.split('/');
    Some((parts.next()?, parts.next()?, parts.next().unwrap_or_default()))
}

/// Name of a cluster's copy of a secret.
pub fn secret_name(cluster: &str, part: Part, platform: &str) -> String {
    match part {
        Part::InstallConfig => format!("{cluster}-install-config"),
        Part::PullSecret => format!("{cluster}-pull-secret"),
        Part::Certificates => format!("{cluster}-{platform}-certs"),
        _ => format!("{cluster}-{platform}-creds"),
    }
}

/// What a cluster's parts are made from now. Contents of secrets are not in it: whoever may see a namespace may read it there.
pub fn made_from(seen: &Observed, entry: Option<&str>) -> String {
    let Observed { pool, materials, .. } = seen;
    let has_workers = pool.parts.contains(&Part::MachinePool);
    let rest = hash(&format!("{materials} {has_workers}"));
    format!("{}.{}.{rest:08x}", pool.version.own, entry.unwrap_or_default())
}

/// A cluster's namespace.
pub fn namespace(pool: &ClusterPool, cluster: &str, made_from: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": cluster,
            "labels": { names::hive::POOL_NAME: label(&pool.name_any()) },
            "annotations": {
                names::ferrite::POOL_OWNER: owner(pool),
                names::ferrite::MADE_FROM: made_from,
            },
        },
    })
}

/// An object of a cluster's namespace, which says for which pool it was made.
fn part(pool: &ClusterPool, cluster: &str, version: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": cluster,
            "annotations": { names::ferrite::POOL_OWNER: owner(pool) },
        },
    })
}

/// The secret with a cluster's install config.
pub fn install_config(pool: &ClusterPool, cluster: &str, text: &str) -> Value {
    let text = ByteString(text.as_bytes().to_vec());
    let data = [("install-config.yaml".to_owned(), text)].into();
    let name = secret_name(cluster, Part::InstallConfig, "");
    copy(pool, cluster, &name, &Secret { data, ..Secret::default() })
}

/// A cluster's copy of one of the pool's secrets.
pub fn copy(pool: &ClusterPool, cluster: &str, name: &str, secret: &Secret) -> Value {
    let mut copy = part(pool, cluster, "v1", "Secret", name);
    copy["type"] = json!(secret.kind.as_deref().unwrap_or("Opaque"));
    copy["data"] = json!(secret.data);
    copy
}

/// A cluster's copy of a customization: without one Hive does not begin.
pub fn customization(
    pool: &ClusterPool,
    cluster: &str,
    entry: &ClusterDeploymentCustomization,
) -> Value {
    let (version, kind) = ("hive.openshift.io/v1", "ClusterDeploymentCustomization");
    let mut copy = part(pool, cluster, version, kind, &entry.name_any());
    copy["metadata"]["labels"] = json!(entry.labels());
    for (key, value) in entry.annotations().iter().filter(|(key, _)| *key != names::LAST_APPLIED) {
        copy["metadata"]["annotations"][key] = json!(value);
    }
    copy["metadata"]["annotations"][names::ferrite::POOL_OWNER] = json!(owner(pool));
    copy["spec"] = json!(entry.spec);
    copy
}

/// The workers of a cluster.
pub fn machine_pool(pool: &ClusterPool, cluster: &str, spec: &Value) -> Value {
    let name = format!("{cluster}-worker");
    let mut workers = part(pool, cluster, "hive.openshift.io/v1", "MachinePool", &name);
    workers["spec"] = spec.clone();
    workers
}

/// What a new cluster differs in from the pool's others.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    /// Its name.
    pub cluster: &'a str,
    /// The version of the pool's spec.
    pub pool_version: &'a str,
    /// The entry and its version.
    pub entry: Option<(&'a str, &'a str)>,
    /// Its name in the install config.
    pub installed_name: Option<&'a str>,
    /// Whether it is to run.
    pub run: Option<bool>,
    /// Whether it begins paused.
    pub paused: bool,
}

/// A cluster.
pub fn cluster(pool: &ClusterPool, platform: Platform<'_>, wanted: &Wanted<'_>) -> Value {
    let (spec, name) = (&pool.spec, wanted.cluster);
    let of_pool = spec.annotations.iter().filter(|(key, _)| !MARKS.contains(&key.as_str()));
    let mut annotations: Map<String, Value> =
        of_pool.map(|(key, value)| (key.clone(), json!(value))).collect();
    let mut note = |key: &str, value: &str| annotations.insert(key.to_owned(), json!(value));
    note(names::hive::POOL_SPEC_HASH, wanted.pool_version);
    if let Some((_, version)) = wanted.entry {
        note(names::ferrite::CUSTOMIZATION_VERSION, version);
    }
    if let Some(installed) = wanted.installed_name.filter(|it| *it != name) {
        note(names::ferrite::INSTALLED_NAME, installed);
    }
    if wanted.paused {
        note(names::hive::RECONCILE_PAUSE, "true");
        note(names::ferrite::LEASE_UNVERIFIED, "true");
    }
    let pool_name = pool.name_any();
    let pool_namespace = pool.namespace().unwrap_or_default();
    let mut labels = spec.labels.clone();
    labels.insert(names::hive::CLUSTERPOOL_NAME.to_owned(), label(&pool_name));
    labels.insert(names::hive::CLUSTERPOOL_NAMESPACE.to_owned(), pool_namespace.clone());
    let mut reference = json!({ "namespace": pool_namespace, "poolName": pool_name });
    if let Some((entry, _)) = wanted.entry {
        for spelling in SPELLINGS {
            reference[spelling] = json!({ "name": entry });
        }
    }
    let mut provisioning = json!({
        "imageSetRef": spec.image_set_ref,
        "installConfigSecretRef": { "name": secret_name(name, Part::InstallConfig, "") },
    });
    if !spec.installer_env.is_empty() {
        provisioning["installerEnv"] = json!(spec.installer_env);
    }
    if name_in(spec.customization_ref.as_ref()).is_some() {
        provisioning["customizationRef"] = json!(spec.customization_ref);
    }
    let mut cluster = json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeployment",
        "metadata": {
            "name": name,
            "namespace": name,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "clusterName": name,
            "baseDomain": spec.base_domain,
            "platform": platform.for_cluster(
                &secret_name(name, Part::Credentials, platform.name),
                &secret_name(name, Part::Certificates, platform.name),
            ),
            "provisioning": provisioning,
            "clusterPoolRef": reference,
        },
    });
    if wanted.entry.is_some() {
        cluster["metadata"]["finalizers"] = json!([names::hive::INVENTORY_FINALIZER]);
    }
    let fields = &mut cluster["spec"];
    if name_in(spec.pull_secret_ref.as_ref()).is_some() {
        fields["pullSecretRef"] = json!({ "name": secret_name(name, Part::PullSecret, "") });
    }
    if let Some(limit) = spec.install_attempts_limit {
        fields["installAttemptsLimit"] = json!(limit);
    }
    if let Some(after) = &spec.hibernate_after {
        fields["hibernateAfter"] = json!(after);
    }
    if let Some(run) = wanted.run {
        fields["powerState"] = json!(if run { "Running" } else { "Hibernating" });
    }
    cluster
}

#[cfg(test)]
mod tests {
    use api_types::hive::ClusterDeployment;

    use super::*;

    #[test]
    fn an_owner_names_its_pool() {
        assert_eq!(pool_of("ns/pool/uid"), Some(("ns", "pool", "uid")));
        assert_eq!(pool_of(""), None);
    }

    #[test]
    fn a_cluster_with_an_entry_waits_for_its_lease_to_be_verified() {
        let mut pool = ClusterPool::new("ns", "pool", api_types::hive::ClusterPoolSpec::default());
        pool.spec.platform.insert("none".to_owned(), json!({}));
        let platform = Platform::of(&pool.spec).unwrap();
        let wanted =
            Wanted { cluster: "c", entry: Some(("e", "1-u")), paused: true, ..Wanted::default() };
        let made = cluster(&pool, platform, &wanted);
        assert_eq!(made["metadata"]["annotations"][names::hive::RECONCILE_PAUSE], "true");
        assert_eq!(made["metadata"]["finalizers"], json!([names::hive::INVENTORY_FINALIZER]));
        let reference = &made["spec"]["clusterPoolRef"];
        for spelling in ["clusterDeploymentCustomization", "ClusterDeploymentCustomizationRef"] {
            assert_eq!(reference[spelling]["name"], "e", "{spelling}");
        }
        // All of them are sent.
        let sent: ClusterDeployment = serde_json::from_value(made.clone()).unwrap();
        assert_eq!(serde_json::to_value(sent).unwrap()["spec"]["clusterPoolRef"], *reference);
        let free = cluster(&pool, platform, &Wanted { cluster: "c", ..Wanted::default() });
        assert!(free["metadata"].get("finalizers").is_none());
    }

    #[test]
    fn what_marks_a_single_cluster_is_not_taken_from_the_pool_and_a_persons_wish_is() {
        let mut pool = ClusterPool::new("ns", "pool", api_types::hive::ClusterPoolSpec::default());
        pool.spec.platform.insert("none".to_owned(), json!({}));
        for key in MARKS.iter().chain(&[names::hive::PROTECTED_DELETE, "team"]) {
            pool.spec.annotations.insert((*key).to_owned(), "true".to_owned());
        }
        let platform = Platform::of(&pool.spec).unwrap();
        let made = cluster(&pool, platform, &Wanted { cluster: "c", ..Wanted::default() });
        let annotations = &made["metadata"]["annotations"];
        assert!(MARKS.iter().all(|it| annotations.get(it).is_none()), "{annotations}");
        assert_eq!(annotations[names::hive::PROTECTED_DELETE], "true");
        assert_eq!(annotations["team"], "true");
    }

    #[test]
    fn a_cluster_refers_to_nothing_that_its_pool_does_not_name() {
        let refers = |name: &str| {
            let mut pool =
                ClusterPool::new("ns", "pool", api_types::hive::ClusterPoolSpec::default());
            pool.spec.platform.insert("none".to_owned(), json!({}));
            let reference = NamedRef { name: Some(name.to_owned()), ..NamedRef::default() };
            pool.spec.pull_secret_ref = Some(reference.clone());
            pool.spec.customization_ref = Some(reference);
            let platform = Platform::of(&pool.spec).unwrap();
            let made = cluster(&pool, platform, &Wanted { cluster: "c", ..Wanted::default() });
            let spec = &made["spec"];
            (spec["pullSecretRef"].clone(), spec["provisioning"]["customizationRef"].clone())
        };
        assert_eq!(refers(""), (Value::Null, Value::Null));
        assert_eq!(refers("it"), (json!({ "name": "c-pull-secret" }), json!({ "name": "it" })));
    }

    /// Each of these makes a half-made cluster another one, and nothing else does.
    #[test]
    fn a_half_made_cluster_is_the_same_as_long_as_all_that_it_is_made_from_is() {
        let of = |change: fn(&mut Observed)| {
            let mut seen = Observed { materials: "u/1 v/2".to_owned(), ..Observed::default() };
            change(&mut seen);
            made_from(&seen, Some("1-u"))
        };
        let now = of(|_| {});
        let changes: [fn(&mut Observed); 3] = [
            |it| it.pool.version.own = "w".to_owned(),
            |it| it.materials = "u/1 v/3".to_owned(),
            |it| it.pool.parts.push(Part::MachinePool),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_ne!(of(change), now, "{number}");
        }
        let seen = Observed { materials: "u/1 v/2".to_owned(), ..Observed::default() };
        assert!(made_from(&seen, Some("2-u")) != now && made_from(&seen, None) != now);
        assert_eq!(of(|it| (it.pool.size, it.pool.at) = (7, "9".to_owned())), now);
        let pool = ClusterPool::new("ns", "pool", api_types::hive::ClusterPoolSpec::default());
        let noted = namespace(&pool, "c", &now);
        assert_eq!(noted["metadata"]["annotations"][names::ferrite::MADE_FROM], now);
    }
}
