//! What belongs to what, so that a pass looks at its own pool's objects only, and a change wakes those whom it concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api_types::hive::{
    ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, pools_finalizer,
};
use api_types::name::is_name;
use api_types::names;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt as _};

use crate::make::pool_of;

/// Namespace and name; of an object without a namespace that is empty.
pub use controller_kit::engine::ObjectKey as Key;

/// Which groups objects are in, and which objects a group has, with what is kept of each of them there.
pub struct Groups<T = ()> {
    members: HashMap<Key, BTreeMap<Key, T>>,
    /// Sorted, each once. Most are in one or two, for which a tree would be large.
    groups: HashMap<Key, Vec<Key>>,
}

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Self { members: HashMap::new(), groups: HashMap::new() }
    }
}

impl Groups {
    /// Puts an object into these groups and no others. Returns the groups that it was in or is in now.
    pub fn put(&mut self, object: &Key, groups: impl IntoIterator<Item = Key>) -> BTreeSet<Key> {
        self.keep(object, groups.into_iter().map(|it| (it, ())))
    }
}

impl<T> Groups<T> {
    /// Puts an object into these groups and no others, with what each is to keep of it. Returns the groups that it was in
    /// or is in now.
    pub fn keep(
        &mut self,
        object: &Key,
        groups: impl IntoIterator<Item = (Key, T)>,
    ) -> BTreeSet<Key> {
        let mut touched = BTreeSet::new();
        for (group, kept) in groups {
            self.members.entry(group.clone()).or_default().insert(object.clone(), kept);
            touched.insert(group);
        }
        let now: Vec<Key> = touched.iter().cloned().collect();
        let before = if now.is_empty() {
            self.groups.remove(object)
        } else {
            self.groups.insert(object.clone(), now)
        };
        for group in before.unwrap_or_default() {
            if touched.contains(&group) {
                continue;
            }
            if let Some(members) = self.members.get_mut(&group) {
                members.remove(object);
                if members.is_empty() {
                    self.members.remove(&group);
                }
            }
            touched.insert(group);
        }
        touched
    }

    /// The objects of a group.
    pub fn of<'a>(&'a self, group: &Key) -> impl Iterator<Item = &'a Key> + use<'a, T> {
        self.members.get(group).into_iter().flat_map(BTreeMap::keys)
    }

    /// What a group keeps of its objects, in the order of their keys.
    pub fn kept<'a>(&'a self, group: &Key) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.members.get(group).into_iter().flat_map(BTreeMap::values)
    }

    /// What a group keeps of an object.
    pub fn one<'a>(&'a self, group: &Key, object: &Key) -> Option<&'a T> {
        self.members.get(group)?.get(object)
    }

    /// The groups that have an object.
    pub fn groups(&self) -> impl Iterator<Item = &Key> {
        self.members.keys()
    }

    /// The groups that this object is in.
    pub fn groups_of(&self, object: &Key) -> &[Key] {
        self.groups.get(object).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether an object is in a group.
    pub fn is_in(&self, object: &Key, group: &Key) -> bool {
        self.groups_of(object).contains(group)
    }

    /// Whether a group has an object.
    pub fn has(&self, group: &Key) -> bool {
        self.members.contains_key(group)
    }
}

/// All links.
#[derive(Default)]
pub struct Index {
    /// Clusters by pool, as a cache has them: a look at a pool finds those of thousands without a search for each.
    pub clusters: Groups<Arc<ClusterDeployment>>,
    /// Clusters by entry, over all pools.
    pub users: Groups,
    /// Claims by pool.
    pub claims: Groups,
    /// Clusters' namespaces by pool.
    pub namespaces: Groups,
    /// Pools by the entries that they list.
    pub lists: Groups,
    /// Customizations by the pools that hold them: see [`holders`].
    pub leases: Groups,
    /// Customizations by the clusters that their leases name: see [`named`].
    pub named: Groups,
    /// Customizations by namespace, as a cache has them; the name is left empty.
    pub customizations: Groups<Arc<ClusterDeploymentCustomization>>,
    /// Pools by namespace; the name is left empty.
    pub pools: Groups,
    /// Bindings of the administrators' role by namespace; the name is left empty.
    pub admins: Groups,
}

impl Index {
    /// The pools, there or gone, of which something is here; and for each namespace with customizations the group of all.
    pub fn pools_with_something(&self) -> BTreeSet<Key> {
        let of_pools = [&self.claims, &self.namespaces, &self.leases];
        let of_pools = of_pools.into_iter().flat_map(Groups::groups);
        of_pools
            .chain(self.clusters.groups())
            .chain(self.customizations.groups())
            .cloned()
            .collect()
    }

    /// Puts a cluster, as it is now, to its pool and its entry. Returns the pools that are concerned.
    pub fn put_cluster(&mut self, key: &Key, now: Option<Arc<ClusterDeployment>>) -> BTreeSet<Key> {
        let pool = now.as_ref().and_then(|it| pool_key(it));
        let entry = now.as_ref().and_then(|it| {
            let reference = it.spec.cluster_pool_ref.as_ref()?;
            Some(key_in(&reference.namespace, reference.customization_name()?))
        });
        let mut concerned = self.clusters.keep(key, pool.zip(now.filter(|it| is_one(it))));
        // A lease may name one that is no pool's.
        let entries = self.users.put(key, entry);
        for entry in entries.iter().chain(self.named.of(key)) {
            concerned.extend(self.concerned_by(entry));
        }
        concerned
    }

    /// The pools that an entry concerns: those that list it, those that hold it, also ones that are gone, and those whose
    /// clusters were made from it. Where there is none, nobody's name, in which an entry is let go that has our finalizer.
    pub fn concerned_by(&self, entry: &Key) -> BTreeSet<Key> {
        let users = self.users.of(entry).flat_map(|it| self.clusters.groups_of(it));
        let users = users.filter(|it| it.namespace == entry.namespace);
        let pools = self.lists.of(entry).chain(self.leases.groups_of(entry)).chain(users);
        let mut pools: BTreeSet<Key> = pools.cloned().collect();
        let nobodys = all_in(&entry.namespace);
        let found = self.customizations.one(&nobodys, entry);
        if pools.is_empty()
            && found.is_some_and(|it| has_finalizer(&**it, names::hive::LEASE_FINALIZER))
        {
            pools.insert(nobodys);
        }
        pools
    }

    /// Whether something of a pool carries a mark of ours, and be it that the pool itself is to go: what was begun is ended
    /// here.
    pub fn has_of_ours(&self, key: &Key, pool: Option<&ClusterPool>) -> bool {
        let left = || pool.is_none() && (self.leases.has(key) || key.name.is_empty());
        let goes = |it: &ClusterPool| {
            it.metadata.deletion_timestamp.is_some()
                && has_finalizer(it, names::hive::POOL_FINALIZER)
        };
        self.namespaces.has(key)
            || left()
            || pool.is_some_and(goes)
            || self
                .clusters
                .kept(key)
                .any(|it| has_finalizer(&**it, names::hive::INVENTORY_FINALIZER))
    }
}

/// Whether an object has this finalizer.
pub fn has_finalizer(object: &impl Resource, finalizer: &str) -> bool {
    object.finalizers().iter().any(|it| it == finalizer)
}

/// The key of an object that is called so.
pub fn key_in(namespace: &str, name: &str) -> Key {
    Key { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// The group of all objects of a namespace.
pub fn all_in(namespace: &str) -> Key {
    key_in(namespace, "")
}

/// The pool that a cluster is of.
pub fn pool_key(cluster: &ClusterDeployment) -> Option<Key> {
    let pool = cluster.spec.cluster_pool_ref.as_ref()?;
    Some(key_in(&pool.namespace, &pool.pool_name)).filter(|it| !it.name.is_empty())
}

/// Whether a cluster stands where a pool's clusters stand: in the namespace of its name.
pub fn is_one(cluster: &ClusterDeployment) -> bool {
    cluster.metadata.namespace == cluster.metadata.name
}

/// Namespace, name and uid of the pool that a namespace was made for.
pub fn owner_of(namespace: &Namespace) -> Option<(&str, &str, &str)> {
    pool_of(namespace.annotations().get(names::ferrite::POOL_OWNER)?)
}

/// The pool that leases a customization.
pub fn leasing_pool(it: &ClusterDeploymentCustomization) -> Option<&str> {
    let pool = it.status.as_ref()?.cluster_pool_ref.as_ref()?;
    pool.name.as_deref().filter(|it| !it.is_empty())
}

/// The pools that hold a customization: the one that leases it, and those for which Hive's own controller put its finalizer
/// there. One that is gone has nobody else to take that off.
pub fn holders(it: &ClusterDeploymentCustomization) -> impl Iterator<Item = &str> {
    let of_all = pools_finalizer("");
    let theirs = it.finalizers().iter().filter(|it| *it != names::hive::LEASE_FINALIZER);
    let kept_for = theirs.filter_map(move |it| it.strip_prefix(of_all.as_str()));
    leasing_pool(it).into_iter().chain(kept_for.filter(|it| !it.is_empty()))
}

/// The finalizer that Hive's own controller puts on a customization for this pool. For a pool called `inventory-lease` that
/// would be ours, and the entry would be taken over from Hive again and again.
pub fn hives_finalizer(pool: &str) -> Option<String> {
    Some(pools_finalizer(pool)).filter(|it| it != names::hive::LEASE_FINALIZER)
}

/// Where the cluster that a lease names may be: in the namespace of its name, as a pool's clusters are, and in the one that
/// the lease says.
pub fn named(it: &ClusterDeploymentCustomization) -> Vec<Key> {
    let reference = it.status.as_ref().and_then(|it| it.cluster_deployment_ref.as_ref());
    let name = it.leased_by().filter(|it| is_name(it));
    let said = reference.and_then(|it| it.namespace.as_deref());
    let other = said.filter(|it| is_name(it) && name != Some(it)).zip(name);
    let own = name.map(|it| (it, it));
    own.into_iter().chain(other).map(|(namespace, name)| key_in(namespace, name)).collect()
}

#[cfg(test)]
mod tests {
    use api_types::hive::ClusterPoolSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> Key {
        key_in("n", name)
    }

    #[test]
    fn what_is_kept_of_an_object_is_what_was_put_last() {
        let mut links = Groups::default();
        links.keep(&key("c"), [(key("a"), 1), (key("b"), 1)]);
        links.keep(&key("d"), [(key("a"), 2)]);
        assert_eq!(links.keep(&key("c"), [(key("a"), 3)]).len(), 2);
        assert_eq!(links.kept(&key("a")).collect::<Vec<_>>(), [&3, &2]);
        assert_eq!((links.of(&key("a")).count(), links.of(&key("b")).count()), (2, 0));
        assert!(links.is_in(&key("c"), &key("a")) && !links.is_in(&key("c"), &key("b")));
    }

    #[test]
    fn an_object_that_changes_its_group_leaves_the_one_before() {
        let mut links = Groups::default();
        links.put(&key("c"), [key("a")]);
        let touched = links.put(&key("c"), [key("b")]);
        assert_eq!(touched.len(), 2);
        assert!(!links.has(&key("a")));
        assert_eq!(links.of(&key("b")).collect::<Vec<_>>(), [&key("c")]);
    }

    #[test]
    fn an_object_that_is_gone_leaves_nothing_behind() {
        let mut links = Groups::default();
        links.put(&key("c"), [key("a"), key("b")]);
        assert_eq!(links.put(&key("c"), []).len(), 2);
        assert!(links.members.is_empty() && links.groups.is_empty());
    }

    #[test]
    fn a_pool_that_is_gone_is_looked_at_as_long_as_something_of_it_is_here() {
        let mut index = Index::default();
        index.claims.put(&key("x"), [key("claimed")]);
        index.leases.put(&key("a"), [key("leases")]);
        index.namespaces.put(&key_in("", "c"), [key("made")]);
        let known = |index: &Index| index.pools_with_something().into_iter().map(|it| it.name);
        assert_eq!(known(&index).collect::<Vec<_>>(), ["claimed", "leases", "made"]);
        index.claims.put(&key("x"), []);
        let entry = Arc::new(ClusterDeploymentCustomization::default());
        index.customizations.keep(&key("a"), [(all_in("n"), entry)]);
        // In nobody's name.
        assert_eq!(known(&index).collect::<Vec<_>>(), ["", "leases", "made"]);
    }

    #[test]
    fn a_customization_is_held_by_who_leases_it_and_by_those_for_whom_hive_kept_it() {
        let finalizers =
            ["hive.openshift.io/gone", "hive.openshift.io/inventory-lease", "example.com/other"];
        let it: ClusterDeploymentCustomization = serde_json::from_value(json!({
            "metadata": { "name": "a", "finalizers": finalizers },
            "spec": {},
            "status": { "clusterPoolRef": { "name": "pool" } },
        }))
        .unwrap();
        assert_eq!(holders(&it).collect::<Vec<_>>(), ["pool", "gone"]);
    }

    #[test]
    fn our_finalizer_is_never_taken_for_the_one_of_hive() {
        assert_eq!(hives_finalizer("pool").as_deref(), Some("hive.openshift.io/pool"));
        assert_eq!(hives_finalizer("inventory-lease"), None);
    }

    #[test]
    fn a_lease_names_a_cluster_in_its_own_namespace_and_in_the_one_that_it_says() {
        let of = |name: &str, namespace: Option<&str>| {
            let reference = json!({ "name": name, "namespace": namespace });
            let it: ClusterDeploymentCustomization = serde_json::from_value(json!({
                "metadata": { "name": "a" }, "spec": {}, "status": { "clusterDeploymentRef": reference },
            }))
            .unwrap();
            let places = named(&it).into_iter();
            places.map(|it| format!("{}/{}", it.namespace, it.name)).collect::<Vec<_>>()
        };
        assert_eq!(of("foo", Some("foo-namespace")), ["foo/foo", "foo-namespace/foo"]);
        assert_eq!(of("foo", Some("foo")), ["foo/foo"]);
        assert_eq!(of("foo", None), ["foo/foo"]);
        // Nothing can be called that, and nobody is asked for it.
        assert_eq!(of("foo", Some("no/namespace")), ["foo/foo"]);
        assert_eq!(of("no/name", Some("foo")), [""; 0]);
        assert_eq!(of("", Some("foo")), [""; 0]);
    }

    #[test]
    fn a_strangers_cluster_that_goes_wakes_also_those_who_do_not_list_the_entry() {
        let wakes = |lease: serde_json::Value, finalizers: &[&str], list: bool| {
            let mut index = Index::default();
            let (entry, foo) = (key("a"), key_in("theirs", "foo"));
            let metadata = json!({ "name": "a", "namespace": "n", "finalizers": finalizers });
            let status = json!({
                "clusterDeploymentRef": { "name": "foo", "namespace": "theirs" },
                "clusterPoolRef": lease,
            });
            let it: ClusterDeploymentCustomization = serde_json::from_value(
                json!({ "metadata": metadata, "spec": {}, "status": status }),
            )
            .unwrap();
            index.named.put(&entry, named(&it));
            index.leases.put(&entry, holders(&it).map(key));
            index.customizations.keep(&entry, [(all_in("n"), Arc::new(it))]);
            if list {
                index.lists.put(&key("lists"), [entry]);
            }
            let metadata = json!({ "name": "foo", "namespace": "theirs" });
            let cluster: ClusterDeployment =
                serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap();
            index.put_cluster(&foo, Some(Arc::new(cluster)));
            index.put_cluster(&foo, None).into_iter().map(|it| it.name).collect::<Vec<_>>()
        };
        let ours = names::hive::LEASE_FINALIZER;
        assert_eq!(wakes(json!({ "name": "gone" }), &[ours], false), ["gone"]);
        assert_eq!(wakes(json!(null), &[ours, "hive.openshift.io/gone"], false), ["gone"]);
        // In nobody's name.
        assert_eq!(wakes(json!(null), &[ours], false), [""]);
        assert_eq!(wakes(json!(null), &[], false), [""; 0]);
        assert_eq!(wakes(json!(null), &[ours], true), ["lists"]);
        assert_eq!(wakes(json!({ "name": "gone" }), &[ours], true), ["gone", "lists"]);
    }

    #[test]
    fn a_pool_is_used_as_long_as_something_of_it_is_here_though_its_inventory_is_gone() {
        let key = key_in("ns", "pool");
        let mut pool = ClusterPool::new("ns", "pool", ClusterPoolSpec::default());
        pool.metadata.finalizers = Some(vec![names::hive::POOL_FINALIZER.to_owned()]);
        let mut index = Index::default();
        assert!(!index.has_of_ours(&key, Some(&pool)));
        let made = key_in("", "pool-x");
        index.namespaces.put(&made, [key.clone()]);
        assert!(index.has_of_ours(&key, Some(&pool)));
        index.namespaces.put(&made, []);
        assert!(!index.has_of_ours(&key, Some(&pool)));
        // Nobody else lets it go.
        pool.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(index.has_of_ours(&key, Some(&pool)));
        pool.metadata.finalizers = None;
        assert!(!index.has_of_ours(&key, Some(&pool)));
        // Leases count where it is gone: who is there and lists nothing may have them of Hive.
        index.leases.put(&key_in("ns", "a"), [key.clone()]);
        assert!(index.has_of_ours(&key, None) && !index.has_of_ours(&key, Some(&pool)));
    }
}
