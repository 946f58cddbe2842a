//! The exchanges that a worker is running: their descriptions for control, their progress, and the flag that cancels
//! one. Only the worker's own thread reads or writes them, so their members are plain cells; control asks for a copy by
//! a message to the worker, which costs nothing while there is no question.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use shared::access::Access;
use shared::bounds::RUNNING_LISTED;
use shared::id::ProviderId;
use shared::operation::Operation;
use shared::routing::Target;
use shared::running::{RunningExchange, RunningExchanges, Stage};
use wire::request::BYTES_PER_TOKEN;

/// The running exchanges of one worker.
#[derive(Debug)]
pub(crate) struct RunningList {
    entries: RefCell<Vec<Weak<RunningEntry>>>,
    /// Unix time at which the worker's coarse clock was zero.
    began_ms: u64,
}

/// The fixed part of a running exchange's description.
#[derive(Debug)]
pub(crate) struct RunningParams<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) started_at_ms: u64,
    pub(crate) access: &'a Arc<Access>,
    pub(crate) client: Arc<str>,
    pub(crate) operation: Operation,
}

/// One running exchange. It is listed until it is dropped or [`end`](Self::end)s.
pub(crate) struct RunningEntry {
    list: Rc<RunningList>,
    /// Index in the list.
    place: Cell<usize>,
    request_id: Arc<str>,
    started_at_ms: u64,
    access: Arc<Access>,
    client: Arc<str>,
    operation: Operation,
    selector: OnceCell<Arc<str>>,
    target: RefCell<Option<Target>>,
    attempt: Cell<u32>,
    stage: Cell<Stage>,
    bytes_out: Cell<u64>,
    pieces: Cell<u64>,
    /// Time of the last piece, on the worker's coarse clock.
    last_piece: Cell<u32>,
    /// Bytes of output text.
    output_bytes: Cell<u64>,
    is_cancelled: Cell<bool>,
    has_ended: Cell<bool>,
    /// The task that waits for the exchange.
    task: RefCell<Option<Waker>>,
    upstream: RefCell<Option<Weak<dyn Closable>>>,
}

/// An upstream's answer that can be closed without its owner, who may wait for a client that reads nothing.
pub(crate) trait Closable {
    /// Closes the upstream's connection or resets its stream.
    fn close(&self);
}

/// Error: an administrator has cancelled the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled;

impl std::fmt::Debug for RunningEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningEntry")
            .field("request_id", &self.request_id)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

/// Maximum bytes of a selector that are listed and recorded.
const SELECTOR_BYTES_MAX: usize = 256;

impl RunningList {
    /// Creates the list of a worker whose coarse clock is zero at `began_ms`.
    pub(crate) fn new(began_ms: u64) -> Self {
        Self { entries: RefCell::default(), began_ms }
    }

    /// Adds an exchange, whose request's body is to be read.
    pub(crate) fn begin(self: &Rc<Self>, params: RunningParams<'_>) -> Rc<RunningEntry> {
        let mut entries = self.entries.borrow_mut();
        let entry = Rc::new(RunningEntry {
            list: Rc::clone(self),
            place: Cell::new(entries.len()),
            request_id: params.request_id.into(),
            started_at_ms: params.started_at_ms,
            access: Arc::clone(params.access),
            client: params.client,
            operation: params.operation,
            selector: OnceCell::new(),
            target: RefCell::new(None),
            attempt: Cell::new(0),
            stage: Cell::new(Stage::Reading),
            bytes_out: Cell::new(0),
            pieces: Cell::new(0),
            last_piece: Cell::new(0),
            output_bytes: Cell::new(0),
            is_cancelled: Cell::new(false),
            has_ended: Cell::new(false),
            task: RefCell::new(None),
            upstream: RefCell::new(None),
        });
        entries.push(Rc::downgrade(&entry));
        entry
    }

    /// Removes the entry at `place`; the last one takes its place.
    fn remove(&self, place: usize) {
        let mut entries = self.entries.borrow_mut();
        if place < entries.len() {
            entries.swap_remove(place);
        }
        if let Some(moved) = entries.get(place).and_then(Weak::upgrade) {
            moved.place.set(place);
        }
    }

    fn running(&self) -> Vec<Rc<RunningEntry>> {
        let entries = self.entries.borrow();
        entries.iter().filter_map(Weak::upgrade).filter(|entry| !entry.has_ended.get()).collect()
    }

    /// Returns a copy of the running exchanges.
    pub(crate) fn copy(&self) -> RunningExchanges {
        let mut running = self.running();
        let mut attempts = BTreeMap::<ProviderId, u32>::new();
        for entry in running.iter().filter(|entry| entry.has_attempt_in_flight()) {
            if let Some(target) = &*entry.target.borrow() {
                *attempts.entry(target.provider.id.clone()).or_default() += 1;
            }
        }
        let total = running.len();
        running.sort_by_cached_key(|entry| entry.last_piece_at_ms().unwrap_or(entry.started_at_ms));
        RUNNING_LISTED.cut(&mut running);
        let listed = running.iter().map(|entry| entry.copy()).collect();
        RunningExchanges { listed, total, attempts }
    }

    /// Cancels the exchanges with this request ID; clients may choose equal ones. Returns false if there is none.
    pub(crate) fn cancel(&self, request_id: &str) -> bool {
        let mut running = self.running();
        running.retain(|entry| &*entry.request_id == request_id);
        running.iter().for_each(|entry| entry.cancel());
        !running.is_empty()
    }
}

impl RunningEntry {
    pub(crate) fn request_id(&self) -> &Arc<str> {
        &self.request_id
    }

    pub(crate) fn started_at_ms(&self) -> u64 {
        self.started_at_ms
    }

    /// Returns the selector, cut to 256 bytes; empty before [`Self::select`].
    pub(crate) fn selector(&self) -> Arc<str> {
        self.selector.get().cloned().unwrap_or_default()
    }

    /// Returns the client's product and version, if it sent any.
    pub(crate) fn client(&self) -> Option<Arc<str>> {
        Some(Arc::clone(&self.client)).filter(|client| !client.is_empty())
    }

    /// Returns the bytes that went to the client.
    pub(crate) fn bytes_out(&self) -> u64 {
        self.bytes_out.get()
    }

    /// Notes the selector, which the record shares: the body has been read.
    pub(crate) fn select(&self, selector: &str) {
        let cut = selector.floor_char_boundary(SELECTOR_BYTES_MAX);
        self.selector.get_or_init(|| selector.split_at(cut).0.into());
        self.stage.set(Stage::Waiting);
    }

    /// Records the start of an attempt.
    pub(crate) fn begin_attempt(&self, target: &Target) {
        self.target.replace(Some(target.clone()));
        self.attempt.update(|attempt| attempt.saturating_add(1));
        self.stage.set(Stage::Waiting);
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.set(stage);
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.stage.get() == Stage::Reading
    }

    /// Records the start of the relay at `now`, on the worker's coarse clock, after `pieces` have arrived. A cancellation
    /// closes `upstream`.
    pub(crate) fn begin_relay(&self, pieces: usize, now: u32, upstream: Weak<dyn Closable>) {
        self.stage.set(Stage::Streaming);
        self.pieces.set(pieces as u64);
        self.last_piece.set(now);
        self.upstream.replace(Some(upstream));
    }

    /// Counts a piece that has arrived at `now`, on the worker's coarse clock.
    pub(crate) fn note_piece(&self, now: u32) {
        self.pieces.set(self.pieces.get() + 1);
        self.last_piece.set(now);
    }

    /// Returns the time of the last piece, on the worker's coarse clock.
    pub(crate) fn last_piece(&self) -> u32 {
        self.last_piece.get()
    }

    /// Counts bytes that go to the client.
    pub(crate) fn note_sent(&self, bytes: usize) {
        self.bytes_out.set(self.bytes_out.get() + bytes as u64);
    }

    /// Records the length of the output text so far.
    pub(crate) fn note_output(&self, bytes: u64) {
        self.output_bytes.set(bytes);
    }

    /// True if an administrator has cancelled the exchange.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.get()
    }

    /// Ends the exchange: it is no longer listed and cannot be cancelled.
    pub(crate) fn end(&self) {
        self.has_ended.set(true);
    }

    /// Remembers the task to wake at a cancellation.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut task = self.task.borrow_mut();
        match task.as_ref() {
            Some(known) if known.will_wake(waker) => {}
            _ => *task = Some(waker.clone()),
        }
    }

    /// Awaits `future`, unless the exchange is cancelled first. The caller then drops the future.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Cancelled> {
        poll_fn(|cx| {
            if self.is_cancelled.get() {
                return Poll::Ready(Err(Cancelled));
            }
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() {
                self.register(cx.waker());
            }
            polled.map(Ok)
        })
        .await
    }

    /// Cancels the exchange: closes the upstream of a relayed answer and wakes the task, which ends the rest.
    fn cancel(&self) {
        self.is_cancelled.set(true);
        if let Some(upstream) = self.upstream.borrow().as_ref().and_then(Weak::upgrade) {
            upstream.close();
        }
        if let Some(task) = &*self.task.borrow() {
            task.wake_by_ref();
        }
    }

    fn has_attempt_in_flight(&self) -> bool {
        matches!(self.stage.get(), Stage::Waiting | Stage::Held | Stage::Streaming)
    }

    /// Returns the start of the second in which the last piece arrived, but never a time before the exchange.
    fn last_piece_at_ms(&self) -> Option<u64> {
        let seconds = u64::from(self.last_piece.get().saturating_sub(1));
        let at_ms = self.list.began_ms.saturating_add(seconds.saturating_mul(1_000));
        (self.pieces.get() > 0).then(|| at_ms.max(self.started_at_ms))
    }

    fn copy(&self) -> RunningExchange {
        let target = self.target.borrow();
        let target = target.as_ref();
        RunningExchange {
            request_id: (*self.request_id).into(),
            started_at_ms: self.started_at_ms,
            key: self.access.key.clone(),
            client: (*self.client).into(),
            operation: self.operation,
            selector: (*self.selector()).into(),
            target: target.map(|target| (target.provider.id.clone(), target.model.id.clone())),
            attempt: self.attempt.get(),
            stage: self.stage.get(),
            bytes_out: self.bytes_out.get(),
            pieces: self.pieces.get(),
            last_piece_at_ms: self.last_piece_at_ms(),
            output_tokens_estimate: self.output_bytes.get().div_ceil(BYTES_PER_TOKEN),
        }
    }
}

impl Drop for RunningEntry {
    fn drop(&mut self) {
        self.list.remove(self.place.get());
    }
}
