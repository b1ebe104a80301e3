//! `BareMetalHost`, as far as our controllers read or write it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::state::{ErrorType, OperationalStatus, ProvisioningState};
use crate::condition::Condition;
use crate::foreign::{Foreign, ForeignKind, Unknown};
use crate::names;
use crate::reference::{NamedRef, ObjectRef};

/// A physical machine. With hardware details it takes tens of kilobytes: caches hold
/// [`CachedHost`](super::CachedHost) instead.
pub type BareMetalHost = Foreign<BareMetalHostKind>;

/// Names of the kind `BareMetalHost`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BareMetalHostKind;

impl ForeignKind for BareMetalHostKind {
    type Spec = BareMetalHostSpec;
    type Status = BareMetalHostStatus;
    type Version = ();
    const GROUP: &'static str = "metal3.io";
    const KIND: &'static str = "BareMetalHost";
    const PLURAL: &'static str = "baremetalhosts";

    fn version((): &()) -> &'static str {
        "v1alpha1"
    }
}

/// What a host should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BareMetalHostSpec {
    /// Whether the machine should be switched on.
    pub online: bool,
    /// Who uses the host; empty means free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<Box<ObjectRef>>,
    /// How to reach the machine's management controller; absent for a discovered host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc: Option<Bmc>,
    /// MAC address of the interface it boots from.
    #[serde(rename = "bootMACAddress", skip_serializing_if = "Option::is_none")]
    pub boot_mac_address: Option<String>,
    /// Firmware mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<String>,
    /// What to install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<Image>>,
    /// What to run instead of installing an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<Box<CustomDeploy>>,
    /// Secret with the machine's first-boot configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Box<NamedRef>>,
    /// Secret with facts about the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<Box<NamedRef>>,
    /// Secret with the machine's network configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<Box<NamedRef>>,
    /// Whether disks are wiped between uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<String>,
    /// The machine was installed by somebody else and must not be installed again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub externally_provisioned: Option<bool>,
    /// The machine must never be switched off, only rebooted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_power_off: Option<bool>,
    /// How hardware is looked at; `disabled` for hosts whose details we bring along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspection_mode: Option<String>,
    /// CPU architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// A management controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Bmc {
    /// Its address, whose scheme picks the driver.
    pub address: String,
    /// Secret with user name and password.
    pub credentials_name: String,
    /// Accept any certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_certificate_verification: Option<bool>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// An image to install.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// Where it is.
    pub url: String,
    /// Its checksum, or where that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Which checksum that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<String>,
    /// The disk format. Left out when the user left it out: the schema refuses an empty one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// A deploy method of the user's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CustomDeploy {
    /// Name of the deploy step.
    pub method: String,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What the bare metal operator and `bmo-reboot` saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BareMetalHostStatus {
    /// Whether the machine was last seen switched on.
    pub powered_on: bool,
    /// Roughly how it is.
    pub operational_status: OperationalStatus,
    /// What kind of operation failed; absent when nothing did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<ErrorType>,
    /// What failed; empty when nothing did.
    pub error_message: String,
    /// Failures in a row.
    pub error_count: i64,
    /// How far installing it has come.
    pub provisioning: Provisioning,
    /// What the machine is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Box<Hardware>>,
    /// Conditions, ours among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When the status was last written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// When the operator did what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_history: Option<Box<OperationHistory>>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// When the operator did what with a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationHistory {
    /// Made it known to Ironic, last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<Operation>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// Something that the operator did, or is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Operation {
    /// When it began; absent where it never did. The operator writes `null` for that.
    pub start: Option<Time>,
    /// When it came to its end; absent where it did not.
    pub end: Option<Time>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl OperationHistory {
    /// Whether the operator has begun to make the host known to Ironic, and is not through with it.
    pub fn is_registering(&self) -> bool {
        self.register.as_ref().is_some_and(|it| it.start.is_some() && it.end.is_none())
    }
}

/// How far installing a host has come, and when it was last rebooted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Provisioning {
    /// The state.
    pub state: ProvisioningState,
    /// The machine's identifier in Ironic; empty until it is registered there.
    #[serde(rename = "ID")]
    pub id: String,
    /// The installed image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<Image>>,
    /// The deploy method that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<Box<CustomDeploy>>,
    /// Processes from before this time have been stopped. Whole seconds. Written by `bmo-reboot`;
    /// a stock CRD lacks it: see [`extensions`](crate::extensions).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_powered_on: Option<Time>,
    /// A reboot was asked for before this time. Whole seconds. Written by `bmo-reboot`; a stock
    /// CRD lacks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_reboot_since: Option<Time>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What a machine is made of, as far as addresses go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hardware {
    /// Host name in the inspection system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Network interfaces, one entry per address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<Nic>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// One address of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Nic {
    /// Name in the operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Hardware address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl BareMetalHost {
    /// Whether power can be controlled: only with credentials of a management controller.
    /// Without them nobody maintains power or honours a reboot.
    pub fn power_operations_supported(&self) -> bool {
        self.spec.bmc.as_ref().is_some_and(|bmc| !bmc.credentials_name.is_empty())
    }

    /// The provisioning state in the status that the host brings in an annotation; nothing where none can be read there.
    pub fn brought_state(&self) -> Option<ProvisioningState> {
        let status: Value = serde_json::from_str(self.annotation(names::metal3::STATUS)?).ok()?;
        Some(status.pointer("/provisioning/state")?.as_str()?.to_owned().into())
    }

    /// The provisioning state; the empty one until the operator has seen the host.
    pub fn provisioning_state(&self) -> &ProvisioningState {
        self.status.as_ref().map_or(&ProvisioningState::None, |status| &status.provisioning.state)
    }

    /// Whether somebody marked the host as not to be used, under the present annotation or the
    /// deprecated one. Presence counts, the value does not.
    pub fn is_marked_unhealthy(&self) -> bool {
        self.annotation(names::capm3::UNHEALTHY).is_some()
            || self.annotation(names::capm3::UNHEALTHY_DEPRECATED).is_some()
    }

    /// Whether the operator leaves the host alone, whoever asked for it.
    pub fn is_paused(&self) -> bool {
        self.annotation(names::metal3::PAUSED).is_some()
    }

    /// Whether the host is taken out of Ironic, or asked to be.
    pub fn is_detached(&self) -> bool {
        self.annotation(names::metal3::DETACHED).is_some()
            || self
                .status
                .as_ref()
                .is_some_and(|status| status.operational_status == OperationalStatus::Detached)
    }

    /// Reboot requests: annotation key and value, the plain one and those with a suffix.
    pub fn reboot_requests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata
            .annotations
            .iter()
            .flatten()
            .filter(|(key, _)| names::metal3::is_reboot_request(key))
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Every hardware address by which the machine is known, as written.
    pub fn mac_addresses(&self) -> impl Iterator<Item = &str> {
        let hardware = self.status.as_ref().and_then(|status| status.hardware.as_ref());
        self.spec.boot_mac_address.as_deref().into_iter().chain(
            hardware
                .into_iter()
                .flat_map(|hardware| hardware.nics.iter().filter_map(|nic| nic.mac.as_deref())),
        )
    }
}
