//! Errors of a database engine.

use std::fmt;

use super::Place;

/// The result of a statement.
pub(crate) type DbResult<T> = Result<T, DbError>;

/// An error that a statement returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbError {
    kind: DbErrorKind,
    text: String,
}

/// The kinds of errors that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DbErrorKind {
    /// A statement that must find a row found none.
    NoRow,
    /// A value has another type or form than its reader expects, or cannot be stored.
    BadValue,
    /// The engine refuses the row: a constraint, a type, or a size.
    BadRow,
    /// The statement ran longer than it may.
    TooSlow,
    /// Another process has locked the database.
    Busy,
    /// The disk is full.
    DiskFull,
    /// The server of the database cannot be reached.
    Unreachable,
    /// The server of the database accepts no changes: it is a standby, or was set so.
    ReadOnly,
    /// The server of the database refuses the user, the password, the encryption, or the access.
    Refused,
    /// The file is damaged, or is no database.
    Damaged,
    /// Anything else.
    Other,
}

impl DbError {
    pub(crate) fn new(kind: DbErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The error of a value that cannot be stored, or cannot be read.
    pub(crate) fn bad_value(reason: impl fmt::Display) -> Self {
        Self::new(DbErrorKind::BadValue, reason.to_string())
    }

    /// The error of a statement that was given values for another number of parameters.
    pub(super) fn wrong_count(expected: usize, given: usize) -> Self {
        Self::bad_value(format_args!("a statement with {expected} parameters was given {given} values"))
    }

    /// The error of a value for a parameter that the statement does not have.
    pub(super) fn no_parameter(place: Place<'_>) -> Self {
        Self::bad_value(match place {
            Place::At(at) => format!("the statement has no parameter {at}"),
            Place::Named(name) => format!("the statement has no parameter '{name}'"),
        })
    }

    /// The error of a statement that had to find a row, or to change one.
    pub(crate) fn no_row() -> Self {
        Self::new(DbErrorKind::NoRow, "the statement found no row")
    }

    /// The error of a statement that takes too long.
    pub(crate) fn too_slow() -> Self {
        Self::new(DbErrorKind::TooSlow, "the statement took too long")
    }

    pub(crate) fn kind(&self) -> DbErrorKind {
        self.kind
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for DbError {}
