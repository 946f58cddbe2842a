//! Streamed answers to the client, in any combination of client and target dialect.

use std::fmt::Debug;

use bytes::Bytes;
use shared::error_kind::ErrorRow;
use shared::usage::{Finish, TokenCounts};

use crate::envelope::StreamError;
use crate::extras::Extras;

/// Options for the relay of a stream.
#[derive(Clone, Default)]
pub struct StreamOptions {
    /// The client did not request usage: events that hold only usage are dropped.
    pub drop_usage_only: bool,
    /// Credentials that must not appear in errors.
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

/// The facts known about a stream so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// True once output has been read: text, reasoning, a refusal, tool data or audio. Lifecycle events, role chunks,
    /// empty deltas, chunks without choices and comments do not count.
    pub content: bool,
    /// True once a finish or stop reason has been read.
    pub finished: bool,
    /// True once the last event of the protocol has been read: `[DONE]`, `message_stop`, `response.completed`.
    pub done: bool,
    /// The reason for which the model ended its output.
    pub finish: Option<Finish>,
    /// The failure with which the model's output ended. It becomes the error when the stream ends, because the usage may
    /// follow it.
    pub failure: Option<Box<StreamError>>,
    /// The error that ended the stream, sanitized.
    pub error: Option<StreamError>,
    /// The last reported usage. Reports are running totals and are never added up.
    pub usage: Option<TokenCounts>,
    /// The last reported units, tier and cost.
    pub extras: Extras,
    /// The counts of the input alone that the upstream reported before the usage of the answer.
    pub input: Option<TokenCounts>,
    /// The number of events with output.
    pub content_events: u64,
    /// The length of the decoded output text in bytes; about four bytes per token.
    pub output_bytes: u64,
    /// True once an `id:` line has been read: from then on a comment inserted by the gateway would break OpenAI's
    /// Python SDK.
    pub ids_seen: bool,
    /// True if part of an event larger than [`crate::passthrough::HELD_BYTES_MAX`] has been sent. The gateway must send a
    /// blank line before an event that it inserts.
    pub event_open: bool,
}

impl StreamState {
    /// Counts one more event with output of this length in bytes.
    #[inline]
    pub(crate) fn add_text(&mut self, bytes: usize) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.content_events = self.content_events.saturating_add(1);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
    }
}

/// A failure that the gateway itself detected after output had started (ERR-3).
#[derive(Clone, Copy, Debug)]
pub struct Trouble<'a> {
    /// The kind of failure.
    pub row: ErrorRow,
    /// The message, sent to the client unchanged.
    pub message: &'a str,
    /// The request's id.
    pub request_id: &'a str,
}

/// One streamed upstream answer. Converts the upstream's reads, cut at any byte, to the bytes for the client, in
/// bounded memory and linear time, without delaying output beyond the read that completes it.
pub trait AnswerStream: Debug {
    /// Takes one upstream read and appends the bytes for the client: whole events.
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>);
    /// Ends the upstream's answer. An adapted stream whose answer is complete now ends its own stream; an interrupted
    /// one is left open, and [`AnswerStream::trouble`] reports the failure.
    fn end(&mut self, out: &mut Vec<Bytes>);
    /// Returns the facts known so far.
    fn state(&self) -> &StreamState;
    /// Returns the event that reports a failure in the client's protocol. No other event follows it.
    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes;
    /// Returns true if the client reads server-sent events, which can carry an error or a keep-alive.
    fn has_events(&self) -> bool {
        true
    }
}
