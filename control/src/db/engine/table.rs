//! Whole tables, on either engine: their columns, copies of all their rows, and sums by which two copies are compared.
//! Rows are read and written one at a time, so a table of any size needs little memory.

use pg::{CopyIn, Field, Kind};
use records::digest::long_digest;

use super::session::Statement;
use super::{Db, DbError, DbResult, Row, Value};

/// A table that both engines have, with the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    columns: Vec<TableColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TableColumn {
    name: String,
    kind: Kind,
}

/// The number of rows of a table, and the sum of their digests, which does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableSum {
    pub(crate) rows: u64,
    digest: u64,
}

impl Table {
    /// Reads the columns of a table of SQLite.
    pub(crate) fn of_sqlite(db: &Db, name: &str) -> DbResult<Self> {
        let sql = "SELECT name, type FROM pragma_table_info(:table) ORDER BY cid";
        let columns = db.rows(sql, [name], |row| {
            Ok(TableColumn { name: row.get("name")?, kind: kind_of(row.get("type")?)? })
        })?;
        Ok(Self { name: name.to_owned(), columns })
    }

    /// Copies all rows into the same table of another database, in which it is empty, and returns the sum of the copied rows.
    pub(crate) fn copy(&self, from: &Db, to: &Db) -> DbResult<TableSum> {
        let mut writer = Writer::begin(self, to)?;
        let sum = self.each(from, |values| writer.write(values))?;
        let written = writer.finish()?;
        if written == sum.rows {
            return Ok(sum);
        }
        Err(DbError::bad_value(format_args!("{written} of {} rows were written", sum.rows)))
    }

    /// Reads all rows, and returns their sum.
    pub(crate) fn sum(&self, db: &Db) -> DbResult<TableSum> {
        self.each(db, |_| Ok(()))
    }

    fn each(&self, db: &Db, mut take: impl FnMut(&[Value<'_>]) -> DbResult<()>) -> DbResult<TableSum> {
        let mut sum = TableSum::default();
        let sql = format!("SELECT {} FROM {}", self.columns(), self.quoted());
        each_row(db, &sql, |row| {
            let values: Vec<Value<'_>> =
                (0..self.columns.len()).map(|at| row.get(at)).collect::<DbResult<_>>()?;
            sum.add(&values);
            take(&values)
        })?;
        Ok(sum)
    }

    /// Returns the name as statements have it.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.name)
    }

    /// Returns the columns as an SQL list.
    fn columns(&self) -> String {
        let quoted: Vec<String> = self.columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
        quoted.join(", ")
    }
}

impl TableSum {
    fn add(&mut self, row: &[Value<'_>]) {
        self.rows += 1;
        self.digest = self.digest.wrapping_add(row.iter().fold(0, |state, value| digest(state, *value)));
    }
}

/// Adds a value, by its type and its bytes, to the digest of a row.
fn digest(state: u64, value: Value<'_>) -> u64 {
    match value {
        Value::Null => long_digest(state ^ 1, &[]),
        Value::Integer(number) => long_digest(state ^ 2, &number.to_le_bytes()),
        Value::Real(number) => long_digest(state ^ 3, &number.to_bits().to_le_bytes()),
        Value::Text(text) => long_digest(state ^ 4, text.as_bytes()),
        Value::Blob(bytes) => long_digest(state ^ 5, bytes),
    }
}

/// Calls `take` with each row that a statement without parameters finds.
fn each_row(db: &Db, sql: &str, mut take: impl FnMut(Row<'_>) -> DbResult<()>) -> DbResult<()> {
    let Some(session) = db.postgres() else {
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            take(row)?;
        }
        return Ok(());
    };
    let mut rows = session.stream(sql)?;
    while let Some(row) = rows.next_row()? {
        take(row.into())?;
    }
    Ok(())
}

/// Writes rows into a table: by one statement for each with SQLite, by one `COPY` with PostgreSQL.
enum Writer<'a> {
    Sqlite { insert: Statement<'a>, rows: u64 },
    Postgres(CopyIn<'a>),
}

impl<'a> Writer<'a> {
    fn begin(table: &Table, to: &'a Db) -> DbResult<Self> {
        let (name, columns) = (table.quoted(), table.columns());
        if let Some(session) = to.postgres() {
            let kinds: Vec<Kind> = table.columns.iter().map(|column| column.kind).collect();
            let sql = format!("COPY {name} ({columns}) FROM STDIN (FORMAT binary)");
            return session.copy_in(&sql, &kinds).map(Self::Postgres);
        }
        let values: Vec<String> = table.columns.iter().map(|column| format!(":{}", column.name)).collect();
        let sql = format!("INSERT INTO {name} ({columns}) VALUES ({})", values.join(", "));
        Ok(Self::Sqlite { insert: to.prepare(&sql)?, rows: 0 })
    }

    fn write(&mut self, values: &[Value<'_>]) -> DbResult<()> {
        match self {
            Self::Sqlite { insert, rows } => {
                *rows += u64::try_from(insert.execute(values)?).unwrap_or(u64::MAX);
                Ok(())
            }
            Self::Postgres(copy) => {
                let fields: Vec<Field<'_>> = values.iter().map(|value| (*value).into()).collect();
                Ok(copy.row(&fields)?)
            }
        }
    }

    /// Returns the number of rows that were written.
    fn finish(self) -> DbResult<u64> {
        match self {
            Self::Sqlite { rows, .. } => Ok(rows),
            Self::Postgres(copy) => Ok(copy.finish()?),
        }
    }
}

/// Returns the type of a column of a `STRICT` table.
fn kind_of(sqlite_type: &str) -> DbResult<Kind> {
    match sqlite_type {
        "INTEGER" => Ok(Kind::Integer),
        "REAL" => Ok(Kind::Real),
        "TEXT" => Ok(Kind::Text),
        "BLOB" => Ok(Kind::Blob),
        other => Err(DbError::bad_value(format_args!("the type {other} is not known"))),
    }
}
