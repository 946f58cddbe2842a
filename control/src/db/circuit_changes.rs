//! The table `circuit_change` of `telemetry.db`: changes of circuits, for [`KEPT_MS`]. Their number is bounded, so that the
//! file is too.

use std::ops::Range;

use crate::common::bounds::STORED_CHANGES;
use crate::db::engine::{Db, DbResult, named_params};
use shared::bound::Bound;

/// A circuit that opened or closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CircuitChange {
    /// In milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    pub(crate) provider: String,
    /// `None` for the circuit of the provider instance itself.
    pub(crate) model: Option<String>,
    pub(crate) is_open: bool,
    /// The result of the last failed attempt; `None` for a circuit that closed.
    pub(crate) result: Option<String>,
    /// The upstream's status in that attempt, if it responded.
    pub(crate) status: Option<u16>,
}

/// The targets that a query is about; all of them if both are `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetFilter {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
}

impl TargetFilter {
    /// True if the target is one of them.
    pub(crate) fn fits(&self, provider: &str, model: &str) -> bool {
        let fits =
            |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        fits(&self.provider, provider) && fits(&self.model, model)
    }
}

/// Stores changes in one transaction.
pub(super) fn keep(db: &mut Db, changes: &[CircuitChange]) -> DbResult<()> {
    let tx = db.transaction()?;
    for CircuitChange { at_ms, provider, model, is_open, result, status } in changes {
        tx.execute(INSERT_CHANGE, (at_ms, provider, model, is_open, result, status))?;
    }
    tx.commit()
}

/// Returns the changes in a time, the latest first, at most `max`. Those of a provider instance itself fit any model.
pub(super) fn changes(
    db: &Db,
    time_ms: &Range<u64>,
    filter: &TargetFilter,
    max: usize,
) -> DbResult<Vec<CircuitChange>> {
    db.rows(
        CHANGES,
        named_params! {
            ":from": time_ms.start,
            ":to": time_ms.end,
            ":provider": filter.provider,
            ":model": filter.model,
            ":max": max,
        },
        |row| {
            Ok(CircuitChange {
                at_ms: row.get("at_ms")?,
                provider: row.get("provider")?,
                model: row.get("model")?,
                is_open: row.get("is_open")?,
                result: row.get("result")?,
                status: row.get("status")?,
            })
        },
    )
}

/// Deletes some of the rows that are too old at `now_ms`, or too many.
pub(super) fn prune(db: &Db, now_ms: u64) -> DbResult<()> {
    let before_ms = now_ms.saturating_sub(KEPT_MS);
    db.execute(DELETE_CHANGES, [before_ms, ROWS_PER_STEP])?;
    delete_excess(db, DELETE_EXCESS_CHANGES, &STORED_CHANGES)
}

fn delete_excess(db: &Db, statement: &str, bound: &Bound) -> DbResult<()> {
    let kept = u64::try_from(bound.max()).unwrap_or(u64::MAX);
    let deleted = db.execute(statement, [kept, ROWS_PER_STEP])?;
    bound.reach_times(u64::try_from(deleted).unwrap_or(u64::MAX));
    Ok(())
}

/// The time for which rows are kept, in milliseconds.
pub(crate) const KEPT_MS: u64 = 14 * 24 * 3_600_000;
/// The maximum number of rows that one statement deletes: more than a minute can bring.
const ROWS_PER_STEP: u64 = 2_000;
const INSERT_CHANGE: &str = "INSERT INTO circuit_change (at_ms, provider, model, is_open, result, status) \
     VALUES (:at_ms, :provider, :model, :is_open, :result, :status)";
const CHANGES: &str = "SELECT * FROM circuit_change WHERE at_ms >= :from AND at_ms < :to \
     AND (:provider IS NULL OR provider = :provider) AND (:model IS NULL OR model IS NULL OR model = :model) \
     ORDER BY at_ms DESC, id DESC LIMIT :max";
const DELETE_CHANGES: &str = "DELETE FROM circuit_change WHERE id IN \
     (SELECT id FROM circuit_change WHERE at_ms < :before ORDER BY at_ms LIMIT :rows)";
const DELETE_EXCESS_CHANGES: &str = "DELETE FROM circuit_change WHERE id IN \
     (SELECT id FROM circuit_change WHERE id <= (SELECT max(id) FROM circuit_change) - :kept ORDER BY id LIMIT :rows)";

#[cfg(test)]
mod tests {
    use super::super::telemetry::TelemetryDb;
    use super::*;
    use crate::common::bounds::tests::passes;

    fn change(at_ms: u64, model: Option<&str>) -> CircuitChange {
        CircuitChange {
            at_ms,
            provider: "p".to_owned(),
            model: model.map(str::to_owned),
            is_open: true,
            result: Some("status".to_owned()),
            status: Some(503),
        }
    }

    #[test]
    fn changes_are_read_by_target_the_latest_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = TelemetryDb::open(dir.path()).unwrap();
        db.keep_changes(&[change(1, None), change(2, Some("m"))]).unwrap();
        drop(db);
        let db = TelemetryDb::open(dir.path()).unwrap();
        let of = |provider: Option<&str>, model: Option<&str>| TargetFilter {
            provider: provider.map(str::to_owned),
            model: model.map(str::to_owned),
        };
        let changes = |filter: &TargetFilter, max| db.circuit_changes(&(0..9), filter, max).unwrap();
        assert_eq!(changes(&of(None, None), 9), [change(2, Some("m")), change(1, None)]);
        assert_eq!(changes(&of(Some("p"), Some("n")), 9), [change(1, None)], "it concerns all models");
        assert_eq!(changes(&of(None, None), 1), [change(2, Some("m"))]);
    }

    #[test]
    fn changes_beyond_the_maximum_are_deleted_although_they_are_young() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = TelemetryDb::open(dir.path()).unwrap();
        db.keep_changes(&[change(1, None), change(2, None)]).unwrap();
        let last = "UPDATE circuit_change SET id = :id WHERE id = 2";
        assert_eq!(db.db().execute(last, [STORED_CHANGES.max() + 1]).unwrap(), 1);
        passes(&STORED_CHANGES, || db.prune(3).unwrap());
        let all = TargetFilter::default();
        assert_eq!(db.circuit_changes(&(0..9), &all, 9).unwrap(), [change(2, None)]);
    }

    #[test]
    fn old_changes_are_deleted_in_steps() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = TelemetryDb::open(dir.path()).unwrap();
        let now_ms = KEPT_MS * 2;
        let old = (0..ROWS_PER_STEP + 1).map(|_| change(now_ms - KEPT_MS - 1, None));
        let all: Vec<_> = old.chain([change(now_ms - KEPT_MS, None)]).collect();
        db.keep_changes(&all).unwrap();
        let kept = |db: &TelemetryDb| db.circuit_changes(&(0..now_ms), &TargetFilter::default(), 9).unwrap();
        db.prune(now_ms).unwrap();
        assert_eq!(kept(&db).len(), 2, "one step does not delete all");
        db.prune(now_ms).unwrap();
        assert_eq!(kept(&db), [change(now_ms - KEPT_MS, None)]);
    }
}
