//! A normal form of streams, in which equivalent streams are equal: adjacent deltas of the same item are joined.

use serde_json::{Value, json};
use wire::sse::{SseDecoder, SseEvent};

pub(crate) fn decode(stream: &[u8]) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::default();
    decoder.push(stream).unwrap();
    let events = std::iter::from_fn(|| decoder.next_event()).collect();
    assert!(!decoder.finish(), "the last event is not whole: {}", String::from_utf8_lossy(stream));
    events
}

/// Returns the events of a stream in `protocol`, with adjacent deltas joined and varying members removed.
pub(crate) fn normal(protocol: &str, stream: &[u8]) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for (position, event) in decode(stream).iter().enumerate() {
        let mut value = value_of(event);
        match protocol {
            "messages" => assert_eq!(value["type"], *event.event, "events are named by their type"),
            "responses" => {
                assert_eq!(value["type"], *event.event, "events are named by their type");
                assert_eq!(value["sequence_number"], position, "events are counted");
                value.as_object_mut().unwrap().remove("sequence_number");
            }
            _ => assert_eq!(event.event, "message", "events of chat and Gemini have no names"),
        }
        forget_request_id(&mut value);
        if protocol == "gemini" && value.get("error").is_some() {
            // The vectors have other words and, for an interrupted stream, another status.
            value = json!("error");
        }
        if is_empty_delta(&value) {
            continue;
        }
        if let Some(last) = joined.last_mut()
            && join(last, &value)
        {
            continue;
        }
        joined.push(value);
    }
    joined
}

/// Parses the data of an event; `[DONE]` becomes a string.
fn value_of(event: &SseEvent) -> Value {
    if event.data == "[DONE]" {
        return json!("[DONE]");
    }
    serde_json::from_str(&event.data).unwrap_or_else(|error| panic!("{error}: {}", event.data))
}

/// Removes the request id, which only the gateway's errors have, and replaces the vectors' code for a truncated stream by
/// the gateway's.
fn forget_request_id(value: &mut Value) {
    if let Some(members) = value.as_object_mut() {
        members.remove("request_id");
    }
    if let Some(error) = value.get_mut("error").and_then(Value::as_object_mut) {
        error.remove("request_id");
        if error.get("code").is_some_and(|code| code == "upstream_truncated") {
            error.insert("code".to_owned(), json!("upstream_stream_broken"));
        }
    }
}

fn is_empty_delta(value: &Value) -> bool {
    let delta = &value["delta"];
    let text = if delta.is_object() { text_member(delta).map(|name| &delta[name]) } else { Some(delta) };
    text.is_some_and(|text| *text == "")
}

fn text_member(delta: &Value) -> Option<&'static str> {
    ["text", "partial_json", "thinking"].into_iter().find(|name| delta[name].is_string())
}

/// Appends `next` to `last` if both are deltas of the same item. Returns false if they are not.
fn join(last: &mut Value, next: &Value) -> bool {
    let rest_is_equal = |last: &Value, path: &str| {
        let without = |value: &Value| {
            let mut value = value.clone();
            *value.pointer_mut(path).unwrap() = Value::Null;
            value
        };
        without(last) == without(next)
    };
    let paths = [
        "/delta/text".to_owned(),
        "/delta/partial_json".to_owned(),
        "/delta/thinking".to_owned(),
        "/delta".to_owned(),
        "/candidates/0/content/parts/0/text".to_owned(),
        "/choices/0/delta/content".to_owned(),
        "/choices/0/delta/reasoning_content".to_owned(),
        "/choices/0/delta/refusal".to_owned(),
    ];
    for path in paths {
        let text = |value: &Value| value.pointer(&path).and_then(Value::as_str).map(str::to_owned);
        if let (Some(begun), Some(more)) = (text(last), text(next))
            && rest_is_equal(last, &path)
        {
            *last.pointer_mut(&path).unwrap() = json!(begun + &more);
            return true;
        }
    }
    join_arguments(last, next)
}

/// Appends the arguments of a chat tool call to the previous fragment of the call, which may be its first. Returns false
/// if `last` and `next` are not fragments of the same call.
fn join_arguments(last: &mut Value, next: &Value) -> bool {
    let only_call = |value: &Value| {
        let delta = value.pointer("/choices/0/delta")?.as_object()?;
        let calls = delta.get("tool_calls").filter(|_| delta.len() == 1)?.as_array()?;
        (calls.len() == 1).then(|| calls[0].clone())
    };
    let (Some(begun), Some(more)) = (only_call(last), only_call(next)) else { return false };
    if begun["index"] != more["index"] || more.get("id").is_some() {
        return false;
    }
    let arguments = |call: &Value| call["function"]["arguments"].as_str().unwrap_or("").to_owned();
    last["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] =
        json!(arguments(&begun) + &arguments(&more));
    true
}
