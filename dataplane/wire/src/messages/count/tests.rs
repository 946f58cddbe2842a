//! Checks that the same body always has the same count, and that content which a model does not read is not counted.

#![expect(clippy::needless_pass_by_value, reason = "documents are given away where they are written")]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;

fn tokens(body: &Value, model: &str) -> u64 {
    count(body.to_string().as_bytes(), model).unwrap()
}

fn count_request(content: Value) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

#[test]
fn the_token_count_matches_the_vendors_example() {
    let body = json!({"model": "m", "system": "You are a scientist", "messages": [{"role": "user", "content": "Hello, Claude"}]});
    assert_eq!(tokens(&body, "claude-sonnet-4-5"), 14);
    assert_eq!(tokens(&body, "claude-sonnet-5"), 17);
    assert_eq!(tokens(&body, "gpt-4o"), 14);
}

#[test]
fn the_estimate_of_a_small_tool_is_close_to_the_vendors_count() {
    let mut body = count_request(json!("What's the weather like in San Francisco?"));
    body["tools"] = json!([{"name": "get_weather", "description": "Get the current weather in a given location",
        "input_schema": {"type": "object", "properties": {"location": {"type": "string",
            "description": "The city and state, e.g. San Francisco, CA"}}, "required": ["location"]}}]);
    let with = tokens(&body, "claude-sonnet-4-5");
    assert!((350..=450).contains(&with), "the vendor counts 403, we {with}");
    body["tool_choice"] = json!({"type": "any"});
    assert_eq!(with - tokens(&body, "claude-sonnet-4-5"), 33);
}

#[test]
fn escapes_and_layout_do_not_change_the_token_count() {
    let plain = r#"{"messages":[{"role":"user","content":"é \"x\""}]}"#;
    let escaped = "{ \"messages\" : [ {\"content\":\"\\u00e9 \\u0022x\\\"\", \"role\":\"user\"} ] }";
    assert_eq!(count(plain.as_bytes(), "m"), count(escaped.as_bytes(), "m"));
    assert_eq!(
        tokens(&count_request(json!("one two")), "m"),
        tokens(&count_request(json!([{"type": "text", "text": "one two"}])), "m")
    );
}

#[test]
fn only_thoughts_of_the_running_loop_count() {
    let thought = json!({"type": "thinking", "thinking": "a long and winding thought", "signature": "c2ln"});
    let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": "r"});
    let body = |content: Vec<Value>, last: &Value| {
        json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": content},
            {"role": "user", "content": [last]}]})
    };
    let with = |last: &Value, model| tokens(&body(vec![thought.clone(), call.clone()], last), model);
    let without = |last: &Value, model| tokens(&body(vec![call.clone()], last), model);
    let text = json!({"type": "text", "text": "go on"});
    assert!(with(&result, "claude-sonnet-4-5") > without(&result, "claude-sonnet-4-5"));
    assert_eq!(with(&text, "claude-sonnet-4-5"), without(&text, "claude-sonnet-4-5"));
    assert_eq!(with(&result, "gpt-4o"), without(&result, "gpt-4o"), "chat targets are not sent any");
}

#[test]
fn images_count_by_their_size_and_documents_by_their_pages() {
    let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0, 0, 2, 0, 0, 0, 2, 0], &[0; 200_000]].concat();
    let image = |source: Value| {
        tokens(&count_request(json!([{"type": "image", "source": source}])), "claude-sonnet-4-5")
    };
    let base = tokens(&count_request(json!([])), "claude-sonnet-4-5");
    assert_eq!(image(json!({"type": "base64", "data": BASE64_STANDARD.encode(&png)})) - base, 361);
    assert_eq!(image(json!({"type": "url", "url": "https://x/y.png"})) - base, 1_369);
    assert_eq!(image(json!({"type": "base64", "data": "no base64!"})) - base, 1_369);
    let document = |source: Value| {
        tokens(&count_request(json!([{"type": "document", "source": source}])), "claude-sonnet-4-5") - base
    };
    let pdf = |text: &[u8]| json!({"type": "base64", "media_type": "application/pdf", "data": BASE64_STANDARD.encode(text)});
    assert_eq!(document(pdf(b"%PDF /Type /Pages /Type /Page x /Type/Page>>")), 4_000);
    assert_eq!(document(pdf(&vec![b'x'; 120_000])), 6_000);
    assert_eq!(document(json!({"type": "text", "data": "word"})), 2);
    assert_eq!(document(json!({"type": "url", "url": "https://x"})), 10_000);
}

#[test]
fn malformed_bodies_are_counted_or_rejected_without_a_panic() {
    assert!(count(b"[]", "m").is_err());
    assert!(count(b"{", "m").is_err());
    for body in [
        json!({}),
        json!({"messages": 5, "tools": "x"}),
        json!({"messages": [5, {"content": [5, {"type": 1}]}]}),
    ] {
        assert!(tokens(&body, "claude-sonnet-5") < 50, "{body}");
    }
    assert_eq!(&count_answer(7)[..], br#"{"input_tokens":7}"#);
}
