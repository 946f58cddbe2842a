//! How the tokens of an answer reach what is noted of it: whole where they come whole, else gathered piece by
//! piece.

use super::seen::{ChoiceKey, DeltaKey, Seen, Top, unescaped};
use crate::json::{Escapes, KEY_BYTES_MAX, Place, Sink, Text, TextLength, Word};

impl Sink for Seen {
    #[inline]
    fn open(&mut self, at: Place, object: bool) {
        self.value_starts(at);
        match (at.depth, self.top) {
            (1, Top::Choices) => {
                self.has_choices = !object;
                self.has_choice = false;
            }
            (1, Top::Usage) if object => self.usage_begins(at),
            (1, Top::Groq) => self.groq_usage_key = false,
            (2, Top::Groq) if object && self.groq_usage_key => self.usage_begins(at),
            (2, _) => self.choice_key = ChoiceKey::Other,
            (3, Top::Choices) if object && self.choice_key == ChoiceKey::Usage => self.usage_begins(at),
            (3, _) => self.delta_key = DeltaKey::Other,
            _ => {}
        }
    }

    #[inline]
    fn skips(&self, at: Place, object: bool) -> bool {
        if self.reading_depth > 0 {
            let level = at.depth.wrapping_sub(self.reading_depth);
            return level < u32::MAX && !(object && self.reader.enters(level));
        }
        match at.depth {
            0 => false,
            1 => self.top != Top::Choices && !(self.top == Top::Groq && object),
            2 => self.top == Top::Groq,
            3 => self.choice_key != ChoiceKey::Delta,
            4 => self.delta_key == DeltaKey::Other,
            _ => false,
        }
    }

    #[inline]
    fn close(&mut self, at: Place) {
        if at.depth.wrapping_add(1) == self.reading_depth {
            self.usage_ends(at);
        }
        self.value_ends(at);
    }

    fn text_start(&mut self, at: Place, key: bool) {
        self.taken.clear();
        self.length = 0;
        self.escapes = Escapes::default();
        let is_short = matches!(self.top, Top::Object | Top::Tier | Top::Duration);
        self.take_max = if key || is_short { KEY_BYTES_MAX } else { 0 };
        if !key {
            self.value_starts(at);
        }
    }

    fn text_end(&mut self, at: Place, key: bool) {
        let taken = std::mem::take(&mut self.taken);
        if key {
            self.key_ends(at.depth, &unescaped(&taken));
        } else {
            self.text_value_ends(at.depth, self.escapes.length(self.length).meant, &taken);
            self.value_ends(at);
        }
        self.taken = taken;
    }

    fn piece(&mut self, bytes: &[u8]) {
        let room = self.take_max.saturating_sub(self.taken.len());
        if room > 0 {
            self.taken.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        }
        self.length = self.length.saturating_add(bytes.len());
        self.escapes.push(bytes);
    }

    #[inline]
    fn whole_key(&mut self, text: Text<'_>) {
        if text.plain {
            self.key_ends(text.start.depth, text.raw);
        } else {
            self.key_ends(text.start.depth, &unescaped(text.raw));
        }
    }

    #[inline]
    fn whole_text(&mut self, text: Text<'_>) {
        if self.reading_depth == 0 {
            self.value_starts(text.start);
            self.text_value_ends(text.start.depth, TextLength::of(&text).meant, text.raw);
            self.value_ends(text.end());
        }
    }

    fn scalar_start(&mut self, at: Place) {
        self.taken.clear();
        self.take_max = KEY_BYTES_MAX;
        self.value_starts(at);
    }

    fn scalar_end(&mut self, at: Place) {
        let taken = std::mem::take(&mut self.taken);
        self.scalar_value_ends(at.depth, &taken);
        self.value_ends(at);
        self.taken = taken;
    }

    #[inline]
    fn whole_scalar(&mut self, word: Word<'_>) {
        if self.reading_depth > 0 {
            self.reader.scalar(word.raw);
            return;
        }
        self.value_starts(word.start);
        self.scalar_value_ends(word.start.depth, word.raw);
        self.value_ends(word.end());
    }
}
