//! A host whose machine went without giving it back, as when somebody took its finalizer away.

use api_types::capi::is_watched;
use api_types::capm3::Metal3Machine;
use api_types::metal3::BareMetalHost;
use api_types::name::is_name;
use api_types::names;
use controller_kit::engine::{Error, found};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt as _};

use super::Scope;
use crate::context::Context;
use crate::host;
use crate::model::LeftSeen;
use crate::reservation;

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
        let verdict = reservation::pending(&host).flatten();
        let Some(machine) = host::consumer_machine(&host) else { return Ok(None) };
        let is_gone = self.is_machine_gone(&host, machine).await?;
        // While a cluster is moved here the machine may still be to come.
        let found = self.cluster(host.label(names::capi::CLUSTER_NAME)).await?;
        let paused = found.map_or_else(|| self.is_any_cluster_paused(), |it| it.is_paused());
        let filter = self.context.watch_filter();
        let owner = match &verdict {
            // Without a filter everything is ours.
            Some(owner) if filter.is_some() => self.owner_by_name(owner, false).await?,
            _ => None,
        };
        let of_others = is_of_others(owner.as_ref().map(|it| &it.metadata), &host, filter);
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

/// Whether another installation looks after a host, by the label of the owner that it is to be kept for. Where that is not
/// known the host's own label says it; one without is anybody's, or nobody would give it back. If two do it, both write what
/// stands on the host, under its version.
fn is_of_others(owner: Option<&ObjectMeta>, host: &BareMetalHost, filter: Option<&str>) -> bool {
    // One that cannot be read has no labels to go by.
    match owner.filter(|it| it.name.is_some()) {
        Some(owner) => !is_watched(owner, filter),
        None => host::is_of_others(host, filter),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::tests::{host, with};

    #[test]
    fn a_left_host_that_no_label_makes_anothers_is_given_back_whatever_the_filter() {
        let labelled = |value: Option<&str>| {
            let labels = json!({"metadata": {"labels": {names::capi::WATCH_FILTER: value}}});
            value.map_or_else(|| host("h", "available"), |_| with(&host("h", "available"), &labels))
        };
        for (owner, on_host, filter, of_others) in [
            (None, None, None, false),
            (None, Some("b"), None, false),
            (None, None, Some("a"), false),
            (None, Some("a"), Some("a"), false),
            (None, Some("b"), Some("a"), true),
            (Some(Some("a")), None, Some("a"), false),
            (Some(Some("a")), Some("b"), Some("a"), false),
            (Some(Some("b")), None, Some("a"), true),
            (Some(None), Some("a"), Some("a"), true),
        ] {
            let owner = owner.map(|label| labelled(label).metadata);
            let found = is_of_others(owner.as_ref(), &labelled(on_host), filter);
            assert_eq!(found, of_others, "{owner:?} {on_host:?} {filter:?}");
        }
        let unread = ObjectMeta::default();
        assert!(!is_of_others(Some(&unread), &labelled(None), Some("a")));
    }
}
