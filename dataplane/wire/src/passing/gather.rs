//! Tokens of an event on their way to what is noted of it: whole where they come whole, else gathered piece by
//! piece.

use std::borrow::Cow;
use std::fmt::Debug;

use super::Capture;
use crate::json::{Escapes, Fault, KEY_BYTES_MAX, Place, Scanner, Sink, Text, TextLength, Word, unescape};

/// What is noted of a document.
pub(crate) trait Facts: Debug + Default {
    /// What is kept of the document's own bytes.
    fn capture(&mut self) -> &mut Capture;
    /// A value of any kind begins.
    fn begins(&mut self, at: Place);
    /// It is an object or array.
    fn open(&mut self, at: Place, object: bool);
    /// Nothing inside the one that has just begun is to be told.
    fn skips(&self, at: Place, object: bool) -> bool;
    /// It has ended before `at`.
    fn close(&mut self, at: Place);
    /// The name of a member.
    fn name(&mut self, depth: u32, name: &[u8]);
    /// A string of this length, which began at `at`; `glance` is how it begins, at most [`KEY_BYTES_MAX`] bytes of it.
    fn text(&mut self, at: Place, length: TextLength, glance: &[u8]);
    /// A number, `true`, `false` or `null`, which began at `at`.
    fn scalar(&mut self, at: Place, raw: &[u8]);
}

/// A scan of one document, fed in pieces.
#[derive(Debug, Default)]
pub(crate) struct Gather<F> {
    scanner: Scanner,
    told: Told<F>,
    before: usize,
}

#[derive(Debug, Default)]
struct Told<F> {
    facts: F,
    start: Option<Place>,
    taken: Vec<u8>,
    length: usize,
    escapes: Escapes,
}

impl<F: Facts> Gather<F> {
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), Fault> {
        let result = self.scanner.push(piece, &mut self.told);
        self.told.facts.capture().copy(self.before, piece);
        self.before = self.before.saturating_add(piece.len());
        result
    }

    pub(crate) fn facts(&self) -> &F {
        &self.told.facts
    }

    pub(crate) fn facts_mut(&mut self) -> &mut F {
        &mut self.told.facts
    }

    pub(crate) fn finish(self) -> (F, Result<(), Fault>) {
        let result = self.scanner.finish();
        (self.told.facts, result)
    }

    /// What one whole document holds, or that it is not a JSON object.
    #[inline]
    pub(crate) fn of(document: &[u8]) -> Result<F, Fault> {
        let mut gather = Self::default();
        gather.push(document)?;
        gather.scanner.finish()?;
        Ok(gather.told.facts)
    }
}

impl<F> Told<F> {
    fn begin(&mut self, at: Place) {
        self.start = Some(at);
        self.taken.clear();
        self.length = 0;
        self.escapes = Escapes::default();
    }
}

impl<F: Facts> Sink for Told<F> {
    #[inline]
    fn open(&mut self, at: Place, object: bool) {
        self.facts.begins(at);
        self.facts.open(at, object);
    }

    #[inline]
    fn skips(&self, at: Place, object: bool) -> bool {
        self.facts.skips(at, object)
    }

    #[inline]
    fn close(&mut self, at: Place) {
        self.facts.close(at);
    }

    fn text_start(&mut self, at: Place, key: bool) {
        self.begin(at);
        if !key {
            self.facts.begins(at);
        }
    }

    fn text_end(&mut self, at: Place, key: bool) {
        let taken = std::mem::take(&mut self.taken);
        if key {
            self.facts.name(at.depth, &unescaped(&taken));
        } else {
            self.facts.text(self.start.unwrap_or(at), self.escapes.length(self.length), &taken);
        }
        self.taken = taken;
    }

    fn scalar_start(&mut self, at: Place) {
        self.begin(at);
        self.facts.begins(at);
    }

    fn scalar_end(&mut self, at: Place) {
        let taken = std::mem::take(&mut self.taken);
        self.facts.scalar(self.start.unwrap_or(at), &taken);
        self.taken = taken;
    }

    fn piece(&mut self, bytes: &[u8]) {
        let room = KEY_BYTES_MAX.saturating_sub(self.taken.len());
        self.taken.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.length = self.length.saturating_add(bytes.len());
        self.escapes.push(bytes);
    }

    #[inline]
    fn whole_key(&mut self, text: Text<'_>) {
        if text.plain {
            self.facts.name(text.start.depth, text.raw);
        } else {
            let taken = text.raw.get(..KEY_BYTES_MAX).unwrap_or(text.raw);
            self.facts.name(text.start.depth, &unescaped(taken));
        }
    }

    #[inline]
    fn whole_text(&mut self, text: Text<'_>) {
        let taken = text.raw.get(..KEY_BYTES_MAX).unwrap_or(text.raw);
        self.facts.begins(text.start);
        self.facts.text(text.start, TextLength::of(&text), taken);
    }

    #[inline]
    fn whole_scalar(&mut self, word: Word<'_>) {
        self.facts.begins(word.start);
        self.facts.scalar(word.start, word.raw);
    }
}

/// A name as it is meant. Almost always that is how it is written.
pub(crate) fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', raw).is_none() {
        return raw.into();
    }
    unescape(raw).map_or_else(|| raw.into(), |text| text.into_bytes().into())
}
