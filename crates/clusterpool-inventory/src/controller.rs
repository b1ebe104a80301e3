//! Wiring: watches, whom a change concerns, and the rule book as the engine drives it.

use std::time::Duration;

use api_types::hive::{
    ClusterClaim, ClusterDeployment, ClusterDeploymentCustomization, ClusterPool,
};
use api_types::names;
use controller_kit::Kit;
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::{
    self, Controller, Decision, Error, Lookout, Next, Now, Outcome, Shared,
};
use controller_kit::unread::Broken;
use controller_kit::watch::{self, Watched};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::runtime::watcher;

use crate::context::{Caches, Context};
use crate::decide::decide;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::model::{Key, Memory, SETTLING, Seen, Write};
use crate::reason::Pass;
use crate::settings::Policy;
use crate::{observe, write};

/// A pass makes a handful of clusters; one that takes longer hangs.
const PASS_DEADLINE: Duration = Duration::from_secs(60);

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let registry = &kit.metrics.registry;
    let mut metrics = Metrics::new(registry);
    if policy.hive_metrics {
        metrics = metrics.and_then(|it| it.with_hives_names(registry));
    }
    let metrics = metrics.map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let config = watcher::Config::default();
    let of_pools = watcher::Config::default().labels(names::hive::POOL_NAME);
    let pools: Watched<ClusterPool> = watch::namespaced(&kit, &config);
    let customizations: Watched<ClusterDeploymentCustomization> = watch::namespaced(&kit, &config);
    let claims: Watched<ClusterClaim> = watch::namespaced(&kit, &config);
    // Each cluster stands in a namespace of its own.
    let clusters: Watched<ClusterDeployment> = watch::everywhere(&kit, &config);
    let namespaces: Watched<Namespace> = watch::everywhere(&kit, &of_pools);
    let bindings: Watched<RoleBinding> = watch::everywhere(&kit, &config);
    let context = Context {
        kit: kit.clone(),
        policy,
        metrics,
        lookout: Lookout::default(),
        index: Shared::<Index>::default(),
        started: Timestamp::now(),
        caches: Caches {
            pools: pools.cache(),
            customizations: customizations.cache(),
            clusters: clusters.cache(),
            claims: claims.cache(),
            namespaces: namespaces.cache(),
            bindings: bindings.cache(),
        },
    };
    let watching = Box::pin(async {
        tokio::select! {
            () = watch::feed(pools.changes, |it| context.pool_changed(it)) => {}
            () = watch::feed(customizations.changes, |it| context.entry_changed(it)) => {}
            () = watch::feed(clusters.changes, |it| context.cluster_changed(it)) => {}
            () = watch::feed(claims.changes, |it| context.claim_changed(it)) => {}
            () = watch::feed(namespaces.changes, |it| context.namespace_changed(it)) => {}
            () = watch::feed(bindings.changes, |it| context.binding_changed(it)) => {}
        }
    });
    Box::pin(engine::run(&kit, &context, &context.lookout, watching, PASS_DEADLINE)).await
}

impl Controller for Context {
    type Key = Key;
    type Observed = Seen;
    type Write = Write;
    type Memory = Memory;
    type Reason = Pass;

    fn keys(&self) -> Vec<Key> {
        self.known().into_iter().collect()
    }

    fn retry(&self, error: &Error) -> Retry {
        retried(error)
    }

    fn object(&self, key: &Key) -> ObjectReference {
        key.reference::<ClusterPool>(&())
    }

    /// There is nobody to be told where the pool is gone.
    fn told_on(&self, key: &Key, _: Option<&Seen>) -> Vec<ObjectReference> {
        self.caches.pools.get(key).iter().map(|it| it.object_ref(&())).collect()
    }

    fn unread(&self, broken: &Broken) -> String {
        self.entry_broke(&Key::of_meta(&broken.metadata));
        broken.complaint()
    }

    async fn observe(&self, key: &Key, memory: &mut Memory) -> Result<Option<Seen>, Error> {
        Box::pin(observe::pool(self, key, memory)).await
    }

    fn decide(&self, seen: &Seen, _: Now) -> Decision<Write, Pass> {
        let Seen::Pool(look) = seen else {
            let next = Next::After(SETTLING);
            return Decision { next, ..Decision::rest(Pass::CachesBehind) };
        };
        let decided = decide(&look.seen, &self.policy, look.at);
        let wait = decided.again.into_iter().chain(look.wait).min();
        let next = match wait {
            Some(Duration::ZERO) => Next::Now,
            wait => wait.map_or(Next::OnChange, Next::After),
        };
        let (reason, events) = (decided.reason(&look.seen), decided.lasting_events());
        let is_due =
            !decided.work.is_empty() || decided.status.is_some() || !look.bindings.is_empty();
        let writes = if is_due { vec![decided] } else { Vec::new() };
        Decision { reason, writes, events, next }
    }

    async fn write(
        &self,
        key: &Key,
        seen: &Seen,
        write: Write,
        memory: &mut Memory,
    ) -> Result<Outcome, Error> {
        match seen {
            Seen::Pool(look) => Box::pin(write::all(self, key, look, &write, memory)).await,
            // Nothing is decided on it.
            Seen::Behind => Ok(Outcome::default()),
        }
    }
}

/// What was refused is tried again too: what it was made from, such as secrets, is not watched, and the rest of the pool has
/// to be looked at.
fn retried(error: &Error) -> Retry {
    match error.retry() {
        Retry::Invalid => Retry::Transient,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_retried_like_what_may_work_later() {
        for code in [400, 422] {
            let status = kube::core::Status { code, ..Default::default() };
            let source = Box::new(kube::Error::Api(Box::new(status)));
            let error = Error::Api { what: "create a cluster", source };
            assert_eq!(retried(&error), Retry::Transient);
        }
    }
}
