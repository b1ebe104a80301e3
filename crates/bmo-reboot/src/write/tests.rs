//! The patch of a status: exactly what changes, and nothing of others.

use super::*;
use crate::model::Trouble;
use crate::reason::Reason;
use crate::record::RebootProgress;
use crate::requests::Requests;
use crate::settings::Policy;

/// All that the CRD allows in a condition.
fn foreign() -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "Fine", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2,
    })
}

fn host() -> Host {
    let host = json!({
        "metadata": { "name": "h", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3 },
        "spec": { "online": true },
        "status": {
            "poweredOn": true,
            "provisioning": { "state": "provisioned", "ID": "node" },
            "conditions": [foreign()],
        },
    });
    // As it is read: what its schema does not know is not kept.
    let host: CachedHost = serde_json::from_value(host).unwrap();
    Host::of(&host, &Policy::default())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_patch_names_the_version_and_only_what_changes() {
    let change = Change { powered_on: Some(false), ..Change::default() };
    let patch = status_patch(&host(), &change, at(0));
    let status = json!({ "lastUpdated": "1970-01-01T00:00:00Z", "poweredOn": false });
    assert_eq!(patch, json!({ "metadata": { "resourceVersion": "7" }, "status": status }));
}

#[test]
fn conditions_of_others_are_written_back_as_they_were() {
    let progress =
        RebootProgress { rebooting: true, ..RebootProgress::new(Reason::HeldOff, at(60)) };
    let change = Change { progress: Some(progress), told: "x".to_owned(), ..Change::default() };
    let patch = status_patch(&host(), &change, at(61));
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 3);
    assert_eq!(conditions[0], foreign());
    let since = |kind: &str| {
        let ours = conditions.iter().find(|it| it["type"] == kind);
        ours.unwrap()["lastTransitionTime"].clone()
    };
    assert_eq!(since("Rebooting"), "1970-01-01T00:01:00Z");
    assert_eq!(since("RebootRecord"), "1970-01-01T00:01:01Z");
}

#[test]
fn stamps_are_whole_seconds_and_go_by_null() {
    let change = Change { pending: Some(at(1)), last: Some(at(2)), ..Change::default() };
    let stamps = &status_patch(&host(), &change, at(0))["status"]["provisioning"];
    let wanted = json!({ "pendingRebootSince": "1970-01-01T00:00:01Z", "lastPoweredOn": "1970-01-01T00:00:02Z" });
    assert_eq!(*stamps, wanted);
    let change = Change { clear_stamps: true, ..Change::default() };
    let stamps = &status_patch(&host(), &change, at(0))["status"]["provisioning"];
    assert_eq!(*stamps, json!({ "pendingRebootSince": null, "lastPoweredOn": null }));
}

#[test]
fn a_failure_is_shown_as_the_operator_shows_it_and_cleared_by_null() {
    let trouble = Trouble { count: 2, message: "it broke".to_owned() };
    let change = Change { trouble: Some(Some(trouble)), ..Change::default() };
    let status = &status_patch(&host(), &change, at(0))["status"];
    assert_eq!(
        (&status["errorType"], &status["errorCount"]),
        (&json!("power management error"), &json!(2))
    );
    let change = Change { trouble: Some(None), ..Change::default() };
    let status = &status_patch(&host(), &change, at(0))["status"];
    assert_eq!((&status["errorType"], &status["operationalStatus"]), (&Value::Null, &json!("OK")));
}

#[test]
fn a_node_that_is_not_found_when_its_power_is_asked_for_is_not_asked_about_in_silence() {
    let of = |class| by_class(class, "said", "told".to_owned());
    assert_eq!(of(Class::NotFound), Answer::Unreachable("told".to_owned()));
    assert_eq!(of(Class::Refused), Answer::Refused("said".to_owned()));
    assert!(Class::ALL.into_iter().all(|class| of(class) != Answer::Unknown));
}

#[test]
fn nothing_but_the_removal_of_an_answered_request_may_be_left_out() {
    use api_types::metal3::ProvisioningState::{Deprovisioning, Provisioned};
    let asking = |keys: &[&str], state| {
        let requests = Requests::of(keys.iter().map(|key| (*key, "")));
        Host { state, requests, ..host() }
    };
    let removed = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), None)).collect();
    let hold = "reboot.metal3.io/a";
    for (asked, state, written, may_be) in [
        (&[REBOOT][..], Provisioned, &[REBOOT][..], true),
        (&[REBOOT, hold], Provisioned, &[REBOOT], true),
        // It was left out before, and is all that is still to be done.
        (&[], Provisioned, &[REBOOT], false),
        (&[REBOOT], Provisioned, &["baremetalhost.metal3.io/paused"], false),
        (&[REBOOT], Deprovisioning, &[REBOOT], false),
        (&[REBOOT, hold], Deprovisioning, &[REBOOT, hold], false),
    ] {
        assert_eq!(only_answers(&asking(asked, state), &removed(written)), may_be, "{written:?}");
    }
}
