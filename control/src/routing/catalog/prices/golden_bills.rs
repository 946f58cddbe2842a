//! Bills computed from the embedded price list by the one pricing function, to the nano-dollar. The prices are those of
//! the vendors' price pages. A comment on each row names the kind of its usage:
//!
//! - *published*: an example in the vendor's documentation, at the address in the comment;
//! - *published, completed*: as much of an example as the page shows, with round numbers for the rest;
//! - *units*: whole units (a minute, a picture, a million tokens), so that the bill is the published price itself.
//!
//! `tests/published_bills.rs` has published examples of DeepSeek, Mistral, Cohere, Moonshot, Z.ai, Bedrock and Veo,
//! starting from the vendor's response.

use shared::operation::Operation;
use shared::prices::{Billed, price};
use shared::usage::{Provenance, TokenCounts, Units};

use super::*;

/// The usage to bill.
#[derive(Clone, Copy)]
struct Used {
    operation: Operation,
    tokens: TokenCounts,
    units: Units,
    tier: Option<&'static str>,
    picture: Option<&'static str>,
}

/// Returns the usage of a conversation.
fn chat(tokens: TokenCounts) -> Used {
    Used { operation: Operation::ChatCompletions, tokens, units: Units::ZERO, tier: None, picture: None }
}

/// Returns the units of another operation, for which the upstream reports no tokens.
fn units(operation: Operation, units: Units) -> Used {
    Used { operation, units, ..chat(TokenCounts::ZERO) }
}

impl Used {
    fn tier(self, tier: &'static str) -> Self {
        Self { tier: Some(tier), ..self }
    }

    fn picture(self, picture: &'static str) -> Self {
        Self { picture: Some(picture), ..self }
    }

    fn searches(self, searches: u64) -> Self {
        Self { units: Units { searches, ..self.units }, ..self }
    }

    fn operation(self, operation: Operation) -> Self {
        Self { operation, ..self }
    }
}

type Row = (&'static str, &'static str, Used, u64);

/// Fails with the names of all rows whose bill differs from the expected one.
fn check(vendor: &str, rows: &[Row]) {
    let list = PriceList::embedded();
    let models = &list.lists[vendor];
    let mut wrong = Vec::new();
    for (name, model, used, nano) in rows {
        let facts = models.get(*model).unwrap_or_else(|| panic!("{vendor}/{model} is in the list"));
        let billed = Billed {
            operation: used.operation,
            provenance: Provenance::Reported,
            tokens: &used.tokens,
            units: &used.units,
            tier: used.tier,
            picture: used.picture,
            vendor_cost: None,
        };
        let bill = price(&billed, facts.prices.as_ref());
        if bill.cost != Some(*nano) {
            wrong.push(format!("{name} ({model}): {bill:?}, not {nano}"));
        }
    }
    assert!(wrong.is_empty(), "{vendor}:\n{}", wrong.join("\n"));
}

const NONE: TokenCounts = TokenCounts::ZERO;
const MILLION: u64 = 1_000_000;

/// <https://developers.openai.com/api/docs/pricing>, standard, flex, priority and batch.
#[test]
fn openai_bills_are_those_of_its_price_page() {
    // Published: developers.openai.com/api/docs/guides/prompt-caching, repeated at docs.litellm.ai/docs/completion/prompt_caching:
    // 2,006 prompt tokens, 1,920 of them cached, 300 of completion.
    let cached = chat(TokenCounts { input: 86, cache_read: 1_920, output: 300, ..NONE });
    // Published: developers.openai.com/api/docs/guides/reasoning: 75 tokens of input, 1,186 output tokens, 1,024 of them reasoning.
    let reasoned = chat(TokenCounts { input: 75, output: 162, reasoning: 1_024, ..NONE });
    // Published: API reference, audio/createTranscription: 14 audio tokens in, 45 out.
    let transcription =
        chat(TokenCounts { audio_input: 14, output: 45, ..NONE }).operation(Operation::Transcription);
    // Published: API reference, images/create: 10 text and 40 image tokens in, 50 out.
    let drawn = chat(TokenCounts { input: 10, image_input: 40, image_output: 50, ..NONE });
    // Units, like all usage below.
    let long = chat(TokenCounts { input: 300_000, output: 1_000, ..NONE });
    let spoken = chat(TokenCounts { input: MILLION, audio_input: MILLION, audio_output: MILLION, ..NONE });
    let seconds = |audio_ms| units(Operation::Transcription, Units { audio_ms, ..Units::ZERO });
    let text = units(Operation::Speech, Units { characters: 45, ..Units::ZERO });
    let picture = units(Operation::Images, Units { images: 1, ..Units::ZERO });
    check(
        "openai",
        &[
            // 86 x $2.50 + 1,920 x $1.25 + 300 x $10
            ("cached input", "gpt-4o", cached, 5_615_000),
            // 75 x $1.25 + 1,186 x $10
            ("reasoning", "gpt-5", reasoned, 11_953_750),
            ("flex: half", "gpt-5", reasoned.tier("flex"), 5_976_875),
            ("batch: half", "gpt-5", reasoned.tier("batch"), 5_976_875),
            ("priority: double", "gpt-5", reasoned.tier("priority"), 23_907_500),
            // $10 per thousand searches
            ("web search", "gpt-5", reasoned.searches(2), 31_953_750),
            ("web search in flex", "gpt-5", reasoned.searches(2).tier("flex"), 25_976_875),
            // Past 272,000 tokens: 300,000 x $10 + 1,000 x $45
            ("a long prompt", "gpt-5.5", long, 3_045_000_000),
            ("a long prompt in flex", "gpt-5.5", long.tier("flex"), 1_522_500_000),
            // $2.50, $32 and $64 per million
            ("audio", "gpt-audio", spoken, 98_500_000_000),
            // 14 x $2.50 + 45 x $10
            ("transcription in tokens", "gpt-4o-transcribe", transcription, 485_000),
            // $0.006 a minute; the second is the reference's example of 9 s
            ("transcription in seconds", "whisper-1", seconds(60_000), 6_000_000),
            ("transcription of 9 s", "whisper-1", seconds(9_000), 900_000),
            // $15 per million; the text of the reference, "The quick brown fox jumped over the lazy dog."
            ("speech", "tts-1", text, 675_000),
            // 10 x $5 + 40 x $10 + 50 x $40
            ("a picture in tokens", "gpt-image-1", drawn.operation(Operation::Images), 2_450_000),
            ("a picture", "dall-e-3", picture.picture("standard/1024x1024"), 40_000_000),
            ("a picture in HD", "dall-e-3", picture.picture("hd/1024x1792"), 120_000_000),
            // API reference, embeddings: 8 tokens at $0.02 per million
            (
                "embedding",
                "text-embedding-3-small",
                chat(TokenCounts { input: 8, ..NONE }).operation(Operation::Embeddings),
                160,
            ),
            // $0.10 a second
            (
                "video",
                "sora-2",
                units(Operation::Videos, Units { video_ms: 8_000, ..Units::ZERO }),
                800_000_000,
            ),
            // $0.30 a second in 720p, and $0.50 in 1,024 by 1,792
            (
                "video in HD",
                "sora-2-pro",
                units(Operation::Videos, Units { video_ms: 8_000, ..Units::ZERO }).picture("1792x1024"),
                4_000_000_000,
            ),
        ],
    );
}

/// <https://platform.claude.com/docs/en/about-claude/pricing>.
#[test]
fn anthropic_bills_are_those_of_its_price_page() {
    // Published: platform.claude.com/docs/en/build-with-claude/prompt-caching, mixed lifetimes.
    let mixed = chat(TokenCounts {
        input: 2_048,
        cache_read: 1_800,
        cache_write: 148,
        cache_write_1h: 100,
        output: 503,
        ..NONE
    });
    // Published: a book is written to the cache and then read from it;
    // platform.minimax.io/docs/api-reference/anthropic-api-compatible-cache has the same figures.
    let written = chat(TokenCounts { input: 21, cache_write: 188_086, output: 393, ..NONE });
    let read = chat(TokenCounts { input: 21, cache_read: 188_086, output: 393, ..NONE });
    // Published: platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool.
    let searched =
        chat(TokenCounts { input: 105, cache_read: 7_123, cache_write: 7_345, output: 6_039, ..NONE });
    // Units.
    let long = chat(TokenCounts { input: 250_000, output: 1_000, ..NONE });
    check(
        "anthropic",
        &[
            // 2,048 x $5 + 1,800 x $0.50 + 148 x $6.25 + 100 x $10 + 503 x $25
            ("cache of 5 minutes and of an hour", "claude-opus-4-6", mixed, 25_640_000),
            ("a cache written", "claude-opus-4-6", written, 1_185_467_500),
            ("a cache read", "claude-opus-4-6", read, 103_973_000),
            // 105 x $5 + 7,123 x $0.50 + 7,345 x $6.25 + 6,039 x $25 + one search at $10 for a thousand
            ("web search", "claude-opus-4-6", searched.searches(1), 210_967_750),
            ("fast mode: double", "claude-opus-4-8", mixed.tier("fast"), 51_280_000),
            ("inference in the US: 1.1 times", "claude-opus-4-8", mixed.tier("geo:us"), 28_204_000),
            ("fast and in the US", "claude-opus-4-8", mixed.tier("fast+geo:us"), 56_408_000),
            ("a search costs the same", "claude-opus-4-8", searched.searches(1).tier("fast"), 411_935_500),
            ("batch: half", "claude-opus-4-8", mixed.tier("batch"), 12_820_000),
            // Past 200,000 tokens: 250,000 x $6 + 1,000 x $22.50
            ("a long prompt", "claude-sonnet-4-5", long, 1_522_500_000),
            // Past 100,000 tokens: 250,000 x $0.50 + 1,000 x $2.50
            ("a long prompt of Haiku 5.5", "claude-haiku-5-5", long, 127_500_000),
        ],
    );
}

/// <https://ai.google.dev/gemini-api/docs/pricing>.
#[test]
fn gemini_bills_are_those_of_its_price_page() {
    // Units; the audio rate (32 tokens a second) and the tokens of a picture (1,290) are published.
    let prompt = |input| chat(TokenCounts { input, output: 1_000, ..NONE });
    let thought = chat(TokenCounts { input: MILLION, output: 500_000, reasoning: 500_000, ..NONE });
    check(
        "gemini",
        &[
            // Up to 200,000 tokens at $1.25 and $10, longer ones at $2.50 and $15
            ("up to the threshold", "gemini-2.5-pro", prompt(200_000), 260_000_000),
            ("past the threshold", "gemini-2.5-pro", prompt(200_001), 515_002_500),
            ("past the threshold, priority", "gemini-2.5-pro", prompt(200_001).tier("priority"), 927_004_500),
            // ai.google.dev/gemini-api/docs/audio: 32 tokens a second; $1 per million
            (
                "a minute of audio",
                "gemini-2.5-flash",
                chat(TokenCounts { audio_input: 1_920, ..NONE }),
                1_920_000,
            ),
            // 1,290 tokens a picture at $30 per million, "$0.039 per image"
            (
                "a picture",
                "gemini-2.5-flash-image",
                chat(TokenCounts { image_output: 1_290, ..NONE }),
                38_700_000,
            ),
            // "Output price (including thinking tokens)": $0.30 and $2.50 per million
            ("thinking", "gemini-2.5-flash", thought, 2_800_000_000),
            // $14 per thousand queries
            ("grounding", "gemini-3.8-flash", chat(TokenCounts { input: 4, ..NONE }).searches(3), 42_003_000),
        ],
    );
    check("vertex", &[("past the threshold", "gemini-2.5-pro", prompt(200_001), 515_002_500)]);
}

#[test]
fn bills_of_the_other_vendors_are_those_of_their_price_pages() {
    // Units, unless an example is named.
    let all = chat(TokenCounts { input: MILLION, cache_read: MILLION, output: MILLION, ..NONE });
    let plain = chat(TokenCounts { input: MILLION, output: MILLION, ..NONE });
    let long = chat(TokenCounts { input: 250_000, output: 1_000, ..NONE });
    // https://api-docs.deepseek.com/quick_start/pricing, peak hours: cache miss, cache hit, output
    check(
        "deepseek",
        &[
            ("$0.30, $0.006 and $1.20", "deepseek-flash", all, 1_506_000_000),
            ("$1.32, $0.044 and $3.96", "deepseek-v4-pro", all, 5_324_000_000),
        ],
    );
    check(
        "deepseek@off-peak",
        &[
            ("$0.15, $0.003 and $0.60", "deepseek-flash", all, 753_000_000),
            ("$0.66, $0.022 and $1.98", "deepseek-v4-pro", all, 2_662_000_000),
        ],
    );
    // https://docs.x.ai/developers/models. Published: docs.x.ai/developers/advanced-api-usage/prompt-caching/usage-and-pricing:
    // 125 tokens in, 98 of them cached, 48 out.
    let cached = chat(TokenCounts { input: 27, cache_read: 98, output: 48, ..NONE });
    check(
        "xai",
        &[
            ("27 x $2 + 98 x $0.50 + 48 x $6", "grok-4.7", cached, 391_000),
            ("past 200,000 tokens at $4 and $12", "grok-4.7", long, 1_012_000_000),
        ],
    );
    // https://mistral.ai/pricing; docs.mistral.ai, "Prompt caching": a tenth of the price of input.
    let minute = units(Operation::Transcription, Units { audio_ms: 60_000, ..Units::ZERO });
    check(
        "mistral",
        &[
            ("$0.50, $0.05 and $1.50", "mistral-large-2512", all, 2_050_000_000),
            ("$0.003 a minute", "voxtral-mini-latest", minute, 3_000_000),
        ],
    );
    // https://aws.amazon.com/bedrock/pricing
    let hour = chat(TokenCounts { cache_write: MILLION, cache_write_1h: MILLION, ..NONE });
    let claude = "global.anthropic.claude-sonnet-4-5-20250929-v1:0";
    check(
        "bedrock",
        &[
            ("$0.80, $0.20 and $3.20", "amazon.nova-pro-v1:0", all, 4_200_000_000),
            ("flex: half", "amazon.nova-pro-v1:0", all.tier("flex"), 2_100_000_000),
            ("past 200,000 tokens: $7.50 and $12", claude, hour, 19_500_000_000),
            ("past 200,000 tokens: $6 and $22.50", claude, long, 1_522_500_000),
        ],
    );
    // https://cohere.com/pricing
    check(
        "cohere",
        &[
            ("$2.50 and $10", "command-a-03-2025", plain, 12_500_000_000),
            ("$0.0375 and $0.15", "command-r7b-12-2024", plain, 187_500_000),
        ],
    );
    // https://docs.perplexity.ai/getting-started/pricing. Published, with its total of $0.409393: 33 tokens in and
    // 20,016 of citations at $2, 7,163 out at $8, 73,997 of reasoning at $3, 18 searches at $5 per thousand.
    let researched = TokenCounts { input: 33 + 20_016, output: 7_163, reasoning: 73_997, ..NONE };
    check("perplexity", &[("search fee", "sonar-deep-research", chat(researched).searches(18), 409_393_000)]);
    // docs.litellm.ai/docs/providers/minimax quotes $0.30, $0.375 for a cache write, $0.03 for a read and $1.20.
    // Published: platform.minimax.io/docs/api-reference/anthropic-api-compatible-cache.
    let written = chat(TokenCounts { input: 21, cache_write: 188_086, output: 393, ..NONE });
    let read = chat(TokenCounts { input: 21, cache_read: 188_086, output: 393, ..NONE });
    check(
        "minimax",
        &[
            ("a cache written", "MiniMax-M2.1", written, 71_010_150),
            ("a cache read", "MiniMax-M2.1", read, 6_120_480),
        ],
    );
    // https://platform.moonshot.ai/docs/pricing and https://docs.z.ai/guides/overview/pricing
    check("moonshot", &[("$3, $0.30 and $15", "kimi-k3", all, 18_300_000_000)]);
    check("zai", &[("$1.40, $0.26 and $4.40", "glm-5.3", all, 6_060_000_000)]);
}
