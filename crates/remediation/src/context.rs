//! What every pass shares, and what the caches know.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use api_types::capi::{self, Cluster};
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::metal3::CachedHost;
use api_types::names;
use api_types::remediation::Metal3Remediation;
use controller_kit::Kit;
use controller_kit::cache::Cache;
use controller_kit::engine::links::Links;
use controller_kit::engine::{Lookout, ObjectKey, Shared};
use controller_kit::unread::{Broken, Undecodable};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Api;

use crate::clusters::Clusters;
use crate::history::History;
use crate::leftover;
use crate::metrics::{Metrics, tally};
use crate::model::{Key, RequestKey};
use crate::pauses::Clock;
use crate::request::{Group, Request};
use crate::seen::Machine;
use crate::served::Served;
use crate::settings::Policy;
use crate::tries::Tries;
use crate::turns::Turns;
use crate::watched::Watches;

/// What every pass shares.
pub struct Context {
    /// Handles of the process.
    pub kit: Kit,
    /// How decisions are made.
    pub policy: Policy,
    /// What is counted.
    pub metrics: Metrics,
    /// Has keys looked at.
    pub lookout: Lookout<Key>,
    /// What each request looks at.
    pub looks: Looks,
    /// Which hosts know of which requests.
    pub tries: Shared<Tries>,
    /// Which member of each control plane may begin.
    pub turns: Turns,
    /// When the clock was set.
    pub clock: Shared<Clock>,
    /// How many nodes are watched.
    pub watches: Watches,
    /// Clients of workload clusters.
    pub workloads: Clusters,
    /// In which versions kinds are read.
    pub served: Served,
    /// Since when that is known.
    pub begun: Instant,
    /// What the watches have shown.
    pub caches: Caches,
}

/// What the watches have shown.
pub struct Caches {
    /// Hosts.
    pub hosts: Cache<CachedHost>,
    /// Machines.
    pub machines: Cache<capi::Machine>,
    /// `Metal3Machines`.
    pub metals: Cache<Metal3Machine>,
    /// Clusters.
    pub clusters: Cache<Cluster>,
    /// Our own requests.
    pub ours: Cache<Metal3Remediation>,
    /// CAPM3's, where they are served.
    pub upstream: Cache<UpstreamRemediation>,
}

/// Which request looks at what, so that a change wakes it.
#[derive(Default)]
pub struct Looks(Links<(Role, RequestKey)>);

/// As what a request looks at an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Its Machine.
    #[default]
    Machine,
    /// The Machine's Cluster.
    Cluster,
    /// The Machine's `Metal3Machine`.
    Metal,
    /// The host of that.
    Host,
    /// The host that the Machine had before.
    Stray,
}

impl Role {
    const ALL: [Self; 5] = [Self::Machine, Self::Cluster, Self::Metal, Self::Host, Self::Stray];

    /// The name of an object among all that are looked at.
    fn thing(self, namespace: &str, name: &str) -> String {
        // A host is one whoever had it.
        let kind = if self == Self::Stray { Self::Host } else { self };
        format!("{kind:?}/{namespace}/{name}")
    }
}

impl Caches {
    /// The host that a Machine has, as its `Metal3Machine` names it.
    pub fn host_of(&self, machine: &capi::Machine) -> Option<ObjectKey> {
        let key = ObjectKey::of(machine);
        let metal = self.metals.named(&key.namespace, Machine::metal(machine)?)?;
        Some(ObjectKey::new(&key.namespace, metal.host_name()?))
    }

    /// An object of one of these members of a control plane, or a Machine that is another one, that is there and cannot be decoded.
    /// Whether that member is off, its host would say: without that, silence would be taken for "no". What is broken of another
    /// Cluster has nothing to do with it. A request needs no look: the host says as well whether it was begun.
    pub fn unread_member(
        &self,
        cluster: &ObjectKey,
        members: &[Arc<capi::Machine>],
    ) -> Option<Broken> {
        let is_member = |it: &Broken| {
            let label = |name| it.metadata.labels.as_ref().and_then(|all| all.get(name));
            it.metadata.namespace.as_ref() == Some(&cluster.namespace)
                && label(names::capi::CLUSTER_NAME) == Some(&cluster.name)
                && label(names::capi::CONTROL_PLANE).is_some()
        };
        let of_member = |it: &Arc<capi::Machine>| {
            let namespace = Some(cluster.namespace.as_str());
            let metal = || self.metals.broken.get(namespace, Machine::metal(it)?);
            let host = || self.hosts.broken.get(namespace, &self.host_of(it)?.name);
            metal().or_else(host)
        };
        let machine = self.machines.broken.all().into_iter().find(is_member);
        machine.or_else(|| members.iter().find_map(of_member))
    }
}

impl Context {
    /// The request of a key.
    pub fn request(&self, RequestKey { group, object }: &RequestKey) -> Option<Request> {
        match group {
            Group::Ours => self.caches.ours.get(object).map(|it| Request::of_ours(&it)),
            Group::Upstream(_) => {
                self.caches.upstream.get(object).map(|it| Request::of_upstream(&it))
            }
        }
    }

    /// The groups of requests that are served.
    pub fn groups(&self) -> impl Iterator<Item = Group> + use<> {
        std::iter::once(Group::Ours).chain(self.served.upstream.map(Group::Upstream))
    }

    /// All requests.
    pub fn requests(&self) -> Vec<RequestKey> {
        let of = |group, object| RequestKey { group, object };
        let (ours, upstream) = (&self.caches.ours.store, &self.caches.upstream.store);
        let ours = ours.state().into_iter().map(|it| of(Group::Ours, ObjectKey::of(&*it)));
        let theirs = Group::Upstream(self.served.upstream.unwrap_or_default());
        let upstream = upstream.state().into_iter().map(|it| of(theirs, ObjectKey::of(&*it)));
        ours.chain(upstream).collect()
    }

    /// The requests with the name of this Machine, of which there may be one of each group.
    pub fn requests_for(&self, machine: &ObjectKey) -> impl Iterator<Item = Request> {
        let key = |group| RequestKey { group, object: machine.clone() };
        self.groups().filter_map(move |group| self.request(&key(group)))
    }

    /// Whether there is one.
    pub fn is_asked_for(&self, machine: &ObjectKey) -> bool {
        self.requests_for(machine).next().is_some()
    }

    /// Whether there is a request of this uid, of whichever group.
    pub fn is_there(&self, uid: &str) -> bool {
        let is = |meta: &ObjectMeta| meta.uid.as_deref() == Some(uid);
        self.caches.ours.store.find(|it| is(&it.metadata)).is_some()
            || self.caches.upstream.store.find(|it| is(&it.metadata)).is_some()
    }

    /// Whether the request of this name and uid is there, and cannot be decoded.
    pub fn is_unread(&self, request: &ObjectKey, uid: &str) -> bool {
        let of = |broken: &Undecodable| broken.get(Some(&request.namespace), &request.name);
        let all = [of(&self.caches.ours.broken), of(&self.caches.upstream.broken)];
        all.into_iter().flatten().any(|it| it.metadata.uid.as_deref() == Some(uid))
    }

    /// The requests that have a try under way on a host, and are gone, or cannot be decoded.
    pub fn orphans(&self, host: &ObjectKey) -> Vec<String> {
        let mut all = self.tries.with(|tries| tries.under_way_on(host));
        all.retain(|uid| !self.is_there(uid));
        all
    }

    /// Sets gauges, and looks at the clock.
    pub fn show(&self, beat: Instant, now: Timestamp) {
        self.clock.with(|clock| clock.look(beat, now));
        self.workloads.tidy(beat);
        let requests = self.requests();
        let requests = requests.iter().filter_map(|it| self.request(it));
        let (phases, oldest) = tally(requests, &self.policy, now);
        self.metrics.shown(&phases, oldest, self.workloads.counts());
    }

    /// The Machines of a namespace.
    pub fn machines(&self, namespace: &str) -> Api<capi::Machine> {
        Api::namespaced_with(self.kit.client.clone(), namespace, &self.served.core)
    }

    /// Its Clusters.
    pub fn clusters(&self, namespace: &str) -> Api<Cluster> {
        Api::namespaced_with(self.kit.client.clone(), namespace, &self.served.core)
    }

    /// Its `Metal3Machines`.
    pub fn metals(&self, namespace: &str) -> Api<Metal3Machine> {
        Api::namespaced_with(self.kit.client.clone(), namespace, &self.served.infrastructure)
    }

    /// Its hosts.
    pub fn hosts(&self, namespace: &str) -> Api<CachedHost> {
        Api::namespaced(self.kit.client.clone(), namespace)
    }

    /// What a Machine says that has to go when its request is gone.
    pub fn left_on(&self, machine: &capi::Machine) -> Vec<&'static str> {
        leftover::of(machine, self.policy.watch_filter.as_deref(), || {
            let host = self.caches.hosts.get(&self.caches.host_of(machine)?)?;
            History::of(&host).gave_up(machine.metadata.uid.as_deref()?)
        })
    }

    /// Whether a Machine, or its Cluster, is paused.
    pub fn is_paused(&self, machine: &capi::Machine) -> bool {
        let namespace = ObjectKey::of(machine).namespace;
        let cluster = self.caches.clusters.named(&namespace, &machine.spec.cluster_name);
        capi::is_paused(&machine.metadata) || cluster.is_some_and(|it| it.is_paused())
    }
}

impl Looks {
    /// From now on a request looks at this object as that, and at no other. To be said before the object is read: what changes in
    /// between would wake nobody.
    pub fn set(&self, request: &RequestKey, role: Role, name: Option<&str>) {
        let thing = name.map(|it| role.thing(&request.object.namespace, it));
        self.0.update(&(role, request.clone()), thing.as_deref());
    }

    /// A request is gone, and looks at nothing.
    pub fn forget(&self, request: &RequestKey) {
        for role in Role::ALL {
            self.set(request, role, None);
        }
    }

    /// The requests that look at an object.
    pub fn concerned(&self, role: Role, object: &ObjectKey) -> BTreeSet<RequestKey> {
        let thing = role.thing(&object.namespace, &object.name);
        self.0.keys(&thing).into_iter().map(|(_, request)| request).collect()
    }
}

#[cfg(test)]
mod tests {
    use controller_kit::watch::Watchable;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher;
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    #[test]
    fn who_looks_at_an_object_is_concerned_until_it_looks_elsewhere_or_is_gone() {
        let looks = Looks::default();
        let [a, b] = ["a", "b"].map(|it| RequestKey { group: Group::Ours, object: object(it) });
        let concerned = |host: &str| looks.concerned(Role::Host, &object(host));
        for request in [&a, &b] {
            looks.set(request, Role::Host, Some("h1"));
        }
        looks.set(&a, Role::Host, Some("h2"));
        looks.set(&a, Role::Stray, Some("h1"));
        assert_eq!(concerned("h1"), [a.clone(), b.clone()].into(), "a had it before");
        assert_eq!(concerned("h2"), [a.clone()].into());
        looks.set(&a, Role::Stray, None);
        assert_eq!(concerned("h1"), [b].into());
        assert!(looks.concerned(Role::Machine, &object("h1")).is_empty(), "of another kind");
        looks.forget(&a);
        assert!(concerned("h2").is_empty());
    }

    fn seen<K: Watchable>(objects: Vec<K>) -> Cache<K>
    where
        K::DynamicType: Default,
    {
        let mut writer = Writer::new(K::DynamicType::default());
        for object in objects {
            writer.apply_watcher_event(&watcher::Event::Apply(object));
        }
        Cache::of(writer.as_reader(), K::DynamicType::default())
    }

    fn broken(kind: &str, name: &str, labels: &Value) -> Broken {
        let metadata = json!({"namespace": "ns", "name": name, "labels": labels});
        let object = json!({"kind": kind, "namespace": "ns", "name": name});
        Broken {
            metadata: serde_json::from_value(metadata).unwrap(),
            object: serde_json::from_value(object).unwrap(),
            problem: "spec.online: a number".to_owned(),
        }
    }

    fn of_cluster(name: &str) -> Value {
        json!({names::capi::CLUSTER_NAME: name, names::capi::CONTROL_PLANE: ""})
    }

    /// Two members of a control plane, each with a host, the second with objects that somebody spoilt.
    #[test]
    fn a_member_that_cannot_be_read_is_found_and_nobody_of_another_cluster() {
        let member = |name: &str| {
            let reference = json!({"kind": "Metal3Machine", "name": name});
            let spec = json!({"clusterName": "c", "bootstrap": {}, "infrastructureRef": reference});
            let machine: capi::Machine = serde_json::from_value(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                "metadata": {"namespace": "ns", "name": name}, "spec": spec,
            }))
            .unwrap();
            Arc::new(machine)
        };
        let metal = |name: &str| -> Metal3Machine {
            let host = json!({"metal3.io/BareMetalHost": format!("ns/host-{name}")});
            serde_json::from_value(json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "Metal3Machine",
                "metadata": {"namespace": "ns", "name": name, "annotations": host}, "spec": {},
            }))
            .unwrap()
        };
        let unread = |spoil: &dyn Fn(&Caches)| {
            let caches = Caches {
                hosts: seen(Vec::new()),
                machines: seen(Vec::new()),
                metals: seen(vec![metal("cp-1"), metal("cp-2")]),
                clusters: seen(Vec::new()),
                ours: seen(Vec::new()),
                upstream: seen(Vec::new()),
            };
            spoil(&caches);
            let found = caches.unread_member(&object("c"), &[member("cp-1"), member("cp-2")]);
            found.map(|it| it.object.name.unwrap())
        };
        assert_eq!(unread(&|_: &Caches| ()), None);
        let host = |name: &'static str| {
            unread(&|it: &Caches| {
                it.hosts.broken.put(broken("BareMetalHost", name, &json!({})));
            })
        };
        assert_eq!(host("host-cp-2").as_deref(), Some("host-cp-2"));
        assert_eq!(host("h"), None, "it is nobody's");
        let metal = unread(&|it: &Caches| {
            it.metals.broken.put(broken("Metal3Machine", "cp-2", &json!({})));
        });
        assert_eq!(metal.as_deref(), Some("cp-2"));
        let machine = |cluster: &'static str| {
            unread(&|it: &Caches| {
                it.machines.broken.put(broken("Machine", "cp-3", &of_cluster(cluster)));
            })
        };
        assert_eq!(machine("c").as_deref(), Some("cp-3"));
        assert_eq!(machine("d"), None, "it is of another cluster");
    }
}
