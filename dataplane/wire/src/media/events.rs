//! Streams whose events pass as they came, but whole only: each is held until it has ended and somebody has heard what
//! it says.

use std::fmt::Debug;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::envelope::{StreamError, chat_stream_error, event_of};
use crate::sse::{Blocks, data_of};
use crate::stream::{AnswerStream, StreamOptions, StreamState, Trouble};

/// Knows what the events of one sort of answer say.
pub trait MediaListener: Debug + Default {
    /// Notes what an event says whose data begins like an object. An error ends the stream; it is not sanitized yet.
    fn hear(&mut self, name: &[u8], document: &[u8], state: &mut StreamState) -> Result<(), StreamError>;

    /// The upstream's answer has ended.
    fn ended(&self, state: &mut StreamState) {
        let _ = state;
    }
}

/// See the module.
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

/// Bytes of one event: an image in base64 and a little beside it.
const EVENT_BYTES_MAX: usize = 32 << 20;

impl<L: MediaListener> MediaEvents<L> {
    /// A stream before its first byte.
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

    /// A whole event has come.
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
        match self.listener.hear(data.name, &document, &mut self.state) {
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

/// Whether the member `error` says that there is one.
pub(super) fn is_error(raw: &RawValue) -> bool {
    !matches!(raw.get(), "null" | "false" | "\"\"")
}

/// An error in these words.
pub(super) fn said(message: &str) -> StreamError {
    StreamError { message: message.to_owned(), ..StreamError::default() }
}

impl<L: MediaListener> AnswerStream for MediaEvents<L> {
    fn push(&mut self, mut chunk: Bytes, out: &mut Vec<Bytes>) {
        if !self.stopped && self.held.is_empty() && self.blocks.takes_lf(&chunk) {
            // It belongs to the event before it, which has gone out.
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
            self.fail(&StreamError { status: Some(502), ..said(StreamError::UNREADABLE) }, out);
        }
    }

    /// A last event without its blank line is one that no client would see.
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
