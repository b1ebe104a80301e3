//! What is reported on a `Metal3Machine`, in the contract's version that it is served in.

use api_types::ContractVersion;
use api_types::capi::MachineAddress;
use api_types::capm3::{Metal3Machine, Metal3MachineStatus};
use api_types::condition::{self, Condition};
use api_types::names::capi::{CONDITION_PAUSED, CONDITION_READY};
use api_types::names::capm3::{
    CONDITION_ASSOCIATED, CONDITION_DATA_READY, CONDITION_METADATA_ASSOCIATED, CONDITION_NODE_READY,
};
use controller_kit::engine::Reason as _;
use controller_kit::events::shorten;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::reason::Reason;

/// What a condition says at most, in bytes. Some errors of a host are whole logs, and a selector may have thousands of values:
/// the schema of the older list takes 10,240 characters, and refuses the rest of the report with what is longer.
const MESSAGE: usize = 4096;

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whether it holds.
    pub holds: bool,
    /// Why.
    pub reason: Reason,
    /// Why, for a person.
    pub message: String,
}

impl Said {
    /// It holds.
    pub fn yes(reason: Reason, message: &str) -> Self {
        Self { holds: true, reason, message: message.to_owned() }
    }

    /// It does not hold.
    pub fn no(reason: Reason, message: &str) -> Self {
        Self { holds: false, reason, message: message.to_owned() }
    }

    /// In the standard format.
    fn standard(&self, kind: &str, generation: Option<i64>, now: Timestamp) -> Condition {
        let message = shorten(&self.message, MESSAGE);
        Condition::new(kind, (self.holds, self.reason.as_str(), &message), now, generation)
    }

    /// In the deprecated format: a severity, and no reason for what holds, unless somebody should look at it and no other list
    /// may say so.
    fn deprecated(&self, kind: &str, alone: bool, now: Timestamp) -> Condition {
        let standard = self.standard(kind, None, now);
        let has_reason = !self.holds || (alone && self.reason.is_warning());
        let severity = if self.reason.is_warning() { "Warning" } else { "Info" };
        Condition {
            reason: standard.reason.filter(|_| has_reason),
            message: standard.message.filter(|it| has_reason && !it.is_empty()),
            severity: (!self.holds).then(|| severity.to_owned()),
            ..standard
        }
    }
}

/// What is to be reported; what is `None` or empty here stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Whether it has a host.
    pub associated: Option<Said>,
    /// Whether its rendered secrets are there.
    pub data_ready: Option<Said>,
    /// Whether it is up.
    pub ready: Option<Said>,
    /// Whether it is paused.
    pub paused: Option<Said>,
    /// That it is up, once and for all.
    pub provisioned: bool,
    /// Its addresses.
    pub addresses: Vec<MachineAddress>,
    /// The secrets in use, and the `Metal3Data` with which two of them were rendered: field of the status, and name.
    pub references: Vec<(&'static str, String)>,
    /// That what was rendered was for a host that it has no more.
    pub withdrawn: bool,
}

/// A condition of ours as it was reported. Before 1.12 CAPM3's schema has no place for the newer list, and the API server
/// drops it without a word: then the older one says it.
pub fn reported<'a>(machine: &'a Metal3Machine, kind: &str) -> Option<&'a Condition> {
    let (status, contract) = (machine.status.as_ref()?, machine.contract());
    condition::find(standard(status, contract).or_else(|| deprecated(status, contract))?, kind)
}

fn standard(status: &Metal3MachineStatus, contract: ContractVersion) -> Option<&Vec<Condition>> {
    match contract {
        ContractVersion::V1Beta2 => Some(&status.conditions),
        ContractVersion::V1Beta1 => status.v1beta2.as_ref().map(|group| &group.conditions),
    }
}

/// The list of the older contract, which clients of that one still read.
fn deprecated(status: &Metal3MachineStatus, contract: ContractVersion) -> Option<&Vec<Condition>> {
    match contract {
        ContractVersion::V1Beta1 => Some(&status.conditions),
        ContractVersion::V1Beta2 => {
            let old = status.deprecated.as_ref()?.v1beta1.as_ref();
            old.map(|group| &group.conditions)
        }
    }
}

/// The patch of the status that makes the report true; nothing if it is true already, times aside.
pub fn patch(machine: &Metal3Machine, report: &Report, now: Timestamp) -> Option<Value> {
    let contract = machine.contract();
    let empty = Metal3MachineStatus::default();
    let before = machine.status.as_ref().unwrap_or(&empty);
    let mut conditions = standard(before, contract).cloned().unwrap_or_default();
    let mut old = deprecated(before, contract).cloned().unwrap_or_default();
    // The newer list may have no place here, so what it is needed for stands in the older one.
    let alone = standard(before, contract).is_none();
    let (mut changed, mut old_changed) = (leave_out(&mut conditions), leave_out(&mut old));
    for (kind, said) in [
        (CONDITION_READY, &report.ready),
        (CONDITION_ASSOCIATED, &report.associated),
        (CONDITION_DATA_READY, &report.data_ready),
        (CONDITION_PAUSED, &report.paused),
    ] {
        let Some(said) = said else { continue };
        let new = said.standard(kind, machine.metadata.generation, now);
        changed |= replace(&mut conditions, new);
        // Paused is known to the newer contract only.
        let is_known = kind != CONDITION_PAUSED
            || (alone && said.holds)
            || condition::find(&old, kind).is_some();
        old_changed |= is_known && replace(&mut old, said.deprecated(kind, alone, now));
    }
    // And what was told in the older one is not told again and again because the newer one was dropped.
    changed &= !alone || old_changed;
    let is_up = report.provisioned && !machine.is_provisioned();
    let addresses = &report.addresses;
    let mut fields = vec![(
        !addresses.is_empty() && *addresses != before.addresses,
        "addresses",
        json!(addresses),
    )];
    fields.extend(match contract {
        ContractVersion::V1Beta2 => [
            (changed, "conditions", json!(conditions)),
            (old_changed, "deprecated", json!({ "v1beta1": { "conditions": old } })),
            (is_up, "initialization", json!({ "provisioned": true })),
        ],
        ContractVersion::V1Beta1 => [
            (changed, "v1beta2", json!({ "conditions": conditions })),
            (old_changed, "conditions", json!(old)),
            (is_up, "ready", json!(true)),
        ],
    });
    for (field, name) in &report.references {
        let is_new = reference(before, field) != Some(name);
        let named = json!({ "name": name, "namespace": machine.metadata.namespace });
        fields.push((is_new, *field, named));
    }
    for field in ["metaData", "networkData", "renderedData"] {
        let is_old = report.withdrawn && reference(before, field).is_some();
        fields.push((is_old, field, Value::Null));
    }
    let fields = fields.into_iter().filter(|(is_new, ..)| *is_new);
    let status: Map<_, _> = fields.map(|(_, field, value)| (field.to_owned(), value)).collect();
    (!status.is_empty()).then_some(Value::Object(status))
}

/// Conditions that CAPM3 alone writes.
const CONDITIONS_OF_CAPM3: [&str; 2] = [CONDITION_METADATA_ASSOCIATED, CONDITION_NODE_READY];

/// Leaves out what CAPM3's controller said and may not correct any more: a machine that is up would look broken for ever. Whether there
/// was anything.
fn leave_out(conditions: &mut Vec<Condition>) -> bool {
    let before = conditions.len();
    conditions.retain(|it| !CONDITIONS_OF_CAPM3.contains(&it.r#type.as_str()));
    conditions.len() < before
}

/// What a field of the status names, if it is there.
pub fn reference<'a>(status: &'a Metal3MachineStatus, field: &str) -> Option<&'a str> {
    let name = match field {
        "userData" => &status.user_data.as_ref()?.name,
        "metaData" => &status.meta_data.as_ref()?.name,
        "networkData" => &status.network_data.as_ref()?.name,
        _ => &status.rendered_data.as_ref()?.name,
    };
    Some(name.as_deref().unwrap_or_default())
}

/// Puts a condition into a list; whether it differed. The time moves only with the status.
fn replace(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    let Some(old) = conditions.iter_mut().find(|it| it.r#type == new.r#type) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time.clone_from(&old.last_transition_time);
    }
    // A new generation alone is no news: it comes with every write of ours.
    let same = old.status == new.status
        && old.reason == new.reason
        && old.message.as_deref().unwrap_or_default() == new.message.as_deref().unwrap_or_default()
        && old.severity == new.severity;
    if !same {
        *old = new;
    }
    !same
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn report(reason: Reason) -> Report {
        Report {
            associated: Some(Said::yes(Reason::HostClaimed, "h")),
            ready: Some(Said::no(reason, "m")),
            paused: Some(Said::no(Reason::NotPaused, "")),
            provisioned: reason == Reason::Provisioned,
            addresses: vec![MachineAddress {
                r#type: "InternalIP".to_owned(),
                address: "10.0.0.1".to_owned(),
                ..MachineAddress::default()
            }],
            references: vec![
                ("userData", "boot".to_owned()),
                ("renderedData", "facts-0".to_owned()),
            ],
            ..Report::default()
        }
    }

    fn machine(version: &str) -> Metal3Machine {
        Metal3Machine { api_version: Some(format!("g/{version}")), ..Metal3Machine::default() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn written(mut machine: Metal3Machine, report: &Report, now: Timestamp) -> Metal3Machine {
        let patch = patch(&machine, report, now).unwrap();
        let mut status = serde_json::to_value(&machine.status).unwrap();
        if status.is_null() {
            status = json!({});
        }
        status.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        machine.status = serde_json::from_value(status).unwrap();
        machine
    }

    #[test]
    fn what_is_reported_already_is_not_written_again_in_either_contract() {
        for version in ["v1beta1", "v1beta2"] {
            let done = written(machine(version), &report(Reason::Provisioned), at(1));
            assert!(done.is_provisioned(), "{version}");
            assert_eq!(patch(&done, &report(Reason::Provisioned), at(2)), None, "{version}");
        }
    }

    #[test]
    fn both_lists_of_conditions_are_written_in_either_contract_and_the_data_is_named() {
        for version in ["v1beta1", "v1beta2"] {
            let done = written(machine(version), &report(Reason::Provisioning), at(1));
            let contract = done.contract();
            let status = done.status.unwrap();
            let new = condition::find(standard(&status, contract).unwrap(), CONDITION_READY);
            assert_eq!(new.unwrap().reason.as_deref(), Some("Provisioning"), "{version}");
            let old = deprecated(&status, contract).unwrap();
            let ready = condition::find(old, CONDITION_READY).unwrap();
            assert_eq!(ready.severity.as_deref(), Some("Info"), "{version}");
            // The older contract does not know it.
            assert!(condition::find(old, CONDITION_PAUSED).is_none(), "{version}");
            assert_eq!(status.rendered_data.unwrap().name.as_deref(), Some("facts-0"));
        }
    }

    #[test]
    fn what_a_schema_without_the_newer_list_drops_is_known_by_the_older_one() {
        let written = |machine: Metal3Machine, report: &Report, second: i64| {
            let mut done = written(machine, report, at(second));
            done.status.as_mut().unwrap().v1beta2 = None;
            done
        };
        let paused = |holds| Report {
            paused: Some(Said { holds, reason: Reason::Paused, message: String::new() }),
            ..Report::default()
        };
        let missing = Report {
            ready: Some(Said::yes(Reason::NodeMissing, "label")),
            ..report(Reason::Provisioned)
        };
        let mut now = machine("v1beta1");
        let all = [report(Reason::Provisioning), report(Reason::Provisioned), missing];
        for (report, second) in all.iter().chain([&paused(true), &paused(false)]).zip(1..) {
            now = written(now, report, second);
            assert_eq!(patch(&now, report, at(100)), None, "{report:?}");
        }
        let said = |kind: &str| reported(&now, kind).unwrap();
        assert!(said(CONDITION_ASSOCIATED).is_true() && !said(CONDITION_PAUSED).is_true());
        assert_eq!(said(CONDITION_READY).reason.as_deref(), Some("NodeMissing"));
        // Since when it is up is known.
        assert_eq!(said(CONDITION_READY).last_transition_time, Some(Time(at(3))));
    }

    #[test]
    fn a_time_moves_only_with_the_status_of_its_condition() {
        let first = written(machine("v1beta2"), &report(Reason::Provisioning), at(1));
        let second = written(first, &report(Reason::HostFailed), at(2));
        let ready = reported(&second, CONDITION_READY).unwrap();
        assert_eq!(ready.reason.as_deref(), Some("HostFailed"));
        assert_eq!(ready.last_transition_time, Some(Time(at(1))));
    }

    #[test]
    fn what_was_rendered_for_another_host_is_named_no_longer() {
        let mut told = report(Reason::Provisioning);
        told.references.push(("metaData", "facts".to_owned()));
        let done = written(machine("v1beta2"), &told, at(1));
        let lost = Report { withdrawn: true, ..Report::default() };
        let told = patch(&done, &lost, at(2)).unwrap();
        assert_eq!(told, json!({ "metaData": null, "renderedData": null }));
        let done = written(done, &lost, at(2));
        assert_eq!(patch(&done, &lost, at(3)), None);
        assert!(done.status.unwrap().user_data.is_some());
    }

    #[test]
    fn a_message_that_no_schema_takes_is_cut_and_told_once() {
        let log = "\u{fc}".repeat(40_000);
        let ready = Some(Said::no(Reason::HostFailed, &log));
        let report = Report { ready, ..Report::default() };
        for version in ["v1beta1", "v1beta2"] {
            let done = written(machine(version), &report, at(1));
            let (contract, status) = (done.contract(), done.status.clone().unwrap());
            for list in [standard(&status, contract), deprecated(&status, contract)] {
                let ready = condition::find(list.unwrap(), CONDITION_READY).unwrap();
                let message = ready.message.as_deref().unwrap();
                assert!(message.len() <= MESSAGE && message.ends_with("..."), "{version}");
            }
            assert_eq!(patch(&done, &report, at(2)), None, "{version}");
        }
    }

    #[test]
    fn what_only_capm3_would_correct_goes_with_the_first_report() {
        let theirs = CONDITIONS_OF_CAPM3.map(|kind| Condition {
            r#type: kind.to_owned(),
            status: "False".to_owned(),
            ..Condition::default()
        });
        for version in ["v1beta1", "v1beta2"] {
            let mut told = written(machine(version), &report(Reason::Provisioned), at(1));
            told.status.as_mut().unwrap().conditions.extend(theirs.clone());
            let done = written(told, &report(Reason::Provisioned), at(2));
            let left = &done.status.as_ref().unwrap().conditions;
            assert!(!left.iter().any(|it| theirs.contains(it)), "{version}: {left:?}");
            assert_eq!(patch(&done, &report(Reason::Provisioned), at(3)), None, "{version}");
        }
    }

    #[test]
    fn conditions_of_others_stay() {
        let theirs = Condition { r#type: "Theirs".to_owned(), ..Condition::default() };
        for version in ["v1beta1", "v1beta2"] {
            let mut machine = machine(version);
            machine.status = Some(Metal3MachineStatus {
                conditions: vec![theirs.clone()],
                ..Metal3MachineStatus::default()
            });
            let done = written(machine, &report(Reason::Provisioning), at(1));
            assert!(done.status.unwrap().conditions.contains(&theirs), "{version}");
        }
    }
}
