//! Making hosts. Those of machines that waited are made as soon as Ironic has shown them once more, while it is asked for the
//! next: neither server waits for the other.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use controller_kit::backoff;
use futures_util::future::join_all;
use ironic::Class;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::{FRESH, State};
use crate::act::{self, Made, Order};
use crate::controller::Context;
use crate::decision::{Decision, Step};
use crate::node_id::NodeId;
use crate::observe::{self, Looked};
use crate::reason::Reason;
use crate::refusals::{Cause, Refusal};
use crate::resource::Resource;

/// How long it begins to make more hosts, so that a pass ends long before its deadline and what was decided is still so. To
/// decide, to wait for the last host and to write the status takes as long for a few as for many.
const MAKING: Duration = Duration::from_secs(2);

/// What came of making hosts.
struct Round {
    /// Whether there is reason to decide again at once.
    again: bool,
    /// Whether Ironic was asked about machines and said anything.
    looked: bool,
    /// Whether something that was decided is still to be done.
    left: bool,
}

impl State {
    /// Makes hosts, also of machines that had to be looked at once more: to leave those to the next pass, which may read
    /// others for as long as a look lasts, would leave them for ever. Says whether there is reason to decide again at once.
    pub(super) async fn make_all(
        &mut self,
        context: &Context,
        resources: &[Resource],
        decision: &mut Decision,
    ) -> bool {
        let first = self.make(context, resources, decision, true).await;
        if !(first.looked && first.left) {
            return first.again;
        }
        // Also where Ironic fell silent in between: other machines may be there now than were decided about.
        *decision = self.decided(context, resources);
        let more = self.make(context, resources, decision, false).await;
        first.again || more.again || more.left
    }

    /// Makes hosts. Machines that Ironic showed too long ago are looked at once more, if that is to be done in this round.
    async fn make(
        &mut self,
        context: &Context,
        resources: &[Resource],
        decision: &mut Decision,
        looks: bool,
    ) -> Round {
        let at = Instant::now();
        let refused = self.refusals.all();
        let (mut first, mut last, mut old) = (Vec::new(), Vec::new(), Vec::new());
        let mut waiting = HashMap::new();
        for (verdict, machine) in decision.verdicts.iter().zip(self.nodes.machines()) {
            let Some(Step::Create { name, boot_mac }) = &verdict.step else { continue };
            let Some(resource) = verdict.resource.and_then(|at| resources.get(at)) else {
                continue;
            };
            let (node, boot_mac) = (machine.node, *boot_mac);
            let details = self.nodes.details(node);
            let order = Order { resource, machine, verdict, name, boot_mac, details };
            if self.nodes.seen(node).is_none_or(|seen| at.duration_since(seen) > FRESH) {
                old.push(node);
                waiting.insert(node, order);
            } else if refused.contains_key(&node) {
                last.push(order);
            } else {
                first.push(order);
            }
        }
        let all = old.len() + first.len() + last.len();
        context.set_making(all > 0);
        let (ready, orders) = mpsc::unbounded_channel();
        let (nodes, looks, until) = (&self.nodes, looks && !old.is_empty(), at + MAKING);
        let look = async move {
            let give = |order| {
                // Whoever takes it lives as long as this.
                let _ = ready.send(order);
            };
            first.into_iter().for_each(give);
            let mut looked = Looked::default();
            if looks {
                let unchanged = |node| match waiting.remove(&node) {
                    Some(order) if refused.contains_key(&node) => last.push(order),
                    order => order.into_iter().for_each(give),
                };
                looked = observe::confirm(context, nodes, old, refused, until, unchanged).await;
            }
            // What failed before keeps nobody waiting.
            last.into_iter().for_each(give);
            looked
        };
        // An API server that fails is not asked for hundreds of hosts more; it may fail in one namespace alone.
        let stops: BTreeMap<&str, AtomicBool> =
            resources.iter().map(|it| (it.namespace.as_str(), AtomicBool::new(false))).collect();
        let orders = Mutex::new(orders);
        let hands =
            (0..context.kit.config.concurrency).map(|_| carry_out(context, &orders, at, &stops));
        let (looked, answers) = tokio::join!(look, join_all(hands));
        drop(orders);
        let answers: Vec<(NodeId, Made)> = answers.into_iter().flatten().collect();
        self.allowance.spend(u32::try_from(answers.len()).unwrap_or(u32::MAX));
        let left = answers.len() < all;
        let mut again = false;
        for (node, made) in answers {
            again |= !matches!(made, Made::Failed(..) | Made::Undescribed(_));
            self.made(node, made);
        }
        for verdict in decision.verdicts.iter_mut().filter(|it| it.reason == Reason::Created) {
            let resource = verdict.resource.and_then(|at| resources.get(at));
            let host = resource.zip(verdict.name.as_deref());
            let is_of_it = |it: &&Refusal| {
                host.is_some_and(|(resource, name)| it.is_of(&resource.namespace, name))
            };
            if let Some(refusal) = self.refusals.all().get(&verdict.node).filter(is_of_it) {
                verdict.fail(refusal);
            }
        }
        let looked = looks && self.take_in(context, looked);
        Round { again, looked, left }
    }

    /// Takes notice of what came of one order.
    fn made(&mut self, node: NodeId, made: Made) {
        match made {
            // Also if a person deletes it before the next pass.
            Made::Created(host) => {
                self.nodes.marked(node);
                self.refusals.taken(node, &host, Instant::now());
            }
            Made::Exists => self.refusals.made(node),
            Made::Failed(cause, text) => {
                let unit = backoff::random_unit();
                if self.refusals.failed(node, cause, &text, Instant::now(), unit) {
                    tracing::warn!(error = text, "Could not make a host");
                }
            }
            Made::Undescribed(text) => {
                let (cause, unit) = (Cause::Failed(None), backoff::random_unit());
                self.refusals.failed(node, cause, &text, Instant::now(), unit);
            }
            Made::Stale => self.nodes.look_at(node, Instant::now()),
        }
    }

    /// Takes notice of machines that were looked at once more. Says whether Ironic answered at all.
    fn take_in(&mut self, context: &Context, looked: Looked) -> bool {
        let read = looked.note(context, &mut self.nodes);
        let silence = read.silence.as_ref().filter(|_| !read.answered).map(ironic::Error::class);
        // Of an Ironic that is away altogether its own condition tells.
        if silence.is_none_or(|it| it == Class::Timeout) {
            for (node, error) in &read.unconfirmed {
                self.refusals.unconfirmed(*node, error, Instant::now(), backoff::random_unit());
            }
        }
        self.told(context, read);
        silence.is_none()
    }
}

/// Makes one host after the other, as their turn comes.
async fn carry_out(
    context: &Context,
    orders: &Mutex<UnboundedReceiver<Order<'_>>>,
    at: Instant,
    stops: &BTreeMap<&str, AtomicBool>,
) -> Vec<(NodeId, Made)> {
    let mut all = Vec::new();
    loop {
        let next = orders.lock().await.recv().await;
        let Some(order) = next else { return all };
        let stop = stops.get(order.resource.namespace.as_str());
        if at.elapsed() > MAKING || stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            continue;
        }
        let made = act::create(context, order).await;
        if let Made::Failed(Cause::Failed(_) | Cause::Unknown, _) = &made
            && let Some(stop) = stop
        {
            stop.store(true, Ordering::Relaxed);
        }
        all.push((order.machine.node, made));
    }
}
