//! clusterpool-inventory: a large pool fills, rests, and gives its entries from one cluster to the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api_types::hive::ClusterPool;
use api_types::names::hive::{LEASE_FINALIZER, RECONCILE_PAUSE};
use bench::cluster_api::objects::Kind;
use bench::controller::Running;
use bench::hive::{CLOUDS, PULL, materials};
use bench::objects::{annotate, apply, hive, merge, namespace};
use clusterpool_inventory::decision::Version;
use clusterpool_inventory::make;
use clusterpool_inventory::patch::InstallConfig;
use clusterpool_inventory::platform::Platform;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::row::CACHED_MEGABYTES;
use super::watch::{self, Objects};
use super::{Ground, Operation, Round, Trial, each, fleet};

const CLUSTER: Kind = hive("ClusterDeployment");
const ENTRY: Kind = hive("ClusterDeploymentCustomization");
const RELEASE: &str = "release";
const TEMPLATE: &str = "\
apiVersion: v1
baseDomain: to.be.replaced
metadata: {name: to-be-replaced}
controlPlane: {name: master, replicas: 3}
compute: [{name: worker, replicas: 2}]
platform: {openstack: {cloud: here, externalNetwork: outside}}
";
/// Clusters that are deleted one after the other, and passes whose cost is measured.
const FREED: usize = 100;
const PASSES: u32 = 100;
/// From one write to the next: long enough for a pass.
const APART: Duration = Duration::from_millis(100);

/// A customization that names its cluster.
fn entry(name: &str) -> Value {
    let patch = json!({ "op": "replace", "path": "/metadata/name", "value": name });
    ENTRY.object(name, &json!({ "installConfigPatches": [patch] }))
}

struct ClustersMade;

impl Operation for ClustersMade {
    const NAME: &str = "clusters made";

    /// The writes that a cluster takes, of the very objects, by somebody who need not think; until somebody who watches has seen
    /// the last cluster, as with the controller's. For as many clusters: the API server collects its garbage each few seconds,
    /// and a shorter run falls between.
    async fn bare(ground: &Ground, client: Client, count: u32) -> anyhow::Result<f64> {
        let name = ground.plane.namespace("bare").await;
        entries(&ground.admin, &name, count).await?;
        let mut pool = hive("ClusterPool").object(&name, &spec(count));
        pool["metadata"] =
            json!({ "name": name, "namespace": name, "uid": fleet::node(0), "generation": 1 });
        let pool = serde_json::from_value(pool)?;
        let is_made = |it: &DynamicObject| may_install(it, &name);
        let mut seen = changes(&ground.admin);
        let began = Instant::now();
        let writes = each(0..count, async |n: u32| bare_cluster(&client, &pool, n).await);
        tokio::try_join!(writes, watch::seen(&mut seen, count, "every cluster is made", is_made))?;
        let rate = f64::from(9 * count) / began.elapsed().as_secs_f64();
        each(0..count, async |n: u32| removed(&ground.admin, &name, n).await).await?;
        Ok(rate)
    }

    /// A pool of that size with as many entries.
    async fn prepare(ground: &Ground, round: Round) -> anyhow::Result<()> {
        let (client, name) = (&ground.admin, pool_of(round.number));
        namespace(client, &name).await?;
        materials(client, &name, RELEASE, TEMPLATE).await?;
        entries(client, &name, round.count).await?;
        apply(client, Some(&name), &hive("ClusterPool").object(&name, &spec(round.count)))
            .await
            .map(drop)
    }

    /// Hive may install every cluster of the pool.
    async fn done(ground: &Ground, round: Round) -> anyhow::Result<()> {
        let pool = pool_of(round.number);
        let mut clusters = changes(&ground.admin);
        let is_made = |it: &DynamicObject| may_install(it, &pool);
        watch::seen(&mut clusters, round.count, "the pool fills", is_made).await
    }
}

async fn bare_cluster(client: &Client, pool: &ClusterPool, number: u32) -> anyhow::Result<()> {
    let (space, entry_name) = (pool.name_any(), format!("e{number}"));
    let name = format!("{space}-{number}");
    let platform = Platform::of(&pool.spec).context("the pool has a platform")?;
    let entries = ENTRY.api(client, &space);
    let (post, params) = (PostParams::default(), PatchParams::default());
    let finalizer = json!({ "metadata": { "finalizers": [LEASE_FINALIZER] } });
    let kept = entries.patch(&entry_name, &params, &Patch::Merge(finalizer)).await?;
    let lease = json!({
        "metadata": { "resourceVersion": kept.metadata.resource_version },
        "status": {
            "clusterDeploymentRef": { "name": name, "namespace": name },
            "conditions": [{
                "type": "Available", "status": "False", "reason": "ClusterDeploymentCustomizationInUse",
                "message": format!("Currently in use by cluster deployment {name} of clusterpool {space}"),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    });
    entries.patch_status(&entry_name, &params, &Patch::Merge(lease)).await?;
    let namespace = make::namespace(pool, &name, &fleet::node(number));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&post, &serde_json::from_value(namespace)?).await?;
    let secret = |key: &str, text: &str| {
        let data = [(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into();
        Some(make::Secret { kind: None, data, version: fleet::node(number) })
    };
    let materials = make::Materials {
        pull_secret: secret(".dockerconfigjson", PULL),
        credentials: secret("clouds.yaml", CLOUDS),
        ..make::Materials::default()
    };
    let (text, notes) = (TEMPLATE.to_owned(), Vec::new());
    let version = Version { name: entry_name.clone(), version: "1-0123456789abcdef".to_owned() };
    let new = make::NewCluster {
        name: &name,
        pool,
        platform,
        materials: &materials,
        entry: Some(&version),
        customizations: vec![serde_json::from_value(entry(&entry_name)).map(Arc::new)?],
        config: InstallConfig { text, name: entry_name.clone(), notes },
    };
    for (kind, part) in new.parts() {
        let parts: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name, &kind);
        parts.create(&post, &serde_json::from_value(part)?).await?;
    }
    let made = new.object(Some(true), true);
    let clusters = CLUSTER.api(client, &name);
    let made = clusters.create(&post, &serde_json::from_value(made)?).await?;
    let unpaused = json!({ "metadata": {
        "resourceVersion": made.metadata.resource_version,
        "annotations": { RECONCILE_PAUSE: null },
    } });
    clusters.patch_metadata(&name, &params, &Patch::Merge(unpaused)).await?;
    Ok(())
}

/// Nothing is left that the controller would put right when it starts.
async fn removed(client: &Client, pool: &str, number: u32) -> anyhow::Result<()> {
    let (cluster, entry) = (format!("{pool}-{number}"), format!("e{number}"));
    let unbound = json!({ "metadata": { "finalizers": null, "labels": null } });
    for (kind, space, name) in
        [(CLUSTER, cluster.as_str(), &cluster), (ENTRY, &cluster, &entry), (ENTRY, pool, &entry)]
    {
        let api = kind.api(client, space);
        merge(&api, name, &unbound).await?;
        api.delete(name, &DeleteParams::default()).await?;
    }
    // Only a namespace controller could delete it.
    merge(&Api::<Namespace>::all(client.clone()), &cluster, &unbound).await
}

async fn entries(client: &Client, namespace: &str, count: u32) -> anyhow::Result<()> {
    let entry =
        async |n: u32| apply(client, Some(namespace), &entry(&format!("e{n}"))).await.map(drop);
    each(0..count, entry).await
}

/// Pool and namespace of a round have one name.
fn pool_of(round: usize) -> String {
    format!("pool-{round}")
}

fn spec(count: u32) -> Value {
    let list: Vec<Value> = (0..count).map(|n| json!({ "name": format!("e{n}") })).collect();
    json!({
        "platform": { "openstack": { "cloud": "here", "credentialsSecretRef": { "name": "cloud" } } },
        "baseDomain": "example.com",
        "imageSetRef": { "name": RELEASE },
        "size": count,
        // Hive refuses less for a cloud that cannot hibernate.
        "runningCount": count,
        "pullSecretRef": { "name": "pull" },
        "installConfigSecretTemplateRef": { "name": "template" },
        "skipMachinePools": true,
        // The only form that Hive itself knows.
        "inventory": list,
    })
}

fn is_of(cluster: &DynamicObject, pool: &str) -> bool {
    cluster.data["spec"]["clusterPoolRef"]["poolName"] == pool
}

/// Clusters of the pool that Hive may install.
fn may_install(cluster: &DynamicObject, pool: &str) -> bool {
    is_of(cluster, pool) && !cluster.annotations().contains_key(RECONCILE_PAUSE)
}

fn changes(client: &Client) -> Objects<DynamicObject> {
    watch::objects(CLUSTER.all(client), watcher::Config::default())
}

/// The clusters of a pool.
async fn clusters(client: &Client, pool: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let mut found = CLUSTER.all(client).list(&ListParams::default()).await?.items;
    found.retain(|it| is_of(it, pool));
    Ok(found)
}

pub(super) async fn work(mut trial: Trial<'_>) -> anyhow::Result<()> {
    let count = trial.ground.hosts / 10;
    trial.operate::<ClustersMade>(count).await?;
    let Trial { ground, program, mut figures } = trial;
    let pool = pool_of(0);
    let running = program.start().await?;
    program.rest().await?;
    // Of Hive another controller gives an entry back, with all else that is the cluster's.
    if !program.is_peer {
        let mark = ground.audit.mark().await?;
        let cost = pass_at_rest(ground, &running, &pool).await?;
        let writes = program.writes(&ground.audit.since(mark).await?) as f64;
        let what = format!("ms of processor time of a pass over {count} clusters");
        figures.limited(what, cost, 5.0)?;
        figures.limited(format!("writes of {PASSES} passes without news"), writes, 0.0)?;
        let took = freed(ground, &pool, FREED).await?;
        let what = "ms from an entry that is free to its next lease";
        figures.percentiles(what, took, Some(100.0))?;
    }
    let what = format!("megabytes resident with {count} clusters");
    figures.limited(what, running.resident_megabytes()?, CACHED_MEGABYTES)?;
    running.stop().await
}

/// Somebody writes to clusters what says nothing: each time the pool is looked at once more. The program is asked at the
/// beginning and at the end only, as it computes its answer too.
async fn pass_at_rest(ground: &Ground, running: &Running, pool: &str) -> anyhow::Result<f64> {
    const PASSED: &str = "controller_runtime_reconcile_total";
    let clusters = clusters(&ground.admin, pool).await?;
    let mut clusters = clusters.iter().map(ResourceExt::name_any).cycle();
    let (before, cpu) = (running.metric(PASSED).await?, running.cpu_ms()?);
    for turn in 0..PASSES {
        let name = clusters.next().context("the pool has no cluster")?;
        let api = CLUSTER.api(&ground.admin, &name);
        annotate(&api, &name, "ferrite.test/turn", Some(&turn.to_string())).await?;
        tokio::time::sleep(APART).await;
    }
    let cpu = running.cpu_ms()? - cpu;
    let passes = running.metric(PASSED).await? - before;
    ensure!(passes >= f64::from(PASSES) / 2.0, "only {passes} passes for {PASSES} writes");
    Ok(cpu / passes)
}

/// How long each entry stays free when its cluster is deleted, in a pool that wants all of them.
async fn freed(ground: &Ground, pool: &str, count: usize) -> anyhow::Result<Vec<Duration>> {
    let client = &ground.admin;
    let mut made = watch::from_now(CLUSTER.all(client)).await?;
    let mut entries = watch::from_now(ENTRY.api(client, pool)).await?;
    let mut took = Vec::new();
    let old = clusters(client, pool).await?;
    let mut known: Vec<String> = old.iter().map(ResourceExt::name_any).collect();
    for cluster in old.iter().take(count) {
        let name = cluster.name_any();
        let reference = &cluster.data["spec"]["clusterPoolRef"]["clusterDeploymentCustomization"];
        let entry = reference["name"].as_str().unwrap_or_default();
        let lease = async {
            let has = |it: &DynamicObject, is_next: fn(&Value, &str) -> bool| {
                let cluster = &it.data["status"]["clusterDeploymentRef"]["name"];
                it.name_any() == entry && is_next(cluster, &name)
            };
            let free = |it: &DynamicObject| has(it, |cluster, _| cluster.is_null());
            watch::next(&mut entries, "an entry becomes free", free).await?;
            let freed = Instant::now();
            let used = |it: &DynamicObject| has(it, |now, before| now.is_string() && now != before);
            watch::next(&mut entries, "a free entry is used", used).await?;
            anyhow::Ok(freed.elapsed())
        };
        let delete = async {
            let api = CLUSTER.api(client, &name);
            api.delete(&name, &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        let (waited, ()) = tokio::try_join!(lease, delete)?;
        took.push(waited);
        // The next one finds a pool at rest.
        let is_new = |it: &DynamicObject| may_install(it, pool) && !known.contains(&it.name_any());
        let new = watch::next(&mut made, "a cluster takes its place", is_new).await?;
        known.push(new.name_any());
    }
    Ok(took)
}
