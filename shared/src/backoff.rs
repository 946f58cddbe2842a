//! Pauses that grow exponentially with the number of failures.

use std::time::Duration;

/// The pauses after failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The upper bound of the pause after the first failure.
    pub first: Duration,
    /// The upper bound of every pause.
    pub max: Duration,
    /// The factor by which the bound grows with each further failure.
    pub multiplier: f64,
}

impl Backoff {
    /// Returns pauses that double with each further failure.
    pub const fn doubling(first: Duration, max: Duration) -> Self {
        Self { first, max, multiplier: 2.0 }
    }

    /// Returns the upper bound of the pause after `failures` failures in a row.
    pub fn bound(&self, failures: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.multiplier.powi(exponent);
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max).min(self.max)
    }

    /// Returns the bound in milliseconds.
    pub fn bound_ms(&self, failures: u32) -> u64 {
        u64::try_from(self.bound(failures).as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns a random pause up to the bound.
    pub fn pause(&self, failures: u32) -> Duration {
        self.bound(failures).mul_f64(random_fraction())
    }
}

/// Returns a uniformly distributed number from 0 to 1.
pub fn random_fraction() -> f64 {
    use std::hash::BuildHasher as _;
    let bits = std::hash::RandomState::new().hash_one(0_u8) >> 32;
    f64::from(u32::try_from(bits).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_grows_by_its_factor_up_to_the_maximum() {
        let backoff = Backoff::doubling(Duration::from_secs(2), Duration::from_secs(300));
        for (failures, seconds) in [(0, 2), (1, 2), (2, 4), (3, 8), (8, 256), (9, 300), (u32::MAX, 300)] {
            assert_eq!(backoff.bound(failures), Duration::from_secs(seconds), "{failures}");
        }
        let tripled = Backoff { multiplier: 3.0, ..backoff };
        assert_eq!(tripled.bound(3), Duration::from_secs(18));
        assert!((0..100).all(|_| backoff.pause(1) <= Duration::from_secs(2)));
    }
}
