//! Many rows in little memory: those that a statement finds, one at a time, and those that a table gets, in one `COPY`
//! (PostgreSQL documentation, page `COPY`, binary format).

use std::future::poll_fn;
use std::pin::Pin;

use futures_core::Stream as _;
use tokio_postgres::binary_copy::BinaryCopyInWriter;

use crate::error::{Error, ErrorKind};
use crate::session::Session;
use crate::value::{Field, Kind, Row, wrong_count};

/// The rows that a statement finds, as the server sends them. If it is dropped before its end, the other rows are received and
/// dropped.
pub struct RowStream<'session> {
    session: &'session Session,
    rows: Pin<Box<tokio_postgres::RowStream>>,
    current: Option<Row>,
}

/// Rows on their way into a table. They are in it after [`Self::finish`]; if it is dropped before, none are.
pub struct CopyIn<'session> {
    session: &'session Session,
    writer: Pin<Box<BinaryCopyInWriter>>,
    kinds: Box<[Kind]>,
}

impl Session {
    /// Runs a statement without parameters, whose rows are then read one at a time. No other statement of the session may
    /// run meanwhile.
    pub fn stream(&self, sql: &str) -> Result<RowStream<'_>, Error> {
        let statement = self.prepare(sql, &[])?;
        let none: [Field<'_>; 0] = [];
        let rows = self.with_client(async |client| client.query_raw(statement.inner(), none).await)?;
        Ok(RowStream { session: self, rows: Box::pin(rows), current: None })
    }

    /// Begins `COPY ... FROM STDIN (FORMAT binary)` into columns of these types.
    pub fn copy_in(&self, sql: &str, kinds: &[Kind]) -> Result<CopyIn<'_>, Error> {
        let sink = self.with_client(async |client| client.copy_in(sql).await)?;
        let types: Vec<_> = kinds.iter().map(|kind| kind.type_of()).collect();
        let writer = Box::pin(BinaryCopyInWriter::new(sink, &types));
        Ok(CopyIn { session: self, writer, kinds: kinds.into() })
    }
}

impl RowStream<'_> {
    /// Returns the next row, if there is one.
    pub fn next_row(&mut self) -> Result<Option<&Row>, Error> {
        let rows = &mut self.rows;
        let next = async { poll_fn(|context| rows.as_mut().poll_next(context)).await.transpose() };
        self.current = self.session.run(next)?.map(Row);
        Ok(self.current.as_ref())
    }
}

impl CopyIn<'_> {
    /// Sends a row: a value for each column, of the column's type, or none.
    pub fn row(&mut self, values: &[Field<'_>]) -> Result<(), Error> {
        if values.len() != self.kinds.len() {
            return Err(wrong_count(self.kinds.len(), values.len()));
        }
        let is_of_kind = |(value, kind): (&Field<'_>, &Kind)| value.kind().is_none_or(|own| own == *kind);
        if !values.iter().zip(&self.kinds).all(is_of_kind) {
            return Err(Error::new(ErrorKind::BadValue, "a value has another type than its column"));
        }
        self.session.run(self.writer.as_mut().write_raw(values))
    }

    /// Ends the rows, and returns their number.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.session.run(self.writer.as_mut().finish())
    }
}

impl std::fmt::Debug for RowStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowStream").field("session", &self.session).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CopyIn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyIn").field("session", &self.session).finish_non_exhaustive()
    }
}
