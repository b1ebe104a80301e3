//! One pass over a pool: look, decide, do, and say when to look again.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::hive::ClusterPool;
use api_types::names;
use controller_kit::api_error;
use controller_kit::backoff;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::runtime::controller::Action;

use crate::act::{Outcome, Pass, Piece};
use crate::context::{Context, key_of};
use crate::decide::{decide, instead};
use crate::decision::{Decision, Event, Step, Work};
use crate::error::Error;
use crate::index::{Key, all_in};
use crate::observe::{Known, Live, Materials, cached, observe};
use crate::reason::Reason;
use crate::seen::{Cluster, Observed, Refusal, Status};
use crate::{access, make, trial};

/// How soon to look again after somebody else wrote first, at most.
const RETRY: Duration = Duration::from_millis(50);
/// Twice as late each time in a row: what is in the way may stay. A change that the caches show is looked at at once.
const MOST_DOUBLINGS: u32 = 8;
/// How soon to look again when a namespace of before is still on its way out.
const LATER: Duration = Duration::from_secs(1);
/// The cache shows our own writes long before; its change wakes the pool.
const ECHO: Duration = Duration::from_millis(500);
/// How often a pool that lacks something is looked at, and one at rest.
const LACKING: Duration = Duration::from_secs(10);
const AT_REST: Duration = Duration::from_secs(300);
/// And one with an entry whose patches are refused: the template that they are applied to may be corrected.
const REFUSED: Duration = Duration::from_secs(30);
/// Pieces of work that are carried out at the same time.
const AT_ONCE: usize = 32;
/// For how long a pass begins pieces of work: the last look at the pool is not to be older.
const BEGINNING: Duration = Duration::from_secs(5);
/// For how long a status waits for work: it tells of every entry, which makes it the slowest write, and the next pass
/// waits until the caches show it.
const STATUS: Duration = Duration::from_secs(1);
/// For how long the status of a pool rests after it was stored, for each entry that it tells of: while a long one is written
/// nobody gets a cluster.
const REST_PER_ENTRY: Duration = Duration::from_micros(500);

/// Spread, or those who met once meet again.
fn soon(wait: Duration) -> Action {
    Action::requeue(wait.mul_f64(0.3 + 0.7 * backoff::random_unit()))
}

/// One pass over a pool, which may be gone.
pub(crate) async fn reconcile(
    stub: Arc<ClusterPool>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let key = key_of(&*stub);
    if context.stores.broken_pools.get(Some(&key.0), &key.1).is_some() {
        return Ok(Action::await_change());
    }
    if context.is_behind(&key) {
        return Ok(Action::requeue(ECHO));
    }
    let pool = cached(&context.stores.pools, &key);
    if !context.is_ours(&key, pool.as_deref()) {
        // It may have been ours before.
        context.metrics.gone(&key);
        if pool.is_none() {
            context.forget(&key);
        }
        return Ok(Action::await_change());
    }
    let look = match &pool {
        Some(pool) => context.look(&key, pool).await?,
        None => None,
    };
    let now = Timestamp::now();
    // What the last pass left is much and of use to this pass alone: it is taken out and put back.
    let mut remembered = context.recall(&key);
    let rival = context.rival(remembered.rival, now);
    let known = Known {
        policy: &context.policy,
        materials: &remembered.materials,
        rival: rival.as_ref().map(|(note, _)| note.clone()),
        begun: &remembered.begun,
        taken: &remembered.taken,
        turned_down: &remembered.turned_down,
        tended: &remembered.tended,
        now,
    };
    let last = &mut remembered.last;
    let (seen, due) = observe(&context.stores, &context.index(), &key, &known, last);
    let decision = decide(&seen, &context.policy, now);
    if pool.is_some() {
        context.metrics.seen(&key, &seen);
        if let Some(memory) = context.memory().get_mut(&key) {
            memory.last = std::mem::take(&mut remembered.last);
            // Those with a cluster are not among them.
            memory.begun.retain(|it| seen.namespaces.iter().any(|left| left.name == *it));
            if !memory.tended.is_empty() {
                let waiting = seen.clusters.iter().filter(|it| it.is_installing());
                let waiting: HashSet<&str> = waiting.map(|it| it.name.as_str()).collect();
                memory.tended.retain(|name, _| waiting.contains(name.as_str()));
            }
        }
    } else if decision.work.is_empty() && is_nothing(&seen, &key) {
        if due.is_none() {
            context.forget(&key);
        }
        context.metrics.without_pool(&key, &seen);
        return Ok(due.map_or_else(Action::await_change, Action::requeue));
    }
    tracing::debug!(
        object.namespace = key.0,
        object.name = key.1,
        work = ?decision.work,
        "Decided"
    );
    let acting = Acting { context: &context, key: &key, pool: pool.as_deref(), seen: &seen };
    let outcome = acting.carry_out(&decision, &remembered.materials, now).await;
    let rest = rest(&seen);
    if pool.is_some()
        && let Some(memory) = context.memory().get_mut(&key)
    {
        memory.last.seen = seen;
    }
    let mut outcome = outcome?;
    let waits = [decision.again, due, rival.map(|(_, left)| left), look];
    let wait = waits.into_iter().flatten().min();
    if pool.is_some() {
        outcome.wait = outcome.wait.or(Some(rest));
    }
    let wait = [outcome.wait, wait].into_iter().flatten().min();
    if outcome.superseded {
        context.metrics.superseded();
        let times = context.superseded(&key);
        let wait = RETRY * 2_u32.pow(times.min(MOST_DOUBLINGS));
        return Ok(soon(if outcome.not_yet { LATER.max(wait) } else { wait }));
    }
    context.not_superseded(&key);
    Ok(wait.map_or_else(Action::await_change, Action::requeue))
}

/// When to look again at what is not watched.
fn rest(seen: &Observed) -> Duration {
    if !seen.missing.is_empty() {
        LACKING
    } else if seen.customizations.iter().any(|it| it.refused.is_some()) {
        REFUSED
    } else {
        AT_REST
    }
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

#[derive(Default)]
struct Worked {
    superseded: bool,
    not_yet: bool,
    /// Whether something was left for the next pass.
    cut: bool,
    failed: Option<Error>,
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
        materials: &Materials,
        now: Timestamp,
    ) -> Result<Carried, Error> {
        let context = self.context;
        let mut carried = Carried::default();
        let bindings = self.bindings();
        if decision.status.is_none() {
            context.status_stored(self.key);
        }
        if decision.work.is_empty() && decision.status.is_none() && bindings.is_empty() {
            self.publish(&decision.events);
            self.publish_notes(None);
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
            materials,
            policy: &context.policy,
        };
        let pass = &pass;
        if decision.goes_on {
            carried.wait = Some(Duration::ZERO);
        }
        let status = decision.status.as_ref().filter(|_| !pool_was_written(&decision.work));
        let rest = self.may_wait(decision);
        let status = status.filter(|_| rest.is_none());
        if status.is_none() && decision.status.is_some() {
            carried.wait = carried.wait.or(rest).or(Some(STATUS));
        }
        // The status tells what was seen before the work, and nothing of the work relies on it.
        let storing = self.store(pass, status);
        let working = self.work(pass, &decision.work, now);
        let (worked, mut stored) = tokio::join!(working, storing);
        carried.superseded |= worked.superseded;
        carried.not_yet |= worked.not_yet;
        if worked.cut {
            carried.wait = Some(Duration::ZERO);
        }
        let mut failed = worked.failed;
        for (cluster, change) in &bindings {
            match pass.bind(cluster, change).await {
                Ok(outcome) => carried.superseded |= outcome == Outcome::Superseded,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let mut status = status;
        if failed.is_some() && status.is_none() {
            // Nobody knows when there will be a pass without a failure.
            status = decision.status.as_ref();
            stored = self.store(pass, status).await;
        }
        match (status, stored?) {
            (Some(status), Some(Outcome::Done)) => {
                context.status_stored(self.key);
                context.status_is_fresh(self.key);
                self.publish(&decision.events);
                self.publish_notes(Some(status));
            }
            (Some(_), _) => carried.superseded = true,
            (None, _) if decision.status.is_none() => {
                self.publish(&decision.events);
                self.publish_notes(None);
            }
            (None, _) => {}
        }
        match failed {
            None => Ok(carried),
            Some(error) => {
                self.tell_refused(&error).await;
                Err(error)
            }
        }
    }

    async fn store(
        &self,
        pass: &Pass<'_>,
        status: Option<&Status>,
    ) -> Result<Option<Outcome>, Error> {
        let mut piece = Piece::default();
        let Some(status) = status else { return Ok(None) };
        let stored = pass.store(status, &mut piece).await?;
        self.wrote(piece);
        Ok(Some(stored))
    }

    /// What was written is ours, and the caches are to show it.
    fn wrote(&self, piece: Piece) {
        let before = self.pool.and_then(|it| it.metadata.resource_version.as_deref());
        self.context.wrote(self.key, before, piece.wrote);
    }

    /// What only a person can help with.
    async fn tell_refused(&self, error: &Error) {
        let Some(pool) = self.pool.filter(|_| is_refused(error)) else { return };
        let reference = pool.object_ref(&());
        let note = error.to_string();
        let action = make::action("Write", &note);
        self.context.kit.events.warning(&reference, "Refused", &action, &note).await;
    }

    /// A name that cannot be had is not tried for ever, and what is refused is told on the entry.
    fn bear_in_mind(&self, error: &Error, work: &Work) {
        let mut all = self.context.memory();
        let Some(memory) = all.get_mut(self.key) else { return };
        if let Error::Taken(name) | Error::Unusable(name) = error {
            memory.taken.insert(name.clone());
        } else if let Some(entry) = work.makes().filter(|_| is_refused(error)) {
            let refusal = Refusal { version: entry.version.clone(), why: error.to_string() };
            memory.turned_down.insert(entry.name.clone(), refusal);
        }
    }

    /// For how long the status may wait, if it may: for the work, or because it was stored a moment ago and is long. What the
    /// next pass decides by is stored at once.
    fn may_wait(&self, decision: &Decision) -> Option<Duration> {
        let status = decision.status.as_ref()?;
        if decision.again == Some(Duration::ZERO) {
            return None;
        }
        let waited = self.context.status_waits(self.key);
        if !decision.work.is_empty() {
            return (waited < STATUS).then_some(STATUS);
        }
        let age = self.context.status_age(self.key)?;
        rest_left(status.inventory.len(), age)
    }

    /// Carries out all pieces, and others in place of those that make a cluster of an entry that somebody else was
    /// faster to lease.
    async fn work(&self, pass: &Pass<'_>, work: &[Work], now: Timestamp) -> Worked {
        let mut worked = Worked::default();
        let mut outrun = self.work_on(pass, work, now, &mut worked).await;
        let mut tried: BTreeSet<String> =
            work.iter().filter_map(|it| it.leases()).map(str::to_owned).collect();
        while outrun > 0 {
            let more = instead(self.seen, &self.context.policy, now, &tried, outrun);
            tried.extend(more.iter().filter_map(|it| it.leases()).map(str::to_owned));
            outrun = self.work_on(pass, &more, now, &mut worked).await;
        }
        worked
    }

    /// Carries out pieces, so many at a time, the next as soon as one is done. Returns how many of them somebody else was
    /// faster with.
    async fn work_on(
        &self,
        pass: &Pass<'_>,
        work: &[Work],
        now: Timestamp,
        worked: &mut Worked,
    ) -> usize {
        let start = Instant::now();
        // Some are begun whatever comes, or many claims would keep all else from being done.
        let is_next = |place: &usize| {
            std::future::ready(*place < AT_ONCE || start.elapsed() < BEGINNING && !self.is_news())
        };
        let pieces = stream::iter(0..work.len()).take_while(is_next).map(|place| {
            self.begin(&work[place], now);
            piece_of(pass, &work[place])
        });
        let mut pieces = std::pin::pin!(pieces.buffer_unordered(AT_ONCE));
        let (mut outrun, mut ended) = (0, 0);
        while let Some((work, result, piece)) = pieces.next().await {
            ended += 1;
            outrun += usize::from(piece.outrun);
            self.wrote(piece);
            match result {
                Ok(Outcome::Done) => self.done(work, now),
                Ok(other) => {
                    tracing::debug!(work = ?work, "Superseded");
                    worked.superseded = true;
                    worked.not_yet |= other == Outcome::NotYet;
                }
                Err(error) => {
                    self.bear_in_mind(&error, work);
                    worked.failed = worked.failed.take().or(Some(error));
                }
            }
        }
        worked.cut |= ended < work.len();
        outrun
    }

    /// Bears in mind what a piece begins.
    fn begin(&self, work: &Work, now: Timestamp) {
        if let Some(memory) = self.context.memory().get_mut(self.key) {
            memory.begun.extend(work.begins().map(str::to_owned));
            memory.tended.extend(work.tends().map(|it| (it.to_owned(), now)));
        }
    }

    /// Whether there is something that is not to wait for all of the work: a claim that came or went, or another wish for
    /// the pool.
    fn is_news(&self) -> bool {
        let wish = |it: &ClusterPool| (it.metadata.uid.clone(), it.metadata.generation);
        let now = cached(&self.context.stores.pools, self.key);
        now.as_deref().map(wish) != self.pool.map(wish)
            || self.context.index().claims.count(self.key) != self.seen.claims.len()
    }

    /// A last look before anything is written: the pool is the one that was decided about, and nobody else's.
    async fn is_as_seen(&self, carried: &mut Carried) -> Result<bool, Error> {
        let context = self.context;
        let as_seen = |live: &Live| live.is_as_seen(self.pool);
        let live = match context.told_just_now(self.key).filter(as_seen) {
            Some(live) => live,
            None => context.live(self.key).await?,
        };
        if !as_seen(&live) {
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
        if let Some(memory) = self.context.memory().get_mut(self.key) {
            if let Some(made) = work.begins() {
                memory.begun.remove(made);
            }
            if let Some(entry) = work.makes() {
                memory.turned_down.remove(&entry.name);
            }
        }
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
        let wanted = access::subjects(of_pool.iter().map(|it| &**it));
        if wanted.is_empty() && index.admins.is_empty() {
            return Vec::new();
        }
        // Where nobody administrates the pool, only those are looked at in which somebody may still administrate.
        let may_change = |it: &&Cluster| !wanted.is_empty() || index.admins.has(&all_in(&it.name));
        let clusters = self.seen.clusters.iter().filter(|it| !it.deleting);
        clusters
            .filter(may_change)
            .filter_map(|it| {
                let key = (it.name.clone(), names::hive::POOL_ADMIN_BINDING.to_owned());
                let change = access::change(&wanted, cached(&stores.bindings, &key).as_deref())?;
                Some((it.name.clone(), change))
            })
            .collect()
    }

    fn publish(&self, events: &[Event]) {
        let Some(pool) = self.pool else { return };
        let now: BTreeSet<Event> = events.iter().cloned().collect();
        let news: Vec<Event> = {
            let mut memory = self.context.memory();
            let Some(known) = memory.get_mut(self.key) else { return };
            let news = now.difference(&known.told).cloned().collect();
            known.told = now;
            news
        };
        for Event { reason, about, note } in news {
            let reference = pool.object_ref(&());
            if matches!(reason, Reason::EntryMissing | Reason::BrokenByConfiguration) {
                tracing::error!(
                    object.namespace = self.key.0,
                    object.name = self.key.1,
                    entry = about,
                    reason = note,
                    "An entry cannot be used"
                );
            }
            // Events of one reason and one action would be taken for one.
            let action = about.as_deref().map_or_else(|| "Decide".to_owned(), make::label);
            self.context.tell(reference, reason.as_str(), action, note);
        }
    }

    /// Patches that were accepted and mean something else than their author may think, once for each version of them and
    /// each template with which they mean another thing. On the customization, since a pool's events of one reason would be
    /// taken for one.
    fn publish_notes(&self, stored: Option<&Status>) {
        let before = &self.seen.pool.status.inventory;
        let news = {
            let mut memory = self.context.memory();
            let Some(known) = memory.get_mut(self.key) else { return };
            trial::news(&mut known.last.trials, before, stored)
        };
        for (name, notes) in news {
            let key = (self.key.0.clone(), name.clone());
            let Some(found) = cached(&self.context.stores.customizations, &key) else { continue };
            let reference: ObjectReference = found.object_ref(&());
            let note = format!("In pool {}: {notes}", self.key.1);
            let action = make::action("Patch", &note);
            self.context.tell(reference, "PatchAdjusted", action, note);
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

/// What is left of the rest of a status that tells of so many entries and was stored so long ago.
fn rest_left(entries: usize, age: Duration) -> Option<Duration> {
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    let rest = REST_PER_ENTRY.saturating_mul(entries).min(STATUS);
    rest.checked_sub(age).filter(|left| !left.is_zero())
}

/// Whether the API server or a webhook does not want it: by a rule, a quota, a lack of rights, or because the webhook does
/// not answer.
fn is_refused(error: &Error) -> bool {
    let Error::Api { source, .. } = error else { return true };
    api_error::is_refusal(source)
}

/// A write to the pool moves its version, which the status insists on; the next pass stores it.
fn pool_was_written(work: &[Work]) -> bool {
    work.iter().flat_map(|it| &it.steps).any(|it| {
        matches!(it, Step::KeepPool { .. } | Step::NoteVersion { .. } | Step::LetPoolGo { .. })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch;
    use crate::seen::Customization;

    #[test]
    fn a_long_status_rests_longer_and_never_for_more_than_a_second() {
        let left =
            |entries, age| rest_left(entries, Duration::from_millis(age)).map(|it| it.as_millis());
        assert_eq!((left(0, 0), left(2, 0), left(2, 1)), (None, Some(1), None));
        assert_eq!((left(1_000, 100), left(1_000, 500)), (Some(400), None));
        assert_eq!((left(100_000, 100), left(usize::MAX, 1_000)), (Some(900), None));
    }

    #[test]
    fn what_only_a_person_can_help_with_is_told_also_a_quota_and_a_webhook_that_does_not_answer() {
        let of = |code: u16, message: &str| {
            let status = kube::core::Status::failure(message, "").with_code(code);
            is_refused(&Error::api("make a namespace")(kube::Error::Api(Box::new(status))))
        };
        assert!([400, 403, 422].into_iter().all(|code| of(code, "no")));
        assert!(of(500, "Internal error occurred: failed calling webhook \"a.b\": refused"));
        assert!(![404, 409, 429, 500, 503, 504].into_iter().any(|code| of(code, "busy")));
        assert!(is_refused(&Error::Taken("a".to_owned())));
        let why = patch::Refusal::TooLarge;
        assert!(is_refused(&Error::NotPatched { cluster: "a".to_owned(), why }));
    }

    #[test]
    fn what_may_be_corrected_unseen_is_looked_at_more_often() {
        let mut seen = Observed::default();
        assert_eq!(rest(&seen), AT_REST);
        let refused = Some("the template lacks what is replaced".to_owned());
        seen.customizations.push(Customization { refused, ..Customization::default() });
        assert_eq!(rest(&seen), REFUSED);
        seen.missing.push("a secret".to_owned());
        assert_eq!(rest(&seen), LACKING);
    }
}
