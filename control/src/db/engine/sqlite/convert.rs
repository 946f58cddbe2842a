//! Values and errors of SQLite as those of the seam.

use rusqlite::ErrorCode;
use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::db::engine::{DbError, DbErrorKind, DbResult, Value};

/// Returns a value as SQLite takes it.
pub(super) fn bound(value: Value<'_>) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(match value {
        Value::Null => ValueRef::Null,
        Value::Integer(number) => ValueRef::Integer(number),
        Value::Real(number) => ValueRef::Real(number),
        Value::Text(text) => ValueRef::Text(text.as_bytes()),
        Value::Blob(bytes) => ValueRef::Blob(bytes),
    })
}

/// Returns a value that SQLite stores, whose text must be UTF-8.
pub(super) fn stored(value: ValueRef<'_>) -> DbResult<Value<'_>> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(std::str::from_utf8(text).map_err(DbError::bad_value)?),
        ValueRef::Blob(bytes) => Value::Blob(bytes),
    })
}

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(kind(&error), error.to_string())
    }
}

fn kind(error: &rusqlite::Error) -> DbErrorKind {
    if matches!(error, rusqlite::Error::QueryReturnedNoRows) {
        return DbErrorKind::NoRow;
    }
    match error.sqlite_error_code() {
        Some(
            ErrorCode::ConstraintViolation
            | ErrorCode::ParameterOutOfRange
            | ErrorCode::TooBig
            | ErrorCode::TypeMismatch,
        ) => DbErrorKind::BadRow,
        Some(ErrorCode::OperationInterrupted) => DbErrorKind::TooSlow,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DbErrorKind::Busy,
        Some(ErrorCode::DiskFull) => DbErrorKind::DiskFull,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => DbErrorKind::Damaged,
        Some(_) | None => DbErrorKind::Other,
    }
}
