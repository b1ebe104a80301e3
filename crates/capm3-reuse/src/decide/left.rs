//! A host whose machine went without giving it back: what was decided for it when its image went off is done all the same,
//! or whoever is to have it next would wait for ever.

use std::time::Duration;

use api_types::metal3::{BareMetalHost, ProvisioningState};
use kube::ResourceExt as _;

use super::release::{annotations, is_cleared, kept_for, unwiped};
use crate::decision::{Decision, Step};
use crate::host;
use crate::reason::Reason;
use crate::reservation;
use crate::seen::LeftSeen;

/// How soon to look again at what is paused: nobody tells when the host is kept for nobody.
const LOOK: Duration = Duration::from_secs(300);

/// A host that names a machine and on which stands for whom it is kept.
pub(super) fn about_left(seen: &LeftSeen) -> Decision {
    let host = &seen.host;
    if seen.of_others {
        return Decision::rest(Reason::NotOurs);
    }
    if seen.paused || host.is_paused() {
        return Decision { again: Some(LOOK), ..Decision::rest(Reason::Paused) };
    }
    let (Some(verdict), true) = (reservation::pending(host), seen.is_gone) else {
        return Decision::rest(Reason::Releasing);
    };
    if !is_empty(host) {
        return Decision::rest(Reason::Deprovisioning);
    }
    let name = host.name_any();
    let (reason, wiped) = match &verdict {
        Some(_) => (Reason::Reserved, ""),
        None => (Reason::Released, unwiped(host.spec.automated_cleaning_mode.as_deref())),
    };
    let message = format!(
        "Host {name} is given back for Metal3Machine {}, which is gone; {}{wiped}",
        host::consumer_machine(host).unwrap_or_default(),
        kept_for(verdict.as_ref())
    );
    let annotations = annotations(host, verdict.is_some());
    Decision {
        steps: vec![Step::Release { host: name, keep_for: verdict, uid: None, annotations }],
        message,
        news: true,
        ..Decision::rest(reason)
    }
}

/// Whether nothing is on it any more. One that has lost its status registers as if nothing had ever been on it, and nobody is
/// left who knows whether the machine was up.
fn is_empty(host: &BareMetalHost) -> bool {
    let state = host.provisioning_state();
    host.metadata.deletion_timestamp.is_none()
        && is_cleared(host)
        && !matches!(state, ProvisioningState::Registering | ProvisioningState::MatchProfile)
}
