//! When a host is kept no longer: never while a machine of its owner will come for it, and never for nobody.

use std::time::Duration;

use api_types::metal3::BareMetalHost;
use api_types::names;
use api_types::time::until;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::release::{is_cleared, unwiped};
use crate::decision::{Decision, Step};
use crate::reason::Reason;
use crate::reservation::{Kept, Owner};
use crate::seen::{KeptSeen, OwnerSeen};
use crate::settings::Policy;

/// How many times the grace period a rollout may take without a machine that lacks a host.
const ROLLOUT: u32 = 10;
/// How many seconds a move to another cluster takes at most.
const MOVE: i64 = 3600;
/// How soon to look again at an owner that nobody watches.
const LOOK: Duration = Duration::from_secs(300);

/// A host that is kept.
pub(super) fn about_kept(seen: &KeptSeen, policy: &Policy, now: Timestamp) -> Decision {
    if matches!(seen.kept, Kept::ByLabel(_)) && !policy.collect_capm3 {
        // Our note beside it proves nothing: CAPM3 leaves it where it is.
        return Decision::rest(Reason::KeptByCapm3);
    }
    let Some(owner) = &seen.owner else {
        return free(seen, Reason::OwnerGone, "its owner is gone");
    };
    let decision = about_owner(seen, owner, policy, now);
    if owner.is_unwatched && decision.steps.is_empty() {
        let again = decision.again.map_or(LOOK, |again| again.min(LOOK));
        return Decision { again: Some(again), ..decision };
    }
    decision
}

/// A host that is kept for an owner of this name.
fn about_owner(seen: &KeptSeen, owner: &OwnerSeen, policy: &Policy, now: Timestamp) -> Decision {
    if owner.of_others {
        return Decision::rest(Reason::NotOurs);
    }
    if owner.paused {
        return Decision::rest(Reason::Paused);
    }
    if let Some((later, born)) = &owner.later {
        if came_along(&seen.host, *born, owner.cluster_since) {
            return renew(seen, later);
        }
        return free(seen, Reason::OwnerGone, "its owner is gone, and another one has its name");
    }
    if owner.cluster_deleting {
        return free(seen, Reason::ClusterDeleting, "its cluster is being deleted");
    }
    if owner.deleting {
        return free(seen, Reason::OwnerDeleting, "its owner is being deleted");
    }
    if owner.reuse == Some(false) {
        return free(seen, Reason::ReuseOff, "the template of its owner has nodeReuse no longer");
    }
    // The machine that is to come for it may be made only when the one before has given it back: until then no time counts.
    if !is_settled(owner) || !is_cleared(&seen.host) {
        return Decision::rest(Reason::Kept);
    }
    let since = seen.settled_since.unwrap_or(now);
    let settled = until(since, now);
    // A rollout that does not go on is no reason to keep a host for ever.
    let grace = policy.reservation_grace * if owner.rolls_out { ROLLOUT } else { 1 };
    let decision = if settled >= grace {
        free(seen, Reason::NotNeeded, "every machine of its owner has a host or wants another one")
    } else {
        Decision { again: Some(grace.saturating_sub(settled)), ..Decision::rest(Reason::Kept) }
    };
    Decision { settled: true, ..decision }
}

/// Whether no machine of the owner that would take the host waits for one or is missing.
fn is_settled(owner: &OwnerSeen) -> bool {
    let wanted = usize::try_from(owner.replicas).unwrap_or(0);
    owner.without_host.is_empty() && (owner.wants_others || owner.machines >= wanted)
}

/// Whether host, owner and its Cluster came from another cluster together, which gave them new uids. A host that has the uid
/// still with which it was reserved did not: its owner was made anew. Where that uid was not written down, times alone say
/// it: a host that had been here for longer was kept for an owner that had been here, and that one is gone. So it is where a
/// Cluster had been here for longer that makes its owners anew.
fn came_along(host: &BareMetalHost, owner: Timestamp, cluster: Option<Timestamp>) -> bool {
    let reserved = host.annotation(names::ferrite::RESERVED_HOST_UID);
    if reserved.is_some() && reserved == host.metadata.uid.as_deref() {
        return false;
    }
    let Some(born) = &host.metadata.creation_timestamp else { return false };
    let is_soon_after = |before: Timestamp| owner.duration_since(before).as_secs() <= MOVE;
    let was_first = owner <= born.0;
    is_soon_after(born.0) && (was_first || cluster.is_none_or(is_soon_after))
}

/// The reservation names the owner as it is here.
fn renew(seen: &KeptSeen, owner: &Owner) -> Decision {
    let host = seen.host.name_any();
    let message = format!("Host {host} stays kept for {owner}, which was moved here with it");
    let (keep_for, uid) = (Some(owner.clone()), seen.host.metadata.uid.clone());
    Decision {
        steps: vec![Step::Release { host, keep_for, uid, annotations: Vec::new() }],
        message,
        news: true,
        ..Decision::rest(Reason::Kept)
    }
}

/// The host is nobody's, as soon as nothing is on it. Before its operator has looked at it nothing is known of it.
fn free(seen: &KeptSeen, reason: Reason, why: &str) -> Decision {
    if !is_cleared(&seen.host) {
        return Decision::rest(Reason::Kept);
    }
    let name = seen.host.name_any();
    let unwiped = unwiped(seen.host.spec.automated_cleaning_mode.as_deref());
    Decision {
        steps: vec![Step::Free { host: name.clone() }],
        message: format!("Host {name} is kept no longer: {why}{unwiped}"),
        news: true,
        ..Decision::rest(reason)
    }
}
