//! Reads a chat stream as OpenAI's SDKs do: the deltas are accumulated into the message that a whole answer contains.
//! Panics where an SDK would fail.

use serde_json::{Map, Value, json};

use crate::normal::decode;

/// Returns the completion that the chunks add up to. Panics if the stream is incomplete.
pub(crate) fn read_stream(stream: &[u8]) -> Value {
    let events = decode(stream);
    let (last, chunks) = events.split_last().expect("a stream has events");
    assert_eq!(last.data, "[DONE]");
    let mut completion = Map::new();
    let (mut message, mut finish, mut usage) = (Map::new(), Value::Null, None);
    for (position, event) in chunks.iter().enumerate() {
        assert_eq!((event.event.as_str(), event.id.as_str()), ("message", ""), "chat's events have no names");
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(chunk["object"], "chat.completion.chunk");
        for name in ["id", "created", "model"] {
            let first = completion.entry(name).or_insert_with(|| chunk[name].clone());
            assert_eq!(*first, chunk[name], "{name} is the same in every chunk");
        }
        assert!(usage.is_none(), "nothing follows the usage chunk");
        let choices = chunk["choices"].as_array().unwrap();
        let Some(choice) = choices.first() else {
            assert!(chunk["usage"].is_object(), "a chunk without choices has usage");
            usage = Some(chunk["usage"].clone());
            continue;
        };
        assert_eq!(position == 0, choice["delta"]["role"] == "assistant", "the role comes first, and once");
        assert!(finish.is_null(), "no delta follows the reason why it ended");
        assert_eq!(choice["index"], 0);
        accumulate(&mut message, choice["delta"].as_object().unwrap());
        finish = choice["finish_reason"].clone();
        // Either every chunk with choices has a `usage` member or none of them has.
        assert_eq!(chunk.get("usage").is_some(), chunks.len() > 1 && announces(&chunks[0].data));
    }
    assert!(finish.is_string(), "it has a finish reason");
    assert_eq!(usage.is_some(), announces(&chunks[0].data));
    drop_indexes(&mut message);
    completion.insert(
        "choices".to_owned(),
        json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}]),
    );
    completion.insert("object".to_owned(), "chat.completion".into());
    completion.insert("usage".to_owned(), usage.unwrap_or_default());
    completion.into()
}

fn announces(chunk: &str) -> bool {
    serde_json::from_str::<Value>(chunk).unwrap().get("usage").is_some()
}

/// Merges a delta into the message as `accumulate_delta` of OpenAI's Python SDK does.
fn accumulate(message: &mut Map<String, Value>, delta: &Map<String, Value>) {
    for (name, value) in delta {
        match (message.get_mut(name), value) {
            (None | Some(Value::Null), Value::Array(items)) => {
                let mut list = Value::Array(Vec::new());
                accumulate_list(&mut list, items);
                message.insert(name.clone(), list);
            }
            (None | Some(Value::Null), _) => drop(message.insert(name.clone(), value.clone())),
            (Some(before), _) if name == "index" || name == "type" => *before = value.clone(),
            (Some(Value::String(before)), Value::String(more)) => before.push_str(more),
            (Some(Value::Object(before)), Value::Object(more)) => accumulate(before, more),
            (Some(before @ Value::Array(_)), Value::Array(more)) => accumulate_list(before, more),
            (Some(before), more) => panic!("{name}: {more} does not go with {before}"),
        }
    }
}

fn accumulate_list(list: &mut Value, items: &[Value]) {
    let list = list.as_array_mut().unwrap();
    for item in items {
        let index =
            usize::try_from(item["index"].as_u64().expect("an element of a list has an index")).unwrap();
        match list.get_mut(index) {
            Some(before) => accumulate(before.as_object_mut().unwrap(), item.as_object().unwrap()),
            None => {
                assert_eq!(index, list.len(), "elements are counted");
                list.push(item.clone());
            }
        }
    }
}

/// Removes the indexes of list elements, because whole answers have no such indexes.
fn drop_indexes(message: &mut Map<String, Value>) {
    for list in message.values_mut().filter_map(Value::as_array_mut) {
        for item in list {
            item.as_object_mut().unwrap().remove("index");
        }
    }
}

/// Returns the completion in a normal form without null and empty members, so that equivalent completions are equal.
pub(crate) fn plain(mut completion: Value) -> Value {
    let message = completion["choices"][0]["message"].as_object_mut().unwrap();
    message.retain(|_, value| !value.is_null() && *value != "");
    if let Some(blocks) = message.get_mut("thinking_blocks") {
        for block in blocks.as_array_mut().unwrap() {
            block.as_object_mut().unwrap().retain(|_, value| *value != "");
        }
    }
    completion
}
