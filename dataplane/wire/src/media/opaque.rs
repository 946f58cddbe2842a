//! Answers that are relayed without being read: audio, subtitles, plain text.

use bytes::Bytes;

use crate::stream::{AnswerStream, StreamState, Trouble};

/// Relays an opaque answer. Only the upstream's connection determines if the answer is complete.
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

    /// Returns no bytes: an error cannot be inserted into audio. The client notices that the connection is cut off.
    fn trouble(&mut self, _trouble: Trouble<'_>) -> Bytes {
        Bytes::new()
    }

    fn has_events(&self) -> bool {
        false
    }
}
