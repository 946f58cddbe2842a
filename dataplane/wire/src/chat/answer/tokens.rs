//! Feeds the JSON tokens of an answer to its findings: whole tokens directly, split ones after collecting their pieces.

use super::findings::{ChatFindings, ChatMember, ChoiceKey, DeltaKey, unescaped};
use crate::json::{Escapes, JsonPlace, JsonSink, JsonText, JsonWord, KEY_BYTES_MAX, TextLength};

impl JsonSink for ChatFindings {
    #[inline]
    fn open(&mut self, at: JsonPlace, object: bool) {
        self.value_starts(at);
        match (at.depth, self.top) {
            (1, ChatMember::Choices) => {
                self.has_choices = !object;
                self.has_choice = false;
            }
            (1, ChatMember::Usage) if object => self.usage_begins(at),
            (1, ChatMember::Groq) => self.groq_usage_key = false,
            (2, ChatMember::Groq) if object && self.groq_usage_key => self.usage_begins(at),
            (2, _) => self.choice_key = ChoiceKey::Other,
            (3, ChatMember::Choices) if object && self.choice_key == ChoiceKey::Usage => {
                self.usage_begins(at)
            }
            (3, ChatMember::Choices) if self.choice_key == ChoiceKey::Error => self.may_have_failed = true,
            (3, _) => self.delta_key = DeltaKey::Other,
            _ => {}
        }
    }

    #[inline]
    fn skips(&self, at: JsonPlace, object: bool) -> bool {
        if self.reading_depth > 0 {
            let level = at.depth.wrapping_sub(self.reading_depth);
            return level < u32::MAX && !(object && self.reader.enters(level));
        }
        match at.depth {
            0 => false,
            1 => self.top != ChatMember::Choices && !(self.top == ChatMember::Groq && object),
            2 => self.top == ChatMember::Groq,
            3 => self.choice_key != ChoiceKey::Delta,
            4 => self.delta_key == DeltaKey::Other,
            _ => false,
        }
    }

    #[inline]
    fn close(&mut self, at: JsonPlace) {
        if at.depth.wrapping_add(1) == self.reading_depth {
            self.usage_ends(at);
        }
        self.value_ends(at);
    }

    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.taken.clear();
        self.length = 0;
        self.escapes = Escapes::default();
        let is_finish =
            at.depth == 3 && matches!(self.choice_key, ChoiceKey::Finish | ChoiceKey::NativeFinish);
        let is_short = match self.top {
            ChatMember::Object | ChatMember::Tier | ChatMember::Duration => true,
            ChatMember::Choices => is_finish,
            ChatMember::Other | ChatMember::Usage | ChatMember::Groq | ChatMember::Error => false,
        };
        self.take_max = if key || is_short { KEY_BYTES_MAX } else { 0 };
        if !key {
            self.value_starts(at);
        }
    }

    fn text_end(&mut self, at: JsonPlace, key: bool) {
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
        self.length += bytes.len();
    }

    fn text_piece(&mut self, bytes: &[u8], codes: bool) {
        self.piece(bytes);
        self.escapes.push(bytes, codes);
    }

    #[inline]
    fn whole_key(&mut self, text: JsonText<'_>) {
        if text.plain {
            self.key_ends(text.start.depth, text.raw);
        } else {
            self.key_ends(text.start.depth, &unescaped(text.raw));
        }
    }

    #[inline]
    fn whole_text(&mut self, text: JsonText<'_>) {
        if self.reading_depth == 0 {
            self.value_starts(text.start);
            self.text_value_ends(text.start.depth, TextLength::of(&text).meant, text.raw);
            self.value_ends(text.end());
        }
    }

    fn scalar_start(&mut self, at: JsonPlace) {
        self.taken.clear();
        self.take_max = KEY_BYTES_MAX;
        self.value_starts(at);
    }

    fn scalar_end(&mut self, at: JsonPlace) {
        let taken = std::mem::take(&mut self.taken);
        self.scalar_value_ends(at.depth, &taken);
        self.value_ends(at);
        self.taken = taken;
    }

    #[inline]
    fn whole_scalar(&mut self, word: JsonWord<'_>) {
        if self.reading_depth > 0 {
            self.reader.scalar(word.raw);
            return;
        }
        self.value_starts(word.start);
        self.scalar_value_ends(word.start.depth, word.raw);
        self.value_ends(word.end());
    }
}
