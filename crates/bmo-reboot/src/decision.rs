//! What a pass is to do, as plain data that can be compared.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::reason::Reason;
use crate::record::{Managed, Record};
use crate::seen::Trouble;

/// What to do: metadata first, then status, then the call. Each write insists on the version that was read or that the
/// write before it made, and the call comes only after both were accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Why.
    pub reason: Reason,
    /// Annotations to set, or to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// What to write into the status.
    pub status: Change,
    /// What to ask of Ironic: one call at most.
    pub call: Option<Call>,
    /// What to tell people, once the rest is done.
    pub notes: Vec<Note>,
    /// When to look again.
    pub again: Again,
}

/// Changes of a host's status. What is empty stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Change {
    /// Whether the machine was seen switched on.
    pub powered_on: Option<bool>,
    /// A request is accepted.
    pub pending: Option<Timestamp>,
    /// The host is about to be switched on. Written even if it is what is there: the write is what proves that no
    /// request came in between.
    pub last: Option<Timestamp>,
    /// Both stamps go.
    pub clear_stamps: bool,
    /// How far a reboot has come.
    pub record: Option<Record>,
    /// Whether the host's power is ours.
    pub managed: Option<Managed>,
    /// A failure of Ironic to change the power, or that it is over.
    pub trouble: Option<Option<Trouble>>,
}

impl Change {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A change of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Cut the power.
    HardOff,
    /// Ask the operating system to shut down, for this long.
    SoftOff(Duration),
    /// Switch on.
    On,
    /// Reset a machine that must not be switched off.
    Reset,
    /// The same, but ask its operating system first, for this long.
    SoftReset(Duration),
}

/// What Ironic made of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is on its way.
    Accepted,
    /// Not now: the node is locked or engaged.
    Busy(String),
    /// Ironic is not there, has no worker or conductor left, or does not know us: not this host's failure.
    Unreachable(String),
    /// The driver cannot ask the operating system.
    Unsupported,
    /// No: Ironic will not do that to this machine.
    Refused(String),
    /// Nobody knows: it has to be read again before anything is repeated.
    Unknown,
    /// As many soft attempts are under way as may be. Ironic was not asked.
    NoRoom,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Whether a person should look at it.
    pub warning: bool,
    /// Its word.
    pub reason: Reason,
    /// What it is about, where several of one word can come together, or soon after one another: events that do not differ
    /// in this are folded into the first one.
    pub about: String,
    /// Its text.
    pub text: String,
    /// Told once per this number for as long as the process lives, where the fact does not go away.
    pub once: Option<u64>,
}

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Again {
    /// At once.
    Now,
    /// When Ironic has done something: a second later, or when the poll says so.
    Watch,
    /// After this long.
    After(Duration),
    /// When fewer wait for a turn to ask Ironic.
    Turn,
    /// When somebody changes something.
    OnChange,
}

impl Decision {
    /// Nothing to do.
    pub fn rest(reason: Reason) -> Self {
        Self {
            reason,
            annotations: BTreeMap::new(),
            status: Change::default(),
            call: None,
            notes: Vec::new(),
            again: Again::OnChange,
        }
    }
}
