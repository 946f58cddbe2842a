//! A chat stream, written chunk by chunk, and what is known of it.

use bytes::Bytes;
use shared::usage::TokenCounts;

use super::{CompletionCall, Identity, in_old_words, write_signature, write_usage};
use crate::envelope::{StreamError, event_of};
use crate::extras::Extras;
use crate::json::{JsonWriter, meant_bytes};
use crate::stream::StreamState;

/// Writes chunks, each for the choice that is named. The first one of a choice is its role.
#[derive(Debug)]
pub(in crate::adapt) struct ChatChunkWriter {
    /// What every chunk begins with, up to its choice.
    before: Vec<u8>,
    /// What most begin with: up to the first member of a delta of the first choice.
    before_delta: Vec<u8>,
    /// The client asked for usage: every chunk before the one that has it says `null`.
    include_usage: bool,
    /// Calls are written in the old form, which has room for one.
    functions: bool,
    secrets: Vec<String>,
    json: JsonWriter,
    state: StreamState,
    stopped: bool,
}

impl ChatChunkWriter {
    pub(in crate::adapt) fn new(identity: &Identity, include_usage: bool, secrets: Vec<String>) -> Self {
        let mut json = JsonWriter::default();
        json.bytes(b"data: ").object();
        identity.write("chat.completion.chunk", &mut json);
        json.name("choices").list();
        let before = json.finish();
        Self {
            before_delta: [before.as_slice(), br#"{"index":0,"delta":{"#].concat(),
            before,
            include_usage,
            functions: identity.functions,
            secrets,
            json: JsonWriter::default(),
            state: StreamState::default(),
            stopped: false,
        }
    }

    pub(in crate::adapt) fn state(&self) -> &StreamState {
        &self.state
    }

    /// Whether the last event has been written: whatever else the upstream sends is not for the client.
    pub(in crate::adapt) fn has_ended(&self) -> bool {
        self.stopped
    }

    pub(in crate::adapt) fn role(&mut self, choice: u64) {
        self.begin(choice).bytes(br#""role":"assistant","content":"","refusal":null"#);
        self.end(None);
    }

    /// Text under `member`: `content`, `reasoning_content` or `refusal`.
    pub(in crate::adapt) fn text(&mut self, choice: u64, member: &str, text: &str) {
        if !text.is_empty() {
            self.output(text.len());
            self.begin(choice).name(member).text(text);
            self.end(None);
        }
    }

    /// The same of text that is escaped already.
    pub(in crate::adapt) fn escaped(&mut self, choice: u64, member: &str, text: &str) {
        if !text.is_empty() {
            self.output(meant_bytes(text.as_bytes()));
            self.begin(choice).name(member).escaped(text);
            self.end(None);
        }
    }

    /// Blocks of Anthropic's thinking, which are no text: JSON without the brackets around them.
    pub(in crate::adapt) fn thinking_blocks(&mut self, choice: u64, blocks: &[u8]) {
        self.output(0);
        self.begin(choice).name("thinking_blocks").list().raw(blocks).end_list();
        self.end(None);
    }

    /// The signature of the thoughts before a text.
    pub(in crate::adapt) fn signature(&mut self, choice: u64, signature: &str) {
        write_signature(signature, self.begin(choice));
        self.end(None);
    }

    /// A call begins, with what is known of its arguments.
    pub(in crate::adapt) fn call(&mut self, choice: u64, index: u64, call: &CompletionCall<'_>) {
        if self.functions {
            return self.function_call(
                choice,
                index,
                &[("name", &call.name), ("arguments", &call.arguments)],
            );
        }
        self.output(call.bytes());
        self.begin(choice).name("tool_calls").list().object().name("index").number(index);
        call.write(&mut self.json);
        self.json.end_object().end_list();
        self.end(None);
    }

    /// More of a call's arguments.
    pub(in crate::adapt) fn arguments(&mut self, choice: u64, index: u64, fragment: &str) {
        if self.functions {
            return self.function_call(choice, index, &[("arguments", fragment)]);
        }
        if !fragment.is_empty() {
            self.output(fragment.len());
            let json = self.begin(choice).name("tool_calls").list().object().name("index").number(index);
            json.name("function").object().name("arguments").text(fragment).end_object();
            json.end_object().end_list();
            self.end(None);
        }
    }

    /// A piece of a call in the old form. Only the first call of an answer has a place.
    fn function_call(&mut self, choice: u64, index: u64, members: &[(&str, &str)]) {
        if index > 0 {
            return;
        }
        self.output(members.iter().map(|(_, text)| text.len()).sum());
        let json = self.begin(choice).name("function_call").object();
        for (name, text) in members {
            json.name(name).text(text);
        }
        json.end_object();
        self.end(None);
    }

    pub(in crate::adapt) fn finish(&mut self, choice: u64, reason: &str) {
        let reason = if self.functions { in_old_words(reason) } else { reason };
        self.begin(choice);
        self.end(Some(reason));
    }

    /// How the answer ended is known.
    pub(in crate::adapt) fn note_finished(&mut self) {
        self.state.finished = true;
    }

    /// What has been used so far.
    pub(in crate::adapt) fn note_usage(&mut self, usage: TokenCounts) {
        self.state.usage = Some(usage);
    }

    /// What has been reported beside tokens so far.
    pub(in crate::adapt) fn note_extras(&mut self, extras: Extras) {
        self.state.extras.replace_by(extras);
    }

    /// Usage, if the client asked for it and it is known, and the last event.
    pub(in crate::adapt) fn done(&mut self) {
        if let Some(usage) = self.state.usage.filter(|_| self.include_usage) {
            self.json.bytes(&self.before).end_list().name("usage");
            write_usage(&usage, &mut self.json);
            self.json.end_object().bytes(b"\n\n");
        }
        self.json.bytes(b"data: [DONE]\n\n");
        self.state.done = true;
        self.stopped = true;
    }

    /// The upstream's error ends the stream.
    pub(in crate::adapt) fn fail(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        self.json.bytes(&event_of(&error.to_value()));
        self.state.error = Some(error);
        self.stopped = true;
    }

    /// Hands over what has been written.
    pub(in crate::adapt) fn flush(&mut self, out: &mut Vec<Bytes>) {
        if !self.json.is_empty() {
            out.push(self.json.take_copy());
        }
    }

    fn begin(&mut self, choice: u64) -> &mut JsonWriter {
        if choice == 0 {
            return self.json.bytes(&self.before_delta);
        }
        self.json.bytes(&self.before).object().name("index").number(choice).name("delta").object()
    }

    fn end(&mut self, finish_reason: Option<&str>) {
        if let Some(reason) = finish_reason {
            self.json.bytes(br#"},"logprobs":null,"finish_reason":"#).text(reason);
        } else {
            self.json.bytes(br#"},"logprobs":null,"finish_reason":null"#);
        }
        let end: &[u8] = if self.include_usage { b"}],\"usage\":null}\n\n" } else { b"}]}\n\n" };
        self.json.bytes(end);
    }

    fn output(&mut self, bytes: usize) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.state.content = true;
        self.state.content_events = self.state.content_events.saturating_add(1);
        self.state.output_bytes = self.state.output_bytes.saturating_add(bytes);
    }
}
