//! Collects the tool calls of a chat answer from fragments that may interleave.

use bytes::{BufMut as _, BytesMut};

use super::agents::AgentCall;
use super::event_writer::number;
use super::free_text::FreeTextReader;
use super::items::OutputFull;
use super::output_item::put_raw_text;
use crate::adapt::signature_in_call_id;
use crate::chat::{AnswerText, ChatCallDelta};

/// The maximum number of bytes of a call's input that are buffered until its name arrives.
const WAITING_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of calls in one answer; each fragment is matched by a linear search through them.
const CALLS_MAX: usize = 1_024;
/// The maximum length in bytes of an id or a name.
const NAME_BYTES_MAX: usize = 1_024;

/// The calls of an answer, in the order of their first fragments.
#[derive(Debug, Default)]
pub(super) struct FunctionCallItems(Vec<FunctionCallItem>);

/// A tool call of the answer.
#[derive(Debug)]
pub(super) struct FunctionCallItem {
    index: Option<u64>,
    /// The id from the upstream; empty if it sent no id.
    named: BytesMut,
    id: BytesMut,
    pub(super) name: String,
    pub(super) input: BytesMut,
    custom: bool,
    /// The namespace of the tool, escaped.
    namespace: Option<String>,
    /// Reads the text from the arguments, if the tool is a custom one that a function stands for.
    free_text: Option<FreeTextReader>,
    /// The index of its output item, once that has been announced.
    pub(super) item: Option<usize>,
}

impl FunctionCallItems {
    pub(super) fn get(&self, place: usize) -> Option<&FunctionCallItem> {
        self.0.get(place)
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut FunctionCallItem> {
        self.0.get_mut(place)
    }

    /// Returns the positions of the calls whose name has not arrived.
    pub(super) fn unannounced(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|&place| self.get(place).is_some_and(|call| call.item.is_none())).collect()
    }

    /// Returns the position of the call that a fragment belongs to. Adds a new call if no call matches.
    pub(super) fn place_of(&mut self, fragment: &ChatCallDelta<'_>, seed: &str) -> Result<usize, OutputFull> {
        let id = fragment.id.escaped();
        if id.len() > NAME_BYTES_MAX {
            return Err(OutputFull);
        }
        match self.known(fragment, id.as_bytes()) {
            Some(place) => Ok(place),
            None if self.0.len() >= CALLS_MAX => Err(OutputFull),
            None => Ok(self.add(fragment, id.as_bytes(), seed)),
        }
    }

    /// Returns the position of a known call. Some vendors send no index, and some the same one for every call, so ids
    /// distinguish calls too.
    fn known(&self, fragment: &ChatCallDelta<'_>, id: &[u8]) -> Option<usize> {
        let found = if fragment.index.is_some() {
            self.0.iter().rposition(|call| call.index == fragment.index)
        } else if !id.is_empty() {
            self.0.iter().rposition(|call| call.named == id)
        } else if fragment.siblings > 1 {
            Some(fragment.position).filter(|&place| place < self.0.len())
        } else {
            self.0.len().checked_sub(1)
        };
        found.filter(|&place| {
            let named = self.get(place).map(|call| &*call.named).unwrap_or_default();
            id.is_empty() || named.is_empty() || named == id
        })
    }

    fn add(&mut self, fragment: &ChatCallDelta<'_>, named: &[u8], seed: &str) -> usize {
        let place = self.0.len();
        let mut id = BytesMut::from(named);
        if id.is_empty() {
            for part in ["call_", seed, "_"] {
                id.put_slice(part.as_bytes());
            }
            number(&mut id, place.try_into().unwrap_or(u64::MAX));
        }
        sign(&mut id, fragment);
        self.0.push(FunctionCallItem {
            index: fragment.index,
            named: named.into(),
            id,
            name: String::new(),
            input: BytesMut::new(),
            custom: fragment.custom,
            namespace: None,
            free_text: None,
            item: None,
        });
        place
    }
}

/// Embeds the signature of a call in its id.
fn sign(id: &mut BytesMut, fragment: &ChatCallDelta<'_>) {
    if fragment.signature.is_some() {
        let signed = signature_in_call_id::join(String::from_utf8_lossy(id), fragment.signature.as_deref())
            .into_owned();
        *id = signed.as_bytes().into();
    }
}

impl FunctionCallItem {
    /// Buffers a fragment of a call that has not been announced.
    pub(super) fn wait(&mut self, fragment: &ChatCallDelta<'_>, input: &[u8]) -> Result<(), OutputFull> {
        if self.named.is_empty() && !fragment.id.is_empty() {
            self.named = fragment.id.escaped().as_bytes().into();
            self.id = self.named.clone();
            sign(&mut self.id, fragment);
        }
        self.custom |= fragment.custom;
        self.name.push_str(&fragment.name.escaped());
        let waits = self.name.is_empty();
        let is_too_much = waits && self.input.len().saturating_add(input.len()) > WAITING_BYTES_MAX;
        if is_too_much || self.name.len() > NAME_BYTES_MAX {
            return Err(OutputFull);
        }
        self.input.extend_from_slice(input);
        Ok(())
    }

    /// Makes the call one of `tool`, whose flat name it has. Its input so far is read anew.
    pub(super) fn becomes(&mut self, tool: &AgentCall) {
        self.name.clone_from(&tool.name);
        self.namespace.clone_from(&tool.namespace);
        if tool.is_custom && !self.custom {
            self.custom = true;
            self.free_text = Some(FreeTextReader::default());
        }
    }

    /// Adds a fragment of the input, which is escaped. Returns the text in it, if the call is one with free text.
    pub(super) fn add_input(&mut self, input: &str) -> Option<String> {
        let Some(reader) = &mut self.free_text else {
            self.input.extend_from_slice(input.as_bytes());
            return None;
        };
        let mut text = String::new();
        reader.push(&AnswerText::Escaped(input).plain(), &mut text);
        self.input.extend_from_slice(text.as_bytes());
        Some(text)
    }

    /// Ends the input. Returns the rest of the text, if the call is one with free text.
    pub(super) fn end_input(&mut self) -> Option<String> {
        let mut text = String::new();
        self.free_text.as_mut()?.end(&mut text);
        self.input.extend_from_slice(text.as_bytes());
        Some(text)
    }

    /// Completes the call. A function without arguments gets an empty object.
    pub(super) fn ends(&mut self) {
        if self.input.is_empty() && !self.custom {
            self.input.put_slice(b"{}");
        }
    }

    pub(super) fn prefix(&self) -> &'static str {
        if self.custom { "ctc" } else { "fc" }
    }

    pub(super) fn delta_name(&self) -> &'static str {
        if self.custom {
            "response.custom_tool_call_input.delta"
        } else {
            "response.function_call_arguments.delta"
        }
    }

    pub(super) fn done_name(&self) -> &'static str {
        if self.custom {
            "response.custom_tool_call_input.done"
        } else {
            "response.function_call_arguments.done"
        }
    }

    /// Writes the members of the call's last event; SDKs before 3.0 require the name.
    pub(super) fn put_outcome(&self, out: &mut BytesMut) {
        if !self.custom {
            put_raw_text("name", self.name.as_bytes(), out);
        }
        put_raw_text(self.input_name(), &self.input, out);
    }

    /// Writes the members of the call's item.
    pub(super) fn put(&self, out: &mut BytesMut) {
        put_raw_text("type", if self.custom { b"custom_tool_call" } else { b"function_call" }, out);
        put_raw_text("call_id", &self.id, out);
        put_raw_text("name", self.name.as_bytes(), out);
        if let Some(namespace) = &self.namespace {
            put_raw_text("namespace", namespace.as_bytes(), out);
        }
        put_raw_text(self.input_name(), &self.input, out);
    }

    fn input_name(&self) -> &'static str {
        if self.custom { "input" } else { "arguments" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::AnswerText;

    #[test]
    fn function_calls_of_a_response_are_bounded() {
        let (mut calls, long) = (FunctionCallItems::default(), "x".repeat(NAME_BYTES_MAX + 1));
        let fragment = |index: u64| ChatCallDelta { index: Some(index), ..ChatCallDelta::default() };
        for place in 0..CALLS_MAX {
            assert_eq!(calls.place_of(&fragment(place as u64), "seed"), Ok(place));
        }
        assert_eq!(calls.place_of(&fragment(CALLS_MAX as u64), "seed"), Err(OutputFull));
        assert_eq!(calls.place_of(&fragment(7), "seed"), Ok(7), "a call that is known goes on");
        let fragment = |id, name| {
            let (id, name) = (AnswerText::Escaped(id), AnswerText::Escaped(name));
            ChatCallDelta { id, name, ..fragment(7) }
        };
        assert_eq!(calls.place_of(&fragment(&long, ""), "seed"), Err(OutputFull));
        let call = calls.get_mut(7).unwrap();
        assert_eq!(call.wait(&fragment("", &long), b""), Err(OutputFull));
    }
}
