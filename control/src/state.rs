//! The state directory of one process: lock, database, keys and the usage journal, opened together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use shared::quota::Counters;
use shared::secret::Secret;
use shared::usage::UsageLog;

use crate::meter::gauge::Gauge;
use crate::meter::ingest::Meter;
use crate::meter::journal::{Inbox, Journal, QUEUE_MAX};
use crate::store::error::OpenError;
use crate::store::lock::StateLock;
use crate::store::open::{JOURNAL, open};
use crate::vault::Keys;

/// What [`State::open`] needs.
#[derive(Clone, Copy, Debug)]
pub struct OpenParams<'a> {
    /// The state directory; made if it is not there.
    pub dir: &'a Path,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`.
    pub encryption_key: &'a Secret<[u8; 32]>,
}

/// An opened state directory, held by this process alone.
#[derive(Debug)]
pub struct State {
    lock: StateLock,
    path: PathBuf,
    writer: Connection,
    keys: Keys,
    journal: Journal,
    inbox: Inbox,
}

/// The pieces of a [`State`] that the control plane works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) lock: StateLock,
    pub(crate) path: PathBuf,
    pub(crate) meter: Meter,
    pub(crate) counters: Arc<Counters>,
    pub(crate) journal: Journal,
    pub(crate) keys: Keys,
}

impl State {
    /// Opens the state, making it where there is none. On an error nothing has been changed.
    pub fn open(params: OpenParams<'_>) -> Result<Self, OpenError> {
        let opened = open(params.dir, params.encryption_key)?;
        let dir = params.dir.join(JOURNAL);
        let (journal, inbox) =
            Journal::open(dir.clone(), QUEUE_MAX).map_err(|source| OpenError::Io { path: dir, source })?;
        Ok(Self {
            lock: opened.lock,
            path: opened.path,
            writer: opened.writer,
            keys: opened.keys,
            journal,
            inbox,
        })
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
        Parts {
            lock: self.lock,
            path: self.path,
            meter: Meter::new(self.writer, self.inbox, gauge, Arc::clone(&counters)),
            counters,
            journal: self.journal,
            keys: self.keys,
        }
    }
}
