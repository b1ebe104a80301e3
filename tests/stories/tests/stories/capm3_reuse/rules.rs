//! What must hold after every write of every actor, and between one write and the next.

use bench::observer::{Invariant, World};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::scene::{condition, consumer, host_of, named_host, state};

/// With what the word for a consumer begins that is a machine, and an owner of machines.
const MACHINE: &str = "Metal3Machine/";
const OWNER: &str = "MachineDeployment/";
/// What a machine puts on its host beside the image.
const FIELDS: [&str; 5] = ["image", "customDeploy", "userData", "metaData", "networkData"];
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const REUSE_LABEL: &str = "infrastructure.cluster.x-k8s.io/node-reuse";
const PENDING: &str = "ferrite.metal3.io/pending-reservation";
const RESERVED_HOST: &str = "ferrite.metal3.io/reserved-host-uid";
const PASSED_OVER: &str = "ferrite.metal3.io/passed-over-by";

fn of<'a>(world: &'a World, resource: &'a str) -> impl Iterator<Item = &'a DynamicObject> {
    world.iter().filter(move |(key, _)| key.resource == resource).map(|(_, object)| object)
}

pub(super) fn machines(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "metal3machines")
}

pub(super) fn hosts(world: &World) -> impl Iterator<Item = &DynamicObject> {
    of(world, "baremetalhosts")
}

/// Every host that was there before a write and is after it: as it was, and as it is.
fn changes<'a>(
    before: &'a World,
    after: &'a World,
) -> impl Iterator<Item = (&'a DynamicObject, &'a DynamicObject)> {
    let both = after
        .iter()
        .filter(|(key, _)| key.resource == "baremetalhosts")
        .filter_map(move |(key, host)| Some((before.get(key)?, host)));
    both.filter(|(old, new)| old.uid() == new.uid())
}

fn has(host: &DynamicObject, machine: &DynamicObject) -> bool {
    let reference = &host.data["spec"]["consumerRef"];
    reference["uid"].as_str() == machine.uid().as_deref()
}

/// The owner of a machine, as a host names it.
fn owner_of(machine: &DynamicObject) -> String {
    let name = machine.labels().get("cluster.x-k8s.io/deployment-name");
    format!("{OWNER}{}", name.map_or("", String::as_str))
}

pub(super) fn says_paused(machine: &DynamicObject) -> bool {
    condition(machine, "Paused").is_some_and(|it| it["status"] == "True")
}

fn one_host(world: &World) -> Result<(), String> {
    for machine in machines(world) {
        let all: Vec<String> =
            hosts(world).filter(|it| has(it, machine)).map(ResourceExt::name_any).collect();
        if all.len() > 1 {
            return Err(format!("{} has {}", machine.name_any(), all.join(" and ")));
        }
    }
    Ok(())
}

fn image_of_claimant(world: &World) -> Result<(), String> {
    for host in hosts(world).filter(|it| !it.data["spec"]["image"].is_null()) {
        if !consumer(host).starts_with(MACHINE) {
            return Err(format!("{} has an image and {:?}", host.name_any(), consumer(host)));
        }
    }
    Ok(())
}

fn cleared_first(world: &World) -> Result<(), String> {
    for host in hosts(world).filter(|it| ["provisioning", "provisioned"].contains(&state(it))) {
        if !consumer(host).starts_with(MACHINE) {
            let (name, state, whose) = (host.name_any(), state(host), consumer(host));
            return Err(format!("{name} is {state} and has {whose:?}"));
        }
    }
    Ok(())
}

fn up_on_its_own(world: &World) -> Result<(), String> {
    for machine in machines(world) {
        let up = machine.data["status"]["initialization"]["provisioned"] == true;
        let leaves = machine.metadata.deletion_timestamp.is_some();
        let own = hosts(world).any(|it| it.name_any() == host_of(machine) && has(it, machine));
        if up && !leaves && !own {
            return Err(format!("{} is up and has no host", machine.name_any()));
        }
    }
    Ok(())
}

/// CAPM3 takes the host that a machine names for the machine's, whoever has it. It need not be asked before it does: it may take
/// over at any moment.
fn named_on_its_own(world: &World) -> Result<(), String> {
    for machine in machines(world).filter(|it| it.data["spec"]["providerID"].is_null()) {
        let (named, leaves) = (named_host(machine), machine.metadata.deletion_timestamp.is_some());
        let own = hosts(world).any(|it| it.name_any() == named && has(it, machine));
        if !named.is_empty() && !leaves && !own {
            return Err(format!("{} names {named} and has not got it", machine.name_any()));
        }
    }
    Ok(())
}

fn machine_is_there(world: &World) -> Result<(), String> {
    for host in hosts(world).filter(|it| consumer(it).starts_with(MACHINE)) {
        if !machines(world).any(|it| has(host, it)) {
            return Err(format!(
                "{} is left to {}, which is gone",
                host.name_any(),
                consumer(host)
            ));
        }
    }
    Ok(())
}

/// The release takes everything with it that was its machine's, in one write; what is kept says for whom, and of which host.
fn bears_what_its_consumer_put_there(world: &World) -> Result<(), String> {
    for host in hosts(world) {
        let (name, whose, notes) = (host.name_any(), consumer(host), host.annotations());
        let wrong = |what: &str| Err(format!("{name} has {whose:?} and {what}"));
        let is_machines = whose.starts_with(MACHINE);
        if !is_machines {
            for field in FIELDS {
                if !host.data["spec"][field].is_null() {
                    return wrong(field);
                }
            }
            if host.labels().contains_key(CLUSTER_LABEL) {
                return wrong("the label of a cluster");
            }
            if notes.keys().any(|it| it.starts_with(PENDING)) {
                return wrong("a verdict");
            }
        }
        let kept_for = whose.strip_prefix(OWNER);
        let label = host.labels().get(REUSE_LABEL).cloned();
        if label != kept_for.map(|owner| format!("md-{owner}")) {
            return wrong(&format!("the label {label:?}"));
        }
        let reserved = notes.get(RESERVED_HOST).cloned();
        let of_it = kept_for.is_some() && reserved == host.uid();
        if !is_machines && !of_it && (kept_for.is_some() || reserved.is_some()) {
            return wrong(&format!("a reservation of {reserved:?}"));
        }
        if is_machines && notes.contains_key(PASSED_OVER) {
            return wrong("was passed over");
        }
    }
    Ok(())
}

/// From free to a machine, from a machine that goes to its own owner or free, from an owner to a machine of its own or free.
fn changes_hands(before: &World, after: &World) -> Result<(), String> {
    for (old, new) in changes(before, after) {
        if old.data["spec"]["consumerRef"] == new.data["spec"]["consumerRef"] {
            continue;
        }
        let (was, is) = (consumer(old), consumer(new));
        let may = if was.is_empty() {
            // A machine, or whatever a person writes: only a machine leaves a host to its owner.
            !is.starts_with(OWNER)
        } else if was.starts_with(MACHINE) {
            let left = machines(before).find(|it| has(old, it));
            left.is_some_and(|it| {
                it.metadata.deletion_timestamp.is_some() && (is.is_empty() || is == owner_of(it))
            })
        } else if was.starts_with(OWNER) {
            is.is_empty() || machines(before).any(|it| has(new, it) && owner_of(it) == was)
        } else {
            false
        };
        if !may {
            return Err(format!("{} goes from {was:?} to {is:?}", old.name_any()));
        }
    }
    Ok(())
}

/// A claim insists on the version that was judged, so the host was like this when it was claimed.
fn claimed_when_fit(before: &World, after: &World) -> Result<(), String> {
    for (old, new) in changes(before, after) {
        if consumer(old).starts_with(MACHINE) || !consumer(new).starts_with(MACHINE) {
            continue;
        }
        let marks = ["/unhealthy", "/paused", "/detached"];
        let marked = old.annotations().keys().any(|key| marks.iter().any(|it| key.ends_with(it)));
        let status = &old.data["status"];
        let failed = status["errorMessage"].as_str().is_some_and(|it| !it.is_empty());
        let going = old.metadata.deletion_timestamp.is_some();
        if marked || failed || going || state(old) != "available" {
            let (name, by) = (old.name_any(), consumer(new));
            return Err(format!("{by} claims {name}: {:?}, {status}", old.annotations()));
        }
    }
    Ok(())
}

/// While it is cleared a host may be named for an owner; it is free only when nothing is on it any more.
fn given_back_when_cleared(before: &World, after: &World) -> Result<(), String> {
    for (old, new) in changes(before, after) {
        let (was, is) = (consumer(old), consumer(new));
        let left = was.starts_with(MACHINE) || was.starts_with(OWNER);
        if !left || was == is || is.starts_with(MACHINE) {
            continue;
        }
        let installed = ["provisioning", "provisioned"].contains(&state(old));
        let clearing = is.is_empty() && state(old) == "deprovisioning";
        let told = FIELDS.iter().any(|field| !old.data["spec"][*field].is_null());
        if installed || clearing || told {
            let (name, state, spec) = (old.name_any(), state(old), &old.data["spec"]);
            return Err(format!("{name} goes from {was:?} to {is:?} and is {state}: {spec}"));
        }
    }
    Ok(())
}

/// What is decided about a machine, as against what is told of it.
fn decided(machine: &DynamicObject) -> Value {
    json!({
        "spec": machine.data["spec"],
        "annotations": machine.annotations(),
        "finalizers": machine.finalizers(),
        "initialization": machine.data["status"]["initialization"],
    })
}

/// What a host is told, as against what its operator says of it.
fn told(host: &DynamicObject) -> Value {
    json!({
        "spec": host.data["spec"],
        "annotations": host.annotations(),
        "labels": host.labels(),
    })
}

/// A machine that says that it is paused shows that the pause was seen: from then on nothing of it is written.
fn nothing_while_paused(before: &World, after: &World) -> Result<(), String> {
    if !of(before, "clusters").any(|it| it.data["spec"]["paused"] == true) {
        return Ok(());
    }
    for machine in machines(before).filter(|it| says_paused(it)) {
        let name = machine.name_any();
        let Some(now) = machines(after).find(|it| it.uid() == machine.uid()) else {
            return Err(format!("{name} is let go"));
        };
        if decided(machine) != decided(now) {
            return Err(format!("{name} was {} and is {}", decided(machine), decided(now)));
        }
        for (old, new) in changes(before, after).filter(|(old, _)| has(old, machine)) {
            if told(old) != told(new) {
                let host = old.name_any();
                return Err(format!("{host} of {name} was told {} and {}", told(old), told(new)));
            }
        }
    }
    Ok(())
}

pub(super) fn invariants() -> Vec<Invariant> {
    vec![
        Invariant::new("a machine has at most one host", one_host),
        Invariant::new("only a machine's host has an image", image_of_claimant),
        Invariant::new("a host is given back only when it is cleared", cleared_first),
        Invariant::new("a machine that is up has its host", up_on_its_own),
        Invariant::new("a host that a machine names to CAPM3 is the machine's", named_on_its_own),
        Invariant::new("the machine that has a host is there", machine_is_there),
        Invariant::new(
            "a host bears what its consumer put there and nothing else",
            bears_what_its_consumer_put_there,
        ),
        Invariant::between("a host goes only to whom it is due", changes_hands),
        Invariant::between("a host is claimed only while it is fit", claimed_when_fit),
        Invariant::between("a host is free only when nothing is on it", given_back_when_cleared),
        Invariant::between("nothing of what is paused is written", nothing_while_paused),
    ]
}
