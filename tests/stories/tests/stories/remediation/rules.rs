//! The rules of the design, as one who sees every version of every object can check them: what holds after each write,
//! and what a write may change.

use bench::observer::{Invariant, Key, World};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::scene::{condition, history, keys};

/// From one phase to another, and only so.
const DIAGRAM: [(&str, &str); 7] = [
    ("", "running"),
    ("running", "waiting"),
    ("waiting", "running"),
    ("running", "deleting machine"),
    ("waiting", "deleting machine"),
    ("running", "failed"),
    ("waiting", "failed"),
];
const MARKS: [&str; 2] = ["capi.metal3.io/unhealthy", "capm3.metal3.io/unhealthy"];

fn of<'a>(world: &'a World, resource: &'a str) -> impl Iterator<Item = Value> + 'a {
    let all = world.iter().filter(move |(key, _)| key.resource == resource);
    all.filter_map(|(_, object)| serde_json::to_value(object).ok())
}

pub(super) fn requests(world: &World) -> impl Iterator<Item = Value> + '_ {
    of(world, "metal3remediations")
}

pub(super) fn hosts(world: &World) -> impl Iterator<Item = Value> + '_ {
    of(world, "baremetalhosts")
}

fn machines(world: &World) -> impl Iterator<Item = Value> + '_ {
    of(world, "machines")
}

/// The request of a machine.
pub(super) fn request(world: &World, name: &str) -> Option<Value> {
    requests(world).find(|it| it["metadata"]["name"] == name)
}

/// A host.
pub(super) fn host(world: &World, name: &str) -> Option<Value> {
    hosts(world).find(|it| it["metadata"]["name"] == name)
}

/// The same object, as it is by now.
fn now(mut all: impl Iterator<Item = Value>, old: &Value) -> Option<Value> {
    all.find(|it| it["metadata"]["uid"] == old["metadata"]["uid"])
}

fn uid_of(key: &str) -> &str {
    key.rsplit("remediation-").next().unwrap_or_default()
}

/// The name of the `Metal3Machine` that has a host, which is its Machine's as well.
fn consumer(host: &Value) -> &str {
    host["spec"]["consumerRef"]["name"].as_str().unwrap_or_default()
}

/// I11.
fn held_for_somebody(world: &World) -> Result<(), String> {
    for host in hosts(world) {
        let keys = keys(&host);
        if keys.len() > 1 {
            return Err(format!("two keys: {keys:?}"));
        }
        for key in keys {
            let uid = uid_of(&key);
            let owner = requests(world).find(|it| it["metadata"]["uid"] == uid);
            if owner.is_none_or(|it| it["metadata"]["finalizers"].is_null()) {
                return Err(format!("{key} of a request without finalizer, or of none"));
            }
        }
    }
    Ok(())
}

/// I12.
fn within_the_limit(world: &World) -> Result<(), String> {
    for it in requests(world) {
        let limit = it["spec"]["strategy"]["retryLimit"].as_i64();
        if it["status"]["retryCount"].as_i64() > limit {
            return Err(format!("more than {limit:?} retries: {}", it["status"]));
        }
    }
    Ok(())
}

/// I12.
fn each_try_once(world: &World) -> Result<(), String> {
    for host in hosts(world) {
        let tries = history(&host);
        for (at, one) in tries.iter().enumerate() {
            let same = |it: &Value| ["remediation", "try"].iter().all(|key| it[key] == one[key]);
            if tries[..at].iter().any(same) {
                return Err(format!("try {} twice: {tries:?}", one["try"]));
            }
        }
    }
    Ok(())
}

/// I14, as far as it stands in this cluster.
fn no_backup_without_finalizer(world: &World) -> Result<(), String> {
    for it in requests(world).filter(|it| it["metadata"]["finalizers"].is_null()) {
        let mut annotations = it["metadata"]["annotations"].as_object().into_iter().flatten();
        if let Some((key, _)) = annotations.find(|(key, _)| key.contains("backup")) {
            return Err(format!("{key} on a request that has let go: {}", it["metadata"]));
        }
    }
    Ok(())
}

/// I15.
fn marked_first(world: &World) -> Result<(), String> {
    for machine in machines(world) {
        let told = condition(&machine, "OwnerRemediated").0 == "False";
        let name = machine["metadata"]["name"].as_str().unwrap_or_default();
        let host = hosts(world).find(|it| consumer(it) == name);
        if told && host.is_some_and(|it| it["metadata"]["annotations"][MARKS[0]].is_null()) {
            return Err(format!("the owner of {name} is told before its host is marked"));
        }
    }
    Ok(())
}

/// I12. A pass that is cut off between the key and the phase may be followed by one that finds the host back.
fn along_the_diagram(before: &World, after: &World) -> Result<(), String> {
    for old in requests(before) {
        let Some(new) = now(requests(after), &old) else { continue };
        let (from, to) = (old["status"]["phase"].as_str(), new["status"]["phase"].as_str());
        let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
        let is_of = |it: &Value| it["remediation"] == new["metadata"]["uid"];
        let tried = || hosts(after).any(|it| history(&it).iter().any(is_of));
        let back = (from, to) == ("", "waiting") && tried();
        if from != to && !back && !DIAGRAM.contains(&(from, to)) {
            return Err(format!("{:?}: from {from:?} to {to:?}", new["metadata"]["name"]));
        }
        let count = |it: &Value| it["status"]["retryCount"].as_i64().unwrap_or_default();
        if !(count(&old)..=count(&old) + 1).contains(&count(&new)) {
            return Err(format!("{} retries, then {}", count(&old), count(&new)));
        }
    }
    Ok(())
}

/// I12. A key begins a try, and each try has one: it comes with its record, and not again while that is open.
fn one_key_for_each_try(before: &World, after: &World) -> Result<(), String> {
    for host in hosts(after) {
        let old = now(hosts(before), &host).unwrap_or_default();
        let known = keys(&old);
        for key in keys(&host).into_iter().filter(|it| !known.contains(it)) {
            let uid = uid_of(&key);
            let open = |host: &Value| -> Vec<Value> {
                let of_it = |it: &Value| it["remediation"] == uid && it["ended"].is_null();
                history(host).into_iter().filter(of_it).collect()
            };
            let (were, are) = (open(&old), open(&host));
            let [begun] = are.as_slice() else {
                return Err(format!("{key} with {} open records: {are:?}", are.len()));
            };
            if were.iter().any(|it| it["try"] == begun["try"] && it["asked"] == begun["asked"]) {
                return Err(format!("{key} once more in try {}", begun["try"]));
            }
        }
    }
    Ok(())
}

/// What we put on a host and never take from somebody else's.
fn marks(host: &Value) -> (usize, usize, bool) {
    let marked = MARKS.iter().filter(|it| !host["metadata"]["annotations"][**it].is_null());
    (marked.count(), history(host).len(), host["spec"]["online"] == false)
}

/// I13.
fn nobody_elses_host(before: &World, after: &World) -> Result<(), String> {
    for old in hosts(before) {
        let Some(new) = now(hosts(after), &old) else { continue };
        let (name, consumer) = (&new["metadata"]["name"], consumer(&old));
        let known = keys(&old);
        for key in keys(&new).into_iter().filter(|it| !known.contains(it)) {
            let of_it = requests(after).find(|it| it["metadata"]["uid"] == uid_of(&key));
            if of_it.is_none_or(|it| it["metadata"]["name"] != consumer) {
                return Err(format!("{name} is {consumer}'s and gets {key}"));
            }
        }
        let is_a_machines = machines(before).any(|it| it["metadata"]["name"] == consumer);
        let (was, is) = (marks(&old), marks(&new));
        if !is_a_machines && (is.0 > was.0 || is.1 > was.1 || (is.2 && !was.2)) {
            return Err(format!("{name} is {consumer:?}'s and was changed: {was:?}, then {is:?}"));
        }
    }
    Ok(())
}

/// I16. Whoever makes, deletes and pauses objects may go on; what only the controller writes stays.
fn nothing_while_paused(before: &World, after: &World) -> Result<(), String> {
    let paused = |world: &World| -> Vec<Value> {
        let all = of(world, "clusters").filter(|it| it["spec"]["paused"] == true);
        all.map(|it| it["metadata"]["name"].clone()).collect()
    };
    let still = paused(after);
    let clusters: Vec<Value> = paused(before).into_iter().filter(|it| still.contains(it)).collect();
    let label = "cluster.x-k8s.io/cluster-name";
    for old in requests(before) {
        if !clusters.contains(&old["metadata"]["labels"][label]) {
            continue;
        }
        let new = now(requests(after), &old).unwrap_or_default();
        let ours = |it: &Value| (it["metadata"]["finalizers"].clone(), it["status"].clone());
        let went = new.is_null() && old["metadata"]["finalizers"].is_null();
        if !went && ours(&old) != ours(&new) {
            return Err(format!("the request: {:?}, then {:?}", ours(&old), ours(&new)));
        }
    }
    for machine in machines(before) {
        if !clusters.contains(&machine["spec"]["clusterName"]) {
            continue;
        }
        let new = now(machines(after), &machine).unwrap_or_default();
        if machine["status"]["conditions"] != new["status"]["conditions"] {
            return Err(format!("the Machine: {}, then {}", machine["status"], new["status"]));
        }
        let name = machine["metadata"]["name"].as_str().unwrap_or_default();
        for old in hosts(before).filter(|it| consumer(it) == name) {
            let new = now(hosts(after), &old).unwrap_or_default();
            let ours = |it: &Value| (keys(it), marks(it), history(it));
            if ours(&old) != ours(&new) {
                return Err(format!("the host: {:?}, then {:?}", ours(&old), ours(&new)));
            }
        }
    }
    Ok(())
}

/// All of them.
pub(super) fn all() -> Vec<Invariant> {
    vec![
        Invariant::new("a host is held only for a request with a finalizer", held_for_somebody),
        Invariant::new("retries stay within the limit", within_the_limit),
        Invariant::new("each try is one power cycle", each_try_once),
        Invariant::new(
            "no backup is left on a request that has let go",
            no_backup_without_finalizer,
        ),
        Invariant::new("a host is marked before its owner is told", marked_first),
        Invariant::between("phases move only along the diagram", along_the_diagram),
        Invariant::between("a key comes with a new try, and once", one_key_for_each_try),
        Invariant::between("nobody else's host is touched", nobody_elses_host),
        Invariant::between("nothing is written while paused", nothing_while_paused),
    ]
}

fn world(objects: &[Value]) -> World {
    let named = |object: &Value| {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let key = Key { resource: format!("{kind}s"), namespace: "ns".to_owned(), name };
        let mut object = object.clone();
        object["apiVersion"] = json!("v1");
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        (key, object)
    };
    objects.iter().map(named).collect()
}

fn asked(phase: &str, retries: u32) -> Value {
    let label = json!({"cluster.x-k8s.io/cluster-name": "c"});
    json!({
        "kind": "Metal3Remediation",
        "metadata": {"name": "m", "uid": "u", "finalizers": ["f"], "labels": label},
        "status": {"phase": phase, "retryCount": retries},
    })
}

/// A host of this consumer, with the key or without it, and with these tries that have not ended.
fn tried(consumer: &str, is_held: bool, tries: &[u32]) -> Value {
    let record = |number: &u32| json!({"remediation": "u", "try": number, "asked": "then"});
    let tries: Vec<Value> = tries.iter().map(record).collect();
    let text = Value::from(tries).to_string();
    let mut host = json!({
        "kind": "BareMetalHost",
        "metadata": {"name": "h", "uid": "h", "annotations": {
            "ferrite.metal3.io/remediation-history": text,
        }},
        "spec": {"online": true, "consumerRef": {"name": consumer}},
    });
    if is_held {
        host["metadata"]["annotations"]["reboot.metal3.io/metal3-remediation-u"] = json!("{}");
    }
    host
}

fn machine() -> Value {
    json!({"kind": "Machine", "metadata": {"name": "m", "uid": "m"}, "spec": {"clusterName": "c"}})
}

#[test]
fn a_phase_that_goes_its_own_way_is_found_out() {
    let step = |from: (&str, u32), to: (&str, u32)| {
        let (from, to) = (asked(from.0, from.1), asked(to.0, to.1));
        along_the_diagram(&world(&[from]), &world(&[to])).is_ok()
    };
    assert!(step(("running", 0), ("waiting", 0)) && step(("waiting", 0), ("running", 1)));
    assert!(!step(("deleting machine", 1), ("running", 1)), "handed over is handed over");
    assert!(!step(("running", 0), ("", 0)), "never back to none");
    assert!(!step(("", 0), ("waiting", 0)), "of no try");
    assert!(!step(("waiting", 0), ("running", 2)) && !step(("waiting", 1), ("running", 0)));
    let back = world(&[asked("waiting", 0), tried("m", false, &[0])]);
    assert!(along_the_diagram(&world(&[asked("", 0)]), &back).is_ok());
}

#[test]
fn a_key_without_a_try_of_its_own_is_found_out() {
    fn step(before: (bool, &[u32]), after: (bool, &[u32])) -> bool {
        let of = |host: (bool, &[u32])| world(&[tried("m", host.0, host.1)]);
        one_key_for_each_try(&of(before), &of(after)).is_ok()
    }
    assert!(step((false, &[]), (true, &[0])) && step((true, &[0]), (true, &[0])));
    assert!(!step((false, &[]), (true, &[])), "nobody would know whose it is");
    assert!(!step((false, &[0]), (true, &[0])), "twice in one try");
    assert!(!step((false, &[0]), (true, &[0, 1])), "the last one has not ended");
}

#[test]
fn who_touches_the_host_of_somebody_else_is_found_out() {
    let step = |before: Value, after: Value| {
        let world = |host: Value| world(&[asked("running", 0), machine(), host]);
        nobody_elses_host(&world(before), &world(after)).is_ok()
    };
    assert!(step(tried("m", false, &[]), tried("m", true, &[0])));
    assert!(step(tried("other", true, &[0]), tried("other", false, &[0])), "it is let go");
    assert!(!step(tried("other", false, &[]), tried("other", true, &[])));
    assert!(!step(tried("other", true, &[]), tried("other", true, &[0])));
    let mut off = tried("other", false, &[]);
    off["spec"]["online"] = json!(false);
    assert!(!step(tried("other", false, &[]), off));
}

#[test]
fn who_writes_while_paused_is_found_out() {
    let step = |pauses: [bool; 2], before: [Value; 2], after: [Value; 2]| {
        let world = |paused: bool, objects: [Value; 2]| {
            let named = json!({"name": "c", "uid": "c"});
            let cluster = json!({"kind": "Cluster", "metadata": named, "spec": {"paused": paused}});
            let [request, host] = objects;
            world(&[cluster, machine(), request, host])
        };
        let [was, is] = pauses;
        nothing_while_paused(&world(was, before), &world(is, after)).is_ok()
    };
    let held = || [asked("running", 0), tried("m", true, &[0])];
    let free = || [asked("running", 0), tried("m", false, &[0])];
    let said = || [asked("waiting", 0), tried("m", true, &[0])];
    assert!(step([true, true], held(), held()));
    assert!(!step([true, true], held(), free()) && !step([true, true], held(), said()));
    assert!(step([true, false], held(), free()) && step([false, true], held(), free()));
}
