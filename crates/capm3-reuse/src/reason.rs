//! Why something was decided: one word that condition, event and metric share.

/// Why a decision was taken; closed, so that it can label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    // Refusals.
    /// It is gone, or belongs to another installation.
    NotOurs,
    /// The machine or its Cluster is paused.
    Paused,
    /// Neither the machine nor its Cluster is paused.
    NotPaused,
    /// No Machine has taken the `Metal3Machine` yet.
    WaitingForOwner,
    /// The Machine that owns it is not there.
    MachineMissing,
    /// The Machine is being deleted: it gets no host any more.
    MachineDeleting,
    /// The Cluster is not there.
    ClusterMissing,
    /// The Cluster's infrastructure is not there yet.
    WaitingForInfrastructure,
    /// The Machine has no first-boot configuration yet.
    WaitingForBootstrapData,
    /// The secret with the first-boot configuration is not there.
    BootstrapSecretMissing,
    /// A secret that the machine itself names is not there.
    SecretMissing,
    /// The data template that the machine names is not there.
    DataTemplateMissing,
    // What somebody has to correct.
    /// The API server does not take what is to be written.
    Refused,
    /// The host selector cannot be understood.
    SelectorInvalid,
    /// The image cannot be installed.
    ImageInvalid,
    /// A secret or template of another namespace is asked for.
    ForeignNamespace,
    /// The template that the machine was cloned from cannot be decoded.
    TemplateInvalid,
    /// Namespace, host and machine make a provider ID that is too long.
    NameTooLong,
    // On the way to a host.
    /// It got a free host.
    HostClaimed,
    /// It got a host that its owner had before.
    HostReused,
    /// A host names it already.
    HostAdopted,
    /// A host that is kept for its owner will be ready.
    WaitingForKeptHost,
    /// None is kept for its owner, and it may have no other.
    NoKeptHost,
    /// No host that will do is free.
    NoHostAvailable,
    /// The host that it was going to take is not to be had any more.
    HostGivenUp,
    // With a host.
    /// The data template's secrets are awaited.
    WaitingForData,
    /// The data template's secrets could not be made.
    DataFailed,
    /// The host is being installed.
    Provisioning,
    /// The host reports an error.
    HostFailed,
    /// The host is gone, or somebody else has it.
    HostLost,
    /// The machine is up.
    Provisioned,
    /// The same, and its Node says another provider ID.
    NodeForeign,
    /// The same, and several Nodes say that they run on its host.
    NodeAmbiguous,
    /// The same for long, and its Node is not known.
    NodeMissing,
    // On the way out.
    /// The host is told to forget the machine.
    Releasing,
    /// The same, and it cannot be said for whom the host is to be kept.
    OwnerUnreadable,
    /// Nobody says just now for whom the host is to be kept: it stays as it is until then.
    OwnerUnanswered,
    /// The host is being cleared.
    Deprovisioning,
    /// The host is kept for the machine's owner.
    Reserved,
    /// The host is free again.
    Released,
    /// Nothing holds the machine any more.
    LetGo,
    // About a host that is kept.
    /// Its owner is there and may need it.
    Kept,
    /// CAPM3 keeps it; it is left alone.
    KeptByCapm3,
    /// Its owner is gone.
    OwnerGone,
    /// Its owner is being deleted.
    OwnerDeleting,
    /// The Cluster is being deleted.
    ClusterDeleting,
    /// Its owner's template does not ask for reuse any more.
    ReuseOff,
    /// Its owner has all its machines, and each has a host.
    NotNeeded,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 48] = [
        Self::NotOurs,
        Self::Paused,
        Self::NotPaused,
        Self::WaitingForOwner,
        Self::MachineMissing,
        Self::MachineDeleting,
        Self::ClusterMissing,
        Self::WaitingForInfrastructure,
        Self::WaitingForBootstrapData,
        Self::BootstrapSecretMissing,
        Self::SecretMissing,
        Self::DataTemplateMissing,
        Self::Refused,
        Self::SelectorInvalid,
        Self::ImageInvalid,
        Self::ForeignNamespace,
        Self::TemplateInvalid,
        Self::NameTooLong,
        Self::HostClaimed,
        Self::HostReused,
        Self::HostAdopted,
        Self::WaitingForKeptHost,
        Self::NoKeptHost,
        Self::NoHostAvailable,
        Self::HostGivenUp,
        Self::WaitingForData,
        Self::DataFailed,
        Self::Provisioning,
        Self::HostFailed,
        Self::HostLost,
        Self::Provisioned,
        Self::NodeForeign,
        Self::NodeAmbiguous,
        Self::NodeMissing,
        Self::Releasing,
        Self::OwnerUnreadable,
        Self::OwnerUnanswered,
        Self::Deprovisioning,
        Self::Reserved,
        Self::Released,
        Self::LetGo,
        Self::Kept,
        Self::KeptByCapm3,
        Self::OwnerGone,
        Self::OwnerDeleting,
        Self::ClusterDeleting,
        Self::ReuseOff,
        Self::NotNeeded,
    ];

    /// As a reason of conditions and events, and as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotOurs => "NotOurs",
            Self::Paused => "Paused",
            Self::NotPaused => "NotPaused",
            Self::WaitingForOwner => "WaitingForOwner",
            Self::MachineMissing => "MachineMissing",
            Self::MachineDeleting => "MachineDeleting",
            Self::ClusterMissing => "ClusterMissing",
            Self::WaitingForInfrastructure => "WaitingForInfrastructure",
            Self::WaitingForBootstrapData => "WaitingForBootstrapData",
            Self::BootstrapSecretMissing => "BootstrapSecretMissing",
            Self::SecretMissing => "SecretMissing",
            Self::DataTemplateMissing => "DataTemplateMissing",
            Self::Refused => "Refused",
            Self::SelectorInvalid => "SelectorInvalid",
            Self::ImageInvalid => "ImageInvalid",
            Self::ForeignNamespace => "ForeignNamespace",
            Self::TemplateInvalid => "TemplateInvalid",
            Self::NameTooLong => "NameTooLong",
            Self::HostClaimed => "HostClaimed",
            Self::HostReused => "HostReused",
            Self::HostAdopted => "HostAdopted",
            Self::WaitingForKeptHost => "WaitingForKeptHost",
            Self::NoKeptHost => "NoKeptHost",
            Self::NoHostAvailable => "NoHostAvailable",
            Self::HostGivenUp => "HostGivenUp",
            Self::WaitingForData => "WaitingForData",
            Self::DataFailed => "DataFailed",
            Self::Provisioning => "Provisioning",
            Self::HostFailed => "HostFailed",
            Self::HostLost => "HostLost",
            Self::Provisioned => "Provisioned",
            Self::NodeForeign => "NodeForeign",
            Self::NodeAmbiguous => "NodeAmbiguous",
            Self::NodeMissing => "NodeMissing",
            Self::Releasing => "Releasing",
            Self::OwnerUnreadable => "OwnerUnreadable",
            Self::OwnerUnanswered => "OwnerUnanswered",
            Self::Deprovisioning => "Deprovisioning",
            Self::Reserved => "Reserved",
            Self::Released => "Released",
            Self::LetGo => "LetGo",
            Self::Kept => "Kept",
            Self::KeptByCapm3 => "KeptByCapm3",
            Self::OwnerGone => "OwnerGone",
            Self::OwnerDeleting => "OwnerDeleting",
            Self::ClusterDeleting => "ClusterDeleting",
            Self::ReuseOff => "ReuseOff",
            Self::NotNeeded => "NotNeeded",
        }
    }

    /// Whether a person should look at it.
    pub fn is_warning(self) -> bool {
        matches!(
            self,
            Self::MachineMissing
                | Self::ClusterMissing
                | Self::BootstrapSecretMissing
                | Self::SecretMissing
                | Self::DataTemplateMissing
                | Self::Refused
                | Self::SelectorInvalid
                | Self::ImageInvalid
                | Self::ForeignNamespace
                | Self::TemplateInvalid
                | Self::NameTooLong
                | Self::NoKeptHost
                | Self::NoHostAvailable
                | Self::DataFailed
                | Self::HostFailed
                | Self::HostLost
                | Self::NodeForeign
                | Self::NodeAmbiguous
                | Self::NodeMissing
                | Self::OwnerUnreadable
                | Self::OwnerUnanswered
        )
    }
}
