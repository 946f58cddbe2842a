//! Reads Responses streams.

use shared::usage::TokenCounts;

use super::answer::{ResponsesTarget, signature_of};
use crate::chat::{
    AnswerText, ChatCallDelta, ChatDelta, ChatEvents, ChatSink, ChatTextKind, ChoiceEnd, ClientUsage,
    end_answer, end_choice,
};
use crate::envelope::StreamError;
use crate::passthrough::{Alike, Varying};
use crate::responses::document::{ItemKind, Response, ResponseDeltaTarget, ResponseEvent, ResponseItem};
use crate::sse::lossy_text;

/// Reads the events of one Responses stream.
#[derive(Debug)]
pub(super) struct ResponseReader {
    target: ResponsesTarget,
    /// Carries the reasoning before the next call.
    signature: Option<String>,
    begun: bool,
    /// Recognises events that differ only in their delta.
    alike: Alike<ResponseDeltaTarget>,
    /// Calls, in the order of chat's indexes.
    calls: Vec<ResponseCall>,
    /// Message parts of which something has been passed on, as item and part index.
    relayed_parts: Vec<(u64, u64)>,
    /// The reasoning part that was passed on last.
    thought: Option<(u64, u64)>,
}

#[derive(Debug)]
struct ResponseCall {
    output_index: u64,
    custom: bool,
    /// Some of its input has been passed on.
    relayed: bool,
}

/// Maximum number of calls, and of message parts, in one answer.
const PARTS_MAX: usize = 4096;

/// The answer has more than [`PARTS_MAX`] calls or parts.
#[derive(Clone, Copy, Debug)]
struct TooMany;

impl ChatEvents for ResponseReader {
    fn event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        if let Some(like) = self.alike.read(data) {
            return self.piece(like.meaning, like.text, sink);
        }
        if data.first() != Some(&b'{') {
            return;
        }
        let text = lossy_text(data);
        let Ok(event) = ResponseEvent::read(&text) else {
            let unreadable =
                || StreamError::of_bad_answer("The upstream sent an event that cannot be parsed.");
            return sink.fail(&StreamError::of_odd(data).unwrap_or_else(unreadable));
        };
        if let Some(piece) = event.piece() {
            self.alike.learn(data, event.delta().as_bytes(), piece);
            return self.piece(piece, event.delta(), sink);
        }
        let result = self.other(&event, data, sink);
        fail_if(result, sink);
    }

    fn last_event(&mut self, data: &[u8], sink: &mut dyn ChatSink) {
        // An event cut off by the end of the stream is used only if it is terminal.
        if ResponseEvent::read(&lossy_text(data)).is_ok_and(|event| is_terminal(event.kind())) {
            self.event(data, sink);
        }
    }

    fn end(&mut self, _sink: &mut dyn ChatSink) {}

    fn too_large() -> StreamError {
        StreamError::of_bad_answer("The upstream sent an event that is too large.")
    }
}

fn is_terminal(kind: &str) -> bool {
    matches!(kind, "response.completed" | "response.incomplete" | "response.failed" | "error")
}

impl ResponseReader {
    pub(super) fn new(target: ResponsesTarget) -> Self {
        Self {
            target,
            signature: None,
            begun: false,
            alike: Alike::new(Varying::PaddingAndNumber),
            calls: Vec::new(),
            relayed_parts: Vec::new(),
            thought: None,
        }
    }

    /// Handles an event without a delta.
    fn other(
        &mut self,
        event: &ResponseEvent<'_>,
        data: &[u8],
        sink: &mut dyn ChatSink,
    ) -> Result<(), TooMany> {
        let index = event.output_index.unwrap_or_default();
        let part = (index, event.content_index.unwrap_or_default());
        match event.kind() {
            "response.output_text.done" => {
                self.whole_part(ChatTextKind::Content, part, event.whole(), sink)?;
            }
            "response.refusal.done" => self.whole_part(ChatTextKind::Refusal, part, event.whole(), sink)?,
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                self.whole_input(index, event.whole(), sink);
            }
            "response.output_item.added" => {
                event.item().map_or(Ok(()), |item| self.call(index, &item, sink))?;
            }
            "response.output_item.done" => {
                event.item().map_or(Ok(()), |item| self.item(index, &item, sink))?;
            }
            "response.created" => self.begin(sink),
            "response.completed" | "response.incomplete" => match event.response() {
                Some(response) => self.finish(&response, sink)?,
                None => {
                    sink.fail(&StreamError::of_bad_answer("The upstream's last event contains no response."))
                }
            },
            "response.failed" => {
                let response = event.response();
                response.iter().for_each(|response| reported(response, sink));
                sink.fail(&failure(response.as_ref()));
            }
            "error" => sink.fail(&odd_error(data)),
            // An event without a type is ignored unless it is an error of another API.
            "" => StreamError::of_odd(data).iter().for_each(|error| sink.fail(error)),
            _ => {}
        }
        Ok(())
    }

    /// Handles a delta.
    fn piece(&mut self, piece: ResponseDeltaTarget, raw: &str, sink: &mut dyn ChatSink) {
        match piece {
            ResponseDeltaTarget::Text(part) => {
                let result = self.part(ChatTextKind::Content, part, raw, sink);
                fail_if(result, sink);
            }
            ResponseDeltaTarget::Refusal(part) => {
                let result = self.part(ChatTextKind::Refusal, part, raw, sink);
                fail_if(result, sink);
            }
            ResponseDeltaTarget::Thought(part) => self.thought(part, raw, sink),
            ResponseDeltaTarget::Input(index) => self.input(index, raw, sink),
        }
    }

    fn begin(&mut self, sink: &mut dyn ChatSink) {
        if !std::mem::replace(&mut self.begun, true) {
            sink.begin(0);
        }
    }

    fn text(&mut self, kind: ChatTextKind, raw: &str, sink: &mut dyn ChatSink) {
        if raw.is_empty() {
            return;
        }
        self.begin(sink);
        let stops = &mut self.target.stops;
        if kind != ChatTextKind::Content || stops.is_idle() {
            return sink.delta(0, ChatDelta::Text(kind, AnswerText::Escaped(raw)));
        }
        let before = stops.push(&AnswerText::Escaped(raw).plain());
        if !before.is_empty() {
            sink.delta(0, ChatDelta::Text(kind, AnswerText::Plain(&before)));
        }
    }

    /// Writes the end of the text, which was held back as the possible beginning of a stop sequence.
    fn flush_text(&mut self, sink: &mut dyn ChatSink) {
        let rest = self.target.stops.finish();
        if !rest.is_empty() {
            sink.delta(0, ChatDelta::Text(ChatTextKind::Content, AnswerText::Plain(&rest)));
        }
    }

    /// True if the answer has been cut at a stop sequence.
    fn is_cut(&self) -> bool {
        self.target.stops.found().is_some()
    }

    fn part(
        &mut self,
        kind: ChatTextKind,
        part: (u64, u64),
        raw: &str,
        sink: &mut dyn ChatSink,
    ) -> Result<(), TooMany> {
        if self.relayed_parts.last() != Some(&part) && !self.relayed_parts.contains(&part) {
            if self.relayed_parts.len() >= PARTS_MAX {
                return Err(TooMany);
            }
            self.relayed_parts.push(part);
        }
        self.text(kind, raw, sink);
        Ok(())
    }

    /// Handles the complete text of a part, which is passed on only if none of it has been.
    fn whole_part(
        &mut self,
        kind: ChatTextKind,
        part: (u64, u64),
        raw: &str,
        sink: &mut dyn ChatSink,
    ) -> Result<(), TooMany> {
        if self.relayed_parts.contains(&part) { Ok(()) } else { self.part(kind, part, raw, sink) }
    }

    /// Passes on reasoning, with a blank line between its parts.
    fn thought(&mut self, part: (u64, u64), raw: &str, sink: &mut dyn ChatSink) {
        if !raw.is_empty() && self.thought.replace(part).is_some_and(|before| before != part) {
            self.text(ChatTextKind::Reasoning, r"\n\n", sink);
        }
        self.text(ChatTextKind::Reasoning, raw, sink);
    }

    /// Starts a call, unless the item is not a call or has been started already.
    fn call(
        &mut self,
        output_index: u64,
        item: &ResponseItem<'_>,
        sink: &mut dyn ChatSink,
    ) -> Result<(), TooMany> {
        let custom = match item.kind() {
            ItemKind::Function => false,
            ItemKind::Custom => true,
            ItemKind::Message | ItemKind::Reasoning | ItemKind::Image | ItemKind::Other => return Ok(()),
        };
        if self.is_cut() || self.calls.iter().any(|call| call.output_index == output_index) {
            return Ok(());
        }
        self.flush_text(sink);
        if self.calls.len() >= PARTS_MAX {
            return Err(TooMany);
        }
        self.begin(sink);
        sink.delta(
            0,
            ChatDelta::Call(ChatCallDelta {
                begins: true,
                index: self.calls.len().try_into().ok(),
                id: AnswerText::Escaped(item.call_id()),
                name: AnswerText::Escaped(&self.target.names.restore_escaped(item.name())),
                custom,
                signature: self.signature.take().map(Into::into),
                ..ChatCallDelta::default()
            }),
        );
        self.calls.push(ResponseCall { output_index, custom, relayed: false });
        Ok(())
    }

    fn input(&mut self, output_index: u64, raw: &str, sink: &mut dyn ChatSink) {
        let found = self.calls.iter_mut().enumerate().rfind(|(_, call)| call.output_index == output_index);
        let Some((index, call)) = found.filter(|_| !raw.is_empty()) else { return };
        call.relayed = true;
        sink.delta(
            0,
            ChatDelta::Call(ChatCallDelta {
                index: index.try_into().ok(),
                input: AnswerText::Escaped(raw),
                custom: call.custom,
                ..ChatCallDelta::default()
            }),
        );
    }

    /// Handles the complete input of a call, which is passed on only if none of it has been.
    fn whole_input(&mut self, output_index: u64, raw: &str, sink: &mut dyn ChatSink) {
        if self.calls.iter().any(|call| call.output_index == output_index && !call.relayed) {
            self.input(output_index, raw, sink);
        }
    }

    /// Handles the end of an item: passes on the content that has not been passed on yet.
    fn item(&mut self, index: u64, item: &ResponseItem<'_>, sink: &mut dyn ChatSink) -> Result<(), TooMany> {
        self.call(index, item, sink)?;
        match item.kind() {
            ItemKind::Function | ItemKind::Custom => self.whole_input(index, item.input(), sink),
            ItemKind::Message => {
                for (position, part) in (0..).zip(&item.content()) {
                    let is_refusal = part.is_refusal();
                    let kind = if is_refusal { ChatTextKind::Refusal } else { ChatTextKind::Content };
                    self.whole_part(kind, (index, position), part.text(), sink)?;
                }
            }
            ItemKind::Image => {
                if let Some(image) = item.image().filter(|_| !self.is_cut()) {
                    self.begin(sink);
                    sink.delta(0, ChatDelta::Media(image));
                }
            }
            ItemKind::Reasoning => {
                self.signature = self.target.origin.as_deref().and_then(|origin| signature_of(origin, item));
            }
            ItemKind::Other => {}
        }
        Ok(())
    }

    fn finish(&mut self, response: &Response<'_>, sink: &mut dyn ChatSink) -> Result<(), TooMany> {
        self.begin(sink);
        if !sink.state().content {
            for (index, item) in response.items() {
                self.item(index, &item, sink)?;
            }
        }
        reported(response, sink);
        self.flush_text(sink);
        let stop = self.target.stops.found();
        let reason = if stop.is_some() { "stop" } else { response.finish_reason(!self.calls.is_empty()) };
        end_choice(sink, 0, &ChoiceEnd { reason, ..ChoiceEnd::default() }, stop);
        sink.usage(for_client(sink.state().usage));
        end_answer(sink);
        Ok(())
    }
}

/// Records the usage reported in the response.
fn reported(response: &Response<'_>, sink: &mut dyn ChatSink) {
    let facts = sink.facts();
    facts.usage = response.token_counts().or(facts.usage);
    facts.extras.replace_by(response.extras());
}

/// Returns the usage that a chat client is to see. Unknown counts are 0.
pub(super) fn for_client(counts: Option<TokenCounts>) -> ClientUsage {
    let counts = counts.unwrap_or_default();
    ClientUsage { counts, has_cache_writes: true, has_reasoning: true }
}

fn fail_if(result: Result<(), TooMany>, sink: &mut dyn ChatSink) {
    if result.is_err() {
        sink.fail(&StreamError::of_bad_answer("The upstream's answer has too many parts."));
    }
}

/// Returns the error of a failed response.
pub(super) fn failure(response: Option<&Response<'_>>) -> StreamError {
    let error = response.and_then(|response| serde_json::from_str(response.error?.get()).ok());
    error.as_ref().map_or_else(
        || StreamError::of_bad_answer("The upstream's response failed without a reason."),
        StreamError::of_member,
    )
}

fn odd_error(data: &[u8]) -> StreamError {
    StreamError::of_odd(data)
        .unwrap_or_else(|| StreamError::of_bad_answer("The upstream sent an error without a message."))
}
