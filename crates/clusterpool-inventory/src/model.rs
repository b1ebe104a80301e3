//! The data of a pass: its observation, its write, and the memory that it leaves to the next pass. Read this file first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::hive::ClusterPool;
use api_types::names;
use api_types::time::until;
use controller_kit::engine::Echoes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::access::Change;
use crate::decision::Decision;
/// The key of a pass: a pool, also a deleted one. A key without a name stands for the entries of a namespace that no pool has.
pub use crate::index::Key;
use crate::make::Materials;
use crate::seen::{Observed, Refusal};

/// For how long a look at secrets and image sets counts, and a pass begins work on it.
pub(crate) const LOOK_COUNTS: Duration = Duration::from_secs(5);
/// For how long a live look at the pool counts: one with many entries takes the API server longer to read than a lease to
/// write.
const LIVE_COUNTS: Duration = Duration::from_secs(1);
/// How soon to look again for what ends by itself: caches that are behind our writes, a namespace of before that is on its way
/// out.
pub(crate) const SETTLING: Duration = Duration::from_secs(1);
/// A pool that Hive's controller wrote to within this time is left to it.
pub const CONTESTED: Duration = Duration::from_secs(300);

/// The observation of a pass.
#[derive(Debug)]
pub enum Seen {
    /// The caches do not show the writes of the last pass yet.
    Behind,
    /// A pool with its dependencies.
    Pool(Box<Look>),
}

/// A pool with its dependencies, and the versions on which its writes insist.
#[derive(Debug)]
pub struct Look {
    /// The data that the rules read.
    pub seen: Observed,
    /// The pool; none if it does not exist any more.
    pub pool: Option<Arc<ClusterPool>>,
    /// Template, secrets and other objects that its clusters are made of.
    pub materials: Arc<Materials>,
    /// Role bindings of its administrators to write in the namespaces of its clusters.
    pub bindings: Vec<(String, Change)>,
    /// When to observe again: some objects are not watched, and some facts change with time alone.
    pub wait: Option<Duration>,
    /// The time of the observation.
    pub at: Timestamp,
}

/// The write of a pass: work and status, which do not depend on each other.
pub type Write = Decision;

/// The memory of a pool between two passes. A process can lose all of it: it only saves requests, and trust in clocks.
#[derive(Debug, Default, PartialEq)]
pub struct Memory {
    /// The last live read of the pool and of the objects that it refers to.
    pub looked: Option<Looked>,
    /// The objects that its clusters are made of, as that read found them.
    pub materials: Arc<Materials>,
    /// The last live read of the pool alone, and its time.
    pub live: Option<(Instant, LivePool)>,
    /// The last write of Hive's own controller that a live read has shown, if one has, and until when the pool is left to it.
    pub contest: Option<(Option<Timestamp>, Instant)>,
    /// Facts that the caches do not show a second time.
    pub learned: Learned,
    /// Attempts for its clusters that did not succeed yet.
    pub efforts: Efforts,
    /// Writes that the caches do not show yet.
    pub echoes: Echoes<Object>,
    /// Since when a new status waits to be stored.
    pub news_since: Option<Instant>,
}

/// What came of trying a customization's patches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The version of the customization.
    pub version: String,
    /// What they were applied to.
    pub template: String,
    /// Why they cannot be used, if they cannot.
    pub refused: Option<String>,
}

/// Facts that the caches do not show a second time. Each pass reads everything else again.
#[derive(Debug, Default, PartialEq)]
pub struct Learned {
    /// The results of trying patches, by customization.
    pub trials: BTreeMap<String, Trial>,
    /// Clusters that a pass has seen, as long as they or their namespaces exist.
    pub met: BTreeSet<String>,
    /// Clusters that resume: since when by Hive's stamp, and since when this process has seen that. By the stamp and the
    /// clock alone, a clock that jumps ahead would have all of them removed.
    pub resuming: BTreeMap<String, (Timestamp, Instant)>,
}

/// Attempts for clusters that did not succeed yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Efforts {
    /// Clusters without an entry that were begun and not seen yet: a later pass completes what a refusal left of one.
    pub begun: BTreeSet<String>,
    /// Names for clusters whose namespaces belong to another owner.
    pub taken: BTreeSet<String>,
    /// Entries whose clusters the API server or a webhook refused.
    pub turned_down: BTreeMap<String, Refusal>,
    /// The first refusal since a pass without one. Later answers may differ in names and numbers, and each change of the
    /// status would cause another attempt.
    pub refused: Option<String>,
    /// Whether nobody answered a write of the last pass.
    pub unanswered: bool,
    /// When the parts of clusters that Hive does not begin to install were made again.
    pub tended: BTreeMap<String, Timestamp>,
}

/// An object that was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A pool.
    Pool(Key),
    /// A cluster.
    Cluster(Key),
    /// A customization.
    Customization(Key),
    /// A claim.
    Claim(Key),
    /// A cluster's namespace.
    Namespace(Key),
}

/// The identity of a pool and the version of its spec. Changes of status, finalizers and annotations leave it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    uid: Option<String>,
    generation: Option<i64>,
    deleting: bool,
}

impl Wish {
    /// Reads it from the metadata; it is empty for a pool that does not exist.
    pub fn of(pool: Option<&ObjectMeta>) -> Self {
        pool.map_or_else(Self::default, |it| Self {
            uid: it.uid.clone(),
            generation: it.generation,
            deleting: it.deletion_timestamp.is_some(),
        })
    }
}

/// A live read of a pool and of the objects that it refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct Looked {
    when: Instant,
    wish: Wish,
    /// The resourceVersion of the pool then, or the one that our own write made of it.
    pub version: Option<String>,
}

impl Looked {
    /// A read at this moment.
    pub fn at(pool: &ClusterPool) -> Self {
        Self {
            when: Instant::now(),
            wish: Wish::of(Some(&pool.metadata)),
            version: pool.metadata.resource_version.clone(),
        }
    }

    /// How long the read still counts, if it does.
    pub fn left(&self, pool: &ClusterPool) -> Option<Duration> {
        let is_same = self.wish == Wish::of(Some(&pool.metadata));
        let left = LOOK_COUNTS.checked_sub(self.when.elapsed());
        left.filter(|left| is_same && !left.is_zero())
    }
}

/// The pool as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LivePool {
    wish: Wish,
    /// When Hive's own controller of pools wrote last.
    pub rival: Option<Timestamp>,
}

impl LivePool {
    /// Reads it from the metadata.
    pub fn of(found: &ObjectMeta) -> Self {
        let managers = found.managed_fields.iter().flatten();
        let rival = managers
            .filter(|it| it.manager.as_deref() == Some(names::hive::POOL_CONTROLLER))
            .filter_map(|it| it.time.as_ref().map(|time| time.0))
            .max();
        Self { wish: Wish::of(Some(found)), rival }
    }

    /// Whether the decision was about this pool and this spec: a cache may be far behind.
    pub fn is_as_seen(&self, pool: Option<&ClusterPool>) -> bool {
        self.wish == Wish::of(pool.map(|it| &it.metadata))
    }
}

impl Efforts {
    /// Forgets attempts that the observation shows to be over.
    pub fn forget_ended(&mut self, seen: &Observed) {
        // Those with a cluster are not among them.
        self.begun.retain(|it| seen.namespaces.iter().any(|left| left.name == *it));
        let (waiting, mut tended) = (seen.clusters.iter(), std::mem::take(&mut self.tended));
        let waiting = waiting.filter(|it| it.is_installing());
        self.tended = waiting.filter_map(|it| tended.remove_entry(&it.name)).collect();
    }
}

impl Memory {
    /// When Hive's own controller last wrote to the pool, and for how long the pool is still left to it. A write counts from the
    /// moment at which it is seen: the API server stamps it, and for a pod whose clock is minutes ahead of that it would be long
    /// over. Only the first one that is seen may be older than the process, and there the clocks have to do.
    pub fn contest(
        &mut self,
        started: Timestamp,
        now: Timestamp,
        at: Instant,
    ) -> Option<(Timestamp, Duration)> {
        let stamp = self.live.as_ref()?.1.rival;
        let known = self.contest;
        if known.is_none_or(|(newest, _)| stamp > newest) {
            let age = match stamp {
                _ if known.is_some() => Duration::ZERO,
                Some(stamp) if stamp >= started => until(stamp, now),
                _ => CONTESTED,
            };
            self.contest = Some((stamp, at + CONTESTED.saturating_sub(age)));
        }
        let (stamp, end) = self.contest?;
        let left = end.saturating_duration_since(at);
        stamp.filter(|_| !left.is_zero()).map(|it| (it, left))
    }

    /// The last live read of the pool, if it is recent enough to rely on.
    pub fn told_just_now(&self) -> Option<&LivePool> {
        let (asked, live) = self.live.as_ref()?;
        (asked.elapsed() < LIVE_COUNTS).then_some(live)
    }

    /// Takes notice of our own write, which moved the pool from version `before` to `after`.
    pub fn pool_was_written(&mut self, before: Option<&str>, after: Option<&str>) {
        if let Some(looked) = self.looked.as_mut().filter(|it| it.version.as_deref() == before) {
            looked.version = after.map(str::to_owned);
        }
    }
}

#[cfg(test)]
mod tests {
    use api_types::hive::ClusterPoolSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_look_counts_for_a_while_and_for_the_pool_as_it_was() {
        let mut pool = ClusterPool::new("ns", "pool", ClusterPoolSpec::default());
        pool.metadata.generation = Some(1);
        let mut looked = Looked::at(&pool);
        assert!(looked.left(&pool).is_some_and(|it| it <= LOOK_COUNTS));
        // Whoever wrote to it: that is looked at later.
        pool.metadata.resource_version = Some("2".to_owned());
        assert!(looked.left(&pool).is_some() && looked.version != pool.metadata.resource_version);
        pool.metadata.generation = Some(2);
        assert_eq!(looked.left(&pool), None);
        pool.metadata.generation = Some(1);
        looked.when = Instant::now().checked_sub(LOOK_COUNTS).unwrap();
        assert_eq!(looked.left(&pool), None);
    }

    #[test]
    fn a_write_of_hives_controller_counts_from_when_it_is_seen_whatever_the_clock_says() {
        let (start, second) = (Instant::now(), |it| Timestamp::from_second(it).unwrap());
        let left = |memory: &mut Memory, stamp: Option<i64>, now: i64, passed: u64| {
            let live = LivePool { rival: stamp.map(second), ..LivePool::default() };
            memory.live = Some((start, live));
            let at = start + Duration::from_secs(passed);
            memory.contest(second(600), second(now), at).map(|(_, left)| left.as_secs())
        };
        // Ten minutes ahead of the API server.
        for before in [None, Some(5)] {
            let memory = &mut Memory::default();
            assert_eq!(left(memory, before, 610, 10), None);
            assert_eq!(left(memory, Some(20), 620, 20), Some(300));
            assert_eq!(left(memory, Some(20), 740, 140), Some(180));
            assert_eq!(left(memory, Some(20), 920, 320), None);
            assert_eq!(left(memory, Some(330), 930, 330), Some(300));
        }
        // Behind it, or set back.
        let memory = &mut Memory::default();
        assert_eq!(left(memory, Some(900), 600, 0), Some(300));
        assert_eq!(left(memory, Some(900), 600, 300), None);
        // What is seen first may be of long ago, or of before the process.
        assert_eq!(left(&mut Memory::default(), Some(700), 760, 160), Some(240));
        assert_eq!(left(&mut Memory::default(), Some(700), 1_000, 400), None);
        assert_eq!(left(&mut Memory::default(), Some(599), 601, 1), None);
    }

    #[test]
    fn nothing_is_done_for_a_pool_that_is_another_one_by_now_or_wants_something_else() {
        let of = |changed: &[(&str, serde_json::Value)]| -> ObjectMeta {
            let mut it =
                json!({ "name": "pool", "uid": "u", "generation": 3, "resourceVersion": "7" });
            for (field, value) in changed {
                it[*field] = value.clone();
            }
            serde_json::from_value(it).unwrap()
        };
        let mut pool = ClusterPool::new("ns", "pool", ClusterPoolSpec::default());
        pool.metadata = of(&[]);
        let is_as_seen = |changed: &[_]| LivePool::of(&of(changed)).is_as_seen(Some(&pool));
        assert!(is_as_seen(&[]) && LivePool::default().is_as_seen(None));
        // A status, or a finalizer.
        assert!(is_as_seen(&[("resourceVersion", json!("8"))]));
        assert!(!is_as_seen(&[("generation", json!(4))]));
        assert!(!is_as_seen(&[("uid", json!("v"))]));
        assert!(!is_as_seen(&[("deletionTimestamp", json!("2026-01-01T00:00:00Z"))]));
        assert!(
            !LivePool::default().is_as_seen(Some(&pool))
                && !LivePool::of(&of(&[])).is_as_seen(None)
        );
    }
}
