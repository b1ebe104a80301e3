//! Why something was decided: one word that condition, event, metric and log share.

use std::time::Duration;

use controller_kit::engine::Reason as _;
use controller_kit::reasons;
use ironic::PowerTarget as Call;
use serde::{Deserialize, Serialize};

reasons! {
    /// Why a decision was taken. The words are read back and never change.
    #[derive(Serialize, Deserialize)]
    #[serde(into = "&'static str", try_from = "String")]
    pub enum Reason {
        Gone: Kind::Rests, "The host does not exist (any more).";
        NotLookedAt: Kind::EndsWithin(Duration::from_secs(600)), "The bare metal operator has not looked at the host yet.", "Look at the operator.";
        NotSelected: Kind::Rests, "The host was not handed to us.";
        Deleting: Kind::Rests, "The host is being deleted.";
        Paused: Kind::Waits, "Somebody asked everybody to leave the host alone.";
        Detached: Kind::Waits, "The host is taken out of Ironic.";
        RecordUnreadable: Kind::EndsWithin(Duration::from_secs(600)), "The record on the host says nothing that this release may rely on.", "Do what the condition says.";
        NoCredentials: Kind::Waits, "Nobody gave credentials of the management controller.", "Give the host credentials.";
        NotProvisioned: Kind::Rests, "No operating system of a consumer runs on the host.";
        Deprovisioned: Kind::Rests, "The host was deprovisioned: its requests and stamps go.";
        NodeShared: Kind::EndsWithin(Duration::from_secs(600)), "Another host names the same node.", "Correct one of the two hosts.";
        NodeNotFound: Kind::EndsWithin(Duration::from_secs(1800)), "Ironic has no such node.", "Register the node, or correct the host.";
        NodeRegistering: Kind::EndsWithin(Duration::from_secs(1800)), "The operator is making the node known to Ironic, which it could not end if it were paused.", "Look at the operator.";
        OperatorAtWork: Kind::EndsWithin(Duration::from_secs(3600)), "The operator has work to do on the host, for which it needs its power.", "Look at the operator.";
        IronicUnreachable: Kind::EndsWithin(Duration::from_secs(600)), "Ironic does not answer, or not to us.", "See what the condition says of Ironic.";
        TakenOver: Kind::Rests, "The operator was asked to leave the power of the host to us.";
        HandedBack: Kind::Rests, "The operator may have the host back.";
        Managed: Kind::Rests, "All of the host's power is ours.";
        TwoWriters: Kind::Rests, "Another program has changed what the status says of power, so two switch the machine.", "Set --takeover, or stop the other one.";
        OnlineOnly: Kind::Rests, "Only spec.online is ours: the host is available.";
        RequestAccepted: Kind::EndsWithin(Duration::from_secs(600)), "A reboot was stamped; nothing was asked of Ironic that it has taken.";
        SoftPowerOff: Kind::EndsWithin(Duration::from_secs(3660)), "The operating system was asked to shut down.";
        HardPowerOff: Kind::EndsWithin(Duration::from_secs(300)), "The power is being cut.", "Look at the conductor of its node.";
        Restarting: Kind::EndsWithin(Duration::from_secs(3660)), "A machine that must not be switched off is being reset.", "Look at the conductor of its node.";
        PowerFailed: Kind::Waits, "Ironic could not change the power.", "Look at the management controller of the machine.";
        NodeBusy: Kind::EndsWithin(Duration::from_secs(1800)), "Ironic is busy with the node.", "See in Ironic who works on the node.";
        PoweredOff: Kind::EndsWithin(Duration::from_secs(60)), "The host is off; what comes next is about to happen.";
        HeldOff: Kind::Waits, "Keyed requests keep the host off.", "Its client removes the hold.";
        Offline: Kind::Rests, "The host stays off because spec.online is false.";
        PoweringOn: Kind::EndsWithin(Duration::from_secs(300)), "The host is being switched on.", "Look at the conductor of its node.";
        HoldUnsupported: Kind::Waits, "A machine that must not be switched off cannot be held off.", "Remove the hold.";
        Completed: Kind::Rests, "The reboot is over.";
        Answered: Kind::Rests, "The host was off already when it was asked for, so there was no cycle.";
        AtRest: Kind::Rests, "Everything is as it should be.";
        PowerUnknown: Kind::EndsWithin(Duration::from_secs(900)), "Ironic does not know the power state, so nobody could rely on off.", "Look at the management controller of the machine.";
        PoweredOn: Kind::Rests, "The host was seen on.";
        SoftPowerOffFailed: Kind::Rests, "A soft power-off did not work, so a hard one follows.";
        InvalidRequest: Kind::Rests, "A request's value is not understood and counts as soft.";
        Refused: Kind::Rests, "The API server, or a webhook, refused a write to the host.";
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

    /// The reason of a word that a condition of ours may have. A request that is not understood, and a write that is refused, are
    /// told by an event only.
    pub fn parse(word: &str) -> Option<Self> {
        let found = Self::ALL.iter().copied().find(|it| it.as_str() == word);
        found.filter(|it| !matches!(it, Self::InvalidRequest | Self::Refused))
    }

    /// Whether something is under way between Ironic and us.
    pub fn is_phase(self) -> bool {
        matches!(
            self,
            Self::RequestAccepted
                | Self::SoftPowerOff
                | Self::HardPowerOff
                | Self::Restarting
                | Self::PowerFailed
                | Self::NodeBusy
                | Self::IronicUnreachable
                | Self::PowerUnknown
                | Self::PoweringOn
        )
    }

    /// Whether the host is not looked after for this reason.
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Self::NotSelected
                | Self::Deleting
                | Self::Paused
                | Self::Detached
                | Self::RecordUnreadable
                | Self::NoCredentials
                | Self::NotProvisioned
                | Self::NodeShared
                | Self::NodeNotFound
                | Self::NodeRegistering
                | Self::OperatorAtWork
        )
    }
}

impl From<Reason> for &'static str {
    fn from(reason: Reason) -> Self {
        reason.as_str()
    }
}

impl TryFrom<String> for Reason {
    type Error = &'static str;

    fn try_from(word: String) -> Result<Self, Self::Error> {
        Self::parse(&word).ok_or("an unknown reason")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_a_condition_is_read_back_as_it_was_written() {
        for reason in Reason::ALL.iter().copied() {
            let only_events = [Reason::InvalidRequest, Reason::Refused].contains(&reason);
            let told = (!only_events).then_some(reason);
            assert_eq!(Reason::parse(reason.as_str()), told);
        }
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
