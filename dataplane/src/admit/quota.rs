//! Room under the caller's quotas, taken before anything goes upstream (ADM-4), and what the answer says of
//! them. Callers without quotas pay one look at an empty list.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use shared::access::Access;
use shared::clock;
use shared::error_kind::ErrorKind;
use shared::quota::{Claim, Exceeded, Metric, Quota, Reservation};
use shared::routing::Target;
use shared::usage::{TokenCounts, cost};
use wire::request::Head;

use crate::error::Fault;
use crate::record::Record;
use crate::relay::BYTES_PER_TOKEN;

/// What a request may come to use, as far as its head tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) input_tokens: u64,
    /// The client's own bound on the output, of all choices together.
    pub(crate) output_bound: Option<u64>,
    /// What the output is taken for where the client sets no bound.
    pub(crate) output_default: u64,
}

impl Demand {
    pub(crate) fn of(head: &Head, output_default: u64) -> Self {
        let choices = head.choices.unwrap_or(1).max(1);
        // Nothing but a conversation is answered in an unknown number of tokens.
        let output_default = if head.dialect.is_conversation() { output_default } else { 0 };
        Self {
            input_tokens: head.input_text_bytes.div_ceil(BYTES_PER_TOKEN),
            output_bound: head.max_output_tokens.map(|bound| bound.saturating_mul(choices)),
            output_default: output_default.saturating_mul(choices),
        }
    }

    fn claim(&self, candidates: &[&Target]) -> Claim {
        let output_wanted = self.output_bound.unwrap_or(self.output_default);
        let output_least = self.output_bound.unwrap_or(1).min(output_wanted);
        let dearest = |output: u64| {
            candidates
                .iter()
                .filter_map(|target| at_most(target, self.input_tokens, output))
                .max()
                .unwrap_or(0)
        };
        Claim {
            input_tokens: self.input_tokens,
            output_least,
            output_wanted,
            cost_least: dearest(output_least),
            cost_wanted: dearest(output_wanted),
        }
    }
}

/// Reserves what the request may come to use with any of `candidates`, and gives it to the record, which settles
/// it however the exchange ends.
pub(crate) fn reserve(
    access: &Access,
    demand: Demand,
    candidates: &[&Target],
    record: &mut Record,
) -> Result<(), Fault> {
    if access.quotas.is_empty() {
        return Ok(());
    }
    let claim = demand.claim(candidates);
    let reservation =
        Reservation::take(&access.quotas, &claim, clock::unix_ms()).map_err(|exceeded| over(&exceeded))?;
    if record.hold(reservation) { Ok(()) } else { Err(no_slot()) }
}

/// Whether the caller may spend up to a limit only, and so uses nothing whose price is not known.
pub(crate) fn bounds_cost(access: &Access) -> bool {
    access.quotas.iter().any(|quota| quota.bounds_cost())
}

/// Whether it is known what `target` costs at most for so much input.
pub(crate) fn is_priced(target: &Target, input_tokens: u64) -> bool {
    at_most(target, input_tokens.max(1), 1).is_some()
}

/// The most that so many tokens cost at `target`, in nano-dollars: input may have to be written to a cache, and
/// output may be reasoning.
fn at_most(target: &Target, input: u64, output: u64) -> Option<u64> {
    let prices = target.model.prices.as_ref()?;
    let plain = TokenCounts { input, output, ..TokenCounts::default() };
    let written = TokenCounts { cache_write: input, output, ..TokenCounts::default() };
    let reasoned = TokenCounts { input, reasoning: output, ..TokenCounts::default() };
    let dearer = [written, reasoned].iter().filter_map(|tokens| cost(tokens, prices)).max();
    cost(&plain, prices).map(|plain| plain.max(dearer.unwrap_or(0)))
}

fn no_slot() -> Fault {
    let message = "Too many requests of keys with quotas run at the same time. Try again.";
    Fault::new(ErrorKind::Overloaded, message).retry_after(Duration::from_secs(1))
}

/// The refusal: which quota, how much of it is needed, and when to come again.
fn over(exceeded: &Exceeded) -> Fault {
    let Exceeded { quota, least, wait_ms } = exceeded;
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
        None if quota.limit_in_units() == 0 => " It lets nothing pass: an administrator can raise it.",
        None if *least > quota.limit_in_units() => " That is more than the whole limit: ask for less.",
        None => " It does not renew itself: an administrator can raise it.",
        Some(0) => " Requests that are still running hold the rest of it.",
        Some(_) => "",
    };
    let fault =
        Fault::new(ErrorKind::QuotaExceeded, format!("The quota of {quota} is used up.{what}{advice}"));
    match wait_ms {
        None => fault,
        Some(0) => fault.retry_after(WHILE_HELD),
        Some(wait_ms) => fault.retry_after(Duration::from_millis(*wait_ms)),
    }
}

/// Says how much the caller's quotas leave, in OpenAI's headers: of the tightest on requests and on tokens.
pub(crate) fn describe(access: &Access, headers: &mut HeaderMap) {
    if access.quotas.is_empty() {
        return;
    }
    let now_ms = clock::unix_ms();
    headers_of(&access.quotas, |metric| metric == Metric::Requests, REQUESTS, now_ms, headers);
    headers_of(&access.quotas, Metric::is_tokens, TOKENS, now_ms, headers);
}

fn headers_of(
    quotas: &[Arc<Quota>],
    is_meant: impl Fn(Metric) -> bool,
    names: [HeaderName; 3],
    now_ms: u64,
    headers: &mut HeaderMap,
) {
    let left = |quota: &Arc<Quota>| {
        let reading = quota.counter.read(now_ms);
        (quota.limit.saturating_sub(reading.used).saturating_sub(reading.reserved), quota.limit, reading)
    };
    let hard = quotas.iter().filter(|quota| quota.is_hard && is_meant(quota.metric));
    let Some((left, limit, reading)) = hard.map(left).min_by_key(|(left, ..)| *left) else { return };
    let [limit_name, left_name, reset_name] = names;
    headers.insert(limit_name, HeaderValue::from(limit));
    headers.insert(left_name, HeaderValue::from(left));
    if let Some(end_ms) = reading.resets_at_ms
        && let Ok(text) = HeaderValue::from_str(&spoken(end_ms.saturating_sub(now_ms)))
    {
        headers.insert(reset_name, text);
    }
}

/// A time as OpenAI writes it: `20ms`, `1s`, `6m0s`, `2h0m1s`.
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

/// How soon to come again while requests that run hold what is left.
const WHILE_HELD: Duration = Duration::from_secs(1);
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
    fn times_read_as_openai_writes_them() {
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
