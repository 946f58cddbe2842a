//! Commands on alerts and their rules. Each change of an alert emits its event in the same transaction.

use serde_json::{Value, json};

use super::{Command, CommandRefusal, Done, Write};
use crate::db::alert_rules::{self, AlertKind, AlertRule, RULES_MAX, Severity, ShownRule};
use crate::db::alerts::{self, Alert, AlertState};
use crate::db::audit::AuditEntry;
use crate::db::ids::new_id;
use crate::db::names::{Labels, object_name};
use crate::db::outbox::{NewEvent, emit};
use crate::routing::publish::{EffectWarning, Touched};
use crate::writer::alerts::{AlertChange, Measurement};

/// Stores a change that the evaluation of the rules found, and answers with the alert.
#[derive(Debug)]
pub(crate) struct ChangeAlert(pub(crate) AlertChange);

/// Acknowledges an alert. A repetition changes nothing.
#[derive(Debug)]
pub(crate) struct AcknowledgeAlert {
    pub(crate) id: String,
}

/// Creates a rule.
#[derive(Debug)]
pub(crate) struct CreateRule {
    pub(crate) name: String,
    pub(crate) kind: AlertKind,
    pub(crate) objects: Option<Vec<String>>,
    pub(crate) threshold: Option<f64>,
    pub(crate) floor_micro_usd: Option<u64>,
    pub(crate) severity: Severity,
    pub(crate) hold_seconds: u32,
    pub(crate) clear_seconds: u32,
}

/// Changes a rule. Absent values are kept.
#[derive(Debug)]
pub(crate) struct EditRule {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) objects: Option<Option<Vec<String>>>,
    pub(crate) threshold: Option<f64>,
    pub(crate) floor_micro_usd: Option<u64>,
    pub(crate) severity: Option<Severity>,
    pub(crate) hold_seconds: Option<u32>,
    pub(crate) clear_seconds: Option<u32>,
    pub(crate) enabled: Option<bool>,
}

/// Deletes a rule. Its open alerts are resolved by the next evaluation.
#[derive(Debug)]
pub(crate) struct DeleteRule {
    pub(crate) id: String,
    pub(crate) if_version: Option<u64>,
}

/// Emits the event of a rule as if its condition had been met. No alert is opened.
#[derive(Debug)]
pub(crate) struct TestRule {
    pub(crate) id: String,
}

impl Command for ChangeAlert {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let (alert, action) = match self.0.clone() {
            AlertChange::Open { rule, severity, measurement, since_ms } => {
                let alert = opened(write, (rule, severity), measurement, since_ms)?;
                alerts::put(write.db, &alert)?;
                event(write, &alert, &alert.kind, false)?;
                (alert, "alert.open")
            }
            AlertChange::Again { alert, at_ms } => {
                let alert = find(write, &alert)?;
                let alert = Alert { last_at_ms: at_ms, times: alert.times + 1, ..alert };
                alerts::put(write.db, &alert)?;
                (alert, "alert.again")
            }
            AlertChange::Resolve { alert, at_ms, sends_recovered } => {
                let alert = find(write, &alert)?;
                let alert = Alert { state: AlertState::Resolved, resolved_at_ms: Some(at_ms), ..alert };
                alerts::put(write.db, &alert)?;
                if sends_recovered {
                    event(write, &alert, AlertKind::ProviderRecovered.name(), false)?;
                } else {
                    event(write, &alert, &alert.kind, true)?;
                }
                (alert, "alert.resolve")
            }
        };
        let audit = AuditEntry::done(action, "alert", &alert.id)
            .after(json!({"kind": alert.kind, "object": alert.object, "text": alert.text}));
        Done::new(&alert, audit, Touched::NOTHING)
    }
}

fn opened(
    write: &Write<'_>,
    (rule, severity): (String, Severity),
    measurement: Measurement,
    since_ms: u64,
) -> Result<Alert, CommandRefusal> {
    Ok(Alert {
        id: new_id("alr", write.now_ms)?,
        rule,
        kind: measurement.kind.name().to_owned(),
        object: measurement.object,
        object_name: None,
        severity,
        state: AlertState::Open,
        text: measurement.text,
        figures: measurement.figures,
        first_at_ms: since_ms,
        last_at_ms: since_ms,
        times: 1,
        acked_at_ms: None,
        acked_by: None,
        resolved_at_ms: None,
    })
}

/// Emits the event of a change of an alert.
fn event(write: &Write<'_>, alert: &Alert, kind: &str, is_resolution: bool) -> Result<(), CommandRefusal> {
    let data = json!({
        "alert": alert.id,
        "title": title(write, kind, alert.object.as_deref())?,
        "rule": alert.rule,
        "severity": alert.severity,
        "state": alert.state,
        "text": alert.text,
        "figures": alert.figures,
        "first_at_ms": alert.first_at_ms,
        "resolved_at_ms": alert.resolved_at_ms,
    });
    let event = NewEvent { kind, object: alert.object.as_deref(), data: &data, is_resolution };
    emit(write.db, &event, write.now_ms)?;
    Ok(())
}

/// Returns the title of an event, such as `Quota nearly used up: blue`.
fn title(write: &Write<'_>, kind: &str, object: Option<&str>) -> Result<String, CommandRefusal> {
    let named = AlertKind::named(kind);
    let words = named.map_or(kind, |kind| kind.title());
    let Some(object) = object else { return Ok(words.to_owned()) };
    Ok(format!("{words}: {}", object_name(write.db, &mut Labels::default(), object)?))
}

impl Command for AcknowledgeAlert {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let alert = find(write, &self.id)?;
        if alert.resolved_at_ms.is_some() {
            return Err(CommandRefusal::conflict("This alert is resolved."));
        }
        let alert = if alert.acked_at_ms.is_some() {
            alert
        } else {
            let acked_by = Some(write.actor.who.name().to_owned());
            Alert { state: AlertState::Acknowledged, acked_at_ms: Some(write.now_ms), acked_by, ..alert }
        };
        alerts::put(write.db, &alert)?;
        let audit = AuditEntry::done("alert.ack", "alert", &alert.id);
        Done::new(&alert, audit, Touched::NOTHING)
    }
}

impl Command for CreateRule {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        if alert_rules::all(write.db)?.len() >= RULES_MAX {
            return Err(CommandRefusal::conflict(format!(
                "There are {RULES_MAX} rules, the maximum. Delete one first."
            )));
        }
        let rule = AlertRule {
            id: new_id("rule", write.now_ms)?,
            name: self.name.clone(),
            kind: self.kind,
            objects: self.objects.clone(),
            threshold: self.threshold,
            floor_micro_usd: self.floor_micro_usd,
            severity: self.severity,
            hold_seconds: self.hold_seconds,
            clear_seconds: self.clear_seconds,
            enabled: true,
            version: 1,
            created_at_ms: write.now_ms,
            updated_at_ms: write.now_ms,
        };
        checked(&rule)?;
        alert_rules::put(write.db, &rule)?;
        let audit = AuditEntry::done("alert_rule.create", "alert_rule", &rule.id).after(json!(rule));
        let shown = ShownRule::of(write.db, &mut Labels::default(), rule)?;
        Ok(Done::new(&shown, audit, Touched::NOTHING)?.version(1))
    }
}

impl Command for EditRule {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        let after = AlertRule {
            name: self.name.clone().unwrap_or_else(|| before.name.clone()),
            objects: self.objects.clone().unwrap_or_else(|| before.objects.clone()),
            threshold: self.threshold.or(before.threshold),
            floor_micro_usd: self.floor_micro_usd.or(before.floor_micro_usd),
            severity: self.severity.unwrap_or(before.severity),
            hold_seconds: self.hold_seconds.unwrap_or(before.hold_seconds),
            clear_seconds: self.clear_seconds.unwrap_or(before.clear_seconds),
            enabled: self.enabled.unwrap_or(before.enabled),
            version: before.version + 1,
            updated_at_ms: write.now_ms,
            ..before.clone()
        };
        checked(&after)?;
        alert_rules::put(write.db, &after)?;
        let audit = AuditEntry::done("alert_rule.edit", "alert_rule", &after.id)
            .before(json!(before))
            .after(json!(after));
        let warning = if before.enabled && !after.enabled { ended_alerts(write, &after.id)? } else { None };
        let version = after.version;
        let shown = ShownRule::of(write.db, &mut Labels::default(), after)?;
        Ok(Done::new(&shown, audit, Touched::NOTHING)?.version(version).warning(warning))
    }
}

impl Command for DeleteRule {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let before = expect(write, &self.id, self.if_version)?;
        alert_rules::delete(write.db, &before.id)?;
        let audit = AuditEntry::done("alert_rule.delete", "alert_rule", &before.id).before(json!(before));
        let warning = ended_alerts(write, &before.id)?;
        Ok(Done::without_output(audit, Touched::NOTHING).warning(warning))
    }
}

impl Command for TestRule {
    fn apply(&self, write: &Write<'_>) -> Result<Done, CommandRefusal> {
        let rule = expect(write, &self.id, None)?;
        let object = rule.objects.as_ref().and_then(|objects| objects.first()).map(String::as_str);
        let data = json!({
            "alert": Value::Null,
            "title": title(write, rule.kind.name(), object)?,
            "rule": rule.id,
            "severity": rule.severity,
            "state": AlertState::Open,
            "text": format!("Test of the rule {}. Nothing has happened.", rule.name),
            "figures": {},
            "test": true,
        });
        let event = NewEvent { kind: rule.kind.name(), object, data: &data, is_resolution: false };
        let sequence = emit(write.db, &event, write.now_ms)?;
        let audit =
            AuditEntry::done("alert_rule.test", "alert_rule", &rule.id).after(json!({"sequence": sequence}));
        Done::new(&json!({"sequence": sequence}), audit, Touched::NOTHING)
    }
}

/// Returns the warning that the next evaluation resolves the alerts of a rule; `None` if it has none.
fn ended_alerts(write: &Write<'_>, rule: &str) -> Result<Option<EffectWarning>, CommandRefusal> {
    let ended = alerts::unresolved_of(write.db, rule)?;
    let objects = ended.iter().filter_map(|alert| alert.object.clone()).take(WARNED_OBJECTS_MAX).collect();
    let message = match ended.len() {
        0 => return Ok(None),
        1 => "1 alert of this rule will be resolved.".to_owned(),
        count => format!("{count} alerts of this rule will be resolved."),
    };
    Ok(Some(EffectWarning { code: "alerts_resolved", param: None, message, objects }))
}

/// Rejects a threshold or floor that the kind does not have, and requires the one that it has.
fn checked(rule: &AlertRule) -> Result<(), CommandRefusal> {
    let kind = rule.kind.name();
    let range = threshold_range(rule.kind);
    match (range, rule.threshold) {
        (None, Some(_)) => {
            return Err(CommandRefusal::invalid(
                "threshold",
                format!("{kind} has no threshold. Omit threshold."),
            ));
        }
        (Some((min, max)), threshold) if !threshold.is_some_and(|value| (min..=max).contains(&value)) => {
            let message = format!("threshold of {kind} must be a number from {min} to {max}.");
            return Err(CommandRefusal::invalid("threshold", message));
        }
        _ => {}
    }
    let needs_floor = rule.kind == AlertKind::SpendAnomaly;
    if needs_floor != rule.floor_micro_usd.is_some() {
        let message =
            "floor_micro_usd belongs to spend_anomaly: it is required there, and must be omitted elsewhere.";
        return Err(CommandRefusal::invalid("floor_micro_usd", message));
    }
    Ok(())
}

/// Returns the range of a kind's threshold, or `None` if it has none.
fn threshold_range(kind: AlertKind) -> Option<(f64, f64)> {
    match kind {
        AlertKind::QuotaWarning => Some((1.0, 100.0)),
        AlertKind::KeyExpiring | AlertKind::CertificateExpiring => Some((0.01, 365.0)),
        AlertKind::CredentialExpiring => Some((0.01, 8_760.0)),
        AlertKind::SpendAnomaly => Some((1.0, 1_000.0)),
        AlertKind::DiskLow => Some((0.1, 99.0)),
        AlertKind::ShippingBehind => Some((0.1, 1_440.0)),
        AlertKind::QuotaExhausted
        | AlertKind::ProviderDown
        | AlertKind::ProviderRecovered
        | AlertKind::CredentialBroken
        | AlertKind::CatalogDrift
        | AlertKind::ConfigReloadFailed
        | AlertKind::BackupFailed
        | AlertKind::NodeLost
        | AlertKind::NodeSkew => None,
    }
}

fn find(write: &Write<'_>, id: &str) -> Result<Alert, CommandRefusal> {
    alerts::find(write.db, id)?.ok_or_else(|| CommandRefusal::not_found("alert", id))
}

fn expect(write: &Write<'_>, id: &str, if_version: Option<u64>) -> Result<AlertRule, CommandRefusal> {
    let found =
        alert_rules::find(write.db, id)?.ok_or_else(|| CommandRefusal::not_found("alert rule", id))?;
    CommandRefusal::if_stale(if_version, found.version)?;
    Ok(found)
}

/// The most objects that a warning names.
const WARNED_OBJECTS_MAX: usize = 20;
