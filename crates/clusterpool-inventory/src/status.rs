//! What a pool's status and events say.

use api_types::condition::{Condition, find, put};
use api_types::hive::{ClusterPoolStatus, EntryStatus};
use api_types::names::ferrite::CONDITION_SOLE_CONTROLLER;
use api_types::names::hive as names;
use api_types::time::whole;
use controller_kit::engine::Reason as _;
use controller_kit::events::shorten;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::plan::Plan;
use crate::reason::Reason;
use crate::seen::Cluster;
use crate::text;
use crate::usage::Use;

/// The status that the pool should have, if it is another than it has. What we do not know stays.
pub(crate) fn wanted(plan: &Plan<'_>) -> Option<ClusterPoolStatus> {
    let seen = plan.seen;
    let count = |is: fn(&Cluster) -> bool| {
        let all = seen.clusters.iter().filter(|it| is(it)).count();
        i32::try_from(all).unwrap_or(i32::MAX)
    };
    let mut status = seen.pool.status.clone();
    let inventory = text::inventory(plan);
    status.conditions.retain(|it| {
        it.r#type != CONDITION_SOLE_CONTROLLER
            && (it.r#type != names::CONDITION_INVENTORY_VALID || inventory.is_some())
    });
    let mut say = |kind: &str, (holds, reason, message): text::Said| {
        let message = shorten(&message, text::LONGEST);
        say(&mut status.conditions, kind, (holds, reason.as_str(), message), plan.now, true);
    };
    let missing = &plan.seen.missing;
    // What a deleted pool refers to is not looked at, so that what was said before stays.
    if !missing.is_empty() || !seen.pool.deleting {
        say(names::CONDITION_MISSING_DEPENDENCIES, text::missing(missing));
    }
    say(names::CONDITION_CAPACITY_AVAILABLE, text::capacity(plan));
    say(names::CONDITION_ALL_CLUSTERS_CURRENT, text::current(plan));
    if seen.pool.deleting {
        say(names::CONDITION_DELETION_POSSIBLE, text::deletion(plan));
    }
    if let Some(said) = inventory {
        say(names::CONDITION_INVENTORY_VALID, said);
    }
    status.size = count(Cluster::is_unclaimed);
    status.ready = count(Cluster::is_ready);
    status.standby = Some(count(Cluster::is_standby));
    let entries = plan.uses.states();
    status.inventory = entries.map(|(it, now)| (it.name.to_owned(), now.clone())).collect();
    (status != seen.pool.status).then_some(status)
}

/// Puts a condition into a list: its status, reason and message. Where nothing but the time would change, nothing does.
pub(crate) fn say(
    conditions: &mut Vec<Condition>,
    kind: &str,
    (status, reason, message): (&str, &str, String),
    now: Timestamp,
    probed: bool,
) {
    let now = whole(now);
    let mut condition = find(conditions, kind).cloned().unwrap_or_default();
    let same = condition.status == status
        && condition.reason.as_deref() == Some(reason)
        && condition.message.as_ref() == Some(&message);
    if same {
        return;
    }
    if condition.status != status {
        condition.last_transition_time = Some(Time(now));
    }
    kind.clone_into(&mut condition.r#type);
    status.clone_into(&mut condition.status);
    condition.reason = Some(reason.to_owned());
    condition.message = Some(message);
    if probed {
        // Hive's own format.
        condition.other.insert("lastProbeTime".to_owned(), json!(Time(now)));
    }
    put(conditions, condition);
}

/// The merge patch that makes a stored status the wanted one.
pub(crate) fn patch(stored: &ClusterPoolStatus, wanted: &ClusterPoolStatus) -> Value {
    let mut patch = difference(&json!(stored), &json!(wanted));
    // Both are required, and absent as long as there is no status.
    patch["size"] = json!(wanted.size);
    patch["ready"] = json!(wanted.ready);
    patch
}

/// The merge patch from one object to another.
fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key, Value::Null));
    let changed =
        new.iter().filter(|(key, value)| old.get(*key) != Some(value)).map(|(key, value)| {
            let nothing = Value::Object(serde_json::Map::new());
            let old = old.get(key).filter(|it| it.is_object()).unwrap_or(&nothing);
            (key, difference(old, value))
        });
    Value::Object(gone.chain(changed).map(|(key, value)| (key.clone(), value)).collect())
}

/// Entries that became unusable, clusters that cost an attempt, and those that go although they cost none.
pub(crate) fn events(plan: &mut Plan<'_>) {
    let (seen, uses) = (plan.seen, plan.uses);
    for (Use { name, before: old, .. }, entry) in uses.states() {
        let failure = entry.last_failure.as_ref();
        let why = failure.and_then(|it| it.message.as_deref()).unwrap_or_default();
        let failed = failure.and_then(|it| it.cluster_deployment.as_deref());
        if let Some(cluster) = failed.filter(|it| !old.is_some_and(|old| old.counts(it))) {
            let note = text::failed(cluster, name, entry.attempts.unwrap_or(0), why);
            // Of the cluster: the next one's would be taken for the same, with a number that is not true any more.
            plan.event(Reason::ProvisionStopped, cluster, &note);
        }
        if old.is_some_and(|it| it.status == entry.status) {
            continue;
        }
        let (reason, note) = match entry.status {
            EntryStatus::BrokenByConfiguration => {
                (Reason::BrokenByConfiguration, text::unusable_patches(name, why))
            }
            EntryStatus::BrokenByCloud => {
                let before = failed.filter(|_| why.is_empty()).map(text::stopped_before);
                let why = before.as_deref().unwrap_or(why);
                (Reason::BrokenByCloud, text::broken_by_cloud(name, why))
            }
            EntryStatus::Missing => (Reason::EntryMissing, text::entry_missing(name)),
            _ => continue,
        };
        plan.event(reason, name, &note);
    }
    let broken = seen.clusters.iter().filter(|it| it.is_broken() && it.claim.is_none());
    for cluster in broken.filter(|_| !seen.pool.deleting) {
        let is_told = cluster.has_failed() && uses.entry_of(cluster).is_some();
        let goes = cluster.deleting || plan.gone.contains(cluster.name.as_str());
        if goes && !is_told {
            plan.event(Reason::ClusterBroken, &cluster.name, &text::cluster_broken(cluster));
        }
    }
}
