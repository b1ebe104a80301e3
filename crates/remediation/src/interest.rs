//! Which requests a change of another object concerns: those that last looked at it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

/// A kind of object that requests look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The Machine.
    Machine,
    /// The `Metal3Machine`.
    Metal,
    /// The host.
    Host,
    /// The Cluster.
    Cluster,
}

/// A request: whether it is of our own group, its namespace and its name.
pub type Who = (bool, String, String);
type What = (Kind, String, String);

/// Who looked at what.
#[derive(Default)]
pub struct Interest(Mutex<State>);

#[derive(Default)]
struct State {
    by_what: HashMap<What, BTreeSet<Who>>,
    by_who: HashMap<Who, Vec<What>>,
}

impl Interest {
    /// From now on the request is concerned by these objects, and by no others. Whether they are others than before: what
    /// was read of them until now may have changed without a word.
    pub fn set(&self, who: &Who, what: Vec<(Kind, String)>) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<What> =
            what.into_iter().map(|(kind, name)| (kind, who.1.clone(), name)).collect();
        if state.by_who.get(who) == Some(&all) {
            return false;
        }
        let old = if all.is_empty() {
            state.by_who.remove(who)
        } else {
            state.by_who.insert(who.clone(), all.clone())
        };
        for what in old.into_iter().flatten() {
            if let Some(known) = state.by_what.get_mut(&what) {
                known.remove(who);
                if known.is_empty() {
                    state.by_what.remove(&what);
                }
            }
        }
        for what in all {
            state.by_what.entry(what).or_default().insert(who.clone());
        }
        true
    }

    /// Whom a change of this object concerns.
    pub fn concerned(&self, kind: Kind, namespace: &str, name: &str) -> Vec<Who> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let what = (kind, namespace.to_owned(), name.to_owned());
        state.by_what.get(&what).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_last_looked_at_an_object_is_concerned() {
        let interest = Interest::default();
        let who = |name: &str| (true, "ns".to_owned(), name.to_owned());
        let host = |name: &str| vec![(Kind::Host, name.to_owned())];
        interest.set(&who("a"), host("h1"));
        interest.set(&who("b"), host("h1"));
        assert!(interest.set(&who("a"), host("h2")), "what was read before may be old");
        assert!(!interest.set(&who("a"), host("h2")), "each change since then has woken it");
        assert_eq!(interest.concerned(Kind::Host, "ns", "h1"), [who("b")]);
        assert_eq!(interest.concerned(Kind::Host, "ns", "h2"), [who("a")]);
        interest.set(&who("a"), Vec::new());
        assert!(interest.concerned(Kind::Host, "ns", "h2").is_empty());
        assert!(interest.concerned(Kind::Machine, "ns", "h1").is_empty());
    }
}
