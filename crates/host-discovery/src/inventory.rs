//! What is believed of an inventory: the few facts that decide about a machine.
//!
//! Anybody on the provisioning network can post an inventory. So every text is short, every list
//! bounded, every address parsed, and only the ports, of which Ironic keeps every address once,
//! say which addresses are the machine's own.

use std::net::IpAddr;

use ironic::{Interface, Inventory};

use crate::ip::identifies;
use crate::mac::Mac;

/// Bytes of one text that are kept.
pub const LONGEST_TEXT: usize = 256;

/// IP addresses of one machine that are kept.
const MOST_ADDRESSES: usize = 128;
/// Hardware addresses of one machine. By these it is known: one with more is refused, since it might be a host by one that
/// is not kept.
const MOST_MACS: usize = 256;
/// Ports of one node. So many interfaces no machine has.
pub const MOST_PORTS: usize = 256;

/// A port of a node in Ironic, with an address that identifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    /// Its address.
    pub mac: Mac,
    /// Whether Ironic takes it for one that the machine boots by.
    pub pxe: bool,
}

impl Port {
    /// Reads a port; none if its address is no machine's own.
    pub fn read(port: &ironic::Port) -> Option<Self> {
        let mac = Mac::parse_usable(&port.address)?;
        Some(Self { mac, pxe: port.pxe_enabled.unwrap_or_default() })
    }
}

/// What decides about a machine. Texts are as the machine gave them but for what no text needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Whether Ironic discovered it by itself.
    pub auto_discovered: bool,
    /// Host name in the ramdisk.
    pub hostname: Option<Box<str>>,
    /// Serial number.
    pub serial_number: Option<Box<str>>,
    /// Manufacturer.
    pub manufacturer: Option<Box<str>>,
    /// Product.
    pub product: Option<Box<str>>,
    /// Architecture of the CPU.
    pub architecture: Option<Box<str>>,
    /// Model of the CPU.
    pub cpu_model: Option<Box<str>>,
    /// Whether it was started by UEFI, or by the BIOS.
    pub uefi: Option<bool>,
    /// Address of the interface that it boots from; none without a port.
    pub boot_mac: Option<Mac>,
    /// Addresses of interfaces in the inventory. Others may claim the same.
    pub macs: Vec<Mac>,
    /// The address that can name it: one that identifies, if there is one.
    pub ip: Option<IpAddr>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Addresses of its management controller.
    pub bmc: Vec<IpAddr>,
    /// CPU threads; 0 if unknown.
    pub cpus: i64,
    /// Memory; 0 if unknown.
    pub memory_mib: i64,
    /// The largest disk; 0 if unknown.
    pub largest_disk_gib: i64,
}

impl Facts {
    /// Bytes of its texts and addresses, of which a machine has as many as it likes.
    pub fn size(&self) -> usize {
        let texts = [
            &self.hostname,
            &self.serial_number,
            &self.manufacturer,
            &self.product,
            &self.architecture,
            &self.cpu_model,
        ];
        let texts: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
        let addresses = size_of_val(&self.addresses[..]) + size_of_val(&self.bmc[..]);
        texts + size_of_val(&self.macs[..]) + addresses
    }

    /// Addresses of its management controller as text, if it has one.
    pub fn bmc_text(&self) -> Option<String> {
        let all: Vec<String> = self.bmc.iter().map(ToString::to_string).collect();
        (!all.is_empty()).then(|| all.join(","))
    }
}

#[derive(Clone, Copy, Debug)]
struct Nic {
    mac: Option<Mac>,
    /// Whether Ironic took it for the one that the machine was booted by.
    boots: bool,
    has_link: bool,
    addresses: [Option<IpAddr>; 2],
}

impl Facts {
    /// What an inventory and the ports of the same node say; none where the machine has more addresses than are kept, since then
    /// nobody knows which host it is.
    pub fn read(inventory: &Inventory, ports: &[Port]) -> Option<Self> {
        let machine = &inventory.machine;
        let vendor = &machine.system_vendor;
        let nic = |nic: &Interface| Nic {
            mac: nic.mac_address.as_deref().and_then(Mac::parse_usable),
            boots: boots(inventory, nic),
            has_link: nic.has_carrier == Some(true),
            addresses: [address(nic.ipv4_address.as_deref()), address(nic.ipv6_address.as_deref())],
        };
        // The order in which the agent lists interfaces is an accident; that of their names can be repeated.
        let mut sorted: Vec<&Interface> = machine.interfaces.iter().collect();
        sorted.sort_by_key(|nic| (nic.name.is_none(), &nic.name, &nic.mac_address));
        let nics: Vec<Nic> = sorted.into_iter().map(nic).collect();
        let mut macs: Vec<Mac> = nics.iter().filter_map(|nic| nic.mac).collect();
        macs.sort_unstable();
        macs.dedup();
        if inventory.is_cut() || macs.len() > MOST_MACS || ports.len() > MOST_PORTS {
            return None;
        }
        macs.shrink_to_fit();
        let addresses = nics.iter().flat_map(|nic| nic.addresses.into_iter().flatten());
        let mut addresses: Vec<IpAddr> = addresses.take(MOST_ADDRESSES).collect();
        addresses.shrink_to_fit();
        // As it says itself, and as Ironic wrote down.
        let booted = [&machine.boot.pxe_interface, &inventory.plugin_data.boot_interface];
        let booted = booted.into_iter().flatten().filter_map(|mac| Mac::parse_usable(mac));
        let boot_mac = boot_mac(booted, &nics, ports);
        Some(Self {
            auto_discovered: inventory.plugin_data.auto_discovered,
            hostname: kept(machine.hostname.as_deref()),
            serial_number: kept(vendor.serial_number.as_deref()),
            manufacturer: kept(vendor.manufacturer.as_deref()),
            product: kept(vendor.product_name.as_deref()),
            architecture: kept(machine.cpu.architecture.as_deref()),
            cpu_model: kept(machine.cpu.model_name.as_deref()),
            uefi: match machine.boot.current_boot_mode.as_deref() {
                Some("uefi") => Some(true),
                Some("bios") => Some(false),
                _ => None,
            },
            boot_mac,
            macs,
            ip: naming_address(&nics, boot_mac),
            addresses,
            bmc: bmc(inventory),
            cpus: machine.cpu.count.unwrap_or_default().max(0),
            memory_mib: machine.memory.physical_mb.unwrap_or_default().max(0),
            largest_disk_gib: machine
                .disks
                .iter()
                .filter_map(|disk| disk.size)
                .max()
                .map_or(0, |bytes| bytes.max(0) >> 30),
        })
    }
}

/// Whether these are all ports of the machine: Ironic makes one after the other, and says in the inventory, which comes last, which
/// it makes.
pub fn has_all(inventory: &Inventory, ports: &[Port]) -> bool {
    let is_there = |text: &String| {
        let mac = Mac::parse_usable(text);
        mac.is_none_or(|mac| ports.iter().any(|port| port.mac == mac))
    };
    let made = &inventory.plugin_data.macs;
    let mut interfaces =
        inventory.machine.interfaces.iter().filter_map(|it| it.mac_address.as_ref());
    if made.is_empty() { interfaces.all(is_there) } else { made.iter().all(is_there) }
}

/// The address of the interface that the machine boots from: the one that it says it was booted
/// by, else the one that Ironic marked, else the first in name order, those with a link before
/// those without. It is one of the ports in any case: what an inventory says beyond that may be
/// another machine's address.
fn boot_mac(mut booted: impl Iterator<Item = Mac>, nics: &[Nic], ports: &[Port]) -> Option<Mac> {
    let own = |mac: Mac| ports.iter().any(|port| port.mac == mac);
    let marked = |mac: Mac| ports.iter().any(|port| port.mac == mac && port.pxe);
    let first = |wanted: &dyn Fn(&Nic, Mac) -> bool| {
        let mut nics = nics.iter().filter_map(|nic| Some((nic, nic.mac?)));
        nics.find(|(nic, mac)| own(*mac) && wanted(nic, *mac)).map(|(_, mac)| mac)
    };
    booted
        .find(|mac| own(*mac))
        .or_else(|| first(&|nic, _| nic.boots))
        .or_else(|| first(&|_, mac| marked(mac)))
        .or_else(|| first(&|nic, _| nic.has_link))
        .or_else(|| first(&|_, _| true))
        // Ports that the inventory does not mention have no name to be ordered by.
        .or_else(|| ports.iter().filter(|port| port.pxe).map(|port| port.mac).min())
        .or_else(|| ports.iter().map(|port| port.mac).min())
}

/// The boot interface's address, else that of the first interface in name order that has one;
/// IPv4 before IPv6. If none identifies, one that does not, so that it can be told.
fn naming_address(nics: &[Nic], boot_mac: Option<Mac>) -> Option<IpAddr> {
    let is_boot = |nic: &&Nic| boot_mac.is_some() && nic.mac == boot_mac;
    let ordered = nics.iter().filter(is_boot).chain(nics);
    let mut all = ordered.flat_map(|nic| nic.addresses.into_iter().flatten()).peekable();
    let first = all.peek().copied();
    all.find(|ip| identifies(*ip)).or(first)
}

/// Whether Ironic took the interface for the one that the machine was booted by.
pub(crate) fn boots(inventory: &Inventory, nic: &Interface) -> bool {
    let name = nic.name.as_deref().unwrap_or_default();
    let known = inventory.plugin_data.all_interfaces.get(name);
    known.is_some_and(|known| known.pxe_enabled == Some(true))
}

fn address(text: Option<&str>) -> Option<IpAddr> {
    text?.split('%').next()?.trim().parse().ok()
}

/// Addresses of its management controller. Where the ramdisk finds none it says so in ways of its own.
pub(crate) fn bmc(inventory: &Inventory) -> Vec<IpAddr> {
    let machine = &inventory.machine;
    let texts = [machine.bmc_address.as_deref(), machine.bmc_v6address.as_deref()];
    // Some write the length of the network behind it, as in `2001:db8::5/64`.
    let bare = texts.into_iter().flatten().filter_map(|text| text.split('/').next());
    let read = bare.filter_map(|text| text.trim().parse().ok());
    read.filter(|ip| identifies(*ip)).collect()
}

fn kept(text: Option<&str>) -> Option<Box<str>> {
    let text = printable(text?, LONGEST_TEXT);
    (!text.trim().is_empty()).then(|| text.into_boxed_str())
}

/// An error as it is passed on: on one line, and of one that is too long its beginning and its end, since Ironic puts the
/// cause last.
pub(crate) fn abridged(text: &str, longest: usize) -> String {
    const BEGINNING: usize = 80;
    const GAP: &str = " ... ";
    let spaced: String =
        text.trim().chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    let whole = printable(&spaced, usize::MAX);
    if whole.len() <= longest {
        return whole;
    }
    let mut from = whole.len() - longest.saturating_sub(BEGINNING + GAP.len());
    while !whole.is_char_boundary(from) {
        from += 1;
    }
    let beginning = printable(&whole, BEGINNING);
    [beginning.as_str(), GAP, whole.get(from..).unwrap_or_default()].concat()
}

/// The text without control characters and marks that turn the direction of writing, cut to so many bytes.
pub(crate) fn printable(text: &str, longest: usize) -> String {
    let shows = |c: &char| {
        !c.is_control()
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut kept = String::new();
    for c in text.chars().filter(shows) {
        if kept.len() + c.len_utf8() > longest {
            break;
        }
        kept.push(c);
    }
    kept.shrink_to_fit();
    kept
}
