//! What must hold after every write of everybody in a day of life.

use std::collections::BTreeMap;

use api_types::names::ferrite::{NODE_ID, POOL_OWNER};
use api_types::names::metal3::REBOOT_FOR_REMEDIATION;
use bench::cluster_api::objects::METAL3_MACHINE;
use bench::observer::{Invariant, World};
use bench::{bmo, hive};
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};

use crate::played::REMEDIATION;

/// The kinds whose objects the rules look at.
pub(super) fn kinds() -> [ApiResource; 4] {
    let [cluster, entry] = ["ClusterDeployment", "ClusterDeploymentCustomization"].map(hive::kind);
    [bmo::hosts(), REMEDIATION.resource(), cluster, entry]
}

pub(super) fn promises() -> Vec<Invariant> {
    vec![
        Invariant::new("a machine has one host", one_host_each),
        Invariant::new("a node of Ironic has one host", one_host_of_a_node),
        Invariant::new("a host is held only for a request with a finalizer", held_for_somebody),
        Invariant::new("an entry is in one living cluster", one_cluster_each),
        Invariant::between("a host is given back before another machine has it", given_back_first),
        Invariant::between("only a person's deletion ends a host", hosts_stay),
        Invariant::between("a lease never changes hands", leases_stay),
    ]
}

fn of<'a>(world: &'a World, resource: &'a str) -> impl Iterator<Item = &'a DynamicObject> {
    world.iter().filter(move |(key, _)| key.resource == resource).map(|(_, object)| object)
}

fn hosts(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "baremetalhosts")
}

/// The machine that has the host.
fn machine_of(host: &DynamicObject) -> Option<&str> {
    let consumer = &host.data["spec"]["consumerRef"];
    (consumer["kind"] == METAL3_MACHINE.kind).then(|| consumer["name"].as_str())?
}

/// Nobody has what somebody else has, too.
fn unique<'a>(
    all: impl Iterator<Item = (Option<String>, &'a DynamicObject)>,
) -> Result<(), String> {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (what, object) in all {
        let Some(what) = what else { continue };
        let name = object.name_any();
        if let Some(other) = seen.insert(what.clone(), name.clone()) {
            return Err(format!("{what} has {other} and {name}"));
        }
    }
    Ok(())
}

fn one_host_each(world: &World) -> Result<(), String> {
    unique(hosts(world).map(|it| (machine_of(it).map(str::to_owned), it)))
}

fn is_discovered(host: &DynamicObject) -> bool {
    host.annotations().contains_key(NODE_ID)
}

/// By its identifier, and by the part of the boot address that all ports of a machine have in common.
fn one_host_of_a_node(world: &World) -> Result<(), String> {
    unique(hosts(world).map(|it| (it.annotations().get(NODE_ID).cloned(), it)))?;
    let address = |host: &DynamicObject| {
        let mac = host.data["spec"]["bootMACAddress"].as_str()?.to_lowercase();
        Some(mac.rsplit_once(':')?.0.to_owned())
    };
    unique(hosts(world).map(|it| (address(it), it)))
}

fn held_for_somebody(world: &World) -> Result<(), String> {
    let requests: BTreeMap<Option<String>, &DynamicObject> =
        of(world, "metal3remediations").map(|it| (it.uid(), it)).collect();
    for host in hosts(world) {
        for key in host.annotations().keys() {
            let Some(uid) = key.strip_prefix(REBOOT_FOR_REMEDIATION) else { continue };
            let request = requests.get(&Some(uid.to_owned()));
            if request.is_none_or(|it| it.finalizers().is_empty()) {
                let name = host.name_any();
                return Err(format!(
                    "{name} is held by {key}, a request without finalizer or none"
                ));
            }
        }
    }
    Ok(())
}

/// Hive is or may be at it.
fn is_alive(cluster: &DynamicObject) -> bool {
    let paused = cluster.annotations().contains_key("hive.openshift.io/reconcile-pause");
    let goes = cluster.metadata.deletion_timestamp.is_some();
    cluster.finalizers().iter().any(|it| it == "hive.openshift.io/deprovision") || !paused && !goes
}

fn one_cluster_each(world: &World) -> Result<(), String> {
    let entry = |cluster: &DynamicObject| {
        let reference = &cluster.data["spec"]["clusterPoolRef"]["clusterDeploymentCustomization"];
        reference["name"].as_str().unwrap_or("no entry").to_owned()
    };
    let alive = of(world, "clusterdeployments").filter(|it| is_alive(it));
    unique(alive.map(|it| (Some(entry(it)), it)))
}

fn given_back_first(before: &World, now: &World) -> Result<(), String> {
    for (key, host) in now.iter().filter(|(key, _)| key.resource == "baremetalhosts") {
        let (earlier, later) = (before.get(key).and_then(machine_of), machine_of(host));
        if earlier.is_some() && later.is_some() && earlier != later {
            return Err(format!("{} went from {earlier:?} to {later:?}", key.name));
        }
    }
    Ok(())
}

/// The people of this day delete what was discovered, and nothing else.
fn hosts_stay(before: &World, now: &World) -> Result<(), String> {
    let gone = before.iter().find(|(key, host)| {
        key.resource == "baremetalhosts" && !now.contains_key(*key) && !is_discovered(host)
    });
    gone.map_or(Ok(()), |(key, _)| Err(format!("{} is gone", key.name)))
}

fn leases_stay(before: &World, now: &World) -> Result<(), String> {
    let holder = |entry: &DynamicObject| {
        entry.data["status"]["clusterDeploymentRef"]["name"].as_str().map(str::to_owned)
    };
    let is_entry = |it: &&DynamicObject| !it.annotations().contains_key(POOL_OWNER);
    for entry in of(now, "clusterdeploymentcustomizations").filter(is_entry) {
        let mut all = of(before, "clusterdeploymentcustomizations").filter(is_entry);
        let earlier = all.find(|it| it.uid() == entry.uid()).and_then(holder);
        if let (Some(old), Some(new)) = (earlier, holder(entry))
            && old != new
        {
            return Err(format!("{} went from {old} to {new}", entry.name_any()));
        }
    }
    Ok(())
}

mod tests {
    use bench::observer::Key;
    use serde_json::{Value, json};

    use super::*;

    fn world(resource: &str, all: &[Value]) -> World {
        let entry = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let (resource, namespace) = (resource.to_owned(), "a".to_owned());
            let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            (Key { resource, namespace, name }, object)
        };
        all.iter().map(entry).collect()
    }

    fn host(name: &str, machine: &str) -> Value {
        let consumer = json!({ "kind": METAL3_MACHINE.kind, "name": machine });
        json!({ "metadata": { "name": name }, "spec": { "consumerRef": consumer } })
    }

    fn discovered(name: &str, node: &str, mac: &str) -> Value {
        json!({
            "metadata": { "name": name, "annotations": { NODE_ID: node } },
            "spec": { "bootMACAddress": mac },
        })
    }

    #[test]
    fn what_breaks_a_promise_about_hosts_is_found_out() {
        let hosts = |all: &[Value]| world("baremetalhosts", all);
        assert!(one_host_each(&hosts(&[host("a", "m"), host("b", "n")])).is_ok());
        assert!(one_host_each(&hosts(&[host("a", "m"), host("b", "m")])).is_err());
        for (node, mac, right) in [
            ("2", "06:fe:00:00:02:00", true),
            ("1", "06:fe:00:00:02:00", false),
            ("2", "06:FE:00:00:01:01", false),
        ] {
            let all = [discovered("a", "1", "06:fe:00:00:01:00"), discovered("b", node, mac)];
            assert_eq!(one_host_of_a_node(&hosts(&all)).is_ok(), right, "{node} {mac}");
        }
        let (mine, yours) = (hosts(&[host("a", "m")]), hosts(&[host("a", "n")]));
        assert!(given_back_first(&mine, &mine).is_ok());
        assert!(given_back_first(&mine, &yours).is_err());
        assert!(hosts_stay(&mine, &World::new()).is_err());
        let found = hosts(&[discovered("a", "1", "06:fe:00:00:01:00")]);
        assert!(hosts_stay(&found, &World::new()).is_ok());
    }

    #[test]
    fn a_hold_of_nobody_and_an_entry_in_two_clusters_are_found_out() {
        let mut held = host("a", "m");
        held["metadata"]["annotations"] = json!({ (format!("{REBOOT_FOR_REMEDIATION}u")): "" });
        let mut all = world("baremetalhosts", &[held]);
        assert!(held_for_somebody(&all).is_err());
        let request = |finalizers: Value| json!({ "metadata": { "name": "m", "uid": "u", "finalizers": finalizers } });
        all.extend(world("metal3remediations", &[request(json!([]))]));
        assert!(held_for_somebody(&all).is_err());
        all.extend(world("metal3remediations", &[request(json!(["f"]))]));
        assert!(held_for_somebody(&all).is_ok());

        let cluster = |name: &str, more: &Value| {
            let reference = json!({ "clusterDeploymentCustomization": { "name": "e" } });
            let metadata = json!({ "name": name, "annotations": more });
            json!({ "metadata": metadata, "spec": { "clusterPoolRef": reference } })
        };
        let paused = json!({ "hive.openshift.io/reconcile-pause": "true" });
        for (second, right) in [(json!({}), false), (paused, true)] {
            let all = [cluster("c", &json!({})), cluster("d", &second)];
            assert_eq!(one_cluster_each(&world("clusterdeployments", &all)).is_ok(), right);
        }
        let leased = |cluster: &str| {
            let status = json!({ "clusterDeploymentRef": { "name": cluster } });
            let entry = json!({ "metadata": { "name": "e", "uid": "u" }, "status": status });
            world("clusterdeploymentcustomizations", &[entry])
        };
        assert!(leases_stay(&leased("c"), &leased("c")).is_ok());
        assert!(leases_stay(&leased("c"), &leased("d")).is_err());
    }
}
