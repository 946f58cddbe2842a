//! The state directory of one process: lock, database, keys and the usage journal, opened together.

pub(crate) mod affinity_file;
pub mod backup;
pub(crate) mod checks;
pub mod doctor;
pub mod log_lines;
pub(crate) mod offline;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use shared::port::{Capture, KeptTables, StateOrigins};
use shared::quota::Counters;
use shared::secret::Secret;
use shared::usage::UsageLog;

use crate::common::vault::VaultKeys;
use crate::db::engine::Db;
use crate::db::error::OpenError;
use crate::db::sqlite_state::files::Files;
use crate::db::sqlite_state::lock::StateLock;
use crate::db::sqlite_state::open::{JOURNAL, open};
use crate::db::sqlite_state::relocate::{UsageFiles, settle};
use crate::state::affinity_file::AffinityFile;
use crate::usage::gauge::Gauge;
use crate::usage::ingest::Meter;
use crate::usage::journal::{Inbox, Journal};
use crate::usage::origins::OriginQueue;
use crate::usage::telemetry::TelemetryQueue;

/// Parameters of [`State::open`].
#[derive(Clone, Copy, Debug)]
pub struct OpenParams<'a> {
    /// The state directory; created if it does not exist.
    pub dir: &'a Path,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`.
    pub encryption_key: &'a Secret<[u8; 32]>,
    /// `LLMGW_USAGE_DB`: true if usage is stored in a separate file. Existing usage is moved there, or back.
    pub usage_db: bool,
}

/// An opened state directory, locked by this process.
#[derive(Debug)]
pub struct State {
    lock: StateLock,
    usage: UsageFiles,
    writer: Db,
    keys: VaultKeys,
    journal: Journal,
    inbox: Inbox,
    telemetry: TelemetryQueue,
    origins: OriginQueue,
}

/// The parts of a [`State`] that the control plane uses.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) lock: StateLock,
    pub(crate) files: Files,
    pub(crate) meter: Meter,
    pub(crate) counters: Arc<Counters>,
    pub(crate) journal: Journal,
    pub(crate) keys: VaultKeys,
    pub(crate) telemetry: TelemetryQueue,
    pub(crate) origins: OriginQueue,
}

impl State {
    /// Opens the state and creates it if it does not exist. On an error nothing has been changed, except that moving
    /// the usage to its configured file may be incomplete; the next start continues it.
    pub fn open(params: OpenParams<'_>) -> Result<Self, OpenError> {
        let mut opened = open(params.dir, params.encryption_key)?;
        let usage = settle(params.dir, &mut opened.writer, params.usage_db)?;
        let dir = params.dir.join(JOURNAL);
        let (journal, inbox) =
            Journal::open(dir.clone()).map_err(|source| OpenError::Io { path: dir, source })?;
        let origins = OriginQueue::new(Arc::clone(journal.gauge()));
        Ok(Self {
            lock: opened.lock,
            usage,
            writer: opened.writer,
            keys: opened.keys,
            journal,
            inbox,
            telemetry: TelemetryQueue::new(),
            origins,
        })
    }

    /// Returns a warning about the state for the operator, if there is one.
    pub fn warning(&self) -> Option<&str> {
        self.usage.warning.as_deref()
    }

    /// Creates a usage log for one thread of the data plane; call it once for each thread.
    pub fn usage_log(&self) -> Result<Box<dyn UsageLog>, OpenError> {
        match self.journal.log() {
            Ok(log) => Ok(Box::new(log)),
            Err(source) => Err(OpenError::Io { path: self.journal.dir().into(), source }),
        }
    }

    /// Returns the port through which exchanges are captured into this state.
    pub fn capture(&self) -> Arc<dyn Capture> {
        self.telemetry.capture()
    }

    /// Returns the key of the hashes in the data plane's tables of affinity.
    pub fn affinity_key(&self) -> Secret<[u8; 32]> {
        self.keys.derived_bytes("hashes of affinity")
    }

    /// Returns the key of the hashes of stored state in usage events.
    pub fn stored_state_key(&self) -> Secret<[u8; 32]> {
        self.keys.derived_bytes("hashes of stored state")
    }

    /// Returns the port through which the data plane finds the origins of stored state.
    pub fn origins(&self) -> Arc<dyn StateOrigins> {
        self.origins.port()
    }

    /// Reads the file of affinity into `tables`, which it keeps from then on.
    pub fn keep_affinity(&self, dir: &Path, tables: Arc<dyn KeptTables>) -> AffinityFile {
        AffinityFile::load(dir, self.keys.derived("file of affinity"), tables)
    }

    pub(crate) fn into_parts(self) -> Parts {
        let gauge: Arc<Gauge> = Arc::clone(self.journal.gauge());
        let counters = Arc::new(Counters::default());
        let mut meter = Meter::new(self.writer, self.inbox, gauge, Arc::clone(&counters));
        if self.usage.is_lost {
            meter.usage_is_lost();
        }
        Parts {
            lock: self.lock,
            files: self.usage.files,
            meter,
            counters,
            journal: self.journal,
            keys: self.keys,
            telemetry: self.telemetry,
            origins: self.origins,
        }
    }
}

/// The name and size of the file that stores the usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageStore {
    /// File name within the state directory.
    pub file: String,
    /// Size in bytes, including the write-ahead log that is not yet checkpointed.
    pub bytes: u64,
}

impl UsageStore {
    /// Returns the usage store of the state in `dir`, or `None` if the directory cannot be read.
    pub fn of_state(dir: &Path) -> Option<Self> {
        Files::of(dir).ok().map(|files| Self::of(&files))
    }

    pub(crate) fn of(files: &Files) -> Self {
        let path = files.of_usage();
        let log = path.with_extension("db-wal");
        let bytes =
            [path, &log].into_iter().filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len()).sum();
        let name = path.file_name().unwrap_or_default();
        Self { file: name.to_string_lossy().into_owned(), bytes }
    }
}
