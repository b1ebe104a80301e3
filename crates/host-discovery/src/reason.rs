//! The reasons of verdicts and passes: one word each, in conditions, events, metrics and the status.

use std::time::Duration;

use controller_kit::engine::Reason as _;
use controller_kit::reasons;

/// A host was made.
pub const HOST_CREATED: &str = "HostCreated";
/// A host was made, and named by another value than its discovery asks for.
pub const HOST_NAMED_BY_FALLBACK: &str = "HostNamedByFallback";
/// An approval names no machine that could become a host.
pub const APPROVAL_UNKNOWN: &str = "ApprovalUnknown";
/// A discovery cannot be decoded.
pub const UNDECODABLE: &str = "Undecodable";

reasons! {
    /// Why a verdict was reached about a machine. Events say what to do, where the reason does not say it itself.
    pub enum Reason {
        Known: Kind::Rests, "It is a host already.";
        KnownTwice: Kind::Waits, "Two hosts claim to be this machine.", "pause the wrong one of these hosts (annotation baremetalhost.metal3.io/paused), delete it, then remove its finalizer: deleting it unpaused may remove the node of the right one from Ironic";
        Registered: Kind::Rests, "Somebody registered it in Ironic: it has a name, or is further than discovery takes it.";
        AwaitsInventory: Kind::Waits, "Its inventory is not there yet.";
        AwaitsPorts: Kind::Waits, "Its ports are not there yet.";
        InspectionFailed: Kind::Waits, "Ironic could not inspect it.";
        NoInventory: Kind::Waits, "Its inventory did not come.";
        InventoryTooLarge: Kind::Waits, "Its inventory is too large to be read.", "the inventory has more than a mebibyte, or more interfaces than are looked at";
        InventoryUnreadable: Kind::Waits, "Its inventory cannot be read.";
        IronicFails: Kind::Waits, "Ironic fails whenever it is asked about it.";
        NoUsablePort: Kind::Waits, "Its ports did not come, or have addresses that identify nobody.";
        NotSelected: Kind::Rests, "No resource takes it.";
        NotDiscovered: Kind::Rests, "Nothing says that Ironic discovered it by itself, and no resource takes others.";
        Suspended: Kind::Waits, "Its resource makes no hosts for now.", "no host is made as long as the discovery is suspended";
        TemplateInvalid: Kind::Waits, "Its resource makes no legal names.";
        HostDeleted: Kind::Waits, "A person deleted its host.", "its host was deleted; name the node in the annotation ferrite.metal3.io/approve for another one, or set spec.rediscover";
        InterfaceOfAnotherHost: Kind::Waits, "A host has one of its interfaces, and both boot by addresses of their own, or have a node each in Ironic.", "these hosts boot by other interfaces; if it is another machine, name the node in the annotation ferrite.metal3.io/approve";
        BmcOfAnotherHost: Kind::Waits, "A host of another machine has the same management controller.", "if that is right, name the node in the annotation ferrite.metal3.io/approve";
        AfterAnother: Kind::Rests, "A machine before it has its name or one of its addresses, and is a host first.";
        NoName: Kind::Waits, "Nothing that it says can name it.";
        NameConflict: Kind::Waits, "Other machines have both names that it could get.", "these hosts have the names that it could get";
        AwaitsApproval: Kind::Waits, "A person has to approve it.", "name the node in the annotation ferrite.metal3.io/approve of this discovery";
        HostRefused: Kind::Waits, "The API server does not want its host.";
        HostFailed: Kind::Waits, "The API server could not make its host, or Ironic not say whether it is still there.";
        MaxHosts: Kind::Waits, "Its resource has made as many hosts as it may.", "raise spec.maxHosts, or delete hosts that it made";
        DryRun: Kind::Waits, "Its resource only tells what it would do.", "no host is made as long as spec.dryRun is set";
        RateLimited: Kind::Waits, "Too many hosts were made lately.";
        Created: Kind::Rests, "Its host is made.";
    }
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

reasons! {
    /// How a pass of the engine ended.
    pub enum Pass {
        AllDecided: Kind::Rests, "It was decided about all machines.";
        IronicAway: Kind::Waits, "Ironic does not answer, or not to this controller, so no hosts are made.", "Look at the condition IronicReachable of any discovery.";
        DiscoveryTold: Kind::Rests, "The status of a discovery says what was decided.";
        DiscoveryChanged: Kind::EndsWithin(Duration::from_secs(60)), "A discovery changed, and nothing is decided by its new spec yet.";
        ApprovalsSettled: Kind::Rests, "Approvals were taken off a discovery: their machines are hosts, or cannot be.";
        MachineRead: Kind::Rests, "Ironic said what a machine is.";
        MachineUnread: Kind::Rests, "Ironic did not say what a machine is; the status of its discovery tells if that lasts.";
        IronicBusy: Kind::EndsWithin(Duration::from_secs(1800)), "Ironic does not take what is to be written to a node yet, or does not answer.", "Look at the node in Ironic: somebody works with it, or has locked it.";
        Marked: Kind::Rests, "It is written down in Ironic that a node had a host.";
        MarkRefused: Kind::Waits, "Ironic does not take the mark of a node that had a host.", "Read the event of this reason on the host: it says what Ironic answers.";
        DriverAdopted: Kind::Rests, "The node of a host has the driver of the host's BMC.";
        DriverUnasked: Kind::Rests, "The host does not ask for a driver any more.";
        DriverAdoptionWaits: Kind::Waits, "The driver of a host's BMC waits for the host's node to be at rest.", "Nothing, unless the node is to be free: it gets its driver then.";
        DriverDiffers: Kind::Waits, "The node of a host has another driver, or other interfaces, than the host's BMC asks for.", "Read the event of this reason on the host, and correct the node in Ironic, or run with --adopt-driver.";
        DriverNotEnabled: Kind::Waits, "Ironic has no driver for a host's BMC.", "Enable the driver that the event names in Ironic.";
        DriverRefused: Kind::Waits, "Ironic does not take the driver of a host's BMC.", "Read the event of this reason on the host: it says what Ironic answers.";
    }
}

/// The word of what a list says of a machine: a text may follow it.
pub(crate) fn word(told: &str) -> &str {
    told.split(':').next().unwrap_or_default()
}

/// What to do about a machine of which a list tells this.
pub fn advice(told: &str) -> Option<&'static str> {
    let of_word = |it: &&Reason| it.as_str() == word(told);
    let reason = Reason::ALL.iter().find(of_word)?;
    Some(reason.about().action).filter(|action| !action.is_empty())
}
