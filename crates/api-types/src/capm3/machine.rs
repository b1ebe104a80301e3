//! `Metal3Machine` and its template.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::capi::{Conditions, MachineAddress, OldStatus};
use crate::condition::Condition;
use crate::foreign::{ContractVersion, Foreign, ForeignKind, Unknown};
use crate::metal3::{BareMetalHost, CustomDeploy};
use crate::names;
use crate::reference::{NamedRef, ObjectRef};

/// A machine that is to run on a host.
pub type Metal3Machine = Foreign<Metal3MachineKind>;
/// What `Metal3Machines` are cloned from.
pub type Metal3MachineTemplate = Foreign<Metal3MachineTemplateKind>;

/// Names of the kind `Metal3Machine`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metal3MachineKind;

impl ForeignKind for Metal3MachineKind {
    type Spec = Metal3MachineSpec;
    type Status = Metal3MachineStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "infrastructure.cluster.x-k8s.io";
    const KIND: &'static str = "Metal3Machine";
    const PLURAL: &'static str = "metal3machines";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// Names of the kind `Metal3MachineTemplate`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metal3MachineTemplateKind;

impl ForeignKind for Metal3MachineTemplateKind {
    type Spec = Metal3MachineTemplateSpec;
    type Status = Metal3MachineTemplateStatus;
    type Version = ContractVersion;
    const GROUP: &'static str = "infrastructure.cluster.x-k8s.io";
    const KIND: &'static str = "Metal3MachineTemplate";
    const PLURAL: &'static str = "metal3machinetemplates";

    fn version(version: &ContractVersion) -> &'static str {
        version.as_str()
    }
}

/// What a machine should be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3MachineSpec {
    /// Identity of the host that it got.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// What to install.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<MachineImage>,
    /// What to run instead of installing an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Secret with the first-boot configuration; the Machine's own takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<NamedRef>,
    /// Secret with facts about the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<NamedRef>,
    /// Secret with the machine's network configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NamedRef>,
    /// Which hosts will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_selector: Option<HostSelector>,
    /// What the two secrets above are rendered from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_template: Option<ObjectRef>,
    /// Whether disks are wiped between uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<String>,
    /// Where it should stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// An image to install.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineImage {
    /// Where it is.
    pub url: String,
    /// Its checksum, or where that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Which checksum that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<String>,
    /// The disk format; newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_format: Option<String>,
    /// The disk format; older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl MachineImage {
    /// The disk format in either contract; nothing where the user left it out or empty.
    pub fn disk_format(&self) -> Option<&str> {
        self.disk_format.as_deref().or(self.format.as_deref()).filter(|format| !format.is_empty())
    }
}

/// Which hosts will do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostSelector {
    /// Labels that a host must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Rules that a host's labels must keep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// A rule about one label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`; the schema takes any word.
    pub operator: String,
    /// Values to compare with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// How a machine is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3MachineStatus {
    /// The machine is up; older contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// What has been reached once and for all; newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Addresses of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Where the host stands; newer contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// The first-boot configuration in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<NamedRef>,
    /// The facts in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<NamedRef>,
    /// The network configuration in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<NamedRef>,
    /// The rendered `Metal3Data`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rendered_data: Option<ObjectRef>,
    /// When the status was last written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Conditions: standard ones in the newer contract, deprecated ones in the older.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The newer contract's conditions, as the older one shows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<Conditions>,
    /// The older contract's fields, as the newer one keeps them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<OldStatus>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What an infrastructure object has reached once and for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Initialization {
    /// It is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What a template says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3MachineTemplateSpec {
    /// Machines of the same owner get back the hosts that it freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_reuse: Option<bool>,
    /// The machine.
    pub template: Metal3MachineTemplateResource,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// A machine inside a template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3MachineTemplateResource {
    /// What the machine should be.
    pub spec: Metal3MachineSpec,
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

/// Templates have no status that we know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metal3MachineTemplateStatus {
    /// Fields that no controller here reads.
    #[serde(flatten)]
    pub other: Unknown,
}

impl Metal3Machine {
    /// Name of the host that the machine has or is about to claim.
    pub fn host_name(&self) -> Option<&str> {
        let intended =
            self.annotation(names::ferrite::INTENDS_HOST).filter(|name| !name.is_empty());
        intended.or_else(|| self.named_host())
    }

    /// The same as CAPM3 reads it, for whom the machine has that host. The host stands in the machine's own namespace, whatever
    /// namespace the annotation names.
    pub fn named_host(&self) -> Option<&str> {
        let host = self.annotation(names::metal3::HOST)?;
        let name = host.split_once('/').map_or(host, |(_, name)| name);
        (!name.is_empty()).then_some(name)
    }

    /// Whether the machine was reported to be up, in either contract.
    pub fn is_provisioned(&self) -> bool {
        self.status.as_ref().is_some_and(|status| {
            status.ready == Some(true)
                || status.initialization.as_ref().and_then(|reached| reached.provisioned)
                    == Some(true)
        })
    }
}

/// Name of the `Metal3Machine` that has this host.
pub fn consumer_machine(host: &BareMetalHost) -> Option<&str> {
    let consumer = host.spec.consumer_ref.as_ref()?;
    // CAPM3 reads its kind with an empty apiVersion from some of its own objects and writes it like that.
    let group = consumer.group();
    let is_machine = consumer.kind.as_deref() == Some(Metal3MachineKind::KIND)
        && (group.is_empty() || group == Metal3MachineKind::GROUP)
        && !is_elsewhere(consumer, host);
    consumer.name.as_deref().filter(|_| is_machine)
}

/// Whether a reference on a host names another namespace than the host's. An empty one is none.
pub fn is_elsewhere(reference: &ObjectRef, host: &BareMetalHost) -> bool {
    let named = reference.namespace.as_deref().filter(|named| !named.is_empty());
    named.is_some() && named != host.metadata.namespace.as_deref()
}

/// Whether this machine has this host. A reference without uid is CAPM3's. One with another uid is this machine's as
/// well where the two name each other: a move to another cluster changes every uid and no name.
pub fn is_of(host: &BareMetalHost, machine: &Metal3Machine) -> bool {
    let Some(consumer) = &host.spec.consumer_ref else { return false };
    let named = consumer_machine(host) == machine.metadata.name.as_deref()
        && host.metadata.namespace == machine.metadata.namespace;
    let uid = consumer.uid.as_deref().filter(|uid| !uid.is_empty());
    let names_it = |name: &str| host.metadata.name.as_deref() == Some(name);
    named
        && (uid.is_none()
            || uid == machine.metadata.uid.as_deref()
            || machine.host_name().is_some_and(names_it))
}
