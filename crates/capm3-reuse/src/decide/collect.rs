//! When a host is kept no longer: never while a machine of its owner will come for it, and never for nobody.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::{Decision, Reason, Step};
use crate::config::Policy;
use crate::reservation::Kept;
use crate::seen::{KeptSeen, OwnerSeen};

/// A host that is kept.
pub(super) fn about_kept(seen: &KeptSeen, policy: &Policy, now: Timestamp) -> Decision {
    if matches!(seen.kept, Kept::ByLabel(_)) && !policy.collect_capm3 {
        return Decision::rest(Reason::KeptByCapm3);
    }
    let Some(owner) = &seen.owner else {
        return free(seen, Reason::OwnerGone, "its owner is gone");
    };
    if owner.paused {
        return Decision::rest(Reason::Paused);
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
    if !is_settled(owner) {
        return Decision::rest(Reason::Kept);
    }
    let since = seen.settled_since.unwrap_or(now);
    let settled = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    if settled >= policy.reservation_grace {
        return free(seen, Reason::NotNeeded, "every machine of its owner has a host");
    }
    let again = Some(policy.reservation_grace.saturating_sub(settled));
    Decision { again, settled: true, ..Decision::rest(Reason::Kept) }
}

/// Whether no machine of the owner will come for a host.
fn is_settled(owner: &OwnerSeen) -> bool {
    let wanted = usize::try_from(owner.replicas).unwrap_or(0);
    owner.without_host.is_empty() && owner.machines >= wanted && !owner.rolls_out
}

fn free(seen: &KeptSeen, reason: Reason, why: &str) -> Decision {
    let name = seen.host.name_any();
    Decision {
        steps: vec![Step::Free { host: name.clone() }],
        message: format!("Host {name} is kept no longer: {why}"),
        news: true,
        ..Decision::rest(reason)
    }
}
