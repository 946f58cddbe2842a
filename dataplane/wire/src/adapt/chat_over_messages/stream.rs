//! A Messages stream as chat chunks.
//!
//! One event in, its chunks out, in the bytes that the text came in. What is kept is bounded: one event that is
//! not whole yet ([`crate::adapt::events`]), and a few numbers for each of at most [`OPEN_MAX`] open blocks.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::Value;

use super::form::{Form, Wishes};
use super::response::arguments;
use super::said::{self, Block, Said};
use super::usage::Usage;
use crate::adapt::events::Events;
use crate::adapt::write;
use crate::envelope::{self, StreamError};
use crate::json::text_length;
use crate::stream::{AnswerStream, StreamState, Trouble};

/// Blocks that may be open at once. Anthropic opens one after the other.
const OPEN_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct ChatChunks {
    wishes: Wishes,
    secrets: Vec<String>,
    events: Events,
    /// What every chunk begins with, up to the members of its delta.
    before: Vec<u8>,
    written: BytesMut,
    state: StreamState,
    /// The role chunk is out.
    begun: bool,
    /// The last event is out.
    stopped: bool,
    usage: Usage,
    stop_reason: Option<String>,
    /// Calls so far.
    calls: u64,
    open: Vec<OpenCall>,
    /// Blocks of thoughts so far.
    thoughts: u64,
}

/// A call that goes on.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    /// The target's number of the block.
    block: u64,
    /// The client's number of the call: blocks of text are not counted.
    call: u64,
    has_arguments: bool,
}

impl ChatChunks {
    pub(super) fn new(form: &Form, secrets: Vec<String>) -> Self {
        let mut before = form.chunk();
        before.extend_from_slice(br#"{"index":0,"delta":{"#);
        Self {
            wishes: form.wishes,
            secrets,
            events: Events::default(),
            before,
            written: BytesMut::new(),
            state: StreamState::default(),
            begun: false,
            stopped: false,
            usage: Usage::default(),
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
            self.event(data, Tail::Whole);
            !self.stopped
        });
        self.events = events;
        if heard.is_err() {
            self.fail_with(TOO_LARGE);
        }
        self.flush(out);
    }

    fn end(&mut self, out: &mut Vec<Bytes>) {
        if self.stopped {
            return;
        }
        let mut events = std::mem::take(&mut self.events);
        events.end(|data| {
            self.event(data, Tail::Cut);
            false
        });
        if !self.stopped && self.stop_reason.is_some() {
            self.finish();
        }
        self.stopped = true;
        self.flush(out);
    }

    fn state(&self) -> &StreamState {
        &self.state
    }

    fn trouble(&mut self, trouble: Trouble<'_>) -> Bytes {
        envelope::chat_stream_error(trouble.row, trouble.message, trouble.request_id)
    }
}

/// Whether an event's end has been seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Whole,
    Cut,
}

impl ChatChunks {
    fn event(&mut self, data: &[u8], tail: Tail) {
        if let Some((member, text)) = plain_delta(data)
            && (member == Text::Content || !self.wishes.thinking_blocks)
        {
            self.text(member, text);
            return;
        }
        if data.is_empty() || data.starts_with(b"[DONE]") {
            return;
        }
        // What is not UTF-8 is replaced, as clients do.
        let text = String::from_utf8_lossy(data);
        match serde_json::from_str::<Said<'_>>(&text) {
            Ok(said) => self.said(&said, &text),
            Err(_) if data.first() == Some(&b'{') && tail == Tail::Whole => self.fail_with(UNREADABLE),
            Err(_) => {}
        }
    }

    fn said(&mut self, said: &Said<'_>, text: &str) {
        let kind = said::word(said.kind);
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
                let message: Said<'_> = said::read(said.message).unwrap_or_default();
                message.usage.into_iter().for_each(|told| self.usage.hear(told));
                self.begin();
            }
            "content_block_start" => {
                self.block_begins(index(said), &said::read(said.content_block).unwrap_or_default());
            }
            "content_block_delta" => self.delta(index(said), &said::read(said.delta).unwrap_or_default()),
            "content_block_stop" => self.block_ends(index(said)),
            "message_delta" => self.message_delta(said),
            "message_stop" => self.finish(),
            // `ping`, and what is yet to come.
            _ => {}
        }
    }

    fn block_begins(&mut self, block: u64, begun: &Block<'_>) {
        match &*said::word(begun.kind) {
            "text" => self.text(Text::Content, said::inner(begun.text).unwrap_or_default()),
            "thinking" => {
                self.thoughts = self.thoughts.saturating_add(1);
                self.thought(begun);
            }
            "redacted_thinking" => {
                self.thoughts = self.thoughts.saturating_add(1);
                if let Some(data) = said::inner(begun.data) {
                    self.thinking_block("redacted_thinking", "data", data);
                }
            }
            "tool_use" => self.call_begins(block, begun),
            // What the target does by itself.
            _ => {}
        }
    }

    fn delta(&mut self, block: u64, delta: &Block<'_>) {
        match &*said::word(delta.kind) {
            "text_delta" => self.text(Text::Content, said::inner(delta.text).unwrap_or_default()),
            "thinking_delta" | "signature_delta" => self.thought(delta),
            "input_json_delta" => self.arguments(block, said::inner(delta.partial_json).unwrap_or_default()),
            _ => {}
        }
    }

    fn message_delta(&mut self, said: &Said<'_>) {
        said.usage.into_iter().for_each(|told| self.usage.hear(told));
        self.state.usage = self.usage.counts();
        let delta: Block<'_> = said::read(said.delta).unwrap_or_default();
        let stop_reason = said::word(delta.stop_reason);
        if !stop_reason.is_empty() {
            self.stop_reason = Some(stop_reason.into_owned());
            self.state.finished = true;
        }
        self.text(Text::Refusal, said::refusal(delta.stop_details).unwrap_or_default());
    }

    /// Text that is escaped already.
    fn text(&mut self, member: Text, escaped: &str) {
        if !escaped.is_empty() {
            self.output(escaped.len());
            self.chunk(&[member.opening(), escaped.as_bytes(), b"\""]);
        }
    }

    /// Thoughts, or their signature, which comes last.
    fn thought(&mut self, thought: &Block<'_>) {
        let (text, signature) = (said::inner(thought.thinking), said::inner(thought.signature));
        if let Some(text) = text {
            self.text(Text::Reasoning, text);
            self.thinking_block("thinking", "thinking", text);
        }
        if let Some(signature) = signature {
            self.thinking_block("thinking", "signature", signature);
        }
    }

    /// A piece of a block as LiteLLM's clients keep it. By `index` OpenAI's SDKs put the pieces together.
    fn thinking_block(&mut self, kind: &str, member: &str, escaped: &str) {
        if self.wishes.thinking_blocks {
            let index = self.thoughts.saturating_sub(1).to_string();
            let parts = [
                r#""thinking_blocks":[{"index":"#,
                &index,
                r#","type":""#,
                kind,
                r#"",""#,
                member,
                r#"":""#,
                escaped,
                "\"}]",
            ];
            self.chunk(&parts.map(str::as_bytes));
        }
    }

    fn call_begins(&mut self, block: u64, begun: &Block<'_>) {
        let (Some(id), Some(name)) = (said::inner(begun.id), said::inner(begun.name)) else {
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
        if self.wishes.functions {
            self.chunk_of_first(call, &[r#""function_call":{"name":""#, name, r#"","arguments":""}"#]);
        } else {
            let number = call.to_string();
            let parts = [
                r#""tool_calls":[{"index":"#,
                &number,
                r#","id":""#,
                id,
                r#"","type":"function","function":{"name":""#,
                name,
                r#"","arguments":""}}]"#,
            ];
            self.chunk(&parts.map(str::as_bytes));
        }
        self.open.push(OpenCall { block, call, has_arguments: false });
        // Some vendors send the input whole, and at once.
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

    /// More of the arguments of the call in `block`, escaped already.
    fn arguments(&mut self, block: u64, escaped: &str) {
        let Some(open) = self.open.iter_mut().find(|open| open.block == block) else { return };
        if escaped.is_empty() {
            return;
        }
        open.has_arguments = true;
        let call = open.call;
        self.output(escaped.len());
        if self.wishes.functions {
            self.chunk_of_first(call, &[r#""function_call":{"arguments":""#, escaped, r#""}"#]);
        } else {
            let call = call.to_string();
            let parts =
                [r#""tool_calls":[{"index":"#, &call, r#","function":{"arguments":""#, escaped, r#""}}]"#];
            self.chunk(&parts.map(str::as_bytes));
        }
    }

    fn block_ends(&mut self, block: u64) {
        if let Some(position) = self.open.iter().position(|open| open.block == block) {
            if self.open.get(position).is_some_and(|open| !open.has_arguments) {
                self.arguments(block, "{}");
            }
            self.open.remove(position);
        }
    }

    /// An answer in the old form holds one call.
    fn chunk_of_first(&mut self, call: u64, parts: &[&str]) {
        if call == 0 {
            let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            self.chunk(&parts);
        }
    }

    /// The role comes before everything.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.write_chunk(&[br#""role":"assistant","content":"","refusal":null"#], "null");
        }
    }

    fn chunk(&mut self, delta: &[&[u8]]) {
        self.begin();
        self.write_chunk(delta, "null");
    }

    fn write_chunk(&mut self, delta: &[&[u8]], finish_reason: &str) {
        self.written.put_slice(&self.before);
        delta.iter().for_each(|part| self.written.put_slice(part));
        self.written.put_slice(br#"},"logprobs":null,"finish_reason":"#);
        self.written.put_slice(finish_reason.as_bytes());
        let end: &[u8] = if self.wishes.include_usage { b"}],\"usage\":null}\n\n" } else { b"}]}\n\n" };
        self.written.put_slice(end);
    }

    fn finish(&mut self) {
        self.begin();
        while let Some(open) = self.open.first().copied() {
            self.block_ends(open.block);
        }
        let stop_reason = self.stop_reason.take().unwrap_or_default();
        let finish_reason = match said::finish_reason(&stop_reason, self.calls > 0) {
            "tool_calls" if self.wishes.functions => "\"function_call\"",
            "tool_calls" => "\"tool_calls\"",
            "length" => "\"length\"",
            "content_filter" => "\"content_filter\"",
            _ => "\"stop\"",
        };
        self.write_chunk(&[], finish_reason);
        if self.wishes.include_usage {
            let choice = br#"{"index":0,"delta":{"#.len();
            let base = self.before.len().saturating_sub(choice);
            self.written.put_slice(self.before.get(..base).unwrap_or_default());
            self.written.put_slice(br#"],"usage":"#);
            let mut usage = Vec::new();
            self.usage.write(&mut usage);
            self.written.put_slice(&usage);
            self.written.put_slice(b"}\n\n");
        }
        self.written.put_slice(b"data: [DONE]\n\n");
        self.state.usage = self.usage.counts();
        self.state.finished = true;
        self.state.done = true;
        self.stopped = true;
    }

    fn fail_with(&mut self, message: &str) {
        self.fail(&StreamError { message: message.to_owned(), ..StreamError::default() });
    }

    /// The upstream's error ends the stream.
    fn fail(&mut self, error: &StreamError) {
        let known: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let error = error.sanitized(&known);
        self.written.put_slice(&envelope::event_of(&error.in_open_ai_words().to_value()));
        self.state.error = Some(error);
        self.stopped = true;
    }

    fn output(&mut self, bytes: usize) {
        let bytes = bytes.try_into().unwrap_or(u64::MAX);
        self.state.content = true;
        self.state.content_events = self.state.content_events.saturating_add(1);
        self.state.output_bytes = self.state.output_bytes.saturating_add(bytes);
    }

    fn flush(&mut self, out: &mut Vec<Bytes>) {
        if !self.written.is_empty() {
            out.push(self.written.split().freeze());
        }
    }
}

/// Where text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Content,
    Reasoning,
    Refusal,
}

impl Text {
    fn opening(self) -> &'static [u8] {
        match self {
            Self::Content => br#""content":""#,
            Self::Reasoning => br#""reasoning_content":""#,
            Self::Refusal => br#""refusal":""#,
        }
    }
}

fn index(said: &Said<'_>) -> u64 {
    said.index.and_then(|index| index.get().parse().ok()).unwrap_or(0)
}

/// The text of a delta as Anthropic writes it, if nothing in it is escaped: most events are such, and need no
/// reading.
fn plain_delta(data: &[u8]) -> Option<(Text, &str)> {
    let rest = data.strip_prefix(br#"{"type":"content_block_delta","index":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest.get(digits..)?.strip_prefix(br#","delta":{"type":""#)?;
    let (member, rest) = match rest.strip_prefix(br#"text_delta","text":""#) {
        Some(rest) => (Text::Content, rest),
        None => (Text::Reasoning, rest.strip_prefix(br#"thinking_delta","thinking":""#)?),
    };
    let (length, _) = text_length(rest)?;
    let (text, end) = rest.split_at_checked(length)?;
    let is_end = digits > 0 && end.strip_prefix(br#""}"#)?.trim_ascii() == b"}";
    let is_plain = is_end && text.iter().all(|byte| *byte >= b' ' && *byte != b'\\');
    Some((member, std::str::from_utf8(text).ok().filter(|_| is_plain)?))
}

const UNREADABLE: &str = "The upstream sent an event that cannot be read.";
const UNNAMED: &str = "The upstream ended its answer with an error.";
const TOO_LARGE: &str = "The upstream sent an event that is too large to be read.";
const TOO_MANY: &str = "The upstream calls more tools at once than can be followed.";
