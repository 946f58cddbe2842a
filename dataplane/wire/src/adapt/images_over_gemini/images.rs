//! The images in an answer of generateContent or `:predict`, or the reason why there are none.

use std::borrow::Cow;

use crate::finish_word::is_filtered;
use crate::gemini::GeminiAnswer;

/// One image of the answer.
#[derive(Debug)]
pub(super) struct GeminiImage<'a> {
    pub(super) data: Cow<'a, str>,
    pub(super) mime_type: Option<Cow<'a, str>>,
    pub(super) revised_prompt: Option<Cow<'a, str>>,
}

/// Takes the images, in order. Images that are part of thoughts are skipped, as is their text.
pub(super) fn take_images<'a>(answer: &mut GeminiAnswer<'a>) -> Vec<GeminiImage<'a>> {
    let parts = answer.candidates.iter_mut().flatten().filter_map(|candidate| candidate.content.as_mut());
    let parts = parts.flat_map(|content| content.parts.iter_mut().flatten());
    let drawn = parts.filter(|part| !part.is_thought()).filter_map(|part| {
        let blob = part.inline_data.take()?;
        Some(GeminiImage {
            data: blob.data?.0,
            mime_type: blob.mime_type.map(|text| text.0),
            revised_prompt: None,
        })
    });
    let predicted = answer.predictions.iter_mut().flatten().filter_map(|image| {
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
pub(super) fn refusal<'a>(answer: &'a GeminiAnswer<'_>) -> Option<&'a str> {
    let feedback = answer.prompt_feedback.as_ref().and_then(|feedback| {
        let reason = feedback.block_reason.as_ref()?;
        Some(&*feedback.block_reason_message.as_ref().unwrap_or(reason).0)
    });
    let filtered =
        || answer.predictions.iter().flatten().find_map(|image| image.rai_filtered_reason.as_ref());
    feedback.or_else(|| filtered().map(|text| &*text.0)).or_else(|| {
        ends(answer)
            .find(|(reason, _)| is_filtered(reason))
            .map(|(reason, message)| message.unwrap_or(reason))
    })
}

/// Returns the text sent instead of an image or, without text, the reason why the answer ended. May be empty.
pub(super) fn words(answer: &GeminiAnswer<'_>) -> String {
    let parts = answer.candidates.iter().flatten().filter_map(|candidate| candidate.content.as_ref());
    let parts = parts.flat_map(|content| content.parts.iter().flatten());
    let texts = parts.filter(|part| !part.is_thought()).filter_map(|part| part.text.as_ref());
    let words: String = texts.map(|text| &*text.0).collect();
    if !words.trim().is_empty() {
        return words;
    }
    let end = ends(answer).find(|(reason, _)| *reason != "STOP");
    end.map(|(reason, message)| message.unwrap_or(reason).to_owned()).unwrap_or_default()
}

/// Returns the finish reason of each candidate that has one, with its message if there is one.
fn ends<'a>(answer: &'a GeminiAnswer<'_>) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
    answer.candidates.iter().flatten().filter_map(|candidate| {
        let message = candidate.finish_message.as_ref().map(|text| &*text.0);
        Some((&*candidate.finish_reason.as_ref()?.0, message))
    })
}
