//! Making hosts. Those of machines that waited are made once Ironic has shown them once more.

use std::collections::BTreeSet;
use std::future::ready;
use std::task::Poll;
use std::time::Instant;

use controller_kit::engine::{Next, Outcome, Shared};
use futures_util::{FutureExt as _, StreamExt as _, stream};

use crate::context::Context;
use crate::model::{HostPlan, Made, Order};
use crate::observe::{self, MANY};
use crate::reason::Reason;
use crate::refusals::Cause;
use crate::table::Table;
use crate::text;
use crate::waits::{FIRST_RETRY, MAKING_MAX, SEEN_MAX_AGE};
use crate::write;

/// New hosts of one pass that events tell of: a person reads some of them, and a flood must not double its cost by telling of
/// itself.
const MOST_TOLD: usize = 20;

/// The hosts that were decided about, each with its machine as it was then.
fn orders(table: &Table, plan: &HostPlan) -> Vec<Order> {
    let orders = plan.verdicts.iter().filter(|it| it.creates()).filter_map(|verdict| {
        let (node, name) = (verdict.node, verdict.name.clone()?);
        let resource = table.resources.get(verdict.resource?)?.clone();
        let machine = table.nodes.machine(node)?.clone();
        let seen = table.nodes.seen(node);
        let has_details = table.nodes.details(node).is_some();
        Some(Order { resource, machine, verdict: verdict.clone(), name, seen, has_details })
    });
    let mut orders: Vec<_> = orders.collect();
    // Those that failed before come last: they keep nobody waiting.
    orders.sort_by_key(|it| table.refusals.all().contains_key(&it.machine.node));
    orders
}

/// Makes the hosts that were decided about, as far as the time allows. What came of it is told to the next pass, which comes at
/// once where it may have something to do.
pub async fn make(context: &Context, plan: &mut HostPlan) -> Outcome {
    // Nothing has changed since it was decided.
    let mut orders = context.table.with(|table| {
        let orders = orders(table, plan);
        table.nodes.settle(plan, Instant::now());
        orders
    });
    let makers = plan.makers();
    if makers.is_empty() {
        return Outcome::default();
    }
    // What cannot be taken back is decided on what is so now: the watch on hosts tells of all, and the discoveries are as they
    // were.
    let looking = async {
        observe::watched(context).await?;
        let changed = observe::changed(context, &orders).await;
        changed.map_err(|error| error.to_string())
    };
    let changed = match looking.await {
        Ok(changed) => changed,
        Err(behind) => {
            tracing::warn!(error = behind, "Makes no hosts");
            plan.wait_for_hosts(&makers, behind);
            return Outcome { next: Some(Next::After(FIRST_RETRY)), ..Outcome::default() };
        }
    };
    plan.hold_back(&changed, Reason::RateLimited, text::DISCOVERY_CHANGED);
    let at = Instant::now();
    orders.retain(|it| it.verdict.resource.is_none_or(|at| !changed.contains(&at)));
    let is_old = |it: &Order| it.seen.is_none_or(|seen| at.duration_since(seen) > SEEN_MAX_AGE);
    let (read, unread): (Vec<_>, Vec<_>) = orders.into_iter().partition(|it| it.has_details);
    let (old, fresh): (Vec<_>, Vec<_>) = read.into_iter().partition(is_old);
    let begins_list = ask_again(context, &unread, &old);
    let answers = carry_out(context, fresh, at).await;
    let is_done = answers.is_empty() && !begins_list;
    let others = answers.into_iter().filter_map(|made| match made {
        Made::Created(_, told) => Some(*told),
        Made::Exists | Made::Failed(..) | Made::Stale => None,
    });
    let others = others.take(MOST_TOLD).collect();
    // What was made changes what is to be said of others.
    let next = match (is_done, changed.is_empty()) {
        (false, _) => Some(Next::Now),
        (true, false) => Some(Next::After(FIRST_RETRY)),
        (true, true) => None,
    };
    Outcome { others, next, ..Outcome::default() }
}

/// Has Ironic asked once more about machines whose details had no room, and about those that it showed too long ago: about few of
/// these one by one, beside all this, and about many by a list. Says whether one is to begin.
fn ask_again(context: &Context, unread: &[Order], old: &[Order]) -> bool {
    let (may_read, lists_all) = context.table.with(|it| (it.may_read(), it.lists_all()));
    if !may_read {
        return false;
    }
    let is_list = old.len() > MANY;
    let one_by_one = unread.iter().chain(if is_list { &[] } else { old });
    context.read(one_by_one.map(|it| it.machine.node));
    let begins_list = is_list && !lists_all;
    if begins_list {
        context.table.with(Table::list_all);
    }
    begins_list
}

/// Makes hosts, as far as the time allows.
async fn carry_out(context: &Context, orders: Vec<Order>, at: Instant) -> Vec<Made> {
    // An API server that fails is not asked for hundreds of hosts more; it may fail in one namespace alone.
    let failing = Shared::default();
    // Each is begun when its turn comes: what is begun of thousands at once takes megabytes.
    let begin = |order| carry_out_one(context, order, at, &failing).boxed();
    let mut orders = orders.into_iter();
    stream::poll_fn(|_| Poll::Ready(orders.next().map(begin)))
        .buffer_unordered(usize::from(context.kit.config.concurrency))
        .filter_map(ready)
        .collect()
        .await
}

/// Makes one host, unless the time is over.
async fn carry_out_one(
    context: &Context,
    order: Order,
    at: Instant,
    failing: &Shared<BTreeSet<String>>,
) -> Option<Made> {
    let namespace = &order.resource.namespace;
    if at.elapsed() > MAKING_MAX || failing.with(|all| all.contains(namespace)) {
        return None;
    }
    let made = write::create(context, &order).await;
    if let Made::Failed(Cause::Failed(_) | Cause::Unknown, _) = &made {
        failing.with(|all| all.insert(namespace.clone()));
    }
    // At once: this pass may not come to its end.
    context.table.with(|table| table.made(order.machine.node, made.clone()));
    Some(made)
}
