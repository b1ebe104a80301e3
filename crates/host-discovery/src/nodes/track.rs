//! What is remembered of a node.

use std::time::{Duration, Instant};

use controller_kit::engine::ObjectKey;

use crate::hardware::HardwareDetails;
use crate::machine::Machine;
use crate::node_id::NodeId;
use crate::waits::IRONIC_RETRY;

/// Of a machine that may become a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    /// What decides. The rest does not.
    pub(super) machine: Machine,
    /// Its place among all: Ironic lists the oldest first.
    pub(super) order: u64,
    /// Since when it is known here.
    pub(super) since: Option<Instant>,
    pub(super) round: u32,
    /// When Ironic last showed it; none if nothing of it is known any more.
    pub(super) seen: Option<Instant>,
    /// Whether it bore the mark then.
    pub(super) marked: bool,
    pub(super) look: Option<Instant>,
    /// Whether other hosts may be it than the one that it is known to be: until it is read it is not settled.
    pub(super) contested: bool,
    /// How many looks in a row were in vain: Ironic failed, or said nothing of use and the same.
    pub(super) vain: u32,
    pub(super) details: Option<HardwareDetails>,
}

impl Track {
    /// Of a machine that is to be read.
    pub(super) fn unread(node: NodeId, order: u64, round: u32, at: Instant) -> Self {
        let machine = Machine::unread(node);
        Self { machine, order, round, since: Some(at), look: Some(at), ..Self::default() }
    }

    pub(super) fn details_size(&self) -> usize {
        self.details.as_ref().map_or(0, |it| it.text.len())
    }

    /// It is to be read, in its turn.
    pub(super) fn look_at(&mut self, look: Instant) {
        (self.look, self.vain) = (Some(look), 0);
    }

    /// It is to be read after a look in vain: four times as late each time, and after new machines.
    pub(super) fn look_later(&mut self, at: Instant, longest: Duration) {
        let wait = IRONIC_RETRY * 4_u32.pow(self.vain.min(5));
        (self.look, self.vain) = (Some(at + wait.min(longest)), self.vain.saturating_add(1));
    }

    /// Whether its turn to be read has come.
    pub(super) fn is_due(&self, at: Instant) -> bool {
        self.look.is_some_and(|look| look <= at)
    }

    /// Whether a mark that Ironic showed before is off: somebody took it off. One that it never showed may be on its way.
    pub(super) fn lost_its_mark(&mut self, marked: bool) -> bool {
        std::mem::replace(&mut self.marked, marked) && !marked
    }
}

/// Of a node that is a host, or that somebody registered.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) order: u64,
    pub(super) round: u32,
    /// The host that it is; none if somebody registered it.
    pub(super) host: Option<ObjectKey>,
    /// Whether the node is to be marked as one that had it.
    pub(super) ours: bool,
    pub(super) had_host: bool,
}
