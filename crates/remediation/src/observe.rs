//! All reads. Caches say whether anything is to be done; before it is done, the objects concerned are read live.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api_types::capi::{self, Cluster};
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::names;
use api_types::remediation::Metal3Remediation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::{Client, ResourceExt as _};

use crate::error::Error;
use crate::history::{Entry, History};
use crate::interest::Who;
use crate::pauses::Pauses;
use crate::request::{Group, Request};
use crate::seen::{ClusterSeen, Host, Machine, Metal, NodeSeen, Observed};
use crate::served::Served;

pub mod clusters;
pub mod node;
mod object;

use clusters::Clusters;
use object::by_name;

/// Where to read from.
pub struct Sources {
    /// Live reads.
    pub client: Client,
    /// In which versions.
    pub served: Served,
    /// Hosts as they were last seen.
    pub hosts: Store<CachedHost>,
    /// Machines as they were last seen.
    pub machines: Store<capi::Machine>,
    /// `Metal3Machines` as they were last seen.
    pub metals: Store<Metal3Machine>,
    /// Clusters as they were last seen.
    pub clusters: Store<Cluster>,
    /// Clients of workload clusters.
    pub workloads: Clusters,
    /// Which hosts have the key or the record of which request: a machine may have another host by now, or be gone.
    pub held: Held,
    /// Our own requests as they were last seen.
    pub ours: Store<Metal3Remediation>,
    /// CAPM3's.
    pub upstream: Option<Store<UpstreamRemediation>>,
    /// Which requests were paused.
    pub pauses: Pauses,
}

/// Namespace and name of a host.
type Place = (String, String);

/// Hosts by the uid of the request that they know of, and how they do.
#[derive(Default)]
pub struct Held(Mutex<Known>);

#[derive(Default)]
struct Known {
    by_uid: HashMap<String, BTreeMap<Place, Mark>>,
    /// The same the other way round: a change of one host must not cost a look at all.
    by_place: HashMap<Place, Vec<String>>,
}

/// What a host has of a request; what counts more is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// The record of a try that has ended.
    Ended,
    /// The record of one that has not.
    Open,
    /// The key, without a record: that of another client who calls itself so, or of CAPM3.
    Key,
    /// The key, and the record of the try that it belongs to.
    Held,
}

impl Mark {
    /// Whether a try is under way.
    fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Held)
    }
}

impl Held {
    fn all(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes notice of a host that appeared, changed or went. The tries of an installation with another watch filter are
    /// its own: whether their requests are there may not be seen from here.
    pub fn update(
        &self,
        namespace: &str,
        name: &str,
        host: Option<&BareMetalHost>,
        filter: Option<&str>,
    ) {
        let prefix = names::metal3::REBOOT_FOR_REMEDIATION;
        let others = |it: &Entry| {
            filter.is_some() && it.filter.as_deref().is_some_and(|it| Some(it) != filter)
        };
        let mut marks = BTreeMap::new();
        let tries = host.map(History::of).unwrap_or_default().0;
        for entry in tries.into_iter().filter(|it| !others(it)) {
            let mark = if entry.ended.is_none() { Mark::Open } else { Mark::Ended };
            marks.insert(entry.remediation, mark);
        }
        for (key, _) in host.into_iter().flat_map(BareMetalHost::reboot_requests) {
            if let Some(uid) = key.strip_prefix(prefix) {
                let open = marks.get(uid) == Some(&Mark::Open);
                marks.insert(uid.to_owned(), if open { Mark::Held } else { Mark::Key });
            }
        }
        let place = (namespace.to_owned(), name.to_owned());
        let mut all = self.all();
        for uid in all.by_place.remove(&place).into_iter().flatten() {
            if let Some(places) = all.by_uid.get_mut(&uid) {
                places.remove(&place);
                if places.is_empty() {
                    all.by_uid.remove(&uid);
                }
            }
        }
        if marks.is_empty() {
            return;
        }
        all.by_place.insert(place.clone(), marks.keys().cloned().collect());
        for (uid, mark) in marks {
            all.by_uid.entry(uid).or_default().insert(place.clone(), mark);
        }
    }

    /// A host other than this one that has a request's key; where this one knows nothing of it, one with its record will do.
    fn other(&self, uid: &str, namespace: &str, host: Option<&str>) -> Option<String> {
        let all = self.all();
        let places = all.by_uid.get(uid)?;
        let is_known =
            host.is_some_and(|name| places.contains_key(&(namespace.to_owned(), name.to_owned())));
        let least = if is_known { Mark::Key } else { Mark::Ended };
        places
            .iter()
            .filter(|((space, name), _)| space == namespace && Some(name.as_str()) != host)
            .filter(|(_, mark)| **mark >= least)
            .max_by_key(|(_, mark)| **mark)
            .map(|((_, name), _)| name.clone())
    }

    /// Every request whose open record is on a host, with the hosts. A key without one is not ours.
    pub fn places(&self) -> Vec<(String, String, String)> {
        let all = self.all();
        let each = |(uid, places): (&String, &BTreeMap<Place, Mark>)| {
            let uid = uid.clone();
            let under_way = places.iter().filter(|(_, mark)| mark.is_open());
            let names: Vec<_> = under_way.map(|(place, _)| place.clone()).collect();
            names.into_iter().map(move |(namespace, name)| (uid.clone(), namespace, name))
        };
        all.by_uid.iter().flat_map(each).collect()
    }
}

/// What a pass knows, with what its writes insist on.
pub struct Live {
    /// What decisions are made of.
    pub seen: Observed,
    /// The Machine, whose conditions are written as whole lists.
    pub machine: Option<capi::Machine>,
    /// The host's version and annotations.
    pub host: Option<Arc<BareMetalHost>>,
    /// The same of another host with our key.
    pub stray: Option<Arc<BareMetalHost>>,
    /// The node.
    pub place: Option<node::Place>,
}

impl Sources {
    fn cached<K>(
        store: &Store<K>,
        version: K::DynamicType,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<K>>
    where
        K: reflector::Lookup + Clone + 'static,
        K::DynamicType: Eq + std::hash::Hash + Clone,
    {
        store.get(&ObjectRef::new_with(name, version).within(namespace))
    }

    /// What the caches know about a request, without its node.
    pub fn from_caches(&self, request: &Request) -> Live {
        let namespace = request.namespace.clone();
        let Served { core, infrastructure, .. } = self.served;
        let machine = Self::cached(&self.machines, core, &namespace, request.machine())
            .filter(|it| request.is_about(&it.metadata));
        let metal = machine.as_deref().and_then(Machine::metal);
        let metal = metal.and_then(|it| Self::cached(&self.metals, infrastructure, &namespace, it));
        let named = metal.as_ref().and_then(|it| it.host_name().map(str::to_owned));
        let other = self.held.other(&request.uid, &namespace, named.as_deref());
        let host_of = |name: Option<String>| {
            let host = Self::cached(&self.hosts, (), &namespace, &name?)?;
            Some(Arc::new((**host).clone()))
        };
        let (host, stray) = (host_of(named), host_of(other));
        let machine = machine.map(|it| (*it).clone());
        let cluster = cluster_of(machine.as_ref(), request)
            .and_then(|it| Self::cached(&self.clusters, core, &namespace, &it));
        let cluster = cluster.as_deref();
        let mut live =
            Self::put_together(request.clone(), machine, cluster, metal.as_deref(), host, stray);
        self.mark(&mut live.seen);
        live
    }

    fn put_together(
        mut request: Request,
        machine: Option<capi::Machine>,
        cluster: Option<&Cluster>,
        metal: Option<&Metal3Machine>,
        host: Option<Arc<BareMetalHost>>,
        stray: Option<Arc<BareMetalHost>>,
    ) -> Live {
        // The cache of one kind may know of a key before the cache of another knows whose the host is.
        let own = host.as_ref().map(|it| it.name_any());
        let stray = stray.filter(|it| Some(it.name_any()) != own);
        let view = |host: &Option<Arc<BareMetalHost>>| {
            host.as_ref().map(|it| Host::of(it, &request, metal))
        };
        let (own, other) = (view(&host), view(&stray));
        let mut hosts = own.iter().chain(&other);
        if let Some(last) = hosts.find_map(|it| it.history.last(&request.uid)) {
            let uid = machine.as_ref().and_then(|it| it.metadata.uid.as_ref());
            if uid.is_some() && last.machine_uid.is_some() && last.machine_uid.as_ref() != uid {
                // Another has the name of the Machine that was asked about, which is gone with all that led to its host.
                let left = stray.or(host);
                return Self::put_together(request, None, cluster, None, None, left);
            }
            // After success tries are counted anew; else no status can say that there were fewer than there were.
            if !last.has_recovered() {
                request.standing.retries = request.standing.retries.max(last.number);
            }
        }
        let seen = Observed {
            machine: machine.as_ref().map(Machine::of),
            // One that is on its way out has still Machines to clear up, which is not ours to hinder.
            cluster: cluster
                .map_or(ClusterSeen::Missing, |it| ClusterSeen::Here { paused: it.is_paused() }),
            metal: metal.map(|it| Metal {
                paused: capi::is_paused(&it.metadata),
                host: it.host_name().map(str::to_owned),
            }),
            host: own,
            stray: other,
            node: NodeSeen::NotAsked,
            crowded: false,
            resumed: None,
            started: None,
            rival: false,
            request,
        };
        Live { seen, machine, host, stray, place: None }
    }

    /// The same, read now. Nothing if the request is gone, or another one of its name is there.
    pub async fn live(&self, known: &Live) -> Result<Option<Live>, Error> {
        let request = &known.seen.request;
        let namespace = &request.namespace;
        let Served { core, infrastructure, .. } = self.served;
        let machines: Api<capi::Machine> =
            Api::namespaced_with(self.client.clone(), namespace, &core);
        let metals: Api<Metal3Machine> =
            Api::namespaced_with(self.client.clone(), namespace, &infrastructure);
        let metal_name = known.machine.as_ref().and_then(Machine::metal).map(str::to_owned);
        let host_name = known.seen.metal.as_ref().and_then(|it| it.host.clone());
        let stray_name = known.stray.as_ref().map(|it| it.name_any());
        let cluster_name = cluster_of(known.machine.as_ref(), request);
        // The names come from caches; the objects tell whether they still are the right ones.
        let (now, machine, cluster, metal, host, stray) = tokio::join!(
            self.request_named(request.group, namespace, &request.name),
            by_name("read the Machine", &machines, request.machine()),
            self.cluster(namespace, cluster_name.as_deref()),
            async {
                match &metal_name {
                    Some(name) => by_name("read the Metal3Machine", &metals, name).await,
                    None => Ok(None),
                }
            },
            self.host(namespace, host_name.as_deref()),
            self.host(namespace, stray_name.as_deref()),
        );
        let (now, machine, mut metal) = (now?, machine?, metal?);
        let (mut cluster, mut host, mut stray) = (cluster?, host?, stray?);
        let Some(now) = now.filter(|it| it.uid == request.uid) else { return Ok(None) };
        let machine = machine.filter(|it| now.is_about(&it.metadata));
        let of = cluster_of(machine.as_ref(), &now);
        if of != cluster_name {
            cluster = self.cluster(namespace, of.as_deref()).await?;
        }
        let named = machine.as_ref().and_then(Machine::metal).map(str::to_owned);
        if named != metal_name {
            metal = match &named {
                Some(name) => by_name("read the Metal3Machine", &metals, name).await?,
                None => None,
            };
        }
        let named = metal.as_ref().and_then(|it| it.host_name().map(str::to_owned));
        if named != host_name {
            // What led to the host went just now, or leads elsewhere: what was begun there is undone all the same, and the host
            // is who remembers on which node.
            stray = stray.or(host);
            host = self.host(namespace, named.as_deref()).await?;
        }
        let cluster = cluster.as_ref();
        let mut live = Self::put_together(now, machine, cluster, metal.as_ref(), host, stray);
        self.mark(&mut live.seen);
        Ok(Some(live))
    }

    /// Adds what no object of the request says.
    fn mark(&self, seen: &mut Observed) {
        self.pauses.mark(seen);
        let Request { group, namespace, name, .. } = &seen.request;
        // A Machine has one request of each group, which has its name.
        seen.rival = self.has(&(*group != Group::Ours, namespace.clone(), name.clone()));
    }

    /// Looks at the node, which is known without its Machine as well. With `load`, also at what still runs there.
    pub async fn look_at_node(&self, live: &mut Live, load: bool) {
        let seen = &live.seen;
        let (request, machine) = (&seen.request, seen.machine.as_ref());
        let (Some(name), Some(cluster)) = (seen.node_name(), seen.cluster_name()) else {
            live.seen.node = NodeSeen::NoName;
            return;
        };
        let sought = node::Sought {
            namespace: &request.namespace,
            cluster,
            name,
            provider_id: machine.and_then(|it| it.provider_id.as_deref()),
            request: &request.uid,
            adopted: seen.is_adopted(),
            is_there: &|uid| self.is_there(uid),
            load,
        };
        let (node, place) = node::look(&self.workloads, &sought).await;
        live.seen.node = node;
        live.place = place;
    }

    /// Whether there is a request of this name.
    pub fn has(&self, (ours, namespace, name): &Who) -> bool {
        if *ours {
            return Self::cached(&self.ours, (), namespace, name).is_some();
        }
        let upstream = self.upstream.as_ref().zip(self.served.upstream);
        upstream.is_some_and(|(all, version)| Self::cached(all, version, namespace, name).is_some())
    }

    /// Whether there is a request for a Machine of this name, of whichever group.
    pub fn asks_for(&self, namespace: &str, machine: &str) -> bool {
        let named = |ours| self.has(&(ours, namespace.to_owned(), machine.to_owned()));
        named(true) || named(false)
    }

    /// The same by reading them, since the stores may be behind; or whether the one of this uid is there.
    pub async fn really_there(
        &self,
        namespace: &str,
        machine: &str,
        uid: Option<&str>,
    ) -> Result<bool, Error> {
        let upstream = self.served.upstream.map(Group::Upstream);
        for group in [Some(Group::Ours), upstream].into_iter().flatten() {
            let there = self.request_named(group, namespace, machine).await?;
            if there.is_some_and(|it| uid.is_none_or(|uid| it.uid == uid)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether there is a request of this uid, of whichever group.
    pub fn is_there(&self, uid: &str) -> bool {
        let is = |meta: &ObjectMeta| meta.uid.as_deref() == Some(uid);
        self.ours.find(|it| is(&it.metadata)).is_some()
            || self.upstream.iter().any(|all| all.find(|it| is(&it.metadata)).is_some())
    }

    /// Reads a Machine, but for one that is paused or whose Cluster is.
    pub async fn free_machine(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<capi::Machine>, Error> {
        let api: Api<capi::Machine> =
            Api::namespaced_with(self.client.clone(), namespace, &self.served.core);
        let Some(machine) = by_name("read the Machine", &api, name).await? else { return Ok(None) };
        let cluster = self.cluster(namespace, Some(&machine.spec.cluster_name)).await?;
        let paused = cluster.is_some_and(|it| it.is_paused()) || capi::is_paused(&machine.metadata);
        Ok((!paused).then_some(machine))
    }

    async fn cluster(&self, namespace: &str, name: Option<&str>) -> Result<Option<Cluster>, Error> {
        let Some(name) = name else { return Ok(None) };
        let api: Api<Cluster> =
            Api::namespaced_with(self.client.clone(), namespace, &self.served.core);
        by_name("read the Cluster", &api, name).await
    }

    /// Reads the request of that name, of whichever group.
    pub async fn request_named(
        &self,
        group: Group,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Request>, Error> {
        let what = "read the Metal3Remediation";
        match group {
            Group::Ours => {
                let api: Api<Metal3Remediation> = Api::namespaced(self.client.clone(), namespace);
                Ok(by_name(what, &api, name).await?.map(|it| Request::of_ours(&it)))
            }
            Group::Upstream(version) => {
                let api: Api<UpstreamRemediation> =
                    Api::namespaced_with(self.client.clone(), namespace, &version);
                Ok(by_name(what, &api, name).await?.map(|it| Request::of_upstream(&it)))
            }
        }
    }

    /// Reads a host.
    pub async fn host(
        &self,
        namespace: &str,
        name: Option<&str>,
    ) -> Result<Option<Arc<BareMetalHost>>, Error> {
        let Some(name) = name else { return Ok(None) };
        let api: Api<BareMetalHost> = Api::namespaced(self.client.clone(), namespace);
        Ok(by_name("read the BareMetalHost", &api, name).await?.map(Arc::new))
    }
}

fn cluster_of(machine: Option<&capi::Machine>, request: &Request) -> Option<String> {
    machine.map(|it| it.spec.cluster_name.clone()).or_else(|| request.cluster.clone())
}

#[cfg(test)]
mod tests {
    use api_types::remediation::Metal3RemediationSpec;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::reason::Reason;

    #[test]
    fn the_tries_of_an_installation_with_another_watch_filter_are_left_to_it() {
        let of = |filter: Option<&str>| {
            let mut entry = Entry::begin("uid", "m", 0, Timestamp::UNIX_EPOCH);
            entry.filter = filter.map(str::to_owned);
            let record = History(vec![entry]).text();
            let mut host = BareMetalHost::default();
            let texts = [(names::ferrite::REMEDIATION_HISTORY.to_owned(), record)];
            host.metadata.annotations = Some(texts.into());
            host
        };
        let looks_after = |own: Option<&str>, its: Option<&str>| {
            let held = Held::default();
            held.update("ns", "h", Some(&of(its)), own);
            !held.places().is_empty()
        };
        assert!(!looks_after(Some("a"), Some("b")));
        assert!(looks_after(Some("a"), Some("a")));
        assert!(looks_after(Some("a"), None), "it may have been ours before we had a filter");
        assert!(looks_after(None, Some("b")), "who has no filter looks after all");
    }

    fn host(name: &str) -> Arc<BareMetalHost> {
        let mut host = BareMetalHost::default();
        host.metadata.name = Some(name.to_owned());
        Arc::new(host)
    }

    /// A host with the record of one try for a Machine.
    fn tried(name: &str, number: u32, machine: &str, result: Reason) -> Arc<BareMetalHost> {
        let mut entry = Entry::begin("uid", "m", number, Timestamp::UNIX_EPOCH);
        entry.machine_uid = Some(machine.to_owned());
        let history = History(vec![entry]).ended("uid", result, Timestamp::UNIX_EPOCH);
        let mut host = BareMetalHost::default();
        host.metadata.name = Some(name.to_owned());
        let texts = [(names::ferrite::REMEDIATION_HISTORY.to_owned(), history.text())];
        host.metadata.annotations = Some(texts.into());
        Arc::new(host)
    }

    fn by_a_person() -> Request {
        let mut object = Metal3Remediation::new("m", Metal3RemediationSpec::default());
        object.metadata.uid = Some("uid".to_owned());
        Request::of_ours(&object)
    }

    #[test]
    fn a_machine_that_was_made_anew_is_not_the_one_that_a_person_asked_about() {
        let machine: capi::Machine = serde_json::from_value(serde_json::json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "m", "uid": "now"},
            "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}},
        }))
        .unwrap();
        let seen = |own, stray| {
            let machine = Some(machine.clone());
            let live = Sources::put_together(by_a_person(), machine, None, None, own, stray);
            let left = live.seen.stray.as_ref().map(|it| it.name.clone());
            (live.machine.is_some(), live.host.is_some(), left)
        };
        let by = |machine| tried("h", 0, machine, Reason::Recovered);
        assert_eq!(seen(Some(by("now")), None), (true, true, None));
        let gone = (false, false, Some("h".to_owned()));
        assert_eq!(seen(Some(by("before")), None), gone);
        assert_eq!(seen(Some(host("another")), Some(by("before"))), gone, "on another host");
        assert_eq!(seen(Some(host("h")), None), (true, true, None), "nobody was asked about yet");
    }

    #[test]
    fn no_status_says_that_there_were_fewer_tries_than_the_host_remembers() {
        let retries = |number, result| {
            let own = Some(tried("h", number, "machine", result));
            let live = Sources::put_together(by_a_person(), None, None, None, own, None);
            live.seen.request.standing.retries
        };
        assert_eq!(retries(2, Reason::NotRecovered), 2);
        assert_eq!(retries(2, Reason::Recovered), 0, "what fails after that is another failure");
    }

    #[test]
    fn where_the_machines_host_knows_nothing_of_a_request_another_one_may() {
        let held = Held::default();
        held.update("ns", "old", Some(&tried("old", 0, "m", Reason::Recovered)), None);
        let other = |host| held.other("uid", "ns", host);
        assert_eq!(other(None).as_deref(), Some("old"));
        assert_eq!(other(Some("new")).as_deref(), Some("old"));
        held.update("ns", "new", Some(&tried("new", 0, "m", Reason::Recovered)), None);
        assert_eq!(other(Some("new")), None, "it knows more");
    }

    #[test]
    fn a_host_that_turns_out_to_be_the_machines_is_nobodys_stray() {
        let spec = Metal3RemediationSpec::default();
        let request = Request::of_ours(&Metal3Remediation::new("m", spec));
        let seen = |own, stray| {
            let live = Sources::put_together(request.clone(), None, None, None, own, stray);
            (live.host.is_some(), live.seen.host.is_some(), live.seen.stray.is_some())
        };
        assert_eq!(seen(Some(host("a")), Some(host("a"))), (true, true, false));
        assert_eq!(seen(Some(host("a")), Some(host("b"))), (true, true, true));
        assert_eq!(seen(None, Some(host("b"))), (false, false, true));
    }
}
