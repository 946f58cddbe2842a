//! The Responses API's event and answer types, as far as chat can represent them. Strings stay escaped.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::usage::{TokenCounts, Units};

use super::ResponseToolUse;
use crate::chat::{AnswerText, OutputMedia, UsageReader};
use crate::extras::{Extras, term};
use crate::finish_word::failed_end;
use crate::json::{inside_quotes, parse_raw};

/// Any stream event, with the members used from all event types.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponseEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    pub(crate) output_index: Option<u64>,
    pub(crate) content_index: Option<u64>,
    pub(crate) summary_index: Option<u64>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// The part of the answer to which a delta is appended: a content part, by its item and part index, or the input of a
/// call, by its item index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseDeltaTarget {
    Text((u64, u64)),
    Refusal((u64, u64)),
    Thought((u64, u64)),
    Input(u64),
}

/// A response: the body of a complete answer, or a member of the last event.
#[derive(Debug, Deserialize)]
pub(crate) struct Response<'a> {
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    created_at: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
    #[serde(borrow)]
    incomplete_details: Option<IncompleteDetails<'a>>,
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Action<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct IncompleteDetails<'a> {
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
}

/// An output item.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponseItem<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    encrypted_content: Option<&'a RawValue>,
    #[serde(borrow)]
    action: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    output_format: Option<&'a RawValue>,
}

/// A part of a message or of reasoning.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponsePart<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
}

/// The kind of an item, from chat's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Message,
    Reasoning,
    Function,
    Custom,
    Image,
    Other,
}

impl<'a> ResponseEvent<'a> {
    pub(crate) fn read(data: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(data)
    }

    #[inline]
    pub(crate) fn kind(&self) -> &'a str {
        bare(self.kind)
    }

    /// Returns the part to which the event's delta is appended, if it has one.
    pub(crate) fn piece(&self) -> Option<ResponseDeltaTarget> {
        let index = self.output_index.unwrap_or_default();
        let part = (index, self.content_index.unwrap_or_default());
        Some(match self.kind() {
            "response.output_text.delta" => ResponseDeltaTarget::Text(part),
            "response.refusal.delta" => ResponseDeltaTarget::Refusal(part),
            "response.reasoning_text.delta" => ResponseDeltaTarget::Thought(part),
            "response.reasoning_summary_text.delta" => {
                ResponseDeltaTarget::Thought((index, self.summary_index.unwrap_or_default()))
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                ResponseDeltaTarget::Input(index)
            }
            _ => return None,
        })
    }

    #[inline]
    pub(crate) fn delta(&self) -> &'a str {
        bare(self.delta)
    }

    /// Returns the complete value that a `.done` event repeats.
    pub(crate) fn whole(&self) -> &'a str {
        bare(self.text.or(self.refusal).or(self.arguments).or(self.input))
    }

    pub(crate) fn item(&self) -> Option<ResponseItem<'a>> {
        parse_raw(self.item)
    }

    pub(crate) fn response(&self) -> Option<Response<'a>> {
        parse_raw(self.response)
    }
}

impl<'a> Response<'a> {
    pub(crate) fn read(body: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(body)
    }

    pub(crate) fn has_output(&self) -> bool {
        self.output.is_some()
    }

    /// Returns the items with their indexes. Items that cannot be parsed are skipped.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u64, ResponseItem<'a>)> {
        let items = self.output.as_deref().unwrap_or_default();
        (0..).zip(items).filter_map(|(place, item)| Some((place, parse_raw(Some(*item))?)))
    }

    pub(crate) fn status(&self) -> &'a str {
        bare(self.status)
    }

    fn usage(&self) -> Option<UsageReader> {
        parse_raw::<Value>(self.usage).as_ref().map(UsageReader::of)
    }

    pub(crate) fn token_counts(&self) -> Option<TokenCounts> {
        self.usage()?.counts()
    }

    /// Returns the reported usage other than tokens.
    pub(crate) fn extras(&self) -> Extras {
        let mut extras = self.usage().map(|usage| usage.extras()).unwrap_or_default();
        extras.tier = term(bare(self.service_tier).as_bytes());
        let mut tools = Units::ZERO;
        self.items().for_each(|(_, item)| item.tool_use().add_to(&mut tools));
        extras.raise(&tools);
        extras
    }

    /// Returns the creation time in whole seconds since the Unix epoch.
    pub(crate) fn created_s(&self) -> Option<u64> {
        self.created_at?.get().split('.').next()?.parse().ok()
    }

    /// Returns chat's `finish_reason`.
    pub(crate) fn finish_reason(&self, has_calls: bool) -> &'a str {
        let reason = self.incomplete_details.as_ref().map_or("", |details| bare(details.reason));
        match (self.status(), reason) {
            ("incomplete", "content_filter") => "content_filter",
            ("incomplete", reason) if failed_end(reason.as_bytes()).is_some() => reason,
            ("incomplete", _) => "length",
            _ if has_calls => "tool_calls",
            _ => "stop",
        }
    }
}

impl<'a> ResponseItem<'a> {
    pub(crate) fn kind(&self) -> ItemKind {
        match bare(self.kind) {
            "message" => ItemKind::Message,
            "reasoning" => ItemKind::Reasoning,
            "function_call" => ItemKind::Function,
            "custom_tool_call" => ItemKind::Custom,
            "image_generation_call" => ItemKind::Image,
            _ => ItemKind::Other,
        }
    }

    /// Returns the billed tool use of the item.
    fn tool_use(&self) -> ResponseToolUse {
        let action: Option<Action<'_>> = parse_raw(self.action);
        ResponseToolUse::of(
            bare(self.kind).as_bytes(),
            bare(action.and_then(|action| action.kind)).as_bytes(),
        )
    }

    /// Returns the id by which results refer to the call.
    /// Returns its ID, or an empty text.
    pub(crate) fn id(&self) -> &'a str {
        bare(self.id)
    }

    /// Returns the encrypted content of reasoning, or an empty text. It is base64 and needs no escapes.
    pub(crate) fn encrypted_content(&self) -> &'a str {
        bare(self.encrypted_content)
    }

    pub(crate) fn call_id(&self) -> &'a str {
        let id = bare(self.call_id);
        if id.is_empty() { bare(self.id) } else { id }
    }

    pub(crate) fn name(&self) -> &'a str {
        bare(self.name)
    }

    /// Returns the image of an `image_generation_call`, once it is complete.
    pub(crate) fn image(&self) -> Option<OutputMedia<'a>> {
        let base64 = AnswerText::Escaped(bare(self.result)).plain();
        let format = bare(self.output_format);
        let format = if format.is_empty() { "png" } else { format };
        let media_type = format!("image/{format}").into();
        (!base64.is_empty()).then_some(OutputMedia::Inline { media_type, base64 })
    }

    /// Returns the arguments, or the free text of a custom tool call.
    pub(crate) fn input(&self) -> &'a str {
        bare(self.arguments.or(self.input))
    }

    pub(crate) fn content(&self) -> Vec<ResponsePart<'a>> {
        parse_raw(self.content).unwrap_or_default()
    }

    /// Returns the texts of reasoning: its summaries, or its content if there are none.
    pub(crate) fn thoughts(&self) -> impl Iterator<Item = &'a str> {
        let summary: Vec<ResponsePart<'a>> = parse_raw(self.summary).unwrap_or_default();
        let thoughts = if summary.is_empty() { self.content() } else { summary };
        thoughts.into_iter().map(|thought| thought.text())
    }
}

impl<'a> ResponsePart<'a> {
    pub(crate) fn is_refusal(&self) -> bool {
        bare(self.kind) == "refusal"
    }

    pub(crate) fn text(&self) -> &'a str {
        bare(self.text.or(self.refusal))
    }
}

/// Returns a string in its escaped form. Empty if it is not a string.
#[inline]
fn bare(raw: Option<&RawValue>) -> &str {
    raw.and_then(inside_quotes).unwrap_or_default()
}
