//! A decision while it is being made. It starts with what every pass brings up to date and leaves out what is already so.

use std::collections::BTreeMap;

use api_types::metal3::ErrorType;
use k8s_openapi::jiff::Timestamp;

use crate::case::Case;
use crate::decision::{Again, Call, Change, Decision, Note};
use crate::reason::Reason;
use crate::record::{Managed, Record, Soft};
use crate::requests::{named, told_apart};
use crate::seen::{Host, Trouble};

pub(crate) struct Draft<'a> {
    host: &'a Host,
    record: Option<Record>,
    now: Timestamp,
    annotations: BTreeMap<String, Option<String>>,
    status: Change,
    call: Option<Call>,
    notes: Vec<Note>,
    rebooting: bool,
    /// That the power was cut in this cycle, or is to be.
    hard: bool,
    /// Whether Ironic has not looked at the machine since the maintenance of its node began.
    not_seen: bool,
    /// The soft attempt that is behind the host.
    soft: Option<Soft>,
}

impl<'a> Draft<'a> {
    /// A draft that knows nothing of the node.
    pub(crate) fn unseen(case: &Case<'a>) -> Self {
        Self {
            host: case.host,
            record: case.record.clone(),
            now: case.now,
            annotations: BTreeMap::new(),
            status: Change::default(),
            call: None,
            notes: Vec::new(),
            rebooting: case.in_cycle(),
            hard: case.was_hard(),
            not_seen: case.is_not_seen(),
            soft: case.soft(),
        }
    }

    /// A draft that brings up to date what the node shows.
    pub(crate) fn new(case: &Case<'a>) -> Self {
        let mut draft = Self::unseen(case);
        let seen = if case.is_off() {
            Some(false)
        } else if case.is_on() {
            Some(true)
        } else {
            None
        };
        draft.status.powered_on = seen.filter(|on| *on != case.host.powered_on);
        if draft.status.powered_on == Some(true) && case.held_since().is_some() && case.is_held() {
            let held = named(case.holds());
            let text = format!(
                "The host was found switched on although it is held off by {held}: it is switched off again"
            );
            draft.note(true, Reason::PoweredOn, told_apart(case.holds()), &text);
        }
        if case.online_only() {
            draft.managed(true, Reason::OnlineOnly, "spec.online is maintained");
        } else {
            draft.managed(true, Reason::Managed, "spec.online and reboot requests are carried out");
        }
        for (key, value) in case.host.requests.odd() {
            draft.notes.push(Note {
                warning: true,
                reason: Reason::InvalidRequest,
                about: key.to_owned(),
                text: format!(
                    "The value of {key} is not understood and counts as soft: write {{\"mode\": \"soft\"}} or {{\"mode\": \"hard\"}}"
                ),
                once: Some(value),
            });
        }
        draft
    }

    /// A decision that changes nothing.
    pub(crate) fn untouched(case: &Case<'a>, reason: Reason, again: Again) -> Decision {
        Self::unseen(case).finish(reason, again)
    }

    /// Whether the host's power is ours. When it is not, nothing that was found out about power is written either.
    pub(crate) fn managed(&mut self, managed: bool, reason: Reason, message: &str) {
        let managed = Managed { managed, reason, message: message.to_owned() };
        if !managed.managed {
            self.status.powered_on = None;
            self.notes.clear();
        }
        let known = self.host.managed();
        let repeated = known.as_ref().is_some_and(|known| known.reason == managed.reason);
        // Host and node names may change in the text without news for anybody.
        if !managed.managed && !repeated && is_for_people(managed.reason) {
            self.warn(managed.reason, message);
        }
        self.status.managed = (known.as_ref() != Some(&managed)).then_some(managed);
    }

    /// Sets or removes an annotation.
    pub(crate) fn annotate(&mut self, key: &str, value: Option<&str>) {
        self.annotations.insert(key.to_owned(), value.map(str::to_owned));
    }

    /// A request is accepted; a new cycle begins without the failures of an older one.
    pub(crate) fn accept(&mut self, pending: Timestamp, keys: &[&str]) {
        self.status.pending = Some(pending);
        self.rebooting = true;
        self.record = None;
        self.hard = false;
        self.soft = None;
        self.no_trouble();
        let text = format!("A reboot was asked for by {}", named(keys.iter().copied()));
        self.tell_about(Reason::RequestAccepted, keys.iter().copied(), &text);
    }

    /// The host is about to be switched on.
    pub(crate) fn stamp_on(&mut self, last: Timestamp) {
        self.status.last = Some(last);
    }

    /// Both stamps go.
    pub(crate) fn clear_stamps(&mut self, stamped: bool) {
        self.status.clear_stamps = stamped;
    }

    /// Off is not certain any more.
    pub(crate) fn withdraw_off(&mut self) {
        self.status.powered_on = Some(true);
    }

    /// What to ask of Ironic.
    pub(crate) fn call(&mut self, call: Call) {
        self.call = Some(call);
    }

    /// How far it has come. As long as that stays the same, so does its time; a new message alone is written too.
    pub(crate) fn record(&mut self, rebooting: bool, reason: Reason, hard: bool, message: &str) {
        self.exact_record(rebooting, reason, hard, Record::telling(hard, message));
    }

    /// The soft attempt that is behind the host.
    pub(crate) fn attempted(&mut self, soft: Option<Soft>) {
        self.soft = soft;
    }

    /// A soft attempt that is begun afresh has its whole time.
    pub(crate) fn begun_afresh(&mut self) {
        self.record = self.record.take().filter(|it| it.reason != Reason::SoftPowerOff);
    }

    /// The power is to be cut, although nobody has asked for that.
    pub(crate) fn cutting(&mut self, hard: bool) {
        self.hard |= hard;
    }

    /// A step between Ironic and us, worded so that it is remembered whether the power is to be cut, whether Ironic has
    /// looked at the machine, and what was tried softly until then.
    pub(crate) fn phase(&mut self, reason: Reason, hard: bool, message: &str) {
        let mut message = Record::wording(hard, message);
        if self.not_seen {
            message = Record::not_seen(&message);
        }
        if let Some(soft) = self.soft.filter(|_| !hard) {
            message = Record::softly(&message, soft);
        }
        self.exact_record(self.rebooting, reason, hard, message);
    }

    pub(crate) fn exact_record(
        &mut self,
        rebooting: bool,
        reason: Reason,
        hard: bool,
        message: String,
    ) {
        let known = self.record.as_ref();
        let same = known.filter(|known| known.reason == reason);
        let held = known.filter(|_| reason == Reason::HeldOff).and_then(Record::held_since);
        let since = same.map(|known| known.since).or(held).unwrap_or(self.now);
        let news = same.is_none();
        let record = Record { rebooting, reason, since, hard, message };
        if news && reason == Reason::HeldOff {
            let holds = || self.host.requests.holds();
            // All keys may be too much for an event.
            let text = Record::telling(hard, &format!("Held off by {}", named(holds())));
            let about = told_apart(holds());
            self.note(false, reason, about, &text);
        } else if news && reason == Reason::Offline {
            self.tell(reason, &record.message);
        }
        self.status.record = (self.record.as_ref() != Some(&record)).then_some(record);
    }

    /// It cannot go on for now. Why is written once: the wording of a network's failures changes with every try.
    /// Says whether that is new.
    pub(crate) fn waiting(&mut self, reason: Reason, why: &str) -> bool {
        let known = self.record.as_ref();
        let repeated = known.is_some_and(|known| known.reason == reason);
        if !repeated {
            self.rebooting |= known.is_some_and(|known| known.rebooting);
            self.phase(reason, self.hard, &format!("waits: {why}"));
        }
        !repeated
    }

    /// Ironic did not take a call. `clean`: the node showed no failure before it, so what was written ahead of the call
    /// tells of no other one. What is written ahead of a power-on always does. Says whether that it waits is new.
    pub(crate) fn not_taken(&mut self, call: Call, clean: bool, reason: Reason, why: &str) -> bool {
        let ahead = match call {
            Call::SoftOff(_) if clean => Some(Reason::SoftPowerOff),
            Call::HardOff if clean => Some(Reason::HardPowerOff),
            Call::On => Some(Reason::PoweringOn),
            Call::Reset | Call::SoftReset(_) => Some(Reason::Restarting),
            _ => None,
        };
        let waits = self.record.as_ref().is_none_or(|known| {
            use Reason::{IronicUnreachable, NodeBusy, PoweredOff, RequestAccepted};
            Some(known.reason) == ahead
                || matches!(
                    known.reason,
                    RequestAccepted | NodeBusy | IronicUnreachable | PoweredOff
                )
        });
        // A reset is written down ahead of every try.
        let again = self.record.as_ref().is_some_and(Record::resets_again);
        waits && self.waiting(reason, why) && !again
    }

    /// Ironic is at work on the node and would not take a call.
    pub(crate) fn engaged(&mut self, why: &str) {
        if self.waiting(Reason::NodeBusy, why) {
            self.tell_busy(why);
        }
    }

    /// An event that Ironic is busy with the node.
    pub(crate) fn tell_busy(&mut self, why: &str) {
        self.tell(Reason::NodeBusy, &format!("Ironic does not change the power now: {why}"));
    }

    /// Ironic could not change the power. Gives how often in a row that was.
    pub(crate) fn failed(&mut self, off: bool, problem: &str) -> i64 {
        let known = &self.host.trouble;
        let ours = !known.is_anothers();
        // Whoever writes statuses may have written any number.
        let next = known.count.max(0).saturating_add(1);
        let count = if known.kind.is_some() && ours { next } else { 1 };
        if ours {
            let kind = Some(ErrorType::PowerManagement);
            self.status.trouble = Some(Some(Trouble { kind, count, message: problem.to_owned() }));
        }
        let repeated =
            self.record.as_ref().is_some_and(|known| known.reason == Reason::PowerFailed);
        // A failure that is repeated is a new one: its time starts anew.
        self.record = None;
        self.phase(Reason::PowerFailed, off, &format!("failed: {problem}"));
        if !repeated && count == 1 {
            self.warn(Reason::PowerFailed, problem);
        }
        count
    }

    /// What is written down of a reset also tells for which holds it was, of those that are there.
    pub(crate) fn answering(&mut self, holds: &[&str]) {
        if let Some(record) = &mut self.status.record {
            record.message = record.answering(holds);
        }
    }

    /// The power is as it should be, so a failure of ours is over. Failures of others are theirs.
    pub(crate) fn no_trouble(&mut self) {
        if self.host.trouble.kind == Some(ErrorType::PowerManagement) {
            self.status.trouble = Some(None);
        }
    }

    /// A soft attempt did not work.
    pub(crate) fn escalated(&mut self, problem: Option<&str>) {
        let problem = problem.unwrap_or("it did not stop in time");
        self.warn(
            Reason::SoftPowerOffFailed,
            &format!("A soft power-off did not work, so the power is cut: {problem}"),
        );
    }

    /// Whether everybody can see in the status that the host is off.
    pub(crate) fn shows_off(&self) -> bool {
        self.status.powered_on.is_none() && !self.host.powered_on
    }

    /// An event that something goes as it should.
    pub(crate) fn tell(&mut self, reason: Reason, text: &str) {
        self.note(false, reason, String::new(), text);
    }

    /// The same about requests: an event about others is another one.
    pub(crate) fn tell_about<'k>(
        &mut self,
        reason: Reason,
        keys: impl Iterator<Item = &'k str>,
        text: &str,
    ) {
        self.note(false, reason, told_apart(keys), text);
    }

    /// An event that a person should look at.
    pub(crate) fn warn(&mut self, reason: Reason, text: &str) {
        self.note(true, reason, String::new(), text);
    }

    /// An event; it is another one than an earlier one if what it is `about` is.
    pub(crate) fn note(&mut self, warning: bool, reason: Reason, about: String, text: &str) {
        self.notes.push(Note { warning, reason, about, text: text.to_owned(), once: None });
    }

    /// The decision. That the power was found to have changed is told, where nothing else tells more.
    pub(crate) fn finish(mut self, reason: Reason, again: Again) -> Decision {
        if let Some(on) = self.status.powered_on
            && self.notes.iter().all(|note| note.once.is_some())
        {
            let (word, text) = if on {
                (Reason::PoweredOn, "The host is on")
            } else {
                (Reason::PoweredOff, "The host is off")
            };
            self.tell(word, text);
        }
        let Self { annotations, status, call, notes, .. } = self;
        Decision { reason, annotations, status, call, notes, again }
    }
}

/// Most hosts that are not ours are so by somebody's wish; these are not.
fn is_for_people(reason: Reason) -> bool {
    matches!(reason, Reason::NodeNotFound | Reason::NodeShared)
}
