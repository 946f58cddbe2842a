//! Log files in the state directory: the lines of stderr, a file a day, in `logs` (STATE-1).
//!
//! Lines are queued for a thread, which writes them. No caller waits for the disk: a line that finds the queue full, or that
//! cannot be written, is dropped and counted. A warning reports their number as soon as lines can be written again.
//!
//! The crate `tracing-appender` limits neither the size of a file nor its permissions, so this is written here.

mod rolling;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use shared::alarm::Alarm;
use shared::clock;

use self::rolling::RollingFile;
use crate::db::open::make_directory;

/// The queue of lines for the log files. Clones share it.
#[derive(Clone, Debug)]
pub struct LogFiles {
    orders: SyncSender<LogOrder>,
    backlog: Arc<Backlog>,
}

#[derive(Debug)]
enum LogOrder {
    Line(Box<[u8]>),
    /// Reply when all lines before have been written or dropped.
    Flush(SyncSender<()>),
}

#[derive(Debug, Default)]
struct Backlog {
    /// Bytes of the lines in the queue.
    bytes: AtomicUsize,
    /// Lines that were dropped since the last warning.
    dropped: AtomicU64,
}

/// The maximum number of queued lines and flushes.
const QUEUED_MAX: usize = 4_096;
/// The maximum number of bytes of queued lines.
const QUEUED_BYTES_MAX: usize = 8 << 20;
/// The number of bytes that one write collects.
const BATCH_BYTES: usize = 64 << 10;
/// The maximum time that the end of the process waits for queued lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);
/// The pause between attempts at a file that cannot be written, and between warnings.
const PAUSE: Duration = Duration::from_secs(1);

impl LogFiles {
    /// Creates `logs` in the state directory `dir`, and starts the thread that writes there.
    pub fn start(dir: &Path) -> io::Result<Self> {
        let folder = dir.join(FOLDER);
        make_directory(&folder).map_err(io::Error::other)?;
        let (orders, waiting) = sync_channel(QUEUED_MAX);
        let backlog = Arc::<Backlog>::default();
        let writer = LogWriter {
            file: RollingFile::new(folder),
            backlog: Arc::clone(&backlog),
            failed_at: None,
            warned_at: None,
        };
        // This thread may end: the gateway serves without log files.
        Alarm::default().spawn("llmgw-log", move || {
            writer.run(&waiting);
            Ok(())
        })?;
        Ok(Self { orders, backlog })
    }

    /// Queues a line, which contains its end, or drops and counts it.
    pub fn push(&self, line: &str) {
        let queued = self.backlog.bytes.fetch_add(line.len(), Ordering::Relaxed);
        let fits = queued.saturating_add(line.len()) <= QUEUED_BYTES_MAX;
        if !fits || self.orders.try_send(LogOrder::Line(line.as_bytes().into())).is_err() {
            self.backlog.bytes.fetch_sub(line.len(), Ordering::Relaxed);
            self.backlog.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the queued lines are written, for 2 s at most.
    pub fn flush(&self) {
        let (reply, written) = sync_channel(1);
        if self.orders.try_send(LogOrder::Flush(reply)).is_ok() {
            let _ = written.recv_timeout(FLUSH_TIME_MAX);
        }
    }
}

/// The state of the thread.
struct LogWriter {
    file: RollingFile,
    backlog: Arc<Backlog>,
    /// The time of the last failed write, if the last write failed.
    failed_at: Option<Instant>,
    warned_at: Option<Instant>,
}

/// Lines that are written together, and the flushes among them.
#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    lines: u64,
    flushes: Vec<SyncSender<()>>,
}

impl LogWriter {
    fn run(mut self, orders: &Receiver<LogOrder>) {
        loop {
            let mut batch = Batch::default();
            match orders.recv_timeout(PAUSE) {
                Ok(order) => batch.take(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while batch.text.len() < BATCH_BYTES
                && let Ok(order) = orders.try_recv()
            {
                batch.take(order);
            }
            self.backlog.bytes.fetch_sub(batch.text.len(), Ordering::Relaxed);
            self.write(&batch);
            for flush in batch.flushes {
                let _ = flush.send(());
            }
            self.warn();
        }
    }

    fn write(&mut self, batch: &Batch) {
        let is_pausing = self.failed_at.is_some_and(|at| at.elapsed() < PAUSE);
        if batch.lines == 0 || is_pausing {
            self.backlog.dropped.fetch_add(batch.lines, Ordering::Relaxed);
            return;
        }
        match self.file.write(&batch.text, today()) {
            Ok(()) => self.failed_at = None,
            Err(error) => {
                self.backlog.dropped.fetch_add(batch.lines, Ordering::Relaxed);
                if self.failed_at.replace(Instant::now()).is_none() {
                    tracing::warn!("log lines are dropped until the log file can be written: {error}");
                }
            }
        }
    }

    /// Logs the number of dropped lines, once the file can be written.
    fn warn(&mut self) {
        let is_pausing = self.warned_at.is_some_and(|at| at.elapsed() < PAUSE);
        if self.failed_at.is_some() || is_pausing {
            return;
        }
        let lines = self.backlog.dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            self.warned_at = Some(Instant::now());
            tracing::warn!(lines, "log lines are missing in the log files");
        }
    }
}

impl Batch {
    fn take(&mut self, order: LogOrder) {
        match order {
            LogOrder::Line(line) => {
                self.text.extend_from_slice(&line);
                self.lines += 1;
            }
            LogOrder::Flush(reply) => self.flushes.push(reply),
        }
    }
}

/// Returns the date in UTC, in which the times of the lines are written.
fn today() -> Date {
    let now = i64::try_from(clock::unix_ms()).unwrap_or_default();
    Timestamp::from_millisecond(now).unwrap_or_default().to_zoned(TimeZone::UTC).date()
}

/// The name of the folder in the state directory.
const FOLDER: &str = "logs";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_lines_and_counts_them() {
        let (orders, waiting) = sync_channel(2);
        let files = LogFiles { orders, backlog: Arc::default() };
        let dropped = || files.backlog.dropped.load(Ordering::Relaxed);
        for _ in 0..3 {
            files.push("a line\n");
        }
        assert_eq!((dropped(), files.backlog.bytes.load(Ordering::Relaxed)), (1, 14));
        drop(waiting.recv().unwrap());
        files.push(&"x".repeat(QUEUED_BYTES_MAX));
        assert_eq!(dropped(), 2, "a line that exceeds the bytes");
        files.push("a line\n");
        assert_eq!(dropped(), 2);
    }
}
