//! All reads: a snapshot of one pool from the caches, and what the API server is asked for itself.

mod entries;
mod materials;
mod snapshot;
mod unread;
mod views;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api_types::hive::ClusterPool;
use api_types::name::is_name;
use api_types::names;
use controller_kit::engine::{Error, found};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::Api;

pub use self::entries::{is_releasing, version};
use self::materials::materials;
pub use self::snapshot::{Known, observe};
use crate::access;
use crate::access::Change;
use crate::context::Context;
use crate::index::{all_in, key_in};
use crate::model::{Key, LivePool, Look, Looked, Memory, Seen};
use crate::seen::{Claim, Cluster, Observed};

/// How often a pool is looked at that refers to something which may be corrected unseen: what it lacks, or a template to which
/// patches cannot be applied.
const LACKING: Duration = Duration::from_secs(10);
/// And one at rest.
const AT_REST: Duration = Duration::from_secs(300);

/// Reads what a decision about a pool needs; nothing, if it is nobody's or cannot be read.
pub async fn pool(
    context: &Context,
    key: &Key,
    memory: &mut Memory,
) -> Result<Option<Seen>, Error> {
    let caches = &context.caches;
    if caches.pools.is_broken(key) {
        return Ok(None);
    }
    if memory.echoes.are_awaited(Instant::now(), |object| caches.version(object)) {
        return Ok(Some(Seen::Behind));
    }
    let pool = caches.pools.get(key);
    if !context.is_ours(key, pool.as_deref()) {
        // It may have been ours before.
        context.metrics.gone(key);
        return Ok(None);
    }
    let again = if let Some(pool) = &pool {
        look(context, key, pool, memory).await?
    } else {
        *memory = Memory::default();
        None
    };
    let now = Timestamp::now();
    let rival = context.rival(memory, now);
    let materials = memory.materials.clone();
    let (policy, efforts) = (&context.policy, &memory.efforts);
    let note = rival.as_ref().map(|(note, _)| note.clone());
    let (seen, due) = context.index.with(|index| {
        let (materials, moment) = (&materials, Instant::now());
        let known =
            Known { caches, index, key, policy, materials, rival: note, efforts, now, moment };
        observe(&known, &mut memory.learned)
    });
    if pool.is_some() {
        memory.efforts.forget_ended(&seen);
    }
    if pool.is_none() && is_nothing(&seen, key) {
        context.metrics.gone(key);
    } else {
        context.metrics.seen(key, &seen);
    }
    let rest = pool.is_some().then(|| rest(&seen));
    let waits = [due, rival.map(|(_, left)| left), again, rest];
    let bindings = if pool.is_some() { bindings(context, key, &seen) } else { Vec::new() };
    Ok(Some(Seen::Pool(Box::new(Look {
        wait: waits.into_iter().flatten().min(),
        at: now,
        seen,
        pool,
        materials,
        bindings,
    }))))
}

/// Looks at the pool and what it refers to, unless that was just done. When to look again, where somebody wrote to the pool
/// since: it may have been Hive's own controller.
async fn look(
    context: &Context,
    key: &Key,
    pool: &ClusterPool,
    memory: &mut Memory,
) -> Result<Option<Duration>, Error> {
    if let Some(looked) = &memory.looked
        && let Some(left) = looked.left(pool)
    {
        return Ok((looked.version != pool.metadata.resource_version).then_some(left));
    }
    let client = &context.kit.client;
    // Nothing is made any more for a pool that is being deleted, and what it refers to may go before it.
    if pool.metadata.deletion_timestamp.is_none() {
        let found = Box::pin(materials(client, pool, &context.caches.customizations)).await;
        memory.materials = Arc::new(found);
    }
    live_pool(client, key, memory).await?;
    memory.looked = Some(Looked::at(pool));
    Ok(None)
}

/// Asks for a pool.
pub async fn live_pool(client: &Client, key: &Key, memory: &mut Memory) -> Result<LivePool, Error> {
    // What is nobody's is let go in the name of no pool, and a claim may name what no pool can be called: it would ask for
    // something else, or for nothing, without an end.
    if !is_name(&key.name) {
        return Ok(LivePool::default());
    }
    let began = Instant::now();
    let api: Api<ClusterPool> = Api::namespaced(client.clone(), &key.namespace);
    let found = found("get a ClusterPool", api.get_metadata(&key.name)).await?;
    let live = found.map(|it| LivePool::of(&it.metadata)).unwrap_or_default();
    memory.live = Some((began, live.clone()));
    Ok(live)
}

/// When to look again at what is not watched.
fn rest(seen: &Observed) -> Duration {
    let is_refused = seen.customizations.iter().any(|it| it.refused.is_some());
    if is_refused || !seen.missing.is_empty() { LACKING } else { AT_REST }
}

/// Whether nothing is left of a pool that is gone, and no claim waits for it.
fn is_nothing(seen: &Observed, key: &Key) -> bool {
    let leased = seen.customizations.iter().any(|it| it.names_pool(&key.name));
    let waits = seen.claims.iter().any(Claim::waits);
    seen.clusters.is_empty() && seen.namespaces.is_empty() && !leased && !waits
}

/// What the pool's administrators may do in the namespaces of its clusters, as far as it is to change.
fn bindings(context: &Context, key: &Key, seen: &Observed) -> Vec<(String, Change)> {
    if seen.pool.rival.is_some() {
        return Vec::new();
    }
    let found = |key: &Key| context.caches.bindings.get(key);
    context.index.with(|index| {
        let of_pool: Vec<_> = index.admins.of(&all_in(&key.namespace)).filter_map(found).collect();
        let wanted = access::subjects(of_pool.iter().map(|it| &**it));
        // Where nobody administrates the pool, only those are looked at in which somebody may still administrate.
        let may_change = |it: &&Cluster| !wanted.is_empty() || index.admins.has(&all_in(&it.name));
        let clusters = seen.clusters.iter().filter(|it| !it.deleting).filter(may_change);
        let change = |it: &Cluster| {
            let key = key_in(&it.name, names::hive::POOL_ADMIN_BINDING);
            Some((it.name.clone(), access::change(&wanted, found(&key).as_deref())?))
        };
        clusters.filter_map(change).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::Customization;

    #[tokio::test]
    async fn nobody_is_asked_for_a_pool_that_cannot_be_called_so() {
        let nowhere = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(nowhere).unwrap();
        for name in ["", "my pool", "pool?", "pool#"] {
            let mut memory = Memory::default();
            let live = live_pool(&client, &key_in("ns", name), &mut memory).await.unwrap();
            assert!(live.is_as_seen(None), "{name:?}");
        }
    }

    #[test]
    fn something_is_left_of_a_pool_that_is_gone_as_long_as_a_claim_waits_for_it() {
        let mut claim = Claim::waiting();
        let is_nothing = |claim: &Claim| {
            let seen = Observed { claims: vec![claim.clone()], ..Observed::default() };
            super::is_nothing(&seen, &key_in("ns", "nowhere"))
        };
        assert!(!is_nothing(&claim));
        claim.deleting = true;
        assert!(is_nothing(&claim));
    }

    #[test]
    fn what_may_be_corrected_unseen_is_looked_at_more_often() {
        let mut seen = Observed::default();
        assert_eq!(rest(&seen), AT_REST);
        let refused = Some("the template lacks what is replaced".to_owned());
        seen.customizations.push(Customization { refused, ..Customization::default() });
        assert_eq!(rest(&seen), LACKING);
        seen.customizations.clear();
        assert_eq!(rest(&seen), AT_REST);
        seen.missing.push("a secret".to_owned());
        assert_eq!(rest(&seen), LACKING);
    }
}
