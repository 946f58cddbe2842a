//! Copies of the databases: made while other connections write, and verified.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::files::{Files, is_apart};
use super::migrate;
use super::open::{CHECK_ALL, connect_reader, is_large};
use crate::db::engine::sqlite::connect::Access;
use crate::db::engine::sqlite::schemas::has_usage_apart;
use crate::db::engine::{Db, DbError, DbResult};
use crate::db::packed_row;
use crate::db::usage_effects;

/// A consistent view of all databases of a state at one moment. Writers are not blocked.
#[derive(Debug)]
pub(crate) struct ConsistentView {
    /// A connection with an open read transaction.
    db: Db,
}

impl ConsistentView {
    /// Opens a view of the state in `dir`. The two files are of one moment if no due amount is on its way from one to
    /// the other. If that does not occur within the tries, quotas may include usage that is in neither file, or will
    /// receive it when the state is opened.
    pub(crate) fn of(dir: &Path) -> DbResult<Self> {
        Self::of_after(dir, || thread::park_timeout(BETWEEN_TRIES))
    }

    /// Same as [`Self::of`]; calls `wait` after each try that found an amount on its way.
    pub(crate) fn of_after(dir: &Path, mut wait: impl FnMut()) -> DbResult<Self> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut files = Files::of(dir)?;
            let apart = files.usage.is_some();
            files.usage = files.usage.filter(|usage| usage.exists());
            let db = files.reader()?;
            db.batch(BEGIN)?;
            let is_settled = files.usage.is_none() || usage_effects::is_settled(&db)?;
            // The start of a gateway may just have moved the usage.
            if is_apart(&db)? == apart && (is_settled || tries >= TRIES_MAX) {
                return Ok(Self { db });
            }
            wait();
        }
    }

    /// True if the state has a `usage.db`.
    pub(crate) fn has_usage_apart(&self) -> bool {
        has_usage_apart(&self.db)
    }

    /// Copies one of the files into the empty file `to`, in small steps.
    pub(crate) fn copy(&self, schema: &str, to: &Path) -> DbResult<()> {
        let mut target = Db::open(to, Access::Write)?;
        target.set_pragma(None, "synchronous", "OFF")?;
        self.db.copy_pages(schema, &mut target)?;
        // Makes the copy a single file, without a write-ahead log beside it.
        target.set_pragma(None, "journal_mode", "DELETE")?;
        target.close()
    }
}

/// Returns the schema version of a copy, and the number of rows in each of its tables.
pub(crate) fn describe(path: &Path) -> DbResult<(i64, BTreeMap<String, u64>)> {
    let db = connect_reader(path)?;
    let mut statement = db.prepare(TABLES)?;
    let tables: Vec<String> = statement.rows((), |row| row.get("name"))?;
    let mut rows = BTreeMap::new();
    for table in tables {
        let count = format!("SELECT count(*) FROM \"{}\"", table.replace('"', "\"\""));
        let count = db.row(&count, (), |row| row.get(0))?;
        rows.insert(table, count);
    }
    Ok((migrate::version(&db)?, rows))
}

/// The extent of a check by SQLite.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent {
    /// All pages, and the entries of the indexes compared with the rows.
    Full,
    /// As `Full`, but a large database without that comparison, which takes most of the time.
    Pages,
}

impl Extent {
    /// Returns the check of a database file with this length.
    fn check(self, bytes: u64) -> &'static str {
        match self {
            Self::Pages if is_large(bytes) => CHECK_PAGES,
            Self::Pages | Self::Full => CHECK_ALL,
        }
    }
}

/// Checks that the copy at `path` is an intact database with this application id and of a version that this release can
/// open. Returns its version, or a description of the fault.
pub(crate) fn inspect(path: &Path, application_id: i32, extent: Extent) -> Result<i64, String> {
    let bytes = fs::metadata(path).map_err(|error| error.to_string())?.len();
    let look = || {
        let db = connect_reader(path)?;
        let ours: i64 = db.pragma(None, "application_id")?;
        let finding: String = db.row(extent.check(bytes), (), |row| row.get(0))?;
        if finding == "ok" {
            packed_row::check_all(&db)?;
        }
        Ok((ours, migrate::version(&db)?, finding))
    };
    let (ours, version, finding) = look().map_err(|error: DbError| error.to_string())?;
    if finding != "ok" {
        return Err(finding);
    }
    if ours != i64::from(application_id) {
        return Err("it does not belong to this gateway".to_owned());
    }
    let known = migrate::newest();
    if version > known {
        return Err(format!("it has version {version}, and this release supports versions up to {known}"));
    }
    Ok(version)
}

/// Half a second at most: due amounts are delivered at once, unless that fails.
const TRIES_MAX: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(5);
const BEGIN: &str = "BEGIN";
const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
const CHECK_PAGES: &str = "PRAGMA quick_check(1)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pages_of_a_large_new_copy_are_checked() {
        let (small, large) = (256 << 20, (256 << 20) + 1);
        assert_eq!([Extent::Pages.check(small), Extent::Pages.check(large)], [CHECK_ALL, CHECK_PAGES]);
        assert_eq!([Extent::Full.check(small), Extent::Full.check(large)], [CHECK_ALL; 2]);
    }
}
