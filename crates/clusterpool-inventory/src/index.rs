//! What belongs to what, so that a pass looks at its own pool's objects only, and a change wakes those whom it concerns.

use std::collections::{BTreeSet, HashMap};

/// Namespace and name.
pub type Key = (String, String);

/// Which groups objects are in, and which objects a group has.
#[derive(Default)]
pub struct Links {
    members: HashMap<Key, BTreeSet<Key>>,
    groups: HashMap<Key, BTreeSet<Key>>,
}

impl Links {
    /// Puts an object into these groups and no others. Returns the groups that it was in or is in now.
    pub fn put(&mut self, object: &Key, groups: impl IntoIterator<Item = Key>) -> BTreeSet<Key> {
        let now: BTreeSet<Key> = groups.into_iter().collect();
        let before = if now.is_empty() {
            self.groups.remove(object)
        } else {
            self.groups.insert(object.clone(), now.clone())
        };
        let before = before.unwrap_or_default();
        for group in before.difference(&now) {
            if let Some(members) = self.members.get_mut(group) {
                members.remove(object);
                if members.is_empty() {
                    self.members.remove(group);
                }
            }
        }
        for group in now.difference(&before) {
            self.members.entry(group.clone()).or_default().insert(object.clone());
        }
        before.union(&now).cloned().collect()
    }

    /// The objects of a group.
    pub fn of<'a>(&'a self, group: &Key) -> impl Iterator<Item = &'a Key> + use<'a> {
        self.members.get(group).into_iter().flatten()
    }

    /// Whether an object is in a group.
    pub fn is_in(&self, object: &Key, group: &Key) -> bool {
        self.groups.get(object).is_some_and(|it| it.contains(group))
    }

    /// Whether a group has an object.
    pub fn has(&self, group: &Key) -> bool {
        self.members.contains_key(group)
    }
}

/// All links.
#[derive(Default)]
pub struct Index {
    /// Clusters by pool.
    pub clusters: Links,
    /// Clusters by entry, over all pools.
    pub users: Links,
    /// Claims by pool.
    pub claims: Links,
    /// Clusters' namespaces by pool.
    pub namespaces: Links,
    /// Pools by the entries that they list.
    pub lists: Links,
    /// Customizations by the pools that hold them: see [`crate::observe::holders`].
    pub leases: Links,
    /// Customizations by namespace; the name is left empty.
    pub customizations: Links,
    /// Pools by namespace; the name is left empty.
    pub pools: Links,
    /// Bindings of the administrators' role by namespace; the name is left empty.
    pub admins: Links,
}

/// The group of all objects of a namespace.
pub fn all_in(namespace: &str) -> Key {
    (namespace.to_owned(), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn an_object_that_changes_its_group_leaves_the_one_before() {
        let mut links = Links::default();
        links.put(&key("c"), [key("a")]);
        let touched = links.put(&key("c"), [key("b")]);
        assert_eq!(touched.len(), 2);
        assert!(!links.has(&key("a")));
        assert_eq!(links.of(&key("b")).collect::<Vec<_>>(), [&key("c")]);
    }

    #[test]
    fn an_object_that_is_gone_leaves_nothing_behind() {
        let mut links = Links::default();
        links.put(&key("c"), [key("a"), key("b")]);
        assert_eq!(links.put(&key("c"), []).len(), 2);
        assert!(links.members.is_empty() && links.groups.is_empty());
    }
}
