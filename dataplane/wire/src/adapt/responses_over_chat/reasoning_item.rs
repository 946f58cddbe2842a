//! The reasoning items of a response: their text, as content or as summary, and their sealed form.

use bytes::{BufMut as _, BytesMut};
use shared::reasoning_seal::ReasoningSeal;

use super::kept_reasoning::KeptReasoning;
use super::output_item::put_raw_text;

/// Reasoning.
#[derive(Debug, Default)]
pub(super) struct ReasoningItem {
    /// The text, escaped.
    pub(super) text: BytesMut,
    /// The parts that only its target reads.
    pub(super) kept: KeptReasoning,
    /// The `encrypted_content`, once the item is complete.
    sealed: Option<String>,
}

/// The names under which a response reports the text of its reasoning.
#[derive(Debug)]
pub(super) struct ReasoningWords {
    pub(super) delta: &'static str,
    pub(super) done: &'static str,
    /// The event of a part, without `added` or `done`.
    pub(super) part: &'static str,
    /// The member with the index of the part.
    pub(super) index: &'static str,
    kind: &'static [u8],
}

/// The model's own words.
pub(super) static CONTENT: ReasoningWords = ReasoningWords {
    delta: "response.reasoning_text.delta",
    done: "response.reasoning_text.done",
    part: "response.content_part",
    index: "content_index",
    kind: b"reasoning_text",
};

/// A summary, for clients that request one.
pub(super) static SUMMARY: ReasoningWords = ReasoningWords {
    delta: "response.reasoning_summary_text.delta",
    done: "response.reasoning_summary_text.done",
    part: "response.reasoning_summary_part",
    index: "summary_index",
    kind: b"summary_text",
};

impl ReasoningItem {
    /// Seals the complete item.
    pub(super) fn seal(&mut self, seal: &ReasoningSeal) {
        self.sealed = self.kept.sealed(&self.text, seal);
    }

    /// Writes the members after the status. An item that is not complete has no text yet.
    pub(super) fn put(&self, words: &ReasoningWords, is_complete: bool, out: &mut BytesMut) {
        out.put_slice(b",\"type\":\"reasoning\",\"summary\":[");
        let has_text = is_complete && !self.text.is_empty();
        let is_summary = words.index == SUMMARY.index;
        if !is_summary {
            out.put_slice(b"],\"content\":[");
        }
        if has_text {
            self.put_part(words, out);
        }
        out.put_u8(b']');
        if let Some(sealed) = &self.sealed {
            put_raw_text("encrypted_content", sealed.as_bytes(), out);
        }
    }

    /// Writes the part with the text so far.
    pub(super) fn put_part(&self, words: &ReasoningWords, out: &mut BytesMut) {
        out.put_slice(b"{\"type\":\"");
        out.put_slice(words.kind);
        out.put_u8(b'"');
        put_raw_text("text", &self.text, out);
        out.put_u8(b'}');
    }
}
