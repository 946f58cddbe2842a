//! Converts a unary answer into a stream: some upstreams answer a stream request with a whole completion, which an SDK
//! that waits for events would ignore.

use serde_json::{Map, Value, json};

/// Returns the stream equivalent to the completion `whole`: a role chunk, the output and the finish reason of each
/// choice, then usage if the client requested it, then `[DONE]`. `None` if `whole` is not a completion.
pub fn synthesize_stream(whole: &[u8], include_usage: bool) -> Option<Vec<u8>> {
    let mut whole: Map<String, Value> = serde_json::from_slice(whole).ok()?;
    let Some(Value::Array(choices)) = whole.remove("choices") else { return None };
    let usage = whole.remove("usage").filter(Value::is_object);
    whole.insert("object".to_owned(), "chat.completion.chunk".into());
    whole.entry("id").or_insert_with(|| "chatcmpl-0".into());
    whole.entry("created").or_insert_with(|| 0.into());
    whole.entry("model").or_insert_with(|| "".into());
    let mut stream =
        ChunkBuilder { base: whole, out: Vec::new(), usage_null: include_usage && usage.is_some() };
    for (position, choice) in choices.into_iter().enumerate() {
        stream.choice(position, choice)?;
    }
    if include_usage && let Some(usage) = usage {
        stream.usage_null = false;
        stream.base.insert("usage".to_owned(), usage);
        stream.chunk(&json!([]));
    }
    stream.out.extend_from_slice(b"data: [DONE]\n\n");
    Some(stream.out)
}

struct ChunkBuilder {
    /// The members that all chunks share.
    base: Map<String, Value>,
    out: Vec<u8>,
    /// True if chunks before the usage chunk contain `"usage":null`.
    usage_null: bool,
}

impl ChunkBuilder {
    fn choice(&mut self, position: usize, choice: Value) -> Option<()> {
        let Value::Object(mut choice) = choice else { return None };
        let index = choice.remove("index").filter(Value::is_u64).unwrap_or_else(|| position.into());
        let Some(Value::Object(mut message)) = choice.remove("message") else { return None };
        let role = message.remove("role").filter(Value::is_string).unwrap_or_else(|| "assistant".into());
        let finish = choice.remove("finish_reason").filter(Value::is_string).unwrap_or_else(|| "stop".into());
        let logprobs = choice.remove("logprobs").unwrap_or_default();
        self.delta(&index, &json!({"role": role, "content": ""}), &Value::Null, &Value::Null);
        message.retain(|_, value| !value.is_null());
        if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
            number(calls);
        }
        if !message.is_empty() {
            self.delta(&index, &message.into(), &logprobs, &Value::Null);
        }
        self.delta(&index, &json!({}), &Value::Null, &finish);
        Some(())
    }

    fn delta(&mut self, index: &Value, delta: &Value, logprobs: &Value, finish: &Value) {
        self.chunk(&json!([
            {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        ]));
    }

    fn chunk(&mut self, choices: &Value) {
        let mut chunk = self.base.clone();
        chunk.insert("choices".to_owned(), choices.clone());
        if self.usage_null {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        self.out.extend_from_slice(format!("data: {}\n\n", Value::from(chunk)).as_bytes());
    }
}

/// Adds to each tool call its index, which calls of a stream must have.
fn number(calls: &mut [Value]) {
    for (position, call) in calls.iter_mut().enumerate() {
        if let Some(call) = call.as_object_mut() {
            call.entry("index").or_insert_with(|| position.into());
        }
    }
}
