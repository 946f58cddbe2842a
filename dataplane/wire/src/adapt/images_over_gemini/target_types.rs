//! The target's response types, for generateContent and `:predict`. Image data is borrowed if it contains no escapes.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use crate::gemini::{GeminiUsage, is_filtered};
use crate::json::BorrowedText;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiImageAnswer<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<GeminiImageCandidate<'a>>>,
    #[serde(borrow)]
    predictions: Option<Vec<Prediction<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<GeminiImageFeedback<'a>>,
    #[serde(borrow)]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiImageCandidate<'a> {
    #[serde(borrow)]
    content: Option<GeminiImageContent<'a>>,
    #[serde(borrow)]
    finish_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    finish_message: Option<BorrowedText<'a>>,
}

#[derive(Debug, Deserialize)]
struct GeminiImageContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<GeminiImagePart<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiImagePart<'a> {
    thought: Option<bool>,
    #[serde(borrow)]
    text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    inline_data: Option<InlineImage<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InlineImage<'a> {
    #[serde(borrow)]
    mime_type: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    data: Option<BorrowedText<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prediction<'a> {
    #[serde(borrow)]
    bytes_base64_encoded: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    mime_type: Option<BorrowedText<'a>>,
    /// The prompt as rewritten by the model.
    #[serde(borrow)]
    prompt: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    rai_filtered_reason: Option<BorrowedText<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiImageFeedback<'a> {
    #[serde(borrow)]
    block_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    block_reason_message: Option<BorrowedText<'a>>,
}

/// The output tokens by modality.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiImageUsage<'a> {
    #[serde(borrow)]
    candidates_tokens_details: Option<Vec<GeminiImageTokens<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiImageTokens<'a> {
    #[serde(borrow)]
    modality: Option<BorrowedText<'a>>,
    token_count: Option<u64>,
}

/// One image of the answer.
#[derive(Debug)]
pub(super) struct GeminiImage<'a> {
    pub(super) data: Cow<'a, str>,
    pub(super) mime_type: Option<Cow<'a, str>>,
    pub(super) revised_prompt: Option<Cow<'a, str>>,
}

impl<'a> GeminiImageAnswer<'a> {
    /// Takes the images, in order. Images that are part of thoughts are skipped, as is their text.
    pub(super) fn take_images(&mut self) -> Vec<GeminiImage<'a>> {
        let parts = self.candidates.iter_mut().flatten().filter_map(|candidate| candidate.content.as_mut());
        let parts = parts.flat_map(|content| content.parts.iter_mut().flatten());
        let drawn = parts.filter(|part| part.thought != Some(true)).filter_map(|part| {
            let blob = part.inline_data.take()?;
            Some(GeminiImage {
                data: blob.data?.0,
                mime_type: blob.mime_type.map(|text| text.0),
                revised_prompt: None,
            })
        });
        let predicted = self.predictions.iter_mut().flatten().filter_map(|image| {
            Some(GeminiImage {
                data: image.bytes_base64_encoded.take()?.0,
                mime_type: image.mime_type.take().map(|text| text.0),
                revised_prompt: image.prompt.take().map(|text| text.0),
            })
        });
        let is_image = |image: &GeminiImage<'_>| {
            let kind = image.mime_type.as_deref();
            !image.data.is_empty() && kind.is_none_or(|kind| kind.starts_with("image/"))
        };
        drawn.chain(predicted).filter(is_image).collect()
    }

    /// Returns the target's reason for refusing to make an image, if it refused.
    pub(super) fn refusal(&self) -> Option<&str> {
        let feedback = self.prompt_feedback.as_ref().and_then(|feedback| {
            let reason = feedback.block_reason.as_ref()?;
            Some(&*feedback.block_reason_message.as_ref().unwrap_or(reason).0)
        });
        let filtered =
            || self.predictions.iter().flatten().find_map(|image| image.rai_filtered_reason.as_ref());
        feedback.or_else(|| filtered().map(|text| &*text.0)).or_else(|| {
            self.ends()
                .find(|(reason, _)| is_filtered(reason))
                .map(|(reason, message)| message.unwrap_or(reason))
        })
    }

    /// Returns the text sent instead of an image or, without text, the reason why the answer ended. May be empty.
    pub(super) fn words(&self) -> String {
        let parts = self.candidates.iter().flatten().filter_map(|candidate| candidate.content.as_ref());
        let parts = parts.flat_map(|content| content.parts.iter().flatten());
        let texts = parts.filter(|part| part.thought != Some(true)).filter_map(|part| part.text.as_ref());
        let words: String = texts.map(|text| &*text.0).collect();
        if !words.trim().is_empty() {
            return words;
        }
        let end = self.ends().find(|(reason, _)| *reason != "STOP");
        end.map(|(reason, message)| message.unwrap_or(reason).to_owned()).unwrap_or_default()
    }

    /// Returns the finish reason of each candidate that has one, with its message if there is one.
    fn ends(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.candidates.iter().flatten().filter_map(|candidate| {
            let message = candidate.finish_message.as_ref().map(|text| &*text.0);
            Some((&*candidate.finish_reason.as_ref()?.0, message))
        })
    }

    /// Returns the token counts and the service tier.
    pub(super) fn usage(&self) -> (Option<TokenCounts>, Option<Box<str>>) {
        let usage =
            self.usage_metadata.and_then(|raw| serde_json::from_str::<GeminiUsage<'_>>(raw.get()).ok());
        (usage.as_ref().map(GeminiUsage::counts), usage.as_ref().and_then(GeminiUsage::tier))
    }

    /// Returns how many of the output tokens belong to images, if reported.
    pub(super) fn image_tokens(&self) -> Option<u64> {
        let details = serde_json::from_str::<GeminiImageUsage<'_>>(self.usage_metadata?.get()).ok()?;
        let of_images =
            |detail: &&GeminiImageTokens<'_>| detail.modality.as_ref().is_some_and(|text| text.0 == "IMAGE");
        let details = details.candidates_tokens_details?;
        let tokens = details.iter().filter(of_images).filter_map(|detail| detail.token_count);
        Some(tokens.fold(0, u64::saturating_add))
    }
}
