//! The objects that make a cluster. Pure: from what the pool says to what is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_types::hive::{ClusterDeploymentCustomization, ClusterPool};
use api_types::names;
use api_types::reference::NamedRef;
use k8s_openapi::ByteString;
use kube::ResourceExt as _;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value, json};

use crate::decision::Version;
use crate::naming::{hash, label};
use crate::patch::InstallConfig;
use crate::platform::Platform;
use crate::pool_version::pool_version;
use crate::seen::Observed;

/// Annotations that say something of one cluster. A pool whose clusters all were given back would make one after the other.
const MARKS: [&str; 6] = [
    names::hive::REMOVE_FROM_POOL,
    names::hive::REMOVE_CLAIMED_FROM_POOL,
    names::ferrite::CUSTOMIZATION_VERSION,
    names::ferrite::INSTALLED_NAME,
    names::ferrite::LEASE_UNVERIFIED,
    names::ferrite::CLAIM_UID,
];

const HIVE: &str = "hive.openshift.io";

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

/// What a cluster's parts are made from now. Contents of secrets are not in it: whoever may see a namespace may read it there.
pub fn made_from(seen: &Observed, entry: Option<&str>) -> String {
    let Observed { pool, materials, .. } = seen;
    let rest = hash(&format!("{materials} {}", pool.makes_workers));
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

/// An object of a cluster's namespace, and its kind.
pub type Part = (ApiResource, Value);

/// A cluster that is to be made, with all that it is made from.
pub struct NewCluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// The pool.
    pub pool: &'a ClusterPool,
    /// The pool's platform.
    pub platform: Platform<'a>,
    /// The pool's secrets.
    pub materials: &'a Materials,
    /// The entry.
    pub entry: Option<&'a Version>,
    /// The customizations of entry and pool: without copies of them Hive does not begin.
    pub customizations: Vec<Arc<ClusterDeploymentCustomization>>,
    /// What it is installed with.
    pub config: InstallConfig,
}

impl NewCluster<'_> {
    /// What Hive wants to find in its namespace before it begins.
    pub fn parts(&self) -> Vec<Part> {
        let Materials { pull_secret, credentials, certificates, .. } = self.materials;
        let text = ByteString(self.config.text.as_bytes().to_vec());
        let data = [("install-config.yaml".to_owned(), text)].into();
        let config = Some(Secret { data, ..Secret::default() });
        let secrets = [&config, pull_secret, credentials, certificates].into_iter();
        let secrets = secrets.zip(self.secret_names()).filter_map(|(secret, name)| {
            let secret = secret.as_ref()?;
            let (kind, mut copy) = self.part(("", "Secret"), &name);
            copy["type"] = json!(secret.kind.as_deref().unwrap_or("Opaque"));
            copy["data"] = json!(secret.data);
            Some((kind, copy))
        });
        secrets.chain(self.customizations.iter().map(|it| self.customization(it))).collect()
    }

    /// Its machine pool, if it gets one.
    pub fn workers(&self) -> Option<Part> {
        let config = serde_json::from_str(&self.config.text).unwrap_or_default();
        let spec = self.platform.workers(self.name, &config);
        let spec = spec.filter(|_| Platform::makes_workers(&self.pool.spec))?;
        let (kind, mut workers) =
            self.part((HIVE, "MachinePool"), &format!("{}-worker", self.name));
        workers["spec"] = spec;
        Some((kind, workers))
    }

    /// Names of its secrets: install config, pull secret, credentials and certificates.
    fn secret_names(&self) -> [String; 4] {
        let (name, platform) = (self.name, self.platform.name);
        [
            format!("{name}-install-config"),
            format!("{name}-pull-secret"),
            format!("{name}-{platform}-creds"),
            format!("{name}-{platform}-certs"),
        ]
    }

    /// An object of its namespace, which says for which pool it was made.
    fn part(&self, (group, kind): (&str, &str), name: &str) -> Part {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let object = json!({
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": name,
                "namespace": self.name,
                "annotations": { names::ferrite::POOL_OWNER: owner(self.pool) },
            },
        });
        (kind, object)
    }

    /// Its copy of a customization.
    fn customization(&self, entry: &ClusterDeploymentCustomization) -> Part {
        let kind = (HIVE, "ClusterDeploymentCustomization");
        let (kind, mut copy) = self.part(kind, &entry.name_any());
        let metadata = &mut copy["metadata"];
        metadata["labels"] = json!(entry.labels());
        let not_copied = [names::LAST_APPLIED, names::ferrite::POOL_OWNER];
        let annotations = entry.annotations().iter();
        for (key, value) in annotations.filter(|(key, _)| !not_copied.contains(&key.as_str())) {
            metadata["annotations"][key] = json!(value);
        }
        copy["spec"] = json!(entry.spec);
        (kind, copy)
    }

    /// The cluster itself: whether it is to run, and whether it begins paused.
    pub fn object(&self, run: Option<bool>, paused: bool) -> Value {
        let (pool, spec, name) = (self.pool, &self.pool.spec, self.name);
        let of_pool = spec.annotations.iter().filter(|(key, _)| !MARKS.contains(&key.as_str()));
        let mut annotations: Map<String, Value> =
            of_pool.map(|(key, value)| (key.clone(), json!(value))).collect();
        let mut note = |key: &str, value: &str| annotations.insert(key.to_owned(), json!(value));
        note(names::hive::POOL_SPEC_HASH, &pool_version(spec).own);
        if let Some(entry) = self.entry {
            note(names::ferrite::CUSTOMIZATION_VERSION, &entry.version);
        }
        if self.config.name != name {
            note(names::ferrite::INSTALLED_NAME, &self.config.name);
        }
        if paused {
            note(names::hive::RECONCILE_PAUSE, "true");
            note(names::ferrite::LEASE_UNVERIFIED, "true");
        }
        let [config, pull_secret, credentials, certificates] = self.secret_names();
        let pool_name = pool.name_any();
        let pool_namespace = pool.namespace().unwrap_or_default();
        let mut labels = spec.labels.clone();
        labels.insert(names::hive::CLUSTERPOOL_NAME.to_owned(), label(&pool_name));
        labels.insert(names::hive::CLUSTERPOOL_NAMESPACE.to_owned(), pool_namespace.clone());
        let mut reference = json!({ "namespace": pool_namespace, "poolName": pool_name });
        if let Some(entry) = self.entry {
            for spelling in SPELLINGS {
                reference[spelling] = json!({ "name": entry.name });
            }
        }
        let mut provisioning = json!({
            "imageSetRef": spec.image_set_ref,
            "installConfigSecretRef": { "name": config },
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
                "platform": self.platform.for_cluster(&credentials, &certificates),
                "provisioning": provisioning,
                "clusterPoolRef": reference,
            },
        });
        if self.entry.is_some() {
            cluster["metadata"]["finalizers"] = json!([names::hive::INVENTORY_FINALIZER]);
        }
        let fields = &mut cluster["spec"];
        if name_in(spec.pull_secret_ref.as_ref()).is_some() {
            fields["pullSecretRef"] = json!({ "name": pull_secret });
        }
        if let Some(limit) = spec.install_attempts_limit {
            fields["installAttemptsLimit"] = json!(limit);
        }
        if let Some(after) = &spec.hibernate_after {
            fields["hibernateAfter"] = json!(after);
        }
        if let Some(run) = run {
            fields["powerState"] = json!(if run { "Running" } else { "Hibernating" });
        }
        cluster
    }
}

#[cfg(test)]
mod tests {
    use api_types::hive::{ClusterDeployment, ClusterPoolSpec};

    use super::*;

    /// A cluster as it is made for a pool on no platform in particular.
    fn made(spec: impl FnOnce(&mut ClusterPoolSpec), entry: Option<&Version>) -> Value {
        let mut pool = ClusterPool::new("ns", "pool", ClusterPoolSpec::default());
        pool.spec.platform.insert("none".to_owned(), json!({}));
        spec(&mut pool.spec);
        let materials = Materials::default();
        new_cluster(&pool, &materials, entry).object(None, entry.is_some())
    }

    fn new_cluster<'a>(
        pool: &'a ClusterPool,
        materials: &'a Materials,
        entry: Option<&'a Version>,
    ) -> NewCluster<'a> {
        let (text, notes) = ("{}".to_owned(), Vec::new());
        let config = InstallConfig { text, name: "c".to_owned(), notes };
        let platform = Platform::of(&pool.spec).unwrap();
        let customizations = Vec::new();
        NewCluster { name: "c", pool, platform, materials, entry, customizations, config }
    }

    #[test]
    fn the_namespace_of_a_cluster_gets_what_hive_waits_for_and_workers_unless_they_are_unwanted() {
        let mut pool = ClusterPool::new("ns", "pool", ClusterPoolSpec::default());
        pool.spec.platform.insert("aws".to_owned(), json!({}));
        let (pull_secret, certificates) = (Some(Secret::default()), Some(Secret::default()));
        let materials = Materials { pull_secret, certificates, ..Materials::default() };
        let named = |part: Part| {
            let name = part.1["metadata"]["name"].as_str().unwrap().to_owned();
            assert_eq!(
                (&part.1["kind"], &part.1["metadata"]["namespace"]),
                (&json!(part.0.kind), &json!("c"))
            );
            format!("{} {name}", part.0.plural)
        };
        let mut new = new_cluster(&pool, &materials, None);
        new.customizations = ["entry", "all"]
            .map(|it| json!({ "metadata": { "name": it }, "spec": {} }))
            .map(|it| Arc::new(serde_json::from_value(it).unwrap()))
            .into();
        let parts: Vec<String> = new.parts().into_iter().map(named).collect();
        let secrets = ["secrets c-install-config", "secrets c-pull-secret", "secrets c-aws-certs"];
        assert_eq!(parts[..3], secrets);
        let copies = ["entry", "all"].map(|it| format!("clusterdeploymentcustomizations {it}"));
        assert_eq!(parts[3..], copies);
        assert_eq!(new.workers().map(named).as_deref(), Some("machinepools c-worker"));
        pool.spec.skip_machine_pools = Some(true);
        assert!(new_cluster(&pool, &materials, None).workers().is_none());
    }

    #[test]
    fn an_owner_names_its_pool() {
        assert_eq!(pool_of("ns/pool/uid"), Some(("ns", "pool", "uid")));
        assert_eq!(pool_of(""), None);
    }

    #[test]
    fn a_cluster_with_an_entry_waits_for_its_lease_to_be_verified() {
        let entry = Version { name: "e".to_owned(), version: "1-u".to_owned() };
        let free = made(|_| {}, None);
        let made = made(|_| {}, Some(&entry));
        assert_eq!(made["metadata"]["annotations"][names::hive::RECONCILE_PAUSE], "true");
        assert_eq!(made["metadata"]["finalizers"], json!([names::hive::INVENTORY_FINALIZER]));
        let reference = &made["spec"]["clusterPoolRef"];
        for spelling in ["clusterDeploymentCustomization", "ClusterDeploymentCustomizationRef"] {
            assert_eq!(reference[spelling]["name"], "e", "{spelling}");
        }
        // All of them are sent.
        let sent: ClusterDeployment = serde_json::from_value(made.clone()).unwrap();
        assert_eq!(serde_json::to_value(sent).unwrap()["spec"]["clusterPoolRef"], *reference);
        assert!(free["metadata"].get("finalizers").is_none());
    }

    #[test]
    fn what_marks_a_single_cluster_is_not_taken_from_the_pool_and_a_persons_wish_is() {
        let of_pool = MARKS.iter().chain(&[names::hive::PROTECTED_DELETE, "team"]);
        let of_pool = of_pool.map(|key| ((*key).to_owned(), "true".to_owned())).collect();
        let made = made(|spec| spec.annotations = of_pool, None);
        let annotations = &made["metadata"]["annotations"];
        assert!(MARKS.iter().all(|it| annotations.get(it).is_none()), "{annotations}");
        assert_eq!(annotations[names::hive::PROTECTED_DELETE], "true");
        assert_eq!(annotations["team"], "true");
    }

    #[test]
    fn a_cluster_refers_to_nothing_that_its_pool_does_not_name() {
        let refers = |name: &str| {
            let reference = NamedRef { name: Some(name.to_owned()), ..NamedRef::default() };
            let refer = |spec: &mut ClusterPoolSpec| {
                spec.pull_secret_ref = Some(reference.clone());
                spec.customization_ref = Some(reference);
            };
            let made = made(refer, None);
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
            |it| it.pool.makes_workers = true,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_ne!(of(change), now, "{number}");
        }
        let seen = Observed { materials: "u/1 v/2".to_owned(), ..Observed::default() };
        assert!(made_from(&seen, Some("2-u")) != now && made_from(&seen, None) != now);
        assert_eq!(of(|it| (it.pool.size, it.pool.at) = (7, "9".to_owned())), now);
        let pool = ClusterPool::new("ns", "pool", ClusterPoolSpec::default());
        let noted = namespace(&pool, "c", &now);
        assert_eq!(noted["metadata"]["annotations"][names::ferrite::MADE_FROM], now);
    }
}
