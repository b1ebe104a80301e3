//! What every pass shares.

use std::time::Instant;

use api_types::capm3::{HostSelector, Metal3Machine};
use controller_kit::Kit;
use controller_kit::backoff;
use controller_kit::wakes::Wakes;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;

use crate::decision::Decision;
use crate::echo::Echo;
use crate::error::Error;
use crate::matter::{Matter, OfCluster, OfMachine};
use crate::metrics::Metrics;
use crate::observe::Sources;
use crate::observe::owner::Outline;
use crate::races::Races;
use crate::reason::Reason;
use crate::settings::Policy;
use crate::settled::Settled;

pub(crate) struct Context {
    pub(crate) kit: Kit,
    pub(crate) policy: Policy,
    pub(crate) metrics: Metrics,
    pub(crate) from: Sources,
    pub(crate) machines: Wakes,
    pub(crate) hosts: Wakes,
    pub(crate) echo: Echo,
    pub(crate) races: Races,
    pub(crate) settled: Settled,
    pub(crate) clusters: Matter<OfCluster>,
    pub(crate) parents: Matter<OfMachine>,
    pub(crate) deployments: Matter<Outline>,
    pub(crate) planes: Matter<Outline>,
    /// Which hosts machines select, of each one that there is.
    pub(crate) selectors: Matter<Option<HostSelector>>,
}

impl Context {
    pub(crate) fn machine_ref(&self, namespace: &str, name: &str) -> ObjectRef<Metal3Machine> {
        ObjectRef::new_with(name, self.from.served.infrastructure).within(namespace)
    }

    /// Somebody else wrote first: look again. Spread, or those who met once meet again.
    pub(crate) fn superseded(&self, object: &str) -> Action {
        self.metrics.superseded();
        let pause = self.races.lost(object, Instant::now());
        Action::requeue(pause.mul_f64(0.3 + 0.7 * backoff::random_unit()))
    }

    /// Publishes an event for what the API server refused, even where a condition says it.
    pub(crate) async fn complain(&self, result: &Result<Action, Error>, object: &ObjectReference) {
        if let Err(error) = result
            && error.is_refusal()
        {
            let reason = Reason::Refused.as_str();
            self.kit.events.warning(object, reason, "Write", &error.to_string()).await;
        }
    }

    pub(crate) async fn publish(
        &self,
        decision: &Decision,
        object: &ObjectReference,
        action: &str,
    ) {
        let (reason, note) = (decision.reason.as_str(), decision.message.as_str());
        if !decision.news {
            return;
        }
        let warning = decision.reason.is_warning();
        self.kit.events.tell(object, warning, reason, action, note).await;
    }
}
