//! How many hosts the machines of a deployment have or may have. All of it is in the caches: it says how many machines are
//! asked for, and which host each of them gets is decided elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use api_types::capi::Machine;
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::names;
use api_types::names::capi;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use super::owner::is_template;
use super::{PASS_DEADLINE, Scope};
use crate::context::Context;
use crate::decide::scales_to;
use crate::host;
use crate::machine::is_housed;
use crate::model::{Key, Memory, Observed, ScaledSeen, Seen};
use crate::outline::{OfOwner, owner_of_kind};
use crate::reservation::{Kept, Owner};
use crate::scale::Bounds;
use crate::seen::Hosts;
use crate::selector::Selector;
use crate::text;

/// Which hosts the next machines of an owner may have.
struct Wanted {
    owner: Owner,
    selector: Selector,
    /// Whether only those that are kept for it.
    is_strict: bool,
}

/// Reads what a decision about replicas needs; nothing, if they follow no hosts.
pub fn scaled(context: &Context, key: &Key, memory: &mut Memory) -> Option<Seen> {
    let scope = Scope { context, namespace: &key.object().namespace };
    let (workers, version) =
        scope.workers(key).filter(|(it, _)| context.follows_hosts(&it.metadata))?;
    let now = Instant::now();
    memory.about(&workers.owner.uid);
    let hosts = scope.wanted(&workers).map(|it| scope.hosts_for(&it));
    let free = hosts.as_ref().map_or(&[][..], |it| &it.1);
    let mut seen = ScaledSeen {
        key: key.clone(),
        version: version.clone(),
        replicas: workers.replicas,
        bounds: bounds(&workers.metadata),
        is_halted: scope.is_halted(&workers),
        scaled_by: scaled_by(&workers.metadata),
        contested: scope.contested(key, free),
        hosts: hosts.map(|it| it.0),
        settled_for: None,
    };
    memory.settles(scales_to(&seen), now);
    seen.settled_for = memory.settled_for(now);
    let observed = Observed::Scaled(Box::new(seen));
    Some(Seen::of(observed, Some(version), now + PASS_DEADLINE))
}

impl Context {
    /// Whether the replicas of a deployment, or of a set of machines that none owns, are to follow hosts.
    pub fn follows_hosts(&self, metadata: &ObjectMeta) -> bool {
        // A deployment hands its annotations on to its sets, and sets their replicas itself.
        self.policy.scale_to_hosts
            && asked(metadata).is_some()
            && self.is_ours(metadata)
            && owner_of_kind(metadata, "MachineDeployment").is_none()
    }
}

impl Scope<'_> {
    /// A deployment or a set of machines, and its version.
    fn workers(&self, key: &Key) -> Option<(OfOwner, String)> {
        let (caches, served) = (&self.context.caches, self.context.served);
        let name = &key.object().name;
        let (workers, version) = if matches!(key, Key::Set(_)) {
            let found = caches.sets.named(self.namespace, name)?;
            (OfOwner::seen(served, &found), found.resource_version())
        } else {
            let found = caches.deployments.named(self.namespace, name)?;
            (OfOwner::seen(served, &found), found.resource_version())
        };
        Some((workers, version.unwrap_or_default()))
    }

    fn is_halted(&self, workers: &OfOwner) -> bool {
        let name = workers.cluster.as_deref().unwrap_or_default();
        let cluster = self.context.caches.clusters.named(self.namespace, name);
        let stays = |it: &ObjectMeta| it.deletion_timestamp.is_none();
        let goes_on = cluster.is_some_and(|it| !it.is_paused() && stays(&it.metadata));
        workers.paused || !goes_on || !stays(&workers.metadata)
    }

    /// Which hosts the next machines may have, or what to change before anybody knows.
    fn wanted(&self, workers: &OfOwner) -> Result<Wanted, String> {
        let named = workers.template.as_ref();
        let found = named.filter(|it| is_template(it)).and_then(|it| self.next_template(it));
        let name = named.and_then(|it| it.name.as_deref()).unwrap_or_default();
        let template = found.ok_or_else(|| text::scale_template_missing(name))?;
        let spec = &template.spec;
        let selector = Selector::of(spec.template.spec.host_selector.as_ref())?;
        let is_strict = self.context.policy.strict_reuse && spec.node_reuse == Some(true);
        Ok(Wanted { owner: workers.owner.clone(), selector, is_strict })
    }

    /// Whether a host is one that these machines may have, as soon as it is ready.
    fn may_have(&self, wanted: &Wanted, host: &BareMetalHost) -> bool {
        let is_for_it = match Kept::of(host) {
            Some(kept) => kept.is_for(&wanted.owner),
            None => host.spec.consumer_ref.is_none() && !wanted.is_strict,
        };
        is_for_it
            && host::may_be_ready(host)
            && !host::is_of_others(host, self.context.watch_filter())
            && wanted.selector.matches(host.metadata.labels.as_ref())
    }

    /// The hosts of these machines, and those among them that nobody has and that would be taken now.
    fn hosts_for(&self, wanted: &Wanted) -> (Hosts, Vec<Arc<CachedHost>>) {
        let caches = &self.context.caches;
        let machines: Vec<_> = self.parents_of(&wanted.owner).collect();
        let named = |it: &Arc<Machine>| it.spec.infrastructure_ref.name.clone();
        let own: BTreeSet<String> = machines.iter().filter_map(named).collect();
        let (mut with_host, mut free) = (BTreeSet::<&String>::new(), Vec::new());
        let (mut coming, mut unready) = (0, 0);
        for host in caches.hosts.of_namespace(self.namespace) {
            if let Some(machine) = host::consumer_machine(&host) {
                with_host.extend(own.get(machine));
            } else if self.may_have(wanted, &host) {
                match Kept::of(&host) {
                    Some(_) if host::is_on_its_way(&host) => coming += 1,
                    None if host::is_ready(&host) => free.push(host),
                    _ => unready += 1,
                }
            }
        }
        // One that lost its host is replaced by people or by its remediation, and nobody else's host makes up for it.
        let stays = machines.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
        let lost = stays.filter_map(named).filter(|it| {
            let machine = caches.machines.named(self.namespace, it);
            !with_host.contains(it) && machine.is_some_and(|it| is_housed(&it))
        });
        let count = |it: usize| i32::try_from(it).unwrap_or(i32::MAX);
        let taken = count(with_host.len() + lost.count());
        (Hosts { taken, free: count(free.len() + coming), unready: count(unready) }, free)
    }

    /// A host among those that are free here which another one counts as well.
    fn contested(&self, key: &Key, free: &[Arc<CachedHost>]) -> Option<(String, Owner)> {
        let others = self.context.scaled_in(self.namespace).into_iter().filter(|it| it != key);
        others.filter_map(|it| self.workers(&it)).find_map(|(other, _)| {
            let stays = other.metadata.deletion_timestamp.is_none();
            bounds(&other.metadata).ok().filter(|_| stays)?;
            let wanted = self.wanted(&other).ok()?;
            let host = free.iter().find(|it| self.may_have(&wanted, it))?;
            Some((host.name_any(), other.owner))
        })
    }
}

fn asked(metadata: &ObjectMeta) -> Option<&String> {
    metadata.annotations.as_ref()?.get(names::ferrite::SCALE_TO_HOSTS)
}

fn bounds(metadata: &ObjectMeta) -> Result<Bounds, String> {
    Bounds::read(asked(metadata).map_or("", String::as_str))
}

/// The annotation or label by which another program sets replicas.
fn scaled_by(metadata: &ObjectMeta) -> Option<&'static str> {
    let (notes, labels) = (metadata.annotations.as_ref(), metadata.labels.as_ref());
    let is_set = |key: &&str| notes.and_then(|all| all.get(*key)).is_some_and(|it| it != "false");
    let autoscaled =
        [capi::AUTOSCALER_MIN_SIZE, capi::AUTOSCALER_MAX_SIZE, capi::REPLICAS_MANAGED_BY];
    let in_topology = labels.is_some_and(|all| all.contains_key(capi::TOPOLOGY_OWNED));
    autoscaled.into_iter().find(is_set).or_else(|| in_topology.then_some(capi::TOPOLOGY_OWNED))
}

#[cfg(test)]
mod tests;
