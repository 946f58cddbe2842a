//! Errors of the state directory at start, and of the database while serving.

use std::io;
use std::path::PathBuf;

use shared::error_kind::ErrorKind;
use thiserror::Error;

use crate::db::engine::{DbError, DbErrorKind};

/// An error that prevents opening the state. Its `Display` is one line that states what to do. Nothing was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The directory or a file in it cannot be created, read or written.
    #[error(
        "cannot use {}: {source}; make the state directory writable for this user, or set LLMGW_STATE_DIR \
         to one that is",
        path.display()
    )]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error that the operating system returned.
        source: io::Error,
    },
    /// Another process holds the lock of the directory.
    #[error(
        "state directory {} is in use by another process{}; stop it, or set LLMGW_STATE_DIR to another \
         directory",
        dir.display(), pid(*holder)
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process id of the holder, if it is known.
        holder: Option<u32>,
    },
    /// The database was created by a newer release.
    #[error(
        "database {} has version {found}, and this release supports versions up to {known}; start the newer \
         release that it belongs to, run 'llmgw rollback' if that release has migrated it from this one, or \
         restore a backup of this one",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this release supports.
        known: i64,
    },
    /// The encryption key is not the one of the database.
    #[error(
        "LLMGW_CREDENTIAL_ENCRYPTION_KEY is not the key that {} was encrypted with; set it to the original \
         key (nothing was changed)",
        path.display()
    )]
    WrongKey {
        /// The database.
        path: PathBuf,
    },
    /// The file is not an intact database of the gateway.
    #[error(
        "database {} is damaged: {detail}; nothing was changed: restore a backup, or move the state \
         directory away to start with new state",
        path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// A description of the damage.
        detail: String,
    },
    /// The separate database of usage is damaged.
    #[error(
        "database {} is damaged: {detail}; nothing was changed: restore a backup, or move this file away to \
         continue without its usage",
        path.display()
    )]
    UsageDamaged {
        /// The database.
        path: PathBuf,
        /// A description of the damage.
        detail: String,
    },
    /// There is a database of usage that `gateway.db` does not refer to.
    #[error(
        "LLMGW_USAGE_DB is true, but {} belongs to another state: the usage of this one is in gateway.db; \
         move that file away",
        path.display()
    )]
    UsageStray {
        /// The database of usage.
        path: PathBuf,
    },
    /// The database is missing, but files that belong to it exist.
    #[error(
        "database {} is missing, but {} belongs to one; restore a backup, or move the state directory away \
         to start with new state",
        path.display(), beside.display()
    )]
    Missing {
        /// The expected path of the database.
        path: PathBuf,
        /// The file that exists.
        beside: PathBuf,
    },
    /// There is no database to read.
    #[error("the database {} does not exist; set LLMGW_STATE_DIR to the state directory", path.display())]
    Absent {
        /// The expected path of the database.
        path: PathBuf,
    },
    /// The database was created by an older release and is only opened for reading.
    #[error(
        "database {} has version {found}; 'llmgw serve' of this release migrates it to version {known}",
        path.display()
    )]
    Older {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version of this release.
        known: i64,
    },
    /// The disk has no room for the snapshot that a start makes before a migration.
    #[error(
        "the state in {} must be migrated, and its snapshot needs {} MiB, of which {} MiB are free; nothing \
         was changed: free space on that disk",
        dir.display(), needed.div_ceil(1 << 20), free >> 20
    )]
    NoRoomForSnapshot {
        /// The state directory.
        dir: PathBuf,
        /// Free bytes.
        free: u64,
        /// Bytes of the snapshot.
        needed: u64,
    },
    /// A rollback was interrupted.
    #[error(
        "a rollback of the state in {} was interrupted; run 'llmgw rollback' to complete it",
        dir.display()
    )]
    RollbackUnfinished {
        /// The state directory.
        dir: PathBuf,
    },
    /// The database of PostgreSQL cannot be used.
    #[error("cannot use the database {place}: {detail}; {remedy}")]
    Database {
        /// Host, port and name of the database.
        place: String,
        /// The reason.
        detail: String,
        /// A description of what to do.
        remedy: &'static str,
    },
    /// The state directory of a node contains a state.
    #[error(
        "LLMGW_DATABASE_URL names the database {place}, but {} holds a state of its own; unset the variable, copy that state \
         with 'llmgw state copy --to URL', or set LLMGW_STATE_DIR to another directory",
        path.display()
    )]
    TwoStates {
        /// Host, port and name of the database.
        place: String,
        /// The database in the directory.
        path: PathBuf,
    },
    /// SQLite failed on the file.
    #[error(
        "cannot open database {}: {source}; check that the file is readable and writable and that the disk \
         has free space",
        path.display()
    )]
    Sql {
        /// The database.
        path: PathBuf,
        /// The error that SQLite returned.
        source: DbError,
    },
    /// The operating system returned no random bytes.
    #[error("the operating system returned no random bytes")]
    NoRandom,
}

impl OpenError {
    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Locked { .. } => 75,
            Self::Newer { .. } | Self::WrongKey { .. } | Self::TwoStates { .. } | Self::Database { .. } => 78,
            Self::Io { .. }
            | Self::Damaged { .. }
            | Self::UsageDamaged { .. }
            | Self::UsageStray { .. }
            | Self::Missing { .. }
            | Self::Absent { .. }
            | Self::Older { .. }
            | Self::NoRoomForSnapshot { .. }
            | Self::RollbackUnfinished { .. }
            | Self::Sql { .. } => 74,
            Self::NoRandom => 70,
        }
    }
}

fn pid(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

/// An error of a database query.
#[derive(Debug, Error)]
pub(crate) enum QueryError {
    /// Too many queries wait already.
    #[error("too many queries are waiting for the database")]
    Busy,
    /// Too many queries of the human who asks wait already.
    #[error("too many queries of one human are waiting for the database")]
    BusyForHuman,
    /// The query took too long and was aborted.
    #[error("the query took too long")]
    TooSlow,
    /// The gateway is stopping.
    #[error("the database is closed")]
    Stopping,
    /// The server of the database cannot be reached, or refuses this gateway.
    #[error("the database cannot be reached")]
    Unreachable,
    /// The database returned an error.
    #[error("{0}")]
    Sql(DbError),
    /// A commit that several callers waited for failed; the log contains the reason.
    #[error("the commit failed")]
    Shared(DbErrorKind),
}

impl QueryError {
    /// Returns the error kind and message for the client of the admin API.
    pub(crate) fn answer(&self) -> (ErrorKind, &'static str) {
        match self {
            Self::Busy => {
                (ErrorKind::Overloaded, "Too many queries are waiting for the database; try again.")
            }
            Self::BusyForHuman => (
                ErrorKind::Overloaded,
                "16 of your queries are waiting for the database, the most for one caller. Try again when one has been \
                 answered.",
            ),
            Self::TooSlow => (
                ErrorKind::Overloaded,
                "The query took too long; request a shorter period, or use other filters.",
            ),
            Self::Stopping => (ErrorKind::Draining, "The gateway is stopping."),
            Self::Unreachable => (ErrorKind::DatabaseUnreachable, UNREACHABLE),
            Self::Sql(error) => answer_to(error.kind()),
            Self::Shared(kind) => answer_to(*kind),
        }
    }

    /// Returns the seconds after which a client should try again, if the database is what keeps it from being answered.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        match self.answer().0 {
            ErrorKind::DatabaseUnreachable | ErrorKind::Overloaded => Some(RETRY_SECONDS),
            _ => None,
        }
    }
}

/// Returns the error kind and message of a statement that failed.
fn answer_to(kind: DbErrorKind) -> (ErrorKind, &'static str) {
    match kind {
        DbErrorKind::DiskFull => (ErrorKind::Overloaded, FULL),
        DbErrorKind::Busy => (
            ErrorKind::Overloaded,
            "Another process has locked the database; nothing was changed. Try again.",
        ),
        DbErrorKind::Unreachable | DbErrorKind::Refused => (ErrorKind::DatabaseUnreachable, UNREACHABLE),
        DbErrorKind::ReadOnly => (ErrorKind::DatabaseUnreachable, READ_ONLY),
        _ => {
            (ErrorKind::Internal, "The database is not available at the moment; see the log of the gateway.")
        }
    }
}

const FULL: &str = "The disk of the state directory, or of the server of the database, is full; nothing was changed. Free space there.";
const READ_ONLY: &str = "The server of the database accepts no changes at the moment: it is a standby, or was set to be read-only. \
                         Nothing was changed. LLMGW_DATABASE_URL must lead to the primary server.";
const RETRY_SECONDS: u64 = 5;

/// A commit whose answer was lost may have happened.
const UNREACHABLE: &str = "The database cannot be reached at the moment. Read the object again before you repeat a change: it may \
                           have been made.";

impl QueryError {
    /// Returns the error for all callers that wait for the same failed statement.
    pub(crate) fn of(error: &DbError) -> Self {
        Self::Shared(error.kind())
    }
}

impl From<DbError> for QueryError {
    fn from(error: DbError) -> Self {
        match error.kind() {
            DbErrorKind::TooSlow => Self::TooSlow,
            DbErrorKind::Unreachable | DbErrorKind::Refused => Self::Unreachable,
            _ => Self::Sql(error),
        }
    }
}
