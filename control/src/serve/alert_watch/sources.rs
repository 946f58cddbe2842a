//! What the rules compare: circuits, credentials, limits, keys, the catalog, the configuration file, the disk, backups.

use std::sync::Arc;

use shared::clock::{monotonic_ms, unix_ms};
use shared::health::CircuitState;
use shared::quota::{Counters, Metric, Period, Subject};
use shared::routing::{InstanceReach, Lane, ProviderInstance, Target};
use shared::sanitize::diagnostic;
use shared::snapshot::Snapshot;
use shared::upstream_tls::CertificateEnd;

use crate::admin::App;
use crate::common::credential::Sign;
use crate::db::alert_rules::{AlertKind, AlertRule};
use crate::db::alerts::AlertFigures;
use crate::db::engine::{Db, DbResult};
use crate::db::error::QueryError;
use crate::db::keys;
use crate::db::names::{Labels, object_name};
use crate::db::quotas::{self, QuotaRow};
use crate::writer::alerts::{Measurement, Measurements};

/// Measures what is in memory, and the disk.
pub(super) fn in_memory(app: &App, measured: &mut Measurements) {
    let snapshot = app.snapshot.load();
    measured.add(AlertKind::ProviderDown, snapshot.providers.iter().filter_map(down));
    let rejected = snapshot.providers.iter().filter_map(rejected);
    measured.add(AlertKind::CredentialBroken, rejected.chain(lacking_tokens(app)));
    measured.add(AlertKind::CredentialExpiring, expiring_tokens(app));
    measured.add(AlertKind::CertificateExpiring, snapshot.providers.iter().filter_map(ending_certificate));
    measured.add(AlertKind::CatalogDrift, drifted(app, &snapshot));
    measured.add(
        AlertKind::ConfigReloadFailed,
        app.reload.read().last_error.map(|(_, error)| {
            let text = diagnostic(&error, &[]).chars().take(TEXT_CHARS_MAX).collect::<String>();
            gateway(
                AlertKind::ConfigReloadFailed,
                format!("The changed configuration file is not in force: {text}"),
            )
        }),
    );
    measured.add(AlertKind::BackupFailed, failed_backup(app));
    if let Some(found) = disk(app) {
        measured.add(AlertKind::DiskLow, [found]);
    }
}

/// Measures what is in the database.
pub(super) async fn stored(
    app: &App,
    rules: &[AlertRule],
    measured: &mut Measurements,
) -> Result<(), QueryError> {
    let of_kind = |kind| rules.iter().filter(move |rule| rule.enabled && rule.kind == kind);
    let days = of_kind(AlertKind::KeyExpiring).filter_map(|rule| rule.threshold).fold(0.0, f64::max);
    let percent =
        of_kind(AlertKind::QuotaWarning).filter_map(|rule| rule.threshold).fold(PERCENT_EXHAUSTED, f64::min);
    let counters = Arc::clone(&app.counters);
    let (expiring, limits) = app
        .readers
        .ask(move |db| Ok((expiring_keys(db, days)?, used_limits(db, &counters, percent)?)))
        .await?;
    measured.add(AlertKind::KeyExpiring, expiring);
    let exhausted =
        limits.iter().cloned().map(|limit| Measurement { kind: AlertKind::QuotaExhausted, ..limit });
    measured.add(AlertKind::QuotaExhausted, exhausted);
    measured.add(AlertKind::QuotaWarning, limits);
    Ok(())
}

fn down(provider: &Arc<ProviderInstance>) -> Option<Measurement> {
    let circuit = provider.best_lane(monotonic_ms()).circuits.instance();
    if circuit.state(monotonic_ms(), &provider.circuit_policy) == CircuitState::Closed {
        return None;
    }
    let status = circuit.trouble().and_then(|trouble| trouble.status);
    let answer = status.map(|status| format!(", the last one with status {status}")).unwrap_or_default();
    let failures = circuit.failures();
    let text = format!(
        "{failures} attempts in a row have failed{answer}. Requests avoid it while its circuit is open."
    );
    let figures = AlertFigures::from([("failures".to_owned(), f64::from(failures))]);
    Some(Measurement { figures, ..of(AlertKind::ProviderDown, provider.id.as_str(), text) })
}

/// A credential that the upstream rejected in the last attempt. With several keys, one alert names those.
fn rejected(provider: &Arc<ProviderInstance>) -> Option<Measurement> {
    let rejected: Vec<_> =
        provider.each_lane().filter_map(|lane| Some((lane.lane.as_ref(), lane.rejection()?))).collect();
    let (lane, status) = *rejected.first()?;
    let text = match lane {
        None => format!("The upstream rejects its credential with status {status}."),
        Some(_) => {
            let keys: Vec<String> =
                rejected.iter().filter_map(|(lane, _)| Some(key_name((*lane)?))).collect();
            format!(
                "The upstream rejects {} of its {} keys with status {status}: {}. Replace it, or remove it from api_keys.",
                keys.len(),
                provider.lanes.len(),
                keys.join(", ")
            )
        }
    };
    Some(of(AlertKind::CredentialBroken, provider.id.as_str(), text))
}

/// Returns the ID of a key and what may be shown of it.
fn key_name(lane: &Lane) -> String {
    match lane.hint.as_deref() {
        None => lane.number.to_string(),
        Some(reference) if reference.starts_with("${") => format!("{} ({reference})", lane.number),
        Some(last_four) => format!("{} (…{last_four})", lane.number),
    }
}

/// Instances without a valid access token after a failed request for one.
fn lacking_tokens(app: &App) -> Vec<Measurement> {
    let now_ms = unix_ms();
    let lacking = tokens(app)
        .into_iter()
        .filter(|(_, expires_at_ms, _)| expires_at_ms.is_none_or(|at_ms| at_ms <= now_ms));
    lacking
        .map(|(provider, _, error)| {
            of(AlertKind::CredentialBroken, &provider, format!("It has no access token: {error}"))
        })
        .collect()
}

/// Access tokens that expire because their renewal fails.
fn expiring_tokens(app: &App) -> impl Iterator<Item = Measurement> {
    let now_ms = unix_ms();
    let left = move |expires_at_ms: u64| expires_at_ms.checked_sub(now_ms).filter(|left_ms| *left_ms > 0);
    tokens(app).into_iter().filter_map(move |(provider, expires_at_ms, error)| {
        let hours = hours(left(expires_at_ms?)?);
        let text = format!("Its access token expires in {hours:.1} hours and cannot be renewed: {error}");
        let figures = AlertFigures::from([("left_hours".to_owned(), hours)]);
        Some(Measurement { value: hours, figures, ..of(AlertKind::CredentialExpiring, &provider, text) })
    })
}

/// Returns the providers whose last token request failed, OAuth sign-ins included, with the expiry of the current token
/// and the error.
fn tokens(app: &App) -> Vec<(String, Option<u64>, String)> {
    let view = app.view.read();
    let failing = view.providers.iter().filter_map(|connection| {
        let Some(Ok(Sign::Token(grant))) = connection.read.as_ref().map(|read| read.sign()) else {
            return None;
        };
        let standing = app.tokens.standing(&grant)?;
        let error = standing.error?.chars().take(TEXT_CHARS_MAX).collect();
        Some((connection.id.clone(), standing.expires_at_ms, error))
    });
    let signed_in = view.providers.iter().filter_map(|connection| {
        let held = connection.read.as_ref()?.signed_in.as_ref()?;
        let (expires_at_ms, error) = match &held.failure {
            Some((_, refusal)) => (None, refusal.clone()),
            None => (held.expires_at_ms, app.refreshes.trouble(&connection.id)?.1),
        };
        Some((connection.id.clone(), expires_at_ms, error.chars().take(TEXT_CHARS_MAX).collect()))
    });
    failing.chain(signed_in).collect()
}

/// The client certificate or authority of a provider that ends first; rules decide whether that is soon.
fn ending_certificate(provider: &Arc<ProviderInstance>) -> Option<Measurement> {
    let InstanceReach::Network(origin) = &provider.reach else { return None };
    let tls = origin.way.as_ref()?.tls.as_ref()?;
    let CertificateEnd { member, at_seconds } = *tls.ends.iter().min_by_key(|end| end.at_seconds)?;
    Some(end_of_certificate(provider.id.as_str(), member, at_seconds.saturating_mul(1_000), unix_ms()))
}

fn end_of_certificate(provider: &str, member: &str, at_ms: u64, now_ms: u64) -> Measurement {
    let days = (hours(at_ms) - hours(now_ms)) / 24.0;
    let what = if member == "ca" { "The certificate of its authority" } else { "Its client certificate" };
    let at = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let at = at.map(|at| at.to_string()).unwrap_or_default();
    let when = match days > 0.0 {
        true => format!("expires at {at}, in {days:.1} days"),
        false => format!("expired at {at}"),
    };
    let text = format!("{what} (tls.{member}) {when}. Renew it.");
    let figures = AlertFigures::from([("left_days".to_owned(), days)]);
    Measurement { value: days, figures, ..of(AlertKind::CertificateExpiring, provider, text) }
}

/// Targets of endpoints that their upstream no longer lists.
fn drifted(app: &App, snapshot: &Snapshot) -> Vec<Measurement> {
    let is_gone = |target: &Target| {
        let provider = &target.provider;
        let entry =
            app.catalog.entry(provider.id.as_str(), &crate::routing::catalog::cache::models_url(provider));
        entry.is_some_and(|entry| {
            !entry.models.is_empty() && !entry.models.contains_key(target.model.id.as_str())
        })
    };
    let endpoints = snapshot.endpoints.iter().filter_map(|endpoint| {
        let gone: Vec<String> = endpoint
            .targets
            .iter()
            .filter(|target| is_gone(target))
            .map(|target| format!("{}/{}", target.provider.id, target.model.id))
            .collect();
        if gone.is_empty() {
            return None;
        }
        let list: String = gone.join(", ").chars().take(TEXT_CHARS_MAX).collect();
        let text = format!("Targets that their provider no longer lists: {list}");
        Some(of(AlertKind::CatalogDrift, endpoint.name.as_str(), text))
    });
    endpoints.collect()
}

/// A backup that failed, or an archive that could not be restored.
fn failed_backup(app: &App) -> Option<Measurement> {
    let made = app.backups.failure().map(|why| format!("The last backup failed: {why}"));
    let rehearsed = app.rehearsals.failure();
    let rehearsed = rehearsed.map(|(_, why)| format!("The last rehearsal of a restore failed: {why}"));
    let texts: Vec<String> = made.into_iter().chain(rehearsed).collect();
    (!texts.is_empty()).then(|| gateway(AlertKind::BackupFailed, texts.join(" ")))
}

/// The free space of the state directory in per cent.
#[expect(clippy::cast_precision_loss, reason = "the numbers of blocks of real disks are far below 2^52")]
fn disk(app: &App) -> Option<Measurement> {
    let disk = rustix::fs::statvfs(app.config.state_dir.as_path()).ok()?;
    if disk.f_blocks == 0 {
        return None;
    }
    let percent = 100.0 * disk.f_bavail as f64 / disk.f_blocks as f64;
    let mebibytes = (disk.f_bavail as f64 * disk.f_frsize as f64 / f64::from(1 << 20)).floor();
    let text = format!("{percent:.1} % of the disk of the state directory are free: {mebibytes} MiB.");
    let figures =
        AlertFigures::from([("free_percent".to_owned(), percent), ("free_mebibytes".to_owned(), mebibytes)]);
    Some(Measurement { value: percent, figures, ..gateway(AlertKind::DiskLow, text) })
}

fn expiring_keys(db: &Db, days: f64) -> DbResult<Vec<Measurement>> {
    let now_ms = unix_ms();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the threshold of a rule is between 0 and a year"
    )]
    let until_ms = now_ms + (days * DAY_MS) as u64;
    let found = keys::expiring(db, now_ms, until_ms)?.into_iter().map(|(id, name, expires_at_ms)| {
        let days = hours(expires_at_ms.saturating_sub(now_ms)) / 24.0;
        let text = format!("The key {name} expires in {days:.1} days.");
        let figures = AlertFigures::from([("left_days".to_owned(), days)]);
        Measurement { value: days, figures, ..of(AlertKind::KeyExpiring, &id, text) }
    });
    Ok(found.collect())
}

/// The limits of which at least `percent` are used. Limits by the minute, and of concurrent requests, are not measured:
/// reaching them is ordinary. Reads the rows of those that it returns only.
pub(super) fn used_limits(db: &Db, counters: &Counters, percent: f64) -> DbResult<Vec<Measurement>> {
    let (now_ms, mut labels, mut found) = (unix_ms(), Labels::default(), Vec::new());
    for quota in counters.all() {
        if quota.period.is_none_or(|period| period == Period::Minute) || quota.limit == 0 {
            continue;
        }
        let used = quota.counter.read(now_ms).used / quota.metric.units();
        #[expect(clippy::cast_precision_loss, reason = "limits are at most 10^12")]
        let share = 100.0 * used as f64 / quota.limit as f64;
        if share >= percent
            && let Some(row) = quotas::find(db, &quota.id)?
        {
            found.push(used_limit(db, &mut labels, &row, (used, share))?);
        }
    }
    Ok(found)
}

#[expect(clippy::cast_precision_loss, reason = "limits are at most 10^12")]
fn used_limit(
    db: &Db,
    labels: &mut Labels,
    row: &QuotaRow,
    (used, share): (u64, f64),
) -> DbResult<Measurement> {
    let name = object_name(db, labels, &row.id)?;
    let subject = match row.counted.subject.kind {
        Subject::Gateway => "The gateway".to_owned(),
        Subject::Principal => format!("The human {name}"),
        kind => format!("The {} {name}", kind.name()),
    };
    let scope = row.counted.model.as_ref().or(row.counted.endpoint.as_ref());
    let scope = scope.map(|scope| format!(" to {scope}")).unwrap_or_default();
    let text = format!(
        "{subject} has used {} of {}{}{scope} ({:.0} %). {}",
        amount(row.metric, used),
        amount(row.metric, row.limit),
        window_words(row),
        share.floor(),
        if row.is_hard() { "Requests above the limit are refused." } else { "The limit only warns." },
    );
    let figures = AlertFigures::from([
        ("used".to_owned(), used as f64),
        ("limit".to_owned(), row.limit as f64),
        ("used_percent".to_owned(), share),
    ]);
    Ok(Measurement { value: share, figures, ..of(AlertKind::QuotaWarning, &row.id, text) })
}

/// Returns the unit and window of a limit, such as ` tokens a day`. The unit of money stands before the amount.
fn window_words(row: &QuotaRow) -> String {
    let unit = match row.metric {
        Metric::CostMicroUsd => "",
        Metric::Requests | Metric::ConcurrentRequests => " requests",
        Metric::InputTokens => " input tokens",
        Metric::OutputTokens => " output tokens",
        Metric::TotalTokens => " tokens",
    };
    let window = match row.period {
        None => "",
        Some(Period::Minute) => " a minute",
        Some(Period::Hour) => " an hour",
        Some(Period::Day) => " a day",
        Some(Period::Week) => " a week",
        Some(Period::Month) => " a month",
        Some(Period::Total) => " in total",
    };
    format!("{unit}{window}")
}

/// Formats an amount of a metric: `15,945`, `$1,200.50`.
fn amount(metric: Metric, value: u64) -> String {
    if metric != Metric::CostMicroUsd {
        return grouped(value);
    }
    let cents = value / 10_000;
    format!("${}.{:02}", grouped(cents / 100), cents % 100)
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn of(kind: AlertKind, object: &str, text: String) -> Measurement {
    Measurement { object: Some(object.to_owned()), ..gateway(kind, text) }
}

fn gateway(kind: AlertKind, text: String) -> Measurement {
    Measurement { kind, object: None, value: 0.0, text, figures: AlertFigures::new() }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of years are far below 2^52")]
fn hours(ms: u64) -> f64 {
    ms as f64 / 3_600_000.0
}

const PERCENT_EXHAUSTED: f64 = 100.0;
const DAY_MS: f64 = 86_400_000.0;
/// Error texts inside alerts are cut to this length.
const TEXT_CHARS_MAX: usize = 300;
