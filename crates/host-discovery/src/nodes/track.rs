//! What is remembered of a node.

use std::time::{Duration, Instant};

use controller_kit::engine::ObjectKey;

use crate::hardware::HardwareDetails;
use crate::machine::Machine;
use crate::waits::{HANGS_AFTER, IRONIC_RETRY, REST_MAX};

/// Of a machine that may become a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    /// What decides. The rest does not.
    pub(super) machine: Machine,
    /// Since when it is known here.
    pub(super) since: Option<Instant>,
    pub(super) round: u32,
    /// When Ironic last showed it; none if nothing of it is known any more.
    pub(super) seen: Option<Instant>,
    /// Whether it bore the mark then.
    pub(super) marked: bool,
    pub(super) look: Option<Instant>,
    /// Since when it is being read.
    pub(super) reading: Option<Instant>,
    /// Whether that look is only one more at what said nothing: new machines go before it.
    pub(super) is_relook: bool,
    /// Whether other hosts may be it than the one that it is known to be: until it is read it is not settled.
    pub(super) contested: bool,
    /// How often in a row it said nothing of use, and the same.
    pub(super) useless: u32,
    /// Until when it is left alone after that.
    pub(super) rest: Option<Instant>,
    /// How often in a row Ironic failed when it was asked about it.
    pub(super) failures: u32,
    pub(super) details: Option<HardwareDetails>,
}

impl Track {
    pub(super) fn details_size(&self) -> usize {
        self.details.as_ref().map_or(0, |it| it.text.len())
    }

    /// It is to be read, in its turn.
    pub(super) fn look_at(&mut self, look: Option<Instant>) {
        (self.look, self.is_relook) = (look, false);
    }

    /// Whether its turn to be read has come.
    pub(super) fn is_due(&self, at: Instant) -> bool {
        self.reading.is_none() && self.look.is_some_and(|look| look <= at)
    }

    /// Whether it is not known yet what it is, but will be soon.
    pub(super) fn is_unread(&self, at: Instant) -> bool {
        let reads = |since: Instant| at.saturating_duration_since(since) < HANGS_AFTER;
        self.is_due(at) || self.reading.is_some_and(reads)
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

/// Four times as long each time.
pub(super) fn rest_after(useless: u32) -> Duration {
    (IRONIC_RETRY * 4_u32.pow(useless.saturating_sub(1).min(5))).min(REST_MAX)
}
