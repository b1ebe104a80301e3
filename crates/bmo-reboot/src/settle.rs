//! What Ironic's answer to a call means for the record.

use k8s_openapi::jiff::Timestamp;

use crate::case::Case;
use crate::config::Policy;
use crate::decision::{Again, Answer, Call, Decision};
use crate::draft::Draft;
use crate::model::{Host, NodeSeen};
use crate::power_off::{is_first_slice, was_reset};
use crate::reason::Reason;
use crate::record::{Doubt, RebootProgress, Soft};
use crate::text;
use crate::waits::{BUSY, off_delay, on_delay};

/// What to write down about Ironic's answer to a call. `host` is the host as our own write before the call left it.
pub fn settle(
    host: &Host,
    seen: &NodeSeen,
    (call, answer): (Call, &Answer),
    policy: &Policy,
    now: Timestamp,
) -> Decision {
    let case = Case::of(host, seen, true, policy, now);
    let mut draft = Draft::unseen(&case);
    let hard = matches!(call, Call::HardOff | Call::Reset);
    let clean = case.node().is_none_or(|node| node.last_error.is_none());
    match answer {
        Answer::Accepted => {
            match call {
                // It only has Ironic look.
                Call::SoftOff(_) | Call::HardOff if case.is_off() && case.is_unproven() => {}
                Call::SoftOff(_) if clean && is_first_slice(&case) => {}
                Call::SoftOff(_) => {
                    let begun = case.soft().or_else(|| case.soft_ahead());
                    let since = begun.map_or(case.now, |soft| soft.since);
                    draft.attempted(Some(Soft { since, last: case.now }));
                    draft.phase(Reason::SoftPowerOff, false, &case.soft_message(since));
                }
                Call::HardOff => {
                    draft.phase(Reason::HardPowerOff, true, &text::hard(&case.wanted_by()));
                }
                Call::On => switching_on(&case, &mut draft, false, None),
                Call::Reset | Call::SoftReset(_) => was_reset(&case, &mut draft),
            }
            draft.finish(Reason::Managed, Again::Watch)
        }
        Answer::Busy(why) => {
            if draft.not_taken(call, clean, Reason::NodeBusy, why) {
                draft.tell_busy(why);
            }
            draft.finish(Reason::NodeBusy, Again::After(BUSY))
        }
        Answer::Unreachable(why) => {
            if draft.not_taken(call, clean, Reason::IronicUnreachable, why) {
                draft.warn(Reason::IronicUnreachable, why);
            }
            draft.finish(Reason::IronicUnreachable, Again::After(BUSY))
        }
        Answer::NoRoom => {
            draft.not_taken(call, clean, Reason::RequestAccepted, text::NO_ROOM);
            draft.finish(Reason::RequestAccepted, Again::After(BUSY))
        }
        Answer::Unsupported if !hard && call != Call::On => {
            draft.escalated(Some(text::NO_SOFT_POWER_OFF));
            draft.phase(Reason::RequestAccepted, true, text::HARD_COMES_NEXT);
            draft.finish(Reason::SoftPowerOffFailed, Again::Now)
        }
        Answer::Unsupported => refused(host, draft, call, text::UNSUPPORTED),
        Answer::Refused(why) => refused(host, draft, call, why),
        Answer::Unknown => {
            // It may be on its way. Where it was waited for before, nothing was written down ahead of the call.
            let waited =
                clean && case.progress.as_ref().is_some_and(RebootProgress::waits_for_ironic);
            match call {
                Call::On => {
                    let doubt = (!clean).then_some(Doubt::EarlierFailure);
                    switching_on(&case, &mut draft, case.was_hard(), doubt);
                }
                Call::SoftOff(_) if waited && !case.was_hard() => {
                    let since = case.soft().map_or(case.now, |soft| soft.since);
                    draft.phase(Reason::SoftPowerOff, false, &case.soft_message(since));
                }
                Call::HardOff if waited && case.was_hard() => {
                    draft.phase(Reason::HardPowerOff, true, &text::hard(&case.wanted_by()));
                }
                _ => {}
            }
            draft.finish(Reason::Managed, Again::Watch)
        }
    }
}

fn switching_on(case: &Case<'_>, draft: &mut Draft<'_>, hard: bool, doubt: Option<Doubt>) {
    let rebooting = case.progress.as_ref().is_some_and(|progress| progress.rebooting);
    let step = draft.step(Reason::PoweringOn);
    draft.progress(RebootProgress { rebooting, hard, doubt, ..step }, text::COMES_ON);
}

fn refused(host: &Host, mut draft: Draft<'_>, call: Call, why: &str) -> Decision {
    let count = draft.failed(call != Call::On, why);
    let delay = if call == Call::On { on_delay(&host.trouble, count) } else { off_delay(count) };
    draft.finish(Reason::PowerFailed, Again::After(delay))
}
