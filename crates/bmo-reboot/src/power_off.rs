//! The way to off, step by step: softly in slices, then hard, again and again if need be. And the one reset of a machine
//! that must not be switched off.

use std::time::Duration;

use api_types::metal3::KeySet;
use api_types::names::metal3::REBOOT;
use controller_kit::engine::Next;

use crate::case::Case;
use crate::draft::Draft;
use crate::model::{Call, Decision, Node, OFF_CONFIRM_DELAY, OffProof};
use crate::reason::Reason;
use crate::record::{RebootProgress, Reset, Soft};
use crate::text;
use crate::waits::{last_stamp, still_early, still_waiting};

/// One step closer to off: wait, ask the operating system, or cut the power.
pub(crate) fn go_off(case: &Case<'_>, mut draft: Draft<'_>, node: &Node) -> Decision {
    let progress = case.progress();
    let asked = case.host.in_cycle() || case.is_held();
    let any_hard = asked && case.requests.any_hard();
    let was_hard = case.was_hard();
    if node.target.is_some() {
        if progress.is_none_or(|progress| progress.reason.is_refusal()) {
            let hard = any_hard || was_hard;
            draft.phase(Reason::RequestAccepted, hard, text::WAITS_FOR_CHANGE);
        }
        // One that Ironic never ends is overdue by what was asked for.
        let reason = case.reason().filter(|it| it.is_phase()).unwrap_or(Reason::RequestAccepted);
        return draft.finish(reason, case.ironics_turn());
    }
    if case.shows(Node::shows_off) && !case.off_may_have_failed(node) {
        return draft
            .finish(case.reason().unwrap_or(Reason::AtRest), Next::After(OFF_CONFIRM_DELAY));
    }
    // The soft attempt that Ironic has certainly taken. Of one that was only written down a failure shows that: nothing is
    // written ahead where there is one already. Without a failure it may be one that was never made, or one of which Ironic
    // has lost the failure: its time goes on while there is enough for another slice, and after that it counts as never made.
    let taken = case.soft().or_else(|| case.soft_ahead().filter(|_| node.last_error.is_some()));
    let has_time =
        |soft: &Soft| case.age(soft.since) + case.policy.soft_slice <= case.policy.soft_timeout;
    let begun = taken.or_else(|| case.soft_ahead().filter(has_time));
    draft.soft = taken;
    if begun.is_none() {
        // One that is begun afresh has its whole time.
        draft.progress = draft.progress.filter(|it| it.reason != Reason::SoftPowerOff);
    }
    if let Some(why) = &node.engaged {
        return draft.deferred(Reason::NodeBusy, why);
    }
    let exhausted = taken.is_some_and(|soft| is_exhausted(case, soft, node));
    if any_hard || was_hard || exhausted {
        return cut(case, draft, node, exhausted);
    }
    if !case.seen.soft_free {
        return draft.deferred(Reason::RequestAccepted, text::NO_ROOM);
    }
    let used = begun.map_or(Duration::ZERO, |soft| case.age(soft.since));
    let left = case.policy.soft_timeout.saturating_sub(used);
    let retried = progress.is_some_and(|it| !it.hard && it.waits_for_ironic());
    // Written ahead only where the failure that the node shows cannot be taken for the one of this attempt.
    if node.last_error.is_none() && !retried {
        let message = case.softly(begun.map_or(case.now, |soft| soft.since));
        draft.phase(Reason::SoftPowerOff, false, &message);
    } else if !case.reason().is_some_and(Reason::is_phase) {
        draft.phase(Reason::RequestAccepted, false, text::COMES_NEXT);
    }
    draft.ask(Call::SoftOff(left.min(case.policy.soft_slice)))
}

/// Has Ironic look at a machine that somebody holds and that it shows off: what it shows is as old as its last look, and somebody
/// may have started the machine by its button since, or the machine may still be shutting down. For one that is off this changes
/// nothing, so nothing is written down ahead of it.
pub(crate) fn prove_off(case: &Case<'_>) -> Option<Decision> {
    let asks = case.is_off() && case.is_unproven() && !case.host.deleting;
    let node = case.node().filter(|_| asks)?;
    let draft = Draft::unseen(case);
    let hard = case.was_hard() || case.requests.any_hard();
    let call = if hard { Call::Off } else { Call::SoftOff(case.policy.soft_slice) };
    if let Some(why) = &node.engaged {
        return Some(draft.not_taken(call, true, Reason::NodeBusy, why));
    }
    match (node.off_proof, &node.last_error) {
        (OffProof::Failed, Some(problem)) => return Some(draft.retried(true, problem)),
        (OffProof::Once(left), _) if !left.is_zero() => {
            return Some(draft.finish(Reason::of_call(call), Next::After(left)));
        }
        _ => {}
    }
    if let Some(wait) = still_waiting(case, true) {
        return Some(draft.finish(Reason::PowerFailed, Next::After(wait)));
    }
    Some(draft.ask(call))
}

/// Whether a slice that Ironic took needs no other record than the one ahead of it: it is the first, and there is time for
/// another look before all of its time is over. A later slice is written down in any case, or nothing would end an attempt
/// of which Ironic always loses the failure.
pub(crate) fn is_first_slice(case: &Case<'_>) -> bool {
    let several = case.policy.soft_slice * 3 <= case.policy.soft_timeout;
    several && case.soft_ahead().is_some_and(|soft| case.age(soft.since) < case.policy.soft_slice)
}

/// What Ironic says of a change that ended with the conductor that made it, which was restarted or whose place another one
/// took.
const ABORTED: &str = "aborted due to conductor";

/// Whether a soft attempt has had its chance: all of its time, or a slice that was refused. Ironic waits between its looks
/// for half as long again each time, and gives up where the next one would come too late: after half of a slice at the
/// earliest. What failed before was no lack of time. A machine whose conductor has ended refused nothing: it may be
/// shutting down.
fn is_exhausted(case: &Case<'_>, soft: Soft, node: &Node) -> bool {
    let before = case.age(soft.since).saturating_sub(case.age(soft.last));
    let slice = case.policy.soft_timeout.saturating_sub(before).min(case.policy.soft_slice);
    let failed = node.last_error.as_ref().is_some_and(|error| !error.contains(ABORTED));
    let refused = failed && case.age(soft.last) < slice / 2;
    case.age(soft.since) >= case.policy.soft_timeout || refused
}

/// Cuts the power, again and again if need be.
fn cut(case: &Case<'_>, mut draft: Draft<'_>, node: &Node, exhausted: bool) -> Decision {
    let failed = case.is(Reason::HardPowerOff).then_some(node.last_error.as_ref()).flatten();
    let progress = case.progress();
    if let Some(problem) = failed {
        return draft.retried(true, problem);
    }
    // What is waited for after a power-on that failed is the next one.
    if let Some(wait) = still_waiting(case, true).filter(|_| case.was_hard()) {
        return draft.finish(Reason::PowerFailed, Next::After(wait));
    }
    if let Some(left) = node.spared {
        return draft.finish(Reason::HardPowerOff, Next::After(left));
    }
    if exhausted {
        draft.escalated(node.last_error.as_deref());
        draft.write.escalates = true;
    }
    let retried = progress.is_some_and(|it| it.hard && it.waits_for_ironic());
    if node.last_error.is_none() && !retried {
        draft.phase(Reason::HardPowerOff, true, text::WAS_ASKED);
    } else if !progress.is_some_and(|progress| progress.hard && progress.reason.is_phase()) {
        draft.phase(Reason::RequestAccepted, true, text::COMES_NEXT);
    }
    draft.ask(Call::Off)
}

/// One reset for a stamp, never an off. The node's own time of change tells whether Ironic took a call whose answer
/// was lost. `hopeless`: that a soft one need not be tried.
pub(crate) fn reset(
    case: &Case<'_>,
    mut draft: Draft<'_>,
    node: &Node,
    hopeless: bool,
) -> Decision {
    let progress = case.progress();
    let asked = progress.filter(|progress| progress.reason == Reason::Restarting);
    let hard = hopeless
        || case.requests.any_hard()
        || progress.is_some_and(|progress| progress.reason.is_phase() && progress.hard);
    match asked {
        Some(progress) if !progress.is_untouched(node.changed.as_deref()) => {
            if let (None, Some(problem)) = (node.target, &node.last_error) {
                return draft.retried(true, problem);
            }
            was_reset(case, &mut draft);
            return draft.finish(Reason::Restarting, case.ironics_turn());
        }
        _ if node.target.is_some() => return draft.finish(Reason::Restarting, case.ironics_turn()),
        _ => {}
    }
    if let Some(why) = &node.engaged {
        draft.hard |= hopeless;
        return draft.deferred(Reason::NodeBusy, why);
    }
    if let Some(wait) = still_waiting(case, true) {
        return draft.finish(Reason::PowerFailed, Next::After(wait));
    }
    // Its stamp is not to lie after the machine is on again.
    if let Some(wait) = still_early(case) {
        draft.phase(Reason::RequestAccepted, hard, text::WAITS_FOR_SECOND);
        return draft.finish(Reason::RequestAccepted, Next::After(wait));
    }
    let asked = Some(Reset::Asked { changed: node.changed.clone() });
    let step = draft.step(Reason::Restarting);
    let what = case.change(hard, text::RESET_WAS_ASKED);
    draft.progress(RebootProgress { rebooting: true, hard, reset: asked, ..step }, &what);
    draft.ask(if hard { Call::Reboot } else { Call::SoftReboot(case.policy.soft_timeout) })
}

/// Ironic has taken the reset: the requests are answered as far as they can be.
pub(crate) fn was_reset(case: &Case<'_>, draft: &mut Draft<'_>) {
    if case.host.requests.plain().is_some() {
        draft.annotate(REBOOT, None);
    }
    draft.write.status.last = Some(last_stamp(case));
    draft.no_trouble();
    let hard = case.progress().is_none_or(|progress| progress.hard);
    let reason = if case.is_held() { Reason::Restarting } else { Reason::PoweringOn };
    let (reset, served) = (Some(Reset::Taken { hard }), KeySet::of(case.requests.holds()));
    let progress = RebootProgress { rebooting: true, reset, served, ..draft.step(reason) };
    draft.progress(progress, text::RESET_TAKEN);
    if case.is_held() {
        let text = text::hold_unsupported(case.host.disable_power_off);
        draft.note(true, Reason::HoldUnsupported, case.requests.holds(), &text);
    }
}
