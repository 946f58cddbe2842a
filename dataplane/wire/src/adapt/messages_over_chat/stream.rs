//! Translates a chat stream into a Messages stream.
//!
//! ```text
//! Before --first chunk, no error--> Begun --[DONE], or the end after a finish reason--> Closed
//!    '-----------------error-----------'----------------------error---------------------^
//! ```
//!
//! Memory is bounded by one event and by the buffers: the arguments of
//! calls that are not open, and text that arrived while one was ([`WAITING_BYTES_MAX`] each).

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use super::calls::{StreamedCalls, TooMuch, WAITING_BYTES_MAX};
use super::chunk::{
    ChatChunk, ChatChunkChoice, ChatChunkDelta, ChatContentPiece, ThoughtDelta, between_quotes, pieces,
};
use super::event::{MessagesEventWriter, OpenBlock};
use super::{ChatAnswersAsMessages, Ending};
use crate::chat::FinishReason;
use crate::envelope::{StreamError, error_event, messages_stream_error};
use crate::passthrough::{Alike, Varying};
use crate::sse::{EventFinder, lossy_text};
use crate::stream::{AnswerStream, StreamState, Trouble};

/// The translator of one upstream stream.
#[derive(Debug)]
pub(super) struct MessagesFromChat {
    answers: ChatAnswersAsMessages,
    secrets: Vec<String>,
    state: StreamState,
    events: EventFinder,
    /// Matches chunks that contain only text.
    alike: Alike<OpenBlock>,
    out: MessagesEventWriter,
    calls: StreamedCalls,
    /// Text that arrived while a call was open, still escaped.
    late: String,
    finish: Option<FinishReason>,
    stop: Option<String>,
    has_refusal: bool,
    phase: MessagesStreamPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagesStreamPhase {
    Before,
    Begun,
    Closed,
}

impl MessagesFromChat {
    pub(super) fn new(answers: ChatAnswersAsMessages, secrets: Vec<String>) -> Self {
        Self {
            answers,
            secrets,
            state: StreamState::default(),
            events: EventFinder::default(),
            alike: Alike::new(Varying::Padding),
            out: MessagesEventWriter::default(),
            calls: StreamedCalls::default(),
            late: String::new(),
            finish: None,
            stop: None,
            has_refusal: false,
            phase: MessagesStreamPhase::Before,
        }
    }
}

impl AnswerStream for MessagesFromChat {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        if self.phase != MessagesStreamPhase::Closed {
            let mut events = std::mem::take(&mut self.events);
            if events.push(&chunk, |data| self.event(data)).is_err() {
                self.fail("The upstream sent an event that is too large.");
            }
            self.events = events;
            out.extend(self.out.take());
        }
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        if self.phase == MessagesStreamPhase::Closed {
            return;
        }
        let mut events = std::mem::take(&mut self.events);
        events.end(|data| {
            // Data that does not parse was cut off.
            let is_whole = data.starts_with(b"[DONE]") || serde_json::from_slice::<&RawValue>(data).is_ok();
            is_whole && self.event(data)
        });
        if self.phase != MessagesStreamPhase::Closed && self.state.finished {
            self.finish();
        }
        self.phase = MessagesStreamPhase::Closed;
        out.extend(self.out.take());
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.phase = MessagesStreamPhase::Closed;
        messages_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}

impl MessagesFromChat {
    /// Processes one event. Returns false if nothing may follow it.
    fn event(&mut self, data: &[u8]) -> bool {
        if let Some(like) = self.alike.read(data) {
            self.telling(|told| match like.meaning {
                OpenBlock::Thinking => {
                    told.think(like.text);
                    Ok(())
                }
                OpenBlock::Text | OpenBlock::Tool => told.text(like.text),
            });
            return self.phase != MessagesStreamPhase::Closed;
        }
        if data.is_empty() {
            return true;
        }
        if data.starts_with(b"[DONE]") {
            self.finish();
            return false;
        }
        let text = lossy_text(data);
        match serde_json::from_str::<ChatChunk<'_>>(&text) {
            Ok(chunk) if chunk.error.is_some() || (chunk.choices.is_none() && chunk.usage.is_none()) => {
                self.maybe_error(&text, Some(chunk))
            }
            Ok(chunk) => {
                if let Some((text, block)) = chunk.only_text() {
                    self.alike.learn(data, text.as_bytes(), block);
                }
                self.chunk(&chunk);
            }
            Err(_) => self.maybe_error(&text, None),
        }
        self.phase != MessagesStreamPhase::Closed
    }

    /// Processes an event that looks like an error or has an unknown shape.
    fn maybe_error(&mut self, data: &str, chunk: Option<ChatChunk<'_>>) {
        let document: Value = serde_json::from_str(data).unwrap_or_default();
        match (StreamError::of_document(&document), chunk) {
            (Some(error), _) => self.error(&error),
            (None, Some(chunk)) => self.chunk(&chunk),
            (None, None) => self.fail("The upstream sent an event that is no chunk of a chat answer."),
        }
    }

    fn chunk(&mut self, chunk: &ChatChunk<'_>) {
        if let Some(usage) = chunk.usage() {
            self.state.usage = usage.counts().or(self.state.usage);
            self.state.extras.replace_by(usage.extras());
        }
        if let Some(tier) = chunk.tier() {
            self.state.extras.tier = Some(tier);
        }
        self.begin();
        self.telling(|told| {
            let mut choices = chunk.choices.iter().flatten().filter(|choice| choice.is_first());
            choices.try_for_each(|choice| told.choice(choice))
        });
    }

    /// Runs `tell`, which writes the content of an event, and updates the state if it wrote output.
    fn telling(&mut self, tell: impl FnOnce(&mut Self) -> Result<(), TooMuch>) {
        let outputs = self.out.outputs();
        if tell(self).is_err() {
            self.fail("The upstream mixed more tool calls than can be put in order.");
            return;
        }
        if self.out.outputs() > outputs {
            self.state.content = true;
            self.state.content_events = self.state.content_events.saturating_add(1);
            self.state.output_bytes = self.out.output_bytes();
        }
    }

    fn choice(&mut self, choice: &ChatChunkChoice<'_>) -> Result<(), TooMuch> {
        if let Some(delta) = &choice.delta {
            self.delta(delta)?;
        }
        if let Some(reason) = choice.finish() {
            self.finish = Some(reason);
            self.stop = choice.stop();
            self.state.finished = true;
        }
        Ok(())
    }

    fn delta(&mut self, delta: &ChatChunkDelta<'_>) -> Result<(), TooMuch> {
        if let Some(thoughts) = delta.thoughts().and_then(between_quotes) {
            self.think(thoughts);
        }
        if self.answers.signed {
            delta.thinking_blocks.iter().flatten().for_each(|piece| self.signed(piece));
        }
        if let Some(content) = delta.content {
            match between_quotes(content) {
                Some(text) => self.text(text)?,
                None => self.parts(content)?,
            }
        }
        if let Some(refusal) = delta.refusal.and_then(between_quotes).filter(|text| !text.is_empty()) {
            self.has_refusal = true;
            self.text(refusal)?;
        }
        for call in delta.tool_calls.iter().flatten() {
            self.calls.take(call, &self.answers, &mut self.out)?;
            if !self.calls.is_busy() {
                self.flush_late();
            }
        }
        Ok(())
    }

    fn parts(&mut self, content: &RawValue) -> Result<(), TooMuch> {
        for piece in pieces(content) {
            match piece {
                ChatContentPiece::Text(text) => self.text(&text)?,
                ChatContentPiece::Thought(thought) => self.think(&thought),
            }
        }
        Ok(())
    }

    /// Writes text, or buffers it while a call is open that it would interrupt.
    fn text(&mut self, escaped: &str) -> Result<(), TooMuch> {
        if escaped.is_empty() {
            return Ok(());
        }
        if self.calls.is_busy() {
            self.late.push_str(escaped);
            return if self.late.len() > WAITING_BYTES_MAX { Err(TooMuch) } else { Ok(()) };
        }
        self.write(OpenBlock::Text, escaped);
        Ok(())
    }

    /// Writes thoughts, if the client wants them. They are dropped while a call is incomplete.
    fn think(&mut self, escaped: &str) {
        if self.answers.thinking && !escaped.is_empty() && !self.calls.is_busy() {
            self.write(OpenBlock::Thinking, escaped);
        }
    }

    /// Writes a piece of Claude's signed thoughts. A signature closes their block.
    fn signed(&mut self, piece: &ThoughtDelta<'_>) {
        if let Some(signature) = piece.signature() {
            self.out.ensure(OpenBlock::Thinking);
            self.out.signature(signature);
        }
        if let Some(data) = piece.data() {
            self.out.redacted(data);
        }
    }

    fn write(&mut self, block: OpenBlock, escaped: &str) {
        if self.out.open() == Some(OpenBlock::Tool) {
            self.calls.close();
        }
        self.out.ensure(block);
        self.out.delta(escaped);
    }

    fn flush_late(&mut self) {
        if !self.late.is_empty() {
            let late = std::mem::take(&mut self.late);
            self.write(OpenBlock::Text, &late);
        }
    }

    fn begin(&mut self) {
        if self.phase == MessagesStreamPhase::Before {
            self.phase = MessagesStreamPhase::Begun;
            // Clients display these counts until the stream ends, and most upstreams report usage only then.
            let estimate = TokenCounts { input: self.answers.input_tokens, ..TokenCounts::default() };
            let input = self.state.usage.unwrap_or(estimate);
            let used = TokenCounts { output: 0, reasoning: 0, ..input };
            self.out.start(&self.answers.id, &self.answers.model, used);
        }
    }

    fn finish(&mut self) {
        if let Some(failure) = self.finish.and_then(FinishReason::failure) {
            self.error(&failure.error());
            return;
        }
        self.begin();
        let outputs = self.out.outputs();
        self.calls.go_on(true, &self.answers, &mut self.out);
        let call_is_cut = self.calls.is_cut();
        self.flush_late();
        self.state.content |= self.out.outputs() > outputs;
        self.state.output_bytes = self.out.output_bytes();
        self.out.close();
        let ending = Ending {
            finish: self.finish,
            stop: self.stop.as_deref(),
            has_calls: self.calls.any(),
            call_is_cut,
            has_refusal: self.has_refusal,
        };
        let mut reason = Vec::new();
        ending.write(&self.answers.stops, &mut reason);
        self.out.stop(&reason, self.state.usage);
        self.state.done = true;
        self.phase = MessagesStreamPhase::Closed;
    }

    fn fail(&mut self, message: &str) {
        self.error(&StreamError { message: message.to_owned(), status: Some(502), ..StreamError::default() });
    }

    fn error(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        self.out.event(&error_event(&error));
        self.state.error = Some(error);
        self.phase = MessagesStreamPhase::Closed;
    }
}
