//! How much the input of a request is, and how many tokens that makes for a model: about, and at the most.

use shared::operation::Dialect;

use crate::tokens::{ImageSize, ModelFamily, PAGE_BYTES, PAGE_TOKENS, PAGES_UNKNOWN, family_of};

/// What the input holds, counted while it passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputSize {
    /// Bytes of text in the conversation, the system text and the tools, as it is meant.
    pub text_bytes: u64,
    /// Bytes of JSON that models may read too: between the strings of a tool's arguments, and of members that are
    /// unknown objects or arrays.
    pub other_bytes: u64,
    /// Characters of the text to be spoken.
    pub characters: u64,
    /// Tokens that are given as numbers.
    pub numbers: u64,
    /// Pictures, those whose size is known among them.
    pub pictures: u64,
    /// The sizes that are known.
    pub picture_sizes: Vec<ImageSize>,
    /// Documents and other files that stand in the request.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// Files that are named by an address or an id.
    pub files_elsewhere: u64,
    /// Items of a stored conversation.
    pub stored_items: u64,
    /// Tools that the provider runs while it answers.
    pub provider_tools: u64,
    /// Milliseconds of sound that says how long it lasts.
    pub audio_ms: u64,
    /// Bytes of other sound.
    pub audio_bytes: u64,
}

/// Tokens of an input by what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputTokens {
    /// Text and documents.
    pub text: u64,
    /// Pictures.
    pub pictures: u64,
    /// Sound.
    pub audio: u64,
}

impl InputTokens {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.text.saturating_add(self.pictures).saturating_add(self.audio)
    }
}

impl InputSize {
    /// Tokens that `model` probably counts.
    pub fn likely(&self, model: &str) -> InputTokens {
        if self.is_text() {
            return InputTokens { text: self.text_bytes.div_ceil(BYTES_PER_TOKEN), ..InputTokens::default() };
        }
        let documents = self.files.saturating_add(self.file_bytes / PAGE_BYTES);
        let elsewhere = PAGES_UNKNOWN.saturating_mul(self.files_elsewhere);
        let pages = documents.saturating_add(elsewhere);
        let text = self.text_bytes.div_ceil(BYTES_PER_TOKEN).saturating_add(self.numbers);
        let stored = ITEM_TOKENS.saturating_mul(self.stored_items);
        InputTokens {
            text: text.saturating_add(PAGE_TOKENS.saturating_mul(pages)).saturating_add(stored),
            pictures: self.pictures(model, |family| family.image_tokens(None)),
            audio: sound(self.audio_ms, AUDIO_TOKENS),
        }
        .with_sound(self.audio_bytes, AUDIO_BYTES, AUDIO_TOKENS)
    }

    /// The most tokens that `model` plausibly counts.
    pub fn most(&self, model: &str) -> InputTokens {
        let bytes = self.text_bytes.saturating_add(self.other_bytes);
        let text = bytes.div_ceil(BYTES_PER_TOKEN_MIN).saturating_add(self.numbers);
        let documents = FILE_TOKENS_MIN.saturating_mul(self.files).saturating_add(self.file_bytes);
        let elsewhere = FILE_TOKENS_UNKNOWN.saturating_mul(self.files_elsewhere);
        let stored = ITEM_TOKENS_MAX.saturating_mul(self.stored_items);
        let found = TOOL_TOKENS_MAX.saturating_mul(self.provider_tools);
        InputTokens {
            text: [text, documents, elsewhere, stored, found].into_iter().fold(0, u64::saturating_add),
            pictures: self.pictures(model, ModelFamily::image_tokens_max),
            audio: sound(self.audio_ms, AUDIO_TOKENS_MAX),
        }
        .with_sound(self.audio_bytes, AUDIO_BYTES_MIN, AUDIO_TOKENS_MAX)
    }

    /// Tokens to write down where no upstream counts: none of an upload, which is billed by the time that it lasts.
    pub fn estimate(&self, dialect: Dialect, model: &str) -> u64 {
        if dialect == Dialect::Transcription { 0 } else { self.likely(model).total() }
    }

    /// The longest that all sound of the request can last, in milliseconds.
    pub fn audio_ms_max(&self) -> u64 {
        let other = self.audio_bytes.saturating_mul(1_000) / AUDIO_BYTES_MIN;
        self.audio_ms.saturating_add(other)
    }

    /// True if there is nothing but text, and bytes that only [`most`](Self::most) counts.
    fn is_text(&self) -> bool {
        let others = [
            self.numbers,
            self.pictures,
            self.files,
            self.file_bytes,
            self.files_elsewhere,
            self.stored_items,
            self.audio_ms,
            self.audio_bytes,
        ];
        others.into_iter().fold(0, |all, count| all | count) == 0
    }

    fn pictures(&self, model: &str, unknown: impl Fn(&ModelFamily) -> u64) -> u64 {
        if self.pictures == 0 {
            return 0;
        }
        let family = family_of(model);
        let known = self.picture_sizes.iter().map(|size| family.image_tokens(Some(*size)));
        let others = self.pictures.saturating_sub(self.picture_sizes.len().try_into().unwrap_or(u64::MAX));
        known.fold(others.saturating_mul(unknown(&family)), u64::saturating_add)
    }
}

impl InputTokens {
    fn with_sound(self, bytes: u64, bytes_a_second: u64, tokens: u64) -> Self {
        let ms = bytes.saturating_mul(1_000) / bytes_a_second.max(1);
        Self { audio: self.audio.saturating_add(sound(ms, tokens)), ..self }
    }
}

/// Tokens of `ms` of sound.
fn sound(ms: u64, tokens_a_second: u64) -> u64 {
    ms.saturating_mul(tokens_a_second).div_ceil(1_000)
}

/// What a token is taken for where nothing counted it, and the least bytes that texts have a token.
pub const BYTES_PER_TOKEN: u64 = 4;
const BYTES_PER_TOKEN_MIN: u64 = 2;
/// A file that stands in the request is at most so many tokens, and one more for each of its bytes.
const FILE_TOKENS_MIN: u64 = 3_000;
/// The most tokens of a file that is elsewhere, or of a stored conversation of which nothing is known.
pub const FILE_TOKENS_UNKNOWN: u64 = 100_000;
/// Tokens of one item of a stored conversation, about and at most.
const ITEM_TOKENS: u64 = 250;
const ITEM_TOKENS_MAX: u64 = 4_000;
/// The most tokens that a tool of the provider finds.
const TOOL_TOKENS_MAX: u64 = 50_000;
/// Tokens of a second of sound, about and at most.
const AUDIO_TOKENS: u64 = 10;
const AUDIO_TOKENS_MAX: u64 = 32;
/// Bytes of a second of packed sound, about (64 kbit/s) and at least (16 kbit/s).
const AUDIO_BYTES: u64 = 8_000;
const AUDIO_BYTES_MIN: u64 = 2_000;
