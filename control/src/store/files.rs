//! The database files of a state directory: `gateway.db`, and `usage.db` where usage is kept apart from the rest
//! (STATE-1). Every connection that sees usage attaches the second file, which then has the tables of usage and the
//! first one has none: a statement that names one of them means the right file by itself.
//!
//! No transaction writes to both files, because SQLite commits each for itself. What usage means for `gateway.db`
//! crosses over by `store/dues.rs`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _};

use super::open::{DATABASE, connect_reader, connect_writer, tune_writer};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    /// `gateway.db`.
    pub(crate) main: PathBuf,
    /// `usage.db`, where that holds the usage.
    pub(crate) usage: Option<PathBuf>,
}

impl Files {
    /// The files of the state in `dir`, as its `gateway.db` says.
    pub(crate) fn of(dir: &Path) -> rusqlite::Result<Self> {
        let main = dir.join(DATABASE);
        let usage = is_apart(&connect_reader(&main)?)?.then(|| dir.join(USAGE));
        Ok(Self { main, usage })
    }

    /// The file that holds the usage.
    pub(crate) fn of_usage(&self) -> &Path {
        self.usage.as_ref().unwrap_or(&self.main)
    }

    /// A connection that reads all of the state.
    pub(crate) fn reader(&self) -> rusqlite::Result<Connection> {
        let db = connect_reader(&self.main)?;
        if let Some(usage) = &self.usage {
            attach(&db, usage)?;
            db.pragma_update(Some(SCHEMA), "cache_size", -1_024)?;
        }
        Ok(db)
    }

    /// A connection that writes to all of the state.
    pub(crate) fn writer(&self) -> rusqlite::Result<Connection> {
        let db = connect_writer(&self.main)?;
        self.attach_to_writer(&db)?;
        Ok(db)
    }

    /// The same with a connection that is there.
    pub(crate) fn attach_to_writer(&self, db: &Connection) -> rusqlite::Result<()> {
        match &self.usage {
            Some(usage) => {
                attach(db, usage)?;
                tune_writer(db, SCHEMA)
            }
            None => Ok(()),
        }
    }
}

/// Whether `gateway.db`, which `db` has opened, says that usage is in `usage.db`.
pub(crate) fn is_apart(db: &Connection) -> rusqlite::Result<bool> {
    if db.query_row(KNOWS_PLACES, [], |row| row.get(0))? {
        Ok(db.query_row(IS_APART, [], |row| row.get(0)).optional()?.unwrap_or(false))
    } else {
        Ok(false)
    }
}

/// Whether this connection has `usage.db` beside `gateway.db`.
pub(crate) fn has_usage_apart(db: &Connection) -> bool {
    // Only a file that is attached can be asked.
    db.is_readonly(SCHEMA).is_ok()
}

/// The schemas in which a connection that writes has usage, or could have it.
pub(crate) fn schema_of_usage(db: &Connection) -> &'static str {
    if has_usage_apart(db) { SCHEMA } else { MAIN }
}

/// Attaches a database that is there.
pub(crate) fn attach(db: &Connection, path: &Path) -> rusqlite::Result<()> {
    // As bytes: a path need not be UTF-8.
    db.execute(ATTACH, [path.as_os_str().as_bytes()]).map(drop)
}

pub(crate) fn detach(db: &Connection) -> rusqlite::Result<()> {
    db.flush_prepared_statement_cache();
    db.execute(DETACH, []).map(drop)
}

/// The database of usage in the state directory, where there is one.
pub(crate) const USAGE: &str = "usage.db";
/// What it is called in statements.
pub(crate) const SCHEMA: &str = "usage_db";
pub(crate) const MAIN: &str = "main";
const ATTACH: &str = "ATTACH ? AS usage_db";
const DETACH: &str = "DETACH usage_db";
const KNOWS_PLACES: &str = "SELECT count(*) FROM main.sqlite_schema WHERE name = 'usage_place'";
const IS_APART: &str = "SELECT apart FROM main.usage_place";
