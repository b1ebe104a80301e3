//! The BMC that a discovery gives its hosts: made of the one fact that a machine names, an IP address. Pure.

use std::cmp::Reverse;
use std::net::IpAddr;

use api_types::metal3::DiscoveredBmc;
use ipnet::IpNet;

use crate::driver::drivers_of;
use crate::inventory::Facts;
use crate::selector::{entries, read_subnet};
use crate::text::{NO_BMC_TEMPLATE, wrong};

const PLACEHOLDER: &str = "{bmcAddress}";

/// `spec.bmc` in the form in which it is asked for each machine.
#[derive(Clone, Debug, PartialEq)]
pub struct BmcPolicy {
    /// What stands before and behind the IP address; none where the template makes no address that the operator can read.
    around: Option<(String, String)>,
    subnets: Vec<IpNet>,
}

/// A BMC that a machine names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedBmc {
    /// Its address, as the template makes it.
    pub address: String,
    /// Whether it lies in one of the subnets: no other is used.
    pub is_inside: bool,
}

impl BmcPolicy {
    /// Reads it. What the CRD refuses may stand in an object that is older than the CRD's rules.
    pub fn read(given: &DiscoveredBmc, mistakes: &mut Vec<String>) -> Self {
        let around = around(&given.address_template);
        if around.is_none() {
            mistakes.push(wrong("bmc.addressTemplate", &given.address_template, NO_BMC_TEMPLATE));
        }
        let read = |it: &str| read_subnet("bmc.subnets", it);
        Self { around, subnets: entries(&given.subnets, mistakes, read) }
    }

    /// Whether it makes addresses.
    pub fn is_valid(&self) -> bool {
        self.around.is_some()
    }

    /// The BMC that a machine names: of several addresses one in the subnets, IPv4 before IPv6. Nothing but the address is
    /// pasted: any other text of the machine could lead to another host.
    pub fn proposed(&self, facts: &Facts) -> Option<ProposedBmc> {
        let (before, behind) = self.around.as_ref()?;
        let is_inside = |ip: IpAddr| self.subnets.iter().any(|it| it.contains(&ip));
        let all = facts.bmc.iter().map(IpAddr::to_canonical);
        let ip = all.min_by_key(|ip| (Reverse(is_inside(*ip)), ip.is_ipv6()))?;
        let host = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
        Some(ProposedBmc { address: [before, &*host, behind].concat(), is_inside: is_inside(ip) })
    }
}

fn around(template: &str) -> Option<(String, String)> {
    let (before, behind) = template.split_once(PLACEHOLDER)?;
    let is_known = before.ends_with("://")
        && before.matches([':', '/']).count() == 3
        && !drivers_of(before).is_empty();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":/._~-".contains(c);
    let goes_on = behind.is_empty() || behind.starts_with([':', '/']);
    let is_valid = is_known && goes_on && behind.chars().all(is_plain);
    is_valid.then(|| (before.to_owned(), behind.to_owned()))
}
