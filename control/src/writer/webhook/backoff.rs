//! The pause before the next try of a delivery: exponential with full jitter, and at least what the receiver asks for.

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// The pause between the tries of one receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The longest pause after the first failure; it doubles with each further one.
    pub(crate) first_ms: u64,
}

impl Backoff {
    /// Returns the time of the next try after `failures` failures, or `None` if there are too many. `asked_ms` is the
    /// pause that the receiver asked for, and `random` a number from 0 up to 1.
    pub(crate) fn next_at_ms(self, now_ms: u64, failures: u32, asked_ms: u64, random: f64) -> Option<u64> {
        if failures >= FAILURES_MAX {
            return None;
        }
        let doublings = failures.saturating_sub(1).min(FAILURES_MAX);
        let longest = self.first_ms.saturating_mul(1 << doublings).min(PAUSE_MS_MAX);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "the product is between 0 and an hour"
        )]
        let pause_ms = (longest as f64 * random.clamp(0.0, 1.0)) as u64;
        Some(now_ms.saturating_add(pause_ms.max(asked_ms.min(PAUSE_MS_MAX))))
    }
}

/// Returns the pause of a `Retry-After` in seconds or as a date; 0 if there is none.
pub(crate) fn retry_after_ms(headers: &HeaderMap, now_ms: u64) -> u64 {
    let Some(text) = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()) else { return 0 };
    let seconds = text.trim().parse::<u64>().ok().map(|seconds| seconds.saturating_mul(1_000));
    let date = || {
        let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
        Some(u64::try_from(at).ok()?.saturating_sub(now_ms))
    };
    seconds.or_else(date).unwrap_or(0).min(PAUSE_MS_MAX)
}

/// A delivery is dead after this many failures (ADM-5).
const FAILURES_MAX: u32 = 10;
/// The longest pause, also if a receiver asks for more.
const PAUSE_MS_MAX: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_pause_doubles_is_random_and_ends_after_ten_failures() {
        let backoff = Backoff { first_ms: 5_000 };
        for (failures, asked_ms, random, want) in [
            (1, 0, 1.0, Some(5_000)),
            (1, 0, 0.5, Some(2_500)),
            (2, 0, 1.0, Some(10_000)),
            (9, 0, 1.0, Some(1_280_000)),
            (1, 60_000, 0.0, Some(60_000)),
            (1, 1_000, 0.5, Some(2_500)),
            (1, 86_400_000, 0.0, Some(3_600_000)),
            (10, 0, 0.0, None),
            (11, 60_000, 1.0, None),
        ] {
            assert_eq!(
                backoff.next_at_ms(0, failures, asked_ms, random),
                want,
                "{failures} {asked_ms} {random}"
            );
        }
        let slow = Backoff { first_ms: 3_600_000 };
        assert_eq!(slow.next_at_ms(7, 9, 0, 1.0), Some(3_600_007));
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date() {
        let now_ms = 1_792_840_060_000; // Sat, 24 Oct 2026 11:07:40 GMT
        for (text, want) in [
            ("7", 7_000),
            ("Sat, 24 Oct 2026 11:08:40 GMT", 60_000),
            ("Sat, 24 Oct 2026 11:06:40 GMT", 0),
            ("99999999999999999999", 0),
            ("9999999", 3_600_000),
            ("soon", 0),
        ] {
            let headers = [(RETRY_AFTER, HeaderValue::from_static(text))].into_iter().collect();
            assert_eq!(retry_after_ms(&headers, now_ms), want, "{text}");
        }
        assert_eq!(retry_after_ms(&HeaderMap::new(), now_ms), 0);
    }
}
