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

impl State {
    fn forget(&mut self, who: &Who) {
        for what in self.by_who.remove(who).into_iter().flatten() {
            if let Some(known) = self.by_what.get_mut(&what) {
                known.remove(who);
                if known.is_empty() {
                    self.by_what.remove(&what);
                }
            }
        }
    }
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
        state.forget(who);
        for what in &all {
            state.by_what.entry(what.clone()).or_default().insert(who.clone());
        }
        if !all.is_empty() {
            state.by_who.insert(who.clone(), all);
        }
        true
    }

    /// How many requests look at anything.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_who.len()
    }

    /// Forgets requests that are gone. Whether one is there is asked while nobody can note anything: what is noted of the
    /// next one of its name stays.
    pub fn keep(&self, is_there: impl Fn(&Who) -> bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<Who> = state.by_who.keys().filter(|who| !is_there(who)).cloned().collect();
        for who in gone {
            state.forget(&who);
        }
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

    #[test]
    fn nothing_is_kept_of_requests_that_are_gone() {
        let interest = Interest::default();
        let who = |name: &str| (true, "ns".to_owned(), name.to_owned());
        for name in ["a", "b"] {
            interest.set(&who(name), vec![(Kind::Cluster, "c".to_owned())]);
        }
        interest.keep(|it| *it == who("b"));
        assert_eq!(interest.concerned(Kind::Cluster, "ns", "c"), [who("b")]);
        interest.keep(|_| false);
        let state = interest.0.lock().unwrap();
        assert!(state.by_who.is_empty() && state.by_what.is_empty());
    }
}
