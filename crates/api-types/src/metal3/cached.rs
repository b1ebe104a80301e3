//! The form in which a host is kept in a cache.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::Deserialize;
use serde_json::json;

use super::host::{
    BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, Bmc, CustomDeploy, Image,
    OperationHistory, Provisioning,
};
use super::state::{ErrorType, OperationalStatus, ProvisioningState};
use crate::condition::Condition;
use crate::foreign::Unknown;
use crate::names::LAST_APPLIED;
use crate::names::metal3::{HARDWARE_DETAILS, STATUS};

/// A host without what makes it large: hardware, fields that we do not know, managed fields and what nobody decides by are
/// dropped, each object as soon as it is decoded.
///
/// It reads like a [`BareMetalHost`]. It cannot be encoded: what was dropped would be missing.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Read")]
pub struct CachedHost(BareMetalHost);

/// What is read of a host. The rest is skipped where it stands, which is most of it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Read {
    metadata: ReadMetadata,
    spec: BareMetalHostSpec,
    status: Option<ReadStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadStatus {
    powered_on: bool,
    operational_status: OperationalStatus,
    error_type: Option<ErrorType>,
    error_message: String,
    error_count: i64,
    provisioning: Provisioning,
    conditions: Vec<Condition>,
    last_updated: Option<Time>,
    operation_history: Option<Box<OperationHistory>>,
}

impl From<Read> for CachedHost {
    fn from(read: Read) -> Self {
        let Read { metadata, spec, status } = read;
        let (metadata, status) = (metadata.into(), status.map(BareMetalHostStatus::from));
        BareMetalHost { metadata, spec, status, ..BareMetalHost::default() }.into()
    }
}

impl From<ReadMetadata> for ObjectMeta {
    fn from(read: ReadMetadata) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            generation: read.generation,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            labels: read.labels,
            annotations: read.annotations,
            ..Self::default()
        }
    }
}

impl From<ReadStatus> for BareMetalHostStatus {
    fn from(read: ReadStatus) -> Self {
        Self {
            powered_on: read.powered_on,
            operational_status: read.operational_status,
            error_type: read.error_type,
            error_message: read.error_message,
            error_count: read.error_count,
            provisioning: read.provisioning,
            conditions: read.conditions,
            last_updated: read.last_updated,
            operation_history: read.operation_history,
            hardware: None,
            other: Unknown::new(),
        }
    }
}

impl Deref for CachedHost {
    type Target = BareMetalHost;

    fn deref(&self) -> &BareMetalHost {
        &self.0
    }
}

impl From<BareMetalHost> for CachedHost {
    fn from(mut host: BareMetalHost) -> Self {
        let brought = host.brought_state();
        (host.api_version, host.kind) = (None, None);
        host.metadata.managed_fields = None;
        host.metadata.owner_references = None;
        host.metadata.finalizers = None;
        if let Some(annotations) = &mut host.metadata.annotations {
            for large in LARGE {
                annotations.remove(large);
            }
            // Of a status that the host brings only how far it has come is asked; the rest is the operator's.
            if let Some(status) = annotations.get_mut(STATUS) {
                let kept = |state: ProvisioningState| {
                    json!({ "provisioning": { "state": state } }).to_string()
                };
                *status = brought.map_or_else(String::new, kept);
            }
        }
        host.other = Unknown::new();
        trim_spec(&mut host.spec);
        if let Some(status) = &mut host.status {
            trim_status(status);
        }
        Self(host)
    }
}

/// Annotations that hold most of the object once more.
const LARGE: [&str; 2] = [HARDWARE_DETAILS, LAST_APPLIED];

// The patterns name every field: one that is added to a type has to be thought of here.

fn trim_spec(spec: &mut BareMetalHostSpec) {
    let BareMetalHostSpec {
        online: _,
        consumer_ref,
        bmc,
        boot_mac_address: _,
        boot_mode,
        image,
        custom_deploy,
        user_data,
        meta_data,
        network_data,
        automated_cleaning_mode: _,
        externally_provisioned: _,
        disable_power_off: _,
        inspection_mode,
        architecture,
        description,
        other,
    } = spec;
    for unused in [boot_mode, inspection_mode, architecture, description] {
        *unused = None;
    }
    other.clear();
    if let Some(consumer) = consumer_ref {
        consumer.other.clear();
    }
    if let Some(Bmc { other, .. }) = bmc {
        other.clear();
    }
    for named in [user_data, meta_data, network_data].into_iter().flatten() {
        named.other.clear();
    }
    trim_deployed(image, custom_deploy);
}

fn trim_status(status: &mut BareMetalHostStatus) {
    let BareMetalHostStatus {
        powered_on: _,
        operational_status: _,
        error_type: _,
        error_message: _,
        error_count: _,
        provisioning,
        hardware,
        conditions,
        last_updated: _,
        operation_history,
        other,
    } = status;
    other.clear();
    // What came to its end is the same to everybody as what never was.
    *operation_history = operation_history.take().filter(|it| it.is_registering());
    if let Some(history) = operation_history {
        history.other.clear();
    }
    let Provisioning {
        state: _,
        id: _,
        image,
        custom_deploy,
        last_powered_on: _,
        pending_reboot_since: _,
        other,
    } = provisioning;
    other.clear();
    trim_deployed(image, custom_deploy);
    for Condition { other, .. } in &mut *conditions {
        other.clear();
    }
    conditions.shrink_to_fit();
    *hardware = None;
}

fn trim_deployed(image: &mut Option<Box<Image>>, custom_deploy: &mut Option<Box<CustomDeploy>>) {
    if let Some(image) = image {
        image.other.clear();
    }
    if let Some(deploy) = custom_deploy {
        deploy.other.clear();
    }
}

impl Resource for CachedHost {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        BareMetalHost::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        BareMetalHost::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        BareMetalHost::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        BareMetalHost::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}
