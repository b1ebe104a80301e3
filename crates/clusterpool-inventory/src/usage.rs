//! The holder and the users of each entry, from the point of view of one pool. Computed once, before any rule runs.
//!
//! A lease is one conditional write of the customization's status that already names cluster and
//! pool. Until that cluster is there, the lease is either completed under the same name or
//! released in two writes: the first announces it, and the second is made only when the API
//! server, asked after the announcement, does not know the cluster. A cluster begins paused, and
//! its pause ends only when the API server, asked after its creation, shows the lease without such
//! an announcement. Of two that are at it at the same time, at least one sees the other.
//!
//! The lease of a cluster that is there is released only when nobody else keeps that cluster any
//! more, and before our own finalizer goes.

use std::collections::{BTreeMap, HashMap};

use api_types::hive::{EntryState, EntryStatus, LastFailure};
use api_types::reference::NamedRef;
use controller_kit::engine::Reason as _;
use controller_kit::events::shorten;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::reason::{Notice, Reason};
use crate::seen::{Cluster, Customization, Observed};
use crate::settings::Policy;

/// What is told of a failure at most, in bytes.
const LONGEST_FAILURE: usize = 1_000;
/// What is told of the failures of all entries at most: the API server stores no pool of more than 1.5 MiB, and refuses the whole
/// status then.
const ALL_FAILURES: usize = 256 << 10;

/// All entries of the pool's namespace, listed by the pool or not.
pub(crate) struct Uses<'a> {
    /// By their names.
    all: BTreeMap<&'a str, Use<'a>>,
    clusters: HashMap<&'a str, &'a Cluster>,
    /// Entries by their clusters, where only the lease names the cluster.
    unsaid: HashMap<&'a str, &'a str>,
}

/// An entry.
#[derive(Default)]
pub(crate) struct Use<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its customization, if that is there.
    pub(crate) customization: Option<&'a Customization>,
    /// The holder of its lease.
    pub(crate) held: Held<'a>,
    /// The pool's clusters that are there and were made from it, oldest first.
    pub(crate) users: Vec<&'a Cluster>,
    /// Whether the pool lists it.
    pub(crate) listed: bool,
    /// Whether our finalizer is on it, or the one that Hive's own controller puts there for the pool.
    pub(crate) kept: bool,
    /// Its state in the stored status.
    pub(crate) before: Option<&'a EntryState>,
    /// Its state in the new status.
    pub(crate) now: Option<EntryState>,
}

impl<'a> Uses<'a> {
    pub(crate) fn of(seen: &'a Observed, policy: &Policy, now: Timestamp) -> Self {
        let clusters = seen.clusters.iter().map(|it| (it.name.as_str(), it)).collect();
        let mut uses = Self { all: BTreeMap::new(), clusters, unsaid: HashMap::new() };
        for it in &seen.customizations {
            let held = held(it, seen, &uses.clusters);
            if let Held::Ours(cluster) = held
                && cluster.entry.is_none()
            {
                uses.unsaid.insert(&cluster.name, &it.name);
            }
            let entry = uses.named(&it.name);
            (entry.customization, entry.held) = (Some(it), held);
            entry.kept = it.kept || it.kept_by_hive;
        }
        for name in seen.pool.listed.names() {
            uses.named(name).listed = true;
        }
        for (name, before) in &seen.pool.status.inventory {
            uses.named(name).before = Some(before);
        }
        for cluster in &seen.clusters {
            if let Some(name) = uses.entry_of(cluster) {
                uses.named(name).users.push(cluster);
            }
        }
        for entry in uses.all.values_mut() {
            entry.users.sort_by_key(|it| (it.unverified, it.created, it.name.as_str()));
            entry.now = entry.state(seen, policy, now);
        }
        uses
    }

    fn named(&mut self, name: &'a str) -> &mut Use<'a> {
        self.all.entry(name).or_insert_with(|| Use { name, ..Use::default() })
    }

    /// An entry.
    pub(crate) fn get(&self, name: &str) -> Option<&Use<'a>> {
        self.all.get(name)
    }

    /// All entries whose customization exists.
    pub(crate) fn there(&self) -> impl Iterator<Item = (&Use<'a>, &'a Customization)> {
        self.all.values().filter_map(|it| Some((it, it.customization?)))
    }

    /// The new state of each entry that is listed or used.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&Use<'a>, &EntryState)> {
        self.all.values().filter_map(|it| Some((it, it.now.as_ref()?)))
    }

    /// A cluster of the pool.
    pub(crate) fn cluster(&self, name: &str) -> Option<&'a Cluster> {
        self.clusters.get(name).copied()
    }

    /// The entry that a cluster was made from: the one that it says, or the one whose lease says so where the reference to it
    /// was dropped.
    pub(crate) fn entry_of(&self, cluster: &'a Cluster) -> Option<&'a str> {
        let said = cluster.entry.as_deref();
        said.or_else(|| self.unsaid.get(cluster.name.as_str()).copied())
    }

    /// The entry that a cluster was made from, with its holder and users.
    pub(crate) fn by(&self, cluster: &'a Cluster) -> Option<&Use<'a>> {
        self.get(self.entry_of(cluster)?)
    }

    /// Leases of this pool whose clusters do not exist, with the names of these.
    pub(crate) fn halves(&self) -> impl Iterator<Item = (&Use<'a>, &'a Customization, &'a str)> {
        self.there().filter_map(|(it, customization)| match it.held {
            Held::Half(cluster) => Some((it, customization, cluster)),
            _ => None,
        })
    }
}

impl<'a> Use<'a> {
    /// The pool's clusters in it that are not being deleted.
    pub(crate) fn living(&self) -> impl Iterator<Item = &'a Cluster> {
        self.users.iter().copied().filter(|it| !it.deleting)
    }

    /// Whether a cluster of this pool occupies what the entry stands for.
    pub(crate) fn is_lived_in(&self) -> bool {
        self.users.iter().any(|it| it.is_live())
    }

    /// Whether more than one cluster lives in it, this pool's among them.
    pub(crate) fn is_in_double_use(&self) -> bool {
        let ours = self.living().filter(|it| !it.unverified).count();
        let others = self.customization.map_or(0, |it| it.others.len());
        ours > 0 && ours + others > 1
    }

    /// Whether it may be leased in this pass.
    pub(crate) fn is_usable(&self) -> bool {
        let is_available = |it: &EntryState| it.status == EntryStatus::Available;
        self.now.as_ref().is_some_and(is_available) && !self.is_lived_in()
    }

    /// Why no cluster came of it last, if it is so.
    pub(crate) fn failure(&self) -> Option<&LastFailure> {
        self.now.as_ref()?.last_failure.as_ref()
    }

    /// Whether a cluster has its lease.
    pub(crate) fn is_held_by(&self, cluster: &Cluster) -> bool {
        matches!(self.held, Held::Ours(holder) if holder.name == cluster.name)
    }

    /// Whether the failure of a cluster is in the stored status, so that the cluster may go.
    pub(crate) fn is_counted(&self, cluster: &str) -> bool {
        self.before.is_some_and(|it| it.counts(cluster))
    }

    /// The pool's cluster that has or is getting it: its name, and the cluster itself if that is there.
    fn user(&self) -> Option<(&'a str, Option<&'a Cluster>)> {
        match self.held {
            Held::Ours(cluster) => Some((&cluster.name, Some(cluster))),
            Held::Half(cluster) | Held::Unread(cluster) => Some((cluster, None)),
            _ => {
                let users = || self.users.iter().copied();
                // Hive has given the lease of one that only waits for us back, and its failure may not be counted yet.
                let failed = || users().find(|it| it.kept && it.has_failed());
                let first = users().find(|it| it.is_live()).or_else(failed)?;
                Some((&first.name, Some(first)))
            }
        }
    }

    /// Its new state, or nothing if it is neither listed nor used.
    ///
    /// The status is derived from what is there each time and never trusted by itself. What cannot be derived is kept in the
    /// pool's status: which version was last seen, how many failed provisions are left, and which cluster's failure was
    /// counted last.
    fn state(&self, seen: &Observed, policy: &Policy, now: Timestamp) -> Option<EntryState> {
        let (before, entry) = (self.before, self.customization);
        let (user, cluster) = self.user().unzip();
        let cluster = cluster.flatten();
        // An empty list is a mistake, so nothing counts as taken off it.
        let is_known = before.is_some() || !self.users.is_empty() || user.is_some();
        let listed = self.listed || seen.pool.listed.is_mistaken() && is_known;
        if !listed && user.is_none() {
            return None;
        }
        // A lease is taken and its cluster made at one version, which the cluster notes. A cluster
        // that another controller made has none: what was seen first counts as that.
        let present = entry.filter(|it| !it.deleting);
        let current = present.map(|it| it.version.as_str());
        let known = before.and_then(|it| it.version.as_deref());
        let is_same_user = user.is_none() || before.and_then(EntryState::cluster) == user;
        let of_user = known.filter(|_| is_same_user);
        let version = match cluster {
            Some(cluster) => cluster.entry_version.as_deref().or(of_user).or(current),
            // Of an entry that is gone what is known is kept: the same object may be seen again, and another has another uid.
            None => current.or(of_user),
        };
        // A cluster may be made before it is stored that the entry has attempts again.
        let is_renewed = version.is_some() && known.is_some() && known != version;
        let kept = before.filter(|_| !is_renewed && !self.forgets(user, now));
        let all_attempts = seen.pool.attempts.unwrap_or(policy.provision_attempts);
        let all_attempts = i32::try_from(all_attempts).unwrap_or(i32::MAX);
        let mut attempts = kept.and_then(|it| it.attempts).unwrap_or(all_attempts).max(0);
        let refused = present.and_then(|it| it.refused.as_deref());
        let is_taken = entry.is_some_and(|it| self.held != Held::Free || !it.others.is_empty());
        let status = match user {
            Some(_) if !listed => EntryStatus::ToBeDeleted,
            Some(_) if entry.is_none() => EntryStatus::Missing,
            Some(_) if current.is_none() || current == version => EntryStatus::Reserved,
            Some(_) => EntryStatus::ToBeUpdated,
            None if is_taken => EntryStatus::Unavailable,
            None if present.is_none() => EntryStatus::Missing,
            None if refused.is_some() => EntryStatus::BrokenByConfiguration,
            None if attempts == 0 => EntryStatus::BrokenByCloud,
            None => EntryStatus::Available,
        };
        let entries = seen.pool.listed.names().len().max(seen.pool.status.inventory.len());
        let longest = LONGEST_FAILURE.min(ALL_FAILURES / entries.max(1));
        let failed = |reason: &str, why: &str| LastFailure {
            reason: Some(reason.to_owned()),
            message: Some(shorten(why, longest)),
            time: Some(Time(now)),
            ..LastFailure::default()
        };
        // What was refused stays until it is tried again, also by another process, and what is gone cannot be tried.
        let is_half = user.is_some() && cluster.is_none();
        let stays = is_half || user.is_none() && present.is_none();
        let failure = kept.and_then(|it| it.last_failure.clone());
        let mut failure = failure.and_then(|it| if stays { Some(it) } else { counted(it) });
        let turned_down = seen.turned_down.get(self.name);
        let turned_down = turned_down.filter(|it| entry.is_some_and(|is| is.version == it.version));
        if let (EntryStatus::BrokenByConfiguration, Some(why)) = (&status, refused) {
            failure = Some(self.told(failed(Notice::BadPatch.as_str(), why), failure));
        } else if let Some(refusal) = turned_down
            && (is_half || status == EntryStatus::Available)
        {
            failure = Some(self.told(failed(Notice::Refused.as_str(), &refusal.why), failure));
        }
        if let Some(cluster) = cluster {
            let is_counted = kept.is_some_and(|it| it.counts(&cluster.name));
            if cluster.installed {
                (attempts, failure) = (all_attempts, None);
            } else if let (Some(why), false) = (&cluster.stopped, is_counted) {
                attempts = (attempts - 1).max(0);
                let of = Some(cluster.name.clone());
                let new = failed(Reason::ProvisionStopped.as_str(), why);
                failure = Some(LastFailure { cluster_deployment: of, ..new });
            }
        }
        // There may be more entries than when it was told.
        if let Some(message) = failure.as_mut().and_then(|it| it.message.as_mut()) {
            *message = shorten(message, longest);
        }
        // A cluster stands in the namespace of its name.
        let reference = |name: &str| {
            let (name, namespace) = (Some(name.to_owned()), Some(name.to_owned()));
            NamedRef { name, namespace, ..NamedRef::default() }
        };
        Some(EntryState {
            version: version.map(str::to_owned),
            status,
            attempts: Some(attempts),
            cluster_deployment_ref: user.map(reference),
            last_failure: failure,
            ..before.cloned().unwrap_or_default()
        })
    }

    /// Whether a person wants what failed to be forgotten: neither what failed since, nor what is still there.
    fn forgets(&self, user: Option<&str>, now: Timestamp) -> bool {
        let retry = self.customization.and_then(|it| it.retry);
        let (Some(since), Some(before)) = (retry, self.before) else { return false };
        let failed = before.last_failure.as_ref().and_then(|it| it.time.as_ref());
        // Each failure until a time that is still to come would be forgotten. One that is stamped with such a time was stamped by
        // a clock that was ahead, and would not be forgotten before it.
        since <= now
            && failed.is_none_or(|it| it.0 < since || it.0 > now)
            && !user.is_some_and(|it| before.counts(it))
    }

    /// A failure that costs no attempt, with the time at which it was reported first. It keeps the cluster of the one that was
    /// counted before: without that, all attempts would be back as soon as this one is over.
    fn told(&self, new: LastFailure, before: Option<LastFailure>) -> LastFailure {
        let known = self.before.and_then(|it| it.last_failure.as_ref());
        let known = known.filter(|it| it.reason == new.reason && it.message == new.message);
        let cluster_deployment = before.and_then(|it| it.cluster_deployment);
        LastFailure { cluster_deployment, ..known.cloned().unwrap_or(new) }
    }
}

/// The part of a stored failure that was counted, if one was. Its words are gone if another one was told since.
fn counted(failure: LastFailure) -> Option<LastFailure> {
    failure.cluster_deployment.as_ref()?;
    if !is_of(&failure, Notice::BadPatch) && !is_of(&failure, Notice::Refused) {
        return Some(failure);
    }
    let reason = Some(Reason::ProvisionStopped.as_str().to_owned());
    Some(LastFailure { reason, message: None, ..failure })
}

/// Whether a failure has this reason.
pub(crate) fn is_of(failure: &LastFailure, reason: Notice) -> bool {
    failure.reason.as_deref() == Some(reason.as_str())
}

/// Whether an entry's state says that this cluster, which uses it, goes.
pub(crate) fn gives_up(state: &EntryState, cluster: &Cluster) -> bool {
    matches!(state.status, EntryStatus::ToBeDeleted | EntryStatus::ToBeUpdated)
        && state.cluster() == Some(&cluster.name)
}

/// The holder of a customization's lease, from the point of view of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Held<'a> {
    /// No holder.
    #[default]
    Free,
    /// A cluster of this pool that was made from it, or may have been.
    Ours(&'a Cluster),
    /// This pool, for a cluster that is not there.
    Half(&'a str),
    /// This pool, for a cluster that is there and cannot be read: it keeps the entry, whoever has it.
    Unread(&'a str),
    /// This pool, for a cluster that was made from something else.
    Mistaken(&'a str),
    /// Unknown: the customization is in use, and no cluster is named.
    Torn,
    /// A deleted pool, for a cluster that does not exist as far as the caches show.
    Orphaned(&'a str),
    /// Another pool, or a cluster that is not this pool's.
    Others,
}

/// Reads a lease.
fn held<'a>(
    customization: &'a Customization,
    seen: &Observed,
    clusters: &HashMap<&str, &'a Cluster>,
) -> Held<'a> {
    let pool = seen.pool.name.as_str();
    let Some(lease) = &customization.lease else { return Held::Free };
    let Some(name) = lease.cluster.as_deref() else {
        let theirs = lease.pool_exists && lease.pool.as_deref().is_some_and(|it| it != pool);
        return if theirs { Held::Others } else { Held::Torn };
    };
    let cluster = clusters.get(name);
    // No other pool can have made it: whatever the lease says of a pool beside that is a mistake.
    let made = cluster.is_some_and(|it| is_made_from(it, customization, pool));
    let ours = made
        || match lease.pool.as_deref() {
            Some(holder) => holder == pool,
            None => cluster.is_some(),
        };
    // The cluster exists and has the entry, whoever made it.
    let is_anothers = || customization.others.iter().any(|it| it == name);
    let is_unread = || seen.unread.iter().any(|it| it == name);
    match cluster {
        _ if !ours => {
            let gone = !lease.pool_exists && !is_anothers() && !is_unread();
            if gone { Held::Orphaned(name) } else { Held::Others }
        }
        None if is_anothers() => Held::Others,
        None if is_unread() => Held::Unread(name),
        None => Held::Half(name),
        Some(cluster) if made => Held::Ours(cluster),
        Some(_) => Held::Mistaken(name),
    }
}

/// Whether the cluster is in the entry, as far as can be told. Where it names none, an old CRD dropped the reference, and the
/// lease alone knows: our finalizer is on no cluster without an entry, and a whole lease was written for this one.
fn is_made_from(cluster: &Cluster, customization: &Customization, pool: &str) -> bool {
    match &cluster.entry {
        Some(entry) => *entry == customization.name,
        None => cluster.kept || customization.is_whole(pool),
    }
}

impl Customization {
    /// Whether it says in full that it is in use by a cluster of this pool.
    pub(crate) fn is_whole(&self, pool: &str) -> bool {
        self.names_pool(pool) && self.lease.as_ref().is_some_and(|it| it.whole)
    }

    /// Whether its lease says that it is this pool's.
    pub(crate) fn names_pool(&self, pool: &str) -> bool {
        self.lease.as_ref().is_some_and(|it| it.pool.as_deref() == Some(pool))
    }

    /// Whether somebody announced to release it.
    pub fn is_announced(&self) -> bool {
        self.lease.as_ref().is_some_and(|it| it.releasing)
    }
}
