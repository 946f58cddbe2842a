//! An answer that only passes: sound, subtitles, plain text.

use bytes::Bytes;

use crate::stream::{AnswerStream, StreamState, Trouble};

/// See the module. It is whole when the upstream's connection says so.
#[derive(Debug, Default)]
pub struct Opaque {
    state: StreamState,
}

impl AnswerStream for Opaque {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        if !chunk.is_empty() {
            self.state.content = true;
            self.state.content_events = self.state.content_events.saturating_add(1);
            out.push(chunk);
        }
    }

    fn end(&mut self, _out: &mut Vec<Bytes>) {
        self.state.finished = true;
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    /// Nothing can be said in the middle of a sound; that the connection breaks off says it.
    fn trouble(&mut self, _trouble: Trouble<'_>) -> Bytes {
        Bytes::new()
    }

    fn has_events(&self) -> bool {
        false
    }
}
