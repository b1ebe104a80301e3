//! What is read before it is decided about all machines: new nodes, and machines whose turn it is.

use std::time::Instant;

use controller_kit::engine::{Class as Urgency, Error};
use ironic::Class;

use crate::context::Context;
use crate::model::Key;
use crate::observe;
use crate::resource::Resource;
use crate::table::MOST_READ;
use crate::waits::{HANGS_AFTER, READING_MAX};

/// The conditions of readiness: that Ironic answers, and that it lists its nodes. Where it does not list them another replica
/// would get none either: it does not lead instead, or the two would end each other for as long as that lasts.
pub const IRONIC: &str = "ironic";
const IRONIC_LISTS: &str = "ironic-lists";

/// Has all in the table that is to be decided upon: asks Ironic what is new where it is time, and has machines read whose turn
/// it is.
pub async fn look(context: &Context) -> Result<(), Error> {
    // What is older than a list is taken notice of before it.
    context.table.with(|it| it.nodes.unsettle(&std::mem::take(&mut it.gone), Instant::now()));
    observe::learn_fields(context).await?;
    if let Some((all, is_first)) = context.table.with(|it| it.next_list()) {
        poll(context, all, is_first).await;
    }
    if context.table.with(|it| it.may_read()) {
        hand_out(context).await;
    }
    let resources = discoveries(context);
    let (marks, rest) = context.table.with(|it| {
        let marks = it.next_marks();
        it.look_at(resources);
        (marks, it.rest())
    });
    for mark in marks {
        context.lookout.enqueue(Key::Mark(mark), Urgency::Background);
    }
    context.lookout.enqueue_after(Key::All, Urgency::Urgent, rest);
    Ok(())
}

/// Every discovery as it is now. One that cannot be read takes precedence over the others.
fn discoveries(context: &Context) -> Vec<Resource> {
    let mut all: Vec<Resource> = context.ours().iter().map(|it| Resource::read(it)).collect();
    for unread in context.discoveries.broken.all().iter().map(|it| &it.metadata) {
        if context.is_ours(unread) && unread.deletion_timestamp.is_none() {
            for it in &mut all {
                it.give_way(unread);
            }
        }
    }
    all
}

/// Asks Ironic for what is new, or for all: one page.
async fn poll(context: &Context, all: bool, is_first: bool) {
    let now = Instant::now();
    let asking = async {
        // The first time everything is looked at, for the best sentence about what is wrong.
        if is_first {
            context.ironic.check().await?;
        }
        observe::within(READING_MAX, "the list of nodes", observe::poll(context, all)).await
    };
    match asking.await {
        Ok(list) => {
            context.table.with(|it| it.polled(list.as_ref(), &context.policy, now));
            if let Some(list) = list {
                context.metrics.polled(list.all, list.began.elapsed().as_secs_f64());
                told(context, None);
            }
        }
        Err(error) if error.class() == Class::MarkerGone => {
            context.table.with(|it| it.lists_anew(now));
        }
        Err(error) => {
            let checked = observe::within(HANGS_AFTER, "Ironic", context.ironic.check()).await;
            let lacking = if checked.is_ok() { IRONIC_LISTS } else { IRONIC };
            context.metrics.ironic_failed(&error);
            let interval = context.policy.poll_interval;
            if !context.table.with(|it| it.unlisted(&error, interval)) {
                told(context, Some((&error, lacking)));
            }
        }
    }
    let left_out = context.table.with(|it| it.nodes.left_out());
    context.metrics.left_out.set(i64::try_from(left_out).unwrap_or(i64::MAX));
}

/// Has machines read whose turn it is.
async fn hand_out(context: &Context) {
    let (due, lists) =
        context.table.with(|it| (it.nodes.due(Instant::now(), usize::MAX), it.list.is_some()));
    // Ports are shown once: before the last page of nodes nobody knows yet for which of them they are wanted.
    if !due.is_empty() && !lists {
        observe::list_ports(context, &due).await;
    }
    let room = context.table.with(|it| MOST_READ.saturating_sub(it.nodes.being_read().len()));
    context.read(due.into_iter().take(room));
}

/// Shows whether Ironic answers, or else which condition of readiness is lacking.
pub fn told(context: &Context, failure: Option<(&ironic::Error, &'static str)>) {
    let readiness = &context.kit.readiness;
    context.metrics.ironic_reachable.set(failure.is_none().into());
    for it in [IRONIC, IRONIC_LISTS] {
        match failure {
            Some((error, lacking)) if lacking == it => readiness.not_ready(it, &error.to_string()),
            _ => readiness.ready(it),
        }
    }
}
