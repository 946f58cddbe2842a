//! The interface between the scanner and its consumers, and their limits.

/// The maximum nesting depth of arrays and objects (LIM-2). The scanner keeps one bit for each level, so this is also
/// the width of its stack.
pub const DEPTH_MAX: u32 = 128;

/// The maximum number of bytes of a member name that are kept for comparison: enough for the longest known name with
/// every character written as `\u....`.
pub const KEY_BYTES_MAX: usize = 192;

/// The position of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonPlace {
    /// The depth of the container that holds the token: 0 for the root object itself, 1 for its members.
    pub depth: u32,
    /// The number of bytes before the token, counted over all pieces.
    pub offset: usize,
}

/// A complete string within one piece.
#[derive(Clone, Copy, Debug)]
pub struct JsonText<'a> {
    /// The position of the opening quote.
    pub start: JsonPlace,
    /// The raw bytes between the quotes.
    pub raw: &'a [u8],
    /// True if the string is known to contain no backslash. May be false for a long string without one.
    pub plain: bool,
    /// True if the string may contain `\u` escapes.
    pub codes: bool,
}

/// A complete number, `true`, `false` or `null` within one piece.
#[derive(Clone, Copy, Debug)]
pub struct JsonWord<'a> {
    /// The position of the first byte.
    pub start: JsonPlace,
    /// The raw bytes.
    pub raw: &'a [u8],
}

impl JsonText<'_> {
    /// Returns the position after the closing quote.
    #[inline]
    pub fn end(&self) -> JsonPlace {
        let offset = self.start.offset + self.raw.len() + 2;
        JsonPlace { offset, ..self.start }
    }
}

impl JsonWord<'_> {
    /// Returns the position after the last byte.
    #[inline]
    pub fn end(&self) -> JsonPlace {
        JsonPlace { offset: self.start.offset + self.raw.len(), ..self.start }
    }
}

/// Receives the tokens of a document. By default the methods for whole tokens call those for their parts, which do nothing.
pub trait JsonSink {
    /// An object or array starts at `at`.
    fn open(&mut self, at: JsonPlace, object: bool) {
        let _ = (at, object);
    }
    /// True if the sink wants no tokens from inside the container that has just been opened at `at`. Its contents are
    /// still validated.
    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        let _ = (at, object);
        false
    }
    /// The innermost object or array ended before `at`.
    fn close(&mut self, at: JsonPlace) {
        let _ = at;
    }
    /// A string starts with the quote at `at`; `key` is true for a member name.
    fn text_start(&mut self, at: JsonPlace, key: bool) {
        let _ = (at, key);
    }
    /// The string ended before `at`.
    fn text_end(&mut self, at: JsonPlace, key: bool) {
        let _ = (at, key);
    }
    /// A number, `true`, `false` or `null` starts at `at`.
    fn scalar_start(&mut self, at: JsonPlace) {
        let _ = at;
    }
    /// The number or literal ended before `at`.
    fn scalar_end(&mut self, at: JsonPlace) {
        let _ = at;
    }
    /// Raw bytes of the current string (without its quotes) or scalar.
    fn piece(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
    /// Raw bytes of the current string; `codes` is true if they may contain `\u` escapes. By default, calls `piece`.
    fn text_piece(&mut self, bytes: &[u8], codes: bool) {
        let _ = codes;
        self.piece(bytes);
    }
    /// A complete member name. By default, reports its start, piece and end; most names arrive this way.
    #[inline]
    fn whole_key(&mut self, text: JsonText<'_>) {
        self.text_start(text.start, true);
        self.text_piece(text.raw, text.codes);
        self.text_end(text.end(), true);
    }
    /// A complete string value. By default, reports its start, piece and end.
    #[inline]
    fn whole_text(&mut self, text: JsonText<'_>) {
        self.text_start(text.start, false);
        self.text_piece(text.raw, text.codes);
        self.text_end(text.end(), false);
    }
    /// A complete scalar. By default, reports its start, piece and end.
    #[inline]
    fn whole_scalar(&mut self, word: JsonWord<'_>) {
        self.scalar_start(word.start);
        self.piece(word.raw);
        self.scalar_end(word.end());
    }
    /// A comma between two members or elements.
    fn comma(&mut self, at: JsonPlace) {
        let _ = at;
    }
}

/// A sink that ignores all tokens.
pub(super) struct Deaf;

impl JsonSink for Deaf {
    #[inline]
    fn whole_key(&mut self, _text: JsonText<'_>) {}
    #[inline]
    fn whole_text(&mut self, _text: JsonText<'_>) {}
    #[inline]
    fn whole_scalar(&mut self, _word: JsonWord<'_>) {}
}
