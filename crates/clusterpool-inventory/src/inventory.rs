//! The life of an entry, as one pool sees it.
//!
//! The status is derived from what is there each time and never trusted by itself. What cannot be
//! derived is kept in the pool's status: which version was last seen, how many failed provisions
//! are left, and which cluster's failure was counted last.

use api_types::hive::EntryStatus;
use controller_kit::engine::Reason as _;
use controller_kit::events::shorten;
use k8s_openapi::jiff::Timestamp;

use crate::reason::{Notice, Reason};
use crate::seen::{Cluster, Customization, Entry, Failure};

/// The failed provisions that a pool's annotation allows.
pub fn allowed_attempts(annotation: &str) -> Option<u32> {
    annotation.trim().parse().ok().filter(|it| *it > 0)
}

/// Attempts that the status can hold.
pub(crate) const MOST_ATTEMPTS: u32 = i32::MAX.unsigned_abs();

/// What is told of a failure at most, in bytes: the status holds it for each entry, and has to be stored.
const LONGEST: usize = 1_000;

/// What an entry's status is derived from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Whether the pool lists it.
    pub listed: bool,
    /// The customization, if it is there.
    pub customization: Option<&'a Customization>,
    /// The pool's cluster that has or is getting it.
    pub user: Option<&'a str>,
    /// That cluster, if it is there.
    pub cluster: Option<&'a Cluster>,
    /// Whether it is in use outside of the pool.
    pub taken: bool,
    /// Why a cluster could not be made from it, if somebody refused that.
    pub turned_down: Option<&'a str>,
    /// What the status said before.
    pub before: Option<&'a Entry>,
    /// Failed provisions that it may have from the beginning.
    pub attempts: u32,
    /// The time.
    pub now: Timestamp,
}

/// An entry as it is, or nothing if it is neither listed nor used.
pub fn entry(facts: &Facts<'_>) -> Option<Entry> {
    match facts.user {
        Some(user) => Some(used(facts, user)),
        None if facts.listed => Some(unused(facts)),
        None => None,
    }
}

fn used(facts: &Facts<'_>, user: &str) -> Entry {
    let before = facts.before;
    let present = facts.customization.filter(|it| !it.deleting).map(|it| it.version.as_str());
    // A lease is taken and its cluster made at one version, which the cluster notes. A cluster
    // that another controller made has none: what was seen first counts as that.
    let known = before.and_then(|it| it.version.as_deref());
    let same_user = before.and_then(|it| it.cluster.as_deref()) == Some(user);
    let noted = facts.cluster.and_then(|it| it.entry_version.as_deref());
    let version = noted.or(known.filter(|_| same_user));
    let version = match facts.cluster {
        Some(_) => version.or(present),
        None => present.or(version),
    };
    let status = if !facts.listed {
        EntryStatus::ToBeDeleted
    } else if facts.customization.is_none() {
        EntryStatus::Missing
    } else if present.is_none() || present == version {
        EntryStatus::Reserved
    } else {
        EntryStatus::ToBeUpdated
    };
    let renewed = version.is_some() && known.is_some() && known != version;
    let before = before.filter(|_| !renewed);
    let mut attempts = before.and_then(|it| it.attempts).unwrap_or(facts.attempts);
    let mut failure = before.and_then(|it| it.failure.clone());
    if facts.cluster.is_some() {
        failure = failure.filter(|it| !it.is(Notice::Refused));
    } else if let Some(why) = facts.turned_down {
        failure = Some(told(facts, Notice::Refused, why));
    }
    if let Some(cluster) = facts.cluster {
        let counted = failure.as_ref().and_then(|it| it.cluster.as_deref()) == Some(user);
        if cluster.installed {
            attempts = facts.attempts;
            failure = None;
        } else if let (Some(why), false) = (&cluster.stopped, counted) {
            attempts = attempts.saturating_sub(1);
            failure = Some(Failure {
                cluster: Some(user.to_owned()),
                reason: Reason::ProvisionStopped.as_str().to_owned(),
                message: shorten(why, LONGEST),
                time: Some(facts.now),
            });
        }
    }
    Entry {
        version: version.map(str::to_owned),
        status,
        attempts: Some(attempts),
        cluster: Some(user.to_owned()),
        failure,
    }
}

fn unused(facts: &Facts<'_>) -> Entry {
    let before = facts.before.cloned().unwrap_or_default();
    let Some(customization) = facts.customization.filter(|it| !it.deleting) else {
        let status = if facts.taken { EntryStatus::Unavailable } else { EntryStatus::Missing };
        // What is known is kept: the same object may be seen again, and another has another uid.
        return Entry { status, cluster: None, ..before };
    };
    let version = Some(customization.version.clone());
    let is_new = before.version != version;
    let attempts = before.attempts.filter(|_| !is_new).unwrap_or(facts.attempts);
    let failed = before.failure.filter(|it| !is_new && it.cluster.is_some());
    let (status, failure) = if facts.taken {
        (EntryStatus::Unavailable, failed)
    } else if let Some(why) = &customization.refused {
        (EntryStatus::BrokenByConfiguration, Some(told(facts, Notice::BadPatch, why)))
    } else if attempts == 0 {
        (EntryStatus::BrokenByCloud, failed)
    } else {
        let refused = facts.turned_down.map(|why| told(facts, Notice::Refused, why));
        (EntryStatus::Available, refused.or(failed))
    };
    Entry { version, status, attempts: Some(attempts), cluster: None, failure }
}

/// What costs no attempt, at the time at which it was told first.
fn told(facts: &Facts<'_>, reason: Notice, why: &str) -> Failure {
    let message = shorten(why, LONGEST);
    let known = facts.before.and_then(|it| it.failure.as_ref());
    let known = known.filter(|it| it.is(reason) && it.message == message).cloned();
    known.unwrap_or_else(|| Failure {
        cluster: None,
        reason: reason.as_str().to_owned(),
        message,
        time: Some(facts.now),
    })
}

/// Whether the failure of the cluster of this name is in the status already, so that the cluster may go.
pub fn is_counted(entry: Option<&Entry>, cluster: &str) -> bool {
    let failure = entry.and_then(|it| it.failure.as_ref());
    failure.and_then(|it| it.cluster.as_deref()) == Some(cluster)
}
