//! What every pass shares.

use std::collections::BTreeSet;

use api_types::metal3::{BareMetalHost, CachedHost};
use controller_kit::Kit;
use controller_kit::engine::links::Links;
use controller_kit::engine::{Lookout, ObjectKey, Shared};
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
    /// Soft attempts under way.
    pub softly: SoftAttempts,
    /// What the watch has shown.
    pub hosts: Store<CachedHost>,
}

/// Hosts with a soft attempt under way. Each takes one of Ironic's workers for as long as it lasts.
#[derive(Debug, Default)]
pub struct SoftAttempts(Shared<BTreeSet<ObjectKey>>);

impl SoftAttempts {
    /// Whether a host has one, or may have one where so many may.
    pub fn has_room(&self, key: &ObjectKey, most: usize) -> bool {
        self.0.with(|hosts| hosts.contains(key) || hosts.len() < most)
    }

    /// A host has one, or none any more.
    pub fn note(&self, key: &ObjectKey, has_one: bool) {
        self.0.with(|hosts| if has_one { hosts.insert(key.clone()) } else { hosts.remove(key) });
    }
}

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
        self.softly.has_room(key, self.policy.soft_attempts)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_hosts_have_a_soft_attempt_and_no_more() {
        let softly = SoftAttempts::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| ObjectKey::new("n", name));
        softly.note(&a, true);
        assert!(softly.has_room(&b, 2));
        softly.note(&b, true);
        assert!(!softly.has_room(&c, 2) && softly.has_room(&c, 3));
        assert!(softly.has_room(&a, 2), "its next slice");
        softly.note(&b, false);
        assert!(softly.has_room(&c, 2));
    }
}
