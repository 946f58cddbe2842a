//! The size of a request's input, and estimates of its tokens for a model: the likely and the maximum number.

use shared::operation::Dialect;

use crate::tokens::{ModelFamily, PAGE_BYTES, PAGE_TOKENS, PAGES_UNKNOWN, StatedSize, family_of};

/// The contents of an input, counted while it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputSize {
    /// The decoded bytes of text in the conversation, the system text and the tools.
    pub text_bytes: u64,
    /// The bytes of JSON that models may read too: between the strings of a tool call's arguments, and in unknown
    /// members that are objects or arrays.
    pub other_bytes: u64,
    /// The characters of the text to be spoken.
    pub characters: u64,
    /// The number of tokens that are given as numbers.
    pub numbers: u64,
    /// The number of pictures, including those of known size.
    pub pictures: u64,
    /// The picture sizes that the first bytes state.
    pub picture_sizes: Vec<StatedSize>,
    /// The number of documents and other files within the request.
    pub files: u64,
    /// The bytes of these files.
    pub file_bytes: u64,
    /// The number of files that are given by address or id.
    pub files_elsewhere: u64,
    /// The number of items of a stored conversation.
    pub stored_items: u64,
    /// The number of tools that the provider runs while it answers.
    pub provider_tools: u64,
    /// The length of audio of known duration, in milliseconds.
    pub audio_ms: u64,
    /// The bytes of other audio.
    pub audio_bytes: u64,
}

/// The tokens of an input by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputTokens {
    /// Text and documents.
    pub text: u64,
    /// Pictures.
    pub pictures: u64,
    /// Audio.
    pub audio: u64,
}

impl InputTokens {
    /// Returns the sum of all kinds.
    pub fn total(&self) -> u64 {
        self.text.saturating_add(self.pictures).saturating_add(self.audio)
    }
}

impl InputSize {
    /// Returns the number of tokens that `model` probably counts.
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
            pictures: self
                .pictures(model, |family, stated| family.image_tokens(stated.map(|stated| stated.size))),
            audio: sound(self.audio_ms, AUDIO_TOKENS),
        }
        .with_sound(self.audio_bytes, AUDIO_BYTES, AUDIO_TOKENS)
    }

    /// Returns the largest number of tokens that `model` plausibly counts.
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

    /// Returns the number of tokens to record if the upstream reports none: zero for a transcription, which is billed
    /// by duration.
    pub fn estimate(&self, dialect: Dialect, model: &str) -> u64 {
        if dialect == Dialect::Transcription { 0 } else { self.likely(model).total() }
    }

    /// Returns the maximum duration of all audio in the request, in milliseconds.
    pub fn audio_ms_max(&self) -> u64 {
        let other = self.audio_bytes.saturating_mul(1_000) / AUDIO_BYTES_MIN;
        self.audio_ms.saturating_add(other)
    }

    /// True if the input is only text, apart from bytes that only [`most`](Self::most) counts.
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

    /// Returns the sum of `tokens` of every picture.
    fn pictures(&self, model: &str, tokens: impl Fn(&ModelFamily, Option<StatedSize>) -> u64) -> u64 {
        if self.pictures == 0 {
            return 0;
        }
        let family = family_of(model);
        let known = self.picture_sizes.iter().map(|stated| tokens(&family, Some(*stated)));
        let others = self.pictures.saturating_sub(self.picture_sizes.len().try_into().unwrap_or(u64::MAX));
        known.fold(others.saturating_mul(tokens(&family, None)), u64::saturating_add)
    }
}

impl InputTokens {
    fn with_sound(self, bytes: u64, bytes_a_second: u64, tokens: u64) -> Self {
        let ms = bytes.saturating_mul(1_000) / bytes_a_second.max(1);
        Self { audio: self.audio.saturating_add(sound(ms, tokens)), ..self }
    }
}

/// Returns the tokens of `ms` milliseconds of audio.
fn sound(ms: u64, tokens_a_second: u64) -> u64 {
    ms.saturating_mul(tokens_a_second).div_ceil(1_000)
}

/// The assumed bytes per token where nothing was counted, and the minimum.
pub const BYTES_PER_TOKEN: u64 = 4;
const BYTES_PER_TOKEN_MIN: u64 = 2;
/// The maximum tokens of a file within the request are this constant plus one token per byte.
const FILE_TOKENS_MIN: u64 = 3_000;
/// The maximum tokens of a file given by address, or of a stored conversation of unknown size.
pub const FILE_TOKENS_UNKNOWN: u64 = 100_000;
/// The likely and the maximum tokens of one item of a stored conversation.
const ITEM_TOKENS: u64 = 250;
const ITEM_TOKENS_MAX: u64 = 4_000;
/// The maximum tokens of the result of a provider-run tool.
const TOOL_TOKENS_MAX: u64 = 50_000;
/// The likely and the maximum tokens of one second of audio.
const AUDIO_TOKENS: u64 = 10;
const AUDIO_TOKENS_MAX: u64 = 32;
/// The likely (64 kbit/s) and the minimum (16 kbit/s) bytes of one second of compressed audio.
const AUDIO_BYTES: u64 = 8_000;
const AUDIO_BYTES_MIN: u64 = 2_000;
