//! What a watch has shown of a kind, by namespace and name.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};

use crate::engine::ObjectKey;
use crate::unread::Undecodable;
use crate::watch::{Watchable, Watched};

/// What a watch has shown of a kind, in the version in which that is served. It is behind the writes of everybody, also our own.
#[derive(Clone)]
pub struct Cache<K: Watchable> {
    /// Objects that can be decoded.
    pub store: Store<K>,
    /// Those that cannot be, which are not gone.
    pub broken: Undecodable,
    version: K::DynamicType,
}

impl<K: Watchable> Watched<K> {
    /// What it has shown, by namespace and name.
    pub fn cache(&self) -> Cache<K> {
        let (broken, version) = (self.undecodable.clone(), self.version.clone());
        Cache { store: self.store.clone(), broken, version }
    }
}

impl<K: Watchable> Cache<K> {
    /// What is in this store, where all objects can be decoded.
    pub fn of(store: Store<K>, version: K::DynamicType) -> Self {
        Self { store, broken: Undecodable::default(), version }
    }

    /// An object as it was last seen, if it can be decoded.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let named = ObjectRef::new_with(&key.name, self.version.clone());
        self.store.get(&if key.namespace.is_empty() { named } else { named.within(&key.namespace) })
    }

    /// The same by its names.
    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&ObjectKey::new(namespace, name))
    }

    /// Whether an object is there and cannot be decoded.
    pub fn is_broken(&self, key: &ObjectKey) -> bool {
        self.broken.get(Some(&key.namespace), &key.name).is_some()
    }

    /// The version in which an object was last seen.
    pub fn version(&self, key: &ObjectKey) -> Option<u64> {
        self.get(key)?.meta().resource_version.as_deref()?.parse().ok()
    }

    /// The metadata of an object, also of one that cannot be decoded.
    pub fn metadata(&self, key: &ObjectKey) -> Option<ObjectMeta> {
        let broken = || self.broken.get(Some(&key.namespace), &key.name).map(|it| it.metadata);
        self.get(key).map(|it| it.meta().clone()).or_else(broken)
    }

    /// Those of all objects of a namespace.
    pub fn metadata_of(&self, namespace: &str) -> impl Iterator<Item = ObjectMeta> + use<K> {
        let mut broken = self.broken.all();
        broken.retain(|it| it.metadata.namespace.as_deref() == Some(namespace));
        let decoded = self.of_namespace(namespace).map(|it| it.meta().clone());
        decoded.chain(broken.into_iter().map(|it| it.metadata))
    }

    /// An object for events, also one that is gone.
    pub fn reference(&self, key: &ObjectKey) -> ObjectReference {
        let found = self.get(key);
        let gone = || key.reference::<K>(&self.version);
        found.map_or_else(gone, |it| it.object_ref(&self.version))
    }

    /// All of a namespace.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = Arc<K>> + use<K> {
        let is_here = |it: &K| it.meta().namespace.as_deref() == Some(namespace);
        self.store.state_filter(is_here).into_iter()
    }
}
