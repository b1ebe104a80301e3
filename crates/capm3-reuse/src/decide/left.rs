//! A host whose machine went without giving it back: what was decided for it when its image went off is done all the same,
//! or whoever is to have it next would wait for ever. Where nothing was decided a person has to.

use controller_kit::engine::Next;
use kube::ResourceExt as _;

use super::release::{given_back, is_empty, release};
use super::{RESYNC, complaint, on_host, step};
use crate::model::{Decision, LeftSeen};
use crate::reason::Reason;
use crate::{host, reservation, text};

pub(super) fn not_ours(seen: &LeftSeen) -> Option<Decision> {
    seen.of_others.then(|| Decision::rest(Reason::NotOurs))
}

pub(super) fn is_paused(seen: &LeftSeen) -> Option<Decision> {
    let is_paused = seen.paused || seen.host.is_paused();
    is_paused.then(|| Decision { next: Next::After(RESYNC), ..Decision::rest(Reason::Paused) })
}

pub(super) fn has_machine(seen: &LeftSeen) -> Option<Decision> {
    (!seen.is_gone).then(|| Decision::rest(Reason::Releasing))
}

/// Its machine went before it was decided for whom it is kept. Nobody tells when that machine is made again.
pub(super) fn is_undecided(seen: &LeftSeen) -> Option<Decision> {
    if reservation::pending(&seen.host).is_some() {
        return None;
    }
    let machine = host::consumer_machine(&seen.host).unwrap_or_default();
    let text = text::consumer_missing(&seen.host.name_any(), machine);
    Some(Decision { next: Next::After(RESYNC), ..complaint(Reason::MachineMissing, &text) })
}

/// A host that names a machine which is gone, and on which stands for whom it is kept.
pub(super) fn give_back(seen: &LeftSeen) -> Option<Decision> {
    let host = &seen.host;
    let verdict = reservation::pending(host)?;
    // Nobody is left who knows whether the machine was up. And a host that goes is nobody's next.
    if host.metadata.deletion_timestamp.is_some() || !is_empty(host, true) {
        return Some(Decision::rest(Reason::Deprovisioning));
    }
    let (reason, text) = given_back(host, host::consumer_machine(host), verdict.as_ref());
    Some(step(release(host, verdict, None), reason, on_host(reason, &text)))
}
