//! Writes a complete chat answer as a Gemini answer.

use super::frame::{self, Average, CandidateEnd};
use super::signature;
use super::stream::GeminiSink;
use crate::adapt::through_chat::ChatClient;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{BadAnswer, TranslatedAnswer};
use crate::chat::{AnswerText, ChatChoice, ChatCompletion, ChatSink, OutputMedia, ThinkingBlock};
use crate::finish_word::finish;
use crate::json::JsonWriter;

/// The values shared by all answers to one request.
#[derive(Clone, Debug)]
pub(super) struct GeminiForm {
    /// The target's name of the model, as JSON.
    pub(super) model: String,
    /// The ID of the answer.
    pub(super) id: String,
    /// True if the client wants the model's thoughts.
    pub(super) wants_thoughts: bool,
    /// The client's names of the functions that were renamed for the target.
    pub(super) names: ToolNames,
}

impl ChatClient for GeminiForm {
    fn whole(&self, completion: &ChatCompletion<'_>) -> Result<TranslatedAnswer, BadAnswer> {
        let first = completion.choices.first().ok_or(BadAnswer::Invalid("it has no choices"))?;
        let mut json = JsonWriter::default();
        json.object().name("candidates").list();
        completion.choices.iter().for_each(|choice| self.candidate(choice, &mut json));
        json.end_list();
        frame::end(self, Some(completion.counts.unwrap_or_default()), &mut json);
        let mut dropped: Vec<_> = completion.choices.iter().flat_map(lost_media).collect();
        dropped.dedup();
        Ok(TranslatedAnswer {
            body: json.finish().into(),
            usage: completion.counts,
            extras: completion.extras.clone(),
            finish: finish(first.finish_reason.as_bytes()),
            output_bytes: completion
                .choices
                .iter()
                .map(ChatChoice::output_bytes)
                .fold(0, u64::saturating_add),
            dropped,
        })
    }

    fn sink(&self, secrets: Vec<String>) -> Box<dyn ChatSink> {
        Box::new(GeminiSink::new(self.clone(), secrets))
    }
}

fn lost_media(choice: &ChatChoice<'_>) -> Vec<&'static str> {
    choice.lost_media(|media| matches!(media, OutputMedia::Url(_)))
}

impl GeminiForm {
    fn candidate(&self, choice: &ChatChoice<'_>, json: &mut JsonWriter) {
        frame::begin_candidate(json);
        let calls: Option<Vec<String>> = choice.calls.iter().map(frame::arguments).collect();
        if self.wants_thoughts {
            thoughts(choice, json);
        }
        let texts = [&choice.content, &choice.refusal];
        let mut signature = choice.signature.as_deref();
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            frame::text_part(text, false, signature.take(), json);
        }
        choice.media.iter().for_each(|media| frame::media_part(media, json));
        for (position, (call, arguments)) in choice.calls.iter().zip(calls.iter().flatten()).enumerate() {
            frame::call_part(call, arguments, position, self, json);
        }
        let is_empty = texts.iter().all(|text| text.is_empty()) && choice.media.is_empty();
        let has_thoughts = self.wants_thoughts && has_thoughts(choice);
        // Clients fail at a content without parts.
        if is_empty && !has_thoughts && calls.as_ref().is_none_or(Vec::is_empty) {
            frame::text_part("", false, signature, json);
        }
        let end = CandidateEnd {
            finish: finish(choice.finish_reason.as_bytes()),
            has_refusal: !choice.refusal.is_empty(),
            is_malformed: calls.is_none(),
        };
        frame::end_candidate(
            choice.index,
            Some(end),
            Average::of(&choice.logprobs).value(),
            &choice.logprobs,
            json,
        );
    }
}

fn has_thoughts(choice: &ChatChoice<'_>) -> bool {
    !choice.thinking_blocks.is_empty() || !choice.reasoning.is_empty()
}

/// Writes the thoughts, those of Claude with their signatures.
fn thoughts(choice: &ChatChoice<'_>, json: &mut JsonWriter) {
    if choice.thinking_blocks.is_empty() && !choice.reasoning.is_empty() {
        frame::text_part(&choice.reasoning, true, None, json);
    }
    for block in &choice.thinking_blocks {
        match block {
            ThinkingBlock::Thinking { text, signature } => {
                let signature = signature::signed(&AnswerText::Escaped(signature).plain());
                frame::text_part(text, true, Some(&signature), json);
            }
            ThinkingBlock::Redacted(data) => {
                let signature = signature::hidden(&AnswerText::Escaped(data).plain());
                frame::text_part("", true, Some(&signature), json);
            }
        }
    }
}
