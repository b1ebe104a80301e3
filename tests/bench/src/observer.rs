//! Sees every version of every object of some kinds, knows who wrote it, and checks invariants
//! after every write of every actor.
//!
//! A bare watch is read from a fixed resourceVersion and resumed where it ended or broke, never
//! listed anew: a list would hide what happened between. A version that the server no longer has is
//! an error.
//!
//! Each kind has its own stream, so one kind can be ahead of another. Invariants are therefore
//! checked on the [`History`], in the order of resourceVersions, which is the order of etcd.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use futures_util::StreamExt;
use kube::Api;
use kube::api::{DynamicObject, ListParams, VersionMatch, WatchEvent, WatchParams};
use kube::core::ApiResource;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::faults::{Call, Handle};
use crate::timeline::{changes, moment};

/// How long a connection may stay broken.
const BROKEN: Duration = Duration::from_secs(30);
/// The pause before it is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// How an object is named in a [`World`] and in reports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The resource in plural, as in a path.
    pub resource: String,
    /// Empty for objects of the whole cluster.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.resource, self.name)
    }
}

/// All observed objects at one moment.
pub type World = BTreeMap<Key, DynamicObject>;

type Check = dyn Fn(&World, &World) -> Result<(), String> + Send + Sync;

/// What must hold after every write.
#[derive(Clone)]
pub struct Invariant {
    /// The rule as a sentence.
    pub name: String,
    /// Of the world before a write and the one after it.
    check: Arc<Check>,
}

impl Invariant {
    /// A rule and its check, which says what is wrong.
    pub fn new(
        name: impl Into<String>,
        check: impl Fn(&World) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::between(name, move |_, world| check(world))
    }

    /// A rule about a step: what was before a write, and what is after it.
    pub fn between(
        name: impl Into<String>,
        check: impl Fn(&World, &World) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), check: Arc::new(check) }
    }
}

#[derive(Clone, Debug)]
struct Seen {
    version: u64,
    key: Key,
    /// None once the object is gone.
    object: Option<DynamicObject>,
    at: Instant,
}

#[derive(Default)]
struct Log {
    start: World,
    now: World,
    seen: Vec<Seen>,
    broken: Option<String>,
}

/// A kind that is observed, and of which objects.
#[derive(Clone)]
struct Watched {
    api: Api<DynamicObject>,
    kind: ApiResource,
    /// What their name or namespace begins with.
    prefix: Option<String>,
}

impl Watched {
    fn concerns(&self, object: &DynamicObject) -> bool {
        let Some(prefix) = &self.prefix else { return true };
        let begins = |text: Option<&String>| text.is_some_and(|it| it.starts_with(prefix.as_str()));
        begins(object.metadata.namespace.as_ref().or(object.metadata.name.as_ref()))
    }

    /// A later version than the list's at which nothing of this kind has changed since.
    async fn still_at_the_beginning(&self, log: &Mutex<Log>) -> anyhow::Result<String> {
        let listed = self.api.list(&ListParams::default()).await?;
        let there = listed.items.iter().filter(|it| self.concerns(it));
        let there: BTreeMap<Key, u64> =
            there.map(|it| (key_of(&self.kind, it), version_of(it))).collect();
        let log = locked(log);
        let known = log.now.iter().filter(|(key, _)| key.resource == self.kind.plural);
        let known: BTreeMap<Key, u64> =
            known.map(|(key, it)| (key.clone(), version_of(it))).collect();
        ensure!(there == known, "{} changed before they could be watched", self.kind.plural);
        listed.metadata.resource_version.context("a list has no version")
    }
}

/// Watches from its start until it is dropped.
pub struct Observer {
    kinds: Vec<Watched>,
    log: Arc<Mutex<Log>>,
    changed: watch::Sender<u64>,
    began: Instant,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer {
    /// Begins to watch these kinds in one namespace, or everywhere.
    ///
    /// # Errors
    ///
    /// If a kind cannot be listed or watched.
    pub async fn start(
        client: &kube::Client,
        namespace: Option<&str>,
        kinds: &[ApiResource],
    ) -> anyhow::Result<Self> {
        Self::start_beyond(client, namespace, kinds, &[]).await
    }

    /// The same, and these kinds everywhere: of those only objects whose name or namespace begins with the first
    /// namespace's name.
    ///
    /// # Errors
    ///
    /// If a kind cannot be listed or watched.
    pub async fn start_beyond(
        client: &kube::Client,
        namespace: Option<&str>,
        kinds: &[ApiResource],
        beyond: &[ApiResource],
    ) -> anyhow::Result<Self> {
        let mut log = Log::default();
        let kinds = kinds.iter().map(|kind| (kind, namespace, None));
        let beyond = beyond.iter().map(|kind| (kind, None, namespace.map(str::to_owned)));
        let mut apis: Vec<Watched> = Vec::new();
        for (kind, namespace, prefix) in kinds.chain(beyond) {
            let api = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, kind),
                None => Api::all_with(client.clone(), kind),
            };
            // The API server begins its cache of a kind when somebody first asks for it: before what is observed begins.
            let asked = api.list(&ListParams::default().match_any()).await;
            asked.with_context(|| format!("list {} before observing", kind.plural))?;
            apis.push(Watched { api, kind: kind.clone(), prefix });
        }
        let mut from: Option<String> = None;
        for watched in &apis {
            let (api, kind) = (&watched.api, &watched.kind);
            // All kinds as of one moment, so that the first world is one that existed.
            let list = ListParams {
                resource_version: from.clone(),
                version_match: from.as_ref().map(|_| VersionMatch::Exact),
                ..ListParams::default()
            };
            let listed = api
                .list(&list)
                .await
                .with_context(|| format!("list {} to begin observing", kind.plural))?;
            if from.is_none() {
                from = listed.metadata.resource_version;
            }
            for object in listed.items.into_iter().filter(|it| watched.concerns(it)) {
                log.start.insert(key_of(kind, &object), object);
            }
        }
        log.now = log.start.clone();
        let from = from.context("name at least one kind to observe")?;
        let log = Arc::new(Mutex::new(log));
        let changed = watch::Sender::new(0);
        let tasks = apis
            .iter()
            .map(|watched| {
                let (watched, from) = (watched.clone(), from.clone());
                let (log, changed) = (Arc::clone(&log), changed.clone());
                tokio::spawn(async move {
                    if let Err(error) = follow(&watched, from, &log, &changed).await {
                        locked(&log).broken = Some(format!("{}: {error:#}", watched.kind.plural));
                        changed.send_modify(|count| *count += 1);
                    }
                })
            })
            .collect();
        Ok(Self { kinds: apis, log, changed, began: Instant::now(), tasks })
    }

    /// Waits until the world, as far as it arrived, satisfies the goal; false after this time.
    ///
    /// # Errors
    ///
    /// If a watch broke.
    pub async fn reaches(
        &self,
        goal: impl Fn(&World) -> bool,
        within: Duration,
    ) -> anyhow::Result<bool> {
        let mut changed = self.changed.subscribe();
        let deadline = tokio::time::Instant::now() + within;
        loop {
            changed.mark_unchanged();
            {
                let log = locked(&self.log);
                if let Some(broken) = &log.broken {
                    bail!("the observation has a gap: {broken}");
                }
                if goal(&log.now) {
                    return Ok(true);
                }
            }
            match tokio::time::timeout_at(deadline, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(false),
            }
        }
    }

    /// Waits until nothing was written for this long; false if that is not so within the limit.
    pub async fn quiet(&self, span: Duration, within: Duration) -> bool {
        let mut changed = self.changed.subscribe();
        let deadline = tokio::time::Instant::now() + within;
        while tokio::time::Instant::now() < deadline {
            match tokio::time::timeout(span, changed.changed()).await {
                Ok(_) => {}
                Err(_) => return true,
            }
        }
        false
    }

    /// Everything up to now in the order of writing, each with its actor as far as the handles know.
    ///
    /// # Errors
    ///
    /// If a watch broke or does not catch up.
    pub async fn history(&self, actors: &[Handle]) -> anyhow::Result<History> {
        for watched in &self.kinds {
            let Watched { api, kind, .. } = watched;
            let listed = api
                .list(&ListParams::default())
                .await
                .with_context(|| format!("list {} to know when all was seen", kind.plural))?;
            let wanted: BTreeMap<Key, u64> = listed
                .items
                .iter()
                .filter(|object| watched.concerns(object))
                .map(|object| (key_of(kind, object), version_of(object)))
                .collect();
            let listed_at = listed.metadata.resource_version.unwrap_or_default();
            let listed_at: u64 = listed_at.parse().unwrap_or_default();
            let caught_up = |now: &World| {
                let arrived = wanted.iter().all(|(key, version)| {
                    now.get(key).is_some_and(|it| version_of(it) >= *version)
                });
                // What the list lacks is gone, or was made after it.
                let left = now.iter().all(|(key, object)| {
                    key.resource != kind.plural
                        || wanted.contains_key(key)
                        || version_of(object) > listed_at
                });
                arrived && left
            };
            let done = self.reaches(caught_up, Duration::from_secs(10)).await?;
            ensure!(done, "the watch of {} did not catch up", kind.plural);
        }
        let calls: Vec<Call> = actors.iter().flat_map(Handle::calls).collect();
        let log = locked(&self.log);
        let mut seen = log.seen.clone();
        seen.sort_by_key(|it| it.version);
        Ok(History::new(log.start.clone(), &seen, &calls, self.began))
    }
}

async fn follow(
    watched: &Watched,
    mut from: String,
    log: &Mutex<Log>,
    changed: &watch::Sender<u64>,
) -> anyhow::Result<()> {
    let Watched { api, kind, .. } = watched;
    let (mut broken_since, mut began) = (None, false);
    loop {
        let opened = api.watch(&WatchParams::default(), &from).await;
        let mut stream = match opened {
            Ok(stream) => stream.boxed(),
            Err(error) => futures_util::stream::once(async { Err(error) }).boxed(),
        };
        while let Some(event) = stream.next().await {
            let event = match event {
                Ok(event) => event,
                // What the server says stands; a connection that broke is made anew.
                Err(error) => {
                    let since = *broken_since.get_or_insert_with(Instant::now);
                    if matches!(error, kube::Error::Api(_)) || since.elapsed() > BROKEN {
                        return Err(error).with_context(|| format!("watch from version {from}"));
                    }
                    tokio::time::sleep(RETRY).await;
                    break;
                }
            };
            broken_since = None;
            let (object, gone) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(mark) => {
                    from = mark.metadata.resource_version;
                    continue;
                }
                // A kind that nobody watched before has a cache that begins later than the list.
                WatchEvent::Error(status) if !began && status.code == 410 => {
                    from = watched.still_at_the_beginning(log).await?;
                    break;
                }
                WatchEvent::Error(status) => {
                    return Err(anyhow!("version {from} is lost: {}", status.message));
                }
            };
            began = true;
            from = object.metadata.resource_version.clone().unwrap_or(from);
            if !watched.concerns(&object) {
                continue;
            }
            let key = key_of(kind, &object);
            let mut log = locked(log);
            if gone {
                log.now.remove(&key);
            } else {
                log.now.insert(key.clone(), object.clone());
            }
            log.seen.push(Seen {
                version: version_of(&object),
                key,
                object: (!gone).then_some(object),
                at: Instant::now(),
            });
            drop(log);
            changed.send_modify(|count| *count += 1);
        }
    }
}

fn key_of(kind: &ApiResource, object: &DynamicObject) -> Key {
    Key {
        resource: kind.plural.clone(),
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

fn version_of(object: &DynamicObject) -> u64 {
    let version = object.metadata.resource_version.as_deref();
    version.and_then(|it| it.parse().ok()).unwrap_or_default()
}

/// One write that the server carried out.
#[derive(Clone, Debug)]
pub struct Write {
    /// Who, with the number of its write if its client was one of ours: `replica-b, write 3`.
    pub by: String,
    /// What: `changed seats/a`.
    pub what: String,
    /// Which fields, old and new.
    pub changes: Vec<String>,
    /// Its resourceVersion.
    pub version: u64,
    /// Since the observation began.
    pub after: Duration,
    key: Key,
    object: Option<DynamicObject>,
}

impl fmt::Display for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {:<22} {}", moment(self.after), self.by, self.what)?;
        if !self.changes.is_empty() {
            write!(out, ": {}", self.changes.join(", "))?;
        }
        Ok(())
    }
}

/// What can happen to an object as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It was made.
    Made,
    /// Somebody asked for its deletion; finalizers still hold it.
    Going,
    /// It is gone.
    Gone,
}

/// The writes of all actors in the order of etcd.
pub struct History {
    start: World,
    /// Oldest first.
    pub writes: Vec<Write>,
}

impl History {
    fn new(start: World, seen: &[Seen], calls: &[Call], began: Instant) -> Self {
        let mut world = start.clone();
        let mut writes = Vec::new();
        for it in seen {
            let before = match &it.object {
                Some(object) => world.insert(it.key.clone(), object.clone()),
                None => world.remove(&it.key),
            };
            let verb = match (&before, &it.object) {
                (_, None) => "deleted",
                (None, Some(_)) => "created",
                (Some(_), Some(_)) => "changed",
            };
            let changes = match (&before, &it.object) {
                (Some(before), Some(after)) => changes(before, after),
                _ => Vec::new(),
            };
            writes.push(Write {
                by: writer(it, before.as_ref(), calls),
                what: format!("{verb} {}", it.key),
                changes,
                version: it.version,
                after: it.at.saturating_duration_since(began),
                key: it.key.clone(),
                object: it.object.clone(),
            });
        }
        Self { start, writes }
    }

    /// Which objects came and went, across kinds, in the order of etcd.
    pub fn turns(&self) -> Vec<(Turn, &Key)> {
        let mut known: BTreeMap<&Key, Turn> =
            self.start.keys().map(|key| (key, Turn::Made)).collect();
        let mut turns = Vec::new();
        for write in &self.writes {
            let now = match &write.object {
                None => Turn::Gone,
                Some(object) if object.metadata.deletion_timestamp.is_some() => Turn::Going,
                Some(_) => Turn::Made,
            };
            if known.insert(&write.key, now) != Some(now) {
                turns.push((now, &write.key));
            }
        }
        turns
    }

    /// The world as it is after the last write.
    pub fn end(&self) -> World {
        let mut world = self.start.clone();
        for write in &self.writes {
            write.apply(&mut world);
        }
        world
    }

    /// The first write after which an invariant did not hold.
    pub fn check(&self, invariants: &[Invariant]) -> Option<Violation> {
        let (mut before, mut world) = (self.start.clone(), self.start.clone());
        for (index, write) in self.writes.iter().enumerate() {
            write.apply(&mut world);
            for invariant in invariants {
                if let Err(what) = (invariant.check)(&before, &world) {
                    return Some(Violation {
                        invariant: invariant.name.clone(),
                        what,
                        actor: write.by.clone(),
                        write: write.what.clone(),
                        timeline: self.timeline(Some(index)),
                    });
                }
            }
            write.apply(&mut before);
        }
        None
    }

    /// One line for each write, with a mark before the one that matters.
    pub fn timeline(&self, marked: Option<usize>) -> String {
        let mut text = String::new();
        for (index, write) in self.writes.iter().enumerate() {
            let mark = if marked == Some(index) { ">" } else { " " };
            let _ = writeln!(text, "{mark} {:>3} {write}", index + 1);
        }
        text
    }
}

impl Write {
    fn apply(&self, world: &mut World) {
        match &self.object {
            Some(object) => world.insert(self.key.clone(), object.clone()),
            None => world.remove(&self.key),
        };
    }
}

/// Who made this version: the client that was answered it, else the field manager it bears.
fn writer(seen: &Seen, before: Option<&DynamicObject>, calls: &[Call]) -> String {
    let named = |call: &Call| match call.write {
        Some(write) => format!("{}, write {write}", call.actor),
        None => call.actor.clone(),
    };
    if let Some(call) = calls.iter().find(|call| call.version == Some(seen.version)) {
        return named(call);
    }
    // The answer to a deletion that took effect at once holds no version.
    let deleted = |call: &&Call| {
        call.method == http::Method::DELETE
            && call.status.is_some_and(|status| status.is_success())
            && call.path.ends_with(&format!("/{}", seen.key))
            && call.path.contains(&seen.key.namespace)
    };
    if seen.object.is_none()
        && let Some(call) = calls.iter().rev().find(deleted)
    {
        return named(call);
    }
    let managed = seen.object.as_ref().or(before);
    let managed = managed.and_then(|object| object.metadata.managed_fields.as_ref());
    managed
        .and_then(|entries| entries.iter().max_by_key(|entry| entry.time.clone()))
        .and_then(|entry| entry.manager.clone())
        .map_or_else(|| "somebody".to_owned(), |manager| format!("somebody ({manager})"))
}

/// An invariant that a write broke.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule.
    pub invariant: String,
    /// What is wrong, in the words of the check.
    pub what: String,
    /// Who wrote.
    pub actor: String,
    /// What it wrote.
    pub write: String,
    /// All writes, the one that broke it marked.
    pub timeline: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "broken: {}", self.invariant)?;
        writeln!(out, "        {}", self.what)?;
        writeln!(out, "by:     {}, which {}", self.actor, self.write)?;
        write!(out, "{}", self.timeline)
    }
}
