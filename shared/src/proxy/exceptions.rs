//! The upstreams of `NO_PROXY`, by the rules of Go's `net/http`, which those of curl differ from in details only.
//!
//! An entry is `*`, an address, a block of addresses, or a domain; an address or a domain may have a port. `example.com` is
//! the domain with all below it, `.example.com` and `*.example.com` are those below it only. An entry of another form is
//! ignored.

use std::net::IpAddr;

/// The upstreams that are reached without a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exceptions {
    all: bool,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    hosts: Hosts,
    /// The only port; `None` for all ports.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Block(IpAddr, u8),
    Domain {
        name: String,
        /// True if the domain itself is meant too, and not only those below it.
        itself: bool,
    },
}

impl Exceptions {
    /// Parses entries that are separated by commas or white space.
    pub(super) fn parse(text: &str) -> Self {
        let words = || text.split([',', ' ', '\t']).map(str::trim).filter(|word| !word.is_empty());
        Self { all: words().any(|word| word == "*"), entries: words().filter_map(entry).collect() }
    }

    /// True if one of the entries contains the upstream.
    pub(super) fn contain(&self, host: &str, port: u16) -> bool {
        if self.all {
            return true;
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        self.entries.iter().any(|entry| {
            entry.port.is_none_or(|own| own == port)
                && match (&entry.hosts, address) {
                    (Hosts::Block(block, bits), Some(address)) => is_within(address, *block, *bits),
                    (Hosts::Domain { name, itself }, None) => {
                        let below = host.strip_suffix(name.as_str());
                        below.is_some_and(|rest| if rest.is_empty() { *itself } else { rest.ends_with('.') })
                    }
                    (Hosts::Block(..), None) | (Hosts::Domain { .. }, Some(_)) => false,
                }
        })
    }
}

fn entry(word: &str) -> Option<Entry> {
    let word = word.to_ascii_lowercase();
    if let Some((address, bits)) = word.split_once('/') {
        let address: IpAddr = bare(address).parse().ok()?;
        let bits = bits.parse().ok().filter(|bits| *bits <= bits_of(address))?;
        return Some(Entry { hosts: Hosts::Block(address, bits), port: None });
    }
    if let Ok(address) = bare(&word).parse::<IpAddr>() {
        return Some(Entry { hosts: one(address), port: None });
    }
    let (host, port) = match word.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (word.as_str(), None),
    };
    if let Ok(address) = bare(host).parse::<IpAddr>() {
        return Some(Entry { hosts: one(address), port });
    }
    let host = host.strip_prefix('*').unwrap_or(host);
    let below = host.strip_prefix('.');
    let name = below.unwrap_or(host).trim_end_matches('.');
    let is_name = !name.is_empty() && !name.contains(['*', ':', '[', ']']);
    is_name.then(|| Entry { hosts: Hosts::Domain { name: name.to_owned(), itself: below.is_none() }, port })
}

/// Returns an address without brackets.
fn bare(text: &str) -> &str {
    text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text)
}

fn one(address: IpAddr) -> Hosts {
    let address = address.to_canonical();
    Hosts::Block(address, bits_of(address))
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn is_within(address: IpAddr, block: IpAddr, bits: u8) -> bool {
    let is_equal =
        |difference: u128, width: u32| difference.checked_shr(width - u32::from(bits)).unwrap_or(0) == 0;
    match (address, block) {
        (IpAddr::V4(a), IpAddr::V4(b)) => is_equal(u128::from(a.to_bits() ^ b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => is_equal(a.to_bits() ^ b.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_an_entry_contains_its_upstreams() {
        for (entries, host, port, want) in [
            ("", "api.example.com", 443, false),
            ("*", "api.example.com", 443, true),
            ("a.test, *", "10.0.0.1", 1, true),
            ("example.com", "example.com", 443, true),
            ("example.com", "api.example.com", 443, true),
            ("example.com", "API.EXAMPLE.COM.", 443, true),
            ("Example.COM.", "api.example.com", 443, true),
            ("example.com", "notexample.com", 443, false),
            ("example.com", "example.com.evil.test", 443, false),
            (".example.com", "api.example.com", 443, true),
            (".example.com", "example.com", 443, false),
            ("*.example.com", "a.b.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("example.com:8443", "example.com", 8443, true),
            ("example.com:8443", "api.example.com", 8443, true),
            ("example.com:8443", "example.com", 443, false),
            ("example.com:x", "example.com", 443, false),
            ("10.1.2.3", "10.1.2.3", 80, true),
            ("10.1.2.3", "10.1.2.4", 80, false),
            ("10.1.2.3", "::ffff:10.1.2.3", 80, true),
            ("10.1.2.3:8080", "10.1.2.3", 8080, true),
            ("10.1.2.3:8080", "10.1.2.3", 80, false),
            ("10.0.0.0/8", "10.255.0.1", 80, true),
            ("10.0.0.0/8", "11.0.0.1", 80, false),
            ("10.0.0.0/33", "10.0.0.1", 80, false),
            ("0.0.0.0/0", "192.0.2.1", 80, true),
            ("0.0.0.0/0", "2001:db8::1", 80, false),
            ("10.0.0.0/8", "ten.example.com", 80, false),
            ("2001:db8::1", "2001:db8::1", 443, true),
            ("[2001:db8::1]", "2001:db8::1", 443, true),
            ("[2001:db8::1]:443", "2001:db8::1", 443, true),
            ("[2001:db8::1]:443", "2001:db8::1", 8443, false),
            ("2001:db8::/32", "2001:db8:ffff::1", 443, true),
            ("2001:db8::/32", "2001:db9::1", 443, false),
            ("::/0", "2001:db9::1", 443, true),
            ("a.test b.test\tc.test", "x.b.test", 443, true),
            ("a.test,,c.test", "c.test", 443, true),
            ("com", "example.com", 443, true),
            ("0.1", "10.0.0.1", 443, false),
        ] {
            assert_eq!(Exceptions::parse(entries).contain(host, port), want, "{entries:?} {host}:{port}");
        }
    }
}
