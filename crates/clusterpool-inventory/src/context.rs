//! The state that all passes share: caches, index, policy and metrics.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use api_types::capi::is_watched;
use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool,
};
use controller_kit::Kit;
use controller_kit::cache::Cache;
use controller_kit::engine::{Class, Lookout, Shared};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;

use crate::index::Index;
use crate::metrics::Metrics;
use crate::model::{CONTESTED, Key, Memory, Object};
use crate::seen::Listed;
use crate::settings::{Policy, Pools};
use crate::text;

/// The state that all passes share.
pub struct Context {
    /// Handles of the process.
    pub kit: Kit,
    /// How decisions are made.
    pub policy: Policy,
    /// The metrics of this controller.
    pub metrics: Metrics,
    /// The queue of pools.
    pub lookout: Lookout<Key>,
    /// The links between objects.
    pub index: Shared<Index>,
    /// The start of the process: a write of Hive's controller before it does not count.
    pub started: Timestamp,
    /// The objects that the watches have shown.
    pub caches: Caches,
}

/// The objects that the watches have shown. They are behind the writes of everybody, also our own.
pub struct Caches {
    /// Pools.
    pub pools: Cache<ClusterPool>,
    /// Customizations.
    pub customizations: Cache<ClusterDeploymentCustomization>,
    /// Clusters of all namespaces.
    pub clusters: Cache<ClusterDeployment>,
    /// Claims.
    pub claims: Cache<ClusterClaim>,
    /// Namespaces that were made for clusters.
    pub namespaces: Cache<Namespace>,
    /// Role bindings of all namespaces.
    pub bindings: Cache<RoleBinding>,
}

impl Caches {
    /// Which version of an object there is.
    pub fn version(&self, object: &Object) -> Option<u64> {
        match object {
            Object::Pool(key) => self.pools.version(key),
            Object::Cluster(key) => self.clusters.version(key),
            Object::Customization(key) => self.customizations.version(key),
            Object::Claim(key) => self.claims.version(key),
            Object::Namespace(key) => self.namespaces.version(key),
        }
    }
}

impl Context {
    /// Every pool that there is, and those that are gone, as long as something may be left of them.
    pub fn known(&self) -> BTreeSet<Key> {
        let mut keys = self.index.with(|index| index.pools_with_something());
        keys.extend(self.caches.pools.store.state().iter().map(|it| Key::of(&**it)));
        keys.retain(|key| self.is_here(key));
        keys
    }

    /// Whether a pool is of this process' namespaces. Clusters are seen everywhere: one of another process' is not gone
    /// because it is not seen here.
    fn is_here(&self, pool: &Key) -> bool {
        let ours = &self.kit.config.namespaces;
        ours.is_empty() || ours.contains(&pool.namespace)
    }

    /// Enqueues these pools, also deleted ones.
    pub fn wake(&self, pools: impl IntoIterator<Item = Key>) {
        for key in pools.into_iter().filter(|it| self.is_here(it)) {
            self.lookout.enqueue(key, Class::Normal);
        }
    }

    /// Whether a pool is ours to decide about, or what is left of one that is gone.
    pub fn is_ours(&self, key: &Key, pool: Option<&ClusterPool>) -> bool {
        let filter = self.kit.config.watch_filter.as_deref();
        if pool.is_some_and(|it| !is_watched(&it.metadata, filter)) {
            return false;
        }
        let has_inventory = |it: &ClusterPool| {
            Listed::of(&it.spec) != Listed::Nothing
                || it.status.as_ref().is_some_and(|it| !it.inventory.is_empty())
        };
        self.policy.pools == Pools::All
            || pool.is_some_and(has_inventory)
            || self.index.with(|index| index.has_of_ours(key, pool))
    }

    /// Why Hive's controller counts as working on the pool, and for how long that will be so.
    pub fn rival(&self, memory: &mut Memory, now: Timestamp) -> Option<(String, Duration)> {
        let (since, left) = memory.contest(self.started, now, Instant::now())?;
        Some((text::contested(since, CONTESTED), left))
    }
}
