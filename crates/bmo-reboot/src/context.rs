//! What every pass shares.

use api_types::metal3::{BareMetalHost, CachedHost};
use controller_kit::Kit;
use controller_kit::engine::links::Links;
use controller_kit::engine::{Lookout, ObjectKey};
use ironic::Nodes;
use kube::runtime::reflector::Store;

use crate::metrics::Metrics;
use crate::model::Host;
use crate::settings::Policy;

/// What every pass shares.
pub struct Context {
    /// Handles of the process.
    pub kit: Kit,
    /// How decisions are made.
    pub policy: Policy,
    /// Ironic, and how its nodes are.
    pub nodes: Nodes,
    /// What is counted.
    pub metrics: Metrics,
    /// Has hosts looked at.
    pub lookout: Lookout<ObjectKey>,
    /// Hosts by node. Hosts that are managed by somebody else count too: they switch the same machine.
    pub links: Links<ObjectKey>,
    /// Hosts with a soft attempt under way.
    pub softly: Links<ObjectKey>,
    /// What the watch has shown.
    pub hosts: Store<CachedHost>,
}

/// Under which all soft attempts stand.
pub const SOFT: &str = "soft";

impl Context {
    /// An object as decisions see it.
    pub fn view(&self, host: &BareMetalHost) -> Host {
        let mut host = Host::of(host, &self.policy);
        host.shared_with = self.shared_with(&host);
        host
    }

    /// Another host with its node.
    pub fn shared_with(&self, host: &Host) -> Option<String> {
        let other = self.links.other(&host.key, &host.node);
        other.map(|it| format!("{}/{}", it.namespace, it.name))
    }

    /// Whether a soft attempt of this host may begin, or go on.
    pub fn soft_free(&self, key: &ObjectKey) -> bool {
        self.softly.has_room(key, SOFT, self.policy.soft_attempts)
    }

    /// A host whose node any decision depends on, as the watch has shown it.
    pub fn served(&self, key: &ObjectKey) -> Option<Host> {
        let object = self.hosts.get(&key.in_store())?;
        if self.policy.is_anothers(&object) {
            return None;
        }
        Some(self.view(&object)).filter(|host| host.needs_node(&self.policy))
    }
}
