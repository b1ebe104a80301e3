//! Which machines a discovery takes.

use std::net::IpAddr;

use api_types::metal3::HostSelector;
use ipnet::IpNet;

use crate::inventory::{Facts, Port};
use crate::mac::{Mac, hex};
use crate::text::{MAC_PREFIX_OF_GROUPS, NO_MAC_PREFIX, NO_SUBNET, wrong};

/// A selector that was read once and is asked often. Every rule that it has must hold; in a list one match
/// is enough; case does not matter. In a list of which no entry can be read nothing matches, rather than all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selector {
    given: HostSelector,
    mac_prefixes: Vec<Vec<u8>>,
    subnets: Vec<IpNet>,
}

impl Selector {
    /// Reads a selector, and says what in it no machine can match.
    pub fn read(given: &HostSelector) -> (Self, Vec<String>) {
        let mut mistakes = Vec::new();
        let mac_prefixes = entries(&given.mac_prefixes, &mut mistakes, read_mac_prefix);
        let subnets =
            entries(&given.subnets, &mut mistakes, |it| read_subnet("selector.subnets", it));
        let mut given = given.clone();
        for texts in [&mut given.manufacturers, &mut given.products, &mut given.architectures] {
            for text in texts {
                *text = folded(text);
            }
        }
        (Self { given, mac_prefixes, subnets }, mistakes)
    }

    /// Whether it has no rule at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a machine matches. What is not known of it matches no rule.
    pub fn matches(&self, facts: &Facts, ports: &[Port]) -> bool {
        let Self { given, mac_prefixes, subnets } = self;
        let mut macs = ports.iter().map(|port| port.mac).chain(facts.macs.iter().copied());
        let begins = |mac: Mac| mac_prefixes.iter().any(|it| mac.octets().starts_with(it));
        let is_within = |ip: &IpAddr| subnets.iter().any(|it| it.contains(&ip.to_canonical()));
        has(&given.manufacturers, facts.manufacturer.as_deref())
            && has(&given.products, facts.product.as_deref())
            && has(&given.architectures, facts.architecture.as_deref())
            && (given.mac_prefixes.is_empty() || macs.any(begins))
            && (given.subnets.is_empty() || facts.addresses.iter().any(is_within))
            && given.min_cpus.is_none_or(|least| facts.cpus >= least.into())
            && given.min_memory_mib.is_none_or(|least| facts.memory_mib >= least)
            && given.min_disk_gib.is_none_or(|least| facts.largest_disk_gib >= least)
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

fn folded(text: &str) -> String {
    text.trim().to_lowercase()
}

fn has(wanted: &[String], text: Option<&str>) -> bool {
    wanted.is_empty() || text.is_some_and(|text| wanted.contains(&folded(text)))
}

fn read_mac_prefix(given: &str) -> Result<Vec<u8>, String> {
    let bytes: Option<Vec<u8>> = given.trim().split([':', '-']).map(hex).collect();
    let bytes = bytes.filter(|bytes| bytes.len() <= 6);
    let mistake = |what| wrong("selector.macPrefixes", given, what);
    let bytes = bytes.ok_or_else(|| mistake(NO_MAC_PREFIX))?;
    let is_of_group = bytes.first().is_some_and(|first| first & 1 == 1);
    if is_of_group { Err(mistake(MAC_PREFIX_OF_GROUPS)) } else { Ok(bytes) }
}

pub(crate) fn read_subnet(field: &str, given: &str) -> Result<IpNet, String> {
    given.trim().parse().map_err(|_| wrong(field, given, NO_SUBNET))
}
