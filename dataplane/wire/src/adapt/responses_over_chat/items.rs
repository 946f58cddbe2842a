//! Builds the output items of a response and writes their events.
//!
//! Texts stay escaped as in the upstream's JSON, so that they need not be decoded and encoded again. All of them are
//! kept until the last event, which contains the whole output; their total size is bounded.

use bytes::{BufMut as _, Bytes, BytesMut};
use shared::usage::TokenCounts;

use super::calls::{FunctionCallItem, FunctionCallItems};
use super::echo::EchoedRequest;
use super::event_writer::{ResponseEventWriter, Status, event_head, number, write_response};
use crate::adapt::tool_names::ToolNames;
use crate::chat::{ChatCallDelta, escape};

/// The maximum number of bytes kept of one answer.
pub(super) const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The size that an item is counted with, besides its text.
const ITEM_BYTES: usize = 256;

/// The answer exceeds [`OUTPUT_BYTES_MAX`], the number of tool calls, or the length of their ids, names or buffered
/// input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutputFull;

/// The output received so far.
#[derive(Debug)]
pub(super) struct OutputItems {
    echo: EchoedRequest,
    names: ToolNames,
    feed: ResponseEventWriter,
    begun: bool,
    items: Vec<OutputItem>,
    calls: FunctionCallItems,
    /// The open items, to which further reasoning or text is appended.
    reasoning: Option<usize>,
    message: Option<usize>,
    kept_bytes: usize,
    /// The beginning of the last text event; `head_of` is the item and part that it belongs to.
    head: BytesMut,
    head_of: Option<(usize, usize)>,
}

#[derive(Debug)]
struct OutputItem {
    /// `in_progress` until the item is closed.
    status: &'static str,
    body: ItemBody,
}

#[derive(Debug)]
enum ItemBody {
    Reasoning(BytesMut),
    Message(Vec<OutputPart>),
    /// The position of the call in [`FunctionCallItems`].
    Call(usize),
    /// An image: its format, and its bytes in base64.
    Image {
        format: String,
        base64: BytesMut,
    },
}

#[derive(Debug)]
struct OutputPart {
    kind: PartKind,
    text: BytesMut,
}

/// The kind of a message's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Refusal,
}

const IN_PROGRESS: &str = "in_progress";

impl OutputItems {
    /// Creates a response without output.
    pub(super) fn new(echo: EchoedRequest, names: ToolNames) -> Self {
        Self {
            echo,
            names,
            feed: ResponseEventWriter::default(),
            begun: false,
            items: Vec::new(),
            calls: FunctionCallItems::default(),
            reasoning: None,
            message: None,
            kept_bytes: 0,
            head: BytesMut::new(),
            head_of: None,
        }
    }

    /// Reserves room for the events of a read of `bytes` bytes.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.feed.reserve(bytes);
    }

    /// Returns true if any item has been announced.
    pub(super) fn has_items(&self) -> bool {
        !self.items.is_empty()
    }

    /// Returns the events that are ready for the client.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        self.feed.take()
    }

    /// Appends reasoning, which is still escaped.
    pub(super) fn reasoning(&mut self, raw: &[u8]) -> Result<(), OutputFull> {
        let index = match self.reasoning {
            Some(index) => index,
            None => {
                let index = self.add(ItemBody::Reasoning(BytesMut::new()))?;
                self.part_event("added", index, 0);
                self.reasoning = Some(index);
                index
            }
        };
        self.text(index, 0, "response.reasoning_text.delta", raw)
    }

    /// Appends to a message; `raw` is still escaped.
    pub(super) fn message(&mut self, kind: PartKind, raw: &[u8]) -> Result<(), OutputFull> {
        self.close_reasoning();
        let index = match self.message {
            Some(index) => index,
            None => {
                let index = self.add(ItemBody::Message(Vec::new()))?;
                self.message = Some(index);
                index
            }
        };
        let Some(ItemBody::Message(parts)) = self.items.get_mut(index).map(|item| &mut item.body) else {
            return Ok(());
        };
        if parts.last().is_none_or(|part| part.kind != kind) {
            parts.push(OutputPart { kind, text: BytesMut::new() });
            let part = parts.len().saturating_sub(1);
            self.keep(ITEM_BYTES)?;
            self.part_event("added", index, part);
        }
        let part = self.parts_of(index).saturating_sub(1);
        self.text(index, part, kind.delta_name(), raw)
    }

    /// Adds a fragment of a tool call.
    pub(super) fn call(&mut self, fragment: &ChatCallDelta<'_>) -> Result<(), OutputFull> {
        self.close_reasoning();
        self.close_message();
        let place = self.calls.place_of(fragment, &self.echo.seed)?;
        let input = fragment.input.escaped();
        let input = input.as_bytes();
        self.keep(input.len())?;
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        match call.item {
            Some(index) => {
                call.input.extend_from_slice(input);
                self.call_delta(index, place, input);
                Ok(())
            }
            None => {
                call.wait(fragment, input)?;
                if call.name.is_empty() { Ok(()) } else { self.announce(place) }
            }
        }
    }

    /// Adds an image, as the item that OpenAI's image tool returns.
    pub(super) fn image(&mut self, media_type: &str, base64: &str) -> Result<(), OutputFull> {
        self.close_reasoning();
        self.close_message();
        self.keep(base64.len())?;
        let format = escape(media_type.trim_start_matches("image/").into()).into_owned();
        let base64 = BytesMut::from(escape(base64.into()).as_bytes());
        let index = self.add(ItemBody::Image { format, base64 })?;
        for step in ["in_progress", "generating", "completed"] {
            let seed = &self.echo.seed;
            self.feed.event(&format!("response.image_generation_call.{step}"), |out| {
                put_place(seed, "ig", index, out);
            });
        }
        self.close(index, "completed");
        Ok(())
    }

    /// Announces the item of a call, followed by the input that has arrived so far.
    fn announce(&mut self, place: usize) -> Result<(), OutputFull> {
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        let input = std::mem::take(&mut call.input);
        call.name = self.names.restore_escaped(&call.name).into_owned();
        let index = self.add(ItemBody::Call(place))?;
        if let Some(call) = self.calls.get_mut(place) {
            call.item = Some(index);
            call.input = input.clone();
        }
        if !input.is_empty() {
            self.call_delta(index, place, &input);
        }
        Ok(())
    }

    fn call_delta(&mut self, index: usize, place: usize, input: &[u8]) {
        if input.is_empty() {
            return;
        }
        let Some(call) = self.calls.get(place) else { return };
        let seed = &self.echo.seed;
        self.feed.event(call.delta_name(), |out| {
            put_place(seed, call.prefix(), index, out);
            out.put_slice(b",\"delta\":\"");
            out.put_slice(input);
            out.put_u8(b'"');
        });
    }

    fn text(&mut self, index: usize, part: usize, name: &str, raw: &[u8]) -> Result<(), OutputFull> {
        self.keep(raw.len())?;
        let Some(item) = self.items.get_mut(index) else { return Ok(()) };
        let (text, tail): (_, &[u8]) = match &mut item.body {
            ItemBody::Reasoning(text) => (text, b"\""),
            ItemBody::Message(parts) => match parts.get_mut(part) {
                Some(OutputPart { kind: PartKind::Text, text }) => (text, b"\",\"logprobs\":[]"),
                Some(OutputPart { kind: PartKind::Refusal, text }) => (text, b"\""),
                None => return Ok(()),
            },
            ItemBody::Call(_) | ItemBody::Image { .. } => return Ok(()),
        };
        text.extend_from_slice(raw);
        if self.head_of != Some((index, part)) {
            self.head.clear();
            event_head(name, &mut self.head);
            put_place(&self.echo.seed, item.body.prefix(&self.calls), index, &mut self.head);
            put_content_index(part, &mut self.head);
            self.head.put_slice(b",\"delta\":\"");
            self.head_of = Some((index, part));
        }
        self.feed.delta(&self.head, raw, tail);
        Ok(())
    }

    fn parts_of(&self, index: usize) -> usize {
        match self.items.get(index).map(|item| &item.body) {
            Some(ItemBody::Message(parts)) => parts.len(),
            Some(ItemBody::Reasoning(_)) => 1,
            Some(ItemBody::Call(_) | ItemBody::Image { .. }) | None => 0,
        }
    }

    fn keep(&mut self, bytes: usize) -> Result<(), OutputFull> {
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        if self.kept_bytes > OUTPUT_BYTES_MAX { Err(OutputFull) } else { Ok(()) }
    }

    /// Writes the events that open the response, unless they have been written.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            for name in ["response.created", "response.in_progress"] {
                self.response_event(name, Status::InProgress, None);
            }
        }
    }

    fn add(&mut self, body: ItemBody) -> Result<usize, OutputFull> {
        self.begin();
        self.keep(ITEM_BYTES)?;
        let index = self.items.len();
        self.items.push(OutputItem { status: IN_PROGRESS, body });
        self.item_event("response.output_item.added", index);
        Ok(index)
    }

    fn close_reasoning(&mut self) {
        if let Some(index) = self.reasoning.take() {
            self.close(index, "completed");
        }
    }

    fn close_message(&mut self) {
        if let Some(index) = self.message.take() {
            self.close(index, "completed");
        }
    }

    fn close(&mut self, index: usize, status: &'static str) {
        for part in 0..self.parts_of(index) {
            self.text_done(index, part);
            self.part_event("done", index, part);
        }
        if let Some(OutputItem { body: ItemBody::Call(place), .. }) = self.items.get(index) {
            let place = *place;
            self.call_done(index, place);
        }
        if let Some(item) = self.items.get_mut(index) {
            item.status = status;
        }
        self.item_event("response.output_item.done", index);
    }

    fn call_done(&mut self, index: usize, place: usize) {
        let Some(call) = self.calls.get_mut(place) else { return };
        call.ends();
        let seed = &self.echo.seed;
        self.feed.event(call.done_name(), |out| {
            put_place(seed, call.prefix(), index, out);
            call.put_outcome(out);
        });
    }

    fn text_done(&mut self, index: usize, part: usize) {
        let Some(item) = self.items.get(index) else { return };
        let (name, member, text, tail) = match &item.body {
            ItemBody::Reasoning(text) => ("response.reasoning_text.done", "text", text, ""),
            ItemBody::Message(parts) => match parts.get(part) {
                Some(OutputPart { kind: PartKind::Text, text }) => {
                    ("response.output_text.done", "text", text, ",\"logprobs\":[]")
                }
                Some(OutputPart { kind: PartKind::Refusal, text }) => {
                    ("response.refusal.done", "refusal", text, "")
                }
                None => return,
            },
            ItemBody::Call(_) | ItemBody::Image { .. } => return,
        };
        let (seed, prefix) = (&self.echo.seed, item.body.prefix(&self.calls));
        self.feed.event(name, |out| {
            put_place(seed, prefix, index, out);
            put_content_index(part, out);
            put_raw_text(member, text, out);
            out.put_slice(tail.as_bytes());
        });
    }

    /// Writes `response.content_part.added` or `.done`.
    fn part_event(&mut self, change: &str, index: usize, part: usize) {
        let Some(item) = self.items.get(index) else { return };
        let (seed, prefix) = (&self.echo.seed, item.body.prefix(&self.calls));
        self.feed.event(&format!("response.content_part.{change}"), |out| {
            put_place(seed, prefix, index, out);
            put_content_index(part, out);
            out.put_slice(b",\"part\":");
            match &item.body {
                ItemBody::Reasoning(text) => put_reasoning(text, out),
                ItemBody::Message(parts) => {
                    if let Some(part) = parts.get(part) {
                        part.put(out);
                    }
                }
                ItemBody::Call(_) | ItemBody::Image { .. } => {}
            }
        });
    }

    fn item_event(&mut self, name: &str, index: usize) {
        let Self { feed, items, calls, echo, .. } = self;
        let Some(item) = items.get(index) else { return };
        feed.event(name, |out| {
            out.put_slice(b",\"output_index\":");
            number(out, wide(index));
            out.put_slice(b",\"item\":");
            item.put(index, &echo.seed, calls, out);
        });
    }

    fn response_event(&mut self, name: &str, status: Status<'_>, usage: Option<TokenCounts>) {
        let Self { feed, items, calls, echo, .. } = self;
        feed.event(name, |out| {
            out.put_slice(b",\"response\":");
            write_response(echo, status, usage, |out| put_closed(items, echo, calls, out), out);
        });
    }

    /// Ends the response: closes all items and writes the last event.
    pub(super) fn finish(&mut self, status: Status<'_>, usage: TokenCounts) -> Result<(), OutputFull> {
        self.begin();
        for place in self.calls.unannounced() {
            self.announce(place)?;
        }
        let last = self.items.len().saturating_sub(1);
        let cut = matches!(status, Status::Incomplete(_));
        for index in 0..self.items.len() {
            if self.items.get(index).is_some_and(|item| item.status == IN_PROGRESS) {
                self.close(index, if cut && index == last { "incomplete" } else { "completed" });
            }
        }
        self.response_event(&format!("response.{}", status.name()), status, Some(usage));
        Ok(())
    }

    /// Ends a response that broke off. The last event contains the items that were complete by then.
    pub(super) fn fail(&mut self, code: &str, message: &str) {
        self.begin();
        self.response_event("response.failed", Status::Failed { code, message }, None);
    }

    /// Returns the response object alone, for a client that did not request a stream.
    pub(super) fn response(&self, status: Status<'_>, usage: TokenCounts) -> Bytes {
        let mut out = BytesMut::with_capacity(self.kept_bytes.saturating_add(4096));
        let output = |out: &mut BytesMut| put_closed(&self.items, &self.echo, &self.calls, out);
        write_response(&self.echo, status, Some(usage), output, &mut out);
        out.freeze()
    }
}

fn put_closed(items: &[OutputItem], echo: &EchoedRequest, calls: &FunctionCallItems, out: &mut BytesMut) {
    let mut first = true;
    for (index, item) in items.iter().enumerate().filter(|(_, item)| item.status != IN_PROGRESS) {
        if !std::mem::replace(&mut first, false) {
            out.put_u8(b',');
        }
        item.put(index, &echo.seed, calls, out);
    }
}

impl OutputItem {
    fn put(&self, index: usize, seed: &str, calls: &FunctionCallItems, out: &mut BytesMut) {
        out.put_slice(b"{\"id\":\"");
        put_id(seed, self.body.prefix(calls), index, out);
        out.put_slice(b"\",\"status\":\"");
        out.put_slice(self.status.as_bytes());
        out.put_u8(b'"');
        match &self.body {
            ItemBody::Reasoning(text) => {
                out.put_slice(b",\"type\":\"reasoning\",\"summary\":[],\"content\":[");
                if self.status != IN_PROGRESS {
                    put_reasoning(text, out);
                }
                out.put_u8(b']');
            }
            ItemBody::Message(parts) => {
                out.put_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
                for (index, part) in parts.iter().enumerate() {
                    if index > 0 {
                        out.put_u8(b',');
                    }
                    part.put(out);
                }
                out.put_u8(b']');
            }
            ItemBody::Call(place) => {
                if let Some(call) = calls.get(*place) {
                    call.put(out);
                }
            }
            ItemBody::Image { format, base64 } => {
                out.put_slice(b",\"type\":\"image_generation_call\"");
                if self.status == IN_PROGRESS {
                    out.put_slice(b",\"result\":null");
                } else {
                    put_raw_text("output_format", format.as_bytes(), out);
                    put_raw_text("result", base64, out);
                }
            }
        }
        out.put_u8(b'}');
    }
}

impl ItemBody {
    fn prefix(&self, calls: &FunctionCallItems) -> &'static str {
        match self {
            Self::Reasoning(_) => "rs",
            Self::Message(_) => "msg",
            Self::Call(place) => calls.get(*place).map_or("fc", FunctionCallItem::prefix),
            Self::Image { .. } => "ig",
        }
    }
}

impl OutputPart {
    fn put(&self, out: &mut BytesMut) {
        match self.kind {
            PartKind::Text => {
                out.put_slice(b"{\"type\":\"output_text\"");
                put_raw_text("text", &self.text, out);
                out.put_slice(b",\"annotations\":[]}");
            }
            PartKind::Refusal => {
                out.put_slice(b"{\"type\":\"refusal\"");
                put_raw_text("refusal", &self.text, out);
                out.put_u8(b'}');
            }
        }
    }
}

impl PartKind {
    fn delta_name(self) -> &'static str {
        match self {
            Self::Text => "response.output_text.delta",
            Self::Refusal => "response.refusal.delta",
        }
    }
}

fn put_reasoning(text: &[u8], out: &mut BytesMut) {
    out.put_slice(b"{\"type\":\"reasoning_text\"");
    put_raw_text("text", text, out);
    out.put_u8(b'}');
}

/// Writes a member with a string value that is already escaped.
pub(super) fn put_raw_text(name: &str, raw: &[u8], out: &mut BytesMut) {
    for part in [b",\"", name.as_bytes(), b"\":\"", raw, b"\""] {
        out.put_slice(part);
    }
}

fn put_id(seed: &str, prefix: &str, index: usize, out: &mut BytesMut) {
    for part in [prefix, "_", seed, "_"] {
        out.put_slice(part.as_bytes());
    }
    number(out, wide(index));
}

fn put_place(seed: &str, prefix: &str, index: usize, out: &mut BytesMut) {
    out.put_slice(b",\"item_id\":\"");
    put_id(seed, prefix, index, out);
    out.put_slice(b"\",\"output_index\":");
    number(out, wide(index));
}

fn put_content_index(part: usize, out: &mut BytesMut) {
    out.put_slice(b",\"content_index\":");
    number(out, wide(part));
}

fn wide(index: usize) -> u64 {
    index.try_into().unwrap_or(u64::MAX)
}
