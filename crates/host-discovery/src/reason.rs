//! The reasons of verdicts and passes: one word each, in conditions, events, metrics and the status.

use std::time::Duration;

use controller_kit::engine::Reason as _;
use controller_kit::engine::reasons::{Location, ObjectPart};
use controller_kit::reasons;

const READY: Location =
    in_discovery(ObjectPart::Condition("Ready"), "Whether machines become hosts.");
const IRONIC: Location = in_discovery(
    ObjectPart::Condition("IronicReachable"),
    "Whether Ironic answers this controller.",
);
const PENDING: Location = in_discovery(
    ObjectPart::List("status.pending"),
    "Machines that wait for a person or for room.",
);
const FAILURES: Location =
    in_discovery(ObjectPart::List("status.failures"), "Machines that cannot become hosts.");
const CONFLICTS: Location =
    in_discovery(ObjectPart::List("status.conflicts"), "Machines that conflict with another host.");
const DISCOVERY_EVENT: Location = in_discovery(
    ObjectPart::Event,
    "A change, when it happens: also each new reason of a condition or a list.",
);
const HOST_EVENT: Location =
    Location::new("BareMetalHost", ObjectPart::Event, "A new host, or work on its node in Ironic.");
const METRIC: Location = Location::new(
    "The controller",
    ObjectPart::Metric("ferrite_host_discovery_waiting"),
    "Waits that no object shows.",
);

const fn in_discovery(part: ObjectPart, about: &'static str) -> Location {
    Location::new("BareMetalHostDiscovery", part, about)
}

reasons! {
    /// Why a verdict was reached about a machine. Events say what to do, where the reason does not say it itself.
    pub enum Reason {
        Known: Kind::Rests, "The machine is a host already.";
        KnownTwice: Kind::Waits,
            "Two hosts claim to be this machine.",
            "pause the wrong one of these hosts (annotation baremetalhost.metal3.io/paused), delete it, then remove its finalizer: deleting it unpaused may remove the node of the right one from Ironic",
            on: [CONFLICTS],
            more: "If the message says that only this machine says that they are one, delete none of them before you have looked at the machine: anybody on the provisioning network can say so.",
            see: "runbooks/FerriteHostDiscoveryMachinesFail.md#removing-one-of-two-hosts";
        Registered: Kind::Rests, "A person registered the machine in Ironic: it has a name, or is further than discovery takes it.";
        AwaitsInventory: Kind::Waits, "The inventory of the machine does not exist yet.";
        AwaitsPorts: Kind::Waits, "The ports of the machine do not exist yet.";
        InspectionFailed: Kind::Waits,
            "Ironic could not inspect the machine.",
            on: [FAILURES],
            more: "Correct the cause in the message, delete the node in Ironic and boot the machine again.",
            see: "runbooks/FerriteHostDiscoveryMachinesFail.md";
        NoInventory: Kind::Waits,
            "For ten minutes Ironic has shown neither an inventory nor an error.",
            on: [FAILURES],
            more: "Correct the cause, delete the node in Ironic and boot the machine again.",
            see: "runbooks/FerriteHostDiscoveryMachinesFail.md";
        InventoryTooLarge: Kind::Waits,
            "The inventory is too large to be read.",
            "see what sends an inventory of more than a mebibyte, or of more interfaces than are looked at",
            on: [FAILURES], see: "runbooks/FerriteHostDiscoveryMachinesFail.md";
        InventoryUnreadable: Kind::Waits,
            "The controller cannot read what Ironic answers about the inventory, the ports or the node.",
            on: [FAILURES],
            more: "Look at the machine: hardly a real one sends such an inventory. Check what answers in Ironic's place, such as a proxy. The controller retries every five minutes. Until it can read the answer, no discovery makes hosts with a BMC: this machine may name the same one.",
            see: "runbooks/FerriteHostDiscoveryMachinesFail.md";
        IronicFails: Kind::Waits,
            "Ironic fails each time the controller asks for the inventory, the ports or the node.",
            on: [FAILURES],
            more: "Read Ironic's log, and check the store of its inventories. The controller retries every five minutes. Until Ironic answers, no discovery makes hosts with a BMC: this machine may name the same one.",
            see: "runbooks/FerriteHostDiscoveryMachinesFail.md";
        NoUsablePort: Kind::Waits,
            "For ten minutes Ironic has shown no port with an address that identifies the machine.",
            on: [FAILURES],
            more: "Correct the cause, delete the node in Ironic and boot the machine again.",
            see: "runbooks/FerriteHostDiscoveryMachinesFail.md";
        NotSelected: Kind::Rests, "No discovery selects the machine.";
        NotDiscovered: Kind::Rests, "No mark shows that Ironic discovered the machine, and no discovery takes others.";
        Suspended: Kind::Waits,
            "The discovery is suspended.",
            "set spec.suspend to false to have hosts made",
            on: [READY, PENDING];
        TemplateInvalid: Kind::Waits,
            "The discovery's template makes no valid names: its prefix, suffix or another field is wrong.",
            on: [READY, FAILURES],
            more: "Correct the field that the message names.";
        HostDeleted: Kind::Waits,
            "A person deleted the host of the machine.",
            "its host was deleted; name the node in the annotation ferrite.metal3.io/approve for another one, or set spec.rediscover",
            on: [PENDING];
        InterfaceOfAnotherHost: Kind::Waits,
            "A host has one of the machine's interfaces, and both boot by addresses of their own, or have a node each in Ironic.",
            "these hosts boot by other interfaces; if it is another machine, name the node in the annotation ferrite.metal3.io/approve",
            on: [CONFLICTS],
            more: "Most often it is another machine. The reason is the same if the machine boots from an interface that a host with another node in Ironic claims.",
            see: "controllers/host-discovery.md#another-machine-in-the-place-of-a-broken-one";
        BmcOfAnotherHost: Kind::Waits,
            "A host has the same BMC, and no fact shows whether it is this machine.",
            "if it is another machine, name the node in the annotation ferrite.metal3.io/approve",
            on: [CONFLICTS], see: "controllers/host-discovery.md#another-machine-in-the-place-of-a-broken-one";
        BmcAddressMissing: Kind::Waits,
            "The discovery gives its hosts a BMC, and the machine names no address of one. Loopback and link-local addresses do not count.",
            "give the BMC of the machine an address and boot the machine again, or register the machine by hand",
            on: [PENDING], see: "controllers/host-discovery/from-power-on-to-node.md";
        BmcOutsideSubnets: Kind::Waits,
            "The machine names a BMC outside of `spec.bmc.subnets`. An approval changes nothing.",
            "compare the address with your records; if it is right, add its network to spec.bmc.subnets",
            on: [PENDING], see: "controllers/host-discovery/from-power-on-to-node.md";
        BmcAddressShared: Kind::Waits,
            "Another machine or host names or has the same BMC. None of these machines gets a host with it. An approval changes nothing.",
            "find the machine that has this BMC, and delete the node in Ironic or the host of the other",
            on: [CONFLICTS], see: "controllers/host-discovery/from-power-on-to-node.md";
        BmcAddressUncompared: Kind::Waits,
            "The discovery gives its hosts a BMC, and Ironic fails each time for another node, which may name the same BMC.",
            on: [READY, PENDING],
            more: "Read Ironic's log about the node that the message names, or delete that node in Ironic if no machine of yours has it. Until Ironic answers, no discovery makes hosts with a BMC.",
            see: "controllers/host-discovery/from-power-on-to-node.md";
        AfterAnother: Kind::Waits,
            "A machine before it has its name, and whether that one's host exists is unknown.",
            on: [PENDING],
            more: "See `HostFailed` of the node that the message names. A machine that only comes after another one is not listed.",
            see: "runbooks/FerriteHostDiscoveryHostsRefused.md";
        NoName: Kind::Waits,
            "No value of the machine fits beside prefix and suffix.",
            on: [FAILURES],
            more: "Shorten prefix and suffix to 50 characters together.";
        NameConflict: Kind::Waits,
            "Other machines have both names that the machine could get, or the only one that fits. The message names them.",
            "these hosts have the names that it could get; choose another hardwareDetails, or a prefix that leaves room",
            on: [CONFLICTS];
        AwaitsApproval: Kind::Waits,
            "The machine waits for the approval of a person.",
            "name the node in the annotation ferrite.metal3.io/approve of this discovery",
            on: [PENDING], see: "controllers/host-discovery.md#which-machines";
        HostRefused: Kind::Waits,
            "The API server or a webhook refused the host.",
            on: [FAILURES],
            more: "Allow or correct what the message names: a quota, a webhook, a missing permission. The controller retries every half minute, after all machines that did not fail. Of more than ten in one namespace that are refused in the same words, it retries ten in that time, and each at least every hour. It retries more when one of them is made, or others are gone. A machine with a new name or namespace is tried at once.",
            see: "runbooks/FerriteHostDiscoveryHostsRefused.md";
        HostFailed: Kind::Waits,
            "The API server could not make the host or did not answer. Or Ironic did not say whether the node exists, or what hardware it has. Or the node did not get the driver of its BMC.",
            on: [FAILURES],
            more: "Wait: the controller retries after a second, then at twice the interval each time, up to half a minute. It does not retry before the time that the API server names. Other machines are served meanwhile, unless it is unknown whether the host exists.",
            see: "runbooks/FerriteHostDiscoveryHostsRefused.md";
        MaxHosts: Kind::Waits,
            "The discovery has made as many hosts as it may.",
            "raise spec.maxHosts, or delete hosts that it made",
            on: [PENDING];
        DryRun: Kind::Waits,
            "The discovery only shows what it would do.",
            "set spec.dryRun to false to have hosts made",
            on: [READY, PENDING];
        RateLimited: Kind::Waits,
            "The machine waits for its turn: the rate limit of new hosts is reached.",
            on: [PENDING],
            more: "Nothing. The message says so if the turn comes only when Ironic answers again, when all machines are read, or when a watch has shown a change of the discovery, or all hosts. If the latter lasts, read in the log why that watch fails.";
        Created: Kind::Rests, "The controller makes the host of the machine.";
    }
}

/// Where a machine is counted and listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sort {
    /// Waiting for a person or for room.
    Pending,
    /// Nothing can be made of it.
    Failed,
    /// Another host stands in its way.
    Conflicting,
    /// A host, or about to be one; nobody's, or not complete yet: not listed.
    Unlisted,
}

impl Reason {
    /// Where it is counted: where a person reads it.
    pub fn sort(self) -> Sort {
        let lists =
            [(CONFLICTS, Sort::Conflicting), (FAILURES, Sort::Failed), (PENDING, Sort::Pending)];
        let is_there = |(list, _): &(Location, Sort)| self.about().places.contains(list);
        lists.into_iter().find(is_there).map_or(Sort::Unlisted, |(_, sort)| sort)
    }
}

reasons! {
    /// How a pass of the engine ended.
    pub enum Pass {
        AllDecided: Kind::Rests, "The controller has decided about all machines.";
        IronicAway: Kind::Waits,
            "Ironic does not answer, or not to this controller: it makes no hosts.",
            "Look at the condition IronicReachable of any discovery.",
            on: [METRIC];
        BmcsUncompared: Kind::EndsWithin(Duration::from_secs(600)),
            "Machines wait for their hosts, since Ironic fails for a node that may name the same BMC.",
            "Look at the condition Ready of the discoveries.",
            on: [METRIC], see: "runbooks/FerriteHostDiscoveryWorkWaits.md";
        DiscoveryTold: Kind::Rests, "The status of a discovery shows what was decided.";
        DiscoveryChanged: Kind::EndsWithin(Duration::from_secs(60)),
            "A discovery changed, and its new spec does not count yet.",
            on: [METRIC];
        ApprovalsSettled: Kind::Rests, "The controller removed approvals from a discovery: their machines are hosts, or cannot be.";
        MachineRead: Kind::Rests, "Ironic sent what a machine is.", promise: Duration::from_secs(5);
        MachineUnread: Kind::Rests, "Ironic did not send what a machine is; the status of its discovery shows it if that lasts.";
        IronicBusy: Kind::EndsWithin(Duration::from_secs(1800)),
            "Ironic does not accept a write to a node yet, or does not answer.",
            "Wait. If it lasts, see in Ironic what works on the node or has locked it.",
            on: [METRIC], see: "runbooks/FerriteHostDiscoveryWorkWaits.md";
        Marked: Kind::Rests, "The controller noted in Ironic that a node had a host.";
        MarkRefused: Kind::Waits,
            "Ironic refuses the mark of a node that had a host. Without the mark, a host that you delete comes back once the process has ended.",
            "Allow what Ironic refuses: the message has its answer.",
            on: [HOST_EVENT];
        DriverAdopted: Kind::Rests, "The node has the driver that the address of the host's BMC needs.", on: [HOST_EVENT];
        DriverUnasked: Kind::Rests, "The host does not ask for a driver any more.";
        DriverAdoptionWaits: Kind::Waits,
            "The node is in use. It gets the driver of the host's BMC afterwards.",
            on: [HOST_EVENT];
        DriverDiffers: Kind::Waits,
            "The node has another driver, or other interfaces, than the host's BMC needs. Ironic may not switch the machine, or deploy it by PXE in place of virtual media.",
            "Correct driver and interfaces of the node in Ironic as the message says, or run with `--adopt-driver`.",
            on: [HOST_EVENT];
        DriverNotEnabled: Kind::Waits,
            "Ironic has none of the drivers that the host's BMC needs.",
            "Enable one of the drivers that the message names in Ironic.",
            on: [HOST_EVENT];
        DriverRefused: Kind::Waits,
            "Ironic refuses the driver of the host's BMC.",
            "Allow what Ironic refuses: the message has its answer.",
            on: [HOST_EVENT];
    }
}

reasons! {
    /// The reasons of a discovery's conditions, and of events, that are about no machine of a list.
    pub enum Notice {
        Discovering: Kind::Rests,
            "Machines become hosts.",
            "Nothing, unless the message counts machines that should be hosts.",
            on: [READY],
            more: "The message counts the machines that wait, failed, are held back, or that no discovery selects. It counts the nodes without a name that the controller leaves alone because no mark shows that Ironic discovered them. It counts the nodes without a host that a person named in Ironic or made manageable. An inspection rule that names nodes does so to every machine. To get hosts of these, remove the name (`baremetal node unset <nodeID> --name`), or delete the node and boot the machine again.";
        MaxHostsReached: Kind::Waits,
            "The discovery has made as many hosts as it may.",
            "Raise `spec.maxHosts`, or delete hosts that it made.",
            on: [READY];
        SpecInvalid: Kind::Waits,
            "A field of the discovery is invalid. The controller makes hosts without that field.",
            "Correct the field that the message names.",
            on: [READY];
        IronicNotReachable: Kind::Waits,
            "Ironic does not answer: no host is made.",
            "See the condition IronicReachable.",
            on: [READY], see: "runbooks/FerriteHostDiscoveryIronicUnreachable.md";
        OlderUndecodable: Kind::Waits,
            "The controller cannot decode an older discovery. Until it can, no younger one makes hosts: their machines may be the older one's.",
            "Correct or delete the discovery that the message names.",
            on: [READY];
        HostsRefused: Kind::Waits,
            "The API server or a webhook refuses hosts of the discovery.",
            "Allow or correct what the message names.",
            on: [READY], see: "runbooks/FerriteHostDiscoveryHostsRefused.md";
        HostsFailed: Kind::Waits,
            "Hosts of the discovery could not be made, or the watch shows fewer hosts than exist.",
            "Wait. If it lasts, correct what the message names.",
            on: [READY], see: "runbooks/FerriteHostDiscoveryHostsRefused.md";
        TooManyMachines: Kind::Waits,
            "More machines wait than the controller remembers. It does not read the rest.",
            "Approve or select the machines, raise `spec.maxHosts`, or delete their nodes in Ironic.",
            on: [READY], see: "runbooks/FerriteHostDiscoveryFlood.md";
        Answers: Kind::Rests, "Ironic answers.", on: [IRONIC];
        NotAsked: Kind::Waits, "The controller has not asked Ironic yet.", on: [IRONIC];
        AuthFailed: Kind::Waits,
            "Ironic does not accept the credentials.",
            "Correct the credentials.",
            on: [IRONIC], see: "runbooks/FerriteHostDiscoveryIronicUnreachable.md";
        Unreachable: Kind::Waits,
            "The controller cannot connect to Ironic.",
            "Correct what the message names: the address, the network, the certificate.",
            on: [IRONIC], see: "runbooks/FerriteHostDiscoveryIronicUnreachable.md";
        Timeout: Kind::Waits,
            "Ironic takes longer to answer than the controller waits.",
            "Check the load of Ironic and of its database.",
            on: [IRONIC], see: "runbooks/FerriteHostDiscoveryIronicUnreachable.md";
        Server: Kind::Waits,
            "Ironic answers with an error of its own.",
            "Read Ironic's log.",
            on: [IRONIC],
            more: "Any other reason of this condition names an error of Ironic, too: correct what the message names.",
            see: "runbooks/FerriteHostDiscoveryIronicUnreachable.md";
        HostCreated: Kind::Rests, "The controller made the host.", on: [HOST_EVENT];
        HostNamedByFallback: Kind::Rests,
            "The controller made the host under another name: the value that hardwareDetails names could not be used. The message shows the cause.",
            on: [HOST_EVENT];
        ApprovalUnknown: Kind::Waits,
            "The approval named no machine that this discovery could make a host of. The controller removed it.",
            "Correct the approval.",
            on: [DISCOVERY_EVENT],
            more: "A machine that a person named in Ironic, or made manageable, cannot become a host.";
        Refused: Kind::EndsWithin(Duration::from_secs(600)),
            "The API server or a webhook refuses a write to the discovery.",
            "Allow what the message names: a webhook, a policy, a missing permission.",
            on: [DISCOVERY_EVENT], see: "runbooks/FerriteHostDiscoveryWorkWaits.md";
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
