//! Captures the raw bytes of one member's value while the document is read in pieces.

use std::ops::Range;

/// The maximum number of bytes that are captured; a longer value is treated as unreadable.
const CAPTURE_BYTES_MAX: usize = 64 * 1024;

/// The raw bytes of one value.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    span: Option<Range<usize>>,
    open: bool,
    bytes: Vec<u8>,
    overflowed: bool,
}

impl Capture {
    /// Starts a value at offset `at` and discards any earlier one.
    pub(crate) fn start(&mut self, at: usize) {
        *self = Self { span: Some(at..at), open: true, bytes: Vec::new(), overflowed: false };
    }

    /// Ends the value before offset `at`.
    pub(crate) fn end(&mut self, at: usize) {
        self.open = false;
        if let Some(span) = &mut self.span {
            span.end = at;
        }
    }

    /// Copies the value's bytes from a piece that starts at offset `before`.
    #[inline]
    pub(crate) fn copy(&mut self, before: usize, piece: &[u8]) {
        if self.span.is_some() && !self.overflowed {
            self.copy_span(before, piece);
        }
    }

    fn copy_span(&mut self, before: usize, piece: &[u8]) {
        let Some(span) = &self.span else { return };
        let after = before + piece.len();
        let from = span.start.saturating_add(self.bytes.len()).saturating_sub(before);
        let to = if self.open { after } else { span.end.min(after) }.saturating_sub(before);
        let Some(bytes) = piece.get(from..to) else { return };
        if self.bytes.len() + bytes.len() > CAPTURE_BYTES_MAX {
            self.overflowed = true;
            self.bytes = Vec::new();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the offsets of the value after it has ended.
    pub(crate) fn span(&self) -> Option<Range<usize>> {
        self.span.clone().filter(|_| !self.open)
    }

    /// Returns the value unless it is falsy in JavaScript and Python: null, false, 0, "", [] or {}. A value that has not
    /// ended counts if it looks truthy so far, however much of it was captured.
    pub(crate) fn truthy(&self) -> Option<&[u8]> {
        let raw = self.bytes.as_slice();
        let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default().trim_ascii();
        let is_falsy = match raw.first() {
            None => !self.overflowed,
            _ if self.open => !self.looks_truthy(),
            Some(b'"' | b'[' | b'{') => inner.is_empty(),
            Some(_) => matches!(raw, b"null" | b"false" | b"0" | b"-0" | b"0.0"),
        };
        (!is_falsy).then_some(raw)
    }

    /// True if the value is truthy, or, before its end, if it looks truthy so far.
    pub(crate) fn begun(&self) -> bool {
        self.truthy().is_some()
    }

    /// True if the first byte is that of a value that is usually truthy.
    fn looks_truthy(&self) -> bool {
        matches!(self.bytes.first(), Some(b'{' | b'[' | b'"' | b't' | b'1'..=b'9'))
    }
}
