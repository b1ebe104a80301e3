//! How to decide.

use std::num::NonZeroU32;
use std::time::Duration;

/// What the rules leave to whoever runs the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Hosts that are made in a second at most. Anybody on the provisioning network can post
    /// machines; nobody racks them that fast.
    pub create_rate: NonZeroU32,
    /// How long a machine may have no inventory or no ports before that counts as a failure. Ironic
    /// shows a node some milliseconds before both, and minutes before both when it is busy.
    pub give_up: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { create_rate: NonZeroU32::MIN.saturating_add(49), give_up: Duration::from_secs(600) }
    }
}
