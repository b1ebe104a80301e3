//! Every sentence that a person reads.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use api_types::hive::{ClusterPoolSpec, EntryState, EntryStatus, Inventory};
use api_types::names::ferrite::{PROVISION_ATTEMPTS, RETRY};
use api_types::names::hive as names;
use controller_kit::engine::reasons::About;
use controller_kit::engine::{Error, Event, Reason as _};
use controller_kit::events::shorten;
use k8s_openapi::jiff::Timestamp;

use crate::decision::Step;
use crate::naming;
use crate::patch::{Note, Refusal};
use crate::plan::Plan;
use crate::reason::{Notice, Reason};
use crate::seen::{Claim, Cluster, Listed, Observed};
use crate::settings::allowed_attempts;
use crate::usage::Use;

/// What a condition says at most, in bytes: a status that is too large cannot be stored.
pub(crate) const LONGEST: usize = 10_000;

/// Status, reason and message of a condition.
pub(crate) type Said = (&'static str, Notice, String);

/// What is not there or cannot be used of all that the pool refers to.
pub(crate) fn missing(missing: &[String]) -> Said {
    if missing.is_empty() {
        return ("False", Notice::Verified, "Nothing is missing".to_owned());
    }
    ("True", Notice::Missing, missing.join("; "))
}

/// A reason and its sentence.
type Cause = (Notice, String);

/// Whether the pool can get what it wants. It waits for a person or a limit where it cannot: the reason is that of the first
/// cause, and the message has the sentences of all.
pub(crate) fn capacity(plan: &Plan<'_>) -> Said {
    let (seen, pool) = (plan.seen, &plan.seen.pool);
    // Nobody knows which entries there are.
    let unusable_list = inventory(plan).filter(|_| pool.listed.is_mistaken() && !pool.deleting);
    // Something is missing that each cluster needs. What a deleted pool refers to is not looked at.
    let lacks = !seen.missing.is_empty() && !pool.deleting;
    let lacks_dependency = lacks.then(|| missing(&seen.missing));
    let cause = |(_, reason, message): Said| (reason, message);
    let causes = [
        most(plan),
        unusable_list.map(cause),
        lacks_dependency.map(cause),
        refused_write(plan),
        not_begun(seen).filter(|_| !pool.deleting),
        limit(plan),
        no_free_entry(plan),
        // A deleted pool names them as what it waits for.
        spared(plan).filter(|_| !pool.deleting),
        unowned(seen),
    ];
    let causes: Vec<Cause> = causes.into_iter().flatten().collect();
    let Some((reason, _)) = causes.first() else {
        let awaited = keeping(plan, false).map(|it| format!(". {it}")).unwrap_or_default();
        return ("True", Notice::Available, format!("There is room{awaited}"));
    };
    let sentences: Vec<&str> = causes.iter().map(|(_, sentence)| sentence.as_str()).collect();
    ("False", *reason, sentences.join(". "))
}

/// A cause with those that it concerns, if there are any.
fn cause_of(reason: Notice, sentence: &str, names: &[&str]) -> Option<Cause> {
    (!names.is_empty()).then(|| (reason, format!("{sentence}: {}", some(names))))
}

/// The most clusters are there.
fn most(plan: &Plan<'_>) -> Option<Cause> {
    let all = plan.seen.there() + plan.uses.halves().count();
    let most = plan.seen.pool.max_size.filter(|most| all >= *most)?;
    let message = format!(
        "{all} of at most {most} clusters are there, claimed ones among them: to have more, raise spec.maxSize or delete \
         claims that nobody needs"
    );
    Some((Notice::MaxCapacity, message))
}

/// Something of what is to be written is refused. It is retried as long as there is work.
fn refused_write(plan: &Plan<'_>) -> Option<Cause> {
    let why = plan.seen.refused.as_ref().filter(|_| !plan.decision.work.is_empty())?;
    let why = shorten(why, LONGEST / 10);
    let message = format!(
        "Allow what is refused for this pool; it is retried, and event Refused has the last answer. The first one was: {why}"
    );
    Some((Notice::Refused, message))
}

/// The pool wants more clusters than there are entries for. Where one is just going, its entry will be free.
fn no_free_entry(plan: &Plan<'_>) -> Option<Cause> {
    if !lacks_entry(plan) || keeping(plan, false).is_some() {
        return None;
    }
    let hanging = keeping(plan, true).map(|it| format!(". {it}")).unwrap_or_default();
    let message = format!(
        "No listed entry is free for another cluster: list more, correct those that {} names, or delete claims that nobody \
         needs{hanging}",
        names::CONDITION_INVENTORY_VALID
    );
    Some((Notice::NoFreeEntry, message))
}

/// Whether the pool wants more clusters than there are, and no entry is free for one.
fn lacks_entry(plan: &Plan<'_>) -> bool {
    let (seen, pool) = (plan.seen, &plan.seen.pool);
    let there = seen.clusters.iter().filter(|it| it.is_unclaimed()).count();
    let is_free = |it: &EntryState| it.status == EntryStatus::Available;
    matches!(pool.listed, Listed::Entries(_))
        && !pool.deleting
        && there + plan.uses.halves().count() < plan.target()
        && !plan.uses.states().any(|(_, it)| is_free(it))
}

/// Clusters on their way out that keep the entries which a pool without a free one waits for: those that Hive takes down, or
/// those of which it says that it cannot.
fn keeping(plan: &Plan<'_>, hangs: bool) -> Option<String> {
    let is_listed = |it: &Cluster| plan.uses.by(it).is_some_and(|it| it.listed);
    let all = plan.seen.clusters.iter();
    let names = named(all.filter(|it| it.deleting && it.hangs == hangs && is_listed(it)));
    if names.is_empty() || !lacks_entry(plan) {
        return None;
    }
    let why = if hangs {
        "Hive cannot take down these, which keep their entries until they are gone"
    } else {
        "The entries of these are free as soon as they are gone"
    };
    Some(format!("{why}: {}", some(&names)))
}

/// What keeps clusters from being made and removed, if something does.
fn limit(plan: &Plan<'_>) -> Option<Cause> {
    let message = match plan.seen.pool.max_concurrent? {
        // A pool that is being deleted goes on one by one.
        0 if !plan.seen.pool.deleting => {
            "With a spec.maxConcurrent below 1 no cluster is made or removed: raise it".to_owned()
        }
        _ if plan.held_up => {
            let busy: Vec<&str> = plan.under_way().collect();
            let beside = if busy.is_empty() { "" } else { ": beside " };
            format!(
                "Wait or raise spec.maxConcurrent, which allows no more to be installed or removed at the same time{beside}{}",
                some(&busy)
            )
        }
        _ => return None,
    };
    Some((Notice::MaxConcurrent, message))
}

/// Clusters that a person forbade to delete.
fn spared(plan: &Plan<'_>) -> Option<Cause> {
    let spared: Vec<&str> = plan.spared.iter().copied().collect();
    let annotation = names::PROTECTED_DELETE;
    let sentence = format!("To be removed as soon as their annotation {annotation} is taken off");
    cause_of(Notice::ProtectedClusters, &sentence, &spared)
}

/// Which clusters are to be replaced, and what they wait for.
pub(crate) fn current(plan: &Plan<'_>) -> Said {
    let unclaimed = || plan.seen.clusters.iter().filter(|it| it.is_unclaimed());
    let kinds: Vec<u8> = unclaimed().filter_map(|it| plan.staleness(it)).collect();
    if kinds.is_empty() {
        let message = "Every unclaimed cluster is made from what pool and entries are now";
        return ("True", Notice::ClusterDeploymentsCurrent, message.to_owned());
    }
    let (status, reason, beginning) = if kinds.iter().all(|it| *it == 0) {
        let why = "Nobody noted what they are made from, so they are replaced one by one";
        ("Unknown", Notice::SomeClusterDeploymentsUnknown, why)
    } else {
        ("False", Notice::SomeClusterDeploymentsStale, "To be replaced one by one")
    };
    let is_stale = |it: &&Cluster| plan.staleness(it).is_some();
    let stale = || unclaimed().filter(is_stale);
    let stays = !plan.seen.pool.deleting && !plan.has_spare();
    let awaited = plan.awaited();
    let awaited = |it: &&Cluster| awaited.contains(it.name.as_str());
    let first = unclaimed().filter(|it| it.is_installing() && !is_stale(it));
    let mut message = format!("{beginning}: {}", some(&named(stale())));
    for (what, which) in [
        ("these have to be gone first", named(plan.leaving(false))),
        ("these have to be installed first", named(first)),
        ("Hive cannot take down", named(plan.leaving(true))),
        ("an annotation protects from deletion", named(stale().filter(|it| it.protected))),
        ("claims wait for", named(stale().filter(awaited))),
        (
            "no other one can be made in the place of",
            named(stale().filter(|it| stays && !plan.can_return(it))),
        ),
    ] {
        add(&mut message, what, &which);
    }
    (status, reason, message)
}

/// What a deleted pool waits for.
pub(crate) fn deletion(plan: &Plan<'_>) -> Said {
    let clusters = || plan.seen.clusters.iter();
    let unread: Vec<&str> = plan.seen.unread.iter().map(String::as_str).collect();
    let leased: Vec<&str> = plan.uses.halves().map(|(it, ..)| it.name).collect();
    let spaces = plan.seen.namespaces.iter().filter(|it| !it.deleting);
    let spaces: Vec<&str> = spaces.map(|it| it.name.as_str()).collect();
    let unfreed: Vec<&str> = unfreed(plan).collect();
    let there = [named(clusters()), unread.clone()].concat();
    if there.is_empty() {
        let none = "No cluster is left, but these";
        let left = [
            cause_of(Notice::LeasesPendingRelease, &format!("{none} are still leased"), &leased),
            cause_of(Notice::NamespacesPendingDeletion, &format!("{none} namespaces are"), &spaces),
            cause_of(
                Notice::LeasesPendingRelease,
                &format!("{none} customizations are still to be freed"),
                &unfreed,
            ),
        ];
        let Some((reason, message)) = left.into_iter().flatten().next() else {
            return ("True", Notice::DeletionPossible, "No cluster is left".to_owned());
        };
        return ("False", reason, format!("{message}. They go, unless event Refused says why not"));
    }
    let mut message = format!("Still there: {}", some(&there));
    let (given_back, protected) = (names::REMOVE_FROM_POOL, names::PROTECTED_DELETE);
    let claims = format!(
        "delete the claims of these, or annotate those that nobody uses with {given_back}=true"
    );
    let claimed = clusters().filter(|it| it.claim.is_some() && !it.marked && !it.deleting);
    add(&mut message, &claims, &named(claimed));
    let forbidden = format!("take annotation {protected} off these, which forbids to delete them");
    add(&mut message, &forbidden, &named(clusters().filter(|it| it.protected && !it.deleting)));
    add(&mut message, "Hive cannot take down", &named(clusters().filter(|it| it.hangs)));
    add(&mut message, "these cannot be read, so correct them", &unread);
    ("False", Notice::ClusterDeploymentsPendingCleanup, message)
}

/// Customizations that this pass takes our finalizer or a lease off. A webhook may refuse that, and the pool goes after it.
fn unfreed<'p>(plan: &'p Plan<'_>) -> impl Iterator<Item = &'p str> {
    plan.decision.work.iter().flat_map(|it| &it.steps).filter_map(|it| match it {
        Step::FreeEntry(entry) | Step::Release { entry, .. } => Some(entry.as_str()),
        _ => None,
    })
}

/// Clusters whose claims are not there or have another one. They may be in use all the same, so that only a person can
/// give them back.
fn unowned(seen: &Observed) -> Option<Cause> {
    let claims: HashMap<&str, &Claim> =
        seen.claims.iter().map(|it| (it.name.as_str(), it)).collect();
    let is_unowned = |it: &&Cluster| {
        let Some(claim) = it.claim.as_ref().filter(|_| !it.deleting && !it.marked) else {
            return false;
        };
        // A claim that cannot be read is there, and its user may be in the cluster.
        if seen.unread_claims.contains(claim) {
            return false;
        }
        claims.get(claim.as_str()).is_none_or(|claim| match &claim.cluster {
            Some(name) => *name != it.name,
            // A claim without a cluster is about to get the one that was given to it, and none of one before it.
            None => !it.was_given_to(claim),
        })
    };
    let sentence = format!(
        "Annotate those that nobody uses with {}=true, since their claims are gone or have another cluster",
        names::REMOVE_FROM_POOL
    );
    let unowned = named(seen.clusters.iter().filter(is_unowned));
    cause_of(Notice::UnownedClusters, &sentence, &unowned)
}

/// Clusters that Hive does not begin to install, in its own words. What was wrong in the template stays wrong in them.
fn not_begun(seen: &Observed) -> Option<Cause> {
    let told = |(place, (name, words)): (usize, (&String, &String))| {
        let words = Some(words).filter(|it| place < MOST_TOLD && !it.is_empty());
        words.map_or_else(|| name.clone(), |it| format!("{name} ({})", shorten(it, LONGEST / 10)))
    };
    let all = seen.clusters.iter().filter_map(|it| Some((&it.name, it.not_begun.as_ref()?)));
    let all: Vec<String> = all.enumerate().map(told).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let sentence = "Hive has not begun to install these, so put right what it says of them, and delete those that stay so";
    cause_of(Notice::NotBegun, sentence, &all)
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

/// What clusters are called.
fn named<'a>(clusters: impl Iterator<Item = &'a Cluster>) -> Vec<&'a str> {
    clusters.map(|it| it.name.as_str()).collect()
}

/// Adds to a message what holds for those of these names, where there are any.
fn add(message: &mut String, what: &str, names: &[&str]) {
    if !names.is_empty() {
        *message = format!("{message}; {what}: {}", some(names));
    }
}

/// How much of the inventory can be used, where there is one.
pub(crate) fn inventory(plan: &Plan<'_>) -> Option<Said> {
    let pool = &plan.seen.pool;
    match &pool.listed {
        Listed::Nothing if plan.uses.states().next().is_none() => return None,
        Listed::Empty => {
            let message = "spec.inventory lists nothing: list at least one customization, or remove \
                           it. Until then no cluster is made or removed";
            return Some(("False", Notice::Empty, message.to_owned()));
        }
        Listed::Unreadable(why) => {
            let message = format!("{why}. Until then no cluster is made or removed");
            return Some(("False", Notice::Unreadable, message));
        }
        Listed::Nothing | Listed::Entries(_) => {}
    }
    let of = |status: &EntryStatus| {
        let all = plan.uses.states().filter(|(_, now)| now.status == *status);
        all.map(|(it, _)| it.name).collect::<Vec<_>>()
    };
    let bad =
        [EntryStatus::BrokenByConfiguration, EntryStatus::BrokenByCloud, EntryStatus::Missing];
    let others = [EntryStatus::Unavailable, EntryStatus::ToBeUpdated, EntryStatus::ToBeDeleted];
    let is_bad = |now: &EntryState| bad.contains(&now.status);
    let listed = || plan.uses.states().filter(|(it, _)| it.listed);
    let is_usable = |now: &EntryState| !is_bad(now) && now.status != EntryStatus::Unavailable;
    let usable = listed().filter(|(_, now)| is_usable(now)).count();
    let is_short = usable < pool.size && pool.listed != Listed::Nothing && !pool.deleting;
    let mut message = if pool.listed == Listed::Nothing {
        "No entry is listed any more".to_owned()
    } else {
        format!("{usable} of {} entries for a size of {}", listed().count(), pool.size)
    };
    if is_short {
        message += ", which are too few: list more that can be used, or lower spec.size";
    }
    for status in bad.iter().chain(&others) {
        add(&mut message, status.as_str(), &of(status));
    }
    let is_leaving = |it: &Use<'_>| it.customization.is_some_and(|it| it.deleting);
    let leaving = listed().filter(|(it, now)| is_leaving(it) && now.cluster().is_some());
    let leaving: Vec<&str> = leaving.map(|(it, _)| it.name).collect();
    add(&mut message, "deletion was asked for", &leaving);
    // Unless those in use are told as well, the pool finds out as each of its claims ends.
    let unfit = listed().filter_map(|(it, _)| Some((it.name, it.customization?.refused.as_ref()?)));
    let unfit: Vec<(&str, &String)> = unfit.collect();
    for (name, why) in unfit.iter().take(MOST_TOLD) {
        let why = shorten(why, LONGEST / 10);
        message = format!("{message}; {name}: its patches cannot be applied: {why}");
    }
    let more: Vec<&str> = unfit.iter().map(|it| it.0).skip(MOST_TOLD).collect();
    add(&mut message, "nor can those of", &more);
    let twice: Vec<&str> =
        plan.uses.there().filter(|(it, _)| it.is_in_double_use()).map(|(it, _)| it.name).collect();
    add(&mut message, "in use by two clusters", &twice);
    for remark in &pool.remarks {
        message = format!("{message}; {remark}");
    }
    let has_bad = plan.uses.states().any(|(_, now)| is_bad(now));
    Some(if has_bad || !twice.is_empty() || !unfit.is_empty() {
        ("False", Notice::Invalid, message)
    } else if is_short {
        ("False", Notice::TooFewEntries, message)
    } else {
        ("True", Notice::Valid, message)
    })
}

/// What a pool says of its inventory and does not mean, in words for its condition.
pub fn remarks(spec: &ClusterPoolSpec, attempts: Option<&str>) -> Vec<String> {
    let mut seen = HashSet::new();
    let entries = spec.inventory.iter().flat_map(Inventory::entries);
    let twice: BTreeSet<&str> =
        entries.map(|it| it.name.as_str()).filter(|it| !seen.insert(*it)).collect();
    let mut remarks: Vec<String> =
        twice.into_iter().map(|it| format!("{it} is listed more than once")).collect();
    if let Some(wrong) = attempts.filter(|it| allowed_attempts(it).is_none()) {
        remarks.push(format!(
            "annotation {PROVISION_ATTEMPTS} is {wrong:?} and no number from 1 to {}, so it is not used",
            u32::MAX
        ));
    }
    let is_tried_once =
        spec.annotations.get(names::TRY_INSTALL_ONCE).is_some_and(|it| it == "true");
    if matches!(Listed::of(spec), Listed::Entries(_))
        && spec.install_attempts_limit.is_none()
        && !is_tried_once
    {
        remarks.push(
            "spec.installAttemptsLimit is not set, so Hive may try for ever to install a cluster and count none as failed: \
             set it, or no entry becomes Broken by cloud"
                .to_owned(),
        );
    }
    remarks
}

/// What a customization says of another try, and is no time.
pub(crate) fn wrong_retry(entry: &str, said: &str) -> String {
    format!(
        "annotation {RETRY} of {entry} is {said:?} and no time such as 2026-01-31T12:00:00Z, so it is not used"
    )
}

/// What a customization says of another try that is not to be yet.
pub(crate) fn early_retry(entry: &str, time: Timestamp) -> String {
    format!("annotation {RETRY} of {entry} is {time}, which is still to come, so it is used then")
}

/// What a customization says that nobody has.
pub(crate) const FREE: &str = "Free";

/// The same of one whose cluster is missing.
pub(crate) fn releasing(cluster: &str) -> String {
    format!("Cluster {cluster} is not there; about to be free again")
}

/// The same of one that a cluster has.
pub(crate) fn in_use(cluster: &str, pool: &str) -> String {
    format!("Currently in use by cluster deployment {cluster} of clusterpool {pool}")
}

/// Why a claim is pending.
pub(crate) fn pending(reason: Reason, pool: &str) -> String {
    let About { meaning, action, .. } = reason.about();
    format!("ClusterPool {pool}: {meaning} {action}").trim_end().to_owned()
}

/// Why nothing is done for a pool that Hive's own controller wrote to at this time.
pub(crate) fn contested(since: Timestamp, rest: Duration) -> String {
    format!(
        "Hive's own controller of pools wrote to this pool at {since}. Two must not run together: add \
         clusterpool to spec.disabledControllers of HiveConfig. Nothing is done until it was silent for {} minutes",
        rest.as_secs() / 60
    )
}

/// What `check` looks at beside the rest.
pub(crate) const HIVES_CONTROLLER: &str = "Hive's own controller of pools";
/// It is switched off.
pub(crate) const HIVES_IS_OFF: &str = "HiveConfig hive disables clusterpool";
/// It is not.
pub(crate) const HIVES_IS_ON: &str = "HiveConfig hive does not disable it, and two must not run together. Add clusterpool to \
     spec.disabledControllers of HiveConfig hive";
/// Nobody says.
pub(crate) const NO_HIVE_CONFIG: &str =
    "there is no HiveConfig hive. Make sure that Hive runs without its controller clusterpool";

/// It is not known.
pub(crate) fn hive_config_unread(why: &str) -> String {
    format!("HiveConfig hive cannot be read: {why}")
}

/// The cluster of the name that was chosen is somebody else's.
pub(crate) fn foreign(cluster: &str) -> String {
    format!(
        "{cluster} is there and not of this pool: delete it, or free the customization that names it"
    )
}

/// The namespace of the name that was chosen for a cluster is somebody else's.
pub(crate) fn name_taken(cluster: &str) -> String {
    format!("namespace {cluster} is there and not of this pool, so the cluster gets another name")
}

/// What stands in the namespace of the name that was chosen for a cluster is made from something else than the cluster is to be.
pub(crate) fn name_unusable(cluster: &str) -> String {
    format!(
        "what is in namespace {cluster} is of an earlier try and cannot be changed, so the cluster gets another name"
    )
}

/// The patches were accepted when they were tried, and are not with the cluster's own name.
pub(crate) fn not_patched(cluster: &str, why: &Refusal) -> String {
    format!("no install config can be made for cluster {cluster}: {why}")
}

/// Somebody does not want what is to be written for a pool.
pub(crate) fn refused(error: &Error) -> Event {
    let note = error.to_string();
    // It is tried again and again.
    let hourly = Some(u64::from(naming::hash(&note)));
    Event {
        hourly,
        ..Event::new(true, Notice::Refused.as_str(), &naming::action("Write", &note), &note)
    }
}

/// Patches of a customization were accepted, and mean something else in a pool than their author may think.
pub(crate) fn adjusted(pool: &str, notes: &[Note]) -> Event {
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    let note = format!("In pool {pool}: {}", notes.join("; "));
    Event::new(true, Notice::PatchAdjusted.as_str(), &naming::action("Patch", &note), &note)
}

/// A cluster could not be installed, which costs its entry an attempt.
pub(crate) fn failed(cluster: &str, entry: &str, left: i32, why: &str) -> String {
    format!("Cluster {cluster} of entry {entry} failed, {left} attempts are left: {why}")
}

/// The same once its own words had to give way to those of another failure.
pub(crate) fn stopped_before(cluster: &str) -> String {
    format!("Cluster {cluster} could not be installed")
}

/// An entry's patches cannot be applied.
pub(crate) fn unusable_patches(entry: &str, why: &str) -> String {
    format!("The patches of entry {entry} cannot be applied: {why}")
}

/// An entry's clusters failed too often.
pub(crate) fn broken_by_cloud(entry: &str, why: &str) -> String {
    format!(
        "Entry {entry} is not used again before it is edited, or annotated with {RETRY} and a later time: {why}"
    )
}

/// There is no such customization.
pub(crate) fn entry_missing(entry: &str) -> String {
    format!("There is no ClusterDeploymentCustomization {entry}; create it or take it off the list")
}

/// A cluster goes although it cost no attempt.
pub(crate) fn cluster_broken(cluster: &Cluster) -> String {
    let why = cluster.stopped.as_deref().unwrap_or("it does not resume in time");
    format!("Cluster {}, which nobody has claimed, is broken and removed: {why}", cluster.name)
}

/// An entry is in use by a cluster of this pool and by one of another.
pub(crate) fn used_by_others(entry: &str, cluster: &str, other: &str) -> String {
    format!(
        "Entry {entry} is in use by cluster {cluster} and by {other} of another pool; end one of them"
    )
}

/// A cluster that stays is in an entry that another one holds.
pub(crate) fn used_twice(entry: &str, claimed: &str) -> String {
    format!(
        "Entry {entry} is in use by claimed cluster {claimed} and by another one; end one of them"
    )
}
