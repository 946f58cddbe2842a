//! The usage that an upstream reports is stored in the record, for whole responses and streams, and is billed at the
//! prices of its classes, units and service tier (ADM-6).

mod media;

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::gateway::Setup;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

/// A gateway with one provider per protocol, all at one upstream, with the model `m` at [`prices`] and the model
/// `unpriced` without prices.
struct Rig {
    gateway: Gateway,
    upstream: Upstream,
}

impl Rig {
    async fn start() -> Self {
        let upstream = Upstream::start().await;
        let base = upstream.base_url();
        let root = base.trim_end_matches("/v1");
        let models = json!([{"id": "m", "prices": prices()}, {"id": "unpriced"}]);
        let provider = |kind: &str, base_url: &str| json!({"type": kind, "base_url": base_url, "api_key": "secret-1", "models": models});
        let mut responses = provider("openai", &base);
        responses["force_api_support"] = json!(true);
        responses["models"] = json!([{"id": "m", "prices": prices(), "protocols": ["responses"]}]);
        let mut bedrock = provider("bedrock", root);
        (bedrock["region"], bedrock["api_key"]) = (json!("eu-west-1"), json!("AKIDEXAMPLE:secret/of+aws"));
        let config = json!({
            "providers": {
                "chat": provider("compatible", &base), "messages": provider("anthropic", root),
                "openai": provider("openai", &base), "responses": responses,
                "gemini": provider("gemini", root), "bedrock": bedrock,
            },
            "policies": {"defaults": {"retry_max_attempts": 1, "circuit_failure_threshold": 0}},
        });
        Self { gateway: Setup::new(&Yaml::new()).yaml(config.to_string()).start().await, upstream }
    }

    /// Returns the record of an exchange of `model` over `path`, to which the upstream responds with `answer`.
    async fn record(&self, path: &str, model: &str, stream: bool, answer: Answer) -> Value {
        let mut body: Value = serde_json::from_str(&chat::request(model)).unwrap();
        let bound = if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        if path == "/v1/responses" {
            body["input"] = body["messages"].take();
            body.as_object_mut().unwrap().remove("messages");
        }
        (body["stream"], body[bound]) = (json!(stream), json!(100));
        self.record_of(path, &body, answer).await
    }

    /// Returns the record of the exchange for the request `body`. The response may break off.
    async fn record_of(&self, path: &str, body: &Value, answer: Answer) -> Value {
        let (before, id) = (self.upstream.requests().len(), format!("reported-{}", next_number()));
        self.upstream.then(answer);
        let client = self.gateway.client().with("x-request-id", &id).with("content-type", "application/json");
        if let Ok(reply) = client.send("POST", path, body.to_string().into()).await {
            assert!(reply.status != 400 && reply.status != 404, "{:?}", reply.body);
        }
        assert_eq!(self.upstream.requests().len(), before + 1);
        self.gateway.record_of(&id).await
    }
}

fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns prices in dollars; each class has a distinct price.
fn prices() -> Value {
    json!({
        "input": 1, "cached_input": 0.1, "cache_write": 1.25, "cache_write_1h": 2, "output": 10, "audio_input": 40,
        "audio_output": 80, "image_input": 8, "image_output": 30, "characters": 15, "audio_second": 0.006,
        "video_second": 0.1, "pictures": {"high/1024x1536": 0.25, "1024x1024": 0.04}, "search": 0.01, "tool_call": 0.03,
        "tiers": {"flex": {"input": 0.5, "output": 5}, "geo:us": {"times": 1.1}},
    })
}

/// Compares the non-zero counts of a record, its tier and its cost in micro-dollars.
fn assert_record(record: &Value, tokens: &Value, units: &Value, tier: Option<&str>, cost: Option<f64>) {
    let counted = |counts: &Value| {
        let counts = counts.as_object().into_iter().flatten();
        let counts = counts.filter(|(_, count)| count.as_u64() != Some(0));
        Value::from(
            counts.map(|(name, count)| (name.clone(), count.clone())).collect::<serde_json::Map<_, _>>(),
        )
    };
    assert_eq!(counted(&record["tokens"]), *tokens, "{record}");
    assert_eq!(counted(&record["units"]), *units, "{record}");
    assert_eq!(record["tier"].as_str(), tier, "{record}");
    assert_eq!(record["cost_micro_usd"].as_f64(), cost, "{record}");
}

fn data(events: &[Value]) -> Answer {
    let events: Vec<Bytes> = events.iter().map(|event| chat::event(&event.to_string())).collect();
    Answer::events(&events)
}

/// Returns a chat response, whole or in chunks, with these members beside its choices.
fn reported_by(members: &Value, stream: bool) -> Answer {
    let mut whole: Value = serde_json::from_str(&chat::completion("hello")).unwrap();
    let mut last = json!({"id": "1", "object": "chat.completion.chunk", "choices": []});
    for (name, value) in members.as_object().unwrap() {
        (whole[name], last[name]) = (value.clone(), value.clone());
    }
    if !stream {
        return Answer::json(200, whole.to_string());
    }
    let last = chat::event(&last.to_string());
    Answer::events(&[chat::role(), chat::content("hello"), chat::finish(), last, chat::done()])
}

#[tokio::test]
async fn chat_usage_is_billed_by_class_unit_and_tier() {
    let rig = Rig::start().await;
    let audio = json!({
        "prompt_tokens": 100, "completion_tokens": 60, "total_tokens": 160,
        "prompt_tokens_details": {"cached_tokens": 10, "audio_tokens": 40},
        "completion_tokens_details": {"audio_tokens": 45, "reasoning_tokens": 5},
    });
    let plain = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
    let mut searched = plain.clone();
    searched["num_search_queries"] = json!(3);
    let rows = [
        (
            json!({"usage": audio, "service_tier": "default"}),
            json!({"input": 50, "cache_read": 10, "audio_input": 40, "output": 10, "reasoning": 5, "audio_output": 45}),
            json!({}),
            (None, Some(5_401.0)),
        ),
        (
            json!({"usage": plain, "service_tier": "flex"}),
            json!({"input": 100, "output": 10}),
            json!({}),
            (Some("flex"), Some(100.0)),
        ),
        (
            json!({"usage": plain, "service_tier": "scale"}),
            json!({"input": 100, "output": 10}),
            json!({}),
            (Some("scale"), None),
        ),
        (
            json!({"usage": searched}),
            json!({"input": 100, "output": 10}),
            json!({"searches": 3}),
            (None, Some(30_200.0)),
        ),
    ];
    for (members, tokens, units, (tier, cost)) in rows {
        for stream in [false, true] {
            let record =
                rig.record("/v1/chat/completions", "chat/m", stream, reported_by(&members, stream)).await;
            assert_record(&record, &tokens, &units, tier, cost);
            assert_eq!(record["provenance"], "reported");
        }
    }
}

#[tokio::test]
async fn usage_in_a_choice_is_read() {
    let rig = Rig::start().await;
    let usage =
        json!({"prompt_tokens": 19, "completion_tokens": 21, "total_tokens": 40, "cached_tokens": 10});
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}]});
    let events = [chat::role(), chat::content("hello"), chat::event(&last.to_string()), chat::done()];
    for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses"] {
        let record = rig.record(path, "chat/m", true, Answer::events(&events)).await;
        assert_record(
            &record,
            &json!({"input": 9, "cache_read": 10, "output": 21}),
            &json!({}),
            None,
            Some(220.0),
        );
    }
}

#[tokio::test]
async fn the_vendors_reported_cost_is_billed_without_a_price() {
    let rig = Rig::start().await;
    let counts = json!({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110});
    for (name, cost, want, ours) in [
        ("cost", json!(0.000_123_456), 123.456, 200.0),
        // A fee per request is a search, for which the model has a price.
        ("cost", json!({"request_cost": 0.005, "total_cost": 0.006}), 6_000.0, 10_200.0),
        ("cost_in_usd_ticks", json!(37_756_000), 3_775.6, 200.0),
    ] {
        let mut usage = counts.clone();
        usage[name] = cost;
        for stream in [false, true] {
            let answer = || reported_by(&json!({"usage": usage}), stream);
            let record = rig.record("/v1/chat/completions", "chat/unpriced", stream, answer()).await;
            assert_eq!((&record["cost_micro_usd"], &record["price"]), (&json!(want), &json!("vendor")));
            let record = rig.record("/v1/messages", "chat/m", stream, answer()).await;
            assert_eq!(
                (&record["cost_micro_usd"], &record["vendor_cost_micro_usd"]),
                (&json!(ours), &json!(want))
            );
        }
    }
}

#[tokio::test]
async fn messages_usage_is_billed_by_lifetime_place_and_search() {
    let rig = Rig::start().await;
    let begun = json!({
        "input_tokens": 20, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 70, "output_tokens": 1,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        "service_tier": "standard", "inference_geo": "us",
    });
    let ended =
        json!({"output_tokens": 30, "server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 5}});
    let mut whole = begun.clone();
    for (name, value) in ended.as_object().unwrap() {
        whole[name] = value.clone();
    }
    let message = |usage: &Value, content: Value| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage,
            "stop_reason": null, "stop_sequence": null})
    };
    let mut answer = message(&whole, json!([{"type": "text", "text": "hello"}]));
    answer["stop_reason"] = json!("end_turn");
    let stream = [
        json!({"type": "message_start", "message": message(&begun, json!([]))}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": ended}),
        json!({"type": "message_stop"}),
    ];
    let tokens =
        json!({"input": 20, "cache_read": 70, "cache_write": 10, "cache_write_1h": 20, "output": 30});
    for path in ["/v1/messages", "/v1/chat/completions", "/v1/responses"] {
        for (streams, answer) in [(false, Answer::json(200, answer.to_string())), (true, data(&stream))] {
            let record = rig.record(path, "messages/m", streams, answer).await;
            assert_record(&record, &tokens, &json!({"searches": 2}), Some("geo:us"), Some(20_417.45));
        }
    }
}

#[tokio::test]
async fn responses_usage_counts_the_tools_of_the_vendor() {
    let rig = Rig::start().await;
    let output = json!([
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "web_search_call", "id": "ws_2", "status": "completed", "action": {"type": "open_page", "url": "https://x"}},
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "hello", "annotations": []}]},
    ]);
    let response = |status: &str| {
        json!({
            "id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m", "output": output,
            "error": if status == "failed" { json!({"code": "server_error", "message": "no"}) } else { Value::Null },
            "service_tier": "default",
            "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 50,
                "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 150},
        })
    };
    let stream = |status: &str| {
        data(&[
            json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": output[0]}),
            json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 3, "content_index": 0, "delta": "hello"}),
            json!({"type": format!("response.{status}"), "response": response(status)}),
        ])
    };
    let (tokens, units) = (
        json!({"input": 60, "cache_read": 40, "output": 30, "reasoning": 20}),
        json!({"searches": 1, "tool_calls": 1}),
    );
    for path in ["/v1/responses", "/v1/chat/completions"] {
        let whole = Answer::json(200, response("completed").to_string());
        let streams = ["completed", "incomplete", "failed"].map(|status| (true, stream(status)));
        for (streams, answer) in [(false, whole)].into_iter().chain(streams) {
            let record = rig.record(path, "responses/m", streams, answer).await;
            assert_record(&record, &tokens, &units, None, Some(40_564.0));
        }
    }
}

#[tokio::test]
async fn gemini_usage_is_billed_by_modality_and_search() {
    let rig = Rig::start().await;
    let answer = json!({
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [{"text": "hello"}]},
            "groundingMetadata": {"webSearchQueries": ["a", "b"], "groundingChunks": []}}],
        "usageMetadata": {
            "promptTokenCount": 100, "cachedContentTokenCount": 20, "candidatesTokenCount": 50, "thoughtsTokenCount": 7,
            "toolUsePromptTokenCount": 10, "totalTokenCount": 167, "trafficType": "ON_DEMAND",
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 60}, {"modality": "AUDIO", "tokenCount": 40}],
            "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 15}, {"modality": "TEXT", "tokenCount": 5}],
            "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 30}, {"modality": "TEXT", "tokenCount": 20}],
        },
    });
    let tokens = json!({"input": 65, "cache_read": 20, "audio_input": 25, "output": 20, "reasoning": 7, "image_output": 30});
    // 65 + 2 + 1,000 + 200 + 70 + 900, and two searches.
    for path in ["/v1/chat/completions", "/v1/messages"] {
        for stream in [false, true] {
            let reply = if stream {
                data(std::slice::from_ref(&answer))
            } else {
                Answer::json(200, answer.to_string())
            };
            let record = rig.record(path, "gemini/m", stream, reply).await;
            assert_record(&record, &tokens, &json!({"searches": 2}), None, Some(22_237.0));
        }
    }
    let mut provisioned = answer.clone();
    provisioned["usageMetadata"]["trafficType"] = json!("PROVISIONED_THROUGHPUT");
    let reply = Answer::json(200, provisioned.to_string());
    let record = rig.record("/v1/chat/completions", "gemini/m", false, reply).await;
    assert_record(&record, &tokens, &json!({"searches": 2}), Some("provisioned"), None);
}

#[tokio::test]
async fn bedrock_usage_is_billed_by_lifetime_and_tier() {
    let rig = Rig::start().await;
    let mut answer = json!({
        "output": {"message": {"role": "assistant", "content": [{"text": "hello"}]}}, "stopReason": "end_turn",
        "usage": {"inputTokens": 20, "outputTokens": 30, "totalTokens": 150, "cacheReadInputTokens": 70,
            "cacheWriteInputTokens": 30,
            "cacheDetails": [{"ttl": "5m", "inputTokens": 10}, {"ttl": "1h", "inputTokens": 20}]},
        "serviceTier": {"type": "default"}, "performanceConfig": {"latency": "standard"},
    });
    let tokens =
        json!({"input": 20, "cache_read": 70, "cache_write": 10, "cache_write_1h": 20, "output": 30});
    let path = "/v1/chat/completions";
    let record = rig.record(path, "bedrock/m", false, Answer::json(200, answer.to_string())).await;
    assert_record(&record, &tokens, &json!({}), None, Some(379.5));
    (answer["serviceTier"]["type"], answer["performanceConfig"]["latency"]) =
        (json!("flex"), json!("optimized"));
    let record = rig.record(path, "bedrock/m", false, Answer::json(200, answer.to_string())).await;
    assert_record(&record, &tokens, &json!({}), Some("flex+optimized"), None);
}

#[tokio::test]
async fn usage_of_a_failed_attempt_is_billed_by_unit_and_tier() {
    let rig = Rig::start().await;
    let usage = json!({"input_tokens": 100, "output_tokens": 1, "inference_geo": "us",
        "cache_creation": {"ephemeral_1h_input_tokens": 20}, "server_tool_use": {"web_search_requests": 1}});
    let stream = [
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [], "usage": usage}}),
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
    ];
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let record = rig.record(path, "messages/m", true, data(&stream)).await;
        let lost = &record["trace"][0]["lost"];
        assert_eq!(
            (&lost["units"]["searches"], &lost["tokens"]["cache_write_1h"]),
            (&json!(1), &json!(20)),
            "{record}"
        );
        assert_eq!(lost["cost_micro_usd"], json!(10_000.0 + 1.1 * 150.0), "{record}");
    }
}
