//! Wiring: watches, whom a change concerns, and the rule book as the engine drives it.

use std::sync::Arc;
use std::time::Instant;

use controller_kit::Kit;
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::links::Links;
use controller_kit::engine::{
    self, Class, Controller, Error, Lookout, Now, ObjectKey, Outcome, Shared,
};
use controller_kit::watch;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use kube::runtime::watcher;

use crate::context::{Caches, Context};
use crate::decide::decide;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::model::{Decision, Key, Memory, Observed, Seen, Write};
use crate::observe::PASS_DEADLINE;
use crate::reason::Reason;
use crate::settings::Policy;
use crate::{looks, observe, served, write};

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let (index, filter) = (Arc::new(Shared::<Index>::default()), kit.config.watch_filter.clone());
    index.with(|index| *index = Index::filtered(filter));
    let metrics = Metrics::new(&kit.metrics.registry, index.clone())
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let served = served::wait(&kit).await;
    tracing::info!(%served, "Found what the API server serves");
    let (core, infrastructure) = (served.core, served.infrastructure);
    let config = watcher::Config::default();
    let hosts = watch::namespaced(&kit, &config);
    let metals = watch::namespaced_in(&kit, &config, &infrastructure);
    let templates = watch::namespaced_in(&kit, &config, &infrastructure);
    let machines = watch::namespaced_in(&kit, &config, &core);
    let clusters = watch::namespaced_in(&kit, &config, &core);
    let sets = watch::namespaced_in(&kit, &config, &core);
    let deployments = watch::namespaced_in(&kit, &config, &core);
    let planes = match served.control_plane {
        Some(version) => watch::namespaced_in(&kit, &config, &version),
        None => watch::absent(core),
    };
    let (claims, data) = if served.data {
        let claims = watch::namespaced_in(&kit, &config, &infrastructure);
        (claims, watch::namespaced_in(&kit, &config, &infrastructure))
    } else {
        (watch::absent(infrastructure), watch::absent(infrastructure))
    };
    let context = Context {
        metrics,
        served,
        lookout: Lookout::default(),
        index,
        looks: looks::among(kit.config.concurrency.into()),
        caches: Caches {
            hosts: hosts.cache(),
            machines: metals.cache(),
            templates: templates.cache(),
            parents: machines.cache(),
            clusters: clusters.cache(),
            sets: sets.cache(),
            deployments: deployments.cache(),
            control_planes: planes.cache(),
            claims: claims.cache(),
            data: data.cache(),
        },
        clusters: Shared::default(),
        naming: Links::default(),
        looked_at: Shared::default(),
        kit: kit.clone(),
        policy,
    };
    let caches = &context.caches;
    let watching = Box::pin(async {
        tokio::select! {
            () = watch::feed(hosts.changes, |it| context.host_changed(it)) => {}
            () = watch::feed(metals.changes, |it| context.metal_changed(it)) => {}
            () = watch::feed(templates.changes, |it| context.template_changed(it)) => {}
            () = watch::feed(machines.changes, |it| context.machine_changed(it)) => {}
            () = watch::feed(clusters.changes, |it| context.cluster_changed(it)) => {}
            () = watch::feed(sets.changes, |it| context.owner_changed(&caches.sets, it, Some(Key::Set))) => {}
            () = watch::feed(deployments.changes, |it| {
                context.owner_changed(&caches.deployments, it, Some(Key::Deployment));
            }) => {}
            () = watch::feed(planes.changes, |it| context.owner_changed(&caches.control_planes, it, None)) => {}
            () = watch::feed(claims.changes, |it| context.claim_changed(it)) => {}
            () = watch::feed(data.changes, |it| context.data_changed(it)) => {}
        }
    });
    tokio::select! {
        ended = Box::pin(engine::run(&kit, &context, &context.lookout, watching, PASS_DEADLINE)) => ended,
        changed = served::changes(&kit, served) => Err(changed),
    }
}

impl Controller for Context {
    type Key = Key;
    type Observed = Seen;
    type Write = Write;
    type Memory = Memory;
    type Reason = Reason;

    /// Few of ten thousand hosts are kept or left, and which is known once the caches are filled.
    fn keys(&self) -> Vec<Key> {
        let machines = self.caches.machines.store.state();
        let machines = machines.iter().map(|it| Key::Machine(ObjectKey::of(&**it)));
        let hosts = self.caches.hosts.store.state_filter(|it| self.is_to_be_looked_at(it));
        let hosts = hosts.iter().map(|it| Key::Host(ObjectKey::of(&***it)));
        machines.chain(hosts).chain(self.scaled()).collect()
    }

    fn class(&self, key: &Key) -> Class {
        match key {
            Key::Machine(_) => Class::Normal,
            Key::Host(key) => self.class_of_host(key),
            Key::Deployment(_) | Key::Set(_) => Class::Background,
        }
    }

    /// What refuses may change without the object that is refused: a webhook, a CRD, a right.
    fn retry(&self, error: &Error) -> Retry {
        if error.is_refusal() { Retry::Transient } else { error.retry() }
    }

    fn version<'s>(&self, seen: &'s Seen) -> Option<&'s str> {
        seen.version.as_deref()
    }

    fn object(&self, key: &Key) -> ObjectReference {
        match key {
            Key::Machine(key) => self.caches.machines.reference(key),
            Key::Host(key) => self.caches.hosts.reference(key),
            Key::Deployment(key) => self.caches.deployments.reference(key),
            Key::Set(key) => self.caches.sets.reference(key),
        }
    }

    /// By now the cache may not have the machine any more.
    fn told_on(&self, key: &Key, seen: Option<&Seen>) -> Vec<ObjectReference> {
        vec![match seen.map(|seen| &seen.observed) {
            Some(Observed::Machine(it)) => it.machine.object_ref(&self.served.infrastructure),
            _ => self.object(key),
        }]
    }

    async fn observe(&self, key: &Key, memory: &mut Memory) -> Result<Option<Seen>, Error> {
        if memory.echoes.are_awaited(Instant::now(), |it| self.caches.version(it)) {
            return Err(Error::Superseded);
        }
        match key {
            Key::Machine(key) => Box::pin(observe::machine(self, key, memory)).await,
            Key::Host(key) => Box::pin(observe::host(self, key, memory)).await,
            Key::Deployment(_) | Key::Set(_) => Ok(observe::scale::scaled(self, key, memory)),
        }
    }

    fn decide(&self, seen: &Seen, now: Now) -> Decision {
        decide(&seen.observed, &self.policy, now.wall)
    }

    async fn write(
        &self,
        key: &Key,
        seen: &Seen,
        write: Write,
        memory: &mut Memory,
    ) -> Result<Outcome, Error> {
        write::write(self, key, seen, &write, memory).await
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::context::tests::{no_caches, nowhere};

    #[tokio::test]
    async fn what_is_refused_is_told_and_tried_again_later() {
        let context = nowhere(no_caches(), None);
        let answered = |code: u16, reason: &str, message: &str| {
            let status = Status::failure(message, reason).with_code(code);
            let source = Box::new(kube::Error::Api(Box::new(status)));
            Error::Api { what: "patch a BareMetalHost", source }
        };
        let denied = answered(409, "Conflict", "admission webhook \"a.b\" denied the request: no");
        assert_eq!((denied.is_refusal(), context.retry(&denied)), (true, Retry::Transient));
        for (code, reason, refused) in [
            (422, "Invalid", true),
            (400, "BadRequest", true),
            (403, "Forbidden", true),
            (500, "InternalError", false),
            (429, "TooManyRequests", false),
        ] {
            let error = answered(code, reason, "why");
            assert_eq!(error.is_refusal(), refused, "{code}");
            assert_ne!(context.retry(&error), Retry::Invalid, "{code}");
        }
    }
}
