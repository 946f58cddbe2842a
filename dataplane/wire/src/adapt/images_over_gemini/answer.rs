//! Translates the target's answer into an OpenAI images response.

use bytes::Bytes;
use shared::provider::path::UpstreamCall;
use shared::usage::{TokenCounts, Units};

use super::images::{GeminiImage, refusal, take_images, words};
use crate::adapt::never_streamed::NeverStreamed;
use crate::adapt::{Answers, BadAnswer, TranslatedAnswer};
use crate::envelope::StreamError;
use crate::extras::Extras;
use crate::gemini::{GeminiAnswer, GeminiUsage};
use crate::json::JsonWriter;
use crate::stream::AnswerStream;

/// Translates the answers to one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageAnswers {
    pub(super) predicts: bool,
    /// Seconds since the Unix epoch.
    pub(super) created: u64,
}

impl Answers for ImageAnswers {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        let mut answer = match serde_json::from_slice::<GeminiAnswer<'_>>(body) {
            Ok(answer) if answer.error.is_none() => answer,
            Ok(_) | Err(_) => {
                let error = StreamError::of_odd(body);
                return Err(
                    error.map_or(BadAnswer::Invalid("it is not a response with images"), BadAnswer::Error)
                );
            }
        };
        let images = take_images(&mut answer);
        if images.is_empty() {
            let refusal = refusal(&answer).map(refused);
            return Err(refusal.map_or_else(|| BadAnswer::Nothing(words(&answer)), BadAnswer::Error));
        }
        let usage = answer.usage();
        let tier = usage.as_ref().and_then(GeminiUsage::tier);
        let image_tokens = usage.as_ref().and_then(GeminiUsage::image_tokens);
        let usage = usage.as_ref().map(GeminiUsage::counts);
        let body = self.write(&images, usage, image_tokens);
        let units = Units { images: images.len().try_into().unwrap_or(u64::MAX), ..Units::ZERO };
        Ok(TranslatedAnswer {
            body,
            usage,
            extras: Extras { units, tier, ..Extras::default() },
            ..TranslatedAnswer::default()
        })
    }

    fn stream(&self, _secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(NeverStreamed::default())
    }

    fn call(&self, _stream: bool) -> UpstreamCall {
        if self.predicts { UpstreamCall::Predict } else { UpstreamCall::Whole }
    }
}

/// Returns OpenAI's error for an image that was deliberately not made, or withheld.
fn refused(why: &str) -> StreamError {
    StreamError {
        message: format!("The provider's safety system rejected this image: {why}"),
        kind: Some("image_generation_user_error".to_owned()),
        code: Some("moderation_blocked".to_owned()),
        status: Some(400),
        ..StreamError::default()
    }
}

impl ImageAnswers {
    fn write(
        &self,
        images: &[GeminiImage<'_>],
        usage: Option<TokenCounts>,
        image_tokens: Option<u64>,
    ) -> Bytes {
        let mut json = JsonWriter::default();
        json.object().name("created").number(self.created).name("data").list();
        for image in images {
            json.object().name("b64_json").text(&image.data);
            if let Some(prompt) = &image.revised_prompt {
                json.name("revised_prompt").text(prompt);
            }
            json.end_object();
        }
        json.end_list();
        let kinds = images.iter().filter_map(|image| image.mime_type.as_deref());
        if let Some(format) = kinds.filter_map(|kind| kind.strip_prefix("image/")).next() {
            json.name("output_format").text(format);
        }
        if let Some(usage) = usage {
            write_usage(&usage, image_tokens, &mut json);
        }
        json.end_object();
        json.finish().into()
    }
}

/// Writes `usage`. Output tokens include the tokens of thoughts; the prompt is text only.
fn write_usage(usage: &TokenCounts, image_tokens: Option<u64>, json: &mut JsonWriter) {
    let (input, output) = (usage.input_total(), usage.output_total());
    json.name("usage").object().name("input_tokens").number(input);
    json.name("input_tokens_details").object().name("text_tokens").number(input);
    json.name("image_tokens").number(0).end_object().name("output_tokens").number(output);
    if let Some(tokens) = image_tokens.filter(|tokens| *tokens <= output) {
        json.name("output_tokens_details").object().name("image_tokens").number(tokens);
        json.name("text_tokens").number(output.saturating_sub(tokens)).end_object();
    }
    json.name("total_tokens").number(input.saturating_add(output)).end_object();
}
