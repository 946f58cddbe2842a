//! The standing of a caller against a hard limit on cost, as Claude Code shows it.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Period, Quota};

/// A hard limit on cost and how much of it is used.
#[derive(Clone, Debug)]
pub struct SpendCap<'a> {
    /// The limit.
    pub quota: &'a Quota,
    /// The settled amount, in micro-dollars.
    pub used_micro_usd: u64,
    /// The end of its period, in milliseconds since the Unix epoch; `None` if it never ends.
    pub resets_at_ms: Option<u64>,
}

impl<'a> SpendCap<'a> {
    /// Returns the standing against a limit; `None` if it is no hard limit on cost.
    pub fn of(quota: &'a Quota, now_ms: u64) -> Option<Self> {
        if !quota.bounds_cost() {
            return None;
        }
        let reading = quota.counter.read(now_ms);
        let used_micro_usd = reading.used.div_ceil(quota.metric.units());
        let resets_at_ms = quota.period.and_then(|period| Self::end(period, now_ms));
        Some(Self { quota, used_micro_usd, resets_at_ms })
    }

    /// Returns the standing against the limit of which the largest share is used.
    pub fn fullest(quotas: impl Iterator<Item = &'a Arc<Quota>>, now_ms: u64) -> Option<Self> {
        quotas.filter_map(|quota| Self::of(quota, now_ms)).max_by_key(Self::used_percent)
    }

    /// Returns the used share in percent, rounded down; more than 100 if more is used than the limit.
    pub fn used_percent(&self) -> u64 {
        let (used, limit) = (u128::from(self.used_micro_usd), u128::from(self.quota.limit));
        (used * 100).checked_div(limit).map_or(100, |percent| u64::try_from(percent).unwrap_or(u64::MAX))
    }

    /// Returns a time in milliseconds since the Unix epoch as text in UTC, such as `2026-12-01T00:00:00Z`.
    pub fn utc(at_ms: u64) -> String {
        let seconds = i64::try_from(at_ms / 1_000).ok();
        let moment = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        moment.map_or_else(String::new, |moment| moment.to_string())
    }

    /// Returns the end of a period.
    fn end(period: Period, now_ms: u64) -> Option<u64> {
        match period {
            Period::Total => None,
            // Its amounts expire one after the other.
            Period::Minute => Some(now_ms.saturating_add(60_000)),
            Period::Hour | Period::Day | Period::Week | Period::Month => {
                period.window(now_ms).map(|(_, end_ms)| end_ms)
            }
        }
    }
}
