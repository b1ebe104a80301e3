//! What a Machine goes on saying when its request is gone, and that nobody else takes away: that its owner is to replace it
//! although no health check says so, and why its remediation did not begin.

use api_types::capi::{Machine, is_watched};
use api_types::condition::Condition;
use api_types::names::capi::{
    CONDITION_EXTERNALLY_REMEDIATED, CONDITION_HEALTH_CHECK_SUCCEEDED, CONDITION_OWNER_REMEDIATED,
    REASON_WAITING_FOR_REMEDIATION,
};

use crate::reason::Reason;

/// The conditions of a Machine that are our word and have to go with the request. A Machine that is being deleted keeps them.
pub fn of(machine: &Machine) -> Vec<&'static str> {
    let mut all = Vec::new();
    if machine.metadata.deletion_timestamp.is_some() {
        return all;
    }
    let falsely = |kind: &str| machine.condition(kind).filter(|it| it.is_false());
    let reason = |it: &Condition| it.reason.clone().unwrap_or_default();
    // The reasons of a health check are others.
    let waits = |it: &Condition| reason(it) == REASON_WAITING_FOR_REMEDIATION;
    if falsely(CONDITION_HEALTH_CHECK_SUCCEEDED).is_some_and(waits) {
        all.push(CONDITION_HEALTH_CHECK_SUCCEEDED);
        // Whatever its owner has made of it since: with the next failure it would replace the machine before anybody tries.
        all.extend(falsely(CONDITION_OWNER_REMEDIATED).map(|_| CONDITION_OWNER_REMEDIATED));
    }
    let refused = |it: &Condition| Reason::parse(&reason(it)).is_some_and(Reason::is_refusal);
    if falsely(CONDITION_EXTERNALLY_REMEDIATED).is_some_and(refused) {
        all.push(CONDITION_EXTERNALLY_REMEDIATED);
    }
    all
}

/// Whether a Machine has such conditions. Those of an installation with another watch filter are its own.
pub fn is_on(machine: &Machine, filter: Option<&str>) -> bool {
    is_watched(&machine.metadata, filter) && !of(machine).is_empty()
}

#[cfg(test)]
mod tests {
    use api_types::names::capi::WATCH_FILTER;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
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

    const HEALTH: &str = CONDITION_HEALTH_CHECK_SUCCEEDED;
    const OWNER: &str = CONDITION_OWNER_REMEDIATED;
    const EXTERNAL: &str = CONDITION_EXTERNALLY_REMEDIATED;
    const WAITS: &str = REASON_WAITING_FOR_REMEDIATION;

    #[test]
    fn an_owner_that_was_told_without_a_health_check_is_told_no_more_when_the_request_is_gone() {
        let told = machine(&[(HEALTH, "False", WAITS), (OWNER, "False", WAITS)]);
        assert_eq!(of(&told), [HEALTH, OWNER]);
        let refused = machine(&[(HEALTH, "False", WAITS), (OWNER, "False", "CannotBeRemediated")]);
        assert_eq!(of(&refused), [HEALTH, OWNER]);
        assert_eq!(of(&machine(&[(HEALTH, "False", WAITS), (OWNER, "True", "")])), [HEALTH]);
        let by_a_check = machine(&[(HEALTH, "False", "UnhealthyNode"), (OWNER, "False", WAITS)]);
        assert!(of(&by_a_check).is_empty(), "the word of a health check");
        let mut going = told;
        going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(of(&going).is_empty());
    }

    #[test]
    fn why_a_remediation_did_not_begin_is_said_no_longer_than_there_is_a_request() {
        assert_eq!(of(&machine(&[(EXTERNAL, "False", "HostOffline")])), [EXTERNAL]);
        for other in [WAITS, "RemediationTemplateNotFound", ""] {
            assert!(of(&machine(&[(EXTERNAL, "False", other)])).is_empty(), "{other:?}");
        }
    }

    #[test]
    fn a_machine_is_looked_after_while_it_says_something_of_ours() {
        assert!(is_on(&machine(&[(HEALTH, "False", WAITS)]), None));
        assert!(!is_on(&machine(&[(HEALTH, "True", "")]), None));
    }

    #[test]
    fn a_machine_of_another_watch_filter_is_left_to_that_installation() {
        let looks_after = |label: Option<&str>, filter: Option<&str>| {
            let mut told = machine(&[(HEALTH, "False", WAITS)]);
            let label = label.map(|it| (WATCH_FILTER.to_owned(), it.to_owned()));
            told.metadata.labels = Some(label.into_iter().collect());
            is_on(&told, filter)
        };
        assert!(looks_after(Some("a"), Some("a")) && looks_after(Some("a"), None));
        assert!(!looks_after(Some("b"), Some("a")) && !looks_after(None, Some("a")));
    }
}
