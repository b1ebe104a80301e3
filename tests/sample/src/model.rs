//! What one pass knows and what it may write, as plain data: the page to read first.
//!
//! [`observe`](crate::observe) reads an [`Observed`], [`decide`](crate::decide) makes a [`Decision`] of it,
//! [`write`](crate::write) carries out each [`Write`].

use std::collections::BTreeSet;

use controller_kit::engine;
use k8s_openapi::jiff::Timestamp;

use crate::FINALIZER;
use crate::reason::Reason;

/// What is decided about a guest or a seat.
pub type Decision = engine::Decision<Write, Reason>;

/// What one pass knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Observed {
    /// A guest, and before it all seats.
    Guest {
        /// The guest.
        guest: Guest,
        /// All seats by name.
        seats: Vec<Seat>,
    },
    /// A seat, and after it the uids of all guests.
    Seat {
        /// The seat.
        seat: Seat,
        /// Who is there.
        guests: BTreeSet<String>,
    },
}

/// A guest as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Its uid, which no later guest of that name shares.
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// All its finalizers.
    pub finalizers: Vec<String>,
    /// The seat that it is going to take.
    pub intent: Option<String>,
    /// The seat that it intended and somebody else got.
    pub gives_up: Option<String>,
    /// The seat that it has.
    pub result: Option<String>,
}

/// A seat as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    /// Its name.
    pub name: String,
    /// Its resourceVersion.
    pub version: String,
    /// The uid of its guest.
    pub holder: Option<String>,
}

impl Guest {
    /// Whether it waits for us to free its seat.
    pub fn is_kept(&self) -> bool {
        self.finalizers.iter().any(|it| it == FINALIZER)
    }
}

/// One write. `at` is the resourceVersion that it insists on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
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
