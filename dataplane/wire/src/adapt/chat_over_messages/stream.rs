//! Translates a Messages stream into chat chunks.
//!
//! Each event produces its chunks at once, with text copied as received. Memory is bounded: one incomplete event, and a few numbers for each of at most [`OPEN_MAX`] open blocks.

use bytes::Bytes;
use serde_json::Value;

use super::chunks::{ChatTextMember, MessagesChunkWriter};
use super::form::{ChatAnswerForm, Wishes};
use super::response::arguments;
use super::target_types::{self, MessagesBlock, MessagesEvent};
use super::usage::RunningUsage;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write;
use crate::envelope::{self, StreamError};
use crate::json::meant_bytes;
use crate::passthrough::{Alike, Varying};
use crate::sse::{EventFinder, lossy_text};
use crate::stream::{AnswerStream, StreamState, Trouble};

/// Maximum number of blocks open at once. Anthropic opens one after the other.
const OPEN_MAX: usize = 64;

/// Translates one Messages stream into chat chunks.
#[derive(Debug)]
pub(super) struct ChatChunks {
    wishes: Wishes,
    names: ToolNames,
    secrets: Vec<String>,
    events: EventFinder,
    /// Recognises deltas that differ only in their text.
    alike: Alike<MessagesDeltaTarget>,
    chunks: MessagesChunkWriter,
    state: StreamState,
    /// The last event has been written.
    stopped: bool,
    usage: RunningUsage,
    stop_reason: Option<String>,
    /// The number of calls so far.
    calls: u64,
    open: Vec<OpenCall>,
    /// The number of thinking blocks so far.
    thoughts: u64,
}

/// A call that is not complete yet.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    /// The block's index in the target's stream.
    block: u64,
    /// The call's index in the client's stream, where only calls are counted.
    call: u64,
    has_arguments: bool,
}

impl ChatChunks {
    pub(super) fn new(form: &ChatAnswerForm, secrets: Vec<String>) -> Self {
        Self {
            wishes: form.wishes,
            names: form.names.clone(),
            secrets,
            events: EventFinder::default(),
            alike: Alike::new(Varying::Blanks),
            chunks: MessagesChunkWriter::new(form),
            state: StreamState::default(),
            stopped: false,
            usage: RunningUsage::default(),
            stop_reason: None,
            calls: 0,
            open: Vec::new(),
            thoughts: 0,
        }
    }
}

impl AnswerStream for ChatChunks {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        if self.stopped {
            return;
        }
        let mut events = std::mem::take(&mut self.events);
        let heard = events.push(&chunk, |data| {
            self.event(data, EventEnd::Whole);
            !self.stopped
        });
        self.events = events;
        if heard.is_err() {
            self.fail_with(TOO_LARGE);
        }
        self.chunks.flush(out);
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        if self.stopped {
            return;
        }
        let mut events = std::mem::take(&mut self.events);
        events.end(|data| {
            self.event(data, EventEnd::Cut);
            false
        });
        if !self.stopped && self.stop_reason.is_some() {
            self.finish();
        }
        self.stopped = true;
        self.chunks.flush(out);
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        envelope::chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}

/// The part of the answer to which a delta is appended.
#[derive(Clone, Copy, Debug)]
enum MessagesDeltaTarget {
    Text,
    Thinking,
    /// The arguments of the call in this block.
    Arguments(u64),
}

/// The end of an event: complete, or cut off by the end of the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventEnd {
    Whole,
    Cut,
}

impl ChatChunks {
    fn event(&mut self, data: &[u8], tail: EventEnd) {
        if let Some(like) = self.alike.read(data) {
            self.piece(like.meaning, like.text);
            return;
        }
        // An empty event, `[DONE]` as some vendors send it, or noise.
        if data.first() != Some(&b'{') {
            return;
        }
        let text = lossy_text(data);
        match serde_json::from_str::<MessagesEvent<'_>>(&text) {
            Ok(said) => self.said(&said, &text),
            Err(_) if tail == EventEnd::Whole => self.fail_with(UNREADABLE),
            Err(_) => {}
        }
    }

    fn said(&mut self, said: &MessagesEvent<'_>, text: &str) {
        let kind = target_types::word(said.kind);
        if kind == "error" || said.error.is_some() {
            let document: Value = serde_json::from_str(text).unwrap_or_default();
            let error = StreamError::of_document(&document);
            self.fail(
                &error
                    .unwrap_or_else(|| StreamError { message: UNNAMED.to_owned(), ..StreamError::default() }),
            );
            return;
        }
        match &*kind {
            "message_start" => {
                let message: MessagesEvent<'_> = target_types::object(said.message).unwrap_or_default();
                message.usage.into_iter().for_each(|told| self.usage.hear(told));
                self.state.input = self.usage.counts();
                self.state.extras = self.usage.extras();
                self.chunks.begin();
            }
            "content_block_start" => {
                self.block_begins(index(said), &target_types::object(said.content_block).unwrap_or_default());
            }
            "content_block_delta" => {
                self.delta(text, index(said), &target_types::object(said.delta).unwrap_or_default());
            }
            "content_block_stop" => self.block_ends(index(said)),
            "message_delta" => self.message_delta(said),
            "message_stop" => self.finish(),
            // `ping`, and events that are not known yet.
            _ => {}
        }
    }

    fn block_begins(&mut self, block: u64, begun: &MessagesBlock<'_>) {
        match &*target_types::word(begun.kind) {
            "text" => self.text(ChatTextMember::Content, target_types::inner(begun.text).unwrap_or_default()),
            "thinking" => {
                self.thoughts = self.thoughts.saturating_add(1);
                self.thought(begun);
            }
            "redacted_thinking" => {
                self.thoughts = self.thoughts.saturating_add(1);
                if let Some(data) = target_types::inner(begun.data) {
                    self.thinking_block("redacted_thinking", ("data", data));
                }
            }
            "tool_use" => self.call_begins(block, begun),
            // Tools that the target runs itself, and block types that are not known yet.
            _ => {}
        }
    }

    fn delta(&mut self, event: &str, block: u64, delta: &MessagesBlock<'_>) {
        let (piece, text) = match &*target_types::word(delta.kind) {
            "text_delta" => (MessagesDeltaTarget::Text, delta.text),
            "thinking_delta" if !self.wishes.thinking_blocks => {
                (MessagesDeltaTarget::Thinking, delta.thinking)
            }
            "thinking_delta" | "signature_delta" => return self.thought(delta),
            "input_json_delta" => (MessagesDeltaTarget::Arguments(block), delta.partial_json),
            _ => return,
        };
        let text = target_types::inner(text).unwrap_or_default();
        self.alike.learn(event.as_bytes(), text.as_bytes(), piece);
        self.piece(piece, text);
    }

    fn piece(&mut self, piece: MessagesDeltaTarget, escaped: &str) {
        match piece {
            MessagesDeltaTarget::Text => self.text(ChatTextMember::Content, escaped),
            MessagesDeltaTarget::Thinking => self.text(ChatTextMember::Reasoning, escaped),
            MessagesDeltaTarget::Arguments(block) => self.arguments(block, escaped),
        }
    }

    fn message_delta(&mut self, said: &MessagesEvent<'_>) {
        said.usage.into_iter().for_each(|told| self.usage.hear(told));
        self.state.usage = self.usage.counts();
        self.state.extras = self.usage.extras();
        let delta: MessagesBlock<'_> = target_types::object(said.delta).unwrap_or_default();
        let stop_reason = target_types::word(delta.stop_reason);
        if !stop_reason.is_empty() {
            self.stop_reason = Some(stop_reason.into_owned());
            self.state.finished = true;
        }
        self.text(ChatTextMember::Refusal, target_types::refusal(delta.stop_details).unwrap_or_default());
    }

    /// Writes text that is already JSON-escaped.
    fn text(&mut self, member: ChatTextMember, escaped: &str) {
        if !escaped.is_empty() {
            self.output(meant_bytes(escaped.as_ref()));
            self.chunks.text(member, escaped);
        }
    }

    /// Writes thoughts or their signature, which comes last.
    fn thought(&mut self, thought: &MessagesBlock<'_>) {
        let (text, signature) =
            (target_types::inner(thought.thinking), target_types::inner(thought.signature));
        if let Some(text) = text {
            self.text(ChatTextMember::Reasoning, text);
            self.thinking_block("thinking", ("thinking", text));
        }
        if let Some(signature) = signature {
            self.thinking_block("thinking", ("signature", signature));
        }
    }

    fn thinking_block(&mut self, kind: &str, piece: (&str, &str)) {
        if self.wishes.thinking_blocks {
            self.chunks.thinking_block(self.thoughts.saturating_sub(1), kind, piece);
        }
    }

    fn call_begins(&mut self, block: u64, begun: &MessagesBlock<'_>) {
        let (Some(id), Some(name)) = (target_types::inner(begun.id), target_types::inner(begun.name)) else {
            self.fail_with(UNREADABLE);
            return;
        };
        if self.open.len() >= OPEN_MAX {
            self.fail_with(TOO_MANY);
            return;
        }
        self.output(name.len());
        let call = self.calls;
        self.calls = call.saturating_add(1);
        let name = self.names.restore_escaped(name.as_bytes());
        self.chunks.call(call, id, &String::from_utf8_lossy(&name));
        self.open.push(OpenCall { block, call, has_arguments: false });
        // Some vendors send the complete input in the start event.
        let input = begun
            .input
            .map(|input| arguments(Some(input)))
            .filter(|input| input != b"{}" && input != b"null");
        if let Some(input) = input {
            let mut quoted = Vec::new();
            write::string(&mut quoted, &String::from_utf8_lossy(&input));
            let quoted = String::from_utf8_lossy(&quoted).into_owned();
            self.arguments(block, quoted.trim_matches('"'));
        }
    }

    /// Appends to the arguments of the call in `block`. `escaped` is already JSON-escaped.
    fn arguments(&mut self, block: u64, escaped: &str) {
        let Some(open) = self.open.iter_mut().find(|open| open.block == block) else { return };
        if escaped.is_empty() {
            return;
        }
        open.has_arguments = true;
        let call = open.call;
        self.output(meant_bytes(escaped.as_ref()));
        self.chunks.arguments(call, escaped);
    }

    fn block_ends(&mut self, block: u64) {
        if let Some(position) = self.open.iter().position(|open| open.block == block) {
            if self.open.get(position).is_some_and(|open| !open.has_arguments) {
                self.arguments(block, "{}");
            }
            self.open.remove(position);
        }
    }

    fn finish(&mut self) {
        while let Some(open) = self.open.first().copied() {
            self.block_ends(open.block);
        }
        let stop_reason = self.stop_reason.take().unwrap_or_default();
        self.chunks.finish(self.wishes.finish_reason(&stop_reason, self.calls > 0), &self.usage);
        self.state.usage = self.usage.counts();
        self.state.finished = true;
        self.state.done = true;
        self.stopped = true;
    }

    fn fail_with(&mut self, message: &str) {
        self.fail(&StreamError { message: message.to_owned(), ..StreamError::default() });
    }

    /// Ends the stream with the upstream's error.
    fn fail(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known).in_open_ai_words();
        self.chunks.fail(&error);
        self.state.error = Some(error);
        self.stopped = true;
    }

    fn output(&mut self, bytes: usize) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.state.content = true;
        self.state.content_events = self.state.content_events.saturating_add(1);
        self.state.output_bytes = self.state.output_bytes.saturating_add(bytes);
    }
}

fn index(said: &MessagesEvent<'_>) -> u64 {
    said.index.and_then(|index| index.get().parse().ok()).unwrap_or(0)
}

const UNREADABLE: &str = "The upstream sent an event that cannot be read.";
const UNNAMED: &str = "The upstream ended its answer with an error.";
const TOO_LARGE: &str = "The upstream sent an event that is too large to be read.";
const TOO_MANY: &str = "The upstream calls more tools at once than can be followed.";
