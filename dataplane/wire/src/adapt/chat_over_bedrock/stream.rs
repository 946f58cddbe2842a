//! Translates streams, which consist of messages in Amazon's binary framing.
//!
//! ```text
//!   messageStart  { contentBlockStart?  contentBlockDelta*  contentBlockStop }*  messageStop  metadata
//! ```
//!
//! Text blocks have no start event. Usage comes last, in `metadata`; a stream that ends after `messageStop` but
//! without `metadata` is complete. Memory is bounded by the size of one message and by the number of calls open at
//! once.

use bytes::Bytes;

use super::answer::{
    ConverseDelta, ConverseEvent, ConverseToolUse, Reasoning, finish_reason, write_thinking,
};
use super::whole::BedrockAnswers;
use crate::adapt::chat_client::{ChatChunkWriter, CompletionCall, Identity};
use crate::envelope::{self, StreamError};
use crate::eventstream::{EventStreamDecoder, EventStreamMessage};
use crate::json::JsonWriter;
use crate::passthrough::{Alike, Varying};
use crate::stream::{AnswerStream, StreamState, Trouble};

/// Maximum number of calls whose arguments may be incomplete at once.
const OPEN_MAX: usize = 128;

/// Translates one ConverseStream answer.
#[derive(Debug)]
pub(super) struct BedrockStream {
    decoder: EventStreamDecoder,
    told: ConverseEmitted,
}

/// The output for the client, and the state needed to continue it.
#[derive(Debug)]
struct ConverseEmitted {
    identity: Identity,
    chunks: ChatChunkWriter,
    begun: bool,
    /// Recognises deltas that hold only text.
    alike: Alike<()>,
    /// The number of calls so far.
    calls: u64,
    /// Calls whose blocks have not ended.
    open: Vec<Open>,
    /// The client handles signed thinking blocks.
    thinking_blocks: bool,
    /// The block index of the open thinking block. `thoughts` counts the thinking blocks so far.
    thought: Option<u64>,
    thoughts: u64,
}

#[derive(Debug)]
struct Open {
    block: u64,
    call: u64,
    has_arguments: bool,
}

impl BedrockStream {
    pub(super) fn new(answers: &BedrockAnswers, secrets: Vec<String>) -> Self {
        let told = ConverseEmitted {
            identity: answers.identity.clone(),
            chunks: ChatChunkWriter::new(&answers.identity, answers.include_usage, secrets),
            begun: false,
            alike: Alike::new(Varying::ShortPadding),
            calls: 0,
            open: Vec::new(),
            thinking_blocks: answers.thinking_blocks,
            thought: None,
            thoughts: 0,
        };
        Self { decoder: EventStreamDecoder::default(), told }
    }
}

impl AnswerStream for BedrockStream {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        let told = &mut self.told;
        if told.chunks.has_ended() {
            return;
        }
        if let Err(fault) = self.decoder.push(&chunk, &mut |message| told.message(&message)) {
            told.chunks.fail(&StreamError::unreadable_stream(&fault.to_string()));
        }
        told.chunks.flush(out);
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        let chunks = &mut self.told.chunks;
        if !chunks.has_ended() && chunks.state().finished {
            chunks.done();
        }
        chunks.flush(out);
    }

    fn state(&self) -> &StreamState {
        self.told.chunks.state()
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        envelope::chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}

impl ConverseEmitted {
    /// Handles a message. Returns false if the stream has ended.
    fn message(&mut self, message: &EventStreamMessage<'_>) -> bool {
        match message.header(":message-type") {
            Some("exception") => {
                let kind = message.header(":exception-type").unwrap_or_default();
                self.chunks.fail(&exception(kind, message.payload()));
            }
            Some("error") => {
                let code = message.header(":error-code").unwrap_or_default();
                let said = message.header(":error-message").unwrap_or_default();
                self.chunks.fail(&StreamError { message: said.to_owned(), ..exception(code, b"") });
            }
            Some(_) | None => {
                self.event(message.header(":event-type").unwrap_or_default(), message.payload())
            }
        }
        !self.chunks.has_ended()
    }

    fn event(&mut self, kind: &str, payload: &[u8]) {
        let known =
            ["contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStart", "messageStop"];
        if kind != "metadata" && !known.contains(&kind) {
            return;
        }
        if kind == "contentBlockDelta"
            && let Some(like) = self.alike.read(payload)
        {
            self.chunks.escaped(0, "content", like.text);
            return;
        }
        let Ok(event) = serde_json::from_slice::<ConverseEvent<'_>>(payload) else {
            self.chunks.fail(&StreamError::unreadable_stream("an event is not one of ConverseStream"));
            return;
        };
        if !std::mem::replace(&mut self.begun, true) {
            self.chunks.role(0);
        }
        let block = event.content_block_index;
        match kind {
            "contentBlockDelta" => {
                if let Some(text) = event.delta.as_ref().and_then(ConverseDelta::only_text) {
                    self.alike.learn(payload, text.as_bytes(), ());
                }
                event.delta.into_iter().for_each(|delta| self.delta(block, delta));
            }
            "contentBlockStart" => {
                if let Some(call) = event.start.and_then(|start| start.tool_use) {
                    self.call_begins(block, call);
                }
            }
            "contentBlockStop" => self.block_ends(block),
            "messageStop" => {
                let reason = event.stop_reason.map(|reason| reason.0).unwrap_or_default();
                self.chunks.finish(0, finish_reason(&reason, self.calls > 0));
                self.chunks.note_finished();
            }
            "metadata" => {
                self.chunks.note_extras(event.extras());
                event.usage.into_iter().for_each(|usage| self.chunks.note_usage(usage.counts()));
                if self.chunks.state().finished {
                    self.chunks.done();
                }
            }
            _ => {}
        }
    }

    fn delta(&mut self, block: u64, delta: ConverseDelta<'_>) {
        if let Some(text) = delta.text {
            self.chunks.text(0, "content", &text.0);
        }
        if let Some(reasoning) = delta.reasoning_content {
            self.reasoning(block, &reasoning);
        }
        let fragment = delta.tool_use.and_then(|call| call.input);
        if let Some(fragment) = fragment.filter(|fragment| !fragment.0.is_empty())
            && let Some(open) = self.open.iter_mut().find(|open| open.block == block)
        {
            open.has_arguments = true;
            self.chunks.arguments(0, open.call, &fragment.0);
        }
    }

    fn call_begins(&mut self, block: u64, call: ConverseToolUse<'_>) {
        if !call.is_for_the_client() {
            return;
        }
        if self.open.len() >= OPEN_MAX {
            self.chunks.fail(&StreamError::unreadable_stream("too many calls are open at once"));
            return;
        }
        let id = call.tool_use_id.map(|id| id.0).filter(|id| !id.is_empty());
        let call = CompletionCall {
            id: id.unwrap_or_else(|| self.identity.call_id(self.calls).into()),
            name: self.identity.tool_name(call.name.map(|name| name.0).unwrap_or_default()),
            ..CompletionCall::default()
        };
        self.chunks.call(0, self.calls, &call);
        self.open.push(Open { block, call: self.calls, has_arguments: false });
        self.calls = self.calls.saturating_add(1);
    }

    fn block_ends(&mut self, block: u64) {
        self.thought = None;
        if let Some(at) = self.open.iter().position(|open| open.block == block) {
            let open = self.open.swap_remove(at);
            if !open.has_arguments {
                self.chunks.arguments(0, open.call, "{}");
            }
        }
    }

    fn reasoning(&mut self, block: u64, reasoning: &Reasoning<'_>) {
        if self.thought != Some(block) {
            self.thought = Some(block);
            self.thoughts = self.thoughts.saturating_add(1);
        }
        let pieces = [
            ("thinking", "thinking", &reasoning.text),
            ("thinking", "signature", &reasoning.signature),
            ("redacted_thinking", "data", &reasoning.redacted_content),
        ];
        for (kind, member, text) in pieces {
            let Some(text) = text.as_ref().map(|text| &*text.0).filter(|text| !text.is_empty()) else {
                continue;
            };
            if member == "thinking" {
                self.chunks.text(0, "reasoning_content", text);
            }
            if self.thinking_blocks {
                let mut json = JsonWriter::default();
                write_thinking(Some(self.thoughts.saturating_sub(1)), kind, &[(member, text)], &mut json);
                self.chunks.thinking_blocks(0, &json.finish());
            }
        }
    }
}

/// Translates an exception into a chat error.
fn exception(kind: &str, payload: &[u8]) -> StreamError {
    let read = StreamError::of_odd(payload);
    let said = read.map(|read| read.message).unwrap_or_default();
    let status = match kind.to_ascii_lowercase() {
        kind if kind.contains("throttling") || kind.contains("modelnotready") || kind.contains("quota") => {
            429
        }
        kind if kind.contains("validation") => 400,
        kind if kind.contains("accessdenied") => 403,
        kind if kind.contains("notfound") => 404,
        kind if kind.contains("timeout") => 408,
        kind if kind.contains("unavailable") => 503,
        kind if kind.contains("model") => 502,
        _ => 500,
    };
    let words = match status {
        429 => "rate_limit_error",
        403 => "permission_error",
        400 | 404 => "invalid_request_error",
        _ => "server_error",
    };
    StreamError {
        message: if said.is_empty() { format!("The upstream ended its answer: {kind}.") } else { said },
        kind: Some(words.to_owned()),
        code: Some(if kind.is_empty() { "upstream_error".to_owned() } else { kind.to_owned() }),
        param: None,
        status: Some(status),
        details: None,
    }
}
