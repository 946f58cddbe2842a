//! The table `alerts`: conditions that need a person, each once while it lasts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::alert_rules::Severity;
use super::names::{Labels, object_name};
use crate::db::engine::{Db, DbResult, Row, named_params};

/// Figures of an alert, by name.
pub(crate) type AlertFigures = BTreeMap<String, f64>;

/// The state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum AlertState {
    Open,
    /// Open, and a person has seen it.
    Acknowledged,
    Resolved,
}

impl AlertState {
    pub(crate) const ALL: [(&'static str, Self); 3] =
        [("open", Self::Open), ("acknowledged", Self::Acknowledged), ("resolved", Self::Resolved)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, state)| *state == self).map_or("", |(name, _)| name)
    }
}

/// An alert, as stored and as the API shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Alert {
    pub(crate) id: String,
    /// The rule that raised it.
    pub(crate) rule: String,
    /// The kind, such as `provider_down`.
    pub(crate) kind: String,
    /// The object concerned, such as a provider; null for the gateway.
    pub(crate) object: Option<String>,
    /// The name of the object, for a limit that of its subject; the ID if it has no name, null for the gateway.
    pub(crate) object_name: Option<String>,
    pub(crate) severity: Severity,
    pub(crate) state: AlertState,
    pub(crate) text: String,
    /// The figures at its beginning, with units in their names.
    pub(crate) figures: AlertFigures,
    /// The time at which its condition began, in milliseconds since the Unix epoch.
    pub(crate) first_at_ms: u64,
    /// The last time at which its condition began, in milliseconds since the Unix epoch.
    pub(crate) last_at_ms: u64,
    /// The number of times that its condition began before it was resolved.
    pub(crate) times: u64,
    /// In milliseconds since the Unix epoch; null if it was not acknowledged.
    pub(crate) acked_at_ms: Option<u64>,
    /// The key or human that acknowledged it; null if it was not.
    pub(crate) acked_by: Option<String>,
    /// In milliseconds since the Unix epoch; null while it is not resolved.
    pub(crate) resolved_at_ms: Option<u64>,
}

impl Alert {
    fn of(row: Row<'_>) -> DbResult<Self> {
        let (severity, figures): (String, String) = (row.get("severity")?, row.get("figures")?);
        let (acked_at_ms, resolved_at_ms) = (row.get("acked_at_ms")?, row.get("resolved_at_ms")?);
        let state = match (acked_at_ms, resolved_at_ms) {
            (_, Some::<u64>(_)) => AlertState::Resolved,
            (Some::<u64>(_), None) => AlertState::Acknowledged,
            (None, None) => AlertState::Open,
        };
        Ok(Self {
            id: row.get("id")?,
            rule: row.get("rule")?,
            kind: row.get("kind")?,
            object: row.get("object")?,
            object_name: None,
            severity: Severity::named(&severity),
            state,
            text: row.get("text")?,
            figures: serde_json::from_str(&figures).unwrap_or_default(),
            first_at_ms: row.get("first_at_ms")?,
            last_at_ms: row.get("last_at_ms")?,
            times: row.get("times")?,
            acked_at_ms,
            acked_by: row.get("acked_by")?,
            resolved_at_ms,
        })
    }

    fn named(self, db: &Db, labels: &mut Labels) -> DbResult<Self> {
        let object_name = self.object.as_deref().map(|object| object_name(db, labels, object)).transpose()?;
        Ok(Self { object_name, ..self })
    }
}

/// A filter for alerts. An absent field matches all.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlertFilter {
    pub(crate) state: Option<AlertState>,
    pub(crate) kind: Option<String>,
    pub(crate) object: Option<String>,
    /// A part of the text, kind, object or id; case is ignored for ASCII letters.
    pub(crate) text: Option<String>,
}

/// Returns up to `rows` matching alerts with ids below `before`, newest first.
pub(crate) fn page(db: &Db, filter: &AlertFilter, before: &str, rows: i64) -> DbResult<Vec<Alert>> {
    let values = named_params! {
        ":before": before,
        ":state": filter.state.map(AlertState::name),
        ":kind": filter.kind,
        ":object": filter.object,
        ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
        ":rows": rows,
    };
    let mut labels = Labels::default();
    db.rows(PAGE, values, |row| Alert::of(row)?.named(db, &mut labels))
}

/// Returns all alerts that are not resolved.
pub(crate) fn unresolved(db: &Db) -> DbResult<Vec<Alert>> {
    db.rows(UNRESOLVED, (), Alert::of)
}

/// The numbers of alerts that are neither acknowledged nor resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OpenAlerts {
    /// All of them.
    pub(crate) total: u64,
    /// Those of the severity `bad`.
    pub(crate) bad: u64,
}

/// Counts the open alerts.
pub(crate) fn open(db: &Db) -> DbResult<OpenAlerts> {
    let counts = |row: Row<'_>| Ok(OpenAlerts { total: row.get("total")?, bad: row.get("bad")? });
    db.row(OPEN, (), counts)
}

/// Returns the unresolved alerts of a rule.
pub(crate) fn unresolved_of(db: &Db, rule: &str) -> DbResult<Vec<Alert>> {
    db.rows(UNRESOLVED_OF, [rule], Alert::of)
}

pub(crate) fn find(db: &Db, id: &str) -> DbResult<Option<Alert>> {
    let found = db.optional_row(FIND, [id], Alert::of)?;
    found.map(|alert| alert.named(db, &mut Labels::default())).transpose()
}

/// Stores a new alert, or the changed state of one. Fails if another alert of its rule and object is not resolved.
pub(crate) fn put(tx: &Db, alert: &Alert) -> DbResult<()> {
    tx.execute(
        PUT,
        named_params! {
            ":id": alert.id,
            ":rule": alert.rule,
            ":kind": alert.kind,
            ":object": alert.object,
            ":severity": alert.severity.name(),
            ":text": alert.text,
            ":figures": serde_json::json!(alert.figures).to_string(),
            ":first": alert.first_at_ms,
            ":last": alert.last_at_ms,
            ":times": alert.times,
            ":acked": alert.acked_at_ms,
            ":acked_by": alert.acked_by,
            ":resolved": alert.resolved_at_ms,
        },
    )?;
    Ok(())
}

/// Deletes up to `rows` alerts that were resolved before `before_ms`. Returns their number.
pub(crate) fn forget(tx: &Db, before_ms: u64, rows: u32) -> DbResult<usize> {
    tx.execute(FORGET, named_params! {":before": before_ms, ":rows": rows})
}

const PAGE: &str = "SELECT * FROM alerts WHERE (:before = '' OR id < :before) AND (:kind IS NULL OR kind = :kind) \
     AND (:object IS NULL OR object = :object) \
     AND (:q IS NULL OR instr(lower(text), :q) > 0 OR instr(lower(kind), :q) > 0 OR instr(lower(object), :q) > 0 OR instr(id, :q) > 0) \
     AND (:state IS NULL OR :state = CASE WHEN resolved_at_ms IS NOT NULL \
     THEN 'resolved' WHEN acked_at_ms IS NOT NULL THEN 'acknowledged' ELSE 'open' END) ORDER BY id DESC LIMIT :rows";
const UNRESOLVED: &str = "SELECT * FROM alerts WHERE resolved_at_ms IS NULL ORDER BY id";
const UNRESOLVED_OF: &str = "SELECT * FROM alerts WHERE rule = :rule AND resolved_at_ms IS NULL ORDER BY id";
const OPEN: &str = "SELECT count(*) AS total, count(*) FILTER (WHERE severity = 'bad') AS bad FROM alerts \
     WHERE resolved_at_ms IS NULL AND acked_at_ms IS NULL";
const FIND: &str = "SELECT * FROM alerts WHERE id = :id";
const PUT: &str = "INSERT INTO alerts (id, rule, kind, object, severity, text, figures, first_at_ms, last_at_ms, times, \
     acked_at_ms, acked_by, resolved_at_ms) VALUES (:id, :rule, :kind, :object, :severity, :text, :figures, :first, :last, \
     :times, :acked, :acked_by, :resolved) \
     ON CONFLICT (id) DO UPDATE SET last_at_ms = excluded.last_at_ms, times = excluded.times, \
     acked_at_ms = excluded.acked_at_ms, acked_by = excluded.acked_by, resolved_at_ms = excluded.resolved_at_ms";
const FORGET: &str = "DELETE FROM alerts WHERE id IN \
     (SELECT id FROM alerts WHERE resolved_at_ms < :before ORDER BY resolved_at_ms LIMIT :rows)";
