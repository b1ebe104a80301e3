//! Why something was decided: one word that condition, event, history and metric share.

use std::time::Duration;

use controller_kit::engine::Reason as _;
use controller_kit::reasons;
use serde::{Deserialize, Serialize};

/// Longer than any step of a try, and than a person needs who was told what to correct.
const HOUR: Duration = Duration::from_secs(3600);
/// An owner replaces a machine, or another member of a control plane has all its tries.
const HOURS: Duration = Duration::from_secs(4 * 3600);

reasons! {
    /// Why a decision was taken. The words are read back and never change. The order counts: what somebody has to correct, or
    /// to wait for, before anything is done stands from `StrategyMissing` to `HostUnmanaged`.
    #[derive(Serialize, Deserialize)]
    pub enum Reason {
        AtRest: Kind::Rests, "Nothing of ours is left on anything, and it is going or done.";
        Paused: Kind::Waits, "The request, its Machine, its Cluster or its host is paused.", "Take the pause away.";
        StrategyMissing: Kind::EndsWithin(HOUR), "spec.strategy or its type is missing.", "Correct spec.strategy.";
        StrategyUnknown: Kind::EndsWithin(HOUR), "spec.strategy.type is a word that is not known.", "Correct spec.strategy.";
        StrategyInvalid: Kind::EndsWithin(HOUR), "A limit or a timeout makes no sense.", "Correct spec.strategy.";
        MachineMissing: Kind::EndsWithin(HOUR), "There is no Machine of that name.", "Give the request the name of its Machine.";
        MachineMismatch: Kind::EndsWithin(HOUR), "The request's name, owner or cluster is not the Machine's.", "Give the request the name and the cluster label of its Machine.";
        Skipped: Kind::Waits, "The Machine has an annotation that forbids remediation.", "Remove the annotation, if it should be remediated.";
        ClusterMissing: Kind::EndsWithin(HOUR), "The Machine's Cluster is not there.", "Correct the Machine, or restore the Cluster.";
        HostUnknown: Kind::EndsWithin(HOUR), "The Machine has no Metal3Machine, or that names no host.", "Machine, Metal3Machine and host must name each other.";
        HostMissing: Kind::EndsWithin(HOUR), "The host is not there.", "Restore the host.";
        HostNotClaimed: Kind::EndsWithin(HOUR), "The host is not the machine's.", "Machine, Metal3Machine and host must name each other.";
        HostNotProvisioned: Kind::Waits, "Nothing of the machine's runs on the host yet, or any more.";
        HostBooting: Kind::EndsWithin(HOUR), "The host may be booting for the first time since it was installed.";
        NodeReady: Kind::EndsWithin(HOUR), "The node is ready again before anything was done: the health check is to withdraw the request.", "See why the health check does not withdraw it: while too many of its machines fail, it does nothing.";
        MemberInTry: Kind::EndsWithin(HOURS), "Another member of the control plane is power-cycled first: never two at a time.", "See the request of the Machine that the message names.";
        HostServicing: Kind::EndsWithin(HOURS), "The host's firmware is being changed.", "See what the bare metal operator does with the host.";
        HostOffline: Kind::Waits, "The host is to be off, says spec.online.", "Set spec.online to true when the host may be on.";
        PowerOffDisabled: Kind::Waits, "The host must never be switched off.", "Set spec.disablePowerOff to false, if it may be.";
        HostUnmanaged: Kind::EndsWithin(HOUR), "The host's power is nobody's: it has no credentials, is detached or is being deleted.", "Do what the condition says.";
        PowerOff: Kind::EndsWithin(HOUR), "The host is asked to be switched off.", "See whether anybody switches the host.";
        Fencing: Kind::EndsWithin(HOUR), "The host is off; what ran on the node is moved away.";
        PowerOn: Kind::EndsWithin(HOUR), "The host may be switched on.", "See whether anybody switches the host, or holds it off.";
        Recovering: Kind::Waits, "The host is on; the node is awaited.", "See the console of the host, and its kubelet.";
        NodeUnseen: Kind::EndsWithin(HOUR), "The host is on, and the node's cluster does not answer: nothing is decided before it does.", "Make the API server of the workload cluster reachable from here.";
        Recovered: Kind::Rests, "The node is ready again.";
        PowerOffTimedOut: Kind::EndsWithin(HOUR), "The host was not off in time.", "See whether anybody switches the host.";
        PowerOnTimedOut: Kind::EndsWithin(HOUR), "The host was not on in time.", "See whether anybody switches the host, or holds it off.";
        NotRecovered: Kind::EndsWithin(HOUR), "The node was not ready in time.", "See the console of the host, and its kubelet.";
        StillUnhealthy: Kind::EndsWithin(HOUR), "The node was ready again, and the health check still calls the machine unhealthy.", "See of what the Machine's condition HealthCheckSucceeded complains.";
        Exhausted: Kind::EndsWithin(HOURS), "All tries have failed: the machine's owner is to replace it.", "Repair the host, then remove its marks and set spec.online to true.";
        Withdrawn: Kind::EndsWithin(HOUR), "The request was withdrawn, or the label of the watch filter is gone.";
        MachineGone: Kind::Waits, "The Machine is being deleted, or is gone.";
        Undoing: Kind::Waits, "What was changed is being undone.";
        NodeLeft: Kind::EndsWithin(HOUR), "A request is gone, and its node, which could not be asked then, may still be out of service.", "Make the API server of the workload cluster reachable from here, or remove the taint.";
        Failed: Kind::Rests, "Nothing more can be done, and nobody may be told to.", "Delete the Machine.";
        Refused: Kind::EndsWithin(HOUR), "A write is refused.", "Allow what the message names: a permission, a webhook.";
        Contested: Kind::Waits, "Another controller works on the same request.", "Correct capm3.account of the chart.";
    }
}

impl Reason {
    /// The reason of a word, if it is one of ours.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == word)
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
        for reason in Reason::ALL.iter().copied() {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        }
    }
}
