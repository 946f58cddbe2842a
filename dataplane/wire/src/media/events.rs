//! Streams whose events pass unchanged, but only as whole events: each is held until it is complete and a listener has
//! read it.

use std::fmt::Debug;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::envelope::{StreamError, chat_stream_error, event_of};
use crate::sse::{Blocks, data_of};
use crate::stream::{AnswerStream, StreamOptions, StreamState, Trouble};

/// Interprets the events of one kind of answer.
pub trait MediaListener: Debug + Default {
    /// Records the facts of an event whose data starts like an object. An error ends the stream; it is not sanitized
    /// yet.
    fn read(&mut self, name: &[u8], document: &[u8], state: &mut StreamState) -> Result<(), StreamError>;

    /// Records the end of the upstream's answer.
    fn ended(&self, state: &mut StreamState) {
        let _ = state;
    }
}

/// Relays the events of one answer and passes each to a `MediaListener`.
#[derive(Debug)]
pub struct MediaEvents<L> {
    listener: L,
    options: StreamOptions,
    state: StreamState,
    blocks: Blocks,
    held: Vec<u8>,
    begun: bool,
    stopped: bool,
}

/// The maximum size of one event in bytes: an image in base64 and some metadata.
const EVENT_BYTES_MAX: usize = 32 << 20;

impl<L: MediaListener> MediaEvents<L> {
    /// Creates a relay for a new stream.
    pub fn new(options: StreamOptions) -> Self {
        Self {
            listener: L::default(),
            options,
            state: StreamState::default(),
            blocks: Blocks::default(),
            held: Vec::new(),
            begun: false,
            stopped: false,
        }
    }

    /// Handles one complete event.
    fn event(&mut self, block: Bytes, out: &mut Vec<Bytes>) {
        let mut text = &block[..];
        if !std::mem::replace(&mut self.begun, true) {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        let data = data_of(text);
        self.state.ids_seen |= data.has_id;
        let Some(document) = data.text.filter(|text| text.first() == Some(&b'{')) else {
            return out.push(block);
        };
        match self.listener.read(data.name, &document, &mut self.state) {
            Ok(()) => out.push(block),
            Err(error) => self.fail(&error, out),
        }
    }

    fn fail(&mut self, error: &StreamError, out: &mut Vec<Bytes>) {
        let error = error.sanitized(&self.options.known());
        out.push(event_of(&error.to_value()));
        self.state.error = Some(error);
        self.stopped = true;
        self.held = Vec::new();
    }
}

/// True if the value of the member `error` reports an error.
pub(super) fn is_error(raw: &RawValue) -> bool {
    !matches!(raw.get(), "null" | "false" | "\"\"")
}

impl<L: MediaListener> AnswerStream for MediaEvents<L> {
    fn push(&mut self, mut chunk: Bytes, out: &mut Vec<Bytes>) {
        if !self.stopped && self.held.is_empty() && self.blocks.takes_lf(&chunk) {
            // The LF belongs to the event before it, which has been sent.
            out.push(chunk.split_to(1));
        }
        while !self.stopped && !chunk.is_empty() {
            let Some(length) = self.blocks.find(&chunk) else {
                self.held.extend_from_slice(&chunk);
                break;
            };
            let end = chunk.split_to(length);
            if self.held.is_empty() {
                self.event(end, out);
            } else {
                self.held.extend_from_slice(&end);
                let block = std::mem::take(&mut self.held);
                self.event(block.into(), out);
            }
        }
        if self.held.len() > EVENT_BYTES_MAX {
            self.fail(&StreamError::of_bad_answer(StreamError::UNREADABLE), out);
        }
    }

    /// Drops a last event without its blank line, which no client would read.
    fn end(&mut self, _out: &mut Vec<Bytes>) {
        if !std::mem::replace(&mut self.stopped, true) {
            self.listener.ended(&mut self.state);
        }
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.stopped = true;
        chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}
