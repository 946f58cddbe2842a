//! What the target sends, in either form. Nothing of an image is copied that need not be.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::usage::TokenCounts;

use crate::adapt::chat_over_gemini::{Text, Usage, finish_reason};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow)]
    predictions: Option<Vec<Prediction<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<Feedback<'a>>,
    #[serde(borrow)]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<Content<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow)]
    finish_message: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    thought: Option<bool>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    inline_data: Option<Blob<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Blob<'a> {
    #[serde(borrow)]
    mime_type: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prediction<'a> {
    #[serde(borrow)]
    bytes_base64_encoded: Option<Text<'a>>,
    #[serde(borrow)]
    mime_type: Option<Text<'a>>,
    /// What the model made of the prompt before it drew.
    #[serde(borrow)]
    prompt: Option<Text<'a>>,
    #[serde(borrow)]
    rai_filtered_reason: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow)]
    block_reason: Option<Text<'a>>,
    #[serde(borrow)]
    block_reason_message: Option<Text<'a>>,
}

/// Of what the tokens of an answer are.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details<'a> {
    #[serde(borrow)]
    candidates_tokens_details: Option<Vec<Detail<'a>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Detail<'a> {
    #[serde(borrow)]
    modality: Option<Text<'a>>,
    token_count: Option<u64>,
}

/// One image.
#[derive(Debug)]
pub(super) struct Image<'a> {
    pub(super) data: Cow<'a, str>,
    pub(super) mime_type: Option<Cow<'a, str>>,
    pub(super) revised_prompt: Option<Cow<'a, str>>,
}

impl<'a> Answer<'a> {
    /// The images, in their order. Pictures of a thought on the way are left out, as its words are.
    pub(super) fn take_images(&mut self) -> Vec<Image<'a>> {
        let parts = self.candidates.iter_mut().flatten().filter_map(|candidate| candidate.content.as_mut());
        let parts = parts.flat_map(|content| content.parts.iter_mut().flatten());
        let drawn = parts.filter(|part| part.thought != Some(true)).filter_map(|part| {
            let blob = part.inline_data.take()?;
            Some(Image {
                data: blob.data?.0,
                mime_type: blob.mime_type.map(|text| text.0),
                revised_prompt: None,
            })
        });
        let predicted = self.predictions.iter_mut().flatten().filter_map(|image| {
            Some(Image {
                data: image.bytes_base64_encoded.take()?.0,
                mime_type: image.mime_type.take().map(|text| text.0),
                revised_prompt: image.prompt.take().map(|text| text.0),
            })
        });
        let is_image = |image: &Image<'_>| {
            let kind = image.mime_type.as_deref();
            !image.data.is_empty() && kind.is_none_or(|kind| kind.starts_with("image/"))
        };
        drawn.chain(predicted).filter(is_image).collect()
    }

    /// Why no image may be made, in the target's words.
    pub(super) fn refusal(&self) -> Option<&str> {
        let feedback = self.prompt_feedback.as_ref().and_then(|feedback| {
            let reason = feedback.block_reason.as_ref()?;
            Some(&*feedback.block_reason_message.as_ref().unwrap_or(reason).0)
        });
        let filtered =
            || self.predictions.iter().flatten().find_map(|image| image.rai_filtered_reason.as_ref());
        feedback.or_else(|| filtered().map(|text| &*text.0)).or_else(|| {
            let refuses = |reason: &str| finish_reason(reason) == "content_filter";
            self.ends().find(|(reason, _)| refuses(reason)).map(|(reason, message)| message.unwrap_or(reason))
        })
    }

    /// What is said in place of an image: words, or why it ended.
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

    /// Why the candidates ended, each with a sentence about it, if there is one.
    fn ends(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.candidates.iter().flatten().filter_map(|candidate| {
            let message = candidate.finish_message.as_ref().map(|text| &*text.0);
            Some((&*candidate.finish_reason.as_ref()?.0, message))
        })
    }

    /// What was used, and the service tier.
    pub(super) fn usage(&self) -> (Option<TokenCounts>, Option<Box<str>>) {
        let usage = self.usage_metadata.and_then(|raw| serde_json::from_str::<Usage<'_>>(raw.get()).ok());
        (usage.as_ref().map(Usage::counts), usage.as_ref().and_then(Usage::tier))
    }

    /// How many of the tokens of the output are those of images, if that is said.
    pub(super) fn image_tokens(&self) -> Option<u64> {
        let details = serde_json::from_str::<Details<'_>>(self.usage_metadata?.get()).ok()?;
        let of_images = |detail: &&Detail<'_>| detail.modality.as_ref().is_some_and(|text| text.0 == "IMAGE");
        let details = details.candidates_tokens_details?;
        let tokens = details.iter().filter(of_images).filter_map(|detail| detail.token_count);
        Some(tokens.fold(0, u64::saturating_add))
    }
}
