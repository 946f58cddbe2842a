//! Builds the output items of a response and writes their events.
//!
//! Texts stay escaped as in the upstream's JSON, so that they need not be decoded and encoded again. All of them are
//! kept until the last event, which contains the whole output; their total size is bounded.

use bytes::{BufMut as _, Bytes, BytesMut};
use shared::usage::TokenCounts;

use super::agents::AgentForm;
use super::calls::{FunctionCallItem, FunctionCallItems};
use super::echo::EchoedRequest;
use super::event_writer::{ResponseEventWriter, Status, event_head, number, write_response};
use super::output_item::{
    IN_PROGRESS, ItemBody, ItemParts, OutputItem, OutputPart, PartKind, put_part_index, put_place,
    put_raw_text, wide,
};
use super::reasoning_item::{CONTENT, ReasoningItem};
use crate::adapt::tool_names::ToolNames;
use crate::chat::{ChatCallDelta, ThinkingDelta, escape};

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
    agents: AgentForm,
    feed: ResponseEventWriter,
    begun: bool,
    items: Vec<OutputItem>,
    calls: FunctionCallItems,
    /// The open items, to which further reasoning or text is appended.
    reasoning: Option<usize>,
    message: Option<usize>,
    /// Gemini's signature of the text, which becomes an item of its own after it.
    signature: Option<String>,
    kept_bytes: usize,
    /// The beginning of the last text event; `head_of` is the item and part that it belongs to.
    head: BytesMut,
    head_of: Option<(usize, usize)>,
}

impl OutputItems {
    /// Creates a response without output.
    pub(super) fn new(echo: EchoedRequest, names: ToolNames, agents: AgentForm) -> Self {
        Self {
            echo,
            names,
            agents,
            feed: ResponseEventWriter::default(),
            begun: false,
            items: Vec::new(),
            calls: FunctionCallItems::default(),
            reasoning: None,
            message: None,
            signature: None,
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
        let index = self.open_reasoning()?;
        if self.parts_of(index) == 0 {
            self.part_event("added", index, 0);
        }
        self.text(index, 0, self.agents.words().delta, raw)
    }

    /// Adds a piece of signed thoughts, if the client sends them back.
    pub(super) fn thinking(&mut self, piece: &ThinkingDelta<'_>) -> Result<(), OutputFull> {
        if self.agents.seal.is_none() {
            return Ok(());
        }
        let index = self.open_reasoning()?;
        self.keep(piece.text.escaped().len())?;
        if let Some(ItemBody::Reasoning(item)) = self.items.get_mut(index).map(|item| &mut item.body) {
            item.kept.add(piece);
        }
        Ok(())
    }

    /// Adds Gemini's signature of the text, if the client sends it back.
    pub(super) fn signature(&mut self, signature: &str) -> Result<(), OutputFull> {
        if self.agents.seal.is_some() {
            self.keep(signature.len())?;
            self.signature = Some(signature.to_owned());
        }
        Ok(())
    }

    /// Writes the item with the signature of the text, if there is one.
    fn put_signature(&mut self) -> Result<(), OutputFull> {
        let Some(signature) = self.signature.take() else { return Ok(()) };
        let index = self.open_reasoning()?;
        if let Some(ItemBody::Reasoning(item)) = self.items.get_mut(index).map(|item| &mut item.body) {
            item.kept.signature = Some(signature);
        }
        self.close_reasoning();
        Ok(())
    }

    /// Returns the open reasoning item. A new one is begun.
    fn open_reasoning(&mut self) -> Result<usize, OutputFull> {
        let index = match self.reasoning {
            Some(index) => index,
            None => self.add(ItemBody::Reasoning(ReasoningItem::default()))?,
        };
        self.reasoning = Some(index);
        Ok(index)
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
        self.put_signature()?;
        let place = self.calls.place_of(fragment, &self.echo.seed)?;
        let input = fragment.input.escaped();
        self.keep(input.len())?;
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        match call.item {
            Some(index) => {
                let text = call.add_input(&input);
                self.call_delta(index, place, text.as_deref().unwrap_or(&input).as_bytes());
                Ok(())
            }
            None => {
                call.wait(fragment, input.as_bytes())?;
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
        if let Some(tool) = self.agents.calls.get(&call.name) {
            call.becomes(tool);
        }
        let index = self.add(ItemBody::Call(place))?;
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        call.item = Some(index);
        let input = String::from_utf8_lossy(&input);
        let text = call.add_input(&input);
        self.call_delta(index, place, text.as_deref().unwrap_or(&input).as_bytes());
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
        let words = self.agents.words();
        let Some(item) = self.items.get_mut(index) else { return Ok(()) };
        let (text, tail): (_, &[u8]) = match &mut item.body {
            ItemBody::Reasoning(reasoning) => (&mut reasoning.text, b"\""),
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
            put_part_index(item.body.part_index(words), part, &mut self.head);
            self.head.put_slice(b",\"delta\":\"");
            self.head_of = Some((index, part));
        }
        self.feed.delta(&self.head, raw, tail);
        Ok(())
    }

    fn parts_of(&self, index: usize) -> usize {
        match self.items.get(index).map(|item| &item.body) {
            Some(ItemBody::Message(parts)) => parts.len(),
            Some(ItemBody::Reasoning(reasoning)) => usize::from(!reasoning.text.is_empty()),
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
            if let (ItemBody::Reasoning(reasoning), Some(seal)) = (&mut item.body, &self.agents.seal) {
                reasoning.seal(seal);
            }
        }
        self.item_event("response.output_item.done", index);
    }

    fn call_done(&mut self, index: usize, place: usize) {
        if let Some(rest) = self.calls.get_mut(place).and_then(FunctionCallItem::end_input) {
            self.call_delta(index, place, rest.as_bytes());
        }
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
            ItemBody::Reasoning(reasoning) => (self.agents.words().done, "text", &reasoning.text, ""),
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
        let part_index = item.body.part_index(self.agents.words());
        self.feed.event(name, |out| {
            put_place(seed, prefix, index, out);
            put_part_index(part_index, part, out);
            put_raw_text(member, text, out);
            out.put_slice(tail.as_bytes());
        });
    }

    /// Writes `response.content_part.added` or `.done`, or those of a summary.
    fn part_event(&mut self, change: &str, index: usize, part: usize) {
        let Some(item) = self.items.get(index) else { return };
        let (seed, prefix, words) = (&self.echo.seed, item.body.prefix(&self.calls), self.agents.words());
        let event = if matches!(item.body, ItemBody::Reasoning(_)) { words.part } else { CONTENT.part };
        self.feed.event(&format!("{event}.{change}"), |out| {
            put_place(seed, prefix, index, out);
            put_part_index(item.body.part_index(words), part, out);
            out.put_slice(b",\"part\":");
            match &item.body {
                ItemBody::Reasoning(reasoning) => reasoning.put_part(words, out),
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
        let Self { feed, items, calls, echo, agents, .. } = self;
        let Some(item) = items.get(index) else { return };
        feed.event(name, |out| {
            out.put_slice(b",\"output_index\":");
            number(out, wide(index));
            out.put_slice(b",\"item\":");
            item.put(index, &echo.seed, (calls, agents.words()), out);
        });
    }

    fn response_event(&mut self, name: &str, status: Status<'_>, usage: Option<TokenCounts>) {
        let Self { feed, items, calls, echo, agents, .. } = self;
        feed.event(name, |out| {
            out.put_slice(b",\"response\":");
            let output = |out: &mut BytesMut| put_closed(items, echo, (calls, agents.words()), out);
            write_response(echo, status, usage, output, out);
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
        self.reasoning = None;
        self.put_signature()?;
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
        let output = |out: &mut BytesMut| {
            put_closed(&self.items, &self.echo, (&self.calls, self.agents.words()), out);
        };
        write_response(&self.echo, status, Some(usage), output, &mut out);
        out.freeze()
    }
}

fn put_closed(items: &[OutputItem], echo: &EchoedRequest, parts: ItemParts<'_>, out: &mut BytesMut) {
    let mut first = true;
    for (index, item) in items.iter().enumerate().filter(|(_, item)| item.status != IN_PROGRESS) {
        if !std::mem::replace(&mut first, false) {
            out.put_u8(b',');
        }
        item.put(index, &echo.seed, parts, out);
    }
}
