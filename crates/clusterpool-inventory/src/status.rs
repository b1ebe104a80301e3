//! What a pool's status and events say.

use std::collections::{BTreeMap, HashMap};

use api_types::condition::{Condition as ForeignCondition, find, put};
use api_types::hive::{ClusterPoolStatus, EntryState, EntryStatus};
use api_types::names::ferrite::CONDITION_SOLE_CONTROLLER;
use api_types::names::hive as names;
use api_types::time::whole;
use controller_kit::engine::Reason as _;
use controller_kit::events::shorten;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::plan::{Plan, State};
use crate::reason::Reason;
use crate::seen::{Claim, Cluster, Condition, Entry, Listed, Observed, Status};

/// What a condition says at most, in bytes: a status that is too large cannot be stored.
const LONGEST: usize = 10_000;

/// Status, reason and message of a condition.
type Said = (&'static str, &'static str, String);

/// The status that the pool should have, if it is another than it has.
pub(crate) fn wanted(plan: &Plan<'_>) -> Option<Status> {
    let seen = plan.seen;
    let unclaimed = || seen.clusters.iter().filter(|it| it.is_unclaimed());
    let mut conditions = plan.seen.pool.status.conditions.clone();
    conditions.remove(CONDITION_SOLE_CONTROLLER);
    let mut say = |kind: &str, (status, reason, message): Said| {
        let message = shorten(&message, LONGEST);
        conditions.insert(kind.to_owned(), Condition::new(status, reason, message));
    };
    let missing = &plan.seen.missing;
    if !missing.is_empty() {
        say(names::CONDITION_MISSING_DEPENDENCIES, ("True", "Missing", missing.join("; ")));
    } else if !seen.pool.deleting {
        // What a deleted pool refers to is not looked at, so that what was said before stays.
        let nothing = ("False", "Verified", "Nothing is missing".to_owned());
        say(names::CONDITION_MISSING_DEPENDENCIES, nothing);
    }
    say(names::CONDITION_CAPACITY_AVAILABLE, capacity(plan));
    say(names::CONDITION_ALL_CLUSTERS_CURRENT, current(plan));
    if seen.pool.deleting {
        say(names::CONDITION_DELETION_POSSIBLE, deletion(plan));
    }
    if let Some(said) = inventory(plan) {
        say(names::CONDITION_INVENTORY_VALID, said);
    } else {
        conditions.remove(names::CONDITION_INVENTORY_VALID);
    }
    let (size, ready) = (unclaimed().count(), unclaimed().filter(|it| it.is_ready()).count());
    let standby = unclaimed().filter(|it| is_standby(it)).count();
    let before = &seen.pool.status;
    let is_same = before.inventory.len() == plan.inventory.len()
        && plan.inventory.iter().all(|it| it.before == Some(&it.now))
        && (size, ready, standby) == (before.size, before.ready, before.standby)
        && conditions == before.conditions;
    if is_same {
        return None;
    }
    let inventory = plan.inventory.iter().map(|it| (it.name.to_owned(), it.now.clone())).collect();
    Some(Status { size, ready, standby, inventory, conditions })
}

/// Whether another cluster fits, and what of the clusters that are there only a person can change.
fn capacity(plan: &Plan<'_>) -> Said {
    let all = plan.seen.clusters.len() + plan.halves().count();
    let limit = limit(plan);
    let more = keeping(plan) + &spared(plan) + &unowned(plan.seen) + &not_begun(plan.seen);
    match plan.seen.pool.max_size {
        Some(most) if all >= most => {
            let limit = limit.map(|it| format!("; {it}")).unwrap_or_default();
            let message = format!(
                "{all} of at most {most} clusters are there, claimed ones among them{limit}{more}"
            );
            ("False", "MaxCapacity", message)
        }
        _ if is_dry(plan) => {
            let limit = limit.map(|it| format!("; {it}")).unwrap_or_default();
            let message = format!(
                "No listed entry is free for another cluster: list more, or take claims away that nobody needs{limit}{more}"
            );
            ("False", "NoFreeEntry", message)
        }
        _ => {
            let limit = limit.map(|it| format!(", but {it}")).unwrap_or_default();
            ("True", "Available", format!("There is room{limit}{more}"))
        }
    }
}

/// Whether the pool wants more clusters than there are entries beside those of claimed ones and of such as Hive cannot take
/// down. Where one is just going, its entry will be free.
fn is_dry(plan: &Plan<'_>) -> bool {
    let all = &plan.seen.clusters;
    let is_going = all.iter().any(|it| it.deleting && !it.hangs) || plan.halves().next().is_some();
    let keeps = |it: &Cluster| if it.deleting { it.hangs } else { it.claim.is_some() };
    lacks_entry(plan) && all.iter().any(keeps) && !is_going
}

/// Whether the pool wants more clusters than there are, and no entry is free for one.
fn lacks_entry(plan: &Plan<'_>) -> bool {
    let (seen, pool) = (plan.seen, &plan.seen.pool);
    let unclaimed = seen.clusters.iter().filter(|it| it.is_unclaimed()).count();
    let is_free = |it: &State<'_>| it.now.status == EntryStatus::Available;
    matches!(pool.listed, Listed::Entries(_))
        && !pool.deleting
        && unclaimed < plan.target()
        && !plan.inventory.iter().any(is_free)
}

/// Clusters on their way out that keep the entries which a pool without a free one waits for.
fn keeping(plan: &Plan<'_>) -> String {
    if !lacks_entry(plan) {
        return String::new();
    }
    let is_listed = |it: &Cluster| plan.entry_of(it).is_some_and(|it| plan.listed.contains(it));
    let named = |(hangs, why): (bool, &str)| {
        let all = plan.seen.clusters.iter();
        let all = all.filter(|it| it.deleting && it.hangs == hangs && is_listed(it));
        let names: Vec<&str> = all.map(|it| it.name.as_str()).collect();
        (!names.is_empty()).then(|| format!("; {why}: {}", some(&names)))
    };
    let both = [
        (false, "the entries of these are free as soon as they are gone"),
        (true, "Hive cannot take down these, which keep their entries until they are gone"),
    ];
    both.into_iter().filter_map(named).collect()
}

/// What keeps clusters from being made and removed, if something does.
fn limit(plan: &Plan<'_>) -> Option<String> {
    match plan.seen.pool.max_concurrent? {
        // A pool that is being deleted goes on one by one.
        0 if !plan.seen.pool.deleting => Some(
            "with a spec.maxConcurrent below 1 no cluster is made or removed: raise it".to_owned(),
        ),
        _ if plan.held_up => {
            let busy: Vec<&str> = plan.under_way().collect();
            let beside = if busy.is_empty() { "" } else { ": beside " };
            Some(format!(
                "spec.maxConcurrent allows no more to be installed or removed at the same time{beside}{}",
                some(&busy)
            ))
        }
        _ => None,
    }
}

/// Clusters that a person forbade to delete. A deleted pool names them as what it waits for.
fn spared(plan: &Plan<'_>) -> String {
    let spared: Vec<&str> = plan.spared.iter().copied().collect();
    if spared.is_empty() || plan.seen.pool.deleting {
        return String::new();
    }
    format!(
        "; to be removed as soon as their annotation {} is taken off: {}",
        names::PROTECTED_DELETE,
        some(&spared)
    )
}

/// Which clusters are to be replaced, and what they wait for.
fn current(plan: &Plan<'_>) -> Said {
    let unclaimed = || plan.seen.clusters.iter().filter(|it| it.is_unclaimed());
    let stale: Vec<(u8, &Cluster)> =
        unclaimed().filter_map(|it| Some((plan.staleness(it)?, it))).collect();
    if stale.is_empty() {
        let message = "Every unclaimed cluster is made from what pool and entries are now";
        return ("True", "ClusterDeploymentsCurrent", message.to_owned());
    }
    let names = |all: Vec<&Cluster>| {
        let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
        (!names.is_empty()).then(|| some(&names))
    };
    let is_stale = |it: &&Cluster| plan.staleness(it).is_some();
    let (unfinished, first): (Vec<&Cluster>, Vec<&Cluster>) =
        unclaimed().filter(|it| it.is_installing()).partition(is_stale);
    let whole: Vec<&Cluster> =
        stale.iter().map(|it| it.1).filter(|it| !it.is_installing()).collect();
    let stays = !plan.seen.pool.deleting && !plan.has_spare();
    let irreplaceable: Vec<&Cluster> =
        whole.iter().copied().filter(|it| stays && !plan.can_return(it)).collect();
    let protected: Vec<&Cluster> = unclaimed().filter(|it| it.protected && is_stale(it)).collect();
    let awaited = plan.awaited();
    let awaited: Vec<&Cluster> =
        whole.iter().copied().filter(|it| awaited.contains(it.name.as_str())).collect();
    let leaving = |hangs| plan.leaving(hangs).collect::<Vec<&Cluster>>();
    let waits = [
        (leaving(false), "these have to be gone first"),
        (first, "these have to be installed first"),
        (unfinished, "these have to be installed first, and are to be replaced then"),
        (leaving(true), "Hive cannot take down"),
        (protected, "an annotation protects from deletion"),
        (awaited, "claims wait for"),
        (irreplaceable, "no other one can be made in the place of"),
    ];
    let waits = waits.into_iter().filter_map(|(all, why)| Some(format!("{why}: {}", names(all)?)));
    let listed: Vec<String> = names(whole).into_iter().chain(waits).collect();
    let listed = listed.join("; ");
    if stale.iter().all(|it| it.0 == 0) {
        let message = format!(
            "Nobody noted what they are made from, so they are replaced one by one: {listed}"
        );
        ("Unknown", "SomeClusterDeploymentsUnknown", message)
    } else {
        ("False", "SomeClusterDeploymentsStale", format!("To be replaced one by one: {listed}"))
    }
}

/// What a deleted pool waits for.
fn deletion(plan: &Plan<'_>) -> Said {
    let clusters = &plan.seen.clusters;
    let those = |is: fn(&Cluster) -> bool| {
        let all = clusters.iter().filter(|it| is(it));
        all.map(|it| it.name.as_str()).collect::<Vec<_>>()
    };
    let unread: Vec<&str> = plan.seen.unread.iter().map(String::as_str).collect();
    let leased: Vec<&str> = plan.halves().map(|(entry, _)| entry.name.as_str()).collect();
    if clusters.is_empty() && unread.is_empty() {
        return if leased.is_empty() {
            ("True", "DeletionPossible", "No cluster is left".to_owned())
        } else {
            let message = format!("No cluster is left, but still leased: {}", some(&leased));
            ("False", "LeasesPendingRelease", message)
        };
    }
    let mut message = format!("Still there: {}", some(&[those(|_| true), unread.clone()].concat()));
    let (given_back, protected) = (names::REMOVE_FROM_POOL, names::PROTECTED_DELETE);
    for (which, why) in [
        (
            those(|it| it.claim.is_some() && !it.marked && !it.deleting),
            format!(
                "delete the claims of these, or annotate those that nobody uses with {given_back}=true"
            ),
        ),
        (
            those(|it| it.protected && !it.deleting),
            format!("take annotation {protected} off these, which forbids to delete them"),
        ),
        (those(|it| it.hangs), "Hive cannot take down".to_owned()),
        (unread, "these cannot be read, so correct them".to_owned()),
    ] {
        if !which.is_empty() {
            message = format!("{message}; {why}: {}", some(&which));
        }
    }
    ("False", "ClusterDeploymentsPendingCleanup", message)
}

/// The status of a pool that is left alone because another controller works on it.
pub(crate) fn refused(seen: &Observed) -> Status {
    let mut status = seen.pool.status.clone();
    let why = seen.pool.rival.clone().unwrap_or_default();
    let condition = Condition::new("False", Reason::HiveControllerActive.as_str(), why);
    status.conditions.insert(CONDITION_SOLE_CONTROLLER.to_owned(), condition);
    status
}

/// Clusters whose claims are not there or have another one. They may be in use all the same, so that only a person can
/// give them back.
fn unowned(seen: &Observed) -> String {
    let claims: HashMap<&str, &Claim> =
        seen.claims.iter().map(|it| (it.name.as_str(), it)).collect();
    let is_unowned = |it: &&Cluster| {
        let Some(claim) = it.claim.as_deref().filter(|_| !it.deleting && !it.marked) else {
            return false;
        };
        claims.get(claim).is_none_or(|claim| match &claim.cluster {
            Some(name) => *name != it.name,
            // A claim without a cluster is about to get the one that was given to it, and none of one before it.
            None => !it.was_given_to(claim),
        })
    };
    let unowned: Vec<&str> =
        seen.clusters.iter().filter(is_unowned).map(|it| it.name.as_str()).collect();
    if unowned.is_empty() {
        return String::new();
    }
    format!(
        "; annotate those that nobody uses with {}=true, since their claims are gone or have another cluster: {}",
        names::REMOVE_FROM_POOL,
        some(&unowned)
    )
}

/// Clusters that Hive does not begin to install, in its own words. What was wrong in the template stays wrong in them.
fn not_begun(seen: &Observed) -> String {
    if seen.not_begun.is_empty() || seen.pool.deleting {
        return String::new();
    }
    let told = |(place, (name, words)): (usize, (&String, &String))| {
        let words = Some(words).filter(|it| place < MOST_TOLD && !it.is_empty());
        words.map_or_else(|| name.clone(), |it| format!("{name} ({})", shorten(it, LONGEST / 10)))
    };
    let all: Vec<String> = seen.not_begun.iter().enumerate().map(told).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    format!(
        "; Hive has not begun to install these, so put right what it says of them, and delete those that stay so: {}",
        some(&all)
    )
}

fn is_standby(cluster: &Cluster) -> bool {
    cluster.installed && !cluster.is_broken() && !cluster.is_ready()
}

/// Puts a condition into a list. Where nothing but the time would change, nothing does.
pub(crate) fn say(
    conditions: &mut Vec<ForeignCondition>,
    kind: &str,
    said: &Condition,
    now: Timestamp,
    probed: bool,
) {
    let now = whole(now);
    let mut condition = find(conditions, kind).cloned().unwrap_or_default();
    let same = condition.status == said.status
        && condition.reason.as_ref() == Some(&said.reason)
        && condition.message.as_ref() == Some(&said.message);
    if same {
        return;
    }
    if condition.status != said.status {
        condition.last_transition_time = Some(Time(now));
    }
    kind.clone_into(&mut condition.r#type);
    condition.status.clone_from(&said.status);
    condition.reason = Some(said.reason.clone());
    condition.message = Some(said.message.clone());
    if probed {
        // Hive's own format.
        condition.other.insert("lastProbeTime".to_owned(), json!(Time(now)));
    }
    put(conditions, condition);
}

/// The merge patch that makes a stored status the wanted one; what we do not know stays.
pub(crate) fn patch(stored: Option<&ClusterPoolStatus>, wanted: &Status, now: Timestamp) -> Value {
    let before = stored.cloned().unwrap_or_default();
    let mut after = before.clone();
    let number = |it: usize| i32::try_from(it).unwrap_or(i32::MAX);
    after.size = number(wanted.size);
    after.ready = number(wanted.ready);
    after.standby = Some(number(wanted.standby));
    after.conditions.retain(|it| wanted.conditions.contains_key(&it.r#type));
    for (kind, it) in &wanted.conditions {
        say(&mut after.conditions, kind, it, now, true);
    }
    after.inventory = wanted
        .inventory
        .iter()
        .map(|(name, entry)| (name.clone(), EntryState::from(entry)))
        .collect();
    let json = |status: &ClusterPoolStatus| serde_json::to_value(status).unwrap_or_default();
    let mut patch = difference(&json(&before), &json(&after));
    // Both are required, and absent as long as there is no status.
    patch["size"] = json!(after.size);
    patch["ready"] = json!(after.ready);
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

/// Entries of which a message says what is wrong with them.
const MOST_TOLD: usize = 3;

/// Names in a message, not more than one reads.
fn some(names: &[&str]) -> String {
    const MOST: usize = 10;
    let mut text = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text += " and more";
    }
    text
}

fn inventory(plan: &Plan<'_>) -> Option<Said> {
    let pool = &plan.seen.pool;
    match &pool.listed {
        Listed::Nothing if plan.inventory.is_empty() => return None,
        Listed::Empty => {
            let message = "spec.inventory lists nothing: list at least one customization, or remove \
                           it. Until then no cluster is made or removed";
            return Some(("False", "Empty", message.to_owned()));
        }
        Listed::Unreadable(why) => {
            let message = format!("{why}. Until then no cluster is made or removed");
            return Some(("False", "Unreadable", message));
        }
        Listed::Nothing | Listed::Entries(_) => {}
    }
    let mut by_status: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for it in &plan.inventory {
        by_status.entry(it.now.status.as_str()).or_default().push(it.name);
    }
    let usable = plan.listed.iter().filter(|name| {
        plan.state(name).is_some_and(|it| {
            let broken = [
                EntryStatus::BrokenByConfiguration,
                EntryStatus::BrokenByCloud,
                EntryStatus::Missing,
                EntryStatus::Unavailable,
            ];
            !broken.contains(&it.status)
        })
    });
    let usable = usable.count();
    let is_short = usable < pool.size && pool.listed != Listed::Nothing && !pool.deleting;
    let mut message = if pool.listed == Listed::Nothing {
        "No entry is listed any more".to_owned()
    } else {
        format!("{usable} of {} entries for a size of {}", plan.listed.len(), pool.size)
    };
    if is_short {
        message += ", which are too few: list more that can be used, or lower spec.size";
    }
    let bad = ["Broken by configuration", "Broken by cloud", "Missing"];
    for status in bad.into_iter().chain(["Unavailable", "To Be Updated", "To Be Deleted"]) {
        if let Some(names) = by_status.get(status) {
            message = format!("{message}; {status}: {}", some(names));
        }
    }
    let leaving: Vec<&str> = plan
        .entries
        .iter()
        .map(|(it, _)| it)
        .filter(|it| it.deleting && plan.listed.contains(it.name.as_str()))
        .map(|it| it.name.as_str())
        .filter(|it| plan.state(it).is_some_and(|it| it.cluster.is_some()))
        .collect();
    if !leaving.is_empty() {
        message = format!("{message}; deletion was asked for: {}", some(&leaving));
    }
    for name in by_status.get("Broken by configuration").into_iter().flatten().take(MOST_TOLD) {
        let failure = plan.state(name).and_then(|it| it.failure.as_ref());
        if let Some(failure) = failure {
            message = format!("{message}; {name}: {}", failure.message);
        }
    }
    let unfit: Vec<(&str, &str)> = unfit(plan).collect();
    for (name, why) in unfit.iter().take(MOST_TOLD) {
        let why = shorten(why, LONGEST / 10);
        message = format!("{message}; {name}: its new patches cannot be applied: {why}");
    }
    let twice: Vec<&str> = plan.in_double_use().collect();
    if !twice.is_empty() {
        message = format!("{message}; in use by two clusters: {}", some(&twice));
    }
    for remark in pool.remarks.iter().chain(&plan.seen.remarks) {
        message = format!("{message}; {remark}");
    }
    let is_bad = bad.iter().any(|status| by_status.contains_key(status));
    if is_bad || !twice.is_empty() || !unfit.is_empty() {
        return Some(("False", "Invalid", message));
    }
    if is_short {
        return Some(("False", "TooFewEntries", message));
    }
    Some(("True", "Valid", message))
}

/// Listed entries that were edited while a cluster uses them, and cannot be used as they are now; and why.
fn unfit<'a>(plan: &Plan<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    plan.entries.iter().filter_map(|(it, _)| {
        let why = it.refused.as_deref()?;
        let state = plan.state(&it.name)?;
        let is_unfit =
            plan.listed.contains(it.name.as_str()) && state.status == EntryStatus::ToBeUpdated;
        is_unfit.then_some((it.name.as_str(), why))
    })
}

/// Entries that became unusable, clusters that cost an attempt, and those that go although they cost none.
pub(crate) fn events(plan: &mut Plan<'_>) {
    let mut events: Vec<(Reason, String, String)> = Vec::new();
    for State { name, before: old, now: entry } in &plan.inventory {
        let why = entry.failure.as_ref().map_or("", |it| it.message.as_str());
        let cluster = |it: &Entry| it.failure.clone().and_then(|it| it.cluster);
        if let Some(cluster) =
            cluster(entry).filter(|it| old.and_then(cluster).as_ref() != Some(it))
        {
            let left = entry.attempts.unwrap_or(0);
            let note = format!(
                "Cluster {cluster} of entry {name} failed, {left} attempts are left: {why}"
            );
            // Of the cluster: the next one's would be taken for the same, with a number that is not true any more.
            events.push((Reason::ProvisionStopped, cluster, note));
        }
        if old.is_some_and(|it| it.status == entry.status) {
            continue;
        }
        match entry.status {
            EntryStatus::BrokenByConfiguration => events.push((
                Reason::BrokenByConfiguration,
                (*name).to_owned(),
                format!("The patches of entry {name} cannot be applied: {why}"),
            )),
            EntryStatus::BrokenByCloud => events.push((
                Reason::BrokenByCloud,
                (*name).to_owned(),
                format!("Entry {name} is not used again before it is edited: {why}"),
            )),
            EntryStatus::Missing => events.push((
                Reason::EntryMissing,
                (*name).to_owned(),
                format!("There is no ClusterDeploymentCustomization {name}; create it or take it off the list"),
            )),
            _ => {}
        }
    }
    let broken = plan.seen.clusters.iter().filter(|it| it.is_broken() && it.claim.is_none());
    for cluster in broken.filter(|_| !plan.seen.pool.deleting) {
        let is_told = cluster.has_failed() && plan.entry_of(cluster).is_some();
        let goes = cluster.deleting || plan.gone.contains(cluster.name.as_str());
        if goes && !is_told {
            let why = cluster.stopped.as_deref().unwrap_or("it does not resume in time");
            let note = format!(
                "Cluster {}, which nobody has claimed, is broken and removed: {why}",
                cluster.name
            );
            events.push((Reason::ClusterBroken, cluster.name.clone(), note));
        }
    }
    for (reason, about, note) in events {
        plan.event(reason, &about, note);
    }
}
