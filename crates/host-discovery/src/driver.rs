//! What a BMC's address says: the kind of the BMC, which of Ironic's drivers can speak to it, and where it is.

use std::net::IpAddr;

use crate::ip::identifies;

/// A driver that can speak to a BMC, and the interfaces that a node of the operator's own making has with it. The others are the
/// driver's usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDriver {
    /// Its name in Ironic.
    pub driver: &'static str,
    boot: &'static str,
    others: &'static [(&'static str, &'static str)],
}

impl NodeDriver {
    /// Kinds and names of its interfaces.
    pub fn interfaces(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        std::iter::once(("boot", self.boot)).chain(self.others.iter().copied())
    }
}

const IPMI: NodeDriver =
    NodeDriver { driver: "ipmi", boot: "ipxe", others: &[("raid", "no-raid")] };
const REDFISH: NodeDriver = NodeDriver {
    driver: "redfish",
    boot: "ipxe",
    others: &[("firmware", "redfish"), ("raid", "redfish")],
};
const REDFISH_MEDIA: NodeDriver = NodeDriver { boot: "redfish-virtual-media", ..REDFISH };
const REDFISH_HTTP: NodeDriver = NodeDriver { boot: "redfish-https", ..REDFISH };
const IDRAC: NodeDriver = NodeDriver {
    driver: "idrac",
    boot: "ipxe",
    others: &[
        ("bios", "idrac-redfish"),
        ("firmware", "redfish"),
        ("management", "idrac-redfish"),
        ("power", "idrac-redfish"),
        ("raid", "idrac-redfish"),
        ("vendor", "idrac-redfish"),
    ],
};
const IDRAC_MEDIA: NodeDriver = NodeDriver { boot: "idrac-redfish-virtual-media", ..IDRAC };
const ILO: NodeDriver =
    NodeDriver { driver: "ilo", boot: "ilo-ipxe", others: &[("raid", "no-raid")] };
const ILO_MEDIA: NodeDriver = NodeDriver { boot: "ilo-virtual-media", ..ILO };
const ILO5: NodeDriver =
    NodeDriver { driver: "ilo5", boot: "ilo-ipxe", others: &[("raid", "ilo5")] };
const IRMC: NodeDriver =
    NodeDriver { driver: "irmc", boot: "pxe", others: &[("power", "ipmitool"), ("raid", "irmc")] };

/// Drivers that can speak to a BMC with this address, best first. The operator reads the kind of an address in the same
/// way, but sets driver and interfaces only of nodes that it makes itself.
pub fn drivers_of(address: &str) -> &'static [NodeDriver] {
    let (kind, _) = parts(address);
    let kind = kind.split('+').next().unwrap_or_default();
    match kind.to_ascii_lowercase().as_str() {
        "ipmi" | "libvirt" => &[IPMI],
        "idrac-redfish" => &[IDRAC, REDFISH],
        "idrac-virtualmedia" => &[IDRAC_MEDIA, REDFISH_MEDIA],
        "ilo4" => &[ILO],
        "ilo4-virtualmedia" => &[ILO_MEDIA],
        "ilo5" => &[ILO5],
        "irmc" => &[IRMC],
        "ilo5-redfish" => &[REDFISH, ILO5],
        "ilo5-virtualmedia" => &[REDFISH_MEDIA, ILO5],
        "redfish" => &[REDFISH],
        "redfish-virtualmedia" => &[REDFISH_MEDIA],
        "redfish-uefihttp" => &[REDFISH_HTTP],
        _ => &[],
    }
}

/// The IP address of a BMC, where its URL has one instead of a name:
/// `redfish+https://[fd00::1]:8000/redfish/v1/Systems/1`, `ipmi:192.0.2.1`, `192.0.2.1`.
pub fn ip_of(address: &str) -> Option<IpAddr> {
    let ip: IpAddr = host_part(address).parse().ok()?;
    let ip = ip.to_canonical();
    identifies(ip).then_some(ip)
}

/// The name or IP address under which a BMC is reached.
pub fn host_part(address: &str) -> &str {
    let (_, rest) = parts(address);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some(bracketed) = host.strip_prefix('[') {
        bracketed.split(']').next().unwrap_or_default()
    } else if host.matches(':').count() > 1 {
        host
    } else {
        host.split(':').next().unwrap_or_default()
    }
}

/// The kind of an address, and what follows. A kind begins with a letter and ends at the first `:`; the operator takes the
/// address also where no `//` stands behind it. A bare address, with or without a port, is one of IPMI.
fn parts(address: &str) -> (&str, &str) {
    let begins = address.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_bare = !begins || address.parse::<IpAddr>().is_ok();
    match address.split_once(':').filter(|_| !is_bare) {
        Some((kind, rest)) => (kind, rest.strip_prefix("//").unwrap_or(rest)),
        None => ("ipmi", address),
    }
}

#[cfg(test)]
mod tests {
    use super::drivers_of;

    #[test]
    fn an_address_names_its_driver() {
        for (address, driver) in [
            ("ipmi://192.0.2.1", "ipmi"),
            ("192.0.2.1:623", "ipmi"),
            ("192.0.2.1", "ipmi"),
            ("fd00::1", "ipmi"),
            ("bmc.example.org", "ipmi"),
            ("redfish://bmc/redfish/v1/Systems/1", "redfish"),
            ("redfish-virtualmedia+http://192.0.2.1:8000/redfish/v1/Systems/1", "redfish"),
            ("idrac-virtualmedia://192.0.2.1/", "idrac"),
            ("ilo4-virtualmedia://192.0.2.1", "ilo"),
            ("ilo5://192.0.2.1", "ilo5"),
            ("irmc://192.0.2.1", "irmc"),
        ] {
            assert_eq!(drivers_of(address)[0].driver, driver, "{address}");
        }
        assert!(drivers_of("carrier-pigeon://loft").is_empty());
    }

    /// The operator would deploy by another way than the address says: it sets the interfaces of its own nodes alone.
    #[test]
    fn an_address_names_how_its_machine_boots() {
        for (address, boot) in [
            ("ipmi://192.0.2.1", "ipxe"),
            ("redfish+https://192.0.2.1/redfish/v1/Systems/1", "ipxe"),
            ("redfish-virtualmedia+https://192.0.2.1/x", "redfish-virtual-media"),
            ("ilo5-virtualmedia://192.0.2.1/x", "redfish-virtual-media"),
            ("redfish-uefihttp://192.0.2.1/x", "redfish-https"),
            ("idrac-virtualmedia://192.0.2.1/x", "idrac-redfish-virtual-media"),
            ("ilo4-virtualmedia://192.0.2.1", "ilo-virtual-media"),
        ] {
            let first = drivers_of(address)[0].interfaces().next();
            assert_eq!(first, Some(("boot", boot)), "{address}");
        }
    }

    #[test]
    fn an_address_without_slashes_behind_its_kind_names_its_driver_as_well() {
        for (address, driver) in [
            ("redfish:192.0.2.1/redfish/v1/Systems/1", "redfish"),
            ("redfish+http:192.0.2.1:8000/redfish/v1/Systems/1", "redfish"),
            ("ipmi:192.0.2.1:6233", "ipmi"),
            ("irmc:192.0.2.1", "irmc"),
        ] {
            assert_eq!(drivers_of(address)[0].driver, driver, "{address}");
        }
        assert!(drivers_of("carrier-pigeon:loft").is_empty());
    }
}
