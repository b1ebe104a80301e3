//! What a machine says of itself, judged by the machine alone.

use std::time::Duration;

use api_types::capm3::Metal3Machine;
use api_types::condition::Condition;
use api_types::metal3::BareMetalHost;
use api_types::names;
use api_types::names::capi::CONDITION_READY;
use api_types::names::capm3::CONDITION_ASSOCIATED;
use api_types::time::until;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::status;

/// What the CRD accepts as a provider ID, in bytes.
pub const PROVIDER_ID: usize = 512;

/// What the API server accepts as the name of an object, in bytes.
const OBJECT_NAME: usize = 253;

/// The host that it has written down that it gives up.
pub fn given_up(machine: &Metal3Machine) -> Option<&str> {
    machine.annotation(names::ferrite::GIVES_UP_HOST)
}

/// The host that it has or is going to take.
pub fn intended(machine: &Metal3Machine) -> Option<&str> {
    machine.host_name().filter(|_| given_up(machine).is_none())
}

/// Whether the machine was seen to have the host that it names.
pub fn was_associated(machine: &Metal3Machine) -> bool {
    given_up(machine).is_none()
        && status::reported(machine, CONDITION_ASSOCIATED).is_some_and(Condition::is_true)
}

/// Whether the machine has its finalizer.
pub fn is_held(machine: &Metal3Machine) -> bool {
    machine.finalizers().iter().any(|it| it == names::capm3::MACHINE_FINALIZER)
}

/// Whether the machine needs no host but the one that it names: it was seen to have it, or was up and must not come up on
/// another. One that only intends to take a host may be refused that for long.
pub fn is_housed(machine: &Metal3Machine) -> bool {
    machine.host_name().is_some() && (was_up(machine) || was_associated(machine))
}

/// Whether the machine was up once: it was reported, or it has its identity, which is written before that and which a move
/// or a restore brings along without the status.
pub fn was_up(machine: &Metal3Machine) -> bool {
    machine.is_provisioned() || machine.spec.provider_id.as_ref().is_some_and(|id| !id.is_empty())
}

/// Since when there is this machine.
pub fn created(machine: &Metal3Machine) -> Timestamp {
    machine.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |born| born.0)
}

/// How long the machine has been up, as far as is known.
pub fn up(machine: &Metal3Machine, now: Timestamp) -> Duration {
    let ready = status::reported(machine, CONDITION_READY).filter(|it| it.is_true());
    let since = ready.and_then(|it| it.last_transition_time.as_ref());
    // By a clock that is behind it is up since just now.
    since.map(|it| until(it.0, now)).unwrap_or_default()
}

/// Whether the host is the one that the machine named: one of the same name made later is another.
pub fn is_same(machine: &Metal3Machine, host: &BareMetalHost) -> bool {
    let uid = machine.annotation(names::ferrite::HOST_UID);
    uid.is_none() || uid == host.metadata.uid.as_deref()
}

/// The machine's identity, in CAPM3's form.
pub fn provider_id(machine: &Metal3Machine, host: &str) -> String {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let name = machine.metadata.name.as_deref().unwrap_or_default();
    format!("metal3://{namespace}/{host}/{name}")
}

/// How long the name of a machine's host may be, where that is less than the name of any object may have.
pub fn host_name_bytes(machine: &Metal3Machine) -> Option<usize> {
    let left = PROVIDER_ID.saturating_sub(provider_id(machine, "").len());
    (left < OBJECT_NAME).then_some(left)
}
