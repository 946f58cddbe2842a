//! When an upstream wants to be asked again. Pure functions over header values; the caller brings the time.

use std::time::Duration;

use serde_json::Value;

/// Longest wait that is believed.
const WAIT_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The value of `retry-after`: seconds, also with a fraction, or an HTTP date. `now_ms` is the time since the
/// Unix epoch. A date that has passed means no wait.
pub fn retry_after(value: &str, now_ms: u64) -> Option<Duration> {
    let value = value.trim();
    if value.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return seconds(value);
    }
    let then = Duration::from_secs(http_date(value)?);
    Some(then.saturating_sub(Duration::from_millis(now_ms)).min(WAIT_MAX))
}

/// The value of `retry-after-ms`.
pub fn retry_after_ms(value: &str) -> Option<Duration> {
    seconds(value.trim()).map(|wait| wait / 1000)
}

/// The value of an `x-ratelimit-reset-..` header: a duration as Go writes it, such as `6m0s`, `1h2m3.5s` or
/// `12ms`; or plain seconds.
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

/// The wait that an error of Google's asks for: `retryDelay` of a `google.rpc.RetryInfo` among its details. `body` may
/// be a list of one error.
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

/// Digits with at most one point: neither `1e9` nor `inf`.
fn plain_number(value: &str) -> Option<f64> {
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { value.parse().ok() } else { None }
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.min(WAIT_MAX.as_secs_f64())).ok()
}

/// Seconds since the Unix epoch, of any of the three forms of an HTTP date.
fn http_date(text: &str) -> Option<u64> {
    let words: Vec<&str> = text.split([' ', '-', ',']).filter(|word| !word.is_empty()).collect();
    let (day, month, year, time) = match words.as_slice() {
        [_, day, month, year, time, "GMT" | "UTC"] if time.contains(':') => (day, month, year, time),
        [_, month, day, time, year] => (day, month, year, time),
        _ => return None,
    };
    let month = u64::try_from(MONTHS.iter().position(|name| name == month)?).ok()?.checked_add(1)?;
    let (day, mut year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    if year < 100 {
        year += if year < 70 { 2000 } else { 1900 };
    }
    let clock: Vec<u64> = time.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [hour, minute, second] = clock.as_slice() else { return None };
    let legal = (1970..=9999).contains(&year) && (1..=31).contains(&day);
    if !legal || *hour > 23 || *minute > 59 || *second > 60 {
        return None;
    }
    Some(days_since_epoch(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01, counted in years that begin in March.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    (year * 365 + year / 4 - year / 100 + year / 400 + day_of_year).checked_sub(719_468)
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

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
            ("Sun, 06 Nov 0 08:49:37 GMT", Some(WAIT_MAX.as_secs_f64())),
        ];
        for (value, want) in rows {
            assert_eq!(retry_after(value, now), want.map(Duration::from_secs_f64), "{value:?}");
        }
    }

    #[test]
    fn counts_days_over_leap_years() {
        let rows = [((1970, 1, 1), 0), ((1970, 3, 1), 59), ((2000, 2, 29), 11_016), ((2026, 11, 21), 20_778)];
        for ((year, month, day), want) in rows {
            assert_eq!(days_since_epoch(year, month, day), Some(want), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn reads_retry_after_ms() {
        assert_eq!(retry_after_ms("250"), Some(Duration::from_millis(250)));
        assert_eq!(retry_after_ms("250.5"), Some(Duration::from_micros(250_500)));
        assert_eq!(retry_after_ms("x"), None);
    }

    #[test]
    fn reads_the_wait_that_google_asks_for() {
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
