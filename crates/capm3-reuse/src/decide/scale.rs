//! How many machines there are to be where replicas follow hosts.

use controller_kit::engine::{Event, Next, Reason as _};

use super::step;
use crate::model::{Decision, ScaledSeen, Write};
use crate::reason::Reason;
use crate::reservation::fingerprint;
use crate::settings::Policy;
use crate::text;

pub(super) fn is_halted(seen: &ScaledSeen) -> Option<Decision> {
    seen.is_halted.then(|| leaves(Reason::ScalingHalted, text::SCALE_HALTED))
}

pub(super) fn is_not_understood(seen: &ScaledSeen) -> Option<Decision> {
    Some(leaves(Reason::ScalingInvalid, seen.bounds.as_ref().err()?))
}

pub(super) fn is_scaled_elsewhere(seen: &ScaledSeen) -> Option<Decision> {
    Some(leaves(Reason::ScaledElsewhere, &text::scaled_elsewhere(seen.scaled_by?)))
}

pub(super) fn has_no_template(seen: &ScaledSeen) -> Option<Decision> {
    Some(leaves(Reason::ScalingTemplateInvalid, seen.hosts.as_ref().err()?))
}

pub(super) fn is_contested(seen: &ScaledSeen) -> Option<Decision> {
    let (host, other) = seen.contested.as_ref()?;
    Some(leaves(Reason::HostsContested, &text::hosts_contested(host, other)))
}

/// One write, once the same number was wanted for long enough.
pub(super) fn follows(seen: &ScaledSeen, policy: &Policy) -> Decision {
    let (Some(replicas), true, Ok(hosts)) = (target(seen), policy.scale_to_hosts, &seen.hosts)
    else {
        return Decision::rest(Reason::FollowsHosts);
    };
    let settled = seen.settled_for.unwrap_or_default();
    if settled < policy.scale_settle {
        let next = Next::After(policy.scale_settle.saturating_sub(settled));
        return Decision { next, ..Decision::rest(Reason::ScalingSoon) };
    }
    let text = text::scaled(seen.replicas, replicas, hosts);
    step(Write::Scale { replicas }, Reason::Scaled, on_workers(Reason::Scaled, &text))
}

/// How many replicas there are to be, if not as many as now. Up it goes by what the next machines would take now. Down it goes
/// only past hosts that may come back as well: one that is ill has its own remediation.
pub(super) fn target(seen: &ScaledSeen) -> Option<i32> {
    let (Ok(bounds), Ok(hosts)) = (&seen.bounds, &seen.hosts) else { return None };
    let within = |hosts: i32| hosts.min(bounds.max).max(bounds.min);
    let now = hosts.taken.saturating_add(hosts.free);
    let (least, most) = (within(now), within(now.saturating_add(hosts.unready)));
    if seen.replicas < least {
        Some(least)
    } else {
        (bounds.down && seen.replicas > most).then_some(most)
    }
}

/// Replicas are left as they are, which is told once for each cause.
fn leaves(reason: Reason, text: &str) -> Decision {
    let events = vec![Event { hourly: Some(fingerprint(text)), ..on_workers(reason, text) }];
    Decision { events, ..Decision::rest(reason) }
}

fn on_workers(reason: Reason, text: &str) -> Event {
    Event::new(reason.is_warning(), reason.as_str(), "Scale", text)
}
