//! Bills of published examples, to the nano-dollar: a response with the usage as the vendor reports it goes through the
//! gateway, and its record has the published cost (ADM-6).
//!
//! The source of the amount is named at each example. DeepSeek, Moonshot, Z.ai, Cohere and Google publish unit prices
//! and no bills, and AWS and Mistral publish few; the other amounts are from other projects, computed from the vendor's
//! prices at the time. Where a price has changed since, the configuration of the example has the price of that time.

use serde_json::{Value, json};

use crate::support::clock;
use crate::support::gateway::Setup;
use crate::support::{Answer, Upstream, Yaml, chat};

/// A vendor's response and its cost.
struct Example {
    model: &'static str,
    /// The prices of its time, if the built-in list has different ones now.
    prices: Option<Value>,
    answer: Value,
    tokens: Value,
    nano_usd: u64,
}

impl Example {
    /// Returns a chat completion that reports `usage`, at the prices of the built-in list.
    fn chat(model: &'static str, usage: &Value, tokens: Value, nano_usd: u64) -> Self {
        let mut answer: Value = serde_json::from_str(&chat::completion("hello")).unwrap();
        (answer["model"], answer["usage"]) = (json!(model), usage.clone());
        Self { model, prices: None, answer, tokens, nano_usd }
    }

    /// Returns a Converse response that reports `usage`, at the prices of the built-in list.
    fn converse(model: &'static str, usage: &Value, tokens: Value, nano_usd: u64) -> Self {
        let message = json!({"role": "assistant", "content": [{"text": "hello"}]});
        let answer = json!({"output": {"message": message}, "stopReason": "end_turn", "usage": usage});
        Self { model, prices: None, answer, tokens, nano_usd }
    }

    /// Returns the same example at these prices, in the format of the configuration.
    fn at(self, prices: Value) -> Self {
        Self { prices: Some(prices), ..self }
    }

    /// Returns the model in the format of the configuration.
    fn declared(&self) -> Value {
        match &self.prices {
            Some(prices) => json!({"id": self.model, "prices": prices}),
            None => json!({"id": self.model}),
        }
    }
}

/// Runs the examples over one gateway, each at a separate provider with these members, and fails if a record differs.
async fn assert_bills(setup: Setup, members: &Value, examples: &[Example]) {
    let upstream = Upstream::start().await;
    let base = upstream.base_url();
    let mut providers = json!({});
    for (index, example) in examples.iter().enumerate() {
        let mut provider = members.clone();
        let is_bedrock = provider["type"] == "bedrock";
        provider["base_url"] = json!(if is_bedrock { base.trim_end_matches("/v1") } else { &base });
        provider["models"] = json!([example.declared()]);
        providers[format!("p{index}")] = provider;
    }
    let policies = json!({"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}});
    let config = json!({"providers": providers, "policies": policies});
    let gateway = setup.yaml(config.to_string()).start().await;
    for (index, example) in examples.iter().enumerate() {
        let (id, selector) = (format!("published-{index}"), format!("p{index}/{}", example.model));
        upstream.then(Answer::json(200, example.answer.to_string()));
        let client = gateway.client().with("x-request-id", &id);
        assert_eq!(client.chat(chat::request(&selector)).await.status, 200, "{selector}");
        let record = gateway.record_of(&id).await;
        let counted = record["tokens"].as_object().unwrap().iter().filter(|(_, count)| **count != json!(0));
        let counted: Value = counted
            .map(|(name, count)| (name.clone(), count.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!(counted, example.tokens, "{selector}: {record}");
        let micro_usd = record["cost_micro_usd"].as_f64().unwrap_or_else(|| panic!("{selector}: {record}"));
        assert_eq!(format!("{:.3}", micro_usd * 1_000.0), format!("{}.000", example.nano_usd), "{selector}");
    }
}

fn setup() -> Setup {
    Setup::new(&Yaml::new())
}

/// Returns a provider of the registry.
fn registered(id: &str) -> Value {
    json!({"registry_id": id, "api_key": "secret-1"})
}

/// Returns a prompt of a million tokens, 400,000 of them from the cache, and an answer of a million, as DeepSeek
/// reports them.
fn deepseek_million(model: &'static str, nano_usd: u64) -> Example {
    let usage = json!({"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000, "total_tokens": 2_000_000,
        "prompt_cache_hit_tokens": 400_000, "prompt_cache_miss_tokens": 600_000});
    let tokens = json!({"input": 600_000, "cache_read": 400_000, "output": 1_000_000});
    Example::chat(model, &usage, tokens, nano_usd)
}

/// `BerriAI/litellm:tests/test_litellm/llms/deepseek/test_deepseek_cost_calculator.py`: $1.3824 and $4.7696 on a Tuesday at
/// 8:00 UTC. `promptfoo/promptfoo:test/providers/deepseek.test.ts`: $0.00004224 and $0.00016016 for 100 tokens, 40 of them
/// from the cache, and 20 of output.
#[tokio::test]
async fn deepseek_bills_of_peak_hours_are_those_published() {
    let Some(setup) = clock::at(TUESDAY_8).map(|clock| setup().with_clock(clock)) else { return };
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
        "prompt_cache_hit_tokens": 40, "prompt_cache_miss_tokens": 60});
    let tokens = json!({"input": 60, "cache_read": 40, "output": 20});
    let examples = [
        deepseek_million("deepseek-flash", 1_382_400_000),
        deepseek_million("deepseek-v4-pro", 4_769_600_000),
        Example::chat("deepseek-flash", &usage, tokens.clone(), 42_240),
        Example::chat("deepseek-v4-pro", &usage, tokens, 160_160),
    ];
    assert_bills(setup, &registered("deepseek"), &examples).await;
}

/// The same test of LiteLLM: half of that on a Saturday at 2:00 UTC. The others are from before peak hours existed.
/// <https://github.com/BerriAI/litellm/pull/26848>: $0.000184875 for 11 tokens of input and 207 of output at $0.435 and
/// $0.87. `pydantic/genai-prices:tests/dataset/usages.json`, a recorded answer of deepseek-reasoner: $0.0000066 and
/// $0.00172791 at $0.55 and $2.19.
#[tokio::test]
async fn deepseek_bills_of_other_hours_and_times_are_those_published() {
    let Some(setup) = clock::at(SATURDAY_2).map(|clock| setup().with_clock(clock)) else { return };
    let plain = json!({"prompt_tokens": 11, "completion_tokens": 207, "total_tokens": 218,
        "prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 11});
    let reasoned = json!({"prompt_tokens": 12, "completion_tokens": 789, "total_tokens": 801,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 415},
        "prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 12});
    let examples = [
        deepseek_million("deepseek-flash", 691_200_000),
        deepseek_million("deepseek-v4-pro", 2_384_800_000),
        Example::chat("deepseek-v4-pro", &plain, json!({"input": 11, "output": 207}), 184_875)
            .at(json!({"input": 0.435, "cached_input": 0.003_625, "output": 0.87})),
        Example::chat(
            "deepseek-reasoner",
            &reasoned,
            json!({"input": 12, "output": 374, "reasoning": 415}),
            1_734_510,
        )
        .at(json!({"input": 0.55, "cached_input": 0.14, "output": 2.19})),
    ];
    assert_bills(setup, &registered("deepseek"), &examples).await;
}

fn mistral() -> Vec<Example> {
    let usage = |input, output| json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    let cached = json!({"prompt_tokens": 1_013, "completion_tokens": 30, "total_tokens": 1_043,
        "prompt_tokens_details": {"cached_tokens": 1_008}});
    vec![
        // The usage is from docs.mistral.ai/studio-api/conversations/advanced/prompt-caching, the amount from
        // pydantic/genai-prices:tests/test_extract_usage.py: $0.0000979.
        Example::chat(
            "mistral-large-2512",
            &cached,
            json!({"input": 5, "cache_read": 1_008, "output": 30}),
            97_900,
        ),
        // promptfoo/promptfoo:test/providers/mistral.test.ts: $0.0011, $0.0051 and $0.00042.
        Example::chat(
            "mistral-large-latest",
            &usage(400, 600),
            json!({"input": 400, "output": 600}),
            1_100_000,
        ),
        Example::chat(
            "mistral-medium-latest",
            &usage(400, 600),
            json!({"input": 400, "output": 600}),
            5_100_000,
        ),
        Example::chat(
            "mistral-small-latest",
            &usage(400, 600),
            json!({"input": 400, "output": 600}),
            420_000,
        ),
        // Mistral itself, mistralai/mistral-vibe:tests/agent_loop/test_agent_stats.py: $2 at $1 and $2.
        Example::chat(
            "devstral-latest",
            &usage(1_000_000, 500_000),
            json!({"input": 1_000_000, "output": 500_000}),
            2_000_000_000,
        )
        .at(json!({"input": 1, "output": 2})),
    ]
}

#[tokio::test]
async fn mistral_bills_are_those_published() {
    assert_bills(setup(), &registered("mistral"), &mistral()).await;
}

/// Cohere's Compatibility API reports usage in OpenAI's format.
fn cohere() -> Vec<Example> {
    let usage = |input, output| json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    vec![
        // pydantic/genai-prices:tests/test_extract_usage.py, 13 and 8 billed units: $0.0001125.
        Example::chat("command-r-plus-08-2024", &usage(13, 8), json!({"input": 13, "output": 8}), 112_500),
        // Cohere itself, without the amount: the billed units of docs.cohere.com/docs/how-does-cohere-pricing-work, at
        // the $0.15 and $0.60 of docs.cohere.com/changelog/command-gets-refreshed.
        Example::chat(
            "command-r-08-2024",
            &usage(6_772, 248),
            json!({"input": 6_772, "output": 248}),
            1_164_600,
        ),
    ]
}

#[tokio::test]
async fn cohere_bills_are_those_published() {
    assert_bills(setup(), &registered("cohere"), &cohere()).await;
}

fn moonshot() -> Vec<Example> {
    let usage = json!({"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100});
    let cached = json!({"prompt_tokens": 1_000, "completion_tokens": 500, "total_tokens": 1_500,
        "prompt_tokens_details": {"cached_tokens": 400}});
    let written = json!({"prompt_tokens": 3_000_000, "completion_tokens": 1_000_000, "total_tokens": 4_000_000,
        "prompt_tokens_details": {"cached_tokens": 1_000_000, "cache_write_tokens": 1_000_000},
        "reasoning_tokens": 500_000});
    vec![
        // https://github.com/BerriAI/litellm/pull/37552, a live answer of Moonshot: $0.00042.
        Example::chat("kimi-k3", &usage, json!({"input": 90, "output": 10}), 420_000),
        // promptfoo/promptfoo:test/providers/moonshot.test.ts: $0.002634 at the prices of kimi-k2.6.
        Example::chat(
            "kimi-k2.6",
            &cached,
            json!({"input": 600, "cache_read": 400, "output": 500}),
            2_634_000,
        ),
        // pydantic/genai-prices:tests/test_extract_usage.py, kimi-k3 at Modal, whose prices are Moonshot's: $21.30.
        Example::chat(
            "kimi-k3",
            &written,
            json!({"input": 1_000_000, "cache_read": 1_000_000, "cache_write": 1_000_000, "output": 500_000,
                "reasoning": 500_000}),
            21_300_000_000,
        ),
    ]
}

#[tokio::test]
async fn moonshot_bills_are_those_published() {
    assert_bills(setup(), &registered("moonshot"), &moonshot()).await;
}

fn zai() -> Vec<Example> {
    let usage = |input, output| json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    let reasoned = json!({"prompt_tokens": 20, "completion_tokens": 67, "total_tokens": 87,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 58}});
    vec![
        // pydantic/genai-prices:tests/dataset/usages.json, a recorded answer: $0.000028 and $0.0002948.
        Example::chat("glm-5.2", &reasoned, json!({"input": 20, "output": 9, "reasoning": 58}), 322_800),
        // https://github.com/BerriAI/litellm/pull/29840: $0.003600.
        Example::chat("glm-5.1", &usage(1_000, 500), json!({"input": 1_000, "output": 500}), 3_600_000),
        // BerriAI/litellm:tests/test_litellm/llms/zai/test_zai_provider.py: $0.6 and $2.2.
        Example::chat(
            "glm-4.6",
            &usage(1_000_000, 1_000_000),
            json!({"input": 1_000_000, "output": 1_000_000}),
            2_800_000_000,
        ),
    ]
}

#[tokio::test]
async fn zai_bills_are_those_published() {
    assert_bills(setup(), &registered("zai"), &zai()).await;
}

fn bedrock() -> Vec<Example> {
    let usage =
        |input, output| json!({"inputTokens": input, "outputTokens": output, "totalTokens": input + output});
    let hour = json!({"inputTokens": 14, "outputTokens": 4, "totalTokens": 8_869, "cacheReadInputTokens": 0,
        "cacheWriteInputTokens": 8_851, "cacheDetails": [{"ttl": "1h", "inputTokens": 8_851}]});
    let mixed = json!({"inputTokens": 100, "outputTokens": 50, "totalTokens": 750, "cacheReadInputTokens": 500,
        "cacheWriteInputTokens": 100,
        "cacheDetails": [{"ttl": "1h", "inputTokens": 40}, {"ttl": "5m", "inputTokens": 60}]});
    let read = json!({"inputTokens": 1_000, "outputTokens": 0, "totalTokens": 11_000,
        "cacheReadInputTokens": 10_000, "cacheWriteInputTokens": 0});
    vec![
        // AWS itself, awslabs/generative-ai-cdk-constructs:src/patterns/gen-ai/aws-qa-appsync-opensearch/README.md:
        // $0.05472 for 2K and 1K tokens at $0.01102 and $0.03268 per thousand.
        Example::converse(
            "anthropic.claude-v2:1",
            &usage(2_000, 1_000),
            json!({"input": 2_000, "output": 1_000}),
            54_720_000,
        )
        .at(json!({"input": 11.02, "output": 32.68})),
        // AWS itself, an example of aws.amazon.com/bedrock/pricing in 2024: $0.184 for 11K and 4K tokens at $0.008 and
        // $0.024 per thousand, the prices that the list still has.
        Example::converse(
            "anthropic.claude-v2:1",
            &usage(11_000, 4_000),
            json!({"input": 11_000, "output": 4_000}),
            184_000_000,
        ),
        // https://github.com/BerriAI/litellm/pull/36762, a live answer of Bedrock: $0.08868.
        Example::converse(
            "global.anthropic.claude-opus-4-8",
            &hour,
            json!({"input": 14, "cache_write_1h": 8_851, "output": 4}),
            88_680_000,
        ),
        // promptfoo/promptfoo:test/providers/bedrock/pricing.test.ts: 100 x $3 + 500 x $0.30 + 60 x $3.75 + 40 x $6 +
        // 50 x $15 per million, and 1,000 x $0.06 + 10,000 x $0.015.
        Example::converse(
            "global.anthropic.claude-sonnet-5",
            &mixed,
            json!({"input": 100, "cache_read": 500, "cache_write": 60, "cache_write_1h": 40, "output": 50}),
            1_665_000,
        )
        .at(json!({"input": 3, "cached_input": 0.3, "cache_write": 3.75, "cache_write_1h": 6, "output": 15})),
        Example::converse(
            "amazon.nova-lite-v1:0",
            &read,
            json!({"input": 1_000, "cache_read": 10_000}),
            210_000,
        ),
    ]
}

/// Returns the members of a provider on Bedrock.
fn on_bedrock() -> Value {
    json!({"type": "bedrock", "region": "us-east-1", "api_key": "AKIDEXAMPLE:secret/of+aws"})
}

#[tokio::test]
async fn bedrock_bills_are_those_published() {
    assert_bills(setup(), &on_bedrock(), &bedrock()).await;
}

/// Returns the models of the published bills whose prices do not depend on the hour, with the members of their provider.
pub(crate) fn models_of_published_bills() -> Vec<(Value, Value)> {
    let of_vendors = [
        (registered("mistral"), mistral()),
        (registered("cohere"), cohere()),
        (registered("moonshot"), moonshot()),
        (registered("zai"), zai()),
        (on_bedrock(), bedrock()),
    ];
    let models = of_vendors.into_iter().flat_map(|(members, examples)| {
        examples.into_iter().map(move |example| (members.clone(), example.declared()))
    });
    models.collect()
}

/// aifreeapi.com/es/posts/veo-3-1-api-rate-limit: $4.80 for 8 seconds of Veo 3.1 in 4K. The other rows are unit prices of
/// ai.google.dev/gemini-api/docs/pricing: $0.40 a second in 720p and 1080p, and $0.10, $0.12 and $0.30 for Fast.
#[tokio::test]
async fn veo_bills_follow_the_requested_resolution() {
    let (standard, fast) = ("veo-3.1-generate-001", "veo-3.1-fast-generate-001");
    let upstream = Upstream::start().await;
    let base = upstream.base_url();
    let google = json!({"type": "gemini", "api_key": "secret-1", "models": [standard, fast],
        "base_url": base.trim_end_matches("/v1")});
    let gateway = setup().yaml(json!({"providers": {"google": google}}).to_string()).start().await;
    for (index, (model, members, picture, micro_usd)) in [
        (standard, json!({"resolution": "4k"}), json!("4k"), 4_800_000.0),
        (standard, json!({"size": "3840x2160"}), json!("3840x2160"), 4_800_000.0),
        (standard, json!({"size": "1080x1920"}), json!("1080x1920"), 3_200_000.0),
        (standard, json!({}), Value::Null, 3_200_000.0),
        (fast, json!({"size": "1280x720"}), json!("1280x720"), 800_000.0),
        (fast, json!({"resolution": "1080p"}), json!("1080p"), 960_000.0),
        (fast, json!({"size": "2160x3840"}), json!("2160x3840"), 2_400_000.0),
    ]
    .into_iter()
    .enumerate()
    {
        let mut body = json!({"model": format!("google/{model}"), "prompt": "a cat", "seconds": 8});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        upstream.then(Answer::json(200, json!({"name": "models/veo/operations/1"}).to_string()));
        let id = format!("veo-{index}");
        let client = gateway.client().with("x-request-id", &id);
        let answer = client.post("/v1/videos/generations", body.to_string()).await;
        assert_eq!(answer.status, 202, "{members}: {:?}", answer.body);
        let record = gateway.record_of(&id).await;
        assert_eq!(
            (&record["picture"], record["cost_micro_usd"].as_f64()),
            (&picture, Some(micro_usd)),
            "{model} {members}"
        );
    }
}

/// 2026-09-22 08:00 UTC.
const TUESDAY_8: i64 = 1_790_064_000;
/// 2026-09-26 02:00 UTC.
const SATURDAY_2: i64 = 1_790_388_000;
