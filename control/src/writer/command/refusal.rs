//! Errors of commands.

use std::borrow::Cow;

use shared::error_kind::ErrorKind;

use crate::common::vault::{RandomError, SealError};
use crate::db::audit;
use crate::db::engine::DbError;
use crate::db::error::QueryError;

/// The reason why a command was refused; nothing has been changed.
#[derive(Debug)]
pub(crate) enum CommandRefusal {
    /// An error that is reported to the caller.
    Reported {
        kind: ErrorKind,
        message: Cow<'static, str>,
        /// The invalid field.
        param: Option<Cow<'static, str>>,
        /// An audit record to write although nothing has changed.
        audit: Option<Box<audit::AuditEntry>>,
    },
    /// The database or the commit failed.
    Failed(QueryError),
    /// A secret could not be sealed or opened.
    Seal,
}

impl CommandRefusal {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Reported { kind, message: message.into(), param: None, audit: None }
    }

    /// The object does not exist.
    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("There is no {what} '{id}'."))
    }

    /// The change conflicts with the state of the object or with another object.
    pub(crate) fn conflict(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// A field has an invalid value.
    pub(crate) fn invalid(
        param: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Reported {
            kind: ErrorKind::InvalidRequest,
            message: message.into(),
            param: Some(param.into()),
            audit: None,
        }
    }

    /// Adds an audit record to the refusal.
    pub(crate) fn audited(self, entry: audit::AuditEntry) -> Self {
        match self {
            Self::Reported { kind, message, param, .. } => {
                Self::Reported { kind, message, param, audit: Some(Box::new(entry)) }
            }
            Self::Seal => Self::new(ErrorKind::Internal, UNSEALED).audited(entry),
            Self::Failed(error) => Self::Failed(error),
        }
    }

    /// Takes the audit record of the refusal, if it has one.
    pub(super) fn take_audit(&mut self) -> Option<audit::AuditEntry> {
        match self {
            Self::Reported { audit, .. } => audit.take().map(|entry| *entry),
            Self::Failed(_) | Self::Seal => None,
        }
    }

    /// Refuses a change if the object's version is not the expected one (`If-Match`, RFC 9110 section 13.1.1).
    pub(crate) fn if_stale(expected: Option<u64>, version: u64) -> Result<(), Self> {
        match expected {
            Some(expected) if expected != version => Err(Self::new(
                ErrorKind::PreconditionFailed,
                format!(
                    "It has changed since you read it: you sent version {expected}, the current version is \
                     {version}. Read it again."
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl From<DbError> for CommandRefusal {
    fn from(error: DbError) -> Self {
        Self::Failed(QueryError::Sql(error))
    }
}

impl From<QueryError> for CommandRefusal {
    fn from(error: QueryError) -> Self {
        Self::Failed(error)
    }
}

impl From<RandomError> for CommandRefusal {
    fn from(_: RandomError) -> Self {
        Self::new(ErrorKind::Internal, "The operating system returned no random bytes.")
    }
}

impl From<SealError> for CommandRefusal {
    fn from(_: SealError) -> Self {
        Self::Seal
    }
}

/// The error message for [`CommandRefusal::Seal`].
pub(crate) const UNSEALED: &str = "A stored secret cannot be decrypted. Run 'llmgw credentials verify'.";
