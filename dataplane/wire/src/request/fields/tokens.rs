//! Passes the tokens of a request to its fields: complete tokens directly, split tokens after they have been collected.

use super::field::{Fields, GLANCE_BYTES, RequestMember};
use super::member::MemberValue;
use crate::json::{Characters, Escapes, JsonPlace, JsonSink, JsonText, JsonWord, TextLength, unescaped};

/// Placeholder for a number that is too long to be read; valid for no member.
const TOO_LONG: &[u8] = b"-2";

impl JsonSink for Fields {
    #[inline]
    fn open(&mut self, at: JsonPlace, object: bool) {
        match at.depth {
            0 => self.first_member = at.offset + 1,
            1 => {
                self.value_begins(at);
                self.value_is_object = object;
            }
            _ => {
                self.value_is_empty = false;
                if at.depth == 2 {
                    self.inner_start = at.offset;
                }
                if self.shape.is_gemini {
                    self.inner_opens(at, object);
                }
            }
        }
        if at.depth > 2 || self.field == RequestMember::StoredConversation {
            self.inside.open(at);
        }
    }

    #[inline]
    fn skips(&self, at: JsonPlace, _object: bool) -> bool {
        let listens_inside = matches!(self.field, RequestMember::Conversation | RequestMember::System);
        // Inside these members only the first level is read.
        let listens_at_top = matches!(
            self.field,
            RequestMember::StreamOptions
                | RequestMember::Functions
                | RequestMember::Include
                | RequestMember::StoredConversation
                | RequestMember::Metadata
                | RequestMember::GenerationConfig
        );
        let listened_depth = if self.field == RequestMember::Tools { 2 } else { u32::from(listens_at_top) };
        !listens_inside && at.depth > listened_depth
    }

    #[inline]
    fn close(&mut self, at: JsonPlace) {
        match at.depth {
            1 => {
                let empty = self.value_is_empty;
                let value =
                    if self.value_is_object { MemberValue::Object } else { MemberValue::Array { empty } };
                self.value_ends(at.offset, value);
            }
            2 if self.field == RequestMember::StreamOptions => self.option_ends(at.offset, false),
            _ => {
                if self.shape.is_gemini {
                    self.inner_closes(at);
                }
                self.inside.close(at);
            }
        }
    }

    fn text_start(&mut self, at: JsonPlace, key: bool) {
        self.text_length = 0;
        self.inside.escapes = Escapes::default();
        self.inside.characters = Characters::default();
        self.take(self.wanted(at.depth, key));
        self.text_begins(at, key);
    }

    fn text_end(&mut self, at: JsonPlace, key: bool) {
        let taken = std::mem::take(&mut self.taken);
        if key {
            self.key_ends(at.depth, &unescaped(&taken));
        } else {
            if self.counts_characters() {
                let count = self.inside.characters.count();
                self.inside.set_characters(count);
            }
            let length = self.inside.escapes.length(self.text_length);
            self.text_value_ends(at, length, &taken);
        }
        self.taken = taken;
    }

    fn piece(&mut self, bytes: &[u8]) {
        let room = self.take_max - self.taken.len();
        if room > 0 {
            self.taken.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        }
        self.text_length += bytes.len();
    }

    fn text_piece(&mut self, bytes: &[u8], codes: bool) {
        self.piece(bytes);
        if self.expects_text() {
            self.inside.escapes.push(bytes, codes);
        }
        if self.counts_characters() {
            self.inside.characters.push(bytes);
        }
    }

    #[inline]
    fn whole_key(&mut self, text: JsonText<'_>) {
        let depth = text.start.depth;
        self.text_begins(text.start, true);
        if text.plain {
            self.key_ends(depth, text.raw);
        } else {
            let taken = text.raw.get(..self.wanted(depth, true)).unwrap_or(text.raw);
            self.key_ends(depth, &unescaped(taken));
        }
    }

    #[inline]
    fn whole_text(&mut self, text: JsonText<'_>) {
        self.text_begins(text.start, false);
        let taken = text.raw.get(..self.wanted(text.start.depth, false)).unwrap_or(text.raw);
        let is_text = self.expects_text();
        let length = if is_text { TextLength::of(&text) } else { TextLength::plain(text.raw.len()) };
        if self.counts_characters() {
            let mut characters = Characters::default();
            characters.push(text.raw);
            self.inside.set_characters(characters.count());
        }
        self.text_value_ends(text.end(), length, taken);
    }

    fn scalar_start(&mut self, at: JsonPlace) {
        self.text_length = 0;
        self.take(GLANCE_BYTES);
        self.scalar_begins(at);
    }

    fn scalar_end(&mut self, at: JsonPlace) {
        let taken = std::mem::take(&mut self.taken);
        // A truncated number could have any value.
        let all = if self.text_length > taken.len() { TOO_LONG } else { &taken };
        self.scalar_value_ends(at, all);
        self.taken = taken;
    }

    #[inline]
    fn whole_scalar(&mut self, word: JsonWord<'_>) {
        self.scalar_begins(word.start);
        let all = if word.raw.len() > GLANCE_BYTES { TOO_LONG } else { word.raw };
        self.scalar_value_ends(word.end(), all);
    }

    #[inline]
    fn comma(&mut self, at: JsonPlace) {
        if at.depth == 1 {
            self.member_comma(at.offset);
        }
    }
}
