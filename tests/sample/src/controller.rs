//! The watch, who is concerned by a change, and one pass over one guest or seat.

use std::sync::Arc;
use std::time::Duration;

use controller_kit::{Kit, run, watch};
use futures_util::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};

use crate::act::{Outcome, act};
use crate::config::Policy;
use crate::decide::decide;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::observe::{observe, role};
use crate::{GUEST, HOLDER, RESULT, ROLE, SEAT};

/// A pass is a few requests; one that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// What every pass shares.
pub struct Context {
    client: Client,
    policy: Policy,
    metrics: Metrics,
}

/// Works until the process is to end. The kit is the process' own, or one that a test made in its place.
pub async fn run(kit: Kit, policy: Policy) -> Result<(), String> {
    let metrics = Metrics::new(&kit.metrics.registry)
        .map_err(|error| format!("Cannot set up metrics: {error}"))?;
    let ours = watch::namespaced::<ConfigMap>(&kit, &watcher::Config::default().labels(ROLE));
    let triggers = with_concerned(ours.store.clone(), ours.changes);
    let controller = Controller::for_stream(triggers, ours.store).reconcile_all_on(kit.allowed());
    let context = Arc::new(Context { client: kit.client.clone(), policy, metrics });
    run::drive(&kit, controller, context, DEADLINE, reconcile, Error::class).await;
    Ok(())
}

/// What changed, and whom it concerns: guests and seats are of one kind, and one watch per kind is enough.
fn with_concerned<E>(
    store: Store<ConfigMap>,
    changes: impl Stream<Item = Result<ConfigMap, E>>,
) -> impl Stream<Item = Result<ConfigMap, E>> {
    changes.flat_map(move |change| {
        let concerned = change.as_ref().map_or_else(|_| Vec::new(), |it| concerned(&store, it));
        stream::iter(std::iter::once(change).chain(concerned.into_iter().map(Ok)))
    })
}

/// A guest that waits is looked at when a seat changes, a seat when its guest does.
fn concerned(store: &Store<ConfigMap>, changed: &ConfigMap) -> Vec<ConfigMap> {
    let uid = changed.uid();
    let is_concerned = |it: &Arc<ConfigMap>| {
        it.namespace() == changed.namespace()
            && match (role(changed), role(it)) {
                (Some(SEAT), Some(GUEST)) => {
                    it.metadata.deletion_timestamp.is_some()
                        || !it.annotations().contains_key(RESULT)
                }
                (Some(GUEST), Some(SEAT)) => it.annotations().get(HOLDER) == uid.as_ref(),
                _ => false,
            }
    };
    store.state().iter().filter(|it| is_concerned(it)).map(|it| (**it).clone()).collect()
}

/// One pass: at most one step, and somebody else's write is no failure.
async fn reconcile(object: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let api = Api::namespaced(context.client.clone(), &namespace);
    let seen = observe(&api, &object).await?;
    let decision = decide(&seen, &context.policy, Timestamp::now());
    context.metrics.decided(decision.reason);
    tracing::debug!(
        object.namespace = namespace,
        object.name = object.name_any(),
        reason = decision.reason.as_str(),
        "Decided"
    );
    for step in &decision.steps {
        if act(&api, step).await? == Outcome::Superseded {
            return Ok(Action::requeue(context.policy.retry));
        }
    }
    // The event of our own write may concern another object than the one that we are about.
    if !decision.steps.is_empty() {
        return Ok(Action::requeue(Duration::ZERO));
    }
    Ok(decision.again.map_or_else(Action::await_change, Action::requeue))
}
