//! When a host is kept no longer: never while a machine of its owner will come for it, and never for nobody.

use api_types::metal3::BareMetalHost;
use api_types::names;
use controller_kit::engine::Next;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::release::unwiped;
use super::{RESYNC, complaint, on_host, step};
use crate::host::is_cleared;
use crate::model::{Decision, KeptSeen, Write};
use crate::reason::Reason;
use crate::reservation::{Kept, Owner};
use crate::seen::OwnerSeen;
use crate::settings::Policy;
use crate::text;

/// How many times the grace period a rollout may take without a machine that lacks a host.
const ROLLOUT: u32 = 10;
/// How many seconds a move to another cluster takes at most.
const MOVE: i64 = 3600;

/// Our note beside CAPM3's label proves nothing: CAPM3 leaves it where it is.
pub(super) fn left_to_capm3(seen: &KeptSeen, policy: &Policy) -> Option<Decision> {
    let is_capm3s = matches!(seen.kept, Kept::ByLabel(_)) && !policy.collect_capm3;
    if !is_capm3s {
        return None;
    }
    // The host is free for nobody else until somebody acts.
    let text = text::kept_by_capm3(&seen.host.name_any());
    Some(complaint(Reason::KeptByCapm3, &text))
}

pub(super) fn owner_is_gone(seen: &KeptSeen, _: &Policy) -> Option<Decision> {
    seen.owner.is_none().then(|| free(seen, Reason::OwnerGone, text::OWNER_GONE))
}

pub(super) fn owner_is_unreadable(seen: &KeptSeen, _: &Policy) -> Option<Decision> {
    let why = seen.owner.as_ref()?.unreadable.as_ref()?;
    let text = text::stays_kept(&seen.host.name_any(), why);
    Some(complaint(Reason::OwnerUnreadable, &text))
}

pub(super) fn not_ours(seen: &KeptSeen, _: &Policy) -> Option<Decision> {
    seen.owner.as_ref()?.of_others.then(|| Decision::rest(Reason::NotOurs))
}

pub(super) fn owner_is_paused(seen: &KeptSeen, _: &Policy) -> Option<Decision> {
    seen.owner.as_ref()?.paused.then(|| Decision::rest(Reason::Paused))
}

/// The owner of that name is another one. If it came here together with the host, the reservation names it from now on.
pub(super) fn owner_was_moved(seen: &KeptSeen, _: &Policy) -> Option<Decision> {
    let owner = seen.owner.as_ref()?;
    let (later, born) = owner.later.as_ref()?;
    Some(if came_along(&seen.host, *born, owner.cluster_since) {
        renew(seen, later)
    } else {
        free(seen, Reason::OwnerGone, text::OWNER_REPLACED)
    })
}

pub(super) fn owner_goes(seen: &KeptSeen, _: &Policy) -> Option<Decision> {
    let owner = seen.owner.as_ref()?;
    let ends = [
        (owner.cluster_deleting, Reason::ClusterDeleting, text::CLUSTER_DELETING),
        (owner.deleting, Reason::OwnerDeleting, text::OWNER_DELETING),
        (owner.reuse_off, Reason::ReuseOff, text::REUSE_OFF),
    ];
    let (_, reason, why) = ends.into_iter().find(|(is_so, ..)| *is_so)?;
    Some(free(seen, reason, why))
}

pub(super) fn is_needed(seen: &KeptSeen, _: &Policy) -> Option<Decision> {
    is_wanted(seen).then(|| Decision::rest(Reason::Kept))
}

/// Nobody needs it: it ends after the grace period. A rollout that does not go on is no reason to keep a host for ever.
pub(super) fn awaits_end(seen: &KeptSeen, policy: &Policy) -> Option<Decision> {
    let rolls_out = seen.owner.as_ref()?.rolls_out;
    let settled = seen.settled_for.unwrap_or_default();
    let grace = policy.reservation_grace * if rolls_out { ROLLOUT } else { 1 };
    Some(if settled >= grace {
        free(seen, Reason::NotNeeded, text::NOT_NEEDED)
    } else {
        let next = Next::After(grace.saturating_sub(settled));
        Decision { next, ..Decision::rest(Reason::Kept) }
    })
}

/// An owner that nobody watches is looked at from time to time, where anything depends on it.
pub(super) fn unwatched(seen: &KeptSeen, decision: Decision) -> Decision {
    let is_unwatched = seen.owner.as_ref().is_some_and(|it| it.is_unwatched);
    let depends = decision.writes.is_empty() && decision.reason != Reason::KeptByCapm3;
    if !is_unwatched || !depends {
        return decision;
    }
    let next = match decision.next {
        Next::After(wait) => Next::After(wait.min(RESYNC)),
        Next::Now | Next::OnChange => Next::After(RESYNC),
    };
    Decision { next, ..decision }
}

/// Whether a machine may come for it. The one that is to come may be made only when the one before has given it back: until it
/// is cleared no time counts.
fn is_wanted(seen: &KeptSeen) -> bool {
    !seen.owner.as_ref().is_some_and(has_enough) || !is_cleared(&seen.host)
}

/// Whether no machine of the owner that would take the host waits for one or is missing.
fn has_enough(owner: &OwnerSeen) -> bool {
    let wanted = usize::try_from(owner.replicas).unwrap_or(0);
    !owner.waits && (owner.wants_others || owner.machines >= wanted)
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
    let text = text::moved_along(&host, owner);
    let (keep_for, uid) = (Some(owner.clone()), seen.host.metadata.uid.clone());
    let write = Write::Release { host, keep_for, uid, annotations: Vec::new() };
    step(write, Reason::Kept, on_host(Reason::Kept, &text))
}

/// The host is nobody's, as soon as nothing is on it. Before its operator has looked at it nothing is known of it.
fn free(seen: &KeptSeen, reason: Reason, why: &str) -> Decision {
    if !is_cleared(&seen.host) {
        return Decision::rest(Reason::Kept);
    }
    let host = seen.host.name_any();
    let unwiped = unwiped(seen.host.spec.automated_cleaning_mode.as_deref());
    let text = text::freed(&host, why, unwiped);
    step(Write::Free { host, why: reason }, reason, on_host(reason, &text))
}
