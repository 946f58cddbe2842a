//! Reads Messages streams.
//!
//! Text is passed on as received. Memory is bounded: one incomplete event, and a few numbers for each of at most
//! [`OPEN_MAX`] open blocks.

use super::answer::{MessagesTarget, arguments};
use crate::chat::{
    AnswerText, ChatCallDelta, ChatDelta, ChatEvents, ChatSink, ChatTextKind, ChoiceEnd, ThinkingDelta,
    ThinkingPart, end_answer, end_choice,
};
use crate::envelope::StreamError;
use crate::finish_word::in_chat_words;
use crate::messages::MessagesUsage;
use crate::messages::document::{self, MessagesBlock, MessagesEvent};
use crate::passthrough::{Alike, Varying};
use crate::sse::lossy_text;

/// Maximum number of blocks open at once. Anthropic opens one after the other.
const OPEN_MAX: usize = 64;

/// Reads the events of one Messages stream.
#[derive(Debug)]
pub(super) struct MessagesReader {
    target: MessagesTarget,
    /// Recognises deltas that differ only in their text.
    alike: Alike<MessagesDeltaTarget>,
    begun: bool,
    usage: MessagesUsage,
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

/// The part of the answer to which a delta is appended.
#[derive(Clone, Copy, Debug)]
enum MessagesDeltaTarget {
    Text,
    Thinking,
    /// The arguments of the call in this block.
    Arguments(u64),
}

impl ChatEvents for MessagesReader {
    fn event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        if self.read(data, sink).is_err() {
            sink.fail(&StreamError::of_words(UNREADABLE));
        }
    }

    fn last_event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        // Data that does not parse was cut off.
        let _ = self.read(data, sink);
    }

    fn end(&mut self, sink: &mut dyn ChatSink) {
        if self.stop_reason.is_some() {
            self.finish(sink);
        }
    }

    fn too_large() -> StreamError {
        StreamError::of_words("The upstream sent an event that is too large.")
    }
}

impl MessagesReader {
    pub(super) fn new(target: MessagesTarget) -> Self {
        Self {
            target,
            alike: Alike::new(Varying::Blanks),
            begun: false,
            usage: MessagesUsage::default(),
            stop_reason: None,
            calls: 0,
            open: Vec::new(),
            thoughts: 0,
        }
    }

    fn read(&mut self, data: &[u8], sink: &mut dyn ChatSink) -> serde_json::Result<()> {
        if let Some(like) = self.alike.read(data) {
            self.piece(like.meaning, like.text, sink);
            return Ok(());
        }
        // An empty event, `[DONE]` as some vendors send it, or noise.
        if data.first() == Some(&b'{') {
            let text = lossy_text(data);
            self.apply(&serde_json::from_str(&text)?, &text, sink);
        }
        Ok(())
    }

    fn apply(&mut self, event: &MessagesEvent<'_>, text: &str, sink: &mut dyn ChatSink) {
        let kind = document::word(event.kind);
        if kind == "error" || event.error.is_some() {
            let error = StreamError::of_odd(text.as_bytes());
            sink.fail(&error.unwrap_or_else(|| StreamError::of_words(UNNAMED)).in_open_ai_words());
            return;
        }
        match &*kind {
            "message_start" => {
                let message: MessagesEvent<'_> = document::object(event.message).unwrap_or_default();
                message.usage.into_iter().for_each(|reported| self.usage.update(reported));
                sink.facts().input = self.usage.counts();
                sink.facts().extras = self.usage.extras();
                self.begin(sink);
            }
            "content_block_start" => {
                self.block_begins(
                    index(event),
                    &document::object(event.content_block).unwrap_or_default(),
                    sink,
                );
            }
            "content_block_delta" => {
                self.delta(text, index(event), &document::object(event.delta).unwrap_or_default(), sink);
            }
            "content_block_stop" => self.block_ends(index(event), sink),
            "message_delta" => self.message_delta(event, sink),
            "message_stop" => self.finish(sink),
            // `ping`, and events that are not known yet.
            _ => {}
        }
    }

    fn begin(&mut self, sink: &mut dyn ChatSink) {
        if !std::mem::replace(&mut self.begun, true) {
            sink.begin(0);
        }
    }

    fn block_begins(&mut self, block: u64, begun: &MessagesBlock<'_>, sink: &mut dyn ChatSink) {
        match &*document::word(begun.kind) {
            "text" => self.text(ChatTextKind::Content, document::inner(begun.text).unwrap_or_default(), sink),
            "thinking" => {
                self.thoughts = self.thoughts.saturating_add(1);
                self.thought(begun, sink);
            }
            "redacted_thinking" => {
                self.thoughts = self.thoughts.saturating_add(1);
                if let Some(data) = document::inner(begun.data) {
                    self.thinking_block(ThinkingPart::Redacted, data, sink);
                }
            }
            "tool_use" => self.call_begins(block, begun, sink),
            // An image, a tool that the target runs itself, or a block type that is not known yet.
            _ => {
                if let Some(media) = begun.media() {
                    self.begin(sink);
                    sink.delta(0, ChatDelta::Media(media));
                }
            }
        }
    }

    fn delta(&mut self, event: &str, block: u64, delta: &MessagesBlock<'_>, sink: &mut dyn ChatSink) {
        let (piece, text) = match &*document::word(delta.kind) {
            "text_delta" => (MessagesDeltaTarget::Text, delta.text),
            "thinking_delta" if !self.target.thinking_blocks => {
                (MessagesDeltaTarget::Thinking, delta.thinking)
            }
            "thinking_delta" | "signature_delta" => return self.thought(delta, sink),
            "input_json_delta" => (MessagesDeltaTarget::Arguments(block), delta.partial_json),
            _ => return,
        };
        let text = document::inner(text).unwrap_or_default();
        self.alike.learn(event.as_bytes(), text.as_bytes(), piece);
        self.piece(piece, text, sink);
    }

    fn piece(&mut self, piece: MessagesDeltaTarget, escaped: &str, sink: &mut dyn ChatSink) {
        match piece {
            MessagesDeltaTarget::Text => self.text(ChatTextKind::Content, escaped, sink),
            MessagesDeltaTarget::Thinking => self.text(ChatTextKind::Reasoning, escaped, sink),
            MessagesDeltaTarget::Arguments(block) => {
                self.arguments(block, AnswerText::Escaped(escaped), sink);
            }
        }
    }

    fn message_delta(&mut self, event: &MessagesEvent<'_>, sink: &mut dyn ChatSink) {
        event.usage.into_iter().for_each(|reported| self.usage.update(reported));
        sink.facts().usage = self.usage.counts();
        sink.facts().extras = self.usage.extras();
        let delta: MessagesBlock<'_> = document::object(event.delta).unwrap_or_default();
        let stop_reason = document::word(delta.stop_reason);
        if !stop_reason.is_empty() {
            self.stop_reason = Some(stop_reason.into_owned());
            sink.facts().finished = true;
        }
        self.text(ChatTextKind::Refusal, document::refusal(delta.stop_details).unwrap_or_default(), sink);
    }

    fn text(&mut self, kind: ChatTextKind, escaped: &str, sink: &mut dyn ChatSink) {
        if !escaped.is_empty() {
            self.begin(sink);
            sink.delta(0, ChatDelta::Text(kind, AnswerText::Escaped(escaped)));
        }
    }

    /// Passes on thoughts or their signature, which comes last.
    fn thought(&mut self, thought: &MessagesBlock<'_>, sink: &mut dyn ChatSink) {
        if let Some(text) = document::inner(thought.thinking) {
            self.text(ChatTextKind::Reasoning, text, sink);
            self.thinking_block(ThinkingPart::Text, text, sink);
        }
        if let Some(signature) = document::inner(thought.signature) {
            self.thinking_block(ThinkingPart::Signature, signature, sink);
        }
    }

    fn thinking_block(&mut self, part: ThinkingPart, escaped: &str, sink: &mut dyn ChatSink) {
        if self.target.thinking_blocks {
            self.begin(sink);
            let (index, text) = (self.thoughts.saturating_sub(1), AnswerText::Escaped(escaped));
            sink.delta(0, ChatDelta::Thinking(ThinkingDelta { index, part, text }));
        }
    }

    fn call_begins(&mut self, block: u64, begun: &MessagesBlock<'_>, sink: &mut dyn ChatSink) {
        let (Some(id), Some(name)) = (document::inner(begun.id), document::inner(begun.name)) else {
            return sink.fail(&StreamError::of_words(UNREADABLE));
        };
        if self.open.len() >= OPEN_MAX {
            return sink.fail(&StreamError::of_words(TOO_MANY));
        }
        self.begin(sink);
        let call = self.calls;
        self.calls = call.saturating_add(1);
        sink.delta(
            0,
            ChatDelta::Call(ChatCallDelta {
                begins: true,
                index: Some(call),
                id: AnswerText::Escaped(id),
                name: AnswerText::Escaped(&self.target.names.restore_escaped(name)),
                ..ChatCallDelta::default()
            }),
        );
        self.open.push(OpenCall { block, call, has_arguments: false });
        // Some vendors send the complete input in the start event.
        let input = begun.input.map(|input| arguments(Some(input)));
        if let Some(input) = input.filter(|input| input != "{}" && input != "null") {
            self.arguments(block, AnswerText::Plain(&input), sink);
        }
    }

    /// Appends to the arguments of the call in `block`.
    fn arguments(&mut self, block: u64, input: AnswerText<'_>, sink: &mut dyn ChatSink) {
        let Some(open) = self.open.iter_mut().find(|open| open.block == block) else { return };
        if !input.is_empty() {
            open.has_arguments = true;
            let index = Some(open.call);
            sink.delta(0, ChatDelta::Call(ChatCallDelta { index, input, ..ChatCallDelta::default() }));
        }
    }

    fn block_ends(&mut self, block: u64, sink: &mut dyn ChatSink) {
        if let Some(position) = self.open.iter().position(|open| open.block == block) {
            if self.open.get(position).is_some_and(|open| !open.has_arguments) {
                self.arguments(block, AnswerText::Plain("{}"), sink);
            }
            self.open.remove(position);
        }
    }

    fn finish(&mut self, sink: &mut dyn ChatSink) {
        while let Some(open) = self.open.first().copied() {
            self.block_ends(open.block, sink);
        }
        self.begin(sink);
        let stop_reason = self.stop_reason.take().unwrap_or_default();
        let reason = in_chat_words(&stop_reason, self.calls > 0);
        end_choice(sink, 0, &ChoiceEnd { reason, ..ChoiceEnd::default() }, None);
        sink.facts().usage = self.usage.counts();
        sink.usage(self.usage.for_chat());
        end_answer(sink);
    }
}

fn index(event: &MessagesEvent<'_>) -> u64 {
    event.index.and_then(|index| index.get().parse().ok()).unwrap_or(0)
}

const UNREADABLE: &str = "The upstream sent an event that cannot be parsed.";
const UNNAMED: &str = "The upstream ended its response with an error.";
const TOO_MANY: &str = "The upstream calls too many tools at the same time.";
