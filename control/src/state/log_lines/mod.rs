//! The destinations of log lines: stderr, and files in the state directory if they are on (STATE-1).
//!
//! Each destination has a queue and a thread that writes. No caller waits for a pipe, a terminal or a disk: a line that
//! finds the queue full, or that cannot be written, is dropped and counted.

mod queue;
mod rolling;
mod stream;

use std::io;
use std::path::Path;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use shared::clock;

pub use self::queue::LineQueue;
use self::queue::LineSink;
use self::rolling::RollingFile;
use self::stream::StandardStream;
use crate::db::sqlite_state::open::make_directory;

/// The destinations of the log lines of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct LogLines {
    stderr: LineQueue,
    files: Option<LineQueue>,
}

impl LogLines {
    /// Sends the lines to `stderr` and, if `state_dir` is given, to files in its folder `logs`, which is created.
    pub fn new(stderr: LineQueue, state_dir: Option<&Path>) -> io::Result<Self> {
        let files = state_dir.map(|dir| -> io::Result<LineQueue> {
            let folder = dir.join(FOLDER);
            make_directory(&folder).map_err(io::Error::other)?;
            LineQueue::start("llmgw-log", LogFiles(RollingFile::new(folder)))
        });
        Ok(Self { stderr, files: files.transpose()? })
    }

    /// Queues a line, which contains its end, at each destination.
    pub fn push(&self, line: &str) {
        self.queues().for_each(|(_, queue)| queue.push(line));
    }

    /// Waits until the queued lines are written, for 2 s at each destination at most.
    pub fn flush(&self) {
        self.queues().for_each(|(_, queue)| queue.flush());
    }

    /// Returns each destination and the number of lines that are missing there.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.queues().map(|(name, queue)| (name, queue.dropped()))
    }

    fn queues(&self) -> impl Iterator<Item = (&'static str, &LineQueue)> {
        [Some(("stderr", &self.stderr)), self.files.as_ref().map(|files| ("file", files))]
            .into_iter()
            .flatten()
    }
}

/// Starts the thread that writes to stderr.
pub fn to_stderr() -> io::Result<LineQueue> {
    LineQueue::start("llmgw-stderr", StandardStream::new(io::stderr(), "stderr"))
}

/// Starts the thread that writes to stdout.
pub fn to_stdout() -> io::Result<LineQueue> {
    LineQueue::start("llmgw-stdout", StandardStream::new(io::stdout(), "stdout"))
}

/// The log files as the destination of a queue.
struct LogFiles(RollingFile);

impl LineSink for LogFiles {
    fn name(&self) -> &'static str {
        "the log files"
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.0.write(lines, today())
    }
}

/// Returns the date in UTC, in which the times of the lines are written.
fn today() -> Date {
    let now = i64::try_from(clock::unix_ms()).unwrap_or_default();
    Timestamp::from_millisecond(now).unwrap_or_default().to_zoned(TimeZone::UTC).date()
}

/// The name of the folder in the state directory.
const FOLDER: &str = "logs";
