//! Addresses that tell machines apart.

use std::net::IpAddr;

/// Whether one machine alone has the address: not loopback, link-local, unspecified, and no group
/// of receivers.
pub fn identifies(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let narrow = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(narrow || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
}
