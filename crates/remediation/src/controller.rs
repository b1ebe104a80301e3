//! Wiring: watches, whom a change concerns, and the rule book as the engine drives it.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use api_types::ContractVersion;
use api_types::capi::{Cluster, Machine};
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::metal3::CachedHost;
use api_types::remediation::Metal3Remediation;
use controller_kit::Kit;
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::{
    self, Class, Controller, Decision, Error, Lookout, Next, Now, ObjectKey, Outcome, Shared,
};
use controller_kit::watch::{self, Watched};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::runtime::watcher;

use crate::clusters::Clusters;
use crate::context::{Caches, Context, Looks, Role};
use crate::decide::{GRACE, decide};
use crate::metrics::Metrics;
use crate::model::{Key, Memory, Seen, Write};
use crate::pauses::Clock;
use crate::reason::Reason;
use crate::request::Group;
use crate::seen::NodeSeen;
use crate::settings::Policy;
use crate::tries::Tries;
use crate::turns::Turns;
use crate::watched::Watches;
use crate::{observe, served, write};

/// A pass is a few requests here and in the workload cluster; one that takes longer hangs.
const PASS_DEADLINE: Duration = Duration::from_secs(90);
/// How often gauges are set.
const SHOWN_EVERY: Duration = Duration::from_secs(2);

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let served = served::wait(&kit, policy.upstream_group).await;
    tracing::info!(?served, "Found what the API server serves");
    if policy.upstream_group && served.upstream.is_none() {
        tracing::warn!("{}", served::NOTHING);
    }
    let config = watcher::Config::default();
    let ours: Watched<Metal3Remediation> = watch::namespaced(&kit, &config);
    let upstream: Watched<UpstreamRemediation> = match served.upstream {
        Some(version) => watch::namespaced_in(&kit, &config, &version),
        None => watch::absent(ContractVersion::default()),
    };
    let hosts: Watched<CachedHost> = watch::namespaced(&kit, &config);
    let metals: Watched<Metal3Machine> =
        watch::namespaced_in(&kit, &config, &served.infrastructure);
    let machines: Watched<Machine> = watch::namespaced_in(&kit, &config, &served.core);
    let clusters: Watched<Cluster> = watch::namespaced_in(&kit, &config, &served.core);
    let context = Context {
        metrics,
        lookout: Lookout::default(),
        looks: Looks::default(),
        tries: Shared::<Tries>::default(),
        turns: Turns::default(),
        clock: Shared::<Clock>::default(),
        watches: Watches::default(),
        workloads: Clusters::new(kit.client.clone()),
        begun: Instant::now(),
        caches: Caches {
            hosts: hosts.cache(),
            machines: machines.cache(),
            metals: metals.cache(),
            clusters: clusters.cache(),
            ours: ours.cache(),
            upstream: upstream.cache(),
        },
        kit: kit.clone(),
        policy: policy.clone(),
        served,
    };
    let theirs = Group::Upstream(served.upstream.unwrap_or_default());
    let watching = Box::pin(async {
        tokio::select! {
            () = watch::feed(ours.changes, |it| context.request_changed(Group::Ours, it)) => {}
            () = watch::feed(upstream.changes, |it| context.request_changed(theirs, it)) => {}
            () = watch::feed(hosts.changes, |it| context.host_changed(it)) => {}
            () = watch::feed(metals.changes, |it| context.changed(Role::Metal, &ObjectKey::of(it))) => {}
            () = watch::feed(machines.changes, |it| context.machine_changed(it)) => {}
            () = watch::feed(clusters.changes, |it| context.cluster_changed(it)) => {}
            never = show(&context) => match never {},
        }
    });
    tokio::select! {
        ended = Box::pin(engine::run(&kit, &context, &context.lookout, watching, PASS_DEADLINE)) => ended,
        changed = served::changes(&kit, policy.upstream_group, served) => Err(changed),
    }
}

/// Sets gauges.
async fn show(context: &Context) -> Infallible {
    loop {
        context.show(Instant::now(), Timestamp::now());
        tokio::time::sleep(SHOWN_EVERY).await;
    }
}

impl Controller for Context {
    type Key = Key;
    type Observed = Seen;
    type Write = Write;
    type Memory = Memory;
    type Reason = Reason;

    fn keys(&self) -> Vec<Key> {
        let requests = self.requests().into_iter().map(Key::Request);
        let hosts = self.tries.with(|tries| tries.hosts()).into_iter().map(Key::Host);
        let mut machines = self.caches.machines.store.state();
        machines.retain(|it| !self.left_on(it).is_empty());
        let machines = machines.iter().map(|it| Key::Machine(ObjectKey::of(&**it)));
        requests.chain(hosts).chain(machines).collect()
    }

    fn class(&self, key: &Key) -> Class {
        match key {
            Key::Request(key) => self.class_of(key),
            Key::Host(_) => Class::Normal,
            Key::Machine(_) => Class::Background,
        }
    }

    /// Somebody waits for a machine, so nothing here waits for minutes; and the time of a step goes on while a write is refused,
    /// so that is looked at again as well.
    fn retry(&self, error: &Error) -> Retry {
        error.retry().urgent()
    }

    fn version<'s>(&self, seen: &'s Seen) -> Option<&'s str> {
        if let Seen::Request(live) = seen { Some(&live.seen.request.version) } else { None }
    }

    fn object(&self, key: &Key) -> ObjectReference {
        match key {
            Key::Request(key) => key.reference(self.request(key).map(|it| it.uid)),
            Key::Host(key) => self.caches.hosts.reference(key),
            Key::Machine(key) => self.caches.machines.reference(key),
        }
    }

    /// What becomes of a request is told on its Machine and its host as well: there people look.
    fn told_on(&self, key: &Key, seen: Option<&Seen>) -> Vec<ObjectReference> {
        let (Key::Request(request), Some(Seen::Request(live))) = (key, seen) else {
            return vec![self.object(key)];
        };
        let machine = live.machine.as_ref().map(|it| it.object_ref(&self.served.core));
        let host = live.host.as_ref().map(|it| it.object_ref(&()));
        // By now the cache may not have the request any more.
        let request = request.reference(Some(live.seen.request.uid.clone()));
        machine.into_iter().chain(host).chain([request]).collect()
    }

    async fn observe(&self, key: &Key, memory: &mut Memory) -> Result<Option<Seen>, Error> {
        match key {
            Key::Request(key) => {
                let live = Box::pin(observe::request(self, key, memory)).await?;
                Ok(live.map(|it| Seen::Request(Box::new(it))))
            }
            Key::Host(key) => observe::orphan(self, key).await,
            Key::Machine(key) => observe::leftover(self, key).await,
        }
    }

    fn decide(&self, seen: &Seen, _: Now) -> Decision<Write, Reason> {
        match seen {
            Seen::Request(live) => {
                let decided = decide(&live.seen, &self.policy, live.at);
                let (reason, next) = (decided.reason, decided.next());
                let writes = decided.parts().into_iter().map(|it| Write::Acts(Box::new(it)));
                Decision { writes: writes.collect(), next, ..Decision::rest(reason) }
            }
            Seen::Leftover(_) => Decision::write(Reason::Withdrawn, Write::Clear),
            // It may be held for another one that is gone as well.
            Seen::Left(left) if left.node == NodeSeen::NotAsked => {
                Decision::write(Reason::Withdrawn, Write::Clear)
            }
            // Its cluster may be away for long.
            Seen::Left(left) if matches!(left.node, NodeSeen::NoAccess(_)) => {
                Decision { next: Next::After(GRACE), ..Decision::rest(Reason::NodeLeft) }
            }
            Seen::Left(_) => Decision::write(Reason::NodeLeft, Write::Clear),
            Seen::TooEarly(wait) => {
                Decision { next: Next::After(*wait), ..Decision::rest(Reason::AtRest) }
            }
        }
    }

    async fn write(
        &self,
        _: &Key,
        seen: &Seen,
        write: Write,
        memory: &mut Memory,
    ) -> Result<Outcome, Error> {
        match (seen, write) {
            (Seen::Request(live), Write::Acts(decided)) => {
                let written = write::acts(self, live, &decided).await;
                memory.behind = matches!(written, Err(Error::Superseded));
                // A write that had no answer may still come: no other member begins before this one has looked again.
                if written.as_ref().map_or_else(Error::is_refusal, |_| true) {
                    self.turns.end(&live.seen.request.uid);
                }
                written
            }
            (Seen::Left(left), Write::Clear) => write::clear(self, left).await,
            (Seen::Leftover(machine), Write::Clear) => write::take_back(self, machine).await,
            // Nothing of the kind is decided.
            _ => Ok(Outcome::default()),
        }
    }
}
