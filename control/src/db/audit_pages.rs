//! Reads the table `audit`: pages of rows, newest first, and single rows.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::common::bounds::LIVE_AUDIT_ROWS;
use crate::db::engine::{Db, DbResult, Row, named_params};

/// An audit record.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AuditRecord"))]
pub(crate) struct AuditRow {
    /// IDs ascend by one from record to record.
    pub(crate) id: i64,
    /// In milliseconds since the Unix epoch.
    pub(crate) at_ms: i64,
    /// `admin`, `admin:NAME`, the ID of a human, `gateway` or `unknown`.
    pub(crate) actor: String,
    /// The action, such as `key.create`.
    pub(crate) action: String,
    /// The kind of the object, such as `key`.
    pub(crate) object_kind: String,
    pub(crate) object_id: String,
    /// `done` or `refused`.
    pub(crate) outcome: String,
    /// The client's address; null for actions of the gateway.
    pub(crate) address: Option<String>,
    /// Null for actions of the gateway.
    pub(crate) request_id: Option<String>,
    /// The object before and after, with secrets masked.
    #[cfg_attr(test, schemars(with = "crate::common::shared_shapes::AuditDetail"))]
    pub(crate) detail: Box<RawValue>,
}

impl AuditRow {
    fn of(row: Row<'_>) -> DbResult<Self> {
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

    /// True for a completed action that changes what requests meet or who may send them. Sign-ins, tests, runs, backups
    /// and alerts change nothing of that.
    pub(crate) fn is_change(&self) -> bool {
        let (object, verb) = self.action.split_once('.').unwrap_or((&self.action, ""));
        self.outcome == "done" && !UNCHANGED_OBJECTS.contains(&object) && !UNCHANGING_VERBS.contains(&verb)
    }
}

/// Returns the JSON of a row, or the string "damaged" if it is malformed.
fn raw(detail: String) -> Box<RawValue> {
    RawValue::from_string(detail).unwrap_or_else(|_| {
        serde_json::value::to_raw_value(&Value::String("damaged".to_owned())).unwrap_or_default()
    })
}

/// A filter for rows. An absent field matches all.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditFilter {
    pub(crate) actor: Option<String>,
    pub(crate) action: Option<String>,
    /// The kind of the object, its id, or `KIND/ID`.
    pub(crate) object: Option<String>,
    pub(crate) outcome: Option<&'static str>,
    /// The time range: from `from_ms`, inclusive, to `to_ms`, exclusive.
    pub(crate) from_ms: Option<u64>,
    pub(crate) to_ms: Option<u64>,
    /// A part of the actor, the action, or the id or kind of the object; case is ignored for ASCII letters.
    pub(crate) text: Option<String>,
}

/// The beginning and the direction of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditStart {
    /// Rows with ids below this one, newest first.
    Before(i64),
    /// Rows with ids above this one, oldest first.
    After(i64),
}

/// Returns up to `rows` matching rows from `start` on.
pub(crate) fn page(db: &Db, filter: &AuditFilter, start: AuditStart, rows: i64) -> DbResult<Vec<AuditRow>> {
    let (sql, at) = match start {
        AuditStart::Before(id) => (NEWEST_FIRST, id),
        AuditStart::After(id) => (OLDEST_FIRST, id),
    };
    db.rows(
        sql,
        named_params! {
            ":at": at,
            ":actor": filter.actor,
            ":action": filter.action,
            ":object": filter.object,
            ":outcome": filter.outcome,
            ":from": filter.from_ms,
            ":to": filter.to_ms,
            ":q": filter.text.as_deref().map(str::to_ascii_lowercase),
            ":rows": rows,
        },
        AuditRow::of,
    )
}

/// Returns the row `id`.
pub(crate) fn find(db: &Db, id: i64) -> DbResult<Option<AuditRow>> {
    db.optional_row(FIND, [id], AuditRow::of)
}

/// The rows that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditExtent {
    /// Their number.
    pub(crate) rows: u64,
    /// The time of the oldest one.
    pub(crate) since_ms: Option<u64>,
}

/// Returns the extent of the table.
pub(crate) fn extent(db: &Db) -> DbResult<AuditExtent> {
    let read = |row: Row<'_>| Ok(AuditExtent { rows: row.get("rows")?, since_ms: row.get("since_ms")? });
    db.row(EXTENT, (), read)
}

const FIND: &str = "SELECT * FROM audit WHERE id = :id";
const EXTENT: &str =
    "SELECT count(*) AS rows, (SELECT at_ms FROM audit ORDER BY id LIMIT 1) AS since_ms FROM audit";
/// Returns the rows with ids above `after`, oldest first; only the newest `rows` of them.
pub(crate) fn newest(db: &Db, after: i64) -> DbResult<Vec<AuditRow>> {
    let values = named_params! {":after": after, ":rows": LIVE_AUDIT_ROWS.max() + 1};
    let mut found: Vec<_> = db.rows(NEWEST, values, AuditRow::of)?;
    LIVE_AUDIT_ROWS.cut(&mut found);
    found.reverse();
    Ok(found)
}

/// Returns the newest [change](AuditRow::is_change) from before `before_ms`. Only the newest [`LOOKED_AT_MAX`] rows are
/// examined.
pub(crate) fn last_change(db: &Db, before_ms: u64) -> DbResult<Option<AuditRow>> {
    let mut statement = db.prepare(BEFORE)?;
    let mut rows = statement.query(named_params! {":before": before_ms, ":rows": LOOKED_AT_MAX})?;
    while let Some(row) = rows.next()? {
        let row = AuditRow::of(row)?;
        if row.is_change() {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

const UNCHANGED_OBJECTS: [&str; 7] = ["session", "backup", "request", "alert", "outbox", "audit", "usage"];
const UNCHANGING_VERBS: [&str; 7] =
    ["reveal", "replay", "test", "probe", "check", "sign_in", "connect_begin"];
const LOOKED_AT_MAX: i64 = 1_000;
const BEFORE: &str = "SELECT * FROM (SELECT * FROM audit ORDER BY id DESC LIMIT :rows) AS newest \
     WHERE at_ms < :before ORDER BY id DESC";
const NEWEST: &str = "SELECT * FROM audit WHERE id > :after ORDER BY id DESC LIMIT :rows";
macro_rules! select_rows {
    ($place:literal, $order:literal) => {
        concat!(
            "SELECT * FROM audit WHERE ",
            $place,
            " AND (:actor IS NULL OR actor = :actor) AND (:action IS NULL OR action = :action) \
             AND (:object IS NULL OR :object IN (object_kind, object_id, object_kind || '/' || object_id)) \
             AND (:outcome IS NULL OR outcome = :outcome) \
             AND (:from IS NULL OR at_ms >= :from) AND (:to IS NULL OR at_ms < :to) \
             AND (:q IS NULL OR instr(lower(actor), :q) > 0 OR instr(lower(action), :q) > 0 \
             OR instr(lower(object_kind), :q) > 0 OR instr(lower(object_id), :q) > 0) ORDER BY ",
            $order,
            " LIMIT :rows"
        )
    };
}

const NEWEST_FIRST: &str = select_rows!("id < :at", "id DESC");
const OLDEST_FIRST: &str = select_rows!("id > :at", "id");
