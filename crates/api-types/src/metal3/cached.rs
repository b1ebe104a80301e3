//! The form in which a host is kept in a cache.

use std::borrow::Cow;
use std::ops::Deref;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::host::{
    BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, Bmc, CustomDeploy, Image, Provisioning,
};
use crate::condition::Condition;
use crate::foreign::Unknown;
use crate::names::LAST_APPLIED;
use crate::names::metal3::{HARDWARE_DETAILS, STATUS};
use crate::reference::{NamedRef, ObjectRef};

/// A host without what makes it large: hardware, fields that we do not know and managed fields are
/// dropped, each object as soon as it is decoded.
///
/// It reads like a [`BareMetalHost`]. It cannot be encoded: what was dropped would be missing.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "BareMetalHost")]
pub struct CachedHost(BareMetalHost);

impl Deref for CachedHost {
    type Target = BareMetalHost;

    fn deref(&self) -> &BareMetalHost {
        &self.0
    }
}

impl From<BareMetalHost> for CachedHost {
    fn from(mut host: BareMetalHost) -> Self {
        host.metadata.managed_fields = None;
        for large in LARGE {
            host.metadata.annotations.as_mut().and_then(|all| all.remove(large));
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
const LARGE: [&str; 3] = [STATUS, HARDWARE_DETAILS, LAST_APPLIED];

// The patterns name every field: one that is added to a type has to be thought of here.

fn trim_spec(spec: &mut BareMetalHostSpec) {
    let BareMetalHostSpec {
        online: _,
        consumer_ref,
        bmc,
        boot_mac_address: _,
        boot_mode: _,
        image,
        custom_deploy,
        user_data,
        meta_data,
        network_data,
        automated_cleaning_mode: _,
        externally_provisioned: _,
        disable_power_off: _,
        inspection_mode: _,
        architecture: _,
        description,
        other,
    } = spec;
    *description = None;
    other.clear();
    if let Some(ObjectRef { other, .. }) = consumer_ref {
        other.clear();
    }
    if let Some(Bmc { other, .. }) = bmc {
        other.clear();
    }
    for NamedRef { other, .. } in [user_data, meta_data, network_data].into_iter().flatten() {
        other.clear();
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
        other,
    } = status;
    other.clear();
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
    for Condition { other, .. } in conditions {
        other.clear();
    }
    *hardware = None;
}

fn trim_deployed(image: &mut Option<Image>, custom_deploy: &mut Option<CustomDeploy>) {
    if let Some(Image { other, .. }) = image {
        other.clear();
    }
    if let Some(CustomDeploy { other, .. }) = custom_deploy {
        other.clear();
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
