//! Sentences for people. Nothing reads them.

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

/// Ironic does not give the inventory of a machine whose host is to be made.
pub fn undescribed(node: NodeId, error: &str) -> String {
    format!("Ironic does not give the inventory of the node {node} once more: {error}")
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
pub fn no_driver(node: NodeId, driver: &str, wanted: &[&str]) -> String {
    let kinds =
        if wanted.is_empty() { "unknown kind of address".to_owned() } else { wanted.join(" or ") };
    format!(
        "The node {node} keeps the driver {driver}; {SIMULATED}. No driver for this BMC address is enabled in Ironic ({kinds})"
    )
}

/// A node has the driver of its host's BMC.
pub fn driver_adopted(node: NodeId, chosen: &str, before: &str) -> String {
    format!("The node {node} has the driver {chosen} now, instead of {before}")
}

/// An approval names no machine that could become a host.
pub fn unknown_approval(entry: &str) -> String {
    format!(
        "The approval of {entry} was removed: it names no machine that this discovery could make a host of (unknown to Ironic, already a host, or taken by another discovery)"
    )
}

/// A discovery cannot be decoded.
pub fn undecodable(problem: &str) -> String {
    format!(
        "Until this is corrected, neither this discovery nor any younger one makes hosts: {problem}"
    )
}
