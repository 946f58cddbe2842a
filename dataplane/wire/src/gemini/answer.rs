//! Answers. A complete one and an event of a stream have the same members.

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::{TokenCounts, Units};

use super::usage::GeminiUsage;
use crate::chat::OutputMedia;
use crate::extras::Extras;
use crate::json::{BorrowedText, parse_raw};

/// An answer, or a piece of one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeminiAnswer<'a> {
    #[serde(borrow)]
    pub(crate) candidates: Option<Vec<GeminiCandidate<'a>>>,
    /// Imagen's images.
    #[serde(borrow)]
    pub(crate) predictions: Option<Vec<ImagenPrediction<'a>>>,
    #[serde(borrow)]
    pub(crate) prompt_feedback: Option<GeminiFeedback<'a>>,
    #[serde(borrow)]
    pub(crate) usage_metadata: Option<&'a RawValue>,
    /// Replaces all other members.
    pub(crate) error: Option<&'a RawValue>,
}

/// One of the requested answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeminiCandidate<'a> {
    pub(crate) index: Option<u64>,
    #[serde(borrow)]
    pub(crate) content: Option<GeminiContent<'a>>,
    pub(crate) finish_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) finish_message: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) logprobs_result: Option<&'a RawValue>,
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
pub(crate) struct GeminiContent<'a> {
    #[serde(borrow)]
    pub(crate) parts: Option<Vec<GeminiPart<'a>>>,
}

/// A part: text, a thought, a call or inline bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeminiPart<'a> {
    #[serde(borrow)]
    pub(crate) text: Option<BorrowedText<'a>>,
    pub(crate) thought: Option<bool>,
    pub(crate) thought_signature: Option<BorrowedText<'a>>,
    pub(crate) function_call: Option<FunctionCall<'a>>,
    #[serde(borrow)]
    pub(crate) inline_data: Option<GeminiBlob<'a>>,
}

/// Bytes in base64, such as an image.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeminiBlob<'a> {
    #[serde(borrow)]
    pub(crate) mime_type: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) data: Option<BorrowedText<'a>>,
}

/// An image that Imagen made.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImagenPrediction<'a> {
    #[serde(borrow)]
    pub(crate) bytes_base64_encoded: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) mime_type: Option<BorrowedText<'a>>,
    /// The prompt as rewritten by the model.
    #[serde(borrow)]
    pub(crate) prompt: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) rai_filtered_reason: Option<BorrowedText<'a>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<BorrowedText<'a>>,
    pub(crate) name: Option<BorrowedText<'a>>,
    pub(crate) args: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeminiFeedback<'a> {
    #[serde(borrow)]
    pub(crate) block_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    pub(crate) block_reason_message: Option<BorrowedText<'a>>,
}

/// Returns the usage in a body, which may be an error.
pub(crate) fn usage_in(body: &[u8]) -> Option<TokenCounts> {
    let read: GeminiUsageOnly<'_> = serde_json::from_slice(body).ok()?;
    read.usage_metadata.as_ref().map(GeminiUsage::counts)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiUsageOnly<'a> {
    #[serde(borrow)]
    usage_metadata: Option<GeminiUsage<'a>>,
}

impl<'a> GeminiAnswer<'a> {
    /// Returns the usage, or `None` if it is absent or cannot be read.
    pub(crate) fn usage(&self) -> Option<GeminiUsage<'a>> {
        parse_raw(self.usage_metadata)
    }

    /// Returns the reported usage other than tokens; `usage` is that of the answer.
    pub(crate) fn extras(&self, usage: Option<&GeminiUsage<'_>>) -> Extras {
        let grounded = |candidate: &GeminiCandidate<'_>| candidate.grounding_metadata.map_or(0, searches);
        let searches = self.candidates.iter().flatten().map(grounded).fold(0, u64::saturating_add);
        let tier = usage.and_then(GeminiUsage::tier);
        Extras { units: Units { searches, ..Units::ZERO }, tier, ..Extras::default() }
    }

    /// Returns the only candidate, if the answer holds nothing else besides usage.
    pub(crate) fn only_candidate(&self) -> Option<&GeminiCandidate<'a>> {
        let [candidate] = self.candidates.as_deref()? else { return None };
        self.prompt_feedback.is_none().then_some(candidate)
    }

    /// True if the prompt itself was rejected.
    pub(crate) fn is_blocked(&self) -> bool {
        self.prompt_feedback.as_ref().is_some_and(|feedback| feedback.block_reason.is_some())
    }
}

/// Returns the number of searches in the grounding metadata.
fn searches(grounding: &RawValue) -> u64 {
    let grounding: Option<Grounding<'_>> = parse_raw(Some(grounding));
    let queries = grounding.and_then(|grounding| grounding.web_search_queries).map_or(0, |list| list.len());
    queries.try_into().unwrap_or(u64::MAX)
}

impl<'a> GeminiCandidate<'a> {
    /// Returns the only part, if it is text and the candidate holds nothing else.
    pub(crate) fn only_part(&self) -> Option<&GeminiPart<'a>> {
        let [part] = self.content.as_ref()?.parts.as_deref()? else { return None };
        let is_text =
            part.function_call.is_none() && part.thought_signature.is_none() && part.inline_data.is_none();
        let others = [self.grounding_metadata, self.logprobs_result];
        let alone = self.finish_reason.is_none() && others.iter().all(Option::is_none);
        (is_text && alone).then_some(part)
    }
}

impl<'a> GeminiBlob<'a> {
    /// Returns the media of an answer, unless it is empty.
    pub(crate) fn media(self) -> Option<OutputMedia<'a>> {
        let base64 = self.data?.0;
        let media_type = self.mime_type.map(|media_type| media_type.0).unwrap_or_default();
        (!base64.is_empty()).then_some(OutputMedia::Inline { media_type, base64 })
    }
}

impl GeminiPart<'_> {
    pub(crate) fn is_thought(&self) -> bool {
        self.thought == Some(true)
    }
}
