//! Reads the events of a chat target's stream.

use super::document::{ChatDocument, DocumentChoice};
use super::failed::{end_answer, end_choice};
use super::source::ChatEvents;
use super::{AnswerText, ChatDelta, ChatSink, ChatTextKind, ClientUsage};
use crate::envelope::StreamError;
use crate::passthrough::{Alike, Varying};
use crate::sse::lossy_text;

/// Reads chunks in their vendors' variants.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    /// Matches chunks that contain only text.
    alike: Alike<ChatTextKind>,
    /// True once a chunk has been read.
    begun: bool,
}

impl Default for ChunkReader {
    fn default() -> Self {
        Self { alike: Alike::new(Varying::Padding), begun: false }
    }
}

impl ChatEvents for ChunkReader {
    fn event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        if let Some(like) = self.alike.read(data) {
            sink.delta(0, ChatDelta::Text(like.meaning, AnswerText::Escaped(like.text)));
            return;
        }
        // Some vendors send words to keep the connection open. A page in place of an answer is an error.
        if !matches!(data.first(), Some(b'{' | b'[' | b'<')) {
            return;
        }
        if data.starts_with(b"[DONE]") {
            end_answer(sink);
            return;
        }
        let text = lossy_text(data);
        let Ok(chunk) = ChatDocument::read(&text) else {
            let unknown = || {
                StreamError::of_bad_answer("The upstream sent an event that is not a chat completion chunk.")
            };
            sink.fail(&StreamError::of_odd(text.as_bytes()).unwrap_or_else(unknown));
            return;
        };
        note_usage(&chunk, sink);
        if let Some(error) = chunk.error(&text) {
            sink.fail(&error);
            return;
        }
        if let Some((text, kind)) = chunk.only_text() {
            self.alike.learn(data, text.as_bytes(), kind);
        }
        if !std::mem::replace(&mut self.begun, true) {
            sink.begin(0);
        }
        chunk.first_choices().for_each(|choice| relay_choice(choice, sink));
    }

    fn last_event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        // Data that does not parse was cut off.
        let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok();
        if data.starts_with(b"[DONE]") || is_json() {
            self.event(data, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn ChatSink) {
        if sink.state().finished {
            end_answer(sink);
        }
    }

    fn too_large() -> StreamError {
        StreamError::of_bad_answer("The upstream sent an event that is too large.")
    }
}

fn note_usage(chunk: &ChatDocument<'_>, sink: &mut dyn ChatSink) {
    let (counts, extras) = chunk.usage();
    if let Some(counts) = counts {
        sink.facts().usage = Some(counts);
        sink.usage(ClientUsage { counts, ..ClientUsage::default() });
    }
    sink.facts().extras.replace_by(extras);
}

fn relay_choice(choice: &DocumentChoice<'_>, sink: &mut dyn ChatSink) {
    // The text of a chunk that ends a failed answer is perhaps that of the error.
    if let Some(message) = choice.message().filter(|_| !choice.failed()) {
        message.texts(|kind, text| sink.delta(0, ChatDelta::Text(kind, text)));
        message.media(|media| sink.delta(0, ChatDelta::Media(media)));
        message.calls().for_each(|call| sink.delta(0, ChatDelta::Call(call)));
    }
    if !sink.has_ended() {
        choice.end(|end| end_choice(sink, 0, end, choice.stop().as_deref()));
    }
}
