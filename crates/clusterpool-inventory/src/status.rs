//! What a pool's status and events say.

use std::collections::BTreeMap;

use api_types::hive::EntryStatus;
use api_types::names::hive as names;

use crate::decision::Reason;
use crate::inventory::Listed;
use crate::observe::{Cluster, Condition, Status};
use crate::plan::Plan;

/// The status that the pool should have.
pub(crate) fn of(plan: &Plan<'_>) -> Status {
    let unclaimed = || plan.seen.clusters.iter().filter(|it| it.is_unclaimed());
    let mut conditions = plan.seen.pool.status.conditions.clone();
    let mut say = |kind: &str, status: &str, reason: &str, message: String| {
        let condition = Condition { status: status.to_owned(), reason: reason.to_owned(), message };
        conditions.insert(kind.to_owned(), condition);
    };
    let missing = &plan.seen.missing;
    if missing.is_empty() {
        say(
            names::CONDITION_MISSING_DEPENDENCIES,
            "False",
            "Verified",
            "Nothing is missing".into(),
        );
    } else {
        say(names::CONDITION_MISSING_DEPENDENCIES, "True", "Missing", missing.join("; "));
    }
    let all = plan.seen.clusters.len() + plan.halves().count();
    match plan.seen.pool.max_size {
        Some(most) if all >= most => {
            let message =
                format!("{all} of at most {most} clusters are there, claimed ones among them");
            say(names::CONDITION_CAPACITY_AVAILABLE, "False", "MaxCapacity", message);
        }
        _ => say(names::CONDITION_CAPACITY_AVAILABLE, "True", "Available", "There is room".into()),
    }
    let stale: Vec<&str> =
        unclaimed().filter(|it| plan.staleness(it).is_some()).map(|it| it.name.as_str()).collect();
    if stale.is_empty() {
        let message = "Every unclaimed cluster is made from what pool and entries are now".into();
        say(names::CONDITION_ALL_CLUSTERS_CURRENT, "True", "ClusterDeploymentsCurrent", message);
    } else {
        let message = format!("To be replaced one by one: {}", some(&stale));
        say(names::CONDITION_ALL_CLUSTERS_CURRENT, "False", "SomeClusterDeploymentsStale", message);
    }
    if let Some((status, reason, message)) = inventory(plan) {
        say(names::CONDITION_INVENTORY_VALID, status, reason, message);
    } else {
        conditions.remove(names::CONDITION_INVENTORY_VALID);
    }
    if plan.seen.pool.deleting {
        let left: Vec<&str> = plan.seen.clusters.iter().map(|it| it.name.as_str()).collect();
        let condition = if left.is_empty() {
            Condition {
                status: "True".to_owned(),
                reason: "DeletionPossible".to_owned(),
                message: "No cluster is left".to_owned(),
            }
        } else {
            Condition {
                status: "False".to_owned(),
                reason: "ClusterDeploymentsPendingCleanup".to_owned(),
                message: format!("Still there: {}", some(&left)),
            }
        };
        conditions.insert(names::CONDITION_DELETION_POSSIBLE.to_owned(), condition);
    }
    Status {
        size: unclaimed().count(),
        ready: unclaimed().filter(|it| it.is_ready()).count(),
        standby: unclaimed().filter(|it| is_standby(it)).count(),
        inventory: plan.inventory.clone(),
        conditions,
    }
}

fn is_standby(cluster: &Cluster) -> bool {
    cluster.installed && !cluster.is_broken() && !cluster.is_ready()
}

/// Names in a message, not more than one reads.
fn some(names: &[&str]) -> String {
    const MOST: usize = 10;
    let mut text = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text += " and more";
    }
    text
}

fn inventory(plan: &Plan<'_>) -> Option<(&'static str, &'static str, String)> {
    match plan.seen.pool.listed {
        Listed::Nothing if plan.inventory.is_empty() => return None,
        Listed::Empty => {
            let message = "spec.inventory lists nothing: list at least one customization, or remove \
                           it. Until then no cluster is made or removed";
            return Some(("False", "Empty", message.to_owned()));
        }
        Listed::Nothing | Listed::Entries(_) => {}
    }
    let mut by_status: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, entry) in &plan.inventory {
        by_status.entry(entry.status.as_str()).or_default().push(name);
    }
    let usable = plan.listed.iter().filter(|name| {
        plan.inventory.get(**name).is_some_and(|it| {
            let broken = [
                EntryStatus::BrokenByConfiguration,
                EntryStatus::BrokenByCloud,
                EntryStatus::Missing,
                EntryStatus::Unavailable,
            ];
            !broken.contains(&it.status)
        })
    });
    let mut message = format!(
        "{} of {} entries for a size of {}",
        usable.count(),
        plan.listed.len(),
        plan.seen.pool.size
    );
    let bad = ["Broken by configuration", "Broken by cloud", "Missing"];
    for status in bad.into_iter().chain(["Unavailable", "To Be Updated", "To Be Deleted"]) {
        if let Some(names) = by_status.get(status) {
            message = format!("{message}; {status}: {}", some(names));
        }
    }
    if bad.iter().any(|status| by_status.contains_key(status)) {
        return Some(("False", "Invalid", message));
    }
    Some(("True", "Valid", message))
}

/// Entries that became unusable, and clusters that cost an attempt.
pub(crate) fn events(plan: &mut Plan<'_>) {
    let before = &plan.seen.pool.status.inventory;
    let mut events = Vec::new();
    for (name, entry) in &plan.inventory {
        let old = before.get(name);
        let why = entry.failure.as_ref().map_or("", |it| it.message.as_str());
        let cluster = |it: &crate::inventory::Entry| it.failure.clone().and_then(|it| it.cluster);
        if let Some(cluster) =
            cluster(entry).filter(|it| old.and_then(cluster).as_ref() != Some(it))
        {
            let left = entry.attempts.unwrap_or(0);
            let note = format!(
                "Cluster {cluster} of entry {name} failed, {left} attempts are left: {why}"
            );
            events.push((Reason::ProvisionStopped, note));
        }
        if old.is_some_and(|it| it.status == entry.status) {
            continue;
        }
        match entry.status {
            EntryStatus::BrokenByConfiguration => events.push((
                Reason::BrokenByConfiguration,
                format!("The patches of entry {name} cannot be applied: {why}"),
            )),
            EntryStatus::BrokenByCloud => events.push((
                Reason::BrokenByCloud,
                format!("Entry {name} is not used again before it is edited: {why}"),
            )),
            EntryStatus::Missing => events.push((
                Reason::EntryMissing,
                format!("There is no ClusterDeploymentCustomization {name}; create it or take it off the list"),
            )),
            _ => {}
        }
    }
    for (reason, note) in events {
        plan.event(reason, note);
    }
}
