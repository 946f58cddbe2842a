//! The database files of a state directory: `gateway.db`, and `usage.db` if usage is kept in a separate file (STATE-1).
//! Every connection that accesses usage attaches the second file, which then contains the tables of usage while the
//! first one contains none of them: a statement that names one of them always refers to the right file.
//!
//! No transaction writes to both files, because SQLite commits each file separately. The effects of usage on
//! `gateway.db` are transferred by `db/usage_effects.rs`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::open::{DATABASE, connect_reader, connect_writer, tune_writer};
use crate::db::engine::sqlite::schemas::SCHEMA;
use crate::db::engine::{Db, DbResult};

/// The paths of the database files of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    /// `gateway.db`.
    pub(crate) main: PathBuf,
    /// `usage.db`, if it contains the usage.
    pub(crate) usage: Option<PathBuf>,
}

impl Files {
    /// Returns the files of the state in `dir`, as recorded in its `gateway.db`.
    pub(crate) fn of(dir: &Path) -> DbResult<Self> {
        let main = dir.join(DATABASE);
        let usage = is_apart(&connect_reader(&main)?)?.then(|| dir.join(USAGE));
        Ok(Self { main, usage })
    }

    /// Returns the file that contains the usage.
    pub(crate) fn of_usage(&self) -> &Path {
        self.usage.as_ref().unwrap_or(&self.main)
    }

    /// Opens a connection that reads the whole state.
    pub(crate) fn reader(&self) -> DbResult<Db> {
        let db = connect_reader(&self.main)?;
        if let Some(usage) = &self.usage {
            attach(&db, usage)?;
            db.set_pragma(Some(SCHEMA), "cache_size", -1_024)?;
        }
        Ok(db)
    }

    /// Opens a connection that writes to the whole state.
    pub(crate) fn writer(&self) -> DbResult<Db> {
        let db = connect_writer(&self.main)?;
        self.attach_to_writer(&db)?;
        Ok(db)
    }

    /// Attaches `usage.db`, if there is one, to an existing writing connection.
    pub(crate) fn attach_to_writer(&self, db: &Db) -> DbResult<()> {
        match &self.usage {
            Some(usage) => {
                attach(db, usage)?;
                tune_writer(db, SCHEMA)
            }
            None => Ok(()),
        }
    }
}

/// True if `gateway.db`, opened as `db`, records that usage is in `usage.db`.
pub(crate) fn is_apart(db: &Db) -> DbResult<bool> {
    if db.row(KNOWS_PLACES, (), |row| row.get(0))? {
        Ok(db.optional_row(IS_APART, (), |row| row.get(0))?.unwrap_or(false))
    } else {
        Ok(false)
    }
}

/// Attaches an existing database.
pub(crate) fn attach(db: &Db, path: &Path) -> DbResult<()> {
    // Passed as bytes, because a path need not be UTF-8.
    db.execute(ATTACH, [path.as_os_str().as_bytes()]).map(drop)
}

pub(crate) fn detach(db: &Db) -> DbResult<()> {
    db.forget_statements();
    db.execute(DETACH, ()).map(drop)
}

/// The name of the separate database of usage in the state directory.
pub(crate) const USAGE: &str = "usage.db";
const ATTACH: &str = "ATTACH :path AS usage_db";
const DETACH: &str = "DETACH usage_db";
const KNOWS_PLACES: &str = "SELECT count(*) FROM main.sqlite_schema WHERE name = 'usage_place'";
const IS_APART: &str = "SELECT apart FROM main.usage_place";
