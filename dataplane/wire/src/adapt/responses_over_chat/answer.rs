//! Translates a chat answer, whole or in chunks, into a Responses answer.

use bytes::Bytes;

use super::chunk::{SourceChunk, SourceDelta};
use super::echo::EchoedRequest;
use super::event_writer::Status;
use super::items::{OUTPUT_BYTES_MAX, OutputFull, OutputItems, PartKind};
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Answers, BadAnswer, TranslatedAnswer};
use crate::chat::{FinishReason, UsageReader};
use crate::envelope::StreamError;
use crate::extras::Extras;
use crate::json::meant_bytes;
use crate::passthrough::{Alike, Varying};
use crate::sse::EventFinder;
use crate::stream::{AnswerStream, StreamState, Trouble};

/// The data that all answers to one request share.
#[derive(Debug)]
pub(super) struct ChatAnswersAsResponses {
    echo: EchoedRequest,
    /// The client's names of the tools that were renamed for the target.
    names: ToolNames,
}

impl ChatAnswersAsResponses {
    pub(super) fn new(echo: EchoedRequest, names: ToolNames) -> Self {
        Self { echo, names }
    }
}

impl Answers for ChatAnswersAsResponses {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        let Ok(mut chunk) = SourceChunk::read(body) else {
            return Err(BadAnswer::Invalid("it is not a chat completion"));
        };
        if let Some(error) = chunk.error(body) {
            return Err(BadAnswer::Error(error));
        }
        let (reported, tier) = (chunk.usage(), chunk.tier());
        let choice = chunk.choice().ok_or(BadAnswer::Invalid("it holds no choice"))?;
        let finish = choice.finish();
        if let Some(failure) = finish.and_then(FinishReason::failure) {
            return Err(BadAnswer::Error(failure.error()));
        }
        let (usage, extras) = (reported.as_ref().and_then(UsageReader::counts), extras_of(reported, tier));
        let mut answer = ResponseState::new(self.echo.clone(), self.names.clone());
        let told = choice.said().is_none_or(|said| answer.delta(&said).is_ok());
        let status = status_of(finish);
        if !told || answer.output.finish(status, usage.unwrap_or_default()).is_err() {
            return Err(BadAnswer::Invalid("it is larger than 16 MiB"));
        }
        let body = answer.output.response(status, usage.unwrap_or_default());
        Ok(TranslatedAnswer { body, usage, extras, output_bytes: answer.state.output_bytes })
    }

    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        let answer = ResponseState::new(self.echo.clone(), self.names.clone());
        Box::new(ResponsesStream { events: EventFinder::default(), answer, secrets, stopped: false })
    }
}

/// Translates a stream of chunks into a stream of events.
#[derive(Debug)]
struct ResponsesStream {
    events: EventFinder,
    answer: ResponseState,
    /// Credentials that must not appear in errors.
    secrets: Vec<String>,
    stopped: bool,
}

impl AnswerStream for ResponsesStream {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        if self.stopped {
            return;
        }
        let Self { events, answer, secrets, stopped } = self;
        answer.output.reserve(chunk.len());
        let result = events.push(&chunk, |data| {
            *stopped = answer.take_event(data, secrets);
            !*stopped
        });
        if result.is_err() && !*stopped {
            answer.fail(&too_large(), secrets);
            *stopped = true;
        }
        out.extend(answer.output.take());
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        let Self { events, answer, secrets, .. } = self;
        let mut ended = false;
        events.end(|data| {
            ended = answer.take_last_event(data, secrets);
            false
        });
        if !ended && answer.state.finished {
            answer.finish(secrets);
        }
        out.extend(answer.output.take());
    }

    fn state(&self) -> &StreamState {
        &self.answer.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.stopped = true;
        self.answer.output.fail(failure_code(Some(trouble.row.code), trouble.row.status), trouble.message);
        self.answer.output.take().unwrap_or_default()
    }
}

/// The state of the answer that is being read.
#[derive(Debug)]
struct ResponseState {
    output: OutputItems,
    state: StreamState,
    finish: Option<FinishReason>,
    /// Matches chunks that contain only text.
    alike: Alike<()>,
}

impl ResponseState {
    fn new(echo: EchoedRequest, names: ToolNames) -> Self {
        let (state, alike) = (StreamState::default(), Alike::new(Varying::Padding));
        Self { output: OutputItems::new(echo, names), state, finish: None, alike }
    }

    /// Reads one event. Returns true if nothing may follow it.
    fn take_event(&mut self, data: &[u8], secrets: &[String]) -> bool {
        if let Some(like) = self.alike.read(data) {
            let told = self.output.message(PartKind::Text, like.text.as_bytes());
            self.seen(meant_bytes(like.text.as_ref()));
            return told.is_err() && self.fail(&too_large(), secrets);
        }
        if data.starts_with(b"[DONE]") {
            return self.finish(secrets);
        }
        if !matches!(data.first(), Some(b'{' | b'[')) {
            return false;
        }
        let Ok(mut chunk) = SourceChunk::read(data) else {
            return self.fail(&StreamError::of_odd(data).unwrap_or_else(unreadable), secrets);
        };
        let (reported, tier) = (chunk.usage(), chunk.tier());
        self.state.usage = reported.as_ref().and_then(UsageReader::counts).or(self.state.usage);
        self.state.extras.replace_by(extras_of(reported, tier));
        if let Some(error) = chunk.error(data) {
            return self.fail(&error, secrets);
        }
        let plain = chunk.is_plain();
        let Some(choice) = chunk.choice() else { return false };
        let finish = choice.finish();
        if let Some(finish) = finish {
            self.finish = Some(finish);
            self.state.finished = true;
        }
        let Some(said) = choice.said() else { return false };
        if let Some(text) = said.only_text().filter(|_| plain && finish.is_none()) {
            self.alike.learn(data, text, ());
        }
        self.delta(&said).is_err() && self.fail(&too_large(), secrets)
    }

    /// Like `take_event`, for an event without its blank line at the end of the stream. Before a finish reason only its
    /// error counts.
    fn take_last_event(&mut self, data: &[u8], secrets: &[String]) -> bool {
        if self.state.finished {
            return self.take_event(data, secrets);
        }
        match SourceChunk::read(data).ok().and_then(|chunk| chunk.error(data)) {
            Some(error) => self.fail(&error, secrets),
            None => false,
        }
    }

    fn delta(&mut self, delta: &SourceDelta<'_>) -> Result<(), OutputFull> {
        if let Some(raw) = delta.reasoning() {
            self.output.reasoning(&raw)?;
            self.seen(meant_bytes(raw.as_ref()));
        }
        if let Some(raw) = delta.content() {
            self.output.message(PartKind::Text, &raw)?;
            self.seen(meant_bytes(raw.as_ref()));
        }
        if let Some(raw) = delta.refusal() {
            self.output.message(PartKind::Refusal, raw)?;
            self.seen(meant_bytes(raw));
        }
        for fragment in delta.fragments() {
            self.output.call(&fragment)?;
            let input = fragment.input.as_ref().map_or(0, |input| meant_bytes(input.as_ref()));
            self.seen(input.saturating_add(meant_bytes(fragment.name)));
        }
        Ok(())
    }

    /// Records received output. `content` stays false while the only item is a call whose name has not arrived.
    fn seen(&mut self, bytes: usize) {
        let state = &mut self.state;
        state.content |= self.output.has_items();
        state.content_events = state.content_events.saturating_add(1);
        state.output_bytes = state.output_bytes.saturating_add(bytes.try_into().unwrap_or(u64::MAX));
    }

    /// Ends the answer after the upstream's last event. Returns true, as `take_event` does at the end.
    fn finish(&mut self, secrets: &[String]) -> bool {
        if let Some(failure) = self.finish.and_then(FinishReason::failure) {
            return self.fail(&failure.error(), secrets);
        }
        let status = status_of(self.finish);
        match self.output.finish(status, self.state.usage.unwrap_or_default()) {
            Ok(()) => {
                self.state.content |= self.output.has_items();
                self.state.done = true;
            }
            Err(OutputFull) => return self.fail(&too_large(), secrets),
        }
        true
    }

    fn fail(&mut self, error: &StreamError, secrets: &[String]) -> bool {
        let known: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        let code = failure_code(error.code.as_deref(), error.status.unwrap_or(500));
        self.output.fail(code, &error.message);
        self.state.error = Some(error);
        true
    }
}

/// Returns the reported quantities other than tokens.
fn extras_of(reported: Option<UsageReader>, tier: Option<Box<str>>) -> Extras {
    Extras { tier, ..reported.map(|usage| usage.extras()).unwrap_or_default() }
}

fn status_of(finish: Option<FinishReason>) -> Status<'static> {
    match finish {
        Some(FinishReason::Length | FinishReason::ContextFull) => Status::Incomplete("max_output_tokens"),
        Some(FinishReason::Filtered) => Status::Incomplete("content_filter"),
        Some(FinishReason::Stop | FinishReason::Failed(_)) | None => Status::Completed,
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
            "The upstream's answer is too large to be adapted: more than {bytes} MiB, 1,024 tool \
             calls, 1 KiB of the id or the name of one, or 64 KiB of one without a name."
        ),
        status: Some(502),
        ..StreamError::default()
    }
}

fn unreadable() -> StreamError {
    let message = "The upstream sent an event that is no chunk of a chat completion.".to_owned();
    StreamError { message, status: Some(502), ..StreamError::default() }
}
