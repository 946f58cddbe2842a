//! `telemetry.db`: the part of the state that may be lost (STATE-1). It is created again if it is missing, damaged or of a
//! newer release, and no backup contains it. Migrations of its own; a commit may be lost with the power.

use std::io;
use std::ops::Range;
use std::path::Path;

use super::circuit_changes::{self, CircuitChange, TargetFilter};
use super::engine::sqlite::connect::Access;
use super::sqlite_state::migrate;
use super::sqlite_state::open::remove;
use crate::common::bounds;
use crate::common::private_file;
use crate::db::engine::{Db, DbErrorKind, DbResult};

/// The open database.
#[derive(Debug)]
pub(crate) struct TelemetryDb {
    db: Db,
    /// Bytes of all captured exchanges.
    captured_bytes: u64,
}

/// An exchange to be stored.
#[derive(Debug)]
pub(crate) struct CapturedRow<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) at_ms: u64,
    pub(crate) sealed: &'a [u8],
}

/// The name of the database in the state directory.
pub(crate) const TELEMETRY: &str = "telemetry.db";
/// The time for which captured exchanges are kept, in milliseconds.
pub(crate) const CAPTURED_MS_MAX: u64 = 24 * 3_600 * 1_000;

impl TelemetryDb {
    /// Opens the database in `dir`. One that cannot be used is deleted and created again.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(TELEMETRY);
        match Self::usable(&path)? {
            Ok(db) => Ok(db),
            Err(why) => {
                tracing::warn!(
                    "{} is created again, because it is {why}; only telemetry is lost",
                    path.display()
                );
                remove(&path)?;
                Self::usable(&path)?.map_err(io::Error::other)
            }
        }
    }

    /// Opens or creates the database at `path`. The inner error describes a file that can only be deleted.
    fn usable(path: &Path) -> io::Result<Result<Self, &'static str>> {
        private_file::open_or_create(path)?;
        match Self::connect(path) {
            Ok(outcome) => Ok(outcome),
            Err(error) if error.kind() == DbErrorKind::Damaged => Ok(Err("damaged")),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn connect(path: &Path) -> DbResult<Result<Self, &'static str>> {
        let mut db = Db::open(path, Access::Write)?;
        let application: i32 = db.pragma(None, "application_id")?;
        let version = migrate::version(&db)?;
        let newest = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        let is_new = application == 0 && version == 0;
        if !is_new && application != APPLICATION_ID {
            return Ok(Err("not a database of the gateway"));
        }
        if version > newest {
            return Ok(Err("of a newer release"));
        }
        // Takes effect before the first table is created.
        db.set_pragma(None, "auto_vacuum", "INCREMENTAL")?;
        db.set_pragma(None, "journal_mode", "WAL")?;
        db.set_pragma(None, "synchronous", "NORMAL")?;
        db.set_pragma(None, "journal_size_limit", WAL_BYTES_KEPT)?;
        for (number, sql) in (1_i64..).zip(MIGRATIONS).skip(usize::try_from(version).unwrap_or(usize::MAX)) {
            let tx = db.transaction()?;
            tx.batch(sql)?;
            tx.set_pragma(None, "application_id", APPLICATION_ID)?;
            tx.set_pragma(None, "user_version", number)?;
            tx.commit()?;
        }
        let finding: String = db.row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
        if finding != "ok" {
            return Ok(Err("damaged"));
        }
        let captured_bytes = db.row(CAPTURED_BYTES, (), |row| row.get(0))?;
        Ok(Ok(Self { db, captured_bytes }))
    }

    /// Stores a captured exchange, and deletes the oldest beyond the maximum size.
    pub(crate) fn keep(&mut self, row: &CapturedRow<'_>) -> DbResult<()> {
        let bytes = u64::try_from(row.sealed.len()).unwrap_or(u64::MAX);
        let mut total = self.captured_bytes.saturating_add(bytes);
        let tx = self.db.transaction()?;
        tx.execute(INSERT, (row.request_id, row.at_ms, bytes, row.sealed))?;
        while total > captured_bytes_max() {
            bounds::CAPTURED_BYTES.reach();
            let deleted: Option<u64> = tx.optional_row(DELETE_OLDEST, (), |row| row.get(0))?;
            total = deleted.map_or(0, |bytes| total.saturating_sub(bytes));
        }
        tx.commit()?;
        self.captured_bytes = total;
        Ok(())
    }

    /// Returns the newest captured exchange with this request id, sealed.
    pub(crate) fn find(&self, request_id: &str) -> DbResult<Option<Vec<u8>>> {
        self.db.optional_row(FIND, [request_id], |row| row.get(0))
    }

    /// Stores changes of circuits.
    pub(crate) fn keep_changes(&mut self, changes: &[CircuitChange]) -> DbResult<()> {
        circuit_changes::keep(&mut self.db, changes)
    }

    /// Returns the changes of circuits in a time, the latest first, at most `max`.
    pub(crate) fn circuit_changes(
        &self,
        time_ms: &Range<u64>,
        filter: &TargetFilter,
        max: usize,
    ) -> DbResult<Vec<CircuitChange>> {
        circuit_changes::changes(&self.db, time_ms, filter, max)
    }

    /// Deletes what is too old at `now_ms`, in steps, and returns free pages to the file system.
    pub(crate) fn prune(&mut self, now_ms: u64) -> DbResult<()> {
        if self.db.execute(DELETE_EXPIRED, [now_ms.saturating_sub(CAPTURED_MS_MAX)])? > 0 {
            self.captured_bytes = self.db.row(CAPTURED_BYTES, (), |row| row.get(0))?;
        }
        circuit_changes::prune(&self.db, now_ms)?;
        self.db.batch("PRAGMA incremental_vacuum(4096)")
    }
}

/// The migrations in order; the first one creates version 1.
const MIGRATIONS: &[&str] = &[
    include_str!("sqlite_state/telemetry_migrations/0001_captured.sql"),
    include_str!("sqlite_state/telemetry_migrations/0002_targets.sql"),
    include_str!("sqlite_state/telemetry_migrations/0003_targets_in_usage.sql"),
];
/// `llmt` in ASCII.
const APPLICATION_ID: i32 = 0x6c6c_6d74;
const WAL_BYTES_KEPT: i64 = 4 << 20;
const INSERT: &str = "INSERT INTO captured (request_id, at_ms, bytes, exchange) VALUES (:request_id, :at_ms, :bytes, :exchange)";
const DELETE_OLDEST: &str = "DELETE FROM captured WHERE id = (SELECT min(id) FROM captured) RETURNING bytes";
const DELETE_EXPIRED: &str = "DELETE FROM captured WHERE at_ms < :before";
const FIND: &str = "SELECT exchange FROM captured WHERE request_id = :request_id ORDER BY id DESC LIMIT 1";
const CAPTURED_BYTES: &str = "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM captured";

/// Returns the maximum size of all captured exchanges in bytes.
fn captured_bytes_max() -> u64 {
    u64::try_from(bounds::CAPTURED_BYTES.max()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl TelemetryDb {
    pub(super) fn db(&self) -> &Db {
        &self.db
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::common::bounds::tests::passes;

    fn row<'a>(request_id: &'a str, at_ms: u64, sealed: &'a [u8]) -> CapturedRow<'a> {
        CapturedRow { request_id, at_ms, sealed }
    }

    #[test]
    fn a_damaged_foreign_or_newer_telemetry_db_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TELEMETRY);
        let newer = || {
            let db = Db::create(&path).unwrap();
            db.set_pragma(None, "user_version", 99).unwrap();
        };
        let foreign = || {
            let db = Db::create(&path).unwrap();
            db.batch("PRAGMA application_id = 7").unwrap();
        };
        let damages: [&dyn Fn(); 4] =
            [&|| fs::write(&path, "not a database").unwrap(), &|| remove(&path).unwrap(), &newer, &foreign];
        for damage in damages {
            let mut db = TelemetryDb::open(dir.path()).unwrap();
            db.keep(&row("a", 1, b"sealed")).unwrap();
            drop(db);
            assert!(
                TelemetryDb::open(dir.path()).unwrap().find("a").unwrap().is_some(),
                "an intact one is kept"
            );
            damage();
            assert_eq!(TelemetryDb::open(dir.path()).unwrap().find("a").unwrap(), None);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_telemetry_db_of_an_earlier_release_keeps_its_exchanges() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TELEMETRY);
        let db = Db::create(&path).unwrap();
        db.batch(MIGRATIONS[0]).unwrap();
        db.set_pragma(None, "application_id", APPLICATION_ID).unwrap();
        db.set_pragma(None, "user_version", 1).unwrap();
        db.execute(INSERT, ("a", 1, 6, b"sealed")).unwrap();
        drop(db);
        let mut db = TelemetryDb::open(dir.path()).unwrap();
        assert!(db.find("a").unwrap().is_some());
        db.keep_changes(&[]).unwrap();
    }

    #[test]
    fn the_oldest_exchanges_are_deleted_by_size_and_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let mut db = TelemetryDb::open(dir.path()).unwrap();
        for (id, at_ms) in [("a", 1_000), ("b", 2_000), ("c", 3_000)] {
            db.keep(&row(id, at_ms, b"12345678")).unwrap();
        }
        assert_eq!(db.captured_bytes, 24);
        db.captured_bytes = captured_bytes_max() - 1;
        passes(&bounds::CAPTURED_BYTES, || db.keep(&row("d", 4_000, b"12345678")).unwrap());
        let found = |db: &TelemetryDb| ["a", "b", "c", "d"].map(|id| db.find(id).unwrap().is_some());
        assert_eq!(found(&db), [false, true, true, true], "one byte too many");
        db.prune(2_001 + CAPTURED_MS_MAX).unwrap();
        assert_eq!((found(&db), db.captured_bytes), ([false, false, true, true], 16));
    }
}
