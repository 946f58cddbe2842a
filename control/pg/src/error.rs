//! Errors of sessions and statements.

use std::fmt::{self, Write as _};

use tokio_postgres::error::SqlState;

/// An error that a session or a statement returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

/// The kinds of errors that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The server cannot be reached, or the connection ended. Whether the statement ran is unknown.
    Unreachable,
    /// The server refuses the user, the password, the database or the encryption.
    Refused,
    /// The server refuses the row: a constraint, a type, or a size.
    BadRow,
    /// A value has no form in which the server could store it, or is of a type that no caller reads.
    BadValue,
    /// The statement ran longer than it may.
    TooSlow,
    /// Another transaction changed the same rows, or holds them for too long: the transaction can be repeated.
    Conflict,
    /// A table of a prepared statement was changed by a migration. The statement did nothing, and can be repeated: the session
    /// prepares it again.
    Stale,
    /// The server has no space left.
    DiskFull,
    /// The server is a standby, or was set to refuse changes.
    ReadOnly,
    /// Anything else, such as a statement that the server does not understand.
    Other,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The error of a statement that takes too long.
    pub(crate) fn too_slow() -> Self {
        Self::new(ErrorKind::TooSlow, "the statement took too long")
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        let kind = match error.code() {
            Some(_) if is_stale(&error) => ErrorKind::Stale,
            Some(state) => kind_of(state),
            None if is_of_value(&error) => ErrorKind::BadValue,
            None => ErrorKind::Unreachable,
        };
        Self::new(kind, text_of(&error))
    }
}

/// True for `cached plan must not change result type`, which has no code of its own, and whose text may be translated.
fn is_stale(error: &tokio_postgres::Error) -> bool {
    let routine = error.as_db_error().and_then(tokio_postgres::error::DbError::routine);
    routine == Some("RevalidateCachedQuery")
}

/// True if the error was found in a value, before or after it was sent.
fn is_of_value(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    text.starts_with("error serializing") || text.starts_with("error deserializing")
}

/// Returns the kind of an error of the server by its code (PostgreSQL documentation, appendix A).
fn kind_of(state: &SqlState) -> ErrorKind {
    match state.code() {
        "57014" => ErrorKind::TooSlow,
        "53100" => ErrorKind::DiskFull,
        "25006" => ErrorKind::ReadOnly,
        "55P03" => ErrorKind::Conflict,
        "25P03" | "57P01" | "57P02" | "57P03" | "53300" => ErrorKind::Unreachable,
        "3D000" | "42501" => ErrorKind::Refused,
        code => match code.get(..2) {
            Some("08") => ErrorKind::Unreachable,
            Some("22" | "23") => ErrorKind::BadRow,
            Some("28") => ErrorKind::Refused,
            Some("40") => ErrorKind::Conflict,
            _ => ErrorKind::Other,
        },
    }
}

/// Returns the message of the server, or of the connection with all its causes.
fn text_of(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        // A message that already contains its cause is not repeated.
        let more = source.to_string();
        if !text.contains(&more) {
            let _ = write!(text, ": {more}");
        }
        cause = source.source();
    }
    text
}
