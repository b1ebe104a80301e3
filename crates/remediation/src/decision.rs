//! What a pass is to do, as plain data that can be compared.

use std::time::Duration;

use controller_kit::engine::{Event, Next, Reason as _};

use crate::history::History;
use crate::reason::Reason;
use crate::request::{Backup, Standing};
use crate::seen::Host;

/// What to do, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Why.
    pub reason: Reason,
    /// In this order; the first that fails ends the pass. What cannot be said on the request only keeps the finalizer there.
    pub acts: Vec<Act>,
    /// What to tell people, once the rest is done.
    pub notes: Vec<Note>,
    /// When to look again without being told.
    pub again: Option<Duration>,
    /// Nothing can be said before the node was looked at.
    pub needs_node: bool,
}

/// One write. Each insists on the version of the object that was read, or that the act before it left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// On the request: from now on something may have to be undone.
    AddFinalizer,
    /// On the request: how far it is.
    Say(Standing),
    /// On a host.
    Host(HostWrite),
    /// On the node: it is out of service, and we said so.
    Taint,
    /// On the node: our taint goes.
    Untaint,
    /// On the request: what the node had, before it is deleted. Once, and never overwritten.
    BackUp(Backup),
    /// The node goes.
    DeleteNode,
    /// On the node: what the one before had, where it says nothing else itself.
    Restore(Backup),
    /// On the Machine: its owner is to replace it, in both formats.
    TellOwner(String),
    /// On the Machine: the external remediation has done its part.
    Settled,
    /// On the Machine: the external remediation is under way, and what was complained of is corrected.
    Await,
    /// On the Machine: the external remediation waits, and why.
    Complain(Reason, String),
    /// The Machine goes; nobody owns it who would replace it.
    DeleteMachine,
    /// On the request: nothing is left to undo. The backup goes with it.
    RemoveFinalizer,
}

/// A write to a host. What is empty stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostWrite {
    /// The host that the machine had before, not the one that it has.
    pub stray: bool,
    /// Our key is set, as the record of the try under way says, or goes.
    pub key: Option<bool>,
    /// It is marked as unhealthy. Only we do that here, and nobody's mark is ever removed.
    pub mark: bool,
    /// It is to be off.
    pub offline: bool,
    /// Its last tries.
    pub history: Option<History>,
}

impl HostWrite {
    /// Our key goes, where it is on the host.
    pub(crate) fn letting_go(host: &Host) -> Self {
        Self { key: host.held.then_some(false), ..Self::default() }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Whether a person should look at it.
    pub warning: bool,
    /// Its word.
    pub reason: Reason,
    /// Its text.
    pub text: String,
}

impl Decision {
    /// Nothing to do.
    pub fn rest(reason: Reason) -> Self {
        Self { reason, acts: Vec::new(), notes: Vec::new(), again: None, needs_node: false }
    }

    /// Nothing can be said before the node was looked at.
    pub(crate) fn look_at_node(reason: Reason) -> Self {
        Self { needs_node: true, ..Self::rest(reason) }
    }

    pub(crate) fn act(mut self, act: Act) -> Self {
        self.acts.push(act);
        self
    }

    /// All of these, and be it none.
    pub(crate) fn also(mut self, acts: impl IntoIterator<Item = Act>) -> Self {
        self.acts.extend(acts);
        self
    }

    pub(crate) fn host(self, write: HostWrite) -> Self {
        self.act(Act::Host(write))
    }

    /// Of the host only the record is written.
    pub(crate) fn record(self, history: History) -> Self {
        self.host(HostWrite { history: Some(history), ..HostWrite::default() })
    }

    pub(crate) fn note(mut self, warning: bool, reason: Reason, text: impl Into<String>) -> Self {
        self.notes.push(Note { warning, reason, text: text.into() });
        self
    }

    pub(crate) fn again(mut self, wait: Duration) -> Self {
        self.again = Some(self.again.map_or(wait, |known| known.min(wait)));
        self
    }

    /// Whether all that it is about, but for what is only read, is written in the version that was decided upon: the request
    /// before the host.
    pub fn proves_request_and_host(&self) -> bool {
        matches!(self.acts.as_slice(), [Act::AddFinalizer, Act::Host(write)] if !write.stray)
    }

    /// Whether a host is to be held off.
    pub fn sets_key(&self) -> bool {
        self.acts.iter().any(|it| matches!(it, Act::Host(write) if write.key == Some(true)))
    }

    /// Of which retry is told, where the request knew of so many.
    fn number(&self, known: u32) -> u32 {
        let said = |it: &Act| if let Act::Say(it) = it { Some(it.retries) } else { None };
        self.acts.iter().rev().find_map(said).unwrap_or(known)
    }

    /// What is written, in parts of which each is told of when it is done. Why nothing is done stands on the request before it is
    /// said on the Machine, and is told whatever becomes of that: no later pass takes it for news.
    pub fn parts(mut self) -> Vec<Self> {
        let last = self.acts.pop_if(|it| matches!(it, Act::Complain(..)));
        match last.map(|complaint| Self::rest(self.reason).act(complaint)) {
            Some(complaint) if self.acts.is_empty() => vec![Self { acts: complaint.acts, ..self }],
            Some(complaint) => vec![self, complaint],
            None if self.acts.is_empty() => Vec::new(),
            None => vec![self],
        }
    }

    /// What is told of a try, where the request knew of so many before it.
    pub fn events(&self, known: u32) -> Vec<Event> {
        let action = action(self.number(known));
        let event = |it: &Note| Event::new(it.warning, it.reason.as_str(), &action, &it.text);
        self.notes.iter().map(event).collect()
    }

    /// When to look again.
    pub fn next(&self) -> Next {
        match self.again {
            None => Next::OnChange,
            Some(Duration::ZERO) => Next::Now,
            Some(wait) => Next::After(wait),
        }
    }
}

/// What tells two events of one reason apart is the try.
pub fn action(number: u32) -> String {
    format!("Remediate{number}")
}
