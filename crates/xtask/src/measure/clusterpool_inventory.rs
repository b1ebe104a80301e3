//! clusterpool-inventory: a large pool fills, rests, and gives its entries from one cluster to the next.

use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api_types::hive::ClusterPool;
use bench::{crds, hive, load};
use clusterpool_inventory::make;
use clusterpool_inventory::platform::Platform;
use clusterpool_inventory::seen::Part;
use controller_kit::crd;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::program::Running;
use super::{
    Environment, Figure, Ground, Limits, Operation, Program, Round, Work, account, fleet, rest,
    watch,
};

pub(super) const WORK: Work = Work {
    controller: "clusterpool-inventory",
    build: &["--package=clusterpool-inventory", "--bin=clusterpool-inventory"],
    program: "clusterpool-inventory",
    chart: Some("clusterpool-inventory"),
    values: "{}",
    neighbours: |ground| Box::pin(neighbours(ground)),
    limits: Limits { megabytes: 15.0, ready_ms: 300.0, resident_megabytes: 15.0, share: 0.8 },
    operation: Some(Operation {
        name: "clusters made",
        count: clusters_of,
        rounds: 1,
        bare: |ground, client, round| Box::pin(bare(ground, client, round)),
        prepare: |ground, round| Box::pin(prepare(ground, round)),
        done: |ground, round| Box::pin(done(ground, round)),
    }),
    further: Some(|ground, program| Box::pin(further(ground, program))),
};

const RELEASE: &str = "release";
const TEMPLATE: &str = "\
apiVersion: v1
baseDomain: to.be.replaced
metadata: {name: to-be-replaced}
controlPlane: {name: master, replicas: 3}
compute: [{name: worker, replicas: 2}]
platform: {openstack: {cloud: here, externalNetwork: outside}}
";
const PULL: &str = "{\"auths\":{}}";
const CLOUDS: &str = "clouds: {}";
const PAUSE: &str = api_types::names::hive::RECONCILE_PAUSE;
const OWNER: &str = api_types::names::ferrite::POOL_OWNER;
/// As many clusters as the controller begins at the same time.
const BEGUN_AT_ONCE: usize = 32;
/// Clusters that are deleted one after the other, and passes whose cost is measured.
const FREED: usize = 100;
const PASSES: u32 = 100;
/// From one write to the next: long enough for a pass.
const APART: Duration = Duration::from_millis(100);
/// A watch that has nothing new for so long has told all.
const QUIET: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(1800);

fn clusters_of(hosts: u32) -> u32 {
    hosts / 10
}

async fn neighbours(ground: &Ground) -> anyhow::Result<Environment> {
    crds::install(&ground.admin, &[crds::Group::Hive]).await?;
    let needed = clusterpool_inventory::settings::needed();
    crd::extend(&ground.admin, &needed, false).await.map_err(anyhow::Error::msg)?;
    let sets: Api<DynamicObject> =
        Api::all_with(ground.admin.clone(), &hive::kind("ClusterImageSet"));
    let set = object(
        "ClusterImageSet",
        RELEASE,
        &json!({ "releaseImage": "registry.example.com/release:1" }),
    )?;
    match sets.create(&PostParams::default(), &set).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    Ok(Environment::new())
}

fn object(kind: &str, name: &str, spec: &Value) -> anyhow::Result<DynamicObject> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": kind,
        "metadata": { "name": name },
        "spec": spec,
    }))?)
}

/// A customization that names its cluster.
fn entry(name: &str) -> anyhow::Result<DynamicObject> {
    let patch = json!({ "op": "replace", "path": "/metadata/name", "value": name });
    object("ClusterDeploymentCustomization", name, &json!({ "installConfigPatches": [patch] }))
}

/// The writes that a cluster takes, of the very objects, by somebody who need not think; until somebody who watches has seen
/// the last cluster, as with the controller's. For as many clusters: the API server collects its garbage each few seconds,
/// and a shorter run falls between.
async fn bare(ground: &Ground, client: Client, round: Round) -> anyhow::Result<f64> {
    let (count, name) = (round.count, format!("bare-{}", round.number));
    fleet::namespace(ground, &name).await?;
    entries(&ground.admin, &name, count).await?;
    let pool = serde_json::from_value(json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterPool",
        "metadata": { "name": name, "namespace": name, "uid": fleet::node(0), "generation": 1 },
        "spec": spec(count),
    }))?;
    let unpaused = |it: &DynamicObject| {
        let is_ours = it.annotations().get(&nobodys(OWNER)).is_some_and(|it| *it == name);
        is_ours && !it.annotations().contains_key(&nobodys(PAUSE))
    };
    let mut seen = pin!(changes(&ground.admin, "ClusterDeployment"));
    let began = Instant::now();
    let cluster = async |n: u32| bare_cluster(&client, &pool, n).await;
    let writes =
        stream::iter(0..count).map(cluster).buffer_unordered(BEGUN_AT_ONCE).try_collect::<()>();
    tokio::try_join!(writes, all_made(seen.as_mut(), count, unpaused))?;
    let rate = f64::from(9 * count) / began.elapsed().as_secs_f64();
    // The controller remembers every cluster there is.
    let gone = async |n: u32| {
        let name = format!("{name}-{n}");
        let api = hive::api(&ground.admin, &name, "ClusterDeployment");
        let bare = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        api.patch_metadata(&name, &PatchParams::default(), &bare).await?;
        api.delete(&name, &DeleteParams::default()).await?;
        anyhow::Ok(())
    };
    stream::iter(0..count).map(gone).buffer_unordered(BEGUN_AT_ONCE).try_collect::<()>().await?;
    Ok(rate)
}

async fn bare_cluster(client: &Client, pool: &ClusterPool, number: u32) -> anyhow::Result<()> {
    let (space, entry_name) = (pool.name_any(), format!("e{number}"));
    let name = format!("{space}-{number}");
    let platform = Platform::of(&pool.spec).context("the pool has a platform")?;
    let entries = hive::api(client, &space, "ClusterDeploymentCustomization");
    let (post, params) = (PostParams::default(), PatchParams::default());
    let finalizer = json!({ "metadata": { "finalizers": [nobodys("inventory-lease")] } });
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
    let namespace = of_nobody(make::namespace(pool, &name, &fleet::node(number)), &space);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&post, &serde_json::from_value(namespace)?).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &name);
    let secret = |part, key: &str, text: &str| {
        let data = [(key.to_owned(), ByteString(text.as_bytes().to_vec()))].into();
        let secret = make::Secret { kind: None, data, version: fleet::node(number) };
        make::copy(pool, &name, &make::secret_name(&name, part, platform.name), &secret)
    };
    for secret in [
        make::install_config(pool, &name, TEMPLATE),
        secret(Part::PullSecret, ".dockerconfigjson", PULL),
        secret(Part::Credentials, "clouds.yaml", CLOUDS),
    ] {
        let secret = of_nobody(secret, &space);
        secrets.create(&post, &serde_json::from_value(secret)?).await?;
    }
    let source = serde_json::from_value(serde_json::to_value(entry(&entry_name)?)?)?;
    let copy = of_nobody(make::customization(pool, &name, &source), &space);
    let copies = hive::api(client, &name, "ClusterDeploymentCustomization");
    copies.create(&post, &serde_json::from_value(copy)?).await?;
    let wanted = make::Wanted {
        cluster: &name,
        pool_version: "0123456789abcdef",
        entry: Some((&entry_name, "1-0123456789abcdef")),
        installed_name: Some(&entry_name),
        run: Some(true),
        paused: true,
    };
    let made = of_nobody(make::cluster(pool, platform, &wanted), &space);
    let clusters = hive::api(client, &name, "ClusterDeployment");
    let made = clusters.create(&post, &serde_json::from_value(made)?).await?;
    let unpaused = json!({ "metadata": {
        "resourceVersion": made.metadata.resource_version,
        "annotations": { nobodys(PAUSE): null },
    } });
    clusters.patch_metadata(&name, &params, &Patch::Merge(unpaused)).await?;
    Ok(())
}

/// A name that no controller knows, as long as the one that it stands for.
fn nobodys(name: &str) -> String {
    format!("ferrite.test/{}", name.rsplit('/').next().unwrap_or(name))
}

/// The same object, of which nothing says that it is of a pool, or the controller would put it right.
fn of_nobody(mut object: Value, pool: &str) -> Value {
    for field in ["labels", "annotations"] {
        if let Some(all) = object["metadata"][field].as_object_mut() {
            *all = std::mem::take(all).into_iter().map(|(key, it)| (nobodys(&key), it)).collect();
        }
    }
    for finalizer in object["metadata"]["finalizers"].as_array_mut().into_iter().flatten() {
        *finalizer = json!(nobodys(finalizer.as_str().unwrap_or_default()));
    }
    object["metadata"]["annotations"][nobodys(OWNER)] = json!(pool);
    if let Some(reference) = object["spec"]["clusterPoolRef"].as_object_mut().map(std::mem::take) {
        object["spec"].as_object_mut().map(|it| it.remove("clusterPoolRef"));
        let text = Value::Object(reference).to_string();
        object["metadata"]["annotations"][nobodys("reference")] = json!(text);
    }
    object
}

async fn entries(client: &Client, namespace: &str, count: u32) -> anyhow::Result<()> {
    let api = hive::api(client, namespace, "ClusterDeploymentCustomization");
    let make = async |n: u32| {
        api.create(&PostParams::default(), &entry(&format!("e{n}"))?).await?;
        anyhow::Ok(())
    };
    stream::iter(0..count).map(make).buffer_unordered(BEGUN_AT_ONCE).try_collect().await
}

/// Pool and namespace of a round have one name.
fn pool_of(round: usize) -> String {
    format!("pool-{round}")
}

/// A pool of that size with as many entries.
async fn prepare(ground: &Ground, round: Round) -> anyhow::Result<()> {
    let (client, name) = (&ground.admin, pool_of(round.number));
    fleet::namespace(ground, &name).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &name);
    for (secret, key, text) in [
        ("template", "install-config.yaml", TEMPLATE),
        ("pull", ".dockerconfigjson", PULL),
        ("cloud", "clouds.yaml", CLOUDS),
    ] {
        let secret = json!({ "metadata": { "name": secret }, "stringData": { key: text } });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    }
    entries(client, &name, round.count).await?;
    let pools = hive::api(client, &name, "ClusterPool");
    pools
        .create(&PostParams::default(), &object("ClusterPool", &name, &spec(round.count))?)
        .await?;
    Ok(())
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

fn changes(client: &Client, kind: &str) -> impl Stream<Item = watcher::Result<DynamicObject>> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &hive::kind(kind));
    watch::objects(all, watcher::Config::default())
}

/// Hive may install every cluster of the pool.
async fn done(ground: &Ground, round: Round) -> anyhow::Result<()> {
    let pool = pool_of(round.number);
    let clusters = pin!(changes(&ground.admin, "ClusterDeployment"));
    let unpaused = |it: &DynamicObject| is_of(it, &pool) && !it.annotations().contains_key(PAUSE);
    all_made(clusters, round.count, unpaused).await
}

/// So many clusters were seen of which that is true.
async fn all_made(
    mut seen: Pin<&mut impl Stream<Item = watcher::Result<DynamicObject>>>,
    count: u32,
    is_made: impl Fn(&DynamicObject) -> bool,
) -> anyhow::Result<()> {
    let waiting = async {
        let mut made = BTreeSet::new();
        while made.len() < usize::try_from(count)? {
            let cluster = seen.try_next().await?.context("the watch on the clusters ended")?;
            if is_made(&cluster) {
                made.insert(cluster.name_any());
            }
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, waiting).await.context("the pool does not fill")?
}

async fn further(ground: &Ground, program: &Program<'_>) -> anyhow::Result<Vec<Figure>> {
    let account = account(ground, program).await?;
    let pool = newest(ground).await?;
    let count = clusters_of(ground.hosts);
    let running = Running::start(ground, program, &account).await?;
    rest(ground, &account).await?;
    let mut figures = Vec::new();
    // Of Hive another controller gives an entry back, with all else that is the cluster's.
    if !program.is_peer {
        let mark = ground.audit.mark().await?;
        let cost = pass_at_rest(ground, &running, &pool).await?;
        let writes = ground.audit.since(mark).await?.writes(&account.user, &["leases"]);
        figures.push(Figure {
            what: format!("ms of processor time of a pass over {count} clusters"),
            value: cost,
            at_most: Some(5.0),
        });
        figures.push(Figure {
            what: format!("writes of {PASSES} passes without news"),
            value: writes as f64,
            at_most: Some(0.0),
        });
        let took = freed(ground, &pool, FREED).await?;
        let figure = |percent, at_most| Figure {
            what: format!("ms from an entry that is free to its next lease, p{percent}"),
            value: load::millis(load::quantile(&took, percent)),
            at_most,
        };
        figures.extend([figure(50, None), figure(99, Some(100.0))]);
    }
    figures.push(Figure {
        what: format!("megabytes resident with {count} clusters"),
        value: running.resident_megabytes()?,
        at_most: Some(64.0),
    });
    running.stop().await?;
    Ok(figures)
}

/// The pool that the program's own turn filled.
async fn newest(ground: &Ground) -> anyhow::Result<String> {
    let all: Api<DynamicObject> = Api::all_with(ground.admin.clone(), &hive::kind("ClusterPool"));
    let found = all.list(&kube::api::ListParams::default()).await?.items;
    let newest = found.into_iter().max_by_key(|it| it.creation_timestamp().map(|it| it.0));
    Ok(newest.context("no pool was filled")?.name_any())
}

/// Somebody writes to clusters what says nothing: each time the pool is looked at once more. The program is asked at the
/// beginning and at the end only, as it computes its answer too.
async fn pass_at_rest(ground: &Ground, running: &Running, pool: &str) -> anyhow::Result<f64> {
    const PASSED: &str = "controller_runtime_reconcile_total";
    let all: Api<DynamicObject> =
        Api::all_with(ground.admin.clone(), &hive::kind("ClusterDeployment"));
    let mut clusters = all.list(&kube::api::ListParams::default()).await?.items;
    clusters.retain(|it| is_of(it, pool));
    let mut clusters = clusters.iter().map(ResourceExt::name_any).cycle();
    let (before, cpu) = (running.metric(PASSED).await?, running.cpu_ms()?);
    for turn in 0..PASSES {
        let name = clusters.next().context("the pool has no cluster")?;
        let note =
            json!({ "metadata": { "annotations": { "ferrite.test/turn": turn.to_string() } } });
        let api = hive::api(&ground.admin, &name, "ClusterDeployment");
        api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(note)).await?;
        tokio::time::sleep(APART).await;
    }
    let cpu = running.cpu_ms()? - cpu;
    let passes = running.metric(PASSED).await? - before;
    ensure!(passes >= f64::from(PASSES) / 2.0, "only {passes} passes for {PASSES} writes");
    Ok(cpu / passes)
}

/// How long each entry stays free when its cluster is deleted, in a pool that wants all of them.
async fn freed(ground: &Ground, pool: &str, count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut clusters = pin!(changes(&ground.admin, "ClusterDeployment"));
    let mut entries = pin!(changes(&ground.admin, "ClusterDeploymentCustomization"));
    // Both watches begin with what is there.
    while let Ok(seen) = tokio::time::timeout(QUIET, clusters.try_next()).await {
        seen?;
    }
    while let Ok(seen) = tokio::time::timeout(QUIET, entries.try_next()).await {
        seen?;
    }
    let mut took = Vec::new();
    let all: Api<DynamicObject> =
        Api::all_with(ground.admin.clone(), &hive::kind("ClusterDeployment"));
    let mut old = all.list(&kube::api::ListParams::default()).await?.items;
    old.retain(|it| is_of(it, pool));
    let mut known: BTreeSet<String> = old.iter().map(ResourceExt::name_any).collect();
    for cluster in old.iter().take(count) {
        let name = cluster.name_any();
        let reference = &cluster.data["spec"]["clusterPoolRef"]["clusterDeploymentCustomization"];
        let entry = reference["name"].as_str().unwrap_or_default().to_owned();
        let holder = |it: &DynamicObject| {
            it.data["status"]["clusterDeploymentRef"]["name"].as_str().map(str::to_owned)
        };
        let lease = async {
            let mut freed = None;
            while let Some(it) = entries.try_next().await? {
                if it.name_any() != entry || it.namespace().as_deref() != Some(pool) {
                    continue;
                }
                match (holder(&it), freed) {
                    (None, None) => freed = Some(Instant::now()),
                    (Some(now), Some(since)) if now != name => return Ok(since.elapsed()),
                    _ => {}
                }
            }
            bail!("the watch on the entries ended")
        };
        let delete = async {
            let api = hive::api(&ground.admin, &name, "ClusterDeployment");
            api.delete(&name, &DeleteParams::default()).await?;
            anyhow::Ok(())
        };
        let both = async { tokio::try_join!(lease, delete) };
        let (waited, ()) =
            tokio::time::timeout(PATIENCE, both).await.context("a free entry is not used")??;
        took.push(waited);
        // The next one finds a pool at rest.
        let made = async {
            while let Some(it) = clusters.try_next().await? {
                let paused = it.annotations().contains_key(PAUSE);
                if is_of(&it, pool) && !paused && known.insert(it.name_any()) {
                    return anyhow::Ok(());
                }
            }
            bail!("the watch on the clusters ended")
        };
        tokio::time::timeout(PATIENCE, made).await.context("no cluster takes its place")??;
    }
    took.sort_unstable();
    Ok(took)
}
