//! Why something was decided: one word that condition, event and metric share.

use std::time::Duration;

use controller_kit::engine::Reason as _;
use controller_kit::engine::reasons::Kind;
use controller_kit::reasons;

/// What the operator or a process of ours does by itself takes no longer, but for installing and clearing.
const SOON: Duration = Duration::from_secs(600);

/// What somebody has to look at who was told so, or what a neighbour does by itself.
const HOUR: Duration = Duration::from_secs(3600);
/// Installing a host, or wiping its disks.
const HOURS: Duration = Duration::from_secs(6 * 3600);

reasons! {
    /// Why a decision was taken.
    pub enum Reason {
        NotOurs: Kind::Rests, "It belongs to another installation.";
        Paused: Kind::Waits, "The machine or its Cluster is paused.", "Take the pause away.";
        NotPaused: Kind::Rests, "Neither the machine nor its Cluster is paused.";
        WaitingForOwner: Kind::Waits, "No Machine has taken the Metal3Machine yet.";
        MachineMissing: Kind::EndsWithin(HOUR), "The Machine that owns it is not there.", "Delete the Metal3Machine, or restore the Machine.";
        MachineDeleting: Kind::Waits, "The Machine is being deleted: it gets no host any more.";
        ClusterMissing: Kind::EndsWithin(HOUR), "The Cluster is not there.", "Correct the Machine, or restore the Cluster.";
        WaitingForInfrastructure: Kind::Waits, "The Cluster's infrastructure is not there yet.";
        WaitingForBootstrapData: Kind::Waits, "The Machine has no first-boot configuration yet.";
        BootstrapSecretMissing: Kind::EndsWithin(HOUR), "The secret with the first-boot configuration is not there.", "See the bootstrap provider.";
        SecretMissing: Kind::EndsWithin(HOUR), "A secret that the machine itself names is not there.", "Create the secret, or correct its name.";
        DataTemplateMissing: Kind::EndsWithin(HOUR), "The data template that the machine names is not there.", "Create the Metal3DataTemplate, or correct its name.";
        Refused: Kind::EndsWithin(HOUR), "The API server does not take what is to be written.", "Allow what the message names.";
        SelectorInvalid: Kind::EndsWithin(HOUR), "The host selector cannot be understood.", "Correct spec.hostSelector.";
        ImageInvalid: Kind::EndsWithin(HOUR), "The image cannot be installed.", "Correct spec.image.";
        ForeignNamespace: Kind::EndsWithin(HOUR), "A secret or template of another namespace is asked for.", "Name one of the machine's own namespace.";
        TemplateInvalid: Kind::EndsWithin(HOUR), "The template that the machine was cloned from cannot be decoded.", "Correct the template.";
        NameTooLong: Kind::EndsWithin(HOUR), "Namespace, host and machine make a provider ID that is too long.", "Use shorter names.";
        HostClaimed: Kind::EndsWithin(SOON), "It got a free host.";
        HostReused: Kind::EndsWithin(SOON), "It got a host that its owner had before.";
        HostAdopted: Kind::EndsWithin(SOON), "A host names it already.";
        WaitingForKeptHost: Kind::Waits, "A host that is kept for its owner will be ready.", "See what the host is doing.";
        NoKeptHost: Kind::Waits, "None is kept for its owner, and it may have no other.", "Reserve a host for the owner.";
        NoHostAvailable: Kind::Waits, "No host that will do is free.", "Add a host, or correct the selector.";
        HostGivenUp: Kind::EndsWithin(SOON), "The host that it was going to take is not to be had any more.";
        WaitingForData: Kind::EndsWithin(HOUR), "The data template's secrets are awaited.", "See the Metal3DataClaim.";
        DataFailed: Kind::EndsWithin(HOUR), "The data template's secrets could not be made.", "See the Metal3DataClaim.";
        Provisioning: Kind::EndsWithin(HOURS), "The host is being installed.";
        HostFailed: Kind::EndsWithin(HOUR), "The host reports an error.", "See what the host says.";
        HostLost: Kind::EndsWithin(HOUR), "The host is gone, or somebody else has it.", "Delete the Machine.";
        Provisioned: Kind::Rests, "The machine is up.";
        NodeForeign: Kind::EndsWithin(HOUR), "The same, and its Node says another provider ID.", "Delete the Node, and correct what sets the ID.";
        NodeAmbiguous: Kind::EndsWithin(HOUR), "The same, and several Nodes say that they run on its host.", "Delete the one that does not.";
        NodeMissing: Kind::EndsWithin(HOUR), "The same for long, and its Node is not known.", "Do what the message says.";
        Releasing: Kind::EndsWithin(HOUR), "The host is told to forget the machine.";
        OwnerUnreadable: Kind::EndsWithin(HOUR), "It cannot be read for whom the host is to be kept: it stays as it is until then.", "Do what the message says.";
        OwnerUnanswered: Kind::EndsWithin(HOUR), "Nobody says just now for whom the host is to be kept: it stays as it is until then.", "See what the message says of the error.";
        Deprovisioning: Kind::EndsWithin(HOURS), "The host is being cleared.";
        Reserved: Kind::Rests, "The host is kept for the machine's owner.";
        Released: Kind::Rests, "The host is free again.";
        LetGo: Kind::Rests, "Nothing holds the machine any more.";
        Kept: Kind::Rests, "The owner of a host that is kept is there and may need it.";
        KeptByCapm3: Kind::Rests, "CAPM3 keeps it; it is left alone.";
        OwnerGone: Kind::Rests, "Its owner is gone.";
        OwnerDeleting: Kind::Rests, "Its owner is being deleted.";
        ClusterDeleting: Kind::Rests, "The Cluster is being deleted.";
        ReuseOff: Kind::Rests, "Its owner's template does not ask for reuse any more.";
        NotNeeded: Kind::Rests, "Its owner has all its machines, and each has a host.";
    }
}

impl Reason {
    /// Whether a person should look at it.
    pub fn is_warning(self) -> bool {
        match self {
            // Nobody but people adds hosts.
            Self::NoKeptHost | Self::NoHostAvailable => true,
            // A neighbour does these by itself.
            Self::WaitingForData | Self::Releasing => false,
            _ => self.about().kind == Kind::EndsWithin(HOUR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What waits for hosts is counted by `ferrite_capm3_reuse_waiters`, which has an alert of its own.
    #[test]
    fn every_trouble_that_a_person_should_see_reaches_an_alert() {
        let for_hosts = [Reason::NoKeptHost, Reason::NoHostAvailable];
        for reason in Reason::ALL.iter().filter(|it| it.is_warning() && !for_hosts.contains(it)) {
            assert!(matches!(reason.about().kind, Kind::EndsWithin(_)), "{reason:?}");
        }
        let steps = [Reason::Releasing, Reason::Deprovisioning, Reason::Provisioning];
        for reason in steps.into_iter().chain([Reason::WaitingForData]) {
            assert!(matches!(reason.about().kind, Kind::EndsWithin(_)), "{reason:?}");
        }
    }
}
