//! Writes a streamed answer for a chat client, chunk by chunk.

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::form::{ChatForm, in_old_words, put_usage, signed};
use super::logprobs::write_logprobs;
use super::{ChatCallDelta, ChatDelta, ChatSink, ChatTextKind, ClientUsage, OutputMedia, escape};
use crate::envelope::{StreamError, chat_stream_error, event_of};
use crate::finish_word::finish;
use crate::json::{JsonWriter, meant_bytes, quote};
use crate::stream::{StreamState, Trouble};

/// Buffers chunks until they are flushed.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    /// The start of every chunk, up to its choice.
    head: Vec<u8>,
    /// The start of most chunks, up to the first member of a delta of choice 0.
    delta_head: Vec<u8>,
    /// The end of every chunk, except the one with the usage, after its choice.
    tail: &'static str,
    /// The client asked for usage.
    include_usage: bool,
    /// Calls are written in the legacy form (`function_call`), which can hold one call.
    functions: bool,
    /// The log probabilities of the text that follows, as JSON, with their choice.
    logprobs: Option<(u64, Vec<u8>)>,
    /// The number of images so far.
    images: u64,
    secrets: Vec<String>,
    out: BytesMut,
    state: StreamState,
    ended: bool,
}

impl ChunkWriter {
    pub(crate) fn new(form: &ChatForm, secrets: Vec<String>) -> Self {
        let mut head = b"data: ".to_vec();
        form.put_head("chat.completion.chunk", form.created_s, &mut head);
        Self {
            delta_head: [head.as_slice(), br#"{"index":0,"delta":{"#].concat(),
            head,
            tail: if form.include_usage { "}],\"usage\":null}\n\n" } else { "}]}\n\n" },
            include_usage: form.include_usage,
            functions: form.functions,
            logprobs: None,
            images: 0,
            secrets,
            out: BytesMut::new(),
            state: StreamState::default(),
            ended: false,
        }
    }

    fn call(&mut self, choice: u64, call: &ChatCallDelta<'_>) {
        let (index, input) = (call.index.unwrap_or(0), call.input.escaped());
        if self.functions && index > 0 || !call.begins && input.is_empty() {
            return;
        }
        let name = call.name.escaped();
        self.seen(meant_bytes(name.as_bytes()).saturating_add(meant_bytes(input.as_bytes())));
        let (kind, member) = if call.custom { ("custom", "input") } else { ("function", "arguments") };
        let name_parts = if call.begins { ["\"name\":\"", &*name, "\","] } else { [""; 3] };
        let input_parts = ["\"", member, "\":\"", &*input, "\"}"];
        self.begin_delta(choice);
        if self.functions {
            self.put(&["\"function_call\":{"]);
            self.put(&name_parts);
            self.put(&input_parts);
        } else {
            self.put(&["\"tool_calls\":[{\"index\":", itoa::Buffer::new().format(index)]);
            if call.begins {
                self.put(&[",\"id\":\"", &*call.id.escaped(), "\",\"type\":\"", kind, "\""]);
            }
            self.put(&[",\"", kind, "\":{"]);
            self.put(&name_parts);
            self.put(&input_parts);
            if let Some(signature) = &call.signature {
                self.put(&[",", &signed(&quote(signature))]);
            }
            self.put(&["}]"]);
        }
        self.end_delta("null");
    }

    fn media(&mut self, choice: u64, media: &OutputMedia<'_>) {
        self.state.content = true;
        if !media.is_image() {
            let mark = media.mark();
            let mark = escape(Cow::Borrowed(&mark));
            return self.chunk(choice, &[member(ChatTextKind::Content), &mark, "\""]);
        }
        let mut image = JsonWriter::default();
        media.write(Some(self.images), &mut image);
        self.images = self.images.saturating_add(1);
        self.begin_delta(choice);
        self.put(&["\"images\":["]);
        self.out.put_slice(&image.finish());
        self.put(&["]"]);
        self.end_delta("null");
    }

    /// Records output of this many bytes.
    fn seen(&mut self, bytes: usize) {
        self.state.content = true;
        self.state.add_text(bytes);
    }

    fn chunk(&mut self, choice: u64, delta: &[&str]) {
        self.begin_delta(choice);
        self.put(delta);
        self.end_delta("null");
    }

    fn begin_delta(&mut self, choice: u64) {
        if choice == 0 {
            self.out.put_slice(&self.delta_head);
        } else {
            self.out.put_slice(&self.head);
            self.put(&["{\"index\":", itoa::Buffer::new().format(choice), ",\"delta\":{"]);
        }
    }

    /// Ends a chunk; `finish_reason` is JSON.
    fn end_delta(&mut self, finish_reason: &str) {
        match self.logprobs.take() {
            None => self.put(&["},\"logprobs\":null,\"finish_reason\":", finish_reason, self.tail]),
            Some((_, logprobs)) => {
                self.put(&["},\"logprobs\":"]);
                self.out.put_slice(&logprobs);
                self.put(&[",\"finish_reason\":", finish_reason, self.tail]);
            }
        }
    }

    /// Writes log probabilities that no text of their choice followed. `choice` is that of the next chunk.
    fn flush_logprobs(&mut self, choice: Option<u64>) {
        if let Some((of, _)) = self.logprobs
            && choice != Some(of)
        {
            self.chunk(of, &[]);
        }
    }

    fn put(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.out.put_slice(part.as_bytes()));
    }
}

impl ChatSink for ChunkWriter {
    fn begin(&mut self, choice: u64) {
        self.chunk(choice, &["\"role\":\"assistant\",\"content\":\"\",\"refusal\":null"]);
    }

    fn delta(&mut self, choice: u64, delta: ChatDelta<'_>) {
        self.flush_logprobs(Some(choice).filter(|_| !matches!(delta, ChatDelta::Logprobs(_))));
        match delta {
            ChatDelta::Logprobs(tokens) => {
                let mut json = JsonWriter::default();
                write_logprobs(tokens, &mut json);
                self.logprobs = Some((choice, json.finish()));
            }
            ChatDelta::Text(kind, text) => {
                let text = text.escaped();
                if !text.is_empty() {
                    self.seen(meant_bytes(text.as_bytes()));
                    self.chunk(choice, &[member(kind), &text, "\""]);
                }
            }
            ChatDelta::Call(call) => self.call(choice, &call),
            ChatDelta::Media(media) => self.media(choice, &media),
            ChatDelta::Thinking(piece) => {
                self.state.content = true;
                // OpenAI's SDKs join the pieces by `index`.
                let index = itoa::Buffer::new().format(piece.index).to_owned();
                let (kind, member) = piece.part.names();
                let text = piece.text.escaped();
                let opening = "\"thinking_blocks\":[{\"index\":";
                self.chunk(
                    choice,
                    &[opening, &index, ",\"type\":\"", kind, "\",\"", member, "\":\"", &text, "\"}]"],
                );
            }
            ChatDelta::Signature(signature) => {
                self.chunk(choice, &[&signed(&["\"", &*signature.escaped(), "\""].concat())]);
            }
        }
    }

    fn finish(&mut self, choice: u64, reason: &str, _stop: Option<&str>) {
        let reason = if self.functions { in_old_words(reason) } else { reason };
        self.flush_logprobs(Some(choice));
        self.begin_delta(choice);
        self.end_delta(&["\"", reason, "\""].concat());
        self.state.finished = true;
        self.state.finish = finish(reason.as_bytes());
    }

    fn usage(&mut self, usage: ClientUsage) {
        if self.include_usage {
            self.out.put_slice(&self.head);
            self.put(&["],\"usage\":"]);
            put_usage(&usage, &mut self.out);
            self.put(&["}\n\n"]);
        }
    }

    fn done(&mut self) {
        self.put(&["data: [DONE]\n\n"]);
        self.state.done = true;
        self.ended = true;
    }

    fn fail(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        self.out.put_slice(&event_of(&error.to_value()));
        self.state.error = Some(error);
        self.ended = true;
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn facts(&mut self) -> &mut StreamState {
        &mut self.state
    }

    fn flush(&mut self, out: &mut Vec<Bytes>) {
        if !self.out.is_empty() {
            out.push(self.out.split().freeze());
        }
    }
}

/// Returns the beginning of a delta's text.
fn member(kind: ChatTextKind) -> &'static str {
    match kind {
        ChatTextKind::Content => "\"content\":\"",
        ChatTextKind::Reasoning => "\"reasoning_content\":\"",
        ChatTextKind::Refusal => "\"refusal\":\"",
    }
}
