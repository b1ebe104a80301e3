//! What Ironic's answer to a call means for the record.

use k8s_openapi::jiff::Timestamp;

use crate::case::Case;
use crate::config::Policy;
use crate::decide::{BUSY, off_delay, on_delay};
use crate::decision::{Again, Answer, Call, Decision};
use crate::draft::Draft;
use crate::power_off::{NO_ROOM, hard_message, is_first_slice, was_reset};
use crate::reason::Reason;
use crate::record::{Record, Soft};
use crate::seen::{Host, NodeSeen};

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
                Call::SoftOff(_) if clean && is_first_slice(&case) => {}
                Call::SoftOff(_) => {
                    let begun = case.soft().or_else(|| case.soft_ahead());
                    let since = begun.map_or(case.now, |soft| soft.since);
                    draft.attempted(Some(Soft { since, last: case.now }));
                    draft.phase(Reason::SoftPowerOff, false, &case.soft_message(since));
                }
                Call::HardOff => draft.phase(Reason::HardPowerOff, true, &hard_message(&case)),
                Call::On => switching_on(&case, &mut draft, false, false),
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
            draft.not_taken(call, clean, Reason::RequestAccepted, NO_ROOM);
            draft.finish(Reason::RequestAccepted, Again::After(BUSY))
        }
        Answer::Unsupported if !hard && call != Call::On => {
            draft.escalated(Some("its driver cannot ask the operating system"));
            let message = "comes next: the driver has no soft power-off";
            draft.phase(Reason::RequestAccepted, true, message);
            draft.finish(Reason::SoftPowerOffFailed, Again::Now)
        }
        Answer::Unsupported => refused(host, draft, call, "the driver does not support it"),
        Answer::Refused(why) => refused(host, draft, call, why),
        Answer::Unknown => {
            // It may be on its way. Where it was waited for before, nothing was written down ahead of the call.
            let waited = clean && case.record.as_ref().is_some_and(Record::waits_for_ironic);
            match call {
                Call::On => switching_on(&case, &mut draft, case.was_hard(), !clean),
                Call::SoftOff(_) if waited && !case.was_hard() => {
                    let since = case.soft().map_or(case.now, |soft| soft.since);
                    draft.phase(Reason::SoftPowerOff, false, &case.soft_message(since));
                }
                Call::HardOff if waited && case.was_hard() => {
                    draft.phase(Reason::HardPowerOff, true, &hard_message(&case));
                }
                _ => {}
            }
            draft.finish(Reason::Managed, Again::Watch)
        }
    }
}

/// `earlier`: the failure that the node shows may be older than this power-on.
fn switching_on(case: &Case<'_>, draft: &mut Draft<'_>, hard: bool, earlier: bool) {
    let rebooting = case.record.as_ref().is_some_and(|record| record.rebooting);
    draft.record(rebooting, Reason::PoweringOn, hard, &Record::on_message(earlier));
}

fn refused(host: &Host, mut draft: Draft<'_>, call: Call, why: &str) -> Decision {
    let count = draft.failed(call != Call::On, why);
    let delay = if call == Call::On { on_delay(&host.trouble, count) } else { off_delay(count) };
    draft.finish(Reason::PowerFailed, Again::After(delay))
}
