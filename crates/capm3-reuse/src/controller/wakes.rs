//! Which machines and kept hosts are looked at when something else changes.

use std::collections::BTreeSet;

use api_types::ContractVersion;
use api_types::capi::{Cluster, KubeadmControlPlane, Machine, MachineDeployment};
use api_types::capm3::{Metal3Data, Metal3Machine, Metal3MachineTemplate};
use api_types::names;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;

use super::metal3_machine;
use crate::context::Context;
use crate::matter::{OfCluster, OfMachine};
use crate::observe::last_seen;
use crate::observe::owner::Outline;
use crate::reservation::Owner;

impl Context {
    pub(super) fn parent_changed(&self, machine: &Machine) -> Vec<ObjectRef<Metal3Machine>> {
        let (namespace, name) = (machine.namespace().unwrap_or_default(), machine.name_any());
        let now = last_seen(&self.from.stores.parents, self.from.served.core, &namespace, &name);
        let now = now.as_deref().map(OfMachine::outline);
        if self.parents.is_news((namespace.clone(), name), now) {
            self.hosts_of_owner_of(&namespace, machine);
        }
        metal3_machine(machine).map(|name| self.machine_ref(&namespace, name)).into_iter().collect()
    }

    fn hosts_of_owner_of(&self, namespace: &str, machine: &Machine) {
        let labels = machine.labels();
        let label = labels
            .get(names::capi::DEPLOYMENT_NAME)
            .map(|name| (names::capi::GROUP, "MachineDeployment", name))
            .or_else(|| {
                let name = labels.get(names::capi::CONTROL_PLANE_NAME)?;
                Some((names::capi::CONTROL_PLANE_GROUP, "KubeadmControlPlane", name))
            });
        if let Some((group, kind, name)) = label {
            self.hosts_of_owner(namespace, group, kind, name);
        }
    }

    pub(super) fn cluster_changed(&self, cluster: &Cluster) -> Vec<ObjectRef<Metal3Machine>> {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        let now = last_seen(&self.from.stores.clusters, self.from.served.core, &namespace, &name);
        let now = now.as_deref().map(OfCluster::outline);
        if !self.clusters.is_news((namespace.clone(), name.clone()), now) {
            return Vec::new();
        }
        self.hosts.send(&namespace, self.from.index().kept(&namespace, None));
        let of_it = self.from.stores.machines.state_filter(|it| {
            it.metadata.namespace.as_deref() == Some(&namespace)
                && it.label(names::capi::CLUSTER_NAME) == Some(&name)
        });
        let mut all: BTreeSet<String> = of_it.iter().map(|it| it.name_any()).collect();
        // A machine need not have the label; its Machine names the cluster.
        let parents = self.from.stores.parents.state_filter(|it| {
            it.metadata.namespace.as_deref() == Some(&namespace) && it.spec.cluster_name == name
        });
        all.extend(parents.iter().filter_map(|it| metal3_machine(it).map(str::to_owned)));
        all.iter().map(|it| self.machine_ref(&namespace, it)).collect()
    }

    /// All machines that were cloned from it: it may say something else about reuse, or about wiping disks.
    pub(super) fn template_changed(
        &self,
        template: &Metal3MachineTemplate,
    ) -> Vec<ObjectRef<Metal3Machine>> {
        let namespace = template.namespace().unwrap_or_default();
        self.hosts.send(&namespace, self.from.index().kept(&namespace, None));
        let name = template.name_any();
        let cloned = self.from.stores.machines.state_filter(|it| {
            it.metadata.namespace.as_deref() == Some(&namespace)
                && it.annotation(names::capi::CLONED_FROM_NAME) == Some(name.as_str())
        });
        cloned.iter().map(|it| self.machine_ref(&namespace, &it.name_any())).collect()
    }

    pub(super) fn data_changed(&self, data: &Metal3Data) -> Vec<ObjectRef<Metal3Machine>> {
        let namespace = data.namespace().unwrap_or_default();
        let name = data.name_any();
        let Some(claims) = &self.from.stores.claims else { return Vec::new() };
        let of_it = claims.state_filter(|claim| {
            claim.metadata.namespace.as_deref() == Some(&namespace)
                && claim
                    .status
                    .as_ref()
                    .and_then(|status| status.rendered_data.as_ref())
                    .is_some_and(|it| it.name.as_deref() == Some(&name))
        });
        of_it.iter().map(|it| self.machine_ref(&namespace, &it.name_any())).collect()
    }

    pub(super) fn deployment_changed(&self, deployment: &MachineDeployment) {
        let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
        let served = self.from.served;
        let now = last_seen(&self.from.stores.deployments, served.core, &namespace, &name);
        let now = now.map(|it| Outline::of_deployment(served, &it));
        if self.deployments.is_news((namespace.clone(), name.clone()), now) {
            self.hosts_of_owner(&namespace, names::capi::GROUP, "MachineDeployment", &name);
        }
    }

    pub(super) fn plane_changed(&self, plane: &KubeadmControlPlane, version: ContractVersion) {
        let (namespace, name) = (plane.namespace().unwrap_or_default(), plane.name_any());
        let store = self.from.stores.control_planes.as_ref();
        let now = store.and_then(|store| last_seen(store, version, &namespace, &name));
        let now = now.map(|it| Outline::of_plane(self.from.served, &it));
        if self.planes.is_news((namespace.clone(), name.clone()), now) {
            let group = names::capi::CONTROL_PLANE_GROUP;
            self.hosts_of_owner(&namespace, group, "KubeadmControlPlane", &name);
        }
    }

    fn hosts_of_owner(&self, namespace: &str, group: &str, kind: &str, name: &str) {
        let owner = Owner {
            api_version: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
        };
        let kept = self.from.index().kept(namespace, Some(&owner.label()));
        self.hosts.send(namespace, kept);
    }
}
