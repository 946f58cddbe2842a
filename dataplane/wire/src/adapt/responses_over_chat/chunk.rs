//! A chunk of a chat stream, or a whole completion, whose members differ only in `message`. Texts stay escaped.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::calls::CallFragment;
use crate::chat::{self, FinishReason, UsageReader};
use crate::envelope::StreamError;
use crate::extras::term;
use crate::json;

/// The members of an event or a body.
#[derive(Debug, Deserialize)]
pub(super) struct SourceChunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<SourceChoice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// An element of `choices`.
#[derive(Debug, Deserialize)]
pub(super) struct SourceChoice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<SourceDelta<'a>>,
    #[serde(borrow)]
    message: Option<SourceDelta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

/// A `delta` or `message`.
#[derive(Debug, Deserialize)]
pub(super) struct SourceDelta<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<ToolCall<'a>>>,
}

#[derive(Debug, Deserialize)]
struct ToolCall<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<SourceCall<'a>>,
    #[serde(borrow)]
    custom: Option<SourceCall<'a>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct SourceCall<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

impl<'a> SourceChunk<'a> {
    pub(super) fn read(document: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(document)
    }

    /// Returns the error in it, in any known shape.
    pub(super) fn error(&self, document: &[u8]) -> Option<StreamError> {
        if self.error.is_none() && (self.choices.is_some() || self.usage.is_some()) {
            return None;
        }
        StreamError::of_odd(document)
    }

    /// Returns its usage, if there is any: at the top, in `x_groq`, or in a choice as Moonshot sends it.
    pub(super) fn usage(&self) -> Option<UsageReader> {
        let read = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
        let choices = || self.choices.iter().flatten().find_map(|choice| choice.usage.and_then(read));
        let groq = || self.x_groq.and_then(read).and_then(|groq| groq.get("usage").cloned());
        let usage = self.usage.and_then(read).filter(Value::is_object).or_else(groq).or_else(choices)?;
        Some(UsageReader::of(&usage))
    }

    /// Returns its service tier.
    pub(super) fn tier(&self) -> Option<Box<str>> {
        text(self.service_tier?).and_then(term)
    }

    /// Returns true if it holds no usage and no error, only choices.
    pub(super) fn is_plain(&self) -> bool {
        let in_choice = self.choices.iter().flatten().any(|choice| choice.usage.is_some());
        self.usage.is_none() && self.x_groq.is_none() && self.error.is_none() && !in_choice
    }

    /// Returns the choice with index 0; all others are ignored.
    pub(super) fn choice(&mut self) -> Option<SourceChoice<'a>> {
        let choices = self.choices.as_mut()?;
        let first = choices.iter().position(|choice| choice.index.unwrap_or(0) == 0)?;
        Some(choices.swap_remove(first))
    }
}

impl<'a> SourceChoice<'a> {
    pub(super) fn finish(&self) -> Option<FinishReason> {
        FinishReason::of(text(self.finish_reason?)?)
    }

    /// Returns its delta or message.
    pub(super) fn said(self) -> Option<SourceDelta<'a>> {
        self.delta.or(self.message)
    }
}

impl<'a> SourceDelta<'a> {
    /// Returns the text for the client.
    pub(super) fn content(&self) -> Option<Cow<'a, [u8]>> {
        self.content.and_then(|content| said(content, ChunkTextKind::Text))
    }

    /// Returns reasoning from any of the members that vendors use.
    pub(super) fn reasoning(&self) -> Option<Cow<'a, [u8]>> {
        let named = [self.reasoning_content, self.reasoning].into_iter().flatten();
        let mut texts = named.filter_map(text).filter(|text| !text.is_empty());
        texts
            .next()
            .map(Cow::Borrowed)
            .or_else(|| self.content.and_then(|content| said(content, ChunkTextKind::Thinking)))
    }

    /// Returns the text, if the delta contains nothing else.
    pub(super) fn only_text(&self) -> Option<&'a [u8]> {
        let others = [self.reasoning_content, self.reasoning, self.refusal];
        let alone = others.iter().all(Option::is_none) && self.tool_calls.is_none();
        self.content.filter(|_| alone).and_then(text).filter(|text| !text.is_empty())
    }

    pub(super) fn refusal(&self) -> Option<&'a [u8]> {
        self.refusal.and_then(text).filter(|text| !text.is_empty())
    }

    pub(super) fn fragments(&self) -> impl Iterator<Item = CallFragment<'a>> {
        let calls = self.tool_calls.as_deref().unwrap_or_default();
        calls.iter().enumerate().map(|(position, call)| call.fragment(position, calls.len()))
    }
}

impl<'a> ToolCall<'a> {
    fn fragment(&self, position: usize, siblings: usize) -> CallFragment<'a> {
        let called = self.custom.as_ref().or(self.function.as_ref());
        CallFragment {
            index: self.index,
            position,
            siblings,
            id: self.id.and_then(text).unwrap_or_default(),
            name: called.and_then(|called| called.name).and_then(text).unwrap_or_default(),
            input: called.and_then(|called| called.arguments.or(called.input)).map(|arguments| {
                match text(arguments) {
                    Some(text) => Cow::Borrowed(text),
                    None => Cow::Owned(escaped(arguments.get())),
                }
            }),
            custom: self.custom.is_some(),
            signature: self.extra_content.and_then(chat::thought_signature),
        }
    }
}

/// Returns the bytes of a string, still escaped and without its quotes.
#[inline]
fn text(raw: &RawValue) -> Option<&[u8]> {
    raw.get().as_bytes().strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Escapes `text` as in JSON, without quotes.
fn escaped(text: &str) -> Vec<u8> {
    let quoted = json::quote(text).into_bytes();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_vec()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkTextKind {
    Text,
    Thinking,
}

/// Returns the part of `content` that is of `kind`. Most vendors send a string of text; Mistral's reasoning models send
/// an array of both kinds.
fn said(content: &RawValue, kind: ChunkTextKind) -> Option<Cow<'_, [u8]>> {
    if let Some(text) = text(content) {
        return Some(text).filter(|text| kind == ChunkTextKind::Text && !text.is_empty()).map(Cow::Borrowed);
    }
    let parts: Vec<Value> = serde_json::from_str(content.get()).ok()?;
    let mut said = String::new();
    for part in &parts {
        match (kind, part.get("thinking")) {
            (ChunkTextKind::Text, None) => {
                said.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default())
            }
            (ChunkTextKind::Thinking, Some(Value::Array(thoughts))) => {
                said.extend(thoughts.iter().filter_map(|thought| thought.get("text")?.as_str()));
            }
            (ChunkTextKind::Thinking, Some(Value::String(thought))) => said.push_str(thought),
            (ChunkTextKind::Text | ChunkTextKind::Thinking, _) => {}
        }
    }
    if said.is_empty() { None } else { Some(Cow::Owned(escaped(&said))) }
}
