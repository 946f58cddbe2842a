//! A chunk of a chat stream in its vendors' variants: members may be missing, null or of another type. Texts stay
//! escaped, because they are written in the same form.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::event::OpenBlock;
use crate::chat::{self, FinishReason, UsageReader};
use crate::extras::term;
use crate::json;

/// A chunk of the stream.
#[derive(Debug, Deserialize)]
pub(super) struct ChatChunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Vec<ChatChunkChoice<'a>>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) service_tier: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatChunkChoice<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<ChatChunkDelta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    /// vLLM: the stop sequence that was met, or a token id.
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChatChunkDelta<'a> {
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
    #[serde(borrow)]
    pub(super) thinking_blocks: Option<Vec<ThoughtDelta<'a>>>,
}

/// A piece of Claude's signed thoughts, in the form of LiteLLM's clients. The text of the thoughts also arrives as
/// reasoning.
#[derive(Debug, Deserialize)]
pub(super) struct ThoughtDelta<'a> {
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// A fragment of a tool call.
#[derive(Debug, Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    function: Option<ChatCallFunction<'a>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct ChatCallFunction<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl<'a> ChatChunk<'a> {
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
        between_quotes(self.service_tier?).and_then(|tier| term(tier.as_bytes()))
    }

    /// Returns its text with the kind of block that the text belongs to, if the chunk contains nothing else.
    pub(super) fn only_text(&self) -> Option<(&'a str, OpenBlock)> {
        let [choice] = self.choices.as_deref()? else { return None };
        let ends =
            [self.usage, self.x_groq, self.error, choice.usage, choice.finish_reason, choice.stop_reason];
        let alone = choice.is_first() && ends.iter().all(Option::is_none);
        choice.delta.as_ref().filter(|_| alone)?.only_text()
    }
}

impl<'a> ChatChunkChoice<'a> {
    /// Returns true for the choice with index 0, the only one that a message can carry.
    pub(super) fn is_first(&self) -> bool {
        self.index.is_none_or(|index| matches!(index.get(), "0" | "0.0" | "\"0\""))
    }

    pub(super) fn finish(&self) -> Option<FinishReason> {
        FinishReason::of(between_quotes(self.finish_reason?)?.as_bytes())
    }

    pub(super) fn stop(&self) -> Option<String> {
        string(self.stop_reason?)
    }
}

impl<'a> ChatChunkDelta<'a> {
    fn only_text(&self) -> Option<(&'a str, OpenBlock)> {
        let texts = [
            (self.content, OpenBlock::Text),
            (self.reasoning_content, OpenBlock::Thinking),
            (self.reasoning, OpenBlock::Thinking),
        ];
        let mut texts = texts.into_iter().filter_map(|(text, block)| Some((text?, block)));
        let (text, block) = texts.next()?;
        let alone = texts.next().is_none()
            && self.refusal.is_none()
            && self.tool_calls.is_none()
            && self.thinking_blocks.is_none();
        Some((between_quotes(text)?, block)).filter(|_| alone)
    }

    pub(super) fn thoughts(&self) -> Option<&'a RawValue> {
        let said = |raw: &&RawValue| raw.get() != "\"\"";
        self.reasoning_content.filter(said).or(self.reasoning)
    }
}

impl<'a> ThoughtDelta<'a> {
    /// Returns the signature of the preceding thoughts, still escaped.
    pub(super) fn signature(&self) -> Option<&'a str> {
        between_quotes(self.signature?).filter(|text| !text.is_empty())
    }

    /// Returns redacted thoughts, still escaped.
    pub(super) fn data(&self) -> Option<&'a str> {
        between_quotes(self.data?).filter(|text| !text.is_empty())
    }
}

impl<'a> CallDelta<'a> {
    /// Returns the upstream's index of the call.
    pub(super) fn index(&self) -> Option<u64> {
        self.index?.get().trim_matches('"').parse().ok()
    }

    pub(super) fn id(&self) -> Option<String> {
        string(self.id?).filter(|id| !id.is_empty())
    }

    pub(super) fn name(&self) -> Option<String> {
        string(self.function.as_ref()?.name?).filter(|name| !name.is_empty())
    }

    /// Returns Gemini's signature of the thoughts before the call.
    pub(super) fn signature(&self) -> Option<String> {
        chat::thought_signature(self.extra_content?)
    }

    /// Returns a fragment of its arguments, escaped and without quotes. Some vendors send an object.
    pub(super) fn arguments(&self) -> Option<Cow<'a, str>> {
        let raw = self.function.as_ref()?.arguments?;
        let text = match between_quotes(raw) {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(inside(json::quote(raw.get()))),
        };
        Some(text).filter(|text| !text.is_empty())
    }
}

/// Returns a string without its quotes, still escaped.
pub(super) fn between_quotes(raw: &RawValue) -> Option<&str> {
    raw.get().strip_prefix('"')?.strip_suffix('"')
}

/// Removes the quotes of a string.
fn inside(mut quoted: String) -> String {
    quoted.pop();
    if !quoted.is_empty() {
        quoted.remove(0);
    }
    quoted
}

/// Returns the unescaped text of a string.
fn string(raw: &RawValue) -> Option<String> {
    json::unescape(between_quotes(raw)?.as_bytes())
}

/// A piece of content, escaped and without quotes. Content is mostly one text; Mistral sends parts, among them
/// thoughts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatContentPiece<'a> {
    Text(Cow<'a, str>),
    Thought(Cow<'a, str>),
}

/// Returns the pieces of a `content` that is an array.
pub(super) fn pieces(raw: &RawValue) -> Vec<ChatContentPiece<'_>> {
    let parts: Vec<Value> = serde_json::from_str(raw.get()).unwrap_or_default();
    let escaped = |text: &str| Cow::Owned(inside(json::quote(text)));
    let mut pieces = Vec::new();
    for part in &parts {
        if let Some(text) = part["text"].as_str() {
            pieces.push(ChatContentPiece::Text(escaped(text)));
        }
        let thoughts = part["thinking"].as_array().into_iter().flatten();
        let thoughts = thoughts.filter_map(|thought| thought["text"].as_str());
        let thoughts = thoughts.chain(part["thinking"].as_str());
        pieces.extend(thoughts.map(|text| ChatContentPiece::Thought(escaped(text))));
    }
    pieces
}
