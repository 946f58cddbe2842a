//! `GET /api/oauth/usage`: the caller's own limits on cost in the shape that Claude Code shows, amounts in cents. Limits that the
//! caller shares with others are left out, because their usage would show that of the others.

use http::Response;
use serde_json::{Value, json};
use shared::access::Access;
use shared::clock::unix_ms;
use shared::port::Body;
use shared::quota::{Period, SpendCap, Subject};

use crate::admin::{ApiError, App, json};
use crate::db::HOUR_MS;
use crate::usage::key_days::days_of_key;

/// Answers with the standing of a caller.
pub(super) async fn show(app: &App, access: &Access) -> Result<Response<Body>, ApiError> {
    let now_ms = unix_ms();
    let own = |subject| matches!(subject, Subject::Key | Subject::Principal);
    let quotas = access.quotas.iter().filter(|quota| own(quota.subject) && quota.scope.covers_all(None));
    let mut caps: Vec<SpendCap<'_>> = quotas.filter_map(|quota| SpendCap::of(quota, now_ms)).collect();
    // The fullest first: the headers of answers describe that one.
    caps.sort_by_key(|cap| std::cmp::Reverse(cap.used_percent()));
    let Some(fullest) = caps.first() else { return without_limit(app, access, now_ms).await };
    let extra_usage = json!({
        "is_enabled": true,
        "monthly_limit": cents(fullest.quota.limit),
        "used_credits": cents(fullest.used_micro_usd),
        "utilization": fullest.used_percent(),
        "currency": "USD",
    });
    let limits: Vec<Value> = caps.iter().enumerate().map(|(place, cap)| limit(cap, place == 0)).collect();
    json(&json!({"extra_usage": extra_usage, "limits": limits}))
}

fn limit(cap: &SpendCap<'_>, is_active: bool) -> Value {
    let group = match cap.quota.period {
        Some(Period::Day) => "daily",
        Some(Period::Week) => "weekly",
        Some(Period::Month) => "monthly",
        Some(Period::Hour) => "hourly",
        Some(Period::Minute) => "minutely",
        Some(Period::Total) | None => "total",
    };
    json!({
        "kind": "spend",
        "group": group,
        "percent": cap.used_percent(),
        "resets_at": cap.resets_at_ms.map(SpendCap::utc),
        "severity": if cap.used_percent() >= WARNING_PERCENT { "warning" } else { "normal" },
        "is_active": is_active,
    })
}

/// Answers with the spend of the key since the beginnings of the month, the week and the day in UTC.
async fn without_limit(app: &App, access: &Access, now_ms: u64) -> Result<Response<Body>, ApiError> {
    let since = |period: Period| period.window(now_ms).map_or(0, |(from_ms, _)| from_ms / HOUR_MS);
    let [month, week, day] = [Period::Month, Period::Week, Period::Day].map(since);
    let key = access.key.as_str().to_owned();
    let hours = app.readers.ask(move |db| days_of_key(db, &key, month.min(week))).await?;
    let spent = |from: u64| {
        let since = hours.iter().filter(|(hour, _)| *hour >= from);
        cents(since.map(|(_, sums)| sums.cost_nano_usd).sum::<u64>() / 1_000)
    };
    let of = |from| json!({"limit": null, "used_credits": spent(from), "utilization": null});
    let extra_usage = json!({
        "is_enabled": true,
        "monthly_limit": null,
        "used_credits": spent(month),
        "utilization": null,
        "currency": "USD",
        "daily": of(day),
        "weekly": of(week),
    });
    json(&json!({"extra_usage": extra_usage, "limits": []}))
}

fn cents(micro_usd: u64) -> u64 {
    micro_usd / 10_000
}

/// The share from which Claude Code warns.
const WARNING_PERCENT: u64 = 75;
