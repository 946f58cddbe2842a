//! The state directory of one process: lock, database, keys and the usage journal, opened together.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use serde::Serialize;
use shared::quota::Counters;
use shared::secret::Secret;
use shared::usage::UsageLog;

use crate::meter::gauge::Gauge;
use crate::meter::ingest::Meter;
use crate::meter::journal::{Inbox, Journal};
use crate::store::error::OpenError;
use crate::store::files::Files;
use crate::store::lock::StateLock;
use crate::store::open::{JOURNAL, open};
use crate::store::relocate::{UsageFiles, settle};
use crate::vault::VaultKeys;

/// What [`State::open`] needs.
#[derive(Clone, Copy, Debug)]
pub struct OpenParams<'a> {
    /// The state directory; made if it is not there.
    pub dir: &'a Path,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`.
    pub encryption_key: &'a Secret<[u8; 32]>,
    /// `LLMGW_USAGE_DB`: whether usage is to be in a file of its own. It is moved there, or back.
    pub usage_db: bool,
}

/// An opened state directory, held by this process alone.
#[derive(Debug)]
pub struct State {
    lock: StateLock,
    usage: UsageFiles,
    writer: Connection,
    keys: VaultKeys,
    journal: Journal,
    inbox: Inbox,
}

/// The pieces of a [`State`] that the control plane works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) lock: StateLock,
    pub(crate) files: Files,
    pub(crate) meter: Meter,
    pub(crate) counters: Arc<Counters>,
    pub(crate) journal: Journal,
    pub(crate) keys: VaultKeys,
}

impl State {
    /// Opens the state, making it where there is none. On an error nothing has been changed, but that usage may be on
    /// its way to where it is wanted; the next start goes on with it.
    pub fn open(params: OpenParams<'_>) -> Result<Self, OpenError> {
        let mut opened = open(params.dir, params.encryption_key)?;
        let usage = settle(params.dir, &mut opened.writer, params.usage_db)?;
        let dir = params.dir.join(JOURNAL);
        let (journal, inbox) =
            Journal::open(dir.clone()).map_err(|source| OpenError::Io { path: dir, source })?;
        Ok(Self { lock: opened.lock, usage, writer: opened.writer, keys: opened.keys, journal, inbox })
    }

    /// What an operator should know of it.
    pub fn warning(&self) -> Option<&str> {
        self.usage.warning.as_deref()
    }

    /// A usage log for one thread of the data plane; as many as there are threads.
    pub fn usage_log(&self) -> Result<Box<dyn UsageLog>, OpenError> {
        match self.journal.log() {
            Ok(log) => Ok(Box::new(log)),
            Err(source) => Err(OpenError::Io { path: self.journal.dir().into(), source }),
        }
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
        }
    }
}

/// The file that holds the usage, and how large it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsageStore {
    /// Its name in the state directory.
    pub file: String,
    /// With what is not yet moved into it from its log.
    pub bytes: u64,
}

impl UsageStore {
    /// The one of the state in `dir`; none where that cannot be read.
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
