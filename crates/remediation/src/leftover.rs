//! What a Machine goes on saying when its request is gone, and that nobody else takes away: that its owner is to replace it,
//! and why its remediation did not begin.

use std::time::Duration;

use api_types::capi::{Machine, is_watched};
use api_types::condition::Condition;
use api_types::names::capi::{
    CONDITION_EXTERNALLY_REMEDIATED, CONDITION_HEALTH_CHECK_SUCCEEDED, CONDITION_OWNER_REMEDIATED,
    REASON_WAITING_FOR_REMEDIATION,
};
use api_types::time::until;
use k8s_openapi::jiff::Timestamp;

use crate::reason::Reason;

/// So soon after that stands on the host the owner is told. What says so later is somebody else's word: a health check without a
/// template says it, too.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// The conditions of a Machine that are our word and have to go with the request. A Machine that is being deleted keeps them, and
/// those of an installation with another watch filter are its own. `gave_up` is when its host says that its owner was told.
pub fn of(
    machine: &Machine,
    filter: Option<&str>,
    gave_up: impl FnOnce() -> Option<Timestamp>,
) -> Vec<&'static str> {
    let mut all = Vec::new();
    if machine.metadata.deletion_timestamp.is_some() || !is_watched(&machine.metadata, filter) {
        return all;
    }
    let falsely = |kind: &str| machine.condition(kind).filter(|it| it.is_false());
    let reason = |it: &Condition| it.reason.clone().unwrap_or_default();
    // The reasons of a health check are others.
    let waits = |it: &Condition| reason(it) == REASON_WAITING_FOR_REMEDIATION;
    let told = falsely(CONDITION_OWNER_REMEDIATED);
    let external = falsely(CONDITION_EXTERNALLY_REMEDIATED).map(reason);
    let external = external.as_deref().and_then(Reason::parse);
    // The owner was told for want of a host, so there is no record of a try: that the host was lost is said here only.
    let is_lost = matches!(
        external,
        Some(
            Reason::HostUnknown
                | Reason::HostMissing
                | Reason::HostNotClaimed
                | Reason::HostUnmanaged
        )
    );
    if falsely(CONDITION_HEALTH_CHECK_SUCCEEDED).is_some_and(waits) {
        all.push(CONDITION_HEALTH_CHECK_SUCCEEDED);
        // Whatever its owner has made of it since: with the next failure it would replace the machine before anybody tries.
        all.extend(told.map(|_| CONDITION_OWNER_REMEDIATED));
    } else if told.is_some_and(|it| is_lost || is_of(it, gave_up())) {
        // The health check goes on calling it unhealthy where the request was taken away before it looked again.
        all.push(CONDITION_OWNER_REMEDIATED);
    }
    if external.is_some_and(Reason::is_refusal) {
        all.push(CONDITION_EXTERNALLY_REMEDIATED);
    }
    all
}

/// Whether a condition came when the owner was told.
fn is_of(condition: &Condition, gave_up: Option<Timestamp>) -> bool {
    let since = condition.last_transition_time.as_ref().map(|it| it.0);
    let pair = since.zip(gave_up);
    pair.is_some_and(|(since, end)| since >= end && until(end, since) < TOLD_WITHIN)
}

#[cfg(test)]
mod tests {
    use api_types::names::capi::WATCH_FILTER;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;

    fn machine(conditions: &[(&str, &str, &str)]) -> Machine {
        let all = conditions.iter().map(|(kind, status, reason)| {
            json!({"type": kind, "status": status, "reason": reason, "message": ""})
        });
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}},
            "status": {"conditions": all.collect::<Vec<_>>()},
        }))
        .unwrap()
    }

    fn is_ours(machine: &Machine, filter: Option<&str>) -> bool {
        !of(machine, filter, || None).is_empty()
    }

    fn of_gone(machine: &Machine) -> Vec<&'static str> {
        of(machine, None, || None)
    }

    const HEALTH: &str = CONDITION_HEALTH_CHECK_SUCCEEDED;
    const OWNER: &str = CONDITION_OWNER_REMEDIATED;
    const EXTERNAL: &str = CONDITION_EXTERNALLY_REMEDIATED;
    const WAITS: &str = REASON_WAITING_FOR_REMEDIATION;

    #[test]
    fn an_owner_that_was_told_without_a_health_check_is_told_no_more_when_the_request_is_gone() {
        let told = machine(&[(HEALTH, "False", WAITS), (OWNER, "False", WAITS)]);
        assert_eq!(of_gone(&told), [HEALTH, OWNER]);
        let refused = machine(&[(HEALTH, "False", WAITS), (OWNER, "False", "CannotBeRemediated")]);
        assert_eq!(of_gone(&refused), [HEALTH, OWNER]);
        assert_eq!(of_gone(&machine(&[(HEALTH, "False", WAITS), (OWNER, "True", "")])), [HEALTH]);
        let by_a_check = machine(&[(HEALTH, "False", "UnhealthyNode"), (OWNER, "False", WAITS)]);
        assert!(of_gone(&by_a_check).is_empty(), "the word of a health check");
        let mut going = told;
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(of_gone(&going).is_empty());
    }

    /// A person calls the replacement off. The health check, which finds no request, does not say that the machine is well again.
    #[test]
    fn an_owner_that_was_told_beside_a_health_check_is_told_no_more_when_the_request_is_gone() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let told = |since: i64| {
            let mut told = machine(&[(HEALTH, "False", "UnhealthyNode"), (OWNER, "False", WAITS)]);
            for it in &mut told.status.as_mut().unwrap().conditions {
                it.last_transition_time = Some(Time(at(since)));
            }
            told
        };
        assert_eq!(of(&told(100), None, || Some(at(100))), [OWNER]);
        assert_eq!(of(&told(159), None, || Some(at(100))), [OWNER]);
        for other in [160, 99] {
            assert!(
                of(&told(other), None, || Some(at(100))).is_empty(),
                "of a health check: {other}"
            );
        }
        assert!(of(&told(100), None, || None).is_empty(), "nobody gave it up here");
    }

    /// Its host was restored, whose record may be gone with the object. With the next failure a healthy member would be replaced
    /// before anybody tries.
    #[test]
    fn an_owner_that_was_told_for_want_of_a_host_is_told_no_more_when_the_request_is_gone() {
        let told = |external: &str, word: &str| {
            of_gone(&machine(&[
                (HEALTH, "False", "UnhealthyNode"),
                (OWNER, "False", word),
                (EXTERNAL, "False", external),
            ]))
        };
        for lost in ["HostUnknown", "HostMissing", "HostNotClaimed", "HostUnmanaged"] {
            for word in [WAITS, "CannotBeRemediated"] {
                assert_eq!(told(lost, word), [OWNER, EXTERNAL], "{lost} {word}");
            }
        }
        assert_eq!(told("HostOffline", WAITS), [EXTERNAL], "we told nobody");
        assert!(told(WAITS, WAITS).is_empty(), "the word of a health check");
    }

    #[test]
    fn why_a_remediation_did_not_begin_is_said_no_longer_than_there_is_a_request() {
        assert_eq!(of_gone(&machine(&[(EXTERNAL, "False", "HostOffline")])), [EXTERNAL]);
        for other in [WAITS, "RemediationTemplateNotFound", ""] {
            assert!(of_gone(&machine(&[(EXTERNAL, "False", other)])).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn a_machine_is_looked_after_while_it_says_something_of_ours() {
        assert!(is_ours(&machine(&[(HEALTH, "False", WAITS)]), None));
        assert!(!is_ours(&machine(&[(HEALTH, "True", "")]), None));
    }

    #[test]
    fn a_machine_of_another_watch_filter_is_left_to_that_installation() {
        let looks_after = |label: Option<&str>, filter: Option<&str>| {
            let mut told = machine(&[(HEALTH, "False", WAITS)]);
            let label = label.map(|it| (WATCH_FILTER.to_owned(), it.to_owned()));
            told.metadata.labels = Some(label.into_iter().collect());
            is_ours(&told, filter)
        };
        assert!(looks_after(Some("a"), Some("a")) && looks_after(Some("a"), None));
        assert!(!looks_after(Some("b"), Some("a")) && !looks_after(None, Some("a")));
    }
}
