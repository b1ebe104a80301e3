//! Why something was decided: one word that condition, event and log share.

use api_types::names::ferrite::{
    REASON_HELD_OFF, REASON_IRONIC_UNREACHABLE, REASON_NODE_BUSY, REASON_NODE_NOT_FOUND,
    REASON_NODE_REGISTERING, REASON_POWER_FAILED, REASON_POWER_UNKNOWN,
};
use serde::{Deserialize, Serialize};

/// Why a decision was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Reason {
    /// The host does not exist (any more).
    Gone,
    /// The bare metal operator has not looked at the host yet.
    NotLookedAt,
    /// The host was not handed to us.
    NotSelected,
    /// The host is being deleted.
    Deleting,
    /// Somebody asked everybody to leave the host alone.
    Paused,
    /// The host is taken out of Ironic.
    Detached,
    /// The record on the host says nothing that this release may rely on.
    RecordUnreadable,
    /// Nobody gave credentials of the management controller.
    NoCredentials,
    /// No operating system of a consumer runs on the host.
    NotProvisioned,
    /// The host was deprovisioned: its requests and stamps go.
    Deprovisioned,
    /// Another host names the same node.
    NodeShared,
    /// Ironic has no such node.
    NodeNotFound,
    /// The operator is making the node known to Ironic, which it could not end if it were paused.
    NodeRegistering,
    /// The operator has work to do on the host, for which it needs its power.
    OperatorAtWork,
    /// Ironic does not answer, or not to us.
    IronicUnreachable,
    /// The operator was asked to leave the power of the host to us.
    TakenOver,
    /// The operator may have the host back.
    HandedBack,
    /// All of the host's power is ours.
    Managed,
    /// Only `spec.online` is ours: the host is available.
    OnlineOnly,
    /// A reboot was stamped; nothing was asked of Ironic that it has taken.
    RequestAccepted,
    /// The operating system was asked to shut down.
    SoftPowerOff,
    /// The power is being cut.
    HardPowerOff,
    /// A machine that must not be switched off is being reset.
    Restarting,
    /// Ironic could not change the power.
    PowerFailed,
    /// Ironic is busy with the node.
    NodeBusy,
    /// The host is off; what comes next is about to happen.
    PoweredOff,
    /// Keyed requests keep the host off.
    HeldOff,
    /// The host stays off because `spec.online` is false.
    Offline,
    /// The host is being switched on.
    PoweringOn,
    /// A machine that must not be switched off cannot be held off.
    HoldUnsupported,
    /// The reboot is over.
    Completed,
    /// The host was off already when it was asked for, so there was no cycle.
    Answered,
    /// Everything is as it should be.
    AtRest,
    /// Ironic does not know the power state.
    PowerUnknown,
    /// The host was seen on.
    PoweredOn,
    /// A soft power-off did not work, so a hard one follows.
    SoftPowerOffFailed,
    /// A request's value is not understood and counts as soft.
    InvalidRequest,
    /// The API server, or a webhook, refused a write to the host.
    Refused,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 38] = [
        Self::Gone,
        Self::NotLookedAt,
        Self::NotSelected,
        Self::Deleting,
        Self::Paused,
        Self::Detached,
        Self::RecordUnreadable,
        Self::NoCredentials,
        Self::NotProvisioned,
        Self::Deprovisioned,
        Self::NodeShared,
        Self::NodeNotFound,
        Self::NodeRegistering,
        Self::OperatorAtWork,
        Self::IronicUnreachable,
        Self::TakenOver,
        Self::HandedBack,
        Self::Managed,
        Self::OnlineOnly,
        Self::RequestAccepted,
        Self::SoftPowerOff,
        Self::HardPowerOff,
        Self::Restarting,
        Self::PowerFailed,
        Self::NodeBusy,
        Self::PoweredOff,
        Self::HeldOff,
        Self::Offline,
        Self::PoweringOn,
        Self::HoldUnsupported,
        Self::Completed,
        Self::Answered,
        Self::AtRest,
        Self::PowerUnknown,
        Self::PoweredOn,
        Self::SoftPowerOffFailed,
        Self::InvalidRequest,
        Self::Refused,
    ];

    /// The word, which must never change: it is read back.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "Gone",
            Self::NotLookedAt => "NotLookedAt",
            Self::NotSelected => "NotSelected",
            Self::Deleting => "Deleting",
            Self::Paused => "Paused",
            Self::Detached => "Detached",
            Self::RecordUnreadable => "RecordUnreadable",
            Self::NoCredentials => "NoCredentials",
            Self::NotProvisioned => "NotProvisioned",
            Self::Deprovisioned => "Deprovisioned",
            Self::NodeShared => "NodeShared",
            Self::NodeNotFound => REASON_NODE_NOT_FOUND,
            Self::NodeRegistering => REASON_NODE_REGISTERING,
            Self::OperatorAtWork => "OperatorAtWork",
            Self::IronicUnreachable => REASON_IRONIC_UNREACHABLE,
            Self::TakenOver => "TakenOver",
            Self::HandedBack => "HandedBack",
            Self::Managed => "Managed",
            Self::OnlineOnly => "OnlineOnly",
            Self::RequestAccepted => "RequestAccepted",
            Self::SoftPowerOff => "SoftPowerOff",
            Self::HardPowerOff => "HardPowerOff",
            Self::Restarting => "Restarting",
            Self::PowerFailed => REASON_POWER_FAILED,
            Self::NodeBusy => REASON_NODE_BUSY,
            Self::PoweredOff => "PoweredOff",
            Self::HeldOff => REASON_HELD_OFF,
            Self::Offline => "Offline",
            Self::PoweringOn => "PoweringOn",
            Self::HoldUnsupported => "HoldUnsupported",
            Self::Completed => "Completed",
            Self::Answered => "Answered",
            Self::AtRest => "AtRest",
            Self::PowerUnknown => REASON_POWER_UNKNOWN,
            Self::PoweredOn => "PoweredOn",
            Self::SoftPowerOffFailed => "SoftPowerOffFailed",
            Self::InvalidRequest => "InvalidRequest",
            Self::Refused => "Refused",
        }
    }

    /// The reason of a word that a condition of ours may have. A request that is not understood, and a write that is refused, are
    /// told by an event only.
    pub fn parse(word: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|it| it.as_str() == word);
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
        for reason in Reason::ALL {
            let only_events = [Reason::InvalidRequest, Reason::Refused].contains(&reason);
            let told = (!only_events).then_some(reason);
            assert_eq!(Reason::parse(reason.as_str()), told);
        }
    }
}
