//! The objects that make a cluster. Pure: from what the pool says to what is sent.

use std::collections::BTreeMap;

use api_types::hive::{ClusterDeploymentCustomization, ClusterPool};
use api_types::names;
use api_types::reference::NamedRef;
use k8s_openapi::ByteString;
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::platform::Platform;
use crate::seen::Part;

/// What a label may be long.
const LABEL: usize = 63;
/// Annotations that say something of one cluster. A pool whose clusters all were given back would make one after the other.
const MARKS: [&str; 5] = [
    names::hive::REMOVE_FROM_POOL,
    names::hive::REMOVE_CLAIMED_FROM_POOL,
    names::ferrite::CUSTOMIZATION_VERSION,
    names::ferrite::INSTALLED_NAME,
    names::ferrite::LEASE_UNVERIFIED,
];

/// How a cluster names its customization: as a stock CRD keeps it, as the design has it, and as is usual.
const SPELLINGS: [&str; 3] = [
    "clusterDeploymentCustomization",
    "ClusterDeploymentCustomizationRef",
    "clusterDeploymentCustomizationRef",
];

/// A secret of the pool, to be copied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Secret {
    /// Its type.
    pub kind: Option<String>,
    /// Its contents.
    pub data: BTreeMap<String, ByteString>,
    /// Its resourceVersion.
    pub at: String,
    /// Its uid.
    pub uid: String,
}

/// What a pool's clusters are made of, beside the pool itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Materials {
    /// What is not there or not usable, and what to do.
    pub missing: Vec<String>,
    /// The install config that patches are applied to.
    pub config: Option<Value>,
    /// Tells it from another one.
    pub config_hash: u64,
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

/// A name as the value of a label: names may be longer.
pub fn label(name: &str) -> String {
    if name.len() <= LABEL {
        return name.to_owned();
    }
    let hash = hash(name);
    // What is told of an entry that cannot be there may be any text.
    let end = (0..=LABEL - 9).rev().find(|it| name.is_char_boundary(*it)).unwrap_or(0);
    format!("{}-{hash:08x}", name[..end].trim_end_matches(['-', '.']))
}

/// The action of an event that is another one for each other note: of one reason and one action the first would stand for
/// all.
pub fn action(verb: &str, note: &str) -> String {
    format!("{verb}-{:08x}", hash(note))
}

/// A number that tells a text from another one.
pub fn hash(text: &str) -> u32 {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(4).fold(0, |hash, byte| hash << 8 | u32::from(*byte))
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

/// A cluster's namespace.
pub fn namespace(pool: &ClusterPool, cluster: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": cluster,
            "labels": { names::hive::POOL_NAME: label(&pool.name_any()) },
            "annotations": { names::ferrite::POOL_OWNER: owner(pool) },
        },
    })
}

/// The secret with a cluster's install config.
pub fn install_config(pool: &ClusterPool, cluster: &str, text: &str, made_from: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(cluster, Part::InstallConfig, ""),
            "namespace": cluster,
            "annotations": {
                names::ferrite::POOL_OWNER: owner(pool),
                names::ferrite::MADE_FROM: made_from,
            },
        },
        "type": "Opaque",
        "data": { "install-config.yaml": ByteString(text.as_bytes().to_vec()) },
    })
}

/// A cluster's copy of one of the pool's secrets.
pub fn copy(pool: &ClusterPool, cluster: &str, name: &str, secret: &Secret) -> Value {
    let of_pool = pool.metadata.generation.unwrap_or(0);
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": cluster,
            "annotations": {
                names::ferrite::POOL_OWNER: owner(pool),
                names::ferrite::MADE_FROM: format!("{of_pool}.{}..{}", secret.at, secret.uid),
            },
        },
        "type": secret.kind.as_deref().unwrap_or("Opaque"),
        "data": secret.data,
    })
}

/// A cluster's copy of a customization: without one Hive does not begin.
pub fn customization(
    pool: &ClusterPool,
    cluster: &str,
    entry: &ClusterDeploymentCustomization,
    config_hash: u64,
) -> Value {
    let made_from = made_from(pool, Some(entry), config_hash);
    let mut annotations = entry.annotations().clone();
    annotations.remove(names::LAST_APPLIED);
    annotations.insert(names::ferrite::POOL_OWNER.to_owned(), owner(pool));
    annotations.insert(names::ferrite::MADE_FROM.to_owned(), made_from);
    json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterDeploymentCustomization",
        "metadata": {
            "name": entry.name_any(),
            "namespace": cluster,
            "labels": entry.labels(),
            "annotations": annotations,
        },
        "spec": entry.spec,
    })
}

/// What something is made from: the generations of pool and customization, the install config, and which customization
/// of the name it is.
pub fn made_from(
    pool: &ClusterPool,
    entry: Option<&ClusterDeploymentCustomization>,
    config_hash: u64,
) -> String {
    let of_entry = entry.and_then(|it| it.metadata.generation).unwrap_or(0);
    let of_pool = pool.metadata.generation.unwrap_or(0);
    let uid = entry.and_then(|it| it.metadata.uid.as_deref()).unwrap_or_default();
    format!("{of_pool}.{of_entry}.{config_hash:016x}.{uid}")
}

/// Whether something made from `old` may be made anew from `new`: in no respect from something older, as far as that can
/// be told.
pub fn is_newer(new: &str, old: &str) -> bool {
    fn read(text: &str) -> (i64, i64, &str) {
        let mut parts = text.splitn(4, '.');
        let mut number = || parts.next().and_then(|it| it.parse().ok()).unwrap_or(0);
        let (pool, entry) = (number(), number());
        (pool, entry, parts.nth(1).unwrap_or_default())
    }
    let ((pool, entry, uid), old_ones) = (read(new), read(old));
    // Generations of two customizations cannot be compared.
    new != old && pool >= old_ones.0 && (uid != old_ones.2 || entry >= old_ones.1)
}

/// The merge patch that makes `found` what is `wanted` now: what is not in its contents any more goes.
pub fn renewal(wanted: &Value, found: &Value) -> Value {
    let mut patch = wanted.clone();
    patch["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
    for field in ["data", "spec"] {
        let new = patch.get_mut(field).and_then(Value::as_object_mut);
        if let (Some(old), Some(new)) = (found[field].as_object(), new) {
            for key in old.keys() {
                new.entry(key).or_insert(Value::Null);
            }
        }
    }
    patch
}

/// Name of a cluster's machine pool.
pub fn workers_name(cluster: &str) -> String {
    format!("{cluster}-worker")
}

/// The workers of a cluster.
pub fn machine_pool(pool: &ClusterPool, cluster: &str, spec: &Value, made_from: &str) -> Value {
    json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "MachinePool",
        "metadata": {
            "name": workers_name(cluster),
            "namespace": cluster,
            "annotations": {
                names::ferrite::POOL_OWNER: owner(pool),
                names::ferrite::MADE_FROM: made_from,
            },
        },
        "spec": spec,
    })
}

/// What becomes of the workers that an earlier try for a cluster left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// They stay: they are made from the same, or not ours.
    Stays,
    /// They go: they are made from something older.
    Goes,
    /// They are made from something newer than is known here.
    Newer,
}

/// What becomes of workers that have these annotations, where the cluster is now made from `made_from`.
pub fn left_workers(
    pool: &ClusterPool,
    annotations: &BTreeMap<String, String>,
    made_from: &str,
) -> Left {
    let old = annotations.get(names::ferrite::MADE_FROM).map_or("", String::as_str);
    if annotations.get(names::ferrite::POOL_OWNER) != Some(&owner(pool)) || old == made_from {
        Left::Stays
    } else if is_newer(made_from, old) {
        Left::Goes
    } else {
        Left::Newer
    }
}

/// Whether what was found can become what is wanted: nobody may change the type of a secret.
pub fn is_renewable(wanted: &Value, found: &Value) -> bool {
    wanted.get("type") == found.get("type")
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
    fn what_is_made_from_something_older_does_not_replace_what_is_newer() {
        for new in ["2.1.a.u", "1.2.a.u", "1.1.b.u"] {
            assert!(is_newer(new, "1.1.a.u") && is_newer(new, "1.1") && is_newer(new, ""), "{new}");
        }
        for old in ["1.1.a.u", "1.2.a.u", "2.1.a.u", "2.1"] {
            assert!(!is_newer("1.1.a.u", old), "{old}");
        }
        assert!(!is_newer("2.1.a.u", "1.2.a.u"));
        // A customization that was deleted and created again begins anew.
        assert!(is_newer("1.1.a.v", "1.5.a.u"));
    }

    #[test]
    fn a_name_that_is_too_long_for_a_label_is_cut_and_stays_its_own() {
        let long = "a".repeat(253);
        let other = format!("{}b", "a".repeat(252));
        assert!(label(&long).len() <= 63 && label(&long) != label(&other));
        assert_eq!(label("short"), "short");
        assert!(label(&"ä語".repeat(40)).len() <= 63);
    }

    #[test]
    fn what_is_told_for_another_reason_is_an_event_of_its_own() {
        let long = "no".repeat(1_000);
        assert_eq!(action("Write", "no"), action("Write", "no"));
        assert_ne!(action("Write", "no"), action("Write", &long));
        // What an event holds.
        assert!(action("Write", &long).len() <= 128 && action("Write", "").starts_with("Write-"));
    }

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
        for spelling in [
            "clusterDeploymentCustomization",
            "ClusterDeploymentCustomizationRef",
            "clusterDeploymentCustomizationRef",
        ] {
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

    fn made_of(object: &Value) -> String {
        let annotations = &object["metadata"]["annotations"];
        annotations[names::ferrite::MADE_FROM].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_copy_is_made_anew_when_what_it_is_copied_from_was_written_since() {
        let mut pool = ClusterPool::new("ns", "pool", api_types::hive::ClusterPoolSpec::default());
        pool.metadata.generation = Some(1);
        let of = |pool: &ClusterPool, at: &str, uid: &str| {
            let secret = Secret { at: at.to_owned(), uid: uid.to_owned(), ..Secret::default() };
            made_of(&copy(pool, "c", "c-pull-secret", &secret))
        };
        let before = of(&pool, "9", "u");
        assert_eq!(before, of(&pool, "9", "u"));
        assert!(is_newer(&of(&pool, "10", "u"), &before) && is_newer(&before, ""));
        assert!(!is_newer(&before, &of(&pool, "10", "u")));
        // Another secret, which the pool did not name before.
        pool.metadata.generation = Some(2);
        let renamed = of(&pool, "3", "v");
        assert!(is_newer(&renamed, &before) && !is_newer(&before, &renamed));
        // A customization of the pool is told by its own generation, not by the entry's beside it.
        let mut entry = ClusterDeploymentCustomization::default();
        let mut made_at = |generation: i64| {
            entry.metadata.generation = Some(generation);
            made_of(&customization(&pool, "c", &entry, 7))
        };
        let before = made_at(1);
        assert!(is_newer(&made_at(2), &before));
    }

    #[test]
    fn workers_of_an_earlier_try_go_where_they_are_ours_and_older() {
        let mut pool = ClusterPool::new("ns", "pool", api_types::hive::ClusterPoolSpec::default());
        pool.metadata.generation = Some(2);
        let made = |pool: &ClusterPool, made_from: &str| {
            let made = machine_pool(pool, "c", &json!({}), made_from);
            serde_json::from_value(made["metadata"]["annotations"].clone()).unwrap()
        };
        let left = |annotations| left_workers(&pool, &annotations, "2.1.a.u");
        assert_eq!(left(made(&pool, "2.1.a.u")), Left::Stays);
        assert_eq!(left(made(&pool, "1.1.a.u")), Left::Goes);
        assert_eq!(left(made(&pool, "3.1.a.u")), Left::Newer);
        // Nobody noted what they are made from.
        let mut unnoted: BTreeMap<String, String> = made(&pool, "");
        unnoted.remove(names::ferrite::MADE_FROM);
        assert_eq!(left(unnoted), Left::Goes);
        // A person's, and another pool's.
        assert_eq!(left(BTreeMap::new()), Left::Stays);
        let other = ClusterPool::new("ns", "other", api_types::hive::ClusterPoolSpec::default());
        assert_eq!(left(made(&other, "1.1.a.u")), Left::Stays);
    }

    #[test]
    fn a_secret_of_another_type_is_not_made_anew_and_what_has_no_type_is() {
        let pool = ClusterPool::new("ns", "pool", api_types::hive::ClusterPoolSpec::default());
        let of = |kind: Option<&str>| {
            let secret = Secret { kind: kind.map(str::to_owned), ..Secret::default() };
            copy(&pool, "c", "c-pull-secret", &secret)
        };
        let docker = of(Some("kubernetes.io/dockerconfigjson"));
        assert!(is_renewable(&docker, &docker) && is_renewable(&of(None), &of(Some("Opaque"))));
        assert!(!is_renewable(&docker, &of(None)) && !is_renewable(&of(None), &docker));
        let copied = customization(&pool, "c", &ClusterDeploymentCustomization::default(), 7);
        assert!(is_renewable(&copied, &copied));
    }

    #[test]
    fn what_is_made_anew_keeps_nothing_of_what_it_was_made_from_before() {
        let found = json!({
            "metadata": { "resourceVersion": "5", "uid": "u" },
            "spec": { "installConfigPatches": [1], "installerManifestPatches": [2] },
        });
        let wanted =
            json!({ "metadata": { "name": "a" }, "spec": { "installConfigPatches": [3] } });
        let patch = json!({
            "metadata": { "name": "a", "resourceVersion": "5" },
            "spec": { "installConfigPatches": [3], "installerManifestPatches": null },
        });
        assert_eq!(renewal(&wanted, &found), patch);
        let found = json!({ "metadata": {}, "data": { "old": "b2xk" }, "type": "Opaque" });
        let wanted = json!({ "metadata": {}, "data": { "new": "bmV3" } });
        assert_eq!(renewal(&wanted, &found)["data"], json!({ "new": "bmV3", "old": null }));
    }
}
