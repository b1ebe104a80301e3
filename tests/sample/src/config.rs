//! What can be set, and the mistakes that can be ordered.

use std::time::Duration;

/// How to decide.
#[derive(Clone, Debug)]
pub struct Policy {
    /// A deliberate mistake, so that what should find it can be tried.
    pub mistake: Mistake,
    /// When to look again after somebody else was faster.
    pub retry: Duration,
}

/// Errors in design that a test of one process on its own does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// As it should be.
    #[default]
    None,
    /// A seat is claimed whatever became of it since it was read.
    ClaimWithoutPrecondition,
    /// Which seat a guest is to have is known to the process only, until all is done.
    ForgetsAfterCrash,
}

impl Default for Policy {
    fn default() -> Self {
        Self { mistake: Mistake::None, retry: Duration::from_millis(20) }
    }
}
