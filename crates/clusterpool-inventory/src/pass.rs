//! One pass over a pool: look, decide, do, and say when to look again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api_types::hive::ClusterPool;
use api_types::names;
use controller_kit::api_error;
use controller_kit::backoff::{self, Class};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt};

use crate::access;
use crate::act::{Outcome, Pass, Piece};
use crate::controller::{Context, Memory, key_of};
use crate::decide::decide;
use crate::decision::{Decision, Event, Reason, Step, Work};
use crate::error::Error;
use crate::index::{Key, all_in};
use crate::observe::{Known, Live, cached, live_pool, observe};
use crate::seen::Observed;

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
/// Clusters that one pass begins: a claim that comes meanwhile waits for one pass.
const AT_ONCE: usize = 32;
/// Between two writes of the status of a pool that has more clusters to begin than one pass does: it tells of every entry.
const STATUS: Duration = Duration::from_secs(1);

/// Spread, or those who met once meet again.
fn soon(wait: Duration) -> Action {
    Action::requeue(wait.mul_f64(0.3 + 0.7 * backoff::random_unit()))
}

/// One pass over a pool, which may be gone.
pub(crate) async fn pass(stub: Arc<ClusterPool>, context: Arc<Context>) -> Result<Action, Error> {
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
    // The trials are many and of use to this pass alone: they are taken out and put back.
    let (remembered, mut trials) = context.recall(&key);
    let rival = context.rival(remembered.rival, now);
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
            memory.trials = trials;
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
        let times = context.superseded(&key);
        let wait = RETRY * 2_u32.pow(times.min(MOST_DOUBLINGS));
        return Ok(soon(if outcome.not_yet { LATER.max(wait) } else { wait }));
    }
    context.not_superseded(&key);
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

#[derive(Default)]
struct Worked {
    superseded: bool,
    not_yet: bool,
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
        let goes_on = carried.wait == Some(Duration::ZERO);
        let status = decision.status.as_ref().filter(|_| !pool_was_written(&decision.work));
        let status = status.filter(|_| !goes_on || remembered.is_status_old(STATUS));
        // The status tells what was seen before the work, and nothing of the work relies on it.
        let storing = async {
            let mut piece = Piece::default();
            let Some(status) = status else { return Ok(None) };
            let stored = pass.store(status, &mut piece).await?;
            context.echo.wrote(self.key, piece.wrote);
            Ok(Some(stored))
        };
        let working = self.work(pass, work, now);
        let (worked, stored) = tokio::join!(working, storing);
        carried.superseded |= worked.superseded;
        carried.not_yet |= worked.not_yet;
        let failed = worked.failed;
        for (cluster, change) in &bindings {
            carried.superseded |= pass.bind(cluster, change).await? == Outcome::Superseded;
        }
        match (status, stored?) {
            (Some(status), Some(Outcome::Done)) => {
                if let Some(memory) = context.memory().get_mut(self.key) {
                    memory.status_stored();
                }
                self.publish(&decision.events).await;
                self.publish_notes(status).await;
            }
            (Some(_), _) => carried.superseded = true,
            (None, _) if decision.status.is_none() => self.publish(&decision.events).await,
            (None, _) => {}
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

    /// Carries out all pieces, so many at a time.
    async fn work(&self, pass: &Pass<'_>, work: Vec<&Work>, now: Timestamp) -> Worked {
        let pieces: Vec<_> = work.into_iter().map(|work| piece_of(pass, work)).collect();
        let mut pieces = std::pin::pin!(stream::iter(pieces).buffered(AT_ONCE));
        let mut worked = Worked::default();
        while let Some((work, result, piece)) = pieces.next().await {
            self.context.echo.wrote(self.key, piece.wrote);
            match result {
                Ok(Outcome::Done) => self.done(work, now),
                Ok(other) => {
                    tracing::debug!(work = ?work, "Superseded");
                    worked.superseded = true;
                    worked.not_yet |= other == Outcome::NotYet;
                }
                Err(error) => worked.failed = worked.failed.or(Some(error)),
            }
        }
        worked
    }

    /// A last look before anything is written: the pool is the one that was decided about, and nobody else's.
    async fn is_as_seen(&self, carried: &mut Carried) -> Result<bool, Error> {
        let context = self.context;
        let live = live_pool(&context.kit.client, self.key).await?;
        let seen = Live {
            uid: self.pool.and_then(ResourceExt::uid),
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
    async fn publish_notes(&self, status: &crate::seen::Status) {
        let before = &self.seen.pool.status.inventory;
        let news: Vec<(String, String)> = {
            let memory = self.context.memory();
            let Some(known) = memory.get(self.key) else { return };
            let news = status.inventory.iter().filter_map(|(name, entry)| {
                let same = before.get(name).is_some_and(|it| it.version == entry.version);
                let trial = known.trials.get(name).filter(|it| !same && !it.notes.is_empty())?;
                Some((name.clone(), trial.notes.join("; ")))
            });
            news.collect()
        };
        for (name, notes) in news {
            let key = (self.key.0.clone(), name.clone());
            let Some(found) = cached(&self.context.stores.customizations, &key) else { continue };
            let reference: ObjectReference = found.object_ref(&());
            let note = format!("In pool {}: {notes}", self.key.1);
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
