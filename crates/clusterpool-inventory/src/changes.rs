//! Whom a change of an object concerns.

use std::collections::BTreeSet;

use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool,
};
use controller_kit::engine::Class;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt as _;

use crate::access;
use crate::context::Context;
use crate::index::{all_in, holders, key_in, named, owner_of};
use crate::model::Key;
use crate::seen::Listed;

impl Context {
    /// A pool appeared, changed or went.
    pub fn pool_changed(&self, changed: &ClusterPool) {
        let key = Key::of(changed);
        let now = self.caches.pools.get(&key);
        let concerned = self.index.with(|index| {
            let was_there = index.pools.of(&all_in(&key.namespace)).any(|it| *it == key);
            index.pools.put(&key, now.iter().map(|_| all_in(&key.namespace)));
            let listed = now.as_ref().map(|it| Listed::of(&it.spec)).unwrap_or_default();
            let entries = listed.names().iter().map(|name| key_in(&key.namespace, name));
            let touched = index.lists.put(&key, entries);
            let mut concerned: BTreeSet<Key> =
                touched.iter().flat_map(|entry| index.lists.of(entry)).cloned().collect();
            // Whether a pool is there decides about the leases that name it.
            if was_there != now.is_some() {
                concerned.extend(index.pools.of(&all_in(&key.namespace)).cloned());
            }
            // What it listed may be nobody's now.
            if was_there && now.is_none() {
                concerned.insert(all_in(&key.namespace));
            }
            concerned.remove(&key);
            concerned
        });
        self.wake(concerned);
        match now.and_then(|it| it.resource_version()) {
            Some(version) => drop(self.lookout.changed(&key, &version, Class::Normal)),
            None => self.lookout.gone(key),
        }
    }

    /// A customization appeared, changed or went.
    pub fn entry_changed(&self, changed: &ClusterDeploymentCustomization) {
        let key = Key::of(changed);
        let now = self.caches.customizations.get(&key);
        self.wake(self.index.with(|index| {
            let mut concerned = index.concerned_by(&key);
            let all = all_in(&key.namespace);
            index.customizations.keep(&key, now.iter().map(|it| (all.clone(), it.clone())));
            let pools = now.iter().flat_map(|it| holders(it));
            index.leases.put(&key, pools.map(|it| key_in(&key.namespace, it)));
            index.named.put(&key, now.iter().flat_map(|it| named(it)));
            concerned.extend(index.concerned_by(&key));
            concerned
        }));
    }

    /// The same of one that cannot be decoded. If it never could be, it was never a change for its pools.
    pub fn entry_broke(&self, entry: &Key) {
        let listing = self.index.with(|index| index.lists.of(entry).cloned().collect::<Vec<_>>());
        self.wake(listing);
    }

    /// A cluster appeared, changed or went.
    pub fn cluster_changed(&self, changed: &ClusterDeployment) {
        let key = Key::of(changed);
        let now = self.caches.clusters.get(&key);
        self.wake(self.index.with(|index| index.put_cluster(&key, now)));
    }

    /// A claim appeared, changed or went.
    pub fn claim_changed(&self, changed: &ClusterClaim) {
        let key = Key::of(changed);
        let now = self.caches.claims.get(&key);
        let pool = now.map(|it| key_in(&key.namespace, &it.spec.cluster_pool_name));
        // Also for a pool that never was: the claim says so.
        self.wake(self.index.with(|index| index.claims.put(&key, pool)));
    }

    /// The namespace of a cluster appeared, changed or went.
    pub fn namespace_changed(&self, changed: &Namespace) {
        let key = Key::of(changed);
        let now = self.caches.namespaces.get(&key);
        let pool =
            now.and_then(|it| owner_of(&it).map(|(namespace, name, _)| key_in(namespace, name)));
        self.wake(self.index.with(|index| index.namespaces.put(&key, pool)));
    }

    /// A role binding appeared, changed or went.
    pub fn binding_changed(&self, changed: &RoleBinding) {
        let key = Key::of(changed);
        let now = self.caches.bindings.get(&key);
        let is_admins = now.is_some_and(|it| access::is_admins(&it));
        let concerned = self.index.with(|index| {
            let touched = index.admins.put(&key, is_admins.then(|| all_in(&key.namespace)));
            let pools = touched.iter().flat_map(|namespace| index.pools.of(namespace));
            pools.cloned().collect::<Vec<_>>()
        });
        self.wake(concerned);
    }
}
