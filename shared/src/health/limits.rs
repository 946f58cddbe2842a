//! The limits that an upstream has reported in the headers of its answers, such as requests and tokens per minute. The
//! data plane stores them at most once a second per provider instance; control reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;

/// The limits that one upstream and credential reported last.
#[derive(Debug, Default)]
pub struct ReportedLimits {
    /// The latest second for which an answer was read, on the coarse clock of the workers.
    read_at: AtomicU32,
    limits: ArcSwap<Vec<ReportedLimit>>,
}

/// One limit, as the upstream reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedLimit {
    /// The unit that is limited, such as `requests` or `input-tokens`; `retry-after` for a wait before any request.
    pub name: Box<str>,
    /// The limit.
    pub limit: Option<u64>,
    /// The rest of it.
    pub remaining: Option<u64>,
    /// The time at which the limit is full again, or at which a wait ends; in milliseconds since the Unix epoch.
    pub resets_at_ms: Option<u64>,
    /// The time of the answer, in milliseconds since the Unix epoch.
    pub seen_at_ms: u64,
}

impl ReportedLimits {
    /// Returns true for the first answer of each second. `second` only grows.
    pub fn is_due(&self, second: u32) -> bool {
        let is_newer = second > self.read_at.load(Ordering::Relaxed);
        is_newer && self.read_at.fetch_max(second, Ordering::Relaxed) < second
    }

    /// Stores the limits of an answer in place of earlier ones. An answer without limits changes nothing.
    pub fn store(&self, limits: Vec<ReportedLimit>) {
        if !limits.is_empty() {
            self.limits.store(Arc::new(limits));
        }
    }

    /// Returns the limits, without waits that have ended before `now_ms`.
    pub fn load(&self, now_ms: u64) -> Vec<ReportedLimit> {
        let is_over = |limit: &ReportedLimit| {
            let is_wait = limit.limit.is_none() && limit.remaining.is_none();
            is_wait && limit.resets_at_ms.is_none_or(|at_ms| at_ms <= now_ms)
        };
        self.limits.load().iter().filter(|limit| !is_over(limit)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_from_one_response_per_second() {
        let limits = ReportedLimits::default();
        let due: Vec<bool> = [1, 1, 3, 2, 3, 4].map(|second| limits.is_due(second)).into();
        assert_eq!(due, [true, false, true, false, false, true]);
    }

    #[test]
    fn the_latest_limits_are_kept_and_a_wait_until_it_expires() {
        let limits = ReportedLimits::default();
        let requests = ReportedLimit { name: "requests".into(), limit: Some(9), ..ReportedLimit::default() };
        let wait =
            ReportedLimit { name: "retry-after".into(), resets_at_ms: Some(50), ..ReportedLimit::default() };
        limits.store(vec![requests.clone(), wait.clone()]);
        limits.store(Vec::new());
        assert_eq!(limits.load(49), [requests.clone(), wait]);
        assert_eq!(limits.load(50), [requests]);
    }
}
