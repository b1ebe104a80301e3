//! Which of Ironic's drivers a BMC's address calls for.

/// Drivers that can speak to a BMC with this address, best first. The operator reads the part before the first `:` in
/// the same way, but sets the driver only of nodes that it makes itself.
pub fn drivers_of(address: &str) -> &'static [&'static str] {
    let scheme = match address.split_once(':') {
        Some((scheme, rest)) if rest.starts_with("//") => scheme,
        // A bare address, with or without a port.
        _ => return &["ipmi"],
    };
    let scheme = scheme.split('+').next().unwrap_or_default();
    match scheme.to_ascii_lowercase().as_str() {
        "ipmi" | "libvirt" => &["ipmi"],
        "idrac-redfish" | "idrac-virtualmedia" => &["idrac", "redfish"],
        "ilo5-redfish" | "ilo5-virtualmedia" => &["redfish", "ilo5"],
        "redfish" | "redfish-virtualmedia" | "redfish-uefihttp" => &["redfish"],
        _ => &[],
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
            ("redfish://bmc/redfish/v1/Systems/1", "redfish"),
            ("redfish-virtualmedia+http://192.0.2.1:8000/redfish/v1/Systems/1", "redfish"),
            ("idrac-virtualmedia://192.0.2.1/", "idrac"),
        ] {
            assert_eq!(drivers_of(address).first(), Some(&driver), "{address}");
        }
        assert!(drivers_of("carrier-pigeon://loft").is_empty());
    }
}
