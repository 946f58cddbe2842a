//! Reads the limits that an upstream reports in the headers of an answer: `x-ratelimit-*` (OpenAI and most others),
//! `anthropic-ratelimit-*`, and `retry-after`. At most one answer a second of each provider instance is read; for the
//! others this costs two loads.

use std::time::Duration;

use crate::bounds::REPORTED_LIMITS;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};
use shared::clock::{of_rfc3339, unix_ms};
use shared::health::ReportedLimit;
use shared::routing::ProviderInstance;
use wire::retry;

/// Keeps the limits of an answer that arrived at `now_s` on the worker's coarse clock.
pub(super) fn keep(provider: &ProviderInstance, headers: &HeaderMap, now_s: u32) {
    let limits = provider.circuits.limits();
    if limits.is_due(now_s) {
        limits.store(read(headers, unix_ms()));
    }
}

/// Returns true if the header says that nothing is left of a limit.
pub(super) fn is_spent(name: &HeaderName, value: &HeaderValue) -> bool {
    let is_remaining = || matches!(parts(name.as_str()), Some((_, Part::Remaining)));
    is_remaining() && value.to_str().ok().and_then(|value| number(value.trim())) == Some(0)
}

/// Returns the time until every limit of which nothing is left has been reset. A limit of 0 is none.
pub(super) fn spent_wait(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let limits = read(headers, now_ms);
    let spent = limits.iter().filter(|limit| limit.remaining == Some(0) && limit.limit != Some(0));
    let end_ms = spent.filter_map(|limit| limit.resets_at_ms).max()?;
    Some(Duration::from_millis(end_ms.saturating_sub(now_ms))).filter(|wait| !wait.is_zero())
}

/// Returns the limits of an answer in the order of its headers.
fn read(headers: &HeaderMap, now_ms: u64) -> Vec<ReportedLimit> {
    let mut limits: Vec<ReportedLimit> = Vec::new();
    for (name, value) in headers {
        let Some((name, part)) = parts(name.as_str()) else { continue };
        let Ok(value) = value.to_str().map(str::trim) else { continue };
        let place = limits.iter().position(|limit| *limit.name == *name).unwrap_or(limits.len());
        if place == limits.len() && !REPORTED_LIMITS.is_full(place) {
            limits.push(ReportedLimit { name: name.into(), seen_at_ms: now_ms, ..ReportedLimit::default() });
        }
        let Some(limit) = limits.get_mut(place) else { continue };
        match part {
            Part::Limit => limit.limit = number(value),
            Part::Remaining => limit.remaining = number(value),
            Part::Reset => limit.resets_at_ms = reset_at(value, now_ms),
        }
    }
    limits.retain(|limit| limit.limit.is_some() || limit.remaining.is_some());
    let wait = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    if let Some(wait) = wait.and_then(|value| retry::retry_after(value, now_ms)) {
        let resets_at_ms = Some(after(now_ms, wait));
        let name = RETRY_AFTER.as_str().into();
        limits.push(ReportedLimit { name, resets_at_ms, seen_at_ms: now_ms, ..ReportedLimit::default() });
    }
    limits
}

/// The part of a limit that a header contains.
#[derive(Clone, Copy, Debug)]
enum Part {
    Limit,
    Remaining,
    Reset,
}

/// Splits the name of a header into that of its limit and the part. A limit without a name is one on requests.
fn parts(header: &str) -> Option<(&str, Part)> {
    let (name, part) = if let Some(rest) = header.strip_prefix("x-ratelimit-") {
        let (part, name) = rest.split_once('-').unwrap_or((rest, "requests"));
        (name, part)
    } else {
        header.strip_prefix("anthropic-ratelimit-")?.rsplit_once('-')?
    };
    let part = match part {
        "limit" => Part::Limit,
        "remaining" => Part::Remaining,
        "reset" => Part::Reset,
        _ => return None,
    };
    (name.len() <= NAME_BYTES_MAX).then_some((name, part))
}

/// Returns the whole number at the start of `value`, which some upstreams extend by a fraction or a window.
fn number(value: &str) -> Option<u64> {
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    value.get(..end)?.parse().ok()
}

/// Returns the time of a reset: an RFC 3339 time, a Unix time in seconds or milliseconds, or the time until it as
/// seconds or in Go's format.
fn reset_at(value: &str, now_ms: u64) -> Option<u64> {
    match value.parse::<u64>() {
        Ok(ms) if ms >= UNIX_MS_MIN => Some(ms),
        Ok(seconds) if seconds >= UNIX_S_MIN => Some(seconds.saturating_mul(1_000)),
        _ => retry::go_duration(value).map(|wait| after(now_ms, wait)).or_else(|| of_rfc3339(value)),
    }
}

fn after(now_ms: u64, wait: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

/// Maximum bytes of a limit's name.
const NAME_BYTES_MAX: usize = 64;
/// The least number that is a Unix time in seconds: 2001.
const UNIX_S_MIN: u64 = 1_000_000_000;
/// The least number that is a Unix time in milliseconds: 2001.
const UNIX_MS_MIN: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::tests::passes;

    /// 2026-11-22T03:00:00Z.
    const NOW_MS: u64 = 1_795_316_400_000;

    /// Name, limit, remaining amount, and milliseconds until the reset.
    type Told = (String, Option<u64>, Option<u64>, Option<u64>);

    fn of(fields: &[(&str, &str)]) -> Vec<Told> {
        let field = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        let headers: HeaderMap = fields.iter().map(field).collect();
        let relative = |at_ms: u64| at_ms.saturating_sub(NOW_MS);
        let limits = read(&headers, NOW_MS).into_iter();
        limits
            .map(|limit| (limit.name.into(), limit.limit, limit.remaining, limit.resets_at_ms.map(relative)))
            .collect()
    }

    #[test]
    fn limits_are_read_in_the_forms_of_all_vendors() {
        let limit = |name: &str, limit, remaining, resets| (name.to_owned(), limit, remaining, resets);
        assert_eq!(
            of(&[
                ("x-ratelimit-limit-requests", "60"),
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-reset-requests", "1m0.5s"),
                ("x-ratelimit-limit-tokens", "150000"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-tokens", "6ms"),
            ]),
            [
                limit("requests", Some(60), Some(59), Some(60_500)),
                limit("tokens", Some(150_000), Some(149_984), Some(6)),
            ]
        );
        assert_eq!(
            of(&[
                ("anthropic-ratelimit-input-tokens-limit", "2000"),
                ("anthropic-ratelimit-input-tokens-remaining", "0"),
                ("anthropic-ratelimit-input-tokens-reset", "2026-11-22T03:00:30Z"),
                ("anthropic-ratelimit-unified-status", "allowed"),
                ("anthropic-ratelimit-unified-reset", "1795316460"),
                ("retry-after", "30"),
            ]),
            [
                limit("input-tokens", Some(2_000), Some(0), Some(30_000)),
                limit("retry-after", None, None, Some(30_000)),
            ]
        );
        for (reset, want) in [
            ("1795316460", Some(60_000)),
            ("1795316460000", Some(60_000)),
            ("60", Some(60_000)),
            ("60.5", Some(60_500)),
            ("soon", None),
        ] {
            let fields = [("x-ratelimit-limit", "10.0, 10;w=60"), ("x-ratelimit-reset", reset)];
            assert_eq!(of(&fields), [limit("requests", Some(10), None, want)], "{reset}");
        }
    }

    #[test]
    fn a_limit_of_which_nothing_is_left_names_its_wait_in_every_form() {
        let requests = |left: &'static str, reset| {
            vec![("x-ratelimit-remaining-requests", left), ("x-ratelimit-reset-requests", reset)]
        };
        let plain =
            |left: &'static str, reset| vec![("x-ratelimit-remaining", left), ("x-ratelimit-reset", reset)];
        let tokens = [("x-ratelimit-remaining-tokens", "9"), ("x-ratelimit-reset-tokens", "9s")];
        let anthropic = vec![
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-22T03:00:30Z"),
            ("anthropic-ratelimit-tokens-remaining", "0"),
            ("anthropic-ratelimit-tokens-reset", "2026-11-22T03:00:20Z"),
        ];
        for (fields, want_ms) in [
            (requests("0", "6m0s"), Some(360_000)),
            (requests("0", "120ms"), Some(120)),
            (plain("0", "1795316460"), Some(60_000)),
            (plain("0.0", "7.5"), Some(7_500)),
            (anthropic, Some(30_000)),
            ([&tokens[..], &requests("0", "2s")].concat(), Some(2_000)),
            (requests("01", "2s"), None),
            (requests("0", "0s"), None),
            (vec![("x-ratelimit-remaining-requests", "0")], None),
            ([&[("x-ratelimit-limit", "0")], &plain("0", "9")[..]].concat(), None),
        ] {
            let field = |(name, value): &(&str, &str)| {
                (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
            };
            let headers: HeaderMap = fields.iter().map(field).collect();
            let wait = spent_wait(&headers, NOW_MS).filter(|_| headers.iter().any(|(n, v)| is_spent(n, v)));
            assert_eq!(wait, want_ms.map(Duration::from_millis), "{fields:?}");
        }
    }

    #[test]
    fn the_number_and_the_names_of_limits_are_bounded() {
        let names: Vec<String> =
            (0..=REPORTED_LIMITS.max()).map(|n| format!("x-ratelimit-limit-{n}")).collect();
        let fields: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        assert_eq!(passes(&REPORTED_LIMITS, || of(&fields)).len(), REPORTED_LIMITS.max());
        let long = format!("x-ratelimit-limit-{}", "n".repeat(NAME_BYTES_MAX + 1));
        assert_eq!(of(&[(&long, "1")]), []);
        assert_eq!(of(&[("x-ratelimit-limit-requests", "99999999999999999999")]), []);
    }
}
