//! Every sentence of the conditions and events about a host. Programs read the record; nothing reads these.

use controller_kit::engine::Reason as _;
use k8s_openapi::jiff::Timestamp;

use crate::reason::Reason;
use crate::record::{RebootProgress, Sight};

/// The record was written and is not there: nothing may be switched off without this memory.
pub const DROPPED: &str = "the API server dropped status.conditions: the CRD baremetalhosts.metal3.io lacks them, run `bmo-reboot \
     extend-crd`";
/// What is waited for where as many soft attempts are under way as may be.
pub const NO_ROOM: &str = "--soft-attempts soft power-offs are already under way";
/// Why an operating system is not asked to shut down.
pub const NO_SOFT_POWER_OFF: &str = "its driver cannot ask the operating system";
/// Why a soft attempt is over, where Ironic says nothing of it.
pub const NOT_IN_TIME: &str = "it did not stop in time";
/// Why a call failed that the driver of a node does not know.
pub const UNSUPPORTED: &str = "the driver does not support it";

/// Names keys for their clients, each of which looks for its own: as many as fit into a condition that is not to be large.
pub fn named<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let keys: Vec<&str> = keys.collect();
    let mut length = 0;
    let fit = keys.iter().take_while(|key| {
        length += key.len() + ", ".len();
        length <= 8_000
    });
    let (named, others) = keys.split_at(fit.count());
    let text = named.join(", ");
    if others.is_empty() { text } else { format!("{text} and {} more", others.len()) }
}

/// Whose word it is that a machine must not be switched off: its host's, or that of its node alone.
fn must_stay_on_by(host: bool) -> &'static str {
    if host { "spec.disablePowerOff" } else { "disable_power_off of its node in Ironic" }
}

/// Why Ironic would not change the power of a node now.
pub fn working(state: &str) -> String {
    format!("it is {state}")
}

// The condition `Rebooting`.

/// A step and what else is known of it, as the message of the condition `Rebooting`.
pub fn step(progress: &RebootProgress, what: &str) -> String {
    let mut text = format!("{}.", what.trim_end_matches('.'));
    if progress.hard && !progress.reason.is_phase() {
        text.push_str(" The power was cut.");
    }
    let sight = match &progress.sight {
        Some(Sight::AskedOff) => {
            " Its node is in maintenance: Ironic was asked for off, and looked.".to_owned()
        }
        Some(Sight::Lost { since, .. }) => format!(" It is held off since {since}."),
        None => String::new(),
    };
    text + &sight
}

/// What becomes of a change, and who wants it.
pub fn change(hard: bool, who: &str, what: &str) -> String {
    format!("{} for {who} {what}", if hard { "Hard power-off" } else { "Power change" })
}

/// A change that has to wait.
pub fn waits(why: &str) -> String {
    format!("waits: {why}")
}

/// Who wants a change: a request that was accepted before it went.
pub const BY_A_WITHDRAWN_REQUEST: &str = "a request that was withdrawn";
/// Who wants a change that no annotation asks for.
pub const BY_ONLINE: &str = "spec.online";

/// It has to wait.
pub const WAITS_FOR_CHANGE: &str = "waits for a change that is under way";
/// The same in the second of its stamp.
pub const WAITS_FOR_SECOND: &str = "waits for the next second";
/// It is to be asked for, beside a failure of before.
pub const COMES_NEXT: &str = "comes next";
/// A hard power-off.
pub const WAS_ASKED: &str = "was asked of Ironic";
/// The same by a reset.
pub const RESET_WAS_ASKED: &str = "by a reset was asked of Ironic";

/// A soft attempt, and when it ends.
pub fn softly(end: Timestamp) -> String {
    format!(
        "asks the operating system to shut down and cuts the power at {end} unless it is off by then"
    )
}

/// A reset that Ironic has taken.
pub const RESET_TAKEN: &str = "The machine is being reset";

/// A change that failed.
pub fn failed(problem: &str) -> String {
    format!("failed: {problem}")
}

/// A reset that failed after Ironic had taken it.
pub fn reset_failed(hard: bool, problem: &str) -> String {
    if hard {
        format!("the machine was not reset, ask again: {problem}")
    } else {
        format!("the machine was not reset by its operating system, ask with mode hard: {problem}")
    }
}

/// A power-on that failed, of a machine that is not asked for off although somebody holds it.
pub fn may_be_on(problem: &str, must_stay_on: bool) -> String {
    let why = if must_stay_on { "it must stay on" } else { "its host is being deleted" };
    format!("{problem}; the machine may be on, and bmo-reboot does not switch it off because {why}")
}

/// A host that is held off.
pub fn held_off<'a>(holds: impl Iterator<Item = &'a str>) -> String {
    format!("Held off by {}", named(holds))
}

/// The same, where others wait for that. They are not named, or they would take it for theirs.
pub fn held_off_for_some(held: &[&str], waiting: usize, reason: Reason) -> String {
    let held = match held {
        [] => "Held off".to_owned(),
        _ => held_off(held.iter().copied()),
    };
    // Not in Ironic's words, which change with every try.
    format!("{held}. Keys that still wait: {waiting} ({})", reason.as_str())
}

/// What those who hold a host are told whose machine is out of sight.
pub fn out_of_sight<'a>(holds: impl Iterator<Item = &'a str>) -> String {
    let held = named(holds);
    format!(
        "Ironic does not look at a machine whose node is in maintenance. Before that it was off for {held}"
    )
}

/// The same for everybody else.
pub const IN_MAINTENANCE: &str = "Ironic does not look at a machine whose node is in maintenance: end that, or nobody knows \
    whether the machine is off";

/// A machine whose power Ironic has forgotten.
pub const POWER_UNKNOWN: &str =
    "Ironic does not know whether the machine is on: check its management controller";

/// A host that is off and comes on next.
pub const OFF: &str = "The host is off";
/// A host that is being switched on.
pub const COMES_ON: &str = "The host is being switched on";
/// A host that is on.
pub const ON: &str = "The host is on";
/// A host that is not wanted on.
pub const STAYS_OFF: &str = "The host stays off because spec.online is false";
/// A host without what was installed.
pub const DEPROVISIONED: &str = "The host was deprovisioned";
/// A host that was off when it ceased to be looked after.
pub const WAS_OFF: &str = "The host was off when bmo-reboot last managed its power and may be on by now; the condition \
    PowerManaged says why it is not managed";

/// A machine that was reset because nobody can hold it off. `by_host`: that its host says so.
pub fn hold_unsupported(by_host: bool) -> String {
    let by = must_stay_on_by(by_host);
    format!("The machine must not be switched off ({by}), so nobody can hold it off: it was reset")
}

/// A machine that is on although that is not wanted.
pub fn off_unsupported(by_host: bool) -> String {
    let by = must_stay_on_by(by_host);
    format!("spec.online is false, but the machine must not be switched off ({by})")
}

// The condition `PowerManaged`.

/// All of the host's power is ours. `only_record`: its stamps did not stay in their fields.
pub fn managed(only_record: bool) -> String {
    let more = " The stamps pendingRebootSince and lastPoweredOn stand in the condition RebootRecord only: the CRD, or the \
         operator, drops them from status.provisioning.";
    let more = if only_record { more } else { "" };
    format!("spec.online and reboot requests are carried out.{more}")
}

/// The same, where the operator is to have the host and somebody holds it.
pub fn until_released<'a>(text: &str, holds: impl Iterator<Item = &'a str>) -> String {
    let held = named(holds);
    format!("{text} The operator gets the host back when it is not held off any more by {held}.")
}

/// Somebody else writes what is ours.
pub const TWO_WRITERS: &str = "Another program has changed status.poweredOn, so two switch this machine: neither can keep what it \
    promises. Set --takeover, which pauses the bare metal operator on the host, or stop the other one.";
/// Only `spec.online` is ours.
pub const ONLINE_ONLY: &str = "spec.online is maintained.";
/// The host was taken from us.
pub const NOT_SELECTED: &str = "The host does not match --host-selector any more.";
/// The host goes.
pub const DELETING: &str = "The host is being deleted.";
/// Everybody is to leave the host alone.
pub const PAUSED: &str =
    "The host is paused. Remove the annotation baremetalhost.metal3.io/paused to continue.";
/// The host is not in Ironic.
pub const DETACHED: &str = "The host is detached from Ironic. Remove the annotation baremetalhost.metal3.io/detached to continue.";
/// The host has no management controller that could be asked.
pub const NO_CREDENTIALS: &str = "The host has no credentials: its power is not maintained and no reboot is carried out. \
    Set spec.bmc.";
/// Nothing of a consumer runs on the host.
pub const NOT_PROVISIONED: &str = "The host is not provisioned: its power is managed while it is.";
/// The operator has work to do on the host.
pub const OPERATOR_AT_WORK: &str = "The power of the host is the operator's for now: the operator has work to do on it \
    (another image, firmware, or externallyProvisioned is false now).";
/// The operator has to pass on what the host's spec says.
pub const OPERATOR_TELLS_IRONIC: &str = "The power of the host is the operator's for now: the operator has to tell Ironic \
    that spec.disablePowerOff is false.";

/// Ironic has lost the management controller, and the operator may know why.
pub const OUT_OF_REACH: &str = "The power of the host is the operator's for now: Ironic does not know whether the machine is on. \
    Check its management controller and its credentials, which the operator passes on to Ironic.";

/// The state of the host is one of a newer operator.
pub fn unknown_state(state: &str) -> String {
    format!("{NOT_PROVISIONED} This release does not know its state {state}.")
}

/// Two hosts have one node.
pub fn node_shared(other: &str, node: &str) -> String {
    format!("The host {other} names the same node {node}. Correct one of them.")
}

/// Ironic has no node of the host.
pub fn node_not_found(node: &str) -> String {
    format!("Ironic has no node {node}. The operator has to register it again.")
}

/// The node is being made known to Ironic.
pub fn node_registering(node: &str, state: &str) -> String {
    format!("The operator is registering the node {node}, which is {state} in Ironic.")
}

/// The record says nothing that this release may rely on.
pub fn record_unreadable(why: &str) -> String {
    format!(
        "The condition RebootRecord of the host cannot be read: {why}. Upgrade bmo-reboot, or remove that condition from the \
         status of the host: its reboots are then forgotten."
    )
}

// Events.

/// A host that was let into the cluster without its status.
pub const WITHOUT_STATUS: &str = "The host has the pause of bmo-reboot and no status, nor one in its annotation \
    baremetalhost.metal3.io/status that says it is installed: write there the status of the host in its source or in a \
    backup before anybody takes the pause off, or the bare metal operator installs it anew";
/// The operator has the host back.
pub const HANDED_BACK: &str =
    "The pause of the bare metal operator was lifted: it manages this host again";
/// The operator cannot be paused.
pub const TAKE_OVER_REFUSED: &str = "The power of the host is still the operator's: a webhook or a policy keeps the operator from being paused. The event \
     Refused names it. Allow the change of annotations.";
/// The operator was paused.
pub const TAKEN_OVER: &str =
    "The bare metal operator is paused on this host: from now on only bmo-reboot switches it";
/// A hold that came while the machine was being switched on.
pub const MAY_BE_COMING_ON: &str =
    "The host may be powering on: status.poweredOn is true until it is certainly off";
/// A hold that came while Ironic did not look.
pub const NOT_LOOKED_AT: &str = "Ironic has not looked at the machine since the maintenance of its node began: \
    status.poweredOn is true until it is certainly off";
/// A plain request of a host that is off.
pub const ANSWERED: &str =
    "The host is already off: the annotation reboot.metal3.io is removed without a power cycle";
/// Stamps that a wrong clock wrote.
pub const STAMPS_CORRECTED: &str = "The stamps of this host were ahead of the time by more than a minute, so lastPoweredOn proved nothing \
    until then: they are written anew. Check the clocks of the nodes on which bmo-reboot runs";
/// A reboot has come to its end.
pub const COMPLETED: &str = "The reboot is over, the host is on";

/// A request is accepted.
pub fn accepted<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    format!("A reboot was asked for by {}", named(keys))
}

/// A request says something that is not understood.
pub fn invalid(key: &str) -> String {
    format!(
        "The value of {key} is not understood and counts as soft: write {{\"mode\": \"soft\"}} or {{\"mode\": \"hard\"}}"
    )
}

/// A host that is held off was switched on by somebody.
pub fn found_on<'a>(holds: impl Iterator<Item = &'a str>) -> String {
    let held = named(holds);
    format!(
        "The host was found switched on although it is held off by {held}: it is switched off again"
    )
}

/// The requests of a host go with what was installed.
pub fn requests_ended<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    format!("The host was deprovisioned, which ends all requests: {}", named(keys))
}

/// Ironic works on a node.
pub fn busy(why: &str) -> String {
    format!("Ironic does not change the power now: {why}")
}

/// A soft attempt did not work.
pub fn escalated(problem: &str) -> String {
    format!("A soft power-off did not work, so the power is cut: {problem}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_names_as_many_keys_as_fit_and_says_how_many_more_there_are() {
        let keys: Vec<String> = (0..700).map(|n| format!("reboot.metal3.io/{n:03}")).collect();
        let few = named(keys[..300].iter().map(String::as_str));
        assert!(few.ends_with("reboot.metal3.io/299"), "{few}");
        let text = named(keys.iter().map(String::as_str));
        assert!(text.len() <= 8_100 && text.ends_with(" more"), "{}", text.len());
        let more: usize = text.rsplit(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(text.matches("reboot.metal3.io/").count() + more, 700);
    }
}
