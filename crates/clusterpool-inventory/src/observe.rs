//! All reads: a snapshot of one pool from the caches, and what the API server is asked for itself.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use api_types::condition::{self, Condition as ForeignCondition};
use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, ClusterPoolStatus,
};
use api_types::names;
use controller_kit::watch::Undecodable;
use k8s_openapi::api::core::v1::Namespace as KubeNamespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt as _};

use crate::config::Policy;
use crate::error::Error;
use crate::index::{Index, Key, all_in};
use crate::inventory::{Entry, Listed};
use crate::materials::Materials;
use crate::patch;
use crate::platform::Platform;
use crate::pool_version::pool_version;
use crate::seen::{
    Claim, Cluster, Condition, Customization, Lease, Namespace, Observed, Part, Pool, Status,
};

/// What was last seen of each kind; hints, behind everybody's writes.
pub struct Stores {
    /// Pools.
    pub pools: Store<ClusterPool>,
    /// Pools that cannot be decoded, which are not gone.
    pub broken_pools: Undecodable,
    /// Customizations.
    pub customizations: Store<ClusterDeploymentCustomization>,
    /// Customizations that cannot be decoded.
    pub broken_customizations: Undecodable,
    /// Clusters of all namespaces.
    pub clusters: Store<ClusterDeployment>,
    /// Claims.
    pub claims: Store<ClusterClaim>,
    /// Namespaces that were made for clusters.
    pub namespaces: Store<KubeNamespace>,
    /// Who may do what.
    pub bindings: Store<RoleBinding>,
}

/// An object of a cache.
pub fn cached<K>(store: &Store<K>, key: &Key) -> Option<std::sync::Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let reference = ObjectRef::new(&key.1);
    store.get(&if key.0.is_empty() { reference } else { reference.within(&key.0) })
}

/// A customization's patches, tried.
#[derive(Clone, Debug)]
pub struct Trial {
    version: String,
    config_hash: u64,
    refused: Option<String>,
    /// What was accepted and should not be relied on.
    pub notes: Vec<String>,
}

/// The pool as the API server knows it now: its uid, whether it is being deleted, and when a controller of Hive last
/// wrote to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Its uid; none if it is gone.
    pub uid: Option<String>,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// When Hive's own controller of pools wrote last.
    pub rival: Option<Timestamp>,
}

/// Asks for a pool.
pub async fn live_pool(client: &Client, key: &Key) -> Result<Live, Error> {
    // What is nobody's is let go in the name of no pool.
    if key.1.is_empty() {
        return Ok(Live::default());
    }
    let api: Api<ClusterPool> = Api::namespaced(client.clone(), &key.0);
    let found = api.get_metadata_opt(&key.1).await.map_err(Error::api("get a ClusterPool"))?;
    let Some(found) = found else { return Ok(Live::default()) };
    let managers = found.metadata.managed_fields.iter().flatten();
    let rival = managers
        .filter(|it| it.manager.as_deref() == Some(names::hive::POOL_CONTROLLER))
        .filter_map(|it| it.time.as_ref().map(|time| time.0))
        .max();
    Ok(Live {
        uid: found.metadata.uid,
        deleting: found.metadata.deletion_timestamp.is_some(),
        rival,
    })
}

/// What else a snapshot depends on.
pub struct Known<'a> {
    /// How to decide.
    pub policy: &'a Policy,
    /// What the pool refers to.
    pub materials: &'a Materials,
    /// Why another controller is known to work on the pool.
    pub rival: Option<String>,
    /// The time.
    pub now: Timestamp,
}

/// A snapshot of a pool, which may be gone, and when it has to be looked at again although nothing changes.
pub fn observe(
    stores: &Stores,
    index: &Index,
    key: &Key,
    known: &Known<'_>,
    trials: &mut BTreeMap<String, Trial>,
) -> (Observed, Option<Duration>) {
    let pool = cached(&stores.pools, key);
    let mut due = None;
    let mut seen = Observed {
        pool: match &pool {
            Some(pool) => view(pool, known),
            None => Pool {
                namespace: key.0.clone(),
                name: key.1.clone(),
                deleting: true,
                ..Pool::default()
            },
        },
        missing: known.materials.missing.clone(),
        ..Observed::default()
    };
    let resume = pool
        .as_ref()
        .and_then(|it| it.spec.hibernation_config.as_ref()?.resume_timeout.as_deref()?.parse().ok())
        .map(|timeout: kube::core::Duration| Duration::from(timeout));
    seen.clusters = index
        .clusters
        .of(key)
        .filter_map(|it| cached(&stores.clusters, it))
        .map(|it| {
            let (cluster, again) = cluster(&it, &seen.pool, resume, known.now);
            due = due.into_iter().chain(again).min();
            cluster
        })
        .collect();
    seen.claims = index
        .claims
        .of(key)
        .filter_map(|it| cached(&stores.claims, it))
        .map(|it| claim(&it))
        .collect();
    seen.namespaces = index
        .namespaces
        .of(key)
        .filter_map(|it| cached(&stores.namespaces, it))
        .map(|it| Namespace {
            name: it.name_any(),
            uid: it.uid().unwrap_or_default(),
            created: created(&*it),
            deleting: it.metadata.deletion_timestamp.is_some(),
        })
        .collect();
    let listed: HashSet<&String> = seen.pool.listed.names().iter().collect();
    trials.retain(|name, _| listed.contains(name));
    let about = About { stores, index, key, known };
    for it in index.customizations.of(&all_in(&key.0)) {
        if let Some(found) = cached(&stores.customizations, it) {
            let mut it = about.customization(&found);
            let listed = index.lists.of(&(key.0.clone(), it.name.clone())).any(|it| it == key);
            if listed && !it.deleting {
                it.refused = about.tried(&found, &it.version, &seen.pool, trials);
            }
            seen.customizations.push(it);
        }
    }
    for name in seen.pool.listed.names().to_vec() {
        let Some(broken) = stores.broken_customizations.get(Some(&key.0), &name) else { continue };
        let user = seen.clusters.iter().find(|it| it.entry.as_ref() == Some(&name));
        seen.customizations.push(Customization {
            at: broken.object.resource_version.unwrap_or_default(),
            version: broken.object.uid.unwrap_or_default(),
            deleting: false,
            kept: true,
            // Who has it cannot be read. It is not used, and not taken away either.
            lease: user.map(|it| Lease {
                cluster: Some(it.name.clone()),
                pool: Some(key.1.clone()),
                pool_exists: true,
                releasing: false,
            }),
            others: about.others(&name),
            listed_elsewhere: true,
            refused: Some(format!("it cannot be read: {}; correct it", broken.problem)),
            name,
        });
    }
    (seen, due)
}

struct About<'a> {
    stores: &'a Stores,
    index: &'a Index,
    key: &'a Key,
    known: &'a Known<'a>,
}

impl About<'_> {
    fn pool_exists(&self, name: &str) -> bool {
        let key = (self.key.0.clone(), name.to_owned());
        cached(&self.stores.pools, &key).is_some()
            || self.stores.broken_pools.get(Some(&key.0), name).is_some()
    }

    /// Live clusters that were made from the entry and are not this pool's.
    fn others(&self, entry: &str) -> Vec<String> {
        let users = self.index.users.of(&(self.key.0.clone(), entry.to_owned()));
        users
            .filter_map(|it| cached(&self.stores.clusters, it))
            .filter(|it| pool_key(it).as_ref() != Some(self.key) || !is_one(it))
            .filter(|it| {
                it.metadata.deletion_timestamp.is_none()
                    || it.finalizers().iter().any(|it| it != names::hive::INVENTORY_FINALIZER)
            })
            .map(|it| it.name_any())
            .collect()
    }

    fn customization(&self, it: &ClusterDeploymentCustomization) -> Customization {
        let name = it.name_any();
        let lists = self.index.lists.of(&(self.key.0.clone(), name.clone()));
        Customization {
            at: it.resource_version().unwrap_or_default(),
            version: version(it),
            deleting: it.metadata.deletion_timestamp.is_some(),
            kept: it.finalizers().iter().any(|it| it == names::hive::LEASE_FINALIZER),
            lease: self.lease(it),
            others: self.others(&name),
            listed_elsewhere: lists
                .filter(|pool| *pool != self.key)
                .filter_map(|pool| cached(&self.stores.pools, pool))
                .any(|pool| pool.metadata.deletion_timestamp.is_none()),
            refused: None,
            name,
        }
    }

    fn lease(&self, it: &ClusterDeploymentCustomization) -> Option<Lease> {
        let cluster = it.leased_by().map(str::to_owned);
        if cluster.is_none() && !it.is_marked_in_use() {
            return None;
        }
        let pool = leasing_pool(it).map(str::to_owned);
        Some(Lease {
            cluster,
            pool_exists: pool.as_deref().is_some_and(|it| self.pool_exists(it)),
            pool,
            releasing: is_releasing(it),
        })
    }

    /// Why the patches cannot be used, tried once for each version of them and of the template.
    fn tried(
        &self,
        it: &ClusterDeploymentCustomization,
        version: &str,
        pool: &Pool,
        trials: &mut BTreeMap<String, Trial>,
    ) -> Option<String> {
        let materials = self.known.materials;
        let config = materials.config.as_ref()?;
        let name = it.name_any();
        let is_same =
            |trial: &&Trial| trial.version == version && trial.config_hash == materials.config_hash;
        if let Some(trial) = trials.get(&name).filter(is_same) {
            return trial.refused.clone();
        }
        let base_domain = cached(&self.stores.pools, self.key)
            .map(|it| it.spec.base_domain.clone())
            .unwrap_or_default();
        let patches = &it.spec.install_config_patches;
        let rules = self.known.policy.rules;
        let tried = patch::install_config(config, &pool.name, &base_domain, patches, rules);
        let (refused, notes) = match tried {
            Ok(config) => (None, config.notes.iter().map(ToString::to_string).collect()),
            Err(refusal) => (Some(refusal.to_string()), Vec::new()),
        };
        let trial = Trial {
            version: version.to_owned(),
            config_hash: materials.config_hash,
            refused: refused.clone(),
            notes,
        };
        trials.insert(name, trial);
        refused
    }
}

/// Generation and uid: a status that is written does not change it, another object of the name does.
pub fn version(it: &ClusterDeploymentCustomization) -> String {
    let generation = it.metadata.generation.unwrap_or_default();
    format!("{generation}-{}", it.metadata.uid.as_deref().unwrap_or_default())
}

/// The pool that leases a customization.
pub fn leasing_pool(it: &ClusterDeploymentCustomization) -> Option<&str> {
    let pool = it.status.as_ref()?.cluster_pool_ref.as_ref()?;
    pool.name.as_deref().filter(|it| !it.is_empty())
}

/// Whether somebody said that he is about to release it.
pub fn is_releasing(it: &ClusterDeploymentCustomization) -> bool {
    it.status
        .as_ref()
        .and_then(|it| condition::find(&it.conditions, names::hive::CONDITION_AVAILABLE))
        .is_some_and(|it| it.reason.as_deref() == Some(names::hive::REASON_RELEASING))
}

/// The pool that a cluster is of.
pub fn pool_key(cluster: &ClusterDeployment) -> Option<Key> {
    let pool = cluster.spec.cluster_pool_ref.as_ref()?;
    Some((pool.namespace.clone(), pool.pool_name.clone())).filter(|it| !it.1.is_empty())
}

/// Whether a cluster stands where a pool's clusters stand: in the namespace of its name.
pub fn is_one(cluster: &ClusterDeployment) -> bool {
    cluster.metadata.namespace == cluster.metadata.name
}

fn created(object: &impl Resource) -> Timestamp {
    let born = object.meta().creation_timestamp.as_ref();
    born.map_or(Timestamp::UNIX_EPOCH, |born| born.0)
}

fn count(number: Option<i32>) -> Option<usize> {
    number.map(|it| usize::try_from(it).unwrap_or(0))
}

fn is_yes(value: Option<&str>) -> bool {
    value.is_some_and(|it| ["true", "t", "1"].contains(&it.to_ascii_lowercase().as_str()))
}

fn view(pool: &ClusterPool, known: &Known<'_>) -> Pool {
    let spec = &pool.spec;
    let platform = Platform::of(spec);
    let hibernates = platform.is_some_and(|it| it.hibernates());
    let size = count(Some(spec.size)).unwrap_or(0);
    let listed = Listed::of(spec);
    let named = |it: &Option<api_types::reference::NamedRef>| {
        it.as_ref().and_then(|it| it.name.as_deref()).is_some_and(|it| !it.is_empty())
    };
    let wanted = [
        (Part::Namespace, true),
        (Part::InstallConfig, true),
        (Part::PullSecret, named(&spec.pull_secret_ref)),
        (Part::Credentials, platform.is_some_and(|it| it.credentials().is_some())),
        (Part::Certificates, platform.is_some_and(|it| it.certificates().is_some())),
        (Part::Customization, matches!(listed, Listed::Entries(_))),
        (Part::PoolCustomization, named(&spec.customization_ref)),
        (
            Part::MachinePool,
            spec.skip_machine_pools != Some(true) && platform.is_some_and(|it| it.has_workers()),
        ),
    ];
    Pool {
        namespace: pool.namespace().unwrap_or_default(),
        name: pool.name_any(),
        uid: pool.uid().unwrap_or_default(),
        at: pool.resource_version().unwrap_or_default(),
        deleting: pool.metadata.deletion_timestamp.is_some(),
        kept: pool.finalizers().iter().any(|it| it == names::hive::POOL_FINALIZER),
        listed,
        size,
        running: if hibernates { count(spec.running_count).unwrap_or(0) } else { size },
        max_size: count(spec.max_size),
        max_concurrent: count(spec.max_concurrent),
        hibernates,
        version: pool_version(spec),
        attempts: pool
            .annotation(names::ferrite::PROVISION_ATTEMPTS)
            .and_then(|it| it.trim().parse().ok())
            .filter(|it| *it > 0),
        parts: wanted.into_iter().filter(|(_, is)| *is).map(|(part, _)| part).collect(),
        status: pool.status.as_ref().map(stored).unwrap_or_default(),
        rival: known.rival.clone(),
    }
}

/// A stored status without its times.
fn stored(status: &ClusterPoolStatus) -> Status {
    let condition = |it: &ForeignCondition| {
        let condition = Condition {
            status: it.status.clone(),
            reason: it.reason.clone().unwrap_or_default(),
            message: it.message.clone().unwrap_or_default(),
        };
        (it.r#type.clone(), condition)
    };
    Status {
        size: count(Some(status.size)).unwrap_or(0),
        ready: count(Some(status.ready)).unwrap_or(0),
        standby: count(status.standby).unwrap_or(0),
        inventory: status
            .inventory
            .iter()
            .map(|(name, state)| (name.clone(), Entry::from(state)))
            .collect::<BTreeMap<_, _>>(),
        conditions: status.conditions.iter().map(condition).collect(),
    }
}

fn cluster(
    it: &ClusterDeployment,
    pool: &Pool,
    resume: Option<Duration>,
    now: Timestamp,
) -> (Cluster, Option<Duration>) {
    let conditions = it.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let state = it.status.as_ref().and_then(|it| it.power_state.as_deref()).unwrap_or_default();
    let installed = it.spec.installed == Some(true);
    let wanted = it.spec.power_state.as_deref();
    let stopped = condition::find(conditions, names::hive::CONDITION_PROVISION_STOPPED);
    let resuming = condition::find(conditions, names::hive::CONDITION_HIBERNATING)
        .filter(|it| it.reason.as_deref() == Some(names::hive::REASON_RESUMING))
        .filter(|_| installed && wanted == Some("Running"))
        .filter(|_| !["Running", "Hibernating"].contains(&state))
        .and_then(|it| it.last_transition_time.as_ref());
    let left = resume.zip(resuming).map(|(timeout, since)| {
        let passed = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
        timeout.saturating_sub(passed)
    });
    let reference = it.spec.cluster_pool_ref.as_ref();
    let marks = [names::hive::REMOVE_FROM_POOL, names::hive::REMOVE_CLAIMED_FROM_POOL];
    let cluster = Cluster {
        name: it.name_any(),
        uid: it.uid().unwrap_or_default(),
        at: it.resource_version().unwrap_or_default(),
        created: created(it),
        deleting: it.metadata.deletion_timestamp.is_some(),
        kept: it.finalizers().iter().any(|it| it == names::hive::INVENTORY_FINALIZER),
        kept_by_others: it.finalizers().iter().any(|it| it != names::hive::INVENTORY_FINALIZER),
        entry: reference.and_then(|it| it.customization_name()).map(str::to_owned),
        entry_version: it.annotation(names::ferrite::CUSTOMIZATION_VERSION).map(str::to_owned),
        pool_version: it.annotation(names::hive::POOL_SPEC_HASH).map(str::to_owned),
        claim: reference.and_then(|it| it.claim_name.clone()).filter(|it| !it.is_empty()),
        marked: marks.iter().any(|key| is_yes(it.annotation(key))),
        protected: is_yes(it.annotation(names::hive::PROTECTED_DELETE)),
        unverified: it.annotation(names::ferrite::LEASE_UNVERIFIED).is_some(),
        installed,
        stopped: stopped.filter(|it| it.is_true()).map(|it| {
            let words = [it.reason.as_deref(), it.message.as_deref()];
            let words: Vec<&str> =
                words.into_iter().flatten().filter(|it| !it.is_empty()).collect();
            if words.is_empty() { "provisioning stopped".to_owned() } else { words.join(": ") }
        }),
        stuck: left.is_some_and(|it| it.is_zero()),
        running: state == "Running" || installed && !pool.hibernates,
        asked_to_run: match wanted {
            Some("Running") => Some(true),
            Some("Hibernating") => Some(false),
            _ => None,
        },
    };
    (cluster, left.filter(|it| !it.is_zero()))
}

fn claim(it: &ClusterClaim) -> Claim {
    let conditions = it.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    Claim {
        name: it.name_any(),
        at: it.resource_version().unwrap_or_default(),
        created: created(it),
        deleting: it.metadata.deletion_timestamp.is_some(),
        cluster: it.spec.namespace.clone().filter(|it| !it.is_empty()),
        pending: condition::find(conditions, names::hive::CONDITION_PENDING)
            .filter(|it| it.is_true())
            .and_then(|it| it.reason.clone()),
    }
}
