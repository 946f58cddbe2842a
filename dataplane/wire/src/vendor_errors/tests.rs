//! Errors as vendors sent them, and the page that shows the table.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::table::NOTHING_KNOWN;
use super::*;

const REGISTRY: &str = include_str!("../../../../shared/src/provider/registry.json");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vendor-errors.md");

fn read(status: u16, message: &str, code: Option<&str>) -> Option<Recognised> {
    recognise(&ErrorWords { status, message, names: [code, None], param: None })
}

/// (source, status, message, meaning, tokens)
type Case = (&'static str, u16, &'static str, ErrorMeaning, Option<(u64, u64)>);

const OVERFLOWS: &[Case] = &[
    (
        "vllm-project/vllm#12165",
        400,
        "The prompt (total length 25938) is too long to fit into the model (context length 4096). Make sure that",
        ErrorMeaning::Overflow,
        Some((25_938, 4096)),
    ),
    ("ddalcu/mlx-serve#66", 400, "Prompt exceeds maximum context length", ErrorMeaning::Overflow, None),
    (
        "dyad-sh/dyad#3498",
        400,
        "prompt too long; exceeded max context length by 540451 tokens (ref: x)",
        ErrorMeaning::Overflow,
        None,
    ),
    (
        "anthropics/claude-code#16644",
        400,
        "prompt is too long: 215692 tokens > 200000 maximum",
        ErrorMeaning::Overflow,
        Some((215_692, 200_000)),
    ),
    (
        "anthropics/claude-code#408",
        400,
        "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648, decrease input length",
        ErrorMeaning::Overflow,
        Some((189_136, 204_648)),
    ),
    (
        "chathub-dev/chathub#126",
        400,
        "This model's maximum context length is 4097 tokens. However, your messages resulted in 4294 tokens. Please reduce the length of the messages.",
        ErrorMeaning::Overflow,
        Some((4294, 4097)),
    ),
    (
        "netease-youdao/LobsterAI#60",
        400,
        "This model's maximum context length is 131072 tokens. However, you requested 141403 tokens (133211 in the messages, 8192 in the completion).",
        ErrorMeaning::Overflow,
        Some((141_403, 131_072)),
    ),
    (
        "earendil-works/pi#5929",
        400,
        "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your prompt contains at least 262145 input tokens, for a total of at least 262145 tokens.",
        ErrorMeaning::Overflow,
        Some((262_145, 262_144)),
    ),
    (
        "earendil-works/pi#5677",
        400,
        "Input length (265330) exceeds model's maximum context length (262144).",
        ErrorMeaning::Overflow,
        Some((265_330, 262_144)),
    ),
    (
        "earendil-works/pi#4943",
        400,
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        ErrorMeaning::Overflow,
        Some((131_393, 131_040)),
    ),
    ("stdapi-ai/stdapi.ai#293", 400, "Input is too long for requested model.", ErrorMeaning::Overflow, None),
    (
        "google-gemini/gemini-cli#15184",
        400,
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        ErrorMeaning::Overflow,
        None,
    ),
    (
        "earendil-works/pi#129",
        400,
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        ErrorMeaning::Overflow,
        Some((1_196_265, 1_048_575)),
    ),
    (
        "cline/cline#3120",
        400,
        "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
        ErrorMeaning::Overflow,
        Some((136_973, 131_072)),
    ),
    (
        "cline/cline#5140",
        400,
        "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000",
        ErrorMeaning::Overflow,
        Some((42_328, 40_000)),
    ),
    (
        "OpenHands/OpenHands#9252",
        400,
        "The maximum context length of DeepSeek-V3-0324 is 32768. However, answering your request will take 39732 tokens.",
        ErrorMeaning::Overflow,
        Some((39_732, 32_768)),
    ),
    (
        "huggingface/chat-ui#340",
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1512. Given: 1000 `inputs` tokens and 1024 `max_new_tokens`",
        ErrorMeaning::Overflow,
        Some((1000, 1512)),
    ),
    (
        "cline/kanban#505",
        400,
        "the request exceeds the available context size, try increasing it",
        ErrorMeaning::Overflow,
        None,
    ),
    (
        "0xBakeer/inference-atlas#186",
        400,
        "Prompt too long: 5152 tokens exceeds max_seq_len 2048 (leave room for output tokens)",
        ErrorMeaning::Overflow,
        None,
    ),
    (
        "jundot/omlx#26",
        400,
        "Prompt too long: 32799 tokens exceeds max context window of 32768 tokens",
        ErrorMeaning::Overflow,
        Some((32_799, 32_768)),
    ),
    (
        "MoonshotAI/kimi-cli#2011",
        400,
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
        ErrorMeaning::Overflow,
        Some((269_030, 262_144)),
    ),
    ("zeroclaw-labs/zeroclaw#4124", 400, "Prompt exceeds max length", ErrorMeaning::Overflow, None),
    (
        "anomalyco/opencode#45834",
        400,
        "Range of input length should be [1, 98304]",
        ErrorMeaning::Overflow,
        None,
    ),
    (
        "cohere-ai/sandbox-topically#4",
        400,
        "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received 6354. Try using a shorter prompt",
        ErrorMeaning::Overflow,
        Some((6354, 2048)),
    ),
    (
        "eslint/tsc-meetings#593",
        413,
        "Request body too large for gpt-4o model. Max size: 8000 tokens.",
        ErrorMeaning::Overflow,
        None,
    ),
    (
        "sgl-project/sglang#4048",
        400,
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
        ErrorMeaning::Overflow,
        Some((160_062, 59_862)),
    ),
    (
        "xorbitsai/inference#3785",
        500,
        "The decoder prompt (length 21535) is longer than the maximum model length of 16384.",
        ErrorMeaning::Overflow,
        Some((21_535, 16_384)),
    ),
    (
        "cline/cline#4971",
        413,
        "Request too large for model `moonshotai/kimi-k2-instruct` in organization `org` service tier `on_demand` on tokens per minute (TPM): Limit 10000, Requested 15088, please reduce your message size",
        ErrorMeaning::Overflow,
        Some((15_088, 10_000)),
    ),
    (
        "fork-dev/TrackerWin#2595",
        429,
        "Request too large for gpt-4o in organization org on tokens per min (TPM): Limit 30000, Requested 132819. The input or output tokens must be reduced",
        ErrorMeaning::Overflow,
        Some((132_819, 30_000)),
    ),
];

const OTHERS: &[Case] = &[
    (
        "MoonshotAI/kimi-cli#1002",
        400,
        "The request was rejected because it was considered high risk",
        ErrorMeaning::ContentPolicy,
        None,
    ),
    (
        "UKGovernmentBEIS/inspect_ai#2267",
        403,
        "Content violates usage guidelines. Team: x, Failed check: SAFETY_CHECK_TYPE_BIO",
        ErrorMeaning::ContentPolicy,
        None,
    ),
    (
        "zai-org/feedback#516",
        400,
        "系统检测到输入或生成内容可能包含不安全或敏感内容",
        ErrorMeaning::ContentPolicy,
        None,
    ),
    (
        "dnakov/anon-kode#2",
        404,
        "No endpoints found that support tool use. To learn more about provider routing",
        ErrorMeaning::Unsupported,
        None,
    ),
    (
        "jin-bo/agentao#88",
        400,
        "Too many tokens, please wait before trying again.",
        ErrorMeaning::RateLimit,
        None,
    ),
    ("continuedev/continue#9853", 402, "Insufficient Balance", ErrorMeaning::Billing, None),
    ("Aider-AI/aider#4851", 400, "Insufficient Balance", ErrorMeaning::Billing, None),
    ("MiniMax-AI/MiniMax-M2#62", 500, "insufficient balance (1008)", ErrorMeaning::Billing, None),
    (
        "continuedev/continue#11443",
        429,
        "Your account org is suspended due to insufficient balance, please recharge your account or check your plan and billing details",
        ErrorMeaning::Billing,
        None,
    ),
    (
        "vercel/ai#9290",
        429,
        "Insufficient balance or no resource package. Please recharge.",
        ErrorMeaning::Billing,
        None,
    ),
    (
        "can1357/oh-my-pi#9569",
        402,
        "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 0.",
        ErrorMeaning::Billing,
        None,
    ),
    (
        "pollinations/pollinations#12136",
        412,
        "Account x is suspended, possibly due to reaching the monthly spending limit or failure to pay past invoices.",
        ErrorMeaning::Billing,
        None,
    ),
    (
        "continuedev/continue#10373",
        429,
        "Your team x has either used all available credits or reached its monthly spending limit.",
        ErrorMeaning::Billing,
        None,
    ),
    (
        "huggingface/agents-course#386",
        402,
        "You have exceeded your monthly included credits for Inference Providers.",
        ErrorMeaning::Billing,
        None,
    ),
    (
        "MoonshotAI/Kimi-K2#5",
        403,
        "Your account xx is not active, organization xx exceeded current quota, please check it",
        ErrorMeaning::Quota,
        None,
    ),
    (
        "camel-ai/owl#432",
        400,
        "Input data may contain inappropriate content.",
        ErrorMeaning::ContentPolicy,
        None,
    ),
    (
        "QwenLM/qwen-code#3145",
        400,
        "<400> InternalError.Algo.DataInspectionFailed: Input text data may contain inappropriate content.",
        ErrorMeaning::ContentPolicy,
        None,
    ),
    ("666ghj/BettaFish#108", 400, "Content Exists Risk", ErrorMeaning::ContentPolicy, None),
    (
        "anthropics/claude-code#58367",
        400,
        "Output blocked by content filtering policy",
        ErrorMeaning::ContentPolicy,
        None,
    ),
    (
        "compl-ai/compl-ai#20",
        400,
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        ErrorMeaning::ContentPolicy,
        None,
    ),
    (
        "continuedev/continue#10832",
        404,
        "The model `llama3.1-405b` does not exist or you do not have access to it.",
        ErrorMeaning::UnknownModel,
        None,
    ),
    (
        "FerroxLabs/wayland#603",
        400,
        "Invalid model 'perplexity/sonar'. Permitted models can be found in the documentation",
        ErrorMeaning::UnknownModel,
        None,
    ),
    (
        "maxnowack/anthropic-proxy#4",
        400,
        "google/gemini-2.0-pro-exp-02-05:free is not a valid model ID",
        ErrorMeaning::UnknownModel,
        None,
    ),
    (
        "ollama/ollama#8345",
        400,
        "registry.ollama.ai/library/llama3.2-vision does not support tools",
        ErrorMeaning::Unsupported,
        None,
    ),
    (
        "diegosouzapw/OmniRoute#3044",
        400,
        "Model 'moonshotai/kimi-k2.6' supports at most 1 image per prompt.",
        ErrorMeaning::Unsupported,
        None,
    ),
    (
        "plainbook-ai/plainbook#25",
        400,
        "API key expired. Please renew the API key.",
        ErrorMeaning::Credential,
        None,
    ),
];

#[test]
fn errors_of_public_reports_are_recognised() {
    for (source, status, message, meaning, tokens) in OVERFLOWS.iter().chain(OTHERS) {
        let want = Some(Recognised { meaning: *meaning, tokens: *tokens });
        assert_eq!(read(*status, message, None), want, "{source}: {message}");
    }
    for (status, code, meaning) in [
        (400, "context_length_exceeded", ErrorMeaning::Overflow),
        (400, "exceed_context_size_error", ErrorMeaning::Overflow),
        (400, "1261", ErrorMeaning::Overflow),
        (429, "1113", ErrorMeaning::Billing),
        (429, "1302", ErrorMeaning::RateLimit),
        (429, "insufficient_quota", ErrorMeaning::Quota),
        (401, "insufficient_quota", ErrorMeaning::Quota),
        (400, "content_filter", ErrorMeaning::ContentPolicy),
        (400, "DATA_INSPECTION_FAILED", ErrorMeaning::ContentPolicy),
        (404, "DeploymentNotFound", ErrorMeaning::UnknownModel),
        (400, "ThrottlingException", ErrorMeaning::RateLimit),
        (502, crate::finish_word::MALFORMED_CODE, ErrorMeaning::Malformed),
    ] {
        assert_eq!(read(status, "m", Some(code)).map(|read| read.meaning), Some(meaning), "{code}");
    }
}

#[test]
fn other_errors_keep_their_statuss_meaning() {
    for (status, message) in [
        (400, "'temperature' must be less than 2"),
        (400, "max_tokens must be less than or equal to 16384"),
        (401, "prompt is too long: 5 tokens > 4 maximum"),
        (405, "model not found"),
        (429, "Rate limit reached, try again in 2 s"),
        (429, "This request would exceed your account's rate limit. Please try again later."),
        (429, "Need more tokens? Upgrade at https://console.groq.com/settings/billing"),
        (500, "internal error"),
        (404, "Not Found"),
        // BigPizzaV3/CodexPlusPlus#267
        (400, "invalid params, chat content has invalid message role: system (2013)"),
    ] {
        assert_eq!(read(status, message, None), None, "{status} {message}");
    }
}

#[test]
fn every_registry_entry_has_a_row_or_says_that_nothing_is_known() {
    let registry: Vec<Value> = serde_json::from_str(REGISTRY).unwrap();
    let known: BTreeSet<&str> = WORDINGS.iter().flat_map(|row| row.vendors).copied().collect();
    let unknown: BTreeSet<&str> = NOTHING_KNOWN.iter().map(|(vendor, _)| *vendor).collect();
    let ids: BTreeSet<&str> = registry.iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    assert!(known.is_disjoint(&unknown));
    let both: BTreeSet<&str> = known.union(&unknown).copied().collect();
    assert!(ids.is_subset(&both), "{:?}", ids.difference(&both));
    let strangers: Vec<&&str> = both.difference(&ids).collect();
    assert_eq!(strangers, [&"azure_openai"], "a kind without an entry of the registry");
}

#[test]
fn every_row_has_a_source_and_patterns_in_lower_case() {
    for row in WORDINGS {
        assert!(row.source.contains(['#', '/']) || row.source.starts_with("the table"), "{row:?}");
        assert!(row.words.iter().all(|words| *words == words.to_ascii_lowercase()), "{row:?}");
        assert!(!(row.names.is_empty() && row.words.is_empty()), "{row:?}");
        for words in row.words {
            let text = words.replace("{used}", "7").replace("{limit}", "5").replace("{}", "x");
            assert!(pattern::fits(words, &text), "{words}");
        }
    }
}

#[test]
fn the_page_of_vendors_errors_is_current() {
    let page = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        page == wanted(),
        "docs/vendor-errors.md is not current: run `cargo test -p wire vendor_errors -- --ignored`"
    );
}

#[test]
#[ignore = "writes docs/vendor-errors.md"]
fn renew_the_page_of_vendors_errors() {
    std::fs::write(PAGE, wanted()).unwrap();
}

fn wanted() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n## Words\n\n| meaning | vendors | code or type | part of the message | source |\n|---|---|---|---|---|\n");
    for row in WORDINGS {
        let list = |items: &[&str]| {
            items.iter().map(|item| format!("`{}`", item.replace('`', "'"))).collect::<Vec<_>>().join(", ")
        };
        let vendors = if row.vendors.is_empty() { "any".to_owned() } else { row.vendors.join(", ") };
        let param = row.param.map(|param| format!(" (about `{param}`)")).unwrap_or_default();
        let _ = writeln!(
            page,
            "| {} | {vendors} | {} | {}{param} | {} |",
            row.meaning.name(),
            list(row.names),
            list(row.words),
            row.source
        );
    }
    page.push_str("\n## Vendors without known words\n\n| vendor | |\n|---|---|\n");
    for (vendor, why) in NOTHING_KNOWN {
        let _ = writeln!(page, "| {vendor} | {why} |");
    }
    page
}

const INTRODUCTION: &str = "\
# Vendors' errors

This page lists the words by which the gateway recognises what an upstream's error means, and their sources. It is generated from the table that the code uses.
[Errors](errors.md#errors-of-an-upstream) describes what follows from a meaning.

A message is compared without regard to case. `{used}` and `{limit}` stand for numbers of tokens, `{}` for any text. The first row that fits decides. Errors with a
status such as 405 are not compared.
";
