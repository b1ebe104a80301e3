//! A decision while it is being made. It starts with what every pass brings up to date and leaves out what is already so.

use api_types::condition::find;
use api_types::metal3::Kept;
use api_types::names::ferrite::CONDITION_REBOOTING;
use controller_kit::engine::{Event, Next, Reason as _};
use k8s_openapi::jiff::Timestamp;

use crate::case::Case;
use crate::model::{Call, Decision, Failures, Trouble, Write, rebooting};
use crate::reason::Reason;
use crate::record::{Managed, RebootProgress, Soft};
use crate::requests::number;
use crate::text;
use crate::waits::{NODE_BUSY_RETRY, retry_delay};

/// The action of an event that is not about certain requests.
const REBOOT_ACTION: &str = "Reboot";

pub(crate) struct Draft<'a> {
    case: &'a Case<'a>,
    pub(crate) write: Box<Write>,
    events: Vec<Event>,
    /// How far it has come, where that still counts.
    pub(crate) progress: Option<&'a RebootProgress>,
    rebooting: bool,
    /// That the power was cut in this cycle, or is to be.
    pub(crate) hard: bool,
    /// The soft attempt that is behind the host.
    pub(crate) soft: Option<Soft>,
}

impl<'a> Draft<'a> {
    /// A draft that knows nothing of the node.
    pub(crate) fn unseen(case: &'a Case<'a>) -> Self {
        Self {
            case,
            write: Box::default(),
            events: Vec::new(),
            progress: case.progress(),
            rebooting: case.in_cycle(),
            hard: case.was_hard(),
            soft: case.soft(),
        }
    }

    /// A draft that brings up to date what the node shows.
    pub(crate) fn new(case: &'a Case<'a>) -> Self {
        let mut draft = Self::unseen(case);
        let seen_off = case.is_off() && !case.is_out_of_sight();
        let seen = (seen_off || case.is_on()).then_some(!seen_off);
        let changed = seen.filter(|on| *on != case.host.powered_on);
        draft.write.status.powered_on = changed;
        if changed == Some(true) && case.held_since().is_some() && case.is_held() {
            let text = text::found_on(case.requests.holds());
            draft.note(true, Reason::PoweredOn, case.requests.holds(), &text);
        }
        let told = text::managed(case.host.only_record);
        let (reason, told) = if case.online_only {
            (Reason::OnlineOnly, text::ONLINE_ONLY.to_owned())
        } else if case.is_disputed() && changed.is_none() {
            // Who has changed it last is what is known: it may have been done by hand, once.
            (Reason::TwoWriters, text::TWO_WRITERS.to_owned())
        } else if case.is_held() && case.is_to_be_finished() {
            (Reason::Managed, text::until_released(&told, case.requests.holds()))
        } else {
            (Reason::Managed, told)
        };
        draft.managed(true, reason, told);
        draft.remember_provisioned(false);
        for (key, value) in case.host.requests.odd() {
            draft.note(true, Reason::InvalidRequest, [key].into_iter(), &text::invalid(key));
            draft.hourly(value);
        }
        draft
    }

    /// The host's power is not ours, and nothing that was found out about power is written either. `provisioned`: something
    /// is installed on it, as far as anybody knows.
    pub(crate) fn not_managed(&mut self, reason: Reason, message: &str, provisioned: bool) {
        self.write.status.powered_on = None;
        self.events.clear();
        self.managed(false, reason, message.to_owned());
        self.remember_provisioned(provisioned);
    }

    fn remember_provisioned(&mut self, provisioned: bool) {
        let known = match &self.case.record {
            Kept::Unreadable(_) => return,
            known => known.known().is_some_and(|record| record.was_provisioned),
        };
        self.write.status.was_provisioned = (known != provisioned).then_some(provisioned);
    }

    fn managed(&mut self, managed: bool, reason: Reason, message: String) {
        // Most hosts that are not ours are so by somebody's wish; these are not.
        use Reason::{NodeNotFound, NodeShared, RecordUnreadable, TwoWriters};
        let by_mistake = [NodeNotFound, NodeShared, RecordUnreadable, TwoWriters].contains(&reason);
        let known = self.case.host.managed();
        // Host and node names may change in the text without news for anybody.
        let repeated = known.as_ref().is_some_and(|known| known.reason == reason);
        if by_mistake && !repeated {
            self.warn(reason, &message);
        }
        let managed = Managed { managed, reason, message };
        self.write.status.managed = (known.as_ref() != Some(&managed)).then_some(managed);
    }

    /// Sets or removes an annotation.
    pub(crate) fn annotate(&mut self, key: &str, value: Option<&str>) {
        self.write.annotations.insert(key.to_owned(), value.map(str::to_owned));
    }

    /// A request is accepted; a new cycle begins without the failures of an older one.
    pub(crate) fn accept(&mut self, pending: Timestamp) {
        self.write.status.pending = Some(pending);
        self.rebooting = true;
        self.progress = None;
        self.hard = false;
        self.soft = None;
        self.no_trouble();
        let case = self.case;
        let text = text::accepted(case.requests.keys());
        self.note(false, Reason::RequestAccepted, case.requests.keys(), &text);
    }

    /// What a wrong clock wrote goes, and what is stamped in the same write stays. A request without a later power-on has its cycle.
    pub(crate) fn correct_stamps(&mut self) {
        self.write.status.clear_stamps = true;
        self.warn(Reason::StampsCorrected, text::STAMPS_CORRECTED);
    }

    /// How far it has come. As long as that stays the same, so does its time.
    pub(crate) fn step(&self, reason: Reason) -> RebootProgress {
        let known = self.progress;
        let same = known.filter(|known| known.reason == reason);
        let held = known.filter(|_| reason == Reason::HeldOff).and_then(RebootProgress::held_since);
        let since = same.map(|known| known.since).or(held).unwrap_or(self.case.now);
        RebootProgress::new(reason, since)
    }

    /// The same of a machine that is off, or was when it was last seen: that its power was cut is kept for as long as the cycle
    /// lasts.
    pub(crate) fn step_at_off(&self, reason: Reason) -> RebootProgress {
        RebootProgress { hard: self.case.in_cycle() && self.case.was_hard(), ..self.step(reason) }
    }

    /// Writes that down, and what people are told of it. A new message alone is written too.
    pub(crate) fn progress(&mut self, progress: RebootProgress, what: &str) {
        let host = self.case.host;
        let (reason, told) = (progress.reason, text::step(&progress, what));
        let news = self.progress.is_none_or(|known| known.reason != reason);
        if news && reason == Reason::HeldOff {
            self.note(false, reason, host.requests.holds(), &told);
        } else if news && reason == Reason::Offline {
            self.tell(reason, &told);
        }
        let shown = find(&host.conditions, CONDITION_REBOOTING).is_some_and(|shown| {
            let generation = shown.observed_generation.unwrap_or_default();
            *shown == rebooting(&progress, &told, generation)
        });
        let status = &mut self.write.status;
        if shown && self.progress == Some(&progress) {
            (status.progress, status.told) = (None, String::new());
        } else {
            (status.progress, status.told) = (Some(progress), told);
        }
    }

    /// A step between Ironic and us. What was tried softly until then is remembered.
    pub(crate) fn phase(&mut self, reason: Reason, hard: bool, what: &str) {
        self.exact_phase(RebootProgress { hard, ..self.step(reason) }, what);
    }

    fn exact_phase(&mut self, step: RebootProgress, what: &str) {
        let soft = self.soft.filter(|_| !step.hard);
        let what = self.case.change(step.hard, what);
        self.progress(RebootProgress { rebooting: self.rebooting, soft, ..step }, &what);
    }

    /// It cannot go on for now. Why is written once: the wording of a network's failures changes with every try. A reset is written
    /// down ahead of every try, so it is told once an hour.
    pub(crate) fn waiting(&mut self, reason: Reason, why: &str) {
        let known = self.progress;
        if known.is_some_and(|known| known.reason == reason) {
            return;
        }
        self.rebooting |= known.is_some_and(|known| known.rebooting);
        self.phase(reason, self.hard, &text::waits(why));
        match reason {
            Reason::NodeBusy => self.tell(reason, &text::busy(why)),
            Reason::IronicUnreachable | Reason::PowerUnknown => self.warn(reason, why),
            _ => return,
        }
        self.hourly(number(self.case.host.pending));
    }

    /// Who has joined the holds of a host that is held off for others already is told why it waits. For those nothing changes, and
    /// only they are named beside the reason: whoever is named there relies on it.
    pub(crate) fn joining(&mut self, reason: Reason) {
        let held = self.progress.filter(|known| known.reason == Reason::HeldOff);
        let Some(known) = held else { return };
        let holds = self.case.host.requests.holds();
        let (held, new): (Vec<_>, Vec<_>) = holds.partition(|key| known.held.names(key));
        if !new.is_empty() {
            self.progress(known.clone(), &text::held_off_for_some(&held, new.len(), reason));
        }
    }

    /// The step of a failure. One that is repeated is a new one: its time starts anew.
    pub(crate) fn failure(&self) -> RebootProgress {
        RebootProgress::new(Reason::PowerFailed, self.case.now)
    }

    /// Ironic could not change the power. Gives how often in a row that was.
    pub(crate) fn fail(&mut self, step: RebootProgress, problem: &str) -> Failures {
        let failures = match self.case.host.failures {
            Failures::None => Failures::OfPower(1),
            // Whoever writes statuses may have written any number.
            Failures::OfPower(count) => Failures::OfPower(count.max(0).saturating_add(1)),
            Failures::OfOthers => Failures::OfOthers,
        };
        if let Failures::OfPower(count) = failures {
            self.write.status.trouble = Some(Some(Trouble { count, message: problem.to_owned() }));
        }
        let repeated = self.progress.is_some_and(|known| known.reason == Reason::PowerFailed);
        self.progress = None;
        self.exact_phase(step, &text::failed(problem));
        if !repeated && matches!(failures, Failures::OfPower(1) | Failures::OfOthers) {
            self.warn(Reason::PowerFailed, problem);
        }
        failures
    }

    /// The power is as it should be, so a failure of ours is over. Failures of others are theirs.
    pub(crate) fn no_trouble(&mut self) {
        if matches!(self.case.host.failures, Failures::OfPower(_)) {
            self.write.status.trouble = Some(None);
        }
    }

    /// A soft attempt did not work.
    pub(crate) fn escalated(&mut self, problem: Option<&str>) {
        let problem = problem.unwrap_or(text::NOT_IN_TIME);
        self.warn(Reason::SoftPowerOffFailed, &text::escalated(problem));
    }

    /// Whether everybody can see in the status that the host is off.
    pub(crate) fn shows_off(&self) -> bool {
        self.write.status.powered_on.is_none() && !self.case.host.powered_on
    }

    /// An event that something goes as it should.
    pub(crate) fn tell(&mut self, reason: Reason, text: &str) {
        self.events.push(Event::new(false, reason.as_str(), REBOOT_ACTION, text));
    }

    /// An event that a person should look at.
    pub(crate) fn warn(&mut self, reason: Reason, text: &str) {
        self.events.push(Event::new(true, reason.as_str(), REBOOT_ACTION, text));
    }

    /// An event about requests. The API server folds events of one action, and one about others is another one.
    pub(crate) fn note<'k>(
        &mut self,
        warning: bool,
        reason: Reason,
        keys: impl Iterator<Item = &'k str>,
        text: &str,
    ) {
        let action = format!("{REBOOT_ACTION} {:x}", number(keys.collect::<Vec<_>>()));
        self.events.push(Event::new(warning, reason.as_str(), &action, text));
    }

    /// The last event is of a fact that does not go away.
    pub(crate) fn hourly(&mut self, fact: u64) {
        if let Some(told) = self.events.last_mut() {
            told.hourly = Some(fact);
        }
    }

    /// Ends with a call.
    pub(crate) fn ask(mut self, call: Call) -> Decision {
        self.write.call = Some(call);
        let next = self.case.ironics_turn();
        self.finish(Reason::of_call(call), next)
    }

    /// Ends because it cannot go on for now.
    pub(crate) fn deferred(mut self, reason: Reason, why: &str) -> Decision {
        self.waiting(reason, why);
        self.finish(reason, Next::After(NODE_BUSY_RETRY))
    }

    /// Ends with a call that Ironic did not take. `clean`: the node showed no failure before it, so what was written ahead of the
    /// call tells of no other one. What is written ahead of a power-on always does.
    pub(crate) fn not_taken(
        mut self,
        call: Call,
        clean: bool,
        reason: Reason,
        why: &str,
    ) -> Decision {
        self.joining(reason);
        let is_ahead = clean || !call.is_off();
        let waits = self.progress.is_none_or(|known| {
            use Reason::{Completed, Offline, PoweredOff, RequestAccepted};
            let is_outage = reason == Reason::IronicUnreachable && known.has_merely_failed();
            (is_ahead && known.reason == Reason::of_call(call))
                || [RequestAccepted, PoweredOff, Offline, Completed].contains(&known.reason)
                || known.waits_for_ironic()
                || is_outage
        });
        if waits {
            self.waiting(reason, why);
        }
        self.finish(reason, Next::After(NODE_BUSY_RETRY))
    }

    /// Ends with a change of power that failed and is tried again.
    pub(crate) fn retried(mut self, off: bool, problem: &str) -> Decision {
        let failures = self.fail(RebootProgress { hard: off, ..self.failure() }, problem);
        let wait = retry_delay(off, failures);
        self.finish(Reason::PowerFailed, Next::After(wait))
    }

    /// The decision. That the power was found to have changed is told, where nothing else tells more.
    pub(crate) fn finish(mut self, reason: Reason, next: Next) -> Decision {
        if let Some(on) = self.write.status.powered_on
            && self.events.iter().all(|event| event.hourly.is_some())
        {
            let (word, text) =
                if on { (Reason::PoweredOn, text::ON) } else { (Reason::PoweredOff, text::OFF) };
            self.tell(word, text);
        }
        let Self { mut write, events, .. } = self;
        write.rests = next == Next::OnChange;
        let writes = if write.is_empty() { Vec::new() } else { vec![write] };
        Decision { reason, writes, events, next }
    }
}

impl Case<'_> {
    /// The host is not ours for this reason, and its status says so. How far a reboot has come is kept, but nobody is told
    /// any more that the machine is held off: a hold is carried out anew when the host comes back.
    pub(crate) fn refused(&self, reason: Reason, message: &str) -> Decision {
        self.refused_until(reason, message, Next::OnChange)
    }

    /// The same where nothing need tell that it is over.
    pub(crate) fn refused_until(&self, reason: Reason, message: &str, next: Next) -> Decision {
        let mut draft = Draft::new(self);
        if self.claims_off() || self.reason().is_some_and(Reason::is_refusal) {
            let step = draft.step_at_off(reason);
            draft.progress(RebootProgress { doubt: self.doubt(), ..step }, text::WAS_OFF);
        }
        draft.not_managed(reason, message, self.host.state.is_provisioned() || self.was_ours());
        draft.finish(reason, next)
    }
}
