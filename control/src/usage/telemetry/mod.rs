//! The thread that owns `telemetry.db` (STATE-1): it stores changes of circuits, and captured exchanges
//! (CFG-7).
//!
//! A captured exchange is collected in memory by the data plane and handed over when its last part is dropped. A worker never
//! waits for this thread: if the queue is full, the exchange is dropped and counted.

mod changes;
mod circuits;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use shared::alarm::Alarm;
use shared::clock;
use shared::port::{Capture, ExchangeTap, Side};
use shared::snapshot::SnapshotReader;
use tokio::sync::oneshot;

pub(crate) use self::changes::ChangeQuestion;
use self::changes::ChangeWatch;
use crate::common::bounds::TELEMETRY_ORDERS;
use crate::common::recorded::{Allowance, RecordedExchange, Sides};
use crate::common::vault::{SealPlace, VaultKeys};
use crate::db::circuit_changes::CircuitChange;
use crate::db::engine::{DbErrorKind, DbResult};
use crate::db::telemetry::{CapturedRow, TelemetryDb};

/// Reaches the thread of `telemetry.db`; cloneable.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    orders: Sender<TelemetryOrder>,
    dropped: Arc<AtomicU64>,
}

/// An order to the thread.
#[derive(Debug)]
pub(crate) enum TelemetryOrder {
    Keep(Box<Captured>),
    Find(String, oneshot::Sender<Option<RecordedExchange>>),
    Changes(Box<ChangeQuestion>, oneshot::Sender<Option<Vec<CircuitChange>>>),
    /// Execute what was ordered before, and stop.
    Stop,
}

/// An exchange that has ended.
#[derive(Debug)]
pub(crate) struct Captured {
    request_id: Box<str>,
    at_ms: u64,
    sides: Sides,
}

/// The thread before its start. Exchanges that are captured already wait in its queue.
#[derive(Debug)]
pub(crate) struct TelemetryQueue {
    telemetry: Telemetry,
    orders: Receiver<TelemetryOrder>,
}

/// The maximum number of bytes of captured exchanges in memory.
const MEMORY_BYTES_MAX: usize = 64 << 20;
/// The interval of deletion, of warnings, and of attempts to open the database.
const INTERVAL: Duration = Duration::from_secs(60);
/// The interval of looks at circuits.
const TICK: Duration = Duration::from_secs(1);

impl TelemetryQueue {
    pub(crate) fn new() -> Self {
        let (sender, orders) = bounded(TELEMETRY_ORDERS.max());
        Self { telemetry: Telemetry { orders: sender, dropped: Arc::default() }, orders }
    }

    /// Returns the port through which the data plane begins captures.
    pub(crate) fn capture(&self) -> Arc<dyn Capture> {
        let memory = Arc::new(AtomicUsize::new(MEMORY_BYTES_MAX));
        Arc::new(BodyCapture { telemetry: self.telemetry.clone(), memory })
    }

    /// Starts the thread for the state in `dir`.
    pub(crate) fn start(
        self,
        (dir, keys): (&Path, &Arc<VaultKeys>),
        snapshots: &SnapshotReader,
        alarm: &Alarm,
    ) -> io::Result<(Telemetry, TelemetryThread)> {
        let Self { telemetry, orders } = self;
        let keeper = TelemetryState {
            dir: dir.to_owned(),
            keys: Arc::clone(keys),
            db: None,
            opened_at: None,
            dropped: Arc::clone(&telemetry.dropped),
            changes: ChangeWatch::new(snapshots),
        };
        let thread = alarm.spawn("llmgw-telemetry", move || {
            keeper.run(&orders);
            Ok(())
        })?;
        let thread = TelemetryThread { thread, orders: telemetry.orders.clone() };
        Ok((telemetry, thread))
    }
}

impl Telemetry {
    /// Returns the newest captured exchange with this request id.
    pub(crate) async fn find(&self, request_id: String) -> Option<RecordedExchange> {
        let (reply, found) = oneshot::channel();
        self.orders.try_send(TelemetryOrder::Find(request_id, reply)).ok()?;
        found.await.ok()?
    }

    /// Returns changes of circuits, the latest first; `None` if the database cannot be read.
    pub(crate) async fn changes(&self, question: ChangeQuestion) -> Option<Vec<CircuitChange>> {
        let (reply, found) = oneshot::channel();
        self.orders.try_send(TelemetryOrder::Changes(Box::new(question), reply)).ok()?;
        found.await.ok()?
    }

    fn keep(&self, captured: Box<Captured>) {
        if self.orders.try_send(TelemetryOrder::Keep(captured)).is_err() {
            TELEMETRY_ORDERS.reach();
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
struct BodyCapture {
    telemetry: Telemetry,
    /// The bytes that captured exchanges may still take in memory.
    memory: Arc<AtomicUsize>,
}

impl Capture for BodyCapture {
    fn begin(&self, request_id: &str) -> Arc<dyn ExchangeTap> {
        Arc::new(CapturedExchange {
            request_id: request_id.into(),
            at_ms: clock::unix_ms(),
            began: Instant::now(),
            sides: Mutex::new(Sides::new(Allowance::of(&self.memory))),
            telemetry: self.telemetry.clone(),
        })
    }
}

/// An exchange that is being captured. It is handed over when it is dropped.
#[derive(Debug)]
struct CapturedExchange {
    request_id: Box<str>,
    at_ms: u64,
    began: Instant,
    /// Locked by the one worker of the exchange only.
    sides: Mutex<Sides>,
    telemetry: Telemetry,
}

impl ExchangeTap for CapturedExchange {
    fn begin(&self, side: Side, head: String) {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner).begin(side, head);
    }

    fn piece(&self, side: Side, piece: &Bytes) {
        let at_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.sides.lock().unwrap_or_else(PoisonError::into_inner).piece(side, at_us, piece);
    }
}

impl Drop for CapturedExchange {
    fn drop(&mut self) {
        let sides = std::mem::take(self.sides.get_mut().unwrap_or_else(PoisonError::into_inner));
        let request_id = std::mem::take(&mut self.request_id);
        self.telemetry.keep(Box::new(Captured { request_id, at_ms: self.at_ms, sides }));
    }
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct TelemetryThread {
    thread: JoinHandle<()>,
    orders: Sender<TelemetryOrder>,
}

/// The state of the thread.
struct TelemetryState {
    dir: PathBuf,
    keys: Arc<VaultKeys>,
    /// `None` while the database cannot be opened.
    db: Option<TelemetryDb>,
    opened_at: Option<Instant>,
    dropped: Arc<AtomicU64>,
    changes: ChangeWatch,
}

impl TelemetryThread {
    /// Stores what is queued, and ends the thread.
    pub(crate) fn stop(self) {
        if self.orders.send(TelemetryOrder::Stop).is_err() || self.thread.join().is_err() {
            tracing::error!("the telemetry thread had ended unexpectedly");
        }
    }
}

impl TelemetryState {
    fn run(mut self, orders: &Receiver<TelemetryOrder>) {
        self.prune();
        let mut pruned_at = Instant::now();
        let mut looked_at = Instant::now();
        loop {
            match orders.recv_timeout(TICK) {
                Ok(TelemetryOrder::Keep(captured)) => self.keep(*captured),
                Ok(TelemetryOrder::Find(request_id, reply)) => {
                    let _ = reply.send(self.find(&request_id));
                }
                Ok(TelemetryOrder::Changes(question, reply)) => {
                    let _ = reply.send(self.found(&question));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(TelemetryOrder::Stop) | Err(RecvTimeoutError::Disconnected) => return self.finish(),
            }
            if looked_at.elapsed() >= TICK {
                looked_at = Instant::now();
                self.changes.look();
                let due = self.changes.due();
                self.store(due);
            }
            if pruned_at.elapsed() >= INTERVAL {
                pruned_at = Instant::now();
                self.prune();
            }
        }
    }

    /// Stores the changes that are left.
    fn finish(mut self) {
        self.changes.look();
        let rest = self.changes.rest();
        self.store(rest);
    }

    fn store(&mut self, changes: Vec<CircuitChange>) {
        if !changes.is_empty() {
            let is_stored = self.with_db(|db| db.keep_changes(&changes)).is_some();
            self.changes.stored(changes, is_stored);
        }
    }

    /// Returns changes of circuits.
    fn found(&mut self, question: &ChangeQuestion) -> Option<Vec<CircuitChange>> {
        // The database is opened first.
        self.with_db(|_| Ok(()))?;
        let found = self.changes.found(self.db.as_ref()?, question);
        self.checked(found)
    }

    fn keep(&mut self, captured: Captured) {
        // The memory that the exchange may take is returned when `sides` is dropped.
        let Captured { request_id, at_ms, mut sides } = captured;
        let shown = RecordedExchange::new(&request_id, sides.take());
        let sealed =
            serde_json::to_vec(&shown).ok().and_then(|json| self.keys.seal(&place(&request_id), &json).ok());
        let stored = sealed.and_then(|sealed| {
            let row = CapturedRow { request_id: &request_id, at_ms, sealed: &sealed };
            self.with_db(|db| db.keep(&row))
        });
        if stored.is_none() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns an exchange; `None` also if it was sealed under the keys of another state.
    fn find(&mut self, request_id: &str) -> Option<RecordedExchange> {
        let sealed = self.with_db(|db| db.find(request_id))??;
        let json = self.keys.open(&place(request_id), &sealed).ok()?;
        serde_json::from_slice(json.expose()).ok()
    }

    fn prune(&mut self) {
        self.with_db(|db| db.prune(clock::unix_ms()));
        let exchanges = self.dropped.swap(0, Ordering::Relaxed);
        if exchanges > 0 {
            tracing::warn!(
                exchanges,
                "captured exchanges were dropped, because telemetry.db is full or too slow"
            );
        }
    }

    /// Runs `task` on the database, which is opened first if necessary. A damaged one is created again.
    fn with_db<T>(&mut self, task: impl FnOnce(&mut TelemetryDb) -> DbResult<T>) -> Option<T> {
        let is_early = self.opened_at.is_some_and(|at| at.elapsed() < INTERVAL);
        if self.db.is_none() && !is_early {
            self.opened_at = Some(Instant::now());
            let opened = TelemetryDb::open(&self.dir);
            let failed = |error: &io::Error| tracing::warn!("telemetry.db cannot be opened: {error}");
            self.db = opened.inspect_err(failed).ok();
        }
        let outcome = task(self.db.as_mut()?);
        self.checked(outcome)
    }

    /// Returns the value of a task. Closes a database that is damaged.
    fn checked<T>(&mut self, outcome: DbResult<T>) -> Option<T> {
        if let Err(error) = &outcome {
            tracing::debug!("telemetry.db: {error}");
            if error.kind() == DbErrorKind::Damaged {
                self.db = None;
            }
        }
        outcome.ok()
    }
}

/// The place to which an exchange is sealed.
fn place(request_id: &str) -> SealPlace<'_> {
    SealPlace { table: "captured", column: "exchange", id: request_id }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::bounds::tests::passes;

    #[test]
    fn captured_exchanges_beyond_the_queue_are_dropped_and_counted() {
        let queue = TelemetryQueue::new();
        let capture = queue.capture();
        let exchange = || drop(capture.begin("r"));
        (0..TELEMETRY_ORDERS.max()).for_each(|_| exchange());
        assert_eq!(queue.telemetry.dropped.load(Ordering::Relaxed), 0);
        passes(&TELEMETRY_ORDERS, exchange);
        assert_eq!(queue.telemetry.dropped.load(Ordering::Relaxed), 1);
    }
}
