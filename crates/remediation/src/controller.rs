//! Wiring: watches, whom a change concerns, and the rule book as the engine drives it.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use api_types::capi::{Cluster, Machine};
use api_types::capm3::{Metal3Machine, UpstreamRemediation};
use api_types::metal3::{BareMetalHost, CachedHost};
use api_types::remediation::Metal3Remediation;
use controller_kit::Kit;
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::links::Links;
use controller_kit::engine::{
    self, Class, Controller, Decision, Error, Lookout, Next, Now, ObjectKey, Outcome, Shared,
};
use controller_kit::watch::{self, Complaints, Undecodable, Watched};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;

use crate::clusters::Clusters;
use crate::config::Policy;
use crate::context::{Caches, Context, Role, cached};
use crate::decide::{decide, is_to_be_asked};
use crate::leftover;
use crate::metrics::{Metrics, tally};
use crate::model::{Key, Live, Memory, RequestKey, Seen, Write};
use crate::pauses::Clock;
use crate::reason::Reason;
use crate::request::Group;
use crate::tries::Tries;
use crate::{observe, served, write};

/// A pass is a few requests here and in the workload cluster; one that takes longer hangs.
const PASS_DEADLINE: Duration = Duration::from_secs(90);
/// How often gauges are set, and owners of objects that cannot be decoded are told of new ones.
const SHOWN_EVERY: Duration = Duration::from_secs(2);

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let served = tokio::select! {
        served = served::wait(&kit, policy.upstream_group) => served,
        () = kit.shutdown.requested() => return Ok(()),
    };
    tracing::info!(?served, "Found what the API server serves");
    if policy.upstream_group && served.upstream.is_none() {
        tracing::warn!("{}", served::NOTHING);
    }
    let config = watcher::Config::default();
    let ours: Watched<Metal3Remediation> = watch::namespaced(&kit, &config);
    let upstream: Option<Watched<UpstreamRemediation>> =
        served.upstream.map(|version| watch::namespaced_in(&kit, &config, &version));
    let hosts: Watched<CachedHost> = watch::namespaced(&kit, &config);
    let metals: Watched<Metal3Machine> =
        watch::namespaced_in(&kit, &config, &served.infrastructure);
    let machines: Watched<Machine> = watch::namespaced_in(&kit, &config, &served.core);
    let clusters: Watched<Cluster> = watch::namespaced_in(&kit, &config, &served.core);
    let mut broken = vec![
        ours.undecodable,
        hosts.undecodable,
        metals.undecodable,
        machines.undecodable,
        clusters.undecodable,
    ];
    broken.extend(upstream.as_ref().map(|it| it.undecodable.clone()));
    let context = Context {
        metrics,
        lookout: Lookout::default(),
        links: Links::default(),
        leftovers: Links::default(),
        tries: Shared::<Tries>::default(),
        clock: Shared::<Clock>::default(),
        workloads: Clusters::new(kit.client.clone()),
        begun: Instant::now(),
        caches: Caches {
            hosts: hosts.store,
            machines: machines.store,
            metals: metals.store,
            clusters: clusters.store,
            ours: ours.store,
            upstream: upstream.as_ref().map(|it| it.store.clone()),
        },
        kit: kit.clone(),
        policy: policy.clone(),
        served,
    };
    let upstream = async {
        match (upstream, served.upstream) {
            (Some(all), Some(version)) => {
                let group = Group::Upstream(version);
                watch::feed(all.changes, |it| context.request_changed(group, it)).await;
            }
            _ => std::future::pending().await,
        }
    };
    let watching = Box::pin(async {
        tokio::select! {
            () = watch::feed(ours.changes, |it| context.request_changed(Group::Ours, it)) => {}
            () = upstream => {}
            () = watch::feed(hosts.changes, |it| context.host_changed(it)) => {}
            () = watch::feed(metals.changes, |it| context.changed(Role::Metal, &ObjectKey::of(it))) => {}
            () = watch::feed(machines.changes, |it| context.machine_changed(it)) => {}
            () = watch::feed(clusters.changes, |it| context.cluster_changed(it)) => {}
            never = show(&context, &broken) => match never {},
        }
    });
    tokio::select! {
        ended = Box::pin(engine::run(&kit, &context, &context.lookout, watching, PASS_DEADLINE)) => ended,
        changed = served::changes(&kit, policy.upstream_group, served) => Err(changed),
    }
}

/// Sets gauges, and tells the owners of objects that cannot be decoded.
async fn show(context: &Context, broken: &[Undecodable]) -> Infallible {
    let (mut complaints, caches) = (Complaints::default(), &context.caches);
    loop {
        let (beat, now) = (Instant::now(), Timestamp::now());
        context.clock.with(|clock| clock.look(beat, now));
        context.workloads.tidy(beat);
        let upstream = caches.upstream.as_ref().map(Store::state).unwrap_or_default();
        let filter = context.policy.watch_filter.as_deref();
        let (phases, oldest) = tally(&caches.ours.state(), &upstream, filter, now);
        context.metrics.shown(&phases, oldest, context.workloads.counts());
        complaints.tell(&context.kit, broken).await;
        tokio::time::sleep(SHOWN_EVERY).await;
    }
}

impl Context {
    /// An object changed that requests may look at.
    fn changed(&self, role: Role, object: &ObjectKey) {
        for request in self.concerned(role, object) {
            let key = Key::Request(request);
            let class = self.class(&key);
            self.lookout.enqueue(key, class);
        }
    }

    /// A request appeared, changed or went.
    fn request_changed(&self, group: Group, request: &impl Resource) {
        let object = ObjectKey::of(request);
        let key = RequestKey { group, object: object.clone() };
        if self.has(group, &object) {
            let version = request.meta().resource_version.clone().unwrap_or_default();
            let key = Key::Request(key);
            self.lookout.changed(&key, &version, self.class(&key));
            return;
        }
        self.looks_at_nothing(&key);
        self.lookout.gone(Key::Request(key));
        // What it may have left.
        let uid = request.meta().uid.clone().unwrap_or_default();
        for host in self.tries.with(|tries| tries.hosts_of(&uid)) {
            self.lookout.enqueue(Key::Host(host), Class::Normal);
        }
        self.lookout.enqueue(Key::Machine(object), Class::Background);
    }

    fn host_changed(&self, host: &CachedHost) {
        let key = ObjectKey::of(host);
        let (now, filter) = (self.caches.host(&key), self.policy.watch_filter.as_deref());
        self.tries.with(|tries| tries.update(&key, now.as_deref(), filter));
        self.changed(Role::Host, &key);
        if !self.orphans(&key).is_empty() {
            self.lookout.enqueue(Key::Host(key), Class::Normal);
        }
    }

    fn machine_changed(&self, machine: &Machine) {
        let key = ObjectKey::of(machine);
        self.changed(Role::Machine, &key);
        let filter = self.policy.watch_filter.as_deref();
        let now = cached(&self.caches.machines, self.served.core, &key);
        let left = now.filter(|it| leftover::is_on(it, filter));
        let cluster = left.map(|it| format!("{}/{}", key.namespace, it.spec.cluster_name));
        self.leftovers.update(&key, cluster.as_deref());
        if cluster.is_some() && !self.is_asked_for(&key) {
            self.lookout.enqueue(Key::Machine(key), Class::Background);
        }
    }

    fn cluster_changed(&self, cluster: &Cluster) {
        let key = ObjectKey::of(cluster);
        if cached(&self.caches.clusters, self.served.core, &key).is_none() {
            self.workloads.forget(&key.namespace, &key.name);
        }
        self.changed(Role::Cluster, &key);
        // A pause may have ended.
        for machine in self.leftovers.keys(&format!("{}/{}", key.namespace, key.name)) {
            self.lookout.enqueue(Key::Machine(machine), Class::Background);
        }
    }

    /// An object for events, which are not shown with it without its uid.
    fn reference<K: Resource>(
        key: &ObjectKey,
        version: &K::DynamicType,
        of: Option<&K>,
    ) -> ObjectReference
    where
        K::DynamicType: Clone,
    {
        let uid = of.and_then(|it| it.meta().uid.clone());
        ObjectReference { uid, ..key.reference::<K>(version) }
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
        let filter = self.policy.watch_filter.as_deref();
        let mut machines = self.caches.machines.state();
        machines.retain(|it| leftover::is_on(it, filter));
        let machines = machines.iter().map(|it| Key::Machine(ObjectKey::of(&**it)));
        requests.chain(hosts).chain(machines).collect()
    }

    /// First the hosts that are still to be asked: on each of them may run what has to stop.
    fn class(&self, key: &Key) -> Class {
        match key {
            Key::Request(key) if self.request(key).is_some_and(|it| is_to_be_asked(&it)) => {
                Class::Urgent
            }
            Key::Request(_) | Key::Host(_) => Class::Normal,
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
            Key::Request(RequestKey { group: Group::Ours, object }) => {
                Self::reference(object, &(), cached(&self.caches.ours, (), object).as_deref())
            }
            Key::Request(RequestKey { group: Group::Upstream(version), object }) => {
                let all = self.caches.upstream.as_ref();
                let now = all.and_then(|all| cached(all, *version, object));
                Self::reference::<UpstreamRemediation>(object, version, now.as_deref())
            }
            Key::Host(key) => {
                Self::reference::<BareMetalHost>(key, &(), self.caches.host(key).as_deref())
            }
            Key::Machine(key) => {
                let now = cached(&self.caches.machines, self.served.core, key);
                Self::reference(key, &self.served.core, now.as_deref())
            }
        }
    }

    /// What becomes of a request is told on its Machine and its host as well: there people look.
    fn told_on(&self, key: &Key, seen: Option<&Seen>) -> Vec<ObjectReference> {
        let Some(Seen::Request(live)) = seen else { return vec![self.object(key)] };
        let Live { seen, machine, host, .. } = &**live;
        let machine = machine.as_ref().map(|it| it.object_ref(&self.served.core));
        let host = host.as_ref().map(|it| it.object_ref(&()));
        let request = ObjectReference {
            // By now the cache may not have it any more.
            uid: Some(seen.request.uid.clone()),
            ..self.object(key)
        };
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
            // It may be held for another one that is gone as well.
            Seen::Orphan(_) => Decision::write(Reason::Withdrawn, Write::Release),
            Seen::Leftover(_) => Decision::write(Reason::Withdrawn, Write::TakeBack),
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
        _: &mut Memory,
    ) -> Result<Outcome, Error> {
        match (seen, write) {
            (Seen::Request(live), Write::Acts(decided)) => write::acts(self, live, &decided).await,
            (Seen::Orphan(orphan), Write::Release) => write::release(self, orphan).await,
            (Seen::Leftover(machine), Write::TakeBack) => write::take_back(self, machine).await,
            // Nothing of the kind is decided.
            _ => Ok(Outcome::default()),
        }
    }
}
