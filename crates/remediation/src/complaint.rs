//! What a health check complains of, beside a node that is not ready. Its words are those of Cluster API: a reason for the
//! Machine's own conditions and for an annotation, and a line for each condition of Machine and node.

use api_types::capi::Machine;
use api_types::condition::Condition;
use api_types::names::capi::REMEDIATE_MACHINE;

/// Reasons for conditions of the Machine, in either format.
const OF_MACHINE: [&str; 2] = ["UnhealthyMachine", "UnhealthyMachineCondition"];

/// Every condition of a place that a message complains of, with its status, as in
/// `Condition Ready on Node is reporting status Unknown with reason R`. The place is written in any case of letters.
fn lines<'a>(message: &'a str, place: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    message.split("Condition ").skip(1).filter_map(move |line| {
        let mut words = line.split_whitespace();
        let (kind, of, status) = (words.next()?, words.nth(1)?, words.nth(3)?);
        of.eq_ignore_ascii_case(place).then_some((kind, status))
    })
}

/// Whether a health check complains of something of the Machine itself that is still so. `said` is its condition, where that is
/// `False`.
pub fn is_of_machine(machine: &Machine, said: Option<&Condition>) -> bool {
    if machine.annotation(REMEDIATE_MACHINE).is_some() {
        return true;
    }
    let (reason, message) = words(said);
    let mut own = lines(message, "Machine").peekable();
    if own.peek().is_none() && OF_MACHINE.contains(&reason) {
        // It does not say of which.
        return true;
    }
    own.any(|(kind, status)| machine.condition(kind).is_some_and(|it| it.status == status))
}

/// The conditions of the node, with their status, that a health check complains of beside readiness.
pub fn of_node(said: Option<&Condition>) -> Vec<(String, String)> {
    let more = lines(words(said).1, "Node").filter(|(kind, _)| *kind != "Ready");
    more.map(|(kind, status)| (kind.to_owned(), status.to_owned())).collect()
}

fn words(said: Option<&Condition>) -> (&str, &str) {
    let reason = said.and_then(|it| it.reason.as_deref());
    let message = said.and_then(|it| it.message.as_deref());
    (reason.unwrap_or_default(), message.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const READY: &str = "Health check failed:\n  * Condition Ready on Node is reporting status Unknown with reason X for more than 5m0s";

    fn said(reason: &str, message: &str) -> Condition {
        serde_json::from_value(json!({
            "type": "HealthCheckSucceeded", "status": "False", "reason": reason, "message": message,
        }))
        .unwrap()
    }

    fn machine(annotations: &Value, etcd: &str) -> Machine {
        let etcd =
            json!({"type": "EtcdMemberHealthy", "status": etcd, "reason": "", "message": ""});
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "m", "annotations": annotations},
            "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}},
            "status": {"conditions": [etcd]},
        }))
        .unwrap()
    }

    #[test]
    fn a_health_check_may_complain_of_more_than_readiness() {
        let of = |message: &str| of_node(Some(&said("UnhealthyNode", message)));
        assert!(of(READY).is_empty() && of("Node n has been deleted").is_empty());
        let disk = ("DiskPressure".to_owned(), "True".to_owned());
        let line = "Condition DiskPressure on Node is reporting status True with reason Y";
        assert_eq!(of(&format!("{READY}\n  * {line}")), std::slice::from_ref(&disk));
        assert_eq!(of("Condition DiskPressure on node is reporting status True"), [disk]);
        assert!(of("Condition").is_empty() && of("Condition Disk").is_empty());
    }

    #[test]
    fn what_a_health_check_says_of_the_machine_counts_while_it_is_so() {
        let none = json!({});
        let complains = |machine: &Machine, reason: &str, message: &str| {
            is_of_machine(machine, Some(&said(reason, message)))
        };
        let etcd = "Condition EtcdMemberHealthy on Machine is reporting status False with reason Z";
        assert!(complains(&machine(&none, "False"), "UnhealthyMachine", etcd));
        assert!(!complains(&machine(&none, "True"), "UnhealthyMachine", etcd), "over by now");
        assert!(complains(&machine(&none, "True"), "UnhealthyMachine", ""), "of whatever it is");
        assert!(!complains(&machine(&none, "False"), "UnhealthyNode", READY));
        let marked = json!({ REMEDIATE_MACHINE: "" });
        assert!(complains(&machine(&marked, "True"), "UnhealthyNode", READY));
        assert!(!complains(&machine(&none, "True"), "HasRemediateAnnotation", ""), "taken away");
    }
}
