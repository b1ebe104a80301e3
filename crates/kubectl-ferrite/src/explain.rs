//! From all that was read to a chain: the object that was asked about first, what it waits for behind it. Pure and total.

use std::collections::BTreeMap;

use api_types::capi::Machine;
use api_types::capm3::{Metal3Machine, consumer_machine};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::names::capi;
use api_types::names::hive::CONDITION_PENDING;
use capm3_reuse::reservation::label_of;

use crate::links::{self, reservation_label};
use crate::model::{Kind, Link, Look, Object, Seen};
use crate::text;

/// Hosts of a list that are shown one by one.
const SHOWN: usize = 3;

type Part = fn(&Seen) -> Vec<Link>;

/// What a chain consists of, in its order.
fn parts(kind: Kind) -> &'static [Part] {
    match kind {
        Kind::Machine => &[machine, infrastructure, request, metal, host, choice],
        Kind::Metal3Machine => &[metal, machine, host, choice],
        Kind::Metal3Remediation => &[request, machine, metal, host],
        Kind::BareMetalHost => &[host, metal, request],
        Kind::ClusterPool => &[pool, entries, claims],
        Kind::ClusterClaim => &[claim, pool, cluster],
        Kind::Customization => &[customization, entry, cluster],
        Kind::Discovery => &[discovery],
    }
}

/// The chain from an object to the cause.
pub(crate) fn explain(kind: Kind, seen: &Seen) -> Vec<Link> {
    parts(kind).iter().flat_map(|part| part(seen)).collect()
}

/// The links of an object, or why there are none.
fn of<T>(look: &Look<T>, links: impl FnOnce(&T) -> Vec<Link>) -> Vec<Link> {
    let told = |object: &Object, state: &str, message: String| {
        vec![Link::field(object, "", state).saying(message)]
    };
    match look {
        Look::Unasked => Vec::new(),
        Look::Here(found) => links(found),
        Look::Gone(object) => {
            let link = Link::field(object, "", "missing").saying(text::gone(object));
            vec![Link { waits: true, ..link }]
        }
        Look::Unserved(object) => told(object, "not installed", text::unserved(&object.kind)),
        Look::Forbidden(object, right) => {
            told(object, "not readable", text::forbidden(object, right))
        }
        Look::Unreadable(object, why) => {
            told(object, "not readable", text::unreadable(object, why))
        }
    }
}

fn machine(seen: &Seen) -> Vec<Link> {
    of(&seen.machine, links::of_machine)
}

/// A Machine of another provider ends the chain.
fn infrastructure(seen: &Seen) -> Vec<Link> {
    let machine = seen.machine.here().filter(|_| seen.metal == Look::Unasked);
    let kind = machine.and_then(|it| it.spec.infrastructure_ref.kind.as_deref());
    let other = kind.filter(|it| *it != Kind::Metal3Machine.as_str());
    let link = |(machine, kind): (&Machine, &str)| {
        let object = Object::of(Kind::Machine.as_str(), &machine.metadata);
        Link::field(&object, "spec.infrastructureRef", kind)
            .saying(text::other_infrastructure(kind))
    };
    machine.zip(other).map(link).into_iter().collect()
}

fn request(seen: &Seen) -> Vec<Link> {
    of(&seen.request, links::of_request)
}

fn metal(seen: &Seen) -> Vec<Link> {
    of(&seen.metal, links::of_metal)
}

fn host(seen: &Seen) -> Vec<Link> {
    of(&seen.host, |it| links::of_host(it, links::began_of(it)))
}

fn pool(seen: &Seen) -> Vec<Link> {
    of(&seen.pool, links::of_pool)
}

fn entries(seen: &Seen) -> Vec<Link> {
    seen.pool.here().map(links::of_entries).unwrap_or_default()
}

fn claim(seen: &Seen) -> Vec<Link> {
    of(&seen.claim, links::of_claim)
}

fn cluster(seen: &Seen) -> Vec<Link> {
    of(&seen.cluster, links::of_cluster)
}

fn customization(seen: &Seen) -> Vec<Link> {
    of(&seen.customization, links::of_customization)
}

/// How the pool sees the customization that was asked about.
fn entry(seen: &Seen) -> Vec<Link> {
    let name = seen.customization.here().and_then(|it| it.metadata.name.as_deref());
    of(&seen.pool, |pool| {
        let state = name.and_then(|it| pool.status.as_ref()?.inventory.get(it));
        name.zip(state).map(|(name, it)| links::of_entry(pool, name, it)).into_iter().collect()
    })
}

fn discovery(seen: &Seen) -> Vec<Link> {
    of(&seen.discovery, links::of_discovery)
}

/// The claims that wait for a cluster of the pool.
fn claims(seen: &Seen) -> Vec<Link> {
    let Some(pool) = seen.pool.here() else { return Vec::new() };
    of(&seen.claims, |all| {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let of_pool = all.iter().filter(|it| it.spec.cluster_pool_name == name);
        let links = of_pool.flat_map(links::of_claim);
        links.filter(|it| it.waits && it.part == CONDITION_PENDING).collect()
    })
}

/// Whether a machine is still to get a host.
pub(crate) fn seeks_host(metal: &Metal3Machine) -> bool {
    metal.host_name().is_none() && metal.metadata.deletion_timestamp.is_none()
}

/// The label of hosts that are reserved for the owner of a machine. Cluster API gives the labels of the Machine to its
/// `Metal3Machine`.
pub(crate) fn wanted_label(machine: Option<&Machine>, metal: &Metal3Machine) -> Option<String> {
    let label = |key| metal.label(key).or_else(|| machine?.label(key));
    let deployment = label(capi::DEPLOYMENT_NAME).map(|it| label_of(false, it));
    deployment.or_else(|| label(capi::CONTROL_PLANE_NAME).map(|it| label_of(true, it)))
}

/// The hosts that are, or will be, reserved under a label.
pub(crate) fn kept<'a>(hosts: &'a [CachedHost], label: Option<&str>) -> Vec<&'a BareMetalHost> {
    let is_kept =
        |it: &&BareMetalHost| label.is_some() && reservation_label(it).as_deref() == label;
    hosts.iter().map(|it| &**it).filter(is_kept).collect()
}

/// What a machine without a host may choose from: the hosts that are reserved for its owner, else a count of all.
fn choice(seen: &Seen) -> Vec<Link> {
    let Some(metal) = seen.metal.here() else { return Vec::new() };
    let label = wanted_label(seen.machine.here(), metal);
    of(&seen.hosts, |hosts| {
        let kept = kept(hosts, label.as_deref());
        if kept.is_empty() {
            let namespace = metal.metadata.namespace.as_deref().unwrap_or_default();
            return vec![counted(namespace, hosts, seen)];
        }
        let read = seen.host.here().map(|it| &it.metadata.name);
        let others = kept.iter().filter(|it| Some(&it.metadata.name) != read);
        let mut shown: Vec<Link> =
            others.clone().take(SHOWN).flat_map(|it| links::of_host(it, None)).collect();
        let rest = others.count().saturating_sub(SHOWN);
        if let Some(last) = shown.last_mut().filter(|_| rest > 0) {
            last.message = format!("{} {}", last.message, text::more(rest));
        }
        shown
    })
}

/// How many hosts are how.
fn counted(namespace: &str, hosts: &[CachedHost], seen: &Seen) -> Link {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for host in hosts {
        *counts.entry(sort_of(host)).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let object = Object::new(Kind::BareMetalHost.as_str(), namespace, "");
    let link = Link::field(&object, "", "counted");
    if hosts.is_empty() {
        return link.saying(text::NO_HOSTS);
    }
    link.saying(text::choice(hosts.len(), seen.beyond, seen.is_searched, &counts))
}

fn sort_of(host: &BareMetalHost) -> String {
    let state = host.provisioning_state();
    if consumer_machine(host).is_some() {
        text::IN_USE.to_owned()
    } else if links::reserved_for(host).is_some() {
        text::RESERVED.to_owned()
    } else if host.spec.consumer_ref.is_some() {
        text::IN_USE.to_owned()
    } else if host.is_marked_unhealthy() {
        text::UNHEALTHY.to_owned()
    } else if state.is_available() {
        text::AVAILABLE.to_owned()
    } else {
        let word = state.as_str();
        if word.is_empty() { text::UNSEEN.to_owned() } else { word.to_owned() }
    }
}
