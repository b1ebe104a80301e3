//! A machine that Ironic shows and that may become a host.

use k8s_openapi::jiff::Timestamp;

use crate::inventory::{Facts, Port};
use crate::node_id::NodeId;

/// One node, as far as it decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Its identifier.
    pub node: NodeId,
    /// Its name: whoever gave it one registered the machine.
    pub name: Option<String>,
    /// Whether it is in the state in which discovered nodes are.
    pub enrolled: bool,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it was first seen here.
    pub first_seen: Timestamp,
    /// Ports whose address identifies.
    pub ports: Vec<Port>,
    /// Ports whose address does not.
    pub strange_ports: u32,
    /// What it said about itself.
    pub inventory: Reading,
    /// Whether a host was made for this very node before.
    pub had_host: bool,
}

/// What came of asking for an inventory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// There is none, perhaps not yet.
    None,
    /// It is larger than anybody is willing to read.
    TooLarge,
    /// It is no inventory.
    Unreadable,
    /// The facts.
    Facts(Box<Facts>),
}
