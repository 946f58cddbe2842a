//! A session with a PostgreSQL server: portable statements, their rows, and their errors as those of the seam.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use pg::{Call, CopyIn, ErrorKind, Field, Kind, RowStream, Session};

use super::address::DatabaseAddress;
use super::text::Text;
use crate::db::engine::{DbError, DbErrorKind, DbResult, Value, Values};

/// A session. Statements are kept by their text.
#[derive(Debug)]
pub(crate) struct PostgresSession {
    session: Session,
    texts: RefCell<HashMap<Box<str>, Arc<Text>>>,
    node: u32,
}

/// A statement, which the server prepares when it is given values: their types are those of the parameters.
pub(crate) struct PostgresStatement<'a> {
    session: &'a Session,
    text: Arc<Text>,
}

/// The rows that a statement found.
pub(crate) struct PostgresRows {
    rows: Vec<pg::Row>,
    next: usize,
}

impl PostgresSession {
    /// Makes a session of the node with this number, which connects at its first statement.
    pub(crate) fn new(address: &DatabaseAddress, node: u32) -> DbResult<Self> {
        let session = Session::new(address.settings().clone())?;
        Ok(Self { session, texts: RefCell::default(), node })
    }

    pub(crate) fn node(&self) -> u32 {
        self.node
    }

    pub(crate) fn prepare(&self, sql: &str) -> PostgresStatement<'_> {
        let mut texts = self.texts.borrow_mut();
        if texts.len() >= TEXTS_MAX {
            texts.clear();
        }
        let known = texts.get(sql).map(Arc::clone);
        let text = known.unwrap_or_else(|| {
            let text = Arc::new(Text::parse(sql));
            texts.insert(sql.into(), Arc::clone(&text));
            text
        });
        PostgresStatement { session: &self.session, text }
    }

    pub(crate) fn batch(&self, sql: &str) -> DbResult<()> {
        Ok(self.session.batch(sql)?)
    }

    pub(crate) fn begin(&self, how: &str) -> DbResult<()> {
        run_again(&self.session, || self.session.begin(how))
    }

    pub(crate) fn commit(&self) -> DbResult<()> {
        Ok(self.session.commit()?)
    }

    pub(crate) fn rollback(&self) -> DbResult<()> {
        Ok(self.session.rollback()?)
    }

    pub(crate) fn rollback_to(&self, savepoint: &str) -> DbResult<()> {
        Ok(self.session.rollback_to(savepoint)?)
    }

    /// Runs a statement without parameters, whose rows are then read one at a time.
    pub(crate) fn stream(&self, sql: &str) -> DbResult<RowStream<'_>> {
        Ok(self.session.stream(sql)?)
    }

    /// Begins `COPY ... FROM STDIN (FORMAT binary)` into columns of these types.
    pub(crate) fn copy_in(&self, sql: &str, kinds: &[Kind]) -> DbResult<CopyIn<'_>> {
        Ok(self.session.copy_in(sql, kinds)?)
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.session.is_in_transaction()
    }

    pub(crate) fn limit_time(&self, until: Instant) {
        self.session.limit_time(until);
    }
}

impl PostgresStatement<'_> {
    pub(crate) fn execute(&mut self, values: impl Values) -> DbResult<usize> {
        let values = self.bind(values)?;
        let (statement, values) = self.call(&values)?;
        usize::try_from(self.session.execute(&statement, &values)?).map_err(DbError::bad_value)
    }

    pub(crate) fn query(&mut self, values: impl Values) -> DbResult<PostgresRows> {
        let values = self.bind(values)?;
        let query = || {
            let (statement, values) = self.call(&values)?;
            self.session.query(&statement, &values)
        };
        let is_read = self.text.is_select();
        let rows = if is_read { run_again(self.session, query)? } else { query()? };
        Ok(PostgresRows { rows, next: 0 })
    }

    /// Runs the statement once for each of these values, with one wait for all answers.
    pub(crate) fn execute_each<V: Values>(&mut self, all: Vec<V>) -> DbResult<Vec<DbResult<usize>>> {
        let bound = self.bind_each(all)?;
        let calls = self.calls(&bound)?;
        let changed = |count: Result<u64, pg::Error>| usize::try_from(count?).map_err(DbError::bad_value);
        Ok(self.session.execute_each(&calls)?.into_iter().map(changed).collect())
    }

    /// As [`Self::execute_each`]; returns the rows of each.
    pub(crate) fn query_each<V: Values>(&mut self, all: Vec<V>) -> DbResult<Vec<PostgresRows>> {
        let bound = self.bind_each(all)?;
        let calls = self.calls(&bound)?;
        let found = |rows: Result<Vec<pg::Row>, pg::Error>| Ok(PostgresRows { rows: rows?, next: 0 });
        self.session.query_each(&calls)?.into_iter().map(found).collect()
    }

    fn bind_each<V: Values>(&self, all: Vec<V>) -> DbResult<Vec<Vec<OwnedValue>>> {
        all.into_iter().map(|values| self.bind(values)).collect()
    }

    fn calls<'v>(&self, all: &'v [Vec<OwnedValue>]) -> DbResult<Vec<Call<'v>>> {
        all.iter().map(|values| Ok(self.call(values)?)).collect()
    }

    /// Returns the values in the order of the parameters. A value is lent only while it is bound.
    fn bind(&self, values: impl Values) -> DbResult<Vec<OwnedValue>> {
        let mut owned: Vec<OwnedValue> = Vec::new();
        owned.resize_with(self.text.parameters(), || OwnedValue::Null);
        let mut count = 0;
        values.each(&mut |place, value| {
            let number = self.text.parameter(place)?;
            if let Some(slot) = owned.get_mut(number) {
                *slot = value.into();
            }
            count += 1;
            Ok(())
        })?;
        if count != owned.len() {
            return Err(DbError::wrong_count(owned.len(), count));
        }
        Ok(owned)
    }

    /// Prepares the statement for these values.
    fn call<'v>(&self, values: &'v [OwnedValue]) -> Result<Call<'v>, pg::Error> {
        let fields: Vec<Field<'_>> = values.iter().map(OwnedValue::field).collect();
        let (sql, kinds, present) = self.text.with(&fields);
        Ok((self.session.prepare(&sql, &kinds)?, present))
    }
}

/// Runs a statement that changes nothing outside of a transaction, and once more on a new connection if the one of before has ended,
/// as after a restart of the server, or if a migration has changed its tables.
fn run_again<T>(session: &Session, run: impl Fn() -> Result<T, pg::Error>) -> DbResult<T> {
    let may_repeat = session.is_connected() && !session.is_in_transaction();
    match run() {
        Err(error) if may_repeat && error.kind() == ErrorKind::Unreachable => {
            session.disconnect();
            Ok(run()?)
        }
        Err(error) if may_repeat && error.kind() == ErrorKind::Stale => Ok(run()?),
        answer => Ok(answer?),
    }
}

impl PostgresRows {
    pub(crate) fn next(&mut self) -> Option<&pg::Row> {
        self.next += 1;
        self.rows.get(self.next - 1)
    }
}

/// A value that outlives its binding.
enum OwnedValue {
    Null,
    Integer(i64),
    Real(f64),
    Text(Box<str>),
    Blob(Box<[u8]>),
}

impl OwnedValue {
    fn field(&self) -> Field<'_> {
        match self {
            Self::Null => Field::Null,
            Self::Integer(number) => Field::Integer(*number),
            Self::Real(number) => Field::Real(*number),
            Self::Text(text) => Field::Text(text),
            Self::Blob(bytes) => Field::Blob(bytes),
        }
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(number) => Self::Integer(number),
            Value::Real(number) => Self::Real(number),
            Value::Text(text) => Self::Text(text.into()),
            Value::Blob(bytes) => Self::Blob(bytes.into()),
        }
    }
}

impl<'a> From<Value<'a>> for Field<'a> {
    fn from(value: Value<'a>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Integer(number) => Self::Integer(number),
            Value::Real(number) => Self::Real(number),
            Value::Text(text) => Self::Text(text),
            Value::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

impl<'a> From<Field<'a>> for Value<'a> {
    fn from(field: Field<'a>) -> Self {
        match field {
            Field::Null => Self::Null,
            Field::Integer(number) => Self::Integer(number),
            Field::Real(number) => Self::Real(number),
            Field::Text(text) => Self::Text(text),
            Field::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

impl From<pg::Error> for DbError {
    fn from(error: pg::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::BadRow => DbErrorKind::BadRow,
            ErrorKind::BadValue => DbErrorKind::BadValue,
            ErrorKind::TooSlow => DbErrorKind::TooSlow,
            // The transaction can be repeated.
            ErrorKind::Conflict | ErrorKind::Stale => DbErrorKind::Busy,
            ErrorKind::DiskFull => DbErrorKind::DiskFull,
            ErrorKind::Refused => DbErrorKind::Refused,
            ErrorKind::Unreachable => DbErrorKind::Unreachable,
            ErrorKind::ReadOnly => DbErrorKind::ReadOnly,
            ErrorKind::Other => DbErrorKind::Other,
        };
        Self::new(kind, error.to_string())
    }
}

/// The number of texts that are kept; a few are made for each call.
const TEXTS_MAX: usize = 512;
