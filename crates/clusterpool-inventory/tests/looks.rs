//! What a look at the caches shows, and what it learns for later ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::hive::ClusterDeployment;
use api_types::names;
use api_types::reference::NamedRef;
use clusterpool_inventory::context;
use clusterpool_inventory::index::{Index, all_in, key_in};
use clusterpool_inventory::make::Materials;
use clusterpool_inventory::model::{Efforts, Key, Learned};
use clusterpool_inventory::observe::{Known, observe};
use clusterpool_inventory::seen::Observed;
use clusterpool_inventory::settings::Policy;
use controller_kit::cache::Cache;
use controller_kit::watch::Watchable;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

/// A pool with the entry `e`, the cluster `a` and the namespaces `a` and `b`.
struct Caches {
    clusters: Writer<ClusterDeployment>,
    stores: context::Caches,
    index: Index,
    learned: Learned,
}

fn pool() -> Key {
    key_in("pools", "pool")
}

fn cluster(pool: &str) -> ClusterDeployment {
    let reference = json!({ "namespace": "pools", "poolName": pool });
    let spec = json!({ "installed": true, "clusterPoolRef": reference });
    serde_json::from_value(json!({ "metadata": { "name": "a", "namespace": "a" }, "spec": spec }))
        .unwrap()
}

fn store<K: Watchable + kube::Resource<DynamicType = ()>>(objects: &[Value]) -> Cache<K> {
    let mut writer = Writer::new(());
    for object in objects {
        writer.apply_watcher_event(&Event::Apply(serde_json::from_value(object.clone()).unwrap()));
    }
    Cache::of(writer.as_reader(), ())
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
        let a = Arc::new(cluster("pool"));
        index.clusters.keep(&key_in("a", "a"), [(pool(), a)]);
        for name in ["a", "b"] {
            index.namespaces.put(&key_in("", name), [pool()]);
        }
        let e = Arc::new(serde_json::from_value(entry.clone()).unwrap());
        let key = key_in("pools", "e");
        index.customizations.keep(&key, [(all_in("pools"), e)]);
        let spaces = ["a", "b"].map(|it| json!({ "metadata": { "name": it } }));
        let stores = context::Caches {
            pools: store(&[json!({ "metadata": metadata, "spec": spec })]),
            customizations: store(&[entry]),
            clusters: Cache::of(clusters.as_reader(), ()),
            claims: store(&[]),
            namespaces: store(&spaces),
            bindings: store(&[]),
        };
        Self { clusters, stores, index, learned: Learned::default() }
    }

    /// A look where nobody else works on the pool.
    fn observe(
        &mut self,
        materials: &Materials,
        efforts: &Efforts,
        now: Timestamp,
    ) -> (Observed, Option<Duration>) {
        self.observe_at(materials, efforts, now, Instant::now())
    }

    fn observe_at(
        &mut self,
        materials: &Materials,
        efforts: &Efforts,
        now: Timestamp,
        moment: Instant,
    ) -> (Observed, Option<Duration>) {
        let (key, policy) = (&pool(), &Policy::default());
        let (caches, index) = (&self.stores, &self.index);
        let known =
            Known { caches, index, key, policy, materials, rival: None, efforts, now, moment };
        observe(&known, &mut self.learned)
    }

    fn look(&mut self, config: Option<Value>) -> Observed {
        self.look_with("7", config)
    }

    fn look_with(&mut self, versions: &str, config: Option<Value>) -> Observed {
        let versions = versions.to_owned();
        let materials = Materials { config, versions, ..Materials::default() };
        let (seen, _) = self.observe(&materials, &Efforts::default(), Timestamp::UNIX_EPOCH);
        seen
    }

    /// The clusters that Hive cannot take down so many seconds after the beginning, and in how many there may be more.
    fn hanging(&mut self, second: i64) -> (Vec<String>, Option<u64>) {
        let now = Timestamp::from_second(second).unwrap();
        let (seen, due) = self.observe(&Materials::default(), &Efforts::default(), now);
        let hanging = seen.clusters.iter().filter(|it| it.hangs).map(|it| it.name.clone());
        (hanging.collect(), due.map(|it| it.as_secs()))
    }

    /// The namespaces without a cluster, and whether one was there.
    fn empty(&mut self) -> Vec<(String, bool)> {
        let seen = self.look(None);
        seen.namespaces.into_iter().map(|it| (it.name, it.vacated)).collect()
    }

    /// The entry with this one operation, written so many times.
    fn patch(&mut self, operation: &Value, version: u64) {
        let entry = json!({
            "metadata": {
                "name": "e", "namespace": "pools", "uid": "u", "generation": version,
                "resourceVersion": version.to_string(),
            },
            "spec": { "installConfigPatches": [operation] },
        });
        let key = key_in("pools", "e");
        let entry = Arc::new(serde_json::from_value(entry).unwrap());
        self.index.customizations.keep(&key, [(all_in("pools"), entry)]);
    }

    /// The pools that there are at this version, and what each lists.
    fn pools(&mut self, version: &str, all: &[(&str, &str)]) {
        let mut pools = Vec::new();
        for (name, entry) in all {
            let key = key_in("pools", name);
            self.index.pools.put(&key, [all_in("pools")]);
            self.index.lists.put(&key, [key_in("pools", entry)]);
            pools.push(json!({
                "metadata": { "name": name, "namespace": "pools", "resourceVersion": version },
                "spec": {
                    "platform": { "none": {} }, "baseDomain": "example.com", "size": 1,
                    "imageSetRef": { "name": "release" }, "inventory": [{ "name": entry }],
                },
            }));
        }
        self.stores.pools = store(&pools);
    }

    /// A cluster of a pool that was made from the entry, with more in its metadata.
    fn put(&mut self, name: &str, of_pool: &str, metadata: &Value) {
        self.put_with(name, of_pool, metadata, &json!({}));
    }

    fn put_with(&mut self, name: &str, of_pool: &str, metadata: &Value, status: &Value) {
        let entry = json!({ "name": "e" });
        let reference = json!({
            "namespace": "pools", "poolName": of_pool, "clusterDeploymentCustomization": entry,
        });
        let spec = json!({ "clusterPoolRef": reference });
        let mut it = json!({ "metadata": metadata, "spec": spec, "status": status });
        (it["metadata"]["name"], it["metadata"]["namespace"]) = (json!(name), json!(name));
        let it: ClusterDeployment = serde_json::from_value(it).unwrap();
        self.clusters.apply_watcher_event(&Event::Apply(it.clone()));
        let (key, of_pool) = (key_in(name, name), key_in("pools", of_pool));
        self.index.clusters.keep(&key, [(of_pool, Arc::new(it))]);
        self.index.users.put(&key, [key_in("pools", "e")]);
    }

    /// The cluster as it is now; `of_pool`: whether it is the pool's.
    fn change(&mut self, event: &Event<ClusterDeployment>, of_pool: bool) {
        self.clusters.apply_watcher_event(event);
        let of_pool = of_pool.then(|| (pool(), Arc::new(cluster("pool"))));
        self.index.clusters.keep(&key_in("a", "a"), of_pool);
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
    // Somebody else's cluster lives in it.
    caches.change(&Event::Apply(cluster("other")), false);
    assert_eq!(caches.empty(), std::slice::from_ref(&b));
    caches.change(&Event::Delete(cluster("other")), false);
    assert_eq!(caches.empty(), both);
    // It is back, as from a backup.
    caches.change(&Event::Apply(cluster("pool")), true);
    assert_eq!(caches.empty(), std::slice::from_ref(&b));
    caches.change(&Event::Delete(cluster("pool")), false);
    assert_eq!(caches.empty(), both);
    caches.index.namespaces.put(&key_in("", "a"), []);
    assert_eq!(caches.empty(), [b]);
    assert!(caches.learned.met.is_empty());
}

#[test]
fn namespaces_between_those_with_a_cluster_are_empty() {
    let mut caches = Caches::new();
    let names = ["a", "b", "c", "d", "e", "f"];
    let spaces = names.map(|it| json!({ "metadata": { "name": it } }));
    caches.stores.namespaces = store(&spaces);
    for name in names {
        caches.index.namespaces.put(&key_in("", name), [pool()]);
    }
    caches.put("c", "pool", &json!({}));
    caches.put("d", "pool", &json!({}));
    // Nobody makes such a cluster; still it is one, wherever it stands.
    let odd: ClusterDeployment =
        serde_json::from_value(json!({ "metadata": { "name": "b", "namespace": "z" } })).unwrap();
    caches.index.clusters.keep(&key_in("z", "b"), [(pool(), Arc::new(odd))]);
    let empty: Vec<String> = caches.empty().into_iter().map(|it| it.0).collect();
    assert_eq!(empty, ["e", "f"]);
}

#[test]
fn what_was_noted_on_a_pool_when_it_was_taken_over_is_read() {
    let seen = Caches::new().look(None);
    assert_eq!(seen.pool.version.noted.as_deref(), Some("v/h"));
}

#[test]
fn a_retry_annotation_that_is_no_time_or_still_to_come_is_told_and_waited_for() {
    let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
    for (said, told, due) in [
        (json!("now"), true, None),
        (json!(""), true, None),
        (json!("2026-01-31T12:00:00Z"), false, None),
        // The clock of who wrote it is ahead.
        (json!("2026-01-31T12:00:20Z"), true, Some(Duration::from_secs(20))),
    ] {
        let mut caches = Caches::new();
        for name in ["e", "unlisted"] {
            let annotations = json!({ names::ferrite::RETRY: said });
            let metadata =
                json!({ "name": name, "namespace": "pools", "annotations": annotations });
            let entry = json!({ "metadata": metadata, "spec": {} });
            let entry = Arc::new(serde_json::from_value(entry).unwrap());
            let key = key_in("pools", name);
            caches.index.customizations.keep(&key, [(all_in("pools"), entry)]);
        }
        let (seen, again) = caches.observe(&Materials::default(), &Efforts::default(), now);
        assert_eq!(again, due, "{said}");
        let wrong = seen.pool.remarks.iter().filter(|it| it.contains(names::ferrite::RETRY));
        let wrong: Vec<&String> = wrong.collect();
        assert_eq!(wrong.len(), usize::from(told), "{wrong:?}");
        assert!(wrong.iter().all(|it| it.contains("retry of e is")), "{wrong:?}");
    }
}

#[test]
fn what_is_refused_is_told_anew_with_another_template_other_patches_or_another_list() {
    let config = |version: &str| json!({ "apiVersion": version, "platform": { "none": {} } });
    let test = |value: &str| json!({ "op": "test", "path": "/apiVersion", "value": value });
    let mut caches = Caches::new();
    let is_refused = |caches: &mut Caches, secret: &str, version: &str| {
        let seen = caches.look_with(secret, Some(config(version)));
        seen.customizations[0].refused.is_some()
    };
    caches.patch(&test("v1"), 1);
    assert!(!is_refused(&mut caches, "1", "v1") && !is_refused(&mut caches, "1", "v1"));
    assert!(is_refused(&mut caches, "2", "v2") && is_refused(&mut caches, "2", "v2"));
    assert!(!is_refused(&mut caches, "1", "v1"));
    caches.patch(&test("v2"), 2);
    assert!(is_refused(&mut caches, "1", "v1"));
    // What is not listed is not tried.
    caches.pools("2", &[("pool", "x")]);
    assert!(!is_refused(&mut caches, "1", "v1"));
    caches.pools("3", &[("pool", "e")]);
    assert!(is_refused(&mut caches, "1", "v1"));
}

#[test]
fn an_entry_that_tests_its_clusters_name_for_the_pools_is_refused_before_a_cluster_is_made() {
    let config = json!({ "apiVersion": "v1", "platform": { "none": {} } });
    let mut caches = Caches::new();
    caches.patch(&json!({ "op": "test", "path": "/metadata/name", "value": "pool" }), 1);
    let refused = caches.look(Some(config)).customizations[0].refused.clone();
    assert!(refused.is_some_and(|it| it.contains("the value is another one")));
}

#[test]
fn what_others_make_of_an_entry_is_seen_though_the_entry_was_not_written() {
    let mut caches = Caches::new();
    caches.patch(&json!({ "op": "remove", "path": "/fips" }), 1);
    let others = |caches: &mut Caches| {
        let entry = caches.look(None).customizations.remove(0);
        (entry.others, entry.listed_elsewhere)
    };
    caches.put("a", "pool", &json!({}));
    assert_eq!(others(&mut caches), (Vec::new(), false));
    caches.put("z", "other", &json!({}));
    assert_eq!(others(&mut caches), (vec!["z".to_owned()], false));
    caches.pools("1", &[("pool", "e"), ("other", "e")]);
    assert_eq!(others(&mut caches), (vec!["z".to_owned()], true));
    caches.put("z", "other", &json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    assert_eq!(others(&mut caches), (Vec::new(), true));
}

#[test]
fn a_cluster_that_hive_has_not_taken_down_for_hours_hangs_though_nobody_writes_to_it() {
    let mut caches = Caches::new();
    let deleted = json!({ "deletionTimestamp": "1970-01-01T00:00:00Z", "resourceVersion": "2" });
    caches.put("a", "pool", &deleted);
    let none = Vec::<String>::new();
    assert_eq!(caches.hanging(60), (none.clone(), Some(10_740)));
    assert_eq!(caches.hanging(10_799), (none, Some(1)));
    for second in [10_800, 99_999] {
        assert_eq!(caches.hanging(second), (vec!["a".to_owned()], None));
    }
}

/// Each unclaimed one that is stuck is deleted.
#[test]
fn a_cluster_is_stuck_once_it_was_seen_to_resume_for_as_long_as_it_may_whatever_the_clock_says() {
    let mut caches = Caches::new();
    let (start, minute) = (Instant::now(), Duration::from_secs(60));
    let metadata = json!({ "name": "pool", "namespace": "pools", "resourceVersion": "2" });
    let spec = json!({
        "platform": { "none": {} }, "baseDomain": "example.com", "size": 1,
        "imageSetRef": { "name": "release" }, "hibernationConfig": { "resumeTimeout": "20m" },
    });
    caches.stores.pools = store(&[json!({ "metadata": metadata, "spec": spec })]);
    let resume = |caches: &mut Caches, since: &str| {
        let condition = json!({
            "type": "Hibernating", "status": "False", "reason": "ResumingOrRunning",
            "lastTransitionTime": since,
        });
        let mut it = cluster("pool");
        it.spec.power_state = Some("Running".to_owned());
        it.status = serde_json::from_value(json!({ "conditions": [condition] })).unwrap();
        caches.index.clusters.keep(&key_in("a", "a"), [(pool(), Arc::new(it))]);
    };
    let stuck = |caches: &mut Caches, minutes: u32, now: i64| {
        let now = Timestamp::from_second(now).unwrap();
        let none = (Materials::default(), Efforts::default());
        let (seen, due) = caches.observe_at(&none.0, &none.1, now, start + minute * minutes);
        (seen.clusters[0].stuck, due.map(|it| it.as_secs() / 60))
    };
    resume(&mut caches, "1970-01-01T00:00:00Z");
    // The process began long after that, or the clock is ahead.
    assert_eq!(stuck(&mut caches, 0, 99_999), (false, Some(20)));
    assert_eq!(stuck(&mut caches, 19, 99_999), (false, Some(1)));
    // Set back meanwhile.
    assert_eq!(stuck(&mut caches, 20, 0), (true, None));
    resume(&mut caches, "1970-01-01T01:00:00Z");
    assert_eq!(stuck(&mut caches, 30, 99_999), (false, Some(20)), "it resumes once more");
    caches.index.clusters.keep(&key_in("a", "a"), [(pool(), Arc::new(cluster("pool")))]);
    assert_eq!(stuck(&mut caches, 40, 99_999), (false, None));
    assert!(caches.learned.resuming.is_empty());
}

#[test]
fn a_cluster_is_idle_until_hive_has_begun_with_it() {
    let mut caches = Caches::new();
    let old = json!({ "creationTimestamp": "1960-01-01T00:00:00Z" });
    caches.put("a", "pool", &old);
    assert!(caches.look(None).clusters[0].idle);
    let mut begun = old;
    begun["resourceVersion"] = json!("2");
    caches.put_with("a", "pool", &begun, &json!({ "provisionRef": { "name": "p" } }));
    assert!(!caches.look(None).clusters[0].idle);
}

/// It would be waited for without a word.
#[test]
fn a_cluster_without_an_entry_has_no_lease_to_verify() {
    let mut caches = Caches::new();
    for (entry, unverified) in [("e", true), ("", false)] {
        let mut it = cluster("pool");
        let reference = it.spec.cluster_pool_ref.as_mut().unwrap();
        let named = NamedRef { name: Some(entry.to_owned()), ..NamedRef::default() };
        reference.cluster_deployment_customization = Some(named).filter(|_| !entry.is_empty());
        let note = (names::ferrite::LEASE_UNVERIFIED.to_owned(), "true".to_owned());
        it.metadata.annotations = Some(BTreeMap::from([note]));
        caches.index.clusters.keep(&key_in("a", "a"), [(pool(), Arc::new(it))]);
        assert_eq!(caches.look(None).clusters[0].unverified, unverified, "{entry:?}");
    }
}

#[test]
fn a_cluster_that_hive_does_not_begin_with_is_told_also_when_it_was_looked_after() {
    let mut caches = Caches::new();
    let old = json!({ "creationTimestamp": "1960-01-01T00:00:00Z" });
    let unmet = json!({ "type": "RequirementsMet", "status": "False", "reason": "No" });
    caches.put_with("a", "pool", &old, &json!({ "conditions": [unmet] }));
    let tended = BTreeMap::from([("a".to_owned(), Timestamp::UNIX_EPOCH)]);
    for (tended, idle) in [(BTreeMap::new(), true), (tended, false)] {
        let efforts = Efforts { tended, ..Efforts::default() };
        let (seen, _) = caches.observe(&Materials::default(), &efforts, Timestamp::UNIX_EPOCH);
        let cluster = &seen.clusters[0];
        assert_eq!((cluster.not_begun.as_deref(), cluster.idle), (Some("No"), idle));
    }
}

#[test]
fn a_cluster_that_a_lease_names_and_that_is_not_the_pools_is_among_the_others() {
    let mut caches = Caches::new();
    let others = |caches: &mut Caches, cluster: &str, namespace: &str| {
        let reference = json!({ "name": cluster, "namespace": namespace });
        let entry = Arc::new(
            serde_json::from_value(json!({
                "metadata": { "name": "e", "namespace": "pools", "uid": "u" },
                "spec": {}, "status": { "clusterDeploymentRef": reference },
            }))
            .unwrap(),
        );
        let key = key_in("pools", "e");
        caches.index.customizations.keep(&key, [(all_in("pools"), entry)]);
        caches.look(None).customizations.remove(0).others
    };
    let foo = |namespace: &str, metadata: Value| -> ClusterDeployment {
        let mut it = json!({ "metadata": metadata, "spec": {} });
        (it["metadata"]["name"], it["metadata"]["namespace"]) = (json!("foo"), json!(namespace));
        serde_json::from_value(it).unwrap()
    };
    assert_eq!(others(&mut caches, "foo", "foo-namespace"), [""; 0]);
    for namespace in ["foo-namespace", "foo"] {
        let it = foo(namespace, json!({}));
        caches.clusters.apply_watcher_event(&Event::Apply(it.clone()));
        assert_eq!(others(&mut caches, "foo", "foo-namespace"), ["foo"]);
        let gone = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        caches.clusters.apply_watcher_event(&Event::Apply(foo(namespace, gone)));
        assert_eq!(others(&mut caches, "foo", "foo-namespace"), [""; 0]);
        caches.clusters.apply_watcher_event(&Event::Delete(it));
    }
    // The pool's own, also where it is new and not among the pool's yet.
    assert_eq!(others(&mut caches, "a", "a"), [""; 0]);
    caches.index.clusters.keep(&key_in("a", "a"), []);
    assert_eq!(others(&mut caches, "a", "a"), [""; 0]);
}
