//! Which machines a discovery takes.

use std::net::IpAddr;

use api_types::metal3::HostSelector;

use crate::inventory::{Facts, Port};
use crate::mac::{Mac, hex};
use crate::text;

/// A selector that was read once and is asked often. Every rule that it has must hold; in a list
/// one match is enough; case does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    manufacturers: Vec<String>,
    products: Vec<String>,
    architectures: Vec<String>,
    mac_prefixes: Vec<MacPrefix>,
    subnets: Vec<Subnet>,
    min_cpus: i64,
    min_memory_mib: i64,
    min_disk_gib: i64,
    /// A list had entries, but none of them can be read: then nothing matches, rather than all.
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MacPrefix(Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    network: IpAddr,
    bits: u32,
}

impl Selector {
    /// Reads a selector, and says what in it no machine can match.
    pub fn read(given: &HostSelector) -> (Self, Vec<String>) {
        let mut mistakes = Vec::new();
        let mac_prefixes = entries(&given.mac_prefixes, &mut mistakes, MacPrefix::read);
        let subnets =
            entries(&given.subnets, &mut mistakes, |it| Subnet::read("selector.subnets", it));
        let nothing = mac_prefixes.is_empty() && !given.mac_prefixes.is_empty()
            || subnets.is_empty() && !given.subnets.is_empty();
        let selector = Self {
            manufacturers: folded(&given.manufacturers),
            products: folded(&given.products),
            architectures: folded(&given.architectures),
            mac_prefixes,
            subnets,
            min_cpus: given.min_cpus.unwrap_or_default().into(),
            min_memory_mib: given.min_memory_mib.unwrap_or_default(),
            min_disk_gib: given.min_disk_gib.unwrap_or_default(),
            nothing,
        };
        (selector, mistakes)
    }

    /// Whether it has no rule at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a machine matches. What is not known of it matches no rule.
    pub fn matches(&self, facts: &Facts, ports: &[Port]) -> bool {
        let mut macs = ports.iter().map(|port| port.mac).chain(facts.macs.iter().copied());
        !self.nothing
            && has(&self.manufacturers, facts.manufacturer.as_deref())
            && has(&self.products, facts.product.as_deref())
            && has(&self.architectures, facts.architecture.as_deref())
            && (self.mac_prefixes.is_empty()
                || macs.any(|mac| self.mac_prefixes.iter().any(|prefix| prefix.begins(mac))))
            && (self.subnets.is_empty()
                || facts.addresses.iter().any(|ip| self.subnets.iter().any(|it| it.holds(*ip))))
            && facts.cpus >= self.min_cpus
            && facts.memory_mib >= self.min_memory_mib
            && facts.largest_disk_gib >= self.min_disk_gib
    }
}

pub(crate) fn entries<T>(
    given: &[String],
    mistakes: &mut Vec<String>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let read = given.iter().map(|text| read(text));
    read.filter_map(|entry| entry.map_err(|mistake| mistakes.push(mistake)).ok()).collect()
}

fn folded(given: &[String]) -> Vec<String> {
    given.iter().map(|text| text.trim().to_lowercase()).collect()
}

fn has(wanted: &[String], text: Option<&str>) -> bool {
    wanted.is_empty() || text.is_some_and(|text| wanted.contains(&text.trim().to_lowercase()))
}

impl MacPrefix {
    fn read(given: &str) -> Result<Self, String> {
        let bytes: Option<Vec<u8>> = given.trim().split([':', '-']).map(hex).collect();
        let bytes = bytes.filter(|bytes| bytes.len() <= 6);
        let bytes = bytes.ok_or_else(|| text::no_mac_prefix(given))?;
        if bytes.first().is_some_and(|first| first & 1 == 1) {
            return Err(text::mac_prefix_of_groups(given));
        }
        Ok(Self(bytes))
    }

    fn begins(&self, mac: Mac) -> bool {
        mac.octets().starts_with(&self.0)
    }
}

impl Subnet {
    pub(crate) fn read(field: &str, given: &str) -> Result<Self, String> {
        let mistake = || text::no_subnet(field, given);
        let (network, bits) = given.trim().split_once('/').ok_or_else(mistake)?;
        let network: IpAddr = network.parse().map_err(|_| mistake())?;
        let bits: u32 = bits.parse().map_err(|_| mistake())?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        if bits > most {
            return Err(mistake());
        }
        Ok(Self { network, bits })
    }

    pub(crate) fn holds(&self, ip: IpAddr) -> bool {
        let differs = match (self.network, ip.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                u128::from(network.to_bits() ^ ip.to_bits()) << 96
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => network.to_bits() ^ ip.to_bits(),
            _ => return false,
        };
        differs.leading_zeros() >= self.bits
    }
}
