//! Writes a streamed chat answer as a Messages stream.
//!
//! ```text
//! Before --first chunk, no error--> Begun --end of the answer--> Closed
//!    '-----------------error-----------'----------error------------^
//! ```
//!
//! Memory is bounded by the buffers: the arguments of calls that are not open, and text that arrived while one was
//! ([`WAITING_BYTES_MAX`] each).

use bytes::Bytes;
use shared::usage::{Finish, TokenCounts};

use super::calls::{StreamedCalls, TooMuch, WAITING_BYTES_MAX};
use super::event::{MessagesEventWriter, OpenBlock};
use super::{Ending, MessagesForm};
use crate::chat::{ChatDelta, ChatSink, ChatTextKind, ClientUsage, ThinkingDelta, ThinkingPart, escape};
use crate::envelope::{StreamError, error_event, messages_stream_error};
use crate::finish_word::finish;
use crate::stream::{StreamState, Trouble};

/// The writer of one stream.
#[derive(Debug)]
pub(super) struct MessagesSink {
    form: MessagesForm,
    secrets: Vec<String>,
    state: StreamState,
    out: MessagesEventWriter,
    calls: StreamedCalls,
    /// Text that arrived while a call was open, still escaped.
    late: String,
    usage: Option<TokenCounts>,
    finish: Option<Finish>,
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

impl MessagesSink {
    pub(super) fn new(form: MessagesForm, secrets: Vec<String>) -> Self {
        Self {
            form,
            secrets,
            state: StreamState::default(),
            out: MessagesEventWriter::default(),
            calls: StreamedCalls::default(),
            late: String::new(),
            usage: None,
            finish: None,
            stop: None,
            has_refusal: false,
            phase: MessagesStreamPhase::Before,
        }
    }
}

impl ChatSink for MessagesSink {
    fn begin(&mut self, _choice: u64) {
        self.start();
    }

    fn delta(&mut self, choice: u64, delta: ChatDelta<'_>) {
        if choice != 0 || self.has_ended() {
            return;
        }
        let outputs = self.out.outputs();
        if self.put(delta).is_err() {
            self.fail_with("The upstream interleaved too many tool calls.");
            return;
        }
        if self.out.outputs() > outputs {
            self.state.content = true;
            self.state.content_events = self.state.content_events.saturating_add(1);
            self.state.output_bytes = self.out.output_bytes();
        }
    }

    fn finish(&mut self, choice: u64, reason: &str, stop: Option<&str>) {
        if choice == 0 {
            self.finish = finish(reason.as_bytes());
            self.stop = stop.map(str::to_owned);
            self.state.finished = true;
            self.state.finish = self.finish;
        }
    }

    fn usage(&mut self, usage: ClientUsage) {
        self.usage = Some(usage.counts);
    }

    fn done(&mut self) {
        self.start();
        let outputs = self.out.outputs();
        self.calls.go_on(true, &self.form, &mut self.out);
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
        ending.write(&self.form.stops, &mut reason);
        self.out.stop(&reason, self.usage);
        self.state.done = true;
        self.phase = MessagesStreamPhase::Closed;
    }

    fn fail(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        self.out.event(&error_event(&error));
        self.state.error = Some(error);
        self.phase = MessagesStreamPhase::Closed;
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        messages_stream_error(trouble.row, trouble.message, trouble.request_id)
    }

    fn has_ended(&self) -> bool {
        self.phase == MessagesStreamPhase::Closed
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn facts(&mut self) -> &mut StreamState {
        &mut self.state
    }

    fn flush(&mut self, out: &mut Vec<Bytes>) {
        out.extend(self.out.take());
    }
}

impl MessagesSink {
    fn put(&mut self, delta: ChatDelta<'_>) -> Result<(), TooMuch> {
        match delta {
            ChatDelta::Text(kind, text) => {
                let text = text.escaped();
                match kind {
                    ChatTextKind::Content => self.text(&text),
                    ChatTextKind::Reasoning => {
                        self.think(&text);
                        Ok(())
                    }
                    ChatTextKind::Refusal => {
                        self.has_refusal |= !text.is_empty();
                        self.text(&text)
                    }
                }
            }
            ChatDelta::Thinking(piece) => {
                self.signed(&piece);
                Ok(())
            }
            // A Messages client offers no tools that take free text.
            ChatDelta::Call(call) if call.custom => Ok(()),
            ChatDelta::Call(call) => {
                self.calls.take(&call, &self.form, &mut self.out)?;
                if !self.calls.is_busy() {
                    self.flush_late();
                }
                Ok(())
            }
            ChatDelta::Media(media) => {
                // A block of an answer cannot hold media.
                let mark = escape(media.mark().into());
                let gap = if self.out.open() == Some(OpenBlock::Text) { r"\n\n" } else { "" };
                self.text(&[gap, &mark].concat())
            }
            ChatDelta::Signature(_) | ChatDelta::Logprobs(_) => Ok(()),
        }
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
        if self.form.thinking && !escaped.is_empty() && !self.calls.is_busy() {
            self.write(OpenBlock::Thinking, escaped);
        }
    }

    /// Writes a piece of Claude's signed thoughts, except their text, which also arrives as reasoning. A signature
    /// closes their block.
    fn signed(&mut self, piece: &ThinkingDelta<'_>) {
        let text = piece.text.escaped();
        match piece.part {
            _ if text.is_empty() => {}
            ThinkingPart::Text => {}
            ThinkingPart::Signature => {
                self.out.ensure(OpenBlock::Thinking);
                self.out.signature(&text);
            }
            ThinkingPart::Redacted => self.out.redacted(&text),
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

    /// Writes the start of the message, unless it has been written.
    fn start(&mut self) {
        if self.phase == MessagesStreamPhase::Before {
            self.phase = MessagesStreamPhase::Begun;
            // Clients display these counts until the stream ends, and most upstreams report usage only then.
            let estimate = TokenCounts { input: self.form.input_tokens, ..TokenCounts::default() };
            let input = self.usage.unwrap_or(estimate);
            let used = TokenCounts { output: 0, reasoning: 0, ..input };
            self.out.start(&self.form.id, &self.form.model, used);
        }
    }

    fn fail_with(&mut self, message: &str) {
        self.fail(&StreamError::of_bad_answer(message));
    }
}
