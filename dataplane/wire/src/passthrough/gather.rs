//! Collects the tokens of one document for its `DocumentFacts`: complete tokens directly, split tokens piece by
//! piece.

use std::fmt::Debug;

use super::{Capture, WholeAnswer};
use crate::json::{
    Escapes, JsonPlace, JsonSink, JsonText, JsonWord, KEY_BYTES_MAX, Scanner, TextLength, unescaped,
};

/// Collects facts about a document from its tokens.
pub(crate) trait DocumentFacts: Debug + Default {
    /// Returns the capture of the document's own bytes.
    fn capture(&mut self) -> &mut Capture;
    /// A value of any kind starts.
    fn begins(&mut self, at: JsonPlace);
    /// The value ended before `at`.
    fn ends(&mut self, at: JsonPlace);
    /// The value is an object or array.
    fn open(&mut self, at: JsonPlace, object: bool);
    /// True if no tokens inside the container that has just started are wanted.
    fn skips(&self, at: JsonPlace, object: bool) -> bool;
    /// The innermost object or array ended before `at`.
    fn close(&mut self, at: JsonPlace) {
        let _ = at;
    }
    /// The name of a member.
    fn name(&mut self, depth: u32, name: &[u8]);
    /// A string of this length that started at `at`; `glance` is its start, at most [`KEY_BYTES_MAX`] bytes.
    fn text(&mut self, at: JsonPlace, length: TextLength, glance: &[u8]);
    /// A number, `true`, `false` or `null` that started at `at`.
    fn scalar(&mut self, at: JsonPlace, raw: &[u8]);
}

/// The facts about a whole answer.
pub(crate) trait AnswerFacts: DocumentFacts {
    /// Returns what is known about the answer, apart from whether it is JSON.
    fn answer(self) -> WholeAnswer;
}

/// A scan of one document that arrives in pieces. It ends at the first fault.
#[derive(Debug, Default)]
pub(crate) struct Gather<F> {
    scanner: Scanner,
    gathering: Gathering<F>,
    before: usize,
    broken: bool,
}

#[derive(Debug, Default)]
struct Gathering<F> {
    facts: F,
    start: Option<JsonPlace>,
    taken: Vec<u8>,
    length: usize,
    escapes: Escapes,
}

impl<F: DocumentFacts> Gather<F> {
    /// Creates a scan of the last members of a document, without those before them.
    pub(crate) fn of_members() -> Self {
        Self { scanner: Scanner::of_members(), ..Self::default() }
    }

    /// Reads the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        if self.broken {
            return;
        }
        self.broken = self.scanner.push(piece, &mut self.gathering).is_err();
        self.gathering.facts.capture().copy(self.before, piece);
        self.before += piece.len();
    }

    pub(crate) fn facts(&self) -> &F {
        &self.gathering.facts
    }

    pub(crate) fn facts_mut(&mut self) -> &mut F {
        &mut self.gathering.facts
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn read_bytes(&self) -> usize {
        self.before
    }

    /// Ends the scan as a fault does.
    pub(crate) fn give_up(&mut self) {
        self.broken = true;
    }

    /// True if the document is not JSON.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// True if the document was one complete JSON object.
    fn is_json(&self) -> bool {
        !self.broken && self.scanner.finish().is_ok()
    }

    /// Returns the facts of one complete document. `None` if it is not a JSON object.
    #[inline]
    pub(crate) fn of(document: &[u8]) -> Option<F> {
        let mut gather = Self::default();
        gather.push(document);
        if gather.is_json() { Some(gather.gathering.facts) } else { None }
    }
}

impl<F: AnswerFacts> Gather<F> {
    /// Returns the facts of an answer after its end.
    pub(crate) fn answer(self) -> WholeAnswer {
        let is_json = self.is_json();
        WholeAnswer { is_json, ..self.gathering.facts.answer() }
    }

    /// Reads a complete answer.
    pub(crate) fn answer_of(body: &[u8]) -> WholeAnswer {
        let mut gather = Self::default();
        gather.push(body);
        gather.answer()
    }
}

impl<F> Gathering<F> {
    fn begin(&mut self, at: JsonPlace) {
        self.start = Some(at);
        self.taken.clear();
        self.length = 0;
        self.escapes = Escapes::default();
    }
}

impl<F: DocumentFacts> JsonSink for Gathering<F> {
    #[inline]
    fn open(&mut self, at: JsonPlace, object: bool) {
        self.facts.begins(at);
        self.facts.open(at, object);
    }

    #[inline]
    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        self.facts.skips(at, object)
    }

    #[inline]
    fn close(&mut self, at: JsonPlace) {
        self.facts.close(at);
        self.facts.ends(at);
    }

    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.begin(at);
        if !key {
            self.facts.begins(at);
        }
    }

    fn text_end(&mut self, at: JsonPlace, key: bool) {
        let taken = std::mem::take(&mut self.taken);
        if key {
            self.facts.name(at.depth, &unescaped(&taken));
        } else {
            self.facts.text(self.start.unwrap_or(at), self.escapes.length(self.length), &taken);
            self.facts.ends(at);
        }
        self.taken = taken;
    }

    fn scalar_start(&mut self, at: JsonPlace) {
        self.begin(at);
        self.facts.begins(at);
    }

    fn scalar_end(&mut self, at: JsonPlace) {
        let taken = std::mem::take(&mut self.taken);
        self.facts.scalar(self.start.unwrap_or(at), &taken);
        self.facts.ends(at);
        self.taken = taken;
    }

    fn piece(&mut self, bytes: &[u8]) {
        let room = KEY_BYTES_MAX - self.taken.len();
        self.taken.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.length += bytes.len();
    }

    fn text_piece(&mut self, bytes: &[u8], codes: bool) {
        self.piece(bytes);
        self.escapes.push(bytes, codes);
    }

    #[inline]
    fn whole_key(&mut self, text: JsonText<'_>) {
        if text.plain {
            self.facts.name(text.start.depth, text.raw);
        } else {
            let taken = text.raw.get(..KEY_BYTES_MAX).unwrap_or(text.raw);
            self.facts.name(text.start.depth, &unescaped(taken));
        }
    }

    #[inline]
    fn whole_text(&mut self, text: JsonText<'_>) {
        let taken = text.raw.get(..KEY_BYTES_MAX).unwrap_or(text.raw);
        self.facts.begins(text.start);
        self.facts.text(text.start, TextLength::of(&text), taken);
        self.facts.ends(text.end());
    }

    #[inline]
    fn whole_scalar(&mut self, word: JsonWord<'_>) {
        self.facts.begins(word.start);
        self.facts.scalar(word.start, word.raw);
        self.facts.ends(word.end());
    }
}
