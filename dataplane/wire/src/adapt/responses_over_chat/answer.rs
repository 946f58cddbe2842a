//! Writes a chat answer, whole or in chunks, as a Responses answer.

use bytes::Bytes;
use shared::usage::{Finish, TokenCounts};

use super::agents::AgentForm;
use super::echo::EchoedRequest;
use super::event_writer::Status;
use super::items::{OUTPUT_BYTES_MAX, OutputFull, OutputItems};
use super::output_item::PartKind;
use crate::adapt::through_chat::ChatClient;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{BadAnswer, TranslatedAnswer};
use crate::chat::{
    AnswerText, ChatCallDelta, ChatChoice, ChatCompletion, ChatDelta, ChatSink, ChatTextKind, ClientUsage,
    OutputMedia, ThinkingDelta, escape,
};
use crate::envelope::{EnvelopeFamily, StreamError};
use crate::finish_word::finish;
use crate::json::meant_bytes;
use crate::stream::{StreamState, Trouble};

/// The data that all answers to one request share.
#[derive(Debug)]
pub(super) struct ResponsesForm {
    echo: EchoedRequest,
    /// The client's names of the tools that were renamed for the target.
    names: ToolNames,
    agents: AgentForm,
}

impl ResponsesForm {
    pub(super) fn new(echo: EchoedRequest, names: ToolNames, agents: AgentForm) -> Self {
        Self { echo, names, agents }
    }
}

impl ChatClient for ResponsesForm {
    fn whole(&self, completion: &ChatCompletion<'_>) -> Result<TranslatedAnswer, BadAnswer> {
        let choice = completion.choices.first().ok_or(BadAnswer::Invalid("it has no choices"))?;
        let mut sink = ResponsesSink::new(self, Vec::new());
        let status = status_of(finish(choice.finish_reason.as_bytes()));
        let usage = completion.counts.unwrap_or_default();
        if sink.choice(choice).is_err() || sink.output.finish(status, usage).is_err() {
            return Err(BadAnswer::Invalid("it is larger than 16 MiB"));
        }
        Ok(TranslatedAnswer {
            body: sink.output.response(status, usage),
            usage: completion.counts,
            extras: completion.extras.clone(),
            finish: finish(choice.finish_reason.as_bytes()),
            output_bytes: sink.state.output_bytes,
            dropped: choice.lost_media(|media| !media.is_image()),
        })
    }

    fn sink(&self, secrets: Vec<String>) -> Box<dyn ChatSink> {
        Box::new(ResponsesSink::new(self, secrets))
    }
}

/// Writes a streamed chat answer as a Responses stream.
#[derive(Debug)]
struct ResponsesSink {
    output: OutputItems,
    state: StreamState,
    usage: Option<TokenCounts>,
    finish: Option<Finish>,
    /// Credentials that must not appear in errors.
    secrets: Vec<String>,
    ended: bool,
}

impl ChatSink for ResponsesSink {
    /// Writes nothing: a response begins with its first output, so that failover stays possible until then.
    fn begin(&mut self, _choice: u64) {}

    fn delta(&mut self, choice: u64, delta: ChatDelta<'_>) {
        if choice == 0 && !self.ended && self.put(&delta).is_err() {
            self.fail(&too_large());
        }
    }

    fn finish(&mut self, choice: u64, reason: &str, _stop: Option<&str>) {
        if choice == 0 {
            self.finish = finish(reason.as_bytes());
            self.state.finished = true;
            self.state.finish = self.finish;
        }
    }

    fn usage(&mut self, usage: ClientUsage) {
        self.usage = Some(usage.counts);
    }

    fn done(&mut self) {
        if self.output.finish(status_of(self.finish), self.usage.unwrap_or_default()).is_err() {
            return self.fail(&too_large());
        }
        self.state.content |= self.output.has_items();
        self.state.done = true;
        self.ended = true;
    }

    fn fail(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known).in_words_of(EnvelopeFamily::OpenAi, error.status.unwrap_or(500));
        let code = failure_code(error.code.as_deref(), error.status.unwrap_or(500));
        self.output.fail(code, &error.message);
        self.state.error = Some(error);
        self.ended = true;
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.output.fail(failure_code(Some(trouble.row.code), trouble.row.status), trouble.message);
        self.output.take().unwrap_or_default()
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

    fn reserve(&mut self, bytes: usize) {
        self.output.reserve(bytes);
    }

    fn flush(&mut self, out: &mut Vec<Bytes>) {
        out.extend(self.output.take());
    }
}

impl ResponsesSink {
    fn new(form: &ResponsesForm, secrets: Vec<String>) -> Self {
        Self {
            output: OutputItems::new(form.echo.clone(), form.names.clone(), form.agents.clone()),
            state: StreamState::default(),
            usage: None,
            finish: None,
            secrets,
            ended: false,
        }
    }

    fn put(&mut self, delta: &ChatDelta<'_>) -> Result<(), OutputFull> {
        match delta {
            ChatDelta::Text(kind, text) => {
                let text = text.escaped();
                if text.is_empty() {
                    return Ok(());
                }
                match kind {
                    ChatTextKind::Content => self.output.message(PartKind::Text, text.as_bytes())?,
                    ChatTextKind::Reasoning => self.output.reasoning(text.as_bytes())?,
                    ChatTextKind::Refusal => self.output.message(PartKind::Refusal, text.as_bytes())?,
                }
                self.seen(meant_bytes(text.as_bytes()));
            }
            ChatDelta::Call(call) => {
                self.output.call(call)?;
                let lengths = [call.input, call.name].map(|text| meant_bytes(text.escaped().as_bytes()));
                self.seen(lengths.iter().sum());
            }
            ChatDelta::Media(media) => {
                match media {
                    OutputMedia::Inline { media_type, base64 } if media.is_image() => {
                        self.output.image(media_type, base64)?;
                    }
                    OutputMedia::Inline { .. } | OutputMedia::Url(_) => {
                        let mark = escape(media.mark().into());
                        self.output.message(PartKind::Text, mark.as_bytes())?;
                    }
                }
                self.seen(0);
            }
            ChatDelta::Thinking(piece) => {
                self.output.thinking(piece)?;
                self.seen(0);
            }
            ChatDelta::Signature(signature) => self.output.signature(&signature.plain())?,
            ChatDelta::Logprobs(_) => {}
        }
        Ok(())
    }

    /// Writes a choice of a whole answer.
    fn choice(&mut self, choice: &ChatChoice<'_>) -> Result<(), OutputFull> {
        let reasoning = AnswerText::Escaped(&choice.reasoning);
        self.put(&ChatDelta::Text(ChatTextKind::Reasoning, reasoning))?;
        for (index, block) in (0..).zip(&choice.thinking_blocks) {
            for (part, text) in block.parts() {
                let text = AnswerText::Escaped(text);
                self.put(&ChatDelta::Thinking(ThinkingDelta { index, part, text }))?;
            }
        }
        for (kind, text) in
            [(ChatTextKind::Content, &choice.content), (ChatTextKind::Refusal, &choice.refusal)]
        {
            self.put(&ChatDelta::Text(kind, AnswerText::Escaped(text)))?;
        }
        if let Some(signature) = &choice.signature {
            self.put(&ChatDelta::Signature(AnswerText::Plain(signature)))?;
        }
        for media in &choice.media {
            self.put(&ChatDelta::Media(media.clone()))?;
        }
        for (position, call) in choice.calls.iter().enumerate() {
            self.put(&ChatDelta::Call(ChatCallDelta {
                begins: true,
                index: None,
                position,
                siblings: choice.calls.len(),
                id: AnswerText::Escaped(&call.id),
                name: AnswerText::Escaped(&call.name),
                input: AnswerText::Escaped(&call.input),
                custom: call.custom,
                signature: call.signature.clone(),
            }))?;
        }
        Ok(())
    }

    /// Records received output. `content` stays false while the only item is a call whose name has not arrived.
    fn seen(&mut self, bytes: usize) {
        self.state.content |= self.output.has_items();
        self.state.add_text(bytes);
    }
}

fn status_of(finish: Option<Finish>) -> Status<'static> {
    match finish {
        Some(Finish::Length | Finish::ContextFull) => Status::Incomplete("max_output_tokens"),
        Some(Finish::ContentFilter) => Status::Incomplete("content_filter"),
        Some(
            Finish::Stop
            | Finish::StopSequence
            | Finish::ToolCalls
            | Finish::Refusal
            | Finish::Pause
            | Finish::Error
            | Finish::Other,
        )
        | None => Status::Completed,
    }
}

/// Maps an error code to the closed list of codes that a failed response may have.
fn failure_code(code: Option<&str>, status: u16) -> &'static str {
    const KNOWN: [&str; 4] =
        ["rate_limit_exceeded", "context_length_exceeded", "insufficient_quota", "invalid_prompt"];
    let known = KNOWN.into_iter().find(|known| Some(*known) == code);
    known.unwrap_or(if status == 429 { "rate_limit_exceeded" } else { "server_error" })
}

fn too_large() -> StreamError {
    let bytes = OUTPUT_BYTES_MAX / (1024 * 1024);
    StreamError {
        message: format!(
            "The upstream's response is too large to be adapted: more than {bytes} MiB, 1,024 tool \
             calls, 1 KiB of the id or the name of one, or 64 KiB of one without a name."
        ),
        status: Some(502),
        ..StreamError::default()
    }
}
