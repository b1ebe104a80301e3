//! What every pass shares, and what the caches know.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api_types::ContractVersion;
use api_types::capi::{
    Cluster, KubeadmControlPlane, Machine, MachineDeployment, MachineSet, is_watched,
};
use api_types::capm3::{Metal3Data, Metal3DataClaim, Metal3Machine, Metal3MachineTemplate};
use api_types::metal3::{BareMetalHost, CachedHost};
use controller_kit::Kit;
use controller_kit::cache::Cache;
use controller_kit::engine::lanes::Lanes;
use controller_kit::engine::links::Links;
use controller_kit::engine::{Lookout, ObjectKey, Shared};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject};
use kube::core::DynamicResourceScope;
use kube::{Api, Resource};

use crate::index::Index;
use crate::metrics::Metrics;
use crate::model::Key;
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
    /// Looks at workload clusters.
    pub looks: Lanes<ObjectKey>,
    /// What the watches have shown.
    pub caches: Caches,
    /// By what of each cluster decisions were made.
    pub clusters: Shared<HashMap<ObjectKey, u64>>,
    /// Machines by the host that they name.
    pub naming: Links<ObjectKey>,
    /// Hosts that are kept, or that their machines left, and whose replicas follow hosts.
    pub looked_at: Shared<BTreeSet<Key>>,
}

/// What the watches have shown.
pub struct Caches {
    /// Hosts.
    pub hosts: Cache<CachedHost>,
    /// Metal3's part of a machine.
    pub machines: Cache<Metal3Machine>,
    /// What machines were cloned from.
    pub templates: Cache<Metal3MachineTemplate>,
    /// Cluster API's part of a machine.
    pub parents: Cache<Machine>,
    /// Clusters.
    pub clusters: Cache<Cluster>,
    /// Machine sets.
    pub sets: Cache<MachineSet>,
    /// Machine deployments.
    pub deployments: Cache<MachineDeployment>,
    /// Kubeadm control planes, where the API server has them.
    pub control_planes: Cache<KubeadmControlPlane>,
    /// What was asked of CAPM3's data controllers, where the API server has it.
    pub claims: Cache<Metal3DataClaim>,
    /// And what they answered.
    pub data: Cache<Metal3Data>,
}

impl Caches {
    /// Which version of an object there is.
    pub fn version(&self, key: &Key) -> Option<u64> {
        match key {
            Key::Machine(key) => self.machines.version(key),
            Key::Host(key) => self.hosts.version(key),
            Key::Deployment(key) => self.deployments.version(key),
            Key::Set(key) => self.sets.version(key),
        }
    }
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

    /// A kind of Metal3's part of Cluster API in a namespace.
    pub fn metal3<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = ContractVersion, Scope = DynamicResourceScope>,
    {
        let version = &self.served.infrastructure;
        Api::namespaced_with(self.kit.client.clone(), namespace, version)
    }

    /// All of a kind and namespace of which one is written, without their types.
    pub fn written(&self, object: &Key) -> Api<DynamicObject> {
        let kind = match object {
            Key::Machine(_) => ApiResource::erase::<Metal3Machine>(&self.served.infrastructure),
            Key::Host(_) => ApiResource::erase::<BareMetalHost>(&()),
            Key::Deployment(_) => ApiResource::erase::<MachineDeployment>(&self.served.core),
            Key::Set(_) => ApiResource::erase::<MachineSet>(&self.served.core),
        };
        Api::namespaced_with(self.kit.client.clone(), &object.object().namespace, &kind)
    }

    /// All whose replicas follow hosts.
    pub fn scaled(&self) -> Vec<Key> {
        let from = Key::Deployment(ObjectKey::default());
        self.looked_at.with(|all| all.range(from..).cloned().collect())
    }

    /// Those of a namespace.
    pub fn scaled_in(&self, namespace: &str) -> Vec<Key> {
        let all = self.scaled().into_iter();
        all.filter(|it| it.object().namespace == namespace).collect()
    }

    /// The hosts of a namespace.
    pub fn hosts(&self, namespace: &str) -> Api<BareMetalHost> {
        Api::namespaced(self.kit.client.clone(), namespace)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use controller_kit::config::{Mistakes, Settings, defaults};
    use controller_kit::shutdown::Shutdown;
    use controller_kit::watch::Watchable;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;

    use super::*;
    use crate::settings::NAME;

    pub(crate) const VERSION: ContractVersion = ContractVersion::V1Beta2;

    /// What a watch has shown.
    pub(crate) fn store<K: Watchable>(seen: Vec<K>, version: K::DynamicType) -> Cache<K> {
        let mut writer = Writer::new(version.clone());
        for it in seen {
            writer.apply_watcher_event(&Event::Apply(it));
        }
        Cache::of(writer.as_reader(), version)
    }

    /// The watches have shown nothing.
    pub(crate) fn no_caches() -> Caches {
        Caches {
            hosts: store(vec![], ()),
            machines: store(vec![], VERSION),
            templates: store(vec![], VERSION),
            parents: store(vec![], VERSION),
            clusters: store(vec![], VERSION),
            sets: store(vec![], VERSION),
            deployments: store(vec![], VERSION),
            control_planes: store(vec![], VERSION),
            claims: store(vec![], VERSION),
            data: store(vec![], VERSION),
        }
    }

    /// Of a process that nobody would answer: all that is needed is in the caches.
    pub(crate) fn nowhere(caches: Caches, watch_filter: Option<&str>) -> Context {
        let mut config = defaults::<Settings>().check(NAME, &mut Mistakes::default());
        config.watch_filter = watch_filter.map(str::to_owned);
        let nobody = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(nobody).unwrap();
        let metrics = controller_kit::metrics::Metrics::new(NAME).unwrap();
        let kit = Kit::new(config, client, metrics, Shutdown::default());
        let index = Arc::default();
        Context {
            metrics: Metrics::new(&kit.metrics.registry, Arc::clone(&index)).unwrap(),
            policy: Policy::default(),
            served: Served {
                core: VERSION,
                infrastructure: VERSION,
                control_plane: None,
                data: false,
            },
            lookout: Lookout::default(),
            index,
            looks: crate::looks::among(1),
            caches,
            clusters: Shared::default(),
            naming: Links::default(),
            looked_at: Shared::default(),
            kit,
        }
    }
}
