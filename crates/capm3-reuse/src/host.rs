//! What a host is good for, judged by the host alone.

use api_types::capm3::Metal3Machine;
use api_types::metal3::{BareMetalHost, OperationalStatus, ProvisioningState};
use api_types::names;
use api_types::reference::ObjectRef;
use kube::ResourceExt as _;

use crate::reservation::Kept;

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// Why a host is not newly claimed, whatever its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// It is being deleted.
    Deleting,
    /// Somebody marked it as unhealthy.
    Unhealthy,
    /// An operation on it failed.
    Failed,
    /// The operator leaves it alone.
    Paused,
    /// It is taken out of Ironic.
    Detached,
}

impl Exclusion {
    /// For a person.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deleting => "is being deleted",
            Self::Unhealthy => "is marked as unhealthy",
            Self::Failed => "reports an error",
            Self::Paused => "is paused",
            Self::Detached => "is detached",
        }
    }
}

/// Why this host is not newly claimed, whatever its state.
pub fn exclusion(host: &BareMetalHost) -> Option<Exclusion> {
    held_up(host).or_else(|| host.is_marked_unhealthy().then_some(Exclusion::Unhealthy))
}

/// The same, as far as it stops the operator as well: that a host is marked as unhealthy holds up nothing that is under way.
pub fn held_up(host: &BareMetalHost) -> Option<Exclusion> {
    if host.metadata.deletion_timestamp.is_some() {
        Some(Exclusion::Deleting)
    } else if error(host).is_some() {
        Some(Exclusion::Failed)
    } else if host.is_paused() {
        Some(Exclusion::Paused)
    } else if host.is_detached() {
        Some(Exclusion::Detached)
    } else {
        None
    }
}

/// What failed on it last, if that was not overcome.
pub fn error(host: &BareMetalHost) -> Option<String> {
    let status = host.status.as_ref()?;
    let kind = status.error_type.as_ref().map(api_types::metal3::ErrorType::as_str);
    match (kind, status.error_message.as_str()) {
        (None, "") => (status.operational_status == OperationalStatus::Error)
            .then(|| "its operationalStatus is error".to_owned()),
        (Some(kind), "") => Some(kind.to_owned()),
        (_, message) => Some(message.to_owned()),
    }
}

/// Whether its spec says what to install, whoever wrote that.
pub fn is_told_what_to_install(host: &BareMetalHost) -> bool {
    host.spec.image.is_some() || host.spec.custom_deploy.is_some()
}

/// Whether it could be claimed now by whom it is free or kept for.
pub fn is_ready(host: &BareMetalHost) -> bool {
    host.provisioning_state().is_available()
        && exclusion(host).is_none()
        && !is_told_what_to_install(host)
}

/// Whether a claim that is on its way could still succeed: the host is ready, and free or kept for somebody.
pub fn looks_claimable(host: &BareMetalHost) -> bool {
    is_ready(host) && (host.spec.consumer_ref.is_none() || Kept::of(host).is_some())
}

/// Whether it will be ready without anybody's help.
pub fn is_on_its_way(host: &BareMetalHost) -> bool {
    use ProvisioningState::{
        Deprovisioning, Inspecting, MatchProfile, None, Preparing, Provisioned, Provisioning,
        Registering,
    };
    // Provisioned and provisioning: its image was taken away and the operator has not noticed yet.
    exclusion(host).is_none()
        && matches!(
            host.provisioning_state(),
            Deprovisioning
                | Preparing
                | Inspecting
                | Registering
                | MatchProfile
                | None
                | Provisioning
                | Provisioned
        )
}

/// Whether nothing that a consumer installed is on it any more, or ever was. An empty state says nothing of what is on it.
pub fn is_cleared(host: &BareMetalHost) -> bool {
    use ProvisioningState::{Available, Inspecting, MatchProfile, Ready, Registering, Unmanaged};
    matches!(
        host.provisioning_state(),
        Unmanaged | Registering | MatchProfile | Inspecting | Ready | Available
    )
}

/// Name of the `Metal3Machine` that has this host.
pub fn consumer_machine(host: &BareMetalHost) -> Option<&str> {
    let consumer = host.spec.consumer_ref.as_ref()?;
    let is_machine = is_metal3_machine(consumer)
        && consumer
            .namespace
            .as_ref()
            .is_none_or(|it| Some(it) == host.metadata.namespace.as_ref());
    consumer.name.as_deref().filter(|_| is_machine)
}

/// Whether this machine has this host. A reference without uid is CAPM3's. One with another uid is this machine's as
/// well where the two name each other: a move to another cluster changes every uid and no name.
pub fn is_of(host: &BareMetalHost, machine: &Metal3Machine) -> bool {
    let Some(consumer) = &host.spec.consumer_ref else { return false };
    let named = consumer_machine(host) == machine.metadata.name.as_deref()
        && host.metadata.namespace == machine.metadata.namespace;
    let uid = consumer.uid.as_deref().filter(|uid| !uid.is_empty());
    named
        && (uid.is_none()
            || uid == machine.metadata.uid.as_deref()
            || machine.host_name() == Some(&host.name_any()))
}

/// The reference that makes a host this machine's.
pub fn consumer(machine: &Metal3Machine, version: &str) -> ObjectRef {
    ObjectRef {
        api_version: Some(format!("{INFRASTRUCTURE}/{version}")),
        kind: Some("Metal3Machine".to_owned()),
        name: machine.metadata.name.clone(),
        namespace: machine.metadata.namespace.clone(),
        uid: machine.metadata.uid.clone(),
        ..ObjectRef::default()
    }
}

fn is_metal3_machine(reference: &ObjectRef) -> bool {
    // CAPM3 reads its kind with an empty apiVersion from some of its own objects and writes it like that.
    let group = reference.group();
    reference.kind.as_deref() == Some("Metal3Machine")
        && (group == INFRASTRUCTURE || group.is_empty())
}

/// The failure domain that it stands in.
pub fn failure_domain(host: &BareMetalHost) -> Option<&str> {
    host.label(names::capm3::FAILURE_DOMAIN)
}
