//! The output items of a response, and their form in JSON.

use bytes::{BufMut as _, BytesMut};

use super::calls::{FunctionCallItem, FunctionCallItems};
use super::event_writer::number;
use super::reasoning_item::{CONTENT, ReasoningItem, ReasoningWords};

/// An item of the output.
#[derive(Debug)]
pub(super) struct OutputItem {
    /// `in_progress` until the item is closed.
    pub(super) status: &'static str,
    pub(super) body: ItemBody,
}

/// The content of an item.
#[derive(Debug)]
pub(super) enum ItemBody {
    Reasoning(ReasoningItem),
    Message(Vec<OutputPart>),
    /// The position of the call in [`FunctionCallItems`].
    Call(usize),
    /// An image: its format, and its bytes in base64.
    Image {
        format: String,
        base64: BytesMut,
    },
}

/// A part of a message.
#[derive(Debug)]
pub(super) struct OutputPart {
    pub(super) kind: PartKind,
    pub(super) text: BytesMut,
}

/// The kind of a message's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Refusal,
}

/// The status of an open item.
pub(super) const IN_PROGRESS: &str = "in_progress";

/// The calls, and the names of the reasoning's parts, that items are written with.
pub(super) type ItemParts<'a> = (&'a FunctionCallItems, &'a ReasoningWords);

impl OutputItem {
    /// Writes the item at `index`.
    pub(super) fn put(&self, index: usize, seed: &str, (calls, words): ItemParts<'_>, out: &mut BytesMut) {
        out.put_slice(b"{\"id\":\"");
        put_id(seed, self.body.prefix(calls), index, out);
        out.put_slice(b"\",\"status\":\"");
        out.put_slice(self.status.as_bytes());
        out.put_u8(b'"');
        match &self.body {
            ItemBody::Reasoning(reasoning) => reasoning.put(words, self.status != IN_PROGRESS, out),
            ItemBody::Message(parts) => {
                out.put_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
                for (index, part) in parts.iter().enumerate() {
                    if index > 0 {
                        out.put_u8(b',');
                    }
                    part.put(out);
                }
                out.put_u8(b']');
            }
            ItemBody::Call(place) => {
                if let Some(call) = calls.get(*place) {
                    call.put(out);
                }
            }
            ItemBody::Image { format, base64 } => {
                out.put_slice(b",\"type\":\"image_generation_call\"");
                if self.status == IN_PROGRESS {
                    out.put_slice(b",\"result\":null");
                } else {
                    put_raw_text("output_format", format.as_bytes(), out);
                    put_raw_text("result", base64, out);
                }
            }
        }
        out.put_u8(b'}');
    }
}

impl ItemBody {
    /// Returns the beginning of the item's id.
    pub(super) fn prefix(&self, calls: &FunctionCallItems) -> &'static str {
        match self {
            Self::Reasoning(_) => "rs",
            Self::Message(_) => "msg",
            Self::Call(place) => calls.get(*place).map_or("fc", FunctionCallItem::prefix),
            Self::Image { .. } => "ig",
        }
    }

    /// Returns the member with the index of a part.
    pub(super) fn part_index(&self, words: &ReasoningWords) -> &'static str {
        if matches!(self, Self::Reasoning(_)) { words.index } else { CONTENT.index }
    }
}

impl OutputPart {
    pub(super) fn put(&self, out: &mut BytesMut) {
        match self.kind {
            PartKind::Text => {
                out.put_slice(b"{\"type\":\"output_text\"");
                put_raw_text("text", &self.text, out);
                out.put_slice(b",\"annotations\":[]}");
            }
            PartKind::Refusal => {
                out.put_slice(b"{\"type\":\"refusal\"");
                put_raw_text("refusal", &self.text, out);
                out.put_u8(b'}');
            }
        }
    }
}

impl PartKind {
    pub(super) fn delta_name(self) -> &'static str {
        match self {
            Self::Text => "response.output_text.delta",
            Self::Refusal => "response.refusal.delta",
        }
    }
}

/// Writes a member with a string value that is already escaped.
pub(super) fn put_raw_text(name: &str, raw: &[u8], out: &mut BytesMut) {
    for part in [b",\"", name.as_bytes(), b"\":\"", raw, b"\""] {
        out.put_slice(part);
    }
}

fn put_id(seed: &str, prefix: &str, index: usize, out: &mut BytesMut) {
    for part in [prefix, "_", seed, "_"] {
        out.put_slice(part.as_bytes());
    }
    number(out, wide(index));
}

/// Writes the id and the index of an item as members of an event.
pub(super) fn put_place(seed: &str, prefix: &str, index: usize, out: &mut BytesMut) {
    out.put_slice(b",\"item_id\":\"");
    put_id(seed, prefix, index, out);
    out.put_slice(b"\",\"output_index\":");
    number(out, wide(index));
}

/// Writes the index of a part as the member `name`.
pub(super) fn put_part_index(name: &str, part: usize, out: &mut BytesMut) {
    for piece in [",\"", name, "\":"] {
        out.put_slice(piece.as_bytes());
    }
    number(out, wide(part));
}

pub(super) fn wide(index: usize) -> u64 {
    index.try_into().unwrap_or(u64::MAX)
}
