//! Where usage lies: in `gateway.db`, or in a `usage.db` of its own (STATE-1). A start puts it where it is wanted,
//! before anything else is done with it.
//!
//! ```text
//!  out:   copy all -> usage.db.new -> one commit of gateway.db: its tables go, usage is apart -> rename to usage.db
//!  back:  rename usage.db to usage.db.old -> one commit of gateway.db: all is copied, usage is here -> remove
//! ```
//!
//! So `gateway.db` alone says where usage is, and its commit is the moment of the move: whatever a process that was
//! killed has left under another name is either finished or removed by the next start.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::dues;
use super::error::OpenError;
use super::files::{Files, MAIN, SCHEMA, USAGE, attach, detach, is_apart};
use super::migrate;
use super::open::{
    DATABASE, USAGE_APPLICATION_ID, close_to_others, connect_writer, new_file, put_in_place, remove,
    sql_error,
};
use super::row_sums;

/// Where usage is now.
#[derive(Debug)]
pub(crate) struct UsageFiles {
    pub(crate) files: Files,
    /// What an operator should know of it.
    pub(crate) warning: Option<String>,
    /// Whether the usage of before is gone, and with it what was stored of the journal.
    pub(crate) is_lost: bool,
}

/// Puts usage into a file of its own, or back, and attaches that file to `db`, the writer of `gateway.db`.
pub(crate) fn settle(dir: &Path, db: &mut Connection, wants_apart: bool) -> Result<UsageFiles, OpenError> {
    let places = Places::of(dir);
    let main = dir.join(DATABASE);
    let apart = is_apart(db).map_err(|source| sql_error(&main, source))?;
    let mut warning = None;
    let mut is_lost = false;
    if apart {
        is_lost = places.finish()?;
        warning = is_lost.then(|| {
            format!("{} is gone and with it the usage of before; a new one is begun", places.usage.display())
        });
    } else {
        places.tidy()?;
        if places.usage.exists() {
            warning = Some(format!("{} is not of this state and not used", places.usage.display()));
        }
    }
    if apart != wants_apart {
        row_sums::forget(db, MAIN).map_err(|source| sql_error(&main, source))?;
    }
    match (apart, wants_apart) {
        (false, true) if places.usage.exists() => return Err(OpenError::UsageStray { path: places.usage }),
        (false, true) => places.told("into usage.db", || places.move_out(db))?,
        (true, false) => places.told("back into gateway.db", || places.move_back(db))?,
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

/// The names that the file of usage goes by.
#[derive(Debug)]
struct Places {
    usage: PathBuf,
    /// A whole copy, once `gateway.db` says that usage is apart.
    new: PathBuf,
    /// What is to be moved back, as long as `gateway.db` says so.
    old: PathBuf,
    /// The beginning of one without anything in it.
    empty: PathBuf,
}

impl Places {
    fn of(dir: &Path) -> Self {
        let usage = dir.join(USAGE);
        let [new, old, empty] =
            ["new", "old", "empty"].map(|suffix| usage.with_extension(format!("db.{suffix}")));
        Self { usage, new, old, empty }
    }

    /// Usage is apart: whatever name its file has, it gets its own. True if there is none and it begins anew.
    fn finish(&self) -> Result<bool, OpenError> {
        if self.usage.exists() {
            return Ok(false);
        }
        // A log that a deleted database has left would be taken for the log of the next one.
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

    /// Usage is in `gateway.db`: what a move has left is of no use.
    fn tidy(&self) -> Result<(), OpenError> {
        [&self.new, &self.old, &self.empty].into_iter().try_for_each(|path| remove(path).map_err(at(path)))
    }

    /// Makes a database of usage with nothing in it.
    fn make(&self, path: &Path) -> Result<(), OpenError> {
        new_file(path).map_err(at(path))?;
        let made = || {
            let mut db = connect_writer(path)?;
            db.pragma_update(None, "application_id", USAGE_APPLICATION_ID)?;
            migrate::migrate_usage(&mut db)?;
            // The last one to close it moves its log into it.
            db.close().map_err(|(_, error)| error)
        };
        made().map_err(|source| sql_error(path, source))?;
        File::open(path).and_then(|file| file.sync_all()).map_err(at(path))
    }

    /// Brings it to the newest version.
    fn prepare(&self, usage: &Path) -> Result<(), OpenError> {
        let migrated = connect_writer(usage).and_then(|mut db| migrate::migrate_usage(&mut db));
        migrated.map_err(|source| sql_error(usage, source))?;
        close_to_others(usage, 0o600);
        self.tidy()
    }

    fn move_out(&self, db: &mut Connection) -> Result<u64, OpenError> {
        self.make(&self.new)?;
        let moved = copy_out(db, &self.new).map_err(|source| sql_error(&self.new, source))?;
        File::open(&self.new).and_then(|file| file.sync_all()).map_err(at(&self.new))?;
        let main = self.usage.with_file_name(DATABASE);
        leave(db).map_err(|source| sql_error(&main, source))?;
        put_in_place(&self.new, &self.usage).map_err(at(&self.new))?;
        if moved > 0
            && let Err(error) = db.execute_batch(SHRINK)
        {
            tracing::warn!("{} stays as large as it is: {error}", main.display());
        }
        Ok(moved)
    }

    fn move_back(&self, db: &mut Connection) -> Result<u64, OpenError> {
        self.prepare(&self.usage)?;
        let failed = |source| sql_error(&self.usage, source);
        self.fold(db).map_err(failed)?;
        put_in_place(&self.usage, &self.old).map_err(at(&self.usage))?;
        let moved = attach(db, &self.old).and_then(|()| take_back(db)).and_then(|moved| {
            detach(db)?;
            db.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))?;
            Ok(moved)
        });
        let moved = moved.map_err(|source| sql_error(&self.old, source))?;
        self.tidy()?;
        Ok(moved)
    }

    /// Counts what is due, and makes the file whole in itself.
    fn fold(&self, db: &mut Connection) -> rusqlite::Result<()> {
        attach(db, &self.usage)?;
        row_sums::forget(db, SCHEMA)?;
        dues::deliver(db)?;
        detach(db)?;
        let usage = connect_writer(&self.usage)?;
        usage.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))?;
        usage.close().map_err(|(_, error)| error)
    }

    /// Says in the log what a start waits for.
    fn told(&self, whereto: &str, work: impl FnOnce() -> Result<u64, OpenError>) -> Result<(), OpenError> {
        let began = Instant::now();
        tracing::info!("usage moves {whereto}; a long history takes a while");
        let rows = work()?;
        tracing::info!("{rows} rows of usage have moved {whereto} in {} ms", began.elapsed().as_millis());
        Ok(())
    }
}

/// Copies every row into the new file at `to`. It is thrown away unless all of it is there, so it needs no log.
fn copy_out(db: &mut Connection, to: &Path) -> rusqlite::Result<u64> {
    attach(db, to)?;
    db.pragma_update_and_check(Some(SCHEMA), "journal_mode", "OFF", |_| Ok(()))?;
    db.pragma_update(Some(SCHEMA), "synchronous", "OFF")?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let copied = copy(&tx, MAIN, SCHEMA)?;
    tx.commit()?;
    // From now on as `store/open.rs` has it: nothing may be changed about that once the file has its name.
    db.pragma_update_and_check(Some(SCHEMA), "journal_mode", "WAL", |_| Ok(()))?;
    detach(db)?;
    Ok(copied)
}

/// Takes the tables of usage out of `gateway.db` and says that they are apart, in one commit.
fn leave(db: &mut Connection) -> rusqlite::Result<()> {
    let mut like = Connection::open_in_memory()?;
    migrate::migrate_usage(&mut like)?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in tables(&like, MAIN)? {
        tx.execute_batch(&format!("DROP TABLE main.{table}"))?;
    }
    tx.execute(SET_PLACE, [true])?;
    tx.commit()
}

/// Copies every row into `gateway.db` and says that usage is there, in one commit.
fn take_back(db: &mut Connection) -> rusqlite::Result<u64> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    migrate::make_usage(&tx)?;
    let copied = copy(&tx, SCHEMA, MAIN)?;
    dues::clear(&tx)?;
    tx.execute(SET_PLACE, [false])?;
    tx.commit()?;
    Ok(copied)
}

/// Copies all rows of all tables of usage from one file to the other. Both have the newest version, so the columns
/// are the same ones.
fn copy(tx: &Transaction<'_>, from: &str, to: &str) -> rusqlite::Result<u64> {
    let mut copied = 0_u64;
    for table in tables(tx, SCHEMA)? {
        let rows = tx.execute(&format!("INSERT INTO {to}.{table} SELECT * FROM {from}.{table}"), [])?;
        copied = copied.saturating_add(u64::try_from(rows).unwrap_or(u64::MAX));
    }
    Ok(copied)
}

/// The tables of a file that has those of usage only.
fn tables(db: &Connection, schema: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        db.prepare(&format!("SELECT name FROM {schema}.sqlite_schema WHERE type = 'table'"))?;
    statement.query_map([], |row| row.get("name"))?.collect()
}

/// Says of which file an error is.
fn at(path: &Path) -> impl Fn(io::Error) -> OpenError + '_ {
    |source| OpenError::Io { path: path.into(), source }
}

const SET_PLACE: &str = "UPDATE main.usage_place SET apart = ?";
const SHRINK: &str = "VACUUM main";
