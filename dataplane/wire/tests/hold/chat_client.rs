//! A small client of chat streams, as strict as SDKs and agents.

use serde_json::{Value, json};
use wire::sse::{SseDecoder, SseEvent};

/// The content of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) refusal: String,
    /// The id, type, name and input of each call.
    pub(crate) calls: Vec<[String; 4]>,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<Value>,
    pub(crate) error: Option<Value>,
    pub(crate) done: bool,
}

/// Reads a whole stream and asserts that its chunks are consistent.
pub(crate) fn read(stream: &[u8]) -> Read {
    let mut decoder = SseDecoder::default();
    decoder.push(stream).unwrap();
    let events: Vec<SseEvent> = std::iter::from_fn(|| decoder.next_event()).collect();
    assert!(!decoder.finish(), "every event ends with a blank line");
    let mut read = Read::default();
    let mut first: Option<Value> = None;
    for event in &events {
        assert_eq!(event.event, "message", "chat's events have no names");
        assert!(!read.done && read.error.is_none(), "nothing comes after the end");
        if event.data == "[DONE]" {
            assert!(read.finish.is_some(), "an answer that is done has a reason");
            read.done = true;
            continue;
        }
        let chunk: Value =
            serde_json::from_str(&event.data).unwrap_or_else(|error| panic!("{error}: {}", event.data));
        if !chunk["error"].is_null() {
            assert!(chunk["error"]["message"].is_string());
            read.error = Some(chunk["error"].clone());
            continue;
        }
        assert_eq!(chunk["object"], "chat.completion.chunk");
        match &first {
            None => assert_eq!(chunk["choices"][0]["delta"]["role"], "assistant", "the role comes first"),
            Some(first) => {
                for member in ["id", "created", "model"] {
                    assert_eq!(chunk[member], first[member], "{member} stays the same");
                }
            }
        }
        read.chunk(&chunk);
        first.get_or_insert(chunk);
    }
    read
}

impl Read {
    fn chunk(&mut self, chunk: &Value) {
        let choices = chunk["choices"].as_array().unwrap();
        let [choice] = choices.as_slice() else {
            assert!(choices.is_empty() && self.usage.is_none() && self.finish.is_some());
            self.usage = Some(chunk["usage"].clone());
            return;
        };
        assert!(chunk["usage"].is_null(), "usage has a chunk of its own");
        assert_eq!(choice["index"], 0);
        assert!(self.finish.is_none(), "there is no content after the finish reason");
        let delta = &choice["delta"];
        for (member, text) in [
            ("content", &mut self.content),
            ("reasoning_content", &mut self.reasoning),
            ("refusal", &mut self.refusal),
        ] {
            text.push_str(delta[member].as_str().unwrap_or_default());
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call);
        }
        self.finish = choice["finish_reason"].as_str().map(str::to_owned);
    }

    fn call(&mut self, call: &Value) {
        let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
        if call["id"].is_string() {
            assert_eq!(index, self.calls.len(), "calls are numbered in their order");
            let kind = call["type"].as_str().unwrap().to_owned();
            let name = call[&kind]["name"].as_str().unwrap().to_owned();
            self.calls.push([call["id"].as_str().unwrap().to_owned(), kind, name, String::new()]);
        } else {
            assert!(call.get("type").is_none() && call.pointer("/function/name").is_none());
        }
        let [_, kind, _, input] = &mut self.calls[index];
        let name = if kind == "custom" { "input" } else { "arguments" };
        input.push_str(call[&*kind][name].as_str().unwrap());
    }

    /// Returns the content of a completion that is not streamed.
    pub(crate) fn of_whole(body: &Value) -> Self {
        let choice = &body["choices"][0];
        let message = &choice["message"];
        let text = |member: &str| message[member].as_str().unwrap_or_default().to_owned();
        let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| {
            let kind = call["type"].as_str().unwrap();
            let input = if kind == "custom" { "input" } else { "arguments" };
            [&call["id"], &json!(kind), &call[kind]["name"], &call[kind][input]]
                .map(|text| text.as_str().unwrap().to_owned())
        });
        Self {
            content: text("content"),
            reasoning: text("reasoning_content"),
            refusal: text("refusal"),
            calls: calls.collect(),
            finish: choice["finish_reason"].as_str().map(str::to_owned),
            usage: Some(body["usage"].clone()),
            error: None,
            done: true,
        }
    }
}
