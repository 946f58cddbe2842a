//! The location of usage: in `gateway.db`, or in a separate `usage.db` (STATE-1). Each start first moves usage to the
//! configured location, before using it.
//!
//! ```text
//!  out:   copy all -> usage.db.new -> one commit of gateway.db: drop its tables, set apart -> rename to usage.db
//!  back:  rename usage.db to usage.db.old -> one commit of gateway.db: copy all, clear apart -> remove the old file
//! ```
//!
//! Only `gateway.db` records where usage is, and its commit is the moment of the move: the next start completes or
//! removes whatever a killed process left under another name.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::files::{Files, USAGE, attach, detach, is_apart};
use super::migrate;
use super::open::{
    DATABASE, USAGE_APPLICATION_ID, close_to_others, connect_writer, new_file, put_in_place, remove,
    sql_error,
};
use crate::db::engine::sqlite::row_sums;
use crate::db::engine::sqlite::schemas::{MAIN, SCHEMA};
use crate::db::engine::{Db, DbResult, Transaction};
use crate::db::error::OpenError;
use crate::db::usage_effects;

/// The result of `settle`: the location of usage.
#[derive(Debug)]
pub(crate) struct UsageFiles {
    pub(crate) files: Files,
    /// A warning for the operator.
    pub(crate) warning: Option<String>,
    /// True if the earlier usage was lost, and with it the read positions of the journal.
    pub(crate) is_lost: bool,
}

/// Moves usage into a separate file or back, as configured, and attaches that file to `db`, the writer of `gateway.db`.
pub(crate) fn settle(dir: &Path, db: &mut Db, wants_apart: bool) -> Result<UsageFiles, OpenError> {
    let places = Places::of(dir);
    let main = dir.join(DATABASE);
    let apart = is_apart(db).map_err(|source| sql_error(&main, source))?;
    let mut warning = None;
    let mut is_lost = false;
    if apart {
        is_lost = places.finish()?;
        warning = is_lost.then(|| {
            format!("{} was deleted, and its usage is lost; starting a new one", places.usage.display())
        });
    } else {
        places.tidy()?;
        if places.usage.exists() {
            warning = Some(format!("ignoring {}: it belongs to another state", places.usage.display()));
        }
    }
    if apart != wants_apart {
        row_sums::forget(db, MAIN).map_err(|source| sql_error(&main, source))?;
    }
    match (apart, wants_apart) {
        (false, true) if places.usage.exists() => return Err(OpenError::UsageStray { path: places.usage }),
        (false, true) => places.logged("into usage.db", || places.move_out(db))?,
        (true, false) => places.logged("back into gateway.db", || places.move_back(db))?,
        (true, true) | (false, false) => {}
    }
    let files = Files { main, usage: wants_apart.then(|| places.usage.clone()) };
    if let Some(usage) = &files.usage {
        places.prepare(usage)?;
        let attached = files.attach_to_writer(db).and_then(|()| row_sums::keep(db, SCHEMA));
        attached.map_err(|source| sql_error(usage, source))?;
    }
    row_sums::keep(db, MAIN).map_err(|source| sql_error(&files.main, source))?;
    Ok(UsageFiles { files, warning, is_lost })
}

/// The file names that the database of usage may have.
#[derive(Debug)]
struct Places {
    usage: PathBuf,
    /// A complete copy, once `gateway.db` records that usage is separate.
    new: PathBuf,
    /// The file that is being moved back, while `gateway.db` still records that usage is separate.
    old: PathBuf,
    /// A new, empty database that is being created.
    empty: PathBuf,
}

impl Places {
    fn of(dir: &Path) -> Self {
        let usage = dir.join(USAGE);
        let [new, old, empty] =
            ["new", "old", "empty"].map(|suffix| usage.with_extension(format!("db.{suffix}")));
        Self { usage, new, old, empty }
    }

    /// Completes a move out, or creates an empty file if none exists: usage is separate, so its file gets its final
    /// name. Returns true if the usage was lost and starts empty.
    fn finish(&self) -> Result<bool, OpenError> {
        if self.usage.exists() {
            return Ok(false);
        }
        // SQLite would take the write-ahead log of a deleted database for that of the new one.
        remove(&self.usage).map_err(at(&self.usage))?;
        for whole in [&self.new, &self.old] {
            if whole.exists() {
                put_in_place(whole, &self.usage).map_err(at(whole))?;
                return Ok(false);
            }
        }
        self.make(&self.empty)?;
        put_in_place(&self.empty, &self.usage).map_err(at(&self.usage))?;
        Ok(true)
    }

    /// Removes the leftovers of moves. Usage must be in `gateway.db`, or `usage.db` in place.
    fn tidy(&self) -> Result<(), OpenError> {
        [&self.new, &self.old, &self.empty].into_iter().try_for_each(|path| remove(path).map_err(at(path)))
    }

    /// Creates a database with empty tables of usage.
    fn make(&self, path: &Path) -> Result<(), OpenError> {
        new_file(path).map_err(at(path))?;
        let made = || {
            let mut db = connect_writer(path)?;
            db.set_pragma(None, "application_id", USAGE_APPLICATION_ID)?;
            migrate::migrate_usage(&mut db)?;
            // Closing the last connection moves the write-ahead log into the database.
            db.close()
        };
        made().map_err(|source| sql_error(path, source))?;
        File::open(path).and_then(|file| file.sync_all()).map_err(at(path))
    }

    /// Migrates `usage` to the newest version.
    fn prepare(&self, usage: &Path) -> Result<(), OpenError> {
        let migrated = connect_writer(usage).and_then(|mut db| migrate::migrate_usage(&mut db));
        migrated.map_err(|source| sql_error(usage, source))?;
        close_to_others(usage, 0o600);
        self.tidy()
    }

    fn move_out(&self, db: &mut Db) -> Result<u64, OpenError> {
        self.make(&self.new)?;
        let moved = copy_out(db, &self.new).map_err(|source| sql_error(&self.new, source))?;
        File::open(&self.new).and_then(|file| file.sync_all()).map_err(at(&self.new))?;
        let main = self.usage.with_file_name(DATABASE);
        leave(db).map_err(|source| sql_error(&main, source))?;
        put_in_place(&self.new, &self.usage).map_err(at(&self.new))?;
        if moved > 0
            && let Err(error) = db.batch(SHRINK)
        {
            tracing::warn!("cannot shrink {}: {error}", main.display());
        }
        Ok(moved)
    }

    fn move_back(&self, db: &mut Db) -> Result<u64, OpenError> {
        self.prepare(&self.usage)?;
        let failed = |source| sql_error(&self.usage, source);
        self.fold(db).map_err(failed)?;
        put_in_place(&self.usage, &self.old).map_err(at(&self.usage))?;
        let moved = attach(db, &self.old).and_then(|()| take_back(db)).and_then(|moved| {
            detach(db)?;
            db.set_pragma(None, "wal_checkpoint", "TRUNCATE")?;
            Ok(moved)
        });
        let moved = moved.map_err(|source| sql_error(&self.old, source))?;
        self.tidy()?;
        Ok(moved)
    }

    /// Applies the due rows, and moves the write-ahead log into the file.
    fn fold(&self, db: &mut Db) -> DbResult<()> {
        attach(db, &self.usage)?;
        row_sums::forget(db, SCHEMA)?;
        usage_effects::deliver(db)?;
        detach(db)?;
        let usage = connect_writer(&self.usage)?;
        usage.set_pragma(None, "wal_checkpoint", "TRUNCATE")?;
        usage.close()
    }

    /// Logs the start and the end of a move, because the start of the gateway waits for it.
    fn logged(&self, whereto: &str, work: impl FnOnce() -> Result<u64, OpenError>) -> Result<(), OpenError> {
        let began = Instant::now();
        tracing::info!("moving usage {whereto}; a long history takes a while");
        let rows = work()?;
        tracing::info!("moved {rows} rows of usage {whereto} in {} ms", began.elapsed().as_millis());
        Ok(())
    }
}

/// Copies every row into the new file at `to`. An incomplete file is discarded, so it needs no rollback journal.
fn copy_out(db: &mut Db, to: &Path) -> DbResult<u64> {
    attach(db, to)?;
    db.set_pragma(Some(SCHEMA), "journal_mode", "OFF")?;
    db.set_pragma(Some(SCHEMA), "synchronous", "OFF")?;
    let tx = db.transaction()?;
    let copied = copy(&tx, MAIN, SCHEMA)?;
    tx.commit()?;
    // From now on use WAL mode, as in `open.rs`. The mode must not change after the file has its final name.
    db.set_pragma(Some(SCHEMA), "journal_mode", "WAL")?;
    detach(db)?;
    Ok(copied)
}

/// Drops the tables of usage in `gateway.db` and records that usage is separate, in one commit.
fn leave(db: &mut Db) -> DbResult<()> {
    let mut like = Db::in_memory()?;
    migrate::migrate_usage(&mut like)?;
    let tx = db.transaction()?;
    for table in tables(&like, MAIN)? {
        tx.batch(&format!("DROP TABLE main.{table}"))?;
    }
    tx.execute(SET_PLACE, [true])?;
    tx.commit()
}

/// Copies every row into `gateway.db` and records that usage is there, in one commit.
fn take_back(db: &mut Db) -> DbResult<u64> {
    let tx = db.transaction()?;
    migrate::make_usage(&tx)?;
    let copied = copy(&tx, SCHEMA, MAIN)?;
    usage_effects::clear(&tx)?;
    tx.execute(SET_PLACE, [false])?;
    tx.commit()?;
    Ok(copied)
}

/// Copies all rows of all tables of usage from one file to the other. Both have the newest version, so their columns
/// are the same.
fn copy(tx: &Transaction<'_>, from: &str, to: &str) -> DbResult<u64> {
    let mut copied = 0_u64;
    for table in tables(tx, SCHEMA)? {
        let rows = tx.execute(&format!("INSERT INTO {to}.{table} SELECT * FROM {from}.{table}"), ())?;
        copied = copied.saturating_add(u64::try_from(rows).unwrap_or(u64::MAX));
    }
    Ok(copied)
}

/// Returns the tables of a file that contains only those of usage.
fn tables(db: &Db, schema: &str) -> DbResult<Vec<String>> {
    db.rows(&format!("SELECT name FROM {schema}.sqlite_schema WHERE type = 'table'"), (), |row| {
        row.get("name")
    })
}

/// Returns a function that attaches `path` to an I/O error.
fn at(path: &Path) -> impl Fn(io::Error) -> OpenError + '_ {
    |source| OpenError::Io { path: path.into(), source }
}

const SET_PLACE: &str = "UPDATE main.usage_place SET apart = :apart";
const SHRINK: &str = "VACUUM main";
