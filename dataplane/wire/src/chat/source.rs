//! Streams that are translated through chat: a reader of the target's stream feeds a writer for the client.

use std::fmt::Debug;

use bytes::Bytes;

use super::ChatSink;
use crate::stream::{AnswerStream, StreamState, Trouble};

/// Reads a target's stream as a chat answer.
pub(crate) trait ChatSource: Debug {
    /// Reads the next piece of the stream.
    fn push(&mut self, chunk: &[u8], sink: &mut dyn ChatSink);
    /// Ends the stream. A complete answer is ended in the sink, an interrupted one is left open.
    fn end(&mut self, sink: &mut dyn ChatSink);
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
