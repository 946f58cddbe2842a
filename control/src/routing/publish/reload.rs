//! Watches the configuration file, and the files with secrets that it names, and passes its providers and endpoints to the
//! publisher when one of them changes (CFG-5).
//!
//! An invalid file leaves the last good snapshot current. A change is read only after the file has been unchanged for a
//! whole polling interval, so that a partial write of an editor is not taken in.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, TrySendError, bounded};
use shared::alarm::Alarm;
use shared::clock::unix_ms;

use crate::routing::config::{Config, Routing, SecretFiles, Version};

/// The status of the configuration file and its last reloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadStatus {
    /// When the file was last read and valid, in milliseconds since the Unix epoch.
    pub(crate) last_ok_at_ms: u64,
    /// When the current content was found invalid, and the error; `None` while it is valid.
    pub(crate) last_error: Option<(u64, String)>,
    /// The number of changed files that were published.
    pub(crate) reloads: u64,
    /// The content that was last passed on for publication.
    pub(crate) in_force: Option<Version>,
    /// The start of the check that is still running.
    began_at_ms: Option<u64>,
}

/// The status, shared with the admin API.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusCell(Arc<Mutex<ReloadStatus>>);

impl StatusCell {
    /// Returns the current status. A check that runs longer than `LOOK_MS_MAX` is reported as an error: its file system
    /// hangs.
    pub(crate) fn read(&self) -> ReloadStatus {
        let mut status = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(began_at_ms) = status.began_at_ms
            && unix_ms().saturating_sub(began_at_ms) > LOOK_MS_MAX
        {
            status.last_error = Some((began_at_ms, HANGS.to_owned()));
        }
        status
    }

    fn change(&self, change: impl FnOnce(&mut ReloadStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Accepts providers and endpoints of a changed file for publication, and calls the report once they are in force.
/// Returns false if it cannot accept them now; the caller retries.
pub(crate) type Sink = Box<dyn FnMut(Routing, ReloadReport) -> bool + Send>;

/// Reports that a changed file is in force.
pub(crate) type ReloadReport = Box<dyn FnOnce() + Send>;

/// Checks the file and passes on valid changes.
pub(crate) struct Reloader {
    config: Arc<Config>,
    sink: Sink,
    status: StatusCell,
    /// The content that was last read; `None` forces the next read to pass it on even if it is the same.
    version: Option<Version>,
    /// The secrets that were last read.
    secret_files: SecretFiles,
    /// The content that was last passed on.
    in_force: Version,
    /// The stamps of the files when they were last read; `None` forces a read.
    read: Option<FileStamps>,
    /// The stamps at the last check, if they differ from those of the last read.
    moving: Option<FileStamps>,
}

/// A handle to the reloader's thread, which ends after this is dropped. A read from a hanging file system blocks
/// neither the drop nor another thread.
#[derive(Debug)]
pub(crate) struct Reloading {
    wake: Sender<()>,
}

impl Reloading {
    /// Triggers a reload now.
    pub(crate) fn reload(&self) {
        match self.wake.try_send(()) {
            // The channel is full: an earlier request is still pending.
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }
}

/// The result of one check of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileCheck {
    /// Unchanged since it was last read.
    Same,
    /// Changed, and possibly still being written.
    Moving,
    /// Read, valid, and passed on for publication.
    HandedOn,
    /// Read and invalid; the last good snapshot stays current.
    Refused,
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Reloader {
    /// Creates a reloader for the file of `config`, whose content is published already.
    pub(crate) fn new(config: Arc<Config>, sink: Sink) -> Self {
        let reloader = Self {
            version: Some(config.version),
            secret_files: config.secret_files.clone(),
            in_force: config.version,
            config,
            sink,
            status: StatusCell::default(),
            // The first checks read the file again and find changes since start-up.
            read: None,
            moving: None,
        };
        reloader.status.change(|status| {
            status.last_ok_at_ms = unix_ms();
            status.in_force = Some(reloader.in_force);
        });
        reloader
    }

    /// Returns a handle to the status for use while the reloader runs.
    pub(crate) fn status(&self) -> StatusCell {
        self.status.clone()
    }

    /// Starts the thread that checks the file every half second.
    pub(crate) fn start(mut self, alarm: &Alarm) -> io::Result<Reloading> {
        let (wake, woken) = bounded(1);
        alarm.spawn("llmgw-reload", move || {
            loop {
                let woken = woken.recv_timeout(PAUSE);
                self.status.change(|status| status.began_at_ms = Some(unix_ms()));
                match woken {
                    Ok(()) => self.survive(Self::reload),
                    Err(RecvTimeoutError::Timeout) => self.survive(Self::look),
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
                self.status.change(|status| status.began_at_ms = None);
            }
        })?;
        Ok(Reloading { wake })
    }

    /// Runs a check. A panic in it, as of a random source that fails, ends neither the thread nor the process: the last valid
    /// configuration stays current, and the file is read again.
    pub(crate) fn survive(&mut self, check: fn(&mut Self) -> FileCheck) {
        if catch_unwind(AssertUnwindSafe(|| check(self))).is_ok() {
            return;
        }
        self.read = None;
        self.version = None;
        let error = self.status.read().last_error;
        if error.is_none_or(|(_, known)| known != PANICKED) {
            tracing::error!("{PANICKED}");
            self.status.change(|status| status.last_error = Some((unix_ms(), PANICKED.to_owned())));
        }
    }

    /// Reads the file and passes it on even if it looks unchanged: a file beside it may have changed.
    pub(crate) fn reload(&mut self) -> FileCheck {
        self.moving = None;
        self.read = Some(self.stamps());
        self.version = None;
        self.take()
    }

    /// Checks the files once.
    pub(crate) fn look(&mut self) -> FileCheck {
        let now = self.stamps();
        if self.read.as_ref() == Some(&now) {
            self.moving = None;
            return FileCheck::Same;
        }
        if self.moving.as_ref() != Some(&now) {
            self.moving = Some(now);
            return FileCheck::Moving;
        }
        self.moving = None;
        self.read = Some(now);
        self.take()
    }

    /// Returns the stamps of the configuration file and of the files with secrets that it named when it was last read.
    fn stamps(&self) -> FileStamps {
        let secret_files = self.secret_files.paths();
        std::iter::once(self.config.file.as_path()).chain(secret_files).map(FileStamp::of).collect()
    }

    fn take(&mut self) -> FileCheck {
        let again = self.config.read_again(self.in_force);
        let is_same = Some(again.version) == self.version && again.secret_files == self.secret_files;
        self.secret_files = again.secret_files;
        if is_same {
            return FileCheck::Same;
        }
        match again.result {
            Ok((routing, warnings)) => {
                let report = self.report(warnings);
                if !(self.sink)(routing, report) {
                    // Treat the files as unread, so that the next check retries.
                    self.read = None;
                    self.version = None;
                    return FileCheck::Moving;
                }
                self.version = Some(again.version);
                self.in_force = again.version;
                self.status.change(|status| status.in_force = Some(again.version));
                FileCheck::HandedOn
            }
            Err(error) => {
                self.version = Some(again.version);
                tracing::error!(
                    "the changed configuration file is invalid; the last valid configuration stays in \
                     effect: {error}"
                );
                self.status.change(|status| status.last_error = Some((unix_ms(), error.to_string())));
                FileCheck::Refused
            }
        }
    }
}

impl Reloader {
    fn report(&self, warnings: Vec<String>) -> ReloadReport {
        let (status, read_at_ms) = (self.status.clone(), unix_ms());
        Box::new(move || {
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            tracing::info!("the changed configuration file is in effect");
            status.change(|status| {
                status.last_ok_at_ms = unix_ms();
                // The file may have changed again since and be invalid; keep that error.
                status.last_error = status.last_error.take().filter(|(at_ms, _)| *at_ms > read_at_ms);
                status.reloads += 1;
            });
        })
    }
}

/// The stamps of several files, in a fixed order.
type FileStamps = Vec<FileStamp>;

/// File metadata that differs after a write. The system sets the change time, so a writer cannot preserve it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FileStamp {
    present: bool,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
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

/// A check that takes longer than this, in milliseconds, counts as hanging; a check usually takes microseconds.
const LOOK_MS_MAX: u64 = 10_000;
const HANGS: &str = "reading the configuration file takes more than 10 s: its file system does not respond";
const PANICKED: &str = "reading the configuration file failed with a panic; the last valid configuration stays in effect, and the \
                        file is read again";
const PAUSE: Duration = Duration::from_millis(500);
