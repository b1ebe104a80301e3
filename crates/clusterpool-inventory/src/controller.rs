//! Watches, who is concerned by a change, and one pass over one pool.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool, ClusterPoolSpec,
};
use api_types::names;
use controller_kit::backoff::{self, Class};
use controller_kit::watch::{self, Undecodable, Watched};
use controller_kit::{Kit, api_error, run};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::act::{Outcome, Pass, Piece};
use crate::config::Policy;
use crate::decide::decide;
use crate::decision::{Decision, Event, Reason, Step, Work};
use crate::echo::{Echo, Object};
use crate::error::Error;
use crate::index::{Index, Key, all_in};
use crate::inventory::Listed;
use crate::metrics::Metrics;
use crate::observe::{
    Known, Live, Materials, Stores, Trial, cached, is_one, leasing_pool, live_pool, materials,
    observe, pool_key,
};
use crate::seen::Observed;
use crate::{access, make};

/// A pass makes a handful of clusters; one that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(60);
/// How soon to look again after somebody else wrote first, at most.
const RETRY: Duration = Duration::from_millis(50);
/// How soon to look again when a namespace of before is still on its way out.
const LATER: Duration = Duration::from_secs(1);
/// The cache shows our own writes long before; its change wakes the pool.
const ECHO: Duration = Duration::from_millis(500);
/// For how long secrets and image sets count as just looked at.
const FRESH: Duration = Duration::from_secs(5);
/// How often a pool that lacks something is looked at, and one at rest.
const LACKING: Duration = Duration::from_secs(10);
const AT_REST: Duration = Duration::from_secs(300);
/// A pool that Hive's controller wrote to within this time is left to it.
const CONTESTED: Duration = Duration::from_secs(300);
/// Clusters that one pass begins: a claim that comes meanwhile waits for one pass.
const AT_ONCE: usize = 16;
/// How often objects that cannot be decoded are told.
const TICK: Duration = Duration::from_secs(10);

/// What every pass shares.
pub struct Context {
    kit: Kit,
    policy: Policy,
    metrics: Metrics,
    stores: Stores,
    index: Mutex<Index>,
    /// Every pool that there is or was, as long as something is left of it.
    known: Mutex<Writer<ClusterPool>>,
    pools: Store<ClusterPool>,
    wakes: UnboundedSender<Key>,
    echo: Echo,
    memory: Mutex<HashMap<Key, Memory>>,
    started: Timestamp,
}

/// What this process remembers of a pool. All of it can be forgotten: it saves requests.
#[derive(Clone, Default)]
struct Memory {
    looked: Option<(Instant, ClusterPoolSpec)>,
    materials: Arc<Materials>,
    rival: Option<Timestamp>,
    trials: HashMap<String, Trial>,
    told: BTreeSet<(Reason, String)>,
}

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let config = watcher::Config::default();
    let of_pools = watcher::Config::default().labels(names::hive::POOL_NAME);
    let pools: Watched<ClusterPool> = watch::namespaced(&kit, &config);
    let customizations: Watched<ClusterDeploymentCustomization> = watch::namespaced(&kit, &config);
    let claims: Watched<ClusterClaim> = watch::namespaced(&kit, &config);
    // Each cluster stands in a namespace of its own.
    let clusters: Watched<ClusterDeployment> = watch::everywhere(&kit, &config);
    let namespaces: Watched<Namespace> = watch::cluster(&kit, &of_pools);
    let bindings: Watched<RoleBinding> = watch::everywhere(&kit, &config);
    let broken =
        [pools.undecodable.clone(), customizations.undecodable.clone(), clusters.undecodable];
    let mut known = Writer::new(());
    for start in [watcher::Event::Init, watcher::Event::InitDone] {
        known.apply_watcher_event(&start);
    }
    let (wakes, mut woken) = mpsc::unbounded_channel();
    let context = Arc::new(Context {
        kit: kit.clone(),
        policy,
        metrics,
        stores: Stores {
            pools: pools.store,
            broken_pools: pools.undecodable,
            customizations: customizations.store,
            broken_customizations: customizations.undecodable,
            clusters: clusters.store,
            claims: claims.store,
            namespaces: namespaces.store,
            bindings: bindings.store,
        },
        index: Mutex::default(),
        pools: known.as_reader(),
        known: Mutex::new(known),
        wakes,
        echo: Echo::default(),
        memory: Mutex::default(),
        started: Timestamp::now(),
    });
    let woken = stream::poll_fn(move |polled| woken.poll_recv(polled))
        .map(|(namespace, name)| ObjectRef::new(&name).within(&namespace));
    let controller =
        Controller::for_stream(stream::pending(), context.pools.clone()).reconcile_on(woken);
    let feed = async {
        tokio::join!(
            noted(pools.changes, context.clone(), Context::pool_changed),
            noted(customizations.changes, context.clone(), Context::entry_changed),
            noted(clusters.changes, context.clone(), Context::cluster_changed),
            noted(claims.changes, context.clone(), Context::claim_changed),
            noted(namespaces.changes, context.clone(), Context::namespace_changed),
            noted(bindings.changes, context.clone(), Context::binding_changed),
        )
    };
    let drive = run::drive(&kit, controller, context.clone(), DEADLINE, pass, Error::class);
    tokio::select! {
        () = drive => Ok(()),
        _ = feed => Err("A watch ended".to_owned()),
        never = tell(&context, &broken) => match never {},
    }
}

/// Takes notice of all changes of a kind.
async fn noted<K>(
    changes: BoxStream<'static, Result<K, watcher::Error>>,
    context: Arc<Context>,
    note: fn(&Context, &K),
) {
    let noting = changes.for_each(move |change| {
        if let Ok(object) = change {
            note(&context, &object);
        }
        std::future::ready(())
    });
    noting.await;
}

/// Tells the owners of objects that cannot be decoded.
async fn tell(context: &Context, broken: &[Undecodable]) -> std::convert::Infallible {
    let mut told: HashMap<String, Option<String>> = HashMap::new();
    loop {
        tokio::time::sleep(TICK).await;
        if !context.kit.may_act() {
            continue;
        }
        for it in broken.iter().flat_map(Undecodable::all) {
            let uid = it.object.uid.clone().unwrap_or_default();
            let version = it.object.resource_version.clone();
            if told.insert(uid, version.clone()) != Some(version) {
                let note = format!("It is left out until this is corrected: {}", it.problem);
                context.kit.events.warning(&it.object, "Undecodable", "Decode", &note).await;
            }
        }
    }
}

fn key_of(object: &impl kube::Resource) -> Key {
    let meta = object.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

impl Context {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has these pools looked at, also those that are gone. Clusters are seen everywhere: a pool of another process'
    /// namespaces is not gone because it is not seen here.
    fn wake(&self, pools: impl IntoIterator<Item = Key>) {
        let ours = &self.kit.config.namespaces;
        for key in pools.into_iter().filter(|it| ours.is_empty() || ours.contains(&it.0)) {
            let reference = ObjectRef::new(&key.1).within(&key.0);
            if self.pools.get(&reference).is_none() {
                let stub = ClusterPool::new(&key.0, &key.1, ClusterPoolSpec::default());
                self.change_known(&watcher::Event::Apply(stub));
            }
            // Nobody listens any more only when the process ends.
            let _ = self.wakes.send(key);
        }
    }

    fn forget(&self, key: &Key) {
        let stub = ClusterPool::new(&key.0, &key.1, ClusterPoolSpec::default());
        self.change_known(&watcher::Event::Delete(stub));
        self.memory().remove(key);
        self.metrics.gone(key);
    }

    fn change_known(&self, event: &watcher::Event<ClusterPool>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.apply_watcher_event(event);
    }

    fn pool_changed(&self, changed: &ClusterPool) {
        let key = key_of(changed);
        let now = cached(&self.stores.pools, &key);
        let mut index = self.index();
        let was_there = index.pools.of(&all_in(&key.0)).any(|it| *it == key);
        index.pools.put(&key, now.iter().map(|_| all_in(&key.0)));
        let listed = now.as_ref().map(|it| Listed::of(&it.spec)).unwrap_or_default();
        let entries = listed.names().iter().map(|name| (key.0.clone(), name.clone()));
        let touched = index.lists.put(&key, entries);
        let mut concerned: BTreeSet<Key> =
            touched.iter().flat_map(|entry| index.lists.of(entry)).cloned().collect();
        // Whether a pool is there decides about the leases that name it.
        if was_there != now.is_some() {
            concerned.extend(index.pools.of(&all_in(&key.0)).cloned());
        }
        concerned.insert(key);
        drop(index);
        self.wake(concerned);
    }

    fn entry_changed(&self, changed: &ClusterDeploymentCustomization) {
        let key = key_of(changed);
        let now = cached(&self.stores.customizations, &key);
        let mut index = self.index();
        index.customizations.put(&key, now.iter().map(|_| all_in(&key.0)));
        let holder = now.as_ref().and_then(|it| leasing_pool(it).map(str::to_owned));
        let holders = index.leases.put(&key, holder.map(|it| (key.0.clone(), it)));
        let mut concerned: BTreeSet<Key> = index.lists.of(&key).cloned().collect();
        concerned.extend(holders);
        let users = index.users.of(&key).filter_map(|it| cached(&self.stores.clusters, it));
        concerned.extend(users.filter_map(|it| pool_key(&it)).filter(|it| it.0 == key.0));
        // One that nobody needs and that has our finalizer is let go in the name of no pool.
        let kept = now
            .is_some_and(|it| it.finalizers().iter().any(|it| it == names::hive::LEASE_FINALIZER));
        if concerned.is_empty() && kept {
            concerned.extend(index.pools.of(&all_in(&key.0)).next().cloned());
            if concerned.is_empty() {
                concerned.insert(all_in(&key.0));
            }
        }
        drop(index);
        self.wake(concerned);
    }

    fn cluster_changed(&self, changed: &ClusterDeployment) {
        let key = key_of(changed);
        let now = cached(&self.stores.clusters, &key);
        let pool = now.as_ref().and_then(|it| pool_key(it));
        let entry = now.as_ref().and_then(|it| {
            let reference = it.spec.cluster_pool_ref.as_ref()?;
            Some((reference.namespace.clone(), reference.customization_name()?.to_owned()))
        });
        let own = pool.filter(|_| now.as_ref().is_some_and(|it| is_one(it)));
        let mut index = self.index();
        let mut concerned = index.clusters.put(&key, own);
        for entry in index.users.put(&key, entry) {
            concerned.extend(index.lists.of(&entry).cloned());
        }
        drop(index);
        self.wake(concerned);
    }

    fn claim_changed(&self, changed: &ClusterClaim) {
        let key = key_of(changed);
        let now = cached(&self.stores.claims, &key);
        let pool = now.map(|it| (key.0.clone(), it.spec.cluster_pool_name.clone()));
        let concerned = self.index().claims.put(&key, pool);
        // A claim on a pool that never was is not a pool that is gone.
        let is_there = |key: &Key| cached(&self.stores.pools, key).is_some();
        self.wake(concerned.into_iter().filter(is_there));
    }

    fn namespace_changed(&self, changed: &Namespace) {
        let key = key_of(changed);
        let now = cached(&self.stores.namespaces, &key);
        let pool = now.and_then(|it| {
            let (namespace, name) =
                make::pool_of(it.annotations().get(names::ferrite::POOL_OWNER)?)?;
            Some((namespace.to_owned(), name.to_owned()))
        });
        let concerned = self.index().namespaces.put(&key, pool);
        self.wake(concerned);
    }

    fn binding_changed(&self, changed: &RoleBinding) {
        let key = key_of(changed);
        let now = cached(&self.stores.bindings, &key);
        let is_admins = now.is_some_and(|it| access::is_admins(&it));
        let mut index = self.index();
        let touched = index.admins.put(&key, is_admins.then(|| all_in(&key.0)));
        let mut concerned: Vec<Key> = Vec::new();
        for namespace in touched {
            concerned.extend(index.pools.of(&namespace).cloned());
        }
        drop(index);
        self.wake(concerned);
    }

    /// Whether a pool is ours to decide about.
    fn is_ours(&self, key: &Key, pool: &ClusterPool) -> bool {
        let used =
            || {
                let index = self.index();
                index.clusters.of(key).filter_map(|it| cached(&self.stores.clusters, it)).any(
                    |it| it.finalizers().iter().any(|it| it == names::hive::INVENTORY_FINALIZER),
                )
            };
        self.policy.all_pools
            || Listed::of(&pool.spec) != Listed::Nothing
            || pool.status.as_ref().is_some_and(|it| !it.inventory.is_empty())
            || used()
    }

    fn is_behind(&self, key: &Key) -> bool {
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
        })
    }

    /// Looks at what the pool refers to, unless that was just done.
    async fn look(&self, key: &Key, pool: &ClusterPool) -> Result<(), Error> {
        let fresh = self.memory().get(key).is_some_and(|it| {
            it.looked
                .as_ref()
                .is_some_and(|(when, spec)| when.elapsed() < FRESH && *spec == pool.spec)
        });
        if fresh {
            return Ok(());
        }
        let client = &self.kit.client;
        let found = materials(client, pool, &self.stores.customizations).await?;
        let live = live_pool(client, key).await?;
        let mut memory = self.memory();
        let known = memory.entry(key.clone()).or_default();
        known.looked = Some((Instant::now(), pool.spec.clone()));
        known.materials = Arc::new(found);
        known.rival = live.rival;
        Ok(())
    }

    /// Why Hive's controller counts as working on the pool, and for how long that will be so.
    fn rival(&self, since: Option<Timestamp>, now: Timestamp) -> Option<(String, Duration)> {
        let since = since.filter(|it| *it >= self.started)?;
        let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let left = CONTESTED.checked_sub(passed).filter(|it| !it.is_zero())?;
        let note = format!(
            "Hive's own controller of pools wrote to this pool at {since}. Two must not run together: set \
             spec.disabledControllers of HiveConfig to [clusterpool]. Nothing is done until it was silent for {} minutes",
            CONTESTED.as_secs() / 60
        );
        Some((note, left))
    }
}

/// Spread, or those who met once meet again.
fn soon(wait: Duration) -> Action {
    Action::requeue(wait.mul_f64(0.3 + 0.7 * backoff::random_unit()))
}

/// One pass over a pool, which may be gone.
async fn pass(stub: Arc<ClusterPool>, context: Arc<Context>) -> Result<Action, Error> {
    let key = key_of(&*stub);
    if context.stores.broken_pools.get(Some(&key.0), &key.1).is_some() {
        return Ok(Action::await_change());
    }
    if context.is_behind(&key) {
        return Ok(Action::requeue(ECHO));
    }
    let pool = cached(&context.stores.pools, &key);
    if let Some(pool) = &pool {
        if !context.is_ours(&key, pool) {
            return Ok(Action::await_change());
        }
        context.look(&key, pool).await?;
    }
    let now = Timestamp::now();
    let remembered = context.memory().get(&key).cloned().unwrap_or_default();
    let rival = context.rival(remembered.rival, now);
    let mut trials = remembered.trials.clone();
    let known = Known {
        policy: &context.policy,
        materials: &remembered.materials,
        rival: rival.as_ref().map(|(note, _)| note.clone()),
        now,
    };
    let (seen, due) = observe(&context.stores, &context.index(), &key, &known, &mut trials);
    let decision = decide(&seen, &context.policy, now);
    if pool.is_some() {
        context.metrics.seen(&key, &seen);
        if let Some(memory) = context.memory().get_mut(&key) {
            memory.trials.clone_from(&trials);
        }
    } else if decision.work.is_empty() && is_nothing(&seen, &key) {
        context.forget(&key);
        return Ok(Action::await_change());
    }
    tracing::debug!(
        object.namespace = key.0,
        object.name = key.1,
        work = ?decision.work,
        "Decided"
    );
    let acting = Acting { context: &context, key: &key, pool: pool.as_deref(), seen: &seen };
    let mut outcome = acting.carry_out(&decision, &remembered, now).await?;
    let rest = if seen.missing.is_empty() { AT_REST } else { LACKING };
    let waits = [decision.again, due, rival.map(|(_, left)| left)];
    let wait = waits.into_iter().flatten().min();
    if pool.is_some() {
        outcome.wait = outcome.wait.or(Some(rest));
    }
    let wait = [outcome.wait, wait].into_iter().flatten().min();
    if outcome.superseded {
        context.metrics.superseded();
        return Ok(soon(if outcome.not_yet { LATER } else { RETRY }));
    }
    Ok(wait.map_or_else(Action::await_change, Action::requeue))
}

/// Whether nothing is left of a pool that is gone.
fn is_nothing(seen: &Observed, key: &Key) -> bool {
    let leased = seen.customizations.iter().any(|it| {
        it.lease.as_ref().is_some_and(|lease| lease.pool.as_deref() == Some(key.1.as_str()))
    });
    seen.clusters.is_empty() && seen.namespaces.is_empty() && !leased
}

#[derive(Default)]
struct Carried {
    superseded: bool,
    not_yet: bool,
    wait: Option<Duration>,
}

struct Acting<'a> {
    context: &'a Context,
    key: &'a Key,
    pool: Option<&'a ClusterPool>,
    seen: &'a Observed,
}

impl Acting<'_> {
    async fn carry_out(
        &self,
        decision: &Decision,
        remembered: &Memory,
        now: Timestamp,
    ) -> Result<Carried, Error> {
        let context = self.context;
        let mut carried = Carried::default();
        let bindings = self.bindings();
        if decision.work.is_empty() && decision.status.is_none() && bindings.is_empty() {
            self.publish(&decision.events).await;
            return Ok(carried);
        }
        if !decision.work.is_empty() && !self.is_as_seen(&mut carried).await? {
            return Ok(carried);
        }
        let pass = Pass {
            client: context.kit.client.clone(),
            stores: &context.stores,
            key: self.key,
            pool: self.pool,
            materials: &remembered.materials,
            policy: &context.policy,
        };
        let pass = &pass;
        let work = first_of(&decision.work, &mut carried);
        let pieces: Vec<_> = work.into_iter().map(|work| piece_of(pass, work)).collect();
        let mut pieces = std::pin::pin!(stream::iter(pieces).buffered(AT_ONCE));
        let mut failed = None;
        while let Some((work, result, piece)) = pieces.next().await {
            context.echo.wrote(self.key, piece.wrote);
            match result {
                Ok(Outcome::Done) => self.done(work, now),
                Ok(other) => {
                    tracing::debug!(work = ?work, "Superseded");
                    carried.superseded = true;
                    carried.not_yet |= other == Outcome::NotYet;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        for (cluster, change) in &bindings {
            carried.superseded |= pass.bind(cluster, change).await? == Outcome::Superseded;
        }
        if let Some(status) = &decision.status
            && !pool_was_written(&decision.work)
        {
            let mut piece = Piece::default();
            if pass.store(status, &mut piece).await? == Outcome::Done {
                context.echo.wrote(self.key, piece.wrote);
                self.publish(&decision.events).await;
                self.publish_notes(status, remembered).await;
            } else {
                carried.superseded = true;
            }
        } else if decision.status.is_none() {
            self.publish(&decision.events).await;
        }
        match failed {
            None => Ok(carried),
            Some(error) => {
                if error.class() == Class::Invalid
                    && let (Some(pool), Error::Api { source, .. }) = (self.pool, &error)
                {
                    let note = api_error::explain(source);
                    let reference = pool.object_ref(&());
                    context.kit.events.warning(&reference, "Refused", "Write", &note).await;
                }
                Err(error)
            }
        }
    }

    /// A last look before anything is written: the pool is the one that was decided about, and nobody else's.
    async fn is_as_seen(&self, carried: &mut Carried) -> Result<bool, Error> {
        let context = self.context;
        let live = live_pool(&context.kit.client, self.key).await?;
        let seen = Live {
            uid: self.pool.and_then(|it| it.uid()),
            deleting: self.pool.is_some_and(|it| it.metadata.deletion_timestamp.is_some()),
            rival: live.rival,
        };
        if live != seen {
            carried.superseded = true;
            return Ok(false);
        }
        if context.rival(live.rival, Timestamp::now()).is_some() {
            if let Some(memory) = context.memory().get_mut(self.key) {
                memory.rival = live.rival;
            }
            carried.wait = Some(Duration::ZERO);
            return Ok(false);
        }
        Ok(true)
    }

    fn done(&self, work: &Work, now: Timestamp) {
        let metrics = &self.context.metrics;
        metrics.worked(work.reason);
        for step in &work.steps {
            if let Step::Assign { claim, .. } = step
                && let Some(claim) = self.seen.claims.iter().find(|it| it.name == *claim)
            {
                metrics.claimed(now.duration_since(claim.created).as_secs_f64());
            }
        }
    }

    /// What the pool's administrators may do in the namespaces of its clusters.
    fn bindings(&self) -> Vec<(String, access::Change)> {
        if self.pool.is_none() || self.seen.pool.rival.is_some() {
            return Vec::new();
        }
        let stores = &self.context.stores;
        let index = self.context.index();
        let of_pool: Vec<_> = index
            .admins
            .of(&all_in(&self.key.0))
            .filter_map(|it| cached(&stores.bindings, it))
            .collect();
        drop(index);
        let wanted = access::subjects(of_pool.iter().map(|it| &**it));
        let clusters = self.seen.clusters.iter().filter(|it| !it.deleting);
        clusters
            .filter_map(|it| {
                let key = (it.name.clone(), names::hive::POOL_ADMIN_BINDING.to_owned());
                let change = access::change(&wanted, cached(&stores.bindings, &key).as_deref())?;
                Some((it.name.clone(), change))
            })
            .collect()
    }

    async fn publish(&self, events: &[Event]) {
        let Some(pool) = self.pool else { return };
        let now: BTreeSet<(Reason, String)> =
            events.iter().map(|it| (it.reason, it.note.clone())).collect();
        let news: Vec<(Reason, String)> = {
            let mut memory = self.context.memory();
            let Some(known) = memory.get_mut(self.key) else { return };
            let news = now.difference(&known.told).cloned().collect();
            known.told = now;
            news
        };
        for (reason, note) in news {
            let reference = pool.object_ref(&());
            self.context.kit.events.warning(&reference, reason.as_str(), "Decide", &note).await;
        }
    }

    /// Patches that were accepted and mean something else than their author may think, once for each version of them.
    /// On the customization, since a pool's events of one reason would be taken for one.
    async fn publish_notes(&self, status: &crate::seen::Status, remembered: &Memory) {
        let before = &self.seen.pool.status.inventory;
        let trials = {
            let memory = self.context.memory();
            memory.get(self.key).map(|it| it.trials.clone())
        };
        let trials = trials.unwrap_or_else(|| remembered.trials.clone());
        for (name, entry) in &status.inventory {
            let same = before.get(name).is_some_and(|it| it.version == entry.version);
            let Some(trial) = trials.get(name).filter(|it| !same && !it.notes.is_empty()) else {
                continue;
            };
            let key = (self.key.0.clone(), name.clone());
            let Some(found) = cached(&self.context.stores.customizations, &key) else { continue };
            let reference: ObjectReference = found.object_ref(&());
            let note = format!("In pool {}: {}", self.key.1, trial.notes.join("; "));
            self.context.kit.events.warning(&reference, "PatchAdjusted", "Patch", &note).await;
        }
    }
}

async fn piece_of<'a>(
    pass: &Pass<'_>,
    work: &'a Work,
) -> (&'a Work, Result<Outcome, Error>, Piece) {
    let mut piece = Piece::default();
    let result = pass.carry_out(work, &mut piece).await;
    (work, result, piece)
}

/// A write to the pool moves its version, which the status insists on; the next pass stores it.
fn pool_was_written(work: &[Work]) -> bool {
    work.iter()
        .flat_map(|it| &it.steps)
        .any(|it| matches!(it, Step::KeepPool { .. } | Step::LetPoolGo { .. }))
}

/// The work of one pass: all of it, but not more new clusters than one pass makes.
fn first_of<'a>(work: &'a [Work], carried: &mut Carried) -> Vec<&'a Work> {
    let mut begun = 0;
    let mut taken = Vec::new();
    for it in work {
        let makes = it.steps.iter().any(|step| matches!(step, Step::Create { .. }));
        begun += usize::from(makes);
        if makes && begun > AT_ONCE {
            carried.wait = Some(Duration::ZERO);
            continue;
        }
        taken.push(it);
    }
    taken
}
