//! How machines came to their hosts, until that is reported: the report that follows a claim may be superseded, and neither
//! machine nor host say it afterwards.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::reason::Reason;

/// A claim that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The host.
    pub host: String,
    /// Whether it was kept for the machine's owner.
    pub reason: Reason,
    /// Why that one, for a person.
    pub message: String,
}

/// Claims that are not reported yet, by namespace and machine.
#[derive(Default)]
pub struct Claims(Mutex<HashMap<(String, String), Claimed>>);

impl Claims {
    /// A claim was made.
    pub fn note(&self, machine: (String, String), claimed: Claimed) {
        self.lock().insert(machine, claimed);
    }

    /// The claim that is not reported yet.
    pub fn of(&self, machine: &(String, String)) -> Option<Claimed> {
        self.lock().get(machine).cloned()
    }

    /// It is reported, or the machine is gone.
    pub fn forget(&self, machine: &(String, String)) {
        self.lock().remove(machine);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Claimed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_remembered_until_it_is_reported() {
        let (claims, machine) = (Claims::default(), ("ns".to_owned(), "m".to_owned()));
        let claimed = |host: &str| Claimed {
            host: host.to_owned(),
            reason: Reason::HostReused,
            message: format!("Host {host}"),
        };
        claims.note(machine.clone(), claimed("a"));
        claims.note(machine.clone(), claimed("b"));
        assert_eq!(claims.of(&machine), Some(claimed("b")));
        claims.forget(&machine);
        assert_eq!(claims.of(&machine), None);
    }
}
