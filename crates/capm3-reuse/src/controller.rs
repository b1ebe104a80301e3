//! Watches, who is concerned by a change, and one pass over one machine or kept host.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api_types::capi::{Cluster, KubeadmControlPlane, Machine, MachineDeployment, MachineSet};
use api_types::capm3::{Metal3Data, Metal3DataClaim, Metal3Machine, Metal3MachineTemplate};
use api_types::metal3::{BareMetalHost, CachedHost};
use controller_kit::backoff;
use controller_kit::events::shorten;
use controller_kit::wakes::{Wakes, woken};
use controller_kit::watch::{self, Complaints, Undecodable, Watched};
use controller_kit::{Kit, run};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::Semaphore;

use crate::act::{Outcome, Pass, name_node};
use crate::claims::{Claimed, Claims};
use crate::context::Context;
use crate::decide::{decide, refused};
use crate::decision::{Decision, Step};
use crate::echo::{Echo, host_key, machine_key};
use crate::error::Error;
use crate::index::Index;
use crate::machine::is_housed;
use crate::matter::Matter;
use crate::metrics::Metrics;
use crate::notes::Key;
use crate::observe::node::Looks;
use crate::observe::{
    self, Sources, Stores, created, last_seen, left, node, observe_machine, owner, wish,
};
use crate::races::Races;
use crate::reason::Reason;
use crate::refusals::Refusals;
use crate::reservation::Kept;
use crate::seen::{HostSeen, MachineSeen, Observed};
use crate::served;
use crate::settings::Policy;
use crate::settled::Settled;

mod hosts;
mod wakes;

/// A pass is a few requests; one that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(60);
/// The cache shows our own writes long before; this is for a watch that broke just then.
const ECHO: Duration = Duration::from_secs(2);
/// How soon to look again at a host whose owner the caches do not show as it is; they wake it when they do.
const DOUBT: Duration = Duration::from_secs(60);
/// How often gauges are set, late offers ended and objects that cannot be decoded told.
const TICK: Duration = Duration::from_secs(10);
/// What of a refusal is told, in bytes: some repeat the whole object.
const MESSAGE: usize = 1024;

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let served = tokio::select! {
        served = served::wait(&kit) => served,
        () = kit.shutdown.requested() => return Ok(()),
    };
    tracing::info!(%served, "Found what the API server serves");
    let (core, infrastructure) = (served.core, served.infrastructure);
    let config = watcher::Config::default();
    let hosts: Watched<CachedHost> = watch::namespaced(&kit, &config);
    let machines: Watched<Metal3Machine> = watch::namespaced_in(&kit, &config, &infrastructure);
    let templates: Watched<Metal3MachineTemplate> =
        watch::namespaced_in(&kit, &config, &infrastructure);
    let parents: Watched<Machine> = watch::namespaced_in(&kit, &config, &core);
    let clusters: Watched<Cluster> = watch::namespaced_in(&kit, &config, &core);
    let sets: Watched<MachineSet> = watch::namespaced_in(&kit, &config, &core);
    let deployments: Watched<MachineDeployment> = watch::namespaced_in(&kit, &config, &core);
    let planes: Option<Watched<KubeadmControlPlane>> =
        served.control_plane.map(|version| watch::namespaced_in(&kit, &config, &version));
    let claims: Option<Watched<Metal3DataClaim>> =
        served.data.then(|| watch::namespaced_in(&kit, &config, &infrastructure));
    let data: Option<Watched<Metal3Data>> =
        served.data.then(|| watch::namespaced_in(&kit, &config, &infrastructure));
    let broken = [
        machines.undecodable.clone(),
        hosts.undecodable.clone(),
        templates.undecodable.clone(),
        parents.undecodable.clone(),
        clusters.undecodable.clone(),
        sets.undecodable.clone(),
        deployments.undecodable.clone(),
    ];
    let stores = Stores {
        hosts: hosts.store.clone(),
        machines: machines.store.clone(),
        templates: templates.store.clone(),
        broken_templates: templates.undecodable.clone(),
        parents: parents.store.clone(),
        clusters: clusters.store.clone(),
        sets: sets.store.clone(),
        deployments: deployments.store.clone(),
        control_planes: planes.as_ref().map(|it| it.store.clone()),
        claims: claims.as_ref().map(|it| it.store.clone()),
        data: data.as_ref().map(|it| it.store.clone()),
    };
    let (wake_machines, woken_machines) = Wakes::new();
    let (wake_hosts, woken_hosts) = Wakes::new();
    let passes = usize::from(kit.config.concurrency);
    let context = Arc::new(Context {
        from: Sources {
            client: kit.client.clone(),
            served,
            watch_filter: kit.config.watch_filter.clone(),
            index: Mutex::new(Index::filtered(kit.config.watch_filter.clone())),
            stores,
            refusals: Refusals::default(),
            claims: Claims::default(),
            waiting: Semaphore::new((passes / observe::WAITING).max(1)),
            looks: Looks::new((passes / observe::WAITING).clamp(1, node::LOOKS)),
        },
        kit: kit.clone(),
        policy,
        metrics,
        machines: wake_machines,
        hosts: wake_hosts,
        echo: Echo::default(),
        races: Races::default(),
        settled: Settled::default(),
        clusters: Matter::default(),
        parents: Matter::default(),
        deployments: Matter::default(),
        planes: Matter::default(),
        selectors: Matter::default(),
    });

    let about_machines = {
        let noted = context.clone();
        let changes = machines.changes.inspect(move |change| {
            if let Ok(machine) = change {
                noted.machine_changed(machine);
            }
        });
        let none = || Vec::<ObjectRef<Metal3Machine>>::new();
        let shared = || context.clone();
        let (by_parent, by_cluster, by_template) = (shared(), shared(), shared());
        let (by_deployment, by_plane) = (shared(), shared());
        let mut loops = Controller::for_stream_with(changes, machines.store, infrastructure)
            .reconcile_on(woken(woken_machines, infrastructure))
            .reconcile_all_on(kit.allowed())
            .watches_stream_with(parents.changes, move |it| by_parent.parent_changed(&it), core)
            .watches_stream_with(clusters.changes, move |it| by_cluster.cluster_changed(&it), core)
            .watches_stream_with(
                templates.changes,
                move |it| by_template.template_changed(&it),
                infrastructure,
            )
            .watches_stream_with(
                deployments.changes,
                move |it| {
                    by_deployment.deployment_changed(&it);
                    none()
                },
                core,
            )
            .watches_stream_with(sets.changes, move |_| none(), core);
        if let (Some(planes), Some(version)) = (planes, served.control_plane) {
            let of_plane = move |it: KubeadmControlPlane| {
                by_plane.plane_changed(&it, version);
                none()
            };
            loops = loops.watches_stream_with(planes.changes, of_plane, version);
        }
        if let (Some(claims), Some(data)) = (claims, data) {
            let of_claim = move |it: Metal3DataClaim| {
                [ObjectRef::new_with(&it.name_any(), infrastructure)
                    .within(&it.namespace().unwrap_or_default())]
            };
            let from = context.clone();
            loops = loops
                .watches_stream_with(claims.changes, of_claim, infrastructure)
                .watches_stream_with(
                    data.changes,
                    move |it| from.data_changed(&it),
                    infrastructure,
                );
        }
        loops
    };
    // Few of ten thousand hosts are kept or left, and which is known once the caches are filled.
    let from_the_start = {
        let context = context.clone();
        kit.allowed().flat_map(move |()| stream::iter(context.hosts_to_look_at()))
    };
    let about_hosts = Controller::for_stream(stream::pending(), hosts.store)
        .reconcile_on(woken(woken_hosts, ()))
        .reconcile_on(from_the_start);

    let feed = watch::feed(hosts.changes, |host| context.host_changed(host));
    let drive_machines = run::drive(
        &kit,
        about_machines,
        context.clone(),
        DEADLINE,
        reconcile_machine,
        Error::class,
    );
    let drive_hosts = run::drive(
        &kit,
        about_hosts,
        context.clone(),
        DEADLINE,
        hosts::reconcile_host,
        Error::class,
    );
    tokio::select! {
        _ = async { tokio::join!(drive_machines, drive_hosts) } => Ok(()),
        () = feed => Err("The watch on hosts ended".to_owned()),
        never = tend(&context, &broken) => match never {},
        changed = served::changes(&kit, served) => Err(changed),
    }
}

/// Sets gauges, ends offers that nobody came for, and tells the owners of objects that cannot be decoded.
async fn tend(context: &Context, broken: &[Undecodable]) -> std::convert::Infallible {
    let mut complaints = Complaints::default();
    loop {
        let (late, counts, waiters) = {
            let mut index = context.from.index();
            (index.expire(Instant::now()), index.counts(), index.waiters())
        };
        for (namespace, machine) in late {
            context.machines.send(&namespace, [machine]);
        }
        context.metrics.shown(counts, waiters);
        complaints.tell(&context.kit, broken).await;
        tokio::time::sleep(TICK).await;
    }
}

impl Context {
    fn host_changed(&self, host: &CachedHost) {
        let namespace = host.metadata.namespace.clone().unwrap_or_default();
        let name = host.metadata.name.clone().unwrap_or_default();
        let now = last_seen(&self.from.stores.hosts, (), &namespace, &name);
        let is_there = now.is_some();
        let kept = now.as_ref().is_some_and(|it| Kept::of(it).is_some());
        let concerned = self.from.index().update(&namespace, &name, now.clone(), Instant::now());
        self.machines.send(&namespace, concerned);
        if !is_there {
            self.echo.forget(&host_key(&namespace, &name));
        }
        if !kept {
            // Its next reservation has its own time.
            self.settled.end(&(namespace.clone(), name.clone()));
        }
        if now.is_some_and(|it| self.is_to_be_looked_at(&it)) {
            self.hosts.send(&namespace, [name]);
        }
    }

    /// Whether a host's own loop has anything to do with it.
    fn is_to_be_looked_at(&self, host: &BareMetalHost) -> bool {
        Kept::of(host).is_some() || left::seems_left(&self.from, host)
    }

    fn hosts_to_look_at(&self) -> Vec<ObjectRef<CachedHost>> {
        let hosts = self.from.stores.hosts.state_filter(|it| self.is_to_be_looked_at(it));
        hosts.iter().map(|it| ObjectRef::from_obj(&**it)).collect()
    }

    fn machine_changed(&self, machine: &Metal3Machine) {
        let namespace = machine.namespace().unwrap_or_default();
        let name = machine.name_any();
        let version = self.from.served.infrastructure;
        let now = last_seen(&self.from.stores.machines, version, &namespace, &name);
        let host = now.as_ref().and_then(|it| Some((it.host_name()?, is_housed(it))));
        let label = self.owner_label(&namespace, now.as_deref().unwrap_or(machine));
        let mut index = self.from.index();
        let news = index.name(&namespace, &name, host);
        if now.is_none() {
            index.leave(&namespace, &name);
            let since = created(machine);
            let freed = index.settle(&namespace, &name, since, None, Instant::now());
            self.echo.forget(&machine_key(&namespace, &name));
            let key = (namespace.clone(), name.clone());
            self.from.refusals.forget(&key);
            self.from.claims.forget(&key);
            self.machines.send(&namespace, freed);
        }
        // Whether it has a host, and which it would take, decides whether its owner needs one that is kept.
        let selector = now.as_ref().map(|it| it.spec.host_selector.clone());
        let selects_anew = self.selectors.is_news((namespace.clone(), name.clone()), selector);
        let kept = if news || selects_anew {
            index.kept(&namespace, label.as_deref())
        } else {
            Vec::new()
        };
        // One that went without giving its host back left that to us.
        let left = index.hosts_of(&namespace, &name);
        drop(index);
        let left = left.into_iter().filter(|it| left::seems_left(&self.from, it));
        self.hosts.send(&namespace, kept.into_iter().chain(left.map(|it| it.name_any())));
    }

    /// Under which label hosts are kept for a machine's owner, if it has one that is known.
    fn owner_label(&self, namespace: &str, machine: &Metal3Machine) -> Option<String> {
        let parent = observe::parent(&self.from, namespace, machine);
        let owner = owner::of_machine(&self.from, namespace, machine, &parent)?;
        Some(owner.label())
    }
}

/// Name of Metal3's part of a machine.
fn metal3_machine(machine: &Machine) -> Option<&str> {
    let named = &machine.spec.infrastructure_ref;
    named.name.as_deref().filter(|_| named.kind.as_deref() == Some("Metal3Machine"))
}

/// One pass over a machine. Whatever comes of it, hosts that were held back for it and not taken go to others.
async fn reconcile_machine(
    object: Arc<Metal3Machine>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let key = machine_key(&namespace, &name);
    if context.echo.is_behind(&key, object.metadata.resource_version.as_deref()) {
        return Ok(Action::requeue(ECHO));
    }
    context.from.index().leave(&namespace, &name);
    let mut taken = None;
    let result = work_on_machine(&object, &context, &mut taken).await;
    context.complain(&result, &object.object_ref(&context.from.served.infrastructure)).await;
    let (since, now) = (created(&object), Instant::now());
    let offered = context.from.index().settle(&namespace, &name, since, taken.as_deref(), now);
    context.machines.send(&namespace, offered);
    result
}

async fn work_on_machine(
    object: &Arc<Metal3Machine>,
    context: &Context,
    taken: &mut Option<String>,
) -> Result<Action, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let (chance, until) = (backoff::random(), Instant::now() + DEADLINE);
    let Observed::Machine(mut seen) = observe_machine(&context.from, object, chance).await? else {
        return Ok(Action::await_change());
    };
    if let HostSeen::Here(host) = &seen.host {
        let key = host_key(&namespace, &host.name_any());
        let version = host.metadata.resource_version.as_deref();
        if !seen.live && context.echo.is_behind(&key, version) {
            return Ok(Action::requeue(ECHO));
        }
    }
    let (node, place) = node::look(&context.from, &seen).await;
    seen.node = node;
    let wish = wish(&seen);
    let seen = Observed::Machine(seen);
    let now = Timestamp::now();
    let decision = decide(&seen, &context.policy, now);
    context.metrics.decided(decision.reason);
    tracing::debug!(
        object.namespace = namespace, object.name = object.name_any(),
        reason = decision.reason.as_str(), steps = ?decision.steps, "Decided"
    );
    let Observed::Machine(seen) = &seen else { return Ok(Action::await_change()) };
    let done = carry_out(context, seen, &decision, taken, now, until).await;
    // A claim that was made is told whatever became of the report that follows it.
    if taken.is_some() || matches!(done, Ok(true)) {
        let reference = seen.machine.object_ref(&context.from.served.infrastructure);
        context.publish(&decision, &reference, "Assign").await;
    }
    let key = machine_key(&namespace, &object.name_any());
    if !done? {
        return Ok(context.superseded(&key));
    }
    if let (Some(naming), Some(place)) = (&decision.naming, place) {
        if name_node(&place.nodes, naming).await? == Outcome::Superseded {
            return Ok(context.superseded(&key));
        }
        tracing::info!(
            object.namespace = namespace,
            object.name = object.name_any(),
            node.name = naming.node,
            provider_id = naming.provider_id,
            "A Node got its provider ID"
        );
    }
    if let (Some(wants), Some(wish)) = (decision.wants, wish) {
        let found = context.from.index().wait(wish, wants, Instant::now());
        if found {
            return Ok(Action::requeue(Duration::ZERO));
        }
    }
    Ok(decision.again.map_or_else(Action::await_change, Action::requeue))
}

/// Carries out one step, and takes note of a host that is refused.
async fn try_step(
    pass: &mut Pass,
    step: &Step,
    refusals: &Refusals,
    machine: &Key,
) -> Result<Outcome, Error> {
    let (Step::Claim { host, .. } | Step::PassOver { host, .. }) = step else {
        return pass.act(step).await;
    };
    let before = refusals.try_again(machine, host);
    let outcome = pass.act(step).await;
    refusals.tried(machine, host, before, outcome.as_ref().err(), Instant::now());
    outcome
}

/// Carries out all steps; false if one of them was superseded.
async fn carry_out(
    context: &Context,
    seen: &MachineSeen,
    decision: &Decision,
    taken: &mut Option<String>,
    now: Timestamp,
    until: Instant,
) -> Result<bool, Error> {
    let namespace = seen.machine.namespace().unwrap_or_default();
    let mut pass = Pass::of_machine(context.from.client.clone(), context.from.served, seen, until);
    let machine = (namespace.clone(), seen.machine.name_any());
    let mut done = true;
    for step in &decision.steps {
        let outcome = try_step(&mut pass, step, &context.from.refusals, &machine).await;
        if let Err(error) = &outcome
            && error.is_refusal()
            && !matches!(step, Step::Report(_))
        {
            if matches!(step, Step::PassOver { insists: false, .. }) {
                continue;
            }
            context.metrics.decided(Reason::Refused);
            // A host that is lost matters more than what it was refused.
            let is_report = |step: &&Step| matches!(step, Step::Report(_));
            let report = if decision.reason == Reason::HostLost {
                decision.steps.iter().find(is_report).cloned()
            } else {
                refused(seen, &shorten(&error.to_string(), MESSAGE), now)
            };
            let is_told = match report {
                // What it was refused first is what is told and tried again.
                Some(report) => matches!(pass.act(&report).await, Ok(Outcome::Done)),
                None => true,
            };
            if is_told {
                let generation = seen.machine.metadata.generation;
                context.from.refusals.tell(machine.clone(), generation);
            }
        }
        let object = machine_key(&namespace, &seen.machine.name_any());
        if pass.machine_written {
            context.echo.wrote(&object, pass.machine_version.as_deref());
        }
        for host in &pass.hosts_written {
            let version = pass.host_versions.get(host).and_then(Option::as_deref);
            context.echo.wrote(&host_key(&namespace, host), version);
        }
        if outcome? == Outcome::Superseded {
            done = false;
            break;
        }
        if let Step::Claim { host, .. } = step
            && decision.reason != Reason::HostAdopted
        {
            *taken = Some(host.clone());
            context.from.refusals.forget(&machine);
            let (reason, message) = (decision.reason, decision.message.clone());
            let claimed = Claimed { host: host.clone(), reason, message };
            context.from.claims.note(machine.clone(), claimed);
            let age = now.duration_since(created(&seen.machine)).as_secs_f64();
            context.metrics.claimed(decision.reason == Reason::HostReused, age.max(0.0));
        }
        if matches!(step, Step::Report(_)) {
            context.from.claims.forget(&machine);
        }
    }
    Ok(done)
}
