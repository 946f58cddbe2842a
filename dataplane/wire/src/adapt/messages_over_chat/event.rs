//! Writes the events of a Messages stream without a serializer: a delta costs a few copies. Texts are passed in
//! escaped.

use bytes::{BufMut as _, Bytes, BytesMut};
use shared::usage::TokenCounts;

use crate::json::meant_bytes;

/// The room reserved for each write to the buffer.
const ROOM_BYTES: usize = 4 * 1024;

/// The kind of the open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenBlock {
    Text,
    Thinking,
    Tool,
}

impl OpenBlock {
    /// Returns the type of its deltas, and the member that holds their text.
    fn delta(self) -> (&'static str, &'static str) {
        match self {
            Self::Text => ("text_delta", "text"),
            Self::Thinking => ("thinking_delta", "thinking"),
            Self::Tool => ("input_json_delta", "partial_json"),
        }
    }
}

/// Buffers events for the client.
#[derive(Debug, Default)]
pub(super) struct MessagesEventWriter {
    out: BytesMut,
    /// The kind of the open block, if there is one.
    open: Option<OpenBlock>,
    /// The number of blocks opened so far.
    blocks: usize,
    /// The beginning of a delta of the open block, up to its text.
    delta: Vec<u8>,
    /// The number of deltas and calls written so far.
    outputs: u64,
    /// The number of bytes of text in deltas.
    output_bytes: u64,
}

impl MessagesEventWriter {
    /// Returns the events written since the last call.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        (!self.out.is_empty()).then(|| self.out.split().freeze())
    }

    pub(super) fn open(&self) -> Option<OpenBlock> {
        self.open
    }

    /// Returns the number of deltas and calls written so far.
    pub(super) fn outputs(&self) -> u64 {
        self.outputs
    }

    /// Returns the number of bytes of text in deltas.
    pub(super) fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// Writes `message_start`; `model` is JSON.
    pub(super) fn start(&mut self, id: &str, model: &str, used: TokenCounts) {
        self.put(&[
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"",
            id,
            "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
            model,
            ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":",
            &super::answer::usage(Some(used)),
            "}}\n\n",
        ]);
    }

    /// Opens a text or thinking block, if that kind is not open.
    pub(super) fn ensure(&mut self, block: OpenBlock) {
        if self.open != Some(block) {
            let empty = match block {
                OpenBlock::Text => "{\"type\":\"text\",\"text\":\"\"}",
                OpenBlock::Thinking | OpenBlock::Tool => {
                    "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"
                }
            };
            self.begin(block, &[empty]);
        }
    }

    /// Opens a tool block; `id` and `name` are JSON.
    pub(super) fn tool(&mut self, id: &str, name: &str) {
        self.outputs = self.outputs.saturating_add(1);
        self.begin(
            OpenBlock::Tool,
            &["{\"type\":\"tool_use\",\"id\":", id, ",\"name\":", name, ",\"input\":{}}"],
        );
    }

    /// Writes a delta of the open block.
    pub(super) fn delta(&mut self, escaped: &str) {
        self.outputs = self.outputs.saturating_add(1);
        let bytes = meant_bytes(escaped.as_bytes());
        self.output_bytes = self.output_bytes.saturating_add(bytes.try_into().unwrap_or(u64::MAX));
        self.out.reserve(self.delta.len().saturating_add(escaped.len()).saturating_add(8).max(256));
        self.out.put_slice(&self.delta);
        self.out.put_slice(escaped.as_bytes());
        self.out.put_slice(b"\"}}\n\n");
    }

    /// Writes the signature of the open thinking block, which is still escaped, and closes the block.
    pub(super) fn signature(&mut self, escaped: &str) {
        self.outputs = self.outputs.saturating_add(1);
        let index = self.blocks.saturating_sub(1).to_string();
        self.put(&[
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
            &index,
            ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"",
            escaped,
            "\"}}\n\n",
        ]);
        self.close();
    }

    /// Writes a block of redacted thoughts, which are still escaped.
    pub(super) fn redacted(&mut self, escaped: &str) {
        self.outputs = self.outputs.saturating_add(1);
        let content = ["{\"type\":\"redacted_thinking\",\"data\":\"", escaped, "\"}"];
        self.begin(OpenBlock::Thinking, &content);
        self.close();
    }

    /// Closes the open block, if there is one.
    pub(super) fn close(&mut self) {
        if self.open.take().is_some() {
            let index = self.blocks.saturating_sub(1).to_string();
            self.put(&[
                "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":",
                &index,
                "}\n\n",
            ]);
        }
    }

    /// Writes `message_delta` and `message_stop`.
    pub(super) fn stop(&mut self, ending: &[u8], usage: Option<TokenCounts>) {
        self.put(&["event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"]);
        self.out.extend_from_slice(ending);
        self.put(&[
            "},\"usage\":",
            &super::answer::usage(usage),
            "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ]);
    }

    /// Writes a complete event unchanged.
    pub(super) fn event(&mut self, event: &[u8]) {
        self.out.extend_from_slice(event);
    }

    fn begin(&mut self, block: OpenBlock, content: &[&str]) {
        self.close();
        let index = self.blocks.to_string();
        self.blocks = self.blocks.saturating_add(1);
        self.open = Some(block);
        self.put(&[
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":",
            &index,
            ",\"content_block\":",
        ]);
        self.put(content);
        self.put(&["}\n\n"]);
        let (kind, member) = block.delta();
        self.delta.clear();
        for part in [
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
            &index,
            ",\"delta\":{\"type\":\"",
            kind,
            "\",\"",
            member,
            "\":\"",
        ] {
            self.delta.extend_from_slice(part.as_bytes());
        }
    }

    fn put(&mut self, parts: &[&str]) {
        self.out.reserve(ROOM_BYTES);
        parts.iter().for_each(|part| self.out.put_slice(part.as_bytes()));
    }
}
