//! Ports for servers that must be able to start again on the same one.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, TcpListener};

/// The ports from here to the first that the kernel gives to clients. No client takes one while a server is down.
const FIRST: u16 = 10_000;
/// The first of the kernel's ports, if it cannot be read.
const KERNELS: u16 = 32_768;

/// Returns a port of loopback on which nothing listens.
pub(crate) fn free() -> u16 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let kernels = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(KERNELS);
    let count = u64::from(kernels.max(FIRST + 1_000) - FIRST);
    let random = RandomState::new();
    let mut candidates = (0_u32..).map(|try_number| random.hash_one(try_number) % count);
    let free = candidates.find_map(|offset| {
        let port = FIRST + u16::try_from(offset).unwrap();
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok().then_some(port)
    });
    free.unwrap()
}
