//! What every pass shares.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use api_types::capi::is_watched;
use api_types::metal3::BareMetalHostDiscovery;
use controller_kit::Kit;
use controller_kit::cache::Cache;
use controller_kit::engine::{Class, Lookout, ObjectKey, Shared};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::hardware::LateFields;
use crate::index::{Change, Index};
use crate::metrics::Metrics;
use crate::model::{Adoption, Key, StatusPlan};
use crate::node_id::NodeId;
use crate::nodes::Look;
use crate::settings::Policy;
use crate::table::Table;
use crate::waits::{DECISION_GATHER, READING_GATHER};

/// What every pass shares.
pub struct Context {
    /// Handles of the process.
    pub kit: Kit,
    /// How to decide.
    pub policy: Policy,
    /// Ironic.
    pub ironic: ironic::Client,
    /// What is counted.
    pub metrics: Metrics,
    /// Has keys looked at.
    pub lookout: Lookout<Key>,
    /// Discoveries as the watch has shown them.
    pub discoveries: Cache<BareMetalHostDiscovery>,
    /// Which machines are hosts.
    pub index: Shared<Index>,
    /// What is known of all machines.
    pub table: Shared<Table>,
    /// What the discoveries' statuses are to say.
    pub status_plans: Shared<BTreeMap<ObjectKey, Arc<StatusPlan>>>,
    /// Nodes whose driver has to follow the BMC of their host.
    pub adoptions: Shared<BTreeMap<ObjectKey, Adoption>>,
    /// What the installed operator can read of a host's hardware; nothing while nobody asked.
    pub late_fields: OnceLock<LateFields>,
}

impl Context {
    /// Every discovery, in the order of their names. The watch filter leaves out those of others.
    pub fn ours(&self) -> Vec<Arc<BareMetalHostDiscovery>> {
        let mut all = self.discoveries.store.state();
        all.retain(|it| self.is_ours(&it.metadata));
        all.sort_by_key(|it| ObjectKey::of(&**it));
        all
    }

    /// Whether the watch filter lets a discovery pass.
    pub fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        is_watched(metadata, self.kit.config.watch_filter.as_deref())
    }

    /// Something that decisions are made of changed.
    pub fn changed(&self) {
        self.lookout.enqueue_after(Key::All, Class::Urgent, DECISION_GATHER);
    }

    /// Has machines read, which says nothing new of one that is just being read.
    pub fn read(&self, nodes: impl IntoIterator<Item = NodeId>) {
        let now = Instant::now();
        for node in nodes {
            self.table.with(|table| {
                let ports = table.found.remove(&node);
                table.nodes.reads(node, ports, now);
            });
            self.lookout.enqueue(Key::Machine(node), Class::Normal);
        }
    }

    /// A machine was read, or could not be.
    pub fn ended(&self, node: NodeId, look: Look) {
        let is_last = self.table.with(|table| table.read(node, look));
        let breath = if is_last { Duration::ZERO } else { READING_GATHER };
        self.lookout.enqueue_after(Key::All, Class::Urgent, breath);
    }

    /// A host changed, went, or is no longer a machine's only one.
    pub fn host_changed(&self, change: Change) {
        if change != Change::None {
            self.table.with(|table| table.host_changed(change));
            self.changed();
        }
    }

    /// What the installed operator can read of a host's hardware.
    pub fn late_fields(&self) -> LateFields {
        self.late_fields.get().copied().unwrap_or_default()
    }
}
