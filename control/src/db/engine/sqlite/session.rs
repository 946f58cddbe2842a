//! A connection to an SQLite database, and what is done through it.

use std::ops::Deref;
use std::time::Instant;

use rusqlite::{CachedStatement, Connection};

use super::convert::{bound, stored};
use crate::db::engine::{Column, DbError, DbResult, FromValue, Place, Value, Values, portable};

/// A connection to a database. Statements that are prepared through it are cached by their text.
#[derive(Debug)]
pub(crate) struct Db(pub(super) Connection);

/// A prepared statement.
pub(crate) struct Statement<'a>(CachedStatement<'a>);

/// The rows that a statement finds, one at a time.
pub(crate) struct Rows<'a>(rusqlite::Rows<'a>);

/// A row that a statement found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a>(&'a rusqlite::Row<'a>);

/// A transaction; rolled back when it is dropped.
#[derive(Debug)]
pub(crate) struct Transaction<'a>(&'a Db);

/// A part of a transaction; rolled back when it is dropped.
#[derive(Debug)]
pub(crate) struct Savepoint<'a>(&'a Db);

impl Db {
    /// Prepares a statement that runs several times.
    pub(crate) fn prepare(&self, sql: &str) -> DbResult<Statement<'_>> {
        portable::check(sql);
        Ok(Statement(self.0.prepare_cached(sql)?))
    }

    /// Reads the first row that a statement finds. Finding none is the error [`DbErrorKind::NoRow`].
    pub(crate) fn row<T>(
        &self,
        sql: &str,
        values: impl Values,
        read: impl FnOnce(Row<'_>) -> DbResult<T>,
    ) -> DbResult<T> {
        self.prepare(sql)?.row(values, read)
    }

    /// Reads the first row that a statement finds, if any.
    pub(crate) fn optional_row<T>(
        &self,
        sql: &str,
        values: impl Values,
        read: impl FnOnce(Row<'_>) -> DbResult<T>,
    ) -> DbResult<Option<T>> {
        self.prepare(sql)?.optional_row(values, read)
    }

    /// Reads all rows that a statement finds.
    pub(crate) fn rows<T, C: FromIterator<T>>(
        &self,
        sql: &str,
        values: impl Values,
        read: impl FnMut(Row<'_>) -> DbResult<T>,
    ) -> DbResult<C> {
        self.prepare(sql)?.rows(values, read)
    }

    /// True if a statement finds a row.
    pub(crate) fn exists(&self, sql: &str, values: impl Values) -> DbResult<bool> {
        self.prepare(sql)?.exists(values)
    }

    /// Runs a statement that finds nothing. Returns the number of rows that it changed.
    pub(crate) fn execute(&self, sql: &str, values: impl Values) -> DbResult<usize> {
        self.prepare(sql)?.execute(values)
    }

    /// Runs several statements without parameters.
    pub(crate) fn batch(&self, sql: &str) -> DbResult<()> {
        Ok(self.0.execute_batch(sql)?)
    }

    /// Begins a transaction that may write: no other connection may, until it ends.
    pub(crate) fn transaction(&mut self) -> DbResult<Transaction<'_>> {
        Transaction::begin(self, "BEGIN IMMEDIATE")
    }

    /// Begins a transaction whose statements read one moment of the database. It must be the only one.
    pub(crate) fn read_transaction(&self) -> DbResult<Transaction<'_>> {
        Transaction::begin(self, "BEGIN")
    }

    /// True while a transaction is open. Some errors, such as that of a full disk, end it.
    pub(crate) fn is_in_transaction(&self) -> bool {
        !self.0.is_autocommit()
    }

    /// Lets statements fail with [`DbErrorKind::TooSlow`] from this time on.
    pub(crate) fn limit_time(&mut self, until: Instant) -> DbResult<()> {
        Ok(self.0.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() > until))?)
    }
}

impl Statement<'_> {
    /// See [`Db::row`].
    pub(crate) fn row<T>(
        &mut self,
        values: impl Values,
        read: impl FnOnce(Row<'_>) -> DbResult<T>,
    ) -> DbResult<T> {
        let found = self.optional_row(values, read)?;
        found.ok_or_else(DbError::no_row)
    }

    /// See [`Db::optional_row`].
    pub(crate) fn optional_row<T>(
        &mut self,
        values: impl Values,
        read: impl FnOnce(Row<'_>) -> DbResult<T>,
    ) -> DbResult<Option<T>> {
        self.query(values)?.next()?.map(read).transpose()
    }

    /// See [`Db::rows`].
    pub(crate) fn rows<T, C: FromIterator<T>>(
        &mut self,
        values: impl Values,
        mut read: impl FnMut(Row<'_>) -> DbResult<T>,
    ) -> DbResult<C> {
        let mut rows = self.query(values)?;
        std::iter::from_fn(|| match rows.next() {
            Ok(row) => row.map(&mut read),
            Err(error) => Some(Err(error)),
        })
        .collect()
    }

    /// See [`Db::exists`].
    pub(crate) fn exists(&mut self, values: impl Values) -> DbResult<bool> {
        Ok(self.query(values)?.next()?.is_some())
    }

    /// See [`Db::execute`].
    pub(crate) fn execute(&mut self, values: impl Values) -> DbResult<usize> {
        self.bind(values)?;
        Ok(self.0.raw_execute()?)
    }

    /// Runs the statement, whose rows are then read one at a time.
    pub(crate) fn query(&mut self, values: impl Values) -> DbResult<Rows<'_>> {
        self.bind(values)?;
        Ok(Rows(self.0.raw_query()))
    }

    /// Returns the position of a column in the rows, for reading many of them.
    pub(crate) fn position(&self, column: &str) -> DbResult<usize> {
        Ok(self.0.column_index(column)?)
    }

    fn bind(&mut self, values: impl Values) -> DbResult<()> {
        let mut count = 0;
        values.each(&mut |place, value| {
            let at = match place {
                Place::At(at) => at,
                Place::Named(name) => self.0.parameter_index(name)?.ok_or_else(|| no_parameter(name))?,
            };
            count += 1;
            Ok(self.0.raw_bind_parameter(at, bound(value))?)
        })?;
        let expected = self.0.parameter_count();
        if count == expected {
            return Ok(());
        }
        Err(DbError::bad_value(format_args!(
            "a statement with {expected} parameters was given {count} values"
        )))
    }
}

impl Rows<'_> {
    /// Returns the next row, if there is one.
    pub(crate) fn next(&mut self) -> DbResult<Option<Row<'_>>> {
        Ok(self.0.next()?.map(Row))
    }
}

impl<'a> Row<'a> {
    /// Reads a column. An error names it.
    pub(crate) fn get<T: FromValue<'a>>(self, column: impl Column) -> DbResult<T> {
        let at = self.position(column)?;
        T::from_value(self.value(at)?).map_err(|_| {
            let name = self.0.as_ref().column_name(at).unwrap_or_default();
            DbError::bad_value(format_args!("the column '{name}' contains a value of another type or form"))
        })
    }

    /// Returns the position of a column, for reading many rows.
    pub(crate) fn position(self, column: impl Column) -> DbResult<usize> {
        column.position(|name| Ok(self.0.as_ref().column_index(name)?))
    }

    fn value(self, at: usize) -> DbResult<Value<'a>> {
        stored(self.0.get_ref(at)?)
    }
}

impl<'a> Transaction<'a> {
    fn begin(db: &'a Db, how: &str) -> DbResult<Self> {
        db.batch(how)?;
        Ok(Self(db))
    }

    /// Begins a part of the transaction that can be rolled back alone.
    pub(crate) fn savepoint(&mut self) -> DbResult<Savepoint<'_>> {
        self.batch("SAVEPOINT part")?;
        Ok(Savepoint(self.0))
    }

    /// Commits; a failed commit is rolled back.
    pub(crate) fn commit(self) -> DbResult<()> {
        self.batch("COMMIT")
    }

    pub(crate) fn rollback(self) -> DbResult<()> {
        self.batch("ROLLBACK")
    }
}

impl Savepoint<'_> {
    /// Makes the part belong to the transaction.
    pub(crate) fn commit(self) -> DbResult<()> {
        let released = self.batch("RELEASE part");
        if released.is_ok() {
            std::mem::forget(self);
        }
        released
    }

    pub(crate) fn rollback(self) -> DbResult<()> {
        let rolled_back = self.batch(ROLL_BACK_PART);
        std::mem::forget(self);
        rolled_back
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_in_transaction() {
            let _ = self.batch("ROLLBACK");
        }
    }
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        if self.is_in_transaction() {
            let _ = self.batch(ROLL_BACK_PART);
        }
    }
}

impl Deref for Transaction<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.0
    }
}

impl Deref for Savepoint<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        self.0
    }
}

fn no_parameter(name: &str) -> DbError {
    DbError::bad_value(format_args!("the statement has no parameter '{name}'"))
}

const ROLL_BACK_PART: &str = "ROLLBACK TO part; RELEASE part";
const STEPS_BETWEEN_LOOKS: i32 = 100_000;
