//! One watch per kind and namespace feeds a store and says what changed.
//!
//! An object that cannot be decoded does not stop the watch: it is left out of the store, logged
//! once per version, counted, and listed for whoever wants to tell the object's owner.
//! Only what the type names is kept in memory, and never `managedFields`.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::stream::{BoxStream, SelectAll, iter, pending};
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use kube::api::Api;
use kube::core::DynamicResourceScope;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;

use crate::api_error;
use crate::engine::ObjectKey;
use crate::guarded::Guarded;
use crate::kit::Kit;
use crate::unread::{Broken, Undecodable};

/// A kind that is watched.
pub struct Watched<K>
where
    K: Resource<DynamicType: Eq + Hash + Clone> + Clone + 'static,
{
    /// What was last seen, a hint: it is behind the writes of everybody, also our own.
    pub store: Store<K>,
    /// Objects that appeared, changed or went. The store is fed only while this is polled: hand it to [`feed`].
    pub changes: BoxStream<'static, K>,
    /// Objects that are left out of the store.
    pub undecodable: Undecodable,
    pub(crate) version: K::DynamicType,
}

/// Keeps a store fed, and tells of each change. Ends with the watch.
pub async fn feed<K>(mut changes: BoxStream<'static, K>, mut tell: impl FnMut(&K)) {
    while let Some(changed) = changes.next().await {
        tell(&changed);
    }
}

/// Objects of a list that are fetched at once, far fewer than usual: a page is in memory as a whole while it is decoded, and
/// the holes that large ones leave between what stays are never filled again.
const PAGE: u32 = 50;

/// What tells the versions of a kind apart; `()` where there is one.
pub trait Version: Clone + Debug + Eq + Hash + Send + Sync + Unpin + 'static {}

impl<V: Clone + Debug + Eq + Hash + Send + Sync + Unpin + 'static> Version for V {}

/// A type of which objects can be watched.
pub trait Watchable:
    Resource<DynamicType: Version> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType: Version> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// Watches a namespaced kind where `--namespaces` says.
pub fn namespaced<K>(kit: &Kit, config: &watcher::Config) -> Watched<K>
where
    K: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let one = |namespace: &str| Api::namespaced(kit.client.clone(), namespace);
    stored(kit, of_each(kit, one, &()), config, ())
}

/// Watches a namespaced kind in the version that the API server serves, where that differs between clusters.
pub fn namespaced_in<K, V>(kit: &Kit, config: &watcher::Config, version: &V) -> Watched<K>
where
    K: Watchable + Resource<DynamicType = V, Scope = DynamicResourceScope>,
    V: Version,
{
    let one = |namespace: &str| Api::namespaced_with(kit.client.clone(), namespace, version);
    stored(kit, of_each(kit, one, version), config, version.clone())
}

/// Watches a namespaced kind in all namespaces, whatever `--namespaces` says: for what is made for objects of those
/// namespaces and stands elsewhere.
pub fn everywhere<K>(kit: &Kit, config: &watcher::Config) -> Watched<K>
where
    K: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    stored(kit, vec![(None, Api::all(kit.client.clone()))], config, ())
}

/// Watches a cluster-wide kind.
pub fn cluster<K>(kit: &Kit, config: &watcher::Config) -> Watched<K>
where
    K: Watchable + Resource<DynamicType = (), Scope = ClusterResourceScope>,
{
    stored(kit, vec![(None, Api::all(kit.client.clone()))], config, ())
}

/// Of a kind that the API server does not serve: there is none, and nothing changes.
pub fn absent<K: Watchable>(version: K::DynamicType) -> Watched<K> {
    let store = Writer::new(version.clone()).as_reader();
    Watched { store, changes: pending().boxed(), undecodable: Undecodable::default(), version }
}

/// What a watch without a store tells.
#[derive(Clone, Debug)]
pub enum Told<K> {
    /// A list begins: what is not told until [`Told::Listed`] is gone.
    Listing,
    /// It appeared or changed.
    Applied(K),
    /// The same, but only its metadata can be read.
    Undecodable(ObjectMeta),
    /// It is gone; of one that cannot be decoded, the metadata are all that is told.
    Gone(ObjectMeta),
    /// The list is complete.
    Listed,
}

/// Watches a namespaced kind in all namespaces, whatever `--namespaces` says, and keeps nothing: for kinds of which an
/// index of one's own is enough.
pub fn told_everywhere<K>(kit: &Kit) -> impl Stream<Item = Told<K>> + Send + use<K>
where
    K: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let apis = vec![(None, Api::all(kit.client.clone()))];
    let (mut listing, events) = begin(kit, apis, &watcher::Config::default(), ());
    events.filter_map(move |(index, event)| std::future::ready(listing.told(index, event)))
}

/// The API of a kind, for each namespace of `--namespaces` or once for all.
type Apis<K> = Vec<(Option<String>, Api<Guarded<K>>)>;

fn of_each<K: Watchable>(
    kit: &Kit,
    one: impl Fn(&str) -> Api<Guarded<K>>,
    version: &K::DynamicType,
) -> Apis<K> {
    let namespaces = &kit.config.namespaces;
    if namespaces.is_empty() {
        return vec![(None, Api::all_with(kit.client.clone(), version))];
    }
    namespaces.iter().map(|namespace| (Some(namespace.clone()), one(namespace))).collect()
}

/// What the watch of this number among those of a kind tells.
type Events<K> =
    SelectAll<BoxStream<'static, (usize, watcher::Result<watcher::Event<Guarded<K>>>)>>;

/// Begins the watches of a kind. The process does not act before all of them have listed it.
fn begin<K: Watchable>(
    kit: &Kit,
    apis: Apis<K>,
    config: &watcher::Config,
    version: K::DynamicType,
) -> (Listing<K>, Events<K>) {
    let mut kind = K::kind(&version).into_owned();
    if kit.readiness.has(&format!("watch/{kind}")) {
        // Two groups may have a kind of the same name, and one of them says nothing about the other.
        kind = format!("{kind}.{}", K::group(&version));
    }
    let condition = format!("watch/{kind}");
    kit.readiness.require(&condition, &format!("{kind} is not listed yet"));
    let (mut parts, mut events) = (Vec::new(), SelectAll::new());
    for (index, (namespace, api)) in apis.into_iter().enumerate() {
        let watch = watcher(api, config.clone().page_size(PAGE)).default_backoff();
        events.push(watch.map(move |event| (index, event)).boxed());
        parts.push(Part { namespace, ..Part::default() });
    }
    let undecodable = Undecodable::default();
    (Listing { kit: kit.clone(), version, kind, condition, undecodable, parts }, events)
}

/// What is known of the watches of a kind, beside its objects.
struct Listing<K: Resource> {
    kit: Kit,
    version: K::DynamicType,
    kind: String,
    condition: String,
    undecodable: Undecodable,
    parts: Vec<Part>,
}

/// One watch of a kind.
#[derive(Default)]
struct Part {
    /// `None`: all.
    namespace: Option<String>,
    listed: bool,
    failing: bool,
    /// Objects that cannot be decoded which the list under way has shown.
    broken: HashSet<ObjectKey>,
}

impl Part {
    fn covers(&self, namespace: Option<&String>) -> bool {
        self.namespace.is_none() || self.namespace.as_ref() == namespace
    }
}

impl<K: Watchable> Listing<K> {
    /// Takes notice of an event, and gives what it says of the objects.
    fn told(
        &mut self,
        index: usize,
        event: watcher::Result<watcher::Event<Guarded<K>>>,
    ) -> Option<Told<K>> {
        let event = event.inspect_err(|error| self.failed(index, error)).ok()?;
        let part = &mut self.parts[index];
        part.failing = false;
        Some(match event {
            watcher::Event::Init => {
                part.broken.clear();
                Told::Listing
            }
            watcher::Event::InitApply(object) => {
                if object.0.is_err() {
                    part.broken.insert(ObjectKey::of(&object));
                }
                self.applied(object)
            }
            watcher::Event::Apply(object) => self.applied(object),
            watcher::Event::Delete(object) => {
                self.forget(&ObjectKey::of(&object));
                Told::Gone(object.meta().clone())
            }
            watcher::Event::InitDone => {
                self.listed(index);
                Told::Listed
            }
        })
    }

    fn applied(&self, Guarded(object): Guarded<K>) -> Told<K> {
        match object {
            Ok(object) => {
                self.forget(&ObjectKey::of(&object));
                Told::Applied(object)
            }
            Err((meta, problem)) => {
                self.note(&meta, &problem);
                Told::Undecodable(meta)
            }
        }
    }

    fn listed(&mut self, index: usize) {
        let part = &mut self.parts[index];
        part.listed = true;
        self.undecodable.retain(|it| {
            part.broken.contains(&ObjectKey::of_meta(&it.metadata))
                || !part.covers(it.object.namespace.as_ref())
        });
        self.count();
        if self.parts.iter().all(|part| part.listed) {
            self.kit.readiness.ready(&self.condition);
        }
    }

    fn failed(&mut self, index: usize, error: &watcher::Error) {
        let (kind, part) = (&self.kind, &mut self.parts[index]);
        let problem = api_error::explain_watch(error);
        if !part.failing {
            tracing::warn!(object.kind = kind, error = problem, "Watch failed, trying again");
        }
        part.failing = true;
        if !part.listed {
            let lacking = format!("{kind} cannot be listed: {problem}");
            self.kit.readiness.not_ready(&self.condition, &lacking);
        }
    }

    /// An object cannot be decoded.
    fn note(&self, meta: &ObjectMeta, problem: &str) {
        let version = meta.resource_version.clone();
        let object = ObjectReference {
            resource_version: version.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::from(self.reference(meta))
        };
        let metadata = meta.clone();
        let broken = Broken { object, metadata, problem: problem.to_owned() };
        let known = self.undecodable.put(broken);
        if known.is_none_or(|known| known.object.resource_version != version) {
            tracing::warn!(
                object.kind = self.kind,
                object.name = %ObjectKey::of_meta(meta),
                error = problem,
                "An object cannot be decoded, but for its metadata"
            );
        }
        self.count();
    }

    /// An object can be decoded, or is gone.
    fn forget(&self, key: &ObjectKey) {
        if self.undecodable.remove(&key.namespace, &key.name) {
            self.count();
        }
    }

    fn count(&self) {
        let count = i64::try_from(self.undecodable.len()).unwrap_or(i64::MAX);
        self.kit.metrics.undecodable.with_label_values(&[self.kind.as_str()]).set(count);
    }

    fn reference(&self, meta: &ObjectMeta) -> ObjectRef<K> {
        let name = meta.name.as_deref().unwrap_or_default();
        let mut reference = ObjectRef::new_with(name, self.version.clone());
        reference.namespace.clone_from(&meta.namespace);
        reference
    }
}

/// Begins the watches of a kind and keeps its objects.
fn stored<K: Watchable>(
    kit: &Kit,
    apis: Apis<K>,
    config: &watcher::Config,
    version: K::DynamicType,
) -> Watched<K> {
    let mut writer = Writer::new(version.clone());
    // A controller waits for a store that says it is complete, which it says only at the end of a start of its own, for
    // which it holds everything twice. Here the readiness condition says it, and no pass runs before.
    writer.apply_watcher_event(&watcher::Event::Init);
    writer.apply_watcher_event(&watcher::Event::InitDone);
    let (store, shown_in) = (writer.as_reader(), version.clone());
    let relisting = apis.iter().map(|_| None).collect();
    let (listing, events) = begin(kit, apis, config, version);
    let undecodable = listing.undecodable.clone();
    kit.undecodable.lock().push(undecodable.clone());
    let mut feed = Feed { listing, writer, store: store.clone(), relisting };
    let changed = events.flat_map(move |(index, event)| iter(feed.apply(index, event)));
    Watched { store, changes: changed.boxed(), undecodable, version: shown_in }
}

/// Merges the watches of all namespaces into one store. The store's own way of starting over would
/// drop what another namespace's watch had found.
struct Feed<K: Watchable> {
    listing: Listing<K>,
    writer: Writer<K>,
    store: Store<K>,
    /// Per watch: what a list under way has shown so far, if anything can be gone.
    relisting: Vec<Option<HashSet<ObjectRef<K>>>>,
}

impl<K: Watchable> Feed<K> {
    /// Brings the store up to date. Gives the objects that appeared, changed or went.
    fn apply(
        &mut self,
        index: usize,
        event: watcher::Result<watcher::Event<Guarded<K>>>,
    ) -> Vec<K> {
        match self.listing.told(index, event) {
            None => Vec::new(),
            Some(Told::Listing) => {
                // Where nothing is known nothing can be gone, and a first list is the longest of all.
                self.relisting[index] = (!self.store.is_empty()).then(HashSet::new);
                Vec::new()
            }
            Some(Told::Applied(object)) => self.put(index, object).into_iter().collect(),
            Some(Told::Undecodable(meta) | Told::Gone(meta)) => {
                self.remove(&self.listing.reference(&meta)).into_iter().collect()
            }
            Some(Told::Listed) => self.listed(index),
        }
    }

    fn put(&mut self, index: usize, mut object: K) -> Option<K> {
        object.meta_mut().managed_fields = None;
        let reference = self.listing.reference(object.meta());
        let known = self.store.get(&reference);
        if let Some(seen) = &mut self.relisting[index] {
            seen.insert(reference);
        }
        // A new list shows what we know already; nobody needs to look at it again.
        let version = &object.meta().resource_version;
        if known.is_some_and(|known| known.meta().resource_version == *version) {
            return None;
        }
        let event = watcher::Event::Apply(object);
        self.writer.apply_watcher_event(&event);
        if let watcher::Event::Apply(object) = event { Some(object) } else { None }
    }

    fn remove(&mut self, reference: &ObjectRef<K>) -> Option<K> {
        let known = self.store.get(reference)?;
        self.writer.apply_watcher_event(&watcher::Event::Delete(K::clone(&known)));
        Some(Arc::unwrap_or_clone(known))
    }

    /// A list is complete. Gives the objects that it has not shown.
    fn listed(&mut self, index: usize) -> Vec<K> {
        let Some(seen) = self.relisting[index].take() else { return Vec::new() };
        let part = &self.listing.parts[index];
        let mut known = self.store.state();
        known.retain(|it| part.covers(it.meta().namespace.as_ref()));
        let known = known.iter().map(|it| self.listing.reference(it.meta()));
        let gone: Vec<ObjectRef<K>> = known.filter(|it| !seen.contains(it)).collect();
        gone.iter().filter_map(|it| self.remove(it)).collect()
    }
}
