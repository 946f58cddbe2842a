//! Watches the configuration file and publishes its providers and endpoints when it changes (CFG-5).
//!
//! A file that is not good leaves the last good snapshot current. A change is only read once the file has been
//! the same for a whole pause, so that an editor in the middle of writing is not taken at its word.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shared::clock::unix_ms;
use shared::health::Board;
use shared::secret::Secret;
use shared::snapshot::SnapshotPublisher;

use super::snapshot;
use crate::config::{Config, Routing, Version};

/// What came of the last attempts to read the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadStatus {
    /// When the file was last read and found good, in milliseconds since the Unix epoch.
    pub last_ok_at_ms: u64,
    /// When the current content was found bad, and why; none while it is good.
    pub last_error: Option<(u64, String)>,
    /// How often a changed file has been published.
    pub reloads: u64,
}

/// The status, shared with whoever shows it.
#[derive(Clone, Debug, Default)]
pub struct StatusCell(Arc<Mutex<ReloadStatus>>);

impl StatusCell {
    /// The status now.
    pub fn read(&self) -> ReloadStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut ReloadStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Publishes the configuration: once at start, then whenever the file has changed.
#[derive(Debug)]
pub struct Reloader {
    config: Arc<Config>,
    board: Arc<Board>,
    key_hash_key: Secret<[u8; 32]>,
    publisher: SnapshotPublisher,
    status: StatusCell,
    /// The content that was last read.
    version: Version,
    /// How the file looked when it was last read.
    read: Stamp,
    /// The file as it was at the last look, where that differs.
    moving: Option<Stamp>,
}

/// What one look at the file led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing has changed since it was read.
    Same,
    /// It has changed and may still be changing.
    Moving,
    /// It was read, was good, and is published.
    Published,
    /// It was read and is not good; the last good snapshot stays.
    Refused,
}

impl Reloader {
    /// Publishes `config` as the next generation and remembers how the file looks now.
    pub fn start(
        config: Arc<Config>,
        board: Arc<Board>,
        key_hash_key: Secret<[u8; 32]>,
        publisher: SnapshotPublisher,
    ) -> Self {
        let reloader = Self {
            version: config.version,
            config,
            board,
            key_hash_key,
            publisher,
            status: StatusCell::default(),
            // Unlike any file, so that the first looks read once more and find what has changed since.
            read: Stamp { inode: u64::MAX, ..Stamp::default() },
            moving: None,
        };
        reloader.publish(&reloader.config.routing);
        reloader.status.change(|status| status.last_ok_at_ms = unix_ms());
        reloader
    }

    /// Where the status can be read while the reloader runs.
    pub fn status(&self) -> StatusCell {
        self.status.clone()
    }

    /// Looks at the file every half second, for as long as the future is polled.
    pub async fn run(mut self) {
        loop {
            tokio::time::sleep(PAUSE).await;
            self.look();
        }
    }

    /// Looks once.
    pub fn look(&mut self) -> Look {
        let now = Stamp::of(&self.config.file);
        if now == self.read {
            self.moving = None;
            return Look::Same;
        }
        if self.moving != Some(now) {
            self.moving = Some(now);
            return Look::Moving;
        }
        self.moving = None;
        self.read = now;
        self.take()
    }

    fn take(&mut self) -> Look {
        let again = self.config.read_again();
        if again.version == self.version {
            return Look::Same;
        }
        self.version = again.version;
        match again.result {
            Ok((routing, warnings)) => {
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                self.publish(&routing);
                let generation = self.publisher.generation();
                tracing::info!(generation, "the configuration file has changed and is in force");
                self.status.change(|status| {
                    status.last_ok_at_ms = unix_ms();
                    status.last_error = None;
                    status.reloads += 1;
                });
                Look::Published
            }
            Err(error) => {
                tracing::error!(
                    "the configuration file has changed and is not good; the last good one stays in force: {error}"
                );
                self.status.change(|status| status.last_error = Some((unix_ms(), error.to_string())));
                Look::Refused
            }
        }
    }

    fn publish(&self, routing: &Routing) {
        let generation = self.publisher.generation() + 1;
        let next = snapshot(&self.config, routing, generation, &self.board, &self.key_hash_key);
        self.publisher.publish(next);
    }
}

/// What changes when a file does. The change time is set by the system, so a writer cannot keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    present: bool,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Path) -> Self {
        fs::metadata(file).map_or_else(
            |_| Self::default(),
            |meta| Self {
                present: true,
                inode: meta.ino(),
                bytes: meta.len(),
                modified: (meta.mtime(), meta.mtime_nsec()),
                changed: (meta.ctime(), meta.ctime_nsec()),
            },
        )
    }
}

const PAUSE: Duration = Duration::from_millis(500);
