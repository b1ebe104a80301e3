//! What a customization says of itself.

use api_types::condition;
use api_types::hive::{ClusterDeploymentCustomization, pools_finalizer};
use api_types::name::is_name;
use api_types::names;
use kube::ResourceExt as _;

use crate::index::Key;
use crate::seen::Lease;

pub(super) fn lease(it: &ClusterDeploymentCustomization) -> Option<Lease> {
    let cluster = it.leased_by().map(str::to_owned);
    let is_one = cluster.is_some() || it.is_marked_in_use();
    let pool = leasing_pool(it).map(str::to_owned);
    let whole = it.is_marked_in_use() && pool.is_some();
    is_one.then(|| Lease { cluster, pool, pool_exists: false, releasing: is_releasing(it), whole })
}

/// Generation and uid: a status that is written does not change it, another object of the name does.
pub fn version(it: &ClusterDeploymentCustomization) -> String {
    let generation = it.metadata.generation.unwrap_or_default();
    format!("{generation}-{}", it.metadata.uid.as_deref().unwrap_or_default())
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

/// Whether somebody said that he is about to release it.
pub fn is_releasing(it: &ClusterDeploymentCustomization) -> bool {
    it.status
        .as_ref()
        .and_then(|it| condition::find(&it.conditions, names::hive::CONDITION_AVAILABLE))
        .is_some_and(|it| it.reason.as_deref() == Some(names::hive::REASON_RELEASING))
}

/// Where the cluster that a lease names may be: in the namespace of its name, as a pool's clusters are, and in the one that
/// the lease says.
pub fn named(it: &ClusterDeploymentCustomization) -> impl Iterator<Item = Key> + use<> {
    let reference = it.status.as_ref().and_then(|it| it.cluster_deployment_ref.as_ref());
    let name = it.leased_by().filter(|it| is_name(it)).map(str::to_owned);
    let said = reference.and_then(|it| it.namespace.clone());
    let other = said.filter(|it| is_name(it) && name.as_ref() != Some(it)).zip(name.clone());
    name.map(|it| (it.clone(), it)).into_iter().chain(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    fn a_lease_is_whole_where_it_says_in_use_and_names_its_pool() {
        let is_whole = |available: &str, pool: Option<&str>| {
            let it: ClusterDeploymentCustomization = serde_json::from_value(json!({
                "metadata": { "name": "a" },
                "spec": {},
                "status": {
                    "clusterDeploymentRef": { "name": "c" },
                    "clusterPoolRef": pool.map(|it| json!({ "name": it })),
                    "conditions": [{ "type": "Available", "status": available }],
                },
            }))
            .unwrap();
            lease(&it).unwrap().whole
        };
        assert!(is_whole("False", Some("pool")));
        assert!(!is_whole("True", Some("pool")) && !is_whole("False", None));
    }

    #[test]
    fn a_lease_names_a_cluster_in_its_own_namespace_and_in_the_one_that_it_says() {
        let of = |name: &str, namespace: Option<&str>| {
            let reference = json!({ "name": name, "namespace": namespace });
            let it: ClusterDeploymentCustomization = serde_json::from_value(json!({
                "metadata": { "name": "a" }, "spec": {}, "status": { "clusterDeploymentRef": reference },
            }))
            .unwrap();
            named(&it).map(|it| format!("{}/{}", it.0, it.1)).collect::<Vec<_>>()
        };
        assert_eq!(of("foo", Some("foo-namespace")), ["foo/foo", "foo-namespace/foo"]);
        assert_eq!(of("foo", Some("foo")), ["foo/foo"]);
        assert_eq!(of("foo", None), ["foo/foo"]);
        // Nothing can be called that, and nobody is asked for it.
        assert_eq!(of("foo", Some("no/namespace")), ["foo/foo"]);
        assert_eq!(of("no/name", Some("foo")), [""; 0]);
        assert_eq!(of("", Some("foo")), [""; 0]);
    }
}
