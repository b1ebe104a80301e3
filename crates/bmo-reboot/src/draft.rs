//! A decision while it is being made. It starts with what every pass brings up to date and leaves out what is already so.

use std::collections::BTreeMap;

use api_types::condition::find;
use api_types::metal3::{ErrorType, KeySet};
use api_types::names::ferrite::CONDITION_REBOOTING;
use k8s_openapi::jiff::Timestamp;

use crate::case::Case;
use crate::decision::{Again, Call, Change, Decision, Note, rebooting};
use crate::model::{Host, Trouble};
use crate::reason::Reason;
use crate::record::{Managed, RebootProgress, Reset, Soft};
use crate::requests::told_apart;
use crate::text;

pub(crate) struct Draft<'a> {
    host: &'a Host,
    progress: Option<RebootProgress>,
    /// Whether the record says that the host was seen provisioned; not known where it cannot be read.
    was_provisioned: Option<bool>,
    now: Timestamp,
    annotations: BTreeMap<String, Option<String>>,
    status: Change,
    call: Option<Call>,
    notes: Vec<Note>,
    rebooting: bool,
    /// That the power was cut in this cycle, or is to be.
    hard: bool,
    /// The soft attempt that is behind the host.
    soft: Option<Soft>,
}

impl<'a> Draft<'a> {
    /// A draft that knows nothing of the node.
    pub(crate) fn unseen(case: &Case<'a>) -> Self {
        Self {
            host: case.host,
            progress: case.progress.clone(),
            was_provisioned: case.was_provisioned,
            now: case.now,
            annotations: BTreeMap::new(),
            status: Change::default(),
            call: None,
            notes: Vec::new(),
            rebooting: case.in_cycle(),
            hard: case.was_hard(),
            soft: case.soft(),
        }
    }

    /// A draft that brings up to date what the node shows.
    pub(crate) fn new(case: &Case<'a>) -> Self {
        let mut draft = Self::unseen(case);
        let seen = if case.is_off() && !case.is_out_of_sight() {
            Some(false)
        } else if case.is_on() {
            Some(true)
        } else {
            None
        };
        draft.status.powered_on = seen.filter(|on| *on != case.host.powered_on);
        if draft.status.powered_on == Some(true) && case.held_since().is_some() && case.is_held() {
            let text = text::found_on(case.holds());
            draft.note(true, Reason::PoweredOn, told_apart(case.holds()), &text);
        }
        if case.online_only() {
            draft.managed(true, Reason::OnlineOnly, text::ONLINE_ONLY);
        } else {
            draft.managed(true, Reason::Managed, &text::managed(case.host.only_record));
        }
        draft.remember_provisioned(false);
        for (key, value) in case.host.requests.odd() {
            draft.notes.push(Note {
                warning: true,
                reason: Reason::InvalidRequest,
                about: key.to_owned(),
                text: text::invalid(key),
                once: Some(value),
            });
        }
        draft
    }

    /// A decision that changes nothing.
    pub(crate) fn untouched(case: &Case<'a>, reason: Reason, again: Again) -> Decision {
        Self::unseen(case).finish(reason, again)
    }

    /// The host's power is not ours, and nothing that was found out about power is written either. `provisioned`: something
    /// is installed on it, as far as anybody knows.
    pub(crate) fn not_managed(&mut self, reason: Reason, message: &str, provisioned: bool) {
        self.status.powered_on = None;
        self.notes.clear();
        if provisioned {
            self.managed(false, reason, &text::until_deprovisioned(message));
        } else {
            self.managed(false, reason, message);
        }
        self.remember_provisioned(provisioned);
    }

    fn remember_provisioned(&mut self, provisioned: bool) {
        let known = self.was_provisioned;
        self.status.was_provisioned =
            known.is_some_and(|known| known != provisioned).then_some(provisioned);
    }

    fn managed(&mut self, managed: bool, reason: Reason, message: &str) {
        let managed = Managed { managed, reason, message: message.to_owned() };
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
        self.progress = None;
        self.hard = false;
        self.soft = None;
        self.no_trouble();
        let text = text::accepted(keys.iter().copied());
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

    /// How far it has come. As long as that stays the same, so does its time.
    pub(crate) fn step(&self, reason: Reason) -> RebootProgress {
        let known = self.progress.as_ref();
        let same = known.filter(|known| known.reason == reason);
        let held = known.filter(|_| reason == Reason::HeldOff).and_then(RebootProgress::held_since);
        let since = same.map(|known| known.since).or(held).unwrap_or(self.now);
        RebootProgress::new(reason, since)
    }

    /// Writes that down, and what people are told of it. A new message alone is written too.
    pub(crate) fn progress(&mut self, progress: RebootProgress, what: &str) {
        let (reason, told) = (progress.reason, text::step(&progress, what));
        let news = self.progress.as_ref().is_none_or(|known| known.reason != reason);
        if news && reason == Reason::HeldOff {
            let holds = || self.host.requests.holds();
            // All keys may be too much for an event.
            let text = text::now_held_off(holds(), progress.hard);
            let about = told_apart(holds());
            self.note(false, reason, about, &text);
        } else if news && reason == Reason::Offline {
            self.tell(reason, &told);
        }
        let shown = find(&self.host.conditions, CONDITION_REBOOTING).is_some_and(|shown| {
            let generation = shown.observed_generation.unwrap_or_default();
            *shown == rebooting(&progress, &told, generation)
        });
        if shown && self.progress.as_ref() == Some(&progress) {
            (self.status.progress, self.status.told) = (None, String::new());
        } else {
            (self.status.progress, self.status.told) = (Some(progress), told);
        }
    }

    /// The soft attempt that is behind the host.
    pub(crate) fn attempted(&mut self, soft: Option<Soft>) {
        self.soft = soft;
    }

    /// A soft attempt that is begun afresh has its whole time.
    pub(crate) fn begun_afresh(&mut self) {
        self.progress = self.progress.take().filter(|it| it.reason != Reason::SoftPowerOff);
    }

    /// The power is to be cut, although nobody has asked for that.
    pub(crate) fn cutting(&mut self, hard: bool) {
        self.hard |= hard;
    }

    /// A step between Ironic and us. What was tried softly until then is remembered.
    pub(crate) fn phase(&mut self, reason: Reason, hard: bool, what: &str) {
        self.exact_phase(RebootProgress { hard, ..self.step(reason) }, what);
    }

    fn exact_phase(&mut self, step: RebootProgress, what: &str) {
        let soft = self.soft.filter(|_| !step.hard);
        let what = text::change(step.hard, what);
        self.progress(RebootProgress { rebooting: self.rebooting, soft, ..step }, &what);
    }

    /// It cannot go on for now. Why is written once: the wording of a network's failures changes with every try.
    /// Says whether that is new.
    pub(crate) fn waiting(&mut self, reason: Reason, why: &str) -> bool {
        let known = self.progress.as_ref();
        let repeated = known.is_some_and(|known| known.reason == reason);
        if !repeated {
            self.rebooting |= known.is_some_and(|known| known.rebooting);
            self.phase(reason, self.hard, &text::waits(why));
        }
        !repeated
    }

    /// Who has joined the holds of a host that is held off for others already is told why it waits. For those nothing changes, and
    /// only they are named beside the reason: whoever is named there relies on it.
    pub(crate) fn joining(&mut self, reason: Reason) {
        let held = self.progress.clone().filter(|known| known.reason == Reason::HeldOff);
        let Some(known) = held else { return };
        let holds = self.host.requests.holds();
        let (held, new): (Vec<_>, Vec<_>) = holds.partition(|key| known.held.names(key));
        if new.is_empty() {
            return;
        }
        self.progress(known, &text::held_off_for_some(&held, new.len(), reason));
        if self.status.progress.is_some() {
            let new = || new.iter().copied();
            let text = text::not_yet_held_off(new(), reason);
            self.note(reason == Reason::IronicUnreachable, reason, told_apart(new()), &text);
        }
    }

    /// Ironic did not take a call. `clean`: the node showed no failure before it, so what was written ahead of the call
    /// tells of no other one. What is written ahead of a power-on always does. Says whether that it waits is new.
    pub(crate) fn not_taken(&mut self, call: Call, clean: bool, reason: Reason, why: &str) -> bool {
        self.joining(reason);
        let ahead = match call {
            Call::SoftOff(_) if clean => Some(Reason::SoftPowerOff),
            Call::HardOff if clean => Some(Reason::HardPowerOff),
            Call::On => Some(Reason::PoweringOn),
            Call::Reset | Call::SoftReset(_) => Some(Reason::Restarting),
            _ => None,
        };
        let waits = self.progress.as_ref().is_none_or(|known| {
            use Reason::{
                Completed, IronicUnreachable, NodeBusy, Offline, PoweredOff, RequestAccepted,
            };
            Some(known.reason) == ahead
                || matches!(
                    known.reason,
                    RequestAccepted
                        | NodeBusy
                        | IronicUnreachable
                        | PoweredOff
                        | Offline
                        | Completed
                )
        });
        // A reset is written down ahead of every try.
        let again = self.progress.as_ref().is_some_and(RebootProgress::resets_again);
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
        self.tell(Reason::NodeBusy, &text::busy(why));
    }

    /// Ironic could not change the power. Gives how often in a row that was.
    pub(crate) fn failed(&mut self, off: bool, problem: &str) -> i64 {
        self.fail(
            RebootProgress { hard: off, ..RebootProgress::new(Reason::PowerFailed, self.now) },
            problem,
        )
    }

    /// The same of a reset that Ironic had taken, for these holds.
    pub(crate) fn reset_failed(&mut self, hard: bool, served: KeySet, problem: &str) -> i64 {
        let reset = Some(Reset::Failed { hard });
        let step = RebootProgress::new(Reason::PowerFailed, self.now);
        self.fail(
            RebootProgress { hard: true, reset, served, ..step },
            &text::reset_failed(hard, problem),
        )
    }

    /// A failure that is repeated is a new one: its time starts anew.
    fn fail(&mut self, step: RebootProgress, problem: &str) -> i64 {
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
            self.progress.as_ref().is_some_and(|known| known.reason == Reason::PowerFailed);
        self.progress = None;
        self.exact_phase(step, &text::failed(problem));
        if !repeated && count == 1 {
            self.warn(Reason::PowerFailed, problem);
        }
        count
    }

    /// The power is as it should be, so a failure of ours is over. Failures of others are theirs.
    pub(crate) fn no_trouble(&mut self) {
        if self.host.trouble.kind == Some(ErrorType::PowerManagement) {
            self.status.trouble = Some(None);
        }
    }

    /// A soft attempt did not work.
    pub(crate) fn escalated(&mut self, problem: Option<&str>) {
        let problem = problem.unwrap_or(text::NOT_IN_TIME);
        self.warn(Reason::SoftPowerOffFailed, &text::escalated(problem));
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
            let (word, text) =
                if on { (Reason::PoweredOn, text::ON) } else { (Reason::PoweredOff, text::OFF) };
            self.tell(word, text);
        }
        let Self { annotations, status, call, notes, .. } = self;
        Decision { reason, annotations, status, call, notes, again }
    }
}

impl Case<'_> {
    /// The host is not ours for this reason, and its status says so. How far a reboot has come is kept, but nobody is told
    /// any more that the machine is held off: a hold is carried out anew when the host comes back.
    pub(crate) fn refused(&self, reason: Reason, message: &str) -> Decision {
        let mut draft = Draft::new(self);
        if self.claims_off() || self.reason().is_some_and(Reason::is_refusal) {
            let hard = self.in_cycle() && self.was_hard();
            let progress = RebootProgress { hard, doubt: self.doubt(), ..draft.step(reason) };
            draft.progress(progress, text::WAS_OFF);
        }
        draft.not_managed(reason, message, self.host.state.is_provisioned() || self.was_ours());
        draft.finish(reason, Again::OnChange)
    }
}

/// Most hosts that are not ours are so by somebody's wish; these are not.
fn is_for_people(reason: Reason) -> bool {
    matches!(reason, Reason::NodeNotFound | Reason::NodeShared | Reason::RecordUnreadable)
}
