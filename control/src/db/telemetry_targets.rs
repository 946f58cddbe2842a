//! The tables of `telemetry.db` about targets: packed sums by minute, and changes of circuits, for [`KEPT_MS`]. Their
//! number is bounded, so that the file is too.

use std::ops::{ControlFlow, Range};

use crate::db::engine::{Db, DbResult, named_params};

/// The figures of a target in a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetMinuteRow {
    /// Minutes since the Unix epoch.
    pub(crate) minute: u64,
    /// Empty, as the model is, for exchanges that reached no target.
    pub(crate) provider: Box<str>,
    pub(crate) model: Box<str>,
    /// Packed counts and distributions.
    pub(crate) sums: Vec<u8>,
}

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

/// Stores minutes and changes in one transaction.
pub(super) fn keep(db: &mut Db, minutes: &[TargetMinuteRow], changes: &[CircuitChange]) -> DbResult<()> {
    let tx = db.transaction()?;
    for TargetMinuteRow { minute, provider, model, sums } in minutes {
        tx.execute(INSERT_MINUTE, (minute, provider, model, sums))?;
    }
    for CircuitChange { at_ms, provider, model, is_open, result, status } in changes {
        tx.execute(INSERT_CHANGE, (at_ms, provider, model, is_open, result, status))?;
    }
    tx.commit()
}

/// Passes the packed sums of `minutes` to `take`, the latest minute first, until it breaks.
pub(super) fn minutes(
    db: &Db,
    minutes: &Range<u64>,
    filter: &TargetFilter,
    mut take: impl FnMut(u64, (&str, &str), &[u8]) -> ControlFlow<()>,
) -> DbResult<()> {
    let mut statement = db.prepare(MINUTES)?;
    let mut rows = statement.query(named_params! {
        ":from": minutes.start,
        ":to": minutes.end,
        ":provider": filter.provider,
        ":model": filter.model,
    })?;
    while let Some(row) = rows.next()? {
        let target = (row.get("provider")?, row.get("model")?);
        let taken = take(row.get("minute")?, target, row.get("sums")?);
        if taken.is_break() {
            break;
        }
    }
    Ok(())
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
    db.execute(DELETE_MINUTES, [before_ms / MINUTE_MS, ROWS_PER_STEP])?;
    db.execute(DELETE_EXCESS_MINUTES, [MINUTES_MAX, ROWS_PER_STEP])?;
    db.execute(DELETE_CHANGES, [before_ms, ROWS_PER_STEP])?;
    db.execute(DELETE_EXCESS_CHANGES, [CHANGES_MAX, ROWS_PER_STEP])?;
    Ok(())
}

/// The length of a minute in milliseconds.
pub(crate) const MINUTE_MS: u64 = 60_000;
/// The time for which rows are kept, in milliseconds.
pub(crate) const KEPT_MS: u64 = 14 * 24 * 3_600_000;
/// The maximum number of rows of minutes; the oldest are deleted. Fifty targets with requests in each minute of the
/// time have as many.
const MINUTES_MAX: u64 = 1_000_000;
/// The maximum number of changes of circuits; the oldest are deleted.
const CHANGES_MAX: u64 = 100_000;
/// The maximum number of rows that one statement deletes: more than a minute can bring.
const ROWS_PER_STEP: u64 = 2_000;
const INSERT_MINUTE: &str =
    "INSERT INTO target_minute (minute, provider, model, sums) VALUES (:minute, :provider, :model, :sums)";
const INSERT_CHANGE: &str = "INSERT INTO circuit_change (at_ms, provider, model, is_open, result, status) \
     VALUES (:at_ms, :provider, :model, :is_open, :result, :status)";
const MINUTES: &str = "SELECT minute, provider, model, sums FROM target_minute \
     WHERE minute >= :from AND minute < :to \
     AND (:provider IS NULL OR provider = :provider) AND (:model IS NULL OR model = :model) \
     ORDER BY minute DESC";
const CHANGES: &str = "SELECT * FROM circuit_change WHERE at_ms >= :from AND at_ms < :to \
     AND (:provider IS NULL OR provider = :provider) AND (:model IS NULL OR model IS NULL OR model = :model) \
     ORDER BY at_ms DESC, id DESC LIMIT :max";
const DELETE_MINUTES: &str = "DELETE FROM target_minute WHERE id IN \
     (SELECT id FROM target_minute WHERE minute < :before ORDER BY minute LIMIT :rows)";
const DELETE_EXCESS_MINUTES: &str = "DELETE FROM target_minute WHERE id IN \
     (SELECT id FROM target_minute WHERE id <= (SELECT max(id) FROM target_minute) - :kept ORDER BY id LIMIT :rows)";
const DELETE_CHANGES: &str = "DELETE FROM circuit_change WHERE id IN \
     (SELECT id FROM circuit_change WHERE at_ms < :before ORDER BY at_ms LIMIT :rows)";
const DELETE_EXCESS_CHANGES: &str = "DELETE FROM circuit_change WHERE id IN \
     (SELECT id FROM circuit_change WHERE id <= (SELECT max(id) FROM circuit_change) - :kept ORDER BY id LIMIT :rows)";

#[cfg(test)]
mod tests {
    use super::super::telemetry::TelemetryDb;
    use super::*;

    fn row(minute: u64, provider: &str) -> TargetMinuteRow {
        TargetMinuteRow { minute, provider: provider.into(), model: "m".into(), sums: vec![1, 2] }
    }

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

    fn kept(db: &TelemetryDb, filter: &TargetFilter) -> Vec<(u64, String)> {
        let mut all = Vec::new();
        db.target_minutes(&(0..u64::MAX >> 1), filter, |minute, (provider, _), sums| {
            assert_eq!(sums, [1, 2]);
            all.push((minute, provider.to_owned()));
            ControlFlow::Continue(())
        })
        .unwrap();
        all
    }

    #[test]
    fn minutes_and_changes_are_read_by_target_the_latest_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = TelemetryDb::open(dir.path()).unwrap();
        db.keep_targets(&[row(1, "p"), row(2, "p"), row(2, "q")], &[change(1, None), change(2, Some("m"))])
            .unwrap();
        drop(db);
        let db = TelemetryDb::open(dir.path()).unwrap();
        let of = |provider: Option<&str>, model: Option<&str>| TargetFilter {
            provider: provider.map(str::to_owned),
            model: model.map(str::to_owned),
        };
        assert_eq!(kept(&db, &of(Some("p"), None)), [(2, "p".to_owned()), (1, "p".to_owned())]);
        assert_eq!(kept(&db, &of(Some("q"), Some("m"))).len(), 1);
        assert_eq!(kept(&db, &of(None, Some("n"))).len(), 0);
        let changes = |filter: &TargetFilter, max| db.circuit_changes(&(0..9), filter, max).unwrap();
        assert_eq!(changes(&of(None, None), 9), [change(2, Some("m")), change(1, None)]);
        assert_eq!(changes(&of(Some("p"), Some("n")), 9), [change(1, None)], "it concerns all models");
        assert_eq!(changes(&of(None, None), 1), [change(2, Some("m"))]);
    }

    #[test]
    fn old_minutes_and_changes_are_deleted_in_steps() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = TelemetryDb::open(dir.path()).unwrap();
        let now_ms = KEPT_MS * 2;
        let first = (now_ms - KEPT_MS) / MINUTE_MS;
        let old: Vec<_> =
            (0..ROWS_PER_STEP + 1).map(|_| row(first - 1, "p")).chain([row(first, "p")]).collect();
        db.keep_targets(&old, &[change(now_ms - KEPT_MS - 1, None), change(now_ms - KEPT_MS, None)]).unwrap();
        db.prune(now_ms).unwrap();
        let all = TargetFilter::default();
        assert_eq!(kept(&db, &all).len(), 2, "one step does not delete all");
        db.prune(now_ms).unwrap();
        assert_eq!(kept(&db, &all), [(first, "p".to_owned())]);
        assert_eq!(db.circuit_changes(&(0..now_ms), &all, 9).unwrap(), [change(now_ms - KEPT_MS, None)]);
    }
}
