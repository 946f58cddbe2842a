//! Collects the events of a stream into a Messages answer, the reverse of `synthesize`.

use serde_json::{Map, Value, json};

use crate::translation::{BadAnswer, INCOMPLETE};

/// Returns the answer that `events` stand for.
pub(crate) fn collect(events: &[Value]) -> Result<Value, BadAnswer> {
    let mut message = Map::new();
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_done = false;
    for event in events {
        let index = event["index"].as_u64().unwrap_or(0);
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => merge(&mut message, &event["message"]),
            "content_block_start" => blocks.push(Block::new(index, &event["content_block"])),
            "content_block_delta" => {
                if let Some(block) = blocks.iter_mut().rfind(|block| block.index == index) {
                    block.take(&event["delta"]);
                }
            }
            "message_delta" => {
                merge(&mut message, &event["delta"]);
                if let Value::Object(usage) = message.entry("usage").or_insert_with(|| json!({})) {
                    merge(usage, &event["usage"]);
                }
            }
            "message_stop" => is_done = true,
            _ => {}
        }
    }
    if !is_done && message.get("stop_reason").is_none_or(Value::is_null) {
        return Err(INCOMPLETE);
    }
    message.insert("content".to_owned(), blocks.into_iter().map(Block::finish).collect::<Vec<_>>().into());
    Ok(message.into())
}

/// Replaces the members of `whole` by those of `piece` that are not null.
fn merge(whole: &mut Map<String, Value>, piece: &Value) {
    for (name, value) in piece.as_object().into_iter().flatten() {
        if !value.is_null() || !whole.contains_key(name) {
            whole.insert(name.clone(), value.clone());
        }
    }
}

struct Block {
    index: u64,
    block: Value,
    /// The JSON of a tool's input, which arrives in pieces.
    input: String,
}

impl Block {
    fn new(index: u64, block: &Value) -> Self {
        Self { index, block: block.clone(), input: String::new() }
    }

    fn take(&mut self, delta: &Value) {
        let Some(block) = self.block.as_object_mut() else { return };
        for (name, value) in delta.as_object().into_iter().flatten().filter(|(name, _)| *name != "type") {
            match (name.as_str(), value) {
                ("partial_json", Value::String(text)) => self.input.push_str(text),
                ("citation", citation) => {
                    let citations = block.entry("citations").or_insert_with(|| json!([]));
                    if citations.is_null() {
                        *citations = json!([]);
                    }
                    citations.as_array_mut().into_iter().for_each(|list| list.push(citation.clone()));
                }
                (_, Value::String(text)) => match block.get_mut(name) {
                    Some(Value::String(whole)) => whole.push_str(text),
                    Some(_) | None => {
                        block.insert(name.clone(), value.clone());
                    }
                },
                _ => {
                    block.insert(name.clone(), value.clone());
                }
            }
        }
    }

    fn finish(mut self) -> Value {
        if let Some(block) = self.block.as_object_mut()
            && let Ok(input) = serde_json::from_str::<Value>(&self.input)
        {
            block.insert("input".to_owned(), input);
        }
        self.block
    }
}
