//! Clusters that are not known as the pool's: those of others, and those that cannot be decoded.

use std::collections::HashSet;

use crate::context::Caches;
use crate::index::{Index, all_in, key_in, leasing_pool};
use crate::model::Key;

/// Namespaces that a cluster which is not of the pool lives in, or one that cannot be decoded: whoever made them, they are
/// in use.
pub(super) fn strangers(caches: &Caches, index: &Index, key: &Key) -> HashSet<String> {
    let all = caches.clusters.store.state();
    let strangers = all.iter().map(|it| Key::of(&**it)).filter(|it| !index.clusters.is_in(it, key));
    strangers.chain(broken_clusters(caches)).map(|it| it.namespace).collect()
}

/// Namespace and name of all clusters that cannot be decoded.
pub(super) fn broken_clusters(caches: &Caches) -> impl Iterator<Item = Key> + use<> {
    let all = caches.clusters.broken.all().into_iter();
    all.filter_map(|it| Some(Key { namespace: it.object.namespace?, name: it.object.name? }))
}

/// Namespaces of those of them that may be the pool's: one that was made for it, or the one that a lease of the pool
/// names. On a namespace that Hive's own controller made, nothing says whose it is.
pub(super) fn unread(broken: impl Iterator<Item = Key>, index: &Index, key: &Key) -> Vec<String> {
    let everything = all_in(&key.namespace);
    let is_leased = |place: &Key| {
        let mut named =
            index.named.of(place).filter_map(|it| index.customizations.one(&everything, it));
        named.any(|it| leasing_pool(it) == Some(key.name.as_str()))
    };
    let may_be = |place: &Key| {
        index.namespaces.is_in(&key_in("", &place.namespace), key)
            || place.namespace == place.name && is_leased(place)
    };
    broken.filter(may_be).map(|it| it.namespace).collect()
}

/// Names of the claims of a namespace that cannot be decoded.
pub(super) fn broken_claims(caches: &Caches, namespace: &str) -> Vec<String> {
    let mut all = caches.claims.broken.all();
    all.retain(|it| it.object.namespace.as_deref() == Some(namespace));
    all.into_iter().filter_map(|it| it.object.name).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api_types::hive::ClusterDeploymentCustomization;
    use serde_json::json;

    use super::*;
    use crate::index::named;

    #[test]
    fn what_cannot_be_read_may_be_of_the_pool_that_made_its_namespace_or_leases_an_entry_for_it() {
        let (pool, entry) = (key_in("pools", "pool"), key_in("pools", "e"));
        let mut index = Index::default();
        let unread = |index: &Index, pool: &Key| {
            let broken = [key_in("c", "c"), key_in("other", "c"), key_in("made", "x")];
            super::unread(broken.into_iter(), index, pool)
        };
        assert_eq!(unread(&index, &pool), [""; 0]);
        index.namespaces.put(&key_in("", "made"), [pool.clone()]);
        assert_eq!(unread(&index, &pool), ["made"]);
        let it: ClusterDeploymentCustomization = serde_json::from_value(json!({
            "metadata": { "name": "e", "namespace": "pools" },
            "spec": {},
            "status": {
                "clusterDeploymentRef": { "name": "c", "namespace": "other" },
                "clusterPoolRef": { "name": "pool" },
            },
        }))
        .unwrap();
        index.named.put(&entry, named(&it));
        index.customizations.keep(&entry, [(all_in("pools"), Arc::new(it))]);
        // A pool's clusters stand in the namespace of their name.
        assert_eq!(unread(&index, &pool), ["c", "made"]);
        for other in [key_in("pools", "other"), key_in("elsewhere", "pool")] {
            assert_eq!(unread(&index, &other), [""; 0]);
        }
    }
}
