//! What a look at the caches keeps of the one before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;

use api_types::hive::ClusterDeployment;
use api_types::names;
use clusterpool_inventory::index::{Index, Key, all_in};
use clusterpool_inventory::inventory::Entry;
use clusterpool_inventory::materials::Materials;
use clusterpool_inventory::observe::{Known, Last, Stores, observe};
use clusterpool_inventory::seen::Observed;
use clusterpool_inventory::{Policy, trial};
use controller_kit::watch::Undecodable;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A pool with the entry `e`, the cluster `a` and the namespaces `a` and `b`.
struct Caches {
    clusters: Writer<ClusterDeployment>,
    stores: Stores,
    index: Index,
    last: Last,
}

fn pool() -> Key {
    ("pools".to_owned(), "pool".to_owned())
}

fn cluster(pool: &str) -> ClusterDeployment {
    let reference = json!({ "namespace": "pools", "poolName": pool });
    let spec = json!({ "installed": true, "clusterPoolRef": reference });
    serde_json::from_value(json!({ "metadata": { "name": "a", "namespace": "a" }, "spec": spec }))
        .unwrap()
}

fn store<K>(objects: &[Value]) -> Store<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    let mut writer = Writer::new(());
    for object in objects {
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value(object.clone()).unwrap()));
    }
    writer.as_reader()
}

impl Caches {
    fn new() -> Self {
        let metadata = json!({
            "name": "pool", "namespace": "pools", "uid": "u", "resourceVersion": "1",
            "annotations": { names::ferrite::ADOPTED_VERSION: "v/h" },
        });
        let spec = json!({
            "platform": { "none": {} }, "baseDomain": "example.com",
            "imageSetRef": { "name": "release" }, "size": 1, "inventory": [{ "name": "e" }],
        });
        let patch = json!({ "op": "replace", "path": "metadata/name", "value": "x" });
        let entry = json!({
            "metadata": { "name": "e", "namespace": "pools", "uid": "u", "generation": 1 },
            "spec": { "installConfigPatches": [patch] },
        });
        let mut clusters = Writer::new(());
        clusters.apply_watcher_event(&Event::Apply(cluster("pool")));
        let mut index = Index::default();
        index.clusters.put(&("a".to_owned(), "a".to_owned()), [pool()]);
        for name in ["a", "b"] {
            index.namespaces.put(&(String::new(), name.to_owned()), [pool()]);
        }
        index.customizations.put(&("pools".to_owned(), "e".to_owned()), [all_in("pools")]);
        let spaces = ["a", "b"].map(|it| json!({ "metadata": { "name": it } }));
        let stores = Stores {
            pools: store(&[json!({ "metadata": metadata, "spec": spec })]),
            broken_pools: Undecodable::default(),
            customizations: store(&[entry]),
            broken_customizations: Undecodable::default(),
            clusters: clusters.as_reader(),
            broken_clusters: Undecodable::default(),
            claims: store(&[]),
            namespaces: store(&spaces),
            bindings: store(&[]),
        };
        Self { clusters, stores, index, last: Last::default() }
    }

    fn look(&mut self, config: Option<Value>) -> Observed {
        let materials = Materials { config, config_hash: 7, ..Materials::default() };
        let policy = Policy::default();
        let known = Known::at_first(&policy, &materials, Timestamp::UNIX_EPOCH);
        let (seen, _) = observe(&self.stores, &self.index, &pool(), &known, &mut self.last);
        self.last.seen = seen.clone();
        seen
    }

    /// The namespaces without a cluster, and whether one was there.
    fn empty(&mut self) -> Vec<(String, bool)> {
        let seen = self.look(None);
        seen.namespaces.into_iter().map(|it| (it.name, it.vacated)).collect()
    }

    /// The cluster as it is now; `of_pool`: whether it is the pool's.
    fn change(&mut self, event: &Event<ClusterDeployment>, of_pool: bool) {
        self.clusters.apply_watcher_event(event);
        self.index.clusters.put(&("a".to_owned(), "a".to_owned()), of_pool.then(pool));
    }
}

#[test]
fn a_namespace_is_vacated_once_the_cluster_that_was_seen_in_it_is_gone() {
    let (a, b) = (("a".to_owned(), true), ("b".to_owned(), false));
    let both = [a, b.clone()];
    let mut caches = Caches::new();
    assert_eq!(caches.empty(), std::slice::from_ref(&b));
    caches.change(&Event::Delete(cluster("pool")), false);
    assert_eq!(caches.empty(), both);
    // Also where the pass that saw it failed, and what it saw was lost.
    caches.last.seen = Observed::default();
    assert_eq!(caches.empty(), both);
    // Somebody else's cluster lives in it.
    caches.change(&Event::Apply(cluster("other")), false);
    assert_eq!(caches.empty(), std::slice::from_ref(&b));
    caches.change(&Event::Delete(cluster("other")), false);
    assert_eq!(caches.empty(), both);
    // It is back, as from a backup.
    caches.change(&Event::Apply(cluster("pool")), true);
    assert_eq!(caches.empty(), std::slice::from_ref(&b));
    assert!(caches.last.vacated.is_empty());
    caches.change(&Event::Delete(cluster("pool")), false);
    assert_eq!(caches.empty(), both);
    caches.index.namespaces.put(&(String::new(), "a".to_owned()), []);
    assert_eq!(caches.empty(), [b]);
    assert!(caches.last.vacated.is_empty());
}

#[test]
fn what_was_noted_on_a_pool_when_it_was_taken_over_is_read() {
    let seen = Caches::new().look(None);
    assert_eq!(seen.pool.version.noted.as_deref(), Some("v/h"));
}

#[test]
fn what_patches_mean_is_news_where_there_was_no_template_for_them_before() {
    let config = json!({ "apiVersion": "v1", "platform": { "none": {} } });
    let stored = Entry { version: Some("1-u".to_owned()), ..Entry::default() };
    let stored = BTreeMap::from([("e".to_owned(), stored)]);
    for (before, told) in [(false, 0), (true, 1)] {
        let mut caches = Caches::new();
        if before {
            caches.look(None);
        }
        let seen = caches.look(Some(config.clone()));
        assert_eq!(seen.customizations[0].refused, None);
        let news = trial::news(&mut caches.last.trials, &stored, None);
        assert_eq!(news.len(), told, "{news:?}");
    }
}
