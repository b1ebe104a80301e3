//! What a pass is to do, as plain data that can be compared.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::reason::Reason;

/// What to do, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// In this order; the first that is superseded ends the pass.
    pub steps: Vec<Step>,
    /// Why.
    pub reason: Reason,
    /// When to look again without being told.
    pub again: Option<Duration>,
}

/// One write. `at` is the resourceVersion that it insists on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Writes on the guest which seat it is going to take, and keeps the guest until that is undone.
    Intend {
        /// The guest.
        guest: String,
        /// The seat.
        seat: String,
        /// All finalizers that it has from now on.
        finalizers: Vec<String>,
        /// The guest's version.
        at: String,
    },
    /// Writes the guest's uid on the seat.
    Claim {
        /// The seat.
        seat: String,
        /// The guest's uid.
        uid: String,
        /// The seat's version; none is the flaw.
        at: Option<String>,
    },
    /// Writes on the guest that it has its seat.
    Record {
        /// The guest.
        guest: String,
        /// The seat.
        seat: String,
        /// Since when.
        since: Timestamp,
        /// The guest's version.
        at: String,
    },
    /// Writes on the guest that it will not have the seat that it intended.
    GiveUp {
        /// The guest.
        guest: String,
        /// The seat.
        seat: String,
        /// The guest's version.
        at: String,
    },
    /// Moves the version of a seat that was given up, so that no claim of it is left on its way.
    PassOver {
        /// The seat.
        seat: String,
        /// The guest's uid and version: different for every time that it gives up.
        by: String,
        /// The seat's version.
        at: String,
    },
    /// Frees the seat.
    Release {
        /// The seat.
        seat: String,
        /// The seat's version.
        at: String,
    },
    /// Lets the guest go.
    LetGo {
        /// The guest.
        guest: String,
        /// The finalizers that others have on it.
        finalizers: Vec<String>,
        /// The guest's version.
        at: String,
    },
}

impl Decision {
    /// Nothing to do.
    pub(crate) fn rest(reason: Reason) -> Self {
        Self { steps: Vec::new(), reason, again: None }
    }

    /// One write.
    pub(crate) fn step(step: Step, reason: Reason) -> Self {
        Self { steps: vec![step], ..Self::rest(reason) }
    }
}
