//! Keys of namespaced objects.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;

/// Namespace and name of an object, where all keys are of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object.
    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }

    /// As a store knows it.
    pub fn in_store<K: Resource<DynamicType: Default>>(&self) -> ObjectRef<K> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }

    /// For events.
    pub fn reference<K: Resource<DynamicType: Clone>>(
        &self,
        version: &K::DynamicType,
    ) -> ObjectReference {
        ObjectRef::<K>::new_with(&self.name, version.clone()).within(&self.namespace).into()
    }
}
