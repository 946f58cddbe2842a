//! A bounded queue of lines for a destination, and the thread that writes them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::common::bounds::LOG_LINES;
use shared::alarm::Alarm;

/// A destination of lines.
pub(super) trait LineSink: Send + 'static {
    /// Returns what the destination is called in warnings.
    fn name(&self) -> &'static str;

    /// Writes whole lines, or fails; a part of them may then have been written.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;
}

/// The queue of lines for a destination. Clones share it.
#[derive(Clone, Debug)]
pub struct LineQueue {
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
    /// Lines that were dropped since the start.
    dropped: AtomicU64,
}

/// The maximum number of bytes of queued lines.
const QUEUED_BYTES_MAX: usize = 8 << 20;
/// The number of bytes that one write collects.
const BATCH_BYTES: usize = 64 << 10;
/// The maximum time that the end of the process waits for queued lines.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);
/// The pause between attempts at a destination that cannot be written, and between warnings.
const PAUSE: Duration = Duration::from_secs(1);

impl LineQueue {
    /// Starts the thread that writes to `sink`.
    pub(super) fn start(thread: &str, sink: impl LineSink) -> io::Result<Self> {
        let (orders, waiting) = sync_channel(LOG_LINES.max());
        let backlog = Arc::<Backlog>::default();
        let writer =
            LineWriter { sink, backlog: Arc::clone(&backlog), reported: 0, failed_at: None, warned_at: None };
        // This thread may end: the gateway serves without its log.
        Alarm::default().spawn(thread, move || {
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
            LOG_LINES.reach();
        }
    }

    /// Waits until the queued lines are written, for 2 s at most.
    pub fn flush(&self) {
        let (reply, written) = sync_channel(1);
        if self.orders.try_send(LogOrder::Flush(reply)).is_ok() {
            let _ = written.recv_timeout(FLUSH_TIME_MAX);
        }
    }

    /// Returns the number of lines that were dropped since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.backlog.dropped.load(Ordering::Relaxed)
    }
}

/// The state of the thread.
struct LineWriter<S> {
    sink: S,
    backlog: Arc<Backlog>,
    /// The number of dropped lines that warnings have reported.
    reported: u64,
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

impl<S: LineSink> LineWriter<S> {
    fn run(mut self, orders: &Receiver<LogOrder>) {
        loop {
            let mut batch = Batch::default();
            match self.next(orders) {
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

    /// Waits for an order, without end unless a warning is due.
    fn next(&self, orders: &Receiver<LogOrder>) -> Result<LogOrder, RecvTimeoutError> {
        if self.reported == self.backlog.dropped.load(Ordering::Relaxed) {
            return orders.recv().map_err(|_| RecvTimeoutError::Disconnected);
        }
        orders.recv_timeout(PAUSE)
    }

    fn write(&mut self, batch: &Batch) {
        let is_pausing = self.failed_at.is_some_and(|at| at.elapsed() < PAUSE);
        if batch.lines == 0 || is_pausing {
            self.backlog.dropped.fetch_add(batch.lines, Ordering::Relaxed);
            return;
        }
        match self.sink.write(&batch.text) {
            Ok(()) => self.failed_at = None,
            Err(error) => {
                self.backlog.dropped.fetch_add(batch.lines, Ordering::Relaxed);
                if self.failed_at.replace(Instant::now()).is_none() {
                    tracing::warn!(
                        "log lines are dropped until {} can be written: {error}",
                        self.sink.name()
                    );
                }
            }
        }
    }

    /// Logs the number of dropped lines, once the destination can be written.
    fn warn(&mut self) {
        let is_pausing = self.warned_at.is_some_and(|at| at.elapsed() < PAUSE);
        let dropped = self.backlog.dropped.load(Ordering::Relaxed);
        if self.failed_at.is_some() || is_pausing || dropped == self.reported {
            return;
        }
        self.warned_at = Some(Instant::now());
        let lines = dropped.wrapping_sub(self.reported);
        self.reported = dropped;
        tracing::warn!(lines, "log lines are missing in {}", self.sink.name());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn a_full_queue_drops_lines_and_counts_them() {
        let (orders, waiting) = sync_channel(2);
        let queue = LineQueue { orders, backlog: Arc::default() };
        passes(&LOG_LINES, || (0..3).for_each(|_| queue.push("a line\n")));
        assert_eq!((queue.dropped(), queue.backlog.bytes.load(Ordering::Relaxed)), (1, 14));
        drop(waiting.recv().unwrap());
        queue.push(&"x".repeat(QUEUED_BYTES_MAX));
        assert_eq!(queue.dropped(), 2, "a line that exceeds the bytes");
        queue.push("a line\n");
        assert_eq!(queue.dropped(), 2);
    }
}
