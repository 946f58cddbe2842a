//! A stream of images: partial ones, then the whole. Events pass as they came, but whole only: each is held until it
//! has ended, because half an image is of no use, and an address in its place must not pass.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::NOT_INLINE;
use super::whole::{COMPLETED, is_inline};
use crate::chat::token_counts;
use crate::envelope::{StreamError, chat_stream_error, event_of};
use crate::sse::{Blocks, data_of};
use crate::stream::{AnswerStream, StreamOptions, StreamState, Trouble};

/// See the module.
#[derive(Debug)]
pub struct Stream {
    options: StreamOptions,
    state: StreamState,
    blocks: Blocks,
    held: Vec<u8>,
    begun: bool,
    stopped: bool,
}

/// Bytes of one event: an image in base64 and a little beside it.
const EVENT_BYTES_MAX: usize = 32 << 20;

const PARTIAL: &str = "image_generation.partial_image";

/// What of an event is looked at.
#[derive(Debug, Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    b64_json: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
    usage: Option<Value>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Stream {
    /// A stream before its first byte.
    pub fn new(options: StreamOptions) -> Self {
        Self {
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
        match self.judge(data.name, &document) {
            Ok(()) => out.push(block),
            Err(error) => self.fail(&error, out),
        }
    }

    /// Notes what an event says. An error is not sanitized yet.
    fn judge(&mut self, name: &[u8], document: &[u8]) -> Result<(), StreamError> {
        let Ok(event) = serde_json::from_slice::<Event<'_>>(document) else {
            return Err(StreamError {
                status: Some(502),
                ..said("The upstream sent an event that is no JSON.")
            });
        };
        let kind = event.kind.as_deref().unwrap_or_default();
        let is_error = |raw: &RawValue| !matches!(raw.get(), "null" | "false" | "\"\"");
        if name == b"error" || kind == "error" || event.error.is_some_and(is_error) {
            return Err(StreamError::of_odd(document).unwrap_or_else(|| said(StreamError::UNREADABLE)));
        }
        let (partial, completed) = (kind == PARTIAL, kind == COMPLETED);
        if !partial && !completed {
            return Ok(());
        }
        if !is_inline(event.b64_json) {
            let why = if event.url.is_some() { NOT_INLINE } else { "it holds an image without b64_json" };
            let message = format!("The upstream's answer is of no use: {why}.");
            return Err(StreamError { status: Some(502), ..said(&message) });
        }
        self.state.content = true;
        self.state.content_events = self.state.content_events.saturating_add(1);
        self.state.finished |= completed;
        self.state.usage = event.usage.as_ref().and_then(token_counts).or(self.state.usage);
        Ok(())
    }

    fn fail(&mut self, error: &StreamError, out: &mut Vec<Bytes>) {
        let error = error.sanitized(&self.options.known());
        out.push(event_of(&error.to_value()));
        self.state.error = Some(error);
        self.stopped = true;
        self.held = Vec::new();
    }
}

fn said(message: &str) -> StreamError {
    StreamError { message: message.to_owned(), ..StreamError::default() }
}

impl AnswerStream for Stream {
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
        self.stopped = true;
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.stopped = true;
        chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}
