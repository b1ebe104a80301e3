//! The reasons of verdicts: one word each, in conditions, events and the status.

use std::time::Duration;

/// Why a verdict was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It is a host already.
    Known,
    /// Two hosts claim to be this machine.
    KnownTwice,
    /// Somebody registered it in Ironic: it has a name, or is further than discovery takes it.
    Registered,
    /// Its inventory is not there yet.
    AwaitsInventory,
    /// Its ports are not there yet.
    AwaitsPorts,
    /// Ironic could not inspect it.
    InspectionFailed,
    /// Its inventory did not come.
    NoInventory,
    /// Its inventory is too large to be read.
    InventoryTooLarge,
    /// Its inventory cannot be read.
    InventoryUnreadable,
    /// Ironic fails whenever it is asked about it.
    IronicFails,
    /// Its ports did not come, or have addresses that identify nobody.
    NoUsablePort,
    /// No resource takes it.
    NotSelected,
    /// Nothing says that Ironic discovered it by itself, and no resource takes others.
    NotDiscovered,
    /// Its resource makes no hosts for now.
    Suspended,
    /// Its resource makes no legal names.
    TemplateInvalid,
    /// A person deleted its host.
    HostDeleted,
    /// A host has one of its interfaces, and both boot by addresses of their own.
    InterfaceOfAnotherHost,
    /// A host of another machine has the same management controller.
    BmcOfAnotherHost,
    /// A machine before it has its name or one of its addresses, and is a host first.
    AfterAnother,
    /// Nothing that it says can name it.
    NoName,
    /// Other machines have both names that it could get.
    NameConflict,
    /// A person has to approve it.
    AwaitsApproval,
    /// The API server does not want its host.
    HostRefused,
    /// The API server could not make its host, or Ironic not say whether it is still there.
    HostFailed,
    /// Its resource has made as many hosts as it may.
    MaxHosts,
    /// Its resource only tells what it would do.
    DryRun,
    /// Too many hosts were made lately.
    RateLimited,
    /// Its host is made.
    Created,
}

/// Where a machine is counted and listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sort {
    /// A host.
    Known,
    /// About to be one.
    Created,
    /// Waiting for a person or for room.
    Pending,
    /// Nothing can be made of it.
    Failed,
    /// Another host stands in its way.
    Conflicting,
    /// Nobody's, or not complete yet: not listed.
    Unlisted,
}

impl Reason {
    /// The word in conditions, events and the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Known => "Known",
            Self::KnownTwice => "KnownTwice",
            Self::Registered => "Registered",
            Self::AwaitsInventory => "AwaitsInventory",
            Self::AwaitsPorts => "AwaitsPorts",
            Self::InspectionFailed => "InspectionFailed",
            Self::NoInventory => "NoInventory",
            Self::InventoryTooLarge => "InventoryTooLarge",
            Self::InventoryUnreadable => "InventoryUnreadable",
            Self::IronicFails => "IronicFails",
            Self::NoUsablePort => "NoUsablePort",
            Self::NotSelected => "NotSelected",
            Self::NotDiscovered => "NotDiscovered",
            Self::Suspended => "Suspended",
            Self::TemplateInvalid => "TemplateInvalid",
            Self::HostDeleted => "HostDeleted",
            Self::InterfaceOfAnotherHost => "InterfaceOfAnotherHost",
            Self::BmcOfAnotherHost => "BmcOfAnotherHost",
            Self::AfterAnother => "AfterAnother",
            Self::NoName => "NoName",
            Self::NameConflict => "NameConflict",
            Self::AwaitsApproval => "AwaitsApproval",
            Self::HostRefused => "HostRefused",
            Self::HostFailed => "HostFailed",
            Self::MaxHosts => "MaxHosts",
            Self::DryRun => "DryRun",
            Self::RateLimited => "RateLimited",
            Self::Created => "Created",
        }
    }

    /// Where it is counted.
    pub fn sort(self) -> Sort {
        match self {
            Self::Known => Sort::Known,
            Self::Created => Sort::Created,
            Self::Suspended
            | Self::HostDeleted
            | Self::AwaitsApproval
            | Self::MaxHosts
            | Self::DryRun
            | Self::RateLimited => Sort::Pending,
            Self::InspectionFailed
            | Self::NoInventory
            | Self::InventoryTooLarge
            | Self::InventoryUnreadable
            | Self::IronicFails
            | Self::NoUsablePort
            | Self::TemplateInvalid
            | Self::NoName
            | Self::HostRefused
            | Self::HostFailed => Sort::Failed,
            Self::KnownTwice
            | Self::InterfaceOfAnotherHost
            | Self::BmcOfAnotherHost
            | Self::NameConflict => Sort::Conflicting,
            Self::Registered
            | Self::AwaitsInventory
            | Self::AwaitsPorts
            | Self::NotSelected
            | Self::NotDiscovered
            | Self::AfterAnother => Sort::Unlisted,
        }
    }

    /// Whether it is said of a machine of which too little is known to tell whose it is.
    pub(crate) fn is_incomplete(self) -> bool {
        matches!(
            self,
            Self::AwaitsInventory
                | Self::AwaitsPorts
                | Self::InspectionFailed
                | Self::NoInventory
                | Self::InventoryTooLarge
                | Self::InventoryUnreadable
                | Self::IronicFails
                | Self::NoUsablePort
        )
    }
}

/// What is told in an event that is about no machine of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A host was made.
    HostCreated,
    /// A host was made, and named by another value than its discovery asks for.
    HostNamedByFallback,
    /// An approval names no machine that could become a host.
    ApprovalUnknown,
    /// A discovery cannot be decoded.
    Undecodable,
}

impl Told {
    /// The word in the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostCreated => "HostCreated",
            Self::HostNamedByFallback => "HostNamedByFallback",
            Self::ApprovalUnknown => "ApprovalUnknown",
            Self::Undecodable => "Undecodable",
        }
    }
}

controller_kit::reasons! {
    /// How a pass of the engine ended.
    pub enum Pass {
        AllDecided: Kind::Rests,
            "It was decided about all machines.";
        IronicAway: Kind::Waits,
            "Ironic does not answer, or not to this controller, so no hosts are made.",
            "Look at the condition IronicReachable of any discovery.";
        DiscoveryTold: Kind::Rests,
            "The status of a discovery says what was decided.";
        DiscoveryChanged: Kind::EndsWithin(Duration::from_secs(60)),
            "A discovery changed, and nothing is decided by its new spec yet.";
        ApprovalsSettled: Kind::Rests,
            "Approvals were taken off a discovery: their machines are hosts, or cannot be.";
        MachineRead: Kind::Rests,
            "Ironic said what a machine is.";
        MachineUnread: Kind::Rests,
            "Ironic did not say what a machine is; the status of its discovery tells if that lasts.";
        IronicBusy: Kind::EndsWithin(Duration::from_secs(1800)),
            "Ironic does not take what is to be written to a node yet, or does not answer.",
            "Look at the node in Ironic: somebody works with it, or has locked it.";
        Marked: Kind::Rests,
            "It is written down in Ironic that a node had a host.";
        MarkRefused: Kind::Waits,
            "Ironic does not take the mark of a node that had a host.",
            "Read the event of this reason on the host: it says what Ironic answers.";
        DriverAdopted: Kind::Rests,
            "The node of a host has the driver of the host's BMC.";
        DriverUnasked: Kind::Rests,
            "The host does not ask for a driver any more.";
        DriverAdoptionWaits: Kind::Waits,
            "The driver of a host's BMC waits for the host's node to be at rest.",
            "Nothing, unless the node is to be free: it gets its driver then.";
        DriverNotEnabled: Kind::Waits,
            "Ironic has no driver for a host's BMC.",
            "Enable the driver that the event names in Ironic.";
        DriverRefused: Kind::Waits,
            "Ironic does not take the driver of a host's BMC.",
            "Read the event of this reason on the host: it says what Ironic answers.";
    }
}

/// The word of what a list says of a machine: a text may follow it.
pub(crate) fn word(told: &str) -> &str {
    told.split(':').next().unwrap_or_default()
}

/// What is said of hosts that nothing but the machine makes one: anybody on the provisioning network can post their addresses.
pub const ONLY_ITS_WORD: &str =
    "only this machine says that these hosts are one: delete none before you have looked at it";

/// What to do about a machine of which a list tells this, where that does not say it itself.
pub fn advice(told: &str) -> Option<&'static str> {
    if told.ends_with(ONLY_ITS_WORD) {
        return None;
    }
    let all = [
        (
            Reason::AwaitsApproval,
            "name the node in the annotation ferrite.metal3.io/approve of this discovery",
        ),
        (
            Reason::HostDeleted,
            "its host was deleted; name the node in the annotation ferrite.metal3.io/approve for another one, or set spec.rediscover",
        ),
        (
            Reason::InterfaceOfAnotherHost,
            "these hosts boot by other interfaces; if it is another machine, name the node in the annotation ferrite.metal3.io/approve",
        ),
        (
            Reason::BmcOfAnotherHost,
            "if that is right, name the node in the annotation ferrite.metal3.io/approve",
        ),
        (Reason::Suspended, "no host is made as long as the discovery is suspended"),
        (Reason::DryRun, "no host is made as long as spec.dryRun is set"),
        (Reason::MaxHosts, "raise spec.maxHosts, or delete hosts that it made"),
        (Reason::NameConflict, "these hosts have the names that it could get"),
        (Reason::KnownTwice, "delete the wrong one of these hosts"),
        (
            Reason::InventoryTooLarge,
            "the inventory has more than a mebibyte, or more interfaces than are looked at",
        ),
    ];
    all.into_iter().find(|(reason, _)| reason.as_str() == word(told)).map(|(_, text)| text)
}
