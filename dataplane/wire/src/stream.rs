//! An answer in events on its way to the client, whatever the dialects at its two ends.

use std::fmt::Debug;

use bytes::Bytes;
use shared::error_kind::ErrorRow;
use shared::usage::TokenCounts;

use crate::envelope::StreamError;
use crate::extras::Extras;

/// How a stream is to be treated.
#[derive(Clone, Default)]
pub struct StreamOptions {
    /// The client did not ask for usage: an event that holds nothing else does not reach it.
    pub drop_usage_only: bool,
    /// Credentials that may not show in errors.
    pub secrets: Vec<String>,
}

impl StreamOptions {
    pub(crate) fn known(&self) -> Vec<&str> {
        self.secrets.iter().map(String::as_str).collect()
    }
}

impl Debug for StreamOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamOptions")
            .field("drop_usage_only", &self.drop_usage_only)
            .finish_non_exhaustive()
    }
}

/// What is known of a stream so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// Output has been seen: text, reasoning, a refusal, tool data, audio. Lifecycle events, role chunks, empty
    /// deltas, chunks without choices and comments are none.
    pub content: bool,
    /// How the answer ended has been seen: a finish or stop reason.
    pub finished: bool,
    /// The last event of the protocol has been seen: `[DONE]`, `message_stop`, `response.completed`.
    pub done: bool,
    /// The error that ended the stream, sanitized.
    pub error: Option<StreamError>,
    /// The last usage reported: totals so far are never added up.
    pub usage: Option<TokenCounts>,
    /// Units, tier and cost as they were reported last.
    pub extras: Extras,
    /// What the upstream said of the input alone, before it said what the answer used.
    pub input: Option<TokenCounts>,
    /// Events with output.
    pub content_events: u64,
    /// Bytes of output text, as it is meant: four are about one token.
    pub output_bytes: u64,
    /// An `id:` line was seen: from here on a comment of the gateway's own would break OpenAI's Python SDK.
    pub ids_seen: bool,
    /// Part of an event larger than [`crate::passing::HELD_BYTES_MAX`] has gone out. An event of the gateway's own
    /// may only follow after a blank line.
    pub event_open: bool,
}

impl StreamState {
    /// Counts one more event with output, of so many bytes.
    #[inline]
    pub(crate) fn add_text(&mut self, bytes: usize) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.content_events = self.content_events.saturating_add(1);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
    }
}

/// A failure that the gateway itself found after output had started (ERR-3).
#[derive(Clone, Copy, Debug)]
pub struct Trouble<'a> {
    /// What sort of failure.
    pub row: ErrorRow,
    /// For the client as it stands.
    pub message: &'a str,
    /// The request's id.
    pub request_id: &'a str,
}

/// One upstream answer in events. It takes the upstream's reads, cut anywhere, and makes the bytes that the
/// client gets; bounded memory, linear time, and nothing of its own between a read and its output.
pub trait AnswerStream: Debug {
    /// Takes one upstream read and appends what goes to the client: whole events.
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>);
    /// The upstream's answer has ended. An adapted stream that knows how its answer ended now ends its own; what
    /// broke off is left open, and [`AnswerStream::trouble`] says so.
    fn end(&mut self, out: &mut Vec<Bytes>);
    /// What is known so far.
    fn state(&self) -> &StreamState;
    /// Returns the event that reports a failure in the client's protocol. No other event follows it.
    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes;
    /// Returns true if the client reads server-sent events, in which an error or a keep-alive can be said.
    fn has_events(&self) -> bool {
        true
    }
}
