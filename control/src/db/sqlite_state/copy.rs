//! Copies of the databases: made while other connections write, and verified.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::files::{Files, is_apart};
use super::migrate;
use super::open::{connect_reader, is_large};
use crate::db::engine::sqlite::connect::Access;
use crate::db::engine::sqlite::schemas::{MAIN, SCHEMA, schema_of_usage};
use crate::db::engine::{Db, DbError, DbResult};
use crate::db::packed_row;
use crate::db::usage_effects;

/// A consistent view of all databases of a state at one moment. Writers are not blocked.
#[derive(Debug)]
pub(crate) struct ConsistentView {
    /// A connection with an open read transaction.
    db: Db,
    files: Files,
    are_files_of_moment: bool,
}

impl ConsistentView {
    /// Opens a view of the state in `dir`. The two files are of one moment if no due amount is on its way from one to
    /// the other. If that does not occur within the tries, quotas may include usage that is in neither file, or will
    /// receive it when the state is opened.
    pub(crate) fn of(dir: &Path) -> DbResult<Self> {
        Self::of_after(dir, || thread::park_timeout(BETWEEN_TRIES))
    }

    /// Same as [`Self::of`]; calls `wait` after each try that found an amount on its way, or the moment in the write-ahead log.
    pub(crate) fn of_after(dir: &Path, mut wait: impl FnMut()) -> DbResult<Self> {
        let mut tries = 0;
        let mut checkpointer = None;
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
                let are_files_of_moment = moved_all(&mut checkpointer, &files);
                if are_files_of_moment || tries >= TRIES_MAX {
                    return Ok(Self { db, files, are_files_of_moment });
                }
            }
            drop(db);
            wait();
        }
    }

    /// True if the files themselves, without their write-ahead logs, are of the moment of the view. They do not change as long
    /// as the view exists.
    ///
    /// A checkpoint that reports as many frames in the database as in the log has left nothing in the log. It never moves
    /// frames past the end mark of a reader, nor any while a reader uses the database file alone, so all of what it moved is
    /// part of this view, and later ones move nothing (<https://www.sqlite.org/wal.html#concurrency>,
    /// <https://www.sqlite.org/walformat.html#locks>).
    pub(crate) fn are_files_of_moment(&self) -> bool {
        self.are_files_of_moment
    }

    /// Returns each database of the state: its schema in statements, and its file.
    pub(crate) fn databases(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let usage = self.files.usage.as_deref().map(|path| (SCHEMA, path));
        std::iter::once((MAIN, self.files.main.as_path())).chain(usage)
    }

    /// Returns the length of a database in bytes.
    pub(crate) fn bytes(&self, schema: &str) -> DbResult<u64> {
        let pages: u64 = self.db.pragma(Some(schema), "page_count")?;
        Ok(pages.saturating_mul(self.db.pragma(Some(schema), "page_size")?))
    }

    /// Copies the databases into the directory `to`, where the files of these names are empty, and returns a view of the copies.
    pub(crate) fn copied(self, to: &Path) -> DbResult<Self> {
        let place = |path: &Path| to.join(path.file_name().unwrap_or_default());
        for (schema, path) in self.databases() {
            self.copy(schema, &place(path))?;
        }
        let files = Files { main: place(&self.files.main), usage: self.files.usage.as_deref().map(place) };
        Ok(Self { db: files.reader()?, files, are_files_of_moment: true })
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

    /// Checks a database as [`inspect`] does, and returns what [`describe`] does.
    pub(crate) fn inspect(
        &self,
        schema: &str,
        application_id: i32,
        extent: Extent,
    ) -> Result<(i64, BTreeMap<String, u64>), String> {
        let bytes = self.bytes(schema).map_err(|error| error.to_string())?;
        inspect_schema(&self.db, (schema, bytes), application_id, extent)?;
        describe_schema(&self.db, schema).map_err(|error| error.to_string())
    }

    /// Lets statements fail once `is_over` returns true.
    pub(crate) fn end_when(&mut self, is_over: impl FnMut() -> bool + Send + 'static) -> DbResult<()> {
        self.db.end_when(is_over)
    }
}

/// Moves the write-ahead logs into the databases. Returns true if nothing is left in them. False if a reader needs it there,
/// if a writer was faster, or if this process may not write.
fn moved_all(checkpointer: &mut Option<Db>, files: &Files) -> bool {
    let mut move_all = || {
        let db = match checkpointer {
            Some(db) => db,
            None => checkpointer.insert(files.writer()?),
        };
        let schemas = [Some(MAIN), files.usage.as_ref().map(|_| SCHEMA)];
        for schema in schemas.into_iter().flatten() {
            let passive = format!("PRAGMA {schema}.wal_checkpoint(PASSIVE)");
            let counts: (i64, i64) = db.row(&passive, (), |row| Ok((row.get(1)?, row.get(2)?)))?;
            if counts.0 != counts.1 {
                return Ok(false);
            }
        }
        Ok(true)
    };
    move_all().unwrap_or_else(|error: DbError| {
        tracing::debug!("cannot checkpoint the write-ahead log: {error}");
        false
    })
}

/// Returns the schema version of a copy, and the number of rows in each of its tables.
pub(crate) fn describe(path: &Path) -> DbResult<(i64, BTreeMap<String, u64>)> {
    describe_schema(&connect_reader(path)?, MAIN)
}

fn describe_schema(db: &Db, schema: &str) -> DbResult<(i64, BTreeMap<String, u64>)> {
    let of_schema = format!("SELECT name FROM {schema}.sqlite_schema {TABLES}");
    let tables: Vec<String> = db.rows(&of_schema, (), |row| row.get("name"))?;
    let mut rows = BTreeMap::new();
    for table in tables {
        let count = format!("SELECT count(*) FROM {schema}.\"{}\"", table.replace('"', "\"\""));
        let count = db.row(&count, (), |row| row.get(0))?;
        rows.insert(table, count);
    }
    Ok((db.pragma(Some(schema), "user_version")?, rows))
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
    let db = connect_reader(path).map_err(|error| error.to_string())?;
    inspect_schema(&db, (MAIN, bytes), application_id, extent)
}

fn inspect_schema(
    db: &Db,
    (schema, bytes): (&str, u64),
    application_id: i32,
    extent: Extent,
) -> Result<i64, String> {
    let look = || {
        let ours: i64 = db.pragma(Some(schema), "application_id")?;
        let check = format!("PRAGMA {schema}.{}", extent.check(bytes));
        let finding: String = db.row(&check, (), |row| row.get(0))?;
        if finding == "ok" && schema == schema_of_usage(db) {
            packed_row::check_all(db)?;
        }
        Ok((ours, db.pragma(Some(schema), "user_version")?, finding))
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
const TABLES: &str = "WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
const CHECK_ALL: &str = "integrity_check(1)";
const CHECK_PAGES: &str = "quick_check(1)";

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
