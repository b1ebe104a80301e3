//! What a host's status says about its hardware, made from an inventory.
//!
//! The operator decodes it strictly: a field that its schema lacks, or a value that the schema
//! refuses, would stop it at this host for ever. So what is made here are the schema's fields, one by one,
//! and a value that does not fit is left out.

use std::net::IpAddr;

use controller_kit::crd::{Field, Found, Needed, look};
use ironic::{Disk, Interface, Inventory};
use serde_json::{Value, json};

use crate::inventory::{LONGEST_TEXT, boots, printable};
use crate::mac::Mac;
use crate::settings::HOSTS;

/// Bytes that the encoded details have at most. They stand on a new host twice, and annotations of
/// one object may have 256 KiB together.
pub const MOST_BYTES: usize = 64 * 1024;

/// Entries of one list that are looked at; more than any machine has.
const MOST_ENTRIES: usize = 512;
/// VLANs of one interface.
const MOST_VLANS: usize = 128;

/// Fields of an interface that came to the operator's schema late, and whether a host may have them: the webhook of an
/// operator that does not know one refuses such a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateFields {
    /// Since release 0.12.
    pub lldp: bool,
    /// Since release 0.13.
    pub pci_address: bool,
}

impl LateFields {
    /// What the operator knows, by the CRD of its release. Only a CRD that describes the older fields of an interface and
    /// not a late one is an older release's: one that says less, or keeps whatever comes, says nothing about the operator.
    pub fn of(crd: &Value) -> Self {
        let has = |property: &'static str| {
            let path = &["status", "hardware", "nics", "[]"];
            let field =
                Field { path, property, schema: Value::Null, replace: false, optional: false };
            let needed = Needed { crd: HOSTS, versions: &["v1alpha1"], field: Some(field) };
            look(crd, &needed) == Found::Present
        };
        let is_silent = !(has("speedGbps") && has("pxe"));
        Self { lldp: is_silent || has("lldp"), pci_address: is_silent || has("pciAddress") }
    }
}

/// Hardware details as they stand on a host. A machine that waits for a person keeps them as text, in a third of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareDetails {
    /// JSON in the operator's schema.
    pub text: Box<str>,
    /// Whether something was left out because there was too much of it.
    pub cut: bool,
}

impl HardwareDetails {
    /// Makes the details from an inventory, at most [`MOST_BYTES`] of them, without what the installed operator does not know.
    pub fn read(inventory: &Inventory, known: LateFields) -> Self {
        let machine = &inventory.machine;
        let vendor = &machine.system_vendor;
        let firmware = &vendor.firmware;
        let details = json!({
            "systemVendor": {
                "manufacturer": text(vendor.manufacturer.as_deref()),
                "productName": text(vendor.product_name.as_deref()),
                "serialNumber": text(vendor.serial_number.as_deref()),
            },
            "firmware": {
                "bios": {
                    "date": text(firmware.build_date.as_deref()),
                    "vendor": text(firmware.vendor.as_deref()),
                    "version": text(firmware.version.as_deref()),
                },
            },
            "ramMebibytes": positive(machine.memory.physical_mb),
            "nics": nics(inventory, known),
            "storage": machine.disks.iter().take(MOST_ENTRIES).map(disk).collect::<Value>(),
            "cpu": {
                "arch": text(machine.cpu.architecture.as_deref()),
                "model": text(machine.cpu.model_name.as_deref()),
                "clockMegahertz": megahertz(&machine.cpu.frequency),
                "flags": flags(&machine.cpu.flags),
                "count": positive(machine.cpu.count),
            },
            "hostname": text(machine.hostname.as_deref()),
        });
        let mut cut = machine.interfaces.len() > MOST_ENTRIES
            || machine.disks.len() > MOST_ENTRIES
            || machine.cpu.flags.len() > MOST_ENTRIES;
        let mut details = without_absent(details);
        loop {
            let text = details.to_string();
            if text.len() <= MOST_BYTES {
                return Self { text: text.into(), cut };
            }
            shorten(&mut details);
            cut = true;
        }
    }
}

/// Halves the list that takes most.
fn shorten(details: &mut Value) {
    let size = |part: &Value| part.to_string().len();
    let size_of = |list: &&str| details.pointer(list).map_or(0, size);
    let longest = ["/cpu/flags", "/storage", "/nics"].into_iter().max_by_key(size_of);
    let Some(longest) = longest else { return };
    if let Some(list) = details.pointer_mut(longest).and_then(Value::as_array_mut) {
        // The interface that the machine boots from is the last to go.
        list.sort_by_key(|entry| longest == "/nics" && entry["pxe"] != true);
        list.truncate(list.len() / 2);
    }
}

/// A value without what the machine did not tell: to the operator a field that is absent is zero.
fn without_absent(value: Value) -> Value {
    let is_there = |it: &Value| match it {
        Value::Null => false,
        Value::Bool(is_so) => *is_so,
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    match value {
        Value::Object(fields) => {
            let there = fields.into_iter().filter(|(_, it)| is_there(it));
            there.map(|(name, it)| (name, without_absent(it))).collect()
        }
        Value::Array(list) => list.into_iter().map(without_absent).collect(),
        value => value,
    }
}

/// One entry for each address, as the operator does it: an interface with two is there twice.
fn nics(inventory: &Inventory, known: LateFields) -> Vec<Value> {
    let mut entries = Vec::new();
    for interface in inventory.machine.interfaces.iter().take(MOST_ENTRIES) {
        let texts = [interface.ipv4_address.as_deref(), interface.ipv6_address.as_deref()];
        let mut ips: Vec<_> = texts.into_iter().flatten().filter_map(address).map(Some).collect();
        if ips.is_empty() {
            ips.push(None);
        }
        entries.extend(ips.iter().map(|ip| nic(inventory, interface, ip.as_deref(), known)));
    }
    entries
}

fn nic(inventory: &Inventory, interface: &Interface, ip: Option<&str>, known: LateFields) -> Value {
    let name = interface.name.as_deref().unwrap_or_default();
    let told = inventory.plugin_data.parsed_lldp.get(name);
    let model = [interface.vendor.as_deref(), interface.product.as_deref()];
    let model: Vec<_> = model.into_iter().flatten().collect();
    let vlans = told.into_iter().flat_map(|told| &told.vlans).take(MOST_VLANS);
    let vlan = |id, name: Option<&str>| Some(json!({ "id": vlan_id(id)?, "name": text(name) }));
    let lldp = told.map(|told| {
        without_absent(json!({
            "switchID": text(told.chassis.as_deref()),
            "portID": text(told.port.as_deref()),
            "switchSystemName": text(told.name.as_deref()),
        }))
    });
    json!({
        "name": text(interface.name.as_deref()),
        "model": text(Some(model.join(" ").trim())),
        "mac": interface.mac_address.as_deref().and_then(hardware_address),
        "ip": ip,
        "speedGbps": positive(interface.speed_mbps.map(|speed| speed / 1000)),
        "pxe": boots(inventory, interface),
        "pciAddress": text(interface.pci_address.as_deref()).filter(|_| known.pci_address),
        "vlanId": told.and_then(|told| vlan_id(told.untagged)),
        "vlans": vlans.filter_map(|it| vlan(it.id, it.name.as_deref())).collect::<Value>(),
        "lldp": lldp.filter(|lldp| known.lldp && *lldp != json!({})),
    })
}

fn vlan_id(told: Option<u16>) -> Option<u16> {
    told.filter(|id| (1..=4094).contains(id))
}

/// An address that the schema takes: six bytes, which stay as they came where they are spelled as the schema has them, or
/// the twenty of `InfiniBand`, whose last bytes look like the six to a pattern without anchors.
fn hardware_address(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(mac) = Mac::parse(text) {
        return Some(if text.contains(':') { text.to_owned() } else { mac.to_string() });
    }
    let pair = |pair: &str| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
    let twenty = text.len() == 59 && text.split(':').all(pair);
    twenty.then(|| text.to_ascii_lowercase())
}

/// An IP address as it came, with its zone: so the operator keeps it. A zone that is no name of an interface is left out.
fn address(text: &str) -> Option<String> {
    let given = text.trim();
    let (ip, zone) = given.split_once('%').unwrap_or((given, ""));
    ip.parse::<IpAddr>().ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = (1..=32).contains(&zone.len()) && zone.chars().all(plain);
    Some(if is_name { given } else { ip }.to_owned())
}

fn disk(disk: &Disk) -> Value {
    let name = text(disk.name.as_deref());
    let by_path = text(disk.by_path.as_deref());
    let rotational = disk.rotational.unwrap_or_default();
    let by_bus = name.as_deref().is_some_and(|name| name.starts_with("/dev/nvme"));
    let kind = match (rotational, by_bus) {
        (true, _) => "HDD",
        (false, true) => "NVME",
        (false, false) => "SSD",
    };
    json!({
        "alternateNames": name.iter().chain(&by_path).cloned().collect::<Value>(),
        "name": by_path.or(name),
        "rotational": rotational,
        "type": kind,
        "sizeBytes": positive(disk.size),
        "vendor": text(disk.vendor.as_deref()),
        "model": text(disk.model.as_deref()),
        "serialNumber": text(disk.serial.as_deref()),
        "wwn": text(disk.wwn.as_deref()),
        "wwnVendorExtension": text(disk.wwn_vendor_extension.as_deref()),
        "wwnWithExtension": text(disk.wwn_with_extension.as_deref()),
        "hctl": text(disk.hctl.as_deref()),
    })
}

fn flags(told: &[String]) -> Vec<String> {
    let mut flags: Vec<_> =
        told.iter().take(MOST_ENTRIES).filter_map(|flag| text(Some(flag))).collect();
    flags.sort_unstable();
    flags
}

/// The number that a frequency begins with, rounded.
fn megahertz(told: &Value) -> Option<u32> {
    let number: f64 = match told {
        Value::String(text) => {
            let text = text.trim();
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
            text.get(..end)?.parse().ok()?
        }
        other => other.as_f64()?,
    };
    let rounded: u32 = number.round().to_string().parse().ok()?;
    (1..1_000_000_000).contains(&rounded).then_some(rounded)
}

fn positive(number: Option<i64>) -> Option<i64> {
    number.filter(|number| *number > 0)
}

fn text(told: Option<&str>) -> Option<String> {
    let text = printable(told?, LONGEST_TEXT);
    (!text.is_empty()).then_some(text)
}
