//! Reading the table `audit`: pages of it, newest first.

use rusqlite::{Connection, Row, named_params};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// One row, as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AuditRow {
    pub(crate) id: i64,
    pub(crate) at_ms: i64,
    pub(crate) actor: String,
    pub(crate) action: String,
    pub(crate) object_kind: String,
    pub(crate) object_id: String,
    pub(crate) outcome: String,
    pub(crate) address: Option<String>,
    pub(crate) request_id: Option<String>,
    /// `{"before": ..., "after": ...}`, as it was written.
    pub(crate) detail: Box<RawValue>,
}

impl AuditRow {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let detail: String = row.get("detail")?;
        Ok(Self {
            id: row.get("id")?,
            at_ms: row.get("at_ms")?,
            actor: row.get("actor")?,
            action: row.get("action")?,
            object_kind: row.get("object_kind")?,
            object_id: row.get("object_id")?,
            outcome: row.get("outcome")?,
            address: row.get("address")?,
            request_id: row.get("request_id")?,
            detail: raw(detail),
        })
    }
}

/// The JSON that a row holds; if somebody has damaged it, the damage as a string.
fn raw(detail: String) -> Box<RawValue> {
    RawValue::from_string(detail).unwrap_or_else(|_| {
        serde_json::value::to_raw_value(&Value::String("damaged".to_owned())).unwrap_or_default()
    })
}

/// Which rows. An absent field fits all.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditFilter {
    pub(crate) actor: Option<String>,
    pub(crate) action: Option<String>,
    pub(crate) object_kind: Option<String>,
    pub(crate) object_id: Option<String>,
    pub(crate) outcome: Option<&'static str>,
    /// From this moment on, and before that one.
    pub(crate) from_ms: Option<u64>,
    pub(crate) to_ms: Option<u64>,
}

/// Up to `rows` rows that fit, newest first, with ids below `before`.
pub(crate) fn page(
    db: &Connection,
    filter: &AuditFilter,
    before: i64,
    rows: i64,
) -> rusqlite::Result<Vec<AuditRow>> {
    let mut statement = db.prepare_cached(PAGE)?;
    let found = statement.query_map(
        named_params! {
            ":before": before,
            ":actor": filter.actor,
            ":action": filter.action,
            ":kind": filter.object_kind,
            ":object": filter.object_id,
            ":outcome": filter.outcome,
            ":from": filter.from_ms,
            ":to": filter.to_ms,
            ":rows": rows,
        },
        AuditRow::of,
    )?;
    found.collect()
}

const PAGE: &str = "SELECT * FROM audit WHERE id < :before \
     AND (:actor IS NULL OR actor = :actor) AND (:action IS NULL OR action = :action) \
     AND (:kind IS NULL OR object_kind = :kind) AND (:object IS NULL OR object_id = :object) \
     AND (:outcome IS NULL OR outcome = :outcome) \
     AND (:from IS NULL OR at_ms >= :from) AND (:to IS NULL OR at_ms < :to) \
     ORDER BY id DESC LIMIT :rows";
