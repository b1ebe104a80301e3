//! What every pass shares, and what the caches know.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use api_types::capi::{
    Cluster, KubeadmControlPlane, Machine, MachineDeployment, MachineSet, is_watched,
};
use api_types::capm3::{
    HostSelector, Metal3Data, Metal3DataClaim, Metal3Machine, Metal3MachineTemplate,
};
use api_types::metal3::{BareMetalHost, CachedHost};
use controller_kit::Kit;
use controller_kit::engine::{Lookout, ObjectKey, Shared};
use controller_kit::watch::Undecodable;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::runtime::reflector::{Lookup, ObjectRef, Store};

use crate::index::Index;
use crate::looks::Looks;
use crate::metrics::Metrics;
use crate::model::Key;
use crate::outline::{OfCluster, OfMachine, OfOwner};
use crate::served::Served;
use crate::settings::Policy;

/// What every pass shares.
pub struct Context {
    /// Handles of the process.
    pub kit: Kit,
    /// How decisions are made.
    pub policy: Policy,
    /// What is counted.
    pub metrics: Metrics,
    /// In which versions kinds are read.
    pub served: Served,
    /// Has keys looked at.
    pub lookout: Lookout<Key>,
    /// Hosts by what they are good for, and who waits for one.
    pub index: Arc<Shared<Index>>,
    /// Who looks at which workload cluster.
    pub looks: Looks,
    /// What the watches have shown.
    pub caches: Caches,
    /// By what decisions were made.
    pub outlines: Outlines,
    /// Hosts that are kept, or that their machines left.
    pub looked_at: Shared<BTreeSet<ObjectKey>>,
}

/// What the watches have shown.
pub struct Caches {
    /// Hosts.
    pub hosts: Store<CachedHost>,
    /// Metal3's part of a machine.
    pub machines: Store<Metal3Machine>,
    /// What machines were cloned from.
    pub templates: Store<Metal3MachineTemplate>,
    /// Templates that cannot be decoded.
    pub broken_templates: Undecodable,
    /// Cluster API's part of a machine.
    pub parents: Store<Machine>,
    /// Clusters.
    pub clusters: Store<Cluster>,
    /// Machine sets.
    pub sets: Store<MachineSet>,
    /// Machine deployments.
    pub deployments: Store<MachineDeployment>,
    /// Kubeadm control planes, where the API server has them.
    pub control_planes: Option<Store<KubeadmControlPlane>>,
    /// What was asked of CAPM3's data controllers, where the API server has it.
    pub claims: Option<Store<Metal3DataClaim>>,
    /// And what they answered.
    pub data: Option<Store<Metal3Data>>,
}

/// What decisions about others were made by. A status says how far an object is, and changes far more often than that: ten
/// thousand machines of a cluster are not to be looked at for each.
#[derive(Default)]
pub struct Outlines {
    /// Of Clusters.
    pub clusters: Outlined<OfCluster>,
    /// Of Machines.
    pub parents: Outlined<OfMachine>,
    /// Of deployments.
    pub deployments: Outlined<OfOwner>,
    /// Of control planes.
    pub planes: Outlined<OfOwner>,
    /// Which hosts machines select, of each one that there is.
    pub selectors: Outlined<Option<HostSelector>>,
}

/// The outlines of all objects of a kind.
pub struct Outlined<O>(Shared<HashMap<ObjectKey, O>>);

impl<O> Default for Outlined<O> {
    fn default() -> Self {
        Self(Shared::default())
    }
}

impl<O: PartialEq> Outlined<O> {
    /// Whether anything that matters changed. What is gone is forgotten.
    pub fn is_news(&self, key: &ObjectKey, now: Option<O>) -> bool {
        self.0.with(|all| {
            let Some(now) = now else {
                all.remove(key);
                return true;
            };
            let is_news = all.get(key) != Some(&now);
            all.insert(key.clone(), now);
            is_news
        })
    }
}

/// An object as it was last seen.
pub fn last_seen<K>(
    store: &Store<K>,
    version: K::DynamicType,
    namespace: &str,
    name: &str,
) -> Option<Arc<K>>
where
    K: Lookup + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    store.get(&ObjectRef::new_with(name, version).within(namespace))
}

impl Context {
    /// Cluster API's watch label, if only objects with it are ours.
    pub fn watch_filter(&self) -> Option<&str> {
        self.kit.config.watch_filter.as_deref()
    }

    /// Whether an object is not left to another installation.
    pub fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        is_watched(metadata, self.watch_filter())
    }

    /// A machine as it was last seen.
    pub fn machine(&self, key: &ObjectKey) -> Option<Arc<Metal3Machine>> {
        let version = self.served.infrastructure;
        last_seen(&self.caches.machines, version, &key.namespace, &key.name)
    }

    /// A host as it was last seen.
    pub fn host(&self, key: &ObjectKey) -> Option<Arc<CachedHost>> {
        last_seen(&self.caches.hosts, (), &key.namespace, &key.name)
    }

    /// The machines of a namespace.
    pub fn machines(&self, namespace: &str) -> Api<Metal3Machine> {
        let version = &self.served.infrastructure;
        Api::namespaced_with(self.kit.client.clone(), namespace, version)
    }

    /// Its hosts.
    pub fn hosts(&self, namespace: &str) -> Api<BareMetalHost> {
        Api::namespaced(self.kit.client.clone(), namespace)
    }

    /// What machines of a namespace have asked of CAPM3's data controllers.
    pub fn claims(&self, namespace: &str) -> Api<Metal3DataClaim> {
        let version = &self.served.infrastructure;
        Api::namespaced_with(self.kit.client.clone(), namespace, version)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use api_types::ContractVersion;
    use clap::Parser as _;
    use controller_kit::config::Mistakes;
    use controller_kit::shutdown::Shutdown;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;

    use super::*;
    use crate::settings::{Cli, NAME};

    pub(crate) const VERSION: ContractVersion = ContractVersion::V1Beta2;

    /// What a watch has shown.
    pub(crate) fn store<K>(seen: Vec<K>, version: K::DynamicType) -> Store<K>
    where
        K: Lookup + Clone + 'static,
        K::DynamicType: Eq + Hash + Clone,
    {
        let mut writer = Writer::new(version);
        for it in seen {
            writer.apply_watcher_event(&Event::Apply(it));
        }
        writer.as_reader()
    }

    /// The watches have shown nothing.
    pub(crate) fn no_caches() -> Caches {
        Caches {
            hosts: store(vec![], ()),
            machines: store(vec![], VERSION),
            templates: store(vec![], VERSION),
            broken_templates: Undecodable::default(),
            parents: store(vec![], VERSION),
            clusters: store(vec![], VERSION),
            sets: store(vec![], VERSION),
            deployments: store(vec![], VERSION),
            control_planes: None,
            claims: None,
            data: None,
        }
    }

    /// Of a process that nobody would answer: all that is needed is in the caches.
    pub(crate) fn nowhere(caches: Caches, watch_filter: Option<&str>) -> Context {
        let cli = Cli::parse_from([NAME]);
        let mut config = cli.common.check(NAME, &mut Mistakes::default());
        config.watch_filter = watch_filter.map(str::to_owned);
        let nobody = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(nobody).unwrap();
        let metrics = controller_kit::metrics::Metrics::new(NAME).unwrap();
        let kit = Kit::new(config, client, metrics, Shutdown::default());
        Context {
            metrics: Metrics::new(&kit.metrics.registry).unwrap(),
            policy: Policy::default(),
            served: Served {
                core: VERSION,
                infrastructure: VERSION,
                control_plane: None,
                data: false,
            },
            lookout: Lookout::default(),
            index: Arc::default(),
            looks: Looks::among(1),
            caches,
            outlines: Outlines::default(),
            looked_at: Shared::default(),
            kit,
        }
    }

    #[test]
    fn it_is_news_once_and_again_when_it_was_gone() {
        let key = ObjectKey { namespace: "ns".to_owned(), name: "m".to_owned() };
        let all = Outlined::default();
        let told = [Some(1), Some(1), Some(2), None, Some(2)].map(|now| all.is_news(&key, now));
        assert_eq!(told, [true, false, true, true, true]);
    }
}
