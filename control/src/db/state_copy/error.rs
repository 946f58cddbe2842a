//! Errors of copies of a state.

use std::path::PathBuf;

use thiserror::Error;

use crate::db::chain::ChainBroken;
use crate::db::engine::DbError;
use crate::db::error::OpenError;

/// A copy of a state that failed. Its `Display` is one line that states what to do. The source is as it was, and the
/// destination as empty as it was, unless the text says otherwise.
#[derive(Debug, Error)]
pub enum StateCopyError {
    /// The source or the destination cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal has records that the database may not have.
    #[error(
        "the usage journal in {} has {records} records that may not be in the database yet; start the gateway, stop it with \
         SIGTERM, by which it stores them, and run the command again",
        dir.display()
    )]
    Unstored {
        /// The state directory.
        dir: PathBuf,
        /// The number of records and of notes.
        records: u64,
    },
    /// The destination holds tables already.
    #[error("the database {place} is not empty: {found}; name an empty database (CREATE DATABASE ...)")]
    DatabaseInUse {
        /// Host, port and name of the database.
        place: String,
        /// A description of what is there.
        found: String,
    },
    /// The destination holds a state already.
    #[error("{} exists already; set LLMGW_STATE_DIR to a new directory, or move that file away", .0.display())]
    DirectoryInUse(PathBuf),
    /// The data key has two seals.
    #[error(
        "the encryption key of the database {0} is being changed; complete that with 'llmgw credentials rekey --finish'"
    )]
    RekeyUnfinished(String),
    /// The source holds no state.
    #[error("the database {0} holds no state; name the one of LLMGW_DATABASE_URL")]
    NoState(String),
    /// Another process writes to the empty destination.
    #[error(
        "another process creates a state in the database {0} at this moment, or was killed a moment ago; look whether it did, \
         and run the command again"
    )]
    Busy(String),
    /// A table cannot be copied.
    #[error("the table {table} cannot be copied: {source}; nothing was copied")]
    Table {
        /// Its name.
        table: String,
        /// The error of either database.
        source: DbError,
    },
    /// The rows of the destination are not those of the source.
    #[error(
        "the copied table {table} differs from its source: {detail}; nothing was copied, run the command again"
    )]
    Differs {
        /// Its name.
        table: String,
        /// A description of the difference.
        detail: String,
    },
    /// The audit does not hold.
    #[error(
        "the audit log was tampered with: {0}; nothing was copied: compare it with an export or a backup"
    )]
    Audit(ChainBroken),
    /// The end of the copy is not known.
    #[error(
        "the database {place} did not confirm the end of the copy: {source}; run the command again: if the copy is complete, \
         it says that the database is not empty"
    )]
    Unconfirmed {
        /// Host, port and name of the database.
        place: String,
        /// The error of the commit.
        source: DbError,
    },
    /// A statement failed.
    #[error("the state cannot be copied: {0}; nothing was copied")]
    Sql(#[from] DbError),
}

impl StateCopyError {
    /// Returns the exit code of the process for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Open(error) => error.exit_code(),
            Self::Audit(_) => 1,
            Self::DatabaseInUse { .. }
            | Self::DirectoryInUse(_)
            | Self::NoState(_)
            | Self::RekeyUnfinished(_) => 78,
            Self::Busy(_) => 75,
            Self::Unstored { .. }
            | Self::Table { .. }
            | Self::Differs { .. }
            | Self::Unconfirmed { .. }
            | Self::Sql(_) => 74,
        }
    }
}
