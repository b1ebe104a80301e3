//! All reads: a snapshot of one pool from the caches, and what the API server is asked for itself.

mod entries;
mod unread;
mod views;

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, pools_finalizer,
};
use api_types::names;
use api_types::time::until;
use controller_kit::api_error::unless_gone;
use controller_kit::watch::Undecodable;
use k8s_openapi::api::core::v1::Namespace as KubeNamespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt as _};

use self::entries::lease;
pub use self::entries::{holders, is_releasing, leasing_pool, named, version};
use self::unread::{broken_clusters, strangers, unread};
use self::views::{claim, cluster, created, hives_words, resume_timeout, view};
use crate::config::Policy;
use crate::error::Error;
use crate::index::{Index, Key, all_in};
use crate::make::pool_of;
use crate::materials::Materials;
use crate::patch;
use crate::platform::Platform;
use crate::seen::{Cluster, Customization, Lease, Namespace, Observed, Pool, Refusal};
use crate::trial::Trial;

/// For how long clusters that Hive does not begin to install are left alone at least.
const LEAST: Duration = Duration::from_secs(5);

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
    /// Clusters that cannot be decoded, which are not gone.
    pub broken_clusters: Undecodable,
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
    let found = unless_gone(api.get_metadata(&key.1).await);
    let found = found.map_err(Error::api("get a ClusterPool"))?;
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
    /// Clusters without an entry that this process began and did not see yet.
    pub begun: &'a BTreeSet<String>,
    /// Names whose namespaces this process found to be somebody else's.
    pub taken: &'a BTreeSet<String>,
    /// Entries whose clusters somebody refused.
    pub turned_down: &'a BTreeMap<String, Refusal>,
    /// When clusters that Hive does not begin to install were looked after.
    pub tended: &'a BTreeMap<String, Timestamp>,
    /// The time.
    pub now: Timestamp,
}

impl<'a> Known<'a> {
    /// What a process knows that has done nothing for the pool yet.
    pub fn at_first(policy: &'a Policy, materials: &'a Materials, now: Timestamp) -> Self {
        static NOBODY: BTreeSet<String> = BTreeSet::new();
        static NONE_REFUSED: BTreeMap<String, Refusal> = BTreeMap::new();
        static NONE_TENDED: BTreeMap<String, Timestamp> = BTreeMap::new();
        Self {
            policy,
            materials,
            rival: None,
            begun: &NOBODY,
            taken: &NOBODY,
            turned_down: &NONE_REFUSED,
            tended: &NONE_TENDED,
            now,
        }
    }
}

/// What the pass before left. All of it can be forgotten: it saves work.
#[derive(Default)]
pub struct Last {
    /// What it saw; what was not written since is taken from here.
    pub seen: Observed,
    /// The patches that were tried, by customization.
    pub trials: HashMap<String, Trial>,
    /// The template that they were tried with, if there was one.
    tried_with: Option<u64>,
    /// Clusters that were seen and are gone, as long as their namespaces stand.
    pub vacated: BTreeSet<String>,
}

/// What was seen before, in the order of the names, from which it is taken in that order.
struct Same<K> {
    left: std::iter::Peekable<std::vec::IntoIter<K>>,
    name: fn(&K) -> &String,
    /// Names of those that nobody asked for.
    gone: Vec<String>,
}

impl<K> Same<K> {
    fn of(before: Vec<K>, name: fn(&K) -> &String) -> Self {
        Self { left: before.into_iter().peekable(), name, gone: Vec::new() }
    }

    fn take(&mut self, object: &impl Resource) -> Option<K> {
        let wanted = object.meta().name.as_ref()?;
        while let Some(other) = self.left.next_if(|it| (self.name)(it) < wanted) {
            self.gone.push((self.name)(&other).clone());
        }
        self.left.next_if(|it| (self.name)(it) == wanted)
    }

    /// Names of those that are not there any more, once all that are there were asked for.
    fn gone(self) -> impl Iterator<Item = String> {
        let name = self.name;
        self.gone.into_iter().chain(self.left.map(move |it| name(&it).clone()))
    }
}

fn is_at(object: &impl Resource, version: &str) -> bool {
    object.meta().resource_version.as_deref() == Some(version)
}

/// A snapshot of a pool, which may be gone, and when it has to be looked at again although nothing changes.
pub fn observe(
    stores: &Stores,
    index: &Index,
    key: &Key,
    known: &Known<'_>,
    last: &mut Last,
) -> (Observed, Option<Duration>) {
    let before = std::mem::take(&mut last.seen);
    let Last { trials, vacated, tried_with: last_tried, .. } = last;
    let pool = cached(&stores.pools, key);
    let mut due = None;
    let was = (before.pool.hibernates, before.pool.at.clone());
    let mut seen = Observed {
        pool: match &pool {
            Some(pool) if pool.metadata.resource_version.as_ref() == Some(&was.1) => {
                Pool { rival: known.rival.clone(), ..before.pool }
            }
            Some(pool) => view(pool, known),
            None => Pool {
                namespace: key.0.clone(),
                name: key.1.clone(),
                deleting: true,
                absent: true,
                ..Pool::default()
            },
        },
        taken: known.taken.clone(),
        turned_down: known.turned_down.clone(),
        missing: known.materials.missing.clone(),
        ..Observed::default()
    };
    let resume = pool.as_ref().and_then(|it| resume_timeout(&it.spec));
    // What can change without the cluster's being written is left to be read anew.
    let is_same = resume.is_none() && was.0 == seen.pool.hibernates;
    let mut same = Same::of(before.clusters, |it| &it.name);
    seen.clusters = index
        .clusters
        .kept(key)
        .map(|it| {
            let old = same.take(&**it);
            if let Some(cluster) = old.filter(|old| is_same && is_at(&**it, &old.at)) {
                return cluster;
            }
            let (cluster, again) = cluster(it, &seen.pool, resume, known.now);
            due = due.into_iter().chain(again).min();
            cluster
        })
        .collect();
    vacated.extend(same.gone());
    let not_begun = |it: &&Cluster| it.is_installing() && !it.unverified && !it.begun;
    for it in seen.clusters.iter().filter(not_begun) {
        let left = patience(known, it);
        // Told as long as it lasts, however often it is looked after.
        if until(it.created, known.now) >= grace(known) {
            let found = cached(&stores.clusters, &(it.name.clone(), it.name.clone()));
            let words = found.map(|it| hives_words(&it)).unwrap_or_default();
            seen.not_begun.insert(it.name.clone(), words);
        }
        if left.is_zero() {
            seen.idle.insert(it.name.clone());
        } else {
            due = due.into_iter().chain([left]).min();
        }
    }
    seen.claims = index
        .claims
        .of(key)
        .filter_map(|it| cached(&stores.claims, it))
        .map(|it| claim(&it))
        .collect();
    // Where the pool is there, only those matter that have no cluster.
    let with_cluster: HashSet<&str> = if seen.pool.absent {
        HashSet::new()
    } else {
        seen.clusters.iter().map(|it| it.name.as_str()).collect()
    };
    vacated.retain(|name| {
        let namespace = (String::new(), name.clone());
        index.namespaces.is_in(&namespace, key) && !with_cluster.contains(name.as_str())
    });
    let empty: Vec<&Key> =
        index.namespaces.of(key).filter(|it| !with_cluster.contains(it.1.as_str())).collect();
    let strangers = if empty.is_empty() { HashSet::new() } else { strangers(stores, index, key) };
    let (lived_in, empty): (Vec<&Key>, Vec<&Key>) =
        empty.into_iter().partition(|it| strangers.contains(&it.1));
    seen.unread = unread(broken_clusters(stores), index, key);
    // Nothing of the pool changes when a stranger's cluster goes.
    let later = lived_in.first().map(|_| grace(known));
    due = due.into_iter().chain(later).min();
    seen.namespaces = empty
        .into_iter()
        .filter_map(|it| cached(&stores.namespaces, it))
        .map(|it| Namespace {
            name: it.name_any(),
            uid: it.uid().unwrap_or_default(),
            pool_uid: owner_of(&it).map(|(_, _, uid)| uid.to_owned()).unwrap_or_default(),
            created: created(&*it),
            deleting: it.metadata.deletion_timestamp.is_some(),
            begun: known.begun.contains(&it.name_any()),
            vacated: pool.is_some() && vacated.contains(&it.name_any()),
        })
        .collect();
    let names = seen.pool.listed.names();
    // Of a thousand names, for what changed.
    let listed: LazyCell<HashSet<&str>, _> =
        LazyCell::new(|| names.iter().map(String::as_str).collect());
    if trials.len() > names.len() {
        trials.retain(|name, _| listed.contains(name.as_str()));
    }
    let own = seen.clusters.iter().filter(|it| it.entry.is_some()).count();
    let everything = all_in(&key.0);
    let about = About {
        stores,
        index,
        key,
        known,
        is_there: pool.is_some(),
        own: &with_cluster,
        has_neighbours: index.pools.of(&everything).any(|it| it != key),
        has_strangers: index.users.count(&everything) > own,
    };
    // What is refused depends on the patches, the template and the pool.
    let tried_with = known.materials.config.as_ref().map(|_| known.materials.config_hash);
    let is_tried = tried_with.is_some() && *last_tried == tried_with && seen.pool.at == was.1;
    *last_tried = tried_with;
    let hives_finalizer = pools_finalizer(&key.1);
    let mut same = Same::of(before.customizations, |it| &it.name);
    for found in index.customizations.kept(&everything) {
        let old = same.take(&**found).filter(|old| is_at(&**found, &old.at));
        let by_hive = match &old {
            Some(old) => before.kept_by_hive.contains(&old.name),
            None => found.finalizers().contains(&hives_finalizer),
        };
        let refused = old.as_ref().filter(|_| is_tried).map(|it| it.refused.clone());
        let mut it = about.customization(found, old);
        if by_hive {
            seen.kept_by_hive.insert(it.name.clone());
        }
        it.refused = refused.unwrap_or_else(|| {
            let is_wanted = listed.contains(it.name.as_str()) && !it.deleting;
            is_wanted.then(|| about.tried(found, &it.version, &seen.pool, trials)).flatten()
        });
        seen.customizations.push(it);
    }
    for broken in stores.broken_customizations.all() {
        let name = broken.object.name.clone().unwrap_or_default();
        if broken.object.namespace.as_ref() != Some(&key.0) || !listed.contains(name.as_str()) {
            continue;
        }
        let user = seen.clusters.iter().find(|it| it.entry.as_ref() == Some(&name));
        let refused = format!("it cannot be read: {}; correct it", broken.problem);
        if let Some(user) = user {
            seen.pool.remarks.push(format!("{name} is used by {}, and {refused}", user.name));
        }
        // What is in it cannot be told, so it counts as what it was.
        let known = seen.pool.status.inventory.get(&name).and_then(|it| it.version.clone());
        let version = user.and_then(|it| it.entry_version.clone()).or(known);
        seen.customizations.push(Customization {
            at: broken.object.resource_version.unwrap_or_default(),
            version: version.or(broken.object.uid).unwrap_or_default(),
            deleting: false,
            kept: true,
            // Who has it cannot be read. It is not used, and not taken away either.
            lease: user.map(|it| Lease {
                cluster: Some(it.name.clone()),
                pool: Some(key.1.clone()),
                pool_exists: true,
                releasing: false,
                whole: true,
            }),
            others: about.others(&(key.0.clone(), name.clone())),
            listed_elsewhere: true,
            refused: Some(refused),
            name,
        });
    }
    (seen, due)
}

/// For how long Hive may still take to begin with a cluster, or with one that was looked after.
fn patience(known: &Known<'_>, cluster: &Cluster) -> Duration {
    let since = known.tended.get(&cluster.name).copied().unwrap_or(cluster.created);
    let passed = until(since, known.now);
    grace(known).saturating_sub(passed)
}

fn grace(known: &Known<'_>) -> Duration {
    known.policy.namespace_grace.max(LEAST)
}

/// Whether a cluster may occupy what its entry stands for.
fn is_live(it: &ClusterDeployment) -> bool {
    it.metadata.deletion_timestamp.is_none()
        || it.finalizers().iter().any(|it| it != names::hive::INVENTORY_FINALIZER)
}

struct About<'a> {
    stores: &'a Stores,
    index: &'a Index,
    key: &'a Key,
    known: &'a Known<'a>,
    is_there: bool,
    /// Names of its clusters, where it is there.
    own: &'a HashSet<&'a str>,
    /// Whether there are other pools in its namespace.
    has_neighbours: bool,
    /// Whether clusters that are not its own were made from entries of its namespace.
    has_strangers: bool,
}

impl About<'_> {
    fn pool_exists(&self, name: &str) -> bool {
        if name == self.key.1 && self.is_there {
            return true;
        }
        let key = (self.key.0.clone(), name.to_owned());
        cached(&self.stores.pools, &key).is_some()
            || self.stores.broken_pools.get(Some(&key.0), name).is_some()
    }

    /// Live clusters that were made from the entry and are not this pool's.
    fn others(&self, entry: &Key) -> Vec<String> {
        let users = self.index.users.of(entry);
        users
            .filter(|it| !self.index.clusters.is_in(it, self.key))
            .filter_map(|it| cached(&self.stores.clusters, it))
            .filter(|it| is_live(it))
            .map(|it| it.name_any())
            .collect()
    }

    /// A customization; what it says of itself is taken from before, if it was not written since.
    fn customization(
        &self,
        it: &ClusterDeploymentCustomization,
        before: Option<Customization>,
    ) -> Customization {
        let mut seen = before.unwrap_or_else(|| Customization {
            at: it.resource_version().unwrap_or_default(),
            version: version(it),
            deleting: it.metadata.deletion_timestamp.is_some(),
            kept: it.finalizers().iter().any(|it| it == names::hive::LEASE_FINALIZER),
            lease: lease(it),
            others: Vec::new(),
            listed_elsewhere: false,
            refused: None,
            name: it.name_any(),
        });
        if let Some(lease) = &mut seen.lease {
            lease.pool_exists = lease.pool.as_deref().is_some_and(|it| self.pool_exists(it));
        }
        seen.others.clear();
        if self.has_strangers {
            seen.others = self.others(&(self.key.0.clone(), seen.name.clone()));
        }
        if let Some(stranger) = self.stranger(it)
            && !seen.others.contains(&stranger)
        {
            seen.others.push(stranger);
        }
        seen.listed_elsewhere = self.has_neighbours && self.is_listed_elsewhere(&seen.name);
        seen
    }

    /// The cluster that the lease names, where that is there and not this pool's, whoever made it and from what.
    fn stranger(&self, it: &ClusterDeploymentCustomization) -> Option<String> {
        let reference = it.status.as_ref()?.cluster_deployment_ref.as_ref()?;
        let name = it.leased_by()?;
        if self.own.contains(name) && reference.namespace.as_deref().is_none_or(|it| it == name) {
            return None;
        }
        named(it).find(|place| self.is_strange(place)).map(|place| place.1)
    }

    fn is_strange(&self, place: &Key) -> bool {
        if place.0 == place.1 && self.own.contains(place.1.as_str()) {
            return false;
        }
        let Some(found) = cached(&self.stores.clusters, place) else {
            // One that cannot be read, in a namespace of the pool, may be its own.
            let is_here = self.index.namespaces.is_in(&(String::new(), place.0.clone()), self.key);
            return !is_here && self.stores.broken_clusters.get(Some(&place.0), &place.1).is_some();
        };
        // One that is new may be in the cache, and not yet among the pool's.
        let is_own = is_one(&found) && pool_key(&found).as_ref() == Some(self.key);
        !is_own && is_live(&found)
    }

    fn is_listed_elsewhere(&self, entry: &str) -> bool {
        let entry = (self.key.0.clone(), entry.to_owned());
        let mut lists = self.index.lists.of(&entry).filter(|pool| *pool != self.key);
        lists.any(|pool| {
            let pool = cached(&self.stores.pools, pool);
            pool.is_some_and(|it| it.metadata.deletion_timestamp.is_none())
        })
    }

    /// Why the patches cannot be used, tried once for each version of them and of the template.
    fn tried(
        &self,
        it: &ClusterDeploymentCustomization,
        version: &str,
        pool: &Pool,
        trials: &mut HashMap<String, Trial>,
    ) -> Option<String> {
        let materials = self.known.materials;
        let name = it.metadata.name.as_deref().unwrap_or_default();
        let Some(config) = &materials.config else {
            // What comes of it once there is one is news.
            trials.entry(name.to_owned()).or_default();
            return None;
        };
        let before = trials.get(name);
        if let Some(same) = before.filter(|it| it.is_of(version, materials.config_hash)) {
            return same.refused().cloned();
        }
        let of = cached(&self.stores.pools, self.key);
        let spec = of.as_ref().map(|it| &it.spec);
        let domain = spec.map(|it| it.base_domain.as_str()).unwrap_or_default();
        let platform = spec.and_then(Platform::of).and_then(|it| it.in_config());
        let patches = &it.spec.install_config_patches;
        let rules = self.known.policy.rules;
        let tried = patch::install_config(config, &pool.name, domain, platform, patches, rules);
        let trial = Trial::new(version, materials.config_hash, tried, before);
        let refused = trial.refused().cloned();
        trials.insert(name.to_owned(), trial);
        refused
    }
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

/// Namespace, name and uid of the pool that a namespace was made for.
pub fn owner_of(namespace: &KubeNamespace) -> Option<(&str, &str, &str)> {
    pool_of(namespace.annotations().get(names::ferrite::POOL_OWNER)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_seen_before_is_taken_by_name_and_version() {
        let of = |name: &str, version: &str| -> KubeNamespace {
            serde_json::from_value(
                json!({ "metadata": { "name": name, "resourceVersion": version } }),
            )
            .unwrap()
        };
        let before = ["a", "c", "d"].map(str::to_owned).to_vec();
        let mut same = Same::of(before.clone(), |it| it);
        let found: Vec<_> = ["b", "c", "d", "e"].map(|it| same.take(&of(it, "1"))).to_vec();
        assert_eq!(found, [None, Some("c".to_owned()), Some("d".to_owned()), None]);
        assert_eq!(same.gone().collect::<Vec<_>>(), ["a"]);
        let mut same = Same::of(before, |it| it);
        assert!(same.take(&of("c", "1")).is_some());
        assert_eq!(same.gone().collect::<Vec<_>>(), ["a", "d"]);
        assert!(is_at(&of("a", "1"), "1") && !is_at(&of("a", "2"), "1"));
    }
}
