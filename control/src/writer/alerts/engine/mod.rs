//! The states of all alerts, as a pure function of rules, measurements and time. No condition has two alerts, and one that
//! comes and goes does not begin and end its alert each time:
//!
//! ```text
//!            condition met              for hold_seconds           absent for clear_seconds
//!   (none) ----------------> Waiting ---------------------> Open ---------------------------> (none)
//!      ^                        |                          |    ^
//!      |  not met               |                 not met  |    |  met again: counted, no event
//!      +------------------------+                          v    |
//!                                                        Clearing
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::common::bounds::ALERT_CONDITIONS;
use crate::db::alert_rules::{AlertKind, AlertRule, Severity};
use crate::db::alerts::{Alert, AlertFigures};

/// The measured value of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) kind: AlertKind,
    /// The object, such as a provider; `None` for the gateway.
    pub(crate) object: Option<String>,
    /// The value to compare with the threshold of a rule; see [`AlertRule::threshold`]. Without meaning for kinds
    /// without a threshold.
    pub(crate) value: f64,
    /// The text of an alert.
    pub(crate) text: String,
    pub(crate) figures: AlertFigures,
}

/// All measurements of one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measurements {
    /// The kinds that were measured. Alerts of others stay as they are.
    pub(crate) kinds: BTreeSet<AlertKind>,
    pub(crate) found: Vec<Measurement>,
}

impl Measurements {
    /// Adds all measurements of a kind.
    pub(crate) fn add(&mut self, kind: AlertKind, found: impl IntoIterator<Item = Measurement>) {
        self.kinds.insert(kind);
        self.found.extend(found);
    }
}

/// A change of an alert, to be stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AlertChange {
    Open {
        rule: String,
        severity: Severity,
        measurement: Measurement,
        /// The time at which the condition began.
        since_ms: u64,
    },
    /// The condition of an open alert has begun again.
    Again {
        alert: String,
        at_ms: u64,
    },
    Resolve {
        alert: String,
        at_ms: u64,
        sends_recovered: bool,
    },
}

type Key = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Waiting { since_ms: u64 },
    Open { alert: String },
    Clearing { alert: String, since_ms: u64 },
}

/// The conditions that are met, or were met shortly before.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlertEngine {
    conditions: BTreeMap<Key, Condition>,
}

impl AlertEngine {
    /// Restores the state of an earlier process from the alerts that are not resolved.
    pub(crate) fn of(alerts: &[Alert]) -> Self {
        let open = alerts.iter().map(|alert| {
            (key(&alert.rule, alert.object.as_deref()), Condition::Open { alert: alert.id.clone() })
        });
        Self { conditions: open.collect() }
    }

    /// Returns the changes that follow from the measurements at `now_ms`. An opened or resolved alert takes effect with
    /// [`AlertEngine::opened`] or [`AlertEngine::resolved`]; without that, the next step returns the change again.
    pub(crate) fn step(
        &mut self,
        rules: &[AlertRule],
        measured: &Measurements,
        now_ms: u64,
    ) -> Vec<AlertChange> {
        let mut met = BTreeMap::new();
        for rule in rules.iter().filter(|rule| rule.enabled) {
            for measurement in measured.found.iter().filter(|measurement| is_met(rule, measurement)) {
                met.insert(key(&rule.id, measurement.object.as_deref()), (rule, measurement));
            }
        }
        let mut changes = Vec::new();
        for (key, (rule, measurement)) in &met {
            changes.extend(self.meet(key, rule, measurement, now_ms));
        }
        let recovered: Vec<&AlertRule> =
            rules.iter().filter(|rule| rule.enabled && rule.kind == AlertKind::ProviderRecovered).collect();
        self.conditions.retain(|key, condition| {
            if met.contains_key(key) {
                return true;
            }
            let rule = rules.iter().find(|rule| rule.id == key.0 && rule.enabled);
            if rule.is_some_and(|rule| !measured.kinds.contains(&rule.kind)) {
                return true;
            }
            let clear_ms = rule.map_or(0, |rule| u64::from(rule.clear_seconds) * 1_000);
            let is_down = rule.is_some_and(|rule| rule.kind == AlertKind::ProviderDown);
            let sends_recovered = is_down && recovered.iter().any(|rule| concerns(rule, Some(&key.1)));
            clear(condition, clear_ms, now_ms).is_some_and(|resolved| {
                changes.extend(resolved.map(|(alert, at_ms)| AlertChange::Resolve {
                    alert,
                    at_ms,
                    sends_recovered,
                }));
                true
            })
        });
        changes
    }

    /// The alert of a rule and an object is stored.
    pub(crate) fn opened(&mut self, rule: &str, object: Option<&str>, alert: &str) {
        self.conditions.insert(key(rule, object), Condition::Open { alert: alert.to_owned() });
    }

    /// The resolution of an alert is stored.
    pub(crate) fn resolved(&mut self, resolved: &str) {
        self.conditions.retain(|_, condition| {
            !matches!(condition,
            Condition::Open { alert } | Condition::Clearing { alert, .. } if alert == resolved)
        });
    }

    fn meet(
        &mut self,
        key: &Key,
        rule: &AlertRule,
        measurement: &Measurement,
        now_ms: u64,
    ) -> Option<AlertChange> {
        if !self.conditions.contains_key(key) && ALERT_CONDITIONS.is_full(self.conditions.len()) {
            return None;
        }
        let condition = self.conditions.entry(key.clone()).or_insert(Condition::Waiting { since_ms: now_ms });
        match condition {
            Condition::Waiting { since_ms } => {
                let hold_ms = u64::from(rule.hold_seconds) * 1_000;
                (now_ms.saturating_sub(*since_ms) >= hold_ms).then(|| AlertChange::Open {
                    rule: rule.id.clone(),
                    severity: rule.severity,
                    measurement: measurement.clone(),
                    since_ms: *since_ms,
                })
            }
            Condition::Open { .. } => None,
            Condition::Clearing { alert, .. } => {
                let alert = alert.clone();
                *condition = Condition::Open { alert: alert.clone() };
                Some(AlertChange::Again { alert, at_ms: now_ms })
            }
        }
    }
}

/// Advances a condition that is not met. Returns `None` if it is over without an alert, and the alert to resolve with its
/// end, if its time has come.
fn clear(condition: &mut Condition, clear_ms: u64, now_ms: u64) -> Option<Option<(String, u64)>> {
    match condition {
        Condition::Waiting { .. } => return None,
        Condition::Open { alert } => {
            *condition = Condition::Clearing { alert: alert.clone(), since_ms: now_ms };
        }
        Condition::Clearing { .. } => {}
    }
    let Condition::Clearing { alert, since_ms } = condition else { return Some(None) };
    let is_over = now_ms.saturating_sub(*since_ms) >= clear_ms;
    Some(is_over.then(|| (alert.clone(), now_ms)))
}

/// True if the measurement meets the condition of the rule.
fn is_met(rule: &AlertRule, measurement: &Measurement) -> bool {
    if rule.kind != measurement.kind || !concerns(rule, measurement.object.as_deref()) {
        return false;
    }
    let threshold = rule.threshold.unwrap_or_default();
    match rule.kind {
        AlertKind::QuotaWarning | AlertKind::ShippingBehind => measurement.value >= threshold,
        AlertKind::QuotaExhausted => measurement.value >= 100.0,
        AlertKind::KeyExpiring | AlertKind::CredentialExpiring | AlertKind::CertificateExpiring => {
            measurement.value <= threshold
        }
        AlertKind::DiskLow => measurement.value < threshold,
        AlertKind::SpendAnomaly => {
            let spent = measurement.figures.get("spent_micro_usd").copied().unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "a floor of micro-dollars is far below 2^52")]
            let floor = rule.floor_micro_usd.unwrap_or_default() as f64;
            spent > floor && measurement.value >= threshold
        }
        AlertKind::ProviderRecovered => false,
        AlertKind::ProviderDown
        | AlertKind::CredentialBroken
        | AlertKind::CatalogDrift
        | AlertKind::ConfigReloadFailed
        | AlertKind::BackupFailed
        | AlertKind::NodeLost
        | AlertKind::NodeSkew => true,
    }
}

fn concerns(rule: &AlertRule, object: Option<&str>) -> bool {
    rule.objects
        .as_ref()
        .is_none_or(|objects| object.is_some_and(|object| objects.iter().any(|other| other == object)))
}

fn key(rule: &str, object: Option<&str>) -> Key {
    (rule.to_owned(), object.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests;
