//! The verdicts on events of a stream.

#![expect(
    clippy::indexing_slicing,
    reason = "the part lies within the text; a wrong one must fail in the fuzzer"
)]

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

/// The verdict on an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EventVerdict {
    /// The event passes unchanged.
    Pass,
    /// The event is dropped.
    Drop,
    /// Other bytes are sent instead of the event.
    Replace(Bytes),
    /// The event passes with a part of its data replaced.
    Change(Box<TextChange>),
    /// The event passes unchanged, and nothing follows it.
    LastPass,
    /// These bytes, if any, are sent instead of the event, and nothing follows.
    Last(Option<Bytes>),
}

/// A range of a text and its replacement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TextChange {
    pub(crate) part: Range<usize>,
    pub(crate) by: Vec<u8>,
}

impl TextChange {
    /// Returns `text` with the replacement applied. `part` is relative to offset `before` in `text`.
    pub(crate) fn of(&self, text: &[u8], before: usize) -> Bytes {
        let (head, tail) = (&text[..before + self.part.start], &text[before + self.part.end..]);
        [head, &self.by, tail].concat().into()
    }

    /// Returns the event with the replacement applied to its `data`, which may be spread over several lines of the
    /// event.
    pub(super) fn of_event(&self, event: &[u8], data: &[u8]) -> Bytes {
        if let Some(before) = memchr::memmem::find(event, data) {
            return self.of(event, before);
        }
        let mut out = Vec::with_capacity(event.len() + self.by.len());
        for line in self.of(data, 0).split(|byte| *byte == b'\n') {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        out.push(b'\n');
        out.into()
    }
}

/// Sanitizes data of an unknown form, which may still contain secrets.
pub(super) fn opaque(data: &[u8], secrets: &[&str]) -> EventVerdict {
    let text = String::from_utf8_lossy(data);
    match shared::sanitize::diagnostic(&text, secrets) {
        Cow::Borrowed(_) => EventVerdict::Pass,
        Cow::Owned(clean) => {
            EventVerdict::Replace(format!("data: {}\n\n", clean.replace(['\n', '\r'], " ")).into())
        }
    }
}
