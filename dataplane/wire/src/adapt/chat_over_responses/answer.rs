//! Translates a Responses answer, complete or streamed, into a chat answer.

use bytes::Bytes;

use super::chunks::{ChatDeltaMember, ChatToolCall, ResponsesChunkWriter};
use super::event::{ItemKind, Response, ResponseDeltaTarget, ResponseEvent, ResponseItem};
use super::whole::whole;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{ObjectWriter, number};
use crate::adapt::{Answers, Asking, BadAnswer, TranslatedAnswer};
use crate::envelope::{self, StreamError, event_of};
use crate::json::meant_bytes;
use crate::passthrough::{Alike, Varying};
use crate::sse::EventFinder;
use crate::stream::{AnswerStream, StreamState, Trouble};

/// The values shared by all answers to one request.
#[derive(Clone, Debug)]
pub(super) struct Common {
    seed: Box<str>,
    selector: Box<str>,
    pub(super) created_s: u64,
    /// The client asked for usage at the end of a stream.
    pub(super) include_usage: bool,
    /// The client reads calls only in the legacy form (`function_call`).
    pub(super) functions: bool,
    /// Maps the target's tool names back to the client's.
    pub(super) names: ToolNames,
}

impl Common {
    /// Writes the first members of a chunk or a completion.
    pub(super) fn put_head(&self, object: &str, created_s: u64, out: &mut Vec<u8>) {
        let mut head = ObjectWriter::open(out);
        head.text("id", &format!("chatcmpl-{}", self.seed));
        head.text("object", object);
        number(head.key("created"), created_s);
        head.text("model", &self.selector);
    }
}

/// Translates the answers to one request.
#[derive(Debug)]
pub(super) struct ResponsesAnswers {
    common: Common,
}

impl ResponsesAnswers {
    pub(super) fn new(asking: &Asking<'_>, include_usage: bool, functions: bool, names: ToolNames) -> Self {
        let (seed, selector) = (asking.seed.into(), asking.selector.into());
        Self { common: Common { seed, selector, created_s: asking.now_s, include_usage, functions, names } }
    }
}

impl Answers for ResponsesAnswers {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        whole(&self.common, body)
    }

    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        let answer = ResponseReader {
            chunks: ResponsesChunkWriter::new(&self.common),
            names: self.common.names.clone(),
            include_usage: self.common.include_usage,
            state: StreamState::default(),
            begun: false,
            alike: Alike::new(Varying::PaddingAndNumber),
            calls: Vec::new(),
            told: Vec::new(),
            thought: None,
        };
        Box::new(ChatStream { events: EventFinder::default(), answer, secrets, stopped: false })
    }
}

/// Translates a stream of events into a stream of chunks.
#[derive(Debug)]
struct ChatStream {
    events: EventFinder,
    answer: ResponseReader,
    /// Credentials to redact from errors.
    secrets: Vec<String>,
    stopped: bool,
}

impl AnswerStream for ChatStream {
    fn push(&mut self, chunk: Bytes, out: &mut Vec<Bytes>) {
        if self.stopped {
            return;
        }
        let Self { events, answer, secrets, stopped } = self;
        let result = events.push(&chunk, |data| {
            *stopped = answer.take_event(data, secrets);
            !*stopped
        });
        if result.is_err() && !*stopped {
            *stopped = answer.fail(&bad("The upstream sent an event that is too large."), secrets);
        }
        out.extend(answer.chunks.take());
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        let Self { events, answer, secrets, .. } = self;
        // An event cut off by the end of the stream is used only if it is terminal.
        events.end(|data| {
            if ResponseEvent::read(data).is_ok_and(|event| is_terminal(event.kind())) {
                answer.take_event(data, secrets);
            }
            false
        });
        out.extend(answer.chunks.take());
    }

    fn state(&self) -> &StreamState {
        &self.answer.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        self.stopped = true;
        envelope::chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}

fn is_terminal(kind: &[u8]) -> bool {
    matches!(kind, b"response.completed" | b"response.incomplete" | b"response.failed" | b"error")
}

/// The state of an answer while its events are read.
#[derive(Debug)]
struct ResponseReader {
    chunks: ResponsesChunkWriter,
    names: ToolNames,
    include_usage: bool,
    state: StreamState,
    /// The role chunk has been written.
    begun: bool,
    /// Recognises events that differ only in their delta.
    alike: Alike<ResponseDeltaTarget>,
    /// Calls, in the order of chat's indexes.
    calls: Vec<ResponseCall>,
    /// Message parts of which something has been written, as item and part index.
    told: Vec<(u64, u64)>,
    /// The reasoning part that was written last.
    thought: Option<(u64, u64)>,
}

#[derive(Debug)]
struct ResponseCall {
    output_index: u64,
    custom: bool,
    /// Some of its input has been written.
    told: bool,
}

/// Maximum number of calls, and of message parts, in one answer.
const PARTS_MAX: usize = 4096;

/// The answer has more than [`PARTS_MAX`] calls or parts.
#[derive(Clone, Copy, Debug)]
struct TooMany;

impl ResponseReader {
    /// Handles an event. Returns true if the stream has ended.
    fn take_event(&mut self, data: &[u8], secrets: &[String]) -> bool {
        if let Some(like) = self.alike.read(data) {
            return self.piece(like.meaning, like.text.as_bytes(), secrets);
        }
        if data.first() != Some(&b'{') {
            return false;
        }
        let Ok(event) = ResponseEvent::read(data) else {
            let unreadable = || bad("The upstream sent an event that cannot be read.");
            return self.fail(&StreamError::of_odd(data).unwrap_or_else(unreadable), secrets);
        };
        let index = event.output_index.unwrap_or_default();
        let part = (index, event.content_index.unwrap_or_default());
        if let Some(piece) = event.piece() {
            self.alike.learn(data, event.delta(), piece);
            return self.piece(piece, event.delta(), secrets);
        }
        let told = match event.kind() {
            b"response.output_text.done" => self.whole_part(ChatDeltaMember::Content, part, event.whole()),
            b"response.refusal.done" => self.whole_part(ChatDeltaMember::Refusal, part, event.whole()),
            b"response.function_call_arguments.done" | b"response.custom_tool_call_input.done" => {
                self.whole_input(index, event.whole());
                Ok(())
            }
            b"response.output_item.added" => event.item().map_or(Ok(()), |item| self.call(index, &item)),
            b"response.output_item.done" => event.item().map_or(Ok(()), |item| self.item(index, &item)),
            b"response.created" => {
                self.begin();
                Ok(())
            }
            b"response.completed" | b"response.incomplete" => match event.response() {
                Some(response) => return self.finish(&response, secrets),
                None => return self.fail(&bad("The upstream's last event holds no response."), secrets),
            },
            b"response.failed" => {
                let response = event.response();
                response.iter().for_each(|response| self.reported(response));
                return self.fail(&failure(response.as_ref()), secrets);
            }
            b"error" => return self.fail(&odd_error(data), secrets),
            kind => return kind.is_empty() && self.maybe_error(data, secrets),
        };
        self.fails_of(told, secrets)
    }

    /// Handles a delta. Returns true if the stream has ended.
    fn piece(&mut self, piece: ResponseDeltaTarget, raw: &[u8], secrets: &[String]) -> bool {
        let told = match piece {
            ResponseDeltaTarget::Text(part) => self.part(ChatDeltaMember::Content, part, raw),
            ResponseDeltaTarget::Refusal(part) => self.part(ChatDeltaMember::Refusal, part, raw),
            ResponseDeltaTarget::Thought(part) => {
                self.thought(part, raw);
                Ok(())
            }
            ResponseDeltaTarget::Input(index) => {
                self.input(index, raw);
                Ok(())
            }
        };
        self.fails_of(told, secrets)
    }

    /// Fails if the answer has too many parts. Returns true if the stream has ended.
    fn fails_of(&mut self, told: Result<(), TooMany>, secrets: &[String]) -> bool {
        told.is_err() && self.fail(&bad("The upstream's answer has too many parts."), secrets)
    }

    /// Handles an event without a type: it is ignored unless it is an error of another API.
    fn maybe_error(&mut self, data: &[u8], secrets: &[String]) -> bool {
        StreamError::of_odd(data).is_some_and(|error| self.fail(&error, secrets))
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.chunks.role();
        }
    }

    /// Records output of this many bytes.
    fn seen(&mut self, bytes: usize) {
        self.begin();
        let state = &mut self.state;
        state.content = true;
        state.content_events = state.content_events.saturating_add(1);
        state.output_bytes = state.output_bytes.saturating_add(bytes.try_into().unwrap_or(u64::MAX));
    }

    fn text(&mut self, member: ChatDeltaMember, raw: &[u8]) {
        if !raw.is_empty() {
            self.seen(meant_bytes(raw));
            self.chunks.text(member, raw);
        }
    }

    fn part(&mut self, member: ChatDeltaMember, part: (u64, u64), raw: &[u8]) -> Result<(), TooMany> {
        if self.told.last() != Some(&part) && !self.told.contains(&part) {
            if self.told.len() >= PARTS_MAX {
                return Err(TooMany);
            }
            self.told.push(part);
        }
        self.text(member, raw);
        Ok(())
    }

    /// Handles the complete text of a part, which is written only if none of it has been written.
    fn whole_part(&mut self, member: ChatDeltaMember, part: (u64, u64), raw: &[u8]) -> Result<(), TooMany> {
        if self.told.contains(&part) { Ok(()) } else { self.part(member, part, raw) }
    }

    /// Writes reasoning, with a blank line between its parts.
    fn thought(&mut self, part: (u64, u64), raw: &[u8]) {
        if !raw.is_empty() && self.thought.replace(part).is_some_and(|before| before != part) {
            self.text(ChatDeltaMember::Reasoning, br"\n\n");
        }
        self.text(ChatDeltaMember::Reasoning, raw);
    }

    /// Starts a call, unless the item is not a call or has been started already.
    fn call(&mut self, output_index: u64, item: &ResponseItem<'_>) -> Result<(), TooMany> {
        let custom = match item.kind() {
            ItemKind::Function => false,
            ItemKind::Custom => true,
            ItemKind::Message | ItemKind::Reasoning | ItemKind::Other => return Ok(()),
        };
        if self.calls.iter().any(|call| call.output_index == output_index) {
            return Ok(());
        }
        if self.calls.len() >= PARTS_MAX {
            return Err(TooMany);
        }
        self.seen(meant_bytes(item.name()));
        let name = self.names.restore_escaped(item.name());
        let called = ChatToolCall { index: self.calls.len(), id: item.call_id(), name: &name, custom };
        self.chunks.call(called);
        self.calls.push(ResponseCall { output_index, custom, told: false });
        Ok(())
    }

    fn input(&mut self, output_index: u64, raw: &[u8]) {
        let found = self.calls.iter_mut().enumerate().rfind(|(_, call)| call.output_index == output_index);
        let Some((index, call)) = found.filter(|_| !raw.is_empty()) else { return };
        call.told = true;
        let custom = call.custom;
        self.seen(meant_bytes(raw));
        self.chunks.input(index, custom, raw);
    }

    /// Handles the complete input of a call, which is written only if none of it has been written.
    fn whole_input(&mut self, output_index: u64, raw: &[u8]) {
        if self.calls.iter().any(|call| call.output_index == output_index && !call.told) {
            self.input(output_index, raw);
        }
    }

    /// Handles the end of an item: writes the content that has not been written yet.
    fn item(&mut self, index: u64, item: &ResponseItem<'_>) -> Result<(), TooMany> {
        self.call(index, item)?;
        match item.kind() {
            ItemKind::Function | ItemKind::Custom => self.whole_input(index, item.input()),
            ItemKind::Message => {
                for (position, part) in (0..).zip(&item.content()) {
                    let member =
                        if part.is_refusal() { ChatDeltaMember::Refusal } else { ChatDeltaMember::Content };
                    self.whole_part(member, (index, position), part.text())?;
                }
            }
            ItemKind::Reasoning | ItemKind::Other => {}
        }
        Ok(())
    }

    fn finish(&mut self, response: &Response<'_>, secrets: &[String]) -> bool {
        self.begin();
        if !self.state.content {
            for (index, item) in response.items() {
                let told = self.item(index, &item);
                if self.fails_of(told, secrets) {
                    return true;
                }
            }
        }
        self.reported(response);
        self.chunks.finish(self.chunks.finish_reason(response.finish_reason(!self.calls.is_empty())));
        if self.include_usage {
            self.chunks.usage(self.state.usage.unwrap_or_default());
        }
        self.chunks.event(b"data: [DONE]\n\n");
        self.state.finished = true;
        self.state.done = true;
        true
    }

    /// Records the usage reported in the response.
    fn reported(&mut self, response: &Response<'_>) {
        self.state.usage = response.token_counts().or(self.state.usage);
        self.state.extras.replace_by(response.extras());
    }

    fn fail(&mut self, error: &StreamError, secrets: &[String]) -> bool {
        let known: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        self.chunks.event(&event_of(&error.to_value()));
        self.state.error = Some(error);
        true
    }
}

/// Returns the error of a failed response.
pub(super) fn failure(response: Option<&Response<'_>>) -> StreamError {
    let error = response.and_then(|response| serde_json::from_str(response.error?.get()).ok());
    error.as_ref().map_or_else(
        || bad("The upstream's response failed, and it does not say why."),
        StreamError::of_member,
    )
}

fn odd_error(data: &[u8]) -> StreamError {
    StreamError::of_odd(data).unwrap_or_else(|| bad("The upstream sent an error that it did not name."))
}

fn bad(message: &str) -> StreamError {
    StreamError { message: message.to_owned(), status: Some(502), ..StreamError::default() }
}
