//! Writes a chat stream chunk by chunk and tracks its state.

use bytes::Bytes;
use shared::usage::TokenCounts;

use super::{CompletionCall, Identity, in_old_words, write_signature, write_usage};
use crate::envelope::{StreamError, event_of};
use crate::extras::Extras;
use crate::json::{JsonWriter, meant_bytes};
use crate::stream::StreamState;

/// Writes chunks for the given choice. The caller writes the role chunk of a choice first.
#[derive(Debug)]
pub(in crate::adapt) struct ChatChunkWriter {
    /// The start of every chunk, up to its choice.
    before: Vec<u8>,
    /// The start of most chunks, up to the first member of a delta of choice 0.
    before_delta: Vec<u8>,
    /// The client asked for usage: every chunk before the one with the usage has `"usage":null`.
    include_usage: bool,
    /// Calls are written in the legacy form (`function_call`), which can hold one call.
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

    /// True if the last event has been written. Anything that the upstream sends after it is not relayed.
    pub(in crate::adapt) fn has_ended(&self) -> bool {
        self.stopped
    }

    pub(in crate::adapt) fn role(&mut self, choice: u64) {
        self.begin(choice).bytes(br#""role":"assistant","content":"","refusal":null"#);
        self.end(None);
    }

    /// Writes text under `member`: `content`, `reasoning_content` or `refusal`. Empty text is skipped.
    pub(in crate::adapt) fn text(&mut self, choice: u64, member: &str, text: &str) {
        if !text.is_empty() {
            self.output(text.len());
            self.begin(choice).name(member).text(text);
            self.end(None);
        }
    }

    /// Like `text`, for text that is already JSON-escaped.
    pub(in crate::adapt) fn escaped(&mut self, choice: u64, member: &str, text: &str) {
        if !text.is_empty() {
            self.output(meant_bytes(text.as_bytes()));
            self.begin(choice).name(member).escaped(text);
            self.end(None);
        }
    }

    /// Writes Anthropic's thinking blocks. `blocks` is a JSON array without its brackets.
    pub(in crate::adapt) fn thinking_blocks(&mut self, choice: u64, blocks: &[u8]) {
        self.output(0);
        self.begin(choice).name("thinking_blocks").list().raw(blocks).end_list();
        self.end(None);
    }

    /// Writes the signature of the thoughts that precede a text.
    pub(in crate::adapt) fn signature(&mut self, choice: u64, signature: &str) {
        write_signature(signature, self.begin(choice));
        self.end(None);
    }

    /// Starts a call, with the arguments known so far.
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

    /// Appends to the arguments of a call.
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

    /// Writes a piece of a call in the legacy form. It can hold only the first call of an answer; others are skipped.
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

    /// Records that the finish reason is known.
    pub(in crate::adapt) fn note_finished(&mut self) {
        self.state.finished = true;
    }

    /// Records the usage reported so far.
    pub(in crate::adapt) fn note_usage(&mut self, usage: TokenCounts) {
        self.state.usage = Some(usage);
    }

    /// Records the usage other than tokens reported so far.
    pub(in crate::adapt) fn note_extras(&mut self, extras: Extras) {
        self.state.extras.replace_by(extras);
    }

    /// Writes the usage, if the client asked for it and it is known, and `[DONE]`.
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

    /// Ends the stream with the upstream's error.
    pub(in crate::adapt) fn fail(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        self.json.bytes(&event_of(&error.to_value()));
        self.state.error = Some(error);
        self.stopped = true;
    }

    /// Appends what has been written to `out`.
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
