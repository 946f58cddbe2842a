//! Builds chat completions as bytes: request bodies, whole answers and stream events, in the format of
//! OpenAI-compatible servers.

use bytes::Bytes;
use serde_json::json;

/// A request for a whole answer.
pub(crate) fn request(model: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": "Say hello."}]}).to_string()
}

/// A request for a stream without usage.
pub(crate) fn stream_request(model: &str) -> String {
    json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "Say hello."}]})
        .to_string()
}

/// A request for a stream with the usage chunk.
pub(crate) fn stream_request_with_usage(model: &str) -> String {
    json!({
        "model": model, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "Say hello."}],
    })
    .to_string()
}

/// A whole answer with `text` that reports 11 input and 7 output tokens.
pub(crate) fn completion(text: &str) -> String {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    })
    .to_string()
}

/// An error body as providers send it.
pub(crate) fn error(message: &str, code: &str) -> String {
    json!({"error": {"message": message, "type": "server_error", "param": null, "code": code}}).to_string()
}

/// An event with `data` as its only line.
pub(crate) fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// The chunk that contains only the role.
pub(crate) fn role() -> Bytes {
    event(
        r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    )
}

/// A chunk of content.
pub(crate) fn content(text: &str) -> Bytes {
    event(&format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{{"index":0,"delta":{{"content":{}}},"finish_reason":null}}]}}"#,
        json!(text)
    ))
}

/// The chunk that ends the choice.
pub(crate) fn finish() -> Bytes {
    event(
        r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    )
}

/// The chunk that contains only usage: 11 input and 7 output tokens.
pub(crate) fn usage() -> Bytes {
    event(
        r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}"#,
    )
}

/// The end marker.
pub(crate) fn done() -> Bytes {
    event("[DONE]")
}

/// All events of a stream with these pieces of content, including the usage chunk and the end marker.
pub(crate) fn events(pieces: &[&str]) -> Vec<Bytes> {
    let mut events = vec![role()];
    events.extend(pieces.iter().map(|piece| content(piece)));
    events.extend([finish(), usage(), done()]);
    events
}
