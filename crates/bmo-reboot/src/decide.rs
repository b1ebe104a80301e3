//! The rules, in the order in which they apply; the first that has something to say decides. Pure: no client, no clock.
//!
//! Two ideas carry the rest. A request is *accepted* by a stamp that is later than the last power-on; from then on, and
//! whatever becomes of the request, exactly one cycle follows, which ends when a later `lastPoweredOn` is stored just
//! before the machine is switched on. And *off* is what Ironic says without a target and without a failure that is
//! newer than our call, after a soft attempt twice.

use std::time::Duration;

use api_types::names::ferrite::PAUSED_BY_BMO_REBOOT;
use api_types::names::metal3::{PAUSED, REBOOT};
use ironic::Power;
use k8s_openapi::jiff::{Timestamp, ToSpan as _};

use crate::config::Policy;
use crate::decision::{Again, Call, Decision};
use crate::draft::Draft;
use crate::observe::{Host, Node, NodeSeen, Observed, Pause, Target};
use crate::power_off::{go_off, reset};
use crate::record::{Reason, Record};
use crate::requests::{Request, named};

/// After a soft power-off a second reading must agree, this much later.
pub const CONFIRM: Duration = Duration::from_secs(3);
/// When to try again what Ironic was too busy for.
pub const BUSY: Duration = Duration::from_secs(3);
/// A stamp that is bumped into the future by more than this is the clock's fault and not waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Decides about a host.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    let Some(host) = &seen.host else { return Decision::rest(Reason::Gone) };
    let case = Case::of(host, &seen.node, seen.soft_free, policy, now);
    let rules: [fn(&Case<'_>) -> Option<Decision>; 17] = [
        // Whose is it?
        not_looked_at,
        hand_back,
        not_selected,
        deleting,
        paused,
        detached,
        without_credentials,
        left_provisioned,
        not_provisioned,
        // What does Ironic say?
        shared_node,
        ironic_silent,
        take_over,
        // What is to be done?
        accept,
        switch_off,
        hold,
        switch_on,
        rest,
    ];
    rules.iter().find_map(|rule| rule(&case)).unwrap_or_else(|| Decision::rest(Reason::AtRest))
}

/// A host under consideration.
pub(crate) struct Case<'a> {
    pub(crate) host: &'a Host,
    pub(crate) seen: &'a NodeSeen,
    pub(crate) soft_free: bool,
    pub(crate) policy: &'a Policy,
    /// Whole seconds, like everything that is stored.
    pub(crate) now: Timestamp,
    /// The same with its fraction.
    exact: Timestamp,
    pub(crate) record: Option<Record>,
}

impl<'a> Case<'a> {
    pub(crate) fn of(
        host: &'a Host,
        seen: &'a NodeSeen,
        soft_free: bool,
        policy: &'a Policy,
        exact: Timestamp,
    ) -> Self {
        Self { host, seen, soft_free, policy, now: whole(exact), exact, record: host.record() }
    }

    pub(crate) fn node(&self) -> Option<&'a Node> {
        match self.seen {
            NodeSeen::Seen(node) => Some(node),
            _ => None,
        }
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        self.record.as_ref().map(|record| record.reason)
    }

    pub(crate) fn is(&self, reason: Reason) -> bool {
        self.reason() == Some(reason)
    }

    /// On an available host only `spec.online` counts, and only if that was asked for.
    pub(crate) fn online_only(&self) -> bool {
        self.policy.manage_available && self.host.state.is_available()
    }

    /// The requests that count.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &'a Request> {
        let counts = !self.online_only();
        self.host.requests.iter().filter(move |_| counts)
    }

    pub(crate) fn holds(&self) -> impl Iterator<Item = &'a str> {
        let counts = !self.online_only();
        self.host.requests.holds().filter(move |_| counts)
    }

    pub(crate) fn in_cycle(&self) -> bool {
        self.host.in_cycle() && !self.online_only()
    }

    /// Whether the machine must never be switched off.
    pub(crate) fn must_stay_on(&self) -> bool {
        self.host.disable_power_off || self.node().is_some_and(|node| node.disable_power_off)
    }

    /// Whether the last call of ours towards off may have failed since.
    fn off_is_doubtful(&self, node: &Node) -> bool {
        let confirmed = node.off_since.is_some_and(|since| self.age(since) >= CONFIRM);
        match self.reason() {
            Some(Reason::SoftPowerOff) => node.last_error.is_some() || !confirmed,
            Some(Reason::HardPowerOff) => node.last_error.is_some(),
            _ => false,
        }
    }

    /// Off, so that a fence can rely on it.
    pub(crate) fn is_off(&self) -> bool {
        self.node().is_some_and(|node| {
            node.power == Power::Off && node.target.is_none() && !self.off_is_doubtful(node)
        })
    }

    /// Off by a single word of Ironic.
    pub(crate) fn seems_off(&self) -> bool {
        self.node().is_some_and(|node| node.power == Power::Off && node.target.is_none())
    }

    pub(crate) fn is_on(&self) -> bool {
        self.node().is_some_and(|node| node.power == Power::On)
    }

    /// Time since a whole second; none if that is in the future.
    pub(crate) fn age(&self, since: Timestamp) -> Duration {
        until(since, self.exact)
    }

    /// Whether the operator is to have the host while we keep it from it.
    fn is_wanted_back(&self) -> bool {
        let host = self.host;
        host.paused == Pause::ByUs
            && (!self.policy.takeover
                || host.deleting
                || host.detached
                || host.needs_operator
                || !host.selected
                || !host.state.is_provisioned())
    }

    /// Whether handing the host over now would leave something half done.
    fn is_in_the_middle(&self) -> bool {
        let Some(node) = self.node() else { return true };
        let calling =
            [Reason::SoftPowerOff, Reason::HardPowerOff, Reason::PoweringOn, Reason::Restarting];
        let changing = node.target.is_some()
            || (self.reason().is_some_and(|reason| calling.contains(&reason))
                && self.host.powered_on != self.is_on());
        // A host that is being deleted is never switched on again, so its cycle does not end.
        changing || (!self.host.deleting && self.in_cycle())
    }

    /// Whether a rule that would leave the host alone has to wait for the end of what was begun.
    fn is_to_be_finished(&self) -> bool {
        self.is_wanted_back() && self.is_in_the_middle()
    }

    /// The host is not ours for this reason, and its status says so; how far a reboot has come is kept.
    fn refused(&self, reason: Reason, message: &str) -> Decision {
        let mut draft = Draft::new(self);
        draft.managed(false, reason, message);
        draft.finish(reason, Again::OnChange)
    }
}

// Whose is it?

/// A host without a status cannot be given one: its required fields are the operator's.
fn not_looked_at(case: &Case<'_>) -> Option<Decision> {
    case.host.state.as_str().is_empty().then(|| Decision::rest(Reason::NotLookedAt))
}

fn hand_back(case: &Case<'_>) -> Option<Decision> {
    (case.is_wanted_back() && !case.is_in_the_middle()).then(|| {
        let mut draft = Draft::new(case);
        draft.annotate(PAUSED, None);
        draft.finish(Reason::HandedBack, Again::Now)
    })
}

fn not_selected(case: &Case<'_>) -> Option<Decision> {
    if case.host.selected || case.is_to_be_finished() {
        return None;
    }
    let was_ours = case.host.managed().is_some_and(|managed| managed.managed);
    Some(if was_ours {
        case.refused(Reason::NotSelected, "the host does not match --host-selector any more")
    } else {
        Decision::rest(Reason::NotSelected)
    })
}

fn deleting(case: &Case<'_>) -> Option<Decision> {
    (case.host.deleting && !case.is_to_be_finished())
        .then(|| case.refused(Reason::Deleting, "the host is being deleted"))
}

fn paused(case: &Case<'_>) -> Option<Decision> {
    let message = "the host is paused: remove the annotation baremetalhost.metal3.io/paused";
    (case.host.paused == Pause::ByOthers).then(|| case.refused(Reason::Paused, message))
}

fn detached(case: &Case<'_>) -> Option<Decision> {
    let message =
        "the host is detached from Ironic: remove the annotation baremetalhost.metal3.io/detached";
    (case.host.detached && !case.is_to_be_finished())
        .then(|| case.refused(Reason::Detached, message))
}

fn without_credentials(case: &Case<'_>) -> Option<Decision> {
    let message =
        "without credentials power is not maintained and no reboot honoured: set spec.bmc";
    (!case.host.credentials).then(|| case.refused(Reason::NoCredentials, message))
}

/// Requests and stamps belong to what was installed. The keys go first: as long as the stamps or the condition are
/// there, a clean-up that was interrupted is done again.
fn left_provisioned(case: &Case<'_>) -> Option<Decision> {
    let host = case.host;
    if host.state.is_provisioned() {
        return None;
    }
    let stamped = host.pending.is_some() || host.last.is_some();
    let was_ours = host.managed().is_some_and(|managed| managed.reason == Reason::Managed);
    let deprovisioning = host.state == api_types::metal3::ProvisioningState::Deprovisioning;
    let evidence = stamped || was_ours || (deprovisioning && !host.requests.is_empty());
    evidence.then(|| {
        let mut draft = Draft::new(case);
        for request in host.requests.iter() {
            draft.annotate(&request.key, None);
        }
        draft.clear_stamps(stamped);
        draft.no_trouble();
        if case.record.is_some() {
            draft.record(false, Reason::Deprovisioned, false, "The host was deprovisioned");
        }
        draft.managed(false, Reason::NotProvisioned, NOT_PROVISIONED);
        draft.finish(Reason::Deprovisioned, Again::Now)
    })
}

const NOT_PROVISIONED: &str = "power is managed while the host is provisioned";

fn not_provisioned(case: &Case<'_>) -> Option<Decision> {
    let managed = case.host.state.is_provisioned() || case.online_only();
    (!managed).then(|| case.refused(Reason::NotProvisioned, NOT_PROVISIONED))
}

// What does Ironic say?

/// Two hosts with one node would undo each other's holds, so neither is served.
fn shared_node(case: &Case<'_>) -> Option<Decision> {
    let other = case.host.shared_with.as_ref()?;
    let node = &case.host.node;
    let message = format!("the host {other} names the same node {node}: correct one of them");
    Some(case.refused(Reason::NodeShared, &message))
}

/// Without an answer nothing changes. A host that waits for Ironic says so, one at rest is left alone.
fn ironic_silent(case: &Case<'_>) -> Option<Decision> {
    let (lasting, problem) = match case.seen {
        NodeSeen::Seen(_) => return None,
        NodeSeen::NotAsked => {
            return Some(Draft::untouched(case, Reason::AtRest, Again::After(BUSY)));
        }
        NodeSeen::Missing => {
            let node = &case.host.node;
            let message =
                format!("Ironic has no node {node}: the operator has to register it again");
            return Some(case.refused(Reason::NodeNotFound, &message));
        }
        NodeSeen::Unanswered { lasting, problem } => (*lasting, problem),
    };
    let waits = case.in_cycle()
        || case.requests().next().is_some()
        || case.host.online != case.host.powered_on;
    let mut draft = Draft::unseen(case);
    // What says more than that Ironic is away is kept: the hold, the failure, the reset that may not be repeated.
    let tells = case.reason().is_some_and(|reason| {
        (!reason.is_phase() && reason != Reason::Completed)
            || matches!(reason, Reason::Restarting | Reason::PowerFailed)
    });
    if lasting && waits && !tells {
        draft.waiting(Reason::IronicUnreachable, problem);
    }
    // Who does not wait is told by the poll, once Ironic is back.
    let again = if waits { Again::After(BUSY) } else { Again::OnChange };
    Some(draft.finish(Reason::IronicUnreachable, again))
}

fn take_over(case: &Case<'_>) -> Option<Decision> {
    let host = case.host;
    let operators = host.deleting || host.detached || host.needs_operator || !host.selected;
    let provisioned = host.state.is_provisioned();
    (case.policy.takeover && provisioned && host.paused == Pause::No && !operators).then(|| {
        let mut draft = Draft::new(case);
        draft.annotate(PAUSED, Some(PAUSED_BY_BMO_REBOOT));
        draft.finish(Reason::TakenOver, Again::Now)
    })
}

// What is to be done?

/// A request of a running machine is stamped, unless the cycle that is under way answers it too.
fn accept(case: &Case<'_>) -> Option<Decision> {
    let node = case.node()?;
    let answered = |request: &Request| {
        case.must_stay_on()
            && case.record.as_ref().is_some_and(|record| record.has_served(&request.key))
    };
    let asked = case.requests().any(|request| !answered(request));
    let resetting = node.target == Some(Target::On);
    if !asked || case.in_cycle() || case.host.deleting || !case.is_on() || resetting {
        return None;
    }
    // Rounded up: the stamp is a time before which the request was made.
    let asked_before = if case.now == case.exact { case.now } else { second_after(case.now) };
    let pending = case.host.last.map_or(asked_before, |last| asked_before.max(second_after(last)));
    let mut draft = Draft::new(case);
    draft.accept(pending, case.requests().map(|request| request.key.as_str()));
    let begun = Host { pending: Some(pending), conditions: Vec::new(), ..case.host.clone() };
    let next = Case { host: &begun, record: None, ..*case };
    Some(if case.must_stay_on() { reset(&next, draft, node) } else { go_off(&next, draft, node) })
}

/// A cycle that was begun, or `spec.online`, asks for off, and the machine is not; or it seems so and that is doubtful.
fn switch_off(case: &Case<'_>) -> Option<Decision> {
    let node = case.node()?;
    if case.is_off() {
        return None;
    }
    let draft = Draft::new(case);
    if case.must_stay_on() {
        return case.in_cycle().then(|| reset(case, draft, node));
    }
    let wanted = case.in_cycle() || !case.host.online || case.seems_off();
    // A machine that is just being switched on is not caught in the middle of it.
    let turning_on = node.target == Some(Target::On) && !case.in_cycle();
    (wanted && !turning_on && !case.host.deleting).then(|| go_off(case, draft, node))
}

/// Off, and somebody wants it to stay so.
fn hold(case: &Case<'_>) -> Option<Decision> {
    if !case.is_off() || case.holds().next().is_none() {
        return None;
    }
    let mut draft = Draft::new(case);
    draft.no_trouble();
    draft.record(true, Reason::HeldOff, false, &format!("Held off by {}", named(case.holds())));
    // The plain request is answered by the machine being off. It goes only after everybody could see that.
    let shown = draft.shows_off();
    if shown && case.host.online && case.host.requests.has_plain() {
        draft.annotate(REBOOT, None);
    }
    Some(draft.finish(Reason::HeldOff, if shown { Again::OnChange } else { Again::Now }))
}

/// Off, nobody holds it, and it is to be on.
fn switch_on(case: &Case<'_>) -> Option<Decision> {
    let node = case.node()?;
    if !case.is_off() || !case.host.online || case.host.deleting {
        return None;
    }
    let mut draft = Draft::new(case);
    let rebooting = case.in_cycle() || case.record.as_ref().is_some_and(|record| record.rebooting);
    if !draft.shows_off() {
        draft.no_trouble();
        draft.record(rebooting, Reason::PoweredOff, false, "The host is off");
        return Some(draft.finish(Reason::PoweredOff, Again::Now));
    }
    if case.is(Reason::PoweringOn)
        && let Some(problem) = &node.last_error
    {
        let count = draft.failed(false, problem);
        return Some(draft.finish(Reason::PowerFailed, Again::After(on_delay(count))));
    }
    if let Some(wait) = still_waiting(case, on_delay(case.host.trouble.count)) {
        return Some(draft.finish(Reason::PowerFailed, Again::After(wait)));
    }
    let stamp = last_stamp(case);
    let early = until(case.exact, stamp);
    if early > Duration::ZERO && early <= PATIENCE {
        return Some(draft.finish(Reason::PoweredOff, Again::After(early)));
    }
    if case.requests().any(|request| request.key == REBOOT) {
        draft.annotate(REBOOT, None);
    }
    if !case.online_only() {
        draft.stamp_on(stamp);
    }
    // As for off: ahead only where an old failure cannot be taken for a new one; and not again for every try.
    let retried = [Reason::NodeBusy, Reason::IronicUnreachable].map(Some).contains(&case.reason());
    if node.last_error.is_none() && !retried {
        draft.record(rebooting, Reason::PoweringOn, false, "The host is being switched on");
    }
    draft.call(Call::On);
    Some(draft.finish(Reason::PoweringOn, Again::Watch))
}

/// Nothing is to be done, or it is Ironic's turn.
fn rest(case: &Case<'_>) -> Option<Decision> {
    let node = case.node()?;
    let mut draft = Draft::new(case);
    if node.target.is_some() {
        return Some(draft.finish(Reason::AtRest, Again::Watch));
    }
    if node.power == Power::Unknown {
        return Some(draft.finish(Reason::PowerUnknown, Again::OnChange));
    }
    draft.no_trouble();
    let begun = case.record.as_ref().is_some_and(|record| {
        record.rebooting || record.reason.is_phase() || record.reason == Reason::PoweredOff
    });
    let refused = case.must_stay_on() && case.is(Reason::HoldUnsupported);
    if case.is_off() && (begun || case.in_cycle()) {
        let message = "The host stays off because spec.online is false";
        draft.record(false, Reason::Offline, false, message);
        return Some(draft.finish(Reason::Offline, Again::OnChange));
    }
    if case.must_stay_on() && !case.host.online {
        let message = "spec.online is false, but the machine must not be switched off";
        draft.record(false, Reason::HoldUnsupported, false, message);
    } else if begun || (refused && case.holds().next().is_none()) {
        draft.record(false, Reason::Completed, false, "The host is on");
        if case.record.as_ref().is_some_and(|record| record.rebooting) {
            draft.tell(Reason::Completed, "The reboot is over, the host is on");
        }
    }
    Some(draft.finish(Reason::AtRest, Again::OnChange))
}

/// How long a failure is still to be waited for.
pub(crate) fn still_waiting(case: &Case<'_>, delay: Duration) -> Option<Duration> {
    let failed = case.record.as_ref().filter(|record| record.reason == Reason::PowerFailed)?;
    delay.checked_sub(case.age(failed.since)).filter(|left| !left.is_zero())
}

/// Somebody waits for the machine to be off, perhaps to save data: never more than half a minute.
pub(crate) fn off_delay(count: i64) -> Duration {
    Duration::from_secs(match count {
        ..=1 => 3,
        2 => 5,
        3 => 10,
        4 => 20,
        _ => 28,
    })
}

pub(crate) fn on_delay(count: i64) -> Duration {
    let doublings = u32::try_from(count.clamp(1, 8) - 1).unwrap_or(0);
    Duration::from_secs((3 << doublings).min(300))
}

/// The stamp of a power-on now: later than the request that it answers, and never earlier than one before.
pub(crate) fn last_stamp(case: &Case<'_>) -> Timestamp {
    let after = case.host.pending.map_or(case.now, second_after);
    case.now.max(after).max(case.host.last.unwrap_or(case.now))
}

fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn second_after(time: Timestamp) -> Timestamp {
    time.checked_add(1.second()).unwrap_or(time)
}

fn until(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
