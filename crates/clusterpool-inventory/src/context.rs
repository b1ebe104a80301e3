//! What every pass shares.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api_types::capi::is_watched;
use api_types::hive::{ClusterPool, ClusterPoolSpec};
use api_types::time::until;
use controller_kit::Kit;
use controller_kit::wakes::Wakes;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use tokio::sync::mpsc::UnboundedSender;

use crate::decision::Event;
use crate::echo::{Echo, Object, Wrote};
use crate::error::Error;
use crate::index::{Index, Key};
use crate::metrics::Metrics;
use crate::observe::{Last, Live, Materials, Stores, cached, live_pool, materials};
use crate::seen::{Listed, Refusal};
use crate::settings::Policy;

/// For how long secrets and image sets count as just looked at.
const FRESH: Duration = Duration::from_secs(5);
/// For how long a live look at the pool counts: one with many entries takes the API server longer to read than a lease to
/// write.
const JUST_NOW: Duration = Duration::from_secs(1);
/// A pool that Hive's controller wrote to within this time is left to it.
const CONTESTED: Duration = Duration::from_secs(300);

pub(crate) struct Context {
    pub(crate) kit: Kit,
    pub(crate) policy: Policy,
    pub(crate) metrics: Metrics,
    pub(crate) stores: Stores,
    pub(crate) index: Mutex<Index>,
    /// Every pool that there is or was, as long as something is left of it.
    pub(crate) known: Mutex<Writer<ClusterPool>>,
    pub(crate) pools: Store<ClusterPool>,
    pub(crate) wakes: Wakes,
    pub(crate) warnings: UnboundedSender<Warning>,
    pub(crate) echo: Echo,
    pub(crate) memory: Mutex<HashMap<Key, Memory>>,
    pub(crate) started: Timestamp,
}

/// An event that is to be published. A large pool has many at once, and they are not to hold up its clusters.
pub(crate) struct Warning {
    pub(crate) about: ObjectReference,
    pub(crate) reason: &'static str,
    pub(crate) action: String,
    pub(crate) note: String,
}

/// What this process remembers of a pool. All of it can be forgotten: it saves requests.
#[derive(Default)]
pub(crate) struct Memory {
    /// When the pool and what it refers to were looked at.
    looked: Option<Looked>,
    pub(crate) materials: Arc<Materials>,
    pub(crate) rival: Option<Timestamp>,
    /// The pool as the API server itself told last.
    live: Option<(Instant, Live)>,
    pub(crate) last: Last,
    pub(crate) told: BTreeSet<Event>,
    /// Clusters without an entry that were begun and not seen yet: what is left of one that was refused is gone on with.
    pub(crate) begun: BTreeSet<String>,
    /// Names for clusters whose namespaces are somebody else's.
    pub(crate) taken: BTreeSet<String>,
    /// Entries whose clusters somebody refused.
    pub(crate) turned_down: BTreeMap<String, Refusal>,
    /// When clusters that Hive does not begin to install were looked after.
    pub(crate) tended: BTreeMap<String, Timestamp>,
    /// Since when a status that is news waits for the work of the pool.
    held_back: Option<Instant>,
    /// When the status was stored last.
    stored: Option<Instant>,
    /// How often in a row somebody else wrote first.
    superseded: u32,
}

/// A look at a pool and what it refers to.
struct Looked {
    when: Instant,
    uid: Option<String>,
    generation: Option<i64>,
    /// Its resourceVersion then, or the one that our own writes made of that.
    version: Option<String>,
}

impl Looked {
    fn at(pool: &ClusterPool) -> Self {
        Self {
            when: Instant::now(),
            uid: pool.metadata.uid.clone(),
            generation: pool.metadata.generation,
            version: pool.metadata.resource_version.clone(),
        }
    }

    /// For how long it still counts as just done, if it does.
    fn left(&self, pool: &ClusterPool) -> Option<Duration> {
        let is_same = self.uid == pool.metadata.uid && self.generation == pool.metadata.generation;
        FRESH.checked_sub(self.when.elapsed()).filter(|left| is_same && !left.is_zero())
    }
}

/// What one pass needs of a [`Memory`].
#[derive(Default)]
pub(crate) struct Recalled {
    pub(crate) materials: Arc<Materials>,
    pub(crate) rival: Option<Timestamp>,
    pub(crate) begun: BTreeSet<String>,
    pub(crate) taken: BTreeSet<String>,
    pub(crate) turned_down: BTreeMap<String, Refusal>,
    pub(crate) tended: BTreeMap<String, Timestamp>,
    pub(crate) last: Last,
}

pub(crate) fn key_of(object: &impl kube::Resource) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

impl Context {
    /// Publishes a warning, when those before it are.
    pub(crate) fn tell(
        &self,
        about: ObjectReference,
        reason: &'static str,
        action: String,
        note: String,
    ) {
        // Nobody listens any more only when the process ends.
        let _ = self.warnings.send(Warning { about, reason, action, note });
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a pass needs of the memory. `last` is moved out; the pass puts it back.
    pub(crate) fn recall(&self, key: &Key) -> Recalled {
        let mut all = self.memory();
        let Some(known) = all.get_mut(key) else { return Recalled::default() };
        Recalled {
            materials: known.materials.clone(),
            rival: known.rival,
            begun: known.begun.clone(),
            taken: known.taken.clone(),
            turned_down: known.turned_down.clone(),
            tended: known.tended.clone(),
            last: std::mem::take(&mut known.last),
        }
    }

    /// For how long a status that is news has waited, from now on if it did not wait before.
    pub(crate) fn status_waits(&self, key: &Key) -> Duration {
        let mut all = self.memory();
        let known = all.entry(key.clone()).or_default();
        known.held_back.get_or_insert_with(Instant::now).elapsed()
    }

    /// How long ago this process stored the status.
    pub(crate) fn status_age(&self, key: &Key) -> Option<Duration> {
        self.memory().get(key)?.stored.map(|it| it.elapsed())
    }

    pub(crate) fn status_is_fresh(&self, key: &Key) {
        if let Some(known) = self.memory().get_mut(key) {
            known.stored = Some(Instant::now());
        }
    }

    pub(crate) fn status_stored(&self, key: &Key) {
        if let Some(known) = self.memory().get_mut(key) {
            known.held_back = None;
        }
    }

    /// Somebody else wrote first; how often in a row that was so before.
    pub(crate) fn superseded(&self, key: &Key) -> u32 {
        let mut all = self.memory();
        let known = all.entry(key.clone()).or_default();
        known.superseded = known.superseded.saturating_add(1);
        known.superseded - 1
    }

    pub(crate) fn not_superseded(&self, key: &Key) {
        if let Some(known) = self.memory().get_mut(key) {
            known.superseded = 0;
        }
    }

    /// Has these pools looked at, also those that are gone. Clusters are seen everywhere: a pool of another process'
    /// namespaces is not gone because it is not seen here.
    pub(crate) fn wake(&self, pools: impl IntoIterator<Item = Key>) {
        let ours = &self.kit.config.namespaces;
        for key in pools.into_iter().filter(|it| ours.is_empty() || ours.contains(&it.0)) {
            let reference = ObjectRef::new(&key.1).within(&key.0);
            if self.pools.get(&reference).is_none() {
                let stub = ClusterPool::new(&key.0, &key.1, ClusterPoolSpec::default());
                self.change_known(&watcher::Event::Apply(stub));
            }
            self.wakes.send(&key.0, [key.1]);
        }
    }

    pub(crate) fn forget(&self, key: &Key) {
        let stub = ClusterPool::new(&key.0, &key.1, ClusterPoolSpec::default());
        self.change_known(&watcher::Event::Delete(stub));
        self.memory().remove(key);
        self.metrics.gone(key);
        // One that came meanwhile took the stub for its own.
        if cached(&self.stores.pools, key).is_some() {
            self.wake([key.clone()]);
        }
    }

    fn change_known(&self, event: &watcher::Event<ClusterPool>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.apply_watcher_event(event);
    }

    /// Whether a pool is ours to decide about, or what is left of one that is gone.
    pub(crate) fn is_ours(&self, key: &Key, pool: Option<&ClusterPool>) -> bool {
        let filter = self.kit.config.watch_filter.as_deref();
        if pool.is_some_and(|it| !is_watched(&it.metadata, filter)) {
            return false;
        }
        let has_inventory = |it: &ClusterPool| {
            Listed::of(&it.spec) != Listed::Nothing
                || it.status.as_ref().is_some_and(|it| !it.inventory.is_empty())
        };
        self.policy.all_pools
            || pool.is_some_and(has_inventory)
            || self.index().has_of_ours(key, pool)
    }

    pub(crate) fn is_behind(&self, key: &Key) -> bool {
        fn version<K>(store: &Store<K>, key: &Key) -> Option<u64>
        where
            K: kube::Resource<DynamicType = ()> + Clone + 'static,
        {
            cached(store, key)?.resource_version()?.parse().ok()
        }
        self.echo.is_behind(key, |object| match object {
            Object::Pool(key) => version(&self.stores.pools, key),
            Object::Cluster(key) => version(&self.stores.clusters, key),
            Object::Customization(key) => version(&self.stores.customizations, key),
            Object::Claim(key) => version(&self.stores.claims, key),
            Object::Namespace(key) => version(&self.stores.namespaces, key),
        })
    }

    /// Looks at the pool and what it refers to, unless that was just done. When to look again, where somebody wrote to the
    /// pool since: it may have been Hive's own controller.
    pub(crate) async fn look(
        &self,
        key: &Key,
        pool: &ClusterPool,
    ) -> Result<Option<Duration>, Error> {
        let fresh = self.memory().get(key).and_then(|it| {
            let looked = it.looked.as_ref()?;
            let left = looked.left(pool)?;
            Some((looked.version != pool.metadata.resource_version).then_some(left))
        });
        if let Some(again) = fresh {
            return Ok(again);
        }
        let client = &self.kit.client;
        // Nothing is made any more for a pool that is being deleted, and what it refers to may go before it.
        let found = if pool.metadata.deletion_timestamp.is_none() {
            Some(materials(client, pool, &self.stores.customizations).await)
        } else {
            None
        };
        let live = self.live(key).await?;
        let mut memory = self.memory();
        let known = memory.entry(key.clone()).or_default();
        known.looked = Some(Looked::at(pool));
        if let Some(found) = found {
            known.materials = Arc::new(found);
        }
        known.rival = live.rival;
        Ok(None)
    }

    /// Notes our own writes for a pool, which was at this version before them.
    pub(crate) fn wrote(&self, key: &Key, before: Option<&str>, writes: Vec<Wrote>) {
        let of_pool = writes.iter().find(|it| matches!(it.object, Object::Pool(_)));
        if let Some(wrote) = of_pool
            && let Some(looked) = self.memory().get_mut(key).and_then(|it| it.looked.as_mut())
            && looked.version.as_deref() == before
        {
            looked.version = Some(wrote.version.to_string());
        }
        self.echo.wrote(key, writes);
    }

    /// Asks for a pool.
    pub(crate) async fn live(&self, key: &Key) -> Result<Live, Error> {
        let asked = Instant::now();
        let live = live_pool(&self.kit.client, key).await?;
        if let Some(known) = self.memory().get_mut(key) {
            known.live = Some((asked, live.clone()));
        }
        Ok(live)
    }

    /// What was told of a pool just now.
    pub(crate) fn told_just_now(&self, key: &Key) -> Option<Live> {
        let memory = self.memory();
        let (asked, live) = memory.get(key)?.live.as_ref()?;
        (asked.elapsed() < JUST_NOW).then(|| live.clone())
    }

    /// Why Hive's controller counts as working on the pool, and for how long that will be so.
    pub(crate) fn rival(
        &self,
        since: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<(String, Duration)> {
        let since = since.filter(|it| *it >= self.started)?;
        let left = CONTESTED.checked_sub(until(since, now)).filter(|it| !it.is_zero())?;
        let note = format!(
            "Hive's own controller of pools wrote to this pool at {since}. Two must not run together: add \
             clusterpool to spec.disabledControllers of HiveConfig. Nothing is done until it was silent for {} minutes",
            CONTESTED.as_secs() / 60
        );
        Some((note, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_counts_for_a_while_and_for_the_pool_as_it_was() {
        let mut pool = ClusterPool::new("ns", "pool", ClusterPoolSpec::default());
        pool.metadata.generation = Some(1);
        let mut looked = Looked::at(&pool);
        assert!(looked.left(&pool).is_some_and(|it| it <= FRESH));
        // Whoever wrote to it: that is looked at later.
        pool.metadata.resource_version = Some("2".to_owned());
        assert!(looked.left(&pool).is_some() && looked.version != pool.metadata.resource_version);
        pool.metadata.generation = Some(2);
        assert_eq!(looked.left(&pool), None);
        pool.metadata.generation = Some(1);
        looked.when = Instant::now().checked_sub(FRESH).unwrap();
        assert_eq!(looked.left(&pool), None);
    }
}
