//! Parses the headers with which upstreams request a wait before a retry. Pure functions; the caller passes the time.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

/// The maximum wait; longer values are reduced to it.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Parses the value of `retry-after`: seconds, with an optional fraction, or an HTTP date. `now_ms` is the time since
/// the Unix epoch. A date in the past yields a zero wait.
pub fn retry_after(value: &str, now_ms: u64) -> Option<Duration> {
    let value = value.trim();
    if value.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return seconds(value);
    }
    let then = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(then.saturating_sub(Duration::from_millis(now_ms)).min(WAIT_MAX))
}

/// Parses the value of `retry-after-ms`.
pub fn retry_after_ms(value: &str) -> Option<Duration> {
    seconds(value.trim()).map(|wait| wait / 1000)
}

/// Parses the value of an `x-ratelimit-reset-..` header: a duration in Go's format, such as `6m0s`, `1h2m3.5s` or
/// `12ms`, or plain seconds.
pub fn go_duration(value: &str) -> Option<Duration> {
    let mut rest = value.trim();
    if let Some(wait) = seconds(rest) {
        return Some(wait);
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let units = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(units)?;
        let number = plain_number(number)?;
        let seconds = match unit {
            "d" => number * 86_400.0,
            "h" => number * 3600.0,
            "m" => number * 60.0,
            "s" => number,
            "ms" => number / 1e3,
            "us" | "µs" | "μs" => number / 1e6,
            "ns" => number / 1e9,
            _ => return None,
        };
        total = total.saturating_add(duration(seconds)?);
        rest = after;
    }
    (!value.trim().is_empty()).then(|| total.min(WAIT_MAX))
}

/// Returns the wait that a Google error requests: `retryDelay` of a `google.rpc.RetryInfo` among its details. `body`
/// may be a list of one error.
pub fn retry_info(body: &[u8]) -> Option<Duration> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let document = document.get(0).unwrap_or(&document);
    let details = document.pointer("/error/details")?.as_array()?;
    let info = details
        .iter()
        .find(|detail| detail["@type"].as_str().is_some_and(|kind| kind.ends_with("RetryInfo")));
    go_duration(info?.get("retryDelay")?.as_str()?)
}

fn seconds(value: &str) -> Option<Duration> {
    duration(plain_number(value)?)
}

/// Parses digits with at most one decimal point: neither `1e9` nor `inf`.
fn plain_number(value: &str) -> Option<f64> {
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { value.parse().ok() } else { None }
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.min(WAIT_MAX.as_secs_f64())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1994-11-06 08:49:37, the example of RFC 9110.
    const EXAMPLE_S: u64 = 784_111_777;

    #[test]
    fn reads_retry_after() {
        let now = (EXAMPLE_S - 30) * 1000;
        let rows = [
            ("5", Some(5.0)),
            (" 5 ", Some(5.0)),
            ("0", Some(0.0)),
            ("1.5", Some(1.5)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(30.0)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(30.0)),
            ("Sun Nov  6 08:49:37 1994", Some(30.0)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0.0)),
            ("99999999999999999999", Some(WAIT_MAX.as_secs_f64())),
            ("-5", None),
            ("1e9", None),
            ("soon", None),
            ("", None),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 28:49:37 GMT", None),
            ("Sun, 06 Nov 0 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 UTC", None),
            ("Sat, 29 Feb 2048 00:00:00 GMT", Some(WAIT_MAX.as_secs_f64())),
        ];
        for (value, want) in rows {
            assert_eq!(retry_after(value, now), want.map(Duration::from_secs_f64), "{value:?}");
        }
    }

    #[test]
    fn reads_retry_after_ms() {
        assert_eq!(retry_after_ms("250"), Some(Duration::from_millis(250)));
        assert_eq!(retry_after_ms("250.5"), Some(Duration::from_micros(250_500)));
        assert_eq!(retry_after_ms("x"), None);
    }

    #[test]
    fn the_retry_delay_of_a_google_error_is_read() {
        let body = include_bytes!("../fixtures/gemini/error.json");
        let wait = Some(Duration::from_secs(34));
        assert_eq!(retry_info(body), wait);
        let list = [b"[".as_slice(), body, b"]"].concat();
        assert_eq!(retry_info(&list), wait);
        for body in ["", "[]", "{}", r#"{"error":{"details":[{"@type":"google.rpc.QuotaFailure"}]}}"#] {
            assert_eq!(retry_info(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn reads_go_durations() {
        let rows = [
            ("1s", Some(1_000)),
            ("6m0s", Some(360_000)),
            ("12ms", Some(12)),
            ("1h2m3s", Some(3_723_000)),
            ("1h2m3.5s", Some(3_723_500)),
            ("2d", Some(172_800_000)),
            ("60", Some(60_000)),
            ("0s", Some(0)),
            ("", None),
            ("s", None),
            ("1x", None),
            ("1.2.3s", None),
            ("5m3", None),
        ];
        for (value, want) in rows {
            assert_eq!(go_duration(value), want.map(Duration::from_millis), "{value:?}");
        }
    }
}
