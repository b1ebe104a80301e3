//! What a machine told Ironic about itself.
//!
//! Every field may be absent. Values are as the machine gave them: untrusted, neither trimmed nor
//! checked. Of each list the first 1,024 entries are kept.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::Result;
use crate::error::Error;
use crate::lenient;

/// The answer to the question for a node's inventory.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Inventory {
    /// The machine.
    #[serde(rename = "inventory", deserialize_with = "lenient::or_default")]
    pub machine: Machine,
    /// What Ironic made of it.
    #[serde(deserialize_with = "lenient::or_default")]
    pub plugin_data: PluginData,
}

/// The machine as its ramdisk sees it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// What the ramdisk believes its name to be; often a placeholder.
    #[serde(deserialize_with = "lenient::option")]
    pub hostname: Option<String>,
    /// Address of the BMC; `0.0.0.0` where the ramdisk found none.
    #[serde(deserialize_with = "lenient::option")]
    pub bmc_address: Option<String>,
    /// Address of the BMC; `::/0` where the ramdisk found none.
    #[serde(deserialize_with = "lenient::option")]
    pub bmc_v6address: Option<String>,
    /// How it was booted.
    #[serde(deserialize_with = "lenient::or_default")]
    pub boot: Boot,
    /// Processors.
    #[serde(deserialize_with = "lenient::or_default")]
    pub cpu: Cpu,
    /// Memory.
    #[serde(deserialize_with = "lenient::or_default")]
    pub memory: Memory,
    /// Who made it.
    #[serde(deserialize_with = "lenient::or_default")]
    pub system_vendor: SystemVendor,
    /// Network interfaces, in an order that means nothing.
    #[serde(deserialize_with = "lenient::list")]
    pub interfaces: Vec<Interface>,
    /// Disks.
    #[serde(deserialize_with = "lenient::list")]
    pub disks: Vec<Disk>,
}

/// How the machine was booted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Boot {
    /// `uefi` or `bios`.
    #[serde(deserialize_with = "lenient::option")]
    pub current_boot_mode: Option<String>,
    /// MAC address that it was booted by, sometimes in pxelinux's spelling (`01-…`).
    #[serde(deserialize_with = "lenient::option")]
    pub pxe_interface: Option<String>,
}

/// Processors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Such as `x86_64`.
    #[serde(deserialize_with = "lenient::option")]
    pub architecture: Option<String>,
    /// Threads.
    #[serde(deserialize_with = "lenient::int")]
    pub count: Option<i64>,
    /// Capabilities.
    #[serde(deserialize_with = "lenient::texts")]
    pub flags: Vec<String>,
    /// Megahertz, as text or number.
    #[serde(deserialize_with = "lenient::scalar")]
    pub frequency: Value,
    /// Marketing name.
    #[serde(deserialize_with = "lenient::option")]
    pub model_name: Option<String>,
}

/// Memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// MiB that are plugged in.
    #[serde(deserialize_with = "lenient::int")]
    pub physical_mb: Option<i64>,
    /// Bytes that the kernel has.
    #[serde(deserialize_with = "lenient::int")]
    pub total: Option<i64>,
}

/// Who made the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SystemVendor {
    /// Maker.
    #[serde(deserialize_with = "lenient::option")]
    pub manufacturer: Option<String>,
    /// Product.
    #[serde(deserialize_with = "lenient::option")]
    pub product_name: Option<String>,
    /// Serial number; often a placeholder.
    #[serde(deserialize_with = "lenient::option")]
    pub serial_number: Option<String>,
    /// Firmware.
    #[serde(deserialize_with = "lenient::or_default")]
    pub firmware: Firmware,
}

/// Firmware of the system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Firmware {
    /// Maker.
    #[serde(deserialize_with = "lenient::option")]
    pub vendor: Option<String>,
    /// Version.
    #[serde(deserialize_with = "lenient::option")]
    pub version: Option<String>,
    /// Date, in no fixed format.
    #[serde(deserialize_with = "lenient::option")]
    pub build_date: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Name in the ramdisk.
    #[serde(deserialize_with = "lenient::option")]
    pub name: Option<String>,
    /// Hardware address: usually six bytes, twenty for `InfiniBand`.
    #[serde(deserialize_with = "lenient::option")]
    pub mac_address: Option<String>,
    /// Address.
    #[serde(deserialize_with = "lenient::option")]
    pub ipv4_address: Option<String>,
    /// Address, perhaps with a zone (`%eno1`).
    #[serde(deserialize_with = "lenient::option")]
    pub ipv6_address: Option<String>,
    /// Whether a cable is plugged in.
    #[serde(deserialize_with = "lenient::option")]
    pub has_carrier: Option<bool>,
    /// PCI vendor.
    #[serde(deserialize_with = "lenient::option")]
    pub vendor: Option<String>,
    /// PCI product.
    #[serde(deserialize_with = "lenient::option")]
    pub product: Option<String>,
    /// Speed; negative where unknown.
    #[serde(deserialize_with = "lenient::int")]
    pub speed_mbps: Option<i64>,
    /// PCI address.
    #[serde(deserialize_with = "lenient::option")]
    pub pci_address: Option<String>,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// Name in the ramdisk.
    #[serde(deserialize_with = "lenient::option")]
    pub name: Option<String>,
    /// Stable name.
    #[serde(deserialize_with = "lenient::option")]
    pub by_path: Option<String>,
    /// Whether it turns.
    #[serde(deserialize_with = "lenient::option")]
    pub rotational: Option<bool>,
    /// Bytes.
    #[serde(deserialize_with = "lenient::int")]
    pub size: Option<i64>,
    /// Maker.
    #[serde(deserialize_with = "lenient::option")]
    pub vendor: Option<String>,
    /// Product.
    #[serde(deserialize_with = "lenient::option")]
    pub model: Option<String>,
    /// Serial number.
    #[serde(deserialize_with = "lenient::option")]
    pub serial: Option<String>,
    /// World wide name.
    #[serde(deserialize_with = "lenient::option")]
    pub wwn: Option<String>,
    /// Extension of the world wide name.
    #[serde(deserialize_with = "lenient::option")]
    pub wwn_vendor_extension: Option<String>,
    /// World wide name with its extension.
    #[serde(deserialize_with = "lenient::option")]
    pub wwn_with_extension: Option<String>,
    /// SCSI address.
    #[serde(deserialize_with = "lenient::option")]
    pub hctl: Option<String>,
}

/// What Ironic's hooks made of the inventory.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PluginData {
    /// True for a machine that nobody had registered. There is no other place that says it.
    #[serde(deserialize_with = "lenient::flag")]
    pub auto_discovered: bool,
    /// MAC address that the machine was booted by.
    #[serde(deserialize_with = "lenient::option")]
    pub boot_interface: Option<String>,
    /// MAC addresses that got a port.
    #[serde(deserialize_with = "lenient::texts")]
    pub macs: Vec<String>,
    /// Per interface name: what Ironic made of it.
    #[serde(deserialize_with = "lenient::entries")]
    pub all_interfaces: BTreeMap<String, Judged>,
    /// Per interface name: what the switch told about itself.
    #[serde(deserialize_with = "lenient::entries")]
    pub parsed_lldp: BTreeMap<String, Switch>,
}

/// What Ironic made of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Judged {
    /// Whether the machine was booted by it.
    #[serde(deserialize_with = "lenient::option")]
    pub pxe_enabled: Option<bool>,
}

/// What a switch tells the machines on its ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Switch {
    /// The switch.
    #[serde(rename = "switch_chassis_id", deserialize_with = "lenient::option")]
    pub chassis: Option<String>,
    /// The port.
    #[serde(rename = "switch_port_id", deserialize_with = "lenient::option")]
    pub port: Option<String>,
    /// The name of the switch.
    #[serde(rename = "switch_system_name", deserialize_with = "lenient::option")]
    pub name: Option<String>,
    /// The VLAN of what has no tag.
    #[serde(rename = "switch_port_untagged_vlan_id", deserialize_with = "lenient::option")]
    pub untagged: Option<i64>,
    /// VLANs of the port.
    #[serde(rename = "switch_port_vlans", deserialize_with = "lenient::list")]
    pub vlans: Vec<Vlan>,
}

/// A VLAN.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Vlan {
    /// Its number.
    #[serde(deserialize_with = "lenient::option")]
    pub id: Option<i64>,
    /// Its name.
    #[serde(deserialize_with = "lenient::option")]
    pub name: Option<String>,
}

impl Inventory {
    /// The inventory, unless it names no interface. Ironic takes none of those, so this is an answer of somebody in between.
    pub(crate) fn of_machine(self) -> Result<Self> {
        if self.machine.interfaces.is_empty() {
            return Err(Error::invalid("the inventory names no interface, so it is not Ironic's"));
        }
        Ok(self)
    }

    /// Whether addresses of the machine may be missing, since it gave more interfaces, or Ironic
    /// more addresses, than are read. Disks and all else that is missing then names nobody.
    pub fn is_cut(&self) -> bool {
        let lists = [self.machine.interfaces.len(), self.plugin_data.macs.len()];
        lists.into_iter().any(|entries| entries >= lenient::MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    #[test]
    fn one_odd_value_does_not_cost_the_rest() {
        let text = r#"{"inventory": {
            "hostname": 7, "cpu": {"count": "64", "architecture": "aarch64", "flags": ["a", 1]},
            "memory": {"physical_mb": 1024.9, "total": "many"},
            "interfaces": ["x", {"name": "eno1", "speed_mbps": -1, "lldp": []}, null],
            "disks": {"not": "a list"}, "system_vendor": "ACME", "boot": null,
            "bmc_address": "10.0.0.1"},
            "plugin_data": {"auto_discovered": true, "macs": ["aa"], "all_interfaces": []}}"#;
        let read: Inventory = serde_json::from_str(text).unwrap();
        assert_eq!(read.machine.hostname, None);
        assert_eq!(read.machine.cpu.count, Some(64));
        assert_eq!(read.machine.cpu.architecture.as_deref(), Some("aarch64"));
        assert_eq!(read.machine.cpu.flags, ["a"]);
        assert_eq!(read.machine.memory.physical_mb, Some(1024));
        assert_eq!(read.machine.memory.total, None);
        assert_eq!(read.machine.interfaces.len(), 1);
        assert_eq!(read.machine.interfaces[0].speed_mbps, Some(-1));
        assert!(read.machine.disks.is_empty());
        assert_eq!(read.machine.system_vendor, SystemVendor::default());
        assert_eq!(read.machine.bmc_address.as_deref(), Some("10.0.0.1"));
        assert!(read.plugin_data.auto_discovered);
        assert!(read.plugin_data.all_interfaces.is_empty());
    }

    #[test]
    fn an_inventory_without_anything_is_read_as_one() {
        for text in ["{}", r#"{"inventory": null, "plugin_data": null}"#] {
            let read: Inventory = serde_json::from_str(text).unwrap();
            assert_eq!(read, Inventory::default());
        }
    }

    #[test]
    fn an_inventory_without_interfaces_is_none_of_a_machine() {
        let class = |text: &str| {
            let read: Inventory = serde_json::from_str(text).unwrap();
            read.of_machine().err().map(|error| error.class())
        };
        for text in ["{}", r#"{"inventory": {"hostname": "n1", "interfaces": []}}"#] {
            assert_eq!(class(text), Some(Class::Invalid), "{text}");
        }
        assert_eq!(class(r#"{"inventory": {"interfaces": [{"name": "eno1"}]}}"#), None);
    }

    fn many(element: &str) -> String {
        vec![element; 200_000].join(",")
    }

    #[test]
    fn of_a_list_without_end_no_more_is_kept_than_a_machine_has_and_the_rest_is_read() {
        let text = format!(
            r#"{{"inventory": {{"disks": [{}], "cpu": {{"flags": [{}]}}, "hostname": "n1"}}}}"#,
            many("{}"),
            many(r#""x""#),
        );
        let read: Inventory = serde_json::from_str(&text).unwrap();
        assert_eq!(read.machine.disks.len(), lenient::MOST);
        assert!(read.machine.disks.capacity() <= 2 * lenient::MOST);
        assert_eq!(read.machine.cpu.flags.len(), lenient::MOST);
        assert_eq!(read.machine.hostname.as_deref(), Some("n1"));
        assert!(!read.is_cut());
    }

    #[test]
    fn an_inventory_is_cut_where_addresses_may_be_missing() {
        for (start, element, end) in [
            (r#"{"inventory": {"interfaces": ["#, "{}", "]}}"),
            (r#"{"plugin_data": {"macs": ["#, r#""x""#, "]}}"),
        ] {
            let text = [start, &many(element), end].concat();
            let read: Inventory = serde_json::from_str(&text).unwrap();
            assert!(read.is_cut(), "{start}");
        }
    }

    #[test]
    fn what_is_a_list_or_an_object_instead_of_a_text_is_passed_over_whole() {
        let parts = many(r#"{"a": [{"b": 1}]}"#);
        let text = format!(
            r#"{{"inventory": {{"hostname": [{parts}], "cpu": {{"frequency": [{parts}], "count": 2}},
                "boot": [{parts}]}},
                "plugin_data": {{"parsed_lldp": {{"eno1": {{"switch_port_vlans": [{{"id": 7}}, 3]}}}},
                "all_interfaces": {{"eno1": {{"lldp": [{parts}], "pxe_enabled": true}}, "x": 1}}}}}}"#
        );
        let read: Inventory = serde_json::from_str(&text).unwrap();
        assert_eq!(read.machine.hostname, None);
        assert_eq!(read.machine.cpu.frequency, Value::Null);
        assert_eq!(read.machine.cpu.count, Some(2));
        assert_eq!(read.machine.boot, Boot::default());
        let all = &read.plugin_data.all_interfaces;
        assert_eq!((all.len(), all["eno1"].pxe_enabled), (1, Some(true)));
        let vlan = Vlan { id: Some(7), name: None };
        assert_eq!(read.plugin_data.parsed_lldp["eno1"].vlans, [vlan]);
    }

    #[test]
    fn a_huge_number_is_kept_whole_or_not_at_all() {
        for (given, read) in [
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("\"9007199254740993\"", Some(9_007_199_254_740_993)),
            ("1e30", None),
            ("\"nan\"", None),
        ] {
            let disk: Disk = serde_json::from_str(&format!("{{\"size\": {given}}}")).unwrap();
            assert_eq!(disk.size, read, "{given}");
        }
    }
}
