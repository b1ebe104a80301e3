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

/// Structs of what a machine reports. Each field is read by its [shape](lenient::Shape), and absent where its value has another.
macro_rules! reported {
    ($($(#[$about:meta])* struct $name:ident { $($(#[$of:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(
                $(#[$of])*
                #[serde(deserialize_with = "lenient::read")]
                pub $field: $type,
            )*
        }

        impl lenient::Object for $name {}
    )*};
}

reported! {
    /// The answer to the question for a node's inventory.
    struct Inventory {
        /// The machine.
        #[serde(rename = "inventory")]
        machine: Machine,
        /// What Ironic made of it.
        plugin_data: PluginData,
    }

    /// The machine as its ramdisk sees it.
    struct Machine {
        /// What the ramdisk believes its name to be; often a placeholder.
        hostname: Option<String>,
        /// Address of the BMC; `0.0.0.0` where the ramdisk found none.
        bmc_address: Option<String>,
        /// Address of the BMC; `::/0` where the ramdisk found none.
        bmc_v6address: Option<String>,
        /// How it was booted.
        boot: Boot,
        /// Processors.
        cpu: Cpu,
        /// Memory.
        memory: Memory,
        /// Who made it.
        system_vendor: SystemVendor,
        /// Network interfaces, in an order that means nothing.
        interfaces: Vec<Interface>,
        /// Disks.
        disks: Vec<Disk>,
    }

    /// How the machine was booted.
    struct Boot {
        /// `uefi` or `bios`.
        current_boot_mode: Option<String>,
        /// MAC address that it was booted by, sometimes in pxelinux's spelling (`01-…`).
        pxe_interface: Option<String>,
    }

    /// Processors.
    struct Cpu {
        /// Such as `x86_64`.
        architecture: Option<String>,
        /// Threads.
        count: Option<i64>,
        /// Capabilities.
        flags: Vec<String>,
        /// Megahertz, as text or number.
        frequency: Value,
        /// Marketing name.
        model_name: Option<String>,
    }

    /// Memory.
    struct Memory {
        /// MiB that are plugged in.
        physical_mb: Option<i64>,
        /// Bytes that the kernel has.
        total: Option<i64>,
    }

    /// Who made the machine.
    struct SystemVendor {
        /// Maker.
        manufacturer: Option<String>,
        /// Product.
        product_name: Option<String>,
        /// Serial number; often a placeholder.
        serial_number: Option<String>,
        /// Firmware.
        firmware: Firmware,
    }

    /// Firmware of the system.
    struct Firmware {
        /// Maker.
        vendor: Option<String>,
        /// Version.
        version: Option<String>,
        /// Date, in no fixed format.
        build_date: Option<String>,
    }

    /// A network interface.
    struct Interface {
        /// Name in the ramdisk.
        name: Option<String>,
        /// Hardware address: usually six bytes, twenty for `InfiniBand`.
        mac_address: Option<String>,
        /// Address.
        ipv4_address: Option<String>,
        /// Address, perhaps with a zone (`%eno1`).
        ipv6_address: Option<String>,
        /// Whether a cable is plugged in.
        has_carrier: Option<bool>,
        /// PCI vendor.
        vendor: Option<String>,
        /// PCI product.
        product: Option<String>,
        /// Speed; negative where unknown.
        speed_mbps: Option<i64>,
        /// PCI address.
        pci_address: Option<String>,
    }

    /// A disk.
    struct Disk {
        /// Name in the ramdisk.
        name: Option<String>,
        /// Stable name.
        by_path: Option<String>,
        /// Whether it turns.
        rotational: Option<bool>,
        /// Bytes.
        size: Option<i64>,
        /// Maker.
        vendor: Option<String>,
        /// Product.
        model: Option<String>,
        /// Serial number.
        serial: Option<String>,
        /// World wide name.
        wwn: Option<String>,
        /// Extension of the world wide name.
        wwn_vendor_extension: Option<String>,
        /// World wide name with its extension.
        wwn_with_extension: Option<String>,
        /// SCSI address.
        hctl: Option<String>,
    }

    /// What Ironic's hooks made of the inventory.
    struct PluginData {
        /// True for a machine that nobody had registered. There is no other place that says it.
        auto_discovered: bool,
        /// MAC address that the machine was booted by.
        boot_interface: Option<String>,
        /// MAC addresses that got a port.
        macs: Vec<String>,
        /// Per interface name: what Ironic made of it.
        all_interfaces: BTreeMap<String, Judged>,
        /// Per interface name: what the switch told about itself.
        parsed_lldp: BTreeMap<String, Switch>,
    }

    /// What Ironic made of an interface.
    struct Judged {
        /// Whether the machine was booted by it.
        pxe_enabled: Option<bool>,
    }

    /// What a switch tells the machines on its ports.
    struct Switch {
        /// The switch.
        #[serde(rename = "switch_chassis_id")]
        chassis: Option<String>,
        /// The port.
        #[serde(rename = "switch_port_id")]
        port: Option<String>,
        /// The name of the switch.
        #[serde(rename = "switch_system_name")]
        name: Option<String>,
        /// The VLAN of what has no tag.
        #[serde(rename = "switch_port_untagged_vlan_id")]
        untagged: Option<u16>,
        /// VLANs of the port.
        #[serde(rename = "switch_port_vlans")]
        vlans: Vec<Vlan>,
    }

    /// A VLAN.
    struct Vlan {
        /// Its number.
        id: Option<u16>,
        /// Its name.
        name: Option<String>,
    }
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
