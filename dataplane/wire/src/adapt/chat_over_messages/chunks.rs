//! Chat chunks, written one after the other: the role first, and every text in the bytes that it came in.

use bytes::Bytes;

use super::form::{ChatAnswerForm, Wishes};
use super::usage::RunningUsage;
use crate::envelope::{self, StreamError};

/// See the module.
#[derive(Debug)]
pub(super) struct MessagesChunkWriter {
    wishes: Wishes,
    /// What every chunk begins with, up to its choices.
    before: Vec<u8>,
    /// What a chunk of text begins with, up to the text, and what it ends with.
    text_before: Vec<u8>,
    text_after: Vec<u8>,
    written: Vec<u8>,
    /// The role chunk is out.
    begun: bool,
}

/// Where text goes.
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

    /// The role comes before everything.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.write(&[r#""role":"assistant","content":"","refusal":null"#], "null");
        }
    }

    /// Text that is escaped already.
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

    /// A piece of a block of thoughts as LiteLLM's clients keep it. By `index` OpenAI's SDKs put the pieces together.
    pub(super) fn thinking_block(&mut self, index: u64, kind: &str, (member, escaped): (&str, &str)) {
        let index = index.to_string();
        let opening = r#""thinking_blocks":[{"index":"#;
        self.delta(&[opening, &index, r#","type":""#, kind, r#"",""#, member, r#"":""#, escaped, "\"}]"]);
    }

    /// A call begins. `id` and `name` are escaped already.
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

    /// More of a call's arguments, escaped already.
    pub(super) fn arguments(&mut self, call: u64, escaped: &str) {
        if self.wishes.functions {
            self.delta_of_first(call, &[r#""function_call":{"arguments":""#, escaped, r#""}"#]);
            return;
        }
        let call = call.to_string();
        let opening = r#""tool_calls":[{"index":"#;
        self.delta(&[opening, &call, r#","function":{"arguments":""#, escaped, r#""}}]"#]);
    }

    /// How the answer ended, its usage if the client asked for that, and the last event.
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

    /// Hands over what has been written.
    pub(super) fn flush(&mut self, out: &mut Vec<Bytes>) {
        if !self.written.is_empty() {
            // The next read will be about as large.
            let next = Vec::with_capacity(self.written.len());
            out.push(std::mem::replace(&mut self.written, next).into());
        }
    }

    fn delta(&mut self, members: &[&str]) {
        self.begin();
        self.write(members, "null");
    }

    /// An answer in the old form holds one call.
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
