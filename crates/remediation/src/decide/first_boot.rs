//! What is waited for before the first try: a host that was installed, allowed to be on, or ready with its firmware only after
//! somebody had asked for it.
//!
//! A health check that knows no node counts from the Machine's making while the host is being installed, and anew once it is.
//! What it asked for meanwhile it does not withdraw then. To go on with that as soon as the host is installed would cut off its
//! first boot, and with each try one more, until the machine is given up; and so with the next one.

use super::{Case, wait};
use crate::decision::Decision;
use crate::reason::Reason;
use crate::request::Said;
use crate::text;

const REASON: Reason = Reason::HostBooting;

/// Whether a host may be booting just when this is no longer in the way.
pub(super) fn boots_after(reason: Reason) -> bool {
    use Reason::{HostHeld, HostNotProvisioned, HostOffline, HostServicing, HostUnreachable};
    [HostNotProvisioned, HostOffline, HostServicing, HostHeld, HostUnreachable].contains(&reason)
}

/// The request was refused, and its host may be booting since that is over. One full time is left for that.
pub(super) fn await_first_boot(case: &Case<'_>) -> Option<Decision> {
    // While its firmware is changed, that is said, and its boot is still to come.
    let (host, machine) = (case.own_host().filter(|it| !it.servicing)?, case.machine()?);
    // Who waits for another member of its control plane, or was ready, has had its time to boot.
    let has_booted = |it: Reason| matches!(it, Reason::MemberInTry | Reason::NodeReady);
    let said = case.said().filter(|it| it.is_refusal() && !has_booted(*it))?;
    let is_tried = case.standing.phase.is_some() || case.seen.last().is_some();
    let was_begun = said == REASON || boots_after(said);
    // Whatever else it was refused for: where there was never a node, nothing says that the host has booted.
    if is_tried || case.request.finalizer || !(was_begun || machine.node.is_none()) {
        return None;
    }
    let begun = case.standing.since.filter(|_| said == REASON);
    let (since, time) = (begun.unwrap_or(case.now), case.long());
    // Whether it has come up by then is looked at like that of any other request that has waited.
    let left = case.left(since, time)?;
    let until = since.checked_add(time).unwrap_or(since);
    Some(wait(case, Said::no(REASON, text::booting(&host.name, until))).again(left))
}
