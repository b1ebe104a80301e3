//! What a pass is to do, as plain data that can be compared.

use std::time::Duration;

use crate::history::History;
use crate::reason::Reason;
use crate::request::{Backup, Standing};

/// What to do, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Why.
    pub reason: Reason,
    /// In this order; the first that is superseded ends the pass.
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
#[expect(clippy::struct_excessive_bools, reason = "so many independent parts of one write")]
pub struct HostWrite {
    /// The host that the machine had before, not the one that it has.
    pub stray: bool,
    /// Our key is set, or goes.
    pub key: Option<bool>,
    /// It is the plain key that is set.
    pub plain: bool,
    /// It is marked as unhealthy. Only we do that here, and nobody's mark is ever removed.
    pub mark: bool,
    /// It is to be off.
    pub offline: bool,
    /// Its last tries.
    pub history: Option<History>,
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

    pub(crate) fn note(mut self, warning: bool, reason: Reason, text: impl Into<String>) -> Self {
        self.notes.push(Note { warning, reason, text: text.into() });
        self
    }

    pub(crate) fn again(mut self, wait: Duration) -> Self {
        self.again = Some(self.again.map_or(wait, |known| known.min(wait)));
        self
    }

    /// What is to be told although this act failed: the request says by then why nothing is done, so that no later pass takes it
    /// for news.
    pub fn notes_despite(&self, failed: &Act) -> &[Note] {
        if matches!(failed, Act::Complain(..)) { &self.notes } else { &[] }
    }

    /// Of which retry a note tells, where the request knew of so many: a warning of the one that is over, any other of the one
    /// that the request says from now on.
    pub fn number(&self, note: &Note, known: u32) -> u32 {
        let said = self.acts.iter().rev().find_map(|it| match it {
            Act::Say(standing) => Some(standing.retries),
            _ => None,
        });
        said.filter(|_| !note.warning).unwrap_or(known)
    }

    /// Whether a host is asked for the first time. Each of these writes is proven by the version that it insists on.
    pub fn is_beginning(&self) -> bool {
        let asks = |act: &Act| matches!(act, Act::Host(it) if it.key == Some(true));
        self.acts.contains(&Act::AddFinalizer) && self.acts.iter().any(asks) && self.is_asking()
    }

    /// Whether only that is left to be written which can follow the key: versions prove it as well.
    pub fn is_following(&self) -> bool {
        let on_request = |act: &Act| matches!(act, Act::AddFinalizer | Act::Say(_));
        !self.acts.is_empty() && self.acts.iter().all(on_request) && self.is_asking()
    }

    fn is_asking(&self) -> bool {
        let fits = |act: &Act| matches!(act, Act::AddFinalizer | Act::Host(_) | Act::Say(_));
        self.reason == Reason::PowerOff && self.acts.iter().all(fits)
    }
}
