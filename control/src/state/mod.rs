//! The state of one process: the lock of its directory, the database, the keys and the usage journal, opened together.

pub(crate) mod affinity_file;
pub mod backup;
pub(crate) mod checks;
pub mod doctor;
pub mod log_lines;
pub(crate) mod offline;

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use shared::freshness::Freshness;
use shared::port::{Capture, KeptTables, ShareGrants, StateOrigins};
use shared::quota::Counters;
use shared::secret::Secret;
use shared::usage::UsageLog;

use crate::cluster::duty::Duty;
use crate::cluster::follow::Follower;
use crate::cluster::join::{JoinError, JoinParams, Joined, join};
use crate::cluster::node_file::NAME as NODE_FILE;
use crate::cluster::shares::ShareQueue;
use crate::common::node_figures::NodeFigures;
use crate::common::vault::VaultKeys;
use crate::db::engine::postgres::DatabaseAddress;
use crate::db::engine::{Db, DbError};
use crate::db::error::OpenError;
use crate::db::postgres_state;
use crate::db::sqlite_state::files::Files;
use crate::db::sqlite_state::lock::StateLock;
use crate::db::sqlite_state::open::{DATABASE, JOURNAL, make_directory, open, open_to_read, sql_error};
use crate::db::sqlite_state::relocate::settle;
use crate::db::storage::Storage;
use crate::routing::config::{SharedDatabase, Version};
use crate::state::affinity_file::AffinityFile;
use crate::usage::gauge::Gauge;
use crate::usage::ingest::Meter;
use crate::usage::journal::{Inbox, Journal};
use crate::usage::origins::OriginQueue;
use crate::usage::telemetry::TelemetryQueue;

/// The place of a state that a command examines while a gateway may run on it.
#[derive(Clone, Copy, Debug)]
pub struct StatePlace<'a> {
    /// The state directory.
    pub dir: &'a Path,
    /// `LLMGW_DATABASE_URL`, if the state is in a database of PostgreSQL.
    pub database: Option<&'a DatabaseAddress>,
}

impl StatePlace<'_> {
    /// Opens the database for reading.
    pub(crate) fn open_to_read(
        &self,
        encryption_key: &Secret<[u8; 32]>,
    ) -> Result<(Db, VaultKeys), OpenError> {
        match self.database {
            Some(address) => postgres_state::open_to_read(address, encryption_key),
            None => open_to_read(self.dir, encryption_key),
        }
    }

    /// Returns the error of a statement on this database.
    pub(crate) fn error(&self, source: DbError) -> OpenError {
        match self.database {
            Some(address) => postgres_state::database_error(address, &source),
            None => sql_error(&self.dir.join(DATABASE), source),
        }
    }
}

/// Parameters of [`State::open`].
#[derive(Clone, Copy, Debug)]
pub struct OpenParams<'a> {
    /// The state directory; created if it does not exist.
    pub dir: &'a Path,
    /// `LLMGW_CREDENTIAL_ENCRYPTION_KEY`.
    pub encryption_key: &'a Secret<[u8; 32]>,
    /// `LLMGW_USAGE_DB`: true if usage is stored in a separate file. Existing usage is moved there, or back.
    pub usage_db: bool,
    /// The database of PostgreSQL with the state, if it is in one. The directory then holds what belongs to this node.
    pub node: Option<NodeParams<'a>>,
}

/// The database that nodes share, and what this node says about itself.
#[derive(Clone, Copy)]
pub struct NodeParams<'a> {
    /// The database.
    pub database: &'a SharedDatabase,
    /// The version of this binary.
    pub release: &'a str,
    /// The content of the configuration file.
    pub file: Version,
    /// Called if the server cannot be reached at first: the start then waits for it.
    pub waits: &'a dyn Fn(),
}

impl fmt::Debug for NodeParams<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeParams").field("database", &self.database).finish_non_exhaustive()
    }
}

/// An opened state directory, locked by this process.
#[derive(Debug)]
pub struct State {
    database: Database,
    shares: Option<ShareQueue>,
    journal: Journal,
    inbox: Inbox,
    telemetry: TelemetryQueue,
    origins: OriginQueue,
}

/// The opened database.
#[derive(Debug)]
struct Database {
    lock: StateLock,
    storage: Storage,
    /// The only connection of this process that writes.
    writer: Db,
    keys: VaultKeys,
    /// A warning for the operator.
    warning: Option<String>,
    /// True if the earlier usage was lost, and with it the read positions of the journal.
    usage_is_lost: bool,
    /// This node, if others may share the database.
    joined: Option<Joined>,
}

impl Database {
    /// Opens the files of the state directory.
    fn in_files(params: OpenParams<'_>) -> Result<Self, OpenError> {
        let mut opened = open(params.dir, params.encryption_key)?;
        let usage = settle(params.dir, &mut opened.writer, params.usage_db)?;
        Ok(Self {
            lock: opened.lock,
            storage: Storage::Files(usage.files),
            writer: opened.writer,
            keys: opened.keys,
            warning: usage.warning,
            usage_is_lost: usage.is_lost,
            joined: None,
        })
    }

    /// Opens the database of PostgreSQL, and joins the nodes that share it.
    fn on_server(params: OpenParams<'_>, node: NodeParams<'_>) -> Result<Self, OpenError> {
        let NodeParams { database, release, file, waits } = node;
        let SharedDatabase { address, node_name, stale_after, migrates } = database;
        make_directory(params.dir)?;
        let lock = StateLock::take(params.dir)?;
        let path = params.dir.join(DATABASE);
        if path.exists() {
            return Err(OpenError::TwoStates { place: address.to_string(), path });
        }
        let (mut db, keys) = postgres_state::open(address, params.encryption_key, (*migrates, waits))?;
        let joining = JoinParams {
            state_dir: params.dir,
            release,
            file_digest: &file.digest(),
            name: node_name,
            key_seal: keys.seal.as_str(),
            stale_after: *stale_after,
        };
        let mut joined = join(&mut db, &joining).map_err(|error| join_error(address, params.dir, error))?;
        let (node, warning) = (joined.registered.node, joined.warning.take());
        let writer = address.connect(node.number());
        let writer = writer.map_err(|source| postgres_state::database_error(address, &source))?;
        let storage = Storage::Server { address: Box::new(address.clone()), node };
        let keys = keys.keys;
        Ok(Self { lock, storage, writer, keys, warning, usage_is_lost: false, joined: Some(joined) })
    }
}

/// Returns the error of a node that cannot join the others.
fn join_error(address: &DatabaseAddress, dir: &Path, error: JoinError) -> OpenError {
    match error {
        JoinError::File(source) => OpenError::Io { path: dir.join(NODE_FILE), source },
        JoinError::TooOld => postgres_state::too_old(address),
        JoinError::Database(source) => postgres_state::database_error(address, &source),
    }
}

/// The parts of a [`State`] that the control plane uses.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) lock: StateLock,
    pub(crate) storage: Storage,
    pub(crate) meter: Meter,
    pub(crate) counters: Arc<Counters>,
    pub(crate) journal: Journal,
    pub(crate) keys: VaultKeys,
    pub(crate) telemetry: TelemetryQueue,
    pub(crate) origins: OriginQueue,
    pub(crate) nodes: AmongNodes,
}

/// This gateway among the nodes that share its database. The default is that of a gateway with its own database: it follows no
/// changes, is always current, and does every job itself.
#[derive(Debug, Default)]
pub(crate) struct AmongNodes {
    pub(crate) follower: Option<Follower>,
    pub(crate) freshness: Freshness,
    pub(crate) duty: Duty,
    /// The shares in limits.
    pub(crate) shares: Option<ShareQueue>,
    pub(crate) figures: Option<Arc<NodeFigures>>,
}

impl AmongNodes {
    fn of(joined: Joined, shares: Option<ShareQueue>) -> Self {
        let Joined { follower, freshness, figures, registered: _, warning: _ } = joined;
        let duty = follower.duty();
        Self { follower: Some(follower), freshness, duty, shares, figures: Some(figures) }
    }
}

impl State {
    /// Opens the state and creates it if it does not exist. On an error nothing has been changed, except that moving
    /// the usage to its configured file may be incomplete; the next start continues it.
    pub fn open(params: OpenParams<'_>) -> Result<Self, OpenError> {
        let database = match params.node {
            None => Database::in_files(params)?,
            Some(node) => Database::on_server(params, node)?,
        };
        let dir = params.dir.join(JOURNAL);
        let (journal, inbox) =
            Journal::open(dir.clone()).map_err(|source| OpenError::Io { path: dir, source })?;
        let origins = OriginQueue::new(Arc::clone(journal.gauge()));
        let shares = database
            .joined
            .as_ref()
            .map(|joined| ShareQueue::new(joined.registered.fence(), Arc::clone(&joined.figures)));
        Ok(Self { database, shares, journal, inbox, telemetry: TelemetryQueue::new(), origins })
    }

    /// Returns a warning about the state for the operator, if there is one.
    pub fn warning(&self) -> Option<&str> {
        self.database.warning.as_deref()
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
        self.database.keys.derived_bytes("hashes of affinity")
    }

    /// Returns the key of the hashes of stored state in usage events.
    pub fn stored_state_key(&self) -> Secret<[u8; 32]> {
        self.database.keys.derived_bytes("hashes of stored state")
    }

    /// Returns the port through which the data plane gets larger shares of limits; `None` if this process alone uses them.
    pub fn shares(&self) -> Option<Arc<dyn ShareGrants>> {
        self.shares.as_ref().map(ShareQueue::port)
    }

    /// Returns the port through which the data plane finds the origins of stored state.
    pub fn origins(&self) -> Arc<dyn StateOrigins> {
        self.origins.port()
    }

    /// Reads the file of affinity into `tables`, which it keeps from then on.
    pub fn keep_affinity(&self, dir: &Path, tables: Arc<dyn KeptTables>) -> AffinityFile {
        AffinityFile::load(dir, self.database.keys.derived("file of affinity"), tables)
    }

    pub(crate) fn into_parts(self) -> Parts {
        let gauge: Arc<Gauge> = Arc::clone(self.journal.gauge());
        let node = self.database.joined.as_ref().map(|joined| joined.registered.node.number());
        let counters = Arc::new(node.map_or_else(Counters::default, Counters::of_node));
        let Database { lock, storage, writer, keys, warning: _, usage_is_lost, joined } = self.database;
        let mut meter = Meter::new(writer, self.inbox, gauge, Arc::clone(&counters));
        if usage_is_lost {
            meter.usage_is_lost();
        }
        if let Some(joined) = &joined {
            meter.with_fence(joined.registered.fence(), Arc::clone(&joined.figures));
        }
        Parts {
            lock,
            storage,
            meter,
            counters,
            journal: self.journal,
            keys,
            telemetry: self.telemetry,
            origins: self.origins,
            nodes: joined.map(|joined| AmongNodes::of(joined, self.shares)).unwrap_or_default(),
        }
    }
}

/// The place and size of what stores the usage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UsageStore {
    /// File name within the state directory, or the address of the database of PostgreSQL.
    pub file: String,
    /// Size in bytes, including the write-ahead log that is not yet checkpointed; null for a database of PostgreSQL.
    pub bytes: Option<u64>,
}

impl UsageStore {
    /// Returns the usage store of the state in `dir`, or `None` if the directory cannot be read.
    pub fn of_state(dir: &Path) -> Option<Self> {
        Files::of(dir).ok().map(|files| Self::of_files(&files))
    }

    pub(crate) fn of(storage: &Storage) -> Self {
        match storage {
            Storage::Files(files) => Self::of_files(files),
            Storage::Server { address, .. } => Self { file: format!("PostgreSQL at {address}"), bytes: None },
        }
    }

    fn of_files(files: &Files) -> Self {
        let path = files.of_usage();
        let log = path.with_extension("db-wal");
        let bytes =
            [path, &log].into_iter().filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len()).sum();
        let name = path.file_name().unwrap_or_default();
        Self { file: name.to_string_lossy().into_owned(), bytes: Some(bytes) }
    }
}
