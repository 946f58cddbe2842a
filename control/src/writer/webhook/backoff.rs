//! The pause before the next try of a delivery: exponential with full jitter, and at least what the receiver asks for.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use shared::backoff::Backoff;

/// Returns the time of the next try after `failures` failures, or `None` if there are too many. The longest pause is `first`
/// after the first failure, and doubles with each further one. `asked_ms` is the pause that the receiver asked for, and
/// `random` a number from 0 to 1.
pub(crate) fn next_try_ms(
    first: Duration,
    now_ms: u64,
    failures: u32,
    asked_ms: u64,
    random: f64,
) -> Option<u64> {
    let bound = Backoff::doubling(first, Duration::from_millis(PAUSE_MS_MAX)).bound(failures);
    let pause_ms = u64::try_from(bound.mul_f64(random).as_millis()).unwrap_or(PAUSE_MS_MAX);
    let next_at_ms = now_ms.saturating_add(pause_ms.max(asked_ms.min(PAUSE_MS_MAX)));
    (failures < FAILURES_MAX).then_some(next_at_ms)
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
        let first = Duration::from_secs(5);
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
                next_try_ms(first, 0, failures, asked_ms, random),
                want,
                "{failures} {asked_ms} {random}"
            );
        }
        assert_eq!(next_try_ms(Duration::from_secs(3_600), 7, 9, 0, 1.0), Some(3_600_007));
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
