//! The target's response types. A complete answer and a stream event have the same members.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::{TokenCounts, Units};

use super::usage::GeminiUsage;
use crate::adapt::chat_client::CallIdentity;
use crate::chat::{ChatCall, ChatTextKind, escape};
use crate::extras::Extras;
use crate::json::compact;

/// An answer, or a piece of one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiAnswer<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<GeminiCandidate<'a>>>,
    pub(super) prompt_feedback: Option<GeminiFeedback<'a>>,
    #[serde(borrow)]
    pub(super) usage_metadata: Option<GeminiUsage<'a>>,
    /// Replaces all other members.
    pub(super) error: Option<&'a RawValue>,
}

/// One of the requested answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiCandidate<'a> {
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) content: Option<GeminiContent<'a>>,
    pub(super) finish_reason: Option<GeminiText<'a>>,
    #[serde(borrow)]
    grounding_metadata: Option<&'a RawValue>,
}

/// The web searches on which an answer is based.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Grounding<'a> {
    #[serde(borrow)]
    web_search_queries: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GeminiContent<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<Vec<GeminiPart<'a>>>,
}

/// A part: text, a thought or a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiPart<'a> {
    #[serde(borrow)]
    pub(super) text: Option<GeminiText<'a>>,
    pub(super) thought: Option<bool>,
    pub(super) thought_signature: Option<GeminiText<'a>>,
    pub(super) function_call: Option<FunctionCall<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    id: Option<GeminiText<'a>>,
    name: Option<GeminiText<'a>>,
    args: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiFeedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: Option<GeminiText<'a>>,
}

/// Returns the usage in a body, which may be an error.
pub(in crate::adapt) fn usage_in(body: &[u8]) -> Option<TokenCounts> {
    let said: GeminiUsageOnly<'_> = serde_json::from_slice(body).ok()?;
    said.usage_metadata.as_ref().map(GeminiUsage::counts)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiUsageOnly<'a> {
    #[serde(borrow)]
    usage_metadata: Option<GeminiUsage<'a>>,
}

/// A string, borrowed if it contains no escapes.
#[derive(Debug, Deserialize)]
pub(in crate::adapt) struct GeminiText<'a>(#[serde(borrow)] pub(in crate::adapt) Cow<'a, str>);

impl<'a> GeminiAnswer<'a> {
    /// Returns the reported usage other than tokens.
    pub(super) fn extras(&self) -> Extras {
        let grounded = |candidate: &GeminiCandidate<'_>| candidate.grounding_metadata.map_or(0, searches);
        let searches = self.candidates.iter().flatten().map(grounded).fold(0, u64::saturating_add);
        let tier = self.usage_metadata.as_ref().and_then(GeminiUsage::tier);
        Extras { units: Units { searches, ..Units::ZERO }, tier, ..Extras::default() }
    }

    /// Returns the only candidate, if the answer holds nothing else besides usage.
    pub(super) fn only_candidate(&self) -> Option<&GeminiCandidate<'a>> {
        let [candidate] = self.candidates.as_deref()? else { return None };
        self.prompt_feedback.is_none().then_some(candidate)
    }

    /// True if the prompt itself was rejected.
    pub(super) fn is_blocked(&self) -> bool {
        self.prompt_feedback.as_ref().is_some_and(|feedback| feedback.block_reason.is_some())
    }
}

/// Returns the number of searches in the grounding metadata.
fn searches(grounding: &RawValue) -> u64 {
    let grounding = serde_json::from_str::<Grounding<'_>>(grounding.get()).ok();
    let queries = grounding.and_then(|grounding| grounding.web_search_queries).map_or(0, |list| list.len());
    queries.try_into().unwrap_or(u64::MAX)
}

impl<'a> GeminiCandidate<'a> {
    /// Returns the only part, if it is text and the candidate holds nothing else.
    pub(super) fn only_part(&self) -> Option<&GeminiPart<'a>> {
        let [part] = self.content.as_ref()?.parts.as_deref()? else { return None };
        let is_text = part.function_call.is_none() && part.thought_signature.is_none();
        let alone = self.finish_reason.is_none() && self.grounding_metadata.is_none();
        (is_text && alone).then_some(part)
    }
}

impl GeminiPart<'_> {
    pub(super) fn is_thought(&self) -> bool {
        self.thought == Some(true)
    }

    /// Returns the kind of the part's text.
    pub(super) fn kind(&self) -> ChatTextKind {
        if self.is_thought() { ChatTextKind::Reasoning } else { ChatTextKind::Content }
    }
}

impl<'a> FunctionCall<'a> {
    /// Converts to the call at `position`, counted over the whole answer.
    pub(super) fn into_call(
        self,
        position: u64,
        signature: Option<GeminiText<'a>>,
        identity: &CallIdentity,
    ) -> ChatCall<'a> {
        let mut arguments = Vec::new();
        compact(self.args.map_or("{}", RawValue::get).as_bytes(), &mut arguments);
        ChatCall {
            id: identity.call_id(self.id.map(|id| id.0), position),
            name: identity.tool_name(self.name.map(|name| name.0)),
            // JSON stays valid UTF-8 when its white space is removed.
            input: escape(String::from_utf8(arguments).unwrap_or_default().into()),
            custom: false,
            signature: signature.map(|signature| signature.0),
        }
    }
}

/// Translates the target's finish reason into chat's.
pub(in crate::adapt) fn finish_reason(theirs: &str) -> &'static str {
    match theirs {
        "MAX_TOKENS" => "length",
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "LANGUAGE"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => "content_filter",
        _ => "stop",
    }
}
