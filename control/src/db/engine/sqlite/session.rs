//! A connection to an SQLite database: its statements, their rows, and whether a transaction is open.

use std::time::Instant;

use rusqlite::{CachedStatement, Connection};

use super::convert::{bound, stored};
use crate::db::engine::{DbError, DbResult, Place, Value, Values};

/// A connection to a file. Statements that are prepared through it are cached by their text.
#[derive(Debug)]
pub(crate) struct SqliteSession(pub(super) Connection);

/// A prepared statement.
pub(crate) struct SqliteStatement<'a>(CachedStatement<'a>);

/// The rows that a statement finds, one at a time.
pub(crate) struct SqliteRows<'a>(rusqlite::Rows<'a>);

/// A row that a statement found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SqliteRow<'a>(&'a rusqlite::Row<'a>);

impl SqliteSession {
    pub(crate) fn prepare(&self, sql: &str) -> DbResult<SqliteStatement<'_>> {
        Ok(SqliteStatement(self.0.prepare_cached(sql)?))
    }

    pub(crate) fn batch(&self, sql: &str) -> DbResult<()> {
        Ok(self.0.execute_batch(sql)?)
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        !self.0.is_autocommit()
    }

    pub(crate) fn limit_time(&mut self, until: Instant) -> DbResult<()> {
        Ok(self.0.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() > until))?)
    }
}

impl SqliteStatement<'_> {
    pub(crate) fn execute(&mut self, values: impl Values) -> DbResult<usize> {
        self.bind(values)?;
        Ok(self.0.raw_execute()?)
    }

    pub(crate) fn query(&mut self, values: impl Values) -> DbResult<SqliteRows<'_>> {
        self.bind(values)?;
        Ok(SqliteRows(self.0.raw_query()))
    }

    fn bind(&mut self, values: impl Values) -> DbResult<()> {
        let mut count = 0;
        values.each(&mut |place, value| {
            let at = match place {
                Place::At(at) => at,
                Place::Named(name) => {
                    self.0.parameter_index(name)?.ok_or_else(|| DbError::no_parameter(place))?
                }
            };
            count += 1;
            Ok(self.0.raw_bind_parameter(at, bound(value))?)
        })?;
        let expected = self.0.parameter_count();
        if count == expected {
            return Ok(());
        }
        Err(DbError::wrong_count(expected, count))
    }
}

impl SqliteRows<'_> {
    pub(crate) fn next(&mut self) -> DbResult<Option<SqliteRow<'_>>> {
        Ok(self.0.next()?.map(SqliteRow))
    }
}

impl<'a> SqliteRow<'a> {
    pub(crate) fn value(self, at: usize) -> DbResult<Value<'a>> {
        stored(self.0.get_ref(at)?)
    }

    pub(crate) fn position(self, name: &str) -> DbResult<usize> {
        Ok(self.0.as_ref().column_index(name)?)
    }

    pub(crate) fn name(self, at: usize) -> String {
        self.0.as_ref().column_name(at).unwrap_or_default().to_owned()
    }
}

pub(super) const STEPS_BETWEEN_LOOKS: i32 = 100_000;
