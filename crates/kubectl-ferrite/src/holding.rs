//! Whether a hold of a host would be honoured, and whether it is proven. Pure.

use api_types::condition::{Condition, find};
use api_types::metal3::{BareMetalHost, Kept, ProvisioningState};
use api_types::names::ferrite::{
    CONDITION_POWER_MANAGED, CONDITION_REBOOTING, PAUSED_BY_BMO_REBOOT, POWER, POWER_MANAGED,
    REASON_HELD_OFF,
};
use api_types::names::metal3::{DETACHED, PAUSED, REBOOT, REBOOT_FOR_REMEDIATION};
use bmo_reboot::reason::Reason;
use bmo_reboot::record::Record;
use bmo_reboot::requests::{Mode, Requests};
use controller_kit::engine::Reason as _;

use crate::ask::Failure;
use crate::text;

/// The longest key that an annotation can have.
const KEY_MAX: usize = 63;
/// What asks for the power to be cut.
const HARD: &str = r#"{"mode":"hard"}"#;

/// The annotation of a key.
///
/// # Errors
/// When no annotation can have it, or it is a remediation's.
pub(crate) fn annotation(key: &str) -> Result<String, String> {
    let is_letter = |it: char| it.is_ascii_alphanumeric();
    let is_fit = |it: char| is_letter(it) || "-_.".contains(it);
    let ends = key.starts_with(is_letter) && key.ends_with(is_letter);
    if key.len() > KEY_MAX || !ends || !key.chars().all(is_fit) {
        return Err(text::no_key(key));
    }
    let annotation = format!("{REBOOT}/{key}");
    if annotation.starts_with(REBOOT_FOR_REMEDIATION) {
        return Err(text::key_of_remediation(&annotation));
    }
    Ok(annotation)
}

/// The value of the annotation.
pub(crate) fn value(mode: Mode) -> &'static str {
    match mode {
        Mode::Soft => "",
        Mode::Hard => HARD,
    }
}

/// Whether the host has this request already, at least as hard.
pub(crate) fn is_asked(host: &BareMetalHost, annotation: &str, mode: Mode) -> bool {
    let requests = Requests::of(host.reboot_requests());
    requests.iter().any(|it| it.key == annotation && (it.is_hard() || mode == Mode::Soft))
}

/// The keys that hold the host off.
pub(crate) fn holds(host: &BareMetalHost) -> Vec<String> {
    Requests::of(host.reboot_requests()).holds().map(str::to_owned).collect()
}

fn conditions(host: &BareMetalHost) -> &[Condition] {
    host.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default()
}

/// Why a hold would not be honoured, with what to do.
pub(crate) fn refusal(host: &BareMetalHost) -> Option<String> {
    let name = host.metadata.name.as_deref().unwrap_or_default();
    let managed = find(conditions(host), CONDITION_POWER_MANAGED);
    let pause = host.annotation(PAUSED).filter(|it| *it != PAUSED_BY_BMO_REBOOT);
    let state = host.provisioning_state();
    let is_installed =
        matches!(state, ProvisioningState::Provisioned | ProvisioningState::ExternallyProvisioned);
    if host.metadata.deletion_timestamp.is_some() {
        Some(text::hold_of_deleted(name))
    } else if host.label(POWER) != Some(POWER_MANAGED) {
        Some(text::hold_of_unmanaged(name, POWER, POWER_MANAGED))
    } else if pause.is_some() {
        Some(text::hold_without(name, &text::remove_annotation(PAUSED)))
    } else if host.is_detached() {
        Some(text::hold_without(name, &text::remove_annotation(DETACHED)))
    } else if !is_installed {
        Some(text::hold_of_state(name, state.as_str()))
    } else if host.spec.disable_power_off == Some(true) {
        Some(text::hold_of_disabled(name))
    } else if let Kept::Unreadable(why) = Record::of(conditions(host)) {
        Some(text::hold_without(name, &text::unreadable_record(&why)))
    } else {
        match managed {
            Some(it) if it.is_true() => cannot_hold(host),
            Some(it) => {
                let reason = it.reason.as_deref().unwrap_or_default();
                let message = it.message.as_deref().unwrap_or_default();
                Some(text::hold_without(name, &text::said_of(reason, message)))
            }
            None => Some(text::hold_unseen(name)),
        }
    }
}

/// The node of the machine may forbid off, too: then a hold was answered by a reset.
fn cannot_hold(host: &BareMetalHost) -> Option<String> {
    let rebooting = find(conditions(host), CONDITION_REBOOTING)?;
    let is_so = rebooting.reason.as_deref() == Some(Reason::HoldUnsupported.as_str());
    let name = host.metadata.name.as_deref().unwrap_or_default();
    is_so.then(|| text::hold_of_disabled(name))
}

/// How far a hold is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Both facts are there.
    Proven,
    /// The reason of `Rebooting`, and its message.
    Waits(String, String),
    /// The host could not be read, and why.
    Unread(String),
    /// It will not be proven, and why.
    Lost(String),
}

/// What `status.poweredOn`, the condition and the record say together of a hold.
pub(crate) fn progress(host: &BareMetalHost, annotation: &str) -> Progress {
    let name = host.metadata.name.as_deref().unwrap_or_default();
    if !holds(host).iter().any(|it| it == annotation) {
        return Progress::Lost(text::hold_removed(name, annotation));
    }
    if let Some(why) = refusal(host) {
        return Progress::Lost(why);
    }
    let rebooting = find(conditions(host), CONDITION_REBOOTING);
    let reason = rebooting.and_then(|it| it.reason.clone()).unwrap_or_default();
    let is_on = host.status.as_ref().is_none_or(|it| it.powered_on);
    let record = Record::of(conditions(host));
    let is_named = record.known().is_some_and(|it| it.power.held.covers(&[annotation]));
    if reason == REASON_HELD_OFF && is_named && !is_on {
        return Progress::Proven;
    }
    Progress::Waits(reason, rebooting.and_then(|it| it.message.clone()).unwrap_or_default())
}

/// The same of what a read gave. Of a host that cannot be read the hold goes on.
pub(crate) fn progress_of(read: &Result<BareMetalHost, Failure>, annotation: &str) -> Progress {
    match read {
        Ok(host) => progress(host, annotation),
        Err(Failure::Unanswered(why)) => Progress::Unread(why.clone()),
        Err(failure) => Progress::Lost(failure.message().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const KEY: &str = "reboot.metal3.io/me";

    fn host(change: impl FnOnce(&mut Value)) -> BareMetalHost {
        let record = json!({
            "version": 1, "progress": {"reason": "HeldOff", "since": "2026-01-01T00:00:00Z"},
            "held": {"keys": [KEY]},
        });
        let mut host = json!({
            "metadata": {
                "name": "h", "annotations": {KEY: ""}, "labels": {"ferrite.metal3.io/power": "managed"},
            },
            "spec": {"online": true},
            "status": {
                "poweredOn": false, "provisioning": {"state": "provisioned", "ID": "x"},
                "conditions": [
                    {"type": "PowerManaged", "status": "True", "reason": "Managed", "message": ""},
                    {"type": "Rebooting", "status": "True", "reason": "HeldOff", "message": "held"},
                    {"type": "RebootRecord", "status": "True", "reason": "Record", "message": record.to_string()},
                ],
            },
        });
        change(&mut host);
        serde_json::from_value(host).unwrap()
    }

    #[test]
    fn a_hold_is_proven_by_all_facts_together() {
        assert_eq!(progress(&host(|_| ()), KEY), Progress::Proven);
        let on = host(|it| it["status"]["poweredOn"] = json!(true));
        assert_eq!(progress(&on, KEY), Progress::Waits("HeldOff".to_owned(), "held".to_owned()));
        let other = host(|it| {
            it["metadata"]["annotations"]["reboot.metal3.io/other"] = json!("");
        });
        let waits = |it: &Progress| matches!(it, Progress::Waits(..));
        assert!(waits(&progress(&other, "reboot.metal3.io/other")), "the record names another key");
        let off = host(|it| it["status"]["conditions"][1]["reason"] = json!("Offline"));
        assert!(waits(&progress(&off, KEY)), "spec.online may be why it is off");
        let removed = host(|it| it["metadata"]["annotations"] = json!({}));
        assert!(matches!(progress(&removed, KEY), Progress::Lost(_)));
    }

    #[test]
    fn a_read_that_fails_says_nothing_of_a_hold() {
        let silent = Err(Failure::Unanswered("No answer".to_owned()));
        assert_eq!(progress_of(&silent, KEY), Progress::Unread("No answer".to_owned()));
        let gone = Err(Failure::NotFound("It is gone".to_owned()));
        assert_eq!(progress_of(&gone, KEY), Progress::Lost("It is gone".to_owned()));
        assert_eq!(progress_of(&Ok(host(|_| ())), KEY), Progress::Proven);
    }

    #[test]
    fn a_hold_that_would_not_be_honoured_is_refused_with_the_cause() {
        assert_eq!(refusal(&host(|_| ())), None);
        let of =
            |path: &'static str, value: Value| host(|it| *it.pointer_mut(path).unwrap() = value);
        let set = |key: &str| json!({ KEY: "", key: "x" });
        for (host, wanted) in [
            (
                host(|it| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
                "is being deleted",
            ),
            (of("/metadata/labels", json!({})), "not handed to bmo-reboot"),
            (
                of("/metadata/annotations", set("baremetalhost.metal3.io/paused")),
                "Remove the annotation baremetalhost.metal3.io/paused",
            ),
            (
                of("/metadata/annotations", set("baremetalhost.metal3.io/detached")),
                "Remove the annotation baremetalhost.metal3.io/detached",
            ),
            (of("/status/provisioning/state", json!("available")), "is available, not installed"),
            (host(|it| it["spec"]["disablePowerOff"] = json!(true)), "must not be switched off"),
            (
                of("/status/conditions/1/reason", json!("HoldUnsupported")),
                "must not be switched off",
            ),
            (of("/status/conditions/2/message", json!("{")), "RebootRecord cannot be read"),
            (
                of(
                    "/status/conditions/0",
                    json!({"type": "PowerManaged", "status": "False", "reason": "NodeShared", "message": "why"}),
                ),
                "NodeShared: why",
            ),
            (of("/status/conditions/0/type", json!("Other")), "has not looked at"),
        ] {
            let said = refusal(&host).unwrap_or_default();
            assert!(said.contains(wanted), "{wanted}: {said}");
            assert!(matches!(progress(&host, KEY), Progress::Lost(_)), "{wanted}");
        }
        let ours = of("/metadata/annotations", json!({KEY: "", PAUSED: PAUSED_BY_BMO_REBOOT}));
        assert_eq!(refusal(&ours), None, "the pause of a takeover");
    }

    #[test]
    fn a_key_is_what_an_annotation_can_have_and_no_remediations() {
        assert_eq!(annotation("me").unwrap(), KEY);
        assert!(annotation("a.b_c-1").is_ok());
        for key in ["", "a/b", "-a", "a-", "a b", &"x".repeat(64), "metal3-remediation-1"] {
            assert!(annotation(key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn a_request_that_is_there_is_not_written_again_but_for_hard() {
        let soft = host(|_| ());
        assert!(is_asked(&soft, KEY, Mode::Soft) && !is_asked(&soft, KEY, Mode::Hard));
        let hard = host(|it| it["metadata"]["annotations"][KEY] = json!(value(Mode::Hard)));
        assert!(is_asked(&hard, KEY, Mode::Soft) && is_asked(&hard, KEY, Mode::Hard));
        assert!(!is_asked(&hard, "reboot.metal3.io/other", Mode::Soft));
    }
}
