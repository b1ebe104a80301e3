//! Objects that cannot be decoded, and whose owners are still to be told.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::shared::Shared;

/// Objects of one kind that cannot be decoded; absent from the store, which is not the same as gone.
#[derive(Clone, Default)]
pub struct Undecodable(Arc<Shared<ByPlace>>);

/// By namespace and name, and whether their owners were told.
type ByPlace = BTreeMap<(String, String), (Broken, bool)>;

/// An object that cannot be decoded.
#[derive(Clone, Debug)]
pub struct Broken {
    /// For events.
    pub object: ObjectReference,
    /// What can be read of it.
    pub metadata: ObjectMeta,
    /// Which field is wrong and how.
    pub problem: String,
}

impl Broken {
    /// What its owner is told.
    pub fn complaint(&self) -> String {
        format!("This object cannot be read and is ignored until it is corrected: {}", self.problem)
    }
}

impl Undecodable {
    /// The problem of this object, if it has one.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Broken> {
        self.0.lock().get(&place(namespace, Some(name))).map(|(it, _)| it.clone())
    }

    /// Takes notice of one. Says whether this version of it was not known.
    pub fn put(&self, broken: Broken) -> bool {
        let (mut all, it) = (self.0.lock(), &broken.metadata);
        let place = place(it.namespace.as_deref(), it.name.as_deref());
        let version = |it: &Broken| (it.object.uid.clone(), it.object.resource_version.clone());
        let same = all.get(&place).filter(|(known, _)| version(known) == version(&broken));
        let is_told = same.map(|(_, is_told)| *is_told);
        all.insert(place, (broken, is_told.unwrap_or_default()));
        is_told.is_none()
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> Vec<Broken> {
        self.0.lock().values().map(|(it, _)| it.clone()).collect()
    }

    /// Those whose owners are to be told now, which counts as done: once for each version.
    pub(crate) fn news(&self) -> Vec<Broken> {
        let mut all = self.0.lock();
        let news = all.values_mut().filter(|(_, is_told)| !*is_told);
        let told = news.map(|(it, is_told)| {
            *is_told = true;
            it.clone()
        });
        told.collect()
    }

    /// It can be decoded, or is gone: whether it was one of them.
    pub(crate) fn remove(&self, namespace: &str, name: &str) -> bool {
        self.0.lock().remove(&place(Some(namespace), Some(name))).is_some()
    }

    pub(crate) fn retain(&self, stays: impl Fn(&Broken) -> bool) {
        self.0.lock().retain(|_, (it, _)| stays(it));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

fn place(namespace: Option<&str>, name: Option<&str>) -> (String, String) {
    (namespace.unwrap_or_default().to_owned(), name.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_an_object_is_told_once_for_each_version_and_it_is_forgotten_when_it_is_gone() {
        let broken = Undecodable::default();
        let note = |version: &str| {
            let object = ObjectReference {
                uid: Some("u".to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectReference::default()
            };
            let (metadata, problem) = (ObjectMeta::default(), "it broke".to_owned());
            broken.put(Broken { object, metadata, problem })
        };
        let news = || broken.news().len();
        assert_eq!(news(), 0);
        assert!(note("1"));
        assert_eq!((news(), news()), (1, 0));
        assert!(!note("1"), "a new list shows it once more");
        assert_eq!(news(), 0, "which is no news to its owner");
        assert!(note("2"));
        assert_eq!((news(), news()), (1, 0));
        broken.retain(|_| false);
        assert_eq!((news(), broken.len()), (0, 0));
        assert!(note("2"), "it broke again");
        assert_eq!(news(), 1);
    }
}
