//! Which machines and hosts are looked at when something changes.

use std::collections::BTreeSet;
use std::time::Instant;

use api_types::capi::{Cluster, KubeadmControlPlane, Machine, MachineDeployment};
use api_types::capm3::{Metal3Data, Metal3DataClaim, Metal3Machine, Metal3MachineTemplate};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::names;
use controller_kit::engine::{Class, ObjectKey};
use kube::ResourceExt as _;

use crate::context::Context;
use crate::machine::{created, is_housed};
use crate::model::Key;
use crate::observe::Scope;
use crate::outline::{OfCluster, OfMachine, OfOwner};
use crate::reservation::{Kept, Owner};

impl Context {
    fn wake_machines(&self, namespace: &str, names: impl IntoIterator<Item = String>) {
        for name in names {
            let key = ObjectKey { namespace: namespace.to_owned(), name };
            self.lookout.enqueue(Key::Machine(key), Class::Normal);
        }
    }

    fn wake_hosts(&self, namespace: &str, names: impl IntoIterator<Item = String>) {
        for name in names {
            let key = ObjectKey { namespace: namespace.to_owned(), name };
            let class = self.class_of_host(&key);
            self.lookout.enqueue(Key::Host(key), class);
        }
    }

    /// How urgent a look at a host is. Whoever waits for one that was left waits until it is given back, and for the end of a
    /// reservation hardly anybody.
    pub fn class_of_host(&self, key: &ObjectKey) -> Class {
        let is_left = self.host(key).is_some_and(|host| self.seems_left(&host));
        if is_left { Class::Normal } else { Class::Background }
    }

    /// Whether a host has anything to do with us while no machine has it.
    pub fn is_to_be_looked_at(&self, host: &BareMetalHost) -> bool {
        Kept::of(host).is_some() || self.seems_left(host)
    }

    /// Ends offers of hosts that nobody came for.
    pub fn end_offers(&self) {
        for (namespace, machine) in self.index.with(|index| index.expire(Instant::now())) {
            self.wake_machines(&namespace, [machine]);
        }
    }

    /// A host appeared, changed or went.
    pub fn host_changed(&self, host: &CachedHost) {
        let object = ObjectKey::of(&**host);
        let (ObjectKey { namespace, name }, now) = (&object, self.host(&object));
        let concerned =
            self.index.with(|index| index.update(namespace, name, now.clone(), Instant::now()));
        self.wake_machines(namespace, concerned);
        if let Some(host) = now.filter(|host| self.is_to_be_looked_at(host)) {
            self.looked_at.with(|all| all.insert(object.clone()));
            let version = host.metadata.resource_version.clone().unwrap_or_default();
            let class = self.class_of_host(&object);
            self.lookout.changed(&Key::Host(object), &version, class);
        } else if self.looked_at.with(|all| all.remove(&object)) {
            // Its next reservation has its own time.
            self.lookout.gone(Key::Host(object));
        }
    }

    /// A `Metal3Machine` appeared, changed or went.
    pub fn metal_changed(&self, machine: &Metal3Machine) {
        let object = ObjectKey::of(machine);
        let (ObjectKey { namespace, name }, now) = (&object, self.machine(&object));
        let host = now.as_ref().and_then(|it| Some((it.host_name()?, is_housed(it))));
        let label = self.owner_label(namespace, now.as_deref().unwrap_or(machine));
        // Whether it has a host, and which it would take, decides whether its owner needs one that is kept.
        let selector = now.as_ref().map(|it| it.spec.host_selector.clone());
        let selects_anew = self.outlines.selectors.is_news(&object, selector);
        let (freed, kept, left) = self.index.with(|index| {
            let is_news = index.name(namespace, name, host) || selects_anew;
            let freed = if now.is_none() {
                index.leave(namespace, name);
                index.settle(namespace, name, created(machine), None, Instant::now())
            } else {
                Vec::new()
            };
            let kept = if is_news { index.kept(namespace, label.as_deref()) } else { Vec::new() };
            (freed, kept, index.hosts_of(namespace, name))
        });
        self.wake_machines(namespace, freed);
        // One that went without giving its host back left that to us.
        let left = left.into_iter().filter(|it| self.seems_left(it));
        self.wake_hosts(namespace, kept.into_iter().chain(left.map(|it| it.name_any())));
        match now {
            None => self.lookout.gone(Key::Machine(object)),
            Some(machine) => {
                let version = machine.resource_version().unwrap_or_default();
                self.lookout.changed(&Key::Machine(object), &version, Class::Normal);
            }
        }
    }

    /// Under which label hosts are kept for a machine's owner, if it has one that is known.
    fn owner_label(&self, namespace: &str, machine: &Metal3Machine) -> Option<String> {
        let scope = Scope { context: self, namespace };
        let owner = scope.owner_of(machine, &scope.parent(machine))?;
        Some(owner.label())
    }

    /// A Machine appeared, changed or went.
    pub fn machine_changed(&self, machine: &Machine) {
        let object = ObjectKey::of(machine);
        let now = self.caches.parents.get(&object.namespace, &object.name);
        let now = now.as_deref().map(OfMachine::outline);
        if self.outlines.parents.is_news(&object, now) {
            self.wake_hosts_of_owner_of(&object.namespace, machine);
        }
        self.wake_machines(&object.namespace, metal3_machine(machine).map(str::to_owned));
    }

    fn wake_hosts_of_owner_of(&self, namespace: &str, machine: &Machine) {
        if let Some(name) = machine.label(names::capi::DEPLOYMENT_NAME) {
            self.wake_hosts_of_owner(namespace, names::capi::GROUP, "MachineDeployment", name);
        } else if let Some(name) = machine.label(names::capi::CONTROL_PLANE_NAME) {
            let group = names::capi::CONTROL_PLANE_GROUP;
            self.wake_hosts_of_owner(namespace, group, "KubeadmControlPlane", name);
        }
    }

    /// A Cluster appeared, changed or went.
    pub fn cluster_changed(&self, cluster: &Cluster) {
        let object = ObjectKey::of(cluster);
        let ObjectKey { namespace, name } = &object;
        let now = self.caches.clusters.get(namespace, name);
        let now = now.as_deref().map(OfCluster::outline);
        if !self.outlines.clusters.is_news(&object, now) {
            return;
        }
        self.wake_all_kept(namespace);
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
        self.wake_all_kept(&namespace);
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

    /// A deployment appeared, changed or went.
    pub fn deployment_changed(&self, deployment: &MachineDeployment) {
        let object = ObjectKey::of(deployment);
        let ObjectKey { namespace, name } = &object;
        let now = self.caches.deployments.get(namespace, name);
        let now = now.map(|it| OfOwner::of_deployment(self.served, &it));
        if self.outlines.deployments.is_news(&object, now) {
            self.wake_hosts_of_owner(namespace, names::capi::GROUP, "MachineDeployment", name);
        }
    }

    /// A kubeadm control plane appeared, changed or went.
    pub fn plane_changed(&self, plane: &KubeadmControlPlane) {
        let object = ObjectKey::of(plane);
        let ObjectKey { namespace, name } = &object;
        let planes = self.caches.control_planes.as_ref();
        let now = planes.and_then(|planes| planes.get(namespace, name));
        let now = now.map(|it| OfOwner::of_plane(self.served, &it));
        if self.outlines.planes.is_news(&object, now) {
            let group = names::capi::CONTROL_PLANE_GROUP;
            self.wake_hosts_of_owner(namespace, group, "KubeadmControlPlane", name);
        }
    }

    fn wake_all_kept(&self, namespace: &str) {
        self.wake_hosts(namespace, self.index.with(|index| index.kept(namespace, None)));
    }

    fn wake_hosts_of_owner(&self, namespace: &str, group: &str, kind: &str, name: &str) {
        let owner = Owner {
            api_version: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
        };
        let label = owner.label();
        let kept = self.index.with(|index| index.kept(namespace, Some(&label)));
        self.wake_hosts(namespace, kept);
    }
}

/// Name of Metal3's part of a machine.
fn metal3_machine(machine: &Machine) -> Option<&str> {
    let named = &machine.spec.infrastructure_ref;
    named.name.as_deref().filter(|_| named.kind.as_deref() == Some("Metal3Machine"))
}
