//! How machines came to their hosts, until that is reported: the report that follows a claim may be superseded, and neither
//! machine nor host say it afterwards.

use crate::notes::{Key, Notes};
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
pub struct Claims(Notes<Claimed>);

impl Claims {
    /// A claim was made.
    pub fn note(&self, machine: Key, claimed: Claimed) {
        self.0.lock().insert(machine, claimed);
    }

    /// The claim that is not reported yet.
    pub fn of(&self, machine: &Key) -> Option<Claimed> {
        self.0.lock().get(machine).cloned()
    }

    /// It is reported, or the machine is gone.
    pub fn forget(&self, machine: &Key) {
        self.0.forget(machine);
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
