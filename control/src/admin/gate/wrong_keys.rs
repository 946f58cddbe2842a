//! Rate limit for wrong administrator keys. Each address has a bucket, and all addresses together have one.
//!
//! Only wrong keys are limited. A valid key is never delayed; otherwise anyone who shares an address with the
//! operator (a proxy, a container bridge) could lock the operator out. The length of a key makes guessing hopeless;
//! the limit bounds the work, the logs and the audit records that guessing causes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use shared::address::client_network;

/// Buckets of recent wrong keys.
#[derive(Debug, Default)]
pub(super) struct WrongKeys(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    of_address: HashMap<IpAddr, LeakyBucket>,
    of_all: LeakyBucket,
}

/// A leaky bucket, stored as the time at which it will be empty, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct LeakyBucket(u64);

/// The capacity and leak rate of a bucket.
#[derive(Clone, Copy, Debug)]
struct Size {
    drops: u64,
    drop_ms: u64,
}

impl WrongKeys {
    /// Records a wrong key at `now_ms`. If the limit is exceeded, returns the time until the next attempt is allowed,
    /// in milliseconds.
    pub(super) fn note(&self, address: IpAddr, now_ms: u64) -> Result<(), u64> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { of_address, of_all } = &mut *table;
        // The global limit bounds how many addresses are remembered.
        of_all.room(OF_ALL, now_ms)?;
        if of_address.len() >= ADDRESSES_MAX {
            of_address.retain(|_, bucket| bucket.0 > now_ms);
        }
        let bucket = of_address.entry(client_network(address)).or_default();
        bucket.room(OF_ADDRESS, now_ms)?;
        bucket.add(OF_ADDRESS, now_ms);
        of_all.add(OF_ALL, now_ms);
        Ok(())
    }
}

impl LeakyBucket {
    fn room(self, size: Size, now_ms: u64) -> Result<(), u64> {
        let filled = self.0.saturating_sub(now_ms) + size.drop_ms;
        match filled.saturating_sub(size.drops * size.drop_ms) {
            0 => Ok(()),
            wait_ms => Err(wait_ms),
        }
    }

    fn add(&mut self, size: Size, now_ms: u64) {
        self.0 = self.0.max(now_ms) + size.drop_ms;
    }
}

/// A burst of 20, then one every 6 seconds.
const OF_ADDRESS: Size = Size { drops: 20, drop_ms: 6_000 };
/// A burst of 2,000, then 50 a second.
const OF_ALL: Size = Size { drops: 2_000, drop_ms: 20 };
/// The number of buckets at which empty ones are removed. A wrong key fills a bucket for 6 seconds, so `OF_ALL`
/// allows at most 2,300 non-empty buckets at the same time.
const ADDRESSES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn wrong_keys_of_an_address_are_limited_by_burst_and_rate() {
        let wrong_keys = WrongKeys::default();
        let here = IpAddr::from([10, 0, 0, 1]);
        for n in 0..20 {
            assert_eq!(wrong_keys.note(here, 1_000), Ok(()), "{n}");
        }
        assert_eq!(wrong_keys.note(here, 1_000), Err(6_000));
        assert_eq!(wrong_keys.note(here, 6_999), Err(1), "a refused one costs nothing more");
        assert_eq!(wrong_keys.note(here, 7_000), Ok(()));
        assert_eq!(wrong_keys.note(here, 7_000), Err(6_000));
        assert_eq!(wrong_keys.note(IpAddr::from([10, 0, 0, 2]), 7_000), Ok(()), "another address");
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address_and_mapped_ipv4_as_ipv4() {
        let wrong_keys = WrongKeys::default();
        for n in 0..20 {
            let address: std::net::Ipv6Addr = format!("2001:db8:1:2::{n:x}").parse().unwrap();
            assert_eq!(wrong_keys.note(address.into(), 0), Ok(()));
            assert_eq!(wrong_keys.note(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into(), 0), Ok(()));
        }
        assert!(wrong_keys.note("2001:db8:1:2:ffff::".parse().unwrap(), 0).is_err());
        assert!(wrong_keys.note(IpAddr::from([10, 0, 0, 1]), 0).is_err());
        assert!(wrong_keys.note("2001:db8:1:3::".parse().unwrap(), 0).is_ok());
    }

    #[test]
    fn wrong_keys_from_many_addresses_are_bounded_in_number_and_memory() {
        let wrong_keys = WrongKeys::default();
        let mut accepted = 0;
        for n in 0..1_000_000_u32 {
            // 1,000 addresses a second for 1,000 seconds.
            accepted += u32::from(wrong_keys.note(IpAddr::from(n.to_be_bytes()), u64::from(n)).is_ok());
        }
        assert!((50_000..=52_000).contains(&accepted), "{accepted}");
        assert!(wrong_keys.0.lock().unwrap().of_address.len() <= ADDRESSES_MAX);
    }
}
