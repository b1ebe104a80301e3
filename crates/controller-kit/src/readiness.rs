//! Readiness is a list of named conditions. Each that fails says what a person has to change.
//!
//! Leadership is no part of it: a standby is ready, or a rolling update would never end.
//! Some conditions also gate the work: while a CRD lacks a field or a kind is not listed yet,
//! nothing acts. Without these, and without what a process needs to lead, another replica should lead, if there is one
//! that lacks nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use tokio::sync::watch;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    /// `None` is ready; otherwise the sentence that says what to change.
    lacking: Option<String>,
    weight: Weight,
}

/// What follows from a condition that does not hold, beside that it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Weight {
    /// Nothing.
    Shown,
    /// Another replica should lead.
    Leads,
    /// Nothing acts, either.
    Gates,
}

/// The process' conditions; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<watch::Sender<BTreeMap<String, Condition>>>);

impl Readiness {
    /// Names a condition that must hold before anything acts. It starts as not ready.
    pub fn require(&self, name: &str, lacking: &str) {
        self.put(name, Some(lacking.to_owned()), Some(Weight::Gates));
    }

    /// Names a condition without which another replica should lead. It starts as not ready.
    pub fn require_to_lead(&self, name: &str, lacking: &str) {
        self.put(name, Some(lacking.to_owned()), Some(Weight::Leads));
    }

    /// Whether there is a condition of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.borrow().contains_key(name)
    }

    /// The condition holds.
    pub fn ready(&self, name: &str) {
        self.put(name, None, None);
    }

    /// The condition does not hold; `lacking` says what to change. A condition that was not named
    /// by [`Readiness::require`] shows in `/readyz` but does not stop the work.
    pub fn not_ready(&self, name: &str, lacking: &str) {
        self.put(name, Some(lacking.to_owned()), None);
    }

    /// Whether every condition holds.
    pub fn is_ready(&self) -> bool {
        self.0.borrow().values().all(|condition| condition.lacking.is_none())
    }

    /// Whether every condition that gates the work holds.
    pub fn may_act(&self) -> bool {
        let conditions = self.0.borrow();
        conditions.values().all(|it| it.weight != Weight::Gates || it.lacking.is_none())
    }

    /// The names of those that do not hold and without which another replica should lead.
    pub(crate) fn lacks_to_lead(&self) -> Option<String> {
        let conditions = self.0.borrow();
        let lacks = |it: &Condition| it.weight >= Weight::Leads && it.lacking.is_some();
        let lacking = conditions.iter().filter(|(_, it)| lacks(it));
        let names: Vec<&str> = lacking.map(|(name, _)| name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Tells of each change of any condition from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<impl Send + Sync + use<>> {
        self.0.subscribe()
    }

    /// One line per condition, as Kubernetes' own servers print them.
    pub fn describe(&self, verbose: bool) -> String {
        let mut text = String::new();
        for (name, condition) in self.0.borrow().iter() {
            let _ = match &condition.lacking {
                None if !verbose => Ok(()),
                None => writeln!(text, "[+]{name} ok"),
                Some(lacking) => writeln!(text, "[-]{name} failed: {lacking}"),
            };
        }
        text
    }

    fn put(&self, name: &str, lacking: Option<String>, weight: Option<Weight>) {
        self.0.send_if_modified(|conditions| {
            let old = conditions.get(name);
            let weight = weight.or(old.map(|old| old.weight)).unwrap_or(Weight::Shown);
            let new = Condition { lacking, weight };
            if old == Some(&new) {
                return false;
            }
            if let Some(lacking) = &new.lacking {
                tracing::info!(condition = name, reason = lacking, "Condition is not met");
            } else {
                tracing::debug!(condition = name, "Condition is met");
            }
            conditions.insert(name.to_owned(), new);
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    #[test]
    fn only_required_conditions_stop_the_work() {
        let readiness = Readiness::default();
        assert!(readiness.is_ready() && readiness.may_act());
        readiness.not_ready("inventory", "add an inventory");
        assert!(!readiness.is_ready() && readiness.may_act());
        readiness.require("crd", "install it");
        assert!(!readiness.may_act());
        readiness.ready("crd");
        assert!(!readiness.is_ready() && readiness.may_act());
        readiness.not_ready("crd", "install it again");
        assert!(!readiness.may_act(), "a required condition stays one");
    }

    #[test]
    fn what_is_needed_to_lead_or_to_act_is_named_while_it_lacks() {
        let readiness = Readiness::default();
        readiness.not_ready("inventory", "add an inventory");
        assert_eq!(readiness.lacks_to_lead(), None);
        readiness.require_to_lead("ironic", "it was not asked yet");
        assert!(readiness.may_act(), "it does not stop the work");
        readiness.require("crd", "install it");
        assert_eq!(readiness.lacks_to_lead().as_deref(), Some("crd, ironic"));
        readiness.ready("crd");
        readiness.ready("ironic");
        assert_eq!(readiness.lacks_to_lead(), None);
        readiness.not_ready("ironic", "it does not answer");
        assert_eq!(readiness.lacks_to_lead().as_deref(), Some("ironic"));
    }

    #[test]
    fn failures_are_shown_with_what_to_change() {
        let readiness = Readiness::default();
        readiness.ready("a");
        readiness.not_ready("b", "give it c");
        assert_eq!(readiness.describe(false), "[-]b failed: give it c\n");
        assert_eq!(readiness.describe(true), "[+]a ok\n[-]b failed: give it c\n");
    }
}
