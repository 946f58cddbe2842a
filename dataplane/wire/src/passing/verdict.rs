//! What becomes of an event.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

/// What becomes of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EventVerdict {
    /// It goes on as it came.
    Pass,
    /// It does not go on.
    Drop,
    /// Something else goes on in its place.
    Replace(Bytes),
    /// It goes on with a part of its data changed.
    Change(Box<TextChange>),
    /// It goes on as it came, and nothing comes after it.
    LastPass,
    /// This, if anything, goes on in its place, and nothing comes after it.
    Last(Option<Bytes>),
}

/// A part of some text, and what takes its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TextChange {
    pub(crate) part: Range<usize>,
    pub(crate) by: Vec<u8>,
}

impl TextChange {
    /// `text` with the change, `part` being `before` bytes further on in it.
    pub(crate) fn of(&self, text: &[u8], before: usize) -> Bytes {
        let at = |end: usize| text.get(..end.saturating_add(before)).unwrap_or(text);
        let rest = text.get(at(self.part.end).len()..).unwrap_or_default();
        [at(self.part.start), &self.by, rest].concat().into()
    }

    /// The event whose data is `data`, which may stand in several lines of it.
    pub(super) fn of_event(&self, event: &[u8], data: &[u8]) -> Bytes {
        if let Some(before) = memchr::memmem::find(event, data) {
            return self.of(event, before);
        }
        let mut out = Vec::with_capacity(event.len().saturating_add(self.by.len()));
        for line in self.of(data, 0).split(|byte| *byte == b'\n') {
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(line);
            out.push(b'\n');
        }
        out.push(b'\n');
        out.into()
    }
}

/// Data that means nothing to us: it may still give something away.
pub(crate) fn opaque(data: &[u8], secrets: &[&str]) -> EventVerdict {
    let text = String::from_utf8_lossy(data);
    match shared::sanitize::diagnostic(&text, secrets) {
        Cow::Borrowed(_) => EventVerdict::Pass,
        Cow::Owned(clean) => {
            EventVerdict::Replace(format!("data: {}\n\n", clean.replace(['\n', '\r'], " ")).into())
        }
    }
}
