//! Wiring: watches, what follows from a change, and the rule books as the engine drives them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use api_types::metal3::{BareMetalHost, BareMetalHostDiscovery};
use controller_kit::Kit;
use controller_kit::backoff::Class as Retry;
use controller_kit::engine::{
    self, Class, Controller, Decision, Error, Event, Lookout, Next, Now, ObjectKey, Outcome,
    Reason as _, Shared,
};
use controller_kit::unread::Broken;
use controller_kit::watch::{self, Told};
use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt as _;
use kube::runtime::watcher;

use crate::context::Context;
use crate::decide::decide;
use crate::index::{Change, Index};
use crate::look::{self, IRONIC};
use crate::metrics::Metrics;
use crate::model::{
    Adoption, DiscoveryView, Fitting, HostPlan, Key, Memory, Report, StatusPlan, Strays, Turn,
    Write,
};
use crate::reason::Pass;
use crate::report::{report, trouble, word};
use crate::settings::Policy;
use crate::sighting::Sighting;
use crate::table::Table;
use crate::waits::{IRONIC_RETRY, IRONIC_RETRY_MAX, READING_MAX, REFUSED_RETRY, SHORTEST_WAIT};
use crate::{adopt, discovery, making, observe, status, text, write};

/// What a pass sees.
pub enum Seen {
    /// All machines, as the table has them.
    All,
    /// A discovery.
    Discovery(Box<DiscoveryView>),
    /// There is nothing to decide: what came of reading a machine is told to the pass about all.
    Known(Pass),
    /// A mark that is still to be written.
    Mark(Turn),
    /// A driver that is to follow.
    Driver(Box<Fitting>, Turn),
    /// Ironic, or the API server, did not say whether it does.
    Unanswered(Turn),
}

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy, settings: ironic::Settings) -> Result<(), String> {
    let ironic = ironic::Client::new(settings).map_err(|error| error.to_string())?;
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let hosts = watch::told_everywhere::<Sighting>(&kit);
    let watched = watch::namespaced::<BareMetalHostDiscovery>(&kit, &watcher::Config::default());
    let context = &Context {
        kit: kit.clone(),
        table: Shared::default(),
        policy,
        ironic,
        metrics,
        lookout: Lookout::default(),
        discoveries: watched.cache(),
        index: Shared::default(),
        status_plans: Shared::default(),
        adoptions: Shared::default(),
        late_fields: OnceLock::new(),
    };
    context.table.with(|table| *table = Table::new(&policy));
    kit.readiness.require_to_lead(IRONIC, text::IRONIC_NOT_ASKED);
    let watching = Box::pin(async {
        tokio::select! {
            () = follow(context, hosts) => {}
            () = watch::feed(watched.changes, |it| changed(context, it)) => {}
            never = stand_by(context) => match never {},
        }
    });
    // A pass that reads a machine, or a page of nodes, has time left for the rest.
    Box::pin(engine::run(&kit, context, &context.lookout, watching, 2 * READING_MAX)).await
}

/// A discovery appeared, changed or went.
fn changed(context: &Context, object: &BareMetalHostDiscovery) {
    let key = ObjectKey::of(object);
    let (is_there, of) = (context.discoveries.get(&key).is_some(), Key::Discovery(key));
    if !is_there {
        context.lookout.gone(of);
        context.changed();
        return;
    }
    let version = object.resource_version().unwrap_or_default();
    if context.lookout.changed(&of, &version, Class::Urgent) {
        context.changed();
    }
}

/// Keeps the index as the hosts are.
async fn follow(context: &Context, hosts: impl Stream<Item = Told<Sighting>>) {
    let mut hosts = std::pin::pin!(hosts);
    while let Some(told) = hosts.next().await {
        let change = match told {
            Told::Listing => {
                context.index.with(Index::listing);
                Change::None
            }
            Told::Applied(host) => {
                let (change, rivals) = context.index.with(|index| index.take(&host));
                // Their nodes have two hosts now.
                for host in rivals {
                    context.host_changed(Change::Less(host));
                }
                wants_driver(context, ObjectKey::of(&host), Adoption::of(&host).as_ref());
                change
            }
            Told::Undecodable(metadata) => {
                // Its name and its annotations still say whose machine it is.
                let host = Sighting { metadata, ..Sighting::default() };
                context.index.with(|index| index.apply(&host))
            }
            Told::Gone(metadata) => {
                let change = context.index.with(|index| index.remove(&metadata));
                if let Change::Gone(host) = &change {
                    wants_driver(context, host.host.clone(), None);
                }
                change
            }
            Told::Listed => {
                for host in context.index.with(Index::listed) {
                    wants_driver(context, host.host.clone(), None);
                    context.host_changed(Change::Gone(host));
                }
                Change::More
            }
        };
        context.host_changed(change);
    }
}

/// Takes notice of whether a host asks for the driver of its node, and for which. The node is looked at when that changes: Ironic
/// would else be asked at each write to the host's status.
fn wants_driver(context: &Context, host: ObjectKey, adoption: Option<&Adoption>) {
    let asked = context.adoptions.with(|all| match adoption {
        Some(adoption) => all.insert(host.clone(), adoption.clone()),
        None => all.remove(&host),
    });
    if asked.as_ref() != adoption {
        context.lookout.enqueue(Key::Driver(host), Class::Background);
    }
}

/// Beside all keys. A process that may not act looks whether it could.
async fn stand_by(context: &Context) -> Infallible {
    loop {
        if !context.kit.may_act() {
            let checked = context.ironic.check().await;
            let checked = checked.inspect_err(|error| context.metrics.ironic_failed(error));
            look::told(context, checked.as_ref().err().map(|error| (error, IRONIC)));
        }
        tokio::time::sleep(context.policy.poll_interval).await;
    }
}

impl Controller for Context {
    type Key = Key;
    type Observed = Seen;
    type Write = Write;
    type Memory = Memory;
    type Reason = Pass;

    /// The others follow from what is decided about all.
    fn keys(&self) -> Vec<Key> {
        let hosts: Vec<_> = self.adoptions.with(|all| all.keys().cloned().collect());
        let handed_over: Vec<_> = self.table.with(|table| table.handed_over().collect());
        let drivers = hosts.into_iter().map(Key::Driver);
        std::iter::once(Key::All).chain(drivers).chain(handed_over).collect()
    }

    fn class(&self, key: &Key) -> Class {
        match key {
            Key::All | Key::Discovery(_) => Class::Urgent,
            Key::Machine(_) => Class::Normal,
            Key::Mark(_) | Key::Driver(_) => Class::Background,
        }
    }

    /// Nothing here waits for long: one pass is for all machines.
    fn retry(&self, error: &Error) -> Retry {
        error.retry().urgent()
    }

    fn version<'s>(&self, seen: &'s Seen) -> Option<&'s str> {
        match seen {
            Seen::Discovery(view) => view.object.metadata.resource_version.as_deref(),
            _ => None,
        }
    }

    fn object(&self, key: &Key) -> ObjectReference {
        let of_host = |host: &ObjectKey| {
            // Without it an event is not shown with its host.
            let uid = self.index.with(|index| index.uid(host).map(str::to_owned));
            ObjectReference { uid, ..host.reference::<BareMetalHost>(&()) }
        };
        match key {
            Key::Discovery(key) => self.discoveries.reference(key),
            Key::Mark(it) => of_host(&it.host),
            Key::Driver(host) => of_host(host),
            Key::All | Key::Machine(_) => ObjectReference::default(),
        }
    }

    fn unread(&self, broken: &Broken) -> String {
        text::undecodable(&broken.problem)
    }

    async fn observe(&self, key: &Key, memory: &mut Memory) -> Result<Option<Seen>, Error> {
        Ok(match key {
            Key::All => {
                look::look(self).await?;
                Some(Seen::All)
            }
            Key::Discovery(key) => {
                discovery::observe(self, key).map(|it| Seen::Discovery(Box::new(it)))
            }
            Key::Machine(node) => observe::machine(self, *node).await.map(Seen::Known),
            Key::Mark(_) => Some(Seen::Mark(Turn::of(memory))),
            Key::Driver(host) => {
                let adoption = self.adoptions.with(|all| all.get(host).cloned());
                let Some(adoption) = adoption else { return Ok(None) };
                let turn = Turn::of(memory);
                match adopt::observe(self, host, adoption).await {
                    Ok(fitting) => fitting.map(|fitting| {
                        if fitting.fits() {
                            *memory = None;
                        }
                        Seen::Driver(Box::new(fitting), turn)
                    }),
                    Err(error) => {
                        tracing::debug!(object.key = %host, error = %error, "Could not look at a driver");
                        Some(Seen::Unanswered(turn))
                    }
                }
            }
        })
    }

    fn decide(&self, seen: &Seen, now: Now) -> Decision<Write, Pass> {
        match seen {
            Seen::All => self.table.with(|table| self.decide_all(table)),
            Seen::Discovery(view) => discovery::decide(view, now),
            Seen::Known(reason) => Decision::rest(*reason),
            Seen::Mark(turn) => decide_mark(*turn, now),
            Seen::Driver(fitting, turn) => adopt::decide(fitting, *turn, now),
            Seen::Unanswered(turn) => turn.again(now),
        }
    }

    async fn write(
        &self,
        key: &Key,
        seen: &Seen,
        write: Write,
        memory: &mut Memory,
    ) -> Result<Outcome, Error> {
        match (key, seen, write) {
            (_, Seen::All, Write::Hosts(mut plan)) => {
                let outcome = making::make(self, &mut plan).await;
                self.table.with(|table| self.publish(table, &plan));
                Ok(outcome)
            }
            (_, Seen::Discovery(view), Write::Approvals(approvals)) => {
                write::settle_approvals(self, &view.object, &approvals).await
            }
            (_, Seen::Discovery(view), Write::Status(status)) => {
                let outcome = write::write_status(self, &view.object, &status).await?;
                let before = view.object.status.clone().unwrap_or_default();
                for it in status::newly_failed(&before, &status) {
                    self.metrics.failed(word(it));
                }
                Ok(outcome)
            }
            (Key::Mark(it), _, Write::Mark) => match write::mark(self, it).await {
                Ok(()) => {
                    *memory = None;
                    self.table.with(|table| table.marks.remove(it));
                    Ok(Outcome::default())
                }
                Err(error) => {
                    if error.class() == ironic::Class::NotFound {
                        self.table.with(|table| table.marks.remove(it));
                    }
                    let text = text::mark_refused(it.node, &error.to_string());
                    Ok(not_taken(self, memory, &error, (Pass::MarkRefused, &text)))
                }
            },
            (_, Seen::Driver(fitting, _), Write::Driver(chosen, before)) => {
                let node = fitting.adoption.node;
                match write::set_driver(self, node, chosen, &before).await {
                    Ok(()) => {
                        self.metrics.adopted.inc();
                        tracing::info!(node.id = %node, object.key = ?key, driver = chosen.driver, "Gave a node the driver of its host's BMC");
                        let text = text::driver_adopted(node, chosen, &before);
                        let reason = Pass::DriverAdopted.as_str();
                        let events = vec![Event::new(false, reason, "Adopt", &text)];
                        Ok(Outcome { events, ..Outcome::default() })
                    }
                    Err(error) => {
                        let text = text::driver_refused(node, &error.to_string());
                        Ok(not_taken(self, memory, &error, (Pass::DriverRefused, &text)))
                    }
                }
            }
            // Every write is decided for what it is about.
            _ => Ok(Outcome::default()),
        }
    }
}

/// Whether it is the turn of a mark.
fn decide_mark(turn: Turn, now: Now) -> Decision<Write, Pass> {
    let mark = || Decision { next: Next::OnChange, ..Decision::write(Pass::Marked, Write::Mark) };
    turn.left_alone(now).unwrap_or_else(mark)
}

/// Why a write waits that Ironic did not take: a person is told where nothing but a person can change that. None where the node
/// is gone.
fn why_not(class: ironic::Class, refused: Pass) -> Option<Pass> {
    match class {
        ironic::Class::NotFound => None,
        class if class.is_transient() => Some(Pass::IronicBusy),
        _ => Some(refused),
    }
}

/// What follows where Ironic did not take a write.
fn not_taken(
    context: &Context,
    memory: &mut Memory,
    error: &ironic::Error,
    (refused, text): (Pass, &str),
) -> Outcome {
    context.metrics.ironic_failed(error);
    tracing::debug!(error = %error, "Ironic does not take a write to a node");
    let Turn { since, .. } = Turn::of(memory);
    let Some(reason) = why_not(error.class(), refused) else {
        *memory = None;
        return Outcome { next: Some(Next::OnChange), ..Outcome::default() };
    };
    let wait = match reason {
        Pass::IronicBusy => IRONIC_RETRY,
        Pass::MarkRefused => REFUSED_RETRY,
        _ => since.elapsed().clamp(REFUSED_RETRY, IRONIC_RETRY_MAX),
    };
    *memory = Some(Turn { since, refused: Some((Instant::now() + wait, reason)) });
    let event = Event { hourly: Some(0), ..Event::new(true, reason.as_str(), "Write", text) };
    let events = (reason == refused).then_some(event).into_iter().collect();
    Outcome { events, next: Some(Next::Now), ..Outcome::default() }
}

impl Context {
    fn decide_all(&self, table: &Table) -> Decision<Write, Pass> {
        let plan = self.index.with(|index| decide(&table.observed(index), &self.policy));
        let again = plan.again.filter(|_| table.answers());
        let reason = plan.pass(table.answers());
        let next = again.map_or(Next::OnChange, |again| Next::After(again.max(SHORTEST_WAIT)));
        let write = Write::Hosts(Box::new(plan));
        Decision { writes: vec![write], next, ..Decision::rest(reason) }
    }

    /// Tells each discovery what its status is to say.
    fn publish(&self, table: &Table, plan: &HostPlan) {
        let nodes = &table.nodes;
        let (known, strays) = (nodes.known(), Strays::of(plan, nodes.registered()));
        let version = self.ironic.offered().map(|it| it.to_string());
        let mut counts = Vec::new();
        let mut all = BTreeMap::new();
        for (at, resource) in table.resources.iter().enumerate() {
            if resource.deleting {
                continue;
            }
            let made = self.index.with(|index| resource.made(index));
            let trouble = trouble(at, plan, nodes.left_out());
            let report = report(at, plan, |node| nodes.machine(node), known, made);
            let strays = Some(strays).filter(|_| table.caught_up);
            let report = Report { trouble, strays, ..report };
            let approvals = plan.approvals.iter().find(|it| it.resource == at);
            counts.push(report.counts.clone());
            let status_plan = StatusPlan {
                resource: resource.clone(),
                reach: table.reach.clone(),
                report,
                ironic_version: version.clone(),
                asked: table.asked,
                approvals: approvals.filter(|_| table.answers()).cloned(),
            };
            let key = ObjectKey::new(&resource.namespace, &resource.name);
            // What is decided within this time is written together.
            let interval = self.policy.status_interval;
            self.lookout.enqueue_after(Key::Discovery(key.clone()), Class::Urgent, interval);
            all.insert(key, Arc::new(status_plan));
        }
        self.metrics.show(known, strays, &counts);
        self.status_plans.with(|status_plans| *status_plans = all);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_ironic_refuses_is_told_of_the_host_and_what_it_may_do_later_is_not() {
        for class in ironic::Class::ALL {
            let told = why_not(class, Pass::MarkRefused) == Some(Pass::MarkRefused);
            let quiet = class.is_transient() || class == ironic::Class::NotFound;
            assert_eq!(told, !quiet, "{class:?}");
        }
        let why = |class| why_not(class, Pass::MarkRefused);
        assert_eq!(why(ironic::Class::NotFound), None);
        assert_eq!(why(ironic::Class::Busy), Some(Pass::IronicBusy));
    }

    #[test]
    fn a_mark_that_ironic_refused_is_tried_again_when_it_is_time() {
        let now = Now::read();
        let decided = |wait| {
            let refused = Some((now.moment + Duration::from_secs(wait), Pass::MarkRefused));
            decide_mark(Turn { since: now.moment, refused }, now)
        };
        assert_eq!(decided(9).next, Next::After(Duration::from_secs(9)));
        assert_eq!((decided(9).reason, decided(0).reason), (Pass::MarkRefused, Pass::Marked));
    }
}
