//! A connection to a database of either engine, and what is done through it.

use std::ops::Deref;
use std::time::Instant;

use super::postgres::{PostgresRows, PostgresSession, PostgresStatement};
use super::sqlite::session::{SqliteRow, SqliteRows, SqliteSession, SqliteStatement};
use super::{Column, DbError, DbResult, FromValue, Value, Values, portable};

/// A connection to a database. Statements that are prepared through it are cached by their text.
#[derive(Debug)]
pub(crate) struct Db(Engine);

#[derive(Debug)]
enum Engine {
    Sqlite(SqliteSession),
    Postgres(Box<PostgresSession>),
}

/// A prepared statement.
pub(crate) struct Statement<'a>(StatementOf<'a>);

enum StatementOf<'a> {
    Sqlite(SqliteStatement<'a>),
    Postgres(PostgresStatement<'a>),
}

/// The rows that a statement finds, one at a time.
pub(crate) struct Rows<'a>(RowsOf<'a>);

enum RowsOf<'a> {
    Sqlite(SqliteRows<'a>),
    Postgres(PostgresRows),
}

/// A row that a statement found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a>(RowOf<'a>);

#[derive(Clone, Copy, Debug)]
enum RowOf<'a> {
    Sqlite(SqliteRow<'a>),
    Postgres(&'a pg::Row),
}

/// A transaction; rolled back when it is dropped.
#[derive(Debug)]
pub(crate) struct Transaction<'a>(&'a Db);

/// A part of a transaction; rolled back when it is dropped.
#[derive(Debug)]
pub(crate) struct Savepoint<'a>(&'a Db);

impl From<SqliteSession> for Db {
    fn from(session: SqliteSession) -> Self {
        Self(Engine::Sqlite(session))
    }
}

impl<'a> From<&'a pg::Row> for Row<'a> {
    fn from(row: &'a pg::Row) -> Self {
        Self(RowOf::Postgres(row))
    }
}

impl From<PostgresSession> for Db {
    fn from(session: PostgresSession) -> Self {
        Self(Engine::Postgres(Box::new(session)))
    }
}

impl Db {
    /// Prepares a statement that runs several times.
    pub(crate) fn prepare(&self, sql: &str) -> DbResult<Statement<'_>> {
        portable::check(sql);
        Ok(Statement(match &self.0 {
            Engine::Sqlite(session) => StatementOf::Sqlite(session.prepare(sql)?),
            Engine::Postgres(session) => StatementOf::Postgres(session.prepare(sql)),
        }))
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
        match &self.0 {
            Engine::Sqlite(session) => session.batch(sql),
            Engine::Postgres(session) => session.batch(sql),
        }
    }

    /// Begins a transaction that may write. With SQLite, no other connection may until it ends.
    pub(crate) fn transaction(&mut self) -> DbResult<Transaction<'_>> {
        self.begin_to_write(IDLE_MAX_MS)
    }

    /// Begins a transaction that may write. If its connection is lost, others get what it has locked after
    /// [`GUARDED_IDLE_MAX_MS`].
    pub(crate) fn guarded_transaction(&mut self) -> DbResult<Transaction<'_>> {
        self.begin_to_write(GUARDED_IDLE_MAX_MS)
    }

    /// Begins a transaction that may write. If this process stops inside it, PostgreSQL ends it after so many milliseconds
    /// without a statement: it may have locked rows that other nodes wait for.
    fn begin_to_write(&mut self, idle_max_ms: u64) -> DbResult<Transaction<'_>> {
        match &self.0 {
            Engine::Sqlite(session) => session.batch("BEGIN IMMEDIATE")?,
            // Without `READ WRITE`: a server that was set to accept no changes would accept these.
            Engine::Postgres(session) => {
                session.begin(&format!("; SET LOCAL idle_in_transaction_session_timeout = {idle_max_ms}"))?;
            }
        }
        Ok(Transaction(self))
    }

    /// True if the database is of a server, which nodes share.
    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.0, Engine::Postgres(_))
    }

    /// Begins a transaction whose statements read one moment of the database. It must be the only one.
    pub(crate) fn read_transaction(&self) -> DbResult<Transaction<'_>> {
        match &self.0 {
            Engine::Sqlite(session) => session.batch("BEGIN")?,
            Engine::Postgres(session) => session.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")?,
        }
        Ok(Transaction(self))
    }

    /// Runs one transaction whose commit does not wait for the disk. A power failure may undo the whole transaction, which
    /// is harmless for deletions: they are repeated.
    pub(crate) fn lazily<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> DbResult<T>) -> DbResult<T> {
        if matches!(self.0, Engine::Sqlite(_)) {
            return self.lazily_in_files(work);
        }
        let tx = self.transaction()?;
        tx.batch("SET LOCAL synchronous_commit = off")?;
        let worked = work(&tx)?;
        tx.commit().map(|()| worked)
    }

    /// Begins a transaction that may write, on a connection that others have too.
    #[cfg(test)]
    pub(crate) fn change(&self) -> DbResult<Transaction<'_>> {
        match &self.0 {
            Engine::Sqlite(session) => session.batch("BEGIN")?,
            Engine::Postgres(session) => session.begin("")?,
        }
        Ok(Transaction(self))
    }

    /// True if there is a table of this name.
    pub(crate) fn has_table(&self, name: &str) -> DbResult<bool> {
        let sql = match &self.0 {
            Engine::Sqlite(_) => "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = :name",
            Engine::Postgres(_) => {
                "SELECT 1 FROM information_schema.tables \
                 WHERE table_schema = current_schema() AND table_name = :name"
            }
        };
        self.exists(sql, [name])
    }

    /// Returns the number of the node whose rows this connection writes; 0 with SQLite, whose database has one user.
    pub(crate) fn node(&self) -> u32 {
        match &self.0 {
            Engine::Sqlite(_) => 0,
            Engine::Postgres(session) => session.node(),
        }
    }

    /// True while a transaction is open. Some errors, such as that of a full disk, end it.
    pub(crate) fn is_in_transaction(&self) -> bool {
        match &self.0 {
            Engine::Sqlite(session) => session.is_in_transaction(),
            Engine::Postgres(session) => session.is_in_transaction(),
        }
    }

    /// Lets statements fail with [`DbErrorKind::TooSlow`] from this time on.
    pub(crate) fn limit_time(&mut self, until: Instant) -> DbResult<()> {
        match &mut self.0 {
            Engine::Sqlite(session) => session.limit_time(until),
            Engine::Postgres(session) => {
                session.limit_time(until);
                Ok(())
            }
        }
    }

    /// Returns the session with a server; `None` for a file.
    pub(super) fn postgres(&self) -> Option<&PostgresSession> {
        match &self.0 {
            Engine::Sqlite(_) => None,
            Engine::Postgres(session) => Some(session),
        }
    }

    /// Returns the connection to a file, for what only SQLite has.
    pub(super) fn sqlite(&self) -> DbResult<&SqliteSession> {
        match &self.0 {
            Engine::Sqlite(session) => Ok(session),
            Engine::Postgres(_) => Err(only_sqlite()),
        }
    }

    /// See [`Self::sqlite`].
    pub(super) fn sqlite_mut(&mut self) -> DbResult<&mut SqliteSession> {
        match &mut self.0 {
            Engine::Sqlite(session) => Ok(session),
            Engine::Postgres(_) => Err(only_sqlite()),
        }
    }

    /// See [`Self::sqlite`].
    pub(super) fn into_sqlite(self) -> DbResult<SqliteSession> {
        match self.0 {
            Engine::Sqlite(session) => Ok(session),
            Engine::Postgres(_) => Err(only_sqlite()),
        }
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
        match &mut self.0 {
            StatementOf::Sqlite(statement) => statement.execute(values),
            StatementOf::Postgres(statement) => statement.execute(values),
        }
    }

    /// Runs the statement of an open transaction once for each of these values, in their order, and passes each number of
    /// changed rows to `changed`. A server is waited for once for many of them, and once one has failed, all behind it fail.
    pub(crate) fn execute_each<V: Values>(
        &mut self,
        all: impl IntoIterator<Item = V>,
        mut changed: impl FnMut(DbResult<usize>) -> DbResult<()>,
    ) -> DbResult<()> {
        match &mut self.0 {
            StatementOf::Sqlite(statement) => {
                all.into_iter().map(|values| statement.execute(values)).try_for_each(changed)
            }
            StatementOf::Postgres(statement) => {
                together(all, |some| statement.execute_each(some)?.into_iter().try_for_each(&mut changed))
            }
        }
    }

    /// Runs the statement of an open transaction once for each of these values, in their order, and reads the first row that
    /// each finds, if any. A server is waited for once for many of them.
    pub(crate) fn optional_row_each<T, V: Values>(
        &mut self,
        all: impl IntoIterator<Item = V>,
        mut read: impl FnMut(Row<'_>) -> DbResult<T>,
    ) -> DbResult<Vec<Option<T>>> {
        match &mut self.0 {
            StatementOf::Sqlite(statement) => all
                .into_iter()
                .map(|values| {
                    let mut rows = statement.query(values)?;
                    rows.next()?.map(|row| read(Row(RowOf::Sqlite(row)))).transpose()
                })
                .collect(),
            StatementOf::Postgres(statement) => {
                let mut found = Vec::new();
                together(all, |some| {
                    for mut rows in statement.query_each(some)? {
                        found.push(rows.next().map(|row| read(row.into())).transpose()?);
                    }
                    Ok(())
                })?;
                Ok(found)
            }
        }
    }

    /// Runs the statement, whose rows are then read one at a time.
    pub(crate) fn query(&mut self, values: impl Values) -> DbResult<Rows<'_>> {
        Ok(Rows(match &mut self.0 {
            StatementOf::Sqlite(statement) => RowsOf::Sqlite(statement.query(values)?),
            StatementOf::Postgres(statement) => RowsOf::Postgres(statement.query(values)?),
        }))
    }
}

impl Rows<'_> {
    /// Returns the next row, if there is one.
    pub(crate) fn next(&mut self) -> DbResult<Option<Row<'_>>> {
        Ok(match &mut self.0 {
            RowsOf::Sqlite(rows) => rows.next()?.map(|row| Row(RowOf::Sqlite(row))),
            RowsOf::Postgres(rows) => rows.next().map(|row| Row(RowOf::Postgres(row))),
        })
    }
}

impl<'a> Row<'a> {
    /// Reads a column. An error names it.
    pub(crate) fn get<T: FromValue<'a>>(self, column: impl Column) -> DbResult<T> {
        let at = self.position(column)?;
        T::from_value(self.value(at)?).map_err(|_| {
            let name = self.name(at);
            DbError::bad_value(format_args!("the column '{name}' contains a value of another type or form"))
        })
    }

    /// Returns the position of a column, for reading many rows.
    pub(crate) fn position(self, column: impl Column) -> DbResult<usize> {
        column.position(|name| match self.0 {
            RowOf::Sqlite(row) => row.position(name),
            RowOf::Postgres(row) => row.position(name).ok_or_else(|| no_column(name)),
        })
    }

    fn value(self, at: usize) -> DbResult<Value<'a>> {
        match self.0 {
            RowOf::Sqlite(row) => row.value(at),
            RowOf::Postgres(row) => Ok(row.get(at)?.into()),
        }
    }

    fn name(self, at: usize) -> String {
        match self.0 {
            RowOf::Sqlite(row) => row.name(at),
            RowOf::Postgres(row) => row.name(at).unwrap_or_default().to_owned(),
        }
    }
}

impl Transaction<'_> {
    /// Lets this transaction pause between statements for longer than the server allows others. Only for one that reads: it holds
    /// no lock that others wait for.
    pub(crate) fn may_pause(&self) -> DbResult<()> {
        match &self.0.0 {
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(session) => session.batch("SET LOCAL idle_in_transaction_session_timeout = 0"),
        }
    }

    /// Begins a part of the transaction that can be rolled back alone.
    pub(crate) fn savepoint(&mut self) -> DbResult<Savepoint<'_>> {
        self.batch("SAVEPOINT part")?;
        Ok(Savepoint(self.0))
    }

    /// Commits; a failed commit is rolled back.
    pub(crate) fn commit(self) -> DbResult<()> {
        match &self.0.0 {
            Engine::Sqlite(session) => session.batch("COMMIT"),
            Engine::Postgres(session) => session.commit(),
        }
    }

    pub(crate) fn rollback(self) -> DbResult<()> {
        self.0.roll_back()
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
        let rolled_back = self.0.roll_back_part();
        std::mem::forget(self);
        rolled_back
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_in_transaction() {
            let _ = self.0.roll_back();
        }
    }
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        if self.is_in_transaction() {
            let _ = self.0.roll_back_part();
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

impl Db {
    fn roll_back(&self) -> DbResult<()> {
        match &self.0 {
            Engine::Sqlite(session) => session.batch("ROLLBACK"),
            Engine::Postgres(session) => session.rollback(),
        }
    }

    fn roll_back_part(&self) -> DbResult<()> {
        match &self.0 {
            Engine::Sqlite(session) => session.batch("ROLLBACK TO part; RELEASE part"),
            Engine::Postgres(session) => session.rollback_to("part"),
        }
    }
}

/// Passes [`TOGETHER_MAX`] items at a time to `take`.
fn together<T>(
    all: impl IntoIterator<Item = T>,
    mut take: impl FnMut(Vec<T>) -> DbResult<()>,
) -> DbResult<()> {
    let mut all = all.into_iter();
    loop {
        let some: Vec<T> = all.by_ref().take(TOGETHER_MAX).collect();
        if some.is_empty() {
            return Ok(());
        }
        take(some)?;
    }
}

/// The number of statements whose answers are waited for together: bounds the memory of their values, and the time.
const TOGETHER_MAX: usize = 256;
/// The longest time without a statement of a transaction that writes.
const IDLE_MAX_MS: u64 = 5_000;
/// The same of one whose locks other nodes wait for at once.
const GUARDED_IDLE_MAX_MS: u64 = 1_000;

fn no_column(name: &str) -> DbError {
    DbError::bad_value(format_args!("the statement has no column '{name}'"))
}

/// The error of a call that PostgreSQL has no counterpart for.
fn only_sqlite() -> DbError {
    DbError::bad_value("only a database of SQLite can do this")
}
