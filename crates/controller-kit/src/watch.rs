//! One watch per kind and namespace feeds a store and says what changed.
//!
//! An object that cannot be decoded does not stop the watch: it is left out of the store, logged
//! once per version, counted, and listed for whoever wants to tell the object's owner.
//! Only what the type names is kept in memory, and never `managedFields`.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Api;
use kube::core::DynamicResourceScope;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;

use crate::api_error;
use crate::guarded::Guarded;
use crate::kit::Kit;

/// A kind that is watched.
pub struct Watched<K>
where
    K: Resource<DynamicType: Eq + Hash + Clone> + Clone + 'static,
{
    /// What was last seen, a hint: it is behind the writes of everybody, also our own.
    pub store: Store<K>,
    /// Objects that appeared, changed or went. The store is fed only while this is polled: hand it
    /// to `Controller::for_stream` or `watches_stream`.
    pub changes: BoxStream<'static, Result<K, watcher::Error>>,
    /// Objects that are left out of the store.
    pub undecodable: Undecodable,
}

/// Objects of one kind that cannot be decoded; absent from the store, which is not the same as gone.
#[derive(Clone, Default)]
pub struct Undecodable(Arc<Mutex<HashMap<String, Broken>>>);

/// An object that cannot be decoded.
#[derive(Clone, Debug)]
pub struct Broken {
    /// For events.
    pub object: ObjectReference,
    /// Which field is wrong and how.
    pub problem: String,
}

impl Undecodable {
    /// The problem of this object, if it has one.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Broken> {
        self.lock().get(&key(namespace, name)).cloned()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Broken> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Broken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a store fed where no loop does, and tells of each change. Ends with the watch.
pub async fn feed<K>(
    changes: BoxStream<'static, Result<K, watcher::Error>>,
    mut tell: impl FnMut(&K),
) {
    let telling = changes.for_each(|change| {
        if let Ok(object) = change {
            tell(&object);
        }
        std::future::ready(())
    });
    telling.await;
}

/// Of which objects that cannot be decoded the owners were told: each once in a version.
#[derive(Default)]
pub struct Complaints(HashMap<String, Option<String>>);

impl Complaints {
    /// Tells the owners of what is new, from a process that acts. Gives what was told.
    pub async fn tell(&mut self, kit: &Kit, broken: &[Undecodable]) -> Vec<Broken> {
        let news = if kit.may_act() { self.news(broken) } else { Vec::new() };
        for it in &news {
            let note = format!(
                "This object cannot be read and is ignored until it is corrected: {}",
                it.problem
            );
            kit.events.warning(&it.object, "Undecodable", "Decode", &note).await;
        }
        news
    }

    /// Those whose owners are to be told now. What can be decoded again or is gone is forgotten.
    pub fn news(&mut self, broken: &[Undecodable]) -> Vec<Broken> {
        let before = std::mem::take(&mut self.0);
        let mut news = Vec::new();
        for it in broken.iter().flat_map(Undecodable::all) {
            let uid = it.object.uid.clone().unwrap_or_default();
            let version = it.object.resource_version.clone();
            if before.get(&uid) != Some(&version) {
                news.push(it);
            }
            self.0.insert(uid, version);
        }
        news
    }
}

/// Objects of a list that are fetched at once, far fewer than usual: a page is in memory as a whole while it is decoded, and
/// the holes that large ones leave between what stays are never filled again.
const PAGE: u32 = 50;

fn key(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

fn key_of(meta: &ObjectMeta) -> String {
    key(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

/// Watches a namespaced kind where `--namespaces` says.
pub fn namespaced<K>(kit: &Kit, config: &watcher::Config) -> Watched<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let one = |namespace: &str| Api::namespaced(kit.client.clone(), namespace);
    let apis = of_each(kit, one, || Api::all(kit.client.clone()));
    watched(kit, apis, &kit.config.namespaces, config, &())
}

/// Watches a namespaced kind in all namespaces, whatever `--namespaces` says: for what is made for objects of those
/// namespaces and stands elsewhere.
pub fn everywhere<K>(kit: &Kit, config: &watcher::Config) -> Watched<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    watched(kit, vec![Api::all(kit.client.clone())], &[], config, &())
}

/// Watches a namespaced kind in the version that the API server serves, where that differs between clusters.
pub fn namespaced_in<K, V>(kit: &Kit, config: &watcher::Config, version: &V) -> Watched<K>
where
    K: Resource<DynamicType = V, Scope = DynamicResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
    V: Version,
{
    let one = |namespace: &str| Api::namespaced_with(kit.client.clone(), namespace, version);
    let apis = of_each(kit, one, || Api::all_with(kit.client.clone(), version));
    watched(kit, apis, &kit.config.namespaces, config, version)
}

fn of_each<A>(kit: &Kit, one: impl Fn(&str) -> A, all: impl Fn() -> A) -> Vec<A> {
    if kit.config.namespaces.is_empty() {
        return vec![all()];
    }
    kit.config.namespaces.iter().map(|namespace| one(namespace)).collect()
}

/// What tells the versions of a kind apart; `()` where there is one.
pub trait Version: Clone + Debug + Eq + Hash + Send + Sync + Unpin + 'static {}

impl<V: Clone + Debug + Eq + Hash + Send + Sync + Unpin + 'static> Version for V {}

/// Watches a cluster-wide kind.
pub fn cluster<K>(kit: &Kit, config: &watcher::Config) -> Watched<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    watched(kit, vec![Api::all(kit.client.clone())], &[], config, &())
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
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let kind = K::kind(&()).into_owned();
    let condition = condition_of(&kind);
    kit.readiness.require(&condition, &format!("{kind} is not listed yet"));
    let api: Api<Guarded<K>> = Api::all(kit.client.clone());
    let events = watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff();
    let (kit, mut listed, mut failing) = (kit.clone(), false, false);
    let mut broken: HashMap<String, Option<String>> = HashMap::new();
    // Those of them that a list under way has shown.
    let mut shown: HashSet<String> = HashSet::new();
    events.filter_map(move |event| {
        let told = match event {
            Ok(event) => {
                failing = false;
                Some(match event {
                    watcher::Event::Init => {
                        shown.clear();
                        Told::Listing
                    }
                    watcher::Event::InitDone => {
                        listed = true;
                        broken.retain(|key, _| shown.contains(key));
                        count_broken(&kit, &kind, broken.len());
                        kit.readiness.ready(&condition);
                        Told::Listed
                    }
                    watcher::Event::InitApply(object) => {
                        if object.0.is_err() {
                            shown.insert(key_of(object.meta()));
                        }
                        note_broken(&kit, &kind, &mut broken, &object);
                        told(object)
                    }
                    watcher::Event::Apply(object) => {
                        note_broken(&kit, &kind, &mut broken, &object);
                        told(object)
                    }
                    watcher::Event::Delete(object) => {
                        broken.remove(&key_of(object.meta()));
                        count_broken(&kit, &kind, broken.len());
                        Told::Gone(object.meta().clone())
                    }
                })
            }
            Err(error) => {
                let problem = api_error::explain_watch(&error);
                if !failing {
                    tracing::warn!(
                        object.kind = kind,
                        error = problem,
                        "Watch failed, trying again"
                    );
                }
                failing = true;
                if !listed {
                    kit.readiness.not_ready(&condition, &unlisted(&kind, &problem));
                }
                None
            }
        };
        std::future::ready(told)
    })
}

fn told<K>(object: Guarded<K>) -> Told<K> {
    match object.0 {
        Ok(object) => Told::Applied(object),
        Err((meta, _)) => Told::Undecodable(meta),
    }
}

fn note_broken<K: Resource<DynamicType = ()>>(
    kit: &Kit,
    kind: &str,
    broken: &mut HashMap<String, Option<String>>,
    object: &Guarded<K>,
) {
    let key = key_of(object.meta());
    match &object.0 {
        Ok(_) if broken.is_empty() => return,
        Ok(_) => drop(broken.remove(&key)),
        Err((meta, problem)) => {
            let version = meta.resource_version.clone();
            if broken.insert(key.clone(), version.clone()) != Some(version) {
                tracing::warn!(
                    object.kind = kind,
                    object.name = key,
                    error = problem,
                    "Only the metadata of an object can be decoded"
                );
            }
        }
    }
    count_broken(kit, kind, broken.len());
}

fn count_broken(kit: &Kit, kind: &str, count: usize) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    kit.metrics.undecodable.with_label_values(&[kind]).set(count);
}

fn condition_of(kind: &str) -> String {
    format!("watch/{kind}")
}

fn unlisted(kind: &str, problem: &str) -> String {
    format!("{kind} cannot be listed: {problem}")
}

/// `namespaces` are those of the `apis`, in the same order; empty where there is one for all.
fn watched<K, V>(
    kit: &Kit,
    apis: Vec<Api<Guarded<K>>>,
    namespaces: &[String],
    config: &watcher::Config,
    version: &V,
) -> Watched<K>
where
    K: Resource<DynamicType = V> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    V: Version,
{
    let mut kind = K::kind(version).into_owned();
    if kit.readiness.has(&condition_of(&kind)) {
        // Two groups may have a kind of the same name, and one of them says nothing about the other.
        kind = format!("{kind}.{}", K::group(version));
    }
    let condition = condition_of(&kind);
    kit.readiness.require(&condition, &format!("{kind} is not listed yet"));
    let mut writer = Writer::new(version.clone());
    // A controller waits for a store that says it is complete, which it says only at the end of a start of its own, for
    // which it holds everything twice. Here the readiness condition says it, and no pass runs before.
    writer.apply_watcher_event(&watcher::Event::Init);
    writer.apply_watcher_event(&watcher::Event::InitDone);
    let store = writer.as_reader();
    let undecodable = Undecodable::default();
    let feed = Feed {
        kit: kit.clone(),
        namespaces: namespaces.to_vec(),
        version: version.clone(),
        kind,
        condition,
        writer,
        store: store.clone(),
        undecodable: undecodable.clone(),
        relisting: apis.iter().map(|_| None).collect(),
        listed: vec![false; apis.len()],
        failing: vec![false; apis.len()],
    };
    let mut events = SelectAll::new();
    for (index, api) in apis.into_iter().enumerate() {
        let config = config.clone().page_size(PAGE);
        events
            .push(watcher(api, config).default_backoff().map(move |event| (index, event)).boxed());
    }
    Watched { store, changes: changes(feed, events).boxed(), undecodable }
}

fn changes<K, S>(feed: Feed<K>, events: S) -> impl Stream<Item = Result<K, watcher::Error>> + Send
where
    K: Resource<DynamicType: Version> + Clone + Debug + Send + Sync + 'static,
    S: Stream<Item = (usize, Result<watcher::Event<Guarded<K>>, watcher::Error>)> + Send + Unpin,
{
    futures_util::stream::unfold((feed, events), async |(mut feed, mut events)| {
        let (index, event) = events.next().await?;
        let changed = feed.apply(index, event);
        Some((futures_util::stream::iter(changed.into_iter().map(Ok)), (feed, events)))
    })
    .flatten()
}

/// Merges the watches of all namespaces into one store. The store's own way of starting over would
/// drop what another namespace's watch had found.
struct Feed<K>
where
    K: Resource<DynamicType: Eq + Hash + Clone> + Clone + 'static,
{
    kit: Kit,
    namespaces: Vec<String>,
    version: K::DynamicType,
    kind: String,
    condition: String,
    writer: Writer<K>,
    store: Store<K>,
    undecodable: Undecodable,
    /// Per watch: what a list under way has shown so far, if anything can be gone.
    relisting: Vec<Option<HashSet<ObjectRef<K>>>>,
    listed: Vec<bool>,
    failing: Vec<bool>,
}

impl<K> Feed<K>
where
    K: Resource<DynamicType: Version> + Clone + Debug + 'static,
{
    fn apply(
        &mut self,
        index: usize,
        event: Result<watcher::Event<Guarded<K>>, watcher::Error>,
    ) -> Vec<K> {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                self.failed(index, &error);
                return Vec::new();
            }
        };
        self.failing[index] = false;
        match event {
            watcher::Event::Init => {
                // Where nothing is known nothing can be gone, and a first list is the longest of all.
                let known = !self.store.is_empty() || !self.undecodable.lock().is_empty();
                self.relisting[index] = known.then(HashSet::new);
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let reference = self.reference(object.meta());
                if let Some(seen) = &mut self.relisting[index] {
                    seen.insert(reference);
                }
                self.put(object)
            }
            watcher::Event::Apply(object) => self.put(object),
            watcher::Event::Delete(object) => self.remove(&self.reference(object.meta())),
            watcher::Event::InitDone => self.listed(index),
        }
    }

    fn put(&mut self, Guarded(object): Guarded<K>) -> Vec<K> {
        match object {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                self.report(&key_of(object.meta()), None);
                let known = self.store.get(&self.reference(object.meta()));
                // A new list shows what we know already; nobody needs to look at it again.
                if known.is_some_and(|known| {
                    known.meta().resource_version == object.meta().resource_version
                }) {
                    return Vec::new();
                }
                let event = watcher::Event::Apply(object);
                self.writer.apply_watcher_event(&event);
                let watcher::Event::Apply(object) = event else { return Vec::new() };
                vec![object]
            }
            Err((meta, problem)) => {
                let broken = Broken {
                    object: ObjectReference {
                        resource_version: meta.resource_version.clone(),
                        uid: meta.uid.clone(),
                        ..ObjectReference::from(self.reference(&meta))
                    },
                    problem,
                };
                let changed = self.drop_from_store(&self.reference(&meta));
                self.report(&key_of(&meta), Some(broken));
                changed
            }
        }
    }

    fn remove(&mut self, reference: &ObjectRef<K>) -> Vec<K> {
        self.report(&key(reference.namespace.as_deref(), &reference.name), None);
        self.drop_from_store(reference)
    }

    fn drop_from_store(&mut self, reference: &ObjectRef<K>) -> Vec<K> {
        let Some(known) = self.store.get(reference) else {
            return Vec::new();
        };
        self.writer.apply_watcher_event(&watcher::Event::Delete((*known).clone()));
        vec![(*known).clone()]
    }

    fn listed(&mut self, index: usize) -> Vec<K> {
        let mut gone: HashSet<ObjectRef<K>> = HashSet::new();
        if let Some(seen) = self.relisting[index].take() {
            let namespace = self.namespaces.get(index).cloned();
            let broken = self.undecodable.all().into_iter().map(|it| ObjectMeta {
                name: it.object.name,
                namespace: it.object.namespace,
                ..ObjectMeta::default()
            });
            let objects = self.store.state();
            let known = objects.iter().map(|it| self.reference(it.meta()));
            let known = known.chain(broken.map(|it| self.reference(&it)));
            let covered = known.filter(|it| namespace.is_none() || it.namespace == namespace);
            gone.extend(covered.filter(|it| !seen.contains(it)));
        }
        let changed = gone.iter().flat_map(|reference| self.remove(reference)).collect();
        if !self.listed[index] {
            self.listed[index] = true;
            if self.listed.iter().all(|listed| *listed) {
                self.kit.readiness.ready(&self.condition);
            }
        }
        changed
    }

    fn failed(&mut self, index: usize, error: &watcher::Error) {
        let problem = api_error::explain_watch(error);
        if !self.failing[index] {
            tracing::warn!(object.kind = self.kind, error = problem, "Watch failed, trying again");
        }
        self.failing[index] = true;
        if !self.listed[index] {
            self.kit.readiness.not_ready(&self.condition, &unlisted(&self.kind, &problem));
        }
    }

    fn reference(&self, meta: &ObjectMeta) -> ObjectRef<K> {
        let name = meta.name.as_deref().unwrap_or_default();
        let mut reference = ObjectRef::new_with(name, self.version.clone());
        reference.namespace.clone_from(&meta.namespace);
        reference
    }

    fn report(&self, key: &str, broken: Option<Broken>) {
        let mut all = self.undecodable.lock();
        match broken {
            Some(broken) => {
                let version = broken.object.resource_version.clone();
                let known = all.insert(key.to_owned(), broken.clone());
                if known.is_none_or(|known| known.object.resource_version != version) {
                    tracing::warn!(
                        object.kind = self.kind,
                        object.name = key,
                        error = broken.problem,
                        "Left out an object that cannot be decoded"
                    );
                }
            }
            None if all.is_empty() => return,
            None => drop(all.remove(key)),
        }
        let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
        self.kit.metrics.undecodable.with_label_values(&[self.kind.as_str()]).set(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_an_object_is_told_once_for_each_version_and_it_is_forgotten_when_it_is_gone() {
        let broken = Undecodable::default();
        let note = |version: &str| {
            let object = ObjectReference {
                uid: Some("u".to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectReference::default()
            };
            let it = Broken { object, problem: "it broke".to_owned() };
            broken.lock().insert("a/b".to_owned(), it);
        };
        let mut complaints = Complaints::default();
        let mut news = || complaints.news(std::slice::from_ref(&broken)).len();
        assert_eq!(news(), 0);
        note("1");
        assert_eq!((news(), news()), (1, 0));
        note("2");
        assert_eq!((news(), news()), (1, 0));
        broken.lock().clear();
        assert_eq!(news(), 0);
        assert!(complaints.0.is_empty());
    }
}
