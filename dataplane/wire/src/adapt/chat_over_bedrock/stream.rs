//! Translates streams, which consist of messages in Amazon's binary framing.
//!
//! ```text
//!   messageStart  { contentBlockStart?  contentBlockDelta*  contentBlockStop }*  messageStop  metadata
//! ```
//!
//! Text blocks have no start event. Usage comes last, in `metadata`; a stream that ends after `messageStop` but
//! without `metadata` is complete. Memory is bounded by the size of one message and by the number of calls open at
//! once.

use super::answer::BedrockTarget;
use crate::adapt::chat_client::CallIdentity;
use crate::bedrock::{ConverseDelta, ConverseEvent, ConverseToolUse, Reasoning};
use crate::chat::{
    AnswerText, ChatCallDelta, ChatDelta, ChatSink, ChatSource, ChatTextKind, ChoiceEnd, ThinkingDelta,
    ThinkingPart, end_choice, end_with_usage,
};
use crate::envelope::StreamError;
use crate::eventstream::{EventStreamDecoder, EventStreamMessage};
use crate::finish_word::in_chat_words;
use crate::json::mend_surrogates;
use crate::passthrough::{Alike, Varying};

/// Maximum number of calls whose arguments may be incomplete at once.
const OPEN_MAX: usize = 128;

/// Reads one ConverseStream answer.
#[derive(Debug)]
pub(super) struct BedrockSource {
    decoder: EventStreamDecoder,
    reader: ConverseReader,
}

/// The state needed to continue the answer.
#[derive(Debug)]
struct ConverseReader {
    identity: CallIdentity,
    begun: bool,
    /// Recognises deltas that hold only text.
    alike: Alike<()>,
    /// The number of calls so far.
    calls: u64,
    /// Calls whose blocks have not ended.
    open: Vec<Open>,
    /// The format of the open image.
    image_format: Option<String>,
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

impl BedrockSource {
    pub(super) fn new(target: &BedrockTarget) -> Self {
        let reader = ConverseReader {
            identity: target.calls.clone(),
            begun: false,
            alike: Alike::new(Varying::ShortPadding),
            calls: 0,
            open: Vec::new(),
            image_format: None,
            thinking_blocks: target.thinking_blocks,
            thought: None,
            thoughts: 0,
        };
        Self { decoder: EventStreamDecoder::default(), reader }
    }
}

impl ChatSource for BedrockSource {
    fn push(&mut self, chunk: &[u8], sink: &mut dyn ChatSink) {
        let Self { decoder, reader } = self;
        if let Err(fault) = decoder.push(chunk, &mut |message| reader.message(&message, sink)) {
            sink.fail(&StreamError::unreadable_stream(&fault.to_string()));
        }
    }

    fn end(&mut self, sink: &mut dyn ChatSink) {
        if sink.state().finished {
            end_with_usage(sink);
        }
    }
}

impl ConverseReader {
    /// Handles a message. Returns false if the stream has ended.
    fn message(&mut self, message: &EventStreamMessage<'_>, sink: &mut dyn ChatSink) -> bool {
        match message.header(":message-type") {
            Some("exception") => {
                let kind = message.header(":exception-type").unwrap_or_default();
                sink.fail(&exception(kind, message.payload()));
            }
            Some("error") => {
                let code = message.header(":error-code").unwrap_or_default();
                let error_text = message.header(":error-message").unwrap_or_default();
                sink.fail(&StreamError { message: error_text.to_owned(), ..exception(code, b"") });
            }
            Some(_) | None => {
                self.event(message.header(":event-type").unwrap_or_default(), message.payload(), sink);
            }
        }
        !sink.has_ended()
    }

    fn event(&mut self, kind: &str, payload: &[u8], sink: &mut dyn ChatSink) {
        let known =
            ["contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStart", "messageStop"];
        if kind != "metadata" && !known.contains(&kind) {
            return;
        }
        if kind == "contentBlockDelta"
            && let Some(like) = self.alike.read(payload)
        {
            sink.delta(0, ChatDelta::Text(ChatTextKind::Content, AnswerText::Escaped(like.text)));
            return;
        }
        let mut mended = Vec::new();
        let Some(event) = parsed(payload, &mut mended) else {
            sink.fail(&StreamError::unreadable_stream("an event is not a ConverseStream event"));
            return;
        };
        if !std::mem::replace(&mut self.begun, true) {
            sink.begin(0);
        }
        let block = event.content_block_index;
        match kind {
            "contentBlockDelta" => {
                if let Some(text) = event.delta.as_ref().and_then(ConverseDelta::only_text) {
                    self.alike.learn(payload, text.as_bytes(), ());
                }
                event.delta.into_iter().for_each(|delta| self.delta(block, delta, sink));
            }
            "contentBlockStart" => {
                let Some(start) = event.start else { return };
                self.image_format = start.image.and_then(|image| Some(image.format?.0.into_owned()));
                if let Some(call) = start.tool_use {
                    self.call_begins(block, call, sink);
                }
            }
            "contentBlockStop" => self.block_ends(block, sink),
            "messageStop" => {
                let reason = event.stop_reason.map(|reason| reason.0).unwrap_or_default();
                let reason = in_chat_words(&reason, self.calls > 0);
                end_choice(sink, 0, &ChoiceEnd { reason, ..ChoiceEnd::default() }, None);
            }
            "metadata" => {
                sink.facts().extras.replace_by(event.extras());
                if let Some(usage) = event.usage {
                    sink.facts().usage = Some(usage.counts());
                }
                if sink.state().finished {
                    end_with_usage(sink);
                }
            }
            _ => {}
        }
    }

    fn delta(&mut self, block: u64, delta: ConverseDelta<'_>, sink: &mut dyn ChatSink) {
        if let Some(text) = delta.text {
            sink.delta(0, ChatDelta::Text(ChatTextKind::Content, AnswerText::Plain(&text.0)));
        }
        if let Some(reasoning) = delta.reasoning_content {
            self.reasoning(block, &reasoning, sink);
        }
        if let Some(image) = delta.image.and_then(|image| image.output("image", self.image_format.as_deref()))
        {
            sink.delta(0, ChatDelta::Media(image));
        }
        let fragment = delta.tool_use.and_then(|call| call.input);
        if let Some(fragment) = fragment.filter(|fragment| !fragment.0.is_empty())
            && let Some(open) = self.open.iter_mut().find(|open| open.block == block)
        {
            open.has_arguments = true;
            sink.delta(0, ChatDelta::Call(input_of(open.call, &fragment.0)));
        }
    }

    fn call_begins(&mut self, block: u64, call: ConverseToolUse<'_>, sink: &mut dyn ChatSink) {
        if !call.is_for_the_client() {
            return;
        }
        if self.open.len() >= OPEN_MAX {
            sink.fail(&StreamError::unreadable_stream("too many tool calls are open at the same time"));
            return;
        }
        let id = self.identity.call_id(call.tool_use_id.map(|id| id.0), self.calls);
        let name = self.identity.tool_name(call.name.map(|name| name.0));
        sink.delta(
            0,
            ChatDelta::Call(ChatCallDelta {
                begins: true,
                index: Some(self.calls),
                id: AnswerText::Escaped(&id),
                name: AnswerText::Escaped(&name),
                ..ChatCallDelta::default()
            }),
        );
        self.open.push(Open { block, call: self.calls, has_arguments: false });
        self.calls = self.calls.saturating_add(1);
    }

    fn block_ends(&mut self, block: u64, sink: &mut dyn ChatSink) {
        self.thought = None;
        if let Some(at) = self.open.iter().position(|open| open.block == block) {
            let open = self.open.swap_remove(at);
            if !open.has_arguments {
                sink.delta(0, ChatDelta::Call(input_of(open.call, "{}")));
            }
        }
    }

    fn reasoning(&mut self, block: u64, reasoning: &Reasoning<'_>, sink: &mut dyn ChatSink) {
        if self.thought != Some(block) {
            self.thought = Some(block);
            self.thoughts = self.thoughts.saturating_add(1);
        }
        let pieces = [
            (ThinkingPart::Text, &reasoning.text),
            (ThinkingPart::Signature, &reasoning.signature),
            (ThinkingPart::Redacted, &reasoning.redacted_content),
        ];
        for (part, text) in pieces {
            let Some(text) = text.as_ref().map(|text| &*text.0).filter(|text| !text.is_empty()) else {
                continue;
            };
            let text = AnswerText::Plain(text);
            if part == ThinkingPart::Text {
                sink.delta(0, ChatDelta::Text(ChatTextKind::Reasoning, text));
            }
            if self.thinking_blocks {
                let index = self.thoughts.saturating_sub(1);
                sink.delta(0, ChatDelta::Thinking(ThinkingDelta { index, part, text }));
            }
        }
    }
}

/// Returns the event. One with half of a surrogate pair is parsed from `mended`, where the half has been replaced.
fn parsed<'a>(payload: &'a [u8], mended: &'a mut Vec<u8>) -> Option<ConverseEvent<'a>> {
    if let Ok(event) = serde_json::from_slice(payload) {
        return Some(event);
    }
    mended.extend_from_slice(payload);
    if mend_surrogates(mended) { serde_json::from_slice(mended).ok() } else { None }
}

/// Returns a fragment of the arguments of a call.
fn input_of(call: u64, fragment: &str) -> ChatCallDelta<'_> {
    ChatCallDelta { index: Some(call), input: AnswerText::Plain(fragment), ..ChatCallDelta::default() }
}

/// Translates an exception into a chat error.
fn exception(kind: &str, payload: &[u8]) -> StreamError {
    let read = StreamError::of_odd(payload);
    let error_text = read.map(|read| read.message).unwrap_or_default();
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
        message: if error_text.is_empty() {
            format!("The upstream ended its response: {kind}.")
        } else {
            error_text
        },
        kind: Some(words.to_owned()),
        code: Some(if kind.is_empty() { "upstream_error".to_owned() } else { kind.to_owned() }),
        param: None,
        status: Some(status),
        details: None,
        nested: None,
    }
}
