//! Why something was decided: one word that condition, event, metric and log share.

use std::time::Duration;

use controller_kit::engine::Reason as _;
use controller_kit::engine::reasons::{Location, ObjectPart};
use controller_kit::reasons;
use ironic::PowerTarget as Call;
use serde::{Deserialize, Serialize};

const POWER_MANAGED: Location = Location::new(
    "BareMetalHost",
    ObjectPart::Condition("PowerManaged"),
    "Whether the controller manages the host's power.",
);
const REBOOTING: Location = Location::new(
    "BareMetalHost",
    ObjectPart::Condition("Rebooting"),
    "The step of a power cycle. A host that was off when it ceased to be managed has the reason of `PowerManaged` here: \
     it may be on by now. Its holds are carried out in the same cycle when it is managed again.",
);
const EVENT: Location =
    Location::new("BareMetalHost", ObjectPart::Event, "A change, or a mistake, when it happens.");

reasons! {
    /// Why a decision was taken. The words are read back and never change.
    #[derive(Serialize, Deserialize)]
    pub enum Reason {
        Gone: Kind::Rests, "The host does not exist (any more).";
        NotLookedAt: Kind::EndsWithin(Duration::from_secs(600)),
            "The host has the controller's pause and no status: the bare metal operator has not reconciled it yet.",
            "Restore the status of the host before the pause is removed. If it has a status, read the operator's log.",
            on: [EVENT], see: "controllers/bmo-reboot.md#moving-hosts-to-another-cluster";
        NotSelected: Kind::Rests,
            "The host lacks the label that hands it to this controller.",
            "Label the host if the controller should manage it.",
            on: [POWER_MANAGED];
        Deleting: Kind::Rests, "The host is being deleted.", on: [POWER_MANAGED];
        Paused: Kind::Waits,
            "The host has a pause of another owner.",
            "Remove the annotation that the message names if the controller should manage the host.",
            on: [POWER_MANAGED];
        Detached: Kind::Waits,
            "The host is detached from Ironic.",
            "Remove the annotation that the message names if the controller should manage the host.",
            on: [POWER_MANAGED];
        RecordUnreadable: Kind::EndsWithin(Duration::from_secs(600)),
            "This release cannot read the condition RebootRecord of the host.",
            "Upgrade bmo-reboot if a later release wrote the record.",
            on: [POWER_MANAGED],
            more: "If the record is damaged, make sure that no client holds the host. Then remove that condition with `kubectl edit baremetalhost <host> --subresource=status`. The controller then forgets the reboots of the host.";
        NoCredentials: Kind::Waits,
            "The host has no address or credentials of a BMC, as a discovered host.",
            "Set `spec.bmc`.",
            on: [POWER_MANAGED];
        NotProvisioned: Kind::Rests,
            "The operator controls the power until the host is provisioned.",
            "Nothing.",
            on: [POWER_MANAGED],
            more: "In a provisioning state that this release does not know, requests and stamps stay.";
        Deprovisioned: Kind::Rests,
            "The host was deprovisioned during a cycle, which ended its requests.",
            "Nothing.",
            on: [REBOOTING, EVENT],
            more: "The event names the requests that were removed.";
        NodeShared: Kind::EndsWithin(Duration::from_secs(600)),
            "Two hosts name the same node, by either of its names. The controller serves neither of them.",
            "Correct the wrong host.",
            on: [POWER_MANAGED];
        NodeNotFound: Kind::EndsWithin(Duration::from_secs(1800)),
            "Ironic has no node under the identity in the host's status, or under the operator's name for it, namespace~name.",
            "Wait for the operator, which registers the host at its next reconcile. If it does not, read its log.",
            on: [POWER_MANAGED];
        NodeRegistering: Kind::EndsWithin(Duration::from_secs(1800)),
            "With `--takeover`: the operator is registering the node in Ironic. A pause would interrupt that. The message shows its progress.",
            "Wait.",
            on: [POWER_MANAGED],
            more: "The takeover follows when the list of all nodes shows the end, at most one `--poll-interval` later. If the node stays `adopt failed` or `enroll`, the host's `status.errorMessage` shows the cause. If the node returns to `manageable` and no operator adopts it, make it `available` or `active` by hand.";
        OperatorAtWork: Kind::EndsWithin(Duration::from_secs(3600)),
            "With `--takeover`: the operator has work to do on the host, and controls its power until then.",
            "Wait.",
            on: [POWER_MANAGED],
            more: "The message lists the possible work. `status.operationalStatus`, and `spec.image` beside `status.provisioning.image`, show which it is. Meanwhile the operator itself honours reboot annotations. If a firmware change has failed, the host's `status.errorMessage` shows the cause.";
        IronicUnreachable: Kind::EndsWithin(Duration::from_secs(600)),
            "Ironic does not answer, or not about this node.",
            "Correct what the condition says of Ironic.",
            on: [REBOOTING], see: "runbooks/FerriteBmoRebootIronicUnreachable.md";
        TakenOver: Kind::Rests, "The controller set the operator's pause and manages the power.", on: [EVENT];
        HandedBack: Kind::Rests, "The controller removed the operator's pause.", on: [EVENT];
        Managed: Kind::Rests,
            "The controller manages the power of the host.",
            "Nothing.",
            on: [POWER_MANAGED],
            more: "If the host is to return to the operator and a client still holds it, the message names the keys.";
        TwoWriters: Kind::Rests,
            "Another program has changed `status.poweredOn`: two programs switch the machine.",
            "Set `--takeover`, or stop the other program.",
            on: [POWER_MANAGED], see: "runbooks/FerriteBmoRebootHostsDisputed.md";
        OnlineOnly: Kind::Rests,
            "The host is available and `--manage-available` is set: the controller follows `spec.online` only.",
            on: [POWER_MANAGED];
        RequestAccepted: Kind::EndsWithin(Duration::from_secs(600)),
            "The request has its stamp. Ironic has not accepted a power change for it yet.",
            "Wait.",
            on: [REBOOTING],
            more: "The request waits for a change in progress, or for a free place among the soft attempts (`--soft-attempts`). While its call waits behind calls for other nodes, as when their conductor is down, nothing is written. Such a request has no stamp yet, and no alert counts it.";
        SoftPowerOff: Kind::EndsWithin(Duration::from_secs(3660)),
            "The operating system is shutting down.",
            "Wait.",
            on: [REBOOTING],
            more: "It has `--soft-timeout` from the first attempt that Ironic accepted. If the process ends just before that attempt, the time continues. It starts again if less than one slice is left, or if Ironic is down or busy during the first slice.";
        HardPowerOff: Kind::EndsWithin(Duration::from_secs(300)),
            "The BMC is cutting the power.",
            "Wait. If it lasts longer, read the log of the conductor of its node.",
            promise: Duration::from_secs(5),
            on: [REBOOTING];
        Restarting: Kind::EndsWithin(Duration::from_secs(3660)),
            "The BMC is resetting a machine that must not be switched off.",
            "Wait. If it lasts longer, read the log of the conductor of its node.",
            on: [REBOOTING];
        PowerFailed: Kind::Waits,
            "Ironic could not change the power. The message is Ironic's.",
            "Check the BMC of the machine.",
            on: [REBOOTING],
            more: "The controller retries within half a minute for a host that should be off. It does not repeat a failed reset: request the reboot again, with mode hard if a soft one failed. That makes an open soft request hard. A client that holds the host first removes its annotation. If the message says that the machine may be on and is not switched off, the controller waits. It goes on when Ironic finds the machine on, or when the hold ends.",
            see: "runbooks/FerriteBmoRebootPowerFailing.md";
        NodeBusy: Kind::EndsWithin(Duration::from_secs(1800)),
            "Ironic is working on the node, or the node is locked.",
            "Wait. If it lasts longer, see in Ironic what works on the node.",
            on: [REBOOTING], see: "runbooks/FerriteBmoRebootHostsWait.md";
        PoweredOff: Kind::EndsWithin(Duration::from_secs(60)),
            "The machine is off. The next step follows within moments.",
            "Wait.",
            on: [REBOOTING, EVENT],
            more: "The step may wait for calls for other nodes that hang. The event says that the host was found off. If its message says that the machine is not certainly off, `status.poweredOn` stays true until it is.";
        HeldOff: Kind::Waits,
            "Clients hold the host off. The message names their keys, as many as fit into 8,000 bytes.",
            "Wait for these clients. If a client no longer exists, remove its annotation.",
            on: [REBOOTING],
            more: "A key that is gone may still be shown while the call that switches the host on waits behind calls for other nodes.",
            see: "runbooks/FerriteBmoRebootHoldOld.md";
        Offline: Kind::Rests,
            "The host stays off because `spec.online` is false.",
            "Set `spec.online` to true if the host should run.",
            on: [REBOOTING];
        PoweringOn: Kind::EndsWithin(Duration::from_secs(300)),
            "The machine is being switched on.",
            "Wait. If it lasts longer, read the log of the conductor of its node.",
            on: [REBOOTING];
        HoldUnsupported: Kind::Waits,
            "The machine must not be switched off. It was reset once and cannot be held off.",
            "Remove the hold, and do not rely on it.",
            on: [REBOOTING],
            more: "The message names what forbids it: `spec.disablePowerOff`, or `disable_power_off` of its node in Ironic.";
        Completed: Kind::Rests, "The reboot is complete.", on: [REBOOTING];
        Answered: Kind::Rests,
            "The host was already off when the request came: there was no cycle.",
            on: [EVENT];
        AtRest: Kind::Rests, "Everything is as it should be.";
        PowerUnknown: Kind::EndsWithin(Duration::from_secs(900)),
            "Ironic does not know whether the machine is on. A fencing client cannot rely on that.",
            "Check why the BMC does not answer Ironic: its network, its password.",
            on: [POWER_MANAGED, REBOOTING],
            more: "If the message names maintenance, end the maintenance of the node: Ironic does not read the power until then. For a held host the message shows since when it is held. With `--takeover` the host is the operator's until Ironic reads the power. The operator passes new credentials to Ironic. `status.errorMessage` shows whether they are right.";
        PoweredOn: Kind::Rests,
            "The host was found on.",
            "Nothing, unless it is a warning.",
            on: [EVENT],
            more: "As a warning: another program or a person switched on a host that clients hold. The controller switches it off again. Find out who did it.";
        SoftPowerOffFailed: Kind::Rests,
            "A soft power-off failed. The controller cuts the power instead. The message shows the cause.",
            on: [EVENT];
        StampsCorrected: Kind::Rests,
            "The stamps of the host were written by a clock that was ahead by more than a minute, and are written anew.",
            "Check the clocks of the nodes on which the controller runs.",
            on: [EVENT],
            more: "Until then `lastPoweredOn` lay in the future, and proved nothing. If the clock of this process is behind instead, the stamps were right: they are right again after the next cycle with a right clock.";
        InvalidRequest: Kind::Rests,
            "The value of a reboot annotation is not understood. It counts as soft.",
            "Correct the value of the annotation that the message names.",
            on: [EVENT];
        Refused: Kind::Waits,
            "The API server or a webhook refused a write to the host.",
            "Allow or correct what the message names: a permission, or the operator's webhook.",
            on: [POWER_MANAGED, EVENT],
            more: "The operator's webhook judges every change of an annotation. It refuses also while it is down, and for a host that its newer release finds wrong. The controller retries at least every half minute, and writes one event an hour. Meanwhile the machine is switched on. A further plain request of the same mode counts only once the first one is removed. A host that cannot be taken over stays the operator's until the pause is allowed.";
    }
}

#[expect(clippy::derivable_impls, reason = "the table gives its entries no attributes")]
impl Default for Reason {
    fn default() -> Self {
        Self::AtRest
    }
}

impl Reason {
    /// Why a call is made, and under which reason it is written down ahead.
    pub fn of_call(call: Call) -> Self {
        match call {
            Call::Off => Self::HardPowerOff,
            Call::SoftOff(_) => Self::SoftPowerOff,
            Call::On => Self::PoweringOn,
            Call::Reboot | Call::SoftReboot(_) => Self::Restarting,
        }
    }

    /// The reason of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == word)
    }

    fn is_read_in(self, place: Location) -> bool {
        self.about().places.contains(&place)
    }

    /// Whether something is under way between Ironic and us: a step of a cycle, and none at which a host rests.
    pub fn is_phase(self) -> bool {
        use Reason::{Completed, Deprovisioned, HeldOff, HoldUnsupported, Offline, PoweredOff};
        let rests = [Completed, Deprovisioned, HeldOff, HoldUnsupported, Offline, PoweredOff];
        self.is_read_in(REBOOTING) && !rests.contains(&self)
    }

    /// Whether the host is not looked after for this reason.
    pub fn is_refusal(self) -> bool {
        let served = [Self::Managed, Self::OnlineOnly, Self::TwoWriters, Self::PowerUnknown];
        self.is_read_in(POWER_MANAGED) && !served.contains(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_a_condition_is_read_back_as_it_was_written() {
        for reason in Reason::ALL.iter().copied() {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(Reason::parse("Unheard"), None);
    }

    #[test]
    fn a_step_between_ironic_and_us_is_no_refusal_and_a_rest_is_neither() {
        let all = |is: fn(Reason) -> bool| {
            let all = Reason::ALL.iter().filter(|it| is(**it)).map(|it| it.as_str());
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            all(Reason::is_phase),
            "IronicUnreachable RequestAccepted SoftPowerOff HardPowerOff Restarting PowerFailed NodeBusy PoweringOn PowerUnknown"
        );
        assert_eq!(
            all(Reason::is_refusal),
            "NotSelected Deleting Paused Detached RecordUnreadable NoCredentials NotProvisioned NodeShared NodeNotFound \
             NodeRegistering OperatorAtWork Refused"
        );
    }

    #[test]
    fn what_keeps_a_host_from_being_served_by_nobodys_wish_is_overdue_after_a_while() {
        use controller_kit::engine::reasons::Kind;
        let overdue = |it: Reason| matches!(it.about().kind, Kind::EndsWithin(_));
        for reason in [
            Reason::RecordUnreadable,
            Reason::NodeShared,
            Reason::NodeNotFound,
            Reason::NodeRegistering,
            Reason::OperatorAtWork,
            Reason::IronicUnreachable,
            Reason::PowerUnknown,
            Reason::PoweredOff,
        ] {
            assert!(overdue(reason), "{reason:?}");
        }
        for reason in [Reason::Paused, Reason::Detached, Reason::NoCredentials, Reason::HeldOff] {
            assert!(!overdue(reason), "{reason:?}: somebody wants it so");
        }
    }

    #[test]
    fn the_words_that_other_controllers_read_are_theirs() {
        use api_types::names::ferrite;
        for (reason, word) in [
            (Reason::NodeNotFound, ferrite::REASON_NODE_NOT_FOUND),
            (Reason::NodeRegistering, ferrite::REASON_NODE_REGISTERING),
            (Reason::IronicUnreachable, ferrite::REASON_IRONIC_UNREACHABLE),
            (Reason::PowerFailed, ferrite::REASON_POWER_FAILED),
            (Reason::NodeBusy, ferrite::REASON_NODE_BUSY),
            (Reason::HeldOff, ferrite::REASON_HELD_OFF),
            (Reason::PowerUnknown, ferrite::REASON_POWER_UNKNOWN),
        ] {
            assert_eq!(reason.as_str(), word);
        }
    }
}
