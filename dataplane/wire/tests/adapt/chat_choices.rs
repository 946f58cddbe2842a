//! Reads the choices of a chat stream, complete or not, or of a whole completion.

use serde_json::{Value, json};

use crate::normal::decode;

/// One choice of a stream or of a whole completion.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Read {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    /// The name, arguments and signature of each call.
    pub(crate) calls: Vec<(String, String, Option<String>)>,
    pub(crate) ids: Vec<String>,
    pub(crate) finish_reason: Option<String>,
}

/// The content of a stream.
#[derive(Debug, Default)]
pub(crate) struct ReadStream {
    pub(crate) choices: Vec<Read>,
    pub(crate) usage: Option<Value>,
    pub(crate) error: Option<Value>,
    pub(crate) done: bool,
    /// The entries of all `thinking_blocks`, in stream order.
    pub(crate) thinking: Vec<Value>,
}

/// Reads a stream. Asserts that each choice begins with its role, that calls are numbered from 0, and that a chunk with
/// usage has no choices.
pub(crate) fn read(stream: &[u8]) -> ReadStream {
    let mut read = ReadStream::default();
    for event in decode(stream) {
        assert!(!read.done && read.error.is_none(), "nothing comes after the end");
        assert_eq!(event.event, "message", "chat's events have no names");
        if event.data == "[DONE]" {
            read.done = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        if !chunk["error"].is_null() {
            read.error = Some(chunk["error"].clone());
            continue;
        }
        assert_eq!(chunk["object"], "chat.completion.chunk");
        if chunk["usage"].is_object() {
            assert_eq!(chunk["choices"], json!([]), "usage comes alone");
            assert!(read.usage.replace(chunk["usage"].clone()).is_none());
            continue;
        }
        for choice in chunk["choices"].as_array().unwrap() {
            read.choice(choice);
        }
    }
    read
}

impl ReadStream {
    fn choice(&mut self, choice: &Value) {
        let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
        let delta = &choice["delta"];
        if index == self.choices.len() {
            assert_eq!(delta["role"], "assistant", "a choice begins with its role");
            self.choices.push(Read::default());
        }
        let read = &mut self.choices[index];
        assert_eq!(read.finish_reason, None, "nothing comes after the finish");
        read.content.push_str(delta["content"].as_str().unwrap_or(""));
        read.reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or(""));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            read.call(call);
        }
        self.thinking.extend(delta["thinking_blocks"].as_array().into_iter().flatten().cloned());
        read.finish_reason = choice["finish_reason"].as_str().map(str::to_owned);
    }
}

impl Read {
    fn call(&mut self, call: &Value) {
        let position = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
        let function = &call["function"];
        if position == self.calls.len() {
            self.ids.push(call["id"].as_str().unwrap().to_owned());
            self.calls.push((function["name"].as_str().unwrap().to_owned(), String::new(), signature(call)));
        } else {
            assert!(
                call["id"].is_null() && function["name"].is_null(),
                "only the beginning of a call names it"
            );
        }
        self.calls[position].1.push_str(function["arguments"].as_str().unwrap_or(""));
    }
}

/// Reads the choices of a whole completion.
pub(crate) fn read_whole(body: &[u8]) -> Vec<Read> {
    let body: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body["object"], "chat.completion");
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let read_choice = |choice: &Value| {
        let message = &choice["message"];
        let calls: Vec<Value> = message["tool_calls"].as_array().cloned().unwrap_or_default();
        Read {
            content: text(&message["content"]),
            reasoning: text(&message["reasoning_content"]),
            calls: calls
                .iter()
                .map(|call| {
                    let function = &call["function"];
                    (text(&function["name"]), text(&function["arguments"]), signature(call))
                })
                .collect(),
            ids: calls.iter().map(|call| text(&call["id"])).collect(),
            finish_reason: choice["finish_reason"].as_str().map(str::to_owned),
        }
    };
    body["choices"].as_array().unwrap().iter().map(read_choice).collect()
}

fn signature(call: &Value) -> Option<String> {
    call.pointer("/extra_content/google/thought_signature").and_then(Value::as_str).map(str::to_owned)
}
