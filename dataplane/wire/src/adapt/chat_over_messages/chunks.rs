//! Writes chat chunks in order: the role first, then text copied as received.

use bytes::Bytes;

use super::form::{ChatAnswerForm, Wishes};
use super::usage::RunningUsage;
use crate::envelope::{self, StreamError};

/// Buffers chat chunks until they are flushed.
#[derive(Debug)]
pub(super) struct MessagesChunkWriter {
    wishes: Wishes,
    /// The start of every chunk, up to its choices.
    before: Vec<u8>,
    /// The start of a text chunk, up to the text, and its end.
    text_before: Vec<u8>,
    text_after: Vec<u8>,
    written: Vec<u8>,
    /// The role chunk has been written.
    begun: bool,
}

/// The delta member that takes a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatTextMember {
    Content,
    Reasoning,
    Refusal,
}

impl MessagesChunkWriter {
    pub(super) fn new(form: &ChatAnswerForm) -> Self {
        let before = form.chunk();
        let text_before = [before.as_slice(), br#"{"index":0,"delta":{"content":""#].concat();
        let mut text_after = br#""},"logprobs":null,"finish_reason":null"#.to_vec();
        text_after.extend_from_slice(end_of_chunk(form.wishes));
        Self { wishes: form.wishes, before, text_before, text_after, written: Vec::new(), begun: false }
    }

    /// Writes the role chunk, if it has not been written yet.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.write(&[r#""role":"assistant","content":"","refusal":null"#], "null");
        }
    }

    /// Writes text that is already JSON-escaped.
    pub(super) fn text(&mut self, member: ChatTextMember, escaped: &str) {
        let opening = match member {
            ChatTextMember::Content => {
                self.begin();
                self.written.extend_from_slice(&self.text_before);
                self.written.extend_from_slice(escaped.as_bytes());
                self.written.extend_from_slice(&self.text_after);
                return;
            }
            ChatTextMember::Reasoning => r#""reasoning_content":""#,
            ChatTextMember::Refusal => r#""refusal":""#,
        };
        self.delta(&[opening, escaped, "\""]);
    }

    /// Writes a piece of a thinking block in the form that LiteLLM's clients keep. OpenAI's SDKs join the pieces by
    /// `index`.
    pub(super) fn thinking_block(&mut self, index: u64, kind: &str, (member, escaped): (&str, &str)) {
        let index = index.to_string();
        let opening = r#""thinking_blocks":[{"index":"#;
        self.delta(&[opening, &index, r#","type":""#, kind, r#"",""#, member, r#"":""#, escaped, "\"}]"]);
    }

    /// Starts a call. `id` and `name` are already JSON-escaped.
    pub(super) fn call(&mut self, call: u64, id: &str, name: &str) {
        if self.wishes.functions {
            self.delta_of_first(call, &[r#""function_call":{"name":""#, name, r#"","arguments":""}"#]);
            return;
        }
        let call = call.to_string();
        let (opening, end) = (r#""tool_calls":[{"index":"#, r#"","arguments":""}}]"#);
        let middle = r#"","type":"function","function":{"name":""#;
        self.delta(&[opening, &call, r#","id":""#, id, middle, name, end]);
    }

    /// Appends to the arguments of a call. `escaped` is already JSON-escaped.
    pub(super) fn arguments(&mut self, call: u64, escaped: &str) {
        if self.wishes.functions {
            self.delta_of_first(call, &[r#""function_call":{"arguments":""#, escaped, r#""}"#]);
            return;
        }
        let call = call.to_string();
        let opening = r#""tool_calls":[{"index":"#;
        self.delta(&[opening, &call, r#","function":{"arguments":""#, escaped, r#""}}]"#]);
    }

    /// Writes the finish reason, the usage if the client asked for it, and `[DONE]`.
    pub(super) fn finish(&mut self, finish_reason: &str, usage: &RunningUsage) {
        self.begin();
        self.write(&[], &format!("\"{finish_reason}\""));
        if self.wishes.include_usage {
            self.written.extend_from_slice(&self.before);
            self.written.extend_from_slice(br#"],"usage":"#);
            let mut written = Vec::new();
            usage.write(&mut written);
            self.written.extend_from_slice(&written);
            self.written.extend_from_slice(b"}\n\n");
        }
        self.written.extend_from_slice(b"data: [DONE]\n\n");
    }

    pub(super) fn fail(&mut self, error: &StreamError) {
        self.written.extend_from_slice(&envelope::event_of(&error.to_value()));
    }

    /// Appends what has been written to `out`.
    pub(super) fn flush(&mut self, out: &mut Vec<Bytes>) {
        if !self.written.is_empty() {
            // The next write is likely to be about as large.
            let next = Vec::with_capacity(self.written.len());
            out.push(std::mem::replace(&mut self.written, next).into());
        }
    }

    fn delta(&mut self, members: &[&str]) {
        self.begin();
        self.write(members, "null");
    }

    /// Writes a delta if it belongs to the first call. An answer in the legacy form can hold only one.
    fn delta_of_first(&mut self, call: u64, members: &[&str]) {
        if call == 0 {
            self.delta(members);
        }
    }

    fn write(&mut self, delta: &[&str], finish_reason: &str) {
        let end = end_of_chunk(self.wishes);
        self.written.extend_from_slice(&self.before);
        self.written.extend_from_slice(br#"{"index":0,"delta":{"#);
        delta.iter().for_each(|part| self.written.extend_from_slice(part.as_bytes()));
        self.written.extend_from_slice(br#"},"logprobs":null,"finish_reason":"#);
        self.written.extend_from_slice(finish_reason.as_bytes());
        self.written.extend_from_slice(end);
    }
}

fn end_of_chunk(wishes: Wishes) -> &'static [u8] {
    if wishes.include_usage { b"}],\"usage\":null}\n\n" } else { b"}]}\n\n" }
}
