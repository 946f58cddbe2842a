//! Opens connections to database files, and what only SQLite has: pragmas, attached files and copies of pages.

use std::ffi::c_int;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::convert::{bound, stored};
use super::schemas::schema_of_usage;
use super::session::{STEPS_BETWEEN_LOOKS, SqliteSession};
use crate::db::engine::{Db, DbError, DbResult, FromValue, ToValue, Transaction};

/// The access of a connection to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Db {
    /// Opens an existing file. A statement waits up to two seconds for the lock of another process.
    pub(crate) fn open(path: &Path, access: Access) -> DbResult<Self> {
        let mode = match access {
            Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        let db = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        Ok(SqliteSession(db).into())
    }

    /// Opens an empty database in memory.
    pub(crate) fn in_memory() -> DbResult<Self> {
        Ok(SqliteSession(Connection::open_in_memory()?).into())
    }

    /// Closes the connection. The last one moves the write-ahead log into the database.
    pub(crate) fn close(self) -> DbResult<()> {
        self.into_sqlite()?.0.close().map_err(|(_, error)| error.into())
    }

    /// Returns the value of a pragma, of a schema or of the connection.
    pub(crate) fn pragma<T: for<'a> FromValue<'a>>(&self, schema: Option<&str>, name: &str) -> DbResult<T> {
        let read = self.sqlite()?.0.pragma_query_value(schema, name, |row| {
            Ok(stored(row.get_ref(0)?).map(|value| T::from_value(value)))
        })?;
        read?.map_err(|_| DbError::bad_value(format_args!("the pragma '{name}' has a value of another type")))
    }

    /// Sets a pragma, of a schema or of the connection.
    pub(crate) fn set_pragma(&self, schema: Option<&str>, name: &str, value: impl ToValue) -> DbResult<()> {
        Ok(self.sqlite()?.0.pragma_update(schema, name, bound(value.to_value()?))?)
    }

    /// Sets how many statements are cached.
    pub(crate) fn cache_statements(&self, count: usize) {
        if let Ok(session) = self.sqlite() {
            session.0.set_prepared_statement_cache_capacity(count);
        }
    }

    /// Drops the cached statements, which would keep a file attached.
    pub(crate) fn forget_statements(&self) {
        if let Ok(session) = self.sqlite() {
            session.0.flush_prepared_statement_cache();
        }
    }

    /// True if a file is attached under this name.
    pub(crate) fn has_schema(&self, name: &str) -> bool {
        // The call fails for a schema that is not attached.
        self.sqlite().is_ok_and(|session| session.0.is_readonly(name).is_ok())
    }

    /// See [`Db::lazily`].
    pub(in crate::db::engine) fn lazily_in_files<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> DbResult<T>,
    ) -> DbResult<T> {
        let set = |db: &Self, how| {
            db.set_pragma(None, "synchronous", how)?;
            db.set_pragma(Some(schema_of_usage(db)), "synchronous", how)
        };
        let worked = set(self, "NORMAL").and_then(|()| {
            let tx = self.transaction()?;
            let worked = work(&tx)?;
            tx.commit().map(|()| worked)
        });
        // Also if only one of the two files had been set.
        set(self, "FULL")?;
        worked
    }

    /// Lets statements fail once `is_over` returns true. It is called every some thousand steps of SQLite's virtual machine.
    pub(crate) fn end_when(&mut self, is_over: impl FnMut() -> bool + Send + 'static) -> DbResult<()> {
        Ok(self.sqlite_mut()?.0.progress_handler(STEPS_BETWEEN_LOOKS, Some(is_over))?)
    }

    /// Copies all pages of a schema into another database, in small steps. Other connections may write meanwhile.
    pub(crate) fn copy_pages(&self, schema: &str, to: &mut Self) -> DbResult<()> {
        let backup = Backup::new_with_names(&self.sqlite()?.0, schema, &mut to.sqlite_mut()?.0, "main")?;
        loop {
            match backup.step(PAGES_A_STEP)? {
                StepResult::Done => return Ok(()),
                _ => thread::yield_now(),
            }
        }
    }
}

#[cfg(test)]
impl Db {
    /// Opens a file as another program would, and creates it if it does not exist.
    pub(crate) fn create(path: impl AsRef<Path>) -> DbResult<Self> {
        Ok(SqliteSession(Connection::open(path)?).into())
    }

    /// Calls `each` before every step of SQLite's virtual machine; true aborts the statement.
    pub(crate) fn on_each_step(&mut self, each: impl FnMut() -> bool + Send + 'static) {
        self.sqlite_mut().unwrap().0.progress_handler(1, Some(each)).unwrap();
    }
}

const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
const PAGES_A_STEP: c_int = 128;
