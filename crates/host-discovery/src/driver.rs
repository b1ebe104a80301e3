//! What a BMC's address says: the kind of the BMC, which of Ironic's drivers can speak to it, and where it is.

use std::net::IpAddr;

use crate::naming::identifies;

/// Drivers that can speak to a BMC with this address, best first. The operator reads the kind of an address in the same
/// way, but sets the driver only of nodes that it makes itself.
pub fn drivers_of(address: &str) -> &'static [&'static str] {
    let (kind, _) = parts(address);
    let kind = kind.split('+').next().unwrap_or_default();
    match kind.to_ascii_lowercase().as_str() {
        "ipmi" | "libvirt" => &["ipmi"],
        "idrac-redfish" | "idrac-virtualmedia" => &["idrac", "redfish"],
        "ilo4" | "ilo4-virtualmedia" => &["ilo"],
        "ilo5" => &["ilo5"],
        "ilo5-redfish" | "ilo5-virtualmedia" => &["redfish", "ilo5"],
        "irmc" => &["irmc"],
        "redfish" | "redfish-virtualmedia" | "redfish-uefihttp" => &["redfish"],
        _ => &[],
    }
}

/// The IP address of a BMC, where its URL has one instead of a name:
/// `redfish+https://[fd00::1]:8000/redfish/v1/Systems/1`, `ipmi:192.0.2.1`, `192.0.2.1`.
pub fn ip_of(address: &str) -> Option<IpAddr> {
    let (_, rest) = parts(address);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = if let Some(bracketed) = host.strip_prefix('[') {
        bracketed.split(']').next().unwrap_or_default()
    } else if host.matches(':').count() > 1 {
        host
    } else {
        host.split(':').next().unwrap_or_default()
    };
    let ip: IpAddr = host.parse().ok()?;
    let ip = ip.to_canonical();
    identifies(ip).then_some(ip)
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
            assert_eq!(drivers_of(address).first(), Some(&driver), "{address}");
        }
        assert!(drivers_of("carrier-pigeon://loft").is_empty());
    }

    #[test]
    fn an_address_without_slashes_behind_its_kind_names_its_driver_as_well() {
        for (address, driver) in [
            ("redfish:192.0.2.1/redfish/v1/Systems/1", "redfish"),
            ("redfish+http:192.0.2.1:8000/redfish/v1/Systems/1", "redfish"),
            ("ipmi:192.0.2.1:6233", "ipmi"),
            ("irmc:192.0.2.1", "irmc"),
        ] {
            assert_eq!(drivers_of(address).first(), Some(&driver), "{address}");
        }
        assert!(drivers_of("carrier-pigeon:loft").is_empty());
    }
}
