//! The properties of model families that affect token counts.

use super::{ImageSize, StatedSize};
use crate::claude;

/// A family of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFamily {
    /// The factor that is applied to the weights of its tokens, in percent.
    pub scale: u64,
    /// The tokens around messages and tools.
    pub frame: TokenFrame,
    /// The rule by which it counts images.
    pub(super) image: ImageRule,
}

/// The tokens of a request in addition to its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenFrame {
    /// Per request.
    pub base: u64,
    /// Per message.
    pub message: u64,
    /// Once per request with tools.
    pub tools: u64,
    /// Once per request with tools of which one must be called; replaces `tools`.
    pub tools_forced: u64,
    /// Per tool.
    pub tool: u64,
    /// Per tool call.
    pub call: u64,
    /// Per tool result.
    pub result: u64,
    /// True if the thinking of the current tool loop counts as input.
    pub thoughts: bool,
}

/// The rules by which families count images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageRule {
    /// Patches of 28 pixels, after the image has been scaled down to the limits.
    Patches28 { edge_max: u64, tokens_max: u64 },
    /// Patches of 32 pixels up to a maximum number, each worth `milli` thousandths of a token.
    Patches32 { milli: u64, patches_max: u64 },
    /// Tiles of 512 pixels, with the shorter edge scaled down to 768.
    Tiles { base: u64, tile: u64 },
    /// Tiles of 768 pixels.
    Gemini,
}

const ANTHROPIC: TokenFrame = TokenFrame {
    base: 3,
    message: 3,
    tools: 346,
    tools_forced: 313,
    tool: 0,
    call: 10,
    result: 8,
    thoughts: true,
};
const OPEN_AI: TokenFrame = TokenFrame {
    base: 3,
    message: 3,
    tools: 12,
    tools_forced: 12,
    tool: 7,
    call: 8,
    result: 5,
    thoughts: false,
};

const PATCHES_OLD: ImageRule = ImageRule::Patches28 { edge_max: 1_568, tokens_max: 1_568 };
const PATCHES_NEW: ImageRule = ImageRule::Patches28 { edge_max: 2_576, tokens_max: 8_464 };

const CLAUDE: ModelFamily = ModelFamily { scale: 110, frame: ANTHROPIC, image: PATCHES_OLD };
/// The newer tokenizer produces 30 % more tokens for the same text.
const CLAUDE_NEW: ModelFamily = ModelFamily { scale: 143, frame: ANTHROPIC, image: PATCHES_NEW };
const UNKNOWN: ModelFamily = ModelFamily { scale: 110, frame: OPEN_AI, image: PATCHES_NEW };
const GEMINI: ModelFamily = ModelFamily { scale: 110, frame: OPEN_AI, image: ImageRule::Gemini };

const fn tiles(scale: u64, base: u64, tile: u64) -> ModelFamily {
    ModelFamily { scale, frame: OPEN_AI, image: ImageRule::Tiles { base, tile } }
}

const fn patches(milli: u64) -> ModelFamily {
    ModelFamily { scale: 100, frame: OPEN_AI, image: ImageRule::Patches32 { milli, patches_max: 1_536 } }
}

/// OpenAI's newest models, and its models with unknown names.
const GPT_NEW: ModelFamily = ModelFamily {
    scale: 100,
    frame: OPEN_AI,
    image: ImageRule::Patches32 { milli: 1_200, patches_max: 2_500 },
};

/// Prefixes of model names, longer ones before shorter ones.
const FAMILIES: &[(&str, ModelFamily)] = &[
    ("gpt-5-mini", patches(1_620)),
    ("gpt-5-nano", patches(2_460)),
    ("gpt-5-chat", tiles(100, 70, 140)),
    ("gpt-5.", GPT_NEW),
    ("gpt-5", tiles(100, 70, 140)),
    ("gpt-4.1-mini", patches(1_620)),
    ("gpt-4.1-nano", patches(2_460)),
    ("gpt-4.1", tiles(100, 85, 170)),
    ("gpt-4.5", tiles(100, 85, 170)),
    ("gpt-4o-mini", tiles(100, 2_833, 5_667)),
    ("gpt-4o", tiles(100, 85, 170)),
    ("chatgpt-4o", tiles(100, 85, 170)),
    ("gpt-4", tiles(105, 85, 170)),
    ("gpt-3", tiles(105, 85, 170)),
    ("gpt-", GPT_NEW),
    ("computer-use", tiles(100, 65, 129)),
    ("o1", tiles(100, 75, 150)),
    ("o3", tiles(100, 75, 150)),
    ("o4-mini", patches(1_720)),
    ("gemini", GEMINI),
];

/// Returns the family of a model, given its provider's name for it.
pub fn family_of(model: &str) -> ModelFamily {
    if let Some(version) = claude::version(model) {
        let is_new = version >= (5, 0) || version >= (4, 7) && claude::is_opus(model);
        return if is_new { CLAUDE_NEW } else { CLAUDE };
    }
    let model = model.to_ascii_lowercase();
    let name = model.rsplit_once('/').map_or(model.as_str(), |(_, name)| name);
    FAMILIES.iter().find(|(start, _)| name.starts_with(start)).map_or(UNKNOWN, |(_, family)| *family)
}

impl ModelFamily {
    /// Returns the tokens of an image. An unknown size counts as a square of 1,024 pixels.
    pub fn image_tokens(&self, size: Option<ImageSize>) -> u64 {
        self.image.tokens(size.unwrap_or(ImageSize { width: 1_024, height: 1_024 }))
    }

    /// Returns the maximum tokens of an image that states this size. Unless the size is final, the image may have 4,096
    /// by 4,096 pixels, or 4,096 by 1,536 if that counts more.
    pub fn image_tokens_max(&self, stated: Option<StatedSize>) -> u64 {
        let of = |height| self.image.tokens(ImageSize { width: 4_096, height });
        let tokens = stated.map(|stated| self.image.tokens(stated.size));
        match tokens {
            Some(tokens) if stated.is_some_and(|stated| stated.is_final) => tokens,
            _ => of(4_096).max(of(1_536)).max(tokens.unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokenizer_family_follows_from_the_model_name() {
        let rows = [
            ("claude-sonnet-4-5-20250929", CLAUDE),
            ("claude-3-5-haiku-latest", CLAUDE),
            ("us.anthropic.claude-opus-4-6-v1:0", CLAUDE),
            ("claude-haiku-4-5@20251001", CLAUDE),
            ("claude-opus-4-7", CLAUDE_NEW),
            ("anthropic/claude-opus-4.7", CLAUDE_NEW),
            ("claude-sonnet-5", CLAUDE_NEW),
            ("claude-fable-5-20260801", CLAUDE_NEW),
            ("gpt-4o-2024-08-06", tiles(100, 85, 170)),
            ("openai/gpt-5-mini", patches(1_620)),
            ("gpt-5.5", GPT_NEW),
            ("gpt-6", GPT_NEW),
            ("gpt-4-turbo", tiles(105, 85, 170)),
            ("o3-pro", tiles(100, 75, 150)),
            ("models/gemini-2.5-pro", GEMINI),
            ("meta-llama/Llama-4-Scout", UNKNOWN),
            ("", UNKNOWN),
        ];
        for (model, family) in rows {
            assert_eq!(family_of(model), family, "{model}");
        }
    }
}
