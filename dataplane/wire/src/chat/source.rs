//! Streams that are translated through chat: a reader of the target's stream feeds a writer for the client.

use std::fmt::Debug;

use bytes::Bytes;

use super::ChatSink;
use crate::envelope::StreamError;
use crate::sse::EventFinder;
use crate::stream::{AnswerStream, StreamState, Trouble};

/// Reads a target's stream as a chat answer.
pub(crate) trait ChatSource: Debug {
    /// Reads the next piece of the stream.
    fn push(&mut self, chunk: &[u8], sink: &mut dyn ChatSink);
    /// Ends the stream. A complete answer is ended in the sink, an interrupted one is left open.
    fn end(&mut self, sink: &mut dyn ChatSink);
}

/// Reads server-sent events as a chat answer.
pub(crate) trait ChatEvents: Debug {
    /// Reads the data of one event.
    fn event(&mut self, data: &[u8], sink: &mut dyn ChatSink);
    /// Reads the data of a last event without its blank line, which may have been cut off.
    fn last_event(&mut self, data: &[u8], sink: &mut dyn ChatSink);
    /// Handles the end of a stream whose events did not end the answer.
    fn end(&mut self, sink: &mut dyn ChatSink);
    /// Returns the error for an event that is larger than the gateway's limit.
    fn too_large() -> StreamError;
}

/// Reads a target's server-sent events. Memory is bounded by the size of one event and by what `R` keeps.
#[derive(Debug, Default)]
pub(crate) struct SseSource<R> {
    events: EventFinder,
    reader: R,
}

impl<R> SseSource<R> {
    /// Creates a source for a new stream.
    pub(crate) fn new(reader: R) -> Self {
        Self { events: EventFinder::default(), reader }
    }
}

impl<R: ChatEvents> ChatSource for SseSource<R> {
    fn push(&mut self, chunk: &[u8], sink: &mut dyn ChatSink) {
        let read = self.events.push(chunk, |data| {
            self.reader.event(data, sink);
            !sink.has_ended()
        });
        if read.is_err() {
            sink.fail(&R::too_large());
        }
    }

    fn end(&mut self, sink: &mut dyn ChatSink) {
        self.events.end(|data| {
            self.reader.last_event(data, sink);
            false
        });
        if !sink.has_ended() {
            self.reader.end(sink);
        }
    }
}

/// A target's stream, translated for a client.
#[derive(Debug)]
pub(crate) struct ChatStream {
    source: Box<dyn ChatSource>,
    sink: Box<dyn ChatSink>,
    stopped: bool,
}

impl ChatStream {
    pub(crate) fn new(source: Box<dyn ChatSource>, sink: Box<dyn ChatSink>) -> Self {
        Self { source, sink, stopped: false }
    }

    fn has_ended(&self) -> bool {
        self.stopped || self.sink.has_ended()
    }
}

impl AnswerStream for ChatStream {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        if !self.has_ended() {
            self.sink.reserve(chunk.len());
            self.source.push(&chunk, &mut *self.sink);
            self.sink.flush(out);
        }
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        if !self.has_ended() {
            self.source.end(&mut *self.sink);
            self.sink.flush(out);
        }
        self.stopped = true;
    }

    fn state(&self) -> &StreamState {
        self.sink.state()
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.stopped = true;
        self.sink.trouble(trouble)
    }
}
