//! Watches, and one pass over one guest or seat.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};

use crate::act::act;
use crate::config::Policy;
use crate::decide::decide;
use crate::error::Error;
use crate::observe::{observe, role};
use crate::{GUEST, HOLDER, RESULT, ROLE, SEAT};

/// What every pass shares.
#[derive(Clone)]
pub struct Context {
    api: Api<ConfigMap>,
    policy: Policy,
}

impl Context {
    /// The sample in one namespace.
    pub fn new(client: Client, namespace: &str, policy: Policy) -> Self {
        Self { api: Api::namespaced(client, namespace), policy }
    }
}

/// The watches: a guest that waits is looked at when a seat changes, a seat when its guest does.
pub fn controller(context: &Context) -> Controller<ConfigMap> {
    let ours = watcher::Config::default().labels(ROLE);
    let controller = Controller::new(context.api.clone(), ours.clone());
    let store = controller.store();
    controller.watches(context.api.clone(), ours, move |changed| concerned(&store, &changed))
}

fn concerned(store: &Store<ConfigMap>, changed: &ConfigMap) -> Vec<ObjectRef<ConfigMap>> {
    let uid = changed.uid();
    let is_concerned = |it: &Arc<ConfigMap>| match (role(changed), role(it)) {
        (Some(SEAT), Some(GUEST)) => {
            it.metadata.deletion_timestamp.is_some() || !it.annotations().contains_key(RESULT)
        }
        (Some(GUEST), Some(SEAT)) => it.annotations().get(HOLDER) == uid.as_ref(),
        _ => false,
    };
    let all = store.state();
    let found = all.iter().filter(|it| is_concerned(it));
    found.map(|it| ObjectRef::from_obj(&**it)).collect()
}

/// One pass: at most one step, and somebody else's write is no failure.
pub async fn reconcile(object: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Error> {
    let seen = observe(&context.api, &object).await?;
    let decision = decide(&seen, &context.policy, Timestamp::now());
    tracing::debug!(name = object.name_any(), reason = decision.reason.as_str());
    for step in &decision.steps {
        match act(&context.api, step).await {
            Ok(()) => {}
            Err(Error::Superseded(_)) => return Ok(Action::requeue(context.policy.retry)),
            Err(error) => return Err(error),
        }
    }
    // The event of our own write may concern another object than the one that we are about.
    if !decision.steps.is_empty() {
        return Ok(Action::requeue(Duration::ZERO));
    }
    Ok(decision.again.map_or_else(Action::await_change, Action::requeue))
}

/// Runs the controller alone, without probes, lease or metrics, until it is told to stop.
pub async fn run(
    client: Client,
    namespace: &str,
    policy: Policy,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let context = Context::new(client, namespace, policy);
    let retry = context.policy.retry;
    // One pass at a time: what only two processes can do wrong must not already show in one.
    controller(&context)
        .with_config(Config::default().concurrency(1))
        .graceful_shutdown_on(stop)
        .run(
            reconcile,
            move |_, error, _| {
                tracing::warn!(%error, "Pass failed");
                Action::requeue(retry)
            },
            Arc::new(context),
        )
        .for_each(|_| std::future::ready(()))
        .await;
}
