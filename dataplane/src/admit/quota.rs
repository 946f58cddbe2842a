//! Reservations under the caller's quotas, made before anything goes upstream (ADM-4), and the headers about quotas.
//! Quotas that count a request regardless of its target are checked once, when its plan is made; those that depend on
//! the target are checked when it is tried. For callers without quotas this is one check of an empty list.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use shared::access::Access;
use shared::clock;
use shared::error_kind::ErrorKind;
use shared::id::{EndpointName, ProviderId};
use shared::quota::{Claim, Exceeded, Metric, Period, Place, Quota, Reservation, Scope};
use shared::routing::Target;

use super::demand::Demand;
use super::spend;
use crate::bounds::QUOTA_WARNING_BYTES;
use crate::error::{Fault, UsedUpQuota};
use crate::record::Record;

/// Reserves the amounts that the request may use with any of `candidates`, under the quotas that do not depend on the
/// target. Adds the reservation to the record, which settles it however the exchange ends. Returns the first quota that is
/// exceeded. `called` is the place of a request that was called in the line of one of them.
pub(crate) fn reserve(
    access: &Access,
    endpoint: Option<&EndpointName>,
    demand: Demand<'_>,
    candidates: &[&Target],
    (record, called): (&mut Record, Option<&Place>),
) -> Result<(), Box<Exceeded>> {
    if access.quotas.is_empty() {
        return Ok(());
    }
    let quotas = of_caller(access, endpoint);
    let claim = demand.claim(candidates);
    let reservation = Reservation::take_called(quotas, &claim, (called, clock::unix_ms()))?;
    record.hold(reservation);
    Ok(())
}

/// Reserves the amounts that the request may use with `target`, under the quotas that depend on that target. The
/// record releases the reservation when another target is tried. Returns the first quota that is exceeded.
pub(crate) fn reserve_target(
    access: &Access,
    endpoint: Option<&EndpointName>,
    demand: Demand<'_>,
    target: &Target,
    (record, called): (&mut Record, Option<&Place>),
) -> Result<(), Box<Exceeded>> {
    let mut quotas = of_target(access, endpoint, target).peekable();
    if quotas.peek().is_none() {
        return Ok(());
    }
    let claim = demand.claim(&[target]);
    let reservation = Reservation::take_called(quotas, &claim, (called, clock::unix_ms()))?;
    record.hold_target(reservation);
    Ok(())
}

/// Reserves a request to `provider` that uses no model: under the quotas that count every request and those of the
/// provider, but not under those of a model or an endpoint. Returns the first quota that is exceeded.
pub(crate) fn reserve_at_provider(
    access: &Access,
    provider: &ProviderId,
    record: &mut Record,
) -> Result<(), Box<Exceeded>> {
    if access.quotas.is_empty() {
        return Ok(());
    }
    let counts_it = |quota: &&Arc<Quota>| match &quota.scope {
        Scope { provider: Some(own), model: None, endpoint: None } => own == provider,
        scope => scope.covers_all(None),
    };
    let quotas = access.quotas.iter().filter(counts_it);
    record.hold(Reservation::take(quotas, &Claim::default(), clock::unix_ms())?);
    Ok(())
}

/// Returns the first hard quota that depends on `target` and is used up.
pub(crate) fn exceeded_of_target(
    access: &Access,
    endpoint: Option<&EndpointName>,
    demand: Demand<'_>,
    target: &Target,
) -> Option<Box<Exceeded>> {
    let mut hard = of_target(access, endpoint, target).filter(|quota| quota.is_hard).peekable();
    hard.peek()?;
    let (claim, now_ms) = (demand.claim(&[target]), clock::unix_ms());
    hard.find_map(|quota| quota.exceeded_by(&claim, now_ms))
}

/// Returns the first hard quota that does not depend on the target and is used up.
pub(crate) fn exceeded_of_caller(
    access: &Access,
    endpoint: Option<&EndpointName>,
    demand: Demand<'_>,
    candidates: &[&Target],
) -> Option<Box<Exceeded>> {
    let (claim, now_ms) = (demand.claim(candidates), clock::unix_ms());
    let mut hard = of_caller(access, endpoint).filter(|quota| quota.is_hard);
    hard.find_map(|quota| quota.exceeded_by(&claim, now_ms))
}

fn of_caller<'a>(
    access: &'a Access,
    endpoint: Option<&'a EndpointName>,
) -> impl Iterator<Item = &'a Arc<Quota>> {
    access.quotas.iter().filter(move |quota| quota.scope.covers_all(endpoint))
}

fn of_target<'a>(
    access: &'a Access,
    endpoint: Option<&'a EndpointName>,
    target: &'a Target,
) -> impl Iterator<Item = &'a Arc<Quota>> {
    let needs_target = access.quotas.iter().filter(|quota| quota.scope.needs_target());
    needs_target.filter(move |quota| quota.scope.covers(endpoint, target))
}

/// Returns the error for a request under a hard quota that cannot be noted in the usage log.
pub(crate) fn no_slot() -> Fault {
    let message = "Too many requests of keys with quotas are running. Try again.";
    Fault::new(ErrorKind::Overloaded, message).retry_after(Duration::from_secs(1))
}

/// Records the quota that refuses an exchange or one of its targets, and returns its error.
pub(crate) fn refused(exceeded: &Exceeded, record: &mut Record) -> Fault {
    record.note(|event| event.details.refused_by = Some(exceeded.quota.id.clone()));
    over(exceeded)
}

/// Records the quota of which this node has no share for an exchange, and returns the error of the exchange.
pub(crate) fn without_share(exceeded: &Exceeded, record: &mut Record) -> Fault {
    let quota = &exceeded.quota;
    record.note(|event| event.details.refused_by = Some(quota.id.clone()));
    let message = format!(
        "The quota of {quota} is not used up, but this node got no share of the rest in time: other nodes hold it, or the \
         database is slow or away. Try again."
    );
    Fault::new(ErrorKind::QuotaExceeded, message).retry_after(WHILE_HELD)
}

/// Returns the error for an exceeded quota: the quota, the required amount, and the time to retry.
pub(crate) fn over(exceeded: &Exceeded) -> Fault {
    let Exceeded { quota, least, wait_ms, .. } = exceeded;
    let what = match quota.metric {
        Metric::Requests | Metric::ConcurrentRequests => String::new(),
        Metric::CostMicroUsd => {
            let micro = least.div_ceil(Metric::CostMicroUsd.units());
            format!(" This request may cost {}.{:06} dollars.", micro / 1_000_000, micro % 1_000_000)
        }
        Metric::InputTokens | Metric::OutputTokens | Metric::TotalTokens => {
            format!(" This request may use {least} of them.")
        }
    };
    let advice = match wait_ms {
        None if quota.limit_in_units() == 0 => {
            " Its limit is 0, so it rejects every request: an \
             administrator can raise it."
        }
        None if *least > quota.limit_in_units() => " That exceeds the whole limit: request less.",
        None => " It never resets: an administrator can raise it.",
        Some(0) => " Running requests have reserved the rest of it.",
        Some(_) => "",
    };
    let message = format!("The quota of {quota} is used up.{what}{advice}");
    let used_up = UsedUpQuota { cap: spend::reached(quota, *wait_ms), ..used_up(quota) };
    let fault = Fault { quota: Some(Box::new(used_up)), ..Fault::new(ErrorKind::QuotaExceeded, message) };
    match wait_ms {
        None => fault,
        Some(0) => fault.retry_after(WHILE_HELD),
        Some(wait_ms) => fault.retry_after(Duration::from_millis(*wait_ms)),
    }
}

/// Returns a quota as part of a failure.
pub(super) fn used_up(quota: &Quota) -> UsedUpQuota {
    UsedUpQuota { name: name_of(quota), cap: None, is_billing: false }
}

/// Returns the name of a quota in Google's style, such as `RequestsPerDayPerKey`: Gemini's clients wait for the end of a
/// minute, and not for that of a day.
fn name_of(quota: &Quota) -> Box<str> {
    let period = quota.period.map(Period::name);
    let words =
        [Some(quota.metric.name()), period.map(|_| "per"), period, Some("per"), Some(quota.subject.name())];
    let parts = words.into_iter().flatten().flat_map(|word| word.split('_'));
    let capitalized = parts.map(|part| {
        let (first, rest) = part.split_at_checked(1).unwrap_or((part, ""));
        first.to_ascii_uppercase() + rest
    });
    capitalized.collect::<String>().into()
}

/// Headers about the quotas of a request.
pub(crate) type Notices = Vec<(HeaderName, HeaderValue)>;

/// Returns the remaining amounts of the quotas that count a request to `target`, in OpenAI's headers: of the tightest
/// quota on requests and of the tightest on tokens.
pub(crate) fn describe(access: &Access, endpoint: Option<&EndpointName>, target: Option<&Target>) -> Notices {
    let mut notices = Notices::new();
    if access.quotas.is_empty() {
        return notices;
    }
    let now_ms = clock::unix_ms();
    let covers = |quota: &&Arc<Quota>| match target {
        Some(target) => quota.scope.covers(endpoint, target),
        None => quota.scope.covers_all(endpoint),
    };
    let hard = || access.quotas.iter().filter(|quota| quota.is_hard).filter(covers);
    let requests = hard().filter(|quota| quota.metric == Metric::Requests);
    headers_of(requests, REQUESTS, now_ms, &mut notices);
    headers_of(hard().filter(|quota| quota.metric.is_tokens()), TOKENS, now_ms, &mut notices);
    notices
}

/// Returns the headers about the quotas of a request: of one that a target serves with its warnings, otherwise of one that any
/// target may serve.
pub(crate) fn notices(
    access: &Access,
    endpoint: Option<&EndpointName>,
    served: Option<(&Target, &Record)>,
) -> Notices {
    let target = served.map(|(target, _)| target);
    let mut notices = describe(access, endpoint, target);
    spend::describe(access, endpoint, target, &mut notices);
    if let Some((_, record)) = served {
        warn(record, &mut notices);
    }
    notices
}

/// Returns the headers about the quotas of a request that failed, and words the failure for the client of the key.
pub(crate) fn failure_notices(
    access: &Access,
    endpoint: Option<&EndpointName>,
    target: Option<&Target>,
    fault: &mut Fault,
) -> Notices {
    let mut notices = describe(access, endpoint, target);
    spend::refuse(access, fault, &mut notices);
    notices
}

/// Adds a warning header with the quotas that only count and would have rejected the request, as many as fit.
fn warn(record: &Record, notices: &mut Notices) {
    let mut text = String::new();
    for quota in record.warnings() {
        let separator = if text.is_empty() { "" } else { "; " };
        let more = format!("{separator}{} is exceeded: {quota}", quota.id);
        if QUOTA_WARNING_BYTES.excess(text.len() + more.len()) > 0 {
            break;
        }
        // A model name may contain characters that are invalid in a header.
        text.extend(more.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }));
    }
    if !text.is_empty()
        && let Ok(value) = HeaderValue::from_str(&text)
    {
        notices.push((X_QUOTA_WARNING, value));
    }
}

fn headers_of<'a>(
    quotas: impl Iterator<Item = &'a Arc<Quota>>,
    names: [HeaderName; 3],
    now_ms: u64,
    notices: &mut Notices,
) {
    let left = |quota: &'a Arc<Quota>| {
        let reading = quota.counter.read(now_ms);
        (quota.limit.saturating_sub(reading.used).saturating_sub(reading.reserved), quota, reading)
    };
    let Some((left, quota, reading)) = quotas.map(left).min_by_key(|(left, ..)| *left) else { return };
    let [limit_name, left_name, reset_name] = names;
    notices.push((limit_name, HeaderValue::from(quota.limit)));
    notices.push((left_name, HeaderValue::from(left)));
    if let Some(end_ms) = reading.resets_at_ms
        && let Ok(text) = HeaderValue::from_str(&spoken(reset_ms(quota, end_ms, now_ms)))
    {
        notices.push((reset_name, text));
    }
}

/// Returns the time in which everything counted expires, at most the window of a sliding minute: that counts by whole
/// seconds, so an amount may count for up to a second longer.
fn reset_ms(quota: &Quota, end_ms: u64, now_ms: u64) -> u64 {
    let left_ms = end_ms.saturating_sub(now_ms);
    if quota.period == Some(Period::Minute) { left_ms.min(60_000) } else { left_ms }
}

/// Formats a duration like OpenAI: `20ms`, `1s`, `6m0s`, `2h0m1s`.
fn spoken(ms: u64) -> String {
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let seconds = ms.div_ceil(1_000);
    let (hours, minutes, rest) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// The retry time while requests in progress hold the remaining amount.
const WHILE_HELD: Duration = Duration::from_secs(1);
const X_QUOTA_WARNING: HeaderName = HeaderName::from_static("x-llmgw-quota-warning");
const REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_times_have_the_openai_format() {
        for (ms, text) in [
            (0, "0ms"),
            (20, "20ms"),
            (1_000, "1s"),
            (1_001, "2s"),
            (360_000, "6m0s"),
            (59_999, "1m0s"),
            (7_201_000, "2h0m1s"),
        ] {
            assert_eq!(spoken(ms), text);
        }
    }
}
