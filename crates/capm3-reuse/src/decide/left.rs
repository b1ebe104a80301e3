//! A host whose machine went without giving it back: what was decided for it when its image went off is done all the same,
//! or whoever is to have it next would wait for ever. Where nothing was decided a person has to.

use api_types::metal3::{BareMetalHost, ProvisioningState};
use controller_kit::engine::Next;
use kube::ResourceExt as _;

use super::release::{annotations, given_back};
use super::{RESYNC, complaint, on_host, step};
use crate::model::{Decision, LeftSeen, Write};
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
    if !is_empty(host) {
        return Some(Decision::rest(Reason::Deprovisioning));
    }
    let name = host.name_any();
    let (reason, wiped) = given_back(host, verdict.as_ref());
    let machine = host::consumer_machine(host).unwrap_or_default();
    let text = text::given_back(&name, Some(machine), verdict.as_ref(), wiped);
    let annotations = annotations(host, verdict.is_some());
    let write = Write::Release { host: name, keep_for: verdict, uid: None, annotations };
    Some(step(write, reason, on_host(reason, &text)))
}

/// Whether nothing is on it any more. One that has lost its status registers as if nothing had ever been on it, and nobody is
/// left who knows whether the machine was up.
fn is_empty(host: &BareMetalHost) -> bool {
    let state = host.provisioning_state();
    host.metadata.deletion_timestamp.is_none()
        && host::is_cleared(host)
        && !matches!(state, ProvisioningState::Registering | ProvisioningState::MatchProfile)
}
