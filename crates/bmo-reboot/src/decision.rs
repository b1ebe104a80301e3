//! What a pass is to do, as plain data that can be compared.

use std::collections::BTreeMap;
use std::time::Duration;

use api_types::condition::{Condition, find, put};
use api_types::metal3::{Kept, power_record};
use api_types::names::ferrite::{
    CONDITION_POWER_MANAGED, CONDITION_REBOOT_RECORD, CONDITION_REBOOTING,
};
use controller_kit::engine::{Event, Next, Reason as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::model::{Host, Trouble};
use crate::reason::Reason;
use crate::record::{Managed, RebootProgress, Record};

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
    pub progress: Option<RebootProgress>,
    /// What people are told of that: the message of the condition `Rebooting`.
    pub told: String,
    /// Whether the host was seen provisioned while it could not be served.
    pub was_provisioned: Option<bool>,
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

    /// The record after this change, where it is another one then. One that cannot be read is somebody else's.
    pub fn record(&self, host: &Host) -> Option<Record> {
        let known = match host.record() {
            Kept::Absent => Record::default(),
            Kept::Known(record) => record,
            Kept::Unreadable(_) => return None,
        };
        let stamps = if self.clear_stamps { (None, None) } else { (host.pending, host.last) };
        let stamps = (self.pending.or(stamps.0), self.last.or(stamps.1));
        let stamped = self.clear_stamps || self.pending.is_some() || self.last.is_some();
        let touched = stamped || self.progress.is_some() || self.was_provisioned.is_some();
        let was_provisioned = self.was_provisioned.unwrap_or(known.was_provisioned);
        let progress = self.progress.clone().or_else(|| known.progress.clone());
        let record = Record::new(stamps, was_provisioned, progress);
        (touched && record != known).then_some(record)
    }

    /// All conditions of the host after this change.
    pub fn conditions(&self, host: &Host, now: Timestamp) -> Vec<Condition> {
        let mut conditions = host.conditions.clone();
        let generation = host.generation;
        // A condition's time is that of its status; `Rebooting` brings its own.
        let since = |kind: &str, status: bool| {
            let known = find(&host.conditions, kind).filter(|known| known.is_true() == status);
            known.and_then(|known| known.last_transition_time.as_ref()).map_or(now, |time| time.0)
        };
        if let Some(record) = self.record(host) {
            let since = since(CONDITION_REBOOT_RECORD, true);
            put(&mut conditions, power_record::condition(&record, since, generation));
        }
        if let Some(progress) = &self.progress {
            put(&mut conditions, rebooting(progress, &self.told, generation));
        }
        if let Some(Managed { managed, reason, message }) = &self.managed {
            let since = since(CONDITION_POWER_MANAGED, *managed);
            let told = (*managed, *reason, message.as_str());
            put(&mut conditions, condition(CONDITION_POWER_MANAGED, told, since, generation));
        }
        conditions
    }
}

/// How far a reboot has come, as people are told.
pub fn rebooting(progress: &RebootProgress, told: &str, generation: i64) -> Condition {
    let said = (progress.rebooting, progress.reason, told);
    condition(CONDITION_REBOOTING, said, progress.since, generation)
}

fn condition(
    kind: &str,
    (status, reason, message): (bool, Reason, &str),
    since: Timestamp,
    generation: i64,
) -> Condition {
    Condition {
        r#type: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.as_str().to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(since)),
        observed_generation: Some(generation),
        ..Condition::default()
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
    /// Told once an hour per this number, where the fact does not go away.
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
    /// When somebody changes something.
    OnChange,
}

impl Note {
    /// As the engine tells it.
    pub fn event(&self) -> Event {
        // The action is part of what makes an event another one, and it is bounded.
        let about: String = self.about.chars().rev().take(60).collect();
        let about: String = about.chars().rev().collect();
        let action = if about.is_empty() { "Reboot" } else { &about };
        let event = Event::new(self.warning, self.reason.as_str(), action, &self.text);
        Event { hourly: self.once, ..event }
    }
}

impl Again {
    /// As the engine takes it. A node whose next step is Ironic's is looked at again at this pace.
    pub fn next(self, pace: Duration) -> Next {
        match self {
            Self::Now => Next::Now,
            Self::Watch => Next::After(pace),
            Self::After(wait) => Next::After(wait),
            Self::OnChange => Next::OnChange,
        }
    }
}

impl Decision {
    /// Whether anything is to be written, or asked of Ironic.
    pub fn acts(&self) -> bool {
        self.call.is_some() || !self.annotations.is_empty() || !self.status.is_empty()
    }

    /// Whether the host has to be looked at before something changes, and nobody looks at it already.
    pub fn needs_look(&self) -> bool {
        self.acts() || !matches!(self.again, Again::OnChange | Again::Watch)
    }

    /// Whether there is nothing to do until something changes, nor anything new to tell.
    pub fn rests(&self) -> bool {
        !self.needs_look()
            && self.again == Again::OnChange
            && self.notes.iter().all(|note| note.once.is_some())
    }

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
