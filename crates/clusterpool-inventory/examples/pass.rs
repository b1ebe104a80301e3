//! Prints how many milliseconds a look at a pool of so many clusters takes, and the decision about it: `pass 1000`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api_types::hive::{
    ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, EntryState, EntryStatus,
};
use api_types::names;
use clusterpool_inventory::context::Caches;
use clusterpool_inventory::decide::decide;
use clusterpool_inventory::index::{Index, all_in, key_in};
use clusterpool_inventory::make::Materials;
use clusterpool_inventory::model::{Efforts, Key, Learned};
use clusterpool_inventory::observe::{Known, observe};
use clusterpool_inventory::settings::Policy;
use controller_kit::cache::Cache;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Enough that one slow moment of the machine does not count.
const PASSES: u32 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clusters: usize = std::env::args().nth(1).ok_or("usage: pass <clusters>")?.parse()?;
    let key: Key = key_in("pools", "pool");
    let (stores, index) = full(&key, clusters)?;
    let policy = Policy::default();
    let config = json!({
        "apiVersion": "v1", "baseDomain": "example.com", "metadata": { "name": "x" },
        "platform": { "openstack": { "cloud": "here" } },
    });
    let materials = Materials { config: Some(config), ..Materials::default() };
    let (mut learned, efforts) = (Learned::default(), Efforts::default());
    let (mut looking, mut deciding) = (Duration::ZERO, Duration::ZERO);
    for pass in 0..=PASSES {
        let now = Timestamp::now();
        let known = Known {
            caches: &stores,
            index: &index,
            key: &key,
            policy: &policy,
            materials: &materials,
            rival: None,
            efforts: &efforts,
            now,
            moment: Instant::now(),
        };
        let began = Instant::now();
        let (seen, _) = observe(&known, &mut learned);
        let looked = Instant::now();
        let decision = decide(&seen, &policy, now);
        // The first one tries the patches.
        if pass > 0 {
            looking += looked - began;
            deciding += looked.elapsed();
        }
        if !decision.work.is_empty() {
            return Err(format!("the pool is not at rest: {:?}", decision.work[0]).into());
        }
    }
    let each = |all: Duration| all.as_secs_f64() * 1e3 / f64::from(PASSES);
    println!("{:.2} {:.2}", each(looking), each(deciding));
    Ok(())
}

/// A pool at rest, each of whose entries has a cluster that runs.
fn full(key: &Key, clusters: usize) -> Result<(Caches, Index), serde_json::Error> {
    let mut index = Index::default();
    let name = |number: usize| format!("pool-{number:05}");
    let entry = |number: usize| format!("entry-{number}");
    let mut made: Vec<Value> = Vec::new();
    let mut entries: Vec<Value> = Vec::new();
    let mut namespaces: Vec<Value> = Vec::new();
    let mut states = BTreeMap::new();
    index.pools.put(key, [all_in(&key.namespace)]);
    index.lists.put(key, (0..clusters).map(|it| key_in(&key.namespace, &entry(it))));
    for number in 0..clusters {
        let (cluster, entry) = (name(number), entry(number));
        let version = format!("1-uid-{entry}");
        let metadata = |name: &str, namespace: Option<&str>| {
            json!({
                "name": name, "namespace": namespace, "uid": format!("uid-{name}"), "generation": 1,
                "resourceVersion": "7", "creationTimestamp": Time(Timestamp::now()),
                "labels": { "hive.openshift.io/clusterpool-name": key.name },
            })
        };
        let mut of_cluster = metadata(&cluster, Some(&cluster));
        of_cluster["finalizers"] = json!(["hive.openshift.io/clusterpool-inventory", "other"]);
        of_cluster["annotations"] = json!({
            "hive.openshift.io/cluster-pool-spec-hash": "v",
            "ferrite.metal3.io/customization-version": version,
        });
        made.push(json!({
            "metadata": of_cluster,
            "spec": {
                "clusterName": cluster, "baseDomain": "example.com",
                // Half of them are on their way, as on the bench all are.
                "installed": number % 2 == 0,
                "clusterPoolRef": {
                    "namespace": key.namespace, "poolName": key.name,
                    "clusterDeploymentCustomization": { "name": entry },
                },
            },
            "status": { "powerState": "Running", "conditions": [] },
        }));
        let mut of_entry = metadata(&entry, Some(&key.namespace));
        of_entry["finalizers"] = json!(["hive.openshift.io/inventory-lease"]);
        entries.push(json!({
            "metadata": of_entry,
            "spec": { "installConfigPatches": [
                { "op": "replace", "path": "/metadata/name", "value": entry },
            ]},
            "status": {
                "clusterDeploymentRef": { "name": cluster, "namespace": cluster },
                "clusterPoolRef": { "name": key.name },
                "conditions": [{ "type": "Available", "status": "False", "reason": "InUse" }],
            },
        }));
        let mut of_namespace = metadata(&cluster, None);
        of_namespace["annotations"] = json!({ names::ferrite::POOL_OWNER: format!("{}/{}/uid-pool", key.namespace, key.name) });
        namespaces.push(json!({ "metadata": of_namespace }));
        let state = EntryState {
            version: Some(version),
            status: EntryStatus::Reserved,
            attempts: Some(3),
            cluster_deployment_ref: serde_json::from_value(json!({ "name": cluster })).ok(),
            ..EntryState::default()
        };
        let of_entry = key_in(&key.namespace, &entry);
        states.insert(entry, state);
        let of_cluster = key_in(&cluster, &cluster);
        index.users.put(&of_cluster, [of_entry.clone()]);
        index.namespaces.put(&key_in("", &cluster), [key.clone()]);
        index.leases.put(&of_entry, [key.clone()]);
    }
    let names: Vec<Value> = (0..clusters).map(|it| json!({ "name": entry(it) })).collect();
    let mut pool: ClusterPool = serde_json::from_value(json!({
        "metadata": {
            "name": key.name, "namespace": key.namespace, "uid": "uid-pool", "resourceVersion": "9",
            "finalizers": ["hive.openshift.io/clusters"],
        },
        "spec": {
            "platform": { "openstack": { "cloud": "here" } }, "baseDomain": "example.com",
            "imageSetRef": { "name": "release" }, "size": clusters,
            "inventory": { "ClusterDeploymentCustomizations": names },
        },
    }))?;
    let version = clusterpool_inventory::pool_version::pool_version(&pool.spec).own;
    for cluster in &mut made {
        cluster["metadata"]["annotations"]["hive.openshift.io/cluster-pool-spec-hash"] =
            json!(version);
    }
    pool.status = Some(serde_json::from_value(json!({ "size": clusters, "ready": clusters }))?);
    if let Some(status) = &mut pool.status {
        status.inventory = states;
    }
    let clusters = read::<ClusterDeployment>(made)?;
    for it in clusters.state() {
        index.clusters.keep(&Key::of(&*it), [(key.clone(), it)]);
    }
    let customizations = read::<ClusterDeploymentCustomization>(entries)?;
    for it in customizations.state() {
        index.customizations.keep(&Key::of(&*it), [(all_in(&key.namespace), it)]);
    }
    let stores = Caches {
        pools: Cache::of(store(vec![pool]), ()),
        customizations: Cache::of(customizations, ()),
        clusters: Cache::of(clusters, ()),
        claims: Cache::of(store(Vec::new()), ()),
        namespaces: Cache::of(read::<Namespace>(namespaces)?, ()),
        bindings: Cache::of(store(Vec::new()), ()),
    };
    Ok((stores, index))
}

fn read<K>(objects: Vec<Value>) -> Result<Store<K>, serde_json::Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + 'static,
{
    let read: Result<Vec<K>, _> = objects.into_iter().map(serde_json::from_value).collect();
    Ok(store(read?))
}

fn store<K>(objects: Vec<K>) -> Store<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    let mut writer = Writer::new(());
    for object in objects {
        writer.apply_watcher_event(&Event::Apply(object));
    }
    writer.as_reader()
}
