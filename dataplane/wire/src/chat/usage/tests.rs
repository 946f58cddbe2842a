//! Tests of the usage of every vendor, read from a tree and from a token stream.

use serde_json::json;
use shared::usage::Units;

use super::*;

/// Reads the same object without a tree, as part of an answer.
fn token_counts_raw(usage: &[u8]) -> Option<TokenCounts> {
    let answer = [br#"{"usage":"#, usage, b"}"].concat();
    crate::chat::findings::ChatScan::of(&answer).unwrap().token_counts()
}

fn counts(input: u64, cache_read: u64, cache_write: u64, output: u64, reasoning: u64) -> TokenCounts {
    TokenCounts { input, cache_read, cache_write, output, reasoning, ..TokenCounts::ZERO }
}

#[test]
fn every_vendors_usage_becomes_disjoint_classes() {
    let rows = [
        (
            "OpenAI: cached within prompt, reasoning within completion",
            json!({"prompt_tokens":120,"completion_tokens":30,"total_tokens":150,
                "prompt_tokens_details":{"cached_tokens":100,"audio_tokens":0},
                "completion_tokens_details":{"reasoning_tokens":12}}),
            counts(20, 100, 0, 18, 12),
        ),
        (
            "cache writes are within prompt too",
            json!({"prompt_tokens":120,"completion_tokens":30,
                "prompt_tokens_details":{"cached_tokens":50,"cache_write_tokens":40}}),
            counts(30, 50, 40, 30, 0),
        ),
        (
            "DeepSeek hit and miss",
            json!({"prompt_tokens":30,"completion_tokens":5,"total_tokens":35,
                "prompt_cache_hit_tokens":20,"prompt_cache_miss_tokens":10}),
            counts(10, 20, 0, 5, 0),
        ),
        (
            "Moonshot: cached_tokens at the top of usage",
            json!({"prompt_tokens":30,"completion_tokens":5,"cached_tokens":8}),
            counts(22, 8, 0, 5, 0),
        ),
        (
            "xAI: reasoning on top of completion",
            json!({"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,
                "completion_tokens_details":{"reasoning_tokens":100}}),
            counts(10, 0, 0, 5, 100),
        ),
        (
            "xAI: also where completion is larger",
            json!({"prompt_tokens":10,"completion_tokens":50,"total_tokens":65,
                "completion_tokens_details":{"reasoning_tokens":5}}),
            counts(10, 0, 0, 50, 5),
        ),
        (
            "null details",
            json!({"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":null}),
            counts(7, 0, 0, 2, 0),
        ),
        ("whole floats", json!({"prompt_tokens":7.0,"completion_tokens":2.0}), counts(7, 0, 0, 2, 0)),
        ("negative", json!({"prompt_tokens":-7,"completion_tokens":2}), counts(0, 0, 0, 2, 0)),
        (
            "more cached than prompt",
            json!({"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}),
            counts(0, 5, 0, 1, 0),
        ),
    ];
    for (name, usage, want) in rows {
        assert_eq!(token_counts(&usage), Some(want), "{name}");
        assert_eq!(token_counts_raw(usage.to_string().as_bytes()), Some(want), "{name}, raw");
    }
}

/// A name, a `usage` object, its tokens, and its units and cost in nano-dollars.
type Row = (&'static str, Value, TokenCounts, (Units, Option<u64>));

fn units(searches: u64, tool_calls: u64, audio_ms: u64) -> Units {
    Units { searches, tool_calls, audio_ms, ..Units::ZERO }
}

fn tokens(input: u64, output: u64) -> TokenCounts {
    TokenCounts { input, output, ..TokenCounts::ZERO }
}

/// Checks that the row holds for the object read as a tree and as a token stream.
fn check((name, usage, want, (units, cost)): Row) {
    let reader = UsageReader::of(&usage);
    let extras = Extras { units, vendor_cost_nano_usd: cost, ..Extras::default() };
    assert_eq!((reader.counts(), reader.extras()), (Some(want), extras.clone()), "{name}");
    let answer = format!(r#"{{"usage":{usage}}}"#);
    let seen = crate::chat::findings::ChatScan::of(answer.as_bytes()).unwrap();
    assert_eq!((seen.token_counts(), seen.extras()), (Some(want), extras), "{name}, raw");
}

#[test]
fn every_token_class_and_unit_is_read_from_usage() {
    let rows = [
        (
            "OpenAI audio",
            json!({"prompt_tokens":100,"completion_tokens":60,"total_tokens":160,
                "prompt_tokens_details":{"cached_tokens":10,"audio_tokens":40,"text_tokens":60,"image_tokens":5},
                "completion_tokens_details":{"audio_tokens":45,"reasoning_tokens":5,"text_tokens":10}}),
            TokenCounts { cache_read: 10, audio_input: 40, audio_output: 45, reasoning: 5, ..tokens(50, 10) },
            (Units::ZERO, None),
        ),
        (
            "LiteLLM: caches of Anthropic at the top, within the prompt",
            json!({"prompt_tokens":120,"completion_tokens":5,"total_tokens":125,
                "cache_creation_input_tokens":40,"cache_read_input_tokens":50,
                "prompt_tokens_details":{"cached_tokens":50,"cache_creation_tokens":40,
                    "cache_creation_token_details":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":30}},
                "server_tool_use":{"web_search_requests":2}}),
            TokenCounts { cache_read: 50, cache_write: 10, cache_write_1h: 30, ..tokens(30, 5) },
            (units(2, 0, 0), None),
        ),
        (
            "a breakdown by lifetime alone",
            json!({"prompt_tokens":20,"completion_tokens":5,
                "cache_creation":{"ephemeral_5m_input_tokens":4,"ephemeral_1h_input_tokens":8}}),
            TokenCounts { cache_write: 4, cache_write_1h: 8, ..tokens(8, 5) },
            (Units::ZERO, None),
        ),
        (
            "DashScope",
            json!({"prompt_tokens":1524,"completion_tokens":20,"prompt_tokens_details":{
                "cache_creation":{"ephemeral_5m_input_tokens":1494},"cache_creation_input_tokens":1494,"cached_tokens":0}}),
            TokenCounts { cache_write: 1494, ..tokens(30, 20) },
            (Units::ZERO, None),
        ),
        (
            "images in chat answers",
            json!({"prompt_tokens":7,"completion_tokens":1300,"completion_tokens_details":{"image_tokens":1290}}),
            TokenCounts { image_output: 1290, ..tokens(7, 10) },
            (Units::ZERO, None),
        ),
    ];
    rows.into_iter().for_each(check);
}

#[test]
fn units_and_the_vendors_cost_are_read() {
    let rows = [
        (
            "OpenRouter",
            json!({"prompt_tokens":7,"completion_tokens":2,"cost":0.00001424,"is_byok":false,
                "cost_details":{"upstream_inference_cost":0.00001424}}),
            tokens(7, 2),
            (Units::ZERO, Some(14_240)),
        ),
        (
            "OpenRouter with an account of the user's own",
            json!({"prompt_tokens":7,"completion_tokens":2,"cost":0.000001,"is_byok":true,
                "cost_details":{"upstream_inference_cost":0.00002}}),
            tokens(7, 2),
            (Units::ZERO, Some(21_000)),
        ),
        (
            "Perplexity",
            json!({"prompt_tokens":7,"completion_tokens":2,"num_search_queries":3,
                "cost":{"input_tokens_cost":0.001,"request_cost":0.005,"total_cost":0.006}}),
            tokens(7, 2),
            (units(3, 0, 0), Some(6_000_000)),
        ),
        (
            "Perplexity, with a fee for one search",
            json!({"prompt_tokens":8,"completion_tokens":439,"total_tokens":447,"search_context_size":"low",
                "cost":{"input_tokens_cost":0.000008,"output_tokens_cost":0.000439,"request_cost":0.005,"total_cost":0.005447}}),
            tokens(8, 439),
            (units(1, 0, 0), Some(5_447_000)),
        ),
        (
            "Perplexity without a search",
            json!({"prompt_tokens":7,"completion_tokens":2,"cost":{"request_cost":0,"total_cost":0.001}}),
            tokens(7, 2),
            (Units::ZERO, Some(1_000_000)),
        ),
        (
            "xAI",
            json!({"input_tokens":9212,"output_tokens":3417,"cost_in_usd_ticks":318_319_005,"num_sources_used":0,
                "server_side_tool_usage_details":{"web_search_calls":1,"x_search_calls":3,"code_interpreter_calls":2}}),
            tokens(9212, 3417),
            (units(4, 2, 0), Some(31_831_901)),
        ),
        (
            "transcription by tokens",
            json!({"type":"tokens","input_tokens":14,"output_tokens":5,
                "input_token_details":{"text_tokens":2,"audio_tokens":12}}),
            TokenCounts { audio_input: 12, ..tokens(2, 5) },
            (Units::ZERO, None),
        ),
        (
            "sound in seconds",
            json!({"prompt_tokens":4,"completion_tokens":635,"prompt_audio_seconds":203}),
            tokens(4, 635),
            (units(0, 0, 203_000), None),
        ),
    ];
    rows.into_iter().for_each(check);
}

#[test]
fn image_tokens_of_image_usage_are_counted_separately() {
    let input = json!({"text_tokens":10,"image_tokens":40});
    let plain =
        json!({"input_tokens":50,"input_tokens_details":input,"output_tokens":272,"total_tokens":322});
    let mut detailed = plain.clone();
    detailed["output_tokens_details"] = json!({"image_tokens":200,"text_tokens":72});
    for (usage, output, image_output) in [(plain, 0, 272), (detailed, 72, 200)] {
        let want = TokenCounts { input: 10, image_input: 40, output, image_output, ..TokenCounts::ZERO };
        assert_eq!(UsageReader::of_images(&usage).counts(), Some(want), "{usage}");
    }
}

#[test]
fn seconds_are_reported_without_tokens() {
    let reader = UsageReader::of(&json!({"type":"duration","seconds":1.5}));
    assert_eq!((reader.counts(), reader.extras().units.audio_ms), (None, 1500));
}

#[test]
fn usage_without_token_counts_is_absent() {
    for usage in [json!({}), json!(null), json!("12"), json!({"total_tokens": 3}), json!([1])] {
        assert_eq!(token_counts(&usage), None, "{usage}");
        assert_eq!(token_counts_raw(usage.to_string().as_bytes()), None, "{usage}, raw");
    }
}
