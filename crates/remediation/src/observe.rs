//! All reads. Caches say whether anything is to be done; before it is done, the objects concerned are read live.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api_types::capi::{self, Cluster};
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::names;
use api_types::remediation::Metal3Remediation;
use kube::api::Api;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::{Client, ResourceExt as _};

use crate::clusters::Clusters;
use crate::error::{Error, asked};
use crate::node;
use crate::request::{Group, Request};
use crate::seen::{ClusterSeen, Host, Machine, Metal, NodeSeen, Observed};
use crate::served::Served;

/// Where to read from.
pub struct Sources {
    /// Live reads.
    pub client: Client,
    /// In which versions.
    pub served: Served,
    /// Cluster API's watch label, if only objects with it are ours.
    pub watch_filter: Option<String>,
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
    /// Which hosts have the key of which request: a machine may have another host by now.
    pub held: Held,
}

/// Namespace and name of a host.
type Place = (String, String);

/// Hosts by the uid of the request whose key they have.
#[derive(Default)]
pub struct Held(Mutex<Keys>);

#[derive(Default)]
struct Keys {
    by_uid: HashMap<String, BTreeSet<Place>>,
    /// The same the other way round: a change of one host must not cost a look at all.
    by_place: HashMap<Place, Vec<String>>,
}

impl Held {
    fn all(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes notice of a host that appeared, changed or went.
    pub fn update(&self, namespace: &str, name: &str, host: Option<&BareMetalHost>) {
        let prefix = names::metal3::REBOOT_FOR_REMEDIATION;
        let uids: Vec<String> = host
            .into_iter()
            .flat_map(BareMetalHost::reboot_requests)
            .filter_map(|(key, _)| key.strip_prefix(prefix).map(str::to_owned))
            .collect();
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
        for uid in &uids {
            all.by_uid.entry(uid.clone()).or_default().insert(place.clone());
        }
        if !uids.is_empty() {
            all.by_place.insert(place, uids);
        }
    }

    /// A host other than this one that has a request's key.
    fn other(&self, uid: &str, namespace: &str, host: Option<&str>) -> Option<String> {
        let all = self.all();
        let mut places = all.by_uid.get(uid)?.iter();
        places
            .find(|(space, name)| space == namespace && Some(name.as_str()) != host)
            .map(|(_, name)| name.clone())
    }

    /// Every request whose key is on a host, with the hosts.
    pub fn places(&self) -> Vec<(String, String, String)> {
        let all = self.all();
        let each = |(uid, places): (&String, &BTreeSet<Place>)| {
            let uid = uid.clone();
            let names: Vec<_> = places.iter().cloned().collect();
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
    /// Whether a request is left to another installation.
    pub fn is_ours(&self, label: Option<&str>) -> bool {
        self.watch_filter.as_deref().is_none_or(|wanted| label == Some(wanted))
    }

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
        let machine = Self::cached(&self.machines, core, &namespace, request.machine());
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
        self.put_together(request.clone(), machine, metal.as_deref(), host, stray)
    }

    fn put_together(
        &self,
        request: Request,
        machine: Option<capi::Machine>,
        metal: Option<&Metal3Machine>,
        host: Option<Arc<BareMetalHost>>,
        stray: Option<Arc<BareMetalHost>>,
    ) -> Live {
        let cluster = machine.as_ref().map(|it| it.spec.cluster_name.clone());
        let cluster = cluster.or_else(|| request.cluster.clone()).and_then(|name| {
            Self::cached(&self.clusters, self.served.core, &request.namespace, &name)
        });
        let cluster = cluster.map_or(ClusterSeen::Missing, |it| {
            // One that is on its way out has still Machines to clear up, which is not ours to hinder.
            ClusterSeen::Here { paused: it.is_paused() }
        });
        let view = |host: &Option<Arc<BareMetalHost>>| {
            host.as_ref().map(|it| Host::of(it, &request, metal))
        };
        let seen = Observed {
            machine: machine.as_ref().map(Machine::of),
            cluster,
            metal: metal.map(|it| Metal {
                paused: capi::is_paused(&it.metadata),
                host: it.host_name().map(str::to_owned),
            }),
            host: view(&host),
            stray: view(&stray),
            node: NodeSeen::NotAsked,
            crowded: false,
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
        // The names come from caches; the objects tell whether they still are the right ones.
        let (now, machine, metal, host, stray) = tokio::join!(
            self.request(request),
            asked("read the Machine", machines.get_opt(request.machine())),
            async {
                match &metal_name {
                    Some(name) => asked("read the Metal3Machine", metals.get_opt(name)).await,
                    None => Ok(None),
                }
            },
            self.host(namespace, host_name.as_deref()),
            self.host(namespace, stray_name.as_deref()),
        );
        let (now, machine, mut metal) = (now?, machine?, metal?);
        let (mut host, stray) = (host?, stray?);
        let Some(now) = now.filter(|it| it.uid == request.uid) else { return Ok(None) };
        let named = machine.as_ref().and_then(Machine::metal).map(str::to_owned);
        if named != metal_name {
            metal = match &named {
                Some(name) => asked("read the Metal3Machine", metals.get_opt(name)).await?,
                None => None,
            };
        }
        let named = metal.as_ref().and_then(|it| it.host_name().map(str::to_owned));
        if named != host_name {
            host = self.host(namespace, named.as_deref()).await?;
        }
        Ok(Some(self.put_together(now, machine, metal.as_ref(), host, stray)))
    }

    /// Looks at the node. With `load`, also at what still runs there.
    pub async fn look_at_node(&self, live: &mut Live, load: bool) {
        let Some(machine) = &live.seen.machine else { return };
        let request = &live.seen.request;
        let (seen, place) =
            node::look(&self.workloads, &request.namespace, machine, &request.uid, load).await;
        live.seen.node = seen;
        live.place = place;
    }

    /// Reads a request, of whichever group.
    pub async fn request(&self, request: &Request) -> Result<Option<Request>, Error> {
        self.request_named(request.group, &request.namespace, &request.name).await
    }

    /// Reads the request of that name.
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
                Ok(asked(what, api.get_opt(name)).await?.map(|it| Request::of_ours(&it)))
            }
            Group::Upstream(version) => {
                let api: Api<UpstreamRemediation> =
                    Api::namespaced_with(self.client.clone(), namespace, &version);
                Ok(asked(what, api.get_opt(name)).await?.map(|it| Request::of_upstream(&it)))
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
        Ok(asked("read the BareMetalHost", api.get_opt(name)).await?.map(Arc::new))
    }
}
