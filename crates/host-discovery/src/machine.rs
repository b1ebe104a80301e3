//! A machine that Ironic shows and that may become a host.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use ironic::Class;

use crate::inventory::{Facts, Port};
use crate::node_id::NodeId;

/// One node, as far as it decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Its identifier.
    pub node: NodeId,
    /// Its name: whoever gave it one registered the machine.
    pub name: Option<String>,
    /// Whether it is in the state in which discovered nodes are.
    pub enrolled: bool,
    /// What went wrong last, in few words.
    pub last_error: Option<String>,
    /// How Ironic failed, and its words, where it did so again and again when it was asked about it.
    pub unanswered: Option<(Class, String)>,
    /// For how long it is known here, by no clock that somebody could set: one that was set ahead would end the looks at a
    /// machine that has just come.
    pub known_for: Duration,
    /// Ports whose address identifies.
    pub ports: Vec<Port>,
    /// What it said about itself.
    pub inventory: Reading,
    /// Whether a host was made for this very node before.
    pub had_host: bool,
}

impl Machine {
    /// A discovered node of which nothing was read yet.
    pub fn unread(node: NodeId) -> Self {
        Self { node, enrolled: true, ..Self::default() }
    }

    /// Whether it says all that a host is made of.
    pub fn is_whole(&self) -> bool {
        self.inventory.facts().is_some() && !self.ports.is_empty()
    }
}

/// What came of asking for an inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reading {
    /// Ironic has not said: it was not asked yet, is being asked, or did not answer.
    #[default]
    Unread,
    /// There is none, perhaps not yet.
    None,
    /// It is larger than anybody is willing to read. Addresses of its management controller, where so much was read.
    TooLarge(Vec<IpAddr>),
    /// The facts.
    Facts(Box<Facts>),
}

impl Reading {
    /// The facts, if there are any.
    pub fn facts(&self) -> Option<&Facts> {
        match self {
            Self::Facts(facts) => Some(facts),
            Self::Unread | Self::None | Self::TooLarge(_) => None,
        }
    }

    /// Addresses of its management controller. No other machine gets one of these, though nothing is made of this one.
    pub fn bmc(&self) -> &[IpAddr] {
        match self {
            Self::Facts(facts) => &facts.bmc,
            Self::TooLarge(bmc) => bmc,
            Self::Unread | Self::None => &[],
        }
    }
}

/// What Ironic shows, whether or not something may be made of it.
pub trait Shown: Debug {
    /// Whether Ironic shows this node.
    fn shows(&self, node: NodeId) -> bool;
}
