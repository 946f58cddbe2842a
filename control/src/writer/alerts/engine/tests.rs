//! The engine: every transition, and the conditions of rules.

use super::*;
use crate::common::bounds::tests::passes;

fn rule(id: &str, kind: AlertKind, hold_seconds: u32, clear_seconds: u32) -> AlertRule {
    AlertRule {
        id: id.into(),
        name: id.into(),
        kind,
        objects: None,
        threshold: None,
        floor_micro_usd: None,
        severity: Severity::Bad,
        hold_seconds,
        clear_seconds,
        enabled: true,
        version: 1,
        created_at_ms: 0,
        updated_at_ms: 0,
    }
}

fn found(kind: AlertKind, object: &str, value: f64) -> Measurement {
    Measurement {
        kind,
        object: Some(object.into()),
        value,
        text: String::new(),
        figures: AlertFigures::new(),
    }
}

/// An engine whose changes are stored at once.
struct Stored {
    engine: AlertEngine,
    rules: Vec<AlertRule>,
    opened: usize,
}

impl Stored {
    fn new(rules: Vec<AlertRule>) -> Self {
        Self { engine: AlertEngine::default(), rules, opened: 0 }
    }

    /// Returns the changes at `seconds`, in short.
    fn at(&mut self, seconds: u64, kind: AlertKind, found: Vec<Measurement>) -> Vec<String> {
        let mut measured = Measurements::default();
        measured.add(kind, found);
        let changes = self.engine.step(&self.rules, &measured, seconds * 1_000);
        let mut lines = Vec::new();
        for change in changes {
            lines.push(match change {
                AlertChange::Open { rule, measurement, since_ms, .. } => {
                    self.opened += 1;
                    let alert = format!("a{}", self.opened);
                    self.engine.opened(&rule, measurement.object.as_deref(), &alert);
                    format!("open {alert} since {}", since_ms / 1_000)
                }
                AlertChange::Again { alert, .. } => format!("again {alert}"),
                AlertChange::Resolve { alert, sends_recovered, .. } => {
                    self.engine.resolved(&alert);
                    format!("resolve {alert}{}", if sends_recovered { " recovered" } else { "" })
                }
            });
        }
        lines
    }
}

#[test]
fn a_flapping_condition_opens_one_alert() {
    use AlertKind::{ProviderDown, ProviderRecovered};
    let mut stored =
        Stored::new(vec![rule("down", ProviderDown, 20, 120), rule("up", ProviderRecovered, 0, 0)]);
    for (seconds, is_down, want) in [
        (0, true, None),
        (10, false, None),
        (20, true, None),
        (39, true, None),
        (40, true, Some("open a1 since 20")),
        (60, true, None),
        (70, false, None),
        (100, true, Some("again a1")),
        (110, false, None),
        (229, false, None),
        (230, false, Some("resolve a1 recovered")),
        (232, false, None),
        (300, true, None),
        (320, true, Some("open a2 since 300")),
    ] {
        let measured = if is_down { vec![found(ProviderDown, "p", 0.0)] } else { Vec::new() };
        let changes = stored.at(seconds, ProviderDown, measured);
        assert_eq!(changes, want.into_iter().collect::<Vec<_>>(), "{seconds}");
    }
}

#[test]
fn a_change_that_was_not_stored_is_returned_again() {
    let rules = [rule("backup", AlertKind::BackupFailed, 0, 0)];
    let mut engine = AlertEngine::default();
    let mut measured = Measurements::default();
    measured.add(AlertKind::BackupFailed, [found(AlertKind::BackupFailed, "x", 0.0)]);
    assert_eq!(engine.step(&rules, &measured, 1).len(), 1);
    assert_eq!(engine.step(&rules, &measured, 2).len(), 1, "it was not stored");
    engine.opened("backup", Some("x"), "a1");
    assert_eq!(engine.step(&rules, &measured, 3), []);
    let mut nothing = Measurements::default();
    nothing.add(AlertKind::BackupFailed, []);
    for now_ms in [4, 5] {
        let want = AlertChange::Resolve { alert: "a1".into(), at_ms: now_ms, sends_recovered: false };
        assert_eq!(engine.step(&rules, &nothing, now_ms), [want]);
    }
}

#[test]
fn alerts_of_kinds_that_were_not_measured_stay_open() {
    use AlertKind::{DiskLow, KeyExpiring};
    let disk = AlertRule { threshold: Some(10.0), ..rule("disk", DiskLow, 0, 0) };
    let mut stored = Stored::new(vec![disk]);
    assert_eq!(stored.at(1, DiskLow, vec![found(DiskLow, "", 9.0)]), ["open a1 since 1"]);
    assert!(stored.at(2, KeyExpiring, Vec::new()).is_empty());
    stored.rules[0].enabled = false;
    assert_eq!(stored.at(3, KeyExpiring, Vec::new()), ["resolve a1"], "a disabled rule has no alerts");
}

#[test]
fn rules_compare_the_measurement_with_their_threshold() {
    use AlertKind::{CredentialExpiring, DiskLow, KeyExpiring, QuotaExhausted, QuotaWarning, SpendAnomaly};
    for (kind, threshold, value, want) in [
        (QuotaWarning, 80.0, 79.9, false),
        (QuotaWarning, 80.0, 80.0, true),
        (QuotaExhausted, 0.0, 99.9, false),
        (QuotaExhausted, 0.0, 100.0, true),
        (KeyExpiring, 7.0, 7.0, true),
        (KeyExpiring, 7.0, 7.1, false),
        (CredentialExpiring, 1.0, 0.5, true),
        (DiskLow, 10.0, 10.0, false),
        (DiskLow, 10.0, 9.9, true),
        (SpendAnomaly, 3.0, 2.9, false),
        (SpendAnomaly, 3.0, 3.0, true),
    ] {
        let rule =
            AlertRule { threshold: Some(threshold), floor_micro_usd: Some(500), ..rule("r", kind, 0, 0) };
        let figures = AlertFigures::from([("spent_micro_usd".to_owned(), 501.0)]);
        let measured = Measurement { figures, ..found(kind, "x", value) };
        assert_eq!(is_met(&rule, &measured), want, "{kind:?} {threshold} {value}");
        let scoped = AlertRule { objects: Some(vec!["y".into()]), ..rule };
        assert!(!is_met(&scoped, &measured), "{kind:?}: a rule for another object");
    }
    let rule =
        AlertRule { threshold: Some(3.0), floor_micro_usd: Some(500), ..rule("r", SpendAnomaly, 0, 0) };
    let figures = AlertFigures::from([("spent_micro_usd".to_owned(), 500.0)]);
    assert!(!is_met(&rule, &Measurement { figures, ..found(SpendAnomaly, "x", 99.0) }), "up to the floor");
}

#[test]
fn the_number_of_followed_conditions_is_bounded() {
    let mut stored = Stored::new(vec![rule("down", AlertKind::ProviderDown, 0, 0)]);
    let max = ALERT_CONDITIONS.max();
    let many = (0..=max).map(|n| found(AlertKind::ProviderDown, &n.to_string(), 0.0)).collect();
    let opened = passes(&ALERT_CONDITIONS, || stored.at(1, AlertKind::ProviderDown, many));
    assert_eq!(opened.len(), max);
}
