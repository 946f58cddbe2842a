//! The counts of one exchange: token classes and units other than tokens. All classes are disjoint: each token is
//! counted in exactly one of them (ADM-6).

use serde::{Deserialize, Serialize};

/// A class of consumption that a vendor may bill by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// See [`TokenCounts::input`].
    Input,
    /// See [`TokenCounts::cache_read`].
    CacheRead,
    /// See [`TokenCounts::cache_write`].
    CacheWrite,
    /// See [`TokenCounts::cache_write_1h`].
    CacheWrite1h,
    /// See [`TokenCounts::output`].
    Output,
    /// See [`TokenCounts::reasoning`].
    Reasoning,
    /// See [`TokenCounts::audio_input`].
    AudioInput,
    /// See [`TokenCounts::audio_output`].
    AudioOutput,
    /// See [`TokenCounts::image_input`].
    ImageInput,
    /// See [`TokenCounts::image_output`].
    ImageOutput,
    /// See [`Units::characters`].
    Characters,
    /// See [`Units::audio_ms`].
    AudioMs,
    /// See [`Units::video_ms`].
    VideoMs,
    /// See [`Units::images`].
    Images,
    /// See [`Units::searches`].
    Searches,
    /// See [`Units::tool_calls`].
    ToolCalls,
}

impl Class {
    /// The number of classes.
    pub const COUNT: usize = TokenCounts::COUNT + Units::COUNT;

    /// Every class, in the order of [`TokenCounts::list`] followed by [`Units::list`].
    pub const ALL: [Self; Self::COUNT] = [
        Self::Input,
        Self::CacheRead,
        Self::CacheWrite,
        Self::CacheWrite1h,
        Self::Output,
        Self::Reasoning,
        Self::AudioInput,
        Self::AudioOutput,
        Self::ImageInput,
        Self::ImageOutput,
        Self::Characters,
        Self::AudioMs,
        Self::VideoMs,
        Self::Images,
        Self::Searches,
        Self::ToolCalls,
    ];

    /// Returns the name of the count in records, reports and exports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::CacheRead => "cache_read",
            Self::CacheWrite => "cache_write",
            Self::CacheWrite1h => "cache_write_1h",
            Self::Output => "output",
            Self::Reasoning => "reasoning",
            Self::AudioInput => "audio_input",
            Self::AudioOutput => "audio_output",
            Self::ImageInput => "image_input",
            Self::ImageOutput => "image_output",
            Self::Characters => "characters",
            Self::AudioMs => "audio_ms",
            Self::VideoMs => "video_ms",
            Self::Images => "images",
            Self::Searches => "searches",
            Self::ToolCalls => "tool_calls",
        }
    }

    /// Returns the name of the column of the class's sums in the database and in exports.
    pub const fn column(self) -> &'static str {
        match self {
            Self::Input => "input_tokens",
            Self::CacheRead => "cache_read_tokens",
            Self::CacheWrite => "cache_write_tokens",
            Self::CacheWrite1h => "cache_write_1h_tokens",
            Self::Output => "output_tokens",
            Self::Reasoning => "reasoning_tokens",
            Self::AudioInput => "audio_input_tokens",
            Self::AudioOutput => "audio_output_tokens",
            Self::ImageInput => "image_input_tokens",
            Self::ImageOutput => "image_output_tokens",
            Self::Characters
            | Self::AudioMs
            | Self::VideoMs
            | Self::Images
            | Self::Searches
            | Self::ToolCalls => self.name(),
        }
    }

    /// Returns true for input tokens of every kind.
    pub fn is_input(self) -> bool {
        matches!(
            self,
            Self::Input
                | Self::CacheRead
                | Self::CacheWrite
                | Self::CacheWrite1h
                | Self::AudioInput
                | Self::ImageInput
        )
    }
}

/// Token counts by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenCounts {
    /// Input that was not read from a cache; text, and everything that the vendor bills like text.
    pub input: u64,
    /// Input read from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Input written to the provider's cache for its default lifetime (Anthropic: five minutes).
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
    /// Input written to the provider's cache for an hour.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_1h: u64,
    /// Output without reasoning.
    pub output: u64,
    /// Reasoning output.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning: u64,
    /// Audio input.
    #[serde(skip_serializing_if = "is_zero")]
    pub audio_input: u64,
    /// Audio output.
    #[serde(skip_serializing_if = "is_zero")]
    pub audio_output: u64,
    /// Image input, if the vendor bills it separately from text.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_input: u64,
    /// Generated images, if the vendor counts them in tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_output: u64,
}

impl TokenCounts {
    /// The number of token classes.
    pub const COUNT: usize = 10;
    /// No tokens.
    pub const ZERO: Self = Self {
        input: 0,
        cache_read: 0,
        cache_write: 0,
        cache_write_1h: 0,
        output: 0,
        reasoning: 0,
        audio_input: 0,
        audio_output: 0,
        image_input: 0,
        image_output: 0,
    };

    /// Returns the counts in the order of [`Class::ALL`].
    pub fn list(&self) -> [u64; Self::COUNT] {
        let Self {
            input,
            cache_read,
            cache_write,
            cache_write_1h,
            output,
            reasoning,
            audio_input,
            audio_output,
            image_input,
            image_output,
        } = *self;
        [
            input,
            cache_read,
            cache_write,
            cache_write_1h,
            output,
            reasoning,
            audio_input,
            audio_output,
            image_input,
            image_output,
        ]
    }

    /// Builds the counts from the result of [`list`](Self::list).
    pub fn of_list(list: [u64; Self::COUNT]) -> Self {
        let [
            input,
            cache_read,
            cache_write,
            cache_write_1h,
            output,
            reasoning,
            audio_input,
            audio_output,
            image_input,
            image_output,
        ] = list;
        Self {
            input,
            cache_read,
            cache_write,
            cache_write_1h,
            output,
            reasoning,
            audio_input,
            audio_output,
            image_input,
            image_output,
        }
    }

    /// Returns the class-by-class sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cache_write_1h: self.cache_write_1h.saturating_add(other.cache_write_1h),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            audio_input: self.audio_input.saturating_add(other.audio_input),
            audio_output: self.audio_output.saturating_add(other.audio_output),
            image_input: self.image_input.saturating_add(other.image_input),
            image_output: self.image_output.saturating_add(other.image_output),
        }
    }

    /// Returns the sum of all classes.
    pub fn total(&self) -> u64 {
        self.list().into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the sum of the input classes.
    pub fn input_total(&self) -> u64 {
        let classes = Class::ALL.into_iter().zip(self.list());
        classes.filter(|(class, _)| class.is_input()).fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Returns the sum of the output classes, including reasoning.
    pub fn output_total(&self) -> u64 {
        let Self { output, reasoning, audio_output, image_output, .. } = *self;
        [output, reasoning, audio_output, image_output].into_iter().fold(0, u64::saturating_add)
    }
}

/// Returns every class with its count.
pub fn counted(tokens: &TokenCounts, units: &Units) -> impl Iterator<Item = (Class, u64)> + Clone + use<> {
    Class::ALL.into_iter().zip(tokens.list().into_iter().chain(units.list()))
}

/// Counts of billed units other than tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Units {
    /// Characters of text to synthesize.
    #[serde(skip_serializing_if = "is_zero")]
    pub characters: u64,
    /// Transcribed or generated audio, in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub audio_ms: u64,
    /// Generated video, in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub video_ms: u64,
    /// Generated images.
    #[serde(skip_serializing_if = "is_zero")]
    pub images: u64,
    /// Searches that the vendor ran for the answer: web search, grounding.
    #[serde(skip_serializing_if = "is_zero")]
    pub searches: u64,
    /// Calls of the vendor's other billed tools: file search, code execution.
    #[serde(skip_serializing_if = "is_zero")]
    pub tool_calls: u64,
}

impl Units {
    /// The number of classes.
    pub const COUNT: usize = 6;
    /// No units.
    pub const ZERO: Self =
        Self { characters: 0, audio_ms: 0, video_ms: 0, images: 0, searches: 0, tool_calls: 0 };

    /// Returns the counts in the order of [`Class::ALL`].
    pub fn list(&self) -> [u64; Self::COUNT] {
        let Self { characters, audio_ms, video_ms, images, searches, tool_calls } = *self;
        [characters, audio_ms, video_ms, images, searches, tool_calls]
    }

    /// Builds the counts from the result of [`list`](Self::list).
    pub fn of_list(list: [u64; Self::COUNT]) -> Self {
        let [characters, audio_ms, video_ms, images, searches, tool_calls] = list;
        Self { characters, audio_ms, video_ms, images, searches, tool_calls }
    }

    /// Returns the class-by-class sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            characters: self.characters.saturating_add(other.characters),
            audio_ms: self.audio_ms.saturating_add(other.audio_ms),
            video_ms: self.video_ms.saturating_add(other.video_ms),
            images: self.images.saturating_add(other.images),
            searches: self.searches.saturating_add(other.searches),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
        }
    }

    /// Returns true if all counts are zero.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the units that replace tokens where a vendor bills an operation by them: audio, images, video and characters.
    pub fn media(&self) -> Self {
        Self { searches: 0, tool_calls: 0, ..*self }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_lists_are_in_the_order_of_the_classes() {
        let tokens = TokenCounts { cache_write_1h: 1, image_output: 2, ..TokenCounts::default() };
        let units = Units { characters: 3, tool_calls: 4, ..Units::default() };
        let lists = tokens.list().into_iter().chain(units.list());
        let counted: Vec<_> = Class::ALL.into_iter().zip(lists).filter(|(_, count)| *count > 0).collect();
        let want = [
            (Class::CacheWrite1h, 1),
            (Class::ImageOutput, 2),
            (Class::Characters, 3),
            (Class::ToolCalls, 4),
        ];
        assert_eq!(counted, want);
        assert_eq!((TokenCounts::of_list(tokens.list()), Units::of_list(units.list())), (tokens, units));
        assert!(Class::ALL.into_iter().enumerate().all(|(at, class)| class as usize == at));
    }

    #[test]
    fn input_and_output_totals_cover_every_token_class() {
        let tokens = TokenCounts::of_list([1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(tokens.input_total() + tokens.output_total(), tokens.total());
        assert_eq!(tokens.output_total(), 16 + 32 + 128 + 512);
    }
}
