//! `BareMetalHostDiscovery`, our own kind: which machines that Ironic found become hosts.

#![allow(
    clippy::duplicated_attributes,
    reason = "the lint takes the fields of one print column for those of another"
)]
#![allow(clippy::struct_excessive_bools, reason = "switches that a user sets one by one")]
#![allow(unreachable_pub, reason = "the schema derive repeats each type inside a function")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to make of machines that were found.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    kind = "BareMetalHostDiscovery",
    plural = "baremetalhostdiscoveries",
    shortname = "bmhd",
    category = "metal3",
    namespaced,
    status = "BareMetalHostDiscoveryStatus",
    derive = "PartialEq",
    doc = "Makes a BareMetalHost of each machine that Ironic discovered and that nobody registered.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Known",
        type_ = "integer",
        json_path = ".status.counts.known",
        description = "Machines that are hosts already, whoever made them"
    ),
    printcolumn(
        name = "Created",
        type_ = "integer",
        json_path = ".status.counts.created",
        description = "Hosts made by this resource"
    ),
    printcolumn(
        name = "Pending",
        type_ = "integer",
        json_path = ".status.counts.pending",
        description = "Machines that wait for approval, or for room"
    ),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.counts.failed",
        description = "Machines whose discovery failed"
    ),
    printcolumn(
        name = "Conflicting",
        type_ = "integer",
        json_path = ".status.counts.conflicting",
        description = "Machines held back because of other hosts: status.conflicts says which"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.fallback) || self.fallback != 'provisioning-id' || (has(self.resourceNameTemplate.prefix) && self.resourceNameTemplate.prefix != '') || (has(self.resourceNameTemplate.suffix) && self.resourceNameTemplate.suffix != '')").message("fallback: provisioning-id needs a prefix or a suffix in resourceNameTemplate, because a bare UUID is not accepted as the name of a host"))]
pub struct BareMetalHostDiscoverySpec {
    /// How the name of a new host is built.
    pub resource_name_template: ResourceNameTemplate,
    /// What names a host whose value for the template cannot be used: it is empty, a placeholder,
    /// localhost, link-local or a UUID.
    #[serde(default = "HardwareDetail::fallback")]
    pub fallback: HardwareDetail,
    /// Which machines become hosts. Every given rule must hold; without rules all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<HostSelector>,
    /// Whether hosts are made at once, or only when the machine's node ID was named in the
    /// annotation `ferrite.metal3.io/approve`.
    #[serde(default)]
    pub approval: Approval,
    /// Labels of new hosts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub labels: BTreeMap<String, String>,
    /// Labels of new hosts whose value comes from the hardware: label key to detail. A value that
    /// cannot be a label is made into one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub labels_from_hardware: BTreeMap<String, HardwareLabel>,
    /// What new hosts start with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_defaults: Option<HostDefaults>,
    /// The BMC of new hosts, made of the address that the machine names. Without it hosts have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc: Option<DiscoveredBmc>,
    /// Hosts that this resource makes at most; the others wait in the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_hosts: Option<i32>,
    /// Make no hosts for now.
    #[serde(default)]
    pub suspend: bool,
    /// Make no hosts, but report which ones would be made.
    #[serde(default)]
    pub dry_run: bool,
    /// Take machines, too, that Ironic did not discover by itself. In an Ironic that others use as
    /// well this makes hosts of their machines.
    #[serde(default)]
    pub include_all_nodes: bool,
    /// Make a host again that a person deleted while its machine is still the same in Ironic.
    #[serde(default)]
    pub rediscover: bool,
}

/// How the name of a new host is built: prefix, value, suffix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.prefix) || self.prefix.matches('^([a-z0-9][a-z0-9-]*)?$')").message("prefix: only lower-case letters, digits and '-', beginning with a letter or digit"),
    validation = Rule::new("!has(self.suffix) || self.suffix.matches('^([a-z0-9-]*[a-z0-9])?$')").message("suffix: only lower-case letters, digits and '-', ending with a letter or digit"),
    validation = Rule::new("self.hardwareDetails != 'provisioning-id' || (has(self.prefix) && self.prefix != '') || (has(self.suffix) && self.suffix != '')").message("provisioning-id needs a prefix or a suffix, because a bare UUID is not accepted as the name of a host"),
    validation = Rule::new("(has(self.prefix) ? size(self.prefix) : 0) + (has(self.suffix) ? size(self.suffix) : 0) <= 62").message("prefix and suffix together must leave room for the value: at most 62 characters")
)]
pub struct ResourceNameTemplate {
    /// Text before the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 62))]
    pub prefix: Option<String>,
    /// Text after the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 62))]
    pub suffix: Option<String>,
    /// The value: `hostname`, `ip` of the first interface, `serial-number`, `boot-mac`, or
    /// `provisioning-id`, which is the machine's identifier in Ironic.
    pub hardware_details: HardwareDetail,
}

/// A value that can name a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HardwareDetail {
    /// The discovered host name.
    Hostname,
    /// The address of the boot interface, else of the first in name order; `.` becomes `-`.
    Ip,
    /// The machine's serial number.
    SerialNumber,
    /// The MAC address of the boot interface; `:` becomes `-`.
    #[default]
    BootMac,
    /// The identifier in Ironic.
    ProvisioningId,
}

impl HardwareDetail {
    /// What names a host when nothing else is said: every machine has it and it is unique.
    fn fallback() -> Self {
        Self::BootMac
    }
}

/// Which machines become hosts. In a list one match is enough; case does not matter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.macPrefixes) || self.macPrefixes.all(m, m.matches('^[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){0,5}$'))").message("macPrefixes: one to six bytes as hexadecimal digits with ':' or '-' between, such as 52:54:00"),
    validation = Rule::new("!has(self.subnets) || self.subnets.all(s, isCIDR(s))").message("subnets: networks in CIDR notation, such as 192.0.2.0/24 or 2001:db8::/32")
)]
pub struct HostSelector {
    /// Manufacturers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 128)))]
    pub manufacturers: Vec<String>,
    /// Product names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 128)))]
    pub products: Vec<String>,
    /// CPU architectures, such as `x86_64` or `aarch64`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 32)))]
    pub architectures: Vec<String>,
    /// Beginnings of a MAC address of any interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 2, max = 17)))]
    pub mac_prefixes: Vec<String>,
    /// Networks in one of which an interface has an address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 3, max = 49)))]
    pub subnets: Vec<String>,
    /// CPU threads at least.
    #[serde(rename = "minCPUs", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_cpus: Option<i32>,
    /// Memory in MiB at least.
    #[serde(rename = "minMemoryMiB", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_memory_mib: Option<i64>,
    /// Size in GiB, at least, of one disk.
    #[serde(rename = "minDiskGiB", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_disk_gib: Option<i64>,
}

/// When hosts are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    /// At once.
    #[default]
    Automatic,
    /// When a person has approved the machine.
    Manual,
}

/// A detail of the hardware that can be a label's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HardwareLabel {
    /// The machine's manufacturer.
    Manufacturer,
    /// The machine's product name.
    Product,
    /// The CPU architecture.
    Architecture,
    /// The machine's serial number.
    SerialNumber,
    /// The MAC address of the boot interface.
    BootMac,
    /// The CPU's model.
    CpuModel,
}

/// What new hosts start with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDefaults {
    /// Whether the machine should be switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<bool>,
    /// Whether disks are wiped between uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automated_cleaning_mode: Option<CleaningMode>,
    /// Firmware mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// Text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// More labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub labels: BTreeMap<String, String>,
}

/// The BMC of new hosts. The address is only what the machine says: anybody on the provisioning network can name any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.addressTemplate.matches('^(ipmi|libvirt|irmc|ilo[45]|(ilo4|ilo5|idrac|redfish)-virtualmedia|(ilo5|idrac)-redfish|redfish(-uefihttp)?)([+]https?)?://')").message("addressTemplate: begin with a kind of BMC that the operator knows, such as redfish-virtualmedia+https://"),
    validation = Rule::new("self.addressTemplate.matches('^[^:]*://[{]bmcAddress[}](:[0-9]{1,5})?(/|$)')").message("addressTemplate: {bmcAddress} stands where the host stands, as in ipmi://{bmcAddress}:623"),
    validation = Rule::new("self.addressTemplate.matches('^[^{}]*[{]bmcAddress[}][A-Za-z0-9:/._~-]*$')").message("addressTemplate: {bmcAddress} is the only placeholder and stands once; behind it only letters, digits and :/._~- may stand"),
    validation = Rule::new("self.subnets.all(s, isCIDR(s) && cidr(s).prefixLength() >= 8)").message("subnets: networks in CIDR notation with a length of 8 or more, such as 192.0.2.0/24 or 2001:db8::/32")
)]
pub struct DiscoveredBmc {
    /// The address of the BMC. `{bmcAddress}` becomes the IP address that the machine names, IPv4 before IPv6.
    #[schemars(length(min = 1, max = 256))]
    pub address_template: String,
    /// The secret with user name and password, in the namespace of the hosts. This controller does not read it.
    #[schemars(length(min = 1, max = 253))]
    pub credentials_name: String,
    /// Networks of BMCs. No host is made of a machine that names an address outside of them.
    #[schemars(length(min = 1, max = 50), inner(length(min = 3, max = 49)))]
    pub subnets: Vec<String>,
    /// Accept any certificate of a BMC.
    #[serde(default)]
    pub disable_certificate_verification: bool,
}

/// Whether disks are wiped between uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CleaningMode {
    /// Partition tables are removed.
    Metadata,
    /// Disks stay as they are.
    Disabled,
}

/// How a machine's firmware starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BootMode {
    /// UEFI.
    #[serde(rename = "UEFI")]
    Uefi,
    /// UEFI that only starts what is signed.
    #[serde(rename = "UEFISecureBoot")]
    UefiSecureBoot,
    /// BIOS.
    #[serde(rename = "legacy")]
    Legacy,
}

/// What became of machines that were found. Lists hold at most 100; the counts say how many there
/// are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostDiscoveryStatus {
    /// `Ready` and `IronicReachable`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// How many machines there are of each sort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<DiscoveryCounts>,
    /// Machines that wait for approval, or for room under `maxHosts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub pending: Vec<ListedHost>,
    /// Machines whose discovery failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub failures: Vec<ListedHost>,
    /// Machines whose name or addresses belong to another host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub conflicts: Vec<ListedHost>,
    /// When Ironic had last been asked for new machines, as of the last change of this status: at rest it is not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_poll_time: Option<Time>,
    /// When Ironic had last been asked for all machines, as of the last change of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_full_sync_time: Option<Time>,
    /// Highest API version that Ironic offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ironic_version: Option<String>,
}

/// How many machines there are of each sort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryCounts {
    /// Machines that are hosts already, whoever made them.
    #[serde(default)]
    pub known: i32,
    /// Hosts made by this resource.
    #[serde(default)]
    pub created: i32,
    /// Machines that wait.
    #[serde(default)]
    pub pending: i32,
    /// Machines whose discovery failed.
    #[serde(default)]
    pub failed: i32,
    /// Machines whose name or addresses belong to another host.
    #[serde(default)]
    pub conflicting: i32,
}

/// A machine that is not a host, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedHost {
    /// Identifier in Ironic: what an approval names.
    #[serde(rename = "nodeID")]
    pub node_id: String,
    /// The name that the host would get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed_name: Option<String>,
    /// MAC addresses of its interfaces.
    #[serde(rename = "macs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub macs: Vec<String>,
    /// IP addresses of its BMC, as it says them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_address: Option<String>,
    /// The address of the BMC that the host would get, by `spec.bmc`.
    #[serde(rename = "proposedBMC", default, skip_serializing_if = "Option::is_none")]
    pub proposed_bmc: Option<String>,
    /// Manufacturer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manufacturer: Option<String>,
    /// Product name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Why it is not a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when it is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}
