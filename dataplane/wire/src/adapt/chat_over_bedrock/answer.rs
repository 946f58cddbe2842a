//! The target's response types: a complete answer, and the events of a stream.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use super::usage::{ConverseUsage, tier};
use crate::extras::Extras;

/// A complete answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseAnswer<'a> {
    #[serde(borrow)]
    pub(super) output: Option<ConverseOutput<'a>>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<ConverseText<'a>>,
    #[serde(borrow)]
    pub(super) usage: Option<ConverseUsage<'a>>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
    #[serde(borrow)]
    performance_config: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConverseOutput<'a> {
    #[serde(borrow)]
    pub(super) message: Option<ConverseMessage<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConverseMessage<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Vec<ConverseBlock<'a>>>,
}

/// A content block of a complete answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseBlock<'a> {
    #[serde(borrow)]
    pub(super) text: Option<ConverseText<'a>>,
    #[serde(borrow)]
    pub(super) tool_use: Option<ConverseToolUse<'a>>,
    #[serde(borrow)]
    pub(super) reasoning_content: Option<Reasoning<'a>>,
    #[serde(borrow)]
    pub(super) citations_content: Option<Cited<'a>>,
}

/// Text with citations of its sources.
#[derive(Debug, Deserialize)]
pub(super) struct Cited<'a> {
    #[serde(borrow)]
    pub(super) content: Option<Vec<ConverseTextDelta<'a>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConverseTextDelta<'a> {
    #[serde(borrow)]
    pub(super) text: Option<ConverseText<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseToolUse<'a> {
    #[serde(borrow)]
    pub(super) tool_use_id: Option<ConverseText<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<ConverseText<'a>>,
    /// The arguments; present in complete answers only.
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    /// Present only for a tool that the target runs itself.
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<ConverseText<'a>>,
}

/// Signed reasoning, in a complete answer or in a stream.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reasoning<'a> {
    #[serde(borrow)]
    pub(super) reasoning_text: Option<ReasoningText<'a>>,
    #[serde(borrow)]
    pub(super) text: Option<ConverseText<'a>>,
    #[serde(borrow)]
    pub(super) signature: Option<ConverseText<'a>>,
    #[serde(borrow)]
    pub(super) redacted_content: Option<ConverseText<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReasoningText<'a> {
    #[serde(borrow)]
    pub(super) text: Option<ConverseText<'a>>,
    #[serde(borrow)]
    pub(super) signature: Option<ConverseText<'a>>,
}

/// The payload of any stream event.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseEvent<'a> {
    #[serde(default)]
    pub(super) content_block_index: u64,
    #[serde(borrow)]
    pub(super) start: Option<ConverseBlockStart<'a>>,
    #[serde(borrow)]
    pub(super) delta: Option<ConverseDelta<'a>>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<ConverseText<'a>>,
    #[serde(borrow)]
    pub(super) usage: Option<ConverseUsage<'a>>,
    #[serde(borrow)]
    service_tier: Option<&'a RawValue>,
    #[serde(borrow)]
    performance_config: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseBlockStart<'a> {
    #[serde(borrow)]
    pub(super) tool_use: Option<ConverseToolUse<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseDelta<'a> {
    #[serde(borrow)]
    pub(super) text: Option<ConverseText<'a>>,
    #[serde(borrow)]
    pub(super) tool_use: Option<ConverseInputDelta<'a>>,
    #[serde(borrow)]
    pub(super) reasoning_content: Option<Reasoning<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConverseInputDelta<'a> {
    #[serde(borrow)]
    pub(super) input: Option<ConverseText<'a>>,
}

/// Returns the usage in a body, which may be an error.
pub(in crate::adapt) fn usage_in(body: &[u8]) -> Option<TokenCounts> {
    let said: ConverseUsageOnly<'_> = serde_json::from_slice(body).ok()?;
    said.usage.as_ref().map(ConverseUsage::counts)
}

#[derive(Deserialize)]
struct ConverseUsageOnly<'a> {
    #[serde(borrow)]
    usage: Option<ConverseUsage<'a>>,
}

/// A string, borrowed if it contains no escapes.
#[derive(Debug, Deserialize)]
pub(super) struct ConverseText<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl ConverseAnswer<'_> {
    /// Returns the reported usage other than tokens.
    pub(super) fn extras(&self) -> Extras {
        Extras { tier: tier(self.service_tier, self.performance_config), ..Extras::default() }
    }
}

impl ConverseEvent<'_> {
    /// Returns the reported usage other than tokens.
    pub(super) fn extras(&self) -> Extras {
        Extras { tier: tier(self.service_tier, self.performance_config), ..Extras::default() }
    }
}

impl<'a> ConverseDelta<'a> {
    /// Returns the text, borrowed from the event, if the delta holds nothing else. `None` if the text contains
    /// escapes.
    pub(super) fn only_text(&self) -> Option<&'a str> {
        let alone = self.tool_use.is_none() && self.reasoning_content.is_none();
        match self.text.as_ref().filter(|_| alone)?.0 {
            Cow::Borrowed(text) => Some(text),
            Cow::Owned(_) => None,
        }
    }
}

impl ConverseToolUse<'_> {
    /// True if the client has to run the tool; false if the target runs it.
    pub(super) fn is_for_the_client(&self) -> bool {
        self.kind.is_none()
    }
}

/// Translates the target's stop reason into chat's `finish_reason`. A truncated answer never ends with `tool_calls`,
/// because its calls may be incomplete.
pub(super) fn finish_reason(theirs: &str, has_calls: bool) -> &'static str {
    match theirs {
        "max_tokens" | "model_context_window_exceeded" => "length",
        "guardrail_intervened" | "content_filtered" => "content_filter",
        "tool_use" => "tool_calls",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}
