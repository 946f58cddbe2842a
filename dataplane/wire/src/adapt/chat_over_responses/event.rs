//! The Responses API's event and answer types, as far as chat can represent them. Strings stay escaped.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use shared::usage::{TokenCounts, Units};

use crate::chat::UsageReader;
use crate::extras::{Extras, term};
use crate::responses::ResponseToolUse;

/// Any stream event, with the members used from all event types.
#[derive(Debug, Deserialize)]
pub(super) struct ResponseEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    pub(super) output_index: Option<u64>,
    pub(super) content_index: Option<u64>,
    pub(super) summary_index: Option<u64>,
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
pub(super) enum ResponseDeltaTarget {
    Text((u64, u64)),
    Refusal((u64, u64)),
    Thought((u64, u64)),
    Input(u64),
}

/// A response: the body of a complete answer, or a member of the last event.
#[derive(Debug, Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    created_at: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
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
pub(super) struct ResponseItem<'a> {
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
    action: Option<&'a RawValue>,
}

/// A part of a message or of reasoning.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsePart<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
}

/// The kind of an item, from chat's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Function,
    Custom,
    Other,
}

impl<'a> ResponseEvent<'a> {
    pub(super) fn read(data: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(data)
    }

    #[inline]
    pub(super) fn kind(&self) -> &'a str {
        bare(self.kind)
    }

    /// Returns the part to which the event's delta is appended, if it has one.
    pub(super) fn piece(&self) -> Option<ResponseDeltaTarget> {
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
    pub(super) fn delta(&self) -> &'a str {
        bare(self.delta)
    }

    /// Returns the complete value that a `.done` event repeats.
    pub(super) fn whole(&self) -> &'a str {
        bare(self.text.or(self.refusal).or(self.arguments).or(self.input))
    }

    pub(super) fn item(&self) -> Option<ResponseItem<'a>> {
        inner(self.item)
    }

    pub(super) fn response(&self) -> Option<Response<'a>> {
        inner(self.response)
    }
}

impl<'a> Response<'a> {
    pub(super) fn read(body: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(body)
    }

    pub(super) fn has_output(&self) -> bool {
        self.output.is_some()
    }

    /// Returns the items with their indexes. Items that cannot be parsed are skipped.
    pub(super) fn items(&self) -> impl Iterator<Item = (u64, ResponseItem<'a>)> {
        let items = self.output.as_deref().unwrap_or_default();
        (0..).zip(items).filter_map(|(place, item)| Some((place, inner(Some(*item))?)))
    }

    pub(super) fn status(&self) -> &'a str {
        bare(self.status)
    }

    fn usage(&self) -> Option<UsageReader> {
        serde_json::from_str::<Value>(self.usage?.get()).ok().as_ref().map(UsageReader::of)
    }

    pub(super) fn token_counts(&self) -> Option<TokenCounts> {
        self.usage()?.counts()
    }

    /// Returns the reported usage other than tokens.
    pub(super) fn extras(&self) -> Extras {
        let mut extras = self.usage().map(|usage| usage.extras()).unwrap_or_default();
        extras.tier = term(bare(self.service_tier).as_bytes());
        let mut tools = Units::ZERO;
        self.items().for_each(|(_, item)| item.tool_use().add_to(&mut tools));
        extras.raise(&tools);
        extras
    }

    /// Returns the creation time in whole seconds since the Unix epoch.
    pub(super) fn created_s(&self) -> Option<u64> {
        self.created_at?.get().split('.').next()?.parse().ok()
    }

    /// Returns chat's `finish_reason`.
    pub(super) fn finish_reason(&self, has_calls: bool) -> &'static str {
        let reason = self.incomplete_details.as_ref().map_or("", |details| bare(details.reason));
        match (self.status(), reason) {
            ("incomplete", "content_filter") => "content_filter",
            ("incomplete", _) => "length",
            _ if has_calls => "tool_calls",
            _ => "stop",
        }
    }
}

impl<'a> ResponseItem<'a> {
    pub(super) fn kind(&self) -> ItemKind {
        match bare(self.kind) {
            "message" => ItemKind::Message,
            "reasoning" => ItemKind::Reasoning,
            "function_call" => ItemKind::Function,
            "custom_tool_call" => ItemKind::Custom,
            _ => ItemKind::Other,
        }
    }

    /// Returns the billed tool use of the item.
    fn tool_use(&self) -> ResponseToolUse {
        let action: Option<Action<'_>> = inner(self.action);
        ResponseToolUse::of(
            bare(self.kind).as_bytes(),
            bare(action.and_then(|action| action.kind)).as_bytes(),
        )
    }

    /// Returns the id by which results refer to the call.
    pub(super) fn call_id(&self) -> &'a str {
        let id = bare(self.call_id);
        if id.is_empty() { bare(self.id) } else { id }
    }

    pub(super) fn name(&self) -> &'a str {
        bare(self.name)
    }

    /// Returns the arguments, or the free text of a custom tool call.
    pub(super) fn input(&self) -> &'a str {
        bare(self.arguments.or(self.input))
    }

    pub(super) fn content(&self) -> Vec<ResponsePart<'a>> {
        inner(self.content).unwrap_or_default()
    }

    /// Returns the texts of reasoning: its summaries, or its content if there are none.
    pub(super) fn thoughts(&self) -> impl Iterator<Item = &'a str> {
        let summary: Vec<ResponsePart<'a>> = inner(self.summary).unwrap_or_default();
        let thoughts = if summary.is_empty() { self.content() } else { summary };
        thoughts.into_iter().map(|thought| thought.text())
    }
}

impl<'a> ResponsePart<'a> {
    pub(super) fn is_refusal(&self) -> bool {
        bare(self.kind) == "refusal"
    }

    pub(super) fn text(&self) -> &'a str {
        bare(self.text.or(self.refusal))
    }
}

/// Parses a member; `None` if it does not have the expected form.
fn inner<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// Returns a string in its escaped form. Empty if it is not a string.
#[inline]
fn bare(raw: Option<&RawValue>) -> &str {
    raw.and_then(|raw| raw.get().strip_prefix('"')?.strip_suffix('"')).unwrap_or_default()
}
