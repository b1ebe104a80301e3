//! The rules, in the order in which they apply; the first that has something to say decides. Pure: no client, no clock.
//!
//! Two ideas carry the rest. A request is *accepted* by a stamp that is later than the last power-on; from then on, and
//! whatever becomes of the request, exactly one cycle follows, which ends when a later `lastPoweredOn` is stored just
//! before the machine is switched on. And *off* is what Ironic says without a target and without a failure that is
//! newer than our call, after a soft attempt twice. Who holds a machine is told that only after Ironic was asked for it.

use std::time::Duration;

use api_types::metal3::{Kept, KeySet};
use api_types::names::ferrite::PAUSED_BY_BMO_REBOOT;
use api_types::names::metal3::{PAUSED, REBOOT};
use controller_kit::engine::{Next, Rule};
use controller_kit::rule_book;
use ironic::Power;
use k8s_openapi::jiff::Timestamp;

use crate::case::{Case, second_after};
use crate::draft::Draft;
use crate::model::{
    Call, Decision, Host, Node, NodeSeen, OFF_CONFIRM_DELAY, Observed, Pause, Write,
};
use crate::power_off::{go_off, prove_off, reset};
use crate::reason::Reason;
use crate::record::{Doubt, RebootProgress, Reset, Sight};
use crate::requests::Request;
use crate::settings::Policy;
use crate::text;
use crate::waits::{NODE_BUSY_RETRY, is_ahead, last_stamp, still_early, still_waiting};

/// When to look again at a node that has another name, or whose power Ironic knows again, should nobody have told before.
const NODE_RECHECK: Duration = Duration::from_secs(20);
/// How long the stamp of a power-on that Ironic does not take stands for the next tries: each is a write of the whole host.
const STAMP_REUSE: Duration = Duration::from_secs(60);

/// Decides about a host, or has nothing to say.
type Decide = fn(&Case<'_>) -> Option<Decision>;

const RULES: [Rule<Decide>; 22] = rule_book![
    not_looked_at: "A host without a status can be given no condition, so nothing below could say anything.",
    hand_back: "A host that is to be given back to the operator is not left alone before: the rules below wait for the end of what was begun.",
    not_selected: "Hosts of others are left alone whatever state they are in.",
    deleting: "A host that is being deleted is the operator's.",
    paused: "Somebody else paused it: nothing is written.",
    detached: "A detached host has no node.",
    unreadable: "Nobody knows for whom a host with an unknown record is held off. It does not matter to those that are left alone or given back.",
    left_provisioned: "Requests do not outlive what was installed, not even on a host without credentials.",
    without_credentials: "Without credentials its power cannot be switched.",
    not_provisioned: "Before it is provisioned its power is the operator's.",
    shared_node: "Of two hosts with one node neither is served, before anything that Ironic says of the node counts.",
    ironic_silent: "Without an answer nothing changes.",
    take_over: "Before any call: power has one writer.",
    withdraw_off: "Nobody may take a machine for fenced that may be coming on, so this comes before a hold.",
    lose_sight: "Nor one that nobody sees.",
    accept: "The stamp is written before the call that it stands for.",
    correct_stamps: "The stamp of the power-on is made of that of the request.",
    switch_off: "A cycle that was begun asks for off first.",
    prove_off: "Off is asked, not read: who holds a machine is told that it is off after Ironic has looked.",
    hold: "One hold is enough, whatever else asks for power.",
    switch_on: "Off, nobody holds it, and it is to be on.",
    rest: "Nothing is to be done, or it is Ironic's turn.",
];

/// The rules in their order: what they are called, and why they stand where they stand.
pub fn rules() -> Vec<(&'static str, &'static str)> {
    RULES.iter().map(Rule::shown).collect()
}

/// Decides about a host.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    let Some(case) = Case::of(seen, policy, now) else { return Decision::rest(Reason::Gone) };
    let decided = RULES.iter().find_map(|rule| (rule.decide)(&case));
    let decided = decided.unwrap_or_else(|| Decision::rest(Reason::AtRest));
    let is_left = case.host.answered.is_some() && case.host.requests.plain().is_none();
    let is_free = decided.writes.is_empty() && !decided.reason.is_refusal();
    if is_left && is_free { remove_answered(decided) } else { decided }
}

/// A plain request that was answered goes at last, beside nothing else: a webhook that refuses that again must hold up nothing.
fn remove_answered(decided: Decision) -> Decision {
    let mut write = Write::default();
    write.annotations.insert(REBOOT.to_owned(), None);
    write.status.answered = Some(None);
    write.rests = decided.next == Next::OnChange;
    Decision { writes: vec![Box::new(write)], ..decided }
}

/// Whether somebody has to look at a host of which this is decided.
pub fn needs_look(decision: &Decision) -> bool {
    !decision.writes.is_empty() || decision.next != Next::OnChange
}

/// Whether there is nothing to do until something changes, nor anything new to tell.
pub fn is_at_rest(decision: &Decision) -> bool {
    !needs_look(decision) && decision.events.iter().all(|event| event.hourly.is_some())
}

// Whose is it?

/// A host without a status cannot be given one: its required fields are the operator's. One that brings its status from
/// another cluster gets it from the operator, unless that is paused. Without any it would be taken for a new one and
/// installed, which our pause keeps it from. Nobody looks after it then, and only an event can say so.
fn not_looked_at(case: &Case<'_>) -> Option<Decision> {
    let host = case.host;
    host.state.as_str().is_empty().then(|| match host.paused {
        Pause::ByUs if host.brings_status => handed_back(case),
        Pause::ByUs if !host.deleting => {
            let mut draft = Draft::unseen(case);
            draft.warn(Reason::NotLookedAt, text::WITHOUT_STATUS);
            draft.hourly(0);
            draft.finish(Reason::NotLookedAt, Next::OnChange)
        }
        _ => Decision::rest(Reason::NotLookedAt),
    })
}

fn hand_back(case: &Case<'_>) -> Option<Decision> {
    (case.is_wanted_back() && !case.is_in_the_middle()).then(|| handed_back(case))
}

fn handed_back(case: &Case<'_>) -> Decision {
    let mut draft = Draft::unseen(case);
    draft.annotate(PAUSED, None);
    draft.tell(Reason::HandedBack, text::HANDED_BACK);
    draft.finish(Reason::HandedBack, Next::Now)
}

fn not_selected(case: &Case<'_>) -> Option<Decision> {
    if case.host.selected || case.is_to_be_finished() {
        return None;
    }
    let was_ours = case.host.managed().is_some_and(|managed| managed.managed);
    Some(if was_ours || case.claims_off() {
        case.refused(Reason::NotSelected, text::NOT_SELECTED)
    } else {
        Decision::rest(Reason::NotSelected)
    })
}

fn deleting(case: &Case<'_>) -> Option<Decision> {
    (case.host.deleting && !case.is_to_be_finished())
        .then(|| case.refused(Reason::Deleting, text::DELETING))
}

fn paused(case: &Case<'_>) -> Option<Decision> {
    (case.host.paused == Pause::ByOthers).then(|| case.refused(Reason::Paused, text::PAUSED))
}

fn detached(case: &Case<'_>) -> Option<Decision> {
    (case.host.detached && !case.is_to_be_finished())
        .then(|| case.refused(Reason::Detached, text::DETACHED))
}

/// Of a host whose record says nothing that can be relied on nobody knows whether its power was cut, nor for whom it is held
/// off. It stays as it is until somebody has decided what that record is worth.
fn unreadable(case: &Case<'_>) -> Option<Decision> {
    let Kept::Unreadable(why) = &case.record else { return None };
    Some(case.refused(Reason::RecordUnreadable, &text::record_unreadable(why)))
}

/// Requests and stamps belong to what was installed. The keys go first: as long as the stamps or the condition are
/// there, a clean-up that was interrupted is done again.
fn left_provisioned(case: &Case<'_>) -> Option<Decision> {
    use api_types::metal3::ProvisioningState::{Deprovisioning, Other};
    let host = case.host;
    // A word of a newer operator is no proof that anything was removed.
    if host.state.is_provisioned() || matches!(host.state, Other(_)) {
        return None;
    }
    let stamped = host.pending.is_some() || host.last.is_some();
    let asked = host.state == Deprovisioning && !host.requests.is_empty();
    let evidence = stamped || asked || case.was_ours();
    evidence.then(|| {
        let mut draft = Draft::new(case);
        for key in host.requests.keys() {
            draft.annotate(key, None);
        }
        if host.answered.is_some() {
            draft.annotate(REBOOT, None);
            draft.write.status.answered = Some(None);
        }
        draft.write.status.clear_stamps = stamped;
        draft.no_trouble();
        if case.progress().is_some() {
            let progress = draft.step(Reason::Deprovisioned);
            draft.progress(progress, text::DEPROVISIONED);
        }
        draft.not_managed(Reason::NotProvisioned, text::NOT_PROVISIONED, false);
        if !host.requests.is_empty() {
            let text = text::requests_ended(host.requests.keys());
            draft.note(false, Reason::Deprovisioned, host.requests.keys(), &text);
        }
        draft.finish(Reason::Deprovisioned, Next::Now)
    })
}

fn without_credentials(case: &Case<'_>) -> Option<Decision> {
    (!case.host.credentials).then(|| case.refused(Reason::NoCredentials, text::NO_CREDENTIALS))
}

fn not_provisioned(case: &Case<'_>) -> Option<Decision> {
    use api_types::metal3::ProvisioningState::Other;
    let managed = case.host.state.is_provisioned() || case.online_only;
    (!managed).then(|| {
        let message = match &case.host.state {
            Other(state) => text::unknown_state(state),
            _ => text::NOT_PROVISIONED.to_owned(),
        };
        case.refused(Reason::NotProvisioned, &message)
    })
}

// What does Ironic say?

/// Two hosts with one node would undo each other's holds, so neither is served.
fn shared_node(case: &Case<'_>) -> Option<Decision> {
    let other = case.host.shared_with.as_ref()?;
    let message = text::node_shared(other, &case.host.node);
    // Ironic may give a node another name, of which nobody tells.
    Some(case.refused_until(Reason::NodeShared, &message, Next::After(NODE_RECHECK)))
}

/// Without an answer nothing changes. A host that waits for Ironic says so, one at rest is left alone.
fn ironic_silent(case: &Case<'_>) -> Option<Decision> {
    let (lasting, problem) = match &case.seen.node {
        NodeSeen::Seen(_) => return None,
        // It waits for a free attempt.
        NodeSeen::NotAsked => {
            let next = Next::After(NODE_BUSY_RETRY);
            return Some(Decision { next, ..Decision::rest(Reason::RequestAccepted) });
        }
        NodeSeen::Missing => {
            let message = text::node_not_found(&case.host.node);
            return Some(case.refused(Reason::NodeNotFound, &message));
        }
        NodeSeen::Unanswered { lasting, problem } => (*lasting, problem),
    };
    // Who does not wait is told by the poll, once Ironic is back, and is not counted until then.
    if !case.waits() {
        return Some(Decision::rest(Reason::AtRest));
    }
    let mut draft = Draft::unseen(case);
    if lasting && case.tells() {
        draft.joining(Reason::IronicUnreachable);
    } else if lasting {
        draft.waiting(Reason::IronicUnreachable, problem);
    }
    Some(draft.finish(Reason::IronicUnreachable, Next::After(NODE_BUSY_RETRY)))
}

/// Power has one writer: the operator is paused, or left alone with a host on which it has work to do.
fn take_over(case: &Case<'_>) -> Option<Decision> {
    let host = case.host;
    let provisioned = host.state.is_provisioned();
    if !case.policy.takeover || !provisioned || host.paused != Pause::No {
        return None;
    }
    if let Some(state) = case.being_registered() {
        // Paused in the middle of that, the operator would never come to its end.
        let message = text::node_registering(&host.node, state);
        return Some(case.refused(Reason::NodeRegistering, &message));
    }
    if host.needs_operator {
        return Some(case.refused(Reason::OperatorAtWork, text::OPERATOR_AT_WORK));
    }
    if case.is_out_of_reach() {
        return Some(case.refused(Reason::PowerUnknown, text::OUT_OF_REACH));
    }
    if case.only_node_stays_on() {
        return Some(case.refused(Reason::OperatorAtWork, text::OPERATOR_TELLS_IRONIC));
    }
    let mut draft = Draft::new(case);
    draft.annotate(PAUSED, Some(PAUSED_BY_BMO_REBOOT));
    draft.tell(Reason::TakenOver, text::TAKEN_OVER);
    Some(draft.finish(Reason::TakenOver, Next::Now))
}

/// What is written of a host that was to be taken over, where somebody refuses the pause: like any other that is not ours. Nobody
/// looks after a machine that was held off until then.
pub fn not_taken_over(seen: &Observed, policy: &Policy, now: Timestamp) -> Decision {
    let refused = |case: Case<'_>| case.refused(Reason::Refused, text::TAKE_OVER_REFUSED);
    Case::of(seen, policy, now).map_or_else(|| Decision::rest(Reason::Gone), refused)
}

// What is to be done?

/// A hold that comes while the machine is being switched on, or while Ironic does not look at it, finds it shown off. Its
/// client would take that for a fence.
fn withdraw_off(case: &Case<'_>) -> Option<Decision> {
    let coming = case.may_be_coming_on();
    let unseen = case.is_out_of_sight() && !case.is_held_as_before();
    ((coming || unseen) && !case.host.powered_on).then(|| {
        let mut draft = Draft::new(case);
        draft.write.status.powered_on = Some(true);
        let (reason, text) = if coming {
            (Reason::PoweringOn, text::MAY_BE_COMING_ON)
        } else {
            (Reason::PowerUnknown, text::NOT_LOOKED_AT)
        };
        draft.note(false, Reason::PoweredOn, case.requests.holds(), text);
        draft.finish(reason, Next::Now)
    })
}

/// Who holds a machine since before the maintenance of its node is told that nobody sees whether it is still off. It is not asked
/// for off before the end of that: somebody may be at work on it. The same of one that may not be asked.
fn lose_sight(case: &Case<'_>) -> Option<Decision> {
    let may_be_asked = !case.must_stay_on() && !case.host.deleting;
    if !case.is_out_of_sight() || (may_be_asked && !case.is_held_as_before()) {
        return None;
    }
    let lost = (text::out_of_sight(case.requests.holds()), Some(KeySet::of(case.requests.holds())));
    let draft = nobody_sees(case, text::IN_MAINTENANCE, lost);
    Some(draft.finish(Reason::PowerUnknown, Next::OnChange))
}

/// A request of a running machine is stamped, unless the cycle that is under way answers it too.
fn accept(case: &Case<'_>) -> Option<Decision> {
    let node = case.node()?;
    let answered = |request: &Request| {
        case.must_stay_on() && case.recorded(|progress| progress.has_served(&request.key))
    };
    let asked = case.requests.iter().any(|request| !answered(request));
    // Ironic forgets the power of a machine whose management controller is lost, which is when fencing is asked for.
    let runs = case.is_on() || (node.power == Power::Unknown && case.host.powered_on);
    let resetting = node.target == Some(Power::On);
    if !asked || case.in_cycle() || case.host.deleting || !runs || resetting {
        return None;
    }
    // Rounded up: the stamp is a time before which the request was made.
    let asked_before = if case.now == case.exact { case.now } else { second_after(case.now) };
    let last = case.host.last.filter(|last| !is_ahead(case, *last));
    let pending = last.map_or(asked_before, |last| asked_before.max(second_after(last)));
    let mut draft = Draft::new(case);
    draft.accept(pending);
    if last != case.host.last {
        draft.correct_stamps();
    }
    let begun = Host { pending: Some(pending), last, ..case.host.clone() };
    let next = Case { host: &begun, record: Kept::Absent, ..*case };
    if !case.must_stay_on() {
        return Some(go_off(&next, draft, node));
    }
    // Another soft one would fail, too.
    let hopeless = case.recorded(|it| it.reset == Some(Reset::Failed { hard: false }));
    Some(reset(&next, draft, node, hopeless))
}

/// The stamp of a power-on is later than that of its request, so one that was accepted by a wrong clock would spoil both.
fn correct_stamps(case: &Case<'_>) -> Option<Decision> {
    let pending = case.host.pending.filter(|_| case.in_cycle())?;
    is_ahead(case, pending).then(|| {
        let mut draft = Draft::unseen(case);
        draft.write.status.pending = Some(case.now);
        draft.correct_stamps();
        draft.finish(Reason::StampsCorrected, Next::Now)
    })
}

/// A cycle that was begun, or `spec.online`, asks for off, and the machine is not; or it seems so and that is doubtful.
fn switch_off(case: &Case<'_>) -> Option<Decision> {
    let node = case.node()?;
    // A machine that was seen off and not on since is not asked once more because its management controller is lost.
    let lost = node.power == Power::Unknown && node.target.is_none() && !case.host.powered_on;
    if case.is_off() || lost {
        return None;
    }
    let draft = Draft::new(case);
    if case.must_stay_on() {
        return case.in_cycle().then(|| reset(case, draft, node, false));
    }
    let wanted = case.in_cycle() || !case.host.online || case.shows(Node::shows_off);
    // A machine that is just being switched on is not caught in the middle of it.
    let turning_on = node.target == Some(Power::On) && !case.in_cycle();
    (wanted && !turning_on && !case.host.deleting).then(|| go_off(case, draft, node))
}

/// Off, and somebody wants it to stay so.
fn hold(case: &Case<'_>) -> Option<Decision> {
    // A host that is being deleted is not asked for: it goes back to its operator, and says nothing to who holds it.
    if !case.is_off() || !case.is_held() || case.is_unproven() {
        return None;
    }
    let mut draft = Draft::new(case);
    draft.no_trouble();
    let sight = case.is_in_maintenance().then_some(Sight::AskedOff);
    let held = KeySet::of(case.requests.holds());
    let step = draft.step_at_off(Reason::HeldOff);
    let progress = RebootProgress { rebooting: true, held, sight, ..step };
    draft.progress(progress, &text::held_off(case.requests.holds()));
    // The plain request is answered by the machine being off. It goes only after everybody could see that.
    let shown = draft.shows_off();
    if shown && case.host.online && case.host.requests.plain().is_some() {
        draft.annotate(REBOOT, None);
        if !case.in_cycle() {
            draft.tell(Reason::Answered, text::ANSWERED);
        }
    }
    Some(draft.finish(Reason::HeldOff, if shown { Next::OnChange } else { Next::Now }))
}

/// Off, nobody holds it, and it is to be on.
fn switch_on(case: &Case<'_>) -> Option<Decision> {
    let node = case.node()?;
    if !case.is_off() || !case.host.online || case.host.deleting {
        return None;
    }
    let mut draft = Draft::new(case);
    let rebooting = case.in_cycle() || case.recorded(|progress| progress.rebooting);
    if !draft.shows_off() {
        draft.no_trouble();
        // Somebody may hold it before it is asked to be on again.
        let (doubt, step) = (case.doubt(), draft.step_at_off(Reason::PoweredOff));
        draft.progress(RebootProgress { rebooting, doubt, ..step }, text::OFF);
        return Some(draft.finish(Reason::PoweredOff, Next::Now));
    }
    if let Some(problem) = case.failed_power_on(node) {
        return Some(draft.retried(false, problem));
    }
    if let Some(wait) = still_waiting(case, false) {
        return Some(draft.finish(Reason::PowerFailed, Next::After(wait)));
    }
    if let Some(wait) = still_early(case) {
        return Some(draft.finish(Reason::PoweredOff, Next::After(wait)));
    }
    if case.requests.plain().is_some() {
        draft.annotate(REBOOT, None);
        if !rebooting {
            draft.tell(Reason::Answered, text::ANSWERED);
        }
    }
    // Ahead, or a hold would not know of a call whose answer is lost; and not again for every try.
    let retried = case.recorded(RebootProgress::waits_for_ironic);
    let stands = |last| last <= case.exact && case.age(last) < STAMP_REUSE;
    let stamped = retried
        && case.requests.is_empty()
        && !case.in_cycle()
        && case.host.last.is_some_and(stands);
    if !case.online_only && !stamped {
        draft.write.status.last = Some(last_stamp(case));
        if [case.host.pending, case.host.last].into_iter().flatten().any(|it| is_ahead(case, it)) {
            draft.correct_stamps();
        }
    }
    if !retried && !case.is(Reason::PowerFailed) && !case.is(Reason::PoweringOn) {
        draft.tell(Reason::PoweringOn, text::COMES_ON);
    }
    if !retried {
        let doubt = node.last_error.is_some().then_some(Doubt::EarlierFailure);
        let progress = RebootProgress { rebooting, doubt, ..draft.step(Reason::PoweringOn) };
        draft.progress(progress, text::COMES_ON);
    }
    Some(draft.ask(Call::On))
}

/// Nothing is to be done, or it is Ironic's turn.
fn rest(case: &Case<'_>) -> Option<Decision> {
    let node = case.node()?;
    let mut draft = Draft::new(case);
    if node.target.is_some() {
        return Some(draft.finish(case.reason().unwrap_or(Reason::AtRest), case.ironics_turn()));
    }
    if node.power == Power::Unknown {
        let problem = text::POWER_UNKNOWN;
        let next = if case.waits() { Next::After(NODE_RECHECK) } else { Next::OnChange };
        let draft = nobody_sees(case, problem, (problem.to_owned(), None));
        return Some(draft.finish(Reason::PowerUnknown, next));
    }
    if case.shows(Node::shows_off) && !case.is_off() {
        let Some(problem) = node.last_error.as_ref().filter(|_| case.may_have_come_on(node)) else {
            return Some(draft.finish(Reason::AtRest, Next::After(OFF_CONFIRM_DELAY)));
        };
        // All others are asked for off. Of these nobody knows more until Ironic finds them on, or the hold goes.
        let told = text::may_be_on(problem, case.must_stay_on());
        if case.failed_power_on(node).is_some() {
            draft.fail(draft.failure(), &told);
        } else {
            draft.phase(Reason::PowerFailed, false, &text::failed(&told));
        }
        return Some(draft.finish(Reason::PowerFailed, Next::OnChange));
    }
    let progress = case.progress();
    // Which holds were answered by a reset must not be forgotten, or they are answered again and again. One that is gone
    // is: should it come back, somebody asks anew.
    let served = |key: &&str| progress.is_some_and(|progress| progress.has_served(key));
    let served = KeySet::of(case.requests.holds().filter(served));
    if let (Some(progress), Some(problem), true) = (progress, &node.last_error, case.must_stay_on())
    {
        if let Some(Reset::Taken { hard }) = progress.reset {
            let reset = Some(Reset::Failed { hard });
            let step = RebootProgress { hard: true, reset, served, ..draft.failure() };
            draft.fail(step, &text::reset_failed(hard, problem));
            return Some(draft.finish(Reason::PowerFailed, Next::OnChange));
        }
        if progress.reason == Reason::PowerFailed && case.was_hard() {
            let problem = match progress.reset {
                Some(Reset::Failed { hard }) => text::reset_failed(hard, problem),
                _ => problem.clone(),
            };
            let what = case.change(true, &text::failed(&problem));
            draft.progress(RebootProgress { served, ..progress.clone() }, &what);
            return Some(draft.finish(Reason::PowerFailed, Next::OnChange));
        }
    }
    draft.no_trouble();
    let begun = progress.is_some_and(|RebootProgress { rebooting, reason, .. }| {
        *rebooting || reason.is_phase() || reason.is_refusal() || *reason == Reason::PoweredOff
    });
    let refused = case.must_stay_on() && case.is(Reason::HoldUnsupported);
    if case.is_off() && (begun || case.in_cycle()) {
        let step = draft.step_at_off(Reason::Offline);
        draft.progress(RebootProgress { doubt: case.doubt(), ..step }, text::STAYS_OFF);
        return Some(draft.finish(Reason::Offline, Next::OnChange));
    }
    if case.must_stay_on() && !served.is_empty() {
        let progress = RebootProgress { served, ..draft.step(Reason::HoldUnsupported) };
        draft.progress(progress, &text::hold_unsupported(case.host.disable_power_off));
    } else if case.must_stay_on() && !case.host.online {
        let progress = draft.step(Reason::HoldUnsupported);
        draft.progress(progress, &text::off_unsupported(case.host.disable_power_off));
    } else if begun || (refused && !case.is_held()) {
        let completed = draft.step(Reason::Completed);
        draft.progress(completed, text::ON);
        if progress.is_some_and(|progress| progress.rebooting) {
            draft.tell(Reason::Completed, text::COMPLETED);
        }
    }
    Some(draft.finish(Reason::AtRest, Next::OnChange))
}

/// Nobody is to rely on a machine being off that nobody sees. Those who hold it are told the `lost` text, and remembered by
/// their keys where these are known to have been served; `problem` is for everybody else.
fn nobody_sees<'a>(
    case: &'a Case<'a>,
    problem: &str,
    (lost, held): (String, Option<KeySet>),
) -> Draft<'a> {
    let mut draft = Draft::new(case);
    if let (Some(since), true) = (case.held_since(), case.is_held()) {
        if case.is(Reason::HeldOff) {
            draft.warn(Reason::PowerUnknown, problem);
        }
        let (rebooting, sight) = (case.in_cycle(), Some(Sight::Lost { since, held }));
        let step = draft.step_at_off(Reason::PowerUnknown);
        draft.progress(RebootProgress { rebooting, sight, ..step }, &lost);
    } else if !case.tells() {
        // Also of a machine at rest: nobody could fence it.
        draft.waiting(Reason::PowerUnknown, problem);
    }
    draft
}

#[cfg(test)]
mod tests;
