//! All writes. Each insists on the version of the object that was decided on, or that an earlier step of the same piece
//! left.

mod build;
mod entries;
mod steps;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use api_types::hive::{ClusterDeploymentCustomization, ClusterPool, ClusterPoolStatus};
use api_types::names;
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::{Error, Event, Next, Outcome, Reason as _, written};
use futures_util::{Stream, StreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::access::Change;
use crate::context::Context;
use crate::decision::{Step, Version, Work};
use crate::model::{Efforts, Key, LOOK_COUNTS, Look, Memory, Object, SETTLING, Wish, Write};
use crate::observe::live_pool;
use crate::reason::Reason;
use crate::seen::Refusal;
use crate::{status, text};

/// Pieces of work that are carried out at the same time.
const AT_ONCE: usize = 32;
/// For how long a status that is news waits at most, and while there is work: it tells of every entry, which makes it the
/// slowest write, and the next pass waits until the caches show it.
const STATUS_WAITS: Duration = Duration::from_secs(1);
/// And without work, for each entry that it tells of: while a long one is written nobody gets a cluster.
const WAIT_PER_ENTRY: Duration = Duration::from_micros(500);

/// Carries out what was decided about a pool. Work, status and bindings do not depend on each other: if one fails, the others
/// are written all the same.
pub async fn all(
    context: &Context,
    key: &Key,
    look: &Look,
    write: &Write,
    memory: &mut Memory,
) -> Result<Outcome, Error> {
    let pass = Pass { context, key, look };
    if !write.work.is_empty() {
        pass.last_look(memory).await?;
        if context.rival(memory, Timestamp::now()).is_some() {
            return Ok(Outcome { next: Some(Next::Now), ..Outcome::default() });
        }
    }
    let rest = status_rests(write, memory, Instant::now());
    let writes_pool = write.work.iter().flat_map(|it| &it.steps).any(Step::is_on_pool);
    // A write to the pool moves its version, which the status insists on; the next pass stores it.
    let news = write.status.as_ref().filter(|_| !writes_pool);
    let mut due = news.filter(|_| rest.is_none());
    // The status tells what was seen before the work, and nothing of the work relies on it.
    let (mut worked, mut stored, bound) =
        tokio::join!(pass.work(&write.work, memory), pass.store(due), pass.bind_all());
    if worked.failure.is_some() && due.is_none() {
        // Nobody knows when there will be a pass without a failure.
        due = news;
        stored = pass.store(due).await;
    }
    let mut outcome = Outcome { others: std::mem::take(&mut worked.notes), ..Outcome::default() };
    match stored {
        Ok(Some(version)) => {
            worked.pool = Some(version);
            memory.news_since = None;
            pass.log(write);
            outcome.events.extend(write.told_with_status());
        }
        Ok(None) => {}
        Err(error) => worked.failed(error),
    }
    worked.cut |= bound.len() < look.bindings.len();
    bound.into_iter().filter_map(Result::err).for_each(|error| worked.failed(error));
    if let Some(version) = &worked.pool {
        let before = look.pool.as_ref().and_then(|it| it.metadata.resource_version.as_deref());
        memory.pool_was_written(before, Some(version));
        memory.echoes.wrote(Object::Pool(key.clone()), version, false);
    }
    if worked.superseded {
        context.metrics.superseded();
    }
    // What is refused is not to be asked for every second.
    let later = (worked.not_yet && worked.failure.is_none()).then_some(SETTLING);
    let waits = [later, rest].into_iter().flatten().min();
    outcome.next = if worked.cut || worked.pool.is_some() {
        Some(Next::Now)
    } else {
        waits.map(|it| Next::After(look.wait.map_or(it, |wait| wait.min(it))))
    };
    outcome.version = worked.pool;
    let refused = memory.efforts.ended(worked.failure.as_ref().filter(|_| look.pool.is_some()));
    outcome.events.extend(refused.map(text::refused));
    outcome.failed = worked.failure.or(worked.superseded.then_some(Error::Superseded));
    Ok(outcome)
}

/// For how long a status that is news waits, if it does. What the next pass decides by is stored at once.
fn status_rests(write: &Write, memory: &mut Memory, now: Instant) -> Option<Duration> {
    let Some(status) = &write.status else {
        memory.news_since = None;
        return None;
    };
    let age = now.saturating_duration_since(*memory.news_since.get_or_insert(now));
    let entries = u32::try_from(status.inventory.len()).unwrap_or(u32::MAX);
    let wait = match write.again {
        Some(Duration::ZERO) => Duration::ZERO,
        _ if write.work.is_empty() => WAIT_PER_ENTRY.saturating_mul(entries).min(STATUS_WAITS),
        _ => STATUS_WAITS,
    };
    wait.checked_sub(age).filter(|left| !left.is_zero())
}

/// The writes of one pass.
pub(crate) struct Pass<'a> {
    context: &'a Context,
    key: &'a Key,
    look: &'a Look,
}

/// Why something was not written.
enum Stop {
    /// Something of before is still on its way out: look again later.
    NotYet,
    /// The cluster cannot have its name, for ever.
    NameLost(Error),
    /// Anything else, also that somebody else wrote first.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Stop {
    /// Somebody else wrote first.
    const SUPERSEDED: Self = Self::Failed(Error::Superseded);

    /// Nothing can come of it as it is, until somebody changes what is told.
    fn refused(told: String) -> Self {
        Self::Failed(Error::Other(told, Retry::Transient))
    }

    /// The cluster has to get another name.
    fn name_lost(told: String) -> Self {
        Self::NameLost(Error::Other(told, Retry::Transient))
    }
}

/// A piece of work as it is carried out, and what its steps left so far. They write one customization and one cluster at most.
struct Piece<'a> {
    pass: &'a Pass<'a>,
    /// The customization as it is now.
    entry: Option<ClusterDeploymentCustomization>,
    /// The version of the cluster.
    cluster: Option<String>,
    unpaused: bool,
    /// What the author of a new cluster's patches has to know.
    notes: Option<(ObjectReference, Event)>,
    /// The version of the pool, if that was written and stays.
    pool: Option<String>,
    /// For the caches to show: the version, and whether the object may be gone with it.
    wrote: Vec<(Object, String, bool)>,
}

impl<'a> Piece<'a> {
    fn of(pass: &'a Pass<'a>) -> Self {
        Self {
            pass,
            entry: None,
            cluster: None,
            unpaused: false,
            notes: None,
            pool: None,
            wrote: Vec::new(),
        }
    }

    fn note(&mut self, object: Object, version: Option<String>, may_go: bool) {
        self.wrote.extend(version.map(|version| (object, version, may_go)));
    }
}

/// What came of all pieces.
#[derive(Default)]
struct Worked {
    superseded: bool,
    not_yet: bool,
    /// Whether something was left for the next pass.
    cut: bool,
    notes: Vec<(ObjectReference, Event)>,
    pool: Option<String>,
    failure: Option<Error>,
}

impl Worked {
    fn failed(&mut self, error: Error) {
        if matches!(error, Error::Superseded) {
            self.superseded = true;
        } else if self.failure.is_none() {
            self.failure = Some(error);
        }
    }

    fn stopped(&mut self, stop: Stop) {
        match stop {
            Stop::NotYet => self.not_yet = true,
            Stop::NameLost(error) | Stop::Failed(error) => self.failed(error),
        }
    }
}

impl Pass<'_> {
    /// Before anything is written: the pool is the one that was decided about.
    async fn last_look(&self, memory: &mut Memory) -> Result<(), Error> {
        let pool = self.look.pool.as_deref();
        if memory.told_just_now().is_some_and(|it| it.is_as_seen(pool))
            || live_pool(self.client(), self.key, memory).await?.is_as_seen(pool)
        {
            return Ok(());
        }
        self.context.metrics.superseded();
        Err(Error::Superseded)
    }

    /// Carries out all pieces, so many at a time, the next as soon as one is done.
    async fn work(&self, work: &[Work], memory: &mut Memory) -> Worked {
        let mut worked = Worked::default();
        let piece = |place: usize| async move {
            let mut piece = Piece::of(self);
            let result = piece.carry_out(&work[place]).await;
            (&work[place], result, piece)
        };
        let goes_on = self.goes_on();
        let mut pieces = std::pin::pin!(side_by_side(work.len(), goes_on, piece));
        let mut ended = 0;
        while let Some((work, result, piece)) = pieces.next().await {
            ended += 1;
            worked.pool = worked.pool.take().or(piece.pool);
            worked.notes.extend(piece.notes);
            for (object, version, may_go) in piece.wrote {
                memory.echoes.wrote(object, &version, may_go);
            }
            memory.efforts.note(work, result.as_ref().err(), self.look.at);
            match result {
                Ok(()) => self.done(work),
                Err(stop) => {
                    tracing::debug!(work = ?work, "Stopped");
                    worked.stopped(stop);
                }
            }
        }
        worked.cut = ended < work.len();
        worked
    }

    /// Whether more is begun, asked before each: for some seconds, unless there is news.
    fn goes_on(&self) -> impl Fn() -> bool {
        let start = Instant::now();
        move || start.elapsed() < LOOK_COUNTS && !self.is_news()
    }

    /// Whether there is something that is not to wait for all of the work: a claim that came or went, or another wish for
    /// the pool.
    fn is_news(&self) -> bool {
        let wish = |it: Option<&ClusterPool>| Wish::of(it.map(|it| &it.metadata));
        let now = self.context.caches.pools.get(self.key);
        wish(now.as_deref()) != wish(self.look.pool.as_deref())
            || self.context.index.with(|index| index.claims.of(self.key).count())
                != self.look.seen.claims.len()
    }

    /// A piece of work was carried out.
    fn done(&self, work: &Work) {
        let metrics = &self.context.metrics;
        metrics.worked(self.key, work.reason);
        for step in &work.steps {
            if let Step::Assign { claim, .. } = step
                && let Some(claim) = self.look.seen.claim(claim)
            {
                metrics.claimed(self.key, self.look.at.duration_since(claim.created).as_secs_f64());
            }
        }
    }

    /// Stores the pool's status, unless somebody wrote to the pool since. Gives the version of the pool after it.
    async fn store(&self, wanted: Option<&ClusterPoolStatus>) -> Result<Option<String>, Error> {
        let (Some(wanted), Some(pool)) = (wanted, &self.look.pool) else { return Ok(None) };
        let patch = status::patch(&self.look.seen.pool.status, wanted);
        let at = pool.metadata.resource_version.as_deref().unwrap_or_default();
        let pools = self.api::<ClusterPool>(&self.key.namespace);
        let written =
            patch_status(&pools, &self.key.name, at, &patch, "patch a pool's status").await?;
        Ok(written.metadata.resource_version)
    }

    /// What somebody has to correct.
    fn log(&self, write: &Write) {
        let mistakes = [Reason::EntryMissing, Reason::BrokenByConfiguration].map(Reason::as_str);
        for told in write.events.iter().filter(|it| mistakes.contains(&&*it.reason)) {
            tracing::error!(
                object.namespace = self.key.namespace,
                object.name = self.key.name,
                entry = told.action,
                reason = told.text,
                "An entry cannot be used"
            );
        }
    }

    /// The same in all namespaces of its clusters. A webhook that hangs for one would else keep claims from being served for as
    /// long as there are namespaces.
    async fn bind_all(&self) -> Vec<Result<(), Error>> {
        let all = &self.look.bindings;
        let bind = |place: usize| {
            let (cluster, change) = &all[place];
            self.bind(cluster, change)
        };
        side_by_side(all.len(), self.goes_on(), bind).collect().await
    }

    /// Lets a pool's administrators into a cluster's namespace, or out of it.
    async fn bind(&self, cluster: &str, change: &Change) -> Result<(), Error> {
        const WHAT: &str = "bind administrators";
        let api = self.api::<RoleBinding>(cluster);
        match change {
            Change::Create(object) => match build::create(&api, object, WHAT).await {
                // Nobody is let into what goes.
                Ok(Some(_)) | Err(Stop::NotYet) => Ok(()),
                Ok(None) => Err(Error::Superseded),
                Err(Stop::NameLost(error) | Stop::Failed(error)) => Err(error),
            },
            Change::Patch(patch) => {
                let (name, params) = (names::hive::POOL_ADMIN_BINDING, PatchParams::default());
                written(WHAT, api.patch(name, &params, &Patch::Merge(patch))).await.map(drop)
            }
        }
    }

    fn client(&self) -> &Client {
        &self.context.kit.client
    }

    /// Objects of a namespace.
    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client().clone(), namespace)
    }
}

/// Does so many things, some at a time, the next as soon as one is done. Some are begun whatever comes, or many claims would keep
/// all else from being done; the others as long as it goes on.
fn side_by_side<F: Future>(
    count: usize,
    goes_on: impl Fn() -> bool,
    thing: impl Fn(usize) -> F,
) -> impl Stream<Item = F::Output> {
    let is_next = move |place: &usize| std::future::ready(*place < AT_ONCE || goes_on());
    stream::iter(0..count).take_while(is_next).map(thing).buffer_unordered(AT_ONCE)
}

impl Efforts {
    /// Whether the API server or a webhook does not want it (by a rule, a quota, a lack of rights, or because the webhook does
    /// not answer), or nothing can come of it as it is. A single write without an answer proves nothing, as the API server may be
    /// slow for a moment. A webhook that hangs is silent in the next pass as well.
    fn is_refused(&self, error: &Error) -> bool {
        let before = self.unanswered || self.refused.is_some();
        error.is_refusal() || matches!(error, Error::Other(..)) || before && error.may_last()
    }

    /// Takes notice of why a pass failed, if it did. Gives that if it is a refusal.
    fn ended<'e>(&mut self, failure: Option<&'e Error>) -> Option<&'e Error> {
        let refused = failure.filter(|it| self.is_refused(it));
        let first = self.refused.take();
        self.refused = refused.map(|it| first.unwrap_or_else(|| it.to_string()));
        self.unanswered = matches!(failure, Some(Error::Silent(_)));
        refused
    }

    /// Takes notice of a piece of work that ended, and why it did not come to its end. A name that cannot be had is not tried
    /// for ever, and what is refused is told on the entry.
    fn note(&mut self, work: &Work, stopped: Option<&Stop>, now: Timestamp) {
        self.tended.extend(work.tends().map(|it| (it.to_owned(), now)));
        let Some((cluster, entry)) = work.creates() else { return };
        match stopped {
            None => {
                self.begun.remove(cluster);
                if let Some(entry) = entry {
                    self.turned_down.remove(&entry.name);
                }
                return;
            }
            Some(Stop::NameLost(_)) => drop(self.taken.insert(cluster.to_owned())),
            Some(Stop::Failed(error)) if self.is_refused(error) => {
                if let Some(Version { name, version }) = entry.cloned() {
                    self.turned_down.insert(name, Refusal { version, why: error.to_string() });
                }
            }
            Some(Stop::NotYet | Stop::Failed(_)) => {}
        }
        if entry.is_none() {
            self.begun.insert(cluster.to_owned());
        }
    }
}

/// Patches an object at this version. Gives the version that it has after it.
async fn patch<K>(
    api: &Api<K>,
    name: &str,
    at: &str,
    mut patch: Value,
    what: &'static str,
) -> Result<Option<String>, Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    patch["metadata"]["resourceVersion"] = json!(at);
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let left = written(what, api.patch_metadata(name, &params, &patch)).await?;
    Ok(left.metadata.resource_version)
}

/// Patches the status of an object at this version. Gives the object as it is after it.
async fn patch_status<K>(
    api: &Api<K>,
    name: &str,
    at: &str,
    status: &Value,
    what: &'static str,
) -> Result<K, Error>
where
    K: DeserializeOwned,
{
    let patch = json!({ "metadata": { "resourceVersion": at }, "status": status });
    written(what, api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch))).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use api_types::hive::EntryState;

    use super::*;
    use crate::patch;

    #[tokio::test]
    async fn so_many_things_are_done_at_a_time_and_no_more_are_begun_once_it_is_to_end() {
        let count = AtomicUsize::new(0);
        let hangs = |_| {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100))
        };
        let began = Instant::now();
        let ended: Vec<()> = side_by_side(1_000, || false, hangs).collect().await;
        assert_eq!((ended.len(), count.into_inner()), (AT_ONCE, AT_ONCE));
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        let ended: Vec<()> = side_by_side(100, || true, |_| std::future::ready(())).collect().await;
        assert_eq!(ended.len(), 100);
    }

    #[test]
    fn a_long_status_rests_longer_and_never_for_more_than_a_second() {
        let now = Instant::now();
        let left = |entries: u32, age: u64| {
            let state = |it: u32| (it.to_string(), EntryState::default());
            let inventory = (0..entries).map(state).collect();
            let status = Some(ClusterPoolStatus { inventory, ..ClusterPoolStatus::default() });
            let news_since = now.checked_sub(Duration::from_millis(age));
            let mut memory = Memory { news_since, ..Memory::default() };
            let left = status_rests(&Write { status, ..Write::default() }, &mut memory, now);
            left.map(|it| it.as_millis())
        };
        assert_eq!((left(0, 0), left(2, 0), left(2, 1)), (None, Some(1), None));
        assert_eq!((left(1_000, 100), left(1_000, 500)), (Some(400), None));
        assert_eq!((left(100_000, 100), left(100_000, 1_000)), (Some(900), None));
    }

    #[test]
    fn a_status_that_is_news_waits_for_work_and_one_that_is_decided_by_does_not() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        let work = || Work { reason: Reason::Power, steps: Vec::new() };
        let mut write = Write {
            status: Some(ClusterPoolStatus::default()),
            work: vec![work()],
            ..Write::default()
        };
        let mut left = |write: &Write, age: u64| {
            let left = status_rests(write, &mut memory, now + Duration::from_millis(age));
            (left.map(|it| it.as_millis()), memory.news_since.is_some())
        };
        assert_eq!(left(&write, 0), (Some(1_000), true));
        assert_eq!(left(&write, 400), (Some(600), true));
        write.again = Some(Duration::ZERO);
        assert_eq!(left(&write, 400), (None, true));
        write.again = None;
        assert_eq!(left(&write, 1_000), (None, true), "it waited for a second");
        write.status = None;
        assert_eq!(left(&write, 1_000), (None, false));
    }

    #[test]
    fn what_only_a_person_can_help_with_is_told_also_a_quota_and_a_webhook_that_does_not_answer() {
        let of = |code: u16, message: &str| {
            let status = kube::core::Status::failure(message, "").with_code(code);
            let source = Box::new(kube::Error::Api(Box::new(status)));
            Efforts::default().is_refused(&Error::Api { what: "make a namespace", source })
        };
        assert!([400, 403, 422].into_iter().all(|code| of(code, "no")));
        assert!(of(500, "Internal error occurred: failed calling webhook \"a.b\": refused"));
        assert!(![404, 409, 429, 500, 503, 504].into_iter().any(|code| of(code, "busy")));
        let told = [text::name_taken("a"), text::not_patched("a", &patch::Refusal::TooLarge)];
        let is_told = |it: String| matches!(Stop::refused(it), Stop::Failed(it) if Efforts::default().is_refused(&it));
        assert!(told.into_iter().all(is_told));
    }

    /// One that has longer than we wait for a write: nobody says that it was a webhook.
    #[test]
    fn a_webhook_that_hangs_is_told_from_the_second_pass_on() {
        let version = Version { name: "e".to_owned(), version: "1-u".to_owned() };
        let create = Step::Create { cluster: "c".to_owned(), entry: Some(version), run: None };
        let work = Work { reason: Reason::Added, steps: vec![create] };
        let silent = || Error::Silent("create a cluster");
        let mut efforts = Efforts::default();
        for is_told in [false, true, true] {
            efforts.note(&work, Some(&Stop::Failed(silent())), Timestamp::UNIX_EPOCH);
            assert_eq!(efforts.turned_down.contains_key("e"), is_told);
            assert_eq!(efforts.ended(Some(&silent())).is_some(), is_told);
            assert_eq!(efforts.refused.is_some(), is_told);
        }
        efforts.note(&work, None, Timestamp::UNIX_EPOCH);
        assert!(efforts.ended(None).is_none() && efforts == Efforts::default());
    }
}
