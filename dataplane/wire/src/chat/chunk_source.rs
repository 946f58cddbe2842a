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
    /// The number of choices that are read, up to [`CHOICES_MAX`]. All others are ignored.
    count: u64,
    /// The choices of which a piece has been read, one bit each.
    seen: u128,
    /// The choices that have ended. Some vendors send an empty piece after the end.
    ended: u128,
}

/// The maximum number of choices that a client may request.
const CHOICES_MAX: u64 = 128;

impl ChunkReader {
    /// Creates a reader of the choices with an index below `count`.
    pub(crate) fn new(count: u64) -> Self {
        Self {
            alike: Alike::new(Varying::Padding),
            begun: false,
            count: count.min(CHOICES_MAX),
            seen: 0,
            ended: 0,
        }
    }

    fn relay(&mut self, index: u64, choice: &DocumentChoice<'_>, sink: &mut dyn ChatSink) {
        let bit = u32::try_from(index).ok().and_then(|index| 1_u128.checked_shl(index)).unwrap_or_default();
        self.seen |= bit;
        if relay_choice(index, choice, sink) {
            self.ended |= bit;
        }
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
        chunk.choices(self.count).for_each(|(index, choice)| self.relay(index, choice, sink));
    }

    fn last_event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        // Data that does not parse was cut off.
        let is_json = || serde_json::from_slice::<serde::de::IgnoredAny>(data).is_ok();
        if data.starts_with(b"[DONE]") || is_json() {
            self.event(data, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn ChatSink) {
        if self.seen & !self.ended != 0 {
            // The stream was cut off, although another choice has ended.
            sink.facts().finished = false;
        } else if sink.state().finished {
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

/// Relays a piece of a choice. Returns true if it ends the choice.
fn relay_choice(index: u64, choice: &DocumentChoice<'_>, sink: &mut dyn ChatSink) -> bool {
    // The text of a chunk that ends a failed answer is perhaps that of the error.
    if let Some(message) = choice.message().filter(|_| !choice.failed()) {
        let tokens = choice.logprobs();
        if !tokens.is_empty() {
            sink.delta(index, ChatDelta::Logprobs(&tokens));
        }
        message.texts(|kind, text| sink.delta(index, ChatDelta::Text(kind, text)));
        message.media(|media| sink.delta(index, ChatDelta::Media(media)));
        message.calls().for_each(|call| sink.delta(index, ChatDelta::Call(call)));
    }
    if sink.has_ended() {
        return true;
    }
    choice.end(|end| end_choice(sink, index, end, choice.stop().as_deref())).is_some()
}
