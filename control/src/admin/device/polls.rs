//! The times at which clients asked for their tokens, so that one that asks too often gets `slow_down`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The questions of each sign-in, on this node: the time, a monotonic one in milliseconds, by which they are all paid off.
#[derive(Debug, Default)]
pub(crate) struct PollTimes(Mutex<HashMap<Vec<u8>, u64>>);

impl PollTimes {
    /// Notes a question at `now_ms`. Returns true, and notes nothing, if the client has asked more often than its interval
    /// permits.
    pub(super) fn is_too_soon(&self, code_hash: &[u8], now_ms: u64) -> bool {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() >= POLLED_MAX {
            times.retain(|_, paid_ms| *paid_ms > now_ms);
        }
        let paid_ms = times.entry(code_hash.to_vec()).or_default();
        let next_ms = now_ms.max(*paid_ms) + PAUSE_MS;
        if next_ms - now_ms > BURST * PAUSE_MS {
            return true;
        }
        *paid_ms = next_ms;
        false
    }
}

/// The seconds that a client waits between two questions.
pub(super) const INTERVAL_SECONDS: u64 = 5;
/// The pause that is enforced, because a client's timer may be early.
const PAUSE_MS: u64 = 4_000;
/// The number of questions without a pause.
const BURST: u64 = 4;
/// The number of times at which those that no longer matter are removed. Only codes that were signed here have one, so there are
/// hardly more than `DEVICE_SIGN_INS`.
const POLLED_MAX: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_wait_is_too_soon_and_times_are_forgotten() {
        let polls = PollTimes::default();
        let asked = |now_ms| polls.is_too_soon(b"a", now_ms);
        assert_eq!([10_000; 5].map(asked), [false, false, false, false, true]);
        assert_eq!([13_999, 14_000, 14_001, 18_000].map(asked), [true, false, true, false]);
        assert!(!polls.is_too_soon(b"b", 14_000));
        let many = u32::try_from(POLLED_MAX).unwrap();
        for number in 0..many {
            polls.is_too_soon(&number.to_be_bytes(), 30_000);
        }
        polls.is_too_soon(b"c", 40_000);
        assert_eq!(polls.0.lock().unwrap().len(), 1);
    }
}
