//! A small client of the Responses protocol, as strict as SDKs and agents.

use serde_json::{Value, json};
use wire::sse::{SseDecoder, SseEvent};

/// The content of a stream.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Read {
    /// The output items, each from its `output_item.done` event; null for an item without one.
    pub(crate) items: Vec<Value>,
    /// The response object of the final event; null if there is no final event.
    pub(crate) response: Value,
    /// The type of the final event without `response.`: `completed`, `incomplete` or `failed`. Empty before it has been read.
    pub(crate) end: String,
}

/// Reads a whole stream and asserts that its events are consistent.
pub(crate) fn read(stream: &[u8]) -> Read {
    let mut decoder = SseDecoder::default();
    decoder.push(stream).unwrap();
    let events: Vec<SseEvent> = std::iter::from_fn(|| decoder.next_event()).collect();
    assert!(!decoder.finish(), "every event ends with a blank line");
    let mut read = Read::default();
    let mut growing: Vec<Option<Value>> = Vec::new();
    for (position, event) in events.iter().enumerate() {
        let data: Value =
            serde_json::from_str(&event.data).unwrap_or_else(|error| panic!("{error}: {}", event.data));
        assert_eq!(data["type"], *event.event, "an event is named by its type");
        assert_eq!(data["sequence_number"], position, "events are counted from 0 without gaps");
        assert!(read.end.is_empty(), "nothing comes after {}", read.end);
        let kind = event.event.strip_prefix("response.").unwrap();
        match (position, kind) {
            (0, _) => assert_eq!(kind, "created"),
            (1, _) => assert_eq!(kind, "in_progress"),
            (_, "completed" | "incomplete" | "failed") => {
                read.end = kind.to_owned();
                read.response = data["response"].clone();
                assert_eq!(data["response"]["status"], kind);
            }
            _ => grow(&mut growing, &mut read.items, kind, &data),
        }
    }
    if !read.end.is_empty() {
        check_end(&read, &growing);
    }
    read
}

fn grow(growing: &mut Vec<Option<Value>>, items: &mut Vec<Value>, kind: &str, data: &Value) {
    let index = usize::try_from(data["output_index"].as_u64().unwrap()).unwrap();
    if kind == "output_item.added" {
        assert_eq!(index, growing.len(), "items are numbered in their order");
        assert_eq!(data["item"]["status"], "in_progress");
        growing.push(Some(data["item"].clone()));
        items.push(Value::Null);
        return;
    }
    let item = growing[index].as_mut().expect("an item gets nothing after its end");
    if kind == "output_item.done" {
        let mut done = data["item"].clone();
        assert!(["completed", "incomplete"].contains(&done["status"].as_str().unwrap()));
        done["status"] = json!("in_progress");
        // Reasoning is sealed when it is complete.
        done.as_object_mut().unwrap().remove("encrypted_content");
        assert_eq!(*item, done, "the deltas add up to the final item");
        items[index] = data["item"].clone();
        growing[index] = None;
        return;
    }
    assert_eq!(item["id"], data["item_id"]);
    if kind.starts_with("reasoning_summary") {
        return grow_summary(item, kind, data);
    }
    let part = data["content_index"].as_u64().map(|part| usize::try_from(part).unwrap());
    match (kind, part) {
        ("content_part.added", Some(part)) => {
            let parts = item["content"].as_array_mut().unwrap();
            assert_eq!(part, parts.len());
            parts.push(data["part"].clone());
        }
        ("content_part.done", Some(part)) => assert_eq!(item["content"][part], data["part"]),
        ("output_text.delta" | "reasoning_text.delta", Some(part)) => {
            assert_eq!(kind == "output_text.delta", data["logprobs"] == json!([]), "SDKs need logprobs");
            push(&mut item["content"][part]["text"], &data["delta"]);
        }
        ("refusal.delta", Some(part)) => push(&mut item["content"][part]["refusal"], &data["delta"]),
        ("output_text.done" | "reasoning_text.done", Some(part)) => {
            assert_eq!(item["content"][part]["text"], data["text"]);
        }
        ("refusal.done", Some(part)) => assert_eq!(item["content"][part]["refusal"], data["refusal"]),
        ("function_call_arguments.delta", None) => push(&mut item["arguments"], &data["delta"]),
        ("custom_tool_call_input.delta", None) => push(&mut item["input"], &data["delta"]),
        ("function_call_arguments.done", None) => {
            assert_eq!(item["name"], data["name"], "SDKs before 3.0 need the name");
            if item["arguments"] == "" {
                item["arguments"] = json!("{}");
            }
            assert_eq!(item["arguments"], data["arguments"]);
        }
        ("custom_tool_call_input.done", None) => assert_eq!(item["input"], data["input"]),
        _ => panic!("no client knows {kind}"),
    }
}

fn grow_summary(item: &mut Value, kind: &str, data: &Value) {
    let part = usize::try_from(data["summary_index"].as_u64().unwrap()).unwrap();
    let parts = item["summary"].as_array_mut().unwrap();
    match kind {
        "reasoning_summary_part.added" => {
            assert_eq!(part, parts.len());
            parts.push(data["part"].clone());
        }
        "reasoning_summary_text.delta" => push(&mut parts[part]["text"], &data["delta"]),
        "reasoning_summary_text.done" => assert_eq!(parts[part]["text"], data["text"]),
        "reasoning_summary_part.done" => assert_eq!(parts[part], data["part"]),
        _ => panic!("no client knows {kind}"),
    }
}

fn push(text: &mut Value, more: &Value) {
    let more = more.as_str().unwrap();
    assert!(!more.is_empty(), "a delta is not empty");
    *text = json!(text.as_str().unwrap().to_owned() + more);
}

fn check_end(read: &Read, growing: &[Option<Value>]) {
    let output = read.response["output"].as_array().unwrap();
    let whole: Vec<&Value> = read.items.iter().filter(|item| !item.is_null()).collect();
    assert_eq!(output.iter().collect::<Vec<_>>(), whole, "the last event holds what was whole");
    if read.end == "failed" {
        assert!(read.response["error"]["message"].is_string() && read.response["error"]["code"].is_string());
        return;
    }
    assert!(growing.iter().all(Option::is_none), "every item has ended");
    check_usage(&read.response);
}

/// Asserts that the members that SDKs require are present.
pub(crate) fn check_usage(response: &Value) {
    for member in [
        "/usage/input_tokens",
        "/usage/input_tokens_details/cached_tokens",
        "/usage/input_tokens_details/cache_write_tokens",
        "/usage/output_tokens",
        "/usage/output_tokens_details/reasoning_tokens",
        "/usage/total_tokens",
    ] {
        assert!(response.pointer(member).is_some_and(Value::is_u64), "{member} in {response}");
    }
    for member in
        ["id", "created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools"]
    {
        assert!(!response[member].is_null(), "{member}");
    }
}

impl Read {
    /// Returns the concatenated text of all content parts of type `kind`.
    pub(crate) fn text(&self, kind: &str) -> String {
        let member = if kind == "refusal" { "refusal" } else { "text" };
        let parts =
            self.items.iter().flat_map(|item| item["content"].as_array().cloned().unwrap_or_default());
        parts
            .filter(|part| part["type"] == kind)
            .map(|part| part[member].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns the call id, name and arguments of each function call.
    pub(crate) fn calls(&self) -> Vec<(String, String, String)> {
        let calls = self.items.iter().filter(|item| item["type"] == "function_call");
        let text = |item: &Value, member: &str| item[member].as_str().unwrap().to_owned();
        calls.map(|item| (text(item, "call_id"), text(item, "name"), text(item, "arguments"))).collect()
    }
}
