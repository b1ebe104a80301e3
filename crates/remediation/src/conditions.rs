//! Conditions of a Machine in both formats. Owners since Cluster API 1.11 look only at the standard one, older ones only at
//! the deprecated one, and both lists are written as a whole.

use api_types::ContractVersion;
use api_types::capi::Machine;
use api_types::condition::{Condition, find, put};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// What a condition becomes: `False` with this reason and message; or it goes.
pub type Change<'a> = Option<(&'a str, &'a str)>;

/// The Machine's status with conditions changed in both formats, as a merge patch.
pub fn patch(machine: &Machine, changes: &[(&str, Change<'_>)], now: Timestamp) -> Value {
    let status = machine.status.clone().unwrap_or_default();
    let newer = machine.contract() == ContractVersion::V1Beta2;
    let (standard, deprecated) = if newer {
        let deprecated = status.deprecated.and_then(|it| it.v1beta1).map(|it| it.conditions);
        (status.conditions, deprecated.unwrap_or_default())
    } else {
        (status.v1beta2.map(|it| it.conditions).unwrap_or_default(), status.conditions)
    };
    let generation = machine.metadata.generation;
    let standard = changed(standard, changes, now, |it| it.observed_generation = generation);
    let deprecated =
        changed(deprecated, changes, now, |it| it.severity = Some("Warning".to_owned()));
    let status = if newer {
        json!({"conditions": standard, "deprecated": {"v1beta1": {"conditions": deprecated}}})
    } else {
        json!({"conditions": deprecated, "v1beta2": {"conditions": standard}})
    };
    json!({
        "metadata": {"resourceVersion": machine.metadata.resource_version},
        "status": status,
    })
}

fn changed(
    mut all: Vec<Condition>,
    changes: &[(&str, Change<'_>)],
    now: Timestamp,
    finish: impl Fn(&mut Condition),
) -> Vec<Condition> {
    for (kind, change) in changes {
        let Some((reason, message)) = change else {
            all.retain(|it| it.r#type != *kind);
            continue;
        };
        let since = find(&all, kind).filter(|it| it.is_false());
        let since = since.and_then(|it| it.last_transition_time.as_ref()).map_or(now, |it| it.0);
        let mut new = Condition::new(kind, (false, reason, message), since, None);
        finish(&mut new);
        put(&mut all, new);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(version: &str, status: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Machine",
            "metadata": {"name": "m", "resourceVersion": "7", "generation": 3}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_owner_is_told_in_both_formats_of_either_contract() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let other = json!({"type": "Ready", "status": "True", "reason": "R", "message": ""});
        let tell = [("OwnerRemediated", Some(("WaitingForRemediation", "why")))];
        let newer = machine("v1beta2", &json!({"conditions": [other]}));
        let status = patch(&newer, &tell, now)["status"].clone();
        assert_eq!(status["conditions"][0], other, "others stay as they are");
        assert_eq!(status["conditions"][1]["type"], "OwnerRemediated");
        assert!(status["conditions"][1].get("severity").is_none());
        let deprecated = &status["deprecated"]["v1beta1"]["conditions"][0];
        assert_eq!(deprecated["status"], "False");
        assert_eq!(deprecated["severity"], "Warning");
        let older = machine("v1beta1", &json!({}));
        let status = patch(&older, &tell, now)["status"].clone();
        assert_eq!(status["conditions"][0]["severity"], "Warning");
        assert_eq!(status["v1beta2"]["conditions"][0]["reason"], "WaitingForRemediation");
    }

    #[test]
    fn a_condition_that_goes_leaves_the_others() {
        let all = json!([{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]);
        let seen = machine("v1beta2", &json!({"conditions": all}));
        let status = patch(&seen, &[("A", None)], Timestamp::UNIX_EPOCH)["status"].clone();
        assert_eq!(status["conditions"], json!([{"type": "B", "status": "True"}]));
    }
}
