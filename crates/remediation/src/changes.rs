//! Whom a change of an object concerns.

use api_types::capi::{Cluster, Machine};
use api_types::metal3::CachedHost;
use controller_kit::engine::{Class, ObjectKey};
use kube::Resource;

use crate::context::{Context, Role};
use crate::decide::is_to_be_begun;
use crate::model::{Key, RequestKey};
use crate::request::Group;

impl Context {
    /// An object changed that requests may look at.
    pub fn changed(&self, role: Role, object: &ObjectKey) {
        for request in self.looks.concerned(role, object) {
            let class = self.class_of(&request);
            self.lookout.enqueue(Key::Request(request), class);
        }
    }

    /// A request appeared, changed or went.
    pub fn request_changed(&self, group: Group, request: &impl Resource) {
        let object = ObjectKey::of(request);
        let key = RequestKey { group, object: object.clone() };
        if self.request(&key).is_some() {
            let version = request.meta().resource_version.clone().unwrap_or_default();
            let class = self.class_of(&key);
            self.lookout.changed(&Key::Request(key), &version, class);
            return;
        }
        self.looks.forget(&key);
        self.lookout.gone(Key::Request(key));
        // What it may have left.
        let uid = request.meta().uid.clone().unwrap_or_default();
        self.turns.end(&uid);
        for host in self.tries.with(|tries| tries.hosts_of(&uid)) {
            self.lookout.enqueue(Key::Host(host), Class::Normal);
        }
        self.lookout.enqueue(Key::Machine(object), Class::Background);
    }

    /// A host appeared, changed or went.
    pub fn host_changed(&self, host: &CachedHost) {
        let key = ObjectKey::of(host);
        let now = self.caches.hosts.get(&key);
        let (now, filter) = (now.as_ref().map(|it| &***it), self.policy.watch_filter.as_deref());
        self.tries.with(|tries| tries.update(&key, now, filter));
        self.changed(Role::Host, &key);
        let is_tainted = self.tries.with(|tries| tries.is_tainted(&key));
        if is_tainted || !self.orphans(&key).is_empty() {
            self.lookout.enqueue(Key::Host(key), Class::Normal);
        }
    }

    /// A Machine appeared, changed or went.
    pub fn machine_changed(&self, machine: &Machine) {
        let key = ObjectKey::of(machine);
        self.changed(Role::Machine, &key);
        let now = self.caches.machines.get(&key);
        if now.is_some_and(|it| !self.left_on(&it).is_empty()) && !self.is_asked_for(&key) {
            self.lookout.enqueue(Key::Machine(key), Class::Background);
        }
    }

    /// A Cluster appeared, changed or went.
    pub fn cluster_changed(&self, cluster: &Cluster) {
        let key = ObjectKey::of(cluster);
        if self.caches.clusters.get(&key).is_none() {
            self.workloads.forget(&key);
        }
        self.changed(Role::Cluster, &key);
        // A pause may have ended.
        for machine in self.caches.machines.of_namespace(&key.namespace) {
            if machine.spec.cluster_name == key.name && !self.left_on(&machine).is_empty() {
                self.lookout.enqueue(Key::Machine(ObjectKey::of(&*machine)), Class::Background);
            }
        }
    }

    /// How urgent a request is. First the hosts that are still to be asked: on each of them may run what has to stop. What people
    /// read of it waits until all of them are.
    pub fn class_of(&self, request: &RequestKey) -> Class {
        let urgent = self.request(request).is_some_and(|it| is_to_be_begun(&it));
        if urgent { Class::Urgent } else { Class::Normal }
    }
}
