//! The standing of a caller against its limits on cost, in the headers and errors by which Claude Code shows it. Only keys
//! that Claude Code got by its sign-in see them: other clients treat such an answer as one of a subscription.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use shared::access::Access;
use shared::clock;
use shared::id::EndpointName;
use shared::quota::{Metric, Period, Quota, SpendCap};
use shared::routing::Target;
use shared::tags;

use super::quota::Notices;
use crate::error::{Fault, ReachedCap};

/// Adds the standing against the limit on cost of which the largest share is used.
pub(super) fn describe(
    access: &Access,
    endpoint: Option<&EndpointName>,
    target: Option<&Target>,
    notices: &mut Notices,
) {
    if access.quotas.is_empty() || !tags::is_signed_in(access.tags.as_deref()) {
        return;
    }
    let counts = |quota: &&Arc<Quota>| match target {
        Some(target) => quota.scope.covers(endpoint, target),
        None => quota.scope.covers_all(endpoint),
    };
    let Some(cap) = SpendCap::fullest(access.quotas.iter().filter(counts), clock::unix_ms()) else { return };
    // A request was allowed, so the limit is not shown as reached.
    let percent = cap.used_percent().min(99);
    let threshold = match percent {
        95.. => Some("0.95"),
        75..=94 => Some("0.75"),
        _ => None,
    };
    let status = if threshold.is_some() { "allowed_warning" } else { "allowed" };
    add(notices, STATUS, status);
    // The other claims are windows of hours and days with which the client computes.
    add(notices, REPRESENTATIVE_CLAIM, "overage");
    add(notices, OVERAGE_STATUS, status);
    add(notices, OVERAGE_UTILIZATION, &format!("0.{percent:02}"));
    if let Some(threshold) = threshold {
        add(notices, OVERAGE_THRESHOLD, threshold);
    }
    add_reset(notices, cap.resets_at_ms);
}

/// Returns the limit as part of a failure, if it limits cost and running requests do not hold the rest of it.
pub(super) fn reached(quota: &Quota, wait_ms: Option<u64>) -> Option<ReachedCap> {
    if quota.metric != Metric::CostMicroUsd || wait_ms == Some(0) {
        return None;
    }
    let resets_at_ms = SpendCap::of(quota, clock::unix_ms()).and_then(|cap| cap.resets_at_ms);
    Some(ReachedCap { period: quota.period, resets_at_ms })
}

/// Words the failure of a request beyond a limit on cost, and adds its headers.
pub(super) fn refuse(access: &Access, fault: &mut Fault, notices: &mut Notices) {
    let Some(quota) = fault.quota.as_deref_mut() else { return };
    let Some(cap) = quota.cap.filter(|_| tags::is_signed_in(access.tags.as_deref())) else { return };
    quota.is_billing = true;
    let reset = cap.resets_at_ms.map(|at_ms| format!(" It resets at {}.", SpendCap::utc(at_ms)));
    let advice = "Ask an administrator of the gateway to raise it.";
    fault.message = format!("{}{} {advice}", fault.message, reset.unwrap_or_default()).into();
    // With a representative claim the client would show words of its own instead of the message.
    add(notices, STATUS, "rejected");
    add_reset(notices, cap.resets_at_ms);
    add(notices, OVERAGE_UTILIZATION, "1");
    add(notices, OVERAGE_THRESHOLD, "1");
    let period = match cap.period {
        Some(Period::Day) => Some("daily"),
        Some(Period::Week) => Some("weekly"),
        Some(Period::Month) => Some("monthly"),
        Some(Period::Minute | Period::Hour | Period::Total) | None => None,
    };
    if let Some(period) = period {
        add(notices, OVERAGE_PERIOD, period);
    }
    add(notices, OVERAGE_DISABLED_REASON, "org_spend_cap_reached");
}

fn add(notices: &mut Notices, name: HeaderName, value: &str) {
    notices.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
}

/// Adds the end of the period in seconds since the Unix epoch.
fn add_reset(notices: &mut Notices, resets_at_ms: Option<u64>) {
    for name in [RESET, OVERAGE_RESET] {
        notices.extend(resets_at_ms.map(|at_ms| (name, HeaderValue::from(at_ms / 1_000))));
    }
}

const STATUS: HeaderName = HeaderName::from_static("anthropic-ratelimit-unified-status");
const REPRESENTATIVE_CLAIM: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-representative-claim");
const RESET: HeaderName = HeaderName::from_static("anthropic-ratelimit-unified-reset");
const OVERAGE_STATUS: HeaderName = HeaderName::from_static("anthropic-ratelimit-unified-overage-status");
const OVERAGE_UTILIZATION: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-utilization");
const OVERAGE_THRESHOLD: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-surpassed-threshold");
const OVERAGE_RESET: HeaderName = HeaderName::from_static("anthropic-ratelimit-unified-overage-reset");
const OVERAGE_PERIOD: HeaderName = HeaderName::from_static("anthropic-ratelimit-unified-overage-period");
const OVERAGE_DISABLED_REASON: HeaderName =
    HeaderName::from_static("anthropic-ratelimit-unified-overage-disabled-reason");
