//! An incremental scanner over the pieces of one JSON object.
//!
//! The scanner reports the position of each token to a [`JsonSink`] and keeps only its state: one bit for each level of
//! nesting. Pieces may be cut at any byte, and documents of any size are scanned in constant memory. The structure,
//! numbers and literals are always validated; the contents of strings only by a [`StrictScanner`]. A token that
//! lies within one piece is reported with one call, a token that is split between pieces in parts.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the piece; a wrong one must fail in the fuzzer"
)]

use super::block::{TextBytes, TextSearch, ends_escaping, search};
use super::fault::{JsonFault, What};
use super::scalar::{Scalar, ends_scalar, whole_length};
use super::sink::{DEPTH_MAX, Deaf, JsonPlace, JsonSink, JsonText, JsonWord};
use super::strict::StrictText;
use super::text_end::short_text;

/// The incremental JSON scanner. It must not be used after it has returned an error.
#[derive(Debug, Default)]
pub struct Scanner<const STRICT: bool = false> {
    state: ScanState,
    /// The state of the scalar in [`ScanState::Scalar`].
    scalar: Scalar,
    /// In the two text states: true if the part read so far ends in an odd run of backslashes.
    escaping: bool,
    depth: u32,
    /// The sink is not called for tokens at this depth or deeper. 0 if it receives all tokens.
    skipped_depth: u32,
    /// One bit for each level, the innermost lowest: set if the container is an object.
    objects: u128,
    /// Checks the contents of strings if the scanner is strict.
    text: StrictText,
    /// The total length of all earlier pieces in bytes.
    before: usize,
}

/// A scanner that also rejects strings with invalid UTF-8 or unescaped control characters.
pub type StrictScanner = Scanner<true>;

/// ```text
/// Start -{-> FirstKey -"-> KeyText -"-> Colon -:-> Value -> ValueText, Scalar, FirstKey or FirstValue -> After
///   After -,-> Key or Value     After -}]-> After, or End when the root object closes
/// ```
/// `KeyText`, `ValueText` and `Scalar` continue a token that began in an earlier piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    #[default]
    Start,
    FirstKey,
    Key,
    Colon,
    FirstValue,
    Value,
    After,
    End,
    KeyText,
    ValueText,
    Scalar,
}

impl Scanner {
    /// Creates a scanner for a whole document.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a scanner that starts inside the root object, before its first member.
    pub(crate) fn of_members() -> Self {
        Self { state: ScanState::FirstKey, depth: 1, objects: 1, ..Self::default() }
    }
}

impl<const STRICT: bool> Scanner<STRICT> {
    /// Reads the next piece.
    pub fn push<S: JsonSink>(&mut self, piece: &[u8], sink: &mut S) -> Result<(), JsonFault> {
        let mut at = 0;
        while at < piece.len() {
            if self.skipped_depth == 0 {
                at = self.walk(piece, at, sink)?;
            } else {
                at = self.walk(piece, at, &mut Deaf)?;
                if self.depth < self.skipped_depth {
                    self.skipped_depth = 0;
                    sink.close(self.place(at));
                }
            }
        }
        self.before += piece.len();
        Ok(())
    }

    /// True if the root object has been closed.
    pub fn is_complete(&self) -> bool {
        self.state == ScanState::End
    }

    /// Ends the document. Returns an error if the root object has not been closed.
    pub fn finish(&self) -> Result<(), JsonFault> {
        if self.is_complete() {
            Ok(())
        } else {
            Err(JsonFault { offset: self.before, what: What::Truncated })
        }
    }

    #[inline]
    fn place(&self, at: usize) -> JsonPlace {
        JsonPlace { depth: self.depth, offset: self.before + at }
    }

    #[inline]
    fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    /// Scans from `at` to the end of `piece`, or to the point where the sink starts or stops skipping.
    #[inline]
    fn walk<S: JsonSink>(&mut self, piece: &[u8], mut at: usize, sink: &mut S) -> Result<usize, JsonFault> {
        while let Some(&byte) = piece.get(at) {
            at = match (self.state, byte) {
                (ScanState::FirstKey | ScanState::Key, b'"') => self.members(piece, at, sink)?,
                (ScanState::FirstValue | ScanState::Value, b'"') => self.string(piece, at, false, sink)?,
                (ScanState::FirstValue | ScanState::Value, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                    self.scalar(piece, at, byte, sink)?
                }
                (ScanState::After, b',') => self.comma(at, sink),
                (ScanState::Colon, b':') => self.go(ScanState::Value, at),
                (ScanState::FirstValue | ScanState::Value, b'{' | b'[') | (ScanState::Start, b'{') => {
                    at = self.open(at, byte == b'{', sink)?;
                    if self.skipped_depth == self.depth {
                        return Ok(at);
                    }
                    at
                }
                (ScanState::FirstKey | ScanState::After, b'}') if self.in_object() => {
                    at = self.close(at, sink);
                    if self.depth < self.skipped_depth {
                        return Ok(at);
                    }
                    at
                }
                (ScanState::FirstValue | ScanState::After, b']') if !self.in_object() => {
                    at = self.close(at, sink);
                    if self.depth < self.skipped_depth {
                        return Ok(at);
                    }
                    at
                }
                (ScanState::KeyText | ScanState::ValueText, _) => self.rest_of_text(piece, at, sink)?,
                (ScanState::Scalar, _) => self.rest_of_scalar(piece, at, sink)?,
                (_, b' ' | b'\n' | b'\r' | b'\t') => at + 1,
                _ => return Err(self.fault(byte, at)),
            };
        }
        Ok(at)
    }

    #[inline]
    fn go(&mut self, state: ScanState, at: usize) -> usize {
        self.state = state;
        at + 1
    }

    #[inline]
    fn comma<S: JsonSink>(&mut self, at: usize, sink: &mut S) -> usize {
        sink.comma(self.place(at));
        self.go(if self.in_object() { ScanState::Key } else { ScanState::Value }, at)
    }

    #[inline]
    fn open<S: JsonSink>(&mut self, at: usize, object: bool, sink: &mut S) -> Result<usize, JsonFault> {
        let here = self.place(at);
        if self.depth >= DEPTH_MAX {
            return Err(JsonFault { offset: here.offset, what: What::TooDeep });
        }
        sink.open(here, object);
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        if sink.skips(here, object) {
            self.skipped_depth = self.depth;
        }
        Ok(self.go(if object { ScanState::FirstKey } else { ScanState::FirstValue }, at))
    }

    #[inline]
    fn close<S: JsonSink>(&mut self, at: usize, sink: &mut S) -> usize {
        self.depth -= 1;
        self.objects >>= 1;
        let next = self.go(if self.depth == 0 { ScanState::End } else { ScanState::After }, at);
        sink.close(self.place(next));
        next
    }

    /// Scans members in their most common form: name, colon, string or scalar, and comma without white space between
    /// them. Stops at the first member of another form.
    #[inline]
    fn members<S: JsonSink>(
        &mut self,
        piece: &[u8],
        mut at: usize,
        sink: &mut S,
    ) -> Result<usize, JsonFault> {
        loop {
            at = self.string(piece, at, true, sink)?;
            if self.state != ScanState::Colon || piece.get(at) != Some(&b':') {
                return Ok(at);
            }
            at = self.go(ScanState::Value, at);
            at = match piece.get(at) {
                Some(b'"') => self.string(piece, at, false, sink)?,
                Some(&byte @ (b'-' | b'0'..=b'9' | b't' | b'f' | b'n')) => {
                    self.scalar(piece, at, byte, sink)?
                }
                _ => return Ok(at),
            };
            if self.state != ScanState::After || piece.get(at) != Some(&b',') {
                return Ok(at);
            }
            sink.comma(self.place(at));
            at = self.go(ScanState::Key, at);
            if piece.get(at) != Some(&b'"') {
                return Ok(at);
            }
        }
    }

    /// Reads a string, or the part of it that is in `piece`.
    #[inline(always)]
    fn string<S: JsonSink>(
        &mut self,
        piece: &[u8],
        at: usize,
        key: bool,
        sink: &mut S,
    ) -> Result<usize, JsonFault> {
        let inside = at + 1;
        let rest = &piece[inside..];
        let Some(length) = short_text::<STRICT>(rest) else { return self.long_string(piece, at, key, sink) };
        let text = JsonText { start: self.place(at), raw: &rest[..length], plain: true, codes: false };
        self.whole_string(text, key, sink);
        Ok(inside + length + 1)
    }

    #[inline(always)]
    fn whole_string<S: JsonSink>(&mut self, text: JsonText<'_>, key: bool, sink: &mut S) {
        if key {
            sink.whole_key(text);
        } else {
            sink.whole_text(text);
        }
        self.state = if key { ScanState::Colon } else { ScanState::After };
    }

    /// Reads a string of any form, or the part of it that is in `piece`.
    #[inline(never)]
    fn long_string<S: JsonSink>(
        &mut self,
        piece: &[u8],
        at: usize,
        key: bool,
        sink: &mut S,
    ) -> Result<usize, JsonFault> {
        let inside = at + 1;
        let rest = &piece[inside..];
        let TextSearch { end, bytes } = search(rest, false);
        let raw = end.map_or(rest, |end| &rest[..end]);
        self.check_text(raw, bytes, inside, end.is_some())?;
        let (start, codes) = (self.place(at), bytes.has_codes);
        if end.is_none() {
            self.state = if key { ScanState::KeyText } else { ScanState::ValueText };
            self.escaping = ends_escaping(rest, false);
            sink.text_start(start, key);
            sink.text_piece(rest, codes);
            return Ok(piece.len());
        }
        self.whole_string(JsonText { start, raw, plain: false, codes }, key, sink);
        Ok(inside + raw.len() + 1)
    }

    /// Checks `part`, a part of a string that starts at `at`, if the scanner is strict. `is_last` is true if the string
    /// ends with it.
    #[inline]
    fn check_text(
        &mut self,
        part: &[u8],
        bytes: TextBytes,
        at: usize,
        is_last: bool,
    ) -> Result<(), JsonFault> {
        if STRICT { self.text.check(part, bytes, self.before + at, is_last) } else { Ok(()) }
    }

    /// Continues a string that began in an earlier piece.
    #[cold]
    fn rest_of_text<S: JsonSink>(
        &mut self,
        piece: &[u8],
        at: usize,
        sink: &mut S,
    ) -> Result<usize, JsonFault> {
        let key = self.state == ScanState::KeyText;
        let rest = &piece[at..];
        let TextSearch { end, bytes } = search(rest, self.escaping);
        let part = end.map_or(rest, |end| &rest[..end]);
        self.check_text(part, bytes, at, end.is_some())?;
        sink.text_piece(part, bytes.has_codes);
        if end.is_none() {
            self.escaping = ends_escaping(rest, self.escaping);
            return Ok(piece.len());
        }
        let next = at + part.len() + 1;
        self.state = if key { ScanState::Colon } else { ScanState::After };
        sink.text_end(self.place(next), key);
        Ok(next)
    }

    /// Reads a scalar that starts with `first`.
    #[inline(always)]
    fn scalar<S: JsonSink>(
        &mut self,
        piece: &[u8],
        at: usize,
        first: u8,
        sink: &mut S,
    ) -> Result<usize, JsonFault> {
        let rest = &piece[at..];
        let Some(length) = whole_length(rest, first) else { return self.odd_scalar(piece, at, first, sink) };
        let raw = &rest[..length];
        sink.whole_scalar(JsonWord { start: self.place(at), raw });
        self.state = ScanState::After;
        Ok(at + length)
    }

    /// Reads a scalar of an unusual form, or the part of one that is in `piece`.
    #[cold]
    fn odd_scalar<S: JsonSink>(
        &mut self,
        piece: &[u8],
        at: usize,
        first: u8,
        sink: &mut S,
    ) -> Result<usize, JsonFault> {
        let Some(scalar) = Scalar::start(first) else { return Err(self.fault(first, at)) };
        (self.state, self.scalar) = (ScanState::Scalar, scalar);
        sink.scalar_start(self.place(at));
        self.rest_of_scalar(piece, at, sink)
    }

    /// Continues a scalar of any form at any of its bytes.
    #[cold]
    fn rest_of_scalar<S: JsonSink>(
        &mut self,
        piece: &[u8],
        at: usize,
        sink: &mut S,
    ) -> Result<usize, JsonFault> {
        let rest = &piece[at..];
        for (index, &byte) in rest.iter().enumerate() {
            if ends_scalar(byte) && self.scalar.is_whole() {
                let end = at + index;
                sink.piece(&rest[..index]);
                sink.scalar_end(self.place(end));
                self.state = ScanState::After;
                return Ok(end);
            }
            let Some(next) = self.scalar.step(byte) else {
                return Err(self.fault(byte, at + index));
            };
            self.scalar = next;
        }
        sink.piece(rest);
        Ok(piece.len())
    }

    #[cold]
    fn fault(&self, byte: u8, at: usize) -> JsonFault {
        let is_value = matches!(byte, b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n');
        let what =
            if self.state == ScanState::Start && is_value { What::NotObject } else { What::Unexpected(byte) };
        JsonFault { offset: self.place(at).offset, what }
    }
}
