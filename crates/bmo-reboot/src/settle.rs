//! What Ironic's answer to a call means for the record.

use controller_kit::engine::Next;
use k8s_openapi::jiff::Timestamp;

use crate::case::Case;
use crate::draft::Draft;
use crate::model::{Answer, Call, Decision, Observed};
use crate::power_off::{is_first_slice, was_reset};
use crate::reason::Reason;
use crate::record::{Doubt, RebootProgress, Soft};
use crate::settings::Policy;
use crate::text;

/// What to write down about Ironic's answer to a call, of the host as our own write before the call left it.
pub fn settle(
    seen: &Observed,
    (call, answer): (Call, &Answer),
    policy: &Policy,
    now: Timestamp,
) -> Decision {
    let Some(case) = Case::of(seen, policy, now) else { return Decision::rest(Reason::Gone) };
    let mut draft = Draft::unseen(&case);
    let clean = case.node().is_none_or(|node| node.last_error.is_none());
    match answer {
        Answer::Accepted => {
            match call {
                // It only has Ironic look.
                Call::SoftOff(_) | Call::Off if case.is_off() && case.is_unproven() => {}
                Call::SoftOff(_) if clean && is_first_slice(&case) => {}
                Call::SoftOff(_) => {
                    let begun = case.soft().or_else(|| case.soft_ahead());
                    let since = begun.map_or(case.now, |soft| soft.since);
                    draft.soft = Some(Soft { since, last: case.now });
                    draft.phase(Reason::SoftPowerOff, false, &case.softly(since));
                }
                Call::Off => draft.phase(Reason::HardPowerOff, true, text::WAS_ASKED),
                Call::On => switching_on(&case, &mut draft, false, None),
                Call::Reboot | Call::SoftReboot(_) => was_reset(&case, &mut draft),
            }
            draft.finish(Reason::Managed, case.ironics_turn())
        }
        Answer::Busy(why) => draft.not_taken(call, clean, Reason::NodeBusy, why),
        Answer::Unreachable(why) => draft.not_taken(call, clean, Reason::IronicUnreachable, why),
        Answer::NoRoom => draft.not_taken(call, clean, Reason::RequestAccepted, text::NO_ROOM),
        Answer::Unsupported if call.is_soft() => {
            draft.escalated(Some(text::NO_SOFT_POWER_OFF));
            draft.phase(Reason::RequestAccepted, true, text::COMES_NEXT);
            draft.finish(Reason::SoftPowerOffFailed, Next::Now)
        }
        Answer::Unsupported => draft.retried(call != Call::On, text::UNSUPPORTED),
        Answer::Refused(why) => draft.retried(call != Call::On, why),
        Answer::Unknown => {
            // It may be on its way. Where it was waited for before, nothing was written down ahead of the call.
            let waited = clean && case.recorded(RebootProgress::waits_for_ironic);
            match call {
                Call::On => {
                    let doubt = (!clean).then_some(Doubt::EarlierFailure);
                    switching_on(&case, &mut draft, case.was_hard(), doubt);
                }
                Call::SoftOff(_) if waited && !case.was_hard() => {
                    let since = case.soft().map_or(case.now, |soft| soft.since);
                    draft.phase(Reason::SoftPowerOff, false, &case.softly(since));
                }
                Call::Off if waited && case.was_hard() => {
                    draft.phase(Reason::HardPowerOff, true, text::WAS_ASKED);
                }
                _ => {}
            }
            draft.finish(Reason::Managed, case.ironics_turn())
        }
    }
}

fn switching_on(case: &Case<'_>, draft: &mut Draft<'_>, hard: bool, doubt: Option<Doubt>) {
    let rebooting = case.recorded(|progress| progress.rebooting);
    let step = draft.step(Reason::PoweringOn);
    draft.progress(RebootProgress { rebooting, hard, doubt, ..step }, text::COMES_ON);
}
