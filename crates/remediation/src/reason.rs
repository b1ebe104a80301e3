//! Why something was decided: one word that condition, event, history and metric share.

/// Why a decision was taken; closed, so that it can label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    // Nothing to do with it.
    /// Nothing of ours is left on anything, and it is going or done.
    AtRest,
    /// The request, its Machine, its Cluster or its host is paused.
    Paused,
    // What somebody has to correct, or to wait for.
    /// `spec.strategy` or its type is missing.
    StrategyMissing,
    /// `spec.strategy.type` is a word that is not known.
    StrategyUnknown,
    /// A limit or a timeout makes no sense.
    StrategyInvalid,
    /// There is no Machine of that name.
    MachineMissing,
    /// The request's name, owner or cluster is not the Machine's.
    MachineMismatch,
    /// The Machine has an annotation that forbids remediation.
    Skipped,
    /// The Machine's Cluster is not there.
    ClusterMissing,
    /// The Machine has no `Metal3Machine`, or that names no host.
    HostUnknown,
    /// The host is not there.
    HostMissing,
    /// The host is not the machine's.
    HostNotClaimed,
    /// Nothing of the machine's runs on the host yet, or any more.
    HostNotProvisioned,
    /// The host may be booting for the first time since it was installed.
    HostBooting,
    /// The host is to be off, says `spec.online`.
    HostOffline,
    /// The host must never be switched off.
    PowerOffDisabled,
    /// The host's power is nobody's: it has no credentials, is detached or is being deleted.
    HostUnmanaged,
    // A try.
    /// The host is asked to be switched off.
    PowerOff,
    /// The host is off; what ran on the node is moved away.
    Fencing,
    /// The host may be switched on.
    PowerOn,
    /// The host is on; the node is awaited.
    Recovering,
    /// The node is ready again.
    Recovered,
    // How a try fails.
    /// The host was not off in time.
    PowerOffTimedOut,
    /// The host was not on in time.
    PowerOnTimedOut,
    /// The node was not ready in time.
    NotRecovered,
    /// The node was ready again, and the health check still calls the machine unhealthy.
    StillUnhealthy,
    // How it ends.
    /// All tries have failed: the machine's owner is to replace it.
    Exhausted,
    /// The request was withdrawn.
    Withdrawn,
    /// The Machine is being deleted, or is gone.
    MachineGone,
    /// What was changed is being undone.
    Undoing,
    /// Nothing more can be done, and nobody may be told to.
    Failed,
    /// A write is refused.
    Refused,
    /// Another controller works on the same request.
    Contested,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::AtRest,
        Self::Paused,
        Self::StrategyMissing,
        Self::StrategyUnknown,
        Self::StrategyInvalid,
        Self::MachineMissing,
        Self::MachineMismatch,
        Self::Skipped,
        Self::ClusterMissing,
        Self::HostUnknown,
        Self::HostMissing,
        Self::HostNotClaimed,
        Self::HostNotProvisioned,
        Self::HostBooting,
        Self::HostOffline,
        Self::PowerOffDisabled,
        Self::HostUnmanaged,
        Self::PowerOff,
        Self::Fencing,
        Self::PowerOn,
        Self::Recovering,
        Self::Recovered,
        Self::PowerOffTimedOut,
        Self::PowerOnTimedOut,
        Self::NotRecovered,
        Self::StillUnhealthy,
        Self::Exhausted,
        Self::Withdrawn,
        Self::MachineGone,
        Self::Undoing,
        Self::Failed,
        Self::Refused,
        Self::Contested,
    ];

    /// The word, which must never change: it is read back.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtRest => "AtRest",
            Self::Paused => "Paused",
            Self::StrategyMissing => "StrategyMissing",
            Self::StrategyUnknown => "StrategyUnknown",
            Self::StrategyInvalid => "StrategyInvalid",
            Self::MachineMissing => "MachineMissing",
            Self::MachineMismatch => "MachineMismatch",
            Self::Skipped => "Skipped",
            Self::ClusterMissing => "ClusterMissing",
            Self::HostUnknown => "HostUnknown",
            Self::HostMissing => "HostMissing",
            Self::HostNotClaimed => "HostNotClaimed",
            Self::HostNotProvisioned => "HostNotProvisioned",
            Self::HostBooting => "HostBooting",
            Self::HostOffline => "HostOffline",
            Self::PowerOffDisabled => "PowerOffDisabled",
            Self::HostUnmanaged => "HostUnmanaged",
            Self::PowerOff => "PowerOff",
            Self::Fencing => "Fencing",
            Self::PowerOn => "PowerOn",
            Self::Recovering => "Recovering",
            Self::Recovered => "Recovered",
            Self::PowerOffTimedOut => "PowerOffTimedOut",
            Self::PowerOnTimedOut => "PowerOnTimedOut",
            Self::NotRecovered => "NotRecovered",
            Self::StillUnhealthy => "StillUnhealthy",
            Self::Exhausted => "Exhausted",
            Self::Withdrawn => "Withdrawn",
            Self::MachineGone => "MachineGone",
            Self::Undoing => "Undoing",
            Self::Failed => "Failed",
            Self::Refused => "Refused",
            Self::Contested => "Contested",
        }
    }

    /// The reason of a word, if it is one of ours.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }

    /// Whether somebody has to correct something before anything is done.
    pub fn is_refusal(self) -> bool {
        (Self::StrategyMissing..=Self::HostUnmanaged).contains(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_read_back_as_it_was_written() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
    }
}
