//! The relay: moves an upstream's answer to the client after the first content.
//!
//! It runs inside the client connection's task and polls the upstream's connection itself. Nothing is buffered between
//! the two: if the client does not read, the relay is not polled and the upstream is not read. The relay is dropped
//! when the client disconnects; the record then has the outcome cancelled. If the answer has ended and only its usage
//! is missing, the upstream is still read without the client (`late_usage.rs`).
//!
//! ```text
//!   Flow --upstream ended well------------------> End   (record closed before the last byte goes out)
//!    |----error event of the upstream-----------> End   (and the connection closes)
//!    |----upstream broke off, events------------> End   (after an error event; then the connection closes)
//!    |----upstream broke off, no events--> Flush --client has it all--> Abort
//!    |----an administrator cancelled it---> as if the upstream broke off
//!    '----no usage log accepts the record--------> Abort (without the end of the answer)
//! ```

use std::cell::RefCell;
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::port::BoxError;
use shared::routing::ProviderInstance;
use shared::usage::{Gaps, Outcome};
use tokio::time::{Instant, Sleep};
use wire::native::{WholeAnswer, WholeScan};
use wire::stream::{AnswerStream, Trouble};

use super::keepalive;
use super::late_usage::LateUsageQueue;
use super::silence::Silences;
use crate::clock::CoarseClock;
use crate::plan::response_affinity::AffinityRecorder;
use crate::record::{Record, Reported};
use crate::running::{Closable, RunningEntry};
use crate::server::io::ConnectionState;
use crate::upstream::{UpstreamBody, Upstreams};

/// The state that all relays of one worker share.
#[derive(Debug)]
pub(crate) struct RelayContext {
    pub(crate) upstreams: Rc<Upstreams>,
    pub(crate) clock: CoarseClock,
    /// Interval of keep-alives in a silent stream; `None` disables them.
    pub(crate) keepalive: Option<Duration>,
    /// Time that an upstream is still read for its usage after its client disconnected; zero disables this.
    pub(crate) usage_grace: Duration,
    /// Answers whose clients disconnected before the usage arrived.
    pub(crate) late_usage: LateUsageQueue,
}

/// Relays one answer and records its usage.
#[derive(Debug)]
pub(crate) struct Relay {
    context: Rc<RelayContext>,
    connection: Rc<ConnectionState>,
    provider: Arc<ProviderInstance>,
    running: Rc<RunningEntry>,
    record: Record,
    body: Rc<RefCell<UpstreamBody>>,
    scan: Scan,
    /// The client's dialect.
    dialect: Dialect,
    affinity: Option<Box<AffinityRecorder>>,
    /// Pieces to send to the client, last piece first.
    ready: Vec<Bytes>,
    phase: RelayPhase,
    /// True if the last event reports an error.
    is_cut: bool,
    timer: Option<Pin<Box<Sleep>>>,
    silences: Silences,
    /// True if the client has disconnected and only the usage is awaited.
    awaits_usage_only: bool,
}

/// Parts of a new relay.
#[derive(Debug)]
pub(crate) struct RelayParts {
    pub(crate) context: Rc<RelayContext>,
    pub(crate) connection: Rc<ConnectionState>,
    pub(crate) provider: Arc<ProviderInstance>,
    pub(crate) record: Record,
    pub(crate) body: UpstreamBody,
    pub(crate) scan: Scan,
    pub(crate) dialect: Dialect,
    pub(crate) affinity: Option<Box<AffinityRecorder>>,
    /// Pieces that have been read already, in order.
    pub(crate) held: Vec<Bytes>,
}

/// Parser of the relayed bytes.
#[derive(Debug)]
pub(crate) enum Scan {
    Stream(Box<dyn AnswerStream>),
    Whole(Box<WholeScan>),
}

/// State of a relay; the module shows the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RelayPhase {
    Flow,
    Flush { polls: u8 },
    Abort,
    End,
}

/// Error: the upstream broke off an answer without events. It ends the client's connection.
#[derive(Debug)]
struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the upstream's connection broke in the middle of the response")
    }
}

impl std::error::Error for BrokenOff {}

/// Maximum time an upstream may keep the stream open after `[DONE]`.
const AFTER_DONE: Duration = Duration::from_secs(2);
/// The same for protocols whose clients consider an answer complete only when the stream ends, as Codex does.
const AFTER_DONE_AWAITED: Duration = Duration::from_millis(100);

impl Relay {
    pub(crate) fn new(parts: RelayParts) -> Self {
        let mut ready = parts.held;
        ready.reverse();
        let running = Rc::clone(parts.record.running());
        let body = Rc::new(RefCell::new(parts.body));
        let upstream = Rc::downgrade(&body);
        running.begin_relay(ready.len(), parts.context.clock.now(), upstream);
        let mut relay = Self {
            context: parts.context,
            connection: parts.connection,
            provider: parts.provider,
            running,
            record: parts.record,
            body,
            scan: parts.scan,
            dialect: parts.dialect,
            affinity: parts.affinity,
            ready,
            phase: RelayPhase::Flow,
            is_cut: false,
            timer: None,
            silences: Silences::new(),
            awaits_usage_only: false,
        };
        relay.after_push();
        relay
    }

    /// Returns the next bytes for the client.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if let Some(bytes) = self.ready.pop() {
                self.running.note_sent(bytes.len());
                return Poll::Ready(Some(Ok(bytes)));
            }
            match self.phase {
                RelayPhase::Flow if self.is_cancelled() => {
                    self.break_off(Outcome::Cancelled, ErrorKind::Cancelled, CANCELLED);
                }
                RelayPhase::Flow => std::task::ready!(self.poll_upstream(cx)),
                RelayPhase::Flush { polls } => std::task::ready!(self.poll_flushed(polls, cx)),
                RelayPhase::Abort => return Poll::Ready(Some(Err(Box::new(BrokenOff)))),
                RelayPhase::End => return Poll::Ready(None),
            }
        }
    }

    /// True if an administrator has cancelled the exchange before its end.
    fn is_cancelled(&self) -> bool {
        self.running.is_cancelled() && !self.record.is_closed()
    }

    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let read = self.body.borrow_mut().poll_data(cx);
        match read {
            Poll::Pending => return self.poll_silence(cx),
            Poll::Ready(Some(Ok(bytes))) => self.take(bytes),
            Poll::Ready(Some(Err(_))) => self.break_off(Outcome::Cut, ErrorKind::UpstreamCut, CUT),
            Poll::Ready(None) => self.upstream_ended(),
        }
        Poll::Ready(())
    }

    fn take(&mut self, bytes: Bytes) {
        self.running.note_piece(self.context.clock.now());
        self.silences.piece();
        if let Some(affinity) = &self.affinity {
            affinity.note_bytes(&bytes);
        }
        match &mut self.scan {
            Scan::Stream(stream) => {
                stream.push(bytes, &mut self.ready);
                self.ready.reverse();
                self.after_push();
            }
            Scan::Whole(scan) => {
                pass_whole(scan, self.dialect, bytes, &mut self.ready);
                self.ready.reverse();
            }
        }
    }

    /// Updates the exchange from the events that were just parsed.
    fn after_push(&mut self) {
        let Scan::Stream(stream) = &self.scan else { return };
        let state = stream.state();
        self.running.note_output(state.output_bytes);
        if let Some(error) = &state.error {
            self.record.note(|event| {
                event.error = Some(ErrorKind::UpstreamStatus);
                event.details.set_message(&error.message);
            });
            self.settle(Outcome::Cut);
            self.body.close();
            self.phase = RelayPhase::End;
            self.is_cut = true;
        } else if state.done && !self.record.is_closed() {
            self.complete();
            self.timer = None;
        }
    }

    fn upstream_ended(&mut self) {
        let whole = match &mut self.scan {
            Scan::Stream(stream) => {
                stream.end(&mut self.ready);
                self.ready.reverse();
                let state = stream.state();
                state.error.is_none() && (state.done || state.finished)
            }
            Scan::Whole(scan) => {
                scan.release(&mut self.ready);
                true
            }
        };
        self.after_push();
        if self.phase != RelayPhase::Flow {
            return;
        }
        if whole {
            self.body.borrow_mut().recycle(&self.context.upstreams, &self.provider);
            self.phase = RelayPhase::End;
            self.complete();
        } else {
            self.break_off(Outcome::Cut, ErrorKind::UpstreamCut, CUT);
        }
    }

    /// Ends an answer whose output has started (ERR-3): with an error event if the protocol has one, like the vendors
    /// do; otherwise by aborting the body, so that no client considers it complete.
    fn break_off(&mut self, outcome: Outcome, kind: ErrorKind, message: &str) {
        self.body.close();
        let is_told = matches!(&self.scan, Scan::Stream(stream) if stream.has_events());
        self.record.note(|event| {
            event.error = Some(kind);
            if is_told {
                event.details.set_message(message);
            }
        });
        self.settle(outcome);
        self.phase = RelayPhase::Flush { polls: 0 };
        if let Scan::Stream(stream) = &mut self.scan
            && stream.has_events()
        {
            let open = stream.state().event_open;
            let trouble = Trouble { row: kind.row(), message, request_id: self.running.request_id() };
            self.ready.insert(0, stream.trouble(trouble));
            if open {
                // An event too large to buffer was partly sent; the blank line keeps the error event separate from it.
                self.ready.insert(1, EVENT_END);
            }
            self.phase = RelayPhase::End;
            self.is_cut = true;
        }
    }

    /// True if the answer ended with an error event, after which the connection closes.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Handles a pending upstream: sends keep-alives to the client, and ends the answer when the idle timeout is
    /// reached.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.running.register(cx.waker());
        let ended = self.record.is_closed();
        let limit = match (ended, self.dialect) {
            (true, Dialect::Responses) => AFTER_DONE_AWAITED,
            (true, _) => AFTER_DONE,
            (false, _) => self.provider.stream_idle_timeout,
        };
        let keepalive = self.keepalive().unwrap_or(limit).min(limit);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(keepalive)));
        std::task::ready!(timer.as_mut().poll(cx));
        // The timer is not reset for every chunk: when it fires, the clock is checked. The clock counts whole seconds,
        // the last of which may be incomplete.
        let seconds = self.context.clock.now().wrapping_sub(self.running.last_piece()).saturating_sub(1);
        let silent = Duration::from_secs(u64::from(seconds));
        let left = limit.saturating_sub(silent);
        if ended {
            self.body.close();
            self.phase = RelayPhase::End;
        } else if left.is_zero() {
            self.break_off(Outcome::Cut, ErrorKind::UpstreamTimeout, SILENT);
        } else {
            timer.as_mut().reset(Instant::now() + left.min(keepalive));
            if keepalive < limit {
                self.ready.push(keepalive::keepalive(self.dialect));
            }
        }
        Poll::Ready(())
    }

    /// Returns the interval of keep-alives in a silent stream (FAIL-6), or `None` where they would do harm: in audio,
    /// inside an event, and after an `id:` line, because OpenAI's Python SDK then parses a comment as an event.
    fn keepalive(&self) -> Option<Duration> {
        let Scan::Stream(stream) = &self.scan else { return None };
        let state = stream.state();
        let harmless = stream.has_events() && !state.event_open && !state.ids_seen;
        self.context.keepalive.filter(|_| harmless)
    }

    /// Waits until all pieces have been written, because aborting the connection discards the rest. A connection
    /// flushes whenever the body is pending; a blocked socket wakes the connection when it becomes writable.
    fn poll_flushed(&mut self, polls: u8, cx: &mut Context<'_>) -> Poll<()> {
        if self.connection.write_blocked.get() {
            return Poll::Pending;
        }
        if polls < FLUSH_POLLS {
            self.phase = RelayPhase::Flush { polls: polls + 1 };
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.phase = RelayPhase::Abort;
        Poll::Ready(())
    }

    /// True if the answer has ended and its usage may still arrive. Upstreams without `stream_options` send the usage
    /// at the end of the answer or never.
    pub(super) fn awaits_usage(&self) -> bool {
        let Scan::Stream(stream) = &self.scan else { return false };
        if !self.provider.quirks.stream_options {
            return false;
        }
        let state = stream.state();
        let has_ended = state.finished && !state.done && state.error.is_none();
        has_ended && state.usage.is_none() && self.phase == RelayPhase::Flow && !self.record.is_closed()
    }

    /// Reads and discards one more piece for no client; returns its length, or `None` at the end.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let Some(Ok(bytes)) = std::task::ready!(self.body.borrow_mut().poll_data(cx)) else {
            return Poll::Ready(None);
        };
        let length = bytes.len();
        if let Scan::Stream(stream) = &mut self.scan {
            stream.push(bytes, &mut self.ready);
        }
        self.ready.clear();
        Poll::Ready(Some(length))
    }

    /// Moves the exchange into a relay that continues without the client. Returns `None` if no usage is expected or
    /// `usage_grace` is zero.
    fn take_late_usage(&mut self) -> Option<Box<Self>> {
        let is_wanted = !self.context.usage_grace.is_zero();
        if !is_wanted || self.awaits_usage_only || !self.awaits_usage() {
            return None;
        }
        self.running.end();
        let nothing = Scan::Whole(Box::new(WholeScan::new(self.dialect)));
        Some(Box::new(Self {
            context: Rc::clone(&self.context),
            connection: Rc::clone(&self.connection),
            provider: Arc::clone(&self.provider),
            running: Rc::clone(&self.running),
            record: self.record.take(),
            body: Rc::clone(&self.body),
            scan: std::mem::replace(&mut self.scan, nothing),
            dialect: self.dialect,
            affinity: self.affinity.take(),
            ready: Vec::new(),
            phase: RelayPhase::Flow,
            is_cut: false,
            timer: None,
            silences: self.silences,
            awaits_usage_only: true,
        }))
    }

    /// Closes the record of an answer that ended well. If the record is not durable, the last piece is withheld and the
    /// body aborted.
    fn complete(&mut self) {
        if !self.settle(Outcome::Completed) {
            self.ready.clear();
            self.body.close();
            self.phase = RelayPhase::Abort;
        }
    }

    /// Closes the record with the usage reported so far. Returns false if it is not durable.
    fn settle(&mut self, outcome: Outcome) -> bool {
        if self.record.is_closed() {
            return true;
        }
        let reported = match &mut self.scan {
            Scan::Stream(stream) => {
                let state = stream.state();
                let least = u64::from(state.content && self.dialect.is_conversation());
                Reported {
                    tokens: state.usage,
                    input: state.input,
                    extras: state.extras.clone(),
                    finish: state.finish,
                    output_bytes: state.output_bytes.max(least),
                }
            }
            Scan::Whole(scan) => {
                let answer = scan.finish();
                let WholeAnswer { usage: tokens, extras, finish, output_bytes, .. } = answer;
                Reported { tokens, input: None, extras, finish, output_bytes }
            }
        };
        if let (Some(affinity), Some(tokens)) = (&self.affinity, &reported.tokens) {
            affinity.note_usage(tokens);
        }
        self.record.report(reported);
        self.note_sent(outcome);
        self.record.close(outcome).is_recorded
    }

    /// Records the bytes of the answer for the client, and its silences.
    fn note_sent(&mut self, outcome: Outcome) {
        if !self.awaits_usage_only {
            self.silences.end();
        }
        // The remaining pieces are sent after the record is closed, unless the client has left.
        let rest = if outcome == Outcome::Cancelled { &[] } else { self.ready.as_slice() };
        let rest: u64 = rest.iter().map(|bytes| bytes.len() as u64).sum();
        let sent = self.running.bytes_out();
        let Silences { us_max, gaps, .. } = self.silences;
        let is_stream = matches!(self.scan, Scan::Stream(_));
        self.record.note(|event| {
            event.details.bytes_out = Some(sent + rest);
            event.details.silence_us_max = Some(us_max);
            event.details.gaps = if is_stream { gaps } else { Gaps::default() };
        });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        match self.take_late_usage() {
            Some(rest) => self.context.late_usage.take(rest),
            None => {
                self.settle(Outcome::Cancelled);
            }
        }
    }
}

impl Closable for RefCell<UpstreamBody> {
    fn close(&self) {
        self.replace(UpstreamBody::Ended);
    }
}

/// Parses a piece of a whole answer and appends the bytes for a client of `dialect` to `out`.
pub(crate) fn pass_whole(scan: &mut WholeScan, dialect: Dialect, piece: Bytes, out: &mut Vec<Bytes>) {
    match dialect {
        Dialect::Chat => scan.pass_chat(piece, out),
        Dialect::Embeddings => scan.pass_embeddings(piece, out),
        _ => {
            scan.push(&piece);
            out.push(piece);
        }
    }
}

const EVENT_END: Bytes = Bytes::from_static(b"\n\n");
/// Polls granted for writing the last bytes before the connection is aborted: the first looks for more pieces to join,
/// the second lets the connection flush, and the third is a reserve.
const FLUSH_POLLS: u8 = 3;

const CUT: &str = "The upstream's connection broke in the middle of the response. The content so far is \
                   incomplete.";
const CANCELLED: &str = "An administrator cancelled this request. The content so far is incomplete.";
const SILENT: &str = "The upstream stopped sending in the middle of the response. The content so far is \
                      incomplete.";
