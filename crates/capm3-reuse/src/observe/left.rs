//! A host whose machine went without giving it back, as when somebody took its finalizer away.

use api_types::capm3::Metal3Machine;
use api_types::metal3::BareMetalHost;
use api_types::name::is_name;
use api_types::names;
use controller_kit::engine::{Error, found};
use kube::{Api, ResourceExt as _};

use super::Scope;
use crate::context::Context;
use crate::host;
use crate::model::LeftSeen;

impl Context {
    /// Whether it looks as if nobody would give this host back. The caches may be behind: `Scope::left` looks closer.
    pub fn seems_left(&self, host: &BareMetalHost) -> bool {
        let Some(machine) = host::consumer_machine(host) else { return false };
        let namespace = host.namespace().unwrap_or_default();
        let machine = self.caches.machines.named(&namespace, machine);
        !machine.is_some_and(|machine| host::is_of(host, &machine))
    }
}

impl Scope<'_> {
    /// Reads what a decision about such a host needs: the host first, and then whether its machine is gone. A machine that is
    /// gone does not come back under its uid, so that stays true for the version of the host that was read.
    pub(super) async fn left(&self, name: &str) -> Result<Option<LeftSeen>, Error> {
        let Some(host) = self.live_host(name).await? else { return Ok(None) };
        let Some(machine) = host::consumer_machine(&host) else { return Ok(None) };
        let is_gone = self.is_machine_gone(&host, machine).await?;
        // While a cluster is moved here the machine may still be to come.
        let found = self.cluster(host.label(names::capi::CLUSTER_NAME)).await?;
        let paused = found.map_or_else(|| self.is_any_cluster_paused(), |it| it.is_paused());
        // If two installations give it back, both write what stands on the host, under its version.
        let of_others = host::is_of_others(&host, self.context.watch_filter());
        Ok(Some(LeftSeen { host, is_gone, of_others, paused }))
    }

    /// Whether no machine has this host that names one. Without its spec: one that cannot be decoded is there.
    async fn is_machine_gone(&self, host: &BareMetalHost, machine: &str) -> Result<bool, Error> {
        if !is_name(machine) {
            return Ok(true);
        }
        let machines: Api<Metal3Machine> = self.context.metal3(self.namespace);
        let found = found("get a Metal3Machine", machines.get_metadata(machine)).await?;
        Ok(!found.is_some_and(|it| {
            let machine = Metal3Machine { metadata: it.metadata, ..Metal3Machine::default() };
            host::is_of(host, &machine)
        }))
    }
}
