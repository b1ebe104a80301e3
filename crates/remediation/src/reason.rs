//! Why something was decided: one word that condition, event, history and metric share.

use std::time::Duration;

use controller_kit::engine::Reason as _;
use controller_kit::engine::reasons::{Location, ObjectPart};
use controller_kit::reasons;
use serde::{Deserialize, Serialize};

/// Longer than any step of a try, and than a person needs who was told what to correct.
const STEP_MAX: Duration = Duration::from_secs(3600);
/// An owner replaces a machine, or another member of a control plane has all its tries.
const REMEDIATION_MAX: Duration = Duration::from_secs(4 * 3600);

const SUCCEEDED: Location = Location::new(
    "Metal3Remediation",
    ObjectPart::Condition("Succeeded"),
    "The step or the cause of a wait, then the outcome. It is `Unknown` during an attempt. Once you correct a cause, the request \
     goes on by itself. A request of CAPM3's kind has no \
     conditions: its annotation `ferrite.metal3.io/remediation-standing` has the same reasons.",
);
const EVENT: Location = Location::new(
    "Metal3Remediation, Machine, BareMetalHost",
    ObjectPart::Event,
    "A step, a failed attempt (as a warning) or the outcome, when it happens.",
);
const HISTORY: Location = Location::new(
    "BareMetalHost",
    ObjectPart::Field("annotation `ferrite.metal3.io/remediation-history`, field `result`"),
    "The outcome of each attempt. After a failed attempt the next one follows without action.",
);
const METRIC: Location = Location::new(
    "The controller",
    ObjectPart::Metric("ferrite_remediation_waiting"),
    "Waits that no object shows.",
);

reasons! {
    /// Why a decision was taken. The words are read back and never change. The order counts: what somebody has to correct, or
    /// to wait for, before anything is done stands from `StrategyMissing` to `HostUnmanaged`.
    #[derive(Serialize, Deserialize)]
    pub enum Reason {
        AtRest: Kind::Rests, "Nothing of ours is left on anything, and it is going or done.";
        Paused: Kind::Waits, "The request, its Machine, its Cluster or its host is paused.", "End the pause.";
        StrategyMissing: Kind::EndsWithin(STEP_MAX),
            "`spec.strategy` or its type is missing.",
            "Correct `spec.strategy`.",
            on: [SUCCEEDED];
        StrategyUnknown: Kind::EndsWithin(STEP_MAX),
            "`spec.strategy.type` has an unknown value.",
            "Correct `spec.strategy`.",
            on: [SUCCEEDED];
        StrategyInvalid: Kind::EndsWithin(STEP_MAX),
            "A limit or a timeout in `spec.strategy` is invalid.",
            "Correct `spec.strategy`.",
            on: [SUCCEEDED];
        MachineMissing: Kind::EndsWithin(STEP_MAX),
            "No Machine has the name of the request.",
            "Give the request the name of its Machine.",
            on: [SUCCEEDED];
        MachineMismatch: Kind::EndsWithin(STEP_MAX),
            "Name, owner or cluster of the request differ from the Machine's.",
            "Give the request the name and the cluster label of its Machine.",
            on: [SUCCEEDED];
        Skipped: Kind::Waits,
            "The annotation cluster.x-k8s.io/skip-remediation of the Machine forbids remediation.",
            "Remove the annotation if the Machine should be remediated.",
            on: [SUCCEEDED];
        ClusterMissing: Kind::EndsWithin(STEP_MAX),
            "The Machine's Cluster does not exist.",
            "Correct the Machine, or restore the Cluster.",
            on: [SUCCEEDED];
        HostUnknown: Kind::EndsWithin(STEP_MAX),
            "The Machine has no Metal3Machine, or the Metal3Machine names no host.",
            "Make Machine, Metal3Machine and BareMetalHost name each other.",
            on: [SUCCEEDED],
            more: "If a health check calls a Machine that had a node unhealthy, its owner replaces it after ten minutes, or after a longer `spec.strategy.timeout`.";
        HostMissing: Kind::EndsWithin(STEP_MAX),
            "The host does not exist.",
            "Restore the host. Machine, Metal3Machine and BareMetalHost must name each other.",
            on: [SUCCEEDED];
        HostNotClaimed: Kind::EndsWithin(STEP_MAX),
            "The host names another consumer, or none.",
            "Make Machine, Metal3Machine and BareMetalHost name each other.",
            on: [SUCCEEDED],
            more: "If a health check calls a Machine that had a node unhealthy, its owner replaces it after ten minutes, or after a longer `spec.strategy.timeout`.";
        HostNotProvisioned: Kind::Waits,
            "The host is not provisioned: the machine does not run on it yet, or no longer. The controller does not power-cycle it.",
            "Nothing, unless the host should be provisioned.",
            on: [SUCCEEDED],
            more: "The message names the field.";
        HostBooting: Kind::EndsWithin(STEP_MAX),
            "The host may be booting: since it was installed, since its firmware was changed, or since it may be on.",
            "Wait.",
            on: [SUCCEEDED],
            more: "The controller waits for the node until the time in the message. Then it power-cycles the host unless the machine is well. It power-cycles it in any case if a person made the request, or if no health check has given a result.";
        NodeReady: Kind::EndsWithin(STEP_MAX),
            "The node was ready again before the first step. The health check should withdraw the request.",
            "Wait. If it lasts, see the health check: it does nothing while too many of its machines fail.",
            on: [SUCCEEDED];
        MemberInTry: Kind::EndsWithin(REMEDIATION_MAX),
            "The controller first power-cycles another machine of the same control plane: never two at a time.",
            "Wait. If it lasts, see the request of the Machine that the message names.",
            on: [SUCCEEDED];
        HostServicing: Kind::EndsWithin(REMEDIATION_MAX),
            "The firmware of the host is being changed. The request goes on after that.",
            "Wait. If it lasts, see what the bare metal operator does with the host.",
            on: [SUCCEEDED];
        HostOffline: Kind::Waits,
            "`spec.online` of the host is false. The controller does not power-cycle it.",
            "Set `spec.online` to true when the host may be on.",
            on: [SUCCEEDED];
        PowerOffDisabled: Kind::Waits,
            "`spec.disablePowerOff` of the host is true. The controller does not power-cycle it.",
            "Set `spec.disablePowerOff` to false if the host may be switched off.",
            on: [SUCCEEDED];
        HostUnmanaged: Kind::EndsWithin(STEP_MAX),
            "No program manages the power of the host: it has no credentials, is detached or is being deleted.",
            "Correct the field that the message names.",
            on: [SUCCEEDED];
        PowerOff: Kind::EndsWithin(STEP_MAX),
            "The controller has asked for the host to be switched off.",
            "Wait. If it lasts, see whether any program switches the host.",
            promise: Duration::from_secs(5),
            on: [SUCCEEDED, EVENT],
            more: "As a warning: the machine is the only member of its control plane. If the controllers that switch its host run there, make sure that a person can switch it on.";
        Fencing: Kind::EndsWithin(STEP_MAX),
            "The host is off. The controller moves away what ran on the node.",
            on: [SUCCEEDED, EVENT];
        PowerOn: Kind::EndsWithin(STEP_MAX),
            "The controller allows the host to be switched on.",
            "Wait. If it lasts, see whether any program switches the host, or holds it off.",
            on: [SUCCEEDED, EVENT],
            more: "As a warning: no program read the power of the host in time, so the controller left its node alone. See the `status.lastUpdated` and the error of the host.";
        Recovering: Kind::Waits,
            "The host is on. The controller waits for the node.",
            "Wait. If it lasts, see the console of the host, and its kubelet.",
            on: [SUCCEEDED];
        NodeUnseen: Kind::EndsWithin(STEP_MAX),
            "The workload cluster does not answer. Of a machine whose host is on the controller decides nothing until it does.",
            "Make the API server of the workload cluster reachable from the controller.",
            on: [SUCCEEDED],
            more: "A host that is off is switched on again after `--fence-timeout`.",
            see: "runbooks/FerriteRemediationWorkloadUnreachable.md";
        HostHeld: Kind::EndsWithin(STEP_MAX),
            "The reboot annotation of another client holds the host off. The attempt goes on when that is gone, with a full timeout.",
            "Remove the annotation that the message names when the host may be on.",
            on: [SUCCEEDED];
        HostUnreachable: Kind::EndsWithin(STEP_MAX),
            "Ironic does not answer, or does not know the host, as a condition of the host says. The attempt goes on after that, with a full timeout.",
            "Bring Ironic back, or the host into it. The reasons of `bmo-reboot` explain the word in the message.",
            on: [SUCCEEDED];
        Recovered: Kind::Rests,
            "The node is ready again.",
            "Nothing.",
            on: [SUCCEEDED, EVENT, HISTORY],
            more: "In the condition: the request is complete. It exists only because of another program's finalizer, or because its Machine is being deleted.";
        PowerOffTimedOut: Kind::EndsWithin(STEP_MAX),
            "The host was not off in time.",
            "See whether any program switches the host. If it only takes its time, raise `--power-off-timeout`.",
            on: [HISTORY, EVENT],
            more: "See what `bmo-reboot` (condition `Rebooting`) or the bare metal operator says. See whether the host's `status.lastUpdated` is recent, and whether its BMC answers.";
        PowerOnTimedOut: Kind::EndsWithin(STEP_MAX),
            "The host was not on in time.",
            "See whether any program switches the host, or holds it off. If it only takes its time, raise `--power-on-timeout`.",
            on: [HISTORY, EVENT],
            more: "See what `bmo-reboot` (condition `Rebooting`) or the bare metal operator says. See whether a reboot annotation holds the host off, or `spec.online` is false. See whether its `status.lastUpdated` is recent, and whether its BMC answers.";
        NotRecovered: Kind::EndsWithin(STEP_MAX),
            "The host was on and its node was not ready in time.",
            "See the console of the host, and its kubelet. If it only takes its time, raise `spec.strategy.timeout`.",
            on: [HISTORY, EVENT];
        StillUnhealthy: Kind::EndsWithin(STEP_MAX),
            "The node was ready, and the health check still calls the machine unhealthy. A reboot may not cure it.",
            "Read the condition HealthCheckSucceeded of the Machine: it shows the complaint.",
            on: [HISTORY, EVENT];
        Exhausted: Kind::EndsWithin(REMEDIATION_MAX),
            "All attempts have failed. The owner replaces the Machine, or the Machine is deleted. The last entry of the history has the cause in words.",
            "Repair the host, then remove both unhealthy annotations and set `spec.online` to true.",
            on: [SUCCEEDED, HISTORY, EVENT],
            more: "Nothing is to be done for the Machine. If it should stay, also delete the request. The host is off, with four exceptions: a control plane's host, `--switch-off-exhausted=false`, `spec.disablePowerOff`, and a host whose Metal3Machine CAPM3's own controller has.",
            see: "runbooks/FerriteRemediationExhausted.md";
        Withdrawn: Kind::EndsWithin(STEP_MAX),
            "The request was withdrawn, and the controller has undone its changes. Or the label of the watch filter was removed.",
            "Nothing, unless the label of the watch filter was removed.",
            on: [SUCCEEDED, EVENT],
            more: "In the condition: the request exists only because of another program's finalizer, or because its Machine is being deleted. If the message says that the label of the watch filter is gone, no instance carries the request out: restore the label, or delete the request. As a warning on a host alone: a deleted request held the host, which may be switched on now.";
        MachineGone: Kind::Waits,
            "The Machine is deleted or being deleted, and the controller has undone its changes.",
            "Nothing.",
            on: [SUCCEEDED, EVENT],
            more: "The request exists only because of another program's finalizer, or because its Machine is being deleted.";
        Undoing: Kind::EndsWithin(STEP_MAX),
            "The controller undoes its changes and has to wait for something. The message names it.",
            "Wait. If it lasts, make the API server of the workload cluster reachable from the controller.",
            on: [SUCCEEDED, EVENT],
            more: "If the message names `HostOffline`, set `spec.online` of the host to `true` when the host may be on. As a warning event, the message says what may remain.";
        NodeLeft: Kind::EndsWithin(STEP_MAX),
            "A request is gone. Its node, which did not answer at that time, may still be out of service.",
            "Make the API server of the workload cluster reachable from the controller, or remove the taint.",
            on: [METRIC], see: "runbooks/FerriteRemediationRequestsWait.md";
        Failed: Kind::EndsWithin(STEP_MAX),
            "All attempts have failed, and the controller may not have the Machine replaced: it has no owner. It is a control plane's, or `--delete-unowned` is false.",
            "Repair the host as after Exhausted, and delete the Machine.",
            on: [SUCCEEDED, HISTORY, EVENT], see: "runbooks/FerriteRemediationExhausted.md";
        Refused: Kind::EndsWithin(STEP_MAX),
            "The API server or a webhook refuses a write. In the condition: it refused the first write of the request.",
            "Allow what the message names: a permission, a webhook.",
            on: [SUCCEEDED, EVENT],
            more: "The controller retries at least every half minute, and writes one event an hour. On a host or a Machine alone: the request is gone. The host stays off, or the Machine's condition stays, until the write is allowed.";
        Contested: Kind::Waits,
            "Another controller writes the status of the request.",
            "Correct capm3.account of the chart.",
            on: [EVENT], see: "controllers/remediation.md#from-capm3s-remediation-without-touching-a-machinehealthcheck";
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
