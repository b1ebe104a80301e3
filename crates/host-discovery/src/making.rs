//! Making hosts. Those of machines that waited are made once Ironic has shown them once more.

use std::collections::BTreeSet;
use std::future::ready;
use std::task::Poll;
use std::time::Instant;

use controller_kit::engine::{Next, Outcome, Shared};
use futures_util::{FutureExt as _, StreamExt as _, stream};

use crate::context::{Context, News};
use crate::machine::Machine;
use crate::model::{HostPlan, Job, Made, Verdict};
use crate::node_id::NodeId;
use crate::observe::{self, MANY};
use crate::reason::Reason;
use crate::refusals::Cause;
use crate::table::Table;
use crate::text;
use crate::waits::{FIRST_RETRY, MAKING_MAX, SEEN_MAX_AGE};
use crate::write::{self, Order};

/// New hosts of one pass that events tell of: a person reads some of them, and a flood must not double its cost by telling of
/// itself.
const MOST_TOLD: usize = 20;

/// The hosts that were decided about.
fn orders<'a>(table: &'a Table, plan: &'a HostPlan) -> Vec<Order<'a>> {
    let nodes = &table.nodes;
    let order = |(verdict, machine): (&'a Verdict, &'a Machine)| {
        let name = verdict.name.as_deref().filter(|_| verdict.creates())?;
        let resource = table.resources.get(verdict.resource?)?;
        Some(Order { resource, machine, verdict, name, nodes })
    };
    plan.verdicts.iter().zip(nodes.machines()).filter_map(order).collect()
}

/// Makes the hosts that were decided about, as far as the time allows. What came of it is told to the next pass, which comes at
/// once where it may have something to do.
pub async fn make(context: &Context, table: &Table, plan: &mut HostPlan) -> Outcome {
    let makers = plan.makers();
    if !table.answers() || makers.is_empty() {
        return Outcome::default();
    }
    // What cannot be taken back is decided on what is so now: the watch on hosts tells of all, and the discoveries are as they
    // were.
    let looking = async {
        observe::watched(context).await?;
        let changed = observe::changed(context, &table.resources, &makers).await;
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
    let is_old = |it: &Order<'_>| {
        let seen = table.nodes.seen(it.machine.node);
        seen.is_none_or(|seen| at.duration_since(seen) > SEEN_MAX_AGE)
    };
    let lacks_details = |it: &Order<'_>| table.nodes.details(it.machine.node).is_none();
    let (unread, read): (Vec<_>, Vec<_>) = orders(table, plan).into_iter().partition(lacks_details);
    let (old, fresh): (Vec<_>, Vec<_>) = read.into_iter().partition(is_old);
    let begins_list = ask_again(context, table, &unread, &old);
    let answers = carry_out(context, table, fresh, at).await;
    let is_done = answers.is_empty() && !begins_list;
    let mut others = Vec::new();
    for (node, made) in answers {
        match made {
            Made::Created(_, told) => others.push(*told),
            Made::Failed(cause, text) => plan.fail(node, &cause, &text),
            Made::Exists | Made::Stale => {}
        }
    }
    others.truncate(MOST_TOLD);
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
fn ask_again(context: &Context, table: &Table, unread: &[Order<'_>], old: &[Order<'_>]) -> bool {
    if !table.may_read() {
        return false;
    }
    let is_list = old.len() > MANY;
    let one_by_one = if is_list { &[] } else { old };
    for order in unread.iter().chain(one_by_one) {
        context.begins(order.machine.node, Job::default());
    }
    let begins_list = is_list && !table.lists_all();
    if begins_list {
        context.tell(News::ListAll);
    }
    begins_list
}

/// Makes hosts, as far as the time allows.
async fn carry_out(
    context: &Context,
    table: &Table,
    mut orders: Vec<Order<'_>>,
    at: Instant,
) -> Vec<(NodeId, Made)> {
    // Those that failed before come last: they keep nobody waiting.
    orders.sort_by_key(|it| table.refusals.all().contains_key(&it.machine.node));
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
    order: Order<'_>,
    at: Instant,
    failing: &Shared<BTreeSet<String>>,
) -> Option<(NodeId, Made)> {
    let namespace = &order.resource.namespace;
    if at.elapsed() > MAKING_MAX || failing.with(|all| all.contains(namespace)) {
        return None;
    }
    let made = write::create(context, order).await;
    if let Made::Failed(Cause::Failed(_) | Cause::Unknown, _) = &made {
        failing.with(|all| all.insert(namespace.clone()));
    }
    // At once: this pass may not come to its end.
    let node = order.machine.node;
    context.tell(News::Made(node, made.clone()));
    Some((node, made))
}
