//! What one pass knows, as plain data. [`observe`](crate::observe) reads it, [`decide`](crate::decide) goes by it.

use std::collections::BTreeSet;

use crate::FINALIZER;

/// What one pass knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Observed {
    /// It is gone, or was never ours.
    Nothing,
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
