//! A chunk of a chat stream as its vendors write it: what may be missing, null or of another type is taken as it
//! comes. Texts stay as they are escaped, because that is how they go on.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::event::OpenBlock;
use crate::chat::{self, FinishReason, UsageReader};
use crate::extras::term;
use crate::json;

/// A chunk.
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
    /// vLLM: the stop sequence that was met, or the number of a token.
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

/// A piece of what Claude has signed of its thoughts, as clients of LiteLLM keep it. The thoughts themselves come as
/// reasoning too.
#[derive(Debug, Deserialize)]
pub(super) struct ThoughtDelta<'a> {
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// A piece of a tool call.
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
    /// What it reports of usage, if it does: in itself, or in a choice as Moonshot has it.
    pub(super) fn usage(&self) -> Option<UsageReader> {
        let read = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
        let choices = || self.choices.iter().flatten().find_map(|choice| choice.usage.and_then(read));
        let groq = || self.x_groq.and_then(read).and_then(|groq| groq.get("usage").cloned());
        let usage = self.usage.and_then(read).filter(Value::is_object).or_else(groq).or_else(choices)?;
        Some(UsageReader::of(&usage))
    }

    /// The service tier that it names.
    pub(super) fn tier(&self) -> Option<Box<str>> {
        between_quotes(self.service_tier?).and_then(|tier| term(tier.as_bytes()))
    }

    /// Its text, and what it adds to, if it says nothing else.
    pub(super) fn only_text(&self) -> Option<(&'a str, OpenBlock)> {
        let [choice] = self.choices.as_deref()? else { return None };
        let ends =
            [self.usage, self.x_groq, self.error, choice.usage, choice.finish_reason, choice.stop_reason];
        let alone = choice.is_first() && ends.iter().all(Option::is_none);
        choice.delta.as_ref().filter(|_| alone)?.only_text()
    }
}

impl<'a> ChatChunkChoice<'a> {
    /// Only the first of several answers has a place in a message.
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
    /// The signature of the thoughts before it, as it is escaped.
    pub(super) fn signature(&self) -> Option<&'a str> {
        between_quotes(self.signature?).filter(|text| !text.is_empty())
    }

    /// Thoughts that are not to be read, as they are escaped.
    pub(super) fn data(&self) -> Option<&'a str> {
        between_quotes(self.data?).filter(|text| !text.is_empty())
    }
}

impl<'a> CallDelta<'a> {
    /// Which of the calls this is, as the upstream counts them.
    pub(super) fn index(&self) -> Option<u64> {
        self.index?.get().trim_matches('"').parse().ok()
    }

    pub(super) fn id(&self) -> Option<String> {
        string(self.id?).filter(|id| !id.is_empty())
    }

    pub(super) fn name(&self) -> Option<String> {
        string(self.function.as_ref()?.name?).filter(|name| !name.is_empty())
    }

    /// Gemini's signature of the thoughts before the call.
    pub(super) fn signature(&self) -> Option<String> {
        chat::thought_signature(self.extra_content?)
    }

    /// More of its arguments, as they stand between quotes. Some vendors send an object.
    pub(super) fn arguments(&self) -> Option<Cow<'a, str>> {
        let raw = self.function.as_ref()?.arguments?;
        let text = match between_quotes(raw) {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(inside(json::quote(raw.get()))),
        };
        Some(text).filter(|text| !text.is_empty())
    }
}

/// What stands between the quotes of a string.
pub(super) fn between_quotes(raw: &RawValue) -> Option<&str> {
    raw.get().strip_prefix('"')?.strip_suffix('"')
}

/// A string without its quotes.
fn inside(mut quoted: String) -> String {
    quoted.pop();
    if !quoted.is_empty() {
        quoted.remove(0);
    }
    quoted
}

/// What a string says.
fn string(raw: &RawValue) -> Option<String> {
    json::unescape(between_quotes(raw)?.as_bytes())
}

/// A piece of content, as it stands between quotes: mostly one text; Mistral sends parts, thoughts among them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatContentPiece<'a> {
    Text(Cow<'a, str>),
    Thought(Cow<'a, str>),
}

/// The pieces of a `content`.
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
