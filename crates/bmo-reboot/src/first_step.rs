//! The first step for a hard request, on what is known already: the request is stamped and the power cut without asking
//! Ironic about the node before, nor the API server about the host.
//!
//! Whoever asks for a hard power-off may wait with lost data, and where a rack is lost a thousand ask at once. A look at each
//! node would take Ironic as long as the calls themselves. It is left out for this one step, which is safe without it:
//!
//! * The stamp is written on the version of the host in the cache. The API server takes it only if that is the host as it is,
//!   so no decision rests on an old host, and nothing is called without that write.
//! * The reading may be old, by the time between two polls, but no call of ours was made since. Where it is wrong, Ironic
//!   knows: it refuses while somebody else changes the power or cleans the machine, and where the machine must stay on. To cut
//!   the power of one that is off already does nothing, and one of which Ironic has lost sight would be cut after a look, too.
//! * It shows no failure, so what is written ahead of the call needs no other wording. One that came since is gone when
//!   Ironic takes the call. If it does not, or nobody knows, the failure counts as one of ours for one more try: it makes an
//!   off doubtful, never sure.
//! * It says of no machine that it is on or off: `poweredOn` has to be `true` already, and stays so.
//! * Whatever Ironic answers, the host is in a cycle then, and all that follows in one rests on readings that began after
//!   the answer.
//!
//! What a look would still have seen is work that Ironic does not refuse to disturb, such as firmware that is being written.
//! The operator says so on the host before it begins; what others begin past it is seen here one poll later.

use std::time::{Duration, Instant};

use api_types::metal3::{CachedHost, OperationalStatus};
use k8s_openapi::jiff::Timestamp;

use crate::controller::Context;
use crate::decide::decide;
use crate::decision::{Call, Decision};
use crate::index::{Name, NodeKey};
use crate::seen::{Host, NodeSeen, Observed};

/// How old a reading may be, in times between two polls: one list may be late.
const OLDEST: f64 = 1.5;
/// How soon it is looked whether there was a list.
pub(crate) const GLANCE: Duration = Duration::from_millis(200);

/// What can be done for a hard request now.
pub(crate) enum First {
    /// This, on the version of the host that is in the cache.
    Step(Box<Observed>, Box<Decision>),
    /// A crowd of hard requests waits for one list of all nodes.
    Wait,
    /// Host and node are to be read first.
    Look,
}

/// What the first step for this host is.
pub(crate) fn first(context: &Context, name: &Name, object: &CachedHost, host: &Host) -> First {
    let policy = &context.policy;
    let is_one = host.is_urgent(policy) && may_be_first(object, host);
    if !is_one || context.ironic.breaker.is_open().is_some() {
        return First::Look;
    }
    let now = Instant::now();
    let reading = {
        let mut memory = context.memory();
        let Some(known) = memory.get_mut(name).filter(|known| known.uid == host.uid) else {
            return First::Look;
        };
        let node = NodeKey::of(&host.node);
        let same = known.node.is_none() || known.node == node;
        if same && context.ironic.urgent.are_many() && known.readings.awaits(now) {
            known.node = node;
            drop(memory);
            context.list_wanted.notify_one();
            return First::Wait;
        }
        let reading = known.readings.running(policy.poll_interval.mul_f64(OLDEST), now);
        let Some(reading) = reading.filter(|_| known.node == node) else { return First::Look };
        known.asked = false;
        reading
    };
    let names: Vec<NodeKey> = NodeKey::of(&host.node).into_iter().chain(reading.also).collect();
    context.learn(name, &host.node, &names);
    let host = context.view(object);
    let seen = Observed { host: Some(host), node: NodeSeen::Seen(reading.node()), soft_free: true };
    let decision = decide(&seen, policy, Timestamp::now());
    if !is_first(&decision) {
        return First::Look;
    }
    First::Step(Box::new(seen), Box::new(decision))
}

/// Whether nothing was begun for the host, nor by the operator.
fn may_be_first(object: &CachedHost, host: &Host) -> bool {
    let status = object.status.as_ref();
    let is_calm = status.is_some_and(|it| it.operational_status == OperationalStatus::Ok);
    is_calm && host.selected && host.powered_on && !host.in_cycle() && !host.disable_power_off
}

/// Whether a decision is the one that needs no look: a request is stamped and the power cut, and nothing else is said.
pub fn is_first(decision: &Decision) -> bool {
    decision.call == Some(Call::HardOff)
        && decision.status.pending.is_some()
        && decision.status.powered_on.is_none()
        && decision.annotations.is_empty()
}

#[cfg(test)]
mod tests {
    use api_types::metal3::BareMetalHost;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Policy;
    use crate::readings::Reading;
    use crate::seen::Registration;

    fn object(more: &[(&str, Value)]) -> CachedHost {
        let mut host = json!({
            "metadata": {
                "name": "h", "namespace": "n", "uid": "u",
                "labels": { "ferrite.metal3.io/power": "managed" },
                "annotations": { "reboot.metal3.io": r#"{"mode":"hard"}"# },
            },
            "spec": { "online": true, "bmc": { "address": "redfish://bmc", "credentialsName": "c" } },
            "status": {
                "poweredOn": true, "operationalStatus": "OK",
                "provisioning": { "state": "provisioned", "ID": "node" },
            },
        });
        for (path, value) in more {
            *host.pointer_mut(path).unwrap() = value.clone();
        }
        let host: BareMetalHost = serde_json::from_value(host).unwrap();
        host.into()
    }

    /// What is decided on the reading of a machine that runs.
    fn decided(object: &CachedHost, policy: &Policy) -> Decision {
        let (began, power) = (Instant::now(), ironic::Power::On);
        let (plain, registration) = (true, Registration::Done);
        let reading = Reading { began, power, target: None, plain, registration, also: None };
        let host = Some(Host::of(object, policy));
        let seen = Observed { host, node: NodeSeen::Seen(reading.node()), soft_free: true };
        decide(&seen, policy, Timestamp::now())
    }

    #[test]
    fn only_a_request_that_is_stamped_and_cut_at_once_needs_no_look() {
        let policy = Policy::default();
        assert!(is_first(&decided(&object(&[]), &policy)));
        let soft = ("/metadata/annotations", json!({ "reboot.metal3.io": "" }));
        let none = ("/metadata/annotations", json!({}));
        let shown_off = ("/status/poweredOn", json!(false));
        let offline = ("/spec/online", json!(false));
        for other in [vec![soft], vec![none.clone()], vec![shown_off], vec![none, offline]] {
            let decision = decided(&object(&other), &policy);
            assert!(!is_first(&decision), "{other:?}: {decision:?}");
        }
        let begun = json!({
            "state": "provisioned", "ID": "node", "pendingRebootSince": "2026-01-01T00:00:00Z",
        });
        let begun = object(&[("/status/provisioning", begun)]);
        assert!(!is_first(&decided(&begun, &policy)), "its cycle has begun");
        let taking_over = Policy { takeover: true, ..policy };
        assert!(!is_first(&decided(&object(&[]), &taking_over)), "the operator is paused before");
    }

    #[test]
    fn what_was_begun_or_is_not_calm_is_looked_at_first() {
        let policy = Policy::default();
        let may = |object: &CachedHost| may_be_first(object, &Host::of(object, &policy));
        assert!(may(&object(&[])));
        for other in [
            ("/status/operationalStatus", json!("servicing")),
            ("/status/operationalStatus", json!("error")),
            ("/status/poweredOn", json!(false)),
            ("/metadata/labels", json!({})),
            ("/spec", json!({ "online": true, "disablePowerOff": true })),
            (
                "/status/provisioning",
                json!({
                    "state": "provisioned", "ID": "node", "pendingRebootSince": "2026-01-01T00:00:00Z",
                }),
            ),
        ] {
            assert!(!may(&object(std::slice::from_ref(&other))), "{other:?}");
        }
    }
}
