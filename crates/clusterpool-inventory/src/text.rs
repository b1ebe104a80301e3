//! Every sentence that a person reads.

use std::time::Duration;

use controller_kit::engine::{Error, Event, Reason as _};
use k8s_openapi::jiff::Timestamp;

use crate::make;
use crate::patch::Refusal;
use crate::reason::Reason;
use crate::seen::Condition;

/// What a customization says that nobody has.
pub const FREE: &str = "Free";

/// The same of one whose cluster is missing.
pub fn releasing(cluster: &str) -> String {
    format!("Cluster {cluster} is not there; about to be free again")
}

/// The same of one that a cluster has.
pub fn in_use(cluster: &str, pool: &str) -> String {
    format!("Currently in use by cluster deployment {cluster} of clusterpool {pool}")
}

/// Why a claim is pending.
pub fn pending(reason: Reason, pool: &str) -> Condition {
    let message = match reason {
        Reason::NoClusters => {
            "No cluster of the pool is free and runs; one is given as soon as it does".to_owned()
        }
        Reason::NoPool => format!(
            "There is no ClusterPool {pool} in this namespace; create it, or make the claim anew for one that is there"
        ),
        Reason::PoolDeleted => format!(
            "ClusterPool {pool} is being deleted and gives no cluster any more; make the claim anew for another pool"
        ),
        _ => "A cluster was assigned, and is prepared for the claim".to_owned(),
    };
    Condition::new("True", reason.as_str(), message)
}

/// Why nothing is done for a pool that Hive's own controller wrote to at this time.
pub fn contested(since: Timestamp, rest: Duration) -> String {
    format!(
        "Hive's own controller of pools wrote to this pool at {since}. Two must not run together: add \
         clusterpool to spec.disabledControllers of HiveConfig. Nothing is done until it was silent for {} minutes",
        rest.as_secs() / 60
    )
}

/// The cluster of the name that was chosen is somebody else's.
pub fn foreign(cluster: &str) -> String {
    format!(
        "{cluster} is there and not of this pool: delete it, or free the customization that names it"
    )
}

/// The namespace of the name that was chosen for a cluster is somebody else's.
pub fn name_taken(cluster: &str) -> String {
    format!("namespace {cluster} is there and not of this pool, so the cluster gets another name")
}

/// In the namespace of the name that was chosen for a cluster stands something of an earlier try that cannot be made anew.
pub fn name_unusable(cluster: &str) -> String {
    format!(
        "what is in namespace {cluster} is of an earlier try and cannot be changed, so the cluster gets another name"
    )
}

/// The patches were accepted when they were tried, and are not with the cluster's own name.
pub fn not_patched(cluster: &str, why: &Refusal) -> String {
    format!("no install config can be made for cluster {cluster}: {why}")
}

/// Somebody does not want what is to be written for a pool.
pub fn refused(error: &Error) -> Event {
    let note = error.to_string();
    // It is tried again and again.
    let hourly = Some(u64::from(make::hash(&note)));
    Event { hourly, ..Event::new(true, "Refused", &make::action("Write", &note), &note) }
}

/// Patches of a customization were accepted, and mean something else in a pool than their author may think.
pub fn adjusted(pool: &str, notes: &str) -> Event {
    let note = format!("In pool {pool}: {notes}");
    Event::new(true, "PatchAdjusted", &make::action("Patch", &note), &note)
}
