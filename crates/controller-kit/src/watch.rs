//! One watch per kind and namespace feeds a store and says what changed.
//!
//! An object that cannot be decoded does not stop the watch: it is left out of the store, logged
//! once per version, counted, and listed for whoever wants to tell the object's owner.
//! Only what the type names is kept in memory, and never `managedFields`.

use std::collections::HashSet;
use std::fmt::Debug;
use std::future::ready;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::stream::{BoxStream, SelectAll, iter, pending};
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Api;
use kube::core::NamespaceScope;
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

/// Objects of a list that are fetched at once where they do not come as a stream, far fewer than usual: a page is in memory as
/// a whole while it is decoded, and the holes that large ones leave between what stays are never filled again.
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
    K: Watchable + Resource<DynamicType = (), Scope: NamespaceScope>,
{
    namespaced_in(kit, config, &())
}

/// Watches a namespaced kind in the version that the API server serves, where that differs between clusters.
pub fn namespaced_in<K>(kit: &Kit, config: &watcher::Config, version: &K::DynamicType) -> Watched<K>
where
    K: Watchable + Resource<Scope: NamespaceScope>,
{
    let all = Api::<Guarded<K>>::all_with(kit.client.clone(), version);
    let of = |name: &String| (Some(name.clone()), all.clone().constrain(name));
    let mut apis: Apis<K> = kit.config.namespaces.iter().map(of).collect();
    if apis.is_empty() {
        apis.push((None, all));
    }
    stored(kit, apis, config, version.clone())
}

/// Watches a kind in the whole cluster, whatever `--namespaces` says: one of the cluster, or what is made for objects of those
/// namespaces and stands elsewhere.
pub fn everywhere<K>(kit: &Kit, config: &watcher::Config) -> Watched<K>
where
    K: Watchable + Resource<DynamicType = ()>,
{
    stored(kit, vec![(None, Api::all(kit.client.clone()))], config, ())
}

/// Of a kind that the API server does not serve: there is none, and nothing changes.
pub fn absent<K: Watchable>(version: K::DynamicType) -> Watched<K> {
    let store = Writer::new(version.clone()).as_reader();
    Watched { store, changes: pending().boxed(), undecodable: Undecodable::default(), version }
}

/// What a watch tells.
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
    K: Watchable + Resource<DynamicType = ()>,
{
    let apis = vec![(None, Api::all(kit.client.clone()))];
    let (mut feed, events) = begin(kit, apis, &watcher::Config::default(), ());
    events.flat_map(move |(index, event)| iter(feed.told(index, event)))
}

/// The API of a kind, for each namespace of `--namespaces` or once for all.
type Apis<K> = Vec<(Option<String>, Api<Guarded<K>>)>;

/// What one watch of a kind tells.
type Event<K> = watcher::Result<watcher::Event<Guarded<K>>>;

/// The same of all of them, each with its number.
type Events<K> = SelectAll<BoxStream<'static, (usize, Event<K>)>>;

/// All objects, and then each change: as one stream of the API server, or page by page from one that gives no such streams.
fn listed_and_watched<K: Watchable>(
    api: Api<Guarded<K>>,
    config: &watcher::Config,
) -> impl Stream<Item = Event<K>> + Send + use<K> {
    let streamed = watcher(api.clone(), config.clone().streaming_lists()).default_backoff();
    let paged = watcher(api, config.clone().page_size(PAGE)).default_backoff();
    streamed.take_while(|event| ready(!is_refused_stream(event))).chain(paged)
}

/// Whether no watch begins with all objects: the API server does not know how to, or whoever asks may only list.
fn is_refused_stream<K>(event: &Event<K>) -> bool {
    let Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) = event else {
        return false;
    };
    [403, 422].contains(&status.code)
}

/// Begins the watches of a kind. The process does not act before all of them have listed it.
fn begin<K: Watchable>(
    kit: &Kit,
    apis: Apis<K>,
    config: &watcher::Config,
    version: K::DynamicType,
) -> (Feed<K>, Events<K>) {
    let mut kind = K::kind(&version).into_owned();
    if kit.readiness.has(&format!("watch/{kind}")) {
        // Two groups may have a kind of the same name, and one of them says nothing about the other.
        kind = format!("{kind}.{}", K::group(&version));
    }
    let condition = format!("watch/{kind}");
    kit.readiness.require(&condition, &format!("{kind} is not listed yet"));
    let (mut parts, mut events) = (Vec::new(), SelectAll::new());
    for (index, (namespace, api)) in apis.into_iter().enumerate() {
        events.push(listed_and_watched(api, config).map(move |event| (index, event)).boxed());
        parts.push(Part { namespace, ..Part::default() });
    }
    let mut writer = Writer::new(version.clone());
    // A controller waits for a store that says it is complete, which it says only at the end of a start of its own, for
    // which it holds everything twice. Here the readiness condition says it, and no pass runs before.
    writer.apply_watcher_event(&watcher::Event::Init);
    writer.apply_watcher_event(&watcher::Event::InitDone);
    let (store, undecodable) = (writer.as_reader(), Undecodable::default());
    (Feed { kit: kit.clone(), version, kind, condition, undecodable, parts, writer, store }, events)
}

/// Begins the watches of a kind and keeps its objects.
fn stored<K: Watchable>(
    kit: &Kit,
    apis: Apis<K>,
    config: &watcher::Config,
    version: K::DynamicType,
) -> Watched<K> {
    let (mut feed, events) = begin(kit, apis, config, version.clone());
    let (store, undecodable) = (feed.store.clone(), feed.undecodable.clone());
    kit.undecodable.lock().push(undecodable.clone());
    let changed = events.flat_map(move |(index, event)| iter(feed.apply(index, event)));
    Watched { store, changes: changed.boxed(), undecodable, version }
}

/// What the watches of a kind have told. They feed one store: its own way of starting over would drop what another
/// namespace's watch had found.
struct Feed<K: Watchable> {
    kit: Kit,
    version: K::DynamicType,
    kind: String,
    condition: String,
    undecodable: Undecodable,
    parts: Vec<Part>,
    writer: Writer<K>,
    /// Empty, if nothing is kept.
    store: Store<K>,
}

/// One watch of a kind.
#[derive(Default)]
struct Part {
    /// `None`: all.
    namespace: Option<String>,
    listed: bool,
    failing: bool,
    /// What a list under way has shown so far, if anything can be gone.
    shown: Option<HashSet<ObjectKey>>,
}

impl Part {
    fn covers(&self, namespace: Option<&String>) -> bool {
        self.namespace.is_none() || self.namespace.as_ref() == namespace
    }
}

impl<K: Watchable> Feed<K> {
    /// Brings the store up to date. Gives the objects that appeared, changed or went.
    fn apply(&mut self, index: usize, event: Event<K>) -> Vec<K> {
        let told = self.told(index, event).into_iter();
        let changed = told.filter_map(|told| match told {
            Told::Listing | Told::Listed => None,
            Told::Applied(object) => self.put(object),
            Told::Undecodable(meta) | Told::Gone(meta) => self.remove(&meta),
        });
        changed.collect()
    }

    /// Takes notice of an event, and gives what it says of the objects.
    fn told(&mut self, index: usize, event: Event<K>) -> Vec<Told<K>> {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                self.failed(index, &error);
                return Vec::new();
            }
        };
        let part = &mut self.parts[index];
        part.failing = false;
        vec![match event {
            watcher::Event::Init => {
                // Where nothing is known nothing can be gone, and a first list is the longest of all.
                let is_known = !self.store.is_empty() || self.undecodable.len() > 0;
                part.shown = is_known.then(HashSet::new);
                Told::Listing
            }
            watcher::Event::InitApply(object) => {
                if let Some(shown) = &mut part.shown {
                    shown.insert(ObjectKey::of(&object));
                }
                self.applied(object)
            }
            watcher::Event::Apply(object) => self.applied(object),
            watcher::Event::Delete(object) => {
                self.forget(&ObjectKey::of(&object));
                Told::Gone(object.meta().clone())
            }
            watcher::Event::InitDone => return self.listed(index),
        }]
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

    /// A list is complete: what it has not shown is gone.
    fn listed(&mut self, index: usize) -> Vec<Told<K>> {
        let part = &mut self.parts[index];
        part.listed = true;
        let mut told = Vec::new();
        if let Some(shown) = part.shown.take() {
            let is_gone = |it: &ObjectMeta| {
                part.covers(it.namespace.as_ref()) && !shown.contains(&ObjectKey::of_meta(it))
            };
            self.undecodable.retain(|it| !is_gone(&it.metadata));
            let gone = self.store.state_filter(|it| is_gone(it.meta()));
            told.extend(gone.iter().map(|it| Told::Gone(it.meta().clone())));
        }
        self.count();
        if self.parts.iter().all(|part| part.listed) {
            self.kit.readiness.ready(&self.condition);
        }
        told.push(Told::Listed);
        told
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
        let object = ObjectReference {
            resource_version: meta.resource_version.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::from(self.reference(meta))
        };
        let broken = Broken { object, metadata: meta.clone(), problem: problem.to_owned() };
        if self.undecodable.put(broken) {
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

    fn put(&mut self, mut object: K) -> Option<K> {
        object.meta_mut().managed_fields = None;
        let known = self.store.get(&self.reference(object.meta()));
        // A new list shows what we know already; nobody needs to look at it again.
        let version = &object.meta().resource_version;
        if known.is_some_and(|known| known.meta().resource_version == *version) {
            return None;
        }
        let event = watcher::Event::Apply(object);
        self.writer.apply_watcher_event(&event);
        if let watcher::Event::Apply(object) = event { Some(object) } else { None }
    }

    fn remove(&mut self, meta: &ObjectMeta) -> Option<K> {
        let known = self.store.get(&self.reference(meta))?;
        self.writer.apply_watcher_event(&watcher::Event::Delete(K::clone(&known)));
        Some(Arc::unwrap_or_clone(known))
    }
}

#[cfg(test)]
mod tests;
