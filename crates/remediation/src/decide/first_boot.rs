//! What is waited for before the first try: a host that was installed, allowed to be on, or ready with its firmware only after
//! somebody had asked for it.
//!
//! A health check that knows no node counts from the Machine's making while the host is being installed, and anew once it is.
//! What it asked for meanwhile it does not withdraw then. To go on with that as soon as the host is installed would cut off its
//! first boot, and with each try one more, until the machine is given up; and so with the next one.

use std::time::Duration;

use super::attempt::POLL;
use super::{Case, GRACE, node, wait};
use crate::decision::{Act, Decision};
use crate::reason::Reason;
use crate::request::{Said, Standing};
use crate::seen::NodeSeen;
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
    // Who waits for another member of its control plane has had its time to boot.
    let is_refusal = |it: Reason| it.is_refusal() && it != Reason::MemberInTry;
    let said = case.standing.said.as_ref().filter(|it| is_refusal(it.reason))?;
    let is_tried = case.standing.phase.is_some() || case.seen.last().is_some();
    let was_begun = said.reason == REASON || boots_after(said.reason);
    // Whatever else it was refused for: where there was never a node, nothing says that the host has booted.
    if is_tried || case.request.finalizer || !(was_begun || machine.node.is_none()) {
        return None;
    }
    let begun = case.standing.since.filter(|_| said.reason == REASON);
    let (since, time) = (begun.unwrap_or(case.now), case.long());
    let rest = Decision::rest(REASON);
    let Some(left) = case.left(since, time) else {
        // A person wants a power cycle of a node that is ready as well.
        case.request.owner.as_ref()?;
        // It may have come up long ago: a health check withdraws nothing while too many of its machines fail.
        return match (machine.healthy?, node::has_come_up(case, machine, since)) {
            (true, _) => Some(rest),
            (false, None) => Some(Decision::look_at_node(REASON)),
            (false, Some(true)) => Some(rest.again(GRACE)),
            (false, Some(false)) => unseen(case, said, time),
        };
    };
    let until = since.checked_add(time).unwrap_or(since);
    Some(wait(case, Said::no(REASON, text::booting(&host.name, until))).again(left))
}

/// Its time is over, and its node cannot be looked at: it is not known yet whether it has come up. That is said once, since
/// nobody may have been at work when the time was over, and a little later it counts as not up.
fn unseen(case: &Case<'_>, said: &Said, time: Duration) -> Option<Decision> {
    let NodeSeen::NoAccess(_) = &case.seen.node else { return None };
    let (rest, fence) = (Decision::rest(REASON), case.policy.fence);
    if said.succeeded.is_none() {
        let left = case.left(case.standing.since?, time + fence)?;
        return Some(rest.again(left.min(POLL.1)));
    }
    let until = case.now.checked_add(fence).unwrap_or(case.now);
    let said = case.standing.saying(None, REASON, text::boot_unseen(&node::but(case), until));
    // As if its time had run out just now.
    let since = case.now.checked_sub(time).ok().or(Some(case.now));
    Some(rest.act(Act::Say(Standing { since, ..said })).again(fence.min(POLL.0)))
}
