//! Converts a unary answer into a stream: some upstreams answer a stream request with a whole message, which an SDK
//! that waits for events would ignore.

use serde_json::{Map, Value, json};

/// Returns the stream equivalent to the message `whole`: its start, each block in as few events as possible, the stop
/// reason and the usage. `None` if `whole` is not a message.
pub fn synthesize_stream(whole: &[u8]) -> Option<Vec<u8>> {
    let mut message: Map<String, Value> = serde_json::from_slice(whole).ok()?;
    let Some(Value::Array(blocks)) = message.remove("content") else { return None };
    if message.get("type").is_some_and(|kind| kind != "message") {
        return None;
    }
    let mut stop = Map::new();
    for name in ["stop_reason", "stop_sequence", "stop_details", "container"] {
        if let Some(value) = message.remove(name) {
            stop.insert(name.to_owned(), value);
        }
    }
    let usage =
        message.get("usage").cloned().unwrap_or_else(|| json!({"input_tokens": 0, "output_tokens": 0}));
    let mut out = MessagesEventList::default();
    out.start(message);
    for (index, block) in blocks.into_iter().enumerate() {
        out.block(index, block)?;
    }
    out.push("message_delta", &json!({"type": "message_delta", "delta": stop, "usage": usage}));
    out.push("message_stop", &json!({"type": "message_stop"}));
    Some(out.0)
}

#[derive(Default)]
struct MessagesEventList(Vec<u8>);

impl MessagesEventList {
    fn push(&mut self, name: &str, data: &Value) {
        self.0.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
    }

    fn start(&mut self, mut message: Map<String, Value>) {
        message.insert("type".to_owned(), "message".into());
        message.entry("role").or_insert_with(|| "assistant".into());
        message.insert("content".to_owned(), json!([]));
        message.insert("stop_reason".to_owned(), Value::Null);
        message.insert("stop_sequence".to_owned(), Value::Null);
        if let Some(usage) = message.get_mut("usage").and_then(Value::as_object_mut) {
            usage.insert("output_tokens".to_owned(), 0.into());
        }
        self.push("message_start", &json!({"type": "message_start", "message": message}));
    }

    fn block(&mut self, index: usize, block: Value) -> Option<()> {
        let Value::Object(mut block) = block else { return None };
        let deltas = deltas_of(&mut block);
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        self.push("content_block_start", &start);
        for delta in deltas {
            let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
            self.push("content_block_delta", &delta);
        }
        self.push("content_block_stop", &json!({"type": "content_block_stop", "index": index}));
        Some(())
    }
}

/// Removes from a block the content that is sent in deltas and returns the deltas. Blocks of other types start
/// complete.
fn deltas_of(block: &mut Map<String, Value>) -> Vec<Value> {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "text" => {
            let citations = match block.remove("citations") {
                Some(Value::Array(citations)) => citations,
                _ => Vec::new(),
            };
            let text = emptied(block, "text").map(|text| json!({"type": "text_delta", "text": text}));
            let citations = citations
                .into_iter()
                .map(|citation| json!({"type": "citations_delta", "citation": citation}));
            text.into_iter().chain(citations).collect()
        }
        "thinking" => {
            let thinking = emptied(block, "thinking");
            let thinking = thinking.map(|text| json!({"type": "thinking_delta", "thinking": text}));
            let signature = emptied(block, "signature");
            let signature = signature.map(|text| json!({"type": "signature_delta", "signature": text}));
            thinking.into_iter().chain(signature).collect()
        }
        "tool_use" | "server_tool_use" | "mcp_tool_use" => {
            let input = block.insert("input".to_owned(), json!({})).unwrap_or_else(|| json!({}));
            vec![json!({"type": "input_json_delta", "partial_json": input.to_string()})]
        }
        _ => Vec::new(),
    }
}

/// Takes the text of a member and leaves an empty one. `None` if it was empty or missing.
fn emptied(block: &mut Map<String, Value>, name: &str) -> Option<Value> {
    let text = block.insert(name.to_owned(), "".into())?;
    text.as_str().is_some_and(|text| !text.is_empty()).then_some(text)
}
