//! What must hold after every write of every actor, as far as objects show it, and what must be so at rest.

use bench::observer::{Invariant, World};
use k8s_openapi::ByteString;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

const OWNER: &str = "ferrite.metal3.io/pool";
const LEASED: &str = "hive.openshift.io/inventory-lease";

pub(super) fn of<'a>(
    world: &'a World,
    resource: &'a str,
) -> impl Iterator<Item = &'a DynamicObject> {
    world.iter().filter(move |(key, _)| key.resource == resource).map(|(_, object)| object)
}

pub(super) fn clusters(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "clusterdeployments")
}

/// The entries, not their copies.
pub(super) fn entries(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "clusterdeploymentcustomizations").filter(|it| !it.annotations().contains_key(OWNER))
}

pub(super) fn entry_of(cluster: &DynamicObject) -> &str {
    let reference = &cluster.data["spec"]["clusterPoolRef"]["clusterDeploymentCustomization"];
    reference["name"].as_str().unwrap_or_default()
}

fn pool_of(cluster: &DynamicObject) -> &str {
    cluster.data["spec"]["clusterPoolRef"]["poolName"].as_str().unwrap_or_default()
}

pub(super) fn holder(entry: &DynamicObject) -> Option<&str> {
    entry.data["status"]["clusterDeploymentRef"]["name"].as_str()
}

pub(super) fn is_deleting(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

fn has_finalizer(object: &DynamicObject, name: &str) -> bool {
    object.finalizers().iter().any(|it| it == name)
}

/// Hive is or may be at it.
fn is_live(cluster: &DynamicObject) -> bool {
    let paused = cluster.annotations().contains_key("hive.openshift.io/reconcile-pause");
    has_finalizer(cluster, "hive.openshift.io/deprovision") || !paused && !is_deleting(cluster)
}

/// Hive installs it, or did.
fn is_whole(cluster: &DynamicObject) -> bool {
    is_live(cluster) && !is_deleting(cluster)
}

pub(super) fn is_ready(cluster: &DynamicObject) -> bool {
    cluster.data["status"]["powerState"] == "Running" && !is_deleting(cluster)
}

/// Generation and uid: what the controller calls an entry's version.
pub(super) fn version(entry: &DynamicObject) -> String {
    format!("{}-{}", entry.metadata.generation.unwrap_or_default(), entry.uid().unwrap_or_default())
}

/// What a pool says of an entry.
fn state<'a>(world: &'a World, pool: &str, entry: &str) -> &'a Value {
    let found = of(world, "clusterpools").find(|it| it.name_any() == pool);
    found.map_or(&Value::Null, |it| &it.data["status"]["inventory"][entry])
}

fn one_cluster(world: &World) -> Result<(), String> {
    for entry in entries(world) {
        let name = entry.name_any();
        let users: Vec<String> = clusters(world)
            .filter(|it| entry_of(it) == name && is_live(it))
            .map(ResourceExt::name_any)
            .collect();
        if users.len() > 1 {
            return Err(format!("{name} is in {}", users.join(" and ")));
        }
    }
    Ok(())
}

fn leased(world: &World) -> Result<(), String> {
    for cluster in clusters(world).filter(|it| is_whole(it)) {
        let Some(entry) = entries(world).find(|it| it.name_any() == entry_of(cluster)) else {
            continue;
        };
        let name = cluster.name_any();
        let available = entry.data["status"]["conditions"].as_array().is_some_and(|all| {
            all.iter().any(|it| it["type"] == "Available" && it["status"] == "True")
        });
        let pool = &entry.data["status"]["clusterPoolRef"]["name"];
        if holder(entry) != Some(name.as_str()) || available || *pool != *pool_of(cluster) {
            return Err(format!("{name} lives without its lease: {}", entry.data["status"]));
        }
    }
    Ok(())
}

fn never_changes_hands(before: &World, after: &World) -> Result<(), String> {
    for entry in entries(after) {
        let earlier = entries(before).find(|it| it.uid() == entry.uid()).and_then(holder);
        if let (Some(old), Some(new)) = (earlier, holder(entry))
            && old != new
        {
            return Err(format!("{} went from {old} to {new}", entry.name_any()));
        }
    }
    Ok(())
}

fn kept(world: &World) -> Result<(), String> {
    for entry in entries(world) {
        if holder(entry).is_some() && !has_finalizer(entry, LEASED) {
            return Err(format!("{} is leased and could be deleted", entry.name_any()));
        }
    }
    for cluster in clusters(world).filter(|it| !entry_of(it).is_empty()) {
        if has_finalizer(cluster, "hive.openshift.io/clusterpool-inventory") {
            continue;
        }
        let name = cluster.name_any();
        let holds = entries(world).any(|it| holder(it) == Some(name.as_str()));
        if !is_deleting(cluster) || holds {
            return Err(format!("{name} would go without giving its lease back"));
        }
    }
    Ok(())
}

/// Hive writes `installed` some time after it was told to begin.
fn within_limits(world: &World) -> Result<(), String> {
    for pool in of(world, "clusterpools") {
        let (name, spec) = (pool.name_any(), &pool.data["spec"]);
        let ours: Vec<_> = clusters(world).filter(|it| pool_of(it) == name).collect();
        let installing = |it: &&&DynamicObject| {
            is_deleting(it) || it.data["spec"]["installed"] != true && !has_stopped(it)
        };
        let busy = ours.iter().filter(installing).count() as u64;
        if spec["maxConcurrent"].as_u64().is_some_and(|most| busy > most) {
            return Err(format!("{busy} clusters of {name} are installed or removed at once"));
        }
        if spec["maxSize"].as_u64().is_some_and(|most| ours.len() as u64 > most) {
            return Err(format!("{name} has {} clusters", ours.len()));
        }
    }
    Ok(())
}

fn has_stopped(cluster: &DynamicObject) -> bool {
    cluster.data["status"]["conditions"].as_array().is_some_and(|all| {
        all.iter().any(|it| it["type"] == "ProvisionStopped" && it["status"] == "True")
    })
}

fn claimed_stay(world: &World) -> Result<(), String> {
    for cluster in clusters(world) {
        let claim = cluster.data["spec"]["clusterPoolRef"]["claimName"].as_str().is_some();
        let marked =
            cluster.annotations().contains_key("hive.openshift.io/remove-cluster-from-pool");
        if claim && is_deleting(cluster) && !marked {
            return Err(format!("{} is claimed and was deleted", cluster.name_any()));
        }
    }
    Ok(())
}

fn attempts(before: &World, after: &World) -> Result<(), String> {
    for pool in of(after, "clusterpools") {
        let name = pool.name_any();
        for (entry, now) in pool.data["status"]["inventory"].as_object().into_iter().flatten() {
            let old = state(before, &name, entry);
            let (Some(was), Some(left)) = (old["attempts"].as_i64(), now["attempts"].as_i64())
            else {
                continue;
            };
            let same = old["version"] == now["version"];
            let succeeded = clusters(after)
                .any(|it| entry_of(it) == entry && it.data["spec"]["installed"] == true);
            if left < 0 || same && left < was - 1 || same && left > was && !succeeded {
                return Err(format!("{entry} of {name} had {was} attempts and has {left}"));
            }
            let failed = |state: &Value| state["lastFailure"]["clusterDeployment"].clone();
            if same && left < was && (failed(now).is_null() || failed(now) == failed(old)) {
                return Err(format!("{entry} of {name} lost an attempt to {}", failed(now)));
            }
        }
    }
    Ok(())
}

fn broken_are_not_used(before: &World, after: &World) -> Result<(), String> {
    for entry in entries(after) {
        let name = entry.name_any();
        let was_free = entries(before)
            .find(|it| it.uid() == entry.uid())
            .is_some_and(|it| holder(it).is_none());
        let pool = entry.data["status"]["clusterPoolRef"]["name"].as_str().unwrap_or_default();
        let said = state(before, pool, &name);
        let broken = said["status"].as_str().is_some_and(|it| it.starts_with("Broken"));
        if was_free && holder(entry).is_some() && broken && said["version"] == *version(entry) {
            return Err(format!("{name} is leased by {pool}, which knows that it is {said}"));
        }
    }
    Ok(())
}

fn one_version(world: &World) -> Result<(), String> {
    let mut seen = std::collections::BTreeMap::new();
    for cluster in clusters(world) {
        let hash = cluster.annotations().get("hive.openshift.io/cluster-pool-spec-hash");
        let first = seen.entry(pool_of(cluster)).or_insert(hash);
        if *first != hash {
            return Err(format!("{}: {hash:?} beside {first:?}", cluster.name_any()));
        }
    }
    Ok(())
}

fn made_from_its_entry(world: &World) -> Result<(), String> {
    for cluster in clusters(world).filter(|it| is_whole(it)) {
        let name = cluster.name_any();
        let made_from = cluster.annotations().get("ferrite.metal3.io/customization-version");
        let Some(entry) = entries(world)
            .find(|it| it.name_any() == entry_of(cluster) && Some(&version(it)) == made_from)
        else {
            continue;
        };
        let in_its_namespace = |it: &&DynamicObject| it.namespace() == cluster.namespace();
        let copy = of(world, "clusterdeploymentcustomizations")
            .filter(in_its_namespace)
            .find(|it| it.name_any() == entry.name_any());
        if copy.is_none_or(|it| it.data["spec"] != entry.data["spec"]) {
            return Err(format!("{name} has no copy of {}", entry.name_any()));
        }
        let secret = of(world, "secrets")
            .filter(in_its_namespace)
            .find(|it| it.name_any() == format!("{name}-install-config"));
        let text = secret.map(|it| it.data["data"]["install-config.yaml"].clone());
        let text: Option<ByteString> = text.and_then(|it| serde_json::from_value(it).ok());
        let config: Value =
            text.and_then(|it| serde_json::from_slice(&it.0).ok()).unwrap_or_default();
        let wanted = &entry.data["spec"]["installConfigPatches"][0]["value"];
        if config["metadata"]["name"] != *wanted || config["baseDomain"] != "example.com" {
            return Err(format!("{name} is to be installed from {config} instead of {wanted}"));
        }
    }
    Ok(())
}

/// Of one process at a time; two without a lease may begin more than the limits say, each from an entry of its own.
pub(super) fn of_one() -> Vec<Invariant> {
    let mut all = of_two();
    all.push(Invariant::new("a pool keeps within its limits", within_limits));
    all
}

pub(super) fn of_two() -> Vec<Invariant> {
    vec![
        Invariant::new("an entry is in at most one live cluster", one_cluster),
        Invariant::new("a living cluster has its lease", leased),
        Invariant::between("a lease never changes hands", never_changes_hands),
        Invariant::new("what is leased is kept", kept),
        Invariant::new("a claimed cluster stays until it is given back", claimed_stay),
        Invariant::between("a failure costs one attempt", attempts),
        Invariant::between("a broken entry is not leased", broken_are_not_used),
        Invariant::new("an edited inventory changes no version of the pool", one_version),
        Invariant::new("a cluster is installed from what its entry says", made_from_its_entry),
    ]
}

/// At rest: what is leased is in use.
pub(super) fn no_lease_of_nothing(world: &World) -> bool {
    entries(world).filter_map(holder).all(|it| clusters(world).any(|found| found.name_any() == it))
}

/// At rest: our finalizer is on entries only that are leased, or that somebody can lease.
pub(super) fn is_kept_where_needed(world: &World) -> bool {
    entries(world).filter(|it| has_finalizer(it, LEASED)).all(|entry| {
        let name = entry.name_any();
        let mut pools = of(world, "clusterpools").filter(|it| !is_deleting(it));
        holder(entry).is_some() || !is_deleting(entry) && pools.any(|it| lists(it, &name))
    })
}

fn lists(pool: &DynamicObject, entry: &str) -> bool {
    let inventory = &pool.data["spec"]["inventory"];
    let list = inventory.as_array().or(inventory["ClusterDeploymentCustomizations"].as_array());
    list.into_iter().flatten().any(|it| it["name"] == entry)
}

/// Nothing of a pool is left.
pub(super) fn is_clean(world: &World) -> bool {
    of(world, "clusterpools").next().is_none()
        && clusters(world).next().is_none()
        && of(world, "namespaces")
            .filter(|it| it.labels().contains_key("hive.openshift.io/cluster-pool-name"))
            .all(is_deleting)
        && entries(world).all(|it| holder(it).is_none() && it.finalizers().is_empty())
}
