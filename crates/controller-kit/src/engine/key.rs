//! Keys of namespaced objects.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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
    /// A key of two names.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The key of an object.
    pub fn of(object: &impl Resource) -> Self {
        Self::of_meta(object.meta())
    }

    /// The key of an object of which only the metadata are known.
    pub fn of_meta(meta: &ObjectMeta) -> Self {
        let [namespace, name] = [&meta.namespace, &meta.name].map(Option::as_deref);
        Self::new(namespace.unwrap_or_default(), name.unwrap_or_default())
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

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
