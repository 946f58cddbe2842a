//! Networks of clients, and addresses that no upstream has and that are never dialled: link-local addresses and the metadata services of clouds.
//!
//! An IPv6 address that embeds an IPv4 address is checked as that IPv4 address, for every transition mechanism: a
//! network with NAT64 delivers `64:ff9b::a9fe:a9fe` to 169.254.169.254. Loopback and private addresses are allowed:
//! model servers on this machine and in the local network are supported, and only administrators set addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true if `address` must never be dialled.
pub fn is_refused(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_refused_v4(v4),
        IpAddr::V6(v6) => is_refused_v6(v6) || carried(v6).into_iter().flatten().any(is_refused_v4),
    }
}

fn is_refused_v4(v4: Ipv4Addr) -> bool {
    v4.is_link_local() || v4.is_broadcast() || v4.is_multicast() || METADATA_V4.contains(&v4)
}

/// Returns the network that probably belongs to one client: a single IPv4 address, or the /64 network of an IPv6 address.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// Returns true if resolvers read the name `host` as an IPv4 address, such as `2852039166` and `0xa9fea9fe`: a name that ends
/// in a number.
pub fn is_disguised_address(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_hex = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    last.bytes().all(|byte| byte.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(is_hex)
}

/// Returns true for the names of metadata services.
pub fn is_metadata_name(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    METADATA_NAMES.iter().any(|name| host.eq_ignore_ascii_case(name))
}

const METADATA_NAMES: [&str; 4] = ["metadata.google.internal", "metadata.goog", "metadata", "instance-data"];

fn is_refused_v6(v6: Ipv6Addr) -> bool {
    let [first, second, ..] = v6.segments();
    v6.is_unicast_link_local()
        || v6.is_multicast()
        || (first, second) == AWS_SERVICES
        || METADATA_V6.contains(&v6)
}

/// Returns the IPv4 addresses that `v6` may embed.
fn carried(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let bits = v6.to_bits();
    // The 32 bits that end `from_end` bits before the last one.
    let at = |from_end: u32| v4_of(bits >> from_end);
    match v6.segments() {
        // Mapped (RFC 4291), compatible (the same) and translated (RFC 7915).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => [Some(at(0)), None, None, None],
        // NAT64 (RFC 6052) with the well-known prefix.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => [Some(at(0)), None, None, None],
        // NAT64 with a network-specific prefix (RFC 8215) of 96, 64, 56 or 48 bits. The last two skip the octet that
        // starts at bit 64.
        [0x64, 0xff9b, 1, ..] => {
            let without_octet = bits >> 64 << 56 | bits & ((1 << 56) - 1);
            let split = |from_end: u32| v4_of(without_octet >> from_end);
            [Some(at(0)), Some(at(24)), Some(split(32)), Some(split(40))]
        }
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some(at(80)), None, None, None],
        // Teredo (RFC 4380): the client's address, inverted, and the server's.
        [0x2001, 0, ..] => [Some(v4_of(!bits)), Some(at(64)), None, None],
        _ => [None; 4],
    }
}

fn v4_of(bits: u128) -> Ipv4Addr {
    let [.., a, b, c, d] = bits.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),   // Azure
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), // Google
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), // Oracle
];
/// `fd00:ec2::/32`: AWS's metadata service, container credentials and name service.
const AWS_SERVICES: (u16, u16) = (0xfd00, 0xec2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_link_local_addresses_are_refused_in_every_form() {
        for text in [
            "169.254.169.254",
            "169.254.0.1",
            "255.255.255.255",
            "224.0.0.1",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::ffff:168.63.129.16",
            "::a9fe:a9fe",
            "::192.0.0.192",
            "::ffff:0:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::100.100.100.200",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:7:8:9:a9fe:a9fe",
            "64:ff9b:1:abcd:a9:fea9:fe00:0",
            "64:ff9b:1:aba9:fe:a9fe::",
            "64:ff9b:1:a9fe:a9:fe00::",
            "2002:a9fe:a9fe::",
            "2002:a9fe:a9fe:1:2:3:4:5",
            "2002:c000:c0::1",
            "2001:0:a9fe:a9fe::1",
            "2001:0:102:304:0:0:5601:5601",
        ] {
            assert!(is_refused(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn loopback_private_and_public_addresses_are_permitted() {
        for text in [
            "127.0.0.1",
            "::1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.0.193",
            "1.1.1.1",
            "fd00::1",
            "fd00:c1::1",
            "fd20:ce::1",
            "fc00::a9fe:a9fe",
            "::ffff:127.0.0.1",
            "64:ff9b::101:101",
            "64:ff9b:1::101:101",
            "64:ff9b:2::a9fe:a9fe",
            "2002:101:101::1",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
        ] {
            assert!(!is_refused(text.parse().unwrap()), "{text}");
        }
    }
}
