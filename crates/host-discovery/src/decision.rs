//! What a pass is to do, as plain data that can be compared.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::index::HostKey;
use crate::mac::Mac;
use crate::machine::Machine;
use crate::naming::Named;
use crate::node_id::NodeId;
use crate::reason::Reason;
use crate::refusals::Cause;

/// What to do in one pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// One for each machine, in their order.
    pub verdicts: Vec<Verdict>,
    /// Resources whose list of approvals changes.
    pub approvals: Vec<Approvals>,
    /// When to look again without being told.
    pub again: Option<Duration>,
}

impl Decision {
    /// The host of a node could not be made.
    pub fn fail(&mut self, node: NodeId, cause: &Cause, text: &str) {
        let verdict = self.verdicts.iter_mut().find(|it| it.node == node);
        if let Some(verdict) = verdict {
            verdict.fail(cause, text);
        }
    }

    /// Whether it makes hosts.
    pub fn creates(&self) -> bool {
        self.verdicts.iter().any(|it| matches!(it.step, Some(Step::Create { .. })))
    }

    /// Makes no hosts after all, and says why of each that would be made.
    pub fn hold_back(&mut self, why: &str) {
        let creates = |it: &&mut Verdict| matches!(it.step, Some(Step::Create { .. }));
        for verdict in self.verdicts.iter_mut().filter(creates) {
            verdict.reason = Reason::HostFailed;
            verdict.note = Some(why.to_owned());
            verdict.step = None;
        }
    }
}

/// What becomes of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// The machine.
    pub node: NodeId,
    /// The resource whose machine it is, by its place in the list.
    pub resource: Option<usize>,
    /// Why.
    pub reason: Reason,
    /// The name that its host gets or would get, and how it came to it.
    pub named: Option<Named>,
    /// The name that was taken of the two: the second where another machine has the first.
    pub name: Option<String>,
    /// Hosts that it is already, or that stand in its way.
    pub hosts: Vec<HostKey>,
    /// What went wrong: as Ironic or the API server says it, or why nothing can name the machine. Of several hosts, what makes
    /// them one.
    pub note: Option<String>,
    /// The one write.
    pub step: Option<Step>,
    /// When to look at it again without being told.
    pub again: Option<Duration>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Makes the host, in the namespace of the verdict's resource. That the name is there already
    /// is an answer, not an error: the host that has it goes into the index, and the machine is
    /// decided about again.
    Create {
        /// Name of the host.
        name: String,
        /// The interface that the machine boots from.
        boot_mac: Mac,
    },
    /// Writes down, where it lasts as long as the node, that the node had a host: so that a person
    /// can delete the host.
    Remember {
        /// The host.
        host: HostKey,
    },
}

/// Approvals of one resource of which some are settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Approvals {
    /// The resource, by its place in the list.
    pub resource: usize,
    /// Those that remain.
    pub keep: BTreeSet<NodeId>,
    /// Those whose machine is a host now.
    pub done: BTreeSet<NodeId>,
    /// Those that name no machine of this resource, as they can be shown.
    pub unknown: Vec<String>,
}

impl Verdict {
    /// Why, and nothing else yet.
    pub(crate) fn new(machine: &Machine, reason: Reason) -> Self {
        Self {
            node: machine.node,
            resource: None,
            reason,
            named: None,
            name: None,
            hosts: Vec::new(),
            note: None,
            step: None,
            again: None,
        }
    }

    /// The same for another reason.
    pub(crate) fn because(self, reason: Reason) -> Self {
        Self { reason, ..self }
    }

    /// Its host could not be made.
    pub fn fail(&mut self, cause: &Cause, text: &str) {
        self.reason = match cause {
            Cause::Refused(_) => Reason::HostRefused,
            Cause::Failed(_) | Cause::Unknown => Reason::HostFailed,
        };
        self.note = Some(text.to_owned());
        self.step = None;
    }
}
