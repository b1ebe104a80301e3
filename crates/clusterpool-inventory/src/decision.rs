//! The result of the rules, as plain data that tests can compare.

use std::time::Duration;

use api_types::hive::ClusterPoolStatus;
use controller_kit::engine::{Event, Reason as _};

use crate::naming;
use crate::reason::{Pass, Reason};
use crate::seen::{Claim, Observed};

/// The work for a pool, its new status and its events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Pieces of work, the most urgent first. They do not depend on each other.
    pub work: Vec<Work>,
    /// The status to store, if it is another than the stored one. It insists on the pool's
    /// resourceVersion: the attempts in it must not be counted twice.
    pub status: Option<ClusterPoolStatus>,
    /// The events to report.
    pub events: Vec<Event>,
    /// When to observe again, even if nothing changes.
    pub again: Option<Duration>,
}

impl Decision {
    /// The reason under which the pool waits after this pass.
    pub fn reason(&self, seen: &Observed) -> Pass {
        if seen.pool.rival.is_some() {
            Pass::Contested
        } else if !self.work.is_empty() {
            Pass::Worked
        } else if self.status.is_some() {
            Pass::StatusTold
        } else if !seen.missing.is_empty() {
            Pass::DependencyMissing
        } else if seen.pool.deleting && !(seen.clusters.is_empty() && seen.namespaces.is_empty()) {
            Pass::PoolLeaving
        } else if seen.claims.iter().any(Claim::waits) {
            Pass::ClaimsWait
        } else {
            Pass::AtRest
        }
    }

    /// Events about changes of the status, to be reported once that is stored.
    pub fn told_with_status(&self) -> impl Iterator<Item = Event> {
        self.events.iter().filter(|it| it.hourly.is_none()).cloned()
    }

    /// Events about facts that last, to be reported once an hour.
    pub fn lasting_events(&self) -> Vec<Event> {
        self.events.iter().filter(|it| it.hourly.is_some()).cloned().collect()
    }
}

/// Writes that follow on each other: the first that is refused or fails ends the piece, and what is
/// left of it is found again by the next pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    /// Why.
    pub reason: Reason,
    /// In this order.
    pub steps: Vec<Step>,
}

impl Work {
    /// The cluster that this creates, whoever began it, and the entry that it is made from.
    pub fn creates(&self) -> Option<(&str, Option<&Version>)> {
        self.steps.iter().find_map(|it| match it {
            Step::Create { cluster, entry, .. } => Some((cluster.as_str(), entry.as_ref())),
            _ => None,
        })
    }

    /// The cluster that this looks after, if it does.
    pub fn tends(&self) -> Option<&str> {
        match &self.steps[..] {
            [Step::Restore { cluster, .. }] => Some(cluster),
            _ => None,
        }
    }
}

/// One write, or those that make one cluster. It insists on the version of the object that was observed; where an earlier step of
/// the same piece wrote the object, on the one that it has since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Puts our finalizer on the pool.
    KeepPool,
    /// Notes this on a pool of Hive's own controller: which spec its clusters were made from.
    NoteVersion(String),
    /// Takes our finalizer off the pool again: nothing of it is left.
    LetPoolGo,
    /// Writes on a claim which cluster it gets.
    Assign {
        /// The claim.
        claim: String,
        /// The cluster.
        cluster: String,
    },
    /// Takes back a cluster that this claim cannot have.
    Unassign(String),
    /// Writes on a cluster whose claim it has, and lets it run.
    Claim {
        /// The cluster.
        cluster: String,
        /// The claim.
        claim: String,
    },
    /// Asks the API server whether the claim is still there, and otherwise marks the cluster that was just given to it:
    /// without Hive's finalizer a claim goes unnoticed, and one that was made again under its name gets nothing of it.
    Confirm {
        /// The cluster.
        cluster: String,
        /// The claim.
        claim: String,
    },
    /// Says on a claim why it is pending.
    Tell {
        /// The claim.
        claim: String,
        /// One of those that a claim is told.
        pending: Reason,
    },
    /// Puts our finalizer on this customization, before its first lease, in place of the one that Hive's own controller put
    /// there for the pool.
    KeepEntry(String),
    /// Takes both off this customization again.
    FreeEntry(String),
    /// Leases a customization: condition, cluster and pool in one write of its status.
    Lease {
        /// The customization.
        entry: String,
        /// The cluster.
        cluster: String,
        /// Whether the API server must first show that the cluster is there and is not being
        /// deleted, asked after the customization was read: what is being deleted has given its
        /// lease back and did not lose it.
        prove_living: bool,
    },
    /// Says on the lease of this customization, whose cluster is missing, that it is about to be released. Whoever is still
    /// creating that cluster sees it when he verifies the lease.
    Announce(String),
    /// Takes that back: the cluster is there.
    Retract(String),
    /// Releases a lease.
    Release {
        /// The customization.
        entry: String,
        /// The cluster that must have it.
        cluster: Option<String>,
        /// Whether the API server must first say that there is no such cluster, asked after the
        /// announcement was read.
        prove_absent: bool,
    },
    /// Makes again what a cluster needs in its namespace. What is there stays as it is.
    Restore {
        /// The cluster.
        cluster: String,
        /// The entry that it was made from.
        entry: Option<Version>,
    },
    /// Creates a cluster, after its namespace and what it needs there: with an entry, our finalizer on it and paused. What
    /// is there already stays as it is: of the namespace it is noted what all in it is made from, and one of something else is
    /// not taken. A cluster of that name may be there, if it is of this pool and entry.
    Create {
        /// The cluster.
        cluster: String,
        /// The entry that it is made from.
        entry: Option<Version>,
        /// Whether it is to run once it is installed; left open where the platform cannot hibernate.
        run: Option<bool>,
    },
    /// Asks the API server whether the lease is the cluster's and not about to be released; if so,
    /// ends the cluster's pause.
    Verify {
        /// The cluster.
        cluster: String,
        /// The customization.
        entry: String,
    },
    /// Puts our finalizer on this cluster, which another controller created.
    Adopt(String),
    /// Lets a cluster run or hibernate.
    Power {
        /// The cluster.
        cluster: String,
        /// Whether it should run.
        run: bool,
    },
    /// Asks for the deletion of this cluster. One that was claimed since must stay.
    Delete(String),
    /// Takes our finalizer off a cluster, if it is still the last and the API server, asked now,
    /// shows its entry without a lease for it: what was read may be older than the lease.
    LetGo {
        /// The cluster.
        cluster: String,
        /// Its entry, where there can be one of that name.
        entry: Option<String>,
    },
    /// Deletes this namespace, which has no cluster.
    RemoveNamespace(String),
}

impl Step {
    /// Releases a customization, which this cluster must have.
    pub(crate) fn release(entry: &str, cluster: Option<&str>, prove_absent: bool) -> Self {
        let cluster = cluster.map(str::to_owned);
        Self::Release { entry: entry.to_owned(), cluster, prove_absent }
    }

    /// Whether it writes the pool.
    pub fn is_on_pool(&self) -> bool {
        matches!(self, Self::KeepPool | Self::NoteVersion(_) | Self::LetPoolGo)
    }
}

/// A customization and what was in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Generation and uid.
    pub version: String,
}

/// An event on the pool about an entry or a cluster: of one reason and one of them there is one event at a time.
pub(crate) fn event(reason: Reason, about: &str, note: &str) -> Event {
    // The next pass finds the same, whatever is stored.
    let lasts = matches!(reason, Reason::DoubleUse | Reason::ClusterBroken);
    let hourly = lasts.then(|| u64::from(naming::hash(note)));
    // Events of one reason and one action would be taken for one.
    Event { hourly, ..Event::new(true, reason.as_str(), &naming::label(about), note) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_told_with_the_status_and_what_lasts_once_an_hour() {
        let event = |reason| event(reason, "a", "why");
        let events = vec![event(Reason::EntryMissing), event(Reason::DoubleUse)];
        let decision = Decision { events, ..Decision::default() };
        let told: Vec<_> = decision.told_with_status().collect();
        assert_eq!((told.len(), &*told[0].reason, told[0].hourly), (1, "EntryMissing", None));
        let lasting = decision.lasting_events();
        assert!(lasting.len() == 1 && lasting[0].reason == "DoubleUse");
        assert!(lasting[0].hourly.is_some() && lasting[0].warning);
    }
}
