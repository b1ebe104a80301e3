//! What one pass knows: lists of what stands in `machine`, `resource` and `index`. [`decide`](crate::decide) goes by it.

use std::collections::BTreeMap;

use crate::index::Index;
use crate::machine::Machine;
use crate::node_id::NodeId;
use crate::refusals::Refusal;
use crate::resource::Resource;

/// All that is looked at in one pass.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// Machines that are not settled, oldest first.
    pub machines: &'a [Machine],
    /// Every discovery.
    pub resources: &'a [Resource],
    /// Every host.
    pub hosts: &'a Index,
    /// Machines whose host could not be made.
    pub refused: &'a BTreeMap<NodeId, Refusal>,
    /// Whether Ironic answers. While it does not, no host is made.
    pub answers: bool,
    /// How many hosts may be made now.
    pub allowance: u32,
    /// Whether every node of Ironic that is not a host is among the machines: only then is it known
    /// that one is not there.
    pub complete: bool,
}
