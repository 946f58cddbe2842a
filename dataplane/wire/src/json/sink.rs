//! Who listens to a scanner, and what it is told.

/// Where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonPlace {
    /// Of the container that holds the token: 0 for the root object itself, 1 for its members.
    pub depth: u32,
    /// Bytes before it, over all pieces.
    pub offset: usize,
}

/// A string that stands in one piece, whole.
#[derive(Clone, Copy, Debug)]
pub struct JsonText<'a> {
    /// Of its first quote.
    pub start: JsonPlace,
    /// What stands between the quotes.
    pub raw: &'a [u8],
    /// It is known to hold no backslash. A long one may hold none either.
    pub plain: bool,
}

/// A number, `true`, `false` or `null` that stands in one piece, whole.
#[derive(Clone, Copy, Debug)]
pub struct JsonWord<'a> {
    /// Of its first byte.
    pub start: JsonPlace,
    /// All of it.
    pub raw: &'a [u8],
}

impl JsonText<'_> {
    /// After its last quote.
    #[inline]
    pub fn end(&self) -> JsonPlace {
        let offset = self.start.offset.wrapping_add(self.raw.len()).wrapping_add(2);
        JsonPlace { offset, ..self.start }
    }
}

impl JsonWord<'_> {
    /// After its last byte.
    #[inline]
    pub fn end(&self) -> JsonPlace {
        JsonPlace { offset: self.start.offset.wrapping_add(self.raw.len()), ..self.start }
    }
}

/// What is done with the tokens. Every method does nothing unless it is given.
pub trait JsonSink {
    /// An object or array begins at `at`.
    fn open(&mut self, at: JsonPlace, object: bool) {
        let _ = (at, object);
    }
    /// Whether nothing is to be told of what stands inside the container that has just been opened at `at`, up
    /// to its close. It is checked all the same.
    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        let _ = (at, object);
        false
    }
    /// It has ended before `at`.
    fn close(&mut self, at: JsonPlace) {
        let _ = at;
    }
    /// A string begins with the quote at `at`; it is a member's name if `key`.
    fn text_start(&mut self, at: JsonPlace, key: bool) {
        let _ = (at, key);
    }
    /// It has ended before `at`.
    fn text_end(&mut self, at: JsonPlace, key: bool) {
        let _ = (at, key);
    }
    /// A number, `true`, `false` or `null` begins at `at`.
    fn scalar_start(&mut self, at: JsonPlace) {
        let _ = at;
    }
    /// It has ended before `at`.
    fn scalar_end(&mut self, at: JsonPlace) {
        let _ = at;
    }
    /// Some raw bytes of the string (without its quotes) or scalar that is open.
    fn piece(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
    /// Start, piece and end of a member's name at once, as most names come.
    #[inline]
    fn whole_key(&mut self, text: JsonText<'_>) {
        self.text_start(text.start, true);
        self.piece(text.raw);
        self.text_end(text.end(), true);
    }
    /// Start, piece and end of another string at once.
    #[inline]
    fn whole_text(&mut self, text: JsonText<'_>) {
        self.text_start(text.start, false);
        self.piece(text.raw);
        self.text_end(text.end(), false);
    }
    /// Start, piece and end of a scalar at once.
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

/// Listens to nothing.
pub(super) struct Deaf;

impl JsonSink for Deaf {
    #[inline]
    fn whole_key(&mut self, _text: JsonText<'_>) {}
    #[inline]
    fn whole_text(&mut self, _text: JsonText<'_>) {}
    #[inline]
    fn whole_scalar(&mut self, _word: JsonWord<'_>) {}
}
