//! The names of the counts in chat responses, whatever names the vendor uses (CHAT-3).

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::client::Whole;
use crate::support::{Answer, Gateway, Upstream, Yaml, chat};

/// A vendor's `usage`, as it is sent, and as the client receives it.
const ROWS: [(&str, &str); 5] = [
    (
        r#"{ "input_tokens": 30, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 20}, "output_tokens_details": {"reasoning_tokens": 4} }"#,
        r#"{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":4}, "input_tokens": 30, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 20}, "output_tokens_details": {"reasoning_tokens": 4} }"#,
    ),
    // DeepSeek.
    (
        r#"{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"prompt_cache_hit_tokens":20,"prompt_cache_miss_tokens":10,"completion_tokens_details":{"reasoning_tokens":4}}"#,
        r#"{"prompt_tokens_details":{"cached_tokens":20},"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"prompt_cache_hit_tokens":20,"prompt_cache_miss_tokens":10,"completion_tokens_details":{"reasoning_tokens":4}}"#,
    ),
    // Moonshot and Perplexity.
    (
        r#"{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"cached_tokens":20,"reasoning_tokens":4,"prompt_tokens_details":null,"completion_tokens_details":{"audio_tokens":0}}"#,
        r#"{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"cached_tokens":20,"reasoning_tokens":4,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":4,"audio_tokens":0}}"#,
    ),
    // OpenAI, with an unknown member.
    (
        r#"{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":4},"x":1.50}"#,
        r#"{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":4},"x":1.50}"#,
    ),
    // All members have their usual names already.
    (r#"{"prompt_tokens":39, "completion_tokens":9}"#, r#"{"prompt_tokens":39, "completion_tokens":9}"#),
];

fn text(answer: &Whole) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}

async fn serving() -> (Gateway, Upstream) {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new().provider("up", upstream.base_url()).endpoint("fast", &[("up", "m")]);
    (Gateway::start(&yaml).await, upstream)
}

/// Checks that the record agrees with the usage that the client receives.
async fn check_record(gateway: &Gateway, request_id: &str, usage: &str) {
    let record = gateway.record_of(request_id).await;
    let usage: Value = serde_json::from_str(usage).unwrap();
    let sum = |classes: [&str; 2]| -> u64 {
        classes.iter().map(|class| record["tokens"][class].as_u64().unwrap()).sum()
    };
    assert_eq!(sum(["input", "cache_read"]), usage["prompt_tokens"], "{record}");
    assert_eq!(sum(["output", "reasoning"]), usage["completion_tokens"], "{record}");
    let cached = &usage["prompt_tokens_details"]["cached_tokens"];
    assert_eq!(record["tokens"]["cache_read"], cached.as_u64().unwrap_or(0), "{record}");
    let reasoning = &usage["completion_tokens_details"]["reasoning_tokens"];
    assert_eq!(record["tokens"]["reasoning"], reasoning.as_u64().unwrap_or(0), "{record}");
}

/// M-136 on whole responses: the shorter one is read before its head is sent, the longer one is relayed.
#[tokio::test]
async fn whole_answers_of_every_vendor_have_the_same_names_of_usage() {
    let (gateway, upstream) = serving().await;
    for (usage, want) in ROWS {
        for text_bytes in [10, 100_000] {
            for usage_first in [false, true] {
                let words = "x".repeat(text_bytes);
                let choices = format!(
                    r#""choices" : [{{"index":0,"message":{{"role":"assistant","content":"{words}"}},"finish_reason":"stop"}}]"#
                );
                let answer = |usage: &str| match usage_first {
                    true => format!(r#"{{"id":"c", "usage": {usage},{choices}}}"#),
                    false => format!(r#"{{"id":"c",{choices}, "usage": {usage} }}"#),
                };
                upstream.then(Answer::json(200, answer(usage)));
                let got = gateway.client().post("/v1/chat/completions", chat::request("fast")).await;
                assert!(text(&got) == answer(want), "{text_bytes} {usage_first}: {}", text(&got));
                check_record(&gateway, got.header("x-request-id").unwrap(), want).await;
            }
        }
    }
}

/// M-136 on streams, in a separate chunk and beside the last choice, requested and not requested.
#[tokio::test]
async fn streams_of_every_vendor_have_the_same_names_of_usage() {
    let (gateway, upstream) = serving().await;
    for (usage, want) in ROWS {
        for apart in [true, false] {
            let last = |usage: &str| match apart {
                true => format!("data: {{\"choices\":[], \"usage\":{usage}}}\n\n"),
                false => format!(
                    "data:  {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],\"usage\":{usage} }}\r\n\r\n"
                ),
            };
            let events = |usage: &str| -> Vec<Bytes> {
                let mut events = vec![chat::role(), chat::content("Hi.")];
                events.extend(apart.then(chat::finish));
                events.extend([last(usage).into(), chat::done()]);
                events
            };
            upstream.then(Answer::events(&events(usage)));
            let request = chat::stream_request_with_usage("fast");
            let got = gateway.client().post("/v1/chat/completions", request).await;
            let wanted = String::from_utf8(events(want).concat()).unwrap();
            assert_eq!(text(&got), wanted);
            check_record(&gateway, got.header("x-request-id").unwrap(), want).await;
        }
    }
    let unasked = json!({"input_tokens": 3, "output_tokens": 1}).to_string();
    let usage = format!("data: {{\"choices\":[],\"usage\":{unasked}}}\n\n");
    let mut events = vec![chat::role(), chat::content("Hi."), chat::finish(), usage.into(), chat::done()];
    upstream.then(Answer::events(&events));
    let got = gateway.client().post("/v1/chat/completions", chat::stream_request("fast")).await;
    events.remove(3);
    assert_eq!(text(&got), String::from_utf8(events.concat()).unwrap(), "a chunk that was not asked for");
}

/// Operations other than chat keep their protocol's names.
#[tokio::test]
async fn usage_of_other_operations_is_unchanged() {
    let upstream = Upstream::start().await;
    let yaml = Yaml::new()
        .provider_with(
            "up",
            upstream.base_url(),
            "protocols: [responses, messages, transcription, embeddings]",
        )
        .endpoint("fast", &[("up", "m")]);
    let gateway = Gateway::start(&yaml).await;
    let usage = r#""usage":{"input_tokens":3,"output_tokens":1}"#;
    let rows = [
        (
            "/v1/responses",
            json!({"model": "fast", "input": "Hi."}),
            format!(
                r#"{{"id":"resp_1","object":"response","status":"completed","output":[{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"Hi."}}]}}],{usage}}}"#
            ),
        ),
        (
            "/v1/messages",
            json!({"model": "fast", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi."}]}),
            format!(
                r#"{{"type":"message","role":"assistant","content":[{{"type":"text","text":"Hi."}}],"stop_reason":"end_turn",{usage}}}"#
            ),
        ),
        ("/v1/embeddings", json!({"model": "fast", "input": "Hi."}), format!(r#"{{"data":[],{usage}}}"#)),
    ];
    for (path, request, answer) in rows {
        upstream.then(Answer::json(200, answer.clone()));
        let got = gateway.client().post(path, request.to_string()).await;
        assert_eq!(text(&got), answer, "{path}");
    }
}
