//! Every sentence that a person reads in a status, an event or a condition.

use std::collections::BTreeMap;
use std::fmt;

use api_types::metal3::ListedHost;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::driver::NodeDriver;
use crate::naming::{ROOMY, Unusable, quotable};
use crate::node_id::NodeId;

/// What the driver that a node keeps means for its host.
const SIMULATED: &str =
    "this driver may only simulate power, so the host's power state cannot be trusted";

/// What is said of hosts that nothing but the machine makes one: anybody on the provisioning network can post their addresses.
pub const ONLY_ITS_WORD: &str =
    "only this machine says that these hosts are one: delete none before you have looked at it";

/// The watch on hosts did not tell of all of them.
pub fn behind(seen: usize, there: usize) -> String {
    format!(
        "no hosts are made for now: the watch told of {seen} hosts of {there}. If that lasts, look at the log for why the watch on BareMetalHosts fails"
    )
}

/// The node of a new host does not get the driver of its BMC.
pub fn no_bmc_driver(node: NodeId, error: &str) -> String {
    format!("Ironic does not give the node {node} the driver of its BMC: {error}")
}

/// Ironic does not take the mark of a node that had a host.
pub fn mark_refused(node: NodeId, error: &str) -> String {
    format!(
        "It cannot be written down in Ironic that the node {node} had this host, so the host comes back if you delete it: {error}"
    )
}

/// Ironic does not take the driver of a host's BMC.
pub fn driver_refused(node: NodeId, error: &str) -> String {
    format!(
        "The node {node} keeps its driver; {SIMULATED}. Ironic refuses the driver of this host's BMC: {error}"
    )
}

/// The driver waits for the node to be at rest.
pub fn driver_waits(node: NodeId, driver: &str, state: &str) -> String {
    format!("The node {node} keeps the driver {driver} while it is {state}; {SIMULATED}")
}

/// Ironic has no driver for a host's BMC.
pub fn no_driver(node: NodeId, driver: &str, wanted: &[NodeDriver]) -> String {
    let kinds = wanted.iter().map(|it| it.driver).collect::<Vec<_>>().join(" or ");
    let kinds = if kinds.is_empty() { "unknown kind of address".to_owned() } else { kinds };
    format!(
        "The node {node} keeps the driver {driver}; {SIMULATED}. No driver for this BMC address is enabled in Ironic ({kinds})"
    )
}

/// A node has the driver of its host's BMC.
pub fn driver_adopted(node: NodeId, chosen: NodeDriver, before: &str) -> String {
    let chosen = with_interfaces(chosen.driver, chosen.interfaces());
    format!("The node {node} has the driver {chosen} now, instead of {before}")
}

/// A node has another driver, or other interfaces, than its host's BMC asks for, and is not given those.
pub fn driver_differs(
    node: NodeId,
    driver: &str,
    interfaces: &BTreeMap<&str, String>,
    wanted: &[NodeDriver],
) -> String {
    let shown = interfaces.iter().map(|(kind, name)| (*kind, name.as_str()));
    let (has, wanted) = (with_interfaces(driver, shown), wanted.first());
    let wanted = wanted.map(|it| with_interfaces(it.driver, it.interfaces()));
    let wanted = wanted.unwrap_or_else(|| "a driver that is not known here".to_owned());
    format!(
        "The node {node} has the driver {has}, and the address of this host's BMC asks for {wanted}. Its power may only be simulated, and it may be deployed in another way than the address says. Correct the node in Ironic, or run with --adopt-driver"
    )
}

fn with_interfaces<'a>(
    driver: &str,
    interfaces: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let all: Vec<String> = interfaces.map(|(kind, name)| format!("{kind} {name}")).collect();
    if all.is_empty() { driver.to_owned() } else { format!("{driver} ({})", all.join(", ")) }
}

/// An approval names no machine that could become a host.
pub fn unknown_approval(entry: &str) -> String {
    format!(
        "The approval of {entry} was removed: it names no machine that this discovery could make a host of (unknown to Ironic, already a host, taken by another discovery, or named in Ironic or past the state enroll, as what somebody registered is)"
    )
}

/// A discovery cannot be decoded.
pub fn undecodable(problem: &str) -> String {
    format!(
        "Until this is corrected, neither this discovery nor any younger one makes hosts: {problem}"
    )
}

/// Ironic does not say whether a machine is still there.
pub fn unconfirmed(node: NodeId, error: &str) -> String {
    format!("Ironic does not say whether the node {node} is still there: {error}")
}

/// An older discovery of which only the metadata can be read.
pub fn older_undecodable(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    format!(
        "{namespace}/{name} is older and cannot be decoded, so nobody knows which machines it takes: correct or delete it"
    )
}

/// No host is made for now.
pub const NONE_WITHOUT_IRONIC: &str = "no hosts are made while Ironic does not answer";
/// The same of one discovery.
pub const DISCOVERY_CHANGED: &str =
    "no host is made of a discovery that was changed before it is decided by what it says now";
/// An error of Ironic's that is not read.
pub const ERROR_TOO_LONG: &str = "it is too long to be read";
/// The same of hosts that get a BMC, and a node for which Ironic fails.
pub fn none_before_all_are_read(failing: Option<NodeId>) -> String {
    let failing = failing.map_or_else(String::new, |node| {
        format!(". Ironic fails for node {node}: read its log, or delete the node in Ironic")
    });
    format!(
        "no host with a BMC is made before all machines are read: another one may name the same BMC{failing}"
    )
}
/// Another machine has the name, and its host can neither be made nor ruled out.
pub fn after_doubted(node: NodeId, name: &str) -> String {
    format!("the host {name} of node {node} may exist, and the API server does not say")
}

/// A conflict on a host that is not there.
pub const CHANGED_MEANWHILE: &str =
    "something else that a new host needs, such as a quota, changed just now";

// The events of new hosts.

/// A host was made. More may be told of it after that.
pub fn made_host(name: &str, node: NodeId) -> String {
    format!("Made the host {name} of node {node}")
}

/// What could not name it, and why.
pub fn not_named_by(passed_over: &[String]) -> String {
    format!("; not named by {}", passed_over.join("; "))
}

/// Not all of its hardware has room.
pub const HARDWARE_LEFT_OUT: &str =
    "; it told more about its hardware than a host can hold, the rest is left out";

/// What comes of its disks.
pub fn erased(has_bmc: bool) -> &'static str {
    if has_bmc {
        "; the operator erases the partition tables of its disks before it is available"
    } else {
        "; once it has a BMC, the operator erases the partition tables of its disks, unless spec.automatedCleaningMode is disabled"
    }
}

/// The discovery that made it.
pub fn made_for(namespace: &str, discovery: &str) -> String {
    format!(", for the discovery {namespace}/{discovery}")
}

// The conditions.

/// `IronicReachable` before anything is known, and readiness.
pub const IRONIC_NOT_ASKED: &str = "Ironic was not asked yet";
/// `IronicReachable` is true.
pub const IRONIC_ANSWERS: &str = "Ironic answers";
/// `Ready` is false because of the other condition.
pub const SEE_IRONIC_REACHABLE: &str = "the condition IronicReachable says why";
/// The discovery is suspended.
pub const SUSPENDED: &str = "spec.suspend is true: no hosts are made";
/// The discovery only tells.
pub const DRY_RUN: &str =
    "spec.dryRun is true: no host is made; those that would be are listed in status.pending";
/// All is well.
pub const DISCOVERING: &str = "machines that Ironic discovers become hosts";
/// The same where a person has to agree.
pub const DISCOVERING_APPROVED: &str = "machines that Ironic discovers become hosts when the annotation ferrite.metal3.io/approve names their nodeID";

/// What comes of the disks of new hosts that get a BMC.
pub const ERASES: &str = "the operator erases the partition tables of new hosts: set spec.hostDefaults.automatedCleaningMode to disabled to keep them";

/// The rest of what a discovery says counts.
pub fn left_out_of_spec(mistakes: &str) -> String {
    format!("what is wrong is left out: {mistakes}")
}

/// The API server refuses hosts.
pub fn hosts_refused(count: usize, first: &str) -> String {
    format!("the API server refuses {}, the first: {first}", hosts(count))
}

/// Hosts could not be made.
pub fn hosts_failed(count: usize, one: &str) -> String {
    format!("{} could not be made, which is tried again; of one it is said: {one}", hosts(count))
}

fn hosts(count: usize) -> String {
    if count == 1 { "1 host".to_owned() } else { format!("{count} hosts") }
}

/// Machines find no place. The number does not change with every machine of a flood.
pub fn too_many_machines(count: usize) -> String {
    let rounded = match count {
        0..=99 => "some",
        100..=999 => "more than a hundred",
        _ => "more than a thousand",
    };
    format!(
        "{rounded} machines in Ironic are not looked at, because too many wait before them: approve or select them, raise maxHosts, or delete their nodes in Ironic"
    )
}

/// A discovery has all the hosts that it may have.
pub fn max_hosts_reached(most: i32) -> String {
    format!("as many hosts are made as spec.maxHosts allows, {most}: raise it for more")
}

/// What is to be said of machines that do not become hosts, by their numbers.
pub fn others(
    [conflicting, failed, pending, unselected, undiscovered, registered]: [u32; 6],
) -> impl Iterator<Item = String> {
    let (are, cannot) = (["is", "are"], ["cannot become a host", "cannot become hosts"]);
    let all = [
        (conflicting, are, " held back because of other hosts, see status.conflicts"),
        (failed, cannot, ", see status.failures"),
        (pending, are, " waiting, see status.pending"),
        (unselected, are, " selected by no discovery"),
        (undiscovered, are, " left alone, without a name and not known to be discovered by Ironic"),
        (registered, are, " left alone without a host, named in Ironic or past the state enroll"),
    ];
    let told = all.into_iter().filter(|(count, ..)| *count > 0);
    told.map(|(count, [one, many], what)| match count {
        1 => format!("1 machine {one}{what}"),
        count => format!("{count} machines {many}{what}"),
    })
}

/// A machine is listed for a new reason.
pub fn listed(entry: &ListedHost, to_do: Option<&str>) -> String {
    let name = entry.proposed_name.as_deref().unwrap_or("no name");
    let macs = entry.macs.iter().take(2).map(String::as_str);
    let who = std::iter::once(name).chain(macs).collect::<Vec<_>>().join(", ");
    let reason = entry.reason.as_deref().unwrap_or_default();
    let to_do = to_do.map_or_else(String::new, |it| format!(": {it}"));
    format!("Node {} ({who}): {reason}{to_do}", entry.node_id)
}

// What is wrong with a discovery.

/// What a field says cannot be.
pub fn wrong(field: &str, given: &str, what: &str) -> String {
    format!("{field}: \"{}\" {what}", quotable(given))
}

/// Of the beginning of an address in a selector.
pub const NO_MAC_PREFIX: &str = "is not one to six bytes such as 52:54:00";
/// The same of one that no interface has.
pub const MAC_PREFIX_OF_GROUPS: &str =
    "begins no address of an interface: the first byte is odd only in addresses of groups";
/// Of a network.
pub const NO_SUBNET: &str = "is no network such as 192.0.2.0/24 or 2001:db8::/32";
/// Of the template of a BMC's address.
pub const NO_BMC_TEMPLATE: &str =
    "makes no address such as redfish-virtualmedia+https://{bmcAddress}/redfish/v1/Systems/1";

/// Another node names the same BMC.
pub fn bmc_of_node(other: NodeId) -> String {
    format!("node {other} names the same BMC")
}

/// Of prefix and suffix.
pub const NO_NAME_TEMPLATE: &str = "makes no name: prefix and suffix have lower-case letters, digits and '-' alone, no '-' where the name begins or ends, and at most 62 characters together";

/// The key of a label.
pub fn label_key(field: &str, key: &str) -> String {
    format!(
        "{field}: \"{}\": the key of a label has at most 63 letters, digits, '-', '_' or '.', begins and ends with a letter or digit, and may follow a domain name in lower case and '/'",
        quotable(key)
    )
}

/// The value of a label.
pub fn label_value(field: &str, key: &str, value: &str) -> String {
    format!(
        "{field}: {key}: \"{}\": the value of a label has at most 63 letters, digits, '-', '_' or '.', and begins and ends with a letter or digit",
        quotable(value)
    )
}

// Why a value names no host.

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the machine has none"),
            Self::Placeholder(text) => write!(f, "\"{text}\" is a placeholder"),
            Self::TooShort(text) => {
                write!(f, "\"{text}\" has too few characters that can stand in a name")
            }
            Self::HostnameIsAddress(text) => write!(f, "\"{text}\" is an address, not a name"),
            Self::NotGlobal(ip) => write!(f, "other machines can have the address {ip} as well"),
            Self::Uuid(text) => write!(
                f,
                "\"{text}\" is taken for a UUID, which is not accepted as the name of a host: give another prefix or suffix"
            ),
            Self::NoRoom => write!(
                f,
                "prefix and suffix leave no room for the value: shorten them to {ROOMY} characters together"
            ),
        }
    }
}
