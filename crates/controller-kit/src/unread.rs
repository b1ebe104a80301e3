//! Objects that cannot be decoded, and whose owners are still to be told.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::shared::Shared;

/// Objects of one kind that cannot be decoded, by namespace and name; absent from the store, which is not the same as gone.
#[derive(Clone, Default)]
pub struct Undecodable(Arc<Shared<BTreeMap<(String, String), Broken>>>);

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
        self.0.lock().get(&place(namespace, Some(name))).cloned()
    }

    /// Takes notice of one. Gives what was known of it.
    pub fn put(&self, broken: Broken) -> Option<Broken> {
        let it = &broken.metadata;
        self.0.lock().insert(place(it.namespace.as_deref(), it.name.as_deref()), broken)
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> Vec<Broken> {
        self.0.lock().values().cloned().collect()
    }

    /// It can be decoded, or is gone: whether it was one of them.
    pub(crate) fn remove(&self, namespace: &str, name: &str) -> bool {
        self.0.lock().remove(&place(Some(namespace), Some(name))).is_some()
    }

    pub(crate) fn retain(&self, stays: impl Fn(&Broken) -> bool) {
        self.0.lock().retain(|_, it| stays(it));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

fn place(namespace: Option<&str>, name: Option<&str>) -> (String, String) {
    (namespace.unwrap_or_default().to_owned(), name.unwrap_or_default().to_owned())
}

/// The objects that cannot be decoded of which the owners were told, by UID and version.
#[derive(Default)]
pub(crate) struct Complaints(HashSet<(Option<String>, Option<String>)>);

impl Complaints {
    /// Those whose owners are to be told now. What can be decoded again or is gone is forgotten.
    pub(crate) fn news(&mut self, broken: &[Undecodable]) -> Vec<Broken> {
        let version = |it: &Broken| (it.object.uid.clone(), it.object.resource_version.clone());
        let mut news: Vec<Broken> = broken.iter().flat_map(Undecodable::all).collect();
        let before = std::mem::replace(&mut self.0, news.iter().map(version).collect());
        news.retain(|it| !before.contains(&version(it)));
        news
    }
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
            broken.put(Broken { object, metadata, problem });
        };
        let mut complaints = Complaints::default();
        let mut news = || complaints.news(std::slice::from_ref(&broken)).len();
        assert_eq!(news(), 0);
        note("1");
        assert_eq!((news(), news()), (1, 0));
        note("2");
        assert_eq!((news(), news()), (1, 0));
        broken.retain(|_| false);
        assert_eq!(news(), 0);
        assert!(complaints.0.is_empty());
    }
}
