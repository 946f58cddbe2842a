//! Watches the configuration file and hands its providers and endpoints on when it changes (CFG-5).
//!
//! A file that is not good leaves the last good snapshot current. A change is only read once the file has been
//! the same for a whole pause, so that an editor in the middle of writing is not taken at its word.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, TrySendError, bounded};
use shared::alarm::Alarm;
use shared::clock::unix_ms;

use crate::config::{Config, Routing, Version};

/// What came of the last attempts to read the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadStatus {
    /// When the file was last read and found good, in milliseconds since the Unix epoch.
    pub(crate) last_ok_at_ms: u64,
    /// When the current content was found bad, and why; none while it is good.
    pub(crate) last_error: Option<(u64, String)>,
    /// How often a changed file has been published.
    pub(crate) reloads: u64,
    /// When the look at the file began that has not ended yet.
    began_at_ms: Option<u64>,
}

/// The status, shared with whoever shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusCell(Arc<Mutex<ReloadStatus>>);

impl StatusCell {
    /// The status now. A look that does not end counts as an error: its file system hangs.
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

/// Takes providers and endpoints of a changed file, to be published, and calls the report once they are. Returns
/// false if it cannot take them now and is to be asked again.
pub(crate) type Sink = Box<dyn FnMut(Routing, ReloadReport) -> bool + Send>;

/// Reports that a changed file is in force.
pub(crate) type ReloadReport = Box<dyn FnOnce() + Send>;

/// Looks at the file and hands on what is new and good.
pub(crate) struct Reloader {
    config: Arc<Config>,
    sink: Sink,
    status: StatusCell,
    /// The content that was last read; none if it must be taken though it is the same.
    version: Option<Version>,
    /// How the file looked when it was last read; none if it is to be read in any case.
    read: Option<FileStamp>,
    /// The file as it was at the last look, where that differs.
    moving: Option<FileStamp>,
}

/// The reloader's thread. It ends after this is dropped; a read from a file system that hangs holds up neither that nor
/// any other thread.
#[derive(Debug)]
pub(crate) struct Reloading {
    wake: Sender<()>,
}

impl Reloading {
    /// Has the file read now.
    pub(crate) fn reload(&self) {
        match self.wake.try_send(()) {
            // A full channel: the thread has not begun with an earlier request.
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }
}

/// What one look at the file led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing has changed since it was read.
    Same,
    /// It has changed and may still be changing.
    Moving,
    /// It was read, was good, and is being published.
    HandedOn,
    /// It was read and is not good; the last good snapshot stays.
    Refused,
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Reloader {
    /// A reloader for the file of `config`, whose content is published already.
    pub(crate) fn new(config: Arc<Config>, sink: Sink) -> Self {
        let reloader = Self {
            version: Some(config.version),
            config,
            sink,
            status: StatusCell::default(),
            // The first looks read once more and find what has changed since.
            read: None,
            moving: None,
        };
        reloader.status.change(|status| status.last_ok_at_ms = unix_ms());
        reloader
    }

    /// Where the status can be read while the reloader runs.
    pub(crate) fn status(&self) -> StatusCell {
        self.status.clone()
    }

    /// Starts the thread that looks at the file every half second.
    pub(crate) fn start(mut self, alarm: &Alarm) -> io::Result<Reloading> {
        let (wake, woken) = bounded(1);
        alarm.spawn("llmgw-reload", move || {
            loop {
                let woken = woken.recv_timeout(PAUSE);
                self.status.change(|status| status.began_at_ms = Some(unix_ms()));
                match woken {
                    Ok(()) => _ = self.reload(),
                    Err(RecvTimeoutError::Timeout) => _ = self.look(),
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
                self.status.change(|status| status.began_at_ms = None);
            }
        })?;
        Ok(Reloading { wake })
    }

    /// Reads the file and publishes what it says, though it looks unchanged: a file beside it may have changed.
    pub(crate) fn reload(&mut self) -> Look {
        self.moving = None;
        self.read = Some(FileStamp::of(&self.config.file));
        self.version = None;
        self.take()
    }

    /// Looks once.
    pub(crate) fn look(&mut self) -> Look {
        let now = FileStamp::of(&self.config.file);
        if self.read == Some(now) {
            self.moving = None;
            return Look::Same;
        }
        if self.moving != Some(now) {
            self.moving = Some(now);
            return Look::Moving;
        }
        self.moving = None;
        self.read = Some(now);
        self.take()
    }

    fn take(&mut self) -> Look {
        let again = self.config.read_again();
        if Some(again.version) == self.version {
            return Look::Same;
        }
        match again.result {
            Ok((routing, warnings)) => {
                let report = self.report(warnings);
                if !(self.sink)(routing, report) {
                    // As if it had not been read.
                    self.read = None;
                    return Look::Moving;
                }
                self.version = Some(again.version);
                Look::HandedOn
            }
            Err(error) => {
                self.version = Some(again.version);
                tracing::error!(
                    "the configuration file has changed and is not good; the last good one stays in force: {error}"
                );
                self.status.change(|status| status.last_error = Some((unix_ms(), error.to_string())));
                Look::Refused
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
            tracing::info!("the configuration file has changed and is in force");
            status.change(|status| {
                status.last_ok_at_ms = unix_ms();
                // The file may have been changed again meanwhile, and be no good.
                status.last_error = status.last_error.take().filter(|(at_ms, _)| *at_ms > read_at_ms);
                status.reloads += 1;
            });
        })
    }
}

/// What changes when a file does. The change time is set by the system, so a writer cannot keep it.
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

/// A look takes microseconds.
const LOOK_MS_MAX: u64 = 10_000;
const HANGS: &str =
    "the configuration file is being read for more than 10 s: its file system does not answer";
const PAUSE: Duration = Duration::from_millis(500);
