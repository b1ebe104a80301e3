//! What every pass shares.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use api_types::capi::is_watched;
use api_types::metal3::BareMetalHostDiscovery;
use controller_kit::Kit;
use controller_kit::cache::Cache;
use controller_kit::engine::{Class, Lookout, ObjectKey, Shared};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::hardware::LateFields;
use crate::index::{Change, Index, Known};
use crate::metrics::Metrics;
use crate::model::{Adoption, HostPlan, Job, Key, Made, StatusPlan, Unmarked};
use crate::node_id::NodeId;
use crate::nodes::Look;
use crate::settings::Policy;
use crate::waits::{DECISION_GATHER, READING_GATHER};

/// So many nodes are marked by each pass about all machines while machines are read or hosts are made: a mark takes Ironic as
/// long as ten readings.
const MARKS_BESIDE_WORK: usize = 1;

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
    /// What happened since all machines were last decided about.
    pub inbox: Shared<Vec<News>>,
    /// Nodes that are being marked.
    pub marks: Shared<BTreeSet<Unmarked>>,
    /// Machines that are being read.
    pub jobs: Shared<HashMap<NodeId, Job>>,
    /// What the discoveries' statuses are to say.
    pub status_plans: Shared<BTreeMap<ObjectKey, Arc<StatusPlan>>>,
    /// Nodes whose driver has to follow the BMC of their host.
    pub adoptions: Shared<BTreeMap<ObjectKey, Adoption>>,
    /// What the installed operator can read of a host's hardware; nothing while nobody asked.
    pub late_fields: OnceLock<LateFields>,
}

/// Something that happened. What is known of the machines changes by it, at the beginning of the next pass about them: so
/// nobody changes it while it is decided upon.
#[derive(Debug)]
pub enum News {
    /// A host changed, went, or is no longer a machine's only one.
    Host(Change),
    /// A machine was read.
    Read(NodeId, Look, Instant),
    /// Ironic is to list all nodes.
    ListAll,
    /// What came of making a machine's host.
    Made(NodeId, Made),
    /// It was decided about all machines.
    Decided(Box<HostPlan>, Instant),
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

    /// The same, as soon as it says so.
    pub fn tell(&self, news: News) {
        self.inbox.with(|inbox| inbox.push(news));
    }

    /// A machine is read from now on; says whether it was not already.
    pub fn begins(&self, node: NodeId, job: Job) -> bool {
        let is_new = self.jobs.with(|jobs| {
            let before = jobs.len();
            jobs.entry(node).or_insert(job);
            jobs.len() > before
        });
        if is_new {
            self.lookout.enqueue(Key::Machine(node), Class::Normal);
        }
        is_new
    }

    /// A machine was read, or could not be.
    pub fn ended(&self, node: NodeId, look: Look) {
        self.tell(News::Read(node, look, Instant::now()));
        let is_last = self.jobs.with(|jobs| {
            jobs.remove(&node);
            jobs.is_empty()
        });
        let breath = if is_last { Duration::ZERO } else { READING_GATHER };
        self.lookout.enqueue_after(Key::All, Class::Urgent, breath);
    }

    /// A host changed, or went.
    pub fn host_changed(&self, change: Change) {
        if change != Change::None {
            self.tell(News::Host(change));
            self.changed();
        }
    }

    /// A node bears the mark now, or is gone.
    pub fn needs_no_mark(&self, it: &Unmarked) {
        self.marks.with(|all| all.remove(it));
    }

    /// What was handed over and did not end. The engine forgets keys whose turn comes while this process may not act, and a
    /// machine that waits to be read for ever would become no host.
    pub fn handed_over(&self) -> Vec<Key> {
        let jobs =
            self.jobs.with(|jobs| jobs.keys().copied().map(Key::Machine).collect::<Vec<_>>());
        let marks = self.marks.with(|all| all.iter().cloned().map(Key::Mark).collect::<Vec<_>>());
        [jobs, marks].concat()
    }

    /// Has nodes marked that are to be. `at_work`: Ironic is asked about machines that are read, or whose hosts are made.
    pub fn hand_marks_over(&self, unmarked: &mut BTreeSet<Unmarked>, at_work: bool) {
        for it in next_marks(unmarked, at_work) {
            self.marks.with(|all| all.insert(it.clone()));
            self.lookout.enqueue(Key::Mark(it), Class::Background);
        }
    }

    /// Of what happens while this process may not act, only which nodes had a host says anything later.
    pub fn forget_most(&self) {
        let most = self.policy.most_machines;
        self.inbox.with(|inbox| {
            let is_kept =
                |it: &News| matches!(it, News::Host(Change::Gone(Known { made_for: Some(_), .. })));
            inbox.retain(is_kept);
            let old = inbox.len().saturating_sub(most);
            inbox.drain(..old);
        });
    }

    /// What the installed operator can read of a host's hardware.
    pub fn late_fields(&self) -> LateFields {
        self.late_fields.get().copied().unwrap_or_default()
    }
}

/// The nodes that are marked next. Thousands of machines that come at once wait for none of these.
fn next_marks(unmarked: &mut BTreeSet<Unmarked>, at_work: bool) -> Vec<Unmarked> {
    let most = if at_work { MARKS_BESIDE_WORK } else { unmarked.len() };
    (0..most).map_while(|_| unmarked.pop_first()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_marked_one_by_one_while_there_is_other_work_and_then_all() {
        let host = ObjectKey::new("metal", "h");
        let unmarked = |node: u128| Unmarked { node: NodeId::from(node), host: host.clone() };
        let mut all: BTreeSet<Unmarked> = (0..100).map(unmarked).collect();
        assert_eq!(next_marks(&mut all, true).len(), MARKS_BESIDE_WORK);
        assert_eq!(next_marks(&mut all, false).len(), 100 - MARKS_BESIDE_WORK);
        assert!(next_marks(&mut all, true).is_empty());
    }
}
