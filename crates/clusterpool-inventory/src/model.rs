//! What the passes are about: what one sees, what it writes, and what it tells the next. The page to read first.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::hive::ClusterPool;
use api_types::names;
use controller_kit::engine::Echoes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::access::Change;
use crate::decision::Decision;
/// What one pass is about: a pool, also one that is gone; with no name, what is nobody's in a namespace.
pub use crate::index::Key;
use crate::make::Materials;
use crate::seen::{Observed, Refusal};
use crate::trial::Trial;

/// For how long a look at secrets and image sets counts.
const LOOK_COUNTS: Duration = Duration::from_secs(5);
/// For how long a live look at the pool counts: one with many entries takes the API server longer to read than a lease to
/// write.
const LIVE_COUNTS: Duration = Duration::from_secs(1);

/// What a pass sees.
#[derive(Debug)]
pub enum Seen {
    /// The caches do not show yet what the last pass wrote.
    Behind,
    /// A pool, with all that it depends on.
    Pool(Box<Look>),
}

/// A pool and all that it depends on, with what its writes insist on.
#[derive(Debug)]
pub struct Look {
    /// What decisions are made of.
    pub seen: Observed,
    /// The pool; none if it is gone.
    pub pool: Option<Arc<ClusterPool>>,
    /// What its clusters are made of.
    pub materials: Arc<Materials>,
    /// What is due about its administrators in the namespaces of clusters.
    pub bindings: Vec<(String, Change)>,
    /// Whether there is something to tell of patches that were accepted.
    pub has_notes: bool,
    /// When to look again at what is not watched, or changes by itself.
    pub wait: Option<Duration>,
    /// When all of it was read.
    pub at: Timestamp,
}

/// What a pass writes: work and status, which do not depend on each other, and what follows from the look.
pub type Write = Decision;

/// What this process remembers of a pool between two passes. All of it can be forgotten: it saves requests.
#[derive(Debug, Default, PartialEq)]
pub struct Memory {
    /// When the pool and what it refers to were looked at.
    pub looked: Option<Looked>,
    /// What its clusters are made of.
    pub materials: Arc<Materials>,
    /// The pool as the API server itself told last, and when it was asked.
    pub live: Option<(Instant, LivePool)>,
    /// What was learned by looking.
    pub learned: Learned,
    /// What was tried for its clusters.
    pub efforts: Efforts,
    /// What was written and is not seen yet.
    pub echoes: Echoes<Object>,
    /// Since when the status is news.
    pub news_since: Option<Instant>,
}

/// What looks at the caches learn and later ones cannot see. All else is read anew each time.
#[derive(Debug, Default, PartialEq)]
pub struct Learned {
    /// The patches that were tried, by customization.
    pub trials: BTreeMap<String, Trial>,
    /// Clusters that were seen, as long as they or their namespaces are there.
    pub met: BTreeSet<String>,
}

/// What was tried for clusters, and did not succeed yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Efforts {
    /// Clusters without an entry that were begun and not seen yet: what is left of one that was refused is gone on with.
    pub begun: BTreeSet<String>,
    /// Names for clusters whose namespaces are somebody else's.
    pub taken: BTreeSet<String>,
    /// Entries whose clusters somebody refused.
    pub turned_down: BTreeMap<String, Refusal>,
    /// Why the first of the passes of which each was refused something was: the answers may differ in names and numbers, and
    /// each change of the status would be another reason to ask.
    pub refused: Option<String>,
    /// When clusters that Hive does not begin to install were looked after.
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

/// Which pool it is, and what is wanted of it: the same as long as only its status, finalizers and notes change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    uid: Option<String>,
    generation: Option<i64>,
    deleting: bool,
}

impl Wish {
    /// What its metadata say; nothing is wanted of one that is gone.
    pub fn of(pool: Option<&ObjectMeta>) -> Self {
        pool.map_or_else(Self::default, |it| Self {
            uid: it.uid.clone(),
            generation: it.generation,
            deleting: it.deletion_timestamp.is_some(),
        })
    }
}

/// A look at a pool and what it refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct Looked {
    when: Instant,
    wish: Wish,
    /// Its resourceVersion then, or the one that our own writes made of that.
    pub version: Option<String>,
}

impl Looked {
    /// It was looked at just now.
    pub fn at(pool: &ClusterPool) -> Self {
        Self {
            when: Instant::now(),
            wish: Wish::of(Some(&pool.metadata)),
            version: pool.metadata.resource_version.clone(),
        }
    }

    /// For how long it still counts as just done, if it does.
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
    /// What its metadata say.
    pub fn of(found: &ObjectMeta) -> Self {
        let managers = found.managed_fields.iter().flatten();
        let rival = managers
            .filter(|it| it.manager.as_deref() == Some(names::hive::POOL_CONTROLLER))
            .filter_map(|it| it.time.as_ref().map(|time| time.0))
            .max();
        Self { wish: Wish::of(Some(found)), rival }
    }

    /// Whether it is the pool that was decided about and wants what that wanted: a cache may be far behind.
    pub fn is_as_seen(&self, pool: Option<&ClusterPool>) -> bool {
        self.wish == Wish::of(pool.map(|it| &it.metadata))
    }
}

impl Efforts {
    /// Forgets what is seen to be over.
    pub fn forget_ended(&mut self, seen: &Observed) {
        // Those with a cluster are not among them.
        self.begun.retain(|it| seen.namespaces.iter().any(|left| left.name == *it));
        if !self.tended.is_empty() {
            let waiting = seen.clusters.iter().filter(|it| it.is_installing());
            let waiting: HashSet<&str> = waiting.map(|it| it.name.as_str()).collect();
            self.tended.retain(|name, _| waiting.contains(name.as_str()));
        }
    }
}

impl Memory {
    /// When Hive's own controller last wrote to the pool, as far as is known.
    pub fn rival(&self) -> Option<Timestamp> {
        self.live.as_ref()?.1.rival
    }

    /// What was told of the pool just now.
    pub fn told_just_now(&self) -> Option<&LivePool> {
        let (asked, live) = self.live.as_ref()?;
        (asked.elapsed() < LIVE_COUNTS).then_some(live)
    }

    /// The pool was at `before`, and our own write made `after` of that.
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
