//! Which machines and hosts are looked at when something changes.

use std::collections::BTreeSet;
use std::time::Duration;

use api_types::ContractVersion;
use api_types::capi::{Cluster, Machine};
use api_types::capm3::{Metal3Data, Metal3DataClaim, Metal3Machine, Metal3MachineTemplate};
use api_types::foreign::{Foreign, ForeignKind};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::names;
use api_types::names::capi::CONTROL_PLANE_GROUP;
use controller_kit::cache::Cache;
use controller_kit::engine::{Class, Controller as _, ObjectKey};
use controller_kit::watch::Watchable;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use crate::context::Context;
use crate::model::Key;
use crate::observe::Scope;
use crate::outline::cluster_outline;
use crate::reservation::{Kept, label_of};

/// How long changes are gathered for a kept host, or for replicas that follow hosts: a status says how far an object is, and
/// changes far more often than what matters to others.
const CHANGES_GATHERED_FOR: Duration = Duration::from_secs(1);

impl Context {
    fn wake_later(&self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            let class = self.class(&key);
            self.lookout.enqueue_after(key, class, CHANGES_GATHERED_FOR);
        }
    }

    fn wake(&self, keys: impl IntoIterator<Item = Key>) {
        for key in keys {
            let class = self.class(&key);
            self.lookout.enqueue(key, class);
        }
    }

    fn wake_machines(&self, namespace: &str, names: impl IntoIterator<Item = String>) {
        let key = |name| Key::Machine(ObjectKey { namespace: namespace.to_owned(), name });
        self.wake(names.into_iter().map(key));
    }

    /// How urgent a look at a host is. Whoever waits for one that was left waits until it is given back, and for the end of a
    /// reservation hardly anybody.
    pub fn class_of_host(&self, key: &ObjectKey) -> Class {
        let is_left = self.caches.hosts.get(key).is_some_and(|host| self.seems_left(&host));
        if is_left { Class::Normal } else { Class::Background }
    }

    /// Whether a host has anything to do with us while no machine has it.
    pub fn is_to_be_looked_at(&self, host: &BareMetalHost) -> bool {
        Kept::of(host).is_some() || self.seems_left(host)
    }

    /// A host appeared, changed or went.
    pub fn host_changed(&self, host: &CachedHost) {
        let object = ObjectKey::of(&**host);
        let (ObjectKey { namespace, name }, now) = (&object, self.caches.hosts.get(&object));
        let concerned = self.index.with(|index| index.update(namespace, name, now.clone()));
        let naming = self.naming.keys(&thing(namespace, name)).into_iter().map(|it| it.name);
        self.wake_machines(namespace, naming.chain(concerned));
        self.wake_scaled(namespace);
        let kept = now.as_ref().filter(|host| self.is_to_be_looked_at(host));
        self.look_at(Key::Host(object.clone()), kept.map(|host| &host.metadata));
    }

    /// Takes note of an object that is looked at, or is not any more: what is waited for there has its own time the next time.
    fn look_at(&self, key: Key, now: Option<&ObjectMeta>) {
        if let Some(now) = now {
            self.looked_at.with(|all| all.insert(key.clone()));
            let version = now.resource_version.as_deref().unwrap_or_default();
            self.lookout.changed(&key, version, self.class(&key));
        } else if self.looked_at.with(|all| all.remove(&key)) {
            self.lookout.gone(key);
        }
    }

    /// Has those looked at whose replicas follow the hosts of a namespace.
    fn wake_scaled(&self, namespace: &str) {
        self.wake_later(self.scaled_in(namespace));
    }

    /// A `Metal3Machine` appeared, changed or went.
    pub fn metal_changed(&self, machine: &Metal3Machine) {
        let object = ObjectKey::of(machine);
        let (ObjectKey { namespace, name }, now) = (&object, self.caches.machines.get(&object));
        let host = now.as_ref().and_then(|it| Some(thing(namespace, it.host_name()?)));
        self.naming.update(&object, host.as_deref());
        let scope = Scope { context: self, namespace };
        let owner = scope.owner_of(now.as_deref().unwrap_or(machine), None);
        self.wake_kept(namespace, owner.map(|it| it.label()).as_deref());
        self.wake_scaled(namespace);
        // One that went without giving its host back left that to us.
        let hosts = self.index.with(|index| index.hosts_of(namespace, name));
        let left = hosts.into_iter().filter(|it| self.seems_left(it));
        let left: Vec<Key> = left.map(|it| Key::Host(ObjectKey::of(&**it))).collect();
        // Or nobody would hear when it is left no longer.
        self.looked_at.with(|all| all.extend(left.iter().cloned()));
        self.wake(left);
        let Some(now) = now else {
            self.wake_machines(namespace, self.index.with(|index| index.gone(namespace, name)));
            self.lookout.gone(Key::Machine(object));
            return;
        };
        let version = now.resource_version().unwrap_or_default();
        self.lookout.changed(&Key::Machine(object), &version, Class::Normal);
    }

    /// A Machine appeared, changed or went.
    pub fn machine_changed(&self, machine: &Machine) {
        let object = ObjectKey::of(machine);
        let deployment = machine.label(names::capi::DEPLOYMENT_NAME).map(|it| (false, it));
        let plane = machine.label(names::capi::CONTROL_PLANE_NAME).map(|it| (true, it));
        if let Some((is_plane, name)) = deployment.or(plane) {
            self.wake_kept(&object.namespace, Some(&label_of(is_plane, name)));
        }
        self.wake_scaled(&object.namespace);
        self.wake_machines(&object.namespace, metal3_machine(machine).map(str::to_owned));
    }

    /// A Cluster appeared, changed or went.
    pub fn cluster_changed(&self, cluster: &Cluster) {
        let object = ObjectKey::of(cluster);
        let ObjectKey { namespace, name } = &object;
        let now = self.caches.clusters.get(&object).as_deref().map(cluster_outline);
        let before = self.clusters.with(|all| match now {
            Some(now) => all.insert(object.clone(), now),
            None => all.remove(&object),
        });
        // Its status counts machines: ten thousand of them are not to be looked at for each.
        if now.is_some() && now == before {
            return;
        }
        self.wake_kept(namespace, None);
        self.wake_scaled(namespace);
        let machines = self.caches.machines.of_namespace(namespace);
        let of_it = machines.filter(|it| it.label(names::capi::CLUSTER_NAME) == Some(name));
        let mut all: BTreeSet<String> = of_it.map(|it| it.name_any()).collect();
        // A machine need not have the label; its Machine names the cluster.
        let parents = self.caches.parents.of_namespace(namespace);
        let parents = parents.filter(|it| it.spec.cluster_name == *name);
        all.extend(parents.filter_map(|it| metal3_machine(&it).map(str::to_owned)));
        self.wake_machines(namespace, all);
    }

    /// A template appeared, changed or went: of all machines that were cloned from it. It may say something else about reuse, or
    /// about wiping disks.
    pub fn template_changed(&self, template: &Metal3MachineTemplate) {
        let ObjectKey { namespace, name } = ObjectKey::of(template);
        self.wake_kept(&namespace, None);
        self.wake_scaled(&namespace);
        let machines = self.caches.machines.of_namespace(&namespace);
        let from = |it: &Metal3Machine| it.annotation(names::capi::CLONED_FROM_NAME) == Some(&name);
        let cloned = machines.filter(|it| from(it)).map(|it| it.name_any());
        self.wake_machines(&namespace, cloned);
    }

    /// What a machine asked of CAPM3's data controllers appeared, changed or went.
    pub fn claim_changed(&self, claim: &Metal3DataClaim) {
        let ObjectKey { namespace, name } = ObjectKey::of(claim);
        self.wake_machines(&namespace, [name]);
    }

    /// And so did what they answered.
    pub fn data_changed(&self, data: &Metal3Data) {
        let claim = data.spec.claim.as_ref().and_then(|it| it.name.clone());
        self.wake_machines(&ObjectKey::of(data).namespace, claim);
    }

    /// An owner of machines appeared, changed or went, or a set of machines, which leads from a machine to its deployment unless
    /// none owns it. With `key`, its replicas may follow hosts.
    pub fn owner_changed<K>(
        &self,
        cache: &Cache<Foreign<K>>,
        owner: &Foreign<K>,
        key: Option<fn(ObjectKey) -> Key>,
    ) where
        K: ForeignKind<Version = ContractVersion>,
        Foreign<K>: Watchable,
    {
        let object = ObjectKey::of(owner);
        if let Some(key) = key {
            let now = cache.get(&object);
            let scaled = now.as_ref().map(|it| &it.metadata).filter(|it| self.follows_hosts(it));
            self.look_at(key(object.clone()), scaled);
        }
        let label = label_of(K::GROUP == CONTROL_PLANE_GROUP, &object.name);
        self.wake_kept(&object.namespace, Some(&label));
        self.wake_scaled(&object.namespace);
    }

    /// Has the hosts looked at that are kept under a label, or all that are kept. An owner that is not watched is asked for each
    /// time: its machines alone are no reason, and it is looked at from time to time.
    fn wake_kept(&self, namespace: &str, label: Option<&str>) {
        self.wake_later(self.kept_by(namespace, label).into_iter().map(Key::Host));
    }

    fn kept_by(&self, namespace: &str, label: Option<&str>) -> Vec<ObjectKey> {
        let is_watched = |key: &ObjectKey| {
            let host = self.caches.hosts.get(key);
            match host.and_then(|it| Kept::of(&it)) {
                Some(Kept::For(owner)) => self.served.watches(&owner),
                _ => true,
            }
        };
        let kept = self.index.with(|index| index.kept(namespace, label));
        let kept = kept.into_iter().map(|it| ObjectKey::new(namespace, &it));
        kept.filter(|it| label.is_none() || is_watched(it)).collect()
    }
}

/// A host, as [`Context::naming`] calls it.
fn thing(namespace: &str, host: &str) -> String {
    format!("{namespace}/{host}")
}

/// Name of Metal3's part of a machine.
fn metal3_machine(machine: &Machine) -> Option<&str> {
    let named = &machine.spec.infrastructure_ref;
    named.name.as_deref().filter(|_| named.kind.as_deref() == Some("Metal3Machine"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::context::Caches;
    use crate::context::tests::{no_caches, nowhere, store};
    use crate::decide::tests::{cached, host, kept_for, owner, with};
    use crate::reservation::Owner;

    /// Or each of its machines would cost requests, as often as its status is written.
    #[tokio::test]
    async fn a_host_whose_owner_is_not_watched_is_not_looked_at_for_each_of_its_machines() {
        let plane = Owner {
            api_version: "controlplane.cluster.x-k8s.io/v1beta2".to_owned(),
            kind: "KubeadmControlPlane".to_owned(),
            name: "kcp".to_owned(),
            uid: "kcp-uid".to_owned(),
        };
        let kept = [("of-md", owner()), ("of-kcp", plane)].map(|(name, owner)| {
            (owner.label(), cached(&with(&host(name, "available"), &kept_for(&owner))))
        });
        let hosts = kept.iter().map(|(_, it)| (**it).clone()).collect();
        let context = nowhere(Caches { hosts: store(hosts, ()), ..no_caches() }, None);
        for (_, it) in &kept {
            let name = it.name_any();
            context.index.with(|index| index.update("ns", &name, Some(Arc::clone(it))));
        }
        let woken = |label: Option<&str>| {
            let mut all: Vec<_> =
                context.kept_by("ns", label).into_iter().map(|it| it.name).collect();
            all.sort();
            all
        };
        assert_eq!(woken(Some(&kept[0].0)), ["of-md"]);
        assert_eq!(woken(Some(&kept[1].0)), [""; 0]);
        assert_eq!(woken(None), ["of-kcp", "of-md"], "its Cluster is another matter");
    }
}
