//! One pass over a host: whether it is kept any longer, or is given back in place of a machine that is gone.

use std::sync::Arc;
use std::time::Instant;

use api_types::metal3::CachedHost;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::runtime::controller::Action;

use super::{DEADLINE, DOUBT};
use crate::act::{Outcome, Pass};
use crate::context::Context;
use crate::decide::decide;
use crate::decision::Step;
use crate::echo::host_key;
use crate::error::Error;
use crate::observe::owner::observe_kept;
use crate::observe::word::confirms;
use crate::observe::{left, live_host};
use crate::seen::Observed;

/// One pass.
pub(super) async fn reconcile_host(
    object: Arc<CachedHost>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let result = if left::seems_left(&context.from, &object) {
        give_back(&object, &context).await
    } else {
        work_on_host(&object, &context).await
    };
    context.complain(&result, &object.object_ref(&())).await;
    result
}

fn names_of(object: &CachedHost) -> (String, String) {
    let (namespace, name) = (&object.metadata.namespace, &object.metadata.name);
    (namespace.clone().unwrap_or_default(), name.clone().unwrap_or_default())
}

async fn work_on_host(object: &CachedHost, context: &Context) -> Result<Action, Error> {
    let (key, until) = (names_of(object), Instant::now() + DEADLINE);
    let (namespace, name) = key.clone();
    let now = Timestamp::now();
    let since = || context.settled.since(&key, now);
    let Some(seen) = observe_kept(&context.from, object, since()).await? else {
        return Ok(Action::await_change());
    };
    let mut decision = decide(&Observed::Kept(Box::new(seen)), &context.policy, now);
    if decision.settled {
        context.settled.begin(&key);
    } else if decision.steps.is_empty() {
        context.settled.end(&key);
    }
    if !decision.steps.is_empty() {
        // Before somebody's reservation is taken away, a live look.
        let Some(live) = live_host(&context.from.client, &namespace, &name).await? else {
            return Ok(Action::await_change());
        };
        let Some(seen) = observe_kept(&context.from, &live, since()).await? else {
            return Ok(Action::await_change());
        };
        let mut pass =
            Pass::of_host(context.from.client.clone(), context.from.served, &seen.host, until);
        let kept = seen.kept.clone();
        decision = decide(&Observed::Kept(Box::new(seen)), &context.policy, now);
        let ends = decision.steps.iter().any(|step| matches!(step, Step::Free { .. }));
        if ends && !confirms(&context.from, &namespace, &kept, decision.reason).await? {
            return Ok(Action::requeue(DOUBT));
        }
        for step in &decision.steps {
            if pass.act(step).await? == Outcome::Superseded {
                return Ok(context.superseded(&host_key(&namespace, &name)));
            }
        }
        if ends {
            context.metrics.dropped(decision.reason);
        }
        if !decision.steps.is_empty() {
            context.publish(&decision, &live.object_ref(&()), "Keep").await;
        }
    }
    context.metrics.decided(decision.reason);
    Ok(decision.again.map_or_else(Action::await_change, Action::requeue))
}

/// What stands on the host is done in place of its machine.
async fn give_back(object: &CachedHost, context: &Context) -> Result<Action, Error> {
    let (namespace, name) = names_of(object);
    let until = Instant::now() + DEADLINE;
    let Some(seen) = left::observe(&context.from, &namespace, &name).await? else {
        return Ok(Action::await_change());
    };
    let mut pass =
        Pass::of_host(context.from.client.clone(), context.from.served, &seen.host, until);
    let reference = seen.host.object_ref(&());
    let decision = decide(&Observed::Left(Box::new(seen)), &context.policy, Timestamp::now());
    for step in &decision.steps {
        if pass.act(step).await? == Outcome::Superseded {
            return Ok(context.superseded(&host_key(&namespace, &name)));
        }
    }
    context.publish(&decision, &reference, "Keep").await;
    context.metrics.decided(decision.reason);
    Ok(decision.again.map_or_else(Action::await_change, Action::requeue))
}
